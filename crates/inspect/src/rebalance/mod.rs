//! How does a running server's memory get where it should be? Pages move while it works: their contents and addresses stay.
//!
//! Later pages of shared memory follow the policy that is set on the object; resident ones are moved in batches at a bounded
//! rate. Before a stretch moves, the journal says where each page of it was. An interruption at any point leaves every page
//! somewhere, whole: moving is the kernel's affair, page by page.

mod journal;
mod piece;
mod spread;

pub use journal::{Entry, Journal, PieceId, read as read_journal};
pub use piece::{Looked, Piece, Unit};
pub use spread::Shares;

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use homenode_memory::foreign;

use crate::InspectError;

/// A huge page that the kernel made by itself.
const HUGE_BYTES: u64 = 2 << 20;

/// Bytes in one call: small against what a second may move, large against the cost of a call.
const BATCH_BYTES: u64 = 4 << 20;

/// What a move would do, or did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Bytes on each node before.
    pub before: BTreeMap<usize, u64>,
    /// Bytes on each node after.
    pub after: BTreeMap<usize, u64>,
    /// Bytes that moved (or would), by the nodes from and to.
    pub moved: BTreeMap<(usize, usize), u64>,
    /// Bytes that did not move, by the kernel's error number.
    pub failed: BTreeMap<i32, u64>,
}

impl Tally {
    /// Bytes that moved, or would.
    pub fn moved_bytes(&self) -> u64 {
        self.moved.values().sum()
    }

    fn count(&mut self, unit: &Unit, now: usize, bytes: u64) {
        *self.before.entry(unit.node).or_default() += bytes;
        *self.after.entry(now).or_default() += bytes;
        if now != unit.node {
            *self.moved.entry((unit.node, now)).or_default() += bytes;
        }
    }

    /// Adds another one.
    pub fn add(&mut self, other: &Tally) {
        let sum = |into: &mut BTreeMap<usize, u64>, from: &BTreeMap<usize, u64>| {
            from.iter().for_each(|(node, bytes)| *into.entry(*node).or_default() += bytes);
        };
        sum(&mut self.before, &other.before);
        sum(&mut self.after, &other.after);
        other.moved.iter().for_each(|(way, bytes)| *self.moved.entry(*way).or_default() += bytes);
        other.failed.iter().for_each(|(errno, bytes)| *self.failed.entry(*errno).or_default() += bytes);
    }
}

/// What spreading a piece would do, after other pieces that were spread (or would be).
///
/// # Errors
/// As [`Piece::look`].
pub fn plan(piece: &Piece, shares: &Shares, so_far: &Tally) -> Result<Tally, InspectError> {
    let mut tally = Tally::default();
    for (first, count) in piece.windows() {
        let turn = shares.least(&so_far.after, &tally.after);
        let held = shares.held(&so_far.after, &tally.after, piece.unit);
        let looked = piece.look(first, count)?;
        for (unit, target) in looked.units.iter().zip(targets(piece, &looked.units, shares, &held, turn)) {
            tally.count(unit, target.unwrap_or(unit.node), piece.unit);
        }
    }
    Ok(tally)
}

/// Where each unit has to go. Blocks of 2 MiB that may be one huge page are placed whole, the small pages around them after.
/// `held` is what the nodes have of other memory of the server, in units.
fn targets(piece: &Piece, units: &[Unit], shares: &Shares, held: &[usize], turn: usize) -> Vec<Option<usize>> {
    let nodes = |units: &[&[Unit]]| -> Vec<usize> { units.iter().map(|block| block[0].node).collect() };
    let whole = |block: &[Unit]| {
        let is_full = block.len() as u64 * piece.unit == HUGE_BYTES;
        block[0].is_joined && is_full && block.iter().all(|unit| unit.node == block[0].node)
    };
    let blocks: Vec<&[Unit]> = units.chunk_by(|a, b| piece.block(a) == piece.block(b)).collect();
    let huge: Vec<&[Unit]> = blocks.iter().filter(|block| whole(block)).copied().collect();
    if huge.is_empty() {
        let on: Vec<usize> = units.iter().map(|unit| unit.node).collect();
        return shares.targets_in_groups(held, &on, turn);
    }
    let blocks_held: Vec<usize> = held.iter().map(|units| units / (HUGE_BYTES / piece.unit) as usize).collect();
    let of_huge = shares.targets(&blocks_held, &nodes(&huge), turn);
    let placed = huge.iter().zip(&of_huge).flat_map(|(b, to)| b.iter().map(|unit| to.unwrap_or(unit.node)));
    let mut held = held.to_vec();
    shares.hold(&mut held, placed);
    let small = blocks.iter().filter(|block| !whole(block)).flat_map(|block| block.iter().map(|unit| unit.node));
    let of_small = shares.targets(&held, &small.collect::<Vec<_>>(), turn);
    let (mut of_huge, mut of_small) = (of_huge.into_iter(), of_small.into_iter());
    let mut all = Vec::with_capacity(units.len());
    for block in blocks {
        if whole(block) {
            all.resize(all.len() + block.len(), of_huge.next().flatten());
        } else {
            all.extend(of_small.by_ref().take(block.len()));
        }
    }
    all
}

/// Moves pages no faster than this.
#[derive(Debug)]
pub struct Pace {
    bytes_per_second: u64,
    begun: Instant,
    moved: u64,
}

impl Pace {
    /// From now on.
    pub fn new(bytes_per_second: u64) -> Pace {
        Pace { bytes_per_second: bytes_per_second.max(1), begun: Instant::now(), moved: 0 }
    }

    fn after(&mut self, bytes: u64) {
        self.moved += bytes;
        let due = Duration::from_secs_f64(self.moved as f64 / self.bytes_per_second as f64);
        if let Some(early) = due.checked_sub(self.begun.elapsed()) {
            std::thread::sleep(early);
        }
    }
}

/// Spreads a piece. `number` is the piece's in the journal.
///
/// # Errors
/// As [`Piece::look`], and if the journal can't be written: then nothing of that stretch has moved.
pub fn apply(
    piece: &Piece,
    number: usize,
    shares: &Shares,
    so_far: &Tally,
    journal: &mut Journal,
    pace: &mut Pace,
) -> Result<Tally, InspectError> {
    let mut tally = Tally::default();
    for (first, count) in piece.windows() {
        let turn = shares.least(&so_far.after, &tally.after);
        let held = shares.held(&so_far.after, &tally.after, piece.unit);
        let looked = piece.look(first, count)?;
        let targets = targets(piece, &looked.units, shares, &held, turn);
        if targets.iter().any(Option::is_some) {
            journal.write(&where_they_were(number, &looked.units))?;
        }
        tally.add(&move_units(piece, &looked.units, &targets, pace)?);
    }
    Ok(tally)
}

/// Runs of units on one node, for the journal.
fn where_they_were(piece: usize, units: &[Unit]) -> Vec<Entry> {
    let runs = units.chunk_by(|a, b| a.number + 1 == b.number && a.node == b.node);
    runs.map(|run| Entry::Pages(piece, run[0].number, run.len() as u64, run[0].node)).collect()
}

/// Puts the units of a piece back where they were: `was` has first unit, units and node, the earliest entry last.
///
/// # Errors
/// As [`Piece::look`].
pub fn undo(piece: &Piece, was: &[(u64, u64, usize)], pace: &mut Pace) -> Result<Tally, InspectError> {
    let mut tally = Tally::default();
    for (first, count, node) in was {
        let looked = piece.look(*first, *count)?;
        let targets: Vec<Option<usize>> =
            looked.units.iter().map(|unit| Some(*node).filter(|node| *node != unit.node)).collect();
        tally.add(&move_units(piece, &looked.units, &targets, pace)?);
    }
    Ok(tally)
}

/// Rounds of trying. The first moves in large calls; later ones wait a little, as a page that is just being read or written
/// moves a moment later, and ask for fewer pages at once: a call ends at the first run of pages to one node of which one stays
/// (do_pages_move in mm/migrate.c), so that in a large call one busy page keeps all behind it.
const BATCHES_BYTES: [(u64, Duration); 4] = [
    (BATCH_BYTES, Duration::ZERO),
    (BATCH_BYTES / 16, Duration::from_millis(5)),
    (1, Duration::from_millis(20)),
    (1, Duration::from_millis(100)),
];

/// Moves those units that have a target; those that were busy are tried again.
fn move_units(
    piece: &Piece,
    units: &[Unit],
    targets: &[Option<usize>],
    pace: &mut Pace,
) -> Result<Tally, InspectError> {
    let mut tally = Tally::default();
    units
        .iter()
        .zip(targets)
        .filter(|(_, to)| to.is_none())
        .for_each(|(unit, _)| tally.count(unit, unit.node, piece.unit));
    let mut left: Vec<(Unit, usize)> = units.iter().zip(targets).filter_map(|(u, to)| Some((*u, (*to)?))).collect();
    for (round, (batch_bytes, wait)) in BATCHES_BYTES.into_iter().enumerate() {
        let is_last = round + 1 == BATCHES_BYTES.len();
        let batch = (batch_bytes / piece.unit).max(1) as usize;
        let mut again = Vec::new();
        if !left.is_empty() {
            std::thread::sleep(wait);
        }
        left.sort_by_key(|(unit, _)| unit.pid);
        for group in left.chunk_by_mut(|a, b| a.0.pid == b.0.pid).flat_map(|group| group.chunks_mut(batch)) {
            // Runs to one node are one migration for the kernel.
            group.sort_by_key(|(_, node)| *node);
            let statuses = match move_group(group) {
                Ok(statuses) => statuses,
                // The process through which they are reached has ended: where they are is for a later look.
                Err(homenode_memory::Refusal::Other(errno)) => {
                    *tally.failed.entry(errno).or_default() += piece.unit * group.len() as u64;
                    continue;
                }
                Err(refusal) => return Err(piece::not_permitted(refusal)),
            };
            for ((unit, target), status) in group.iter().zip(statuses) {
                match usize::try_from(status) {
                    Ok(node) if node == *target => tally.count(unit, node, piece.unit),
                    Ok(_) if !is_last => again.push((*unit, *target)),
                    Err(_) if !is_last && is_passing(status) => again.push((*unit, *target)),
                    Err(_) if !is_last && unit.pid != 0 && piece::is_hidden(status) => {
                        piece::unhide(unit.pid, &[unit.address]);
                        again.push((*unit, *target));
                    }
                    // Of a page that stays alone the kernel does not always say why; being in use is why it would.
                    now => {
                        let errno = if now.is_ok() { EBUSY } else { status.saturating_neg() };
                        tally.count(unit, now.unwrap_or(unit.node), piece.unit);
                        *tally.failed.entry(errno).or_default() += piece.unit;
                    }
                }
            }
            pace.after(piece.unit * group.len() as u64);
        }
        left = again;
    }
    Ok(tally)
}

/// Moves units of one process; a status for each. Of those that the kernel said nothing about, it is asked where they are.
fn move_group(group: &[(Unit, usize)]) -> Result<Vec<i32>, homenode_memory::Refusal> {
    let pid = group[0].0.pid;
    let addresses: Vec<usize> = group.iter().map(|(unit, _)| unit.address).collect();
    let to: Vec<i32> = group.iter().map(|(_, node)| *node as i32).collect();
    let mut statuses = foreign::move_pages(pid, &addresses, &to)?;
    let unasked: Vec<usize> = (0..group.len()).filter(|i| statuses[*i] == foreign::STATUS_UNASKED).collect();
    let there: Vec<usize> = unasked.iter().map(|i| addresses[*i]).collect();
    for (i, status) in unasked.into_iter().zip(foreign::page_statuses(pid, &there)?) {
        statuses[i] = status;
    }
    Ok(statuses)
}

const EAGAIN: i32 = 11;
const EBUSY: i32 = 16;

/// Errors that may be gone a moment later.
fn is_passing(status: i32) -> bool {
    matches!(status.saturating_neg(), EAGAIN | EBUSY)
}

/// What an error number of a page means.
pub fn failure(errno: i32) -> String {
    match errno {
        2 => "not present any more".to_owned(),
        12 => "no room on the node (ENOMEM)".to_owned(),
        13 => "mapped by several processes, and CAP_SYS_NICE is missing (EACCES)".to_owned(),
        14 => "not movable: zero page or no page of memory (EFAULT)".to_owned(),
        EBUSY => "busy (EBUSY)".to_owned(),
        other => io::Error::from_raw_os_error(other).to_string(),
    }
}

/// What a policy in the kernel's words is for the call that sets it. `None` if it is not one that can be set again.
pub fn policy_of(text: &str) -> Option<(foreign::PolicyMode, Vec<usize>)> {
    use foreign::PolicyMode;
    let (name, nodes) = text.split_once(':').unwrap_or((text, ""));
    let nodes = homenode_topology::parse_list(nodes)?;
    let mode = match name {
        "default" => PolicyMode::Default,
        "local" => PolicyMode::Local,
        "prefer" => PolicyMode::Preferred,
        "bind" => PolicyMode::Bind,
        "interleave" => PolicyMode::Interleave,
        "weighted interleave" => PolicyMode::WeightedInterleave,
        _ => return None,
    };
    Some((mode, nodes))
}

#[cfg(test)]
mod tests {
    use homenode_memory::foreign::PolicyMode;

    use super::*;

    #[test]
    fn policies_of_the_kernel_can_be_set_again() {
        assert_eq!(policy_of("default"), Some((PolicyMode::Default, vec![])));
        assert_eq!(policy_of("interleave:0-3"), Some((PolicyMode::Interleave, vec![0, 1, 2, 3])));
        assert_eq!(policy_of("weighted interleave:0,2"), Some((PolicyMode::WeightedInterleave, vec![0, 2])));
        assert_eq!(policy_of("prefer (many):0-1"), None);
        assert_eq!(policy_of("bind=static:0"), None);
    }

    #[test]
    fn huge_pages_stay_whole_and_small_ones_even_it_out() {
        let piece = Piece::for_test(0x7f00_0000_0000, 4096, true);
        let unit = |number: u64| {
            let address = 0x7f00_0000_0000 + number as usize * 4096;
            Unit { number, pid: 1, address, node: 0, is_joined: true }
        };
        // One whole block, and 1000 small pages in two others.
        let numbers = (0..512).chain(520..1020).chain(1030..1530);
        let units: Vec<Unit> = numbers.map(unit).collect();
        let shares = Shares::new(vec![(0, 1), (1, 1), (2, 1)]).unwrap();
        let after: Vec<usize> = targets(&piece, &units, &shares, &[], 0).iter().map(|to| to.unwrap_or(0)).collect();
        assert!(after[..512].iter().all(|node| *node == after[0]));
        for node in 0..3 {
            let count = after.iter().filter(|n| **n == node).count();
            assert!((500..=512).contains(&count), "node {node}: {count}");
        }
    }

    #[test]
    fn runs_are_journalled() {
        let unit = |number, node| Unit { number, pid: 1, address: 0, node, is_joined: false };
        let units = [unit(3, 0), unit(4, 0), unit(6, 0), unit(7, 1)];
        let entries = where_they_were(5, &units);
        assert_eq!(entries, [Entry::Pages(5, 3, 2, 0), Entry::Pages(5, 6, 1, 0), Entry::Pages(5, 7, 1, 1)]);
    }
}
