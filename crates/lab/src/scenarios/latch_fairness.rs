//! Can shared holders that keep coming starve an exclusive waiter?

use super::threads;
use crate::scenario::Scenario;
use homenode_latch::{Latch, MAX_OVERTAKES, planted};
use homenode_platform::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use homenode_platform::sync::Mutex;
use homenode_platform::task::{self, Task};
use homenode_platform::wait::WaitEvent;
use std::sync::Arc;

#[derive(Default)]
struct Shared {
    latch: Latch,
    waiter: Mutex<Option<Task>>,
    /// How often the waiter has got the latch.
    turn: AtomicU64,
    /// Shared holds asked for after the waiter was seen parked, and got before its turn.
    overtakes: AtomicU64,
    done: AtomicBool,
}

/// See the module's text. The planted bug, in the latch itself, lets newcomers in regardless.
pub const SCENARIO: Scenario = Scenario {
    name: "latch-fairness",
    claim: "a parked exclusive waiter is overtaken at most a fixed number of times",
    has_planted_bug: true,
    run: |trial| {
        planted::set(&planted::IGNORE_WAITERS, trial.planted);
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
        shared.turn.fetch_add(1, SeqCst);
        let overtakes = shared.overtakes.swap(0, SeqCst);
        shared.latch.unlock_exclusive();
        assert!(overtakes <= u64::from(MAX_OVERTAKES), "overtaken {overtakes} times");
    }
    shared.done.store(true, SeqCst);
}

fn flood(shared: &Shared) {
    while !shared.done.load(SeqCst) {
        let waiter = shared.waiter.lock().clone();
        // The event is set after queueing, so who asks from here on is a newcomer to this turn.
        let turn = shared.turn.load(SeqCst);
        let waits = waiter.is_some_and(|task| task.wait_event() == WaitEvent::LatchExclusive);
        shared.latch.lock_shared();
        // We hold the latch: the turn cannot end between the comparison and the count.
        if waits && shared.turn.load(SeqCst) == turn {
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
