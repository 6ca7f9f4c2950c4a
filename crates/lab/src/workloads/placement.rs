//! Where do bytes lie, and what does it cost to walk over them? Scans, and memory filled under each policy.

use super::{random, store};
use crate::designs::mapping::ClockHand;
use crate::measure::{MakeStep, Site, Step, Workload};
use homenode_engine::{Isolation, KeyRange};
use homenode_memory::Policy;
use homenode_platform::atomic::{AtomicU64, Ordering};
use homenode_platform::lab::measure;
use homenode_platform::lab::sim::Home;
use homenode_types::Value;
use std::sync::Arc;

/// Rows of each session's table, and what the executor does with each, nanoseconds.
const ROWS: i32 = 4_000;
const ROW_NS: u64 = 25;

/// Freund 2024, problem 2: as many concurrent sequential scans of separate tables as cores.
pub const SCANS: Workload = Workload {
    name: "scans",
    about: "each session scans a table of its own; counts scans",
    // Where the pool's memory lies: on the node that prewarmed it, page by page on all, or each core's on its own.
    designs: &["homenode", "first-touch", "interleaved"],
    sessions_per_core: 1,
    processes: true,
    smaller_caches: 32,
    for_ns: 3_000_000,
    warm_ns: 1_000_000,
    set_up: scans,
};

fn scans(site: &Arc<Site>) -> MakeStep {
    let policy = match site.plan.design.as_str() {
        "first-touch" => Policy::Preferred(0),
        "interleaved" => Policy::Interleave,
        _ => Policy::Local,
    };
    let db = store::open_with(site, None, |options| options.pool_policy = policy);
    for core in 0..site.hardware.cores() {
        let columns = vec![store::int("id"), store::int("k"), store::text("c")];
        store::make(&db, &format!("t{core}"), columns);
    }
    let filled = db.clone();
    store::on_each_core(&db, move |core| {
        store::fill(&filled, core, &format!("t{core}"), ROWS, |id| {
            vec![Value::Int4(id), Value::Int4(id), Value::Text("c".repeat(90))]
        });
    });
    let site = site.clone();
    Arc::new(move |worker| -> Step {
        let cores = site.hardware.cores();
        let mut session = db.session_on(worker).expect("there are slots");
        let table = store::find(&mut session, &format!("t{}", worker % cores));
        Box::new(move || {
            session.begin(Isolation::ReadCommitted, true).expect("no transaction is open");
            session.start_statement();
            let mut scan = session.scan(&table, &KeyRange::all(), false).expect("the table is there");
            while scan.next(&mut session).expect("no fault is asked for").is_some() {
                measure::work_ns(ROW_NS);
            }
            session.end_statement();
            session.commit().expect("it only read");
            1
        })
    })
}

/// Bytes that a session walks over.
const BLOCK_BYTES: usize = 2 << 20;

/// Page-aligned words whose place is chosen.
struct Block(Vec<AtomicU64>);

impl Block {
    fn new(bytes: usize, home: Home) -> Block {
        // Larger than the allocator's small blocks: begins at a page.
        let block = Block((0..bytes / 8).map(|_| AtomicU64::new(0)).collect());
        measure::place(block.0.as_ptr().addr(), bytes, home);
        block
    }

    /// Reads the first word of every line from `start` on.
    fn walk(&self, start: usize, bytes: usize) {
        for word in (start / 8..(start + bytes) / 8).step_by(8) {
            self.0[word].load(Ordering::Relaxed);
        }
    }
}

/// Cates (SAS): `numademo memset` under five policies.
pub const MEMSET: Workload = Workload {
    name: "memset",
    about: "one thread fills memory under --design's policy (Cates: numademo); counts lines",
    designs: &["local", "no-policy", "interleaved", "node-0", "node-1"],
    sessions_per_core: 1,
    processes: true,
    smaller_caches: 32,
    for_ns: 3_000_000,
    warm_ns: 500_000,
    set_up: memset,
};

fn memset(site: &Arc<Site>) -> MakeStep {
    let nodes = site.plan.nodes as u8;
    // The document's thread ran on node 1: filling node 1 is as fast as local, node 0 half.
    let own = nodes - 1;
    let site = site.clone();
    Arc::new(move |worker| -> Step {
        let mine = site.hardware.cores() - 1;
        if worker != mine {
            return Box::new(|| {
                homenode_platform::thread::sleep_ns(1_000_000);
                0
            });
        }
        let home = match site.plan.design.as_str() {
            "interleaved" => Home::Interleave((0..nodes).collect()),
            "node-0" => Home::Node(0),
            "node-1" => Home::Node(own),
            _ => Home::FirstTouch,
        };
        let block = Block::new(BLOCK_BYTES, home);
        let mut at = 0;
        Box::new(move || {
            let lines = 512;
            for line in at..at + lines {
                block.0[line * 8 % block.0.len()].store(1, Ordering::Relaxed);
            }
            at += lines;
            lines as u64
        })
    })
}

/// Freund 2024, problem 3: buffers of a table in order ("prewarmed") or where a shared clock hand left them ("naturally filled").
pub const VICTIMS: Workload = Workload {
    name: "victim-order",
    about: "scans over buffers in the order that replacement left (Freund 2024, problem 3); counts pages",
    designs: &["homenode", "one-clock", "prewarmed"],
    sessions_per_core: 1,
    processes: true,
    smaller_caches: 32,
    for_ns: 4_000_000,
    // The buffers are filled in this time, and sessions no longer go through theirs side by side.
    warm_ns: 20_000_000,
    set_up: victims,
};

/// A scan's work on a page of 8 KiB: 61 rows.
const PAGE_NS: u64 = 61 * 90;
const PAGE_BYTES: usize = 8192;
/// What fetching one from the system's page cache takes: a call and a copy of 8 KiB.
const FETCH_NS: u64 = 3_000;
/// Pages of a session's table.
const PAGES: usize = 128;

fn victims(site: &Arc<Site>) -> MakeStep {
    let sessions = site.plan.sessions;
    let nodes = (0..site.plan.nodes as u8).collect();
    let pool = Arc::new(Block::new(sessions * PAGES * PAGE_BYTES, Home::Interleave(nodes)));
    let hand = Arc::new(ClockHand::new(sessions * PAGES));
    let one_clock = site.plan.design == "one-clock";
    Arc::new(move |worker| -> Step {
        let (pool, hand) = (pool.clone(), hand.clone());
        // A file read in order, or a partition for each core: runs of buffers that follow each other.
        let in_order = (worker * PAGES..(worker + 1) * PAGES).collect();
        // With one hand, sessions that fill their tables at the same time get the victims in turn, as it happens.
        let mut buffers: Vec<usize> = if one_clock { Vec::new() } else { in_order };
        let mut at = 0;
        Box::new(move || {
            if buffers.len() < PAGES {
                buffers.push(hand.victim());
                measure::work_ns(FETCH_NS);
                return 0;
            }
            pool.walk(buffers[at % PAGES] * PAGE_BYTES, PAGE_BYTES);
            measure::work_ns(PAGE_NS);
            at += 1;
            1
        })
    })
}

/// Freund 2024, problem 2, second table: a parallel scan with the pool interleaved, and the sessions' own memory interleaved too
/// or local.
pub const SORTED_SCANS: Workload = Workload {
    name: "local-private",
    about: "a scan over interleaved pages with work memory (Freund 2024, problem 2); counts pages",
    designs: &["homenode", "all-interleaved", "private-local"],
    sessions_per_core: 1,
    processes: true,
    smaller_caches: 32,
    for_ns: 2_000_000,
    warm_ns: 500_000,
    set_up: private_memory,
};

/// Work memory of a session, and how many of its lines a page's rows touch (a hash table's buckets).
const PRIVATE_BYTES: usize = 256 << 10;
const PRIVATE_LINES: usize = 12;

fn private_memory(site: &Arc<Site>) -> MakeStep {
    let sessions = site.plan.sessions;
    let nodes: Vec<u8> = (0..site.plan.nodes as u8).collect();
    let is_homenode = site.plan.design == "homenode";
    let home = if is_homenode { Home::FirstTouch } else { Home::Interleave(nodes.clone()) };
    let pool = Arc::new(Block::new(sessions * PAGES * PAGE_BYTES, home));
    let site = site.clone();
    Arc::new(move |worker| -> Step {
        let pool = pool.clone();
        let interleaved = site.plan.design == "all-interleaved";
        let home = if interleaved { Home::Interleave(nodes.clone()) } else { Home::FirstTouch };
        let own = Block::new(PRIVATE_BYTES, home);
        let mut random = random(site.plan.seed, worker);
        let mut at = 0;
        Box::new(move || {
            pool.walk((worker * PAGES + at % PAGES) * PAGE_BYTES, PAGE_BYTES);
            for _ in 0..PRIVATE_LINES {
                let word = random.below(own.0.len() as u64) as usize;
                own.0[word].store(own.0[word].load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            }
            measure::work_ns(PAGE_NS);
            at += 1;
            1
        })
    })
}
