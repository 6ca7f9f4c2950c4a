//! What if the engine were wrong? Bugs that the lab turns on to show that it would find them.

// Plain atomics: a switch is no part of the machine under test.
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

pub use homenode_txn::planted::ANNOUNCE_LATE;

/// A commit returns without waiting for its record to become durable.
pub static PROMISE_EARLY: AtomicBool = AtomicBool::new(false);

/// Turns a bug on or off.
pub fn set(bug: &AtomicBool, on: bool) {
    bug.store(on, Relaxed);
}

pub(crate) fn is_on(bug: &AtomicBool) -> bool {
    bug.load(Relaxed)
}
