//! What does a subquery in FROM give? Its rows, run with its own registers, shown in those of the block around it.

use super::{Operator, Registers, Running, all_hold, context};
use crate::expr::Env;
use crate::plan::DerivedPlan;
use homenode_types::{Result, Value};
use std::sync::Arc;

/// The operator.
pub(super) struct DerivedRows {
    plan: Arc<DerivedPlan>,
    running: Running,
    /// The outer columns it sees.
    outer: Vec<Value>,
    /// Rows of a shared query, and the next one.
    shared: Option<(Arc<Vec<Vec<Value>>>, usize)>,
}

impl DerivedRows {
    pub fn new(plan: Arc<DerivedPlan>) -> DerivedRows {
        DerivedRows { running: Running::new(plan.query.clone()), plan, outer: Vec::new(), shared: None }
    }

    fn run_shared(&mut self, env: &mut Env<'_>, params: &[Value], number: usize) -> Result<Arc<Vec<Vec<Value>>>> {
        if let Some(rows) = context(env).shared_rows.get(&number) {
            return Ok(rows.clone());
        }
        let mut rows = Vec::new();
        self.running.open(env, params)?;
        while self.running.next(env, params)? {
            rows.push(self.running.output(env, params)?);
        }
        let rows = Arc::new(rows);
        context(env).shared_rows.insert(number, rows.clone());
        Ok(rows)
    }

    fn next_output(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<bool> {
        let base = self.plan.base;
        if let Some((rows, at)) = &mut self.shared {
            let Some(values) = rows.get(*at) else { return Ok(false) };
            *at += 1;
            row[base..base + values.len()].clone_from_slice(values);
            return Ok(true);
        }
        std::mem::swap(&mut env.outer, &mut self.outer);
        let result = self.running.next(env, params).and_then(|found| {
            if found {
                for (offset, column) in self.plan.query.output.iter().enumerate() {
                    row[base + offset] = column.eval(&Registers(self.running.row()), params, env)?;
                }
            }
            Ok(found)
        });
        std::mem::swap(&mut env.outer, &mut self.outer);
        result
    }
}

impl Operator for DerivedRows {
    fn open(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<()> {
        if let Some(number) = self.plan.shared {
            let rows = self.run_shared(env, params, number)?;
            self.shared = Some((rows, 0));
            return Ok(());
        }
        let mut outer = Vec::with_capacity(self.plan.outer.len());
        for value in &self.plan.outer {
            outer.push(value.eval(&Registers(row), params, env)?);
        }
        self.outer = outer;
        std::mem::swap(&mut env.outer, &mut self.outer);
        let result = self.running.open(env, params);
        std::mem::swap(&mut env.outer, &mut self.outer);
        result
    }

    fn next(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<bool> {
        while self.next_output(env, params, row)? {
            if self.plan.filter.is_empty() || all_hold(&self.plan.filter, &Registers(row), params, env)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
