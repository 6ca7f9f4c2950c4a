//! Does an unmodified pgbench work? Both ways to fill the tables, every built-in script in every mode, pipelines; and do the
//! balances add up afterwards?

mod common;

use std::fs;
use std::process::Command;

use common::{Done, Folder, Server, one, rounds, run};

/// pgbench is where Debian's package puts it, or on the path.
fn pgbench(server: &Server, arguments: &[&str]) -> Done {
    run(&mut command(server, arguments), "")
}

fn command(server: &Server, arguments: &[&str]) -> Command {
    let mut command = Command::new("pgbench");
    command.args(["-h", "127.0.0.1", "-p", &server.port().to_string(), "-U", "postgres"]);
    command.args(arguments).arg("postgres").env_remove("PGOPTIONS");
    command
}

fn filled() -> Server {
    let server = Server::start();
    pgbench(&server, &["-i", "-q"]).ok();
    server
}

/// Transactions that a run reports, none of them failed.
#[track_caller]
fn transactions(done: &Done) -> i64 {
    assert!(done.stdout.contains("number of failed transactions: 0 "), "{}\n{}", done.stdout, done.stderr);
    let line = done.stdout.lines().find_map(|line| line.strip_prefix("number of transactions actually processed: "));
    line.unwrap().split('/').next().unwrap().trim().parse().unwrap()
}

/// What accounts, tellers, branches and history must agree on. Simple-update leaves tellers and branches alone.
#[track_caller]
fn assert_adds_up(server: &Server, history_rows: i64, tellers_too: bool) {
    let mut client = server.client();
    assert_eq!(one::<i64>(&mut client, "select count(*) from pgbench_history"), history_rows);
    let accounts: i64 = one(&mut client, "select sum(abalance) from pgbench_accounts");
    assert_eq!(one::<i64>(&mut client, "select coalesce(sum(delta), 0)::bigint from pgbench_history"), accounts);
    let scripts = if tellers_too { accounts } else { 0 };
    assert_eq!(one::<i64>(&mut client, "select sum(tbalance) from pgbench_tellers"), scripts);
    assert_eq!(one::<i64>(&mut client, "select sum(bbalance) from pgbench_branches"), scripts);
}

#[test]
fn tables_filled_by_client_and_by_server() {
    let server = Server::start();
    for steps in ["dtgvp", "dtGvp"] {
        let done = pgbench(&server, &["-i", "-I", steps, "-s", "2"]).ok();
        assert!(done.stderr.contains("done in "), "{}", done.stderr);
        let mut client = server.client();
        let row = client
            .query_one(
                "select count(*), count(distinct bid), min(aid), max(aid), sum(abalance) from pgbench_accounts",
                &[],
            )
            .unwrap();
        assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (200_000, 2));
        assert_eq!((row.get::<_, i32>(2), row.get::<_, i32>(3), row.get::<_, i64>(4)), (1, 200_000, 0));
        let wrong = "select count(*) from pgbench_accounts where bid <> (aid - 1) / 100000 + 1 or filler <> ''";
        assert_eq!(one::<i64>(&mut client, wrong), 0);
        assert_eq!(one::<i64>(&mut client, "select count(*) from pgbench_tellers"), 20);
        assert_eq!(one::<i64>(&mut client, "select count(*) from pgbench_branches"), 2);
        common::fails(client.simple_query("insert into pgbench_accounts values (77, 1, 0, '')"), "23505");
    }
    // Foreign keys; every transaction writes rows that refer and rows that are referred to.
    pgbench(&server, &["-i", "-q", "--foreign-keys"]).ok();
    let mut client = server.client();
    assert_eq!(one::<i64>(&mut client, "select count(*) from pg_constraint where contype = 'f'"), 5);
    for mode in ["simple", "prepared"] {
        pgbench(&server, &["-M", mode, "-c", "4", "-j", "2", "-t", "50", "-n"]).ok();
    }
    assert_eq!(one::<i64>(&mut client, "select count(*) from pgbench_history"), 400);
    common::fails(client.simple_query("insert into pgbench_history (bid) values (2)"), "23503");
    // Tables with the settings that pgbench offers.
    pgbench(&server, &["-i", "-q", "--unlogged-tables", "--fillfactor=80"]).ok();
}

#[test]
fn built_in_scripts_in_every_mode() {
    let server = filled();
    let count = rounds(100, 20).to_string();
    for (script, tellers_too) in [("select-only", true), ("tpcb-like", true), ("simple-update", false)] {
        pgbench(&server, &["-i", "-q", "-I", "dtgvp"]).ok();
        let mut history_rows = 0;
        for mode in ["simple", "extended", "prepared"] {
            let done = pgbench(&server, &["-b", script, "-M", mode, "-c", "4", "-j", "2", "-t", &count, "-n"]).ok();
            let processed = transactions(&done);
            assert_eq!(processed, 4 * count.parse::<i64>().unwrap());
            if script != "select-only" {
                history_rows += processed;
            }
            assert_adds_up(&server, history_rows, tellers_too);
        }
    }
    // With vacuum, latencies and a connection for each transaction.
    let done = pgbench(&server, &["-c", "2", "-t", "10", "-C", "-r"]).ok();
    assert_eq!(transactions(&done), 20);
}

#[test]
fn pipelines() {
    let server = filled();
    let folder = Folder::new();
    let script = folder.path().join("pipeline.sql");
    fs::write(
        &script,
        "\\set aid random(1, 100000)\n\\set delta random(-5000, 5000)\n\\startpipeline\nbegin;\n\
         update pgbench_accounts set abalance = abalance + :delta where aid = :aid;\n\
         update pgbench_tellers set tbalance = tbalance + :delta where tid = 1 + :aid % 10;\n\
         update pgbench_branches set bbalance = bbalance + :delta where bid = 1;\n\
         insert into pgbench_history (tid, bid, aid, delta, mtime) values (1, 1, :aid, :delta, current_timestamp);\n\
         commit;\nselect abalance from pgbench_accounts where aid = :aid;\nselect count(*) from pgbench_branches;\n\\endpipeline\n",
    )
    .unwrap();
    let mut history_rows = 0;
    for mode in ["extended", "prepared"] {
        let file = script.to_str().unwrap();
        let done = pgbench(&server, &["-f", file, "-M", mode, "-c", "4", "-j", "2", "-t", "50", "-n"]).ok();
        history_rows += transactions(&done);
        assert_adds_up(&server, history_rows, true);
    }
    assert_eq!(history_rows, 400);
}

#[test]
fn serializable_transactions_are_retried_until_they_pass() {
    let server = filled();
    for level in ["repeatable\\ read", "serializable"] {
        pgbench(&server, &["-i", "-q"]).ok();
        let options = format!("-c default_transaction_isolation={level}");
        let arguments = ["-c", "4", "-j", "2", "-t", "25", "-n", "-M", "prepared", "--max-tries=1000"];
        let done = run(command(&server, &arguments).env("PGOPTIONS", options), "").ok();
        assert_eq!(transactions(&done), 100);
        assert_adds_up(&server, 100, true);
    }
}
