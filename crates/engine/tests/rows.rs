//! What does a caller see of rows, transactions, indexes and sequences?

mod common;

use common::*;
use homenode_engine::{IndexSpec, Isolation, KeyRange, SequenceSpec};
use homenode_types::{SqlState, Type, Value};

#[test]
fn rows_come_back_and_duplicates_are_refused() {
    let folder = Folder::new();
    let db = open(&folder);
    let mut session = db.session().unwrap();
    let table = create(&mut session, "t");
    run(&mut session, |s| s.insert(&table, &row(1, 10, "one"))).unwrap();
    let error = run(&mut session, |s| s.insert(&table, &row(1, 11, "again"))).unwrap_err();
    assert_eq!(error.code, SqlState::UNIQUE_VIOLATION);
    assert_eq!(error.message, "duplicate key value violates unique constraint \"t_pkey\"");
    assert_eq!(error.detail.as_deref(), Some("Key (id)=(1) already exists."));
    session.begin(Isolation::ReadCommitted, false).unwrap();
    assert_eq!(get(&mut session, &table, 1), Some((10, "one".to_owned())));
    assert_eq!(get(&mut session, &table, 2), None);
    session.rollback().unwrap();
}

#[test]
fn rollback_and_savepoints_take_back_exactly_what_came_after() {
    let folder = Folder::new();
    let db = open(&folder);
    let mut session = db.session().unwrap();
    let table = create(&mut session, "t");
    run(&mut session, |s| {
        s.insert(&table, &row(1, 1, "a"))?;
        s.insert(&table, &row(2, 2, "b"))
    })
    .unwrap();
    session.begin(Isolation::ReadCommitted, false).unwrap();
    set_k(&mut session, &table, 1, |k| k + 10).unwrap();
    let savepoint = session.savepoint();
    set_k(&mut session, &table, 1, |k| k + 100).unwrap();
    delete(&mut session, &table, 2).unwrap();
    session.insert(&table, &row(3, 3, "a longer text than the others have")).unwrap();
    session.rollback_to(&savepoint).unwrap();
    assert_eq!(all(&mut session, &table), [(1, 11, "a".to_owned()), (2, 2, "b".to_owned())]);
    session.insert(&table, &row(3, 33, "c")).unwrap();
    session.commit().unwrap();
    assert_eq!(all(&mut session, &table).len(), 3);
    run(&mut session, |s| {
        delete(s, &table, 1)?;
        s.update(&table, &key(2), &mut |_, values| {
            values[2] = Value::Text("x".repeat(1000));
            Ok(true)
        })?;
        Err::<(), _>(homenode_types::Error::internal("stop"))
    })
    .unwrap_err();
    assert_eq!(all(&mut session, &table), [(1, 11, "a".to_owned()), (2, 2, "b".to_owned()), (3, 33, "c".to_owned())]);
}

#[test]
fn snapshots_see_what_was_committed_before_them() {
    let folder = Folder::new();
    let db = open(&folder);
    let mut writer = db.session().unwrap();
    let mut reader = db.session().unwrap();
    let table = create(&mut writer, "t");
    run(&mut writer, |s| s.insert(&table, &row(1, 1, "first"))).unwrap();
    reader.begin(Isolation::RepeatableRead, false).unwrap();
    assert_eq!(get(&mut reader, &table, 1).unwrap().0, 1);
    for round in 2..200 {
        run(&mut writer, |s| {
            set_k(s, &table, 1, |_| round)?;
            s.insert(&table, &row(round, round, "new"))
        })
        .unwrap();
    }
    run(&mut writer, |s| delete(s, &table, 1)).unwrap();
    assert_eq!(all(&mut reader, &table), [(1, 1, "first".to_owned())]);
    let error = set_k(&mut reader, &table, 1, |k| k).unwrap_err();
    assert_eq!(error.code, SqlState::SERIALIZATION_FAILURE);
    reader.rollback().unwrap();
    reader.begin(Isolation::ReadCommitted, false).unwrap();
    assert_eq!(all(&mut reader, &table).len(), 198);
    reader.rollback().unwrap();
}

#[test]
fn an_index_follows_its_table_and_is_built_over_rows_that_are_there() {
    let folder = Folder::new();
    let db = open(&folder);
    let mut session = db.session().unwrap();
    let table = create(&mut session, "t");
    run(&mut session, |s| (0..500).try_for_each(|id| s.insert(&table, &row(id, id % 7, "x")))).unwrap();
    run(&mut session, |s| {
        s.create_index(&table, IndexSpec { name: None, columns: vec![1], unique: false, constraint: false })
    })
    .unwrap();
    let table = session.table(None, "t").unwrap();
    assert_eq!(table.indexes[0].name, "t_k_idx");
    run(&mut session, |s| {
        set_k(s, &table, 3, |_| 100)?;
        delete(s, &table, 10)?;
        s.insert(&table, &row(1000, 3, "y"))
    })
    .unwrap();
    let mut rows = Vec::new();
    session.begin(Isolation::ReadCommitted, false).unwrap();
    let range = KeyRange { lower: std::ops::Bound::Included(key(3)), upper: std::ops::Bound::Excluded(key(4)) };
    let mut scan = session.index_scan(&table, &table.indexes[0], &range, false).unwrap();
    while let Some((_, bytes)) = scan.next(&mut session).unwrap() {
        rows.push(decode(&table, bytes).0);
    }
    session.commit().unwrap();
    let expected: Vec<i32> = (0..500).filter(|id| id % 7 == 3 && *id != 3 && *id != 10).chain([1000]).collect();
    assert_eq!(rows, expected);
    let unique = IndexSpec { name: Some("u".to_owned()), columns: vec![1], unique: true, constraint: false };
    let error = run(&mut session, |s| s.create_index(&table, unique)).unwrap_err();
    assert_eq!(error.code, SqlState::UNIQUE_VIOLATION);
}

#[test]
fn a_waiter_goes_on_with_the_newest_row_and_a_circle_is_broken() {
    let folder = Folder::new();
    let db = open(&folder);
    let mut first = db.session().unwrap();
    let table = create(&mut first, "t");
    run(&mut first, |s| {
        s.insert(&table, &row(1, 0, ""))?;
        s.insert(&table, &row(2, 0, ""))
    })
    .unwrap();
    // Every pair of steps in two orders: some transactions fail with a deadlock, none is lost, none hangs.
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let db = db.clone();
            let table = table.clone();
            std::thread::spawn(move || {
                let mut session = db.session().unwrap();
                let (a, b) = if worker % 2 == 0 { (1, 2) } else { (2, 1) };
                let mut done = 0;
                while done < 50 {
                    let result = run(&mut session, |s| {
                        set_k(s, &table, a, |k| k + 1)?;
                        set_k(s, &table, b, |k| k + 1)
                    });
                    match result {
                        Ok(_) => done += 1,
                        Err(error) => assert_eq!(error.code, SqlState::DEADLOCK_DETECTED),
                    }
                }
            })
        })
        .collect();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    assert_eq!(all(&mut first, &table).iter().map(|row| row.1).collect::<Vec<_>>(), [200, 200]);
}

#[test]
fn write_skew_is_refused_when_serializable_and_happens_when_not() {
    for (isolation, allowed) in [(Isolation::RepeatableRead, true), (Isolation::Serializable, false)] {
        let folder = Folder::new();
        let db = open(&folder);
        let mut a = db.session().unwrap();
        let mut b = db.session().unwrap();
        let table = create(&mut a, "t");
        run(&mut a, |s| {
            s.insert(&table, &row(1, 10, ""))?;
            s.insert(&table, &row(2, 20, ""))
        })
        .unwrap();
        a.begin(isolation, false).unwrap();
        b.begin(isolation, false).unwrap();
        assert_eq!(all(&mut a, &table).len() + all(&mut b, &table).len(), 4);
        set_k(&mut a, &table, 1, |_| 11).unwrap();
        set_k(&mut b, &table, 2, |_| 21).unwrap();
        a.commit().unwrap();
        let second = b.commit();
        assert_eq!(second.is_ok(), allowed);
        if let Err(error) = second {
            assert_eq!(error.code, SqlState::SERIALIZATION_FAILURE);
        }
    }
}

#[test]
fn definitions_change_inside_transactions() {
    let folder = Folder::new();
    let db = open(&folder);
    let mut session = db.session().unwrap();
    let table = create(&mut session, "t");
    run(&mut session, |s| s.insert(&table, &row(1, 1, "kept"))).unwrap();
    session.begin(Isolation::ReadCommitted, false).unwrap();
    session.truncate(std::slice::from_ref(&table), false).unwrap();
    let inside = session.table(None, "t").unwrap();
    session.insert(&inside, &row(2, 2, "gone")).unwrap();
    session.rollback().unwrap();
    let after = session.table(None, "t").unwrap();
    assert_eq!(all(&mut session, &after), [(1, 1, "kept".to_owned())]);
    session.begin(Isolation::ReadCommitted, false).unwrap();
    session.drop_table(&after).unwrap();
    assert!(session.table(None, "t").is_none());
    session.commit().unwrap();
    assert!(session.table(None, "t").is_none());
    create(&mut session, "t");
}

#[test]
fn a_sequence_never_gives_a_number_twice() {
    let folder = Folder::new();
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..3 {
        let db = open(&folder);
        let mut session = db.session().unwrap();
        if round == 0 {
            run(&mut session, |s| {
                s.create_sequence(SequenceSpec {
                    schema: "public".to_owned(),
                    name: "s".to_owned(),
                    ty: Type::Int8,
                    start: None,
                    increment: 1,
                    min: None,
                    max: None,
                    cycle: false,
                    owner: None,
                })
            })
            .unwrap();
        }
        let oid = session.definitions().sequence("public", "s").unwrap().oid;
        for _ in 0..100 {
            assert!(seen.insert(session.nextval(oid).unwrap()));
        }
    }
    assert_eq!(seen.len(), 300);
    assert_eq!(*seen.last().unwrap(), 300, "a clean shutdown skips nothing");
}

#[test]
fn a_table_without_a_key_keeps_its_rows_and_gets_a_key_later() {
    let folder = Folder::new();
    let db = open(&folder);
    let mut session = db.session().unwrap();
    run(&mut session, |s| {
        s.create_table(homenode_engine::TableSpec {
            schema: "public".to_owned(),
            name: "h".to_owned(),
            columns: vec![column("id", int()), column("k", int()), column("t", text())],
            primary_key: None,
            uniques: Vec::new(),
            checks: Vec::new(),
        })
    })
    .unwrap();
    let table = session.table(None, "h").unwrap();
    run(&mut session, |s| (0..300).rev().try_for_each(|id| s.insert(&table, &row(id, id, "h")))).unwrap();
    run(&mut session, |s| s.add_primary_key(&table, None, vec![0])).unwrap();
    let table = session.table(None, "h").unwrap();
    let ids: Vec<i32> = all(&mut session, &table).iter().map(|row| row.0).collect();
    assert_eq!(ids, (0..300).collect::<Vec<_>>());
    let error = run(&mut session, |s| s.insert(&table, &row(7, 7, ""))).unwrap_err();
    assert_eq!(error.code, SqlState::UNIQUE_VIOLATION);
}
