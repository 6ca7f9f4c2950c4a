//! The c2c talk's query: an aggregate over a nested loop of a thousand index-only look-ups, whose root everybody pins and locks.
//!
//! Freund (PGConf.dev 2024): 1,660 a second with one client on the laptop, so 600 ns a look-up; splitting the descriptor made 16
//! clients on the laptop 1.43 and 50 on the workstation 1.32 times as fast, and one client 0.98 times.

use super::pages::IndexedTable;
use super::{random, store};
use crate::designs::descriptor::{Descriptor, OneLine, Split};
use crate::measure::{MakeStep, Site, Step, Workload};
use homenode_engine::Isolation;
use homenode_platform::lab::measure;
use homenode_types::Value;
use std::sync::Arc;

/// A look-up's work in the executor, nanoseconds: 600 less the pages themselves.
const WORK_NS: u64 = 450;
/// Look-ups of a statement; fewer than the talk's 1,000, so that a run has many.
const LOOKUPS: usize = 100;
const ROWS: usize = 100_000;

/// See the module's text.
pub const WORKLOAD: Workload = Workload {
    name: "nested-loop",
    about: "index-only look-ups in a loop (Freund 2024, c2c); counts look-ups",
    designs: &["homenode", "descriptor-64", "descriptor-split"],
    sessions_per_core: 2,
    processes: true,
    smaller_caches: 1,
    for_ns: 4_000_000,
    warm_ns: 1_000_000,
    set_up,
};

fn set_up(site: &Arc<Site>) -> MakeStep {
    match site.plan.design.as_str() {
        "descriptor-64" => old::<OneLine>(site),
        "descriptor-split" => old::<Split>(site),
        _ => homenode(site),
    }
}

fn homenode(site: &Arc<Site>) -> MakeStep {
    let db = store::open(site);
    let columns = vec![store::int("aid"), store::int("bid")];
    store::load(&db, "accounts", columns, ROWS as i32, None, |id| vec![Value::Int4(id), Value::Int4(id % 10)]);
    let site = site.clone();
    Arc::new(move |worker| -> Step {
        let mut session = db.session_on(worker).expect("there are slots");
        let table = store::find(&mut session, "accounts");
        let mut random = random(site.plan.seed, worker);
        let (mut key, mut row) = (Vec::new(), Vec::new());
        Box::new(move || {
            session.begin(Isolation::ReadCommitted, true).expect("no transaction is open");
            session.start_statement();
            for _ in 0..LOOKUPS {
                measure::work_ns(WORK_NS);
                store::key_of(random.below(ROWS as u64) as i32, &mut key);
                assert!(session.get(&table, &key, &mut row).expect("no fault is asked for"), "the row is there");
            }
            session.end_statement();
            session.commit().expect("it only read");
            LOOKUPS as u64
        })
    })
}

fn old<D: Descriptor + 'static>(site: &Arc<Site>) -> MakeStep {
    let table = Arc::new(IndexedTable::<D>::new(ROWS));
    let site = site.clone();
    Arc::new(move |worker| -> Step {
        let table = table.clone();
        let mut random = random(site.plan.seed, worker);
        Box::new(move || {
            for _ in 0..LOOKUPS {
                measure::work_ns(WORK_NS);
                table.read(random.below(ROWS as u64) as usize, false, |_| false);
            }
            LOOKUPS as u64
        })
    })
}
