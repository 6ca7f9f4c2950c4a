//! On which nodes are a region's pages? Asked page by page, without making any present, and moved where they should be.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use crate::{HUGE_PAGE_BYTES, PageKind, Refusal, Region, sys};

/// Pages in one call: enough to make the call cheap, and little memory for its arrays.
const BATCH_PAGES: usize = 16_384;

/// Where the bytes of a range are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Residency {
    /// Bytes on each node that has any, by the node's number.
    pub by_node: BTreeMap<usize, u64>,
    /// Bytes whose page is not present: never touched, or swapped out.
    pub absent_bytes: u64,
    /// Bytes about which the kernel gave an error number instead.
    pub unknown: BTreeMap<i32, u64>,
}

impl Residency {
    /// Bytes that are present, on whatever node.
    pub fn present_bytes(&self) -> u64 {
        self.by_node.values().sum()
    }

    /// Present bytes on one node.
    pub fn on_node(&self, node: usize) -> u64 {
        self.by_node.get(&node).copied().unwrap_or(0)
    }

    fn count(&mut self, status: i32, bytes: u64) {
        match usize::try_from(status) {
            Ok(node) => *self.by_node.entry(node).or_default() += bytes,
            Err(_) if status == sys::ABSENT => self.absent_bytes += bytes,
            Err(_) => *self.unknown.entry(status.saturating_neg()).or_default() += bytes,
        }
    }
}

impl fmt::Display for Residency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (node, bytes) in &self.by_node {
            write!(f, "node {node}: {bytes} bytes, ")?;
        }
        for (errno, bytes) in &self.unknown {
            write!(f, "{}: {bytes} bytes, ", sys::error_text(*errno))?;
        }
        write!(f, "not present: {} bytes", self.absent_bytes)
    }
}

/// What moving a range did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Migration {
    /// Bytes that are on the target node now, those among them that were there before.
    pub there_bytes: u64,
    /// Bytes whose page is not present; they will come from where the policy says.
    pub absent_bytes: u64,
    /// Bytes that stayed elsewhere, by the kernel's error number: ENOMEM (the node is full), EBUSY (in use by a device or
    /// being moved; try again), EACCES (shared with another process).
    pub failed: BTreeMap<i32, u64>,
}

impl Region {
    /// Where the pages of a part are. Makes none present. On a machine with one node this works in every container.
    ///
    /// # Panics
    /// If the range is not inside the region, or its ends are not multiples of 2 MiB.
    pub fn residency(&self, range: Range<usize>) -> Result<Residency, Refusal> {
        let mut residency = Residency::default();
        let asked = self.each_batch(range.clone(), |pages, step| {
            let mut statuses = vec![sys::UNASKED; pages.len()];
            sys::move_pages(pages, None, &mut statuses)?;
            statuses.iter().for_each(|status| residency.count(*status, step));
            Ok(())
        });
        match asked {
            Ok(()) => Ok(residency),
            Err(refusal) if self.nodes().single => self.residency_of_one_node(range).ok_or(refusal),
            Err(refusal) => Err(refusal),
        }
    }

    /// With one node it is enough to know which pages are present, which every process may ask.
    fn residency_of_one_node(&self, range: Range<usize>) -> Option<Residency> {
        let mut residency = Residency::default();
        let (start, bytes) = self.checked(&range);
        let node = i32::try_from(self.nodes().memory[0]).ok()?;
        for present in sys::present(start, bytes).ok()? {
            residency.count(if present { node } else { sys::ABSENT }, sys::page_bytes() as u64);
        }
        Some(residency)
    }

    /// Moves the present pages of a part to a node. Its policy stays what it was: set that first
    /// ([`place`](Region::place)), or pages touched meanwhile come from elsewhere.
    ///
    /// # Panics
    /// If the range is not inside the region, or its ends are not multiples of 2 MiB.
    pub fn migrate(&self, range: Range<usize>, node: usize) -> Result<Migration, Refusal> {
        let mut after = Residency::default();
        self.each_batch(range, |pages, step| {
            let mut statuses = vec![sys::UNASKED; pages.len()];
            sys::move_pages(pages, Some(node), &mut statuses)?;
            // After a page that can't be moved the kernel may leave the rest of a batch as it is: ask where those are.
            let left: Vec<usize> = (0..pages.len()).filter(|i| statuses[*i] == sys::UNASKED).collect();
            if !left.is_empty() {
                let pages: Vec<usize> = left.iter().map(|i| pages[*i]).collect();
                let mut asked = vec![sys::UNASKED; pages.len()];
                sys::move_pages(&pages, None, &mut asked)?;
                left.iter().zip(asked).for_each(|(i, status)| statuses[*i] = status);
            }
            statuses.iter().for_each(|status| after.count(*status, step));
            Ok(())
        })?;
        let there_bytes = after.by_node.remove(&node).unwrap_or(0);
        let mut failed = after.unknown;
        let elsewhere: u64 = after.by_node.values().sum();
        if elsewhere > 0 {
            *failed.entry(libc::EAGAIN).or_default() += elsewhere;
        }
        Ok(Migration { there_bytes, absent_bytes: after.absent_bytes, failed })
    }

    /// Calls `each` with the addresses of a range's pages, a batch at a time, and the bytes that each address stands for.
    fn each_batch(
        &self,
        range: Range<usize>,
        mut each: impl FnMut(&[usize], u64) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let (start, bytes) = self.checked(&range);
        let step = if self.pages() == PageKind::Reserved { HUGE_PAGE_BYTES } else { sys::page_bytes() };
        let first = start.as_ptr().addr();
        for batch in (first..first + bytes).step_by(step * BATCH_PAGES) {
            let end = (first + bytes).min(batch + step * BATCH_PAGES);
            let pages: Vec<usize> = (batch..end).step_by(step).collect();
            each(&pages, step as u64)?;
        }
        Ok(())
    }
}
