//! Can the statement be answered in one pass over a range of one table's keys? The compiled path of range queries.
//!
//! `SELECT ... FROM t WHERE key BETWEEN $1 AND $2`, perhaps sorted, DISTINCT, limited, or summed up. No operators are made and no row
//! becomes values: columns go from a row's bytes into the output buffer; a sort keeps each row as the DataRow that it will be.

use crate::connection;
use crate::context::Context;
use crate::exec::{RawRow, Registers, all_hold, row_count, scan_range};
use crate::expr::{Expr, RowSource};
use crate::output::{Output, Stored, StoredRows, data_row, stored_row};
use crate::plan::{Access, AggregatePlan, DistinctPlan, Plan, QueryPlan, ScanPlan, SortPlan};
use crate::sort_keys::{Direction, SortKeys};
use crate::tally::Tally;
use crate::wire::{Field, Format};
use homenode_engine::{IndexScan, KeyRange, Scan, Session};
use homenode_types::{Result, RowLayout, Type, Value, ValueRef};
use std::sync::Arc;

/// Rows between two looks at the cancel flag and the clock.
const ROWS_PER_CHECK: u32 = 256;
/// Bytes of answers from which on the connection is asked whether they should go out; well below what it holds on to.
const ASK_TO_FLUSH_BYTES: usize = 32 << 10;
/// Rows from which on a sort that needs only some of them throws out the others.
const COMPACT_ROWS: usize = 256;
/// The same for a sort that throws out duplicates only.
const DISTINCT_ROWS: usize = 4096;
/// Memory that a session keeps for its next sort.
const KEPT_BYTES: usize = 1 << 20;

/// A compiled range query.
pub(crate) struct RangeQuery {
    scan: Arc<ScanPlan>,
    finish: Finish,
    limit: Option<Expr>,
    offset: Option<Expr>,
    /// The same query for operators (cursors, EXPLAIN).
    pub plan: Arc<QueryPlan>,
}

/// What becomes of the rows.
enum Finish {
    /// Each is sent.
    Send(Vec<Output>),
    /// They are sent in another order.
    Sort(Vec<Output>, Order),
    /// They are added up; the sums are registers of the query's output.
    Add(Vec<Tally>),
}

/// An order of rows.
struct Order {
    keys: Vec<SortKey>,
    /// Of rows with equal keys only one is wanted.
    distinct: bool,
}

struct SortKey {
    value: Expr,
    /// The value, when it is a stored text.
    text: Option<Stored>,
    ty: Type,
    direction: Direction,
}

/// Rows that are being sorted; memory that a session uses again.
#[derive(Default)]
pub(crate) struct Sorted {
    keys: SortKeys,
    /// DataRows, one after the other, and where each ends.
    rows: Vec<u8>,
    ends: Vec<usize>,
}

/// Compiles a query if it is of the kind.
pub(crate) fn of_query(plan: &Arc<QueryPlan>) -> Option<RangeQuery> {
    let (mut input, mut limit, mut offset) = (&plan.input, None, None);
    if let Plan::Limit(limited) = input {
        (input, limit, offset) = (&limited.input, limited.limit.clone(), limited.offset.clone());
    }
    let (scan, finish) = match input {
        Plan::Scan(scan) => (scan, Finish::Send(outputs(scan, &plan.output))),
        Plan::Sort(sort) => sorted(plan, sort)?,
        Plan::Aggregate(aggregate) if limit.is_none() && offset.is_none() => added(aggregate)?,
        _ => return None,
    };
    if scan.key_register.is_some() || !(scan.filter.iter().chain(&plan.output)).all(is_plain) {
        return None;
    }
    match &scan.access {
        Access::Full { .. } | Access::Range { .. } | Access::Point { index: Some(_), .. } => {}
        Access::Point { index: None, .. } | Access::List { .. } => return None,
    }
    Some(RangeQuery { scan: scan.clone(), finish, limit, offset, plan: plan.clone() })
}

/// Neither subqueries nor columns of a query around.
fn is_plain(expr: &Expr) -> bool {
    !expr.any(&|part| matches!(part, Expr::External(_) | Expr::Outer(_)))
}

fn stored(scan: &ScanPlan, expr: &Expr) -> Option<Stored> {
    let Expr::Column(register) = expr else { return None };
    let column = register.checked_sub(scan.base).filter(|column| *column < scan.table.layout.len())?;
    Stored::new(&scan.table.layout, 0, column)
}

fn outputs(scan: &ScanPlan, exprs: &[Expr]) -> Vec<Output> {
    let output = |expr: &Expr| stored(scan, expr).map_or_else(|| Output::Computed(expr.clone()), Output::Stored);
    exprs.iter().map(output).collect()
}

/// A sort over new rows made of one table's rows.
fn sorted<'p>(plan: &QueryPlan, sort: &'p SortPlan) -> Option<(&'p Arc<ScanPlan>, Finish)> {
    let (input, distinct) = match &sort.input {
        Plan::Distinct(distinct) if !distinct.sorted => (&distinct.input, Some(distinct)),
        input => (input, None),
    };
    let Plan::Project(project) = input else { return None };
    let Plan::Scan(scan) = &project.input else { return None };
    if !project.columns.iter().all(is_plain) {
        return None;
    }
    let column = |expr: &Expr| match expr {
        Expr::Column(place) => project.columns.get(*place),
        _ => None,
    };
    let output = plan.output.iter().map(|expr| column(expr).cloned()).collect::<Option<Vec<_>>>()?;
    let key = |value: &Expr, ty: Type, direction: Direction| -> Option<SortKey> {
        let value = column(value)?.clone();
        Some(SortKey { text: stored(scan, &value), value, ty, direction })
    };
    let mut keys = Vec::new();
    for part in &sort.keys {
        let direction = Direction { descending: part.descending, nulls_first: part.nulls_first };
        keys.push(key(&part.value, part.ty.ty, direction)?);
    }
    if let Some(distinct) = distinct {
        for (value, ty) in distinct_columns(distinct) {
            // What the order leaves out is sorted by as well, so that equal rows meet.
            if !sort
                .keys
                .iter()
                .any(|part| matches!((&part.value, value), (Expr::Column(a), Expr::Column(b)) if a == b))
            {
                keys.push(key(value, ty, Direction { descending: false, nulls_first: false })?);
            }
        }
    }
    let order = Order { keys, distinct: distinct.is_some() };
    Some((scan, Finish::Sort(outputs(scan, &output), order)))
}

/// The columns that make rows the same; a cast from `character(n)` only takes blanks off, as the type's keys do anyway.
fn distinct_columns(distinct: &DistinctPlan) -> impl Iterator<Item = (&Expr, Type)> {
    distinct.keys.iter().map(|key| match key {
        Expr::Cast { expr, from: Type::Bpchar, .. } => (&**expr, Type::Bpchar),
        other => (other, Type::Unknown),
    })
}

fn added(aggregate: &AggregatePlan) -> Option<(&Arc<ScanPlan>, Finish)> {
    let Plan::Scan(scan) = &aggregate.input else { return None };
    if aggregate.parallel {
        return None;
    }
    Some((scan, Finish::Add(Tally::of_calls(aggregate, scan)?)))
}

/// A stored row of the query's table.
struct Row<'a>(RawRow<'a>);

impl RowSource for Row<'_> {
    #[inline]
    fn column(&self, register: usize) -> ValueRef<'_> {
        self.0.column(register)
    }
}

impl StoredRows for Row<'_> {
    #[inline]
    fn stored(&self, _: usize) -> (&RowLayout, &[u8]) {
        (self.0.layout, self.0.bytes)
    }
}

/// The open range.
enum Source {
    Table(Scan),
    Index(IndexScan),
}

impl Source {
    fn open(scan: &ScanPlan, session: &mut Session, range: &KeyRange) -> Result<Source> {
        let (index, reverse) = match scan.access {
            Access::Range { index, reverse, .. } => (index, reverse),
            Access::Point { index, .. } => (index, false),
            Access::Full { reverse } => (None, reverse),
            Access::List { index, .. } => (index, false),
        };
        Ok(match index {
            None => Source::Table(session.scan(&scan.table, range, reverse)?),
            Some(at) => Source::Index(session.index_scan(&scan.table, &scan.table.indexes[at], range, reverse)?),
        })
    }

    #[inline]
    fn next(&mut self, session: &mut Session) -> Result<Option<&[u8]>> {
        match self {
            Source::Table(scan) => scan.next_row(session),
            Source::Index(scan) => Ok(scan.next(session)?.map(|(_, row)| row)),
        }
    }

    fn end(self, session: &mut Session) {
        match self {
            Source::Table(scan) => session.end_scan(scan),
            Source::Index(scan) => session.end_index_scan(scan),
        }
    }
}

/// What a run of the query sends to.
struct Sink<'a> {
    params: &'a [Value],
    fields: &'a [Field],
    formats: &'a [Format],
    out: &'a mut dyn connection::Output,
    /// Answers on their way to `out`.
    buffer: Vec<u8>,
}

impl RangeQuery {
    /// Runs it; gives the number of rows.
    pub fn run(
        &self,
        context: &mut Context,
        params: &[Value],
        fields: &[Field],
        formats: &[Format],
        out: &mut dyn connection::Output,
    ) -> Result<u64> {
        let buffer = std::mem::take(out.buffer());
        let mut sink = Sink { params, fields, formats, out, buffer };
        let result = self.run_into(context, &mut sink);
        *sink.out.buffer() = sink.buffer;
        result
    }

    fn run_into(&self, context: &mut Context, sink: &mut Sink<'_>) -> Result<u64> {
        let params = sink.params;
        let skip = row_count(self.offset.as_ref(), true, params, &mut context.env())?.unwrap_or(0);
        let limit = row_count(self.limit.as_ref(), false, params, &mut context.env())?;
        if limit == Some(0) {
            return Ok(0);
        }
        match &self.finish {
            Finish::Send(output) => self.send(context, sink, output, skip, limit.unwrap_or(u64::MAX)),
            Finish::Sort(output, order) => {
                let mut sorted = std::mem::take(&mut context.sorted);
                let result = self.sort(context, sink, output, order, &mut sorted, skip, limit);
                sorted.clear();
                if sorted.capacity_bytes() <= KEPT_BYTES {
                    context.sorted = sorted;
                }
                result
            }
            Finish::Add(tallies) => self.add(context, sink, tallies),
        }
    }

    /// Calls `each` with the rows that fulfil the conditions, until it says false.
    #[inline(always)]
    fn rows(
        &self,
        context: &mut Context,
        params: &[Value],
        mut each: impl FnMut(&Row<'_>, &mut Context) -> Result<bool>,
    ) -> Result<()> {
        let scan = &*self.scan;
        let Some(range) = scan_range(scan, &[], params, &mut context.env())? else { return Ok(()) };
        let mut source = Source::open(scan, &mut context.session, &range)?;
        let mut unchecked = 0;
        while let Some(bytes) = source.next(&mut context.session)? {
            unchecked += 1;
            if unchecked == ROWS_PER_CHECK {
                unchecked = 0;
                context.check_interrupt()?;
            }
            let row = Row(RawRow { layout: &scan.table.layout, bytes, base: scan.base, registers: &[] });
            if !scan.filter.is_empty() && !all_hold(&scan.filter, &row, params, &mut context.env())? {
                continue;
            }
            if !each(&row, context)? {
                break;
            }
        }
        source.end(&mut context.session);
        Ok(())
    }

    fn send(
        &self,
        context: &mut Context,
        sink: &mut Sink<'_>,
        output: &[Output],
        mut skip: u64,
        limit: u64,
    ) -> Result<u64> {
        let mut sent = 0;
        self.rows(context, sink.params, |row, context| {
            if skip > 0 {
                skip -= 1;
                return Ok(true);
            }
            stored_row(&mut sink.buffer, sink.fields, sink.formats, output, row, sink.params, context)?;
            sink.flush()?;
            sent += 1;
            Ok(sent < limit)
        })?;
        Ok(sent)
    }

    #[allow(clippy::too_many_arguments, reason = "a sort, its memory and where it goes")]
    fn sort(
        &self,
        context: &mut Context,
        sink: &mut Sink<'_>,
        output: &[Output],
        order: &Order,
        sorted: &mut Sorted,
        skip: u64,
        limit: Option<u64>,
    ) -> Result<u64> {
        let keep = limit.map_or(usize::MAX, |limit| usize::try_from(limit.saturating_add(skip)).unwrap_or(usize::MAX));
        let bounded = order.distinct || keep < usize::MAX;
        let mut compact_at = if keep < usize::MAX { COMPACT_ROWS.max(keep.saturating_mul(2)) } else { DISTINCT_ROWS };
        // Rows from this one on are not wanted.
        let mut last = None;
        let (params, fields, formats) = (sink.params, sink.fields, sink.formats);
        self.rows(context, params, |row, context| {
            order.push_key(row, params, context, &mut sorted.keys)?;
            if last.is_some_and(|last| sorted.keys.is_behind(last)) {
                sorted.keys.drop_row();
                return Ok(true);
            }
            stored_row(&mut sorted.rows, fields, formats, output, row, params, context)?;
            sorted.end_row();
            if bounded && sorted.keys.len() >= compact_at {
                sorted.compact(order.distinct, keep);
                compact_at = compact_at.max(2 * sorted.keys.len());
                last = (sorted.keys.len() == keep).then(|| keep as u32 - 1);
            }
            Ok(true)
        })?;
        sorted.settle(order.distinct, keep);
        let mut sent = 0;
        for row in sorted.keys.rows().skip(usize::try_from(skip).unwrap_or(usize::MAX)) {
            sink.buffer.extend_from_slice(sorted.row(row));
            sink.flush()?;
            sent += 1;
        }
        Ok(sent)
    }

    fn add(&self, context: &mut Context, sink: &mut Sink<'_>, tallies: &[Tally]) -> Result<u64> {
        let mut tallies = tallies.to_vec();
        let layout = &self.scan.table.layout;
        self.rows(context, sink.params, |row, _| {
            tallies.iter_mut().for_each(|tally| tally.add_row(layout, row.0.bytes));
            Ok(true)
        })?;
        let values = tallies.iter().map(Tally::finish).collect::<Result<Vec<_>>>()?;
        let (row, env) = (&Registers(&values), &mut context.env());
        data_row(&mut sink.buffer, sink.fields, sink.formats, &self.plan.output, row, sink.params, env)?;
        Ok(1)
    }
}

impl Sink<'_> {
    #[inline(always)]
    fn flush(&mut self) -> Result<()> {
        if self.buffer.len() < ASK_TO_FLUSH_BYTES { Ok(()) } else { self.hand_over() }
    }

    #[cold]
    fn hand_over(&mut self) -> Result<()> {
        std::mem::swap(self.out.buffer(), &mut self.buffer);
        let result = self.out.flush_if_large();
        std::mem::swap(self.out.buffer(), &mut self.buffer);
        result
    }
}

impl Order {
    #[inline(always)]
    fn push_key(&self, row: &Row<'_>, params: &[Value], context: &mut Context, keys: &mut SortKeys) -> Result<()> {
        for key in &self.keys {
            match key.text.as_ref().and_then(|text| text.text(row.0.bytes)) {
                Some(text) => keys.text_part(text, key.ty, key.direction),
                None => {
                    let env = &mut context.env();
                    let value = key.value.eval_ref(row, params, env)?;
                    keys.part(value.as_ref(), key.ty, key.direction);
                }
            }
        }
        Ok(())
    }
}

impl Sorted {
    #[inline]
    fn end_row(&mut self) {
        self.keys.end_row();
        self.ends.push(self.rows.len());
    }

    #[inline]
    fn row(&self, row: usize) -> &[u8] {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.rows[start..self.ends[row]]
    }

    /// Puts the wanted rows in order.
    fn settle(&mut self, distinct: bool, keep: usize) {
        self.keys.sort();
        if distinct {
            self.keys.keep_distinct();
        }
        self.keys.truncate(keep);
    }

    /// As [`Sorted::settle`], and frees the place of the others.
    fn compact(&mut self, distinct: bool, keep: usize) {
        self.settle(distinct, keep);
        let (mut rows, mut ends) = (Vec::new(), Vec::new());
        for row in self.keys.rows() {
            rows.extend_from_slice(self.row(row));
            ends.push(rows.len());
        }
        (self.rows, self.ends) = (rows, ends);
        self.keys.compact();
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.rows.clear();
        self.ends.clear();
    }

    fn capacity_bytes(&self) -> usize {
        self.keys.capacity_bytes() + self.rows.capacity() + self.ends.capacity() * size_of::<usize>()
    }
}
