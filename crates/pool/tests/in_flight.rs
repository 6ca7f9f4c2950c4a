//! What holds while a page is on its way to the file? The log's gate keeps it there.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use common::*;
use homenode_pool::*;

struct Case {
    folder: Folder,
    wal: Arc<MemoryWal>,
    pool: Arc<Pool>,
    page_no: PageNo,
}

fn change(case: &Case, value: u64) {
    let mut guard = case.pool.exclusive(case.page_no).unwrap();
    guard.mark_dirty();
    let lsn = case.wal.append();
    guard.page_mut().write_u64(64, value);
    guard.set_lsn(lsn);
}

/// A pool with one dirty page, value 1, and the gate closed.
fn case(name: &str) -> Case {
    let (folder, wal) = (Folder::new(name), MemoryWal::new());
    let pool = open(&folder, &wal, PoolConfig { cleaners: false, frame_patience_ns: 50_000_000, ..small() });
    let page_no = pool.allocate(0).unwrap().page_no();
    let case = Case { folder, wal, pool, page_no };
    change(&case, 1);
    case.wal.gate.set_closed(true);
    case
}

impl Case {
    fn value_in_file(&self) -> u64 {
        let file = std::fs::read(self.folder.pages()).unwrap();
        let page = &file[self.page_no as usize * PAGE_BYTES..][..PAGE_BYTES];
        u64::from_le_bytes(page[64..72].try_into().unwrap())
    }
}

/// Opens the gate also when an assertion fails, so that the test ends.
struct Open<'a>(&'a Gate);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.set_closed(false);
    }
}

/// Runs `inside` while a checkpoint stands at the gate and `beside` runs next to it; `beside` must
/// not get through before the gate opens.
fn held(case: &Case, beside: impl FnOnce() + Send, inside: impl FnOnce()) {
    std::thread::scope(|scope| {
        let up_to = case.wal.tail();
        let _open = Open(&case.wal.gate);
        scope.spawn(move || case.pool.checkpoint_write(up_to, Pace::Fast).unwrap());
        case.wal.gate.await_somebody();
        let through = Arc::new(AtomicBool::new(false));
        let done = through.clone();
        scope.spawn(move || {
            beside();
            done.store(true, SeqCst);
        });
        inside();
        std::thread::sleep(Duration::from_millis(30));
        assert!(!through.load(SeqCst), "it did not wait for the write");
    });
}

#[test]
fn a_change_counts_as_not_in_the_file_until_it_is() {
    let case = case("counts");
    let oldest = case.pool.min_rec_lsn().unwrap();
    let up_to = case.wal.tail();
    // Another checkpoint up to the same point may not finish before the first one's write.
    let beside = || case.pool.checkpoint_write(up_to, Pace::Fast).unwrap();
    held(&case, beside, || {
        assert_eq!(case.pool.min_rec_lsn(), Some(oldest));
        change(&case, 2);
        assert_eq!(case.pool.min_rec_lsn(), Some(oldest), "dirtied again: no younger for it");
        assert_eq!(case.value_in_file(), 0);
    });
    assert!(case.pool.min_rec_lsn().unwrap() >= up_to, "what came after the copy remains");
    assert_eq!(case.value_in_file(), 1, "the copy, not the live page");
    case.pool.checkpoint_write(u64::MAX, Pace::Fast).unwrap();
    assert_eq!((case.value_in_file(), case.pool.min_rec_lsn()), (2, None));
}

#[test]
fn a_page_is_not_free_before_its_write_has_ended() {
    let case = case("free");
    held(&case, || case.pool.free(case.page_no), || {});
    assert!(matches!(case.pool.shared(case.page_no), Err(PoolError::NotAllocated { .. })));
    assert_eq!(case.value_in_file(), 1);
}

#[test]
fn a_page_being_written_is_neither_evicted_nor_unreadable() {
    let case = case("stays");
    // Readers are not held up, whatever the disk does; and however many frames are wanted, the
    // page's is not taken.
    std::thread::scope(|scope| {
        let up_to = case.wal.tail();
        let (pool, wal) = (&case.pool, &case.wal);
        let _open = Open(&wal.gate);
        scope.spawn(move || pool.checkpoint_write(up_to, Pace::Fast).unwrap());
        wal.gate.await_somebody();
        let held: Vec<_> = (0..127).map(|_| pool.allocate_unlogged(0).unwrap()).collect();
        assert!(pool.is_resident(case.page_no));
        assert!(pool.optimistic(case.page_no).unwrap().validate());
        assert_eq!(pool.shared(case.page_no).unwrap().page().u64(64), 1);
        let error = pool.allocate_unlogged(0).unwrap_err();
        assert!(matches!(error, PoolError::NoFrame { .. }), "{error}");
        assert!(pool.is_resident(case.page_no));
        drop(held);
    });
}
