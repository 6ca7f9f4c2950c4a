//! Where do bytes live? Regions with a placement policy, huge pages, a census of what is where.
//!
//! A [`Region`] is zeroed memory whose pages come from the nodes that a [`Policy`] names; it can be split over nodes
//! ([`Region::place`]), made present ahead of time ([`Region::prefault`]), asked where it is ([`Region::residency`]) and moved
//! ([`Region::migrate`]). On a machine with one memory node no policy call is made at all. Containers often forbid these
//! calls: that is a [`Refusal`] to show, and only [`Policy::Bind`] makes it an error.
//!
//! Memory of another kind, that is taken and given back all the time, is counted by who holds it (the engine's `session_memory`);
//! [`Metered`] weighs what is built in one go.
//!
//! Only Linux on 64-bit machines has policies. Elsewhere and under Miri regions are plain allocations with the same interface, and
//! every policy is refused as not supported. On the simulated machine (`--cfg homenode_lab`) they are plain allocations whose
//! pages that machine counts as lying where the policy says.
//!
//! ```
//! use homenode_memory::{HugePages, Policy, Region};
//! use homenode_topology::Topology;
//! let machine = Topology::discover();
//! let policy: Policy = "interleave".parse().unwrap();
//! let region = Region::new(8 << 20, &policy, HugePages::Transparent, &machine).unwrap();
//! region.prefault().unwrap();
//! println!("{}", region.placement());
//! ```

mod census;
mod elsewhere;
#[cfg(all(target_os = "linux", not(homenode_lab), not(miri)))]
pub mod foreign;
mod limit;
mod meter;
mod outcome;
mod policy;
mod prefault;
mod region;
mod residency;
pub mod size;
mod words;

#[cfg(all(target_os = "linux", not(homenode_lab), not(miri)))]
mod sys;
#[cfg(not(all(target_os = "linux", not(homenode_lab), not(miri))))]
#[path = "sys_plain.rs"]
mod sys;

pub use census::{Census, Whereabouts};
pub use elsewhere::drop_elsewhere;
pub use limit::{group_available_bytes, group_limit_bytes};
pub use meter::{Metered, taken_bytes};
pub use outcome::{MemoryError, Placement, Refusal};
pub use policy::{HugePages, ParsePolicyError, Policy};
pub use prefault::{Prefault, prefault_all};
pub use region::{PageKind, Region, available_bytes, node_available_bytes, set_thread_policy};
pub use residency::{Migration, Residency};
pub use words::Words;

/// Size of a small page in bytes.
pub fn page_bytes() -> usize {
    sys::page_bytes()
}

/// Size and alignment of a huge page in bytes: what regions are rounded up and aligned to.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;
