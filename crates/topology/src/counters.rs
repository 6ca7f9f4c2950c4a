//! What is a node's memory used for at this moment, and where did its pages go? The kernel's counters of one node, read anew
//! each time.

use std::collections::BTreeMap;
use std::path::Path;

/// One node's counters since the machine started, in pages, and its memory now, in bytes. `None` where the kernel shows none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeCounters {
    /// Pages taken from the node that were meant to come from it.
    pub numa_hit: Option<u64>,
    /// Pages taken from the node that were meant to come from another.
    pub numa_miss: Option<u64>,
    /// Pages meant to come from the node that another gave.
    pub numa_foreign: Option<u64>,
    /// Interleaved pages that came from the node as intended.
    pub interleave_hit: Option<u64>,
    /// Pages taken from the node by a process on it.
    pub local_node: Option<u64>,
    /// Pages taken from the node by a process on another.
    pub other_node: Option<u64>,
    /// Memory that nobody uses.
    pub free_bytes: Option<u64>,
    /// Page cache of files.
    pub file_cache_bytes: Option<u64>,
    /// Private memory of processes.
    pub anonymous_bytes: Option<u64>,
}

impl NodeCounters {
    /// Of node `id` of the running machine.
    pub fn read(id: usize) -> NodeCounters {
        NodeCounters::read_below(Path::new("/sys/devices/system/node"), id)
    }

    fn read_below(folder: &Path, id: usize) -> NodeCounters {
        let text = |file: &str| std::fs::read_to_string(folder.join(format!("node{id}/{file}"))).unwrap_or_default();
        NodeCounters::parse(&text("numastat"), &text("meminfo"))
    }

    /// From `numastat` ("numa_hit 123" a line) and `meminfo` ("Node 0 MemFree:  996096 kB" a line).
    fn parse(numastat: &str, meminfo: &str) -> NodeCounters {
        let pages: BTreeMap<&str, u64> = numastat
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter_map(|(name, count)| Some((name, count.trim().parse().ok()?)))
            .collect();
        let kib = |name: &str| {
            let mut fields = meminfo.lines().map(str::split_whitespace);
            let mut field = fields.find(|field| field.clone().nth(2).is_some_and(|found| found == name))?;
            field.nth(3)?.parse::<u64>().ok()?.checked_mul(1024)
        };
        let get = |name: &str| pages.get(name).copied();
        NodeCounters {
            numa_hit: get("numa_hit"),
            numa_miss: get("numa_miss"),
            numa_foreign: get("numa_foreign"),
            interleave_hit: get("interleave_hit"),
            local_node: get("local_node"),
            other_node: get("other_node"),
            free_bytes: kib("MemFree:"),
            file_cache_bytes: kib("FilePages:"),
            anonymous_bytes: kib("AnonPages:"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_understood() {
        let numastat = "numa_hit 8070\nnuma_miss 1\nnuma_foreign 2\ninterleave_hit 3\nlocal_node 8000\nother_node 70\n";
        let meminfo =
            "\nNode 1 MemTotal:        1031520 kB\nNode 1 MemFree:          996096 kB\nNode 1 FilePages: 12 kB\n";
        let counters = NodeCounters::parse(numastat, meminfo);
        assert_eq!((counters.numa_hit, counters.other_node), (Some(8070), Some(70)));
        assert_eq!((counters.free_bytes, counters.file_cache_bytes), (Some(996_096 * 1024), Some(12 * 1024)));
        assert_eq!(counters.anonymous_bytes, None);
        assert_eq!(NodeCounters::parse("what\nnuma_hit x", "Node 0 MemFree: much"), NodeCounters::default());
    }
}
