//! How much private memory does a session hold, or a thread that works for it, and for what? What is big is said by whoever
//! holds it, at the places where it grows by a lot; small things are not counted.
//!
//! The numbers are read by views. Where memory is one piece, its address is kept too, so that a view can ask the kernel on which
//! node it is.

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
    /// Hash tables of joins and groups, with what aggregates gather.
    Hash,
    /// Syntax trees and plans of statements that are kept.
    Plan,
    /// The stack of a session at work: address space, of which only touched pages are memory.
    Stack,
    /// Buffers of a thread that scans.
    Scan,
}

impl MemoryContext {
    /// Whether it belongs to the statement that runs, rather than to the connection.
    pub fn is_statements(self) -> bool {
        matches!(self, MemoryContext::Sort | MemoryContext::Hash | MemoryContext::Stack)
    }
}

/// All of them, and their names.
const CONTEXTS: [(MemoryContext, &str); 7] = [
    (MemoryContext::Input, "input"),
    (MemoryContext::Output, "output"),
    (MemoryContext::Sort, "sort"),
    (MemoryContext::Hash, "hash"),
    (MemoryContext::Plan, "plan"),
    (MemoryContext::Stack, "stack"),
    (MemoryContext::Scan, "scan"),
];

#[derive(Default)]
struct Gauge {
    bytes: AtomicU64,
    peak: AtomicU64,
    /// Of the largest piece that was told of, and its length; 0 while there is none.
    address: AtomicUsize,
    piece: AtomicUsize,
}

/// The numbers of a session, or of a thread that works for it.
#[derive(Default)]
pub struct PrivateMemory([Gauge; CONTEXTS.len()]);

/// One context, for views.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// What it is for.
    pub context: MemoryContext,
    /// Its name.
    pub name: &'static str,
    /// Bytes now.
    pub bytes: u64,
    /// The most so far.
    pub peak_bytes: u64,
    /// Addresses of the largest piece that was told of. By now something else may be there, or nothing.
    pub piece: std::ops::Range<usize>,
}

impl PrivateMemory {
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
                context: *context,
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

/// Memory of one sort, hash table or plan; counted until it is dropped, by whichever thread.
pub struct Charge {
    memory: Arc<PrivateMemory>,
    context: MemoryContext,
    bytes: u64,
    /// Where its largest piece is.
    address: usize,
}

impl Charge {
    /// Begins with nothing.
    pub fn new(memory: &Arc<PrivateMemory>, context: MemoryContext) -> Charge {
        Charge { memory: memory.clone(), context, bytes: 0, address: 0 }
    }

    fn gauge(&self) -> &Gauge {
        &self.memory.0[self.context as usize]
    }

    /// It is `bytes` now, the largest piece of which is at `piece`.
    pub fn set(&mut self, bytes: usize, piece: std::ops::Range<usize>) {
        // Wraps around when it gets less.
        let gauge = self.gauge();
        gauge.bytes.fetch_add((bytes as u64).wrapping_sub(self.bytes), Relaxed);
        // A larger one of another sort, table or plan stays known.
        let known = gauge.address.load(Relaxed);
        if known == 0 || known == self.address || piece.len() >= gauge.piece.load(Relaxed) {
            gauge.note(piece.start, piece.len());
        } else {
            gauge.note(known, gauge.piece.load(Relaxed));
        }
        (self.bytes, self.address) = (bytes as u64, piece.start);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let gauge = self.gauge();
        gauge.bytes.fetch_sub(self.bytes, Relaxed);
        // Another one's piece stays known.
        if gauge.address.load(Relaxed) == self.address {
            gauge.note(0, 0);
        }
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
        let memory = Arc::new(PrivateMemory::default());
        let find = |name: &str| memory.list().into_iter().find(|part| part.name == name).unwrap();
        let mut first = Charge::new(&memory, MemoryContext::Sort);
        let mut second = Charge::new(&memory, MemoryContext::Sort);
        first.set(1000, 4096..5000);
        second.set(500, 8192..8600);
        first.set(2000, 4096..6000);
        assert_eq!((find("sort").bytes, find("sort").peak_bytes, find("sort").piece), (2500, 2500, 4096..6000));
        assert_eq!(find("sort").piece, 4096..6000);
        std::thread::spawn(move || drop(first)).join().unwrap();
        assert_eq!((find("sort").bytes, find("sort").peak_bytes), (500, 2500));
        drop(second);
        memory.set(MemoryContext::Input, 64, 128);
        assert_eq!((find("sort").bytes, find("input").bytes, find("hash").bytes), (0, 128, 0));
    }
}
