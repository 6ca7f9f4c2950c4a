//! Which portals are open? The unnamed one, which every statement of a client without cursors goes through, and the named.
//!
//! The unnamed portal has a place of its own, and what its lists of parameters and formats held is kept for the next: a
//! prepared statement that is bound again and again allocates nothing for its portal.

use crate::run::Portal;
use crate::wire::Format;
use homenode_types::Value;
use rustc_hash::FxHashMap;

/// Longer lists are given back.
const KEPT_PARAMETERS: usize = 64;

/// The open portals of a session.
#[derive(Default)]
pub(crate) struct Portals {
    unnamed: Option<Portal>,
    /// Named by the client, so whoever makes names collide slows only itself: no keyed hash is needed.
    named: FxHashMap<String, Portal>,
    /// Emptied lists of an unnamed portal that is gone.
    parameters: Vec<Value>,
    formats: Vec<Format>,
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
        if name.is_empty() { self.unnamed.as_ref() } else { self.named.get(name) }
    }

    /// Takes the portal `name` out, to run it.
    pub fn take(&mut self, name: &str) -> Option<Portal> {
        if name.is_empty() { self.unnamed.take() } else { self.named.remove(name) }
    }

    /// Opens a portal, or puts one back that was taken; whatever had the name is gone.
    pub fn put(&mut self, name: &str, portal: Portal) {
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

    /// Empty lists for the parameters and formats of the next portal `name`: an unnamed one gets its predecessor's.
    pub fn lists(&mut self, name: &str) -> (Vec<Value>, Vec<Format>) {
        if !name.is_empty() {
            return Default::default();
        }
        self.close_unnamed();
        (std::mem::take(&mut self.parameters), std::mem::take(&mut self.formats))
    }

    fn close_unnamed(&mut self) -> bool {
        let Some(Portal { mut params, mut formats, .. }) = self.unnamed.take() else { return false };
        params.clear();
        formats.clear();
        if params.capacity() <= KEPT_PARAMETERS && formats.capacity() <= KEPT_PARAMETERS {
            (self.parameters, self.formats) = (params, formats);
        }
        true
    }
}
