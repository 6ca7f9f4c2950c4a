//! A page file in a temporary folder and a log in memory, for the pool's tests.

#![allow(dead_code)]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Condvar, Mutex};

use homenode_platform::fs::{File, OpenOptions};
use homenode_pool::{Exclusive, PAGE_BYTES, PageNo, PageRef, Pool, PoolConfig, Wal};
use homenode_topology::Topology;

/// A page image in the log.
pub struct Image {
    /// The log's tail when it was appended.
    pub start: u64,
    pub bytes: Vec<u8>,
}

/// A barrier that a test closes to hold the pool in the middle of something.
#[derive(Default)]
pub struct Gate {
    closed: Mutex<bool>,
    changed: Condvar,
    waiting: AtomicU64,
}

impl Gate {
    pub fn set_closed(&self, closed: bool) {
        *self.closed.lock().unwrap() = closed;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut closed = self.closed.lock().unwrap();
        while *closed {
            self.waiting.fetch_add(1, SeqCst);
            closed = self.changed.wait(closed).unwrap();
            self.waiting.fetch_sub(1, SeqCst);
        }
    }

    /// Returns once somebody stands at the gate.
    pub fn await_somebody(&self) {
        while self.waiting.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
    }
}

/// A log that remembers images and checks the write-ahead rule.
#[derive(Default)]
pub struct MemoryWal {
    tail: AtomicU64,
    durable: AtomicU64,
    /// The last image of each page.
    pub images: Mutex<HashMap<PageNo, Image>>,
    pub image_count: AtomicU64,
    /// While closed, flushes stand still.
    pub gate: Gate,
    /// How long a flush takes, microseconds.
    pub flush_us: AtomicU64,
    pub flushes: AtomicU64,
}

impl MemoryWal {
    pub fn new() -> Arc<MemoryWal> {
        let wal = MemoryWal::default();
        wal.tail.store(1000, SeqCst);
        Arc::new(wal)
    }

    /// "Appends" a record; the LSN behind it.
    pub fn append(&self) -> u64 {
        self.tail.fetch_add(10, SeqCst) + 10
    }

    pub fn durable(&self) -> u64 {
        self.durable.load(SeqCst)
    }
}

impl Wal for MemoryWal {
    fn flush_to(&self, lsn: u64) {
        assert!(lsn <= self.tail.load(SeqCst), "flush of what was never appended");
        self.flushes.fetch_add(1, SeqCst);
        self.gate.pass();
        let flush_us = self.flush_us.load(SeqCst);
        if flush_us > 0 && lsn > self.durable.load(SeqCst) {
            // Writes stay in flight for a while, as with a real disk.
            std::thread::sleep(std::time::Duration::from_micros(flush_us));
        }
        self.durable.fetch_max(lsn, SeqCst);
    }

    fn log_images(&self, pages: &[(PageNo, &[u8])]) -> u64 {
        let mut images = self.images.lock().unwrap();
        for (page_no, bytes) in pages {
            let sum = u32::from_le_bytes(bytes[..4].try_into().unwrap());
            assert_eq!(sum, homenode_pool::page_checksum(bytes), "an image is as it will be written");
            let lsn = u64::from_le_bytes(bytes[16..24].try_into().unwrap());
            assert!(lsn <= self.tail.load(SeqCst), "an image from the future");
            assert_eq!(u64::from_le_bytes(bytes[8..16].try_into().unwrap()), *page_no);
        }
        self.image_count.fetch_add(pages.len() as u64, SeqCst);
        let len = 16400 * pages.len() as u64;
        let start = self.tail.fetch_add(len, SeqCst);
        for (page_no, bytes) in pages {
            images.insert(*page_no, Image { start, bytes: bytes.to_vec() });
        }
        start + len
    }

    fn tail(&self) -> u64 {
        self.tail.load(SeqCst)
    }
}

/// A folder that is removed when the test ends.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let n = NEXT.fetch_add(1, SeqCst);
        let path = std::env::temp_dir().join(format!("pool-{name}-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn pages(&self) -> PathBuf {
        self.0.join("pages")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn open_file(path: &Path) -> File {
    let options = OpenOptions::new().read(true).write(true).create(true);
    File::open(path, &options).unwrap()
}

pub fn small() -> PoolConfig {
    PoolConfig { bytes: 2 << 20, partitions: 1, huge_pages: false, ..PoolConfig::default() }
}

pub fn open(folder: &Folder, wal: &Arc<MemoryWal>, config: PoolConfig) -> Arc<Pool> {
    Pool::new(config, open_file(&folder.pages()), wal.clone(), &Topology::discover()).unwrap()
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

/// Changes a page the way the engine does: dirty, log, apply.
pub fn change(guard: &mut Exclusive<'_>, wal: &MemoryWal, value: u64) {
    guard.mark_dirty();
    let lsn = wal.append();
    let mut page = guard.page_mut();
    page.write_u64(64, value);
    page.write_u64(PAGE_BYTES - 8, value);
    guard.set_lsn(lsn);
}

/// The value that [`change`] wrote.
pub fn value(page: PageRef<'_>) -> u64 {
    assert_eq!(page.u64(64), page.u64(PAGE_BYTES - 8));
    page.u64(64)
}
