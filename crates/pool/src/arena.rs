//! Where do frames and descriptors lie? The pool's memory, divided among nodes and partitions.
//!
//! Each node that the policy names gets a slab: frames and their descriptors, in regions of their own that belong to that
//! node. So a page's node is decided when a frame is chosen for it, by its number (`interleave`, `weighted`, `bind`) or by
//! who asks (`local`, `default`), and never by which thread happened to touch the memory first.

use std::ops::Range;
use std::sync::Arc;

use homenode_memory::{HugePages, Policy, Region, prefault_all};
use homenode_topology::{Node, Topology};

use crate::frame::Frame;
use crate::partition::Partition;
use crate::stats::PoolRegion;
use crate::{PAGE_BYTES, PageNo, PoolConfig, PoolError};

/// Frames in 2 MiB: partitions begin at multiples of this, so that no huge page is shared.
const UNIT: usize = (2 << 20) / PAGE_BYTES;
// Partitions begin at huge pages' borders.
const _: () = assert!(UNIT * PAGE_BYTES == homenode_memory::HUGE_PAGE_BYTES);
/// A partition that was not asked for has at least 16 MiB.
const PARTITION_UNITS_MIN: usize = 8;
/// Pages in a row that are dealt to one node: few enough to spread a small table, and enough for runs of input and output
/// to stay on one node.
pub(crate) const DEAL_PAGES: u64 = 16;

/// The memory of one node's partitions. Kept only to be unmapped when the pool ends.
struct Slab {
    node: usize,
    partitions: Range<usize>,
    data: Region,
    descriptors: Region,
}

/// All of the pool's frames.
pub(crate) struct Arena {
    slabs: Vec<Slab>,
    /// CPU number -> partition of tasks that run there.
    homes: Box<[u32]>,
    /// Turn -> slab: who gets the next [`DEAL_PAGES`] page numbers. Empty if pages go where they are asked for.
    deal: Box<[u16]>,
}

/// A node's part of the pool before it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Share {
    node: usize,
    /// CPUs that are at home there.
    cpus: Vec<usize>,
    weight: usize,
    policy: Policy,
}

/// The nodes that share the pool under a policy.
fn shares(policy: &Policy, topology: &Topology) -> Vec<Share> {
    let memory = topology.memory_nodes();
    let usable = |node: &Node| -> Vec<usize> {
        node.cpus.iter().copied().filter(|id| topology.cpu(*id).is_some_and(|cpu| cpu.allowed)).collect()
    };
    let share =
        |node: &&Node, weight: usize, policy: Policy| Share { node: node.id, cpus: usable(node), weight, policy };
    if topology.is_uniform() {
        return memory[..1].iter().map(|node| share(node, 1, policy.clone())).collect();
    }
    let mut with_cpus: Vec<&Node> = memory.iter().copied().filter(|node| !usable(node).is_empty()).collect();
    if with_cpus.is_empty() {
        with_cpus = memory.clone();
    }
    let weights: Option<Vec<u32>> = memory.iter().map(|node| node.interleave_weight.filter(|w| *w > 0)).collect();
    match (policy, weights) {
        (Policy::Bind(nodes), _) => {
            let named = memory.iter().filter(|node| nodes.contains(&node.id));
            named.map(|node| share(node, 1, Policy::Bind(vec![node.id]))).collect()
        }
        (Policy::Preferred(wanted), _) => {
            let named = memory.iter().filter(|node| node.id == *wanted);
            named.map(|node| share(node, 1, policy.clone())).collect()
        }
        (Policy::WeightedInterleave, Some(weights)) => {
            let weighted = memory.iter().zip(weights);
            weighted.map(|(node, weight)| share(node, weight as usize, Policy::Preferred(node.id))).collect()
        }
        (Policy::Default, _) => with_cpus.iter().map(|node| share(node, 1, Policy::Default)).collect(),
        _ => with_cpus.iter().map(|node| share(node, 1, Policy::Preferred(node.id))).collect(),
    }
}

/// In which order shares get page numbers: each as often as its weight says, as evenly mixed as that allows.
fn deal(weights: &[usize]) -> Vec<u16> {
    let total: usize = weights.iter().sum();
    let mut credit = vec![0i64; weights.len()];
    let turn = |_| {
        credit.iter_mut().zip(weights).for_each(|(credit, weight)| *credit += *weight as i64);
        // The first of the richest.
        let next = (0..credit.len()).rev().max_by_key(|share| credit[*share])?;
        credit[next] -= total as i64;
        u16::try_from(next).ok()
    };
    (0..total).filter_map(turn).collect()
}

/// How many frames each partition of each share has. A share without room for a huge page has none.
fn layout(config: &PoolConfig, shares: &[(usize, usize)]) -> Vec<Vec<usize>> {
    let units = (config.bytes / (UNIT * PAGE_BYTES)).max(1);
    let cpus: usize = shares.iter().map(|(cpus, _)| cpus).sum();
    let wanted = match config.partitions {
        0 => cpus.max(1).min((units / PARTITION_UNITS_MIN).max(1)),
        n => n.min(units),
    };
    let total: usize = shares.iter().map(|(_, weight)| weight).sum();
    let count = wanted.max(shares.len());
    let mut dealt = 0;
    let mut before = 0;
    let each = shares.iter().enumerate().map(|(share, (_, weight))| {
        before += weight;
        let mine = units * before / total - dealt;
        dealt += mine;
        let partitions = (count / shares.len() + usize::from(share < count % shares.len())).min(mine);
        (0..partitions).map(|i| (mine / partitions + usize::from(i < mine % partitions)) * UNIT).collect()
    });
    each.collect()
}

impl Arena {
    pub(crate) fn new(config: &PoolConfig, topology: &Topology) -> Result<(Arena, Vec<Partition>), PoolError> {
        let mut shares = shares(&config.policy, topology);
        if shares.is_empty() {
            // A node that isn't there: the region says so.
            let nowhere = Region::new(1, &config.policy, HugePages::Off, topology).map_err(Arc::new)?;
            drop(nowhere);
            shares = self::shares(&Policy::Default, topology);
        }
        let sizes: Vec<_> = shares.iter().map(|share| (share.cpus.len(), share.weight)).collect();
        let mut slabs = Vec::new();
        let mut partitions = Vec::new();
        for (share, counts) in shares.iter().zip(layout(config, &sizes)).filter(|(_, counts)| !counts.is_empty()) {
            slabs.push(Slab::map(config, topology, share, &counts)?);
            partitions.push(counts);
        }
        if config.prefault {
            // Descriptors too: all of them are written next, by this one thread.
            let regions: Vec<&Region> = slabs.iter().flat_map(|slab| [&slab.data, &slab.descriptors]).collect();
            prefault_all(&regions).map_err(Arc::new)?;
        }
        let mut made = Vec::new();
        for (slab, counts) in slabs.iter_mut().zip(partitions) {
            slab.fill(&counts, &mut made);
        }
        let deal = match config.policy {
            Policy::Default | Policy::Local => Vec::new(),
            _ if slabs.len() == 1 => Vec::new(),
            _ => {
                let weight = |slab: &Slab| shares.iter().find(|share| share.node == slab.node).map_or(1, |s| s.weight);
                deal(&slabs.iter().map(weight).collect::<Vec<_>>())
            }
        };
        let homes = homes(&slabs, topology);
        Ok((Arena { slabs, homes: homes.into(), deal: deal.into() }, made))
    }

    /// The partition of tasks that run on this CPU.
    pub(crate) fn home(&self, cpu: usize) -> usize {
        self.homes[cpu % self.homes.len()] as usize
    }

    /// Whether a page's number decides on which node it lies.
    pub(crate) fn is_dealt(&self) -> bool {
        !self.deal.is_empty()
    }

    /// The partition that a page's frame is to come from, wanted by a task at home in partition `home`.
    pub(crate) fn partition_for(&self, page_no: PageNo, home: usize) -> usize {
        if self.deal.is_empty() {
            return home;
        }
        let mine = &self.slab_for(page_no).partitions;
        // The tasks of one core share a partition on every node, so that cores meet as seldom there as at home.
        if mine.contains(&home) { home } else { mine.start + home % mine.len() }
    }

    /// The slab that a page is dealt to.
    fn slab_for(&self, page_no: PageNo) -> &Slab {
        let turn = (page_no / DEAL_PAGES) as usize % self.deal.len();
        &self.slabs[self.deal[turn] as usize]
    }

    /// The node that a page is dealt to, where numbers decide.
    pub(crate) fn node_for(&self, page_no: PageNo) -> usize {
        self.slab_for(page_no).node
    }

    pub(crate) fn frame_bytes(&self) -> usize {
        self.slabs.iter().map(|s| s.data.len()).sum()
    }

    pub(crate) fn descriptor_bytes(&self) -> usize {
        self.slabs.iter().map(|s| s.descriptors.len()).sum()
    }

    pub(crate) fn regions(&self) -> Vec<PoolRegion> {
        let of = |slab: &Slab| {
            let named = |what: &str| format!("pool {what}, node {}", slab.node);
            [
                PoolRegion::of(named("frames"), Some(slab.node), &slab.data),
                PoolRegion::of(named("descriptors"), Some(slab.node), &slab.descriptors),
            ]
        };
        self.slabs.iter().flat_map(of).collect()
    }
}

/// CPU number -> partition: one of its own node's slab, or of the nearest node that has one.
fn homes(slabs: &[Slab], topology: &Topology) -> Vec<u32> {
    let highest = topology.cpus().iter().map(|cpu| cpu.id).max().unwrap_or(0);
    let mut homes = vec![0; highest + 1];
    let mut residents = vec![0; slabs.len()];
    for cpu in topology.cpus() {
        let slab_on = |node: &usize| slabs.iter().position(|slab| slab.node == *node);
        let slab = topology.nearest(cpu.node).iter().find_map(slab_on).unwrap_or(0);
        let mine = &slabs[slab].partitions;
        homes[cpu.id] = (mine.start + residents[slab] % mine.len()) as u32;
        residents[slab] += 1;
    }
    homes
}

impl Slab {
    /// Maps one node's memory, for partitions of `counts` frames.
    fn map(config: &PoolConfig, topology: &Topology, share: &Share, counts: &[usize]) -> Result<Slab, PoolError> {
        let frames: usize = counts.iter().sum();
        let map = |bytes: usize| {
            let huge = if config.huge_pages && bytes >= UNIT * PAGE_BYTES { HugePages::Try } else { HugePages::Off };
            Region::new(bytes, &share.policy, huge, topology).map_err(Arc::new)
        };
        Ok(Slab {
            node: share.node,
            partitions: 0..0,
            data: map(frames * PAGE_BYTES)?,
            descriptors: map(frames * size_of::<Frame>())?,
        })
    }

    /// Writes the descriptors and makes the partitions.
    fn fill(&mut self, counts: &[usize], partitions: &mut Vec<Partition>) {
        let begin = partitions.len();
        let first = self.descriptors.as_ptr().cast::<Frame>();
        let frames: usize = counts.iter().sum();
        Frame::name_memory(first, frames);
        homenode_platform::name_memory(self.data.as_ptr().cast::<[u8; PAGE_BYTES]>(), frames, "page", &[]);
        let mut at = 0;
        for &count in counts {
            let id = partitions.len();
            for index in 0..count {
                // SAFETY: at + index < frames, so both places lie in their regions; regions are
                // aligned to 2 MiB, so a descriptor to its 128 bytes; nobody else knows them yet.
                unsafe {
                    let bytes = self.data.as_ptr().add((at + index) * PAGE_BYTES);
                    first.add(at + index).write(Frame::new(id as u32, index as u32, bytes));
                }
            }
            // SAFETY: the descriptors at.. at+count were just written, numbered 0.. for this
            // partition; the region lives as long as the pool, which drops partitions first.
            partitions.push(unsafe { Partition::new(id, self.node, first.add(at), count) });
            at += count;
        }
        self.partitions = begin..partitions.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_topology::machines;

    const MIB: usize = 1 << 20;

    fn shape(bytes: usize, partitions: usize, cpus: &[usize]) -> Vec<Vec<usize>> {
        let shares: Vec<_> = cpus.iter().map(|cpus| (*cpus, 1)).collect();
        layout(&PoolConfig { bytes, partitions, ..PoolConfig::default() }, &shares)
    }

    fn machine(name: &str) -> Topology {
        Topology::from_bundle(machines::text(name).unwrap()).unwrap()
    }

    fn nodes(policy: &str, name: &str) -> Vec<(usize, usize)> {
        let shares = shares(&policy.parse().unwrap(), &machine(name));
        shares.iter().map(|share| (share.node, share.weight)).collect()
    }

    #[test]
    fn partitions_are_whole_huge_pages_and_use_all_of_them() {
        assert_eq!(shape(0, 0, &[2]), [[128]], "never less than one unit");
        assert_eq!(shape(64 * MIB, 0, &[2]), [[2048, 2048]]);
        assert_eq!(shape(16 * MIB, 0, &[8]), [[1024]], "small pools are not chopped up");
        assert_eq!(shape(10 * MIB, 4, &[2]), [[256, 128, 128, 128]]);
        assert_eq!(shape(64 * MIB, 0, &[2, 2]), [[1024, 1024], [1024, 1024]]);
        let small = shape(2 * MIB, 0, &[2, 2]);
        assert_eq!(small.iter().filter(|counts| !counts.is_empty()).count(), 1, "fewer units than nodes");
        for units in 1..40 {
            let frames: usize = shape(units * 2 * MIB, 3, &[3, 3]).iter().flatten().sum();
            assert_eq!(frames, units * UNIT);
        }
    }

    #[test]
    fn weights_decide_the_sizes() {
        let config = PoolConfig { bytes: 80 * MIB, partitions: 4, ..PoolConfig::default() };
        let frames: Vec<usize> = layout(&config, &[(2, 5), (2, 2), (0, 1)]).iter().map(|p| p.iter().sum()).collect();
        assert_eq!(frames, [25 * UNIT, 10 * UNIT, 5 * UNIT]);
    }

    #[test]
    fn turns_are_as_many_as_weights_say_and_mixed() {
        assert_eq!(deal(&[1, 1, 1, 1]), [0, 1, 2, 3]);
        assert_eq!(deal(&[3, 1]), [0, 0, 1, 0]);
        let turns = deal(&[5, 2, 1]);
        let count = |share| turns.iter().filter(|turn| **turn == share).count();
        assert_eq!((count(0), count(1), count(2)), (5, 2, 1));
    }

    #[test]
    fn policies_choose_their_nodes() {
        assert_eq!(nodes("interleave", "kunpeng-920"), [(0, 1), (1, 1), (2, 1), (3, 1)]);
        assert_eq!(nodes("bind=1,3", "kunpeng-920"), [(1, 1), (3, 1)]);
        assert_eq!(nodes("preferred=2", "kunpeng-920"), [(2, 1)]);
        assert_eq!(nodes("preferred=9", "kunpeng-920"), []);
        assert_eq!(nodes("interleave", "sapphire-rapids-2s-cxl"), [(0, 1), (1, 1)], "far memory is not for everything");
        assert_eq!(nodes("interleave", "laptop-8"), [(0, 1)]);
    }

    #[test]
    fn one_node_deals_nothing_and_four_deal_by_page_number() {
        let config = |policy: &str| PoolConfig {
            bytes: 16 * MIB,
            partitions: 8,
            huge_pages: false,
            policy: policy.parse().unwrap(),
            ..PoolConfig::default()
        };
        let (one, _) = Arena::new(&config("interleave"), &machine("laptop-8")).unwrap();
        assert!(!one.is_dealt());
        let four = machine("kunpeng-920").as_one_node();
        assert!(!Arena::new(&config("interleave"), &four).unwrap().0.is_dealt());
        assert!(Arena::new(&config("bind=7"), &machine("kunpeng-920")).is_err());
    }
}
