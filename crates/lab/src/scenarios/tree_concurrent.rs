//! Does the tree stay a sorted map while it splits, under any schedule?

use super::threads;
use crate::scenario::Scenario;
use homenode_latch::planted;
use homenode_platform::atomic::{AtomicU64, Ordering::Relaxed};
use homenode_platform::fs::{File, OpenOptions};
use homenode_platform::lab;
use homenode_platform::sync::Mutex;
use homenode_pool::{PageNo, Pool, PoolConfig, Wal};
use homenode_topology::Topology;
use homenode_tree::{Direction, Header, Journal, Tree};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

const WRITERS: usize = 3;
const CHANGES: usize = 40;
const KEYS: usize = 60;
const KIND_ROW: u8 = 1;

/// See the module's text. The planted bug, in the latch, tells optimistic readers that nothing changed.
pub const SCENARIO: Scenario = Scenario {
    name: "tree-concurrent",
    claim: "lookups see whole values, cursors go in key order, and no change is lost while pages split",
    has_planted_bug: true,
    run: |trial| {
        planted::set(&planted::TRUST_READERS, trial.planted);
        trial.schedule(run)
    },
};

/// A log that only counts: nothing here crashes.
struct Counter(AtomicU64);

impl Journal for Counter {
    fn append(&self, _lane: usize, _kind: u8, parts: &[&[u8]]) -> u64 {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        self.0.fetch_add(bytes as u64, Relaxed) + bytes as u64
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

type Model = BTreeMap<Vec<u8>, (u64, usize)>;

fn run() {
    let file = File::open(Path::new("pages"), &OpenOptions::new().read(true).write(true).create(true));
    let log = Arc::new(Counter(AtomicU64::new(1 << 16)));
    let config = PoolConfig {
        bytes: 2 << 20,
        partitions: 1,
        lanes: WRITERS,
        huge_pages: false,
        cleaners: false,
        ..PoolConfig::default()
    };
    let file = file.expect("no fault is asked for");
    let pool = Pool::new(config, file, log.clone(), &Topology::discover()).expect("two MiB of memory");
    let tree = Arc::new(Tree::create(pool.clone(), log.clone(), 0, 1).expect("an empty file"));
    let models: Arc<Vec<Mutex<Model>>> = Arc::new((0..WRITERS).map(|_| Mutex::default()).collect());
    let (shared, theirs) = (tree.clone(), models.clone());
    threads(WRITERS + 1, move |number| match theirs.get(number) {
        Some(model) => write(&shared, &*log, number, &mut model.lock()),
        None => (0..4).for_each(|_| drop(scan(&shared))),
    });
    let mut all = Model::new();
    models.iter().for_each(|model| all.append(&mut model.lock()));
    assert!(scan(&tree) == all.into_iter().collect::<Vec<_>>(), "a change was lost or invented");
    tree.verify().expect("the tree is well formed");
    pool.shutdown();
}

/// Keys of different lengths with a common prefix; each belongs to one writer.
fn key_of(number: usize) -> Vec<u8> {
    format!("key {:03}{}", number, "-".repeat(number % 7)).into_bytes()
}

/// Changes its own keys, and looks at anybody's.
fn write(tree: &Tree, log: &dyn Journal, writer: usize, model: &mut Model) {
    let mut value = Vec::new();
    for change in 1..=CHANGES {
        let key = key_of(lab::choose(KEYS / WRITERS) * WRITERS + writer);
        let stamp = (change * WRITERS + writer) as u64;
        if lab::choose(5) == 0 {
            assert_eq!(remove(tree, log, &key), model.remove(&key).is_some(), "a key came or went by itself");
        } else {
            let bytes = 1 + lab::choose(3_500);
            put(tree, log, writer, &key, stamp, bytes);
            model.insert(key, (stamp, bytes));
        }
        let key = key_of(lab::choose(KEYS));
        if lab::choose(16) == 0 {
            tree.divide(writer, &key, false).expect("the pool is large enough");
        }
        if let Some(header) = tree.lookup(&key, &mut value).expect("no fault is asked for") {
            assert_whole(header, &value);
        }
    }
}

fn put(tree: &Tree, log: &dyn Journal, lane: usize, key: &[u8], stamp: u64, bytes: usize) {
    let (header, value) = (Header { writer: stamp, undo: 0 }, vec![stamp as u8; bytes]);
    let mut op = Vec::new();
    loop {
        let mut leaf = tree.leaf_exclusive(key).expect("no fault is asked for");
        match leaf.find(key) {
            Ok(slot) if leaf.fits_update(slot, bytes) => leaf.plan_update(slot, header, &value, &mut op),
            Err(slot) if leaf.fits(key, bytes) => leaf.plan_insert(slot, key, header, &value, &mut op),
            _ => {
                drop(leaf);
                tree.make_room(lane, key, bytes, &mut |_| false).expect("the pool is large enough");
                continue;
            }
        }
        leaf.mark_dirty();
        let end = log.append(lane, KIND_ROW, &[&op]);
        return leaf.apply(&op, end);
    }
}

fn remove(tree: &Tree, log: &dyn Journal, key: &[u8]) -> bool {
    let mut leaf = tree.leaf_exclusive(key).expect("no fault is asked for");
    let Ok(slot) = leaf.find(key) else { return false };
    let mut op = Vec::new();
    leaf.plan_remove(slot, &mut op);
    leaf.mark_dirty();
    let end = log.append(0, KIND_ROW, &[&op]);
    leaf.apply(&op, end);
    true
}

fn assert_whole(header: Header, value: &[u8]) {
    assert!(value.iter().all(|&byte| byte == header.writer as u8), "a torn value");
}

/// All entries in key order: key, stamp, length.
fn scan(tree: &Tree) -> Vec<(Vec<u8>, (u64, usize))> {
    let mut cursor = tree.cursor();
    cursor.seek(Bound::Unbounded, Direction::Forward);
    let mut rows: Vec<(Vec<u8>, (u64, usize))> = Vec::new();
    let mut key = Vec::new();
    while let Some(leaf) = cursor.next_leaf(tree).expect("no fault is asked for") {
        for slot in leaf.slots() {
            leaf.key(slot, &mut key);
            assert!(rows.last().is_none_or(|(last, _)| *last < key), "keys out of order");
            assert_whole(leaf.header(slot), leaf.value(slot));
            rows.push((key.clone(), (leaf.header(slot).writer, leaf.value(slot).len())));
        }
    }
    rows
}
