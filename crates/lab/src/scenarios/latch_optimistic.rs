//! Do optimistic readers ever trust what a writer was changing?

use super::threads;
use crate::scenario::Scenario;
use homenode_latch::Latch;
use homenode_platform::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

#[derive(Default)]
struct Pair {
    latch: Latch,
    a: AtomicU64,
    b: AtomicU64,
}

/// See the module's text. The planted bug is a reader that does not validate.
pub const SCENARIO: Scenario = Scenario {
    name: "latch-optimistic",
    claim: "a validated optimistic read is of one version, and an upgrade of the version it read",
    has_planted_bug: true,
    run: |trial| {
        let planted = trial.planted;
        trial.schedule(move || {
            let pair = Arc::new(Pair::default());
            let theirs = pair.clone();
            threads(4, move |number| {
                for _ in 0..10 {
                    if number < 2 { write(&theirs, number) } else { read(&theirs, planted) }
                }
            });
            let total = pair.a.load(Relaxed);
            assert_eq!((total, pair.b.load(Relaxed)), (20, 20), "an update was lost");
        })
    },
};

fn write(pair: &Pair, number: usize) {
    if number == 0 {
        pair.latch.lock_exclusive();
        let next = pair.a.load(Relaxed) + 1;
        return finish(pair, next);
    }
    loop {
        // What was read before the upgrade must still be true after it.
        let version = pair.latch.optimistic();
        let next = pair.a.load(Relaxed) + 1;
        if pair.latch.try_upgrade(version) {
            return finish(pair, next);
        }
    }
}

fn finish(pair: &Pair, next: u64) {
    pair.a.store(next, Relaxed);
    pair.b.store(next, Relaxed);
    pair.latch.unlock_exclusive();
}

fn read(pair: &Pair, planted: bool) {
    let version = pair.latch.optimistic();
    let (a, b) = (pair.a.load(Relaxed), pair.b.load(Relaxed));
    if planted || pair.latch.validate(version) {
        assert_eq!(a, b, "a torn pair was trusted");
    }
}
