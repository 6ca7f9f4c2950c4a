//! How many commits a second does group commit make, and how long does one take?
//!
//! Arguments: folder, committers, seconds, and "threads" or "tasks" (coroutines on one worker).

use homenode_log::{Log, LogConfig, LogStats};
use homenode_platform::executor::Executor;
use homenode_platform::{clock, thread};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

const PAYLOAD: [u8; 100] = [7; 100];

/// One committer: appends and waits until `until_ns`; the time of each commit.
fn commit_until(log: &Log, lane: usize, until_ns: u64) -> Vec<u64> {
    let mut took_ns = Vec::new();
    loop {
        let started_ns = clock::now_ns();
        if started_ns >= until_ns {
            return took_ns;
        }
        log.wait_durable(log.append(lane, 1, &[&PAYLOAD]).end);
        took_ns.push(clock::now_ns() - started_ns);
    }
}

fn on_threads(log: &Arc<Log>, committers: usize, until_ns: u64) -> Vec<u64> {
    let threads: Vec<_> = (0..committers)
        .map(|lane| {
            let log = log.clone();
            std::thread::spawn(move || commit_until(&log, lane, until_ns))
        })
        .collect();
    threads.into_iter().flat_map(|thread| thread.join().expect("a committer")).collect()
}

fn on_tasks(log: &Arc<Log>, committers: usize, until_ns: u64) -> Vec<u64> {
    let worker = std::thread::current();
    let executor = Executor::new(Arc::new(move || worker.unpark()), 64 << 10);
    let took_ns = Rc::new(RefCell::new(Vec::new()));
    for _ in 0..committers {
        let (log, took_ns) = (log.clone(), took_ns.clone());
        executor.spawn(move || {
            let mine = commit_until(&log, 0, until_ns);
            took_ns.borrow_mut().extend(mine);
        });
    }
    while executor.live() > 0 {
        if executor.run_ready() == 0 && !executor.has_ready() {
            std::thread::park();
        }
    }
    took_ns.take()
}

fn report(what: &str, committers: usize, took_ns: &mut [u64], stats: &LogStats, elapsed_ns: u64) {
    took_ns.sort_unstable();
    let at = |share: f64| took_ns[((took_ns.len() - 1) as f64 * share) as usize] / 1000;
    println!(
        "{committers:3} {what}: {:.0} commits/s, latency us p50 {} p99 {} worst {}; {:.1} commits a flush, sync us mean {} worst {}",
        took_ns.len() as f64 / (elapsed_ns as f64 / 1e9),
        at(0.5),
        at(0.99),
        at(1.0),
        stats.released as f64 / stats.flushes as f64,
        stats.sync_ns_total / stats.flushes / 1000,
        stats.sync_ns_worst / 1000,
    );
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, committers, seconds, what] = &args[..] else {
        return Err("usage: commit FOLDER COMMITTERS SECONDS threads|tasks".into());
    };
    let committers: usize = committers.parse()?;
    let log = Log::create(LogConfig::new(dir))?;
    // The supply's zeroing is not what is measured.
    while log.stats().segments_ready < 2 {
        thread::sleep_ns(1_000_000);
    }
    let started_ns = clock::now_ns();
    let until_ns = started_ns + seconds.parse::<u64>()? * 1_000_000_000;
    let mut took_ns = match what.as_str() {
        "threads" => on_threads(&log, committers, until_ns),
        _ => on_tasks(&log, committers, until_ns),
    };
    report(what, committers, &mut took_ns, &log.stats(), clock::now_ns() - started_ns);
    log.shutdown();
    Ok(())
}
