//! Are TPC-H's 22 answers right, whatever kinds of plans are allowed? At scale 0.01, against what PostgreSQL 15 answered
//! (`tpch/NN.out`, written by `bench/tpch --scale 0.01 --only PostgreSQL --answers crates/bench/tests/tpch`).

use homenode_bench::tpch;
use homenode_engine::{Database, Options};
use homenode_sql::{Connection, Outcome};
use std::path::Path;

const SCALE: f64 = 0.01;

/// The rows of a statement, fields joined by `|`.
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

fn load(connection: &mut Connection) {
    tpch::definitions().iter().for_each(|statement| drop(ask(connection, statement)));
    for table in &tpch::TABLES {
        let mut out: Vec<u8> = Vec::new();
        let copy = format!("COPY {} FROM STDIN (FORMAT csv)", table.name);
        assert_eq!(connection.simple(&copy, &mut out), Outcome::CopyIn);
        let mut rows = Vec::new();
        tpch::write_rows(table.name, SCALE, &mut rows).unwrap();
        rows.chunks(1 << 16).for_each(|part| connection.copy_data(part).unwrap());
        assert_eq!(connection.copy_done(&mut out), Outcome::Done);
    }
    tpch::indexes().iter().for_each(|statement| drop(ask(connection, statement)));
    ask(connection, "ANALYZE");
}

/// Whether two fields are the same but for the last digits of an average.
fn same_field(found: &str, expected: &str) -> bool {
    let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
    found == expected || matches!((found.parse(), expected.parse()), (Ok(a), Ok(b)) if close(a, b))
}

fn check(connection: &mut Connection, number: usize, how: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/tpch/{number:02}.out"));
    let expected = std::fs::read_to_string(path).unwrap();
    let expected: Vec<&str> = expected.lines().collect();
    let mut found = Vec::new();
    for statement in tpch::query(number, SCALE) {
        found.extend(ask(connection, &statement));
    }
    // A row of one NULL is an empty line, which the files do not have.
    found.retain(|row| !row.is_empty());
    assert_eq!(found.len(), expected.len(), "query {number} {how}");
    for (found, expected) in found.iter().zip(expected) {
        let same = found.split('|').count() == expected.split('|').count()
            && found.split('|').zip(expected.split('|')).all(|(a, b)| same_field(a, b));
        assert!(same, "query {number} {how}:\n{found}\n{expected}");
    }
}

#[test]
fn all_answers_are_right_with_all_plans_and_with_only_some() {
    let folder = std::env::temp_dir().join(format!("homenode-tpch-{}", std::process::id()));
    std::fs::remove_dir_all(&folder).ok();
    let options = Options { pool_bytes: 128 << 20, sync: false, huge_pages: false, ..Options::default() };
    let db = Database::open_with(&folder, options).unwrap();
    let mut connection = Connection::new(db.clone(), 0, &[("user".into(), "postgres".into())]).unwrap();
    load(&mut connection);
    (1..=tpch::QUERIES).for_each(|number| check(&mut connection, number, "as planned"));
    // Joins by hash tables alone, and by look-ups where there are indexes.
    ask(&mut connection, "SET enable_nestloop = off; SET enable_parallel = off");
    (1..=tpch::QUERIES).for_each(|number| check(&mut connection, number, "without loops"));
    ask(&mut connection, "SET enable_nestloop = on; SET enable_hashjoin = off");
    for number in [2, 3, 4, 5, 7, 8, 9, 10, 12, 17, 18, 20, 21] {
        check(&mut connection, number, "without hash joins");
    }
    drop(connection);
    db.close().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}
