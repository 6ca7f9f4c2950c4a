//! Which frames belong together? A node's slice of the pool: frames, free list, clock hand.
//!
//! A partition's frames and descriptors lie on its node. Tasks take frames from the partition of
//! the CPU they run on, so in the common case neither the free list nor the hand is a line that
//! two nodes fight over. The hand advances 64 frames at a time: one shared write per 64 frames
//! looked at (PostgreSQL's one-at-a-time hand costs 100 to 200 ns a step across sockets).

use homenode_platform::CachePadded;
use homenode_platform::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use homenode_platform::sync::Mutex;

use crate::PAGE_BYTES;
use crate::frame::{Frame, NO_FRAME};
use crate::stats::{Counters, PartitionStats};

/// Frames that the hand passes in one step.
pub(crate) const SWEEP: usize = 64;
// A step lies in one unit.
const _: () = assert!(UNIT.is_multiple_of(SWEEP));
/// Stands for "next" in frames that are in no list because their unit is not active.
const PARKED: u32 = NO_FRAME - 1;

/// Frames in 2 MiB, the unit in which a partition grows and shrinks: no huge page is shared or cut.
pub(crate) const UNIT: usize = (2 << 20) / PAGE_BYTES;

/// The free frames, linked through their descriptors.
struct FreeList {
    head: u32,
    /// Of each unit that is not active: its frames that hold no page. They are in no list.
    parked: Box<[u32]>,
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
    /// Of the second tier: see `far`.
    far: bool,
    /// Its memory's place in the arena: which slab, and its first unit there.
    slab: usize,
    first_unit: usize,
    first: *const Frame,
    count: usize,
    /// Units whose frames are used. Changed under the free list's lock.
    active: Box<[AtomicBool]>,
    active_frames: AtomicUsize,
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
    /// Without active units.
    ///
    /// # Safety
    /// `first .. first + count` are initialised descriptors of frames without pages, numbered 0.. for partition `id`, that outlive
    /// the partition.
    pub(crate) unsafe fn new(
        id: usize,
        node: usize,
        far: bool,
        place: (usize, usize),
        first: *const Frame,
        count: usize,
    ) -> Partition {
        let units = count.div_ceil(UNIT);
        let frames_of = |unit: usize| UNIT.min(count - unit * UNIT) as u32;
        Partition {
            id,
            node,
            far,
            slab: place.0,
            first_unit: place.1,
            first,
            count,
            active: (0..units).map(|_| AtomicBool::new(false)).collect(),
            active_frames: AtomicUsize::new(0),
            free: CachePadded::new(Mutex::new(FreeList {
                head: NO_FRAME,
                parked: (0..units).map(frames_of).collect(),
            })),
            free_count: AtomicUsize::new(0),
            demand: CachePadded::new(AtomicU64::new(0)),
            hand: CachePadded::new(AtomicUsize::new(0)),
            redirect: CachePadded::new(Redirect { keep: AtomicU32::new(256), target: AtomicUsize::new(id) }),
            counters: CachePadded::new(Counters::default()),
        }
    }

    pub(crate) fn is_far(&self) -> bool {
        self.far
    }

    /// Its slab, and its units there.
    pub(crate) fn place(&self, unit: usize) -> (usize, usize) {
        (self.slab, self.first_unit + unit)
    }

    pub(crate) fn units(&self) -> usize {
        self.active.len()
    }

    pub(crate) fn is_active(&self, unit: usize) -> bool {
        self.active[unit].load(Relaxed)
    }

    /// Frames of active units.
    pub(crate) fn active_frames(&self) -> usize {
        self.active_frames.load(Relaxed)
    }

    pub(crate) fn unit_frames(&self, unit: usize) -> &[Frame] {
        &self.frames()[unit * UNIT..self.count.min((unit + 1) * UNIT)]
    }

    /// Whether no frame of a unit that is not active holds a page, or is about to.
    pub(crate) fn is_vacant(&self, unit: usize) -> bool {
        !self.is_active(unit) && self.free.lock().parked[unit] as usize == self.unit_frames(unit).len()
    }

    /// Uses a vacant unit, or again one that is being vacated.
    pub(crate) fn activate(&self, unit: usize) {
        let frames = self.unit_frames(unit);
        let mut free = self.free.lock();
        if self.active[unit].swap(true, Relaxed) {
            return;
        }
        self.active_frames.fetch_add(frames.len(), Relaxed);
        // Which of them are parked is not kept: those that hold no page and that nobody holds, unless it has just been taken out.
        let parked = std::mem::take(&mut free.parked[unit]) as usize;
        if parked == frames.len() {
            frames.iter().rev().for_each(|frame| self.link(&mut free, frame));
        } else {
            // Found by its mark: see `push_free`.
            frames.iter().filter(|frame| frame.next_free() == PARKED).for_each(|frame| self.link(&mut free, frame));
        }
    }

    /// Stops using a unit: its free frames are parked now, the others when they are given back. False if it was not used.
    pub(crate) fn deactivate(&self, unit: usize) -> bool {
        let mut free = self.free.lock();
        if !self.active[unit].swap(false, Relaxed) {
            return false;
        }
        self.active_frames.fetch_sub(self.unit_frames(unit).len(), Relaxed);
        let mut at = std::mem::replace(&mut free.head, NO_FRAME);
        let mut kept = Vec::new();
        while let Some(frame) = self.frames().get(at as usize) {
            at = frame.next_free();
            if frame.index() as usize / UNIT == unit {
                frame.set_next_free(PARKED);
                free.parked[unit] += 1;
            } else {
                kept.push(frame);
            }
        }
        self.free_count.store(0, Release);
        kept.into_iter().rev().for_each(|frame| self.link(&mut free, frame));
        true
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
        let count = self.active_frames();
        (count / 64).clamp((2 * SWEEP).min(count / 4), 2048)
    }

    /// Puts a frame that holds no page into the free list.
    pub(crate) fn push_free(&self, frame: &Frame) {
        debug_assert_eq!(frame.partition(), self.id);
        let mut free = self.free.lock();
        let unit = frame.index() as usize / UNIT;
        if self.is_active(unit) {
            self.link(&mut free, frame);
        } else {
            frame.set_next_free(PARKED);
            free.parked[unit] += 1;
        }
    }

    fn link(&self, free: &mut FreeList, frame: &Frame) {
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
        frame.set_next_free(NO_FRAME);
        self.free_count.store(self.free_count.load(Relaxed) - 1, Release);
        Some(frame)
    }

    /// Moves the hand on, over units that are not active, and returns the frames it passed.
    pub(crate) fn sweep(&self) -> &[Frame] {
        let step = SWEEP.min(self.count);
        for _ in 0..self.count.div_ceil(step) {
            let at = self.hand.fetch_add(step, Relaxed) % self.count;
            if self.is_active(at / UNIT) {
                // A count that is no multiple of the step makes the last piece of a turn shorter.
                let frames = &self.frames()[at..self.count.min(at + step)];
                crate::stats::bump(&self.counters.swept, frames.len() as u64);
                return frames;
            }
        }
        &[]
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
            frames: self.active_frames() as u64,
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
            used: get(&c.used),
            far: self.far,
            demoted: get(&c.demoted),
            returned: get(&c.returned),
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

    /// # Safety
    /// The descriptors outlive the partition.
    unsafe fn partition(frames: &[Frame]) -> Partition {
        // SAFETY: the caller's promise.
        let partition = unsafe { Partition::new(3, 0, false, (0, 0), frames.as_ptr(), frames.len()) };
        (0..partition.units()).for_each(|unit| partition.activate(unit));
        partition
    }

    fn descriptors(count: usize) -> Vec<Frame> {
        (0..count as u32).map(|i| Frame::new(3, i, std::ptr::null_mut())).collect()
    }

    #[test]
    fn the_free_list_gives_each_frame_once() {
        let frames = descriptors(128);
        // SAFETY: the descriptors outlive the partition.
        let partition = unsafe { partition(&frames) };
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
        let partition = unsafe { partition(&frames) };
        let mut passed = [0; 128];
        for _ in 0..4 {
            partition.sweep().iter().for_each(|f| passed[f.index() as usize] += 1);
        }
        assert!(passed.iter().all(|&n| n == 2));
    }

    #[test]
    fn a_unit_is_vacant_when_all_its_frames_are_back() {
        let frames = descriptors(3 * UNIT);
        // SAFETY: the descriptors outlive the partition.
        let partition = unsafe { partition(&frames) };
        let taken = partition.pop_free().unwrap();
        assert_eq!(taken.index(), 2 * UNIT as u32, "the unit activated last comes first");
        assert!(partition.deactivate(2) && !partition.deactivate(2));
        assert!(!partition.is_vacant(2), "one is out");
        assert_eq!((partition.free_count(), partition.active_frames()), (2 * UNIT, 2 * UNIT));
        partition.push_free(taken);
        assert!(partition.is_vacant(2));
        assert!((0..8).flat_map(|_| partition.sweep()).all(|frame| (frame.index() as usize) < 2 * UNIT));
        partition.activate(2);
        assert_eq!((partition.free_count(), partition.active_frames()), (3 * UNIT, 3 * UNIT));
        // Taken back while some are still out.
        let taken = partition.pop_free().unwrap();
        partition.deactivate(2);
        partition.activate(2);
        assert_eq!(partition.free_count(), 3 * UNIT - 1);
        partition.push_free(taken);
        let mut seen = vec![false; 3 * UNIT];
        while let Some(frame) = partition.pop_free() {
            assert!(!std::mem::replace(&mut seen[frame.index() as usize], true));
        }
        assert!(seen.iter().all(|&seen| seen));
        (0..3).for_each(|unit| assert!(partition.deactivate(unit)));
        assert!(partition.sweep().is_empty() && partition.free_target() == 0);
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
        let partition = unsafe { partition(&frames) };
        partition.set_redirect(64, 1);
        let kept = (0..1024).filter(|_| partition.route() == 3).count();
        assert_eq!(kept, 256);
    }
}
