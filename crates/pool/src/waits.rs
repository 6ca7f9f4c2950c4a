//! Who waits for a page's input or output? Tasks parked by number, woken in order of arrival.

use homenode_platform::CachePadded;
use homenode_platform::sync::Mutex;
use homenode_platform::task::{self, Task};
use homenode_platform::wait::WaitEvent;

/// Lists of waiters; a power of two.
const SHARDS: usize = 64;

/// What is waited for, and who waits; in order of arrival.
type Waiters = Vec<(u64, Task)>;

/// Tasks waiting for conditions named by a number.
pub(crate) struct Waits {
    shards: Box<[CachePadded<Mutex<Waiters>>]>,
}

impl Waits {
    pub(crate) fn new() -> Waits {
        Waits { shards: (0..SHARDS).map(|_| CachePadded::new(Mutex::new(Vec::new()))).collect() }
    }

    fn shard(&self, key: u64) -> &Mutex<Waiters> {
        // Neighbouring pages are loaded together: spread them (Fibonacci hashing).
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
        &self.shards[hash as usize % SHARDS]
    }

    /// Parks the task while `blocked` holds. Whoever makes it false calls [`Waits::wake`] with the
    /// same key afterwards; it is checked under the list's lock, so no wake-up is lost.
    pub(crate) fn wait_while(&self, key: u64, event: WaitEvent, blocked: impl Fn() -> bool) {
        let me = task::current();
        let shard = self.shard(key);
        loop {
            let mut waiters = shard.lock();
            let place = waiters.iter().position(|(k, t)| *k == key && t.id() == me.id());
            if !blocked() {
                if let Some(place) = place {
                    waiters.remove(place);
                }
                return;
            }
            if place.is_none() {
                waiters.push((key, me.clone()));
            }
            drop(waiters);
            task::park(event);
        }
    }

    /// Wakes all that wait for `key`, first come first.
    pub(crate) fn wake(&self, key: u64) {
        let mut waiters = self.shard(key).lock();
        if waiters.is_empty() {
            return;
        }
        let mut woken = Vec::new();
        waiters.retain(|(k, task)| {
            if *k == key {
                woken.push(task.clone());
            }
            *k != key
        });
        drop(waiters);
        for task in woken {
            task.unpark();
        }
    }
}
