//! Which pages of a range does a process have in its page tables? `/proc/PID/pagemap` (Documentation/admin-guide/mm/pagemap.rst):
//! eight bytes a page, readable without making a page present.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::{explain, path};
use crate::InspectError;

/// One page's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageEntry(pub u64);

impl PageEntry {
    /// Whether the process has the page in its tables.
    pub fn is_present(self) -> bool {
        self.0 >> 63 & 1 == 1
    }

    /// Whether no other process has it in its tables.
    pub fn is_exclusive(self) -> bool {
        self.0 >> 56 & 1 == 1
    }

    /// Number of the page frame; `None` if absent, or hidden (the reader has no CAP_SYS_ADMIN).
    pub fn frame(self) -> Option<u64> {
        let frame = self.0 & ((1 << 55) - 1);
        (self.is_present() && frame != 0).then_some(frame)
    }
}

/// A process's pagemap, opened.
#[derive(Debug)]
pub struct Pagemap {
    pid: u32,
    file: File,
    page_bytes: u64,
    bytes: Vec<u8>,
}

impl Pagemap {
    /// Opens the file of a process; `page_bytes` is the size of the machine's small pages.
    ///
    /// # Errors
    /// [`InspectError::Vanished`], [`InspectError::NotPermitted`], [`InspectError::Io`].
    pub fn open(pid: u32, page_bytes: u64) -> Result<Pagemap, InspectError> {
        let path = path(pid, "pagemap");
        let file = File::open(&path).map_err(|error| explain(pid, &path, error))?;
        Ok(Pagemap { pid, file, page_bytes, bytes: Vec::new() })
    }

    /// Whose it is.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The entries of `pages` small pages from an address. Fewer if the process shrank or ended meanwhile.
    ///
    /// # Errors
    /// [`InspectError::Io`].
    pub fn read(&mut self, start: u64, pages: usize) -> Result<impl Iterator<Item = PageEntry>, InspectError> {
        self.bytes.resize(pages * 8, 0);
        let mut filled = 0;
        while filled < self.bytes.len() {
            match self.file.read_at(&mut self.bytes[filled..], start / self.page_bytes * 8 + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(explain(self.pid, &path(self.pid, "pagemap"), error)),
            }
        }
        let entries = self.bytes[..filled].chunks_exact(8);
        Ok(entries.map(|entry| PageEntry(u64::from_ne_bytes(entry.try_into().unwrap_or_default()))))
    }
}

/// What the kernel says about page frames, `/proc/kpageflags` (the same document); only root may read it.
#[derive(Debug)]
pub struct FrameFlags {
    file: Option<File>,
}

impl FrameFlags {
    /// Opens the file; where that is not permitted nothing is known about any frame.
    pub fn open() -> FrameFlags {
        FrameFlags { file: File::open("/proc/kpageflags").ok() }
    }

    /// Whether a frame belongs to a huge page that the kernel made by itself; `None` if that can't be known.
    pub fn is_joined(&self, frame: u64) -> Option<bool> {
        /// Bit of these pages (include/uapi/linux/kernel-page-flags.h).
        const KPF_THP: u64 = 22;
        let mut flags = [0; 8];
        self.file.as_ref()?.read_exact_at(&mut flags, frame.checked_mul(8)?).ok()?;
        Some(u64::from_ne_bytes(flags) >> KPF_THP & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_touched_page_is_present_and_an_unmapped_one_not() {
        let page = vec![1u8; 16_384];
        let mut pagemap = Pagemap::open(std::process::id(), 4096).unwrap();
        let address = page.as_ptr().addr() as u64;
        let entries: Vec<PageEntry> = pagemap.read(address, 2).unwrap().collect();
        assert!(entries.iter().all(|entry| entry.is_present()));
        assert!(pagemap.read(4096, 1).unwrap().all(|entry| !entry.is_present()));
        drop(page);
    }

    #[test]
    fn entries_are_taken_apart() {
        let entry = PageEntry(1 << 63 | 1 << 56 | 77);
        assert!(entry.is_present() && entry.is_exclusive());
        assert_eq!(entry.frame(), Some(77));
        assert_eq!(PageEntry(1 << 62 | 77).frame(), None);
        assert_eq!(PageEntry(1 << 63).frame(), None);
    }
}
