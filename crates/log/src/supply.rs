//! Is there always a segment to go on in? Preparing segments ahead, reusing and removing old ones.
//!
//! One thread does all of it, so that no commit ever waits for allocation. It keeps two segments
//! ready beyond the one in use. The last of them is the *spare*: [`Supply::usable_end`] is where it
//! starts, and [`reserve_ahead`](crate::Log::reserve_ahead) promises room only up to there, so that
//! rollbacks and a checkpoint, which do not reserve, still fit when the disk is full.

use crate::segment::{self, Segment, SegmentHeader, Spare};
use crate::sleeper::Sleeper;
use crate::waiters::Crowd;
use crate::{LogError, Lsn};
use homenode_platform::CachePadded;
use homenode_platform::atomic::{AtomicBool, AtomicU64, Ordering};
use homenode_platform::fs;
use homenode_platform::sync::Mutex;
use std::collections::VecDeque;
use std::path::PathBuf;

/// Segments ready beyond the one in use, the spare among them.
const READY: usize = 2;
/// Old segments kept for reuse.
const SPARES: usize = 2;
/// A new log starts with segments of this size, each next one twice as large up to the configured
/// size: a small database stays small.
const FIRST_BYTES: u64 = 1 << 20;
/// How often preparation is tried again while the flusher waits for it.
const RETRY_NS: u64 = 20_000_000;

/// State shared with the thread that prepares segments.
pub(crate) struct Supply {
    dir: PathBuf,
    salt: u64,
    segment_bytes: u64,
    usable_end: CachePadded<AtomicU64>,
    /// A position up to which somebody wants the log usable.
    wanted_end: AtomicU64,
    /// Segments that end before this are not needed any more.
    truncate_to: AtomicU64,
    /// Attempts to reach `wanted_end` that ended, well or not.
    attempts: AtomicU64,
    /// The flusher has no segment to go on in.
    starving: AtomicBool,
    stop: AtomicBool,
    recycled: AtomicU64,
    shelf: Mutex<Shelf>,
    /// Tasks in `reserve_ahead`.
    crowd: Crowd,
    pub(crate) sleeper: Sleeper,
}

struct Shelf {
    /// Prepared, not yet in use.
    ready: VecDeque<Segment>,
    /// All segments of the log on disk, (start, capacity), ascending.
    on_disk: VecDeque<(Lsn, u64)>,
    /// Of earlier segments.
    spares: Vec<Spare>,
    error: Option<String>,
}

impl Supply {
    /// A supply whose first segment, at `start`, is already prepared and in use.
    pub(crate) fn new(
        dir: PathBuf,
        salt: u64,
        segment_bytes: u64,
        on_disk: VecDeque<(Lsn, u64)>,
        spares: Vec<Spare>,
    ) -> Supply {
        let start = on_disk.back().expect("a log has a segment in use").0;
        Supply {
            dir,
            salt,
            segment_bytes,
            usable_end: CachePadded(AtomicU64::new(start)),
            wanted_end: AtomicU64::new(0),
            truncate_to: AtomicU64::new(0),
            attempts: AtomicU64::new(0),
            starving: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            recycled: AtomicU64::new(0),
            shelf: Mutex::new(Shelf { ready: VecDeque::new(), on_disk, spares, error: None }),
            crowd: Crowd::new(),
            sleeper: Sleeper::new(),
        }
    }

    /// The size of the segment after one of `bytes`.
    pub(crate) fn bytes_after(bytes: u64, segment_bytes: u64) -> u64 {
        (bytes * 2).clamp(FIRST_BYTES.min(segment_bytes), segment_bytes)
    }

    /// Where the spare segment starts: up to here the log can be promised.
    #[inline]
    pub(crate) fn usable_end(&self) -> Lsn {
        self.usable_end.load(Ordering::Acquire)
    }

    /// How many attempts have ended. With [`demand`](Supply::demand): an attempt that is to answer a
    /// demand is one whose end is counted two later (the next to end may have begun before).
    pub(crate) fn attempts(&self) -> u64 {
        self.attempts.load(Ordering::Acquire)
    }

    /// Asks for the log to become usable up to `end`; `task` is woken after each attempt.
    pub(crate) fn demand(&self, end: Lsn, task: homenode_platform::task::Task) {
        self.wanted_end.fetch_max(end, Ordering::Relaxed);
        self.crowd.enter(task);
        self.sleeper.wake();
    }

    /// Asks for segments that lie wholly before `lsn` to be reused or removed.
    pub(crate) fn truncate_before(&self, lsn: Lsn) {
        self.truncate_to.fetch_max(lsn, Ordering::Relaxed);
        self.sleeper.wake();
    }

    /// The next segment, for the flusher; `None` if none is ready yet.
    pub(crate) fn take(&self) -> Option<Segment> {
        let segment = self.shelf.lock().ready.pop_front();
        self.starving.store(segment.is_none(), Ordering::Relaxed);
        self.sleeper.wake();
        segment
    }

    /// Ends the thread's loop.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.sleeper.wake();
    }

    /// (segments on disk, ready, recycled so far, last error).
    pub(crate) fn stats(&self) -> (u64, u64, u64, Option<String>) {
        let shelf = self.shelf.lock();
        let recycled = self.recycled.load(Ordering::Relaxed);
        (shelf.on_disk.len() as u64, shelf.ready.len() as u64, recycled, shelf.error.clone())
    }

    /// The thread's loop; `progress` is called when a segment became ready.
    pub(crate) fn run(&self, progress: impl Fn()) {
        self.sleeper.adopt();
        while !self.stop.load(Ordering::Relaxed) {
            // Cleared before the work, so that a demand made meanwhile is looked at again.
            let wanted_end = self.wanted_end.swap(0, Ordering::Relaxed);
            self.drop_old();
            let satisfied = self.prepare_up_to(wanted_end, &progress);
            self.attempts.fetch_add(1, Ordering::AcqRel);
            self.crowd.release();
            let pause = (!satisfied && self.starving.load(Ordering::Relaxed)).then_some(RETRY_NS);
            self.sleeper.sleep(pause, || self.has_work(satisfied));
        }
        // Whoever still waits looks at `attempts`.
        self.attempts.fetch_add(2, Ordering::AcqRel);
        self.crowd.release();
    }

    fn has_work(&self, satisfied: bool) -> bool {
        self.stop.load(Ordering::Relaxed)
            || self.truncate_to.load(Ordering::Relaxed) != 0
            || self.wanted_end.load(Ordering::Relaxed) != 0
            || (satisfied && self.is_short(0))
    }

    fn is_short(&self, wanted_end: Lsn) -> bool {
        self.shelf.lock().ready.len() < READY || self.usable_end() < wanted_end
    }

    /// Prepares segments until enough are ready. False if one could not be made.
    fn prepare_up_to(&self, wanted_end: Lsn, progress: &impl Fn()) -> bool {
        while self.is_short(wanted_end) && !self.stop.load(Ordering::Relaxed) {
            match self.prepare_next() {
                Ok(()) => {
                    progress();
                    // Between any two, so that a log that grows without a pause is truncated too.
                    self.drop_old();
                }
                Err(error) => {
                    // Whatever it is: nothing that was acknowledged is concerned, the attempt is
                    // repeated on demand, and the view shows why.
                    self.shelf.lock().error = Some(error.to_string());
                    return false;
                }
            }
        }
        true
    }

    fn prepare_next(&self) -> Result<(), LogError> {
        let (header, spare) = {
            let mut shelf = self.shelf.lock();
            let &(start, bytes) = shelf.on_disk.back().expect("a log has a segment in use");
            let next = Supply::bytes_after(bytes, self.segment_bytes);
            let header = SegmentHeader { start: start + bytes, bytes: next, salt: self.salt };
            let at = shelf.spares.iter().position(|spare| spare.bytes == next);
            (header, at.map(|at| shelf.spares.swap_remove(at)))
        };
        let segment = match spare {
            Some(spare) => {
                let segment = segment::recycle(&self.dir, &spare, header);
                if segment.is_err() {
                    let _ = fs::remove_file(&spare.path);
                }
                self.recycled.fetch_add(1, Ordering::Relaxed);
                segment?
            }
            None => segment::make(&self.dir, header)?,
        };
        let mut shelf = self.shelf.lock();
        shelf.error = None;
        shelf.on_disk.push_back((segment.start, segment.bytes));
        self.usable_end.store(segment.start, Ordering::Release);
        shelf.ready.push_back(segment);
        Ok(())
    }

    /// Takes segments that are not needed any more out of the log, the oldest first.
    fn drop_old(&self) {
        let lsn = self.truncate_to.swap(0, Ordering::Relaxed);
        loop {
            let (start, bytes) = {
                let shelf = self.shelf.lock();
                // It ends where the next one starts; the last one is never old.
                match (shelf.on_disk.front(), shelf.on_disk.get(1)) {
                    (Some(&old), Some(&(next, _))) if next <= lsn => old,
                    _ => return,
                }
            };
            let Ok(spare) = segment::retire(&self.dir, start, bytes) else {
                // It stays; the next truncation tries again.
                return;
            };
            let mut shelf = self.shelf.lock();
            shelf.on_disk.pop_front();
            if spare.bytes == self.segment_bytes && shelf.spares.len() < SPARES {
                shelf.spares.push(spare);
            } else {
                drop(shelf);
                // A file that could not be removed is removed when the log is opened next.
                let _ = fs::remove_file(&spare.path);
            }
        }
    }
}
