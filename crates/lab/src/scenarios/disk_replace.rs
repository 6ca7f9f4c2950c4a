//! Does replacing a file atomically survive a crash after any change of the disk?

use crate::scenario::Scenario;
use homenode_platform::atomic::{AtomicU64, Ordering::Relaxed};
use homenode_platform::fs::{File, OpenOptions};
use homenode_platform::fs::{create_dir_all, exists, read, rename, sync_dir, write_atomic};
use homenode_platform::lab::{Config, choose};
use std::path::Path;
use std::sync::Arc;

const FOLDER: &str = "db";
const NAME: &str = "db/control";
const REPLACEMENTS: u64 = 3;

/// See the module's text. The planted bug renames the new contents without having synced them.
pub const SCENARIO: Scenario = Scenario {
    name: "disk-replace",
    claim: "after a crash a replaced file is the last promised one or a later one, whole",
    has_planted_bug: true,
    run: |trial| {
        let planted = trial.planted;
        trial.crashes::<Arc<AtomicU64>>(
            &Config::new(trial.seed),
            64,
            || {
                create_dir_all(Path::new(FOLDER)).expect("no fault is asked for");
                write_atomic(Path::new(NAME), &contents(0)).expect("no fault is asked for");
            },
            move |promised| {
                for number in 1..=REPLACEMENTS {
                    if planted {
                        replace_carelessly(&contents(number));
                    } else {
                        write_atomic(Path::new(NAME), &contents(number)).expect("no fault");
                    }
                    promised.store(number, Relaxed);
                }
            },
            |promised| {
                assert!(exists(Path::new(NAME)), "the file is gone");
                let found = read(Path::new(NAME)).expect("no fault is asked for");
                let number = u64::from(found.first().copied().unwrap_or(u8::MAX));
                assert!(number <= REPLACEMENTS && found == contents(number), "torn: {found:?}");
                assert!(number >= promised.load(Relaxed), "went back to {number}");
            },
        )
    },
};

fn contents(number: u64) -> Vec<u8> {
    vec![number as u8; 700 + 300 * number as usize]
}

fn replace_carelessly(bytes: &[u8]) {
    let temporary = Path::new("db/control.new");
    let options = OpenOptions::new().write(true).create(true).truncate(true);
    let file = File::open(temporary, &options).expect("no fault is asked for");
    file.write_all_at(bytes, 0).expect("no fault is asked for");
    if choose(4) > 0 {
        file.sync_all().expect("no fault is asked for");
    }
    rename(temporary, Path::new(NAME)).expect("no fault is asked for");
    sync_dir(Path::new(FOLDER)).expect("no fault is asked for");
}
