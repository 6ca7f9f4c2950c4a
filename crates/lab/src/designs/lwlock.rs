//! PostgreSQL's lightweight lock: a word of shared count and exclusive bit, and a list of waiters that sleep.
//!
//! *Unfair*, as it is: whoever comes may share the lock while others share it, whoever waits (Tikhonov et al., "PostgreSQL on
//! a multi-node machine", Postgres Professional 2018: an exclusive waiter waits without bound). *Fair*, as Korotkov proposed
//! there: a sharer that finds a waiter in the list queues behind it.

use homenode_platform::atomic::{AtomicBool, AtomicU32, Ordering};
use homenode_platform::task::{self, Task};
use homenode_platform::wait::WaitEvent;
use std::cell::UnsafeCell;
use std::collections::VecDeque;

const EXCLUSIVE: u32 = 1 << 24;
const SHARED: u32 = 1;
const HAS_WAITERS: u32 = 1 << 30;
/// Somebody was woken and has not tried yet: the lock is as good as taken.
const HANDED: u32 = 1 << 29;
const COUNTS: u32 = (1 << 25) - 1;

/// How the lock is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// With others.
    Shared,
    /// Alone.
    Exclusive,
}

/// Who tries to take it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    /// Somebody who just came.
    New,
    /// Somebody who entered the list a moment ago: whoever holds the lock sees that, but it may have become free before.
    Listed,
    /// Somebody who was woken.
    Woken,
}

struct Waiter {
    mode: Mode,
    task: Task,
}

/// The lock. Its word and list lie where the structure puts them, which is what the descriptor designs are about.
#[repr(C)]
pub struct LwLock {
    state: AtomicU32,
    /// The list's own spin bit.
    list: AtomicBool,
    fair: bool,
    waiters: UnsafeCell<VecDeque<Waiter>>,
}

// SAFETY: the list is touched only by who holds `list`, so by one at a time.
unsafe impl Sync for LwLock {}
// SAFETY: as above; tasks may be sent.
unsafe impl Send for LwLock {}

impl LwLock {
    /// A free lock.
    pub fn new(fair: bool) -> LwLock {
        LwLock {
            state: AtomicU32::new(0),
            list: AtomicBool::new(false),
            fair,
            waiters: UnsafeCell::new(VecDeque::new()),
        }
    }

    fn attempt(&self, mode: Mode, turn: Turn) -> bool {
        let mut now = self.state.load(Ordering::Relaxed);
        loop {
            let free = match mode {
                Mode::Exclusive => now & COUNTS == 0,
                Mode::Shared if !self.fair || turn == Turn::Woken => now & EXCLUSIVE == 0,
                Mode::Shared if turn == Turn::Listed => now & (COUNTS | HANDED) == 0,
                Mode::Shared => now & (EXCLUSIVE | HAS_WAITERS) == 0,
            };
            if !free {
                return false;
            }
            let add = if mode == Mode::Exclusive { EXCLUSIVE } else { SHARED };
            let next = if turn == Turn::Woken { (now + add) & !HANDED } else { now + add };
            match self.state.compare_exchange(now, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
    }

    fn with_list<R>(&self, f: impl FnOnce(&mut VecDeque<Waiter>) -> R) -> R {
        let mut turn = 0;
        while self.list.swap(true, Ordering::Acquire) {
            task::spin_hint(turn);
            turn += 1;
        }
        // SAFETY: the bit was clear and is ours now; the borrow ends before it is cleared.
        let result = f(unsafe { &mut *self.waiters.get() });
        self.list.store(false, Ordering::Release);
        result
    }

    /// Takes the lock, sleeping if need be.
    pub fn lock(&self, mode: Mode) {
        let mut turn = Turn::New;
        while !self.attempt(mode, turn) {
            let me = task::current();
            self.with_list(|waiters| {
                let waiter = Waiter { mode, task: me.clone() };
                if turn == Turn::Woken {
                    waiters.push_front(waiter);
                    self.state.fetch_and(!HANDED, Ordering::AcqRel);
                } else {
                    waiters.push_back(waiter)
                }
                self.state.fetch_or(HAS_WAITERS, Ordering::AcqRel);
            });
            // Once more: the holder may have gone before it could see us.
            if self.attempt(mode, if turn == Turn::Woken { turn } else { Turn::Listed }) {
                self.leave(&me);
                return;
            }
            self.sleep(&me);
            turn = Turn::Woken;
        }
    }

    /// Sleeps until a release took us off the list.
    fn sleep(&self, me: &Task) {
        loop {
            task::park(WaitEvent::Extension);
            if self.with_list(|waiters| waiters.iter().all(|waiter| waiter.task.id() != me.id())) {
                return;
            }
        }
    }

    fn leave(&self, me: &Task) {
        self.with_list(|waiters| {
            waiters.retain(|waiter| waiter.task.id() != me.id());
            if waiters.is_empty() {
                self.state.fetch_and(!HAS_WAITERS, Ordering::AcqRel);
            }
        });
    }

    /// Gives the lock up, and wakes those who can have it: one who wants it alone, or all who share it.
    pub fn unlock(&self, mode: Mode) {
        let sub = if mode == Mode::Exclusive { EXCLUSIVE } else { SHARED };
        let now = self.state.fetch_sub(sub, Ordering::AcqRel) - sub;
        if now & HAS_WAITERS == 0 || now & COUNTS != 0 {
            return;
        }
        let woken: Vec<Task> = self.with_list(|waiters| {
            let mut woken = Vec::new();
            while let Some(first) = waiters.front() {
                if first.mode == Mode::Exclusive && !woken.is_empty() {
                    break;
                }
                let first = waiters.pop_front().expect("it is there");
                woken.push(first.task);
                if first.mode == Mode::Exclusive {
                    break;
                }
            }
            if waiters.is_empty() {
                self.state.fetch_and(!HAS_WAITERS, Ordering::AcqRel);
            }
            if !woken.is_empty() {
                self.state.fetch_or(HANDED, Ordering::AcqRel);
            }
            woken
        });
        woken.iter().for_each(Task::unpark);
    }
}
