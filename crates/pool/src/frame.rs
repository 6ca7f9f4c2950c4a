//! What is known about one frame? Its descriptor, split by who writes it.
//!
//! A descriptor is two cache lines. The first is read by every access and written seldom: latch,
//! page number, reference bit. The second is written whenever the page becomes dirty or is
//! written out. Keeping them apart means that a writer of dirtiness does not take the line from
//! the readers (the finding of "descriptor splitting": a 64-byte descriptor with everything on one
//! line had almost half of all modified-line transfers on it).

use homenode_latch::Latch;
use homenode_platform::atomic::{
    AtomicBool, AtomicU8, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};

use crate::page::{PageMut, PageRef};
use crate::{NO_PAGE, PageNo};

/// End of the free list.
pub(crate) const NO_FRAME: u32 = u32::MAX;

/// Nobody has used the page since the clock hand passed, or since it was read for its first use.
const UNUSED: u8 = 0;
/// The reference bit of a clock.
const USED: u8 = 1;
/// Read ahead, and not used yet.
const AHEAD: u8 = 2;

/// First line: read-mostly.
#[repr(C, align(64))]
struct ReadMostly {
    latch: Latch,
    /// The page in the frame; [`NO_PAGE`] while it holds none. Changed only under the exclusive
    /// latch and always followed by a version bump, so a reader that validates its version has
    /// also validated the page number.
    page_no: AtomicU64,
    /// The frame's bytes; fixed.
    data: *mut u8,
    /// Partition and place in it; fixed.
    partition: u32,
    index: u32,
    /// Used since the clock hand came by. Set only when clear, so a hot page's line stays shared.
    /// One of the three below.
    referenced: AtomicU8,
}

/// Second line: write-hot.
///
/// A page's changes pass `rec_lsn` -> `pending_rec` -> gone, never backwards. So whoever reads
/// `rec_lsn` first and `pending_rec` second, without any lock, cannot miss a change that is not in
/// the file.
#[repr(C, align(64))]
struct WriteHot {
    /// LSN at or before the first change that no copy taken for writing contains; 0: no such change.
    rec_lsn: AtomicU64,
    /// The same for the changes in the last copy taken, until that copy is in the file; 0: none.
    /// Stays after a failed write.
    pending_rec: AtomicU64,
    /// A write of the page is going on. Claimed under the shared latch; ends without any latch.
    in_flight: AtomicBool,
    /// The page is not logged (undo): neither images nor checkpoints are for it.
    unlogged: AtomicBool,
    /// In the far tier: it was in use when the hand came by last.
    warm: AtomicBool,
    /// Next frame in the partition's free list.
    next_free: AtomicU32,
    /// Tasks that had to wait for the exclusive latch since `waits_since`. Changed under it.
    waits: AtomicU32,
    /// When the waits that are counted began, nanoseconds.
    waits_since: AtomicU64,
}

/// Waits are counted for this long...
const WAITS_PERIOD_NS: u64 = 10_000_000;
/// ...and so many make the page contended: each costs a microsecond at least, so together a hundredth of a core.
const WAITS_CONTENDED: u32 = 100;

/// A frame's descriptor.
#[repr(C, align(128))]
pub(crate) struct Frame {
    read: ReadMostly,
    hot: WriteHot,
}

// What readers look at shares no line with what a writer of dirtiness changes, and no two descriptors share one.
const _: () = assert!(size_of::<Frame>() == 128 && align_of::<Frame>() == 128);
const _: () = assert!(std::mem::offset_of!(Frame, read) == 0 && std::mem::offset_of!(Frame, hot) == 64);
const _: () = assert!(size_of::<ReadMostly>() == 64 && size_of::<WriteHot>() == 64);

// SAFETY: `data` is a fixed address in memory that lives as long as the pool; access to the bytes
// behind it is governed by the latch, everything else in the descriptor is atomic or fixed.
unsafe impl Send for Frame {}
// SAFETY: as above.
unsafe impl Sync for Frame {}

impl Frame {
    /// Names descriptors for the lab's report of cache lines.
    pub(crate) fn name_memory(first: *const Frame, count: usize) {
        const FIELDS: &[homenode_platform::Field] = homenode_platform::fields!(Frame {
            read.latch,
            read.page_no,
            read.data,
            read.partition,
            read.index,
            read.referenced,
            hot.rec_lsn,
            hot.pending_rec,
            hot.in_flight,
            hot.unlogged,
            hot.warm,
            hot.next_free,
            hot.waits,
            hot.waits_since,
        });
        homenode_platform::name_memory(first, count, "Frame", FIELDS);
    }

    pub(crate) fn new(partition: u32, index: u32, data: *mut u8) -> Frame {
        Frame {
            read: ReadMostly {
                latch: Latch::new(),
                page_no: AtomicU64::new(NO_PAGE),
                data,
                partition,
                index,
                referenced: AtomicU8::new(UNUSED),
            },
            hot: WriteHot {
                rec_lsn: AtomicU64::new(0),
                pending_rec: AtomicU64::new(0),
                in_flight: AtomicBool::new(false),
                unlogged: AtomicBool::new(false),
                warm: AtomicBool::new(false),
                next_free: AtomicU32::new(NO_FRAME),
                waits: AtomicU32::new(0),
                waits_since: AtomicU64::new(0),
            },
        }
    }

    #[inline(always)]
    pub(crate) fn latch(&self) -> &Latch {
        &self.read.latch
    }

    /// The caller holds the exclusive latch, and had to wait for it. (Waits of a page that was in the frame shortly before count, too.)
    #[cold]
    pub(crate) fn note_wait(&self, now_ns: u64) {
        let before = self.hot.waits.load(Relaxed);
        if now_ns - self.hot.waits_since.load(Relaxed).min(now_ns) > WAITS_PERIOD_NS {
            self.hot.waits_since.store(now_ns, Relaxed);
            self.hot.waits.store(1, Relaxed);
        } else if before < WAITS_CONTENDED {
            self.hot.waits.store(before + 1, Relaxed);
        }
    }

    /// Whether many had to wait for the exclusive latch lately. The caller holds it.
    pub(crate) fn is_contended(&self) -> bool {
        self.hot.waits.load(Relaxed) >= WAITS_CONTENDED
    }

    /// The page is not what it was: its waits begin anew. The caller holds the exclusive latch.
    pub(crate) fn forget_waits(&self) {
        self.hot.waits.store(0, Relaxed);
    }

    /// The page in the frame. Certain only under a latch or a version validated later.
    #[inline(always)]
    pub(crate) fn page_no(&self) -> PageNo {
        self.read.page_no.load(Acquire)
    }

    /// The exclusive latch is held.
    pub(crate) fn set_page_no(&self, page_no: PageNo) {
        self.read.page_no.store(page_no, Release);
    }

    /// A number that no other frame of the pool has, the same in every run.
    pub(crate) fn key(&self) -> u64 {
        u64::from(self.read.partition) << 32 | u64::from(self.read.index)
    }

    pub(crate) fn partition(&self) -> usize {
        self.read.partition as usize
    }

    pub(crate) fn index(&self) -> u32 {
        self.read.index
    }

    #[inline(always)]
    pub(crate) fn data(&self) -> *mut u8 {
        self.read.data
    }

    #[inline(always)]
    pub(crate) fn page(&self) -> PageRef<'_> {
        // SAFETY: a frame is a page long and 4096-byte aligned; page bytes of frames are written
        // through platform::bytes, or by the kernel while a page is loaded, which no reader that
        // validates can have observed.
        unsafe { PageRef::from_raw(self.read.data) }
    }

    /// # Safety
    /// The caller holds the exclusive latch for as long as the result lives.
    #[inline(always)]
    pub(crate) unsafe fn page_mut(&self) -> PageMut<'_> {
        // SAFETY: as for `page`; the exclusive latch makes the caller the only writer.
        unsafe { PageMut::from_raw(self.read.data) }
    }

    /// Marks the page as used, without taking its line when it is marked already.
    #[inline(always)]
    pub(crate) fn touch(&self) {
        let mark = self.read.referenced.load(Relaxed);
        if mark != USED {
            // The use that a page was read ahead for is its first, as a miss is.
            self.read.referenced.store(if mark == AHEAD { UNUSED } else { USED }, Relaxed);
        }
    }

    /// The page was read before anyone used it.
    pub(crate) fn mark_ahead(&self) {
        self.read.referenced.store(AHEAD, Relaxed);
    }

    pub(crate) fn is_referenced(&self) -> bool {
        self.read.referenced.load(Relaxed) == USED
    }

    /// Clears the reference bit; true if it was set, or if the page was read ahead and is still to be used.
    pub(crate) fn clear_reference(&self) -> bool {
        let was = self.read.referenced.load(Relaxed) != UNUSED;
        if was {
            self.read.referenced.store(UNUSED, Relaxed);
        }
        was
    }

    pub(crate) fn is_unlogged(&self) -> bool {
        self.hot.unlogged.load(Relaxed)
    }

    /// The exclusive latch is held.
    pub(crate) fn set_unlogged(&self, unlogged: bool) {
        self.hot.unlogged.store(unlogged, Relaxed);
    }

    /// Notes whether the hand found it in use; whether it did the time before.
    pub(crate) fn swap_warm(&self, warm: bool) -> bool {
        let was = self.hot.warm.load(Relaxed);
        if was != warm {
            self.hot.warm.store(warm, Relaxed);
        }
        was
    }

    pub(crate) fn next_free(&self) -> u32 {
        self.hot.next_free.load(Relaxed)
    }

    pub(crate) fn set_next_free(&self, next: u32) {
        self.hot.next_free.store(next, Relaxed);
    }

    /// Notes that the page is about to change, by log records from `since` on; true if no uncopied
    /// change was noted before. The exclusive latch is held and the record is not yet appended.
    #[inline(always)]
    pub(crate) fn mark_dirty(&self, since: impl FnOnce() -> u64) -> bool {
        // Cannot be cleared under us: copies are taken under the shared latch.
        if self.hot.rec_lsn.load(Relaxed) != 0 {
            return false;
        }
        self.hot.rec_lsn.store(since().max(1), Relaxed);
        // Pairs with `checkpoint_fence`: a checkpoint that saw the log's tail behind our record
        // also sees that the page is dirty.
        fence(SeqCst);
        true
    }

    /// Is there a change that a copy for writing would have to contain?
    pub(crate) fn has_uncopied_change(&self) -> bool {
        self.hot.rec_lsn.load(Relaxed) != 0
    }

    /// LSN at or before the oldest change that may not be in the file (0: none). Any thread, no
    /// latch; call [`checkpoint_fence`] first.
    pub(crate) fn oldest_change(&self) -> u64 {
        let rec = self.hot.rec_lsn.load(Acquire);
        let pending = self.hot.pending_rec.load(Acquire);
        match (rec, pending) {
            (0, lsn) | (lsn, 0) => lsn,
            (rec, pending) => rec.min(pending),
        }
    }

    /// No change in memory that is not in the file, and no write going on. Under a latch this
    /// cannot turn from true to false.
    pub(crate) fn is_clean(&self) -> bool {
        self.oldest_change() == 0 && !self.is_in_flight()
    }

    pub(crate) fn is_in_flight(&self) -> bool {
        self.hot.in_flight.load(Acquire)
    }

    /// Claims the page for one writer. The shared latch is held.
    pub(crate) fn claim_write(&self) -> bool {
        !self.hot.in_flight.load(Relaxed) && !self.hot.in_flight.swap(true, SeqCst)
    }

    /// The copy that the claimant is about to write contains all changes up to now: true if there
    /// were uncopied ones. The shared latch is held, the write is claimed.
    pub(crate) fn begin_write(&self) -> bool {
        let rec = self.hot.rec_lsn.load(Relaxed);
        if rec == 0 {
            return false;
        }
        // A failed write before left its older position: that one counts.
        if self.hot.pending_rec.load(Relaxed) == 0 {
            self.hot.pending_rec.store(rec, Release);
        }
        self.hot.rec_lsn.store(0, Release);
        true
    }

    /// The claimed write ended. After a failure the page stays dirty from its oldest change on.
    pub(crate) fn end_write(&self, written: bool) {
        if written {
            self.hot.pending_rec.store(0, Release);
        }
        self.hot.in_flight.store(false, SeqCst);
    }

    /// Forgets all changes: the page is freed. The exclusive latch is held, no write is going on.
    /// True if there were uncopied ones.
    pub(crate) fn discard_changes(&self) -> bool {
        self.hot.pending_rec.store(0, Relaxed);
        self.hot.rec_lsn.swap(0, Relaxed) != 0
    }
}

/// Before a checkpoint looks at frames: pairs with the fence in [`Frame::mark_dirty`].
pub(crate) fn checkpoint_fence() {
    fence(SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_two_lines() {
        assert_eq!(size_of::<Frame>(), 128);
        assert_eq!(align_of::<Frame>(), 128);
        assert_eq!(std::mem::offset_of!(Frame, hot), 64);
    }

    #[test]
    fn many_waits_in_a_short_time_make_a_page_contended() {
        let frame = Frame::new(0, 0, std::ptr::null_mut());
        (0..u64::from(WAITS_CONTENDED) * 2).for_each(|n| frame.note_wait(1 + n * WAITS_PERIOD_NS));
        assert!(!frame.is_contended(), "one or two at a time");
        let later = WAITS_PERIOD_NS * 1000;
        (0..u64::from(WAITS_CONTENDED)).for_each(|n| frame.note_wait(later + n));
        assert!(frame.is_contended());
        frame.forget_waits();
        assert!(!frame.is_contended());
    }

    #[test]
    fn the_oldest_change_survives_redirtying_and_failed_writes() {
        let frame = Frame::new(0, 0, std::ptr::null_mut());
        assert!(frame.is_clean());
        assert!(frame.mark_dirty(|| 100));
        assert!(!frame.mark_dirty(|| 150));
        assert_eq!(frame.oldest_change(), 100);

        assert!(frame.claim_write() && frame.begin_write());
        assert!(!frame.claim_write());
        assert_eq!(frame.oldest_change(), 100, "until the copy is written");
        assert!(frame.mark_dirty(|| 200));
        assert_eq!(frame.oldest_change(), 100);
        frame.end_write(false);
        assert_eq!(frame.oldest_change(), 100, "a failed write changes nothing");

        assert!(frame.claim_write() && frame.begin_write());
        assert_eq!(frame.oldest_change(), 100);
        assert!(frame.mark_dirty(|| 300));
        frame.end_write(true);
        assert_eq!(frame.oldest_change(), 300, "what came after the copy remains");
        assert!(!frame.is_clean());
    }
}
