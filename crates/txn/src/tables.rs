//! Who uses a table, and who changes what it is?
//!
//! Using a table must not write a line that others write: a session publishes the table in its own slot and looks at the table's
//! lock word, which is written only when a definition changes. The changer writes the word first and then looks through all slots. Both
//! write before they look, so one of them sees the other (a "big reader" lock; PostgreSQL's fast-path relation locks have the
//! same purpose).

use crate::{Manager, WaitError};
use homenode_platform::atomic::{AtomicU64, Ordering};

/// How many sessions wait for a table now; whoever ends a transaction looks at it. Written only around such waits.
pub(crate) static WAITING: AtomicU64 = AtomicU64::new(0);

/// The lock of one table: who changes its definition now, and how often it was changed.
#[derive(Default)]
pub struct TableLock {
    /// Slot of the session that changes the definition, plus one.
    changer: AtomicU64,
    /// Counts committed changes, so that whoever remembers an older definition notices.
    version: AtomicU64,
}

impl TableLock {
    /// A lock that nobody holds, at version 0.
    pub fn new() -> TableLock {
        TableLock::default()
    }

    /// Counts the committed changes of the definition.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Counts a committed change; the changer calls it before it lets the table go.
    pub fn changed(&self) {
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    /// The slot of the session that changes the definition.
    pub fn changer(&self) -> Option<usize> {
        self.changer.load(Ordering::SeqCst).checked_sub(1).map(|slot| slot as usize)
    }

    /// Uses the table `oid` until the end of the transaction of the session in `slot`.
    ///
    /// # Errors
    /// [`WaitError`] when someone changes the definition and the wait for that fails.
    #[inline]
    pub fn use_shared(
        &self,
        manager: &Manager,
        oid: u32,
        slot: usize,
        deadline_ns: Option<u64>,
    ) -> Result<(), WaitError> {
        let own = manager.slot(slot);
        if !own.add_table(oid) {
            return Ok(());
        }
        match self.changer() {
            None => Ok(()),
            Some(changer) if changer == slot => Ok(()),
            Some(_) => self.wait_to_use(manager, oid, slot, deadline_ns),
        }
    }

    #[cold]
    fn wait_to_use(&self, manager: &Manager, oid: u32, slot: usize, deadline_ns: Option<u64>) -> Result<(), WaitError> {
        let own = manager.slot(slot);
        WAITING.fetch_add(1, Ordering::SeqCst);
        let result = manager.wait_for_table(slot, deadline_ns, || {
            // Step back, so that the changer isn't held up by one who waits for it.
            let stepped_back = own.remove_table(oid);
            let holder = self.changer_of(manager, slot);
            if holder.is_some() {
                if stepped_back {
                    manager.wake_other_table_waiters();
                }
                return holder;
            }
            own.add_table(oid);
            let holder = self.changer_of(manager, slot);
            if holder.is_some() && own.remove_table(oid) {
                manager.wake_other_table_waiters();
            }
            holder
        });
        if result.is_err() {
            own.remove_table(oid);
        }
        WAITING.fetch_sub(1, Ordering::SeqCst);
        result
    }

    fn changer_of(&self, manager: &Manager, me: usize) -> Option<(usize, u64)> {
        let changer = self.changer().filter(|&slot| slot != me)?;
        Some((changer, manager.slot(changer).generation()))
    }

    /// Takes the table for a change of its definition: waits until no other session uses it. Held until [`TableLock::release`].
    /// True when it wasn't held by this session before.
    ///
    /// # Errors
    /// [`WaitError`]; the lock is then not held.
    pub fn take_exclusive(
        &self,
        manager: &Manager,
        oid: u32,
        slot: usize,
        deadline_ns: Option<u64>,
    ) -> Result<bool, WaitError> {
        if self.changer() == Some(slot) {
            return Ok(false);
        }
        WAITING.fetch_add(1, Ordering::SeqCst);
        let result = manager.wait_for_table(slot, deadline_ns, || {
            match self.changer.compare_exchange(0, slot as u64 + 1, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => None,
                Err(_) => self.changer_of(manager, slot),
            }
        });
        let result = result.and_then(|()| {
            let users = manager.wait_for_table(slot, deadline_ns, || {
                let user = manager.slots().iter().find(|&(index, other)| index != slot && other.uses_table(oid));
                user.map(|(index, other)| (index, other.generation()))
            });
            users.inspect_err(|_| self.release(manager, slot))
        });
        WAITING.fetch_sub(1, Ordering::SeqCst);
        result.map(|()| true)
    }

    /// Lets the table go.
    pub fn release(&self, manager: &Manager, slot: usize) {
        let held = self.changer.compare_exchange(slot as u64 + 1, 0, Ordering::SeqCst, Ordering::SeqCst);
        assert!(held.is_ok(), "only the holder releases a table");
        manager.wake_table_waiters();
    }
}
