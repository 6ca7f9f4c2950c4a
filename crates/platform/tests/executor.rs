//! Coroutines on one worker: parking, permits, timers, cross-thread wake-ups, panics.
#![cfg(not(homenode_lab))]

use homenode_platform::executor::{DEFAULT_STACK_BYTES, Executor};
use homenode_platform::sync::Mutex;
use homenode_platform::task::{self, Task};
use homenode_platform::wait::WaitEvent;
use homenode_platform::{clock, thread};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An executor whose wakes are counted and unpark the calling thread.
fn executor() -> (Executor, Arc<AtomicUsize>) {
    let wakes = Arc::new(AtomicUsize::new(0));
    let counted = wakes.clone();
    let worker = std::thread::current();
    let wake = move || {
        counted.fetch_add(1, Ordering::SeqCst);
        worker.unpark();
    };
    (Executor::new(Arc::new(wake), DEFAULT_STACK_BYTES), wakes)
}

/// The worker's loop until every task has ended.
fn drive(executor: &Executor) {
    while executor.live() > 0 {
        executor.run_ready();
        match executor.next_timeout_ns() {
            Some(0) => {}
            Some(ns) => std::thread::park_timeout(std::time::Duration::from_nanos(ns)),
            None if executor.live() > 0 => std::thread::park(),
            None => {}
        }
    }
}

#[test]
fn a_task_that_does_not_park_needs_no_handle() {
    let (executor, _) = executor();
    let ran = Rc::new(Cell::new(false));
    let seen = ran.clone();
    assert!(executor.run_now(move || seen.set(true)).is_none());
    assert!(ran.get());
    assert_eq!(executor.live(), 0);
    assert!(!executor.has_ready());
}

#[test]
fn parked_tasks_show_what_they_wait_for_and_continue_in_order() {
    let (executor, wakes) = executor();
    let order = Rc::new(RefCell::new(Vec::new()));
    let mut tasks = Vec::new();
    for i in 0..3 {
        let order = order.clone();
        let task = executor.run_now(move || {
            task::park(WaitEvent::RowLock);
            order.borrow_mut().push(i);
        });
        tasks.push(task.expect("it parked"));
    }
    assert!(tasks.iter().all(|task| task.wait_event() == WaitEvent::RowLock));
    for i in [2, 0, 1] {
        tasks[i].unpark();
        tasks[i].unpark();
    }
    assert_eq!(executor.run_ready(), 3);
    assert_eq!(*order.borrow(), [2, 0, 1]);
    assert_eq!(executor.live(), 0);
    assert_eq!(wakes.load(Ordering::SeqCst), 0, "nobody else unparked anything");
}

#[test]
fn a_permit_is_kept_and_consumed_once() {
    let (executor, _) = executor();
    let parked = executor.run_now(|| {
        task::current().unpark();
        task::park(WaitEvent::Extension);
        task::park(WaitEvent::RowLock);
    });
    let task = parked.expect("the second park waits");
    assert_eq!(task.wait_event(), WaitEvent::RowLock);
    task.unpark();
    executor.run_ready();
    assert_eq!(executor.live(), 0);
}

#[test]
fn unparks_from_other_threads_arrive_and_wake_a_sleeping_worker() {
    let (executor, wakes) = executor();
    const TASKS: usize = 50;
    const ROUNDS: usize = 200;
    let (send, receive) = std::sync::mpsc::channel::<Task>();
    let waker = thread::spawn("waker", move || {
        for task in receive {
            task.unpark();
        }
    });
    let done = Rc::new(Cell::new(0));
    for _ in 0..TASKS {
        let (send, done) = (send.clone(), done.clone());
        executor.spawn(move || {
            for _ in 0..ROUNDS {
                send.send(task::current()).unwrap();
                task::park(WaitEvent::Extension);
            }
            done.set(done.get() + 1);
        });
    }
    drop(send);
    drive(&executor);
    assert_eq!(done.get(), TASKS);
    assert!(wakes.load(Ordering::SeqCst) <= TASKS * ROUNDS);
    waker.join();
}

#[test]
fn timers_fire_in_time_and_stale_ones_do_not() {
    let (executor, _) = executor();
    let log = Rc::new(RefCell::new(Vec::new()));
    for (name, ms) in [("late", 20u64), ("early", 5)] {
        let log = log.clone();
        executor.spawn(move || {
            let start = clock::now_ns();
            assert!(!task::park_timeout(WaitEvent::Sleep, ms * 1_000_000), "nobody unparks it");
            assert!(clock::now_ns() - start >= ms * 1_000_000);
            log.borrow_mut().push(name);
        });
    }
    let mutual = log.clone();
    executor.spawn(move || {
        task::current().unpark();
        assert!(task::park_timeout(WaitEvent::Sleep, 1_000_000_000));
        task::yield_now();
        thread::sleep_ns(1_000_000);
        mutual.borrow_mut().push("first");
    });
    drive(&executor);
    assert_eq!(*log.borrow(), ["first", "early", "late"]);
}

#[test]
fn timers_that_were_not_needed_do_not_pile_up() {
    let (executor, _) = executor();
    executor.spawn(|| {
        for _ in 0..10_000 {
            task::current().unpark();
            assert!(task::park_timeout(WaitEvent::Sleep, u64::MAX));
        }
    });
    let waits = executor.run_now(|| {
        for _ in 0..1_000 {
            assert!(task::park_timeout(WaitEvent::RowLock, 3_600_000_000_000));
        }
    });
    while executor.live() > 0 {
        waits.as_ref().unwrap().unpark();
        executor.run_ready();
    }
    assert_eq!(executor.next_timeout_ns(), None);
}

#[test]
fn a_panic_ends_its_task_only_and_reaches_the_hook() {
    let (executor, _) = executor();
    let caught = Rc::new(RefCell::new(Vec::new()));
    let seen = caught.clone();
    executor.on_panic(Box::new(move |task, payload| {
        seen.borrow_mut().push((task.id(), *payload.downcast_ref::<&str>().unwrap()));
    }));
    let other = executor.run_now(|| task::park(WaitEvent::Extension)).unwrap();
    let bad = executor.run_now(|| {
        task::park(WaitEvent::Extension);
        panic!("planned");
    });
    let bad = bad.unwrap();
    bad.unpark();
    executor.run_ready();
    assert_eq!(*caught.borrow(), [(bad.id(), "planned")]);
    assert_eq!(executor.live(), 1);
    other.unpark();
    executor.run_ready();
    assert_eq!(executor.live(), 0);
}

#[test]
fn tasks_start_tasks_and_keep_references_to_their_workers_state() {
    let (executor, _) = executor();
    let executor = Rc::new(executor);
    let total = Rc::new(Cell::new(0));
    let (inner_executor, inner_total) = (executor.clone(), total.clone());
    executor.spawn(move || {
        for i in 1..=10 {
            let total = inner_total.clone();
            inner_executor.run_now(move || {
                let cell: &Cell<i32> = &total;
                task::yield_now();
                cell.set(cell.get() + i);
            });
        }
    });
    drive(&executor);
    assert_eq!(total.get(), 55);
}

#[test]
fn mutex_excludes_coroutines_and_threads() {
    let count = Arc::new(Mutex::new(0));
    const EACH: usize = 5_000;
    let work = |count: Arc<Mutex<usize>>| {
        for i in 0..EACH {
            let mut guard = count.lock();
            let seen = *guard;
            if i % 64 == 0 {
                task::yield_now();
            }
            *guard = seen + 1;
        }
    };
    let theirs = count.clone();
    let thread = thread::spawn("mutex", move || work(theirs));
    let (executor, _) = executor();
    for _ in 0..4 {
        let count = count.clone();
        executor.spawn(move || work(count));
    }
    drive(&executor);
    thread.join();
    assert_eq!(*count.lock(), 5 * EACH);
}

#[test]
fn a_failed_try_lock_leaves_the_mutex_locked() {
    let mutex = Mutex::new(());
    let guard = mutex.lock();
    assert!(mutex.try_lock().is_none());
    assert!(mutex.try_lock().is_none());
    drop(guard);
    assert!(mutex.try_lock().is_some());
}

#[test]
fn dropping_an_executor_unwinds_what_is_parked() {
    let (executor, _) = executor();
    let held = Rc::new(());
    let inner = held.clone();
    let task = executor.run_now(move || {
        let _held = inner;
        task::park(WaitEvent::Extension);
    });
    drop(executor);
    assert_eq!(Rc::strong_count(&held), 1);
    task.unwrap().unpark();
}
