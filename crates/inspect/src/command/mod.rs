//! Which instruments can be called from the command line? One module each, and what they share.

mod bench;
mod c2c;
mod doctor;
mod inside;
mod launch;
mod locate;
mod measure;
mod pool;
mod rebalance;
mod stacks;
mod stat;
mod target;
mod topology;
mod waits;

use clap::Subcommand;

use crate::InspectError;

/// The instruments' subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the machine: packages, nodes, L3 groups, cores, distances, memory, huge pages, devices
    Topology(topology::Options),
    /// Show where a server's memory is: by object and node, policy beside reality
    Where(locate::Options),
    /// Spread a running server's memory over the nodes: shows the plan, applies it, undoes it
    Rebalance(rebalance::Options),
    /// Show how memory flows between nodes: the kernel's counters as rates; live, as a log, for Prometheus
    Stat(stat::Options),
    /// Start a program under a memory policy and on chosen nodes, and record it
    Run(launch::Options),
    /// Show what a database waits for: share of its time by event, statement and blocker
    Waits(waits::Options),
    /// Show which cache lines are fought over: by perf's counters, or from a recording
    C2c(c2c::Options),
    /// Measure latency, bandwidth, core to core and page migration, by node
    Measure(measure::Options),
    /// Sample the stacks of a server's threads, running and waiting; flame graphs
    Stacks(stacks::Options),
    /// Measure servers on one, two, ... all nodes: sysbench's and pgbench's transactions, latencies, waits; an HTML report
    Bench(bench::Options),
    /// Find what is set wrongly: findings with evidence, cost and the command that mends it
    Doctor(doctor::Options),
}

/// Runs an instrument; what it prints goes to standard output.
pub fn run(command: &Command) -> Result<(), InspectError> {
    match command {
        Command::Topology(options) => topology::run(options),
        Command::Where(options) => locate::run(options),
        Command::Rebalance(options) => rebalance::run(options),
        Command::Stat(options) => stat::run(options),
        Command::Run(options) => launch::run(options),
        Command::Waits(options) => waits::run(options),
        Command::C2c(options) => c2c::run(options),
        Command::Measure(options) => measure::run(options),
        Command::Stacks(options) => stacks::run(options),
        Command::Bench(options) => bench::run(options),
        Command::Doctor(options) => doctor::run(options),
    }
}
