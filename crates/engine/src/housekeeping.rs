//! What goes on in the background? The horizon, the recycling of undo, checkpoints.

use crate::bytes::{Decoder, Encoder};
use crate::database::Inner;
use crate::error::{Result, Storage};
use crate::purge;
use crate::sequence::SequenceState;
use homenode_log::{Lsn, control};
use homenode_platform::atomic::{AtomicU64, Ordering};
use homenode_platform::clock;
use homenode_platform::sync::Mutex;
use homenode_platform::task::{self, Task};
use homenode_platform::thread::{self, JoinHandle};
use homenode_platform::wait::WaitEvent;
use homenode_pool::{Pace, PageNo};
use std::sync::Arc;

/// Pause between two rounds of housekeeping. Short enough that undo pages are used again while they are in cache.
const ROUND_NS: u64 = 5_000_000;

/// A checkpoint in the background takes about this long, so that its writes don't crowd out those of sessions.
const SPREAD_NS: u64 = 10_000_000_000;

/// What a checkpoint keeps beside the pages: where everything that isn't in a page stood.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CheckpointState {
    /// Redo begins here.
    pub redo_start: Lsn,
    /// The log was durable up to here: one that ends earlier has lost something.
    pub log_end: Lsn,
    /// Root of the catalog's tree.
    pub catalog_root: PageNo,
    /// Next object number.
    pub next_oid: u32,
    /// Higher than any transaction number that rows may carry.
    pub next_seq: u64,
    /// The commit clock.
    pub clock: u64,
    /// Sequences.
    pub sequences: Vec<(u32, SequenceState)>,
    /// The pool's free pages.
    pub space: Vec<u8>,
}

impl CheckpointState {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::default();
        for word in
            [self.redo_start, self.log_end, self.catalog_root, u64::from(self.next_oid), self.next_seq, self.clock]
        {
            out.u64(word);
        }
        out.list(&self.sequences, |(oid, state), out| {
            out.u32(*oid);
            out.u64(state.last as u64);
            out.u8(state.called as u8);
        });
        out.bytes(&self.space);
        out.into_bytes()
    }

    pub fn decode(bytes: &[u8]) -> Option<CheckpointState> {
        let mut from = Decoder::new(bytes);
        Some(CheckpointState {
            redo_start: from.u64()?,
            log_end: from.u64()?,
            catalog_root: from.u64()?,
            next_oid: u32::try_from(from.u64()?).ok()?,
            next_seq: from.u64()?,
            clock: from.u64()?,
            sequences: from.list(|from| {
                let oid = from.u32()?;
                Some((oid, SequenceState { last: from.u64()? as i64, called: from.u8()? != 0 }))
            })?,
            space: from.bytes()?.to_vec(),
        })
    }
}

/// When checkpoints were, and who makes the next.
pub(crate) struct Checkpoints {
    /// One at a time.
    running: Mutex<()>,
    last_redo_start: AtomicU64,
    made: AtomicU64,
    threads: Mutex<Vec<Task>>,
}

impl Checkpoints {
    pub fn new(redo_start: Lsn) -> Checkpoints {
        Checkpoints {
            running: Mutex::new(()),
            last_redo_start: AtomicU64::new(redo_start),
            made: AtomicU64::new(0),
            threads: Mutex::new(Vec::new()),
        }
    }

    /// Where a recovery would begin, and how many checkpoints were made since the start.
    pub fn last(&self) -> (Lsn, u64) {
        (self.last_redo_start.load(Ordering::Relaxed), self.made.load(Ordering::Relaxed))
    }
}

/// Starts the background threads.
pub(crate) fn start(db: &Arc<Inner>) -> Vec<JoinHandle> {
    let house = db.clone();
    let checkpointer = db.clone();
    vec![
        thread::spawn("homenode-house", move || house_loop(&house)),
        thread::spawn("homenode-checkpoint", move || checkpoint_loop(&checkpointer)),
    ]
}

/// Wakes the background threads, to see that they shall stop.
pub(crate) fn wake(db: &Arc<Inner>) {
    for task in db.checkpoints.threads.lock().iter() {
        task.unpark();
    }
}

fn house_loop(db: &Arc<Inner>) {
    db.checkpoints.threads.lock().push(task::current());
    while !db.closing() {
        if let Err(error) = round(db) {
            tracing::error!(%error, "housekeeping");
        }
        task::park_timeout(WaitEvent::Sleep, ROUND_NS);
    }
}

/// One round: raise the horizon, settle transactions, recycle undo pages.
pub(crate) fn round(db: &Arc<Inner>) -> Result<()> {
    let horizon = db.txns.advance_horizon();
    let durable = db.log.durable();
    let mut deleting = 0;
    for (states, lane) in db.txns.lanes().iter().zip(db.lanes.iter()) {
        let floor = states.raise_floor(horizon, durable);
        deleting += lane.0.undo.recycle(&db.pool, floor);
    }
    purge::purge_if_due(db, deleting)
}

fn checkpoint_loop(db: &Arc<Inner>) {
    db.checkpoints.threads.lock().push(task::current());
    while !db.closing() {
        task::park_timeout(WaitEvent::Sleep, 200_000_000);
        let (redo_start, _) = db.checkpoints.last();
        if !db.closing()
            && db.log.tail() - redo_start > db.options.checkpoint_log_bytes
            && let Err(error) = checkpoint_as(db, false, Pace::Spread { duration_ns: SPREAD_NS })
        {
            tracing::error!(%error, "checkpoint failed, tried again later");
        }
    }
}

/// Writes every page that is dirty now and notes where recovery begins. Writers go on meanwhile.
pub(crate) fn checkpoint(db: &Arc<Inner>) -> Result<()> {
    checkpoint_as(db, false, Pace::Fast)
}

/// The checkpoint at the end: nothing goes on any more.
pub(crate) fn final_checkpoint(db: &Arc<Inner>) -> Result<()> {
    checkpoint_as(db, true, Pace::Fast)
}

fn checkpoint_as(db: &Arc<Inner>, last: bool, pace: Pace) -> Result<()> {
    let _one_at_a_time = db.checkpoints.running.lock();
    let started_ns = clock::now_ns();
    let begin = db.log.tail();
    db.pool.checkpoint_write(begin, pace).sql()?;
    let redo_start = db.pool.min_rec_lsn().unwrap_or(begin).min(begin);
    let scan_start = redo_start.min(db.txns.oldest_first_lsn());
    let mut state = CheckpointState {
        redo_start,
        log_end: 0,
        catalog_root: db.catalog.tree.root(),
        next_oid: db.catalog.next_oid(),
        next_seq: db.txns.lanes().iter().map(|lane| lane.next()).max().unwrap_or(1),
        clock: db.txns.clock(),
        sequences: db.sequences.states(last),
        space: db.pool.space_map(),
    };
    // A page that the space map calls free may be in use as far as the durable log knows: make that know better first.
    state.log_end = db.log.tail();
    db.log.wait_durable(state.log_end);
    control::write(&db.dir, &control::Control::new(scan_start, state.encode(), last)).sql()?;
    db.checkpoints.last_redo_start.store(redo_start, Ordering::Relaxed);
    db.checkpoints.made.fetch_add(1, Ordering::Relaxed);
    db.log.truncate_before(scan_start);
    tracing::debug!(redo_start, scan_start, ms = (clock::now_ns() - started_ns) / 1_000_000, "checkpoint");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_state_comes_back_and_a_cut_one_does_not() {
        let state = CheckpointState {
            redo_start: 1,
            log_end: 8,
            catalog_root: 2,
            next_oid: 3,
            next_seq: 4,
            clock: 5,
            sequences: vec![(6, SequenceState { last: -7, called: true })],
            space: vec![1, 2, 3],
        };
        let bytes = state.encode();
        assert_eq!(CheckpointState::decode(&bytes), Some(state));
        for cut in 0..bytes.len() {
            assert_eq!(CheckpointState::decode(&bytes[..cut]), None);
        }
    }
}
