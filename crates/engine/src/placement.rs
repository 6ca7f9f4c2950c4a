//! On which nodes do workers and sessions live, and how is a session told to move? And: pages loaded ahead of need.
//!
//! A session is moved by asking: its wish is noted here, and the worker that serves it hands it over before its next
//! statement, when it is in no transaction. Its buffers are made anew there and its statements planned anew, by the new worker's
//! thread, so they are memory of its node. Settings and names stay where they were.

use crate::database::Database;
use crate::error::{Error, Result, SqlState, Storage};
use crate::session::Session;
use homenode_memory::Policy;
use homenode_platform::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use homenode_platform::task;
use homenode_platform::thread;
use homenode_platform::wait::WaitEvent;
use homenode_pool::{PageNo, Reshaped};
use homenode_topology::Device;
use std::ops::Range;
use std::sync::Arc;

/// Says "no node" where a node's number is kept in an atomic.
pub(crate) const NOWHERE: i64 = -1;

/// The thread that serves a lane. Written once, by that thread.
pub(crate) struct WorkerPlace {
    node: AtomicI64,
    thread: AtomicU32,
}

impl WorkerPlace {
    pub fn new() -> WorkerPlace {
        WorkerPlace { node: AtomicI64::new(NOWHERE), thread: AtomicU32::new(0) }
    }
}

/// A node's number as it is kept; nothing for [`NOWHERE`].
pub(crate) fn node_of(kept: i64) -> Option<usize> {
    usize::try_from(kept).ok()
}

pub(crate) fn kept(node: Option<usize>) -> i64 {
    node.and_then(|node| i64::try_from(node).ok()).unwrap_or(NOWHERE)
}

/// A worker, for views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerInfo {
    /// Its lane.
    pub lane: usize,
    /// The node whose CPUs it is bound to; none if it may run anywhere.
    pub node: Option<usize>,
    /// The system's number of its thread; none for a lane that no thread has taken.
    pub thread: Option<u32>,
}

impl Database {
    /// Says that the calling worker serves `lane`, bound to the CPUs of `node` (or to none), as the system's thread `thread`.
    pub fn note_worker(&self, lane: usize, node: Option<usize>, thread: u32) {
        let place = &self.inner.workers[lane % self.inner.workers.len()];
        place.node.store(kept(node), Ordering::Relaxed);
        place.thread.store(thread, Ordering::Relaxed);
    }

    /// The device that the data folder is on.
    pub fn device(&self) -> Device {
        Device::of(&self.inner.dir, &self.inner.topology)
    }

    /// All workers, by lane.
    pub fn workers(&self) -> Vec<WorkerInfo> {
        let info = |(lane, place): (usize, &WorkerPlace)| WorkerInfo {
            lane,
            node: node_of(place.node.load(Ordering::Relaxed)),
            thread: Some(place.thread.load(Ordering::Relaxed)).filter(|&thread| thread != 0),
        };
        self.inner.workers.iter().enumerate().map(info).collect()
    }

    /// Asks session `pid` to live on `node` from its next statement on (outside a transaction), or, with `None`, wherever it
    /// is. False when there is no such session.
    ///
    /// # Errors
    /// 22023 when no worker is bound to the node.
    pub fn pin(&self, pid: u32, node: Option<usize>) -> Result<bool> {
        if let Some(wanted) = node
            && !self.workers().iter().any(|worker| worker.node == Some(wanted))
        {
            let mut nodes: Vec<String> =
                self.workers().iter().filter_map(|worker| worker.node).map(|node| node.to_string()).collect();
            nodes.dedup();
            let message = format!("no worker is bound to node {wanted}");
            let hint = match nodes.is_empty() {
                true => "Workers are bound to nodes on machines with several of them, unless started with --numa off."
                    .into(),
                false => format!("Nodes with workers: {}.", nodes.join(", ")),
            };
            return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message).with_hint(hint));
        }
        let Some(shared) = self.inner.sessions.find(pid) else { return Ok(false) };
        shared.wanted_node.store(kept(node), Ordering::Relaxed);
        Ok(true)
    }
}

impl Session {
    /// Continues on another lane: the caller is the worker of that lane from now on. Returns memory of the old one, to be dropped
    /// in such a way that the new one does not use it again.
    ///
    /// # Panics
    /// In a transaction, which is named by its lane.
    pub fn move_to(&mut self, lane: usize) -> impl Send + use<> {
        assert!(!self.in_transaction(), "a transaction stays on its lane");
        self.lane = lane % self.db.lanes.len();
        self.shared.moved_to(self.lane);
        self.forget_definitions();
        std::mem::take(&mut self.buffers)
    }

    /// Gives the pool another size (bytes) or another policy, while others use it.
    ///
    /// # Errors
    /// 22023 for nodes that there are none of; 55000 when placement is switched off; 53200 when memory cannot be had as the policy wants
    /// it, and 53000 when the pool cannot shrink: then it stays as it was, as far as it can.
    pub fn reshape_pool(&mut self, bytes: Option<usize>, policy: Option<Policy>) -> Result<Reshaped> {
        if policy.is_some() && !self.db.options.numa {
            let message = "memory is not placed by node: the server was started with --numa off";
            return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
        let pool = self.db.pool.clone();
        elsewhere("homenode-reshape", move || pool.reshape(bytes, policy.as_ref()).sql())
    }

    /// Brings the pages of a table or index into the pool, as far as there are frames that nothing has to be evicted for.
    /// `range` counts the relation's pages from 0. How many of these are in the pool in the end; `None` when `oid` is neither.
    ///
    /// # Errors
    /// Those of reading pages.
    pub fn prewarm(&mut self, oid: u32, range: Range<u64>) -> Result<Option<u64>> {
        let definitions = self.definitions().clone();
        let tree = match (definitions.table_by_oid(oid), definitions.index_by_oid(oid)) {
            (Some(table), _) => table.tree.clone(),
            (_, Some((_, index))) => index.tree.clone(),
            _ => return Ok(None),
        };
        let pool = self.db.pool.clone();
        let loaded = elsewhere("homenode-prewarm", move || {
            let mut pages: Vec<PageNo> = tree.pages().sql()?;
            pages.sort_unstable();
            let last = range.end.min(pages.len() as u64) as usize;
            let wanted = &pages[(range.start as usize).min(last)..last];
            pool.prewarm(wanted).sql()?;
            Ok(wanted.iter().filter(|page| pool.is_resident(**page)).count() as u64)
        });
        loaded.map(Some)
    }
}

/// Runs `work` on a thread of its own, so that the other sessions of the caller's worker go on meanwhile.
fn elsewhere<T: Send + 'static>(name: &str, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = Arc::new(AtomicBool::new(false));
    let answer = Arc::new(homenode_platform::sync::Mutex::new(None));
    let me = task::current();
    let handle = {
        let (done, answer) = (done.clone(), answer.clone());
        thread::spawn(name, move || {
            *answer.lock() = Some(work());
            done.store(true, Ordering::SeqCst);
            me.unpark();
        })
    };
    while !done.load(Ordering::SeqCst) {
        task::park(WaitEvent::PageRead);
    }
    handle.join();
    let answer = answer.lock().take();
    answer.unwrap_or_else(|| Err(Error::internal("a thread ended without an answer")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_pinned_only_to_nodes_with_workers() {
        let folder = std::env::temp_dir().join(format!("homenode-placement-{}", std::process::id()));
        let options = crate::Options { pool_bytes: 4 << 20, lanes: 2, ..crate::Options::default() };
        let db = Database::open_with(&folder, options).unwrap();
        let mut session = db.session_on(0).unwrap();
        let pid = session.shared().pid;
        assert!(db.pin(pid, Some(0)).is_err(), "nobody is bound");
        db.note_worker(0, Some(0), 11);
        db.note_worker(1, Some(3), 12);
        assert!(db.pin(pid, Some(3)).unwrap());
        assert!(!db.pin(pid + 1, Some(3)).unwrap());
        assert_eq!(session.shared().wanted_node(), Some(3));
        drop(session.move_to(1));
        let info = db.sessions().into_iter().find(|info| info.pid == pid).unwrap();
        assert_eq!((info.lane, info.pinned_node, info.moves), (1, Some(3), 1));
        assert!(db.pin(pid, None).unwrap());
        assert_eq!(session.shared().wanted_node(), None);
        drop(session);
        db.close().unwrap();
        std::fs::remove_dir_all(folder).unwrap();
    }
}
