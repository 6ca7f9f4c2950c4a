//! What does a subquery inside an expression give? Scalar, EXISTS, IN, comparisons with ANY and ALL, and ARRAY.
//!
//! An uncorrelated subquery runs once per statement. A correlated one runs for each row; its operators are kept between.

use super::hash_table::HashTable;
use super::{Running, context, key_value};
use crate::context::{Context, NEEDS_SESSION};
use crate::expr::{CmpOp, Env, Expr, External, RowSource, compare_values};
use crate::plan::QueryPlan;
use homenode_types::{Error, Result, SqlState, Type, Value};
use std::sync::Arc;

/// What is asked of the subquery.
pub(crate) enum SubqueryKind {
    /// Its only value.
    Scalar,
    /// Whether it has rows.
    Exists,
    /// `value IN (subquery)`; the subquery's column has this type.
    In { value: Expr, ty: Type },
    /// `value op ANY (subquery)` or `ALL`.
    Compare { value: Expr, op: CmpOp, all: bool },
    /// ARRAY(subquery), of this array type.
    Array { ty: Type },
}

/// A subquery as a node of an expression.
pub(crate) struct Subquery {
    /// What is asked.
    pub kind: SubqueryKind,
    /// The query.
    pub plan: Arc<QueryPlan>,
    /// The outer columns it uses, over the outer registers.
    pub outer: Vec<Expr>,
}

impl std::fmt::Debug for Subquery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SubPlan")
    }
}

/// What is kept of a subquery for the rest of the statement.
pub(crate) enum Kept {
    /// Its operators, to be opened again.
    Operators(Box<Running>),
    /// The answer of an uncorrelated one.
    Value(Value),
    /// The set of an uncorrelated IN, and whether it holds a NULL.
    Set(Arc<Set>),
}

/// Values an IN looks through.
#[derive(Default)]
pub(crate) struct Set {
    values: HashTable<()>,
    has_null: bool,
}

impl Set {
    fn contains(&self, value: Value) -> Value {
        if self.values.len() == 0 && !self.has_null {
            return Value::Bool(false);
        }
        if value.is_null() {
            return Value::Null;
        }
        match self.values.find(&[value]) {
            Some(_) => Value::Bool(true),
            None if self.has_null => Value::Null,
            None => Value::Bool(false),
        }
    }
}

impl Subquery {
    /// Where the statement keeps what belongs to this subquery: the plan lives as long as the statement runs.
    fn place(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    /// Runs the query and gives each row's first column to `each` until that returns false.
    fn run(&self, params: &[Value], env: &mut Env<'_>, each: &mut dyn FnMut(Value) -> Result<bool>) -> Result<()> {
        let kept = context(env).subqueries.remove(&self.place());
        let mut running = match kept {
            Some(Kept::Operators(running)) => running,
            _ => Box::new(Running::new(self.plan.clone())),
        };
        running.open(env, params)?;
        while running.next(env, params)? {
            let value = match running.plan().output.first() {
                Some(column) => column.eval(&super::Registers(running.row()), params, env)?,
                None => Value::Null,
            };
            if !each(value)? {
                break;
            }
        }
        context(env).subqueries.insert(self.place(), Kept::Operators(running));
        Ok(())
    }

    fn set(&self, params: &[Value], env: &mut Env<'_>, ty: Type) -> Result<Set> {
        let mut set = Set::default();
        self.run(params, env, &mut |value| {
            if value.is_null() {
                set.has_null = true;
            } else {
                let key = [key_value(value, ty)];
                if set.values.find(&key).is_none() {
                    set.values.push(key.to_vec(), ());
                }
            }
            Ok(true)
        })?;
        Ok(set)
    }

    fn answer(&self, row: &dyn RowSource, params: &[Value], env: &mut Env<'_>, outer: Vec<Value>) -> Result<Value> {
        // The value on the left belongs to the outer query: it is evaluated with the outer query's own outer columns.
        let left = match &self.kind {
            SubqueryKind::In { value, ty } => key_value(value.eval(row, params, env)?, *ty),
            SubqueryKind::Compare { value, .. } => value.eval(row, params, env)?,
            _ => Value::Null,
        };
        let saved = std::mem::replace(&mut env.outer, outer);
        let result = self.answer_inside(left, params, env);
        env.outer = saved;
        result
    }

    fn answer_inside(&self, left: Value, params: &[Value], env: &mut Env<'_>) -> Result<Value> {
        match &self.kind {
            SubqueryKind::Scalar => {
                let mut found = None;
                self.run(params, env, &mut |value| match found.replace(value) {
                    None => Ok(true),
                    Some(_) => Err(Error::new(
                        SqlState::CARDINALITY_VIOLATION,
                        "more than one row returned by a subquery used as an expression",
                    )),
                })?;
                Ok(found.unwrap_or(Value::Null))
            }
            SubqueryKind::Exists => {
                let mut found = false;
                self.run(params, env, &mut |_| {
                    found = true;
                    Ok(false)
                })?;
                Ok(Value::Bool(found))
            }
            SubqueryKind::In { ty, .. } => Ok(self.set(params, env, *ty)?.contains(left)),
            SubqueryKind::Compare { op, all, .. } => {
                let mut answer = Value::Bool(*all);
                self.run(params, env, &mut |value| {
                    match compare_values(*op, left.as_ref(), value.as_ref()) {
                        Some(holds) if holds != *all => {
                            answer = Value::Bool(holds);
                            return Ok(false);
                        }
                        None => answer = Value::Null,
                        Some(_) => {}
                    }
                    Ok(true)
                })?;
                Ok(answer)
            }
            SubqueryKind::Array { ty } => {
                let mut values = Vec::new();
                self.run(params, env, &mut |value| {
                    values.push(value);
                    Ok(true)
                })?;
                let items: Vec<_> = values.iter().map(Value::as_ref).collect();
                Ok(Value::Text(homenode_types::array::format(&items, *ty)))
            }
        }
    }
}

impl External for Subquery {
    fn eval(&self, row: &dyn RowSource, params: &[Value], env: &mut Env<'_>) -> Result<Value> {
        if env.host.as_any_mut().downcast_mut::<Context>().is_none() {
            return Err(Error::new(NEEDS_SESSION, "a subquery needs the session"));
        }
        if !self.outer.is_empty() {
            let mut outer = Vec::with_capacity(self.outer.len());
            for value in &self.outer {
                outer.push(value.eval(row, params, env)?);
            }
            return self.answer(row, params, env, outer);
        }
        let place = self.place();
        if let SubqueryKind::In { value, ty } = &self.kind {
            let known = match context(env).subqueries.get(&place) {
                Some(Kept::Set(set)) => Some(set.clone()),
                _ => None,
            };
            let set = match known {
                Some(set) => set,
                None => {
                    let saved = std::mem::take(&mut env.outer);
                    let set = self.set(params, env, *ty);
                    env.outer = saved;
                    let set = Arc::new(set?);
                    context(env).subqueries.insert(place, Kept::Set(set.clone()));
                    set
                }
            };
            let left = key_value(value.eval(row, params, env)?, *ty);
            return Ok(set.contains(left));
        }
        if matches!(self.kind, SubqueryKind::Compare { .. }) {
            return self.answer(row, params, env, Vec::new());
        }
        if let Some(Kept::Value(value)) = context(env).subqueries.get(&place) {
            return Ok(value.clone());
        }
        let value = self.answer(row, params, env, Vec::new())?;
        context(env).subqueries.insert(place, Kept::Value(value.clone()));
        Ok(value)
    }

    fn is_correlated(&self) -> bool {
        !self.outer.is_empty()
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }

    fn with_outer(&self, columns: &[Expr]) -> Arc<dyn External> {
        let replaced = |expr: &Expr| {
            let mut expr = expr.clone();
            expr.replace_outer(columns);
            expr
        };
        let kind = match &self.kind {
            SubqueryKind::Scalar => SubqueryKind::Scalar,
            SubqueryKind::Exists => SubqueryKind::Exists,
            SubqueryKind::In { value, ty } => SubqueryKind::In { value: replaced(value), ty: *ty },
            SubqueryKind::Compare { value, op, all } => {
                SubqueryKind::Compare { value: replaced(value), op: *op, all: *all }
            }
            SubqueryKind::Array { ty } => SubqueryKind::Array { ty: *ty },
        };
        Arc::new(Subquery { kind, plan: self.plan.clone(), outer: self.outer.iter().map(replaced).collect() })
    }

    fn visit_columns(&self, visit: &mut dyn FnMut(usize)) {
        for value in &self.outer {
            value.visit_columns(visit);
        }
        if let SubqueryKind::In { value, .. } | SubqueryKind::Compare { value, .. } = &self.kind {
            value.visit_columns(visit);
        }
    }
}
