//! Who waits for the log, and who of them may go on now?

use crate::Lsn;
use crate::nodes::Nodes;
use crate::sleeper::Sleeper;
use homenode_platform::CachePadded;
use homenode_platform::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use homenode_platform::sync::Mutex;
use homenode_platform::task::Task;
use std::collections::VecDeque;

/// No waiter.
const NONE: Lsn = Lsn::MAX;

/// Committers, in lanes so that two of them seldom meet; each lane ordered by position.
pub(crate) struct Committers {
    lanes: Box<[CachePadded<Lane>]>,
    /// On a machine with several nodes: for each, whether anybody there waits, and the lanes of its workers.
    nodes: Box<[CachePadded<NodeWaiters>]>,
    of_lanes: Box<[usize]>,
}

/// The committers of a node, whom its relay wakes: the log's own thread then writes one line a node, however many wait.
pub(crate) struct NodeWaiters {
    /// Set by the first who waits, cleared by the relay before it looks. Beside it nothing that changes often.
    waiting: AtomicBool,
    lanes: Vec<usize>,
    pub(crate) relay: CachePadded<Sleeper>,
    /// Woken by the relay, its only writer, and by others.
    pub(crate) released: CachePadded<AtomicU64>,
    helped: CachePadded<AtomicU64>,
}

struct Lane {
    /// The lowest position waited for, so that the flusher passes by empty lanes without a lock.
    oldest: AtomicU64,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    tasks: VecDeque<(Lsn, Task)>,
    waits: u64,
}

impl Committers {
    pub(crate) fn new(lanes: usize, nodes: &Nodes) -> Committers {
        let lane = || CachePadded(Lane { oldest: AtomicU64::new(NONE), queue: Mutex::new(Queue::default()) });
        let of_lanes: Box<[usize]> = (0..lanes.max(1)).map(|lane| nodes.of(lane)).collect();
        let node = |node: usize| {
            CachePadded(NodeWaiters {
                waiting: AtomicBool::new(false),
                lanes: (0..of_lanes.len()).filter(|&lane| of_lanes[lane] == node).collect(),
                relay: CachePadded(Sleeper::new()),
                released: CachePadded(AtomicU64::new(0)),
                helped: CachePadded(AtomicU64::new(0)),
            })
        };
        let several = if nodes.count() > 1 { nodes.count() } else { 0 };
        Committers {
            lanes: (0..lanes.max(1)).map(|_| lane()).collect(),
            nodes: (0..several).map(node).collect(),
            of_lanes,
        }
    }

    /// The nodes, if they are several.
    pub(crate) fn nodes(&self) -> &[CachePadded<NodeWaiters>] {
        &self.nodes
    }

    /// Enters `task`, of the worker of `lane` if that is known, as waiting for `end`. The caller must look at the durable position
    /// once more before it parks: the fence here pairs with the one in [`release`](Committers::release).
    pub(crate) fn enter(&self, lane: Option<usize>, end: Lsn, task: Task) -> usize {
        let number = match lane {
            Some(lane) if !self.nodes.is_empty() => lane % self.lanes.len(),
            _ => task.id() as usize % self.lanes.len(),
        };
        let lane = &self.lanes[number];
        let mut queue = lane.queue.lock();
        queue.waits += 1;
        // Tasks of a lane mostly come in the order of their positions: the end is the place.
        let at = queue.tasks.iter().rposition(|(other, _)| *other <= end).map_or(0, |at| at + 1);
        queue.tasks.insert(at, (end, task));
        lane.oldest.store(queue.tasks[0].0, Ordering::Relaxed);
        drop(queue);
        fence(Ordering::SeqCst);
        if let Some(node) = self.nodes.get(self.of_lanes[number])
            // Either the relay, which clears it before it looks at lanes, sees ours, or we see it cleared.
            && !node.waiting.load(Ordering::Relaxed)
        {
            node.waiting.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
        number
    }

    /// On a machine with several nodes: wakes who is covered of the caller's lane, which [`enter`](Committers::enter) named. That is
    /// cheap for a worker that is awake, and the relay comes later.
    pub(crate) fn help(&self, lane: usize, durable: Lsn) {
        if let Some(node) = self.nodes.get(self.of_lanes[lane]) {
            let released = self.lanes[lane].release(durable, &mut Vec::new());
            if released > 0 {
                node.helped.fetch_add(released, Ordering::Relaxed);
            }
        }
    }

    /// Wakes exactly those that wait for positions up to `durable`, which is already published.
    /// Returns how many.
    ///
    /// On a machine with several nodes it wakes their relays, and returns 0.
    pub(crate) fn release(&self, durable: Lsn, scratch: &mut Vec<Task>) -> u64 {
        fence(Ordering::SeqCst);
        if self.nodes.is_empty() {
            return self.lanes.iter().map(|lane| lane.release(durable, scratch)).sum();
        }
        for node in self.nodes.iter().filter(|node| node.waiting.load(Ordering::Relaxed)) {
            node.relay.wake();
        }
        0
    }

    /// The relay's part: wakes the covered ones of its node's lanes. Returns how many, and whether others go on waiting.
    pub(crate) fn relay(&self, node: &NodeWaiters, durable: Lsn, scratch: &mut Vec<Task>) -> (u64, bool) {
        node.waiting.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let lanes = || node.lanes.iter().map(|&lane| &self.lanes[lane]);
        let released = lanes().map(|lane| lane.release(durable, scratch)).sum();
        let others_wait = lanes().any(|lane| lane.oldest.load(Ordering::Relaxed) != NONE);
        if others_wait {
            node.waiting.store(true, Ordering::Relaxed);
        }
        (released, others_wait)
    }

    /// Whether anybody waits.
    pub(crate) fn any(&self) -> bool {
        if self.nodes.is_empty() {
            return self.lanes.iter().any(|lane| lane.oldest.load(Ordering::Relaxed) != NONE);
        }
        self.nodes.iter().any(|node| node.is_waiting())
    }

    /// Those who were released on machines with several nodes.
    pub(crate) fn relayed(&self) -> u64 {
        self.nodes.iter().map(|node| node.released.load(Ordering::Relaxed) + node.helped.load(Ordering::Relaxed)).sum()
    }

    /// Waits entered so far.
    pub(crate) fn waits(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.queue.lock().waits).sum()
    }
}

impl NodeWaiters {
    /// Whether anybody of the node waits.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }
}

impl Lane {
    fn release(&self, durable: Lsn, scratch: &mut Vec<Task>) -> u64 {
        if self.oldest.load(Ordering::Relaxed) > durable {
            return 0;
        }
        let mut queue = self.queue.lock();
        let covered = queue.tasks.partition_point(|(end, _)| *end <= durable);
        scratch.extend(queue.tasks.drain(..covered).map(|(_, task)| task));
        let oldest = queue.tasks.front().map_or(NONE, |(end, _)| *end);
        self.oldest.store(oldest, Ordering::Relaxed);
        drop(queue);
        scratch.drain(..).for_each(|task| task.unpark());
        covered as u64
    }
}

/// Tasks that wait for something rare (room in the ring, room on the disk), all woken together.
pub(crate) struct Crowd {
    count: AtomicU32,
    tasks: Mutex<Vec<Task>>,
}

impl Crowd {
    pub(crate) fn new() -> Crowd {
        Crowd { count: AtomicU32::new(0), tasks: Mutex::new(Vec::new()) }
    }

    /// Enters `task`. The caller must look once more at what it waits for before it parks.
    pub(crate) fn enter(&self, task: Task) {
        let mut tasks = self.tasks.lock();
        tasks.push(task);
        self.count.store(tasks.len() as u32, Ordering::Relaxed);
        drop(tasks);
        fence(Ordering::SeqCst);
    }

    /// Wakes all, after what they wait for was published.
    pub(crate) fn release(&self) {
        fence(Ordering::SeqCst);
        if !self.any() {
            return;
        }
        let mut tasks = self.tasks.lock();
        let woken = std::mem::take(&mut *tasks);
        self.count.store(0, Ordering::Relaxed);
        drop(tasks);
        woken.iter().for_each(Task::unpark);
    }

    /// Whether anybody waits.
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }
}
