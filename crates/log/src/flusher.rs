//! When does a record reach the disk? The one thread that writes and syncs a log.
//!
//! While a flush is under way the next group gathers by itself, so there is no artificial delay:
//! the thread flushes whatever is filled as soon as anybody waits, and sleeps when nobody does.
//!
//! On a machine with several nodes another thread syncs ([`syncer`](crate::syncer)): this one writes and posts meanwhile whatever comes
//! together, so that the next sync begins when one ends.

use crate::Lsn;
use crate::log::Shared;
use crate::segment::Segment;
use crate::stats::{add, raise};
use crate::syncer::{Posted, Syncs};
use homenode_platform::atomic::Ordering;
use homenode_platform::clock;
use homenode_platform::task::{self, Task};
use std::io;
use std::sync::Arc;

/// Bytes copied out of the ring and written at once.
const CHUNK: usize = 256 << 10;

/// While a sync runs, fewer bytes than this are left for later, and looked at that often.
const WRITE_AHEAD: u64 = 8 << 10;
const WRITE_AHEAD_NS: u64 = 10_000;

/// The flusher's own state.
pub(crate) struct Flusher {
    shared: Arc<Shared>,
    segment: Arc<Segment>,
    written: Lsn,
    chunk: Vec<u8>,
    scratch: Vec<Task>,
}

/// The log failed, and that has been reported: the thread ends.
pub(crate) struct Broken;

impl Flusher {
    pub(crate) fn new(shared: Arc<Shared>, segment: Segment) -> Flusher {
        let written = shared.progress.written.load(Ordering::Relaxed);
        Flusher { shared, segment: Arc::new(segment), written, chunk: vec![0; CHUNK], scratch: Vec::new() }
    }

    /// The thread's loop.
    pub(crate) fn run(mut self) {
        self.shared.flusher.adopt();
        if let Some(syncs) = &self.shared.syncs {
            syncs.done.adopt();
        }
        let mut idle_turns = 0;
        loop {
            // Before looking for work: what was appended before the stop is then seen and flushed.
            let stopping = self.shared.stop.load(Ordering::Acquire);
            if self.shared.syncs.as_ref().is_some_and(Syncs::has_failed) {
                return;
            }
            if self.shared.has_flush_work(self.written) {
                match self.flush() {
                    Ok(true) => idle_turns = 0,
                    Ok(false) => {
                        // Somebody is between reservation and completion: a short wait, unless that
                        // thread lost its CPU; spin_hint gives ours away then.
                        task::spin_hint(idle_turns);
                        idle_turns = (idle_turns + 1).min(16);
                        self.shared.ring_crowd.release();
                    }
                    Err(Broken) => return,
                }
            } else if stopping {
                return;
            } else {
                let shared = &self.shared;
                shared
                    .flusher
                    .sleep(None, || shared.stop.load(Ordering::Relaxed) || shared.has_flush_work(self.written));
            }
        }
    }

    /// Writes and syncs what is filled. False if there was nothing.
    fn flush(&mut self) -> Result<bool, Broken> {
        let started_ns = clock::now_ns();
        let filled = self.shared.slots.filled(self.written);
        if filled == self.written {
            return Ok(false);
        }
        if self.is_syncing() && filled - self.written < WRITE_AHEAD && !self.shared.ring_crowd.any() {
            self.wait_for_sync();
            return Ok(true);
        }
        let shared = self.shared.clone();
        let counts = &shared.counts;
        add(&counts.bytes, filled - self.written);
        self.write_up_to(filled)?;
        if shared.syncs.is_some() {
            self.post(started_ns);
            return Ok(true);
        }
        sync_segment(&shared, &self.segment)?;
        self.shared.progress.durable.store(filled, Ordering::Release);
        let released = self.shared.committers.release(filled, &mut self.scratch);
        let took_ns = clock::now_ns() - started_ns;
        add(&counts.flushes, 1);
        add(&counts.released, released);
        raise(&counts.released_worst, released);
        add(&counts.flush_ns_total, took_ns);
        raise(&counts.flush_ns_worst, took_ns);
        Ok(true)
    }

    fn is_syncing(&self) -> bool {
        self.shared.syncs.as_ref().is_some_and(Syncs::is_busy)
    }

    /// Hands what is written to the thread that syncs.
    fn post(&mut self, since_ns: u64) {
        if let Some(syncs) = &self.shared.syncs {
            syncs.post(Posted { segment: self.segment.clone(), end: self.written, since_ns });
        }
    }

    /// Until the sync under way has ended, or there may be enough to write ahead.
    fn wait_for_sync(&self) {
        if let Some(syncs) = &self.shared.syncs {
            syncs.done.sleep(Some(WRITE_AHEAD_NS), || !syncs.is_busy() || syncs.has_failed());
        }
    }

    fn write_up_to(&mut self, end: Lsn) -> Result<(), Broken> {
        while self.written < end {
            if self.written == self.segment.end() {
                self.next_segment()?;
            }
            let until = end.min(self.segment.end());
            let bytes = (until - self.written).min(CHUNK as u64) as usize;
            let chunk = &mut self.chunk[..bytes];
            self.shared.ring.copy_out(self.written, chunk);
            let offset = self.segment.offset(self.written);
            if let Err(error) = self.segment.file.write_all_at(chunk, offset) {
                return Err(broken(&self.shared, &self.segment, "write", &error));
            }
            self.written += bytes as u64;
            // From here on the ring's bytes may be overwritten.
            self.shared.progress.written.store(self.written, Ordering::Release);
            self.shared.ring_crowd.release();
        }
        Ok(())
    }

    /// Goes on to the next segment. What is in this one has to be durable first, because later
    /// syncs do not reach it.
    fn next_segment(&mut self) -> Result<(), Broken> {
        match &self.shared.syncs {
            // The thread has synced this one, too, before it publishes anything of the next.
            Some(_) => self.post(clock::now_ns()),
            None => sync_segment(&self.shared, &self.segment)?,
        }
        loop {
            if let Some(segment) = self.shared.supply.take() {
                assert_eq!(segment.start, self.written, "segments follow each other");
                self.segment = Arc::new(segment);
                return Ok(());
            }
            // The disk is full. Statements are refused by reserve_ahead; what was appended waits here
            // until a segment can be had, and nothing is lost.
            self.shared.flusher.sleep(Some(20_000_000), || false);
        }
    }
}

/// Makes durable what was written to a segment.
pub(crate) fn sync_segment(shared: &Shared, segment: &Segment) -> Result<(), Broken> {
    if !shared.sync {
        return Ok(());
    }
    let started_ns = clock::now_ns();
    if let Err(error) = segment.file.sync_data() {
        return Err(broken(shared, segment, "sync", &error));
    }
    let took_ns = clock::now_ns() - started_ns;
    add(&shared.counts.sync_ns_total, took_ns);
    raise(&shared.counts.sync_ns_worst, took_ns);
    Ok(())
}

/// Reports a failed write or sync. It is never tried again: after a failed sync the kernel has
/// dropped the dirty pages, and the next one would succeed without having written them (Rebello
/// et al., "Can applications recover from fsync failures?", ATC 2020).
fn broken(shared: &Shared, segment: &Segment, action: &str, error: &io::Error) -> Broken {
    let text = format!("could not {action} \"{}\": {error}", segment.path.display());
    shared.report_fatal(&text);
    Broken
}
