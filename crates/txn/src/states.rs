//! How did a transaction end? Per lane, a window of states by transaction number.
//!
//! Only the lane's own sessions add entries; anybody reads them. An entry lives until every snapshot sees its
//! transaction (the lane's *floor* has passed it), so memory follows the age of the oldest snapshot. Chunks are recycled within the
//! lane and never given back while the lane lives: a reader that is late reads a recycled entry, sees that the floor has
//! passed its number, and knows the answer without it.

use homenode_platform::CachePadded;
use homenode_platform::atomic::{AtomicU32, AtomicU64, Ordering};
use homenode_platform::sync::{Mutex, OnceLock};

/// Entries of a chunk.
const CHUNK_ENTRIES: usize = 4096;
/// Chunks that can be live at once: 2^16 chunks hold 268 million transactions behind one long snapshot.
const DIRECTORY: usize = 1 << 16;

const TAG_MASK: u64 = 0b11;
const TAG_ACTIVE: u64 = 0;
const TAG_PRECOMMIT: u64 = 1;
const TAG_COMMITTED: u64 = 2;
const TAG_ABORTED: u64 = 3;
/// Somebody waits for this transaction's end (only while it's active or about to commit).
const WAITED_FOR: u64 = 0b100;
const SHIFT: u32 = 3;

/// The state of one transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Running; the slot of the session that runs it.
    Active {
        /// Index of the session's slot.
        slot: usize,
    },
    /// Between the decision to commit and its timestamp: a few instructions.
    Precommit {
        /// Index of the session's slot.
        slot: usize,
    },
    /// Committed; visible to snapshots taken at `timestamp` or later.
    Committed {
        /// Commit timestamp.
        timestamp: u64,
        /// End of its commit record in the log.
        lsn: u64,
    },
    /// Rolled back, its changes already taken out of the pages.
    Aborted,
    /// Ended so long ago that every snapshot agrees, and durable: committed, for whoever finds its name in a row.
    Settled,
}

struct Entry {
    state: AtomicU64,
    /// End of the commit record, written before `state` says committed.
    lsn: AtomicU64,
}

struct Chunk {
    entries: [Entry; CHUNK_ENTRIES],
}

impl Chunk {
    fn new() -> Box<Chunk> {
        Box::new(Chunk { entries: std::array::from_fn(|_| Entry { state: AtomicU64::new(0), lsn: AtomicU64::new(0) }) })
    }
}

/// The states of one lane's transactions.
pub struct LaneStates {
    /// Read by everybody, written a few hundred times a second: numbers below are settled.
    floor: CachePadded<AtomicU64>,
    /// Written by the lane at each start of a writing transaction.
    next: CachePadded<AtomicU64>,
    /// Where the chunk of a window of numbers is: its index in `chunks` plus one, or zero.
    directory: Box<[AtomicU32]>,
    chunks: Box<[OnceLock<Box<Chunk>>]>,
    spare: Mutex<Spare>,
}

/// Chunks to be used again, and how many were ever made.
struct Spare {
    free: Vec<u32>,
    made: u32,
}

impl LaneStates {
    pub(crate) fn fields() -> &'static [homenode_platform::Field] {
        homenode_platform::fields!(LaneStates { floor, next, directory, chunks, spare })
    }

    /// States of a lane whose first number will be `first`; everything below counts as settled.
    pub fn new(first: u64) -> LaneStates {
        assert!(first > 0);
        LaneStates {
            floor: CachePadded(AtomicU64::new(first)),
            next: CachePadded(AtomicU64::new(first)),
            directory: (0..DIRECTORY).map(|_| AtomicU32::new(0)).collect(),
            chunks: (0..DIRECTORY).map(|_| OnceLock::new()).collect(),
            spare: Mutex::new(Spare { free: Vec::new(), made: 0 }),
        }
    }

    /// Numbers below this are settled.
    #[inline]
    pub fn floor(&self) -> u64 {
        self.floor.0.load(Ordering::Acquire)
    }

    /// The number that the next transaction will get.
    pub fn next(&self) -> u64 {
        self.next.0.load(Ordering::Acquire)
    }

    /// Starts a transaction of the session in `slot`; gives its number. None when too many unsettled ones are kept.
    pub fn start(&self, slot: usize) -> Option<u64> {
        // The mutex is the lane's own: taken by other cores only when they recycle chunks.
        let mut spare = self.spare.lock();
        let seq = self.next.0.load(Ordering::Relaxed);
        if seq - self.floor() >= (CHUNK_ENTRIES * (DIRECTORY - 1)) as u64 {
            return None;
        }
        let cell = &self.directory[chunk_index(seq)];
        if cell.load(Ordering::Acquire) == 0 {
            let index = spare.free.pop().unwrap_or_else(|| {
                let fresh = spare.made;
                spare.made += 1;
                assert!(self.chunks[fresh as usize].set(Chunk::new()).is_ok(), "each chunk is made once");
                fresh
            });
            cell.store(index + 1, Ordering::Release);
        }
        let entry = self.entry(seq).expect("its chunk is in the directory");
        entry.lsn.store(0, Ordering::Relaxed);
        entry.state.store((slot as u64) << SHIFT | TAG_ACTIVE, Ordering::Release);
        self.next.0.store(seq + 1, Ordering::Release);
        Some(seq)
    }

    fn entry(&self, seq: u64) -> Option<&Entry> {
        let index = self.directory[chunk_index(seq)].load(Ordering::Acquire).checked_sub(1)?;
        let chunk = self.chunks[index as usize].get().expect("the directory names chunks that were made");
        Some(&chunk.entries[seq as usize % CHUNK_ENTRIES])
    }

    /// The state of transaction `seq`, which must have been started at some time.
    pub fn state(&self, seq: u64) -> State {
        if seq < self.floor() {
            return State::Settled;
        }
        let Some(entry) = self.entry(seq) else { return State::Settled };
        let word = entry.state.load(Ordering::SeqCst);
        let lsn = entry.lsn.load(Ordering::Acquire);
        // The entry may have been recycled between the look at the floor and the load: look again.
        if seq < self.floor() {
            return State::Settled;
        }
        decode(word, lsn)
    }

    /// Says that the transaction is about to take its commit timestamp.
    pub fn precommit(&self, seq: u64) {
        let entry = self.entry(seq).expect("an active transaction has an entry");
        let before = entry.state.fetch_or(TAG_PRECOMMIT, Ordering::SeqCst);
        assert_eq!(before & TAG_MASK, TAG_ACTIVE, "only an active transaction commits");
    }

    /// Takes back [`LaneStates::precommit`], for a transaction that failed its last check.
    pub fn back_to_active(&self, seq: u64) {
        let entry = self.entry(seq).expect("an active transaction has an entry");
        let before = entry.state.fetch_and(!TAG_MASK, Ordering::SeqCst);
        assert_eq!(before & TAG_MASK, TAG_PRECOMMIT);
    }

    /// Ends the transaction as committed; true when somebody waits for it.
    pub fn commit(&self, seq: u64, timestamp: u64, lsn: u64) -> bool {
        let entry = self.entry(seq).expect("an active transaction has an entry");
        entry.lsn.store(lsn, Ordering::Release);
        let before = entry.state.swap(timestamp << SHIFT | TAG_COMMITTED, Ordering::SeqCst);
        assert_eq!(before & TAG_MASK, TAG_PRECOMMIT, "a commit is announced first");
        before & WAITED_FOR != 0
    }

    /// Ends the transaction as rolled back at `timestamp`; true when somebody waits for it.
    pub fn abort(&self, seq: u64, timestamp: u64) -> bool {
        let entry = self.entry(seq).expect("an active transaction has an entry");
        let before = entry.state.swap(timestamp << SHIFT | TAG_ABORTED, Ordering::SeqCst);
        assert_eq!(before & TAG_MASK, TAG_ACTIVE, "only an active transaction rolls back");
        before & WAITED_FOR != 0
    }

    /// Marks that somebody waits for `seq`; false when it has ended already.
    pub fn mark_waited_for(&self, seq: u64) -> bool {
        if seq < self.floor() {
            return false;
        }
        let Some(entry) = self.entry(seq) else { return false };
        let mut word = entry.state.load(Ordering::SeqCst);
        loop {
            if word & TAG_MASK > TAG_PRECOMMIT || seq < self.floor() {
                return false;
            }
            match entry.state.compare_exchange(word, word | WAITED_FOR, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Raises the floor over every transaction that ended at or before `horizon` and, if committed, lies within `durable`.
    /// One caller at a time (the housekeeping thread). Gives the new floor.
    pub fn raise_floor(&self, horizon: u64, durable: u64) -> u64 {
        let old = self.floor();
        let next = self.next();
        let mut floor = old;
        while floor < next {
            let entry = self.entry(floor).expect("unsettled transactions have entries");
            let word = entry.state.load(Ordering::SeqCst);
            let ended = match word & TAG_MASK {
                TAG_COMMITTED => entry.lsn.load(Ordering::Acquire) <= durable,
                TAG_ABORTED => true,
                _ => false,
            };
            if !ended || word >> SHIFT > horizon {
                break;
            }
            floor += 1;
        }
        if floor > old {
            self.floor.0.store(floor, Ordering::SeqCst);
            self.recycle(old, floor);
        }
        floor
    }

    fn recycle(&self, old: u64, new: u64) {
        let first = old / CHUNK_ENTRIES as u64;
        let last = new / CHUNK_ENTRIES as u64;
        if first == last {
            return;
        }
        let mut spare = self.spare.lock();
        for chunk in first..last {
            let index = self.directory[chunk as usize % DIRECTORY].swap(0, Ordering::AcqRel);
            if index != 0 {
                spare.free.push(index - 1);
            }
        }
    }

    /// Bytes that the states take.
    pub fn bytes(&self) -> usize {
        self.spare.lock().made as usize * std::mem::size_of::<Chunk>()
    }
}

fn chunk_index(seq: u64) -> usize {
    (seq as usize / CHUNK_ENTRIES) % DIRECTORY
}

fn decode(word: u64, lsn: u64) -> State {
    match word & TAG_MASK {
        TAG_ACTIVE => State::Active { slot: (word >> SHIFT) as usize },
        TAG_PRECOMMIT => State::Precommit { slot: (word >> SHIFT) as usize },
        TAG_COMMITTED => State::Committed { timestamp: word >> SHIFT, lsn },
        _ => State::Aborted,
    }
}

#[cfg(all(test, not(homenode_lab)))]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_passes_through_its_states() {
        let states = LaneStates::new(5);
        assert_eq!(states.state(4), State::Settled);
        let seq = states.start(7).unwrap();
        assert_eq!((seq, states.state(seq)), (5, State::Active { slot: 7 }));
        assert!(states.mark_waited_for(seq));
        states.precommit(seq);
        assert_eq!(states.state(seq), State::Precommit { slot: 7 });
        assert!(states.commit(seq, 100, 4096));
        assert_eq!(states.state(seq), State::Committed { timestamp: 100, lsn: 4096 });
        assert!(!states.mark_waited_for(seq));
    }

    #[test]
    fn the_floor_waits_for_the_horizon_and_for_durability() {
        let states = LaneStates::new(1);
        for timestamp in 10..13 {
            let seq = states.start(0).unwrap();
            states.precommit(seq);
            states.commit(seq, timestamp, timestamp * 10);
        }
        assert_eq!(states.raise_floor(9, u64::MAX), 1, "a snapshot at 9 does not see 10");
        assert_eq!(states.raise_floor(12, 110), 3, "the third isn't durable");
        assert_eq!(states.raise_floor(12, 120), 4);
        assert_eq!(states.state(3), State::Settled);
    }

    #[test]
    fn chunks_are_used_again() {
        let states = LaneStates::new(1);
        for round in 0..5 * CHUNK_ENTRIES as u64 {
            let seq = states.start(0).unwrap();
            states.abort(seq, round);
            states.raise_floor(u64::MAX, 0);
        }
        assert!(states.bytes() < 3 * std::mem::size_of::<Chunk>());
    }
}
