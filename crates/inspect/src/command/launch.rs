//! `homenode run`: start a program under a placement, and record it.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use homenode_memory::foreign::run_on;
use homenode_memory::{Placement, Policy, set_thread_policy};
use homenode_topology::{Topology, format_list, parse_list};
use serde_json::json;

use crate::InspectError;

#[derive(Debug, Args)]
#[command(after_help = "Example: homenode run --policy interleave -- pg_ctl -D data start\n\
    On one node: homenode run --policy bind=1 --nodes 1 -- mariadbd\n\n\
    The policy and the CPUs hold for the program, its threads and its children. Interleaving also spreads private memory,\n\
    which a database wants local: prefer the server's own setting where it has one, or homenode rebalance.")]
pub struct Options {
    /// Where memory comes from: default, local, interleave, weighted, bind=NODES, preferred=NODE
    #[arg(long, default_value = "default")]
    policy: String,
    /// Run on the CPUs of these nodes only
    #[arg(long, value_name = "LIST")]
    nodes: Option<String>,
    /// Run on these CPUs only
    #[arg(long, value_name = "LIST", conflicts_with = "nodes")]
    cpus: Option<String>,
    /// Append what was started under which placement to this file, a line of JSON each
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Print the placement as JSON, on standard error
    #[arg(long)]
    json: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(super) fn run(options: &Options) -> Result<(), InspectError> {
    let refused = InspectError::Refused;
    let topology = Topology::discover();
    let policy: Policy = options.policy.parse().map_err(|error| refused(format!("{error}")))?;
    let cpus = cpus(options, &topology)?;
    if let Some(cpus) = &cpus {
        run_on(cpus).map_err(|error| refused(format!("CPUs {}: {error}", format_list(cpus))))?;
    }
    let placement = set_thread_policy(&policy, &topology)?;
    if let Placement::Refused(policy, refusal) = &placement {
        // To run it elsewhere than asked, and say nothing, would spoil the measurement that it is started for.
        return Err(refused(format!("policy {policy}: {refusal}")));
    }
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let record = json!({
        "unix_seconds": since.as_secs(),
        "pid": std::process::id(),
        "command": options.command,
        "policy": policy.to_string(),
        "in_force": placement.to_string(),
        "cpus": cpus.as_deref().map(format_list),
        "memory_nodes": topology.nodes().len(),
        "numa_balancing": topology.settings().numa_balancing,
    });
    if let Some(file) = &options.record {
        use std::io::Write;
        let opened = std::fs::OpenOptions::new().create(true).append(true).open(file);
        opened.and_then(|mut out| writeln!(out, "{record}")).map_err(|error| InspectError::io(file, error))?;
    }
    if options.json {
        eprintln!("{record}");
    }
    // Replaces this process: the program keeps its number, its parent and its signals.
    let error = Command::new(&options.command[0]).args(&options.command[1..]).exec();
    Err(refused(format!("{}: {error}", options.command[0])))
}

fn cpus(options: &Options, topology: &Topology) -> Result<Option<Vec<usize>>, InspectError> {
    let list = |text: &str| {
        parse_list(text)
            .filter(|list| !list.is_empty())
            .ok_or_else(|| InspectError::Refused(format!("{text:?} is no list of numbers, such as 0-3,8")))
    };
    if let Some(text) = &options.cpus {
        let cpus = list(text)?;
        return match cpus.iter().find(|cpu| topology.cpu(**cpu).is_none()) {
            Some(cpu) => Err(InspectError::Refused(format!("there is no CPU {cpu}"))),
            None => Ok(Some(cpus)),
        };
    }
    let Some(text) = &options.nodes else {
        return Ok(None);
    };
    let mut cpus = Vec::new();
    for node in list(text)? {
        let node = topology.node(node).ok_or_else(|| InspectError::Refused(format!("there is no node {node}")))?;
        cpus.extend(node.cpus.iter().copied());
    }
    if cpus.is_empty() {
        return Err(InspectError::Refused(format!("the nodes {text} have no CPUs")));
    }
    cpus.sort_unstable();
    Ok(Some(cpus))
}
