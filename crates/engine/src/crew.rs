//! Who does the work of a big scan? Threads of their own, bound to nodes: each takes its node's pieces first and steals last.
//!
//! The session's task waits parked meanwhile, so that its worker goes on with other sessions. The threads are made at the first
//! big scan, as many as there are CPUs, and serve all scans: after each piece a thread takes the next one from the scan that has
//! the fewest threads ("Morsel-driven parallelism", Leis et al., SIGMOD 2014: pieces dealt by node, stolen when a node is done).
//! On a machine with one node nobody is bound.

use crate::error::{Error, Result, SqlState};
use homenode_platform::atomic::{AtomicBool, AtomicUsize, Ordering};
use homenode_platform::sync::Mutex;
use homenode_platform::task::{self, Task};
use homenode_platform::thread::{self, JoinHandle};
use homenode_platform::wait::WaitEvent;
use homenode_topology::Topology;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// Where a part of the threads lives.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Home {
    /// The node that they are bound to; none if they may run anywhere.
    node: Option<usize>,
    /// Its CPUs (system numbers); empty for threads that may run anywhere.
    cpus: Vec<usize>,
    threads: usize,
}

/// The homes of as many threads as this process may run at a time.
fn homes(topology: &Topology, cpus_max: usize) -> Vec<Home> {
    let allowed = topology.allowed_cpus();
    let usable = |cpus: &[usize]| -> Vec<usize> { cpus.iter().copied().filter(|cpu| allowed.contains(cpu)).collect() };
    let nodes = topology.nodes().iter().map(|node| (node.id, usable(&node.cpus))).filter(|(_, cpus)| !cpus.is_empty());
    let nodes: Vec<_> = nodes.collect();
    if nodes.len() < 2 {
        return vec![Home { node: None, cpus: Vec::new(), threads: cpus_max.max(1) }];
    }
    // A control group may grant less time than all CPUs together have.
    let all: usize = nodes.iter().map(|(_, cpus)| cpus.len()).sum();
    let share = |cpus: usize| (cpus * cpus_max).div_ceil(all).clamp(1, cpus);
    let home = |(node, cpus): (usize, Vec<usize>)| Home { node: Some(node), threads: share(cpus.len()), cpus };
    nodes.into_iter().map(home).collect()
}

/// A thread, as its work sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Worker {
    /// Threads are numbered from 0, node by node.
    pub number: usize,
    /// The node that it is bound to; none if it may run anywhere.
    pub node: Option<usize>,
}

/// Work that was asked for: pieces by number.
trait Work: Send + Sync {
    fn run(&self, piece: usize, worker: Worker);
}

/// A job's pieces that nobody has taken yet.
struct Posted {
    work: Arc<dyn Work>,
    /// By the home whose threads shall take them first; the last list is for any.
    pieces: Vec<Vec<usize>>,
    /// Threads that are at a piece of it.
    at_work: usize,
    number: u64,
}

impl Posted {
    /// A piece for a thread of `home` that is not another home's.
    fn take_own(&mut self, home: usize) -> Option<usize> {
        let anyones = self.pieces.len() - 1;
        self.pieces[home].pop().or_else(|| self.pieces[anyones].pop())
    }

    /// A piece of the home that has most of them left, of those whose threads are `busy`.
    fn steal(&mut self, busy: &[bool]) -> Option<usize> {
        let left = self.pieces.iter_mut().zip(busy).filter(|(_, busy)| **busy).map(|(pieces, _)| pieces);
        left.max_by_key(|pieces| pieces.len())?.pop()
    }
}

/// The threads of one home.
#[derive(Default)]
struct Staff {
    threads: usize,
    /// How many are at a piece.
    at_work: usize,
    /// Those that wait for work.
    idle: Vec<Task>,
}

#[derive(Default)]
struct Queue {
    posted: Vec<Posted>,
    homes: Vec<Staff>,
    next_number: u64,
    stop: bool,
    threads: Vec<JoinHandle>,
}

impl Queue {
    /// The next piece for a thread of `home`: its own home's before others', and of the job with the fewest threads.
    fn next(&mut self, home: usize) -> Option<(Arc<dyn Work>, usize, u64)> {
        let mut order: Vec<usize> = (0..self.posted.len()).collect();
        order.sort_by_key(|job| (self.posted[*job].at_work, self.posted[*job].number));
        let own = order.iter().find_map(|job| Some((*job, self.posted[*job].take_own(home)?)));
        // A home's thread that is not at work is on its way: what it can take is not stolen.
        let busy: Vec<bool> = self.homes.iter().map(|home| home.at_work == home.threads).collect();
        let (job, piece) =
            own.or_else(|| order.iter().find_map(|job| Some((*job, self.posted[*job].steal(&busy)?))))?;
        self.homes[home].at_work += 1;
        let posted = &mut self.posted[job];
        posted.at_work += 1;
        let taken = (posted.work.clone(), piece, posted.number);
        if posted.pieces.iter().all(Vec::is_empty) {
            self.posted.swap_remove(job);
        }
        Some(taken)
    }

    /// A thread that could steal what is left for threads that are all at work.
    fn helper(&mut self) -> Option<Task> {
        let left = |home: usize| self.posted.iter().any(|posted| !posted.pieces[home].is_empty());
        let overworked = |home: &usize| self.homes[*home].at_work == self.homes[*home].threads && left(*home);
        (0..self.homes.len()).find(overworked)?;
        self.homes.iter_mut().find_map(|home| home.idle.pop())
    }

    fn done_with(&mut self, home: usize, number: u64) {
        self.homes[home].at_work -= 1;
        // A job whose last piece is taken is not in the list any more.
        if let Some(posted) = self.posted.iter_mut().find(|posted| posted.number == number) {
            posted.at_work -= 1;
        }
    }
}

struct Shared {
    homes: Vec<Home>,
    queue: Mutex<Queue>,
}

/// The threads for big scans.
pub(crate) struct Crew(Arc<Shared>);

/// Results of the pieces of a job, and where each was worked on.
pub type Done<T> = Vec<(T, Option<usize>)>;

/// One job: its results and who waits for them.
struct Job<F, T> {
    work: F,
    results: Mutex<Vec<Option<Result<T>>>>,
    nodes: Mutex<Vec<Option<usize>>>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    failed: AtomicBool,
    left: AtomicUsize,
    waiter: Task,
}

impl<T: Send, F: Fn(usize, Worker) -> Result<T> + Send + Sync> Work for Job<F, T> {
    fn run(&self, piece: usize, worker: Worker) {
        // After an error nobody wants the others.
        if !self.failed.load(Ordering::Relaxed) {
            match catch_unwind(AssertUnwindSafe(|| (self.work)(piece, worker))) {
                Ok(result) => {
                    if result.is_err() {
                        self.failed.store(true, Ordering::Relaxed);
                    }
                    self.nodes.lock()[piece] = worker.node;
                    self.results.lock()[piece] = Some(result);
                }
                // The session's panic: it goes on there.
                Err(panic) => {
                    self.failed.store(true, Ordering::Relaxed);
                    *self.panic.lock() = Some(panic);
                }
            }
        }
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.waiter.unpark();
        }
    }
}

impl Crew {
    pub fn new(topology: &Topology) -> Crew {
        let homes = homes(topology, thread::available_cpus());
        let staff = homes.iter().map(|home| Staff { threads: home.threads, ..Staff::default() });
        let queue = Queue { homes: staff.collect(), ..Queue::default() };
        Crew(Arc::new(Shared { homes, queue: Mutex::new(queue) }))
    }

    /// Whether its threads are bound to nodes.
    pub fn is_bound(&self) -> bool {
        self.0.homes.len() > 1
    }

    /// How many threads it has when it works.
    pub fn threads(&self) -> usize {
        self.0.homes.iter().map(|home| home.threads).sum()
    }

    /// Runs `work` for every piece; `nodes` says for each piece whose threads shall take it first (`None`: any). The calling task
    /// waits. Results are in the pieces' order, each with the node of the thread that it was worked on by.
    ///
    /// # Errors
    /// The first error of any of them; 57P01 after [`Crew::stop`].
    ///
    /// # Panics
    /// When one of them does.
    pub fn run<T: Send + 'static>(
        &self,
        nodes: &[Option<usize>],
        work: impl Fn(usize, Worker) -> Result<T> + Send + Sync + 'static,
    ) -> Result<Done<T>> {
        let job = Arc::new(Job {
            work,
            results: Mutex::new(nodes.iter().map(|_| None).collect()),
            nodes: Mutex::new(vec![None; nodes.len()]),
            panic: Mutex::new(None),
            failed: AtomicBool::new(false),
            left: AtomicUsize::new(nodes.len()),
            waiter: task::current(),
        });
        if !self.post(nodes, job.clone()) {
            return Err(Error::new(SqlState::ADMIN_SHUTDOWN, "the database is being closed"));
        }
        while job.left.load(Ordering::SeqCst) > 0 {
            task::park(WaitEvent::Parallel);
        }
        if let Some(panic) = job.panic.lock().take() {
            resume_unwind(panic);
        }
        let results = std::mem::take(&mut *job.results.lock()).into_iter().flatten();
        let results = results.collect::<Result<Vec<T>>>()?;
        let nodes = std::mem::take(&mut *job.nodes.lock());
        Ok(results.into_iter().zip(nodes).collect())
    }

    /// False when the threads have been stopped.
    fn post(&self, nodes: &[Option<usize>], work: Arc<dyn Work>) -> bool {
        let homes = &self.0.homes;
        let mut pieces = vec![Vec::new(); homes.len() + 1];
        // Taken from the end, so that the first pieces are worked on first.
        for (piece, node) in nodes.iter().enumerate().rev() {
            let home = homes.iter().position(|home| home.node.is_some() && home.node == *node);
            pieces[home.unwrap_or(homes.len())].push(piece);
        }
        let mut woken = Vec::new();
        let mut queue = self.0.queue.lock();
        if queue.stop {
            return false;
        }
        if queue.threads.is_empty() {
            self.start(&mut queue);
        }
        let mut extra = pieces[homes.len()].len();
        for (home, pieces) in pieces[..homes.len()].iter().enumerate() {
            let idle = &mut queue.homes[home].idle;
            let wanted = (pieces.len() + extra).min(idle.len());
            extra -= wanted.saturating_sub(pieces.len());
            woken.extend(idle.drain(idle.len() - wanted..));
        }
        let number = queue.next_number;
        queue.next_number += 1;
        queue.posted.push(Posted { work, pieces, at_work: 0, number });
        drop(queue);
        woken.iter().for_each(Task::unpark);
        true
    }

    fn start(&self, queue: &mut Queue) {
        for (home, place) in self.0.homes.iter().enumerate() {
            for _ in 0..place.threads {
                let (shared, number) = (self.0.clone(), queue.threads.len());
                queue.threads.push(thread::spawn("homenode-scan", move || serve(&shared, home, number)));
            }
        }
    }

    /// Ends the threads, once they have done what they are at, and waits for that.
    pub fn stop(&self) {
        let mut queue = self.0.queue.lock();
        queue.stop = true;
        let threads = std::mem::take(&mut queue.threads);
        let idle: Vec<Task> = queue.homes.iter_mut().flat_map(|home| std::mem::take(&mut home.idle)).collect();
        drop(queue);
        idle.iter().for_each(Task::unpark);
        threads.into_iter().for_each(JoinHandle::join);
    }
}

/// A thread of the crew.
fn serve(shared: &Shared, home: usize, number: usize) {
    let Home { node, cpus, .. } = &shared.homes[home];
    // Refused in some containers; then its pages are just not near.
    let bound = !cpus.is_empty() && thread::pin_to_cpus(cpus).is_ok();
    let worker = Worker { number, node: node.filter(|_| bound) };
    let me = task::current();
    loop {
        let mut queue = shared.queue.lock();
        if let Some((work, piece, number)) = queue.next(home) {
            let helper = queue.helper();
            drop(queue);
            helper.iter().for_each(Task::unpark);
            work.run(piece, worker);
            drop(work);
            shared.queue.lock().done_with(home, number);
            continue;
        }
        if queue.stop {
            return;
        }
        // A wake-up that nobody meant leaves it in the list.
        let idle = &mut queue.homes[home].idle;
        if !idle.contains(&me) {
            idle.push(me.clone());
        }
        drop(queue);
        task::park(WaitEvent::Parallel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_topology::machines;

    fn machine(name: &str) -> Topology {
        Topology::from_bundle(machines::text(name).unwrap()).unwrap()
    }

    #[test]
    fn each_node_has_threads_for_its_cpus() {
        let four = machine("kunpeng-920");
        let all = four.allowed_cpus().len();
        let full = homes(&four, all);
        assert_eq!(full.len(), 4);
        for (home, node) in full.iter().zip(four.nodes()) {
            assert_eq!((home.node, &home.cpus, home.threads), (Some(node.id), &node.cpus, node.cpus.len()));
        }
        assert_eq!(homes(&four, 6).iter().map(|home| home.threads).collect::<Vec<_>>(), [2; 4], "a quota of six CPUs");
        assert_eq!(homes(&four.as_one_node(), 8), [Home { node: None, cpus: Vec::new(), threads: 8 }]);
        // A node without CPUs has no threads.
        assert_eq!(homes(&machine("sapphire-rapids-2s-cxl"), 1000).len(), 2);
    }

    #[test]
    fn own_pieces_come_first_and_others_last() {
        struct Nothing;
        impl Work for Nothing {
            fn run(&self, _: usize, _: Worker) {}
        }
        let post = |pieces: [Vec<usize>; 3], number| Posted {
            work: Arc::new(Nothing),
            pieces: pieces.into(),
            at_work: 0,
            number,
        };
        let staff = |threads| Staff { threads, ..Staff::default() };
        let mut queue = Queue { homes: vec![staff(8), staff(1)], ..Queue::default() };
        queue.posted.push(post([vec![1, 0], vec![4, 3, 2], vec![5]], 0));
        let mut take = |home| queue.next(home).map(|(_, piece, number)| (number, piece));
        assert_eq!([take(0), take(0), take(0)], [Some((0, 0)), Some((0, 1)), Some((0, 5))]);
        assert_eq!(take(0), None, "node 1's thread is on its way");
        assert_eq!([take(1), take(0), take(0), take(0)], [Some((0, 2)), Some((0, 3)), Some((0, 4)), None]);
        // Of two jobs the one with fewer threads is served next.
        queue.posted.push(post([vec![11, 10], vec![], vec![]], 1));
        queue.posted.push(post([vec![21, 20], vec![], vec![]], 2));
        let mut take = || queue.next(0).map(|(_, piece, _)| piece);
        assert_eq!([take(), take(), take(), take()], [Some(10), Some(20), Some(11), Some(21)]);
    }

    #[test]
    fn results_are_in_order_and_the_first_error_counts() {
        let crew = Crew::new(&machine("laptop-8"));
        let done = crew.run(&[None; 100], |piece, _| Ok(piece * 2)).unwrap();
        assert_eq!(done.iter().map(|(value, _)| *value).collect::<Vec<_>>(), (0..200).step_by(2).collect::<Vec<_>>());
        let failed = crew.run(&[None; 50], |piece, _| match piece {
            7 => Err(Error::new(SqlState::DIVISION_BY_ZERO, "seven")),
            _ => Ok(()),
        });
        assert_eq!(failed.unwrap_err().message, "seven");
        // From several tasks at a time.
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        assert_eq!(crew.run(&[Some(0), None, Some(9)], |piece, _| Ok(piece)).unwrap().len(), 3);
                    }
                });
            }
        });
        let panicked =
            catch_unwind(AssertUnwindSafe(|| crew.run(&[None; 3], |_, _| -> Result<()> { panic!("a test") })));
        assert!(panicked.is_err());
        assert_eq!(crew.run(&[None], |piece, _| Ok(piece)).unwrap(), [(0, None)]);
        crew.stop();
        assert!(crew.run(&[None], |piece, _| Ok(piece)).is_err());
    }
}
