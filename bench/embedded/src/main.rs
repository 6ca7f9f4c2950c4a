//! How fast are embedded databases, each as durable as it is by default? Random gets and puts from one process.
//!
//! All stores are loaded with the same rows; then, in each round, every store takes its turn with every measurement, so
//! that a machine that changes its pace changes it for all. Medians over the rounds are printed with their range.

mod lmdb;
mod ours;
mod redb_store;
mod rocksdb_store;
mod store;

use clap::Parser;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use store::{Get, Put, Result, Store, value_of};

/// Homenode in one process, without a server, beside LMDB, RocksDB and redb.
///
/// Example: bench/embedded/run --rows 1000000 --threads 1,2 --rounds 5
#[derive(Parser)]
#[command(verbatim_doc_comment)]
struct Options {
    /// Rows of an 8-byte key and a 100-byte value
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// Threads, by commas
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// Rounds in which every store takes its turn
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Bytes of each store's cache, in MiB (LMDB has none: it maps its file)
    #[arg(long, default_value_t = 512)]
    cache_mib: usize,
    /// Folder for the databases (default: a new one under the folder for temporary files)
    #[arg(long)]
    folder: Option<PathBuf>,
}

/// What is measured.
#[derive(Clone, Copy, PartialEq)]
enum Work {
    Get,
    SnapshotGet,
    Put,
}

impl Work {
    const ALL: [Work; 3] = [Work::Get, Work::SnapshotGet, Work::Put];

    fn name(self) -> &'static str {
        match self {
            Work::Get => "random gets, each a transaction (/s)",
            Work::SnapshotGet => "random gets in one snapshot (/s)",
            Work::Put => "random puts, each a durable transaction (/s)",
        }
    }
}

/// A small generator of well-mixed numbers (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }
}

fn main() {
    if let Err(error) = run(&Options::parse()) {
        eprintln!("embedded: {error}");
        std::process::exit(1);
    }
}

fn run(options: &Options) -> Result<()> {
    if options.rows == 0 || options.rounds == 0 || options.threads.contains(&0) || options.seconds.is_nan() {
        return Err("rows, rounds and threads have to be at least one".into());
    }
    let folder = options
        .folder
        .clone()
        .unwrap_or_else(|| std::env::temp_dir().join(format!("homenode-embedded-{}", std::process::id())));
    if folder.exists() {
        return Err(format!("{} is there already", folder.display()).into());
    }
    std::fs::create_dir_all(&folder)?;
    let result = compare(options, &folder);
    std::fs::remove_dir_all(&folder)?;
    result
}

fn compare(options: &Options, folder: &std::path::Path) -> Result<()> {
    let cache_bytes = options.cache_mib << 20;
    let stores: [Box<dyn Store>; 4] = [
        Box::new(ours::Homenode::open(&folder.join("homenode"), cache_bytes)?),
        Box::new(lmdb::Lmdb::open(&folder.join("lmdb"))?),
        Box::new(rocksdb_store::RocksDb::open(&folder.join("rocksdb"), cache_bytes)?),
        Box::new(redb_store::Redb::open(&folder.join("redb"), cache_bytes)?),
    ];
    println!(
        "{} rows of 108 bytes, cache {} MiB, {} rounds of {} s",
        options.rows, options.cache_mib, options.rounds, options.seconds
    );
    for store in &stores {
        let start = Instant::now();
        store.load(options.rows)?;
        println!("  {}: {}; loaded in {:.1} s", store.name(), store.durability(), start.elapsed().as_secs_f64());
    }
    for work in Work::ALL {
        for &threads in &options.threads {
            let mut rates = vec![Vec::new(); stores.len()];
            for round in 0..options.rounds {
                for (store, rates) in stores.iter().zip(&mut rates) {
                    rates.push(rate(store.as_ref(), work, threads, round as u64, options)?);
                }
            }
            report(work, threads, &stores, &mut rates);
        }
    }
    Ok(())
}

/// Operations per second of all threads together.
fn rate(store: &dyn Store, work: Work, threads: usize, round: u64, options: &Options) -> Result<f64> {
    let start = Instant::now();
    let counts = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || one_thread(store, work, round << 32 | thread as u64, options)))
            .collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?).collect::<Result<Vec<u64>>>()
    })?;
    Ok(counts.iter().sum::<u64>() as f64 / start.elapsed().as_secs_f64())
}

fn one_thread(store: &dyn Store, work: Work, seed: u64, options: &Options) -> Result<u64> {
    let mut random = SplitMix(seed);
    match work {
        Work::Get => count(options, 64, reads(store.get()?, &mut random, options.rows)),
        Work::SnapshotGet => count(options, 64, reads(store.snapshot_get()?, &mut random, options.rows)),
        Work::Put => count(options, 1, writes(store.put()?, &mut random, options.rows)),
    }
}

fn reads<'a>(mut get: Get<'a>, random: &'a mut SplitMix, rows: u64) -> impl FnMut() -> Result<()> + 'a {
    let mut value = Vec::new();
    move || {
        let key = random.below(rows);
        if !get(key, &mut value)? || !value.starts_with(format!("{key:020}").as_bytes()) {
            return Err(format!("the row of key {key} is not what was put").into());
        }
        Ok(())
    }
}

fn writes<'a>(mut put: Put<'a>, random: &'a mut SplitMix, rows: u64) -> impl FnMut() -> Result<()> + 'a {
    move || {
        let key = random.below(rows);
        put(key, &value_of(key, random.next()))
    }
}

/// Repeats `one` for the time of a measurement, looking at the clock every `batch` times.
fn count(options: &Options, batch: u64, mut one: impl FnMut() -> Result<()>) -> Result<u64> {
    let end = Instant::now() + Duration::from_secs_f64(options.seconds);
    let mut done = 0;
    while Instant::now() < end {
        for _ in 0..batch {
            one()?;
        }
        done += batch;
    }
    Ok(done)
}

fn report(work: Work, threads: usize, stores: &[Box<dyn Store>], rates: &mut [Vec<f64>]) {
    println!("\n{}, {threads} {}", work.name(), if threads == 1 { "thread" } else { "threads" });
    let mut ours = None;
    for (store, rates) in stores.iter().zip(rates) {
        rates.sort_by(f64::total_cmp);
        let median = rates[rates.len() / 2];
        let (least, most) = (rates[0], rates[rates.len() - 1]);
        let against = match ours {
            None => String::new(),
            Some(ours) => format!("  Homenode is {:.2}x of it", ours / median),
        };
        println!("  {:<22}{median:>12.0}  ({least:.0} to {most:.0}){against}", store.name());
        ours.get_or_insert(median);
    }
}
