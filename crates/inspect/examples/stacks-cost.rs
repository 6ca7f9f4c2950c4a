//! What does `homenode stacks` at 100 Hz cost a server's throughput? A PostgreSQL under point selects, in pairs of a measurement with the
//! sampler and one without, in turns; only figures of the same pair are compared. Prints the pairs, the median and the range.
//! `cargo run --release -p homenode-inspect --example stacks-cost`

use std::error::Error;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use homenode_inspect::bench::drive::{Arrivals, Load, Target, drive};
use homenode_inspect::bench::keys::Distribution;
use homenode_inspect::bench::load::load;
use homenode_inspect::bench::plan::divide;
use homenode_inspect::bench::server::{Kind, Start, initialize, program, start};
use homenode_inspect::bench::summary::Middle;
use homenode_inspect::bench::workload::{Size, Workload};
use homenode_inspect::place::{Who, find};
use homenode_inspect::proc::processes;
use homenode_inspect::stacks::Sampler;
use homenode_memory::Policy;
use homenode_topology::Topology;

const PAIRS: u32 = 7;
const RATE: u32 = 100;
const MEASURE: Duration = Duration::from_secs(4);

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("homenode-stacks-cost-{}", std::process::id()));
    let done = run(&folder);
    let _ = std::fs::remove_dir_all(&folder);
    done
}

fn run(folder: &std::path::Path) -> Result<(), Box<dyn Error>> {
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
    let measure = |sampled: bool| -> Result<(f64, f64), Box<dyn Error>> {
        let (measured, stopped) = drive(&work, &stop, |window| {
            std::thread::sleep(window.start.saturating_duration_since(Instant::now()));
            if !sampled {
                return Ok(0.0);
            }
            let sampler = || {
                let _ = homenode_memory::foreign::run_on(&client_cpus);
                let target = find(&Who::Pid(server.pid()), &processes())?;
                let profile = Sampler::new(&target)?.run(MEASURE, RATE)?;
                Ok::<f64, homenode_inspect::InspectError>(profile.slowed())
            };
            std::thread::scope(|scope| scope.spawn(sampler).join()).unwrap_or(Ok(f64::NAN))
        })?;
        Ok((measured.transactions as f64 / MEASURE.as_secs_f64(), stopped?))
    };
    let mut costs = Vec::new();
    for pair in 0..PAIRS {
        let (first, second) = (measure(pair % 2 == 0)?, measure(pair % 2 == 1)?);
        let (with, without) = if pair % 2 == 0 { (first, second) } else { (second, first) };
        let cost = 1.0 - with.0 / without.0;
        println!(
            "without {:.0}/s, with {:.0}/s: {:.2}% less; running threads were stopped for {:.2}% of their time",
            without.0,
            with.0,
            cost * 100.0,
            with.1 * 100.0
        );
        costs.push(cost);
    }
    server.stop();
    let cost = Middle::of(costs.into_iter()).ok_or("no pair was measured")?;
    println!(
        "stacks at {RATE} Hz costs {:.2}% of the throughput (median of {PAIRS} pairs; from {:.2}% to {:.2}%)",
        cost.median * 100.0,
        cost.low * 100.0,
        cost.high * 100.0
    );
    Ok(())
}
