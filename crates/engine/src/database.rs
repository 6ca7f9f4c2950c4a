//! What is open? A data folder with its pool, log, lanes and background threads.

use crate::catalog::{Definitions, Index, Table, TableDefinition};
use crate::crew::Crew;
use crate::error::{Error, Result, SqlState, Storage};
use crate::housekeeping;
use crate::info::Sessions;
use crate::overflow::{Overflow, overflow_tree};
use crate::placement::WorkerPlace;
use crate::query_memory::Queries;
use crate::record;
use crate::recovery;
use crate::rowid::RowIds;
use crate::saved::SavedSettings;
use crate::sequence::Sequences;
use crate::session::Session;
use crate::stats::LaneStats;
use crate::undo::UndoLog;
use homenode_log::{FolderLock, Log, LogConfig, control};
use homenode_memory::Policy;
use homenode_platform::CachePadded;
use homenode_platform::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use homenode_platform::fs::{self, File, OpenOptions};
use homenode_platform::sync::Mutex;
use homenode_platform::thread::JoinHandle;
use homenode_pool::{PageNo, Pool, PoolConfig, Wal};
use homenode_topology::{Device, Topology};
use homenode_tree::{Cursor, Tree};
use homenode_txn::{Manager, TableLock};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

/// How a database is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of the buffer pool.
    pub pool_bytes: usize,
    /// Lanes: one per worker or, embedded, per processor.
    pub lanes: usize,
    /// Sessions at once.
    pub sessions_max: usize,
    /// Whether a commit waits until the log is on stable storage. Without it, an operating-system crash loses commits.
    pub sync: bool,
    /// On which nodes the pool's pages lie.
    pub pool_policy: Policy,
    /// Nodes whose memory is the pool's second tier, where pages cool down before they are evicted.
    pub far_nodes: Vec<usize>,
    /// Bytes of the second tier; 0: three quarters of what its nodes can give.
    pub far_bytes: usize,
    /// Whether memory is placed by node at all. Without it the machine counts as one node.
    pub numa: bool,
    /// Whether the pool's memory is made present at the start, each node's by its own CPUs. `None`: where it is placed by
    /// node, so that it is there as long as it is sure to be had.
    pub prefault: Option<bool>,
    /// Whether the pool asks for huge pages.
    pub huge_pages: bool,
    /// Whether pages are read ahead of scans.
    pub read_ahead: bool,
    /// Log bytes after which a checkpoint begins.
    pub checkpoint_log_bytes: u64,
    /// Bytes of the log's buffer in memory; less than 1 MiB counts as 1 MiB.
    pub log_buffer_bytes: usize,
    /// Bytes of a log segment.
    pub log_segment_bytes: u64,
    /// What counts in place of `pool_bytes` and `pool_policy` if it can be had.
    pub saved: SavedSettings,
    /// The machine to place memory on; `None` looks at the one that it runs on.
    pub topology: Option<Topology>,
}

/// A record takes at most a quarter of the log's buffer, and the pool logs images of four pages in one.
const LOG_BUFFER_BYTES_MIN: usize = 1 << 20;

impl Default for Options {
    fn default() -> Options {
        Options {
            pool_bytes: 256 << 20,
            lanes: homenode_platform::thread::available_cpus(),
            sessions_max: 1024,
            sync: true,
            pool_policy: Policy::Interleave,
            far_nodes: Vec::new(),
            far_bytes: 0,
            numa: true,
            prefault: None,
            huge_pages: true,
            read_ahead: true,
            checkpoint_log_bytes: 1 << 30,
            log_buffer_bytes: 16 << 20,
            log_segment_bytes: 64 << 20,
            saved: SavedSettings::default(),
            topology: None,
        }
    }
}

/// One lane: what a worker writes and nobody else does.
pub(crate) struct Lane {
    pub undo: UndoLog,
    pub stats: LaneStats,
    /// Left by ended scans.
    pub spare_cursors: Mutex<Vec<Cursor>>,
}

/// A lane's own copy of the definitions, with the version that it was made of.
type LaneCopy = Mutex<(u64, Arc<Definitions>)>;

/// The catalog: definitions as published, and the tree that keeps them.
pub(crate) struct Catalog {
    pub tree: Tree,
    version: CachePadded<AtomicU64>,
    current: Mutex<Arc<Definitions>>,
    /// Each lane's own copy of the definitions, with the version that it was made of.
    lanes: Box<[CachePadded<LaneCopy>]>,
    /// Held by the one transaction that changes definitions.
    pub lock: Arc<TableLock>,
    next_oid: AtomicU32,
    locks: Mutex<HashMap<u32, Arc<TableLock>>>,
}

impl Catalog {
    /// Counts published changes.
    pub fn version(&self) -> u64 {
        self.version.0.load(Ordering::Acquire)
    }

    /// The lane's copy of the published definitions, and their version.
    pub fn current(&self, lane: usize) -> (Arc<Definitions>, u64) {
        let mut copy = self.lanes[lane].0.lock();
        if copy.0 != self.version() {
            let current = self.current.lock();
            *copy = (self.version(), Arc::new(current.copy()));
        }
        (copy.1.clone(), copy.0)
    }

    /// Publishes what `change` makes of the definitions.
    pub fn publish(&self, change: impl FnOnce(&mut Definitions)) {
        let mut current = self.current.lock();
        let mut definitions = Definitions::clone(&current);
        change(&mut definitions);
        *current = Arc::new(definitions);
        self.version.0.fetch_add(1, Ordering::SeqCst);
    }

    /// A new object number.
    pub fn new_oid(&self) -> u32 {
        self.next_oid.fetch_add(1, Ordering::Relaxed)
    }

    /// Notes that an object number is taken.
    pub fn note_oid(&self, oid: u32) {
        self.next_oid.fetch_max(oid + 1, Ordering::Relaxed);
    }

    pub fn next_oid(&self) -> u32 {
        self.next_oid.load(Ordering::Relaxed)
    }

    /// The lock of table `oid`, the same for all its definitions.
    pub fn table_lock(&self, oid: u32) -> Arc<TableLock> {
        self.locks.lock().entry(oid).or_default().clone()
    }
}

/// What all sessions share.
pub struct Inner {
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    pub(crate) topology: Arc<Topology>,
    /// The machine as placement sees it: the same, unless that is switched off.
    pub(crate) planned: Arc<Topology>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) log: Arc<Log>,
    pub(crate) txns: Manager,
    pub(crate) lanes: Box<[CachePadded<Lane>]>,
    pub(crate) catalog: Catalog,
    pub(crate) sequences: Sequences,
    pub(crate) sessions: Sessions,
    /// Big scans that run now.
    pub(crate) queries: Queries,
    /// Threads for big scans.
    pub(crate) crew: Crew,
    /// Who serves each lane.
    pub(crate) workers: Box<[WorkerPlace]>,
    pub(crate) checkpoints: housekeeping::Checkpoints,
    pub(crate) purges: crate::purge::Purges,
    /// Roots of the trees that exist: a purge that comes late must not touch the pages of one that is gone.
    pub(crate) live_trees: Mutex<HashSet<PageNo>>,
    next_lane: AtomicU64,
    /// Written once in the database's life and asked by every session: a line of its own, so that asking costs a cached read.
    stopping: CachePadded<AtomicBool>,
    closing: AtomicBool,
    threads: Mutex<Vec<JoinHandle>>,
    /// One change at a time of the settings that are kept.
    pub(crate) saving: Mutex<()>,
    pub(crate) refused_settings: Vec<String>,
    _folder: FolderLock,
}

impl Inner {
    /// Whether the database is being closed.
    pub(crate) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Whether the background threads shall stop.
    pub(crate) fn closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Builds a table for use from its definition.
    pub(crate) fn table(&self, definition: TableDefinition) -> Arc<Table> {
        let lock = self.catalog.table_lock(definition.oid);
        let tree = |id, root| Tree::open(self.pool.clone(), self.log.clone(), id, root);
        let indexes = definition
            .indexes
            .iter()
            .map(|index| Arc::new(Index { definition: index.clone(), tree: tree(index.oid, index.root) }));
        Arc::new(Table {
            layout: definition.layout(),
            indexes: indexes.collect(),
            tree: tree(definition.oid, definition.root),
            values: (definition.overflow != 0).then(|| {
                let tree = tree(overflow_tree(definition.oid), definition.overflow);
                Arc::new(Overflow::new(tree, self.lanes.len()))
            }),
            version: lock.version(),
            lock,
            row_ids: Arc::new(RowIds::new(self.lanes.len())),
            definition,
        })
    }
}

/// The nodes with CPUs, and where the worker of each lane lives when workers are dealt out node by node, each as often as it has
/// CPUs (as the server does).
fn lane_nodes(topology: &Topology, lanes: usize) -> homenode_log::Nodes {
    let allowed = topology.allowed_cpus();
    let usable = |cpus: &[usize]| cpus.iter().copied().filter(|cpu| allowed.contains(cpu)).collect::<Vec<_>>();
    let cpus: Vec<Vec<usize>> =
        topology.nodes().iter().map(|node| usable(&node.cpus)).filter(|cpus| !cpus.is_empty()).collect();
    let places: Vec<usize> = cpus.iter().enumerate().flat_map(|(node, cpus)| cpus.iter().map(move |_| node)).collect();
    let place =
        |lane: usize| if lanes < places.len() { lane * places.len() / lanes } else { lane % places.len().max(1) };
    let of_lanes = (0..lanes).map(|lane| places.get(place(lane)).copied().unwrap_or(0)).collect();
    homenode_log::Nodes { cpus, of_lanes }
}

/// The pool's view of the log.
pub(crate) struct PoolWal(pub Arc<Log>);

impl Wal for PoolWal {
    fn flush_to(&self, lsn: u64) {
        self.0.wait_durable(lsn);
    }

    fn log_images(&self, pages: &[(PageNo, &[u8])]) -> u64 {
        let numbers: Vec<[u8; 8]> = pages.iter().map(|(page, _)| page.to_le_bytes()).collect();
        let mut parts: Vec<&[u8]> = Vec::with_capacity(pages.len() * 2);
        for (number, (_, bytes)) in numbers.iter().zip(pages) {
            parts.push(number);
            parts.push(bytes);
        }
        self.0.append(0, record::KIND_IMAGES, &parts).end
    }

    fn tail(&self) -> u64 {
        self.0.tail()
    }
}

/// The pool as the saved settings want it, or, when that cannot be had, as the options do; and why, then.
fn pool_as_saved(
    dir: &Path,
    options: &Options,
    log: &Arc<Log>,
    (planned, io_cpus): (&Topology, &[usize]),
) -> Result<(Arc<Pool>, Vec<String>)> {
    let mut refused = options.saved.ignored.clone();
    if !options.saved.is_empty() {
        let wanted = options.saved.pool_bytes.unwrap_or(0) as u64;
        let room = homenode_memory::available_bytes(planned).unwrap_or(u64::MAX);
        let pool = match wanted > room {
            true => Err(no_room(wanted, room)),
            false => make_pool(dir, options, &options.saved, log, (planned, io_cpus)),
        };
        match pool {
            Ok(pool) => return Ok((pool, refused)),
            Err(error) => refused.push(format!("{}: {}", options.saved, error.message)),
        }
    }
    make_pool(dir, options, &SavedSettings::default(), log, (planned, io_cpus)).map(|pool| (pool, refused))
}

fn no_room(bytes: u64, room: u64) -> Error {
    let message =
        format!("the pool takes {bytes} bytes: the machine, or this process's control group, can give {room}");
    Error::new(SqlState::OUT_OF_MEMORY, message)
}

fn make_pool(
    dir: &Path,
    options: &Options,
    saved: &SavedSettings,
    log: &Arc<Log>,
    (planned, io_cpus): (&Topology, &[usize]),
) -> Result<Arc<Pool>> {
    let file = File::open(&dir.join("pages"), &OpenOptions::new().read(true).write(true).create(true)).sql()?;
    let wanted = saved.pool_policy.as_ref().unwrap_or(&options.pool_policy);
    let policy = if options.numa { wanted.clone() } else { Policy::Default };
    let bytes = saved.pool_bytes.unwrap_or(options.pool_bytes);
    // A bound pool is either all there or refused: later there would be nobody to tell.
    let prefault = options.prefault.unwrap_or(!planned.is_uniform()) || matches!(policy, Policy::Bind(_));
    // Beyond its group's limit the process would be ended while the pool is filled.
    let room = homenode_memory::group_available_bytes().filter(|room| prefault && *room < bytes as u64);
    if let Some(room) = room {
        return Err(no_room(bytes as u64, room));
    }
    let config = PoolConfig {
        prefault,
        partitions: options.lanes,
        huge_pages: options.huge_pages,
        read_ahead: options.read_ahead,
        io_cpus: io_cpus.to_vec(),
        policy,
        far_nodes: options.far_nodes.clone(),
        far_bytes: options.far_bytes,
        bytes,
        lanes: options.lanes,
        ..PoolConfig::default()
    };
    Pool::new(config, file, Arc::new(PoolWal(log.clone())), planned).sql()
}

/// An open database.
///
/// Cheap to clone; the last clone and session that goes away closes it, as [`Database::close`] does on purpose.
///
/// ```no_run
/// use homenode_engine::{Database, Isolation};
///
/// let database = Database::open("folder")?;
/// let mut session = database.session()?;
/// session.begin(Isolation::ReadCommitted, false)?;
/// session.commit()?;
/// # Ok::<(), homenode_types::Error>(())
/// ```
#[derive(Clone)]
pub struct Database {
    pub(crate) inner: Arc<Inner>,
    _closer: Arc<Closer>,
}

struct Closer(Weak<Inner>);

impl Drop for Closer {
    fn drop(&mut self) {
        if let Some(inner) = self.0.upgrade() {
            // Nobody is there to tell; what is lost is only the shorter recovery.
            let _ = close(&inner);
        }
    }
}

impl Database {
    /// Opens the database in folder `path`, creating it if there is none.
    ///
    /// # Errors
    /// 55006 when another process has it open; XX001 when it is damaged; 0A000 when it is of a newer version; 58030.
    pub fn open(path: impl AsRef<Path>) -> Result<Database> {
        Database::open_with(path, Options::default())
    }

    /// As [`Database::open`], with options.
    ///
    /// # Errors
    /// As [`Database::open`].
    pub fn open_with(path: impl AsRef<Path>, options: Options) -> Result<Database> {
        let dir = path.as_ref().to_owned();
        fs::create_dir_all(&dir).sql()?;
        let folder = homenode_log::lock(&dir).sql()?;
        let topology = Arc::new(options.topology.clone().unwrap_or_else(Topology::discover));
        let planned = if options.numa { topology.clone() } else { Arc::new(topology.as_one_node()) };
        let nodes = lane_nodes(&planned, options.lanes);
        // What only reads and writes runs near the device, where the system says where that is.
        let io_cpus = Device::of(&dir, &topology).near_cpus(&planned).unwrap_or_default();
        if !io_cpus.is_empty() {
            fs::read_near(&io_cpus);
        }
        let log_config = LogConfig {
            buffer_bytes: options.log_buffer_bytes.max(LOG_BUFFER_BYTES_MIN),
            segment_bytes: options.log_segment_bytes,
            insert_slots: (options.lanes * 2).max(8),
            sync: options.sync,
            nodes: nodes.clone(),
            io_cpus: io_cpus.clone(),
            ..LogConfig::new(&dir)
        };
        let control = control::read(&dir).sql()?;
        let has_crashed = control.as_ref().is_some_and(|control| !control.clean_shutdown);
        let plan = recovery::Plan::make(&dir, control.as_ref())?;
        let log = match control {
            None => Log::create(log_config).sql()?,
            Some(_) => Log::open_at(log_config, plan.log_end).sql()?,
        };
        let (pool, refused_settings) = pool_as_saved(&dir, &options, &log, (&planned, &io_cpus))?;
        let recovered = recovery::run(&dir, plan, &pool, &log, options.lanes)?;
        let catalog_tree = match recovered.catalog_root {
            Some(root) => Tree::open(pool.clone(), log.clone(), CATALOG_TREE_ID, root),
            None => Tree::create(pool.clone(), log.clone(), 0, CATALOG_TREE_ID).sql()?,
        };
        let inner = Arc::new(Inner {
            dir,
            crew: Crew::new(&planned),
            topology,
            planned,
            txns: Manager::new(options.lanes, options.sessions_max, recovered.next_seq, recovered.clock)
                .on_nodes(nodes.cpus.len().max(1), &nodes.of_lanes),
            lanes: (0..options.lanes)
                .map(|_| {
                    let spare_cursors = Mutex::default();
                    CachePadded(Lane { undo: UndoLog::new(), stats: LaneStats::default(), spare_cursors })
                })
                .collect(),
            catalog: Catalog {
                tree: catalog_tree,
                version: CachePadded(AtomicU64::new(1)),
                current: Mutex::new(Arc::default()),
                lanes: (0..options.lanes).map(|_| CachePadded(Mutex::new((0, Arc::default())))).collect(),
                lock: Arc::new(TableLock::new()),
                next_oid: AtomicU32::new(recovered.next_oid),
                locks: Mutex::new(HashMap::new()),
            },
            sequences: Sequences::new(recovered.sequences),
            sessions: Sessions::default(),
            queries: Queries::default(),
            workers: (0..options.lanes).map(|_| WorkerPlace::new()).collect(),
            checkpoints: housekeeping::Checkpoints::new(recovered.redo_start),
            purges: crate::purge::Purges::new(),
            next_lane: AtomicU64::new(0),
            live_trees: Mutex::new(HashSet::new()),
            stopping: CachePadded(AtomicBool::new(false)),
            closing: AtomicBool::new(false),
            threads: Mutex::new(Vec::new()),
            saving: Mutex::default(),
            refused_settings,
            _folder: folder,
            pool,
            log,
            options,
        });
        inner.txns.name_memory();
        recovery::take_back_losers(&inner, &recovered.losers)?;
        crate::ddl::load_catalog(&inner)?;
        if has_crashed {
            crate::reclaim::reclaim(&inner)?;
        }
        housekeeping::checkpoint(&inner)?;
        *inner.threads.lock() = housekeeping::start(&inner);
        Ok(Database { _closer: Arc::new(Closer(Arc::downgrade(&inner))), inner })
    }

    /// A new session, on the lane that comes next in turn.
    ///
    /// # Errors
    /// 53300 when [`Options::sessions_max`] are open.
    pub fn session(&self) -> Result<Session> {
        let turn = self.inner.next_lane.fetch_add(1, Ordering::Relaxed) as usize;
        Session::new(self.inner.clone(), turn % self.inner.lanes.len())
    }

    /// A new session on `lane` (taken modulo the number of lanes).
    ///
    /// # Errors
    /// As [`Database::session`].
    pub fn session_on(&self, lane: usize) -> Result<Session> {
        Session::new(self.inner.clone(), lane % self.inner.lanes.len())
    }

    /// Writes all changed pages, so that a recovery would begin here.
    ///
    /// # Errors
    /// 53100, 58030.
    pub fn checkpoint(&self) -> Result<()> {
        housekeeping::checkpoint(&self.inner)
    }

    /// Tells every session that the database is going down: their statements and waits end with 57P01.
    pub fn stop_sessions(&self) {
        self.inner.stopping.store(true, Ordering::SeqCst);
        for (_, slot) in self.inner.txns.slots().iter() {
            slot.cancel();
        }
    }

    /// Whether [`Database::stop_sessions`] or [`Database::close`] has been called.
    pub fn is_stopping(&self) -> bool {
        self.inner.stopping()
    }

    /// Closes the database: stops the background threads, writes a checkpoint, marks the folder as cleanly shut down. Sessions that
    /// are still open only get errors.
    ///
    /// # Errors
    /// Those of the checkpoint; nothing that was committed is lost.
    pub fn close(self) -> Result<()> {
        close(&self.inner)
    }

    /// The machine.
    pub fn topology(&self) -> &Topology {
        &self.inner.topology
    }

    /// The machine as memory and work are placed on it: one node, if that is switched off.
    pub fn planned_topology(&self) -> &Topology {
        &self.inner.planned
    }

    /// The buffer pool.
    pub fn pool(&self) -> &Pool {
        &self.inner.pool
    }

    /// The log.
    pub fn log(&self) -> &Log {
        &self.inner.log
    }

    /// Number of lanes.
    pub fn lanes(&self) -> usize {
        self.inner.lanes.len()
    }

    /// The options that it was opened with.
    pub fn options(&self) -> &Options {
        &self.inner.options
    }

    /// What is committed of tables, sequences and roles.
    pub fn definitions(&self) -> Arc<Definitions> {
        self.inner.catalog.current(0).0
    }

    /// The data folder.
    pub fn folder(&self) -> &Path {
        &self.inner.dir
    }
}

/// Number of the catalog's tree.
const CATALOG_TREE_ID: u32 = 1;

fn close(inner: &Arc<Inner>) -> Result<()> {
    inner.stopping.store(true, Ordering::SeqCst);
    if inner.closing.swap(true, Ordering::SeqCst) {
        return Ok(());
    }
    housekeeping::wake(inner);
    let threads = std::mem::take(&mut *inner.threads.lock());
    for thread in threads {
        thread.join();
    }
    inner.crew.stop();
    // What waits to be taken out of the trees is forgotten with the undo log.
    if let Err(error) = crate::purge::purge_now(inner) {
        tracing::warn!(%error, "deletions stay in their pages");
    }
    let result = housekeeping::final_checkpoint(inner);
    inner.pool.shutdown();
    inner.log.shutdown();
    result
}
