//! How does a tree shrink? Empty leaves are unlinked, sparse neighbours merged, a root with one
//! child takes the child's contents.

use homenode_pool::{Exclusive, PAGE_BYTES, PageNo};

use crate::edit::{Contents, Entry, FENCE_LOWER, FENCE_NO_UPPER, FENCE_UPPER};
use crate::layout::{Header, View};
use crate::op::{OpCode, Writer};
use crate::tree::log_and_apply;
use crate::{Tree, TreeError};

/// Two neighbours are merged if together they fill no more than this: leaving a third free keeps
/// the next inserts from splitting the page again.
const MERGED_BYTES: usize = PAGE_BYTES * 2 / 3;

/// A page that is filled less is worth looking at.
const SPARSE_BYTES: usize = PAGE_BYTES / 4;

/// What became of the attempt to merge a page.
enum Merged {
    /// Nothing was to be done.
    No,
    /// One page less; the level above may have become sparse.
    Yes,
}

impl Tree {
    /// Drops the entries of `key`'s leaf for which `prune` says true; if the leaf is empty or
    /// sparse then, it is merged with a neighbour, and so on upwards. Returns the number of pages
    /// given back.
    ///
    /// # Errors
    /// If a page cannot be read. The tree is whole then too.
    pub fn shrink(&self, lane: usize, key: &[u8], prune: &mut dyn FnMut(Header) -> bool) -> Result<usize, TreeError> {
        let mut leaf = self.latch_leaf(key)?;
        self.prune_leaf(lane, &mut leaf, prune)?;
        let sparse = Contents::of(leaf.bytes()).packed_bytes() < SPARSE_BYTES;
        drop(leaf);
        let mut freed = 0;
        let mut level = 0;
        while sparse && level < u8::MAX {
            match self.merge_at(lane, key, level)? {
                Merged::No => break,
                Merged::Yes => freed += 1,
            }
            level += 1;
        }
        if freed > 0 {
            freed += self.lower_root(lane)?;
        }
        Ok(freed)
    }

    /// Merges the page of `level` on the way to `key` with a neighbour under the same parent.
    fn merge_at(&self, lane: usize, key: &[u8], level: u8) -> Result<Merged, TreeError> {
        let Some(mut parent) = self.latch_inner(key, level + 1)? else { return Ok(Merged::No) };
        let view = View(parent.bytes());
        if view.count() == 0 {
            // An only child has its neighbours under other parents: those have to be merged first.
            drop(parent);
            return match self.merge_at(lane, key, level + 1)? {
                Merged::Yes => self.merge_at(lane, key, level),
                Merged::No => Ok(Merged::No),
            };
        }
        // The left of the two neighbours; their separator is the parent's slot of the same index.
        let slot = view.child_index(key).saturating_sub(1);
        let (left, right) = (view.child(slot), view.child(slot + 1));
        let separator = view.key(slot);
        let mut left = self.pool.exclusive(left)?;
        let mut right = self.pool.exclusive(right)?;
        let Some((page_op, gone)) = plan_merge(&left, &right, &separator) else { return Ok(Merged::No) };
        let (mut free, mut unlink) = (Vec::new(), Vec::new());
        Writer::begin(&mut free, gone, OpCode::Free).end();
        let keep_right = gone == left.page_no();
        Writer::begin(&mut unlink, parent.page_no(), OpCode::RemoveChild).u16(slot).u8(keep_right.into()).end();
        let ops = [page_op, free, unlink];
        log_and_apply(&*self.log, lane, &mut [&mut parent, &mut left, &mut right], &ops)?;
        if keep_right {
            left.free()
        } else {
            right.free()
        }
        Ok(Merged::Yes)
    }

    /// As long as the root is an inner page with one child, it takes the child's contents.
    fn lower_root(&self, lane: usize) -> Result<usize, TreeError> {
        let mut freed = 0;
        loop {
            let mut root = self.pool.exclusive(self.root)?;
            let view = View(root.bytes());
            if view.level() == 0 || view.count() > 0 {
                return Ok(freed);
            }
            let mut child = self.pool.exclusive(view.child(0))?;
            let (mut up, mut free) = (Vec::new(), Vec::new());
            crate::edit::encode_image(child.bytes(), self.root, &mut up);
            Writer::begin(&mut free, child.page_no(), OpCode::Free).end();
            log_and_apply(&*self.log, lane, &mut [&mut root, &mut child], &[up, free])?;
            child.free();
            freed += 1;
        }
    }
}

/// The operation that makes one page of two neighbours, and which of them goes. None: they stay.
fn plan_merge(left: &Exclusive<'_>, right: &Exclusive<'_>, separator: &[u8]) -> Option<(Vec<u8>, PageNo)> {
    let (l, r) = (Contents::of(left.bytes()), Contents::of(right.bytes()));
    let mut op = Vec::new();
    if l.level == 0 && r.entries.is_empty() {
        if !(Contents { upper: r.upper, entries: l.entries.clone(), ..l }).fit() {
            return None;
        }
        let writer = Writer::begin(&mut op, left.page_no(), OpCode::SetFence);
        match r.upper {
            Some(upper) => writer.u8(FENCE_UPPER).bytes(upper).end(),
            None => writer.u8(FENCE_NO_UPPER).end(),
        }
        return Some((op, right.page_no()));
    }
    if l.level == 0 && l.entries.is_empty() {
        if !(Contents { lower: l.lower, entries: r.entries.clone(), ..r }).fit() {
            return None;
        }
        Writer::begin(&mut op, right.page_no(), OpCode::SetFence).u8(FENCE_LOWER).bytes(l.lower).end();
        return Some((op, left.page_no()));
    }
    let mut entries = l.entries.clone();
    if l.level > 0 {
        entries.push(Entry::inner(separator, r.leftmost));
    }
    entries.extend_from_slice(&r.entries);
    let merged = Contents { upper: r.upper, entries, ..l };
    if merged.packed_bytes() > MERGED_BYTES {
        return None;
    }
    merged.encode_format(left.page_no(), &mut op);
    Some((op, right.page_no()))
}
