//! What does the code run on? The seam between the engine and the machine, real or simulated.
//!
//! Engine crates name their atomics, threads, tasks, clock, files and page-byte accesses through
//! this crate. In a normal build these are the standard library's or thin wrappers around system
//! calls; built with `--cfg homenode_lab` the same source runs on a simulated machine.

pub mod bytes;
mod fs_common;
mod gather;
mod global;
mod names;
mod padded;
pub mod sync;
pub mod wait;

#[cfg(not(homenode_lab))]
mod native;
#[cfg(not(homenode_lab))]
pub use native::{atomic, clock, executor, fault, fs, task, thread};

#[cfg(homenode_lab)]
pub mod lab;
#[cfg(homenode_lab)]
pub use lab::{address_key, atomic, clock, fs, task, thread};

/// A key for the object at `ptr`: its address; in the lab a number that is the same in every run of
/// a seed. For tables that are keyed by address.
#[cfg(not(homenode_lab))]
#[inline(always)]
pub fn address_key<T>(ptr: *const T) -> usize {
    ptr.addr()
}

pub use gather::Gather;
pub use global::Global;
pub use names::{Field, name_memory};
pub use padded::CachePadded;
