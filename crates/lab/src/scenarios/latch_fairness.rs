//! Can shared holders that keep coming starve an exclusive waiter?

use super::threads;
use crate::scenario::Scenario;
use homenode_latch::{Latch, MAX_OVERTAKES};
use homenode_platform::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use homenode_platform::sync::Mutex;
use homenode_platform::task::{self, Task};
use homenode_platform::wait::WaitEvent;
use std::sync::Arc;

#[derive(Default)]
struct Shared {
    latch: Latch,
    waiter: Mutex<Option<Task>>,
    /// Shared holds asked for and got since the waiter was seen parked.
    overtakes: AtomicU64,
    done: AtomicBool,
}

/// See the module's text.
pub const SCENARIO: Scenario = Scenario {
    name: "latch-fairness",
    claim: "a parked exclusive waiter is overtaken at most a fixed number of times",
    has_planted_bug: false,
    run: |trial| {
        trial.schedule(|| {
            let shared = Arc::new(Shared::default());
            threads(4, move |number| if number == 0 { wait_often(&shared) } else { flood(&shared) });
        })
    },
};

fn wait_often(shared: &Shared) {
    *shared.waiter.lock() = Some(task::current());
    for _ in 0..5 {
        shared.latch.lock_exclusive();
        let overtakes = shared.overtakes.swap(0, SeqCst);
        shared.latch.unlock_exclusive();
        assert!(overtakes <= u64::from(MAX_OVERTAKES), "overtaken {overtakes} times");
    }
    shared.done.store(true, SeqCst);
}

fn flood(shared: &Shared) {
    while !shared.done.load(SeqCst) {
        let waiter = shared.waiter.lock().clone();
        // The event is set after queueing; nothing switches between this look and the lock's.
        let waits = waiter.is_some_and(|task| task.wait_event() == WaitEvent::LatchExclusive);
        shared.latch.lock_shared();
        // The waiter cannot have got in between the grant and this count: we hold the latch.
        if waits {
            shared.overtakes.fetch_add(1, SeqCst);
        }
        let overlapping = shared.latch.try_lock_shared();
        shared.latch.unlock_shared();
        if overlapping {
            shared.latch.unlock_shared();
        }
        task::spin_hint(0);
    }
}
