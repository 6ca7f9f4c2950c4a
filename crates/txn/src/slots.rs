//! Which sessions are there, what do they see and what do they hold? One padded slot per session.
//!
//! A slot is written by its own session and read by others only when they must know: the horizon (which snapshots are
//! still in use), the deadlock check (who waits for whom), a change of a table's definition (who uses it).

use homenode_platform::CachePadded;
use homenode_platform::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use homenode_platform::sync::Mutex;
use homenode_platform::task::Task;

/// Tables that a session can use in one transaction before it counts as using all.
const TABLES: usize = 12;
/// In the first place of the table list: too many to list, so every table counts as used.
pub const ALL_TABLES: u32 = u32::MAX;

/// What a session publishes. Three lines of its own, on the node where its worker first writes them.
pub struct Slot {
    /// Timestamp of the snapshot in use, plus one; zero when there is none.
    snapshot: AtomicU64,
    /// Counts the session's transactions: tells an old wait from a new one.
    generation: AtomicU64,
    /// The slot and generation that this session waits for: `slot + 1 << 40 | generation`; zero when it waits for nobody.
    waits_for: AtomicU64,
    /// Name of the running transaction, zero when it has written nothing.
    txn: AtomicU64,
    /// Lower bound of the first log record of the running transaction; `u64::MAX` when it has none.
    first_lsn: AtomicU64,
    /// Tables in use, by object number, zero for none.
    tables: [AtomicU32; TABLES],
    /// Someone asks the running statement to stop.
    cancelled: AtomicBool,
    in_use: AtomicBool,
    /// The task that runs the session's statement now, to be woken by a cancel.
    task: Mutex<Option<Task>>,
}

impl Slot {
    fn new() -> Slot {
        Slot {
            snapshot: AtomicU64::new(0),
            generation: AtomicU64::new(1),
            waits_for: AtomicU64::new(0),
            txn: AtomicU64::new(0),
            first_lsn: AtomicU64::new(u64::MAX),
            tables: std::array::from_fn(|_| AtomicU32::new(0)),
            cancelled: AtomicBool::new(false),
            in_use: AtomicBool::new(false),
            task: Mutex::new(None),
        }
    }

    /// The snapshot in use.
    pub fn snapshot(&self) -> Option<u64> {
        self.snapshot.load(Ordering::SeqCst).checked_sub(1)
    }

    pub(crate) fn publish_snapshot(&self, timestamp: u64) {
        self.snapshot.store(timestamp + 1, Ordering::SeqCst);
    }

    pub(crate) fn clear_snapshot(&self) {
        self.snapshot.store(0, Ordering::Release);
    }

    /// Counts the session's transactions.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    pub(crate) fn next_generation(&self) {
        let now = self.generation.load(Ordering::Relaxed);
        self.generation.store(now + 1, Ordering::SeqCst);
    }

    /// The transaction's name in row headers, zero before its first write.
    pub fn txn(&self) -> u64 {
        self.txn.load(Ordering::Acquire)
    }

    pub(crate) fn set_txn(&self, writer: u64) {
        self.txn.store(writer, Ordering::Release);
    }

    /// Lower bound of the running transaction's first log record, `u64::MAX` when it has none.
    pub fn first_lsn(&self) -> u64 {
        self.first_lsn.load(Ordering::SeqCst)
    }

    pub(crate) fn set_first_lsn(&self, lsn: u64) {
        self.first_lsn.store(lsn, Ordering::SeqCst);
    }

    /// Publishes that the session uses table `oid`. False when it was published already.
    pub(crate) fn add_table(&self, oid: u32) -> bool {
        for place in &self.tables {
            let now = place.load(Ordering::Relaxed);
            if now == oid || now == ALL_TABLES {
                return false;
            }
            if now == 0 {
                place.store(oid, Ordering::SeqCst);
                return true;
            }
        }
        self.tables[0].store(ALL_TABLES, Ordering::SeqCst);
        true
    }

    /// Takes back [`Slot::add_table`]; false when the table wasn't published.
    pub(crate) fn remove_table(&self, oid: u32) -> bool {
        let mut removed = false;
        for place in &self.tables {
            if place.load(Ordering::Relaxed) == oid {
                place.store(0, Ordering::SeqCst);
                removed = true;
            }
        }
        removed
    }

    pub(crate) fn clear_tables(&self) {
        for place in &self.tables {
            if place.load(Ordering::Relaxed) != 0 {
                place.store(0, Ordering::Release);
            }
        }
    }

    /// Whether the session's transaction uses table `oid`.
    pub fn uses_table(&self, oid: u32) -> bool {
        self.tables.iter().any(|place| {
            let now = place.load(Ordering::SeqCst);
            now == oid || now == ALL_TABLES
        })
    }

    /// The tables that the session's transaction uses.
    pub fn tables(&self) -> Vec<u32> {
        self.tables.iter().map(|place| place.load(Ordering::SeqCst)).filter(|&oid| oid != 0).collect()
    }

    /// Whether a session owns the slot.
    pub fn in_use(&self) -> bool {
        self.in_use.load(Ordering::Acquire)
    }

    /// Asks the running statement to stop; it notices at its next check or wait.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        if let Some(task) = self.task.lock().as_ref() {
            task.unpark();
        }
    }

    /// Whether the statement was asked to stop.
    #[inline]
    pub fn cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Forgets a cancel, before a new statement.
    pub fn clear_cancel(&self) {
        if self.cancelled() {
            self.cancelled.store(false, Ordering::SeqCst);
        }
    }

    /// The wait that the session's task is in, for views.
    pub fn task(&self) -> Option<Task> {
        self.task.lock().clone()
    }

    /// The task that runs the session's statements from now on: a cancel wakes it.
    pub fn set_task(&self, task: Option<Task>) {
        *self.task.lock() = task;
    }

    pub(crate) fn set_waits_for(&self, target: Option<(usize, u64)>) {
        self.waits_for.store(target.map_or(0, |(slot, generation)| edge(slot, generation)), Ordering::SeqCst);
    }

    /// Slot and generation that the session waits for.
    pub fn waits_for(&self) -> Option<(usize, u64)> {
        match self.waits_for.load(Ordering::SeqCst) {
            0 => None,
            word => Some(((word >> GENERATION_BITS) as usize - 1, word & GENERATION_MASK)),
        }
    }
}

const GENERATION_BITS: u32 = 40;
const GENERATION_MASK: u64 = (1 << GENERATION_BITS) - 1;

fn edge(slot: usize, generation: u64) -> u64 {
    (slot as u64 + 1) << GENERATION_BITS | generation & GENERATION_MASK
}

/// All slots, and which are free.
pub struct Slots {
    slots: Box<[CachePadded<Slot>]>,
    free: Mutex<Vec<usize>>,
    /// One more than the highest slot ever used, so that those who look at all look at few.
    high: CachePadded<AtomicU64>,
}

impl Slots {
    /// Room for `count` sessions.
    pub fn new(count: usize) -> Slots {
        let slots: Box<[CachePadded<Slot>]> = (0..count).map(|_| CachePadded(Slot::new())).collect();
        const FIELDS: &[homenode_platform::Field] = homenode_platform::fields!(CachePadded<Slot> { 0 });
        homenode_platform::name_memory(slots.as_ptr(), count, "Slot", FIELDS);
        Slots { slots, free: Mutex::new((0..count).rev().collect()), high: CachePadded(AtomicU64::new(0)) }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.slots.len()
    }

    /// Takes a free slot; None when all are taken.
    pub fn take(&self) -> Option<usize> {
        let index = self.free.lock().pop()?;
        self.high.0.fetch_max(index as u64 + 1, Ordering::SeqCst);
        self.slots[index].0.in_use.store(true, Ordering::SeqCst);
        Some(index)
    }

    /// Gives a slot back.
    pub fn give_back(&self, index: usize) {
        let slot = self.get(index);
        slot.clear_snapshot();
        slot.clear_tables();
        slot.set_waits_for(None);
        slot.set_txn(0);
        slot.set_first_lsn(u64::MAX);
        slot.clear_cancel();
        slot.set_task(None);
        slot.next_generation();
        slot.in_use.store(false, Ordering::SeqCst);
        self.free.lock().push(index);
    }

    /// The slot at `index`.
    #[inline]
    pub fn get(&self, index: usize) -> &Slot {
        &self.slots[index].0
    }

    /// Every slot that was ever used, with its index.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Slot)> {
        let high = self.high.0.load(Ordering::SeqCst) as usize;
        self.slots[..high].iter().map(|padded| &padded.0).enumerate()
    }

    /// Whether a session waits for the slot in that generation, or has not looked again since its end.
    pub fn is_waited_for(&self, (slot, generation): (usize, u64)) -> bool {
        let wanted = edge(slot, generation);
        self.iter().any(|(_, other)| other.waits_for.load(Ordering::SeqCst) == wanted)
    }

    /// Whether following the waits from `target` leads back to `me`.
    ///
    /// Each waiter publishes its own edge before it looks (sequentially consistent), so that of all sessions that close
    /// a cycle at the same time at least the last one sees it whole.
    pub fn closes_cycle(&self, me: usize, target: (usize, u64)) -> bool {
        let mut at = target;
        for _ in 0..self.slots.len() {
            let slot = self.get(at.0);
            // A wait for an earlier transaction of this slot is over, only the waiter doesn't know yet.
            if slot.generation() & GENERATION_MASK != at.1 & GENERATION_MASK {
                return false;
            }
            if at.0 == me {
                return true;
            }
            match slot.waits_for() {
                Some(next) => at = next,
                None => return false,
            }
        }
        false
    }
}

#[cfg(all(test, not(homenode_lab)))]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_is_seen_and_an_old_edge_is_not_followed() {
        let slots = Slots::new(4);
        let [a, b, c] = std::array::from_fn(|_| slots.take().unwrap());
        let target = |i: usize| (i, slots.get(i).generation());
        slots.get(b).set_waits_for(Some(target(c)));
        slots.get(c).set_waits_for(Some(target(a)));
        assert!(slots.closes_cycle(a, target(b)));
        let stale = target(c);
        slots.get(c).next_generation();
        slots.get(b).set_waits_for(Some(stale));
        assert!(!slots.closes_cycle(a, target(b)));
        let earlier = target(a);
        slots.get(a).next_generation();
        slots.get(b).set_waits_for(Some(earlier));
        assert!(!slots.closes_cycle(a, target(b)), "it waited for an earlier transaction of mine");
    }

    #[test]
    fn more_tables_than_places_counts_as_all() {
        let slot = Slot::new();
        for oid in 1..=20 {
            slot.add_table(oid);
        }
        assert!(slot.uses_table(12345));
        slot.clear_tables();
        assert!(!slot.uses_table(1));
    }
}
