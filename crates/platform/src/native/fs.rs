//! How are bytes kept? Positioned file I/O, and the few directory operations the engine needs.
//!
//! Every error is the system's own, with its number (`raw_os_error`), so callers can tell a full
//! disk (`ENOSPC`) from a broken one (`EIO`).

pub use crate::fs_common::OpenOptions;

use super::fault::{self, Fault};
use super::io_threads;
use std::fs;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An open file. All operations name their offset; there is no cursor to share.
#[derive(Debug)]
pub struct File {
    file: fs::File,
    /// `preadv2` with `RWF_NOWAIT` works here, as far as is known.
    nowait: AtomicBool,
    /// Present only when the test environment asked for faults: one null check otherwise.
    fault: Option<Arc<Fault>>,
}

/// `IOV_MAX` of Linux.
const MAX_VECTORS: usize = 1024;

impl File {
    /// Opens `path`.
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: &Path, options: &OpenOptions) -> io::Result<File> {
        let file = fs::OpenOptions::new()
            .read(options.read)
            .write(options.write)
            .create(options.create)
            .create_new(options.create_new)
            .truncate(options.truncate)
            .open(path)?;
        Ok(File { file, nowait: AtomicBool::new(true), fault: fault::from_environment() })
    }

    /// Reads up to `buffer.len()` bytes at `offset`; 0 at the end of the file.
    ///
    /// # Errors
    /// The system's.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    /// Reads exactly `buffer.len()` bytes at `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends first, else the system's.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    /// As [`read_exact_at`](File::read_exact_at), but a coroutine is parked instead of its worker
    /// being blocked: bytes in the page cache are copied at once (`preadv2` with `RWF_NOWAIT`), the
    /// rest is read by a small pool of threads.
    ///
    /// # Errors
    /// As `read_exact_at`.
    pub fn read_task_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            let rest = &mut buffer[done..];
            let at = offset + done as u64;
            let result = match self.read_cached_at(rest, at) {
                Some(result) => result,
                None => io_threads::read_parked(self.file.as_raw_fd(), rest, at),
            };
            match result {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => done += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// What can be read without waiting for the device; `None` if that is nothing.
    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> Option<io::Result<usize>> {
        if !self.nowait.load(Ordering::Relaxed) {
            return None;
        }
        let vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: one vector that describes `buffer`, which is ours to write.
        let n = unsafe { libc::preadv2(self.file.as_raw_fd(), &vector, 1, offset as libc::off_t, libc::RWF_NOWAIT) };
        if let Ok(n) = usize::try_from(n) {
            return Some(Ok(n));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN) => None,
            // The file system (or an old kernel) does not know the flag: ask no more.
            Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL) => {
                self.nowait.store(false, Ordering::Relaxed);
                None
            }
            _ => Some(Err(error)),
        }
    }

    /// Reads into the buffers in order, up to their total length; returns the bytes read.
    ///
    /// # Errors
    /// The system's.
    pub fn read_vectored_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        let count = buffers.len().min(MAX_VECTORS) as libc::c_int;
        // SAFETY: IoSliceMut has the layout of iovec (documented), and each is ours to write.
        let n =
            unsafe { libc::preadv(self.file.as_raw_fd(), buffers.as_mut_ptr().cast(), count, offset as libc::off_t) };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }

    /// As [`File::read_vectored_at`], of what can be read without waiting for the device: fewer bytes than there are, or none.
    ///
    /// # Errors
    /// The system's.
    pub fn read_cached_vectored_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        if !self.nowait.load(Ordering::Relaxed) {
            return Ok(0);
        }
        let count = buffers.len().min(MAX_VECTORS) as libc::c_int;
        let vectors = buffers.as_mut_ptr().cast();
        // SAFETY: IoSliceMut has the layout of iovec (documented), and each is ours to write.
        let n =
            unsafe { libc::preadv2(self.file.as_raw_fd(), vectors, count, offset as libc::off_t, libc::RWF_NOWAIT) };
        // An error is met again by whoever reads without this flag.
        Ok(usize::try_from(n).unwrap_or(0))
    }

    /// Says that these bytes are going to be read, so that the system gets them meanwhile.
    pub fn will_need(&self, offset: u64, len: u64) {
        let (offset, len) = (offset as libc::off_t, len as libc::off_t);
        // SAFETY: a hint about a range of a file. That it fails costs nothing but time.
        unsafe { libc::posix_fadvise(self.file.as_raw_fd(), offset, len, libc::POSIX_FADV_WILLNEED) };
    }

    /// Writes all of `bytes` at `offset`, extending the file if need be.
    ///
    /// # Errors
    /// The system's; part of the bytes may have been written.
    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if let Some(fault) = &self.fault {
            fault.before_write(bytes.len())?;
        }
        self.file.write_all_at(bytes, offset)
    }

    /// Writes all bytes of all buffers in order, starting at `offset`.
    ///
    /// # Errors
    /// The system's; part of the bytes may have been written.
    pub fn write_vectored_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        if let Some(fault) = &self.fault {
            fault.before_write(buffers.iter().map(|buffer| buffer.len()).sum())?;
        }
        let mut rest: Vec<IoSlice<'_>> = buffers.to_vec();
        let mut rest = &mut rest[..];
        let mut at = offset;
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            let count = rest.len().min(MAX_VECTORS) as libc::c_int;
            // SAFETY: IoSlice has the layout of iovec (documented); the call only reads.
            let n = unsafe { libc::pwritev(self.file.as_raw_fd(), rest.as_ptr().cast(), count, at as libc::off_t) };
            match usize::try_from(n) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => {
                    at += n as u64;
                    IoSlice::advance_slices(&mut rest, n);
                }
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() != ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes the file's bytes, and the metadata needed to read them, survive a crash (`fdatasync`).
    ///
    /// # Errors
    /// The system's. After an error the state of unsynced bytes is unknown and a second call may
    /// falsely succeed (Rebello et al., "Can applications recover from fsync failures?", ATC 2020).
    pub fn sync_data(&self) -> io::Result<()> {
        if let Some(fault) = &self.fault {
            fault.before_sync()?;
        }
        self.file.sync_data()
    }

    /// As [`sync_data`](File::sync_data), with all metadata (`fsync`).
    ///
    /// # Errors
    /// As `sync_data`.
    pub fn sync_all(&self) -> io::Result<()> {
        if let Some(fault) = &self.fault {
            fault.before_sync()?;
        }
        self.file.sync_all()
    }

    /// The file's length, bytes.
    ///
    /// # Errors
    /// The system's.
    pub fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Whether the file has no bytes.
    ///
    /// # Errors
    /// The system's.
    pub fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts the file, or extends it with zeros that take no space yet.
    ///
    /// # Errors
    /// The system's.
    pub fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    /// Reserves disk space for `offset .. offset + bytes`, extending the file if need be, so that
    /// later writes there cannot fail for want of space (`fallocate`). Where the file system
    /// cannot, the range is only made part of the file.
    ///
    /// # Errors
    /// `ENOSPC` when the disk is full, else the system's.
    pub fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()> {
        if let Some(fault) = &self.fault {
            fault.before_write(0)?;
        }
        // SAFETY: plain numbers.
        let result = unsafe { libc::fallocate(self.file.as_raw_fd(), 0, offset as libc::off_t, bytes as libc::off_t) };
        if result == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EOPNOTSUPP) {
            return Err(error);
        }
        if self.len()? < offset + bytes { self.set_len(offset + bytes) } else { Ok(()) }
    }

    /// Takes the file's lock for this process without waiting (`flock`); it is released when the
    /// file is closed.
    ///
    /// # Errors
    /// `WouldBlock` when another open file has it, else the system's.
    pub fn try_lock_exclusive(&self) -> io::Result<()> {
        // SAFETY: a valid descriptor and constants.
        let result = unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// Makes a directory and those above it.
///
/// # Errors
/// The system's.
pub fn create_dir_all(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// Renames a file, replacing one of the new name. Durable after [`sync_dir`].
///
/// # Errors
/// The system's.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)
}

/// Removes a file. Durable after [`sync_dir`].
///
/// # Errors
/// The system's.
pub fn remove_file(path: &Path) -> io::Result<()> {
    fs::remove_file(path)
}

/// The names in a directory, sorted; names that are not UTF-8 are left out.
///
/// # Errors
/// The system's.
pub fn list_dir(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        if let Ok(name) = entry?.file_name().into_string() {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Whether something has that name.
pub fn exists(path: &Path) -> bool {
    path.exists()
}

/// A whole file.
///
/// # Errors
/// The system's.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    fs::read(path)
}

/// Replaces a file's contents so that a crash leaves the old or the new ones: writes `<name>.tmp`
/// beside it, syncs it, renames it, syncs the directory.
///
/// # Errors
/// The system's; the old contents are then still there, unless the last sync failed.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fault = fault::from_environment();
    if let Some(fault) = &fault {
        fault.before_write(bytes.len())?;
        fault.before_sync()?;
    }
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let mut file = fs::File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&temporary, path)?;
    sync_dir(path.parent().unwrap_or(Path::new(".")))
}

/// Has the threads that read for parked tasks run on these CPUs, those near the device; the first to say so in a process decides.
pub fn read_near(cpus: &[usize]) {
    io_threads::live_near(cpus);
}

/// Makes creations, renames and removals in a directory survive a crash.
///
/// # Errors
/// The system's.
pub fn sync_dir(path: &Path) -> io::Result<()> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    fs::File::open(path)?.sync_all()
}
