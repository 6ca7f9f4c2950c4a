//! What do groups of rows amount to? Grouping by a hash table, aggregates by accumulators.

use super::hash_table::{Entered, HashTable};
use super::{Operator, Registers, build, context};
use crate::expr::{Accumulator, AggregateCall, Env};
use crate::plan::AggregatePlan;
use crate::sort_keys::{Direction, SortKeys};
use homenode_engine::{Charge, MemoryContext};
use homenode_types::{Error, Result, Value};
use std::sync::Arc;

/// What waits to be added in its order.
#[derive(Default)]
struct Waiting {
    keys: SortKeys,
    /// The arguments of each row.
    rows: Vec<Vec<Value>>,
    /// Bytes of the rows.
    bytes: usize,
}

/// One group's accumulators, and the values DISTINCT aggregates have seen.
pub(crate) struct Group {
    accumulators: Vec<Accumulator>,
    seen: Vec<Option<HashTable<()>>>,
    /// For aggregates with an order; empty when there is none.
    waiting: Vec<Option<Waiting>>,
    /// Whether any of these grow with the rows.
    gathers: bool,
    /// What the values point to that array_agg has gathered.
    values_bytes: usize,
}

impl Entered for Group {
    fn heap_bytes(&self) -> usize {
        size_of_val(&self.accumulators[..]) + size_of_val(&self.seen[..])
    }
}

impl Group {
    /// An empty group.
    pub fn new(calls: &[AggregateCall]) -> Group {
        let ordered = calls.iter().any(|call| !call.order.is_empty());
        let waiting = |call: &AggregateCall| (!call.order.is_empty()).then(Waiting::default);
        Group {
            waiting: if ordered { calls.iter().map(waiting).collect() } else { Vec::new() },
            accumulators: calls.iter().map(|call| Accumulator::new(&call.aggregate)).collect(),
            seen: calls.iter().map(|call| call.distinct.then(HashTable::default)).collect(),
            gathers: calls.iter().any(|call| call.distinct || call.aggregate.gathers()),
            values_bytes: 0,
        }
    }

    /// Bytes that have been gathered.
    fn gathered_bytes(&self) -> usize {
        let seen: usize = self.seen.iter().flatten().map(HashTable::bytes).sum();
        let waiting: usize = self.waiting.iter().flatten().map(|waiting| waiting.keys.bytes() + waiting.bytes).sum();
        self.accumulators.iter().map(Accumulator::heap_bytes).sum::<usize>() + seen + waiting + self.values_bytes
    }

    /// Adds a row; returns by how many bytes the group has grown.
    pub fn add(
        &mut self,
        calls: &[AggregateCall],
        row: &dyn crate::expr::RowSource,
        params: &[Value],
        env: &mut Env<'_>,
        arguments: &mut Vec<Value>,
    ) -> Result<usize> {
        if !self.gathers {
            return self.add_to_each(calls, row, params, env, arguments).map(|()| 0);
        }
        let before = self.gathered_bytes();
        self.add_to_each(calls, row, params, env, arguments)?;
        Ok(self.gathered_bytes().saturating_sub(before))
    }

    fn add_to_each(
        &mut self,
        calls: &[AggregateCall],
        row: &dyn crate::expr::RowSource,
        params: &[Value],
        env: &mut Env<'_>,
        arguments: &mut Vec<Value>,
    ) -> Result<()> {
        for (number, ((call, accumulator), seen)) in
            calls.iter().zip(&mut self.accumulators).zip(&mut self.seen).enumerate()
        {
            if let Some(filter) = &call.filter
                && filter.eval_bool(row, params, env)? != Some(true)
            {
                continue;
            }
            arguments.clear();
            for argument in &call.args {
                arguments.push(argument.eval(row, params, env)?);
            }
            if let Some(seen) = seen {
                if seen.find(arguments).is_some() {
                    continue;
                }
                seen.push(arguments.clone(), ());
            }
            if let Some(Some(waiting)) = self.waiting.get_mut(number) {
                for sort in &call.order {
                    let value = sort.value.eval_ref(row, params, env)?;
                    let direction = Direction { descending: sort.descending, nulls_first: sort.nulls_first };
                    waiting.keys.part(value.as_ref(), sort.ty.ty, direction);
                }
                waiting.keys.end_row();
                waiting.bytes += super::hash_table::bytes_of(arguments) + size_of::<Vec<Value>>();
                waiting.rows.push(arguments.clone());
                continue;
            }
            accumulator.add(arguments)?;
            if accumulator.keeps_values() {
                self.values_bytes += arguments.iter().map(Value::heap_bytes).sum::<usize>();
            }
        }
        Ok(())
    }

    /// Adds another group's rows. Not for aggregates with DISTINCT or an order.
    pub fn merge(&mut self, other: Group) -> Result<()> {
        for (accumulator, other) in self.accumulators.iter_mut().zip(other.accumulators) {
            accumulator.merge(other)?;
        }
        Ok(())
    }

    /// The results.
    pub fn finish(mut self) -> Result<Vec<Value>> {
        for (waiting, accumulator) in self.waiting.iter_mut().zip(&mut self.accumulators) {
            let Some(Waiting { keys, rows, .. }) = waiting else { continue };
            keys.sort();
            keys.rows().try_for_each(|row| accumulator.add(&rows[row]))?;
        }
        self.accumulators.into_iter().map(Accumulator::finish).collect()
    }
}

/// The operator.
pub(super) struct AggregateRows {
    plan: Arc<AggregatePlan>,
    input: Box<dyn Operator>,
    inner: Vec<Value>,
    rows: std::vec::IntoIter<Vec<Value>>,
}

impl AggregateRows {
    pub fn new(plan: Arc<AggregatePlan>) -> AggregateRows {
        AggregateRows {
            input: build(&plan.input),
            inner: vec![Value::Null; plan.width],
            plan,
            rows: Vec::new().into_iter(),
        }
    }

    fn serial(&mut self, env: &mut Env<'_>, params: &[Value]) -> Result<Vec<Vec<Value>>> {
        let plan = self.plan.clone();
        self.input.open(env, params, &mut self.inner)?;
        let mut groups: HashTable<Group> = HashTable::default();
        let mut arguments = Vec::new();
        let empty_sets = plan.sets.iter().enumerate().filter(|(_, set)| !set.included.contains(&true));
        for (number, _) in empty_sets {
            let mut key = vec![Value::Null; plan.groups.len()];
            key.push(Value::Int4(number as i32));
            groups.push(key, Group::new(&plan.calls));
        }
        if plan.groups.is_empty() && plan.sets.is_empty() {
            groups.push(Vec::new(), Group::new(&plan.calls));
        }
        let mut charge = Charge::new(&context(env).session.shared().memory, MemoryContext::Hash);
        let mut read = 0_u64;
        while self.input.next(env, params, &mut self.inner)? {
            read += 1;
            if read.is_multiple_of(1024) {
                groups.charge(&mut charge);
                context(env).check_interrupt()?;
            }
            let row = Registers(&self.inner);
            if !plan.sets.is_empty() {
                add_to_sets(&plan, &mut groups, &row, params, env, &mut arguments)?;
                continue;
            }
            let at = if plan.groups.is_empty() {
                0
            } else {
                let mut key = Vec::with_capacity(plan.groups.len());
                for group in &plan.groups {
                    key.push(group.eval(&row, params, env)?);
                }
                match groups.find(&key) {
                    Some(at) => at,
                    None => groups.push(key, Group::new(&plan.calls)),
                }
            };
            let grown = groups.value_mut(at).add(&plan.calls, &row, params, env, &mut arguments)?;
            groups.add_bytes(grown);
        }
        if plan.sets.is_empty() { finish_groups(groups) } else { finish_sets(&plan, groups) }
    }
}

/// Adds a row to its group of each set. A group's key ends with the number of its set.
fn add_to_sets(
    plan: &AggregatePlan,
    groups: &mut HashTable<Group>,
    row: &Registers<'_>,
    params: &[Value],
    env: &mut Env<'_>,
    arguments: &mut Vec<Value>,
) -> Result<()> {
    let values = plan.groups.iter().map(|group| group.eval(row, params, env)).collect::<Result<Vec<_>>>()?;
    for (number, set) in plan.sets.iter().enumerate() {
        let value = |(value, included): (&Value, &bool)| if *included { value.clone() } else { Value::Null };
        let mut key: Vec<Value> = values.iter().zip(&set.included).map(value).collect();
        key.push(Value::Int4(number as i32));
        let at = match groups.find(&key) {
            Some(at) => at,
            None => groups.push(key, Group::new(&plan.calls)),
        };
        groups.value_mut(at).add(&plan.calls, row, params, env, arguments)?;
    }
    Ok(())
}

/// Group keys without their sets' numbers, followed by their aggregates and what their sets decide.
fn finish_sets(plan: &AggregatePlan, groups: HashTable<Group>) -> Result<Vec<Vec<Value>>> {
    let finish = |(mut row, group): (Vec<Value>, Group)| {
        let set = row.pop().and_then(|number| number.as_i64()).and_then(|number| plan.sets.get(number as usize));
        let set = set.ok_or_else(|| Error::internal("a group of no grouping set"))?;
        row.extend(group.finish()?);
        for (call, value) in &set.known {
            row[plan.groups.len() + call] = value.clone();
        }
        Ok(row)
    };
    groups.into_entries().map(finish).collect()
}

/// Group keys followed by their aggregates.
pub(crate) fn finish_groups(groups: HashTable<Group>) -> Result<Vec<Vec<Value>>> {
    groups
        .into_entries()
        .map(|(mut key, group)| {
            key.extend(group.finish()?);
            Ok(key)
        })
        .collect()
}

impl Operator for AggregateRows {
    fn open(&mut self, env: &mut Env<'_>, params: &[Value], _: &mut [Value]) -> Result<()> {
        let rows = match self.plan.parallel {
            true => match crate::parallel::aggregate(&self.plan, env, params)? {
                Some(groups) => groups,
                None => self.serial(env, params)?,
            },
            false => self.serial(env, params)?,
        };
        self.rows = rows.into_iter();
        Ok(())
    }

    fn next(&mut self, _: &mut Env<'_>, _: &[Value], row: &mut [Value]) -> Result<bool> {
        let Some(values) = self.rows.next() else { return Ok(false) };
        for (register, value) in row.iter_mut().zip(values) {
            *register = value;
        }
        Ok(true)
    }
}
