//! What is a page made of? Bytes that may be shared ([`PageRef`], [`PageMut`]) or private (`[u8]`).
//!
//! The layout code is written once over these two traits. On a page of the pool every access is a
//! relaxed atomic one, so an optimistic reader may look at a page that is being written; on a
//! private copy the same code works on plain slices.

use std::cmp::Ordering;

use homenode_platform::bytes::note_read;
use homenode_pool::{PAGE_BYTES, PageMut, PageRef};

/// Reads of a page's bytes. Offsets are below [`PAGE_BYTES`]; numbers are little-endian.
pub trait Bytes {
    /// The two bytes at `off`.
    fn u16(&self, off: usize) -> u16;
    /// The eight bytes at `off`; `off <= PAGE_BYTES - 8`.
    fn u64(&self, off: usize) -> u64;
    /// Copies `out.len()` bytes from `off`; the range lies inside the page.
    fn copy_to(&self, off: usize, out: &mut [u8]);

    /// The first `n` (1 to 8) bytes at `off` as a big-endian number, left-aligned, zeros behind.
    #[inline(always)]
    fn leading(&self, off: usize, n: usize) -> u64 {
        let word = if off <= PAGE_BYTES - 8 {
            self.u64(off)
        } else {
            // The last bytes of the page: load the word that ends with it and shift.
            self.u64(PAGE_BYTES - 8) >> (8 * (off - (PAGE_BYTES - 8)))
        };
        word.swap_bytes() & (u64::MAX << (64 - 8 * n))
    }

    /// Orders the `len` bytes at `off` against `probe`, as slices are ordered. The caller has
    /// clamped the range to the page.
    #[inline]
    fn compare(&self, off: usize, len: usize, probe: &[u8]) -> Ordering {
        let common = len.min(probe.len());
        let mut at = 0;
        while at < common {
            let n = (common - at).min(8);
            let mine = self.leading(off + at, n);
            let theirs = leading_be(&probe[at..at + n]);
            if mine != theirs {
                return mine.cmp(&theirs);
            }
            at += n;
        }
        len.cmp(&probe.len())
    }
}

/// Writes to a page's bytes, by the holder of its exclusive latch or the owner of a private page.
pub trait BytesMut: Bytes {
    /// Stores one byte.
    fn write_u8(&mut self, off: usize, value: u8);
    /// Stores two bytes, little-endian.
    fn write_u16(&mut self, off: usize, value: u16);
    /// Stores eight bytes, little-endian.
    fn write_u64(&mut self, off: usize, value: u64);
    /// Stores a byte string.
    fn write_bytes(&mut self, off: usize, bytes: &[u8]);
    /// Moves `len` bytes from `src` to `dst`; the ranges may overlap.
    fn move_within(&mut self, src: usize, dst: usize, len: usize);
}

/// The first up to 8 bytes of `bytes` as a big-endian number, left-aligned, zeros behind.
#[inline(always)]
pub fn leading_be(bytes: &[u8]) -> u64 {
    if let Some(first) = bytes.first_chunk::<8>() {
        return u64::from_be_bytes(*first);
    }
    // Two overlapping or adjoining loads instead of a loop over the bytes.
    let n = bytes.len();
    if n >= 4 {
        let high = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let low = u32::from_be_bytes([bytes[n - 4], bytes[n - 3], bytes[n - 2], bytes[n - 1]]);
        return (u64::from(high) << 32) | (u64::from(low) << (8 * (8 - n)));
    }
    match *bytes {
        [] => 0,
        [a] => u64::from(a) << 56,
        [a, b, ..] => {
            let last = bytes[n - 1];
            let head = (u64::from(a) << 56) | (u64::from(b) << 48);
            if n == 3 { head | (u64::from(last) << 40) } else { head }
        }
    }
}

impl Bytes for [u8] {
    #[inline(always)]
    fn u16(&self, off: usize) -> u16 {
        note_read(self[off..].as_ptr(), 2);
        u16::from_le_bytes([self[off], self[off + 1]])
    }

    #[inline(always)]
    fn u64(&self, off: usize) -> u64 {
        note_read(self[off..].as_ptr(), 8);
        let mut word = [0; 8];
        word.copy_from_slice(&self[off..off + 8]);
        u64::from_le_bytes(word)
    }

    #[inline(always)]
    fn copy_to(&self, off: usize, out: &mut [u8]) {
        note_read(self[off..].as_ptr(), out.len());
        out.copy_from_slice(&self[off..off + out.len()]);
    }

    #[inline(always)]
    fn compare(&self, off: usize, len: usize, probe: &[u8]) -> Ordering {
        note_read(self[off..].as_ptr(), len);
        self[off..off + len].cmp(probe)
    }
}

impl BytesMut for [u8] {
    fn write_u8(&mut self, off: usize, value: u8) {
        self[off] = value;
    }

    fn write_u16(&mut self, off: usize, value: u16) {
        self[off..off + 2].copy_from_slice(&value.to_le_bytes());
    }

    fn write_u64(&mut self, off: usize, value: u64) {
        self[off..off + 8].copy_from_slice(&value.to_le_bytes());
    }

    fn write_bytes(&mut self, off: usize, bytes: &[u8]) {
        self[off..off + bytes.len()].copy_from_slice(bytes);
    }

    fn move_within(&mut self, src: usize, dst: usize, len: usize) {
        self.copy_within(src..src + len, dst);
    }
}

impl Bytes for PageRef<'_> {
    #[inline(always)]
    fn u16(&self, off: usize) -> u16 {
        PageRef::u16(*self, off)
    }

    #[inline(always)]
    fn u64(&self, off: usize) -> u64 {
        PageRef::u64(*self, off)
    }

    #[inline(always)]
    fn copy_to(&self, off: usize, out: &mut [u8]) {
        PageRef::copy_to(*self, off, out);
    }
}

impl Bytes for PageMut<'_> {
    #[inline(always)]
    fn u16(&self, off: usize) -> u16 {
        self.page().u16(off)
    }

    #[inline(always)]
    fn u64(&self, off: usize) -> u64 {
        self.page().u64(off)
    }

    #[inline(always)]
    fn copy_to(&self, off: usize, out: &mut [u8]) {
        self.page().copy_to(off, out);
    }
}

impl BytesMut for PageMut<'_> {
    fn write_u8(&mut self, off: usize, value: u8) {
        PageMut::write_u8(self, off, value);
    }

    fn write_u16(&mut self, off: usize, value: u16) {
        PageMut::write_u16(self, off, value);
    }

    fn write_u64(&mut self, off: usize, value: u64) {
        PageMut::write_u64(self, off, value);
    }

    fn write_bytes(&mut self, off: usize, bytes: &[u8]) {
        // Values begin at a word: whole words are stored as such, without assembling them from parts.
        let (words, rest) = if off.is_multiple_of(8) { bytes.split_at(bytes.len() & !7) } else { bytes.split_at(0) };
        for (word, at) in words.chunks_exact(8).zip((off..).step_by(8)) {
            PageMut::write_u64(self, at, u64::from_le_bytes(std::array::from_fn(|i| word[i])));
        }
        PageMut::write_bytes(self, off + words.len(), rest);
    }

    fn move_within(&mut self, src: usize, dst: usize, len: usize) {
        PageMut::move_within(self, src, dst, len);
    }
}
