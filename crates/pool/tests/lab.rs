//! Does the pool hold under any schedule? For the simulated machine only:
//! `RUSTFLAGS="--cfg homenode_lab" cargo test -p homenode-pool --test lab --target-dir target/lab`
//! (`POOL_LAB_SEEDS=1000` explores more, `POOL_LAB_FIRST=7` starts at another seed).
#![cfg(homenode_lab)]

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use common::MemoryWal;
use homenode_platform::fs::{File, OpenOptions};
use homenode_platform::lab::{self, Config, choose};
use homenode_platform::thread;
use homenode_pool::*;
use homenode_topology::Topology;

/// Pages in play, and frames left for them: the others are held, so that runs stay short.
const PAGES: usize = 10;
const SPARE_FRAMES: usize = 6;
const THREADS: usize = 3;
const STEPS: usize = 8;
const AT: [usize; 3] = [64, 8000, PAGE_BYTES - 8];

struct Case {
    pool: Arc<Pool>,
    wal: Arc<MemoryWal>,
    file: File,
    pages: Vec<PageNo>,
    /// Counter and last LSN of each page, set under its exclusive latch.
    model: Vec<(AtomicU64, AtomicU64)>,
}

fn open() -> (Arc<Pool>, Arc<MemoryWal>, File) {
    let options = OpenOptions::new().read(true).write(true).create(true);
    let file = || File::open(Path::new("pages"), &options).expect("no fault is asked for");
    let wal = MemoryWal::new();
    let config = PoolConfig { bytes: 2 << 20, partitions: 1, ..PoolConfig::default() };
    let pool = Pool::new(config, file(), wal.clone(), &Topology::discover()).expect("a pool");
    (pool, wal, file())
}

impl Case {
    fn change(&self, i: usize, guard: &mut Exclusive<'_>) {
        guard.mark_dirty();
        let lsn = self.wal.append();
        let counter = self.model[i].0.load(SeqCst) + 1;
        let mut page = guard.page_mut();
        AT.iter().for_each(|&at| page.write_u64(at, counter ^ self.pages[i]));
        page.set_lsn(lsn);
        self.model[i].1.store(lsn, SeqCst);
        self.model[i].0.store(counter, SeqCst);
    }

    fn counter(&self, i: usize, page: PageRef<'_>) -> [u64; 3] {
        AT.map(|at| page.u64(at) ^ self.pages[i])
    }

    fn step(&self, number: usize) {
        let i = choose(PAGES);
        match choose(8) {
            0 | 1 => {
                let before = self.model[i].0.load(SeqCst);
                let guard = self.pool.optimistic(self.pages[i]).unwrap();
                let seen = self.counter(i, guard.page());
                if guard.validate() {
                    assert!(seen[0] >= before && seen == [seen[0]; 3], "{seen:?}, was {before}");
                }
            }
            2 => {
                let guard = self.pool.shared(self.pages[i]).unwrap();
                assert_eq!(self.counter(i, guard.page()), [self.model[i].0.load(SeqCst); 3]);
            }
            3 | 4 => {
                let mut guard = self.pool.exclusive(self.pages[i]).unwrap();
                assert_eq!(self.counter(i, guard.page()), [self.model[i].0.load(SeqCst); 3]);
                self.change(i, &mut guard);
            }
            5 => {
                if let Some(mut guard) = self.pool.optimistic(self.pages[i]).unwrap().upgrade() {
                    self.change(i, &mut guard);
                }
            }
            6 => {
                // Two pages at once, in the order of their numbers, as a tree couples latches.
                let (a, b) = (i, choose(PAGES));
                let first = self.pool.exclusive(self.pages[a.min(b)]).unwrap();
                if a != b {
                    let mut second = self.pool.exclusive(self.pages[a.max(b)]).unwrap();
                    self.change(a.max(b), &mut second);
                }
                drop(first);
            }
            _ if number == 0 => {
                let up_to = self.wal.tail();
                let needed: Vec<_> = self.model.iter().map(|m| m.1.load(SeqCst)).collect();
                self.pool.checkpoint_write(up_to, Pace::Fast).unwrap();
                self.check_file(up_to, &needed);
            }
            _ if number == 1 => {
                // Pages of the unit that comes and goes have to move.
                self.pool.reshape(Some(4 << 20), None).unwrap();
                let up_to = self.wal.tail();
                assert!(self.pool.min_rec_lsn().is_none_or(|lsn| lsn <= up_to));
                self.pool.reshape(Some(2 << 20), None).unwrap();
            }
            _ => {
                let guard = self.pool.allocate_unlogged(number).unwrap();
                let page_no = guard.page_no();
                drop(guard);
                self.pool.free(page_no);
                let again = self.pool.optimistic(page_no);
                assert!(matches!(again, Ok(_) | Err(PoolError::NotAllocated { .. })));
            }
        }
    }

    /// What redo from `up_to` on would no longer bring back has to be in the file.
    fn check_file(&self, up_to: u64, needed: &[u64]) {
        let mut page = PageBuf::zeroed();
        for (&page_no, &lsn) in self.pages.iter().zip(needed) {
            self.file.read_exact_at(page.bytes_mut(), page_no * PAGE_BYTES as u64).unwrap();
            let whole = page.bytes()[..4] == page_checksum(page.bytes()).to_le_bytes();
            let found = if whole {
                page.page().lsn()
            } else {
                let images = self.wal.images.lock().unwrap();
                u64::from_le_bytes(images[&page_no].bytes[16..24].try_into().unwrap())
            };
            assert!(lsn > up_to || found >= lsn, "page {page_no}: {found} found, {lsn} needed");
        }
    }
}

fn scenario() {
    let (pool, wal, file) = open();
    // These guards keep most frames from being used, so that the few others are fought for.
    let holders = pool.clone();
    let held: Vec<_> = (0..128 - SPARE_FRAMES).map(|_| holders.allocate_unlogged(0).unwrap()).collect();
    let pages: Vec<_> = (0..PAGES).map(|_| pool.allocate(0).unwrap().page_no()).collect();
    let model = pages.iter().map(|_| (AtomicU64::new(0), AtomicU64::new(0))).collect();
    let case = Arc::new(Case { pool, wal, file, pages, model });
    for i in 0..PAGES {
        case.change(i, &mut case.pool.exclusive(case.pages[i]).unwrap());
    }
    let handles: Vec<_> = (0..THREADS)
        .map(|number| {
            let case = case.clone();
            let work = move || (0..STEPS).for_each(|_| case.step(number));
            thread::spawn(&format!("t{number}"), work)
        })
        .collect();
    handles.into_iter().for_each(thread::JoinHandle::join);
    for i in 0..PAGES {
        let guard = case.pool.shared(case.pages[i]).unwrap();
        assert_eq!(case.counter(i, guard.page()), [case.model[i].0.load(SeqCst); 3]);
    }
    drop(held);
    case.pool.shutdown();
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn any_schedule() {
    let first = number("POOL_LAB_FIRST", 1);
    for seed in first..first + number("POOL_LAB_SEEDS", 20) {
        let report = lab::run(&Config::new(seed), scenario);
        assert!(report.failure().is_none(), "seed {seed}: {:?}", report.failure());
        if seed == first {
            println!("seed {seed}: {} steps, {} switches", report.steps, report.switches);
            let again = lab::run(&Config::new(seed), scenario);
            assert_eq!(report.trace_hash, again.trace_hash, "a seed is a run");
        }
    }
}
