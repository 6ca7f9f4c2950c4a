//! May a latch come to guard something else while tasks still want what it guarded?

use super::threads;
use crate::scenario::Scenario;
use homenode_latch::{Latch, planted};
use homenode_platform::atomic::{AtomicU64, Ordering};
use homenode_platform::lab::{self, Config};
use homenode_platform::task;
use std::sync::Arc;

const OLD_PAGE: u64 = 1;
const NEW_PAGE: u64 = 2;

/// A frame as the pool has it, reduced to what matters here.
#[derive(Default)]
struct Frame {
    latch: Latch,
    page: AtomicU64,
}

/// The frame, and a page that stays where it is.
#[derive(Default)]
struct Machine {
    frame: Frame,
    other: Latch,
}

/// See the module's text. The planted bug, in the latch itself, asks whether the frame still holds the
/// page before it sets the waiters bit.
pub const SCENARIO: Scenario = Scenario {
    name: "latch-reuse",
    claim: "nobody queues for a frame that holds another page by then, so page latches close no circle",
    has_planted_bug: true,
    run: |trial| {
        planted::set(&planted::ASK_EARLY, trial.planted);
        let config = Config { cpus: 1 + (trial.seed % 2) as usize, ..Config::new(trial.seed) };
        trial.schedule_with(&config, || {
            for _ in 0..4 {
                let machine = Arc::new(Machine::default());
                machine.frame.page.store(OLD_PAGE, Ordering::Relaxed);
                threads(4, move |number| match number {
                    0 => reuse(&machine),
                    _ => want_old_page(&machine, lab::choose(3)),
                });
            }
        })
    },
};

/// Evicts the old page, gives the frame the new one, and wants the other page while holding that.
fn reuse(machine: &Machine) {
    let Machine { frame, other } = machine;
    frame.latch.lock_exclusive();
    frame.page.store(0, Ordering::Release);
    frame.latch.unlock_exclusive();
    while !frame.latch.try_upgrade(frame.latch.optimistic()) {
        task::yield_now();
    }
    frame.page.store(NEW_PAGE, Ordering::Release);
    other.lock_exclusive();
    other.unlock_exclusive();
    frame.latch.unlock_exclusive();
}

/// Holds the other page and wants the old one, for as long as the frame holds that.
fn want_old_page(machine: &Machine, how: usize) {
    let Machine { frame, other } = machine;
    let holds_it = || frame.page.load(Ordering::Acquire) == OLD_PAGE;
    other.lock_shared();
    match how {
        0 if frame.latch.lock_exclusive_if(holds_it) => frame.latch.unlock_exclusive_unchanged(),
        1 if frame.latch.lock_shared_if(holds_it) => frame.latch.unlock_shared(),
        2 => assert!(frame.latch.optimistic_if(holds_it).is_some() || !holds_it()),
        _ => assert!(!holds_it(), "refused although the frame holds the page"),
    }
    other.unlock_shared();
}
