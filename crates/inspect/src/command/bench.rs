//! `homenode bench`: how do servers scale with nodes?

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use homenode_topology::{Topology, parse_list};
use serde_json::{Value, json};

use crate::InspectError;
use crate::bench::drive::Arrivals;
use crate::bench::keys::Distribution;
use crate::bench::outcome::{self, Outcome};
use crate::bench::plan::{Peer, Plan, Shape, divide};
use crate::bench::report::{Conditions, html, text};
use crate::bench::run::Runner;
use crate::bench::server::{Kind, program};
use crate::bench::workload::{ALL, Size, Workload};
use crate::client::Address;
use crate::units;

#[derive(Debug, Args)]
#[command(
    after_help = "Example: homenode bench --out results --threads 1,8,64 --workload point-select,update-index --keys uniform,zipfian\n\
    A running server: homenode bench --out results --server 'postgres:host=10.0.0.5 user=app dbname=bench'\n\
    An open loop: homenode bench --out results --arrivals closed,2000,4000\n\n\
    Servers are started from what is installed, with data of their own below --out, on the first nodes and their memory; a quarter \
    of each node's cores is for the clients. An interrupted plan goes on where it was when the same command is given again."
)]
pub struct Options {
    /// Folder for results, report and the servers' data
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// homenode, postgres or mariadb, installed; or NAME:CONNECTION for one that runs (default: all that are installed)
    #[arg(long, value_name = "SERVER")]
    server: Vec<String>,
    /// Kinds of transactions (default: all): point-select, read-only, read-write, update-index, update-non-index, tpcb
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    workload: Vec<Workload>,
    /// Which rows they want: uniform, zipfian, scrambled; with an exponent: zipfian=0.99
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "uniform")]
    keys: Vec<Distribution>,
    /// Client threads, a connection each
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,8,32", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    threads: Vec<u32>,
    /// Nodes: numbers, and separate=N for a server on each of N nodes (default: 1, 2, 4 ... all, and separate)
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    nodes: Vec<Shape>,
    /// closed, or transactions a second for an open loop
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "closed", value_parser = Arrivals::of)]
    arrivals: Vec<Arrivals>,
    /// Times that everything is repeated, in turn
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Measured time of each
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = units::parse_time)]
    measure: Duration,
    /// Time before it that is not measured
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = units::parse_time)]
    warm_up: Duration,
    /// sysbench's tables
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    tables: u32,
    /// Rows of each
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=2_000_000_000))]
    rows: u32,
    /// TPC-B's branches, with 100,000 accounts each
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    scale: u32,
    /// Each server's pool
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = units::parse)]
    pool: u64,
    /// Interleave a server's memory over its nodes; otherwise first touch decides among them
    #[arg(long)]
    interleave: bool,
    /// CPUs for the clients (default: a quarter of the cores of each node in use)
    #[arg(long, value_name = "LIST")]
    client_cpus: Option<String>,
    /// A setting to start a server with: SERVER:NAME=VALUE, for example postgres:synchronous_commit=off
    #[arg(long, value_name = "SETTING")]
    set: Vec<String>,
    /// The program of Homenode's server (default: this one)
    #[arg(long, value_name = "FILE")]
    homenode: Option<PathBuf>,
    /// Have MariaDB record every wait (performance_schema with its wait instruments), which costs it throughput
    #[arg(long)]
    mariadb_waits: bool,
    /// Keep the servers' data when all is done
    #[arg(long)]
    keep: bool,
    /// Show what would be measured and how long it takes, and stop
    #[arg(long)]
    plan: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(options: &Options) -> Result<(), InspectError> {
    let topology = Topology::discover();
    let mut notes = Vec::new();
    let plan = plan(options, &topology, &mut notes)?;
    let cells = plan.cells();
    if options.plan {
        cells.iter().for_each(|cell| println!("{}", plan.key(cell)));
        println!("{} measurements, {:.0} s or more", cells.len(), plan.least_time().as_secs_f64());
        notes.iter().for_each(|note| println!("note: {note}"));
        return Ok(());
    }
    let folder = absolute(&options.out)?;
    fs::create_dir_all(&folder).map_err(|error| InspectError::io(&folder, error))?;
    check_identity(&folder, &plan)?;
    let results = folder.join("results.jsonl");
    let done = outcome::resume(&results)?;
    if !done.is_empty() {
        eprintln!("{} results are there already", done.len());
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| InspectError::Refused(format!("signal {signal}: {error}")))?;
    }
    let runner = Runner::new(&plan, &topology, &folder, &stop);
    let ended = runner.run(&done, &mut |outcome| {
        let result = outcome
            .error
            .clone()
            .unwrap_or_else(|| format!("{:.0}/s, p99 {:.0} us", outcome.rate, outcome.latency_us.p99));
        eprintln!("{}: {result}", outcome.key);
    });
    // What was measured is shown also when the rest was not.
    let outcomes = outcome::read(&results)?;
    let conditions = conditions(&plan, &topology, notes);
    report(&folder, &conditions, &outcomes, options)?;
    ended?;
    if !options.keep {
        let data = folder.join("data");
        if data.exists() {
            fs::remove_dir_all(&data).map_err(|error| InspectError::io(&data, error))?;
        }
    }
    Ok(())
}

/// Servers are started in the root folder: their paths have to be whole.
fn absolute(path: &Path) -> Result<PathBuf, InspectError> {
    std::path::absolute(path).map_err(|error| InspectError::io(path, error))
}

fn plan(options: &Options, topology: &Topology, notes: &mut Vec<String>) -> Result<Plan, InspectError> {
    let refused = InspectError::Refused;
    let client_cpus = match &options.client_cpus {
        Some(text) => {
            let cpus = parse_list(text)
                .filter(|cpus| cpus.iter().all(|cpu| topology.cpu(*cpu).is_some_and(|cpu| cpu.allowed)));
            Some(
                cpus.filter(|cpus| !cpus.is_empty())
                    .ok_or_else(|| refused(format!("{text:?} is no list of this machine's CPUs")))?,
            )
        }
        None => None,
    };
    let plan = Plan {
        peers: peers(options, notes)?,
        workloads: if options.workload.is_empty() {
            ALL.map(|(_, workload)| workload).to_vec()
        } else {
            options.workload.clone()
        },
        distributions: options.keys.clone(),
        shapes: shapes(options, topology, notes)?,
        threads: options.threads.clone(),
        arrivals: options.arrivals.clone(),
        rounds: options.rounds,
        warm_up: options.warm_up,
        measure: options.measure,
        size: Size { tables: options.tables, rows: options.rows, scale: options.scale },
        pool_bytes: options.pool,
        interleave: options.interleave,
        client_cpus,
        records_waits: options.mariadb_waits,
    };
    for shape in &plan.shapes {
        let nodes: Vec<usize> = usable_nodes(topology).into_iter().take(shape.nodes()).collect();
        let (server, clients) = divide(topology, &nodes, plan.client_cpus.as_deref());
        if server.is_empty() {
            return Err(refused("no CPU is left for the servers".to_owned()));
        }
        if clients.iter().any(|cpu| server.contains(cpu)) {
            notes.push(format!("with nodes={shape} clients and servers share CPUs: a node has a single core"));
        }
    }
    Ok(plan)
}

fn usable_nodes(topology: &Topology) -> Vec<usize> {
    let cpus = topology.allowed_cpus();
    let nodes = topology.memory_nodes().into_iter().filter(|node| node.cpus.iter().any(|cpu| cpus.contains(cpu)));
    nodes.map(|node| node.id).collect()
}

/// The shapes that this machine has; what it lacks is left out, and said.
fn shapes(options: &Options, topology: &Topology, notes: &mut Vec<String>) -> Result<Vec<Shape>, InspectError> {
    let most = usable_nodes(topology).len();
    let mut shapes = options.nodes.clone();
    if shapes.is_empty() {
        shapes = std::iter::successors(Some(1), |nodes| Some(nodes * 2))
            .take_while(|nodes| *nodes < most)
            .map(Shape::Nodes)
            .collect();
        shapes.push(Shape::Nodes(most));
        if most > 1 {
            shapes.push(Shape::Separate(most));
        } else {
            notes.push("this machine has one memory node: nothing here is about more than one".to_owned());
        }
    }
    let (here, missing): (Vec<Shape>, Vec<Shape>) = shapes.into_iter().partition(|shape| shape.nodes() <= most);
    for shape in missing {
        notes.push(format!("nodes={shape} is left out: this machine has {}", crate::text::plural(most, "memory node")));
    }
    if here.is_empty() {
        return Err(InspectError::Refused(notes.join("; ")));
    }
    Ok(here)
}

fn peers(options: &Options, notes: &mut Vec<String>) -> Result<Vec<Peer>, InspectError> {
    let refused = InspectError::Refused;
    let mut peers = Vec::new();
    for text in &options.server {
        let (name, connection) = text.split_once(':').map_or((text.as_str(), None), |(name, rest)| (name, Some(rest)));
        let kind =
            Kind::of(name).ok_or_else(|| refused(format!("{name:?}: homenode, postgres or mariadb is wanted")))?;
        let address = connection.map(|rest| Address::parse(kind.protocol(), rest)).transpose().map_err(refused)?;
        peers.push(Peer { kind, address, program: None, settings: Vec::new() });
    }
    if peers.is_empty() {
        for kind in [Kind::Homenode, Kind::Postgres, Kind::MariaDb] {
            match program(kind) {
                Ok(_) => peers.push(Peer { kind, address: None, program: None, settings: Vec::new() }),
                Err(error) => notes.push(error),
            }
        }
    }
    for peer in peers.iter_mut().filter(|peer| peer.kind == Kind::Homenode) {
        peer.program = options.homenode.as_deref().map(absolute).transpose()?;
    }
    for setting in &options.set {
        let parts = setting.split_once(':').and_then(|(name, rest)| Some((Kind::of(name)?, rest.split_once('=')?)));
        let (kind, (name, value)) = parts.ok_or_else(|| refused(format!("{setting:?} is not SERVER:NAME=VALUE")))?;
        let started = peers.iter_mut().filter(|peer| peer.kind == kind && peer.address.is_none());
        started.for_each(|peer| peer.settings.push((name.to_owned(), value.to_owned())));
    }
    Ok(peers)
}

/// Results of another plan are not mixed with this one's.
fn check_identity(folder: &Path, plan: &Plan) -> Result<(), InspectError> {
    let file = folder.join("plan.json");
    let own = plan.identity();
    match fs::read_to_string(&file) {
        Ok(text) => {
            let known: Option<Value> = serde_json::from_str(&text).ok();
            if known.as_ref() == Some(&own) {
                return Ok(());
            }
            let known = known.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
            let differ = own.as_object().into_iter().flatten().filter(|(name, value)| known.get(*name) != Some(value));
            let differ: Vec<&str> = differ.map(|(name, _)| name.as_str()).collect();
            let text = format!("{} is about another plan ({}): use another folder", file.display(), differ.join(", "));
            Err(InspectError::Refused(text))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            fs::write(&file, format!("{own:#}\n")).map_err(|error| InspectError::io(&file, error))
        }
        Err(error) => Err(InspectError::io(&file, error)),
    }
}

fn conditions(plan: &Plan, topology: &Topology, notes: Vec<String>) -> Conditions {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let settings = topology.settings();
    let lines = [
        ("processor", topology.model_name().unwrap_or("not told").to_owned()),
        (
            "machine",
            format!(
                "{}, {}, {}",
                crate::text::plural(topology.packages().len(), "package"),
                crate::text::plural(topology.nodes().len(), "memory node"),
                crate::text::plural(topology.cpus().len(), "CPU")
            ),
        ),
        ("kernel", kernel.trim().to_owned()),
        ("automatic balancing", settings.numa_balancing.map_or("not there".to_owned(), |bits| bits.to_string())),
        ("load average when this was written", load.trim().to_owned()),
        ("data", format!("{} tables of {} rows; {} branches", plan.size.tables, plan.size.rows, plan.size.scale)),
        ("pool", crate::text::size(plan.pool_bytes)),
        ("warm-up and measured time", format!("{} s, {} s", plan.warm_up.as_secs_f64(), plan.measure.as_secs_f64())),
        ("rounds", plan.rounds.to_string()),
        (
            "clients",
            "a thread and a connection each, prepared statements over 127.0.0.1, a round trip a statement".to_owned(),
        ),
    ];
    Conditions { lines: lines.map(|(name, value)| (name.to_owned(), value)).to_vec(), notes }
}

fn report(folder: &Path, conditions: &Conditions, outcomes: &[Outcome], options: &Options) -> Result<(), InspectError> {
    let page = folder.join("report.html");
    fs::write(&page, html(conditions, outcomes)).map_err(|error| InspectError::io(&page, error))?;
    let value = json!({
        "conditions": conditions.lines.iter().map(|(name, value)| (name.clone(), json!(value))).collect::<serde_json::Map<_, _>>(),
        "notes": conditions.notes,
        "results": outcomes.iter().map(Outcome::to_json).collect::<Vec<_>>(),
    });
    let file = folder.join("report.json");
    fs::write(&file, format!("{value:#}\n")).map_err(|error| InspectError::io(&file, error))?;
    if options.json {
        println!("{value:#}");
        return Ok(());
    }
    print!("{}", text(outcomes));
    conditions.notes.iter().for_each(|note| println!("note: {note}"));
    println!("report: {}", page.display());
    Ok(())
}
