//! One half of `bench/seam-cost`: the loop over the platform's atomics.
#![allow(missing_docs)]

use homenode_platform::atomic;

include!("seam_cost/work.rs");
