//! Does a cancel request end what runs, and nothing else?

mod common;

use std::thread;
use std::time::{Duration, Instant};

use common::raw::{Raw, message, query};
use common::{Server, fails, one, wait_until};
use postgres::{Client, NoTls};

const LIMIT: Duration = Duration::from_secs(10);

/// Sends cancel requests until `work` is over, and returns what it gave.
fn cancelled<T: Send + 'static>(
    mut client: Client,
    work: impl FnOnce(&mut Client) -> T + Send + 'static,
) -> (Client, T) {
    let token = client.cancel_token();
    let worker = thread::spawn(move || {
        let result = work(&mut client);
        (client, result)
    });
    let start = Instant::now();
    while !worker.is_finished() {
        thread::sleep(Duration::from_millis(50));
        let _ = token.cancel_query(NoTls);
        assert!(start.elapsed() < LIMIT, "not cancelled");
    }
    let (mut client, result) = worker.join().unwrap();
    // The last request may still be on its way, and hit whatever comes next.
    for _ in 0..3 {
        let _ = client.simple_query("select pg_sleep(0.1)");
    }
    (client, result)
}

#[test]
fn a_statement_that_computes() {
    let server = Server::start();
    let mut client = server.client();
    client
        .batch_execute("create table n (n int primary key); insert into n select * from generate_series(1, 3000)")
        .unwrap();
    for text in [
        "select pg_sleep(60)",
        "select count(*) from generate_series(1, 2000000000)",
        "select count(*) from n as a, n as b, n as c where a.n + b.n = c.n * 7",
        "update n set n = n where exists (select 1 from n as a, n as b where a.n * b.n = -n.n)",
    ] {
        let (back, result) = cancelled(client, move |client| client.simple_query(text).map(|_| ()));
        client = back;
        let error = fails(result, "57014");
        assert_eq!(error.message(), "canceling statement due to user request", "{text}");
        assert_eq!(one::<i64>(&mut client, "select count(*) from n"), 3000);
    }
    server.assert_alive();
}

#[test]
fn a_statement_that_waits() {
    let server = Server::start();
    let mut holder = server.client();
    holder
        .batch_execute("create table item (n int primary key, v int); insert into item values (1, 1), (2, 2)")
        .unwrap();
    holder.batch_execute("begin; update item set v = 10 where n = 1").unwrap();
    let mut client = server.client();
    client.batch_execute("begin; update item set v = 20 where n = 2").unwrap();
    let (mut client, result) =
        cancelled(client, |client| client.execute("update item set v = 20 where n = 1", &[]).map(|_| ()));
    fails(result, "57014");
    fails(client.simple_query("select 1"), "25P02");
    client.batch_execute("rollback").unwrap();
    holder.batch_execute("commit").unwrap();
    assert_eq!(one::<i64>(&mut client, "select sum(v) from item"), 12);
    let (mut client, result) = cancelled(client, |client| {
        client.batch_execute("begin")?;
        client.batch_execute("select pg_sleep(60)")
    });
    fails(result, "57014");
    client.batch_execute("rollback; update item set v = 3 where n = 1").unwrap();
}

#[test]
fn an_idle_session_is_left_alone() {
    let server = Server::start();
    let mut client = server.client();
    client.batch_execute("create table item (n int primary key); begin; insert into item values (1)").unwrap();
    for _ in 0..20 {
        client.cancel_token().cancel_query(NoTls).unwrap();
    }
    // The requests may still be on their way: they must have come to nothing before the next statement.
    thread::sleep(Duration::from_millis(300));
    client.batch_execute("insert into item values (2)").unwrap();
    client.batch_execute("commit").unwrap();
    assert_eq!(one::<i64>(&mut client, "select count(*) from item"), 2);
}

#[test]
fn a_wrong_secret_cancels_nothing() {
    let server = Server::start();
    let mut raw = server.raw();
    raw.send(&query("select pg_sleep(1), 7"));
    let request = |process: u32, secret: u32| {
        [&16u32.to_be_bytes()[..], &80_877_102u32.to_be_bytes(), &process.to_be_bytes(), &secret.to_be_bytes()].concat()
    };
    for (process, secret) in
        [(raw.process_id, raw.secret ^ 1), (raw.process_id + 1, raw.secret), (0, 0), (u32::MAX, u32::MAX)]
    {
        let mut other = Raw::open(server.port());
        other.send(&request(process, secret));
        // No answer, whatever was asked.
        assert_eq!(other.finish(), b"");
    }
    let answers = raw.until_ready();
    assert!(answers.iter().all(|answer| answer.tag != b'E'), "{answers:?}");
    // The right one does.
    raw.send(&query("select pg_sleep(60)"));
    let start = Instant::now();
    let (process, secret) = (raw.process_id, raw.secret);
    let port = server.port();
    let canceller = thread::spawn(move || {
        thread::sleep(Duration::from_millis(200));
        let mut other = Raw::open(port);
        other.send(&request(process, secret));
        other.finish()
    });
    assert_eq!(raw.error_until_ready(), "57014");
    assert!(start.elapsed() < LIMIT);
    assert_eq!(canceller.join().unwrap(), b"");
}

#[test]
fn under_load() {
    let server = Server::start();
    let mut client = server.client();
    client
        .batch_execute("create table pair (id int primary key, a int, b int); insert into pair values (1, 0, 0)")
        .unwrap();
    let port = server.port();
    let token = client.cancel_token();
    let worker = thread::spawn(move || {
        let (mut done, mut cancelled) = (0, 0);
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(2) {
            let result =
                client.batch_execute("update pair set a = a + 1 where id = 1; update pair set b = b + 1 where id = 1");
            match result {
                Ok(()) => done += 1,
                Err(error) => {
                    assert_eq!(common::code(&error).code(), "57014");
                    cancelled += 1;
                }
            }
        }
        (done, cancelled)
    });
    while !worker.is_finished() {
        let _ = token.cancel_query(NoTls);
        thread::sleep(Duration::from_millis(1));
    }
    let (done, cancelled) = worker.join().unwrap();
    let mut client = common::connect(port).unwrap();
    let row = client.query_one("select a, b from pair", &[]).unwrap();
    assert_eq!((row.get::<_, i32>(0), row.get::<_, i32>(1)), (done, done), "{cancelled} were cancelled");
}

#[test]
fn a_copy_that_waits_for_data() {
    let server = Server::start();
    let mut client = server.client();
    client.batch_execute("create table item (n int primary key)").unwrap();
    let mut raw = server.raw();
    raw.send(&query("copy item from stdin"));
    assert_eq!(raw.receive().unwrap().tag, b'G');
    raw.send(&message(b'd', b"1\n2\n"));
    let request = [
        &16u32.to_be_bytes()[..],
        &80_877_102u32.to_be_bytes(),
        &raw.process_id.to_be_bytes(),
        &raw.secret.to_be_bytes(),
    ]
    .concat();
    let mut other = Raw::open(server.port());
    other.send(&request);
    other.finish();
    // It may be noticed at once, or with the next data.
    thread::sleep(Duration::from_millis(100));
    raw.send(&[message(b'd', b"3\n"), message(b'c', b"")].concat());
    assert_eq!(raw.error_until_ready(), "57014");
    wait_until("nothing of it stays", LIMIT, || one::<i64>(&mut client, "select count(*) from item") == 0);
}

#[test]
fn who_says_nothing_for_too_long_is_sent_away() {
    let server = Server::start();
    let mut client = server.client();
    client.batch_execute("create table t (n int primary key); insert into t values (1)").unwrap();
    let mut busy = server.raw();
    busy.send(&query(
        "set idle_session_timeout = '200ms'; set idle_in_transaction_session_timeout = '1h'; select pg_sleep(1)",
    ));
    let mut holds = server.raw();
    holds.send(&query("set idle_in_transaction_session_timeout = 300; begin; update t set n = 2"));
    assert_eq!(holds.tags(), "CCCZ");
    let mut failed = server.raw();
    failed.send(&query("set idle_in_transaction_session_timeout = 300; begin; select 1 / 0"));
    // Who waited for the row gets it when the one that held it is gone.
    client.execute("update t set n = 3", &[]).unwrap();
    assert_eq!(holds.until_closed().as_deref(), Some("25P03"));
    assert_eq!(failed.until_closed().as_deref(), Some("25P03"));
    // A statement that runs for longer is not idle; what counts begins with its end.
    assert_eq!(busy.tags(), "CCTDCZ");
    assert_eq!(busy.until_closed().as_deref(), Some("57P05"));
    assert_eq!(one::<i32>(&mut client, "select n from t"), 3);
}
