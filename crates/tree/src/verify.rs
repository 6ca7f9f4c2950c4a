//! Is the tree whole? Walking all of it: for tests and for `verify` on a data folder; and the walks
//! over one level that other questions need.

use homenode_pool::{PAGE_BYTES, PageNo};

use crate::descend::To;
use crate::edit::snapshot;
use crate::layout::*;
use crate::{Tree, TreeError};

/// What a walk over a whole tree found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeReport {
    /// Levels, leaves included.
    pub depth: usize,
    /// Inner pages.
    pub inner_pages: u64,
    /// Leaves.
    pub leaf_pages: u64,
    /// Leaves without an entry.
    pub empty_leaves: u64,
    /// Entries in leaves.
    pub entries: u64,
    /// Bytes in use on leaves, of `leaf_pages * 16384`.
    pub leaf_bytes_used: u64,
    /// Bytes of garbage on leaves: had back when the page is built anew.
    pub leaf_bytes_garbage: u64,
}

impl Tree {
    /// Walks the whole tree and checks every invariant: page types, levels, fences against the
    /// parent's separators, order of keys, heads, prefixes, space accounting, overlap of entries.
    /// Nobody may change the tree meanwhile.
    ///
    /// # Errors
    /// [`TreeError::Corrupt`] with the first problem found, or if a page cannot be read.
    pub fn verify(&self) -> Result<TreeReport, TreeError> {
        let level = View(self.pool.shared(self.root)?.bytes()).level();
        let mut report = TreeReport { depth: usize::from(level) + 1, ..TreeReport::default() };
        self.verify_page(self.root, level, &[], None, &mut report)?;
        Ok(report)
    }

    fn verify_page(
        &self,
        page_no: PageNo,
        level: u8,
        lower: &[u8],
        upper: Option<&[u8]>,
        report: &mut TreeReport,
    ) -> Result<(), TreeError> {
        let page = snapshot(&self.pool.shared(page_no)?.page());
        let view = View(page.as_slice());
        let fail = |problem: String| Err(self.corrupt(page_no, problem));
        if !view.is_page_of(self.id, level) {
            let (kind, at, id) = (view.page_type(), view.level(), view.tree_id());
            return fail(format!("page of type {kind}, level {at}, tree {id} where level {level} is expected"));
        }
        if view.lower() != lower || view.upper() != upper {
            return fail("fences differ from the parent's separators".into());
        }
        if let Err(problem) = check_page(&page) {
            return fail(problem);
        }
        if level == 0 {
            report.count_leaf(view);
            return Ok(());
        }
        report.inner_pages += 1;
        for i in 0..=view.count() {
            let from = if i == 0 { lower.to_vec() } else { view.key(i - 1) };
            let to = (i < view.count()).then(|| view.key(i));
            self.verify_page(view.child(i), level - 1, &from, to.as_deref().or(upper), report)?;
        }
        Ok(())
    }

    /// Shows every page of a level to `visit`, in key order, each at one moment.
    fn walk_level(&self, level: u8, mut visit: impl FnMut(View<'_, [u8]>)) -> Result<(), TreeError> {
        let mut key = Vec::new();
        let mut copy = vec![0; PAGE_BYTES];
        loop {
            self.read_page(To(&key), level, |page| page.copy_to(0, &mut copy))?;
            let view = View(copy.as_slice());
            visit(view);
            match view.upper() {
                Some(upper) => key = upper.to_vec(),
                None => return Ok(()),
            }
        }
    }

    /// Levels of the tree; 1 for a tree that is one leaf.
    ///
    /// # Errors
    /// If the root cannot be read.
    pub fn depth(&self) -> Result<usize, TreeError> {
        let level = self.read_page(To(&[]), u8::MAX, |page| View(page).level())?;
        Ok(usize::from(level) + 1)
    }

    /// All pages of the tree, root included: what dropping the tree has to free. Nobody may change
    /// the tree meanwhile.
    ///
    /// # Errors
    /// If a page cannot be read.
    pub fn pages(&self) -> Result<Vec<PageNo>, TreeError> {
        let mut pages = vec![self.root];
        for level in (1..self.depth()?).rev() {
            self.walk_level(level as u8, |view| pages.extend((0..=view.count()).map(|i| view.child(i))))?;
        }
        Ok(pages)
    }

    /// About how many pages the tree has, from one walk down its middle.
    ///
    /// # Errors
    /// If a page cannot be read.
    pub fn pages_estimate(&self) -> Result<u64, TreeError> {
        let mut key = Vec::new();
        let (mut pages, mut width) = (1, 1);
        for level in (1..self.depth()?).rev() {
            let mut copy = vec![0; PAGE_BYTES];
            self.read_page(To(&key), level as u8, |page| page.copy_to(0, &mut copy))?;
            let view = View(copy.as_slice());
            width *= view.count() as u64 + 1;
            pages += width;
            if view.level() > 0 && view.count() > 0 {
                key = view.key(view.count() / 2);
            }
        }
        Ok(pages)
    }

    /// Shows `each` all leaves in key order: the least key that may be in it (empty for the first), and its number. Leaves that split
    /// meanwhile may be missing; what they hold lies between the keys shown all the same.
    ///
    /// # Errors
    /// If a page cannot be read.
    pub fn leaves(&self, mut each: impl FnMut(&[u8], PageNo)) -> Result<(), TreeError> {
        if self.depth()? == 1 {
            each(&[], self.root);
            return Ok(());
        }
        let mut lower = Vec::new();
        self.walk_level(1, |view| {
            for i in 0..=view.count() {
                if i > 0 {
                    view.key_into(i - 1, &mut lower);
                }
                each(&lower, view.child(i));
            }
            if let Some(upper) = view.upper() {
                lower = upper.to_vec();
            }
        })
    }

    /// Up to `parts - 1` keys that divide the tree into parts of about the same number of pages,
    /// ascending: for scans in parallel.
    ///
    /// # Errors
    /// If a page cannot be read.
    pub fn split_keys(&self, parts: usize) -> Result<Vec<Vec<u8>>, TreeError> {
        let mut level = self.depth()? - 1;
        let mut keys = Vec::new();
        // Down from the root until there are enough separators for parts of nearly equal size.
        while level > 0 && keys.len() < parts * 4 {
            keys.clear();
            self.walk_level(level as u8, |view| {
                keys.extend((0..view.count()).map(|i| view.key(i)));
                keys.extend(view.upper().map(<[u8]>::to_vec));
            })?;
            level -= 1;
        }
        let wanted = parts.saturating_sub(1).min(keys.len());
        Ok((1..=wanted).map(|i| keys[(i * (keys.len() + 1) / (wanted + 1)).clamp(1, keys.len()) - 1].clone()).collect())
    }
}

impl TreeReport {
    fn count_leaf(&mut self, view: View<'_, [u8]>) {
        self.leaf_pages += 1;
        self.empty_leaves += u64::from(view.count() == 0);
        self.entries += view.count() as u64;
        self.leaf_bytes_used += (PAGE_BYTES - view.contiguous_free() - view.garbage()) as u64;
        self.leaf_bytes_garbage += view.garbage() as u64;
    }
}

/// Checks a page by itself.
fn check_page(page: &[u8]) -> Result<(), String> {
    let view = View(page);
    let count = view.count();
    if view.heap_start() < OFF_SLOTS + SLOT_BYTES * count {
        return Err(format!("{count} slots run into the entries at {}", view.heap_start()));
    }
    check_keys(view)?;
    check_space(view)
}

fn check_keys(view: View<'_, [u8]>) -> Result<(), String> {
    let mut previous: Option<Vec<u8>> = None;
    for i in 0..view.count() {
        let key = view.key(i);
        if previous.as_ref().is_some_and(|previous| *previous >= key) {
            return Err(format!("key of slot {i} is not above the one before"));
        }
        if !view.covers(&key) {
            return Err(format!("key of slot {i} is outside the fences"));
        }
        if view.slot(i).head() != head_of(view.suffix(i)) {
            return Err(format!("head of slot {i} is wrong"));
        }
        let found = if view.level() == 0 { view.find(&key) } else { view.child_index(&key).checked_sub(1).ok_or(0) };
        if found != Ok(i) {
            return Err(format!("searching the key of slot {i} finds {found:?}"));
        }
        previous = Some(key);
    }
    if view.prefix_len() > 8 && view.prefix()[..8] != view.0[OFF_PREFIX_WORD..OFF_PREFIX_WORD + 8] {
        return Err("the two copies of the prefix differ".into());
    }
    Ok(())
}

fn check_space(view: View<'_, [u8]>) -> Result<(), String> {
    let mut ranges: Vec<_> = (0..view.count()).map(|i| (view.slot(i).off(), view.size_of(i))).collect();
    ranges.sort_unstable();
    let prefix = if view.prefix_len() > 8 { view.prefix_len() } else { 0 };
    let fixed = align8(prefix + view.lower().len() + view.upper().map_or(0, <[u8]>::len));
    let mut end = view.heap_start();
    for (off, size) in &ranges {
        if *off < end || off % 8 != 0 {
            return Err(format!("entry at {off} overlaps, or lies outside, the entry space"));
        }
        end = off + size;
    }
    if end > PAGE_BYTES - fixed {
        return Err("entries run into the fences".into());
    }
    let used: usize = ranges.iter().map(|(_, size)| size).sum();
    let accounted = used + fixed + view.garbage() + view.heap_start();
    if accounted != PAGE_BYTES {
        return Err(format!("space accounting is off: {accounted} of {PAGE_BYTES} bytes"));
    }
    Ok(())
}
