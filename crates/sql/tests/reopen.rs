//! Are definitions there again when the database is opened anew?

use homenode_engine::{Database, Options};
use homenode_sql::Connection;

fn answer(connection: &mut Connection, text: &str) -> String {
    let mut out: Vec<u8> = Vec::new();
    connection.simple(text, &mut out);
    let mut rows = Vec::new();
    let mut bytes = &out[..];
    while let [kind, rest @ ..] = bytes {
        let length = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
        match kind {
            b'D' => rows.push(row(&rest[4..length])),
            b'E' => panic!("{text}: {}", String::from_utf8_lossy(&rest[4..length])),
            _ => {}
        }
        bytes = &rest[length..];
    }
    rows.join("\n")
}

fn row(mut body: &[u8]) -> String {
    let columns = u16::from_be_bytes(body[..2].try_into().unwrap());
    body = &body[2..];
    let mut fields = Vec::new();
    for _ in 0..columns {
        let length = usize::try_from(i32::from_be_bytes(body[..4].try_into().unwrap())).unwrap_or(0);
        fields.push(String::from_utf8_lossy(&body[4..4 + length]).into_owned());
        body = &body[4 + length..];
    }
    fields.join("|")
}

#[test]
fn definitions_are_read_as_they_were_written() {
    let folder = std::env::temp_dir().join(format!("homenode-reopen-{}", std::process::id()));
    std::fs::remove_dir_all(&folder).ok();
    let options = || Options { pool_bytes: 32 << 20, sync: false, huge_pages: false, ..Options::default() };
    let open = || Database::open_with(&folder, options()).unwrap();
    let connect = |db: &Database| Connection::new(db.clone(), 0, &[("user".into(), "postgres".into())]).unwrap();
    let db = open();
    let mut connection = connect(&db);
    for text in [
        "create schema s",
        "create table s.t (id int primary key, a int, b text, g int generated always as (id * 2) stored)",
        "insert into s.t values (1, 10, 'x'), (2, 20, 'y')",
        "alter table s.t drop column a, add constraint c check (id > 1) not valid",
        "alter table s.t alter column b type varchar(9) using b || b",
        "comment on table s.t is 'said'",
        "comment on column s.t.b is 'of b'",
        "create table keyless (id int primary key, v int)",
        "insert into keyless values (1, 1), (2, 2)",
        "alter table keyless drop constraint keyless_pkey",
        "insert into keyless values (1, 3)",
        "drop schema if exists public_not_there",
    ] {
        answer(&mut connection, text);
    }
    drop(connection);
    db.close().unwrap();
    let db = open();
    let mut connection = connect(&db);
    assert_eq!(answer(&mut connection, "select * from s.t order by id"), "1|xx|2\n2|yy|4");
    assert_eq!(answer(&mut connection, "insert into s.t values (3, 'z') returning *"), "3|z|6");
    assert_eq!(
        answer(&mut connection, "select obj_description('s.t'::regclass), col_description('s.t'::regclass, 3)"),
        "said|of b"
    );
    assert_eq!(answer(&mut connection, "select convalidated from pg_constraint where conname = 'c'"), "f");
    assert_eq!(answer(&mut connection, "select * from keyless order by id, v"), "1|1\n1|3\n2|2");
    answer(&mut connection, "drop table keyless");
    answer(&mut connection, "drop schema public");
    drop(connection);
    db.close().unwrap();
    let db = open();
    let mut connection = connect(&db);
    assert_eq!(answer(&mut connection, "select nspname from pg_namespace where nspname in ('s', 'public')"), "s");
    drop(connection);
    db.close().unwrap();
    std::fs::remove_dir_all(&folder).ok();
}
