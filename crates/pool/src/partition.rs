//! Which frames belong together? A node's slice of the pool: frames, free list, clock hand.
//!
//! A partition's frames and descriptors lie on its node. Tasks take frames from the partition of
//! the CPU they run on, so in the common case neither the free list nor the hand is a line that
//! two nodes fight over. The hand advances 64 frames at a time: one shared write per 64 frames
//! looked at (PostgreSQL's one-at-a-time hand costs 100 to 200 ns a step across sockets).

use homenode_platform::CachePadded;
use homenode_platform::atomic::{
    AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use homenode_platform::sync::Mutex;

use crate::frame::{Frame, NO_FRAME};
use crate::stats::{Counters, PartitionStats};

/// Frames that the hand passes in one step.
pub(crate) const SWEEP: usize = 64;

/// The free frames, linked through their descriptors.
struct FreeList {
    head: u32,
}

/// Which other partition takes part of this one's demand.
struct Redirect {
    /// Of 256 frames taken here, how many are taken from this partition itself.
    keep: AtomicU32,
    /// Where the others come from.
    target: AtomicUsize,
}

/// A slice of the pool.
pub(crate) struct Partition {
    id: usize,
    node: usize,
    first: *const Frame,
    count: usize,
    free: CachePadded<Mutex<FreeList>>,
    free_count: AtomicUsize,
    /// Frames asked for by tasks at home here, for balancing.
    demand: CachePadded<AtomicU64>,
    hand: CachePadded<AtomicUsize>,
    redirect: CachePadded<Redirect>,
    pub(crate) counters: CachePadded<Counters>,
}

// SAFETY: `first` points at `count` descriptors that live as long as the pool; they are Sync.
unsafe impl Send for Partition {}
// SAFETY: as above.
unsafe impl Sync for Partition {}

impl Partition {
    /// # Safety
    /// `first .. first + count` are initialised descriptors, numbered 0.. for partition `id`, that
    /// outlive the partition.
    pub(crate) unsafe fn new(id: usize, node: usize, first: *const Frame, count: usize) -> Partition {
        let partition = Partition {
            id,
            node,
            first,
            count,
            free: CachePadded::new(Mutex::new(FreeList { head: NO_FRAME })),
            free_count: AtomicUsize::new(0),
            demand: CachePadded::new(AtomicU64::new(0)),
            hand: CachePadded::new(AtomicUsize::new(0)),
            redirect: CachePadded::new(Redirect { keep: AtomicU32::new(256), target: AtomicUsize::new(id) }),
            counters: CachePadded::new(Counters::default()),
        };
        for frame in partition.frames().iter().rev() {
            partition.push_free(frame);
        }
        partition
    }

    pub(crate) fn node(&self) -> usize {
        self.node
    }

    pub(crate) fn id(&self) -> usize {
        self.id
    }

    pub(crate) fn frames(&self) -> &[Frame] {
        // SAFETY: by the contract of `new`.
        unsafe { std::slice::from_raw_parts(self.first, self.count) }
    }

    /// Frames in the free list; another thread's changes may show late.
    pub(crate) fn free_count(&self) -> usize {
        self.free_count.load(Relaxed)
    }

    /// How many frames the cleaner keeps free: 1/64 of them, but at least two hand steps' worth
    /// (or a quarter of a tiny partition) and at most 32 MiB.
    pub(crate) fn free_target(&self) -> usize {
        (self.count / 64).clamp((2 * SWEEP).min(self.count / 4), 2048)
    }

    /// Puts a frame that holds no page into the free list.
    pub(crate) fn push_free(&self, frame: &Frame) {
        debug_assert_eq!(frame.partition(), self.id);
        let mut free = self.free.lock();
        frame.set_next_free(free.head);
        free.head = frame.index();
        self.free_count.store(self.free_count.load(Relaxed) + 1, Release);
    }

    /// Takes a frame out of the free list.
    pub(crate) fn pop_free(&self) -> Option<&Frame> {
        if self.free_count.load(Acquire) == 0 {
            return None;
        }
        let mut free = self.free.lock();
        let frame = self.frames().get(free.head as usize)?;
        free.head = frame.next_free();
        self.free_count.store(self.free_count.load(Relaxed) - 1, Release);
        Some(frame)
    }

    /// Moves the hand on and returns the frames it passed.
    pub(crate) fn sweep(&self) -> &[Frame] {
        let step = SWEEP.min(self.count);
        let at = self.hand.fetch_add(step, Relaxed) % self.count;
        // A count that is no multiple of the step makes the last piece of a turn shorter.
        let frames = &self.frames()[at..self.count.min(at + step)];
        crate::stats::bump(&self.counters.swept, frames.len() as u64);
        frames
    }

    /// Counts a frame wanted by a task at home here, and says which partition it should come from.
    pub(crate) fn route(&self) -> usize {
        let n = self.demand.fetch_add(1, Relaxed);
        // Odd multiplier: every run of 256 visits each value once, so shares are exact.
        if (n.wrapping_mul(167) & 255) < u64::from(self.redirect.keep.load(Relaxed)) {
            self.id
        } else {
            self.redirect.target.load(Relaxed)
        }
    }

    /// Frames wanted so far by tasks at home here.
    pub(crate) fn demand(&self) -> u64 {
        self.demand.load(Relaxed)
    }

    /// Of 256 frames wanted here, `keep` shall come from here, the others from `target`.
    pub(crate) fn set_redirect(&self, keep: u32, target: usize) {
        self.redirect.keep.store(keep, Relaxed);
        self.redirect.target.store(target, Relaxed);
    }

    pub(crate) fn stats(&self) -> PartitionStats {
        let c = &self.counters;
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        PartitionStats {
            partition: self.id,
            node: self.node,
            frames: self.count as u64,
            free: self.free_count() as u64,
            dirty: get(&c.dirtied).saturating_sub(get(&c.copied)),
            reads: get(&c.reads),
            read_runs: get(&c.read_runs),
            writes: get(&c.writes),
            write_runs: get(&c.write_runs),
            write_errors: get(&c.write_errors),
            images: get(&c.images),
            evictions: get(&c.evictions),
            foreground_evictions: get(&c.foreground_evictions),
            frame_waits: get(&c.frame_waits),
            taken: get(&c.taken),
            borrowed: get(&c.borrowed),
            swept: get(&c.swept),
        }
    }
}

/// Shares a demand that is larger here than there: for each partition, how many of 256 frames it
/// takes from itself and where the others come from.
///
/// Each partition's hand should turn equally fast, else hot pages of a busy partition are evicted
/// while cold ones stay next door. So a partition keeps the mean demand and sends the rest to one
/// that is below it (the idea of the balancing in Tomas Vondra's NUMA patches for PostgreSQL).
pub(crate) fn balance(demand: &[u64]) -> Vec<(u32, usize)> {
    let mean = demand.iter().sum::<u64>() / demand.len().max(1) as u64;
    let mut room: Vec<u64> = demand.iter().map(|&d| mean.saturating_sub(d)).collect();
    let mut routes = Vec::with_capacity(demand.len());
    for (id, &d) in demand.iter().enumerate() {
        // An eighth above the mean is noise, not imbalance.
        if d <= mean + mean / 8 {
            routes.push((256, id));
            continue;
        }
        let (target, &most) = room.iter().enumerate().max_by_key(|(_, r)| **r).expect("at least one partition");
        let moved = (d - mean).min(most);
        room[target] -= moved;
        routes.push((256 - (moved * 256 / d) as u32, target));
    }
    routes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptors(count: usize) -> Vec<Frame> {
        (0..count as u32).map(|i| Frame::new(3, i, std::ptr::null_mut())).collect()
    }

    #[test]
    fn the_free_list_gives_each_frame_once() {
        let frames = descriptors(128);
        // SAFETY: the descriptors outlive the partition.
        let partition = unsafe { Partition::new(3, 0, frames.as_ptr(), frames.len()) };
        let mut seen = [false; 128];
        while let Some(frame) = partition.pop_free() {
            assert!(!std::mem::replace(&mut seen[frame.index() as usize], true));
        }
        assert!(seen.iter().all(|&s| s));
        partition.push_free(&frames[5]);
        assert_eq!(partition.free_count(), 1);
        assert_eq!(partition.pop_free().unwrap().index(), 5);
    }

    #[test]
    fn the_hand_passes_every_frame_once_a_turn() {
        let frames = descriptors(128);
        // SAFETY: the descriptors outlive the partition.
        let partition = unsafe { Partition::new(3, 0, frames.as_ptr(), frames.len()) };
        let mut passed = [0; 128];
        for _ in 0..4 {
            partition.sweep().iter().for_each(|f| passed[f.index() as usize] += 1);
        }
        assert!(passed.iter().all(|&n| n == 2));
    }

    #[test]
    fn a_busy_partition_sends_its_surplus_to_an_idle_one() {
        assert_eq!(balance(&[100, 100, 104]), [(256, 0), (256, 1), (256, 2)]);
        assert_eq!(balance(&[1000, 0]), [(128, 1), (256, 1)]);
        let routes = balance(&[800, 0, 0, 0]);
        assert_eq!(routes[0].0, 192);
        assert_ne!(routes[0].1, 0);
        assert_eq!(balance(&[0, 0]), [(256, 0), (256, 1)]);
    }

    #[test]
    fn routing_keeps_exactly_the_share_it_was_told() {
        let frames = descriptors(128);
        // SAFETY: the descriptors outlive the partition.
        let partition = unsafe { Partition::new(3, 0, frames.as_ptr(), frames.len()) };
        partition.set_redirect(64, 1);
        let kept = (0..1024).filter(|_| partition.route() == 3).count();
        assert_eq!(kept, 256);
    }
}
