//! redb with its default durability.

use crate::store::{Get, LOAD_BATCH, Put, Result, Store, value_of};
use redb::{Database, Durability, TableDefinition};
use std::path::Path;

const ROWS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("rows");

pub struct Redb(Database);

impl Redb {
    pub fn open(path: &Path, cache_bytes: usize) -> Result<Redb> {
        std::fs::create_dir_all(path)?;
        Ok(Redb(Database::builder().set_cache_size(cache_bytes).create(path.join("rows.redb"))?))
    }
}

impl Store for Redb {
    fn name(&self) -> String {
        "redb 2".into()
    }

    fn durability(&self) -> &'static str {
        "fsync at each commit (Durability::Immediate, its default); one writer at a time"
    }

    fn load(&self, rows: u64) -> Result<()> {
        for first in (0..rows).step_by(LOAD_BATCH as usize) {
            let transaction = self.0.begin_write()?;
            {
                let mut table = transaction.open_table(ROWS)?;
                for key in first..rows.min(first + LOAD_BATCH) {
                    table.insert(key, value_of(key, 0).as_slice())?;
                }
            }
            transaction.commit()?;
        }
        Ok(())
    }

    fn get(&self) -> Result<Get<'_>> {
        Ok(Box::new(|key, value| {
            let table = self.0.begin_read()?.open_table(ROWS)?;
            let Some(bytes) = table.get(key)? else { return Ok(false) };
            value.clear();
            value.extend_from_slice(bytes.value());
            Ok(true)
        }))
    }

    fn snapshot_get(&self) -> Result<Get<'_>> {
        let table = self.0.begin_read()?.open_table(ROWS)?;
        Ok(Box::new(move |key, value| {
            let Some(bytes) = table.get(key)? else { return Ok(false) };
            value.clear();
            value.extend_from_slice(bytes.value());
            Ok(true)
        }))
    }

    fn put(&self) -> Result<Put<'_>> {
        Ok(Box::new(|key, value| {
            let mut transaction = self.0.begin_write()?;
            transaction.set_durability(Durability::Immediate);
            transaction.open_table(ROWS)?.insert(key, value)?;
            Ok(transaction.commit()?)
        }))
    }
}
