//! What happens when the disk is full? 53100 for whoever needs room, nothing half-done, and all is well once there is room.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use common::{Folder, Server, Settings, code, connect, one, run};
use postgres::Client;

const ROWS: i64 = 200;
/// Transactions after which the disk has to be full.
const TRANSACTIONS_MAX: i64 = 5000;

/// A small file system of its own; gone when this value goes.
struct Disk(Folder);

impl Disk {
    /// Nothing where this isn't allowed.
    fn new(size: &str) -> Option<Disk> {
        let folder = Folder::new();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(&data);
        run(&mut mount, "").status.success().then(|| Disk(folder))
    }

    fn data(&self) -> std::path::PathBuf {
        self.0.path().join("data")
    }

    fn free_bytes(&self) -> u64 {
        let done = run(Command::new("df").args(["--output=avail", "-B1"]).arg(self.data()), "").ok();
        done.stdout.lines().nth(1).unwrap().trim().parse().unwrap()
    }

    /// Takes all room but `left` bytes.
    fn fill(&self, left: u64) {
        // The server may be making a file of the log meanwhile.
        common::wait_until("the disk has to be filled", Duration::from_secs(20), || {
            let ballast = self.free_bytes().saturating_sub(left);
            let mut fallocate = Command::new("fallocate");
            run(fallocate.args(["-l", &ballast.to_string()]).arg(self.ballast()), "").status.success()
        });
    }

    fn ballast(&self) -> std::path::PathBuf {
        self.data().join("ballast")
    }

    fn make_room(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        run(Command::new("umount").arg("-l").arg(self.data()), "");
    }
}

fn create(client: &mut Client) {
    client
        .batch_execute("create table big (batch bigint, n bigint, body text not null, primary key (batch, n)); create index big_n on big (n)")
        .unwrap();
}

fn insert(client: &mut Client, batch: i64) -> Result<(), postgres::Error> {
    let text = "insert into big select $1::bigint, n, repeat('b', 2500) from generate_series(0, $2::bigint - 1) as n";
    let mut transaction = client.transaction()?;
    transaction.execute(text, &[&batch, &(ROWS / 2)])?;
    let text =
        "insert into big select $1::bigint, n, repeat('b', 2500) from generate_series($2::bigint, $3::bigint - 1) as n";
    transaction.execute(text, &[&batch, &(ROWS / 2), &ROWS])?;
    transaction.commit()
}

/// Inserts batches from `first` on until the disk is full; returns the first that failed.
#[track_caller]
fn insert_until_full(client: &mut Client, first: i64) -> i64 {
    for batch in first..first + TRANSACTIONS_MAX {
        if let Err(error) = insert(client, batch) {
            assert_eq!(code(&error).code(), "53100", "{error:?}");
            return batch;
        }
    }
    panic!("the disk doesn't fill");
}

/// Batches 0 to `batches` are there, whole, and no others.
#[track_caller]
fn assert_batches(server: &Server, batches: i64) {
    let mut client = server.client();
    assert_eq!(one::<i64>(&mut client, "select count(*) from big"), batches * ROWS);
    assert_eq!(one::<i64>(&mut client, "select count(distinct batch) from big"), batches);
    assert_eq!(one::<i64>(&mut client, "select count(*) from big where body = repeat('b', 2500)"), batches * ROWS);
    let sum: i64 = one(&mut client, "select coalesce(sum(n), 0)::bigint from big");
    assert_eq!(sum, batches * ROWS * (ROWS - 1) / 2);
    assert_eq!(one::<i64>(&mut client, "select count(*) from big where n = 5"), batches);
}

#[test]
fn a_small_disk() {
    let Some(disk) = Disk::new("450m") else {
        println!("no file system can be mounted here");
        return;
    };
    if common::is_postgres() {
        return;
    }
    let settings = Settings { pool: Some("16MB".into()), ..Settings::default() };
    let mut server = Server::open(&disk.data(), settings.clone()).unwrap();
    let mut client = server.client();
    create(&mut client);
    for batch in 0..10 {
        insert(&mut client, batch).unwrap();
    }
    disk.fill(12 << 20);
    let full = insert_until_full(&mut client, 10);
    assert_batches(&server, full);
    // Others get the same answer or get through; nobody is thrown out, everybody can read.
    let mut next = full;
    for _ in 0..20 {
        match insert(&mut client, next) {
            Ok(()) => next += 1,
            Err(error) => assert_eq!(code(&error).code(), "53100", "{error:?}"),
        }
        server.assert_alive();
    }
    assert_batches(&server, next);
    // With room again it goes on by itself.
    disk.make_room();
    for _ in 0..5 {
        insert(&mut client, next).unwrap();
        next += 1;
    }
    assert_batches(&server, next);
    // Full again, and killed: recovered once there is room, if not before.
    disk.fill(6 << 20);
    next = insert_until_full(&mut client, next);
    server.kill();
    match server.try_restart(settings.clone()) {
        Ok(()) => assert_batches(&server, next),
        Err(refusal) => {
            let said = refusal.output.to_lowercase();
            assert!(said.contains("no space left") || said.contains("full"), "{}", refusal.output);
        }
    }
    disk.make_room();
    server.kill();
    server.restart_with(settings);
    assert_batches(&server, next);
    insert(&mut server.client(), next).unwrap();
    assert_batches(&server, next + 1);
    server.stop();
}

/// Inserts batches until one fails for want of room, or because the server has stopped for that reason; returns how many
/// there have to be.
fn insert_until_refused(client: &mut Client, first: i64) -> i64 {
    for batch in first..first + TRANSACTIONS_MAX {
        if let Err(error) = insert(client, batch) {
            assert!(error.code().is_none_or(|code| code.code() == "53100"), "{error:?}");
            return batch;
        }
    }
    panic!("the disk doesn't fill");
}

/// A fault in the program's own file layer, which needs no rights: from some byte on every write fails, even into space that a
/// file already has, as on a file system that copies on write. Then the log can't go on, and the server may stop; it says why.
fn no_room(bytes: u64) -> Settings {
    let fault = ("HOMENODE_TEST_FAULT".to_owned(), format!("write-enospc:{bytes}"));
    Settings { environment: vec![fault], pool: Some("16MB".into()), ..Settings::default() }
}

/// A server that has stopped has to have said why.
#[track_caller]
fn assert_said_why(server: &Server) {
    if let Some(status) = server.status() {
        let output = server.output();
        assert!(!status.success() && output.to_lowercase().contains("no space left"), "{status}\n{output}");
    }
}

#[test]
fn writes_that_find_no_room() {
    if common::is_postgres() {
        return;
    }
    let mut server = Server::with(Settings { pool: Some("16MB".into()), ..Settings::default() });
    create(&mut server.client());
    let mut batches = 0;
    for megabytes in [70u64, 90, 120] {
        server.stop();
        if let Err(refusal) = server.try_restart(no_room(megabytes << 20)) {
            assert!(refusal.output.to_lowercase().contains("no space left"), "{}", refusal.output);
        } else {
            let mut client = server.client();
            let refused = insert_until_refused(&mut client, batches);
            // Were it not for the answer, the last one may be there.
            let unknown = connect(server.port()).is_err();
            assert_said_why(&server);
            server.kill();
            server.restart_with(Settings::default());
            let there = one::<i64>(&mut server.client(), "select count(distinct batch) from big");
            assert!(there == refused || unknown && there == refused + 1, "{there} batches, {refused} acknowledged");
            batches = there;
        }
        server.kill();
        server.restart_with(Settings::default());
        assert_batches(&server, batches);
    }
    insert(&mut server.client(), batches).unwrap();
    assert_batches(&server, batches + 1);
}

/// Several writers at the limit don't damage each other.
#[test]
fn several_writers_find_no_room() {
    if common::is_postgres() {
        return;
    }
    let mut server = Server::with(no_room(150 << 20));
    create(&mut server.client());
    let port = server.port();
    let done = Mutex::new(BTreeSet::new());
    std::thread::scope(|scope| {
        for writer in 0..4i64 {
            let done = &done;
            scope.spawn(move || {
                let mut client = connect(port).unwrap();
                let first = writer * TRANSACTIONS_MAX;
                let refused = insert_until_refused(&mut client, first);
                done.lock().unwrap().extend(first..refused);
            });
        }
    });
    let acknowledged = done.into_inner().unwrap();
    let stopped = connect(port).is_err();
    assert_said_why(&server);
    for _ in 0..2 {
        server.kill();
        server.restart_with(Settings::default());
        let rows = server.client().query("select batch, count(*) from big group by batch order by batch", &[]).unwrap();
        let found: BTreeSet<i64> = rows.iter().map(|row| row.get(0)).collect();
        assert!(rows.iter().all(|row| row.get::<_, i64>(1) == ROWS));
        assert!(found.is_superset(&acknowledged), "{:?} lost", acknowledged.difference(&found));
        // Those whose answers were lost may be there.
        let unacknowledged: Vec<_> = found.difference(&acknowledged).collect();
        assert!(unacknowledged.len() <= if stopped { 4 } else { 0 }, "{unacknowledged:?} never acknowledged");
    }
    insert(&mut server.client(), -1).unwrap();
}
