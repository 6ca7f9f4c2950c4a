//! What has the log done so far? Numbers for a view.

use crate::Lsn;
use homenode_platform::atomic::{AtomicU64, Ordering::Relaxed};

/// Statistics of a log since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// The end of all reservations.
    pub tail: Lsn,
    /// The position up to which the log survives a crash.
    pub durable: Lsn,
    /// Records appended.
    pub records: u64,
    /// Bytes written to segments.
    pub bytes: u64,
    /// Flushes: each a write and a sync.
    pub flushes: u64,
    /// Committers that flushes released, in total: divided by `flushes`, the size of a group.
    pub released: u64,
    /// The largest group that one flush released.
    pub released_worst: u64,
    /// Time of all syncs (`fdatasync`), nanoseconds.
    pub sync_ns_total: u64,
    /// Time of the longest sync, nanoseconds.
    pub sync_ns_worst: u64,
    /// Time of all flushes from gathering to publishing, nanoseconds.
    pub flush_ns_total: u64,
    /// Time of the longest flush, nanoseconds.
    pub flush_ns_worst: u64,
    /// Times that a committer had to wait for a flush.
    pub waits: u64,
    /// Times that an append had to wait for room in the ring.
    pub ring_waits: u64,
    /// Segments on disk, with those prepared ahead.
    pub segments: u64,
    /// Segments prepared ahead.
    pub segments_ready: u64,
    /// Segments that were reused instead of being made anew.
    pub segments_recycled: u64,
    /// Why the last attempt to prepare a segment failed, if it did.
    pub supply_error: Option<String>,
}

/// The part that the flusher counts. One writer, so plain loads and stores do.
#[derive(Default)]
pub(crate) struct FlushCounts {
    pub(crate) bytes: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) released: AtomicU64,
    pub(crate) released_worst: AtomicU64,
    pub(crate) sync_ns_total: AtomicU64,
    pub(crate) sync_ns_worst: AtomicU64,
    pub(crate) flush_ns_total: AtomicU64,
    pub(crate) flush_ns_worst: AtomicU64,
}

/// Adds to a counter that has one writer.
pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Relaxed) + by, Relaxed);
}

/// Raises a maximum that has one writer.
pub(crate) fn raise(counter: &AtomicU64, to: u64) {
    if counter.load(Relaxed) < to {
        counter.store(to, Relaxed);
    }
}
