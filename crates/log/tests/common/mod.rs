//! What the tests share: folders of their own, small logs, payloads that can be checked.
#![allow(dead_code, missing_docs)]

use homenode_log::{LogConfig, Lsn, Record, Tail, scan};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that is removed when dropped.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("homenode-log-{}-{n}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl AsRef<Path> for Folder {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

/// A small ring and small segments, so that both wrap often; unsynced unless asked for.
pub fn small(dir: impl AsRef<Path>) -> LogConfig {
    LogConfig {
        buffer_bytes: 64 << 10,
        segment_bytes: 64 << 10,
        insert_slots: 4,
        sync: false,
        ..LogConfig::new(dir.as_ref())
    }
}

/// A payload that says who wrote it, and whose every byte follows from that.
pub fn payload(writer: u32, number: u32, bytes: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes + 8);
    out.extend_from_slice(&writer.to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
    let mut state = u64::from(writer) << 32 | u64::from(number) | 1;
    while out.len() < bytes + 8 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        out.push((state >> 56) as u8);
    }
    out
}

/// Writer and number of a payload, after checking all of it.
pub fn check(bytes: &[u8]) -> (u32, u32) {
    let writer = u32::from_le_bytes(*bytes.first_chunk().unwrap());
    let number = u32::from_le_bytes(*bytes[4..].first_chunk().unwrap());
    assert_eq!(bytes, payload(writer, number, bytes.len() - 8));
    (writer, number)
}

/// All records from `from` on, the end, and its kind.
pub fn read_all(dir: &Path, from: Lsn) -> (Vec<Record>, Lsn, Tail) {
    let mut reader = scan(dir, from).unwrap();
    let records: Vec<Record> = reader.by_ref().map(Result::unwrap).collect();
    (records, reader.end(), reader.tail().unwrap())
}
