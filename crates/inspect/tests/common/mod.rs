//! How does a test get a server under load? Installed ones, in a folder of their own, loaded by `bench`'s own clients.

#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use homenode_inspect::bench::drive::{Arrivals, Load, Target, drive};
use homenode_inspect::bench::keys::Distribution;
use homenode_inspect::bench::load::load;
use homenode_inspect::bench::server::{Kind, Running, Start, initialize, program, start};
use homenode_inspect::bench::workload::{Size, Workload};
use homenode_memory::Policy;
use homenode_topology::Topology;

/// Size of the tables.
pub const SIZE: Size = Size { tables: 1, rows: 500, scale: 1 };

/// The instruments' binary, beside the test.
pub fn binary() -> PathBuf {
    let test = std::env::current_exe().expect("this test's own path");
    test.parent().and_then(|deps| deps.parent()).expect("target folder").join("examples/instruments")
}

/// Runs an instrument.
pub fn instrument(arguments: &[&str]) -> Output {
    Command::new(binary()).args(arguments).output().expect("the binary runs")
}

/// What an instrument printed as JSON.
pub fn instrument_json(arguments: &[&str]) -> serde_json::Value {
    let done = instrument(arguments);
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).expect("JSON")
}

/// A folder that goes with it.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("homenode-inspect-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Starts a server with loaded tables; `None` where it isn't installed (Homenode's program is named by HOMENODE_BINARY).
pub fn server(kind: Kind, folder: &Path) -> Option<Running> {
    let program = match kind {
        Kind::Homenode => PathBuf::from(std::env::var_os("HOMENODE_BINARY")?),
        other => program(other).ok()?,
    };
    /// One at a time: several that fill their first files at once starve each other on a busy machine.
    static STARTING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _only = STARTING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let topology = Topology::discover();
    initialize(kind, &program, folder).expect("an empty database");
    let with = Start {
        program: Some(program),
        cpus: Vec::new(),
        policy: Policy::Default,
        pool_bytes: 128 << 20,
        connections: 40,
        settings: Vec::new(),
        records_waits: true,
    };
    let running = start(kind, folder, &with, &topology).expect("the server starts");
    load(&running.address, &[Workload::UpdateIndex, Workload::TpcB], SIZE).expect("the tables are loaded");
    Some(running)
}

/// Runs `during` while eight clients work on the server, and stops them.
pub fn under_load<T>(server: &Running, workload: Workload, during: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    let work = Load {
        targets: vec![Target { address: server.address.clone(), client_cpus: Vec::new() }],
        workload,
        size: SIZE,
        distribution: Distribution::Zipfian(0.99),
        threads: 8,
        arrivals: Arrivals::Closed,
        warm_up: Duration::ZERO,
        measure: Duration::from_secs(300),
        seed: 1,
    };
    let mut result = None;
    let ended = drive(&work, &stop, |_| {
        result = Some(during());
        stop.store(true, Relaxed);
    });
    // Stopped is what it has to be; any other error is a client's.
    assert_eq!(ended.err().map(|error| error.to_string()).as_deref(), Some("the protocol: stopped"));
    result.expect("the clients connected")
}
