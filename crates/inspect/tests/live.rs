//! Do the instruments say something true about servers that run and work? Installed ones, under load. No test depends on how fast.

mod common;

use std::fs;
use std::time::Duration;

use common::{Folder, instrument, instrument_json, server, under_load};
use homenode_inspect::bench::server::Kind;
use homenode_inspect::bench::workload::Workload;
use homenode_inspect::place::{Who, find};
use homenode_inspect::proc::processes;
use homenode_inspect::stacks::Sampler;

/// Samples waits under TPC-B, whose one branch everybody updates; returns the events and statements.
fn waits(kind: Kind, option: &str, connection: &str) -> Option<(serde_json::Value, String)> {
    let folder = Folder::new(&format!("waits-{}", kind.name()));
    let server = server(kind, &folder.0)?;
    let connection = format!("host=127.0.0.1 port={} {connection}", server.address.port);
    let profile = under_load(&server, Workload::TpcB, || {
        instrument_json(&["waits", option, &connection, "--for", "3s", "--every", "50ms", "--json"])
    });
    let busy = profile["busy_samples"].as_u64().expect("a count");
    let events = profile["events"].as_object().expect("events");
    assert!(busy > 0, "{profile:#}");
    assert_eq!(events.values().filter_map(serde_json::Value::as_u64).sum::<u64>(), busy, "{profile:#}");
    // Eight clients, all in transactions that wait for each other: more than one is in a statement.
    assert!(profile["busy_sessions_mean"].as_f64() > Some(0.5), "{profile:#}");
    let queries = profile["queries"].as_object().expect("statements").keys().cloned().collect::<Vec<_>>().join("\n");
    assert!(queries.to_lowercase().contains("pgbench_branches"), "{profile:#}");
    Some((profile, queries))
}

#[test]
fn waits_of_a_loaded_postgresql_are_its_row_locks() {
    let Some((profile, _)) = waits(Kind::Postgres, "--connect", "user=postgres dbname=postgres") else { return };
    assert!(profile["events"]["Lock:transactionid"].as_u64() > Some(0), "{profile:#}");
    assert!(profile["blockers"].as_array().is_some_and(|list| !list.is_empty()), "{profile:#}");
}

#[test]
fn waits_of_a_loaded_mariadb_are_single_ones_with_performance_schema() {
    let Some((profile, _)) = waits(Kind::MariaDb, "--mariadb", "user=root") else { return };
    let events = profile["events"].as_object().expect("events");
    assert!(events.keys().any(|event| event.starts_with("wait/") || event.contains("row lock")), "{profile:#}");
    assert_eq!(profile["notes"], serde_json::json!([]));
}

#[test]
fn waits_of_a_loaded_homenode_are_its_row_locks_and_flushes() {
    let Some((profile, _)) = waits(Kind::Homenode, "--connect", "user=postgres dbname=postgres") else { return };
    let events = profile["events"].as_object().expect("events");
    assert!(events.keys().any(|event| event == "Lock:RowLock" || event == "IO:LogFlush"), "{profile:#}");
}

#[test]
fn stacks_of_a_loaded_server_are_named_and_drawn() {
    let folder = Folder::new("stacks");
    let Some(server) = server(Kind::MariaDb, &folder.0) else { return };
    let picture = folder.0.join("flame.svg");
    let pid = server.pid().to_string();
    let profile = under_load(&server, Workload::TpcB, || {
        instrument_json(&[
            "stacks",
            &pid,
            "--for",
            "2s",
            "--rate",
            "20",
            "--json",
            "--svg",
            picture.to_str().expect("a path"),
        ])
    });
    let stacks = profile["waiting"].as_array().expect("stacks");
    assert!(!stacks.is_empty() && profile["threads"].as_u64() > Some(8), "{profile:#}");
    let text = fs::read_to_string(&picture).expect("the picture");
    assert!(text.contains("<svg") && text.contains("waiting"), "{text}");
}

/// What a stop costs times how often is the share that a busy thread loses. The median, because where other programs have the CPUs a few
/// stops take as long as those please. `examples/stacks-cost.rs` measures the whole.
#[test]
fn a_hundred_samples_a_second_stop_a_busy_thread_for_less_than_two_percent() {
    const RATE: u32 = 100;
    let mut busy = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("sh runs");
    let server = find(&Who::Pid(busy.id()), &processes()).expect("it is there");
    let profile = Sampler::new(&server).and_then(|sampler| sampler.run(Duration::from_secs(3), RATE));
    let _ = busy.kill();
    let _ = busy.wait();
    let profile = profile.expect("samples");
    let samples: u64 = profile.running.values().sum();
    assert!(samples > 10 && samples == profile.stops_ns.len() as u64, "{samples} samples of a busy thread");
    let share = profile.stop_ns_p50() as f64 * f64::from(RATE) / 1e9;
    assert!(share < 0.02, "stopped for {} us each", profile.stop_ns_p50() / 1000);
}

#[test]
fn processes_that_a_server_starts_later_are_sampled_too() {
    // The one that comes later ends by itself.
    let line = "sleep 0.5; (i=0; while [ $i -lt 3000000 ]; do i=$((i+1)); done) & wait";
    let mut parent = std::process::Command::new("sh").args(["-c", line]).spawn().expect("sh runs");
    let server = find(&Who::Pid(parent.id()), &processes()).expect("it is there");
    let sampler = Sampler::new(&server).expect("it may be looked at");
    let profile = sampler.run(Duration::from_secs(4), 20).expect("samples");
    let _ = parent.kill();
    let _ = parent.wait();
    assert_eq!(profile.threads, 2, "{profile:?}");
    assert!(!profile.running.is_empty(), "{profile:?}");
}

#[test]
fn tables_in_the_pool_of_a_mariadb_are_counted_as_it_counts_them() {
    let folder = Folder::new("pool");
    let Some(server) = server(Kind::MariaDb, &folder.0) else { return };
    let connection = format!("host=127.0.0.1 port={} user=root", server.address.port);
    let census = instrument_json(&["where", &server.pid().to_string(), "--connect", &connection, "--json"]);
    let inside = &census["inside"];
    let tables = inside["tables"].as_object().expect("tables").clone();
    let bytes = |name: &str| -> u64 {
        let by_node = tables.get(name).and_then(serde_json::Value::as_object).into_iter().flatten();
        by_node.filter_map(|(_, bytes)| bytes.as_u64()).sum()
    };
    let mut client = homenode_inspect::client::connect(&server.address).expect("the server answers");
    let counted = client
        .query(
            "select concat(replace(replace(table_name, '`.`', '/'), '`', ''), '.', index_name), count(*) * @@innodb_page_size \
             from information_schema.innodb_buffer_page where page_type = 'INDEX' and table_name not like '`mysql`%' \
             and table_name like '%.%' group by 1",
        )
        .expect("its own count");
    let mut seen = 0;
    for row in counted {
        let [Some(name), Some(count)] = &row[..] else { continue };
        let (ours, theirs) = (bytes(name), count.parse::<u64>().expect("a number"));
        // Pages come and go between the two looks.
        assert!(ours.abs_diff(theirs) <= theirs / 10 + 4 * 16_384, "{name}: {ours}, {theirs} by its own count");
        seen += 1;
    }
    assert!(seen > 2, "{inside:#}");
    let of = |name: &str| inside[name].as_u64().expect("bytes");
    assert!(of("used_bytes") + of("free_bytes") <= of("pool_bytes") && of("used_bytes") > 0, "{inside:#}");
}

#[test]
fn every_instrument_says_what_it_is_for_with_an_example() {
    let commands = "topology where rebalance stat run waits c2c measure stacks bench doctor";
    for command in commands.split(' ') {
        let help = instrument(&[command, "--help"]);
        let text = String::from_utf8_lossy(&help.stdout).into_owned();
        assert!(help.status.success() && text.contains("Example: homenode"), "{command}: {text}");
        assert!(text.contains("--json"), "{command} has no --json");
    }
}

/// Runs a shell line as a user without any privilege; `None` where this test may not become one.
fn without_privileges(line: &str) -> Option<(bool, String)> {
    let mut command = std::process::Command::new("setpriv");
    command.args([
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--inh-caps=-all",
        "--bounding-set=-all",
        "sh",
        "-c",
        line,
    ]);
    let done = command.env("B", common::binary()).output().ok()?;
    let said = [done.stdout, done.stderr].concat();
    Some((done.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

#[test]
fn without_root_own_processes_are_seen_and_the_missing_privilege_is_named() {
    // Also where the folder of the binary is closed to others.
    if !without_privileges("test -x \"$B\"").is_some_and(|(may, _)| may) {
        return;
    }
    for line in ["\"$B\" topology", "sleep 60 & \"$B\" where $!; code=$?; kill $!; exit $code"] {
        let (succeeded, said) = without_privileges(line).expect("it ran before");
        assert!(succeeded, "{line}: {said}");
    }
    for line in ["\"$B\" where 1", "\"$B\" stacks 1 --for 1s", "\"$B\" doctor 1"] {
        let (succeeded, said) = without_privileges(line).expect("it ran before");
        assert!(!succeeded && said.contains("CAP_SYS_PTRACE") && said.lines().count() == 1, "{line}: {said}");
    }
    let (succeeded, said) = without_privileges("\"$B\" where 4194000").expect("it ran before");
    assert!(!succeeded && said.contains("process 4194000 is not there"), "{said}");
}
