//! Where on a page is what? Header, slots, entries, fences; and the search in one page.
//!
//! ```text
//!  0  checksum u32 | page_type u8 | level u8 | flags u16     } the pool's common header;
//!  8  page_no u64                                            } type, level, tree_id are the
//! 16  lsn u64                                                } tree's
//! 24  tree_id u32 | spare u32
//! 32  count u16 | heap_start u16 | garbage u16 | prefix_off u16
//! 40  prefix_len u16 | lower_off u16 | lower_len u16 | upper_off u16
//! 48  upper_len u16 (0xFFFF: no upper fence) | last_slot u16 | run u16 | spare u16
//! 56  leftmost child u64 (inner pages)
//! 64  first 8 bytes of the prefix
//! 72  slots, 8 bytes each: offset u16 | suffix_len u16 | head u32, in key order, growing up
//!     free space
//!     entries, 8-byte aligned, growing down; at the very end prefix (when over 8 bytes) and fences
//! ```
//! Leaf entry: writer u64 | undo u64 | value_len u16 | key suffix | to the next 8 bytes | value.
//! Inner entry: child u64 | separator suffix; the child holds the keys from the separator on.
//!
//! All keys of a page share the prefix, stored once; it is taken from the keys themselves, not
//! from the fences (the right-most page of every level has no upper fence, and big-endian integers
//! would all have the same head there). A head is the first 4 bytes after the prefix, so nearly
//! all of a search touches the header's line and the slots only (Graefe, "Modern B-Tree
//! Techniques", 2011, section 3.5 "poor man's normalized keys"). A page holds the keys `k` with
//! `lower <= k < upper`.
//!
//! Every number read here may come from a page that is being changed, so each is clamped before it
//! is used as an offset or a length; the caller validates before it believes a result.

use std::cmp::Ordering;

use homenode_pool::PAGE_BYTES;

use crate::bytes::{Bytes, leading_be};

/// `page_type` of a tree page (leaf or inner; the level tells).
pub const PAGE_TYPE_TREE: u8 = 1;

pub(crate) const OFF_TYPE: usize = 4;
pub(crate) const OFF_LEVEL: usize = 5;
pub(crate) const OFF_TREE_ID: usize = 24;
pub(crate) const OFF_COUNT: usize = 32;
pub(crate) const OFF_HEAP: usize = 34;
pub(crate) const OFF_GARBAGE: usize = 36;
pub(crate) const OFF_PREFIX: usize = 38;
pub(crate) const OFF_PREFIX_LEN: usize = 40;
pub(crate) const OFF_LOWER: usize = 42;
pub(crate) const OFF_LOWER_LEN: usize = 44;
pub(crate) const OFF_UPPER: usize = 46;
pub(crate) const OFF_UPPER_LEN: usize = 48;
pub(crate) const OFF_LAST_SLOT: usize = 50;
pub(crate) const OFF_RUN: usize = 52;
pub(crate) const OFF_LEFTMOST: usize = 56;
pub(crate) const OFF_PREFIX_WORD: usize = 64;
/// Start of the slot array.
pub(crate) const OFF_SLOTS: usize = 72;
pub(crate) const SLOT_BYTES: usize = 8;
/// Any number masked with this is the offset of an aligned word inside a page. Cheaper than a
/// comparison, and the compiler sees that the load needs neither clamping nor shifting.
pub(crate) const WORD_MASK: usize = PAGE_BYTES - 8;
/// `upper_len` of a page without an upper fence.
pub(crate) const NO_UPPER: u16 = u16::MAX;
/// `last_slot` of a page into which nothing was inserted since it was built.
pub(crate) const NO_SLOT: u16 = u16::MAX;
/// Bytes of a leaf entry before its key suffix.
pub(crate) const LEAF_FIXED: usize = 18;
/// Bytes of an inner entry before its separator suffix.
pub(crate) const INNER_FIXED: usize = 8;

/// Slots from which on a search begins by interpolating.
const INTERPOLATE_FROM: usize = 8;

const MAX_SLOTS: usize = (PAGE_BYTES - OFF_SLOTS) / (SLOT_BYTES + 8);

/// Longest key in bytes; the same limit as PostgreSQL's B-tree entries (nbtree.h, BTMaxItemSize).
pub const MAX_KEY_BYTES: usize = 2704;
/// Largest leaf entry in bytes, counted by [`entry_bytes`]. With it and [`MAX_KEY_BYTES`] a page
/// with one entry and two fences always takes a second one, so splitting always makes progress.
pub const MAX_ENTRY_BYTES: usize = 4072;

/// Bytes that an entry with these lengths takes of a page at most, slot and alignment included.
#[inline]
pub fn entry_bytes(key_len: usize, value_len: usize) -> usize {
    SLOT_BYTES + leaf_size(key_len, value_len)
}

#[inline(always)]
pub(crate) const fn align8(n: usize) -> usize {
    (n + 7) & !7
}

/// Where in a leaf entry the value begins: aligned, so that copying it is whole words.
#[inline(always)]
pub(crate) const fn value_at(suffix_len: usize) -> usize {
    align8(LEAF_FIXED + suffix_len)
}

#[inline(always)]
pub(crate) const fn leaf_size(suffix_len: usize, value_len: usize) -> usize {
    value_at(suffix_len) + align8(value_len)
}

#[inline(always)]
pub(crate) const fn inner_size(suffix_len: usize) -> usize {
    align8(INNER_FIXED + suffix_len)
}

/// The head of a suffix: its first 4 bytes, big-endian, padded with zeros.
#[inline(always)]
pub(crate) fn head_of(suffix: &[u8]) -> u32 {
    (leading_be(suffix) >> 32) as u32
}

/// What the tree keeps for the engine with each entry; opaque here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// Who wrote the newest version (and the engine's flags).
    pub writer: u64,
    /// Where older versions are. Not meaningful after a restart.
    pub undo: u64,
}

/// One slot word.
#[derive(Clone, Copy)]
pub(crate) struct Slot(pub u64);

impl Slot {
    #[inline(always)]
    pub fn new(off: usize, suffix_len: usize, head: u32) -> Slot {
        Slot((u64::from(head) << 32) | ((suffix_len as u64) << 16) | off as u64)
    }

    #[inline(always)]
    pub fn head(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline(always)]
    pub fn off(self) -> usize {
        self.0 as usize & WORD_MASK
    }

    #[inline(always)]
    pub fn suffix_len(self) -> usize {
        ((self.0 >> 16) & 0xFFFF) as usize
    }
}

/// A page seen for reading.
pub(crate) struct View<'a, P: Bytes + ?Sized>(pub &'a P);

impl<P: Bytes + ?Sized> Clone for View<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Bytes + ?Sized> Copy for View<'_, P> {}

impl<'a, P: Bytes + ?Sized> View<'a, P> {
    #[inline(always)]
    pub fn page_type(self) -> u8 {
        (self.0.u16(OFF_TYPE) & 0xFF) as u8
    }

    #[inline(always)]
    pub fn level(self) -> u8 {
        (self.0.u16(OFF_TYPE) >> 8) as u8
    }

    #[inline(always)]
    pub fn tree_id(self) -> u32 {
        self.0.u64(OFF_TREE_ID) as u32
    }

    #[inline(always)]
    pub fn count(self) -> usize {
        usize::from(self.0.u16(OFF_COUNT)).min(MAX_SLOTS)
    }

    pub fn heap_start(self) -> usize {
        usize::from(self.0.u16(OFF_HEAP)).min(PAGE_BYTES)
    }

    pub fn garbage(self) -> usize {
        usize::from(self.0.u16(OFF_GARBAGE))
    }

    /// Bytes between slots and entries.
    pub fn contiguous_free(self) -> usize {
        self.heap_start().saturating_sub(OFF_SLOTS + SLOT_BYTES * self.count())
    }

    #[inline(always)]
    pub fn prefix_len(self) -> usize {
        usize::from(self.0.u16(OFF_PREFIX_LEN)).min(MAX_KEY_BYTES)
    }

    #[inline(always)]
    pub fn slot(self, i: usize) -> Slot {
        Slot(self.0.u64((OFF_SLOTS + SLOT_BYTES * i) & WORD_MASK))
    }

    /// Offset and length of slot `i`'s suffix, clamped to the page. `fixed` is the entry's part
    /// before the suffix.
    #[inline(always)]
    fn suffix_range(self, slot: Slot, fixed: usize) -> (usize, usize) {
        let off = (slot.off() + fixed).min(PAGE_BYTES);
        (off, slot.suffix_len().min(PAGE_BYTES - off))
    }

    #[inline(always)]
    fn child_at(self, slot: Slot) -> u64 {
        self.0.u64(slot.off())
    }

    /// Child `i` of an inner page, `0 ..= count`.
    #[inline(always)]
    pub fn child(self, i: usize) -> u64 {
        match i.checked_sub(1) {
            None => self.0.u64(OFF_LEFTMOST),
            Some(slot) => self.child_at(self.slot(slot)),
        }
    }

    /// Index of the child that holds `key`.
    #[inline(always)]
    pub fn child_index(self, key: &[u8]) -> usize {
        match self.search(key, INNER_FIXED) {
            Ok(i) => i + 1,
            Err(i) => i,
        }
    }

    /// Index of the child that holds the largest keys below `key`.
    pub fn child_index_below(self, key: &[u8]) -> usize {
        match self.search(key, INNER_FIXED) {
            Ok(i) | Err(i) => i,
        }
    }

    /// The slot that holds `key` in a leaf, or the slot before which it belongs.
    #[inline(always)]
    pub fn find(self, key: &[u8]) -> Result<usize, usize> {
        self.search(key, LEAF_FIXED)
    }

    /// The part of `key` after the page's prefix; or whether the whole page lies after (`Less`)
    /// or before (`Greater`) the key.
    #[inline(always)]
    fn strip(self, key: &[u8]) -> Result<&[u8], Ordering> {
        let len = self.prefix_len();
        if len == 0 {
            return Ok(key);
        }
        let mask = u64::MAX << (64 - 8 * len.min(8));
        let prefix = self.0.u64(OFF_PREFIX_WORD).swap_bytes() & mask;
        let probe = leading_be(key) & mask;
        if prefix != probe {
            return Err(probe.cmp(&prefix));
        }
        if key.len() < len.min(8) {
            return Err(Ordering::Less);
        }
        if len > 8 {
            self.strip_long(key, len)?;
        }
        Ok(&key[len..])
    }

    #[inline(never)]
    fn strip_long(self, key: &[u8], len: usize) -> Result<(), Ordering> {
        let off = usize::from(self.0.u16(OFF_PREFIX)).min(PAGE_BYTES - len);
        let probe = &key[..key.len().min(len)];
        match self.0.compare(off, len, probe) {
            Ordering::Equal => Ok(()),
            order => Err(order.reverse()),
        }
    }

    #[inline(always)]
    fn search(self, key: &[u8], fixed: usize) -> Result<usize, usize> {
        let count = self.count();
        let suffix = match self.strip(key) {
            Ok(suffix) => suffix,
            Err(Ordering::Less) => return Err(0),
            Err(_) => return Err(count),
        };
        let head = head_of(suffix);
        let first = self.first_head_not_below(head, count);
        if first == count {
            return Err(first);
        }
        let slot = self.slot(first);
        if slot.head() != head {
            return Err(first);
        }
        if slot.suffix_len() == suffix.len() && suffix.len() <= 4 {
            // The heads are all there is to compare.
            return Ok(first);
        }
        self.search_equal_heads(first, count, head, suffix, fixed)
    }

    /// Lower bound over the heads: the first slot whose head is not below `head`.
    ///
    /// Numbers that were handed out one after the other lie evenly: then interpolating between the
    /// first and the last head hits at once. If it does not, its guess halves the search.
    #[inline(always)]
    fn first_head_not_below(self, head: u32, count: usize) -> usize {
        let (mut low, mut high) = (0, count);
        if count >= INTERPOLATE_FROM {
            let (first, last) = (self.slot(0).head(), self.slot(count - 1).head());
            if head <= first {
                return 0;
            }
            if head > last {
                return count;
            }
            // Here first < head <= last, unless the page is torn.
            let span = u64::from(last.wrapping_sub(first)).max(1);
            let guess = (u64::from(head.wrapping_sub(first)) * (count as u64 - 1) / span) as usize;
            let guess = guess.clamp(1, count - 1);
            if self.slot(guess).head() < head {
                low = guess + 1;
                if self.slot(low).head() >= head {
                    return low;
                }
            } else {
                high = guess;
                if self.slot(high - 1).head() < head {
                    return high;
                }
            }
        }
        self.lower_bound(head, low, high)
    }

    /// Binary search for the same in `low..high`.
    #[inline]
    fn lower_bound(self, head: u32, low: usize, high: usize) -> usize {
        let mut base = low;
        let mut size = high - low;
        while size > 1 {
            let half = size / 2;
            // The sign of the difference as a mask: a branch would be mispredicted every other time.
            let below = (i64::from(self.slot(base + half - 1).head()) - i64::from(head)) >> 63;
            base += half & below as usize;
            size -= half;
        }
        base + usize::from(size == 1 && self.slot(base).head() < head)
    }

    /// The rest of a search: from `first` on heads are equal to the key's or above.
    #[inline]
    fn search_equal_heads(
        self,
        first: usize,
        count: usize,
        head: u32,
        suffix: &[u8],
        fixed: usize,
    ) -> Result<usize, usize> {
        match self.compare_slot(first, head, suffix, fixed) {
            Ordering::Equal => return Ok(first),
            Ordering::Greater => return Err(first),
            Ordering::Less => {}
        }
        let (mut low, mut high) = (first + 1, count);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.compare_slot(middle, head, suffix, fixed) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// Orders slot `i`'s key against the probe.
    #[inline(always)]
    fn compare_slot(self, i: usize, head: u32, suffix: &[u8], fixed: usize) -> Ordering {
        let slot = self.slot(i);
        if slot.head() != head {
            return slot.head().cmp(&head);
        }
        let (off, len) = self.suffix_range(slot, fixed);
        if len <= 4 && suffix.len() <= 4 {
            // Equal heads of such short suffixes differ at most in trailing zero bytes.
            return len.cmp(&suffix.len());
        }
        self.0.compare(off, len, suffix)
    }

    /// Header of leaf slot `i`.
    #[inline(always)]
    pub fn header(self, i: usize) -> Header {
        let off = self.slot(i).off();
        Header { writer: self.0.u64(off), undo: self.0.u64((off + 8) & WORD_MASK) }
    }

    /// Offset and length of leaf slot `i`'s value, clamped to the page.
    #[inline(always)]
    pub fn value_range(self, i: usize) -> (usize, usize) {
        let slot = self.slot(i);
        let entry = slot.off();
        let len = usize::from(self.0.u16((entry + 16) & WORD_MASK));
        let off = (entry + value_at(slot.suffix_len())).min(PAGE_BYTES);
        (off, len.min(PAGE_BYTES - off))
    }

    /// Copies the value of leaf slot `i` into `buf` (cleared first).
    #[inline(always)]
    pub fn copy_value(self, i: usize, buf: &mut Vec<u8>) {
        let (off, len) = self.value_range(i);
        let padded = align8(len);
        buf.clear();
        buf.reserve(padded);
        // A value begins at a word and is padded to whole words.
        let words = buf.spare_capacity_mut()[..padded].chunks_exact_mut(8);
        for (word, at) in words.zip((off..).step_by(8)) {
            for (to, from) in word.iter_mut().zip(self.0.u64(at & WORD_MASK).to_le_bytes()) {
                to.write(from);
            }
        }
        // SAFETY: `padded` bytes were reserved and written, and len <= padded.
        unsafe { buf.set_len(len) };
    }

    /// True if the page is a tree page of this tree and level.
    #[inline(always)]
    pub fn is_page_of(self, tree_id: u32, level: u8) -> bool {
        self.page_type() == PAGE_TYPE_TREE && self.level() == level && self.tree_id() == tree_id
    }
}

/// Plain access for pages that nobody else is writing: private copies, and pages under a latch.
impl<'a> View<'a, [u8]> {
    fn part(self, off: usize, len: usize) -> &'a [u8] {
        let off = off.min(PAGE_BYTES);
        &self.0[off..(off + len).min(PAGE_BYTES)]
    }

    /// The common prefix of the page's keys.
    #[inline]
    pub fn prefix(self) -> &'a [u8] {
        let len = self.prefix_len();
        let off = if len <= 8 { OFF_PREFIX_WORD } else { usize::from(self.0.u16(OFF_PREFIX)) };
        self.part(off, len)
    }

    /// Smallest key that may be on the page.
    pub fn lower(self) -> &'a [u8] {
        self.part(self.0.u16(OFF_LOWER).into(), self.0.u16(OFF_LOWER_LEN).into())
    }

    /// First key after those that may be on the page; `None`: no bound.
    pub fn upper(self) -> Option<&'a [u8]> {
        let len = self.0.u16(OFF_UPPER_LEN);
        (len != NO_UPPER).then(|| self.part(self.0.u16(OFF_UPPER).into(), len.into()))
    }

    /// Key of slot `i` after the prefix.
    #[inline]
    pub fn suffix(self, i: usize) -> &'a [u8] {
        let fixed = if self.level() == 0 { LEAF_FIXED } else { INNER_FIXED };
        let (off, len) = self.suffix_range(self.slot(i), fixed);
        self.part(off, len)
    }

    /// Value of leaf slot `i`.
    #[inline]
    pub fn value(self, i: usize) -> &'a [u8] {
        let (off, len) = self.value_range(i);
        self.part(off, len)
    }

    /// Whole key of slot `i` into `out` (cleared first).
    pub fn key_into(self, i: usize, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(self.prefix());
        out.extend_from_slice(self.suffix(i));
    }

    /// Whole key of slot `i`.
    pub fn key(self, i: usize) -> Vec<u8> {
        let mut key = Vec::new();
        self.key_into(i, &mut key);
        key
    }

    /// True if `key` belongs on this page.
    pub fn covers(self, key: &[u8]) -> bool {
        self.lower() <= key && self.upper().is_none_or(|upper| key < upper)
    }

    /// Aligned bytes of slot `i`'s entry.
    pub fn size_of(self, i: usize) -> usize {
        let suffix = self.slot(i).suffix_len();
        if self.level() == 0 { leaf_size(suffix, self.value(i).len()) } else { inner_size(suffix) }
    }
}
