//! One log mutex and one rollback-segment mutex: what MariaDB 10.6 did at every write (Bauskar, "Understanding NUMA
//! scalability with MariaDB 10.6", 2021: waits for both grow with the nodes, until updates are slower on four than on one).
//!
//! A mini-transaction's records are copied into the log buffer under `log_sys.mutex`; a transaction takes the rollback
//! segment's mutex when it begins to write and when it commits; a commit waits for the group that is flushed together.

use homenode_platform::CachePadded;
use homenode_platform::atomic::{AtomicU32, AtomicU64, Ordering};
use homenode_platform::lab::measure;
use homenode_platform::sync::Mutex;
use homenode_platform::task::{self, Task};
use homenode_platform::wait::WaitEvent;

/// The log: a buffer under one mutex, and a flush that one committer does for all that came meanwhile.
pub struct Log {
    /// Guards the log's end, which lies beside it.
    mutex: CachePadded<Mutex<u64>>,
    buffer: Box<[AtomicU64]>,
    durable: CachePadded<AtomicU64>,
    flushing: CachePadded<AtomicU32>,
    waiting: Mutex<Vec<Task>>,
}

impl Log {
    /// An empty log with a buffer of `words`.
    pub fn new(words: usize) -> Log {
        Log {
            mutex: CachePadded::default(),
            buffer: (0..words).map(|_| AtomicU64::new(0)).collect(),
            durable: CachePadded::new(AtomicU64::new(0)),
            flushing: CachePadded::new(AtomicU32::new(0)),
            waiting: Mutex::new(Vec::new()),
        }
    }

    /// Copies a record into the buffer; its end.
    pub fn append(&self, bytes: u64) -> u64 {
        let mut tail = self.mutex.lock();
        let start = *tail;
        for word in start / 8..(start + bytes) / 8 {
            self.buffer[word as usize % self.buffer.len()].store(word, Ordering::Relaxed);
        }
        // The closed mini-transaction's dirty pages go into the flush list under the same mutex.
        measure::work_ns(60);
        *tail = start + bytes;
        start + bytes
    }

    /// Waits until the log is durable up to `end`; who finds no flush under way does one, with `write` for its bytes.
    pub fn commit(&self, end: u64, write: &dyn Fn(u64)) {
        while self.durable.load(Ordering::Acquire) < end {
            if self.flushing.swap(1, Ordering::AcqRel) == 0 {
                let tail = *self.mutex.lock();
                write(tail - self.durable.load(Ordering::Relaxed));
                self.durable.store(tail, Ordering::Release);
                self.flushing.store(0, Ordering::Release);
                let woken = std::mem::take(&mut *self.waiting.lock());
                woken.iter().for_each(Task::unpark);
                continue;
            }
            self.waiting.lock().push(task::current());
            if self.durable.load(Ordering::Acquire) < end && self.flushing.load(Ordering::Acquire) != 0 {
                task::park(WaitEvent::LogFlush);
            }
        }
    }
}

/// The rollback segment: its mutex, and the list that is kept under it.
#[derive(Default)]
pub struct RollbackSegment {
    mutex: CachePadded<Mutex<()>>,
    /// Guarded by the mutex.
    history: [AtomicU64; 8],
}

impl RollbackSegment {
    /// A transaction is entered, or put into the history at its commit.
    pub fn enter(&self) {
        let _guard = self.mutex.lock();
        for field in &self.history {
            field.store(field.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        measure::work_ns(40);
    }
}
