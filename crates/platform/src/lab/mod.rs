//! Does it hold when the machine misbehaves? A simulated machine in one thread, run by seed.
//!
//! Built with `--cfg homenode_lab`, the crate's atomics, threads, tasks, clock and files belong to a
//! simulated machine. Its threads are coroutines on one OS thread; every atomic operation, access
//! to page bytes, park, unpark and file operation is a point where the machine may switch to
//! another thread, as the seed says. The same seed gives the same run, which
//! [`Report::trace_hash`] shows.
//!
//! **Modelled:** interleavings at every shared access (random walk, or priorities with few change
//! points: Burckhardt et al., "A randomized scheduler with probabilistic guarantees of finding bugs",
//! ASPLOS 2010); spurious failures of weak compare-exchange; a virtual clock; a disk that fails on
//! demand and, when the machine crashes, keeps synced data and any subset of the 512-byte sectors
//! written since.
//!
//! **Not modelled:** weak memory. Every access is sequentially consistent whatever its `Ordering`
//! says, so a missing fence is not found here (Miri and loom look for those). Nor time beyond a
//! flat cost for each point; nor reordering of plain loads and stores by the compiler.
//!
//! Code under test must not depend on addresses (see [`address_key`]), on the iteration order of
//! `std::collections::HashMap`, or on real time: its runs would not repeat.

mod api;
pub mod atomic;
mod disk;
pub mod fs;
mod heap;
mod isolated;
mod machine;
pub mod measure;
mod once;
mod random;
mod schedule;
pub mod sim;
pub mod task;

pub use api::{Config, Failure, Outcome, Report, Scheduler, ThreadState};
pub use disk::{Disk, Faults};
pub use heap::Heap;
pub use isolated::Isolated;
pub use machine::{choose, crash, crash_after_write, now_steps, run};
pub use once::OnceLock;
pub use random::Random;

pub(crate) use machine::run_local;

/// A key for the object at `ptr`, the same in every run of a seed: the order in which a run first
/// asked about its address.
pub fn address_key<T>(ptr: *const T) -> usize {
    machine::address_number(ptr.addr())
}

pub mod clock {
    //! What time is it on the simulated machine?

    use super::machine::{self, Op};

    /// Midnight, 1 January 2026 UTC: where the virtual wall clock starts.
    const START_US: i64 = 1_767_225_600_000_000;

    /// Virtual nanoseconds since the run started.
    pub fn now_ns() -> u64 {
        machine::point(Op::Clock);
        machine::clock_ns()
    }

    /// Virtual wall-clock time, microseconds since 1970-01-01 UTC.
    pub fn unix_time_us() -> i64 {
        START_US + (now_ns() / 1000) as i64
    }
}

pub mod thread {
    //! How does a virtual thread start?

    use super::{machine, task};
    use crate::wait::WaitEvent;
    use std::io;

    /// A running virtual thread, to be waited for.
    #[derive(Debug)]
    pub struct JoinHandle(task::Task);

    impl JoinHandle {
        /// Waits until the thread has ended. (A panic of any virtual thread ends the whole run.)
        pub fn join(self) {
            while !machine::join_or_register(&self.0) {
                task::park(WaitEvent::Extension);
            }
        }

        /// Whether the thread has ended.
        pub fn is_finished(&self) -> bool {
            machine::is_done(&self.0)
        }
    }

    /// Starts a virtual thread.
    ///
    /// # Panics
    /// Outside a run.
    pub fn spawn(name: &str, f: impl FnOnce() + Send + 'static) -> JoinHandle {
        JoinHandle(machine::spawn(name, Box::new(f), None))
    }

    /// The CPUs that the run's [`Config`](super::Config) claims.
    pub fn available_cpus() -> usize {
        machine::cpus()
    }

    /// As [`spawn`], on a core of a run with a cost model: a session, whose core is shared with other sessions only when
    /// it waits or, as a process, when its time slice ends.
    ///
    /// # Panics
    /// Outside a run.
    pub fn spawn_on(core: usize, name: &str, f: impl FnOnce() + Send + 'static) -> JoinHandle {
        JoinHandle(machine::spawn(name, Box::new(f), Some(core)))
    }

    /// The CPU that the calling thread runs on: each virtual thread has one, in turn.
    pub fn current_cpu() -> usize {
        machine::current_core().unwrap_or_else(|| machine::current().thread % machine::cpus())
    }

    /// Moves the calling thread, in a run with a cost model; elsewhere does nothing.
    ///
    /// # Errors
    /// None.
    pub fn pin_to_cpus(cpus: &[usize]) -> io::Result<()> {
        machine::pin(cpus);
        Ok(())
    }

    /// Sleeps for `duration_ns` virtual nanoseconds.
    pub fn sleep_ns(duration_ns: u64) {
        machine::point(machine::Op::Park);
        machine::sleep(WaitEvent::Sleep, duration_ns);
    }
}
