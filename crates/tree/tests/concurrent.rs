//! Does the tree stay whole when many threads use it at once?

mod common;

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use common::*;
use homenode_tree::Direction;

/// Value of a key: the key's number over and over, so that a torn read shows.
fn value_of(number: u64, len: usize) -> Vec<u8> {
    number.to_le_bytes().into_iter().cycle().take(len).collect()
}

fn check_value(number: u64, value: &[u8]) {
    assert!(value == value_of(number, value.len()), "torn value of {number}");
}

#[test]
fn writers_readers_and_scanners() {
    const KEYS: u64 = 4000;
    const WRITERS: u64 = 4;
    let fixture = Fixture::new(32 << 20, true);
    // Keys of number % 8 == 7 never go away: every scan has to see each of them exactly once.
    for number in (7..KEYS).step_by(8) {
        fixture.put(0, &int_key(number as i64), 1, &value_of(number, 30));
    }
    let stop = AtomicBool::new(false);
    let scans = AtomicU64::new(0);
    let mut models = Vec::new();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|lane| {
                let fixture = &fixture;
                scope.spawn(move || write_randomly(fixture, lane, WRITERS, KEYS))
            })
            .collect();
        for seed in 0..2 {
            let (fixture, stop) = (&fixture, &stop);
            scope.spawn(move || {
                let mut random = Random(seed + 100);
                let mut value = Vec::new();
                while !stop.load(Relaxed) {
                    let number = random.below(KEYS);
                    let found = fixture.tree.lookup(&int_key(number as i64), &mut value).unwrap();
                    assert!(found.is_some() || number % 8 != 7, "{number} is gone");
                    if found.is_some() {
                        check_value(number, &value);
                    }
                }
            });
        }
        for direction in [Direction::Forward, Direction::Backward] {
            let (fixture, stop, scans) = (&fixture, &stop, &scans);
            scope.spawn(move || {
                while !stop.load(Relaxed) {
                    check_scan(fixture, direction, KEYS);
                    scans.fetch_add(1, Relaxed);
                }
            });
        }
        models = writers.into_iter().map(|w| w.join().unwrap()).collect();
        stop.store(true, Relaxed);
    });
    fixture.tree.verify().unwrap();
    for (lane, model) in models.iter().enumerate() {
        for number in (0..KEYS).filter(|n| n % WRITERS == lane as u64 && n % 8 != 7) {
            let want = model.get(&number).map(|len| value_of(number, *len));
            assert_eq!(fixture.get(&int_key(number as i64)).map(|(_, v)| v), want, "{number}");
        }
    }
    fixture.check_redo();
    assert!(scans.load(Relaxed) > 1);
}

/// Each writer has its own keys, so its model is exact.
fn write_randomly(fixture: &Fixture, lane: u64, writers: u64, keys: u64) -> HashMap<u64, usize> {
    let mut random = Random(lane);
    let mut model = HashMap::new();
    for round in 0..15_000u64 {
        let number = random.below(keys / writers) * writers + lane;
        let key = int_key(number as i64);
        if number % 8 == 7 {
            fixture.put(lane as usize, &key, 1, &value_of(number, 20 + (round % 100) as usize));
        } else if random.below(3) == 0 {
            assert_eq!(fixture.remove(lane as usize, &key), model.remove(&number).is_some());
            if random.below(4) == 0 {
                fixture.tree.shrink(lane as usize, &key, &mut |_| false).unwrap();
            }
        } else {
            let len = random.below(600) as usize;
            fixture.put(lane as usize, &key, 1, &value_of(number, len));
            model.insert(number, len);
        }
    }
    model
}

fn check_scan(fixture: &Fixture, direction: Direction, keys: u64) {
    let mut cursor = fixture.tree.cursor();
    cursor.seek(Bound::Unbounded, direction);
    let mut seen = Vec::new();
    let mut key = Vec::new();
    while let Some(leaf) = cursor.next_leaf(&fixture.tree).unwrap() {
        let start = seen.len();
        for slot in leaf.slots() {
            leaf.key(slot, &mut key);
            let number = u64::from_be_bytes(key[1..].try_into().unwrap()) ^ (1 << 63);
            check_value(number, leaf.value(slot));
            seen.push(number);
        }
        if direction == Direction::Backward {
            seen[start..].reverse();
        }
    }
    if direction == Direction::Backward {
        seen.reverse();
    }
    assert!(seen.is_sorted_by(|a, b| a < b), "{direction:?}: a key twice or out of order");
    let lasting: Vec<_> = seen.iter().copied().filter(|n| n % 8 == 7).collect();
    assert!(lasting == (7..keys).step_by(8).collect::<Vec<_>>(), "{direction:?}: a lasting key was skipped");
}

#[test]
fn appenders_race_for_the_right_end() {
    let fixture = Fixture::new(64 << 20, true);
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for lane in 0..4 {
            let (fixture, next) = (&fixture, &next);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    if number >= 40_000 {
                        return;
                    }
                    fixture.put(lane, &int_key(number as i64), 1, &value_of(number, 40));
                }
            });
        }
    });
    let report = fixture.tree.verify().unwrap();
    assert_eq!(report.entries, 40_000);
    fixture.check_redo();
}

#[test]
fn split_storm_in_a_pool_that_is_too_small() {
    // 2 MiB hold 128 pages; the tree gets about a thousand: every descent may load and evict.
    let fixture = Fixture::new(2 << 20, false);
    std::thread::scope(|scope| {
        for lane in 0..4u64 {
            let fixture = &fixture;
            scope.spawn(move || {
                let mut random = Random(lane + 50);
                for _ in 0..4000 {
                    let number = random.below(1 << 30) * 4 + lane;
                    fixture.put(lane as usize, &int_key(number as i64), 1, &value_of(number, 800));
                    let value = fixture.get(&int_key(number as i64)).unwrap().1;
                    check_value(number, &value);
                }
            });
        }
    });
    let report = fixture.tree.verify().unwrap();
    assert!(report.leaf_pages > 500, "{report:?}");
}
