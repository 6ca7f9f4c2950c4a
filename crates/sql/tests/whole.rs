//! Are definitions there again when the database is opened anew, and does a file of pg_dump load?

use homenode_engine::{Database, Options};
use homenode_sql::{Connection, Outcome};

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

/// Loads a plain file of pg_dump as `psql -f` does: statement by statement, rows of COPY as they come.
fn load(connection: &mut Connection, file: &str) {
    let mut lines = file.lines();
    let mut statement = String::new();
    while let Some(line) = lines.next() {
        if statement.is_empty() && (line.is_empty() || line.starts_with("--")) {
            continue;
        }
        statement.push_str(line);
        statement.push('\n');
        if !line.ends_with(';') {
            continue;
        }
        let mut out: Vec<u8> = Vec::new();
        if connection.simple(&statement, &mut out) == Outcome::CopyIn {
            for row in lines.by_ref().take_while(|line| *line != "\\.") {
                connection.copy_data(format!("{row}\n").as_bytes()).unwrap();
            }
            connection.copy_done(&mut out);
        }
        refuse_errors(&statement, &out);
        statement.clear();
    }
}

fn refuse_errors(text: &str, out: &[u8]) {
    let mut bytes = out;
    while let [kind, rest @ ..] = bytes {
        let length = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
        assert_ne!(*kind, b'E', "{text}: {}", String::from_utf8_lossy(&rest[4..length]));
        bytes = &rest[length..];
    }
}

#[test]
fn a_file_of_pg_dump_loads() {
    let folder = std::env::temp_dir().join(format!("homenode-dump-{}", std::process::id()));
    std::fs::remove_dir_all(&folder).ok();
    let options = Options { pool_bytes: 32 << 20, sync: false, huge_pages: false, ..Options::default() };
    let db = Database::open_with(&folder, options).unwrap();
    let mut connection = Connection::new(db.clone(), 0, &[("user".into(), "postgres".into())]).unwrap();
    answer(&mut connection, "create role dump_owner");
    answer(&mut connection, "create role dump_reader");
    load(&mut connection, include_str!("dumps/shop.sql"));
    let mut is = |text: &str, expected: &str| assert_eq!(answer(&mut connection, text), expected, "{text}");
    is("show search_path", "");
    is("set search_path to shop, public", "");
    is(
        "select id, name, balance, note from customers where id < 3 order by id",
        "1|Ann|12.50|a\ttab\n2|Bob|-3.00|two\nlines",
    );
    is("select * from totals order by id", "1000|1|4\n1010|2|7");
    is("select sku, gross from products order by sku", "a-1|1.79\nb-2|23.80");
    is("insert into orders (customer) values (3) returning id", "1020");
    is("insert into customers (name) values ('Dan') returning id, balance", "4|0.00");
    is("select nextval('numbers')", "13");
    is("select what, encode(bytes, 'hex'), doc from log", "start|deadbeef|{\"a\": [1, 2]}");
    is("select obj_description('orders_by_date'::regclass)", "for reports");
    is("select pg_get_userbyid(relowner) from pg_class where oid = 'products'::regclass", "dump_owner");
    is(
        "select has_table_privilege('dump_reader', 'orders', 'insert'), has_table_privilege('dump_reader', 'orders', 'delete')",
        "t|f",
    );
    is(
        "select has_schema_privilege('dump_reader', 'shop', 'usage'), has_schema_privilege('dump_reader', 'public', 'usage')",
        "t|f",
    );
    is("select count(*) from pg_constraint where connamespace = 'shop'::regnamespace", "11");
    drop(connection);
    db.close().unwrap();
    std::fs::remove_dir_all(&folder).ok();
}

#[test]
fn an_index_has_the_rows_that_came_after_its_transactions_snapshot() {
    let folder = std::env::temp_dir().join(format!("homenode-late-rows-{}", std::process::id()));
    std::fs::remove_dir_all(&folder).ok();
    let options = Options { pool_bytes: 32 << 20, sync: false, huge_pages: false, ..Options::default() };
    let db = Database::open_with(&folder, options).unwrap();
    let connect = || Connection::new(db.clone(), 0, &[("user".into(), "postgres".into())]).unwrap();
    let (mut definer, mut writer) = (connect(), connect());
    answer(&mut writer, "create table t (id int primary key, a int)");
    answer(&mut writer, "insert into t select n, n from generate_series(1, 500) n");
    answer(&mut definer, "begin isolation level repeatable read");
    assert_eq!(answer(&mut definer, "select count(*) from t"), "500");
    answer(&mut writer, "insert into t values (1000, 1000)");
    answer(&mut definer, "create index on t (a)");
    answer(&mut definer, "alter table t alter column a type bigint");
    answer(&mut definer, "commit");
    assert_eq!(answer(&mut writer, "select id from t where a = 1000"), "1000");
    assert_eq!(answer(&mut writer, "select count(*) from t"), "501");
    drop((definer, writer));
    db.close().unwrap();
    std::fs::remove_dir_all(&folder).ok();
}
