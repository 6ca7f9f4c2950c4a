//! Who wakes a node's committers? On a machine with several nodes, a thread of that node.
//!
//! The thread that syncs would write lines of every waiter's worker, most of them on other nodes, for each of the hundreds that a
//! flush covers, and sync nothing meanwhile. It wakes one relay a node instead, and goes on.

use crate::log::Shared;
use crate::stats::add;
use homenode_platform::atomic::{Ordering, fence};
use homenode_platform::thread;

/// The relay thread of a node, on `cpus`.
pub(crate) fn run(shared: &Shared, node: usize, cpus: &[usize]) {
    // A refusal only makes it slower: containers may forbid it.
    let _ = thread::pin_to_cpus(cpus);
    let waiters = &*shared.committers.nodes()[node];
    waiters.relay.adopt();
    let mut seen = 0;
    let mut scratch = Vec::new();
    let durable = || shared.progress.durable.load(Ordering::Acquire);
    loop {
        // Before looking: what was published before the stop is then seen.
        let stopping = shared.relays_stop.load(Ordering::Acquire);
        let now = durable();
        if now > seen && waiters.is_waiting() {
            seen = now;
            let (released, others_wait) = shared.committers.relay(waiters, now, &mut scratch);
            add(&waiters.released, released);
            if others_wait {
                // The flusher may have looked while nobody seemed to wait.
                fence(Ordering::SeqCst);
                shared.flusher.wake();
            }
            continue;
        }
        if stopping {
            return;
        }
        let has_work = || shared.relays_stop.load(Ordering::Relaxed) || (durable() > seen && waiters.is_waiting());
        waiters.relay.sleep(None, has_work);
    }
}
