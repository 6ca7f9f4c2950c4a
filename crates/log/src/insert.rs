//! Which part of the log is filled? Reservation without a lock, and the prefix without holes.
//!
//! PostgreSQL's `insertingAt` (xlog.c, `WaitXLogInsertionsToFinish`) without its locks. An insertion
//!
//! 1. takes a slot by a compare-and-swap from [`FREE`] to [`PENDING`];
//! 2. reserves by one fetch-add on `tail`, which returns the record's start;
//! 3. stores the start in the slot, copies the record into the ring;
//! 4. stores [`FREE`] in the slot.
//!
//! So the tail's line, the one that all nodes share, is asked for once a record, and on a machine with several nodes once for all
//! records that the cores of a node reserve at the same time ([`Gather`]). (A bound read from `tail` before step 1
//! was asked for as often again; the lab's report of cache lines showed that line alone to limit updates on four nodes.)
//!
//! The flusher reads `tail` (T) first and all slots then; [`Slots::filled`] is the least of T and of the starts in slots. A slot
//! that is pending is looked at again for a moment, and if it stays so (its thread lost its CPU) counts as P, the prefix that
//! the flusher knew before. **Claim**: every record that starts below the result has been copied,
//! and its bytes are visible to the flusher. **Proof**: let R start at S < T, inserted through slot s.
//! R's fetch-add precedes, in the modification order of `tail`, the one whose value the flusher read;
//! all of them are read-modify-writes with release semantics, so the flusher's acquiring load
//! synchronises with R's fetch-add. Step 1 comes before it in program order, so the flusher's load of
//! s, which follows, sees step 1's value or a later one:
//! - step 1's PENDING: the prefix is at most P, and P is at most S. For P came of an earlier look with some T' >= P: if R's
//!   fetch-add was not in T', S >= T'; if it was, that look saw R pending too, so that P is an even earlier prefix, or saw S;
//! - step 3's S: the same;
//! - step 4's FREE, stored with release and loaded with acquire: R's bytes are visible;
//! - a value of a later insertion through s: its compare-and-swap acquired R's FREE, and both values
//!   it stores carry that on (a read-modify-write continues the release sequence that step 4 heads,
//!   the store of step 3 is itself a release): R's bytes are visible.
//!
//! Positions are multiples of 8 and never 0, so neither FREE nor PENDING is one.
//!
//! The prefix is always a record's boundary: T and every start are values of `tail`.

use crate::Lsn;
use crate::nodes::Nodes;
use homenode_platform::atomic::{AtomicU64, Ordering};
use homenode_platform::task;
use homenode_platform::{CachePadded, Gather};

/// The value of a slot that nobody inserts through.
const FREE: Lsn = 0;
/// The value of a slot between its taking and the reservation.
const PENDING: Lsn = 1;
/// Looks at a pending slot: a reservation takes as long as one contended fetch-add.
const LOOKS: u32 = 16;

/// One insertion slot, on lines of its own.
pub(crate) struct Slot {
    /// [`FREE`], [`PENDING`], or the start of the record that is being inserted.
    bound: AtomicU64,
    /// The end of the last record of this slot. Written by the slot's holder.
    last_end: AtomicU64,
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
    /// On a machine with several nodes: reservations of a node's lanes together, and the node of each slot's lane.
    gather: Option<(Gather, Box<[usize]>)>,
}

/// An insertion between reservation and completion.
pub(crate) struct Insertion<'a> {
    slot: &'a Slot,
    /// Where the record starts.
    pub(crate) start: Lsn,
}

impl Slots {
    pub(crate) fn new(slots: usize, tail: Lsn, nodes: &Nodes) -> Slots {
        assert!(tail > FREE && slots > 0);
        let of_slots = || (0..slots).map(|slot| nodes.of(slot)).collect();
        let gather = Gather::for_nodes(nodes.count(), slots).map(|gather| (gather, of_slots()));
        let slot = || {
            CachePadded(Slot {
                bound: AtomicU64::new(FREE),
                last_end: AtomicU64::new(tail),
                marked: AtomicU64::new(tail),
                records: AtomicU64::new(0),
            })
        };
        let slots: Box<[CachePadded<Slot>]> = (0..slots).map(|_| slot()).collect();
        homenode_platform::name_memory(slots.as_ptr(), slots.len(), "log::Slot", &[]);
        Slots { tail: CachePadded(AtomicU64::new(tail)), slots, gather }
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
        let mut index = self.index(lane);
        if !self.take(&self.slots[index]) {
            index = self.take_other(index)?;
        }
        let slot = &self.slots[index];
        // AcqRel: releases the slot's PENDING to whoever reads the new tail. (So does the one who adds for many: it has acquired theirs.)
        let start = match &self.gather {
            None => self.tail.fetch_add(bytes, Ordering::AcqRel),
            Some((gather, nodes)) => gather.add(&self.tail, nodes[index], index, bytes),
        };
        slot.last_end.store(start + bytes, Ordering::Relaxed);
        slot.bound.store(start, Ordering::Release);
        Some(Insertion { slot, start })
    }

    /// The end of the last record inserted through the slot of `lane`: a tail that this lane's core knows without asking.
    #[inline]
    pub(crate) fn last_end(&self, lane: usize) -> Lsn {
        self.of_lane(lane).last_end.load(Ordering::Relaxed)
    }

    #[inline]
    fn take(&self, slot: &Slot) -> bool {
        slot.bound.compare_exchange(FREE, PENDING, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn take_other(&self, first: usize) -> Option<usize> {
        let is_free = |&index: &usize| self.slots[index].bound.load(Ordering::Relaxed) == FREE;
        (first..self.slots.len()).chain(0..first).filter(is_free).find(|&index| self.take(&self.slots[index]))
    }

    /// Up to where all records have been copied, at least `before`, what it was at the last look. See the module's proof.
    pub(crate) fn filled(&self, before: Lsn) -> Lsn {
        let mut filled = self.tail.load(Ordering::Acquire);
        for slot in self.slots.iter() {
            match slot.settled_bound() {
                FREE => {}
                PENDING => return before,
                start => filled = filled.min(start),
            }
        }
        filled.max(before)
    }

    /// Records inserted so far.
    pub(crate) fn records(&self) -> u64 {
        self.slots.iter().map(|slot| slot.records.load(Ordering::Relaxed)).sum()
    }
}

impl Slot {
    /// The bound, after a moment's wait for one that is pending.
    fn settled_bound(&self) -> Lsn {
        for look in 0..LOOKS {
            match self.bound.load(Ordering::Acquire) {
                PENDING => task::spin_hint(look.min(5)),
                bound => return bound,
            }
        }
        PENDING
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
