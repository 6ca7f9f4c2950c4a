//! Which instruments can be called from the command line? One module each, and what they share.

mod inside;
mod locate;
mod rebalance;
mod size;
mod target;
mod topology;

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
}

/// Runs an instrument; what it prints goes to standard output.
pub fn run(command: &Command) -> Result<(), InspectError> {
    match command {
        Command::Topology(options) => topology::run(options),
        Command::Where(options) => locate::run(options),
        Command::Rebalance(options) => rebalance::run(options),
    }
}
