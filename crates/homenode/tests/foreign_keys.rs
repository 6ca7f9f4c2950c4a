//! Do references hold when several write at once? Two sessions in both orders, and many at random: nothing ever refers to nothing.

mod common;

use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use common::random::Random;
use common::{Server, connect, one, rounds, wait_until};
use postgres::Client;

const LIMIT: Duration = Duration::from_secs(60);

fn server(action: &str) -> Server {
    let server = Server::start();
    let tables = format!(
        "create table parent (id int primary key, note text default ''); \
         create table child (id int primary key, parent int constraint family references parent {action}, note text); \
         insert into parent values (1), (2), (3)"
    );
    server.client().batch_execute(&tables).unwrap();
    server
}

/// A statement under way in another session.
struct Waiting(Receiver<(Client, Result<u64, String>)>);

/// Starts a statement that has to wait for another session, and returns when it does.
fn waits(server: &Server, mut client: Client, text: &'static str) -> Waiting {
    let pid: i32 = one(&mut client, "select pg_backend_pid()");
    let (done, result) = channel();
    thread::spawn(move || {
        let answer = client.execute(text, &[]).map_err(|error| common::code(&error).code().to_owned());
        let _ = done.send((client, answer));
    });
    let mut watcher = server.client();
    let question = "select count(*) from pg_stat_activity where pid = $1 and wait_event_type = 'Lock'";
    wait_until("the statement waits for a lock", LIMIT, || {
        watcher.query_one(question, &[&pid]).unwrap().get::<_, i64>(0) == 1
    });
    Waiting(result)
}

impl Waiting {
    /// Its session and what came of it, once what it waited for has ended.
    fn end(self) -> (Client, Result<u64, String>) {
        self.0.recv_timeout(LIMIT).expect("the statement goes on")
    }
}

fn begun(server: &Server, text: &str) -> Client {
    let mut client = server.client();
    client.batch_execute(&format!("begin; {text}")).unwrap();
    client
}

fn finish(client: &mut Client, how: &str) {
    client.batch_execute(how).unwrap();
}

fn orphans(server: &Server) -> i64 {
    let text = "select count(*) from child c where parent is not null and not exists (select from parent p where p.id = c.parent)";
    one(&mut server.client(), text)
}

#[test]
fn who_refers_first_is_waited_for() {
    if common::is_postgres() {
        return; // A deletion waits there, too, but an insertion locks the row it refers to.
    }
    for (how, expected) in [("commit", Err("23503".to_owned())), ("rollback", Ok(1))] {
        let server = server("");
        let mut first = begun(&server, "insert into child values (1, 1)");
        let second = waits(&server, server.client(), "delete from parent where id = 1");
        finish(&mut first, how);
        assert_eq!(second.end().1, expected, "{how}");
        assert_eq!(orphans(&server), 0);
    }
    for (action, left) in [("on delete cascade", 0), ("on delete set null", 1)] {
        let server = server(action);
        let mut first = begun(&server, "insert into child values (1, 1)");
        let second = waits(&server, server.client(), "delete from parent where id = 1");
        finish(&mut first, "commit");
        assert_eq!(second.end().1, Ok(1), "{action}");
        assert_eq!(one::<i64>(&mut server.client(), "select count(*) from child"), left);
        assert_eq!(orphans(&server), 0);
    }
}

#[test]
fn who_deletes_first_is_waited_for() {
    for action in ["", "on delete cascade", "on delete restrict"] {
        for (how, expected) in [("commit", Err("23503".to_owned())), ("rollback", Ok(1))] {
            for text in ["insert into child values (1, 1)", "update child set parent = 1 where id = 9"] {
                let server = server(action);
                server.client().batch_execute("insert into child values (9, 2)").unwrap();
                let mut first = begun(&server, "delete from parent where id = 1");
                let second = waits(&server, server.client(), text);
                finish(&mut first, how);
                assert_eq!(second.end().1, expected, "{action} {how} {text}");
                assert_eq!(orphans(&server), 0);
            }
        }
    }
}

#[test]
fn other_changes_of_the_row_referred_to_are_not_waited_for() {
    let server = server("");
    let mut first = begun(&server, "update parent set note = 'changed' where id = 1");
    server.client().batch_execute("insert into child values (1, 1)").unwrap();
    finish(&mut first, "commit");
    // Nor is a row that was inserted and is not committed: it is not there yet.
    let mut first = begun(&server, "insert into parent values (7)");
    common::fails(server.client().batch_execute("insert into child values (2, 7)"), "23503");
    finish(&mut first, "commit");
    server.client().batch_execute("insert into child values (2, 7)").unwrap();
}

#[test]
fn a_key_that_came_back_in_the_same_transaction_is_not_trusted() {
    let server = server("");
    let mut first = begun(&server, "delete from parent where id = 1; savepoint s; insert into parent values (1)");
    let second = waits(&server, server.client(), "insert into child values (1, 1)");
    finish(&mut first, "rollback to s; commit");
    assert_eq!(second.end().1, Err("23503".to_owned()));
    assert_eq!(orphans(&server), 0);
}

#[test]
fn a_row_that_moves_is_not_passed_over() {
    let server = server("");
    server.client().batch_execute("insert into child values (5, 1)").unwrap();
    let mut first = begun(&server, "update child set id = 2 where id = 5");
    let second = if common::is_postgres() {
        // There the deletion sees the row as it was, and need not wait for its change.
        finish(&mut first, "commit");
        server
            .client()
            .execute("delete from parent where id = 1", &[])
            .map_err(|error| common::code(&error).code().to_owned())
    } else {
        let second = waits(&server, server.client(), "delete from parent where id = 1");
        finish(&mut first, "commit");
        second.end().1
    };
    assert_eq!(second, Err("23503".to_owned()));
}

#[test]
fn older_snapshots_answer_as_postgresql_does() {
    let fixed = "set transaction isolation level repeatable read; select count(*) from child";
    // The row referred to was deleted after the snapshot.
    let server = server("on delete cascade");
    let mut old = begun(&server, fixed);
    server.client().batch_execute("delete from parent where id = 1").unwrap();
    common::fails(old.batch_execute("insert into child values (1, 1)"), "40001");
    drop(old);
    // It was inserted after the snapshot.
    let mut old = begun(&server, fixed);
    server.client().batch_execute("insert into parent values (1)").unwrap();
    common::fails(old.batch_execute("insert into child values (1, 1)"), "23503");
    drop(old);
    // Something came to refer to it after the snapshot.
    let mut old = begun(&server, fixed);
    server.client().batch_execute("insert into child values (1, 1)").unwrap();
    common::fails(old.batch_execute("delete from parent where id = 1"), "40001");
    drop(old);
    server
        .client()
        .batch_execute("alter table child drop constraint family; alter table child add constraint family foreign key (parent) references parent")
        .unwrap();
    let mut old = begun(&server, fixed);
    server.client().batch_execute("insert into child values (2, 2)").unwrap();
    common::fails(old.batch_execute("delete from parent where id = 2"), "23503");
}

#[test]
fn circles_of_foreign_keys_end() {
    if common::is_postgres() {
        return; // There no circle comes of this.
    }
    let server = server("");
    // Both have written; each looks for the other's row.
    let first = begun(&server, "delete from parent where id = 1");
    let second = begun(&server, "delete from parent where id = 2");
    let first = waits(&server, first, "insert into child values (2, 2)");
    let mut second = second;
    let answer = second.execute("insert into child values (1, 1)", &[]);
    common::fails(answer, "40P01");
    finish(&mut second, "rollback");
    let (mut first, answer) = first.end();
    assert_eq!(answer, Ok(1));
    finish(&mut first, "commit");
    assert_eq!(orphans(&server), 0);
}

/// A transaction of a few random statements on few rows; errors of concurrency and of the constraints are part of it.
fn at_random(client: &mut Client, random: &mut Random) {
    let level = random.pick(&["read committed", "read committed", "repeatable read", "serializable"]);
    client.batch_execute(&format!("begin isolation level {level}")).unwrap();
    let mut failed = false;
    for _ in 0..1 + random.below(4) {
        let (parent, other, row, moved) = (random.below(6), random.below(6), random.below(12), random.below(12));
        let text = match random.below(12) {
            0..3 => format!("insert into child values ({row}, {parent})"),
            3 => format!("update child set parent = {parent} where id = {row}"),
            4 => format!("update child set id = {moved} where id = {row}"),
            5 => format!("delete from child where id = {row}"),
            6 | 7 => format!("delete from parent where id = {parent}"),
            8 | 9 => format!("insert into parent values ({parent})"),
            10 => format!("update parent set id = {other} where id = {parent}"),
            _ => format!("update parent set note = note || 'x' where id = {parent}"),
        };
        let with_savepoint = random.below(3) == 0;
        if with_savepoint {
            client.batch_execute("savepoint s").unwrap();
        }
        if let Err(error) = client.batch_execute(&text) {
            let code = common::code(&error).code().to_owned();
            assert!(["23503", "23505", "40001", "40P01"].contains(&code.as_str()), "{text}: {error:?}");
            if !with_savepoint {
                failed = true;
                break;
            }
            client.batch_execute("rollback to s").unwrap();
        } else if with_savepoint && random.below(2) == 0 {
            client.batch_execute("rollback to s").unwrap();
        }
    }
    let end = if failed || random.below(4) == 0 { "rollback" } else { "commit" };
    if let Err(error) = client.batch_execute(end) {
        assert_eq!(common::code(&error).code(), "40001", "{error:?}");
    }
}

#[test]
fn nothing_ever_refers_to_nothing() {
    for (number, (action, index)) in [
        ("", false),
        ("", true),
        ("on delete cascade on update cascade", true),
        ("on delete cascade on update cascade", false),
        ("on delete set null on update cascade", true),
        ("on delete restrict on update set null", false),
    ]
    .into_iter()
    .enumerate()
    {
        let server = server(action);
        if index {
            server.client().batch_execute("create index on child (parent, note)").unwrap();
        }
        let mut random = Random::new(number as u64 + 1);
        let count = rounds(400, 60);
        let threads: Vec<_> = (0..5)
            .map(|_| {
                let (port, mut random) = (server.port(), random.fork());
                thread::spawn(move || {
                    let mut client = connect(port).unwrap();
                    (0..count).for_each(|_| at_random(&mut client, &mut random));
                })
            })
            .collect();
        // Looked at meanwhile, too: at every moment.
        let mut looks = 0;
        while threads.iter().any(|thread| !thread.is_finished()) {
            assert_eq!(orphans(&server), 0, "{action} after {looks} looks");
            looks += 1;
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(orphans(&server), 0, "{action}");
    }
}
