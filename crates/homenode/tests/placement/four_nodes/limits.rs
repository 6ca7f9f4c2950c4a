//! Does the server start with what it has, and say what it has not?

use super::*;

/// A container's filter of system calls: no policies, no look at where pages are.
#[test]
#[ignore = "for ./vm"]
fn without_permission_it_works_and_says_so() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/placement/refuse.py");
    let wrapper = vec!["/usr/bin/python3".to_owned(), script.to_str().unwrap().to_owned()];
    let settings = |arguments: &[&str]| Settings { wrapper: wrapper.clone(), ..settings("64MiB", arguments) };
    let server = Server::with(settings(&[]));
    let mut client = server.client();
    insert_rows(&mut client, "t");
    assert_eq!(one::<i64>(&mut client, "select count(*) from t where length(filler) = 384"), 45_000);
    assert!(!one::<bool>(&mut client, "select pg_numa_available()"));
    fails(client.query("select * from homenode.buffers", &[]), "42501");
    assert_eq!(one::<i64>(&mut client, "select count(*) from homenode.nodes"), 4);
    drop((client, server));
    let folder = Folder::new();
    let bound = Server::open(&folder.path().join("data"), settings(&["--pool-policy", "bind=1"]));
    let said = bound.map(|_| ()).expect_err("binding is refused").output;
    assert!(said.lines().any(|line| line.contains("bind=1") && line.contains("does not permit it")), "{said}");
}

/// A control group's limit of memory, below what the machine has.
#[test]
#[ignore = "for ./vm"]
fn a_groups_memory_is_the_limit() {
    let group = Path::new("/sys/fs/cgroup/small");
    fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory").unwrap();
    fs::create_dir_all(group).unwrap();
    fs::write(group.join("memory.max"), (700 * MIB).to_string()).unwrap();
    let me = std::process::id().to_string();
    fs::write(group.join("cgroup.procs"), &me).unwrap();
    let outcome = std::panic::catch_unwind(|| {
        let server = server("96MiB", &[]);
        let mut client = server.client();
        insert_rows(&mut client, "t");
        let failed = client.batch_execute("alter system set homenode.pool_size = '2GiB'").unwrap_err();
        let failed = failed.as_db_error().unwrap();
        assert_eq!(failed.code().code(), "53200");
        assert!(failed.message().contains("control group"), "{failed:?}");
        client.batch_execute("alter system set homenode.pool_size = '160MiB'").unwrap();
        assert_eq!(one::<i64>(&mut client, FRAMES), 160 * MIB);
        assert_eq!(one::<i64>(&mut client, "select count(*) from t where length(filler) = 384"), 45_000);
        let large = refused("2GiB", &[]);
        assert!(large.contains("the pool takes 2147483648 bytes") && large.contains("control group"), "{large}");
    });
    fs::write("/sys/fs/cgroup/cgroup.procs", &me).unwrap();
    outcome.unwrap();
}

/// What a session has comes along when it moves: its buffers and its plans.
#[test]
#[ignore = "for ./vm"]
fn memory_moves_along() {
    let server = server("64MiB", &["--log-level", "warn"]);
    let (mut client, mut watcher) = (server.client(), server.client());
    client.batch_execute("create table t (id int primary key, n int)").unwrap();
    let pid: i32 = one(&mut client, "select pg_backend_pid()");
    let columns: Vec<String> = (0..300).map(|i| format!("n + {i} as c{i}")).collect();
    let kept = client.prepare(&format!("select {} from t where id = $1", columns.join(", "))).unwrap();
    // In turn to every node, with memory of the one before in every buffer.
    for node in [2, 0, 3, 1] {
        one::<bool>(&mut watcher, &format!("select homenode.pin({pid}, {node})"));
        assert!(client.query(&kept, &[&1]).unwrap().is_empty());
        let large = format!("select length('{}'), repeat('x', 30000)", "y".repeat(30_000));
        assert_eq!(one::<i32>(&mut client, &large), 30_000);
        let query = "select context, node, max(session_node), sum(node_bytes)::bigint from homenode.memory_contexts
            where pid = $1 and node is not null and context in ('plan', 'input', 'output') group by 1, 2 order by 1";
        let rows = watcher.query(query, &[&pid]).unwrap();
        let places: Vec<(String, i32, i32)> = rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
        let all = ["input", "output", "plan"].map(|context| (context.to_owned(), node, node));
        assert_eq!(places, all);
    }
}

/// Threads of a big scan make their memory on their own nodes.
#[test]
#[ignore = "for ./vm"]
fn a_scans_memory_is_on_its_threads_nodes() {
    let server = server("64MiB", &["--log-level", "warn"]);
    let (mut client, mut watcher) = (server.client(), server.client());
    insert_rows(&mut client, "t");
    let pid: i32 = one(&mut client, "select pg_backend_pid()");
    let done = std::sync::atomic::AtomicBool::new(false);
    let (local, remote) = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let groups = "select count(*) from (select filler || id, count(*) from t group by 1) g";
                client.query(groups, &[]).unwrap();
            }
        });
        let query = "select worker_node = node, sum(node_bytes)::bigint from homenode.query_memory
            where pid = $1 and worker is not null and context = 'hash' and node is not null group by 1";
        let (mut local, mut remote) = (0, 0);
        for _ in 0..2000 {
            for row in watcher.query(query, &[&pid]).unwrap() {
                let sum = if row.get(0) { &mut local } else { &mut remote };
                *sum += row.get::<_, i64>(1);
            }
            if local + remote > 50 * MIB {
                break;
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        (local, remote)
    });
    assert!(local > MIB && local > 20 * remote, "local {local}, remote {remote}");
}

/// What ALTER SYSTEM has set holds after the next start, unless that cannot be had.
#[test]
#[ignore = "for ./vm"]
fn settings_outlive_the_server_and_never_stop_a_start() {
    let mut server = server("64MiB", &[]);
    server.client().batch_execute("alter system set homenode.pool_policy = 'bind=1,3'").unwrap();
    server.stop();
    server.restart();
    assert_eq!(one::<String>(&mut server.client(), "show homenode.pool_policy"), "bind=1,3");
    server.stop();
    let file = server.data().join("homenode.auto.conf");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("bind=1,3", "bind=7")).unwrap();
    server.restart();
    assert_eq!(one::<String>(&mut server.client(), "show homenode.pool_policy"), "interleave");
    assert!(server.output().contains("there is no node 7"), "{}", server.output());
}
