//! What can be run? Workloads, on the engine itself and on old designs.

mod latching;
mod nested_loop;
mod oltp;
mod pages;
mod placement;
mod point_join;
mod replacement;
mod store;
mod tpcb;

use crate::measure::Workload;

/// All workloads.
pub const ALL: &[&Workload] = &[
    &point_join::WORKLOAD,
    &nested_loop::WORKLOAD,
    &oltp::POINT_SELECT,
    &oltp::READ_ONLY,
    &oltp::UPDATE_INDEX,
    &oltp::UPDATE_NON_INDEX,
    &tpcb::WORKLOAD,
    &latching::STARVATION,
    &latching::ONE_LINE,
    &placement::SCANS,
    &placement::MEMSET,
    &placement::VICTIMS,
    &placement::SORTED_SCANS,
    &replacement::WORKLOAD,
];

/// Finds a workload by its name.
///
/// # Errors
/// A sentence with those that there are.
pub fn find(name: &str) -> Result<&'static Workload, String> {
    let found = ALL.iter().find(|workload| workload.name == name);
    found.copied().ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|workload| workload.name).collect();
        format!("there is no workload '{name}'; known are {}", names.join(", "))
    })
}

/// A worker's own random numbers.
fn random(seed: u64, worker: usize) -> homenode_platform::lab::Random {
    homenode_platform::lab::Random::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (worker as u64) << 20)
}
