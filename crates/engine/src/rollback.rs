//! How is a change taken back? The same way by a rollback and by recovery.
//!
//! Taking back is by key, since the entry may have moved to another page. Each step writes one compensation record that names the
//! transaction; as steps go strictly backwards, recovery knows from their number how far a rollback had come (ARIES, Mohan et al.,
//! ACM TODS 1992, has a pointer for the same purpose).

use crate::database::Inner;
use crate::error::{Error, Result, SqlState, Storage};
use crate::record::KIND_COMPENSATION;
use crate::undo::{UndoKind, UndoRecord};
use homenode_tree::{Header, Tree};
use homenode_txn::TxnId;
use std::sync::Arc;

/// Takes back the change that `record` describes.
pub(crate) fn take_back(db: &Arc<Inner>, lane: usize, record: &UndoRecord<'_>) -> Result<()> {
    let tree = Tree::open(db.pool.clone(), db.log.clone(), record.tree_id, record.root);
    let old = Header { writer: record.old_writer, undo: record.old_undo };
    let mut value = Vec::new();
    let mut op = Vec::new();
    loop {
        let mut leaf = tree.leaf_exclusive(record.key).sql()?;
        let own = |slot: &usize| TxnId::from_writer(leaf.header(*slot).writer) == record.txn;
        let Some(slot) = leaf.find(record.key).ok().filter(own) else {
            return Err(Error::new(SqlState::DATA_CORRUPTED, "a change to be taken back is not where it was made"));
        };
        op.clear();
        op.extend_from_slice(&1u16.to_le_bytes());
        match record.kind {
            UndoKind::Insert => leaf.plan_remove(slot, &mut op),
            UndoKind::Delete => leaf.plan_set_header(slot, old, &mut op),
            UndoKind::Update => {
                value.clear();
                value.extend_from_slice(leaf.value(slot));
                if !record.apply(&mut value) {
                    return Err(Error::internal("an undo record does not fit its row"));
                }
                if !leaf.fits_update(slot, value.len()) {
                    drop(leaf);
                    tree.make_room(lane, record.key, value.len(), &mut |_| false).sql()?;
                    continue;
                }
                leaf.plan_update(slot, old, &value, &mut op);
            }
        }
        leaf.mark_dirty();
        let span = db.log.append(lane, KIND_COMPENSATION, &[&op, &record.txn.writer().to_le_bytes()]);
        leaf.apply(&op[2..], span.end);
        return Ok(());
    }
}
