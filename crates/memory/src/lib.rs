//! Where do bytes live? Regions with a placement policy, huge pages, accounts of who owns what.

mod policy;
mod region;

pub use policy::{HugePages, ParsePolicyError, Policy};
pub use region::{MemoryError, Region};

/// Size and alignment of a huge page in bytes: what regions are rounded up and aligned to.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;
