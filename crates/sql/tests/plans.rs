//! Are plans what the rows call for, and do all plans of a query give the same rows?

use homenode_engine::{Database, Options};
use homenode_sql::{Connection, Outcome};
use std::path::PathBuf;

struct Fixture {
    folder: PathBuf,
    db: Database,
}

impl Fixture {
    fn new(name: &str) -> Fixture {
        let folder = std::env::temp_dir().join(format!("homenode-plans-{name}-{}", std::process::id()));
        std::fs::remove_dir_all(&folder).ok();
        let options = Options { pool_bytes: 64 << 20, sync: false, huge_pages: false, ..Options::default() };
        Fixture { db: Database::open_with(&folder, options).unwrap(), folder }
    }

    fn connect(&self) -> Connection {
        Connection::new(self.db.clone(), 0, &[("user".into(), "postgres".into())]).unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.db.clone().close().ok();
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

fn try_ask(connection: &mut Connection, statement: &str) -> Result<Vec<String>, String> {
    let mut out: Vec<u8> = Vec::new();
    assert_eq!(connection.simple(statement, &mut out), Outcome::Done, "{statement}");
    let (mut bytes, mut rows) = (&out[..], Vec::new());
    while let [kind, rest @ ..] = bytes {
        let length = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
        let body = &rest[4..length];
        bytes = &rest[length..];
        if *kind == b'E' {
            return Err(String::from_utf8_lossy(body).into_owned());
        }
        if *kind == b'D' {
            let (mut body, mut fields) = (&body[2..], Vec::new());
            while let [a, b, c, d, rest @ ..] = body {
                let length = i32::from_be_bytes([*a, *b, *c, *d]);
                let text = usize::try_from(length).map(|length| &rest[..length]);
                fields.push(text.map_or("NULL".into(), |text| String::from_utf8_lossy(text).into_owned()));
                body = &rest[usize::try_from(length).unwrap_or(0)..];
            }
            rows.push(fields.join("|"));
        }
    }
    Ok(rows)
}

fn ask(connection: &mut Connection, statement: &str) -> Vec<String> {
    try_ask(connection, statement).unwrap_or_else(|error| panic!("{statement}: {error}"))
}

fn plan(connection: &mut Connection, query: &str) -> String {
    ask(connection, &format!("EXPLAIN (COSTS OFF) {query}")).join("\n")
}

/// A table of 20 000 rows, one of 2 000 that it refers to, and one of 5.
fn star(connection: &mut Connection) {
    ask(connection, "CREATE TABLE big (id integer PRIMARY KEY, middle integer, kind integer, filler text)");
    ask(connection, "CREATE TABLE middle (id integer PRIMARY KEY, small integer, name text)");
    ask(connection, "CREATE TABLE small (id integer PRIMARY KEY, name text)");
    ask(
        connection,
        "INSERT INTO big SELECT i, i * 7 % 2000, CASE WHEN i % 100 = 0 THEN 1 ELSE 0 END, 'x' || i
         FROM generate_series(1, 20000) AS i",
    );
    ask(connection, "INSERT INTO middle SELECT i, i % 5, 'm' || i FROM generate_series(0, 1999) AS i");
    ask(connection, "INSERT INTO small SELECT i, 's' || i FROM generate_series(0, 4) AS i");
    ask(connection, "CREATE INDEX big_middle ON big (middle)");
    ask(connection, "CREATE INDEX big_kind ON big (kind)");
    ask(connection, "ANALYZE");
}

#[test]
fn access_paths_follow_the_share_of_rows() {
    let fixture = Fixture::new("access");
    let connection = &mut fixture.connect();
    star(connection);
    let rare = plan(connection, "SELECT filler FROM big WHERE kind = 1");
    assert!(rare.starts_with("Index Scan using big_kind on big"), "{rare}");
    let common = plan(connection, "SELECT filler FROM big WHERE kind = 0");
    assert!(common.starts_with("Seq Scan on big"), "{common}");
    let few = plan(connection, "SELECT filler FROM big WHERE id BETWEEN 5 AND 50");
    assert!(few.starts_with("Index Scan using big_pkey"), "{few}");
    // A row by its key is looked up in a small table too: the plan may outlive its small days.
    let point = plan(connection, "SELECT name FROM small WHERE id = 3");
    assert!(point.starts_with("Index Scan using small_pkey"), "{point}");
    let join =
        plan(connection, "SELECT small.name FROM middle JOIN small ON small.id = middle.small WHERE middle.id = 7");
    assert!(join.starts_with("Nested Loop") && join.contains("using small_pkey"), "{join}");
    ask(connection, "SET enable_indexscan = off");
    let forced = plan(connection, "SELECT filler FROM big WHERE kind = 1");
    assert!(forced.starts_with("Seq Scan on big"), "{forced}");
}

#[test]
fn joins_begin_where_few_rows_are() {
    let fixture = Fixture::new("order");
    let connection = &mut fixture.connect();
    star(connection);
    // Ten rows of the middle table: the big one is looked up by its index.
    let found = plan(connection, "SELECT big.filler FROM big, middle WHERE big.middle = middle.id AND middle.id < 10");
    assert!(found.contains("Nested Loop") && found.contains("Index Scan using big_middle on big"), "{found}");
    // All rows: the smaller side goes into the hash table.
    let found = plan(connection, "SELECT count(*) FROM middle, big WHERE big.middle = middle.id");
    let hash = found.find("Hash\n").unwrap_or_else(|| panic!("{found}"));
    assert!(found[hash..].contains("on middle") && found[..hash].contains("on big"), "{found}");
    // EXISTS is a semi-join, NOT EXISTS an anti-join, and the statement after new statistics is planned anew.
    let exists = "SELECT name FROM middle WHERE EXISTS (SELECT * FROM big WHERE big.middle = middle.id AND kind = 1)";
    let found = plan(connection, exists);
    assert!(found.contains("Semi Join") && !found.contains("SubPlan"), "{found}");
    let found = plan(connection, &exists.replace("WHERE EXISTS", "WHERE NOT EXISTS"));
    assert!(found.contains("Anti Join"), "{found}");
    let found = plan(
        connection,
        "SELECT name FROM middle WHERE id IN (SELECT middle FROM big GROUP BY 1 HAVING count(*) > 10)",
    );
    assert!(found.contains("Semi Join"), "{found}");
}

/// Numbers that look random and are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % count
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }
}

fn condition(random: &mut Random, a: &str, b: &str) -> String {
    let number = random.below(12);
    match random.below(9) {
        0..=3 => format!("{a}.x = {b}.y"),
        4 => format!("{a}.id = {b}.id"),
        5 => format!("{a}.y < {number}"),
        6 => format!("({a}.x = {number} OR {b}.y = {number})"),
        7 => format!("{b}.id BETWEEN {number} AND {}", number + 20),
        _ => format!("{a}.y IS NOT NULL"),
    }
}

fn subquery(random: &mut Random, outer: &str) -> String {
    let table = random.pick(&["t", "u", "v"]);
    let column = random.pick(&["x", "y", "id"]);
    let own = format!("s.x < {}", random.below(12));
    match random.below(7) {
        0 => format!("EXISTS (SELECT 1 FROM {table} s WHERE s.{column} = {outer}.x AND {own})"),
        1 => format!("NOT EXISTS (SELECT * FROM {table} s WHERE s.{column} = {outer}.y AND s.id <> {outer}.id)"),
        2 => format!("{outer}.x IN (SELECT {column} FROM {table} s WHERE {own})"),
        3 => format!("{outer}.x NOT IN (SELECT {column} FROM {table} s WHERE {own} AND {column} IS NOT NULL)"),
        4 => format!("{outer}.id IN (SELECT max(id) FROM {table} s GROUP BY x)"),
        5 => format!(
            "EXISTS (SELECT 1 FROM {table} s, u r WHERE s.id = r.id AND s.x = {outer}.x AND r.y IN (SELECT y FROM v WHERE v.x = {outer}.y))"
        ),
        _ => format!("{outer}.y <= (SELECT avg(s.y) FROM {table} s WHERE s.x = {outer}.x)"),
    }
}

fn query(random: &mut Random) -> String {
    let first = random.pick(&["t", "u", "v"]);
    let mut from = format!("{first} a");
    let mut conditions = Vec::new();
    for alias in ["b", "c"].iter().take(random.below(3) as usize) {
        let table = random.pick(&["t", "u", "v"]);
        let on = condition(random, "a", alias);
        match random.below(3) {
            0 => from.push_str(&format!(" LEFT JOIN {table} {alias} ON {on} AND a.x = {alias}.x")),
            1 => from.push_str(&format!(" JOIN {table} {alias} ON {on}")),
            _ => {
                from.push_str(&format!(" CROSS JOIN {table} {alias}"));
                conditions.push(format!("a.x = {alias}.y"));
                conditions.push(on);
            }
        }
    }
    for _ in 0..random.below(3) {
        conditions.push(condition(random, "a", "a"));
    }
    for _ in 0..random.below(3) {
        conditions.push(subquery(random, "a"));
    }
    let filter = if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) };
    match random.below(3) {
        0 => format!("SELECT a.x, count(*), sum(a.y) FROM {from}{filter} GROUP BY a.x"),
        1 => format!("SELECT DISTINCT a.y FROM {from}{filter}"),
        _ => format!("SELECT a.id, a.x, a.y FROM {from}{filter}"),
    }
}

#[test]
fn every_plan_gives_the_same_rows() {
    let fixture = Fixture::new("random");
    let connection = &mut fixture.connect();
    for (table, rows) in [("t", 60), ("u", 40), ("v", 150)] {
        ask(connection, &format!("CREATE TABLE {table} (id integer PRIMARY KEY, x integer, y integer)"));
        ask(
            connection,
            &format!(
                "INSERT INTO {table} SELECT i, nullif(i * 7 % 13, 5), nullif(i * 11 % 17, 3)
             FROM generate_series(1, {rows}) AS i"
            ),
        );
    }
    ask(connection, "CREATE INDEX ON t (x); CREATE INDEX ON v (y, x)");
    let mut random = Random(1);
    let ways = [
        "SET enable_nestloop = off",
        "SET enable_nestloop = on; SET enable_hashjoin = off",
        "SET enable_hashjoin = off; SET enable_indexscan = off",
        "SET enable_hashjoin = on; SET enable_indexscan = on; ANALYZE",
    ];
    for round in 0..150 {
        let query = query(&mut random);
        let mut first: Option<Vec<String>> = None;
        for way in ways {
            ask(connection, way);
            let mut rows = ask(connection, &query);
            rows.sort();
            match &first {
                None => first = Some(rows),
                Some(first) => assert_eq!(first, &rows, "round {round}, {way}: {query}"),
            }
        }
    }
}
