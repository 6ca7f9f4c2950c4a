//! Where are the values that their row's page has no room for? In a tree beside the table, in pieces.
//!
//! A row that does not fit its leaf is stored split (`homenode_types::RowLayout::split`): its longest values are pointers, and the
//! bytes are in entries `value id | number of the piece` of the table's overflow tree. PostgreSQL's TOAST has the same shape.
//! Pieces never change. They are written, deleted, taken back and purged as any entries are, by the transaction that changes the
//! row; so undo, rollback, crash recovery and DROP need nothing of their own. Nobody asks who wrote a piece: whoever sees a row
//! version may read what it points to. An older version's pieces are tombstones, which keep their bytes, until every snapshot sees
//! past them; so whoever reads without a snapshot takes one when it meets a split row, and reads that row again.
//!
//! Changing a split row, or one that becomes split, would mean to read and write other pages under its leaf's latch. The row is
//! locked first instead, like SELECT FOR UPDATE does it; from then on it stays as it is.

use crate::catalog::{Table, check_row_not_null};
use crate::error::{Error, Result, SqlState, Storage};
use crate::rowid::RowIds;
use crate::session::Session;
use crate::stats::Counter;
use crate::undo::UndoPointer;
use crate::write::{Change, ChangeEncoded, Changed, LockWait, key_changes, key_too_long};
use homenode_platform::atomic::{AtomicU8, Ordering};
use homenode_tree::{Direction, MAX_ENTRY_BYTES, MAX_KEY_BYTES, Tree, entry_bytes};
use homenode_types::{RowLayout, ValuePointer, is_split, moved_row, moved_to};
use std::borrow::Cow;
use std::ops::Bound;

/// Bytes of a value in one entry: four entries fill a page.
const PIECE_BYTES: usize = 4000;

/// A split row has at most this many bytes in its leaf: it fits under the longest key.
const SPLIT_BYTES: usize = MAX_ENTRY_BYTES - MAX_KEY_BYTES - 64;

/// Marks the number of an overflow tree, so that its pages are not taken for its table's. Object numbers stay below.
const OVERFLOW_BIT: u32 = 1 << 31;

/// Number of the overflow tree of table `oid`.
pub fn overflow_tree(oid: u32) -> u32 {
    oid | OVERFLOW_BIT
}

/// The table whose overflow tree has the number `tree_id`, if it is one.
pub fn table_of_overflow(tree_id: u32) -> Option<u32> {
    (tree_id & OVERFLOW_BIT != 0).then_some(tree_id & !OVERFLOW_BIT)
}

/// Whether tables with such rows get an overflow tree.
pub(crate) fn is_wanted(layout: &RowLayout) -> bool {
    layout.may_exceed(SPLIT_BYTES)
}

/// A table's tree of long values.
pub(crate) struct Overflow {
    tree: Tree,
    /// Numbers of its values.
    ids: RowIds,
    /// Whether it ever had a value: one of the states below. Written twice in its life, read by every scan.
    state: AtomicU8,
}

/// Not looked at yet.
const UNKNOWN: u8 = 0;
/// There was none when it was looked at, and none has come since.
const EMPTY: u8 = 1;
/// There may be some.
const USED: u8 = 2;

impl Overflow {
    pub fn new(tree: Tree, lanes: usize) -> Overflow {
        Overflow { tree, ids: RowIds::new(lanes), state: AtomicU8::new(UNKNOWN) }
    }

    /// Whether rows that a snapshot taken before sees may be split. Whoever made one said so before it committed.
    #[inline]
    pub fn is_used(&self) -> Result<bool> {
        match self.state.load(Ordering::Acquire) {
            EMPTY => Ok(false),
            USED => Ok(true),
            _ => self.look(),
        }
    }

    #[cold]
    fn look(&self) -> Result<bool> {
        let mut cursor = self.tree.cursor();
        cursor.seek(Bound::Unbounded, Direction::Forward);
        let mut used = false;
        while let Some(leaf) = cursor.next_leaf(&self.tree).sql()?
            && !used
        {
            used = !leaf.slots().is_empty();
        }
        let found = if used { USED } else { EMPTY };
        // A writer that came meanwhile knows better.
        let _ = self.state.compare_exchange(UNKNOWN, found, Ordering::AcqRel, Ordering::Acquire);
        Ok(self.state.load(Ordering::Acquire) == USED)
    }
}

/// Whether a row is too large for an entry under a key of this length.
#[inline]
pub(crate) fn is_too_large(key_len: usize, row: &[u8]) -> bool {
    entry_bytes(key_len, row.len()) > MAX_ENTRY_BYTES
}

fn piece_key(id: u64, piece: usize) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&id.to_be_bytes());
    key[8..].copy_from_slice(&(piece as u32).to_be_bytes());
    key
}

fn pieces(pointer: ValuePointer) -> usize {
    (pointer.len as usize).div_ceil(PIECE_BYTES)
}

#[cold]
fn is_missing() -> Error {
    Error::new(SqlState::DATA_CORRUPTED, "a row's long value is missing")
}

/// Appends the bytes of a value; false when a piece is not there.
fn read_value(tree: &Tree, pointer: ValuePointer, out: &mut Vec<u8>) -> Result<bool> {
    let mut cursor = tree.cursor();
    cursor.seek(Bound::Included(&piece_key(pointer.id, 0)), Direction::Forward);
    let last = piece_key(pointer.id, pieces(pointer));
    cursor.stop_at(Bound::Excluded(&last));
    let (mut piece, mut key) = (0, Vec::new());
    while let Some(leaf) = cursor.next_leaf(tree).sql()? {
        for slot in leaf.slots() {
            leaf.key(slot, &mut key);
            if key != piece_key(pointer.id, piece) {
                return Ok(false);
            }
            out.extend_from_slice(leaf.value(slot));
            piece += 1;
        }
    }
    Ok(piece == pieces(pointer))
}

/// The row that `stored` stands for, whole; None when a part of it is not there (any more).
pub(crate) fn joined(overflow: Option<&Overflow>, layout: &RowLayout, stored: &[u8]) -> Result<Option<Vec<u8>>> {
    let tree = &overflow.ok_or_else(is_missing)?.tree;
    let Some(split) = fetched(tree, stored)? else { return Ok(None) };
    if !is_split(&split) {
        return Ok(Some(split.into_owned()));
    }
    let mut row = Vec::new();
    let whole = layout.join(&split, &mut |pointer, out| read_value(tree, pointer, out), &mut row)?;
    Ok(whole.then_some(row))
}

/// A moved row from where it was moved to; another one as it is.
fn fetched<'a>(tree: &Tree, stored: &'a [u8]) -> Result<Option<Cow<'a, [u8]>>> {
    let Some(pointer) = moved_to(stored) else { return Ok(Some(Cow::Borrowed(stored))) };
    let mut row = Vec::new();
    Ok(read_value(tree, pointer, &mut row)?.then_some(Cow::Owned(row)))
}

/// A row's version before a change: as it is stored, and whole.
pub(crate) struct OldRow<'a> {
    pub stored: &'a [u8],
    pub whole: &'a [u8],
}

impl Session {
    /// The row that `stored` stands for, whole. The caller has a snapshot that sees it, or its lock.
    pub(crate) fn whole_row<'a>(&self, table: &Table, stored: &'a [u8]) -> Result<Cow<'a, [u8]>> {
        if !is_split(stored) {
            return Ok(Cow::Borrowed(stored));
        }
        let row = joined(table.values.as_deref(), &table.layout, stored)?;
        row.map(Cow::Owned).ok_or_else(is_missing)
    }

    /// Makes a row that was just read, under a snapshot that sees it, whole.
    #[cold]
    #[inline(never)]
    pub(crate) fn make_whole(&self, table: &Table, row: &mut Vec<u8>) -> Result<()> {
        if let Cow::Owned(whole) = self.whole_row(table, row)? {
            *row = whole;
        }
        Ok(())
    }

    /// What to store for `row`, which is too large for its leaf: its long values are written out, except those that the row
    /// had before and that are elsewhere already. Those of `old` that are not needed any more are deleted.
    fn split_row(&mut self, table: &Table, row: &[u8], old: Option<&OldRow<'_>>) -> Result<Vec<u8>> {
        let overflow = table.values.as_deref().ok_or_else(|| {
            let message = format!("row is too big: size {}, maximum size {MAX_ENTRY_BYTES}", row.len());
            Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
        })?;
        let before = match old {
            Some(old) => self.pointers(table, overflow, old.stored)?,
            None => Vec::new(),
        };
        let mut kept = Vec::new();
        let mut split = Vec::new();
        let mut move_out = |place: usize, bytes: &[u8]| {
            let there = before.iter().find(|(other, pointer)| *other == place && pointer.len as usize == bytes.len());
            if let (Some((_, pointer)), Some(old)) = (there, old)
                && table.layout.variable_bytes(old.whole, place) == Some(bytes)
            {
                kept.push(pointer.id);
                return Ok(*pointer);
            }
            self.write_value(overflow, bytes)
        };
        table.layout.split(row, SPLIT_BYTES, &mut move_out, &mut split)?;
        if let Some(old) = old {
            self.delete_values(table, old.stored, &kept)?;
        }
        if split.len() > SPLIT_BYTES {
            return Ok(moved_row(self.write_value(overflow, &split)?));
        }
        Ok(split)
    }

    /// As [`Session::split_row`], for a row that is new under `key`.
    #[cold]
    #[inline(never)]
    pub(crate) fn split_new_row(&mut self, table: &Table, key: &[u8], row: &[u8]) -> Result<Vec<u8>> {
        if key.len() > MAX_KEY_BYTES {
            return Err(key_too_long(key.len()));
        }
        self.split_row(table, row, None)
    }

    fn write_value(&mut self, overflow: &Overflow, bytes: &[u8]) -> Result<ValuePointer> {
        let tree = &overflow.tree;
        overflow.state.store(USED, Ordering::Release);
        let mut id = Vec::new();
        overflow.ids.next(tree, self.lane, &mut id)?;
        let id = u64::from_be_bytes(id.try_into().expect("eight bytes"));
        for (number, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
            if number % PIECES_PER_CHECK == PIECES_PER_CHECK - 1 {
                self.check_interrupt()?;
            }
            if !self.put_new(tree, &piece_key(id, number), piece)? {
                return Err(Error::internal("a value's number is used twice"));
            }
        }
        Ok(ValuePointer { id, len: bytes.len() as u32 })
    }

    /// The pointers of a stored row's values, by place.
    fn pointers(&self, table: &Table, overflow: &Overflow, stored: &[u8]) -> Result<Vec<(usize, ValuePointer)>> {
        if !is_split(stored) {
            return Ok(Vec::new());
        }
        let split = fetched(&overflow.tree, stored)?.ok_or_else(is_missing)?;
        if is_split(&split) { table.layout.pointers(&split) } else { Ok(Vec::new()) }
    }

    /// Deletes what is elsewhere of a stored row whose lock the transaction has, except the values with these numbers.
    fn delete_values(&mut self, table: &Table, stored: &[u8], except: &[u64]) -> Result<()> {
        if !is_split(stored) {
            return Ok(());
        }
        let overflow = table.values.as_deref().ok_or_else(is_missing)?;
        let mut gone = self.pointers(table, overflow, stored)?;
        gone.extend(moved_to(stored).map(|pointer| (usize::MAX, pointer)));
        for (_, pointer) in gone.into_iter().filter(|(_, pointer)| !except.contains(&pointer.id)) {
            for piece in 0..pieces(pointer) {
                if !self.delete_entry(&overflow.tree, &piece_key(pointer.id, piece))? {
                    return Err(is_missing());
                }
            }
        }
        Ok(())
    }

    /// Locks a row and gives it as it is stored; None when there is none, or (`Changed::Busy`) another transaction has it.
    fn lock_stored(
        &mut self,
        table: &Table,
        key: &[u8],
        wait: LockWait,
    ) -> Result<std::result::Result<Vec<u8>, Changed>> {
        let mut stored = Vec::new();
        let mut lock = |row: &[u8], _: &mut Vec<u8>| {
            stored.clear();
            stored.extend_from_slice(row);
            Ok(Change::Lock)
        };
        let changed = self.change_entry_or(&table.tree, key, wait, &mut lock)?;
        Ok(if changed == Changed::Done { Ok(stored) } else { Err(changed) })
    }

    /// Lets go of a lock that turned out not to be wanted: `mark` is the last undo record before it.
    fn let_go(&mut self, mark: UndoPointer) -> Result<bool> {
        self.undo_to(mark)?;
        Ok(false)
    }

    /// [`Session::update_encoded`] of a row that is split or becomes so.
    #[cold]
    #[inline(never)]
    pub(crate) fn update_large(&mut self, table: &Table, key: &[u8], change: &mut ChangeEncoded<'_>) -> Result<bool> {
        let mark = self.txn.last_undo;
        let Ok(stored) = self.lock_stored(table, key, LockWait::Block)? else { return Ok(false) };
        let old_row = self.whole_row(table, &stored)?;
        let mut new_row = Vec::new();
        if !change(&old_row, &mut new_row)? {
            return self.let_go(mark);
        }
        check_row_not_null(table, &new_row)?;
        if key_changes(table, &old_row, &new_row) {
            self.delete_values(table, &stored, &[])?;
            self.change_entry(&table.tree, key, &mut |_, _| Ok(Change::Delete))?;
            self.update_indexes(table, key, &old_row, &new_row, true)?;
        } else {
            let old = OldRow { stored: &stored, whole: &old_row };
            let new_stored = self.stored_row(table, key.len(), &new_row, &old)?;
            self.change_entry(&table.tree, key, &mut |_, out| {
                out.extend_from_slice(&new_stored);
                Ok(Change::Update)
            })?;
            self.update_indexes(table, key, &old_row, &new_row, false)?;
        }
        self.db.lanes[self.lane].stats.add(Counter::RowsUpdated, 1);
        Ok(true)
    }

    /// What to store for a row's new version.
    fn stored_row<'a>(
        &mut self,
        table: &Table,
        key_len: usize,
        row: &'a [u8],
        old: &OldRow<'_>,
    ) -> Result<Cow<'a, [u8]>> {
        if is_too_large(key_len, row) {
            return self.split_row(table, row, Some(old)).map(Cow::Owned);
        }
        self.delete_values(table, old.stored, &[])?;
        Ok(Cow::Borrowed(row))
    }

    /// [`Session::delete`] of a split row.
    #[cold]
    #[inline(never)]
    pub(crate) fn delete_large(
        &mut self,
        table: &Table,
        key: &[u8],
        matches: &mut dyn FnMut(&[u8]) -> Result<bool>,
    ) -> Result<bool> {
        let mark = self.txn.last_undo;
        let Ok(stored) = self.lock_stored(table, key, LockWait::Block)? else { return Ok(false) };
        let row = self.whole_row(table, &stored)?;
        if !matches(&row)? {
            return self.let_go(mark);
        }
        self.delete_values(table, &stored, &[])?;
        self.change_entry(&table.tree, key, &mut |_, _| Ok(Change::Delete))?;
        self.delete_index_entries(table, &row, key)?;
        Ok(true)
    }

    /// [`Session::lock_row`] of a split row.
    #[cold]
    #[inline(never)]
    pub(crate) fn lock_large(
        &mut self,
        table: &Table,
        key: &[u8],
        wait: LockWait,
        matches: &mut dyn FnMut(&[u8]) -> Result<bool>,
    ) -> Result<Changed> {
        let mark = self.txn.last_undo;
        let stored = match self.lock_stored(table, key, wait)? {
            Ok(stored) => stored,
            Err(changed) => return Ok(changed),
        };
        if matches(&self.whole_row(table, &stored)?)? {
            return Ok(Changed::Done);
        }
        self.let_go(mark)?;
        Ok(Changed::Not)
    }
}

/// Pieces that are written between two looks at the cancel flag.
const PIECES_PER_CHECK: usize = 256;
