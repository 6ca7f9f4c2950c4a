//! How much was done? Counters per lane, each written by its own lane only.

use homenode_platform::atomic::{AtomicU64, Ordering};

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Counter {
    /// Transactions committed, those that only read included.
    Commits,
    /// Transactions rolled back.
    Rollbacks,
    /// Rows read by key.
    RowsFetched,
    /// Rows read by scans.
    RowsReturned,
    /// Rows inserted.
    RowsInserted,
    /// Rows updated.
    RowsUpdated,
    /// Rows deleted.
    RowsDeleted,
    /// Transactions that failed with 40P01.
    Deadlocks,
}

const COUNTERS: usize = 8;

/// One lane's counters.
#[derive(Default)]
pub struct LaneStats([AtomicU64; COUNTERS]);

impl LaneStats {
    /// Counts `count` more. Lost updates are possible where threads share a lane, which only embedders with more sessions
    /// than lanes do; they cost a count, never a wait.
    #[inline]
    pub fn add(&self, counter: Counter, count: u64) {
        let cell = &self.0[counter as usize];
        cell.store(cell.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    /// The count so far.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize].load(Ordering::Relaxed)
    }
}
