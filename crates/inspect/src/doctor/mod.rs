//! What is set wrongly? Findings about a machine and a server, each with what was measured, what it costs, and what mends it.
//!
//! [`gather`] looks for a few seconds; [`examine`] only judges what was gathered, so that every finding can be tested without
//! a machine that has it. A finding rests on a measurement of this machine now: a setting alone is none.

mod checks;
mod clients;
mod gather;

pub use checks::examine;
pub use gather::gather;

use std::collections::{BTreeMap, BTreeSet};

use crate::place::ServerKind;
use crate::stat::NodeMemory;
use crate::waits::Profile;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Costs much now.
    High,
    /// Costs something now.
    Medium,
    /// Worth knowing.
    Low,
}

impl Severity {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Severity::High => "high",
            Severity::Medium => "medium",
            Severity::Low => "low",
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// In one line.
    pub title: String,
    /// What was measured.
    pub evidence: String,
    /// What it costs.
    pub cost: &'static str,
    /// The command that mends it.
    pub mend: String,
    /// The part of docs/instruments.md that explains it.
    pub document: &'static str,
}

/// What was measured.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// How long was looked, in seconds.
    pub seconds: f64,
    /// Each node's memory at the end.
    pub nodes: BTreeMap<usize, NodeMemory>,
    /// Nodes with CPUs.
    pub cpu_nodes: BTreeSet<usize>,
    /// The kernel's counters (`vmstat`) a second.
    pub rates: BTreeMap<String, f64>,
    /// Pages a second that came from another node than wanted, by the node that was full.
    pub foreign: BTreeMap<usize, f64>,
    /// `kernel.numa_balancing`.
    pub numa_balancing: bool,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub transparent_huge_pages: Option<String>,
    /// The server, if one was named.
    pub server: Option<ServerFacts>,
}

/// What was measured about a server.
#[derive(Clone, Debug, Default)]
pub struct ServerFacts {
    /// What it is.
    pub kind: Option<ServerKind>,
    /// How it is named on the command line again (`--postgres`, a number).
    pub argument: String,
    /// Its own memory on each node.
    pub own_by_node: BTreeMap<usize, u64>,
    /// Its shared memory, or InnoDB's pool: bytes, in small pages.
    pub pool_small_page_bytes: u64,
    /// Policies of its private memory.
    pub private_policies: BTreeSet<String>,
    /// Its private memory in bytes.
    pub private_bytes: u64,
    /// Bytes of it that are swapped out.
    pub swapped_bytes: u64,
    /// Bytes of its processes' page tables.
    pub page_table_bytes: u64,
    /// Threads that used a CPU meanwhile.
    pub busy_threads: usize,
    /// Of these, those that may run on some CPUs of the machine only.
    pub pinned_threads: usize,
    /// How often one of them was seen on another node than the moment before.
    pub node_changes: u64,
    /// How often one was looked at.
    pub thread_looks: u64,
    /// Looks by the node that the thread was on.
    pub looks_by_node: BTreeMap<usize, u64>,
    /// Looks at busy threads of the clients on this machine, by the node that the thread was on.
    pub client_looks_by_node: BTreeMap<usize, u64>,
    /// The disk under its data folder, and that disk's node.
    pub disk: Option<(String, usize)>,
    /// Whether libnuma is among its libraries.
    pub has_libnuma: bool,
    /// What its sessions waited for, if it could be asked.
    pub waits: Option<Profile>,
}
