//! Which rows does a snapshot see? By key, by range, by index, and in parallel.
//!
//! A scan copies one leaf at a time (validated, no latch held between calls) and works out of the copy; the rows that need it
//! are followed into undo one by one.

use crate::catalog::{Index, Table};
use crate::error::{Error, Result, SqlState, Storage};
use crate::session::{Isolation, Session};
use crate::stats::Counter;
use homenode_pool::PageNo;
use homenode_tree::{Cursor, Direction, Tree};
use homenode_txn::{TxnId, is_tombstone};
use homenode_types::is_split;
use std::ops::Bound;
use std::sync::Arc;

/// A range of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// Where it begins.
    pub lower: Bound<Vec<u8>>,
    /// Where it ends.
    pub upper: Bound<Vec<u8>>,
}

impl KeyRange {
    /// All keys.
    pub fn all() -> KeyRange {
        KeyRange { lower: Bound::Unbounded, upper: Bound::Unbounded }
    }

    pub(crate) fn contains_upper(&self, key: &[u8]) -> bool {
        match &self.upper {
            Bound::Unbounded => true,
            Bound::Included(upper) => key <= &upper[..],
            Bound::Excluded(upper) => key < &upper[..],
        }
    }
}

/// Cursors that a lane keeps for its next scans: each has a page of memory.
const SPARE_CURSORS: usize = 8;

/// Slots of a leaf that are still to be looked at.
struct Place {
    next: usize,
    end: usize,
}

/// Walks the entries of a range of one tree, leaf by leaf, whoever wrote them.
struct Walk {
    cursor: Cursor,
    reverse: bool,
    place: Place,
    key: Vec<u8>,
    /// The writer of the last row that every snapshot sees; its neighbours often have the same.
    settled: u64,
    /// Rows may be split, so that each has to be looked at: `settled` is not kept.
    looks_at_each: bool,
}

impl Walk {
    fn new(mut cursor: Cursor, range: &KeyRange, reverse: bool, looks_at_each: bool) -> Walk {
        let lower = range.lower.as_ref().map(Vec::as_slice);
        let upper = range.upper.as_ref().map(Vec::as_slice);
        if reverse {
            cursor.seek(upper, Direction::Backward);
            cursor.stop_at(lower);
        } else {
            cursor.seek(lower, Direction::Forward);
            cursor.stop_at(upper);
        }
        // Nobody's name, then: no row carries it.
        let settled = if looks_at_each { u64::MAX } else { TxnId::NONE.writer() };
        Walk { cursor, reverse, place: Place { next: 0, end: 0 }, key: Vec::new(), settled, looks_at_each }
    }

    /// The next entry's slot in the cursor's leaf; None at the end of the range.
    #[inline(always)]
    fn next(&mut self, tree: &Tree) -> Result<Option<usize>> {
        while self.place.next == self.place.end {
            match self.cursor.next_leaf(tree).sql()? {
                Some(leaf) => self.place = Place { next: leaf.slots().start, end: leaf.slots().end },
                None => return Ok(None),
            }
        }
        Ok(Some(if self.reverse {
            self.place.end -= 1;
            self.place.end
        } else {
            self.place.next += 1;
            self.place.next - 1
        }))
    }

    /// The next entry's slot, when it is in the leaf at hand and every snapshot is known to see it.
    #[inline(always)]
    fn next_settled(&mut self) -> Option<usize> {
        let slot = self.place.next;
        if self.reverse || slot == self.place.end || self.cursor.leaf().writer(slot) != self.settled {
            return None;
        }
        self.place.next += 1;
        Some(slot)
    }

    /// The next entry that `snapshot` sees: its slot in the leaf, and whether its value is in `older` instead.
    #[inline(always)]
    fn next_visible(
        &mut self,
        session: &mut Session,
        tree: &Tree,
        snapshot: u64,
        older: &mut Vec<u8>,
    ) -> Result<Option<Visible>> {
        while let Some(slot) = self.next(tree)? {
            let writer = self.cursor.leaf().writer(slot);
            if writer == self.settled {
                return Ok(Some(Visible::Leaf(slot)));
            }
            if session.db.txns.settled(TxnId::from_writer(writer)) {
                if is_tombstone(writer) {
                    continue;
                }
                if !self.looks_at_each {
                    self.settled = writer;
                }
                return Ok(Some(Visible::Leaf(slot)));
            }
            if self.resolve(session, tree, slot, snapshot, older)? {
                return Ok(Some(Visible::Older(slot)));
            }
        }
        Ok(None)
    }

    /// The version of an entry that `snapshot` sees, into `older`; false when there is none.
    #[inline(never)]
    fn resolve(
        &mut self,
        session: &mut Session,
        tree: &Tree,
        slot: usize,
        snapshot: u64,
        older: &mut Vec<u8>,
    ) -> Result<bool> {
        let leaf = self.cursor.leaf();
        older.clear();
        older.extend_from_slice(leaf.value(slot));
        match session.resolve(leaf.header(slot), snapshot, older)? {
            Some(found) => Ok(found),
            // The copy is older than a version chain that was recycled since: read the row as it is now.
            None => {
                leaf.key(slot, &mut self.key);
                session.read_version(tree, &self.key, snapshot, older)
            }
        }
    }
}

/// Where a visible entry's value is.
enum Visible {
    /// In this slot of the leaf.
    Leaf(usize),
    /// In the buffer, made from older versions of this slot's entry.
    Older(usize),
}

/// The rows of a range that a snapshot sees, in key order.
///
/// It keeps its table alive by the session's own copy of the definition, whose count no other lane writes.
pub struct Scan {
    table: Arc<Table>,
    walk: Walk,
    snapshot: u64,
    older: Vec<u8>,
    /// A row that was not all in its leaf, whole.
    large: Vec<u8>,
}

impl Scan {
    /// The next row's bytes.
    ///
    /// # Errors
    /// Those of reading pages.
    #[inline(always)]
    pub fn next_row(&mut self, session: &mut Session) -> Result<Option<&[u8]>> {
        match self.walk.next_settled() {
            Some(slot) => Ok(Some(self.walk.cursor.leaf().value(slot))),
            None => self.next_visible_row(session),
        }
    }

    #[inline(never)]
    fn next_visible_row(&mut self, session: &mut Session) -> Result<Option<&[u8]>> {
        let place = self.walk.next_visible(session, &self.table.tree, self.snapshot, &mut self.older)?;
        let Some(place) = place else { return Ok(None) };
        if is_split(self.stored(&place)) {
            return self.whole(session, &place).map(Some);
        }
        Ok(Some(self.stored(&place)))
    }

    /// The next row: its key and its bytes.
    ///
    /// # Errors
    /// Those of reading pages.
    pub fn next(&mut self, session: &mut Session) -> Result<Option<(&[u8], &[u8])>> {
        let Some(place) = self.next_place(session)? else { return Ok(None) };
        if is_split(self.stored(&place)) {
            self.whole(session, &place)?;
            return Ok(Some((&self.walk.key, &self.large)));
        }
        Ok(Some((&self.walk.key, self.stored(&place))))
    }

    /// As [`Scan::next`], with the row as it is stored.
    pub(crate) fn next_stored(&mut self, session: &mut Session) -> Result<Option<(&[u8], &[u8])>> {
        let Some(place) = self.next_place(session)? else { return Ok(None) };
        Ok(Some((&self.walk.key, self.stored(&place))))
    }

    fn next_place(&mut self, session: &mut Session) -> Result<Option<Visible>> {
        let place = self.walk.next_visible(session, &self.table.tree, self.snapshot, &mut self.older)?;
        if let Some(Visible::Leaf(slot) | Visible::Older(slot)) = place {
            self.walk.cursor.leaf().key(slot, &mut self.walk.key);
        }
        Ok(place)
    }

    fn stored(&self, place: &Visible) -> &[u8] {
        match place {
            Visible::Leaf(slot) => self.walk.cursor.leaf().value(*slot),
            Visible::Older(_) => &self.older,
        }
    }

    /// A split row, whole.
    #[cold]
    #[inline(never)]
    fn whole(&mut self, session: &Session, place: &Visible) -> Result<&[u8]> {
        self.large = session.whole_row(&self.table, self.stored(place))?.into_owned();
        Ok(&self.large)
    }
}

/// The rows of a table by an index's order.
pub struct IndexScan {
    table: Arc<Table>,
    /// Position of the index in its table.
    index: usize,
    walk: Walk,
    snapshot: u64,
    row_key: Vec<u8>,
    row: Vec<u8>,
}

impl IndexScan {
    /// The next row: its key in the table and its bytes.
    ///
    /// # Errors
    /// Those of reading pages.
    pub fn next(&mut self, session: &mut Session) -> Result<Option<(&[u8], &[u8])>> {
        loop {
            let tree = &self.table.indexes[self.index].tree;
            match self.walk.next_visible(session, tree, self.snapshot, &mut self.row_key)? {
                None => return Ok(None),
                Some(Visible::Older(_)) => {}
                Some(Visible::Leaf(slot)) => {
                    self.row_key.clear();
                    self.row_key.extend_from_slice(self.walk.cursor.leaf().value(slot));
                }
            }
            if session.read_version(&self.table.tree, &self.row_key, self.snapshot, &mut self.row)? {
                if is_split(&self.row) {
                    session.make_whole(&self.table, &mut self.row)?;
                }
                return Ok(Some((&self.row_key, &self.row)));
            }
        }
    }
}

impl Session {
    /// Reads the row under `key` that the snapshot sees into `out`; false when there is none.
    ///
    /// # Errors
    /// Those of reading pages.
    pub fn get(&mut self, table: &Table, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        self.use_table(table)?;
        let snapshot = self.snapshot();
        self.note_read(&table.tree, key, Some(key));
        self.count_fetch();
        self.read_whole(table, key, snapshot, out)
    }

    fn read_whole(&mut self, table: &Table, key: &[u8], snapshot: u64, out: &mut Vec<u8>) -> Result<bool> {
        let found = self.read_version(&table.tree, key, snapshot, out)?;
        if found && is_split(out) {
            self.make_whole(table, out)?;
        }
        Ok(found)
    }

    /// As [`Session::get`], for a READ COMMITTED statement that reads this one row and nothing else: it needs no snapshot, since
    /// whatever is committed at the moment of reading is what a snapshot taken now would show. It writes no line that another core reads.
    ///
    /// # Errors
    /// Those of reading pages.
    pub fn get_single(&mut self, table: &Table, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        if self.txn.isolation != Isolation::ReadCommitted {
            return self.get(table, key, out);
        }
        self.use_table(table)?;
        self.count_fetch();
        let found = self.read_newest(&table.tree, key, out)?;
        if found && is_split(out) {
            // Without a snapshot its long values may go away before they are read.
            let snapshot = self.snapshot();
            return self.read_whole(table, key, snapshot, out);
        }
        Ok(found)
    }

    fn count_fetch(&self) {
        self.db.lanes[self.lane].stats.add(Counter::RowsFetched, 1);
    }

    /// Reads the rows of a range in key order, or backwards.
    ///
    /// # Errors
    /// Those of waiting for the table.
    pub fn scan(&mut self, table: &Arc<Table>, range: &KeyRange, reverse: bool) -> Result<Scan> {
        self.use_table(table)?;
        let snapshot = self.snapshot();
        self.note_range(&table.tree, range);
        let walk = Walk::new(self.spare_cursor(&table.tree), range, reverse, table.has_long_values()?);
        Ok(Scan { walk, table: table.clone(), snapshot, older: Vec::new(), large: Vec::new() })
    }

    /// Reads all rows of a table that this transaction has locked, as they are now: also those that were committed after its snapshot,
    /// which keeps what the reading needs.
    ///
    /// # Errors
    /// Those of waiting for the table.
    pub fn scan_newest(&mut self, table: &Arc<Table>) -> Result<Scan> {
        let mut scan = self.scan(table, &KeyRange::all(), false)?;
        scan.snapshot = scan.snapshot.max(self.db.txns.clock());
        Ok(scan)
    }

    /// Takes back a scan's memory for the lane's next one. A scan that is just dropped frees it.
    pub fn end_scan(&self, scan: Scan) {
        self.keep_cursor(scan.walk.cursor);
    }

    /// As [`Session::end_scan`].
    pub fn end_index_scan(&self, scan: IndexScan) {
        self.keep_cursor(scan.walk.cursor);
    }

    fn spare_cursor(&self, tree: &Tree) -> Cursor {
        self.db.lanes[self.lane].spare_cursors.lock().pop().unwrap_or_else(|| tree.cursor())
    }

    fn keep_cursor(&self, cursor: Cursor) {
        let mut spare = self.db.lanes[self.lane].spare_cursors.lock();
        if spare.len() < SPARE_CURSORS {
            spare.push(cursor);
        }
    }

    /// Reads the rows of a range of an index's keys, in their order or backwards.
    ///
    /// # Errors
    /// 40001 when the snapshot is older than the index; those of waiting for the table.
    pub fn index_scan(
        &mut self,
        table: &Arc<Table>,
        index: &Index,
        range: &KeyRange,
        reverse: bool,
    ) -> Result<IndexScan> {
        self.use_table(table)?;
        let snapshot = self.snapshot();
        if snapshot < index.valid_from {
            return Err(Error::new(
                SqlState::SERIALIZATION_FAILURE,
                format!("index \"{}\" is newer than this transaction's snapshot", index.name),
            ));
        }
        let position = table.indexes.iter().position(|other| other.oid == index.oid);
        let position = position.ok_or_else(|| Error::internal("an index of another table"))?;
        self.note_range(&index.tree, range);
        Ok(IndexScan {
            walk: Walk::new(self.spare_cursor(&index.tree), range, reverse, false),
            table: table.clone(),
            index: position,
            snapshot,
            row_key: Vec::new(),
            row: Vec::new(),
        })
    }

    pub(crate) fn note_range(&mut self, tree: &Tree, range: &KeyRange) {
        if self.txn.isolation != Isolation::Serializable {
            return;
        }
        let lower = match &range.lower {
            Bound::Included(lower) | Bound::Excluded(lower) => &lower[..],
            Bound::Unbounded => &[],
        };
        let upper = match &range.upper {
            Bound::Included(upper) | Bound::Excluded(upper) => Some(&upper[..]),
            Bound::Unbounded => None,
        };
        self.note_read(tree, lower, upper);
    }
}

impl Table {
    /// The pages that a scan of `range` by index number `index` (or by the table's own order) comes by: as far as the row
    /// `last`, key and bytes, or to its end. Those of the rows that an index leads to are not among them.
    ///
    /// # Errors
    /// Those of reading inner pages.
    pub fn pages_read(
        &self,
        index: Option<usize>,
        range: &KeyRange,
        reverse: bool,
        last: Option<(&[u8], &[u8])>,
    ) -> Result<Vec<PageNo>> {
        let mut lower = match &range.lower {
            Bound::Included(key) | Bound::Excluded(key) => key.clone(),
            Bound::Unbounded => Vec::new(),
        };
        let mut upper = match &range.upper {
            Bound::Included(key) => Some(above(key)),
            Bound::Excluded(key) => Some(key.clone()),
            Bound::Unbounded => None,
        };
        let tree = index.map_or(&self.tree, |index| &self.indexes[index].tree);
        if let Some((key, row)) = last {
            let mut reached = Vec::new();
            match index {
                None => reached.extend_from_slice(key),
                Some(index) => {
                    self.encode_index_key(&self.indexes[index], row, key, &mut reached);
                }
            }
            match reverse {
                true => lower = reached,
                false => upper = Some(above(&reached)),
            }
        }
        tree.pages_between(&lower, upper.as_deref()).sql()
    }
}

/// The least key above `key`.
fn above(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}
