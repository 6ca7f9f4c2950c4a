//! Which anomalies can transactions see? Martin Kleppmann's Hermitage cases (github.com/ept/hermitage) at each level, with
//! PostgreSQL's outcomes. At SERIALIZABLE more transactions may fail than PostgreSQL's, never fewer.

mod common;

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use common::Server;
use postgres::SimpleQueryMessage;

/// How long a statement that has to wait is watched.
const WATCH: Duration = Duration::from_millis(120);
const LIMIT: Duration = Duration::from_secs(20);

/// Rows as text, columns joined by `,`; or the SQLSTATE.
type Answer = Result<Vec<String>, String>;

/// A session on a thread of its own, so that a statement may wait while others go on.
struct Session {
    statements: Sender<String>,
    answers: Receiver<Answer>,
}

impl Session {
    fn new(port: u16) -> Session {
        let (statements, todo) = channel::<String>();
        let (done, answers) = channel();
        thread::spawn(move || {
            let mut client = common::connect(port).unwrap();
            for statement in todo {
                let answer = match client.simple_query(&statement) {
                    Ok(messages) => Ok(messages
                        .iter()
                        .filter_map(|message| match message {
                            SimpleQueryMessage::Row(row) => {
                                let columns: Vec<&str> =
                                    (0..row.len()).map(|column| row.get(column).unwrap_or("null")).collect();
                                Some(columns.join(","))
                            }
                            _ => None,
                        })
                        .collect()),
                    Err(error) => Err(error.code().map_or_else(|| error.to_string(), |code| code.code().to_owned())),
                };
                if done.send(answer).is_err() {
                    return;
                }
            }
        });
        Session { statements, answers }
    }

    /// Runs a statement that doesn't have to wait.
    #[track_caller]
    fn answer(&self, statement: &str) -> Answer {
        self.statements.send(statement.to_owned()).unwrap();
        self.finish()
    }

    /// Runs a statement that has to succeed at once; its rows joined by blanks.
    #[track_caller]
    fn run(&self, statement: &str) -> String {
        self.answer(statement).unwrap_or_else(|code| panic!("{statement}: {code}")).join(" ")
    }

    /// Starts a statement that has to wait for another transaction.
    #[track_caller]
    fn waits(&self, statement: &str) {
        self.statements.send(statement.to_owned()).unwrap();
        match self.answers.recv_timeout(WATCH) {
            Err(RecvTimeoutError::Timeout) => {}
            other => panic!("{statement} doesn't wait: {other:?}"),
        }
    }

    /// The answer of a statement that waited.
    #[track_caller]
    fn finish(&self) -> Answer {
        self.answers.recv_timeout(LIMIT).expect("no answer")
    }
}

const LEVELS: [&str; 3] = ["read committed", "repeatable read", "serializable"];

/// Three sessions over the two rows (1, 10), (2, 20), each in a transaction of `level`.
struct Case {
    server: Server,
    level: &'static str,
    t: [Session; 3],
}

impl Case {
    fn new() -> Case {
        let server = Server::start();
        server.client().batch_execute("create table test (id int primary key, value int)").unwrap();
        let t = [(); 3].map(|()| Session::new(server.port()));
        Case { server, level: "", t }
    }

    /// Starts over at another level.
    fn begin(&mut self, level: &'static str) {
        self.level = level;
        for session in &self.t {
            session.run("rollback");
        }
        self.t[0].run("delete from test; insert into test (id, value) values (1, 10), (2, 20)");
        for session in &self.t {
            session.run(&format!("begin isolation level {level}"));
        }
    }

    fn read_committed(&self) -> bool {
        self.level == "read committed"
    }

    fn serializable(&self) -> bool {
        self.level == "serializable"
    }

    /// The table as a new transaction sees it.
    fn table(&self) -> String {
        let rows = self.server.client().query("select id, value from test order by id", &[]).unwrap();
        let rows: Vec<String> =
            rows.iter().map(|row| format!("{},{}", row.get::<_, i32>(0), row.get::<_, i32>(1))).collect();
        rows.join(" ")
    }

    /// A statement's rows; at SERIALIZABLE it may fail with 40001 instead, and then gives none.
    #[track_caller]
    fn may_fail(&self, session: usize, statement: &str) -> Option<String> {
        match self.t[session].answer(statement) {
            Ok(rows) => Some(rows.join(" ")),
            Err(code) if code == "40001" && self.serializable() => None,
            Err(code) => panic!("{statement}: {code}"),
        }
    }

    /// The statement's rows have to be `expected`, or it fails where that is allowed.
    #[track_caller]
    fn sees(&self, session: usize, statement: &str, expected: &str) {
        if let Some(rows) = self.may_fail(session, statement) {
            assert_eq!(rows, expected, "{} of T{} at {}", statement, session + 1, self.level);
        }
    }
}

const ALL: &str = "select id, value from test order by id";

#[test]
fn g0_dirty_writes() {
    let mut case = Case::new();
    for level in LEVELS {
        case.begin(level);
        let [t1, t2, _] = &case.t;
        t1.run("update test set value = 11 where id = 1");
        t2.waits("update test set value = 12 where id = 1");
        t1.run("update test set value = 21 where id = 2");
        t1.run("commit");
        if case.read_committed() {
            t2.finish().unwrap();
            assert_eq!(case.table(), "1,11 2,21");
            t2.run("update test set value = 22 where id = 2");
            t2.run("commit");
            assert_eq!(case.table(), "1,12 2,22");
        } else {
            assert_eq!(t2.finish(), Err("40001".into()), "{level}");
            t2.run("rollback");
            assert_eq!(case.table(), "1,11 2,21");
        }
    }
}

#[test]
fn g1a_aborted_reads() {
    let mut case = Case::new();
    for level in LEVELS {
        case.begin(level);
        case.t[0].run("update test set value = 101 where id = 1");
        case.sees(1, ALL, "1,10 2,20");
        case.t[0].run("rollback");
        case.sees(1, ALL, "1,10 2,20");
        case.may_fail(1, "commit");
    }
}

#[test]
fn g1b_intermediate_reads() {
    let mut case = Case::new();
    for level in LEVELS {
        case.begin(level);
        case.t[0].run("update test set value = 101 where id = 1");
        case.sees(1, ALL, "1,10 2,20");
        case.may_fail(0, "update test set value = 11 where id = 1");
        case.may_fail(0, "commit");
        let expected = if case.read_committed() { "1,11 2,20" } else { "1,10 2,20" };
        case.sees(1, ALL, expected);
    }
}

#[test]
fn g1c_circular_information_flow() {
    let mut case = Case::new();
    for level in LEVELS {
        case.begin(level);
        case.t[0].run("update test set value = 11 where id = 1");
        case.t[1].run("update test set value = 22 where id = 2");
        let first = case.may_fail(0, "select value from test where id = 2");
        let second = case.may_fail(1, "select value from test where id = 1");
        assert!(first.is_none_or(|rows| rows == "20") && second.is_none_or(|rows| rows == "10"), "{level}");
        let commits = [case.t[0].answer("commit"), case.t[1].answer("commit")];
        let table = case.table();
        if case.serializable() {
            // Each read what the other overwrote: not both.
            assert_ne!(table, "1,11 2,22");
        } else {
            assert!(commits.iter().all(Result::is_ok), "{commits:?} at {level}");
            assert_eq!(table, "1,11 2,22");
        }
    }
}

#[test]
fn otv_observed_transaction_vanishes() {
    let mut case = Case::new();
    for level in LEVELS {
        case.begin(level);
        let [t1, t2, t3] = &case.t;
        if !case.read_committed() {
            // So that the snapshot is from before.
            t3.run(ALL);
        }
        t1.run("update test set value = 11 where id = 1");
        t1.run("update test set value = 19 where id = 2");
        t2.waits("update test set value = 12 where id = 1");
        t1.run("commit");
        let waited = t2.finish();
        if !case.read_committed() {
            assert_eq!(waited, Err("40001".into()));
            case.sees(2, ALL, "1,10 2,20");
            continue;
        }
        assert_eq!(t3.run("select value from test where id = 1"), "11");
        t2.run("update test set value = 18 where id = 2");
        assert_eq!(t3.run("select value from test where id = 2"), "19");
        t2.run("commit");
        assert_eq!(t3.run("select value from test where id = 2"), "18");
        assert_eq!(t3.run("select value from test where id = 1"), "12");
    }
}

#[test]
fn pmp_predicate_many_preceders() {
    let mut case = Case::new();
    for level in LEVELS {
        // By reads.
        case.begin(level);
        case.sees(0, "select * from test where value = 30", "");
        case.may_fail(1, "insert into test (id, value) values (3, 30)");
        case.may_fail(1, "commit");
        let expected = if case.read_committed() { "3,30" } else { "" };
        case.sees(0, "select * from test where value % 3 = 0", expected);
        case.may_fail(0, "commit");
        // By writes.
        case.begin(level);
        let [t1, t2, _] = &case.t;
        t1.run("update test set value = value + 10");
        t2.waits("delete from test where value = 20");
        t1.run("commit");
        if case.read_committed() {
            t2.finish().unwrap();
            // The row that was 20 when the statement began is 30 now; the row that is 20 now wasn't then.
            assert_eq!(t2.run(ALL), "1,20 2,30");
        } else {
            assert_eq!(t2.finish(), Err("40001".into()));
        }
    }
}

#[test]
fn p4_lost_update() {
    let mut case = Case::new();
    for level in LEVELS {
        case.begin(level);
        let [t1, t2, _] = &case.t;
        assert_eq!(
            (t1.run("select value from test where id = 1"), t2.run("select value from test where id = 1")),
            ("10".into(), "10".into())
        );
        t1.run("update test set value = 11 where id = 1");
        t2.waits("update test set value = 12 where id = 1");
        t1.run("commit");
        if case.read_committed() {
            t2.finish().unwrap();
            t2.run("commit");
            assert_eq!(case.table(), "1,12 2,20");
        } else {
            assert_eq!(t2.finish(), Err("40001".into()));
            assert_eq!(case.table(), "1,11 2,20");
        }
    }
}

#[test]
fn g_single_read_skew() {
    let mut case = Case::new();
    for level in LEVELS {
        case.begin(level);
        case.sees(0, "select value from test where id = 1", "10");
        case.sees(1, ALL, "1,10 2,20");
        case.may_fail(1, "update test set value = 12 where id = 1");
        case.may_fail(1, "update test set value = 18 where id = 2");
        case.may_fail(1, "commit");
        let expected = if case.read_committed() { "18" } else { "20" };
        case.sees(0, "select value from test where id = 2", expected);
        case.may_fail(0, "commit");
        // By predicates.
        case.begin(level);
        case.sees(0, "select value from test where value % 5 = 0 order by id", "10 20");
        case.may_fail(1, "update test set value = 12 where value = 10");
        case.may_fail(1, "commit");
        let expected = if case.read_committed() { "12" } else { "" };
        case.sees(0, "select value from test where value % 3 = 0", expected);
        case.may_fail(0, "commit");
        // By a write after the other's commit.
        case.begin(level);
        case.sees(0, "select value from test where id = 1", "10");
        case.may_fail(1, "update test set value = 12 where id = 1");
        case.may_fail(1, "update test set value = 18 where id = 2");
        case.may_fail(1, "commit");
        let deleted = case.t[0].answer("delete from test where value = 20");
        if case.read_committed() {
            deleted.unwrap();
        } else if case.table() == "1,12 2,18" {
            assert_eq!(deleted, Err("40001".into()));
        }
    }
}

#[test]
fn g2_write_skew() {
    let mut case = Case::new();
    for level in LEVELS {
        // Two rows.
        case.begin(level);
        for t in [0, 1] {
            case.sees(t, "select value from test where id in (1, 2) order by id", "10 20");
        }
        case.may_fail(0, "update test set value = 11 where id = 1");
        case.may_fail(1, "update test set value = 21 where id = 2");
        let commits = [case.t[0].answer("commit"), case.t[1].answer("commit")];
        if case.serializable() {
            assert_ne!(case.table(), "1,11 2,21");
        } else {
            assert!(commits.iter().all(Result::is_ok));
            assert_eq!(case.table(), "1,11 2,21");
        }
        // A predicate that both insert into.
        case.begin(level);
        for t in [0, 1] {
            case.sees(t, "select * from test where value % 3 = 0", "");
        }
        case.may_fail(0, "insert into test (id, value) values (3, 30)");
        case.may_fail(1, "insert into test (id, value) values (4, 42)");
        let commits = [case.t[0].answer("commit"), case.t[1].answer("commit")];
        if case.serializable() {
            assert_ne!(case.table(), "1,10 2,20 3,30 4,42");
        } else {
            assert!(commits.iter().all(Result::is_ok));
            assert_eq!(case.table(), "1,10 2,20 3,30 4,42");
        }
    }
}

#[test]
fn g2_read_only_transaction_anomaly() {
    // Fekete, O'Neil, O'Neil: A Read-Only Transaction Anomaly Under Snapshot Isolation (SIGMOD Record 2004).
    let mut case = Case::new();
    for level in ["repeatable read", "serializable"] {
        case.begin(level);
        case.sees(0, ALL, "1,10 2,20");
        case.may_fail(1, "update test set value = value + 5 where id = 2");
        case.may_fail(1, "commit");
        let read_only = case.may_fail(2, ALL);
        case.may_fail(2, "commit");
        let written = case.may_fail(0, "update test set value = 0 where id = 1");
        let committed = written.and_then(|_| case.may_fail(0, "commit"));
        if case.serializable() && read_only.as_deref() == Some("1,10 2,25") {
            assert!(committed.is_none() || case.table() != "1,0 2,25", "the anomaly");
        } else if !case.serializable() {
            assert_eq!(case.table(), "1,0 2,25");
        }
    }
}

#[test]
fn phantoms_and_own_changes() {
    let mut case = Case::new();
    for level in LEVELS {
        case.begin(level);
        case.t[0].run("insert into test values (3, 30)");
        case.t[0].run("update test set value = 25 where id = 2");
        case.t[0].run("delete from test where id = 1");
        case.sees(0, ALL, "2,25 3,30");
        case.sees(1, ALL, "1,10 2,20");
        case.may_fail(0, "commit");
        let expected = if case.read_committed() { "2,25 3,30" } else { "1,10 2,20" };
        case.sees(1, ALL, expected);
        case.sees(1, "select count(*) from test", "2");
    }
}

#[test]
fn uniqueness_waits_for_the_other() {
    let mut case = Case::new();
    for level in LEVELS {
        // The other commits: it's a duplicate.
        case.begin(level);
        let [t1, t2, t3] = &case.t;
        t1.run("insert into test values (3, 30)");
        t2.waits("insert into test values (3, 31)");
        t1.run("commit");
        let code = t2.finish().unwrap_err();
        assert!(code == "23505" || code == "40001" && level == "serializable", "{code} at {level}");
        // The other rolls back: it isn't.
        t2.run("rollback");
        t2.run(&format!("begin isolation level {level}"));
        t3.run("insert into test values (4, 40)");
        t2.waits("insert into test values (4, 41)");
        t3.run("rollback");
        t2.finish().unwrap();
        t2.run("commit");
        assert_eq!(case.table(), "1,10 2,20 3,30 4,41");
    }
}

#[test]
fn for_update_need_not_wait() {
    let mut case = Case::new();
    for level in LEVELS {
        case.begin(level);
        let [t1, t2, t3] = &case.t;
        assert_eq!(t1.run("select id from test where id = 1 for update"), "1");
        assert_eq!(t2.run("select id from test order by id for update skip locked"), "2");
        t2.run("commit");
        assert_eq!(t3.answer("select id from test where id = 1 for update nowait"), Err("55P03".into()));
        t3.run("rollback");
        t1.run("commit");
        assert_eq!(t2.run("select id from test order by id limit 1 for update skip locked"), "1");
        assert_eq!(t3.run("select id from test where id = 2 for share nowait"), "2");
    }
}

#[test]
fn for_update_locks_until_the_end() {
    let mut case = Case::new();
    for level in LEVELS {
        case.begin(level);
        let [t1, t2, t3] = &case.t;
        assert_eq!(t1.run("select value from test where id = 1 for update"), "10");
        // Plain reads don't wait.
        assert_eq!(t3.run("select value from test where id = 1"), "10");
        t2.waits("select value from test where id = 1 for update");
        t1.run("update test set value = 11 where id = 1");
        t1.run("commit");
        if case.read_committed() {
            assert_eq!(t2.finish(), Ok(vec!["11".into()]));
            t2.run("commit");
        } else {
            assert_eq!(t2.finish(), Err("40001".into()));
        }
    }
}
