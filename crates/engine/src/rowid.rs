//! Which hidden number does a row without a primary key get, or a value beside its row? Per lane a region of numbers, so that
//! lanes append to pages of their own.

use crate::error::{Result, Storage};
use homenode_platform::CachePadded;
use homenode_platform::atomic::{AtomicU64, Ordering};
use homenode_platform::sync::OnceLock;
use homenode_tree::{Direction, Tree};
use std::ops::Bound;

/// Numbers that one lane can give out for one tree.
const LANE_BITS: u32 = 48;

/// The numbers of one tree's keys, which begin with them.
pub struct RowIds {
    lanes: usize,
    next: OnceLock<Box<[CachePadded<AtomicU64>]>>,
}

impl RowIds {
    pub fn new(lanes: usize) -> RowIds {
        RowIds { lanes, next: OnceLock::new() }
    }

    /// Appends the number of a new row or value of `lane` to `out`.
    pub fn next(&self, tree: &Tree, lane: usize, out: &mut Vec<u8>) -> Result<()> {
        let counters = self.next.get_or_init(|| (0..self.lanes).map(|_| CachePadded(AtomicU64::new(0))).collect());
        let counter = &counters[lane].0;
        if counter.load(Ordering::Acquire) == 0 {
            // Whoever is first after a start finds the region's end; a second finder computes the same.
            let first = Self::highest(tree, lane)?.map_or(Self::first(lane), |highest| highest + 1);
            let _ = counter.compare_exchange(0, first, Ordering::AcqRel, Ordering::Acquire);
        }
        let number = counter.fetch_add(1, Ordering::Relaxed);
        assert!(number >> LANE_BITS == lane as u64 + 1, "a lane's region of row numbers is exhausted");
        out.extend_from_slice(&number.to_be_bytes());
        Ok(())
    }

    fn first(lane: usize) -> u64 {
        (lane as u64 + 1) << LANE_BITS
    }

    fn highest(tree: &Tree, lane: usize) -> Result<Option<u64>> {
        let (first, end) = (Self::first(lane), Self::first(lane + 1));
        let mut cursor = tree.cursor();
        cursor.seek(Bound::Excluded(&end.to_be_bytes()), Direction::Backward);
        let mut key = Vec::new();
        while let Some(leaf) = cursor.next_leaf(tree).sql()? {
            if let Some(slot) = leaf.slots().next_back() {
                leaf.key(slot, &mut key);
                let number = key.first_chunk().map(|number| u64::from_be_bytes(*number));
                return Ok(number.filter(|&number| number >= first));
            }
        }
        Ok(None)
    }
}
