//! Who is connected? Places under the limit of connections, and the keys by which a session can be cancelled.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use homenode_types::{Error, Result, SqlState};

use crate::backend::Interrupt;

/// All open sessions. Touched when a session opens or closes, never by its statements.
pub(crate) struct Registry {
    max_connections: usize,
    admitted: AtomicUsize,
    sessions: Mutex<HashMap<u32, Entry>>,
}

struct Entry {
    secret: u32,
    interrupt: Arc<dyn Interrupt>,
}

/// One place under the limit; free again when dropped.
pub(crate) struct Place(Arc<Registry>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.admitted.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A session's entry; gone when dropped.
pub(crate) struct Registration {
    process_id: u32,
    secret: u32,
    place: Place,
}

impl Registration {
    /// Process number and secret, as BackendKeyData carries them.
    pub(crate) fn key(&self) -> (u32, u32) {
        (self.process_id, self.secret)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.place.0.locked(|sessions| sessions.remove(&self.process_id));
    }
}

impl Registry {
    pub(crate) fn new(max_connections: usize) -> Arc<Registry> {
        Arc::new(Registry { max_connections, admitted: AtomicUsize::new(0), sessions: Mutex::default() })
    }

    pub(crate) fn max_connections(&self) -> usize {
        self.max_connections
    }

    fn locked<R>(&self, f: impl FnOnce(&mut HashMap<u32, Entry>) -> R) -> R {
        // A map of plain values is whole whatever panicked while it was held.
        f(&mut self.sessions.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sessions that are open now.
    pub(crate) fn count(&self) -> usize {
        self.admitted.load(Ordering::Acquire)
    }

    /// Takes a place, or fails with `53300`.
    pub(crate) fn admit(self: &Arc<Registry>) -> Result<Place> {
        if self.admitted.fetch_add(1, Ordering::AcqRel) >= self.max_connections {
            self.admitted.fetch_sub(1, Ordering::AcqRel);
            return Err(Error::new(SqlState::TOO_MANY_CONNECTIONS, "sorry, too many clients already"));
        }
        Ok(Place(self.clone()))
    }

    /// Makes a session known by its key.
    pub(crate) fn register(&self, place: Place, process_id: u32, interrupt: Arc<dyn Interrupt>) -> Registration {
        // The standard library seeds each of its hashers from the system's random numbers.
        let secret = RandomState::new().hash_one(process_id) as u32;
        self.locked(|sessions| sessions.insert(process_id, Entry { secret, interrupt }));
        Registration { process_id, secret, place }
    }

    /// Cancels what a session runs, if the secret is its own. Says nothing either way, as PostgreSQL doesn't.
    pub(crate) fn cancel(&self, process_id: u32, secret: u32) {
        let interrupt = self.locked(|sessions| match sessions.get(&process_id) {
            Some(entry) if entry.secret == secret => Some(entry.interrupt.clone()),
            _ => None,
        });
        match interrupt {
            Some(interrupt) => interrupt.cancel(),
            None => tracing::info!(process_id, "cancel request with a wrong key"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Interrupt for Count {
        fn cancel(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn only_the_secret_cancels() {
        let registry = Registry::new(8);
        let count = Arc::new(Count::default());
        let registration = registry.register(registry.admit().unwrap(), 7, count.clone());
        let (process_id, secret) = registration.key();
        registry.cancel(process_id, !secret);
        registry.cancel(8, secret);
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        registry.cancel(process_id, secret);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        drop(registration);
        registry.cancel(process_id, secret);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert_eq!(registry.count(), 0);
    }

    #[test]
    fn places_run_out_and_come_back() {
        let registry = Registry::new(1);
        let place = registry.admit().unwrap();
        assert_eq!(registry.admit().err().unwrap().code, SqlState::TOO_MANY_CONNECTIONS);
        drop(place);
        assert!(registry.admit().is_ok());
    }
}
