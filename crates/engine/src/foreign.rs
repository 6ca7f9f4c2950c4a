//! Is a key there, and who refers to it, now? Foreign keys: their definitions, and looks at newest versions.
//!
//! No lock is taken on the row that is referred to: whoever refers writes his own row first and then looks for the key; whoever takes a
//! key away does so first and then looks for rows that refer to it. Both look at newest versions, whatever their snapshots show, so of two
//! that do this at the same time at least one sees the other, and waits for its end. (PostgreSQL locks the row that is referred to
//! FOR KEY SHARE instead, which writes a line that all who refer to it share; what it answers is kept: see `ri_triggers.c`.)

use crate::catalog::{ForeignKey, Object, Table, TableDefinition};
use crate::error::{Error, Result, SqlState, Storage};
use crate::read::KeyRange;
use crate::session::{Isolation, Session};
use crate::undo::{self, UndoKind};
use crate::write::LockWait;
use homenode_tree::{Direction, Header, Tree};
use homenode_txn::{State, TxnId, is_tombstone};
use homenode_types::is_split;
use std::sync::Arc;

/// What stands in an entry now.
enum Newest {
    Live,
    Gone,
    /// Another transaction has written it and has not ended.
    Busy(TxnId),
}

/// What stood in an entry before a transaction that has not ended wrote it.
enum Before {
    /// A live row, and the transaction has not deleted it at any time.
    Live,
    /// Nothing: the transaction inserted the row.
    Nothing,
    /// It depends on how the transaction ends.
    Open,
}

/// A look at one row: whether it is one that refers.
pub type Refers<'a> = dyn FnMut(&[u8]) -> bool + 'a;

impl Session {
    /// Whether a row of `table` has the key `key` in its primary key or unique index number `oid`. Waits for whoever has deleted
    /// such a row and has not ended; a row that was inserted by one who has not ended does not count, as with PostgreSQL.
    ///
    /// # Errors
    /// 40001 when the row that this transaction's snapshot shows has been deleted; those of waiting for rows and tables.
    pub fn holds_key(&mut self, table: &Table, oid: u32, key: &[u8]) -> Result<bool> {
        self.use_table(table)?;
        let tree = unique_tree(table, oid)?.clone();
        let mut value = std::mem::take(&mut self.buffers.value);
        let result = self.newest_key(&tree, key, &mut value);
        self.buffers.value = value;
        result
    }

    fn newest_key(&mut self, tree: &Tree, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let by_snapshot = self.txn.isolation != Isolation::ReadCommitted;
        if by_snapshot {
            let snapshot = self.snapshot();
            if !self.read_version(tree, key, snapshot, value)? {
                self.note_read(tree, key, Some(key));
                return Ok(false);
            }
        }
        loop {
            let header = tree.lookup(key, value).sql()?;
            let newest = header.map_or(Newest::Gone, |header| self.newest(header));
            match (newest, header) {
                (Newest::Live, _) => return Ok(true),
                (Newest::Gone, _) if by_snapshot => {
                    let message = "could not serialize access due to concurrent update";
                    return Err(Error::new(SqlState::SERIALIZATION_FAILURE, message));
                }
                (Newest::Gone, _) | (_, None) => return Ok(false),
                // The snapshot keeps what the transaction overwrote; it has to be there before the row is looked at.
                (Newest::Busy(_), _) if self.txn.snapshot.is_none() => drop(self.snapshot()),
                (Newest::Busy(writer), Some(header)) => match self.before(header, writer)? {
                    Before::Live => return Ok(true),
                    Before::Nothing => return Ok(false),
                    Before::Open => self.wait_for(writer)?,
                },
            }
        }
    }

    fn newest(&self, header: Header) -> Newest {
        let writer = TxnId::from_writer(header.writer);
        let by_content = if is_tombstone(header.writer) { Newest::Gone } else { Newest::Live };
        if writer == self.txn.id || self.db.txns.settled(writer) {
            return by_content;
        }
        match self.db.txns.state(writer) {
            State::Settled | State::Committed { .. } => by_content,
            // One that has aborted had taken its changes out before: this copy of the entry is an old one.
            State::Active { .. } | State::Precommit { .. } | State::Aborted => Newest::Busy(writer),
        }
    }

    /// Follows an entry back to before `writer`, under a snapshot.
    fn before(&mut self, mut header: Header, writer: TxnId) -> Result<Before> {
        let mut bytes = Vec::new();
        loop {
            if is_tombstone(header.writer) {
                return Ok(Before::Open);
            }
            if header.undo == 0 {
                return Ok(Before::Nothing);
            }
            let record = undo::read(&self.db.pool, header.undo, &mut bytes)?;
            let Some(record) = record.filter(|record| record.txn == writer) else { return Ok(Before::Open) };
            if record.kind == UndoKind::Insert {
                return Ok(Before::Nothing);
            }
            header = Header { writer: record.old_writer, undo: record.old_undo };
            if TxnId::from_writer(header.writer) != writer {
                return Ok(if is_tombstone(header.writer) { Before::Nothing } else { Before::Live });
            }
        }
    }

    /// The keys of at most `most` rows of `table` that are there now and lie in `range` of index number `index` (or of the table's own
    /// order), and for which `refers` is true where it is given. Waits for whoever has changed such a row and has not ended;
    /// [`LockWait::Skip`] passes what others have changed over.
    ///
    /// # Errors
    /// Those of waiting for rows and tables.
    pub fn newest_rows(
        &mut self,
        table: &Arc<Table>,
        index: Option<usize>,
        range: &KeyRange,
        mut refers: Option<&mut Refers<'_>>,
        most: usize,
        wait: LockWait,
    ) -> Result<Vec<Vec<u8>>> {
        self.use_table(table)?;
        // For the rows that are followed back; taken before the first of them is looked at.
        self.snapshot();
        let tree = index.map_or(&table.tree, |index| &table.indexes[index].tree).clone();
        loop {
            let mut found = Vec::new();
            match self.newest_rows_once(table, &tree, index.is_some(), range, &mut refers, most, wait, &mut found)? {
                None => return Ok(found),
                // What it does may move rows to where the look has been already.
                Some(writer) => self.wait_for(writer)?,
            }
        }
    }

    /// One look; gives the transaction that has to end before the next one.
    #[allow(clippy::too_many_arguments, reason = "one look, in full")]
    fn newest_rows_once(
        &mut self,
        table: &Arc<Table>,
        tree: &Tree,
        of_index: bool,
        range: &KeyRange,
        refers: &mut Option<&mut Refers<'_>>,
        most: usize,
        wait: LockWait,
        found: &mut Vec<Vec<u8>>,
    ) -> Result<Option<TxnId>> {
        let mut cursor = tree.cursor();
        cursor.seek(range.lower.as_ref().map(Vec::as_slice), Direction::Forward);
        cursor.stop_at(range.upper.as_ref().map(Vec::as_slice));
        while let Some(leaf) = cursor.next_leaf(tree).sql()? {
            self.check_interrupt()?;
            for slot in leaf.slots() {
                let (header, value) = (leaf.header(slot), leaf.value(slot));
                match self.newest(header) {
                    Newest::Gone => continue,
                    Newest::Busy(_) if wait == LockWait::Skip => continue,
                    Newest::Busy(writer) => {
                        let Some(refers) = refers.as_mut() else { return Ok(Some(writer)) };
                        if self.may_refer(table, header, value, writer, refers)? {
                            return Ok(Some(writer));
                        }
                        continue;
                    }
                    Newest::Live => {}
                }
                if let Some(refers) = refers.as_mut()
                    && !refers(&self.whole_row(table, value)?)
                {
                    continue;
                }
                let mut key = Vec::new();
                if of_index {
                    key.extend_from_slice(value);
                } else {
                    leaf.key(slot, &mut key);
                }
                found.push(key);
                if found.len() == most {
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }

    /// Whether a row that `writer` has changed refers, as it is now or as it would be again.
    fn may_refer(
        &mut self,
        table: &Table,
        mut header: Header,
        value: &[u8],
        writer: TxnId,
        refers: &mut Refers<'_>,
    ) -> Result<bool> {
        let (mut value, mut bytes) = (value.to_vec(), Vec::new());
        loop {
            // The long values of older versions may be going away: that row is waited for unseen.
            if is_split(&value) || (!is_tombstone(header.writer) && refers(&self.whole_row(table, &value)?)) {
                return Ok(true);
            }
            if TxnId::from_writer(header.writer) != writer || header.undo == 0 {
                return Ok(false);
            }
            let record = undo::read(&self.db.pool, header.undo, &mut bytes)?;
            let Some(record) = record.filter(|record| record.txn == writer) else { return Ok(true) };
            if record.kind == UndoKind::Insert {
                return Ok(false);
            }
            if !record.apply(&mut value) {
                return Ok(true);
            }
            header = Header { writer: record.old_writer, undo: record.old_undo };
        }
    }

    /// Adds a foreign key; that the rows there satisfy it, the caller sees to afterwards: both tables are locked then.
    ///
    /// # Errors
    /// 42710; those of locking the tables.
    pub fn add_foreign_key(&mut self, child: &Table, mut key: ForeignKey) -> Result<()> {
        self.take_table(key.parent)?;
        let child = self.take_table(child.oid)?;
        key.oid = self.db.catalog.new_oid();
        let mut definition = child.definition.clone();
        if definition.constraint_names().any(|name| *name == key.name) {
            let message = format!("constraint \"{}\" for relation \"{}\" already exists", key.name, child.name);
            return Err(Error::new(SqlState::DUPLICATE_OBJECT, message));
        }
        let parent = key.parent;
        definition.foreign_keys.push(key);
        self.put_object(Object::Table(definition))?;
        self.change_referrers(parent, |referrers| {
            if !referrers.contains(&child.oid) {
                referrers.push(child.oid);
            }
        })
    }

    /// Drops a foreign key by its object number.
    ///
    /// # Errors
    /// Those of locking the tables.
    pub fn drop_foreign_key(&mut self, child: &Table, oid: u32) -> Result<()> {
        let child = self.take_table(child.oid)?;
        let mut definition = child.definition.clone();
        let Some(place) = definition.foreign_keys.iter().position(|key| key.oid == oid) else { return Ok(()) };
        let gone = definition.foreign_keys.remove(place);
        self.forget_comments(oid)?;
        let still = definition.foreign_keys.iter().any(|key| key.parent == gone.parent);
        self.put_object(Object::Table(definition))?;
        if still {
            return Ok(());
        }
        self.change_referrers(gone.parent, |referrers| referrers.retain(|&other| other != child.oid))
    }

    fn change_referrers(&mut self, parent: u32, change: impl FnOnce(&mut Vec<u32>)) -> Result<()> {
        let parent = self.take_table(parent)?;
        let mut definition = parent.definition.clone();
        change(&mut definition.referrers);
        self.put_object(Object::Table(definition))
    }
}

fn unique_tree(table: &Table, oid: u32) -> Result<&Tree> {
    if table.primary_key.as_ref().is_some_and(|key| key.oid == oid) {
        return Ok(&table.tree);
    }
    let index = table.indexes.iter().find(|index| index.oid == oid && index.unique);
    index.map(|index| &index.tree).ok_or_else(|| Error::internal("the key that is referred to is gone"))
}

impl TableDefinition {
    /// The columns of the primary key or unique index number `oid`, in its order.
    pub fn key_columns(&self, oid: u32) -> Option<&[usize]> {
        let primary_key = self.primary_key.iter().map(|key| (key.oid, &key.columns));
        let unique = self.indexes.iter().filter(|index| index.unique).map(|index| (index.oid, &index.columns));
        primary_key.chain(unique).find(|(known, _)| *known == oid).map(|(_, columns)| &columns[..])
    }

    /// The primary key and the unique indexes: numbers and columns.
    pub fn unique_keys(&self) -> impl Iterator<Item = (u32, &[usize])> {
        let primary_key = self.primary_key.iter().map(|key| (key.oid, &key.columns[..]));
        let unique = self.indexes.iter().filter(|index| index.unique && index.filter.is_none());
        primary_key.chain(unique.map(|index| (index.oid, &index.columns[..])))
    }

    /// The number of the constraint of that name.
    pub fn constraint(&self, name: &str) -> Option<u32> {
        let key = self.primary_key.iter().map(|key| (key.oid, &key.name));
        let unique = self.indexes.iter().filter(|index| index.constraint).map(|index| (index.oid, &index.name));
        let checks = self.checks.iter().map(|check| (check.oid, &check.name));
        let foreign = self.foreign_keys.iter().map(|key| (key.oid, &key.name));
        key.chain(unique).chain(checks).chain(foreign).find(|(_, known)| *known == name).map(|(oid, _)| oid)
    }

    /// Names of all constraints and indexes.
    pub fn constraint_names(&self) -> impl Iterator<Item = &String> {
        let checks = self.checks.iter().map(|check| &check.name);
        let keys = self.primary_key.iter().map(|key| &key.name).chain(self.foreign_keys.iter().map(|key| &key.name));
        checks.chain(keys).chain(self.indexes.iter().map(|index| &index.name))
    }
}
