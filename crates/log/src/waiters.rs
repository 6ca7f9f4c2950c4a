//! Who waits for the log, and who of them may go on now?

use crate::Lsn;
use homenode_platform::CachePadded;
use homenode_platform::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use homenode_platform::sync::Mutex;
use homenode_platform::task::Task;
use std::collections::VecDeque;

/// No waiter.
const NONE: Lsn = Lsn::MAX;

/// Committers, in lanes so that two of them seldom meet; each lane ordered by position.
pub(crate) struct Committers {
    lanes: Box<[CachePadded<Lane>]>,
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
    pub(crate) fn new(lanes: usize) -> Committers {
        let lane = || CachePadded(Lane { oldest: AtomicU64::new(NONE), queue: Mutex::new(Queue::default()) });
        Committers { lanes: (0..lanes.max(1)).map(|_| lane()).collect() }
    }

    /// Enters `task` as waiting for `end`. The caller must look at the durable position once more
    /// before it parks: the fence here pairs with the one in [`release`](Committers::release).
    pub(crate) fn enter(&self, end: Lsn, task: Task) {
        let lane = &self.lanes[task.id() as usize % self.lanes.len()];
        let mut queue = lane.queue.lock();
        queue.waits += 1;
        // Tasks of a lane mostly come in the order of their positions: the end is the place.
        let at = queue.tasks.iter().rposition(|(other, _)| *other <= end).map_or(0, |at| at + 1);
        queue.tasks.insert(at, (end, task));
        lane.oldest.store(queue.tasks[0].0, Ordering::Relaxed);
        drop(queue);
        fence(Ordering::SeqCst);
    }

    /// Wakes exactly those that wait for positions up to `durable`, which is already published.
    /// Returns how many.
    pub(crate) fn release(&self, durable: Lsn, scratch: &mut Vec<Task>) -> u64 {
        fence(Ordering::SeqCst);
        let mut released = 0;
        for lane in self.lanes.iter() {
            if lane.oldest.load(Ordering::Relaxed) > durable {
                continue;
            }
            let mut queue = lane.queue.lock();
            let covered = queue.tasks.partition_point(|(end, _)| *end <= durable);
            scratch.extend(queue.tasks.drain(..covered).map(|(_, task)| task));
            let oldest = queue.tasks.front().map_or(NONE, |(end, _)| *end);
            lane.oldest.store(oldest, Ordering::Relaxed);
            drop(queue);
            released += covered as u64;
            scratch.drain(..).for_each(|task| task.unpark());
        }
        released
    }

    /// Whether anybody waits.
    pub(crate) fn any(&self) -> bool {
        self.lanes.iter().any(|lane| lane.oldest.load(Ordering::Relaxed) != NONE)
    }

    /// Waits entered so far.
    pub(crate) fn waits(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.queue.lock().waits).sum()
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
