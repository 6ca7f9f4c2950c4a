//! Where do frames and descriptors lie? The pool's memory, divided among nodes and partitions.
//!
//! Each node that the policy names gets a slab: frames and their descriptors, in regions of their own that belong to that
//! node. So a page's node is decided when a frame is chosen for it, by its number (`interleave`, `weighted`, `bind`) or by
//! who asks (`local`, `default`), and never by which thread happened to touch the memory first.

use std::ops::Range;
use std::sync::Arc;

use homenode_memory::{HugePages, Policy, Region, prefault_all};
use homenode_platform::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Release},
};
use homenode_platform::sync::Mutex;
use homenode_topology::{Node, Topology};

use crate::frame::Frame;
use crate::partition::{Partition, UNIT};
use crate::partitions::Partitions;
use crate::stats::PoolRegion;
use crate::{PAGE_BYTES, PageNo, PoolConfig, PoolError};

// Partitions begin at huge pages' borders.
const _: () = assert!(UNIT * PAGE_BYTES == homenode_memory::HUGE_PAGE_BYTES);
/// A partition that was not asked for has at least 16 MiB.
const PARTITION_UNITS_MIN: usize = 8;
/// Pages in a row that are dealt to one node: few enough to spread a small table, and enough for runs of input and output
/// to stay on one node.
pub(crate) const DEAL_PAGES: u64 = 16;

/// Memory of one node's partitions.
pub(crate) struct Slab {
    pub(crate) node: usize,
    /// Of the second tier.
    pub(crate) far: bool,
    pub(crate) data: Region,
    pub(crate) descriptors: Region,
}

/// Which partition a page's frame comes from. Never changed: a new policy makes a new one.
#[derive(PartialEq, Eq)]
pub(crate) struct Routes {
    /// CPU number -> partition of tasks that run there, and its group.
    homes: Box<[(u32, u16)]>,
    /// Turn -> group: who gets the next [`DEAL_PAGES`] page numbers. Empty if pages go where they are asked for.
    deal: Box<[u16]>,
    /// The partitions of each node.
    groups: Box<[Group]>,
}

/// The partitions of one node.
#[derive(PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) node: usize,
    pub(crate) partitions: Vec<u32>,
}

/// All of the pool's memory for frames, and the way to it.
pub(crate) struct Arena {
    slabs: Mutex<Vec<Arc<Slab>>>,
    /// Address of the routes in force.
    routes: AtomicUsize,
    /// All routes that ever were: somebody may still be reading one. They change seldom.
    published: Mutex<Vec<*mut Routes>>,
}

// SAFETY: the addresses in `published` are of routes that only this arena owns; routes and slabs are Send and Sync.
unsafe impl Send for Arena {}
// SAFETY: as above; the list is behind a mutex.
unsafe impl Sync for Arena {}

/// A node's part of the pool before it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) node: usize,
    /// CPUs that are at home there.
    pub(crate) cpus: Vec<usize>,
    pub(crate) weight: usize,
    pub(crate) policy: Policy,
}

/// The nodes that share the pool under a policy.
///
/// # Errors
/// When the policy names a node that there is none of.
pub(crate) fn shares_of(policy: &Policy, far: &[usize], topology: &Topology) -> Result<Vec<Share>, PoolError> {
    // A region says what is wrong with a policy.
    Region::new(1, policy, HugePages::Off, topology).map_err(Arc::new)?;
    let mut shares = shares(policy, topology);
    // The second tier's nodes are not in the first, unless they are named for both.
    let is_named = matches!(policy, Policy::Bind(_) | Policy::Preferred(_));
    if !is_named && shares.iter().any(|share| !far.contains(&share.node)) {
        shares.retain(|share| !far.contains(&share.node));
    }
    Ok(if shares.is_empty() { self::shares(&Policy::Default, topology) } else { shares })
}

/// Whether a page's number decides on which of several nodes it lies.
pub(crate) fn deals(policy: &Policy) -> bool {
    !matches!(policy, Policy::Default | Policy::Local)
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
pub(crate) fn layout(config: &PoolConfig, shares: &[Share]) -> Vec<Vec<usize>> {
    let units = (config.bytes / (UNIT * PAGE_BYTES)).max(1);
    let cpus: usize = shares.iter().map(|share| share.cpus.len()).sum();
    let wanted = match config.partitions {
        0 => cpus.max(1).min((units / PARTITION_UNITS_MIN).max(1)),
        n => n.min(units),
    };
    let total: usize = shares.iter().map(|share| share.weight).sum();
    let count = wanted.max(shares.len());
    let mut dealt = 0;
    let mut before = 0;
    let each = shares.iter().enumerate().map(|(share, Share { weight, .. })| {
        before += weight;
        let mine = units * before / total - dealt;
        dealt += mine;
        let partitions = (count / shares.len() + usize::from(share < count % shares.len())).min(mine);
        (0..partitions).map(|i| (mine / partitions + usize::from(i < mine % partitions)) * UNIT).collect()
    });
    each.collect()
}

impl Arena {
    pub(crate) fn new(config: &PoolConfig, topology: &Topology) -> Result<(Arena, Partitions), PoolError> {
        let shares = shares_of(&config.policy, &config.far_nodes, topology)?;
        let mut slabs = Vec::new();
        let layouts = layout(config, &shares);
        let far = crate::far::layout(config, topology)?;
        for (share, counts) in shares.iter().zip(&layouts).filter(|(_, counts)| !counts.is_empty()) {
            slabs.push((Slab::map(config, topology, share.node, &share.policy, counts.iter().sum())?, counts));
        }
        for (node, counts) in &far {
            let bound = Policy::Bind(vec![*node]);
            let slab = Slab::map(config, topology, *node, &bound, counts.iter().sum())?;
            slabs.push((Slab { far: true, ..slab }, counts));
        }
        // What is bound is made present in any case: later there would be nobody to tell that it cannot be had.
        let present = |slab: &Slab| config.prefault || slab.far;
        if slabs.iter().any(|(slab, _)| present(slab)) {
            // Descriptors too: all of them are written next, by this one thread.
            let wanted = slabs.iter().filter(|(slab, _)| present(slab));
            let regions: Vec<&Region> = wanted.flat_map(|(slab, _)| [&slab.data, &slab.descriptors]).collect();
            prefault_all(&regions).map_err(Arc::new)?;
        }
        let arena = Arena { slabs: Mutex::default(), routes: AtomicUsize::new(0), published: Mutex::default() };
        let partitions = Partitions::new(Vec::new());
        for (slab, counts) in slabs {
            arena.add(slab, counts, &partitions)?;
        }
        for partition in partitions.iter() {
            (0..partition.units()).for_each(|unit| partition.activate(unit));
        }
        arena.publish(Routes::new(&config.policy, &shares, topology, &partitions));
        Ok((arena, partitions))
    }

    /// Takes a slab in, as partitions of so many frames without active units.
    ///
    /// # Errors
    /// When there are too many partitions.
    pub(crate) fn add(&self, slab: Slab, counts: &[usize], partitions: &Partitions) -> Result<(), PoolError> {
        let mut slabs = self.slabs.lock();
        let slab = Arc::new(slab);
        slabs.push(slab.clone());
        slab.name_memory();
        let mut at = 0;
        for &count in counts {
            let place = (slabs.len() - 1, at / UNIT);
            let made = partitions.add(|id| slab.partition(id, place, at, count));
            made.ok_or(PoolError::TooManyPartitions)?;
            at += count;
        }
        Ok(())
    }

    pub(crate) fn slabs(&self) -> Vec<Arc<Slab>> {
        self.slabs.lock().clone()
    }

    /// From now on frames are found by `routes`.
    pub(crate) fn publish(&self, routes: Routes) {
        let routes = Box::into_raw(Box::new(routes));
        self.published.lock().push(routes);
        self.routes.store(routes.expose_provenance(), Release);
    }

    pub(crate) fn routes(&self) -> &Routes {
        let address = self.routes.load(Acquire);
        // SAFETY: `publish` put it there, before anything is routed; published routes live as long as the arena and are not changed.
        unsafe { &*std::ptr::with_exposed_provenance::<Routes>(address) }
    }

    pub(crate) fn descriptor_bytes(&self) -> usize {
        self.slabs().iter().map(|slab| slab.descriptors.len()).sum()
    }

    pub(crate) fn regions(&self) -> Vec<PoolRegion> {
        let slabs = self.slabs();
        let of = |(number, slab): (usize, &Arc<Slab>)| {
            // A node that got more memory later has several.
            let same = |other: &&Arc<Slab>| other.node == slab.node && other.far == slab.far;
            let earlier = slabs[..number].iter().filter(same).count();
            let part = if earlier == 0 { String::new() } else { format!(", part {}", earlier + 1) };
            let tier = if slab.far { "far " } else { "" };
            let named = |what: &str| format!("pool {tier}{what}, node {}{part}", slab.node);
            [
                PoolRegion::of(named("frames"), Some(slab.node), &slab.data),
                PoolRegion::of(named("descriptors"), Some(slab.node), &slab.descriptors),
            ]
        };
        slabs.iter().enumerate().flat_map(of).collect()
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for routes in self.published.lock().drain(..) {
            // SAFETY: made by `Box::into_raw` in `publish`; nobody borrows from the arena any more.
            drop(unsafe { Box::from_raw(routes) });
        }
    }
}

impl Routes {
    /// Over the partitions that have active units.
    pub(crate) fn new(policy: &Policy, shares: &[Share], topology: &Topology, partitions: &Partitions) -> Routes {
        let mut groups: Vec<Group> = Vec::new();
        for partition in partitions.iter().filter(|partition| partition.active_frames() > 0 && !partition.is_far()) {
            match groups.iter_mut().find(|group| group.node == partition.node()) {
                Some(group) => group.partitions.push(partition.id() as u32),
                None => groups.push(Group { node: partition.node(), partitions: vec![partition.id() as u32] }),
            }
        }
        let weight =
            |group: &Group| shares.iter().find(|share| share.node == group.node).map_or(0, |share| share.weight);
        let weights: Vec<usize> = groups.iter().map(weight).collect();
        let dealt = deals(policy) && groups.len() > 1 && weights.iter().any(|weight| *weight > 0);
        let deal = if dealt { deal(&weights) } else { Vec::new() };
        Routes { homes: homes(&groups, topology).into(), deal: deal.into(), groups: groups.into() }
    }

    /// The partition of tasks that run on this CPU.
    pub(crate) fn home(&self, cpu: usize) -> usize {
        self.homes[cpu % self.homes.len()].0 as usize
    }

    /// Whether a page's number decides on which node it lies.
    pub(crate) fn is_dealt(&self) -> bool {
        !self.deal.is_empty()
    }

    fn group_for(&self, page_no: PageNo) -> usize {
        self.deal[(page_no / DEAL_PAGES) as usize % self.deal.len()] as usize
    }

    /// The partition that a page's frame is to come from, wanted by a task on this CPU.
    pub(crate) fn partition_for(&self, page_no: PageNo, cpu: usize) -> usize {
        let (home, own) = self.homes[cpu % self.homes.len()];
        if self.deal.is_empty() {
            return home as usize;
        }
        let group = self.group_for(page_no);
        if group == own as usize {
            return home as usize;
        }
        // The tasks of one core share a partition on every node, so that cores meet as seldom there as at home.
        let there = &self.groups[group].partitions;
        there[home as usize % there.len()] as usize
    }

    /// The node that a page is dealt to, where numbers decide.
    pub(crate) fn node_for(&self, page_no: PageNo) -> Option<usize> {
        self.is_dealt().then(|| self.groups[self.group_for(page_no)].node)
    }

    pub(crate) fn groups(&self) -> &[Group] {
        &self.groups
    }
}

/// CPU number -> partition and group: one of its own node's, or of the nearest node that has one.
fn homes(groups: &[Group], topology: &Topology) -> Vec<(u32, u16)> {
    let highest = topology.cpus().iter().map(|cpu| cpu.id).max().unwrap_or(0);
    let mut homes = vec![(groups[0].partitions[0], 0); highest + 1];
    let mut residents = vec![0; groups.len()];
    for cpu in topology.cpus() {
        let group_on = |node: &usize| groups.iter().position(|group| group.node == *node);
        let group = topology.nearest(cpu.node).iter().find_map(group_on).unwrap_or(0);
        let mine = &groups[group].partitions;
        homes[cpu.id] = (mine[residents[group] % mine.len()], group as u16);
        residents[group] += 1;
    }
    homes
}

impl Slab {
    /// Maps memory of one node, for so many frames.
    pub(crate) fn map(
        config: &PoolConfig,
        topology: &Topology,
        node: usize,
        policy: &Policy,
        frames: usize,
    ) -> Result<Slab, PoolError> {
        let map = |bytes: usize| {
            let huge = if config.huge_pages && bytes >= UNIT * PAGE_BYTES { HugePages::Try } else { HugePages::Off };
            Region::new(bytes, policy, huge, topology).map_err(Arc::new)
        };
        Ok(Slab { node, far: false, data: map(frames * PAGE_BYTES)?, descriptors: map(frames * size_of::<Frame>())? })
    }

    fn name_memory(&self) {
        let frames = self.data.len() / PAGE_BYTES;
        Frame::name_memory(self.descriptors.as_ptr().cast::<Frame>(), frames);
        homenode_platform::name_memory(self.data.as_ptr().cast::<[u8; PAGE_BYTES]>(), frames, "page", &[]);
    }

    /// Bytes of frames in a range of units.
    pub(crate) fn bytes(units: Range<usize>) -> Range<usize> {
        units.start * UNIT * PAGE_BYTES..units.end * UNIT * PAGE_BYTES
    }

    /// Makes a partition of the frames from `at` on, and writes their descriptors.
    fn partition(&self, id: usize, place: (usize, usize), at: usize, count: usize) -> Partition {
        assert!((at + count) * PAGE_BYTES <= self.data.len());
        let first = self.descriptors.as_ptr().cast::<Frame>();
        for index in 0..count {
            // SAFETY: at + index lies within the slab's frames, so both places lie in their regions; regions are aligned to 2 MiB,
            // so a descriptor to its 128 bytes; nobody else knows them yet.
            unsafe {
                let bytes = self.data.as_ptr().add((at + index) * PAGE_BYTES);
                first.add(at + index).write(Frame::new(id as u32, index as u32, bytes));
            }
        }
        // SAFETY: the descriptors at.. at+count were just written, numbered 0.. for this partition; the slab lives as long as the
        // arena, and the pool drops partitions before that.
        unsafe { Partition::new(id, self.node, self.far, place, first.add(at), count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_topology::machines;

    const MIB: usize = 1 << 20;

    fn share(cpus: usize, weight: usize) -> Share {
        Share { node: 0, cpus: (0..cpus).collect(), weight, policy: Policy::Default }
    }

    fn shape(bytes: usize, partitions: usize, cpus: &[usize]) -> Vec<Vec<usize>> {
        let shares: Vec<_> = cpus.iter().map(|cpus| share(*cpus, 1)).collect();
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
        let frames: Vec<usize> =
            layout(&config, &[share(2, 5), share(2, 2), share(0, 1)]).iter().map(|p| p.iter().sum()).collect();
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
        assert!(!one.routes().is_dealt());
        let four = machine("kunpeng-920").as_one_node();
        assert!(!Arena::new(&config("interleave"), &four).unwrap().0.routes().is_dealt());
        assert!(Arena::new(&config("bind=7"), &machine("kunpeng-920")).is_err());
    }
}
