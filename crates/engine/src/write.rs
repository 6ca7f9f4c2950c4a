//! How is a row changed? Insert, update, delete and lock, each with its undo record, its log record and its indexes.
//!
//! The leaf is latched exclusively from the start (Postgres Professional's finding: taking it shared first only queues twice); under the
//! latch the row's writer is looked at, and whoever has to wait lets the leaf go first. The order of a change: undo record, page
//! marked dirty, log record, page changed.

use crate::catalog::{Index, Table, check_not_null, check_row_not_null};
use crate::error::{Error, Result, SqlState, Storage};
use crate::overflow::is_too_large;
use crate::purge::is_dead;
use crate::record::KIND_ROW;
use crate::session::{Isolation, Session};
use crate::stats::Counter;
use crate::undo::{UndoKind, UndoRecord};
use homenode_pool::PAGE_BYTES;
use homenode_tree::{Diff, Header, LeafMut, MAX_ENTRY_BYTES, MAX_KEY_BYTES, Tree, entry_bytes};
use homenode_txn::{State, TxnId, is_tombstone};
use homenode_types::{Value, is_split};
use std::sync::Arc;

/// What to do about a row that another transaction has changed or locked and that has not ended yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LockWait {
    /// Wait for its end, at most as long as the session waits for locks.
    #[default]
    Block,
    /// Fail with 55P03 (NOWAIT).
    Fail,
    /// Pass the row over (SKIP LOCKED).
    Skip,
}

/// What stands under a key now, as far as a writer is concerned.
enum Standing {
    /// Nothing, or a deletion that everybody sees.
    Free,
    /// A live row that may be changed.
    Live,
    /// Being changed by another transaction.
    Busy(TxnId),
    /// Changed by a transaction that the snapshot doesn't see.
    Newer,
}

impl Session {
    /// Inserts a row.
    ///
    /// # Errors
    /// 23502, 23505, 40001, 40P01, 53100, 54000.
    pub fn insert(&mut self, table: &Table, values: &[Value]) -> Result<()> {
        check_not_null(table, values)?;
        let mut row = std::mem::take(&mut self.buffers.row);
        let result = table.layout.encode(values, &mut row).and_then(|()| self.insert_encoded(table, &row));
        self.buffers.row = row;
        result
    }

    /// Inserts a row that is encoded by the table's layout; NOT NULL has been checked.
    ///
    /// # Errors
    /// As [`Session::insert`].
    pub fn insert_encoded(&mut self, table: &Table, row: &[u8]) -> Result<()> {
        self.use_table(table)?;
        self.writer()?;
        let mut key = std::mem::take(&mut self.buffers.key);
        key.clear();
        let result = self.insert_with_key(table, row, &mut key);
        self.buffers.key = key;
        if result.is_ok() {
            self.db.lanes[self.lane].stats.add(Counter::RowsInserted, 1);
        }
        result
    }

    /// As [`Session::insert`], of a row that is encoded by the table's layout.
    ///
    /// # Errors
    /// As [`Session::insert`].
    pub fn insert_row(&mut self, table: &Table, row: &[u8]) -> Result<()> {
        check_row_not_null(table, row)?;
        self.insert_encoded(table, row)
    }

    fn insert_with_key(&mut self, table: &Table, row: &[u8], key: &mut Vec<u8>) -> Result<()> {
        match &table.primary_key {
            Some(_) => table.encode_key(row, key),
            None => table.row_ids.next(&table.tree, self.lane, key)?,
        }
        let split;
        let stored = if is_too_large(key.len(), row) {
            split = self.split_new_row(table, key, row)?;
            &split[..]
        } else {
            row
        };
        if !self.put_new(&table.tree, key, stored)? {
            let constraint = table.primary_key.as_ref().map_or("", |primary_key| &primary_key.name);
            let columns = table.primary_key.as_ref().map_or(&[][..], |primary_key| &primary_key.columns);
            return Err(duplicate(table, constraint, columns, row));
        }
        for index in table.indexes.iter().filter(|index| table.is_in(index, row)) {
            self.insert_index_entry(table, index, row, key)?;
        }
        Ok(())
    }

    fn insert_index_entry(&mut self, table: &Table, index: &Arc<Index>, row: &[u8], row_key: &[u8]) -> Result<()> {
        let mut index_key = std::mem::take(&mut self.buffers.index_key);
        index_key.clear();
        table.encode_index_key(index, row, row_key, &mut index_key);
        let is_new =
            check_entry_size(&index_key, row_key).and_then(|()| self.put_new(&index.tree, &index_key, row_key));
        self.buffers.index_key = index_key;
        if is_new? { Ok(()) } else { Err(duplicate(table, &index.name, &index.columns, row)) }
    }

    fn delete_index_entry(&mut self, table: &Table, index: &Arc<Index>, row: &[u8], row_key: &[u8]) -> Result<()> {
        let mut index_key = std::mem::take(&mut self.buffers.index_key);
        index_key.clear();
        table.encode_index_key(index, row, row_key, &mut index_key);
        let deleted = self.delete_entry(&index.tree, &index_key);
        self.buffers.index_key = index_key;
        if deleted? { Ok(()) } else { Err(lacks_entry(index)) }
    }

    /// Gives a row's entry in `index` the place that its new version wants: in one change where both places are in one leaf.
    fn move_index_entry(
        &mut self,
        table: &Table,
        index: &Arc<Index>,
        old_row: &[u8],
        new_row: &[u8],
        row_key: &[u8],
    ) -> Result<()> {
        let mut old_key = std::mem::take(&mut self.buffers.index_key);
        let mut new_key = std::mem::take(&mut self.buffers.new_index_key);
        old_key.clear();
        new_key.clear();
        table.encode_index_key(index, old_row, row_key, &mut old_key);
        table.encode_index_key(index, new_row, row_key, &mut new_key);
        let moved = self.move_entry(&index.tree, &old_key, &new_key, row_key);
        self.buffers.index_key = old_key;
        self.buffers.new_index_key = new_key;
        if moved? {
            return Ok(());
        }
        self.delete_index_entry(table, index, old_row, row_key)?;
        self.insert_index_entry(table, index, new_row, row_key)
    }

    /// Makes a tombstone of the live entry under `old_key` and a new entry under `new_key`, if one leaf holds both places, the
    /// new one is empty and there is room; false, with nothing done, if not.
    fn move_entry(&mut self, tree: &Tree, old_key: &[u8], new_key: &[u8], value: &[u8]) -> Result<bool> {
        check_entry_size(new_key, value)?;
        let writer = self.writer()?;
        self.db.log.reserve_ahead(CHANGE_LOG_BYTES).sql()?;
        let leaf = tree.leaf_exclusive(old_key).sql()?;
        let (Ok(from), true) = (leaf.find(old_key), leaf.covers(new_key)) else { return Ok(false) };
        let Err(slot) = leaf.find(new_key) else { return Ok(false) };
        if !matches!(self.standing(leaf.header(from)), Standing::Live) || !leaf.fits(new_key, value.len()) {
            return Ok(false);
        }
        let deletion = self.undo_record(tree, UndoKind::Delete, leaf.header(from), old_key);
        let insertion = self.undo_record(tree, UndoKind::Insert, Header::default(), new_key);
        let inserted_at = deletion.encoded_len();
        self.change(leaf, &[deletion, insertion], |leaf, undo, op| {
            let old = Header { writer: writer.tombstone(), undo };
            let new = Header { writer: writer.writer(), undo: undo + inserted_at as u64 };
            leaf.plan_move((from, old), slot, new_key, (new, value), op);
        })
    }

    /// Puts a new entry under `key`; false when a live one stands there. The caller knows that it is not too large.
    pub(crate) fn put_new(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<bool> {
        let writer = self.writer()?;
        loop {
            self.db.log.reserve_ahead(CHANGE_LOG_BYTES).sql()?;
            let leaf = tree.leaf_exclusive(key).sql()?;
            match leaf.find(key) {
                Err(slot) => {
                    if !leaf.fits(key, value.len()) {
                        drop(leaf);
                        self.make_room(tree, key, value.len())?;
                        continue;
                    }
                    let record = self.undo_record(tree, UndoKind::Insert, Header::default(), key);
                    let new = |undo| Header { writer: writer.writer(), undo };
                    let plan =
                        |leaf: &LeafMut<'_>, undo, op: &mut Vec<u8>| leaf.plan_insert(slot, key, new(undo), value, op);
                    if self.change(leaf, &[record], plan)? {
                        return Ok(true);
                    }
                    self.ensure_undo_room(key.len())?;
                }
                Ok(slot) => match self.standing(leaf.header(slot)) {
                    Standing::Busy(other) => {
                        drop(leaf);
                        self.wait_for(other)?;
                    }
                    Standing::Live => return Ok(false),
                    Standing::Newer if !is_tombstone(leaf.header(slot).writer) => return Ok(false),
                    // A deletion, by this transaction or by one that has committed: the entry lives again.
                    Standing::Free | Standing::Newer => {
                        if !leaf.fits_update(slot, value.len()) {
                            drop(leaf);
                            self.make_room(tree, key, value.len())?;
                            continue;
                        }
                        let payload = key.len() + leaf.value(slot).len();
                        if self.replace(tree, leaf, slot, key, UndoKind::Update, writer.writer(), Some(value))? {
                            return Ok(true);
                        }
                        self.ensure_undo_room(payload)?;
                    }
                },
            }
        }
    }

    /// Puts an entry under `key`, new or in place of the one that stands there.
    pub(crate) fn put_entry(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> Result<()> {
        check_entry_size(key, value)?;
        let replaced = self.change_entry(tree, key, &mut |_, out| {
            out.extend_from_slice(value);
            Ok(Change::Update)
        })?;
        if replaced || self.put_new(tree, key, value)? {
            return Ok(());
        }
        Err(Error::internal("an entry that was not there is there"))
    }

    /// Makes a tombstone of the entry under `key`; false when no live one stands there.
    pub(crate) fn delete_entry(&mut self, tree: &Tree, key: &[u8]) -> Result<bool> {
        self.change_entry(tree, key, &mut |_, _| Ok(Change::Delete))
    }

    /// Changes the row under `key`, newest version. `change` sees it and writes the new values into a list that holds the old
    /// ones; it returns false when the row no longer is what was looked for. It runs under the leaf's latch and must not block.
    ///
    /// False when there is no such row (any more).
    ///
    /// # Errors
    /// As [`Session::insert`], and those of `change`.
    pub fn update(&mut self, table: &Table, key: &[u8], change: &mut ChangeRow<'_>) -> Result<bool> {
        let mut values = Vec::new();
        self.update_encoded(table, key, &mut |row, out| {
            table.layout.decode(row, &mut values);
            if !change(row, &mut values)? {
                return Ok(false);
            }
            table.layout.encode(&values, out)?;
            Ok(true)
        })
    }

    /// As [`Session::update`], for a `change` that writes the new row, encoded by the table's layout, into an empty buffer.
    ///
    /// # Errors
    /// As [`Session::update`].
    pub fn update_encoded(&mut self, table: &Table, key: &[u8], change: &mut ChangeEncoded<'_>) -> Result<bool> {
        self.use_table(table)?;
        self.writer()?;
        let mut old_row = std::mem::take(&mut self.buffers.old_row);
        let mut new_row = std::mem::take(&mut self.buffers.row);
        let mut moved = false;
        let result = self.change_entry_or(&table.tree, key, LockWait::Block, &mut |row, out| {
            if is_split(row) {
                return Ok(Change::Large);
            }
            if !change(row, out)? {
                return Ok(Change::None);
            }
            check_row_not_null(table, out)?;
            moved = key_changes(table, row, out);
            if !moved && is_too_large(key.len(), out) {
                return Ok(Change::Large);
            }
            if moved || !table.indexes.is_empty() {
                old_row.clear();
                old_row.extend_from_slice(row);
                new_row.clear();
                new_row.extend_from_slice(out);
            }
            Ok(if moved { Change::Delete } else { Change::Update })
        });
        let result = match result {
            Ok(Changed::Done) => self.update_indexes(table, key, &old_row, &new_row, moved).map(|()| true),
            Ok(Changed::Large) => return self.update_large(table, key, change),
            Ok(Changed::Not | Changed::Busy) => Ok(false),
            Err(error) => Err(error),
        };
        self.buffers.row = new_row;
        self.buffers.old_row = old_row;
        if matches!(result, Ok(true)) {
            self.db.lanes[self.lane].stats.add(Counter::RowsUpdated, 1);
        }
        result
    }

    pub(crate) fn update_indexes(
        &mut self,
        table: &Table,
        key: &[u8],
        old_row: &[u8],
        new_row: &[u8],
        moved: bool,
    ) -> Result<()> {
        if moved {
            self.delete_index_entries(table, old_row, key)?;
            return self.insert_with_key(table, new_row, &mut Vec::new());
        }
        for index in &table.indexes {
            let (was_in, is_in) = (table.is_in(index, old_row), table.is_in(index, new_row));
            if was_in != is_in {
                if was_in {
                    self.delete_index_entry(table, index, old_row, key)?;
                } else {
                    self.insert_index_entry(table, index, new_row, key)?;
                }
            }
            if !(was_in && is_in) {
                continue;
            }
            let same = index
                .columns
                .iter()
                .all(|&column| table.layout.column(old_row, column) == table.layout.column(new_row, column));
            if !same {
                self.move_index_entry(table, index, old_row, new_row, key)?;
            }
        }
        Ok(())
    }

    /// Deletes the row under `key` if `matches` says so of its newest version; false when it is gone or doesn't match.
    ///
    /// # Errors
    /// As [`Session::update`].
    pub fn delete(
        &mut self,
        table: &Table,
        key: &[u8],
        matches: &mut dyn FnMut(&[u8]) -> Result<bool>,
    ) -> Result<bool> {
        self.use_table(table)?;
        self.writer()?;
        let mut old_row = std::mem::take(&mut self.buffers.old_row);
        let deleted = self.change_entry_or(&table.tree, key, LockWait::Block, &mut |row, _| {
            if is_split(row) {
                return Ok(Change::Large);
            }
            if !matches(row)? {
                return Ok(Change::None);
            }
            old_row.clear();
            if !table.indexes.is_empty() {
                old_row.extend_from_slice(row);
            }
            Ok(Change::Delete)
        });
        let result = match deleted {
            Ok(Changed::Done) => self.delete_index_entries(table, &old_row, key).map(|()| true),
            Ok(Changed::Large) => self.delete_large(table, key, matches),
            Ok(Changed::Not | Changed::Busy) => Ok(false),
            Err(error) => Err(error),
        };
        self.buffers.old_row = old_row;
        if matches!(result, Ok(true)) {
            self.db.lanes[self.lane].stats.add(Counter::RowsDeleted, 1);
        }
        result
    }

    pub(crate) fn delete_index_entries(&mut self, table: &Table, row: &[u8], key: &[u8]) -> Result<()> {
        let mut indexes = table.indexes.iter().filter(|index| table.is_in(index, row));
        indexes.try_for_each(|index| self.delete_index_entry(table, index, row, key))
    }

    /// Locks the row under `key` against changes by others until the transaction ends, if `matches` says so of its newest
    /// version (SELECT FOR UPDATE); false when it is gone, doesn't match, or is passed over.
    ///
    /// # Errors
    /// As [`Session::update`]; 55P03 with [`LockWait::Fail`].
    pub fn lock_row(
        &mut self,
        table: &Table,
        key: &[u8],
        wait: LockWait,
        matches: &mut dyn FnMut(&[u8]) -> Result<bool>,
    ) -> Result<bool> {
        self.use_table(table)?;
        self.writer()?;
        let mut decide = |row: &[u8], _: &mut Vec<u8>| {
            if is_split(row) {
                return Ok(Change::Large);
            }
            Ok(if matches(row)? { Change::Lock } else { Change::None })
        };
        let mut changed = self.change_entry_or(&table.tree, key, wait, &mut decide)?;
        if changed == Changed::Large {
            changed = self.lock_large(table, key, wait, matches)?;
        }
        match changed {
            Changed::Done => Ok(true),
            Changed::Not | Changed::Large => Ok(false),
            Changed::Busy if wait == LockWait::Skip => Ok(false),
            Changed::Busy => Err(Error::new(
                SqlState::LOCK_NOT_AVAILABLE,
                format!("could not obtain lock on row in relation \"{}\"", table.name),
            )),
        }
    }

    /// Changes the live entry under `key` as `decide` says of its newest value (which writes a new value into its buffer).
    pub(crate) fn change_entry(&mut self, tree: &Tree, key: &[u8], decide: &mut Decide<'_>) -> Result<bool> {
        Ok(self.change_entry_or(tree, key, LockWait::Block, decide)? == Changed::Done)
    }

    /// As [`Session::change_entry`], without waiting for others unless `wait` says so.
    pub(crate) fn change_entry_or(
        &mut self,
        tree: &Tree,
        key: &[u8],
        wait: LockWait,
        decide: &mut Decide<'_>,
    ) -> Result<Changed> {
        let mut new_value = std::mem::take(&mut self.buffers.value);
        let result = self.change_entry_with(tree, key, wait, decide, &mut new_value);
        self.buffers.value = new_value;
        result
    }

    fn change_entry_with(
        &mut self,
        tree: &Tree,
        key: &[u8],
        wait: LockWait,
        decide: &mut Decide<'_>,
        new_value: &mut Vec<u8>,
    ) -> Result<Changed> {
        let writer = self.writer()?;
        loop {
            self.db.log.reserve_ahead(CHANGE_LOG_BYTES).sql()?;
            let leaf = tree.leaf_exclusive(key).sql()?;
            let Ok(slot) = leaf.find(key) else { return Ok(Changed::Not) };
            match self.standing(leaf.header(slot)) {
                Standing::Busy(other) => {
                    drop(leaf);
                    // One that has aborted is no longer in the way: its changes were taken out before it said so.
                    if wait != LockWait::Block && !matches!(self.db.txns.state(other), State::Aborted) {
                        return Ok(Changed::Busy);
                    }
                    self.wait_for(other)?;
                    continue;
                }
                Standing::Newer => {
                    return Err(Error::new(
                        SqlState::SERIALIZATION_FAILURE,
                        if is_tombstone(leaf.header(slot).writer) {
                            "could not serialize access due to concurrent delete"
                        } else {
                            "could not serialize access due to concurrent update"
                        },
                    ));
                }
                Standing::Free => return Ok(Changed::Not),
                Standing::Live => {}
            }
            let old_len = leaf.value(slot).len();
            new_value.clear();
            let change = decide(leaf.value(slot), new_value)?;
            let (kind, word, value) = match change {
                Change::None => return Ok(Changed::Not),
                Change::Large => return Ok(Changed::Large),
                Change::Lock => (UndoKind::Update, writer.writer(), None),
                Change::Delete => (UndoKind::Delete, writer.tombstone(), None),
                Change::Update => (UndoKind::Update, writer.writer(), Some(&new_value[..])),
            };
            if let Some(value) = value
                && !leaf.fits_update(slot, value.len())
            {
                drop(leaf);
                self.make_room(tree, key, value.len())?;
                continue;
            }
            let crowded = leaf.waited_with_many();
            if self.replace(tree, leaf, slot, key, kind, word, value)? {
                // The change is made; an error concerns the division only, and the next one who waits tries again.
                if crowded && let Err(error) = tree.relieve(self.lane, key) {
                    tracing::debug!(%error, "a contended leaf stays as it is");
                }
                return Ok(Changed::Done);
            }
            self.ensure_undo_room(key.len() + old_len)?;
        }
    }

    /// Gives the entry at `slot` a new header and, if given, a new value; false when the undo log has no room.
    #[allow(clippy::too_many_arguments, reason = "one change of one entry, in full")]
    fn replace(
        &mut self,
        tree: &Tree,
        leaf: LeafMut<'_>,
        slot: usize,
        key: &[u8],
        kind: UndoKind,
        writer: u64,
        value: Option<&[u8]>,
    ) -> Result<bool> {
        let mut old_bytes = std::mem::take(&mut self.buffers.diff);
        old_bytes.clear();
        let mut record = self.undo_record(tree, kind, leaf.header(slot), key);
        let diff = value.map(|value| Diff::between(leaf.value(slot), value));
        if let Some(diff) = diff {
            old_bytes.extend_from_slice(diff.before(leaf.value(slot)));
            record.diff_offset = diff.offset as u16;
            record.diff_new_len = diff.new_len as u16;
        }
        let record = UndoRecord { old_bytes: &old_bytes, ..record };
        let result = self.change(leaf, &[record], |leaf, undo, op| {
            let header = Header { writer, undo };
            match (value, diff) {
                (Some(value), Some(diff)) => leaf.plan_update_by(slot, header, diff, value, op),
                _ => leaf.plan_set_header(slot, header, op),
            }
        });
        self.buffers.diff = old_bytes;
        result
    }

    /// Makes one change of a latched leaf, of one entry or of two: undo records, log record, page. False, with nothing done, when
    /// the undo log has no room. `plan` is told where the first undo record lies; the second lies behind it.
    fn change(
        &mut self,
        mut leaf: LeafMut<'_>,
        records: &[UndoRecord<'_>],
        plan: impl FnOnce(&LeafMut<'_>, u64, &mut Vec<u8>),
    ) -> Result<bool> {
        let undo_bytes = &mut self.buffers.undo;
        undo_bytes.clear();
        let (mut last, mut deletes) = (0, false);
        for record in records {
            last = undo_bytes.len();
            deletes |= record.kind == UndoKind::Delete;
            record.encode(undo_bytes);
        }
        let lane = &self.db.lanes[self.lane];
        let seq = self.txn.id.seq();
        let second = (last > 0).then_some(last);
        let Some(pointer) = lane.undo.append(&self.db.pool, seq, deletes, undo_bytes, second)? else {
            return Ok(false);
        };
        let op = &mut self.buffers.op;
        op.clear();
        op.extend_from_slice(&1u16.to_le_bytes());
        plan(&leaf, pointer, op);
        leaf.mark_dirty();
        let span = self.db.log.append(self.lane, KIND_ROW, &[op, undo_bytes]);
        leaf.apply(&op[2..], span.end);
        self.txn.last_undo = pointer + last as u64;
        Ok(true)
    }

    /// Makes room in the undo log for a change that found none; the leaf has been let go.
    fn ensure_undo_room(&mut self, payload: usize) -> Result<()> {
        let lane = &self.db.lanes[self.lane];
        lane.undo.ensure_room(&self.db.pool, self.lane, payload.min(PAGE_BYTES / 2))
    }

    fn make_room(&mut self, tree: &Tree, key: &[u8], value_len: usize) -> Result<()> {
        tree.make_room(self.lane, key, value_len, &mut |header| is_dead(&self.db, header)).sql()
    }

    fn standing(&self, header: Header) -> Standing {
        let writer = TxnId::from_writer(header.writer);
        let deleted = is_tombstone(header.writer);
        let by_content = if deleted { Standing::Free } else { Standing::Live };
        if writer == self.txn.id || self.db.txns.settled(writer) {
            return by_content;
        }
        match self.db.txns.state(writer) {
            State::Settled => by_content,
            State::Active { .. } | State::Precommit { .. } => Standing::Busy(writer),
            State::Committed { timestamp, .. } => match (self.txn.isolation, self.txn.snapshot) {
                (Isolation::ReadCommitted, _) | (_, None) => by_content,
                (_, Some(snapshot)) if timestamp <= snapshot => by_content,
                _ => Standing::Newer,
            },
            // Its changes were taken out before it said so, hence this header was written since: look again.
            State::Aborted => Standing::Busy(writer),
        }
    }
}

/// More log than any one change of a row takes, a split included.
const CHANGE_LOG_BYTES: u64 = 64 << 10;

/// Writes a row's new values into a list that holds the old ones; false: the row is not (any more) what was looked for.
pub type ChangeRow<'a> = dyn FnMut(&[u8], &mut Vec<Value>) -> Result<bool> + 'a;

/// Writes a row's new version, encoded; false: the row is not (any more) what was looked for.
pub type ChangeEncoded<'a> = dyn FnMut(&[u8], &mut Vec<u8>) -> Result<bool> + 'a;

/// Says of an entry's newest value what is to become of it; a new value goes into the buffer.
pub(crate) type Decide<'a> = dyn FnMut(&[u8], &mut Vec<u8>) -> Result<Change> + 'a;

/// How an attempt to change an entry ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Changed {
    Done,
    /// It is not there, or was left as it is.
    Not,
    /// Another transaction has it.
    Busy,
    /// Nothing was done: the row is not all in its leaf, or would not be.
    Large,
}

/// What is to become of an entry.
pub(crate) enum Change {
    /// It stays as it is.
    None,
    /// It becomes this transaction's, unchanged.
    Lock,
    /// It gets the value in the buffer.
    Update,
    /// It becomes a tombstone.
    Delete,
    /// That takes more than this leaf: see `overflow`.
    Large,
}

pub(crate) fn key_changes(table: &Table, old_row: &[u8], new_row: &[u8]) -> bool {
    let Some(primary_key) = &table.primary_key else { return false };
    primary_key
        .columns
        .iter()
        .any(|&column| table.layout.column(old_row, column) != table.layout.column(new_row, column))
}

/// Checks that an entry of an index or of the catalog fits. (Rows that don't are split.)
fn check_entry_size(key: &[u8], value: &[u8]) -> Result<()> {
    let bytes = entry_bytes(key.len(), value.len());
    if bytes <= MAX_ENTRY_BYTES && key.len() <= MAX_KEY_BYTES {
        return Ok(());
    }
    Err(key_too_long(key.len()))
}

#[cold]
pub(crate) fn key_too_long(bytes: usize) -> Error {
    let message = format!("index row size {bytes} exceeds maximum {MAX_KEY_BYTES}");
    Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
}

#[cold]
fn lacks_entry(index: &Index) -> Error {
    Error::new(SqlState::INDEX_CORRUPTED, format!("index \"{}\" lacks an entry for a row of its table", index.name))
}

#[cold]
fn duplicate(table: &Table, constraint: &str, columns: &[usize], row: &[u8]) -> Error {
    let names: Vec<&str> = columns.iter().map(|&column| table.columns[column].name.as_str()).collect();
    let mut text = Vec::new();
    for (at, &column) in columns.iter().enumerate() {
        if at > 0 {
            text.extend_from_slice(b", ");
        }
        table.layout.column(row, column).write_text(table.columns[column].ty.ty, &mut text);
    }
    Error::new(SqlState::UNIQUE_VIOLATION, format!("duplicate key value violates unique constraint \"{constraint}\""))
        .with_detail(format!("Key ({})=({}) already exists.", names.join(", "), String::from_utf8_lossy(&text)))
        .with_table(&table.schema, &table.name)
        .with_constraint(constraint)
}
