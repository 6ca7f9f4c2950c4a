//! How do writing statements change rows? INSERT, UPDATE and DELETE run.
//!
//! Rows to change are found first and changed after, so that a statement never meets its own changes. Each change looks at
//! the newest version of its row again, under the row's latch: that is READ COMMITTED's re-check.

use crate::bind::{Conflict, DeletePlan, InsertPlan, InsertSource, UpdatePlan};
use crate::checks::Checks;
use crate::context::{Context, FrozenHost, NEEDS_SESSION};
use crate::exec::{RawRow, Registers, Running, all_hold, build, point_key};
use crate::expr::{Env, Expr};
use crate::foreign::{self, Event, Pending, Watch};
use crate::plan::{Access, Plan, ScanPlan};
use homenode_engine::{KeyRange, LockWait, Table};
use homenode_types::{Error, Result, SqlState, Value, key};
use std::ops::Bound;
use std::sync::Arc;

/// Takes the registers of each row that RETURNING shows.
pub(crate) type Returned<'a> = dyn FnMut(&mut Context, &[Value]) -> Result<()> + 'a;

/// Runs INSERT; gives the number of rows.
pub(crate) fn insert(
    plan: &InsertPlan,
    context: &mut Context,
    params: &[Value],
    returned: &mut Returned<'_>,
) -> Result<u64> {
    let mut pending = Pending::default();
    let count = insert_rows(plan, context, params, returned, &mut pending)?;
    pending.settle(context)?;
    Ok(count)
}

fn insert_rows(
    plan: &InsertPlan,
    context: &mut Context,
    params: &[Value],
    returned: &mut Returned<'_>,
    pending: &mut Pending,
) -> Result<u64> {
    let mut count = 0;
    match &plan.source {
        InsertSource::Rows(rows) if plan.conflict.is_none() && plan.returning.is_none() && !plan.checks.generates() => {
            for row in rows {
                insert_plain(plan, row, context, params, pending)?;
            }
            count = rows.len() as u64;
        }
        InsertSource::Rows(rows) => {
            let mut values = Vec::with_capacity(plan.table.columns.len());
            for row in rows {
                values.clear();
                let mut env = context.env();
                for value in row {
                    values.push(value.eval(&(), params, &mut env)?);
                }
                count += u64::from(insert_row(plan, context, params, &values, returned, pending)?);
            }
        }
        InsertSource::Query(query, columns) => {
            let mut running = Running::new(query.clone());
            running.open(&mut context.env(), params)?;
            let mut waiting: Vec<Vec<Value>> = Vec::new();
            loop {
                let mut env = context.env();
                if !running.next(&mut env, params)? {
                    break;
                }
                let output = running.output(&mut env, params)?;
                let mut values = Vec::with_capacity(columns.len());
                for column in columns {
                    values.push(column.eval(&output, params, &mut env)?);
                }
                if plan.reads_target {
                    waiting.push(values);
                } else {
                    count += u64::from(insert_row(plan, context, params, &values, returned, pending)?);
                    if count % 256 == 0 {
                        context.check_interrupt()?;
                    }
                }
            }
            for values in waiting {
                count += u64::from(insert_row(plan, context, params, &values, returned, pending)?);
            }
        }
    }
    Ok(count)
}

/// Inserts a row of which nothing but its bytes is wanted, in the connection's buffer.
fn insert_plain(
    plan: &InsertPlan,
    row: &[Expr],
    context: &mut Context,
    params: &[Value],
    pending: &mut Pending,
) -> Result<()> {
    let layout = &plan.table.layout;
    let mut bytes = context.buffers.1.pop().unwrap_or_default();
    layout.encode_nulls(&mut bytes);
    let mut env = context.env();
    let filled = row.iter().enumerate().try_for_each(|(column, value)| {
        let value = value.eval_ref(&(), params, &mut env)?;
        layout.set_column(&mut bytes, column, value.as_ref()).map(|_| ())
    });
    let filled = filled.and_then(|()| {
        let row = RawRow { layout, bytes: &bytes, base: 0, registers: &[] };
        plan.checks.enforce(&plan.table, &row, &mut env)
    });
    let mut result = filled.and_then(|()| context.session.insert_row(&plan.table, &bytes));
    if let (Some(watch), Ok(())) = (&plan.foreign, &result) {
        let row = RawRow { layout, bytes: &bytes, base: 0, registers: &[] };
        result = pending.inserted(watch, &plan.table, &row, context);
    }
    context.buffers.1.push(bytes);
    result
}

fn insert_row(
    plan: &InsertPlan,
    context: &mut Context,
    params: &[Value],
    values: &[Value],
    returned: &mut Returned<'_>,
    pending: &mut Pending,
) -> Result<bool> {
    let mut filled;
    let values = if plan.checks.generates() {
        filled = values.to_vec();
        plan.checks.fill(&mut filled, &mut context.env())?;
        &filled[..]
    } else {
        values
    };
    plan.checks.enforce(&plan.table, &Registers(values), &mut context.env())?;
    let Some(conflict) = &plan.conflict else {
        context.session.insert(&plan.table, values)?;
        inserted(plan, context, values, returned, pending)?;
        return Ok(true);
    };
    for _ in 0..MAX_TRIES {
        let savepoint = context.session.savepoint();
        let error = match context.session.insert(&plan.table, values) {
            Ok(()) => {
                inserted(plan, context, values, returned, pending)?;
                return Ok(true);
            }
            Err(error) => error,
        };
        if error.code != SqlState::UNIQUE_VIOLATION || !is_about(&plan.table, conflict, &error) {
            return Err(error);
        }
        context.session.rollback_to(&savepoint)?;
        match conflict {
            Conflict::Nothing(_) => return Ok(false),
            Conflict::Update { key, assignments, conditions } => {
                let Some(row_key) = conflicting_key(&plan.table, *key, values, context)? else {
                    // Gone meanwhile, or not yet visible: look with a new snapshot.
                    context.session.start_statement();
                    continue;
                };
                let change = Change {
                    table: &plan.table,
                    base: 0,
                    conditions,
                    assignments,
                    checks: &plan.checks,
                    foreign: plan.foreign_updates.as_deref(),
                };
                let mut registers = vec![Value::Null; plan.table.columns.len()];
                registers.extend_from_slice(values);
                return match update_row(&change, context, params, &row_key, &registers, &mut pending.events)? {
                    Some(new) => {
                        if plan.returning.is_some() {
                            returned(context, &new)?;
                        }
                        Ok(true)
                    }
                    None => Ok(false),
                };
            }
        }
    }
    Err(Error::new(SqlState::SERIALIZATION_FAILURE, "could not serialize access due to concurrent inserts"))
}

/// What follows an inserted row.
fn inserted(
    plan: &InsertPlan,
    context: &mut Context,
    values: &[Value],
    returned: &mut Returned<'_>,
    pending: &mut Pending,
) -> Result<()> {
    if let Some(watch) = &plan.foreign {
        pending.inserted(watch, &plan.table, &Registers(values), context)?;
    }
    if plan.returning.is_some() {
        returned(context, values)?;
    }
    Ok(())
}

/// How often an ON CONFLICT insert looks for the row it conflicts with.
const MAX_TRIES: usize = 100;

fn is_about(table: &Table, conflict: &Conflict, error: &Error) -> bool {
    let key = match conflict {
        Conflict::Nothing(None) => return true,
        Conflict::Nothing(Some(key)) => *key,
        Conflict::Update { key, .. } => *key,
    };
    let name = match key {
        None => table.primary_key.as_ref().map(|key| key.name.as_str()),
        Some(index) => Some(table.indexes[index].name.as_str()),
    };
    error.constraint.as_deref() == name
}

/// The row key of the row that has the same unique key as `values`.
fn conflicting_key(
    table: &Arc<Table>,
    key: Option<usize>,
    values: &[Value],
    context: &mut Context,
) -> Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let columns = match key {
        None => table.primary_key.as_ref().map_or(&[][..], |key| &key.columns),
        Some(index) => &table.indexes[index].columns,
    };
    for &column in columns {
        key::encode_column(values[column].as_ref(), table.columns[column].ty.ty, &mut bytes);
    }
    let Some(index) = key else { return Ok(Some(bytes)) };
    let mut above = bytes.clone();
    key::successor(&mut above);
    let range = KeyRange { lower: Bound::Included(bytes), upper: Bound::Excluded(above) };
    let mut scan = context.session.index_scan(table, &table.indexes[index], &range, false)?;
    Ok(scan.next(&mut context.session)?.map(|(key, _)| key.to_vec()))
}

/// What is changed in a row.
struct Change<'a> {
    table: &'a Arc<Table>,
    /// Register of the table's first column.
    base: usize,
    conditions: &'a [Expr],
    assignments: &'a [(usize, Expr)],
    checks: &'a Checks,
    foreign: Option<&'a Watch>,
}

impl Change<'_> {
    /// Notes for the end of the statement what the change of a row, not yet made, means for foreign keys.
    fn note(&self, old: &[u8], new: &[Value], events: &mut Vec<Event>) {
        if let Some(watch) = self.foreign {
            let old = RawRow { layout: &self.table.layout, bytes: old, base: 0, registers: &[] };
            foreign::note(watch, self.table, Some(&old), Some(&Registers(new)), events);
        }
    }

    /// The new values of a row, or `None` when it does not satisfy the conditions any more.
    fn values(
        &self,
        row: &[u8],
        registers: &[Value],
        params: &[Value],
        env: &mut Env<'_>,
        out: &mut Vec<Value>,
    ) -> Result<bool> {
        let raw = RawRow { layout: &self.table.layout, bytes: row, base: self.base, registers };
        if !all_hold(self.conditions, &raw, params, env)? {
            return Ok(false);
        }
        out.clear();
        for (_, value) in self.assignments {
            out.push(value.eval(&raw, params, env)?);
        }
        Ok(true)
    }
}

fn frozen(context: &Context) -> FrozenHost {
    FrozenHost { transaction_us: context.transaction_us, statement_us: context.statement_us }
}

/// Changes the row under `row_key`; gives its new values (then EXCLUDED's, if any), or `None` when it is gone or does not
/// match any more.
fn update_row(
    change: &Change<'_>,
    context: &mut Context,
    params: &[Value],
    row_key: &[u8],
    registers: &[Value],
    events: &mut Vec<Event>,
) -> Result<Option<Vec<Value>>> {
    let mut host = frozen(context);
    let mut env = Env::new(&mut host);
    let mut fresh = Vec::new();
    let mut new = Vec::new();
    let noted = events.len();
    let result = context.session.update(change.table, row_key, &mut |row, values| {
        if !change.values(row, registers, params, &mut env, &mut fresh)? {
            return Ok(false);
        }
        for ((column, _), value) in change.assignments.iter().zip(fresh.drain(..)) {
            values[*column] = value;
        }
        change.checks.fill(values, &mut env)?;
        change.checks.enforce(change.table, &Registers(values), &mut env)?;
        new.clone_from(values);
        // The row may be looked at more than once before it is changed.
        events.truncate(noted);
        change.note(row, values, events);
        Ok(true)
    });
    match result {
        Ok(true) => Ok(Some(new)),
        Ok(false) => {
            events.truncate(noted);
            Ok(None)
        }
        Err(error) if error.code == NEEDS_SESSION => {
            events.truncate(noted);
            update_with_session(change, context, params, row_key, registers, events)
        }
        Err(error) => Err(error),
    }
}

/// As [`update_row`] for values that need the session (subqueries, sequences): the row is locked first, so that its newest
/// version stays the newest while they are computed.
fn update_with_session(
    change: &Change<'_>,
    context: &mut Context,
    params: &[Value],
    row_key: &[u8],
    registers: &[Value],
    events: &mut Vec<Event>,
) -> Result<Option<Vec<Value>>> {
    match worked_out(change, context, params, row_key, registers)? {
        Some(values) => update_to(change, context, row_key, values, events),
        None => Ok(None),
    }
}

/// A row to change and the values to assign.
type WorkedOut = (Vec<u8>, Vec<Value>);

/// Locks the row and computes what is assigned; `None` when it is gone or does not match any more.
fn worked_out(
    change: &Change<'_>,
    context: &mut Context,
    params: &[Value],
    row_key: &[u8],
    registers: &[Value],
) -> Result<Option<WorkedOut>> {
    let Some(row) = lock_newest(change.table, context, row_key)? else { return Ok(None) };
    let mut fresh = Vec::new();
    let matches = change.values(&row, registers, params, &mut context.env(), &mut fresh)?;
    Ok(matches.then_some((row, fresh)))
}

/// Changes a row that is locked.
fn update_to(
    change: &Change<'_>,
    context: &mut Context,
    row_key: &[u8],
    (row, fresh): WorkedOut,
    events: &mut Vec<Event>,
) -> Result<Option<Vec<Value>>> {
    let mut new = Vec::new();
    let mut host = frozen(context);
    let mut env = Env::new(&mut host);
    let changed = context.session.update(change.table, row_key, &mut |_, values| {
        for ((column, _), value) in change.assignments.iter().zip(&fresh) {
            values[*column] = value.clone();
        }
        change.checks.fill(values, &mut env)?;
        new.clone_from(values);
        Ok(true)
    })?;
    if changed {
        change.checks.enforce(change.table, &Registers(&new), &mut context.env())?;
        change.note(&row, &new, events);
    }
    Ok(changed.then_some(new))
}

fn lock_newest(table: &Table, context: &mut Context, row_key: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut row = Vec::new();
    let locked = context.session.lock_row(table, row_key, LockWait::Block, &mut |bytes| {
        row.clear();
        row.extend_from_slice(bytes);
        Ok(true)
    })?;
    Ok(locked.then_some(row))
}

/// One row that a statement will change: its key, and the registers of the other relations where there are any.
type Found = (Vec<u8>, Option<Vec<Value>>);

/// Finds the rows to change.
fn find(
    input: &Plan,
    width: usize,
    scan: &ScanPlan,
    joined: bool,
    context: &mut Context,
    params: &[Value],
) -> Result<Vec<Found>> {
    let mut registers = vec![Value::Null; width];
    if let (false, Plan::Scan(_), Access::Point { index: None, keys }) = (joined, input, &scan.access) {
        // The key says which row; whether it is there and matches shows when it is changed.
        let mut key = Vec::new();
        let known = point_key(&scan.table, None, keys, &registers, params, &mut context.env(), &mut key)?;
        return Ok(if known { vec![(key, None)] } else { Vec::new() });
    }
    let Some(key_register) = scan.key_register else { return Err(Error::internal("a target without a key register")) };
    let mut operator = build(input);
    let mut env = context.env();
    let mut found = Vec::new();
    operator.open(&mut env, params, &mut registers)?;
    while operator.next(&mut env, params, &mut registers)? {
        if let Value::Bytea(key) = &registers[key_register] {
            found.push((key.clone(), joined.then(|| registers.clone())));
        }
    }
    if joined {
        // A row that joins with several others is changed once, by the first.
        let mut seen = std::collections::HashSet::new();
        found.retain(|(key, _)| seen.insert(key.clone()));
    }
    Ok(found)
}

/// The keys of the one row that a statement without RETURNING changes, for the path that makes no list of rows and no values.
fn single_keys<'a>(input: &Plan, scan: &'a ScanPlan, joined: bool, returns: bool) -> Option<&'a [Expr]> {
    match (input, &scan.access) {
        (Plan::Scan(_), Access::Point { index: None, keys }) if !joined && !returns => Some(keys),
        _ => None,
    }
}

/// Evaluates the key of the row and has `change` change it, with the connection's buffer for the key. None: the change needs
/// the session, and is left to the general path.
fn single(
    table: &Table,
    keys: &[Expr],
    context: &mut Context,
    params: &[Value],
    change: impl FnOnce(&mut Context, &[u8]) -> Result<bool>,
) -> Result<Option<u64>> {
    let mut key = std::mem::take(&mut context.buffers.0);
    key.clear();
    let known = point_key(table, None, keys, &[], params, &mut context.env(), &mut key);
    let result = known.and_then(|known| Ok(known && change(context, &key)?));
    context.buffers.0 = key;
    match result {
        Ok(changed) => Ok(Some(changed.into())),
        Err(error) if error.code == NEEDS_SESSION => Ok(None),
        Err(error) => Err(error),
    }
}

/// Runs an UPDATE of one row by its key: from the old row's bytes to the new one's, without values in between.
fn update_single(
    plan: &UpdatePlan,
    keys: &[Expr],
    context: &mut Context,
    params: &[Value],
    events: &mut Vec<Event>,
) -> Result<Option<u64>> {
    let table = &*plan.table;
    single(table, keys, context, params, |context, key| {
        let mut host = frozen(context);
        let mut env = Env::new(&mut host);
        context.session.update_encoded(table, key, &mut |row, out| {
            let raw = RawRow { layout: &table.layout, bytes: row, base: plan.scan.base, registers: &[] };
            if !all_hold(&plan.conditions, &raw, params, &mut env)? {
                return Ok(false);
            }
            out.extend_from_slice(row);
            for (column, value) in &plan.assignments {
                let value = value.eval_ref(&raw, params, &mut env)?;
                if !table.layout.set_column(out, *column, value.as_ref())? {
                    write_anew(plan, &raw, params, &mut env, out)?;
                    break;
                }
            }
            let new = RawRow { layout: &table.layout, bytes: out, base: 0, registers: &[] };
            plan.checks.enforce(table, &new, &mut env)?;
            if let Some(watch) = &plan.foreign {
                events.clear();
                foreign::note(watch, &plan.table, Some(&raw), Some(&new), events);
            }
            Ok(true)
        })
    })
}

/// Writes a changed row that has fewer columns than its table has now.
#[cold]
fn write_anew(
    plan: &UpdatePlan,
    raw: &RawRow<'_>,
    params: &[Value],
    env: &mut Env<'_>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let mut values = Vec::new();
    plan.table.layout.decode(raw.bytes, &mut values);
    for (column, value) in &plan.assignments {
        values[*column] = value.eval(raw, params, env)?;
    }
    plan.table.layout.encode(&values, out)
}

/// Runs a DELETE of one row by its key.
fn delete_single(
    plan: &DeletePlan,
    keys: &[Expr],
    context: &mut Context,
    params: &[Value],
    events: &mut Vec<Event>,
) -> Result<Option<u64>> {
    let table = &*plan.table;
    single(table, keys, context, params, |context, key| {
        let mut host = frozen(context);
        let mut env = Env::new(&mut host);
        context.session.delete(table, key, &mut |row| {
            let raw = RawRow { layout: &table.layout, bytes: row, base: plan.scan.base, registers: &[] };
            let matches = all_hold(&plan.conditions, &raw, params, &mut env)?;
            if let Some(watch) = plan.foreign.as_deref().filter(|_| matches) {
                events.clear();
                foreign::note(watch, &plan.table, Some(&raw), None, events);
            }
            Ok(matches)
        })
    })
}

/// Runs UPDATE; gives the number of rows.
pub(crate) fn update(
    plan: &UpdatePlan,
    context: &mut Context,
    params: &[Value],
    returned: &mut Returned<'_>,
) -> Result<u64> {
    let mut pending = Pending::default();
    let general = plan.returning.is_some() || plan.checks.generates();
    if let Some(keys) = single_keys(&plan.input, &plan.scan, plan.joined, general)
        && let Some(count) = update_single(plan, keys, context, params, &mut pending.events)?
    {
        // What was noted of a row that then was not there means nothing.
        if count > 0 {
            pending.settle(context)?;
        }
        return Ok(count);
    }
    pending.events.clear();
    let found = find(&plan.input, plan.width, &plan.scan, plan.joined, context, params)?;
    let change = Change {
        table: &plan.table,
        base: plan.scan.base,
        conditions: &plan.conditions,
        assignments: &plan.assignments,
        checks: &plan.checks,
        foreign: plan.foreign.as_deref(),
    };
    let mut all = Vec::new();
    let looks = looks_at_rows(plan.conditions.iter().chain(plan.assignments.iter().map(|(_, value)| value)));
    if looks {
        for (row_key, registers) in &found {
            let registers = registers.as_deref().unwrap_or(&[]);
            all.push(worked_out(&change, context, params, row_key, registers)?);
        }
    }
    let mut count = 0;
    for (number, (row_key, registers)) in found.iter().enumerate() {
        if number % 256 == 255 {
            context.check_interrupt()?;
        }
        let registers = registers.as_deref().unwrap_or(&[]);
        let changed = match all.get_mut(number).map(Option::take) {
            Some(Some(values)) => update_to(&change, context, row_key, values, &mut pending.events)?,
            Some(None) => None,
            None => update_row(&change, context, params, row_key, registers, &mut pending.events)?,
        };
        if let Some(new) = changed {
            count += 1;
            if plan.returning.is_some() {
                let mut shown = new;
                shown.extend(registers.iter().skip(shown.len()).cloned());
                returned(context, &shown)?;
            }
        }
    }
    pending.settle(context)?;
    Ok(count)
}

/// Runs DELETE; gives the number of rows.
pub(crate) fn delete(
    plan: &DeletePlan,
    context: &mut Context,
    params: &[Value],
    returned: &mut Returned<'_>,
) -> Result<u64> {
    let mut pending = Pending::default();
    if let Some(keys) = single_keys(&plan.input, &plan.scan, plan.joined, plan.returning.is_some())
        && let Some(count) = delete_single(plan, keys, context, params, &mut pending.events)?
    {
        // What was noted of a row that then was not there means nothing.
        if count > 0 {
            pending.settle(context)?;
        }
        return Ok(count);
    }
    pending.events.clear();
    let mut found = find(&plan.input, plan.width, &plan.scan, plan.joined, context, params)?;
    let looks = looks_at_rows(plan.conditions.iter());
    if looks {
        let mut locked = Vec::with_capacity(found.len());
        for (row_key, registers) in found {
            if lock_matching(plan, context, params, &row_key, registers.as_deref().unwrap_or(&[]))?.is_some() {
                locked.push((row_key, registers));
            }
        }
        found = locked;
    }
    let mut count = 0;
    for (number, (row_key, registers)) in found.iter().enumerate() {
        if number % 256 == 255 {
            context.check_interrupt()?;
        }
        let registers = registers.as_deref().unwrap_or(&[]);
        let conditions: &[Expr] = if looks { &[] } else { &plan.conditions };
        let Some(old) = delete_row(plan, conditions, context, params, row_key, registers)? else { continue };
        count += 1;
        if let Some(watch) = &plan.foreign {
            let old = RawRow { layout: &plan.table.layout, bytes: &old, base: 0, registers: &[] };
            foreign::note(watch, &plan.table, Some(&old), None, &mut pending.events);
        }
        if plan.returning.is_some() {
            let mut shown = Vec::new();
            plan.table.layout.decode(&old, &mut shown);
            shown.extend(registers.iter().skip(shown.len()).cloned());
            returned(context, &shown)?;
        }
    }
    pending.settle(context)?;
    Ok(count)
}

/// Is a subquery among these? It must not see what the statement changes: all rows are locked and looked at before the first is changed.
fn looks_at_rows<'a>(mut exprs: impl Iterator<Item = &'a Expr>) -> bool {
    exprs.any(|expr| expr.any(&|part| matches!(part, Expr::External(_))))
}

/// Locks the row under `row_key` and gives it, if it still matches.
fn lock_matching(
    plan: &DeletePlan,
    context: &mut Context,
    params: &[Value],
    row_key: &[u8],
    registers: &[Value],
) -> Result<Option<Vec<u8>>> {
    let Some(row) = lock_newest(&plan.table, context, row_key)? else { return Ok(None) };
    let raw = RawRow { layout: &plan.table.layout, bytes: &row, base: plan.scan.base, registers };
    let matches = all_hold(&plan.conditions, &raw, params, &mut context.env())?;
    Ok(matches.then_some(row))
}

/// Deletes the row under `row_key` if it still matches; gives the row (empty unless RETURNING or a foreign key asks for it).
fn delete_row(
    plan: &DeletePlan,
    conditions: &[Expr],
    context: &mut Context,
    params: &[Value],
    row_key: &[u8],
    registers: &[Value],
) -> Result<Option<Vec<u8>>> {
    let base = plan.scan.base;
    let mut host = frozen(context);
    let mut env = Env::new(&mut host);
    let mut old = Vec::new();
    let result = context.session.delete(&plan.table, row_key, &mut |row| {
        let raw = RawRow { layout: &plan.table.layout, bytes: row, base, registers };
        let matches = all_hold(conditions, &raw, params, &mut env)?;
        if matches && (plan.returning.is_some() || plan.foreign.is_some()) {
            old.clear();
            old.extend_from_slice(row);
        }
        Ok(matches)
    });
    match result {
        Ok(deleted) => Ok(deleted.then_some(old)),
        Err(error) if error.code == NEEDS_SESSION => {
            let Some(row) = lock_matching(plan, context, params, row_key, registers)? else { return Ok(None) };
            let deleted = context.session.delete(&plan.table, row_key, &mut |_| Ok(true))?;
            Ok(deleted.then_some(row))
        }
        Err(error) => Err(error),
    }
}

/// RETURNING's output values over a row's registers.
pub(crate) fn shown(output: &[Expr], registers: &[Value], params: &[Value], env: &mut Env<'_>) -> Result<Vec<Value>> {
    output.iter().map(|value| value.eval(&Registers(registers), params, env)).collect()
}
