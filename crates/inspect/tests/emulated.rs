//! Do the instruments tell the truth, and keep a database working, on a machine with four nodes? Runs them in the machine that
//! `./vm` emulates, on real servers under load. Only with HOMENODE_TEST_VM=1: a boot and a load take minutes.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The instruments' binary: the one that HOMENODE_BINARY names, or the example beside this test.
fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("HOMENODE_BINARY") {
        return path.into();
    }
    let test = std::env::current_exe().expect("this test's own path");
    test.parent().and_then(|deps| deps.parent()).expect("target folder").join("examples/instruments")
}

fn wanted() -> bool {
    std::env::var_os("HOMENODE_TEST_VM").is_some()
}

fn shell(script: &str) {
    let done = Command::new("bash").arg("-ec").arg(script).output().expect("bash runs");
    assert!(done.status.success(), "{script}: {}", String::from_utf8_lossy(&done.stderr));
}

/// One machine at a time: each has eight CPUs to emulate, and several would run into their time limits.
static MACHINE: Mutex<()> = Mutex::new(());

/// Runs a script of `tests/vm` in the machine; returns what it printed.
fn in_machine(script: &str, arguments: &[&str]) -> String {
    let _only = MACHINE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut command = Command::new(root().join("vm"));
    command.current_dir(root()).args(["--nodes", "4", "--cpus", "8", "--limit", "580", "--"]);
    command.arg(format!("crates/inspect/tests/vm/{script}")).arg(binary()).args(arguments);
    let done = command.output().expect("./vm runs");
    let output = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{output}\n{}", String::from_utf8_lossy(&done.stderr));
    output
}

/// The JSON that the script printed under a name.
fn json(output: &str, name: &str) -> serde_json::Value {
    let head = format!("json {name} ");
    let line = output.lines().find_map(|line| line.strip_prefix(&head)).expect("the line is there");
    serde_json::from_str(line).expect("JSON")
}

/// The bytes of the first object of a kind by node.
fn bytes_by_node(census: &serde_json::Value, kind: &str) -> Vec<f64> {
    let object = census["objects"].as_array().expect("objects").iter().find(|o| o["kind"] == kind).expect("the object");
    let bytes = object["bytes_by_node"].as_object().expect("nodes");
    (0..4).map(|node| bytes.get(&node.to_string()).and_then(serde_json::Value::as_f64).unwrap_or(0.0)).collect()
}

/// The largest share that one node has of the main object, in percent.
fn largest_share(census: &serde_json::Value, kind: &str) -> f64 {
    let bytes = bytes_by_node(census, kind);
    bytes.iter().copied().fold(0.0, f64::max) * 100.0 / bytes.iter().sum::<f64>()
}

#[test]
fn a_postgresql_under_load_is_spread_and_put_back() {
    if !wanted() {
        return;
    }
    let data = std::env::temp_dir().join(format!("homenode-emulated-{}", std::process::id()));
    let data = data.display();
    shell(&format!(
        "bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1); rm -rf {data}; mkdir {data}; chown postgres {data}; \
         as() {{ su postgres -c \"$*\"; }}; as $bin/initdb -D {data}/d; \
         as \"$bin/pg_ctl -w -D {data}/d -l {data}/log -o '-c listen_addresses= -c unix_socket_directories={data}' start\"; \
         as \"createdb -h {data} bench\"; as \"$bin/pgbench -q -i -s 3 -h {data} bench\"; \
         as \"psql -h {data} -c 'create extension pg_prewarm' -c 'create extension pg_buffercache' bench\"; \
         as \"$bin/pg_ctl -w -D {data}/d stop\""
    ));
    let output = in_machine("postgres", &[&format!("{data}/d")]);
    std::fs::remove_dir_all(data.to_string()).expect("the folder goes");
    let (before, after, undone) = (json(&output, "before"), json(&output, "after"), json(&output, "undone"));
    assert!(largest_share(&before, "SharedMemory") > 70.0, "{output}");
    assert!((largest_share(&after, "SharedMemory") - 25.0).abs() < 2.0, "{output}");
    assert!(largest_share(&undone, "SharedMemory") > 50.0, "{output}");
    assert_eq!(after["objects"][0]["policies"], serde_json::json!(["interleave:0-3"]), "{output}");
    assert_eq!(undone["objects"][0]["policies"], serde_json::json!(["default"]), "{output}");
    for line in [
        "load: exit 0",
        "number of failed transactions: 0 (0.000%)",
        "errors seen by clients: 0",
        "rows after the kill: 300000",
        "server: stopped cleanly",
    ] {
        assert!(output.contains(line), "{line} is missing in\n{output}");
    }
}

#[test]
fn a_mariadb_under_load_is_spread() {
    if !wanted() {
        return;
    }
    let data = std::env::temp_dir().join(format!("homenode-emulated-mariadb-{}", std::process::id()));
    let data = data.display();
    shell(&format!(
        "rm -rf {data}; mariadb-install-db --datadir={data} --auth-root-authentication-method=normal --user=root"
    ));
    let output = in_machine("mariadb", &[&data.to_string()]);
    std::fs::remove_dir_all(data.to_string()).expect("the folder goes");
    let (before, after, undone) = (json(&output, "before"), json(&output, "after"), json(&output, "undone"));
    assert!(largest_share(&before, "InnodbPool") > 60.0, "{output}");
    assert!(largest_share(&undone, "InnodbPool") > 60.0, "{output}");
    assert!((largest_share(&after, "InnodbPool") - 25.0).abs() < 2.0, "{output}");
    for line in ["load: exit 0", "ignored errors: 0", "server: stopped cleanly"] {
        assert!(output.contains(line), "{line} is missing in\n{output}");
    }
}

/// `homenode bench` on one, two and four nodes, and with a server on each of four: every server's memory has to be where the plan
/// says. Wants the whole binary, which HOMENODE_BINARY names.
#[test]
fn servers_are_measured_on_the_nodes_of_the_plan() {
    if !wanted() || std::env::var_os("HOMENODE_BINARY").is_none() {
        return;
    }
    let output = in_machine("bench", &[]);
    let results: Vec<serde_json::Value> = output
        .lines()
        .filter_map(|line| line.strip_prefix("result "))
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(results.len(), 4, "{output}");
    for result in &results {
        assert_eq!(result["error"], serde_json::Value::Null, "{result:#}");
        let shape = result["shape"].as_str().expect("a shape");
        let instances = result["placement"]["instances"].as_array().expect("instances");
        assert_eq!(instances.len(), if shape == "separate=4" { 4 } else { 1 }, "{result:#}");
        for (index, instance) in instances.iter().enumerate() {
            let allowed: Vec<usize> = match shape {
                "separate=4" => vec![index],
                nodes => (0..nodes.parse().expect("a number")).collect(),
            };
            let by_node = instance["memory"]["own_bytes_by_node"].as_object().expect("bytes by node");
            let bytes = |node: usize| by_node.get(&node.to_string()).and_then(serde_json::Value::as_f64).unwrap_or(0.0);
            let (all, there) = ((0..4).map(bytes).sum::<f64>(), allowed.iter().map(|node| bytes(*node)).sum::<f64>());
            assert!(there / all > 0.97, "{shape}: {instance:#}");
            // The pool is spread over all nodes that the server has.
            assert!(
                allowed.iter().all(|node| bytes(*node) / all > 0.6 / allowed.len() as f64),
                "{shape}: {instance:#}"
            );
        }
        assert_eq!(result["placement"]["clients_have_cpus_of_their_own"], true);
    }
    assert!(output.contains("page: Best throughput by nodes, separate servers"), "{output}");
}

#[test]
fn pages_move_between_all_nodes_and_memory_is_measured_under_load() {
    if !wanted() {
        return;
    }
    let output = in_machine("measure", &[]);
    let measured = json(&output, "measure");
    let values = |name: &str| -> Vec<f64> {
        let rows = measured[name].as_array().expect("rows").iter();
        rows.flat_map(|row| row["values"].as_array().expect("values"))
            .map(|v| v["median"].as_f64().expect("ns"))
            .collect()
    };
    // From each of four nodes to the three others; from each to all four.
    assert_eq!(values("migration_bytes_per_second").len(), 12, "{output}");
    assert!(values("migration_bytes_per_second").iter().all(|rate| *rate > 1e5), "{output}");
    assert_eq!(values("latency_ns").len(), 16, "{output}");
    let loaded = measured["loaded_latency_ns"].as_array().expect("rows");
    assert_eq!(loaded.len(), 8, "a node's own memory and the farthest: {output}");
    assert!(loaded.iter().all(|row| row["points"].as_array().is_some_and(|points| points.len() == 6)), "{output}");
}

#[test]
fn system_v_memory_and_reserved_huge_pages_are_spread_and_put_back() {
    if !wanted() {
        return;
    }
    let data = std::env::temp_dir().join(format!("homenode-emulated-kinds-{}", std::process::id()));
    let data = data.display();
    shell(&format!(
        "bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1); rm -rf {data}; mkdir {data}; chown postgres {data}; \
         as() {{ su postgres -c \"$*\"; }}; as $bin/initdb -D {data}/d; \
         as \"$bin/pg_ctl -w -D {data}/d -l {data}/log -o '-c listen_addresses= -c unix_socket_directories={data}' start\"; \
         as \"createdb -h {data} bench\"; as \"$bin/pgbench -q -i -s 3 -h {data} bench\"; \
         as \"psql -h {data} -c 'create extension pg_prewarm' bench\"; as \"$bin/pg_ctl -w -D {data}/d stop\""
    ));
    let output = in_machine("kinds", &[&format!("{data}/d")]);
    std::fs::remove_dir_all(data.to_string()).expect("the folder goes");
    for kind in ["sysv", "hugetlb"] {
        let at = |when: &str| json(&output, &format!("{kind}-{when}"));
        let of = |when: &str| bytes_by_node(&at(when), "SharedMemory");
        let (before, after, undone) = (of("before"), of("after"), of("undone"));
        let seen = format!("{kind}: before {before:?}, after {after:?}, undone {undone:?}\n{output}");
        assert!(largest_share(&at("before"), "SharedMemory") > 60.0, "{seen}");
        // A huge page is 2 MiB: of some 30 of them, one more or less on a node is 3%.
        let even = (largest_share(&at("after"), "SharedMemory") - 25.0).abs();
        assert!(even < if kind == "sysv" { 2.0 } else { 4.0 }, "{seen}");
        // What was there before is back; pages that came into being meanwhile are where the policy of the time put them.
        assert!(before.iter().zip(&undone).all(|(before, undone)| *undone >= before * 0.98), "{seen}");
        assert!(output.contains(&format!("{kind}: clients saw 0 errors, 300000 rows")), "{kind}: {output}");
    }
    assert!(output.contains("System V segment"), "{output}");
    // A System V segment of reserved huge pages, which PostgreSQL doesn't make but others do (large-pages of MySQL).
    let of = |when: &str| bytes_by_node(&json(&output, &format!("sysvhuge-{when}")), "SharedMemory");
    let (before, after, undone) = (of("before"), of("after"), of("undone"));
    let seen = format!("before {before:?}, after {after:?}, undone {undone:?}\n{output}");
    let block = f64::from(2 << 20);
    assert_eq!(before[0], 16.0 * block, "{seen}");
    assert_eq!(after, [4.0 * block; 4], "{seen}");
    assert_eq!(undone, before, "{seen}");
    assert!(output.contains("sysvhuge: contents kept"), "{output}");
}

#[test]
fn doctor_finds_clients_beside_the_server_and_memory_where_first_touch_put_it() {
    if !wanted() {
        return;
    }
    let data = std::env::temp_dir().join(format!("homenode-emulated-doctor-{}", std::process::id()));
    let data = data.display();
    shell(&format!(
        "bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1); rm -rf {data}; mkdir {data}; chown postgres {data}; \
         as() {{ su postgres -c \"$*\"; }}; as $bin/initdb -D {data}/d; \
         as \"$bin/pg_ctl -w -D {data}/d -l {data}/log -o '-c listen_addresses= -c unix_socket_directories={data}' start\"; \
         as \"createdb -h {data} bench\"; as \"$bin/pgbench -q -i -s 3 -h {data} bench\"; \
         as \"psql -h {data} -c 'create extension pg_prewarm' bench\"; as \"$bin/pg_ctl -w -D {data}/d stop\""
    ));
    let output = in_machine("doctor", &[&format!("{data}/d")]);
    std::fs::remove_dir_all(data.to_string()).expect("the folder goes");
    let findings = json(&output, "doctor")["findings"].as_array().expect("findings").clone();
    for title in ["clients and server are on node 0 together", "the server's memory is on few nodes"] {
        let found = findings.iter().find(|finding| finding["title"] == title);
        let finding = found.unwrap_or_else(|| panic!("{title} is missing in\n{output}"));
        for part in ["evidence", "cost", "mend", "document"] {
            assert!(finding[part].as_str().is_some_and(|text| !text.is_empty()), "{part} of {finding:#}");
        }
    }
}
