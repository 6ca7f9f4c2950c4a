//! Which claims are explored? One file a subject.

mod disk_replace;
mod engine_transfers;
mod latch_exclusion;
mod latch_fairness;
mod latch_optimistic;
mod latch_reuse;
mod latch_wakeups;
mod log_durability;
mod mutex_exclusion;
mod task_permits;
mod tree_concurrent;

use crate::scenario::Scenario;

/// Every scenario, in the order in which they run.
pub const ALL: &[&Scenario] = &[
    &task_permits::SCENARIO,
    &mutex_exclusion::SCENARIO,
    &latch_exclusion::SCENARIO,
    &latch_optimistic::SCENARIO,
    &latch_fairness::SCENARIO,
    &latch_wakeups::SCENARIO,
    &latch_reuse::SCENARIO,
    &disk_replace::SCENARIO,
    &log_durability::SCENARIO,
    &tree_concurrent::SCENARIO,
    &engine_transfers::SCHEDULES,
    &engine_transfers::CRASHES,
];

/// A machine with two nodes of one CPU each.
fn two_nodes() -> homenode_topology::Topology {
    let machine = crate::machine::find("xeon-6442y-2s").expect("it is shipped");
    crate::machine::topology(&machine.hardware.restricted(2, 1))
}

/// Runs `f(0)` to `f(count - 1)` in virtual threads and waits for all.
fn threads(count: usize, f: impl Fn(usize) + Send + Sync + 'static) {
    let f = std::sync::Arc::new(f);
    let start = |number: usize| {
        let f = f.clone();
        homenode_platform::thread::spawn(&format!("t{number}"), move || f(number))
    };
    let handles: Vec<_> = (0..count).map(start).collect();
    handles.into_iter().for_each(homenode_platform::thread::JoinHandle::join);
}
