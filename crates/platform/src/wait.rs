//! What is a task waiting for? Wait events, and how often and how long they were waited for.

use crate::CachePadded;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! wait_events {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $class:literal;)*) => {
        /// What a task waits for, in the terms of `pg_stat_activity`.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[repr(u16)]
        pub enum WaitEvent { $($(#[$doc])* $variant,)* }

        impl WaitEvent {
            /// Every event, in the order of its number.
            pub const ALL: &[WaitEvent] = &[$(WaitEvent::$variant,)*];

            /// The event's name as shown in `pg_stat_activity.wait_event`.
            pub fn name(self) -> &'static str {
                match self { $(WaitEvent::$variant => $name,)* }
            }

            /// The event's class as shown in `pg_stat_activity.wait_event_type`.
            pub fn class(self) -> &'static str {
                match self { $(WaitEvent::$variant => $class,)* }
            }
        }
    };
}

wait_events! {
    /// Not waiting.
    None = "None", "None";
    /// A page latch in shared mode, or an exclusively held one to become readable.
    LatchShared = "LatchShared", "LWLock";
    /// A page latch in exclusive mode.
    LatchExclusive = "LatchExclusive", "LWLock";
    /// A short critical section (`platform::sync::Mutex`).
    Mutex = "Mutex", "LWLock";
    /// A page to arrive from its file.
    PageRead = "PageRead", "IO";
    /// A page to be written to its file.
    PageWrite = "PageWrite", "IO";
    /// A free frame from the page cleaner.
    PageCleaner = "PageCleaner", "IO";
    /// Room in the log's ring buffer.
    LogBuffer = "LogBuffer", "LWLock";
    /// The log to become durable up to a position.
    LogFlush = "LogFlush", "IO";
    /// Another transaction that holds a row.
    RowLock = "RowLock", "Lock";
    /// A table lock.
    TableLock = "TableLock", "Lock";
    /// Bytes from the client.
    ClientRead = "ClientRead", "Client";
    /// The client to take bytes.
    ClientWrite = "ClientWrite", "Client";
    /// A checkpoint to finish.
    Checkpoint = "Checkpoint", "IO";
    /// A lane's slot or structure to become free.
    Lane = "Lane", "LWLock";
    /// A sleep.
    Sleep = "Sleep", "Timeout";
    /// Workers of a parallel statement to finish.
    Parallel = "Parallel", "IPC";
    /// Anything else.
    Extension = "Extension", "Extension";
}

impl WaitEvent {
    #[cfg(any(test, not(homenode_lab)))]
    /// The event with number `n`; [`WaitEvent::None`] for numbers that are none.
    pub(crate) fn from_number(n: u16) -> WaitEvent {
        WaitEvent::ALL.get(n as usize).copied().unwrap_or(WaitEvent::None)
    }
}

/// Waits for one event, summed over all lanes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitTotal {
    /// The event.
    pub event: WaitEvent,
    /// How many waits ended.
    pub count: u64,
    /// Their total length, nanoseconds.
    pub total_ns: u64,
    /// The longest, nanoseconds.
    pub worst_ns: u64,
}

const SHARDS: usize = 64;
const EVENTS: usize = WaitEvent::ALL.len();

struct Cell {
    count: AtomicU64,
    total_ns: AtomicU64,
    worst_ns: AtomicU64,
}

// Plain standard atomics in both builds: statistics are no part of the machine under test.
static SHARD: [CachePadded<[Cell; EVENTS]>; SHARDS] = [const {
    CachePadded(
        [const { Cell { count: AtomicU64::new(0), total_ns: AtomicU64::new(0), worst_ns: AtomicU64::new(0) } }; EVENTS],
    )
}; SHARDS];

/// Counts one wait of `waited_ns` nanoseconds for `event` in the shard chosen by `lane_hint`.
///
/// Called at the end of a wait only, so it is never on a path that did not already sleep. A thread that has nothing to do
/// ([`WaitEvent::None`]) waits for nothing.
pub fn record(lane_hint: usize, event: WaitEvent, waited_ns: u64) {
    if event == WaitEvent::None {
        return;
    }
    let cell = &SHARD[lane_hint % SHARDS][event as usize];
    cell.count.fetch_add(1, Relaxed);
    cell.total_ns.fetch_add(waited_ns, Relaxed);
    cell.worst_ns.fetch_max(waited_ns, Relaxed);
}

/// The waits recorded since the process started, one entry for each event that occurred.
pub fn totals() -> Vec<WaitTotal> {
    let mut totals = Vec::new();
    for &event in WaitEvent::ALL {
        let mut total = WaitTotal { event, count: 0, total_ns: 0, worst_ns: 0 };
        for shard in &SHARD {
            let cell = &shard[event as usize];
            total.count += cell.count.load(Relaxed);
            total.total_ns += cell.total_ns.load(Relaxed);
            total.worst_ns = total.worst_ns.max(cell.worst_ns.load(Relaxed));
        }
        if total.count > 0 {
            totals.push(total);
        }
    }
    totals
}

/// How often it is worth looking again, with pauses that double up to a few microseconds, before a task parks, on `cpus` CPUs.
///
/// With one, the holder cannot go on while others look. With few, some ten microseconds: a holder that is still not done has
/// probably lost its CPU. With many, what is hot has several waiters ahead, and a task that parked comes back behind the other
/// tasks of its worker, tens of microseconds later, with all that it holds.
pub(crate) fn spin_turns(cpus: usize) -> u32 {
    match cpus {
        0 | 1 => 0,
        2..8 => 10,
        _ => 26,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_summed_over_shards() {
        record(0, WaitEvent::Extension, 5);
        record(1, WaitEvent::Extension, 7);
        let total = totals().into_iter().find(|t| t.event == WaitEvent::Extension).unwrap();
        assert!(total.count >= 2 && total.total_ns >= 12 && total.worst_ns >= 7);
    }

    #[test]
    fn numbers_and_events_agree() {
        for (n, &event) in WaitEvent::ALL.iter().enumerate() {
            assert_eq!(event as usize, n);
            assert_eq!(WaitEvent::from_number(n as u16), event);
        }
        assert_eq!(WaitEvent::from_number(u16::MAX), WaitEvent::None);
    }
}
