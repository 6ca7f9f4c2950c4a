//! How is memory read that somebody may be writing? Relaxed atomic access to page bytes.
//!
//! An optimistic reader looks at a page while its owner changes it, and throws the result away
//! when the latch's version moved. With plain loads that is a data race, which Rust's memory model
//! forbids whatever is done with the result; with relaxed atomics it is defined (Boehm, "Can
//! seqlocks get along with programming language memory models?", MSPC 2012). So every access to
//! shared page bytes goes through here.
//!
//! The model also forbids *mixing* sizes: two atomic accesses that race must cover the same bytes.
//! So all accesses are made as aligned 8-byte words, shifted and masked, and a sub-word store is a
//! load and a store of the word it lies in. That is sound because bytes are stored only by the one
//! holder of the exclusive latch. The memory must therefore be mapped in whole aligned 8-byte words:
//! an access to any byte touches the word around it.

use crate::atomic::{AtomicU64, Ordering::Relaxed};

const WORD: usize = 8;

/// # Safety
/// `word` is 8-byte aligned and lies in memory that is valid for reads and accessed only
/// atomically while others may write it.
#[inline(always)]
#[cfg_attr(homenode_lab, track_caller)]
unsafe fn load_word(word: *const u8) -> u64 {
    // SAFETY: aligned and valid by this function's contract; AtomicU64 has the layout of u64.
    u64::from_le(unsafe { AtomicU64::from_ptr(word.cast_mut().cast::<u64>()) }.load(Relaxed))
}

/// # Safety
/// As [`load_word`], valid for writes, and the caller is the only writer of the word.
#[inline(always)]
#[cfg_attr(homenode_lab, track_caller)]
unsafe fn store_word(word: *mut u8, value: u64) {
    // SAFETY: aligned and valid by this function's contract; AtomicU64 has the layout of u64.
    unsafe { AtomicU64::from_ptr(word.cast::<u64>()) }.store(value.to_le(), Relaxed)
}

#[inline(always)]
fn misalignment(ptr: *const u8) -> usize {
    ptr.addr() % WORD
}

/// Loads `size` (1 to 8) bytes at any alignment, little-endian.
///
/// # Safety
/// As the public loads.
#[inline(always)]
#[cfg_attr(homenode_lab, track_caller)]
unsafe fn load_le(ptr: *const u8, size: usize) -> u64 {
    let skew = misalignment(ptr);
    // SAFETY: the aligned words around the bytes are valid by the public functions' contract; the
    // second is touched only when a byte asked for lies in it.
    unsafe {
        let base = ptr.sub(skew);
        let mut value = load_word(base) >> (8 * skew);
        if skew + size > WORD {
            value |= load_word(base.add(WORD)) << (8 * (WORD - skew));
        }
        value
    }
}

/// Stores the low `size` (1 to 8) bytes of `value` at any alignment, little-endian.
///
/// # Safety
/// As the public stores.
#[inline(always)]
#[cfg_attr(homenode_lab, track_caller)]
unsafe fn store_le(ptr: *mut u8, size: usize, value: u64) {
    let skew = misalignment(ptr);
    let mask = if size == WORD { u64::MAX } else { (1 << (8 * size)) - 1 };
    // SAFETY: as in load_le, for writes; the caller is the only writer.
    unsafe {
        let base = ptr.sub(skew);
        if skew == 0 && size == WORD {
            return store_word(base, value);
        }
        let low = (load_word(base) & !(mask << (8 * skew))) | ((value & mask) << (8 * skew));
        store_word(base, low);
        if skew + size > WORD {
            let shift = 8 * (WORD - skew);
            let next = base.add(WORD);
            store_word(next, (load_word(next) & !(mask >> shift)) | ((value & mask) >> shift));
        }
    }
}

macro_rules! accessors {
    ($($load:ident $store:ident $ty:ty;)*) => {$(
        /// Loads a little-endian value at any alignment, relaxed.
        ///
        /// # Safety
        /// The aligned 8-byte words around the bytes are valid for reads, and while another thread
        /// may write them they are written only through this module.
        #[inline(always)]
        #[cfg_attr(homenode_lab, track_caller)]
        pub unsafe fn $load(ptr: *const u8) -> $ty {
            // SAFETY: the contract is passed on.
            unsafe { load_le(ptr, size_of::<$ty>()) as $ty }
        }

        /// Stores a little-endian value at any alignment, relaxed.
        ///
        /// # Safety
        /// The aligned 8-byte words around the bytes are valid for reads and writes, the caller is
        /// their only writer, and concurrent readers use only this module.
        #[inline(always)]
        #[cfg_attr(homenode_lab, track_caller)]
        pub unsafe fn $store(ptr: *mut u8, value: $ty) {
            // SAFETY: the contract is passed on.
            unsafe { store_le(ptr, size_of::<$ty>(), value as u64) }
        }
    )*};
}

accessors! {
    load_u8 store_u8 u8;
    load_u16 store_u16 u16;
    load_u32 store_u32 u32;
    load_u64 store_u64 u64;
}

/// Copies `dst.len()` bytes out of shared memory.
///
/// # Safety
/// As the loads, for `src .. src + dst.len()`.
#[inline]
#[cfg_attr(homenode_lab, track_caller)]
pub unsafe fn copy_out(src: *const u8, dst: &mut [u8]) {
    const BLOCK: usize = 4 * WORD;
    let mut at = src;
    let mut blocks = dst.chunks_exact_mut(BLOCK);
    if misalignment(src) == 0 {
        for block in &mut blocks {
            for part in 0..BLOCK / WORD {
                // SAFETY: the block lies in src .. src+dst.len(), at whole aligned words.
                let word = unsafe { load_word(at.add(part * WORD)) };
                block[part * WORD..][..WORD].copy_from_slice(&word.to_le_bytes());
            }
            // SAFETY: still within, or one past, the source range.
            at = unsafe { at.add(BLOCK) };
        }
    }
    let copied = at.addr() - src.addr();
    let mut chunks = dst[copied..].chunks_exact_mut(WORD);
    for chunk in &mut chunks {
        // SAFETY: at .. at+8 lies in src .. src+dst.len().
        let word = unsafe { load_u64(at) };
        chunk.copy_from_slice(&word.to_le_bytes());
        // SAFETY: still within, or one past, the source range.
        at = unsafe { at.add(WORD) };
    }
    let rest = chunks.into_remainder();
    if !rest.is_empty() {
        // SAFETY: exactly the remaining bytes of the source range.
        let word = unsafe { load_le(at, rest.len()) };
        rest.copy_from_slice(&word.to_le_bytes()[..rest.len()]);
    }
}

/// Copies `src` into shared memory.
///
/// # Safety
/// As the stores, for `dst .. dst + src.len()`.
#[inline]
#[cfg_attr(homenode_lab, track_caller)]
pub unsafe fn copy_in(dst: *mut u8, src: &[u8]) {
    let mut at = dst;
    let mut rest = src;
    // Bytes up to the first word boundary, so that the rest is whole-word stores.
    let head = (WORD - misalignment(dst)) % WORD;
    if head != 0 && !rest.is_empty() {
        let n = head.min(rest.len());
        // SAFETY: n bytes at the start of the destination range.
        at = unsafe { put(at, &rest[..n]) };
        rest = &rest[n..];
    }
    let mut words = rest.chunks_exact(WORD);
    for word in &mut words {
        let value = u64::from_le_bytes(*word.first_chunk().expect("a chunk is a word"));
        // SAFETY: the next word of the destination range, which is aligned behind the head; then within or one past it.
        unsafe {
            store_word(at, value);
            at = at.add(WORD);
        }
    }
    if !words.remainder().is_empty() {
        // SAFETY: the last bytes of the destination range.
        unsafe { put(at, words.remainder()) };
    }
}

/// # Safety
/// As [`copy_in`]; `part` has 1 to 8 bytes.
#[inline(always)]
#[cfg_attr(homenode_lab, track_caller)]
unsafe fn put(at: *mut u8, part: &[u8]) -> *mut u8 {
    let mut word = [0u8; WORD];
    word[..part.len()].copy_from_slice(part);
    // SAFETY: the contract is passed on; the result is within or one past the range.
    unsafe {
        store_le(at, part.len(), u64::from_le_bytes(word));
        at.add(part.len())
    }
}

/// Moves `len` bytes from offset `src` to offset `dst` of one region; the ranges may overlap.
///
/// # Safety
/// As the stores, for both ranges of the region that starts at `ptr`.
#[cfg_attr(homenode_lab, track_caller)]
pub unsafe fn move_within(ptr: *mut u8, src: usize, dst: usize, len: usize) {
    if (ptr.addr() | src | dst | len).is_multiple_of(WORD) {
        // SAFETY: aligned, and the contract is passed on.
        return unsafe { move_words(ptr, src, dst, len) };
    }
    let mut buffer = [0u8; 256];
    let mut moved = 0;
    while moved < len {
        let n = (len - moved).min(buffer.len());
        // Towards lower addresses start at the front, towards higher ones at the back, so that no
        // source byte is overwritten before it was read.
        let offset = if dst < src { moved } else { len - moved - n };
        // SAFETY: offset + n <= len, so both parts lie in the caller's ranges.
        unsafe {
            copy_out(ptr.add(src + offset), &mut buffer[..n]);
            copy_in(ptr.add(dst + offset), &buffer[..n]);
        }
        moved += n;
    }
}

/// As [`move_within`], of whole aligned words: the slots of a page, most of the time.
///
/// # Safety
/// As [`move_within`]; all four numbers are multiples of 8.
unsafe fn move_words(ptr: *mut u8, src: usize, dst: usize, len: usize) {
    // In the order in which no source word is overwritten before it was read.
    // SAFETY: every offset lies in the caller's ranges.
    let step = |at: usize| unsafe { store_word(ptr.add(dst + at), load_word(ptr.add(src + at))) };
    if dst < src {
        (0..len).step_by(WORD).for_each(step);
    } else {
        (0..len).step_by(WORD).rev().for_each(step);
    }
}

/// Says that `bytes` from `ptr` on are read through a plain reference, as the holder of a latch may: the simulated machine
/// charges their lines. Nothing happens in a normal build.
#[inline(always)]
#[cfg_attr(homenode_lab, track_caller)]
pub fn note_read(ptr: *const u8, bytes: usize) {
    #[cfg(homenode_lab)]
    crate::lab::measure::note_read(ptr, bytes);
    #[cfg(not(homenode_lab))]
    let _ = (ptr, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(8))]
    struct Page([u8; 1024]);

    fn page() -> Page {
        Page(std::array::from_fn(|i| (i * 7 + 3) as u8))
    }

    #[test]
    fn loads_and_stores_at_every_alignment() {
        for at in 0..24 {
            let mut p = page();
            let want = page();
            let ptr = p.0.as_mut_ptr();
            // SAFETY: all offsets are inside the 1024-byte, 8-byte aligned page.
            unsafe {
                assert_eq!(load_u16(ptr.add(at)), u16::from_le_bytes(want.0[at..at + 2].try_into().unwrap()));
                assert_eq!(load_u64(ptr.add(at)), u64::from_le_bytes(want.0[at..at + 8].try_into().unwrap()));
                store_u32(ptr.add(at), 0xdead_beef);
                assert_eq!(load_u32(ptr.add(at)), 0xdead_beef);
                store_u8(ptr.add(at + 4), 9);
                assert_eq!(load_u8(ptr.add(at + 4)), 9);
                store_u64(ptr.add(at + 8), u64::MAX - 5);
                assert_eq!(load_u64(ptr.add(at + 8)), u64::MAX - 5);
            }
            assert_eq!(p.0[..at], want.0[..at]);
            assert_eq!(p.0[at + 5..at + 8], want.0[at + 5..at + 8]);
            assert_eq!(p.0[at + 16..], want.0[at + 16..]);
        }
    }

    #[test]
    fn copies_and_moves_equal_plain_ones() {
        let ranges = [
            (0, 8, 100),
            (3, 5, 700),
            (5, 3, 700),
            (17, 600, 1),
            (9, 2, 0),
            (100, 101, 513),
            (8, 24, 640),
            (24, 8, 640),
        ];
        for (src, dst, len) in ranges {
            let mut p = page();
            let mut want = page();
            want.0.copy_within(src..src + len, dst);
            let mut out = vec![0; len];
            // SAFETY: both ranges are inside the page.
            unsafe {
                copy_out(p.0.as_mut_ptr().add(src), &mut out);
                assert_eq!(out, page().0[src..src + len]);
                move_within(p.0.as_mut_ptr(), src, dst, len);
            }
            assert!(p.0 == want.0, "{src} {dst} {len}");
            let mut q = page();
            let mut want = page();
            want.0[dst..dst + len].copy_from_slice(&out);
            // SAFETY: the destination is inside the page.
            unsafe { copy_in(q.0.as_mut_ptr().add(dst), &out) };
            assert!(q.0 == want.0, "{dst} {len}");
        }
    }
}
