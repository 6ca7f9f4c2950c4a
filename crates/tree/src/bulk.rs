//! How is a tree made from entries in key order? Bottom up, in page runs written past the pool.
//!
//! Nothing is logged but which page numbers are in use now ([`KIND_BULK`], after the pages are
//! durable): a crash before that leaves free pages, a crash after it a whole tree that the caller's
//! transaction does or does not refer to.

use std::ops::Range;
use std::sync::Arc;

use homenode_pool::{PAGE_BYTES, PageNo, Pool};

use crate::edit::{Contents, Entry};
use crate::layout::{Header, OFF_SLOTS, SLOT_BYTES, align8, inner_size, leaf_size};
use crate::leaf::check_entry;
use crate::op::{KIND_BULK, common_prefix};
use crate::smo::shortest_between;
use crate::{Journal, Tree, TreeError};

/// Pages written at once: 1 MiB.
const RUN_PAGES: usize = 64;

/// The page numbers, first and count, that a [`KIND_BULK`] record declares to be in use.
///
/// # Errors
/// [`TreeError::BadOp`] if it is not such a record.
pub fn bulk_range(payload: &[u8]) -> Result<(PageNo, u64), TreeError> {
    let (first, rest) = payload.split_first_chunk::<8>().ok_or(TreeError::BadOp("bulk record cut short"))?;
    let count = rest.first_chunk::<8>().ok_or(TreeError::BadOp("bulk record cut short"))?;
    Ok((u64::from_le_bytes(*first), u64::from_le_bytes(*count)))
}

/// An entry of a page that is being filled; its bytes are in the page's arena.
struct Item {
    key: Range<usize>,
    value: Range<usize>,
    word: u64,
    undo: u64,
}

/// A page that is being filled.
struct Filling {
    level: u8,
    lower: Vec<u8>,
    leftmost: PageNo,
    arena: Vec<u8>,
    items: Vec<Item>,
    /// Common prefix of the keys, and the bytes of slots and entries with it.
    prefix_len: usize,
    bytes: usize,
}

impl Filling {
    fn new(level: u8, lower: Vec<u8>, leftmost: PageNo) -> Filling {
        Filling { level, lower, leftmost, arena: Vec::new(), items: Vec::new(), prefix_len: 0, bytes: 0 }
    }

    fn key(&self, i: usize) -> &[u8] {
        &self.arena[self.items[i].key.clone()]
    }

    fn last_key(&self) -> Option<&[u8]> {
        self.items.last().map(|item| &self.arena[item.key.clone()])
    }

    fn size(&self, key_len: usize, value_len: usize, prefix_len: usize) -> usize {
        let suffix = key_len - prefix_len;
        SLOT_BYTES + if self.level == 0 { leaf_size(suffix, value_len) } else { inner_size(suffix) }
    }

    /// Prefix length and bytes with one more entry.
    fn with(&self, key: &[u8], value_len: usize) -> (usize, usize) {
        if self.items.is_empty() {
            return (0, self.size(key.len(), value_len, 0));
        }
        let prefix_len = common_prefix(self.key(0), key);
        let before = if prefix_len == self.prefix_len {
            self.bytes
        } else {
            self.items.iter().map(|item| self.size(item.key.len(), item.value.len(), prefix_len)).sum()
        };
        (prefix_len, before + self.size(key.len(), value_len, prefix_len))
    }

    /// True if one more entry stays below `limit` bytes of page. The upper fence, not known yet, is
    /// at most one byte longer than a leaf's last key.
    fn takes(&self, key: &[u8], value_len: usize, limit: usize) -> bool {
        let (prefix_len, bytes) = self.with(key, value_len);
        let stored_prefix = if prefix_len > 8 { prefix_len } else { 0 };
        self.items.is_empty() || OFF_SLOTS + align8(stored_prefix + self.lower.len() + key.len() + 1) + bytes <= limit
    }

    fn push(&mut self, key: &[u8], word: u64, undo: u64, value: &[u8]) {
        (self.prefix_len, self.bytes) = self.with(key, value.len());
        let start = self.arena.len();
        self.arena.extend_from_slice(key);
        self.arena.extend_from_slice(value);
        let middle = start + key.len();
        self.items.push(Item { key: start..middle, value: middle..middle + value.len(), word, undo });
    }

    fn contents<'a>(&'a self, tree_id: u32, upper: Option<&'a [u8]>, count: usize) -> Contents<'a> {
        let entries = self.items[..count].iter().map(|item| Entry {
            prefix: &[],
            suffix: &self.arena[item.key.clone()],
            word: item.word,
            undo: item.undo,
            value: &self.arena[item.value.clone()],
        });
        Contents {
            level: self.level,
            tree_id,
            lower: &self.lower,
            upper,
            leftmost: self.leftmost,
            entries: entries.collect(),
        }
    }
}

/// Builds a tree from entries in ascending key order.
///
/// A loader that is dropped unfinished gives its pages back.
pub struct BulkLoader {
    pool: Arc<Pool>,
    log: Arc<dyn Journal>,
    lane: usize,
    id: u32,
    limit: usize,
    /// The page being filled at each level, leaf first.
    levels: Vec<Filling>,
    /// Finished pages of the current run.
    run: Vec<u8>,
    run_first: PageNo,
    /// Runs written: first page and number of pages. Nothing refers to them before [`BulkLoader::finish`].
    runs: Vec<(PageNo, u64)>,
}

impl Drop for BulkLoader {
    fn drop(&mut self) {
        let begun = if self.run.is_empty() { 0..0 } else { self.run_first..self.run_first + RUN_PAGES as u64 };
        let written = self.runs.iter().flat_map(|&(first, count)| first..first + count);
        written.chain(begun).for_each(|page| self.pool.free(page));
    }
}

impl BulkLoader {
    pub(crate) fn new(pool: Arc<Pool>, log: Arc<dyn Journal>, lane: usize, id: u32) -> BulkLoader {
        let levels = vec![Filling::new(0, Vec::new(), 0)];
        BulkLoader { pool, log, lane, id, limit: PAGE_BYTES, levels, run: Vec::new(), run_first: 0, runs: Vec::new() }
    }

    /// Fills pages to this share, 50 to 100 percent (100 unless told otherwise): leave room where
    /// inserts between the loaded keys will come.
    #[must_use]
    pub fn fill_percent(mut self, percent: usize) -> BulkLoader {
        self.limit = PAGE_BYTES * percent.clamp(50, 100) / 100;
        self
    }

    /// Adds an entry; its key is above all before.
    ///
    /// # Errors
    /// [`TreeError::OutOfOrder`], [`TreeError::EntryTooLarge`]; or if pages cannot be allocated or
    /// written.
    pub fn push(&mut self, key: &[u8], header: Header, value: &[u8]) -> Result<(), TreeError> {
        check_entry(key.len(), value.len())?;
        let leaf = &self.levels[0];
        let last = leaf.last_key();
        if last.is_some_and(|last| last >= key) {
            return Err(TreeError::OutOfOrder);
        }
        if let Some(last) = last.filter(|_| !leaf.takes(key, value.len(), self.limit)) {
            let separator = shortest_between(last, key);
            let full = std::mem::replace(&mut self.levels[0], Filling::new(0, separator.clone(), 0));
            let page = self.write_page(&full.contents(self.id, Some(&separator), full.items.len()))?;
            self.add_child(1, full.lower, page)?;
        }
        self.levels[0].push(key, header.writer, header.undo, value);
        Ok(())
    }

    /// Writes what is left, makes all durable and logs it.
    ///
    /// # Errors
    /// If pages cannot be allocated or written.
    pub fn finish(mut self) -> Result<Tree, TreeError> {
        let mut level = 0;
        let root = loop {
            let top = std::mem::replace(&mut self.levels[level], Filling::new(0, Vec::new(), 0));
            let page = self.write_page(&top.contents(self.id, None, top.items.len()))?;
            level += 1;
            if self.levels.len() == level {
                break page;
            }
            self.add_child(level, top.lower, page)?;
        };
        self.write_run()?;
        self.pool.sync_file()?;
        for (first, count) in self.runs.drain(..) {
            self.log.append(self.lane, KIND_BULK, &[&first.to_le_bytes(), &count.to_le_bytes()]);
        }
        Ok(Tree::open(self.pool.clone(), self.log.clone(), self.id, root))
    }

    /// Hangs a finished page into the page that is being filled at `level`.
    fn add_child(&mut self, level: usize, separator: Vec<u8>, child: PageNo) -> Result<(), TreeError> {
        if self.levels.len() == level {
            self.levels.push(Filling::new(level as u8, separator, child));
            return Ok(());
        }
        if self.levels[level].takes(&separator, 0, self.limit) {
            self.levels[level].push(&separator, child, 0, &[]);
            return Ok(());
        }
        let next = Filling::new(level as u8, separator.clone(), child);
        let full = std::mem::replace(&mut self.levels[level], next);
        // The separator that ends the page may be too long a fence for it: then one that is in the
        // page already ends it, and what follows goes on to the next page.
        let ends = |count: usize| if count == full.items.len() { &separator[..] } else { full.key(count) };
        let mut count = full.items.len();
        while count > 0 && !full.contents(self.id, Some(ends(count)), count).fit() {
            count -= 1;
        }
        if let Some(first) = full.items.get(count) {
            let mut rest = Filling::new(level as u8, full.key(count).to_vec(), first.word);
            for i in count + 1..full.items.len() {
                rest.push(full.key(i), full.items[i].word, 0, &[]);
            }
            rest.push(&separator, child, 0, &[]);
            self.levels[level] = rest;
        }
        let page = self.write_page(&full.contents(self.id, Some(ends(count)), count))?;
        self.add_child(level + 1, full.lower.clone(), page)
    }

    /// Puts a page into the current run. Returns its number.
    fn write_page(&mut self, contents: &Contents<'_>) -> Result<PageNo, TreeError> {
        if self.run.len() == RUN_PAGES * PAGE_BYTES {
            self.write_run()?;
        }
        if self.run.is_empty() {
            self.run_first = self.pool.allocate_run(RUN_PAGES)?;
        }
        let start = self.run.len();
        self.run.resize(start + PAGE_BYTES, 0);
        contents.build(&mut self.run[start..]);
        Ok(self.run_first + (start / PAGE_BYTES) as u64)
    }

    /// Writes the current run and gives back the page numbers it did not need.
    fn write_run(&mut self) -> Result<(), TreeError> {
        let used = (self.run.len() / PAGE_BYTES) as u64;
        if used == 0 {
            return Ok(());
        }
        self.pool.write_run(self.run_first, &mut self.run)?;
        self.runs.push((self.run_first, used));
        for page in self.run_first + used..self.run_first + RUN_PAGES as u64 {
            self.pool.free(page);
        }
        self.run.clear();
        Ok(())
    }
}
