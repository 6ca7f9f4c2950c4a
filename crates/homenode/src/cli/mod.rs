//! Which subcommands are there? One module each, and what they share.

mod limits;
mod logging;
mod process;
pub(crate) mod serve;
