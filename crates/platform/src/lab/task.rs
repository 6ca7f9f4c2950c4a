//! Who is running, and how does it wait? Tasks of the simulated machine: its virtual threads.

use super::machine::{self, Op};
use crate::wait::{self, WaitEvent};

/// A handle of a virtual thread.
#[derive(Clone, PartialEq, Eq)]
pub struct Task {
    pub(super) run: u64,
    pub(super) thread: usize,
}

impl Task {
    /// Gives the task its permit and wakes it if it is parked.
    pub fn unpark(&self) {
        machine::unpark(self);
    }

    /// What the task waits for now.
    pub fn wait_event(&self) -> WaitEvent {
        machine::wait_event(self)
    }

    /// A number no other task of this run has.
    pub fn id(&self) -> u64 {
        self.thread as u64 + 1
    }
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Task({}, {})", self.id(), self.wait_event().name())
    }
}

/// The calling task.
pub fn current() -> Task {
    machine::current()
}

/// Waits until the calling task is unparked, and records the wait.
pub fn park(event: WaitEvent) {
    let start = machine::clock_ns();
    machine::park(event, None);
    wait::record(0, event, machine::clock_ns() - start);
}

/// Waits until the calling task is unparked or `timeout_ns` has passed; false if it timed out.
pub fn park_timeout(event: WaitEvent, timeout_ns: u64) -> bool {
    let start = machine::clock_ns();
    let woken = machine::park(event, Some(timeout_ns));
    wait::record(0, event, machine::clock_ns() - start);
    woken
}

/// Lets the others run.
pub fn yield_now() {
    machine::give_way();
}

/// One turn of a spin: lets the others run, since what is waited for needs them.
pub fn spin_hint(attempt: u32) {
    machine::spin(attempt);
}

/// How often it is worth looking again, with [`spin_hint`] between, before parking.
pub fn spin_turns() -> u32 {
    crate::wait::spin_turns(machine::cpus())
}

/// A point of its own, for code that wants to be interrupted where it touches nothing shared.
pub fn point() {
    machine::point(Op::Yield);
}
