//! Many tasks over ten times the pool's size: does every page keep what was put into it?
//!
//! Each page carries its number, a change counter and a pattern made of both. A model next to the
//! pool knows the counter and the LSN of every change. Readers check for torn or outdated pages
//! while writers change them, pages are allocated and freed, and checkpoints run; after each
//! checkpoint the *file* (plus images in the log) is checked: it must contain every change that the
//! log would no longer be read for.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use common::*;
use homenode_platform::executor::Executor;
use homenode_pool::*;
use homenode_topology::{Topology, machines};

const COUNTER: usize = 64;
const PATTERN: usize = 72;

struct Model {
    pool: Arc<Pool>,
    wal: Arc<MemoryWal>,
    pages: Vec<PageNo>,
    /// LSN behind each change of each page; its length is the page's counter.
    changes: Vec<Mutex<Vec<u64>>>,
    /// Counters as last published, readable without the lock.
    counters: Vec<AtomicU64>,
    optimistic_reads: AtomicU64,
    failed_validations: AtomicU64,
}

fn pattern(page_no: PageNo, counter: u64, word: usize) -> u64 {
    Random(page_no ^ counter.rotate_left(32) ^ word as u64).next()
}

/// Words of the page that carry the pattern: spread over it, first and last included.
fn words() -> impl Iterator<Item = usize> {
    (PATTERN..PAGE_BYTES - 8).step_by(1016).chain([PAGE_BYTES - 8])
}

fn fill(page: &mut PageMut<'_>, page_no: PageNo, counter: u64) {
    page.write_u64(COUNTER, counter);
    for at in words() {
        page.write_u64(at, pattern(page_no, counter, at));
    }
}

fn check(bytes: &[u8], page_no: PageNo) -> u64 {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    assert_eq!(word(header::PAGE_NO), page_no);
    let counter = word(COUNTER);
    for at in words() {
        assert_eq!(word(at), pattern(page_no, counter, at), "page {page_no} word {at}");
    }
    counter
}

impl Model {
    fn new(folder: &Folder, config: PoolConfig, pages: usize, machine: &Topology) -> Arc<Model> {
        let wal = MemoryWal::new();
        wal.flush_us.store(200, SeqCst);
        let pool = Pool::new(config, open_file(&folder.pages()), wal.clone(), machine).unwrap();
        let mut model = Model {
            changes: (0..pages).map(|_| Mutex::new(Vec::new())).collect(),
            counters: (0..pages).map(|_| AtomicU64::new(0)).collect(),
            pages: Vec::new(),
            optimistic_reads: AtomicU64::new(0),
            failed_validations: AtomicU64::new(0),
            pool: pool.clone(),
            wal,
        };
        for i in 0..pages {
            let mut guard = pool.allocate(i).unwrap();
            model.pages.push(guard.page_no());
            model.change(i, &mut guard);
        }
        Arc::new(model)
    }

    fn change(&self, i: usize, guard: &mut Exclusive<'_>) {
        guard.mark_dirty();
        let lsn = self.wal.append();
        let counter = {
            let mut changes = self.changes[i].lock().unwrap();
            changes.push(lsn);
            changes.len() as u64
        };
        fill(&mut guard.page_mut(), self.pages[i], counter);
        guard.set_lsn(lsn);
        self.counters[i].store(counter, SeqCst);
    }

    fn read_optimistically(&self, i: usize) {
        let mut copy = vec![0; PAGE_BYTES];
        loop {
            let before = self.counters[i].load(SeqCst);
            let guard = self.pool.optimistic(self.pages[i]).unwrap();
            guard.page().copy_to(0, &mut copy);
            self.optimistic_reads.fetch_add(1, SeqCst);
            if guard.validate() {
                assert!(check(&copy, self.pages[i]) >= before, "an old state came back");
                return;
            }
            self.failed_validations.fetch_add(1, SeqCst);
        }
    }

    fn step(&self, random: &mut Random, lane: usize, own: &mut Vec<PageNo>) {
        // Some pages are hotter than others.
        let n = self.pages.len() as u64;
        let i = if random.below(3) == 0 { random.below(n / 20) } else { random.below(n) } as usize;
        match random.below(16) {
            0..=4 => self.read_optimistically(i),
            5..=8 => {
                let guard = self.pool.shared(self.pages[i]).unwrap();
                assert_eq!(check(guard.bytes(), self.pages[i]), self.counters[i].load(SeqCst));
            }
            9..=12 => {
                let mut guard = self.pool.exclusive(self.pages[i]).unwrap();
                assert_eq!(check(guard.bytes(), self.pages[i]), self.counters[i].load(SeqCst));
                self.change(i, &mut guard);
            }
            13 => {
                let Ok(guard) = self.pool.optimistic(self.pages[i]) else { return };
                if let Some(mut guard) = guard.upgrade() {
                    self.change(i, &mut guard);
                }
            }
            14 => {
                let mut guard = if random.below(2) == 0 {
                    self.pool.allocate(lane).unwrap()
                } else {
                    self.pool.allocate_unlogged(lane).unwrap()
                };
                guard.mark_dirty();
                let page_no = guard.page_no();
                fill(&mut guard.page_mut(), page_no, u64::MAX);
                own.push(page_no);
            }
            _ => {
                // A number that may be free, being allocated, or somebody's.
                let any = random.below(self.pool.stats().high_water);
                match self.pool.optimistic(any) {
                    Ok(_) | Err(PoolError::NotAllocated { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
                if own.len() > 20 {
                    let page_no = own.swap_remove(random.below(20) as usize);
                    let guard = self.pool.exclusive(page_no).unwrap();
                    assert_eq!(check(guard.bytes(), page_no), u64::MAX);
                    if random.below(2) == 0 {
                        guard.free();
                    } else {
                        drop(guard);
                        self.pool.free(page_no);
                    }
                }
            }
        }
    }

    /// After a checkpoint up to `up_to`: what a restart would find.
    fn check_file(&self, folder: &Folder, up_to: u64) {
        let file = std::fs::read(folder.pages()).unwrap();
        for (i, &page_no) in self.pages.iter().enumerate() {
            let needed = {
                let changes = self.changes[i].lock().unwrap();
                changes.iter().rev().find(|&&lsn| lsn <= up_to).copied().unwrap_or(0)
            };
            let at = page_no as usize * PAGE_BYTES;
            let found = &file[at..at + PAGE_BYTES];
            let sum = u32::from_le_bytes(found[..4].try_into().unwrap());
            let lsn = if sum == page_checksum(found) {
                check(found, page_no);
                u64::from_le_bytes(found[16..24].try_into().unwrap())
            } else {
                // Read while it was being overwritten, as after a crash: the image repairs it.
                self.image_lsn(page_no).expect("an image precedes every write").1
            };
            assert!(lsn >= needed, "page {page_no}: {lsn} in the file, {needed} needed");
        }
    }

    /// Where the page's last image stands in the log, and the LSN in it.
    fn image_lsn(&self, page_no: PageNo) -> Option<(u64, u64)> {
        let images = self.wal.images.lock().unwrap();
        let image = images.get(&page_no)?;
        check(&image.bytes, page_no);
        Some((image.start, u64::from_le_bytes(image.bytes[16..24].try_into().unwrap())))
    }

    /// No record of a page that its image lacks may stand before the image.
    fn check_images(&self) {
        for (i, &page_no) in self.pages.iter().enumerate() {
            let Some((start, lsn)) = self.image_lsn(page_no) else { continue };
            let changes = self.changes[i].lock().unwrap();
            assert!(!changes.iter().any(|&change| lsn < change && change <= start));
        }
    }

    fn checkpoints(&self, folder: &Folder, stop: &AtomicBool) -> usize {
        let mut count = 0;
        while !stop.load(SeqCst) || count == 0 {
            let up_to = self.wal.tail();
            self.pool.checkpoint_write(up_to, Pace::Fast).unwrap();
            self.check_file(folder, up_to);
            self.check_images();
            count += 1;
        }
        count
    }

    fn check_all(&self) {
        for (i, &page_no) in self.pages.iter().enumerate() {
            let guard = self.pool.shared(page_no).unwrap();
            assert_eq!(check(guard.bytes(), page_no), self.counters[i].load(SeqCst));
        }
    }
}

fn steps() -> usize {
    std::env::var("POOL_STRESS_STEPS").ok().and_then(|s| s.parse().ok()).unwrap_or(3000)
}

fn run_threads(config: PoolConfig, pages: usize) {
    run_threads_while(config, pages, &Topology::discover(), |_| ());
}

/// As [`run_threads`] on some machine, with `meanwhile` called again and again.
fn run_threads_while(config: PoolConfig, pages: usize, machine: &Topology, meanwhile: impl Fn(&Arc<Pool>) + Sync) {
    let folder = Folder::new("stress");
    let model = Model::new(&folder, config, pages, machine);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let checkpointer = scope.spawn(|| model.checkpoints(&folder, &stop));
        let other = scope.spawn(|| {
            while !stop.load(SeqCst) {
                meanwhile(&model.pool);
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        let workers: Vec<_> = (0..16)
            .map(|lane| {
                let model = &model;
                scope.spawn(move || {
                    let (mut random, mut own) = (Random(lane as u64), Vec::new());
                    (0..steps()).for_each(|_| model.step(&mut random, lane, &mut own));
                })
            })
            .collect();
        let ends: Vec<_> = workers.into_iter().map(|w| w.join()).collect();
        stop.store(true, SeqCst);
        assert!(ends.iter().all(Result::is_ok));
        assert!(checkpointer.join().unwrap() > 0);
        other.join().unwrap();
    });
    finish(&folder, &model);
}

fn finish(folder: &Folder, model: &Model) {
    model.check_all();
    let up_to = model.wal.tail();
    model.pool.checkpoint_write(up_to, Pace::Fast).unwrap();
    model.check_file(folder, up_to);
    let stats = model.pool.stats();
    let total = stats.total();
    println!(
        "optimistic {} failed {} | {total:?} | write run {:.2}",
        model.optimistic_reads.load(SeqCst),
        model.failed_validations.load(SeqCst),
        stats.average_write_run(),
    );
    assert!(total.evictions > 0 && total.write_errors == 0);
    model.pool.shutdown();
}

#[test]
fn threads_over_ten_times_the_pool() {
    run_threads(small(), 1280);
}

#[test]
fn threads_over_several_partitions() {
    let config = PoolConfig { bytes: 8 << 20, partitions: 4, lanes: 16, ..small() };
    run_threads(config, 5120);
}

#[test]
fn threads_without_cleaners() {
    run_threads(PoolConfig { cleaners: false, ..small() }, 1280);
}

#[test]
fn coroutines_park_instead_of_blocking_their_worker() {
    let folder = Folder::new("coroutines");
    let model = Model::new(&folder, PoolConfig { lanes: 4, ..small() }, 1280, &Topology::discover());
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let checkpointer = scope.spawn(|| model.checkpoints(&folder, &stop));
        let workers: Vec<_> = (0..4)
            .map(|lane| {
                let model = model.clone();
                scope.spawn(move || run_worker(&model, lane))
            })
            .collect();
        let ends: Vec<_> = workers.into_iter().map(|w| w.join()).collect();
        stop.store(true, SeqCst);
        assert!(ends.iter().all(Result::is_ok));
        checkpointer.join().unwrap();
    });
    finish(&folder, &model);
}

/// One worker thread with 32 coroutines.
fn run_worker(model: &Arc<Model>, lane: usize) {
    let me = std::thread::current();
    let executor = Executor::new(Arc::new(move || me.unpark()), 256 << 10);
    for task in 0..32 {
        let model = model.clone();
        executor.spawn(move || {
            let (mut random, mut own) = (Random((lane * 100 + task) as u64), Vec::new());
            for _ in 0..steps() / 8 {
                model.step(&mut random, lane, &mut own);
            }
        });
    }
    while executor.live() > 0 {
        if executor.run_ready() == 0 {
            std::thread::park_timeout(std::time::Duration::from_millis(1));
        }
    }
}

/// The pool's size goes up and down; nobody sees another page than before.
#[test]
fn the_size_changes_while_threads_work() {
    let moved = AtomicU64::new(0);
    let config = PoolConfig { bytes: 4 << 20, partitions: 2, lanes: 16, ..small() };
    run_threads_while(config, 2560, &Topology::discover(), |pool| {
        for mib in [16, 6, 10, 2, 12, 4] {
            let done = pool.reshape(Some(mib << 20), None).unwrap();
            assert_eq!(pool.shape().0, mib << 20);
            assert!(pool.stats().total().frames == (mib as u64) << 6);
            moved.fetch_add(done.moved + done.evicted, SeqCst);
        }
    });
    assert!(moved.load(SeqCst) > 0);
}

/// Pages go to a second tier and come back; on one node, whose memory is as near as the other.
#[test]
fn pages_cool_and_return_while_threads_work() {
    let machine = Topology::discover().as_one_node();
    let config = PoolConfig { bytes: 4 << 20, far_nodes: vec![0], far_bytes: 8 << 20, lanes: 16, ..small() };
    run_threads_while(config, 2560, &machine, |pool| {
        for mib in [4, 6] {
            pool.reshape(Some(mib << 20), None).unwrap();
            assert_eq!(pool.shape().0, mib << 20, "the far tier does not count");
        }
        let parts = pool.stats().partitions;
        let far = parts.iter().filter(|part| part.far);
        assert_eq!(far.map(|part| part.frames).sum::<u64>(), 512);
    });
}

/// So does its policy, on a machine with four nodes (as far as the pool knows; their memory is here).
#[test]
fn the_policy_changes_while_threads_work() {
    let machine = Topology::from_bundle(machines::text("kunpeng-920").unwrap()).unwrap();
    let config = PoolConfig { bytes: 16 << 20, partitions: 8, lanes: 16, policy: "local".parse().unwrap(), ..small() };
    let moved = AtomicU64::new(0);
    run_threads_while(config, 5120, &machine, |pool| {
        for (policy, nodes) in
            [("interleave", 4), ("preferred=2", 1), ("local", 4), ("preferred=0", 1), ("weighted", 4)]
        {
            let done = pool.reshape(None, Some(&policy.parse().unwrap())).unwrap();
            moved.fetch_add(done.moved, SeqCst);
            let parts = pool.stats().partitions;
            let mut used: Vec<usize> = parts.iter().filter(|part| part.frames > 0).map(|part| part.node).collect();
            used.sort_unstable();
            used.dedup();
            assert_eq!(used.len(), nodes, "{policy}: {used:?}");
            assert_eq!(parts.iter().map(|part| part.frames).sum::<u64>(), 1024);
            assert!(parts.len() <= 32, "memory is used again: {} partitions", parts.len());
        }
        assert!(pool.reshape(None, Some(&"preferred=9".parse().unwrap())).is_err());
        assert_eq!(pool.shape().1, "weighted".parse().unwrap());
    });
    assert!(moved.load(SeqCst) > 0);
}
