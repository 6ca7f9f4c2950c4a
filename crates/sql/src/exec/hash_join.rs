//! Which rows of two sides have equal keys? The right side goes into a hash table, the left side probes it.

use super::hash_table::{Entered, HashTable, bytes_of};
use super::{Operator, Registers, all_hold, build, clear, context, restore, save};
use crate::expr::{Env, Expr};
use crate::plan::{HashJoinPlan, JoinKind};
use homenode_engine::{Charge, MemoryContext};
use homenode_types::{Result, Value};
use std::sync::Arc;

struct KeptRow {
    registers: Vec<Value>,
    matched: bool,
}

impl Entered for KeptRow {
    fn heap_bytes(&self) -> usize {
        bytes_of(&self.registers)
    }
}

/// The operator.
pub(super) struct HashRows {
    plan: Arc<HashJoinPlan>,
    left: Box<dyn Operator>,
    right: Box<dyn Operator>,
    table: HashTable<KeptRow>,
    charge: Option<Charge>,
    /// Right rows whose key holds a NULL: they match nothing, but FULL gives them out.
    unkeyed: Vec<Vec<Value>>,
    key: Vec<Value>,
    /// The entry of the current left row that was given last.
    current: Option<usize>,
    in_left: bool,
    matched: bool,
    /// FULL, after the left side: the next right row to look at.
    rest: Option<usize>,
    steps: u32,
}

impl HashRows {
    pub fn new(plan: Arc<HashJoinPlan>) -> HashRows {
        HashRows {
            left: build(&plan.left),
            right: build(&plan.right),
            plan,
            charge: None,
            table: HashTable::default(),
            unkeyed: Vec::new(),
            key: Vec::new(),
            current: None,
            in_left: false,
            matched: false,
            rest: None,
            steps: 0,
        }
    }

    fn unmatched_right(&mut self, row: &mut [Value]) -> bool {
        while let Some(at) = self.rest {
            self.rest = Some(at + 1);
            let saved = if at < self.table.len() {
                let kept = self.table.value(at);
                if kept.matched {
                    continue;
                }
                &kept.registers
            } else {
                match self.unkeyed.get(at - self.table.len()) {
                    Some(registers) => registers,
                    None => return false,
                }
            };
            clear(row, &self.plan.left_registers);
            restore(row, &self.plan.right_registers, saved);
            return true;
        }
        false
    }
}

/// Evaluates one side of the keys; false when one is NULL, which joins with nothing.
fn keys<'k>(
    exprs: impl Iterator<Item = &'k Expr>,
    row: &[Value],
    params: &[Value],
    env: &mut Env<'_>,
    out: &mut Vec<Value>,
) -> Result<bool> {
    out.clear();
    for expr in exprs {
        let value = expr.eval(&Registers(row), params, env)?;
        if value.is_null() {
            return Ok(false);
        }
        out.push(value);
    }
    Ok(true)
}

impl Operator for HashRows {
    fn open(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<()> {
        let plan = self.plan.clone();
        self.table = HashTable::default();
        self.unkeyed.clear();
        (self.in_left, self.rest) = (false, None);
        self.right.open(env, params, row)?;
        let mut charge = Charge::new(&context(env).session.shared().memory, MemoryContext::Hash);
        let mut key = Vec::new();
        while self.right.next(env, params, row)? {
            if self.table.len().is_multiple_of(1024) {
                self.table.charge(&mut charge);
            }
            let saved = save(row, &plan.right_registers);
            if keys(plan.keys.iter().map(|(_, right)| right), row, params, env, &mut key)? {
                self.table.push(std::mem::take(&mut key), KeptRow { registers: saved, matched: false });
            } else if plan.kind == JoinKind::Full {
                self.unkeyed.push(saved);
            }
        }
        self.table.charge(&mut charge);
        self.charge = Some(charge);
        self.left.open(env, params, row)
    }

    fn next(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<bool> {
        let plan = self.plan.clone();
        if self.rest.is_some() {
            return Ok(self.unmatched_right(row));
        }
        loop {
            if !self.in_left {
                if !self.left.next(env, params, row)? {
                    if plan.kind == JoinKind::Full {
                        self.rest = Some(0);
                        return Ok(self.unmatched_right(row));
                    }
                    return Ok(false);
                }
                self.steps = self.steps.wrapping_add(1);
                if self.steps.is_multiple_of(1024) {
                    context(env).check_interrupt()?;
                }
                (self.in_left, self.matched) = (true, false);
                let keyed = keys(plan.keys.iter().map(|(left, _)| left), row, params, env, &mut self.key)?;
                self.current = if keyed { self.table.find(&self.key) } else { None };
            }
            while let Some(at) = self.current {
                self.current = self.table.find_after(at, &self.key);
                restore(row, &plan.right_registers, &self.table.value(at).registers);
                if all_hold(&plan.conditions, &Registers(row), params, env)? {
                    self.matched = true;
                    self.table.value_mut(at).matched = true;
                    return Ok(true);
                }
            }
            self.in_left = false;
            if plan.kind != JoinKind::Inner && !self.matched {
                clear(row, &plan.right_registers);
                return Ok(true);
            }
        }
    }
}
