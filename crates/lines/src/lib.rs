//! Which cache lines are fought over? Accesses to memory, grouped by the line that they touched, and the one report of them.
//!
//! Whoever has [`Access`]es gets the same tables: samples of `perf` from a machine with the counters, or the lab's simulated machine,
//! which counts all of them and fills [`Line`]s itself. Lines are grouped by physical address where the samples have one, because
//! processes map one line at different virtual addresses.

mod report;
pub mod text;

pub use report::{READS_PER_WRITE, ToPart, View, line_page, table, to_part};

use std::collections::BTreeMap;

/// Bytes of a cache line on the machines that perf knows these events for.
pub const LINE_BYTES: u64 = 64;

/// Where a load found its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Found {
    /// In the core's own caches or fill buffers.
    Core,
    /// In a cache of this node, not modified elsewhere.
    LocalCache,
    /// Modified in another core's cache of this node (a local HITM; on Arm: supplied by a peer in the node).
    LocalModified,
    /// In another node's cache, not modified.
    RemoteCache,
    /// Modified in a cache of another node (a remote HITM; on Arm: supplied by a peer there).
    RemoteModified,
    /// In this node's memory.
    LocalMemory,
    /// In another node's memory.
    RemoteMemory,
    /// The sample doesn't say.
    Unknown,
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// A load, with where it found the line.
    Load(Found),
    /// A store, and whether it found the line in the core's first cache, ready to be written (`None`: not said).
    Store(Option<bool>),
}

/// A place in a program: a symbol of a file, and how far behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbol {
    /// The symbol's name.
    pub name: String,
    /// Bytes behind its address.
    pub offset: u64,
    /// Path of the program or library.
    pub file: String,
}

/// One sampled access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Program or thread name.
    pub command: String,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// CPU that it ran on.
    pub cpu: usize,
    /// What was done.
    pub what: What,
    /// Virtual address of the data.
    pub address: u64,
    /// Physical address of the data; 0 if not recorded.
    pub physical: u64,
    /// Cycles that it took; 0 if not recorded.
    pub latency_cycles: u64,
    /// Address of the instruction.
    pub instruction: u64,
    /// Function of the instruction; empty if not known.
    pub function: String,
    /// Callers, innermost first, as far as recorded.
    pub callers: Vec<String>,
    /// The instruction by symbol, where the samples say so.
    pub code: Option<Symbol>,
    /// The data by symbol, where it is a variable of a program.
    pub data: Option<Symbol>,
    /// `struct.field` of the data, where debug information or the simulated machine tells.
    pub field: Option<String>,
}

impl Access {
    /// What names the line: its physical address where there is one.
    fn line(&self) -> u64 {
        let address = if self.physical == 0 { self.address } else { self.physical };
        address & !(LINE_BYTES - 1)
    }

    fn offset(&self) -> u64 {
        // Lines keep their offset under any mapping.
        self.address & (LINE_BYTES - 1)
    }
}

/// Counts of one line, or of one place in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Samples.
    pub records: u64,
    /// Loads by where they found the line.
    pub loads: BTreeMap<Found, u64>,
    /// Stores.
    pub stores: u64,
    /// Stores that did not find the line ready in the first cache.
    pub store_misses: u64,
    /// What those that have a latency took, all together: cycles, or whatever the source counts in.
    pub latency_sum: u64,
    /// How many those are.
    pub latency_samples: u64,
}

impl Counts {
    /// Adds what another place counted.
    pub fn merge(&mut self, other: &Counts) {
        self.records += other.records;
        for (found, loads) in &other.loads {
            *self.loads.entry(*found).or_default() += loads;
        }
        self.stores += other.stores;
        self.store_misses += other.store_misses;
        self.latency_sum += other.latency_sum;
        self.latency_samples += other.latency_samples;
    }

    fn add(&mut self, access: &Access) {
        self.records += 1;
        match access.what {
            What::Load(found) => *self.loads.entry(found).or_default() += 1,
            What::Store(hit) => {
                self.stores += 1;
                self.store_misses += u64::from(hit == Some(false));
            }
        }
        if access.latency_cycles > 0 {
            self.latency_sum += access.latency_cycles;
            self.latency_samples += 1;
        }
    }

    /// Loads of one kind.
    pub fn found(&self, found: Found) -> u64 {
        self.loads.get(&found).copied().unwrap_or(0)
    }

    /// Loads that found the line modified by another core: each is one move of the line, with somebody waiting.
    pub fn modified(&self) -> u64 {
        self.found(Found::LocalModified) + self.found(Found::RemoteModified)
    }

    /// Mean of the samples that have a latency; `None` without any.
    pub fn mean_latency(&self) -> Option<f64> {
        (self.latency_samples > 0).then(|| self.latency_sum as f64 / self.latency_samples as f64)
    }
}

/// One place in a line: an offset, accessed by one instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// What was counted.
    pub counts: Counts,
    /// CPUs that accessed it.
    pub cpus: Vec<usize>,
    /// Function of the instruction.
    pub function: String,
    /// `struct.field`, where known.
    pub field: Option<String>,
    /// Sampled call stacks, innermost function first, with how often each was seen.
    pub callers: BTreeMap<Vec<String>, u64>,
}

impl Place {
    /// Its sampled stacks, those seen most first.
    pub fn by_count(&self) -> Vec<(&[String], u64)> {
        let mut stacks: Vec<(&[String], u64)> =
            self.callers.iter().map(|(stack, samples)| (&stack[..], *samples)).collect();
        stacks.sort_by_key(|(_, samples)| std::cmp::Reverse(*samples));
        stacks
    }
}

/// One line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Its address: physical where the samples have one.
    pub address: u64,
    /// Whether that is a physical one.
    pub is_physical: bool,
    /// A virtual address of it.
    pub virtual_address: u64,
    /// The node that its memory is on, where known.
    pub memory_node: Option<usize>,
    /// All of it.
    pub counts: Counts,
    /// By offset and instruction.
    pub places: BTreeMap<(u64, u64), Place>,
    /// CPUs that accessed it, ascending.
    pub cpus: Vec<usize>,
    /// Programs that accessed it, ascending.
    pub commands: Vec<String>,
}

impl Line {
    /// The field at an offset, where some place knows it.
    pub fn field(&self, offset: u64) -> Option<&str> {
        let mut here = self.places.range((offset, 0)..=(offset, u64::MAX));
        here.find_map(|(_, place)| place.field.as_deref())
    }
}

/// Groups accesses by line; those fought over most come first.
pub fn lines(accesses: &[Access]) -> Vec<Line> {
    let mut lines: BTreeMap<u64, Line> = BTreeMap::new();
    for access in accesses {
        let line = lines.entry(access.line()).or_default();
        line.address = access.line();
        line.is_physical = access.physical != 0;
        line.virtual_address = access.address & !(LINE_BYTES - 1);
        line.counts.add(access);
        insert(&mut line.cpus, access.cpu);
        insert(&mut line.commands, access.command.clone());
        let place = line.places.entry((access.offset(), access.instruction)).or_default();
        place.counts.add(access);
        insert(&mut place.cpus, access.cpu);
        place.function.clone_from(&access.function);
        if access.field.is_some() {
            place.field.clone_from(&access.field);
        }
        if !access.callers.is_empty() {
            *place.callers.entry(access.callers.clone()).or_default() += 1;
        }
    }
    let mut lines: Vec<Line> = lines.into_values().collect();
    lines
        .sort_by_key(|line| std::cmp::Reverse((line.counts.modified(), line.counts.store_misses, line.counts.records)));
    lines
}

fn insert<T: Ord>(list: &mut Vec<T>, item: T) {
    if let Err(at) = list.binary_search(&item) {
        list.insert(at, item);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn access(what: What, address: u64, physical: u64, cpu: usize) -> Access {
        Access {
            command: "postgres".to_owned(),
            pid: 1,
            tid: 1,
            cpu,
            what,
            address,
            physical,
            latency_cycles: 100 * cpu as u64,
            instruction: address & 0xff,
            function: "PinBuffer".to_owned(),
            callers: Vec::new(),
            code: None,
            data: None,
            field: None,
        }
    }

    #[test]
    fn one_line_at_two_virtual_addresses_is_one() {
        let load = What::Load(Found::RemoteModified);
        let accesses = [
            access(load, 0x7f00_0000_1018, 0x1_0000_2018, 1),
            access(What::Store(Some(false)), 0x7e00_0000_5000, 0x1_0000_2000, 2),
            access(load, 0x7f00_0000_9018, 0x1_0000_9018, 1),
        ];
        let lines = lines(&accesses);
        assert_eq!(lines.len(), 2);
        assert_eq!((lines[0].address, lines[0].counts.records, lines[0].counts.stores), (0x1_0000_2000, 2, 1));
        assert_eq!(lines[0].cpus, [1, 2]);
        assert_eq!(lines[0].counts.mean_latency(), Some(150.0));
        assert_eq!(lines[0].places.keys().map(|(offset, _)| *offset).collect::<Vec<_>>(), [0, 0x18]);
    }
}
