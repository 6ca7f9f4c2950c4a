//! Which part of the log is filled? Reservation without a lock, and the prefix without holes.
//!
//! PostgreSQL's `insertingAt` (xlog.c, `WaitXLogInsertionsToFinish`) without its locks. An insertion
//!
//! 1. takes a slot by a compare-and-swap from [`FREE`] to a value of `tail` read just before: a
//!    *lower bound* of where its record will start;
//! 2. reserves by one fetch-add on `tail`, which returns the record's start;
//! 3. stores the start in the slot (a tighter bound), copies the record into the ring;
//! 4. stores [`FREE`] in the slot.
//!
//! The flusher reads `tail` (T) first and all slots then; [`Slots::filled`] is the least of T and of
//! the bounds in slots that are not free. **Claim**: every record that starts below it has been copied,
//! and its bytes are visible to the flusher. **Proof**: let R start at S < T, inserted through slot s.
//! R's fetch-add precedes, in the modification order of `tail`, the one whose value the flusher read;
//! all of them are read-modify-writes with release semantics, so the flusher's acquiring load
//! synchronises with R's fetch-add. Step 1 comes before it in program order, so the flusher's load of
//! s, which follows, sees step 1's value or a later one:
//! - step 1's bound, which is at most S because `tail` never falls (coherence: the fetch-add returns
//!   no less than what the same thread read before): the prefix ends at or before S;
//! - step 3's S: the same;
//! - step 4's FREE, stored with release and loaded with acquire: R's bytes are visible;
//! - a value of a later insertion through s: its compare-and-swap acquired R's FREE, and both values
//!   it stores carry that on (a read-modify-write continues the release sequence that step 4 heads,
//!   the store of step 3 is itself a release): R's bytes are visible.
//!
//! A slot is never taken while `tail` could be 0, so a bound is never mistaken for FREE. A bound may
//! lie below what was flushed already (its thread was preempted between reading `tail` and the
//! compare-and-swap); the flusher takes the maximum of the old and the new prefix, and that is right:
//! the record itself will start no lower than the tail at the moment of the swap's fetch-add, and
//! the earlier prefix was at most a tail that had been read before.
//!
//! The prefix is always a record's boundary: T and every bound are values of `tail`.

use crate::Lsn;
use homenode_platform::CachePadded;
use homenode_platform::atomic::{AtomicU64, Ordering};

/// The value of a slot that nobody inserts through.
const FREE: Lsn = 0;

/// One insertion slot, on lines of its own.
pub(crate) struct Slot {
    /// [`FREE`], or a lower bound of the record that is being inserted.
    bound: AtomicU64,
    /// The last durable mark that a record of this slot carried, at first where this life of the
    /// log began. Written by the slot's holder.
    pub(crate) marked: AtomicU64,
    /// Records inserted. Written by the slot's holder.
    records: AtomicU64,
}

/// The slots and the tail.
pub(crate) struct Slots {
    tail: CachePadded<AtomicU64>,
    slots: Box<[CachePadded<Slot>]>,
}

/// An insertion between reservation and completion.
pub(crate) struct Insertion<'a> {
    slot: &'a Slot,
    /// Where the record starts.
    pub(crate) start: Lsn,
}

impl Slots {
    pub(crate) fn new(slots: usize, tail: Lsn) -> Slots {
        assert!(tail > FREE && slots > 0);
        let slot = || {
            CachePadded(Slot { bound: AtomicU64::new(FREE), marked: AtomicU64::new(tail), records: AtomicU64::new(0) })
        };
        Slots { tail: CachePadded(AtomicU64::new(tail)), slots: (0..slots).map(|_| slot()).collect() }
    }

    /// The end of all reservations.
    #[inline]
    pub(crate) fn tail(&self) -> Lsn {
        self.tail.load(Ordering::Acquire)
    }

    /// The slot that `lane` tries first.
    #[inline]
    pub(crate) fn of_lane(&self, lane: usize) -> &Slot {
        &self.slots[self.index(lane)]
    }

    #[inline]
    fn index(&self, lane: usize) -> usize {
        // Lanes are nearly always fewer than slots: no division then.
        if lane < self.slots.len() { lane } else { lane % self.slots.len() }
    }

    /// Takes the slot of `lane` or another one, and reserves `bytes`. `None`: all are taken.
    #[inline]
    pub(crate) fn reserve(&self, lane: usize, bytes: u64) -> Option<Insertion<'_>> {
        let slot = match self.of_lane(lane) {
            slot if self.take(slot) => slot,
            _ => self.take_other(lane)?,
        };
        // AcqRel: releases the slot's bound to whoever reads the new tail.
        let start = self.tail.fetch_add(bytes, Ordering::AcqRel);
        slot.bound.store(start, Ordering::Release);
        Some(Insertion { slot, start })
    }

    #[inline]
    fn take(&self, slot: &Slot) -> bool {
        let bound = self.tail.load(Ordering::Relaxed);
        slot.bound.compare_exchange(FREE, bound, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn take_other(&self, lane: usize) -> Option<&Slot> {
        let first = self.index(lane);
        let (before, after) = self.slots.split_at(first);
        after
            .iter()
            .chain(before)
            .map(|slot| &slot.0)
            .find(|slot| slot.bound.load(Ordering::Relaxed) == FREE && self.take(slot))
    }

    /// Up to where all records have been copied. See the module's proof.
    pub(crate) fn filled(&self) -> Lsn {
        let mut filled = self.tail.load(Ordering::Acquire);
        for slot in self.slots.iter() {
            let bound = slot.bound.load(Ordering::Acquire);
            if bound != FREE {
                filled = filled.min(bound);
            }
        }
        filled
    }

    /// Records inserted so far.
    pub(crate) fn records(&self) -> u64 {
        self.slots.iter().map(|slot| slot.records.load(Ordering::Relaxed)).sum()
    }
}

impl Insertion<'_> {
    /// The record has been copied; `mark` is the durable mark that it carries, if any.
    #[inline]
    pub(crate) fn complete(self, mark: Option<Lsn>) {
        let slot = self.slot;
        slot.records.store(slot.records.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if let Some(mark) = mark {
            slot.marked.store(mark, Ordering::Relaxed);
        }
        slot.bound.store(FREE, Ordering::Release);
    }
}
