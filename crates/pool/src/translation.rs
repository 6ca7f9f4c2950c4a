//! In which frame is a page? An array indexed by page number.
//!
//! Page numbers are dense, so an array serves where others hash: a lookup is two dependent loads
//! and no lock, a missing page is a zero, and per-page state that has to outlive residence
//! (allocated or not, logged or not) has its place. It costs 8 bytes a page, 1/2048 of the data.
//! Chunks of it are made when the file grows into them.

use homenode_memory::{HugePages, MemoryError, Policy, Region};
use homenode_platform::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use homenode_platform::sync::Mutex;
use homenode_topology::Topology;

use crate::PageNo;
use crate::frame::Frame;
use crate::stats::PoolRegion;

/// Entries of a chunk: 2 MiB of them, for 4 GiB of pages.
const CHUNK: usize = 1 << 18;
/// Chunks: for 64 TiB of pages.
const CHUNKS: usize = 1 << 14;

/// One task is bringing the page in; others wait.
pub(crate) const LOADING: u64 = 1;
/// The number belongs to no allocated page.
pub(crate) const FREE: u64 = 2;
/// The page is not logged. Kept while it is not in memory.
pub(crate) const UNLOGGED: u64 = 4;
/// The number is allocated as part of a run whose pages are not written yet.
pub(crate) const RESERVED: u64 = 8;
/// Descriptors are 128-byte aligned, so seven bits below their address are free for state.
const STATE: u64 = 127;

/// What an entry says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry(u64);

impl Entry {
    pub(crate) const ABSENT: Entry = Entry(0);
    pub(crate) const FREE: Entry = Entry(FREE);
    pub(crate) const RESERVED: Entry = Entry(RESERVED);

    /// The page is in this frame.
    pub(crate) fn resident(frame: &Frame, unlogged: bool) -> Entry {
        let address = std::ptr::from_ref(frame).expose_provenance() as u64;
        Entry(address | if unlogged { UNLOGGED } else { 0 })
    }

    /// Not in memory, being loaded.
    pub(crate) fn loading(unlogged: bool) -> Entry {
        Entry(LOADING | if unlogged { UNLOGGED } else { 0 })
    }

    /// Not in memory.
    pub(crate) fn absent(unlogged: bool) -> Entry {
        Entry(if unlogged { UNLOGGED } else { 0 })
    }

    #[inline(always)]
    pub(crate) fn is_resident(self) -> bool {
        self.0 & !STATE != 0
    }

    pub(crate) fn is_loading(self) -> bool {
        self.0 & LOADING != 0
    }

    pub(crate) fn is_free(self) -> bool {
        self.0 & FREE != 0
    }

    pub(crate) fn is_reserved(self) -> bool {
        self.0 & RESERVED != 0
    }

    pub(crate) fn is_unlogged(self) -> bool {
        self.0 & UNLOGGED != 0
    }
}

/// A page's entry.
#[repr(transparent)]
pub(crate) struct Slot(AtomicU64);

impl Slot {
    #[inline(always)]
    pub(crate) fn load(&self) -> Entry {
        Entry(self.0.load(Acquire))
    }

    pub(crate) fn store(&self, entry: Entry) {
        self.0.store(entry.0, Release);
    }

    /// Replaces `from` by `to`; false if the entry was another.
    pub(crate) fn replace(&self, from: Entry, to: Entry) -> bool {
        self.0.compare_exchange(from.0, to.0, std::sync::atomic::Ordering::AcqRel, Relaxed).is_ok()
    }

    /// The frame the entry leads to, if the page is in memory.
    #[inline(always)]
    pub(crate) fn frame(&self) -> Option<&Frame> {
        let entry = self.load();
        if !entry.is_resident() {
            return None;
        }
        let address = (entry.0 & !STATE) as usize;
        // SAFETY: an entry's address part only ever comes from `Entry::resident`, so from a
        // descriptor of this pool; descriptors are never moved and live as long as the pool, whose
        // borrow bounds this slot's life.
        Some(unsafe { &*std::ptr::with_exposed_provenance::<Frame>(address) })
    }
}

/// The array.
pub(crate) struct Translation {
    /// Addresses of chunks; 0: not made yet.
    chunks: Box<[AtomicUsize]>,
    /// Owns the chunks.
    regions: Mutex<Vec<Region>>,
    topology: Topology,
}

impl Translation {
    pub(crate) fn new(topology: &Topology) -> Translation {
        assert!(size_of::<Slot>() == 8 && align_of::<Slot>() <= 8);
        Translation {
            chunks: (0..CHUNKS).map(|_| AtomicUsize::new(0)).collect(),
            regions: Mutex::new(Vec::new()),
            topology: topology.clone(),
        }
    }

    /// The page's entry, if the file ever reached its chunk. Any number may be asked for.
    #[inline(always)]
    pub(crate) fn slot(&self, page_no: PageNo) -> Option<&Slot> {
        let chunk = self.chunks.get((page_no / CHUNK as u64) as usize)?;
        let address = chunk.load(Acquire);
        if address == 0 {
            return None;
        }
        let start = std::ptr::with_exposed_provenance::<Slot>(address);
        // SAFETY: a chunk has CHUNK slots, zeroed memory is CHUNK absent entries, and chunks live
        // until the array is dropped.
        Some(unsafe { &*start.add(page_no as usize % CHUNK) })
    }

    /// The page's entry; its chunk is made if there is none. `None` beyond the largest page number.
    pub(crate) fn slot_or_create(&self, page_no: PageNo) -> Result<Option<&Slot>, MemoryError> {
        if let Some(slot) = self.slot(page_no) {
            return Ok(Some(slot));
        }
        let Some(chunk) = self.chunks.get((page_no / CHUNK as u64) as usize) else {
            return Ok(None);
        };
        let mut regions = self.regions.lock();
        if chunk.load(Acquire) == 0 {
            // A small database stays with small pages: it uses a small part of its one chunk.
            let huge = if page_no < CHUNK as u64 { HugePages::Off } else { HugePages::Transparent };
            let policy = if self.topology.nodes().len() > 1 { Policy::Interleave } else { Policy::Default };
            let region = Region::new(CHUNK * size_of::<Slot>(), &policy, huge, &self.topology)?;
            homenode_platform::name_memory(region.as_ptr().cast::<Slot>(), CHUNK, "translation", &[]);
            chunk.store(region.as_ptr().expose_provenance(), Release);
            regions.push(region);
        }
        drop(regions);
        Ok(self.slot(page_no))
    }

    /// Its chunks, for a census.
    pub(crate) fn regions(&self) -> Vec<PoolRegion> {
        let regions = self.regions.lock();
        let named =
            |(chunk, region): (usize, &Region)| PoolRegion::of(format!("page table, part {chunk}"), None, region);
        regions.iter().enumerate().map(named).collect()
    }

    /// Bytes of memory the array's chunks take at most.
    pub(crate) fn bytes(&self) -> usize {
        self.regions.lock().iter().map(Region::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_state_below_the_address() {
        let translation = Translation::new(&Topology::discover());
        let far = 5 * CHUNK as u64 + 3;
        assert!(translation.slot(far).is_none());
        assert!(translation.slot(u64::MAX).is_none());
        assert!(translation.slot_or_create(u64::MAX).unwrap().is_none());
        let slot = translation.slot_or_create(far).unwrap().unwrap();
        assert!(slot.load() == Entry::ABSENT && slot.frame().is_none());

        let frame = Frame::new(0, 7, std::ptr::null_mut());
        slot.store(Entry::resident(&frame, true));
        assert!(slot.load().is_resident() && slot.load().is_unlogged());
        assert!(std::ptr::eq(slot.frame().unwrap(), &frame));
        assert!(!slot.replace(Entry::ABSENT, Entry::FREE));
        slot.store(Entry::absent(true));
        assert!(slot.replace(Entry::absent(true), Entry::loading(true)));
        assert!(slot.load().is_loading() && slot.load().is_unlogged() && !slot.load().is_free());
        assert_eq!(translation.bytes(), CHUNK * 8);
    }
}
