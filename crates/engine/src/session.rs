//! What does one caller do, in which transaction? Sessions: begin, commit, rollback, savepoints, snapshots, statements.
//!
//! A session belongs to one caller at a time and to one lane. Its methods may park the calling task: for a page, a row lock, the
//! flush of a commit. What others may see of it lies in its slot (see `homenode_txn`).

use crate::catalog::{Definitions, Table};
use crate::database::Inner;
use crate::ddl::PendingChanges;
use crate::error::{Error, Result, STALE_DEFINITION, SqlState, Storage};
use crate::info::SessionShared;
use crate::record;
use crate::serializable::ReadSet;
use crate::stats::Counter;
use crate::undo::{self, UndoKind, UndoPointer, UndoRecord};
use homenode_platform::clock;
use homenode_platform::task;
use homenode_tree::{Header, Tree};
use homenode_txn::{Seen, TxnId, is_tombstone};
use std::sync::Arc;

/// What a transaction sees of others, as PostgreSQL names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Isolation {
    /// Each statement sees what was committed before it began.
    #[default]
    ReadCommitted,
    /// All statements see what was committed before the first began.
    RepeatableRead,
    /// As if transactions ran one after another.
    Serializable,
}

/// A place in a transaction to go back to.
#[derive(Clone, Debug)]
pub struct Savepoint {
    undo: UndoPointer,
    pending: Option<Box<PendingChanges>>,
}

/// One caller's connection to the database.
pub struct Session {
    pub(crate) db: Arc<Inner>,
    pub(crate) lane: usize,
    pub(crate) slot: usize,
    pub(crate) shared: Arc<SessionShared>,
    pub(crate) txn: Transaction,
    pub(crate) buffers: Buffers,
    definitions: Arc<Definitions>,
    definitions_version: u64,
    lock_timeout_ns: u64,
    /// The generation of its slot in which it was last a deadlock's victim, until it begins to write again.
    victim_in: Option<u64>,
    /// Owner of what it creates.
    pub(crate) role: u32,
    /// See [`Session::set_names`].
    names_salt: u64,
}

/// The transaction that runs now.
pub(crate) struct Transaction {
    pub open: bool,
    pub isolation: Isolation,
    pub read_only: bool,
    /// Its name in row headers; none before the first write.
    pub id: TxnId,
    pub snapshot: Option<u64>,
    /// Newest undo record; the others hang behind it.
    pub last_undo: UndoPointer,
    /// What was read is durable once the log is flushed to here.
    pub read_depends_on: u64,
    /// Its own last record: rollback need not be durable, a commit must.
    pub reads: Option<ReadSet>,
    pub pending: Option<Box<PendingChanges>>,
    pub started_us: i64,
}

impl Transaction {
    fn none() -> Transaction {
        Transaction {
            open: false,
            isolation: Isolation::ReadCommitted,
            read_only: false,
            id: TxnId::NONE,
            snapshot: None,
            last_undo: 0,
            read_depends_on: 0,
            reads: None,
            pending: None,
            started_us: 0,
        }
    }
}

/// Byte strings that are used again by each operation, so that the hot paths allocate nothing.
#[derive(Default)]
pub(crate) struct Buffers {
    pub undo: Vec<u8>,
    pub op: Vec<u8>,
    pub row: Vec<u8>,
    pub old_row: Vec<u8>,
    pub value: Vec<u8>,
    pub key: Vec<u8>,
    pub index_key: Vec<u8>,
    pub new_index_key: Vec<u8>,
    pub record: Vec<u8>,
    pub diff: Vec<u8>,
}

impl Session {
    pub(crate) fn new(db: Arc<Inner>, lane: usize) -> Result<Session> {
        let slot = db
            .txns
            .slots()
            .take()
            .ok_or_else(|| Error::new(SqlState::TOO_MANY_CONNECTIONS, "sorry, too many clients already"))?;
        let shared = db.sessions.add(slot, lane);
        let (definitions, definitions_version) = db.catalog.current(lane);
        Ok(Session {
            db,
            lane,
            slot,
            shared,
            txn: Transaction::none(),
            buffers: Buffers::default(),
            definitions,
            definitions_version,
            lock_timeout_ns: 0,
            victim_in: None,
            role: crate::roles::BOOTSTRAP_ROLE,
            names_salt: 0,
        })
    }

    /// What others may know of the session, and its cancel.
    pub fn shared(&self) -> &Arc<SessionShared> {
        &self.shared
    }

    /// The lane that the session writes on.
    pub fn lane(&self) -> usize {
        self.lane
    }

    /// How long a statement waits for a lock before 55P03; zero is without end.
    pub fn set_lock_timeout_ns(&mut self, timeout_ns: u64) {
        self.lock_timeout_ns = timeout_ns;
    }

    pub(crate) fn lock_deadline_ns(&self) -> Option<u64> {
        (self.lock_timeout_ns > 0).then(|| clock::now_ns() + self.lock_timeout_ns)
    }

    /// Whether a transaction is open.
    pub fn in_transaction(&self) -> bool {
        self.txn.open
    }

    /// Whether the open transaction has written anything.
    pub fn has_written(&self) -> bool {
        !self.txn.id.is_none()
    }

    /// The open transaction's isolation.
    pub fn isolation(&self) -> Isolation {
        self.txn.isolation
    }

    /// Whether the open transaction refuses writes.
    pub fn read_only(&self) -> bool {
        self.txn.read_only
    }

    /// Changes isolation and read-only before the transaction's first query.
    ///
    /// # Errors
    /// 25001 when a snapshot was taken already.
    pub fn set_transaction(&mut self, isolation: Isolation, read_only: bool) -> Result<()> {
        if self.txn.isolation != isolation && (self.txn.snapshot.is_some() || !self.txn.id.is_none()) {
            return Err(Error::new(
                SqlState::ACTIVE_SQL_TRANSACTION,
                "SET TRANSACTION ISOLATION LEVEL must be called before any query",
            ));
        }
        self.txn.isolation = isolation;
        self.txn.read_only = read_only;
        self.txn.reads = (isolation == Isolation::Serializable).then(ReadSet::default);
        Ok(())
    }

    /// Opens a transaction.
    ///
    /// # Errors
    /// 25001 when one is open.
    pub fn begin(&mut self, isolation: Isolation, read_only: bool) -> Result<()> {
        if self.txn.open {
            return Err(Error::new(SqlState::ACTIVE_SQL_TRANSACTION, "there is already a transaction in progress"));
        }
        self.txn.open = true;
        self.set_transaction(isolation, read_only)
    }

    /// Starts a statement: READ COMMITTED lets it see what has been committed by now.
    pub fn start_statement(&mut self) {
        if self.txn.isolation == Isolation::ReadCommitted && self.txn.snapshot.is_some() {
            self.drop_snapshot();
        }
    }

    /// Ends a statement: what it has read is durable when this returns, so that nobody is told what a crash takes back.
    pub fn end_statement(&mut self) {
        if self.txn.isolation == Isolation::ReadCommitted && self.txn.snapshot.is_some() {
            self.drop_snapshot();
        }
        self.wait_for_what_was_read();
    }

    fn wait_for_what_was_read(&mut self) {
        let lsn = std::mem::take(&mut self.txn.read_depends_on);
        if lsn > 0 {
            self.db.log.wait_durable_on(self.lane, lsn);
        }
    }

    fn drop_snapshot(&mut self) {
        self.txn.snapshot = None;
        self.db.txns.drop_snapshot(self.slot);
    }

    /// The snapshot in use, taken now if there is none.
    #[inline]
    pub(crate) fn snapshot(&mut self) -> u64 {
        match self.txn.snapshot {
            Some(snapshot) => snapshot,
            None => {
                let snapshot = self.db.txns.take_snapshot(self.slot);
                self.txn.snapshot = Some(snapshot);
                snapshot
            }
        }
    }

    /// Forgets a cancel that came too late for the statement before, as the next one begins. A server that goes down is not forgotten.
    pub fn forget_cancel(&mut self) {
        let slot = self.db.txns.slot(self.slot);
        slot.clear_cancel();
        // In this order: whoever stops the sessions sets `stopping` before the cancel.
        if self.db.stopping() {
            slot.cancel();
        }
    }

    /// Asks whether the statement has been cancelled or the server is going down; long loops call it now and then.
    ///
    /// # Errors
    /// 57014, 57P01.
    pub fn check_interrupt(&self) -> Result<()> {
        if !self.db.txns.slot(self.slot).cancelled() {
            return Ok(());
        }
        Err(self.interrupt_error())
    }

    #[cold]
    fn interrupt_error(&self) -> Error {
        if self.db.stopping() {
            return Error::new(SqlState::ADMIN_SHUTDOWN, "terminating connection due to administrator command");
        }
        let reason = self.shared.cancel_reason().unwrap_or("user request");
        Error::new(SqlState::QUERY_CANCELED, format!("canceling statement due to {reason}"))
    }

    /// The definitions that this session goes by: the committed ones, and those of its own open transaction.
    pub fn definitions(&mut self) -> &Arc<Definitions> {
        if let Some(pending) = &self.txn.pending {
            return pending.definitions();
        }
        if self.db.catalog.version() != self.definitions_version {
            (self.definitions, self.definitions_version) = self.db.catalog.current(self.lane);
        }
        &self.definitions
    }

    /// Has the definitions read again: each lane has its own copy.
    pub(crate) fn forget_definitions(&mut self) {
        self.definitions_version = 0;
    }

    /// What names mean, and to whom, is by now the `number`th of its kinds in this session: plans of one are none for another.
    pub fn set_names(&mut self, number: u32) {
        self.names_salt = u64::from(number) << 30;
    }

    /// Changes whenever the definitions that this session goes by may have changed, or what [`Session::set_names`] was told: plans
    /// made before are made again.
    pub fn definitions_version(&self) -> u64 {
        match &self.txn.pending {
            Some(pending) => pending.version() + self.names_salt,
            None => self.db.catalog.version() + self.names_salt,
        }
    }

    /// The table `name`, in `schema` or else in `public`.
    pub fn table(&mut self, schema: Option<&str>, name: &str) -> Option<Arc<Table>> {
        self.definitions().table(schema.unwrap_or(crate::catalog::PUBLIC), name).cloned()
    }

    /// Uses a table until the end of the transaction: its definition doesn't change meanwhile.
    ///
    /// # Errors
    /// [`STALE_DEFINITION`] when it has changed already; the caller looks it up again.
    #[inline]
    pub fn use_table(&mut self, table: &Table) -> Result<()> {
        let deadline = self.lock_deadline_ns();
        table.lock.use_shared(&self.db.txns, table.oid, self.slot, deadline).sql()?;
        if table.lock.version() != table.version && !self.pending_owns(table) {
            return Err(stale());
        }
        Ok(())
    }

    fn pending_owns(&self, table: &Table) -> bool {
        let pending = self.txn.pending.as_ref();
        pending.is_some_and(|pending| {
            pending.definitions().table_by_oid(table.oid).is_some_and(|own| own.root == table.root)
        })
    }

    /// The transaction's name, made at its first write.
    pub(crate) fn writer(&mut self) -> Result<TxnId> {
        if !self.txn.id.is_none() {
            return Ok(self.txn.id);
        }
        if self.txn.read_only {
            return Err(Error::new(
                SqlState::READ_ONLY_SQL_TRANSACTION,
                "cannot execute a writing statement in a read-only transaction",
            ));
        }
        assert!(self.txn.open, "whoever writes has opened a transaction");
        if let Some(generation) = self.victim_in.take() {
            self.db.txns.let_woken_go_first(self.slot, generation);
        }
        if self.txn.isolation != Isolation::ReadCommitted {
            self.snapshot();
        }
        // Any position that the log had before bounds its first record; the tail's line is everybody's.
        let started = self.db.txns.start(self.lane, self.slot, self.db.log.durable());
        self.txn.id = started.ok_or_else(|| {
            Error::new(SqlState::CONFIGURATION_LIMIT_EXCEEDED, "a snapshot has been open for too many transactions")
                .with_hint("End the transaction that pg_stat_activity shows with the oldest xact_start.")
        })?;
        self.txn.started_us = clock::unix_time_us();
        Ok(self.txn.id)
    }

    /// Commits. When it returns, the transaction is durable.
    ///
    /// # Errors
    /// 40001 when a SERIALIZABLE transaction has read what others have changed since; it is rolled back then.
    pub fn commit(&mut self) -> Result<()> {
        assert!(self.txn.open, "there is a transaction to commit");
        if self.txn.id.is_none() {
            self.wait_for_what_was_read();
            self.end_transaction(Counter::Commits);
            return Ok(());
        }
        let txn = self.txn.id;
        self.db.txns.precommit(txn);
        if let Err(error) = self.check_reads() {
            self.db.txns.back_to_active(txn);
            self.rollback()?;
            return Err(error);
        }
        let span = self.db.log.append(self.lane, record::KIND_COMMIT, &[&txn.writer().to_le_bytes()]);
        let pending = self.txn.pending.take();
        if let Some(pending) = &pending {
            pending.publish(&self.db);
        }
        self.db.txns.commit(txn, self.slot, span.end);
        self.end_transaction(Counter::Commits);
        #[cfg(homenode_lab)]
        if pending.is_none() && crate::planted::is_on(&crate::planted::PROMISE_EARLY) {
            return Ok(());
        }
        self.db.log.wait_durable_on(self.lane, span.end);
        if let Some(pending) = pending {
            pending.after_commit(&self.db, self.lane, self.slot)?;
        }
        Ok(())
    }

    /// Takes back everything that the transaction did. Nothing happens when none is open.
    ///
    /// # Errors
    /// Those of reading pages; the transaction then stays open.
    pub fn rollback(&mut self) -> Result<()> {
        if !self.txn.open {
            return Ok(());
        }
        self.undo_to(0)?;
        let pending = self.txn.pending.take();
        if !self.txn.id.is_none() {
            let txn = self.txn.id;
            self.db.log.append(self.lane, record::KIND_ABORT, &[&txn.writer().to_le_bytes()]);
            self.db.txns.abort(txn, self.slot);
        }
        self.end_transaction(Counter::Rollbacks);
        if let Some(pending) = pending {
            pending.after_rollback(&self.db, self.lane, self.slot)?;
        }
        Ok(())
    }

    fn end_transaction(&mut self, counter: Counter) {
        self.txn = Transaction::none();
        // A definition's changer wakes those who wait for it when it lets go of the table.
        self.db.txns.end_transaction(self.slot, false);
        self.db.lanes[self.lane].stats.add(counter, 1);
    }

    /// A place to go back to.
    pub fn savepoint(&mut self) -> Savepoint {
        Savepoint { undo: self.txn.last_undo, pending: self.txn.pending.clone() }
    }

    /// Takes back what was done since the savepoint; it stays a place to go back to.
    ///
    /// # Errors
    /// Those of reading pages.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        self.undo_to(savepoint.undo)?;
        if let Some(pending) = &mut self.txn.pending {
            pending.go_back(savepoint.pending.as_deref());
        }
        Ok(())
    }

    pub(crate) fn undo_to(&mut self, stop: UndoPointer) -> Result<()> {
        let mut bytes = Vec::new();
        while self.txn.last_undo != stop {
            assert_ne!(self.txn.last_undo, 0, "a savepoint lies on the transaction's own chain");
            let record = undo::read(&self.db.pool, self.txn.last_undo, &mut bytes)?;
            let record = record.filter(|record| record.txn == self.txn.id);
            let record = record.ok_or_else(|| Error::internal("an undo record of a running transaction is gone"))?;
            crate::rollback::take_back(&self.db, self.lane, &record)?;
            self.txn.last_undo = record.previous_in_txn;
        }
        Ok(())
    }

    /// Reads the version of `key` that the snapshot sees into `out`; false when there is none.
    pub(crate) fn read_version(&mut self, tree: &Tree, key: &[u8], snapshot: u64, out: &mut Vec<u8>) -> Result<bool> {
        loop {
            let Some(header) = tree.lookup(key, out).sql()? else { return Ok(false) };
            if let Some(found) = self.resolve(header, snapshot, out)? {
                return Ok(found);
            }
        }
    }

    /// Reads the newest committed version of `key` without a snapshot, for statements that look at one row only.
    pub(crate) fn read_newest(&mut self, tree: &Tree, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let Some(header) = tree.lookup(key, out).sql()? else { return Ok(false) };
        let writer = TxnId::from_writer(header.writer);
        if self.db.txns.settled(writer) {
            return Ok(!is_tombstone(header.writer));
        }
        match self.db.txns.sees(writer, self.txn.id, None, self.db.log.durable()) {
            Seen::Visible => Ok(!is_tombstone(header.writer)),
            Seen::VisibleAt(lsn) => {
                self.txn.read_depends_on = self.txn.read_depends_on.max(lsn);
                Ok(!is_tombstone(header.writer))
            }
            // The older version lies in undo, which only a snapshot keeps from being recycled.
            Seen::Older => {
                let snapshot = self.snapshot();
                self.read_version(tree, key, snapshot, out)
            }
        }
    }

    /// Turns the newest version in `value`, with its header, into the one that the snapshot sees. None: the undo chain was
    /// cut while it was followed (the row was read before the snapshot was published), read again.
    pub(crate) fn resolve(&mut self, mut header: Header, snapshot: u64, value: &mut Vec<u8>) -> Result<Option<bool>> {
        loop {
            let writer = TxnId::from_writer(header.writer);
            if self.db.txns.settled(writer) {
                return Ok(Some(!is_tombstone(header.writer)));
            }
            match self.db.txns.sees(writer, self.txn.id, Some(snapshot), self.db.log.durable()) {
                Seen::Visible => return Ok(Some(!is_tombstone(header.writer))),
                Seen::VisibleAt(lsn) => {
                    self.txn.read_depends_on = self.txn.read_depends_on.max(lsn);
                    return Ok(Some(!is_tombstone(header.writer)));
                }
                Seen::Older if header.undo == 0 => return Ok(Some(false)),
                Seen::Older => {
                    let record = undo::read(&self.db.pool, header.undo, &mut self.buffers.record)?;
                    let Some(record) = record.filter(|record| record.txn == writer) else { return Ok(None) };
                    if record.kind == UndoKind::Insert {
                        return Ok(Some(false));
                    }
                    if !record.apply(value) {
                        return Ok(None);
                    }
                    header = Header { writer: record.old_writer, undo: record.old_undo };
                }
            }
        }
    }

    /// Waits for the end of a transaction that has changed what this one wants to change.
    pub(crate) fn wait_for(&mut self, other: TxnId) -> Result<()> {
        let slot = self.db.txns.slot(self.slot);
        slot.set_task(Some(task::current()));
        match self.db.txns.wait_for(other, self.slot, self.lock_deadline_ns()) {
            Err(homenode_txn::WaitError::Cancelled) => Err(self.interrupt_error()),
            Err(error @ homenode_txn::WaitError::Deadlock) => {
                self.victim_in = Some(slot.generation());
                Err(error).sql()
            }
            // The other transaction may have ended because the server stops, before this session's cancel was set.
            Ok(_) if self.db.stopping() => Err(self.interrupt_error()),
            other => other.sql(),
        }
    }

    pub(crate) fn undo_record<'a>(&self, tree: &Tree, kind: UndoKind, old: Header, key: &'a [u8]) -> UndoRecord<'a> {
        UndoRecord {
            txn: self.txn.id,
            previous_in_txn: self.txn.last_undo,
            old_writer: old.writer,
            old_undo: old.undo,
            kind,
            root: tree.root(),
            tree_id: tree.id(),
            key,
            diff_offset: 0,
            diff_new_len: 0,
            old_bytes: &[],
        }
    }
}

#[cold]
fn stale() -> Error {
    Error::new(STALE_DEFINITION, "the table's definition has changed")
}

impl Drop for Session {
    fn drop(&mut self) {
        // A rollback that cannot read its pages leaves the transaction to recovery: its slot stays taken, its locks held.
        if self.rollback().is_ok() {
            self.db.sessions.remove(self.slot);
            self.db.txns.slots().give_back(self.slot);
        } else if self.txn.snapshot.is_some() {
            // Nobody reads by it any more. Kept, it would hold up the recycling of every lane's undo until the restart; the
            // transaction's own name goes on keeping what its rollback needs.
            self.drop_snapshot();
        }
    }
}
