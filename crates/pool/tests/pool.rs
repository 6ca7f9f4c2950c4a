//! What the pool promises, one promise a test.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use common::*;
use homenode_memory::Census;
use homenode_pool::*;
use homenode_topology::Topology;

#[test]
fn nothing_is_evicted_while_there_is_room_in_other_partitions() {
    let (folder, wal) = (Folder::new("room"), MemoryWal::new());
    let config = PoolConfig { bytes: 16 << 20, partitions: 8, ..small() };
    let pool = open(&folder, &wal, config);
    // One thread, at home in one partition of 128 frames; slowly enough for the cleaner to come by.
    let pages: Vec<PageNo> = (0..700)
        .map(|i| {
            if i % 100 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            let mut guard = pool.allocate(0).unwrap();
            change(&mut guard, &wal, i);
            guard.page_no()
        })
        .collect();
    let total = pool.stats().total();
    assert_eq!((total.evictions, total.writes), (0, 0), "{total:?}");
    assert!(pages.iter().all(|page_no| pool.is_resident(*page_no)));
}

#[test]
fn pages_come_back_from_the_file_with_what_was_written() {
    let (folder, wal) = (Folder::new("back"), MemoryWal::new());
    let pool = open(&folder, &wal, small());
    let mut pages = Vec::new();
    // Ten times what fits.
    for i in 0..1280 {
        let mut guard = pool.allocate(0).unwrap();
        change(&mut guard, &wal, i);
        pages.push(guard.page_no());
    }
    for (i, &page_no) in pages.iter().enumerate() {
        assert_eq!(value(pool.shared(page_no).unwrap().page()), i as u64);
        let guard = pool.optimistic(page_no).unwrap();
        let seen = value(guard.page());
        assert!(guard.validate() && seen == i as u64);
    }
    let stats = pool.stats();
    assert!(stats.total().evictions > 1000 && stats.total().writes >= 1000, "{stats:?}");
    assert!(stats.average_write_run() > 4.0, "{}", stats.average_write_run());
    pool.checkpoint_write(u64::MAX, Pace::Fast).unwrap();
    assert_eq!(pool.min_rec_lsn(), None);
    let map = pool.space_map();
    pool.shutdown();
    drop(pool);

    let pool = open(&folder, &wal, small());
    pool.restore_space(&map).unwrap();
    for (i, &page_no) in pages.iter().enumerate().rev() {
        assert_eq!(value(pool.exclusive(page_no).unwrap().page()), i as u64);
    }
    let fresh = pool.allocate(0).unwrap();
    assert!(!pages.contains(&fresh.page_no()));
}

#[test]
fn an_optimistic_reader_notices_a_change_and_nothing_else() {
    let (folder, wal) = (Folder::new("optimistic"), MemoryWal::new());
    let pool = open(&folder, &wal, small());
    let page_no = {
        let mut guard = pool.allocate(0).unwrap();
        change(&mut guard, &wal, 1);
        guard.page_no()
    };
    let reader = pool.optimistic(page_no).unwrap();
    drop(pool.shared(page_no).unwrap());
    drop(pool.exclusive(page_no).unwrap());
    assert!(reader.validate(), "nobody changed it");
    change(&mut pool.exclusive(page_no).unwrap(), &wal, 2);
    assert!(!reader.validate());
    assert!(reader.upgrade().is_none());
    let reader = pool.optimistic(page_no).unwrap();
    let mut writer = reader.upgrade().unwrap();
    change(&mut writer, &wal, 3);
    drop(writer);
    assert_eq!(value(pool.shared(page_no).unwrap().page()), 3);
}

#[test]
fn a_freed_page_fails_its_readers_even_when_it_comes_back() {
    let (folder, wal) = (Folder::new("freed"), MemoryWal::new());
    let pool = open(&folder, &wal, small());
    let page_no = pool.allocate(0).unwrap().page_no();
    let reader = pool.optimistic(page_no).unwrap();
    pool.free(page_no);
    assert!(!reader.validate());
    assert!(matches!(pool.optimistic(page_no), Err(PoolError::NotAllocated { .. })));
    assert!(matches!(pool.shared(page_no), Err(PoolError::NotAllocated { .. })));
    // Same number, perhaps the same frame, for something else.
    let mut again = pool.allocate(0).unwrap();
    while again.page_no() != page_no {
        again = pool.allocate(0).unwrap();
    }
    assert!((header::BYTES..PAGE_BYTES).all(|at| again.page().u8(at) == 0));
    drop(again);
    assert!(!reader.validate());
}

#[test]
fn an_evicted_page_fails_its_readers() {
    let (folder, wal) = (Folder::new("evicted"), MemoryWal::new());
    let pool = open(&folder, &wal, small());
    let page_no = pool.allocate(0).unwrap().page_no();
    let reader = pool.optimistic(page_no).unwrap();
    while pool.is_resident(page_no) {
        drop(pool.allocate(0).unwrap());
    }
    assert!(!reader.validate());
    assert!(pool.optimistic(page_no).unwrap().validate());
}

#[test]
fn numbers_that_are_no_pages_are_refused() {
    let (folder, wal) = (Folder::new("numbers"), MemoryWal::new());
    let pool = open(&folder, &wal, small());
    for page_no in [NO_PAGE, 1, 77, 1 << 20, 1 << 40, u64::MAX] {
        let error = pool.optimistic(page_no).unwrap_err();
        assert!(matches!(error, PoolError::NotAllocated { .. }), "{error}");
    }
}

#[test]
fn images_are_durable_before_a_page_is_overwritten() {
    let (folder, wal) = (Folder::new("images"), MemoryWal::new());
    let pool = open(&folder, &wal, small());
    let mut guard = pool.allocate(0).unwrap();
    change(&mut guard, &wal, 7);
    let page_no = guard.page_no();
    drop(guard);
    let up_to = wal.tail();
    assert!(pool.min_rec_lsn().unwrap() < up_to);
    pool.checkpoint_write(up_to, Pace::Fast).unwrap();
    assert_eq!(pool.min_rec_lsn(), None);
    assert!(wal.durable() > up_to);
    let on_disk = std::fs::read(folder.pages()).unwrap();
    let on_disk = &on_disk[page_no as usize * PAGE_BYTES..][..PAGE_BYTES];
    assert_eq!(wal.images.lock().unwrap()[&page_no].bytes, on_disk);
    // Nothing changed: nothing is written again.
    pool.checkpoint_write(wal.tail(), Pace::Fast).unwrap();
    assert_eq!(wal.image_count.load(SeqCst), 1);
}

#[test]
fn unlogged_pages_need_no_image_and_are_free_after_a_restart() {
    let (folder, wal) = (Folder::new("unlogged"), MemoryWal::new());
    let pool = open(&folder, &wal, small());
    let kept = {
        let mut guard = pool.allocate(0).unwrap();
        change(&mut guard, &wal, 1);
        guard.page_no()
    };
    pool.checkpoint_write(u64::MAX, Pace::Fast).unwrap();
    let images = wal.image_count.load(SeqCst);
    let mut pages = Vec::new();
    for i in 0..400 {
        let mut guard = pool.allocate_unlogged(0).unwrap();
        guard.mark_dirty();
        guard.page_mut().write_u64(64, i);
        pages.push(guard.page_no());
    }
    for (i, &page_no) in pages.iter().enumerate() {
        assert_eq!(pool.shared(page_no).unwrap().page().u64(64), i as u64);
    }
    assert_eq!(wal.image_count.load(SeqCst), images);
    assert_eq!(pool.min_rec_lsn(), None);
    pool.checkpoint_write(u64::MAX, Pace::Fast).unwrap();
    assert_eq!(wal.image_count.load(SeqCst), images);

    let pool = open(&folder, &wal, small());
    pool.restore_space(&pool_map(&pages, kept, &folder, &wal)).unwrap();
    assert!(matches!(pool.shared(pages[0]), Err(PoolError::NotAllocated { .. })));
    assert_eq!(value(pool.shared(kept).unwrap().page()), 1);
}

/// A map in which exactly `kept` is in use below the highest of `pages`.
fn pool_map(pages: &[PageNo], kept: PageNo, folder: &Folder, wal: &Arc<MemoryWal>) -> Vec<u8> {
    let pool = open(folder, wal, small());
    for &page_no in pages {
        pool.mark_free(page_no).unwrap();
    }
    pool.mark_used(kept).unwrap();
    pool.space_map()
}

#[test]
fn a_damaged_page_is_reported_and_repaired_by_the_hook() {
    let (folder, wal) = (Folder::new("damaged"), MemoryWal::new());
    let pool = open(&folder, &wal, small());
    let page_no = {
        let mut guard = pool.allocate(0).unwrap();
        change(&mut guard, &wal, 9);
        guard.page_no()
    };
    pool.checkpoint_write(u64::MAX, Pace::Fast).unwrap();
    let map = pool.space_map();
    pool.shutdown();
    drop(pool);
    let mut bytes = std::fs::read(folder.pages()).unwrap();
    bytes[page_no as usize * PAGE_BYTES + 5000] ^= 1;
    std::fs::write(folder.pages(), bytes).unwrap();

    let pool = open(&folder, &wal, small());
    pool.restore_space(&map).unwrap();
    let error = pool.shared(page_no).unwrap_err();
    assert!(matches!(error, PoolError::Damaged { page_no: p, .. } if p == page_no), "{error}");
    let images = wal.clone();
    pool.set_repair_hook(Some(Box::new(move |page_no, bytes| {
        let images = images.images.lock().unwrap();
        images.get(&page_no).map(|image| bytes.copy_from_slice(&image.bytes)).is_some()
    })));
    assert_eq!(value(pool.redo_page(page_no).unwrap().page()), 9);
    // What recovery changed must be in the file before the log it came from may go.
    assert_eq!(pool.min_rec_lsn(), Some(1), "a repaired page has to be written");
    pool.checkpoint_write(wal.tail(), Pace::Fast).unwrap();
    let mut guard = pool.redo_page(page_no).unwrap();
    guard.mark_dirty();
    guard.page_mut().write_u64(200, 5);
    drop(guard);
    assert_eq!(pool.min_rec_lsn(), Some(1));
    // A page that never reached the file is zeros for recovery.
    let beyond = pool.stats().high_water + 100;
    assert_eq!(pool.redo_page(beyond).unwrap().page().lsn(), 0);
    assert!(pool.stats().high_water > beyond);
}

#[test]
fn a_run_is_written_past_the_frames() {
    let (folder, wal) = (Folder::new("run"), MemoryWal::new());
    let pool = open(&folder, &wal, small());
    let first = pool.allocate_run(300).unwrap();
    let mut bytes = vec![0u8; 300 * PAGE_BYTES];
    for (i, page) in bytes.chunks_exact_mut(PAGE_BYTES).enumerate() {
        page[64..72].copy_from_slice(&(i as u64).to_le_bytes());
    }
    assert!(matches!(pool.shared(first), Err(PoolError::NotAllocated { .. })), "not written yet");
    pool.write_run(first, &mut bytes).unwrap();
    pool.sync_file().unwrap();
    for i in 0..300 {
        assert_eq!(pool.shared(first + i).unwrap().page().u64(64), i);
    }
    let single = pool.allocate(0).unwrap().page_no();
    assert!(!(first..first + 300).contains(&single));
    (first..first + 300).for_each(|page_no| pool.free(page_no));
    let again = pool.allocate_run(40).unwrap();
    assert!(again + 40 <= first + 300, "free runs are used again");
}

#[test]
fn the_space_map_says_exactly_what_is_free() {
    let (folder, wal) = (Folder::new("map"), MemoryWal::new());
    let pool = open(&folder, &wal, PoolConfig { lanes: 3, ..small() });
    let mut random = Random(1);
    let mut used = std::collections::BTreeSet::new();
    for step in 0..4000 {
        if random.below(3) > 0 {
            assert!(used.insert(pool.allocate(step % 3).unwrap().page_no()), "given out twice");
        } else if let Some(&page_no) = used.iter().nth(random.below(50) as usize) {
            used.remove(&page_no);
            if random.below(2) == 0 {
                pool.free(page_no);
            } else {
                pool.exclusive(page_no).unwrap().free();
            }
        }
    }
    let (map, high_water) = (pool.space_map(), pool.stats().high_water);
    assert_eq!(pool.stats().free_pages, high_water - 1 - used.len() as u64);
    pool.checkpoint_write(u64::MAX, Pace::Fast).unwrap();
    let pool = open(&folder, &wal, small());
    pool.restore_space(&map).unwrap();
    for page_no in 1..high_water {
        let free = matches!(pool.shared(page_no), Err(PoolError::NotAllocated { .. }));
        assert_eq!(free, !used.contains(&page_no), "{page_no}");
    }
    assert!(pool.restore_space_is_refused(&map[..map.len() - 1]));
}

trait Refused {
    fn restore_space_is_refused(&self, map: &[u8]) -> bool;
}

impl Refused for Arc<Pool> {
    fn restore_space_is_refused(&self, map: &[u8]) -> bool {
        matches!(self.restore_space(map), Err(PoolError::SpaceMap(_)))
    }
}

#[test]
fn a_page_file_of_another_kind_is_refused() {
    let (folder, wal) = (Folder::new("kind"), MemoryWal::new());
    drop(open(&folder, &wal, PoolConfig { file_id: 5, ..small() }));
    let topology = homenode_topology::Topology::discover();
    let try_open = |config| Pool::new(config, open_file(&folder.pages()), wal.clone(), &topology).map(drop);
    assert!(try_open(PoolConfig { file_id: 5, ..small() }).is_ok());
    let error = try_open(PoolConfig { file_id: 6, ..small() }).unwrap_err();
    assert!(error.to_string().contains("another database"), "{error}");
    let mut bytes = std::fs::read(folder.pages()).unwrap();
    bytes[40] = 2;
    std::fs::write(folder.pages(), &bytes).unwrap();
    let error = try_open(small()).unwrap_err();
    assert!(error.to_string().contains("format version 2"), "{error}");
    std::fs::write(folder.pages(), vec![1u8; PAGE_BYTES]).unwrap();
    assert!(matches!(try_open(small()), Err(PoolError::Format(_))));
}

#[test]
fn prewarming_reads_neighbours_with_one_call() {
    let (folder, wal) = (Folder::new("prewarm"), MemoryWal::new());
    let pool = open(&folder, &wal, small());
    let pages: Vec<_> = (0..90)
        .map(|i| {
            let mut guard = pool.allocate(0).unwrap();
            change(&mut guard, &wal, i);
            guard.page_no()
        })
        .collect();
    pool.free(pages[40]);
    pool.checkpoint_write(u64::MAX, Pace::Fast).unwrap();
    let (map, resident) = (pool.space_map(), pool.resident_pages());
    assert_eq!(resident.len(), 89);
    pool.shutdown();
    drop(pool);

    let pool = open(&folder, &wal, small());
    pool.restore_space(&map).unwrap();
    drop(pool.shared(pages[3]).unwrap());
    let wanted: Vec<_> = pages.iter().copied().chain([1 << 30]).collect();
    assert_eq!(pool.prewarm(&wanted).unwrap(), 88);
    assert_eq!(pool.prewarm(&wanted).unwrap(), 0);
    let total = pool.stats().total();
    assert!(total.reads == 89 && total.read_runs <= 6, "{total:?}");
    for (i, &page_no) in pages.iter().enumerate().filter(|(i, _)| *i != 40) {
        assert!(pool.is_resident(page_no));
        assert_eq!(value(pool.shared(page_no).unwrap().page()), i as u64);
    }
    // Frames that misses are going to need are left alone.
    let more = pool.allocate_run(200).unwrap();
    pool.write_run(more, &mut vec![0; 200 * PAGE_BYTES]).unwrap();
    let many: Vec<_> = (more..more + 200).collect();
    assert!(pool.prewarm(&many).unwrap() < 40);
    assert!(pool.stats().total().free >= 30);
}

#[test]
fn a_page_missed_by_many_is_read_once() {
    let (folder, wal) = (Folder::new("coalesce"), MemoryWal::new());
    let pool = open(&folder, &wal, small());
    let page_no = {
        let mut guard = pool.allocate(0).unwrap();
        change(&mut guard, &wal, 77);
        guard.page_no()
    };
    pool.checkpoint_write(u64::MAX, Pace::Fast).unwrap();
    for _ in 0..20 {
        while pool.is_resident(page_no) {
            drop(pool.allocate_unlogged(0).unwrap());
        }
        let reads = pool.stats().total().reads;
        let start = std::sync::Barrier::new(16);
        std::thread::scope(|scope| {
            for i in 0..16 {
                let (pool, start) = (&pool, &start);
                scope.spawn(move || {
                    start.wait();
                    match i % 3 {
                        0 => assert_eq!(value(pool.shared(page_no).unwrap().page()), 77),
                        1 => assert_eq!(value(pool.exclusive(page_no).unwrap().page()), 77),
                        _ => assert_eq!(pool.optimistic(page_no).unwrap().page_no(), page_no),
                    }
                });
            }
        });
        assert_eq!(pool.stats().total().reads, reads + 1);
    }
}

#[test]
fn a_pool_that_is_all_latched_says_so_instead_of_hanging() {
    let (folder, wal) = (Folder::new("latched"), MemoryWal::new());
    let pool = open(&folder, &wal, PoolConfig { frame_patience_ns: 50_000_000, ..small() });
    let held: Vec<_> = (0..128).map(|_| pool.allocate(0).unwrap()).collect();
    let error = pool.allocate(0).unwrap_err();
    assert!(matches!(error, PoolError::NoFrame { last_write_error: None }), "{error}");
    drop(held);
    pool.allocate(0).unwrap();
}

/// A page that nobody uses cools; one that is used there returns, also when it is changed meanwhile.
#[test]
fn warm_pages_return_from_the_far_tier() {
    let folder = Folder::new("far");
    let wal = MemoryWal::new();
    let config = PoolConfig { far_nodes: vec![0], far_bytes: 8 << 20, ..small() };
    let machine = Topology::discover().as_one_node();
    let pool = Pool::new(config, open_file(&folder.pages()), wal.clone(), &machine).unwrap();
    let pages: Vec<PageNo> = (0..400)
        .map(|_| {
            let guard = pool.allocate(0).unwrap();
            guard.page_no()
        })
        .collect();
    let sums = |pool: &Pool| {
        let of = |far: bool, value: fn(&PartitionStats) -> u64| -> u64 {
            pool.stats().partitions.iter().filter(|part| part.far == far).map(value).sum()
        };
        (of(true, |part| part.demoted), of(true, |part| part.returned), of(false, |part| part.returned))
    };
    // 128 frames are near, so most are far by now, and none has been read from the file.
    assert!(sums(&pool).0 > 250, "{:?}", sums(&pool));
    assert_eq!((pool.stats().total().reads, pool.far_nodes()), (0, vec![0]));
    let parts = pool.stats().partitions;
    let frames = pool.look(0..pool.frame_count(), &Census::of(&machine)).unwrap();
    let far = frames.iter().filter(|frame| parts[frame.partition].far).filter_map(|frame| frame.page);
    let used: Vec<PageNo> = far.map(|page| page.page_no).take(50).collect();
    let returned = (0..2000).any(|round| {
        for &page_no in &used {
            let mut guard = pool.exclusive(page_no).unwrap();
            if round % 8 == 0 {
                guard.mark_dirty();
                guard.set_lsn(wal.append());
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
        sums(&pool).1 >= 20
    });
    let (_, far, near) = sums(&pool);
    assert!(returned && far == near, "{:?}", sums(&pool));
    for &page_no in &pages {
        assert_eq!(pool.shared(page_no).unwrap().page_no(), page_no);
    }
    assert!(pool.stats().total().reads < 100, "nearly all fit into both tiers");
    pool.shutdown();
    let nowhere = PoolConfig { far_nodes: vec![5], ..small() };
    assert!(matches!(
        Pool::new(nowhere, open_file(&folder.pages()), wal, &machine),
        Err(PoolError::Memory(error)) if error.to_string().contains("there is no node 5")
    ));
}
