//! What comes next? Walking a tree in key order, one private leaf copy at a time.
//!
//! A cursor holds no latch and no page between calls; it remembers the key at which the next leaf
//! begins (forward: the last leaf's upper fence; backward: its lower fence) and descends again. So
//! splits and merges in between cannot make it skip a key or return one twice: a leaf that has
//! since absorbed its neighbour is shown from the remembered key on only.

use std::ops::{Bound, Range};

use homenode_pool::{PAGE_BYTES, PageRef};

use crate::descend::{Below, Last, To};
use crate::layout::{Header, LEAF_FIXED, OFF_SLOTS, SLOT_BYTES, View, value_at};
use crate::{Tree, TreeError};

/// Which way a cursor goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys: leaves come in descending order, each leaf's slots ascend as always.
    Backward,
}

/// Where the next leaf is.
enum Next {
    /// The leaf with this key; keys below it have been shown or were not asked for.
    From(Vec<u8>),
    /// The leaf with the largest keys below this one.
    Below(Vec<u8>),
    Last,
    End,
}

/// A position in a tree.
pub struct Cursor {
    next: Next,
    leaf: LeafCopy,
}

impl Cursor {
    pub(crate) fn new() -> Cursor {
        Cursor { next: Next::From(Vec::new()), leaf: LeafCopy::new() }
    }

    /// Positions the cursor: forward at the first key within `bound`, backward at the last one.
    pub fn seek(&mut self, bound: Bound<&[u8]>, direction: Direction) {
        // The first key above k is k and a zero byte.
        let after = |key: &[u8]| [key, &[0]].concat();
        self.next = match (direction, bound) {
            (Direction::Forward, Bound::Included(key)) => Next::From(key.to_vec()),
            (Direction::Forward, Bound::Excluded(key)) => Next::From(after(key)),
            (Direction::Forward, Bound::Unbounded) => Next::From(Vec::new()),
            (Direction::Backward, Bound::Included(key)) => Next::Below(after(key)),
            (Direction::Backward, Bound::Excluded(key)) => Next::Below(key.to_vec()),
            (Direction::Backward, Bound::Unbounded) => Next::Last,
        };
    }

    /// The next leaf's copy, with [`LeafCopy::slots`] limited to keys within the bound and not
    /// shown before (there may be none). None at the end.
    ///
    /// # Errors
    /// If a page cannot be read. The cursor stays where it is.
    pub fn next_leaf(&mut self, tree: &Tree) -> Result<Option<&LeafCopy>, TreeError> {
        let leaf = &mut self.leaf;
        let copy = |page: &PageRef<'_>| leaf.copy_from(page);
        match &self.next {
            Next::From(key) => tree.read_page(To(key), 0, copy)?,
            Next::Below(key) => tree.read_page(Below(key), 0, copy)?,
            Next::Last => tree.read_page(Last, 0, copy)?,
            Next::End => return Ok(None),
        }
        self.leaf.limit(&self.next);
        let view = View(self.leaf.bytes());
        self.next = match &self.next {
            Next::From(_) => view.upper().map_or(Next::End, |upper| Next::From(upper.to_vec())),
            _ if view.lower().is_empty() => Next::End,
            _ => Next::Below(view.lower().to_vec()),
        };
        Ok(Some(&self.leaf))
    }

    /// The leaf that [`next_leaf`](Self::next_leaf) returned last.
    pub fn leaf(&self) -> &LeafCopy {
        &self.leaf
    }
}

/// A page-sized buffer, aligned as a page is.
#[repr(align(64))]
struct Buffer([u8; PAGE_BYTES]);

/// A leaf's content at one moment, in private memory.
pub struct LeafCopy {
    page: Box<Buffer>,
    slots: Range<usize>,
    prefix: Vec<u8>,
}

impl LeafCopy {
    fn new() -> LeafCopy {
        LeafCopy { page: Box::new(Buffer([0; PAGE_BYTES])), slots: 0..0, prefix: Vec::new() }
    }

    fn bytes(&self) -> &[u8] {
        &self.page.0
    }

    /// Copies header, slots and entries, not the free space between; what is copied may be torn.
    fn copy_from<P: crate::bytes::Bytes + ?Sized>(&mut self, page: &P) {
        let view = View(page);
        let slots_end = OFF_SLOTS + SLOT_BYTES * view.count();
        let heap = view.heap_start().max(slots_end);
        page.copy_to(0, &mut self.page.0[..slots_end]);
        page.copy_to(heap, &mut self.page.0[heap..]);
    }

    /// Limits the slots to what `next` asked for. The copy is validated by now.
    fn limit(&mut self, next: &Next) {
        let view = View(&self.page.0[..]);
        let first_from = |key: &Vec<u8>| match view.find(key) {
            Ok(slot) | Err(slot) => slot,
        };
        self.slots = match next {
            Next::From(key) => first_from(key)..view.count(),
            Next::Below(key) => 0..first_from(key),
            Next::Last | Next::End => 0..view.count(),
        };
        self.prefix.clear();
        self.prefix.extend_from_slice(view.prefix());
    }

    /// The slots to look at.
    pub fn slots(&self) -> Range<usize> {
        self.slots.clone()
    }

    /// Number of entries in the leaf, also those outside [`slots`](Self::slots).
    pub fn count(&self) -> usize {
        View(self.bytes()).count()
    }

    /// Offset of a slot's entry and length of its key suffix.
    #[inline(always)]
    fn entry(&self, slot: usize) -> (usize, usize) {
        let word = View(self.bytes()).slot(slot);
        (word.off(), word.suffix_len())
    }

    /// Header of an entry.
    #[inline(always)]
    pub fn header(&self, slot: usize) -> Header {
        let (off, _) = self.entry(slot);
        let entry = &self.page.0[off..off + 16];
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| entry[at + i]));
        Header { writer: word(0), undo: word(8) }
    }

    /// Value of an entry.
    #[inline(always)]
    pub fn value(&self, slot: usize) -> &[u8] {
        let (off, suffix_len) = self.entry(slot);
        let page = &self.page.0;
        let len = usize::from(u16::from_le_bytes([page[off + 16], page[off + 17]]));
        &page[off + value_at(suffix_len)..][..len]
    }

    /// Key of an entry in two parts: what all keys of the leaf begin with, and the rest.
    #[inline(always)]
    pub fn key_parts(&self, slot: usize) -> (&[u8], &[u8]) {
        let (off, suffix_len) = self.entry(slot);
        (&self.prefix, &self.page.0[off + LEAF_FIXED..][..suffix_len])
    }

    /// Whole key of an entry into `out` (cleared first).
    #[inline]
    pub fn key(&self, slot: usize, out: &mut Vec<u8>) {
        let (prefix, suffix) = self.key_parts(slot);
        out.clear();
        out.extend_from_slice(prefix);
        out.extend_from_slice(suffix);
    }
}
