//! Is the private memory of sessions, and of the threads that work for them, in the views? On any machine.

use super::*;

/// Bytes of a session's memory by context.
fn contexts(client: &mut Client, pid: i32) -> BTreeMap<String, i64> {
    let query = "select context, max(bytes) from homenode.memory_contexts where pid = $1 group by context";
    let rows = client.query(query, &[&pid]).unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

#[test]
fn plans_and_stacks_are_counted_and_given_back() {
    let server = Server::with(settings("64MiB", &["--log-level", "warn"]));
    let (mut client, mut watcher) = (server.client(), server.client());
    client.batch_execute("create table t (id int primary key, n int)").unwrap();
    let pid: i32 = one(&mut client, "select pg_backend_pid()");
    let before = contexts(&mut watcher, pid);
    let columns: Vec<String> = (0..200).map(|i| format!("n + {i} as c{i}")).collect();
    let large = client.prepare(&format!("select {} from t where id = $1", columns.join(", "))).unwrap();
    let with = contexts(&mut watcher, pid);
    assert!(with["plan"] - before["plan"] > 30_000, "200 expressions and their tree: {before:?} {with:?}");
    drop(large);
    client.batch_execute("deallocate all; discard plans").unwrap();
    let after = contexts(&mut watcher, pid);
    assert!(after["plan"] - before["plan"] < 20_000, "{before:?} {after:?}");
    // The answer may be here before the turn has ended.
    let limit = std::time::Duration::from_secs(30);
    common::wait_until("nothing runs there", limit, || contexts(&mut watcher, pid)["stack"] == 0);
    let watchers: i32 = one(&mut watcher, "select pg_backend_pid()");
    let stack = contexts(&mut watcher, watchers)["stack"];
    assert!((4096..1 << 20).contains(&stack), "the statement that asks has a stack: {stack}");
}

#[test]
fn what_aggregates_gather_is_counted() {
    let server = Server::with(settings("64MiB", &["--log-level", "warn"]));
    let mut client = server.client();
    let pid: i32 = one(&mut client, "select pg_backend_pid()");
    let gathers = "select length(string_agg(md5(i::text), ',')), array_length(array_agg(repeat('x', 100)), 1)
        from generate_series(1, 50000) i";
    client.query(gathers, &[]).unwrap();
    let peak: i64 = one(
        &mut client,
        &format!("select max(peak_bytes) from homenode.memory_contexts where pid = {pid} and context = 'hash'"),
    );
    // 33 bytes a row here, 100 and a value there.
    assert!(peak > 50_000 * 133, "{peak}");
}

#[test]
fn a_running_parallel_query_shows_its_memory() {
    let server = Server::with(settings("64MiB", &["--workers", "2", "--log-level", "warn"]));
    let (mut client, mut watcher) = (server.client(), server.client());
    insert_rows(&mut client, "t");
    let pid: i32 = one(&mut client, "select pg_backend_pid()");
    let running = "select worker, context, max(bytes), max(peak_bytes) from homenode.query_memory
        where pid = $1 and query > 0 group by worker, context";
    let done = std::sync::atomic::AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let groups = "select count(*) from (select filler || id, count(*) from t group by 1) g";
                assert_eq!(client.query_one(groups, &[]).unwrap().get::<_, i64>(0), 45_000);
            }
        });
        let mut most = BTreeMap::new();
        for _ in 0..20_000 {
            for row in watcher.query(running, &[&pid]).unwrap() {
                let worker = row.get::<_, Option<i32>>(0).map_or("leader", |_| "worker");
                let bytes = most.entry((worker, row.get::<_, String>(1))).or_insert(0);
                *bytes = row.get::<_, i64>(2).max(*bytes);
            }
            // A part of the table's 17 MiB on some thread.
            if most.get(&("worker", "hash".into())).is_some_and(|bytes| *bytes > MIB)
                && most.contains_key(&("worker", "scan".into()))
                && contexts(&mut watcher, pid).get("parallel").is_some_and(|bytes| *bytes > MIB)
            {
                break;
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        most
    });
    let found: Vec<_> = most.keys().map(|(worker, context)| format!("{worker} {context}")).collect();
    assert!(most[&("worker", "hash".into())] > MIB && most.contains_key(&("worker", "scan".into())), "{most:?}");
    assert!(found.contains(&"leader stack".to_owned()), "{found:?}");
    // When none runs there is nothing.
    assert_eq!(one::<i64>(&mut watcher, "select count(*) from homenode.query_memory"), 0);
    assert!(!contexts(&mut watcher, pid).contains_key("parallel"));
}
