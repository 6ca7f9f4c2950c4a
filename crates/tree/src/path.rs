//! Which pages lie on the way to a range of keys? For those who want to know where a scan has been.

use homenode_pool::{PAGE_BYTES, PageNo};

use crate::descend::To;
use crate::layout::View;
use crate::{Tree, TreeError};

impl Tree {
    /// The pages that hold keys from `lower` up to, but without, `upper`, and those above them; the root first, each once, as
    /// of now. Leaves are named, not read.
    ///
    /// # Errors
    /// If a page cannot be read.
    pub fn pages_between(&self, lower: &[u8], upper: Option<&[u8]>) -> Result<Vec<PageNo>, TreeError> {
        let mut pages = vec![self.root];
        let mut copy = vec![0; PAGE_BYTES];
        for level in (1..self.depth()?).rev() {
            let mut key = lower.to_vec();
            loop {
                self.read_page(To(&key), level as u8, |page| page.copy_to(0, &mut copy))?;
                let view = View(copy.as_slice());
                if usize::from(view.level()) != level {
                    break;
                }
                let first = view.child_index(&key);
                let last = upper.map_or(view.count(), |upper| view.child_index_below(upper));
                pages.extend((first..=last.max(first)).map(|i| view.child(i)));
                match view.upper() {
                    Some(next) if upper.is_none_or(|upper| next < upper) => key = next.to_vec(),
                    _ => break,
                }
            }
        }
        Ok(pages)
    }
}
