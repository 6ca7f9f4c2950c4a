//! Does an unmodified psql work? Its own commands, errors with their places, COPY from and to files.

mod common;

use std::fs;
use std::process::Command;

use common::{Folder, Server, run};

const SCHEMA: &str = "
    create table branch (id int primary key, name text not null default 'main', opened date);
    create table account (
        id serial primary key,
        branch_id int not null,
        owner varchar(40) not null,
        balance numeric(12, 2) default 0 not null,
        note char(5)
    );
    create index account_branch on account (branch_id);
    create unique index account_owner on account (owner, branch_id);
    create table plain (a bigint, b double precision, c boolean, d timestamp, e bytea);
";

fn server() -> Server {
    let server = Server::start();
    server.psql(&["-q", "-v", "ON_ERROR_STOP=1"], SCHEMA).ok();
    server
}

#[track_caller]
fn lines(server: &Server, command: &str) -> Vec<String> {
    let done = server.psql(&["-A", "-t", "-c", command], "").ok();
    assert_eq!(done.stderr, "", "{command}");
    done.stdout.lines().map(str::to_owned).collect()
}

/// What `\d` says of a relation, without its title and heads.
#[track_caller]
fn described(server: &Server, relation: &str) -> Vec<String> {
    let done = server.psql(&["-A", "-c", &format!("\\d {relation}")], "").ok();
    done.stdout.lines().skip(2).map(str::to_owned).collect()
}

/// All commands of psql 15 that describe something, but those about operators, casts, and functions' and languages' details.
#[test]
fn every_list_is_answered() {
    let server = server();
    server.psql(&["-q", "-c", "create view seen as select id, name from branch"], "").ok();
    for command in [
        "d",
        "d+",
        "d account",
        "d+ account",
        "d seen",
        "d+ seen",
        "da",
        "dA",
        "dA+",
        "dAc",
        "db",
        "dc",
        "dconfig",
        "dD",
        "ddp",
        "des",
        "det",
        "deu",
        "dew",
        "df",
        "dF",
        "dFd",
        "dFp",
        "dFt",
        "dg",
        "dg+",
        "di",
        "di+",
        "dl",
        "dn",
        "dn+",
        "dO",
        "dp",
        "dP",
        "drds",
        "dRp",
        "dRs",
        "ds",
        "ds+",
        "dS",
        "dt",
        "dt+",
        "dT",
        "dT+",
        "du",
        "du+",
        "dv",
        "dv+",
        "dx",
        "dX",
        "dy",
        "l",
        "l+",
        "z",
        "sv seen",
    ] {
        let done = server.psql(&["-c", &format!("\\{command}")], "");
        assert!(!done.stderr.contains("ERROR"), "\\{command}: {}", done.stderr);
    }
}

#[test]
fn lists_of_relations() {
    let server = server();
    let all = lines(&server, "\\d");
    assert_eq!(
        all,
        [
            "public|account|table|postgres",
            "public|account_id_seq|sequence|postgres",
            "public|branch|table|postgres",
            "public|plain|table|postgres"
        ]
    );
    let tables = lines(&server, "\\dt");
    assert_eq!(
        tables,
        ["public|account|table|postgres", "public|branch|table|postgres", "public|plain|table|postgres"]
    );
    assert_eq!(lines(&server, "\\dt b*"), ["public|branch|table|postgres"]);
    assert_eq!(lines(&server, "\\dt public.plain"), ["public|plain|table|postgres"]);
    let indexes = lines(&server, "\\di");
    assert_eq!(
        indexes,
        [
            "public|account_branch|index|postgres|account",
            "public|account_owner|index|postgres|account",
            "public|account_pkey|index|postgres|account",
            "public|branch_pkey|index|postgres|branch"
        ]
    );
    assert_eq!(lines(&server, "\\ds"), ["public|account_id_seq|sequence|postgres"]);
}

#[test]
fn list_of_databases() {
    let server = Server::start();
    let databases = lines(&server, "\\l");
    assert!(databases.iter().any(|line| line.starts_with("postgres|postgres|UTF8|")), "{databases:?}");
    let done = server.psql(&["-l"], "").ok();
    assert!(done.stdout.contains("List of databases"), "{}", done.stdout);
}

#[test]
fn one_table_described() {
    let server = server();
    let account = described(&server, "account");
    assert_eq!(
        account,
        [
            "id|integer||not null|nextval('account_id_seq'::regclass)",
            "branch_id|integer||not null|",
            "owner|character varying(40)||not null|",
            "balance|numeric(12,2)||not null|0",
            "note|character(5)|||",
            "Indexes:",
            "    \"account_pkey\" PRIMARY KEY, btree (id)",
            "    \"account_branch\" btree (branch_id)",
            "    \"account_owner\" UNIQUE, btree (owner, branch_id)"
        ]
    );
    let branch = described(&server, "branch");
    assert_eq!(branch[..3], ["id|integer||not null|", "name|text||not null|'main'::text", "opened|date|||"]);
    let plain = described(&server, "plain");
    assert_eq!(
        plain,
        ["a|bigint|||", "b|double precision|||", "c|boolean|||", "d|timestamp without time zone|||", "e|bytea|||"]
    );
    // Constraints are kept with the table: after a restart they are shown, and hold.
    let mut server = server;
    server.psql(&["-q"], "alter table plain add constraint small check (a < 10), add check (c)").ok();
    server.stop();
    server.restart();
    let checked = described(&server, "plain");
    assert_eq!(checked[5..], ["Check constraints:", "    \"plain_c_check\" CHECK (c)", "    \"small\" CHECK (a < 10)"]);
    let refused = server.psql(&["-c", "insert into plain (a) values (10)"], "");
    assert!(refused.stderr.contains("violates check constraint \"small\""), "{}", refused.stderr);
    let index = server.psql(&["-c", "\\d account_owner"], "").ok();
    assert!(index.stdout.contains("unique, btree, for table \"public.account\""), "{}", index.stdout);
    let missing = server.psql(&["-c", "\\d nothing"], "");
    assert_eq!(missing.stderr, "Did not find any relation named \"nothing\".\n");
    assert!(!missing.status.success());
}

#[test]
fn errors_show_their_place() {
    let server = server();
    for (statement, message, caret) in [
        ("select nothing from branch", "column \"nothing\" does not exist", Some("nothing")),
        ("select * from nowhere", "relation \"nowhere\" does not exist", Some("nowhere")),
        ("select 1 frm branch", "syntax error at or near \"branch\"", Some("branch")),
        ("selec 1", "syntax error at or near \"selec\"", Some("selec")),
        ("select no_such(1)", "function no_such(integer) does not exist", Some("no_such")),
        (
            "insert into branch (id, nme) values (1, 'x')",
            "column \"nme\" of relation \"branch\" does not exist",
            Some("nme"),
        ),
        ("select 'x'::int", "invalid input syntax for type integer: \"x\"", Some("'x'")),
        ("select 1 / 0", "division by zero", None),
        ("create table branch (a int)", "relation \"branch\" already exists", None),
    ] {
        let done = server.psql(&["-c", statement], "");
        assert_eq!(done.status.code(), Some(1), "{statement}");
        let mut lines = done.stderr.lines();
        assert_eq!(lines.next(), Some(format!("ERROR:  {message}").as_str()), "{statement}");
        let Some(word) = caret else { continue };
        let quoted = lines.next().unwrap_or_else(|| panic!("no place: {}", done.stderr));
        let caret = lines.next().and_then(|line| line.find('^')).unwrap_or_else(|| panic!("no caret: {}", done.stderr));
        assert!(quoted.starts_with("LINE 1: ") && quoted[caret..].starts_with(word), "{}", done.stderr);
    }
    // In the second line, after letters of more than one byte.
    let done = server.psql(&[], "select 'äöü€',\n  'ß', wrong;");
    let lines: Vec<&str> = done.stderr.lines().collect();
    assert_eq!(lines, ["ERROR:  column \"wrong\" does not exist", "LINE 2:   'ß', wrong;", "               ^"]);
}

#[test]
fn duplicate_keys_name_constraint_and_value() {
    let server = server();
    let statement = "insert into branch values (7), (8), (7)";
    let done = server.psql(&["-v", "VERBOSITY=verbose", "-c", statement], "");
    for line in [
        "ERROR:  23505: duplicate key value violates unique constraint \"branch_pkey\"",
        "DETAIL:  Key (id)=(7) already exists.",
        "SCHEMA NAME:  public",
        "TABLE NAME:  branch",
        "CONSTRAINT NAME:  branch_pkey",
    ] {
        assert!(done.stderr.lines().any(|found| found == line), "{line} is missing in\n{}", done.stderr);
    }
    assert_eq!(lines(&server, "select count(*) from branch"), ["0"]);
    let done = server.psql(&["-c", "insert into branch values (1, null)"], "");
    assert_eq!(
        done.stderr,
        "ERROR:  null value in column \"name\" of relation \"branch\" violates not-null constraint\n\
         DETAIL:  Failing row contains (1, null, null).\n"
    );
}

#[test]
fn copy_to_and_from_files() {
    let server = server();
    let folder = Folder::new();
    let file = folder.path().join("plain.txt");
    let name = file.to_str().unwrap();
    let rows = "1\t0.5\tt\t2024-02-29 12:30:00\t\\\\x00ff\n-9223372036854775808\t-Infinity\tf\t\\N\t\\N\n\\N\tNaN\t\\N\t1999-12-31 23:59:59.999999\t\\\\x\n";
    fs::write(&file, rows).unwrap();
    assert_eq!(server.psql(&["-c", &format!("\\copy plain from '{name}'")], "").ok().stdout, "COPY 3\n");
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let back = folder.path().join("back.txt");
    server.psql(&["-c", &format!("\\copy plain to '{}'", back.display())], "").ok();
    assert_eq!(sorted(&fs::read_to_string(&back).unwrap()), sorted(rows));
    // CSV with quotes, a line break inside a value, an empty text that is not NULL.
    let csv = "id,name,opened\n1,\"a \"\"quoted\"\" name\",2020-01-01\n2,\"two\nlines\",\n3,\"\",2021-12-31\n";
    let file = folder.path().join("branch.csv");
    fs::write(&file, csv).unwrap();
    server.psql(&["-c", &format!("\\copy branch from '{}' with (format csv, header)", file.display())], "").ok();
    let command = "\\copy (select * from branch order by id) to stdout with (format csv, header)";
    assert_eq!(server.psql(&["-c", command], "").ok().stdout, csv);
    assert_eq!(lines(&server, "select count(*), count(opened) from branch where name = ''"), ["1|1"]);
    // A bad line says where it is, and nothing of the file stays.
    fs::write(&file, "4,four,2020-01-01\n5,five,never\n").unwrap();
    let done = server.psql(&["-c", &format!("\\copy branch from '{}' csv", file.display())], "");
    assert_eq!(
        done.stderr,
        "ERROR:  invalid input syntax for type date: \"never\"\nCONTEXT:  COPY branch, line 2, column opened: \"never\"\n"
    );
    assert_eq!(lines(&server, "select max(id) from branch"), ["3"]);
}

#[test]
fn copy_within_a_script() {
    let server = server();
    let script = "begin;\ncopy branch (id, name) from stdin;\n1\tone\n2\ttwo\n\\.\nselect count(*) from branch;\nrollback;\n\
                  copy branch (id) from stdin;\n9\n\\.\nselect id, name from branch;\n";
    let done = server.psql(&["-A", "-t", "-v", "ON_ERROR_STOP=1"], script).ok();
    assert_eq!(done.stdout, "BEGIN\nCOPY 2\n2\nROLLBACK\nCOPY 1\n9|main\n");
}

#[test]
fn scripts_variables_and_transactions() {
    let server = server();
    let script = "select 6 * 7 as answer, 'x''y' as text \\gset\n\\echo :answer\nselect :answer + 1, :'text';\n\
                  select 1 \\; select 2;\n\\if true\nselect 'yes';\n\\endif\n";
    let done = server.psql(&["-A", "-t"], script).ok();
    assert_eq!(done.stdout, "42\n43|x'y\n1\n2\nyes\n");
    // One transaction for a script that fails at its end.
    let done = server
        .psql(&["-1", "-v", "ON_ERROR_STOP=1"], "insert into branch values (1);\ninsert into branch values (1);\n");
    assert_eq!(done.status.code(), Some(3));
    assert_eq!(lines(&server, "select count(*) from branch"), ["0"]);
    // Statements of one message are one transaction.
    let done = server.psql(&["-c", "insert into branch values (1); insert into branch values (1)"], "");
    assert_eq!(done.status.code(), Some(1));
    assert_eq!(lines(&server, "select count(*) from branch"), ["0"]);
    let script = "begin; insert into branch values (1); select oops; select 1; commit; select count(*) from branch;";
    let done = server.psql(&["-A", "-t"], script);
    assert!(done.stderr.contains("current transaction is aborted, commands ignored until end of transaction block"));
    assert_eq!(done.stdout, "BEGIN\nINSERT 0 1\nROLLBACK\n0\n");
}

#[test]
fn settings_are_seen_by_the_client() {
    let server = Server::start();
    let version = lines(&server, "show server_version");
    assert!(version[0].starts_with(|c: char| c.is_ascii_digit()), "{version:?}");
    assert_eq!(lines(&server, "show server_encoding"), ["UTF8"]);
    assert_eq!(lines(&server, "show standard_conforming_strings"), ["on"]);
    assert_eq!(lines(&server, "set datestyle = 'ISO, MDY'; select '12/31/2020'::date")[1], "2020-12-31");
    let done = server.psql(&["-c", "set datestyle = 'ISO, DMY'"], "");
    assert!(done.stderr.starts_with("ERROR:  DateStyle DMY is not supported"), "{}", done.stderr);
    assert_eq!(lines(&server, "show transaction_isolation"), ["read committed"]);
    let done = server.psql(&["-c", "\\conninfo"], "").ok();
    assert!(done.stdout.contains("connected to database \"postgres\" as user \"postgres\""), "{}", done.stdout);
    let done = server.psql(&["-c", "set no_such_setting = 1"], "");
    assert_eq!(done.stderr, "ERROR:  unrecognized configuration parameter \"no_such_setting\"\n");
}

#[test]
fn settings_come_with_the_connection() {
    let server = Server::start();
    let connect = |options: &str, zone: &str, command: &str| {
        let mut psql = Command::new("psql");
        psql.args([
            "-X",
            "-A",
            "-t",
            "-h",
            "127.0.0.1",
            "-p",
            &server.port().to_string(),
            "-U",
            "postgres",
            "-d",
            "postgres",
        ]);
        run(psql.args(["-c", command]).env("PGOPTIONS", options).env("PGTZ", zone).env("LC_ALL", "C.UTF-8"), "")
    };
    let done =
        connect("-c statement_timeout=123 --lock-timeout=7s", "UTC", "show statement_timeout; show lock_timeout").ok();
    assert_eq!((done.stdout.as_str(), done.stderr.as_str()), ("123ms\n7s\n", ""));
    let done = connect("-c no_such=1", "UTC", "select 1");
    assert!(done.stderr.contains("unrecognized configuration parameter \"no_such\""), "{}", done.stderr);
    // Drivers send their machine's zone unasked.
    let done = connect("", "Europe/Paris", "show timezone").ok();
    assert_eq!(done.stdout, "UTC\n");
    assert_eq!(done.stderr, "WARNING:  time zone \"Europe/Paris\" is not supported; this session's is UTC\n");
}

#[test]
fn foreign_keys_from_both_sides() {
    let server = Server::start();
    let tables = "create table branch (id int primary key, name text unique);
        create table account (id int primary key, branch int references branch on delete cascade, name text references branch (name),
            parent int constraint up references account on update set null);";
    server.psql(&["-q", "-v", "ON_ERROR_STOP=1"], tables).ok();
    let account = described(&server, "account");
    let keys = account.iter().position(|line| line == "Foreign-key constraints:").expect("a list");
    assert_eq!(
        account[keys..],
        [
            "Foreign-key constraints:",
            "    \"account_branch_fkey\" FOREIGN KEY (branch) REFERENCES branch(id) ON DELETE CASCADE",
            "    \"account_name_fkey\" FOREIGN KEY (name) REFERENCES branch(name)",
            "    \"up\" FOREIGN KEY (parent) REFERENCES account(id) ON UPDATE SET NULL",
            "Referenced by:",
            "    TABLE \"account\" CONSTRAINT \"up\" FOREIGN KEY (parent) REFERENCES account(id) ON UPDATE SET NULL",
        ]
    );
    let branch = described(&server, "branch");
    let references = branch.iter().position(|line| line == "Referenced by:").expect("a list");
    assert_eq!(branch[references..].len(), 3, "{branch:?}");
    // They are what they were after a restart.
    let mut server = server;
    server.restart();
    assert_eq!(described(&server, "account"), account);
    common::fails(server.client().batch_execute("insert into account values (1, 1)"), "23503");
}

#[test]
fn views() {
    let mut server = Server::start();
    let made = "create table t (id int primary key, name varchar(20)); create view v (number, name) as select * from t where id > 1;
        insert into t values (1, 'a'), (2, 'b');";
    server.psql(&["-q", "-v", "ON_ERROR_STOP=1"], made).ok();
    assert_eq!(lines(&server, "\\dv"), ["public|v|view|postgres"]);
    assert_eq!(lines(&server, "\\d")[1], "public|v|view|postgres");
    let columns = described(&server, "v");
    assert_eq!(columns, ["number|integer|||", "name|character varying(20)|||"]);
    let text = lines(&server, "select definition from pg_views where viewname = 'v'");
    assert_eq!(text, [" SELECT * FROM t WHERE id > 1;"]);
    assert_eq!(lines(&server, "select pg_get_viewdef('v'::regclass, true)"), text);
    server.restart();
    assert_eq!(described(&server, "v"), columns);
    assert_eq!(lines(&server, "select * from v"), ["2|b"]);
    let mut client = server.client();
    client.batch_execute("insert into v values (3, 'c'); delete from v where name = 'c'").unwrap();
    common::fails(client.batch_execute("alter table t rename column name to title"), "0A000");
    // A view that would come to read itself.
    client.batch_execute("create view w as select number, name from v").unwrap();
    common::fails(client.batch_execute("create or replace view v as select number, name from w"), "42P17");
    // A statement that was planned before notices.
    let planned = client.prepare("select count(*) from v").unwrap();
    assert_eq!(client.query_one(&planned, &[]).unwrap().get::<_, i64>(0), 1);
    client.batch_execute("create or replace view v (number, name) as select id, name from t").unwrap();
    assert_eq!(client.query_one(&planned, &[]).unwrap().get::<_, i64>(0), 2);
}
