//! In which order do rows come? A sort in memory; with a limit it keeps only the first rows.

use super::simple::row_count;
use super::{Operator, Registers, build, context};
use crate::expr::Env;
use crate::plan::{SortKey, SortPlan};
use homenode_types::{Result, Value, ValueRef, key};
use std::sync::Arc;

/// A row that is being sorted.
#[derive(Clone, Copy)]
struct Entry {
    /// The key's first bytes, big-endian: most comparisons end here.
    head: u64,
    /// The key's place in [`Rows::keys`].
    start: usize,
    end: usize,
    /// The row's number in [`Rows::values`].
    row: usize,
}

/// Rows to be sorted: keys as bytes that sort as their values do, registers one row after the other.
#[derive(Default)]
struct Rows {
    keys: Vec<u8>,
    values: Vec<Value>,
    entries: Vec<Entry>,
    width: usize,
}

impl Rows {
    fn push(&mut self, start: usize, row: &[Value]) {
        self.width = row.len();
        self.values.extend_from_slice(row);
        let mut head = [0; 8];
        let bytes = &self.keys[start..];
        let shared = bytes.len().min(head.len());
        head[..shared].copy_from_slice(&bytes[..shared]);
        let entry = Entry { head: u64::from_be_bytes(head), start, end: self.keys.len(), row: self.entries.len() };
        self.entries.push(entry);
    }

    /// Sorts; rows with equal keys keep their order.
    fn sort(&mut self) {
        let keys = &self.keys;
        let bytes = |entry: &Entry| &keys[entry.start..entry.end];
        self.entries.sort_by(|a, b| a.head.cmp(&b.head).then_with(|| bytes(a).cmp(bytes(b))));
    }

    /// Sorts and forgets all rows behind the first `keep`.
    fn keep_first(&mut self, keep: usize) {
        self.sort();
        self.entries.truncate(keep);
        let mut kept = Rows { width: self.width, ..Rows::default() };
        for entry in &self.entries {
            let start = kept.keys.len();
            kept.keys.extend_from_slice(&self.keys[entry.start..entry.end]);
            kept.push(start, &self.values[entry.row * self.width..][..self.width]);
        }
        *self = kept;
    }
}

/// Appends a value as a part of a sort key.
fn encode(sort: &SortKey, value: ValueRef<'_>, out: &mut Vec<u8>) {
    if value.is_null() {
        out.push(if sort.nulls_first { 0x00 } else { 0xFF });
        return;
    }
    // Between the two marks of NULL whichever way the rest is turned.
    out.push(0x80);
    let start = out.len();
    key::encode_column(value, sort.ty.ty, out);
    if sort.descending {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

/// The operator.
pub(super) struct SortRows {
    plan: Arc<SortPlan>,
    input: Box<dyn Operator>,
    rows: Rows,
    next: usize,
}

impl SortRows {
    pub fn new(plan: Arc<SortPlan>) -> SortRows {
        SortRows { input: build(&plan.input), plan, rows: Rows::default(), next: 0 }
    }
}

impl Operator for SortRows {
    fn open(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<()> {
        let plan = self.plan.clone();
        let limit = row_count(plan.limit.as_ref(), false, params, env)?;
        let offset = row_count(plan.offset.as_ref(), true, params, env)?.unwrap_or(0);
        let keep = limit.map(|limit| usize::try_from(limit.saturating_add(offset)).unwrap_or(usize::MAX));
        let mut rows = Rows::default();
        self.input.open(env, params, row)?;
        let mut read = 0_u64;
        while self.input.next(env, params, row)? {
            read += 1;
            if read.is_multiple_of(1024) {
                context(env).check_interrupt()?;
            }
            let start = rows.keys.len();
            for sort in &plan.keys {
                let registers = Registers(row);
                let value = sort.value.eval_ref(&registers, params, env)?;
                encode(sort, value.as_ref(), &mut rows.keys);
            }
            rows.push(start, row);
            // Twice as many as wanted: throw the worse half away, so that memory stays bounded by the limit.
            if let Some(keep) = keep
                && rows.entries.len() > 64
                && rows.entries.len() / 2 >= keep
            {
                rows.keep_first(keep);
            }
        }
        rows.sort();
        rows.entries.truncate(keep.unwrap_or(usize::MAX));
        self.rows = rows;
        self.next = 0;
        Ok(())
    }

    fn next(&mut self, _: &mut Env<'_>, _: &[Value], row: &mut [Value]) -> Result<bool> {
        let Some(entry) = self.rows.entries.get(self.next) else { return Ok(false) };
        self.next += 1;
        let width = self.rows.width;
        let sorted = &mut self.rows.values[entry.row * width..][..width];
        for (register, value) in row.iter_mut().zip(sorted) {
            *register = std::mem::replace(value, Value::Null);
        }
        Ok(true)
    }
}
