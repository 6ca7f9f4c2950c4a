//! Where do pages cool down? The far tier: frames on slower memory (a node without CPUs, as a rule), between the pool and the file.
//!
//! A page that would be evicted from the near tier is copied to a free frame of the far one instead, if there is one: a copy of
//! 16 KiB costs less than reading it again. It stays readable and writable there. The far tier's cleaner looks round all the time:
//! a page that it finds in use twice running goes back to the near tier, in exchange for a cold one (one touch is not enough, else a
//! scan would turn the tiers upside down); pages out of use are evicted when the far tier runs short of free frames. Only clean
//! pages change their tier; dirty ones are written first (see `reshape`).

use std::sync::Arc;

use homenode_memory::MemoryError;
use homenode_topology::Topology;

use crate::frame::Frame;
use crate::partition::{Partition, UNIT};
use crate::reshape::{Goal, Reshaped};
use crate::stats::bump;
use crate::writeback::Buffers;
use crate::{NO_PAGE, PAGE_BYTES, Pool, PoolConfig, PoolError};

/// Partitions of a far node: less is contended there, since only cleaners and misses go there.
const PARTITIONS: usize = 4;
/// Of the far tier's frames, the part that its cleaner looks at in a round, ten rounds a second: all of them in about six seconds.
const ROUND_SHARE: usize = 64;
const ROUND_LEAST: usize = 1024;

/// Frames of each partition, by far node.
///
/// # Errors
/// When one of the nodes has no memory for this process.
pub(crate) fn layout(config: &PoolConfig, topology: &Topology) -> Result<Vec<(usize, Vec<usize>)>, PoolError> {
    let memory: Vec<usize> = topology.memory_nodes().iter().map(|node| node.id).collect();
    if let Some(&node) = config.far_nodes.iter().find(|node| !memory.contains(node)) {
        let policy = homenode_memory::Policy::Bind(config.far_nodes.clone());
        return Err(Arc::new(MemoryError::NoSuchNode { policy, node }).into());
    }
    let count = config.far_nodes.len();
    let of = |(number, node): (usize, &usize)| {
        let bytes = match config.far_bytes {
            0 => homenode_memory::node_available_bytes(*node).unwrap_or(0) as usize / 4 * 3,
            all => all * (number + 1) / count - all * number / count,
        };
        // Descriptors come on top.
        let units = (bytes / (UNIT * PAGE_BYTES)).max(1);
        let partitions = PARTITIONS.min(units);
        let frames = |i| (units / partitions + usize::from(i < units % partitions)) * UNIT;
        (*node, (0..partitions).map(frames).collect())
    };
    Ok(config.far_nodes.iter().enumerate().map(of).collect())
}

impl Pool {
    /// The nodes of the far tier; none without one.
    pub fn far_nodes(&self) -> Vec<usize> {
        let mut nodes: Vec<usize> = self.far.iter().map(|id| self.partitions[*id].node()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Takes a clean page out of its frame: to the far tier, if that has a free frame, else out of memory. False if it is dirty or
    /// somebody holds it. The frame is then in no list and belongs to the caller.
    pub(crate) fn cool_or_evict(&self, frame: &Frame) -> bool {
        let from = &self.partitions[frame.partition()];
        let page_no = frame.page_no();
        if self.far.is_empty() || from.is_far() || page_no == NO_PAGE || !frame.is_clean() {
            return self.evict(frame);
        }
        let turn = |i: usize| &self.partitions[self.far[(from.id() + i) % self.far.len()]];
        let all = || (0..self.far.len()).map(turn);
        // One that has more than it is to keep free, before one that would have to evict for it.
        let spare = all().filter(|to| to.free_count() > to.free_target()).find_map(Partition::pop_free);
        let Some(target) = spare.or_else(|| all().find_map(Partition::pop_free)) else {
            self.cleaners.request(turn(0).node());
            return self.evict(frame);
        };
        let to = &self.partitions[target.partition()];
        if to.free_count() < to.free_target() / 2 {
            self.cleaners.request(to.node());
        }
        crate::pool::latch_unwanted(target);
        let moved = self.move_page(frame, page_no, target);
        bump(&from.counters.demoted, u64::from(moved));
        bump(&to.counters.demoted, u64::from(moved));
        moved
    }

    /// Sends pages of a far partition back that are in use there, those that the hand finds so twice running.
    pub(crate) fn look_for_warm(&self, partition: &Partition, buffers: &mut Buffers) {
        let round = (partition.active_frames() / ROUND_SHARE).max(ROUND_LEAST).min(partition.active_frames());
        let (mut looked, mut used) = (0, 0);
        let mut warm: Vec<&Frame> = Vec::new();
        while looked < round {
            let frames = partition.sweep();
            if frames.is_empty() {
                break;
            }
            looked += frames.len();
            for frame in frames.iter().filter(|frame| frame.page_no() != NO_PAGE) {
                let in_use = frame.clear_reference();
                used += u64::from(in_use);
                if frame.swap_warm(in_use) && in_use {
                    warm.push(frame);
                }
            }
        }
        bump(&partition.counters.used, used);
        // What cannot go now is found again.
        self.empty(warm.into_iter(), Goal::Return, buffers, &mut Reshaped::default());
    }
}
