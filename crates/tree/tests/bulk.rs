//! Does a bulk load make the tree that single inserts make, and full pages?

mod common;

use std::collections::BTreeSet;

use common::*;
use homenode_tree::{
    Direction, Header, KIND_BULK, MAX_ENTRY_BYTES, MAX_KEY_BYTES, Tree, TreeError, bulk_range, entry_bytes,
};

fn load<'a>(fixture: &mut Fixture, rows: impl Iterator<Item = &'a (Vec<u8>, Vec<u8>)>, percent: usize) {
    let mut loader = Tree::bulk(fixture.pool.clone(), fixture.log.clone(), 0, 9).fill_percent(percent);
    for (key, value) in rows {
        loader.push(key, Header { writer: 3, undo: 0 }, value).unwrap();
    }
    fixture.tree = loader.finish().unwrap();
}

fn check(rows: &[(Vec<u8>, Vec<u8>)], percent: usize) -> homenode_tree::TreeReport {
    let mut fixture = Fixture::new(64 << 20, true);
    load(&mut fixture, rows.iter(), percent);
    let report = fixture.tree.verify().unwrap();
    assert!(fixture.scan(Direction::Forward) == rows);
    assert!(fixture.scan(Direction::Backward) == rows);
    for (key, value) in rows.iter().step_by(7) {
        assert_eq!(fixture.get(key).as_ref(), Some(&(3, value.clone())));
    }
    let declared: u64 =
        fixture.log.records().iter().filter(|r| r.kind == KIND_BULK).map(|r| bulk_range(&r.payload).unwrap().1).sum();
    assert_eq!(declared, fixture.tree.pages().unwrap().len() as u64);
    // And it goes on like any other tree.
    for (key, _) in rows.iter().step_by(3) {
        fixture.put(0, &[&key[..key.len().min(MAX_KEY_BYTES - 1)], &[0]].concat(), 4, &[9; 60]);
    }
    fixture.tree.verify().unwrap();
    report
}

#[test]
fn none_one_and_many() {
    for count in [0i64, 1, 2, 200, 400, 100_000] {
        let rows: Vec<_> = (0..count).map(|i| (int_key(i), vec![i as u8; 40])).collect();
        let report = check(&rows, 100);
        assert_eq!(report.entries, count as u64);
        if count > 1000 {
            let fill = report.leaf_bytes_used * 100 / (report.leaf_pages * 16384);
            assert!(fill >= 98, "leaves are {fill}% full");
            let half = check(&rows, 50);
            assert!(half.leaf_pages > report.leaf_pages * 19 / 10);
        }
    }
}

#[test]
fn long_keys_of_all_kinds() {
    let mut random = Random(3);
    let mut keys = BTreeSet::new();
    for i in 0..5000 {
        let len = match i % 4 {
            0 => MAX_KEY_BYTES,
            1 => random.below(MAX_KEY_BYTES as u64) as usize,
            _ => random.below(30) as usize,
        };
        let mut key = vec![1; len];
        for _ in 0..2 {
            let at = random.below(len.max(1) as u64) as usize;
            if let Some(byte) = key.get_mut(at) {
                *byte = random.below(4) as u8;
            }
        }
        keys.insert(key);
    }
    let rows: Vec<_> = keys
        .into_iter()
        .map(|key| {
            let most = MAX_ENTRY_BYTES - entry_bytes(key.len(), 0);
            let len = if random.below(3) == 0 { most } else { random.below(100) as usize };
            (key, vec![5; len.min(most)])
        })
        .collect();
    check(&rows, 100);
    check(&rows, 70);
}

#[test]
fn out_of_order_is_an_error() {
    let fixture = Fixture::new(16 << 20, true);
    let mut loader = Tree::bulk(fixture.pool.clone(), fixture.log.clone(), 0, 9);
    loader.push(b"b", Header::default(), b"").unwrap();
    assert!(matches!(loader.push(b"b", Header::default(), b""), Err(TreeError::OutOfOrder)));
    assert!(matches!(loader.push(b"a", Header::default(), b""), Err(TreeError::OutOfOrder)));
}
