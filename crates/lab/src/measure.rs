//! What does one run come to? A workload on a simulated machine, in a process of its own, and its figures.

use crate::machine::{self, Machine};
use crate::workloads;
use homenode_platform::lab::sim::{Counters, Hardware, SimConfig, Source, WhatIf};
use homenode_platform::lab::{self, Config, Isolated, Outcome, measure};
use homenode_platform::task::{self, Task};
use homenode_platform::thread;
use homenode_platform::wait::WaitEvent;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// What is run, on what, for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// A machine's name or file.
    pub machine: String,
    /// The workload's name.
    pub workload: String,
    /// The design's name: `homenode` or one of the old ones.
    pub design: String,
    /// Nodes that are used.
    pub nodes: usize,
    /// Cores of each that are used; 0: all.
    pub cores: usize,
    /// Sessions; 0: what the workload thinks right for the cores.
    pub sessions: usize,
    /// Simulated time that is measured, nanoseconds.
    pub for_ns: u64,
    /// Simulated time before that.
    pub warm_ns: u64,
    /// The seed.
    pub seed: u64,
    /// Add the machine's far memory.
    pub far_memory: bool,
    /// Where tables lie, for workloads that ask: a policy's name.
    pub policy: String,
    /// Keep what the line report needs.
    pub record: bool,
    /// What shall cost nothing or lie elsewhere.
    pub what_if: WhatIf,
}

impl Plan {
    /// A plan with everything but machine, workload and design left to their defaults.
    pub fn new(machine: &str, workload: &str, design: &str, nodes: usize) -> Plan {
        Plan {
            machine: machine.to_owned(),
            workload: workload.to_owned(),
            design: design.to_owned(),
            nodes,
            cores: 0,
            sessions: 0,
            for_ns: 0,
            warm_ns: 0,
            seed: 1,
            far_memory: false,
            policy: String::new(),
            record: false,
            what_if: WhatIf::default(),
        }
    }
}

/// The figures of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Statements (or whatever the workload counts) a second of simulated time.
    pub per_second: f64,
    /// Statements in the measured time.
    pub done: u64,
    /// Measured simulated time.
    pub seconds: f64,
    /// Their latency, nanoseconds.
    pub latency_ns_mean: f64,
    /// Their standard deviation.
    pub latency_ns_deviation: f64,
    /// See `latency_ns_mean`.
    pub latency_ns_p50: u64,
    /// See `latency_ns_mean`.
    pub latency_ns_p99: u64,
    /// The longest.
    pub latency_ns_worst: u64,
    /// Accesses by source, as [`Source`] numbers them.
    pub by_source: Vec<u64>,
    /// Nanoseconds that cores waited for lines, and of those behind others.
    pub waited_ns: u64,
    /// See `waited_ns`.
    pub queued_ns: u64,
    /// Nanoseconds that cores spent in pauses of spin loops.
    pub spun_ns: u64,
    /// Nanoseconds that they had nothing to run.
    pub idle_ns: u64,
    /// Nanoseconds that sessions could have run and their core ran others.
    pub ready_ns: u64,
    /// Pages in use by home node.
    pub pages_by_home: Vec<u64>,
    /// Cores and sessions.
    pub cores: usize,
    /// See `cores`.
    pub sessions: usize,
    /// Hash of the run's trace.
    pub trace_hash: u64,
    /// Charged accesses of the whole run, and the host's time for it.
    pub accesses: u64,
    /// See `accesses`.
    pub host_seconds: f64,
    /// What the workload says beside, by name.
    pub extra: Vec<(String, f64)>,
    /// Time waited by wait event, nanoseconds.
    pub waits: Vec<(String, u64)>,
    /// Lines for the report, as JSON.
    pub lines: Value,
}

impl Figures {
    /// Accesses a statement that were served from `source`.
    pub fn each(&self, source: Source) -> f64 {
        self.by_source.get(source as usize).copied().unwrap_or(0) as f64 / self.done.max(1) as f64
    }

    /// As JSON, without the lines.
    pub fn to_json(&self) -> Value {
        json!({
            "per_second": self.per_second, "done": self.done, "seconds": self.seconds,
            "latency_ns_mean": self.latency_ns_mean, "latency_ns_deviation": self.latency_ns_deviation, "latency_ns_p50": self.latency_ns_p50,
            "latency_ns_p99": self.latency_ns_p99, "latency_ns_worst": self.latency_ns_worst,
            "by_source": self.by_source, "waited_ns": self.waited_ns, "queued_ns": self.queued_ns,
            "spun_ns": self.spun_ns, "idle_ns": self.idle_ns, "ready_ns": self.ready_ns,
            "pages_by_home": self.pages_by_home, "cores": self.cores, "sessions": self.sessions,
            "trace_hash": format!("{:016x}", self.trace_hash), "accesses": self.accesses, "host_seconds": self.host_seconds,
            "extra": self.extra, "waits": self.waits,
        })
    }

    fn from_json(value: &Value) -> Option<Figures> {
        let number = |key: &str| value[key].as_f64();
        let whole = |key: &str| value[key].as_u64();
        let list = |key: &str| value[key].as_array().map(|all| all.iter().filter_map(Value::as_u64).collect());
        let pairs = |key: &str| -> Option<Vec<(String, f64)>> {
            value[key].as_array()?.iter().map(|pair| Some((pair[0].as_str()?.to_owned(), pair[1].as_f64()?))).collect()
        };
        Some(Figures {
            per_second: number("per_second")?,
            done: whole("done")?,
            seconds: number("seconds")?,
            latency_ns_mean: number("latency_ns_mean")?,
            latency_ns_deviation: number("latency_ns_deviation")?,
            latency_ns_p50: whole("latency_ns_p50")?,
            latency_ns_p99: whole("latency_ns_p99")?,
            latency_ns_worst: whole("latency_ns_worst")?,
            by_source: list("by_source")?,
            waited_ns: whole("waited_ns")?,
            queued_ns: whole("queued_ns")?,
            spun_ns: whole("spun_ns")?,
            idle_ns: whole("idle_ns")?,
            ready_ns: whole("ready_ns")?,
            pages_by_home: list("pages_by_home")?,
            cores: whole("cores")? as usize,
            sessions: whole("sessions")? as usize,
            trace_hash: u64::from_str_radix(value["trace_hash"].as_str()?, 16).ok()?,
            accesses: whole("accesses")?,
            host_seconds: number("host_seconds")?,
            extra: pairs("extra")?,
            waits: pairs("waits")?.into_iter().map(|(name, ns)| (name, ns as u64)).collect(),
            lines: value["lines"].clone(),
        })
    }
}

/// What a workload's set-up sees.
pub struct Site {
    /// The plan, with defaults filled in.
    pub plan: Plan,
    /// The machine as used.
    pub hardware: Arc<Hardware>,
    /// Figures that the workload adds.
    pub extra: Mutex<Vec<(String, f64)>>,
    /// Looks at counters of what the workload runs on: called when the measured time begins and when it ends.
    pub watch: Mutex<Option<Watch>>,
}

/// Counters by name, as they stand.
pub type Watch = Box<dyn Fn() -> Vec<(String, f64)> + Send>;

impl Site {
    fn counters(&self) -> Vec<(String, f64)> {
        let watch = self.watch.lock().expect("no worker failed");
        watch.as_ref().map_or_else(Vec::new, |watch| watch())
    }
}

/// One worker's statement: does it, and says how many it counts for.
pub type Step = Box<dyn FnMut() -> u64>;

/// What a workload's set-up gives: makes the step of the worker with this number, on that worker's own core.
pub type MakeStep = Arc<dyn Fn(usize) -> Step + Send + Sync>;

/// A kind of run.
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// One line.
    pub about: &'static str,
    /// Designs that it can run with; the first is the default.
    pub designs: &'static [&'static str],
    /// Sessions for each core.
    pub sessions_per_core: usize,
    /// Sessions are processes of their own rather than tasks, for designs other than `homenode`.
    pub processes: bool,
    /// By how much the caches are made smaller, because the data are.
    pub smaller_caches: usize,
    /// Simulated time measured and before that, nanoseconds.
    pub for_ns: u64,
    /// See `for_ns`.
    pub warm_ns: u64,
    /// Prepares it; nothing is charged meanwhile.
    pub set_up: fn(&Arc<Site>) -> MakeStep,
}

/// Says what is wrong with a plan, or returns it with its defaults filled in.
///
/// # Errors
/// A sentence.
pub fn check(plan: &Plan) -> Result<(Plan, Machine, &'static Workload), String> {
    let machine = machine::find(&plan.machine)?;
    let workload = workloads::find(&plan.workload)?;
    let mut plan = plan.clone();
    if plan.design.is_empty() {
        plan.design = workload.designs[0].to_owned();
    }
    if !workload.designs.contains(&plan.design.as_str()) {
        let known = workload.designs.join(", ");
        return Err(format!("workload {} has no design '{}'; it has {known}", workload.name, plan.design));
    }
    let with_cores: Vec<usize> =
        machine.hardware.nodes.iter().map(|node| node.groups.iter().sum()).filter(|cores| *cores > 0).collect();
    if plan.nodes == 0 {
        plan.nodes = with_cores.len();
    }
    if plan.nodes > with_cores.len() {
        return Err(format!("machine {} has {} nodes, not {}", plan.machine, with_cores.len(), plan.nodes));
    }
    if plan.cores == 0 {
        plan.cores = with_cores[0];
    }
    if plan.cores > with_cores[0] {
        return Err(format!("machine {} has {} cores a node, not {}", plan.machine, with_cores[0], plan.cores));
    }
    if plan.far_memory && machine.far_memory.is_none() {
        return Err(format!("machine {} has no far memory (its file gives no expander_ns)", plan.machine));
    }
    if plan.sessions == 0 {
        plan.sessions = plan.nodes * plan.cores * workload.sessions_per_core;
    }
    if plan.sessions > SESSIONS_MAX {
        let what = "more than this host's address space is laid out for";
        return Err(format!("{} sessions are {what}: at most {SESSIONS_MAX}", plan.sessions));
    }
    if plan.for_ns == 0 {
        plan.for_ns = workload.for_ns;
    }
    if plan.warm_ns == 0 {
        plan.warm_ns = workload.warm_ns;
    }
    if plan.for_ns > 60_000_000_000 {
        return Err("more than 60 s of simulated time would take days".to_owned());
    }
    Ok((plan, machine, workload))
}

/// Each has a stack of 2 MiB of address space.
const SESSIONS_MAX: usize = 8192;

/// Runs a plan in a process of its own.
///
/// # Errors
/// What is wrong with the plan, or how the run failed.
pub fn run(plan: &Plan) -> Result<Figures, String> {
    start(plan)?.wait()
}

/// A run under way.
pub struct Running(Isolated);

/// Starts a plan.
///
/// # Errors
/// What is wrong with the plan.
pub fn start(plan: &Plan) -> Result<Running, String> {
    let (plan, machine, workload) = check(plan)?;
    let child = Isolated::start(move || match run_here(plan, &machine, workload) {
        Ok(figures) => {
            let mut value = figures.to_json();
            value["lines"] = figures.lines;
            value.to_string().into_bytes()
        }
        Err(error) => json!({ "error": error }).to_string().into_bytes(),
    });
    child.map(Running).map_err(|error| format!("cannot fork: {error}"))
}

impl Running {
    /// Waits for its figures.
    ///
    /// # Errors
    /// How the run failed.
    pub fn wait(self) -> Result<Figures, String> {
        let bytes = self.0.wait()?;
        let value: Value = serde_json::from_slice(&bytes).map_err(|error| format!("the run's answer: {error}"))?;
        match value["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Figures::from_json(&value).ok_or_else(|| "the run's answer lacks figures".to_owned()),
        }
    }
}

/// The machine as the plan uses it.
pub fn used(plan: &Plan, machine: &Machine, workload: &Workload) -> Hardware {
    let mut hardware = machine.hardware.restricted(plan.nodes, plan.cores);
    if plan.far_memory {
        hardware.nodes.extend(machine.far_memory.clone());
    }
    hardware.with_smaller_caches(workload.smaller_caches)
}

/// Counts of latencies in buckets a sixteenth of their size wide.
struct Latencies {
    buckets: Vec<u64>,
    sum: u64,
    squares: f64,
    worst: u64,
    count: u64,
}

impl Latencies {
    fn new() -> Latencies {
        Latencies { buckets: vec![0; 64 * 16], sum: 0, squares: 0.0, worst: 0, count: 0 }
    }

    fn add(&mut self, ns: u64) {
        let bits = 64 - ns.max(16).leading_zeros() as usize - 5;
        self.buckets[bits * 16 + (ns >> bits) as usize % 16] += 1;
        self.sum += ns;
        self.squares += (ns as f64).powi(2);
        self.worst = self.worst.max(ns);
        self.count += 1;
    }

    fn mean(&self) -> f64 {
        self.sum as f64 / self.count.max(1) as f64
    }

    fn deviation(&self) -> f64 {
        (self.squares / self.count.max(1) as f64 - self.mean().powi(2)).max(0.0).sqrt()
    }

    /// The value below which `share` of the latencies lie, to a sixteenth.
    fn percentile(&self, share: f64) -> u64 {
        let wanted = (self.count as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted.max(1) {
                let (bits, rest) = (at / 16, at as u64 % 16);
                return ((16 + rest) << bits).min(self.worst);
            }
        }
        self.worst
    }
}

struct Gathered {
    latencies: Latencies,
    done: u64,
    counters: Counters,
    pages: Vec<u64>,
    lines: Value,
    waits: Vec<(String, u64)>,
    measured_ns: u64,
    host_seconds: f64,
}

fn run_here(plan: Plan, machine: &Machine, workload: &'static Workload) -> Result<Figures, String> {
    let hardware = Arc::new(used(&plan, machine, workload));
    let config = Config {
        steps_max: u64::MAX,
        sim: Some(SimConfig {
            hardware: hardware.clone(),
            processes: workload.processes && plan.design != "homenode",
            record: plan.record,
            what_if: plan.what_if.clone(),
        }),
        ..Config::new(plan.seed)
    };
    let site = Arc::new(Site {
        plan: plan.clone(),
        hardware: hardware.clone(),
        extra: Mutex::default(),
        watch: Mutex::default(),
    });
    let gathered = Arc::new(Mutex::new(Gathered {
        latencies: Latencies::new(),
        done: 0,
        counters: Counters::default(),
        pages: Vec::new(),
        lines: Value::Null,
        waits: Vec::new(),
        measured_ns: 0,
        host_seconds: 0.0,
    }));
    let (for_run, for_site) = (gathered.clone(), site.clone());
    let report = lab::run(&config, move || drive(&for_site, workload, &for_run));
    match report.outcome {
        Outcome::Finished => {}
        Outcome::Crashed => return Err("the simulated machine crashed".to_owned()),
        Outcome::Failed(failure) => return Err(failure.to_string()),
    }
    let gathered = gathered.lock().map_err(|_| "a worker failed")?;
    let seconds = gathered.measured_ns as f64 / 1e9;
    let latencies = &gathered.latencies;
    let mut extra = site.extra.lock().map_err(|_| "a worker failed")?.clone();
    extra.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(Figures {
        per_second: gathered.done as f64 / seconds,
        done: gathered.done,
        seconds,
        latency_ns_mean: latencies.mean(),
        latency_ns_deviation: latencies.deviation(),
        latency_ns_p50: latencies.percentile(0.50),
        latency_ns_p99: latencies.percentile(0.99),
        latency_ns_worst: latencies.worst,
        by_source: gathered.counters.by_source.to_vec(),
        waited_ns: gathered.counters.waited_ns,
        queued_ns: gathered.counters.queued_ns,
        spun_ns: gathered.counters.spun_ns,
        idle_ns: gathered.counters.idle_ns,
        ready_ns: gathered.counters.ready_ns,
        pages_by_home: gathered.pages.clone(),
        cores: hardware.cores(),
        sessions: plan.sessions,
        trace_hash: report.trace_hash,
        accesses: report.steps,
        host_seconds: gathered.host_seconds,
        extra,
        waits: gathered.waits.clone(),
        lines: gathered.lines.clone(),
    })
}

/// The first thread of the run: sets up, starts the workers, measures.
fn drive(site: &Arc<Site>, workload: &Workload, gathered: &Arc<Mutex<Gathered>>) {
    let make = (workload.set_up)(site);
    let host = Instant::now();
    let cores = site.hardware.cores();
    let gate = Arc::new(Gate::default());
    let workers: Vec<_> = (0..site.plan.sessions)
        .map(|worker| {
            let (make, gathered, gate) = (make.clone(), gathered.clone(), gate.clone());
            thread::spawn_on(worker % cores, &format!("session-{worker}"), move || {
                let mut step = make(worker);
                let (warm, end) = gate.wait();
                // Not all at the same moment: a real client's sessions don't begin together either.
                measure::work_ns(1 + (worker as u64 * 7919) % 20_000);
                work(&mut step, warm, end, &gathered);
            })
        })
        .collect();
    while gate.waiting.lock().expect("no worker failed").len() < site.plan.sessions {
        // Longer than a switch between threads: this one goes first on its core.
        thread::sleep_ns(100_000);
    }
    thread::sleep_ns(SETTLE_NS);
    measure::start_charging();
    let warm = measure::now_ns() + site.plan.warm_ns;
    let end = warm + site.plan.for_ns;
    gate.open(warm, end);
    thread::sleep_ns(warm.saturating_sub(measure::now_ns()));
    measure::reset_counters();
    let before = site.counters();
    let waits_before = waits();
    thread::sleep_ns(end.saturating_sub(measure::now_ns()));
    {
        let mut gathered = gathered.lock().expect("no worker failed");
        gathered.counters = measure::counters();
        gathered.pages = measure::pages_by_home();
        gathered.lines = crate::lines::to_json(&measure::lines());
        gathered.waits =
            waits().into_iter().map(|(name, ns)| (name.clone(), ns - ended(&waits_before, &name))).collect();
        gathered.waits.retain(|(_, ns)| *ns > 0);
        gathered.measured_ns = site.plan.for_ns;
        gathered.host_seconds = host.elapsed().as_secs_f64();
    }
    let grown = |((name, before), (_, after)): (&(String, f64), (String, f64))| (name.clone(), after - before);
    let counted: Vec<_> = before.iter().zip(site.counters()).map(grown).collect();
    site.extra.lock().expect("no worker failed").extend(counted);
    // A database has to be closed within the run.
    *site.watch.lock().expect("no worker failed") = None;
    workers.into_iter().for_each(thread::JoinHandle::join);
}

/// A database has been at rest before it is measured: its log has prepared the segments ahead that loading the tables used up.
const SETTLE_NS: u64 = 200_000_000;

/// Time waited so far by wait event, nanoseconds, of waits that have ended.
fn waits() -> Vec<(String, u64)> {
    homenode_platform::wait::totals().iter().map(|wait| (wait.event.name().to_owned(), wait.total_ns)).collect()
}

fn ended(waits: &[(String, u64)], name: &str) -> u64 {
    waits.iter().find(|(known, _)| known == name).map_or(0, |(_, ns)| *ns)
}

/// Where sessions wait until all are connected: what many connections at once cost each other is not what is measured.
#[derive(Default)]
struct Gate {
    waiting: Mutex<Vec<Task>>,
    times: Mutex<Option<(u64, u64)>>,
}

impl Gate {
    /// When the measured time begins and ends.
    fn wait(&self) -> (u64, u64) {
        self.waiting.lock().expect("no worker failed").push(task::current());
        loop {
            if let Some(times) = *self.times.lock().expect("no worker failed") {
                return times;
            }
            task::park(WaitEvent::None);
        }
    }

    fn open(&self, warm: u64, end: u64) {
        *self.times.lock().expect("no worker failed") = Some((warm, end));
        let waiting = std::mem::take(&mut *self.waiting.lock().expect("no worker failed"));
        waiting.iter().for_each(Task::unpark);
    }
}

fn work(step: &mut Step, warm: u64, end: u64, gathered: &Mutex<Gathered>) {
    loop {
        let started = measure::now_ns();
        if started >= end {
            return;
        }
        let count = step();
        let ended = measure::now_ns();
        // A statement counts for the time in which it ends.
        if ended >= warm && ended < end {
            let mut gathered = gathered.lock().expect("no worker failed");
            gathered.done += count;
            gathered.latencies.add(ended - started);
        }
    }
}
