//! Which rows are new? DISTINCT and DISTINCT ON.

use super::hash_table::HashTable;
use super::{Operator, Registers, build, context};
use crate::expr::{Env, Expr};
use crate::plan::DistinctPlan;
use homenode_engine::{Charge, MemoryContext};
use homenode_types::{Result, Value};
use std::sync::Arc;

/// The operator: by comparing neighbours when the input is sorted, else by a hash table.
pub(super) struct DistinctRows {
    plan: Arc<DistinctPlan>,
    input: Box<dyn Operator>,
    seen: HashTable<()>,
    charge: Option<Charge>,
    last: Option<Vec<Value>>,
}

impl DistinctRows {
    pub fn new(plan: Arc<DistinctPlan>) -> DistinctRows {
        DistinctRows { input: build(&plan.input), plan, seen: HashTable::default(), charge: None, last: None }
    }
}

fn key(exprs: &[Expr], row: &[Value], params: &[Value], env: &mut Env<'_>) -> Result<Vec<Value>> {
    exprs.iter().map(|expr| expr.eval(&Registers(row), params, env)).collect()
}

impl Operator for DistinctRows {
    fn open(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<()> {
        self.seen = HashTable::default();
        self.last = None;
        self.charge = Some(Charge::new(&context(env).session.shared().memory, MemoryContext::Hash));
        self.input.open(env, params, row)
    }

    fn next(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<bool> {
        while self.input.next(env, params, row)? {
            let key = key(&self.plan.keys, row, params, env)?;
            if self.plan.sorted {
                if self.last.as_ref().is_some_and(|last| super::same_key(last, &key)) {
                    continue;
                }
                self.last = Some(key);
                return Ok(true);
            }
            if self.seen.find(&key).is_none() {
                self.seen.push(key, ());
                if self.seen.len().is_multiple_of(1024)
                    && let Some(charge) = &mut self.charge
                {
                    self.seen.charge(charge);
                }
                return Ok(true);
            }
        }
        Ok(false)
    }
}
