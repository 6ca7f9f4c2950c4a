//! What if a sync or a write fails? The server stops and says why; nothing acknowledged is lost, the next start recovers clean.
//!
//! After a failed fsync the kernel may have thrown the pages away and report success the next time (the PostgreSQL project's
//! fsync findings of 2018, and Rebello et al.: Can Applications Recover from fsync Failures?, ATC 2020). So there is no next time.

mod common;

use std::thread;
use std::time::Duration;

use common::{Server, Settings, one, rounds};

const LIMIT: Duration = Duration::from_secs(60);

fn faulty(fault: String) -> Settings {
    Settings { environment: vec![("HOMENODE_TEST_FAULT".into(), fault)], ..Settings::default() }
}

/// Commits until the server goes away; the last number acknowledged.
fn write(port: u16, writer: i32, first: i32) -> i32 {
    let mut acknowledged = first - 1;
    let Ok(mut client) = common::connect(port) else { return acknowledged };
    for seq in first.. {
        if seq % 50 == 0 && client.batch_execute("checkpoint").is_err() {
            break;
        }
        match client.execute("insert into entry values ($1, $2, repeat('e', 500))", &[&writer, &seq]) {
            Ok(_) => acknowledged = seq,
            Err(_) => break,
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
    for number in numbers {
        server.stop();
        let fault = format!("{kind}:{number}");
        match server.try_restart(faulty(fault.clone())) {
            // It failed at the start already.
            Err(refusal) => assert!(!refusal.status.success(), "{fault}"),
            Ok(()) => {
                let port = server.port();
                let writers: Vec<_> = last
                    .iter()
                    .enumerate()
                    .map(|(writer, last)| {
                        let first = last + 1;
                        thread::spawn(move || write(port, writer as i32, first))
                    })
                    .collect();
                let status = server.wait_end(LIMIT);
                assert!(!status.success(), "{fault}: {status}");
                for (last, writer) in last.iter_mut().zip(writers) {
                    *last = writer.join().unwrap();
                }
            }
        }
        let output = server.output().to_lowercase();
        assert!(output.contains("input/output error") || output.contains("os error 5"), "{fault}: not named\n{output}");
        let word = if kind == "fsync" { "sync" } else { "writ" };
        assert!(output.contains(word), "{fault}: not named\n{output}");
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
}

#[test]
fn failed_syncs() {
    stops_and_recovers("fsync", if rounds(1, 0) == 1 { &[1, 2, 3, 5, 10, 40, 120] } else { &[3, 40] });
}

#[test]
fn failed_writes() {
    stops_and_recovers("write", if rounds(1, 0) == 1 { &[1, 2, 4, 10, 60, 200] } else { &[4, 60] });
}
