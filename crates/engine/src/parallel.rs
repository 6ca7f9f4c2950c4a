//! How is a whole table read by many threads at a time? It is cut into pieces, each of one node's pages where memory is placed by
//! node; a [`Reader`] on each thread sees the session's snapshot.

use crate::catalog::Table;
use crate::database::Inner;
use crate::error::{Error, Result, SqlState, Storage};
use crate::overflow::{self, Overflow};
use crate::query_memory::Entry;
use crate::read::KeyRange;
use crate::session::Session;
use crate::session_memory::{Charge, MemoryContext, PrivateMemory};
use crate::undo::{self, UndoKind};
use homenode_platform::task;
use homenode_tree::{Ahead, Direction, Header, LeafView, Tree};
use homenode_txn::{Seen, TxnId, is_tombstone};
use homenode_types::{RowLayout, is_split};
use std::ops::Bound;
use std::sync::Arc;

impl Session {
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
        let reader = self.reader_at(table, snapshot)?;
        let entry = Entry::new(&self.db, self.shared.pid);
        Ok(ParallelScan { pieces: pieces.into(), reader, entry })
    }

    /// A reader of the table as this statement sees it.
    pub(crate) fn reader(&mut self, table: &Table) -> Result<Reader> {
        self.use_table(table)?;
        let snapshot = self.snapshot();
        self.reader_at(table, snapshot)
    }

    fn reader_at(&self, table: &Table, snapshot: u64) -> Result<Reader> {
        Ok(Reader {
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
            memory: Arc::default(),
        })
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
    /// Where its threads' memory is counted, as long as it is there.
    entry: Entry,
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
        let query = self.entry.query.clone();
        let done = self.reader.db.crew.run(&nodes, move |piece, worker| {
            work(&pieces[piece], &mut Reader { memory: query.memory_of(worker), ..reader.clone() })
        });
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
    /// The numbers of the thread that it is on.
    memory: Arc<PrivateMemory>,
}

/// Says how much a scan has set aside.
fn charge_buffers(charge: &mut Charge, keys: &[&Vec<u8>; 3], unsettled: &Vec<(Header, Vec<u8>)>) {
    let rows: usize = unsettled.iter().map(|(_, row)| row.capacity()).sum();
    let list = unsettled.capacity() * size_of::<(Header, Vec<u8>)>();
    let start = unsettled.as_ptr().addr();
    charge.set(keys.iter().map(|key| key.capacity()).sum::<usize>() + rows + list, start..start + list);
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
        let mut charge = self.charge(MemoryContext::Scan);
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
                charge_buffers(&mut charge, &[&from, &next, &key], &unsettled);
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

    /// Appends the visible rows of the leaf that `from` belongs to, in no particular order.
    pub(crate) fn leaf_rows(&mut self, from: &[u8], rows: &mut Vec<Vec<u8>>) -> Result<()> {
        if self.db.txns.slot(self.slot).cancelled() {
            return Err(Error::new(SqlState::QUERY_CANCELED, "canceling statement due to user request"));
        }
        let (tree, all) = (self.tree.clone(), KeyRange::all());
        let (mut next, mut key, mut unsettled) = (Vec::new(), Vec::new(), Vec::new());
        let mut reached = Ok(Reached::LeafEnd);
        tree.visit_leaf(from, &mut next, |leaf| {
            let mut keep = |row: &[u8]| {
                rows.push(row.to_vec());
                Ok(())
            };
            reached = self.visit(leaf, &all, &mut key, &mut unsettled, &mut keep);
        })
        .sql()?;
        reached?;
        for (header, mut row) in unsettled {
            if !self.resolve(header, &mut row)? {
                continue;
            }
            if is_split(&row) {
                let whole = overflow::joined(self.values.as_deref(), &self.layout, &row)?;
                row = whole.ok_or_else(|| Error::internal("a long value that a snapshot needs is gone"))?;
            }
            rows.push(row);
        }
        Ok(())
    }

    /// Counts memory as that of the thread that it is on, for as long as the result lives.
    pub fn charge(&self, context: MemoryContext) -> Charge {
        Charge::new(&self.memory, context)
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
