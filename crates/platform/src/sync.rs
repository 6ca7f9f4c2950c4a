//! How is a short critical section guarded? A mutex that parks the task, not the thread. And what is made once: `OnceLock`.
//!
//! For slow paths and start-up only: hot paths share nothing or use latches.

use crate::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::task::{self, Task};
use crate::wait::WaitEvent;
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut};

#[cfg(homenode_lab)]
pub use crate::lab::OnceLock;
#[cfg(not(homenode_lab))]
pub use std::sync::OnceLock;

const LOCKED: u32 = 1;
const WAITERS: u32 = 2;
/// Below the number at which `spin_hint` starts to give the CPU away.
const SPINS: u32 = 10;

/// Mutual exclusion for tasks. Never poisoned: a panic in the critical section just unlocks.
///
/// An unlocked mutex may be taken by a newcomer before a woken waiter, but a waiter that lost once
/// goes to the front of the queue.
pub struct Mutex<T: ?Sized> {
    state: AtomicU32,
    queue: Queue,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a guard, of which there is one at a time; handing it
// to another thread needs T: Send, as for std's mutex.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

/// The waiting tasks, behind a spin bit. A standard mutex would do, but inside the lab nothing may
/// block the one OS thread, so the bit is a platform atomic.
struct Queue {
    busy: AtomicBool,
    tasks: UnsafeCell<VecDeque<Task>>,
}

impl Queue {
    fn with<R>(&self, f: impl FnOnce(&mut VecDeque<Task>) -> R) -> R {
        let mut attempt = 0;
        // Acquire pairs with the release below: the previous holder's changes are seen.
        while self.busy.swap(true, Ordering::Acquire) {
            task::spin_hint(attempt);
            attempt += 1;
        }
        // SAFETY: `busy` was false and is now true by our swap, so no one else is in here; the
        // closure's borrow ends before it is cleared.
        let result = f(unsafe { &mut *self.tasks.get() });
        self.busy.store(false, Ordering::Release);
        result
    }
}

impl<T> Mutex<T> {
    /// An unlocked mutex around `value`.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex {
            state: AtomicU32::new(0),
            queue: Queue { busy: AtomicBool::new(false), tasks: UnsafeCell::new(VecDeque::new()) },
            value: UnsafeCell::new(value),
        }
    }

    /// The value, when nobody else holds the mutex any more.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until the mutex is free and takes it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        // Acquire pairs with the release in unlock.
        if self.state.compare_exchange(0, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.lock_slow();
        }
        MutexGuard { mutex: self }
    }

    /// Takes the mutex if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        // Lazily: a guard made in vain would unlock the other holder's mutex when dropped.
        self.try_take().then(|| MutexGuard { mutex: self })
    }

    /// The value, without locking: the exclusive borrow proves that nobody else has it.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    fn try_take(&self) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        state & LOCKED == 0
            && self.state.compare_exchange(state, state | LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn lock_slow(&self) {
        for attempt in 0..SPINS {
            if self.try_take() {
                return;
            }
            if self.state.load(Ordering::Relaxed) & WAITERS != 0 {
                break;
            }
            task::spin_hint(attempt);
        }
        let me = task::current();
        let mut lost_before = false;
        loop {
            let queued = self.queue.with(|tasks| {
                // Under the queue's bit: unlock looks at the queue only after it saw WAITERS, so
                // either the bit is set before it unlocks, or we see it unlocked here.
                let before = self.state.fetch_or(WAITERS, Ordering::Relaxed);
                if before & LOCKED == 0 && self.try_take() {
                    if tasks.is_empty() {
                        self.state.fetch_and(!WAITERS, Ordering::Relaxed);
                    }
                    return false;
                }
                if lost_before {
                    tasks.push_front(me.clone())
                } else {
                    tasks.push_back(me.clone())
                }
                true
            });
            if !queued {
                return;
            }
            self.wait_for_turn(&me);
            if self.try_take() {
                return;
            }
            lost_before = true;
        }
    }

    /// Parks until unlock took us off the queue; a spurious wake-up must not queue us twice.
    fn wait_for_turn(&self, me: &Task) {
        loop {
            task::park(WaitEvent::Mutex);
            if self.queue.with(|tasks| tasks.iter().all(|task| task.id() != me.id())) {
                return;
            }
        }
    }

    #[cold]
    fn unlock_slow(&self) {
        let next = self.queue.with(|tasks| {
            let next = tasks.pop_front();
            // Release publishes the critical section to the next one that takes the mutex.
            if tasks.is_empty() {
                self.state.store(0, Ordering::Release);
            } else {
                self.state.fetch_and(!LOCKED, Ordering::Release);
            }
            next
        });
        if let Some(task) = next {
            task.unpark();
        }
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Mutex<T> {
        Mutex::new(T::default())
    }
}

impl<T: ?Sized> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").finish_non_exhaustive()
    }
}

/// The right to use a [`Mutex`]'s value; unlocks when dropped.
#[must_use = "dropping the guard unlocks"]
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
}

// SAFETY: a shared guard only gives &T. (A guard may also be sent: the mutex has no owner thread.)
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard proves that the mutex is ours.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard proves that the mutex is ours, and it is borrowed exclusively.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let state = &self.mutex.state;
        // Release pairs with the acquire in lock.
        if state.compare_exchange(LOCKED, 0, Ordering::Release, Ordering::Relaxed).is_err() {
            self.mutex.unlock_slow();
        }
    }
}
