//! Where does the kernel run threads that are no workers?
//!
//! Workers are one a core and stay there; the engine's own threads come on top of them. As on Linux (`kernel/sched/fair.c`):
//! - Who wakes gets the core it was on, if that idles, else an idle one of the same L3 group, else its own all the same
//!   (`select_idle_sibling`), where it goes before a worker that has run for long.
//! - Where a worker waits behind such a thread, a core of the group that idles takes one of the two over (`sched_balance_newidle`,
//!   and `select_idle_sibling` when the worker wakes). Here it is always the thread that moves: workers are tied to their cores.
//!
//! **Not modelled:** that without an idle core the two would take turns of a slice; here the thread goes on until it waits.

use super::{Sim, ps};

impl Sim {
    /// The core on which a thread that wakes goes on; it belongs there from now on.
    pub(super) fn placed(&mut self, thread: usize) -> usize {
        let last = self.threads[thread].core;
        if self.threads[thread].background
            && !self.idles(last)
            && let Some(core) = self.idle_beside(last)
        {
            self.belongs_to(thread, core);
        }
        self.threads[thread].core
    }

    pub(super) fn belongs_to(&mut self, thread: usize, core: usize) {
        let old = std::mem::replace(&mut self.threads[thread].core, core);
        self.cores[old].threads -= 1;
        self.cores[core].threads += 1;
    }

    /// The running thread is not a worker, and its core's worker waits: goes to an idle core beside. False: there is none.
    pub(super) fn make_way(&mut self) -> bool {
        let me = self.running;
        let Some(thread) = self.cores[me].thread.filter(|&thread| self.threads[thread].background) else {
            return false;
        };
        let Some(core) = self.idle_beside(me) else { return false };
        self.belongs_to(thread, core);
        self.release_core();
        self.enqueue(thread, self.now + ps(self.hardware.threading.thread_switch_ns));
        true
    }

    fn idles(&self, core: usize) -> bool {
        self.cores[core].thread.is_none() && self.cores[core].ready.is_empty()
    }

    /// An idle core of the same L3 group, the first from `core` on.
    fn idle_beside(&self, core: usize) -> Option<usize> {
        let count = self.cores.len();
        let mut others = (1..count).map(|step| (core + step) % count);
        others.find(|&other| self.cores[other].group == self.cores[core].group && self.idles(other))
    }
}
