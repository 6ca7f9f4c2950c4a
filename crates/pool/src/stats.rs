//! What has the pool done? Counters of the slow paths, one padded set per partition.
//!
//! Hits are not counted: counting them would be the only write on the read path.

use std::ops::Range;

use homenode_memory::{PageKind, Placement, Region};
use homenode_platform::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters of one partition. Bumped by misses, evictions and writes only.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) reads: AtomicU64,
    pub(crate) read_runs: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) write_runs: AtomicU64,
    pub(crate) write_errors: AtomicU64,
    pub(crate) images: AtomicU64,
    pub(crate) evictions: AtomicU64,
    pub(crate) foreground_evictions: AtomicU64,
    pub(crate) frame_waits: AtomicU64,
    pub(crate) taken: AtomicU64,
    pub(crate) borrowed: AtomicU64,
    pub(crate) dirtied: AtomicU64,
    pub(crate) copied: AtomicU64,
    pub(crate) swept: AtomicU64,
    pub(crate) used: AtomicU64,
    pub(crate) demoted: AtomicU64,
    pub(crate) returned: AtomicU64,
}

pub(crate) fn bump(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Relaxed);
}

/// What one partition holds and has done since the pool was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionStats {
    /// Number of the partition.
    pub partition: usize,
    /// Kernel's number of the node its memory belongs to.
    pub node: usize,
    /// Frames.
    pub frames: u64,
    /// Frames that hold no page.
    pub free: u64,
    /// Pages with changes that are not yet copied out for writing.
    pub dirty: u64,
    /// Pages read from the file.
    pub reads: u64,
    /// Read calls: `reads / read_runs` is the average run length.
    pub read_runs: u64,
    /// Pages written to the file.
    pub writes: u64,
    /// Write calls: `writes / write_runs` is the average run length.
    pub write_runs: u64,
    /// Write calls that failed; their pages stayed dirty.
    pub write_errors: u64,
    /// Page images appended to the log before writing.
    pub images: u64,
    /// Pages evicted.
    pub evictions: u64,
    /// Of those, by a task that needed a frame at once.
    pub foreground_evictions: u64,
    /// Times that a task waited for a page cleaner.
    pub frame_waits: u64,
    /// Frames given to pages.
    pub taken: u64,
    /// Of those, wanted from another partition that had none.
    pub borrowed: u64,
    /// Frames looked at by the clock hand.
    pub swept: u64,
    /// Of those that a page cleaner looked at, found in use since the hand came by before.
    pub used: u64,
    /// Whether it is of the far tier.
    pub far: bool,
    /// Pages that cooled: came here from the near tier (far), or went from here to the far one (near).
    pub demoted: u64,
    /// Pages that were warm in the far tier: went back from here (far), or came back here (near).
    pub returned: u64,
}

/// A region of the pool's memory: where it is in the address space, and where it ought to be in the machine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PoolRegion {
    /// What it holds.
    pub name: String,
    /// The node that it belongs to, if to one.
    pub node: Option<usize>,
    /// Its addresses.
    pub addresses: Range<usize>,
    /// What it is made of.
    pub pages: PageKind,
    /// What became of the policy that was asked for.
    pub placement: Placement,
}

impl PoolRegion {
    pub(crate) fn of(name: impl Into<String>, node: Option<usize>, region: &Region) -> PoolRegion {
        let start = region.as_ptr().addr();
        PoolRegion {
            name: name.into(),
            node,
            addresses: start..start + region.len(),
            pages: region.pages(),
            placement: region.placement(),
        }
    }
}

/// What the pool holds and has done.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PoolStats {
    /// Each partition's.
    pub partitions: Vec<PartitionStats>,
    /// Pages of the page file that are or were in use: one more than the highest page number.
    pub high_water: u64,
    /// Page numbers below the high-water mark that are free.
    pub free_pages: u64,
    /// Bytes of frames.
    pub frame_bytes: u64,
    /// Bytes of descriptors.
    pub descriptor_bytes: u64,
    /// Bytes mapped for the translation array.
    pub translation_bytes: u64,
}

impl PoolStats {
    /// The sum over all partitions (its `partition` and `node` mean nothing).
    pub fn total(&self) -> PartitionStats {
        let mut sum = PartitionStats::default();
        for p in &self.partitions {
            sum.frames += p.frames;
            sum.free += p.free;
            sum.dirty += p.dirty;
            sum.reads += p.reads;
            sum.read_runs += p.read_runs;
            sum.writes += p.writes;
            sum.write_runs += p.write_runs;
            sum.write_errors += p.write_errors;
            sum.images += p.images;
            sum.evictions += p.evictions;
            sum.foreground_evictions += p.foreground_evictions;
            sum.frame_waits += p.frame_waits;
            sum.taken += p.taken;
            sum.borrowed += p.borrowed;
            sum.swept += p.swept;
            sum.used += p.used;
        }
        sum
    }

    /// Pages per write call; 0 without any.
    pub fn average_write_run(&self) -> f64 {
        ratio(self.total().writes, self.total().write_runs)
    }

    /// Pages per read call; 0 without any.
    pub fn average_read_run(&self) -> f64 {
        ratio(self.total().reads, self.total().read_runs)
    }
}

fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}
