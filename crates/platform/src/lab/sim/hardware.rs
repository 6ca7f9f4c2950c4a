//! What is the simulated machine built of? Nodes, cores, caches, links, a device, and what each costs.

/// A way between two nodes, as a core sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Loading a line that a core of the other node has modified, its memory being on that node, nanoseconds.
    pub hitm_home_owner_ns: f64,
    /// The same when the line's memory is on the loading core's own node or on a third one.
    pub hitm_home_reader_ns: f64,
    /// A load from the other node's memory.
    pub memory_ns: f64,
    /// Bandwidth in one direction, GB/s (1e9 bytes).
    pub gbs: f64,
}

/// A memory node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSpec {
    /// The socket that it belongs to.
    pub socket: usize,
    /// The board that the socket is on.
    pub blade: usize,
    /// Cores of each of its L3 groups; none for a node of memory only.
    pub groups: Vec<usize>,
    /// A load from its memory by a core of its own (for memory only: by a core of the socket), nanoseconds.
    pub memory_ns: f64,
    /// Bandwidth of its memory, GB/s.
    pub memory_gbs: f64,
}

/// What threads cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Threading {
    /// From one task to another of the same worker, nanoseconds.
    pub task_switch_ns: f64,
    /// From one kernel thread to another.
    pub thread_switch_ns: f64,
    /// From the wake-up of a sleeping core until its thread runs.
    pub wake_ns: f64,
    /// What waking a sleeping core costs the waker (a system call and an inter-processor interrupt).
    pub waker_ns: f64,
    /// How long a kernel thread runs while others are ready.
    pub slice_ns: f64,
}

/// A block device.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// The node it is attached to.
    pub node: usize,
    /// A read of one page that is not in the page cache, nanoseconds.
    pub read_ns: f64,
    /// A flush of its cache or a write-through, without the time for the bytes.
    pub sync_ns: f64,
    /// GB/s, either direction.
    pub gbs: f64,
    /// Requests served at once.
    pub queue_depth: usize,
}

/// A machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Hardware {
    /// Its name.
    pub name: String,
    /// Its nodes. At most [`Hardware::CORES_MAX`] cores and [`Hardware::GROUPS_MAX`] L3 groups in all.
    pub nodes: Vec<NodeSpec>,
    /// A core's own cache (L2), bytes.
    pub private_bytes: usize,
    /// The cache of an L3 group, bytes.
    pub l3_bytes: usize,
    /// A load that the core's own cache answers (L1 and L2 taken together), nanoseconds.
    pub hit_ns: f64,
    /// A read-modify-write of a line that the core owns.
    pub atomic_ns: f64,
    /// A full fence.
    pub fence_ns: f64,
    /// One pause instruction of a spin loop.
    pub pause_ns: f64,
    /// A clean line from the group's L3.
    pub l3_ns: f64,
    /// A line that another core of the same L3 group has modified.
    pub group_hitm_ns: f64,
    /// A line that a core of another L3 group of the node has.
    pub node_hitm_ns: f64,
    /// How long a line that arrived for a write stays at least before the next one gets it.
    pub hold_ns: f64,
    /// How many next lines a sequential reader has under way at once.
    pub stream_lines: f64,
    /// Between nodes of a socket.
    pub near: Link,
    /// Between sockets.
    pub far: Link,
    /// Between blades.
    pub blade: Link,
    /// What threads cost.
    pub threading: Threading,
    /// The disk.
    pub device: Device,
}

impl Hardware {
    /// The most cores that the line directory has bits for.
    pub const CORES_MAX: usize = 320;
    /// The most L3 groups.
    pub const GROUPS_MAX: usize = 32;

    /// Cores of the machine.
    pub fn cores(&self) -> usize {
        self.nodes.iter().flat_map(|node| &node.groups).sum()
    }

    /// The cores of each node: cores are numbered node by node, group by group.
    pub fn cores_of_nodes(&self) -> Vec<std::ops::Range<usize>> {
        let mut at = 0;
        let range = |node: &NodeSpec| {
            let start = at;
            at += node.groups.iter().sum::<usize>();
            start..at
        };
        self.nodes.iter().map(range).collect()
    }

    /// The way between two different nodes.
    pub fn link(&self, a: usize, b: usize) -> &Link {
        let (a, b) = (&self.nodes[a], &self.nodes[b]);
        match (a.blade == b.blade, a.socket == b.socket) {
            (false, _) => &self.blade,
            (true, false) => &self.far,
            (true, true) => &self.near,
        }
    }

    /// The same machine when only `cores` cores of each of the first `nodes` nodes with cores are used, and their memory.
    pub fn restricted(&self, nodes: usize, cores: usize) -> Hardware {
        let mut small = self.clone();
        small.nodes = self.nodes.iter().filter(|node| !node.groups.is_empty()).take(nodes).cloned().collect();
        for node in &mut small.nodes {
            let mut left = cores;
            for group in &mut node.groups {
                *group = (*group).min(left);
                left -= *group;
            }
            node.groups.retain(|group| *group > 0);
        }
        small.device.node = self.device.node.min(small.nodes.len().max(1) - 1);
        small
    }

    /// Caches that hold `factor` times less: a data set that is `factor` times too small then misses as the real one would.
    pub fn with_smaller_caches(mut self, factor: usize) -> Hardware {
        self.private_bytes = (self.private_bytes / factor).max(8 << 10);
        self.l3_bytes = (self.l3_bytes / factor).max(16 << 10);
        self
    }

    /// Says in one sentence what is impossible about the machine.
    ///
    /// # Errors
    /// That sentence.
    pub fn check(&self) -> Result<(), String> {
        let cores = self.cores();
        if cores == 0 || cores > Self::CORES_MAX {
            return Err(format!("a machine has 1 to {} cores, not {cores}", Self::CORES_MAX));
        }
        let groups: usize = self.nodes.iter().map(|node| node.groups.len()).sum();
        if groups > Self::GROUPS_MAX || self.nodes.len() > Self::GROUPS_MAX {
            return Err(format!("a machine has at most {} L3 groups and nodes", Self::GROUPS_MAX));
        }
        if self.private_bytes < 4096 || self.l3_bytes < 4096 {
            return Err("caches of less than 4 KiB".to_owned());
        }
        Ok(())
    }
}
