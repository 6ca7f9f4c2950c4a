//! How is a big table summed up by all processors? Its key ranges are dealt out to threads; their groups are merged.
//!
//! Counts, sums, least and greatest values of fixed-width integer columns take an inner loop that makes no values; all else
//! goes through the same accumulators as a serial scan.

use crate::context::FrozenHost;
use crate::exec::{Group, HashTable, RawRow, all_hold, context};
use crate::expr::{Aggregate, Env, Expr};
use crate::plan::{AggregatePlan, Plan, ScanPlan};
use homenode_engine::run_parallel;
use homenode_types::{Error, IntegerColumn, Result, RowLayout, SqlState, Type, Value, ValueRef};
use std::sync::Arc;

/// Parts per processor, so that a processor that is held up does not hold up the statement.
const PARTS_PER_CPU: usize = 4;

/// What one thread found.
enum Part {
    Fast(Vec<Fast>),
    Groups(HashTable<Group>),
}

/// An aggregate over a fixed-width column, as numbers.
#[derive(Clone, Debug)]
struct Fast {
    kind: FastKind,
    column: usize,
    /// Where it is in a row; None for count(*).
    place: Option<IntegerColumn>,
    ty: Type,
    count: u64,
    sum: i128,
    best: Option<i64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FastKind {
    CountAll,
    Count,
    Sum,
    Min,
    Max,
}

/// Runs an aggregate in parallel; `None` when the settings or the statement say no.
pub(crate) fn aggregate(
    plan: &Arc<AggregatePlan>,
    env: &mut Env<'_>,
    params: &[Value],
) -> Result<Option<Vec<Vec<Value>>>> {
    let Plan::Scan(scan) = &plan.input else { return Ok(None) };
    let context = context(env);
    if !context.settings.is_on("enable_parallel") || context.settings.get("max_parallel_workers_per_gather")? == "0" {
        return Ok(None);
    }
    let host = (context.transaction_us, context.statement_us);
    let cpus = homenode_platform::thread::available_cpus();
    let parallel = context.session.parallel(&scan.table, cpus * PARTS_PER_CPU)?;
    let fast = fast_calls(plan, scan);
    let work = {
        let (plan, scan, params) = (plan.clone(), scan.clone(), params.to_vec());
        move |(range, mut reader): (homenode_engine::KeyRange, homenode_engine::Reader)| {
            let mut host = FrozenHost { transaction_us: host.0, statement_us: host.1 };
            let mut env = Env::new(&mut host);
            let part = match &fast {
                Some(fast) => {
                    let mut fast = fast.clone();
                    reader.scan(range, |row| {
                        if scan.filter.is_empty() || matches(&scan, row, &params, &mut env)? {
                            fast.iter_mut().for_each(|call| call.add_row(&scan.table.layout, row));
                        }
                        Ok(true)
                    })?;
                    Part::Fast(fast)
                }
                None => {
                    let mut groups = HashTable::default();
                    let mut arguments = Vec::new();
                    reader.scan(range, |row| {
                        add_row(&plan, &scan, row, &params, &mut env, &mut groups, &mut arguments)?;
                        Ok(true)
                    })?;
                    Part::Groups(groups)
                }
            };
            Ok((part, reader.depends_on()))
        }
    };
    let items: Vec<_> = parallel.ranges.into_iter().map(|range| (range, parallel.reader.clone())).collect();
    let parts = run_parallel(items, work)?;
    for (_, depends_on) in &parts {
        crate::exec::context(env).session.note_dependency(*depends_on);
    }
    merge(plan, parts.into_iter().map(|(part, _)| part)).map(Some)
}

fn matches(scan: &ScanPlan, row: &[u8], params: &[Value], env: &mut Env<'_>) -> Result<bool> {
    let raw = RawRow { layout: &scan.table.layout, bytes: row, base: scan.base, registers: &[] };
    all_hold(&scan.filter, &raw, params, env)
}

fn add_row(
    plan: &AggregatePlan,
    scan: &ScanPlan,
    row: &[u8],
    params: &[Value],
    env: &mut Env<'_>,
    groups: &mut HashTable<Group>,
    arguments: &mut Vec<Value>,
) -> Result<()> {
    let raw = RawRow { layout: &scan.table.layout, bytes: row, base: scan.base, registers: &[] };
    if !all_hold(&scan.filter, &raw, params, env)? {
        return Ok(());
    }
    let mut key = Vec::with_capacity(plan.groups.len());
    for group in &plan.groups {
        key.push(group.eval(&raw, params, env)?);
    }
    let at = match groups.find(&key) {
        Some(at) => at,
        None => groups.push(key, Group::new(&plan.calls)),
    };
    groups.value_mut(at).add(&plan.calls, &raw, params, env, arguments)
}

fn merge(plan: &AggregatePlan, parts: impl Iterator<Item = Part>) -> Result<Vec<Vec<Value>>> {
    let mut groups: HashTable<Group> = HashTable::default();
    let mut total: Option<Vec<Fast>> = None;
    for part in parts {
        match part {
            Part::Fast(fast) => match &mut total {
                None => total = Some(fast),
                Some(total) => total.iter_mut().zip(&fast).for_each(|(total, part)| total.merge(part)),
            },
            Part::Groups(found) => {
                for (key, group) in found.into_entries() {
                    match groups.find(&key) {
                        Some(at) => groups.value_mut(at).merge(group)?,
                        None => {
                            groups.push(key, group);
                        }
                    }
                }
            }
        }
    }
    if let Some(total) = total {
        return Ok(vec![total.iter().map(Fast::finish).collect::<Result<_>>()?]);
    }
    if groups.len() == 0 && plan.groups.is_empty() {
        groups.push(Vec::new(), Group::new(&plan.calls));
    }
    crate::exec::finish_groups(groups)
}

/// The aggregates as fast ones, if every one of them is of the kind.
fn fast_calls(plan: &AggregatePlan, scan: &ScanPlan) -> Option<Vec<Fast>> {
    if !plan.groups.is_empty() {
        return None;
    }
    let calls = plan.calls.iter().map(|call| {
        if call.filter.is_some() || call.distinct {
            return None;
        }
        let kind = match call.aggregate {
            Aggregate::CountAll => FastKind::CountAll,
            Aggregate::Count => FastKind::Count,
            Aggregate::Sum(_) => FastKind::Sum,
            Aggregate::Min(_) => FastKind::Min,
            Aggregate::Max(_) => FastKind::Max,
            _ => return None,
        };
        let (column, ty) = match &call.args[..] {
            [] if kind == FastKind::CountAll => (0, Type::Int8),
            [Expr::Column(register)] => {
                let column = register.checked_sub(scan.base)?;
                (column, scan.table.columns.get(column)?.ty.ty)
            }
            _ => return None,
        };
        let place = if kind == FastKind::CountAll { None } else { Some(scan.table.layout.integer_column(column)?) };
        Some(Fast { kind, column, place, ty, count: 0, sum: 0, best: None })
    });
    calls.collect()
}

impl Fast {
    #[inline]
    fn add_row(&mut self, layout: &RowLayout, row: &[u8]) {
        match &self.place {
            None => self.count += 1,
            Some(place) => match place.read(row) {
                Some(Some(number)) => self.add_number(number),
                Some(None) => {}
                None => self.add(layout.column(row, self.column)),
            },
        }
    }

    fn add(&mut self, value: ValueRef<'_>) {
        match value {
            ValueRef::Int4(number) => self.add_number(i64::from(number)),
            ValueRef::Int8(number) => self.add_number(number),
            ValueRef::Int2(number) => self.add_number(i64::from(number)),
            _ => {}
        }
    }

    #[inline]
    fn add_number(&mut self, number: i64) {
        self.count += 1;
        match self.kind {
            FastKind::Sum => self.sum += i128::from(number),
            FastKind::Min => self.best = Some(self.best.map_or(number, |best| best.min(number))),
            FastKind::Max => self.best = Some(self.best.map_or(number, |best| best.max(number))),
            FastKind::Count | FastKind::CountAll => {}
        }
    }

    fn merge(&mut self, other: &Fast) {
        self.count += other.count;
        self.sum += other.sum;
        self.best = match (self.best, other.best) {
            (Some(a), Some(b)) => Some(if self.kind == FastKind::Min { a.min(b) } else { a.max(b) }),
            (a, b) => a.or(b),
        };
    }

    fn finish(&self) -> Result<Value> {
        Ok(match self.kind {
            FastKind::CountAll | FastKind::Count => Value::Int8(self.count as i64),
            FastKind::Sum if self.count == 0 => Value::Null,
            // The sum of bigints is numeric, that of smaller integers bigint (pg_aggregate.dat).
            FastKind::Sum if self.ty == Type::Int8 => {
                let sum = homenode_types::Decimal::try_from_i128_with_scale(self.sum, 0);
                Value::Numeric(sum.map_err(|_| Error::out_of_range("numeric"))?)
            }
            FastKind::Sum => Value::Int8(
                i64::try_from(self.sum)
                    .map_err(|_| Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "bigint out of range"))?,
            ),
            FastKind::Min | FastKind::Max => match (self.best, self.ty) {
                (None, _) => Value::Null,
                (Some(number), Type::Int2) => Value::Int2(number as i16),
                (Some(number), Type::Int4) => Value::Int4(number as i32),
                (Some(number), _) => Value::Int8(number),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fast(kind: FastKind, ty: Type) -> Fast {
        Fast { kind, column: 0, place: None, ty, count: 0, sum: 0, best: None }
    }

    #[test]
    fn parts_add_up_and_nulls_do_not_count() {
        let mut a = fast(FastKind::Sum, Type::Int4);
        let mut b = a.clone();
        a.add(ValueRef::Int4(i32::MAX));
        a.add(ValueRef::Null);
        b.add(ValueRef::Int4(1));
        a.merge(&b);
        assert_eq!((a.finish().unwrap(), a.count), (Value::Int8(i64::from(i32::MAX) + 1), 2));
        assert_eq!(fast(FastKind::Sum, Type::Int4).finish().unwrap(), Value::Null);
        assert_eq!(fast(FastKind::CountAll, Type::Int8).finish().unwrap(), Value::Int8(0));
        let mut least = fast(FastKind::Min, Type::Int2);
        least.add(ValueRef::Int2(-3));
        least.merge(&fast(FastKind::Min, Type::Int2));
        assert_eq!(least.finish().unwrap(), Value::Int2(-3));
    }
}
