//! Whose turn is it? The random walk and the priority scheduler.

use super::api::Scheduler;
use super::random::Random;

/// A thread that never gives way is interrupted after so many points whatever the scheduler, or a loop
/// that waits for another thread without saying so would never end.
const SLICE_MAX: u64 = 20_000;

/// The state of a scheduler.
pub(super) struct Schedule {
    kind: Scheduler,
    random: Random,
    /// Points until the next decision.
    until_switch: u64,
    /// PCT: steps at which the running thread's priority drops, descending, so the next is last.
    changes: Vec<u64>,
    /// PCT: each thread's priority; the highest runs.
    priorities: Vec<i64>,
    lowest: i64,
}

impl Schedule {
    pub(super) fn new(kind: Scheduler, seed: u64) -> Schedule {
        let mut random = Random::new(seed ^ 0x5EED_0F5C_4ED0);
        let mut changes = Vec::new();
        if let Scheduler::Pct { changes: count, steps } = kind {
            changes = (0..count).map(|_| 1 + random.below(steps.max(1))).collect();
            changes.sort_unstable_by(|a, b| b.cmp(a));
        }
        let mut schedule = Schedule { kind, random, until_switch: 1, changes, priorities: Vec::new(), lowest: 0 };
        schedule.start_slice(0);
        schedule
    }

    pub(super) fn add_thread(&mut self) {
        let priority = 1 + self.random.below(1 << 32) as i64;
        self.priorities.push(priority);
    }

    /// Counts a point of the running thread; true if it has to let another one run.
    #[inline]
    pub(super) fn point(&mut self, running: usize, step: u64) -> bool {
        self.until_switch -= 1;
        if self.until_switch > 0 {
            return false;
        }
        if let Scheduler::Pct { .. } = self.kind {
            while self.changes.last().is_some_and(|&at| at <= step) {
                self.changes.pop();
            }
            self.demote(running);
        }
        true
    }

    /// The running thread waits for another by spinning: let all others go first.
    pub(super) fn demote(&mut self, running: usize) {
        self.lowest -= 1;
        self.priorities[running] = self.lowest;
    }

    /// Chooses one of the ready threads (at least one), which then starts a slice.
    pub(super) fn choose(&mut self, ready: &[usize], step: u64) -> usize {
        self.start_slice(step);
        match self.kind {
            Scheduler::Random { .. } => self.random.below(ready.len() as u64) as usize,
            Scheduler::Pct { .. } => {
                let best = (0..ready.len()).max_by_key(|&at| self.priorities[ready[at]]);
                best.expect("at least one thread is ready")
            }
        }
    }

    /// Whether a thread that became ready runs before the running one.
    pub(super) fn preempts(&self, ready: usize, running: usize) -> bool {
        matches!(self.kind, Scheduler::Pct { .. }) && self.priorities[ready] > self.priorities[running]
    }

    fn start_slice(&mut self, step: u64) {
        self.until_switch = match self.kind {
            Scheduler::Random { switch_every } => 1 + self.random.below(2 * u64::from(switch_every.max(1)) - 1),
            Scheduler::Pct { .. } => {
                let next = self.changes.last().map_or(u64::MAX, |&at| at.saturating_sub(step));
                next.clamp(1, SLICE_MAX)
            }
        };
    }
}
