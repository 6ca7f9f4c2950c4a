//! The hot root: a point join of a big table with a tiny one, whose one page every statement reads.
//!
//! Freund (PGConf.EU 2024, problem 4): pgbench_accounts joined with pgbench_branches by key, ten statements pipelined, so that
//! the statement itself is short and the three pages that everybody reads (both roots and the branch page) are hot.

use super::pages::IndexedTable;
use super::{random, store};
use crate::designs::descriptor::{Descriptor, OneLine, Split};
use crate::measure::{MakeStep, Site, Step, Workload};
use homenode_engine::{Database, Isolation};
use homenode_platform::lab::measure;
use homenode_types::Value;
use std::sync::Arc;

/// Everything of a statement that touches nothing shared, nanoseconds: 24 cores and 1.32 million statements a second make 18 us a
/// statement, of which pages, pins and locks are a few.
const WORK_NS: u64 = 15_000;
const ACCOUNTS: usize = 100_000;
const BRANCHES: usize = 10;

/// See the module's text.
pub const WORKLOAD: Workload = Workload {
    name: "hot-root",
    about: "point join with a one-page table (Freund 2024, problem 4); counts statements",
    designs: &[
        "homenode",
        "homenode-separate",
        "descriptor-64",
        "descriptor-64-separate",
        "descriptor-split",
        "super-locked",
    ],
    sessions_per_core: 1,
    processes: true,
    smaller_caches: 1,
    for_ns: 2_000_000,
    warm_ns: 500_000,
    set_up,
};

fn set_up(site: &Arc<Site>) -> MakeStep {
    match site.plan.design.as_str() {
        "descriptor-64" => old::<OneLine>(site, 1, false),
        "descriptor-64-separate" => old::<OneLine>(site, site.plan.nodes, false),
        "descriptor-split" => old::<Split>(site, 1, false),
        "super-locked" => old::<OneLine>(site, 1, true),
        "homenode-separate" => homenode(site, site.plan.nodes),
        _ => homenode(site, 1),
    }
}

fn load(site: &Site, node: Option<usize>) -> Database {
    let db = store::open_on(site, node);
    let accounts = vec![store::int("aid"), store::int("bid"), store::text("filler")];
    store::load(&db, "accounts", accounts, ACCOUNTS as i32, None, |id| {
        vec![Value::Int4(id), Value::Int4(id % BRANCHES as i32), Value::Text("a".repeat(84))]
    });
    let branches = vec![store::int("bid"), store::int("bbalance")];
    store::load(&db, "branches", branches, BRANCHES as i32, None, |id| vec![Value::Int4(id), Value::Int4(0)]);
    db
}

/// The engine: one database for all nodes, or one on each.
fn homenode(site: &Arc<Site>, databases: usize) -> MakeStep {
    let databases: Vec<Database> = if databases == 1 {
        vec![load(site, None)]
    } else {
        (0..databases).map(|node| load(site, Some(node))).collect()
    };
    let site = site.clone();
    Arc::new(move |worker| -> Step {
        let core = worker % site.hardware.cores();
        let db = &databases[if databases.len() == 1 { 0 } else { core / site.plan.cores }];
        let mut session = db.session_on(core % db.lanes()).expect("there are slots");
        let (accounts, branches) = (store::find(&mut session, "accounts"), store::find(&mut session, "branches"));
        let mut random = random(site.plan.seed, worker);
        let (mut key, mut row) = (Vec::new(), Vec::new());
        Box::new(move || {
            measure::work_ns(WORK_NS);
            session.begin(Isolation::ReadCommitted, true).expect("no transaction is open");
            session.start_statement();
            let account = random.below(ACCOUNTS as u64) as usize;
            store::key_of(account as i32, &mut key);
            store::read_one(&mut session, &accounts, &key, &mut row);
            store::key_of((account % BRANCHES) as i32, &mut key);
            store::read_one(&mut session, &branches, &key, &mut row);
            session.end_statement();
            session.commit().expect("it only read");
            1
        })
    })
}

/// PostgreSQL's descriptors; `super_locked`: the hot pages are noted in the session's own memory.
fn old<D: Descriptor + 'static>(site: &Arc<Site>, databases: usize, super_locked: bool) -> MakeStep {
    let make = |_| Arc::new((IndexedTable::<D>::new(ACCOUNTS), IndexedTable::<D>::new(BRANCHES)));
    let databases: Vec<_> = (0..databases).map(make).collect();
    let site = site.clone();
    Arc::new(move |worker| -> Step {
        let core = worker % site.hardware.cores();
        let tables = databases[if databases.len() == 1 { 0 } else { core / site.plan.cores }].clone();
        let mut random = random(site.plan.seed, worker);
        Box::new(move || {
            measure::work_ns(WORK_NS);
            let account = random.below(ACCOUNTS as u64) as usize;
            tables.0.read(account, true, |page| super_locked && page == 0);
            tables.1.read(account % BRANCHES, true, |_| super_locked);
            1
        })
    })
}
