//! Latches by themselves: one who wants it alone under a flood of those who share it, and a hot word beside quiet ones.

use super::random;
use crate::designs::lwlock::{LwLock, Mode};
use crate::measure::{MakeStep, Site, Step, Workload};
use homenode_latch::Latch;
use homenode_platform::CachePadded;
use homenode_platform::atomic::{AtomicU64, Ordering};
use homenode_platform::lab::measure;
use std::sync::{Arc, Mutex};

/// How long the latch is shared, and how long a session does something else.
const HOLD_NS: u64 = 2_000;
const PAUSE_NS: u64 = 2_000;
/// Pause between two wishes of a writer.
const WRITER_PAUSE_NS: u64 = 200_000;
/// Of so many sessions one is a writer.
const WRITER_EVERY: usize = 32;

/// Postgres Professional 2018: sessions that share a lock keep one waiting who wants it alone.
pub const STARVATION: Workload = Workload {
    name: "starvation",
    about: "one latch, shared by most, wanted alone by one session in 32; counts shared holds",
    designs: &["homenode", "lwlock-unfair", "lwlock-fair"],
    sessions_per_core: 1,
    processes: true,
    smaller_caches: 1,
    for_ns: 20_000_000,
    warm_ns: 1_000_000,
    set_up: starvation,
};

/// A latch of any of the designs.
trait Lock: Send + Sync {
    fn lock(&self, mode: Mode);
    fn unlock(&self, mode: Mode);
}

impl Lock for LwLock {
    fn lock(&self, mode: Mode) {
        LwLock::lock(self, mode);
    }
    fn unlock(&self, mode: Mode) {
        LwLock::unlock(self, mode);
    }
}

impl Lock for Latch {
    fn lock(&self, mode: Mode) {
        match mode {
            Mode::Shared => self.lock_shared(),
            Mode::Exclusive => self.lock_exclusive(),
        }
    }
    fn unlock(&self, mode: Mode) {
        match mode {
            Mode::Shared => self.unlock_shared(),
            Mode::Exclusive => self.unlock_exclusive(),
        }
    }
}

impl<L: Lock> Lock for CachePadded<L> {
    fn lock(&self, mode: Mode) {
        self.0.lock(mode);
    }
    fn unlock(&self, mode: Mode) {
        self.0.unlock(mode);
    }
}

fn starvation(site: &Arc<Site>) -> MakeStep {
    let lock: Arc<dyn Lock> = match site.plan.design.as_str() {
        "lwlock-unfair" => Arc::new(CachePadded::new(LwLock::new(false))),
        "lwlock-fair" => Arc::new(CachePadded::new(LwLock::new(true))),
        _ => Arc::new(CachePadded::new(Latch::new())),
    };
    let waits: Arc<Mutex<Waits>> = Arc::default();
    let site = site.clone();
    Arc::new(move |worker| -> Step {
        let (lock, waits, site) = (lock.clone(), waits.clone(), site.clone());
        if worker % WRITER_EVERY != 0 {
            return Box::new(move || {
                lock.lock(Mode::Shared);
                measure::work_ns(HOLD_NS);
                lock.unlock(Mode::Shared);
                measure::work_ns(PAUSE_NS);
                1
            });
        }
        let mut random = random(site.plan.seed, worker);
        Box::new(move || {
            measure::work_ns(WRITER_PAUSE_NS / 2 + random.below(WRITER_PAUSE_NS));
            let wanted = measure::now_ns();
            waits.lock().expect("no worker failed").wanted(worker, wanted);
            lock.lock(Mode::Exclusive);
            measure::work_ns(HOLD_NS);
            lock.unlock(Mode::Exclusive);
            let mut waits = waits.lock().expect("no worker failed");
            waits.got(worker, measure::now_ns());
            waits.publish(&site);
            0
        })
    })
}

/// Who waits to have the latch alone, since when, and what waits came to.
#[derive(Default)]
struct Waits {
    waiting: Vec<(usize, u64)>,
    worst_ns: u64,
    count: u64,
    total_ns: u64,
}

impl Waits {
    fn wanted(&mut self, worker: usize, at: u64) {
        self.waiting.push((worker, at));
    }

    fn got(&mut self, worker: usize, at: u64) {
        if let Some(place) = self.waiting.iter().position(|(waiter, _)| *waiter == worker) {
            let (_, since) = self.waiting.swap_remove(place);
            self.count += 1;
            self.total_ns += at - since;
            self.worst_ns = self.worst_ns.max(at - since);
        }
    }

    fn publish(&self, site: &Site) {
        *site.extra.lock().expect("no worker failed") = vec![
            ("exclusive_holds".to_owned(), self.count as f64),
            ("exclusive_wait_us_mean".to_owned(), self.total_ns as f64 / self.count.max(1) as f64 / 1e3),
            ("exclusive_wait_us_worst".to_owned(), self.worst_ns as f64 / 1e3),
        ];
    }
}

/// Freund 2024: fields that are read all the time, on the line of a counter that changes all the time.
pub const ONE_LINE: Workload = Workload {
    name: "one-line",
    about: "read-mostly fields beside a counter (Freund 2024: TransamVariables); counts subtransactions",
    designs: &["homenode", "one-line", "parted"],
    sessions_per_core: 1,
    processes: true,
    smaller_caches: 1,
    for_ns: 2_000_000,
    warm_ns: 200_000,
    set_up: one_line,
};

/// A subtransaction's work, and how often it looks at the fields that seldom change: whether a transaction number is still running is
/// asked for every row version, limits for every new number.
const SUBTRANSACTION_NS: u64 = 2_000;
const LOOKS: usize = 8;

#[repr(align(128))]
#[derive(Default)]
struct Variables {
    next: AtomicU64,
    oldest: AtomicU64,
    limit: AtomicU64,
}

impl Variables {
    /// Names its fields for the line report, whose suggestion is what the document did.
    fn named() -> Arc<Variables> {
        let shared = Arc::new(Variables::default());
        let fields = homenode_platform::fields!(Variables { next, oldest, limit });
        homenode_platform::name_memory(Arc::as_ptr(&shared), 1, "Variables", fields);
        shared
    }
}

#[repr(align(128))]
#[derive(Default)]
struct Parted {
    next: CachePadded<AtomicU64>,
    oldest: CachePadded<AtomicU64>,
    limit: AtomicU64,
}

fn one_line(site: &Arc<Site>) -> MakeStep {
    let work = |next: &AtomicU64, oldest: &AtomicU64, limit: &AtomicU64| {
        for _ in 0..LOOKS {
            measure::work_ns(SUBTRANSACTION_NS / LOOKS as u64);
            oldest.load(Ordering::Relaxed);
            limit.load(Ordering::Relaxed);
        }
        next.fetch_add(1, Ordering::Relaxed);
        1
    };
    match site.plan.design.as_str() {
        "one-line" => {
            let shared = Variables::named();
            Arc::new(move |_| -> Step {
                let it = shared.clone();
                Box::new(move || work(&it.next, &it.oldest, &it.limit))
            })
        }
        "parted" => {
            let shared = Arc::new(Parted::default());
            Arc::new(move |_| -> Step {
                let it = shared.clone();
                Box::new(move || work(&it.next, &it.oldest, &it.limit))
            })
        }
        _ => {
            let lanes = site.hardware.cores();
            let shared = Arc::new(homenode_txn::Manager::new(lanes, site.plan.sessions, 1, 1));
            Arc::new(move |worker| -> Step {
                let (manager, lane) = (shared.clone(), worker % lanes);
                Box::new(move || {
                    for _ in 0..LOOKS {
                        measure::work_ns(SUBTRANSACTION_NS / LOOKS as u64);
                        manager.settled(homenode_txn::TxnId::new((lane + 1) % lanes, 1));
                    }
                    let txn = manager.start(lane, worker, 1).expect("the lane has room");
                    manager.abort(txn, worker);
                    1
                })
            })
        }
    }
}
