//! Does everybody who queues for a latch get it?

use super::threads;
use crate::scenario::Scenario;
use homenode_latch::{Latch, planted};
use homenode_platform::lab::{self, Config};
use homenode_platform::task;
use std::sync::Arc;

/// See the module's text. The planted bug, in the latch itself, queues without looking again whether
/// the holder has left meanwhile.
pub const SCENARIO: Scenario = Scenario {
    name: "latch-wakeups",
    claim: "no wake-up is lost: all threads get through, whatever they hold and however they wait",
    has_planted_bug: true,
    run: |trial| {
        planted::set(&planted::QUEUE_BLINDLY, trial.planted);
        // With one CPU nobody spins, so all contention goes through the queue.
        let config = Config { cpus: 1 + (trial.seed % 2) as usize, ..Config::new(trial.seed) };
        trial.schedule_with(&config, || {
            let latches = Arc::new([Latch::new(), Latch::new(), Latch::new()]);
            threads(5, move |_| {
                for _ in 0..12 {
                    let latch = &latches[lab::choose(latches.len())];
                    match lab::choose(3) {
                        0 => {
                            latch.lock_exclusive();
                            task::point();
                            latch.unlock_exclusive();
                        }
                        1 => {
                            latch.lock_shared();
                            task::yield_now();
                            latch.unlock_shared();
                        }
                        _ => assert!(latch.validate(latch.optimistic()) || lab::choose(2) < 2),
                    }
                }
            });
        })
    },
};
