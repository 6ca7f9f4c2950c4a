//! How do changed pages reach the file? In batches: copied, imaged, flushed, written in runs.
//!
//! 1. **Copy** each page under its shared latch into a private buffer. The live frame is never
//!    written from: it may change while the kernel reads it, and its checksum would not match.
//! 2. **Images**: the copies of logged pages are appended to the log, a few at a time, *before* their
//!    latches are released. So an image stands in the log behind every record whose change it
//!    contains and before every other record of the page, and recovery can go through the log once:
//!    it drops what comes before the image of a torn page and applies what comes after. Then the
//!    log is flushed, which also covers the pages' own LSNs (the write-ahead rule).
//! 3. **Write** the copies in place, neighbours with one call. If the machine stops here and a page
//!    is torn, its image is in the log.
//! 4. **Settle**: what was written is clean unless it changed since the copy; what could not be
//!    written stays dirty from its oldest change on.

use std::io::{self, IoSlice};
use std::sync::Arc;

use homenode_platform::{clock, thread};

use crate::frame::{Frame, checkpoint_fence};
use crate::page::{PageBuf, seal};
use crate::partition::Partition;
use crate::stats::bump;
use crate::{NO_PAGE, PageNo, Pool, PoolError};

/// Pages of a batch: 1 MiB of copies, one log flush.
pub(crate) const BATCH_PAGES: usize = 64;
/// Pages whose latches are held together while their images are appended.
const GROUP_PAGES: usize = 8;

/// How fast a checkpoint writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As fast as it goes.
    Fast,
    /// Spread over about this long.
    Spread {
        /// Nanoseconds from the first to the last page.
        duration_ns: u64,
    },
}

/// A page that is being written.
struct Item<'p> {
    frame: &'p Frame,
    page_no: PageNo,
    /// Place of its copy in the batch's buffers.
    copy: usize,
}

/// What became of a page offered to a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Added {
    /// It was copied and is claimed until the batch is written.
    Taken,
    /// Somebody holds it exclusively.
    Latched,
    /// Somebody else is writing it.
    InFlight,
    /// The frame holds another page or nothing new.
    Settled,
}

/// Buffers for the copies of one batch; kept between batches.
#[derive(Default)]
pub(crate) struct Buffers(Vec<PageBuf>);

/// Pages on their way to the file.
pub(crate) struct Batch<'p, 'b> {
    pool: &'p Pool,
    copies: &'b mut Vec<PageBuf>,
    items: Vec<Item<'p>>,
    /// Items before this one are in the log as far as they have to be, and no longer latched.
    imaged: usize,
    /// What the log has to be durable up to before anything is written in place.
    behind: u64,
}

impl Buffers {
    pub(crate) fn batch<'p>(&mut self, pool: &'p Pool) -> Batch<'p, '_> {
        let items = Vec::with_capacity(BATCH_PAGES);
        Batch { pool, copies: &mut self.0, items, imaged: 0, behind: 0 }
    }
}

impl<'p> Batch<'p, '_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.items.len() >= BATCH_PAGES
    }

    /// Copies a page if it has changes. Waits for its latch only if told to, which is allowed only
    /// while the batch is empty: who holds the latch may be waiting for a page in the batch to be
    /// written ([`Pool::free`]).
    pub(crate) fn add(&mut self, frame: &'p Frame, page_no: PageNo, wait: bool) -> Added {
        assert!(!self.is_full());
        assert!(self.is_empty() || !wait, "nothing may be waited for while pages are claimed");
        if wait {
            if !frame.latch().lock_shared_if(|| frame.page_no() == page_no) {
                return Added::Settled;
            }
        } else if !frame.latch().try_lock_shared() {
            return Added::Latched;
        }
        let added = self.copy_latched(frame, page_no);
        if added != Added::Taken {
            frame.latch().unlock_shared();
        } else if self.items.len() - self.imaged >= GROUP_PAGES {
            self.log_group();
        }
        added
    }

    fn copy_latched(&mut self, frame: &'p Frame, page_no: PageNo) -> Added {
        if frame.page_no() != page_no || frame.oldest_change() == 0 {
            return Added::Settled;
        }
        if !frame.claim_write() {
            return Added::InFlight;
        }
        let copy = self.items.len();
        if copy == self.copies.len() {
            self.copies.push(PageBuf::zeroed());
        }
        let bytes = self.copies[copy].bytes_mut();
        frame.page().copy_to(0, bytes);
        seal(bytes, page_no);
        let counters = &self.pool.partitions[frame.partition()].counters;
        bump(&counters.copied, u64::from(frame.begin_write()));
        self.items.push(Item { frame, page_no, copy });
        Added::Taken
    }

    /// Appends the images of the latched pages and releases their latches.
    fn log_group(&mut self) {
        let group = &self.items[self.imaged..];
        let mut images: Vec<(PageNo, &[u8])> = Vec::with_capacity(group.len());
        for item in group {
            let copy = &self.copies[item.copy];
            if item.frame.is_unlogged() {
                // Its LSN is the log's tail when it was allocated. What freed the number before
                // has to be durable before the old contents are overwritten; it nearly always is.
                // Clamped, because the field is only as good as the page's user.
                self.behind = self.behind.max(copy.page().lsn().min(self.pool.wal.tail()));
            } else {
                images.push((item.page_no, copy.bytes()));
            }
        }
        if !images.is_empty() {
            self.behind = self.behind.max(self.pool.wal.log_images(&images));
            let first = &self.pool.partitions[group[0].frame.partition()];
            bump(&first.counters.images, images.len() as u64);
        }
        group.iter().for_each(|item| item.frame.latch().unlock_shared());
        self.imaged = self.items.len();
    }

    /// Writes all pages of the batch and empties it. Failed ones stay dirty; the first error is
    /// returned when all have been tried.
    pub(crate) fn write(&mut self) -> Result<(), PoolError> {
        if self.items.is_empty() {
            return Ok(());
        }
        self.log_group();
        self.pool.wal.flush_to(self.behind);
        let mut items = std::mem::take(&mut self.items);
        (self.imaged, self.behind) = (0, 0);
        items.sort_unstable_by_key(|item| item.page_no);
        let mut result = Ok(());
        for run in items.chunk_by(|a, b| a.page_no + 1 == b.page_no) {
            let written = self.write_run(run);
            self.settle(run, written.is_ok());
            result = result.and(written.map_err(|e| PoolError::Write { page_no: run[0].page_no, source: Arc::new(e) }));
        }
        result
    }

    fn write_run(&self, run: &[Item<'_>]) -> io::Result<()> {
        let slices: Vec<_> = run.iter().map(|item| IoSlice::new(self.copies[item.copy].bytes())).collect();
        self.pool.file.write_run(run[0].page_no, &slices)
    }

    fn settle(&self, run: &[Item<'_>], written: bool) {
        let counters = &self.pool.partitions[run[0].frame.partition()].counters;
        if written {
            bump(&counters.writes, run.len() as u64);
            bump(&counters.write_runs, 1);
        } else {
            bump(&counters.write_errors, 1);
        }
        for item in run {
            self.pool.end_write(item.frame, written);
        }
    }
}

impl Drop for Batch<'_, '_> {
    fn drop(&mut self) {
        // Only when a panic comes between: nothing was written, so all stay dirty.
        self.items[self.imaged..].iter().for_each(|item| item.frame.latch().unlock_shared());
        for item in &self.items {
            self.pool.end_write(item.frame, false);
        }
    }
}

impl Pool {
    /// Writes every logged page that has a change older than `up_to`, then syncs the file. When
    /// this returns `Ok`, no change older than `up_to` (the log's tail, read by the caller before)
    /// depends on the log any more.
    pub fn checkpoint_write(&self, up_to: u64, pace: Pace) -> Result<(), PoolError> {
        checkpoint_fence();
        let due = self.pages_due(up_to);
        let start_ns = clock::now_ns();
        let mut buffers = Buffers::default();
        let mut batch = buffers.batch(self);
        for (i, &(page_no, frame)) in due.iter().enumerate() {
            self.write_for_checkpoint(&mut batch, frame, page_no, up_to)?;
            if batch.is_full() {
                batch.write()?;
                sleep_to_pace(pace, start_ns, i + 1, due.len());
            }
        }
        batch.write()?;
        self.sync_file()
    }

    /// The pages with changes older than `up_to`, by number.
    fn pages_due(&self, up_to: u64) -> Vec<(PageNo, &Frame)> {
        let frames = self.partitions.iter().flat_map(Partition::frames);
        let mut due: Vec<_> = frames
            .filter(|frame| !frame.is_unlogged() && is_due(frame, up_to))
            .map(|frame| (frame.page_no(), frame))
            .filter(|&(page_no, _)| page_no != NO_PAGE)
            .collect();
        due.sort_unstable_by_key(|&(page_no, _)| page_no);
        due
    }

    fn write_for_checkpoint<'p>(
        &'p self,
        batch: &mut Batch<'p, '_>,
        frame: &'p Frame,
        page_no: PageNo,
        up_to: u64,
    ) -> Result<(), PoolError> {
        while frame.page_no() == page_no && is_due(frame, up_to) {
            let added = batch.add(frame, page_no, batch.is_empty());
            if matches!(added, Added::Taken | Added::Settled) {
                break;
            }
            // Nothing may be waited for while pages are claimed.
            batch.write()?;
            if added == Added::InFlight {
                self.wait_for_write(frame);
            }
        }
        Ok(())
    }
}

fn is_due(frame: &Frame, up_to: u64) -> bool {
    let oldest = frame.oldest_change();
    oldest != 0 && oldest < up_to
}

fn sleep_to_pace(pace: Pace, start_ns: u64, done: usize, of: usize) {
    let Pace::Spread { duration_ns } = pace else { return };
    let planned_ns = (u128::from(duration_ns) * done as u128 / of.max(1) as u128) as u64;
    let spent_ns = clock::now_ns().saturating_sub(start_ns);
    if planned_ns > spent_ns {
        thread::sleep_ns(planned_ns - spent_ns);
    }
}
