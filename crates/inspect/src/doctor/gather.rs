//! What is there to judge? Looks at the machine, and at a server if one is named, for a few seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use homenode_topology::{Topology, parse_list};

use super::clients::clients_of;
use super::{Facts, ServerFacts};
use crate::InspectError;
use crate::place::{self, Kind, Server};
use crate::proc::{Counters, parse_counters};
use crate::stat::{NodeMemory, rates, sample};

/// Time between two looks at the threads.
const LOOK: Duration = Duration::from_millis(100);

/// Gathers for `duration`. `argument` is how the server was named.
///
/// # Errors
/// As the census, if a server is named.
pub fn gather(
    topology: &Topology,
    server: Option<(&Server, String)>,
    duration: Duration,
) -> Result<Facts, InspectError> {
    let ids: Vec<usize> = topology.nodes().iter().map(|node| node.id).collect();
    let before = (sample(&ids)?, vmstat());
    let mut facts = Facts {
        cpu_nodes: topology.nodes().iter().filter(|node| !node.cpus.is_empty()).map(|node| node.id).collect(),
        numa_balancing: topology.settings().numa_balancing.is_some_and(|bits| bits & 1 != 0),
        transparent_huge_pages: topology.settings().transparent_huge_pages.clone(),
        ..Facts::default()
    };
    match server {
        Some((server, argument)) => {
            let mut about = about_server(topology, server)?;
            about.argument = argument;
            let mut clients = ServerFacts::default();
            std::thread::scope(|scope| {
                if let Some(connected) = clients_of(server) {
                    let clients = &mut clients;
                    scope.spawn(move || watch_threads(topology, &connected, duration, clients));
                }
                watch_threads(topology, server, duration, &mut about);
            });
            about.client_looks_by_node = clients.looks_by_node;
            facts.server = Some(about);
        }
        None => std::thread::sleep(duration),
    }
    let after = (sample(&ids)?, vmstat());
    facts.seconds = (after.0.at - before.0.at).as_secs_f64();
    facts.nodes = after.0.memory.iter().map(|(node, fields)| (*node, NodeMemory::of(fields))).collect();
    facts.rates = rates(&before.1, &after.1, facts.seconds);
    for (node, counters) in &after.0.nodes {
        let node_rates =
            before.0.nodes.get(node).map(|before| rates(before, counters, facts.seconds)).unwrap_or_default();
        facts.foreign.extend(node_rates.get("numa_foreign").map(|rate| (*node, *rate)));
    }
    Ok(facts)
}

/// Empty where it can't be read: then no finding rests on it.
fn vmstat() -> Counters {
    fs::read_to_string("/proc/vmstat").ok().and_then(|text| parse_counters(&text).ok()).unwrap_or_default()
}

fn about_server(topology: &Topology, server: &Server) -> Result<ServerFacts, InspectError> {
    let census = place::take(server, None)?;
    let mut facts =
        ServerFacts { kind: Some(server.kind), own_by_node: census.own_by_node(), ..ServerFacts::default() };
    for object in &census.objects {
        let small = object.page_bytes.iter().all(|bytes| *bytes <= 65_536);
        match object.kind {
            Kind::SharedMemory | Kind::InnodbPool if small => facts.pool_small_page_bytes += object.present_bytes(),
            Kind::Private => {
                facts.private_policies.extend(object.policies.iter().cloned());
                facts.private_bytes += object.present_bytes();
            }
            _ => {}
        }
    }
    for process in &server.processes {
        let status = fs::read_to_string(format!("/proc/{}/status", process.pid)).unwrap_or_default();
        facts.swapped_bytes += kib(&status, "VmSwap:");
        facts.page_table_bytes += kib(&status, "VmPTE:");
    }
    facts.has_libnuma =
        fs::read_to_string(format!("/proc/{}/maps", server.pid())).is_ok_and(|maps| maps.contains("libnuma"));
    facts.disk = disk_of(topology, Path::new(&format!("/proc/{}/cwd", server.pid())));
    Ok(facts)
}

fn kib(status: &str, name: &str) -> u64 {
    let value = status.lines().find_map(|line| line.strip_prefix(name));
    value
        .and_then(|value| value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
        .unwrap_or(0)
        .saturating_mul(1024)
}

/// The disk that a folder is on, if the machine says at which node it hangs. PostgreSQL and MariaDB work in their data folder.
fn disk_of(topology: &Topology, folder: &Path) -> Option<(String, usize)> {
    let device = fs::metadata(folder).ok()?.st_dev();
    // Linux' packing of device numbers (include/linux/kdev_t.h, new_encode_dev).
    let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xfff00);
    let link = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    // A partition lies below its disk.
    let names = link.ancestors().filter_map(|path| path.file_name()?.to_str());
    let disks = topology.devices();
    let disk = names.take(2).find_map(|name| disks.iter().find(|disk| disk.name == name))?;
    Some((disk.name.clone(), disk.node?))
}

/// Looks again and again on which CPU each thread is that uses one.
fn watch_threads(topology: &Topology, server: &Server, duration: Duration, facts: &mut ServerFacts) {
    let begun = Instant::now();
    let mut last: BTreeMap<(u32, u32), (u64, Option<usize>)> = BTreeMap::new();
    let mut busy: BTreeSet<(u32, u32)> = BTreeSet::new();
    while begun.elapsed() < duration {
        for process in &server.processes {
            for (tid, ticks, cpu) in threads(process.pid) {
                let node = topology.cpu(cpu).map(|cpu| cpu.node);
                let key = (process.pid, tid);
                let Some((before, node_before)) = last.insert(key, (ticks, node)) else { continue };
                let Some(node) = node.filter(|_| ticks > before) else { continue };
                busy.insert(key);
                facts.thread_looks += 1;
                *facts.looks_by_node.entry(node).or_default() += 1;
                facts.node_changes += u64::from(node_before.is_some_and(|before| before != node));
            }
        }
        std::thread::sleep(LOOK);
    }
    facts.busy_threads = busy.len();
    facts.pinned_threads = busy.iter().filter(|(pid, tid)| is_bound(topology, *pid, *tid)).count();
}

fn is_bound(topology: &Topology, pid: u32, tid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).and_then(parse_list);
    list.is_some_and(|cpus| !topology.cpus().iter().all(|cpu| cpus.contains(&cpu.id)))
}

/// Each thread of a process: number, ticks of CPU time, and the CPU it was last on.
fn threads(pid: u32) -> Vec<(u32, u64, usize)> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let tids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let thread = |tid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
        let (ticks, cpu) = parse_thread(&stat)?;
        Some((tid, ticks, cpu))
    };
    tids.filter_map(thread).collect()
}

/// CPU time in ticks and last CPU out of `stat` (fields 14, 15 and 39 of proc_pid_stat(5)).
fn parse_thread(text: &str) -> Option<(u64, usize)> {
    let fields: Vec<&str> = text[text.rfind(')')? + 1..].split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some((number(14)?.checked_add(number(15)?)?, usize::try_from(number(39)?).ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::place::{Who, find};
    use crate::proc::processes;

    #[test]
    fn fields_of_a_thread_are_found() {
        let text = "7 (a b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37";
        assert_eq!(parse_thread(text), Some((11 + 12, 36)));
        assert_eq!(parse_thread("7 (a) S 1"), None);
        assert_eq!(parse_thread(""), None);
    }

    #[test]
    fn this_process_can_be_examined() {
        let topology = Topology::discover();
        let server = find(&Who::Pid(std::process::id()), &processes()).unwrap();
        match gather(&topology, Some((&server, String::new())), Duration::from_millis(250)) {
            Ok(facts) => {
                let server = facts.server.unwrap();
                assert!(server.own_by_node.values().sum::<u64>() > 0 && server.page_table_bytes > 0);
                assert!(facts.seconds > 0.2);
            }
            // A container may forbid looking.
            Err(error) => {
                assert!(matches!(error, InspectError::NotPermitted { .. } | InspectError::Refused(_)), "{error}")
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_is_safe(text in "[-0-9a-zA-Z():\\n ]{0,200}") {
            let _ = parse_thread(&text);
            let _ = kib(&text, "VmPTE:");
            let _ = kib(&format!("VmPTE:{text}"), "VmPTE:");
        }
    }
}
