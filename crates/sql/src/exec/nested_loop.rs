//! For each row of one side, which rows of the other? The nested loop, and the inner side kept in memory.

use super::{Operator, Registers, all_hold, build, clear, context, restore, save};
use crate::expr::Env;
use crate::plan::{JoinKind, LoopPlan, MaterializePlan};
use homenode_types::{Result, Value};
use std::sync::Arc;

/// The nested loop; its inner side sees the outer row's registers when it is opened.
pub(super) struct LoopRows {
    plan: Arc<LoopPlan>,
    left: Box<dyn Operator>,
    right: Box<dyn Operator>,
    /// The outer row has been joined with something, or there is no outer row.
    in_left: bool,
    matched: bool,
    steps: u32,
}

impl LoopRows {
    pub fn new(plan: Arc<LoopPlan>) -> LoopRows {
        LoopRows { left: build(&plan.left), right: build(&plan.right), plan, in_left: false, matched: false, steps: 0 }
    }
}

impl Operator for LoopRows {
    fn open(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<()> {
        self.in_left = false;
        self.right.reset();
        self.left.open(env, params, row)
    }

    fn next(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<bool> {
        loop {
            if !self.in_left {
                if !self.left.next(env, params, row)? {
                    return Ok(false);
                }
                self.in_left = true;
                self.matched = false;
                self.right.open(env, params, row)?;
            }
            while self.right.next(env, params, row)? {
                self.steps = self.steps.wrapping_add(1);
                if self.steps.is_multiple_of(1024) {
                    context(env).check_interrupt()?;
                }
                if all_hold(&self.plan.conditions, &Registers(row), params, env)? {
                    self.matched = true;
                    match self.plan.kind {
                        JoinKind::Anti => break,
                        // One partner is enough.
                        JoinKind::Semi => self.in_left = false,
                        _ => {}
                    }
                    return Ok(true);
                }
            }
            self.in_left = false;
            match self.plan.kind {
                JoinKind::Left if !self.matched => {
                    clear(row, &self.plan.right_registers);
                    return Ok(true);
                }
                JoinKind::Anti if !self.matched => return Ok(true),
                _ => {}
            }
        }
    }
}

/// Rows read once and given again at each open.
pub(super) struct KeptRows {
    plan: Arc<MaterializePlan>,
    input: Box<dyn Operator>,
    rows: Option<Vec<Vec<Value>>>,
    at: usize,
}

impl KeptRows {
    pub fn new(plan: Arc<MaterializePlan>) -> KeptRows {
        KeptRows { input: build(&plan.input), plan, rows: None, at: 0 }
    }
}

impl Operator for KeptRows {
    fn reset(&mut self) {
        self.rows = None;
    }

    fn open(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<()> {
        self.at = 0;
        if self.rows.is_none() {
            let mut rows = Vec::new();
            self.input.open(env, params, row)?;
            while self.input.next(env, params, row)? {
                rows.push(save(row, &self.plan.registers));
            }
            self.rows = Some(rows);
        }
        Ok(())
    }

    fn next(&mut self, _: &mut Env<'_>, _: &[Value], row: &mut [Value]) -> Result<bool> {
        let Some(saved) = self.rows.as_ref().and_then(|rows| rows.get(self.at)) else { return Ok(false) };
        self.at += 1;
        restore(row, &self.plan.registers, saved);
        Ok(true)
    }
}
