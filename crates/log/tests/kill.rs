//! Is every acknowledged record there after the process was killed at any moment, and does a log
//! that failed to write never acknowledge anything again?
//!
//! The writer is this test binary itself, started again with a variable set.
#![allow(missing_docs)]

mod common;

use common::{Folder, check, payload, read_all, small};
use homenode_log::{FIRST_LSN, Log, LogConfig, LogError, lock};
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const FOLDER: &str = "HOMENODE_LOG_TEST_FOLDER";
const WRITERS: u32 = 4;

/// Starts the test `role` of this binary as a process of its own, working in `dir`.
fn start(role: &str, dir: &Path, fault: Option<&str>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", role, "--nocapture", "--test-threads=1"]).env(FOLDER, dir);
    if let Some(fault) = fault {
        command.env("HOMENODE_TEST_FAULT", fault);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn role_folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

fn config(dir: &Path) -> LogConfig {
    LogConfig { sync: true, ..small(dir) }
}

/// Appends forever from several threads and prints "ack LIFE NUMBER" after each wait.
fn write_forever(log: &std::sync::Arc<Log>, life: u32) {
    let threads: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let log = log.clone();
            std::thread::spawn(move || {
                for number in 0.. {
                    let bytes = payload(life * WRITERS + writer, number, (number as usize * 37) % 900);
                    let span = log.append(writer as usize, 0, &[&bytes]);
                    log.wait_durable(span.end);
                    let line = format!("ack {} {number}\n", life * WRITERS + writer);
                    std::io::stdout().write_all(line.as_bytes()).unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn child_writer() {
    let Some(dir) = role_folder() else { return };
    let _lock = lock(&dir).unwrap();
    let life = std::fs::read_to_string(dir.join("life")).unwrap().parse().unwrap();
    let log = if life == 0 {
        Log::create(config(&dir)).unwrap()
    } else {
        let (_, end, _) = read_all(&dir, FIRST_LSN);
        Log::open_at(config(&dir), end).unwrap()
    };
    write_forever(&log, life);
}

fn acknowledgements(child: &mut Child) -> impl FnOnce() -> HashSet<(u32, u32)> + use<> {
    let out = BufReader::new(child.stdout.take().unwrap());
    let reader = std::thread::spawn(move || {
        let mut acks = HashSet::new();
        for line in out.lines().map_while(Result::ok) {
            // The harness writes "test child_writer ... " in front of the first one.
            let Some(at) = line.find("ack ") else { continue };
            let mut words = line[at..].split(' ').skip(1).map(str::parse);
            if let (Some(Ok(writer)), Some(Ok(number))) = (words.next(), words.next()) {
                acks.insert((writer, number));
            }
        }
        acks
    });
    move || reader.join().unwrap()
}

#[test]
fn every_acknowledged_record_survives_a_kill() {
    let dir = Folder::new();
    let mut acked = HashSet::new();
    for life in 0..6u32 {
        std::fs::write(dir.0.join("life"), life.to_string()).unwrap();
        let mut child = start("child_writer", &dir.0, None);
        let acks = acknowledgements(&mut child);
        std::thread::sleep(Duration::from_millis(120 + 37 * u64::from(life)));
        child.kill().unwrap();
        child.wait().unwrap();
        acked.extend(acks());
        let (records, ..) = read_all(&dir.0, FIRST_LSN);
        let found: Vec<_> = records.iter().map(|record| check(&record.payload)).collect();
        let distinct: HashSet<_> = found.iter().copied().collect();
        assert_eq!(distinct.len(), found.len(), "no record twice");
        assert!(acked.is_subset(&distinct), "life {life}: {:?}", acked.difference(&distinct).next());
    }
    assert!(acked.len() > 100, "{}", acked.len());
}

/// The fault may strike the thread that prepares segments, which tries again: then nothing is fatal, and the child ends with status 8.
fn end_unless_fatal() {
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_secs(2));
        std::process::exit(8);
    });
}

#[test]
fn child_with_a_broken_disk() {
    let Some(dir) = role_folder() else { return };
    end_unless_fatal();
    let log = Log::create(config(&dir)).unwrap();
    // Only reports: whoever would be acknowledged afterwards would say so.
    log.on_fatal(Box::new(|text| {
        std::io::stdout().write_all(format!("\nfatal {text}\n").as_bytes()).unwrap();
        std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            std::process::exit(7);
        });
    }));
    write_forever(&log, 0);
}

#[test]
fn nobody_is_told_durable_after_a_failure() {
    for kind in ["fsync", "write"] {
        let struck = (40..60).any(|number| fault_is_fatal(&format!("{kind}:{number}")));
        assert!(struck, "no {kind} of the flusher failed");
    }
}

/// Runs a child with a fault; false when the fault struck another thread than the flusher, else everything about the failure is checked.
fn fault_is_fatal(fault: &str) -> bool {
    let dir = Folder::new();
    let mut child = start("child_with_a_broken_disk", &dir.0, Some(fault));
    let out = BufReader::new(child.stdout.take().unwrap());
    let lines: Vec<String> = out.lines().map_while(Result::ok).collect();
    let code = child.wait().unwrap().code();
    let fatal: Vec<_> = lines.iter().filter(|line| line.starts_with("fatal ")).collect();
    if fatal.is_empty() && code == Some(8) {
        return false;
    }
    assert_eq!(code, Some(7));
    assert_eq!(fatal.len(), 1, "{fault}: never tried again: {fatal:?}");
    assert!(fatal[0].contains("log-"), "{}", fatal[0]);
    // Those released by the flush before may still print a line each, once.
    let at = lines.iter().position(|line| line.starts_with("fatal ")).unwrap();
    let after = lines[at..].iter().filter(|line| line.contains("ack ")).count();
    assert!(after <= WRITERS as usize, "{fault}: {after} acknowledgements after the failure");
    true
}

#[test]
fn child_with_the_default_callback() {
    let Some(dir) = role_folder() else { return };
    end_unless_fatal();
    write_forever(&Log::create(config(&dir)).unwrap(), 0);
}

#[test]
fn the_default_is_to_abort() {
    for number in 30..50 {
        let dir = Folder::new();
        let child = start("child_with_the_default_callback", &dir.0, Some(&format!("fsync:{number}")));
        let output = child.wait_with_output().unwrap();
        if output.status.code() == Some(8) {
            continue;
        }
        assert!(output.status.code().is_none(), "ended by a signal: {:?}", output.status);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains("could not sync"), "{text}");
        return;
    }
    panic!("no sync of the flusher failed");
}

#[test]
fn child_that_holds_the_lock() {
    let Some(dir) = role_folder() else { return };
    let _lock = lock(&dir).unwrap();
    println!("\nlocked");
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn the_lock_names_its_holder() {
    let dir = Folder::new();
    let mut child = start("child_that_holds_the_lock", &dir.0, None);
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    while out.next().expect("it locks").unwrap() != "locked" {}
    let error = lock(&dir.0).unwrap_err();
    assert!(matches!(error, LogError::InUse { .. }));
    assert!(error.to_string().contains(&format!("process {}", child.id())), "{error}");
    child.kill().unwrap();
    child.wait().unwrap();
    let again = lock(&dir.0).unwrap();
    assert!(lock(&dir.0).is_err(), "also against this very process");
    drop(again);
    lock(&dir.0).unwrap();
}
