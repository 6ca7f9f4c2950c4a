//! LMDB, as its manual opens it: every commit syncs.

use crate::store::{Get, LOAD_BATCH, Put, Result, Store, value_of};
use heed::types::Bytes;
use heed::{Database, Env, EnvOpenOptions};
use std::path::Path;

pub struct Lmdb {
    env: Env,
    rows: Database<Bytes, Bytes>,
}

impl Lmdb {
    pub fn open(path: &Path) -> Result<Lmdb> {
        std::fs::create_dir_all(path)?;
        // SAFETY: the folder is this run's own; nobody else maps or changes the file.
        let env = unsafe { EnvOpenOptions::new().map_size(16 << 30).max_readers(64).open(path)? };
        let mut transaction = env.write_txn()?;
        let rows = env.create_database(&mut transaction, None)?;
        transaction.commit()?;
        Ok(Lmdb { env, rows })
    }
}

impl Store for Lmdb {
    fn name(&self) -> String {
        let version = heed::lmdb_version();
        format!("LMDB {}.{}.{}", version.major, version.minor, version.patch)
    }

    fn durability(&self) -> &'static str {
        "fdatasync of data and meta page at each commit (its default); one writer at a time"
    }

    fn load(&self, rows: u64) -> Result<()> {
        for first in (0..rows).step_by(LOAD_BATCH as usize) {
            let mut transaction = self.env.write_txn()?;
            for key in first..rows.min(first + LOAD_BATCH) {
                self.rows.put(&mut transaction, &key.to_be_bytes(), &value_of(key, 0))?;
            }
            transaction.commit()?;
        }
        Ok(())
    }

    fn get(&self) -> Result<Get<'_>> {
        Ok(Box::new(|key, value| {
            let transaction = self.env.read_txn()?;
            let Some(bytes) = self.rows.get(&transaction, &key.to_be_bytes())? else { return Ok(false) };
            value.clear();
            value.extend_from_slice(bytes);
            Ok(true)
        }))
    }

    fn snapshot_get(&self) -> Result<Get<'_>> {
        let transaction = self.env.read_txn()?;
        Ok(Box::new(move |key, value| {
            let Some(bytes) = self.rows.get(&transaction, &key.to_be_bytes())? else { return Ok(false) };
            value.clear();
            value.extend_from_slice(bytes);
            Ok(true)
        }))
    }

    fn put(&self) -> Result<Put<'_>> {
        Ok(Box::new(|key, value| {
            let mut transaction = self.env.write_txn()?;
            self.rows.put(&mut transaction, &key.to_be_bytes(), value)?;
            Ok(transaction.commit()?)
        }))
    }
}
