//! How are bytes kept on the simulated machine? The native file interface over a simulated disk.

pub use crate::fs_common::OpenOptions;

use super::disk::{Disk, State, error};
use super::machine::{self, Op};
use crate::wait::WaitEvent;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};

// Rough times of a fast flash disk, nanoseconds. They only have to be long against a point, so that
// others get to run, and to vary.
const READ_NS: u64 = 2_000;
const DEVICE_READ_NS: u64 = 60_000;
const WRITE_NS: u64 = 3_000;
const SYNC_NS: u64 = 100_000;

/// With a cost model: a system call, and copying between user and page cache.
const CALL_NS: u64 = 600;
const COPY_BYTES_PER_NS: u64 = 8;

/// An open file of the simulated disk.
#[derive(Debug)]
pub struct File {
    disk: Disk,
    generation: u64,
    inode: u64,
    options: OpenOptions,
    has_lock: std::sync::atomic::AtomicBool,
}

fn disk() -> io::Result<Disk> {
    machine::disk().ok_or_else(|| io::Error::other("the simulated disk exists only inside a run"))
}

/// What a file operation asks of the machine.
enum Request {
    /// The system call and its copy from or to the page cache.
    Call { bytes: usize },
    /// The device, for what is not in the page cache.
    Read { bytes: usize },
    /// The device, to make bytes durable.
    Sync { bytes: usize },
}

/// The calling thread waits for the system or the device: in a run with a cost model as long as that says, otherwise
/// between half of and one and a half times `typical_ns`.
fn device(disk: &Disk, event: WaitEvent, typical_ns: u64, request: Request) {
    if let Some(device) = machine::with_sim(|sim| sim.hardware.device.clone()) {
        return match request {
            Request::Call { bytes } => machine::charge(|sim| sim.work(CALL_NS + bytes as u64 / COPY_BYTES_PER_NS)),
            Request::Read { bytes } => machine::wait_for_device(event, device.read_ns, bytes as u64),
            Request::Sync { bytes } => machine::wait_for_device(event, device.sync_ns, bytes as u64),
        };
    }
    let time_ns = typical_ns / 2 + disk.state().below(typical_ns);
    machine::sleep(event, time_ns);
}

/// Makes a change to the disk; after it the machine may crash.
fn change<R>(disk: &Disk, f: impl FnOnce(&mut State) -> io::Result<R>) -> io::Result<R> {
    let result = f(&mut disk.state());
    machine::disk_changed();
    result
}

impl File {
    /// Opens `path`.
    ///
    /// # Errors
    /// As the native build's.
    pub fn open(path: &Path, options: &OpenOptions) -> io::Result<File> {
        machine::point(Op::Name);
        let disk = disk()?;
        let path = clean(path);
        let known = disk.state().names.get(&path).copied();
        let inode = match known {
            Some(_) if options.create_new => return Err(error(libc::EEXIST)),
            Some(inode) => inode,
            None if options.write && (options.create || options.create_new) => {
                if !disk.state().is_directory(parent(&path)) {
                    return Err(error(libc::ENOENT));
                }
                change(&disk, |state| Ok(state.link(&path)))?
            }
            None => return Err(error(libc::ENOENT)),
        };
        let generation = disk.state().generation;
        let file = File { disk, generation, inode, options: *options, has_lock: false.into() };
        if options.truncate && known.is_some() {
            file.set_len(0)?;
        }
        Ok(file)
    }

    fn alive(&self, allowed: bool) -> io::Result<()> {
        let now = self.disk.state().generation;
        if now == self.generation && allowed { Ok(()) } else { Err(error(libc::EBADF)) }
    }

    fn read_now(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.alive(self.options.read)?;
        let mut state = self.disk.state();
        state.count_read()?;
        let bytes = &state.inode(self.inode).current;
        let start = bytes.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
        let n = buffer.len().min(bytes.len() - start);
        buffer[..n].copy_from_slice(&bytes[start..start + n]);
        Ok(n)
    }

    /// Reads up to `buffer.len()` bytes at `offset`; 0 at the end of the file.
    ///
    /// # Errors
    /// As the native build's, or as the run's faults say.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        machine::point(Op::Read);
        device(&self.disk, WaitEvent::None, READ_NS, Request::Call { bytes: buffer.len() });
        self.read_now(buffer, offset)
    }

    /// Reads exactly `buffer.len()` bytes at `offset`.
    ///
    /// # Errors
    /// As [`read_at`](File::read_at); `UnexpectedEof` when the file ends first.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if self.read_at(buffer, offset)? < buffer.len() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// As [`read_exact_at`](File::read_exact_at); every fourth time, on average, the bytes are not cached
    /// and the task waits for the device.
    ///
    /// # Errors
    /// As `read_exact_at`.
    pub fn read_task_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        machine::point(Op::Read);
        let uncached = self.disk.state().below(4) == 0;
        if uncached {
            device(&self.disk, WaitEvent::PageRead, DEVICE_READ_NS, Request::Read { bytes: buffer.len() });
        }
        if self.read_now(buffer, offset)? < buffer.len() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// Reads into the buffers in order, up to their total length; returns the bytes read.
    ///
    /// # Errors
    /// As [`read_at`](File::read_at).
    pub fn read_vectored_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        let mut bytes = vec![0; buffers.iter().map(|buffer| buffer.len()).sum()];
        let n = self.read_at(&mut bytes, offset)?;
        let mut rest = &bytes[..n];
        for buffer in buffers {
            let part = rest.len().min(buffer.len());
            buffer[..part].copy_from_slice(&rest[..part]);
            rest = &rest[part..];
        }
        Ok(n)
    }

    /// What can be read without waiting: nothing, here, so that the other way is explored.
    ///
    /// # Errors
    /// None.
    pub fn read_cached_vectored_at(&self, _: &mut [IoSliceMut<'_>], _: u64) -> io::Result<usize> {
        Ok(0)
    }

    /// Says that these bytes are going to be read.
    pub fn will_need(&self, _: u64, _: u64) {}

    /// Writes all of `bytes` at `offset`, extending the file if need be.
    ///
    /// # Errors
    /// As the native build's, or as the run's faults say.
    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        machine::point(Op::Write);
        device(&self.disk, WaitEvent::None, WRITE_NS, Request::Call { bytes: bytes.len() });
        self.alive(self.options.write)?;
        change(&self.disk, |state| state.write(self.inode, offset as usize, bytes))
    }

    /// Writes all bytes of all buffers in order, starting at `offset`.
    ///
    /// # Errors
    /// As [`write_all_at`](File::write_all_at).
    pub fn write_vectored_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let bytes: Vec<u8> = buffers.iter().flat_map(|buffer| buffer.iter().copied()).collect();
        self.write_all_at(&bytes, offset)
    }

    /// Makes the bytes written before the call survive a crash.
    ///
    /// # Errors
    /// As the run's faults say.
    pub fn sync_data(&self) -> io::Result<()> {
        machine::point(Op::Sync);
        self.alive(true)?;
        let (before, bytes) = self.disk.state().pending(self.inode);
        device(&self.disk, WaitEvent::None, SYNC_NS, Request::Sync { bytes });
        change(&self.disk, |state| state.sync(self.inode, before))
    }

    /// As [`sync_data`](File::sync_data).
    ///
    /// # Errors
    /// As `sync_data`.
    pub fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }

    /// The file's length, bytes.
    ///
    /// # Errors
    /// `EBADF` after a crash.
    pub fn len(&self) -> io::Result<u64> {
        machine::point(Op::Read);
        self.alive(true)?;
        Ok(self.disk.state().inode(self.inode).current.len() as u64)
    }

    /// Whether the file has no bytes.
    ///
    /// # Errors
    /// As [`len`](File::len).
    pub fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts the file, or extends it with zeros.
    ///
    /// # Errors
    /// As [`write_all_at`](File::write_all_at).
    pub fn set_len(&self, bytes: u64) -> io::Result<()> {
        machine::point(Op::Write);
        self.alive(self.options.write)?;
        change(&self.disk, |state| state.set_len(self.inode, bytes as usize))
    }

    /// Reserves space for `offset .. offset + bytes`, extending the file if need be.
    ///
    /// # Errors
    /// As [`set_len`](File::set_len).
    pub fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()> {
        if self.len()? < offset + bytes { self.set_len(offset + bytes) } else { Ok(()) }
    }

    /// Takes the file's lock without waiting; it is released when the file is closed.
    ///
    /// # Errors
    /// `WouldBlock` when another open file has it.
    pub fn try_lock_exclusive(&self) -> io::Result<()> {
        machine::point(Op::Name);
        self.alive(true)?;
        if self.has_lock.load(std::sync::atomic::Ordering::Relaxed) {
            return Ok(());
        }
        if std::mem::replace(&mut self.disk.state().inode(self.inode).locked, true) {
            return Err(error(libc::EWOULDBLOCK));
        }
        self.has_lock.store(true, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if *self.has_lock.get_mut() && state.generation == self.generation {
            state.inode(self.inode).locked = false;
        }
    }
}

/// The path without "." parts, so that one file has one name.
fn clean(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != std::path::Component::CurDir).collect()
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

impl State {
    fn is_directory(&self, path: &Path) -> bool {
        path.as_os_str().is_empty() || path == Path::new("/") || self.directories.contains(path)
    }
}

/// Makes a directory and those above it, durably.
///
/// # Errors
/// Outside a run.
pub fn create_dir_all(path: &Path) -> io::Result<()> {
    machine::point(Op::Name);
    let path = clean(path);
    disk()?.state().directories.extend(path.ancestors().map(Path::to_owned));
    Ok(())
}

/// Renames a file, replacing one of the new name. Durable after [`sync_dir`].
///
/// # Errors
/// `ENOENT` when there is none.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    machine::point(Op::Name);
    let (from, to) = (clean(from), clean(to));
    change(&disk()?, |state| {
        if !state.names.contains_key(&from) || !state.is_directory(parent(&to)) {
            return Err(error(libc::ENOENT));
        }
        state.rename(&from, &to);
        Ok(())
    })
}

/// Removes a file. Durable after [`sync_dir`].
///
/// # Errors
/// `ENOENT` when there is none.
pub fn remove_file(path: &Path) -> io::Result<()> {
    machine::point(Op::Name);
    let path = clean(path);
    change(&disk()?, |state| {
        if !state.names.contains_key(&path) {
            return Err(error(libc::ENOENT));
        }
        state.unlink(&path);
        Ok(())
    })
}

/// The names in a directory, sorted.
///
/// # Errors
/// `ENOENT` when there is none.
pub fn list_dir(path: &Path) -> io::Result<Vec<String>> {
    machine::point(Op::Name);
    let path = clean(path);
    let disk = disk()?;
    let state = disk.state();
    if !state.is_directory(&path) {
        return Err(error(libc::ENOENT));
    }
    let all = state.names.keys().chain(&state.directories);
    let inside = all.filter(|name| name.parent() == Some(&path));
    let mut names: Vec<String> = inside.filter_map(|name| Some(name.file_name()?.to_str()?.to_owned())).collect();
    names.sort_unstable();
    Ok(names)
}

/// Whether something has that name.
pub fn exists(path: &Path) -> bool {
    machine::point(Op::Name);
    let path = clean(path);
    disk().is_ok_and(|disk| {
        let state = disk.state();
        state.names.contains_key(&path) || state.is_directory(&path)
    })
}

/// A whole file.
///
/// # Errors
/// As [`File::open`] and [`File::read_at`].
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path, &OpenOptions::new().read(true))?;
    let mut bytes = vec![0; file.len()? as usize];
    let n = file.read_at(&mut bytes, 0)?;
    bytes.truncate(n);
    Ok(bytes)
}

/// Replaces a file's contents so that a crash leaves the old or the new ones.
///
/// # Errors
/// As the operations it is made of.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = PathBuf::from(temporary);
    let options = OpenOptions::new().write(true).create(true).truncate(true);
    let file = File::open(&temporary, &options)?;
    file.write_all_at(bytes, 0)?;
    file.sync_all()?;
    drop(file);
    rename(&temporary, path)?;
    sync_dir(parent(path))
}

/// The simulated machine's device is near to nobody.
pub fn read_near(_cpus: &[usize]) {}

/// Makes creations, renames and removals in a directory survive a crash.
///
/// # Errors
/// As the run's faults say.
pub fn sync_dir(path: &Path) -> io::Result<()> {
    machine::point(Op::Sync);
    let path = clean(path);
    let disk = disk()?;
    device(&disk, WaitEvent::None, SYNC_NS, Request::Sync { bytes: 0 });
    change(&disk, |state| state.sync_directory(&path))
}
