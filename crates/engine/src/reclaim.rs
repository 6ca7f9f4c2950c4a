//! Which pages does nobody use after a crash? Those that no tree of the catalog reaches.
//!
//! A new tree (CREATE INDEX, COPY into a new table, TRUNCATE) is made before its transaction commits, an old one is given back after. A crash
//! in between leaves its pages allocated, with nothing that leads to them. To log who is about to own what would cost every such statement
//! records that are nearly never read, and still miss pages that a checkpoint in the middle of a bulk load counts as used. So
//! recovery looks itself: it reads the inner pages of all trees, one page in some hundreds, and gives back the rest. A start
//! after an orderly end does not.

use crate::database::Inner;
use crate::error::{Result, Storage};
use crate::record::KIND_FREE;
use homenode_pool::PageNo;
use homenode_tree::Tree;
use std::sync::Arc;

/// Pages named in one log record.
const RECORD_PAGES: usize = 4096;

/// A set of page numbers.
struct PageSet(Vec<u64>);

impl PageSet {
    fn insert(&mut self, page: PageNo) {
        let word = (page / 64) as usize;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (page % 64);
    }

    fn contains(&self, page: PageNo) -> bool {
        self.0.get((page / 64) as usize).is_some_and(|word| word & (1 << (page % 64)) != 0)
    }
}

/// Gives back the pages that no tree reaches; how many. The losers have been taken back, the catalog is loaded, and nobody else is there.
pub(crate) fn reclaim(db: &Arc<Inner>) -> Result<usize> {
    let mut reached = PageSet(Vec::new());
    let roots: Vec<PageNo> = db.live_trees.lock().iter().copied().collect();
    for root in roots {
        // The number is only for messages, and a tree's own pages carry it.
        let tree = Tree::open(db.pool.clone(), db.log.clone(), 0, root);
        tree.pages().sql()?.into_iter().for_each(|page| reached.insert(page));
    }
    let lost: Vec<PageNo> = db.pool.allocated_pages().filter(|&page| !reached.contains(page)).collect();
    release(db, 0, &lost);
    if !lost.is_empty() {
        tracing::info!(pages = lost.len(), "pages of unfinished work were given back");
    }
    Ok(lost.len())
}

/// Gives pages back, logged.
pub(crate) fn release(db: &Arc<Inner>, lane: usize, pages: &[PageNo]) {
    for some in pages.chunks(RECORD_PAGES) {
        let numbers: Vec<u8> = some.iter().flat_map(|page| page.to_le_bytes()).collect();
        db.log.append(lane, KIND_FREE, &[&numbers]);
    }
    pages.iter().for_each(|&page| db.pool.free(page));
}
