//! What do the tree's operations cost? Prints nanoseconds per lookup, insert and scanned row; under
//! `valgrind --tool=callgrind --toggle-collect='*measured_lookups*'` (or `*measured_inserts*`,
//! `*measured_scan*`) divide the instructions by the printed number of operations.
//!
//! `cargo run --release -p homenode-tree --example tree_cost -- [rows] [lookups]`

use std::hint::black_box;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use homenode_platform::fs::{File, OpenOptions};
use homenode_pool::{PageNo, Pool, PoolConfig, Wal};
use homenode_topology::Topology;
use homenode_tree::{Direction, Header, Journal, Tree};

/// A log that only counts.
struct Counter(AtomicU64);

impl Journal for Counter {
    fn append(&self, _lane: usize, _kind: u8, parts: &[&[u8]]) -> u64 {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        self.0.fetch_add(len as u64, Relaxed) + len as u64
    }

    fn tail(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Wal for Counter {
    fn flush_to(&self, _lsn: u64) {}

    fn log_images(&self, _pages: &[(PageNo, &[u8])]) -> u64 {
        self.0.load(Relaxed)
    }

    fn tail(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

fn int_key(i: u64) -> [u8; 9] {
    let mut key = [1; 9];
    key[1..].copy_from_slice(&(i ^ (1 << 63)).to_be_bytes());
    key
}

fn scattered(i: u64) -> u64 {
    i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

#[inline(never)]
fn measured_lookups(tree: &Tree, rows: u64, lookups: u64) {
    let mut value = Vec::new();
    for i in 0..lookups {
        let found = tree.lookup(&int_key(scattered(i) % rows), &mut value).expect("no error");
        assert!(black_box(found).is_some() && value.len() == 100);
    }
}

#[inline(never)]
fn measured_inserts(tree: &Tree, log: &Counter, lane: usize, keys: impl Iterator<Item = u64>) {
    let mut op = Vec::new();
    let header = Header { writer: 1, undo: 0 };
    for i in keys {
        let key = int_key(i);
        loop {
            let mut leaf = tree.leaf_exclusive(&key).expect("no error");
            let Err(slot) = leaf.find(&key) else { break };
            if leaf.fits(&key, 100) {
                op.clear();
                leaf.plan_insert(slot, &key, header, &[7; 100], &mut op);
                leaf.mark_dirty();
                let end = Journal::append(log, lane, 1, &[&1u16.to_le_bytes(), &op]);
                leaf.apply(&op, end);
                break;
            }
            drop(leaf);
            tree.make_room(lane, &key, 100, &mut |_| false).expect("no error");
        }
    }
}

#[inline(never)]
fn measured_scan(tree: &Tree) -> u64 {
    let mut cursor = tree.cursor();
    cursor.seek(Bound::Unbounded, Direction::Forward);
    let mut sum = 0;
    while let Some(leaf) = cursor.next_leaf(tree).expect("no error") {
        for slot in leaf.slots() {
            sum += leaf.header(slot).writer + u64::from(leaf.value(slot)[50]);
        }
    }
    sum
}

fn timed<R>(what: &str, operations: u64, run: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let result = run();
    let ns = start.elapsed().as_nanos() as f64 / operations as f64;
    println!("{what}: {operations} operations, {ns:.1} ns each");
    result
}

fn main() {
    let number = |at: usize, default: u64| std::env::args().nth(at).map_or(default, |s| s.parse().expect("a number"));
    let (rows, lookups) = (number(1, 2_000_000), number(2, 1_000_000));
    let path = std::env::temp_dir().join(format!("homenode-tree-cost-{}", std::process::id()));
    let file = File::open(&path, &OpenOptions::new().read(true).write(true).create(true)).expect("a temporary file");
    let log = Arc::new(Counter(AtomicU64::new(65536)));
    let config = PoolConfig { bytes: (rows as usize * 250).max(64 << 20), partitions: 1, ..PoolConfig::default() };
    let pool = Pool::new(config, file, log.clone(), &Topology::discover()).expect("a pool");
    std::fs::remove_file(&path).expect("removing the temporary file");
    let mut loader = Tree::bulk(pool.clone(), log.clone(), 0, 1);
    timed("bulk load", rows, || {
        for i in 0..rows {
            loader.push(&int_key(i), Header { writer: 1, undo: 0 }, &[7; 100]).expect("no error");
        }
    });
    let tree = loader.finish().expect("no error");
    timed("first scan (loads the pages)", rows, || measured_scan(&tree));
    println!("depth {}", tree.depth().expect("no error"));
    timed("lookup", lookups, || measured_lookups(&tree, rows, lookups));
    timed("scan", rows, || assert_eq!(measured_scan(&tree), rows * 8));
    timed("insert, ascending", lookups / 4, || measured_inserts(&tree, &log, 0, rows..rows + lookups / 4));
    let random = (0..lookups / 4).map(|i| scattered(i) >> 1 | 1 << 62);
    timed("insert, random", lookups / 4, || measured_inserts(&tree, &log, 0, random));
    tree.verify().expect("a whole tree");
    pool.shutdown();
}
