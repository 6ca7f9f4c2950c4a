//! Who has the data folder open?

use crate::LogError;
use homenode_platform::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::path::Path;

/// The exclusive lock of a data folder: `flock` on the file `lock`, which holds the process number
/// as text for the message. Released when dropped, and by the kernel when the process ends, so a
/// left-over file locks nobody out.
#[derive(Debug)]
pub struct FolderLock {
    _file: File,
}

impl FolderLock {
    /// Takes the lock of `dir` without waiting.
    ///
    /// # Errors
    /// [`LogError::InUse`] names the process that has it; [`LogError::Io`].
    pub fn take(dir: &Path) -> Result<FolderLock, LogError> {
        let path = dir.join("lock");
        let options = OpenOptions::new().read(true).write(true).create(true);
        let file = File::open(&path, &options).map_err(LogError::io("open", &path))?;
        match file.try_lock_exclusive() {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let holder = match holder(&path) {
                    Some(pid) => format!("process {pid}"),
                    None => "another process".to_owned(),
                };
                return Err(LogError::InUse { path: dir.to_path_buf(), holder });
            }
            Err(error) => return Err(LogError::io("lock", &path)(error)),
        }
        let text = format!("{}\n", std::process::id());
        file.set_len(0).map_err(LogError::io("write", &path))?;
        file.write_all_at(text.as_bytes(), 0).map_err(LogError::io("write", &path))?;
        Ok(FolderLock { _file: file })
    }
}

fn holder(path: &Path) -> Option<u32> {
    let bytes = fs::read(path).ok()?;
    std::str::from_utf8(&bytes).ok()?.trim().parse().ok()
}

/// Takes the lock of a data folder: [`FolderLock::take`].
///
/// # Errors
/// As there.
pub fn lock(dir: &Path) -> Result<FolderLock, LogError> {
    FolderLock::take(dir)
}
