//! How fast is the engine without SQL and server? Random reads, updates and commits on one table, by thread count.
//!
//! `cargo run --release -p homenode-engine --example throughput -- [ROWS] [SECONDS]`. Durability is on: every update commits and waits for
//! its flush, alone or in the group of all threads.

use homenode_engine::{ColumnSpec, Database, Isolation, Options, TableSpec};
use homenode_types::{ColumnType, Type, Value, key};
use std::time::{Duration, Instant};

fn key_of(id: u64) -> Vec<u8> {
    let mut out = Vec::new();
    key::encode_i64(id as i64, &mut out);
    out
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>().expect("a number"));
    let rows = arguments.next().unwrap_or(1_000_000);
    let seconds = arguments.next().unwrap_or(2);
    let folder = std::env::temp_dir().join(format!("homenode-throughput-{}", std::process::id()));
    let db = Database::open_with(&folder, Options { pool_bytes: 1 << 30, ..Options::default() }).expect("open");
    let mut session = db.session().expect("session");
    session.begin(Isolation::ReadCommitted, false).expect("begin");
    let column = |name: &str, ty| ColumnSpec {
        name: name.to_owned(),
        ty: ColumnType { ty, typmod: -1 },
        not_null: false,
        default: None,
        identity: None,
        serial: false,
    };
    let table = session
        .create_table(TableSpec {
            schema: "public".to_owned(),
            name: "t".to_owned(),
            columns: vec![column("id", Type::Int4), column("k", Type::Int4), column("t", Type::Text)],
            primary_key: Some((None, vec![0])),
            uniques: Vec::new(),
            checks: Vec::new(),
        })
        .expect("create");
    let started = Instant::now();
    let mut copy = session.copy_begin(&table).expect("copy");
    for id in 0..rows {
        copy.push(&mut session, &[Value::Int4(id as i32), Value::Int4(0), Value::Text("x".repeat(84))]).expect("push");
    }
    copy.finish(&mut session).expect("finish");
    session.commit().expect("commit");
    println!("load: {:.0} rows/s", rows as f64 / started.elapsed().as_secs_f64());
    for threads in [1, 2, 16] {
        for (name, update) in [("get", false), ("update+commit", true)] {
            let started = Instant::now();
            let done: u64 = std::thread::scope(|scope| {
                let workers: Vec<_> = (0..threads)
                    .map(|worker| {
                        let db = db.clone();
                        scope.spawn(move || {
                            let mut session = db.session().expect("session");
                            let table = session.table(None, "t").expect("table");
                            let mut state = 0x9E37_79B9_7F4A_7C15u64 * (worker + 1);
                            let mut out = Vec::new();
                            let mut done = 0;
                            while started.elapsed() < Duration::from_secs(seconds) {
                                for _ in 0..if update { 1 } else { 100 } {
                                    state ^= state << 13;
                                    state ^= state >> 7;
                                    state ^= state << 17;
                                    let key = key_of(state % rows);
                                    session.begin(Isolation::ReadCommitted, false).expect("begin");
                                    if update {
                                        let changed = session.update(&table, &key, &mut |_, values| {
                                            values[1] = Value::Int4(done as i32);
                                            Ok(true)
                                        });
                                        assert!(changed.expect("update"));
                                    } else {
                                        assert!(session.get_single(&table, &key, &mut out).expect("get"));
                                        session.end_statement();
                                    }
                                    session.commit().expect("commit");
                                    done += 1;
                                }
                            }
                            done
                        })
                    })
                    .collect();
                workers.into_iter().map(|worker| worker.join().expect("worker")).sum()
            });
            println!("{name}, {threads} threads: {:.0}/s", done as f64 / started.elapsed().as_secs_f64());
        }
    }
    let stats = db.log().stats();
    println!(
        "log: {} flushes, {} released, sync {} us on average",
        stats.flushes,
        stats.released,
        stats.sync_ns_total / stats.flushes.max(1) / 1000
    );
    drop(session);
    db.close().expect("close");
    let _ = std::fs::remove_dir_all(folder);
}
