//! PostgreSQL's mapping of pages to buffers (a hash table in 128 parts, each under a lightweight lock) and its one clock hand.
//!
//! A page that comes takes the part of the page that leaves exclusively, and its own; everybody who looks a page up takes the
//! part shared. Tikhonov et al. (Postgres Professional 2018) found inserts that waited minutes for such a part, which held a
//! page that others looked up all the time; they made it 512 parts, which was not enough, and the lock fair, which was.

use super::descriptor::{Descriptor, OneLine, is_pinned_by_others, pin, unpin};
use super::lwlock::{LwLock, Mode};
use homenode_platform::CachePadded;
use homenode_platform::atomic::{AtomicU32, AtomicU64, Ordering};

/// Entries of a bucket: a line of them.
const BUCKET: usize = 8;

/// The table. Pages are numbered from 1.
struct Mapping {
    parts: Box<[CachePadded<LwLock>]>,
    /// A page's number and its buffer's, or 0.
    buckets: Box<[[AtomicU64; BUCKET]]>,
}

impl Mapping {
    fn new(buffers: usize, parts: usize, fair: bool) -> Mapping {
        let bucket = || std::array::from_fn(|_| AtomicU64::new(0));
        Mapping {
            parts: (0..parts).map(|_| CachePadded::new(LwLock::new(fair))).collect(),
            buckets: (0..2 * buffers.next_power_of_two()).map(|_| bucket()).collect(),
        }
    }

    fn hash(page: u64) -> usize {
        (page.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize
    }

    fn part(&self, page: u64) -> usize {
        Mapping::hash(page) % self.parts.len()
    }

    fn bucket(&self, page: u64) -> &[AtomicU64; BUCKET] {
        &self.buckets[Mapping::hash(page) / self.parts.len() % self.buckets.len()]
    }

    /// The entry that fits; the page's part is locked.
    fn find(&self, page: u64, fits: impl Fn(u64) -> bool) -> Option<&AtomicU64> {
        self.bucket(page).iter().find(|entry| fits(entry.load(Ordering::Relaxed)))
    }

    fn enter(&self, page: u64, buffer: usize) {
        let free = self.find(page, |entry| entry == 0).expect("twice as many buckets as buffers, of eight entries");
        free.store(page << 32 | buffer as u64, Ordering::Relaxed);
    }

    /// Looks a page up under its part's shared lock, and does `then` (the pin) before that is given up.
    fn look_up(&self, page: u64, then: impl FnOnce(usize)) -> Option<usize> {
        let lock = &self.parts[self.part(page)];
        lock.lock(Mode::Shared);
        let entry = self.find(page, |entry| entry >> 32 == page);
        let buffer = entry.map(|entry| entry.load(Ordering::Relaxed) as u32 as usize);
        if let Some(buffer) = buffer {
            then(buffer);
        }
        lock.unlock(Mode::Shared);
        buffer
    }

    /// `new` takes the buffer of `old` if `may` says so and it is not there yet: both parts exclusively, the lower first.
    fn replace(&self, old: u64, new: u64, buffer: usize, may: impl FnOnce() -> bool) -> bool {
        let (a, b) = (self.part(old), self.part(new));
        let (first, second) = (a.min(b), a.max(b));
        self.parts[first].lock(Mode::Exclusive);
        if second != first {
            self.parts[second].lock(Mode::Exclusive);
        }
        let good = self.find(new, |entry| entry >> 32 == new).is_none() && may();
        if good {
            let gone = self.find(old, |entry| entry >> 32 == old).expect("a buffer's page is in the table");
            gone.store(0, Ordering::Relaxed);
            self.enter(new, buffer);
        }
        if second != first {
            self.parts[second].unlock(Mode::Exclusive);
        }
        self.parts[first].unlock(Mode::Exclusive);
        good
    }
}

/// Buffers with their descriptors, under the mapping and the hand.
pub struct Buffers {
    mapping: Mapping,
    hand: ClockHand,
    descriptors: Vec<OneLine>,
    /// The page of each buffer, changed by who has it pinned alone.
    pages: Vec<AtomicU32>,
}

impl Buffers {
    /// `count` buffers that hold the pages from 1 on.
    pub fn new(count: usize, parts: usize, fair: bool) -> Buffers {
        let mapping = Mapping::new(count, parts, fair);
        (0..count).for_each(|buffer| mapping.enter(buffer as u64 + 1, buffer));
        Buffers {
            mapping,
            hand: ClockHand::new(count),
            descriptors: (0..count as u32).map(|page| OneLine::new(page, fair)).collect(),
            pages: (0..count as u32).map(|page| AtomicU32::new(page + 1)).collect(),
        }
    }

    /// Does `read` with the page's buffer, its content locked shared. A page that is in none is fetched with `load` into one that
    /// another page leaves; `waited` is told how long that took before the buffer was its own.
    pub fn read(&self, page: u64, read: impl FnOnce(usize), load: &dyn Fn(), waited: &dyn Fn(u64)) {
        loop {
            let found = self.mapping.look_up(page, |buffer| pin(&self.descriptors[buffer]));
            if let Some(buffer) = found {
                let descriptor = &self.descriptors[buffer];
                self.hand.used(buffer);
                descriptor.lock().lock(Mode::Shared);
                read(buffer);
                descriptor.lock().unlock(Mode::Shared);
                unpin(descriptor);
                return;
            }
            self.fetch(page, load, waited);
        }
    }

    fn fetch(&self, page: u64, load: &dyn Fn(), waited: &dyn Fn(u64)) {
        let begun = homenode_platform::lab::measure::now_ns();
        let buffer = self.hand.victim();
        let descriptor = &self.descriptors[buffer];
        pin(descriptor);
        if !is_pinned_by_others(descriptor) {
            let old = self.pages[buffer].load(Ordering::Relaxed);
            // Who finds the page from now on waits for its content.
            descriptor.lock().lock(Mode::Exclusive);
            let alone = || !is_pinned_by_others(descriptor);
            if self.mapping.replace(u64::from(old), page, buffer, alone) {
                waited(homenode_platform::lab::measure::now_ns() - begun);
                self.pages[buffer].store(page as u32, Ordering::Relaxed);
                load();
            }
            descriptor.lock().unlock(Mode::Exclusive);
        }
        unpin(descriptor);
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

    /// A buffer was used (PostgreSQL counts to 5).
    fn used(&self, buffer: usize) {
        let usage = self.usage[buffer].load(Ordering::Relaxed);
        if usage < 5 {
            self.usage[buffer].store(usage + 1, Ordering::Relaxed);
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
