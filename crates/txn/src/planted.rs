//! What if transactions were wrong? Bugs that the lab turns on to show that it would find them.

// Plain atomics: a switch is no part of the machine under test.
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A commit takes its timestamp and lets others run before it is announced, so that a snapshot of that very timestamp may find one of
/// its rows uncommitted and the next one committed.
pub static ANNOUNCE_LATE: AtomicBool = AtomicBool::new(false);

pub(crate) fn is_on(bug: &AtomicBool) -> bool {
    bug.load(Relaxed)
}
