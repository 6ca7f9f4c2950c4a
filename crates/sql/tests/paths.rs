//! Do the compiled paths answer what the operators answer? Each query runs compiled, and again through a cursor, whose rows
//! always come from operators.

use homenode_engine::{Database, Options};
use homenode_sql::{Connection, Outcome};

/// DataRows and error codes of an answer, message by message.
fn answers(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while let [kind, rest @ ..] = bytes {
        let length = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
        match kind {
            b'D' => found.push(rest[4..length].to_vec()),
            b'E' => found.push(rest[4..length].split(|byte| *byte == 0).nth(2).unwrap().to_vec()),
            _ => {}
        }
        bytes = &rest[length..];
    }
    found
}

fn run(connection: &mut Connection, text: &str) -> Vec<Vec<u8>> {
    let mut out: Vec<u8> = Vec::new();
    assert_eq!(connection.simple(text, &mut out), Outcome::Done, "{text}");
    answers(&out)
}

fn by_operators(connection: &mut Connection, query: &str) -> Vec<Vec<u8>> {
    run(connection, &format!("begin; declare c no scroll cursor for {query}; fetch all from c; commit"))
}

fn compare(connection: &mut Connection, query: &str) -> usize {
    let compiled = run(connection, query);
    let expected = by_operators(connection, query);
    // Rows that were sent before an error stay sent; a cursor reads all of them first.
    let failed = expected.len() == 1 && expected[0].len() == 6;
    let compiled = if failed { &compiled[compiled.len() - 1..] } else { &compiled[..] };
    assert!(compiled == expected, "{query}: {} rows compiled, {} by operators", compiled.len(), expected.len());
    compiled.len()
}

/// Queries that run compiled; each is run with every condition.
const QUERIES: &[&str] = &[
    "select * from t where {}",
    "select letters, id + 1 from t where {} limit 7 offset 3",
    "select number from t where {} order by number",
    "select id, number from t where {} order by number desc nulls last, id desc",
    "select * from t where {} order by letters nulls first, id limit 20",
    "select fixed from t where {} order by fixed, id offset 5 limit 300",
    "select id from t where {} order by exact desc, id limit 0",
    "select distinct fixed from t where {} order by fixed",
    "select distinct number, fixed from t where {} order by 2 desc, 1 limit 40",
    "select distinct late from t where {} order by late nulls first",
    "select count(*), count(number), sum(number), min(number), max(small), sum(big) from t where {}",
    "select sum(number) + 1, 'x' from t where {}",
    "select id / (id - 700) from t where {}",
    "select id from t where {} order by id / (id - 700), id",
    "select late, moment, truth, bytes, exact from t where {} order by moment, id desc",
];

const CONDITIONS: &[&str] = &[
    "true",
    "id between 100 and 160",
    "id >= 690 and id < 720",
    "id > 1990",
    "id between 5000 and 6000",
    "id between 60 and 50",
    "id < 0",
    "id > null",
    "number = 17",
    "number between 3 and 5 and letters like '%a%'",
    "number is null and id > 1000",
    "letters = 'letter 12'",
    "big / nullif(id, 0) > 1 and id < 900",
];

fn check_all(connection: &mut Connection) {
    let mut rows = 0;
    for query in QUERIES {
        for condition in CONDITIONS {
            rows += compare(connection, &query.replace("{}", condition));
        }
    }
    assert!(rows > 10_000, "{rows} rows");
    rows = 0;
    for aid in [0, 1, 700, 1999, 2000, 2001] {
        rows += compare(connection, &format!("select * from t where id = {aid}"));
        rows += compare(connection, &format!("select o.name, t.* from t join o on o.id = t.number where t.id = {aid}"));
    }
    assert_eq!(rows, 4);
    // An order that leaves columns of a DISTINCT open may be any.
    for query in ["select distinct letters, number from t order by number", "select distinct * from o order by name"] {
        let (mut compiled, mut expected) = (run(connection, query), by_operators(connection, query));
        compiled.sort();
        expected.sort();
        assert!(compiled == expected, "{query}");
    }
}

#[test]
fn compiled_paths_and_operators_agree() {
    let folder = std::env::temp_dir().join(format!("homenode-paths-{}", std::process::id()));
    std::fs::remove_dir_all(&folder).ok();
    let options = Options { pool_bytes: 32 << 20, sync: false, huge_pages: false, ..Options::default() };
    let db = Database::open_with(&folder, options).unwrap();
    let mut connection = Connection::new(db.clone(), 0, &[("user".into(), "postgres".into())]).unwrap();
    for text in [
        "create table o (id int primary key, name text)",
        "insert into o select i, 'name ' || i % 5 from generate_series(1, 40) as i",
        "create table t (id int primary key, number int, small smallint, big bigint, letters text, fixed char(90),
            exact numeric, moment timestamp, truth boolean, bytes bytea)",
        "insert into t select i, nullif(i * 7 % 41, 0), i % 5, i::bigint * 1000000007, 'letter ' || i % 37,
            md5((i % 300)::text), (i % 90) / 4.0, timestamp '2024-01-01' + i % 11 * interval '1 hour', i % 3 = 0,
            '\\x00ff' from generate_series(1, 1500) as i",
        "create index on t (number)",
        "create index on t (letters, id)",
        "alter table t add column late text",
        "insert into t select i, nullif(i * 7 % 41, 0), null, -i, null, 'same   ', null, null, null, '', 'late ' || i % 3
            from generate_series(1501, 2000) as i",
        "delete from t where id % 50 = 0",
    ] {
        assert!(run(&mut connection, text).is_empty(), "{text}");
    }
    check_all(&mut connection);
    // Versions of other transactions: their older ones count, their new rows don't.
    let mut other = Connection::new(db.clone(), 0, &[("user".into(), "postgres".into())]).unwrap();
    let before = run(&mut connection, "select * from t order by id");
    for text in [
        "begin",
        "update t set number = number + 1, letters = 'changed' where id % 3 = 0",
        "delete from t where id % 7 = 0",
        "insert into t (id, number) select i, 5 from generate_series(3000, 3100) as i",
    ] {
        assert!(run(&mut other, text).is_empty(), "{text}");
    }
    assert!(run(&mut connection, "select * from t order by id") == before);
    check_all(&mut connection);
    assert!(run(&mut other, "commit").is_empty());
    assert!(run(&mut connection, "select * from t order by id") != before);
    check_all(&mut connection);
    drop((connection, other));
    db.close().unwrap();
    std::fs::remove_dir_all(&folder).ok();
}
