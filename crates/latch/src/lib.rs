//! Who may touch this now? Optimistic, shared and exclusive page latches with a fair queue.
//!
//! A [`Latch`] is one 8-byte word: a version that every exclusive holder advances, who holds it, and
//! whether somebody waits. *Optimistic* readers write nothing: they note the version, read (through
//! `homenode_platform::bytes`), and check that the version is still the same (Lameter's seqlocks;
//! Leis et al., "Optimistic lock coupling", IEEE Data Eng. Bull. 2019). *Shared* holders, counted in the
//! word, keep exclusive ones out; optimistic readers ignore them.
//!
//! Who cannot get in queues in a table keyed by the latch's address (as parking_lot does), first come
//! first served. Newcomers may overtake the first waiter so that the latch is not idle for the time a
//! wake-up takes: those that share it at most [`MAX_OVERTAKES`] times, since they can keep it held for
//! ever between them (Korotkov's fair lightweight lock for PostgreSQL); those that want it alone until
//! the waiter, once woken, runs: its worker may have other tasks first, and a hot page would be idle
//! meanwhile. A waiter that runs and still finds the latch held waits awake, and gets it next.

mod parking;
mod word;

use homenode_platform::atomic::{AtomicU64, Ordering, fence};
use homenode_platform::task;
use homenode_platform::wait::WaitEvent;
pub use word::MAX_OVERTAKES;
use word::{Mode, Word};

/// A state of the latched data, to be compared with a later one. Never equal across an exclusive
/// hold that changed something (until 2^44 such holds have passed).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Version(u64);

/// A pause between two looks at a word: doubling, a few microseconds at most.
fn pause(attempt: u32) {
    task::spin_hint(attempt.min(LONGEST_PAUSE));
}

/// From the next one on `spin_hint` gives the CPU away.
const LONGEST_PAUSE: u32 = 11;

/// An optimistic, shared and exclusive latch in 8 bytes. Not recursive.
///
/// The latch may be moved or dropped only while nobody holds or waits for it.
#[derive(Default)]
#[repr(transparent)]
pub struct Latch {
    word: AtomicU64,
}

impl Latch {
    /// A latch that nobody holds.
    pub const fn new() -> Latch {
        Latch { word: AtomicU64::new(0) }
    }

    /// The version to read under; `None` while exclusively held. Writes nothing.
    #[inline]
    pub fn try_optimistic(&self) -> Option<Version> {
        // Acquire pairs with the release in unlock_exclusive: the data of that version are seen.
        let word = Word(self.word.load(Ordering::Acquire));
        (!word.is_exclusive()).then_some(Version(word.version()))
    }

    /// The version to read under, after waiting, fairly, until nobody holds the latch exclusively.
    #[inline]
    pub fn optimistic(&self) -> Version {
        self.try_optimistic().or_else(|| self.optimistic_slow(&always)).expect("the condition is always true")
    }

    /// As [`optimistic`](Latch::optimistic), but queues only if `valid` holds then; `None` if not.
    /// See [`lock_exclusive_if`](Latch::lock_exclusive_if).
    #[inline]
    pub fn optimistic_if(&self, valid: impl Fn() -> bool) -> Option<Version> {
        self.try_optimistic().or_else(|| self.optimistic_slow(&valid))
    }

    #[cold]
    fn optimistic_slow(&self, valid: &dyn Fn() -> bool) -> Option<Version> {
        for attempt in 0..task::spin_turns() {
            pause(attempt);
            if let Some(version) = self.try_optimistic() {
                return Some(version);
            }
        }
        // Queue as a shared holder would: fair, and only this slow path writes the word.
        if !self.lock_shared_if(valid) {
            return None;
        }
        let version = Version(Word(self.word.load(Ordering::Relaxed)).version());
        self.unlock_shared();
        Some(version)
    }

    /// Whether the data read since `version` was taken are of that version.
    #[inline]
    #[must_use]
    pub fn validate(&self, version: Version) -> bool {
        // The data were loaded relaxed before this fence. If one of those loads saw a store made under
        // a later exclusive hold, the fence pairs with the release fence in `acquired_exclusive`, and
        // the load below sees that hold's bit or a newer word (Boehm 2012, section 4).
        fence(Ordering::Acquire);
        let word = Word(self.word.load(Ordering::Relaxed));
        #[cfg(homenode_lab)]
        if planted::is_on(&planted::TRUST_READERS) {
            return true;
        }
        word.is_readable_at(version.0)
    }

    /// From optimistic to exclusive, if nothing changed since `version`, nobody shares the latch and
    /// nobody waits for it.
    #[inline]
    #[must_use]
    pub fn try_upgrade(&self, version: Version) -> bool {
        let free = Word::free_at(version.0);
        // Acquire as in lock_exclusive; besides, it validates what was read before: the compared
        // word has the version and no exclusive bit. The fence orders those earlier loads before it.
        fence(Ordering::Acquire);
        let taken = self.word.compare_exchange(free.0, free.with_exclusive().0, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok() && acquired_exclusive()
    }

    /// Waits until nobody holds the latch and takes it exclusively.
    #[inline]
    pub fn lock_exclusive(&self) {
        let _ = self.lock_exclusive_if(always);
    }

    /// As [`lock_exclusive`](Latch::lock_exclusive), but queues only if `valid` holds then. False: it
    /// did not, and the latch is not held. True: the latch is held; `valid` was true when the
    /// caller queued, if it had to, and may be false by now.
    ///
    /// For latches that come to guard something else over time (a pool's frames). `valid` is asked with
    /// the waiters bit already set in the latch's word. So if someone makes it false under the
    /// exclusive latch, releases that, and goes on with [`try_upgrade`](Latch::try_upgrade), which
    /// fails while that bit is set, then either this call sees the change and does not queue, or
    /// the upgrade fails until this caller has had its turn.
    #[inline]
    #[must_use]
    pub fn lock_exclusive_if(&self, valid: impl Fn() -> bool) -> bool {
        self.try_lock_exclusive() || self.lock_slow(Mode::Exclusive, &valid)
    }

    /// Takes the latch exclusively if that is possible at once.
    #[inline]
    #[must_use]
    pub fn try_lock_exclusive(&self) -> bool {
        self.try_take(Mode::Exclusive)
    }

    /// Gives up an exclusive hold that may have changed the data: the version advances.
    #[inline]
    pub fn unlock_exclusive(&self) {
        // Release publishes the data with the new version.
        let before = self.word.fetch_add(word::VERSION_STEP - word::EXCLUSIVE, Ordering::Release);
        self.after_unlock(Word(before));
    }

    /// Gives up an exclusive hold that changed nothing: optimistic readers stay valid.
    #[inline]
    pub fn unlock_exclusive_unchanged(&self) {
        let before = self.word.fetch_sub(word::EXCLUSIVE, Ordering::Release);
        self.after_unlock(Word(before));
    }

    /// Waits until nobody holds the latch exclusively and takes it shared.
    #[inline]
    pub fn lock_shared(&self) {
        let _ = self.lock_shared_if(always);
    }

    /// As [`lock_exclusive_if`](Latch::lock_exclusive_if), shared.
    #[inline]
    #[must_use]
    pub fn lock_shared_if(&self, valid: impl Fn() -> bool) -> bool {
        self.try_lock_shared() || self.lock_slow(Mode::Shared, &valid)
    }

    /// Takes the latch shared if that is possible at once.
    #[inline]
    #[must_use]
    pub fn try_lock_shared(&self) -> bool {
        self.try_take(Mode::Shared)
    }

    /// Gives up a shared hold.
    #[inline]
    pub fn unlock_shared(&self) {
        // Release: our reads are over before an exclusive holder, who acquires, writes.
        let before = Word(self.word.fetch_sub(word::SHARED_STEP, Ordering::Release));
        debug_assert!(before.shared() > 0, "unlock_shared without a shared hold");
        if before.shared() == 1 {
            self.after_unlock(before);
        }
    }

    /// Whether somebody holds the latch exclusively now.
    #[inline]
    pub fn is_exclusive(&self) -> bool {
        Word(self.word.load(Ordering::Relaxed)).is_exclusive()
    }

    #[inline]
    fn try_take(&self, mode: Mode) -> bool {
        let mut word = Word(self.word.load(Ordering::Relaxed));
        while let Some(taken) = word.taken_by_newcomer(mode) {
            // Acquire pairs with the releases in the unlocks: what earlier holders did is seen.
            match self.word.compare_exchange_weak(word.0, taken.0, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return mode == Mode::Shared || acquired_exclusive(),
                Err(now) => word = Word(now),
            }
        }
        false
    }

    /// False if it would have had to queue while `valid` did not hold.
    #[cold]
    fn lock_slow(&self, mode: Mode, valid: &dyn Fn() -> bool) -> bool {
        for attempt in 0..task::spin_turns() {
            pause(attempt);
            if self.try_take(mode) {
                return true;
            }
        }
        let event = match mode {
            Mode::Shared => WaitEvent::LatchShared,
            Mode::Exclusive => WaitEvent::LatchExclusive,
        };
        parking::wait(&self.word, mode, event, valid) && (mode == Mode::Shared || acquired_exclusive())
    }

    #[inline]
    fn after_unlock(&self, before: Word) {
        if before.needs_wake() {
            parking::wake(&self.word);
        }
    }
}

fn always() -> bool {
    true
}

/// Orders the taking of an exclusive hold before the holder's (relaxed) stores to the data, for
/// `validate`'s fence to pair with. Always true, to end a condition with.
#[inline(always)]
fn acquired_exclusive() -> bool {
    fence(Ordering::Release);
    true
}

impl std::fmt::Debug for Latch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Word(self.word.load(Ordering::Relaxed)).fmt(f)
    }
}

#[cfg(homenode_lab)]
pub mod planted {
    //! What if the latch were wrong? Bugs that the lab turns on to show that it would find them.

    // Plain atomics: a switch is no part of the machine under test.
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    /// A waiter sets the waiters bit whatever the word says by now, so that it may queue for a latch
    /// that nobody holds, and sleep for ever.
    pub static QUEUE_BLINDLY: AtomicBool = AtomicBool::new(false);

    /// Newcomers are let in however often the first waiter has been overtaken.
    pub static IGNORE_WAITERS: AtomicBool = AtomicBool::new(false);

    /// Whether to queue is asked before the waiters bit is set, not after.
    pub static ASK_EARLY: AtomicBool = AtomicBool::new(false);

    /// Optimistic readers are told that nothing changed, whatever did.
    pub static TRUST_READERS: AtomicBool = AtomicBool::new(false);

    /// Turns a bug on or off.
    pub fn set(bug: &AtomicBool, on: bool) {
        bug.store(on, Relaxed);
    }

    pub(crate) fn is_on(bug: &AtomicBool) -> bool {
        bug.load(Relaxed)
    }
}

#[cfg(all(test, not(homenode_lab)))]
mod tests;
