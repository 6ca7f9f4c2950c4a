//! Is an unpark ever lost?

use crate::scenario::Scenario;
use homenode_platform::atomic::{AtomicU64, Ordering::SeqCst};
use homenode_platform::wait::WaitEvent;
use homenode_platform::{task, thread};
use std::sync::Arc;

const ROUNDS: u64 = 20;

/// See the module's text. The planted bug unparks before it sets what is waited for.
pub const SCENARIO: Scenario = Scenario {
    name: "task-permits",
    claim: "a task that checks its condition and parks is woken by an unpark at any moment",
    has_planted_bug: true,
    run: |trial| {
        let planted = trial.planted;
        trial.schedule(move || {
            let turn = Arc::new(AtomicU64::new(0));
            let theirs = turn.clone();
            let main = task::current();
            let other = thread::spawn("other", move || {
                for round in 0..ROUNDS {
                    if planted {
                        main.unpark();
                    }
                    theirs.store(round + 1, SeqCst);
                    if !planted {
                        main.unpark();
                    }
                }
            });
            for round in 0..ROUNDS {
                while turn.load(SeqCst) <= round {
                    task::park(WaitEvent::Extension);
                }
            }
            other.join();
        })
    },
};
