//! A temporary database with small pools, and one that can be abandoned as a crash would leave it.

#![allow(dead_code, reason = "each test file uses some of it")]

use homenode_engine::{ColumnSpec, Database, Isolation, Options, Session, Table, TableSpec};
use homenode_types::{ColumnType, Result, Type, Value};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that goes away with the test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("homenode-engine-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Folder(path)
    }

    /// What a crash at this moment leaves on disk (the process's own writes are all there; what was only in memory is not).
    pub fn crash_copy(&self) -> Folder {
        let copy = Folder::new();
        copy_folder(&self.0, &copy.0);
        copy
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    // The order in which a crash cannot cheat: what points first, what is pointed to afterwards.
    for name in ["control", "pages"] {
        let _ = std::fs::copy(from.join(name), to.join(name));
    }
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        if !["control", "pages", "lock"].contains(&name.to_str().unwrap()) {
            let _ = std::fs::copy(entry.path(), to.join(name));
        }
    }
}

pub fn options() -> Options {
    Options {
        pool_bytes: 16 << 20,
        lanes: 2,
        sync: false,
        huge_pages: false,
        log_buffer_bytes: 4 << 20,
        log_segment_bytes: 4 << 20,
        ..Options::default()
    }
}

pub fn open(folder: &Folder) -> Database {
    Database::open_with(&folder.0, options()).unwrap()
}

pub fn int() -> ColumnType {
    ColumnType { ty: Type::Int4, typmod: -1 }
}

pub fn text() -> ColumnType {
    ColumnType { ty: Type::Text, typmod: -1 }
}

pub fn column(name: &str, ty: ColumnType) -> ColumnSpec {
    ColumnSpec { name: name.to_owned(), ty, not_null: false, default: None, identity: None, serial: false }
}

/// A table `name (id int primary key, k int, t text)`.
pub fn create(session: &mut Session, name: &str) -> Arc<Table> {
    run(session, |session| {
        session.create_table(TableSpec {
            schema: "public".to_owned(),
            name: name.to_owned(),
            columns: vec![column("id", int()), column("k", int()), column("t", text())],
            primary_key: Some((None, vec![0])),
            uniques: Vec::new(),
            checks: Vec::new(),
        })
    })
    .unwrap();
    session.table(None, name).unwrap()
}

/// Runs `work` in a READ COMMITTED transaction of its own.
pub fn run<T>(session: &mut Session, work: impl FnOnce(&mut Session) -> Result<T>) -> Result<T> {
    run_at(session, Isolation::ReadCommitted, work)
}

pub fn run_at<T>(
    session: &mut Session,
    isolation: Isolation,
    work: impl FnOnce(&mut Session) -> Result<T>,
) -> Result<T> {
    session.begin(isolation, false).unwrap();
    match work(session) {
        Ok(value) => session.commit().map(|()| value),
        Err(error) => {
            session.rollback().unwrap();
            Err(error)
        }
    }
}

pub fn row(id: i32, k: i32, t: &str) -> Vec<Value> {
    vec![Value::Int4(id), Value::Int4(k), Value::Text(t.to_owned())]
}

pub fn key(id: i32) -> Vec<u8> {
    let mut key = Vec::new();
    homenode_types::key::encode_i64(i64::from(id), &mut key);
    key
}

/// The row's `k` and `t`, as the session's snapshot sees them.
pub fn get(session: &mut Session, table: &Table, id: i32) -> Option<(i32, String)> {
    let mut bytes = Vec::new();
    session.get(table, &key(id), &mut bytes).unwrap().then(|| decode(table, &bytes)).map(|(_, k, t)| (k, t))
}

pub fn decode(table: &Table, bytes: &[u8]) -> (i32, i32, String) {
    let mut values = Vec::new();
    table.layout.decode(bytes, &mut values);
    match &values[..] {
        [Value::Int4(id), Value::Int4(k), Value::Text(t)] => (*id, *k, t.clone()),
        other => panic!("unexpected row {other:?}"),
    }
}

/// All rows in key order.
pub fn all(session: &mut Session, table: &Arc<Table>) -> Vec<(i32, i32, String)> {
    let mut rows = Vec::new();
    let mut scan = session.scan(table, &homenode_engine::KeyRange::all(), false).unwrap();
    while let Some((_, bytes)) = scan.next(session).unwrap() {
        rows.push(decode(table, bytes));
    }
    rows
}

pub fn set_k(session: &mut Session, table: &Table, id: i32, change: impl Fn(i32) -> i32) -> Result<bool> {
    session.update(table, &key(id), &mut |_, values| {
        let Value::Int4(k) = values[1] else { panic!("k is an int") };
        values[1] = Value::Int4(change(k));
        Ok(true)
    })
}

pub fn delete(session: &mut Session, table: &Table, id: i32) -> Result<bool> {
    session.delete(table, &key(id), &mut |_| Ok(true))
}
