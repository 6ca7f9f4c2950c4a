//! What can others know of a session? For views, and for whoever cancels it.

use crate::database::{Database, Inner};
use crate::placement::{NOWHERE, node_of};
use crate::session_memory::{MemoryContext, MemoryUse, PrivateMemory};
use crate::stats::Counter;
use homenode_log::LogStats;
use homenode_platform::atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use homenode_platform::clock;
use homenode_platform::sync::Mutex;
use homenode_platform::wait::WaitEvent;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// What a session does, as pg_stat_activity says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Activity {
    /// Waits for a statement.
    #[default]
    Idle,
    /// Runs a statement.
    Active,
    /// Waits for a statement inside a transaction.
    IdleInTransaction,
    /// Waits for the end of a failed transaction.
    IdleInFailedTransaction,
}

/// What a session lets others know. Written by the session at its statements' borders, read by views.
pub struct SessionShared {
    /// Process-like number that a client uses to cancel.
    pub pid: u32,
    lane: AtomicUsize,
    /// The node that it shall live on, as `placement` keeps it.
    pub(crate) wanted_node: AtomicI64,
    moves: AtomicU64,
    pub(crate) slot: usize,
    /// When it began, microseconds since 1970.
    pub started_us: i64,
    state: AtomicU32,
    state_since_us: AtomicI64,
    query_since_us: AtomicI64,
    transaction_since_us: AtomicI64,
    /// Its private memory.
    pub memory: Arc<PrivateMemory>,
    texts: Mutex<Texts>,
    cancel_reason: AtomicU64,
    numbers: Mutex<(HashMap<u32, i64>, Option<i64>)>,
}

#[derive(Default)]
struct Texts {
    user: String,
    application: String,
    client: String,
    query: Arc<str>,
}

const REASONS: [&str; 2] = ["user request", "statement timeout"];

impl SessionShared {
    pub(crate) fn new(pid: u32, slot: usize, lane: usize) -> SessionShared {
        let now = clock::unix_time_us();
        SessionShared {
            pid,
            lane: AtomicUsize::new(lane),
            wanted_node: AtomicI64::new(NOWHERE),
            moves: AtomicU64::new(0),
            slot,
            started_us: now,
            state: AtomicU32::new(Activity::Idle as u32),
            state_since_us: AtomicI64::new(now),
            query_since_us: AtomicI64::new(0),
            transaction_since_us: AtomicI64::new(0),
            memory: Arc::default(),
            texts: Mutex::new(Texts::default()),
            cancel_reason: AtomicU64::new(0),
            numbers: Mutex::new((HashMap::new(), None)),
        }
    }

    /// The lane it writes on.
    pub fn lane(&self) -> usize {
        self.lane.load(Ordering::Relaxed)
    }

    /// The node that it shall live on, if somebody said so.
    pub fn wanted_node(&self) -> Option<usize> {
        node_of(self.wanted_node.load(Ordering::Relaxed))
    }

    pub(crate) fn moved_to(&self, lane: usize) {
        self.lane.store(lane, Ordering::Relaxed);
        self.moves.fetch_add(1, Ordering::Relaxed);
    }

    /// Who is connected, from where.
    pub fn set_client(&self, user: &str, application: &str, client: &str) {
        let mut texts = self.texts.lock();
        texts.user = user.to_owned();
        texts.application = application.to_owned();
        texts.client = client.to_owned();
    }

    /// The application's name.
    pub fn set_application(&self, application: &str) {
        self.texts.lock().application = application.to_owned();
    }

    /// The statement that begins now. The text is shared, not copied: a prepared statement's is the same each time.
    pub fn set_query(&self, query: &Arc<str>) {
        let mut texts = self.texts.lock();
        if !Arc::ptr_eq(&texts.query, query) {
            texts.query = query.clone();
        }
    }

    /// What the session does from now on.
    pub fn set_activity(&self, activity: Activity) {
        self.state.store(activity as u32, Ordering::Relaxed);
    }

    /// What it does.
    pub fn activity(&self) -> Activity {
        match self.state.load(Ordering::Relaxed) {
            0 => Activity::Idle,
            1 => Activity::Active,
            2 => Activity::IdleInTransaction,
            _ => Activity::IdleInFailedTransaction,
        }
    }

    /// Notes the times of a statement's begin, and of its transaction's, microseconds since 1970.
    pub fn set_times(&self, query_us: i64, transaction_us: i64) {
        self.query_since_us.store(query_us, Ordering::Relaxed);
        self.transaction_since_us.store(transaction_us, Ordering::Relaxed);
        self.state_since_us.store(query_us, Ordering::Relaxed);
    }

    pub(crate) fn cancel_reason(&self) -> Option<&'static str> {
        REASONS.get(self.cancel_reason.load(Ordering::Relaxed) as usize).copied()
    }

    pub(crate) fn remember_sequence(&self, oid: u32, value: i64) {
        let mut numbers = self.numbers.lock();
        numbers.0.insert(oid, value);
        numbers.1 = Some(value);
    }

    pub(crate) fn sequence_value(&self, oid: u32) -> Option<i64> {
        self.numbers.lock().0.get(&oid).copied()
    }

    pub(crate) fn last_sequence_value(&self) -> Option<i64> {
        self.numbers.lock().1
    }
}

/// One session, as a view shows it.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// See [`SessionShared::pid`].
    pub pid: u32,
    /// Its lane.
    pub lane: usize,
    /// The node that it was pinned to.
    pub pinned_node: Option<usize>,
    /// How often it has changed its worker.
    pub moves: u64,
    /// Its private memory by context.
    pub memory: Vec<MemoryUse>,
    /// Who is connected.
    pub user: String,
    /// The application's name.
    pub application: String,
    /// Client's address.
    pub client: String,
    /// The last statement's text.
    pub query: Arc<str>,
    /// What it does.
    pub activity: Activity,
    /// What its task waits for.
    pub wait: Option<WaitEvent>,
    /// Microseconds since 1970: session, transaction, statement, state.
    pub times_us: [i64; 4],
    /// Its transaction's name in row headers, if it has written.
    pub txn: Option<u64>,
    /// Its snapshot.
    pub snapshot: Option<u64>,
    /// Tables in use.
    pub tables: Vec<u32>,
    /// The pid that it waits for.
    pub waits_for: Option<u32>,
}

/// All sessions, by pid.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<(u32, BTreeMap<u32, Arc<SessionShared>>)>);

impl Sessions {
    pub fn add(&self, slot: usize, lane: usize) -> Arc<SessionShared> {
        let mut inner = self.0.lock();
        inner.0 = inner.0.wrapping_add(1).max(1);
        let pid = inner.0;
        let shared = Arc::new(SessionShared::new(pid, slot, lane));
        inner.1.insert(pid, shared.clone());
        shared
    }

    pub fn remove(&self, slot: usize) {
        self.0.lock().1.retain(|_, shared| shared.slot != slot);
    }

    pub fn find(&self, pid: u32) -> Option<Arc<SessionShared>> {
        self.0.lock().1.get(&pid).cloned()
    }

    fn all(&self) -> Vec<Arc<SessionShared>> {
        self.0.lock().1.values().cloned().collect()
    }
}

/// What a session holds. A stack is its own only while it is at work: stacks are pooled.
fn memory_in_use(shared: &SessionShared) -> Vec<MemoryUse> {
    let mut memory = shared.memory.list();
    if shared.activity() != Activity::Active {
        for part in memory.iter_mut().filter(|part| part.context == MemoryContext::Stack) {
            (part.bytes, part.piece) = (0, 0..0);
        }
    }
    memory
}

fn describe(db: &Inner, shared: &SessionShared, pids: &HashMap<usize, u32>) -> SessionInfo {
    let slot = db.txns.slot(shared.slot);
    let texts = shared.texts.lock();
    SessionInfo {
        pid: shared.pid,
        lane: shared.lane(),
        pinned_node: shared.wanted_node(),
        memory: memory_in_use(shared),
        moves: shared.moves.load(Ordering::Relaxed),
        user: texts.user.clone(),
        application: texts.application.clone(),
        client: texts.client.clone(),
        query: texts.query.clone(),
        activity: shared.activity(),
        wait: slot.task().map(|task| task.wait_event()).filter(|&event| event != WaitEvent::None),
        times_us: [
            shared.started_us,
            shared.transaction_since_us.load(Ordering::Relaxed),
            shared.query_since_us.load(Ordering::Relaxed),
            shared.state_since_us.load(Ordering::Relaxed),
        ],
        txn: Some(slot.txn()).filter(|&txn| txn != 0),
        snapshot: slot.snapshot(),
        tables: slot.tables(),
        waits_for: slot.waits_for().and_then(|(slot, _)| pids.get(&slot).copied()),
    }
}

impl Database {
    /// All sessions, by pid.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        let all = self.inner.sessions.all();
        let pids = all.iter().map(|shared| (shared.slot, shared.pid)).collect();
        all.iter().map(|shared| describe(&self.inner, shared, &pids)).collect()
    }

    /// Asks the statement of session `pid` to stop; false when there is no such session.
    pub fn cancel(&self, pid: u32, reason: CancelReason) -> bool {
        let all = self.inner.sessions.all();
        let Some(shared) = all.iter().find(|shared| shared.pid == pid) else { return false };
        shared.cancel_reason.store(reason as u64, Ordering::Relaxed);
        self.inner.txns.slot(shared.slot).cancel();
        true
    }

    /// The sum of a counter over all lanes.
    pub fn count(&self, counter: Counter) -> u64 {
        self.inner.lanes.iter().map(|lane| lane.stats.get(counter)).sum()
    }

    /// What the log has done since the database was opened.
    pub fn log_stats(&self) -> LogStats {
        self.inner.log.stats()
    }

    /// Undo pages in use, by lane.
    pub fn undo_pages(&self) -> Vec<usize> {
        self.inner.lanes.iter().map(|lane| lane.undo.pages()).collect()
    }
}

/// Why a statement is asked to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum CancelReason {
    /// A client asked.
    User = 0,
    /// It ran longer than statement_timeout.
    StatementTimeout = 1,
}
