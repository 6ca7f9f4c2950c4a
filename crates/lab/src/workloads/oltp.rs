//! Sysbench's statements: one row by key, a mix of reads, updates of an indexed and of another column.

use super::pages::Pages;
use super::{random, store};
use crate::designs::descriptor::{Descriptor, OneLine, pin, unpin};
use crate::designs::lwlock::Mode;
use crate::designs::mutexes::{Log, RollbackSegment};
use crate::measure::{MakeStep, Site, Step, Workload};
use homenode_engine::{Database, Isolation, KeyRange, Session, Table};
use homenode_platform::lab::{Random, measure};
use homenode_types::Value;
use std::ops::Bound;
use std::sync::Arc;

/// A statement's work that touches nothing shared (parsing, protocol, network), nanoseconds; a transaction's more for an update.
const STATEMENT_NS: u64 = 10_000;
const ROWS: i32 = 100_000;

/// What the four have in common.
const READ: Workload = Workload {
    name: "point-select",
    about: "one row by its key, uniform (sysbench oltp_point_select); counts statements",
    designs: &["homenode"],
    sessions_per_core: 1,
    processes: true,
    smaller_caches: 16,
    for_ns: 2_000_000,
    warm_ns: 500_000,
    set_up: |site| reads(site, 1, 0),
};

const WRITE: Workload = Workload {
    name: "update-index",
    about: "one row's indexed column by key (sysbench oltp_update_index); --policy zipfian; counts transactions",
    designs: &["homenode", "one-mutex"],
    // About a thousand on 96 cores: enough that a core has work while commits wait for their flush.
    sessions_per_core: 10,
    processes: true,
    smaller_caches: 16,
    for_ns: 6_000_000,
    warm_ns: 3_000_000,
    set_up: |site| updates(site, true),
};

/// `select c from sbtest where id = ?`.
pub const POINT_SELECT: Workload = READ;

/// Ten point selects and four ranges of a hundred rows.
pub const READ_ONLY: Workload = Workload {
    name: "read-only",
    about: "ten rows by key and four ranges of 100 (sysbench oltp_read_only); counts transactions",
    for_ns: 6_000_000,
    warm_ns: 1_000_000,
    set_up: |site| reads(site, 10, 4),
    ..READ
};

/// `update sbtest set k = k + 1 where id = ?`.
pub const UPDATE_INDEX: Workload = WRITE;

/// `update sbtest set c = ? where id = ?`.
pub const UPDATE_NON_INDEX: Workload = Workload {
    name: "update-non-index",
    about: "one row's other column by key (sysbench oltp_update_non_index); --policy zipfian; counts transactions",
    set_up: |site| updates(site, false),
    ..WRITE
};

fn load(site: &Site) -> Database {
    let db = store::open(site);
    let columns = vec![store::int("id"), store::int("k"), store::text("c")];
    store::load(&db, "sbtest", columns, ROWS, Some(1), |id| {
        vec![Value::Int4(id), Value::Int4(id % 5000), Value::Text("c".repeat(120))]
    });
    db
}

fn reads(site: &Arc<Site>, points: usize, ranges: usize) -> MakeStep {
    let db = load(site);
    let site = site.clone();
    Arc::new(move |worker| -> Step {
        let mut session = db.session_on(worker).expect("there are slots");
        let table = store::find(&mut session, "sbtest");
        let mut random = random(site.plan.seed, worker);
        let (mut key, mut row) = (Vec::new(), Vec::new());
        Box::new(move || {
            session.begin(Isolation::ReadCommitted, true).expect("no transaction is open");
            for _ in 0..points {
                measure::work_ns(STATEMENT_NS);
                session.start_statement();
                store::key_of(random.below(ROWS as u64) as i32, &mut key);
                store::read_one(&mut session, &table, &key, &mut row);
                session.end_statement();
            }
            for _ in 0..ranges {
                measure::work_ns(STATEMENT_NS);
                session.start_statement();
                let first = random.below(ROWS as u64 - 100) as i32;
                let (mut lower, mut upper) = (Vec::new(), Vec::new());
                store::key_of(first, &mut lower);
                store::key_of(first + 100, &mut upper);
                let range = KeyRange { lower: Bound::Included(lower), upper: Bound::Excluded(upper) };
                let mut scan = session.scan(&table, &range, false).expect("the table is there");
                while scan.next(&mut session).expect("no fault is asked for").is_some() {
                    // A row's way to the client.
                    measure::work_ns(100);
                }
                session.end_statement();
            }
            session.commit().expect("it only read");
            1
        })
    })
}

/// Which row is next: uniform, or by Zipf's law with sysbench's exponent of 0.8.
struct Rows {
    random: Random,
    /// Cumulated weights; empty for uniform.
    zipf: Arc<Vec<f64>>,
}

impl Rows {
    fn weights(site: &Site) -> Arc<Vec<f64>> {
        let mut sum = 0.0;
        let weight = |rank: i32| {
            sum += f64::from(rank).powf(-0.8);
            sum
        };
        Arc::new(if site.plan.policy == "zipfian" { (1..=ROWS).map(weight).collect() } else { Vec::new() })
    }

    fn next(&mut self) -> i32 {
        let Some(total) = self.zipf.last() else { return self.random.below(ROWS as u64) as i32 };
        let at = (self.random.below(1 << 53) as f64 / (1u64 << 53) as f64) * total;
        let rank = self.zipf.partition_point(|weight| *weight < at);
        // Hot rows lie all over the table, as in sysbench.
        ((rank as u64 * 7919) % ROWS as u64) as i32
    }
}

/// Updates before anything is charged. A fresh index's leaves are full: all would be split within the same few milliseconds, which is
/// no state that a database is in for long.
const EARLIER_UPDATES: usize = 20_000;

/// Sets another value into the row's column.
fn update(session: &mut Session, table: &Table, key: &[u8], index: bool, random: &mut Random) {
    let text = format!("{:0>120}", random.below(1 << 40));
    session.begin(Isolation::ReadCommitted, false).expect("no transaction is open");
    session.start_statement();
    let found = session.update(table, key, &mut |_, values| {
        if index {
            let Value::Int4(k) = values[1] else { unreachable!("a number was stored") };
            values[1] = Value::Int4((k + 1) % 5000);
        } else {
            values[2] = Value::Text(text.clone());
        }
        Ok(true)
    });
    assert!(found.expect("READ COMMITTED doesn't conflict"), "the row is there");
    session.end_statement();
    session.commit().expect("READ COMMITTED doesn't conflict");
}

fn updates(site: &Arc<Site>, index: bool) -> MakeStep {
    if site.plan.design == "one-mutex" {
        return old_updates(site, index);
    }
    let db = load(site);
    let (earlier, seed) = (db.clone(), site.plan.seed);
    store::on_every_core(&db, move |core| {
        let mut session = earlier.session_on(core).expect("there are slots");
        let table = store::find(&mut session, "sbtest");
        let mut random = random(seed ^ 0xEA21, core);
        let mut key = Vec::new();
        for _ in 0..EARLIER_UPDATES / earlier.lanes() {
            store::key_of(random.below(ROWS as u64) as i32, &mut key);
            update(&mut session, &table, &key, index, &mut random);
        }
    });
    let zipf = Rows::weights(site);
    let site = site.clone();
    Arc::new(move |worker| -> Step {
        let mut session = db.session_on(worker).expect("there are slots");
        let table = store::find(&mut session, "sbtest");
        let mut rows = Rows { random: random(site.plan.seed, worker), zipf: zipf.clone() };
        let mut key = Vec::new();
        Box::new(move || {
            measure::work_ns(2 * STATEMENT_NS);
            store::key_of(rows.next(), &mut key);
            update(&mut session, &table, &key, index, &mut rows.random);
            1
        })
    })
}

/// Rows of a 16 KiB page of InnoDB's clustered index, as far as latches go.
const PAGE_ROWS: i32 = 80;

/// InnoDB's path as the document has it: rollback segment, page latches, mini-transactions into the log under its mutex, group commit.
fn old_updates(site: &Arc<Site>, index: bool) -> MakeStep {
    let data = Arc::new(Pages::<OneLine>::new((ROWS / PAGE_ROWS) as usize + 400, true));
    let (log, segment) = (Arc::new(Log::new(1 << 21)), Arc::new(RollbackSegment::default()));
    let file = Arc::new(store::log_file());
    let zipf = Rows::weights(site);
    let site = site.clone();
    Arc::new(move |worker| -> Step {
        let (data, log, segment, file) = (data.clone(), log.clone(), segment.clone(), file.clone());
        let mut rows = Rows { random: random(site.plan.seed, worker), zipf: zipf.clone() };
        Box::new(move || {
            measure::work_ns(2 * STATEMENT_NS);
            let row = rows.next();
            // The undo record: the transaction enters the rollback segment, and a mini-transaction logs it.
            segment.enter();
            log.append(160);
            let change = |page: usize, slot: usize| {
                let descriptor = data.descriptor(page);
                pin(descriptor);
                descriptor.lock().lock(Mode::Exclusive);
                data.search(page, PAGE_ROWS as usize, slot);
                data.write_row(page, slot);
                log.append(200);
                descriptor.lock().unlock(Mode::Exclusive);
                unpin(descriptor);
            };
            change((row / PAGE_ROWS) as usize, (row % PAGE_ROWS) as usize);
            if index {
                // The old entry is marked, the new one inserted.
                for _ in 0..2 {
                    change((ROWS / PAGE_ROWS) as usize + rows.random.below(400) as usize, row as usize % 60);
                }
            }
            segment.enter();
            let end = log.append(120);
            log.commit(end, &|bytes| store::write_and_sync(&file, bytes));
            1
        })
    })
}
