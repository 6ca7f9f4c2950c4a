//! In which order do rows come? A sort in memory; with a limit it keeps only the first rows.

use super::simple::row_count;
use super::{Operator, Registers, build, context};
use crate::expr::Env;
use crate::plan::{SortKey, SortPlan};
use homenode_types::{Result, Type, Value, compare, compare_bpchar};
use std::cmp::Ordering;
use std::sync::Arc;

struct Sorted {
    keys: Vec<Value>,
    row: Vec<Value>,
}

/// The operator.
pub(super) struct SortRows {
    plan: Arc<SortPlan>,
    input: Box<dyn Operator>,
    rows: std::vec::IntoIter<Sorted>,
}

impl SortRows {
    pub fn new(plan: Arc<SortPlan>) -> SortRows {
        SortRows { input: build(&plan.input), plan, rows: Vec::new().into_iter() }
    }
}

/// Compares two composite keys as ORDER BY does.
pub(super) fn compare_keys(order: &[SortKey], a: &[Value], b: &[Value]) -> Ordering {
    for ((key, a), b) in order.iter().zip(a).zip(b) {
        let ordering = match (a.is_null(), b.is_null()) {
            (true, true) => Ordering::Equal,
            (true, false) => {
                if key.nulls_first {
                    Ordering::Less
                } else {
                    Ordering::Greater
                }
            }
            (false, true) => {
                if key.nulls_first {
                    Ordering::Greater
                } else {
                    Ordering::Less
                }
            }
            (false, false) => {
                let ordering = if key.ty.ty == Type::Bpchar {
                    compare_bpchar(a.as_ref(), b.as_ref())
                } else {
                    compare(a.as_ref(), b.as_ref())
                };
                if key.descending { ordering.reverse() } else { ordering }
            }
        };
        if ordering.is_ne() {
            return ordering;
        }
    }
    Ordering::Equal
}

impl Operator for SortRows {
    fn open(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<()> {
        let plan = self.plan.clone();
        let limit = row_count(plan.limit.as_ref(), false, params, env)?;
        let offset = row_count(plan.offset.as_ref(), true, params, env)?.unwrap_or(0);
        let keep = limit.map(|limit| usize::try_from(limit.saturating_add(offset)).unwrap_or(usize::MAX));
        let order = |a: &Sorted, b: &Sorted| compare_keys(&plan.keys, &a.keys, &b.keys);
        let mut rows: Vec<Sorted> = Vec::new();
        self.input.open(env, params, row)?;
        let mut read = 0_u64;
        while self.input.next(env, params, row)? {
            read += 1;
            if read.is_multiple_of(1024) {
                context(env).check_interrupt()?;
            }
            let mut keys = Vec::with_capacity(plan.keys.len());
            for key in &plan.keys {
                keys.push(key.value.eval(&Registers(row), params, env)?);
            }
            rows.push(Sorted { keys, row: row.to_vec() });
            // Twice as many as wanted: throw the worse half away, so that memory stays bounded by the limit.
            if let Some(keep) = keep
                && rows.len() > 64
                && rows.len() / 2 >= keep
            {
                rows.sort_by(order);
                rows.truncate(keep);
            }
        }
        rows.sort_by(order);
        rows.truncate(keep.unwrap_or(usize::MAX));
        self.rows = rows.into_iter();
        Ok(())
    }

    fn next(&mut self, _: &mut Env<'_>, _: &[Value], row: &mut [Value]) -> Result<bool> {
        let Some(sorted) = self.rows.next() else { return Ok(false) };
        for (register, value) in row.iter_mut().zip(sorted.row) {
            *register = value;
        }
        Ok(true)
    }
}
