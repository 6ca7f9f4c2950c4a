//! Which portals are open? The unnamed one, which every statement of a client without cursors goes through, and the named.
//!
//! The unnamed portal has a place of its own, and what it held is kept for the next: a prepared statement that is bound again
//! and again allocates and moves nothing for its portal.

use crate::prepared::Prepared;
use crate::run::Portal;
use homenode_types::{Error, Result, SqlState};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Portals with a name at a time.
const MAX_NAMED: usize = 100_000;

/// The open portals of a session.
#[derive(Default)]
pub(crate) struct Portals {
    unnamed: Option<Box<Portal>>,
    /// Named by the client, so whoever makes names collide slows only itself: no keyed hash is needed.
    named: FxHashMap<String, Box<Portal>>,
    /// An unnamed portal that was closed, with its memory.
    spare: Option<Box<Portal>>,
}

impl Portals {
    /// Open portals with a name.
    pub fn named(&self) -> usize {
        self.named.len()
    }

    /// Whether there is a portal `name`; the empty name is the unnamed portal's.
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The portal `name`.
    pub fn get(&self, name: &str) -> Option<&Portal> {
        if name.is_empty() { self.unnamed.as_deref() } else { self.named.get(name).map(|portal| &**portal) }
    }

    /// Takes the portal `name` out, to run it.
    pub fn take(&mut self, name: &str) -> Option<Box<Portal>> {
        if name.is_empty() { self.unnamed.take() } else { self.named.remove(name) }
    }

    /// Opens a portal, or puts one back that was taken; whatever had the name is gone.
    pub fn put(&mut self, name: &str, portal: Box<Portal>) {
        if name.is_empty() {
            self.unnamed = Some(portal);
        } else {
            self.named.insert(name.to_string(), portal);
        }
    }

    /// Closes the portal `name`; false when there is none.
    pub fn close(&mut self, name: &str) -> bool {
        if name.is_empty() { self.close_unnamed() } else { self.named.remove(name).is_some() }
    }

    /// Closes those that end with their transaction.
    pub fn end_transaction(&mut self) {
        self.close_unnamed();
        if !self.named.is_empty() {
            self.named.retain(|_, portal| portal.is_held());
        }
    }

    /// Closes all of them.
    pub fn close_all(&mut self) {
        self.close_unnamed();
        self.named.clear();
    }

    /// Whether a portal with this name may be opened.
    ///
    /// # Errors
    /// 42P03 when there is one, 53400 when there are too many.
    pub fn check_new(&self, name: &str) -> Result<()> {
        if self.contains(name) {
            return Err(Error::new(SqlState::DUPLICATE_CURSOR, format!("cursor \"{name}\" already exists")));
        }
        if self.named.len() >= MAX_NAMED {
            return Err(Error::new(SqlState::CONFIGURATION_LIMIT_EXCEEDED, "too many portals"));
        }
        Ok(())
    }

    /// A portal of `prepared` to be opened as `name`. For the unnamed one that is its predecessor, made new.
    pub fn fresh(&mut self, name: &str, prepared: &Arc<Prepared>) -> Box<Portal> {
        let kept = if name.is_empty() { self.unnamed.take().or_else(|| self.spare.take()) } else { None };
        match kept {
            Some(mut portal) => {
                portal.renew(prepared);
                portal
            }
            None => Box::new(Portal::new(prepared.clone(), Vec::new(), Vec::new())),
        }
    }

    fn close_unnamed(&mut self) -> bool {
        let Some(mut portal) = self.unnamed.take() else { return false };
        portal.clear();
        self.spare = Some(portal);
        true
    }
}
