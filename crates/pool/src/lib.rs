//! Which pages are in memory? Frames, replacement, page cleaning, page input and output.
//!
//! One [`Pool`] serves one page file of 16 KiB pages. A page is reached by its number through a
//! guard:
//!
//! - [`Optimistic`]: writes nothing that others read; what was read counts only if
//!   [`Optimistic::validate`] says so afterwards. The way down a tree.
//! - [`Shared`] and [`Exclusive`]: the page's latch in that mode, released on drop.
//!
//! **From number to frame** (`translation`): an array indexed by page number, no hash table, no
//! lock. The entry leads to the frame's descriptor, the descriptor says which page it holds, and
//! the latch's version proves that this stayed so.
//!
//! **Frames** (`frame`, `partition`): each partition has its frames, descriptors and free list on
//! its own node; a batched clock hand finds victims; page cleaners (`cleaner`) keep a share of the
//! frames free, so that a miss seldom waits for a write.
//!
//! **Writing** (`writeback`): a page is copied under a shared latch; the images of a batch are
//! appended to the log and flushed; only then are the pages overwritten in place. A torn page is
//! therefore always repairable. `space` hands out page numbers and grows the file.
//!
//! # Errors on a path that may be stale
//! A page number read optimistically from a page may be out of date by the time it is followed.
//! Then [`PoolError::NotAllocated`] (the page was freed) or, rarely, [`PoolError::Damaged`] is
//! returned. **Validate the guard the number came from first**; only if that still holds is the
//! error real.

mod allocated;
mod arena;
mod census;
mod cleaner;
mod error;
mod far;
mod file;
mod frame;
mod guard;
mod page;
mod partition;
mod partitions;
mod pool;
mod prewarm;
mod read_ahead;
mod reshape;
mod space;
mod stats;
mod translation;
mod waits;
mod writeback;

pub use census::{FrameInfo, PageInfo};
pub use error::PoolError;
pub use guard::{Exclusive, Optimistic, Shared};
pub use page::{PageBuf, PageMut, PageRef, header, page_checksum};
pub use pool::{Pool, PoolConfig, RepairHook};
pub use reshape::Reshaped;
pub use stats::{PartitionStats, PoolRegion, PoolStats};
pub use writeback::Pace;

/// Number of a page in the page file; its bytes start at `page_no * PAGE_BYTES`.
pub type PageNo = u64;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 16384;

/// No page: number 0 is the file's own header page, which is never in the pool.
pub const NO_PAGE: PageNo = 0;

/// What the pool needs of the write-ahead log.
pub trait Wal: Send + Sync {
    /// Returns once the log is durable up to `lsn`; may park the task.
    fn flush_to(&self, lsn: u64);

    /// Appends full images of these pages and returns the LSN behind the last of them. Need not be
    /// durable on return; the pool calls [`Wal::flush_to`] with the result before it overwrites a
    /// page in place.
    fn log_images(&self, pages: &[(PageNo, &[u8])]) -> u64;

    /// The LSN that the next appended record will get, or a smaller one.
    fn tail(&self) -> u64;
}
