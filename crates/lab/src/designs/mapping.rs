//! PostgreSQL's mapping of pages to buffers (a hash table in 128 parts, each under a lightweight lock) and its one clock hand.
//!
//! A page that comes takes the part of the page that leaves exclusively, and its own; everybody who looks a page up takes the
//! part shared. Tikhonov et al. (Postgres Professional 2018) found inserts that waited minutes for such a part, which held a
//! page that others looked up all the time.

use super::lwlock::{LwLock, Mode};
use homenode_platform::CachePadded;
use homenode_platform::atomic::{AtomicU32, AtomicU64, Ordering};

const PARTS: usize = 128;
const BUCKET: usize = 4;

/// The table.
pub struct Mapping {
    parts: Box<[CachePadded<LwLock>]>,
    buckets: Box<[[AtomicU64; BUCKET]]>,
}

impl Mapping {
    /// A table for about `pages` pages.
    pub fn new(pages: usize, fair: bool) -> Mapping {
        let bucket = || std::array::from_fn(|_| AtomicU64::new(0));
        Mapping {
            parts: (0..PARTS).map(|_| CachePadded::new(LwLock::new(fair))).collect(),
            buckets: (0..pages.next_power_of_two()).map(|_| bucket()).collect(),
        }
    }

    fn hash(page: u64) -> usize {
        (page.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize
    }

    /// The part that a page belongs to.
    pub fn part_of(page: u64) -> usize {
        Mapping::hash(page) % PARTS
    }

    /// Looks a page up, under its part's shared lock, and does `then` (the pin) before that is given up.
    pub fn look_up(&self, page: u64, then: impl FnOnce()) {
        let lock = &self.parts[Mapping::part_of(page)];
        lock.lock(Mode::Shared);
        for entry in &self.buckets[Mapping::hash(page) / PARTS % self.buckets.len()] {
            if entry.load(Ordering::Relaxed) == page {
                break;
            }
        }
        then();
        lock.unlock(Mode::Shared);
    }

    /// `new` takes the buffer of `old`: both parts exclusively, the lower first.
    pub fn replace(&self, old: u64, new: u64) {
        let (a, b) = (Mapping::part_of(old), Mapping::part_of(new));
        let (first, second) = (a.min(b), a.max(b));
        self.parts[first].lock(Mode::Exclusive);
        if second != first {
            self.parts[second].lock(Mode::Exclusive);
        }
        let bucket = |page: u64| &self.buckets[Mapping::hash(page) / PARTS % self.buckets.len()];
        bucket(old)[0].store(0, Ordering::Relaxed);
        bucket(new)[0].store(new, Ordering::Relaxed);
        if second != first {
            self.parts[second].unlock(Mode::Exclusive);
        }
        self.parts[first].unlock(Mode::Exclusive);
    }
}

/// The clock hand: one counter, moved by one for each buffer looked at.
pub struct ClockHand {
    next: CachePadded<AtomicU32>,
    usage: Box<[AtomicU32]>,
}

impl ClockHand {
    /// A hand over `buffers` buffers that were all used once.
    pub fn new(buffers: usize) -> ClockHand {
        ClockHand {
            next: CachePadded::new(AtomicU32::new(0)),
            usage: (0..buffers).map(|_| AtomicU32::new(1)).collect(),
        }
    }

    /// The next buffer that was not used since the hand came by.
    pub fn victim(&self) -> usize {
        loop {
            let at = self.next.fetch_add(1, Ordering::Relaxed) as usize % self.usage.len();
            let usage = self.usage[at].load(Ordering::Relaxed);
            if usage == 0 {
                // It gets a page now, which is used once.
                self.usage[at].store(1, Ordering::Relaxed);
                return at;
            }
            self.usage[at].store(usage - 1, Ordering::Relaxed);
        }
    }
}
