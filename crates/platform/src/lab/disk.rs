//! What is on the simulated disk, and what is left of it after a crash?
//!
//! Each file has *durable* bytes and *current* ones, and the list of changes between the two. A sync
//! makes the changes that preceded it durable. A crash keeps, of what was not synced, what the seed
//! says: nothing, everything, a prefix with a torn last write, or any subset of the 512-byte sectors
//! (so writes are reordered and torn). Names work likewise: creations, renames and removals are
//! durable after a sync of their directory; a crash keeps a prefix of those that were not synced, in
//! order, as a journalling file system does. Making a directory is durable at once.
//!
//! A failed sync behaves as Linux' page cache does: what was to be written counts as clean though
//! it may not be on the disk, so a second sync succeeds without it (Rebello et al., ATC 2020).

use super::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a crash writes entirely or not at all.
pub(super) const SECTOR_BYTES: usize = 512;

/// Which file operations of a run fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The nth read (1 is the first) fails with `EIO`.
    pub fail_read: Option<u64>,
    /// The nth write fails with `EIO`; part of it may have been written.
    pub fail_write: Option<u64>,
    /// The nth sync fails with `EIO`; what it was to write may be lost.
    pub fail_sync: Option<u64>,
    /// Files cannot grow beyond this many bytes together: `ENOSPC`.
    pub space_bytes: Option<u64>,
}

/// A simulated disk. A handle: clones are the same disk.
#[derive(Clone, Default)]
pub struct Disk(Arc<Mutex<State>>);

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state();
        f.debug_map()
            .entries(state.names.iter().map(|(path, inode)| (path, state.inodes[inode].current.len())))
            .finish()
    }
}

#[derive(Clone)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Len(usize),
}

#[derive(Clone, Default)]
pub(super) struct Inode {
    pub(super) current: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
    pub(super) locked: bool,
}

#[derive(Clone)]
enum NameChange {
    Link(PathBuf, u64),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf),
}

#[derive(Clone, Default)]
pub(super) struct State {
    random: Option<Random>,
    faults: Faults,
    reads: u64,
    writes: u64,
    syncs: u64,
    /// Counts crashes; a handle of an earlier time is dead.
    pub(super) generation: u64,
    next_inode: u64,
    pub(super) inodes: BTreeMap<u64, Inode>,
    pub(super) names: BTreeMap<PathBuf, u64>,
    durable_names: BTreeMap<PathBuf, u64>,
    pending_names: Vec<NameChange>,
    pub(super) directories: BTreeSet<PathBuf>,
}

impl Disk {
    /// An empty disk.
    pub fn new() -> Disk {
        Disk::default()
    }

    /// What the machine finds after a crash or power failure: see the module's text. The handles of
    /// earlier runs are dead.
    pub fn crash(&self, seed: u64) {
        self.state().crash(&mut Random::new(seed ^ 0xD15C));
    }

    /// A copy that goes its own way, to try several crashes from one state.
    pub fn fork(&self) -> Disk {
        Disk(Arc::new(Mutex::new(self.state().clone())))
    }

    /// The files' current contents, for a scenario to look at or to damage.
    pub fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let state = self.state();
        let file = |(path, inode): (&PathBuf, &u64)| (path.clone(), state.inodes[inode].current.clone());
        state.names.iter().map(file).collect()
    }

    /// Changes bytes of a file behind everybody's back, durably; false if they are not there.
    pub fn damage(&self, path: &Path, offset: u64, bytes: &[u8]) -> bool {
        let mut state = self.state();
        let Some(&inode) = state.names.get(path) else { return false };
        let Some(inode) = state.inodes.get_mut(&inode) else { return false };
        let range = offset as usize..offset as usize + bytes.len();
        for copy in [&mut inode.current, &mut inode.durable] {
            match copy.get_mut(range.clone()) {
                Some(place) => place.copy_from_slice(bytes),
                None => return false,
            }
        }
        true
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn start_run(&self, seed: u64, faults: Faults) {
        let mut state = self.state();
        state.random = Some(Random::new(seed ^ 0xF11E5));
        state.faults = faults;
        (state.reads, state.writes, state.syncs) = (0, 0, 0);
        for inode in state.inodes.values_mut() {
            inode.locked = false; // whoever held it is of an earlier run
        }
    }
}

pub(super) fn error(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

fn put(file: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[offset..end].copy_from_slice(bytes);
}

fn apply(file: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write { offset, bytes } => put(file, *offset, bytes),
        Change::Len(len) => file.resize(*len, 0),
    }
}

/// Applies a write's sectors for which `keep` says so.
fn apply_sectors(file: &mut Vec<u8>, offset: usize, bytes: &[u8], keep: &mut dyn FnMut() -> bool) {
    let mut at = 0;
    while at < bytes.len() {
        let n = (SECTOR_BYTES - (offset + at) % SECTOR_BYTES).min(bytes.len() - at);
        if keep() {
            put(file, offset + at, &bytes[at..at + n]);
        }
        at += n;
    }
}

fn apply_name(names: &mut BTreeMap<PathBuf, u64>, change: &NameChange) {
    match change {
        NameChange::Link(path, inode) => {
            names.insert(path.clone(), *inode);
        }
        NameChange::Unlink(path) => {
            names.remove(path);
        }
        NameChange::Rename(from, to) => {
            if let Some(inode) = names.remove(from) {
                names.insert(to.clone(), inode);
            }
        }
    }
}

impl Inode {
    fn crash(&mut self, random: &mut Random) {
        let pending = std::mem::take(&mut self.pending);
        let mode = random.below(4);
        let whole = match mode {
            0 => 0,
            1 => pending.len(),
            2 => 0,
            _ => random.below(pending.len() as u64 + 1) as usize,
        };
        for (number, change) in pending.iter().enumerate() {
            let torn = mode == 2 || (mode == 3 && number == whole);
            match change {
                _ if number < whole => apply(&mut self.durable, change),
                Change::Write { offset, bytes } if torn => {
                    apply_sectors(&mut self.durable, *offset, bytes, &mut || random.one_in(2));
                }
                Change::Len(_) if torn && random.one_in(2) => apply(&mut self.durable, change),
                _ => {}
            }
        }
        self.current = self.durable.clone();
        self.locked = false;
    }
}

impl State {
    fn random(&mut self) -> &mut Random {
        self.random.get_or_insert(Random::new(0))
    }

    /// A number from the disk's own stream of decisions.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.random().below(n)
    }

    fn crash(&mut self, random: &mut Random) {
        let pending = std::mem::take(&mut self.pending_names);
        let kept = random.below(pending.len() as u64 + 1) as usize;
        for change in &pending[..kept] {
            apply_name(&mut self.durable_names, change);
        }
        self.names = self.durable_names.clone();
        let live: BTreeSet<u64> = self.names.values().copied().collect();
        self.inodes.retain(|number, _| live.contains(number));
        for inode in self.inodes.values_mut() {
            inode.crash(random);
        }
        self.generation += 1;
    }

    pub(super) fn link(&mut self, path: &Path) -> u64 {
        self.next_inode += 1;
        let inode = self.next_inode;
        self.inodes.insert(inode, Inode::default());
        self.change_name(NameChange::Link(path.to_owned(), inode));
        inode
    }

    pub(super) fn unlink(&mut self, path: &Path) {
        self.change_name(NameChange::Unlink(path.to_owned()));
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) {
        self.change_name(NameChange::Rename(from.to_owned(), to.to_owned()));
    }

    fn change_name(&mut self, change: NameChange) {
        apply_name(&mut self.names, &change);
        self.pending_names.push(change);
    }

    pub(super) fn sync_directory(&mut self, path: &Path) -> io::Result<()> {
        self.count_sync()?;
        let here = |change: &NameChange| match change {
            NameChange::Link(at, _) | NameChange::Unlink(at) => at.parent() == Some(path),
            NameChange::Rename(from, to) => from.parent() == Some(path) || to.parent() == Some(path),
        };
        for change in std::mem::take(&mut self.pending_names) {
            if here(&change) {
                apply_name(&mut self.durable_names, &change);
            } else {
                self.pending_names.push(change);
            }
        }
        Ok(())
    }

    pub(super) fn count_read(&mut self) -> io::Result<()> {
        self.reads += 1;
        if self.faults.fail_read == Some(self.reads) { Err(error(libc::EIO)) } else { Ok(()) }
    }

    fn count_sync(&mut self) -> io::Result<()> {
        self.syncs += 1;
        if self.faults.fail_sync == Some(self.syncs) { Err(error(libc::EIO)) } else { Ok(()) }
    }

    fn has_room(&self, inode: u64, len: usize) -> bool {
        let Some(space) = self.faults.space_bytes else { return true };
        let used: usize = self.names.values().map(|number| self.inodes[number].current.len()).sum();
        let old = self.inodes[&inode].current.len();
        (used + len.saturating_sub(old)) as u64 <= space
    }

    pub(super) fn write(&mut self, number: u64, offset: usize, bytes: &[u8]) -> io::Result<()> {
        self.writes += 1;
        let fails = self.faults.fail_write == Some(self.writes);
        if !self.has_room(number, offset + bytes.len()) {
            return Err(error(libc::ENOSPC));
        }
        let n = if fails { self.below(bytes.len() as u64 + 1) as usize } else { bytes.len() };
        self.change(number, Change::Write { offset, bytes: bytes[..n].to_vec() });
        if fails { Err(error(libc::EIO)) } else { Ok(()) }
    }

    pub(super) fn set_len(&mut self, number: u64, len: usize) -> io::Result<()> {
        if !self.has_room(number, len) {
            return Err(error(libc::ENOSPC));
        }
        self.change(number, Change::Len(len));
        Ok(())
    }

    fn change(&mut self, number: u64, change: Change) {
        let inode = self.inode(number);
        apply(&mut inode.current, &change);
        inode.pending.push(change);
    }

    pub(super) fn inode(&mut self, number: u64) -> &mut Inode {
        self.inodes.get_mut(&number).expect("inodes live as long as handles of this generation")
    }

    /// How many changes a sync that starts now has to make durable, and how many bytes those are.
    pub(super) fn pending(&mut self, number: u64) -> (usize, usize) {
        let pending = &self.inode(number).pending;
        let bytes = |change: &Change| if let Change::Write { bytes, .. } = change { bytes.len() } else { 0 };
        (pending.len(), pending.iter().map(bytes).sum())
    }

    /// Ends a sync: the first `count` changes are durable, or on a fault, may not be.
    pub(super) fn sync(&mut self, number: u64, count: usize) -> io::Result<()> {
        let result = self.count_sync();
        let mut random = self.random().clone();
        let inode = self.inode(number);
        // Another sync of the file may have ended meanwhile and taken some of them.
        let count = count.min(inode.pending.len());
        for change in inode.pending.drain(..count) {
            match &change {
                _ if result.is_ok() => apply(&mut inode.durable, &change),
                Change::Write { offset, bytes } => {
                    apply_sectors(&mut inode.durable, *offset, bytes, &mut || random.one_in(2));
                }
                Change::Len(_) => {}
            }
        }
        result
    }
}
