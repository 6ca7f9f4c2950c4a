//! What does WITH RECURSIVE give? Its first rows, then round after round what the recursive term makes of the rows of the round before.

use super::hash_table::HashTable;
use super::{Operator, Running, context};
use crate::expr::Env;
use crate::plan::RecursivePlan;
use homenode_types::{Result, Value};
use std::sync::Arc;

/// The operator. A round is run when the rows of the one before have been given, so a reader that stops ends it.
pub(super) struct RecursiveRows {
    plan: Arc<RecursivePlan>,
    started: bool,
    /// The rows of the last round, and the next one to give.
    round: Arc<Vec<Vec<Value>>>,
    next: usize,
    /// UNION: the rows that were given.
    given: HashTable<()>,
}

impl RecursiveRows {
    pub fn new(plan: Arc<RecursivePlan>) -> RecursiveRows {
        RecursiveRows { plan, started: false, round: Arc::default(), next: 0, given: HashTable::default() }
    }

    /// Runs one of the two queries to its end.
    fn run(&mut self, env: &mut Env<'_>, params: &[Value]) -> Result<Vec<Vec<Value>>> {
        let query = if self.started { &self.plan.right } else { &self.plan.left };
        let mut running = Running::new(query.clone());
        running.open(env, params)?;
        let mut rows = Vec::new();
        while running.next(env, params)? {
            let values = running.output(env, params)?;
            if !self.plan.all {
                if self.given.find(&values).is_some() {
                    continue;
                }
                self.given.push(values.clone(), ());
            }
            rows.push(values);
        }
        Ok(rows)
    }

    /// Makes the next round; false when it has no rows.
    fn advance(&mut self, env: &mut Env<'_>, params: &[Value]) -> Result<bool> {
        context(env).check_interrupt()?;
        let number = self.plan.number;
        if self.started {
            if self.round.is_empty() {
                return Ok(false);
            }
            context(env).shared_rows.insert(number, self.round.clone());
        }
        let rows = self.run(env, params);
        context(env).shared_rows.remove(&number);
        self.started = true;
        (self.round, self.next) = (Arc::new(rows?), 0);
        Ok(!self.round.is_empty())
    }
}

impl Operator for RecursiveRows {
    fn open(&mut self, _: &mut Env<'_>, _: &[Value], _: &mut [Value]) -> Result<()> {
        *self = RecursiveRows::new(self.plan.clone());
        Ok(())
    }

    fn next(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<bool> {
        if self.next == self.round.len() && !self.advance(env, params)? {
            return Ok(false);
        }
        for (register, value) in row.iter_mut().zip(&self.round[self.next]) {
            *register = value.clone();
        }
        self.next += 1;
        Ok(true)
    }
}
