//! Which thread has which core, and who wakes whom?

use super::order::NEVER;
use super::{NO_LINE, Sim, Turn, ps};
use std::cmp::{Ordering, Reverse};

/// A thread, as far as the machine's time is concerned.
pub(super) struct SimThread {
    pub core: usize,
    /// A thread of the engine's own, not a session: its own kernel thread, and it goes first when woken.
    pub background: bool,
    /// Costs nothing.
    free: bool,
    state: State,
    permit: bool,
    timed_out: bool,
    /// Counts its waits, so that an old timer is recognised.
    waits: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    Parked,
    Asleep,
    Done,
}

/// A wait's end.
#[derive(PartialEq, Eq)]
pub(super) struct Timer {
    at: u64,
    thread: usize,
    wait: u64,
}

impl Ord for Timer {
    /// The earliest is the greatest, for the heap.
    fn cmp(&self, other: &Timer) -> Ordering {
        Reverse((self.at, self.thread)).cmp(&Reverse((other.at, other.thread)))
    }
}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Timer) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// What the machine's loop does next.
pub(in super::super) enum Next {
    Run(usize),
    /// Nobody can run and nobody sleeps.
    Stuck,
}

/// What pushing a task to another worker costs the waker: an exchange and a list's head that the other worker reads.
const INJECT_PS: u64 = 150_000;
/// A yield to the kernel that finds nobody else.
const YIELD_NS: f64 = 300.0;

impl Sim {
    /// A new thread: on `core`, or on the one with the fewest.
    pub fn add_thread(&mut self, name: &str, core: Option<usize>, background: bool) {
        let fewest = || (0..self.cores.len()).min_by_key(|&core| self.cores[core].threads).unwrap_or(0);
        let core = core.unwrap_or_else(fewest);
        let thread = self.threads.len();
        self.threads.push(SimThread {
            core,
            background,
            free: self.changes.is_free_thread(name),
            state: State::Ready,
            permit: false,
            timed_out: false,
            waits: 0,
        });
        self.cores[core].threads += 1;
        self.enqueue(thread, self.now);
    }

    pub fn core_of(&self, thread: usize) -> usize {
        self.threads.get(thread).map_or(0, |thread| thread.core)
    }

    /// The running thread moves to one of `cores`, the one with the fewest threads.
    pub fn pin(&mut self, thread: usize, cores: &[usize]) {
        let known = cores.iter().copied().filter(|&core| core < self.cores.len());
        let Some(core) = known.min_by_key(|&core| self.cores[core].threads) else { return };
        let old = self.threads[thread].core;
        if cores.contains(&old) {
            return;
        }
        self.belongs_to(thread, core);
        self.threads[thread].background = true;
        self.release_core();
        self.enqueue(thread, self.now);
    }

    /// The furthest behind goes on.
    pub fn next(&mut self) -> Next {
        loop {
            let Some(first) = self.order.first() else { return Next::Stuck };
            let time = self.order.first_time();
            if first == self.cores.len() {
                self.fire_timers(time);
                continue;
            }
            self.order.set(first, NEVER);
            self.running = first;
            self.last_line = NO_LINE;
            self.horizon = self.order.first_time();
            self.now = time;
            let core = &mut self.cores[first];
            core.clock = time;
            if core.thread.is_none() {
                let (thread, at) = core.ready.pop_front().expect("a core in the order has a thread to run");
                // Ready or not, a core that waits for a wake-up has nothing to run until it is over.
                self.idle_ps += at.saturating_sub(core.idle_from);
                self.ready_ps += time.saturating_sub(at);
                core.thread = Some(thread);
                // Background threads come first: whoever was to preempt is this one.
                core.preempt_at = NEVER;
                core.slice_end = time + ps(self.hardware.threading.slice_ns);
            }
            let thread = core.thread.expect("just set");
            self.free = self.threads[thread].free;
            self.trace(time ^ (thread as u64) << 40);
            return Next::Run(thread);
        }
    }

    /// The running thread lets others go that are further behind, and stays ready.
    pub fn give_way(&mut self) {
        let now = self.now;
        let me = self.running;
        let core = &mut self.cores[me];
        core.clock = now;
        let waiting = core.ready.front().is_some_and(|&(_, at)| at <= now);
        let preempted = now >= core.preempt_at;
        let ended = self.processes && now >= core.slice_end;
        if waiting && self.make_way() {
            return;
        }
        if waiting && preempted && !self.processes {
            self.step_aside();
        } else if waiting && (preempted || ended) {
            self.rotate();
        } else {
            self.order.set(me, now);
        }
    }

    /// The running thread goes behind the others of its core.
    pub fn yield_core(&mut self) {
        let now = self.now;
        if self.cores[self.running].ready.is_empty() {
            self.now += ps(YIELD_NS);
            self.cores[self.running].clock = self.now;
            self.order.set(self.running, self.now);
        } else {
            self.cores[self.running].clock = now;
            self.rotate();
        }
    }

    /// The kernel runs a background thread in the worker's place; the worker goes on with the same task afterwards.
    fn step_aside(&mut self) {
        let core = &mut self.cores[self.running];
        let thread = core.thread.take().expect("a thread runs");
        core.idle_from = self.now;
        core.preempt_at = NEVER;
        let threads = &self.threads;
        let first = core.ready.iter().position(|&(other, _)| !threads[other].background).unwrap_or(core.ready.len());
        core.ready.insert(first, (thread, self.now));
        self.schedule_core(self.running, Some(thread));
    }

    fn rotate(&mut self) {
        let core = &mut self.cores[self.running];
        let thread = core.thread.take().expect("a thread runs");
        core.idle_from = self.now;
        core.preempt_at = NEVER;
        core.ready.push_back((thread, self.now));
        self.schedule_core(self.running, Some(thread));
    }

    /// The running thread gives its core up.
    pub(super) fn release_core(&mut self) {
        let me = self.running;
        let core = &mut self.cores[me];
        core.clock = self.now;
        core.idle_from = self.now;
        core.preempt_at = NEVER;
        let was = core.thread.take();
        self.schedule_core(me, was);
    }

    /// Sets when a core without a running thread goes on.
    fn schedule_core(&mut self, number: usize, before: Option<usize>) {
        let core = &self.cores[number];
        let Some(&(next, at)) = core.ready.front() else { return self.order.set(number, NEVER) };
        let threading = &self.hardware.threading;
        let kernel = self.processes
            || self.threads[next].background
            || before.is_some_and(|before| self.threads[before].background);
        let switch = match before {
            Some(before) if before == next => 0.0,
            Some(_) if kernel => threading.thread_switch_ns,
            Some(_) => threading.task_switch_ns,
            None => 0.0,
        };
        self.order.set(number, core.clock.max(at) + ps(switch));
    }

    /// Puts a thread into its core's queue.
    pub(super) fn enqueue(&mut self, thread: usize, at: u64) {
        let number = self.threads[thread].core;
        let first = self.threads[thread].background;
        let core = &mut self.cores[number];
        let idle = core.thread.is_none() && core.ready.is_empty();
        if first {
            core.ready.push_front((thread, at));
            core.preempt_at = core.preempt_at.min(at);
        } else {
            core.ready.push_back((thread, at));
        }
        if core.thread.is_none() && (idle || first) {
            self.schedule_core(number, None);
            self.horizon = self.horizon.min(self.order.first_time());
        }
    }

    /// Parks the running thread; false: it had a permit and goes on.
    pub fn park(&mut self, thread: usize, timeout_ns: Option<u64>) -> bool {
        let state = &mut self.threads[thread];
        if std::mem::take(&mut state.permit) {
            return false;
        }
        state.state = State::Parked;
        state.waits += 1;
        let wait = state.waits;
        if let Some(timeout) = timeout_ns {
            self.add_timer(thread, self.now.saturating_add(timeout.saturating_mul(1000)), wait);
        }
        self.release_core();
        true
    }

    /// Puts the running thread to sleep until `at`.
    pub fn sleep_until(&mut self, thread: usize, at: u64) {
        let state = &mut self.threads[thread];
        state.state = State::Asleep;
        state.waits += 1;
        let wait = state.waits;
        self.add_timer(thread, at, wait);
        self.release_core();
    }

    /// Whether the wait that just ended ended by its time.
    pub fn timed_out(&mut self, thread: usize) -> bool {
        std::mem::take(&mut self.threads[thread].timed_out)
    }

    fn add_timer(&mut self, thread: usize, at: u64, wait: u64) {
        self.timers.push(Timer { at, thread, wait });
        let first = self.timers.peek().map_or(NEVER, |timer| timer.at);
        self.order.set(self.cores.len(), first);
    }

    fn fire_timers(&mut self, time: u64) {
        while let Some(timer) = self.timers.peek()
            && timer.at <= time
        {
            let Timer { at, thread, wait } = self.timers.pop().expect("peeked");
            let state = &mut self.threads[thread];
            if state.waits != wait || !matches!(state.state, State::Parked | State::Asleep) {
                continue;
            }
            state.timed_out = state.state == State::Parked;
            state.state = State::Ready;
            let core = self.placed(thread);
            let idle = self.cores[core].thread.is_none();
            let wake = if idle { ps(self.hardware.threading.wake_ns) } else { 0 };
            self.enqueue(thread, at + wake);
        }
        let first = self.timers.peek().map_or(NEVER, |timer| timer.at);
        self.order.set(self.cores.len(), first);
    }

    /// The running thread (if one runs) gives `thread` its permit or wakes it.
    pub fn unpark(&mut self, thread: usize) -> Turn {
        let state = &mut self.threads[thread];
        if state.state != State::Parked {
            state.permit = state.state != State::Done;
            return Turn::Done;
        }
        state.state = State::Ready;
        state.waits += 1;
        let target = self.placed(thread);
        let idle = self.cores[target].thread.is_none() && self.cores[target].ready.is_empty();
        let kernel = self.processes || self.threads[thread].background;
        let threading = &self.hardware.threading;
        let (cost, delay) = match (target == self.running, idle, kernel) {
            (true, _, false) => (ps(threading.task_switch_ns / 2.0), 0),
            (false, false, false) => (INJECT_PS, INJECT_PS),
            (false, true, _) => (ps(threading.waker_ns), ps(threading.wake_ns)),
            (_, _, true) => (ps(threading.waker_ns), 0),
        };
        if self.charging && !self.free {
            self.now += cost;
        }
        self.enqueue(thread, self.now + delay);
        if self.now > self.horizon { Turn::After } else { Turn::Done }
    }

    /// The running thread has ended.
    pub fn finish(&mut self, thread: usize) {
        self.threads[thread].state = State::Done;
        self.cores[self.threads[thread].core].threads -= 1;
        self.release_core();
    }
}
