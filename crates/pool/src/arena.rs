//! Where do frames and descriptors lie? The pool's memory, divided among nodes and partitions.

use std::sync::Arc;

use homenode_memory::{HugePages, Policy, Region};
use homenode_topology::Topology;

use crate::frame::Frame;
use crate::partition::Partition;
use crate::{PAGE_BYTES, PoolConfig, PoolError};

/// Frames in 2 MiB: partitions begin at multiples of this, so that no huge page is shared.
const UNIT: usize = (2 << 20) / PAGE_BYTES;
/// A partition that was not asked for has at least 16 MiB.
const PARTITION_UNITS_MIN: usize = 8;

/// The memory of one node's partitions. Kept only to be unmapped when the pool ends.
struct Slab {
    data: Region,
    descriptors: Region,
}

/// All of the pool's frames.
pub(crate) struct Arena {
    slabs: Vec<Slab>,
    /// CPU number -> partition of tasks that run there.
    homes: Box<[u32]>,
}

/// How many partitions each node with CPUs gets, and how many frames each partition.
fn layout(config: &PoolConfig, nodes_cpus: &[usize]) -> Vec<Vec<usize>> {
    let units = (config.bytes / (UNIT * PAGE_BYTES)).max(1);
    let cpus: usize = nodes_cpus.iter().sum();
    let wanted = match config.partitions {
        0 => cpus.min((units / PARTITION_UNITS_MIN).max(1)),
        n => n.min(units),
    };
    let nodes = nodes_cpus.len().min(units);
    let count = wanted.max(nodes);
    let mut partition = 0;
    (0..nodes)
        .map(|node| {
            let here = count / nodes + usize::from(node < count % nodes);
            (0..here)
                .map(|_| {
                    let mine = units / count + usize::from(partition < units % count);
                    partition += 1;
                    mine * UNIT
                })
                .collect()
        })
        .collect()
}

impl Arena {
    pub(crate) fn new(config: &PoolConfig, topology: &Topology) -> Result<(Arena, Vec<Partition>), PoolError> {
        let mut nodes: Vec<_> = topology.nodes().iter().filter(|n| !n.cpus.is_empty()).cloned().collect();
        if nodes.is_empty() {
            nodes = topology.nodes()[..1].to_vec();
        }
        let cpus: Vec<usize> = nodes.iter().map(|n| n.cpus.len().max(1)).collect();
        let highest_cpu = nodes.iter().flat_map(|n| &n.cpus).max().copied().unwrap_or(0);
        let mut homes = vec![0; highest_cpu + 1];
        let mut slabs = Vec::new();
        let mut partitions = Vec::new();
        for (node, counts) in nodes.iter().zip(layout(config, &cpus)) {
            for (i, &cpu) in node.cpus.iter().enumerate() {
                homes[cpu] = (partitions.len() + i % counts.len()) as u32;
            }
            let many = nodes.len() > 1;
            slabs.push(Slab::new(config, topology, node.id, many, &counts, &mut partitions)?);
        }
        Ok((Arena { slabs, homes: homes.into() }, partitions))
    }

    /// The partition of tasks that run on this CPU.
    pub(crate) fn home(&self, cpu: usize) -> usize {
        self.homes[cpu % self.homes.len()] as usize
    }

    pub(crate) fn frame_bytes(&self) -> usize {
        self.slabs.iter().map(|s| s.data.len()).sum()
    }

    pub(crate) fn descriptor_bytes(&self) -> usize {
        self.slabs.iter().map(|s| s.descriptors.len()).sum()
    }
}

impl Slab {
    /// Maps one node's memory and makes partitions of `counts` frames in it.
    fn new(
        config: &PoolConfig,
        topology: &Topology,
        node: usize,
        many_nodes: bool,
        counts: &[usize],
        partitions: &mut Vec<Partition>,
    ) -> Result<Slab, PoolError> {
        let policy = match config.policy {
            Policy::Default | Policy::Local if many_nodes => Policy::Preferred(node),
            ref policy => policy.clone(),
        };
        let frames: usize = counts.iter().sum();
        let map = |bytes: usize| {
            let huge = if config.huge_pages && bytes >= UNIT * PAGE_BYTES { HugePages::Try } else { HugePages::Off };
            Region::new(bytes, &policy, huge, topology).map_err(Arc::new)
        };
        let data = map(frames * PAGE_BYTES)?;
        let descriptors = map(frames * size_of::<Frame>())?;
        if config.prefault {
            data.prefault().map_err(Arc::new)?;
        }
        let first = descriptors.as_ptr().cast::<Frame>();
        let mut at = 0;
        for &count in counts {
            let id = partitions.len();
            for index in 0..count {
                // SAFETY: at + index < frames, so both places lie in their regions; regions are
                // aligned to 2 MiB, so a descriptor to its 128 bytes; nobody else knows them yet.
                unsafe {
                    let bytes = data.as_ptr().add((at + index) * PAGE_BYTES);
                    first.add(at + index).write(Frame::new(id as u32, index as u32, bytes));
                }
            }
            // SAFETY: the descriptors at.. at+count were just written, numbered 0.. for this
            // partition; the region lives as long as the pool, which drops partitions first.
            partitions.push(unsafe { Partition::new(id, node, first.add(at), count) });
            at += count;
        }
        Ok(Slab { data, descriptors })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(bytes: usize, partitions: usize, cpus: &[usize]) -> Vec<Vec<usize>> {
        layout(&PoolConfig { bytes, partitions, ..PoolConfig::default() }, cpus)
    }

    #[test]
    fn partitions_are_whole_huge_pages_and_use_all_of_them() {
        const MIB: usize = 1 << 20;
        assert_eq!(shape(0, 0, &[2]), [[128]], "never less than one unit");
        assert_eq!(shape(64 * MIB, 0, &[2]), [[2048, 2048]]);
        assert_eq!(shape(16 * MIB, 0, &[8]), [[1024]], "small pools are not chopped up");
        assert_eq!(shape(10 * MIB, 4, &[2]), [[256, 128, 128, 128]]);
        assert_eq!(shape(64 * MIB, 0, &[2, 2]), [[1024, 1024], [1024, 1024]]);
        assert_eq!(shape(2 * MIB, 0, &[2, 2]).len(), 1, "fewer units than nodes");
        for units in 1..40 {
            let frames: usize = shape(units * 2 * MIB, 3, &[3, 3]).iter().flatten().sum();
            assert_eq!(frames, units * UNIT);
        }
    }
}
