//! Which page numbers are given out? For recovery, which looks for those that nobody uses.

use crate::{NO_PAGE, PageNo, Pool};

impl Pool {
    /// The page numbers in use, ascending. Nobody allocates or frees meanwhile.
    pub fn allocated_pages(&self) -> impl Iterator<Item = PageNo> {
        (NO_PAGE + 1..self.space.high_water()).filter(|&page_no| {
            self.slot(page_no).is_ok_and(|slot| {
                let entry = slot.load();
                !entry.is_free() && !entry.is_reserved()
            })
        })
    }
}
