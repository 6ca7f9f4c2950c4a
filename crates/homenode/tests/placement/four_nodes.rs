//! Does it hold on four nodes with two CPUs each?

use super::*;

mod limits;

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
    let io: f64 = one(&mut client, "select coalesce(max(average_write_run), 1) from homenode.io where what = 'pages'");
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
        let query = "select max(bytes), coalesce(sum(node_bytes), 0)::bigint, max(node) from homenode.memory_contexts";
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
        client.batch_execute(&format!("insert into kept values ({node}); delete from kept where i = {node}")).unwrap();
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
