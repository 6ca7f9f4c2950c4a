//! Which page numbers are free? Allocation by lane, growth of the file, the space map.
//!
//! Each lane has a stash of numbers, refilled 64 at a time: allocation takes no lock that another
//! lane wants. The file is extended with `fallocate`, so a full disk is met here, where the
//! statement can still fail, and not later when a dirty page has to be written.

mod runs;

use std::collections::BTreeSet;

use homenode_platform::CachePadded;
use homenode_platform::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use homenode_platform::sync::Mutex;

use crate::file::PageFile;
use crate::translation::{Entry, Translation};
use crate::{NO_PAGE, PAGE_BYTES, PageNo, PoolError};
use runs::{Runs, put_varint, take_varint};

/// Numbers that a lane takes at once: 1 MiB of pages.
const EXTENT: u64 = 64;
/// A stash larger than this gives part of it back.
const STASH_MAX: u64 = 4 * EXTENT;
/// The file grows by an eighth of itself, between these.
const GROWTH_MIN: u64 = 16 * EXTENT;
const GROWTH_MAX: u64 = 64 * EXTENT;
const UNLOGGED_SHARDS: usize = 16;
const MAP_VERSION: u64 = 1;

/// Numbers at a lane's hand, as a stack of runs.
#[derive(Default)]
struct Stash {
    runs: Vec<(PageNo, u64)>,
    count: u64,
}

impl Stash {
    fn push(&mut self, first: PageNo, len: u64) {
        self.count += len;
        match self.runs.last_mut() {
            Some((f, l)) if *f + *l == first => *l += len,
            Some((f, l)) if first + len == *f => (*f, *l) = (first, *l + len),
            _ => self.runs.push((first, len)),
        }
    }

    fn pop(&mut self) -> Option<PageNo> {
        let (first, len) = self.runs.last_mut()?;
        let page_no = *first;
        (*first, *len) = (*first + 1, *len - 1);
        if *len == 0 {
            self.runs.pop();
        }
        self.count -= 1;
        Some(page_no)
    }
}

/// What lanes refill from.
struct Global {
    free: Runs,
    /// Pages that the file has disk space for.
    file_pages: u64,
}

/// The allocation of page numbers.
pub(crate) struct Space {
    stashes: Box<[CachePadded<Mutex<Stash>>]>,
    global: CachePadded<Mutex<Global>>,
    /// Unlogged pages in use: free as far as a restart is concerned.
    unlogged: Box<[CachePadded<Mutex<BTreeSet<PageNo>>>]>,
    /// One more than the highest number ever given out.
    high_water: CachePadded<AtomicU64>,
}

impl Space {
    pub(crate) fn new(lanes: usize, file_pages: u64) -> Space {
        Space {
            stashes: (0..lanes.max(1)).map(|_| CachePadded::default()).collect(),
            global: CachePadded::new(Mutex::new(Global { free: Runs::default(), file_pages })),
            unlogged: (0..UNLOGGED_SHARDS).map(|_| CachePadded::default()).collect(),
            high_water: CachePadded::new(AtomicU64::new(NO_PAGE + 1)),
        }
    }

    pub(crate) fn high_water(&self) -> u64 {
        self.high_water.load(Acquire)
    }

    /// A free number, preferably one of the lane's own. Its entry still says free.
    pub(crate) fn take(
        &self,
        lane: usize,
        unlogged: bool,
        file: &PageFile,
        translation: &Translation,
    ) -> Result<PageNo, PoolError> {
        let mut stash = self.stashes[lane % self.stashes.len()].lock();
        let page_no = match stash.pop() {
            Some(page_no) => page_no,
            None => match self.refill(&mut stash, file, translation) {
                Ok(()) => stash.pop().expect("refilled"),
                Err(error) => self.take_from_any().ok_or(error)?,
            },
        };
        if unlogged {
            // Under the stash's lock, so that a space map never misses the number.
            self.unlogged_shard(page_no).lock().insert(page_no);
        }
        Ok(page_no)
    }

    fn refill(&self, stash: &mut Stash, file: &PageFile, translation: &Translation) -> Result<(), PoolError> {
        let mut global = self.global.lock();
        if global.free.count() == 0 {
            self.extend(&mut global, EXTENT, file, translation)?;
        }
        while stash.count < EXTENT {
            let Some((first, len)) = global.free.take_first(EXTENT - stash.count) else { break };
            stash.push(first, len);
        }
        Ok(())
    }

    /// The file is full: other lanes may have numbers left. (Only tried locks: two lanes may be
    /// doing this to each other.)
    fn take_from_any(&self) -> Option<PageNo> {
        self.stashes.iter().find_map(|stash| stash.try_lock().and_then(|mut stash| stash.pop()))
    }

    /// Adds `count` numbers behind the high-water mark to the free ones.
    fn extend(
        &self,
        global: &mut Global,
        count: u64,
        file: &PageFile,
        translation: &Translation,
    ) -> Result<(), PoolError> {
        let first = self.high_water();
        self.reserve_file(global, first + count, file)?;
        self.raise_high_water(global, first + count, translation)
    }

    fn reserve_file(&self, global: &mut Global, pages: u64, file: &PageFile) -> Result<(), PoolError> {
        if pages <= global.file_pages {
            return Ok(());
        }
        let missing = pages - global.file_pages;
        let generous = (global.file_pages / 8).clamp(GROWTH_MIN, GROWTH_MAX).max(missing);
        let mut grown = generous;
        if let Err(error) = file.reserve(global.file_pages, generous) {
            // A nearly full disk may still have room for what is needed now.
            if !matches!(error, PoolError::DiskFull { .. }) || generous == missing {
                return Err(error);
            }
            file.reserve(global.file_pages, missing)?;
            grown = missing;
        }
        global.file_pages += grown;
        Ok(())
    }

    /// Entries are marked free before the numbers exist, so that nobody who follows a stale number
    /// can start to load them.
    fn raise_high_water(&self, global: &mut Global, to: u64, translation: &Translation) -> Result<(), PoolError> {
        let from = self.high_water();
        for page_no in from..to {
            let slot = translation.slot_or_create(page_no).map_err(std::sync::Arc::new)?;
            let slot = slot.ok_or(PoolError::DiskFull { bytes: PAGE_BYTES as u64 })?;
            slot.store(Entry::FREE);
        }
        global.free.insert(from, to - from);
        self.high_water.store(to, Release);
        Ok(())
    }

    /// `count` consecutive numbers, and whether any of them was in use before.
    pub(crate) fn take_run(
        &self,
        count: u64,
        file: &PageFile,
        translation: &Translation,
    ) -> Result<(PageNo, bool), PoolError> {
        let mut global = self.global.lock();
        if let Some(first) = global.free.take_consecutive(count) {
            return Ok((first, true));
        }
        // The free numbers just below the high-water mark are part of the new run.
        let end = self.high_water();
        let tail = global.free.iter().last().filter(|(f, l)| f + l == end).map_or(0, |(_, l)| l);
        self.extend(&mut global, count - tail, file, translation)?;
        let first = global.free.take_consecutive(count).expect("just extended");
        Ok((first, tail > 0))
    }

    /// Gives a number back. Its entry says free already.
    pub(crate) fn release(&self, hint: usize, page_no: PageNo, unlogged: bool) {
        let mut stash = self.stashes[hint % self.stashes.len()].lock();
        stash.push(page_no, 1);
        if unlogged {
            self.unlogged_shard(page_no).lock().remove(&page_no);
        }
        if stash.count <= STASH_MAX {
            return;
        }
        // The oldest ones go; the latest freed are still warm in caches.
        let mut global = self.global.lock();
        while stash.count > STASH_MAX / 2 {
            let (first, len) = stash.runs.remove(0);
            stash.count -= len;
            global.free.insert(first, len);
        }
    }

    fn unlogged_shard(&self, page_no: PageNo) -> &Mutex<BTreeSet<PageNo>> {
        &self.unlogged[(page_no / EXTENT) as usize % UNLOGGED_SHARDS]
    }

    /// Takes a particular number out of the free ones, growing the file to it if need be.
    pub(crate) fn mark_used(
        &self,
        page_no: PageNo,
        file: &PageFile,
        translation: &Translation,
    ) -> Result<(), PoolError> {
        let mut global = self.global.lock();
        if page_no >= self.high_water() {
            self.reserve_file(&mut global, page_no + 1, file)?;
            self.raise_high_water(&mut global, page_no + 1, translation)?;
        }
        if global.free.remove(page_no) {
            return Ok(());
        }
        drop(global);
        for stash in &self.stashes {
            let mut stash = stash.lock();
            let mut set = Runs::default();
            stash.runs.iter().for_each(|&(first, len)| set.insert(first, len));
            if set.remove(page_no) {
                *stash = Stash { count: set.count(), runs: set.iter().collect() };
                return Ok(());
            }
        }
        Ok(())
    }

    /// Numbers free now, those in stashes included.
    pub(crate) fn free_count(&self) -> u64 {
        let stashed: u64 = self.stashes.iter().map(|s| s.lock().count).sum();
        stashed + self.global.lock().free.count()
    }

    /// The free numbers and the high-water mark as bytes; unlogged pages count as free.
    pub(crate) fn save(&self) -> Vec<u8> {
        // Everything at once, in the order in which the other functions lock.
        let stashes: Vec<_> = self.stashes.iter().map(|stash| stash.lock()).collect();
        let global = self.global.lock();
        let mut free = global.free.clone();
        for stash in &stashes {
            stash.runs.iter().for_each(|&(first, len)| free.insert(first, len));
        }
        for shard in &self.unlogged {
            for &page_no in shard.lock().iter() {
                // One that is being freed or allocated right now may be in both.
                if !free.contains(page_no) {
                    free.insert(page_no, 1);
                }
            }
        }
        let mut out = Vec::new();
        put_varint(&mut out, MAP_VERSION);
        put_varint(&mut out, self.high_water());
        free.encode(&mut out);
        out
    }

    /// Sets free numbers and high-water mark as saved. Only before anything was allocated.
    pub(crate) fn restore(&self, mut bytes: &[u8], translation: &Translation) -> Result<(), PoolError> {
        let bad = || PoolError::SpaceMap("it is cut short or not a space map");
        if take_varint(&mut bytes).ok_or_else(bad)? != MAP_VERSION {
            return Err(PoolError::SpaceMap("its version is not known"));
        }
        let high_water = take_varint(&mut bytes).filter(|&h| h > NO_PAGE).ok_or_else(bad)?;
        let free = Runs::decode(&mut bytes, high_water).ok_or_else(bad)?;
        if !bytes.is_empty() || free.contains(NO_PAGE) {
            return Err(bad());
        }
        let mut global = self.global.lock();
        assert!(self.high_water.load(Relaxed) == NO_PAGE + 1, "restored twice or too late");
        if high_water > NO_PAGE + 1 {
            // Makes the last chunk; the others in between as their free runs are marked or used.
            translation.slot_or_create(high_water - 1).map_err(std::sync::Arc::new)?;
        }
        for (first, len) in free.iter() {
            for page_no in first..first + len {
                let slot = translation.slot_or_create(page_no).map_err(std::sync::Arc::new)?;
                slot.ok_or_else(bad)?.store(Entry::FREE);
            }
        }
        global.free = free;
        self.high_water.store(high_water, Release);
        Ok(())
    }
}
