//! What does a machine consist of? The parts of a topology and how they refer to each other.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::{Capture, TopologyError};

/// One memory node: memory, and the CPUs that are near to it (none for a memory-only node).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The kernel's number of the node. Numbers may have gaps.
    pub id: usize,
    /// Online CPUs of this node, ascending. Empty for a memory-only node.
    pub cpus: Vec<usize>,
    /// Memory of the node in bytes; `None` if not shown. Zero for a node with CPUs only.
    pub memory_bytes: Option<u64>,
    /// Free memory in bytes when the machine was read; `None` if not shown.
    pub free_bytes: Option<u64>,
    /// Reserved huge pages, ascending by page size.
    pub huge_pages: Vec<HugePagePool>,
    /// The kernel's memory tier (a lower number is faster memory); `None` if not shown (before Linux 6.1).
    pub memory_tier: Option<usize>,
    /// The kernel's weight for weighted interleaving; `None` if not shown (before Linux 6.9).
    pub interleave_weight: Option<u32>,
    /// Whether this process may take memory from the node (its cpuset).
    pub allowed: bool,
}

impl Node {
    /// Whether pages can be had from this node: it has memory, and this process may use it.
    pub fn gives_memory(&self) -> bool {
        self.allowed && self.memory_bytes != Some(0)
    }
}

/// Huge pages of one size, reserved on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePagePool {
    /// Size of one page in bytes.
    pub page_bytes: u64,
    /// Pages reserved by the administrator.
    pub total: u64,
    /// Pages of these that nobody uses.
    pub free: u64,
}

/// One online CPU (a hardware thread).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// The kernel's number.
    pub id: usize,
    /// Number of its node ([`Node::id`]).
    pub node: usize,
    /// Package (socket), an index into [`Topology::packages`].
    pub package: usize,
    /// Core, an index into [`Topology::cores`].
    pub core: usize,
    /// L3 group, an index into [`Topology::l3_groups`].
    pub l3_group: usize,
    /// Whether this process may run here (its cpuset and affinity).
    pub allowed: bool,
}

/// CPUs of one node that share a last-level cache. A cache that spans nodes is one group per node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct L3Group {
    /// The node ([`Node::id`]).
    pub node: usize,
    /// The CPUs, ascending.
    pub cpus: Vec<usize>,
    /// Size of the whole cache in bytes; `None` if not shown. With `None` the group itself is an assumption: the CPUs of a
    /// package on the node.
    pub bytes: Option<u64>,
}

/// A block device with hardware behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockDevice {
    /// Name below `/sys/block`, e.g. `nvme0n1`.
    pub name: String,
    /// Node that its controller hangs at ([`Node::id`]); `None` if the firmware doesn't say.
    pub node: Option<usize>,
    /// Size in bytes; `None` if not shown.
    pub bytes: Option<u64>,
    /// Whether it is a spinning disk; `None` if not shown.
    pub rotational: Option<bool>,
}

/// Kernel settings that move memory about or decide where it comes from; `None` where not shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `kernel.numa_balancing`: bit 0 balances between nodes, bit 1 between memory tiers.
    pub numa_balancing: Option<u32>,
    /// Whether pages are demoted to a slower tier instead of being dropped.
    pub demotion: Option<bool>,
    /// `vm.zone_reclaim_mode`: other than 0, a node drops its page cache before another node's memory is taken.
    pub zone_reclaim_mode: Option<u32>,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub transparent_huge_pages: Option<String>,
}

/// Something about the machine that could not be read, with what was assumed instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The file below the root, e.g. `sys/devices/system/node/online`.
    pub path: String,
    /// What was wrong with it.
    pub problem: Problem,
    /// What is assumed instead.
    pub assumed: String,
}

/// What was wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It isn't there.
    Missing,
    /// It is there, and reading failed with this message.
    Unreadable(String),
    /// Its content isn't what the kernel writes.
    Malformed,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problem {
            Problem::Missing => write!(f, "{} is missing", self.path)?,
            Problem::Unreadable(why) => write!(f, "{} cannot be read ({why})", self.path)?,
            Problem::Malformed => write!(f, "{} is not understood", self.path)?,
        }
        write!(f, ": {}", self.assumed)
    }
}

/// The machine as the kernel shows it.
#[derive(Clone, Debug)]
pub struct Topology {
    pub(crate) model_name: Option<String>,
    pub(crate) available_bytes: Option<u64>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) packages: Vec<Vec<usize>>,
    pub(crate) cores: Vec<Vec<usize>>,
    pub(crate) l3_groups: Vec<L3Group>,
    /// Square, in the order of `nodes`; empty if the kernel shows no (usable) distances.
    pub(crate) distances: Vec<Vec<u32>>,
    pub(crate) devices: Vec<BlockDevice>,
    pub(crate) settings: Settings,
    pub(crate) notes: Vec<Note>,
    /// Shared by copies of the topology: a few thousand small texts on a large machine.
    pub(crate) capture: Arc<Capture>,
}

impl Topology {
    /// Looks at the machine this process runs on. Never fails: what cannot be read is assumed and noted; without any node
    /// information the machine is one node with all CPUs that this process may use.
    pub fn discover() -> Topology {
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
        Topology::build(Capture::from_root(Path::new("/")), cpus)
    }

    /// Reads a copy of a machine's files, with the same paths below `dir` as below `/` ([`Topology::save`] writes one; so
    /// does `cp -rL`, with more than is needed).
    pub fn from_dir(dir: &Path) -> Result<Topology, TopologyError> {
        std::fs::read_dir(dir).map_err(|source| TopologyError::Io { path: dir.to_owned(), source })?;
        let capture = Capture::from_root(dir);
        if capture.is_empty() && capture.unreadable().next().is_none() {
            return Err(TopologyError::Empty { path: dir.to_owned() });
        }
        Ok(Topology::from_capture(capture))
    }

    /// Reads a machine from the text form of its files ([`Capture::to_bundle`] writes one).
    pub fn from_bundle(text: &str) -> Result<Topology, TopologyError> {
        Ok(Topology::from_capture(Capture::from_bundle(text)?))
    }

    /// Makes the topology out of gathered files. Never fails: what is missing or damaged is assumed and noted.
    pub fn from_capture(capture: Capture) -> Topology {
        Topology::build(capture, 1)
    }

    /// Writes the files that this topology was read from below `dir`, for [`Topology::from_dir`].
    pub fn save(&self, dir: &Path) -> Result<(), TopologyError> {
        self.capture.save(dir)
    }

    /// The files that this topology was read from.
    pub fn capture(&self) -> &Capture {
        &self.capture
    }

    /// Name of the processor's model, if the kernel shows it (it doesn't on Arm).
    pub fn model_name(&self) -> Option<&str> {
        self.model_name.as_deref()
    }

    /// Memory that could be taken without swapping when the machine was read, in bytes (the kernel's `MemAvailable`).
    pub fn available_bytes(&self) -> Option<u64> {
        self.available_bytes
    }

    /// The online nodes, ascending by number; never empty.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// One node by its number.
    pub fn node(&self, id: usize) -> Option<&Node> {
        self.node_index(id).map(|index| &self.nodes[index])
    }

    /// The online CPUs, ascending by number; never empty.
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// One CPU by its number.
    pub fn cpu(&self, id: usize) -> Option<&Cpu> {
        self.cpus.binary_search_by_key(&id, |cpu| cpu.id).ok().map(|index| &self.cpus[index])
    }

    /// Numbers of the CPUs that this process may run on, ascending; never empty.
    pub fn allowed_cpus(&self) -> Vec<usize> {
        self.cpus.iter().filter(|cpu| cpu.allowed).map(|cpu| cpu.id).collect()
    }

    /// The packages (sockets), each with its CPUs, ascending.
    pub fn packages(&self) -> &[Vec<usize>] {
        &self.packages
    }

    /// The cores, each with its CPUs (hardware threads), ascending.
    pub fn cores(&self) -> &[Vec<usize>] {
        &self.cores
    }

    /// The last-level cache groups; every CPU is in exactly one.
    pub fn l3_groups(&self) -> &[L3Group] {
        &self.l3_groups
    }

    /// Distance of two nodes as the firmware states it (the ACPI SLIT): 10 is the node itself, larger is farther. An
    /// ordering, not a time: machines with 10 and 21 have been measured at 78 and 140 ns. `None` if not shown.
    pub fn distance(&self, from: usize, to: usize) -> Option<u32> {
        let (from, to) = (self.node_index(from)?, self.node_index(to)?);
        self.distances.get(from)?.get(to).copied()
    }

    /// All nodes, nearest first, starting with `from` itself (equally near ones by number; without distances by number).
    pub fn nearest(&self, from: usize) -> Vec<usize> {
        let mut ids: Vec<usize> = self.nodes.iter().map(|node| node.id).collect();
        ids.sort_by_key(|id| (*id != from, self.distance(from, *id), *id));
        ids
    }

    /// Nodes that this process can get memory from; never empty.
    pub fn memory_nodes(&self) -> Vec<&Node> {
        let nodes: Vec<&Node> = self.nodes.iter().filter(|node| node.gives_memory()).collect();
        if nodes.is_empty() { vec![&self.nodes[0]] } else { nodes }
    }

    /// Whether all memory that this process can use is one node: then no placement is needed.
    pub fn is_uniform(&self) -> bool {
        self.memory_nodes().len() == 1
    }

    /// The same machine as if all its memory were one node with all CPUs: what to plan by when placement is switched off.
    pub fn as_one_node(&self) -> Topology {
        let mut one = self.clone();
        let id = self.nodes[0].id;
        let sum = |of: fn(&Node) -> Option<u64>| self.nodes.iter().map(of).sum::<Option<u64>>();
        let node = Node {
            cpus: self.cpus.iter().map(|cpu| cpu.id).collect(),
            memory_bytes: sum(|node| node.memory_bytes),
            free_bytes: sum(|node| node.free_bytes),
            allowed: true,
            ..self.nodes[0].clone()
        };
        one.nodes = vec![node];
        one.distances = Vec::new();
        one.cpus.iter_mut().for_each(|cpu| cpu.node = id);
        one.l3_groups.iter_mut().for_each(|group| group.node = id);
        one.devices.iter_mut().for_each(|device| device.node = device.node.and(Some(id)));
        one
    }

    /// Block devices with hardware behind them, by name.
    pub fn devices(&self) -> &[BlockDevice] {
        &self.devices
    }

    /// Kernel settings that move memory about.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What could not be read or understood.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    fn node_index(&self, id: usize) -> Option<usize> {
        self.nodes.binary_search_by_key(&id, |node| node.id).ok()
    }
}
