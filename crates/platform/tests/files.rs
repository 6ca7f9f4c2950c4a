//! Files of the native build: positioned reads and writes, parked reads, atomic replacement.
#![cfg(not(homenode_lab))]

use homenode_platform::executor::{DEFAULT_STACK_BYTES, Executor};
use homenode_platform::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::path::PathBuf;
use std::sync::Arc;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("homenode-platform-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

const NEW: OpenOptions = OpenOptions::new().read(true).write(true).create_new(true);

#[test]
fn what_is_written_is_read() {
    let folder = Folder::new("rw");
    let file = File::open(&folder.0.join("f"), &NEW).unwrap();
    let parts: Vec<Vec<u8>> = (0..1500u32).map(|i| i.to_le_bytes().to_vec()).collect();
    let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    file.write_vectored_at(&slices, 100).unwrap();
    file.write_all_at(b"head", 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(file.len().unwrap(), 100 + 6000);
    let mut word = [0; 4];
    file.read_exact_at(&mut word, 100 + 4 * 1400).unwrap();
    assert_eq!(u32::from_le_bytes(word), 1400);
    let (mut a, mut b) = ([0; 2], [9; 2]);
    let n = file.read_vectored_at(&mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)], 0).unwrap();
    assert_eq!((n, &a, &b), (4, b"he", b"ad"));
    let end = file.read_exact_at(&mut word, 6098).unwrap_err();
    assert_eq!(end.kind(), ErrorKind::UnexpectedEof);
    let again = File::open(&folder.0.join("f"), &NEW).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
}

#[test]
fn tasks_read_and_see_the_end() {
    let folder = Folder::new("task");
    let path = folder.0.join("f");
    let bytes: Vec<u8> = (0..200_000u32).map(|i| (i % 251) as u8).collect();
    fs::write_atomic(&path, &bytes).unwrap();
    let file = Arc::new(File::open(&path, &OpenOptions::new().read(true)).unwrap());
    let executor = Executor::new(Arc::new(|| {}), DEFAULT_STACK_BYTES);
    for i in 0..8usize {
        let (file, want) = (file.clone(), bytes.clone());
        executor.spawn(move || {
            let mut page = vec![0; 16384];
            file.read_task_at(&mut page, (i * 16384) as u64).unwrap();
            assert!(page == want[i * 16384..(i + 1) * 16384]);
            let end = file.read_task_at(&mut page, 199_999).unwrap_err();
            assert_eq!(end.kind(), ErrorKind::UnexpectedEof);
        });
    }
    let failed = std::rc::Rc::new(std::cell::Cell::new(false));
    let flag = failed.clone();
    executor.on_panic(Box::new(move |_, _| flag.set(true)));
    while executor.live() > 0 {
        executor.run_ready();
    }
    assert!(!failed.get());
}

#[test]
fn directories_list_rename_remove_and_lock() {
    let folder = Folder::new("dir");
    fs::write_atomic(&folder.0.join("b"), b"1").unwrap();
    fs::write_atomic(&folder.0.join("a"), b"2").unwrap();
    fs::write_atomic(&folder.0.join("a"), b"3").unwrap();
    assert_eq!(fs::list_dir(&folder.0).unwrap(), ["a", "b"]);
    fs::rename(&folder.0.join("a"), &folder.0.join("b")).unwrap();
    assert_eq!(fs::read(&folder.0.join("b")).unwrap(), b"3");
    fs::sync_dir(&folder.0).unwrap();
    let open = || File::open(&folder.0.join("b"), &OpenOptions::new().read(true).write(true)).unwrap();
    let (one, two) = (open(), open());
    one.try_lock_exclusive().unwrap();
    assert_eq!(two.try_lock_exclusive().unwrap_err().kind(), ErrorKind::WouldBlock);
    drop(one);
    two.try_lock_exclusive().unwrap();
    fs::remove_file(&folder.0.join("b")).unwrap();
    assert!(!fs::exists(&folder.0.join("b")));
    let missing = fs::read(&folder.0.join("b")).unwrap_err();
    assert_eq!(missing.raw_os_error(), Some(libc::ENOENT));
}
