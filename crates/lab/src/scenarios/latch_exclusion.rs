//! Do the latch's modes keep each other out?

use super::threads;
use crate::scenario::Scenario;
use homenode_latch::Latch;
use homenode_platform::atomic::{AtomicU64, Ordering::SeqCst};
use homenode_platform::{lab, task};
use std::sync::Arc;

/// See the module's text.
pub const SCENARIO: Scenario = Scenario {
    name: "latch-exclusion",
    claim: "an exclusive holder is alone, and shared holders meet only each other",
    has_planted_bug: false,
    run: |trial| {
        trial.schedule(|| {
            let shared = Arc::new((Latch::new(), AtomicU64::new(0), AtomicU64::new(0)));
            threads(4, move |_| {
                let (latch, writers, readers) = &*shared;
                for _ in 0..10 {
                    match lab::choose(5) {
                        0 => latch.lock_exclusive(),
                        1 if !latch.try_lock_exclusive() => continue,
                        1 => {}
                        2 if !latch.try_upgrade(latch.optimistic()) => continue,
                        2 => {}
                        3 if !latch.try_lock_shared() => continue,
                        3 => {
                            share(writers, readers);
                            latch.unlock_shared();
                            continue;
                        }
                        _ => {
                            latch.lock_shared();
                            share(writers, readers);
                            latch.unlock_shared();
                            continue;
                        }
                    }
                    assert_eq!(writers.fetch_add(1, SeqCst), 0, "two exclusive holders");
                    assert_eq!(readers.load(SeqCst), 0, "an exclusive and a shared holder");
                    task::point();
                    assert_eq!(writers.fetch_sub(1, SeqCst), 1);
                    if lab::choose(3) == 0 {
                        latch.unlock_exclusive_unchanged();
                    } else {
                        latch.unlock_exclusive();
                    }
                }
            });
        })
    },
};

fn share(writers: &AtomicU64, readers: &AtomicU64) {
    readers.fetch_add(1, SeqCst);
    assert_eq!(writers.load(SeqCst), 0, "a shared and an exclusive holder");
    readers.fetch_sub(1, SeqCst);
}
