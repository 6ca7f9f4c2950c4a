//! Do references hold? Foreign keys are looked after when a statement has written all its rows, as by PostgreSQL's triggers
//! (`ri_triggers.c`): rows that refer look for their key, keys that went away or changed look for rows that refer to them.
//!
//! How this is safe without a lock on the row that is referred to is said in the engine's module `foreign`.

use crate::bind::default_of;
use crate::checks::Checks;
use crate::context::Context;
use crate::exec::{RawRow, Registers, encode_equal};
use crate::expr::{self, Bound, Expr, Params, RowSource};
use homenode_engine::{Definitions, ForeignKey, KeyRange, LockWait, ReferentialAction, STALE_DEFINITION, Table};
use homenode_types::{Error, Result, SqlState, Value, ValueRef, key};
use std::ops::Bound as End;
use std::sync::Arc;

/// Checks that wait before they are made, where the statement cannot change their outcome.
const WAITING_MAX: usize = 4096;

/// What to look after when rows of one table are written by one statement.
pub(crate) struct Watch {
    /// The table's own foreign keys, and the columns whose change calls for a look.
    own: Vec<(ForeignKey, Vec<usize>)>,
    /// Foreign keys of other tables (or its own) that refer to it.
    others: Vec<(u32, ForeignKey)>,
}

impl Watch {
    /// For INSERT; None: nothing.
    pub fn inserts(table: &Table) -> Option<Box<Watch>> {
        let own = table.foreign_keys.iter().map(|key| (key.clone(), Vec::new())).collect();
        Watch { own, others: Vec::new() }.unless_idle()
    }

    /// For DELETE; None: nothing.
    pub fn deletes(definitions: &Definitions, table: &Table) -> Option<Box<Watch>> {
        Watch { own: Vec::new(), others: referring(definitions, table) }.unless_idle()
    }

    /// For an UPDATE that writes the columns for which `writes` is true; None: nothing.
    pub fn updates(definitions: &Definitions, table: &Table, writes: impl Fn(usize) -> bool) -> Option<Box<Watch>> {
        if table.foreign_keys.is_empty() && table.referrers.is_empty() {
            return None;
        }
        let writes = |column: usize| writes(column) || table.columns[column].generated.is_some();
        let own = table.foreign_keys.iter().map(|key| (key.clone(), places(table, key)));
        let own = own.filter(|(_, places)| places.iter().any(|&column| writes(column))).collect();
        let mut others = referring(definitions, table);
        others.retain(|(_, key)| key.parent_columns.iter().any(|&column| writes(column)));
        Watch { own, others }.unless_idle()
    }

    fn unless_idle(self) -> Option<Box<Watch>> {
        (!self.own.is_empty() || !self.others.is_empty()).then(|| Box::new(self))
    }

    /// Whether checks of rows that refer can be made before the statement ends: it doesn't change the tables they look at.
    fn is_plain(&self, table: &Table) -> bool {
        self.others.is_empty() && self.own.iter().all(|(key, _)| key.parent != table.oid)
    }
}

/// The foreign keys that refer to a table, with their tables.
fn referring(definitions: &Definitions, table: &Table) -> Vec<(u32, ForeignKey)> {
    let tables = table.referrers.iter().filter_map(|&oid| definitions.table_by_oid(oid));
    let keys = tables.flat_map(|child| child.foreign_keys.iter().map(|key| (child.oid, key.clone())));
    let mut keys: Vec<_> = keys.filter(|(_, key)| key.parent == table.oid).collect();
    keys.sort_by_key(|(_, key)| key.oid);
    keys
}

/// The columns of a foreign key, and those by which a row has its place where it is looked for: a row that moves might be passed
/// over by a look that is under way, so whoever moves it looks for its key again.
fn places(table: &Table, key: &ForeignKey) -> Vec<usize> {
    let mut places = key.columns.clone();
    places.extend(table.primary_key.iter().flat_map(|primary| &primary.columns));
    let indexes = table.indexes.iter().filter(|index| index.filter.is_none() && leads(&index.columns, key));
    places.extend(indexes.flat_map(|index| &index.columns));
    places
}

/// Whether a key's first columns are those of a foreign key.
fn leads(columns: &[usize], key: &ForeignKey) -> bool {
    columns.get(..key.columns.len()).is_some_and(|first| key.columns.iter().all(|column| first.contains(column)))
}

/// Something to be looked at when all rows are written.
#[derive(Clone)]
pub(crate) enum Event {
    /// A row refers to a key: a new one, or one that was changed.
    Refers { table: Arc<Table>, key: ForeignKey, values: Vec<Value>, is_new: bool },
    /// A key went away, or became another.
    Left { parent: Arc<Table>, child: u32, key: ForeignKey, old: Vec<Value>, new: Option<Vec<Value>> },
}

impl Event {
    /// The foreign key that it is about.
    pub fn key(&self) -> &ForeignKey {
        match self {
            Event::Refers { key, .. } | Event::Left { key, .. } => key,
        }
    }
}

/// An event that has waited, with the tables as they are now; `None` if the foreign key has gone.
pub(crate) fn table_now(context: &mut Context, event: Event) -> Option<Event> {
    let definitions = context.definitions();
    let of_child = |child: u32, oid: u32| {
        let table = definitions.table_by_oid(child)?;
        Some((table.clone(), table.foreign_keys.iter().find(|key| key.oid == oid)?.clone()))
    };
    match event {
        Event::Refers { table, key, values, .. } => {
            let (table, key) = of_child(table.oid, key.oid)?;
            // The row may have been changed or deleted since.
            Some(Event::Refers { table, key, values, is_new: false })
        }
        Event::Left { parent, child, key, old, new } => {
            let (_, key) = of_child(child, key.oid)?;
            Some(Event::Left { parent: definitions.table_by_oid(parent.oid)?.clone(), child, key, old, new })
        }
    }
}

fn values_of(row: &dyn RowSource, columns: &[usize]) -> Vec<Value> {
    columns.iter().map(|&column| row.column(column).to_owned()).collect()
}

/// Notes what calls for a look after a change of a row from `old` (none: an INSERT) to `new` (none: a DELETE).
pub(crate) fn note(
    watch: &Watch,
    table: &Arc<Table>,
    old: Option<&dyn RowSource>,
    new: Option<&dyn RowSource>,
    events: &mut Vec<Event>,
) {
    let has_null = |values: &[Value]| values.iter().any(Value::is_null);
    if let Some(old) = old {
        for (child, key) in &watch.others {
            let before = values_of(old, &key.parent_columns);
            let after = new.map(|new| values_of(new, &key.parent_columns));
            if has_null(&before) || after.as_ref() == Some(&before) {
                continue;
            }
            let (parent, key) = (table.clone(), key.clone());
            events.push(Event::Left { parent, child: *child, key, old: before, new: after });
        }
    }
    let Some(new) = new else { return };
    for (key, places) in &watch.own {
        if old.is_some_and(|old| places.iter().all(|&column| old.column(column) == new.column(column))) {
            continue;
        }
        let values = values_of(new, &key.columns);
        // MATCH SIMPLE.
        if !has_null(&values) {
            events.push(Event::Refers { table: table.clone(), key: key.clone(), values, is_new: old.is_none() });
        }
    }
}

/// What one statement has still to look at.
#[derive(Default)]
pub(crate) struct Pending {
    pub events: Vec<Event>,
}

impl Pending {
    /// Notes a row that was inserted; makes checks already where many wait.
    pub fn inserted(
        &mut self,
        watch: &Watch,
        table: &Arc<Table>,
        row: &dyn RowSource,
        context: &mut Context,
    ) -> Result<()> {
        note(watch, table, None, Some(row), &mut self.events);
        if self.events.len() >= WAITING_MAX && watch.is_plain(table) {
            self.settle(context)?;
        }
        Ok(())
    }

    /// Looks at everything but what waits for the transaction's end, and does what the foreign keys ask for; each action's own
    /// consequences come before the next.
    ///
    /// # Errors
    /// 23503, 40001, 40P01, and those of the writes.
    pub fn settle(&mut self, context: &mut Context) -> Result<()> {
        self.settle_some(context, false)
    }

    /// As [`Pending::settle`], of checks that have waited long enough.
    ///
    /// # Errors
    /// As [`Pending::settle`].
    pub fn settle_now(&mut self, context: &mut Context) -> Result<()> {
        self.settle_some(context, true)
    }

    fn settle_some(&mut self, context: &mut Context, now: bool) -> Result<()> {
        if self.events.is_empty() {
            return Ok(());
        }
        let mut levels = vec![std::mem::take(&mut self.events).into_iter()];
        let mut checked: Option<(u32, Vec<Value>)> = None;
        let mut count = 0_u32;
        while let Some(level) = levels.last_mut() {
            let Some(event) = level.next() else {
                levels.pop();
                continue;
            };
            count += 1;
            if count.is_multiple_of(256) {
                context.check_interrupt()?;
            }
            // What follows from a check that has waited is looked at with it.
            let event = if now { Some(event) } else { context.deferred.keep(event) };
            let Some(event) = event else { continue };
            match event {
                Event::Refers { key, values, .. }
                    if checked.as_ref().is_some_and(|seen| *seen == (key.oid, values.clone())) => {}
                Event::Refers { table, key, values, is_new } => {
                    if let Err(error) = check_reference(context, &table, &key, &values) {
                        // A row that has been changed again since, by an action of this statement, has a look of its own.
                        let is_missing = error.code == SqlState::FOREIGN_KEY_VIOLATION;
                        if is_new || !is_missing || !rows(context, &table, &key, &values, 1, LockWait::Skip)?.is_empty()
                        {
                            return Err(error);
                        }
                    }
                    checked = Some((key.oid, values));
                }
                Event::Left { parent, child, key, old, new } => {
                    checked = None;
                    let mut left = Departure { parent, child: current(context, child)?, key, old, new };
                    levels.push(left.act(context)?.into_iter());
                }
            }
        }
        Ok(())
    }
}

/// A table as it is now; its definition stays until the transaction ends.
fn current(context: &mut Context, oid: u32) -> Result<Arc<Table>> {
    loop {
        let found = context.session.definitions().table_by_oid(oid).cloned();
        let table = found.ok_or_else(|| Error::internal("a table of a foreign key is gone"))?;
        match context.session.use_table(&table) {
            Ok(()) => return Ok(table),
            // Changed between the two lines above.
            Err(error) if error.code == STALE_DEFINITION => context.check_interrupt()?,
            Err(error) => return Err(error),
        }
    }
}

fn names(table: &Table, columns: &[usize]) -> String {
    columns.iter().map(|&column| table.columns[column].name.as_str()).collect::<Vec<_>>().join(", ")
}

fn texts(table: &Table, columns: &[usize], values: &[Value]) -> String {
    let text = |(&column, value): (&usize, &Value)| {
        let mut text = Vec::new();
        value.as_ref().write_text(table.columns[column].ty.ty, &mut text);
        String::from_utf8_lossy(&text).into_owned()
    };
    columns.iter().zip(values).map(text).collect::<Vec<_>>().join(", ")
}

/// Checks that the key that a row refers to is there.
///
/// # Errors
/// 23503, 40001, 40P01.
pub(crate) fn check_reference(context: &mut Context, table: &Table, key: &ForeignKey, values: &[Value]) -> Result<()> {
    let parent = current(context, key.parent)?;
    let columns = parent.key_columns(key.key).ok_or_else(|| Error::internal("the key referred to is gone"))?;
    let mut bytes = Vec::new();
    for column in columns {
        let place = key.parent_columns.iter().position(|other| other == column);
        let place = place.ok_or_else(|| Error::internal("a key has a column that nothing refers to"))?;
        if !encode_equal(values[place].as_ref(), parent.columns[*column].ty.ty, &mut bytes)? {
            return Err(not_present(table, &parent, key, values));
        }
    }
    if context.session.holds_key(&parent, key.key, &bytes)? {
        return Ok(());
    }
    Err(not_present(table, &parent, key, values))
}

#[cold]
fn not_present(table: &Table, parent: &Table, key: &ForeignKey, values: &[Value]) -> Error {
    let message =
        format!("insert or update on table \"{}\" violates foreign key constraint \"{}\"", table.name, key.name);
    let (names, texts) = (names(table, &key.columns), texts(table, &key.columns, values));
    Error::new(SqlState::FOREIGN_KEY_VIOLATION, message)
        .with_detail(format!("Key ({names})=({texts}) is not present in table \"{}\".", parent.name))
        .with_table(&table.schema, &table.name)
        .with_constraint(&key.name)
}

/// A key that went away or became another, and the table with rows that may refer to it.
struct Departure {
    parent: Arc<Table>,
    child: Arc<Table>,
    key: ForeignKey,
    old: Vec<Value>,
    new: Option<Vec<Value>>,
}

impl Departure {
    /// Does what the foreign key says; gives what has to be looked at because of that.
    fn act(&mut self, context: &mut Context) -> Result<Vec<Event>> {
        let action = if self.new.is_some() { self.key.on_update } else { self.key.on_delete };
        match (action, self.new.take()) {
            (ReferentialAction::Restrict, _) => self.refuse(context),
            (ReferentialAction::NoAction, _) => self.refuse_unless_back(context),
            (ReferentialAction::Cascade, None) => self.delete(context),
            (ReferentialAction::Cascade, Some(new)) => {
                let values = self.as_child(new)?;
                self.update(context, &values)
            }
            (ReferentialAction::SetNull, _) => self.update(context, &vec![Value::Null; self.key.columns.len()]),
            (ReferentialAction::SetDefault, _) => {
                let values = self.defaults(context)?;
                let events = self.update(context, &values)?;
                // The default may be the key that went away.
                self.refuse_unless_back(context)?;
                Ok(events)
            }
        }
    }

    fn refuse_unless_back(&self, context: &mut Context) -> Result<Vec<Event>> {
        let columns = self.parent.key_columns(self.key.key);
        let columns = columns.ok_or_else(|| Error::internal("the key referred to is gone"))?;
        let mut bytes = Vec::new();
        for column in columns {
            let place = self.key.parent_columns.iter().position(|other| other == column).unwrap_or_default();
            key::encode_column(self.old[place].as_ref(), self.parent.columns[*column].ty.ty, &mut bytes);
        }
        // The same statement may have given another row the key.
        if context.session.holds_key(&self.parent, self.key.key, &bytes)? {
            return Ok(Vec::new());
        }
        self.refuse(context)
    }

    fn refuse(&self, context: &mut Context) -> Result<Vec<Event>> {
        if self.rows(context, 1)?.is_empty() {
            return Ok(Vec::new());
        }
        let (parent, child) = (&self.parent.name, &self.child.name);
        let message = format!(
            "update or delete on table \"{parent}\" violates foreign key constraint \"{}\" on table \"{child}\"",
            self.key.name
        );
        let names = names(&self.parent, &self.key.parent_columns);
        let texts = texts(&self.parent, &self.key.parent_columns, &self.old);
        Err(Error::new(SqlState::FOREIGN_KEY_VIOLATION, message)
            .with_detail(format!("Key ({names})=({texts}) is still referenced from table \"{child}\"."))
            .with_table(&self.child.schema, child)
            .with_constraint(&self.key.name))
    }

    /// The keys of at most `most` rows that refer to the old key, in their newest versions.
    fn rows(&self, context: &mut Context, most: usize) -> Result<Vec<Vec<u8>>> {
        rows(context, &self.child, &self.key, &self.old, most, LockWait::Block)
    }

    fn delete(&self, context: &mut Context) -> Result<Vec<Event>> {
        let (child, key) = (&self.child, &self.key);
        let rows = self.rows(context, usize::MAX)?;
        let Some(wanted) = key_bytes(child, key, &self.old, &key.columns)? else { return Ok(Vec::new()) };
        let watch = Watch::deletes(&context.definitions(), child);
        let mut events = Vec::new();
        for row_key in rows {
            let mut old = Vec::new();
            let deleted = context.session.delete(child, &row_key, &mut |row| {
                old.clear();
                old.extend_from_slice(row);
                Ok(has(child, key, row, &wanted))
            })?;
            if let (true, Some(watch)) = (deleted, &watch) {
                let old = RawRow { layout: &child.layout, bytes: &old, base: 0, registers: &[] };
                note(watch, child, Some(&old), None, &mut events);
            }
        }
        Ok(events)
    }

    fn update(&self, context: &mut Context, values: &[Value]) -> Result<Vec<Event>> {
        let (child, key) = (&self.child, &self.key);
        let rows = self.rows(context, usize::MAX)?;
        let Some(wanted) = key_bytes(child, key, &self.old, &key.columns)? else { return Ok(Vec::new()) };
        let checks = Checks::of(child)?;
        let watch = Watch::updates(&context.definitions(), child, |column| key.columns.contains(&column));
        let mut events = Vec::new();
        for row_key in rows {
            let (mut old, mut new) = (Vec::new(), Vec::new());
            let changed = context.session.update(child, &row_key, &mut |row, row_values| {
                old.clear();
                old.extend_from_slice(row);
                for (&column, value) in key.columns.iter().zip(values) {
                    row_values[column] = value.clone();
                }
                checks.fill(row_values, &mut expr::Env::new(&mut expr::NoHost))?;
                new.clone_from(row_values);
                Ok(has(child, key, row, &wanted))
            })?;
            if !changed {
                continue;
            }
            checks.enforce(child, &Registers(&new), &mut context.env())?;
            if let Some(watch) = &watch {
                let old = RawRow { layout: &child.layout, bytes: &old, base: 0, registers: &[] };
                note(watch, child, Some(&old), Some(&Registers(&new)), &mut events);
            }
        }
        Ok(events)
    }

    /// Values of the parent's columns as the child's columns have them.
    fn as_child(&self, values: Vec<Value>) -> Result<Vec<Value>> {
        let columns = self.key.columns.iter().zip(&self.key.parent_columns);
        let cast = |((&column, &parent), value): ((&usize, &usize), Value)| {
            let bound = Bound { expr: Expr::Const(value), ty: self.parent.columns[parent].ty };
            let bound = expr::cast_bound(bound, self.child.columns[column].ty, &mut Params::new(Vec::new()))?;
            bound.expr.eval(&(), &[], &mut expr::Env::new(&mut expr::NoHost))
        };
        columns.zip(values).map(cast).collect()
    }

    fn defaults(&self, context: &mut Context) -> Result<Vec<Value>> {
        let default = |&column: &usize| {
            let default = default_of(&self.child, column, &mut Params::new(Vec::new()))?;
            default.eval(&(), &[], &mut context.env())
        };
        self.key.columns.iter().map(default).collect()
    }
}

/// The bytes of these values in the order of `columns` of the child; None: no row of it can have such values.
fn key_bytes(child: &Table, key: &ForeignKey, values: &[Value], columns: &[usize]) -> Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    for column in columns {
        let place = key.columns.iter().position(|other| other == column).unwrap_or_default();
        if !encode_equal(values[place].as_ref(), child.columns[*column].ty.ty, &mut bytes)? {
            return Ok(None);
        }
    }
    Ok(Some(bytes))
}

/// Whether a row of the child has these key bytes in the foreign key's columns.
fn has(child: &Table, key: &ForeignKey, row: &[u8], wanted: &[u8]) -> bool {
    let mut bytes = Vec::with_capacity(wanted.len());
    for &column in &key.columns {
        key::encode_column(child.layout.column(row, column), child.columns[column].ty.ty, &mut bytes);
    }
    bytes == wanted
}

/// The keys of at most `most` rows of `child` whose foreign key has these values, in their newest versions.
fn rows(
    context: &mut Context,
    child: &Arc<Table>,
    key: &ForeignKey,
    values: &[Value],
    most: usize,
    wait: LockWait,
) -> Result<Vec<Vec<u8>>> {
    let primary = child.primary_key.iter().map(|primary| (None, &primary.columns));
    let indexes = child.indexes.iter().enumerate().filter(|(_, index)| index.filter.is_none());
    let indexes = indexes.map(|(place, index)| (Some(place), &index.columns));
    if let Some((index, columns)) = primary.chain(indexes).find(|(_, columns)| leads(columns, key)) {
        let lower = key_bytes(child, key, values, &columns[..key.columns.len()])?;
        let Some(lower) = lower else { return Ok(Vec::new()) };
        let mut upper = lower.clone();
        key::successor(&mut upper);
        let range = KeyRange { lower: End::Included(lower), upper: End::Excluded(upper) };
        return context.session.newest_rows(child, index, &range, None, most, wait);
    }
    let Some(wanted) = key_bytes(child, key, values, &key.columns)? else { return Ok(Vec::new()) };
    let mut refers = |row: &[u8]| has(child, key, row, &wanted);
    context.session.newest_rows(child, None, &KeyRange::all(), Some(&mut refers), most, wait)
}

/// Checks all rows of a table against a foreign key that is new.
///
/// # Errors
/// 23503.
pub(crate) fn validate(context: &mut Context, table: &Arc<Table>, key: &ForeignKey) -> Result<()> {
    let mut found: rustc_hash::FxHashMap<Vec<u8>, Vec<Value>> = rustc_hash::FxHashMap::default();
    let mut order = Vec::new();
    let mut bytes = Vec::new();
    let mut see = |row: &[u8]| {
        bytes.clear();
        let mut has_null = false;
        for &column in &key.columns {
            let value = table.layout.column(row, column);
            has_null |= matches!(value, ValueRef::Null);
            key::encode_column(value, table.columns[column].ty.ty, &mut bytes);
        }
        if !has_null && !found.contains_key(&bytes) {
            let values = key.columns.iter().map(|&column| table.layout.column(row, column).to_owned());
            found.insert(bytes.clone(), values.collect());
            order.push(bytes.clone());
        }
        false
    };
    context.session.newest_rows(table, None, &KeyRange::all(), Some(&mut see), usize::MAX, LockWait::Block)?;
    for (number, bytes) in order.iter().enumerate() {
        if number % 256 == 255 {
            context.check_interrupt()?;
        }
        check_reference(context, table, key, &found[bytes])?;
    }
    Ok(())
}
