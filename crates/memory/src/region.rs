//! Which bytes does a policy hold for? Private zeroed memory, aligned to huge pages, with a policy for each part.

use std::fmt;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use homenode_topology::Topology;

use crate::sys::{self, Mode};
use crate::{HUGE_PAGE_BYTES, HugePages, MemoryError, Placement, Policy, Refusal};

/// What a region is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// Small pages.
    Small,
    /// Small pages that the kernel may join to huge ones; how many are is its affair.
    Transparent,
    /// Reserved 2 MiB pages.
    Reserved,
}

impl fmt::Display for PageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PageKind::Small => "small pages",
            PageKind::Transparent => "transparent huge pages",
            PageKind::Reserved => "reserved huge pages",
        })
    }
}

/// Zeroed memory with a policy: private to this process, readable and writable, aligned to 2 MiB, unmapped on drop.
/// Handing out references to its bytes is the owner's task; the region itself never reads or changes them.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    bytes: usize,
    pages: PageKind,
    nodes: Nodes,
    parts: Mutex<Parts>,
}

// SAFETY: a region is a range of addresses; its own methods make system calls on it and, in pre-faulting, atomic
// exchanges of a byte with itself. Whoever reads or writes through `as_ptr` answers for the accesses.
unsafe impl Send for Region {}
// SAFETY: as above: no method hands out a reference to the bytes.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `bytes` (rounded up to 2 MiB) of zeroed memory with the given policy. No page is touched yet.
    ///
    /// A policy that the kernel refuses leaves a region without policy, see [`placement`](Region::placement).
    ///
    /// # Errors
    /// [`MemoryError::Map`] without enough address space, [`MemoryError::HugePages`] and
    /// [`MemoryError::HugePagesOnNodes`] when reserved pages are required and missing, [`MemoryError::NoSuchNode`],
    /// and [`MemoryError::Bind`] when binding is refused.
    pub fn new(
        bytes: usize,
        policy: &Policy,
        huge_pages: HugePages,
        topology: &Topology,
    ) -> Result<Region, MemoryError> {
        let nodes = Nodes::of(topology);
        nodes.check(policy)?;
        let rounded = bytes.max(1).checked_next_multiple_of(HUGE_PAGE_BYTES);
        let too_much = || MemoryError::Map { bytes, source: io::ErrorKind::OutOfMemory.into() };
        let bytes = rounded.ok_or_else(too_much)?;
        let (start, pages) = map(bytes, policy, huge_pages, &nodes)?;
        // From here on, errors unmap.
        let parts =
            Mutex::new(Parts(vec![Part { start: 0, policy: Policy::Default, placement: Placement::NotNeeded }]));
        let region = Region { start, bytes, pages, nodes, parts };
        if *policy != Policy::Default {
            region.place(0..bytes, policy)?;
        }
        Ok(region)
    }

    /// First byte; aligned to 2 MiB. Valid for reads and writes of [`len`](Region::len) bytes while the region lives.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Bytes of the region: what was asked for, rounded up to 2 MiB; never 0.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// What the region is made of.
    pub fn pages(&self) -> PageKind {
        self.pages
    }

    /// Sets the policy of a part, for its pages that are not present yet. Present ones stay where they are
    /// ([`migrate`](Region::migrate) moves them).
    ///
    /// # Errors
    /// As [`new`](Region::new); the part's policy is unchanged then.
    ///
    /// # Panics
    /// If the range is not inside the region, or its ends are not multiples of 2 MiB.
    pub fn place(&self, range: Range<usize>, policy: &Policy) -> Result<Placement, MemoryError> {
        self.nodes.check(policy)?;
        let (start, bytes) = self.checked(&range);
        if bytes == 0 {
            return Ok(Placement::NotNeeded);
        }
        if self.pages == PageKind::Reserved {
            check_huge_bytes(bytes, policy, &self.nodes)?;
        }
        let set = |mode, nodes: &[usize]| sys::set_range_policy(start, bytes, mode, nodes);
        let placement = apply(policy, &self.nodes, set)?;
        self.lock_parts().set(range, self.bytes, policy, &placement);
        Ok(placement)
    }

    /// Gives a part's pages back to the kernel; its addresses stay valid, and whoever touches them finds zeros. The policy stays.
    ///
    /// # Safety
    /// Nobody relies on the part's contents any more. Accesses at the same time are as sound as any others to these bytes.
    ///
    /// # Errors
    /// The kernel's; before Linux 5.18 it cannot give back reserved huge pages.
    ///
    /// # Panics
    /// If the range is not inside the region, or its ends are not multiples of 2 MiB.
    pub unsafe fn discard(&self, range: Range<usize>) -> io::Result<()> {
        let (start, bytes) = self.checked(&range);
        // SAFETY: the caller's promise.
        if bytes == 0 { Ok(()) } else { unsafe { sys::discard(start, bytes) } }
    }

    /// Splits the region into `count` parts of whole huge pages, as even as that allows; the last ones may be empty.
    pub fn split(&self, count: usize) -> Vec<Range<usize>> {
        let huge = self.bytes / HUGE_PAGE_BYTES;
        let edge = |i: usize| (huge as u128 * i as u128 / count as u128) as usize * HUGE_PAGE_BYTES;
        (0..count).map(|i| edge(i)..edge(i + 1)).collect()
    }

    /// What became of the policy, of the first part if there are several.
    pub fn placement(&self) -> Placement {
        self.lock_parts().0[0].placement.clone()
    }

    /// All parts with the policy that each was given and what became of it, ascending.
    pub fn placements(&self) -> Vec<(Range<usize>, Policy, Placement)> {
        let parts = self.lock_parts();
        let ends = parts.0.iter().skip(1).map(|part| part.start).chain([self.bytes]);
        parts.0.iter().zip(ends).map(|(p, end)| (p.start..end, p.policy.clone(), p.placement.clone())).collect()
    }

    pub(crate) fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// Address and length of a range.
    pub(crate) fn checked(&self, range: &Range<usize>) -> (NonNull<u8>, usize) {
        assert!(range.start <= range.end && range.end <= self.bytes, "{range:?} is not inside the region");
        let aligned = range.start.is_multiple_of(HUGE_PAGE_BYTES) && range.end.is_multiple_of(HUGE_PAGE_BYTES);
        assert!(aligned, "{range:?} is not made of whole huge pages");
        // SAFETY: range.start <= self.bytes, so the address is inside the mapping or one past it.
        (unsafe { self.start.add(range.start) }, range.end - range.start)
    }

    /// Nothing that holds the lock can leave the parts half changed.
    fn lock_parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: start and bytes are exactly the mapping made in `new`; who still used its bytes broke `as_ptr`'s contract.
        unsafe { sys::unmap(self.start, self.bytes) };
    }
}

fn map(
    bytes: usize,
    policy: &Policy,
    huge_pages: HugePages,
    nodes: &Nodes,
) -> Result<(NonNull<u8>, PageKind), MemoryError> {
    if matches!(huge_pages, HugePages::Try | HugePages::Require) {
        // Where one may do without them, they are not worth another node.
        let wanted = match policy {
            Policy::Preferred(node) if huge_pages == HugePages::Try => Policy::Bind(vec![*node]),
            policy => policy.clone(),
        };
        let reserved = check_huge_bytes(bytes, &wanted, nodes)
            .and_then(|()| sys::map(bytes, true).map_err(|source| MemoryError::HugePages { bytes, source }));
        match reserved {
            Ok(start) => return Ok((start, PageKind::Reserved)),
            Err(error) if huge_pages == HugePages::Require => return Err(error),
            Err(_) => {}
        }
    }
    let start = sys::map(bytes, false).map_err(|source| MemoryError::Map { bytes, source })?;
    let wanted = huge_pages != HugePages::Off;
    sys::advise_huge(start, bytes, wanted);
    Ok((start, if wanted { PageKind::Transparent } else { PageKind::Small }))
}

/// The kernel keeps a mapping's reserved pages aside, but not those of a certain node: a bound page that its node cannot
/// give is a SIGBUS when touched (Documentation/admin-guide/mm/hugetlbpage.rst). So they are counted first; who takes them
/// in between is found by pre-faulting, which reports instead of being killed.
fn check_huge_bytes(bytes: usize, policy: &Policy, nodes: &Nodes) -> Result<(), MemoryError> {
    let Policy::Bind(bound) = policy else {
        return Ok(());
    };
    if nodes.uniform {
        return Ok(());
    }
    let free_bytes = bound.iter().map(|node| sys::free_huge_bytes(*node)).fold(0, u64::saturating_add);
    if free_bytes >= bytes as u64 {
        return Ok(());
    }
    Err(MemoryError::HugePagesOnNodes { bytes, policy: policy.clone(), free_bytes })
}

/// Bytes that all nodes of this process together could give at this moment, and that its control group allows; nothing where the
/// system doesn't say.
pub fn available_bytes(topology: &Topology) -> Option<u64> {
    let machine: Option<u64> = topology.memory_nodes().iter().map(|node| sys::available_bytes(node.id)).sum();
    machine.map(|bytes| bytes.min(crate::group_available_bytes().unwrap_or(u64::MAX)))
}

/// Bytes that one node could give at this moment; nothing where the system doesn't say.
pub fn node_available_bytes(node: usize) -> Option<u64> {
    sys::available_bytes(node)
}

/// Sets the calling thread's policy: where pages come from that it is the first to touch, outside regions with a policy of
/// their own. New threads inherit it.
///
/// # Errors
/// [`MemoryError::NoSuchNode`], and [`MemoryError::Bind`] when binding is refused.
pub fn set_thread_policy(policy: &Policy, topology: &Topology) -> Result<Placement, MemoryError> {
    let nodes = Nodes::of(topology);
    nodes.check(policy)?;
    apply(policy, &nodes, sys::set_thread_policy)
}

/// Asks the kernel for a policy through `set`, unless all memory is one node.
fn apply(
    policy: &Policy,
    nodes: &Nodes,
    set: impl Fn(Mode, &[usize]) -> Result<(), Refusal>,
) -> Result<Placement, MemoryError> {
    if nodes.uniform || !sys::HAS_POLICIES {
        return Ok(Placement::NotNeeded);
    }
    let asked = match policy {
        Policy::Default => set(Mode::Default, &[]),
        Policy::Local => set(Mode::Local, &[]),
        Policy::Interleave => set(Mode::Interleave, &nodes.interleaved),
        Policy::WeightedInterleave => set(Mode::WeightedInterleave, &nodes.memory),
        Policy::Bind(bound) => set(Mode::Bind, bound),
        Policy::Preferred(node) => set(Mode::Preferred, &[*node]),
    };
    match (asked, policy) {
        (Ok(()), Policy::Default) => Ok(Placement::NotNeeded),
        (Ok(()), _) => Ok(Placement::Applied(policy.clone())),
        // Before Linux 6.9 the mode is unknown.
        (Err(Refusal::NotUnderstood), Policy::WeightedInterleave) => match set(Mode::Interleave, &nodes.interleaved) {
            Ok(()) => Ok(Placement::Applied(Policy::Interleave)),
            Err(refusal) => Ok(Placement::Refused(policy.clone(), refusal)),
        },
        (Err(refusal), Policy::Bind(_)) => Err(MemoryError::Bind { policy: policy.clone(), refusal }),
        (Err(refusal), _) => Ok(Placement::Refused(policy.clone(), refusal)),
    }
}

/// What a region has to know of the machine.
#[derive(Clone, Debug)]
pub(crate) struct Nodes {
    /// Whether all memory is one node, so that no policy can matter.
    pub(crate) uniform: bool,
    /// Whether the machine has one node, whatever this process may use.
    pub(crate) single: bool,
    /// Nodes that give memory to this process.
    pub(crate) memory: Vec<usize>,
    /// Those of them that plain interleaving is over.
    pub(crate) interleaved: Vec<usize>,
    /// For every node: its number, and the usable CPUs nearest to it (its own, unless it has none).
    pub(crate) cpus: Vec<(usize, Vec<usize>)>,
}

impl Nodes {
    pub(crate) fn of(topology: &Topology) -> Nodes {
        let usable = |node: usize| -> Vec<usize> {
            let cpus = topology.cpus().iter().filter(|cpu| cpu.node == node && cpu.allowed);
            cpus.map(|cpu| cpu.id).collect()
        };
        let nearest = |node: usize| {
            let mut by_distance = topology.nearest(node).into_iter().map(usable);
            by_distance.find(|cpus| !cpus.is_empty()).unwrap_or_default()
        };
        let memory = topology.memory_nodes();
        let with_cpus: Vec<usize> = memory.iter().filter(|n| !n.cpus.is_empty()).map(|n| n.id).collect();
        let memory: Vec<usize> = memory.iter().map(|node| node.id).collect();
        Nodes {
            uniform: topology.is_uniform(),
            single: topology.nodes().len() == 1,
            interleaved: if with_cpus.is_empty() { memory.clone() } else { with_cpus },
            memory,
            cpus: topology.nodes().iter().map(|node| (node.id, nearest(node.id))).collect(),
        }
    }

    fn check(&self, policy: &Policy) -> Result<(), MemoryError> {
        let named = match policy {
            Policy::Bind(nodes) => nodes.as_slice(),
            Policy::Preferred(node) => std::slice::from_ref(node),
            _ => &[],
        };
        match named.iter().find(|node| !self.memory.contains(node)) {
            Some(&node) => Err(MemoryError::NoSuchNode { policy: policy.clone(), node }),
            None => Ok(()),
        }
    }
}

/// The policies of a region's parts: each holds from its start to the next one's. The first starts at 0.
#[derive(Debug)]
struct Parts(Vec<Part>);

#[derive(Clone, Debug)]
struct Part {
    start: usize,
    policy: Policy,
    placement: Placement,
}

impl Parts {
    /// `range` is not empty.
    fn set(&mut self, range: Range<usize>, region_bytes: usize, policy: &Policy, placement: &Placement) {
        // What held up to the end of the range goes on behind it.
        let behind = self.0.iter().rev().find(|part| part.start <= range.end).cloned();
        self.0.retain(|part| !range.contains(&part.start) && part.start != range.end);
        self.0.push(Part { start: range.start, policy: policy.clone(), placement: placement.clone() });
        if let Some(part) = behind.filter(|_| range.end < region_bytes) {
            self.0.push(Part { start: range.end, ..part });
        }
        self.0.sort_unstable_by_key(|part| part.start);
        self.0.dedup_by(|next, part| next.policy == part.policy && next.placement == part.placement);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_agree_with_a_plain_table(sets in proptest::collection::vec((0usize..16, 1usize..16, 0usize..3), 1..20)) {
            const BYTES: usize = 16;
            let mut parts = Parts(vec![Part { start: 0, policy: Policy::Default, placement: Placement::NotNeeded }]);
            let mut table = vec![Policy::Default; BYTES];
            for (start, len, node) in sets {
                let end = (start + len).min(BYTES);
                parts.set(start..end, BYTES, &Policy::Preferred(node), &Placement::NotNeeded);
                table[start..end].fill(Policy::Preferred(node));
            }
            prop_assert_eq!(parts.0[0].start, 0);
            for (at, policy) in table.iter().enumerate() {
                let part = parts.0.iter().rev().find(|part| part.start <= at).unwrap();
                prop_assert_eq!(&part.policy, policy);
            }
        }
    }
}
