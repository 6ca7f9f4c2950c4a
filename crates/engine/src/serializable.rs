//! Would a SERIALIZABLE transaction read now what it read then?
//!
//! Such a transaction remembers what it has read: keys and key ranges. When it has written too, and is about to commit (announced, so that
//! others see it coming), it looks at each again: a version committed after its snapshot means that its reads and writes don't
//! happen at one moment, and it fails with 40001. Two transactions that read what the other writes both have announced
//! themselves before they look, so at least one of them sees the other (backward validation, Kung and Robinson, ACM TODS 1981; the
//! announcement as in Larson et al., VLDB 2011). PostgreSQL's SSI lets some such transactions pass that fail here; none passes here that
//! isn't serializable. One that only reads sees a snapshot, which lies at one moment by itself.

use crate::error::{Error, Result, SqlState, Storage};
use crate::session::Session;
use crate::undo;
use homenode_pool::PageNo;
use homenode_tree::{Header, Tree};
use homenode_txn::{State, TxnId};
use std::ops::Bound;

/// Beyond this many ranges of one tree, the whole tree counts as read.
const RANGES_MAX: usize = 4096;

/// What a transaction has read.
#[derive(Default)]
pub(crate) struct ReadSet {
    trees: Vec<TreeReads>,
}

struct TreeReads {
    root: PageNo,
    id: u32,
    /// Inclusive bounds; None is the end of the tree.
    ranges: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl ReadSet {
    /// Adds the keys from `lower` to `upper`, both included.
    pub fn add(&mut self, tree: &Tree, lower: &[u8], upper: Option<&[u8]>) {
        let at = self.trees.iter().position(|reads| reads.root == tree.root()).unwrap_or_else(|| {
            self.trees.push(TreeReads { root: tree.root(), id: tree.id(), ranges: Vec::new() });
            self.trees.len() - 1
        });
        let ranges = &mut self.trees[at].ranges;
        if ranges.len() >= RANGES_MAX {
            ranges.clear();
            ranges.push((Vec::new(), None));
        } else if ranges.first().is_none_or(|(lower, upper)| !lower.is_empty() || upper.is_some()) {
            ranges.push((lower.to_vec(), upper.map(<[u8]>::to_vec)));
        }
    }
}

impl Session {
    /// Remembers a read, in a SERIALIZABLE transaction.
    #[inline]
    pub(crate) fn note_read(&mut self, tree: &Tree, lower: &[u8], upper: Option<&[u8]>) {
        if let Some(reads) = &mut self.txn.reads {
            reads.add(tree, lower, upper);
        }
    }

    /// Looks at all reads again, before the commit of a transaction that has written.
    pub(crate) fn check_reads(&mut self) -> Result<()> {
        let (Some(reads), Some(snapshot)) = (self.txn.reads.take(), self.txn.snapshot) else { return Ok(()) };
        for tree_reads in &reads.trees {
            let tree = Tree::open(self.db.pool.clone(), self.db.log.clone(), tree_reads.id, tree_reads.root);
            for (lower, upper) in &tree_reads.ranges {
                self.check_range(&tree, snapshot, lower, upper.as_deref())?;
            }
        }
        Ok(())
    }

    fn check_range(&mut self, tree: &Tree, snapshot: u64, lower: &[u8], upper: Option<&[u8]>) -> Result<()> {
        let mut cursor = tree.cursor();
        cursor.seek(Bound::Included(lower), homenode_tree::Direction::Forward);
        cursor.stop_at(upper.map_or(Bound::Unbounded, Bound::Included));
        while let Some(leaf) = cursor.next_leaf(tree).sql()? {
            for slot in leaf.slots() {
                if self.changed_since(leaf.header(slot), snapshot)? {
                    return Err(Error::new(
                        SqlState::SERIALIZATION_FAILURE,
                        "could not serialize access due to read/write dependencies among transactions",
                    )
                    .with_hint("The transaction might succeed if retried."));
                }
            }
        }
        Ok(())
    }

    fn changed_since(&self, mut header: Header, snapshot: u64) -> Result<bool> {
        let mut bytes = Vec::new();
        loop {
            let writer = TxnId::from_writer(header.writer);
            match self.db.txns.state(writer) {
                State::Settled => return Ok(false),
                State::Committed { timestamp, .. } => return Ok(timestamp > snapshot),
                State::Precommit { .. } if writer != self.txn.id => return Ok(true),
                // Its own change, or one that isn't decided: what stood there before it?
                _ => {}
            }
            if header.undo == 0 {
                return Ok(false);
            }
            let record = undo::read(&self.db.pool, header.undo, &mut bytes)?;
            let Some(record) = record.filter(|record| record.txn == writer) else { return Ok(true) };
            if record.kind == undo::UndoKind::Insert {
                return Ok(false);
            }
            header = Header { writer: record.old_writer, undo: record.old_undo };
        }
    }
}
