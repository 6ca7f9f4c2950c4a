//! How is something made once and then only read, on the simulated machine? The standard library's `OnceLock`, in its own terms.
//!
//! The standard one would stop the whole machine when a virtual thread finds another one making the value, and its reads would cost
//! nothing.

use super::atomic::{AtomicU32, Ordering};
use super::task;
use std::cell::UnsafeCell;
use std::fmt;

const EMPTY: u32 = 0;
const MAKING: u32 = 1;
const READY: u32 = 2;

/// As std's.
pub struct OnceLock<T> {
    state: AtomicU32,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: the value is written by the one thread that moved the state from EMPTY to MAKING, and read by others only once the state
// is READY, after which it never changes; it may be made by one thread and dropped by another, hence T: Send.
unsafe impl<T: Send + Sync> Sync for OnceLock<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for OnceLock<T> {}

impl<T> OnceLock<T> {
    /// As std's.
    pub const fn new() -> OnceLock<T> {
        OnceLock { state: AtomicU32::new(EMPTY), value: UnsafeCell::new(None) }
    }

    /// As std's.
    #[track_caller]
    pub fn get(&self) -> Option<&T> {
        match self.state.load(Ordering::Acquire) {
            // SAFETY: the state is READY: nobody writes any more.
            READY => unsafe { (*self.value.get()).as_ref() },
            _ => None,
        }
    }

    /// As std's.
    ///
    /// # Errors
    /// The value, if there is one already or another thread is making it.
    #[track_caller]
    pub fn set(&self, value: T) -> Result<(), T> {
        if self.state.compare_exchange(EMPTY, MAKING, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return Err(value);
        }
        self.publish(value);
        Ok(())
    }

    /// As std's: while one thread makes the value, others wait.
    #[track_caller]
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        let mut turn = 0;
        let mut make = Some(make);
        loop {
            if let Some(value) = self.get() {
                return value;
            }
            if self.state.compare_exchange(EMPTY, MAKING, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                // A panic of a virtual thread ends the run: nobody finds the state left as it is.
                self.publish(make.take().expect("the state was empty once only")());
            } else {
                task::spin_hint(turn);
                turn += 1;
            }
        }
    }

    fn publish(&self, value: T) {
        // SAFETY: only who moved the state from EMPTY to MAKING comes here, and nobody reads before READY.
        unsafe { *self.value.get() = Some(value) };
        self.state.store(READY, Ordering::Release);
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> OnceLock<T> {
        OnceLock::new()
    }
}

impl<T> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceLock").finish_non_exhaustive()
    }
}
