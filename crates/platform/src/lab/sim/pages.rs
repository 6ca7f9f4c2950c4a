//! What is known about each line of memory? Directory entries by 4 KiB page, numbered in the order of first use.
//!
//! Numbers rather than addresses: they are the same in every run of a seed, wherever the host puts things.

use super::hardware::Hardware;

/// log2 of a page.
pub(super) const PAGE_SHIFT: u32 = 12;
/// log2 of a line.
pub(super) const LINE_SHIFT: u32 = 6;
const LINES: usize = 1 << (PAGE_SHIFT - LINE_SHIFT);
const WORDS: usize = Hardware::CORES_MAX / 64;
/// No core owns the line.
pub(super) const NOBODY: u16 = u16::MAX;
/// In `owner`: not a core but the L3 of the group below this bit has the only, modified copy.
pub(super) const IN_L3: u16 = 1 << 15;
/// The page has no home yet.
pub(super) const UNPLACED: u8 = u8::MAX;

/// A set of cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Cores(pub [u64; WORDS]);

impl Cores {
    #[inline(always)]
    pub fn has(&self, core: usize) -> bool {
        self.0[core / 64] >> (core % 64) & 1 != 0
    }
    #[inline(always)]
    pub fn add(&mut self, core: usize) {
        self.0[core / 64] |= 1 << (core % 64);
    }
    #[inline(always)]
    pub fn remove(&mut self, core: usize) {
        self.0[core / 64] &= !(1 << (core % 64));
    }
    #[inline]
    pub fn meets(&self, other: &Cores) -> bool {
        self.0.iter().zip(&other.0).any(|(a, b)| a & b != 0)
    }
    pub fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }
}

/// The directory's entry of a line.
#[derive(Clone, Copy)]
pub(super) struct Line {
    /// Cores whose own cache has a copy.
    pub sharers: Cores,
    /// Until when the line is on its way or held after its arrival, picoseconds.
    pub free_at: u64,
    /// L3 groups that have a copy.
    pub l3: u32,
    /// The core with the only copy, [`IN_L3`] with a group, or [`NOBODY`].
    pub owner: u16,
    /// The only copy differs from memory.
    pub dirty: bool,
}

const UNCACHED: Line = Line { sharers: Cores([0; WORDS]), free_at: 0, l3: 0, owner: NOBODY, dirty: false };

pub(super) struct Page {
    pub home: u8,
    /// The host's address, for the report's names.
    pub address: usize,
    pub lines: [Line; LINES],
}

/// All pages that were ever touched.
pub(super) struct Pages {
    // Boxed: the vector grows while gigabytes of them exist.
    #[allow(clippy::vec_box)]
    pages: Vec<Box<Page>>,
    /// Open addressing: page address >> 12 and number + 1.
    table: Vec<(usize, u32)>,
    /// Directly mapped, in front of the table.
    recent: Vec<(usize, u32)>,
    /// Ranges with a policy: start, end, how.
    placed: Vec<Placed>,
}

/// Where the pages of a range come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Home {
    /// The node of whoever touches them first.
    FirstTouch,
    /// These nodes page by page.
    Interleave(Vec<u8>),
    /// One node.
    Node(u8),
}

struct Placed {
    start: usize,
    end: usize,
    home: Home,
}

const RECENT: usize = 4096;

impl Pages {
    pub fn new() -> Pages {
        Pages {
            pages: Vec::new(),
            table: vec![(0, 0); 1 << 12],
            recent: vec![(usize::MAX, 0); RECENT],
            placed: Vec::new(),
        }
    }

    /// The number of the page at `address`, made if need be with its home still open.
    #[inline]
    pub fn number(&mut self, address: usize) -> u32 {
        let key = address >> PAGE_SHIFT;
        let recent = self.recent[key % RECENT];
        if recent.0 == key {
            return recent.1;
        }
        let number = self.find_or_make(key);
        self.recent[key % RECENT] = (key, number);
        number
    }

    fn find_or_make(&mut self, key: usize) -> u32 {
        if self.pages.len() * 2 > self.table.len() {
            self.grow();
        }
        let mask = self.table.len() - 1;
        let mut at = hash(key) & mask;
        loop {
            match self.table[at] {
                (_, 0) => break,
                (found, number) if found == key => return number - 1,
                _ => at = (at + 1) & mask,
            }
        }
        let number = self.pages.len() as u32;
        self.pages.push(Box::new(Page { home: UNPLACED, address: key << PAGE_SHIFT, lines: [UNCACHED; LINES] }));
        self.table[at] = (key, number + 1);
        number
    }

    fn grow(&mut self) {
        let bigger = self.table.len() * 2;
        let old = std::mem::replace(&mut self.table, vec![(0, 0); bigger]);
        for (key, number) in old.into_iter().filter(|entry| entry.1 != 0) {
            let mut at = hash(key) & (bigger - 1);
            while self.table[at].1 != 0 {
                at = (at + 1) & (bigger - 1);
            }
            self.table[at] = (key, number);
        }
    }

    #[inline]
    pub fn page(&mut self, number: u32) -> &mut Page {
        &mut self.pages[number as usize]
    }

    /// The line with this number (page number * 64 + line).
    #[inline]
    pub fn line(&mut self, line: u32) -> &mut Line {
        &mut self.pages[line as usize / LINES].lines[line as usize % LINES]
    }

    /// Home and host address of a line that exists.
    pub fn about(&self, line: u32) -> (u8, usize) {
        let page = &self.pages[line as usize / LINES];
        (page.home, page.address + ((line as usize % LINES) << LINE_SHIFT))
    }

    /// Says where the pages of a range come from. A range is placed when it is mapped: what was there before is gone.
    pub fn place(&mut self, start: usize, end: usize, home: Home) {
        for page in self.pages.iter_mut().filter(|page| (start..end).contains(&page.address)) {
            page.home = UNPLACED;
            page.lines = [UNCACHED; LINES];
        }
        // Later words count first; a part of an older range may be overridden.
        self.placed.insert(0, Placed { start, end, home });
    }

    /// Gives a page its home, `toucher` being the node of the core that touches it first.
    pub fn settle(&mut self, number: u32, toucher: u8) -> u8 {
        let address = self.pages[number as usize].address;
        let placed = self.placed.iter().find(|placed| (placed.start..placed.end).contains(&address));
        let home = match placed.map(|placed| (&placed.home, placed.start)) {
            Some((Home::Node(node), _)) => *node,
            Some((Home::Interleave(nodes), start)) => nodes[((address - start) >> PAGE_SHIFT) % nodes.len()],
            Some((Home::FirstTouch, _)) | None => toucher,
        };
        self.pages[number as usize].home = home;
        home
    }

    /// Pages whose homes are known, by node.
    pub fn by_home(&self, nodes: usize) -> Vec<u64> {
        let mut counts = vec![0; nodes];
        for page in self.pages.iter().filter(|page| page.home != UNPLACED) {
            counts[page.home as usize] += 1;
        }
        counts
    }
}

fn hash(key: usize) -> usize {
    (key as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) as usize >> 20
}
