//! How does memory flow between nodes? The kernel's counters by node as rates, with each node's memory and huge pages.
//!
//! From `/sys/devices/system/node/nodeN/{numastat,meminfo}` and `/proc/vmstat`
//! (Documentation/admin-guide/numastat.rst). A counter that a kernel doesn't have is not shown; it is never taken as 0.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Instant;

use crate::InspectError;
use crate::proc::{Counters, Meminfo, parse_counters, parse_meminfo};

/// The counters of `numastat`, in the order in which they are shown.
pub const NODE_COUNTERS: [&str; 6] =
    ["numa_hit", "numa_miss", "numa_foreign", "interleave_hit", "local_node", "other_node"];

/// Counters of the whole machine that tell of pages being moved or checked, from `vmstat`.
pub const MACHINE_COUNTERS: [&str; 9] = [
    "numa_pte_updates",
    "numa_hint_faults",
    "numa_hint_faults_local",
    "numa_pages_migrated",
    "pgmigrate_success",
    "pgmigrate_fail",
    "pgdemote_kswapd",
    "pgdemote_direct",
    "pgpromote_success",
];

/// All counters at one moment.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When.
    pub at: Instant,
    /// Each node's counters.
    pub nodes: BTreeMap<usize, Counters>,
    /// Each node's memory.
    pub memory: BTreeMap<usize, Meminfo>,
    /// The machine's counters, those of [`MACHINE_COUNTERS`] that the kernel has.
    pub machine: Counters,
}

/// Reads all counters of the nodes given.
///
/// # Errors
/// [`InspectError::Io`] or [`InspectError::Format`] about a node's files.
pub fn sample(nodes: &[usize]) -> Result<Sample, InspectError> {
    sample_below(Path::new("/"), nodes)
}

/// As [`sample`], from a folder with copies of the files.
///
/// # Errors
/// As [`sample`].
pub fn sample_below(root: &Path, nodes: &[usize]) -> Result<Sample, InspectError> {
    let mut sample =
        Sample { at: Instant::now(), nodes: BTreeMap::new(), memory: BTreeMap::new(), machine: Counters::new() };
    for node in nodes {
        let folder = root.join(format!("sys/devices/system/node/node{node}"));
        sample.nodes.insert(*node, read(&folder.join("numastat"), parse_counters)?);
        sample.memory.insert(*node, read(&folder.join("meminfo"), parse_meminfo)?);
    }
    // Without vmstat (some containers hide it) the nodes' own counters are still there.
    if let Ok(text) = fs::read_to_string(root.join("proc/vmstat")) {
        let all = parse_counters(&text).map_err(|line| unknown(&root.join("proc/vmstat"), &line))?;
        sample.machine = all.into_iter().filter(|(name, _)| MACHINE_COUNTERS.contains(&name.as_str())).collect();
    }
    Ok(sample)
}

fn read<T>(path: &Path, parse: impl Fn(&str) -> Result<T, String>) -> Result<T, InspectError> {
    let text = fs::read_to_string(path).map_err(|error| InspectError::io(path, error))?;
    parse(&text).map_err(|line| unknown(path, &line))
}

fn unknown(path: &Path, line: &str) -> InspectError {
    InspectError::format(path, 0, "a line is not understood", line)
}

/// Counts a second between two samples. A counter that went backwards (a node that was off meanwhile) has no rate.
pub fn rates(before: &Counters, after: &Counters, seconds: f64) -> BTreeMap<String, f64> {
    let rate = |(name, now): (&String, &u64)| {
        let grown = now.checked_sub(*before.get(name)?)?;
        Some((name.clone(), grown as f64 / seconds))
    };
    if seconds > 0.0 { after.iter().filter_map(rate).collect() } else { BTreeMap::new() }
}

/// What a node's memory is used for, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeMemory {
    /// All of it.
    pub total: u64,
    /// Unused.
    pub free: u64,
    /// Cached files, shared memory left out.
    pub page_cache: u64,
    /// Shared memory.
    pub shared: u64,
    /// Private memory.
    pub private: u64,
    /// Transparent huge pages of private memory.
    pub transparent_huge: u64,
    /// Reserved huge pages of the default size: how many, and how many of them unused.
    pub huge_pages: (u64, u64),
}

impl NodeMemory {
    /// Out of a node's `meminfo`.
    pub fn of(fields: &Meminfo) -> NodeMemory {
        let get = |name: &str| fields.get(name).copied().unwrap_or(0);
        NodeMemory {
            total: get("MemTotal"),
            free: get("MemFree"),
            // The kernel counts shared memory among the file pages.
            page_cache: get("FilePages").saturating_sub(get("Shmem")),
            shared: get("Shmem"),
            private: get("AnonPages"),
            transparent_huge: get("AnonHugePages"),
            huge_pages: (get("HugePages_Total"), get("HugePages_Free")),
        }
    }
}

/// The sample in Prometheus' text format (version 0.0.4): counters as they are, the rates are the server's affair.
pub fn prometheus(sample: &Sample) -> String {
    let mut text = String::new();
    for name in NODE_COUNTERS {
        let has = sample.nodes.iter().filter_map(|(node, counters)| Some((node, counters.get(name)?)));
        let lines: Vec<String> =
            has.map(|(node, count)| format!("homenode_{name}_pages_total{{node=\"{node}\"}} {count}\n")).collect();
        if !lines.is_empty() {
            text.push_str(&format!("# TYPE homenode_{name}_pages_total counter\n{}", lines.concat()));
        }
    }
    for (name, count) in &sample.machine {
        text.push_str(&format!("# TYPE homenode_{name}_total counter\nhomenode_{name}_total {count}\n"));
    }
    type Gauge = (&'static str, fn(&NodeMemory) -> u64);
    let gauges: [Gauge; 8] = [
        ("node_memory_bytes", |memory| memory.total),
        ("node_free_bytes", |memory| memory.free),
        ("node_page_cache_bytes", |memory| memory.page_cache),
        ("node_shared_bytes", |memory| memory.shared),
        ("node_private_bytes", |memory| memory.private),
        ("node_transparent_huge_bytes", |memory| memory.transparent_huge),
        ("node_huge_pages", |memory| memory.huge_pages.0),
        ("node_huge_pages_free", |memory| memory.huge_pages.1),
    ];
    for (name, get) in gauges {
        text.push_str(&format!("# TYPE homenode_{name} gauge\n"));
        for (node, fields) in &sample.memory {
            text.push_str(&format!("homenode_{name}{{node=\"{node}\"}} {}\n", get(&NodeMemory::of(fields))));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(values: &[(&str, u64)]) -> Counters {
        values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    fn written() -> Sample {
        let nodes =
            BTreeMap::from([(0, counters(&[("numa_hit", 844), ("numa_miss", 5)])), (2, counters(&[("numa_hit", 7)]))]);
        let memory = BTreeMap::from([(
            0,
            Meminfo::from([("MemTotal".to_owned(), 1 << 30), ("FilePages".to_owned(), 900), ("Shmem".to_owned(), 400)]),
        )]);
        Sample { at: Instant::now(), nodes, memory, machine: counters(&[("pgmigrate_success", 3)]) }
    }

    #[test]
    fn rates_are_differences_by_time_and_never_negative() {
        let rates = rates(&counters(&[("a", 10), ("b", 10)]), &counters(&[("a", 30), ("b", 5), ("new", 9)]), 2.0);
        assert_eq!(rates, BTreeMap::from([("a".to_owned(), 10.0)]));
    }

    #[test]
    fn prometheus_reads_every_line() {
        let text = prometheus(&written());
        assert!(text.contains("homenode_numa_hit_pages_total{node=\"2\"} 7\n"), "{text}");
        assert!(text.contains("homenode_node_page_cache_bytes{node=\"0\"} 500\n"), "{text}");
        // What node 2 doesn't count is not shown as 0.
        assert!(!text.contains("numa_miss_pages_total{node=\"2\"}"), "{text}");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            assert!(line.rsplit_once(' ').is_some_and(|(_, value)| value.parse::<u64>().is_ok()), "{line}");
        }
    }

    #[test]
    fn this_machine_can_be_sampled_or_says_why_not() {
        if Path::new("/sys/devices/system/node/node0/numastat").exists() {
            let sample = sample(&[0]).unwrap();
            assert!(sample.nodes[&0].contains_key("numa_hit"));
            assert!(NodeMemory::of(&sample.memory[&0]).total > 0);
        }
        assert!(matches!(sample(&[99_999]), Err(InspectError::Io { .. })));
    }
}
