//! One half of `bench/seam-cost`: the loop over the standard library's atomics.
#![allow(missing_docs)]

use std::sync::atomic;

include!("seam_cost/work.rs");
