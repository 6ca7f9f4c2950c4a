//! What does a scan of pages that are not in memory cost, with and without reading ahead? In pairs, each with a cold page cache if it may.
//!
//! `cargo run --release -p homenode-engine --example cold_scan -- FOLDER MEGABYTES ROUNDS`

use homenode_engine::{ColumnSpec, Database, Isolation, KeyRange, Options, TableSpec};
use homenode_types::{ColumnType, Result, Type, Value};
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;
use std::time::Instant;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, megabytes, rounds] = &arguments[..] else { return Err("FOLDER MEGABYTES ROUNDS".into()) };
    let (folder, megabytes, rounds) = (Path::new(folder), megabytes.parse::<usize>()?, rounds.parse::<u32>()?);
    if !folder.exists() {
        load(folder, megabytes)?;
    }
    println!("page cache dropped: {}", if drop_caches() { "yes" } else { "no, that takes root" });
    println!(
        "                     in the file's order            scattered            in order, parallel      file by `read`"
    );
    println!("round  ahead             ms  pages a call         ms  pages a call         ms  pages a call          ms");
    for round in 0..rounds {
        for read_ahead in [round % 2 == 0, round % 2 != 0] {
            let mut line = format!("{round:5}  {:5}", if read_ahead { "yes" } else { "no" });
            for (table, parallel) in [("ordered", false), ("scattered", false), ("ordered", true)] {
                drop_caches();
                let (ms, run) = scan(folder, table, read_ahead, parallel)?;
                write!(line, "  {ms:11.0}  {run:12.1}")?;
            }
            drop_caches();
            println!("{line}  {:10.0}", read_file(&folder.join("pages"))?);
        }
    }
    Ok(())
}

fn options(read_ahead: bool) -> Options {
    Options { pool_bytes: 64 << 20, read_ahead, ..Options::default() }
}

fn load(folder: &Path, megabytes: usize) -> Result<()> {
    let database = Database::open_with(folder, options(true))?;
    let mut session = database.session()?;
    session.begin(Isolation::ReadCommitted, false)?;
    let column = |name: &str, ty| ColumnSpec {
        name: name.to_owned(),
        ty: ColumnType { ty, typmod: -1 },
        not_null: true,
        default: None,
        identity: None,
        serial: false,
    };
    let spec = |name: &str| TableSpec {
        schema: "public".to_owned(),
        name: name.to_owned(),
        columns: vec![column("id", Type::Int8), column("body", Type::Text)],
        primary_key: Some((None, vec![0])),
        uniques: Vec::new(),
        checks: Vec::new(),
    };
    let rows = (megabytes as u64) << 12;
    let row = |id: u64| [Value::Int8(id as i64), Value::Text("x".repeat(200))];
    let table = session.create_table(spec("ordered"))?;
    let mut copy = session.copy_begin(&table)?;
    (0..rows).try_for_each(|id| copy.push(&mut session, &row(id)))?;
    copy.finish(&mut session)?;
    session.create_table(spec("scattered"))?;
    session.commit()?;
    // Keys in an order that splits leaves everywhere: neighbours in the table are none in the file.
    let table = session.table(None, "scattered").expect("just made");
    for id in 0..rows {
        if id % 1000 == 0 {
            session.begin(Isolation::ReadCommitted, false)?;
        }
        session.insert(&table, &row(id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 1))?;
        if id % 1000 == 999 || id + 1 == rows {
            session.commit()?;
        }
    }
    drop(session);
    database.close()
}

/// Counts the rows; milliseconds, and pages per read call.
fn scan(folder: &Path, name: &str, read_ahead: bool, parallel: bool) -> Result<(f64, f64)> {
    let database = Database::open_with(folder, options(read_ahead))?;
    let mut session = database.session()?;
    let table = session.table(None, name).expect("the folder has the table");
    session.begin(Isolation::ReadCommitted, false)?;
    let start = Instant::now();
    let mut rows = 0u64;
    if parallel {
        let parts = session.parallel(&table)?.run(|piece, reader| {
            let mut rows = 0u64;
            reader.scan(piece, |_: &[u8]| {
                rows += 1;
                Ok(())
            })?;
            Ok(rows)
        })?;
        rows = parts.iter().map(|part| part.0).sum();
    } else {
        let mut scan = session.scan(&table, &KeyRange::all(), false)?;
        while scan.next_row(&mut session)?.is_some() {
            rows += 1;
        }
    }
    let ms = start.elapsed().as_secs_f64() * 1e3;
    assert!(rows > 0 && rows.is_multiple_of(1 << 12), "{rows} rows");
    let run = database.pool().stats().average_read_run();
    session.commit()?;
    Ok((ms, run))
}

/// What reading the page file in order takes, 1 MiB at a time: milliseconds.
fn read_file(path: &Path) -> std::io::Result<f64> {
    let (start, mut file, mut buffer) = (Instant::now(), std::fs::File::open(path)?, vec![0; 1 << 20]);
    while file.read(&mut buffer)? > 0 {}
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

/// Whether the system let the page cache go.
fn drop_caches() -> bool {
    let _ = std::process::Command::new("sync").status();
    std::fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}
