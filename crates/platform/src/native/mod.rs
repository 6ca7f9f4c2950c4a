//! What does a normal build run on? The standard library's atomics, OS threads, and system calls.

pub mod atomic {
    //! The standard library's atomics, re-exported: the seam costs nothing in a normal build.
    pub use std::sync::atomic::*;
}
pub mod clock;
pub mod executor;
pub mod fault;
pub mod fs;
mod io_threads;
pub mod task;
pub mod thread;
