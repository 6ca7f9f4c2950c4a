//! Does ANALYZE find what is in a table, keep it, and does the planner make plans anew from it?

use homenode_engine::{Database, Options};
use homenode_sql::{Connection, Outcome};
use std::path::PathBuf;

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("homenode-analyze-{name}-{}", std::process::id()));
    std::fs::remove_dir_all(&folder).ok();
    folder
}

fn open(folder: &PathBuf) -> Database {
    let options = Options { pool_bytes: 32 << 20, sync: false, huge_pages: false, ..Options::default() };
    Database::open_with(folder, options).unwrap()
}

fn connect(db: &Database) -> Connection {
    Connection::new(db.clone(), 0, &[("user".into(), "postgres".into())]).unwrap()
}

/// The rows of a statement, fields joined by `|`; panics with the message of an error.
fn ask(connection: &mut Connection, statement: &str) -> Vec<String> {
    let mut out: Vec<u8> = Vec::new();
    assert_eq!(connection.simple(statement, &mut out), Outcome::Done, "{statement}");
    let (mut bytes, mut rows) = (&out[..], Vec::new());
    while let [kind, rest @ ..] = bytes {
        let length = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
        let body = &rest[4..length];
        bytes = &rest[length..];
        assert_ne!(*kind, b'E', "{statement}: {}", String::from_utf8_lossy(body));
        if *kind == b'D' {
            let (mut body, mut fields) = (&body[2..], Vec::new());
            while let [a, b, c, d, rest @ ..] = body {
                let length = usize::try_from(i32::from_be_bytes([*a, *b, *c, *d])).unwrap_or(0);
                fields.push(String::from_utf8_lossy(&rest[..length]).into_owned());
                body = &rest[length..];
            }
            rows.push(fields.join("|"));
        }
    }
    rows
}

#[test]
fn what_is_found_is_shown_and_outlives_a_restart() {
    let folder = folder("found");
    let db = open(&folder);
    let mut connection = connect(&db);
    ask(&mut connection, "CREATE TABLE t (a integer PRIMARY KEY, b text, c date)");
    ask(
        &mut connection,
        "INSERT INTO t SELECT i, CASE WHEN i % 4 = 0 THEN 'many' WHEN i % 4 = 1 THEN NULL ELSE 'x' || i END,
         date '2024-01-01' + i % 30 FROM generate_series(1, 20000) AS i",
    );
    assert_eq!(ask(&mut connection, "SELECT reltuples FROM pg_class WHERE relname = 't'"), ["-1"]);
    ask(&mut connection, "ANALYZE t");
    let shown = "SELECT attname, null_frac, n_distinct, correlation FROM pg_stats WHERE tablename = 't' ORDER BY 1";
    let expected = ["a|0|-1|1", "b|0.25|-0.50005|", "c|0|30|"];
    for (found, expected) in ask(&mut connection, shown).iter().zip(expected) {
        assert!(found.starts_with(expected), "{found} instead of {expected}");
    }
    let common = "SELECT most_common_vals, most_common_freqs FROM pg_stats WHERE attname = 'b'";
    assert_eq!(ask(&mut connection, common), ["{many}|{0.25}"]);
    assert_eq!(ask(&mut connection, "SELECT reltuples FROM pg_class WHERE relname = 't'"), ["20000"]);
    drop(connection);
    db.close().unwrap();
    let db = open(&folder);
    let mut connection = connect(&db);
    assert_eq!(ask(&mut connection, common), ["{many}|{0.25}"]);
    // Of a rolled-back transaction nothing is kept; with the table its statistics go.
    ask(&mut connection, "BEGIN; DELETE FROM t WHERE b = 'many'; ANALYZE t; ROLLBACK");
    assert_eq!(ask(&mut connection, common), ["{many}|{0.25}"]);
    ask(&mut connection, "ALTER TABLE t ADD COLUMN d integer");
    assert!(ask(&mut connection, common).is_empty(), "columns are not what they were");
    ask(&mut connection, "VACUUM ANALYZE");
    assert_eq!(ask(&mut connection, common), ["{many}|{0.25}"]);
    ask(&mut connection, "DROP TABLE t");
    assert!(ask(&mut connection, "SELECT * FROM pg_stats").is_empty());
    drop(connection);
    db.close().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_sample_of_a_big_table_tells_its_size_and_its_values() {
    let folder = folder("sample");
    let db = open(&folder);
    let mut connection = connect(&db);
    ask(&mut connection, "CREATE TABLE t (a integer PRIMARY KEY, b integer)");
    ask(&mut connection, "INSERT INTO t SELECT i, i % 1000 FROM generate_series(1, 100000) AS i");
    ask(&mut connection, "SET default_statistics_target = 10; ANALYZE t");
    let rows: f64 = ask(&mut connection, "SELECT reltuples FROM pg_class WHERE relname = 't'")[0].parse().unwrap();
    assert!((90_000.0..110_000.0).contains(&rows), "{rows}");
    let found = ask(&mut connection, "SELECT n_distinct FROM pg_stats WHERE tablename = 't' ORDER BY attname");
    let distinct: f64 = found[1].parse().unwrap();
    assert!(found[0] == "-1" && (800.0..1300.0).contains(&distinct), "{found:?}");
    drop(connection);
    db.close().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn tables_that_grew_are_analyzed_in_the_background_and_plans_follow() {
    let folder = folder("due");
    let db = open(&folder);
    let mut connection = connect(&db);
    let due = || homenode_sql::analyze_due(&db, &|| false).unwrap();
    ask(&mut connection, "CREATE TABLE small (a integer); CREATE TABLE t (a integer PRIMARY KEY, b integer, c text)");
    ask(&mut connection, "CREATE INDEX t_b ON t (b)");
    assert_eq!(due(), 0, "small tables are left");
    ask(&mut connection, "INSERT INTO t SELECT i, i % 2, repeat('x', 50) FROM generate_series(1, 5000) AS i");
    let query = "EXPLAIN (COSTS OFF) SELECT c FROM t WHERE b = 1";
    assert!(ask(&mut connection, query)[0].starts_with("Index Scan"), "nothing is known yet");
    assert_eq!((due(), due()), (1, 0));
    assert!(ask(&mut connection, query)[0].starts_with("Seq Scan"), "half of the rows");
    ask(&mut connection, "INSERT INTO t SELECT i, i, repeat('x', 50) FROM generate_series(5001, 60000) AS i");
    assert_eq!((due(), due()), (1, 0));
    assert!(ask(&mut connection, query)[0].starts_with("Index Scan"), "a twentieth of the rows");
    // A table that is being changed is left for another time.
    ask(&mut connection, "INSERT INTO t SELECT i, i, repeat('x', 50) FROM generate_series(60001, 120000) AS i");
    ask(&mut connection, "BEGIN; ALTER TABLE t ADD COLUMN d integer");
    assert_eq!(due(), 0);
    ask(&mut connection, "ROLLBACK");
    drop(connection);
    db.close().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}
