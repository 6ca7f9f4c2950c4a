//! A log in memory, a pool over a temporary file, and row operations as the engine does them.
#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use homenode_platform::fs::{File, OpenOptions};
use homenode_pool::{PAGE_BYTES, PageBuf, PageNo, Pool, PoolConfig, Wal};
use homenode_topology::Topology;
use homenode_tree::{Header, Journal, KIND_SMO, OpCode, Tree, ops, redo};

/// Record kind of the tests' own row operations.
pub const KIND_ROW: u8 = 1;

pub struct Record {
    pub end: u64,
    pub kind: u8,
    pub payload: Vec<u8>,
}

/// Keeps every record.
pub struct MemoryLog {
    records: Mutex<Vec<Record>>,
    tail: AtomicU64,
    keep: bool,
}

impl MemoryLog {
    pub fn new(keep: bool) -> Arc<MemoryLog> {
        Arc::new(MemoryLog { records: Mutex::new(Vec::new()), tail: AtomicU64::new(65536), keep })
    }

    pub fn records(&self) -> std::sync::MutexGuard<'_, Vec<Record>> {
        self.records.lock().unwrap()
    }
}

impl Journal for MemoryLog {
    fn append(&self, _lane: usize, kind: u8, parts: &[&[u8]]) -> u64 {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if !self.keep {
            return self.tail.fetch_add(len as u64, Ordering::Relaxed) + len as u64;
        }
        let mut records = self.records.lock().unwrap();
        let end = self.tail.fetch_add(len as u64, Ordering::Relaxed) + len as u64;
        records.push(Record { end, kind, payload: parts.concat() });
        end
    }

    fn tail(&self) -> u64 {
        self.tail.load(Ordering::Relaxed)
    }
}

impl Wal for MemoryLog {
    fn flush_to(&self, _lsn: u64) {}

    fn log_images(&self, _pages: &[(PageNo, &[u8])]) -> u64 {
        self.tail.load(Ordering::Relaxed)
    }

    fn tail(&self) -> u64 {
        self.tail.load(Ordering::Relaxed)
    }
}

/// A temporary folder, removed on drop.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("homenode-tree-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub struct Fixture {
    pub pool: Arc<Pool>,
    pub log: Arc<MemoryLog>,
    pub tree: Tree,
    _folder: Folder,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.pool.shutdown();
    }
}

impl Fixture {
    pub fn new(pool_bytes: usize, keep_log: bool) -> Fixture {
        let folder = Folder::new();
        let options = OpenOptions::new().read(true).write(true).create(true);
        let file = File::open(&folder.0.join("pages"), &options).unwrap();
        let log = MemoryLog::new(keep_log);
        let config =
            PoolConfig { bytes: pool_bytes, partitions: 1, lanes: 4, huge_pages: false, ..PoolConfig::default() };
        let pool = Pool::new(config, file, log.clone(), &Topology::discover()).unwrap();
        let tree = Tree::create(pool.clone(), log.clone(), 0, 7).unwrap();
        Fixture { pool, log, tree, _folder: folder }
    }

    /// Inserts or replaces, as the engine does it.
    pub fn put(&self, lane: usize, key: &[u8], writer: u64, value: &[u8]) {
        put(&self.tree, &self.log, lane, key, Header { writer, undo: 0 }, value);
    }

    /// Removes; false if the key isn't there.
    pub fn remove(&self, lane: usize, key: &[u8]) -> bool {
        let mut leaf = self.tree.leaf_exclusive(key).unwrap();
        let Ok(slot) = leaf.find(key) else { return false };
        let mut op = Vec::new();
        leaf.plan_remove(slot, &mut op);
        log_and_apply(&mut leaf, &self.log, lane, &op);
        true
    }

    pub fn get(&self, key: &[u8]) -> Option<(u64, Vec<u8>)> {
        let mut value = vec![1, 2, 3];
        self.tree.lookup(key, &mut value).unwrap().map(|header| (header.writer, value))
    }

    /// All entries by a cursor, forward or backward; backward ones are returned in key order too.
    pub fn scan(&self, direction: homenode_tree::Direction) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut cursor = self.tree.cursor();
        cursor.seek(std::ops::Bound::Unbounded, direction);
        let mut rows = Vec::new();
        let mut key = Vec::new();
        while let Some(leaf) = cursor.next_leaf(&self.tree).unwrap() {
            let slots: Vec<usize> = match direction {
                homenode_tree::Direction::Forward => leaf.slots().collect(),
                homenode_tree::Direction::Backward => leaf.slots().rev().collect(),
            };
            for slot in slots {
                leaf.key(slot, &mut key);
                rows.push((key.clone(), leaf.value(slot).to_vec()));
            }
        }
        if direction == homenode_tree::Direction::Backward {
            rows.reverse();
        }
        rows
    }

    /// Replays the log from nothing and compares every page of the tree with the pool's.
    pub fn check_redo(&self) {
        let mut pages: HashMap<PageNo, PageBuf> = HashMap::new();
        for record in self.log.records().iter() {
            if record.kind != KIND_SMO && record.kind != KIND_ROW {
                continue;
            }
            for op in ops(&record.payload).unwrap().0 {
                let page = pages.entry(op.page_no).or_insert_with(PageBuf::zeroed);
                redo(&mut page.page_mut(), &op).unwrap();
                page.page_mut().set_lsn(record.end);
                if op.code == OpCode::Free {
                    pages.remove(&op.page_no);
                }
            }
        }
        let live = self.tree.pages().unwrap();
        assert_eq!(live.len(), pages.len(), "pages of the tree and pages made by redo");
        for page_no in live {
            let held = self.pool.shared(page_no).unwrap();
            assert!(meaning(held.bytes()) == meaning(pages[&page_no].bytes()), "page {page_no} differs after redo");
        }
    }
}

/// The bytes of a page that mean something: not checksum, page number (redo's caller has them), nor
/// the free space.
fn meaning(page: &[u8]) -> Vec<u8> {
    let number = |at: usize| usize::from(u16::from_le_bytes([page[at], page[at + 1]]));
    let slots_end = 72 + 8 * number(32);
    let heap = number(34);
    assert!(slots_end <= heap && heap <= PAGE_BYTES);
    [&page[4..6], &page[16..28], &page[32..slots_end], &page[heap..]].concat()
}

pub fn log_and_apply(leaf: &mut homenode_tree::LeafMut<'_>, log: &MemoryLog, lane: usize, op: &[u8]) {
    leaf.mark_dirty();
    let end = log.append(lane, KIND_ROW, &[&1u16.to_le_bytes(), op]);
    leaf.apply(op, end);
}

pub fn put(tree: &Tree, log: &MemoryLog, lane: usize, key: &[u8], header: Header, value: &[u8]) {
    let mut op = Vec::new();
    loop {
        let mut leaf = tree.leaf_exclusive(key).unwrap();
        match leaf.find(key) {
            Ok(slot) if leaf.fits_update(slot, value.len()) => leaf.plan_update(slot, header, value, &mut op),
            Err(slot) if leaf.fits(key, value.len()) => leaf.plan_insert(slot, key, header, value, &mut op),
            _ => {
                drop(leaf);
                tree.make_room(lane, key, value.len(), &mut |_| false).unwrap();
                continue;
            }
        }
        return log_and_apply(&mut leaf, log, lane, &op);
    }
}

/// Small deterministic random numbers (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// A bigint key as the engine encodes it: 0x01, then big-endian with the sign flipped.
pub fn int_key(i: i64) -> Vec<u8> {
    let mut key = vec![1];
    key.extend_from_slice(&(i as u64 ^ (1 << 63)).to_be_bytes());
    key
}
