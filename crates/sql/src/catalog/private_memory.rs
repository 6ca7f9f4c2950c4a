//! Where is private memory? Views of what sessions and the threads of their big scans hold, by context and node.

use super::placement::{int4, number, optional_node, refused};
use super::text;
use crate::context::Context;
use crate::virtual_table::{Rows, VirtualTable};
use homenode_engine::{MemoryContext, MemoryUse, SessionInfo, WorkerMemory};
use homenode_memory::Census;
use homenode_types::Type::{Int4, Int8, Text};
use homenode_types::{Result, Value};
use std::collections::BTreeMap;

pub(super) static TABLES: &[VirtualTable] = &[
    VirtualTable {
        schema: "homenode",
        name: "memory_contexts",
        oid: 12_416,
        columns: &[
            ("pid", Int4),
            ("context", Text),
            ("bytes", Int8),
            ("peak_bytes", Int8),
            ("session_node", Int4),
            ("node", Int4),
            ("node_bytes", Int8),
        ],
        rows: memory_contexts,
    },
    VirtualTable {
        schema: "homenode",
        name: "query_memory",
        oid: 12_418,
        columns: &[
            ("pid", Int4),
            ("query", Int8),
            ("worker", Int4),
            ("worker_node", Int4),
            ("context", Text),
            ("bytes", Int8),
            ("peak_bytes", Int8),
            ("node", Int4),
            ("node_bytes", Int8),
        ],
        rows: query_memory,
    },
];

/// One context with the bytes of its largest pieces by node.
struct Found {
    name: &'static str,
    bytes: u64,
    peak_bytes: u64,
    by_node: BTreeMap<usize, u64>,
}

/// Asks the kernel where a context's largest piece is. It may be gone by now; then the kernel finds nothing there.
fn find(part: &MemoryUse, census: &Census) -> Result<Found> {
    let by_node = census.spread(part.piece.clone()).map_err(refused)?.by_node;
    // Of a stack only what is there counts.
    let present = || by_node.values().sum();
    let bytes = if part.context == MemoryContext::Stack { present() } else { part.bytes };
    Ok(Found { name: part.name, bytes, peak_bytes: part.peak_bytes, by_node: by_node.into_iter().collect() })
}

/// Rows of one context: who, then the context, once for each node.
fn add_rows(rows: &mut Rows, who: &[Value], between: &[Value], found: &Found) {
    let row = |node: Value, bytes: Value| {
        let mut row = who.to_vec();
        row.extend([text(found.name), number(found.bytes), number(found.peak_bytes)]);
        row.extend_from_slice(between);
        row.extend([node, bytes]);
        row
    };
    rows.extend(found.by_node.iter().map(|(node, bytes)| row(int4(*node), number(*bytes))));
    if found.by_node.is_empty() {
        rows.push(row(Value::Null, Value::Null));
    }
}

/// What the threads of a session's big scans hold, together.
fn of_scans(workers: &[WorkerMemory], pid: u32, census: &Census) -> Result<Option<Found>> {
    let mut sum = Found { name: "parallel", bytes: 0, peak_bytes: 0, by_node: BTreeMap::new() };
    let mut parts = workers.iter().filter(|worker| worker.pid == pid).flat_map(|worker| &worker.memory).peekable();
    if parts.peek().is_none() {
        return Ok(None);
    }
    for part in parts.filter(|part| part.peak_bytes > 0) {
        let found = find(part, census)?;
        sum.bytes += found.bytes;
        sum.peak_bytes += found.peak_bytes;
        found.by_node.iter().for_each(|(node, bytes)| *sum.by_node.entry(*node).or_default() += bytes);
    }
    Ok(Some(sum))
}

fn memory_contexts(context: &mut Context) -> Result<Rows> {
    let homes = context.db.workers();
    let scans = context.db.query_memory();
    let census = Census::of(context.db.topology());
    let mut rows = Vec::new();
    for session in context.db.sessions() {
        let home = homes.get(session.lane).and_then(|worker| worker.node);
        let (who, home) = ([Value::Int4(session.pid as i32)], [optional_node(home)]);
        for part in session.memory.iter().filter(|part| part.peak_bytes > 0) {
            add_rows(&mut rows, &who, &home, &find(part, &census)?);
        }
        if let Some(found) = of_scans(&scans, session.pid, &census)? {
            add_rows(&mut rows, &who, &home, &found);
        }
    }
    Ok(rows)
}

/// What was made for each big scan that runs: by its threads, and by the session that waits for them (a row without a worker).
fn query_memory(context: &mut Context) -> Result<Rows> {
    let homes = context.db.workers();
    let scans = context.db.query_memory();
    let sessions = context.db.sessions();
    let census = Census::of(context.db.topology());
    let mut rows = Vec::new();
    let mut queries: Vec<(u32, u64)> = scans.iter().map(|worker| (worker.pid, worker.query)).collect();
    queries.dedup();
    for (pid, query) in queries {
        let who = [Value::Int4(pid as i32), number(query)];
        let leader = sessions.iter().find(|session| session.pid == pid);
        let node = |leader: &SessionInfo| homes.get(leader.lane).and_then(|worker| worker.node);
        if let Some(leader) = leader {
            let who = [&who[..], &[Value::Null, optional_node(node(leader))]].concat();
            for part in leader.memory.iter().filter(|part| part.bytes > 0 && part.context.is_statements()) {
                add_rows(&mut rows, &who, &[], &find(part, &census)?);
            }
        }
        for worker in scans.iter().filter(|worker| worker.query == query) {
            let who = [&who[..], &[int4(worker.worker), optional_node(worker.node)]].concat();
            for part in worker.memory.iter().filter(|part| part.peak_bytes > 0) {
                add_rows(&mut rows, &who, &[], &find(part, &census)?);
            }
        }
    }
    Ok(rows)
}
