//! Which machine is simulated? Text files of machines, each with its sources, and the topology that the engine is shown.

use homenode_platform::lab::sim::{Device, Hardware, Link, NodeSpec, Threading};
use homenode_topology::Topology;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The machines that come with the lab, by name.
pub const ALL: &[(&str, &str)] = &[
    ("laptop", include_str!("../machines/laptop.txt")),
    ("workstation-2s", include_str!("../machines/workstation-2s.txt")),
    ("xeon-6442y-2s", include_str!("../machines/xeon-6442y-2s.txt")),
    ("xeon-6151-2s", include_str!("../machines/xeon-6151-2s.txt")),
    ("kunpeng-920", include_str!("../machines/kunpeng-920.txt")),
    ("xeon-4s", include_str!("../machines/xeon-4s.txt")),
    ("genoa-2s", include_str!("../machines/genoa-2s.txt")),
    ("blades-16s", include_str!("../machines/blades-16s.txt")),
];

/// A machine with its description.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// One line.
    pub about: String,
    /// What it is built of; without its far memory.
    pub hardware: Hardware,
    /// A node of slow memory without cores, which can be added.
    pub far_memory: Option<NodeSpec>,
}

/// Finds a machine by its name, or reads it from a file.
///
/// # Errors
/// A sentence with the name of the machine or file, and for a file the line.
pub fn find(name: &str) -> Result<Machine, String> {
    if let Some((_, text)) = ALL.iter().find(|(known, _)| *known == name) {
        return parse(text).map_err(|error| format!("machine {name}: {error}"));
    }
    if !name.contains(['/', '.']) {
        let names: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
        return Err(format!("there is no machine '{name}'; known are {}, or give a file", names.join(", ")));
    }
    let text = std::fs::read_to_string(name).map_err(|error| format!("machine file {name}: {error}"))?;
    parse(&text).map_err(|error| format!("machine file {name}: {error}"))
}

/// Keys that may be left out, with what they are then.
const DEFAULTS: &[(&str, f64)] = &[
    ("blades", 1.0),
    ("near_hitm_home_owner_ns", 0.0),
    ("near_hitm_home_reader_ns", 0.0),
    ("near_memory_ns", 0.0),
    ("near_gbs", 0.0),
    ("far_hitm_home_owner_ns", 0.0),
    ("far_hitm_home_reader_ns", 0.0),
    ("far_memory_ns", 0.0),
    ("far_gbs", 0.0),
    ("blade_hitm_home_owner_ns", 0.0),
    ("blade_hitm_home_reader_ns", 0.0),
    ("blade_memory_ns", 0.0),
    ("blade_gbs", 0.0),
    ("expander_ns", 0.0),
    ("expander_gbs", 0.0),
    // The line stays at least for a failed compare-and-swap and its retry: two atomics and the few instructions between.
    ("hold_ns", 15.0),
    ("stream_lines", 12.0),
    // A switch between coroutines and between threads, and a wake-up between threads (ARCHITECTURE.md: about 3 us).
    ("task_switch_ns", 60.0),
    ("thread_switch_ns", 1500.0),
    ("wake_ns", 3000.0),
    ("waker_ns", 800.0),
    // Linux: a task of several runs for 3 ms by default (kernel/sched/fair.c, sysctl_sched_base_slice).
    ("slice_us", 3000.0),
    // A data-centre NVMe drive with power-loss protection.
    ("device_node", 0.0),
    ("device_read_us", 80.0),
    ("device_sync_us", 20.0),
    ("device_gbs", 3.0),
    ("device_queue_depth", 64.0),
];

/// Keys that a machine must have.
const REQUIRED: &[&str] = &[
    "sockets",
    "nodes_per_socket",
    "groups_per_node",
    "cores_per_group",
    "private_kib",
    "l3_kib",
    "hit_ns",
    "atomic_ns",
    "fence_ns",
    "pause_ns",
    "l3_ns",
    "group_hitm_ns",
    "node_hitm_ns",
    "memory_ns",
    "memory_gbs",
];

/// Reads a machine's text: `key = value` lines, comments after `#`.
///
/// # Errors
/// A sentence that names the line or the key.
pub fn parse(text: &str) -> Result<Machine, String> {
    let values = Values::read(text)?;
    let count = |key: &str| -> Result<usize, String> {
        let value = values.number(key);
        let fits = value.fract() == 0.0 && (1.0..=1024.0).contains(&value);
        if fits { Ok(value as usize) } else { Err(format!("{key} is a number from 1 to 1024, not {value}")) }
    };
    let (sockets, per_socket) = (count("sockets")?, count("nodes_per_socket")?);
    let blades = count("blades")?;
    let groups = vec![count("cores_per_group")?; count("groups_per_node")?];
    if !sockets.is_multiple_of(blades) {
        return Err(format!("{sockets} sockets cannot be divided among {blades} blades"));
    }
    let node = |number: usize| NodeSpec {
        socket: number / per_socket,
        blade: number / per_socket / (sockets / blades),
        groups: groups.clone(),
        memory_ns: values.number("memory_ns"),
        memory_gbs: values.number("memory_gbs"),
    };
    let far_memory = (values.number("expander_ns") > 0.0).then(|| NodeSpec {
        socket: 0,
        blade: 0,
        groups: Vec::new(),
        memory_ns: values.number("expander_ns"),
        memory_gbs: values.number("expander_gbs"),
    });
    let hardware = Hardware {
        name: values.text("name").to_owned(),
        nodes: (0..sockets * per_socket).map(node).collect(),
        private_bytes: values.bytes("private_kib"),
        l3_bytes: values.bytes("l3_kib"),
        hit_ns: values.number("hit_ns"),
        atomic_ns: values.number("atomic_ns"),
        fence_ns: values.number("fence_ns"),
        pause_ns: values.number("pause_ns"),
        l3_ns: values.number("l3_ns"),
        group_hitm_ns: values.number("group_hitm_ns"),
        node_hitm_ns: values.number("node_hitm_ns"),
        hold_ns: values.number("hold_ns"),
        stream_lines: values.number("stream_lines"),
        near: values.link("near", per_socket > 1)?,
        far: values.link("far", sockets > blades)?,
        blade: values.link("blade", blades > 1)?,
        threading: Threading {
            task_switch_ns: values.number("task_switch_ns"),
            thread_switch_ns: values.number("thread_switch_ns"),
            wake_ns: values.number("wake_ns"),
            waker_ns: values.number("waker_ns"),
            slice_ns: values.number("slice_us") * 1000.0,
        },
        device: Device {
            node: values.number("device_node") as usize,
            read_ns: values.number("device_read_us") * 1000.0,
            sync_ns: values.number("device_sync_us") * 1000.0,
            gbs: values.number("device_gbs"),
            queue_depth: count("device_queue_depth")?,
        },
    };
    hardware.check()?;
    if hardware.device.node >= hardware.nodes.len() {
        return Err(format!("device_node {} is none of the {} nodes", hardware.device.node, hardware.nodes.len()));
    }
    Ok(Machine { about: values.text("about").to_owned(), hardware, far_memory })
}

struct Values {
    numbers: BTreeMap<String, f64>,
    texts: BTreeMap<String, String>,
}

impl Values {
    fn read(text: &str) -> Result<Values, String> {
        let mut values = Values { numbers: BTreeMap::new(), texts: BTreeMap::new() };
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or("").trim();
            if line.is_empty() {
                continue;
            }
            let Some((key, value)) = line.split_once('=') else {
                return Err(format!("line {number}: '{line}' is not 'key = value'"));
            };
            let (key, value) = (key.trim(), value.trim());
            if matches!(key, "name" | "about") {
                values.texts.insert(key.to_owned(), value.to_owned());
                continue;
            }
            if !REQUIRED.contains(&key) && !DEFAULTS.iter().any(|(known, _)| *known == key) {
                return Err(format!("line {number}: '{key}' is not known"));
            }
            let parsed: Option<f64> = value.parse().ok().filter(|value: &f64| value.is_finite() && *value >= 0.0);
            let Some(parsed) = parsed else {
                return Err(format!("line {number}: {key} is a number of at least 0, not '{value}'"));
            };
            values.numbers.insert(key.to_owned(), parsed);
        }
        if let Some(missing) = REQUIRED.iter().find(|key| !values.numbers.contains_key(**key)) {
            return Err(format!("{missing} is missing"));
        }
        for (key, default) in DEFAULTS {
            values.numbers.entry((*key).to_owned()).or_insert(*default);
        }
        for key in ["hit_ns", "memory_gbs", "stream_lines", "device_gbs"] {
            if values.number(key) == 0.0 {
                return Err(format!("{key} cannot be 0"));
            }
        }
        Ok(values)
    }

    fn number(&self, key: &str) -> f64 {
        self.numbers.get(key).copied().unwrap_or(0.0)
    }

    fn bytes(&self, key: &str) -> usize {
        (self.number(key) * 1024.0) as usize
    }

    fn text(&self, key: &str) -> &str {
        self.texts.get(key).map_or("unnamed", String::as_str)
    }

    fn link(&self, kind: &str, needed: bool) -> Result<Link, String> {
        let number = |what: &str| -> Result<f64, String> {
            let key = format!("{kind}_{what}");
            let value = self.number(&key);
            if needed && value == 0.0 { Err(format!("{key} is missing")) } else { Ok(value.max(0.001)) }
        };
        Ok(Link {
            hitm_home_owner_ns: number("hitm_home_owner_ns")?,
            hitm_home_reader_ns: number("hitm_home_reader_ns")?,
            memory_ns: number("memory_ns")?,
            gbs: number("gbs")?,
        })
    }
}

/// What the kernel would show of the machine: the files that the engine's view of it is read from.
pub fn topology(hardware: &Hardware) -> Topology {
    let mut text = String::new();
    let cores = hardware.cores();
    let ranges = hardware.cores_of_nodes();
    let nodes = hardware.nodes.len();
    let mut line = |text_line: String| {
        let _ = writeln!(text, "{text_line}");
    };
    line("proc/cpuinfo:".to_owned());
    (0..cores).for_each(|core| line(format!("| processor\t: {core}")));
    line(format!("sys/devices/system/cpu/online: 0-{}", cores - 1));
    line(format!("sys/devices/system/node/online: 0-{}", nodes - 1));
    line(format!("sys/devices/system/node/has_memory: 0-{}", nodes - 1));
    let mut group_start = 0;
    for (number, (node, range)) in hardware.nodes.iter().zip(&ranges).enumerate() {
        let list = if range.is_empty() { String::new() } else { format!("{}-{}", range.start, range.end - 1) };
        let path = format!("sys/devices/system/node/node{number}");
        line(format!("{path}/cpulist: {list}"));
        let distances: Vec<String> = (0..nodes).map(|other| distance(hardware, number, other).to_string()).collect();
        line(format!("{path}/distance: {}", distances.join(" ")));
        line(format!("{path}/meminfo:"));
        line(format!("| Node {number} MemTotal:       134217728 kB"));
        line(format!("| Node {number} MemFree:        130023424 kB"));
        for &size in &node.groups {
            for core in group_start..group_start + size {
                let path = format!("sys/devices/system/cpu/cpu{core}");
                line(format!("{path}/topology/core_id: {core}"));
                line(format!("{path}/topology/physical_package_id: {}", node.socket));
                line(format!("{path}/cache/index3/level: 3"));
                line(format!("{path}/cache/index3/shared_cpu_list: {group_start}-{}", group_start + size - 1));
                line(format!("{path}/cache/index3/size: {}K", hardware.l3_bytes >> 10));
            }
            group_start += size;
        }
    }
    Topology::from_bundle(&text).expect("the text is well formed")
}

/// A distance as firmware states it: ten times the ratio to local memory.
fn distance(hardware: &Hardware, a: usize, b: usize) -> u32 {
    if a == b {
        return 10;
    }
    let ratio = hardware.link(a, b).memory_ns / hardware.nodes[a].memory_ns;
    (10.0 * ratio).round().clamp(11.0, 254.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_is_sound_and_its_topology_is_as_described() {
        for (name, _) in ALL {
            let machine = find(name).unwrap();
            assert_eq!(machine.hardware.name, *name);
            let topology = topology(&machine.hardware);
            assert_eq!(topology.nodes().len(), machine.hardware.nodes.len(), "{name}");
            assert_eq!(topology.cpus().len(), machine.hardware.cores(), "{name}");
            let groups: usize = machine.hardware.nodes.iter().map(|node| node.groups.len()).sum();
            assert_eq!(topology.l3_groups().len(), groups, "{name}");
            assert!(topology.notes().iter().all(|note| !note.path.contains("distance")), "{name}");
        }
    }

    #[test]
    fn nonsense_is_named_with_its_line() {
        let good = ALL.iter().find(|(name, _)| *name == "xeon-4s").unwrap().1;
        for (from, to, says) in [
            ("memory_ns = 78", "memory_ns = -78", "memory_ns is a number of at least 0"),
            ("memory_ns = 78", "memory_ns = fast", "memory_ns is a number of at least 0"),
            ("memory_gbs = 113", "", "memory_gbs is missing"),
            ("memory_gbs = 113", "memory_gbs = 0", "memory_gbs cannot be 0"),
            ("cores_per_group = 24", "cores_per_group = 500", "1 to 320 cores"),
            ("sockets = 4", "socket = 4", "'socket' is not known"),
            ("sockets = 4", "sockets 4", "is not 'key = value'"),
            ("sockets = 4", "sockets = 2.5", "sockets is a number from 1 to 1024"),
            ("far_gbs = 51", "", "far_gbs is missing"),
        ] {
            let error = parse(&good.replace(from, to)).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        assert!(find("cray").unwrap_err().contains("there is no machine 'cray'"));
    }
}
