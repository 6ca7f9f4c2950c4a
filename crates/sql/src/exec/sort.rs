//! In which order do rows come? A sort in memory; with a limit it keeps only the first rows.

use super::simple::row_count;
use super::{Operator, Registers, build, context};
use crate::expr::Env;
use crate::plan::SortPlan;
use crate::sort_keys::{Direction, SortKeys};
use homenode_engine::{Charge, MemoryContext};
use homenode_types::{Result, Value};
use std::sync::Arc;

/// Rows to be sorted: their keys, and registers one row after the other.
#[derive(Default)]
struct Rows {
    keys: SortKeys,
    values: Vec<Value>,
    /// Bytes that the values point to.
    texts: usize,
    width: usize,
}

impl Rows {
    /// Adds the row that the last key belongs to.
    fn push(&mut self, row: &[Value]) {
        self.width = row.len();
        self.values.extend_from_slice(row);
        self.texts += texts_of(row);
        self.keys.end_row();
    }

    /// Says to the session how much the rows take and where the values are.
    fn charge(&self, charge: &mut Charge) {
        let start = self.values.as_ptr().addr();
        let bytes = self.keys.bytes() + self.values.capacity() * size_of::<Value>() + self.texts;
        charge.set(bytes, start..start + self.values.len() * size_of::<Value>());
    }

    /// Sorts and forgets all rows behind the first `keep`.
    fn keep_first(&mut self, keep: usize) {
        self.keys.sort();
        self.keys.truncate(keep);
        let mut kept = Vec::with_capacity(2 * keep * self.width);
        for row in self.keys.rows() {
            kept.extend(self.values[row * self.width..][..self.width].iter_mut().map(std::mem::take));
        }
        self.texts = texts_of(&kept);
        self.values = kept;
        self.keys.compact();
    }
}

/// Bytes that values point to.
fn texts_of(values: &[Value]) -> usize {
    values.iter().map(Value::heap_bytes).sum()
}

/// The operator.
pub(super) struct SortRows {
    plan: Arc<SortPlan>,
    input: Box<dyn Operator>,
    rows: Rows,
    /// Numbers of the rows that are still to be given, the next one last.
    order: Vec<usize>,
    charge: Option<Charge>,
}

impl SortRows {
    pub fn new(plan: Arc<SortPlan>) -> SortRows {
        SortRows { input: build(&plan.input), plan, rows: Rows::default(), order: Vec::new(), charge: None }
    }
}

impl Operator for SortRows {
    fn open(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<()> {
        let plan = self.plan.clone();
        let limit = row_count(plan.limit.as_ref(), false, params, env)?;
        let offset = row_count(plan.offset.as_ref(), true, params, env)?.unwrap_or(0);
        let keep = limit.map(|limit| usize::try_from(limit.saturating_add(offset)).unwrap_or(usize::MAX));
        let mut rows = Rows::default();
        let mut charge = Charge::new(&context(env).session.shared().memory, MemoryContext::Sort);
        self.input.open(env, params, row)?;
        let mut read = 0_u64;
        while self.input.next(env, params, row)? {
            read += 1;
            if read.is_multiple_of(1024) {
                rows.charge(&mut charge);
                context(env).check_interrupt()?;
            }
            for sort in &plan.keys {
                let registers = Registers(row);
                let value = sort.value.eval_ref(&registers, params, env)?;
                let direction = Direction { descending: sort.descending, nulls_first: sort.nulls_first };
                rows.keys.part(value.as_ref(), sort.ty.ty, direction);
            }
            rows.push(row);
            // Twice as many as wanted: throw the worse half away, so that memory stays bounded by the limit.
            if let Some(keep) = keep
                && rows.keys.len() > 64
                && rows.keys.len() / 2 >= keep
            {
                rows.keep_first(keep);
            }
        }
        rows.keys.sort();
        rows.keys.truncate(keep.unwrap_or(usize::MAX));
        self.order = rows.keys.rows().rev().collect();
        rows.charge(&mut charge);
        self.charge = Some(charge);
        self.rows = rows;
        Ok(())
    }

    fn next(&mut self, _: &mut Env<'_>, _: &[Value], row: &mut [Value]) -> Result<bool> {
        let Some(number) = self.order.pop() else { return Ok(false) };
        let width = self.rows.width;
        let sorted = &mut self.rows.values[number * width..][..width];
        for (register, value) in row.iter_mut().zip(sorted) {
            *register = std::mem::take(value);
        }
        Ok(true)
    }
}
