//! Which rows of two sides have equal keys? The right side goes into a hash table, the left side probes it.

use super::hash_table::{Entered, HashTable, bytes_of};
use super::{Operator, Registers, all_hold, build, clear, context, restore, save};
use crate::expr::{Env, Expr};
use crate::plan::{HashJoinPlan, JoinKind};
use homenode_engine::{Charge, MemoryContext};
use homenode_types::{Result, Value};
use std::sync::Arc;

/// A row of the right side.
pub(crate) struct KeptRow {
    pub registers: Vec<Value>,
    matched: bool,
}

impl KeptRow {
    /// A row that nothing has matched yet.
    pub fn new(registers: Vec<Value>) -> KeptRow {
        KeptRow { registers, matched: false }
    }

    /// Bytes that it points to.
    pub fn bytes(&self) -> usize {
        bytes_of(&self.registers)
    }
}

impl Entered for KeptRow {
    fn heap_bytes(&self) -> usize {
        self.bytes()
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
pub(crate) fn join_key<'k>(
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

/// Fills the hash table of a join from its right side: by all processors where it is a big scan, else by its operators. Rows whose key
/// holds a NULL go to `unkeyed`.
fn fill(
    plan: &Arc<HashJoinPlan>,
    right: &mut dyn Operator,
    env: &mut Env<'_>,
    params: &[Value],
    row: &mut [Value],
    unkeyed: &mut dyn FnMut(Vec<Value>),
) -> Result<(HashTable<KeptRow>, Charge)> {
    let mut table = HashTable::default();
    let mut charge = Charge::new(&context(env).session.shared().memory, MemoryContext::Hash);
    // Where the key alone decides, one row of each is enough.
    let once = matches!(plan.kind, JoinKind::Semi | JoinKind::Anti) && plan.conditions.is_empty();
    if plan.kind != JoinKind::Full
        && let Some(rows) = crate::pipeline::right_side(plan, row.len(), env, params)?
    {
        for (key, kept) in rows {
            if !once || table.find(&key).is_none() {
                table.push(key, kept);
            }
        }
        table.charge(&mut charge);
        return Ok((table, charge));
    }
    right.open(env, params, row)?;
    let mut key = Vec::new();
    while right.next(env, params, row)? {
        if table.len().is_multiple_of(1024) {
            table.charge(&mut charge);
        }
        if join_key(plan.keys.iter().map(|(_, right)| right), row, params, env, &mut key)? {
            if once && table.find(&key).is_some() {
                continue;
            }
            let kept = KeptRow::new(save(row, &plan.right_registers));
            table.push(std::mem::take(&mut key), kept);
        } else if plan.kind == JoinKind::Full {
            unkeyed(save(row, &plan.right_registers));
        }
    }
    table.charge(&mut charge);
    Ok((table, charge))
}

/// The hash table of a join that is not FULL; `width` is the number of registers of its block.
pub(crate) fn join_table(
    plan: &Arc<HashJoinPlan>,
    width: usize,
    env: &mut Env<'_>,
    params: &[Value],
) -> Result<(HashTable<KeptRow>, Charge)> {
    let mut row = vec![Value::Null; width];
    fill(plan, &mut *build(&plan.right), env, params, &mut row, &mut |_| {})
}

impl Operator for HashRows {
    fn open(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<()> {
        let plan = self.plan.clone();
        self.table = HashTable::default();
        self.unkeyed.clear();
        (self.in_left, self.rest) = (false, None);
        let unkeyed = &mut self.unkeyed;
        let (table, charge) = fill(&plan, &mut *self.right, env, params, row, &mut |kept| unkeyed.push(kept))?;
        (self.table, self.charge) = (table, Some(charge));
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
                let keyed = join_key(plan.keys.iter().map(|(left, _)| left), row, params, env, &mut self.key)?;
                self.current = if keyed { self.table.find(&self.key) } else { None };
            }
            while let Some(at) = self.current {
                self.current = self.table.find_after(at, &self.key);
                restore(row, &plan.right_registers, &self.table.value(at).registers);
                if all_hold(&plan.conditions, &Registers(row), params, env)? {
                    self.matched = true;
                    match plan.kind {
                        JoinKind::Anti => break,
                        // One partner is enough.
                        JoinKind::Semi => self.in_left = false,
                        JoinKind::Full => self.table.value_mut(at).matched = true,
                        JoinKind::Inner | JoinKind::Left => {}
                    }
                    return Ok(true);
                }
            }
            self.in_left = false;
            match plan.kind {
                JoinKind::Left | JoinKind::Full if !self.matched => {
                    clear(row, &plan.right_registers);
                    return Ok(true);
                }
                JoinKind::Anti if !self.matched => return Ok(true),
                _ => {}
            }
        }
    }
}
