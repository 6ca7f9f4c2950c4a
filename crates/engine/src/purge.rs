//! Who takes deletions out of the trees, once every snapshot sees them? Housekeeping, many at a time.
//!
//! A deletion leaves a tombstone in its leaf. Taking each out by itself costs a descent, a latch and a log record for each; so
//! they are gathered for a while, put into the order of their keys, and each leaf is visited once for all of its own. A leaf
//! that fills up before that drops its own tombstones itself (`Tree::make_room`).

use crate::database::Inner;
use crate::error::Result;
use crate::record::KIND_PURGE;
use crate::undo::UndoPage;
use homenode_platform::atomic::{AtomicU64, Ordering};
use homenode_platform::clock;
use homenode_pool::{PAGE_BYTES, PageNo};
use homenode_tree::{Header, Tree};
use homenode_txn::TxnId;
use std::ops::Range;
use std::sync::Arc;

/// Deletions are gathered for this long...
const GATHER_NS: u64 = 500_000_000;

/// ...unless their undo pages come to this share of the pool before.
const POOL_SHARE: usize = 64;

/// Tombstones taken out of one leaf under one latch.
const BATCH: usize = 256;

/// When deletions were last taken out; housekeeping's own.
pub(crate) struct Purges {
    last_ns: AtomicU64,
}

impl Purges {
    pub fn new() -> Purges {
        Purges { last_ns: AtomicU64::new(0) }
    }
}

/// A deletion that every snapshot sees.
struct Deletion {
    root: PageNo,
    tree_id: u32,
    txn: TxnId,
    /// Its key, among the keys of all.
    key: Range<usize>,
}

/// Takes deletions out of their trees if it is time. `waiting` is the number of undo pages that hold them.
pub(crate) fn purge_if_due(db: &Arc<Inner>, waiting: usize) -> Result<()> {
    let now_ns = clock::now_ns();
    let gathered_ns = now_ns.saturating_sub(db.purges.last_ns.load(Ordering::Relaxed));
    let too_many = waiting > db.options.pool_bytes / PAGE_BYTES / POOL_SHARE;
    if waiting == 0 || (gathered_ns < GATHER_NS && !too_many) {
        return Ok(());
    }
    db.purges.last_ns.store(now_ns, Ordering::Relaxed);
    purge_now(db)
}

/// Takes out all deletions that every snapshot is known to see.
pub(crate) fn purge_now(db: &Arc<Inner>) -> Result<()> {
    let pages: Vec<(usize, UndoPage)> = db
        .lanes
        .iter()
        .enumerate()
        .flat_map(|(lane, own)| own.0.undo.take_deleting().into_iter().map(move |page| (lane, page)))
        .collect();
    let mut keys = Vec::new();
    let mut deletions = Vec::new();
    let mut result = Ok(());
    for (lane, page) in pages {
        let seen = page.deletions(&db.pool, |record| {
            let start = keys.len();
            keys.extend_from_slice(record.key);
            let (root, tree_id, txn) = (record.root, record.tree_id, record.txn);
            deletions.push(Deletion { root, tree_id, txn, key: start..keys.len() });
        });
        // A page that cannot be read leaves its tombstones to their leaves.
        result = result.and(seen);
        db.lanes[lane].0.undo.give_back(&db.pool, page);
    }
    deletions.sort_unstable_by(|a, b| (a.root, &keys[a.key.clone()]).cmp(&(b.root, &keys[b.key.clone()])));
    let mut rest = &deletions[..];
    while let Some(first) = rest.first() {
        let same_tree = rest.partition_point(|other| other.root <= first.root);
        let done = purge_leaf(db, &rest[..same_tree], &keys);
        rest = &rest[done..];
    }
    result
}

/// Takes those of `deletions`, all of one tree and in order, out that lie in the leaf of the first; gives how many are done with.
fn purge_leaf(db: &Arc<Inner>, deletions: &[Deletion], keys: &[u8]) -> usize {
    let first = &deletions[0];
    let first_key = &keys[first.key.clone()];
    // Held meanwhile: the pages of a tree that goes away are given back only after.
    let trees = db.live_trees.lock();
    if !trees.contains(&first.root) {
        return deletions.len();
    }
    let tree = Tree::open(db.pool.clone(), db.log.clone(), first.tree_id, first.root);
    let Ok(mut leaf) = tree.leaf_exclusive(first_key) else { return 1 };
    let mut slots = Vec::new();
    let mut done = 0;
    for deletion in deletions.iter().take(BATCH) {
        let key = &keys[deletion.key.clone()];
        if done > 0 && !leaf.covers(key) {
            break;
        }
        done += 1;
        if let Ok(slot) = leaf.find(key)
            && leaf.header(slot).writer == deletion.txn.tombstone()
            && slots.last() != Some(&slot)
        {
            slots.push(slot);
        }
    }
    if slots.is_empty() {
        return done;
    }
    slots.reverse();
    let mut op = 1u16.to_le_bytes().to_vec();
    leaf.plan_remove_all(&slots, &mut op);
    leaf.mark_dirty();
    let lane = first.txn.lane() % db.lanes.len();
    let span = db.log.append(lane, KIND_PURGE, &[&op]);
    leaf.apply(&op[2..], span.end);
    if leaf.count() == 0 {
        drop(leaf);
        // An empty leaf that cannot be given back now costs a page until its range is written to again.
        if let Err(error) = tree.shrink(lane, first_key, &mut |header| is_dead(db, header)) {
            tracing::debug!(%error, "an empty leaf stays");
        }
    }
    done
}

/// Whether the version under `header` is a deletion that every snapshot sees.
pub(crate) fn is_dead(db: &Inner, header: Header) -> bool {
    homenode_txn::is_tombstone(header.writer) && db.txns.settled(TxnId::from_writer(header.writer))
}
