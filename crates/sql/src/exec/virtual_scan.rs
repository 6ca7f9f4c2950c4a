//! What do the system tables say? Their rows are made when the scan opens first, and kept for the statement.

use super::hash_table::HashTable;
use super::{Operator, Registers, all_hold, context};
use crate::expr::Env;
use crate::plan::VirtualPlan;
use homenode_types::{Result, Value};
use std::sync::Arc;

/// The operator.
pub(super) struct VirtualRows {
    plan: Arc<VirtualPlan>,
    rows: Option<Arc<Vec<Vec<Value>>>>,
    by_key: Option<HashTable<usize>>,
    /// Next row of a full scan; or the entry and key of a look-up.
    at: usize,
    entry: Option<usize>,
    key: Vec<Value>,
}

impl VirtualRows {
    pub fn new(plan: Arc<VirtualPlan>) -> VirtualRows {
        VirtualRows { plan, rows: None, by_key: None, at: 0, entry: None, key: Vec::new() }
    }

    fn candidate(&mut self) -> Option<usize> {
        if let Some(table) = &self.by_key {
            let entry = self.entry?;
            self.entry = table.find_after(entry, &self.key);
            return Some(*table.value(entry));
        }
        let at = self.at;
        self.at += 1;
        (at < self.rows.as_ref()?.len()).then_some(at)
    }
}

impl Operator for VirtualRows {
    fn open(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<()> {
        if self.rows.is_none() {
            self.rows = Some(context(env).virtual_rows(self.plan.table)?);
        }
        self.at = 0;
        let Some((column, value)) = &self.plan.lookup else { return Ok(()) };
        let rows = self.rows.as_ref().map_or(&[][..], |rows| &rows[..]);
        let table = self.by_key.get_or_insert_with(|| {
            let mut table = HashTable::default();
            for (number, values) in rows.iter().enumerate().rev() {
                table.push(vec![values[*column].clone()], number);
            }
            table
        });
        let value = value.eval(&Registers(row), params, env)?;
        self.key = vec![value];
        self.entry = if self.key[0].is_null() { None } else { table.find(&self.key) };
        Ok(())
    }

    fn next(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<bool> {
        while let Some(number) = self.candidate() {
            let Some(rows) = &self.rows else { return Ok(false) };
            let values = &rows[number];
            row[self.plan.base..self.plan.base + values.len()].clone_from_slice(values);
            if all_hold(&self.plan.filter, &Registers(row), params, env)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
