//! What survives? Write-ahead log, group commit, checkpoints, control file.
//!
//! A commit is durable when its last record lies before [`Log::durable`]. Records are appended
//! without a mutex ([`Log::append`]), written and synced by one flusher thread per log (group
//! commit without any artificial delay), and read back by [`scan`], which tells a torn tail, as any
//! crash leaves it, from damage to what had been acknowledged.
//!
//! Files in the data folder: `log-%016x` segments ([`segment`]), `control` ([`control`]), `lock`
//! ([`FolderLock`]). The bytes of each are described in its module.

pub mod control;
mod error;
mod flusher;
mod insert;
mod lock;
mod log;
mod nodes;
pub mod record;
mod relay;
mod ring;
mod scan;
pub mod segment;
mod sleeper;
mod stats;
mod supply;
mod syncer;
mod waiters;

pub use error::LogError;
pub use lock::{FolderLock, lock};
pub use log::{Log, LogConfig, Span};
pub use nodes::Nodes;
pub use scan::{LogReader, Record, RecordRef, Tail, oldest_record, scan};
pub use stats::LogStats;

/// A position in the log: a byte of the log's stream, counted over all segments.
///
/// 0 means "none"; the stream starts at [`FIRST_LSN`]. Records start at multiples of 8.
pub type Lsn = u64;

/// Where the stream of a new log starts. Not 0, so that a page that was never logged (LSN 0) is
/// older than every record.
pub const FIRST_LSN: Lsn = 64 * 1024;
