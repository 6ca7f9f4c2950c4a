//! Does the log keep what it acknowledged, in order, wherever the machine crashes?

use super::threads;
use crate::scenario::Scenario;
use homenode_log::{FIRST_LSN, Log, LogConfig, Lsn, Nodes, scan};
use homenode_platform::lab::{self, Config};
use homenode_platform::sync::Mutex;
use std::path::Path;
use std::sync::Arc;

const FOLDER: &str = "db";
const WRITERS: usize = 3;
const RECORDS: usize = 6;
const KIND_FIRST: u8 = 1;
const KIND: u8 = 2;
const KIND_LAST: u8 = 3;

/// What was acknowledged: (end of the record, its payload).
type Promised = Arc<Mutex<Vec<(u64, Vec<u8>)>>>;

/// See the module's text. The planted bug acknowledges commits without waiting for the flush.
pub const SCENARIO: Scenario = Scenario {
    name: "log-durability",
    claim: "after a crash the log reads as a prefix that holds every acknowledged record",
    has_planted_bug: true,
    run: |trial| {
        let planted = trial.planted;
        // With every other seed the log is still empty when it is opened again.
        let starts_empty = trial.seed % 2 == 0;
        trial.crashes::<Promised>(
            &Config::new(trial.seed),
            24,
            move || {
                homenode_platform::fs::create_dir_all(Path::new(FOLDER)).expect("no fault is asked for");
                let log = Log::create(config()).expect("an empty folder");
                if !starts_empty {
                    log.wait_durable(log.append(0, KIND_FIRST, &[b"the database was made"]).end);
                }
                log.shutdown();
            },
            move |promised| {
                // A life without a record: the next one opens where it did.
                open().shutdown();
                let log = open();
                let inner = log.clone();
                threads(WRITERS, move |writer| append(&inner, writer, &promised, planted));
                log.shutdown();
            },
            check,
        )
    },
};

fn config() -> LogConfig {
    // Every other life on a machine with two nodes: with a thread that syncs, relays, and gathered reservations.
    let nodes = match lab::choose(2) {
        0 => Nodes::default(),
        _ => Nodes { cpus: vec![vec![0], vec![1]], of_lanes: vec![0, 1] },
    };
    LogConfig { buffer_bytes: 64 << 10, segment_bytes: 64 << 10, insert_slots: 4, nodes, ..LogConfig::new(FOLDER) }
}

fn open() -> Arc<Log> {
    Log::open_at(config(), end()).expect("the log is there")
}

fn end() -> Lsn {
    let mut reader = scan(Path::new(FOLDER), FIRST_LSN).expect("the log is there");
    while reader.next_record().expect("a crash is not damage").is_some() {}
    reader.end()
}

fn append(log: &Log, writer: usize, promised: &Promised, planted: bool) {
    for number in 0..RECORDS {
        // Long enough that all together go through several segments.
        let payload = vec![(writer * RECORDS + number) as u8; 1 + lab::choose(9_000)];
        let span = log.append(writer, KIND, &[&payload]);
        if lab::choose(3) > 0 {
            if !planted {
                if lab::choose(2) == 0 { log.wait_durable(span.end) } else { log.wait_durable_on(writer, span.end) }
            }
            promised.lock().push((span.end, payload));
        }
    }
}

fn check(promised: Promised) {
    let mut reader = scan(Path::new(FOLDER), FIRST_LSN).expect("the log is there");
    let mut missing = promised.lock().clone();
    let mut next_of_writer = [0; WRITERS];
    while let Some(record) = reader.next_record().expect("a crash is not damage") {
        if record.kind == KIND_FIRST {
            continue;
        }
        let name = usize::from(record.payload[0]);
        assert!(record.payload.iter().all(|&byte| usize::from(byte) == name), "a torn record was read");
        let (writer, number) = (name / RECORDS, name % RECORDS);
        assert_eq!(next_of_writer[writer], number, "writer {writer}'s records are out of order");
        next_of_writer[writer] = number + 1;
        missing.retain(|(end, payload)| !(*end == record.end && payload == record.payload));
    }
    let missing: Vec<u64> = missing.iter().map(|(end, _)| *end).collect();
    assert!(missing.is_empty(), "acknowledged and lost: {missing:?}; the log ends at {}", reader.end());
    // It can be gone on with.
    let log = open();
    let last = log.append(0, KIND_LAST, &[]);
    log.shutdown();
    assert_eq!(end(), last.end, "what was appended after the crash is gone");
}
