//! Which pages should be there before anyone asks? Loading in runs, and the list to load.

use std::io::IoSliceMut;

use crate::frame::Frame;
use crate::page::verify;
use crate::partition::Partition;
use crate::stats::bump;
use crate::translation::{Entry, Slot};
use crate::{NO_PAGE, PAGE_BYTES, PageNo, Pool, PoolError};

/// Pages of one read call at most: 1 MiB.
const RUN_MAX: usize = 64;

/// A page whose entry says that it is loading, and the frame it is going to be in.
struct Claim<'p> {
    page_no: PageNo,
    slot: &'p Slot,
    /// The entry before.
    entry: Entry,
    /// Exclusively latched, without a page.
    frame: &'p Frame,
}

impl Pool {
    /// Loads those of `pages` that are not in memory, as long as there are frames that nothing has
    /// to be evicted for; neighbours in the file with one call. Returns how many were loaded. Pages
    /// that are free or damaged are left out. Blocks the calling thread: for a thread of its own.
    pub fn prewarm(&self, pages: &[PageNo]) -> Result<usize, PoolError> {
        let mut pages = pages.to_vec();
        pages.sort_unstable();
        pages.dedup();
        let mut loaded = 0;
        let mut run: Vec<Claim<'_>> = Vec::new();
        for page_no in pages {
            let adjacent = run.last().is_none_or(|last| last.page_no + 1 == page_no);
            if !adjacent || run.len() == RUN_MAX {
                loaded += self.load_run(&mut run, Loaded::Wanted)?;
            }
            match self.claim(page_no, || self.spare_frame(page_no)) {
                Ok(claim) => run.extend(claim),
                Err(NoSpareFrame) => break,
            }
        }
        Ok(loaded + self.load_run(&mut run, Loaded::Wanted)?)
    }

    /// As [`Pool::prewarm`], for pages in the order of a scan that comes soon: frames come from wherever a miss would take them, as long as it
    /// would not have to wait.
    pub(crate) fn load_ahead(&self, pages: &[PageNo], why: Loaded) -> Result<usize, PoolError> {
        let mut loaded = 0;
        let mut run: Vec<Claim<'_>> = Vec::new();
        for &page_no in pages {
            if run.last().is_some_and(|last| last.page_no + 1 != page_no) {
                loaded += self.load_run(&mut run, why)?;
            }
            match self.claim(page_no, || self.try_take_frame(page_no)) {
                Ok(claim) => run.extend(claim),
                Err(NoSpareFrame) => break,
            }
        }
        Ok(loaded + self.load_run(&mut run, why)?)
    }

    /// The pages in memory, ascending: what to prewarm after a restart.
    pub fn resident_pages(&self) -> Vec<PageNo> {
        let frames = self.partitions.iter().flat_map(Partition::frames);
        let mut pages: Vec<_> = frames
            .filter(|frame| !frame.is_unlogged())
            .map(Frame::page_no)
            .filter(|&page_no| page_no != NO_PAGE)
            .collect();
        pages.sort_unstable();
        pages
    }

    /// Claims the page for loading; `None` if it is in memory, on its way there, or not allocated.
    fn claim<'p>(
        &'p self,
        page_no: PageNo,
        frame: impl FnOnce() -> Option<&'p Frame>,
    ) -> Result<Option<Claim<'p>>, NoSpareFrame> {
        let Ok(slot) = self.slot(page_no) else { return Ok(None) };
        let entry = slot.load();
        let absent = Entry::absent(entry.is_unlogged());
        if entry != absent {
            return Ok(None);
        }
        let frame = frame().ok_or(NoSpareFrame)?;
        if !slot.replace(entry, Entry::loading(entry.is_unlogged())) {
            self.give_back(frame);
            return Ok(None);
        }
        Ok(Some(Claim { page_no, slot, entry, frame }))
    }

    /// A frame from the fullest free list, if that has more than its cleaner would keep there: of the node that the page is
    /// dealt to, else of any.
    fn spare_frame(&self, page_no: PageNo) -> Option<&Frame> {
        let spare = |p: &&Partition| !p.is_far() && p.free_count() > p.free_target();
        let node = self.is_dealt().then(|| self.partition_for(page_no).node());
        let there = self.partitions.iter().filter(|p| node.is_none_or(|node| p.node() == node)).filter(spare);
        let fullest = there.max_by_key(|p| p.free_count());
        let partition = fullest.or_else(|| self.partitions.iter().filter(spare).max_by_key(|p| p.free_count()))?;
        let frame = partition.pop_free()?;
        bump(&partition.counters.taken, 1);
        crate::pool::latch_unwanted(frame);
        Some(frame)
    }

    /// Reads consecutive claimed pages with one call; how many are good.
    fn load_run(&self, run: &mut Vec<Claim<'_>>, why: Loaded) -> Result<usize, PoolError> {
        let Some(first) = run.first().map(|claim| claim.page_no) else { return Ok(0) };
        let mut slices: Vec<_> = run
            .iter()
            // SAFETY: each frame is exclusively latched, holds no page, and is in one claim only.
            .map(|c| unsafe { std::slice::from_raw_parts_mut(c.frame.data(), PAGE_BYTES) })
            .map(IoSliceMut::new)
            .collect();
        let read = match why {
            Loaded::AheadIfCached => self.file.read_run_cached(first, &mut slices),
            Loaded::Wanted | Loaded::Ahead => self.file.read_run(first, &mut slices),
        };
        drop(slices);
        let whole = *read.as_ref().unwrap_or(&0);
        let mut loaded = 0;
        for (i, claim) in run.drain(..).enumerate() {
            loaded += usize::from(self.finish_claim(&claim, i < whole, why));
            self.loads_done(claim.page_no);
        }
        let counters = &self.home().counters;
        bump(&counters.reads, loaded as u64);
        bump(&counters.read_runs, u64::from(loaded > 0 || why != Loaded::AheadIfCached));
        read.map(|_| loaded)
    }

    fn finish_claim(&self, claim: &Claim<'_>, read: bool, why: Loaded) -> bool {
        // SAFETY: the frame is exclusively latched: nobody writes it.
        let bytes = unsafe { std::slice::from_raw_parts(claim.frame.data(), PAGE_BYTES) };
        if !read || verify(bytes, claim.page_no).is_err() {
            claim.slot.store(claim.entry);
            self.give_back(claim.frame);
            return false;
        }
        self.publish(claim.frame, claim.page_no, claim.slot, claim.entry.is_unlogged());
        if why != Loaded::Wanted {
            claim.frame.mark_ahead();
        }
        claim.frame.latch().unlock_exclusive();
        true
    }
}

/// All frames are in use or meant for misses.
struct NoSpareFrame;

/// Why pages are loaded before anyone asks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loaded {
    /// They were in memory before a restart.
    Wanted,
    /// A scan will come by.
    Ahead,
    /// The same, and only what the system has in its own memory: by the scan itself, which must not wait.
    AheadIfCached,
}
