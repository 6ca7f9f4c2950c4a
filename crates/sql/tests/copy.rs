//! Does COPY's binary format come and go as PostgreSQL's does, and what do its options do?

use homenode_engine::{Database, Options};
use homenode_sql::{Connection, Outcome};

/// What PostgreSQL 15 writes for `COPY (select ...) TO STDOUT (FORMAT binary)` of the query below.
const POSTGRESQLS: &str = "5047434f50590aff0d0a00000000000000000000070000000400000007000000026162ffffffff0000000c00020000000000\
    010001138800000009017b2261223a20317d0000002400000001000000000000001700000002000000010000000400000001\
    00000004000000020000000400001c89ffff";
const QUERY: &str = "select 7, 'ab'::text, null::int, 1.5::numeric, '{\"a\":1}'::jsonb, array[1,2], '2020-01-01'::date";

struct Client {
    connection: Connection,
}

impl Client {
    /// Messages of a statement: their kinds and bodies.
    fn run(&mut self, sql: &str) -> Vec<(u8, Vec<u8>)> {
        let mut out: Vec<u8> = Vec::new();
        self.connection.simple(sql, &mut out);
        messages(&out)
    }

    fn copied(&mut self, sql: &str) -> Vec<u8> {
        let rows = self.run(sql).into_iter().filter(|(kind, _)| *kind == b'd');
        rows.flat_map(|(_, body)| body).collect()
    }

    /// Sends data in pieces of `piece` bytes; the number of rows, or the error's fields.
    fn send(&mut self, sql: &str, data: &[u8], piece: usize) -> Result<String, String> {
        let mut out: Vec<u8> = Vec::new();
        assert_eq!(self.connection.simple(sql, &mut out), Outcome::CopyIn, "{sql}");
        out.clear();
        for piece in data.chunks(piece) {
            if let Err(error) = self.connection.copy_data(piece) {
                self.connection.copy_fail("", &mut out);
                return Err(format!("{}: {}", error.code, error.message));
            }
        }
        self.connection.copy_done(&mut out);
        let (kind, body) = messages(&out).into_iter().find(|(kind, _)| matches!(kind, b'C' | b'E')).unwrap();
        let text = String::from_utf8_lossy(&body).into_owned();
        if kind == b'C' { Ok(text.trim_end_matches('\0').into()) } else { Err(text) }
    }

    fn rows(&mut self, sql: &str) -> Vec<String> {
        String::from_utf8(self.copied(&format!("copy ({sql}) to stdout"))).unwrap().lines().map(String::from).collect()
    }
}

fn messages(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut found = Vec::new();
    while let [kind, rest @ ..] = bytes {
        let length = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
        found.push((*kind, rest[4..length].to_vec()));
        bytes = &rest[length..];
    }
    found
}

fn with_client(name: &str, test: impl FnOnce(&mut Client)) {
    let folder = std::env::temp_dir().join(format!("homenode-copy-{name}-{}", std::process::id()));
    std::fs::remove_dir_all(&folder).ok();
    let options = Options { pool_bytes: 32 << 20, sync: false, huge_pages: false, ..Options::default() };
    let db = Database::open_with(&folder, options).unwrap();
    let connection = Connection::new(db.clone(), 0, &[("user".into(), "postgres".into())]).unwrap();
    let mut client = Client { connection };
    test(&mut client);
    drop(client);
    db.close().unwrap();
    std::fs::remove_dir_all(&folder).ok();
}

#[test]
fn binary_is_postgresqls_and_comes_back_in_pieces_of_any_size() {
    with_client("binary", |client| {
        let data = client.copied(&format!("copy ({QUERY}) to stdout (format binary)"));
        let shown: String = data.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(shown, POSTGRESQLS);
        client.run("create table t (i int, s varchar(3), n int, d numeric(6,2), j jsonb, w date)");
        let columns = "select i, s, n, d, j, w from (values (1, 'abc', null::int, 12.34, '[1]'::jsonb, '2020-01-01'::date), \
                       (-2, '', 5, 0.00, null, 'infinity')) v(i, s, n, d, j, w)";
        let data = client.copied(&format!("copy ({columns}) to stdout binary"));
        for piece in [1, 7, 1000] {
            client.run("truncate t");
            assert_eq!(client.send("copy t from stdin with (format 'binary')", &data, piece).unwrap(), "COPY 2");
            assert_eq!(
                client.rows("select * from t order by i desc"),
                ["1\tabc\t\\N\t12.34\t[1]\t2020-01-01", "-2\t\t5\t0.00\t\\N\tinfinity"]
            );
        }
        for cut in [0, 10, 18, 25, data.len() - 1] {
            let error = client.send("copy t from stdin binary", &data[..cut], 1000).unwrap_err();
            assert!(error.contains("unexpected EOF in COPY data"), "{cut}: {error}");
        }
        client.run("truncate t");
        let without_trailer = &data[..data.len() - 2];
        assert_eq!(client.send("copy t from stdin binary", without_trailer, 1000).unwrap(), "COPY 2");
        let error = client.send("copy t (i) from stdin binary", &data, 1000).unwrap_err();
        assert_eq!(error, "22P04: row field count is 6, expected 1");
        let error = client.send("copy t from stdin binary", b"1\tabc\n", 1000).unwrap_err();
        assert_eq!(error, "22P04: COPY file signature not recognized");
        let long = client.copied("copy (select 1, 'abcd', 1, 1.0, '1'::jsonb, current_date) to stdout binary");
        let error = client.send("copy t from stdin binary", &long, 1000).unwrap_err();
        assert_eq!(error, "22001: value too long for type character varying(3)");
        assert_eq!(client.rows("select count(*) from t"), ["2"]);
    });
}

#[test]
fn csv_options_force_quotes_and_nulls_and_match_headers() {
    with_client("options", |client| {
        client.run("create table t (a text, b text)");
        let send = |client: &mut Client, options: &str, data: &str| {
            client.run("truncate t");
            client.send(&format!("copy t from stdin ({options})"), data.as_bytes(), 1000)?;
            Ok::<_, String>(client.rows("select a, b from t"))
        };
        let all = |client: &mut Client, options: &str| client.rows_csv(options);
        assert_eq!(send(client, "format csv", ",\"\"\n").unwrap(), ["\\N\t"]);
        assert_eq!(send(client, "format csv, force_not_null (a), force_null (b)", ",\"\"\n").unwrap(), ["\t\\N"]);
        assert_eq!(send(client, "format csv, header match", "a,b\n1,2\n").unwrap(), ["1\t2"]);
        assert_eq!(send(client, "header match", "a\tb\n1\t2\n").unwrap(), ["1\t2"]);
        assert_eq!(
            send(client, "format csv, header match", "a,c\n1,2\n").unwrap_err(),
            "22P04: column name mismatch in header line field 2: got \"c\", expected \"b\""
        );
        assert_eq!(
            send(client, "format csv, header match", "a\n").unwrap_err(),
            "22P04: wrong number of fields in header line: got 1, expected 2"
        );
        assert_eq!(send(client, "format csv", "1,2\n").unwrap(), ["1\t2"]);
        assert_eq!(all(client, "format csv, force_quote (b)"), "1,\"2\"\n");
        assert_eq!(all(client, "format csv, force_quote *"), "\"1\",\"2\"\n");
        let error = client.run("copy t to stdout (force_quote *)");
        assert!(error.iter().any(|(kind, _)| *kind == b'E'));
    });
}

impl Client {
    fn rows_csv(&mut self, options: &str) -> String {
        String::from_utf8(self.copied(&format!("copy t to stdout ({options})"))).unwrap()
    }
}
