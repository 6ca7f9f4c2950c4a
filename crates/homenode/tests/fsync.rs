//! What if a sync or a write fails? The server stops and says why; nothing acknowledged is lost, the next start recovers clean.
//!
//! After a failed fsync the kernel may have thrown the pages away and report success the next time (the PostgreSQL project's
//! fsync findings of 2018, and Rebello et al.: Can Applications Recover from fsync Failures?, ATC 2020). So there is no next time.

mod common;

use std::thread;
use std::time::{Duration, Instant};

use common::{Server, Settings, one, rounds};

const LIMIT: Duration = Duration::from_secs(20);
/// How long a server is written to that has met the fault and goes on.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long it may take to meet it.
const LONG_PATIENCE: Duration = Duration::from_secs(60);

fn faulty(fault: String) -> Settings {
    Settings { environment: vec![("HOMENODE_TEST_FAULT".into(), fault)], ..Settings::default() }
}

/// Commits until the server goes away, or the time is up and enough was written to have met fault number `number`, however slow
/// the machine is now; the last number acknowledged.
fn write(port: u16, writer: i32, first: i32, number: u32) -> i32 {
    let mut acknowledged = first - 1;
    let Ok(mut client) = common::connect(port) else { return acknowledged };
    let start = Instant::now();
    // Each commit waits for a write and a sync at least.
    let has_met = |acknowledged: i32| acknowledged - first >= number as i32 || start.elapsed() > LONG_PATIENCE;
    while start.elapsed() < PATIENCE || !has_met(acknowledged) {
        let seq = acknowledged + 1;
        if seq % 20 == 0
            && let Err(error) = client.batch_execute("checkpoint")
        {
            println!("writer {writer}: {error:?}");
        }
        match client.execute("insert into entry values ($1, $2, repeat('e', 500))", &[&writer, &seq]) {
            Ok(_) => acknowledged = seq,
            Err(error) if error.code().is_none() => break,
            Err(error) => {
                println!("writer {writer}: {error:?}");
                if error.code().is_some_and(|code| code.code() == "57P01") {
                    break;
                }
            }
        }
    }
    acknowledged
}

fn stops_and_recovers(kind: &str, numbers: &[u32]) {
    if common::is_postgres() {
        return;
    }
    let mut server = Server::start();
    server
        .client()
        .batch_execute("create table entry (writer int, seq int, filler text, primary key (writer, seq))")
        .unwrap();
    let mut last = [0; 3];
    let mut stops = 0;
    // What fails may be a page's write or a file made in advance: those are tried again and stop nothing. Then others are tried.
    let more = (0..10).map(|turn| 300 + 37 * turn);
    for (turn, number) in numbers.iter().copied().chain(more).enumerate() {
        if turn >= numbers.len() && stops > 0 {
            break;
        }
        // On a busy machine it may end without its last checkpoint: that is not asked here.
        server.terminate();
        server.wait_end(2 * LIMIT);
        let fault = format!("{kind}:{number}");
        let said = server.output().len();
        match server.try_restart(faulty(fault.clone())) {
            // It failed at the start already.
            Err(refusal) => {
                assert!(
                    !refusal.status.success() && refusal.output[said..].contains("os error 5"),
                    "{fault}: {refusal:?}"
                );
                stops += 1;
            }
            Ok(()) => {
                let port = server.port();
                let writers: Vec<_> = last
                    .iter()
                    .enumerate()
                    .map(|(writer, last)| {
                        let first = last + 1;
                        thread::spawn(move || write(port, writer as i32, first, number))
                    })
                    .collect();
                for (last, writer) in last.iter_mut().zip(writers) {
                    *last = writer.join().unwrap();
                }
                // A process that is about to end may still accept.
                let mut ended = None;
                let gone = (0..10).any(|_| {
                    thread::sleep(Duration::from_millis(20));
                    ended = server.status();
                    ended.is_some() || common::connect(port).is_err()
                });
                match gone.then(|| ended.unwrap_or_else(|| server.wait_end(LIMIT))) {
                    Some(status) => {
                        assert!(!status.success(), "{fault}: {status}");
                        let output = server.output()[said..].to_lowercase();
                        let word = if kind == "fsync" { "sync" } else { "writ" };
                        assert!(output.contains("os error 5") && output.contains(word), "{fault}: not named\n{output}");
                        stops += 1;
                    }
                    None => println!("{fault}: the server went on"),
                }
            }
        }
        server.restart_with(Settings::default());
        let mut client = server.client();
        for (writer, last) in last.iter_mut().enumerate() {
            let row = client
                .query_one("select count(*), coalesce(max(seq), 0) from entry where writer = $1", &[&(writer as i32)])
                .unwrap();
            let (count, highest) = (row.get::<_, i64>(0), row.get::<_, i32>(1));
            // The one that wasn't acknowledged may be there.
            assert!(count == i64::from(highest), "{fault}: {count} rows up to {highest}");
            assert!(highest == *last || highest == *last + 1, "{fault}: {highest} there, {last} acknowledged");
            *last = highest;
        }
        assert_eq!(one::<i64>(&mut client, "select count(*) from entry where filler <> repeat('e', 500)"), 0);
    }
    assert!(stops > 0, "no {kind} that failed has stopped the server");
}

#[test]
fn failed_syncs() {
    stops_and_recovers("fsync", if rounds(1, 0) == 1 { &[1, 2, 3, 5, 10, 40, 120] } else { &[3, 40] });
}

#[test]
fn failed_writes() {
    stops_and_recovers("write", if rounds(1, 0) == 1 { &[1, 2, 10, 300, 1000] } else { &[10, 1000] });
}
