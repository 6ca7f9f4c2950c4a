//! How do a thousand tasks share one thread? Stackful coroutines, resumed by their worker.
//!
//! An [`Executor`] belongs to one thread, and its coroutines never leave it: engine code may keep
//! references to worker-local state across a park. Only the injected queue and the parkers' state
//! words are touched by other threads.

use super::clock;
use super::task::{Inner, Kind, Task};
use crate::CachePadded;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::any::Any;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

type Routine = Coroutine<(), (), (), DefaultStack>;

/// A stack size that fits the deepest statements; only touched pages take memory.
pub const DEFAULT_STACK_BYTES: usize = 256 * 1024;

/// Stacks kept for reuse; more concurrent tasks than that map and unmap theirs.
const POOLED_STACKS: usize = 256;

// A parker's state: no permit, a permit, or parked without one.
const EMPTY: u32 = 0;
const NOTIFIED: u32 = 1;
const PARKED: u32 = 2;

static NEXT_THREAD: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// The coroutine that runs on this thread; null outside of one.
    static CURRENT: Cell<*const Inner> = const { Cell::new(ptr::null()) };
    /// A number no other thread has had; 0 until asked for.
    static THREAD_NUMBER: Cell<u64> = const { Cell::new(0) };
}

fn thread_number() -> u64 {
    THREAD_NUMBER.with(|cell| {
        if cell.get() == 0 {
            cell.set(NEXT_THREAD.fetch_add(1, Ordering::Relaxed));
        }
        cell.get()
    })
}

/// The running coroutine's task, if a coroutine runs.
#[inline]
pub(super) fn current_coroutine() -> Option<Task> {
    // A thread whose locals are gone runs no coroutine.
    let inner = CURRENT.try_with(Cell::get).unwrap_or(ptr::null());
    if inner.is_null() {
        return None;
    }
    // SAFETY: CURRENT is set only while `resume` below holds the task, so the count is at least
    // one; it came from Arc::as_ptr.
    unsafe {
        Arc::increment_strong_count(inner);
        Some(Task(Arc::from_raw(inner)))
    }
}

/// Puts the running coroutine behind its worker's other ready tasks; false outside a coroutine.
pub(super) fn yield_current() -> bool {
    let Some(me) = current_coroutine() else {
        return false;
    };
    if let Kind::Coroutine(parker) = &me.0.kind {
        parker.shared.with_local(|local| local.ready.push_back(me.clone()));
        parker.suspend();
    }
    true
}

/// What parking a coroutine needs, inside its task's handle.
pub(super) struct Parker {
    shared: Arc<Shared>,
    state: AtomicU32,
    /// The next task in the injected queue; used only by who moved `state` from PARKED.
    next: AtomicPtr<Inner>,
    /// Set by the coroutine when it starts; used only by itself.
    yielder: AtomicPtr<Yielder<(), ()>>,
    // The rest is used on the owner thread only; atomics because the handle is shared.
    /// The slot of the suspended coroutine in the executor.
    slot: AtomicUsize,
    /// Counts parks, so that a timer of an earlier park is recognised as stale.
    park_number: AtomicU64,
    timed_out: AtomicBool,
}

impl Parker {
    pub(super) fn worker_number(&self) -> usize {
        self.shared.owner as usize
    }

    /// Called by the coroutine itself; false when `deadline_ns` passed first.
    pub(super) fn park(&self, me: &Task, deadline_ns: Option<u64>) -> bool {
        // Acquire in the failing case pairs with unpark's release: its permit is consumed here.
        let parked = self.state.compare_exchange(EMPTY, PARKED, Ordering::Relaxed, Ordering::Acquire);
        if parked.is_err() {
            // Only this coroutine leaves NOTIFIED, so nothing can have changed; a swap, not a store, so
            // that an unpark that came in between is acquired too.
            self.state.swap(EMPTY, Ordering::Acquire);
            return true;
        }
        let number = self.park_number.load(Ordering::Relaxed);
        if let Some(deadline_ns) = deadline_ns {
            let timer = Timer { deadline_ns, park_number: number, task: me.clone() };
            self.shared.with_local(|local| local.add_timer(timer));
        }
        self.suspend();
        self.state.swap(EMPTY, Ordering::Acquire);
        self.park_number.store(number + 1, Ordering::Relaxed);
        !self.timed_out.swap(false, Ordering::Relaxed)
    }

    fn suspend(&self) {
        let yielder = self.yielder.load(Ordering::Relaxed);
        // SAFETY: called only by the coroutine that stored its own yielder, which lives as long as
        // the coroutine's body runs.
        unsafe { &*yielder }.suspend(());
    }

    /// Gives the permit; whoever moves the state away from PARKED queues the task, exactly once.
    pub(super) fn unpark(&self, task: &Task) {
        // Release: the waker's writes happen before the park's return. Acquire: orders the use of
        // `next` after the previous queueing's.
        if self.state.swap(NOTIFIED, Ordering::AcqRel) != PARKED {
            return;
        }
        if THREAD_NUMBER.try_with(Cell::get).is_ok_and(|number| number == self.shared.owner) {
            self.shared.with_local(|local| local.ready.push_back(task.clone()));
        } else {
            self.shared.inject(task.clone());
        }
    }
}

struct Timer {
    deadline_ns: u64,
    park_number: u64,
    task: Task,
}

impl Timer {
    fn key(&self) -> (u64, u64, u64) {
        (self.deadline_ns, self.task.id(), self.park_number)
    }

    fn is_stale(&self) -> bool {
        let Kind::Coroutine(parker) = &self.task.0.kind else {
            return true;
        };
        parker.park_number.load(Ordering::Relaxed) != self.park_number
    }
}

impl PartialEq for Timer {
    fn eq(&self, other: &Timer) -> bool {
        self.key() == other.key()
    }
}
impl Eq for Timer {}
impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Timer) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Timer {
    fn cmp(&self, other: &Timer) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// What the owner thread alone uses.
#[derive(Default)]
struct Local {
    ready: VecDeque<Task>,
    timers: BinaryHeap<Reverse<Timer>>,
    /// Timers that may be there before the stale ones are looked for.
    sweep_at: usize,
}

impl Local {
    /// Adds a timer. Most parks end before their time and leave a stale timer behind; they are swept
    /// out whenever the timers have doubled, so there are at most twice as many as are in use.
    fn add_timer(&mut self, timer: Timer) {
        const FEW: usize = 64;
        if self.timers.len() >= self.sweep_at.max(FEW) {
            self.timers.retain(|Reverse(timer)| !timer.is_stale());
            self.sweep_at = 2 * self.timers.len();
        }
        self.timers.push(Reverse(timer));
    }
}

struct Shared {
    /// The number of the thread that owns the executor.
    owner: u64,
    local: UnsafeCell<Local>,
    /// A stack of tasks unparked by other threads, linked through `Parker::next`.
    injected: CachePadded<AtomicPtr<Inner>>,
    /// The worker may be asleep: the next injection must call `wake`.
    may_sleep: CachePadded<AtomicBool>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

// SAFETY: `local` is the only part that is not Send and Sync by itself, and with_local lets only the
// owner thread at it (its users check `owner` or run on a coroutine of this executor). Timers and
// tasks are Send, so the last handle may drop it on another thread.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Owner thread only. `f` is short and calls nothing that comes back here.
    fn with_local<R>(&self, f: impl FnOnce(&mut Local) -> R) -> R {
        debug_assert_eq!(thread_number(), self.owner);
        // SAFETY: only the owner thread is here, and no caller nests.
        f(unsafe { &mut *self.local.get() })
    }

    fn inject(&self, task: Task) {
        let inner = Arc::into_raw(task.0).cast_mut();
        // SAFETY: the pointer holds the count that was in `task`, until take_injected takes it.
        let Kind::Coroutine(parker) = (unsafe { &(*inner).kind }) else { unreachable!("only coroutines are injected") };
        let mut head = self.injected.load(Ordering::Relaxed);
        loop {
            parker.next.store(head, Ordering::Relaxed);
            // Release publishes `next`; SeqCst orders it before the load of may_sleep below, as
            // `announce_sleep` does the other way round, so one of the two sees the other.
            match self.injected.compare_exchange_weak(head, inner, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        if self.may_sleep.load(Ordering::SeqCst) && self.may_sleep.swap(false, Ordering::SeqCst) {
            (self.wake)();
        }
    }

    /// Moves the injected tasks to the ready queue, first come first.
    fn take_injected(&self) {
        if self.injected.load(Ordering::Relaxed).is_null() {
            return;
        }
        // Acquire pairs with inject's release.
        let mut inner = self.injected.swap(ptr::null_mut(), Ordering::Acquire);
        let mut tasks = Vec::new();
        while !inner.is_null() {
            // SAFETY: inject put the counted pointer in, and the swap made it ours alone.
            let task = Task(unsafe { Arc::from_raw(inner) });
            inner = match &task.0.kind {
                Kind::Coroutine(parker) => parker.next.load(Ordering::Relaxed),
                Kind::Thread(_) => ptr::null_mut(),
            };
            tasks.push(task);
        }
        self.with_local(|local| local.ready.extend(tasks.into_iter().rev()));
    }

    /// Declares that the worker may go to sleep; true if something is ready after all.
    fn announce_sleep(&self) -> bool {
        if !self.with_local(|local| local.ready.is_empty()) {
            return true;
        }
        self.may_sleep.store(true, Ordering::SeqCst);
        if self.injected.load(Ordering::SeqCst).is_null() {
            return false;
        }
        self.may_sleep.store(false, Ordering::Relaxed);
        true
    }

    fn is_awake(&self) {
        if self.may_sleep.load(Ordering::Relaxed) {
            self.may_sleep.store(false, Ordering::Relaxed);
        }
    }

    /// Moves tasks whose time is up to the ready queue.
    fn fire_timers(&self) {
        self.with_local(|local| {
            if local.timers.is_empty() {
                return;
            }
            let now = clock::now_ns();
            while let Some(Reverse(timer)) = local.timers.peek() {
                if timer.deadline_ns > now && !timer.is_stale() {
                    return;
                }
                let Some(Reverse(timer)) = local.timers.pop() else {
                    return;
                };
                let Kind::Coroutine(parker) = &timer.task.0.kind else {
                    continue;
                };
                let won = !timer.is_stale()
                    && parker.state.compare_exchange(PARKED, NOTIFIED, Ordering::AcqRel, Ordering::Relaxed).is_ok();
                if won {
                    parker.timed_out.store(true, Ordering::Relaxed);
                    local.ready.push_back(timer.task);
                }
            }
        });
    }
}

/// Called with the task and the panic's payload when a coroutine's body panicked.
pub type PanicHook = Box<dyn Fn(&Task, Box<dyn Any + Send>)>;

/// Runs coroutines on the thread that made it. Not `Send`.
///
/// The worker's loop: handle events, [`run_now`](Executor::run_now) for each, then
/// [`run_ready`](Executor::run_ready); before it blocks it calls [`has_ready`](Executor::has_ready) (or
/// [`next_timeout_ns`](Executor::next_timeout_ns)), and blocks only when nothing is ready.
/// Drop it when [`live`](Executor::live) is 0: coroutines that are still parked are unwound, and must
/// not park while that happens.
pub struct Executor {
    shared: Arc<Shared>,
    stack_bytes: usize,
    stacks: RefCell<Vec<DefaultStack>>,
    /// The suspended coroutines; a running one is out of its slot.
    slots: RefCell<Vec<Option<Routine>>>,
    free_slots: RefCell<Vec<usize>>,
    live: Cell<usize>,
    panic_hook: RefCell<Option<PanicHook>>,
    not_send: std::marker::PhantomData<*const ()>,
}

const NO_SLOT: usize = usize::MAX;

impl Executor {
    /// An executor for the calling thread.
    ///
    /// `wake` is called from other threads when a task became ready and the worker may be asleep,
    /// that is since it last saw nothing ready; it must end the worker's sleep. `stack_bytes` is
    /// the address space of each coroutine's stack ([`DEFAULT_STACK_BYTES`] is a good value); only
    /// touched pages take memory, and a guard page stops an overflow.
    pub fn new(wake: Arc<dyn Fn() + Send + Sync>, stack_bytes: usize) -> Executor {
        Executor {
            shared: Arc::new(Shared {
                owner: thread_number(),
                local: UnsafeCell::default(),
                injected: CachePadded::default(),
                may_sleep: CachePadded::default(),
                wake,
            }),
            stack_bytes,
            stacks: RefCell::default(),
            slots: RefCell::default(),
            free_slots: RefCell::default(),
            live: Cell::new(0),
            panic_hook: RefCell::new(None),
            not_send: std::marker::PhantomData,
        }
    }

    /// Sets what is called when a coroutine panics. Without a hook the panic is only printed (by
    /// the process' panic hook); the worker and its other tasks go on either way.
    pub fn on_panic(&self, hook: PanicHook) {
        *self.panic_hook.borrow_mut() = Some(hook);
    }

    /// Makes a task that starts when [`run_ready`](Executor::run_ready) is called.
    ///
    /// # Panics
    /// When the system has no memory for a stack.
    pub fn spawn(&self, f: impl FnOnce() + 'static) -> Task {
        let (task, routine) = self.make(f);
        self.store(&task, routine);
        self.shared.with_local(|local| local.ready.push_back(task.clone()));
        task
    }

    /// Starts a task at once on this thread; `None` when it finished without parking.
    ///
    /// # Panics
    /// When the system has no memory for a stack.
    pub fn run_now(&self, f: impl FnOnce() + 'static) -> Option<Task> {
        self.shared.is_awake();
        let (task, routine) = self.make(f);
        self.resume(&task, routine).then_some(task)
    }

    /// Resumes every task that is ready now once, and returns how many. Tasks that become ready
    /// meanwhile wait for the next call.
    pub fn run_ready(&self) -> usize {
        self.shared.is_awake();
        self.shared.take_injected();
        self.shared.fire_timers();
        let ready = self.shared.with_local(|local| local.ready.len());
        for _ in 0..ready {
            let Some(task) = self.shared.with_local(|local| local.ready.pop_front()) else {
                break;
            };
            if let Some(routine) = self.take(&task) {
                self.resume(&task, routine);
            }
        }
        ready
    }

    /// Whether a task is ready. When it says no, the next cross-thread unpark calls `wake`.
    pub fn has_ready(&self) -> bool {
        self.shared.announce_sleep()
    }

    /// How long the worker may sleep, nanoseconds from now: 0 when a task is ready or its time is up, `None`
    /// when nothing limits it. Like [`has_ready`](Executor::has_ready) it arms `wake`.
    pub fn next_timeout_ns(&self) -> Option<u64> {
        if self.shared.announce_sleep() {
            return Some(0);
        }
        self.shared.with_local(|local| {
            while local.timers.peek().is_some_and(|Reverse(timer)| timer.is_stale()) {
                local.timers.pop();
            }
            let Reverse(timer) = local.timers.peek()?;
            Some(timer.deadline_ns.saturating_sub(clock::now_ns()))
        })
    }

    /// How many tasks have started or been spawned and not finished.
    pub fn live(&self) -> usize {
        self.live.get()
    }

    fn make(&self, f: impl FnOnce() + 'static) -> (Task, Routine) {
        let task = Task::new(Kind::Coroutine(Parker {
            shared: self.shared.clone(),
            state: AtomicU32::new(EMPTY),
            next: AtomicPtr::default(),
            yielder: AtomicPtr::default(),
            slot: AtomicUsize::new(NO_SLOT),
            park_number: AtomicU64::new(0),
            timed_out: AtomicBool::new(false),
        }));
        let pooled = self.stacks.borrow_mut().pop();
        let stack =
            pooled.unwrap_or_else(|| DefaultStack::new(self.stack_bytes).expect("no memory for a coroutine's stack"));
        self.live.set(self.live.get() + 1);
        // No handle in the closure: the one in CURRENT is the running task's.
        let routine = Coroutine::with_stack(stack, move |yielder, ()| {
            let me = CURRENT.get();
            // SAFETY: `resume` set CURRENT to this coroutine's task and holds it.
            if let Kind::Coroutine(parker) = unsafe { &(*me).kind } {
                parker.yielder.store(ptr::from_ref(yielder).cast_mut(), Ordering::Relaxed);
            }
            f();
        });
        (task, routine)
    }

    /// Runs the coroutine until it suspends (true) or ends (false).
    fn resume(&self, task: &Task, mut routine: Routine) -> bool {
        let outer = CURRENT.replace(Arc::as_ptr(&task.0));
        let result = catch_unwind(AssertUnwindSafe(|| routine.resume(())));
        CURRENT.set(outer);
        match result {
            Ok(CoroutineResult::Yield(())) => {
                self.store(task, routine);
                true
            }
            Ok(CoroutineResult::Return(())) => {
                self.finish(routine);
                false
            }
            Err(panic) => {
                self.finish(routine);
                if let Some(hook) = &*self.panic_hook.borrow() {
                    hook(task, panic);
                }
                false
            }
        }
    }

    fn finish(&self, routine: Routine) {
        self.live.set(self.live.get() - 1);
        let stack = routine.into_stack();
        let mut stacks = self.stacks.borrow_mut();
        if stacks.len() < POOLED_STACKS {
            stacks.push(stack);
        }
    }

    fn store(&self, task: &Task, routine: Routine) {
        let Kind::Coroutine(parker) = &task.0.kind else {
            return;
        };
        let mut slots = self.slots.borrow_mut();
        let slot = match self.free_slots.borrow_mut().pop() {
            Some(slot) => slot,
            None => {
                slots.push(None);
                slots.len() - 1
            }
        };
        slots[slot] = Some(routine);
        parker.slot.store(slot, Ordering::Relaxed);
    }

    fn take(&self, task: &Task) -> Option<Routine> {
        let Kind::Coroutine(parker) = &task.0.kind else {
            return None;
        };
        let slot = parker.slot.swap(NO_SLOT, Ordering::Relaxed);
        let routine = self.slots.borrow_mut().get_mut(slot)?.take();
        self.free_slots.borrow_mut().push(slot);
        routine
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        // Handles kept elsewhere keep `shared` alive; break the circle of queue and tasks.
        self.slots.get_mut().clear();
        self.shared.take_injected();
        let local = self.shared.with_local(std::mem::take);
        drop(local);
    }
}
