//! Which rows of a stored table does the statement need? Full scans, key ranges, single keys and lists of keys.

use super::key::{encode_end, encode_equal};
use super::trace::Tracer;
use super::{Operator, Registers, all_hold, assign, context};
use crate::expr::{Env, Expr, RowSource};
use crate::plan::{Access, End, ScanPlan};
use homenode_engine::{IndexScan, KeyRange, Scan, Table};
use homenode_types::{Result, RowLayout, Value, ValueRef, key};
use std::ops::Bound;
use std::sync::Arc;

/// Rows between two looks at the cancel flag and the clock.
const ROWS_PER_CHECK: u32 = 256;

/// A stored row seen as registers, before anything is copied.
pub(crate) struct RawRow<'a> {
    /// The table's layout.
    pub layout: &'a RowLayout,
    /// The row.
    pub bytes: &'a [u8],
    /// First register of the table.
    pub base: usize,
    /// The other registers.
    pub registers: &'a [Value],
}

impl RowSource for RawRow<'_> {
    #[inline]
    fn column(&self, register: usize) -> ValueRef<'_> {
        match register.checked_sub(self.base) {
            Some(column) if column < self.layout.len() => self.layout.column(self.bytes, column),
            _ => self.registers.get(register).map_or(ValueRef::Null, Value::as_ref),
        }
    }
}

enum State {
    Closed,
    /// One row, already in `bytes`.
    One,
    Table(Scan),
    Index(IndexScan),
    /// Between the ranges of a list.
    Between,
}

/// The operator.
pub(super) struct ScanRows {
    plan: Arc<ScanPlan>,
    state: State,
    /// Further ranges of a list of keys, the next one last.
    ranges: Vec<KeyRange>,
    key: Vec<u8>,
    bytes: Vec<u8>,
    unchecked: u32,
    /// There while the statement is explained.
    tracer: Option<Box<Tracer>>,
}

impl Drop for ScanRows {
    fn drop(&mut self) {
        // A scan that was stopped early, by LIMIT or an error: what cannot be told any more is not.
        let _ = self.trace_end();
    }
}

impl ScanRows {
    pub fn new(plan: Arc<ScanPlan>) -> ScanRows {
        ScanRows {
            plan,
            state: State::Closed,
            ranges: Vec::new(),
            key: Vec::new(),
            bytes: Vec::new(),
            unchecked: 0,
            tracer: None,
        }
    }

    fn trace_end(&mut self) -> Result<()> {
        match &mut self.tracer {
            Some(tracer) => tracer.finish(&self.plan),
            None => Ok(()),
        }
    }

    fn open_range(&mut self, env: &mut Env<'_>, index: Option<usize>, range: &KeyRange, reverse: bool) -> Result<()> {
        self.trace_end()?;
        if let Some(tracer) = &mut self.tracer {
            tracer.begin(index, range, reverse);
        }
        let session = &mut context(env).session;
        self.state = match index {
            None => State::Table(session.scan(&self.plan.table, range, reverse)?),
            Some(at) => {
                State::Index(session.index_scan(&self.plan.table, &self.plan.table.indexes[at], range, reverse)?)
            }
        };
        Ok(())
    }

    fn open_list(
        &mut self,
        env: &mut Env<'_>,
        params: &[Value],
        row: &[Value],
        index: Option<usize>,
        values: &[Expr],
    ) -> Result<()> {
        let columns = key_columns(&self.plan.table, index);
        let ty = self.plan.table.columns[columns[0]].ty.ty;
        let mut prefixes = Vec::with_capacity(values.len());
        for value in values {
            let value = value.eval(&Registers(row), params, env)?;
            let mut prefix = Vec::new();
            if encode_equal(value.as_ref(), ty, &mut prefix)? {
                prefixes.push(prefix);
            }
        }
        prefixes.sort_unstable();
        prefixes.dedup();
        self.ranges = prefixes.into_iter().rev().map(prefix_range).collect();
        self.state = State::Between;
        Ok(())
    }

    /// Ends the open scan; its memory serves the session's next one.
    fn close(&mut self, env: &mut Env<'_>) {
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Table(scan) => context(env).session.end_scan(scan),
            State::Index(scan) => context(env).session.end_index_scan(scan),
            State::Closed | State::One | State::Between => {}
        }
    }

    /// The next row of the open range into the registers, if the conditions hold; None at the range's end.
    fn advance(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<Option<bool>> {
        let plan = &*self.plan;
        let session = &mut context(env).session;
        let (key, bytes) = match &mut self.state {
            State::Closed | State::Between => return Ok(None),
            State::One => {
                self.state = State::Closed;
                (&self.key[..], &self.bytes[..])
            }
            State::Table(scan) if plan.key_register.is_none() && self.tracer.is_none() => {
                match scan.next_row(session)? {
                    Some(bytes) => (&[][..], bytes),
                    None => return Ok(None),
                }
            }
            State::Table(scan) => match scan.next(session)? {
                Some(found) => found,
                None => return Ok(None),
            },
            State::Index(scan) => match scan.next(session)? {
                Some(found) => {
                    if let Some(tracer) = &self.tracer {
                        tracer.row(plan, found.0)?;
                    }
                    found
                }
                None => return Ok(None),
            },
        };
        if let Some(tracer) = &mut self.tracer {
            tracer.reached(key, bytes);
        }
        if !plan.filter.is_empty() {
            let raw = RawRow { layout: &plan.table.layout, bytes, base: plan.base, registers: row };
            if !all_hold(&plan.filter, &raw, params, env)? {
                return Ok(Some(false));
            }
        }
        load(plan, bytes, row);
        if let Some(register) = plan.key_register {
            assign(&mut row[register], ValueRef::Bytea(key));
        }
        Ok(Some(true))
    }
}

impl Operator for ScanRows {
    fn open(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<()> {
        let plan = self.plan.clone();
        self.trace_end()?;
        self.tracer = context(env).trace.as_ref().map(Tracer::new);
        self.ranges.clear();
        self.close(env);
        match &plan.access {
            Access::Full { reverse } => self.open_range(env, None, &KeyRange::all(), *reverse),
            Access::Point { index, keys } => {
                self.key.clear();
                if !point_key(&plan.table, *index, keys, row, params, env, &mut self.key)? {
                    return Ok(());
                }
                match index {
                    None => {
                        if let Some(tracer) = &self.tracer {
                            tracer.row(&plan, &self.key)?;
                        }
                        if context(env).session.get(&plan.table, &self.key, &mut self.bytes)? {
                            self.state = State::One;
                        }
                        Ok(())
                    }
                    Some(_) => {
                        let range = prefix_range(std::mem::take(&mut self.key));
                        self.open_range(env, *index, &range, false)
                    }
                }
            }
            Access::Range { index, reverse, .. } => match scan_range(&plan, row, params, env)? {
                Some(range) => self.open_range(env, *index, &range, *reverse),
                None => Ok(()),
            },
            Access::List { index, values } => self.open_list(env, params, row, *index, values),
        }
    }

    fn next(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<bool> {
        loop {
            self.unchecked += 1;
            if self.unchecked >= ROWS_PER_CHECK {
                self.unchecked = 0;
                context(env).check_interrupt()?;
            }
            match self.advance(env, params, row)? {
                Some(true) => return Ok(true),
                Some(false) => continue,
                None => {}
            }
            if let Some(tracer) = &mut self.tracer {
                tracer.end();
            }
            self.close(env);
            let Access::List { index, .. } = &self.plan.access else { return Ok(false) };
            let index = *index;
            let Some(range) = self.ranges.pop() else { return Ok(false) };
            self.open_range(env, index, &range, false)?;
        }
    }
}

/// Loads the columns that the statement needs into their registers.
#[inline]
pub(crate) fn load(plan: &ScanPlan, bytes: &[u8], row: &mut [Value]) {
    for &column in &plan.needed {
        assign(&mut row[plan.base + column], plan.table.layout.column(bytes, column));
    }
}

/// The columns of a key, in key order.
pub(crate) fn key_columns(table: &Table, index: Option<usize>) -> &[usize] {
    match index {
        Some(at) => &table.indexes[at].columns,
        None => table.primary_key.as_ref().map_or(&[], |key| &key.columns),
    }
}

/// Appends the key made of `keys`; false when one is NULL, which equals nothing.
pub(crate) fn point_key(
    table: &Table,
    index: Option<usize>,
    keys: &[Expr],
    row: &[Value],
    params: &[Value],
    env: &mut Env<'_>,
    out: &mut Vec<u8>,
) -> Result<bool> {
    for (value, &column) in keys.iter().zip(key_columns(table, index)) {
        let registers = Registers(row);
        let value = value.eval_ref(&registers, params, env)?;
        if !encode_equal(value.as_ref(), table.columns[column].ty.ty, out)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn prefix_range(prefix: Vec<u8>) -> KeyRange {
    let mut above = prefix.clone();
    key::successor(&mut above);
    KeyRange { lower: Bound::Included(prefix), upper: Bound::Excluded(above) }
}

/// The one range of keys in which a scan's rows are; `None` when nothing can match, or when there are several ranges.
pub(crate) fn scan_range(
    scan: &ScanPlan,
    row: &[Value],
    params: &[Value],
    env: &mut Env<'_>,
) -> Result<Option<KeyRange>> {
    match &scan.access {
        Access::Full { .. } => Ok(Some(KeyRange::all())),
        Access::Point { index, keys } => key_range(&scan.table, *index, keys, None, None, row, params, env),
        Access::Range { index, equal, lower, upper, .. } => {
            key_range(&scan.table, *index, equal, lower.as_ref(), upper.as_ref(), row, params, env)
        }
        Access::List { .. } => Ok(None),
    }
}

/// The key range of a [`Access::Range`]; `None` when a bound is NULL and so nothing can match.
#[allow(clippy::too_many_arguments, reason = "a range and what it is evaluated with")]
fn key_range(
    table: &Table,
    index: Option<usize>,
    equal: &[Expr],
    lower: Option<&End>,
    upper: Option<&End>,
    row: &[Value],
    params: &[Value],
    env: &mut Env<'_>,
) -> Result<Option<KeyRange>> {
    let mut prefix = Vec::new();
    if !point_key(table, index, equal, row, params, env, &mut prefix)? {
        return Ok(None);
    }
    if lower.is_none() && upper.is_none() {
        return Ok(Some(prefix_range(prefix)));
    }
    let column = key_columns(table, index)[equal.len()];
    let ty = table.columns[column].ty.ty;
    let mut encoded = |end: &End, lower: bool| -> Result<Option<(Vec<u8>, bool)>> {
        let value = end.value.eval(&Registers(row), params, env)?;
        let mut bytes = prefix.clone();
        let inclusive = encode_end(value.as_ref(), ty, lower, end.inclusive, &mut bytes)?;
        Ok(inclusive.map(|inclusive| (bytes, inclusive)))
    };
    let low = match lower {
        None => prefix.clone(),
        Some(end) => {
            let Some((mut bytes, inclusive)) = encoded(end, true)? else { return Ok(None) };
            if !inclusive {
                key::successor(&mut bytes);
            }
            bytes
        }
    };
    let high = match upper {
        // NULL sorts after every value and satisfies no comparison.
        None => {
            let mut bytes = prefix.clone();
            key::encode_value(ValueRef::Null, &mut bytes);
            bytes
        }
        Some(end) => {
            let Some((mut bytes, inclusive)) = encoded(end, false)? else { return Ok(None) };
            if inclusive {
                key::successor(&mut bytes);
            }
            bytes
        }
    };
    if low >= high {
        return Ok(None);
    }
    Ok(Some(KeyRange { lower: Bound::Included(low), upper: Bound::Excluded(high) }))
}
