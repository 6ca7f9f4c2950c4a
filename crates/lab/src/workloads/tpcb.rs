//! TPC-B in pgbench's form: three updates, a select and an insert, with as many branches as sessions.

use super::pages::Pages;
use super::{random, store};
use crate::designs::descriptor::{Descriptor, Split, pin, unpin};
use crate::designs::lwlock::Mode;
use crate::designs::mutexes::Log;
use crate::designs::snapshot::Dense;
use crate::measure::{MakeStep, Site, Step, Workload};
use homenode_engine::{Isolation, Session, Table};
use homenode_platform::lab::measure;
use homenode_types::Value;
use std::sync::Arc;

const STATEMENT_NS: u64 = 10_000;
const ACCOUNTS: i32 = 100_000;
const TELLERS_PER_BRANCH: i32 = 10;

/// Rows of the history that each core has written before anything is charged: more than two leaves. Where lanes begin to append to a
/// new table they share its few leaves and split them one after the other: some milliseconds, in which no database is for long.
const EARLIER_ROWS: i32 = 400;

/// See the module's text.
pub const WORKLOAD: Workload = Workload {
    name: "tpcb",
    about: "pgbench's transaction, as many branches as sessions; counts transactions",
    designs: &["homenode", "dense-snapshot"],
    sessions_per_core: 4,
    processes: true,
    smaller_caches: 16,
    for_ns: 6_000_000,
    warm_ns: 3_000_000,
    set_up,
};

fn set_up(site: &Arc<Site>) -> MakeStep {
    if site.plan.design == "dense-snapshot" { old(site) } else { homenode(site) }
}

fn add(session: &mut Session, table: &Table, key: &[u8], delta: i32) {
    measure::work_ns(STATEMENT_NS);
    session.start_statement();
    let changed = session.update(table, key, &mut |_, values| {
        let Value::Int4(balance) = values[1] else { unreachable!("a number was stored") };
        values[1] = Value::Int4(balance.wrapping_add(delta));
        Ok(true)
    });
    assert!(changed.expect("READ COMMITTED doesn't conflict"), "the row is there");
    session.end_statement();
}

fn homenode(site: &Arc<Site>) -> MakeStep {
    let db = store::open(site);
    let branches = site.plan.sessions as i32;
    let tellers = branches * TELLERS_PER_BRANCH;
    for (name, rows) in [("accounts", ACCOUNTS), ("tellers", tellers), ("branches", branches)] {
        let columns = vec![store::int("id"), store::int("balance"), store::text("filler")];
        store::load(&db, name, columns, rows, None, |id| {
            vec![Value::Int4(id), Value::Int4(0), Value::Text("f".repeat(80))]
        });
    }
    store::make(&db, "history", vec![store::int("tid"), store::int("bid"), store::int("aid"), store::int("delta")]);
    let earlier = db.clone();
    store::on_every_core(&db, move |core| {
        let mut session = earlier.session_on(core).expect("there are slots");
        let history = store::find(&mut session, "history");
        session.begin(Isolation::ReadCommitted, false).expect("no transaction is open");
        for row in 0..EARLIER_ROWS {
            session.insert(&history, &[row; 4].map(Value::Int4)).expect("the table has no key");
        }
        session.commit().expect("READ COMMITTED doesn't conflict");
    });
    let site = site.clone();
    Arc::new(move |worker| -> Step {
        let mut session = db.session_on(worker).expect("there are slots");
        let mut table = |name| store::find(&mut session, name);
        let (accounts, tellers_table) = (table("accounts"), table("tellers"));
        let (branches_table, history) = (table("branches"), table("history"));
        let mut random = random(site.plan.seed, worker);
        let (mut key, mut row) = (Vec::new(), Vec::new());
        Box::new(move || {
            let (account, delta) = (random.below(ACCOUNTS as u64) as i32, random.below(10_000) as i32 - 5000);
            let (teller, branch) = (random.below(tellers as u64) as i32, random.below(branches as u64) as i32);
            session.begin(Isolation::ReadCommitted, false).expect("no transaction is open");
            store::key_of(account, &mut key);
            add(&mut session, &accounts, &key, delta);
            measure::work_ns(STATEMENT_NS);
            store::read_one(&mut session, &accounts, &key, &mut row);
            store::key_of(teller, &mut key);
            add(&mut session, &tellers_table, &key, delta);
            store::key_of(branch, &mut key);
            add(&mut session, &branches_table, &key, delta);
            measure::work_ns(STATEMENT_NS);
            session.start_statement();
            let values = [teller, branch, account, delta].map(Value::Int4);
            session.insert(&history, &values).expect("the table has no key");
            session.end_statement();
            session.commit().expect("READ COMMITTED doesn't conflict");
            1
        })
    })
}

/// PostgreSQL before version 14: a dense array of running transactions, copied by every statement.
fn old(site: &Arc<Site>) -> MakeStep {
    let rows_a_page = 61;
    let data = Arc::new(Pages::<Split>::new(ACCOUNTS as usize / rows_a_page + 1, false));
    let sessions = site.plan.sessions;
    let others = Arc::new(Pages::<Split>::new(sessions * 11 / rows_a_page + 2, false));
    let (snapshots, log) = (Arc::new(Dense::new(sessions)), Arc::new(Log::new(1 << 21)));
    let file = Arc::new(store::log_file());
    let site = site.clone();
    Arc::new(move |worker| -> Step {
        let (data, others, snapshots) = (data.clone(), others.clone(), snapshots.clone());
        let (log, file) = (log.clone(), file.clone());
        let mut random = random(site.plan.seed, worker);
        Box::new(move || {
            let change = |pages: &Pages<Split>, row: usize| {
                measure::work_ns(STATEMENT_NS);
                snapshots.snapshot();
                let (page, slot) = (row / rows_a_page, row % rows_a_page);
                let descriptor = pages.descriptor(page);
                pin(descriptor);
                descriptor.lock().lock(Mode::Exclusive);
                pages.write_row(page, slot);
                log.append(160);
                descriptor.lock().unlock(Mode::Exclusive);
                unpin(descriptor);
            };
            snapshots.begin(worker);
            change(&data, random.below(ACCOUNTS as u64) as usize);
            measure::work_ns(STATEMENT_NS);
            snapshots.snapshot();
            change(&others, random.below(sessions as u64 * 10) as usize);
            change(&others, sessions * 10 + random.below(sessions as u64) as usize);
            measure::work_ns(STATEMENT_NS);
            snapshots.snapshot();
            log.append(100);
            let end = log.append(60);
            log.commit(end, &|bytes| store::write_and_sync(&file, bytes));
            snapshots.end(worker);
            1
        })
    })
}
