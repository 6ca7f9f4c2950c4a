//! How much private memory does a session hold, and for what? What is big is said by whoever holds it, at the places where
//! it grows by a lot; small things are not counted.
//!
//! Each number is written by the session's own task only and read by views. Where memory is one piece, its address is kept
//! too, so that a view can ask the kernel on which node it is.

use crate::info::SessionShared;
use homenode_platform::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;

/// What memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryContext {
    /// Messages from the client that are not answered yet.
    Input,
    /// Answers that are not sent yet.
    Output,
    /// Rows of sorts.
    Sort,
    /// Hash tables of joins and groups.
    Hash,
}

/// All of them, and their names.
const CONTEXTS: [(MemoryContext, &str); 4] = [
    (MemoryContext::Input, "input"),
    (MemoryContext::Output, "output"),
    (MemoryContext::Sort, "sort"),
    (MemoryContext::Hash, "hash"),
];

#[derive(Default)]
struct Gauge {
    bytes: AtomicU64,
    peak: AtomicU64,
    /// Of the piece counted last, and its length; 0 while there is none.
    address: AtomicUsize,
    piece: AtomicUsize,
}

/// A session's numbers.
#[derive(Default)]
pub struct SessionMemory([Gauge; CONTEXTS.len()]);

/// One context of a session, for views.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// Its name.
    pub name: &'static str,
    /// Bytes now.
    pub bytes: u64,
    /// The most so far.
    pub peak_bytes: u64,
    /// Addresses of the largest piece, as it was told last. By now something else may be there, or nothing.
    pub piece: std::ops::Range<usize>,
}

impl SessionMemory {
    /// Says that the context holds one piece of memory of so many bytes, and nothing else.
    pub fn set(&self, context: MemoryContext, address: usize, bytes: usize) {
        let gauge = &self.0[context as usize];
        gauge.bytes.store(bytes as u64, Relaxed);
        gauge.note(address, bytes);
    }

    /// What is held, by context.
    pub fn list(&self) -> Vec<MemoryUse> {
        let of = |(context, name): &(MemoryContext, &'static str)| {
            let gauge = &self.0[*context as usize];
            let address = gauge.address.load(Relaxed);
            MemoryUse {
                name,
                bytes: gauge.bytes.load(Relaxed),
                peak_bytes: gauge.peak.load(Relaxed),
                piece: address..address.saturating_add(gauge.piece.load(Relaxed)),
            }
        };
        CONTEXTS.iter().map(of).collect()
    }
}

impl Gauge {
    fn note(&self, address: usize, piece: usize) {
        self.address.store(address, Relaxed);
        self.piece.store(piece, Relaxed);
        let bytes = self.bytes.load(Relaxed);
        if bytes > self.peak.load(Relaxed) {
            self.peak.store(bytes, Relaxed);
        }
    }
}

/// Memory of one sort or hash table; counted until it is dropped.
pub struct Charge {
    shared: Arc<SessionShared>,
    context: MemoryContext,
    bytes: u64,
}

impl Charge {
    /// Begins with nothing.
    pub fn new(shared: &Arc<SessionShared>, context: MemoryContext) -> Charge {
        Charge { shared: shared.clone(), context, bytes: 0 }
    }

    /// It is `bytes` now, the largest piece of which is at `piece`.
    pub fn set(&mut self, bytes: usize, piece: std::ops::Range<usize>) {
        let gauge = &self.shared.memory.0[self.context as usize];
        // One task writes, so a load and a store do.
        let others = gauge.bytes.load(Relaxed).saturating_sub(self.bytes);
        self.bytes = bytes as u64;
        gauge.bytes.store(others + self.bytes, Relaxed);
        gauge.note(piece.start, piece.len());
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0, 0..0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_in_the_order_of_their_numbers() {
        for (number, (context, _)) in CONTEXTS.iter().enumerate() {
            assert_eq!(*context as usize, number);
        }
    }

    #[test]
    fn charges_add_up_and_go() {
        let shared = Arc::new(SessionShared::new(1, 0, 0));
        let find = |name: &str| shared.memory.list().into_iter().find(|part| part.name == name).unwrap();
        let mut first = Charge::new(&shared, MemoryContext::Sort);
        let mut second = Charge::new(&shared, MemoryContext::Sort);
        first.set(1000, 4096..5000);
        second.set(500, 8192..8600);
        first.set(2000, 4096..6000);
        assert_eq!((find("sort").bytes, find("sort").peak_bytes, find("sort").piece), (2500, 2500, 4096..6000));
        drop(first);
        assert_eq!((find("sort").bytes, find("sort").peak_bytes), (500, 2500));
        drop(second);
        shared.memory.set(MemoryContext::Input, 64, 128);
        assert_eq!((find("sort").bytes, find("input").bytes, find("hash").bytes), (0, 128, 0));
    }
}
