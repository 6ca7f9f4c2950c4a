//! Do unmodified clients in other languages work? Each is a program of its own language over its registry's package, which
//! `clients/install` puts into a folder. Tests of it run when `HOMENODE_TEST_CLIENTS` names that folder, as `./test` has it.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Server, run};

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients");

/// Where the packages are; none: these tests are left out.
fn packages() -> Option<PathBuf> {
    let folder = std::env::var_os("HOMENODE_TEST_CLIENTS").map(PathBuf::from);
    if folder.is_none() {
        eprintln!(
            "left out: HOMENODE_TEST_CLIENTS does not say where crates/homenode/tests/clients/install put the packages"
        );
    }
    folder
}

/// Runs the program that `command` makes with a server's port behind it; it says what it has got through.
fn client(command: impl FnOnce(&Path) -> Command, expected: &str) {
    let Some(packages) = packages() else { return };
    let server = Server::start();
    let done = run(command(&packages).arg(server.port().to_string()), "").ok();
    assert_eq!(done.stdout, expected);
    server.assert_alive();
}

fn python(script: &'static str) -> impl FnOnce(&Path) -> Command {
    move |packages| {
        let mut command = Command::new(packages.join("python/bin/python"));
        command.arg(format!("{SOURCES}/python/{script}.py"));
        command
    }
}

#[test]
fn psycopg() {
    client(python("psycopg_client"), "values\nerrors\nbulk\nasync\n");
}

#[test]
fn sqlalchemy() {
    client(python("sqlalchemy_client"), "objects\nreflection\n");
}

#[test]
fn alembic() {
    client(python("alembic_client"), "up\ndown\n");
}

#[test]
fn pgx() {
    client(|packages| Command::new(packages.join("go/client")), "values\nfailures\nbulk\npools\nmodes\n");
}

#[test]
fn node_postgres() {
    let node = |packages: &Path| {
        let mut command = Command::new("node");
        command.arg(packages.join("node/client.js"));
        command
    };
    client(node, "values\nerrors\ncursor\npool\n");
}

#[test]
fn jdbc() {
    let java = |packages: &Path| {
        let mut command = Command::new("java");
        let path = std::env::join_paths([packages.join("java"), packages.join("java/driver.jar")]).unwrap();
        // As outside UTC, where the driver asks for its zone.
        command.arg("-Duser.timezone=Europe/Paris").arg("-cp").arg(path).arg("Client");
        command
    };
    client(java, "values\nerrors\nbulk\nmetadata\n");
}
