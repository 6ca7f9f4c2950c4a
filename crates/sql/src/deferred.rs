//! What is looked at when the transaction ends? Checks of foreign keys that are DEFERRABLE, and SET CONSTRAINTS.
//!
//! Cascades, SET NULL and SET DEFAULT happen with their statements all the same, and so does RESTRICT, as in PostgreSQL.

use crate::context::Context;
use crate::foreign::{Event, Pending, table_now};
use crate::utility::Name;
use homenode_engine::{Definitions, ForeignKey, ReferentialAction, Timing};
use homenode_types::{Error, Result, SqlState};
use rustc_hash::FxHashMap;

/// The open transaction's deferred checks.
#[derive(Clone, Default)]
pub(crate) struct Deferred {
    events: Vec<Event>,
    /// SET CONSTRAINTS ALL: whether they are deferred.
    all: Option<bool>,
    /// SET CONSTRAINTS of single ones, by number; said after ALL.
    some: FxHashMap<u32, bool>,
}

impl Deferred {
    /// Forgets what waited and what SET CONSTRAINTS said.
    #[inline]
    pub fn end_transaction(&mut self) {
        if !self.events.is_empty() || self.all.is_some() || !self.some.is_empty() {
            *self = Deferred::default();
        }
    }

    fn defers(&self, key: &ForeignKey) -> bool {
        let said = self.some.get(&key.oid).copied().or(self.all);
        match key.timing {
            Timing::Immediate => false,
            Timing::Deferrable => said.unwrap_or(false),
            Timing::Deferred => said.unwrap_or(true),
        }
    }

    /// Checks that nothing waits that is about a table which is to be changed.
    ///
    /// # Errors
    /// 55006
    pub fn check_unwatched(&self, table: u32, name: &str, statement: &str) -> Result<()> {
        let is_about = |event: &Event| match event {
            Event::Refers { table: child, .. } => child.oid == table,
            Event::Left { parent, child, .. } => parent.oid == table || *child == table,
        };
        if !self.events.iter().any(is_about) {
            return Ok(());
        }
        let message = format!("cannot {statement} \"{name}\" because it has pending trigger events");
        Err(Error::new(SqlState::OBJECT_IN_USE, message))
    }

    /// Keeps an event for later if its foreign key wants that; else it is given back.
    pub fn keep(&mut self, event: Event) -> Option<Event> {
        let can_wait = match &event {
            Event::Refers { .. } => true,
            Event::Left { key, new, .. } => {
                let action = if new.is_some() { key.on_update } else { key.on_delete };
                action == ReferentialAction::NoAction
            }
        };
        if !can_wait || !self.defers(event.key()) {
            return Some(event);
        }
        self.events.push(event);
        None
    }
}

/// Makes the checks that have waited, of all foreign keys or of those that are not deferred any more.
///
/// # Errors
/// 23503, 40001, 40P01.
#[inline]
pub(crate) fn settle(context: &mut Context, at_end: bool) -> Result<()> {
    if context.deferred.events.is_empty() { Ok(()) } else { settle_events(context, at_end) }
}

#[cold]
fn settle_events(context: &mut Context, at_end: bool) -> Result<()> {
    let (now, later): (Vec<Event>, Vec<Event>) = std::mem::take(&mut context.deferred.events)
        .into_iter()
        .partition(|event| at_end || !context.deferred.defers(event.key()));
    context.deferred.events = later;
    context.session.start_statement();
    let mut pending = Pending::default();
    for event in now {
        // The tables may have changed since, or be gone with their constraints.
        let Some(event) = table_now(context, event) else { continue };
        pending.events.push(event);
    }
    pending.settle_now(context)?;
    context.session.end_statement();
    Ok(())
}

/// SET CONSTRAINTS; no names: ALL.
pub(crate) fn set(context: &mut Context, names: &[Name], deferred: bool) -> Result<()> {
    if names.is_empty() {
        context.deferred.all = Some(deferred);
        context.deferred.some.clear();
    }
    let definitions = context.definitions();
    let mut keys = Vec::new();
    for name in names {
        let schemas = match &name.schema {
            Some(schema) => vec![schema.clone()],
            None => context.search_path().schemas(true).to_vec(),
        };
        let found =
            schemas.iter().map(|schema| constraints(&definitions, schema, &name.name)).find(|all| !all.is_empty());
        let Some(found) = found else {
            let message = format!("constraint \"{}\" does not exist", name.name);
            return Err(Error::new(SqlState::UNDEFINED_OBJECT, message));
        };
        for key in found {
            match key {
                Some(key) if key.timing != Timing::Immediate => keys.push(key.oid),
                _ => {
                    let message = format!("constraint \"{}\" is not deferrable", name.name);
                    return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message));
                }
            }
        }
    }
    context.deferred.some.extend(keys.into_iter().map(|key| (key, deferred)));
    if deferred { Ok(()) } else { settle(context, false) }
}

/// The constraints of a name in a schema, with what they are if they are foreign keys.
fn constraints(definitions: &Definitions, schema: &str, name: &str) -> Vec<Option<ForeignKey>> {
    let tables = definitions.tables().into_iter().filter(|table| table.schema == schema);
    let found = tables.filter(|table| table.constraint(name).is_some());
    found.map(|table| table.foreign_keys.iter().find(|key| key.name == name).cloned()).collect()
}
