//! How is a big table summed up by all processors? Its key ranges are dealt out to threads; their groups are merged.
//!
//! Counts, sums, least and greatest values of integer columns take an inner loop that makes no values (`tally`); all else
//! goes through the same accumulators as a serial scan.

use crate::context::FrozenHost;
use crate::exec::{Group, HashTable, RawRow, Registers, all_hold, context};
use crate::expr::{Env, RowSource};
use crate::pipeline::{self, Gather, Pipeline};
use crate::plan::{AggregatePlan, Plan, ScanPlan};
use crate::tally::Tally;
use homenode_engine::{Charge, EachRow, MemoryContext, Piece, Reader};
use homenode_types::{Result, Value};
use std::sync::Arc;

/// What one thread found.
enum Part {
    Tallies(Vec<Tally>),
    /// Counted as that thread's until they are merged.
    Groups(HashTable<Group>, Charge),
}

/// Runs an aggregate in parallel; `None` when the settings or the statement say no.
pub(crate) fn aggregate(
    plan: &Arc<AggregatePlan>,
    env: &mut Env<'_>,
    params: &[Value],
) -> Result<Option<Vec<Vec<Value>>>> {
    if !pipeline::is_on(env)? {
        return Ok(None);
    }
    let Plan::Scan(scan) = &plan.input else { return of_pipeline(plan, env, params) };
    let context = context(env);
    let host = (context.transaction_us, context.statement_us);
    let parallel = context.session.parallel(&scan.table)?;
    let tallies = Tally::of_calls(plan, scan);
    let work = {
        let (plan, scan, params) = (plan.clone(), scan.clone(), params.to_vec());
        move |piece: &Piece, reader: &mut Reader| {
            let mut host = FrozenHost { transaction_us: host.0, statement_us: host.1 };
            let mut env = Env::new(&mut host);
            let part = match &tallies {
                Some(tallies) => {
                    let mut adding = Adding { tallies: tallies.clone(), scan: &scan, params: &params, env: &mut env };
                    reader.scan(piece, &mut adding)?;
                    let Adding { tallies, .. } = adding;
                    Part::Tallies(tallies)
                }
                None => {
                    let mut groups = HashTable::default();
                    let mut arguments = Vec::new();
                    let mut charge = reader.charge(MemoryContext::Hash);
                    let mut rows = 0_u64;
                    reader.scan(piece, |row: &[u8]| {
                        rows += 1;
                        if rows.is_multiple_of(1024) {
                            groups.charge(&mut charge);
                        }
                        add_row(&plan, &scan, row, &params, &mut env, &mut groups, &mut arguments)
                    })?;
                    groups.charge(&mut charge);
                    Part::Groups(groups, charge)
                }
            };
            Ok((part, reader.depends_on()))
        }
    };
    let parts = parallel.run(work)?;
    let context = crate::exec::context(env);
    for ((_, depends_on), _) in &parts {
        context.session.note_dependency(*depends_on);
    }
    if let Some(trace) = &context.trace {
        for (piece, (_, node)) in parallel.pieces.iter().zip(&parts) {
            trace.piece(scan, piece, *node)?;
        }
    }
    merge(plan, parts.into_iter().map(|((part, _), _)| part)).map(Some)
}

/// The groups of a thread whose rows come through a pipeline.
struct Gathered {
    plan: Arc<AggregatePlan>,
    groups: HashTable<Group>,
    arguments: Vec<Value>,
    charge: Charge,
    rows: u64,
}

impl Gather for Gathered {
    fn row(&mut self, row: &[Value], params: &[Value], env: &mut Env<'_>) -> Result<()> {
        self.rows += 1;
        if self.rows.is_multiple_of(1024) {
            self.groups.charge(&mut self.charge);
        }
        add_to_group(&self.plan, &Registers(row), params, env, &mut self.groups, &mut self.arguments)
    }
}

/// As [`aggregate`], of joins.
fn of_pipeline(plan: &Arc<AggregatePlan>, env: &mut Env<'_>, params: &[Value]) -> Result<Option<Vec<Vec<Value>>>> {
    let Some(pipeline) = Pipeline::new(&plan.input, plan.width, env, params)? else { return Ok(None) };
    let of_thread = plan.clone();
    let parts = pipeline.run(env, params, move |reader| Gathered {
        plan: of_thread.clone(),
        groups: HashTable::default(),
        arguments: Vec::new(),
        charge: reader.charge(MemoryContext::Hash),
        rows: 0,
    })?;
    merge(plan, parts.into_iter().map(|part| Part::Groups(part.groups, part.charge))).map(Some)
}

/// Adds up rows.
struct Adding<'a, 'e> {
    tallies: Vec<Tally>,
    scan: &'a ScanPlan,
    params: &'a [Value],
    env: &'a mut Env<'e>,
}

impl EachRow for &mut Adding<'_, '_> {
    #[inline(always)]
    fn row(&mut self, row: &[u8]) -> Result<()> {
        if self.scan.filter.is_empty() || matches(self.scan, row, self.params, self.env)? {
            // A loop: what `for_each` calls is not inlined here, and that costs a quarter of the scan.
            for tally in &mut self.tallies {
                tally.add_row(&self.scan.table.layout, row);
            }
        }
        Ok(())
    }
}

fn matches(scan: &ScanPlan, row: &[u8], params: &[Value], env: &mut Env<'_>) -> Result<bool> {
    let raw = RawRow { layout: &scan.table.layout, bytes: row, base: scan.base, registers: &[] };
    all_hold(&scan.filter, &raw, params, env)
}

fn add_row(
    plan: &AggregatePlan,
    scan: &ScanPlan,
    row: &[u8],
    params: &[Value],
    env: &mut Env<'_>,
    groups: &mut HashTable<Group>,
    arguments: &mut Vec<Value>,
) -> Result<()> {
    let raw = RawRow { layout: &scan.table.layout, bytes: row, base: scan.base, registers: &[] };
    if !all_hold(&scan.filter, &raw, params, env)? {
        return Ok(());
    }
    add_to_group(plan, &raw, params, env, groups, arguments)
}

fn add_to_group(
    plan: &AggregatePlan,
    row: &dyn RowSource,
    params: &[Value],
    env: &mut Env<'_>,
    groups: &mut HashTable<Group>,
    arguments: &mut Vec<Value>,
) -> Result<()> {
    let mut key = Vec::with_capacity(plan.groups.len());
    for group in &plan.groups {
        key.push(group.eval(row, params, env)?);
    }
    let at = match groups.find(&key) {
        Some(at) => at,
        None => groups.push(key, Group::new(&plan.calls)),
    };
    let grown = groups.value_mut(at).add(&plan.calls, row, params, env, arguments)?;
    groups.add_bytes(grown);
    Ok(())
}

fn merge(plan: &AggregatePlan, parts: impl Iterator<Item = Part>) -> Result<Vec<Vec<Value>>> {
    let mut groups: HashTable<Group> = HashTable::default();
    let mut total: Option<Vec<Tally>> = None;
    for part in parts {
        match part {
            Part::Tallies(found) => match &mut total {
                None => total = Some(found),
                Some(total) => total.iter_mut().zip(&found).for_each(|(total, part)| total.merge(part)),
            },
            Part::Groups(found, _charge) => {
                for (key, group) in found.into_entries() {
                    match groups.find(&key) {
                        Some(at) => groups.value_mut(at).merge(group)?,
                        None => {
                            groups.push(key, group);
                        }
                    }
                }
            }
        }
    }
    if let Some(total) = total {
        return Ok(vec![total.iter().map(Tally::finish).collect::<Result<_>>()?]);
    }
    if groups.len() == 0 && plan.groups.is_empty() {
        groups.push(Vec::new(), Group::new(&plan.calls));
    }
    crate::exec::finish_groups(groups)
}
