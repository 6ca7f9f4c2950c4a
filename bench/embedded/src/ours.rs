//! Homenode through its typed key access.

use crate::store::{Get, LOAD_BATCH, Put, Result, Store, value_of};
use homenode::{Database, Isolation, Options, Value};
use std::path::Path;

pub struct Homenode(Database);

impl Homenode {
    pub fn open(path: &Path, cache_bytes: usize) -> Result<Homenode> {
        let database = Database::open_with(path, Options { pool_bytes: cache_bytes, ..Options::default() })?;
        database.client()?.execute("create table rows (key bigint primary key, value text)", &[])?;
        Ok(Homenode(database))
    }

    fn reader(&self, isolation: Option<Isolation>) -> Result<Get<'_>> {
        let mut session = self.0.session()?;
        let table = session.table("rows")?;
        if let Some(isolation) = isolation {
            session.begin(isolation)?;
        }
        Ok(Box::new(move |key, value| {
            let found = session.get(&table, &[Value::Int8(key as i64)])?;
            let Some([_, Value::Text(text)]) = found.as_deref() else { return Ok(false) };
            value.clear();
            value.extend_from_slice(text.as_bytes());
            Ok(true)
        }))
    }
}

impl Store for Homenode {
    fn name(&self) -> String {
        "Homenode".into()
    }

    fn durability(&self) -> &'static str {
        "fdatasync of the log before a put returns, shared by the puts that wait"
    }

    fn load(&self, rows: u64) -> Result<()> {
        let mut session = self.0.session()?;
        let table = session.table("rows")?;
        for first in (0..rows).step_by(LOAD_BATCH as usize) {
            session.begin(Isolation::ReadCommitted)?;
            for key in first..rows.min(first + LOAD_BATCH) {
                let value = String::from_utf8(value_of(key, 0))?;
                session.insert(&table, &[Value::Int8(key as i64), value.as_str().into()])?;
            }
            session.commit()?;
        }
        Ok(())
    }

    fn get(&self) -> Result<Get<'_>> {
        self.reader(None)
    }

    fn snapshot_get(&self) -> Result<Get<'_>> {
        self.reader(Some(Isolation::RepeatableRead))
    }

    fn put(&self) -> Result<Put<'_>> {
        let mut session = self.0.session()?;
        let table = session.table("rows")?;
        Ok(Box::new(move |key, value| {
            Ok(session.put(&table, &[Value::Int8(key as i64), std::str::from_utf8(value)?.into()])?)
        }))
    }
}
