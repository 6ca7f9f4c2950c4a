//! Which settings belong to the whole server? The pool's size and policy, which can be changed while it runs.
//!
//! A change holds for everybody at once, whatever becomes of the transaction that it was made in. The next server begins with what
//! its command line says, else with what ALTER SYSTEM has set (the engine's `saved`), else with the default.

use crate::context::Context;
use homenode_engine::size;
use homenode_memory::Policy;
use homenode_types::{Error, Result, SqlState};

/// A name and what it is, for SHOW ALL.
pub(crate) const SERVER_SETTINGS: [(&str, &str); 2] = [
    ("homenode.pool_policy", "On which memory nodes the pool's pages lie."),
    ("homenode.pool_size", "Memory for pages."),
];

/// Whether a setting is the server's.
pub(crate) fn is_server_setting(name: &str) -> bool {
    SERVER_SETTINGS.iter().any(|(known, _)| known.eq_ignore_ascii_case(name))
}

impl Context {
    /// The value of a server's setting; `None` when it is none.
    pub(crate) fn server_setting(&self, name: &str) -> Option<String> {
        let (bytes, policy) = self.db.pool().shape();
        match name.to_ascii_lowercase().as_str() {
            "homenode.pool_policy" => Some(policy.to_string()),
            "homenode.pool_size" => Some(size::show(bytes)),
            _ => None,
        }
    }

    /// Changes a server's setting, back to what the command line, or the default, says when there is no value; what that took, in words.
    ///
    /// # Errors
    /// 42704 for another setting; 22023; 53200 when memory cannot be had as the policy wants it; 53000 when the pool cannot shrink.
    pub(crate) fn set_server(&mut self, name: &str, value: Option<&str>) -> Result<String> {
        let invalid = |why: String| {
            let message = format!("invalid value for parameter \"{name}\": \"{}\"", value.unwrap_or_default());
            Error::new(SqlState::INVALID_PARAMETER_VALUE, message).with_detail(why)
        };
        let started = self.db.options();
        let done = match name.to_ascii_lowercase().as_str() {
            "homenode.pool_policy" => {
                let policy: Policy = match value {
                    Some(text) => text.trim().parse().map_err(|error| invalid(format!("{error}")))?,
                    None => started.pool_policy.clone(),
                };
                self.session.reshape_pool(None, Some(policy))?
            }
            "homenode.pool_size" => {
                let bytes = match value {
                    Some(text) => size::parse(text).map_err(invalid)?,
                    None => started.pool_bytes,
                };
                self.session.reshape_pool(Some(bytes), None)?
            }
            _ => {
                let message = format!("unrecognized server parameter \"{name}\"");
                let known = SERVER_SETTINGS.map(|(name, _)| name).join(", ");
                return Err(Error::new(SqlState::UNDEFINED_OBJECT, message).with_hint(format!("Known are {known}.")));
            }
        };
        let shown = |bytes: u64| size::show(usize::try_from(bytes).unwrap_or(usize::MAX));
        Ok(format!(
            "{} came, {} went back to the system, {} pages were moved, {} evicted, {} left where they were",
            shown(done.grown_bytes),
            shown(done.shrunk_bytes),
            done.moved,
            done.evicted,
            done.left
        ))
    }
}
