//! How does the next group get written while one is being synced? On a machine with several nodes, a thread that only syncs.
//!
//! The flusher copies and writes, and posts what it has written here; this thread syncs it, publishes it as durable, and has the
//! committers woken. One thread syncs, so a failed write is reported to it and to nobody else (errseq_t in Linux' mm/filemap.c), and
//! what it publishes are prefixes.

use crate::Lsn;
use crate::flusher::{Broken, sync_segment};
use crate::log::Shared;
use crate::segment::Segment;
use crate::sleeper::Sleeper;
use crate::stats::{add, raise};
use homenode_platform::CachePadded;
use homenode_platform::atomic::{AtomicBool, Ordering};
use homenode_platform::clock;
use homenode_platform::sync::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// Part of the log that is written.
pub(crate) struct Posted {
    pub(crate) segment: Arc<Segment>,
    /// Up to where.
    pub(crate) end: Lsn,
    /// When its writing began.
    pub(crate) since_ns: u64,
}

/// Between the flusher and the thread that syncs.
pub(crate) struct Syncs {
    posted: Mutex<VecDeque<Posted>>,
    /// Something was posted and is not durable yet. Set by the flusher, cleared by the thread.
    busy: CachePadded<AtomicBool>,
    /// The flusher has ended.
    stop: AtomicBool,
    /// A sync failed: nothing will be durable any more.
    failed: AtomicBool,
    syncer: CachePadded<Sleeper>,
    /// Where the flusher waits for the end of a sync, so that committers do not wake it there.
    pub(crate) done: CachePadded<Sleeper>,
}

impl Syncs {
    pub(crate) fn new() -> Syncs {
        Syncs {
            posted: Mutex::new(VecDeque::new()),
            busy: CachePadded(AtomicBool::new(false)),
            stop: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            syncer: CachePadded(Sleeper::new()),
            done: CachePadded(Sleeper::new()),
        }
    }

    /// Hands over what was written.
    pub(crate) fn post(&self, part: Posted) {
        let mut posted = self.posted.lock();
        self.busy.store(true, Ordering::Relaxed);
        posted.push_back(part);
        drop(posted);
        self.syncer.wake();
    }

    /// Whether something posted is not durable yet.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    /// Whether a sync failed, which has been reported.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Nothing is posted any more: the thread ends when all is durable.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.syncer.wake();
    }

    fn has_work(&self) -> bool {
        !self.posted.lock().is_empty()
    }
}

/// The thread's loop. Ends after a failure, which has been reported.
pub(crate) fn run(shared: &Shared) {
    let syncs = shared.syncs.as_ref().expect("the thread is started when there are several nodes");
    syncs.syncer.adopt();
    let mut scratch = Vec::new();
    loop {
        let stopping = syncs.stop.load(Ordering::Acquire);
        let batch = std::mem::take(&mut *syncs.posted.lock());
        let Some(last) = batch.back() else {
            if stopping {
                return;
            }
            syncs.syncer.sleep(None, || syncs.stop.load(Ordering::Relaxed) || syncs.has_work());
            continue;
        };
        let (end, since_ns) = (last.end, batch[0].since_ns);
        if sync(shared, &batch).is_err() {
            syncs.failed.store(true, Ordering::Release);
            syncs.done.wake();
            return;
        }
        shared.progress.durable.store(end, Ordering::Release);
        {
            let posted = syncs.posted.lock();
            syncs.busy.store(!posted.is_empty(), Ordering::Release);
        }
        syncs.done.wake();
        shared.committers.release(end, &mut scratch);
        let took_ns = clock::now_ns() - since_ns;
        add(&shared.counts.flushes, 1);
        add(&shared.counts.flush_ns_total, took_ns);
        raise(&shared.counts.flush_ns_worst, took_ns);
    }
}

/// Makes all of the batch durable: each of its segments once.
fn sync(shared: &Shared, batch: &VecDeque<Posted>) -> Result<(), Broken> {
    let mut synced = 0;
    for posted in batch.iter().rev() {
        if synced != posted.segment.start {
            synced = posted.segment.start;
            sync_segment(shared, &posted.segment)?;
        }
    }
    Ok(())
}
