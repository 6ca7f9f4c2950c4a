//! Who sees which version? Snapshots, transaction states, waits and deadlocks.
//!
//! A row's newest version carries the name of the transaction that wrote it ([`TxnId`]); older versions hang behind it as undo
//! records. Whether a snapshot sees a version follows from how its transaction ended ([`State`]). Names are dealt per lane and states
//! are kept per lane, so that a transaction shares two lines at most with other cores: the commit clock, which it increments
//! once, and the lines of the rows that it meets others at.
//!
//! The scheme of announcing a commit before taking its timestamp is that of Larson et al., "High-Performance Concurrency
//! Control Mechanisms for Main-Memory Databases" (VLDB 2011); per-lane numbers and lazily resolved states follow Alhomssi and
//! Leis, "Scalable and Robust Snapshot Isolation for High-Performance Storage Engines" (VLDB 2023).

mod id;
mod manager;
#[cfg(homenode_lab)]
pub mod planted;
mod slots;
mod states;
mod tables;

pub use id::{MAX_LANES, TOMBSTONE, TxnId, is_tombstone};
pub use manager::{Manager, Seen, WaitError};
pub use slots::{ALL_TABLES, Slot, Slots};
pub use states::{LaneStates, State};
pub use tables::TableLock;
