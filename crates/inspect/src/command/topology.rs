//! `homenode topology`: what machine is this?

use std::fs;
use std::path::PathBuf;

use clap::Args;
use homenode_topology::Topology;
use serde_json::{Value, json};

use crate::{InspectError, picture};

#[derive(Debug, Args)]
#[command(after_help = "Example: homenode topology --svg machine.svg\n\
    Elsewhere: homenode topology --save copy, take the folder along, homenode topology --from copy")]
pub struct Options {
    /// Read a saved copy of a machine's files (a folder, or one text as in crates/topology/machines)
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    /// Save the files that the topology comes from, to look at them elsewhere
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// Draw the machine into an SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(options: &Options) -> Result<(), InspectError> {
    let topology = match &options.from {
        Some(file) if file.is_file() => {
            let text = fs::read_to_string(file).map_err(|error| InspectError::io(file, error))?;
            Topology::from_bundle(&text)?
        }
        Some(folder) => Topology::from_dir(folder)?,
        None => Topology::discover(),
    };
    if let Some(folder) = &options.save {
        topology.save(folder)?;
    }
    if let Some(file) = &options.svg {
        fs::write(file, picture::svg(&topology)).map_err(|error| InspectError::io(file, error))?;
    }
    if options.json {
        println!("{:#}", as_json(&topology));
    } else {
        println!("{}\n{}", topology.describe().trim_end(), picture::text(&topology).trim_end());
    }
    Ok(())
}

fn as_json(topology: &Topology) -> Value {
    let ids: Vec<usize> = topology.nodes().iter().map(|node| node.id).collect();
    let distances: Vec<Vec<Option<u32>>> =
        ids.iter().map(|from| ids.iter().map(|to| topology.distance(*from, *to)).collect()).collect();
    let nodes = topology.nodes().iter().map(|node| {
        let huge = node
            .huge_pages
            .iter()
            .map(|pool| json!({ "page_bytes": pool.page_bytes, "total": pool.total, "free": pool.free }));
        json!({
            "id": node.id,
            "cpus": node.cpus,
            "memory_bytes": node.memory_bytes,
            "free_bytes": node.free_bytes,
            "huge_pages": huge.collect::<Vec<_>>(),
            "memory_tier": node.memory_tier,
            "interleave_weight": node.interleave_weight,
            "allowed": node.allowed,
        })
    });
    let groups = topology.l3_groups().iter();
    let groups = groups.map(|group| json!({ "node": group.node, "cpus": group.cpus, "bytes": group.bytes }));
    let devices = topology.devices().iter().map(|device| {
        json!({ "name": device.name, "node": device.node, "bytes": device.bytes, "rotational": device.rotational })
    });
    let settings = topology.settings();
    json!({
        "model_name": topology.model_name(),
        "nodes": nodes.collect::<Vec<_>>(),
        "packages": topology.packages(),
        "cores": topology.cores(),
        "l3_groups": groups.collect::<Vec<_>>(),
        "distances": distances,
        "devices": devices.collect::<Vec<_>>(),
        "settings": {
            "numa_balancing": settings.numa_balancing,
            "demotion": settings.demotion,
            "zone_reclaim_mode": settings.zone_reclaim_mode,
            "transparent_huge_pages": settings.transparent_huge_pages,
        },
        "allowed_cpus": topology.allowed_cpus(),
        "notes": topology.notes().iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
