//! How does a plan run? Pull iterators over register rows.
//!
//! An operator fills the registers it is responsible for and says whether there was another row. Operators own their state,
//! so a portal can stop in the middle of its rows; they may be opened any number of times, each time with what the
//! registers then hold (that is how the inner side of a loop sees the outer row).

mod aggregate;
mod derived;
mod distinct;
mod hash_join;
mod hash_table;
mod key;
mod nested_loop;
mod recursive;
mod scan;
mod series;
mod set_operation;
mod simple;
mod sort;
mod subquery;
mod trace;
mod virtual_scan;
mod window;

pub(crate) use aggregate::{Group, finish_groups};
pub(crate) use hash_join::{KeptRow, join_key, join_table};
pub(crate) use hash_table::HashTable;
pub(crate) use key::encode_equal;
pub(crate) use scan::{RawRow, load, point_key, scan_range};
pub(crate) use simple::row_count;
pub(crate) use subquery::{Kept, Subquery, SubqueryKind};
pub(crate) use trace::{Read, Trace};

use crate::context::Context;
use crate::expr::{Env, Expr, RowSource};
use crate::plan::{Plan, QueryPlan};
use homenode_types::{Result, Type, Value, ValueRef};
use std::sync::Arc;

/// One running node of a plan.
pub(crate) trait Operator: Send {
    /// Starts (again) with the registers as they are.
    fn open(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<()>;
    /// The next row into the registers; false when there is none.
    fn next(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<bool>;
    /// Forgets what was kept from an earlier open (the values around a correlated query have changed).
    fn reset(&mut self) {}
}

/// The statement's context behind an environment.
#[inline]
pub(crate) fn context<'a>(env: &'a mut Env<'_>) -> &'a mut Context {
    match env.host.as_any_mut().downcast_mut::<Context>() {
        Some(context) => context,
        // Only writes evaluate with another host, and they run no operators.
        None => unreachable!("operators run with a statement's context"),
    }
}

/// Makes the operators of a plan.
pub(crate) fn build(plan: &Plan) -> Box<dyn Operator> {
    match plan {
        Plan::Once => Box::new(simple::Once::default()),
        Plan::Values(plan) => Box::new(simple::ValuesRows::new(plan.clone())),
        Plan::Scan(plan) => Box::new(scan::ScanRows::new(plan.clone())),
        Plan::Virtual(plan) => Box::new(virtual_scan::VirtualRows::new(plan.clone())),
        Plan::Series(plan) => Box::new(series::SeriesRows::new(plan.clone())),
        Plan::ProjectSet(plan) => Box::new(series::ProjectSet::new(plan.clone())),
        Plan::Derived(plan) => Box::new(derived::DerivedRows::new(plan.clone())),
        Plan::NestedLoop(plan) => Box::new(nested_loop::LoopRows::new(plan.clone())),
        Plan::HashJoin(plan) => Box::new(hash_join::HashRows::new(plan.clone())),
        Plan::Materialize(plan) => Box::new(nested_loop::KeptRows::new(plan.clone())),
        Plan::Filter(plan) => Box::new(simple::FilterRows::new(plan.clone())),
        Plan::Project(plan) => Box::new(simple::ProjectRows::new(plan.clone())),
        Plan::Aggregate(plan) => Box::new(aggregate::AggregateRows::new(plan.clone())),
        Plan::Window(plan) => Box::new(window::WindowRows::new(plan.clone())),
        Plan::Sort(plan) => Box::new(sort::SortRows::new(plan.clone())),
        Plan::Limit(plan) => Box::new(simple::LimitRows::new(plan.clone())),
        Plan::Distinct(plan) => Box::new(distinct::DistinctRows::new(plan.clone())),
        Plan::SetOperation(plan) => Box::new(set_operation::SetRows::new(plan.clone())),
        Plan::Recursive(plan) => Box::new(recursive::RecursiveRows::new(plan.clone())),
        Plan::LockRows(plan) => Box::new(simple::LockRows::new(plan.clone())),
    }
}

/// A query that runs: its operators and their registers.
pub(crate) struct Running {
    plan: Arc<QueryPlan>,
    operator: Box<dyn Operator>,
    row: Vec<Value>,
}

impl Running {
    /// Makes the operators; [`Running::open`] comes next.
    pub fn new(plan: Arc<QueryPlan>) -> Running {
        let operator = build(&plan.input);
        let row = vec![Value::Null; plan.width];
        Running { plan, operator, row }
    }

    /// Starts (again).
    pub fn open(&mut self, env: &mut Env<'_>, params: &[Value]) -> Result<()> {
        self.operator.open(env, params, &mut self.row)
    }

    /// Goes to the next row.
    pub fn next(&mut self, env: &mut Env<'_>, params: &[Value]) -> Result<bool> {
        self.operator.next(env, params, &mut self.row)
    }

    /// The registers of the current row.
    pub fn row(&self) -> &[Value] {
        &self.row
    }

    /// The plan.
    pub fn plan(&self) -> &Arc<QueryPlan> {
        &self.plan
    }

    /// The current row's output values.
    pub fn output(&self, env: &mut Env<'_>, params: &[Value]) -> Result<Vec<Value>> {
        self.plan.output.iter().map(|column| column.eval(&Registers(&self.row), params, env)).collect()
    }
}

/// Registers as expressions read them.
pub(crate) struct Registers<'a>(pub &'a [Value]);

impl RowSource for Registers<'_> {
    #[inline]
    fn column(&self, register: usize) -> ValueRef<'_> {
        self.0.get(register).map_or(ValueRef::Null, Value::as_ref)
    }
}

/// True when all conditions hold.
#[inline]
pub(crate) fn all_hold(conditions: &[Expr], row: &dyn RowSource, params: &[Value], env: &mut Env<'_>) -> Result<bool> {
    for condition in conditions {
        if condition.eval_bool(row, params, env)? != Some(true) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Puts a borrowed value into a register; a register of text or bytes keeps its memory.
#[inline]
pub(crate) fn assign(register: &mut Value, value: ValueRef<'_>) {
    match (register, value) {
        (Value::Text(old), ValueRef::Text(new)) | (Value::Jsonb(old), ValueRef::Jsonb(new)) => {
            old.clear();
            old.push_str(new);
        }
        (Value::Bytea(old), ValueRef::Bytea(new)) => {
            old.clear();
            old.extend_from_slice(new);
        }
        (register, value) => *register = value.to_owned(),
    }
}

/// A value as a key of hashing and grouping sees it: `character(n)` without its trailing blanks.
pub(crate) fn key_value(value: Value, ty: Type) -> Value {
    match value {
        Value::Text(mut text) if ty == Type::Bpchar => {
            text.truncate(homenode_types::trim_blanks(&text).len());
            Value::Text(text)
        }
        other => other,
    }
}

/// Hash of a composite key.
pub(crate) fn hash_key(values: &[Value]) -> u64 {
    use std::hash::Hasher;
    let mut hasher = rustc_hash::FxHasher::default();
    for value in values {
        homenode_types::hash(value.as_ref(), &mut hasher);
    }
    hasher.finish()
}

/// Whether two composite keys are the same, NULL being the same as NULL.
pub(crate) fn same_key(a: &[Value], b: &[Value]) -> bool {
    a.iter().zip(b).all(|(a, b)| homenode_types::compare(a.as_ref(), b.as_ref()).is_eq())
}

/// Copies registers out of a row.
pub(crate) fn save(row: &[Value], registers: &[std::ops::Range<usize>]) -> Vec<Value> {
    registers.iter().flat_map(|range| row[range.clone()].iter().cloned()).collect()
}

/// Copies saved registers back.
pub(crate) fn restore(row: &mut [Value], registers: &[std::ops::Range<usize>], saved: &[Value]) {
    let mut from = saved.iter();
    for range in registers {
        for (register, value) in row[range.clone()].iter_mut().zip(&mut from) {
            assign(register, value.as_ref());
        }
    }
}

/// Sets registers to NULL.
pub(crate) fn clear(row: &mut [Value], registers: &[std::ops::Range<usize>]) {
    for range in registers {
        row[range.clone()].fill(Value::Null);
    }
}
