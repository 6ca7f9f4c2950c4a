//! What does a workload ask of the machine that it measures? Time, work, counts, names and homes of memory.
//!
//! All of it does nothing outside of runs with a cost model ([`Config::sim`](super::Config::sim)).

use super::machine::{Op, access, charge, with_sim};
use super::sim::{Counters, Home, Kind, LineRecord, Named};
use std::panic::Location;

/// Begins to charge accesses. What a run does before is free, and ordered only where threads wait for each other.
pub fn start_charging() {
    with_sim(|sim| sim.start_charging());
}

/// Forgets what was counted so far: the end of a warm-up.
pub fn reset_counters() {
    with_sim(|sim| sim.reset_counters());
}

/// What was counted.
pub fn counters() -> Counters {
    with_sim(|sim| sim.counters()).unwrap_or_default()
}

/// The running core's time, nanoseconds. Costs nothing.
pub fn now_ns() -> u64 {
    with_sim(|sim| sim.now / 1000).unwrap_or(0)
}

/// Charges work that touches nothing shared, varied by the seed by up to a tenth either way.
pub fn work_ns(ns: u64) {
    charge(|sim| sim.work(ns));
}

/// Says where the pages of a range come from that are not touched yet.
pub fn place(start: usize, bytes: usize, home: Home) {
    with_sim(|sim| sim.place(start, bytes, home));
}

/// Pages in use, by node.
pub fn pages_by_home() -> Vec<u64> {
    with_sim(|sim| sim.pages_by_home()).unwrap_or_default()
}

/// Says which structures lie in a range of memory, for the line report.
pub fn name(named: Named) {
    with_sim(|sim| sim.name(named));
}

/// What lies at an address: structure, index and field.
pub fn describe(address: usize) -> Option<String> {
    with_sim(|sim| sim.describe(address)).flatten()
}

/// The lines that modified copies were fetched for, most first; empty unless the run records them.
pub fn lines() -> Vec<LineRecord> {
    with_sim(|sim| sim.lines()).unwrap_or_default()
}

/// Charges a read of every line of a range that is read through a plain reference. No point of the schedule exploration: the
/// reader holds a latch.
#[inline]
#[track_caller]
pub fn note_read(start: *const u8, bytes: usize) {
    if with_sim(|sim| sim.charging) != Some(true) {
        return;
    }
    let place = Location::caller();
    let mut at = start.addr();
    let end = at + bytes.max(1);
    while at < end {
        access(Op::Load, Kind::Load, at, place);
        at = (at | 63) + 1;
    }
}
