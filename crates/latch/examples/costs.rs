//! What do latches and tasks cost when nobody is in the way? Prints nanoseconds for each operation.
//!
//! Run: `cargo run --release --package homenode-latch --example costs`
#![cfg_attr(homenode_lab, allow(unused))]

#[cfg(homenode_lab)]
fn main() {
    eprintln!("the simulated machine has no costs to measure");
}

#[cfg(not(homenode_lab))]
fn main() {
    use homenode_latch::Latch;
    use homenode_platform::executor::{DEFAULT_STACK_BYTES, Executor};
    use homenode_platform::wait::WaitEvent;
    use homenode_platform::{clock, task, thread};
    use std::hint::black_box;
    use std::rc::Rc;
    use std::sync::Arc;

    fn report(name: &str, rounds: u64, mut f: impl FnMut()) {
        // The best of three: the rest is other people's work on this machine.
        let best = (0..3).map(|_| {
            let start = clock::now_ns();
            (0..rounds).for_each(|_| f());
            clock::now_ns() - start
        });
        let best = best.min().unwrap_or(0);
        println!("{name:44} {:9.1} ns", best as f64 / rounds as f64);
    }

    let latch = Latch::new();
    report("optimistic read", 10_000_000, || {
        let version = black_box(&latch).optimistic();
        assert!(latch.validate(version));
    });
    report("shared lock and unlock", 10_000_000, || {
        black_box(&latch).lock_shared();
        latch.unlock_shared();
    });
    report("exclusive lock and unlock", 10_000_000, || {
        black_box(&latch).lock_exclusive();
        latch.unlock_exclusive();
    });

    let executor = Rc::new(Executor::new(Arc::new(|| {}), DEFAULT_STACK_BYTES));
    report("task that does not park, start to end", 1_000_000, || {
        black_box(executor.run_now(|| {}));
    });
    report("task that parks and is unparked once", 1_000_000, || {
        let task = executor.run_now(|| task::park(WaitEvent::Extension));
        task.expect("it parked").unpark();
        executor.run_ready();
    });
    executor.spawn(|| {
        report("task::current in a coroutine", 10_000_000, || {
            black_box(task::current());
        });
    });
    executor.run_ready();
    report("task::current in a thread", 10_000_000, || {
        black_box(task::current());
    });

    let main = task::current();
    let (send, receive) = std::sync::mpsc::channel::<task::Task>();
    let echo = thread::spawn("echo", move || receive.iter().for_each(|task| task.unpark()));
    report("wake-up of and by another thread, both ways", 20_000, || {
        send.send(main.clone()).expect("the thread listens");
        task::park(WaitEvent::Extension);
    });
    drop(send);
    echo.join();
}
