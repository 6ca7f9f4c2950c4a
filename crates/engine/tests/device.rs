//! Do the threads that read and write live at the disk's node? On an emulated machine of two nodes with two CPUs each and a disk at
//! the second, which `./vm` boots: with HOMENODE_TEST_VM=1, since that takes a minute.

mod common;

use common::*;
use homenode_engine::{Database, Isolation, Options};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Where the machine's disk is.
const DISK: &str = "/run/disk";
/// CPUs of the disk's node and of the other, as the kernel lists them.
const NEAR: &str = "2-3";
const FAR: &str = "0-1";

#[test]
fn on_two_nodes_with_a_disk_at_the_second() {
    if std::env::var_os("HOMENODE_TEST_VM").is_none() {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut vm = Command::new(root.join("vm"));
    vm.args(["--nodes", "2", "--cpus", "4", "--disk", "1", "--limit", "600", "--"])
        .arg(std::env::current_exe().unwrap());
    let done = vm.args(["in_the_machine", "--ignored", "--nocapture"]).current_dir(&root).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&done.stdout), text(&done.stderr));
    assert!(done.status.success() && out.contains("1 passed"), "{}\n{out}\n{err}", done.status);
}

/// The CPUs that each of this process's threads may run on, by its name.
fn allowed() -> BTreeMap<String, Vec<String>> {
    let mut threads: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path()) {
        // A thread may have ended meanwhile.
        let read = |file: &str| std::fs::read_to_string(task.join(file)).unwrap_or_default();
        let (name, status) = (read("comm"), read("status"));
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        threads.entry(name.trim().to_owned()).or_default().push(list.unwrap_or("").trim().to_owned());
    }
    threads
}

fn cleaner() -> String {
    allowed()["cleaner-0"][0].clone()
}

fn open_on_disk() -> Database {
    Database::open_with(Path::new(DISK).join("data"), Options { lanes: 4, pool_bytes: 8 << 20, ..options() }).unwrap()
}

#[test]
#[ignore = "for ./vm"]
fn in_the_machine() {
    let db = open_on_disk();
    let threads = allowed();
    for name in ["log-flusher", "log-syncer", "log-supply"] {
        assert_eq!(threads.get(name), Some(&vec![NEAR.to_owned()]), "{name} of {threads:?}");
    }
    assert_eq!(threads["log-relay-0"], [FAR], "it wakes its own node's tasks");

    // A table larger than the pool: node 0's cleaner goes to the disk's node to write, and comes back.
    assert_eq!(cleaner(), FAR);
    let filled = db.clone();
    let writer = std::thread::spawn(move || {
        let mut session = filled.session().unwrap();
        let table = create(&mut session, "t");
        session.begin(Isolation::ReadCommitted, false).unwrap();
        for id in 0..40_000 {
            session.insert(&table, &row(id, id, &"t".repeat(400))).unwrap();
        }
        session.commit().unwrap();
    });
    let mut seen = false;
    while !writer.is_finished() {
        seen |= cleaner() == NEAR;
    }
    writer.join().unwrap();
    assert!(seen, "the cleaner wrote from its own node");
    let begun = Instant::now();
    while cleaner() != FAR {
        assert!(begun.elapsed() < Duration::from_secs(60), "the cleaner did not come back");
    }

    // From cold: what reads ahead does it there.
    db.close().unwrap();
    std::fs::write("/proc/sys/vm/drop_caches", "1").unwrap();
    let db = open_on_disk();
    let mut session = db.session().unwrap();
    let table = session.table(None, "t").unwrap();
    session.begin(Isolation::ReadCommitted, true).unwrap();
    assert_eq!(all(&mut session, &table).len(), 40_000);
    session.commit().unwrap();
    let threads = allowed();
    assert!(threads["page-ahead"].iter().all(|cpus| cpus == NEAR), "{threads:?}");
}
