//! Where is everything? Views of pages, memory regions, sessions and nodes; and PostgreSQL's names for the same.
//!
//! A census asks the kernel where pages are and makes none present. It works through the pool piece by piece and gives the
//! worker's other sessions their turn in between.

use super::{flag, oid, text};
use crate::context::Context;
use crate::virtual_table::{Rows, VirtualTable};
use homenode_engine::{Definitions, WorkerInfo};
use homenode_memory::{Census, Refusal, Whereabouts};
use homenode_pool::{FrameInfo, PAGE_BYTES, PageInfo, PoolRegion};
use homenode_topology::{NodeCounters, format_list};
use homenode_types::Type::{Bool, Float8, Int2, Int4, Int8, Oid, Text};
use homenode_types::{Error, Result, SqlState, Value};
use std::collections::{BTreeMap, HashMap};

macro_rules! view {
    ($schema:literal, $name:literal, $oid:literal, [$(($column:literal, $ty:expr)),* $(,)?], $rows:expr) => {
        VirtualTable { schema: $schema, name: $name, oid: $oid, columns: &[$(($column, $ty)),*], rows: $rows }
    };
}

pub(super) static TABLES: &[VirtualTable] = &[
    view!(
        "homenode",
        "buffers",
        12_410,
        [
            ("frame", Int8),
            ("page", Int8),
            ("table_name", Text),
            ("index_name", Text),
            ("kind", Text),
            ("level", Int4),
            ("node", Int4),
            ("home_node", Int4),
            ("partition", Int4),
            ("dirty", Bool),
            ("usage", Int4),
        ],
        buffers
    ),
    view!(
        "homenode",
        "buffers_by_table",
        12_411,
        [
            ("table_name", Text),
            ("index_name", Text),
            ("kind", Text),
            ("node", Int4),
            ("pages", Int8),
            ("bytes", Int8),
            ("dirty", Int8),
            ("used", Int8),
        ],
        buffers_by_table
    ),
    view!(
        "homenode",
        "shared_memory",
        12_412,
        [
            ("name", Text),
            ("wanted_node", Int4),
            ("policy", Text),
            ("made_of", Text),
            ("node", Int4),
            ("bytes", Int8),
            ("elsewhere", Bool),
        ],
        shared_memory
    ),
    view!(
        "homenode",
        "nodes",
        12_413,
        [
            ("node", Int4),
            ("cpus", Text),
            ("workers", Int4),
            ("sessions", Int4),
            ("memory_bytes", Int8),
            ("free_bytes", Int8),
            ("file_cache_bytes", Int8),
            ("anonymous_bytes", Int8),
            ("numa_hit", Int8),
            ("numa_miss", Int8),
            ("numa_foreign", Int8),
            ("interleave_hit", Int8),
            ("local_node", Int8),
            ("other_node", Int8),
        ],
        nodes
    ),
    view!(
        "homenode",
        "sessions",
        12_414,
        [
            ("pid", Int4),
            ("worker", Int4),
            ("thread", Int4),
            ("node", Int4),
            ("cpu", Int4),
            ("pinned_node", Int4),
            ("moves", Int8),
            ("cpu_migrations", Int8),
        ],
        sessions
    ),
    view!(
        "homenode",
        "far",
        12_417,
        [
            ("tier", Text),
            ("node", Int4),
            ("frames", Int8),
            ("pages", Int8),
            ("looked_at", Int8),
            ("in_use", Int8),
            ("hit_rate", Float8),
            ("cooled", Int8),
            ("returned", Int8),
            ("evicted", Int8),
            ("read", Int8),
        ],
        far
    ),
    view!(
        "homenode",
        "io",
        12_415,
        [
            ("what", Text),
            ("device", Text),
            ("device_node", Int4),
            ("memory_node", Int4),
            ("reads", Int8),
            ("read_runs", Int8),
            ("average_read_run", Float8),
            ("writes", Int8),
            ("write_runs", Int8),
            ("average_write_run", Float8),
        ],
        io
    ),
    view!(
        "pg_catalog",
        "pg_buffercache",
        12_420,
        [
            ("bufferid", Int4),
            ("relfilenode", Oid),
            ("reltablespace", Oid),
            ("reldatabase", Oid),
            ("relforknumber", Int2),
            ("relblocknumber", Int8),
            ("isdirty", Bool),
            ("usagecount", Int2),
            ("pinning_backends", Int4),
        ],
        pg_buffercache
    ),
    view!(
        "pg_catalog",
        "pg_buffercache_numa",
        12_421,
        [("bufferid", Int4), ("os_page_num", Int8), ("numa_node", Int4)],
        pg_buffercache_numa
    ),
    view!(
        "pg_catalog",
        "pg_shmem_allocations_numa",
        12_422,
        [("name", Text), ("numa_node", Int4), ("size", Int8)],
        pg_shmem_allocations_numa
    ),
    view!(
        "pg_catalog",
        "pg_shmem_allocations",
        12_423,
        [("name", Text), ("off", Int8), ("size", Int8), ("allocated_size", Int8)],
        pg_shmem_allocations
    ),
];

/// Frames looked at between two turns of the worker's other sessions: about a millisecond's worth.
const FRAMES_PER_TURN: usize = 4096;

pub(super) fn number(number: u64) -> Value {
    Value::Int8(i64::try_from(number).unwrap_or(i64::MAX))
}

fn optional(value: Option<u64>) -> Value {
    value.map_or(Value::Null, number)
}

pub(super) fn int4(number: usize) -> Value {
    Value::Int4(i32::try_from(number).unwrap_or(i32::MAX))
}

pub(super) fn optional_node(node: Option<usize>) -> Value {
    node.map_or(Value::Null, int4)
}

fn node_of(place: Whereabouts) -> Option<usize> {
    match place {
        Whereabouts::Node(node) => Some(node),
        Whereabouts::Absent | Whereabouts::Unknown(_) => None,
    }
}

pub(super) fn refused(refusal: Refusal) -> Error {
    Error::new(SqlState::INSUFFICIENT_PRIVILEGE, format!("cannot ask where memory is: {refusal}"))
}

fn ratio(a: u64, b: u64) -> Value {
    if b == 0 { Value::Null } else { Value::Float8(a as f64 / b as f64) }
}

/// Shows every frame to `each`.
fn census(context: &mut Context, mut each: impl FnMut(&FrameInfo)) -> Result<()> {
    let census = Census::of(context.db.topology());
    let count = context.db.pool().frame_count();
    for first in (0..count).step_by(FRAMES_PER_TURN) {
        let frames = context.db.pool().look(first..count.min(first + FRAMES_PER_TURN), &census).map_err(refused)?;
        frames.iter().for_each(&mut each);
        context.check_interrupt()?;
    }
    Ok(())
}

/// What a page is part of, by the number of its tree.
struct Owners {
    named: HashMap<u32, (Value, Value)>,
}

/// `page_type` of pages that hold older versions (the engine's undo log).
const PAGE_TYPE_UNDO: u8 = 0x55;
/// Trees below this number are the engine's own.
const FIRST_TREE: u32 = homenode_engine::FIRST_OID;

impl Owners {
    fn new(definitions: &Definitions) -> Owners {
        let mut named = HashMap::new();
        for table in definitions.tables() {
            named.insert(table.oid, (text(&table.name), Value::Null));
            for index in &table.indexes {
                named.insert(index.oid, (text(&table.name), text(&index.name)));
            }
        }
        Owners { named }
    }

    /// Names of table and index, and what kind of page it is.
    fn of(&self, page: &PageInfo) -> (Value, Value, &'static str) {
        if page.page_type == PAGE_TYPE_UNDO {
            return (Value::Null, Value::Null, "undo");
        }
        let values_of = homenode_engine::table_of_overflow(page.tree_id);
        let named = self.named.get(&values_of.unwrap_or(page.tree_id)).cloned();
        let (table, index) = named.unwrap_or((Value::Null, Value::Null));
        let kind = match (page.tree_id < FIRST_TREE, page.level) {
            _ if values_of.is_some() => "long values",
            (true, _) => "catalog",
            (false, 0) => "leaf",
            (false, _) => "inner",
        };
        (table, index, kind)
    }
}

fn buffers(context: &mut Context) -> Result<Rows> {
    let owners = Owners::new(&context.definitions());
    let mut rows = Vec::new();
    census(context, |frame| {
        let Some(page) = &frame.page else { return };
        let (table, index, kind) = owners.of(page);
        rows.push(vec![
            number(frame.frame as u64),
            number(page.page_no),
            table,
            index,
            text(kind),
            Value::Int4(i32::from(page.level)),
            optional_node(node_of(frame.place)),
            int4(frame.home_node),
            int4(frame.partition),
            flag(page.is_dirty),
            Value::Int4(i32::from(page.is_referenced)),
        ]);
    })?;
    Ok(rows)
}

/// Pages of one tree on one node.
#[derive(Default)]
struct Tally {
    pages: u64,
    dirty: u64,
    used: u64,
}

fn buffers_by_table(context: &mut Context) -> Result<Rows> {
    let owners = Owners::new(&context.definitions());
    let mut tallies: BTreeMap<(u32, &'static str, Option<usize>), (Tally, PageInfo)> = BTreeMap::new();
    census(context, |frame| {
        let Some(page) = frame.page else { return };
        let kind = owners.of(&page).2;
        let tree = if kind == "undo" { 0 } else { page.tree_id };
        let (tally, _) = tallies.entry((tree, kind, node_of(frame.place))).or_insert_with(|| (Tally::default(), page));
        tally.pages += 1;
        tally.dirty += u64::from(page.is_dirty);
        tally.used += u64::from(page.is_referenced);
    })?;
    let row = |((_, kind, node), (tally, page)): (&(u32, &str, Option<usize>), &(Tally, PageInfo))| {
        let (table, index, _) = owners.of(page);
        let mut row = vec![table, index, text(*kind), optional_node(*node)];
        row.extend([tally.pages, tally.pages * PAGE_BYTES as u64, tally.dirty, tally.used].map(number));
        row
    };
    Ok(tallies.iter().map(row).collect())
}

/// Bytes on each node; `None` for those that are not present.
type BytesByNode = BTreeMap<Option<usize>, u64>;

/// Every region with the bytes that it has on each node.
fn regions(context: &mut Context) -> Result<Vec<(PoolRegion, BytesByNode)>> {
    let census = Census::of(context.db.topology());
    /// Bytes looked at between two turns: as many pages as in [`census`].
    const PIECE_BYTES: usize = 16 << 20;
    let mut found = Vec::new();
    for region in context.db.pool().regions() {
        let mut bytes = BytesByNode::new();
        let range = region.addresses.clone();
        for first in range.clone().step_by(PIECE_BYTES) {
            let spread = census.spread(first..range.end.min(first + PIECE_BYTES)).map_err(refused)?;
            spread.by_node.iter().for_each(|(node, count)| *bytes.entry(Some(*node)).or_default() += count);
            let absent = spread.absent_bytes + spread.unknown.values().sum::<u64>();
            if absent > 0 {
                *bytes.entry(None).or_default() += absent;
            }
            context.check_interrupt()?;
        }
        found.push((region, bytes));
    }
    Ok(found)
}

fn shared_memory(context: &mut Context) -> Result<Rows> {
    let mut rows = Vec::new();
    for (region, bytes) in regions(context)? {
        for (node, count) in bytes {
            let elsewhere = matches!((region.node, node), (Some(wanted), Some(node)) if wanted != node);
            rows.push(vec![
                text(&region.name),
                optional_node(region.node),
                text(region.placement.to_string()),
                text(region.pages.to_string()),
                optional_node(node),
                number(count),
                flag(elsewhere),
            ]);
        }
    }
    Ok(rows)
}

fn nodes(context: &mut Context) -> Result<Rows> {
    let workers = context.db.workers();
    let sessions = context.db.sessions();
    // A worker that is bound to no node counts where it ran last.
    let place =
        |worker: &WorkerInfo| worker.node.or_else(|| Some(context.db.topology().cpu(whereabouts(worker).0?)?.node));
    let places: Vec<Option<usize>> = workers.iter().map(place).collect();
    let on = |lane: usize| places.get(lane).copied().flatten();
    let row = |node: &homenode_topology::Node| {
        let counters = NodeCounters::read(node.id);
        let mut row = vec![
            int4(node.id),
            text(format_list(&node.cpus)),
            int4(places.iter().filter(|place| **place == Some(node.id)).count()),
            int4(sessions.iter().filter(|session| on(session.lane) == Some(node.id)).count()),
            optional(node.memory_bytes),
        ];
        row.extend(
            [
                counters.free_bytes,
                counters.file_cache_bytes,
                counters.anonymous_bytes,
                counters.numa_hit,
                counters.numa_miss,
                counters.numa_foreign,
                counters.interleave_hit,
                counters.local_node,
                counters.other_node,
            ]
            .map(optional),
        );
        row
    };
    Ok(context.db.topology().nodes().iter().map(row).collect())
}

/// The CPU that a thread ran on last, and how often the kernel has moved it to another.
fn whereabouts(worker: &WorkerInfo) -> (Option<usize>, Option<u64>) {
    let Some(thread) = worker.thread else { return (None, None) };
    let read = |file: &str| std::fs::read_to_string(format!("/proc/self/task/{thread}/{file}")).unwrap_or_default();
    // The name is in parentheses and may hold anything; `processor` is the 39th field (proc(5)).
    let stat = read("stat");
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let cpu = fields.split_whitespace().nth(36).and_then(|field| field.parse().ok());
    let sched = read("sched");
    let moves = sched.lines().find(|line| line.starts_with("se.nr_migrations"));
    (cpu, moves.and_then(|line| line.rsplit(':').next()?.trim().parse().ok()))
}

fn sessions(context: &mut Context) -> Result<Rows> {
    let workers = context.db.workers();
    let topology = context.db.topology();
    let row = |session: homenode_engine::SessionInfo| {
        let worker = workers.get(session.lane);
        let (cpu, migrations) = worker.map_or((None, None), whereabouts);
        let ran_on = || topology.cpu(cpu?).map(|cpu| cpu.node);
        vec![
            Value::Int4(session.pid as i32),
            int4(session.lane),
            optional(worker.and_then(|worker| worker.thread).map(u64::from))
                .as_i64()
                .map_or(Value::Null, |thread| Value::Int4(thread as i32)),
            optional_node(worker.and_then(|worker| worker.node).or_else(ran_on)),
            optional_node(cpu),
            optional_node(session.pinned_node),
            number(session.moves),
            optional(migrations),
        ]
    };
    Ok(context.db.sessions().into_iter().map(row).collect())
}

/// Both tiers by node; nothing when there is one only.
fn far(context: &mut Context) -> Result<Rows> {
    if context.db.pool().far_nodes().is_empty() {
        return Ok(Vec::new());
    }
    let mut sums: BTreeMap<(bool, usize), [u64; 8]> = BTreeMap::new();
    for part in context.db.pool().stats().partitions {
        let sum = sums.entry((part.far, part.node)).or_default();
        let numbers = [part.frames, part.frames.saturating_sub(part.free), part.swept, part.used];
        let moves = [part.demoted, part.returned, part.evictions, part.reads];
        sum.iter_mut().zip(numbers.into_iter().chain(moves)).for_each(|(sum, number)| *sum += number);
    }
    let row = |((far, node), [frames, pages, looked_at, in_use, cooled, returned, evicted, read]): (_, [u64; 8])| {
        let mut row = vec![text(if far { "far" } else { "near" }), int4(node), number(frames), number(pages)];
        row.extend([number(looked_at), number(in_use), ratio(in_use, looked_at)]);
        row.extend([cooled, returned, evicted, read].map(number));
        row
    };
    Ok(sums.into_iter().map(row).collect())
}

fn io(context: &mut Context) -> Result<Rows> {
    let device = context.db.device();
    let (device, node) = (device.name.map_or(Value::Null, text), optional_node(device.node));
    let stats = context.db.pool().stats();
    let mut by_node: BTreeMap<usize, [u64; 4]> = BTreeMap::new();
    for part in &stats.partitions {
        let sums = by_node.entry(part.node).or_default();
        let counts = [part.reads, part.read_runs, part.writes, part.write_runs];
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let mut rows = Vec::new();
    for (memory_node, [reads, read_runs, writes, write_runs]) in by_node {
        let mut row = vec![text("pages"), device.clone(), node.clone(), int4(memory_node)];
        row.extend([number(reads), number(read_runs), ratio(reads, read_runs)]);
        row.extend([number(writes), number(write_runs), ratio(writes, write_runs)]);
        rows.push(row);
    }
    let log = context.db.log().stats();
    let mut row = vec![text("log"), device, node, Value::Null, Value::Null, Value::Null, Value::Null];
    row.extend([number(log.records), number(log.flushes), ratio(log.records, log.flushes)]);
    rows.push(row);
    Ok(rows)
}

fn pg_buffercache(context: &mut Context) -> Result<Rows> {
    let mut rows = Vec::new();
    census(context, |frame| {
        let mut row = vec![int4(frame.frame + 1)];
        match &frame.page {
            None => row.extend((1..9).map(|_| Value::Null)),
            Some(page) => {
                let tree = if page.page_type == PAGE_TYPE_UNDO { 0 } else { page.tree_id };
                row.extend([oid(tree), oid(1663), oid(super::DATABASE_OID), Value::Int2(0)]);
                row.extend([number(page.page_no), flag(page.is_dirty), Value::Int2(i16::from(page.is_referenced))]);
                row.push(Value::Int4(0));
            }
        }
        rows.push(row);
    })?;
    Ok(rows)
}

fn pg_buffercache_numa(context: &mut Context) -> Result<Rows> {
    let census_of = Census::of(context.db.topology());
    let os_page = homenode_memory::page_bytes();
    let mut frames = Vec::new();
    census(context, |frame| frames.push((frame.frame, frame.address)))?;
    let mut rows = Vec::with_capacity(frames.len() * (PAGE_BYTES / os_page).max(1));
    for batch in frames.chunks(FRAMES_PER_TURN) {
        let pages = batch.iter().flat_map(|(frame, address)| {
            (*address..address + PAGE_BYTES).step_by(os_page).map(move |address| (*frame, address))
        });
        let pages: Vec<(usize, usize)> = pages.collect();
        let addresses: Vec<usize> = pages.iter().map(|(_, address)| *address).collect();
        for ((frame, address), place) in pages.iter().zip(census_of.look(&addresses).map_err(refused)?) {
            // Pages of memory are numbered from the first frame's on.
            let page = address.saturating_sub(frames[0].1) / os_page;
            rows.push(vec![int4(frame + 1), number(page as u64), optional_node(node_of(place))]);
        }
        context.check_interrupt()?;
    }
    Ok(rows)
}

fn pg_shmem_allocations_numa(context: &mut Context) -> Result<Rows> {
    let mut rows = Vec::new();
    for (region, bytes) in regions(context)? {
        for (node, count) in bytes {
            rows.push(vec![text(&region.name), optional_node(node), number(count)]);
        }
    }
    Ok(rows)
}

fn pg_shmem_allocations(context: &mut Context) -> Result<Rows> {
    let regions = context.db.pool().regions();
    let row = |region: PoolRegion| {
        let size = number(region.addresses.len() as u64);
        vec![text(&region.name), Value::Null, size.clone(), size]
    };
    Ok(regions.into_iter().map(row).collect())
}

/// The functions of placement.
pub(super) fn call(context: &mut Context, name: &str, args: &[Value]) -> Option<Result<Value>> {
    let integer = |place: usize| args.get(place).and_then(Value::as_i64);
    if matches!(name, "pin" | "unpin" | "set_pool_policy" | "resize_pool")
        && let Err(error) = context.check_superuser("change the server's placement")
    {
        return Some(Err(error));
    }
    Some(match name {
        "pg_numa_available" => {
            let topology = context.db.topology();
            let answers = Census::of(topology).look(&[std::ptr::from_ref(topology).addr()]).is_ok();
            Ok(Value::Bool(topology.nodes().len() > 1 && answers))
        }
        "pin" => pin(context, integer(0), integer(1)),
        "unpin" => match u32::try_from(integer(0).unwrap_or(0)) {
            Ok(pid) => context.db.pin(pid, None).map(Value::Bool),
            Err(_) => Ok(Value::Bool(false)),
        },
        "set_pool_policy" | "resize_pool" => {
            let setting = if name == "resize_pool" { "homenode.pool_size" } else { "homenode.pool_policy" };
            context.set_server(setting, args.first().and_then(Value::as_str)).map(text)
        }
        "pg_prewarm" => prewarm(context, args),
        _ => return None,
    })
}

fn pin(context: &mut Context, pid: Option<i64>, node: Option<i64>) -> Result<Value> {
    let node = usize::try_from(node.unwrap_or(-1))
        .map_err(|_| Error::new(SqlState::INVALID_PARAMETER_VALUE, "a node's number is not negative"))?;
    match u32::try_from(pid.unwrap_or(0)) {
        Ok(pid) => context.db.pin(pid, Some(node)).map(Value::Bool),
        Err(_) => Ok(Value::Bool(false)),
    }
}

fn prewarm(context: &mut Context, args: &[Value]) -> Result<Value> {
    let invalid = |message: String| Error::new(SqlState::INVALID_PARAMETER_VALUE, message);
    match args.get(1).and_then(Value::as_str) {
        // What a file system's cache would hold is of no use to the pool, so all three mean the same.
        None | Some("buffer" | "read" | "prefetch") => {}
        Some(mode) => {
            let error = invalid(format!("invalid prewarm type: \"{mode}\""));
            return Err(error.with_hint("Valid prewarm types are \"prefetch\", \"read\", and \"buffer\"."));
        }
    }
    if !matches!(args.get(2).and_then(Value::as_str), None | Some("main")) {
        return Err(invalid("there is no fork but \"main\"".into()));
    }
    let block = |place: usize| args.get(place).and_then(Value::as_i64);
    let page = |number: i64| u64::try_from(number).map_err(|_| invalid("a block's number is not negative".into()));
    let first = block(3).map_or(Ok(0), page)?;
    let end = block(4).map_or(Ok(u64::MAX), page)?.saturating_add(1);
    let relation = args.first().and_then(Value::as_i64).unwrap_or(0) as u32;
    match context.session.prewarm(relation, first..end.max(first))? {
        Some(pages) => Ok(number(pages)),
        None => Err(Error::new(SqlState::WRONG_OBJECT_TYPE, format!("{relation} is no table or index"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_named_by_their_trees() {
        let definitions = Definitions::default();
        let owners = Owners::new(&definitions);
        assert!(owners.named.is_empty());
        assert_eq!(ratio(6, 4), Value::Float8(1.5));
        assert_eq!(ratio(6, 0), Value::Null);
    }

    #[test]
    fn this_thread_runs_somewhere() {
        let thread = std::fs::read_link("/proc/thread-self").unwrap();
        let thread = thread.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
        let (cpu, _) = whereabouts(&WorkerInfo { lane: 0, node: None, thread });
        assert!(cpu.is_some());
        assert_eq!(whereabouts(&WorkerInfo { lane: 0, node: None, thread: None }), (None, None));
    }
}
