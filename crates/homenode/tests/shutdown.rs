//! Does SIGTERM stop a busy server within seconds, with 57P01 for everybody and every acknowledged commit kept?

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::raw::query;
use common::{Server, one};

const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn under_load() {
    let mut server = Server::start();
    let mut client = server.client();
    client
        .batch_execute("create table entry (writer int, seq int, primary key (writer, seq)); create table hot (n int primary key, v bigint); insert into hot values (1, 0)")
        .unwrap();
    let mut idle = server.raw();
    let mut idle_in_transaction = server.raw();
    idle_in_transaction.send(&query("begin; insert into entry values (99, 1)"));
    idle_in_transaction.tags();
    let mut sleeping = server.raw();
    sleeping.send(&query("select pg_sleep(100)"));
    let mut waiting = server.raw();
    client.batch_execute("begin; update hot set v = 1 where n = 1").unwrap();
    waiting.send(&query("update hot set v = 2 where n = 1"));
    let mut scanning = server.raw();
    scanning.send(&query("select count(*) from generate_series(1, 4000000000)"));
    let mut deaf = server.raw();
    deaf.send(&query("select repeat('x', 1000) from generate_series(1, 1000000)"));
    let writing = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (port, writing) = (server.port(), writing.clone());
            thread::spawn(move || {
                let mut client = common::connect(port).unwrap();
                let mut acknowledged = 0;
                for seq in 1.. {
                    match client.execute("insert into entry values ($1, $2)", &[&writer, &seq]) {
                        Ok(_) => acknowledged = seq,
                        Err(error) => {
                            if let Some(code) = error.code() {
                                assert_eq!(code.code(), "57P01", "{error:?}");
                            }
                            break;
                        }
                    }
                    writing.store(true, Ordering::Relaxed);
                }
                acknowledged
            })
        })
        .collect();
    common::wait_until("somebody has to write", LIMIT, || writing.load(Ordering::Relaxed));
    thread::sleep(Duration::from_millis(300));
    let start = Instant::now();
    server.terminate();
    for (who, raw) in [
        ("idle", &mut idle),
        ("in a transaction", &mut idle_in_transaction),
        ("sleeping", &mut sleeping),
        ("waiting", &mut waiting),
        ("scanning", &mut scanning),
    ] {
        assert_eq!(raw.until_closed().as_deref(), Some("57P01"), "{who}");
    }
    let status = server.wait_end(LIMIT);
    assert!(status.success(), "{status}");
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    assert!(common::connect(server.port()).is_err());
    drop(deaf);
    let acknowledged: Vec<i32> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    let start = Instant::now();
    server.restart();
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    let mut client = server.client();
    for (writer, acknowledged) in acknowledged.into_iter().enumerate() {
        let row = client
            .query_one("select count(*), coalesce(max(seq), 0) from entry where writer = $1", &[&(writer as i32)])
            .unwrap();
        let (count, last) = (row.get::<_, i64>(0), row.get::<_, i32>(1));
        assert!(
            count == i64::from(last) && (last == acknowledged || last == acknowledged + 1),
            "{count} {last} {acknowledged}"
        );
    }
    assert_eq!(one::<i64>(&mut client, "select count(*) from entry where writer = 99"), 0);
    assert_eq!(one::<i64>(&mut client, "select v from hot"), 0);
}

#[test]
fn again_and_again() {
    let mut server = Server::start();
    server.client().batch_execute("create table life (n int primary key)").unwrap();
    for n in 0..5 {
        server.client().execute("insert into life values ($1)", &[&n]).unwrap();
        server.stop();
        server.restart();
        assert_eq!(one::<i64>(&mut server.client(), "select count(*) from life"), i64::from(n) + 1);
    }
}
