//! Does `where` stay small and true on processes that are large: ten thousand mappings, a terabyte of address space, gigabytes resident?
//! The process that is looked at is this test, started again with HOMENODE_TEST_ROLE. With HOMENODE_TEST_GIB=100 it has a hundred GiB
//! resident (the same GiB a hundred times); how long `where` took is printed (docs/instruments.md has the command).

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use common::binary;
use homenode_memory::foreign::SharedWindow;

const ROLE: &str = "HOMENODE_TEST_ROLE";
const PAGE: usize = 4096;

/// Memory without a name that several mappings can show.
fn object(bytes: u64) -> File {
    let path = format!("/dev/shm/homenode-sizes-{}", std::process::id());
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).expect("shared memory");
    std::fs::remove_file(&path).expect("the name goes");
    file.set_len(bytes).expect("a length");
    file
}

/// What the process that is looked at does: makes its mappings, says so, and waits.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let mut keep = Vec::new();
    let (name, count) = role.split_once(' ').expect("a role and a number");
    let count: u64 = count.parse().expect("a number");
    match name {
        // Neighbours that don't continue each other, so that the kernel can't make one mapping of them.
        "mappings" => {
            let object = object(count * 3 * PAGE as u64);
            for index in 0..count {
                let window =
                    SharedWindow::map(&object, (count - 1 - index) * 3 * PAGE as u64, PAGE).expect("a mapping");
                window.enter(0..PAGE).expect("a page");
                keep.push(window);
            }
        }
        "sparse" => {
            let object = object(count);
            let window = SharedWindow::map(&object, 0, count as usize).expect("a mapping");
            for at in [0, count as usize / 2, count as usize - PAGE] {
                window.enter(at..at + PAGE).expect("a page");
            }
            keep.push(window);
        }
        _ => {
            let object = object(1 << 30);
            for _ in 0..count {
                let window = SharedWindow::map(&object, 0, 1 << 30).expect("a mapping");
                window.enter(0..1 << 30).expect("pages");
                keep.push(window);
            }
        }
    }
    println!("\nready");
    let _ = std::io::stdin().read(&mut [0]);
}

struct Looked(Child);

impl Drop for Looked {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the role and looks at it, with at most 200 MiB of memory of its own.
fn look_at(role: &str) -> serde_json::Value {
    let test = std::env::current_exe().expect("this test's own path");
    let mut child = Command::new(test);
    child.args(["--exact", "role", "--nocapture", "--test-threads=1"]).env(ROLE, role);
    let mut child = Looked(child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the test starts again"));
    let mut lines = BufReader::new(child.0.stdout.take().expect("its output")).lines();
    assert!(lines.any(|line| line.expect("a line") == "ready"), "{role}: it ended");
    let begun = Instant::now();
    let (program, pid) = (binary(), child.0.id());
    let limited =
        format!("ulimit -d 204800; '{}' where {pid} --json; code=$?; times >&2; exit $code", program.display());
    let done = Command::new("sh").args(["-c", &limited]).output().expect("sh runs");
    let said = String::from_utf8_lossy(&done.stderr);
    let cpu = said.lines().last().unwrap_or_default();
    println!("{role}: where took {:.2} s, CPU time (user, system) {cpu}", begun.elapsed().as_secs_f64());
    assert!(done.status.success(), "{role}: {}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).expect("JSON")
}

/// Bytes present of the shared object of the test.
fn present(census: &serde_json::Value) -> u64 {
    let objects = census["objects"].as_array().expect("objects").iter();
    let ours = objects.filter(|o| o["name"].as_str().is_some_and(|name| name.contains("homenode-sizes")));
    ours.flat_map(|o| o["bytes_by_node"].as_object().expect("nodes").values())
        .filter_map(serde_json::Value::as_u64)
        .sum()
}

#[test]
fn ten_thousand_mappings_are_counted() {
    assert_eq!(present(&look_at("mappings 10000")), 10_000 * PAGE as u64);
}

#[test]
fn a_terabyte_of_holes_is_three_pages() {
    assert_eq!(present(&look_at(&format!("sparse {}", 1u64 << 40))), 3 * PAGE as u64);
}

#[test]
fn what_is_resident_many_times_is_counted_once() {
    let gib = std::env::var("HOMENODE_TEST_GIB").ok().and_then(|gib| gib.parse().ok()).unwrap_or(2u64);
    assert_eq!(present(&look_at(&format!("resident {gib}"))), 1 << 30);
}
