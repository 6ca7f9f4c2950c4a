//! Which pages did each scan of a statement come by? Kept only while EXPLAIN (ANALYZE, BUFFERS) or NUMA asks.
//!
//! Reading a page leaves no mark, so this is found out afterwards: a scan tells the ranges of keys that it has read, and the
//! trees tell which pages hold them. A statement that nobody asks about pays one branch for each opening of a scan.

use crate::plan::ScanPlan;
use homenode_engine::{KeyRange, Piece};
use homenode_pool::PageNo;
use homenode_types::Result;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};

/// The pages of a scan, each with the node that the thread was bound to which read it first; none for the session's own worker.
pub(crate) type Read = BTreeMap<PageNo, Option<usize>>;

/// Pages by scan.
#[derive(Clone, Default)]
pub(crate) struct Trace(Arc<Mutex<HashMap<usize, Read>>>);

impl Trace {
    /// By which a scan is found again: the plan's address. The statement keeps the plan as long as it runs.
    pub fn key(scan: &ScanPlan) -> usize {
        std::ptr::from_ref(scan).addr()
    }

    fn add(&self, scan: &ScanPlan, pages: Vec<PageNo>, reader: Option<usize>) {
        let mut scans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let read = scans.entry(Trace::key(scan)).or_default();
        pages.into_iter().for_each(|page| {
            read.entry(page).or_insert(reader);
        });
    }

    /// Notes that a piece of the table was read by a thread that is bound to `reader`.
    pub fn piece(&self, scan: &ScanPlan, piece: &Piece, reader: Option<usize>) -> Result<()> {
        for range in piece.ranges() {
            self.add(scan, scan.table.pages_read(None, &range, false, None)?, reader);
        }
        Ok(())
    }

    /// What was noted, by scan.
    pub fn take(&self) -> HashMap<usize, Read> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What one scan is reading.
pub(super) struct Tracer {
    trace: Trace,
    reading: Option<(Option<usize>, KeyRange, bool)>,
    /// The last row read, key and bytes.
    last: Option<(Vec<u8>, Vec<u8>)>,
}

impl Tracer {
    pub fn new(trace: &Trace) -> Box<Tracer> {
        Box::new(Tracer { trace: trace.clone(), reading: None, last: None })
    }

    /// A range is begun.
    pub fn begin(&mut self, index: Option<usize>, range: &KeyRange, reverse: bool) {
        self.reading = Some((index, range.clone(), reverse));
        self.last = None;
    }

    /// A row of the range was read.
    pub fn reached(&mut self, key: &[u8], row: &[u8]) {
        let (last_key, last_row) = self.last.get_or_insert_default();
        last_key.clear();
        last_key.extend_from_slice(key);
        last_row.clear();
        last_row.extend_from_slice(row);
    }

    /// The range has no more rows: all of it was read.
    pub fn end(&mut self) {
        self.last = None;
    }

    /// The row under `key` was looked up.
    pub fn row(&self, scan: &ScanPlan, key: &[u8]) -> Result<()> {
        let range = KeyRange { lower: Bound::Included(key.to_vec()), upper: Bound::Included(key.to_vec()) };
        self.trace.add(scan, scan.table.pages_read(None, &range, false, None)?, None);
        Ok(())
    }

    /// The range is given up, or at its end.
    pub fn finish(&mut self, scan: &ScanPlan) -> Result<()> {
        let Some((index, range, reverse)) = self.reading.take() else { return Ok(()) };
        let last = self.last.take();
        let last = last.as_ref().map(|(key, row)| (&key[..], &row[..]));
        self.trace.add(scan, scan.table.pages_read(index, &range, reverse, last)?, None);
        Ok(())
    }
}
