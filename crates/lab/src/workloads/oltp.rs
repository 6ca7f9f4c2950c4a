//! Sysbench's statements: one row by key, a mix of reads, updates of an indexed and of another column.

use super::{random, store};
use crate::measure::{MakeStep, Site, Step, Workload};
use homenode_engine::Isolation;
use homenode_platform::lab::measure;
use homenode_types::Value;
use std::sync::Arc;

/// A statement's work that touches nothing shared: parsing, protocol, network, nanoseconds.
const STATEMENT_NS: u64 = 10_000;
const ROWS: i32 = 100_000;

/// `select c from sbtest where id = ?`.
pub const POINT_SELECT: Workload = Workload {
    name: "point-select",
    about: "one row by its key, uniform (sysbench oltp_point_select); counts statements",
    designs: &["homenode"],
    sessions_per_core: 1,
    processes: true,
    smaller_caches: 16,
    for_ns: 2_000_000,
    warm_ns: 500_000,
    set_up: point_select,
};

fn point_select(site: &Arc<Site>) -> MakeStep {
    let db = store::open(site);
    store::load(&db, "sbtest", vec![store::int("id"), store::int("k"), store::text("c")], ROWS, None, |id| {
        vec![Value::Int4(id), Value::Int4(id % 5000), Value::Text("c".repeat(120))]
    });
    let site = site.clone();
    Arc::new(move |worker| -> Step {
        let mut session = db.session_on(worker).expect("there are slots");
        let table = store::find(&mut session, "sbtest");
        let mut random = random(site.plan.seed, worker);
        let (mut key, mut row) = (Vec::new(), Vec::new());
        Box::new(move || {
            measure::work_ns(STATEMENT_NS);
            session.begin(Isolation::ReadCommitted, true).expect("no transaction is open");
            session.start_statement();
            store::key_of(random.below(ROWS as u64) as i32, &mut key);
            store::read_one(&mut session, &table, &key, &mut row);
            session.end_statement();
            session.commit().expect("it only read");
            1
        })
    })
}
