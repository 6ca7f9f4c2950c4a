//! Is a plan carried out, and gone on with after an interruption? On servers that are installed here: PostgreSQL, and Homenode where
//! HOMENODE_BINARY names its program. No figure is looked at, only what was done.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The instruments' binary, beside this test.
fn binary() -> PathBuf {
    let test = std::env::current_exe().expect("this test's own path");
    test.parent().and_then(|deps| deps.parent()).expect("target folder").join("examples/instruments")
}

fn bench(folder: &Path, further: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.arg("bench").arg("--out").arg(folder).args([
        "--rounds",
        "1",
        "--for",
        "300ms",
        "--warm-up",
        "100ms",
        "--keep",
    ]);
    command.args(["--rows", "300", "--tables", "2", "--threads", "1,3", "--nodes", "1,64", "--pool", "64MiB"]);
    command
        .args(["--workload", "read-write,update-index", "--keys", "scrambled", "--arrivals", "closed,40"])
        .args(further);
    command.output().expect("the binary runs")
}

fn results(folder: &Path) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(folder.join("results.jsonl")).expect("results");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Runs a plan, cuts a result off, runs it again, and looks at both.
fn carry_out(name: &str, further: &[&str]) {
    let folder = std::env::temp_dir().join(format!("homenode-bench-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    let done = bench(&folder, further);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{said}");
    let first = results(&folder);
    // Two workloads, two numbers of threads, closed and open.
    assert_eq!(first.len(), 8, "{said}");
    for result in &first {
        assert_eq!(result["error"], serde_json::Value::Null, "{result:#}");
        let latency = |name: &str| result["latency_us"][name].as_f64().expect("a latency");
        assert!(latency("p50") <= latency("p99") && latency("p99") <= latency("max"), "{result:#}");
        assert_eq!(result["placement"]["policy"], "bind=0");
        let instances = result["placement"]["instances"].as_array().expect("instances");
        assert!(instances[0]["memory"]["own_bytes_by_node"]["0"].as_u64() > Some(1 << 20), "{result:#}");
        assert_eq!(result["settings"]["synchronous_commit"], "on");
    }
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(text.contains("nodes=64 is left out: this machine has"), "{text}");
    let page = fs::read_to_string(folder.join("report.html")).expect("the report");
    assert!(page.contains("update-index, scrambled=0.8 keys") && page.contains("Latency in open loop"), "{page}");

    // The last result was being written when the machine went down.
    let file = folder.join("results.jsonl");
    let text = fs::read_to_string(&file).expect("results");
    let cut = text.trim_end().rfind('\n').expect("several lines") + 30;
    fs::write(&file, &text[..cut]).expect("the file can be written");
    let broken = bench(&folder, further);
    let said = String::from_utf8_lossy(&broken.stderr).into_owned();
    assert!(broken.status.success() && said.contains("7 results are there already"), "{said}");
    let second = results(&folder);
    assert_eq!(second.len(), 8);
    assert_eq!(second[..7], first[..7]);
    assert_eq!(second[7]["key"], first[7]["key"]);

    let other = bench(&folder, &[further, &["--scale", "2"]].concat());
    let said = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(!other.status.success() && said.contains("is about another plan (scale)"), "{said}");
    fs::remove_dir_all(&folder).expect("the folder goes");
}

#[test]
fn a_plan_is_carried_out_on_postgresql_and_gone_on_with() {
    if !Path::new("/usr/lib/postgresql").exists() {
        return;
    }
    carry_out("postgres", &["--server", "postgres"]);
}

#[test]
fn a_plan_is_carried_out_on_mariadb_with_its_waits() {
    if !Path::new("/usr/sbin/mariadbd").exists() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("homenode-bench-{}-mariadb", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    let done = bench(&folder, &["--server", "mariadb", "--mariadb-waits", "--set", "mariadb:innodb-log-file-size=32M"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let results = results(&folder);
    assert_eq!(results.len(), 8);
    for result in &results {
        assert_eq!(result["error"], serde_json::Value::Null, "{result:#}");
        assert_eq!(result["waits_how"], "sampled in performance_schema");
        assert_eq!(result["settings"]["innodb_flush_log_at_trx_commit"], "1");
    }
    fs::remove_dir_all(&folder).expect("the folder goes");
}

#[test]
fn a_plan_is_carried_out_on_homenode_and_gone_on_with() {
    let Some(program) = std::env::var_os("HOMENODE_BINARY") else {
        return;
    };
    carry_out("homenode", &["--server", "homenode", "--homenode", &program.to_string_lossy()]);
}
