//! What if the data folder isn't as it was left? In use, of another version, cut off, with flipped bits: named, refused or
//! repaired, never served.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::random::Random;
use common::{Folder, Refusal, Server, Settings, connect, one, rounds, run};

/// Rows of the table that were there at the checkpoint, and those that came after it.
const OLD_ROWS: i32 = 3000;
const ALL_ROWS: i32 = 4000;
/// The last bytes of the log: damage there can't be told from a write that a crash tore.
const TAIL_BYTES: u64 = 64 << 10;

fn body(id: i32) -> String {
    format!("row {id}{}", ".".repeat(id as usize % 300))
}

/// A folder with known content, either killed or stopped in order.
fn make(kill: bool) -> Arc<Folder> {
    let folder = Arc::new(Folder::new());
    let server = Server::open(&folder.path().join("data"), Settings::default()).unwrap();
    let mut client = server.client();
    client
        .batch_execute("create table data (id int primary key, tag int not null, body text not null); create index data_tag on data (tag)")
        .unwrap();
    let text = "insert into data select n, n % 97, 'row ' || n::text || repeat('.', n % 300) from generate_series($1::int, $2::int) as n";
    client.execute(text, &[&1, &OLD_ROWS]).unwrap();
    client.batch_execute("checkpoint").unwrap();
    let insert = client.prepare("insert into data values ($1, $2, $3)").unwrap();
    for id in OLD_ROWS + 1..=ALL_ROWS {
        client.execute(&insert, &[&id, &(id % 97), &body(id)]).unwrap();
    }
    if kill {
        server.kill()
    } else {
        server.stop()
    }
    folder
}

/// What a damaged folder came to.
#[derive(Debug)]
enum Outcome {
    Refused(Refusal),
    /// A statement failed with this SQLSTATE and message.
    Failed(String, String),
    Right,
    /// The first rows and no others: the log's end is missing.
    Prefix(i32),
    Wrong(String),
}

/// Starts a server in `data` and reads everything in several ways.
fn outcome(data: &Path) -> Outcome {
    let server = match Server::open(data, Settings::default()) {
        Ok(server) => server,
        Err(refusal) => return Outcome::Refused(refusal),
    };
    let result = read_everything(&server);
    match result {
        Ok(outcome) => outcome,
        Err(error) => match error.as_db_error() {
            Some(error) => Outcome::Failed(error.code().code().to_owned(), error.message().to_owned()),
            // The server has ended while it answered: then it has to have said why.
            None => match server.status() {
                Some(status) => Outcome::Refused(Refusal { status, output: server.output() }),
                None => Outcome::Wrong(format!("connection lost: {error:?}")),
            },
        },
    }
}

fn read_everything(server: &Server) -> Result<Outcome, postgres::Error> {
    let mut client = connect(server.port())?;
    let rows = client.query("select id, tag, body from data order by id", &[])?;
    for (position, row) in rows.iter().enumerate() {
        let id = position as i32 + 1;
        let found: (i32, i32, &str) = (row.get(0), row.get(1), row.get(2));
        if found != (id, id % 97, &body(id)) {
            return Ok(Outcome::Wrong(format!("row {id} is {found:?}")));
        }
    }
    let count = rows.len() as i32;
    for id in (1..=ALL_ROWS).step_by(37) {
        let found = client.query("select body from data where id = $1", &[&id])?;
        if found.len() as i32 != i32::from(id <= count) || found.iter().any(|row| row.get::<_, &str>(0) != body(id)) {
            return Ok(Outcome::Wrong(format!("{} rows {id} by key", found.len())));
        }
    }
    for tag in 0..97 {
        let found: i64 = client.query_one("select count(*) from data where tag = $1", &[&tag])?.get(0);
        let expected = (1..=count).filter(|id| id % 97 == tag).count() as i64;
        if found != expected {
            return Ok(Outcome::Wrong(format!("{found} rows with tag {tag}, not {expected}")));
        }
    }
    // It can still be written, too.
    client.batch_execute("insert into data values (100000, 0, 'new'); delete from data where id = 100000")?;
    Ok(if count == ALL_ROWS { Outcome::Right } else { Outcome::Prefix(count) })
}

/// A copy of `folder`'s data to be damaged.
fn copy(folder: &Folder) -> (Folder, PathBuf) {
    let target = Folder::new();
    let data = target.path().join("data");
    let source = folder.path().join("data");
    run(Command::new("cp").args(["-a", "--sparse=always", "--reflink=auto"]).arg(source).arg(&data), "").ok();
    (target, data)
}

fn files(data: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(data).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name != "lock");
    names.sort();
    names
}

/// Whether a message says what is damaged.
fn names_damage(text: &str, file: &str) -> bool {
    let text = text.to_lowercase();
    let what = match file {
        "pages" => "page",
        "control" => "control",
        _ => "log",
    };
    text.contains(what)
        && [
            "damage",
            "corrupt",
            "checksum",
            "missing",
            "no log segment",
            "short",
            "truncat",
            "not a",
            "no such",
            "ends",
            "format version",
            "invalid",
            "beyond",
        ]
        .iter()
        .any(|word| text.contains(word))
}

/// `outcome` has to be honest: right answers, or the damage is named.
#[track_caller]
fn assert_honest(outcome: &Outcome, file: &str, damage: &str) {
    match outcome {
        Outcome::Right => {}
        Outcome::Refused(refusal) => {
            assert!(!refusal.status.success(), "{damage}: success\n{}", refusal.output);
            assert!(names_damage(&refusal.output, file), "{damage}: the damage isn't named\n{}", refusal.output);
        }
        Outcome::Failed(code, message) => {
            let known = ["XX001", "XX002", "58030"].contains(&code.as_str());
            assert!(known && names_damage(message, file), "{damage}: {code} {message}");
        }
        Outcome::Prefix(rows) => panic!("{damage}: served with {rows} rows"),
        Outcome::Wrong(what) => panic!("{damage}: served: {what}"),
    }
}

#[test]
fn a_folder_in_use() {
    let server = Server::start();
    server.client().batch_execute("create table t (n int)").unwrap();
    let start = Instant::now();
    let refusal = Server::open(server.data(), Settings::default()).err().expect("two servers in one folder");
    assert!(start.elapsed() < Duration::from_secs(10));
    assert!(!refusal.status.success());
    assert!(refusal.output.contains("in use") || refusal.output.contains("already exists"), "{}", refusal.output);
    assert_eq!(one::<i64>(&mut server.client(), "select count(*) from t"), 0);
    server.assert_alive();
}

#[test]
fn a_folder_that_cannot_be_made() {
    let folder = Folder::new();
    let file = folder.path().join("file");
    fs::write(&file, "not a folder").unwrap();
    if !common::is_postgres() {
        let mut command = Command::new(common::binary());
        let done = run(command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(file.join("data")), "");
        assert!(!done.status.success() && done.stderr.contains("file"), "{done:?}");
    }
    // A folder of something else is left as it is.
    let other = folder.path().join("other");
    fs::create_dir(&other).unwrap();
    for name in ["pages", "control"] {
        fs::write(other.join(name), "somebody's notes").unwrap();
    }
    let refusal = Server::open(&other, Settings::default()).err().expect("a folder of something else");
    assert!(!refusal.status.success(), "{}", refusal.output);
    assert_eq!(fs::read_to_string(other.join("pages")).unwrap(), "somebody's notes");
}

#[test]
fn another_version() {
    if common::is_postgres() {
        return;
    }
    let folder = make(false);
    for version in [1u32, 7] {
        let (_target, data) = copy(&folder);
        // The format version is at offset 8 of each half (crates/log/src/control.rs).
        let control = data.join("control");
        let mut bytes = fs::read(&control).unwrap();
        let half = bytes.len() / 2;
        for start in [0, half] {
            bytes[start + 8..start + 12].copy_from_slice(&version.to_le_bytes());
        }
        fs::write(&control, bytes).unwrap();
        match outcome(&data) {
            Outcome::Refused(refusal) => {
                let named = format!("has format version {version};");
                assert!(refusal.output.contains(&named), "{}", refusal.output);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn files_cut_off_or_missing() {
    if common::is_postgres() {
        return;
    }
    for kill in [true, false] {
        let folder = make(kill);
        for name in files(&folder.path().join("data")) {
            for keep in ["none", "half", "all but a page", "all but a byte", "no file"] {
                let (_target, data) = copy(&folder);
                let path = data.join(&name);
                let length = fs::metadata(&path).unwrap().len();
                let shorter = match keep {
                    "none" => Some(0),
                    "half" => Some(length / 2),
                    "all but a page" => Some(length.saturating_sub(16_384)),
                    "all but a byte" => Some(length.saturating_sub(1)),
                    _ => None,
                };
                match shorter {
                    Some(length) => File::options().write(true).open(&path).unwrap().set_len(length).unwrap(),
                    None => fs::remove_file(&path).unwrap(),
                }
                let damage = format!("{name} of a folder {}: {keep}", if kill { "killed" } else { "stopped" });
                assert_honest(&outcome(&data), &name, &damage);
            }
        }
    }
}

/// The bytes of a file up to the last one that isn't zero.
fn used_bytes(path: &Path) -> u64 {
    let bytes = fs::read(path).unwrap();
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |position| position as u64 + 1)
}

fn flip(path: &Path, offset: u64, bit: u32) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ (1 << bit)], offset).unwrap();
}

#[test]
fn flipped_bits() {
    if common::is_postgres() {
        return;
    }
    let mut random = Random::new(5);
    for kill in [true, false] {
        let folder = make(kill);
        let source = folder.path().join("data");
        let names = files(&source);
        let last_log =
            names.iter().filter(|name| name.starts_with("log-") && used_bytes(&source.join(name)) > 0).max().cloned();
        for name in &names {
            let used = used_bytes(&source.join(name));
            if used == 0 {
                continue;
            }
            let count = if name == "control" { rounds(10, 3) } else { rounds(30, 6) };
            for n in 0..count {
                let (_target, data) = copy(&folder);
                // Every fourth near the end: the newest part.
                let offset =
                    if n % 4 == 3 { used - 1 - random.next() % (used.min(200_000)) } else { random.next() % used };
                flip(&data.join(name), offset, random.below(8) as u32);
                let damage = format!("a bit of {name} at {offset} of {used} (killed: {kill})");
                let found = outcome(&data);
                let tail = kill && Some(name) == last_log.as_ref() && offset + TAIL_BYTES > used;
                match found {
                    Outcome::Prefix(rows) if tail => assert!(rows >= OLD_ROWS, "{damage}: {rows} rows"),
                    found => assert_honest(&found, name, &damage),
                }
            }
        }
    }
}
