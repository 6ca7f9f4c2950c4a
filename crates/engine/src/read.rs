//! Which rows does a snapshot see? By key, by range, by index, and in parallel.
//!
//! A scan copies one leaf at a time (validated, no latch held between calls) and works out of the copy; the rows that need it
//! are followed into undo one by one.

use crate::catalog::{Index, Table};
use crate::database::Inner;
use crate::error::{Error, Result, SqlState, Storage};
use crate::overflow::{self, Overflow};
use crate::session::{Isolation, Session};
use crate::stats::Counter;
use crate::undo::{self, UndoKind};
use homenode_platform::task;
use homenode_pool::PageNo;
use homenode_tree::{Ahead, Cursor, Direction, Header, LeafView, Tree};
use homenode_txn::{Seen, TxnId, is_tombstone};
use homenode_types::{RowLayout, is_split};
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

    fn contains_upper(&self, key: &[u8]) -> bool {
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

    fn note_range(&mut self, tree: &Tree, range: &KeyRange) {
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

    /// Prepares a scan of the whole table by several threads, each with some of the pieces.
    ///
    /// # Errors
    /// Those of waiting for the table and of reading pages.
    pub fn parallel(&mut self, table: &Table) -> Result<ParallelScan> {
        self.use_table(table)?;
        let snapshot = self.snapshot();
        self.note_range(&table.tree, &KeyRange::all());
        let parts = self.db.crew.threads() * PIECES_PER_THREAD;
        let pieces = match self.db.crew.is_bound() {
            true => pieces_by_node(&self.db, &table.tree, parts)?,
            false => pieces_by_size(&table.tree, parts)?,
        };
        let reader = Reader {
            db: self.db.clone(),
            tree: table.tree.clone(),
            values: table.values.clone(),
            layout: table.layout.clone(),
            me: self.txn.id,
            slot: self.slot,
            snapshot,
            depends_on: 0,
            floors: self.db.txns.floors(),
            has_long_values: table.has_long_values()?,
        };
        Ok(ParallelScan { pieces: pieces.into(), reader })
    }

    /// What a [`Reader`] has read is durable once the log is flushed to `lsn`; [`Session::end_statement`] waits for it.
    pub fn note_dependency(&mut self, lsn: u64) {
        self.txn.read_depends_on = self.txn.read_depends_on.max(lsn);
    }
}

/// Pieces per thread, so that a thread that is held up does not hold up the statement.
const PIECES_PER_THREAD: usize = 4;

/// Pieces of about the same number of pages each.
fn pieces_by_size(tree: &Tree, parts: usize) -> Result<Vec<Piece>> {
    let borders = Arc::new(tree.split_keys(parts).sql()?);
    let piece = |part| Piece { node: None, borders: borders.clone(), runs: vec![(part, part + 1)] };
    Ok((0..=borders.len()).map(piece).collect())
}

/// Pieces whose pages are all of one node: runs of neighbouring leaves, several to a piece.
fn pieces_by_node(db: &Inner, tree: &Tree, parts: usize) -> Result<Vec<Piece>> {
    // Where each run but the first begins, and of each run its node and its pages.
    let mut borders: Vec<Vec<u8>> = Vec::new();
    let mut runs: Vec<(Option<usize>, usize)> = Vec::new();
    let mut leaves = 0_usize;
    let seen = tree.leaves(|lower, page| {
        let node = db.pool.node_of(page);
        leaves += 1;
        match runs.last_mut() {
            Some((last, pages)) if *last == node => *pages += 1,
            Some(_) => {
                borders.push(lower.to_vec());
                runs.push((node, 1));
            }
            None => runs.push((node, 1)),
        }
    });
    seen.sql()?;
    let borders = Arc::new(borders);
    let full = leaves.div_ceil(parts).max(1);
    let mut pieces: Vec<Piece> = Vec::new();
    // By node: the piece that is being filled, and its pages.
    let mut filling: Vec<(Option<usize>, usize, usize)> = Vec::new();
    for (run, (node, pages)) in runs.into_iter().enumerate() {
        let at = filling.iter().position(|(of, ..)| *of == node);
        match at.map(|at| &mut filling[at]) {
            Some((_, piece, filled)) if *filled < full => {
                pieces[*piece].runs.push((run, run + 1));
                *filled += pages;
            }
            known => {
                let begun = (node, pieces.len(), pages);
                match known {
                    Some(known) => *known = begun,
                    None => filling.push(begun),
                }
                pieces.push(Piece { node, borders: borders.clone(), runs: vec![(run, run + 1)] });
            }
        }
    }
    Ok(pieces)
}

/// A part of a table for one thread: ranges of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The node that its pages are on, if they are all on one and memory is placed by node.
    pub node: Option<usize>,
    /// Keys that divide the table.
    borders: Arc<Vec<Vec<u8>>>,
    /// Each from the first border to before the second: border 0 is the table's beginning, border `n` is `borders[n - 1]`, the one
    /// after the last is the table's end.
    runs: Vec<(usize, usize)>,
}

impl Piece {
    /// Its ranges, ascending.
    pub fn ranges(&self) -> impl Iterator<Item = KeyRange> + '_ {
        let key = |border: usize| self.borders.get(border.wrapping_sub(1)).cloned();
        self.runs.iter().map(move |&(from, to)| KeyRange {
            lower: key(from).map_or(Bound::Unbounded, Bound::Included),
            upper: key(to).map_or(Bound::Unbounded, Bound::Excluded),
        })
    }
}

/// A scan that is dealt out to threads.
pub struct ParallelScan {
    /// Pieces that together are the table.
    pub pieces: Arc<[Piece]>,
    reader: Reader,
}

impl ParallelScan {
    /// Runs `work` for every piece, on threads for that; the calling task waits. Each result comes with its piece's number and the
    /// node that the thread was bound to, if it was.
    ///
    /// # Errors
    /// The first error of any of them.
    ///
    /// # Panics
    /// When `work` does.
    pub fn run<T: Send + 'static>(
        &self,
        work: impl Fn(&Piece, &mut Reader) -> Result<T> + Send + Sync + 'static,
    ) -> Result<Vec<(T, Option<usize>)>> {
        let nodes: Vec<Option<usize>> = self.pieces.iter().map(|piece| piece.node).collect();
        let (pieces, reader) = (self.pieces.clone(), self.reader.clone());
        let slot = self.reader.db.txns.slot(self.reader.slot);
        // So that others see what it waits for.
        slot.set_task(Some(task::current()));
        let done = self.reader.db.crew.run(&nodes, move |piece| work(&pieces[piece], &mut reader.clone()));
        slot.set_task(None);
        done
    }
}

/// Reads a session's snapshot on another thread. The session outlives it: its snapshot is what keeps the versions.
#[derive(Clone)]
pub struct Reader {
    db: Arc<Inner>,
    tree: Tree,
    values: Option<Arc<Overflow>>,
    layout: RowLayout,
    me: TxnId,
    slot: usize,
    snapshot: u64,
    depends_on: u64,
    floors: Vec<u64>,
    /// Whether rows may be split. Asked after `snapshot` was taken.
    has_long_values: bool,
}

/// Where the visit of a leaf ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reached {
    LeafEnd,
    RangeEnd,
}

/// What is done with each row of a scan. A trait of its own, so that an implementation for an inner loop can insist on being inlined,
/// which closures cannot.
pub trait EachRow {
    /// Takes one row's bytes.
    ///
    /// # Errors
    /// Whatever ends the scan.
    fn row(&mut self, row: &[u8]) -> Result<()>;
}

impl<F: FnMut(&[u8]) -> Result<()>> EachRow for F {
    #[inline(always)]
    fn row(&mut self, row: &[u8]) -> Result<()> {
        self(row)
    }
}

impl Reader {
    /// Calls `each` with every visible row of the piece, in no particular order. It sees most rows in their page, under the page's shared
    /// latch: it must not wait for anything.
    ///
    /// # Errors
    /// Those of reading pages and of `each`; 57014.
    pub fn scan(&mut self, piece: &Piece, mut each: impl EachRow) -> Result<()> {
        let tree = self.tree.clone();
        let mut next = Vec::new();
        let mut key = Vec::new();
        let mut unsettled = Vec::new();
        let mut ahead = Ahead::default();
        for range in piece.ranges() {
            ahead.restart();
            let stop = match &range.upper {
                Bound::Unbounded => None,
                Bound::Included(key) | Bound::Excluded(key) => Some(&key[..]),
            };
            let mut from = match &range.lower {
                Bound::Unbounded => Vec::new(),
                Bound::Included(key) => key.clone(),
                Bound::Excluded(key) => [key, &[0][..]].concat(),
            };
            loop {
                if self.db.txns.slot(self.slot).cancelled() {
                    return Err(Error::new(SqlState::QUERY_CANCELED, "canceling statement due to user request"));
                }
                let mut reached = Ok(Reached::LeafEnd);
                let visited = tree.visit_leaf(&from, &mut next, |leaf| {
                    reached = self.visit(leaf, &range, &mut key, &mut unsettled, &mut each);
                });
                let more = visited.sql()?;
                let reached = reached?;
                // These may have to be followed into other pages, which is no business to have under a latch.
                for (header, mut row) in unsettled.drain(..) {
                    if !self.resolve(header, &mut row)? {
                        continue;
                    }
                    if is_split(&row) {
                        let whole = overflow::joined(self.values.as_deref(), &self.layout, &row)?;
                        row = whole.ok_or_else(|| Error::internal("a long value that a snapshot needs is gone"))?;
                    }
                    each.row(&row)?;
                }
                if !more || reached == Reached::RangeEnd {
                    break;
                }
                std::mem::swap(&mut from, &mut next);
                ahead.leaf_done(&tree, &from, stop, Direction::Forward).sql()?;
            }
        }
        Ok(())
    }

    /// The settled rows of one leaf that are all there go to `each`, the others into `unsettled`.
    #[inline]
    fn visit(
        &self,
        leaf: &LeafView<'_>,
        range: &KeyRange,
        key: &mut Vec<u8>,
        unsettled: &mut Vec<(Header, Vec<u8>)>,
        each: &mut impl EachRow,
    ) -> Result<Reached> {
        let inside = match &range.upper {
            Bound::Unbounded => true,
            Bound::Included(upper) | Bound::Excluded(upper) => leaf.is_below(upper),
        };
        let may_be_split = self.has_long_values;
        // The last writer whose rows everybody sees; neighbours often have the same.
        let mut settled = TxnId::NONE.writer();
        for slot in leaf.slots() {
            if !inside {
                leaf.key(slot, key);
                if !range.contains_upper(key) {
                    return Ok(Reached::RangeEnd);
                }
            }
            let header = leaf.header(slot);
            let row = leaf.value(slot);
            if header.writer != settled {
                if !self.is_settled(header.writer) {
                    unsettled.push((header, row.to_vec()));
                    continue;
                }
                if is_tombstone(header.writer) {
                    continue;
                }
                settled = header.writer;
            }
            if may_be_split && is_split(row) {
                unsettled.push((header, row.to_vec()));
            } else {
                each.row(row)?;
            }
        }
        Ok(Reached::LeafEnd)
    }

    /// What was read is durable once the log is flushed to here (see [`Session::note_dependency`]).
    pub fn depends_on(&self) -> u64 {
        self.depends_on
    }

    #[inline]
    fn is_settled(&self, writer: u64) -> bool {
        let txn = TxnId::from_writer(writer);
        self.floors.get(txn.lane()).is_none_or(|&floor| txn.seq() < floor)
    }

    fn resolve(&mut self, mut header: Header, value: &mut Vec<u8>) -> Result<bool> {
        let mut bytes = Vec::new();
        loop {
            let writer = TxnId::from_writer(header.writer);
            match self.db.txns.sees(writer, self.me, Some(self.snapshot), self.db.log.durable()) {
                Seen::Visible => return Ok(!is_tombstone(header.writer)),
                Seen::VisibleAt(lsn) => {
                    self.depends_on = self.depends_on.max(lsn);
                    return Ok(!is_tombstone(header.writer));
                }
                Seen::Older if header.undo == 0 => return Ok(false),
                Seen::Older => {
                    // The session's snapshot was published before the leaf was copied, so the record is there.
                    let record = undo::read(&self.db.pool, header.undo, &mut bytes)?;
                    let record = record.filter(|record| record.txn == writer);
                    let record =
                        record.ok_or_else(|| Error::internal("an undo record that a snapshot needs is gone"))?;
                    if record.kind == UndoKind::Insert {
                        return Ok(false);
                    }
                    if !record.apply(value) {
                        return Err(Error::internal("an undo record does not fit its row"));
                    }
                    header = Header { writer: record.old_writer, undo: record.old_undo };
                }
            }
        }
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
