//! How is a plan carried out? Servers started where the plan says, loaded once, measured, watched, and recorded; what has been
//! recorded is not measured again.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use homenode_memory::Policy;
use homenode_memory::foreign::run_on;
use homenode_topology::{Topology, format_list};
use serde_json::{Value, json};

use super::drive::{Load, Measured, Target, Window, drive};
use super::load::load;
use super::outcome::{Outcome, Percentiles, Waits, append};
use super::plan::{Cell, Plan, Shape, divide};
use super::server::{self, Kind, Running, Start};
use super::watch::Watcher;
use super::workload::{ACCOUNTS, Workload};
use crate::InspectError;
use crate::client::{Address, connect};
use crate::place::{self, Who};
use crate::proc::{cpu_seconds, processes};

/// Connections beyond the clients': for watching, loading, and a person who looks on.
const SPARE_CONNECTIONS: u32 = 20;

/// What carries a plan out.
#[derive(Debug)]
pub struct Runner<'a> {
    plan: &'a Plan,
    topology: &'a Topology,
    /// Folder of the servers' data.
    data: PathBuf,
    results: PathBuf,
    stop: &'a AtomicBool,
}

/// A server, or one on each node, as it is for some measurements.
struct Site {
    running: Vec<Running>,
    targets: Vec<Target>,
    server_cpus: Vec<usize>,
    client_cpus: Vec<usize>,
    policy: String,
}

impl<'a> Runner<'a> {
    /// Results go to a file in the folder, servers' data below it.
    pub fn new(plan: &'a Plan, topology: &'a Topology, folder: &Path, stop: &'a AtomicBool) -> Runner<'a> {
        Runner { plan, topology, data: folder.join("data"), results: folder.join("results.jsonl"), stop }
    }

    /// Measures what has not been; `say` hears of each measurement.
    ///
    /// # Errors
    /// What keeps a server from being started or loaded. A measurement's own failure is recorded, and the next one begins.
    pub fn run(&self, done: &[Outcome], say: &mut dyn FnMut(&Outcome)) -> Result<(), InspectError> {
        let known: BTreeSet<&str> = done.iter().filter(|o| o.error.is_none()).map(|o| o.key.as_str()).collect();
        let mut cells = self.plan.cells();
        cells.retain(|cell| !known.contains(self.plan.key(cell).as_str()));
        let mut rest = cells.as_slice();
        while let Some(first) = rest.first() {
            let same = rest
                .iter()
                .take_while(|cell| (cell.round, cell.shape, cell.peer) == (first.round, first.shape, first.peer));
            let (here, after) = rest.split_at(same.count());
            rest = after;
            let site = self.open(first)?;
            for cell in here {
                if self.stop.load(Relaxed) {
                    return Err(InspectError::Refused("stopped; the same command goes on with the rest".to_owned()));
                }
                let outcome = self.measure(cell, &site);
                if self.stop.load(Relaxed) {
                    continue;
                }
                append(&self.results, &outcome)?;
                say(&outcome);
            }
            site.running.into_iter().for_each(Running::stop);
        }
        Ok(())
    }

    /// Nodes that servers can be on: those with CPUs and memory that this process may use.
    fn nodes(&self) -> Vec<usize> {
        let memory: Vec<usize> = self.topology.memory_nodes().iter().map(|node| node.id).collect();
        let cpus = self.topology.allowed_cpus();
        let has_cpu =
            |id: &usize| self.topology.node(*id).is_some_and(|node| node.cpus.iter().any(|cpu| cpus.contains(cpu)));
        memory.into_iter().filter(has_cpu).collect()
    }

    fn open(&self, cell: &Cell) -> Result<Site, InspectError> {
        let peer = &self.plan.peers[cell.peer];
        let clients = self.plan.client_cpus.as_deref();
        if let Some(address) = &peer.address {
            self.load_running(address)?;
            let client_cpus = clients.unwrap_or_default().to_vec();
            return Ok(Site {
                running: Vec::new(),
                targets: vec![Target { address: address.clone(), client_cpus: client_cpus.clone() }],
                server_cpus: Vec::new(),
                client_cpus,
                policy: "as it is".to_owned(),
            });
        }
        let nodes = self.nodes();
        let nodes = &nodes[..cell.shape.nodes().min(nodes.len())];
        self.prepare(cell)?;
        let groups: Vec<Vec<usize>> = match cell.shape {
            Shape::Separate(_) => nodes.iter().map(|node| vec![*node]).collect(),
            Shape::Nodes(_) | Shape::AsItIs => vec![nodes.to_vec()],
        };
        let mut site = Site {
            running: Vec::new(),
            targets: Vec::new(),
            server_cpus: Vec::new(),
            client_cpus: Vec::new(),
            policy: String::new(),
        };
        for (index, group) in groups.iter().enumerate() {
            let (server_cpus, client_cpus) = divide(self.topology, group, clients);
            let policy = self.policy(group);
            let start = self.start_with(cell.peer, server_cpus.clone(), policy.clone());
            let folder = self.folder(cell.peer, (groups.len() > 1).then_some(index));
            let running = server::start(peer.kind, &folder, &start, self.topology)?;
            site.targets.push(Target { address: running.address.clone(), client_cpus: client_cpus.clone() });
            site.running.push(running);
            site.server_cpus.extend(server_cpus);
            site.client_cpus.extend(client_cpus);
            site.policy = policy.to_string();
        }
        site.client_cpus.sort_unstable();
        site.client_cpus.dedup();
        Ok(site)
    }

    /// One node: its own memory. Several: interleaved, or bound to them.
    fn policy(&self, nodes: &[usize]) -> Policy {
        let all = self.nodes().len() == nodes.len();
        if self.plan.interleave && all && nodes.len() > 1 { Policy::Interleave } else { Policy::Bind(nodes.to_vec()) }
    }

    fn start_with(&self, peer: usize, cpus: Vec<usize>, policy: Policy) -> Start {
        let peer = &self.plan.peers[peer];
        let most = self.plan.threads.iter().copied().max().unwrap_or(1);
        Start {
            program: peer.program.clone(),
            cpus,
            policy,
            pool_bytes: self.plan.pool_bytes,
            connections: most + SPARE_CONNECTIONS,
            settings: peer.settings.clone(),
            records_waits: self.plan.records_waits,
        }
    }

    fn folder(&self, peer: usize, instance: Option<usize>) -> PathBuf {
        let name = self.plan.peer_name(peer);
        self.data.join(instance.map_or(name.clone(), |index| format!("{name}-node{index}")))
    }

    /// Makes and loads the data folders that a measurement needs, unless they are there.
    fn prepare(&self, cell: &Cell) -> Result<(), InspectError> {
        let peer = &self.plan.peers[cell.peer];
        let folder = self.folder(cell.peer, None);
        let copies: Vec<PathBuf> = match self.plan.shapes.iter().filter_map(separate).max() {
            Some(count) => (0..count).map(|index| self.folder(cell.peer, Some(index))).collect(),
            None => Vec::new(),
        };
        let is_loaded = |folder: &PathBuf| folder.join("loaded").exists();
        if !is_loaded(&folder) {
            // What an interrupted load left is of no use.
            remove(&folder)?;
            let program = match &peer.program {
                Some(program) => program.clone(),
                None => server::program(peer.kind).map_err(InspectError::Refused)?,
            };
            server::initialize(peer.kind, &program, &folder)?;
            let nodes = self.nodes();
            let with = self.start_with(cell.peer, Vec::new(), self.policy(&nodes));
            let running = server::start(peer.kind, &folder, &with, self.topology)?;
            let loaded = load(&running.address, &self.plan.workloads, self.plan.size);
            loaded.map_err(|error| {
                InspectError::Refused(format!("loading {}: {error}", self.plan.peer_name(cell.peer)))
            })?;
            running.stop();
            for copy in &copies {
                remove(copy)?;
                server::copy(&folder, copy)?;
                mark(copy)?;
            }
            mark(&folder)?;
        }
        match copies.iter().find(|copy| !is_loaded(copy)) {
            Some(missing) => Err(InspectError::Refused(format!(
                "{} is not whole: remove {} and begin anew",
                missing.display(),
                self.data.display()
            ))),
            None => Ok(()),
        }
    }

    /// Loads a server of somebody else's, if it has none of the tables; if it has them all, in the right size, they are used.
    fn load_running(&self, address: &Address) -> Result<(), InspectError> {
        let refused = |error: crate::client::ClientError| InspectError::Refused(error.to_string());
        let mut session = connect(address).map_err(refused)?;
        let size = self.plan.size;
        let mut wanted: Vec<(String, u64)> = Vec::new();
        if self.plan.workloads.iter().any(|workload| *workload != Workload::TpcB) {
            wanted.extend((1..=size.tables).map(|table| (format!("sbtest{table}"), u64::from(size.rows))));
        }
        if self.plan.workloads.contains(&Workload::TpcB) {
            wanted.push(("pgbench_branches".to_owned(), u64::from(size.scale)));
            wanted.push(("pgbench_accounts".to_owned(), u64::from(size.scale) * u64::from(ACCOUNTS)));
        }
        let mut missing = 0;
        for (table, rows) in &wanted {
            let found = session.query(&format!("SELECT count(*) FROM {table}")).ok();
            let found: Option<u64> = found.and_then(|rows| rows.first()?.first()?.as_ref()?.parse().ok());
            match found {
                None => missing += 1,
                // A read-write run may have ended between a deletion and its insertion.
                Some(found) if found.abs_diff(*rows) <= *rows / 100 => {}
                Some(found) => {
                    let text = format!(
                        "the server has a table {table} of {found} rows in place of {rows}: it is left alone; \
                        say --rows, --tables or --scale as it is, or use another database"
                    );
                    return Err(InspectError::Refused(text));
                }
            }
        }
        if missing == wanted.len() {
            return load(address, &self.plan.workloads, size).map_err(refused);
        }
        if missing > 0 {
            let text = "the server has some of the tables and lacks others: they are left alone; use another database";
            return Err(InspectError::Refused(text.to_owned()));
        }
        Ok(())
    }

    fn measure(&self, cell: &Cell, site: &Site) -> Outcome {
        let plan = self.plan;
        let seed = u64::from(cell.round) << 40 | u64::from(cell.threads) << 20;
        let load = Load {
            targets: site.targets.clone(),
            workload: cell.workload,
            size: plan.size,
            distribution: cell.distribution,
            threads: cell.threads,
            arrivals: cell.arrivals,
            warm_up: plan.warm_up,
            measure: plan.measure,
            seed,
        };
        let mut outcome = Outcome {
            key: plan.key(cell),
            server: plan.peer_name(cell.peer),
            shape: cell.shape.to_string(),
            nodes: cell.shape.nodes() as u64,
            workload: cell.workload.to_string(),
            keys: cell.distribution.to_string(),
            threads: u64::from(cell.threads),
            arrivals: cell.arrivals.name(),
            round: u64::from(cell.round),
            ..Outcome::default()
        };
        let kind = plan.peers[cell.peer].kind;
        match drive(&load, self.stop, |window| self.watch(kind, site, window, cell.threads)) {
            Ok((measured, seen)) => fill(&mut outcome, &measured, seen, plan.measure, &site.client_cpus),
            Err(error) => outcome.error = Some(error.to_string()),
        }
        outcome.placement = self.placement(site);
        outcome.settings = settings(kind, &site.targets[0].address);
        outcome.unix_seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        outcome
    }

    /// Watches the servers from begin to end of the window, on the clients' CPUs.
    fn watch(&self, kind: Kind, site: &Site, window: Window, threads: u32) -> Seen {
        let body = || {
            if !site.client_cpus.is_empty() {
                // A watcher that runs elsewhere is no reason to give up.
                let _ = run_on(&site.client_cpus);
            }
            let mut watchers: Vec<Watcher> =
                site.targets.iter().map(|target| Watcher::new(kind, &target.address)).collect();
            sleep_until(window.start, self.stop);
            let family = site.running.iter().flat_map(|running| family(running.pid())).collect::<Vec<u32>>();
            let before = (sum(&family), cpu_seconds(std::process::id()));
            watchers.iter_mut().for_each(Watcher::begin);
            while Instant::now() < window.end && !self.stop.load(Relaxed) {
                let next = Instant::now() + Duration::from_millis(100);
                watchers.iter_mut().for_each(Watcher::sample);
                sleep_until(next.min(window.end), self.stop);
            }
            let after = (sum(&family), cpu_seconds(std::process::id()));
            let seconds = (window.end - window.start).as_secs_f64();
            let parts: Vec<Waits> = watchers.into_iter().map(|watcher| watcher.end(seconds, threads)).collect();
            Seen {
                server_cpu_seconds: after.0.zip(before.0).map(|(after, before)| after - before),
                client_cpu_seconds: after.1.unwrap_or(0.0) - before.1.unwrap_or(0.0),
                waits: united(parts),
            }
        };
        let ended = std::thread::scope(|scope| scope.spawn(body).join());
        ended.unwrap_or_default()
    }

    /// Where the server ran, and where its memory is now.
    fn placement(&self, site: &Site) -> Value {
        let instances = site.running.iter().map(|running| {
            let census = place::find(&Who::Pid(running.pid()), &processes())
                .and_then(|server| place::take(&server, None));
            let memory = match census {
                Ok(census) => json!({
                    "own_bytes_by_node": census.own_by_node().iter().map(|(node, b)| (node.to_string(), json!(b))).collect::<serde_json::Map<_, _>>(),
                    "imbalance": census.imbalance(self.topology),
                    "notes": census.notes,
                }),
                Err(error) => json!({ "error": error.to_string() }),
            };
            json!({ "pid": running.pid(), "policy_in_force": running.placement, "memory": memory })
        });
        json!({
            "policy": site.policy,
            "server_cpus": format_list(&site.server_cpus),
            "client_cpus": format_list(&site.client_cpus),
            "clients_have_cpus_of_their_own": !site.client_cpus.iter().any(|cpu| site.server_cpus.contains(cpu)),
            "instances": instances.collect::<Vec<_>>(),
        })
    }
}

fn separate(shape: &Shape) -> Option<usize> {
    match shape {
        Shape::Separate(count) => Some(*count),
        _ => None,
    }
}

fn mark(folder: &Path) -> Result<(), InspectError> {
    let file = folder.join("loaded");
    fs::write(&file, "").map_err(|error| InspectError::io(&file, error))
}

fn remove(folder: &Path) -> Result<(), InspectError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(InspectError::io(folder, error)),
        _ => Ok(()),
    }
}

/// What was seen besides the clients' own measurements.
#[derive(Default)]
struct Seen {
    server_cpu_seconds: Option<f64>,
    client_cpu_seconds: f64,
    waits: Waits,
}

fn fill(outcome: &mut Outcome, measured: &Measured, seen: Seen, measure: Duration, client_cpus: &[usize]) {
    let seconds = measure.as_secs_f64();
    outcome.rate = measured.transactions as f64 / seconds;
    outcome.transactions = measured.transactions;
    outcome.retries = measured.retries;
    outcome.unserved = measured.unserved;
    outcome.latency_us = Percentiles::of(&measured.latencies);
    outcome.by_second.clone_from(&measured.by_second);
    outcome.server_cpu_seconds = seen.server_cpu_seconds;
    let all = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let cpus = if client_cpus.is_empty() { all } else { client_cpus.len() };
    outcome.client_cpu_share = seen.client_cpu_seconds / seconds / cpus as f64;
    outcome.waits = seen.waits;
}

/// Threads of several servers: what each thread waited, on average over all.
fn united(parts: Vec<Waits>) -> Waits {
    let mut all = Waits::default();
    for part in parts {
        all.how = part.how;
        for (event, seconds) in part.seconds_per_thread {
            match all.seconds_per_thread.iter_mut().find(|(known, _)| *known == event) {
                Some((_, sum)) => *sum += seconds,
                None => all.seconds_per_thread.push((event, seconds)),
            }
        }
    }
    all.seconds_per_thread.sort_by(|one, other| other.1.total_cmp(&one.1));
    all
}

fn sleep_until(time: Instant, stop: &AtomicBool) {
    while Instant::now() < time && !stop.load(Relaxed) {
        std::thread::sleep((time - Instant::now()).min(Duration::from_millis(100)));
    }
}

/// A server's processes.
fn family(pid: u32) -> Vec<u32> {
    let server = place::find(&Who::Pid(pid), &processes());
    server.map_or_else(|_| vec![pid], |server| server.processes.iter().map(|process| process.pid).collect())
}

fn sum(pids: &[u32]) -> Option<f64> {
    if pids.is_empty() { None } else { Some(pids.iter().filter_map(|pid| cpu_seconds(*pid)).sum()) }
}

fn settings(kind: Kind, address: &Address) -> Value {
    let Ok(mut session) = connect(address) else { return Value::Null };
    let ask = |name: &&str| {
        let query = if kind == Kind::MariaDb { format!("SELECT @@{name}") } else { format!("SHOW {name}") };
        let value = session.query(&query).ok()?.into_iter().next()?.into_iter().next()??;
        Some(((*name).to_owned(), json!(value)))
    };
    Value::Object(kind.settings().iter().filter_map(ask).collect())
}
