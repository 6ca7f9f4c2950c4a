//! Does a client in another language work? Python's psycopg2, over libpq.

mod common;

use std::process::Command;

use common::{Server, run};

#[test]
fn psycopg2() {
    let server = Server::start();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/client.py");
    // Debian's Python has Debian's psycopg2.
    let done = run(Command::new("/usr/bin/python3").args([script, &server.port().to_string()]), "").ok();
    assert_eq!(done.stdout, "values\nerrors\ntransactions\nbulk\ncancel\n");
    server.assert_alive();
}
