//! Operators of a few lines: one row, constant rows, filter, projection, limit, row locks.

use super::{Operator, RawRow, Registers, all_hold, build, context, load};
use crate::expr::{Env, Expr};
use crate::plan::{FilterPlan, LimitPlan, LockPlan, ProjectPlan, ValuesPlan};
use homenode_types::{Error, Result, SqlState, Value};
use std::sync::Arc;

/// One row without columns.
#[derive(Default)]
pub(super) struct Once {
    ready: bool,
}

impl Operator for Once {
    fn open(&mut self, _: &mut Env<'_>, _: &[Value], _: &mut [Value]) -> Result<()> {
        self.ready = true;
        Ok(())
    }

    fn next(&mut self, _: &mut Env<'_>, _: &[Value], _: &mut [Value]) -> Result<bool> {
        Ok(std::mem::take(&mut self.ready))
    }
}

/// VALUES.
pub(super) struct ValuesRows {
    plan: Arc<ValuesPlan>,
    at: usize,
}

impl ValuesRows {
    pub fn new(plan: Arc<ValuesPlan>) -> ValuesRows {
        ValuesRows { plan, at: 0 }
    }
}

impl Operator for ValuesRows {
    fn open(&mut self, _: &mut Env<'_>, _: &[Value], _: &mut [Value]) -> Result<()> {
        self.at = 0;
        Ok(())
    }

    fn next(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<bool> {
        let Some(values) = self.plan.rows.get(self.at) else { return Ok(false) };
        self.at += 1;
        for (offset, value) in values.iter().enumerate() {
            row[self.plan.base + offset] = value.eval(&Registers(row), params, env)?;
        }
        Ok(true)
    }
}

/// WHERE, where no scan or join could take it, and HAVING.
pub(super) struct FilterRows {
    plan: Arc<FilterPlan>,
    input: Box<dyn Operator>,
}

impl FilterRows {
    pub fn new(plan: Arc<FilterPlan>) -> FilterRows {
        FilterRows { input: build(&plan.input), plan }
    }
}

impl Operator for FilterRows {
    fn open(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<()> {
        self.input.open(env, params, row)
    }

    fn next(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<bool> {
        while self.input.next(env, params, row)? {
            if all_hold(&self.plan.conditions, &Registers(row), params, env)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// New rows from expressions.
pub(super) struct ProjectRows {
    plan: Arc<ProjectPlan>,
    input: Box<dyn Operator>,
    inner: Vec<Value>,
}

impl ProjectRows {
    pub fn new(plan: Arc<ProjectPlan>) -> ProjectRows {
        ProjectRows { input: build(&plan.input), inner: vec![Value::Null; plan.width], plan }
    }
}

impl Operator for ProjectRows {
    fn open(&mut self, env: &mut Env<'_>, params: &[Value], _: &mut [Value]) -> Result<()> {
        self.input.open(env, params, &mut self.inner)
    }

    fn next(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<bool> {
        if !self.input.next(env, params, &mut self.inner)? {
            return Ok(false);
        }
        for (register, column) in row.iter_mut().zip(&self.plan.columns) {
            *register = column.eval(&Registers(&self.inner), params, env)?;
        }
        Ok(true)
    }
}

/// LIMIT and OFFSET.
pub(super) struct LimitRows {
    plan: Arc<LimitPlan>,
    input: Box<dyn Operator>,
    /// Rows to leave out yet.
    skip: u64,
    /// Rows to give yet; `None` is no limit.
    left: Option<u64>,
}

impl LimitRows {
    pub fn new(plan: Arc<LimitPlan>) -> LimitRows {
        LimitRows { input: build(&plan.input), plan, skip: 0, left: None }
    }
}

/// Evaluates LIMIT or OFFSET; NULL is `None`.
pub(crate) fn row_count(expr: Option<&Expr>, offset: bool, params: &[Value], env: &mut Env<'_>) -> Result<Option<u64>> {
    let Some(expr) = expr else { return Ok(None) };
    let value = expr.eval(&Registers(&[]), params, env)?;
    if value.is_null() {
        return Ok(None);
    }
    let number = value.as_i64().unwrap_or(0);
    let (code, name) = if offset {
        (SqlState::INVALID_ROW_COUNT_IN_RESULT_OFFSET_CLAUSE, "OFFSET")
    } else {
        (SqlState::INVALID_ROW_COUNT_IN_LIMIT_CLAUSE, "LIMIT")
    };
    u64::try_from(number).map(Some).map_err(|_| Error::new(code, format!("{name} must not be negative")))
}

impl Operator for LimitRows {
    fn open(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<()> {
        self.skip = row_count(self.plan.offset.as_ref(), true, params, env)?.unwrap_or(0);
        self.left = row_count(self.plan.limit.as_ref(), false, params, env)?;
        if self.left == Some(0) {
            return Ok(());
        }
        self.input.open(env, params, row)
    }

    fn next(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<bool> {
        if self.left == Some(0) {
            return Ok(false);
        }
        while self.skip > 0 {
            self.skip -= 1;
            if !self.input.next(env, params, row)? {
                self.left = Some(0);
                return Ok(false);
            }
        }
        let found = self.input.next(env, params, row)?;
        if let Some(left) = &mut self.left {
            *left -= 1;
        }
        Ok(found)
    }
}

/// SELECT ... FOR UPDATE: locks each row, and looks at its newest version when it has changed meanwhile.
pub(super) struct LockRows {
    plan: Arc<LockPlan>,
    input: Box<dyn Operator>,
}

impl LockRows {
    pub fn new(plan: Arc<LockPlan>) -> LockRows {
        LockRows { input: build(&plan.input), plan }
    }
}

impl Operator for LockRows {
    fn open(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<()> {
        self.input.open(env, params, row)
    }

    fn next(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<bool> {
        'rows: while self.input.next(env, params, row)? {
            for scan in &self.plan.scans {
                let Some(Value::Bytea(key)) = scan.key_register.map(|register| row[register].clone()) else {
                    // The nullable side of an outer join without a match: nothing to lock.
                    continue;
                };
                let mut newest = Vec::new();
                let locked = context(env).session.lock_row(&scan.table, &key, self.plan.wait, &mut |bytes| {
                    newest.clear();
                    newest.extend_from_slice(bytes);
                    Ok(true)
                })?;
                if !locked {
                    continue 'rows;
                }
                let raw = RawRow { layout: &scan.table.layout, bytes: &newest, base: scan.base, registers: row };
                if !all_hold(&scan.conditions, &raw, params, env)? {
                    continue 'rows;
                }
                load(scan, &newest, row);
            }
            if all_hold(&self.plan.conditions, &Registers(row), params, env)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
