//! The hot root: a point join of a big table with a tiny one, whose one page every statement reads.
//!
//! Freund (PGConf.EU 2024, problem 4): pgbench_accounts joined with pgbench_branches by key, ten statements pipelined, so that
//! the statement itself is short and the three pages that everybody reads (both roots and the branch page) are hot.

use super::{random, store};
use crate::measure::{MakeStep, Site, Step, Workload};
use homenode_engine::Isolation;
use homenode_platform::lab::measure;
use homenode_types::Value;
use std::sync::Arc;

/// Everything of a statement that touches nothing shared, nanoseconds: 24 cores and 1.32 million statements a second make 18 us a
/// statement, of which pages, pins and locks are a few.
pub const WORK_NS: u64 = 15_000;
const ACCOUNTS: i32 = 100_000;
const BRANCHES: i32 = 10;

/// See the module's text.
pub const WORKLOAD: Workload = Workload {
    name: "hot-root",
    about: "point join with a one-page table (Freund 2024, problem 4); counts statements",
    designs: &["homenode"],
    sessions_per_core: 1,
    processes: true,
    smaller_caches: 1,
    for_ns: 2_000_000,
    warm_ns: 500_000,
    set_up,
};

fn set_up(site: &Arc<Site>) -> MakeStep {
    let db = store::open(site);
    store::load(
        &db,
        "accounts",
        vec![store::int("aid"), store::int("bid"), store::text("filler")],
        ACCOUNTS,
        None,
        |id| vec![Value::Int4(id), Value::Int4(id % BRANCHES), Value::Text("a".repeat(84))],
    );
    store::load(&db, "branches", vec![store::int("bid"), store::int("bbalance")], BRANCHES, None, |id| {
        vec![Value::Int4(id), Value::Int4(0)]
    });
    let site = site.clone();
    Arc::new(move |worker| -> Step {
        let mut session = db.session_on(worker).expect("there are slots");
        let (accounts, branches) = (store::find(&mut session, "accounts"), store::find(&mut session, "branches"));
        let mut random = random(site.plan.seed, worker);
        let (mut key, mut row) = (Vec::new(), Vec::new());
        Box::new(move || {
            measure::work_ns(WORK_NS);
            session.begin(Isolation::ReadCommitted, true).expect("no transaction is open");
            session.start_statement();
            let account = random.below(ACCOUNTS as u64) as i32;
            store::key_of(account, &mut key);
            store::read_one(&mut session, &accounts, &key, &mut row);
            store::key_of(account % BRANCHES, &mut key);
            store::read_one(&mut session, &branches, &key, &mut row);
            session.end_statement();
            session.commit().expect("it only read");
            1
        })
    })
}
