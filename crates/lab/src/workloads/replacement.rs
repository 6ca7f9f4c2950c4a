//! Pages that are not in memory and take others' buffers, beside look-ups of a page that everybody wants.
//!
//! Tikhonov et al. (Postgres Professional 2018): to evict a page, its part of the buffer mapping has to be had alone, and when the root of
//! some index lies in the same part, those who look that up share it without a gap.

use super::pages::Pages;
use super::{random, store};
use crate::designs::descriptor::OneLine;
use crate::designs::mapping::Buffers;
use crate::measure::{MakeStep, Site, Step, Workload};
use homenode_engine::Isolation;
use homenode_platform::lab::measure;
use homenode_types::Value;
use std::sync::{Arc, Mutex};

/// A statement's work that touches nothing shared, nanoseconds.
const WORK_NS: u64 = 10_000;
/// Memory for so many of the table's pages: of a hundred statements six have to read theirs from the device.
const IN_MEMORY: f64 = 0.94;
/// Rows of about a kilobyte, so that a table larger than the smallest pool is made quickly.
const ROWS: usize = 60_000;
const ROW_BYTES: usize = 1_000;
/// Rows on a page of PostgreSQL's, and of the engine's.
const OLD_PAGE_ROWS: usize = 7;
const PAGE_ROWS: usize = 15;
const PAGE_BYTES: usize = 16 << 10;

/// See the module's text.
pub const WORKLOAD: Workload = Workload {
    name: "replacement",
    about: "rows by key of a table larger than memory, with a hot root (Tikhonov 2018); counts statements",
    designs: &["homenode", "mapping-128", "mapping-512", "mapping-512-fair"],
    sessions_per_core: 4,
    processes: true,
    smaller_caches: 16,
    for_ns: 10_000_000,
    warm_ns: 1_000_000,
    set_up,
};

fn set_up(site: &Arc<Site>) -> MakeStep {
    match site.plan.design.as_str() {
        "mapping-128" => old(site, 128, false),
        "mapping-512" => old(site, 512, false),
        "mapping-512-fair" => old(site, 512, true),
        _ => homenode(site),
    }
}

fn homenode(site: &Arc<Site>) -> MakeStep {
    let bytes = (ROWS / PAGE_ROWS * PAGE_BYTES) as f64 * IN_MEMORY;
    let db = store::open_with(site, None, |options| options.pool_bytes = bytes as usize);
    let columns = vec![store::int("id"), store::text("c")];
    store::load(&db, "big", columns, ROWS as i32, None, |id| vec![Value::Int4(id), Value::Text("c".repeat(ROW_BYTES))]);
    let site = site.clone();
    Arc::new(move |worker| -> Step {
        let mut session = db.session_on(worker).expect("there are slots");
        let table = store::find(&mut session, "big");
        let mut random = random(site.plan.seed, worker);
        let (mut key, mut row) = (Vec::new(), Vec::new());
        Box::new(move || {
            measure::work_ns(WORK_NS);
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

/// Waits of those who need a buffer, until it is theirs.
#[derive(Default)]
struct Waits {
    count: u64,
    total_ns: u64,
    worst_ns: u64,
}

fn old(site: &Arc<Site>, parts: usize, fair: bool) -> MakeStep {
    let pages = ROWS.div_ceil(OLD_PAGE_ROWS);
    let count = (pages as f64 * IN_MEMORY) as usize;
    // The root's buffer is one more, and too often used to be taken.
    let buffers = Arc::new(Buffers::new(count + 1, parts, fair));
    let words = Arc::new(Pages::<OneLine>::new(count + 1, fair));
    let file = Arc::new(store::page_file((pages + 2) * OLD_PAGE_BYTES));
    let waits: Arc<Mutex<Waits>> = Arc::default();
    let site = site.clone();
    Arc::new(move |worker| -> Step {
        let (buffers, words, file, waits, site) =
            (buffers.clone(), words.clone(), file.clone(), waits.clone(), site.clone());
        let mut random = random(site.plan.seed, worker);
        Box::new(move || {
            measure::work_ns(WORK_NS);
            let row = random.below(ROWS as u64) as usize;
            let waited = |ns: u64| {
                let mut waits = waits.lock().expect("no worker failed");
                waits.count += 1;
                waits.total_ns += ns;
                waits.worst_ns = waits.worst_ns.max(ns);
                waits.publish(&site);
            };
            let read = |page: usize, body: &dyn Fn(usize)| {
                let load = || {
                    let mut bytes = [0; OLD_PAGE_BYTES];
                    file.read_task_at(&mut bytes, (page * OLD_PAGE_BYTES) as u64).expect("no fault is asked for");
                };
                buffers.read(page as u64, body, &load, &waited);
            };
            read(1, &|buffer| words.search(buffer, 366, row % 366));
            read(2 + row / OLD_PAGE_ROWS, &|buffer| words.row(buffer, row % OLD_PAGE_ROWS));
            1
        })
    })
}

/// Bytes of PostgreSQL's pages.
const OLD_PAGE_BYTES: usize = 8192;

impl Waits {
    fn publish(&self, site: &Site) {
        *site.extra.lock().expect("no worker failed") = vec![
            ("buffers_taken".to_owned(), self.count as f64),
            ("buffer_wait_us_mean".to_owned(), self.total_ns as f64 / self.count.max(1) as f64 / 1e3),
            ("buffer_wait_us_worst".to_owned(), self.worst_ns as f64 / 1e3),
        ];
    }
}
