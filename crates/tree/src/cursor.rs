//! What comes next? Walking a tree in key order, one private leaf copy at a time.
//!
//! A cursor holds no latch and no page between calls; it remembers the key at which the next leaf
//! begins (forward: the last leaf's upper fence; backward: its lower fence) and descends again. So
//! splits and merges in between cannot make it skip a key or return one twice: a leaf that has
//! since absorbed its neighbour is shown from the remembered key on only.

use std::ops::{Bound, Range};

use homenode_pool::PAGE_BYTES;

use crate::ahead::Ahead;
use crate::bytes::Bytes;
use crate::descend::{Below, Last, To};
use crate::layout::{
    Header, LEAF_FIXED, NO_UPPER, OFF_LOWER, OFF_LOWER_LEN, OFF_PREFIX, OFF_PREFIX_LEN, OFF_SLOTS, OFF_UPPER,
    OFF_UPPER_LEN, SLOT_BYTES, Slot, View, WORD_MASK, align8, value_at,
};
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
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// The leaf with the key; keys below it have been shown or were not asked for.
    From,
    /// The leaf with the largest keys below the key.
    Below,
    Last,
    End,
}

/// A position in a tree.
pub struct Cursor {
    next: Next,
    /// The key that `next` speaks of.
    key: Vec<u8>,
    /// Forward: the first key that is not wanted any more; backward: the last one that is.
    stop: Option<Vec<u8>>,
    leaf: LeafCopy,
    ahead: Ahead,
}

/// Makes `out` the bound as a place between keys: all keys below it lie before the place. None: there is no bound.
fn place(bound: Bound<&[u8]>, before: bool, out: &mut Vec<u8>) -> Option<()> {
    let (Bound::Included(key) | Bound::Excluded(key)) = bound else { return None };
    out.clear();
    out.extend_from_slice(key);
    if matches!(bound, Bound::Included(_)) != before {
        // The first key above k is k and a zero byte.
        out.push(0);
    }
    Some(())
}

impl Cursor {
    pub(crate) fn new() -> Cursor {
        Cursor { next: Next::From, key: Vec::new(), stop: None, leaf: LeafCopy::new(), ahead: Ahead::default() }
    }

    /// Positions the cursor: forward at the first key within `bound`, backward at the last one.
    pub fn seek(&mut self, bound: Bound<&[u8]>, direction: Direction) {
        let bounded = place(bound, direction == Direction::Forward, &mut self.key).is_some();
        self.next = match direction {
            Direction::Forward if !bounded => {
                self.key.clear();
                Next::From
            }
            Direction::Forward => Next::From,
            Direction::Backward if bounded => Next::Below,
            Direction::Backward => Next::Last,
        };
        self.stop = None;
        self.ahead.restart();
    }

    /// Ends the cursor, which was just positioned, at the other end of a range: leaves beyond are not visited, slots beyond not
    /// shown, and of a leaf only what lies within is copied.
    pub fn stop_at(&mut self, bound: Bound<&[u8]>) {
        let mut stop = self.stop.take().unwrap_or_default();
        let forward = self.next == Next::From;
        self.stop = place(bound, !forward, &mut stop).map(|()| stop);
    }

    /// The next leaf's copy, with [`LeafCopy::slots`] limited to keys within the bounds and not
    /// shown before (there may be none). None at the end.
    ///
    /// # Errors
    /// If a page cannot be read. The cursor stays where it is.
    pub fn next_leaf(&mut self, tree: &Tree) -> Result<Option<&LeafCopy>, TreeError> {
        let Cursor { next, key, stop, leaf, ahead } = self;
        let stop = stop.as_deref();
        match *next {
            Next::From => tree.read_page(To(key), 0, |page| leaf.copy_from(page, Some(key), stop))?,
            Next::Below => tree.read_page(Below(key), 0, |page| leaf.copy_from(page, stop, Some(key)))?,
            Next::Last => tree.read_page(Last, 0, |page| leaf.copy_from(page, stop, None))?,
            Next::End => return Ok(None),
        }
        leaf.finish();
        let view = View(leaf.bytes());
        let following = match *next {
            Next::From => view.upper().filter(|upper| stop.is_none_or(|stop| *upper < stop)),
            _ => Some(view.lower()).filter(|lower| !lower.is_empty() && stop.is_none_or(|stop| *lower > stop)),
        };
        *next = match (following, *next) {
            (None, _) => Next::End,
            (Some(_), Next::From) => Next::From,
            (Some(_), _) => Next::Below,
        };
        if let Some(following) = following {
            key.clear();
            key.extend_from_slice(following);
            let direction = if *next == Next::From { Direction::Forward } else { Direction::Backward };
            ahead.leaf_done(tree, key, stop, direction)?;
        }
        Ok(Some(leaf))
    }

    /// The leaf that [`next_leaf`](Self::next_leaf) returned last.
    #[inline(always)]
    pub fn leaf(&self) -> &LeafCopy {
        &self.leaf
    }
}

/// A page-sized buffer, aligned as a page is.
#[repr(align(64))]
struct Buffer([u8; PAGE_BYTES]);

/// A part of a leaf's content at one moment, in private memory.
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

    /// Copies header, fences, and slots and entries of the keys between `low` and `high` (None: all there are on that side).
    /// What is copied may be torn.
    fn copy_from<P: Bytes + ?Sized>(&mut self, page: &P, low: Option<&[u8]>, high: Option<&[u8]>) {
        let view = View(page);
        let count = view.count();
        let position = |key: &[u8]| match view.find(key) {
            Ok(slot) | Err(slot) => slot,
        };
        let end = high.map_or(count, position);
        let start = low.map_or(0, position).min(end);
        self.slots = start..end;
        let out = &mut self.page.0;
        page.copy_to(0, &mut out[..OFF_SLOTS]);
        let slots = OFF_SLOTS + SLOT_BYTES * start..OFF_SLOTS + SLOT_BYTES * end;
        page.copy_to(slots.start, &mut out[slots]);
        // Entries were put in from the page's end downwards, most of them in key order: those of a range lie together.
        let (mut first, mut last, mut last_slot) = (PAGE_BYTES, 0, start);
        for slot in start..end {
            let off = view.slot(slot).off();
            first = first.min(off);
            if off >= last {
                (last, last_slot) = (off, slot);
            }
        }
        if first < PAGE_BYTES {
            let (value, len) = view.value_range(last_slot);
            let end = align8(value + len).min(PAGE_BYTES);
            if first < end {
                page.copy_to(first, &mut out[first..end]);
            }
        }
        for (off, len) in [(OFF_PREFIX, OFF_PREFIX_LEN), (OFF_LOWER, OFF_LOWER_LEN), (OFF_UPPER, OFF_UPPER_LEN)] {
            let len = page.u16(len);
            let off = usize::from(page.u16(off)).min(PAGE_BYTES);
            let end = (off + usize::from(len)).min(PAGE_BYTES);
            if len != NO_UPPER {
                page.copy_to(off, &mut out[off..end]);
            }
        }
    }

    /// The copy is validated by now.
    fn finish(&mut self) {
        self.prefix.clear();
        self.prefix.extend_from_slice(View(&self.page.0[..]).prefix());
    }

    /// The slots to look at.
    #[inline(always)]
    pub fn slots(&self) -> Range<usize> {
        self.slots.clone()
    }

    /// The aligned word at `off`.
    #[inline(always)]
    fn word(&self, off: usize) -> u64 {
        let off = off & WORD_MASK;
        let mut word = [0; 8];
        word.copy_from_slice(&self.page.0[off..off + 8]);
        u64::from_le_bytes(word)
    }

    #[inline(always)]
    fn slot(&self, slot: usize) -> Slot {
        Slot(self.word(OFF_SLOTS + SLOT_BYTES * slot))
    }

    /// Who wrote an entry: its header's first word.
    #[inline(always)]
    pub fn writer(&self, slot: usize) -> u64 {
        self.word(self.slot(slot).off())
    }

    /// Header of an entry.
    #[inline(always)]
    pub fn header(&self, slot: usize) -> Header {
        let off = self.slot(slot).off();
        Header { writer: self.word(off), undo: self.word(off + 8) }
    }

    /// Value of an entry.
    #[inline(always)]
    pub fn value(&self, slot: usize) -> &[u8] {
        let slot = self.slot(slot);
        let len = usize::from(self.word(slot.off() + 16) as u16);
        &self.page.0[slot.off() + value_at(slot.suffix_len())..][..len]
    }

    /// Key of an entry in two parts: what all keys of the leaf begin with, and the rest.
    #[inline(always)]
    pub fn key_parts(&self, slot: usize) -> (&[u8], &[u8]) {
        let slot = self.slot(slot);
        (&self.prefix, &self.page.0[slot.off() + LEAF_FIXED..][..slot.suffix_len()])
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
