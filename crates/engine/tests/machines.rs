//! Does a database work on machines of odd shapes? Saved and made-up ones, whose nodes the machine underneath mostly does not have: the
//! kernel refuses its policies then, which must be no more than something to show.

use homenode_engine::{Database, Isolation, Options};
use homenode_memory::Policy;
use homenode_topology::{Topology, machines};
use std::path::PathBuf;

/// Node numbers with gaps (1, 3 and 4 are offline), CPU numbers with gaps, a node without CPUs, one without memory.
const GAPS: &str = "\
proc/cpuinfo:
| processor	: 0
proc/meminfo:
| MemTotal:       6291456 kB
proc/self/status:
| Cpus_allowed_list:	0-1,8-9,20
| Mems_allowed_list:	0,2,5
sys/devices/system/cpu/online: 0-1,8-9,20
sys/devices/system/node/online: 0,2,5,7
sys/devices/system/node/possible: 0-7
sys/devices/system/node/has_cpu: 0,2,7
sys/devices/system/node/has_memory: 0,2,5
sys/devices/system/node/node0/cpulist: 0-1
sys/devices/system/node/node0/distance: 10 21 28 31
sys/devices/system/node/node0/meminfo:
| Node 0 MemTotal:       2097152 kB
| Node 0 MemFree:        1048576 kB
sys/devices/system/node/node2/cpulist: 8-9
sys/devices/system/node/node2/distance: 21 10 28 31
sys/devices/system/node/node2/meminfo:
| Node 2 MemTotal:       2097152 kB
| Node 2 MemFree:        1048576 kB
sys/devices/system/node/node5/cpulist:
sys/devices/system/node/node5/distance: 28 28 10 31
sys/devices/system/node/node5/meminfo:
| Node 5 MemTotal:       2097152 kB
| Node 5 MemFree:        1048576 kB
sys/devices/system/node/node7/cpulist: 20
sys/devices/system/node/node7/distance: 31 31 31 10
";

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("homenode-machines-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

fn options(topology: &Topology, policy: Policy) -> Options {
    let topology = Some(topology.clone());
    Options { pool_bytes: 32 << 20, lanes: 4, pool_policy: policy, topology, ..Options::default() }
}

/// The machine with gaps, and what it is called.
fn with_gaps() -> Topology {
    Topology::from_bundle(GAPS).unwrap()
}

#[test]
fn every_shape_of_machine_has_a_working_pool() {
    let mut all: Vec<(&str, Topology)> =
        machines::ALL.iter().map(|(name, text)| (*name, Topology::from_bundle(text).unwrap())).collect();
    all.push(("gaps", with_gaps()));
    for (name, topology) in &all {
        for policy in [Policy::Interleave, Policy::Local] {
            let folder = folder(name);
            let db =
                Database::open_with(&folder, options(topology, policy)).unwrap_or_else(|e| panic!("{name}: {e:?}"));
            let homes: Vec<usize> = db.pool().stats().partitions.iter().map(|part| part.node).collect();
            let near = topology.nodes().iter().filter(|node| !node.cpus.is_empty());
            let near: Vec<usize> = near.map(|node| node.id).collect();
            assert!(!homes.is_empty() && homes.iter().all(|node| near.contains(node)), "{name}: {homes:?}");
            let mut session = db.session().unwrap();
            session.begin(Isolation::ReadCommitted, false).unwrap();
            session.commit().unwrap();
            drop(session);
            db.close().unwrap();
            std::fs::remove_dir_all(folder).unwrap();
        }
    }
}

#[test]
fn nodes_that_are_not_there_are_refused_by_name() {
    // Offline, without memory, beyond all.
    for node in [3, 7, 99] {
        let folder = folder(&format!("none-{node}"));
        let error = Database::open_with(&folder, options(&with_gaps(), Policy::Bind(vec![0, node]))).map(|_| ());
        let error = error.expect_err("there is no such node");
        assert!(error.message.contains(&format!("no node {node} ")), "{}", error.message);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
