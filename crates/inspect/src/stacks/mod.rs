//! Where do threads run and wait? Stacks of all threads of a server, sampled without a debugger.
//!
//! A thread that waits is not stopped: the kernel tells its stack and instruction pointer (`/proc/PID/task/TID/syscall`), and its
//! stack is copied from outside. A thread that runs is stopped for the tens of microseconds that reading its registers and
//! copying its stack take. Unwinding goes by the programs' own unwind tables, so frame pointers are not needed.

mod flame;
mod module;
mod sampler;
mod symbols;
mod threads;

pub use flame::{Flame, svg};
pub use sampler::{Frame, Profile, Sampler};
pub use symbols::names;
