//! How is a server loaded, and how long does it take to answer? Client threads, each with a connection, in closed or open loop.
//!
//! Closed: a thread begins its next transaction when the last one has ended, so a server that stalls is asked less. Open:
//! transactions are due at times that don't depend on the server (a Poisson process), whichever thread is free takes the next
//! one, and its latency counts from when it was due. What was due and not begun when the time was up counts with the time that it
//! had waited by then: leaving the slowest ones out would be the coordinated omission that open loops are there to avoid.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Barrier, Mutex, OnceLock};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use homenode_memory::foreign::run_on;

use super::keys::{Distribution, Keys, Random};
use super::workload::{ACCOUNTS, Size, Transactions, Workload};
use crate::client::{Address, ClientError, Session, connect};

/// A server that is loaded.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where it is.
    pub address: Address,
    /// CPUs for the client threads that load it; none: wherever the system puts them.
    pub client_cpus: Vec<usize>,
}

/// When transactions begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// As soon as the thread's last one has ended.
    Closed,
    /// So many a second, over all threads.
    Open(f64),
}

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Load {
    /// The servers; threads are dealt to them in turn.
    pub targets: Vec<Target>,
    /// Kind of transaction.
    pub workload: Workload,
    /// Size of the data.
    pub size: Size,
    /// Which rows are asked for.
    pub distribution: Distribution,
    /// Threads, a connection each.
    pub threads: u32,
    /// When transactions begin.
    pub arrivals: Arrivals,
    /// Not counted.
    pub warm_up: Duration,
    /// Counted.
    pub measure: Duration,
    /// Of the random numbers.
    pub seed: u64,
}

/// Latencies in nanoseconds, to three digits.
pub type Latencies = Histogram<u32>;

/// What came of it.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Transactions that ended in the measured time.
    pub transactions: u64,
    /// Times that a transaction was tried again, after a deadlock or the like.
    pub retries: u64,
    /// Transactions that were due and not begun when the time was up.
    pub unserved: u64,
    /// Latencies of the transactions that began, or were due, in the measured time.
    pub latencies: Latencies,
    /// Transactions by second.
    pub by_second: Vec<u64>,
}

/// When what is measured begins and ends.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Its begin.
    pub start: Instant,
    /// Its end.
    pub end: Instant,
}

/// Loads the servers. `during` runs in the calling thread, once the clients are connected, and may watch the server in the window.
///
/// # Errors
/// The first client's error, after all have stopped; [`ClientError::Protocol`] if `stop` was set.
pub fn drive<T>(
    load: &Load,
    stop: &AtomicBool,
    during: impl FnOnce(Window) -> T,
) -> Result<(Measured, T), ClientError> {
    let together = Barrier::new(load.threads as usize + 1);
    let window = OnceLock::new();
    let broken = AtomicBool::new(false);
    let queue = Mutex::new(None);
    let shared = Shared { load, together: &together, window: &window, stop, broken: &broken, queue: &queue };
    std::thread::scope(|scope| {
        let start = |index: u32| {
            let thread = std::thread::Builder::new().stack_size(256 << 10);
            thread.spawn_scoped(scope, move || client(shared, index))
        };
        let clients: Vec<_> = (0..load.threads).map(start).collect();
        // A thread that could not start never comes to the barrier.
        let missing = clients.iter().filter(|client| client.is_err()).count();
        let stand_ins: Vec<_> = (0..missing)
            .map(|_| {
                scope.spawn(|| {
                    together.wait();
                    together.wait();
                })
            })
            .collect();
        broken.fetch_or(missing > 0, Relaxed);
        together.wait();
        let begun = Instant::now();
        let start = begun + load.warm_up;
        let window = *window.get_or_init(|| Window { start, end: start + load.measure });
        if let Arrivals::Open(rate) = load.arrivals {
            *queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) =
                Some(Queue { rate, next: begun, random: Random::new(load.seed ^ 0x5eed) });
        }
        together.wait();
        let seen = if broken.load(Relaxed) { None } else { Some(during(window)) };
        drop(stand_ins);
        let mut sum = Measured {
            transactions: 0,
            retries: 0,
            unserved: 0,
            latencies: histogram(),
            by_second: vec![0; load.measure.as_secs_f64().ceil() as usize],
        };
        let mut failed = None;
        for client in clients {
            let ended = client
                .map_err(ClientError::Io)
                .and_then(|client| client.join().unwrap_or(Err(ClientError::Protocol("a client thread failed"))));
            match ended {
                Ok(part) => sum.add(&part),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match (failed, seen) {
            (Some(error), _) => Err(error),
            _ if stop.load(Relaxed) => Err(ClientError::Protocol("stopped")),
            (None, Some(seen)) => Ok((sum, seen)),
            (None, None) => Err(ClientError::Protocol("the clients did not all connect")),
        }
    })
}

/// Latencies grow their table as needed.
fn histogram() -> Latencies {
    // Three digits are always allowed (the crate takes up to five).
    Latencies::new(3).unwrap_or_else(|_| unreachable!("three digits are allowed"))
}

impl Measured {
    fn add(&mut self, other: &Measured) {
        self.transactions += other.transactions;
        self.retries += other.retries;
        self.unserved += other.unserved;
        // A table that resizes by itself takes any value.
        let _ = self.latencies.add(&other.latencies);
        self.by_second.iter_mut().zip(&other.by_second).for_each(|(sum, part)| *sum += part);
    }

    fn record(&mut self, latency: Duration) {
        let _ = self.latencies.record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX).max(1));
    }
}

/// When the next transaction is due.
struct Queue {
    rate: f64,
    next: Instant,
    random: Random,
}

impl Queue {
    fn take(&mut self) -> Instant {
        let due = self.next;
        // Gaps of a Poisson process.
        let gap = -(1.0 - self.random.unit()).ln() / self.rate;
        self.next += Duration::from_secs_f64(gap.clamp(0.0, 3600.0));
        due
    }
}

#[derive(Clone, Copy)]
struct Shared<'a> {
    load: &'a Load,
    together: &'a Barrier,
    window: &'a OnceLock<Window>,
    stop: &'a AtomicBool,
    broken: &'a AtomicBool,
    queue: &'a Mutex<Option<Queue>>,
}

fn client(shared: Shared<'_>, index: u32) -> Result<Measured, ClientError> {
    let ready = prepared(shared.load, index);
    if ready.is_err() {
        shared.broken.store(true, Relaxed);
    }
    shared.together.wait();
    shared.together.wait();
    let (mut session, mut transactions) = ready?;
    let Some(window) = shared.window.get().filter(|_| !shared.broken.load(Relaxed)) else {
        return Err(ClientError::Protocol("the clients did not all connect"));
    };
    let random = Random::new(shared.load.seed.wrapping_add(u64::from(index) << 32));
    let ended = work(shared, *window, session.as_mut(), &mut transactions, random);
    if ended.is_err() {
        shared.broken.store(true, Relaxed);
    }
    ended
}

fn prepared(load: &Load, index: u32) -> Result<(Box<dyn Session>, Transactions), ClientError> {
    let target = &load.targets[index as usize % load.targets.len()];
    if !target.client_cpus.is_empty() {
        run_on(&target.client_cpus)?;
    }
    // Open loops sleep until a transaction is due: the 50 us that the kernel may add would be counted as the server's.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let mut session = connect(&target.address)?;
    let most = match load.workload {
        Workload::TpcB => load.size.scale * ACCOUNTS,
        _ => load.size.rows,
    };
    let keys = Keys::new(load.distribution, most);
    let transactions = Transactions::prepare(session.as_mut(), load.workload, load.size, keys)?;
    Ok((session, transactions))
}

fn work(
    shared: Shared<'_>,
    window: Window,
    session: &mut dyn Session,
    transactions: &mut Transactions,
    mut random: Random,
) -> Result<Measured, ClientError> {
    let seconds = shared.load.measure.as_secs_f64().ceil() as usize;
    let mut own =
        Measured { transactions: 0, retries: 0, unserved: 0, latencies: histogram(), by_second: vec![0; seconds] };
    while !shared.stop.load(Relaxed) && !shared.broken.load(Relaxed) {
        // A closed loop has no queue to share.
        let due = match shared.load.arrivals {
            Arrivals::Closed => None,
            Arrivals::Open(_) => {
                shared.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).as_mut().map(Queue::take)
            }
        };
        let now = Instant::now();
        let begun = due.unwrap_or(now);
        if begun >= window.end {
            break;
        }
        if now >= window.end {
            if begun >= window.start {
                own.unserved += 1;
                own.record(now - begun);
            }
            continue;
        }
        std::thread::sleep(begun.saturating_duration_since(now));
        own.retries += one(session, transactions, &mut random, window.end)?;
        let ended = Instant::now();
        if begun >= window.start {
            own.record(ended - begun);
        }
        if (window.start..window.end).contains(&ended) {
            own.transactions += 1;
            if let Some(count) = own.by_second.get_mut((ended - window.start).as_secs() as usize) {
                *count += 1;
            }
        }
    }
    Ok(own)
}

/// One transaction, tried until it succeeds (or the time is up); returns how often it was tried again.
fn one(
    session: &mut dyn Session,
    transactions: &mut Transactions,
    random: &mut Random,
    end: Instant,
) -> Result<u64, ClientError> {
    let mut retries = 0;
    loop {
        match transactions.run(session, random) {
            Ok(()) => return Ok(retries),
            Err(error) if error.is_retryable() => {
                session.query("ROLLBACK")?;
                retries += 1;
                if Instant::now() >= end {
                    return Ok(retries);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_come_at_the_rate_and_not_evenly() {
        let begun = Instant::now();
        let mut queue = Queue { rate: 1000.0, next: begun, random: Random::new(5) };
        let due: Vec<Duration> = (0..20_001).map(|_| queue.take() - begun).collect();
        assert_eq!(due[0], Duration::ZERO);
        assert!((19.0..21.0).contains(&due[20_000].as_secs_f64()), "{:?}", due[20_000]);
        let gaps = due.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64());
        // Of exponential gaps, the share that is shorter than the mean is 1 - 1/e.
        let short = gaps.filter(|gap| *gap < 0.001).count() as f64 / 20_000.0;
        assert!((0.61..0.65).contains(&short), "{short}");
    }
}
