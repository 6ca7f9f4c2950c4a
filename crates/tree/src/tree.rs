//! What is a tree? Its fixed root, the pool its pages are in, the log its changes go to.

use std::sync::Arc;

use homenode_log::Log;
use homenode_pool::{Exclusive, PageNo, Pool};

use crate::TreeError;
use crate::bulk::BulkLoader;
use crate::cursor::Cursor;
use crate::edit::{Contents, apply};
use crate::layout::{Header, View};
use crate::leaf::LeafMut;
use crate::op::{KIND_SMO, Op};

/// The log, as far as a tree needs it.
pub trait Journal: Send + Sync {
    /// Appends a record of the given kind, made of `parts`, and returns the LSN behind it.
    fn append(&self, lane: usize, kind: u8, parts: &[&[u8]]) -> u64;
    /// LSN behind the last record appended.
    fn tail(&self) -> u64;
}

impl Journal for Log {
    fn append(&self, lane: usize, kind: u8, parts: &[&[u8]]) -> u64 {
        Log::append(self, lane, kind, parts).end
    }

    fn tail(&self) -> u64 {
        Log::tail(self)
    }
}

/// One B+tree. Cheap to clone and to open; all state is in its pages.
#[derive(Clone)]
pub struct Tree {
    pub(crate) pool: Arc<Pool>,
    pub(crate) log: Arc<dyn Journal>,
    pub(crate) id: u32,
    pub(crate) root: PageNo,
}

impl Tree {
    /// Makes an empty tree; its root page stays the root for the tree's life.
    ///
    /// # Errors
    /// If no page can be allocated.
    pub fn create(pool: Arc<Pool>, log: Arc<dyn Journal>, lane: usize, id: u32) -> Result<Tree, TreeError> {
        let mut page = pool.allocate(lane)?;
        let root = page.page_no();
        let empty = Contents { level: 0, tree_id: id, lower: &[], upper: None, leftmost: 0, entries: Vec::new() };
        let mut op = Vec::new();
        empty.encode_format(root, &mut op);
        log_and_apply(&*log, lane, &mut [&mut page], &[op])?;
        drop(page);
        Ok(Tree { pool, log, id, root })
    }

    /// The tree with this number and root.
    pub fn open(pool: Arc<Pool>, log: Arc<dyn Journal>, id: u32, root: PageNo) -> Tree {
        Tree { pool, log, id, root }
    }

    /// Starts building a tree from entries in key order.
    pub fn bulk(pool: Arc<Pool>, log: Arc<dyn Journal>, lane: usize, id: u32) -> BulkLoader {
        BulkLoader::new(pool, log, lane, id)
    }

    /// The tree's number.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The tree's root page.
    pub fn root(&self) -> PageNo {
        self.root
    }

    /// Looks `key` up. On a hit the value is in `value` (whatever was there before is gone) and its
    /// header is returned; on a miss `value` holds nothing of meaning. Holds no latch.
    ///
    /// # Errors
    /// If a page cannot be read.
    pub fn lookup(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Header>, TreeError> {
        self.read_leaf(key, |page| {
            let slot = View(page).find(key).ok()?;
            View(page).copy_value(slot, value);
            Some(View(page).header(slot))
        })
    }

    /// The leaf that holds or would hold `key`, latched exclusively.
    ///
    /// # Errors
    /// If a page cannot be read.
    pub fn leaf_exclusive(&self, key: &[u8]) -> Result<LeafMut<'_>, TreeError> {
        Ok(LeafMut::new(self.latch_leaf(key)?))
    }

    /// A cursor, to be positioned with [`Cursor::seek`].
    pub fn cursor(&self) -> Cursor {
        Cursor::new()
    }

    pub(crate) fn corrupt(&self, page_no: PageNo, problem: impl Into<String>) -> TreeError {
        TreeError::Corrupt { tree_id: self.id, page_no, problem: problem.into() }
    }
}

/// Logs operations on latched pages as one [`KIND_SMO`] record, then applies them. Every operation
/// finds its page in `pages` by number. Returns the LSN behind the record.
pub(crate) fn log_and_apply(
    log: &dyn Journal,
    lane: usize,
    pages: &mut [&mut Exclusive<'_>],
    ops: &[Vec<u8>],
) -> Result<u64, TreeError> {
    let end = log_change(log, lane, pages, ops);
    for op in ops {
        let page_no = Op::decode(op)?.page_no;
        let page = pages.iter_mut().find(|page| page.page_no() == page_no);
        apply_logged(page.ok_or(TreeError::BadOp("page not latched"))?, op, end)?;
    }
    Ok(end)
}

/// Logs operations on latched pages as one [`KIND_SMO`] record. Each is then to be applied with [`apply_logged`] before its page's
/// latch is let go. Returns the LSN behind the record.
pub(crate) fn log_change(log: &dyn Journal, lane: usize, pages: &mut [&mut Exclusive<'_>], ops: &[Vec<u8>]) -> u64 {
    for page in pages.iter_mut() {
        page.mark_dirty();
    }
    let count = (ops.len() as u16).to_le_bytes();
    let mut parts: Vec<&[u8]> = vec![&count];
    parts.extend(ops.iter().map(Vec::as_slice));
    log.append(lane, KIND_SMO, &parts)
}

/// Applies an operation of the record that ends at `end` to its page.
pub(crate) fn apply_logged(page: &mut Exclusive<'_>, op: &[u8], end: u64) -> Result<(), TreeError> {
    apply(&mut page.page_mut(), op)?;
    page.set_lsn(end);
    Ok(())
}
