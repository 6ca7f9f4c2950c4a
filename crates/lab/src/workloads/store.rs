//! How does a workload get a database? The engine opened on the simulated machine, with tables loaded and in memory.

use crate::machine;
use crate::measure::Site;
use homenode_engine::{ColumnSpec, Database, IndexSpec, Isolation, KeyRange, Options, Session, Table, TableSpec};
use homenode_platform::fs::{File, OpenOptions};
use homenode_platform::thread;
use homenode_types::{ColumnType, Type, Value, key};
use std::path::Path;
use std::sync::Arc;

/// Opens a database with a lane for each core.
pub fn open(site: &Site) -> Database {
    open_on(site, None)
}

/// Opens a database for the whole machine, or one of several for a node each.
pub fn open_on(site: &Site, node: Option<usize>) -> Database {
    open_with(site, node, |_| {})
}

/// As [`open_on`], with a change of the options.
pub fn open_with(site: &Site, node: Option<usize>, change: impl FnOnce(&mut Options)) -> Database {
    let own;
    let hardware = match node {
        None => &*site.hardware,
        Some(_) => {
            own = site.hardware.restricted(1, site.plan.cores);
            &own
        }
    };
    let mut options = Options {
        pool_bytes: 512 << 20,
        lanes: hardware.cores(),
        sessions_max: site.plan.sessions + hardware.cores() + 8,
        topology: Some(machine::topology(hardware)),
        ..Options::default()
    };
    change(&mut options);
    let folder = format!("/database-{}", node.unwrap_or(0));
    let db = Database::open_with(folder, options).expect("the simulated disk is empty and sound");
    if node.is_none() {
        let watched = db.clone();
        *site.watch.lock().expect("nobody failed") = Some(Box::new(move || log_counters(&watched)));
    }
    db
}

/// What the log counts, for the run's figures.
fn log_counters(db: &Database) -> Vec<(String, f64)> {
    let log = db.log_stats();
    let counters = [
        ("log_records", log.records),
        ("log_bytes", log.bytes),
        ("log_flushes", log.flushes),
        ("log_commits_released", log.released),
        ("log_flush_us", log.flush_ns_total / 1000),
        ("log_sync_us", log.sync_ns_total / 1000),
        ("log_ring_waits", log.ring_waits),
    ];
    counters.map(|(name, value)| (name.to_owned(), value as f64)).to_vec()
}

/// A file for the log of a design that isn't the engine's.
pub fn log_file() -> File {
    let options = OpenOptions::new().read(true).write(true).create(true);
    File::open(Path::new("/log"), &options).expect("the simulated disk is empty and sound")
}

/// A file of pages for a design that isn't the engine's.
pub fn page_file(bytes: usize) -> File {
    let options = OpenOptions::new().read(true).write(true).create(true);
    let file = File::open(Path::new("/pages"), &options).expect("the simulated disk is empty and sound");
    file.set_len(bytes as u64).expect("the simulated disk has room");
    file
}

/// Writes `bytes` of log and makes them durable.
pub fn write_and_sync(file: &File, bytes: u64) {
    // Over and over the same megabyte: the bytes don't matter.
    let buffer = vec![0; bytes.clamp(512, 1 << 20) as usize];
    file.write_all_at(&buffer, 0).expect("no fault is asked for");
    file.sync_data().expect("no fault is asked for");
}

/// An integer column.
pub fn int(name: &str) -> ColumnSpec {
    column(name, Type::Int4)
}

/// A text column.
pub fn text(name: &str) -> ColumnSpec {
    column(name, Type::Text)
}

fn column(name: &str, ty: Type) -> ColumnSpec {
    ColumnSpec {
        name: name.to_owned(),
        ty: ColumnType { ty, typmod: -1 },
        not_null: false,
        default: None,
        identity: None,
        serial: false,
    }
}

/// Makes a table; with a column named `id`, `aid` or `bid` first, that is its primary key.
pub fn make(db: &Database, name: &str, columns: Vec<ColumnSpec>) {
    let has_key = ["id", "aid", "bid"].contains(&columns[0].name.as_str());
    let mut session = db.session().expect("there are slots");
    session.begin(Isolation::ReadCommitted, false).expect("no transaction is open");
    let primary_key = has_key.then(|| (None, vec![0]));
    let (schema, name) = ("public".to_owned(), name.to_owned());
    let spec = TableSpec { schema, name, columns, primary_key, uniques: Vec::new(), checks: Vec::new() };
    session.create_table(spec).expect("the name is free");
    session.commit().expect("nobody else is there");
}

/// Fills a table in key order, from `lane`.
pub fn fill(db: &Database, lane: usize, name: &str, rows: i32, row: impl Fn(i32) -> Vec<Value>) {
    let mut session = db.session_on(lane).expect("there are slots");
    let table = find(&mut session, name);
    session.begin(Isolation::ReadCommitted, false).expect("no transaction is open");
    let mut copy = session.copy_begin(&table).expect("the table is new");
    for id in 0..rows {
        copy.push(&mut session, &row(id)).expect("the key is new");
    }
    copy.finish(&mut session).expect("the disk has room");
    session.commit().expect("nobody else is there");
}

/// Makes a table, fills it, and perhaps makes an index on another column; all of it is in memory afterwards.
pub fn load(
    db: &Database,
    name: &str,
    columns: Vec<ColumnSpec>,
    rows: i32,
    index: Option<usize>,
    row: impl Fn(i32) -> Vec<Value>,
) {
    make(db, name, columns);
    fill(db, 0, name, rows, row);
    if let Some(column) = index {
        let mut session = db.session().expect("there are slots");
        session.begin(Isolation::ReadCommitted, false).expect("no transaction is open");
        let table = find(&mut session, name);
        let spec = IndexSpec { name: None, columns: vec![column], unique: false, constraint: false };
        session.create_index(&table, spec).expect("the table is there");
        session.commit().expect("nobody else is there");
    }
    warm(db, name, rows);
}

/// Runs `f` once on every core that the database has a lane for, all at the same time, and waits.
pub fn on_every_core(db: &Database, f: impl Fn(usize) + Send + Sync + 'static) {
    let f = Arc::new(f);
    let start = |core: usize| {
        let f = f.clone();
        thread::spawn_on(core, "prepare", move || f(core))
    };
    (0..db.lanes()).map(start).collect::<Vec<_>>().into_iter().for_each(thread::JoinHandle::join);
}

/// Runs `f` once on every core that the database has a lane for, one after the other.
pub fn on_each_core(db: &Database, f: impl Fn(usize) + Send + Sync + 'static) {
    let f = Arc::new(f);
    for core in 0..db.lanes() {
        let f = f.clone();
        thread::spawn_on(core, "prepare", move || f(core)).join();
    }
}

/// Reads everything twice (pages that were read once are the first to go), each core its share, so that frames and their pages are
/// spread as clients would spread them.
fn warm(db: &Database, name: &str, rows: i32) {
    let cores = db.lanes() as i64;
    let (for_reading, table_name) = (db.clone(), name.to_owned());
    on_every_core(db, move |core| {
        let mut session = for_reading.session_on(core).expect("there are slots");
        let table = find(&mut session, &table_name);
        let (mut key, mut row) = (Vec::new(), Vec::new());
        session.begin(Isolation::ReadCommitted, true).expect("no transaction is open");
        let share = |core: usize| (i64::from(rows) * core as i64 / cores) as i32;
        for id in (share(core)..share(core + 1)).chain(share(core)..share(core + 1)) {
            key_of(id, &mut key);
            read_one(&mut session, &table, &key, &mut row);
        }
        session.commit().expect("it only read");
    });
    let mut session = db.session().expect("there are slots");
    let table = find(&mut session, name);
    session.begin(Isolation::ReadCommitted, true).expect("no transaction is open");
    for index in table.indexes.iter().chain(&table.indexes) {
        let mut scan = session.index_scan(&table, index, &KeyRange::all(), false).expect("the index is there");
        while scan.next(&mut session).expect("no fault is asked for").is_some() {}
    }
    session.commit().expect("it only read");
}

/// The table `name`.
pub fn find(session: &mut Session, name: &str) -> Arc<Table> {
    session.table(None, name).expect("it was created")
}

/// The key of a row, into `out`.
pub fn key_of(id: i32, out: &mut Vec<u8>) {
    out.clear();
    key::encode_i64(i64::from(id), out);
}

/// One statement that reads one row by its key; what every session does in READ COMMITTED outside of a block.
pub fn read_one(session: &mut Session, table: &Table, key: &[u8], out: &mut Vec<u8>) {
    let found = session.get_single(table, key, out).expect("no fault is asked for");
    assert!(found, "the row is there");
}
