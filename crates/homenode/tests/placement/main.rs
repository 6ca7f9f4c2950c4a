//! Is everything where it is said to be? On a real Linux with several memory nodes, which `./vm` emulates: each test here boots
//! one shape and runs this same program in it, with the tests that are meant for that shape (they are ignored outside).
//!
//! A machine of the suite is booted once for many tests, because booting takes longer than most of them.

#[path = "../common/mod.rs"]
mod common;
mod four_nodes;
mod private_memory;
mod saved;
mod unequal;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Folder, Server, Settings, fails, one, run};
use postgres::Client;

const MIB: i64 = 1 << 20;

/// Boots a machine and runs the tests of module `name` in it. Only with HOMENODE_TEST_VM=1: it takes minutes.
fn boot(name: &str, shape: &[&str]) {
    if std::env::var_os("HOMENODE_TEST_VM").is_none() {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program = std::env::current_exe().unwrap();
    let mut vm = Command::new(root.join("vm"));
    vm.args(["--limit", "600"]).args(shape).arg("--").arg(program);
    vm.args([&format!("{name}::"), "--ignored", "--test-threads=1"]);
    vm.env("HOMENODE_BINARY", fs::canonicalize(common::binary()).unwrap()).current_dir(&root);
    let done = run(&mut vm, "");
    println!("{}", done.stdout);
    assert!(done.status.success(), "{name}: {}\n{}\n{}", done.status, done.stdout, done.stderr);
    assert!(!done.stdout.contains("running 0 tests"), "no tests for {name}");
}

#[test]
fn on_four_nodes() {
    boot("four_nodes", &["--nodes", "4", "--cpus", "8"]);
}

#[test]
fn on_three_unequal_nodes_and_a_far_one() {
    let folder = Folder::new();
    let distances = folder.path().join("distances");
    fs::write(&distances, "# a row for each node\n10 15 21 30\n17 10 31 30\n21 31 10 30\n30 30 30 10\n").unwrap();
    let shape = ["--nodes", "3", "--cpus", "6", "--far", "512MiB", "--distances", distances.to_str().unwrap()];
    boot("unequal", &shape);
}

/// What the command line of `./vm` says to nonsense, without a machine.
#[test]
fn wrong_shapes_are_refused_in_one_line() {
    let vm = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vm");
    let cases: [&[&str]; 8] = [
        &["--nodes", "3", "--cpus", "4", "--", "true"],
        &["--nodes", "none", "--", "true"],
        &["--nodes"],
        &["--what", "1", "--", "true"],
        &["--far", "1TB", "--", "true"],
        &["--disk", "4", "--", "true"],
        &["--distances", "/nonexistent", "--", "true"],
        &["--nodes", "2"],
    ];
    for arguments in cases {
        let done = run(Command::new(&vm).args(arguments), "");
        assert_eq!(done.status.code(), Some(2), "{arguments:?}: {}", done.stderr);
        assert_eq!(done.stderr.lines().count(), 1, "{arguments:?}: {}", done.stderr);
        assert!(done.stderr.starts_with("vm: "), "{arguments:?}: {}", done.stderr);
    }
}

/// A big scan is done by threads of its own: the worker goes on with other sessions meanwhile.
#[test]
fn a_big_scan_leaves_its_worker_to_others() {
    let server = Server::with(settings("64MiB", &["--workers", "1", "--log-level", "warn"]));
    let (mut client, mut watcher) = (server.client(), server.client());
    insert_rows(&mut client, "t");
    let pid: i32 = one(&mut client, "select pg_backend_pid()");
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let slow = "select max(md5(md5(filler) || md5(filler || 'x'))) from t";
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                client.query(slow, &[]).unwrap();
            }
        });
        // With one worker, that anybody sees the scan waiting for its threads means that the worker doesn't.
        let state = format!("select coalesce(wait_event, '') from pg_stat_activity where pid = {pid}");
        let seen = (0..20_000).any(|_| one::<String>(&mut watcher, &state) == "Parallel");
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(seen, "never seen waiting");
    });
}

/// Clients that read and write until dropped; any error of theirs is the test's.
struct Load {
    done: std::sync::Arc<std::sync::atomic::AtomicBool>,
    threads: Vec<std::thread::JoinHandle<i64>>,
}

impl Load {
    /// On the first 45,000 rows of `t`, each client on its own share of them.
    fn on(server: &Server, clients: i32) -> Load {
        let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        server.client().batch_execute("alter table t add column n int default 0").unwrap();
        let work = |number: i32| {
            let (mut client, done) = (server.client(), done.clone());
            std::thread::spawn(move || {
                let update = client.prepare("update t set n = n + 1 where id = $1").unwrap();
                let read = client.prepare("select filler from t where id = $1").unwrap();
                let mut changes = 0;
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let id = (changes as i32 * 7919 % (45_000 / clients)) * clients + number + 1;
                    assert_eq!(client.execute(&update, &[&id]).unwrap(), 1);
                    let filler: String = client.query_one(&read, &[&(45_001 - id)]).unwrap().get(0);
                    assert_eq!(filler.len(), 384);
                    changes += 1;
                }
                changes
            })
        };
        let threads = (0..clients).map(work).collect();
        Load { done, threads }
    }

    /// Ends it; what its clients have changed has to be there.
    fn end(self, client: &mut Client) {
        self.done.store(true, std::sync::atomic::Ordering::Relaxed);
        let changes: i64 = self.threads.into_iter().map(|thread| thread.join().expect("no client saw an error")).sum();
        assert!(changes > 0);
        assert_eq!(one::<i64>(client, "select sum(n)::bigint from t"), changes);
        assert_eq!(one::<i64>(client, "select count(*) from t where length(filler) = 384"), 45_000);
    }
}

const FRAMES: &str = "select sum(frames)::bigint * 16384 from homenode.pool";

#[test]
fn every_worker_and_session_is_on_some_node() {
    let server = Server::start();
    let mut client = server.client();
    let counted = "select sum(workers), sum(sessions) from homenode.nodes";
    let row = client.query_one(counted, &[]).unwrap();
    let workers = one::<i64>(&mut client, "select count(*) from homenode.sessions s where s.worker >= 0").max(1);
    assert!(row.get::<_, i64>(0) >= workers, "{row:?}");
    assert_eq!(row.get::<_, i64>(1), 1, "{row:?}");
}

#[test]
fn the_pool_gets_another_size_under_load() {
    let server = Server::with(settings("16MiB", &["--log-level", "warn", "--prefault", "on"]));
    let mut client = server.client();
    insert_rows(&mut client, "t");
    let load = Load::on(&server, 3);
    for mib in [96_i64, 8, 64, 4, 32] {
        let done: String = one(&mut client, &format!("select homenode.resize_pool('{mib}MiB')"));
        assert_eq!(one::<i64>(&mut client, FRAMES), mib * MIB, "{done}");
        assert_eq!(one::<String>(&mut client, "show homenode.pool_size"), format!("{mib} MiB"));
    }
    // What is given up goes back to the system.
    client.batch_execute("alter system set homenode.pool_size = '256MiB'").unwrap();
    let large = resident_bytes(&server);
    client.batch_execute("set homenode.pool_size to '16MiB'").unwrap();
    let small = resident_bytes(&server);
    assert!(large - small > 200 * MIB, "{} MiB went", (large - small) / MIB);
    client.batch_execute("set homenode.pool_policy = 'local'").unwrap();
    assert_eq!(one::<String>(&mut client, "show homenode.pool_policy"), "local");
    load.end(&mut client);
    for (statement, code) in [
        ("set homenode.pool_size = '12'", "22023"),
        ("set homenode.pool_size = '1 league'", "22023"),
        ("set homenode.pool_policy = 'everywhere'", "22023"),
        ("set homenode.pool_policy = 'bind=77'", "22023"),
        ("set local homenode.pool_size = '16MiB'", "0A000"),
        ("alter system set work_mem = '4MB'", "42704"),
        ("select homenode.resize_pool('8000000GiB')", "53200"),
    ] {
        // SET LOCAL outside a block would only warn.
        fails(client.batch_execute(statement), code);
    }
    assert_eq!(one::<i64>(&mut client, FRAMES), 16 * MIB);
    client.batch_execute("alter system reset homenode.pool_policy").unwrap();
    assert_eq!(one::<String>(&mut client, "show homenode.pool_policy"), "interleave");
    server.stop();
}

fn server(pool: &str, arguments: &[&str]) -> Server {
    // The folder is in memory that the machine spreads over its nodes; `/run/vm` is there on an emulated machine only.
    assert!(Path::new("/run/vm/command").exists(), "this test is for ./vm");
    Server::with(settings(pool, arguments))
}

fn settings(pool: &str, arguments: &[&str]) -> Settings {
    Settings {
        pool: Some(pool.into()),
        arguments: arguments.iter().map(|text| (*text).to_owned()).collect(),
        ..Settings::default()
    }
}

/// A server that has to refuse to start; what it says.
fn refused(pool: &str, arguments: &[&str]) -> String {
    let folder = Folder::new();
    match Server::open(&folder.path().join("data"), settings(pool, arguments)) {
        Ok(_) => panic!("it starts with {arguments:?}"),
        Err(refusal) => {
            assert!(!refusal.status.success() && refusal.status.code().is_some(), "{}", refusal.status);
            refusal.output
        }
    }
}

/// Numbers by node; what is on none counts as node -1.
fn by_node(client: &mut Client, query: &str) -> BTreeMap<i32, i64> {
    let rows = client.query(query, &[]).unwrap_or_else(|error| panic!("{query}: {error:?}"));
    rows.iter().map(|row| (row.get::<_, Option<i32>>(0).unwrap_or(-1), row.get(1))).collect()
}

fn pages_of(client: &mut Client, table: &str) -> BTreeMap<i32, i64> {
    let query = "select node, sum(pages)::bigint from homenode.buffers_by_table where table_name";
    by_node(client, &format!("{query} = '{table}' and kind in ('leaf', 'inner') group by node order by node"))
}

/// Panics unless the nodes have the same number of pages, up to 6 per cent of their mean.
#[track_caller]
fn assert_even(pages: &BTreeMap<i32, i64>, nodes: &[i32]) {
    assert_eq!(pages.keys().copied().collect::<Vec<_>>(), nodes, "{pages:?}");
    let mean = pages.values().sum::<i64>() as f64 / nodes.len() as f64;
    assert!(mean >= 250.0, "too few to tell: {pages:?}");
    for count in pages.values() {
        assert!((*count as f64 - mean).abs() <= mean * 0.06, "{pages:?}");
    }
}

/// Fills a table of about 1,250 pages: by one session's inserts, through the pool.
fn insert_rows(client: &mut Client, table: &str) {
    client.batch_execute(&format!("create table {table} (id int primary key, filler text)")).unwrap();
    let rows = "select i, repeat(md5(i::text), 12) from generate_series(1, 45000) i";
    client.batch_execute(&format!("insert into {table} {rows}")).unwrap();
}

/// The same by COPY, which writes past the pool; reading brings the pages in.
fn copy_rows(client: &mut Client, table: &str) {
    use std::io::Write;
    client.batch_execute(&format!("create table {table} (id int primary key, filler text)")).unwrap();
    let mut writer = client.copy_in(&format!("copy {table} from stdin")).unwrap();
    for id in 0..45_000_u32 {
        // No two share a beginning, which an index would keep only once a page.
        let filler = format!("{:08x}", id.wrapping_mul(2_654_435_761)).repeat(48);
        writeln!(writer, "{id}\t{filler}").unwrap();
    }
    writer.finish().unwrap();
    let pages = format!("select id from {table} where filler = 'none'");
    assert!(client.query(&pages, &[]).unwrap().is_empty());
}

/// Bytes on each node of the mappings whose policy begins with `policy`, as the kernel counts them.
fn kernel_bytes(server: &Server, policy: &str) -> BTreeMap<i32, i64> {
    let text = fs::read_to_string(format!("/proc/{}/numa_maps", server.pid())).unwrap();
    let mut bytes = BTreeMap::new();
    for line in text.lines().filter(|line| line.split(' ').nth(1).is_some_and(|found| found.starts_with(policy))) {
        let page_kib: i64 = line
            .split(' ')
            .find_map(|field| field.strip_prefix("kernelpagesize_kB="))
            .map_or(4, |text| text.parse().unwrap());
        for field in line.split(' ').filter(|field| field.starts_with('N')) {
            let (node, pages) = field[1..].split_once('=').unwrap();
            let pages: i64 = pages.parse().unwrap();
            *bytes.entry(node.parse().unwrap()).or_default() += pages * page_kib * 1024;
        }
    }
    bytes
}

fn resident_bytes(server: &Server) -> i64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<i64>().unwrap() * 1024
}

const SHARED: &str = "select node, sum(bytes)::bigint from homenode.shared_memory";
