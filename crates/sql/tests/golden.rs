//! Do statements answer what PostgreSQL answers? Golden files, made by PostgreSQL 15 itself.
//!
//! `golden/<name>.sql` holds one statement a line; `golden/<name>.out` is what
//! `psql -XAtaS -v VERBOSITY=terse < golden/<name>.sql` printed against PostgreSQL 15 with collation C and time zone UTC.

use homenode_engine::{Database, Options};
use homenode_sql::{Connection, Outcome};
use std::path::Path;

/// Prints wire messages as psql prints results with `-A -t`.
fn printed(mut bytes: &[u8], out: &mut String) {
    let mut rows = false;
    while let [kind, rest @ ..] = bytes {
        let length = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
        let body = &rest[4..length];
        bytes = &rest[length..];
        match kind {
            b'T' => rows = true,
            b'D' => out.push_str(&row(body)),
            b'C' => {
                let tag = String::from_utf8_lossy(&body[..body.len() - 1]).into_owned();
                let silent = ["SELECT", "SHOW", "FETCH", "EXPLAIN"].iter().any(|verb| tag.starts_with(verb));
                if !(std::mem::take(&mut rows) && silent) {
                    out.push_str(&format!("{tag}\n"));
                }
            }
            b'E' | b'N' => out.push_str(&report(body)),
            _ => {}
        }
    }
}

fn row(mut body: &[u8]) -> String {
    let columns = u16::from_be_bytes(body[..2].try_into().unwrap());
    body = &body[2..];
    let mut fields = Vec::new();
    for _ in 0..columns {
        let length = i32::from_be_bytes(body[..4].try_into().unwrap());
        body = &body[4..];
        let length = usize::try_from(length).unwrap_or(0);
        fields.push(String::from_utf8_lossy(&body[..length]).into_owned());
        body = &body[length..];
    }
    format!("{}\n", fields.join("|"))
}

fn report(body: &[u8]) -> String {
    let (mut severity, mut message, mut position) = (String::new(), String::new(), None);
    for field in body.split(|byte| *byte == 0).filter(|field| !field.is_empty()) {
        let text = String::from_utf8_lossy(&field[1..]).into_owned();
        match field[0] {
            b'S' => severity = text,
            b'M' => message = text,
            b'P' => position = Some(text),
            _ => {}
        }
    }
    let place = position.map_or_else(String::new, |position| format!(" at character {position}"));
    format!("{severity}:  {message}{place}\n")
}

fn run(name: &str) {
    let folder = std::env::temp_dir().join(format!("homenode-golden-{name}-{}", std::process::id()));
    std::fs::remove_dir_all(&folder).ok();
    let options = Options { pool_bytes: 32 << 20, sync: false, huge_pages: false, ..Options::default() };
    let db = Database::open_with(&folder, options).unwrap();
    let mut connection = Connection::new(db.clone(), 0, &[("user".into(), "postgres".into())]).unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let source = std::fs::read_to_string(golden.join(format!("{name}.sql"))).unwrap();
    let mut found = String::new();
    for line in source.lines() {
        found.push_str(&format!("{line}\n"));
        let mut out: Vec<u8> = Vec::new();
        let outcome = connection.simple(line, &mut out);
        assert_eq!(outcome, Outcome::Done, "{line}");
        printed(&out, &mut found);
    }
    drop(connection);
    db.close().unwrap();
    std::fs::remove_dir_all(&folder).ok();
    std::fs::write(std::env::temp_dir().join(format!("homenode-golden-{name}.out")), &found).unwrap();
    let expected = std::fs::read_to_string(golden.join(format!("{name}.out"))).unwrap();
    let differences = differences(&found, &expected);
    assert!(differences.is_empty(), "{name}: {} differences\n{}", differences.len(), differences.join("\n"));
}

/// Statements whose answers differ. PostgreSQL gives the place of more errors than we do: a place that is missing is no
/// difference, a wrong one is.
fn differences(found: &str, expected: &str) -> Vec<String> {
    let (mut left, mut right) = (found.lines().peekable(), expected.lines().peekable());
    let mut all = Vec::new();
    while let (Some(a), Some(b)) = (left.next(), right.next()) {
        let plain = b.find(" at character ").map_or(b, |at| &b[..at]);
        if a != b && !(a == plain && a.starts_with("ERROR")) {
            all.push(format!("  found:    {a}\n  expected: {b}"));
        }
    }
    all.extend(left.map(|line| format!("  found more: {line}")));
    all.extend(right.map(|line| format!("  expected more: {line}")));
    all
}

#[test]
fn queries() {
    run("queries");
}

#[test]
fn writes() {
    run("writes");
}

#[test]
fn transactions() {
    run("transactions");
}

#[test]
fn definitions() {
    run("definitions");
}

#[test]
fn windows() {
    run("windows");
}

#[test]
fn constraints() {
    run("constraints");
}

#[test]
fn foreign() {
    run("foreign");
}

#[test]
fn views() {
    run("views");
}

#[test]
fn recursion() {
    run("recursion");
}

#[test]
fn grouping() {
    run("grouping");
}

#[test]
fn schemas() {
    run("schemas");
}

#[test]
fn comments() {
    run("comments");
}

#[test]
fn semijoins() {
    run("semijoins");
}

#[test]
fn arrays() {
    run("arrays");
}

#[test]
fn alterations() {
    run("alterations");
}

#[test]
fn generated() {
    run("generated");
}

#[test]
fn deferred() {
    run("deferred");
}

#[test]
fn indexes() {
    run("indexes");
}

#[test]
fn roles() {
    run("roles");
}

#[test]
fn json() {
    run("json");
}

#[test]
fn sets() {
    run("sets");
}

#[test]
fn functions() {
    run("functions");
}

#[test]
fn rows() {
    run("rows");
}

#[test]
fn writable() {
    run("writable");
}
