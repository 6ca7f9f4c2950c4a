//! Do transfers between accounts keep their sum: under any schedule, and after a crash at any change of the disk?
//!
//! Balances are indexed, so that each transfer moves entries within an index's leaf. Every other life of the database is on a machine
//! with two nodes, where the log has a thread that syncs, relays, and gathered reservations.

use super::{threads, two_nodes};
use crate::scenario::Scenario;
use homenode_engine::{
    ColumnSpec, Database, IndexSpec, Isolation, KeyRange, Options, Session, Table, TableSpec, planted,
};
use homenode_platform::lab::{Config, Scheduler, choose};
use homenode_platform::sync::Mutex;
use homenode_types::{ColumnType, Result, SqlState, Type, Value, key};
use std::sync::Arc;

const FOLDER: &str = "bank";
const ACCOUNTS: i64 = 6;
const BALANCE: i64 = 100;
/// As many write.
const READERS: usize = 2;

/// See the module's text: schedules. The planted bug, in the transaction manager itself, takes a commit's timestamp
/// before the commit is announced.
pub const SCHEDULES: Scenario = Scenario {
    name: "engine-transfers",
    claim: "concurrent transfers keep the sum, every snapshot sees it, nobody waits for ever",
    has_planted_bug: true,
    run: |trial| {
        planted::set(&planted::ANNOUNCE_LATE, trial.planted);
        let config = Config { steps_max: 40_000_000, scheduler: scheduler(trial.seed), ..Config::new(trial.seed) };
        trial.schedule_with(&config, || {
            let db = prepared();
            let for_threads = db.clone();
            threads(2 * READERS, move |number| {
                let mut session = for_threads.session().expect("there are slots");
                for step in 0..6 {
                    if number < READERS {
                        assert_eq!(sum(&mut session), ACCOUNTS * BALANCE, "a snapshot sees half a transfer");
                    } else {
                        transfer_until_done(&mut session, number as i64 * 100 + step);
                    }
                }
            });
            assert_eq!(sum(&mut db.session().expect("there are slots")), ACCOUNTS * BALANCE);
            db.close().expect("no fault is asked for");
        })
    },
};

/// Making the database passes tens of thousands of points before the first transfer, so that the lab's usual change
/// points for short runs would all lie in there.
fn scheduler(seed: u64) -> Scheduler {
    match Scheduler::from_seed(seed) {
        Scheduler::Pct { .. } => Scheduler::Pct { changes: 40, steps: 80_000 },
        random => random,
    }
}

/// What was promised: the notes of transfers whose commit returned.
type Promised = Arc<Mutex<Vec<i64>>>;

/// See the module's text: crashes. The planted bug, in the engine itself, promises a commit before it is durable.
pub const CRASHES: Scenario = Scenario {
    name: "engine-crashes",
    claim: "after a crash every acknowledged transfer is there, whole, and no half of another",
    has_planted_bug: true,
    run: |trial| {
        planted::set(&planted::PROMISE_EARLY, trial.planted);
        trial.crashes::<State>(
            &Config { steps_max: 80_000_000, ..Config::new(trial.seed) },
            10,
            || prepared().close().expect("no fault is asked for"),
            |state| {
                let db = open();
                let promised = state.0.clone();
                let for_threads = db.clone();
                threads(2, move |number| {
                    let mut session = for_threads.session().expect("there are slots");
                    for step in 0..4 {
                        let note = 1000 + number as i64 * 100 + step;
                        transfer_until_done(&mut session, note);
                        promised.lock().push(note);
                        if number == 0 && step == 1 {
                            for_threads.checkpoint().expect("no fault is asked for");
                        }
                    }
                });
                db.close().expect("no fault is asked for");
            },
            |state| {
                let db = open();
                let mut session = db.session().expect("there are slots");
                assert_eq!(sum(&mut session), ACCOUNTS * BALANCE, "half a transfer survived");
                let notes = notes(&mut session);
                for note in state.0.lock().iter() {
                    assert!(notes.contains(note), "transfer {note} was acknowledged and is gone");
                }
                transfer_until_done(&mut session, 9999);
                db.close().expect("no fault is asked for");
            },
        )
    },
};

#[derive(Clone)]
struct State(Promised);

impl Default for State {
    fn default() -> State {
        State(Arc::new(Mutex::new(Vec::new())))
    }
}

fn open() -> Database {
    let options = Options {
        pool_bytes: 4 << 20,
        lanes: 2,
        sessions_max: 16,
        huge_pages: false,
        log_buffer_bytes: 1 << 20,
        log_segment_bytes: 1 << 20,
        topology: (choose(2) == 0).then(two_nodes),
        ..Options::default()
    };
    Database::open_with(FOLDER, options).expect("the folder is sound")
}

fn prepared() -> Database {
    let db = open();
    let mut session = db.session().expect("there are slots");
    session.begin(Isolation::ReadCommitted, false).expect("no transaction is open");
    for name in ["accounts", "notes"] {
        let column = |name: &str| ColumnSpec {
            name: name.to_owned(),
            ty: ColumnType { ty: Type::Int8, typmod: -1 },
            not_null: true,
            default: None,
            identity: None,
            serial: false,
        };
        session
            .create_table(TableSpec {
                schema: "public".to_owned(),
                name: name.to_owned(),
                columns: vec![column("id"), column("value")],
                primary_key: Some((None, vec![0])),
                uniques: Vec::new(),
                checks: Vec::new(),
            })
            .expect("the name is free");
    }
    let accounts = table(&mut session, "accounts");
    for id in 0..ACCOUNTS {
        session.insert(&accounts, &[Value::Int8(id), Value::Int8(BALANCE)]).expect("the key is free");
    }
    session.commit().expect("nothing conflicts");
    session.begin(Isolation::ReadCommitted, false).expect("no transaction is open");
    let accounts = table(&mut session, "accounts");
    let by_value = IndexSpec { name: None, columns: vec![1], unique: false, constraint: false };
    session.create_index(&accounts, by_value).expect("the table is there");
    session.commit().expect("nothing conflicts");
    db
}

fn table(session: &mut Session, name: &str) -> Arc<Table> {
    session.table(None, name).expect("it was created")
}

fn key_of(id: i64) -> Vec<u8> {
    let mut out = Vec::new();
    key::encode_i64(id, &mut out);
    out
}

fn rows(session: &mut Session, name: &str) -> Vec<(i64, i64)> {
    let table = table(session, name);
    session.begin(Isolation::RepeatableRead, true).expect("no transaction is open");
    let mut found = Vec::new();
    let mut scan = session.scan(&table, &KeyRange::all(), false).expect("no fault is asked for");
    while let Some((_, row)) = scan.next(session).expect("no fault is asked for") {
        let mut values = Vec::new();
        table.layout.decode(row, &mut values);
        let [Value::Int8(id), Value::Int8(value)] = values[..] else { panic!("two numbers") };
        found.push((id, value));
    }
    for index in &table.indexes {
        let mut by_index = Vec::new();
        let mut scan = session.index_scan(&table, index, &KeyRange::all(), false).expect("the index is there");
        while let Some((_, row)) = scan.next(session).expect("no fault is asked for") {
            let mut values = Vec::new();
            table.layout.decode(row, &mut values);
            let [Value::Int8(id), Value::Int8(value)] = values[..] else { panic!("two numbers") };
            by_index.push((id, value));
        }
        by_index.sort_unstable();
        assert_eq!(by_index, found, "the index tells what the table tells");
    }
    session.commit().expect("it only read");
    found
}

fn sum(session: &mut Session) -> i64 {
    rows(session, "accounts").iter().map(|row| row.1).sum()
}

fn notes(session: &mut Session) -> Vec<i64> {
    rows(session, "notes").iter().map(|row| row.0).collect()
}

fn transfer_until_done(session: &mut Session, note: i64) {
    let (from, to) = (choose(ACCOUNTS as usize) as i64, choose(ACCOUNTS as usize) as i64);
    for _ in 0..100 {
        session.begin(Isolation::ReadCommitted, false).expect("no transaction is open");
        match transfer(session, from, to, note) {
            Ok(()) if choose(8) == 0 => session.rollback().expect("no fault is asked for"),
            Ok(()) => return session.commit().expect("READ COMMITTED doesn't conflict"),
            Err(error) => {
                assert_eq!(error.code, SqlState::DEADLOCK_DETECTED, "{error:?}");
                session.rollback().expect("no fault is asked for");
            }
        }
    }
    panic!("a transfer deadlocks again and again");
}

fn transfer(session: &mut Session, from: i64, to: i64, note: i64) -> Result<()> {
    let accounts = table(session, "accounts");
    let notes = table(session, "notes");
    for (id, amount) in [(from, -1), (to, 1)] {
        let changed = session.update(&accounts, &key_of(id), &mut |_, values| {
            let Value::Int8(balance) = values[1] else { panic!("a number") };
            values[1] = Value::Int8(balance + amount);
            Ok(true)
        })?;
        assert!(changed, "accounts don't go away");
    }
    session.insert(&notes, &[Value::Int8(note), Value::Int8(0)])
}
