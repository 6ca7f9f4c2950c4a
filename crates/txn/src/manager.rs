//! What does a snapshot see, and who waits for whose end?

use crate::{LaneStates, Slot, Slots, State, TxnId};
use homenode_platform::atomic::{AtomicU64, Ordering};
use homenode_platform::clock;
use homenode_platform::sync::Mutex;
use homenode_platform::task::{self, Task};
use homenode_platform::wait::WaitEvent;
use homenode_platform::{CachePadded, Gather};

/// Lists of tasks that wait for a transaction's end, by a hash of its name.
const WAIT_SHARDS: usize = 64;

/// Between two looks whether the woken have run: what a wake-up takes, and no more than a client would notice.
const SHORTEST_LOOK_NS: u64 = 5_000;
const LONGEST_LOOK_NS: u64 = 1_000_000;

/// Tasks, with the transactions whose end they wait for.
type Waiters = Vec<(TxnId, Task)>;

/// What a reader makes of a row version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// The snapshot sees it, and it is durable or its own.
    Visible,
    /// The snapshot sees it, but it is durable only once the log is flushed to here: whoever passes it on waits for that.
    VisibleAt(u64),
    /// Written by a transaction that the snapshot doesn't see: look at the version before it.
    Older,
}

/// Why a wait ended without what was waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WaitError {
    /// Waiting would close a cycle of sessions that wait for each other.
    #[error("deadlock detected")]
    Deadlock,
    /// The statement was asked to stop.
    #[error("canceled while waiting for a lock")]
    Cancelled,
    /// The wait took longer than allowed.
    #[error("lock not available in time")]
    Timeout,
}

/// All that transactions share.
pub struct Manager {
    lanes: Box<[LaneStates]>,
    slots: Slots,
    /// The last commit timestamp. Incremented once by each commit, read once by each snapshot.
    clock: CachePadded<AtomicU64>,
    /// On a machine with several nodes: commits of a node's lanes together, and the node of each lane.
    gather: Option<(Gather, Box<[usize]>)>,
    /// No snapshot older than this is taken or kept (see [`Manager::advance_horizon`]).
    pending_horizon: CachePadded<AtomicU64>,
    waiters: Box<[CachePadded<Mutex<Waiters>>]>,
    /// Tasks that wait for a table; a change of definition is rare.
    table_waiters: Mutex<Vec<Task>>,
}

impl Manager {
    /// For `lanes` lanes and `sessions` sessions; numbers start at `first_seq`, the clock at `clock`.
    pub fn new(lanes: usize, sessions: usize, first_seq: u64, clock: u64) -> Manager {
        Manager {
            lanes: (0..lanes).map(|_| LaneStates::new(first_seq)).collect(),
            slots: Slots::new(sessions),
            clock: CachePadded(AtomicU64::new(clock)),
            gather: None,
            pending_horizon: CachePadded(AtomicU64::new(0)),
            waiters: (0..WAIT_SHARDS).map(|_| CachePadded(Mutex::new(Vec::new()))).collect(),
            table_waiters: Mutex::new(Vec::new()),
        }
    }

    /// On a machine with `nodes` nodes, where the worker of each lane lives on the node that `of_lanes` says.
    #[must_use]
    pub fn on_nodes(mut self, nodes: usize, of_lanes: &[usize]) -> Manager {
        assert!(
            of_lanes.len() >= self.lanes.len() && of_lanes.iter().all(|&node| node < nodes),
            "each lane has a node"
        );
        self.gather = Gather::for_nodes(nodes, self.slots.count()).map(|gather| (gather, of_lanes.into()));
        self
    }

    /// Names what is shared for the lab's report of cache lines, once the manager lies where it stays.
    pub fn name_memory(&self) {
        use homenode_platform::{fields, name_memory};
        name_memory(self, 1, "Manager", fields!(Manager { lanes, slots, clock, pending_horizon, waiters }));
        name_memory(self.lanes.as_ptr(), self.lanes.len(), "LaneStates", LaneStates::fields());
    }

    /// The lanes' transaction states.
    pub fn lanes(&self) -> &[LaneStates] {
        &self.lanes
    }

    /// The sessions' slots.
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// The slot at `index`.
    #[inline]
    pub fn slot(&self, index: usize) -> &Slot {
        self.slots.get(index)
    }

    /// The last commit timestamp.
    pub fn clock(&self) -> u64 {
        self.clock.0.load(Ordering::SeqCst)
    }

    /// Takes a snapshot for the session in `slot` and publishes it.
    ///
    /// The horizon may rise between reading the clock and publishing; then the snapshot is taken anew. Both sides write first
    /// and look afterwards, sequentially consistent, so one of them sees the other.
    #[inline]
    pub fn take_snapshot(&self, slot: usize) -> u64 {
        let slot = self.slot(slot);
        loop {
            let timestamp = self.clock.0.load(Ordering::SeqCst);
            slot.publish_snapshot(timestamp);
            if self.pending_horizon.0.load(Ordering::SeqCst) <= timestamp {
                return timestamp;
            }
        }
    }

    /// Ends the use of the session's snapshot.
    #[inline]
    pub fn drop_snapshot(&self, slot: usize) {
        self.slot(slot).clear_snapshot();
    }

    /// Starts a writing transaction on `lane` for the session in `slot`. `log_tail` bounds its first record from below.
    /// None when a snapshot has been open for so long that the lane cannot keep more states.
    pub fn start(&self, lane: usize, slot: usize, log_tail: u64) -> Option<TxnId> {
        self.slot(slot).set_first_lsn(log_tail);
        let Some(seq) = self.lanes[lane].start(slot) else {
            self.slot(slot).set_first_lsn(u64::MAX);
            return None;
        };
        let txn = TxnId::new(lane, seq);
        self.slot(slot).set_txn(txn.writer());
        Some(txn)
    }

    /// The state of the transaction that a row header names.
    #[inline]
    pub fn state(&self, txn: TxnId) -> State {
        match self.lanes.get(txn.lane()) {
            Some(lane) if !txn.is_none() => lane.state(txn.seq()),
            _ => State::Settled,
        }
    }

    /// Whether every snapshot sees what `writer` wrote: the common case, two loads of lines that are seldom written.
    #[inline]
    pub fn settled(&self, txn: TxnId) -> bool {
        match self.lanes.get(txn.lane()) {
            Some(lane) => txn.seq() < lane.floor(),
            None => true,
        }
    }

    /// The floors of all lanes, for a reader that looks at many rows: `txn` is settled when its number lies below its lane's.
    pub fn floors(&self) -> Vec<u64> {
        self.lanes.iter().map(LaneStates::floor).collect()
    }

    /// What `snapshot` (None: whatever is committed now) makes of a version by `writer`, for the transaction `me`.
    pub fn sees(&self, writer: TxnId, me: TxnId, snapshot: Option<u64>, durable: u64) -> Seen {
        if writer == me && !me.is_none() {
            return Seen::Visible;
        }
        let mut attempt = 0;
        loop {
            match self.state(writer) {
                State::Settled => return Seen::Visible,
                State::Committed { timestamp, lsn } => {
                    return match snapshot {
                        Some(at) if timestamp > at => Seen::Older,
                        _ if lsn > durable => Seen::VisibleAt(lsn),
                        _ => Seen::Visible,
                    };
                }
                State::Active { .. } | State::Aborted => return Seen::Older,
                // Its timestamp may lie below the snapshot: a few instructions until it is known.
                State::Precommit { .. } => {
                    task::spin_hint(attempt);
                    attempt += 1;
                    if attempt > 64 {
                        task::yield_now();
                    }
                }
            }
        }
    }

    /// Announces the commit of `txn`: from here its timestamp will be later than that of any snapshot that saw it active.
    pub fn precommit(&self, txn: TxnId) {
        #[cfg(homenode_lab)]
        if crate::planted::is_on(&crate::planted::ANNOUNCE_LATE) {
            return;
        }
        self.lanes[txn.lane()].precommit(txn.seq());
    }

    /// Takes the announcement back.
    pub fn back_to_active(&self, txn: TxnId) {
        self.lanes[txn.lane()].back_to_active(txn.seq());
    }

    /// Commits `txn`, whose commit record ends at `lsn`, and lets those who wait for it go on. Gives its timestamp.
    pub fn commit(&self, txn: TxnId, slot: usize, lsn: u64) -> u64 {
        let before = match &self.gather {
            None => self.clock.0.fetch_add(1, Ordering::SeqCst),
            Some((gather, nodes)) => gather.add(&self.clock.0, nodes[txn.lane()], slot, 1),
        };
        let timestamp = before + 1;
        #[cfg(homenode_lab)]
        if crate::planted::is_on(&crate::planted::ANNOUNCE_LATE) {
            task::yield_now();
            self.lanes[txn.lane()].precommit(txn.seq());
        }
        let waited_for = self.lanes[txn.lane()].commit(txn.seq(), timestamp, lsn);
        self.end(slot, waited_for.then_some(txn));
        timestamp
    }

    /// Ends `txn`, whose changes have been taken back.
    pub fn abort(&self, txn: TxnId, slot: usize) {
        let timestamp = self.clock();
        let waited_for = self.lanes[txn.lane()].abort(txn.seq(), timestamp);
        self.end(slot, waited_for.then_some(txn));
    }

    fn end(&self, slot: usize, waited_for: Option<TxnId>) {
        self.slot(slot).set_txn(0);
        self.slot(slot).set_first_lsn(u64::MAX);
        if let Some(txn) = waited_for {
            self.shard(txn).lock().retain(|(waits_for, task)| {
                let wake = *waits_for == txn;
                if wake {
                    task.unpark();
                }
                !wake
            });
        }
    }

    fn shard(&self, txn: TxnId) -> &Mutex<Waiters> {
        let hash = txn.writer().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58;
        &self.waiters[hash as usize % WAIT_SHARDS].0
    }

    /// Waits until `txn` has ended, for the session in `slot`, until `deadline_ns` of the monotonic clock if one is given.
    ///
    /// # Errors
    /// [`WaitError`] when waiting would deadlock, when the statement is cancelled, or when the deadline passes.
    pub fn wait_for(&self, txn: TxnId, slot: usize, deadline_ns: Option<u64>) -> Result<(), WaitError> {
        let Some(target) = self.holder(txn) else { return Ok(()) };
        let me = self.slot(slot);
        me.set_waits_for(Some(target));
        let result = self.wait_for_end(txn, slot, target, deadline_ns);
        me.set_waits_for(None);
        result
    }

    /// Slot and generation of the session that runs `txn`, while it runs.
    fn holder(&self, txn: TxnId) -> Option<(usize, u64)> {
        let slot = match self.state(txn) {
            State::Active { slot } | State::Precommit { slot } => slot,
            _ => return None,
        };
        let generation = self.slot(slot).generation();
        // The generation belongs to the transaction only if that hasn't ended meanwhile.
        matches!(self.state(txn), State::Active { .. } | State::Precommit { .. }).then_some((slot, generation))
    }

    fn wait_for_end(
        &self,
        txn: TxnId,
        slot: usize,
        target: (usize, u64),
        deadline_ns: Option<u64>,
    ) -> Result<(), WaitError> {
        let shard = self.shard(txn);
        let task = task::current();
        {
            let mut waiters = shard.lock();
            if !self.lanes[txn.lane()].mark_waited_for(txn.seq()) {
                return Ok(());
            }
            waiters.push((txn, task.clone()));
        }
        let result = loop {
            if !matches!(self.state(txn), State::Active { .. } | State::Precommit { .. }) {
                break Ok(());
            }
            if let Err(error) = self.may_wait(slot, target, deadline_ns) {
                break Err(error);
            }
            park(WaitEvent::RowLock, deadline_ns);
        };
        shard.lock().retain(|(waits_for, other)| *waits_for != txn || other.id() != task.id());
        result
    }

    /// Waits until those who waited for what the session in `slot` was in `generation`, and have been woken by its end, have
    /// looked again.
    ///
    /// For a deadlock's victim that tries again. It is awake, and would be back with the row that they want before they run; the
    /// next circle's victim would be one of them, which does the same, and so on without end (the lab's `engine-transfers`).
    pub fn let_woken_go_first(&self, slot: usize, generation: u64) {
        let mut pause_ns = SHORTEST_LOOK_NS;
        while self.slots.is_waited_for((slot, generation)) && !self.slot(slot).cancelled() {
            task::park_timeout(WaitEvent::RowLock, pause_ns);
            pause_ns = (pause_ns * 2).min(LONGEST_LOOK_NS);
        }
    }

    fn may_wait(&self, slot: usize, target: (usize, u64), deadline_ns: Option<u64>) -> Result<(), WaitError> {
        if self.slot(slot).cancelled() {
            return Err(WaitError::Cancelled);
        }
        if deadline_ns.is_some_and(|deadline| clock::now_ns() >= deadline) {
            return Err(WaitError::Timeout);
        }
        if self.slots.closes_cycle(slot, target) {
            return Err(WaitError::Deadlock);
        }
        Ok(())
    }

    /// Waits until `done` says so, woken by [`Manager::wake_table_waiters`]; `holder` gives whom the wait is for.
    pub(crate) fn wait_for_table(
        &self,
        slot: usize,
        deadline_ns: Option<u64>,
        mut holder: impl FnMut() -> Option<(usize, u64)>,
    ) -> Result<(), WaitError> {
        let me = self.slot(slot);
        let task = task::current();
        let result = loop {
            self.table_waiters.lock().push(task.clone());
            let Some(target) = holder() else { break Ok(()) };
            me.set_waits_for(Some(target));
            if let Err(error) = self.may_wait(slot, target, deadline_ns) {
                break Err(error);
            }
            park(WaitEvent::TableLock, deadline_ns);
        };
        me.set_waits_for(None);
        self.table_waiters.lock().retain(|other| other.id() != task.id());
        result
    }

    /// Wakes those who wait for a table, to look again.
    pub(crate) fn wake_table_waiters(&self) {
        let waiters = std::mem::take(&mut *self.table_waiters.lock());
        for task in waiters {
            task.unpark();
        }
    }

    /// Wakes all but the calling task, which stays among those who wait.
    pub(crate) fn wake_other_table_waiters(&self) {
        let me = task::current().id();
        for task in self.table_waiters.lock().iter().filter(|task| task.id() != me) {
            task.unpark();
        }
    }

    /// Ends a session's transaction: its snapshot, its tables, and the waits of others for it.
    pub fn end_transaction(&self, slot: usize, holds_definition_locks: bool) {
        let own = self.slot(slot);
        own.clear_snapshot();
        own.clear_tables();
        own.next_generation();
        // A session that waits for a table looks at the slots of all others; only then is there anyone to wake.
        if holds_definition_locks || self.tables_waited_for() {
            self.wake_table_waiters();
        }
    }

    fn tables_waited_for(&self) -> bool {
        crate::tables::WAITING.load(Ordering::SeqCst) != 0
    }

    /// The horizon: every snapshot, present and future, sees commits up to here. One caller at a time.
    ///
    /// First the wish is published, then the slots are read again: a session that published its snapshot before the
    /// second reading is honoured, one that publishes later sees the wish and takes a newer snapshot.
    pub fn advance_horizon(&self) -> u64 {
        let wish = self.oldest_snapshot().min(self.clock());
        self.pending_horizon.0.store(wish, Ordering::SeqCst);
        let horizon = self.oldest_snapshot().min(wish);
        if horizon < wish {
            self.pending_horizon.0.store(horizon, Ordering::SeqCst);
        }
        horizon
    }

    fn oldest_snapshot(&self) -> u64 {
        self.slots.iter().filter_map(|(_, slot)| slot.snapshot()).min().unwrap_or(u64::MAX)
    }

    /// Lower bound of the oldest record of any running transaction, `u64::MAX` when none writes.
    pub fn oldest_first_lsn(&self) -> u64 {
        self.slots.iter().map(|(_, slot)| slot.first_lsn()).min().unwrap_or(u64::MAX)
    }
}

fn park(event: WaitEvent, deadline_ns: Option<u64>) {
    match deadline_ns {
        Some(deadline) => {
            task::park_timeout(event, deadline.saturating_sub(clock::now_ns()));
        }
        None => task::park(event),
    }
}

#[cfg(all(test, not(homenode_lab)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn who_gave_way_goes_on_when_the_woken_have_looked_again() {
        let manager = Arc::new(Manager::new(2, 4, 1, 1));
        let [victim, waiter] = std::array::from_fn(|_| manager.slots().take().unwrap());
        let generation = manager.slot(victim).generation();
        manager.slot(waiter).set_waits_for(Some((victim, generation)));
        manager.end_transaction(victim, false);
        let looked = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (for_thread, seen) = (manager.clone(), looked.clone());
        let thread = std::thread::spawn(move || {
            for_thread.let_woken_go_first(victim, generation);
            assert!(seen.load(Ordering::SeqCst), "the waiter had not looked again");
        });
        std::thread::sleep(std::time::Duration::from_millis(5));
        looked.store(true, Ordering::SeqCst);
        manager.slot(waiter).set_waits_for(None);
        thread.join().unwrap();
        // Nobody waits for what the session is now.
        manager.let_woken_go_first(victim, generation + 1);
    }
}
