//! `homenode measure`: how long do memory and cores take to reach each other?

use std::fs;
use std::path::PathBuf;

use clap::Args;
use homenode_memory::Policy;
use homenode_topology::Topology;
use serde_json::{Value, json};

use crate::InspectError;
use crate::chart::{Chart, Series};
use crate::measure::{Loaded, NOISY, Repeats, bandwidth, core_to_core, latency, loaded_latency, migration};
use crate::svg::{self, Block, flow, stack};
use crate::text::Table;
use crate::units;

#[derive(Debug, Args)]
#[command(after_help = "Example: homenode measure --svg machine-times.svg\n\n\
    Takes a minute or so and keeps one or two CPUs busy. Memory is taken from every node that this process may use.")]
pub struct Options {
    /// Memory for each measurement; several times the last cache
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = units::parse)]
    memory: u64,
    /// Repeats of each measurement
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// CPUs in the core-to-core table at most (spread over nodes and caches)
    #[arg(long, value_name = "N", default_value_t = 16)]
    cores: usize,
    /// Draw latencies, core to core, and latency under load into an SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One row of results: what, where, how much.
struct Row {
    what: String,
    values: Vec<(String, Repeats)>,
}

pub(super) fn run(options: &Options) -> Result<(), InspectError> {
    let topology = Topology::discover();
    let bytes = usize::try_from(options.memory).unwrap_or(usize::MAX);
    let repeats = options.repeats as usize;
    let latencies = latencies(&topology, bytes, repeats)?;
    let bandwidths = bandwidths(&topology, bytes, repeats)?;
    let cores = cores(&topology, options.cores, repeats)?;
    let moves = moves(&topology, bytes)?;
    let loaded = loaded(&topology, bytes, repeats)?;
    if let Some(file) = &options.svg {
        let picture = picture(&latencies, &cores, &loaded);
        fs::write(file, picture).map_err(|error| InspectError::io(file, error))?;
    }
    let sections = [
        ("latency of a dependent load, ns", 1.0, &latencies),
        ("one thread's bandwidth, GB/s", 1e-9, &bandwidths),
        ("a line from core to core, ns", 1.0, &cores),
        ("moving pages between nodes, GB/s", 1e-9, &moves),
    ];
    if options.json {
        let json = |rows: &[Row]| -> Value {
            let row = |row: &Row| {
                let values =
                    row.values.iter().map(|(to, r)| json!({ "to": to, "median": r.median(), "spread": r.spread() }));
                json!({ "from": row.what, "values": values.collect::<Vec<_>>() })
            };
            rows.iter().map(row).collect::<Vec<_>>().into()
        };
        println!(
            "{:#}",
            json!({
                "latency_ns": json(&latencies), "bandwidth_bytes_per_second": json(&bandwidths),
                "core_to_core_ns": json(&cores), "migration_bytes_per_second": json(&moves),
                "loaded_latency_ns": loaded.iter().map(loaded_json).collect::<Vec<_>>(),
            })
        );
        return Ok(());
    }
    for (title, scale, rows) in &sections {
        print!("{}", table(title, rows, *scale));
    }
    print!("{}", loaded_table(&loaded));
    let all = sections.iter().flat_map(|(_, _, rows)| rows.iter()).flat_map(|row| &row.values);
    let (noisy, count) =
        all.fold((0, 0), |(noisy, count), (_, r)| (noisy + usize::from(r.spread() > NOISY), count + 1));
    if noisy * 4 > count {
        println!(
            "warning: {noisy} of {count} measurements spread by more than {:.0}%: the machine is too busy to say",
            NOISY * 100.0
        );
    }
    Ok(())
}

fn cpus_of(topology: &Topology, node: usize) -> Vec<usize> {
    topology.cpus().iter().filter(|cpu| cpu.node == node && cpu.allowed).map(|cpu| cpu.id).collect()
}

fn latencies(topology: &Topology, bytes: usize, repeats: usize) -> Result<Vec<Row>, InspectError> {
    let mut rows = Vec::new();
    for from in topology.nodes() {
        let cpus = cpus_of(topology, from.id);
        if cpus.is_empty() {
            continue;
        }
        let mut values = Vec::new();
        for to in topology.memory_nodes() {
            values.push((format!("node {}", to.id), latency(topology, &cpus, to.id, bytes, repeats)?));
        }
        rows.push(Row { what: format!("CPU of node {}", from.id), values });
    }
    Ok(rows)
}

/// The table that numademo prints: each policy, from the first CPU.
fn bandwidths(topology: &Topology, bytes: usize, repeats: usize) -> Result<Vec<Row>, InspectError> {
    let cpus = topology.allowed_cpus();
    let mut policies = vec![("no policy".to_owned(), Policy::Default), ("local".to_owned(), Policy::Local)];
    if !topology.is_uniform() {
        policies.push(("interleaved over all nodes".to_owned(), Policy::Interleave));
    }
    let nodes = topology.memory_nodes();
    policies.extend(nodes.iter().map(|node| (format!("node {}", node.id), Policy::Bind(vec![node.id]))));
    let mut rows = Vec::new();
    for (name, policy) in policies {
        let mut values = Vec::new();
        for (kind, write) in [("write", true), ("read", false)] {
            values.push((kind.to_owned(), bandwidth(topology, &cpus, &policy, bytes, write, repeats)?));
        }
        rows.push(Row { what: name, values });
    }
    Ok(rows)
}

/// Pairs of CPUs: one of each core, first those of different caches, until there are enough.
fn cores(topology: &Topology, most: usize, repeats: usize) -> Result<Vec<Row>, InspectError> {
    let firsts = topology
        .cores()
        .iter()
        .filter_map(|core| core.iter().find(|cpu| topology.cpu(**cpu).is_some_and(|cpu| cpu.allowed)).copied());
    let firsts: Vec<usize> = firsts.collect();
    let step = firsts.len().div_ceil(most.max(2)).max(1);
    let chosen: Vec<usize> = firsts.iter().step_by(step).copied().collect();
    let mut rows = Vec::new();
    for one in &chosen {
        // Where the line lives matters as much as who has it: here it is the first CPU's own node, if that has memory.
        let own = topology.cpu(*one).map_or(0, |cpu| cpu.node);
        let gives = topology.memory_nodes().iter().any(|node| node.id == own);
        let home = if gives { own } else { topology.memory_nodes()[0].id };
        let mut values = Vec::new();
        for other in chosen.iter().filter(|other| *other != one) {
            values.push((format!("{other}"), core_to_core(topology, (*one, *other), home, repeats)?));
        }
        rows.push(Row { what: format!("CPU {one}, line on node {home}"), values });
    }
    Ok(rows)
}

/// Latency of one pair of nodes under growing load.
struct UnderLoad {
    what: String,
    points: Vec<Loaded>,
}

/// Each node with CPUs to its own memory and to the memory that is farthest from it.
fn loaded(topology: &Topology, bytes: usize, repeats: usize) -> Result<Vec<UnderLoad>, InspectError> {
    let mut all = Vec::new();
    let gives: Vec<usize> = topology.memory_nodes().iter().map(|node| node.id).collect();
    for from in topology.nodes() {
        let cpus = cpus_of(topology, from.id);
        if cpus.is_empty() {
            continue;
        }
        let near: Vec<usize> = topology.nearest(from.id).into_iter().filter(|node| gives.contains(node)).collect();
        let mut targets: Vec<usize> = near.first().into_iter().chain(near.last()).copied().collect();
        targets.dedup();
        for to in targets {
            let what = format!("CPUs of node {}, memory of node {to}", from.id);
            all.push(UnderLoad { what, points: loaded_latency(topology, &cpus, to, bytes, repeats)? });
        }
    }
    Ok(all)
}

fn loaded_json(row: &UnderLoad) -> Value {
    let point = |point: &Loaded| {
        let latency = &point.latency_ns;
        json!({ "bytes_per_second": point.bytes_per_second, "median": latency.median(), "spread": latency.spread() })
    };
    json!({ "what": row.what, "points": row.points.iter().map(point).collect::<Vec<_>>() })
}

fn loaded_table(rows: &[UnderLoad]) -> String {
    if rows.iter().all(|row| row.points.len() < 2) {
        return "latency under load: no node has a second CPU to load its memory with\n\n".to_owned();
    }
    let mut table = Table::new(&["<latency under load", "others read, GB/s", "ns"]);
    for row in rows {
        for (index, point) in row.points.iter().enumerate() {
            let what = if index == 0 { row.what.clone() } else { String::new() };
            let latency = &point.latency_ns;
            let ns = format!("{:.1} ±{:.0}%", latency.median(), latency.spread() * 50.0);
            table.row([what, format!("{:.1}", point.bytes_per_second * 1e-9), ns]);
        }
    }
    format!("{}\n", table.render())
}

fn moves(topology: &Topology, bytes: usize) -> Result<Vec<Row>, InspectError> {
    let nodes = topology.memory_nodes();
    let mut rows = Vec::new();
    for from in &nodes {
        let mut values = Vec::new();
        for to in nodes.iter().filter(|to| to.id != from.id) {
            values.push((format!("node {}", to.id), migration(topology, from.id, to.id, bytes.min(64 << 20))?));
        }
        rows.push(Row { what: format!("from node {}", from.id), values });
    }
    rows.retain(|row| !row.values.is_empty());
    Ok(rows)
}

fn table(title: &str, rows: &[Row], scale: f64) -> String {
    let mut names: Vec<&String> = Vec::new();
    for (name, _) in rows.iter().flat_map(|row| &row.values) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        return String::new();
    }
    let mut table = Table::new(
        &std::iter::once(format!("<{title}")).chain(names.iter().map(|name| (*name).clone())).collect::<Vec<_>>(),
    );
    for row in rows {
        let cell = |name: &&String| {
            let value = row.values.iter().find(|(known, _)| known == *name);
            value.map_or("-".to_owned(), |(_, r)| format!("{:.1} ±{:.0}%", r.median() * scale, r.spread() * 50.0))
        };
        table.row(std::iter::once(row.what.clone()).chain(names.iter().map(cell)));
    }
    format!("{}\n", table.render())
}

/// Everything that is better looked at: latencies and core to core as heat maps, latency under load as lines.
fn picture(latencies: &[Row], cores: &[Row], loaded: &[UnderLoad]) -> String {
    let mut blocks = vec![heat_map("latency of a dependent load, ns", latencies)];
    if !cores.is_empty() {
        blocks.push(heat_map("a line from core to core, ns (to CPU: median)", cores));
    }
    let most = loaded.iter().map(|row| row.points.len()).max().unwrap_or(0);
    let series = loaded.iter().enumerate().map(|(index, row)| {
        let point = |(at, point): (usize, &Loaded)| {
            let ns = point.latency_ns.median();
            let half = ns * point.latency_ns.spread() / 2.0;
            (at, ns, ns - half, ns + half)
        };
        let points = row.points.iter().enumerate().map(point).collect();
        Series { name: row.what.clone(), colour: index / 2, dashed: index % 2 == 1, points }
    });
    let chart = Chart {
        title: "latency under load".to_owned(),
        x: "reads by the other CPUs of the node, from none to all that they can".to_owned(),
        categories: (0..most).map(|step| if step == 0 { "idle".to_owned() } else { step.to_string() }).collect(),
        unit: "ns".to_owned(),
        series: series.collect(),
        logarithmic: false,
    };
    blocks.extend((most > 1).then(|| chart.draw()).flatten());
    svg::document("How long memory and cores take to reach each other", &stack(&blocks, 22.0))
}

fn heat_map(title: &str, rows: &[Row]) -> Block {
    let medians = rows.iter().flat_map(|row| row.values.iter().map(|(_, r)| r.median()));
    let (least, most) = medians.fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(value), most.max(value)));
    let cells = |row: &Row| {
        let name = Block::cell(190.0, 22.0, "#fff", "#fff", &row.what, "s");
        let values = row.values.iter().map(|(to, r)| {
            let heat = if most > least { (r.median() - least) / (most - least) * 0.8 } else { 0.0 };
            // On the darker half only white can be read.
            let class = if heat > 0.5 { "s i" } else { "s" };
            Block::cell(84.0, 22.0, &svg::heat(heat), "#fff", &format!("{to}: {:.0}", r.median()), class)
        });
        flow(&std::iter::once(name).chain(values).collect::<Vec<_>>(), f64::MAX, 1.0)
    };
    let rows: Vec<Block> = std::iter::once(Block::line(title, "h")).chain(rows.iter().map(cells)).collect();
    stack(&rows, 2.0)
}
