//! What does `homenode stacks` at 100 Hz cost what it looks at? Two answers, each in pairs of a measurement with the sampler and one
//! without, in turns; only figures of the same pair are compared.
//!
//! 1. A thread that does a fixed amount of work: time that it lost on the CPU or stopped, by the scheduler's own count. Time that it
//!    waited for a CPU which somebody else had is left out, so what else runs on the machine does not matter.
//! 2. A PostgreSQL under point selects: CPU time per transaction of the server, and throughput. Clients and sampler share CPUs, so
//!    throughput has the CPU time of the sampler in it, which on a machine with idle CPUs nobody would miss.
//!
//! `cargo run --release -p homenode-inspect --example stacks-cost`

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use homenode_inspect::bench::drive::{Arrivals, Load, Target, drive};
use homenode_inspect::bench::keys::Distribution;
use homenode_inspect::bench::load::load;
use homenode_inspect::bench::plan::divide;
use homenode_inspect::bench::server::{Kind, Start, initialize, program, start};
use homenode_inspect::bench::summary::Middle;
use homenode_inspect::bench::workload::{Size, Workload};
use homenode_inspect::place::{Server, Who, find};
use homenode_inspect::proc::{cpu_seconds, processes};
use homenode_inspect::stacks::{Profile, Sampler};
use homenode_memory::Policy;
use homenode_topology::Topology;

const PAIRS: u32 = 7;
const RATE: u32 = 100;
const MEASURE: Duration = Duration::from_secs(4);
const WORKER: &str = "HOMENODE_STACKS_COST_WORKER";

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::var_os(WORKER).is_some() {
        return work();
    }
    fixed_work()?;
    let folder = std::env::temp_dir().join(format!("homenode-stacks-cost-{}", std::process::id()));
    let done = postgres(&folder);
    let _ = fs::remove_dir_all(&folder);
    done
}

/// The thread of fixed work: for each line that it reads it works once, and says how long it ran or stood, without the time in which
/// it was ready and had no CPU.
fn work() -> Result<(), Box<dyn Error>> {
    for line in std::io::stdin().lines() {
        let steps: u64 = line?.trim().parse()?;
        let (begun, queued_before) = (Instant::now(), queued()?);
        let mut x = 1u64;
        for _ in 0..steps {
            x = std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005).rotate_left(17));
        }
        let lost = queued()?.saturating_sub(queued_before);
        println!("{}", (begun.elapsed().saturating_sub(lost)).as_nanos());
    }
    Ok(())
}

/// Time that this thread was ready without a CPU (Documentation/scheduler/sched-stats.rst, the second number).
fn queued() -> Result<Duration, Box<dyn Error>> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(Duration::from_nanos(text.split_ascii_whitespace().nth(1).ok_or("schedstat has another form")?.parse()?))
}

struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Worker {
    fn start() -> Result<Worker, Box<dyn Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.env(WORKER, "1").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().ok_or("no pipe")?;
        let output = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        Ok(Worker { child, input, output })
    }

    /// Nanoseconds that the work took.
    fn run(&mut self, steps: u64) -> Result<f64, Box<dyn Error>> {
        writeln!(self.input, "{steps}")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim().parse()?)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn sample(server: &Server, duration: Duration) -> Result<Profile, String> {
    Sampler::new(server).and_then(|sampler| sampler.run(duration, RATE)).map_err(|error| error.to_string())
}

fn fixed_work() -> Result<(), Box<dyn Error>> {
    let mut worker = Worker::start()?;
    let server = find(&Who::Pid(worker.child.id()), &processes())?;
    // As many steps as take the time of a measurement.
    let steps = (1e8 * MEASURE.as_secs_f64() * 1e9 / worker.run(100_000_000)?) as u64;
    let mut costs = Vec::new();
    for pair in 0..PAIRS {
        let mut took = [0.0; 2];
        let mut profile = Profile::default();
        for sampled in [pair % 2 == 0, pair % 2 == 1] {
            took[usize::from(sampled)] = std::thread::scope(|scope| {
                let sampler = sampled.then(|| scope.spawn(|| sample(&server, MEASURE.mul_f64(0.9))));
                let took = worker.run(steps);
                if let Some(sampler) = sampler {
                    profile = sampler.join().map_err(|_| "the sampler panicked")??;
                }
                took
            })?;
        }
        let cost = took[1] / took[0] - 1.0;
        println!(
            "fixed work: {:.3} s without, {:.3} s with: {:.2}% more; stopped {} times for {} us (median), {:.2}% of its time; \
             sampler's own CPU time {:.2}% of one CPU",
            took[0] / 1e9,
            took[1] / 1e9,
            cost * 100.0,
            profile.stops_ns.len(),
            profile.stop_ns_p50() / 1000,
            profile.slowed() * 100.0,
            profile.own_cpu_seconds / profile.seconds * 100.0
        );
        costs.push(cost);
    }
    print(&format!("stacks at {RATE} Hz makes a busy thread's work longer by"), costs)
}

fn print(what: &str, costs: Vec<f64>) -> Result<(), Box<dyn Error>> {
    let cost = Middle::of(costs.into_iter()).ok_or("no pair was measured")?;
    println!(
        "{what} {:.2}% (median of {PAIRS} pairs; from {:.2}% to {:.2}%)",
        cost.median * 100.0,
        cost.low * 100.0,
        cost.high * 100.0
    );
    Ok(())
}

/// What was measured of the server: transactions a second, its CPU time for each in microseconds, and the profile if there was one.
type Measured = (f64, f64, Profile);

fn postgres(folder: &std::path::Path) -> Result<(), Box<dyn Error>> {
    let topology = Topology::discover();
    let nodes: Vec<usize> = topology.nodes().iter().map(|node| node.id).collect();
    // The sampler runs where the clients do.
    let (server_cpus, client_cpus) = divide(&topology, &nodes, None);
    let size = Size { tables: 1, rows: 10_000, scale: 1 };
    let program = program(Kind::Postgres)?;
    initialize(Kind::Postgres, &program, folder)?;
    let with = Start {
        program: Some(program),
        cpus: server_cpus,
        policy: Policy::Default,
        pool_bytes: 128 << 20,
        connections: 40,
        settings: Vec::new(),
        records_waits: false,
    };
    let server = start(Kind::Postgres, folder, &with, &topology)?;
    load(&server.address, &[Workload::PointSelect], size)?;
    let work = Load {
        targets: vec![Target { address: server.address.clone(), client_cpus: client_cpus.clone() }],
        workload: Workload::PointSelect,
        size,
        distribution: Distribution::Uniform,
        threads: 8,
        arrivals: Arrivals::Closed,
        warm_up: Duration::from_secs(1),
        measure: MEASURE,
        seed: 1,
    };
    let stop = AtomicBool::new(false);
    let measure = |sampled: bool| -> Result<Measured, Box<dyn Error>> {
        let (measured, watched) = drive(&work, &stop, |window| {
            // The clients are connected already; reading the programs' files is done before the window.
            let target = find(&Who::Pid(server.pid()), &processes()).map_err(|error| error.to_string())?;
            let sampler = Sampler::new(&target).map_err(|error| error.to_string())?;
            std::thread::sleep(window.start.saturating_duration_since(Instant::now()));
            // Only processes that are there at both times can be compared.
            let cpu = || target.processes.iter().map(|process| cpu_seconds(process.pid)).collect::<Vec<_>>();
            let before = cpu();
            let profile = if sampled {
                let run = || {
                    let _ = homenode_memory::foreign::run_on(&client_cpus);
                    sampler.run(MEASURE.mul_f64(0.95), RATE).map_err(|error| error.to_string())
                };
                std::thread::scope(|scope| scope.spawn(run).join()).map_err(|_| "the sampler panicked")??
            } else {
                std::thread::sleep(MEASURE.mul_f64(0.95));
                Profile::default()
            };
            let used = before.iter().zip(cpu()).filter_map(|(before, after)| Some(after? - (*before)?)).sum::<f64>();
            Ok::<_, String>((used, profile))
        })?;
        let (cpu, profile) = watched?;
        let transactions = measured.transactions as f64;
        Ok((transactions / MEASURE.as_secs_f64(), cpu / (transactions * 0.95) * 1e6, profile))
    };
    let (mut slower, mut dearer) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        let (first, second) = (measure(pair % 2 == 0)?, measure(pair % 2 == 1)?);
        let (with, without) = if pair % 2 == 0 { (first, second) } else { (second, first) };
        let (less, more) = (1.0 - with.0 / without.0, with.1 / without.1 - 1.0);
        println!(
            "PostgreSQL: {:.0}/s without, {:.0}/s with: {:.2}% less; CPU time each {:.2} us without, {:.2} us with: {:.2}% more; \
             stopped for {:.2}% of its threads' time, {} us each (median); sampler's own CPU time {:.2}% of one CPU",
            without.0,
            with.0,
            less * 100.0,
            without.1,
            with.1,
            more * 100.0,
            with.2.slowed() * 100.0,
            with.2.stop_ns_p50() / 1000,
            with.2.own_cpu_seconds / with.2.seconds * 100.0
        );
        slower.push(less);
        dearer.push(more);
    }
    server.stop();
    print(&format!("stacks at {RATE} Hz makes PostgreSQL's CPU time for a transaction longer by"), dearer)?;
    print("its throughput, on CPUs that the sampler shares with the clients, is less by", slower)
}
