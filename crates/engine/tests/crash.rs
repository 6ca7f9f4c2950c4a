//! Does everything that was committed come back, and nothing else?

mod common;

use common::*;
use homenode_engine::{Database, IndexSpec, Isolation, KeyRange, Session, Table};
use homenode_types::Value;
use std::collections::BTreeMap;

/// A small generator of numbers: the same run for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

type Model = BTreeMap<i32, (i32, String)>;

fn one_change(random: &mut Random, session: &mut Session, table: &Table, model: &mut Model) {
    let id = random.below(3000) as i32;
    let k = random.below(50) as i32;
    let text = "t".repeat(random.below(400) as usize);
    match random.below(10) {
        0..4 if !model.contains_key(&id) => {
            session.insert(table, &row(id, k, &text)).unwrap();
            model.insert(id, (k, text));
        }
        0..8 => {
            let changed = session.update(table, &key(id), &mut |_, values| {
                values[1] = Value::Int4(k);
                values[2] = Value::Text(text.clone());
                Ok(true)
            });
            assert_eq!(changed.unwrap(), model.contains_key(&id));
            if let Some(entry) = model.get_mut(&id) {
                *entry = (k, text);
            }
        }
        _ => assert_eq!(delete(session, table, id).unwrap(), model.remove(&id).is_some()),
    }
}

fn check(db: &Database, model: &Model) {
    let mut session = db.session().unwrap();
    let table = session.table(None, "t").unwrap();
    session.begin(Isolation::ReadCommitted, false).unwrap();
    let rows: Vec<_> = all(&mut session, &table);
    let expected: Vec<_> = model.iter().map(|(id, (k, t))| (*id, *k, t.clone())).collect();
    assert_eq!(rows, expected);
    let mut by_k: Vec<_> = model.iter().map(|(id, (k, _))| (*k, *id)).collect();
    by_k.sort_unstable();
    let mut found = Vec::new();
    let mut scan = session.index_scan(&table, &table.indexes[0], &KeyRange::all(), false).unwrap();
    while let Some((_, bytes)) = scan.next(&mut session).unwrap() {
        let (id, k, _) = decode(&table, bytes);
        found.push((k, id));
    }
    assert_eq!(found, by_k);
    session.commit().unwrap();
}

fn prepared(folder: &Folder) -> Database {
    let db = open(folder);
    let mut session = db.session().unwrap();
    let table = create(&mut session, "t");
    run(&mut session, |s| {
        s.create_index(&table, IndexSpec { name: None, columns: vec![1], unique: false, constraint: false })
    })
    .unwrap();
    db
}

/// Random transactions, some rolled back, some half-way at the crash; crashes at random moments, with and without checkpoints.
fn history(seed: u64) {
    let mut random = Random(seed);
    let mut folder = Folder::new();
    let mut db = prepared(&folder);
    let mut model = Model::new();
    for _ in 0..4 {
        let mut open_session = db.session().unwrap();
        let mut session = db.session().unwrap();
        let table = session.table(None, "t").unwrap();
        for _ in 0..150 {
            session.begin(Isolation::ReadCommitted, false).unwrap();
            let mut changed = model.clone();
            let savepoint_at = random.below(8);
            let mut saved = None;
            for step in 0..1 + random.below(10) {
                if step == savepoint_at {
                    saved = Some((session.savepoint(), changed.clone()));
                }
                one_change(&mut random, &mut session, &table, &mut changed);
            }
            if let Some((savepoint, before)) = saved.filter(|_| random.below(2) == 0) {
                session.rollback_to(&savepoint).unwrap();
                changed = before;
            }
            if random.below(5) == 0 {
                session.rollback().unwrap();
            } else {
                session.commit().unwrap();
                model = changed;
            }
            if random.below(60) == 0 {
                db.checkpoint().unwrap();
            }
        }
        check(&db, &model);
        // At the crash one transaction is under way, with changes of its own.
        open_session.begin(Isolation::ReadCommitted, false).unwrap();
        let mut lost = model.clone();
        for _ in 0..random.below(40) {
            one_change(&mut random, &mut open_session, &table, &mut lost);
        }
        db.log().wait_durable(db.log().tail());
        let copy = folder.crash_copy();
        drop((open_session, session));
        drop(db);
        folder = copy;
        db = open(&folder);
        check(&db, &model);
    }
}

#[test]
fn random_histories_survive_crashes() {
    for seed in 1..=12 {
        history(seed * 0x9E37_79B9);
    }
}

#[test]
fn a_crash_while_the_undoing_goes_on_is_survived() {
    let mut folder = Folder::new();
    let db = prepared(&folder);
    let mut session = db.session().unwrap();
    let table = session.table(None, "t").unwrap();
    let mut model = Model::new();
    let mut random = Random(77);
    run(&mut session, |s| {
        (0..300).for_each(|_| one_change(&mut random, s, &table, &mut model));
        Ok(())
    })
    .unwrap();
    session.begin(Isolation::ReadCommitted, false).unwrap();
    let mut lost = model.clone();
    for _ in 0..200 {
        one_change(&mut random, &mut session, &table, &mut lost);
    }
    let savepoint = session.savepoint();
    for _ in 0..200 {
        one_change(&mut random, &mut session, &table, &mut lost);
    }
    session.rollback_to(&savepoint).unwrap();
    db.log().wait_durable(db.log().tail());
    let copy = folder.crash_copy();
    drop(session);
    drop(db);
    folder = copy;
    check(&open(&folder), &model);
}

#[test]
fn data_larger_than_the_pool_comes_back() {
    let folder = Folder::new();
    let mut options = options();
    options.pool_bytes = 4 << 20;
    let db = Database::open_with(&folder.0, options.clone()).unwrap();
    let mut session = db.session().unwrap();
    let table = create(&mut session, "t");
    for batch in 0..40 {
        run(&mut session, |s| {
            (batch * 500..(batch + 1) * 500).try_for_each(|id| s.insert(&table, &row(id, id, &"w".repeat(1000))))
        })
        .unwrap();
    }
    for id in (0..20000).step_by(7) {
        run(&mut session, |s| set_k(s, &table, id, |k| -k)).unwrap();
    }
    db.log().wait_durable(db.log().tail());
    let copy = folder.crash_copy();
    drop(session);
    let db = Database::open_with(&copy.0, options).unwrap();
    let mut session = db.session().unwrap();
    let table = session.table(None, "t").unwrap();
    let rows = all(&mut session, &table);
    assert_eq!(rows.len(), 20000);
    for (id, k, _) in rows {
        assert_eq!(k, if id % 7 == 0 { -id } else { id });
    }
}

fn pages_in_use(db: &Database) -> u64 {
    let stats = db.pool().stats();
    stats.high_water - stats.free_pages
}

#[test]
fn pages_of_unfinished_trees_come_back_after_a_crash() {
    let folder = Folder::new();
    let db = prepared(&folder);
    let mut session = db.session().unwrap();
    let table = session.table(None, "t").unwrap();
    let text = "x".repeat(1000);
    run(&mut session, |s| (0..3000).try_for_each(|id| s.insert(&table, &row(id, id, &text)))).unwrap();
    db.checkpoint().unwrap();
    let index = || IndexSpec { name: None, columns: vec![2], unique: false, constraint: false };
    let baseline = |folder: &Folder| {
        let db = open(&folder.crash_copy());
        pages_in_use(&db)
    };
    let before = baseline(&folder);
    // An index, a rewritten table, a copied one: each half-way, some with a checkpoint that counts their pages as used.
    let works: [&dyn Fn(&mut Session); 4] = [
        &|s| {
            s.create_index(&table, index()).unwrap();
        },
        &|s| s.truncate(std::slice::from_ref(&table), false).unwrap(),
        &|s| {
            s.truncate(std::slice::from_ref(&table), false).unwrap();
            let emptied = s.table(None, "t").unwrap();
            s.drop_index(emptied.indexes[0].oid).unwrap();
            let emptied = s.table(None, "t").unwrap();
            let mut copy = s.copy_begin(&emptied).unwrap();
            (0..3000).for_each(|id| copy.push(s, &row(id, id, &text)).unwrap());
            db.checkpoint().unwrap();
            let half = baseline(&folder);
            assert_eq!(half, before, "half-way through a copy");
            copy.finish(s).unwrap();
        },
        &|s| s.drop_table(&table).unwrap(),
    ];
    for (number, work) in works.iter().enumerate() {
        session.begin(Isolation::ReadCommitted, false).unwrap();
        work(&mut session);
        db.log().wait_durable(db.log().tail());
        assert_eq!(baseline(&folder), before, "work {number}");
        db.checkpoint().unwrap();
        assert_eq!(baseline(&folder), before, "work {number}, after a checkpoint");
        session.rollback().unwrap();
        db.log().wait_durable(db.log().tail());
        assert_eq!(baseline(&folder), before, "work {number}, rolled back");
    }
    // A unique index that cannot be: its pages come back at once.
    let used = pages_in_use(&db);
    run(&mut session, |s| s.insert(&table, &row(5000, 1, &text))).unwrap();
    let unique = IndexSpec { name: None, columns: vec![1], unique: true, constraint: false };
    run(&mut session, |s| s.create_index(&table, unique)).unwrap_err();
    assert!(pages_in_use(&db) <= used + 4, "{} pages are in use, {used} before", pages_in_use(&db));
}
