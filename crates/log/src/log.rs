//! How does a record get into the log, and when may its writer go on?

use crate::flusher::Flusher;
use crate::insert::{Insertion, Slots};
use crate::nodes::Nodes;
use crate::record::{self, Header, Image, Shape};
use crate::ring::Ring;
use crate::segment::{self, Segment, SegmentHeader};
use crate::sleeper::Sleeper;
use crate::stats::{FlushCounts, LogStats};
use crate::supply::Supply;
use crate::syncer::{self, Syncs};
use crate::waiters::{Committers, Crowd};
use crate::{FIRST_LSN, LogError, Lsn, relay};
use homenode_platform::CachePadded;
use homenode_platform::atomic::{AtomicBool, AtomicU64, Ordering};
use homenode_platform::fs::{self, File, OpenOptions};
use homenode_platform::sync::Mutex;
use homenode_platform::thread::{self, JoinHandle};
use homenode_platform::wait::WaitEvent;
use homenode_platform::{clock, task};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a log is kept.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// The data folder.
    pub dir: PathBuf,
    /// Size of the ring buffer, bytes: a power of two, at least 64 KiB. The largest payload is a
    /// quarter of it.
    pub buffer_bytes: usize,
    /// Size that segments grow to, bytes: a multiple of 4096, at least 64 KiB.
    pub segment_bytes: u64,
    /// Insertions that can be under way at once; one for each lane and some more.
    pub insert_slots: usize,
    /// Whether a flush syncs. Without it a crash of the machine loses acknowledged commits.
    pub sync: bool,
    /// On which nodes the lanes' workers live.
    pub nodes: Nodes,
    /// The CPUs near the device: the threads that write, sync and prepare segments run there. Empty: anywhere.
    pub io_cpus: Vec<usize>,
}

impl LogConfig {
    /// The defaults for a log in `dir`: a ring of 16 MiB, segments of 64 MiB, 32 slots, synced, one node.
    pub fn new(dir: impl Into<PathBuf>) -> LogConfig {
        LogConfig {
            dir: dir.into(),
            buffer_bytes: 16 << 20,
            segment_bytes: 64 << 20,
            insert_slots: 32,
            sync: true,
            nodes: Nodes::default(),
            io_cpus: Vec::new(),
        }
    }

    fn check(&self) -> Result<(), LogError> {
        let setting = |name, what| Err(LogError::Setting { name, what });
        if !self.buffer_bytes.is_power_of_two() || self.buffer_bytes < 64 << 10 {
            return setting("buffer_bytes", "a power of two, at least 64 KiB");
        }
        if !self.segment_bytes.is_multiple_of(4096) || !(64 << 10..=1 << 40).contains(&self.segment_bytes) {
            return setting("segment_bytes", "a multiple of 4 KiB from 64 KiB to 1 TiB");
        }
        if self.insert_slots == 0 {
            return setting("insert_slots", "at least 1");
        }
        Ok(())
    }
}

/// Where a record lies: `start..end`. It is durable when [`Log::durable`] is at least `end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Its own position.
    pub start: Lsn,
    /// The first byte after it.
    pub end: Lsn,
}

/// What the flusher publishes. One writer, many readers.
pub(crate) struct Progress {
    /// Written to the files: the ring's bytes before it may be overwritten.
    pub(crate) written: AtomicU64,
    /// Written and synced.
    pub(crate) durable: AtomicU64,
}

type Fatal = Arc<dyn Fn(&str) + Send + Sync>;

/// What appenders, committers, the flusher and the supply share.
pub(crate) struct Shared {
    pub(crate) slots: Slots,
    pub(crate) ring: Ring,
    salt: u64,
    pub(crate) sync: bool,
    pub(crate) supply: Supply,
    pub(crate) committers: Committers,
    pub(crate) ring_crowd: Crowd,
    /// On a machine with several nodes.
    pub(crate) syncs: Option<Syncs>,
    pub(crate) relays_stop: AtomicBool,
    fatal: Mutex<Fatal>,
    pub(crate) stop: AtomicBool,
    pub(crate) progress: CachePadded<Progress>,
    /// A position that shall become durable although nobody waits for it.
    requested: CachePadded<AtomicU64>,
    pub(crate) flusher: CachePadded<Sleeper>,
    pub(crate) counts: CachePadded<FlushCounts>,
    ring_waits: CachePadded<AtomicU64>,
}

// The lines that every committer touches are nobody else's.
const _: () = assert!(std::mem::offset_of!(Shared, progress).is_multiple_of(128));

impl Shared {
    const FIELDS: &[homenode_platform::Field] = homenode_platform::fields!(Shared {
        slots,
        ring,
        salt,
        sync,
        supply,
        committers,
        ring_crowd,
        syncs,
        relays_stop,
        fatal,
        stop,
        progress,
        requested,
        flusher,
        counts,
        ring_waits,
    });

    /// Whether there is a reason to flush, with everything before `written` flushed already.
    pub(crate) fn has_flush_work(&self, written: Lsn) -> bool {
        let tail = self.slots.tail();
        // With a thread that syncs, committers may wait for what is written already.
        (self.committers.any() && (self.syncs.is_none() || tail > written))
            || self.ring_crowd.any()
            || self.requested.load(Ordering::Relaxed) > written
            || tail - written > self.ring.bytes() / 2
            || (self.stop.load(Ordering::Relaxed) && tail > written)
    }

    pub(crate) fn report_fatal(&self, text: &str) {
        let fatal = self.fatal.lock().clone();
        fatal(text);
    }

    fn has_room(&self, end: Lsn) -> bool {
        // Acquire: the flusher has read the bytes that will be overwritten.
        end.saturating_sub(self.progress.written.load(Ordering::Acquire)) <= self.ring.bytes()
    }

    /// Parks until `ready`, which the flusher's progress brings about.
    #[cold]
    fn wait_for_flusher(&self, mut ready: impl FnMut() -> bool) {
        while !ready() {
            self.ring_waits.fetch_add(1, Ordering::Relaxed);
            self.ring_crowd.enter(task::current());
            self.flusher.wake();
            if ready() {
                return;
            }
            task::park(WaitEvent::LogBuffer);
        }
    }
}

/// A write-ahead log that is open for appending.
pub struct Log {
    shared: Arc<Shared>,
    dir: PathBuf,
    max_payload: usize,
    threads: Mutex<Vec<JoinHandle>>,
}

impl Log {
    /// Starts the log of a new database.
    ///
    /// Left-overs of a creation that a crash interrupted (a log from [`FIRST_LSN`] on with hardly
    /// anything in it) are removed.
    ///
    /// # Errors
    /// [`LogError::Exists`] if the folder already holds a log; [`LogError::Io`]; [`LogError::Setting`].
    pub fn create(config: LogConfig) -> Result<Arc<Log>, LogError> {
        config.check()?;
        fs::create_dir_all(&config.dir).map_err(LogError::io("create", &config.dir))?;
        if !segment::list(&config.dir)?.is_empty() {
            remove_interrupted_creation(&config.dir)?;
        }
        Log::start(config, FIRST_LSN)
    }

    /// Opens a log that ends at `end` (where [`scan`](crate::scan) ended) to go on there. What lies
    /// beyond `end` is cut off.
    ///
    /// # Errors
    /// [`LogError::Io`]; [`LogError::Setting`]; [`LogError::Missing`] if no segment reaches to `end`.
    pub fn open_at(config: LogConfig, end: Lsn) -> Result<Arc<Log>, LogError> {
        config.check()?;
        if end < FIRST_LSN || !end.is_multiple_of(record::ALIGN as u64) {
            return Err(LogError::Missing { path: config.dir, lsn: end });
        }
        Log::start(config, end)
    }

    fn start(config: LogConfig, end: Lsn) -> Result<Arc<Log>, LogError> {
        let dir = config.dir;
        segment::remove_leftovers(&dir)?;
        let mut on_disk = cut_off(&dir, end)?;
        let salt = new_salt(end, on_disk.len());
        let bytes = Supply::bytes_after(on_disk.back().map_or(0, |last| last.1 / 2), config.segment_bytes);
        let first = segment::make(&dir, SegmentHeader { start: end, bytes, salt })?;
        on_disk.push_back((end, bytes));
        let abort: Fatal = Arc::new(|text| {
            eprintln!("homenode: log: {text}; stopping");
            std::process::abort();
        });
        let shared = Arc::new(Shared {
            slots: Slots::new(config.insert_slots, end, &config.nodes),
            ring: Ring::new(config.buffer_bytes),
            salt,
            sync: config.sync,
            supply: Supply::new(dir.clone(), salt, config.segment_bytes, on_disk, Vec::new()),
            committers: Committers::new(config.insert_slots, &config.nodes),
            ring_crowd: Crowd::new(),
            syncs: (config.nodes.count() > 1).then(Syncs::new),
            relays_stop: AtomicBool::new(false),
            fatal: Mutex::new(abort),
            stop: AtomicBool::new(false),
            progress: CachePadded(Progress { written: AtomicU64::new(end), durable: AtomicU64::new(end) }),
            requested: CachePadded(AtomicU64::new(0)),
            flusher: CachePadded(Sleeper::new()),
            counts: CachePadded(FlushCounts::default()),
            ring_waits: CachePadded(AtomicU64::new(0)),
        });
        homenode_platform::name_memory(&raw const *shared, 1, "log::Shared", Shared::FIELDS);
        let threads = Mutex::new(spawn_threads(&shared, first, &config.nodes, &config.io_cpus));
        let max_payload = record::MAX_PAYLOAD.min(config.buffer_bytes / 4);
        Ok(Arc::new(Log { shared, dir, max_payload, threads }))
    }

    /// The largest payload that [`append`](Log::append) takes, bytes: a quarter of the ring, at most
    /// 8 MiB - 1.
    pub fn max_payload(&self) -> usize {
        self.max_payload
    }

    /// Appends a record: `parts` one after the other are its payload. Takes no lock; parks only if
    /// the ring is full. It is durable once [`wait_durable`](Log::wait_durable) of its end returned.
    ///
    /// `lane` chooses the insertion slot; any number is right, different ones for different workers
    /// are fast. After a failure of the log (see [`on_fatal`](Log::on_fatal)) appending may park forever.
    ///
    /// # Panics
    /// If the payload is larger than [`max_payload`](Log::max_payload).
    pub fn append(&self, lane: usize, kind: u8, parts: &[&[u8]]) -> Span {
        let shared = &*self.shared;
        let payload = parts.iter().map(|part| part.len()).sum();
        assert!(payload <= self.max_payload, "log record of {payload} bytes");
        let mark = shared.progress.durable.load(Ordering::Relaxed);
        let marked = shared.slots.of_lane(lane).marked.load(Ordering::Relaxed) < mark;
        let shape = Shape { kind, payload, marked };
        let mark = marked.then_some(mark);
        if shape.total_bytes() <= Image::BYTES {
            let (mut image, crc) = Image::new(shape, mark.unwrap_or(0), parts);
            self.insert(lane, shape, crc, mark, |header| shared.ring.put(header.lsn, image.seal(header)))
        } else {
            let crc = record::checksum(shape, mark.unwrap_or(0), parts);
            self.insert(lane, shape, crc, mark, |header| {
                let mut writer = shared.ring.writer(header.lsn);
                header.words().into_iter().chain(mark).for_each(|word| writer.word(word));
                parts.iter().for_each(|part| writer.bytes(part));
                writer.finish();
            })
        }
    }

    /// Reserves, waits for room, has `copy` copy the record into the ring, completes.
    #[inline]
    fn insert(&self, lane: usize, shape: Shape, crc: u32, mark: Option<Lsn>, copy: impl FnOnce(Header)) -> Span {
        let shared = &*self.shared;
        let bytes = shape.total_bytes() as u64;
        let insertion = self.reserve(lane, bytes);
        let start = insertion.start;
        let end = start + bytes;
        if !shared.has_room(end) {
            shared.wait_for_flusher(|| shared.has_room(end));
        }
        copy(Header { lsn: start, crc: crc ^ record::position_mix(start, shared.salt), shape });
        insertion.complete(mark);
        if end.saturating_sub(shared.progress.written.load(Ordering::Relaxed)) > shared.ring.bytes() / 2 {
            shared.flusher.wake();
        }
        Span { start, end }
    }

    #[inline]
    fn reserve(&self, lane: usize, bytes: u64) -> Insertion<'_> {
        let shared = &*self.shared;
        // Before a slot is taken: a task that parks with one makes others look for theirs. What the lane saw last will do, the
        // tail's line is everybody's.
        if shared.has_room(shared.slots.last_end(lane) + bytes)
            && let Some(insertion) = shared.slots.reserve(lane, bytes)
        {
            return insertion;
        }
        self.reserve_slowly(lane, bytes)
    }

    #[cold]
    fn reserve_slowly(&self, lane: usize, bytes: u64) -> Insertion<'_> {
        let shared = &*self.shared;
        let mut attempt = 0;
        loop {
            shared.wait_for_flusher(|| shared.has_room(shared.slots.tail() + bytes));
            if let Some(insertion) = shared.slots.reserve(lane, bytes) {
                return insertion;
            }
            // All slots are taken. Their holders may be tasks of this very worker that wait for
            // room, so this task has to let them run.
            if attempt < 8 {
                task::spin_hint(attempt);
            } else {
                task::yield_now();
            }
            attempt += 1;
        }
    }

    /// The end of all reservations: the next record starts here or later.
    pub fn tail(&self) -> Lsn {
        self.shared.slots.tail()
    }

    /// The position up to which the log survives a crash.
    #[inline]
    pub fn durable(&self) -> Lsn {
        self.shared.progress.durable.load(Ordering::Acquire)
    }

    /// Parks the task until the log is durable up to `end`, which must not lie beyond the tail.
    /// Never returns otherwise: if the log fails, the task waits for the process to end.
    pub fn wait_durable(&self, end: Lsn) {
        self.wait_for(None, end);
    }

    /// As [`wait_durable`](Log::wait_durable), for a task of the worker of `lane`: it is woken from its own node.
    pub fn wait_durable_on(&self, lane: usize, end: Lsn) {
        self.wait_for(Some(lane), end);
    }

    fn wait_for(&self, lane: Option<usize>, end: Lsn) {
        if self.durable() >= end {
            return;
        }
        // Nothing is further ahead of what is durable than a segment or the ring: only then the tail's line is asked.
        let plausible = end - self.durable().min(end) <= self.shared.ring.bytes();
        assert!(plausible || end <= self.tail(), "waiting for log position {end:#x}, which nobody has written");
        let lane = self.shared.committers.enter(lane, end, task::current());
        self.shared.flusher.wake();
        self.shared.committers.help(lane, self.durable());
        while self.durable() < end {
            task::park(WaitEvent::LogFlush);
        }
    }

    /// Asks for the log to become durable up to `end` without waiting for it.
    pub fn request_flush(&self, end: Lsn) {
        if self.durable() < end {
            self.shared.requested.fetch_max(end.min(self.tail()), Ordering::Relaxed);
            self.shared.flusher.wake();
        }
    }

    /// Makes sure that `bytes` more fit on the disk, with a spare segment left for rollbacks and a
    /// checkpoint. To be called before a statement changes anything. Reservations of several callers are not
    /// added up: the spare is what covers them together.
    ///
    /// # Errors
    /// [`LogError::Full`]: no room now; each call tries again.
    pub fn reserve_ahead(&self, bytes: u64) -> Result<(), LogError> {
        let supply = &self.shared.supply;
        // The tail is at most a ring ahead of what is written (but for insertions that wait for room, which the spare covers too):
        // nearly always that answers without the tail's line.
        let written = self.shared.progress.written.load(Ordering::Relaxed);
        if written + self.shared.ring.bytes() + bytes <= supply.usable_end() {
            return Ok(());
        }
        if self.tail() + bytes <= supply.usable_end() {
            return Ok(());
        }
        // The attempt that ends next may have started before the demand; the one after has not.
        let answered = supply.attempts() + 2;
        loop {
            let end = self.tail() + bytes;
            supply.demand(end, task::current());
            if end <= supply.usable_end() {
                return Ok(());
            }
            if supply.attempts() >= answered {
                return Err(LogError::Full { path: self.dir.clone() });
            }
            task::park(WaitEvent::LogBuffer);
        }
    }

    /// Says that nothing before `lsn` is needed any more: whole segments before it are reused or
    /// removed, in the background.
    pub fn truncate_before(&self, lsn: Lsn) {
        self.shared.supply.truncate_before(lsn.min(self.durable()));
    }

    /// Statistics.
    pub fn stats(&self) -> LogStats {
        let shared = &*self.shared;
        let counts = &shared.counts;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (segments, segments_ready, segments_recycled, supply_error) = shared.supply.stats();
        LogStats {
            tail: self.tail(),
            durable: self.durable(),
            records: shared.slots.records(),
            bytes: get(&counts.bytes),
            flushes: get(&counts.flushes),
            released: get(&counts.released) + shared.committers.relayed(),
            released_worst: get(&counts.released_worst),
            sync_ns_total: get(&counts.sync_ns_total),
            sync_ns_worst: get(&counts.sync_ns_worst),
            flush_ns_total: get(&counts.flush_ns_total),
            flush_ns_worst: get(&counts.flush_ns_worst),
            waits: shared.committers.waits(),
            ring_waits: get(&shared.ring_waits),
            segments,
            segments_ready,
            segments_recycled,
            supply_error,
        }
    }

    /// Sets what is done when a write or sync of the log failed. It is never tried again, no task
    /// is told "durable" afterwards; `f` has to report it and stop the process. The default prints
    /// and aborts.
    pub fn on_fatal(&self, f: Box<dyn Fn(&str) + Send + Sync>) {
        *self.shared.fatal.lock() = Arc::from(f);
    }

    /// Flushes everything that was appended and ends the log's threads. Nothing may be appended
    /// after it.
    pub fn shutdown(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        if threads.is_empty() {
            return;
        }
        self.shared.stop.store(true, Ordering::Release);
        self.shared.flusher.wake();
        let mut threads = threads.into_iter();
        // The flusher first: it may need a segment for the rest.
        if let Some(flusher) = threads.next() {
            flusher.join();
        }
        self.shared.supply.stop();
        if let Some(syncs) = &self.shared.syncs {
            syncs.stop();
            if let Some(syncer) = threads.next() {
                syncer.join();
            }
        }
        self.shared.relays_stop.store(true, Ordering::Release);
        self.shared.committers.nodes().iter().for_each(|node| node.relay.wake());
        threads.for_each(JoinHandle::join);
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// In the order in which they have to end: the flusher; the thread that syncs, if there is one; the others.
fn spawn_threads(shared: &Arc<Shared>, first: Segment, nodes: &Nodes, io_cpus: &[usize]) -> Vec<JoinHandle> {
    let near_device = |name: &str, work: Box<dyn FnOnce() + Send>| {
        let cpus = io_cpus.to_vec();
        thread::spawn(name, move || {
            if !cpus.is_empty() {
                // Refused in some containers; then it writes from farther away.
                let _ = thread::pin_to_cpus(&cpus);
            }
            work();
        })
    };
    let flusher = Flusher::new(shared.clone(), first);
    let mut threads = vec![near_device("log-flusher", Box::new(move || flusher.run()))];
    if shared.syncs.is_some() {
        let shared = shared.clone();
        threads.push(near_device("log-syncer", Box::new(move || syncer::run(&shared))));
    }
    let supplied = shared.clone();
    let supply = move || supplied.supply.run(|| supplied.flusher.wake());
    threads.push(near_device("log-supply", Box::new(supply)));
    for node in 0..shared.committers.nodes().len() {
        let (shared, cpus) = (shared.clone(), nodes.cpus[node].clone());
        threads.push(thread::spawn(&format!("log-relay-{node}"), move || relay::run(&shared, node, &cpus)));
    }
    threads
}

/// Removes the segments that start after `end`, the last one first, each durably: a crash in between
/// must not leave a gap. Returns those that start before `end`, and checks that the log reaches there.
///
/// One that starts at `end` itself stays where it is until [`segment::make`] renames the new one over
/// it: it may be the only one (nothing before it is needed any more, nothing is in it yet), and without it
/// a crash before the new one has its name would leave a log that nobody can open.
fn cut_off(dir: &Path, end: Lsn) -> Result<VecDeque<(Lsn, u64)>, LogError> {
    let mut starts = segment::list(dir)?;
    while starts.last().is_some_and(|&start| start > end) {
        let start = starts.pop().expect("just looked at");
        let spare = segment::retire(dir, start, 0)?;
        fs::remove_file(&spare.path).map_err(LogError::io("remove", &spare.path))?;
    }
    let replaced = starts.pop_if(|start| *start == end).is_some();
    let mut on_disk = VecDeque::new();
    for start in starts {
        let path = segment::path_of(dir, start);
        let file = File::open(&path, &OpenOptions::new().read(true)).map_err(LogError::io("open", &path))?;
        on_disk.push_back((start, SegmentHeader::read(&path, start, &file)?.bytes));
    }
    let reached = on_disk.back().map_or(FIRST_LSN, |(start, bytes)| start + bytes);
    if reached < end && !replaced {
        return Err(LogError::Missing { path: dir.to_path_buf(), lsn: reached });
    }
    Ok(on_disk)
}

/// A log without a control file is one whose creation was interrupted, or one whose control file
/// was lost: only the former may be removed, and the difference is how much is in it.
fn remove_interrupted_creation(dir: &Path) -> Result<(), LogError> {
    const CREATION_RECORDS: usize = 64;
    let exists = || LogError::Exists { path: dir.to_path_buf() };
    let mut reader = crate::scan(dir, FIRST_LSN).map_err(|_| exists())?;
    for _ in 0..CREATION_RECORDS {
        if reader.next_record()?.is_none() {
            cut_off(dir, FIRST_LSN)?;
            return Ok(());
        }
    }
    Err(exists())
}

/// A number that no earlier life of this log had and that nobody can know beforehand.
fn new_salt(end: Lsn, segments: usize) -> u64 {
    let mut salt = clock::unix_time_us() as u64 ^ clock::now_ns().rotate_left(32) ^ end ^ segments as u64;
    // The finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA 2014).
    salt = (salt ^ (salt >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    salt = (salt ^ (salt >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    salt ^ (salt >> 31)
}
