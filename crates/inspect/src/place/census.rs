//! How much of each object is on each node? All mappings of all processes of a server, summed.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};

use homenode_memory::foreign;
use homenode_topology::Topology;

use super::object::{classify, could_be_pool, is_hugetlb, is_shared_memory};
use super::union::{Instance, Pages, Union, unite, unite_sums};
use super::{Kind, Server, ServerKind, imbalance};
use crate::InspectError;
use crate::proc::{Mapping, NumaLine, Pagemap, Records, explain, marks, parse_maps_line, parse_numa_line, path};

/// Device and inode.
pub(super) type FileId = (u32, u32, u64);

/// One object of the server, or all of one kind that are not worth telling apart.
#[derive(Clone, Debug)]
pub struct ObjectCensus {
    /// Its kind.
    pub kind: Kind,
    /// Its name for people.
    pub name: String,
    /// Bytes of address space.
    pub mapped_bytes: u64,
    /// Bytes present on each node.
    pub by_node: BTreeMap<usize, u64>,
    /// Bytes of these that no process has in its tables.
    pub in_no_process: u64,
    /// Policies as the kernel writes them, of the mappings that have pages.
    pub policies: BTreeSet<String>,
    /// Sizes of its pages in bytes.
    pub page_bytes: BTreeSet<u64>,
    /// Processes that map it.
    pub processes: usize,
    /// The mappings, for objects that are shared.
    pub instances: Vec<Instance>,
}

impl ObjectCensus {
    /// Bytes present on all nodes.
    pub fn present_bytes(&self) -> u64 {
        self.by_node.values().sum()
    }
}

/// A server's memory.
#[derive(Clone, Debug)]
pub struct Census {
    /// The objects, by kind, then large to small.
    pub objects: Vec<ObjectCensus>,
    /// What the reader should know about these numbers.
    pub notes: Vec<String>,
    /// Processes that could be looked at.
    pub processes: usize,
}

impl Census {
    /// Bytes on each node of what is the server's own: without program, libraries and other files.
    pub fn own_by_node(&self) -> BTreeMap<usize, u64> {
        let mut sum = BTreeMap::new();
        for object in self.objects.iter().filter(|object| object.kind < Kind::Library) {
            for (node, bytes) in &object.by_node {
                *sum.entry(*node).or_default() += bytes;
            }
        }
        sum
    }

    /// The imbalance of the server's own memory over the machine's nodes with memory.
    pub fn imbalance(&self, topology: &Topology) -> f64 {
        imbalance(&self.own_by_node(), topology.memory_nodes().len())
    }
}

/// Takes the census. `pages`, if there, hears of every page of the largest piece of shared memory: its offset in bytes and its node.
///
/// # Errors
/// [`InspectError::NotPermitted`], [`InspectError::Format`], [`InspectError::Vanished`] if no process is left to look at.
pub fn take(server: &Server, pages: Option<Pages<'_>>) -> Result<Census, InspectError> {
    let mut gather = Gather::default();
    let mut vanished = None;
    for process in &server.processes {
        match gather.process(process.pid, server) {
            Ok(()) => gather.seen += 1,
            Err(InspectError::Vanished(pid)) => vanished = Some(pid),
            Err(error) => return Err(error),
        }
    }
    if gather.seen == 0 {
        return Err(InspectError::Vanished(vanished.unwrap_or(server.pid())));
    }
    let census = gather.finish(pages)?;
    // Half a count of a server that ended meanwhile would be a wrong number.
    if !path(server.pid(), "maps").exists() {
        return Err(InspectError::Vanished(server.pid()));
    }
    Ok(census)
}

#[derive(Default)]
struct Gather {
    seen: usize,
    changed: u64,
    /// Mappings of the process that core dumps leave out, where that says something.
    undumped: Option<BTreeSet<u64>>,
    /// Shared objects, counted page by page at the end.
    shared: BTreeMap<(Kind, String, FileId), Parts>,
    /// Everything else.
    private: BTreeMap<(Kind, String), Parts>,
}

/// What was gathered of one object.
#[derive(Default)]
struct Parts {
    mapped_bytes: u64,
    by_node: BTreeMap<usize, u64>,
    policies: BTreeSet<String>,
    page_bytes: BTreeSet<u64>,
    processes: BTreeSet<u32>,
    /// Mappings to be counted page by page.
    instances: Vec<Instance>,
}

impl Gather {
    fn process(&mut self, pid: u32, server: &Server) -> Result<(), InspectError> {
        let mappings = read_mappings(pid)?;
        self.undumped = match server.kind {
            ServerKind::MariaDb => undumped_pool(pid, &mappings),
            _ => None,
        };
        let path = path(pid, "numa_maps");
        let file = File::open(&path).map_err(|error| no_numa_maps(pid, &path, error))?;
        self.lines(pid, &mappings, Records::new(BufReader::new(file), &path, parse_numa_line), server)
    }

    /// Joins mappings with their lines of `numa_maps`; both are ascending.
    fn lines(
        &mut self,
        pid: u32,
        mappings: &[Mapping],
        mut lines: Records<impl BufRead, NumaLine>,
        server: &Server,
    ) -> Result<(), InspectError> {
        let programs: Vec<FileId> = mappings
            .iter()
            .filter(|m| m.executable && m.inode != 0)
            .map(file_id)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let mut rest = mappings.iter().peekable();
        while let Some(line) = lines.next_record().map_err(|error| vanished(pid, error))? {
            // What is in one only came or went in between.
            while rest.next_if(|mapping| mapping.start < line.start).is_some() {}
            match rest.next_if(|mapping| mapping.start == line.start) {
                Some(mapping) => self.mapping(pid, mapping, &line, server, &programs),
                None => self.changed += line.present_bytes(),
            }
        }
        Ok(())
    }

    fn mapping(&mut self, pid: u32, mapping: &Mapping, line: &NumaLine, server: &Server, programs: &[FileId]) {
        let (kind, name) = classify(mapping, server.kind, programs, self.undumped.as_ref());
        if kind == Kind::Kernel {
            return;
        }
        let present_bytes = line.present_bytes();
        let instance = Instance { pid, start: mapping.start, end: mapping.end, offset: mapping.offset, present_bytes };
        let is_shared = mapping.shared && (mapping.inode != 0 || is_shared_memory(mapping));
        let parts = if is_shared {
            let parts = self.shared.entry((kind, name, file_id(mapping))).or_default();
            parts.mapped_bytes = parts.mapped_bytes.max(mapping.offset + mapping.bytes());
            parts.instances.push(instance);
            parts
        } else {
            let parts = self.private.entry((kind, name)).or_default();
            parts.mapped_bytes += mapping.bytes();
            if line.mapped_by_max > 1 && present_bytes > 0 {
                // Pages that a fork left shared, or of a library: counted once, not in every process.
                parts.instances.push(instance);
            } else {
                line.by_node.iter().for_each(|(node, bytes)| *parts.by_node.entry(*node).or_default() += bytes);
            }
            parts
        };
        parts.processes.insert(pid);
        if present_bytes > 0 {
            parts.policies.insert(line.policy.clone());
            parts.page_bytes.insert(line.page_bytes);
        }
    }

    fn finish(self, mut pages: Option<Pages<'_>>) -> Result<Census, InspectError> {
        let mut notes = Vec::new();
        let mut objects = Vec::new();
        let largest = self.shared.iter().filter(|(key, _)| key.0 == Kind::SharedMemory);
        let largest = largest.max_by_key(|(_, parts)| parts.mapped_bytes).map(|(key, _)| key.clone());
        let (mut incomplete, mut huge) = (false, false);
        for (key, parts) in self.shared {
            let is_huge = parts.page_bytes.iter().any(|bytes| *bytes > 65_536);
            let look_inside = key.0 == Kind::SharedMemory && !is_huge;
            huge |= key.0 == Kind::SharedMemory && is_huge;
            let union = match &mut pages {
                Some(hears) if Some(&key) == largest.as_ref() => unite(&parts.instances, look_inside, *hears)?,
                _ => unite_sums(&parts.instances, look_inside)?,
            };
            incomplete |= look_inside && !union.complete;
            objects.push(parts.shared_object(key.0, key.1, union));
        }
        let mut frames = Frames::default();
        for ((kind, name), mut parts) in self.private {
            for instance in std::mem::take(&mut parts.instances) {
                frames.count(&instance, &mut parts.by_node)?;
            }
            objects.push(parts.object(kind, name));
        }
        if incomplete {
            notes.push(
                "pages of shared memory that no living process has touched are not counted (CAP_SYS_ADMIN would show them)"
                    .to_owned(),
            );
        }
        if huge {
            let text = "of shared memory in reserved huge pages only what living processes have touched is counted: \
                the kernel has no way to ask for the rest that would not make it present";
            notes.push(text.to_owned());
        }
        if frames.hidden_bytes > 0 {
            notes.push(format!(
                "up to {} of memory that processes share (libraries, pages from before a fork) may be counted more than once \
                 (CAP_SYS_ADMIN would tell them apart)",
                crate::text::size(frames.hidden_bytes)
            ));
        }
        if frames.unknown_bytes > 0 {
            let bytes = crate::text::size(frames.unknown_bytes);
            notes
                .push(format!("of {bytes} of private memory and libraries the kernel told no node; they are left out"));
        }
        if self.changed > 0 {
            let bytes = crate::text::size(self.changed);
            notes.push(format!("{bytes} changed while being looked at and are left out"));
        }
        let mut objects = merged(objects);
        objects.retain(|object| object.mapped_bytes > 0);
        objects.sort_by_key(|object| (object.kind, std::cmp::Reverse(object.present_bytes())));
        Ok(Census { objects, notes, processes: self.seen })
    }
}

impl Parts {
    fn object(self, kind: Kind, name: String) -> ObjectCensus {
        ObjectCensus {
            kind,
            name,
            mapped_bytes: self.mapped_bytes,
            by_node: self.by_node,
            in_no_process: 0,
            policies: self.policies,
            page_bytes: self.page_bytes,
            processes: self.processes.len(),
            instances: self.instances,
        }
    }

    fn shared_object(self, kind: Kind, name: String, union: Union) -> ObjectCensus {
        let mut object = self.object(kind, name);
        object.by_node = union.by_node;
        object.in_no_process = union.in_no_process;
        object
    }
}

/// Page frames that were counted already.
#[derive(Default)]
struct Frames {
    counted: HashSet<u64>,
    hidden_bytes: u64,
    /// Bytes that the kernel gave no node for.
    unknown_bytes: u64,
}

impl Frames {
    /// Adds the pages of a private mapping, those that others have too only if they weren't counted before.
    fn count(&mut self, instance: &Instance, by_node: &mut BTreeMap<usize, u64>) -> Result<(), InspectError> {
        const PAGES: u64 = 16_384;
        let page = foreign::small_page_bytes() as u64;
        let mut pagemap = match Pagemap::open(instance.pid, page) {
            Ok(pagemap) => pagemap,
            Err(InspectError::Vanished(_)) => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut start = instance.start;
        while start < instance.end {
            let pages = ((instance.end - start) / page).min(PAGES);
            let mut addresses = Vec::new();
            for (index, entry) in pagemap.read(start, pages as usize)?.enumerate() {
                let address = start as usize + index * page as usize;
                match entry.frame() {
                    _ if !entry.is_present() => {}
                    _ if entry.is_exclusive() => addresses.push(address),
                    Some(frame) if !self.counted.insert(frame) => {}
                    Some(_) => addresses.push(address),
                    None => {
                        self.hidden_bytes += page;
                        addresses.push(address);
                    }
                }
            }
            // A process that ended meanwhile has no pages left to count.
            for status in foreign::page_statuses(instance.pid, &addresses).unwrap_or_default() {
                match usize::try_from(status) {
                    Ok(node) => *by_node.entry(node).or_default() += page,
                    // Linux 6.1 to 6.4 deny pages that automatic balancing has marked.
                    Err(_) => self.unknown_bytes += page,
                }
            }
            start += pages.max(1) * page;
        }
        Ok(())
    }
}

/// Objects of one kind and name become one: a server has many mapped files and segments.
fn merged(objects: Vec<ObjectCensus>) -> Vec<ObjectCensus> {
    let mut by_name: BTreeMap<(Kind, String), ObjectCensus> = BTreeMap::new();
    for object in objects {
        match by_name.entry((object.kind, object.name.clone())) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(object);
            }
            std::collections::btree_map::Entry::Occupied(mut entry) => {
                let sum = entry.get_mut();
                sum.mapped_bytes += object.mapped_bytes;
                object.by_node.iter().for_each(|(node, bytes)| *sum.by_node.entry(*node).or_default() += bytes);
                sum.in_no_process += object.in_no_process;
                sum.policies.extend(object.policies);
                sum.page_bytes.extend(object.page_bytes);
                sum.processes = sum.processes.max(object.processes);
                sum.instances.extend(object.instances);
            }
        }
    }
    by_name.into_values().collect()
}

/// Which of the mappings that could be InnoDB's pool are kept out of core dumps; `None` if none is (MySQL dumps its pool unless it is told
/// otherwise), or if that can't be read.
fn undumped_pool(pid: u32, mappings: &[Mapping]) -> Option<BTreeSet<u64>> {
    let mut undumped = marks(pid).ok()?.undumped;
    undumped.retain(|start| mappings.iter().any(|mapping| mapping.start == *start && could_be_pool(mapping)));
    if undumped.is_empty() { None } else { Some(undumped) }
}

fn file_id(mapping: &Mapping) -> FileId {
    (mapping.device.0, mapping.device.1, mapping.inode)
}

fn read_mappings(pid: u32) -> Result<Vec<Mapping>, InspectError> {
    let path = path(pid, "maps");
    let file = File::open(&path).map_err(|error| explain(pid, &path, error))?;
    let mut reader = Records::new(BufReader::new(file), &path, parse_maps_line);
    let mut mappings = Vec::new();
    while let Some(mapping) = reader.next_record().map_err(|error| vanished(pid, error))? {
        mappings.push(mapping);
    }
    if mappings.is_empty() {
        // A process that is ending, or a thread of the kernel.
        return Err(InspectError::Vanished(pid));
    }
    Ok(mappings)
}

/// Reading goes on after a process ended, with an error: that is no damaged file.
fn vanished(pid: u32, error: InspectError) -> InspectError {
    match error {
        InspectError::Io { path, source } => explain(pid, &path, source),
        other => other,
    }
}

fn no_numa_maps(pid: u32, path: &std::path::Path, error: std::io::Error) -> InspectError {
    if error.kind() == std::io::ErrorKind::NotFound && fs::metadata(format!("/proc/{pid}")).is_ok() {
        return InspectError::Refused(
            "this kernel has no numa_maps (built without CONFIG_NUMA, or not Linux): there is one node, and nothing to tell"
                .to_owned(),
        );
    }
    explain(pid, path, error)
}

/// Reads a process's mappings of shared memory, for moving them.
///
/// # Errors
/// As [`take`].
pub(crate) fn mappings_of(pid: u32) -> Result<Vec<Mapping>, InspectError> {
    read_mappings(pid)
}

/// Whether a mapping is of shared memory, and whether of reserved huge pages.
pub(crate) fn shared_memory(mapping: &Mapping) -> (bool, bool) {
    (is_shared_memory(mapping), is_hugetlb(&mapping.name))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::path::Path;
    use std::time::Instant;

    use super::*;
    use crate::place::{Who, find};
    use crate::proc::processes;

    fn this_process() -> Server {
        find(&Who::Pid(std::process::id()), &processes()).unwrap()
    }

    /// Two hundred thousand mappings with 100 GiB in them, one of a terabyte with nothing.
    #[test]
    fn a_large_process_is_counted_quickly() {
        const COUNT: u64 = 200_000;
        let (mut maps, mut numa) = (String::new(), String::new());
        for index in 0..COUNT {
            let start = 0x7000_0000_0000 + index * (1 << 20);
            writeln!(maps, "{start:x}-{:x} rw-p 00000000 00:00 0 ", start + (512 << 10)).unwrap();
            writeln!(numa, "{start:x} default anon=128 dirty=128 N{}=128 kernelpagesize_kB=4", index % 4).unwrap();
        }
        writeln!(maps, "7fff00000000-80ff00000000 rw-p 00000000 00:00 0 ").unwrap();
        writeln!(numa, "7fff00000000 interleave:0-3").unwrap();
        let begun = Instant::now();
        let mut reader = Records::new(maps.as_bytes(), Path::new("maps"), parse_maps_line);
        let mut mappings = Vec::new();
        while let Some(mapping) = reader.next_record().unwrap() {
            mappings.push(mapping);
        }
        let mut gather = Gather { seen: 1, ..Gather::default() };
        let lines = Records::new(numa.as_bytes(), Path::new("numa_maps"), parse_numa_line);
        gather.lines(1, &mappings, lines, &this_process()).unwrap();
        let census = gather.finish(None).unwrap();
        let object = &census.objects[0];
        assert_eq!(object.present_bytes(), COUNT * (512 << 10));
        assert_eq!(object.by_node[&3], COUNT * (512 << 10) / 4);
        assert_eq!(object.mapped_bytes, COUNT * (512 << 10) + (1 << 40));
        // Policies are those of mappings that have pages.
        assert_eq!(object.policies.iter().collect::<Vec<_>>(), ["default"]);
        assert!(begun.elapsed().as_secs_f64() < 2.0, "{:?}", begun.elapsed());
    }

    #[test]
    fn mappings_that_came_or_went_in_between_are_said() {
        let maps = "1000-3000 rw-p 00000000 00:00 0 ";
        let mapping = crate::proc::parse_maps_line(maps).unwrap();
        let numa = "1000 default anon=2 N0=2 kernelpagesize_kB=4\n5000 default anon=1 N1=1 kernelpagesize_kB=4\n";
        let mut gather = Gather { seen: 1, ..Gather::default() };
        let lines = Records::new(numa.as_bytes(), Path::new("numa_maps"), parse_numa_line);
        gather.lines(1, &[mapping], lines, &this_process()).unwrap();
        let census = gather.finish(None).unwrap();
        assert_eq!(census.own_by_node(), BTreeMap::from([(0, 8192)]));
        assert!(census.notes[0].contains("4 KiB changed"), "{:?}", census.notes);
    }

    #[test]
    fn this_process_has_heaps_and_libraries() {
        match take(&this_process(), None) {
            Ok(census) => {
                assert!(census.objects.iter().any(|object| object.kind == Kind::Private && object.present_bytes() > 0));
                assert!(census.objects.iter().any(|object| object.kind == Kind::Library && object.present_bytes() > 0));
            }
            Err(error) => {
                assert!(matches!(error, InspectError::NotPermitted { .. } | InspectError::Refused(_)), "{error}")
            }
        }
    }
}
