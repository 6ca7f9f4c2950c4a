//! What does the bench ask of a store? Rows of an 8-byte key and a 100-byte value, read and written one at a time.

use std::error::Error;

/// Any failure ends the bench.
pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Bytes of each value.
pub const VALUE_BYTES: usize = 100;
/// Rows in one transaction of the load.
pub const LOAD_BATCH: u64 = 10_000;

/// The value of a key: text, so that every store keeps the same bytes.
pub fn value_of(key: u64, version: u64) -> Vec<u8> {
    let mut value = format!("{key:020}{version:020}").into_bytes();
    value.resize(VALUE_BYTES, b'.');
    value
}

/// Reads one key of its thread's own handle; the value's bytes go to the closure's caller through the buffer.
pub type Get<'a> = Box<dyn FnMut(u64, &mut Vec<u8>) -> Result<bool> + 'a>;
/// Writes one row; durable when it returns.
pub type Put<'a> = Box<dyn FnMut(u64, &[u8]) -> Result<()> + 'a>;

/// A database under test.
pub trait Store: Sync {
    /// Its name and version.
    fn name(&self) -> String;
    /// When a put is on the disk.
    fn durability(&self) -> &'static str;
    /// Puts the rows `0..rows` in, in batches.
    fn load(&self, rows: u64) -> Result<()>;
    /// A thread's handle whose every get is a transaction of its own.
    fn get(&self) -> Result<Get<'_>>;
    /// A thread's handle whose gets all see one snapshot, taken now.
    fn snapshot_get(&self) -> Result<Get<'_>>;
    /// A thread's handle whose every put is a durable transaction of its own.
    fn put(&self) -> Result<Put<'_>>;
}
