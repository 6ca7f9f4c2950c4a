//! Who waits for which latch? A sharded table of queues, keyed by the latch's address.
//!
//! Invariants, all kept under the bucket's mutex:
//! - a latch with a queue has its waiters bit set, and the other way round;
//! - the woken bit is set only between the waking of the first waiter and its try;
//! - when a latch with a queue is held by nobody, either the first waiter is woken, or whoever
//!   released it is on the way to `wake`. So no wake-up is lost.

use crate::pause;
use crate::word::{Mode, QUEUE_STATE, WAITERS, WOKEN, Word};
use homenode_platform::atomic::{AtomicBool, AtomicU64, Ordering};
use homenode_platform::sync::{Mutex, MutexGuard};
use homenode_platform::task::{self, Task};
use homenode_platform::wait::WaitEvent;
use homenode_platform::{CachePadded, Global};
use std::collections::VecDeque;
use std::sync::Arc;

/// Waiting is rare, so buckets need only be more than the CPUs that wait at once.
const BUCKETS: usize = 256;

struct Waiter {
    latch: usize,
    mode: Mode,
    task: Task,
    /// The latch has been given to the waiter, which is out of the queue.
    granted: AtomicBool,
}

type Bucket = VecDeque<Arc<Waiter>>;

static TABLE: Global<Vec<CachePadded<Mutex<Bucket>>>> =
    Global::new(|| (0..BUCKETS).map(|_| CachePadded::default()).collect());

fn bucket(latch: &AtomicU64) -> MutexGuard<'static, Bucket> {
    // Fibonacci hashing: frame descriptors are a power of two apart.
    let hash = (address(latch) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    TABLE.get()[(hash >> 32) as usize % BUCKETS].lock()
}

fn address(latch: &AtomicU64) -> usize {
    homenode_platform::address_key(std::ptr::from_ref(latch))
}

/// Queues for the latch and returns true when it is held in `mode`; false, without having queued, if
/// `valid` does not hold.
pub(crate) fn wait(latch: &AtomicU64, mode: Mode, event: WaitEvent, valid: &dyn Fn() -> bool) -> bool {
    let me = match enqueue(latch, mode, valid) {
        Entry::Queued(me) => me,
        Entry::Held => return true,
        Entry::Refused => return false,
    };
    loop {
        task::park(event);
        // Acquire pairs with the release in `grant`: what earlier holders did is seen.
        let granted = || me.granted.load(Ordering::Acquire);
        if granted() {
            return true;
        }
        match try_as_first(latch, &me) {
            Try::Held => return true,
            Try::Due if spin_until(&granted) => return true,
            Try::Due | Try::Spurious => {}
        }
    }
}

/// Whether `ready` came true within a few microseconds: holds are shorter, nearly always.
fn spin_until(ready: &dyn Fn() -> bool) -> bool {
    let look = |attempt| {
        pause(attempt);
        ready()
    };
    (0..task::spin_turns()).any(look)
}

/// How queueing ended.
enum Entry {
    Queued(Arc<Waiter>),
    /// The caller got the latch after all.
    Held,
    /// The caller's condition does not hold.
    Refused,
}

/// Puts the caller into the queue if it has to wait and may.
fn enqueue(latch: &AtomicU64, mode: Mode, valid: &dyn Fn() -> bool) -> Entry {
    #[cfg(homenode_lab)]
    let asked_early = crate::planted::is_on(&crate::planted::ASK_EARLY).then(valid);
    let mut queue = bucket(latch);
    let mut word = Word(latch.load(Ordering::Relaxed));
    loop {
        let taken = word.taken_by_newcomer(mode);
        let next = taken.unwrap_or(Word(word.0 | WAITERS));
        #[cfg(homenode_lab)]
        if taken.is_none() && crate::planted::is_on(&crate::planted::QUEUE_BLINDLY) {
            latch.fetch_or(WAITERS, Ordering::Relaxed);
            break;
        }
        // Even when the bit is set already the exchange is needed: it orders this decision before
        // or after the release that must see the bit. Acquire as in Latch::try_take.
        match latch.compare_exchange(word.0, next.0, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) if taken.is_some() => return Entry::Held,
            Ok(_) => break,
            Err(now) => word = Word(now),
        }
    }
    // Only now: whoever makes it false and then finds no waiters bit did so before our exchange,
    // which has acquired it. (Releases and takings of the latch are all read-modify-writes of its word.)
    let valid_now = valid();
    #[cfg(homenode_lab)]
    let valid_now = asked_early.unwrap_or(valid_now);
    if !valid_now {
        if !queue.iter().any(|waiter| waiter.latch == address(latch)) {
            latch.fetch_and(!QUEUE_STATE, Ordering::Relaxed);
        }
        return Entry::Refused;
    }
    let waiter =
        Arc::new(Waiter { latch: address(latch), mode, task: task::current(), granted: AtomicBool::new(false) });
    queue.push_back(waiter.clone());
    Entry::Queued(waiter)
}

/// How a woken waiter's try ended.
enum Try {
    Held,
    /// Somebody has the latch, and will hand it over.
    Due,
    /// It was not the caller's turn.
    Spurious,
}

/// After a wake-up: takes the latch if the caller is first in the queue and the holders allow it.
fn try_as_first(latch: &AtomicU64, me: &Arc<Waiter>) -> Try {
    let mut queue = bucket(latch);
    if me.granted.load(Ordering::Acquire) {
        return Try::Held;
    }
    let first = queue.iter().find(|waiter| waiter.latch == me.latch);
    if !first.is_some_and(|first| Arc::ptr_eq(first, me)) {
        return Try::Spurious;
    }
    let mut word = Word(latch.load(Ordering::Relaxed));
    loop {
        if word.admits(me.mode) {
            match grant(latch, word, &mut queue) {
                Ok(granted) => {
                    drop(queue);
                    unpark_all(&granted, Some(me));
                    return Try::Held;
                }
                Err(now) => word = now,
            }
        } else {
            // Overtaken, now for the last time.
            match latch.compare_exchange(word.0, word.due().0, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Try::Due,
                Err(now) => word = Word(now),
            }
        }
    }
}

/// After a release that left waiters behind: wakes the first, or hands the latch to it when it has
/// been overtaken often enough.
#[cold]
pub(crate) fn wake(latch: &AtomicU64) {
    let mut queue = bucket(latch);
    let mut word = Word(latch.load(Ordering::Relaxed));
    loop {
        if !word.needs_wake() || word.is_held() {
            return; // somebody got in meanwhile and will see to the waiters
        }
        if word.is_due() {
            match grant(latch, word, &mut queue) {
                Ok(granted) => {
                    drop(queue);
                    return unpark_all(&granted, None);
                }
                Err(now) => word = now,
            }
        } else {
            match latch.compare_exchange(word.0, word.0 | WOKEN, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    let first = queue.iter().find(|waiter| waiter.latch == address(latch));
                    let first = first.expect("the waiters bit means a queue").task.clone();
                    drop(queue);
                    return first.unpark();
                }
                Err(now) => word = Word(now),
            }
        }
    }
}

/// Gives the latch to the first waiter, and if that one shares it, to those that share it right
/// behind. The caller has seen `word`, which admits the first waiter; fails with the present word.
fn grant(latch: &AtomicU64, word: Word, queue: &mut Bucket) -> Result<Vec<Arc<Waiter>>, Word> {
    let mine = |waiter: &Arc<Waiter>| waiter.latch == address(latch);
    let waiters = || queue.iter().filter(|waiter| mine(waiter));
    let mode = waiters().next().expect("the waiters bit means a queue").mode;
    let count = match mode {
        Mode::Exclusive => 1,
        Mode::Shared => {
            let alike = waiters().take_while(|waiter| waiter.mode == mode).count();
            alike.min(word.room_for_shared())
        }
    };
    let next = word.taken_by_waiters(mode, count as u64, waiters().nth(count).is_some());
    // Acquire: the earlier holders' releases; passed on to the waiters by the release below.
    if let Err(now) = latch.compare_exchange(word.0, next.0, Ordering::Acquire, Ordering::Relaxed) {
        return Err(Word(now));
    }
    let mut granted = Vec::with_capacity(count);
    queue.retain(|waiter| {
        let take = granted.len() < count && mine(waiter);
        if take {
            granted.push(waiter.clone());
        }
        !take
    });
    for waiter in &granted {
        waiter.granted.store(true, Ordering::Release);
    }
    Ok(granted)
}

fn unpark_all(granted: &[Arc<Waiter>], except: Option<&Arc<Waiter>>) {
    for waiter in granted {
        if !except.is_some_and(|me| Arc::ptr_eq(me, waiter)) {
            waiter.task.unpark();
        }
    }
}
