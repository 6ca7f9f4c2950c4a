//! Who keeps frames free? The page cleaners, one thread for each node.
//!
//! A cleaner moves the clock hands of its node's partitions ahead of demand: unreferenced clean
//! pages are evicted, unreferenced dirty ones written in batches and then evicted, until each
//! partition has its share of free frames. A task that misses then finds a frame without writing.
//! As long as all partitions together have free frames to spare, nothing is evicted: a task whose
//! own partition is full takes one of another.

use std::io;
use std::sync::{Arc, Weak};

use homenode_platform::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use homenode_platform::clock;
use homenode_platform::sync::Mutex;
use homenode_platform::task::{self, Task};
use homenode_platform::thread::{self, JoinHandle};
use homenode_platform::wait::WaitEvent;
use homenode_topology::Topology;

use crate::frame::Frame;
use crate::partition::{Partition, balance};
use crate::partitions::Partitions;
use crate::stats::bump;
use crate::writeback::{BATCH_PAGES, Batch, Buffers};
use crate::{NO_PAGE, PageNo, Pool, PoolConfig, PoolError};

/// How often a cleaner looks round unasked.
const IDLE_NS: u64 = 100_000_000;
/// Pause after a round that could free nothing, so that a waiting task does not make it spin.
const FRUITLESS_NS: u64 = 1_000_000;
/// Demand since the last balancing below which it says nothing.
const BALANCE_DEMAND_MIN: u64 = 1024;

/// One node's cleaner as others see it.
struct Cleaner {
    node: usize,
    /// The node's CPUs, to run on; empty if it may run anywhere.
    cpus: Vec<usize>,
    running: AtomicBool,
    /// Set by whoever wants a round; saves waking a cleaner that is awake.
    requested: AtomicBool,
    /// Rounds finished.
    rounds: AtomicU64,
    task: Mutex<Option<Task>>,
    /// Why the last batch could not be written, if so.
    last_error: Mutex<Option<Arc<io::Error>>>,
}

/// All cleaners of a pool.
pub(crate) struct Cleaners {
    stop: AtomicBool,
    /// The CPUs near the device; empty where that says nothing.
    io_cpus: Vec<usize>,
    /// How long a task waits for a frame before it gives up.
    frame_patience_ns: u64,
    each: Box<[Cleaner]>,
    handles: Mutex<Vec<JoinHandle>>,
}

/// How much longer a task is going to wait for a frame.
pub(crate) struct Patience {
    until_ns: Option<u64>,
    failures: u32,
}

impl Cleaners {
    /// For the nodes that have partitions or may get some.
    pub(crate) fn new(partitions: &Partitions, topology: &Topology, config: &PoolConfig) -> Cleaners {
        let mut nodes: Vec<usize> = partitions.iter().map(Partition::node).collect();
        if !topology.is_uniform() {
            nodes.extend(topology.memory_nodes().iter().map(|node| node.id));
        }
        nodes.sort_unstable();
        nodes.dedup();
        let bound = nodes.len() > 1;
        let cpus = |node| {
            let node = topology.nodes().iter().find(|n| bound && n.id == node);
            node.map_or(Vec::new(), |n| n.cpus.clone())
        };
        let cleaner = |node| Cleaner {
            node,
            cpus: cpus(node),
            running: AtomicBool::new(false),
            requested: AtomicBool::new(false),
            rounds: AtomicU64::new(0),
            task: Mutex::new(None),
            last_error: Mutex::new(None),
        };
        Cleaners {
            stop: AtomicBool::new(false),
            io_cpus: config.io_cpus.clone(),
            frame_patience_ns: config.frame_patience_ns,
            each: nodes.into_iter().map(cleaner).collect(),
            handles: Mutex::new(Vec::new()),
        }
    }

    pub(crate) fn patience(&self) -> Patience {
        Patience { until_ns: None, failures: 0 }
    }

    fn of(&self, node: usize) -> &Cleaner {
        self.each.iter().find(|c| c.node == node).expect("each partition's node has a cleaner")
    }

    /// Asks a node's cleaner for a round, if nobody has asked already.
    pub(crate) fn request(&self, node: usize) {
        let cleaner = self.of(node);
        if !cleaner.requested.load(Relaxed) && !cleaner.requested.swap(true, SeqCst) {
            cleaner.wake();
        }
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, SeqCst);
        self.each.iter().for_each(Cleaner::wake);
    }

    pub(crate) fn stop_and_join(&self) {
        self.stop();
        let handles = std::mem::take(&mut *self.handles.lock());
        handles.into_iter().for_each(JoinHandle::join);
    }
}

impl Cleaner {
    fn wake(&self) {
        if let Some(task) = &*self.task.lock() {
            task.unpark();
        }
    }

    /// Writes the batch, from the CPUs near the device, and remembers whether that worked. Everything else that a cleaner does
    /// concerns descriptors and pages of its own node.
    fn write(&self, batch: &mut Batch<'_, '_>, io_cpus: &[usize]) {
        if batch.is_empty() {
            return;
        }
        let moves = !io_cpus.is_empty() && !self.cpus.is_empty() && io_cpus != self.cpus;
        if moves {
            // Refused in some containers; then it writes from farther away.
            let _ = thread::pin_to_cpus(io_cpus);
        }
        *self.last_error.lock() = match batch.write() {
            Err(PoolError::Write { source, .. }) => Some(source),
            _ => None,
        };
        if moves {
            let _ = thread::pin_to_cpus(&self.cpus);
        }
    }
}

impl Pool {
    /// Starts the cleaners of the nodes that have partitions, as far as they don't run.
    pub(crate) fn start_cleaners(self: &Arc<Pool>) {
        let mut handles = self.cleaners.handles.lock();
        for index in 0..self.cleaners.each.len() {
            let (pool, cleaners) = (Arc::downgrade(self), self.cleaners.clone());
            let used = self.partitions.iter().any(|partition| partition.node() == cleaners.each[index].node);
            if !used || cleaners.stop.load(SeqCst) || cleaners.each[index].running.swap(true, SeqCst) {
                continue;
            }
            let name = format!("cleaner-{}", cleaners.each[index].node);
            handles.push(thread::spawn(&name, move || run(pool, &cleaners, index)));
        }
    }

    /// Waits until a frame may have become free.
    pub(crate) fn wait_for_frame(&self, wanted: &Partition, patience: &mut Patience) -> Result<(), PoolError> {
        let cleaner = self.cleaners.of(wanted.node());
        let now_ns = clock::now_ns();
        let until_ns = *patience.until_ns.get_or_insert(now_ns + self.cleaners.frame_patience_ns);
        let last_write_error = cleaner.last_error.lock().clone();
        patience.failures += u32::from(last_write_error.is_some());
        if patience.failures > 2 || now_ns > until_ns {
            return Err(PoolError::NoFrame { last_write_error });
        }
        if !cleaner.running.load(Acquire) {
            if !self.clean_node(cleaner, &mut Buffers::default()) {
                thread::sleep_ns(FRUITLESS_NS);
            }
            return Ok(());
        }
        let seen = cleaner.rounds.load(Acquire);
        cleaner.requested.store(true, SeqCst);
        cleaner.wake();
        self.frame_waits.wait_while(cleaner.node as u64, WaitEvent::PageCleaner, || {
            cleaner.rounds.load(Acquire) == seen
                && cleaner.running.load(Acquire)
                && self.partitions.iter().all(|p| p.is_far() || p.free_count() == 0)
        });
        Ok(())
    }

    /// Whether all partitions together have fewer free frames than each is to have.
    fn is_short(&self) -> bool {
        let near = || self.partitions.iter().filter(|partition| !partition.is_far());
        let sum = |of: fn(&Partition) -> usize| near().map(of).sum::<usize>();
        sum(Partition::free_count) < sum(Partition::free_target)
    }

    /// One round over a node's partitions; false if frames are wanting and none could be freed.
    fn clean_node(&self, cleaner: &Cleaner, buffers: &mut Buffers) -> bool {
        let mut fruitful = true;
        let short = self.is_short();
        for partition in self.partitions.iter().filter(|p| p.node() == cleaner.node) {
            if partition.is_far() {
                self.look_for_warm(partition, buffers);
            }
            if (short || partition.is_far()) && partition.free_count() < partition.free_target() {
                fruitful &= self.clean_partition(cleaner, partition, buffers) > 0;
            }
        }
        cleaner.rounds.fetch_add(1, Release);
        self.frame_waits.wake(cleaner.node as u64);
        fruitful
    }

    /// Frees frames until the partition has enough, in at most two turns of its hand; how many.
    fn clean_partition(&self, cleaner: &Cleaner, partition: &Partition, buffers: &mut Buffers) -> usize {
        let mut freed = 0;
        let mut looked = 0;
        let mut used = 0;
        let mut dirty: Vec<(PageNo, &Frame)> = Vec::new();
        while looked < 2 * partition.frames().len() && partition.free_count() + dirty.len() < partition.free_target() {
            for frame in partition.sweep() {
                looked += 1;
                let page_no = frame.page_no();
                if page_no == NO_PAGE {
                    continue;
                } else if frame.clear_reference() {
                    used += 1;
                    // One more such look, and it returns.
                    frame.swap_warm(partition.is_far());
                } else if frame.is_clean() {
                    freed += usize::from(self.evict_to_free(partition, frame));
                } else {
                    dirty.push((page_no, frame));
                }
            }
            if dirty.len() >= BATCH_PAGES {
                freed += self.clean_and_evict(cleaner, partition, &mut dirty, buffers);
            }
        }
        bump(&partition.counters.used, used);
        freed + self.clean_and_evict(cleaner, partition, &mut dirty, buffers)
    }

    fn evict_to_free(&self, partition: &Partition, frame: &Frame) -> bool {
        let evicted = self.cool_or_evict(frame);
        if evicted {
            partition.push_free(frame);
        }
        evicted
    }

    /// Writes the victims and their dirty neighbours in the file, then evicts the victims.
    fn clean_and_evict<'p>(
        &'p self,
        cleaner: &Cleaner,
        partition: &'p Partition,
        victims: &mut Vec<(PageNo, &'p Frame)>,
        buffers: &mut Buffers,
    ) -> usize {
        victims.sort_unstable_by_key(|&(page_no, _)| page_no);
        let mut batch = buffers.batch(self);
        let mut next = NO_PAGE;
        for &(page_no, frame) in victims.iter() {
            if page_no < next {
                continue;
            }
            if batch.is_full() {
                cleaner.write(&mut batch, &self.cleaners.io_cpus);
            }
            batch.add(frame, page_no, false);
            next = self.add_neighbours(&mut batch, page_no + 1);
        }
        cleaner.write(&mut batch, &self.cleaners.io_cpus);
        drop(batch);
        let freed = victims.drain(..).filter(|(_, f)| self.evict_to_free(partition, f)).count();
        self.frame_waits.wake(partition.node() as u64);
        freed
    }

    /// Adds pages from `next` on while they are in memory, dirty and not in use, so that one call
    /// writes them all; returns the first number not added.
    fn add_neighbours<'p>(&'p self, batch: &mut Batch<'p, '_>, mut next: PageNo) -> PageNo {
        /// A write of 16 pages (256 KiB) is as good as sequential on any device.
        const NEIGHBOURS_MAX: u64 = 15;
        let end = next + NEIGHBOURS_MAX;
        while next < end && !batch.is_full() {
            let Some(frame) = self.translation.slot(next).and_then(|slot| slot.frame()) else {
                break;
            };
            if frame.is_referenced() || frame.oldest_change() == 0 {
                break;
            }
            if batch.add(frame, next, false) != crate::writeback::Added::Taken {
                break;
            }
            next += 1;
        }
        next
    }

    /// Evens out how fast the partitions' hands turn.
    fn rebalance(&self, before: &mut Vec<u64>) {
        let now: Vec<u64> = self.partitions.iter().map(Partition::demand).collect();
        before.resize(now.len(), 0);
        let demand: Vec<u64> = now.iter().zip(&*before).map(|(n, b)| n - b).collect();
        if demand.iter().sum::<u64>() < BALANCE_DEMAND_MIN {
            return;
        }
        // Where page numbers decide, what is too much for one partition goes to its neighbours on the node.
        let routes = self.arena.routes();
        let all: Vec<u32> = routes.groups().iter().flat_map(|group| &group.partitions).copied().collect();
        let groups: Vec<&[u32]> = match routes.is_dealt() {
            true => routes.groups().iter().map(|group| &group.partitions[..]).collect(),
            false => vec![&all],
        };
        for group in groups {
            let wanted: Vec<u64> = group.iter().map(|id| demand.get(*id as usize).copied().unwrap_or(0)).collect();
            for (id, (keep, target)) in group.iter().zip(balance(&wanted)) {
                self.partitions[*id as usize].set_redirect(keep, group[target] as usize);
            }
        }
        *before = now;
    }
}

/// A cleaner thread.
fn run(pool: Weak<Pool>, cleaners: &Cleaners, index: usize) {
    let cleaner = &cleaners.each[index];
    if !cleaner.cpus.is_empty() {
        // Refused in some containers; then it works from farther away.
        let _ = thread::pin_to_cpus(&cleaner.cpus);
    }
    *cleaner.task.lock() = Some(task::current());
    let mut buffers = Buffers::default();
    let mut demand = Vec::new();
    let mut balanced_ns = clock::now_ns();
    while !cleaners.stop.load(SeqCst) {
        let Some(pool) = pool.upgrade() else { break };
        cleaner.requested.store(false, SeqCst);
        let fruitful = pool.clean_node(cleaner, &mut buffers);
        if index == 0 && clock::now_ns() - balanced_ns > IDLE_NS {
            pool.rebalance(&mut demand);
            balanced_ns = clock::now_ns();
        }
        // Nothing to do, although somebody may have asked: others have frames, so there is no hurry to look again.
        let idle = !pool.is_short();
        drop(pool);
        if !fruitful || idle {
            thread::sleep_ns(FRUITLESS_NS);
        }
        if !cleaner.requested.load(SeqCst) && !cleaners.stop.load(SeqCst) {
            task::park_timeout(WaitEvent::Sleep, IDLE_NS);
        }
    }
    cleaner.running.store(false, SeqCst);
    if let Some(pool) = pool.upgrade() {
        pool.frame_waits.wake(cleaner.node as u64);
    }
}
