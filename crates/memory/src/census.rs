//! On which node is the page at an address? For a look at memory of any kind, page by page, that makes none present.

use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr::NonNull;

use homenode_topology::Topology;

use crate::{Refusal, Residency, sys};

/// Addresses in one call: see [`Region::residency`](crate::Region::residency).
const BATCH_PAGES: usize = 16_384;

/// Where a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// On this node.
    Node(usize),
    /// Not present: never touched, swapped out, or no memory of this process.
    Absent,
    /// The kernel gave this error number instead.
    Unknown(i32),
}

/// Asks the kernel where pages are. The answers are of the moment: a page may be moved or dropped right after.
#[derive(Clone, Debug)]
pub struct Census {
    /// The node, on a machine that has one.
    single: Option<usize>,
}

impl Census {
    /// For a machine.
    pub fn of(topology: &Topology) -> Census {
        let single = topology.nodes().len() == 1;
        Census { single: single.then(|| topology.nodes()[0].id) }
    }

    /// Where the pages at these addresses are, one answer each. About 100 ns an address; the lock of the process's address
    /// space is taken for reading, sixteen pages at a time (mm/migrate.c, do_pages_stat), so nobody waits long.
    ///
    /// # Errors
    /// A refusal, in containers that forbid move_pages. On a machine with one node none: who may not ask where may still
    /// ask whether.
    pub fn look(&self, addresses: &[usize]) -> Result<Vec<Whereabouts>, Refusal> {
        let mut found = Vec::with_capacity(addresses.len());
        for batch in addresses.chunks(BATCH_PAGES) {
            let mut statuses = vec![sys::UNASKED; batch.len()];
            match (sys::move_pages(batch, None, &mut statuses), self.single) {
                (Ok(()), _) => found.extend(statuses.into_iter().map(whereabouts)),
                (Err(_), Some(node)) => found.extend(batch.iter().map(|address| present_on(node, *address))),
                (Err(refusal), None) => return Err(refusal),
            }
        }
        Ok(found)
    }

    /// How a range of addresses is spread over nodes, small page by small page. The ends are rounded outwards.
    ///
    /// # Errors
    /// As [`Census::look`].
    pub fn spread(&self, range: Range<usize>) -> Result<Residency, Refusal> {
        let page = sys::page_bytes();
        let mut by_node: BTreeMap<usize, u64> = BTreeMap::new();
        let mut spread = Residency::default();
        let first = range.start / page * page;
        for batch in (first..range.end).step_by(page * BATCH_PAGES) {
            let pages: Vec<usize> = (batch..range.end.min(batch + page * BATCH_PAGES)).step_by(page).collect();
            for place in self.look(&pages)? {
                match place {
                    Whereabouts::Node(node) => *by_node.entry(node).or_default() += page as u64,
                    Whereabouts::Absent => spread.absent_bytes += page as u64,
                    Whereabouts::Unknown(error) => *spread.unknown.entry(error).or_default() += page as u64,
                }
            }
        }
        Ok(Residency { by_node, ..spread })
    }
}

fn whereabouts(status: i32) -> Whereabouts {
    match usize::try_from(status) {
        Ok(node) => Whereabouts::Node(node),
        // EFAULT: the zero page, or nothing mapped there (mm/migrate.c, do_pages_stat_array).
        Err(_) if status == sys::ABSENT || status == sys::NO_PAGE => Whereabouts::Absent,
        Err(_) => Whereabouts::Unknown(status.saturating_neg()),
    }
}

fn present_on(node: usize, address: usize) -> Whereabouts {
    let page = address / sys::page_bytes() * sys::page_bytes();
    let start = NonNull::new(std::ptr::with_exposed_provenance_mut(page));
    match start.map(|start| sys::present(start, 1)).transpose() {
        Ok(Some(present)) if present.first() == Some(&true) => Whereabouts::Node(node),
        _ => Whereabouts::Absent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HugePages, Policy, Region};

    #[test]
    #[cfg(all(target_os = "linux", not(homenode_lab), not(miri)))]
    fn a_look_makes_nothing_present() {
        let machine = Topology::discover();
        let census = Census::of(&machine);
        let region = Region::new(4 << 20, &Policy::Default, HugePages::Off, &machine).unwrap();
        let start = region.as_ptr().addr();
        // SAFETY: the first byte of a region that this test alone uses.
        unsafe { region.as_ptr().write(1) };
        let pages: Vec<usize> = (start..start + region.len()).step_by(sys::page_bytes()).collect();
        for _ in 0..2 {
            let Ok(found) = census.look(&pages) else { return };
            assert!(matches!(found[0], Whereabouts::Node(_)), "{:?}", found[0]);
            assert!(found[1..].iter().all(|place| *place == Whereabouts::Absent));
        }
        let spread = census.spread(start..start + region.len()).unwrap();
        assert_eq!(spread.present_bytes(), sys::page_bytes() as u64);
        assert_eq!(spread.absent_bytes, (region.len() - sys::page_bytes()) as u64);
    }

    #[test]
    #[cfg(all(target_os = "linux", not(homenode_lab), not(miri)))]
    fn what_is_not_ours_is_absent() {
        let census = Census::of(&Topology::discover());
        if let Ok(found) = census.look(&[4096]) {
            assert_eq!(found, [Whereabouts::Absent]);
        }
    }
}
