//! How does a background thread sleep so that waking it costs nothing while it is awake?

use homenode_platform::atomic::{AtomicU32, Ordering, fence};
use homenode_platform::sync::Mutex;
use homenode_platform::task::{self, Task};
use homenode_platform::wait::WaitEvent;

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

/// The sleeping place of one thread.
///
/// Whoever gives it work publishes the work first and calls [`wake`](Sleeper::wake) then. The thread
/// says that it is asleep first and looks for work then. The sequentially consistent fence between
/// the two steps on both sides makes sure that one of them sees the other (Dekker's argument).
pub(crate) struct Sleeper {
    state: AtomicU32,
    task: Mutex<Option<Task>>,
}

impl Sleeper {
    pub(crate) fn new() -> Sleeper {
        Sleeper { state: AtomicU32::new(AWAKE), task: Mutex::new(None) }
    }

    /// Names the calling thread as the one that sleeps here; before its first sleep.
    pub(crate) fn adopt(&self) {
        *self.task.lock() = Some(task::current());
    }

    /// Wakes the thread if it sleeps: one fence and one load if it does not.
    #[inline]
    pub(crate) fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.state.load(Ordering::Relaxed) == ASLEEP {
            self.wake_sleeping();
        }
    }

    #[cold]
    fn wake_sleeping(&self) {
        if self.state.swap(AWAKE, Ordering::AcqRel) == ASLEEP {
            let task = self.task.lock().clone();
            task.expect("a thread that sleeps was adopted").unpark();
        }
    }

    /// Sleeps until woken or until `timeout_ns` passed, unless `has_work` already. May end early.
    pub(crate) fn sleep(&self, timeout_ns: Option<u64>, has_work: impl FnOnce() -> bool) {
        self.state.store(ASLEEP, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !has_work() {
            match timeout_ns {
                None => task::park(WaitEvent::None),
                Some(timeout_ns) => {
                    task::park_timeout(WaitEvent::None, timeout_ns);
                }
            }
        }
        self.state.store(AWAKE, Ordering::Relaxed);
    }
}
