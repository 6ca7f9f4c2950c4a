//! How does a tree grow? Pruning, splitting, a new root: structure modifications, each one log
//! record over all the pages it touches.
//!
//! Whoever waits for a latch holds none below it and none beside it, so they cannot close a circle. A page is allocated before
//! anything is latched, since that may wait for the file to grow. When a parent has no room for the separator, everything is let
//! go, the parent is split, and the split starts again from the root.
//!
//! Every descent through a parent waits while it is latched. So a split divides its page first, under that page's latch alone, and
//! takes the parent's for the record and the separator, if that can be had without waiting ([`Optimistic::upgrade`]); only when it
//! can't, the parent is latched first and for all of it. (Splits of pages that the lanes append to held the root for 40 of every
//! 300 us on the lab's machine with four nodes.) And of all who find a leaf full, one splits it: see [`GATES`].

use homenode_latch::Latch;
use homenode_platform::{CachePadded, Global, task};
use homenode_pool::{Exclusive, Optimistic, PageNo};

use crate::bytes::Bytes;
use crate::descend::{Found, To};
use crate::edit::{Contents, encode_image, fits, fits_separator};
use crate::layout::{Header, OFF_LAST_SLOT, OFF_RUN, View};
use crate::leaf::{LeafMut, check_entry};
use crate::op::{OpCode, Writer, common_prefix};
use crate::tree::{apply_logged, log_and_apply, log_change};
use crate::{Tree, TreeError};

/// So many inserts in a row, each right behind the one before, count as an ascending run, and the
/// next split leaves what lies before the run's end in place: pages filled by a run stay full.
/// With random keys on a page of a hundred entries it happens by chance once in a million inserts.
const RUN_FOR_APPEND: u16 = 3;

/// Attempts to split without waiting for the parent.
const LIGHT_ATTEMPTS: u32 = 4;

/// Looks at a parent that somebody else changes: that takes as long as one record and one separator.
const PARENT_LOOKS: u32 = 8;

/// Who splits a leaf holds the gate of its number; who finds the leaf full meanwhile waits there until that is done, all of them
/// together, instead of allocating a page each and queueing for the leaf's parent. The gate is taken with nothing latched and
/// nothing is waited for at another gate, so it closes no circle. Written by those who split only.
static GATES: Global<Vec<CachePadded<Latch>>> =
    Global::new(|| (0..GATE_COUNT).map(|_| CachePadded::default()).collect());

/// Leaves that share a gate by chance only wait longer.
const GATE_COUNT: usize = 64;

/// A gate that is held.
struct Gate(&'static Latch);

impl Gate {
    /// The leaf's gate; `None` if somebody held it, but no longer does.
    fn enter_or_wait(leaf: PageNo) -> Option<Gate> {
        let gate = &*GATES.get()[leaf as usize % GATE_COUNT];
        if gate.is_exclusive() {
            gate.lock_shared();
            gate.unlock_shared();
            return None;
        }
        // Those who came at the same moment queue, and find the need met. (To try and else to share would let two who share for a
        // moment each keep the other out without end.)
        gate.lock_exclusive();
        Some(Gate(gate))
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.0.unlock_exclusive_unchanged();
    }
}

/// What a split has to make room for.
enum Need<'a> {
    Entry {
        value_len: usize,
    },
    Separator(&'a [u8]),
    /// Fewer entries behind one latch; if asked, only where many wait for it.
    Relief {
        where_contended: bool,
    },
}

impl Need<'_> {
    fn is_met(&self, page: &Exclusive<'_>, key: &[u8]) -> bool {
        match self {
            Need::Entry { value_len } => entry_fits(page.bytes(), key, *value_len),
            Need::Separator(separator) => fits_separator(page.bytes(), separator),
            Need::Relief { where_contended } => {
                (*where_contended && !page.is_contended()) || View(page.bytes()).count() < 2
            }
        }
    }
}

fn entry_fits(page: &[u8], key: &[u8], value_len: usize) -> bool {
    let view = View(page);
    match view.find(key) {
        Err(_) => fits(page, key, value_len),
        Ok(slot) => {
            let grown = crate::layout::leaf_size(view.slot(slot).suffix_len(), value_len);
            grown <= view.size_of(slot) + view.contiguous_free() + view.garbage()
        }
    }
}

impl Tree {
    /// Makes room for an entry with `key` and a value of `value_len` bytes: a new one, or a longer
    /// value for the one that is there. First `prune` is asked about each entry of the leaf;
    /// those for which it says true (deletions that nobody can see any more) are dropped. If that
    /// is not enough the leaf is split. The caller then calls [`Tree::leaf_exclusive`] again and,
    /// since others may have used the room, checks again.
    ///
    /// `prune` is called under the leaf's latch and must not touch the tree.
    ///
    /// # Errors
    /// [`TreeError::EntryTooLarge`]; or if a page cannot be read or allocated.
    pub fn make_room(
        &self,
        lane: usize,
        key: &[u8],
        value_len: usize,
        prune: &mut dyn FnMut(Header) -> bool,
    ) -> Result<(), TreeError> {
        check_entry(key.len(), value_len)?;
        loop {
            let mut leaf = self.latch_leaf(key)?;
            if entry_fits(leaf.bytes(), key, value_len) {
                return Ok(());
            }
            if self.prune_leaf(lane, &mut leaf, prune)? > 0 && entry_fits(leaf.bytes(), key, value_len) {
                return Ok(());
            }
            let page_no = leaf.page_no();
            drop(leaf);
            if let Some(_gate) = Gate::enter_or_wait(page_no) {
                self.split(lane, key, 0, &Need::Entry { value_len })?;
            }
        }
    }

    /// Divides the leaf of `key` if many have to wait for it, so that they meet at two pages: for a small table of which many rows are
    /// changed all the time. (Alhomssi and Leis, "Contention and space management in B-trees", CIDR 2021.) Does nothing if somebody
    /// is about to, or if it has too few entries to be divided. Not for those who insert: what they fill would be divided
    /// without end.
    ///
    /// # Errors
    /// If a page cannot be read or allocated.
    pub fn relieve(&self, lane: usize, key: &[u8]) -> Result<(), TreeError> {
        self.divide(lane, key, true)
    }

    /// As [`Tree::relieve`]; if `where_contended` is false, whether anybody waits or not.
    ///
    /// # Errors
    /// As `relieve`.
    pub fn divide(&self, lane: usize, key: &[u8], where_contended: bool) -> Result<(), TreeError> {
        let need = Need::Relief { where_contended };
        let leaf = self.latch_leaf(key)?;
        let page_no = leaf.page_no();
        let is_met = need.is_met(&leaf, key);
        drop(leaf);
        if !is_met && let Some(_gate) = Gate::enter_or_wait(page_no) {
            self.split(lane, key, 0, &need)?;
        }
        Ok(())
    }

    /// Drops the entries of a leaf for which `prune` says true. Returns their number.
    pub(crate) fn prune_leaf(
        &self,
        lane: usize,
        leaf: &mut Exclusive<'_>,
        prune: &mut dyn FnMut(Header) -> bool,
    ) -> Result<usize, TreeError> {
        let view = View(leaf.bytes());
        let dead: Vec<usize> = (0..view.count()).filter(|i| prune(view.header(*i))).collect();
        if !dead.is_empty() {
            let mut op = Vec::new();
            let mut writer = Writer::begin(&mut op, leaf.page_no(), OpCode::Prune);
            for slot in &dead {
                writer = writer.u16(*slot);
            }
            writer.end();
            log_and_apply(&*self.log, lane, &mut [leaf], &[op])?;
        }
        Ok(dead.len())
    }

    /// Splits the page of `level` on the way to `key`, or what stands above it and is full; or
    /// does nothing, if the need is met by now. The caller looks again.
    fn split(&self, lane: usize, key: &[u8], level: u8, need: &Need<'_>) -> Result<(), TreeError> {
        let mut new = self.pool.allocate(lane)?;
        for attempt in 0..LIGHT_ATTEMPTS {
            match self.split_lightly(lane, key, level, need, new)? {
                Attempt::NoParent(unused) => return self.grow_root(lane, level, unused),
                Attempt::Done => return Ok(()),
                Attempt::Full(separator) => return self.split(lane, key, level + 1, &Need::Separator(&separator)),
                Attempt::Again(unused) => new = unused,
            }
            task::spin_hint(attempt);
        }
        let Some(parent) = self.latch_inner(key, level + 1)? else {
            return self.grow_root(lane, level, new);
        };
        let parent_view = View(parent.bytes());
        let slot = parent_view.child_index(key);
        let page = self.pool.exclusive(parent_view.child(slot))?;
        if need.is_met(&page, key) {
            new.free();
            return Ok(());
        }
        let Some(plan) = self.plan_split(&page, key, level, need)? else {
            new.free();
            return Ok(());
        };
        if !fits_separator(parent.bytes(), &plan.separator) {
            drop((page, parent));
            new.free();
            return self.split(lane, key, level + 1, &Need::Separator(&plan.separator));
        }
        let halves = plan.halves(&page, new.page_no());
        self.execute_split(lane, parent, (page, new), slot, &plan.separator, halves)
    }

    /// One attempt at a split that latches the parent last, and doesn't wait for it.
    fn split_lightly<'t>(
        &'t self,
        lane: usize,
        key: &[u8],
        level: u8,
        need: &Need<'_>,
        new: Exclusive<'t>,
    ) -> Result<Attempt<'t>, TreeError> {
        let (parent, child) = match self.find_child(To(key), level + 1)? {
            Found::Child(parent, child) => (parent, child),
            Found::TooLow => return Ok(Attempt::NoParent(new)),
            Found::Changed => return Ok(Attempt::Again(new)),
        };
        if !parent.validate() {
            return Ok(Attempt::Again(new));
        }
        let page = self.pool.exclusive(child);
        // While the parent stands, the page is its child; from now on it can neither be split nor merged.
        if !parent.validate() {
            return Ok(Attempt::Again(new));
        }
        let page = page?;
        if need.is_met(&page, key) {
            new.free();
            return Ok(Attempt::Done);
        }
        let Some(plan) = self.plan_split(&page, key, level, need)? else {
            new.free();
            return Ok(Attempt::Done);
        };
        let halves = plan.halves(&page, new.page_no());
        let Some(parent) = latch_parent(&parent, key, child) else { return Ok(Attempt::Again(new)) };
        if !fits_separator(parent.bytes(), &plan.separator) {
            drop((page, parent));
            new.free();
            return Ok(Attempt::Full(plan.separator));
        }
        let slot = View(parent.bytes()).child_index(key);
        self.execute_split(lane, parent, (page, new), slot, &plan.separator, halves)?;
        Ok(Attempt::Done)
    }

    /// Puts a new level below the root: the root's contents move into a new page, its only child.
    /// The root's own page number never changes, so nobody has to be told.
    fn grow_root<'t>(&'t self, lane: usize, level: u8, mut new: Exclusive<'t>) -> Result<(), TreeError> {
        let mut root = self.pool.exclusive(self.root)?;
        if View(root.bytes()).level() != level {
            drop(root);
            new.free();
            return Ok(());
        }
        let child = new.page_no();
        let above = Contents {
            level: level + 1,
            tree_id: self.id,
            lower: &[],
            upper: None,
            leftmost: child,
            entries: Vec::new(),
        };
        let (mut down, mut up) = (Vec::new(), Vec::new());
        encode_image(root.bytes(), child, &mut down);
        above.encode_format(self.root, &mut up);
        log_and_apply(&*self.log, lane, &mut [&mut root, &mut new], &[down, up])?;
        Ok(())
    }

    /// Where to divide the page; `None`: nowhere, and it need not be.
    fn plan_split(
        &self,
        page: &Exclusive<'_>,
        key: &[u8],
        level: u8,
        need: &Need<'_>,
    ) -> Result<Option<SplitPlan>, TreeError> {
        let contents = Contents::of(page.bytes());
        if let Need::Relief { .. } = need {
            return Ok(plan_halves(page.bytes(), &contents));
        }
        let plan = if level == 0 {
            plan_leaf_split(page.bytes(), &contents, key)
        } else {
            plan_inner_split(page.bytes(), &contents, key)
        };
        plan.map(Some).ok_or_else(|| self.corrupt(page.page_no(), "full, but with too few entries to be split"))
    }

    /// Logs and does a split whose two halves are worked out. The parent is changed and let go first.
    fn execute_split<'t>(
        &'t self,
        lane: usize,
        mut parent: Exclusive<'t>,
        (mut left, mut right): (Exclusive<'t>, Exclusive<'t>),
        slot: usize,
        separator: &[u8],
        [move_right, keep_left]: [Vec<u8>; 2],
    ) -> Result<(), TreeError> {
        let mut link = Vec::new();
        let shared = common_prefix(View(parent.bytes()).prefix(), separator);
        Writer::begin(&mut link, parent.page_no(), OpCode::InsertChild)
            .u16(slot)
            .u16(shared)
            .u64(right.page_no())
            .bytes(&separator[shared..])
            .end();
        let ops = [move_right, keep_left, link];
        let end = log_change(&*self.log, lane, &mut [&mut parent, &mut left, &mut right], &ops);
        let [move_right, keep_left, link] = &ops;
        apply_logged(&mut parent, link, end)?;
        drop(parent);
        apply_logged(&mut right, move_right, end)?;
        left.forget_waits();
        apply_logged(&mut left, keep_left, end)
    }

    /// As [`Tree::leaf_exclusive`], but drops entries for which `prune` says true first.
    ///
    /// # Errors
    /// If a page cannot be read.
    pub fn leaf_pruned(
        &self,
        lane: usize,
        key: &[u8],
        prune: &mut dyn FnMut(Header) -> bool,
    ) -> Result<LeafMut<'_>, TreeError> {
        let mut leaf = self.latch_leaf(key)?;
        self.prune_leaf(lane, &mut leaf, prune)?;
        Ok(LeafMut::new(leaf))
    }
}

/// How an attempt to split without waiting for the parent ended.
enum Attempt<'t> {
    /// The page is the root.
    NoParent(Exclusive<'t>),
    /// There is room now.
    Done,
    /// The parent lacks room for this separator.
    Full(Vec<u8>),
    /// Something changed or was held on the way; the new page is still to be used.
    Again(Exclusive<'t>),
}

/// The parent of a page that the caller holds, exclusively latched, if that is possible without waiting.
///
/// It may have changed since it was read: then the page has to be its child still, on the way to `key`.
fn latch_parent<'t>(parent: &Optimistic<'t>, key: &[u8], child: PageNo) -> Option<Exclusive<'t>> {
    for attempt in 0..PARENT_LOOKS {
        if let Some(now) = parent.renewed() {
            let page = now.page();
            let view = View(&page);
            let is_parent = view.level() > 0 && view.child(view.child_index(key)) == child;
            // What was read counts only if the upgrade finds the version unchanged.
            if is_parent && let Some(latched) = now.upgrade() {
                return Some(latched);
            }
        }
        task::spin_hint(attempt);
    }
    None
}

/// Where a page is to be divided.
struct SplitPlan {
    /// Entries that stay. In an inner page entry `keep` itself goes up.
    keep: usize,
    separator: Vec<u8>,
}

impl SplitPlan {
    fn left<'a>(&'a self, all: &Contents<'a>) -> Contents<'a> {
        Contents { upper: Some(&self.separator), entries: all.entries[..self.keep].to_vec(), ..*all }
    }

    fn right<'a>(&'a self, all: &Contents<'a>) -> Contents<'a> {
        let (leftmost, first) =
            if all.level == 0 { (0, self.keep) } else { (all.entries[self.keep].word, self.keep + 1) };
        Contents { lower: &self.separator, leftmost, entries: all.entries[first..].to_vec(), ..*all }
    }

    /// The operations that make the page `right` of what moves, and leave in `left` what stays.
    fn halves(&self, left: &Exclusive<'_>, right: PageNo) -> [Vec<u8>; 2] {
        let (mut move_right, mut keep_left) = (Vec::new(), Vec::new());
        self.right(&Contents::of(left.bytes())).encode_format(right, &mut move_right);
        Writer::begin(&mut keep_left, left.page_no(), OpCode::Truncate).u16(self.keep).bytes(&self.separator).end();
        [move_right, keep_left]
    }

    fn fits(&self, all: &Contents<'_>) -> bool {
        self.left(all).fit() && self.right(all).fit()
    }
}

fn plan_leaf_split(page: &[u8], contents: &Contents<'_>, key: &[u8]) -> Option<SplitPlan> {
    let at = View(page).find(key);
    if let Some(keep) = at.err().filter(|at| is_append(page, contents, *at)) {
        let separator = shortest_between(&contents.entries[keep - 1].key(), key);
        let plan = SplitPlan { keep, separator };
        if plan.fits(contents) {
            return Some(plan);
        }
    }
    plan_halves(page, contents)
}

/// A division of a leaf near its middle.
fn plan_halves(page: &[u8], contents: &Contents<'_>) -> Option<SplitPlan> {
    let separator = |keep: usize| shortest_between(&contents.entries[keep - 1].key(), &contents.entries[keep].key());
    plan_middle(page, contents, 1, separator)
}

/// True if an insert at slot `at` goes on with an ascending run that fills at least half the page.
fn is_append(page: &[u8], contents: &Contents<'_>, at: usize) -> bool {
    let (last, run) = (usize::from(page.u16(OFF_LAST_SLOT)), page.u16(OFF_RUN));
    let at_right_end = at == contents.entries.len() && contents.upper.is_none();
    let runs = run >= RUN_FOR_APPEND && last + 1 == at;
    at > 0 && (at_right_end || runs) && bytes_before(page, at) >= bytes_before(page, contents.entries.len()) / 2
}

fn plan_inner_split(page: &[u8], contents: &Contents<'_>, key: &[u8]) -> Option<SplitPlan> {
    let count = contents.entries.len();
    let separator = |keep: usize| contents.entries[keep].key();
    if contents.upper.is_none() && count >= 2 && View(page).child_index(key) == count {
        let plan = SplitPlan { keep: count - 1, separator: separator(count - 1) };
        if plan.fits(contents) {
            return Some(plan);
        }
    }
    plan_middle(page, contents, 0, separator)
}

fn bytes_before(page: &[u8], slot: usize) -> usize {
    (0..slot).map(|i| View(page).size_of(i) + crate::layout::SLOT_BYTES).sum()
}

/// A division near the middle of the bytes. In a window around it the shortest separator wins
/// (Bayer and Unterauer, "Prefix B-Trees", 1977): short separators keep the inner levels small.
fn plan_middle(
    page: &[u8],
    contents: &Contents<'_>,
    least: usize,
    separator: impl Fn(usize) -> Vec<u8>,
) -> Option<SplitPlan> {
    let count = contents.entries.len();
    let half = bytes_before(page, count) / 2;
    let mut sum = 0;
    let middle = (0..count).position(|i| {
        sum += View(page).size_of(i) + crate::layout::SLOT_BYTES;
        sum > half
    })?;
    let middle = middle.clamp(least, count.checked_sub(1).filter(|last| *last >= least)?);
    let window = count / 16;
    let candidates = middle.saturating_sub(window).max(least)..=(middle + window).min(count - 1);
    let best = candidates.min_by_key(|keep| (separator(*keep).len(), keep.abs_diff(middle)))?;
    [best, middle]
        .into_iter()
        // Very long keys can make a half with a new fence too large: then any division that fits.
        .chain(least..count)
        .map(|keep| SplitPlan { keep, separator: separator(keep) })
        .find(|plan| plan.fits(contents))
}

/// The shortest key above `low` and not above `high`.
pub(crate) fn shortest_between(low: &[u8], high: &[u8]) -> Vec<u8> {
    debug_assert!(low < high);
    high[..(common_prefix(low, high) + 1).min(high.len())].to_vec()
}
