//! Where do records wait until they are written? A ring of words, addressed by LSN.
//!
//! The words are relaxed atomics: writers of different records and the flusher touch disjoint
//! words at any time (see [`insert`](crate::insert) for why), so no ordering is needed here, and no
//! `unsafe` either. A relaxed 8-byte store is a plain store on every machine.

use crate::Lsn;
use homenode_platform::atomic::{AtomicU64, Ordering::Relaxed};

/// The ring buffer.
pub(crate) struct Ring {
    words: Box<[AtomicU64]>,
}

impl Ring {
    /// A ring of `bytes`, a power of two and at least 64.
    pub(crate) fn new(bytes: usize) -> Ring {
        assert!(bytes.is_power_of_two() && bytes >= 64, "ring size");
        Ring { words: (0..bytes / 8).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Its size.
    pub(crate) fn bytes(&self) -> u64 {
        self.words.len() as u64 * 8
    }

    fn index(&self, lsn: Lsn) -> usize {
        (lsn / 8) as usize & (self.words.len() - 1)
    }

    /// Starts writing at `lsn`, a multiple of 8.
    #[inline]
    pub(crate) fn writer(&self, lsn: Lsn) -> RingWriter<'_> {
        RingWriter { words: &self.words, at: self.index(lsn), pending: 0, pending_bytes: 0 }
    }

    /// Stores whole words at `lsn`; both are multiples of 8.
    #[inline]
    pub(crate) fn put(&self, lsn: Lsn, bytes: &[u8]) {
        let at = self.index(lsn);
        match self.words.get(at..at + bytes.len() / 8) {
            Some(run) => store_words(run, bytes),
            None => {
                let (first, second) = bytes.split_at((self.words.len() - at) * 8);
                store_words(&self.words[at..], first);
                store_words(&self.words, second);
            }
        }
    }

    /// Copies the bytes from `lsn` on into `out`; both are multiples of 8.
    pub(crate) fn copy_out(&self, lsn: Lsn, out: &mut [u8]) {
        assert!(lsn.is_multiple_of(8) && out.len().is_multiple_of(8) && out.len() <= self.words.len() * 8);
        let at = self.index(lsn);
        let before_wrap = out.len().min((self.words.len() - at) * 8);
        let (first, second) = out.split_at_mut(before_wrap);
        copy_words(&self.words[at..], first);
        copy_words(&self.words, second);
    }
}

fn copy_words(words: &[AtomicU64], out: &mut [u8]) {
    for (bytes, word) in out.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.load(Relaxed).to_le_bytes());
    }
}

#[inline]
fn store_words(words: &[AtomicU64], bytes: &[u8]) {
    for (word, chunk) in words.iter().zip(bytes.chunks_exact(8)) {
        word.store(word_of(chunk), Relaxed);
    }
}

/// A chunk of 8 bytes as a word.
#[inline]
fn word_of(chunk: &[u8]) -> u64 {
    u64::from_le_bytes(*chunk.first_chunk().expect("chunks of 8 bytes"))
}

/// Writes bytes of any length one after the other into whole words.
pub(crate) struct RingWriter<'a> {
    words: &'a [AtomicU64],
    at: usize,
    /// Bytes that do not fill a word yet, the first in the low bits; zero above.
    pending: u64,
    /// How many; below 8.
    pending_bytes: u32,
}

impl RingWriter<'_> {
    /// Appends one word; only at a word's boundary.
    #[inline]
    pub(crate) fn word(&mut self, word: u64) {
        debug_assert_eq!(self.pending_bytes, 0);
        self.store(word);
    }

    #[inline]
    fn store(&mut self, word: u64) {
        self.words[self.at].store(word, Relaxed);
        self.at = (self.at + 1) & (self.words.len() - 1);
    }

    /// Appends bytes.
    #[inline]
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let (whole, rest) = bytes.split_at(bytes.len() - bytes.len() % 8);
        if self.pending_bytes == 0 {
            self.aligned(whole);
        } else {
            let shift = self.pending_bytes * 8;
            for chunk in whole.chunks_exact(8) {
                let word = word_of(chunk);
                self.store(self.pending | word << shift);
                self.pending = word >> (64 - shift);
            }
        }
        self.rest(rest);
    }

    #[inline]
    fn aligned(&mut self, whole: &[u8]) {
        let before_wrap = whole.len().min((self.words.len() - self.at) * 8);
        let (first, second) = whole.split_at(before_wrap);
        store_words(&self.words[self.at..], first);
        store_words(self.words, second);
        self.at = (self.at + whole.len() / 8) & (self.words.len() - 1);
    }

    /// Appends fewer than 8 bytes.
    #[inline]
    fn rest(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.pending |= u64::from(byte) << (self.pending_bytes * 8);
            self.pending_bytes += 1;
            if self.pending_bytes == 8 {
                let word = self.pending;
                self.store(word);
                self.pending = 0;
                self.pending_bytes = 0;
            }
        }
    }

    /// Writes what is pending, padded with zeros.
    #[inline]
    pub(crate) fn finish(mut self) {
        if self.pending_bytes > 0 {
            let word = self.pending;
            self.store(word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_all_lengths_come_back_at_all_positions() {
        let ring = Ring::new(256);
        let source: Vec<u8> = (1..=200u8).collect();
        for start in (0..512).step_by(8) {
            for (a, b) in [(0, 0), (1, 5), (7, 9), (8, 8), (13, 64), (64, 100), (3, 0), (15, 185)] {
                let mut writer = ring.writer(start);
                writer.word(0xfeed);
                writer.bytes(&source[..a]);
                writer.bytes(&source[a..a + b]);
                writer.finish();
                let mut out = vec![0xFF; (8 + a + b).next_multiple_of(8)];
                ring.copy_out(start, &mut out);
                assert_eq!(&out[8..8 + a + b], &source[..a + b]);
                assert!(out[8 + a + b..].iter().all(|&byte| byte == 0));
            }
        }
    }
}
