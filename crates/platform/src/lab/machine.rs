//! What is the simulated machine doing? Its threads, clock and trace, and the loop that runs it.

use super::api::{Config, Failure, Outcome, Report, ThreadState};
use super::disk::Disk;
use super::random::Random;
use super::schedule::Schedule;
use super::sim::{Kind, Next, Sim, Turn};
use super::task::Task;
use crate::wait::WaitEvent;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::panic::Location;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

type Routine = Coroutine<(), (), (), DefaultStack>;

/// Virtual threads run whole databases, and unoptimised builds need deep frames.
const STACK_BYTES: usize = 2 * 1024 * 1024;

/// What a point costs on the virtual clock, nanoseconds. Flat: no cache is modelled.
const POINT_NS: u64 = 2;

/// Rare enough not to drown the schedule, frequent enough that each loop meets it.
const WEAK_FAILS_ONE_IN: u64 = 32;

/// What happens at a point; goes into the trace hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Op {
    Load = 1,
    Store,
    Update,
    Fence,
    Clock,
    Park,
    Unpark,
    Yield,
    Spawn,
    Read,
    Write,
    Sync,
    Name,
    Switch,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    /// Parked until unparked or, if given, until the time.
    Parked(Option<u64>),
    /// Until the time, whatever anybody else does.
    Asleep(u64),
    Done,
}

impl State {
    fn deadline(self) -> Option<u64> {
        match self {
            State::Parked(deadline) => deadline,
            State::Asleep(end) => Some(end),
            State::Ready | State::Done => None,
        }
    }
}

struct Thread {
    name: String,
    state: State,
    event: WaitEvent,
    permit: bool,
    timed_out: bool,
    joiners: Vec<usize>,
    routine: Option<Routine>,
    yielder: *const Yielder<(), ()>,
}

/// One run's machine.
struct Machine {
    /// Unique in the process, so that a handle of an earlier run is recognised.
    run: u64,
    cpus: usize,
    steps_max: u64,
    disk: Disk,
    // Cells: touched at every point.
    steps: Cell<u64>,
    clock_ns: Cell<u64>,
    hash: Cell<u64>,
    running: Cell<usize>,
    switches: Cell<u64>,
    writes: Cell<u64>,
    crash_at: Cell<Option<u64>>,
    ended: RefCell<Option<Outcome>>,
    schedule: RefCell<Schedule>,
    threads: RefCell<Vec<Thread>>,
    ready: RefCell<Vec<usize>>,
    choices: RefCell<Random>,
    globals: RefCell<HashMap<usize, &'static (dyn Any + Send + Sync)>>,
    addresses: RefCell<HashMap<usize, usize>>,
}

/// No thread runs: the machine's own loop does.
const NOBODY: usize = usize::MAX;

static NEXT_RUN: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static MACHINE: Cell<*const Machine> = const { Cell::new(ptr::null()) };
    /// The cost model of the run, if it has one; null outside of runs.
    static SIM: Cell<*mut Sim> = const { Cell::new(ptr::null_mut()) };
}

/// The run's cost model, if it has one. `f` must not suspend.
#[inline]
pub(super) fn with_sim<R>(f: impl FnOnce(&mut Sim) -> R) -> Option<R> {
    let sim = SIM.get();
    // SAFETY: `run` sets the pointer to a model that it owns and clears it before that is dropped; one OS thread
    // runs everything and `f` does not suspend, so this is the only borrow.
    (!sim.is_null()).then(|| f(unsafe { &mut *sim }))
}

/// The running core goes behind those whose time is earlier.
#[cold]
fn sim_give_way() {
    with(|machine| {
        with_sim(Sim::give_way);
        machine.suspend();
    });
}

/// Charges an access to shared memory, in a run with a cost model; elsewhere it is a point.
#[inline]
pub(super) fn access(op: Op, kind: Kind, address: usize, place: &'static Location<'static>) {
    let sim = SIM.get();
    if sim.is_null() {
        return point(op);
    }
    loop {
        // SAFETY: as in with_sim; the borrow ends before the thread is suspended.
        let turn = unsafe {
            let sim = &mut *sim;
            if sim.charging { sim.access(address, kind, place) } else { Turn::Done }
        };
        match turn {
            Turn::Done => return,
            Turn::After => return sim_give_way(),
            Turn::Before => sim_give_way(),
        }
    }
}

/// Charges time that `f` adds; the others catch up.
pub(super) fn charge(f: impl FnOnce(&mut Sim) -> Turn) {
    if with_sim(|sim| if sim.charging { f(sim) } else { Turn::Done }).is_some_and(|turn| turn != Turn::Done) {
        sim_give_way();
    }
}

/// The machine, when a run is on; `f` must not suspend while it holds a borrow.
#[inline]
fn with<R>(f: impl FnOnce(&Machine) -> R) -> Option<R> {
    let machine = MACHINE.get();
    // SAFETY: `run` sets the pointer to a machine it owns and clears it before that is dropped.
    (!machine.is_null()).then(|| f(unsafe { &*machine }))
}

impl Machine {
    fn trace(&self, op: Op, thread: usize) {
        // FNV-1a's step over one word.
        let word = (thread as u64) << 8 | op as u64;
        self.hash.set((self.hash.get() ^ word).wrapping_mul(0x0000_0100_0000_01B3));
    }

    /// Back to the machine's loop; returns when this thread's turn comes again.
    fn suspend(&self) {
        let yielder = self.threads.borrow()[self.running.get()].yielder;
        // SAFETY: the running thread stored its own yielder when it started, and runs.
        unsafe { &*yielder }.suspend(());
    }

    /// Lets others run; the caller stays ready.
    fn give_way(&self) {
        self.ready.borrow_mut().push(self.running.get());
        self.suspend();
    }

    fn end(&self, outcome: Outcome) {
        self.ended.borrow_mut().get_or_insert(outcome);
    }

    /// Ends the run; the calling thread never goes on.
    fn end_here(&self, outcome: Outcome) -> ! {
        self.end(outcome);
        self.suspend();
        unreachable!("a machine that ended resumes nobody")
    }

    fn make_ready(&self, thread: usize) {
        self.threads.borrow_mut()[thread].state = State::Ready;
        self.ready.borrow_mut().push(thread);
    }

    fn states(&self) -> Vec<ThreadState> {
        let threads = self.threads.borrow();
        let alive = threads.iter().filter(|thread| thread.state != State::Done);
        alive.map(|thread| ThreadState { name: thread.name.clone(), event: thread.event }).collect()
    }

    /// Nobody is ready: moves the clock to the first deadline. False if there is none.
    fn wake_sleepers(&self) -> bool {
        let first = self.threads.borrow().iter().filter_map(|thread| thread.state.deadline()).min();
        if let Some(first) = first {
            self.clock_ns.set(self.clock_ns.get().max(first));
        }
        self.fire_timers();
        first.is_some()
    }

    fn fire_timers(&self) {
        let now = self.clock_ns.get();
        for (number, thread) in self.threads.borrow_mut().iter_mut().enumerate() {
            if thread.state.deadline().is_some_and(|deadline| deadline <= now) {
                thread.timed_out = matches!(thread.state, State::Parked(_));
                thread.state = State::Ready;
                self.ready.borrow_mut().push(number);
            }
        }
    }

    /// Starts a thread; in a run with a cost model on `core`, or without one as a thread of the engine's own.
    fn start(&self, name: &str, f: Box<dyn FnOnce()>, core: Option<usize>) -> usize {
        let stack = DefaultStack::new(STACK_BYTES).expect("no memory for a virtual thread's stack");
        let number = self.threads.borrow().len();
        let routine = Coroutine::with_stack(stack, move |yielder, ()| {
            with(|machine| machine.threads.borrow_mut()[number].yielder = yielder);
            f();
        });
        self.threads.borrow_mut().push(Thread {
            name: name.to_owned(),
            state: State::Ready,
            event: WaitEvent::None,
            permit: false,
            timed_out: false,
            joiners: Vec::new(),
            routine: Some(routine),
            yielder: ptr::null(),
        });
        // The first thread only sets up and measures: like the engine's own threads it goes first when it wakes.
        if with_sim(|sim| sim.add_thread(name, core, core.is_none() || number == 0)).is_none() {
            self.schedule.borrow_mut().add_thread();
            self.ready.borrow_mut().push(number);
        }
        number
    }

    /// As [`run_all`](Machine::run_all), on the cost model's clocks.
    fn run_sim(&self) {
        while self.ended.borrow().is_none() {
            let Some(Next::Run(next)) = with_sim(Sim::next) else {
                return self.end(Outcome::Failed(Failure::Deadlock(self.states())));
            };
            self.switches.set(self.switches.get() + 1);
            if self.switches.get() > self.steps_max {
                return self.end(Outcome::Failed(Failure::StepsExceeded(self.states())));
            }
            self.resume(next);
        }
    }

    /// Runs until the first thread ends, or something ends the run.
    fn run_all(&self) {
        let mut last = NOBODY;
        while self.ended.borrow().is_none() {
            self.fire_timers();
            if self.ready.borrow().is_empty() {
                if !self.wake_sleepers() {
                    self.end(Outcome::Failed(Failure::Deadlock(self.states())));
                }
                continue;
            }
            let next = {
                let mut ready = self.ready.borrow_mut();
                let at = self.schedule.borrow_mut().choose(&ready, self.steps.get());
                ready.swap_remove(at)
            };
            if next != last {
                self.switches.set(self.switches.get() + 1);
                self.trace(Op::Switch, next);
            }
            last = next;
            self.resume(next);
        }
    }

    fn resume(&self, number: usize) {
        let routine = self.threads.borrow_mut()[number].routine.take();
        let Some(mut routine) = routine else { unreachable!("a ready thread is suspended") };
        self.running.set(number);
        let result = catch_unwind(AssertUnwindSafe(|| routine.resume(())));
        self.running.set(NOBODY);
        match result {
            Ok(CoroutineResult::Yield(())) => self.threads.borrow_mut()[number].routine = Some(routine),
            Ok(CoroutineResult::Return(())) => self.finish(number),
            Err(panic) => {
                let thread = self.threads.borrow()[number].name.clone();
                let message = panic_text(&*panic);
                self.end(Outcome::Failed(Failure::Panic { thread, message }));
            }
        }
    }

    fn finish(&self, number: usize) {
        let joiners = {
            let mut threads = self.threads.borrow_mut();
            threads[number].state = State::Done;
            std::mem::take(&mut threads[number].joiners)
        };
        with_sim(|sim| sim.finish(number));
        for joiner in joiners {
            self.unpark(joiner);
        }
        if number == 0 {
            self.end(Outcome::Finished);
        }
    }

    fn unpark(&self, number: usize) {
        if with_sim(|sim| sim.unpark(number)).is_some() {
            return;
        }
        let parked = matches!(self.threads.borrow()[number].state, State::Parked(_));
        if parked {
            self.make_ready(number);
        } else {
            self.threads.borrow_mut()[number].permit = true;
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "?".into())
}

/// Runs `f` as the first thread of a simulated machine, until it returns, the machine crashes, or
/// something fails. Threads that have not ended by then never go on; their stacks and what they own
/// are not freed, as nothing runs after a crash (so a long exploration forks a process for each run).
///
/// # Panics
/// Inside another run.
pub fn run(config: &Config, f: impl FnOnce() + 'static) -> Report {
    assert!(MACHINE.get().is_null(), "a run inside a run");
    let machine = Machine {
        run: NEXT_RUN.fetch_add(1, Ordering::Relaxed),
        cpus: config.cpus,
        steps_max: config.steps_max,
        disk: config.disk.clone(),
        steps: Cell::new(0),
        clock_ns: Cell::new(0),
        hash: Cell::new(0xCBF2_9CE4_8422_2325),
        running: Cell::new(NOBODY),
        switches: Cell::new(0),
        writes: Cell::new(0),
        crash_at: Cell::new(config.crash_after_write),
        ended: RefCell::new(None),
        schedule: RefCell::new(Schedule::new(config.scheduler, config.seed)),
        threads: RefCell::default(),
        ready: RefCell::default(),
        choices: RefCell::new(Random::new(config.seed ^ 0x000C_401C_E500)),
        globals: RefCell::default(),
        addresses: RefCell::default(),
    };
    config.disk.start_run(config.seed, config.faults);
    let mut sim = config.sim.as_ref().map(|sim| Box::new(Sim::new(sim, config.seed)));
    SIM.set(sim.as_mut().map_or(ptr::null_mut(), |sim| &raw mut **sim));
    MACHINE.set(&machine);
    machine.start("main", Box::new(f), sim.as_ref().map(|_| 0));
    if sim.is_some() {
        machine.run_sim()
    } else {
        machine.run_all()
    }
    MACHINE.set(ptr::null());
    SIM.set(ptr::null_mut());
    let threads = machine.threads.borrow().len();
    for thread in machine.threads.take() {
        if thread.state != State::Done {
            std::mem::forget(thread.routine);
        }
    }
    Report {
        seed: config.seed,
        outcome: machine.ended.take().expect("run_all returns when the run has ended"),
        trace_hash: sim.as_ref().map_or(machine.hash.get(), |sim| sim.hash),
        steps: sim.as_ref().map_or(machine.steps.get(), |sim| sim.accesses()),
        switches: machine.switches.get(),
        threads: threads as u64,
        clock_ns: sim.as_ref().map_or(machine.clock_ns.get(), |sim| sim.now / 1000),
        writes: machine.writes.get(),
    }
}

/// A point: the machine may let another thread run before the caller's next action.
#[inline]
pub(super) fn point(op: Op) {
    if !SIM.get().is_null() {
        // A call of the virtual system's clock costs about that much; everything else is charged where it happens.
        if op == Op::Clock {
            charge(|sim| sim.pause(1));
        }
        return;
    }
    with(|machine| {
        let running = machine.running.get();
        if running == NOBODY {
            return;
        }
        let step = machine.steps.get() + 1;
        machine.steps.set(step);
        machine.clock_ns.set(machine.clock_ns.get() + POINT_NS);
        machine.trace(op, running);
        if step > machine.steps_max {
            machine.end_here(Outcome::Failed(Failure::StepsExceeded(machine.states())));
        }
        let switch = machine.schedule.borrow_mut().point(running, step);
        if switch {
            machine.give_way();
        }
    });
}

/// Whether a weak compare-exchange fails without reason this time.
pub(super) fn weak_fails() -> bool {
    with(|machine| {
        SIM.get().is_null() && machine.running.get() != NOBODY && machine.choices.borrow_mut().one_in(WEAK_FAILS_ONE_IN)
    })
    .unwrap_or(false)
}

/// The caller spins or yields: everybody else goes first.
pub(super) fn give_way() {
    point(Op::Yield);
    with(|machine| {
        let running = machine.running.get();
        if running != NOBODY && with_sim(Sim::yield_core).is_some() {
            return machine.suspend();
        }
        if running != NOBODY {
            machine.schedule.borrow_mut().demote(running);
            machine.give_way();
        }
    });
}

/// One turn of a spin that is in its `attempt`-th: as the native one, pauses first and yields later.
pub(super) fn spin(attempt: u32) {
    if SIM.get().is_null() || attempt >= 12 {
        return give_way();
    }
    let turn = with_sim(|sim| sim.pause(1 << attempt.min(6)));
    if turn == Some(Turn::After) {
        sim_give_way();
    }
}

/// Parks the running thread; false if the time passed first.
pub(super) fn park(event: WaitEvent, timeout_ns: Option<u64>) -> bool {
    point(Op::Park);
    with(|machine| {
        let running = machine.running.get();
        if running == NOBODY {
            return true;
        }
        if let Some(parked) = with_sim(|sim| sim.park(running, timeout_ns)) {
            if !parked {
                return true;
            }
            machine.threads.borrow_mut()[running].event = event;
            machine.suspend();
            machine.threads.borrow_mut()[running].event = WaitEvent::None;
            return !with_sim(|sim| sim.timed_out(running)).unwrap_or(false);
        }
        {
            let thread = &mut machine.threads.borrow_mut()[running];
            if std::mem::take(&mut thread.permit) {
                return true;
            }
            thread.event = event;
            let deadline = timeout_ns.map(|timeout| machine.clock_ns.get().saturating_add(timeout));
            thread.state = State::Parked(deadline);
        }
        machine.suspend();
        let thread = &mut machine.threads.borrow_mut()[running];
        thread.event = WaitEvent::None;
        !std::mem::take(&mut thread.timed_out)
    })
    .unwrap_or(true)
}

/// Puts the running thread to sleep; it keeps or gets its permit, but does not wake for it.
pub(super) fn sleep(event: WaitEvent, time_ns: u64) {
    sleep_until(event, |now_ps| now_ps.saturating_add(time_ns.saturating_mul(1000)), time_ns);
}

/// Waits for the device of a run with a cost model to serve a request of `bytes` that takes `latency_ns` by itself.
pub(super) fn wait_for_device(event: WaitEvent, latency_ns: f64, bytes: u64) {
    if let Some(end) = with_sim(|sim| sim.device(latency_ns, bytes)) {
        sleep_until(event, |_| end, 0);
    }
}

fn sleep_until(event: WaitEvent, end: impl FnOnce(u64) -> u64, time_ns: u64) {
    with(|machine| {
        let running = machine.running.get();
        if running == NOBODY {
            return;
        }
        let slept = with_sim(|sim| {
            let end = end(sim.now);
            sim.sleep_until(running, end)
        });
        if slept.is_some() {
            machine.threads.borrow_mut()[running].event = event;
            machine.suspend();
            machine.threads.borrow_mut()[running].event = WaitEvent::None;
            return;
        }
        {
            let thread = &mut machine.threads.borrow_mut()[running];
            thread.event = event;
            thread.state = State::Asleep(machine.clock_ns.get() + time_ns);
        }
        machine.suspend();
        machine.threads.borrow_mut()[running].event = WaitEvent::None;
    });
}

pub(super) fn unpark(task: &Task) {
    point(Op::Unpark);
    with(|machine| {
        if task.run != machine.run {
            return;
        }
        if let Some(turn) = with_sim(|sim| sim.unpark(task.thread)) {
            if turn != Turn::Done && machine.running.get() != NOBODY {
                with_sim(Sim::give_way);
                machine.suspend();
            }
            return;
        }
        machine.unpark(task.thread);
        let running = machine.running.get();
        if running != NOBODY && machine.schedule.borrow().preempts(task.thread, running) {
            machine.give_way();
        }
    });
}

pub(super) fn current() -> Task {
    with(|machine| Task { run: machine.run, thread: machine.running.get() }).unwrap_or(Task { run: 0, thread: NOBODY })
}

pub(super) fn wait_event(task: &Task) -> WaitEvent {
    let event = with(|machine| {
        let ours = task.run == machine.run;
        machine.threads.borrow().get(task.thread).filter(|_| ours).map(|thread| thread.event)
    });
    event.flatten().unwrap_or(WaitEvent::None)
}

pub(super) fn spawn(name: &str, f: Box<dyn FnOnce() + Send>, core: Option<usize>) -> Task {
    point(Op::Spawn);
    with(|machine| Task { run: machine.run, thread: machine.start(name, f, core) })
        .expect("threads start only inside a run")
}

pub(super) fn is_done(task: &Task) -> bool {
    point(Op::Load);
    with(|machine| task.run != machine.run || machine.threads.borrow()[task.thread].state == State::Done)
        .unwrap_or(true)
}

/// Whether the thread has ended; if not, the caller is unparked when it does.
pub(super) fn join_or_register(task: &Task) -> bool {
    if is_done(task) {
        return true;
    }
    with(|machine| {
        let me = machine.running.get();
        machine.threads.borrow_mut()[task.thread].joiners.push(me);
    });
    false
}

pub(super) fn clock_ns() -> u64 {
    if let Some(now) = with_sim(|sim| sim.now / 1000) {
        return now;
    }
    with(|machine| machine.clock_ns.get()).unwrap_or(0)
}

/// Whose heap an allocation comes from: the running core's, in a run with a cost model.
#[inline]
pub(super) fn heap_owner() -> Option<usize> {
    // During a thread's end the cell may be gone; nothing runs then.
    let sim = SIM.try_with(Cell::get).unwrap_or(ptr::null_mut());
    // SAFETY: the model lives while the pointer is set. It may be borrowed: only a number is read, which changes only
    // between turns, while nobody allocates.
    (!sim.is_null()).then(|| unsafe { (&raw const (*sim).running).read() })
}

/// The core of the running thread, in a run with a cost model.
pub(super) fn current_core() -> Option<usize> {
    with_sim(|sim| sim.running)
}

/// Moves the running thread to one of the cores, in a run with a cost model.
pub(super) fn pin(cores: &[usize]) {
    with(|machine| {
        let running = machine.running.get();
        if running == NOBODY {
            return;
        }
        let moved = with_sim(|sim| {
            sim.pin(running, cores);
            sim.core_of(running) != sim.running
        });
        if moved == Some(true) {
            machine.suspend();
        }
    });
}

pub(super) fn cpus() -> usize {
    if let Some(cores) = with_sim(|sim| sim.hardware.cores()) {
        return cores;
    }
    with(|machine| machine.cpus).unwrap_or(1)
}

pub(super) fn disk() -> Option<Disk> {
    with(|machine| machine.disk.clone())
}

/// Counts a change that was made to the disk, and crashes if it is the one to crash after.
pub(super) fn disk_changed() {
    with(|machine| {
        let writes = machine.writes.get() + 1;
        machine.writes.set(writes);
        if machine.crash_at.get() == Some(writes) {
            machine.end_here(Outcome::Crashed);
        }
    });
}

pub(super) fn address_number(address: usize) -> usize {
    with(|machine| {
        let mut addresses = machine.addresses.borrow_mut();
        let next = addresses.len();
        *addresses.entry(address).or_insert(next)
    })
    .unwrap_or(address)
}

/// The value of a [`Global`](crate::Global) in this run, or outside of one, in this process.
pub(crate) fn run_local<T: Send + Sync + 'static>(key: usize, make: fn() -> T) -> &'static T {
    thread_local! {
        static OUTSIDE: RefCell<HashMap<usize, &'static (dyn Any + Send + Sync)>> = RefCell::default();
    }
    let find = || {
        with(|machine| machine.globals.borrow().get(&key).copied())
            .unwrap_or_else(|| OUTSIDE.with_borrow(|globals| globals.get(&key).copied()))
    };
    let any = find().unwrap_or_else(|| {
        let value: &'static (dyn Any + Send + Sync) = Box::leak(Box::new(make()));
        // `make` may have switched to a thread that asked for the same: the first one counts.
        find().unwrap_or_else(|| {
            with(|machine| machine.globals.borrow_mut().insert(key, value))
                .unwrap_or_else(|| OUTSIDE.with_borrow_mut(|globals| globals.insert(key, value)));
            value
        })
    });
    any.downcast_ref().expect("a global's address is its own")
}

/// A choice below `n` from the run's seed, for scenarios. `n` is at least 1.
pub fn choose(n: usize) -> usize {
    with(|machine| machine.choices.borrow_mut().below(n as u64) as usize).unwrap_or(0)
}

/// Points the run has passed.
pub fn now_steps() -> u64 {
    with(|machine| machine.steps.get()).unwrap_or(0)
}

/// Crashes the machine now. Does not return inside a run.
///
/// # Panics
/// Outside a run.
pub fn crash() -> ! {
    with(|machine| -> () { machine.end_here(Outcome::Crashed) });
    panic!("crash outside a run")
}

/// Crashes the machine right after `n` more changes to its disk (1 is the next).
pub fn crash_after_write(n: u64) {
    with(|machine| machine.crash_at.set(Some(machine.writes.get() + n)));
}
