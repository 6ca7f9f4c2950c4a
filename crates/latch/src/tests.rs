use super::*;
use homenode_platform::atomic::{AtomicBool, AtomicUsize};
use homenode_platform::{bytes, thread};
use std::sync::Arc;

const ROUNDS: usize = if cfg!(miri) { 20 } else { 20_000 };

#[test]
fn eight_bytes() {
    assert_eq!(size_of::<Latch>(), 8);
}

#[test]
fn versions_move_with_changes_only() {
    let latch = Latch::new();
    let before = latch.optimistic();
    assert!(latch.validate(before));
    latch.lock_shared();
    assert!(latch.validate(before), "optimistic readers ignore shared holders");
    assert!(!latch.try_upgrade(before), "a shared holder keeps the upgrade out");
    latch.unlock_shared();
    latch.lock_exclusive();
    assert_eq!(latch.try_optimistic(), None);
    assert!(!latch.validate(before));
    latch.unlock_exclusive_unchanged();
    assert!(latch.validate(before), "nothing changed");
    assert!(latch.try_upgrade(before));
    latch.unlock_exclusive();
    assert!(!latch.validate(before));
    assert!(!latch.try_upgrade(before), "the version is an old one");
    assert!(!latch.is_exclusive());
}

#[test]
fn modes_exclude_each_other() {
    let latch = Latch::new();
    latch.lock_shared();
    assert!(latch.try_lock_shared() && !latch.try_lock_exclusive());
    latch.unlock_shared();
    latch.unlock_shared();
    assert!(latch.try_lock_exclusive());
    assert!(!latch.try_lock_shared() && !latch.try_lock_exclusive());
    latch.unlock_exclusive();
}

fn run(threads: usize, f: impl Fn(usize) + Send + Sync + 'static) {
    let f = Arc::new(f);
    let start = |i| {
        let f = f.clone();
        thread::spawn("latch-test", move || f(i))
    };
    for handle in (0..threads).map(start).collect::<Vec<_>>() {
        handle.join();
    }
}

#[test]
fn writers_exclude_each_other_and_readers_see_whole_pairs() {
    static LATCH: Latch = Latch::new();
    static PAIR: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    let latch = &LATCH;
    run(4, move |i| {
        // Both words through a pointer to the array, whose cells may be written while shared.
        let ptr = PAIR.as_ptr().cast::<u8>().cast_mut();
        for round in 0..ROUNDS {
            if i < 2 {
                latch.lock_exclusive();
                // SAFETY: the pair is static, aligned memory; we hold the latch exclusively.
                unsafe {
                    let next = bytes::load_u64(ptr) + 1;
                    bytes::store_u64(ptr, next);
                    bytes::store_u64(ptr.add(8), next);
                }
                latch.unlock_exclusive();
            } else if round % 4 == 0 {
                latch.lock_shared();
                // SAFETY: static, aligned memory, read through the byte accessors.
                let (a, b) = unsafe { (bytes::load_u64(ptr), bytes::load_u64(ptr.add(8))) };
                latch.unlock_shared();
                assert_eq!(a, b);
            } else {
                let version = latch.optimistic();
                // SAFETY: static, aligned memory, read through the byte accessors.
                let (a, b) = unsafe { (bytes::load_u64(ptr), bytes::load_u64(ptr.add(8))) };
                if latch.validate(version) {
                    assert_eq!(a, b);
                    SEEN.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    });
    assert!(PAIR.iter().all(|word| word.load(Ordering::Relaxed) == 2 * ROUNDS as u64));
    assert!(SEEN.load(Ordering::Relaxed) > 0);
    assert!(!Word(LATCH.word.load(Ordering::Relaxed)).has_waiters());
}

#[test]
fn a_flood_of_shared_holders_does_not_starve_an_exclusive_waiter() {
    static LATCH: Latch = Latch::new();
    let latch = &LATCH;
    let stop = Arc::new(AtomicBool::new(false));
    let grants = Arc::new(AtomicUsize::new(0));
    latch.lock_shared(); // so that the waiter has to queue
    run(4, move |i| {
        if i == 0 {
            for _ in 0..ROUNDS / 20 {
                latch.lock_exclusive();
                latch.unlock_exclusive();
            }
            stop.store(true, Ordering::Relaxed);
        } else {
            // Each takes its next hold before it gives up the last one, so without fairness the
            // latch would never be free. A second hold may have to queue behind the waiter, hence try.
            if i == 1 {
                latch.unlock_shared();
            }
            while !stop.load(Ordering::Relaxed) {
                latch.lock_shared();
                let overlapped = latch.try_lock_shared();
                latch.unlock_shared();
                if overlapped {
                    latch.unlock_shared();
                }
                grants.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
}

#[test]
fn a_waiter_is_overtaken_a_bounded_number_of_times() {
    static LATCH: Latch = Latch::new();
    let latch = &LATCH;
    latch.lock_shared();
    let waiter = thread::spawn("waiter", || {
        latch.lock_exclusive();
        latch.unlock_exclusive();
    });
    while !Word(latch.word.load(Ordering::Relaxed)).has_waiters() {
        thread::sleep_ns(10_000);
    }
    let overtakes = (0..100).take_while(|_| latch.try_lock_shared()).count();
    assert_eq!(overtakes, MAX_OVERTAKES as usize);
    for _ in 0..=overtakes {
        latch.unlock_shared();
    }
    waiter.join();
}

#[test]
fn who_is_refused_leaves_no_trace() {
    let latch = Latch::new();
    let before = latch.optimistic();
    latch.lock_shared();
    assert!(latch.lock_shared_if(|| false), "the condition is for queueing only");
    latch.unlock_shared();
    assert!(!latch.lock_exclusive_if(|| false));
    latch.unlock_shared();
    assert!(latch.try_upgrade(before), "nobody holds the latch and nobody waits");
    assert!(!latch.lock_shared_if(|| false));
    assert_eq!(latch.optimistic_if(|| false), None);
    latch.unlock_exclusive_unchanged();
    assert_eq!(latch.optimistic_if(|| false), Some(before));
}

#[test]
fn who_is_refused_leaves_the_queue_as_it_was() {
    static LATCH: Latch = Latch::new();
    let latch = &LATCH;
    latch.lock_shared();
    let waiter = thread::spawn("waiter", || {
        assert!(LATCH.lock_exclusive_if(|| true));
        LATCH.unlock_exclusive();
    });
    while !Word(latch.word.load(Ordering::Relaxed)).has_waiters() {
        thread::sleep_ns(10_000);
    }
    assert!(!latch.lock_exclusive_if(|| false));
    assert!(Word(latch.word.load(Ordering::Relaxed)).has_waiters());
    latch.unlock_shared();
    waiter.join();
}
