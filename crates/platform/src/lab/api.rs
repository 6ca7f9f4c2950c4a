//! What is asked of a run, and what does it answer? Configuration and report.

use super::disk::{Disk, Faults};
use super::sim::SimConfig;
use crate::wait::WaitEvent;
use std::fmt;

/// How the next thread to run is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// At a point, on average every `switch_every`-th, any ready thread goes on.
    Random {
        /// Points between switches, on average; at least 1.
        switch_every: u32,
    },
    /// PCT: threads have random priorities, the highest that is ready runs; at `changes` random points
    /// of the first `steps` the running thread's becomes the lowest. Finds a bug that needs d ordered
    /// events with probability at least 1 / (threads * steps^(d-1)), with `changes` = d - 1.
    Pct {
        /// Change points.
        changes: u32,
        /// The expected length of a run, points.
        steps: u64,
    },
}

impl Scheduler {
    /// A mixture: from the seed either kind, with various parameters.
    pub fn from_seed(seed: u64) -> Scheduler {
        match seed % 6 {
            0 => Scheduler::Random { switch_every: 2 },
            1 => Scheduler::Random { switch_every: 10 },
            2 => Scheduler::Random { switch_every: 60 },
            3 => Scheduler::Pct { changes: 2, steps: 200 },
            4 => Scheduler::Pct { changes: 4, steps: 2_000 },
            _ => Scheduler::Pct { changes: 8, steps: 50_000 },
        }
    }
}

/// How to run.
#[derive(Clone, Debug)]
pub struct Config {
    /// Decides everything that is not fixed.
    pub seed: u64,
    /// How threads take turns.
    pub scheduler: Scheduler,
    /// A run that takes more points than this has failed (it may be livelocked).
    pub steps_max: u64,
    /// CPUs that `thread::available_cpus` claims. With more than 1 code may spin.
    pub cpus: usize,
    /// The disk the run works on; it outlives the run. Cloning a configuration shares it.
    pub disk: Disk,
    /// Which file operations fail.
    pub faults: Faults,
    /// Stop the machine right after this many changes to the disk (1 is the first).
    pub crash_after_write: Option<u64>,
    /// Run on the clocks of a machine with many nodes (see [`sim`](super::sim)); `scheduler` and `cpus` then count for nothing.
    pub sim: Option<SimConfig>,
}

impl Config {
    /// The defaults for a seed: a mixed scheduler, an empty disk, no faults.
    pub fn new(seed: u64) -> Config {
        Config {
            seed,
            scheduler: Scheduler::from_seed(seed),
            steps_max: 50_000_000,
            cpus: 4,
            disk: Disk::new(),
            faults: Faults::default(),
            crash_after_write: None,
            sim: None,
        }
    }
}

/// A thread that had not ended when the run did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadState {
    /// Its name.
    pub name: String,
    /// What it waits for; `None` if it was ready.
    pub event: WaitEvent,
}

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A thread panicked.
    Panic {
        /// The thread's name.
        thread: String,
        /// The panic's text.
        message: String,
    },
    /// No thread can run and none sleeps.
    Deadlock(Vec<ThreadState>),
    /// More points than `steps_max`.
    StepsExceeded(Vec<ThreadState>),
}

/// Threads that a failure's text names.
const SHOWN: usize = 16;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = match self {
            Failure::Panic { thread, message } => {
                return write!(f, "thread '{thread}' panicked: {message}");
            }
            Failure::Deadlock(threads) => {
                write!(f, "deadlock, all threads are parked:")?;
                threads
            }
            Failure::StepsExceeded(threads) => {
                write!(f, "no end in sight after the allowed number of steps:")?;
                threads
            }
        };
        for thread in threads.iter().take(SHOWN) {
            write!(f, " {} ({})", thread.name, thread.event.name())?;
        }
        match threads.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The first thread's closure returned.
    Finished,
    /// The machine crashed, as asked. Call [`Disk::crash`] before the disk is used again.
    Crashed,
    /// Something is wrong.
    Failed(Failure),
}

/// What a run did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The seed it ran with.
    pub seed: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// A hash over every point and switch: equal for two runs that did the same.
    pub trace_hash: u64,
    /// Points passed.
    pub steps: u64,
    /// Changes from one thread to another.
    pub switches: u64,
    /// Threads started, the first included.
    pub threads: u64,
    /// Virtual time, nanoseconds.
    pub clock_ns: u64,
    /// Changes to the disk: writes, syncs, lengths, names.
    pub writes: u64,
}

impl Report {
    /// The failure, if the run failed.
    pub fn failure(&self) -> Option<&Failure> {
        match &self.outcome {
            Outcome::Failed(failure) => Some(failure),
            _ => None,
        }
    }
}
