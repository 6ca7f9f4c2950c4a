//! Faults that the environment asks for reach the files of a process that is started with them.
#![cfg(not(homenode_lab))]

use homenode_platform::fault::VARIABLE;
use homenode_platform::fs::{self, File, OpenOptions};
use std::process::Command;

/// What the started process does, and says by its exit status.
#[test]
fn child() {
    let Ok(path) = std::env::var("HOMENODE_FAULT_CHILD") else { return };
    let file = File::open(path.as_ref(), &OpenOptions::new().write(true).create(true)).unwrap();
    let number = |result: std::io::Result<()>| result.map_or_else(|e| e.raw_os_error().unwrap(), |()| 0);
    assert_eq!(number(file.write_all_at(&[1; 3000], 0)), 0);
    assert_eq!(number(file.sync_data()), 0);
    assert_eq!(number(file.write_all_at(&[1; 3000], 3000)), libc::ENOSPC);
    assert_eq!(number(file.sync_all()), libc::EIO);
    assert_eq!(number(file.sync_all()), 0);
    assert_eq!(number(fs::write_atomic(path.as_ref(), &[1])), libc::ENOSPC);
}

#[test]
fn a_process_started_with_faults_has_them() {
    let path = std::env::temp_dir().join(format!("homenode-fault-{}", std::process::id()));
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child"])
        .env("HOMENODE_FAULT_CHILD", &path)
        .env(VARIABLE, "fsync:2,write-enospc:4096")
        .status()
        .unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(status.success());
}
