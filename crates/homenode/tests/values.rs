//! What do values do that don't fit? A clear error with PostgreSQL's SQLSTATE, and nothing of the statement stays.

mod common;

use common::random::Random;
use common::raw::{message, query};
use common::{Server, code, fails, one, rounds};
use postgres::Client;
use postgres::types::ToSql;

fn server() -> (Server, Client) {
    let server = Server::start();
    let mut client = server.client();
    client
        .batch_execute(
            "create table item (
                id int primary key, small smallint, big bigint, exact numeric(6, 2), letters char(3), words varchar(5),
                day date, moment timestamp, truth boolean, bytes bytea, mark uuid, body text);
             insert into item (id, words) values (1, 'one')",
        )
        .unwrap();
    (server, client)
}

#[track_caller]
fn assert_untouched(client: &mut Client) {
    let row = client.query_one("select count(*), min(id), min(words) from item", &[]).unwrap();
    assert_eq!((row.get(0), row.get(1), row.get(2)), (1i64, 1i32, "one"));
}

/// Expressions and the SQLSTATE that PostgreSQL gives for them.
const BAD: &[(&str, &str)] = &[
    ("2147483648::int", "22003"),
    ("32768::smallint", "22003"),
    ("9223372036854775808::bigint", "22003"),
    ("(-9223372036854775808)::bigint - 1", "22003"),
    ("2147483647 + 1", "22003"),
    ("(-2147483648)::int * -1", "22003"),
    ("-(-9223372036854775808)::bigint", "22003"),
    ("abs((-2147483648)::int)", "22003"),
    ("9223372036854775807 * 2", "22003"),
    ("(-9223372036854775808)::bigint / -1", "22003"),
    ("1 / 0", "22012"),
    ("1 % 0", "22012"),
    ("1.0 / 0", "22012"),
    ("1e308::float8 * 10", "22003"),
    ("1e400::float8", "22003"),
    ("1e39::float4", "22003"),
    ("1e10::int", "22003"),
    ("'NaN'::float8::int", "22003"),
    ("12345::numeric(6, 2)", "22003"),
    ("'99999999999'::int", "22003"),
    ("''::int", "22P02"),
    ("'1x'::bigint", "22P02"),
    ("'1.5'::int", "22P02"),
    ("'maybe'::boolean", "22P02"),
    ("'abc'::numeric", "22P02"),
    ("'1,5'::float8", "22P02"),
    ("'2023-02-29'::date", "22008"),
    ("'2023-13-01'::date", "22008"),
    ("'tomorrowish'::date", "22007"),
    ("'25:00:00'::time", "22008"),
    ("'2023-01-01 24:00:01'::timestamp", "22008"),
    ("'999999-01-01 00:00:00'::timestamp", "22008"),
    ("'01234567-89ab'::uuid", "22P02"),
    ("'\\x0'::bytea", "22023"),
    ("'\\xzz'::bytea", "22023"),
    ("chr(0)", "54000"),
    ("U&'\\D800'", "42601"),
    ("substring('abc', 1, -1)", "22011"),
    ("repeat('x', 2000000000)", "54000"),
];

#[test]
fn expressions_out_of_range() {
    let (server, mut client) = server();
    for (expression, expected) in BAD {
        match client.simple_query(&format!("select {expression}")) {
            Ok(_) => panic!("{expression} succeeded, {expected} expected"),
            Err(error) => assert_eq!(code(&error).code(), *expected, "{expression}: {error:?}"),
        }
    }
    assert_untouched(&mut client);
    server.assert_alive();
}

#[test]
fn values_that_columns_cannot_hold() {
    let (server, mut client) = server();
    for (columns, values, expected) in [
        ("id, small", "2, 40000", "22003"),
        ("id, small", "2, '40000'", "22003"),
        ("id", "3000000000", "22003"),
        ("id, big", "2, 1e30", "22003"),
        ("id, exact", "2, 9999.995", "22003"),
        ("id, letters", "2, 'four'", "22001"),
        ("id, words", "2, 'sixsix'", "22001"),
        ("id, day", "2, '2021-02-30'", "22008"),
        ("id, moment", "2, 'noon'", "22007"),
        ("id, truth", "2, 'perhaps'", "22P02"),
        ("id, truth", "2, 7", "42804"),
        ("id, mark", "2, 'x'", "22P02"),
        ("id", "null", "23502"),
        ("id", "1", "23505"),
        ("id, nothing", "2, 2", "42703"),
        ("id", "2, 3", "42601"),
    ] {
        // As a statement of its own, as the last of several rows, and within a transaction.
        fails(client.simple_query(&format!("insert into item ({columns}) values ({values})")), expected);
        let mut transaction = client.transaction().unwrap();
        transaction.execute("insert into item (id) values (50)", &[]).unwrap();
        fails(transaction.simple_query(&format!("insert into item ({columns}) values ({values})")), expected);
        fails(transaction.simple_query("select 1"), "25P02");
        drop(transaction);
        assert_untouched(&mut client);
    }
    // Blanks beyond the length are cut, not refused.
    client.execute("insert into item (id, letters, words) values (2, 'abc   ', 'five    ')", &[]).unwrap();
    assert_eq!(one::<i32>(&mut client, "select length(words) from item where id = 2"), 5);
    fails(client.simple_query("update item set words = words || 'x' where id = 2"), "22001");
    fails(client.simple_query("update item set id = id + 2147483646"), "22003");
    assert_eq!(one::<i64>(&mut client, "select sum(id) from item"), 3);
    server.assert_alive();
}

#[test]
fn a_failed_statement_leaves_nothing() {
    let (_server, mut client) = server();
    client.batch_execute("create unique index item_words on item (words)").unwrap();
    // The last of many rows is the bad one.
    let rows: Vec<String> = (10..1000).map(|id| format!("({id}, 'w{id}')")).collect();
    let rows = rows.join(", ");
    for (last, expected) in
        [("(10, 'x')", "23505"), ("(5000, 'w500')", "23505"), ("(5000, 'toolong')", "22001"), ("(null, 'x')", "23502")]
    {
        fails(client.simple_query(&format!("insert into item (id, words) values {rows}, {last}")), expected);
        assert_untouched(&mut client);
    }
    fails(
        client.simple_query("insert into item (id, big) select n, 1000 / (n - 500) from generate_series(2, 600) as n"),
        "22012",
    );
    assert_untouched(&mut client);
    client
        .execute("insert into item (id, words, big) select n, 'w' || n::text, n from generate_series(2, 500) as n", &[])
        .unwrap();
    // An update that fails late is undone in the table and in each index.
    fails(client.simple_query("update item set words = 'v' || id::text, big = 1 / (500 - id)"), "22012");
    assert_eq!(one::<i64>(&mut client, "select count(*) from item where words = 'w' || id::text and big = id"), 499);
    assert_eq!(one::<i64>(&mut client, "select count(*) from item where words = 'v7'"), 0);
    assert_eq!(one::<i64>(&mut client, "select count(*) from item where words = 'w7'"), 1);
    fails(client.simple_query("update item set words = 'same' where id > 400"), "23505");
    fails(client.simple_query("update item set id = 7 where id = 8"), "23505");
    assert_eq!(one::<i64>(&mut client, "select count(*) from item where words = 'w' || id::text and big = id"), 499);
    fails(client.simple_query("delete from item where 1 / (id - 300) > -5000"), "22012");
    assert_eq!(one::<i64>(&mut client, "select count(*) from item"), 500);
    // A savepoint keeps what was before the failure.
    client.batch_execute("begin; delete from item where id > 100; savepoint s").unwrap();
    fails(client.simple_query("insert into item (id) values (200), (1)"), "23505");
    client.batch_execute("rollback to s; insert into item (id) values (200); commit").unwrap();
    assert_eq!(one::<i64>(&mut client, "select count(*) from item"), 101);
}

#[test]
fn badly_encoded_texts() {
    let (server, mut client) = server();
    let mut raw = server.raw();
    for bytes in [
        &b"\xff"[..],
        b"\xc3",
        b"\xc3(",
        b"\xe2\x82",
        b"\xed\xa0\x80",
        b"\xc0\x80",
        b"\xf5\x80\x80\x80",
        b"\xf4\x90\x80\x80",
    ] {
        let text = [b"insert into item (id, words) values (2, '", bytes, b"')\0"].concat();
        raw.send(&message(b'Q', &text));
        assert_eq!(raw.error_until_ready(), "22021", "{bytes:?}");
        raw.send(&query("copy item (id, words) from stdin"));
        assert_eq!(raw.receive().unwrap().tag, b'G');
        raw.send(&[message(b'd', &[b"2\t", bytes, b"\n"].concat()), message(b'c', b"")].concat());
        assert_eq!(raw.error_until_ready(), "22021", "{bytes:?}");
    }
    fails(client.execute("insert into item (id, words) values (2, $1)", &[&"a\0b"]), "22021");
    assert_untouched(&mut client);
}

#[test]
fn copies_with_bad_lines() {
    let (server, mut client) = server();
    let mut raw = server.raw();
    for (line, expected) in [
        ("x\tword", "22P02"),
        ("1\tword", "23505"),
        ("9999999999\tword", "22003"),
        ("2", "22P04"),
        ("2\tword\tmore", "22P04"),
        ("\\N\tword", "23502"),
        ("2\ttoo long", "22001"),
        ("", "22P02"),
    ] {
        raw.send(&query("copy item (id, words) from stdin"));
        assert_eq!(raw.receive().unwrap().tag, b'G');
        let good: String = (100..600).map(|id| format!("{id}\tw\n")).collect();
        raw.send(
            &[message(b'd', good.as_bytes()), message(b'd', format!("{line}\n").as_bytes()), message(b'c', b"")]
                .concat(),
        );
        let answers = raw.until_ready();
        let error = answers.iter().find(|answer| answer.tag == b'E').unwrap_or_else(|| panic!("{line:?} was taken"));
        assert_eq!(error.code(), expected, "{line:?}");
        let context = error.field(b'W').unwrap_or_default();
        assert!(context.starts_with("COPY item, line 501"), "{line:?}: {context:?}");
        assert_untouched(&mut client);
    }
}

#[test]
fn parameters_that_do_not_fit() {
    let (server, mut client) = server();
    let word = "x".repeat(6);
    let cases: [(&str, &(dyn ToSql + Sync), &str); 6] = [
        ("insert into item (id, words) values (2, $1)", &word, "22001"),
        ("insert into item (id, letters) values (2, $1)", &word, "22001"),
        ("insert into item (id) values ($1)", &1i32, "23505"),
        ("insert into item (id) values ($1)", &None::<i32>, "23502"),
        ("update item set id = id / $1", &0i32, "22012"),
        ("update item set small = $1::int + 1", &32767i32, "22003"),
    ];
    for (text, value, expected) in cases {
        fails(client.execute(text, &[value]), expected);
        let statement = client.prepare(text).unwrap();
        fails(client.execute(&statement, &[value]), expected);
        assert_untouched(&mut client);
    }
    // Texts as parameters are checked as literals are.
    let mut raw = server.raw();
    for (kind, text, expected) in
        [("int", "x", "22P02"), ("int", "2147483648", "22003"), ("date", "2021-02-29", "22008"), ("bool", "", "22P02")]
    {
        let statement = common::raw::parse("", &format!("select $1::{kind}"));
        let bind = common::raw::bind("", "", 0, &[Some(text.as_bytes())]);
        raw.send(&[statement, bind, common::raw::execute("", 0), common::raw::sync()].concat());
        assert_eq!(raw.error_until_ready(), expected);
    }
    assert_untouched(&mut client);
}

/// A text of so many bytes, another one for each `turn`.
fn long_text(length: usize, turn: usize) -> String {
    (0..length).map(|n| char::from(b'a' + ((n + turn + n / 1000) % 26) as u8)).collect()
}

#[test]
fn long_values_come_and_go_by_every_way() {
    let (server, mut client) = server();
    let lengths = [100usize, 3000, 4000, 4100, 5000, 16_000, 65_535, 65_536, 100_000, 2_000_000, 20_000_000];
    for length in lengths {
        let (id, body, bytes) = (length as i32, long_text(length, 0), long_text(length / 3, 5).into_bytes());
        let text = "insert into item (id, body, bytes) values ($1, $2, $3) returning length(body)";
        assert_eq!(client.query_one(text, &[&id, &body, &bytes]).unwrap().get::<_, i32>(0), id);
        let row = client.query_one("select body, bytes, length(body) from item where id = $1", &[&id]).unwrap();
        assert!(row.get::<_, &str>(0) == body && row.get::<_, &[u8]>(1) == bytes && row.get::<_, i32>(2) == id);
        // A number beside it, the value itself, its end, and back to a short one.
        assert_eq!(client.execute("update item set small = 1 where id = $1", &[&id]).unwrap(), 1);
        assert_eq!(client.execute("update item set body = body || 'end' where id = $1", &[&id]).unwrap(), 1);
        let row = client.query_one("select body, small from item where id = $1", &[&id]).unwrap();
        assert!(row.get::<_, &str>(0) == format!("{body}end") && row.get::<_, i16>(1) == 1);
        let mut transaction = client.transaction().unwrap();
        transaction.execute("update item set body = 'short', bytes = null where id = $1", &[&id]).unwrap();
        transaction.execute("delete from item where id = $1", &[&id]).unwrap();
        transaction.rollback().unwrap();
    }
    let total: i64 = lengths.iter().map(|length| *length as i64 + 3).sum();
    assert_eq!(one::<i64>(&mut client, "select sum(length(body)) from item where id > 1"), total);
    assert_eq!(one::<i64>(&mut client, "select count(*) from item where body like '%end' and small = 1"), 11);
    // Out and in again by COPY: text and CSV, into a new table and into one with rows and an index.
    let columns = "(id int, small smallint, big bigint, exact numeric(6, 2), letters char(3), words varchar(5), day date, \
                   moment timestamp, truth boolean, bytes bytea, mark uuid, body text)";
    client.batch_execute(&format!("create table again {columns}; create index again_small on again (small)")).unwrap();
    for format in ["text", "csv"] {
        let mut data = Vec::new();
        let command = format!("copy item to stdout (format {format})");
        std::io::Read::read_to_end(&mut client.copy_out(&command).unwrap(), &mut data).unwrap();
        let mut transaction = client.transaction().unwrap();
        transaction.batch_execute(&format!("create table fresh {columns}")).unwrap();
        for table in ["again", "fresh"] {
            let mut sink = transaction.copy_in(&format!("copy {table} from stdin (format {format})")).unwrap();
            std::io::Write::write_all(&mut sink, &data).unwrap();
            assert_eq!(sink.finish().unwrap(), 12);
            let same = format!("select count(*) from item join {table} using (id, body) where {table}.small = 1");
            assert_eq!(transaction.query_one(&same, &[]).unwrap().get::<_, i64>(0), 11);
        }
        transaction.rollback().unwrap();
    }
    let lines = client.simple_query("select id, body from item where id > 60000 order by length(body) desc").unwrap();
    let widths = lines.iter().filter_map(|line| match line {
        postgres::SimpleQueryMessage::Row(row) => Some(row.get(1).unwrap().len()),
        _ => None,
    });
    assert!(widths.eq([20_000_003, 2_000_003, 100_003, 65_539, 65_538]));
    assert_eq!(client.execute("delete from item where id > 1", &[]).unwrap(), 11);
    assert_untouched(&mut client);
    server.assert_alive();
}

#[test]
fn long_keys_are_found_or_refused() {
    let (server, mut client) = server();
    client.batch_execute("create table word (w text primary key)").unwrap();
    for length in [100usize, 1000, 2000, 3000, 10_000] {
        // What doesn't compress away: PostgreSQL measures keys after compression.
        let mut random = Random::new(length as u64);
        let word: String = (0..length).map(|_| char::from(b'a' + random.below(26) as u8)).collect();
        match client.execute("insert into word values ($1)", &[&word]) {
            Ok(_) => assert_eq!(client.query("select 1 from word where w = $1", &[&word]).unwrap().len(), 1),
            Err(error) => {
                assert_eq!(code(&error).code(), "54000", "{error:?}");
                assert!(length > 1000, "a key of {length} bytes is refused");
            }
        }
    }
    server.assert_alive();
}

#[test]
fn random_values_come_back_as_they_went() {
    let (_server, mut client) = server();
    client
        .batch_execute(
            "create table sample (n int primary key, a smallint, b int, c bigint, d float4, e float8, f text, g bytea, h bool);
             create index sample_c on sample (c); create index sample_f on sample (f)",
        )
        .unwrap();
    let mut random = Random::new(42);
    let insert = client.prepare("insert into sample values ($1, $2, $3, $4, $5, $6, $7, $8, $9)").unwrap();
    let edges = [i64::MIN, i64::MAX, 0, -1, 1, i64::from(i32::MIN), i64::from(i32::MAX), 255, -256];
    let letters: Vec<char> = "aäßz'\"\\\t\n%_\u{1}€世\u{1f600}\u{10ffff} ".chars().collect();
    for n in 0..rounds(2000, 300) as i32 {
        let number = if random.below(3) == 0 { *random.pick(&edges) } else { random.next() as i64 };
        let bits = random.next();
        let (single, double) = (f32::from_bits(bits as u32), f64::from_bits(random.next()));
        let text: String = (0..random.below(60)).map(|_| *random.pick(&letters)).collect();
        let text = (random.below(10) > 0).then_some(text);
        let bytes: Vec<u8> = (0..random.below(300)).map(|_| random.next() as u8).collect();
        let truth = (random.below(3) > 0).then_some(bits & 1 == 1);
        let (small, int) = (number as i16, number as i32);
        client.execute(&insert, &[&n, &small, &int, &number, &single, &double, &text, &bytes, &truth]).unwrap();
        // By key in binary, and by the indexes.
        let row = client.query_one("select * from sample where n = $1 and c = $2", &[&n, &number]).unwrap();
        assert_eq!((row.get(1), row.get(2), row.get(3)), (small, int, number));
        let (d, e) = (row.get::<_, f32>(4), row.get::<_, f64>(5));
        assert!(d.is_nan() && single.is_nan() || d.to_bits() == single.to_bits(), "{single} came back as {d}");
        assert!(e.is_nan() && double.is_nan() || e.to_bits() == double.to_bits(), "{double} came back as {e}");
        assert_eq!((row.get(6), row.get(7), row.get(8)), (text.clone(), bytes, truth));
        assert!(!client.query("select n from sample where c = $1", &[&number]).unwrap().is_empty());
        if let Some(text) = text {
            let found = client.query("select n from sample where f = $1", &[&text]).unwrap();
            assert!(found.iter().any(|row| row.get::<_, i32>(0) == n), "{text:?} isn't found");
        }
        // And as text.
        let messages = client.simple_query(&format!("select c, e from sample where n = {n}")).unwrap();
        let row = messages
            .iter()
            .find_map(|message| match message {
                postgres::SimpleQueryMessage::Row(row) => Some(row),
                _ => None,
            })
            .unwrap();
        assert_eq!(row.get(0), Some(number.to_string().as_str()));
        let text: f64 = row.get(1).unwrap().replace("Infinity", "inf").parse().unwrap();
        assert!(text.is_nan() && double.is_nan() || text.to_bits() == double.to_bits(), "{double} as {text}");
    }
}
