//! What does an append cost? Runs appends in one function of its own, for `bench/log-append` to
//! count instructions in.
//!
//! Arguments: folder, number of records, payload bytes.

use homenode_log::{Log, LogConfig};
use std::hint::black_box;

#[inline(never)]
fn append_many(log: &Log, records: usize, payload: &[u8]) {
    for _ in 0..records {
        black_box(log.append(black_box(0), 1, &[&payload[..40.min(payload.len())], &payload[40.min(payload.len())..]]));
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, records, bytes] = &args[..] else {
        return Err("usage: append FOLDER RECORDS PAYLOAD_BYTES".into());
    };
    let log = Log::create(LogConfig { sync: false, ..LogConfig::new(dir) })?;
    append_many(&log, records.parse()?, &vec![7; bytes.parse()?]);
    log.shutdown();
    Ok(())
}
