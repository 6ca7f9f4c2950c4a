//! What do the gathered files say? Builds the topology out of a capture, with an assumption and a note for every gap.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::{BlockDevice, Cpu, HugePagePool, L3Group, Node, Note, Problem, Settings, Topology};
use crate::{Capture, format_list, parse_list};

const NODES: &str = "sys/devices/system/node";
const CPUS: &str = "sys/devices/system/cpu";

/// Nodes beyond this are not believed (Linux has at most 1024): distances grow with the square.
const NODES_MAX: usize = 1024;

impl Topology {
    /// `cpus_without_files`: how many CPUs to assume when no file names one.
    pub(crate) fn build(capture: Capture, cpus_without_files: usize) -> Topology {
        let mut reader = Reader { capture: &capture, notes: Vec::new() };
        let online = reader.online_cpus(cpus_without_files);
        let (mut nodes, node_of) = reader.nodes(&online);
        let allowed_cpus = reader.allowed("Cpus_allowed_list:", &online);
        let ids: Vec<usize> = nodes.iter().map(|node| node.id).collect();
        let allowed_nodes = reader.allowed("Mems_allowed_list:", &ids);
        nodes.iter_mut().for_each(|node| node.allowed = allowed_nodes.contains(&node.id));
        let package_of = reader.packages(&online);
        let core_of = reader.cores(&online, &package_of);
        let (l3_groups, l3_of) = reader.l3_groups(&online, &node_of, &package_of);
        let (packages, package_index) = partition(&online, &package_of);
        let (cores, core_index) = partition(&online, &core_of);
        let cpus = online.iter().enumerate().map(|(i, &id)| Cpu {
            id,
            node: node_of[i],
            package: package_index[i],
            core: core_index[i],
            l3_group: l3_of[i],
            allowed: allowed_cpus.contains(&id),
        });
        let cpus = cpus.collect();
        let distances = reader.distances(&ids);
        let devices = reader.devices(&ids);
        let settings = reader.settings();
        let model_name = reader.model_name();
        let available_bytes = capture.get("proc/meminfo").and_then(|text| kib_field(text, "MemAvailable:"));
        let notes = reader.notes;
        Topology {
            model_name,
            available_bytes,
            nodes,
            cpus,
            packages,
            cores,
            l3_groups,
            distances,
            devices,
            settings,
            notes,
            capture: Arc::new(capture),
        }
    }
}

/// Groups CPUs by a key; groups in the order of their first CPU, and for each CPU the index of its group.
fn partition<K: Ord + Clone>(cpus: &[usize], key_of: &[K]) -> (Vec<Vec<usize>>, Vec<usize>) {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut index_of: BTreeMap<K, usize> = BTreeMap::new();
    let index = cpus.iter().zip(key_of).map(|(&cpu, key)| {
        let index = *index_of.entry(key.clone()).or_insert(groups.len());
        if index == groups.len() {
            groups.push(Vec::new());
        }
        groups[index].push(cpu);
        index
    });
    let index = index.collect();
    (groups, index)
}

struct Reader<'a> {
    capture: &'a Capture,
    notes: Vec<Note>,
}

impl Reader<'_> {
    /// Reads and understands one file; otherwise says what is assumed instead.
    fn parsed<T>(&mut self, path: &str, parse: impl Fn(&str) -> Option<T>, assumed: &str) -> Option<T> {
        let value = self.capture.get(path).map(&parse);
        match value {
            Some(Some(value)) => Some(value),
            Some(None) => self.note(path, Problem::Malformed, assumed),
            None => {
                let why = self.capture.unreadable().find(|(p, _)| *p == path).map(|(_, why)| why.to_owned());
                self.note(path, why.map_or(Problem::Missing, Problem::Unreadable), assumed)
            }
        }
    }

    fn note<T>(&mut self, path: &str, problem: Problem, assumed: &str) -> Option<T> {
        self.notes.push(Note { path: path.to_owned(), problem, assumed: assumed.to_owned() });
        None
    }

    /// As `parsed`, for files that many kernels don't have: missing is no news.
    fn optional<T>(&mut self, path: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        self.capture.get(path)?;
        self.parsed(path, parse, "taken as not shown")
    }

    fn number(&mut self, path: &str) -> Option<u64> {
        self.optional(path, |text| text.trim().parse().ok())
    }

    fn online_cpus(&mut self, without_files: usize) -> Vec<usize> {
        let nonempty = |text: &str| parse_list(text).filter(|list| !list.is_empty());
        let path = format!("{CPUS}/online");
        if let Some(cpus) = self.parsed(&path, nonempty, "the CPUs are taken from other files") {
            return cpus;
        }
        let numbered = self.capture.numbered(CPUS, "cpu");
        if !numbered.is_empty() {
            return numbered;
        }
        if let Some(cpus) = status_list(self.capture, "Cpus_allowed_list:").filter(|list| !list.is_empty()) {
            return cpus;
        }
        let processors = self.capture.get("proc/cpuinfo").map_or(0, count_processors);
        let count = if processors > 0 { processors } else { without_files.max(1) };
        self.note::<()>(CPUS, Problem::Missing, &format!("{count} CPUs are assumed"));
        (0..count).collect()
    }

    /// The nodes, and for each online CPU the number of its node.
    fn nodes(&mut self, online: &[usize]) -> (Vec<Node>, Vec<usize>) {
        let ids = self.node_ids();
        let mut node_of: BTreeMap<usize, usize> = BTreeMap::new();
        let mut nodes = Vec::new();
        for &id in &ids {
            let path = format!("{NODES}/node{id}/cpulist");
            let listed = self.parsed(&path, parse_list, "the node is taken to have no CPUs").unwrap_or_default();
            for cpu in listed {
                if online.binary_search(&cpu).is_ok() {
                    node_of.entry(cpu).or_insert(id);
                }
            }
            nodes.push(self.node(id));
        }
        if let [] | [_] = ids[..] {
            self.only_node(&mut nodes);
        }
        let home = nodes[0].id;
        let homeless: Vec<usize> = online.iter().copied().filter(|cpu| !node_of.contains_key(cpu)).collect();
        if !homeless.is_empty() && !ids.is_empty() {
            let assumed = format!("CPUs {} are on no node and taken to node {home}", format_list(&homeless));
            self.note::<()>(NODES, Problem::Malformed, &assumed);
        }
        let node_of: Vec<usize> = online.iter().map(|cpu| *node_of.get(cpu).unwrap_or(&home)).collect();
        for node in &mut nodes {
            node.cpus = online.iter().zip(&node_of).filter(|(_, on)| **on == node.id).map(|(cpu, _)| *cpu).collect();
        }
        (nodes, node_of)
    }

    fn node_ids(&mut self) -> Vec<usize> {
        let path = format!("{NODES}/online");
        let parse = |text: &str| parse_list(text).filter(|list| !list.is_empty() && list.len() <= NODES_MAX);
        let listed = self.parsed(&path, parse, "the nodes are those with a folder; without one, all is one node");
        listed.unwrap_or_else(|| {
            let mut numbered = self.capture.numbered(NODES, "node");
            numbered.truncate(NODES_MAX);
            numbered
        })
    }

    fn node(&mut self, id: usize) -> Node {
        let path = format!("{NODES}/node{id}/meminfo");
        let assumed = "the node's memory is unknown";
        let memory_bytes = self.parsed(&path, |text| kib_field(text, "MemTotal:"), assumed);
        let free_bytes = self.capture.get(&path).and_then(|text| kib_field(text, "MemFree:"));
        let weight = format!("sys/kernel/mm/mempolicy/weighted_interleave/node{id}");
        Node {
            huge_pages: self.huge_pages(id),
            memory_tier: self.memory_tier(id),
            interleave_weight: self.number(&weight).and_then(|weight| u32::try_from(weight).ok()),
            ..Node::plain(id, memory_bytes, free_bytes)
        }
    }

    /// One node's memory is the machine's, which `/proc/meminfo` states better: the node's own file leaves out memory that a
    /// virtual machine was given after its start.
    fn only_node(&mut self, nodes: &mut Vec<Node>) {
        let path = "proc/meminfo";
        let total = self.parsed(path, |text| kib_field(text, "MemTotal:"), "the memory is unknown");
        let free = self.capture.get(path).and_then(|text| kib_field(text, "MemFree:"));
        match nodes.first_mut() {
            Some(node) => {
                node.memory_bytes = total.or(node.memory_bytes);
                node.free_bytes = free.or(node.free_bytes);
            }
            None => nodes.push(Node::plain(0, total, free)),
        }
    }

    fn huge_pages(&mut self, node: usize) -> Vec<HugePagePool> {
        let dir = format!("{NODES}/node{node}/hugepages");
        let mut pools = Vec::new();
        for name in self.capture.children(&dir) {
            let size = name.strip_prefix("hugepages-").and_then(|rest| rest.strip_suffix("kB"));
            let Some(kib) = size.and_then(|kib| kib.parse::<u64>().ok()) else {
                continue;
            };
            let total = self.number(&format!("{dir}/{name}/nr_hugepages")).unwrap_or(0);
            let free = self.number(&format!("{dir}/{name}/free_hugepages")).unwrap_or(0);
            pools.push(HugePagePool { page_bytes: kib.saturating_mul(1024), total, free });
        }
        pools.sort_unstable_by_key(|pool| pool.page_bytes);
        pools
    }

    fn memory_tier(&self, node: usize) -> Option<usize> {
        const DIR: &str = "sys/devices/virtual/memory_tiering";
        self.capture.numbered(DIR, "memory_tier").into_iter().find(|tier| {
            let text = self.capture.get(&format!("{DIR}/memory_tier{tier}/nodelist"));
            text.and_then(parse_list).is_some_and(|nodes| nodes.contains(&node))
        })
    }

    /// Members of `all` that the process may use. A list that leaves none is a copy of another process: all are allowed.
    fn allowed(&mut self, field: &str, all: &[usize]) -> Vec<usize> {
        let Some(list) = status_list(self.capture, field) else {
            return all.to_vec();
        };
        let list: BTreeSet<usize> = list.into_iter().collect();
        let allowed: Vec<usize> = all.iter().copied().filter(|id| list.contains(id)).collect();
        if allowed.is_empty() { all.to_vec() } else { allowed }
    }

    /// For each online CPU the kernel's number of its package.
    fn packages(&mut self, online: &[usize]) -> Vec<i64> {
        let mut unknown = None;
        let packages = online.iter().map(|cpu| {
            let path = format!("{CPUS}/cpu{cpu}/topology/physical_package_id");
            let package = self.capture.get(&path).and_then(|text| text.trim().parse().ok());
            package.unwrap_or_else(|| {
                unknown.get_or_insert(path);
                -1
            })
        });
        let packages = packages.collect();
        self.note_first(unknown, "CPUs without a package number are taken to be of one package");
        packages
    }

    /// For each online CPU something that is the same for the hardware threads of one core.
    fn cores(&mut self, online: &[usize], package_of: &[i64]) -> Vec<(i64, Option<i64>, usize)> {
        let mut unknown = None;
        let cores = online.iter().zip(package_of).map(|(&cpu, &package)| {
            let siblings = format!("{CPUS}/cpu{cpu}/topology/thread_siblings_list");
            let first = self.capture.get(&siblings).and_then(parse_list).filter(|list| list.contains(&cpu));
            if let Some(first) = first {
                // The siblings name the core best: core numbers are unique only within a die on some machines.
                return (package, None, first[0]);
            }
            let id = self.capture.get(&format!("{CPUS}/cpu{cpu}/topology/core_id"));
            let id: Option<i64> = id.and_then(|text| text.trim().parse().ok());
            if id.is_none() {
                unknown.get_or_insert(siblings);
            }
            (package, id, if id.is_none() { cpu } else { 0 })
        });
        let cores = cores.collect();
        self.note_first(unknown, "CPUs without siblings are taken as a core each");
        cores
    }

    /// The last-level cache groups, and for each online CPU the index of its group.
    fn l3_groups(&mut self, online: &[usize], node_of: &[usize], package_of: &[i64]) -> (Vec<L3Group>, Vec<usize>) {
        let mut unknown = None;
        let caches: Vec<Option<(usize, u64)>> = online.iter().map(|&cpu| self.l3_of(cpu, online)).collect();
        let key_of: Vec<(usize, Option<usize>, i64)> = (0..online.len())
            .map(|i| match caches[i] {
                Some((first, _)) => (node_of[i], Some(first), 0),
                None => {
                    unknown.get_or_insert(format!("{CPUS}/cpu{}/cache", online[i]));
                    (node_of[i], None, package_of[i])
                }
            })
            .collect();
        self.note_first(unknown, "CPUs without a level 3 cache are grouped by node and package");
        let (groups, index) = partition(online, &key_of);
        let groups = groups.into_iter().map(|cpus| {
            let at = online.binary_search(&cpus[0]).unwrap_or(0);
            L3Group { node: node_of[at], bytes: caches[at].map(|(_, bytes)| bytes).filter(|bytes| *bytes > 0), cpus }
        });
        (groups.collect(), index)
    }

    /// The first CPU that shares this CPU's level 3 cache, and the cache's bytes (0 if not shown).
    fn l3_of(&self, cpu: usize, online: &[usize]) -> Option<(usize, u64)> {
        let dir = format!("{CPUS}/cpu{cpu}/cache");
        let index = self
            .capture
            .children(&dir)
            .find(|index| self.capture.get(&format!("{dir}/{index}/level")).is_some_and(|level| level.trim() == "3"))?;
        let shared = parse_list(self.capture.get(&format!("{dir}/{index}/shared_cpu_list"))?)?;
        let first = shared.iter().find(|cpu| online.binary_search(cpu).is_ok())?;
        let size = self.capture.get(&format!("{dir}/{index}/size")).and_then(cache_bytes);
        shared.contains(&cpu).then_some((*first, size.unwrap_or(0)))
    }

    fn note_first(&mut self, path: Option<String>, assumed: &str) {
        if let Some(path) = path {
            let problem = if self.capture.get(&path).is_some() { Problem::Malformed } else { Problem::Missing };
            self.note::<()>(&path, problem, assumed);
        }
    }

    /// The kernel writes one line per node, with one number per online node.
    fn distances(&mut self, ids: &[usize]) -> Vec<Vec<u32>> {
        let assumed = "distances are unknown";
        let mut rows = Vec::new();
        for id in ids {
            let parse = |text: &str| {
                let row: Option<Vec<u32>> = text.split_whitespace().map(|word| word.parse().ok()).collect();
                row.filter(|row| row.len() == ids.len())
            };
            match self.parsed(&format!("{NODES}/node{id}/distance"), parse, assumed) {
                Some(row) => rows.push(row),
                None => return Vec::new(),
            }
        }
        rows
    }

    fn devices(&mut self, nodes: &[usize]) -> Vec<BlockDevice> {
        let mut devices = Vec::new();
        for name in self.capture.children("sys/block") {
            let dir = format!("sys/block/{name}");
            let node = self.optional(&format!("{dir}/device/numa_node"), |text| text.trim().parse::<i64>().ok());
            // -1: the firmware says nothing, which on a machine with one node leaves no question.
            let node = node.and_then(|node| usize::try_from(node).ok()).filter(|node| nodes.contains(node));
            let node = if nodes.len() == 1 { Some(nodes[0]) } else { node };
            // In sectors of 512 bytes whatever the device's own (Documentation/ABI/stable/sysfs-block).
            let bytes = self.number(&format!("{dir}/size")).map(|sectors| sectors.saturating_mul(512));
            let rotational = self.number(&format!("{dir}/queue/rotational")).map(|flag| flag != 0);
            devices.push(BlockDevice { name: name.to_owned(), node, bytes, rotational });
        }
        devices
    }

    fn settings(&mut self) -> Settings {
        let small = |number: Option<u64>| number.and_then(|number| u32::try_from(number).ok());
        let chosen = |text: &str| Some(text.split_once('[')?.1.split_once(']')?.0.to_owned());
        let flag = |text: &str| match text.trim() {
            "1" | "true" => Some(true),
            "0" | "false" => Some(false),
            _ => None,
        };
        Settings {
            numa_balancing: small(self.number("proc/sys/kernel/numa_balancing")),
            demotion: self.optional("sys/kernel/mm/numa/demotion_enabled", flag),
            zone_reclaim_mode: small(self.number("proc/sys/vm/zone_reclaim_mode")),
            transparent_huge_pages: self.optional("sys/kernel/mm/transparent_hugepage/enabled", chosen),
        }
    }

    fn model_name(&self) -> Option<String> {
        let line = self.capture.get("proc/cpuinfo")?.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    }
}

impl Node {
    fn plain(id: usize, memory_bytes: Option<u64>, free_bytes: Option<u64>) -> Node {
        Node {
            id,
            cpus: Vec::new(),
            memory_bytes,
            free_bytes,
            huge_pages: Vec::new(),
            memory_tier: None,
            interleave_weight: None,
            allowed: true,
        }
    }
}

fn count_processors(cpuinfo: &str) -> usize {
    // Bounded like the lists are.
    cpuinfo.lines().filter(|line| line.starts_with("processor")).take(65_536).count()
}

fn status_list(capture: &Capture, field: &str) -> Option<Vec<usize>> {
    let line = capture.get("proc/self/status")?.lines().find_map(|line| line.strip_prefix(field))?;
    parse_list(line)
}

/// The bytes of a line such as `Node 0 MemTotal:   32614508 kB` or `MemTotal: 32614508 kB`.
fn kib_field(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.split_once(field))?.1;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The bytes of a cache's size as the kernel writes it: `32768K`.
fn cache_bytes(text: &str) -> Option<u64> {
    text.trim().strip_suffix('K')?.parse::<u64>().ok()?.checked_mul(1024)
}
