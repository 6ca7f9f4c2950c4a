//! Who is running, and how does it wait? Tasks: coroutines of an executor, or plain threads.
//!
//! Parking has permit semantics, as `std::thread::park`: an `unpark` before the `park` is not lost,
//! several count as one, and a park may return without one. So callers park in a loop around the
//! condition they wait for, set by the waker before it unparks.

use super::{clock, executor};
use crate::wait::{self, WaitEvent};
use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

/// A handle of a task: a coroutine or a plain thread. Cloning is one reference count.
#[derive(Clone)]
pub struct Task(pub(super) Arc<Inner>);

pub(super) struct Inner {
    id: u64,
    event: AtomicU16,
    pub(super) kind: Kind,
}

pub(super) enum Kind {
    Thread(std::thread::Thread),
    Coroutine(executor::Parker),
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static THREAD: OnceCell<Task> = const { OnceCell::new() };
}

impl Task {
    pub(super) fn new(kind: Kind) -> Task {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Task(Arc::new(Inner { id, event: AtomicU16::new(0), kind }))
    }

    /// Gives the task its permit and wakes it if it is parked.
    ///
    /// Everything before the call happens before the return of the park that consumes the permit.
    pub fn unpark(&self) {
        match &self.0.kind {
            Kind::Thread(thread) => thread.unpark(),
            Kind::Coroutine(parker) => parker.unpark(self),
        }
    }

    /// What the task waits for now; [`WaitEvent::None`] while it runs. Any thread may ask.
    pub fn wait_event(&self) -> WaitEvent {
        WaitEvent::from_number(self.0.event.load(Ordering::Relaxed))
    }

    /// A number no other task of this process has had.
    pub fn id(&self) -> u64 {
        self.0.id
    }
}

impl PartialEq for Task {
    fn eq(&self, other: &Task) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Task {}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Task({}, {})", self.0.id, self.wait_event().name())
    }
}

/// The calling task: the running coroutine, else the thread.
pub fn current() -> Task {
    executor::current_coroutine().unwrap_or_else(thread_task)
}

fn thread_task() -> Task {
    let new = || Task::new(Kind::Thread(std::thread::current()));
    // While the thread's locals are being destroyed a fresh handle does as well.
    THREAD.try_with(|task| task.get_or_init(new).clone()).unwrap_or_else(|_| new())
}

/// Waits until the calling task is unparked, and records the wait.
pub fn park(event: WaitEvent) {
    wait(event, None);
}

/// Waits until the calling task is unparked or `timeout_ns` has passed; false if it timed out.
///
/// For a plain thread "timed out" is judged by the clock, so an unpark at the very end of the
/// time may be reported as a timeout; its permit is consumed all the same.
pub fn park_timeout(event: WaitEvent, timeout_ns: u64) -> bool {
    wait(event, Some(timeout_ns))
}

fn wait(event: WaitEvent, timeout_ns: Option<u64>) -> bool {
    let me = current();
    let start = clock::now_ns();
    me.0.event.store(event as u16, Ordering::Relaxed);
    let woken = match (&me.0.kind, timeout_ns) {
        (Kind::Coroutine(parker), _) => parker.park(&me, timeout_ns.map(|timeout| start.saturating_add(timeout))),
        (Kind::Thread(_), None) => {
            std::thread::park();
            true
        }
        (Kind::Thread(_), Some(timeout)) => {
            std::thread::park_timeout(Duration::from_nanos(timeout));
            clock::now_ns() - start < timeout
        }
    };
    me.0.event.store(WaitEvent::None as u16, Ordering::Relaxed);
    wait::record(shard_hint(&me), event, clock::now_ns() - start);
    woken
}

/// Tasks of one worker share a shard, so that counting shares no line between workers.
fn shard_hint(me: &Task) -> usize {
    match &me.0.kind {
        Kind::Coroutine(parker) => parker.worker_number(),
        Kind::Thread(_) => me.0.id as usize,
    }
}

/// Lets other ready tasks of this worker run; outside a coroutine, other threads of this CPU.
pub fn yield_now() {
    if !executor::yield_current() {
        std::thread::yield_now();
    }
}

/// One turn of a bounded spin: pauses for a time that doubles with `attempt` up to 64 pauses.
///
/// On a machine with one CPU, and after a dozen turns, gives the CPU away instead: whoever is waited
/// for may need it.
#[inline]
pub fn spin_hint(attempt: u32) {
    if attempt >= 12 || spin_turns() == 0 {
        std::thread::yield_now();
        return;
    }
    for _ in 0..1u32 << attempt.min(6) {
        std::hint::spin_loop();
    }
}

/// How often it is worth looking again, with [`spin_hint`] between, before parking.
#[inline]
pub fn spin_turns() -> u32 {
    // The number plus one; 0: unknown. Relaxed: every thread would compute the same answer.
    static TURNS: AtomicU16 = AtomicU16::new(0);
    match TURNS.load(Ordering::Relaxed) {
        0 => {
            let turns = crate::wait::spin_turns(super::thread::available_cpus());
            TURNS.store(1 + turns as u16, Ordering::Relaxed);
            turns
        }
        known => u32::from(known) - 1,
    }
}
