//! Who owns how many bytes? A tree of named accounts (memory contexts: session, statement, plan cache, sort).
//!
//! Each account has one owner, who alone writes its counter, with plain loads and stores on a line that nobody else writes;
//! readers sum. An account with a limit hands out grants: an owner below it takes 64 KiB at a time, so that the limit's own
//! line is written once for many charges, and not at all where there is no limit.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What an owner takes from a limit at a time. Near the limit, exactly what it needs.
const GRANT_BYTES: u64 = 64 << 10;

/// A charge that would exceed a limit. Nothing was charged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "memory limit of \"{account}\" reached: {wanted_bytes} bytes wanted, {granted_bytes} of {limit_bytes} given out"
)]
pub struct LimitExceeded {
    /// Whose limit it is: the account itself or one above it.
    pub account: String,
    /// The limit.
    pub limit_bytes: u64,
    /// What is given out below the limit already, up to 64 KiB for each owner not yet used.
    pub granted_bytes: u64,
    /// What was to be charged.
    pub wanted_bytes: u64,
}

/// One account as a reader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountRow {
    /// 0 for the account that was asked, 1 for those right below it, and so on.
    pub depth: usize,
    /// Its name, not necessarily unique.
    pub name: String,
    /// Bytes charged to the account itself.
    pub own_bytes: u64,
    /// Bytes charged to it and to all below it.
    pub total_bytes: u64,
    /// The most that was ever charged to the account itself.
    pub peak_bytes: u64,
    /// The limit of the account and all below it.
    pub limit_bytes: Option<u64>,
}

/// A line of its own: 128 bytes, because processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct OwnLine<T>(T);

/// Written by the owner only.
#[derive(Debug, Default)]
struct Counters {
    own_bytes: AtomicU64,
    peak_bytes: AtomicU64,
}

#[derive(Debug)]
struct Inner {
    name: Cow<'static, str>,
    limit_bytes: Option<u64>,
    parent: Option<Arc<Inner>>,
    counters: OwnLine<Counters>,
    /// Grants to owners at and below an account with a limit.
    granted_bytes: OwnLine<AtomicU64>,
    /// Locked to open an account and to list, never to charge.
    children: Mutex<Vec<Weak<Inner>>>,
}

/// A part of the tree, to read and to open accounts in. Cheap to clone, may be shared between threads.
#[derive(Clone, Debug)]
pub struct Accounts(Arc<Inner>);

/// An account with its one owner: it can be sent to another thread, not shared. What is still charged when it is dropped is
/// released, and it leaves the list once the accounts below it are gone too.
#[derive(Debug)]
pub struct Account {
    inner: Arc<Inner>,
    /// What the limits above have granted; not kept up where there are none. A `Cell`, so that the account isn't `Sync`:
    /// this is what makes the plain stores to the counters right.
    granted_bytes: Cell<u64>,
    /// Whether there is a limit at or above this account.
    limited: bool,
}

impl Accounts {
    /// The root of a tree, e.g. of a server. `limit_bytes` holds for all accounts together.
    pub fn new(name: impl Into<Cow<'static, str>>, limit_bytes: Option<u64>) -> Accounts {
        Accounts(Arc::new(Inner::new(name.into(), limit_bytes, None)))
    }

    /// Opens an account. The caller is its owner. `limit_bytes` holds for it and all that are opened below it.
    pub fn open(&self, name: impl Into<Cow<'static, str>>, limit_bytes: Option<u64>) -> Account {
        let inner = Arc::new(Inner::new(name.into(), limit_bytes, Some(self.0.clone())));
        let mut children = self.0.lock_children();
        // Now and then the closed ones are cleared out: when the list would have to grow.
        if children.len() == children.capacity() {
            children.retain(|child| child.strong_count() > 0);
        }
        children.push(Arc::downgrade(&inner));
        drop(children);
        let limited = inner.lineage().any(|account| account.limit_bytes.is_some());
        Account { inner, granted_bytes: Cell::new(0), limited }
    }

    /// Bytes charged here and below, summed over all owners without stopping them.
    pub fn total_bytes(&self) -> u64 {
        self.0.total_bytes()
    }

    /// This account and all below it, each before those below it, in the order of opening.
    pub fn list(&self) -> Vec<AccountRow> {
        let mut rows = Vec::new();
        self.0.list(0, &mut rows);
        rows
    }
}

impl Account {
    /// Opens an account below this one, with an owner of its own.
    pub fn open(&self, name: impl Into<Cow<'static, str>>, limit_bytes: Option<u64>) -> Account {
        self.accounts().open(name, limit_bytes)
    }

    /// The account as others may see it.
    pub fn accounts(&self) -> Accounts {
        Accounts(self.inner.clone())
    }

    /// Bytes charged to the account itself.
    pub fn bytes(&self) -> u64 {
        self.inner.counters.0.own_bytes.load(Ordering::Relaxed)
    }

    /// Counts `bytes` more.
    ///
    /// # Errors
    /// If a limit at or above this account would be exceeded; nothing is counted then.
    pub fn charge(&self, bytes: u64) -> Result<(), LimitExceeded> {
        let counters = &self.inner.counters.0;
        let own = self.bytes().saturating_add(bytes);
        if self.limited && own > self.granted_bytes.get() {
            self.take_grant(own - self.granted_bytes.get(), bytes)?;
        }
        counters.own_bytes.store(own, Ordering::Relaxed);
        if own > counters.peak_bytes.load(Ordering::Relaxed) {
            counters.peak_bytes.store(own, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Counts `bytes` less.
    ///
    /// # Panics
    /// If more is released than was charged.
    pub fn release(&self, bytes: u64) {
        let own = self.bytes().checked_sub(bytes).expect("more released than charged");
        self.inner.counters.0.own_bytes.store(own, Ordering::Relaxed);
        // One grant is kept in hand, so that charging and releasing in turn doesn't reach the limit's line each time.
        let spare = self.granted_bytes.get().saturating_sub(own);
        if spare > 2 * GRANT_BYTES {
            self.give_back(spare - GRANT_BYTES);
        }
    }

    /// Releases all that is charged.
    pub fn release_all(&self) {
        self.release(self.bytes());
    }

    #[cold]
    fn take_grant(&self, missing: u64, wanted_bytes: u64) -> Result<(), LimitExceeded> {
        let generous = missing.checked_next_multiple_of(GRANT_BYTES).unwrap_or(missing);
        let granted = match self.inner.grant(generous) {
            Ok(()) => generous,
            Err(_) => {
                self.inner.grant(missing).map_err(|error| LimitExceeded { wanted_bytes, ..error })?;
                missing
            }
        };
        self.granted_bytes.set(self.granted_bytes.get() + granted);
        Ok(())
    }

    fn give_back(&self, bytes: u64) {
        self.granted_bytes.set(self.granted_bytes.get() - bytes);
        self.inner.lineage().for_each(|account| account.take_back(bytes));
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.inner.counters.0.own_bytes.store(0, Ordering::Relaxed);
        if self.granted_bytes.get() > 0 {
            self.give_back(self.granted_bytes.get());
        }
    }
}

impl Inner {
    fn new(name: Cow<'static, str>, limit_bytes: Option<u64>, parent: Option<Arc<Inner>>) -> Inner {
        Inner {
            name,
            limit_bytes,
            parent,
            counters: OwnLine::default(),
            granted_bytes: OwnLine::default(),
            children: Mutex::new(Vec::new()),
        }
    }

    /// This account, the one above it, and so on up to the root.
    fn lineage(&self) -> impl Iterator<Item = &Inner> {
        std::iter::successors(Some(self), |account| account.parent.as_deref())
    }

    /// Grants bytes at every limit from here up, or at none.
    fn grant(&self, bytes: u64) -> Result<(), LimitExceeded> {
        for (depth, account) in self.lineage().enumerate() {
            if let Err(error) = account.grant_here(bytes) {
                self.lineage().take(depth).for_each(|below| below.take_back(bytes));
                return Err(error);
            }
        }
        Ok(())
    }

    fn grant_here(&self, bytes: u64) -> Result<(), LimitExceeded> {
        let Some(limit_bytes) = self.limit_bytes else {
            return Ok(());
        };
        let add = |granted: u64| granted.checked_add(bytes).filter(|sum| *sum <= limit_bytes);
        match self.granted_bytes.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => Ok(()),
            Err(granted_bytes) => Err(LimitExceeded {
                account: self.name.clone().into_owned(),
                limit_bytes,
                granted_bytes,
                wanted_bytes: bytes,
            }),
        }
    }

    fn take_back(&self, bytes: u64) {
        if self.limit_bytes.is_some() {
            self.granted_bytes.0.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    fn lock_children(&self) -> MutexGuard<'_, Vec<Weak<Inner>>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The accounts right below this one that are still there. Not under the lock of the list: the last handle of an
    /// account may be dropped while it is looked at, and its parent with it.
    fn living_children(&self) -> Vec<Arc<Inner>> {
        self.lock_children().iter().filter_map(Weak::upgrade).collect()
    }

    fn total_bytes(&self) -> u64 {
        let below = self.living_children().iter().map(|child| child.total_bytes()).fold(0, u64::saturating_add);
        self.counters.0.own_bytes.load(Ordering::Relaxed).saturating_add(below)
    }

    /// Adds the rows of this account and all below it; answers with their total.
    fn list(&self, depth: usize, rows: &mut Vec<AccountRow>) -> u64 {
        let own_bytes = self.counters.0.own_bytes.load(Ordering::Relaxed);
        let at = rows.len();
        rows.push(AccountRow {
            depth,
            name: self.name.clone().into_owned(),
            own_bytes,
            total_bytes: own_bytes,
            peak_bytes: self.counters.0.peak_bytes.load(Ordering::Relaxed),
            limit_bytes: self.limit_bytes,
        });
        for child in self.living_children() {
            let below = child.list(depth + 1, rows);
            rows[at].total_bytes = rows[at].total_bytes.saturating_add(below);
        }
        rows[at].total_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn assert_send<T: Send>(_: &T) {}
    fn assert_sync<T: Sync>(_: &T) {}

    #[test]
    fn sums_go_up_and_go_away() {
        let server = Accounts::new("server", None);
        let session = server.open("session 7", None);
        let sort = session.open("sort", None);
        assert_send(&sort);
        assert_sync(&server);
        session.charge(100).unwrap();
        sort.charge(1_000).unwrap();
        sort.release(400);
        let rows: Vec<_> =
            server.list().into_iter().map(|r| (r.depth, r.name, r.own_bytes, r.total_bytes, r.peak_bytes)).collect();
        let expected = [(0, "server", 0, 700, 0), (1, "session 7", 100, 700, 100), (2, "sort", 600, 600, 1_000)];
        assert_eq!(rows, expected.map(|(depth, name, own, total, peak)| (depth, name.to_owned(), own, total, peak)));
        drop(sort);
        assert_eq!(server.total_bytes(), 100);
        drop(session);
        assert_eq!(server.list().len(), 1);
    }

    #[test]
    fn limits_hold_at_every_level_and_name_themselves() {
        let server = Accounts::new("server", Some(1_000_000));
        let session = server.open("session", Some(300_000));
        let other = server.open("other", None);
        let sort = session.open("sort", Some(200_000));
        sort.charge(200_000).unwrap();
        let error = sort.charge(1).unwrap_err();
        assert_eq!((error.account.as_str(), error.limit_bytes, error.wanted_bytes), ("sort", 200_000, 1));
        assert_eq!(session.charge(100_001).unwrap_err().account, "session");
        session.charge(100_000).unwrap();
        assert_eq!(other.charge(700_001).unwrap_err().account, "server");
        other.charge(700_000).unwrap();
        other.release_all();
        drop(sort);
        drop(session);
        other.charge(1_000_000).unwrap();
    }

    #[test]
    fn absurd_amounts_are_refused_not_wrapped() {
        let server = Accounts::new("server", Some(1 << 20));
        let account = server.open("account", None);
        account.charge(1).unwrap();
        assert!(account.charge(u64::MAX).is_err());
        assert_eq!(account.bytes(), 1);
    }

    #[test]
    fn without_a_limit_nothing_shared_is_written() {
        let server = Accounts::new("server", None);
        let account = server.open("account", None);
        account.charge(10 << 20).unwrap();
        assert_eq!(server.0.granted_bytes.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn closed_accounts_leave_no_trace() {
        let server = Accounts::new("server", None);
        for _ in 0..10_000 {
            drop(server.open("statement", None));
        }
        assert!(server.0.lock_children().len() < 16);
    }

    #[test]
    fn owners_in_threads_share_a_limit_without_exceeding_it() {
        const LIMIT: u64 = 10 << 20;
        let server = Accounts::new("server", Some(LIMIT));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let account = server.open("worker", None);
                let server = &server;
                scope.spawn(move || {
                    for round in 0..5_000u64 {
                        if account.charge(round * 97 % 9_000).is_err() || round % 1_000 == 999 {
                            account.release_all();
                        }
                        assert!(server.0.granted_bytes.0.load(Ordering::Relaxed) <= LIMIT);
                    }
                });
            }
        });
        assert_eq!((server.total_bytes(), server.0.granted_bytes.0.load(Ordering::Relaxed)), (0, 0));
    }

    proptest! {
        /// Charges succeed exactly while the sum stays within the limit, whatever grants are in hand, for a single owner.
        #[test]
        fn one_owner_gets_all_of_its_limit(steps in proptest::collection::vec((any::<bool>(), 0u64..300_000), 1..60)) {
            const LIMIT: u64 = 1_000_000;
            let server = Accounts::new("server", Some(LIMIT));
            let account = server.open("account", None);
            let mut expected = 0;
            for (take, bytes) in steps {
                if take {
                    let fits = expected + bytes <= LIMIT;
                    prop_assert_eq!(account.charge(bytes).is_ok(), fits);
                    expected += if fits { bytes } else { 0 };
                } else {
                    let bytes = bytes.min(expected);
                    account.release(bytes);
                    expected -= bytes;
                }
                prop_assert_eq!(account.bytes(), expected);
                prop_assert!(server.0.granted_bytes.0.load(Ordering::Relaxed) >= expected);
            }
        }
    }
}
