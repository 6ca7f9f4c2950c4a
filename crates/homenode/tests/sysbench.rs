//! Does an unmodified sysbench work? Each of its OLTP scripts, with prepared statements and without.

mod common;

use std::process::Command;

use common::{Done, Server, one, rounds, run};

const TABLES: usize = 2;
const ROWS: i64 = 2000;

fn sysbench(server: &Server, script: &str, arguments: &[&str], command: &str) -> Done {
    let port = format!("--pgsql-port={}", server.port());
    let (tables, rows) = (format!("--tables={TABLES}"), format!("--table-size={ROWS}"));
    let mut program = Command::new("sysbench");
    program.args([
        "--db-driver=pgsql",
        "--pgsql-host=127.0.0.1",
        &port,
        "--pgsql-user=postgres",
        "--pgsql-db=postgres",
    ]);
    program.args([&tables, &rows, "--threads=4", "--rand-type=uniform"]).args(arguments).args([script, command]);
    run(&mut program, "")
}

fn rows(server: &Server) -> i64 {
    let mut client = server.client();
    (1..=TABLES).map(|table| one::<i64>(&mut client, &format!("select count(*) from sbtest{table}"))).sum()
}

/// Runs a script for a number of events and returns the rows there were before and are after.
fn run_script(script: &str) {
    let server = Server::start();
    let events = rounds(400, 80) as i64;
    let events_argument = format!("--events={events}");
    for mode in ["auto", "disable"] {
        sysbench(&server, script, &[], "prepare").ok();
        assert_eq!(rows(&server), TABLES as i64 * ROWS);
        let mut client = server.client();
        let sum = "select sum(k::bigint)::bigint from sbtest1";
        let sum_before: i64 = one(&mut client, sum);
        let mode_argument = format!("--db-ps-mode={mode}");
        let done = sysbench(&server, script, &["--time=60", &events_argument, &mode_argument], "run").ok();
        let figure = |name: &str| -> i64 {
            let line = done.stdout.lines().find_map(|line| line.trim().strip_prefix(name));
            let words = line.unwrap_or_else(|| panic!("no {name:?} in\n{}", done.stdout));
            words.split_whitespace().next().unwrap().parse().unwrap()
        };
        assert_eq!(figure("total number of events:"), events, "{script} {mode}");
        assert!(figure("transactions:") >= events, "{}", done.stdout);
        let after = rows(&server);
        match script {
            "oltp_insert" => assert_eq!(after, TABLES as i64 * ROWS + events),
            "oltp_delete" => assert!(after < TABLES as i64 * ROWS && after >= TABLES as i64 * ROWS - events, "{after}"),
            _ => assert_eq!(after, TABLES as i64 * ROWS),
        }
        let sum_after: i64 = one(&mut client, sum);
        match script {
            "oltp_point_select" | "oltp_read_only" | "oltp_update_non_index" => assert_eq!(sum_after, sum_before),
            "oltp_update_index" => assert!(sum_after > sum_before && sum_after <= sum_before + events),
            _ => {}
        }
        // The index agrees with the table.
        for table in 1..=TABLES {
            let by_index = format!("select count(*) from sbtest{table} where k between -2000000000 and 2000000000");
            let all = format!("select count(*) from sbtest{table}");
            assert_eq!(one::<i64>(&mut client, &by_index), one::<i64>(&mut client, &all));
        }
        sysbench(&server, script, &[], "cleanup").ok();
    }
}

#[test]
fn oltp_point_select() {
    run_script("oltp_point_select");
}

#[test]
fn oltp_read_only() {
    run_script("oltp_read_only");
}

#[test]
fn oltp_read_write() {
    run_script("oltp_read_write");
}

#[test]
fn oltp_update_index() {
    run_script("oltp_update_index");
}

#[test]
fn oltp_update_non_index() {
    run_script("oltp_update_non_index");
}

#[test]
fn oltp_insert() {
    run_script("oltp_insert");
}

#[test]
fn oltp_delete() {
    run_script("oltp_delete");
}
