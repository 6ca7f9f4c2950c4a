//! What if the disk refuses? Each case runs in a process of its own, since a fault is per process.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use common::*;
use homenode_pool::*;

/// Runs an ignored test of this binary in a new process with the fault.
fn with_fault(fault: &str, case: &str) {
    let me = std::env::current_exe().unwrap();
    let output = std::process::Command::new(me)
        .args(["--exact", case, "--ignored", "--nocapture"])
        .env("HOMENODE_TEST_FAULT", fault)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

fn new_page(pool: &Pool, wal: &MemoryWal, value: u64) -> Result<PageNo, PoolError> {
    let mut guard = pool.allocate(0)?;
    guard.mark_dirty();
    let lsn = wal.append();
    guard.page_mut().write_u64(64, value);
    guard.set_lsn(lsn);
    Ok(guard.page_no())
}

#[test]
fn a_failed_write_is_tried_again_and_nothing_is_lost() {
    // The first write is the header page, the second the reservation of space, the third the
    // checkpoint's.
    with_fault("write:3", "case_failed_write");
}

#[test]
#[ignore = "run by a_failed_write_is_tried_again_and_nothing_is_lost"]
fn case_failed_write() {
    let (folder, wal) = (Folder::new("write"), MemoryWal::new());
    let pool = open(&folder, &wal, PoolConfig { cleaners: false, ..small() });
    let page_no = new_page(&pool, &wal, 11).unwrap();
    let oldest = pool.min_rec_lsn();
    let error = pool.checkpoint_write(u64::MAX, Pace::Fast).unwrap_err();
    assert!(matches!(error, PoolError::Write { page_no: p, .. } if p == page_no), "{error}");
    assert_eq!(pool.min_rec_lsn(), oldest, "it is as dirty as before");
    pool.checkpoint_write(u64::MAX, Pace::Fast).unwrap();
    assert_eq!(pool.min_rec_lsn(), None);
    let file = std::fs::read(folder.pages()).unwrap();
    let page = &file[page_no as usize * PAGE_BYTES..][..PAGE_BYTES];
    assert_eq!(page[..4], page_checksum(page).to_le_bytes());
    assert_eq!(page[64], 11);
}

#[test]
fn a_failed_sync_is_fatal_and_never_retried() {
    // The first sync is the header page's.
    with_fault("fsync:2", "case_failed_sync");
}

#[test]
#[ignore = "run by a_failed_sync_is_fatal_and_never_retried"]
fn case_failed_sync() {
    let (folder, wal) = (Folder::new("sync"), MemoryWal::new());
    let pool = open(&folder, &wal, PoolConfig { cleaners: false, ..small() });
    let told = Arc::new(AtomicBool::new(false));
    let tell = told.clone();
    pool.on_fatal(Box::new(move |message| {
        assert!(message.contains("fsync"), "{message}");
        tell.store(true, SeqCst);
    }));
    new_page(&pool, &wal, 1).unwrap();
    let error = pool.checkpoint_write(u64::MAX, Pace::Fast).unwrap_err();
    assert!(matches!(error, PoolError::Sync { .. }) && told.load(SeqCst));
    assert!(matches!(pool.sync_file(), Err(PoolError::Sync { .. })), "no second try");
    new_page(&pool, &wal, 2).unwrap();
    assert!(pool.checkpoint_write(u64::MAX, Pace::Fast).is_err());
}

#[test]
fn a_full_disk_shows_at_allocation() {
    with_fault("write-enospc:8000000", "case_full_disk");
}

#[test]
#[ignore = "run by a_full_disk_shows_at_allocation"]
fn case_full_disk() {
    let (folder, wal) = (Folder::new("full"), MemoryWal::new());
    let pool = open(&folder, &wal, small());
    let mut pages = Vec::new();
    let error = loop {
        match new_page(&pool, &wal, pages.len() as u64) {
            Ok(page_no) => pages.push(page_no),
            Err(error) => break error,
        }
    };
    // Here writes fail as well, so either the file or the frames run out; both say so.
    let typed = matches!(error, PoolError::DiskFull { .. } | PoolError::NoFrame { last_write_error: Some(_) });
    assert!(typed, "{error}");
    assert!(pages.len() > 128);
    let dirty = pool.min_rec_lsn().is_some();
    assert!(dirty && pool.checkpoint_write(u64::MAX, Pace::Fast).is_err());
    // What is in memory still is, unwritten but unharmed.
    let resident = pages.iter().enumerate().filter(|(_, p)| pool.is_resident(**p));
    let checked = resident
        .filter(|&(i, &page_no)| {
            assert_eq!(pool.shared(page_no).unwrap().page().u64(64), i as u64);
            true
        })
        .count();
    assert!(checked > 60, "{checked}");
}
