//! Is everything where it is said to be? On a real Linux with several memory nodes, which `./vm` emulates: each test here boots
//! one shape and runs this same program in it, with the tests that are meant for that shape (they are ignored outside).
//!
//! A machine of the suite is booted once for many tests, because booting takes longer than most of them.

mod common;

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
    vm.args(["--limit", "420"]).args(shape).arg("--").arg(program);
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
    let cases: [&[&str]; 7] = [
        &["--nodes", "3", "--cpus", "4", "--", "true"],
        &["--nodes", "none", "--", "true"],
        &["--nodes"],
        &["--what", "1", "--", "true"],
        &["--far", "1TB", "--", "true"],
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

mod four_nodes {
    use super::*;

    const ALL: [i32; 4] = [0, 1, 2, 3];

    #[test]
    #[ignore = "for ./vm"]
    fn pages_are_spread_whoever_loads_them() {
        let mut server = server("256MiB", &["--log-level", "warn"]);
        let mut client = server.client();
        insert_rows(&mut client, "inserted");
        assert_even(&pages_of(&mut client, "inserted"), &ALL);
        copy_rows(&mut client, "copied");
        assert_even(&pages_of(&mut client, "copied"), &ALL);
        client.batch_execute("create index copied_filler on copied (filler, id)").unwrap();
        let index = "index_name = 'copied_filler'";
        let loaded: i64 = one(&mut client, "select pg_prewarm('copied_filler')");
        let counted = by_node(
            &mut client,
            &format!("select node, sum(pages)::bigint from homenode.buffers_by_table where {index} group by node"),
        );
        assert_eq!(counted.values().sum::<i64>(), loaded);
        assert_even(&counted, &ALL);

        // After a start, which brings back what was in memory before, by one thread.
        drop(client);
        server.stop();
        server.restart();
        let mut client = server.client();
        let loaded: i64 = one(&mut client, "select pg_prewarm('inserted'::regclass)");
        let pages = pages_of(&mut client, "inserted");
        assert_eq!(pages.values().sum::<i64>(), loaded);
        assert_even(&pages, &ALL);
        fails(client.query("select pg_prewarm('inserted', 'nonsense')", &[]), "22023");
        fails(client.query("select pg_prewarm(1)", &[]), "42809");
        let some: i64 = one(&mut client, "select pg_prewarm('inserted', 'buffer', 'main', 10, 19)");
        assert_eq!(some, 10);
    }

    /// What the spread is worth comparing with: pages that go where their loader is.
    #[test]
    #[ignore = "for ./vm"]
    fn local_pages_are_on_their_loaders_node() {
        let server = server("512MiB", &["--pool-policy", "local"]);
        let mut client = server.client();
        insert_rows(&mut client, "inserted");
        let node: i32 = one(&mut client, "select node from homenode.sessions where pid = pg_backend_pid()");
        let pages = pages_of(&mut client, "inserted");
        let all: i64 = pages.values().sum();
        assert!(pages[&node] * 10 > all * 9, "loaded on node {node}: {pages:?}");
    }

    #[test]
    #[ignore = "for ./vm"]
    fn the_views_say_what_the_kernel_says() {
        let server = server("256MiB", &[]);
        let mut client = server.client();
        insert_rows(&mut client, "t");
        let ours = by_node(&mut client, &format!("{SHARED} where wanted_node is not null group by node"));
        assert_eq!(ours, kernel_bytes(&server, "prefer"));
        let frames = by_node(&mut client, &format!("{SHARED} where name like 'pool frames%' group by node"));
        assert_eq!(frames, ALL.map(|node| (node, 64 * MIB)).into());
        assert_eq!(one::<i64>(&mut client, "select count(*) from homenode.shared_memory where elsewhere"), 0);

        // Descriptors on their frames' node.
        let descriptors = by_node(
            &mut client,
            "select wanted_node, count(*) from homenode.shared_memory
             where name like 'pool descriptors%' and node = wanted_node group by wanted_node",
        );
        assert_eq!(descriptors, ALL.map(|node| (node, 1)).into());

        // PostgreSQL's names for the same. Each page of 16 KiB is four of the kernel's.
        assert!(one::<bool>(&mut client, "select pg_numa_available()"));
        let numa = by_node(
            &mut client,
            "select numa_node, count(*) from pg_buffercache_numa group by numa_node order by numa_node",
        );
        assert_eq!(numa, ALL.map(|node| (node, 64 * MIB / 4096)).into());
        let same = "select count(*) from homenode.buffers b join pg_buffercache p on p.bufferid = b.frame + 1
                    where p.relblocknumber = b.page and b.node = b.home_node";
        let held: i64 = one(&mut client, "select count(*) from homenode.buffers");
        assert_eq!(one::<i64>(&mut client, same), held);
        assert!(held > 1000);
        let shmem = by_node(
            &mut client,
            "select numa_node, sum(size)::bigint from pg_shmem_allocations_numa where name like 'pool %' group by numa_node",
        );
        assert_eq!(shmem, ours);

        // The kernel's counters, read twice.
        let nodes = client.query("select node, workers, free_bytes, local_node from homenode.nodes order by node", &[]);
        let nodes = nodes.unwrap();
        assert_eq!(nodes.len(), 4);
        for row in &nodes {
            assert_eq!(row.get::<_, i32>(1), 2, "workers");
            assert!(row.get::<_, i64>(2) > 64 * MIB && row.get::<_, i64>(3) > 0);
        }
        let io: f64 =
            one(&mut client, "select coalesce(max(average_write_run), 1) from homenode.io where what = 'pages'");
        assert!(io >= 1.0);
    }

    #[test]
    #[ignore = "for ./vm"]
    fn explain_tells_the_nodes_of_the_pages() {
        let server = server("128MiB", &[]);
        let mut client = server.client();
        insert_rows(&mut client, "t");
        client.batch_execute("create index t_filler on t (filler)").unwrap();
        let pages = pages_of(&mut client, "t");
        let explained = |client: &mut Client, options: &str, statement: &str| {
            let rows = client.query(&format!("explain (analyze, {options}) {statement}"), &[]).unwrap();
            rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>().join("\n")
        };
        // A whole table: all of its pages, where the census finds them.
        for statement in ["select count(*) from t", "select max(length(filler)) from t"] {
            let text = explained(&mut client, "buffers, numa, costs off", statement);
            let all: i64 = pages.values().sum();
            assert!(text.contains(&format!("Buffers: shared touched={all}\n")), "{pages:?}\n{text}");
            let nodes: Vec<String> = pages.iter().map(|(node, count)| format!("node{node}={count}")).collect();
            assert!(text.contains(&format!("NUMA: {} local=", nodes.join(" "))), "{pages:?}\n{text}");
        }
        // By the session alone a quarter is local. In parallel each node's threads begin with the pages of their node.
        let mut locality = |parallel: &str| -> (i64, i64) {
            client.batch_execute(&format!("set enable_parallel = {parallel}")).unwrap();
            let json = explained(&mut client, "buffers, numa, format json", "select count(*) from t");
            let json: serde_json::Value = serde_json::from_str(&json).unwrap();
            let plan = &json[0]["Plan"];
            let number = |field: &str| plan[field].as_i64().unwrap();
            let (local, remote) = (number("NUMA Local Blocks"), number("NUMA Remote Blocks"));
            assert_eq!(local + remote, number("Shared Touched Blocks"));
            assert_eq!(plan["NUMA Blocks by Node"]["3"].as_i64(), Some(pages[&3]));
            (local, remote)
        };
        let (local, remote) = locality("off");
        assert!(remote > 2 * local && local > 200, "a quarter is local: {local} of {}", local + remote);
        let (local, remote) = locality("on");
        println!("in parallel {local} local, {remote} remote");
        assert!(local > remote, "most are local: {local} of {}", local + remote);
        // The threads of each node run on its CPUs.
        let mut bound: BTreeMap<String, usize> = BTreeMap::new();
        for task in fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap() {
            let task = task.unwrap().path();
            if fs::read_to_string(task.join("comm")).unwrap().trim() == "homenode-scan" {
                let status = fs::read_to_string(task.join("status")).unwrap();
                let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
                *bound.entry(cpus.trim().into()).or_default() += 1;
            }
        }
        assert_eq!(bound, ["0-1", "2-3", "4-5", "6-7"].map(|cpus| (cpus.into(), 2)).into());

        // One row: the way down; a few: not much more; by an index: its way and the table's.
        let touched = |client: &mut Client, statement: &str| -> i64 {
            let text = explained(client, "buffers", statement);
            let line = text.lines().find_map(|line| line.trim().strip_prefix("Buffers: shared touched="));
            line.unwrap_or_else(|| panic!("{text}")).parse().unwrap()
        };
        let depth = touched(&mut client, "select * from t where id = 7");
        assert!((2..=4).contains(&depth), "{depth}");
        let few = touched(&mut client, "select * from t limit 3");
        assert!((depth..=depth + 2).contains(&few), "{few}");
        let found = touched(&mut client, "select * from t where filler = repeat(md5('9'), 12)");
        assert!((depth + 2..=3 * depth + 2).contains(&found), "{found}");
        let changed = touched(&mut client, "update t set filler = filler where id between 10 and 12");
        assert!((depth..=depth + 2).contains(&changed), "{changed}");
        fails(client.query("explain (numa) select 1", &[]), "22023");
    }

    #[test]
    #[ignore = "for ./vm"]
    fn private_memory_is_counted_and_found() {
        let server = server("64MiB", &[]);
        let (mut client, mut watcher) = (server.client(), server.client());
        let pid: i32 = one(&mut client, "select pg_backend_pid()");
        let used = |watcher: &mut Client, context: &str| -> (i64, i64, Option<i32>) {
            let query =
                "select max(bytes), coalesce(sum(node_bytes), 0)::bigint, max(node) from homenode.memory_contexts";
            let row = watcher.query_one(&format!("{query} where pid = {pid} and context = '{context}'"), &[]).unwrap();
            (row.get::<_, Option<i64>>(0).unwrap_or(0), row.get(1), row.get(2))
        };
        let mut open = client.transaction().unwrap();
        // A portal in the middle of its rows.
        let sorted = open.prepare("select i, -i from generate_series(1, 60000) i order by 2").unwrap();
        let portal = open.bind(&sorted, &[]).unwrap();
        assert_eq!(open.query_portal(&portal, 1).unwrap().len(), 1);
        let (sort, found, node) = used(&mut watcher, "sort");
        assert!(sort > 60_000 * 2 * 16 && found > 0 && found <= sort + 8192, "{sort} {found}");
        let home: i32 = one(&mut watcher, &format!("select node from homenode.sessions where pid = {pid}"));
        assert_eq!(node, Some(home), "private memory is local");
        open.commit().unwrap();
        assert_eq!(used(&mut watcher, "sort").0, 0);
        assert!(used(&mut watcher, "input").0 > 0 && used(&mut watcher, "output").0 > 0);
    }

    #[test]
    #[ignore = "for ./vm"]
    fn a_census_makes_nothing_present() {
        let server = server("512MiB", &["--prefault", "off"]);
        let mut client = server.client();
        // The first statement of a kind takes memory of its own.
        for _ in 0..2 {
            let before = resident_bytes(&server);
            for view in ["homenode.buffers", "homenode.shared_memory", "pg_shmem_allocations_numa"] {
                one::<i64>(&mut client, &format!("select count(*) from {view}"));
            }
            one::<i64>(&mut client, "select count(*) from homenode.buffers_by_table where pages > 0");
            let grown = resident_bytes(&server) - before;
            assert!(grown < 24 * MIB, "{} MiB more", grown / MIB);
        }
        let frames = by_node(&mut client, &format!("{SHARED} where name like 'pool frames%' group by node"));
        assert!(frames[&-1] > 450 * MIB, "{frames:?}");
    }

    #[test]
    #[ignore = "for ./vm"]
    fn sessions_are_spread_and_moved() {
        let server = server("64MiB", &[]);
        let mut clients: Vec<Client> = (0..8).map(|_| server.client()).collect();
        let spread = by_node(&mut clients[0], "select node, sessions::bigint from homenode.nodes order by node");
        assert_eq!(spread, ALL.map(|node| (node, 2)).into());

        const ME: &str = "select node, worker, moves, cpu from homenode.sessions where pid = pg_backend_pid()";
        let mut client = clients.pop().unwrap();
        let mut watcher = clients.pop().unwrap();
        let pid: i32 = one(&mut client, "select pg_backend_pid()");
        client
            .batch_execute("set application_name = 'moved'; create table kept (i int); insert into kept values (7)")
            .unwrap();
        let prepared = client.prepare("select i + $1::int from kept").unwrap();
        for node in [2, 0, 3, 1] {
            assert!(one::<bool>(&mut watcher, &format!("select homenode.pin({pid}, {node})")));
            let row = client.query_one(ME, &[]).unwrap();
            assert_eq!(row.get::<_, i32>(0), node);
            let (worker, cpu): (i32, i32) = (row.get(1), row.get(3));
            assert_eq!((worker / 2, cpu / 2), (node, node), "two workers and two CPUs a node");
            assert_eq!(client.query_one(&prepared, &[&1]).unwrap().get::<_, i32>(0), 8);
            client
                .batch_execute(&format!("insert into kept values ({node}); delete from kept where i = {node}"))
                .unwrap();
        }
        assert_eq!(one::<String>(&mut client, "show application_name"), "moved");
        let moves: i64 = client.query_one(ME, &[]).unwrap().get(2);
        assert!((3..=4).contains(&moves), "{moves}");

        // A transaction stays where it is; the session goes after it.
        let mut open = client.transaction().unwrap();
        open.batch_execute("insert into kept values (8)").unwrap();
        assert!(one::<bool>(&mut watcher, &format!("select homenode.pin({pid}, 2)")));
        assert_eq!(open.query_one(ME, &[]).unwrap().get::<_, i32>(0), 1);
        open.commit().unwrap();
        assert_eq!(client.query_one(ME, &[]).unwrap().get::<_, i32>(0), 2);
        assert!(one::<bool>(&mut watcher, &format!("select homenode.unpin({pid})")));
        let pinned = format!("select pinned_node from homenode.sessions where pid = {pid}");
        assert_eq!(one::<Option<i32>>(&mut watcher, &pinned), None);
        assert_eq!(client.query_one(ME, &[]).unwrap().get::<_, i32>(0), 2);

        fails(watcher.query(&format!("select homenode.pin({pid}, 9)"), &[]), "22023");
        fails(watcher.query(&format!("select homenode.pin({pid}, -1)"), &[]), "22023");
        assert!(!one::<bool>(&mut watcher, "select homenode.pin(999999, 1)"));
        server.assert_alive();
    }

    #[test]
    #[ignore = "for ./vm"]
    fn many_sessions_move_while_they_work() {
        let server = server("64MiB", &[]);
        server.client().batch_execute("create table counted (id int primary key, n int); insert into counted select i, 0 from generate_series(1, 6) i").unwrap();
        std::thread::scope(|scope| {
            for id in 1..=6 {
                let mut client = server.client();
                scope.spawn(move || {
                    for round in 0..60 {
                        if round % 3 == 0 {
                            let node = (id + round / 3) % 4;
                            client.query(&format!("select homenode.pin(pg_backend_pid(), {node})"), &[]).unwrap();
                        }
                        client.execute("update counted set n = n + 1 where id = $1", &[&id]).unwrap();
                    }
                });
            }
        });
        let mut client = server.client();
        assert_eq!(one::<i64>(&mut client, "select sum(n) from counted"), 360);
        server.stop();
    }

    #[test]
    #[ignore = "for ./vm"]
    fn bind_holds_or_says_why_not() {
        let server = server("128MiB", &["--pool-policy", "bind=1,3"]);
        let mut client = server.client();
        insert_rows(&mut client, "t");
        assert_even(&pages_of(&mut client, "t"), &[1, 3]);
        let frames = by_node(&mut client, &format!("{SHARED} where name like 'pool %' group by node"));
        assert_eq!(frames.keys().copied().collect::<Vec<_>>(), [1, 3]);
        drop((client, server));

        let full = refused("1100MiB", &["--pool-policy", "bind=2"]);
        assert!(full.contains("bytes cannot be bound (bind=2)") && full.contains("are left there"), "{full}");
        let unknown = refused("64MiB", &["--pool-policy", "bind=7"]);
        assert!(unknown.contains("there is no node 7"), "{unknown}");
        let unknown = refused("64MiB", &["--pool-policy", "preferred=7"]);
        assert!(unknown.contains("there is no node 7"), "{unknown}");
    }

    /// Size and policy change under load; the pages are where the policy says afterwards.
    #[test]
    #[ignore = "for ./vm"]
    fn policy_and_size_change_under_load() {
        let server = server("128MiB", &["--pool-policy", "local", "--prefault", "off", "--log-level", "warn"]);
        let mut client = server.client();
        insert_rows(&mut client, "t");
        let load = Load::on(&server, 3);
        let by_home = "select node, sum(frames)::bigint * 16384 from homenode.pool where frames > 0 group by node";
        for (change, nodes) in [
            ("homenode.pool_policy = 'interleave'", &ALL[..]),
            ("homenode.pool_size = '64MiB'", &ALL),
            ("homenode.pool_policy = 'bind=1,3'", &[1, 3]),
            ("homenode.pool_size = '160MiB'", &[1, 3]),
            ("homenode.pool_policy = 'preferred=2'", &[2]),
            ("homenode.pool_policy = 'interleave'", &ALL),
        ] {
            client.batch_execute(&format!("alter system set {change}")).unwrap();
            let frames = by_node(&mut client, by_home);
            assert_eq!(frames.keys().copied().collect::<Vec<_>>(), nodes, "{change}: {frames:?}");
            let even = frames.values().sum::<i64>() / nodes.len() as i64;
            assert!(frames.values().all(|bytes| (bytes - even).abs() <= 2 * MIB), "{change}: {frames:?}");
            let pages = pages_of(&mut client, "t");
            assert_eq!(pages.keys().copied().collect::<Vec<_>>(), nodes, "{change}: {pages:?}");
            if nodes.len() > 1 {
                assert_even(&pages, nodes);
            }
        }
        // More than a node has: a clear error, and all goes on as before.
        let before = by_node(&mut client, by_home);
        fails(client.batch_execute("set homenode.pool_policy = 'bind=9'"), "22023");
        fails(client.batch_execute("select homenode.resize_pool('7GiB')"), "53200");
        client.batch_execute("set homenode.pool_size = '1100MiB'").unwrap();
        let all = by_node(&mut client, by_home);
        fails(client.batch_execute("alter system set homenode.pool_policy = 'bind=2'"), "53200");
        assert_eq!(by_node(&mut client, by_home), all);
        assert_eq!(one::<String>(&mut client, "show homenode.pool_policy"), "interleave");
        client.batch_execute("set homenode.pool_size = '160MiB'").unwrap();
        assert_eq!(by_node(&mut client, by_home), before);
        load.end(&mut client);
        server.stop();
    }

    #[test]
    #[ignore = "for ./vm"]
    fn preferred_falls_back_and_says_how_much() {
        let server = server("1100MiB", &["--pool-policy", "preferred=2"]);
        let mut client = server.client();
        let frames = by_node(&mut client, &format!("{SHARED} where name like 'pool frames%' group by node"));
        assert_eq!(frames.values().sum::<i64>(), 1100 * MIB, "{frames:?}");
        assert!(frames[&2] > 600 * MIB && !frames.contains_key(&-1), "{frames:?}");
        let elsewhere =
            "select sum(bytes)::bigint from homenode.shared_memory where elsewhere and name like 'pool frames%'";
        assert_eq!(one::<i64>(&mut client, elsewhere), 1100 * MIB - frames[&2]);
        let policy: String =
            one(&mut client, "select policy from homenode.shared_memory where name like 'pool frames%' limit 1");
        assert_eq!(policy, "preferred=2");
    }

    #[test]
    #[ignore = "for ./vm"]
    fn off_is_off() {
        let server = server("64MiB", &["--numa", "off"]);
        let mut client = server.client();
        insert_rows(&mut client, "t");
        let maps = fs::read_to_string(format!("/proc/{}/numa_maps", server.pid())).unwrap();
        assert!(maps.lines().all(|line| line.split(' ').nth(1) == Some("default")), "{maps}");
        for task in fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap() {
            let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
            assert!(status.contains("Cpus_allowed_list:\t0-7\n"), "{status}");
        }
        // The views still tell what is.
        assert_eq!(one::<i64>(&mut client, "select count(*) from homenode.nodes"), 4);
        let pages: i64 = pages_of(&mut client, "t").values().sum();
        assert!(pages > 1000, "{pages}");
        // One session has filled more than its own partition, and nothing had to go for that.
        assert_eq!(one::<i64>(&mut client, "select sum(evictions)::bigint from homenode.pool"), 0);
        fails(client.query("select homenode.pin(pg_backend_pid(), 1)", &[]), "22023");
    }

    /// A control group that hides nodes: the server starts with what it has.
    #[test]
    #[ignore = "for ./vm"]
    fn hidden_nodes_are_left_alone() {
        let group = Path::new("/sys/fs/cgroup/some");
        fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+cpuset").unwrap();
        fs::create_dir_all(group).unwrap();
        fs::write(group.join("cpuset.mems"), "1-2").unwrap();
        fs::write(group.join("cpuset.cpus"), "2-7").unwrap();
        let me = std::process::id().to_string();
        fs::write(group.join("cgroup.procs"), &me).unwrap();
        let outcome = std::panic::catch_unwind(|| {
            let server = server("64MiB", &[]);
            let mut client = server.client();
            insert_rows(&mut client, "t");
            assert_even(&pages_of(&mut client, "t"), &[1, 2]);
            let unknown = refused("64MiB", &["--pool-policy", "bind=0"]);
            assert!(unknown.contains("there is no node 0 with memory for this process"), "{unknown}");
        });
        fs::write("/sys/fs/cgroup/cgroup.procs", &me).unwrap();
        outcome.unwrap();
    }

    /// Reserved huge pages on one node only: the others do without rather than take that node's.
    #[test]
    #[ignore = "for ./vm"]
    fn huge_pages_of_another_node_are_not_taken() {
        let reserved = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages";
        fs::write(reserved, "40").unwrap();
        let outcome = std::panic::catch_unwind(|| {
            let server = server("128MiB", &[]);
            let mut client = server.client();
            let made_of = "select made_of from homenode.shared_memory where name like 'pool frames, node";
            assert_eq!(one::<String>(&mut client, &format!("{made_of} 0'")), "reserved huge pages");
            assert_eq!(one::<String>(&mut client, &format!("{made_of} 1'")), "transparent huge pages");
            assert_eq!(one::<i64>(&mut client, "select count(*) from homenode.shared_memory where elsewhere"), 0);
        });
        fs::write(reserved, "0").unwrap();
        outcome.unwrap();
    }
}

mod unequal {
    use super::*;

    const NEAR: [i32; 3] = [0, 1, 2];

    #[test]
    #[ignore = "for ./vm"]
    fn far_memory_is_used_only_when_named() {
        let server = server("96MiB", &[]);
        let mut client = server.client();
        insert_rows(&mut client, "t");
        assert_even(&pages_of(&mut client, "t"), &NEAR);
        let distances: String = one(&mut client, "select distances from homenode.topology where node = 0");
        assert_eq!(distances, "10 15 21 30");
        let cpus: String = one(&mut client, "select cpus from homenode.nodes where node = 3");
        assert_eq!(cpus, "");
        fails(client.query("select homenode.pin(pg_backend_pid(), 3)", &[]), "22023");
        drop((client, server));

        let server = super::server("96MiB", &["--pool-policy", "bind=3"]);
        let mut client = server.client();
        insert_rows(&mut client, "t");
        assert_even(&pages_of(&mut client, "t"), &[3]);
    }

    /// A table larger than the near tier: what cools goes to the far node instead of the file, what is used there returns.
    #[test]
    #[ignore = "for ./vm"]
    fn pages_cool_in_far_memory_and_return() {
        let server = super::server("12MiB", &["--far-nodes", "auto", "--far-size", "64MiB"]);
        let mut client = server.client();
        insert_rows(&mut client, "t");
        let pages = pages_of(&mut client, "t");
        assert!(pages[&3] > 400 && pages.values().sum::<i64>() > 1200, "{pages:?}");
        let sums = "select sum(cooled)::bigint, sum(returned)::bigint, sum(read)::bigint, max(hit_rate)
                    from homenode.far where tier = ";
        let sums = |client: &mut Client, tier: &str| -> (i64, i64, i64) {
            let row = client.query_one(&format!("{sums} '{tier}'"), &[]).unwrap();
            (row.get(0), row.get(1), row.get(2))
        };
        assert!(sums(&mut client, "far").0 > 400);
        let read = sums(&mut client, "near").2;
        // Some pages from all over the table are used all the time.
        let hot = client.prepare("select length(filler) from t where id = $1").unwrap();
        let returned = (0..600).any(|round| {
            for id in (500..45_000).step_by(1000) {
                client.query_one(&hot, &[&id]).unwrap();
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
            round % 20 == 19 && sums(&mut client, "far").1 >= 16
        });
        assert!(returned, "{:?}", sums(&mut client, "far"));
        assert_eq!(one::<i64>(&mut client, "select count(*) from t where length(filler) = 384"), 45_000);
        let read = sums(&mut client, "near").2 - read;
        assert!(read < 200, "{read} pages were read from the file although both tiers hold all");
        let rows = client.query("explain (analyze, numa, costs off) select count(*) from t", &[]).unwrap();
        let text: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        assert!(text.iter().any(|line| line.contains(" near=") && line.contains(" far=")), "{text:?}");
        assert_eq!(one::<i64>(&mut client, "select count(*) from homenode.far where tier = 'far' and node = 3"), 1);
        server.stop();

        let full = refused("64MiB", &["--far-nodes", "3", "--far-size", "1GiB"]);
        assert!(full.contains("bytes cannot be bound (bind=3)"), "{full}");
        let unknown = refused("64MiB", &["--far-nodes", "8"]);
        assert!(unknown.contains("there is no node 8"), "{unknown}");
        let off = refused("64MiB", &["--far-nodes", "3", "--numa", "off"]);
        assert!(off.contains("--numa off"), "{off}");
    }

    #[test]
    #[ignore = "for ./vm"]
    fn what_does_not_fit_goes_to_the_nearest_node() {
        // Node 0 is nearer to node 1 than node 1 is to node 0; from node 1 the next is node 0, at 17.
        let server = server("1100MiB", &["--pool-policy", "preferred=1"]);
        let mut client = server.client();
        let frames = by_node(&mut client, &format!("{SHARED} where name like 'pool frames%' group by node"));
        assert_eq!(frames.keys().copied().collect::<Vec<_>>(), [0, 1], "{frames:?}");
    }

    /// A node without CPUs that could run anything is memory only. Runs last: the CPUs stay off.
    #[test]
    #[ignore = "for ./vm"]
    fn when_a_nodes_cpus_are_off_it_is_left_alone() {
        for cpu in [2, 3] {
            fs::write(format!("/sys/devices/system/cpu/cpu{cpu}/online"), "0").unwrap();
        }
        let server = server("96MiB", &[]);
        let mut client = server.client();
        insert_rows(&mut client, "t");
        let workers = by_node(&mut client, "select node, workers::bigint from homenode.nodes order by node");
        assert_eq!(workers.get(&1), Some(&0), "{workers:?}");
        assert_even(&pages_of(&mut client, "t"), &[0, 2]);
    }
}
