//! `homenode topology`: what machine is this?

use std::path::PathBuf;

use homenode_topology::Topology;
use serde_json::{Value, json};

/// Show the machine: memory nodes, CPUs, cache groups, distances
///
/// Example: homenode topology --json
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Read a saved copy of a machine's files instead of this machine's
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    /// Save the files that the topology comes from, to look at them elsewhere
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let topology = match &options.from {
        Some(folder) => Topology::from_dir(folder).map_err(|error| error.to_string())?,
        None => Topology::discover(),
    };
    if let Some(folder) = &options.save {
        topology.save(folder).map_err(|error| error.to_string())?;
    }
    if options.json {
        println!("{:#}", as_json(&topology));
    } else {
        println!("{}", topology.describe().trim_end());
    }
    Ok(())
}

fn as_json(topology: &Topology) -> Value {
    let ids: Vec<usize> = topology.nodes().iter().map(|node| node.id).collect();
    let distances: Vec<Vec<Option<u32>>> =
        ids.iter().map(|from| ids.iter().map(|to| topology.distance(*from, *to)).collect()).collect();
    let nodes: Vec<Value> = topology
        .nodes()
        .iter()
        .map(|node| {
            json!({
                "id": node.id,
                "cpus": node.cpus,
                "memory_bytes": node.memory_bytes,
                "free_bytes": node.free_bytes,
                "memory_tier": node.memory_tier,
                "interleave_weight": node.interleave_weight,
                "allowed": node.allowed,
            })
        })
        .collect();
    let groups: Vec<Value> = topology
        .l3_groups()
        .iter()
        .map(|group| json!({ "node": group.node, "cpus": group.cpus, "bytes": group.bytes }))
        .collect();
    let devices: Vec<Value> = topology
        .devices()
        .iter()
        .map(|device| json!({ "name": device.name, "node": device.node, "bytes": device.bytes }))
        .collect();
    json!({
        "model_name": topology.model_name(),
        "nodes": nodes,
        "packages": topology.packages(),
        "cores": topology.cores(),
        "l3_groups": groups,
        "distances": distances,
        "devices": devices,
        "allowed_cpus": topology.allowed_cpus(),
        "notes": topology.notes().iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
