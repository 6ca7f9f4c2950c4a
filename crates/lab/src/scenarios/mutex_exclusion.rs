//! Does the task mutex exclude, and let everybody in?

use super::threads;
use crate::scenario::Scenario;
use homenode_platform::atomic::{AtomicU64, Ordering::SeqCst};
use homenode_platform::lab::{self, Config};
use homenode_platform::sync::Mutex;
use homenode_platform::task;
use std::sync::Arc;

/// See the module's text.
pub const SCENARIO: Scenario = Scenario {
    name: "mutex-exclusion",
    claim: "one task at a time is in a critical section, and none waits for ever",
    has_planted_bug: false,
    run: |trial| {
        let config = Config { cpus: 1 + (trial.seed % 2) as usize, ..Config::new(trial.seed) };
        trial.schedule_with(&config, || {
            let shared = Arc::new((Mutex::new(0u64), AtomicU64::new(0)));
            let theirs = shared.clone();
            threads(4, move |_| {
                let (mutex, inside) = &*theirs;
                for _ in 0..15 {
                    let mut count = match mutex.try_lock() {
                        Some(guard) => guard,
                        None => mutex.lock(),
                    };
                    assert_eq!(inside.fetch_add(1, SeqCst), 0, "two in a critical section");
                    *count += 1;
                    if lab::choose(2) == 0 {
                        task::yield_now();
                    }
                    assert_eq!(inside.fetch_sub(1, SeqCst), 1);
                }
            });
            assert_eq!(*shared.0.lock(), 60);
        })
    },
};
