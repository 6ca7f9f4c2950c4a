//! How much memory do the threads of a big scan hold, for which session, and where? One entry for each scan that runs now.
//!
//! What a thread has gathered goes on being counted as that thread's when the session merges it: it lies on the thread's node.

use crate::crew::Worker;
use crate::database::{Database, Inner};
use crate::session_memory::{MemoryUse, PrivateMemory};
use homenode_platform::sync::Mutex;
use std::sync::Arc;

/// Scans that run now.
#[derive(Default)]
pub(crate) struct Queries(Mutex<Running>);

#[derive(Default)]
struct Running {
    /// How many there have been.
    count: u64,
    now: Vec<Arc<Query>>,
}

/// A scan that is dealt out to threads.
pub(crate) struct Query {
    number: u64,
    pid: u32,
    workers: Mutex<Vec<(Worker, Arc<PrivateMemory>)>>,
}

impl Query {
    /// The numbers of one of its threads.
    pub fn memory_of(&self, worker: Worker) -> Arc<PrivateMemory> {
        let mut workers = self.workers.lock();
        if let Some((_, memory)) = workers.iter().find(|(known, _)| *known == worker) {
            return memory.clone();
        }
        let memory = Arc::<PrivateMemory>::default();
        workers.push((worker, memory.clone()));
        memory
    }
}

/// Takes a scan out of the list when it is dropped.
pub(crate) struct Entry {
    db: Arc<Inner>,
    pub query: Arc<Query>,
}

impl Entry {
    pub fn new(db: &Arc<Inner>, pid: u32) -> Entry {
        let mut running = db.queries.0.lock();
        running.count += 1;
        let query = Arc::new(Query { number: running.count, pid, workers: Mutex::default() });
        running.now.push(query.clone());
        drop(running);
        Entry { db: db.clone(), query }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.db.queries.0.lock().now.retain(|query| !Arc::ptr_eq(query, &self.query));
    }
}

/// Memory that one thread has made for one scan, for views.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerMemory {
    /// The session that waits for the scan.
    pub pid: u32,
    /// Big scans are numbered from the database's start on.
    pub query: u64,
    /// The thread's number.
    pub worker: usize,
    /// The node that it is bound to; none if it may run anywhere.
    pub node: Option<usize>,
    /// What it holds, by context.
    pub memory: Vec<MemoryUse>,
}

impl Database {
    /// What the threads of scans that run now hold, by scan and thread.
    pub fn query_memory(&self) -> Vec<WorkerMemory> {
        let queries = self.inner.queries.0.lock().now.clone();
        let mut found = Vec::new();
        for query in queries {
            let mut workers = query.workers.lock().clone();
            workers.sort_by_key(|(worker, _)| worker.number);
            found.extend(workers.into_iter().map(|(worker, memory)| WorkerMemory {
                pid: query.pid,
                query: query.number,
                worker: worker.number,
                node: worker.node,
                memory: memory.list(),
            }));
        }
        found
    }
}
