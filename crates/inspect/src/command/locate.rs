//! `homenode where`: where is a server's memory?

use std::collections::BTreeMap;
use std::fs;

use clap::Args;
use homenode_topology::Topology;
use serde_json::{Value, json};

use super::target::Target;
use crate::InspectError;
use crate::place::{self, Census, Server, ServerKind};
use crate::proc::{Meminfo, parse_meminfo};
use crate::text::{Table, share, size};

#[derive(Debug, Args)]
#[command(after_help = "Example: homenode where --postgres\n\
    Tables by node: homenode where --postgres --connect 'host=/run/postgresql dbname=app user=postgres'\n\
    Tables of MariaDB: homenode where --mariadb --connect 'socket=/run/mysqld/mysqld.sock user=root'\n\n\
    Reads only; no page is made present, no process is stopped. Another user's process needs root.")]
pub struct Options {
    #[command(flatten)]
    target: Target,
    /// Ask the server which tables are where: PostgreSQL (with the extension pg_buffercache) or MariaDB
    #[arg(long, value_name = "CONNECTION")]
    connect: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(options: &Options) -> Result<(), InspectError> {
    let topology = Topology::discover();
    let server = options.target.server()?;
    let mut pages: Vec<Option<u16>> = Vec::new();
    let page = homenode_memory::foreign::small_page_bytes() as u64;
    let mut hear = |offset: u64, node: usize| {
        let index = (offset / page) as usize;
        if pages.len() <= index {
            pages.resize(index + 1, None);
        }
        pages[index] = u16::try_from(node).ok();
    };
    let census = match &options.connect {
        Some(_) if server.kind == ServerKind::Postgres => place::take(&server, Some(&mut hear))?,
        _ => place::take(&server, None)?,
    };
    let inside = match &options.connect {
        Some(connection) => Some(Inside::ask(connection, &server, page, &pages)?),
        None => None,
    };
    let nodes = node_memory(&topology);
    if options.json {
        println!("{:#}", as_json(&server, &census, &topology, &nodes, inside.as_ref()));
    } else {
        print!("{}", as_text(&server, &census, &topology, &nodes));
        if let Some(inside) = inside {
            print!("{}", inside.as_text(&topology));
        }
    }
    Ok(())
}

/// What the server itself was asked.
enum Inside {
    Postgres(super::inside::Inside),
    MariaDb(super::pool::Pool),
}

impl Inside {
    fn ask(connection: &str, server: &Server, page: u64, pages: &[Option<u16>]) -> Result<Inside, InspectError> {
        match server.kind {
            ServerKind::Postgres => super::inside::ask(connection, page, pages).map(Inside::Postgres),
            ServerKind::MariaDb => super::pool::ask(connection, server.pid()).map(Inside::MariaDb),
            ServerKind::Homenode => Err(InspectError::Refused(
                "Homenode tells its own placement: select * from homenode.buffers_by_table (docs/placement.md)"
                    .to_owned(),
            )),
            ServerKind::Other => Err(InspectError::Refused(
                "--connect is for PostgreSQL and MariaDB; this is another program".to_owned(),
            )),
        }
    }

    fn as_text(&self, topology: &Topology) -> String {
        match self {
            Inside::Postgres(inside) => inside.as_text(topology),
            Inside::MariaDb(pool) => pool.as_text(topology),
        }
    }

    fn as_json(&self) -> Value {
        match self {
            Inside::Postgres(inside) => inside.as_json(),
            Inside::MariaDb(pool) => pool.as_json(),
        }
    }
}

/// Each node's own account of its memory.
fn node_memory(topology: &Topology) -> BTreeMap<usize, Meminfo> {
    let read = |id: usize| {
        let text = fs::read_to_string(format!("/sys/devices/system/node/node{id}/meminfo")).ok()?;
        Some((id, parse_meminfo(&text).ok()?))
    };
    topology.nodes().iter().filter_map(|node| read(node.id)).collect()
}

fn as_text(server: &Server, census: &Census, topology: &Topology, nodes: &BTreeMap<usize, Meminfo>) -> String {
    let mut text = format!(
        "{} {}, {}\n\n",
        server.kind.title(),
        server.pid(),
        crate::text::plural(census.processes, "process").replace("processs", "processes")
    );
    let ids: Vec<usize> = topology.nodes().iter().map(|node| node.id).collect();
    let mut heading = vec!["<object".to_owned(), "present".to_owned()];
    heading.extend(ids.iter().map(|id| format!("node {id}")));
    heading.extend(["<  policy".to_owned(), "pages".to_owned()]);
    let mut table = Table::new(&heading);
    let cells = |by_node: &BTreeMap<usize, u64>| -> Vec<String> {
        let total: u64 = by_node.values().sum();
        let bytes = ids.iter().map(|id| by_node.get(id).copied().filter(|b| *b > 0).map_or("-".to_owned(), size));
        std::iter::once(size(total)).chain(bytes).collect()
    };
    for object in &census.objects {
        let mut row = vec![object.name.clone()];
        row.extend(cells(&object.by_node));
        row.push(format!("  {}", list(&object.policies)));
        row.push(object.page_bytes.iter().map(|bytes| size(*bytes)).collect::<Vec<_>>().join(", "));
        table.row(row);
    }
    let own = census.own_by_node();
    let mut row = vec!["own memory (without files)".to_owned()];
    row.extend(cells(&own));
    table.row(row);
    let total: u64 = own.values().sum();
    let mut row = vec![String::new(), String::new()];
    row.extend(ids.iter().map(|id| share(own.get(id).copied().unwrap_or(0), total)));
    table.row(row);
    text.push_str(&table.render());
    text.push_str(&verdict(census, topology));
    let nobodys: u64 = census.objects.iter().map(|object| object.in_no_process).sum();
    if nobodys > 0 {
        text.push_str(&format!("{} of shared memory are in no living process's page tables\n", size(nobodys)));
    }
    text.push_str(&crowding(nodes));
    for note in &census.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    text
}

fn list(policies: &std::collections::BTreeSet<String>) -> String {
    if policies.len() > 3 {
        return format!("{} different ones", policies.len());
    }
    policies.iter().cloned().collect::<Vec<_>>().join(", ")
}

fn verdict(census: &Census, topology: &Topology) -> String {
    if topology.memory_nodes().len() < 2 {
        return "\nimbalance: none; the machine has one memory node\n".to_owned();
    }
    let percent = census.imbalance(topology) * 100.0;
    format!("\nimbalance: {percent:.1}% of it would have to move for every node to have the same\n")
}

/// What each node's memory is used for; the page cache can crowd a node out.
fn crowding(nodes: &BTreeMap<usize, Meminfo>) -> String {
    let mut table = Table::new(&["<memory of", "total", "free", "page cache", "shared", "private", "cache share"]);
    let mut crowded = Vec::new();
    for (id, fields) in nodes {
        let get = |name: &str| fields.get(name).copied().unwrap_or(0);
        // Shared memory is counted among the file pages.
        let cache = get("FilePages").saturating_sub(get("Shmem"));
        let (total, free) = (get("MemTotal"), get("MemFree"));
        table.row([
            format!("node {id}"),
            size(total),
            size(free),
            size(cache),
            size(get("Shmem")),
            size(get("AnonPages")),
            share(cache, total),
        ]);
        if total > 0 && free < total / 20 && cache > total / 4 {
            crowded.push(format!(
                "node {id} is full with {} of page cache in it: new memory for it goes elsewhere\n",
                size(cache)
            ));
        }
    }
    if table.is_empty() { String::new() } else { format!("\n{}{}", table.render(), crowded.concat()) }
}

fn as_json(
    server: &Server,
    census: &Census,
    topology: &Topology,
    nodes: &BTreeMap<usize, Meminfo>,
    inside: Option<&Inside>,
) -> Value {
    let objects = census.objects.iter().map(|object| {
        json!({
            "kind": format!("{:?}", object.kind),
            "name": object.name,
            "mapped_bytes": object.mapped_bytes,
            "bytes_by_node": by_node_json(&object.by_node),
            "bytes_in_no_process": object.in_no_process,
            "policies": object.policies,
            "page_bytes": object.page_bytes,
            "processes": object.processes,
        })
    });
    json!({
        "server": server.kind.title(),
        "pids": server.processes.iter().map(|process| process.pid).collect::<Vec<_>>(),
        "objects": objects.collect::<Vec<_>>(),
        "own_bytes_by_node": by_node_json(&census.own_by_node()),
        "imbalance": census.imbalance(topology),
        "node_memory": nodes.iter().map(|(id, fields)| (id.to_string(), json!(fields))).collect::<serde_json::Map<_, _>>(),
        "inside": inside.map(Inside::as_json),
        "notes": census.notes,
    })
}

pub(super) fn by_node_json(by_node: &BTreeMap<usize, u64>) -> Value {
    by_node.iter().map(|(node, bytes)| (node.to_string(), json!(bytes))).collect::<serde_json::Map<_, _>>().into()
}
