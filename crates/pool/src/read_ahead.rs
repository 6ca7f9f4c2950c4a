//! Which pages will a scan want next? They are read before it asks, in runs.
//!
//! Pages in the file's order are read ahead by the system itself, which notices; they are taken over from its page cache, many a call. Of others
//! the system is told first (`posix_fadvise`), and it reads without a thread of ours. Some pages later the scan takes over what is
//! there by then, without waiting; what is not there yet is left to a few threads that block in its place.
//!
//! A request is a hint: it is dropped when too many are waiting, and a page for which no frame can be had at once is passed over.
//! Frames come from the free lists or from pages that nobody has used since the clock hand passed. The first use of a page that was read ahead only
//! takes its mark away, as a miss would have set none: so a scan of much does not make its pages look used again, and hot
//! pages stay (`Frame::touch`).

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use homenode_platform::atomic::{AtomicBool, Ordering::SeqCst};
use homenode_platform::sync::Mutex;
use homenode_platform::task::{self, Task};
use homenode_platform::thread::{self, JoinHandle};
use homenode_platform::wait::WaitEvent;

use crate::prewarm::Loaded;
use crate::{PAGE_BYTES, PageNo, Pool};

/// Reads in flight. A device is kept busy by a few large ones.
const THREADS_MAX: usize = 8;
/// Pages of one request that are neighbours in the file: 512 KiB, one call.
const RUN_PAGES: usize = 32;
/// Pages of one request that are not: each takes a call of its own.
const SCATTERED_PAGES: usize = 4;
/// Requests that wait.
const QUEUE_MAX: usize = 64;
/// Pages ahead of a scan: 2 MiB...
const WINDOW_PAGES: usize = 128;
/// ...or this share of a small pool.
const POOL_SHARE: usize = 32;

/// The threads and what they are to read.
pub(crate) struct ReadAhead {
    /// Whether there is any.
    is_on: bool,
    /// Where the threads run; empty: anywhere.
    cpus: Vec<usize>,
    queue: Mutex<Queue>,
    stop: AtomicBool,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Vec<PageNo>>,
    /// Threads without work, by number.
    idle: Vec<(usize, Task)>,
    threads: Vec<JoinHandle>,
}

impl ReadAhead {
    pub(crate) fn new(is_on: bool, cpus: Vec<usize>) -> Arc<ReadAhead> {
        Arc::new(ReadAhead { is_on, cpus, queue: Mutex::new(Queue::default()), stop: AtomicBool::new(false) })
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, SeqCst);
        let idle = std::mem::take(&mut self.queue.lock().idle);
        idle.iter().for_each(|(_, task)| task.unpark());
    }

    pub(crate) fn stop_and_join(&self) {
        self.stop();
        let threads = std::mem::take(&mut self.queue.lock().threads);
        threads.into_iter().for_each(JoinHandle::join);
    }

    /// The next request for thread `number`; None when it shall end.
    fn next(&self, number: usize) -> Option<Vec<PageNo>> {
        loop {
            {
                let mut queue = self.queue.lock();
                if self.stop.load(SeqCst) {
                    return None;
                }
                if let Some(pages) = queue.waiting.pop_front() {
                    return Some(pages);
                }
                if !queue.idle.iter().any(|(other, _)| *other == number) {
                    queue.idle.push((number, task::current()));
                }
            }
            task::park(WaitEvent::Sleep);
        }
    }

    fn run(&self, pool: &Weak<Pool>, number: usize) {
        if !self.cpus.is_empty() {
            // Refused in some containers; then it reads from farther away.
            let _ = thread::pin_to_cpus(&self.cpus);
        }
        while let Some(pages) = self.next(number) {
            let Some(pool) = pool.upgrade() else { return };
            // What cannot be read is met by whoever wants it.
            let _ = pool.load_ahead(&pages, Loaded::Ahead);
        }
    }
}

impl Pool {
    /// How many pages a scan should have read ahead of it; 0: none.
    pub fn read_ahead_window(&self) -> usize {
        if !self.ahead.is_on {
            return 0;
        }
        let frames: usize = self
            .partitions
            .iter()
            .filter(|partition| !partition.is_far())
            .map(|partition| partition.active_frames())
            .sum();
        WINDOW_PAGES.min(frames / POOL_SHARE)
    }

    /// Has the system get those of `pages` that are not in memory, for [`Pool::read_ahead`] to take over. Does not wait. What lies in the
    /// file's order is left out: the system notices by itself that it is read in order.
    pub fn announce(&self, pages: &[PageNo]) {
        for run in self.absent_runs(pages) {
            if !is_in_file_order(&run) {
                run.iter().for_each(|&page_no| self.file.will_need(page_no, 1));
            }
        }
    }

    /// Has those of `pages` read that are not in memory: at once what the system has, soon what it hasn't. Does not wait.
    pub fn read_ahead(self: &Arc<Pool>, pages: &[PageNo]) {
        for run in self.absent_runs(pages) {
            // What cannot be read is met by whoever wants it.
            let loaded = self.load_ahead(&run, Loaded::AheadIfCached).unwrap_or(0);
            if loaded < run.len() && !is_in_file_order(&run) {
                self.ask(run);
            }
        }
    }

    /// Those of `pages` that are not in memory, in requests: neighbours in the file, or a few that are none.
    fn absent_runs(&self, pages: &[PageNo]) -> Vec<Vec<PageNo>> {
        let mut requests: Vec<Vec<PageNo>> = Vec::new();
        for page_no in pages.iter().copied().filter(|&page_no| !self.is_resident(page_no)) {
            match requests.last_mut() {
                Some(request) if takes(request, page_no) => request.push(page_no),
                _ => requests.push(vec![page_no]),
            }
        }
        requests
    }

    fn ask(self: &Arc<Pool>, pages: Vec<PageNo>) {
        let mut queue = self.ahead.queue.lock();
        if queue.waiting.len() >= QUEUE_MAX || self.ahead.stop.load(SeqCst) {
            return;
        }
        queue.waiting.push_back(pages);
        if let Some((_, task)) = queue.idle.pop() {
            drop(queue);
            task.unpark();
        } else if queue.threads.len() < THREADS_MAX {
            let (pool, ahead, number) = (Arc::downgrade(self), self.ahead.clone(), queue.threads.len());
            queue.threads.push(thread::spawn("page-ahead", move || ahead.run(&pool, number)));
        }
    }
}

/// Whether a request's pages are neighbours in the file, ascending.
fn is_in_file_order(request: &[PageNo]) -> bool {
    request.len() > 1 && request[0] + 1 == request[1]
}

/// Whether a request may go on with the page.
fn takes(request: &[PageNo], page_no: PageNo) -> bool {
    let follows = request.last().is_some_and(|last| last + 1 == page_no);
    match request {
        [_, _, ..] if is_in_file_order(request) => follows && request.len() < RUN_PAGES,
        _ => request.len() < SCATTERED_PAGES,
    }
}

const _: () = assert!(RUN_PAGES * PAGE_BYTES == 512 << 10);
