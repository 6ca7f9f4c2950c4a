//! Are pages there before they are asked for, read in runs, without looking used?

mod common;

use common::*;
use homenode_memory::Census;
use homenode_pool::{PAGE_BYTES, Pace, PageNo, Pool, PoolConfig};
use homenode_topology::Topology;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A file of so many pages with their number's value in each, and a fresh pool over it.
fn fresh(folder: &Folder, wal: &Arc<MemoryWal>, count: u64, bytes: usize) -> (Arc<Pool>, Vec<PageNo>) {
    let config = || PoolConfig { bytes, ..small() };
    let pool = open(folder, wal, config());
    let pages: Vec<_> = (0..count)
        .map(|i| {
            let mut guard = pool.allocate(0).unwrap();
            change(&mut guard, wal, i);
            guard.page_no()
        })
        .collect();
    pool.checkpoint_write(u64::MAX, Pace::Fast).unwrap();
    let map = pool.space_map();
    pool.shutdown();
    drop(pool);
    let pool = open(folder, wal, config());
    pool.restore_space(&map).unwrap();
    (pool, pages)
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(30), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn is_referenced(pool: &Pool, page_no: PageNo) -> bool {
    let census = Census::of(&Topology::discover());
    let frames = pool.look(0..pool.frame_count(), &census).unwrap();
    frames.iter().filter_map(|frame| frame.page).find(|page| page.page_no == page_no).unwrap().is_referenced
}

#[test]
fn pages_come_in_runs_and_their_first_use_does_not_count() {
    let (folder, wal) = (Folder::new("ahead"), MemoryWal::new());
    let (pool, pages) = fresh(&folder, &wal, 100, 4 << 20);
    drop(pool.shared(pages[10]).unwrap());
    pool.announce(&pages[..64]);
    pool.read_ahead(&pages[..64]);
    // The file was just written, so the system has it; a file system that can't say so leaves neighbours in order to the scan.
    if pages[..64].iter().all(|&page| pool.is_resident(page)) {
        let total = pool.stats().total();
        assert_eq!(total.reads, 64);
        assert!(total.read_runs <= 6, "{} calls for 64 neighbours", total.read_runs);
        pool.read_ahead(&pages[..64]);
        assert_eq!(pool.stats().total().reads, 64);
    }
    let backwards: Vec<_> = pages[..64].iter().rev().copied().collect();
    pool.announce(&backwards);
    pool.read_ahead(&backwards);
    wait_until("64 pages", || backwards.iter().all(|&page| pool.is_resident(page)));
    assert!(!is_referenced(&pool, pages[5]));
    for uses in 1..3 {
        let guard = pool.optimistic(pages[5]).unwrap();
        assert_eq!(value(guard.page()), 5);
        assert_eq!(is_referenced(&pool, pages[5]), uses > 1, "after {uses} uses");
    }
    // Backwards they are no neighbours in the file's order, but they come.
    let back: Vec<_> = pages[64..].iter().rev().copied().chain([1 << 30]).collect();
    pool.read_ahead(&back);
    wait_until("the others", || pages.iter().all(|&page| pool.is_resident(page)));
    for (i, &page) in pages.iter().enumerate() {
        assert_eq!(value(pool.shared(page).unwrap().page()), i as u64);
    }
    pool.shutdown();
    pool.read_ahead(&pages);
}

#[test]
fn a_pool_without_room_reads_no_further() {
    let (folder, wal) = (Folder::new("ahead-full"), MemoryWal::new());
    let (pool, pages) = fresh(&folder, &wal, 300, 2 << 20);
    assert_eq!(pool.read_ahead_window(), (2 << 20) / PAGE_BYTES / 32);
    let held: Vec<_> = pages[..100].iter().map(|&page| pool.shared(page).unwrap()).collect();
    for chunk in pages[100..].chunks(32) {
        pool.read_ahead(chunk);
    }
    // Whoever holds a page keeps it, and the others can still be had.
    for (i, &page) in pages.iter().enumerate() {
        assert_eq!(value(pool.shared(page).unwrap().page()), i as u64);
    }
    assert!(held.iter().zip(&pages).all(|(guard, &page)| guard.page_no() == page));
}
