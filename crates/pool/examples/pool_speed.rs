//! What do the pool's paths cost? `cargo run --release -p homenode-pool --example pool_speed`
//!
//! Prints nanoseconds per operation: reads of resident pages by one and by all CPUs (one hot page,
//! as a tree's root is; and random pages), exclusive changes, misses over ten times the pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use homenode_platform::fs::{File, OpenOptions};
use homenode_pool::{PageNo, Pool, PoolConfig, Wal};
use homenode_topology::Topology;

/// A log that costs nothing: what is measured is the pool.
struct NullWal(AtomicU64);

impl Wal for NullWal {
    fn flush_to(&self, _: u64) {}
    fn log_images(&self, pages: &[(PageNo, &[u8])]) -> u64 {
        self.0.fetch_add(16400 * pages.len() as u64, Relaxed)
    }
    fn tail(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    *state >> 33
}

/// Runs `work(thread, n)` on each thread and prints nanoseconds per operation and thread.
fn measure(what: &str, threads: usize, n: u64, work: impl Fn(usize, u64) + Sync) {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let work = &work;
            scope.spawn(move || work(thread, n));
        }
    });
    let ns = start.elapsed().as_nanos() as f64 / n as f64;
    println!("{what:<44} {threads:>2} threads  {ns:>10.1} ns");
}

fn main() {
    let path = std::env::temp_dir().join(format!("pool-speed-{}", std::process::id()));
    let options = OpenOptions::new().read(true).write(true).create(true);
    let file = File::open(&path, &options).expect("a file in the temporary folder");
    let config = PoolConfig { bytes: 64 << 20, prefault: true, ..PoolConfig::default() };
    let wal = Arc::new(NullWal(AtomicU64::new(1000)));
    let pool = Pool::new(config, file, wal, &Topology::discover()).expect("a pool");
    let frames = pool.stats().total().frames;
    let pages: Vec<PageNo> = (0..frames * 10).map(|_| pool.allocate(0).expect("a page").page_no()).collect();
    let resident = &pages[..frames as usize / 2];
    resident.iter().for_each(|&p| drop(pool.shared(p).expect("a page")));
    let cpus = homenode_platform::thread::available_cpus();

    for threads in [1, cpus] {
        measure("optimistic read, one hot page", threads, 5_000_000, |_, n| {
            for _ in 0..n {
                let guard = pool.optimistic(resident[0]).expect("a page");
                std::hint::black_box(guard.page().u64(64));
                assert!(guard.validate());
            }
        });
        measure("shared latch, one hot page", threads, 2_000_000, |_, n| {
            for _ in 0..n {
                std::hint::black_box(pool.shared(resident[0]).expect("a page").page().u64(64));
            }
        });
        measure("optimistic read, random resident page", threads, 2_000_000, |thread, n| {
            let mut state = thread as u64;
            for _ in 0..n {
                let page_no = resident[random(&mut state) as usize % resident.len()];
                let guard = pool.optimistic(page_no).expect("a page");
                std::hint::black_box(guard.page().u64(64));
                let _ = std::hint::black_box(guard.validate());
            }
        });
        measure("exclusive latch and change, random resident", threads, 1_000_000, |thread, n| {
            let mut state = thread as u64;
            for i in 0..n {
                let page_no = resident[random(&mut state) as usize % resident.len()];
                let mut guard = pool.exclusive(page_no).expect("a page");
                guard.mark_dirty();
                guard.page_mut().write_u64(64, i);
            }
        });
    }
    measure("random read over 10x the pool", cpus, 100_000, |thread, n| {
        let mut state = thread as u64;
        for _ in 0..n {
            let page_no = pages[random(&mut state) as usize % pages.len()];
            std::hint::black_box(pool.shared(page_no).expect("a page").page().u64(64));
        }
    });
    measure("random read, every fourth a change, over 10x", cpus, 50_000, |thread, n| {
        let mut state = thread as u64;
        for i in 0..n {
            let page_no = pages[random(&mut state) as usize % pages.len()];
            let mut guard = pool.exclusive(page_no).expect("a page");
            if i % 4 == 0 {
                guard.mark_dirty();
                guard.page_mut().write_u64(64, i);
            }
        }
    });
    println!("{:?}", pool.stats().total());
    pool.shutdown();
    let _ = std::fs::remove_file(path);
}
