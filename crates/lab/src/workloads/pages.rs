//! What do old designs read? Pages of shared words with a descriptor each, in the shape of a PostgreSQL table with its index.

use crate::designs::descriptor::{self, Descriptor};
use homenode_platform::atomic::{AtomicU64, Ordering};

/// Bytes of PostgreSQL's pages.
const PAGE_BYTES: usize = 8192;
const WORDS: usize = PAGE_BYTES / 8;

/// Pages with descriptors of layout `D`.
pub struct Pages<D> {
    descriptors: Vec<D>,
    words: Vec<AtomicU64>,
}

impl<D: Descriptor> Pages<D> {
    /// `count` pages; `fair` is the content locks' kind.
    pub fn new(count: usize, fair: bool) -> Pages<D> {
        Pages {
            descriptors: (0..count as u32).map(|page| D::new(page, fair)).collect(),
            words: (0..count * WORDS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// The descriptor of a page.
    pub fn descriptor(&self, page: usize) -> &D {
        &self.descriptors[page]
    }

    /// A binary search in a page of `entries` entries that ends at `slot`, and the entry itself.
    pub fn search(&self, page: usize, entries: usize, slot: usize) {
        let (mut low, mut high) = (0, entries);
        while low < high {
            let middle = (low + high) / 2;
            // A line pointer at the front and the key it leads to.
            self.word(page, middle / 2);
            self.word(page, WORDS - 1 - middle * 2 % (WORDS / 2));
            if middle < slot { low = middle + 1 } else { high = middle }
        }
    }

    /// Reads a row of about 120 bytes.
    pub fn row(&self, page: usize, slot: usize) {
        self.word(page, slot / 2);
        for word in 0..15 {
            self.word(page, (WORDS / 8 + slot * 15 + word) % WORDS);
        }
    }

    /// Writes a row of about 120 bytes; the page is locked exclusively.
    pub fn write_row(&self, page: usize, slot: usize) {
        for word in 0..15 {
            let at = page * WORDS + (WORDS / 8 + slot * 15 + word) % WORDS;
            self.words[at].store(word as u64, Ordering::Relaxed);
        }
    }

    fn word(&self, page: usize, word: usize) -> u64 {
        self.words[page * WORDS + word % WORDS].load(Ordering::Relaxed)
    }
}

/// A table with its index: root, leaves and heap, in that order.
pub struct IndexedTable<D> {
    pages: Pages<D>,
    leaves: usize,
    rows: usize,
}

/// Entries of an index leaf, and rows of a heap page.
const LEAF_ENTRIES: usize = 366;
const HEAP_ROWS: usize = 61;

impl<D: Descriptor> IndexedTable<D> {
    /// A table of `rows` rows. A small one has its index in one page.
    pub fn new(rows: usize) -> IndexedTable<D> {
        let leaves = if rows <= LEAF_ENTRIES { 0 } else { rows.div_ceil(LEAF_ENTRIES) };
        let heap = rows.div_ceil(HEAP_ROWS);
        IndexedTable { pages: Pages::new(1 + leaves + heap, false), leaves, rows }
    }

    /// Reads the row with this number through the index; pages for which `held` says so are super-locked: read without
    /// pin or lock.
    pub fn read(&self, row: usize, heap_too: bool, held: impl Fn(usize) -> bool) {
        let visit = |page: usize, read: &dyn Fn()| {
            if held(page) { read() } else { descriptor::read_page(self.pages.descriptor(page), read) }
        };
        let entries = if self.leaves == 0 { self.rows } else { self.leaves };
        let slot = if self.leaves == 0 { row } else { row / LEAF_ENTRIES };
        visit(0, &|| self.pages.search(0, entries, slot));
        if self.leaves > 0 {
            let leaf = 1 + row / LEAF_ENTRIES;
            visit(leaf, &|| self.pages.search(leaf, LEAF_ENTRIES, row % LEAF_ENTRIES));
        }
        if heap_too {
            let heap = 1 + self.leaves + row / HEAP_ROWS;
            visit(heap, &|| self.pages.row(heap, row % HEAP_ROWS));
        }
    }
}
