//! Does Homenode answer random statements as PostgreSQL does? Both run the same ones, made by a seed (`python/differential.py`): queries
//! with joins, subqueries, groups, windows and set operations, changes, and wrong statements.
//!
//! `HOMENODE_TEST_SEEDS=200-300` tries others than the few that every run has.

mod common;

use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use common::{Server, Settings, rounds, run};

fn seeds() -> RangeInclusive<u64> {
    let Ok(text) = std::env::var("HOMENODE_TEST_SEEDS") else { return 1..=rounds(12, 3) as u64 };
    let (first, last) = text.split_once('-').unwrap_or((&text, &text));
    first.parse().unwrap()..=last.parse().unwrap()
}

/// A PostgreSQL, by the script that understands Homenode's command line.
fn postgres() -> Server {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/postgres");
    let wrapper = ["sh", "-c", "shift; exec \"$0\" \"$@\"", script].map(str::to_owned).to_vec();
    Server::with(Settings { wrapper, ..Settings::default() })
}

#[test]
fn random_statements_have_postgresqls_answers() {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        // Only root can start a PostgreSQL as the user that it asks for.
        eprintln!("left out: not root");
        return;
    }
    let postgres = postgres();
    let homenode = Server::start();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/differential.py");
    for seed in seeds() {
        for server in [&homenode, &postgres] {
            server.psql(&["-q"], "set client_min_messages = error; drop table if exists a, b, c").ok();
        }
        let ports = [homenode.port(), postgres.port()].map(|port| port.to_string());
        let arguments = [script, &ports[0], &ports[1], &seed.to_string(), "500"];
        // Debian's Python has Debian's psycopg2.
        let done = run(Command::new("/usr/bin/python3").args(arguments), "").ok();
        assert!(done.stdout.starts_with("500 statements"), "{}", done.stdout);
    }
    homenode.assert_alive();
}
