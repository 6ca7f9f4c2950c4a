//! Do rows larger than a page behave like any others? Against a plain model, through rollback, crash, old snapshots and new trees.

mod common;

use common::*;
use homenode_engine::{ColumnSpec, Database, IndexSpec, Isolation, KeyRange, LockWait, Session, Table, TableSpec};
use homenode_types::{SqlState, Value};
use proptest::prelude::{Just, ProptestConfig, Strategy, prop, prop_oneof, proptest};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Id to k and text.
type Model = BTreeMap<i32, (i32, String)>;

/// A text that differs by seed everywhere, so that a piece in the wrong place is found.
fn text_of(seed: i32, length: usize) -> String {
    let mut state = seed as u32 | 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b'a' + (state >> 24) as u8 % 26)
    };
    (0..length).map(|_| next()).collect()
}

fn prepared(folder: &Folder) -> Database {
    let db = open(folder);
    let mut session = db.session().unwrap();
    let table = create(&mut session, "t");
    let index = IndexSpec { name: None, columns: vec![1], unique: false, constraint: false };
    run(&mut session, |s| s.create_index(&table, index)).unwrap();
    db
}

/// The table by every way of reading it.
fn check(db: &Database, model: &Model) {
    let mut session = db.session().unwrap();
    let table = session.table(None, "t").unwrap();
    session.begin(Isolation::ReadCommitted, false).unwrap();
    let expected: Vec<_> = model.iter().map(|(id, (k, t))| (*id, *k, t.clone())).collect();
    assert!(all(&mut session, &table) == expected, "a scan finds other rows");
    let mut bytes = Vec::new();
    for (id, (k, t)) in model {
        assert!(get(&mut session, &table, *id) == Some((*k, t.clone())), "row {id} is another");
        assert!(session.get_single(&table, &key(*id), &mut bytes).unwrap());
        assert!(decode(&table, &bytes) == (*id, *k, t.clone()), "row {id} is another without a snapshot");
    }
    let mut by_k: Vec<_> = expected.clone();
    by_k.sort_by_key(|(id, k, _)| (*k, *id));
    let mut found = Vec::new();
    let mut scan = session.index_scan(&table, &table.indexes[0], &KeyRange::all(), false).unwrap();
    while let Some((_, bytes)) = scan.next(&mut session).unwrap() {
        found.push(decode(&table, bytes));
    }
    assert!(found == by_k, "the index leads to other rows");
    let mut found = Vec::new();
    let mut scan = session.scan(&table, &KeyRange::all(), true).unwrap();
    while let Some(bytes) = scan.next_row(&mut session).unwrap() {
        found.push(decode(&table, bytes));
    }
    found.reverse();
    assert!(found == expected, "a scan backwards finds other rows");
    assert!(in_parallel(&mut session, &table) == expected, "a parallel scan finds other rows");
    session.commit().unwrap();
}

fn in_parallel(session: &mut Session, table: &Arc<Table>) -> Vec<(i32, i32, String)> {
    let parallel = session.parallel(table).unwrap();
    let table = table.clone();
    let parts = parallel.run(move |piece, reader| {
        let mut rows = Vec::new();
        reader.scan(piece, |row: &[u8]| {
            rows.push(decode(&table, row));
            Ok(())
        })?;
        Ok(rows)
    });
    let mut rows: Vec<_> = parts.unwrap().into_iter().flat_map(|(rows, _)| rows).collect();
    rows.sort_by_key(|row| row.0);
    rows
}

#[derive(Clone, Debug)]
enum Step {
    Put { id: i32, k: i32, length: usize },
    SetK { id: i32, k: i32 },
    Move { id: i32, to: i32 },
    Delete { id: i32 },
    Commit,
    Rollback,
    Savepoint,
    BackToSavepoint,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let id = 0..12i32;
    let length = prop_oneof![
        4 => 0usize..200,
        3 => 3_000usize..5_000,
        3 => 5_000usize..60_000,
        2 => 60_000usize..70_000,
        1 => 1_000_000usize..4_000_000,
    ];
    prop_oneof![
        8 => (id.clone(), 0..9i32, length).prop_map(|(id, k, length)| Step::Put { id, k, length }),
        4 => (id.clone(), 0..9i32).prop_map(|(id, k)| Step::SetK { id, k }),
        2 => (id.clone(), 0..12i32).prop_map(|(id, to)| Step::Move { id, to }),
        3 => id.prop_map(|id| Step::Delete { id }),
        3 => Just(Step::Commit),
        1 => Just(Step::Rollback),
        1 => Just(Step::Savepoint),
        1 => Just(Step::BackToSavepoint),
        1 => Just(Step::Crash),
    ]
}

fn apply(session: &mut Session, table: &Table, model: &mut Model, step: &Step, seed: i32) {
    match *step {
        Step::Put { id, k, length } => {
            let text = text_of(seed, length);
            let changed = session.update(table, &key(id), &mut |_, values| {
                values[1] = Value::Int4(k);
                values[2] = Value::Text(text.clone());
                Ok(true)
            });
            assert_eq!(changed.unwrap(), model.contains_key(&id));
            if model.insert(id, (k, text.clone())).is_none() {
                session.insert(table, &row(id, k, &text)).unwrap();
            }
        }
        Step::SetK { id, k } => {
            assert_eq!(set_k(session, table, id, |_| k).unwrap(), model.contains_key(&id));
            model.entry(id).and_modify(|entry| entry.0 = k);
        }
        Step::Move { id, to } if id != to && !model.contains_key(&to) => {
            let moved = session.update(table, &key(id), &mut |_, values| {
                values[0] = Value::Int4(to);
                Ok(true)
            });
            let entry = model.remove(&id);
            assert_eq!(moved.unwrap(), entry.is_some());
            model.extend(entry.map(|entry| (to, entry)));
        }
        Step::Delete { id } => assert_eq!(delete(session, table, id).unwrap(), model.remove(&id).is_some()),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn rows_of_any_size_follow_the_model(steps in prop::collection::vec(step(), 1..60)) {
        let mut folder = Folder::new();
        let mut db = prepared(&folder);
        let (mut committed, mut model) = (Model::new(), Model::new());
        let mut session = db.session().unwrap();
        let mut table = session.table(None, "t").unwrap();
        session.begin(Isolation::ReadCommitted, false).unwrap();
        let mut savepoint = None;
        for (seed, step) in steps.iter().enumerate() {
            match step {
                Step::Commit => {
                    session.commit().unwrap();
                    committed = model.clone();
                }
                Step::Rollback => {
                    session.rollback().unwrap();
                    model = committed.clone();
                }
                Step::Savepoint => {
                    savepoint = Some((session.savepoint(), model.clone()));
                    continue;
                }
                Step::BackToSavepoint => {
                    if let Some((savepoint, then)) = &savepoint {
                        session.rollback_to(savepoint).unwrap();
                        model = then.clone();
                    }
                    continue;
                }
                Step::Crash => {
                    db.log().wait_durable(db.log().tail());
                    let copy = folder.crash_copy();
                    session.rollback().unwrap();
                    drop((session, table, db));
                    folder = copy;
                    db = open(&folder);
                    check(&db, &committed);
                    session = db.session().unwrap();
                    table = session.table(None, "t").unwrap();
                    model = committed.clone();
                }
                change => {
                    apply(&mut session, &table, &mut model, change, seed as i32);
                    continue;
                }
            }
            savepoint = None;
            check(&db, &committed);
            session.begin(Isolation::ReadCommitted, false).unwrap();
        }
        session.commit().unwrap();
        check(&db, &model);
        drop((session, table));
        db.close().unwrap();
        check(&open(&folder), &model);
    }
}

#[test]
fn an_old_snapshot_reads_the_values_that_others_have_replaced() {
    let folder = Folder::new();
    let db = prepared(&folder);
    let (mut writer, mut reader) = (db.session().unwrap(), db.session().unwrap());
    let table = writer.table(None, "t").unwrap();
    run(&mut writer, |s| s.insert(&table, &row(1, 1, &text_of(1, 100_000)))).unwrap();
    run(&mut writer, |s| s.insert(&table, &row(2, 1, &text_of(2, 100_000)))).unwrap();
    reader.begin(Isolation::RepeatableRead, false).unwrap();
    let seen = all(&mut reader, &table);
    for round in 0..40 {
        let text = text_of(round, 50_000);
        run(&mut writer, |s| {
            s.update(&table, &key(1), &mut |_, values| {
                values[2] = Value::Text(text.clone());
                Ok(true)
            })
        })
        .unwrap();
    }
    run(&mut writer, |s| delete(s, &table, 2)).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(700));
    assert!(all(&mut reader, &table) == seen, "the snapshot has changed");
    assert_eq!(get(&mut reader, &table, 2).map(|(_, text)| text), Some(text_of(2, 100_000)));
    reader.rollback().unwrap();
    reader.begin(Isolation::ReadCommitted, false).unwrap();
    assert!(all(&mut reader, &table) == [(1, 1, text_of(39, 50_000))]);
    reader.rollback().unwrap();
    // Every piece of what was replaced is taken out: the next rows find the room again.
    let before = pages_in_use(&db);
    for round in 0..30 {
        run(&mut writer, |s| set_text(s, &table, 1, &text_of(round, 400_000))).unwrap();
        if round % 10 == 9 {
            std::thread::sleep(std::time::Duration::from_millis(700));
        }
    }
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let after = pages_in_use(&db);
    assert!(after < before + 400, "{before} pages have become {after}: 12 MB were written, 0.4 MB are there");
}

fn pages_in_use(db: &Database) -> u64 {
    let stats = db.pool().stats();
    stats.high_water - stats.free_pages
}

fn set_text(session: &mut Session, table: &Table, id: i32, text: &str) -> homenode_types::Result<bool> {
    session.update(table, &key(id), &mut |_, values| {
        values[2] = Value::Text(text.to_owned());
        Ok(true)
    })
}

#[test]
fn readers_without_a_snapshot_race_with_a_writer() {
    let folder = Folder::new();
    let db = prepared(&folder);
    let mut writer = db.session().unwrap();
    let table = writer.table(None, "t").unwrap();
    run(&mut writer, |s| s.insert(&table, &row(1, 0, &text_of(0, 20_000)))).unwrap();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (db, stop) = (db.clone(), stop.clone());
            std::thread::spawn(move || {
                let mut session = db.session().unwrap();
                let table = session.table(None, "t").unwrap();
                let mut bytes = Vec::new();
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    session.begin(Isolation::ReadCommitted, false).unwrap();
                    assert!(session.get_single(&table, &key(1), &mut bytes).unwrap());
                    session.end_statement();
                    session.commit().unwrap();
                    let (_, k, text) = decode(&table, &bytes);
                    assert!(text == text_of(k, 20_000), "a value of another version");
                }
            })
        })
        .collect();
    for round in 1..300 {
        run(&mut writer, |s| {
            s.update(&table, &key(1), &mut |_, values| {
                values[1] = Value::Int4(round);
                values[2] = Value::Text(text_of(round, 20_000));
                Ok(true)
            })
        })
        .unwrap();
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
}

#[test]
fn numbers_of_rows_and_values_go_on_where_they_were_in_every_lane() {
    let folder = Folder::new();
    let mut rows = 0;
    for start in 0..4 {
        let db = open(&folder);
        let mut sessions = [db.session().unwrap(), db.session().unwrap()];
        assert_ne!(sessions[0].lane(), sessions[1].lane());
        if start == 0 {
            let spec = TableSpec {
                schema: "public".to_owned(),
                name: "t".to_owned(),
                columns: vec![column("id", int()), column("k", int()), column("t", text())],
                primary_key: None,
                uniques: Vec::new(),
                checks: Vec::new(),
            };
            run(&mut sessions[0], |s| s.create_table(spec)).unwrap();
        }
        for number in 0..6 {
            for session in &mut sessions {
                let table = session.table(None, "t").unwrap();
                let text = text_of(rows, if number % 2 == 0 { 10 } else { 6_000 });
                run(session, |s| s.insert(&table, &row(rows, 0, &text))).unwrap();
                rows += 1;
            }
        }
        let table = sessions[0].table(None, "t").unwrap();
        let mut found = run(&mut sessions[0], |s| Ok(all(s, &table))).unwrap();
        found.sort_by_key(|row| row.0);
        assert_eq!(found.len(), rows as usize);
        assert!(found.iter().zip(0..).all(|(found, id)| found.0 == id && found.2 == text_of(id, found.2.len())));
        drop((table, sessions));
        db.close().unwrap();
    }
}

#[test]
fn a_value_that_did_not_change_is_not_written_again() {
    let folder = Folder::new();
    let db = prepared(&folder);
    let mut session = db.session().unwrap();
    let table = session.table(None, "t").unwrap();
    run(&mut session, |s| s.insert(&table, &row(1, 0, &text_of(1, 2_000_000)))).unwrap();
    let before = db.log().tail();
    run(&mut session, |s| set_k(s, &table, 1, |_| 7)).unwrap();
    let written = db.log().tail() - before;
    assert!(written < 100_000, "{written} bytes of log for one number");
    check(&db, &Model::from([(1, (7, text_of(1, 2_000_000)))]));
}

#[test]
fn a_row_that_does_not_match_is_not_kept_locked() {
    let folder = Folder::new();
    let db = prepared(&folder);
    let (mut first, mut second) = (db.session().unwrap(), db.session().unwrap());
    let table = first.table(None, "t").unwrap();
    run(&mut first, |s| s.insert(&table, &row(1, 0, &text_of(1, 50_000)))).unwrap();
    first.begin(Isolation::ReadCommitted, false).unwrap();
    assert!(!first.lock_row(&table, &key(1), LockWait::Block, &mut |_| Ok(false)).unwrap());
    assert!(!first.delete(&table, &key(1), &mut |_| Ok(false)).unwrap());
    assert!(!first.update(&table, &key(1), &mut |_, _| Ok(false)).unwrap());
    second.begin(Isolation::ReadCommitted, false).unwrap();
    assert!(second.lock_row(&table, &key(1), LockWait::Fail, &mut |_| Ok(true)).unwrap());
    let error = first.lock_row(&table, &key(1), LockWait::Fail, &mut |_| Ok(true)).unwrap_err();
    assert_eq!(error.code, SqlState::LOCK_NOT_AVAILABLE);
    assert!(!first.lock_row(&table, &key(1), LockWait::Skip, &mut |_| Ok(true)).unwrap());
    second.commit().unwrap();
    first.rollback().unwrap();
}

#[test]
fn new_orders_copies_and_truncation_keep_or_drop_the_values() {
    let folder = Folder::new();
    let db = open(&folder);
    let mut session = db.session().unwrap();
    let spec = TableSpec {
        schema: "public".to_owned(),
        name: "t".to_owned(),
        columns: vec![column("id", int()), column("k", int()), column("t", text())],
        primary_key: None,
        uniques: Vec::new(),
        checks: Vec::new(),
    };
    let texts = |round: i32| (0..20).map(move |id| row(id, -id, &text_of(id + round, id as usize * 7_000)));
    session.begin(Isolation::ReadCommitted, false).unwrap();
    let table = session.create_table(spec).unwrap();
    let mut copy = session.copy_begin(&table).unwrap();
    texts(0).for_each(|values| copy.push(&mut session, &values).unwrap());
    assert_eq!(copy.finish(&mut session).unwrap(), 20);
    session.commit().unwrap();
    let expected =
        |round: i32| -> Vec<_> { (0..20).map(|id| (id, -id, text_of(id + round, id as usize * 7_000))).collect() };
    let table = session.table(None, "t").unwrap();
    assert!(all(&mut session, &table) == expected(0));
    session.rollback().unwrap();
    // By k, which runs backwards: every row gets another place.
    run(&mut session, |s| s.add_primary_key(&table, None, vec![1])).unwrap();
    let table = session.table(None, "t").unwrap();
    let mut found = run(&mut session, |s| Ok(all(s, &table))).unwrap();
    found.reverse();
    assert!(found == expected(0));
    run(&mut session, |s| s.truncate(std::slice::from_ref(&table), false)).unwrap();
    let table = session.table(None, "t").unwrap();
    run(&mut session, |s| texts(3).try_for_each(|values| s.insert(&table, &values))).unwrap();
    let crashed = folder.crash_copy();
    drop((session, table, db));
    let db = open(&crashed);
    let mut session = db.session().unwrap();
    let table = session.table(None, "t").unwrap();
    let mut found = run(&mut session, |s| Ok(all(s, &table))).unwrap();
    found.reverse();
    assert!(found == expected(3));
    run(&mut session, |s| s.drop_table(&table)).unwrap();
}

#[test]
fn many_columns_without_a_long_one_fit_too() {
    let folder = Folder::new();
    let db = open(&folder);
    let mut session = db.session().unwrap();
    let columns = |ty: homenode_types::ColumnType| -> Vec<ColumnSpec> {
        (0..900).map(|number| column(&format!("c{number}"), ty)).collect()
    };
    for (name, ty) in [("numbers", int()), ("texts", text())] {
        let value = |number: i32| if name == "texts" { Value::text("0123456789") } else { Value::Int4(number) };
        let spec = TableSpec {
            schema: "public".to_owned(),
            name: name.to_owned(),
            columns: [vec![column("id", int())], columns(ty)].concat(),
            primary_key: Some((None, vec![0])),
            uniques: Vec::new(),
            checks: Vec::new(),
        };
        run(&mut session, |s| s.create_table(spec)).unwrap();
        let table = session.table(None, name).unwrap();
        let values = |id: i32, add: i32| -> Vec<Value> {
            [vec![Value::Int4(id)], (0..900).map(|number| value(number + add)).collect()].concat()
        };
        run(&mut session, |s| (0..50).try_for_each(|id| s.insert(&table, &values(id, 0)))).unwrap();
        run(&mut session, |s| {
            s.update(&table, &key(7), &mut |_, out| {
                *out = values(7, 5);
                Ok(true)
            })
        })
        .unwrap();
        session.begin(Isolation::ReadCommitted, false).unwrap();
        let (mut bytes, mut found) = (Vec::new(), Vec::new());
        for id in 0..50 {
            assert!(session.get(&table, &key(id), &mut bytes).unwrap());
            table.layout.decode(&bytes, &mut found);
            assert_eq!(found, values(id, if id == 7 { 5 } else { 0 }));
        }
        session.commit().unwrap();
    }
}
