//! How does a workload get a database? The engine opened on the simulated machine, with tables loaded and in memory.

use crate::machine;
use crate::measure::Site;
use homenode_engine::{ColumnSpec, Database, IndexSpec, Isolation, KeyRange, Options, Session, Table, TableSpec};
use homenode_platform::thread;
use homenode_types::{ColumnType, Type, Value, key};
use std::sync::Arc;

const FOLDER: &str = "/database";

/// Opens a database with a lane for each core.
pub fn open(site: &Site) -> Database {
    let options = Options {
        pool_bytes: 512 << 20,
        lanes: site.hardware.cores(),
        sessions_max: site.plan.sessions + 8,
        topology: Some(machine::topology(&site.hardware)),
        ..Options::default()
    };
    Database::open_with(FOLDER, options).expect("the simulated disk is empty and sound")
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

/// Makes a table whose first column is its primary key, `rows` rows in it, and perhaps an index on another column; all of it is
/// in memory afterwards.
pub fn load(
    db: &Database,
    name: &str,
    columns: Vec<ColumnSpec>,
    rows: i32,
    index: Option<usize>,
    row: impl Fn(i32) -> Vec<Value>,
) {
    let mut session = db.session().expect("there are slots");
    session.begin(Isolation::ReadCommitted, false).expect("no transaction is open");
    let spec = TableSpec {
        schema: "public".to_owned(),
        name: name.to_owned(),
        columns,
        primary_key: Some((None, vec![0])),
        uniques: Vec::new(),
    };
    let table = session.create_table(spec).expect("the name is free");
    let mut copy = session.copy_begin(&table).expect("the table is new");
    for id in 0..rows {
        copy.push(&mut session, &row(id)).expect("the key is new");
    }
    copy.finish(&mut session).expect("the disk has room");
    session.commit().expect("nobody else is there");
    if let Some(column) = index {
        session.begin(Isolation::ReadCommitted, false).expect("no transaction is open");
        let table = find(&mut session, name);
        let spec = IndexSpec { name: None, columns: vec![column], unique: false, constraint: false };
        session.create_index(&table, spec).expect("the table is there");
        session.commit().expect("nobody else is there");
    }
    warm(db, name, rows);
}

/// Reads everything twice (pages that were read once are the first to go), each core its share, so that frames and their pages are
/// spread as clients would spread them.
fn warm(db: &Database, name: &str, rows: i32) {
    let cores = db.lanes() as i32;
    let read = |core: i32| {
        let (db, name) = (db.clone(), name.to_owned());
        thread::spawn_on(core as usize, "warm", move || {
            let mut session = db.session_on(core as usize).expect("there are slots");
            let table = find(&mut session, &name);
            let (mut key, mut row) = (Vec::new(), Vec::new());
            session.begin(Isolation::ReadCommitted, true).expect("no transaction is open");
            let share = |core: i32| (i64::from(rows) * i64::from(core) / i64::from(cores)) as i32;
            for id in (share(core)..share(core + 1)).chain(share(core)..share(core + 1)) {
                key_of(id, &mut key);
                read_one(&mut session, &table, &key, &mut row);
            }
            session.commit().expect("it only read");
        })
    };
    (0..cores).map(read).collect::<Vec<_>>().into_iter().for_each(thread::JoinHandle::join);
    let mut session = db.session().expect("there are slots");
    let table = find(&mut session, name);
    session.begin(Isolation::ReadCommitted, true).expect("no transaction is open");
    for index in table.indexes.iter().chain(&table.indexes) {
        let mut scan = session.index_scan(&table, index, KeyRange::all(), false).expect("the index is there");
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
