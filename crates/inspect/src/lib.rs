//! Where are a database's memory and its contention? Instruments for PostgreSQL, MariaDB, Homenode and any other process.
//!
//! Each instrument is a module that looks and returns plain data, and a subcommand in [`command`] that prints it: as text for a
//! terminal, as JSON, and as a picture where people would rather look. They read what Linux shows under `/proc` and `/sys`; a
//! file in a form that is not known is refused by name, never guessed at.

pub mod bench;
pub mod c2c;
pub mod chart;
pub mod client;
pub mod command;
pub mod doctor;
mod error;
pub mod measure;
pub mod picture;
pub mod place;
pub mod proc;
pub mod rebalance;
pub mod stacks;
pub mod stat;
pub mod svg;
pub mod text;
pub mod units;
pub mod waits;

pub use error::InspectError;
