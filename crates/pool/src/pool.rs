//! How does a page number become a guard? The pool: lookup, loading, allocation, freeing.

use std::sync::Arc;

use homenode_memory::Policy;
use homenode_platform::fs::File;
use homenode_platform::sync::Mutex;
use homenode_platform::wait::WaitEvent;
use homenode_platform::{task, thread};
use homenode_topology::Topology;

use crate::arena::Arena;
use crate::cleaner::Cleaners;
use crate::file::PageFile;
use crate::frame::{Frame, checkpoint_fence};
use crate::guard::{Exclusive, Optimistic, Shared};
use crate::page::{header, seal, verify};
use crate::partition::Partition;
use crate::partitions::Partitions;
use crate::read_ahead::ReadAhead;
use crate::reshape::Shape;
use crate::space::Space;
use crate::stats::{PoolRegion, PoolStats, bump};
use crate::translation::{Entry, Slot, Translation};
use crate::waits::Waits;
use crate::{NO_PAGE, PAGE_BYTES, PageNo, PoolError, Wal};

/// What recovery offers for a damaged page: given its number and the bytes found, puts the right
/// bytes there and returns true, or returns false.
pub type RepairHook = Box<dyn Fn(PageNo, &mut [u8]) -> bool + Send + Sync>;

/// How a pool is to be made.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// Bytes of frames; rounded down to 2 MiB, at least 2 MiB. Descriptors (1/128 of it) and the
    /// translation array (8 bytes for each page of the file) come on top.
    pub bytes: usize,
    /// Partitions; 0: one for each CPU, of at least 16 MiB each.
    pub partitions: usize,
    /// Lanes that allocate pages; 0: as many as partitions.
    pub lanes: usize,
    /// Use huge pages where the machine has them.
    pub huge_pages: bool,
    /// On which nodes pages lie. `Interleave`, `WeightedInterleave` and `Bind` deal them to nodes by their numbers, whoever
    /// loads them; `Local` puts them on the node of who loads them; `Default` does so without asking the kernel for
    /// anything; `Preferred` puts them all on one node.
    pub policy: Policy,
    /// Nodes whose memory is the pool's second tier: pages cool down there before they are evicted. None: there is no second tier.
    pub far_nodes: Vec<usize>,
    /// Bytes of frames there, on all these nodes together; 0: three quarters of what they can give.
    pub far_bytes: usize,
    /// Make all memory present at once rather than at first use.
    pub prefault: bool,
    /// Run page-cleaner threads, one for each node. Without them, whoever needs a frame cleans.
    pub cleaners: bool,
    /// Read pages ahead of scans.
    pub read_ahead: bool,
    /// The CPUs near the device: pages are read ahead from there, and cleaners go there to write. Empty: anywhere.
    pub io_cpus: Vec<usize>,
    /// How long a task waits for a free frame before it gets [`PoolError::NoFrame`], nanoseconds.
    pub frame_patience_ns: u64,
    /// Identity of the database: written into a new page file, compared with an old one's unless 0.
    pub file_id: u64,
}

impl Default for PoolConfig {
    fn default() -> PoolConfig {
        PoolConfig {
            bytes: 128 << 20,
            partitions: 0,
            lanes: 0,
            huge_pages: true,
            policy: Policy::Local,
            far_nodes: Vec::new(),
            far_bytes: 0,
            prefault: false,
            cleaners: true,
            read_ahead: true,
            io_cpus: Vec::new(),
            frame_patience_ns: 10_000_000_000,
            file_id: 0,
        }
    }
}

/// A buffer pool over one page file.
pub struct Pool {
    pub(crate) translation: Translation,
    // Before the arena: partitions point into it.
    pub(crate) partitions: Partitions,
    pub(crate) arena: Arena,
    pub(crate) shape: Shape,
    /// Numbers of the second tier's partitions.
    pub(crate) far: Box<[usize]>,
    pub(crate) file: PageFile,
    pub(crate) wal: Arc<dyn Wal>,
    pub(crate) space: Space,
    /// Tasks that wait for a page another task is loading, by page number.
    loads: Waits,
    /// Tasks that wait for a write to end, by frame: what they look at is the frame's state, which
    /// by then may be about another page.
    writes: Waits,
    /// Tasks that wait for a free frame, by cleaner.
    pub(crate) frame_waits: Waits,
    pub(crate) cleaners: Arc<Cleaners>,
    pub(crate) ahead: Arc<ReadAhead>,
    repair: Mutex<Option<Arc<RepairHook>>>,
}

/// Stands for "older than any record": what recovery changes was logged before.
pub(crate) const RECOVERED_SINCE: u64 = 1;

/// What to do about a page that was never written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Use,
    Redo,
}

impl Pool {
    /// Opens a pool over a page file (empty for a new database) on a machine.
    pub fn new(config: PoolConfig, file: File, wal: Arc<dyn Wal>, topology: &Topology) -> Result<Arc<Pool>, PoolError> {
        let file = PageFile::open(file, config.file_id)?;
        let (arena, partitions) = Arena::new(&config, topology)?;
        let lanes = if config.lanes == 0 { partitions.len() } else { config.lanes };
        let file_pages = file.len()?.div_ceil(PAGE_BYTES as u64);
        let pool = Arc::new(Pool {
            translation: Translation::new(topology),
            cleaners: Arc::new(Cleaners::new(&partitions, topology, &config)),
            shape: Shape::new(&config, topology),
            far: partitions.iter().filter(|partition| partition.is_far()).map(Partition::id).collect(),
            partitions,
            arena,
            file,
            wal,
            space: Space::new(lanes, file_pages),
            loads: Waits::new(),
            writes: Waits::new(),
            frame_waits: Waits::new(),
            ahead: ReadAhead::new(config.read_ahead, config.io_cpus),
            repair: Mutex::new(None),
        });
        if config.cleaners {
            pool.start_cleaners();
        }
        Ok(pool)
    }

    /// Called when a sync of the page file failed. The hook reports it and has to end the process;
    /// without a hook the process aborts.
    pub fn on_fatal(&self, hook: Box<dyn Fn(&str) + Send + Sync>) {
        self.file.set_fatal_hook(hook);
    }

    /// During recovery: where to turn for pages that are damaged in the file.
    pub fn set_repair_hook(&self, hook: Option<RepairHook>) {
        *self.repair.lock() = hook.map(Arc::new);
    }

    // ---- access ----

    /// The page for optimistic reading. A resident page costs three dependent loads and no write.
    #[inline]
    pub fn optimistic(&self, page_no: PageNo) -> Result<Optimistic<'_>, PoolError> {
        if let Some(frame) = self.translation.slot(page_no).and_then(Slot::frame)
            && let Some(version) = frame.latch().try_optimistic()
            && frame.page_no() == page_no
        {
            frame.touch();
            return Ok(Optimistic { pool: self, frame, version, page_no });
        }
        self.optimistic_slow(page_no)
    }

    #[cold]
    fn optimistic_slow(&self, page_no: PageNo) -> Result<Optimistic<'_>, PoolError> {
        loop {
            let frame = self.resident(page_no)?;
            // See `latch_exclusive`.
            let Some(version) = frame.latch().optimistic_if(|| frame.page_no() == page_no) else { continue };
            // Page number after version: if the version validates later, so did the number.
            if frame.page_no() == page_no {
                return Ok(Optimistic { pool: self, frame, version, page_no });
            }
        }
    }

    /// The page in shared mode.
    #[inline]
    pub fn shared(&self, page_no: PageNo) -> Result<Shared<'_>, PoolError> {
        loop {
            let frame = self.resident(page_no)?;
            // See `latch_exclusive`.
            if !frame.latch().lock_shared_if(|| frame.page_no() == page_no) {
                continue;
            }
            if frame.page_no() == page_no {
                return Ok(Shared { frame, page_no });
            }
            frame.latch().unlock_shared();
        }
    }

    /// The page in exclusive mode.
    #[inline]
    pub fn exclusive(&self, page_no: PageNo) -> Result<Exclusive<'_>, PoolError> {
        loop {
            let frame = self.resident(page_no)?;
            if let Some(guard) = self.latch_exclusive(frame, page_no) {
                return Ok(guard);
            }
        }
    }

    fn latch_exclusive<'p>(&'p self, frame: &'p Frame, page_no: PageNo) -> Option<Exclusive<'p>> {
        // Queueing for a frame that holds another page by now could close a circle of waits: see
        // `latch_unwanted`.
        let waits = !frame.latch().try_lock_exclusive();
        if waits && !frame.latch().lock_exclusive_if(|| frame.page_no() == page_no) {
            return None;
        }
        if frame.page_no() == page_no {
            if waits {
                frame.note_wait(homenode_platform::clock::now_ns());
            }
            return Some(Exclusive::new(self, frame, page_no, false).after_wait(waits));
        }
        frame.latch().unlock_exclusive_unchanged();
        None
    }

    /// For recovery: the page in exclusive mode whatever its state. A free number becomes used; a
    /// page never written comes as zeros; a damaged one goes to the repair hook. Changes made
    /// through this guard count as older than all that is logged from now on: the next checkpoint
    /// writes them, wherever it begins.
    pub fn redo_page(&self, page_no: PageNo) -> Result<Exclusive<'_>, PoolError> {
        self.mark_used(page_no)?;
        let slot = self.slot(page_no)?;
        loop {
            let frame = self.resident_for(page_no, slot, Purpose::Redo)?;
            if let Some(guard) = self.latch_exclusive(frame, page_no) {
                return Ok(guard.recovering());
            }
        }
    }

    /// Whether the page is in memory now.
    pub fn is_resident(&self, page_no: PageNo) -> bool {
        self.translation.slot(page_no).is_some_and(|slot| slot.load().is_resident())
    }

    pub(crate) fn slot(&self, page_no: PageNo) -> Result<&Slot, PoolError> {
        if page_no == NO_PAGE || page_no >= self.space.high_water() {
            return Err(PoolError::NotAllocated { page_no });
        }
        let slot = self.translation.slot_or_create(page_no).map_err(Arc::new)?;
        slot.ok_or(PoolError::NotAllocated { page_no })
    }

    /// The frame that holds the page, loaded if need be. By the time the caller latches it, it may
    /// hold another page.
    #[inline]
    fn resident(&self, page_no: PageNo) -> Result<&Frame, PoolError> {
        if let Some(frame) = self.translation.slot(page_no).and_then(Slot::frame) {
            // Before latching: a page about to be latched is not evicted in the meantime.
            frame.touch();
            return Ok(frame);
        }
        self.resident_for(page_no, self.slot(page_no)?, Purpose::Use)
    }

    fn resident_for<'p>(&'p self, page_no: PageNo, slot: &'p Slot, purpose: Purpose) -> Result<&'p Frame, PoolError> {
        loop {
            let entry = slot.load();
            if let Some(frame) = slot.frame() {
                return Ok(frame);
            } else if entry.is_free() || entry.is_reserved() {
                return Err(PoolError::NotAllocated { page_no });
            } else if entry.is_loading() {
                let loading = || slot.load().is_loading();
                self.loads.wait_while(page_no, WaitEvent::PageRead, loading);
            } else if !entry.is_resident() && slot.replace(entry, Entry::loading(entry.is_unlogged())) {
                let loaded = self.load(page_no, slot, entry, purpose);
                self.loads_done(page_no);
                return loaded.inspect(|frame| frame.latch().unlock_exclusive());
            }
        }
    }

    /// Reads the page into a frame, which is returned exclusively latched. The entry, `before` until
    /// now, says loading.
    fn load(&self, page_no: PageNo, slot: &Slot, before: Entry, purpose: Purpose) -> Result<&Frame, PoolError> {
        let frame = self.take_frame(page_no).inspect_err(|_| slot.store(before))?;
        match self.fill(frame, page_no, purpose) {
            Ok(repaired) => {
                self.publish(frame, page_no, slot, before.is_unlogged());
                if repaired {
                    self.mark_frame_dirty_since(frame, || RECOVERED_SINCE);
                }
                let counters = &self.partitions[frame.partition()].counters;
                bump(&counters.reads, 1);
                bump(&counters.read_runs, 1);
                Ok(frame)
            }
            Err(error) => {
                slot.store(before);
                self.give_back(frame);
                Err(error)
            }
        }
    }

    /// Makes a loaded page reachable. Its frame is exclusively latched and has its bytes. The
    /// reference bit stays clear: a page that is used once goes before those used again.
    pub(crate) fn publish(&self, frame: &Frame, page_no: PageNo, slot: &Slot, unlogged: bool) {
        frame.set_unlogged(unlogged);
        frame.clear_reference();
        frame.set_page_no(page_no);
        slot.store(Entry::resident(frame, unlogged));
    }

    /// Wakes those that waited for the page to be loaded, or for that to fail.
    pub(crate) fn loads_done(&self, page_no: PageNo) {
        self.loads.wake(page_no);
    }

    /// Reads and checks the page's bytes; true if they were made good and differ from the file's.
    fn fill(&self, frame: &Frame, page_no: PageNo, purpose: Purpose) -> Result<bool, PoolError> {
        // SAFETY: the frame is exclusively latched and holds no page. A reader that still looks at
        // it holds a version from before and throws away what it reads.
        let bytes = unsafe { std::slice::from_raw_parts_mut(frame.data(), PAGE_BYTES) };
        self.file.read(page_no, bytes)?;
        let Err(reason) = verify(bytes, page_no) else { return Ok(false) };
        let hook = self.repair.lock().clone();
        if hook.is_some_and(|hook| hook(page_no, bytes)) {
            return Ok(true);
        }
        if purpose == Purpose::Redo && bytes.iter().all(|&b| b == 0) {
            bytes[header::PAGE_NO..header::PAGE_NO + 8].copy_from_slice(&page_no.to_le_bytes());
            return Ok(true);
        }
        Err(PoolError::Damaged { page_no, reason })
    }

    #[inline]
    pub(crate) fn mark_frame_dirty(&self, frame: &Frame) {
        self.mark_frame_dirty_since(frame, || self.wal.tail());
    }

    #[inline]
    pub(crate) fn mark_frame_dirty_since(&self, frame: &Frame, since: impl FnOnce() -> u64) {
        if frame.mark_dirty(since) {
            bump(&self.partitions[frame.partition()].counters.dirtied, 1);
        }
    }

    // ---- frames ----

    /// The partition of the CPU that the calling task runs on.
    pub(crate) fn home(&self) -> &Partition {
        &self.partitions[self.arena.routes().home(thread::current_cpu())]
    }

    /// The partition that the page belongs to, or that the calling task is at home in.
    pub(crate) fn partition_for(&self, page_no: PageNo) -> &Partition {
        &self.partitions[self.arena.routes().partition_for(page_no, thread::current_cpu())]
    }

    /// The node that a page belongs to: by its number where that decides, else by the frame that holds it now.
    pub fn node_of(&self, page_no: PageNo) -> Option<usize> {
        if let Some(node) = self.arena.routes().node_for(page_no) {
            return Some(node);
        }
        let frame = self.translation.slot(page_no).and_then(Slot::frame)?;
        Some(self.partitions[frame.partition()].node())
    }

    /// Whether a page's number decides on which node it lies.
    pub(crate) fn is_dealt(&self) -> bool {
        self.arena.routes().is_dealt()
    }

    /// A frame for this page that holds none yet, exclusively latched.
    fn take_frame(&self, page_no: PageNo) -> Result<&Frame, PoolError> {
        let mut patience = self.cleaners.patience();
        loop {
            if let Some(frame) = self.try_take_frame(page_no) {
                return Ok(frame);
            }
            let wanted = self.partition_for(page_no);
            bump(&wanted.counters.frame_waits, 1);
            self.wait_for_frame(&self.partitions[wanted.route()], &mut patience)?;
        }
    }

    /// As [`Pool::take_frame`], if one can be had without waiting.
    pub(crate) fn try_take_frame(&self, page_no: PageNo) -> Option<&Frame> {
        let wanted = self.partition_for(page_no);
        let routed = &self.partitions[wanted.route()];
        let popped = self.pop_near(routed);
        if popped.is_none() {
            self.cleaners.request(routed.node());
        }
        let frame = popped.or_else(|| self.evict_near(routed))?;
        let partition = &self.partitions[frame.partition()];
        bump(&partition.counters.taken, 1);
        bump(&partition.counters.borrowed, u64::from(partition.id() != wanted.id()));
        latch_unwanted(frame);
        Some(frame)
    }

    /// Partitions of the near tier from `first` on: those of its node before the others.
    pub(crate) fn near<'p>(&'p self, first: &'p Partition) -> impl Iterator<Item = &'p Partition> + Clone {
        let count = self.partitions.len();
        let turn = move |i: usize| &self.partitions[(first.id() + i) % count];
        let near = move || (0..count).map(turn).filter(|partition| !partition.is_far());
        let same = near().filter(|p| p.node() == first.node());
        same.chain(near().filter(|p| p.node() != first.node()))
    }

    fn pop_near<'p>(&'p self, first: &'p Partition) -> Option<&'p Frame> {
        let frame = self.near(first).find_map(Partition::pop_free)?;
        let partition = &self.partitions[frame.partition()];
        if partition.free_count() < partition.free_target() / 4 * 3 {
            self.cleaners.request(partition.node());
        }
        Some(frame)
    }

    pub(crate) fn evict_near<'p>(&'p self, first: &'p Partition) -> Option<&'p Frame> {
        /// Steps of 64 frames before the cleaner is a better idea than looking on.
        const STEPS_MAX: usize = 8;
        self.near(first).find_map(|partition| {
            let turns = 2 * partition.frames().len().div_ceil(crate::partition::SWEEP);
            (0..turns.min(STEPS_MAX)).find_map(|_| {
                let frame = partition.sweep().iter().find(|frame| {
                    frame.page_no() != NO_PAGE && !frame.clear_reference() && self.cool_or_evict(frame)
                })?;
                bump(&partition.counters.foreground_evictions, 1);
                Some(frame)
            })
        })
    }

    /// Takes a clean page out of its frame; false if it is dirty or somebody holds it. The frame is
    /// then in no list and belongs to the caller.
    pub(crate) fn evict(&self, frame: &Frame) -> bool {
        if !frame.is_clean() || !frame.latch().try_lock_exclusive() {
            return false;
        }
        let page_no = frame.page_no();
        if page_no == NO_PAGE || !frame.is_clean() {
            frame.latch().unlock_exclusive_unchanged();
            return false;
        }
        let slot = self.translation.slot(page_no).expect("a resident page has an entry");
        slot.store(Entry::absent(frame.is_unlogged()));
        frame.set_page_no(NO_PAGE);
        // The version moves: readers of the page fail from here on, whatever the frame holds next.
        frame.latch().unlock_exclusive();
        bump(&self.partitions[frame.partition()].counters.evictions, 1);
        true
    }

    /// Returns an exclusively latched frame that holds no page.
    pub(crate) fn give_back(&self, frame: &Frame) {
        frame.set_page_no(NO_PAGE);
        frame.latch().unlock_exclusive();
        let partition = &self.partitions[frame.partition()];
        partition.push_free(frame);
        self.frame_waits.wake(partition.node() as u64);
    }

    // ---- allocation ----

    /// A new page of zeros (but for its number), exclusively latched and dirty.
    pub fn allocate(&self, lane: usize) -> Result<Exclusive<'_>, PoolError> {
        self.allocate_as(lane, false)
    }

    /// As [`Pool::allocate`], for a page that is never logged: it is written without an image, no
    /// checkpoint is for it, and it does not survive a restart. Its LSN is set to the log's tail:
    /// older log records of the page's earlier lives do not apply to it.
    pub fn allocate_unlogged(&self, lane: usize) -> Result<Exclusive<'_>, PoolError> {
        self.allocate_as(lane, true)
    }

    fn allocate_as(&self, lane: usize, unlogged: bool) -> Result<Exclusive<'_>, PoolError> {
        let page_no = self.space.take(lane, unlogged, &self.file, &self.translation)?;
        let frame = self.take_frame(page_no).inspect_err(|_| self.space.release(lane, page_no, unlogged))?;
        // SAFETY: take_frame returns it exclusively latched.
        let mut page = unsafe { frame.page_mut() };
        page.zero(0, PAGE_BYTES);
        page.write_u64(header::PAGE_NO, page_no);
        if unlogged {
            page.set_lsn(self.wal.tail());
        }
        frame.set_unlogged(unlogged);
        frame.touch();
        frame.set_page_no(page_no);
        self.mark_frame_dirty(frame);
        let slot = self.translation.slot(page_no).expect("made with the number");
        assert!(slot.load().is_free(), "page {page_no} was allocated twice");
        slot.store(Entry::resident(frame, unlogged));
        Ok(Exclusive::new(self, frame, page_no, true))
    }

    /// `count` consecutive page numbers for [`Pool::write_run`]. Until that is done, the pages
    /// cannot be accessed.
    pub fn allocate_run(&self, count: usize) -> Result<PageNo, PoolError> {
        assert!(count > 0);
        let (first, recycled) = self.space.take_run(count as u64, &self.file, &self.translation)?;
        if recycled {
            // Records that freed these pages must not be lost once the pages are overwritten.
            self.wal.flush_to(self.wal.tail());
        }
        for page_no in first..first + count as u64 {
            self.slot(page_no)?.store(Entry::RESERVED);
        }
        Ok(first)
    }

    /// Writes pages of a run past the frames: stamps page numbers and checksums into `bytes` (whole
    /// pages; an LSN of zero becomes the log's tail) and makes the pages accessible. They are
    /// durable only after [`Pool::sync_file`].
    pub fn write_run(&self, first: PageNo, bytes: &mut [u8]) -> Result<(), PoolError> {
        /// Bytes of one write call.
        const PIECE: usize = 64 * PAGE_BYTES;
        assert!(bytes.len().is_multiple_of(PAGE_BYTES));
        let lsn = self.wal.tail().to_le_bytes();
        for (page_no, page) in (first..).zip(bytes.chunks_exact_mut(PAGE_BYTES)) {
            let at = header::LSN;
            if page[at..at + 8] == [0; 8] {
                page[at..at + 8].copy_from_slice(&lsn);
            }
            assert!(self.slot(page_no)?.load().is_reserved(), "page {page_no} is in use");
            seal(page, page_no);
        }
        for (i, piece) in bytes.chunks(PIECE).enumerate() {
            let at = first + (i * PIECE / PAGE_BYTES) as u64;
            let written = self.file.write(at, piece);
            written.map_err(|e| PoolError::Write { page_no: at, source: Arc::new(e) })?;
            for page_no in at..at + (piece.len() / PAGE_BYTES) as u64 {
                self.slot(page_no)?.store(Entry::ABSENT);
            }
        }
        Ok(())
    }

    /// Frees the page: its contents are dropped unwritten, its number may be given out again. The
    /// record that says so has to be in the log already (not necessarily durable). Waits for the
    /// page's latch; whoever holds it uses [`Exclusive::free`].
    pub fn free(&self, page_no: PageNo) {
        let freed = self.try_free(page_no);
        assert!(freed, "page {page_no} is free already");
    }

    fn try_free(&self, page_no: PageNo) -> bool {
        let Ok(slot) = self.slot(page_no) else { return false };
        loop {
            let entry = slot.load();
            if entry.is_free() {
                return false;
            } else if entry.is_loading() {
                let loading = || slot.load().is_loading();
                self.loads.wait_while(page_no, WaitEvent::PageRead, loading);
            } else if let Some(frame) = slot.frame() {
                if let Some(guard) = self.latch_exclusive(frame, page_no) {
                    guard.free();
                    return true;
                }
            } else if !entry.is_resident() && slot.replace(entry, Entry::FREE) {
                self.space.release(self.home().id(), page_no, entry.is_unlogged());
                return true;
            }
        }
    }

    /// The page is exclusively latched; the latch is released.
    pub(crate) fn free_latched(&self, frame: &Frame, page_no: PageNo) {
        // A write that is going on must not land after the number was given out again.
        self.wait_for_write(frame);
        let counters = &self.partitions[frame.partition()].counters;
        bump(&counters.copied, u64::from(frame.discard_changes()));
        let unlogged = frame.is_unlogged();
        let slot = self.translation.slot(page_no).expect("a resident page has an entry");
        slot.store(Entry::FREE);
        self.give_back(frame);
        self.space.release(self.home().id(), page_no, unlogged);
    }

    /// Waits until no write of what is in the frame is going on.
    pub(crate) fn wait_for_write(&self, frame: &Frame) {
        self.writes.wait_while(frame.key(), WaitEvent::PageWrite, || frame.is_in_flight());
    }

    /// Ends a claimed write.
    pub(crate) fn end_write(&self, frame: &Frame, written: bool) {
        frame.end_write(written);
        self.writes.wake(frame.key());
    }

    /// For recovery: the number is in use. Does nothing if it is already.
    pub fn mark_used(&self, page_no: PageNo) -> Result<(), PoolError> {
        if page_no == NO_PAGE {
            return Err(PoolError::NotAllocated { page_no });
        }
        self.space.mark_used(page_no, &self.file, &self.translation)?;
        let slot = self.slot(page_no)?;
        let entry = slot.load();
        if entry.is_free() || entry.is_reserved() {
            slot.replace(entry, Entry::ABSENT);
        }
        Ok(())
    }

    /// For recovery: the number is free. Does nothing if it is already.
    pub fn mark_free(&self, page_no: PageNo) -> Result<(), PoolError> {
        if page_no >= self.space.high_water() {
            self.mark_used(page_no)?;
        }
        self.try_free(page_no);
        Ok(())
    }

    /// The free page numbers and the high-water mark as bytes, for a checkpoint. Unlogged pages
    /// count as free. Allocations and frees that are not yet logged may or may not be contained;
    /// before the map is stored, the log has to be flushed to its tail as of after this call.
    pub fn space_map(&self) -> Vec<u8> {
        self.space.save()
    }

    /// Restores what [`Pool::space_map`] saved. Before anything else is done with the pool.
    pub fn restore_space(&self, map: &[u8]) -> Result<(), PoolError> {
        self.space.restore(map, &self.translation)
    }

    // ---- state ----

    /// LSN at or before the oldest logged change that may not be in the file; `None` if there is
    /// none.
    pub fn min_rec_lsn(&self) -> Option<u64> {
        checkpoint_fence();
        let frames = self.partitions.iter().flat_map(Partition::frames);
        frames.filter(|f| !f.is_unlogged()).map(Frame::oldest_change).filter(|&lsn| lsn != 0).min()
    }

    /// Makes all pages written so far durable. A failure is fatal: see [`Pool::on_fatal`].
    pub fn sync_file(&self) -> Result<(), PoolError> {
        self.file.sync()
    }

    /// What the pool holds and has done.
    pub fn stats(&self) -> PoolStats {
        PoolStats {
            partitions: self.partitions.iter().map(Partition::stats).collect(),
            high_water: self.space.high_water(),
            free_pages: self.space.free_count(),
            frame_bytes: self.partitions.iter().map(|p| p.active_frames() * PAGE_BYTES).sum::<usize>() as u64,
            descriptor_bytes: self.arena.descriptor_bytes() as u64,
            translation_bytes: self.translation.bytes() as u64,
        }
    }

    /// The pool's memory, region by region: for a census.
    pub fn regions(&self) -> Vec<PoolRegion> {
        let mut regions = self.arena.regions();
        regions.extend(self.translation.regions());
        regions
    }

    /// Stops the page cleaners and waits until they have ended. Writes nothing: dirty pages are a
    /// checkpoint's business.
    pub fn shutdown(&self) {
        self.ahead.stop_and_join();
        self.cleaners.stop_and_join();
    }
}

/// Takes the exclusive latch of a frame that holds no page, once nobody waits for it any more.
///
/// Tasks with an outdated entry may hold it for a moment, or be queued for it since the time when
/// they wanted its last page. Those must see it empty and go away before it gets its next page:
/// a task that held the next page and wanted a page of theirs would wait for them in a circle. Nobody
/// queues after this: who wanted the last page asks, before it queues but with its waiters bit set,
/// whether the frame still holds it.
pub(crate) fn latch_unwanted(frame: &Frame) {
    let mut attempt = 0;
    while !frame.latch().try_upgrade(frame.latch().optimistic()) {
        if attempt < 8 {
            task::spin_hint(attempt);
        } else {
            task::yield_now();
        }
        attempt += 1;
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Not joined: the last reference may be a cleaner's own.
        self.ahead.stop();
        self.cleaners.stop();
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("partitions", &self.partitions.len()).finish_non_exhaustive()
    }
}
