//! What is left of a client that vanishes? Nothing of its transaction, none of its locks, and nobody waits for it.

mod common;

use std::thread;
use std::time::{Duration, Instant};

use common::raw::{Raw, bind, execute, message, parse, query, sync};
use common::{Server, fails, one, wait_until};
use postgres::Client;

const LIMIT: Duration = Duration::from_secs(20);

fn server() -> (Server, Client) {
    let server = Server::start();
    let mut client = server.client();
    client
        .batch_execute(
            "create table item (n int primary key, w text not null); insert into item values (1, 'one'), (2, 'two')",
        )
        .unwrap();
    (server, client)
}

/// Waits until only `client` has a session.
#[track_caller]
fn wait_alone(client: &mut Client) {
    wait_until("the sessions of vanished clients have to end", LIMIT, || {
        one::<i64>(client, "select count(*) from pg_stat_activity where datname = 'postgres'") == 1
    });
}

/// The table is as at the beginning, and nobody has a lock on it.
#[track_caller]
fn assert_untouched(client: &mut Client) {
    wait_alone(client);
    let rows = client.query("select n, w from item order by n", &[]).unwrap();
    let rows: Vec<(i32, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(rows, [(1, "one".to_owned()), (2, "two".to_owned())]);
    client.batch_execute("begin; update item set w = w; truncate item; rollback").unwrap();
}

#[test]
fn in_the_middle_of_a_copy() {
    let (server, mut client) = server();
    for statements in
        [&["copy item from stdin"][..], &["begin", "insert into item values (3, 'three')", "copy item from stdin"]]
    {
        for rest in [&b""[..], b"d\0\0\x10\0half a message", b"d"] {
            let mut raw = server.raw();
            for statement in &statements[..statements.len() - 1] {
                raw.send(&query(statement));
                raw.tags();
            }
            raw.send(&query(statements.last().unwrap()));
            assert_eq!(raw.receive().unwrap().tag, b'G');
            let lines: String = (10..3000).map(|n| format!("{n}\tline {n}\n")).collect();
            raw.send(&message(b'd', lines.as_bytes()));
            raw.send(rest);
            drop(raw);
        }
    }
    assert_untouched(&mut client);
}

#[test]
fn a_copy_that_is_given_up() {
    let (server, mut client) = server();
    let mut raw = server.raw();
    raw.send(&query("copy item from stdin"));
    assert_eq!(raw.receive().unwrap().tag, b'G');
    raw.send(&[message(b'd', b"7\tseven\n"), message(b'f', b"changed my mind\0")].concat());
    assert_eq!(raw.error_until_ready(), "57014");
    // Sync and Flush are taken no notice of; another message ends the COPY with an error, and maybe the session.
    raw.send(&query("copy item from stdin"));
    assert_eq!(raw.receive().unwrap().tag, b'G');
    raw.send(&[message(b'd', b"7\tseven\n"), sync(), message(b'H', b""), query("select 1")].concat());
    assert_eq!(raw.receive().unwrap().code(), "08P01");
    drop(raw);
    assert_untouched(&mut client);
}

#[test]
fn in_the_middle_of_a_transaction() {
    let (server, mut client) = server();
    for _ in 0..10 {
        let mut raw = server.raw();
        raw.send(
            &[
                query("begin"),
                query("update item set w = 'changed' where n = 1"),
                query("delete from item where n = 2"),
            ]
            .concat(),
        );
        raw.send(&query("insert into item values (3, 'three')"));
        for _ in 0..4 {
            raw.tags();
        }
        // Somebody waits for the row; the disconnect lets him go on.
        let port = server.port();
        let waiter = thread::spawn(move || {
            let mut client = common::connect(port).unwrap();
            client.execute("update item set w = w where n = 1", &[]).unwrap()
        });
        thread::sleep(Duration::from_millis(20));
        drop(raw);
        assert_eq!(waiter.join().unwrap(), 1);
    }
    assert_untouched(&mut client);
}

#[test]
fn while_waiting_for_a_row() {
    let (server, mut client) = server();
    client.batch_execute("begin; update item set w = w where n = 1").unwrap();
    let mut raw = server.raw();
    raw.send(
        &[
            query("begin"),
            query("update item set w = 'mine' where n = 2"),
            query("update item set w = 'mine' where n = 1"),
        ]
        .concat(),
    );
    raw.tags();
    raw.tags();
    drop(raw);
    client.batch_execute("commit").unwrap();
    assert_untouched(&mut client);
}

#[test]
fn while_a_statement_runs() {
    let (server, mut client) = server();
    let mut raws: Vec<Raw> = (0..4).map(|_| server.raw()).collect();
    for raw in &mut raws {
        raw.send(&query("begin; update item set w = 'x' where n = 1; select pg_sleep(1); commit"));
    }
    // One of them has got as far as sleeping; each of them is gone before it commits.
    thread::sleep(Duration::from_millis(100));
    drop(raws);
    if common::is_postgres() {
        // PostgreSQL notices a vanished client when it next writes to it, so it may well commit.
        return;
    }
    let start = Instant::now();
    assert_untouched(&mut client);
    assert!(start.elapsed() < LIMIT);
}

#[test]
fn a_client_that_does_not_read() {
    let (server, mut client) = server();
    let memory_before = server.peak_memory_bytes();
    let mut deaf: Vec<Raw> = (0..3).map(|_| server.raw()).collect();
    for raw in &mut deaf {
        raw.send(&query("select n, repeat('x', 1000) from generate_series(1, 300000) as n"));
    }
    // 300 MB each stand in nobody's way, and aren't kept for later.
    let start = Instant::now();
    for _ in 0..50 {
        assert_eq!(one::<i64>(&mut client, "select count(*) from item"), 2);
        server.assert_alive();
    }
    assert!(start.elapsed() < LIMIT, "{:?}", start.elapsed());
    let grown = server.peak_memory_bytes() - memory_before;
    assert!(grown < 200 << 20, "{} MiB grown", grown >> 20);
    drop(deaf);
    assert_untouched(&mut client);
    // One that reads late gets everything.
    let mut late = server.raw();
    late.send(&query("select repeat('y', 1000) from generate_series(1, 20000)"));
    thread::sleep(Duration::from_millis(200));
    assert_eq!(late.until_ready().iter().filter(|answer| answer.tag == b'D').count(), 20_000);
}

#[test]
fn right_after_a_commit_was_sent() {
    let (server, mut client) = server();
    client.batch_execute("create table pair (id int, side int, primary key (id, side))").unwrap();
    for id in 0..100 {
        let mut raw = server.raw();
        let insert = |side: u8| {
            let text = format!("insert into pair values ({id}, {side})");
            [parse("", &text), bind("", "", 0, &[]), execute("", 0)].concat()
        };
        // Either in pieces, or in one go; then gone without a word.
        if id % 2 == 0 {
            raw.send(&[query("begin"), insert(0), insert(1), sync(), query("commit")].concat());
        } else {
            raw.send(&[insert(0), insert(1), sync()].concat());
        }
    }
    wait_alone(&mut client);
    let half = "select count(*) from (select id from pair group by id having count(*) <> 2) as half";
    assert_eq!(one::<i64>(&mut client, half), 0);
}

#[test]
fn many_in_a_row() {
    let (server, mut client) = server();
    for n in 0..300 {
        let mut raw = Raw::open(server.port());
        raw.send(&common::raw::startup());
        match n % 4 {
            0 => {}
            1 => raw.send(&query("begin; insert into item values (9, 'nine')")),
            2 => raw.send(b"Q\0\0"),
            _ => {
                raw.send(&[query("begin; update item set w = 'no' where n = 1"), query("select * from item")].concat())
            }
        }
    }
    assert_untouched(&mut client);
    fails(client.batch_execute("insert into item values (1, 'again')"), "23505");
}
