//! Homenode's own views: the machine, the buffer pool, the log, the waits.

use super::text;
use crate::context::Context;
use crate::virtual_table::{Rows, VirtualTable};
use homenode_platform::wait;
use homenode_types::Type::{Int4, Int8, Text};
use homenode_types::{Result, Value};

macro_rules! view {
    ($name:literal, $oid:literal, [$(($column:literal, $ty:expr)),* $(,)?], $rows:expr) => {
        VirtualTable { schema: "homenode", name: $name, oid: $oid, columns: &[$(($column, $ty)),*], rows: $rows }
    };
}

pub(super) static TABLES: &[VirtualTable] = &[
    view!(
        "topology",
        12_400,
        [
            ("node", Int4),
            ("cpus", Text),
            ("memory_bytes", Int8),
            ("free_bytes", Int8),
            ("memory_tier", Int4),
            ("distances", Text),
        ],
        topology
    ),
    view!(
        "pool",
        12_401,
        [
            ("partition", Int4),
            ("node", Int4),
            ("frames", Int8),
            ("free", Int8),
            ("dirty", Int8),
            ("reads", Int8),
            ("read_runs", Int8),
            ("writes", Int8),
            ("write_runs", Int8),
            ("evictions", Int8),
            ("foreground_evictions", Int8),
            ("frame_waits", Int8),
            ("taken", Int8),
            ("borrowed", Int8),
            ("swept", Int8),
            ("tier", Text),
        ],
        pool
    ),
    view!(
        "log",
        12_402,
        [
            ("tail", Int8),
            ("durable", Int8),
            ("records", Int8),
            ("bytes", Int8),
            ("flushes", Int8),
            ("released", Int8),
            ("released_worst", Int8),
            ("sync_ns_total", Int8),
            ("sync_ns_worst", Int8),
            ("flush_ns_total", Int8),
            ("flush_ns_worst", Int8),
        ],
        log
    ),
    view!(
        "waits",
        12_403,
        [("class", Text), ("event", Text), ("count", Int8), ("total_ns", Int8), ("worst_ns", Int8),],
        waits
    ),
];

fn number(number: u64) -> Value {
    Value::Int8(i64::try_from(number).unwrap_or(i64::MAX))
}

fn optional(value: Option<u64>) -> Value {
    value.map_or(Value::Null, number)
}

/// CPU numbers as ranges: `0-3,8`.
fn ranges(cpus: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => parts.push((cpu, cpu)),
        }
    }
    let shown =
        parts.iter().map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") });
    shown.collect::<Vec<_>>().join(",")
}

fn topology(context: &mut Context) -> Result<Rows> {
    let topology = context.db.topology();
    let rows = topology.nodes().iter().map(|node| {
        let distances = topology.nodes().iter().map(|other| {
            topology.distance(node.id, other.id).map_or_else(|| "?".to_string(), |distance| distance.to_string())
        });
        vec![
            Value::Int4(node.id as i32),
            text(ranges(&node.cpus)),
            optional(node.memory_bytes),
            optional(node.free_bytes),
            node.memory_tier.map_or(Value::Null, |tier| Value::Int4(tier as i32)),
            text(distances.collect::<Vec<_>>().join(" ")),
        ]
    });
    Ok(rows.collect())
}

fn pool(context: &mut Context) -> Result<Rows> {
    let rows = context.db.pool().stats().partitions.into_iter().map(|part| {
        let mut row = vec![Value::Int4(part.partition as i32), Value::Int4(part.node as i32)];
        let numbers = [
            part.frames,
            part.free,
            part.dirty,
            part.reads,
            part.read_runs,
            part.writes,
            part.write_runs,
            part.evictions,
            part.foreground_evictions,
            part.frame_waits,
            part.taken,
            part.borrowed,
            part.swept,
        ];
        row.extend(numbers.into_iter().map(number));
        row.push(text(if part.far { "far" } else { "near" }));
        row
    });
    Ok(rows.collect())
}

fn log(context: &mut Context) -> Result<Rows> {
    let stats = context.db.log().stats();
    let numbers = [
        stats.tail,
        stats.durable,
        stats.records,
        stats.bytes,
        stats.flushes,
        stats.released,
        stats.released_worst,
        stats.sync_ns_total,
        stats.sync_ns_worst,
        stats.flush_ns_total,
        stats.flush_ns_worst,
    ];
    Ok(vec![numbers.into_iter().map(number).collect()])
}

fn waits(_: &mut Context) -> Result<Rows> {
    let rows = wait::totals().into_iter().map(|total| {
        vec![
            text(total.event.class()),
            text(total.event.name()),
            number(total.count),
            number(total.total_ns),
            number(total.worst_ns),
        ]
    });
    Ok(rows.collect())
}
