//! RocksDB through its C interface (rocksdb/c.h), as Debian builds it: the Rust bindings would compile all of it.

use crate::store::{Get, LOAD_BATCH, Put, Result, Store, value_of};
use std::ffi::{CStr, CString, c_char, c_uchar, c_void};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{NonNull, null_mut};

/// Any of the library's objects; only pointers to them are seen here.
type Object = c_void;

// SAFETY: declared as in rocksdb/c.h of RocksDB 7.8, every handle as an opaque pointer.
unsafe extern "C" {
    fn rocksdb_options_create() -> *mut Object;
    fn rocksdb_options_set_create_if_missing(options: *mut Object, on: c_uchar);
    fn rocksdb_options_set_block_based_table_factory(options: *mut Object, table: *mut Object);
    fn rocksdb_block_based_options_create() -> *mut Object;
    fn rocksdb_block_based_options_set_block_cache(table: *mut Object, cache: *mut Object);
    fn rocksdb_block_based_options_set_filter_policy(table: *mut Object, policy: *mut Object);
    fn rocksdb_filterpolicy_create_bloom(bits_per_key: f64) -> *mut Object;
    fn rocksdb_cache_create_lru(bytes: usize) -> *mut Object;
    fn rocksdb_open(options: *const Object, name: *const c_char, error: *mut *mut c_char) -> *mut Object;
    fn rocksdb_close(db: *mut Object);
    fn rocksdb_readoptions_create() -> *mut Object;
    fn rocksdb_readoptions_destroy(options: *mut Object);
    fn rocksdb_readoptions_set_snapshot(options: *mut Object, snapshot: *const Object);
    fn rocksdb_create_snapshot(db: *mut Object) -> *const Object;
    fn rocksdb_release_snapshot(db: *mut Object, snapshot: *const Object);
    fn rocksdb_writeoptions_create() -> *mut Object;
    fn rocksdb_writeoptions_destroy(options: *mut Object);
    fn rocksdb_writeoptions_set_sync(options: *mut Object, on: c_uchar);
    fn rocksdb_put(
        db: *mut Object,
        options: *const Object,
        key: *const c_char,
        key_bytes: usize,
        value: *const c_char,
        value_bytes: usize,
        error: *mut *mut c_char,
    );
    fn rocksdb_get_pinned(
        db: *mut Object,
        options: *const Object,
        key: *const c_char,
        key_bytes: usize,
        error: *mut *mut c_char,
    ) -> *mut Object;
    fn rocksdb_pinnableslice_value(slice: *const Object, bytes: *mut usize) -> *const c_char;
    fn rocksdb_pinnableslice_destroy(slice: *mut Object);
    fn rocksdb_writebatch_create() -> *mut Object;
    fn rocksdb_writebatch_destroy(batch: *mut Object);
    fn rocksdb_writebatch_put(
        batch: *mut Object,
        key: *const c_char,
        key_bytes: usize,
        value: *const c_char,
        value_bytes: usize,
    );
    fn rocksdb_write(db: *mut Object, options: *const Object, batch: *mut Object, error: *mut *mut c_char);
    fn rocksdb_free(pointer: *mut c_void);
}

/// Turns the library's error text into ours.
fn check(error: *mut c_char) -> Result<()> {
    let Some(text) = NonNull::new(error) else { return Ok(()) };
    // SAFETY: the library hands out a zero-terminated text that the caller frees.
    let said = unsafe {
        let said = CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned();
        rocksdb_free(text.as_ptr().cast());
        said
    };
    Err(said.into())
}

pub struct RocksDb {
    db: NonNull<Object>,
}

// SAFETY: rocksdb/c.h: the database may be used by many threads without further locks.
unsafe impl Sync for RocksDb {}

impl RocksDb {
    pub fn open(path: &Path, cache_bytes: usize) -> Result<RocksDb> {
        let name = CString::new(path.as_os_str().as_bytes())?;
        let mut error = null_mut();
        // SAFETY: every object is created here and lives until the program ends; the name outlives the call.
        let db = unsafe {
            let table = rocksdb_block_based_options_create();
            rocksdb_block_based_options_set_block_cache(table, rocksdb_cache_create_lru(cache_bytes));
            rocksdb_block_based_options_set_filter_policy(table, rocksdb_filterpolicy_create_bloom(10.0));
            let options = rocksdb_options_create();
            rocksdb_options_set_create_if_missing(options, 1);
            rocksdb_options_set_block_based_table_factory(options, table);
            rocksdb_open(options, name.as_ptr(), &mut error)
        };
        check(error)?;
        Ok(RocksDb { db: NonNull::new(db).ok_or("RocksDB gave no database")? })
    }

    fn reader(&self, with_snapshot: bool) -> Reader<'_> {
        // SAFETY: the database is open as long as the reader borrows it; the reader gives both objects back.
        unsafe {
            let options = rocksdb_readoptions_create();
            let mut snapshot = std::ptr::null();
            if with_snapshot {
                snapshot = rocksdb_create_snapshot(self.db.as_ptr());
                rocksdb_readoptions_set_snapshot(options, snapshot);
            }
            Reader { db: self.db.as_ptr(), options, snapshot, store: PhantomData }
        }
    }

    fn writer(&self, sync: bool) -> Writer<'_> {
        // SAFETY: as for readers.
        unsafe {
            let options = rocksdb_writeoptions_create();
            rocksdb_writeoptions_set_sync(options, sync.into());
            Writer { db: self.db.as_ptr(), options, store: PhantomData }
        }
    }
}

impl Drop for RocksDb {
    fn drop(&mut self) {
        // SAFETY: readers and writers borrow the store, so none is left.
        unsafe { rocksdb_close(self.db.as_ptr()) }
    }
}

struct Reader<'a> {
    db: *mut Object,
    options: *mut Object,
    snapshot: *const Object,
    store: PhantomData<&'a RocksDb>,
}

impl Reader<'_> {
    fn get(&self, key: u64, value: &mut Vec<u8>) -> Result<bool> {
        let key = key.to_be_bytes();
        let mut error = null_mut();
        // SAFETY: the key outlives the call.
        let slice = unsafe { rocksdb_get_pinned(self.db, self.options, key.as_ptr().cast(), key.len(), &mut error) };
        check(error)?;
        if slice.is_null() {
            return Ok(false);
        }
        let mut bytes = 0;
        value.clear();
        // SAFETY: the slice's bytes stay until it is destroyed, which is after the copy.
        unsafe {
            let start = rocksdb_pinnableslice_value(slice, &mut bytes);
            value.extend_from_slice(std::slice::from_raw_parts(start.cast(), bytes));
            rocksdb_pinnableslice_destroy(slice);
        }
        Ok(true)
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `reader`, given back once.
        unsafe {
            rocksdb_readoptions_destroy(self.options);
            if !self.snapshot.is_null() {
                rocksdb_release_snapshot(self.db, self.snapshot);
            }
        }
    }
}

struct Writer<'a> {
    db: *mut Object,
    options: *mut Object,
    store: PhantomData<&'a RocksDb>,
}

impl Writer<'_> {
    fn put(&self, key: u64, value: &[u8]) -> Result<()> {
        let key = key.to_be_bytes();
        let (key, value_start) = (key.as_ptr().cast(), value.as_ptr().cast());
        let mut error = null_mut();
        // SAFETY: key and value outlive the call.
        unsafe { rocksdb_put(self.db, self.options, key, 8, value_start, value.len(), &mut error) };
        check(error)
    }

    fn put_all(&self, keys: std::ops::Range<u64>) -> Result<()> {
        let mut error = null_mut();
        // SAFETY: the batch copies what is put into it, and is destroyed once.
        unsafe {
            let batch = rocksdb_writebatch_create();
            for key in keys {
                let (key_bytes, value) = (key.to_be_bytes(), value_of(key, 0));
                rocksdb_writebatch_put(batch, key_bytes.as_ptr().cast(), 8, value.as_ptr().cast(), value.len());
            }
            rocksdb_write(self.db, self.options, batch, &mut error);
            rocksdb_writebatch_destroy(batch);
        }
        check(error)
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `writer`, given back once.
        unsafe { rocksdb_writeoptions_destroy(self.options) }
    }
}

impl Store for RocksDb {
    fn name(&self) -> String {
        "RocksDB 7.8 (Debian)".into()
    }

    fn durability(&self) -> &'static str {
        "WriteOptions.sync: fdatasync of its log before a put returns, shared by the puts that wait"
    }

    fn load(&self, rows: u64) -> Result<()> {
        let writer = self.writer(true);
        (0..rows).step_by(LOAD_BATCH as usize).try_for_each(|first| writer.put_all(first..rows.min(first + LOAD_BATCH)))
    }

    fn get(&self) -> Result<Get<'_>> {
        let reader = self.reader(false);
        Ok(Box::new(move |key, value| reader.get(key, value)))
    }

    fn snapshot_get(&self) -> Result<Get<'_>> {
        let reader = self.reader(true);
        Ok(Box::new(move |key, value| reader.get(key, value)))
    }

    fn put(&self) -> Result<Put<'_>> {
        let writer = self.writer(true);
        Ok(Box::new(move |key, value| writer.put(key, value)))
    }
}
