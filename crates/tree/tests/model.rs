//! Does a tree behave as a sorted map does, and does redo make the same pages?

mod common;

use std::collections::BTreeMap;
use std::ops::Bound;

use common::*;
use homenode_tree::{Direction, Header, MAX_ENTRY_BYTES, MAX_KEY_BYTES, TreeError, entry_bytes};
use proptest::prelude::*;

type Model = BTreeMap<Vec<u8>, (u64, Vec<u8>)>;

fn compare(fixture: &Fixture, model: &Model) {
    fixture.tree.verify().unwrap();
    let want: Vec<_> = model.iter().map(|(k, (_, v))| (k.clone(), v.clone())).collect();
    assert!(fixture.scan(Direction::Forward) == want, "forward scan");
    assert!(fixture.scan(Direction::Backward) == want, "backward scan");
    for (key, want) in model {
        assert_eq!(fixture.get(key).as_ref(), Some(want));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<u8>, usize),
    Remove(usize),
    Update(usize, usize),
    Miss(Vec<u8>),
    Shrink(usize),
    Divide(usize),
    Range(Vec<u8>, bool),
}

/// Keys that share starts of all lengths, among them the empty one and very long ones.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => proptest::collection::vec(0u8..3, 0..12),
        4 => any::<u16>().prop_map(|i| int_key(i.into())),
        2 => (0usize..MAX_KEY_BYTES - 4, any::<[u8; 3]>()).prop_map(|(n, end)| [vec![7; n], end.to_vec()].concat()),
        1 => proptest::collection::vec(any::<u8>(), 0..200),
    ]
}

fn value_len() -> impl Strategy<Value = usize> {
    prop_oneof![6 => 0usize..60, 2 => 0usize..600, 1 => 0usize..MAX_ENTRY_BYTES]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (key(), value_len()).prop_map(|(k, n)| Step::Put(k, n)),
        3 => any::<usize>().prop_map(Step::Remove),
        4 => (any::<usize>(), value_len()).prop_map(|(i, n)| Step::Update(i, n)),
        1 => key().prop_map(Step::Miss),
        1 => any::<usize>().prop_map(Step::Shrink),
        1 => any::<usize>().prop_map(Step::Divide),
        1 => (key(), any::<bool>()).prop_map(|(k, b)| Step::Range(k, b)),
    ]
}

fn nth(model: &Model, i: usize) -> Option<Vec<u8>> {
    (!model.is_empty()).then(|| model.keys().nth(i % model.len()).unwrap().clone())
}

fn store(fixture: &Fixture, model: &mut Model, key: Vec<u8>, len: usize, writer: u64) {
    let len = len.min(MAX_ENTRY_BYTES - entry_bytes(key.len(), 0));
    // Mostly equal bytes with a difference somewhere, so that differences are of all shapes.
    let mut value = vec![0xAB; len];
    if let Some(byte) = value.get_mut(writer as usize % len.max(1)) {
        *byte = writer as u8;
    }
    fixture.put(0, &key, writer, &value);
    model.insert(key, (writer, value));
}

fn check_range(fixture: &Fixture, model: &Model, bound: &[u8], forward: bool) {
    let far = model.keys().nth(bound.len() * 7 % model.len().max(1)).cloned().unwrap_or_default();
    for (near, want) in [(Bound::Included(bound), model.contains_key(bound)), (Bound::Excluded(bound), false)] {
        let keys = check_ends(fixture, model, near, Bound::Unbounded, forward);
        assert_eq!(keys.iter().any(|key| key == bound), want);
        check_ends(fixture, model, near, Bound::Included(&far), forward);
        check_ends(fixture, model, near, Bound::Excluded(&far), forward);
    }
}

/// Compares a cursor from one end to the other with the model; gives its keys.
fn check_ends(fixture: &Fixture, model: &Model, near: Bound<&[u8]>, far: Bound<&[u8]>, forward: bool) -> Vec<Vec<u8>> {
    let mut cursor = fixture.tree.cursor();
    cursor.seek(near, if forward { Direction::Forward } else { Direction::Backward });
    cursor.stop_at(far);
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    while let Some(leaf) = cursor.next_leaf(&fixture.tree).unwrap() {
        let mut slots: Vec<usize> = leaf.slots().collect();
        if !forward {
            slots.reverse();
        }
        keys.extend(slots.iter().map(|s| [leaf.key_parts(*s).0, leaf.key_parts(*s).1].concat()));
        values.extend(slots.iter().map(|s| (leaf.header(*s).writer, leaf.value(*s).to_vec())));
    }
    let (low, high) = if forward { (near, far) } else { (far, near) };
    let inside = |key: &[u8]| std::ops::RangeBounds::<[u8]>::contains(&(low, high), key);
    let mut wanted: Vec<_> = model.iter().filter(|(key, _)| inside(key)).collect();
    if !forward {
        wanted.reverse();
    }
    assert!(keys.iter().eq(wanted.iter().map(|(key, _)| *key)), "keys from {near:?} to {far:?} forward {forward}");
    assert!(values.iter().eq(wanted.iter().map(|(_, value)| *value)), "values from {near:?} to {far:?}");
    keys
}

fn run(steps: Vec<Step>) {
    let fixture = Fixture::new(16 << 20, true);
    let mut model = Model::new();
    for (i, step) in steps.into_iter().enumerate() {
        let writer = i as u64 + 1;
        match step {
            Step::Put(key, len) => store(&fixture, &mut model, key, len, writer),
            Step::Update(at, len) => {
                if let Some(key) = nth(&model, at) {
                    store(&fixture, &mut model, key, len, writer);
                }
            }
            Step::Remove(at) => {
                if let Some(key) = nth(&model, at) {
                    assert!(fixture.remove(0, &key));
                    model.remove(&key);
                    assert_eq!(fixture.get(&key), None);
                }
            }
            Step::Miss(key) => assert_eq!(fixture.get(&key), model.get(&key).cloned()),
            Step::Shrink(at) => {
                if let Some(key) = nth(&model, at) {
                    // Entries of every fifth writer count as dead.
                    let mut dead = Vec::new();
                    fixture
                        .tree
                        .shrink(0, &key, &mut |h| {
                            if h.writer % 5 == 0 {
                                dead.push(h.writer)
                            }
                            h.writer % 5 == 0
                        })
                        .unwrap();
                    model.retain(|_, (writer, _)| !dead.contains(writer));
                }
            }
            Step::Divide(at) => {
                if let Some(key) = nth(&model, at) {
                    fixture.tree.divide(0, &key, false).unwrap();
                }
            }
            Step::Range(key, forward) => check_range(&fixture, &model, &key, forward),
        }
    }
    compare(&fixture, &model);
    fixture.check_redo();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 2000, ..ProptestConfig::default() })]
    #[test]
    fn a_tree_is_a_sorted_map(steps in proptest::collection::vec(step(), 1..600)) {
        run(steps);
    }
}

#[test]
fn a_leaf_is_divided_where_many_wait_or_when_asked_until_one_entry_is_left() {
    let fixture = Fixture::new(16 << 20, true);
    for i in 0..64 {
        fixture.put(0, &int_key(i), 1, &[5; 40]);
    }
    let leaves = || fixture.tree.verify().unwrap().leaf_pages;
    fixture.tree.relieve(0, &int_key(7)).unwrap();
    assert_eq!(leaves(), 1, "nobody waits");
    // The first time the root only gets a level below it.
    (0..20).for_each(|_| fixture.tree.divide(0, &int_key(7), false).unwrap());
    assert!((6..=8).contains(&leaves()), "64 entries are halved until one is left, {} leaves", leaves());
    fixture.check_redo();
}

#[test]
fn ascending_inserts_leave_full_pages() {
    let fixture = Fixture::new(64 << 20, true);
    for i in 0..30_000 {
        fixture.put(0, &int_key(i), 1, &[5; 40]);
    }
    let report = fixture.tree.verify().unwrap();
    assert_eq!(report.entries, 30_000);
    let fill = report.leaf_bytes_used * 100 / (report.leaf_pages * 16384);
    assert!(fill >= 97, "leaves are {fill}% full");
    fixture.check_redo();
}

#[test]
fn ascending_runs_in_the_middle_leave_full_pages() {
    let fixture = Fixture::new(64 << 20, true);
    // Ten counters, each going up by runs of ten, as order lines of ten districts do.
    for round in 0..400 {
        for district in 0..10i64 {
            for line in 0..10 {
                fixture.put(0, &int_key((district << 32) + round * 10 + line), 1, &[5; 40]);
            }
        }
    }
    let report = fixture.tree.verify().unwrap();
    let fill = report.leaf_bytes_used * 100 / (report.leaf_pages * 16384);
    assert!(fill >= 85, "leaves are {fill}% full");
    fixture.check_redo();
}

#[test]
fn random_inserts_then_removes_leave_nothing() {
    let fixture = Fixture::new(64 << 20, true);
    let mut random = Random(1);
    let mut model = Model::new();
    for _ in 0..30_000 {
        let key = int_key(random.below(1 << 40) as i64);
        let len = random.below(100) as usize;
        store(&fixture, &mut model, key, len, 1);
    }
    compare(&fixture, &model);
    let depth = fixture.tree.depth().unwrap();
    assert!(depth >= 2);
    for key in model.keys() {
        assert!(fixture.remove(0, key));
        fixture.tree.shrink(0, key, &mut |_| false).unwrap();
    }
    let report = fixture.tree.verify().unwrap();
    assert_eq!((report.entries, report.leaf_pages, report.depth), (0, 1, 1), "{report:?}");
    fixture.check_redo();
}

#[test]
fn pruning_makes_room_without_a_split() {
    let fixture = Fixture::new(16 << 20, true);
    let mut i = 0;
    while fixture.tree.depth().unwrap() == 1 && fixture.tree.leaf_exclusive(&int_key(i)).unwrap().fits(&int_key(i), 30)
    {
        fixture.put(0, &int_key(i), (i % 2) as u64, &[0; 30]);
        i += 1;
    }
    fixture.tree.make_room(0, &int_key(i), 30, &mut |header| header.writer == 1).unwrap();
    assert_eq!(fixture.tree.depth().unwrap(), 1);
    assert_eq!(fixture.tree.verify().unwrap().entries, (i as u64).div_ceil(2));
    fixture.check_redo();
}

#[test]
fn the_longest_keys_and_values() {
    let fixture = Fixture::new(64 << 20, true);
    let mut model = Model::new();
    let mut random = Random(2);
    for i in 0..600u64 {
        // Long keys that differ in the first byte, in the last one, or anywhere.
        let mut key = vec![3; MAX_KEY_BYTES];
        let at = match i % 3 {
            0 => 0,
            1 => MAX_KEY_BYTES - 1,
            _ => random.below(MAX_KEY_BYTES as u64) as usize,
        };
        key[at] = random.next() as u8;
        key[MAX_KEY_BYTES / 2] = random.below(4) as u8;
        store(&fixture, &mut model, key, MAX_ENTRY_BYTES, i);
    }
    compare(&fixture, &model);
    fixture.check_redo();
}

#[test]
fn too_large_is_an_error() {
    let fixture = Fixture::new(16 << 20, false);
    let too_long = vec![0; MAX_KEY_BYTES + 1];
    let error = fixture.tree.make_room(0, &too_long, 0, &mut |_| false).unwrap_err();
    assert!(matches!(error, TreeError::EntryTooLarge { bytes, .. } if bytes == MAX_KEY_BYTES + 1), "{error}");
    let error = fixture.tree.make_room(0, b"k", MAX_ENTRY_BYTES, &mut |_| false).unwrap_err();
    assert!(matches!(error, TreeError::EntryTooLarge { max: MAX_ENTRY_BYTES, .. }), "{error}");
}

#[test]
fn split_keys_divide_evenly() {
    let fixture = Fixture::new(64 << 20, false);
    assert!(fixture.tree.split_keys(4).unwrap().is_empty());
    for i in 0..50_000 {
        fixture.put(0, &int_key(i), 1, &[5; 40]);
    }
    let pages = fixture.tree.pages().unwrap().len() as u64;
    let estimate = fixture.tree.pages_estimate().unwrap();
    assert!(estimate.abs_diff(pages) <= pages / 2, "estimate {estimate} of {pages}");
    for parts in [1, 2, 3, 8] {
        let keys = fixture.tree.split_keys(parts).unwrap();
        assert_eq!(keys.len(), parts - 1);
        let mut last = 0;
        for key in keys.iter().chain([&int_key(50_000)]) {
            // A separator is the shortest that divides; padded with zeros it is a number.
            let mut number = [0; 8];
            number[..key.len() - 1].copy_from_slice(&key[1..]);
            let at = (u64::from_be_bytes(number) ^ (1 << 63)) as i64;
            let share = (at - last) * parts as i64;
            assert!((35_000..70_000).contains(&share), "{parts} parts: {share}");
            last = at;
        }
    }
}

#[test]
fn moves_and_removals_of_several_are_redone() {
    let fixture = Fixture::new(64 << 20, true);
    let mut random = Random(7);
    let mut model = Model::new();
    for i in 0..4000 {
        let key = int_key(i * 100);
        fixture.put(0, &key, 1, &[3; 10]);
        model.insert(key, (1, vec![3; 10]));
    }
    let (mut moves, mut removals) = (0, 0);
    for _ in 0..4000 {
        let keys: Vec<_> =
            model.range(int_key(random.below(400_000) as i64)..).take(4).map(|(key, _)| key.clone()).collect();
        let Some(old) = keys.first() else { continue };
        let mut leaf = fixture.tree.leaf_exclusive(old).unwrap();
        let from = leaf.find(old).unwrap();
        let mut op = Vec::new();
        // Before or behind the old one, by a little: mostly in the same leaf.
        let mut new = old.clone();
        *new.last_mut().unwrap() ^= 1 << random.below(8);
        if let (true, Err(slot)) = (leaf.covers(&new) && leaf.fits(&new, 5), leaf.find(&new)) {
            let header = |writer| Header { writer, undo: 9 };
            leaf.plan_move((from, header(2)), slot, &new, (header(3), &[4; 5]), &mut op);
            log_and_apply(&mut leaf, &fixture.log, 0, &op);
            assert_eq!(leaf.header(leaf.find(old).unwrap()), header(2));
            assert_eq!(leaf.header(leaf.find(&new).unwrap()), header(3));
            model.insert(new, (3, vec![4; 5]));
            model.get_mut(old).unwrap().0 = 2;
            moves += 1;
        }
        if random.below(2) == 0 {
            let mut slots: Vec<_> =
                keys.iter().filter_map(|key| leaf.find(key).ok().filter(|_| leaf.covers(key))).collect();
            slots.reverse();
            op.clear();
            leaf.plan_remove_all(&slots, &mut op);
            log_and_apply(&mut leaf, &fixture.log, 0, &op);
            keys.iter().take(slots.len()).for_each(|key| assert!(model.remove(key).is_some()));
            removals += slots.len();
        }
    }
    assert!(moves > 2000 && removals > 1000, "{moves} moves, {removals} removals");
    compare(&fixture, &model);
    fixture.check_redo();
}
