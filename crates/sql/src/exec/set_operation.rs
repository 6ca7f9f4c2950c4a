//! What do two queries have together? UNION, INTERSECT and EXCEPT, with and without ALL.

use super::hash_table::HashTable;
use super::{Operator, Running};
use crate::expr::Env;
use crate::plan::{SetKind, SetPlan};
use homenode_types::{Result, Value};
use std::sync::Arc;

/// The operator. The right side of INTERSECT and EXCEPT is counted first.
pub(super) struct SetRows {
    plan: Arc<SetPlan>,
    left: Running,
    right: Running,
    in_right: bool,
    /// How many equal rows the right side has yet to match (INTERSECT, EXCEPT), or which rows were given (UNION).
    counts: HashTable<u64>,
    given: HashTable<()>,
}

impl SetRows {
    pub fn new(plan: Arc<SetPlan>) -> SetRows {
        SetRows {
            left: Running::new(plan.left.clone()),
            right: Running::new(plan.right.clone()),
            plan,
            in_right: false,
            counts: HashTable::default(),
            given: HashTable::default(),
        }
    }

    fn is_new(&mut self, values: &[Value]) -> bool {
        if self.given.find(values).is_some() {
            return false;
        }
        self.given.push(values.to_vec(), ());
        true
    }

    /// Whether the left row `values` belongs to the result.
    fn wanted(&mut self, values: &[Value]) -> bool {
        let (kind, all) = (self.plan.kind, self.plan.all);
        if kind == SetKind::Union {
            return all || self.is_new(values);
        }
        let found = self.counts.find(values);
        let matched = match found {
            Some(at) if *self.counts.value(at) > 0 => {
                if all {
                    *self.counts.value_mut(at) -= 1;
                }
                true
            }
            _ => false,
        };
        (matched == (kind == SetKind::Intersect)) && (all || self.is_new(values))
    }
}

impl Operator for SetRows {
    fn open(&mut self, env: &mut Env<'_>, params: &[Value], _: &mut [Value]) -> Result<()> {
        self.counts = HashTable::default();
        self.given = HashTable::default();
        self.in_right = false;
        if self.plan.kind != SetKind::Union {
            self.right.open(env, params)?;
            while self.right.next(env, params)? {
                let values = self.right.output(env, params)?;
                match self.counts.find(&values) {
                    Some(at) => *self.counts.value_mut(at) += 1,
                    None => {
                        self.counts.push(values, 1);
                    }
                }
            }
        }
        self.left.open(env, params)
    }

    fn next(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<bool> {
        loop {
            let side = if self.in_right { &mut self.right } else { &mut self.left };
            if side.next(env, params)? {
                let values = side.output(env, params)?;
                if self.wanted(&values) {
                    for (register, value) in row.iter_mut().zip(values) {
                        *register = value;
                    }
                    return Ok(true);
                }
            } else if self.in_right || self.plan.kind != SetKind::Union {
                return Ok(false);
            } else {
                self.in_right = true;
                self.right.open(env, params)?;
            }
        }
    }
}
