//! How is a big table joined by all processors? Its pieces are dealt out to threads; each row of a piece goes through the steps above its
//! scan (filters, look-ups in hash tables that all threads share, projections) up to where rows are gathered.
//!
//! "Morsel-driven parallelism" (Leis et al., SIGMOD 2014). The hash tables are filled before, by the same means where their side is a big
//! scan too; they do not change while threads look things up in them.

use crate::context::FrozenHost;
use crate::exec::{HashTable, KeptRow, RawRow, Registers, all_hold, clear, context, join_key, load, restore, save};
use crate::expr::{Env, Expr, Volatility};
use crate::plan::{Access, DerivedPlan, FilterPlan, HashJoinPlan, JoinKind, Plan, ScanPlan};
use homenode_engine::{Charge, MemoryContext, Reader};
use homenode_types::{Result, Value};
use std::sync::Arc;

/// Tables smaller than this many pages are read by one worker: starting others costs more.
const PARALLEL_PAGES: u64 = 256;

/// Something that is done with each row.
enum Step {
    Filter(Arc<FilterPlan>),
    /// The table is counted as the session's memory.
    Probe {
        join: Arc<HashJoinPlan>,
        table: HashTable<KeptRow>,
        _charge: Charge,
    },
    /// A row of a subquery in FROM becomes part of the row of the block around.
    Derived(Arc<DerivedPlan>),
}

/// A scan and what is done with its rows.
pub(crate) struct Pipeline {
    pub scan: Arc<ScanPlan>,
    steps: Vec<Step>,
    /// Registers of the innermost block, then of those around.
    widths: Vec<usize>,
}

/// Where rows go at the end of a thread's pipeline.
pub(crate) trait Gather {
    /// Takes a row.
    fn row(&mut self, row: &[Value], params: &[Value], env: &mut Env<'_>) -> Result<()>;
}

/// Whether another thread may evaluate it: no session, no subquery, no column of a query around.
pub(crate) fn is_safe(expr: &Expr) -> bool {
    !expr.any(&|part| match part {
        Expr::External(_) | Expr::Outer(_) => true,
        Expr::Call { function, .. } => function.volatility != Volatility::Immutable,
        Expr::Cast { from, to, .. } => from.is_oid_like() || to.ty.is_oid_like(),
        _ => false,
    })
}

/// The scan whose rows a plan can be computed from one by one, by any thread; a big one.
pub(crate) fn source(plan: &Plan) -> Option<&Arc<ScanPlan>> {
    match plan {
        Plan::Scan(scan) => {
            let big = matches!(scan.access, Access::Full { .. }) && scan.table.pages_estimate() >= PARALLEL_PAGES;
            (big && scan.key_register.is_none() && scan.filter.iter().all(is_safe)).then_some(scan)
        }
        Plan::Filter(filter) if filter.conditions.iter().all(is_safe) => source(&filter.input),
        Plan::HashJoin(join) if join.kind != JoinKind::Full => {
            let keys = join.keys.iter().map(|(left, _)| left);
            if keys.chain(&join.conditions).all(is_safe) { source(&join.left) } else { None }
        }
        Plan::Derived(derived) if derived.shared.is_none() && derived.outer.is_empty() => {
            let safe = derived.query.output.iter().chain(&derived.filter).all(is_safe);
            if safe { source(&derived.query.input) } else { None }
        }
        _ => None,
    }
}

/// Whether settings allow it.
pub(crate) fn is_on(env: &mut Env<'_>) -> Result<bool> {
    let settings = &context(env).settings;
    Ok(settings.is_on("enable_parallel") && settings.get("max_parallel_workers_per_gather")? != "0")
}

impl Pipeline {
    /// Makes a plan's pipeline, its hash tables filled; `width` is the number of registers of the plan. `None` when it is not of the kind.
    pub fn new(plan: &Plan, width: usize, env: &mut Env<'_>, params: &[Value]) -> Result<Option<Pipeline>> {
        if source(plan).is_none() {
            return Ok(None);
        }
        let mut pipeline = None;
        Pipeline::add(&mut pipeline, plan, width, env, params)?;
        Ok(pipeline)
    }

    fn add(into: &mut Option<Pipeline>, plan: &Plan, width: usize, env: &mut Env<'_>, params: &[Value]) -> Result<()> {
        let step = match plan {
            Plan::Scan(scan) => {
                *into = Some(Pipeline { scan: scan.clone(), steps: Vec::new(), widths: vec![width] });
                return Ok(());
            }
            Plan::Filter(filter) => {
                Pipeline::add(into, &filter.input, width, env, params)?;
                Step::Filter(filter.clone())
            }
            Plan::HashJoin(join) => {
                let (table, _charge) = crate::exec::join_table(join, width, env, params)?;
                Pipeline::add(into, &join.left, width, env, params)?;
                Step::Probe { join: join.clone(), table, _charge }
            }
            Plan::Derived(derived) => {
                Pipeline::add(into, &derived.query.input, derived.query.width, env, params)?;
                if let Some(pipeline) = into {
                    pipeline.widths.push(width);
                }
                Step::Derived(derived.clone())
            }
            _ => return Ok(()),
        };
        if let Some(pipeline) = into {
            pipeline.steps.push(step);
        }
        Ok(())
    }

    /// Sends all rows through, each thread's piece to a gatherer of its own. These come back in the order of the pieces.
    pub fn run<G: Gather + Send + 'static>(
        self,
        env: &mut Env<'_>,
        params: &[Value],
        gatherer: impl Fn(&Reader) -> G + Send + Sync + 'static,
    ) -> Result<Vec<G>> {
        let context = context(env);
        let host = (context.transaction_us, context.statement_us);
        let scan = self.scan.clone();
        let parallel = context.session.parallel(&scan.table)?;
        let params = params.to_vec();
        let parts = parallel.run(move |piece, reader| {
            let mut host = FrozenHost { transaction_us: host.0, statement_us: host.1 };
            let mut env = Env::new(&mut host);
            let mut thread = Thread {
                rows: self.widths.iter().map(|width| vec![Value::Null; *width]).collect(),
                keys: vec![Vec::new(); self.steps.len()],
                gather: gatherer(reader),
                pipeline: &self,
                params: &params,
            };
            reader.scan(piece, |bytes: &[u8]| thread.stored_row(bytes, &mut env))?;
            Ok((thread.gather, reader.depends_on()))
        })?;
        let context = crate::exec::context(env);
        for ((_, depends_on), _) in &parts {
            context.session.note_dependency(*depends_on);
        }
        if let Some(trace) = &context.trace {
            for (piece, (_, node)) in parallel.pieces.iter().zip(&parts) {
                trace.piece(&scan, piece, *node)?;
            }
        }
        Ok(parts.into_iter().map(|((gathered, _), _)| gathered).collect())
    }
}

/// One thread's rows.
struct Thread<'p, G> {
    pipeline: &'p Pipeline,
    params: &'p [Value],
    /// Registers, by block.
    rows: Vec<Vec<Value>>,
    /// The key that is looked up, by step.
    keys: Vec<Vec<Value>>,
    gather: G,
}

impl<G: Gather> Thread<'_, G> {
    fn stored_row(&mut self, bytes: &[u8], env: &mut Env<'_>) -> Result<()> {
        let scan = &self.pipeline.scan;
        let raw = RawRow { layout: &scan.table.layout, bytes, base: scan.base, registers: &[] };
        if !scan.filter.is_empty() && !all_hold(&scan.filter, &raw, self.params, env)? {
            return Ok(());
        }
        load(scan, bytes, &mut self.rows[0]);
        self.step(0, 0, env)
    }

    /// Does step `at` and what follows it with the row of a block.
    fn step(&mut self, at: usize, block: usize, env: &mut Env<'_>) -> Result<()> {
        let pipeline = self.pipeline;
        match pipeline.steps.get(at) {
            None => self.gather.row(&self.rows[block], self.params, env),
            Some(Step::Filter(filter)) => {
                match all_hold(&filter.conditions, &Registers(&self.rows[block]), self.params, env)? {
                    true => self.step(at + 1, block, env),
                    false => Ok(()),
                }
            }
            Some(Step::Probe { join, table, .. }) => self.probe(join, table, at, block, env),
            Some(Step::Derived(derived)) => {
                let (inner, outer) = self.rows.split_at_mut(block + 1);
                let (inner, outer) = (&inner[block], &mut outer[0]);
                for (offset, column) in derived.query.output.iter().enumerate() {
                    outer[derived.base + offset] = column.eval(&Registers(inner), self.params, env)?;
                }
                match all_hold(&derived.filter, &Registers(outer), self.params, env)? {
                    true => self.step(at + 1, block + 1, env),
                    false => Ok(()),
                }
            }
        }
    }

    fn probe(
        &mut self,
        join: &HashJoinPlan,
        table: &HashTable<KeptRow>,
        at: usize,
        block: usize,
        env: &mut Env<'_>,
    ) -> Result<()> {
        let keys = join.keys.iter().map(|(left, _)| left);
        let keyed = join_key(keys, &self.rows[block], self.params, env, &mut self.keys[at])?;
        let mut found = if keyed { table.find(&self.keys[at]) } else { None };
        let mut matched = false;
        while let Some(entry) = found {
            found = table.find_after(entry, &self.keys[at]);
            let row = &mut self.rows[block];
            restore(row, &join.right_registers, &table.value(entry).registers);
            if !join.conditions.is_empty() && !all_hold(&join.conditions, &Registers(row), self.params, env)? {
                continue;
            }
            matched = true;
            match join.kind {
                JoinKind::Semi | JoinKind::Anti => break,
                _ => self.step(at + 1, block, env)?,
            }
        }
        match join.kind {
            JoinKind::Semi if matched => self.step(at + 1, block, env),
            JoinKind::Anti if !matched => self.step(at + 1, block, env),
            JoinKind::Left if !matched => {
                clear(&mut self.rows[block], &join.right_registers);
                self.step(at + 1, block, env)
            }
            _ => Ok(()),
        }
    }
}

/// Rows for a hash table, with their keys.
struct Entries {
    join: Arc<HashJoinPlan>,
    rows: Vec<(Vec<Value>, KeptRow)>,
    bytes: usize,
    charge: Charge,
}

impl Gather for Entries {
    fn row(&mut self, row: &[Value], params: &[Value], env: &mut Env<'_>) -> Result<()> {
        let mut key = Vec::with_capacity(self.join.keys.len());
        if join_key(self.join.keys.iter().map(|(_, right)| right), row, params, env, &mut key)? {
            let kept = KeptRow::new(save(row, &self.join.right_registers));
            self.bytes += kept.bytes();
            self.rows.push((key, kept));
            if self.rows.len().is_multiple_of(1024) {
                let start = self.rows.as_ptr().addr();
                let own = self.rows.capacity() * size_of::<(Vec<Value>, KeptRow)>();
                self.charge.set(self.bytes + own, start..start + own);
            }
        }
        Ok(())
    }
}

/// The rows of a join's right side with their keys, found by all processors; `None` when it is not of the kind.
pub(crate) fn right_side(
    join: &Arc<HashJoinPlan>,
    width: usize,
    env: &mut Env<'_>,
    params: &[Value],
) -> Result<Option<impl Iterator<Item = (Vec<Value>, KeptRow)> + use<>>> {
    if !join.keys.iter().all(|(_, right)| is_safe(right)) || source(&join.right).is_none() || !is_on(env)? {
        return Ok(None);
    }
    let Some(pipeline) = Pipeline::new(&join.right, width, env, params)? else { return Ok(None) };
    let join = join.clone();
    let gathered = pipeline.run(env, params, move |reader| Entries {
        join: join.clone(),
        rows: Vec::new(),
        bytes: 0,
        charge: reader.charge(MemoryContext::Hash),
    })?;
    Ok(Some(gathered.into_iter().flat_map(|entries| entries.rows)))
}
