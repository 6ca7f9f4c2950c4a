//! What does the latch's word say? Its fields and the transitions between its values.
//!
//! ```text
//! bit 0     exclusive: somebody holds the latch exclusively
//! bit 1     waiters: the parking table has a queue for this latch
//! bit 2     woken: the first waiter has been woken and will try for itself
//! bits 3-5  overtakes: newcomers that were let in since the first waiter is first (exclusive ones only while it has not been woken)
//! bits 6-19 shared: how many hold the latch shared
//! bits 20-  version: how many exclusive holds have changed the data
//! ```

pub(crate) const EXCLUSIVE: u64 = 1;
pub(crate) const WAITERS: u64 = 1 << 1;
pub(crate) const WOKEN: u64 = 1 << 2;
const OVERTAKE_STEP: u64 = 1 << 3;
const OVERTAKES: u64 = 7 << 3;
/// All that is said about a queue: clear while there is none.
pub(crate) const QUEUE_STATE: u64 = WAITERS | WOKEN | OVERTAKES;
pub(crate) const SHARED_STEP: u64 = 1 << 6;
const SHARED: u64 = ((1 << 14) - 1) << 6;
pub(crate) const VERSION_STEP: u64 = 1 << 20;
const VERSION: u64 = !(VERSION_STEP - 1);

/// How many newcomers are let in before the first waiter, at most, while it sleeps; of those that share the latch, ever. Korotkov
/// measured 7 and 15.
pub const MAX_OVERTAKES: u32 = 7;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Shared,
    Exclusive,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u64);

impl Word {
    pub(crate) fn free_at(version: u64) -> Word {
        Word(version)
    }

    pub(crate) fn version(self) -> u64 {
        self.0 & VERSION
    }

    pub(crate) fn is_exclusive(self) -> bool {
        self.0 & EXCLUSIVE != 0
    }

    pub(crate) fn has_waiters(self) -> bool {
        self.0 & WAITERS != 0
    }

    pub(crate) fn shared(self) -> u64 {
        (self.0 & SHARED) / SHARED_STEP
    }

    pub(crate) fn is_held(self) -> bool {
        self.0 & (EXCLUSIVE | SHARED) != 0
    }

    pub(crate) fn is_readable_at(self, version: u64) -> bool {
        self.0 & (VERSION | EXCLUSIVE) == version
    }

    pub(crate) fn with_exclusive(self) -> Word {
        Word(self.0 | EXCLUSIVE)
    }

    /// Whether the holders allow one more in this mode.
    pub(crate) fn admits(self, mode: Mode) -> bool {
        match mode {
            Mode::Exclusive => !self.is_held(),
            // A full counter counts as held, rather than overflow into the version.
            Mode::Shared => !self.is_exclusive() && self.0 & SHARED != SHARED,
        }
    }

    /// How many more the shared counter can count.
    pub(crate) fn room_for_shared(self) -> usize {
        ((SHARED - (self.0 & SHARED)) / SHARED_STEP) as usize
    }

    fn with_holders(self, mode: Mode, count: u64) -> Word {
        match mode {
            Mode::Exclusive => self.with_exclusive(),
            Mode::Shared => Word(self.0 + count * SHARED_STEP),
        }
    }

    /// Whether the first waiter has been overtaken as often as is allowed.
    pub(crate) fn is_due(self) -> bool {
        self.0 & OVERTAKES == OVERTAKES
    }

    /// The word when the first waiter has come and found the latch held: nobody overtakes it any more, and it is handed over next.
    pub(crate) fn due(self) -> Word {
        Word((self.0 | OVERTAKES) & !WOKEN)
    }

    /// The word when a newcomer takes the latch; `None` if it may not.
    pub(crate) fn taken_by_newcomer(self, mode: Mode) -> Option<Word> {
        if !self.admits(mode) {
            return None;
        }
        let word = self.with_holders(mode, 1);
        match (self.has_waiters(), self.is_due()) {
            (false, _) => Some(word),
            // The first waiter is on its way, and what comes one at a time leaves the latch free for it between: no reason to let
            // the latch lie idle until the waiter's worker has time for it.
            (true, false) if mode == Mode::Exclusive && self.0 & WOKEN != 0 => Some(word),
            (true, false) => Some(Word(word.0 + OVERTAKE_STEP)),
            #[cfg(homenode_lab)]
            (true, true) if crate::planted::is_on(&crate::planted::IGNORE_WAITERS) => Some(word),
            (true, true) => None,
        }
    }

    /// The word when `count` first waiters take the latch and `more` says whether others remain.
    pub(crate) fn taken_by_waiters(self, mode: Mode, count: u64, more: bool) -> Word {
        let word = Word(self.0 & !QUEUE_STATE).with_holders(mode, count);
        Word(word.0 | if more { WAITERS } else { 0 })
    }

    /// Whether the last holder, having left this word behind, has to see to the waiters: not if there
    /// are none, nor if the first has been woken and may still try for itself.
    pub(crate) fn needs_wake(self) -> bool {
        self.has_waiters() && (self.0 & WOKEN == 0 || self.is_due())
    }
}

impl std::fmt::Debug for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Latch")
            .field("version", &(self.version() / VERSION_STEP))
            .field("exclusive", &self.is_exclusive())
            .field("shared", &self.shared())
            .field("waiters", &self.has_waiters())
            .finish()
    }
}
