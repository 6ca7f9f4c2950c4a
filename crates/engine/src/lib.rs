//! The embedded database: catalog, tables, indexes, typed rows, sessions, recovery.
//!
//! [`Database::open`] opens a folder; [`Database::session`] gives a caller's [`Session`], which begins and ends transactions, looks up
//! tables, and reads and writes rows. Rows are byte strings laid out by their table's [`homenode_types::RowLayout`], keys are byte
//! strings that sort as their values do ([`homenode_types::key`]). SQL is a layer above.

mod build;
mod bytes;
mod catalog;
mod crew;
mod database;
mod ddl;
mod error;
mod foreign;
mod housekeeping;
mod info;
mod overflow;
mod parallel;
mod placement;
#[cfg(homenode_lab)]
pub mod planted;
mod purge;
mod query_memory;
mod read;
mod reclaim;
mod record;
mod recovery;
mod roles;
mod rollback;
mod rowid;
mod saved;
mod sequence;
mod serializable;
mod session;
mod session_memory;
mod statistics;
mod stats;
mod undo;
mod view;
mod write;

pub use build::Copy;
pub use catalog::{
    CheckConstraint, Column, Comment, CommentsDefinition, Definitions, FIRST_OID, ForeignKey, Identity, Index,
    IndexDefinition, KeyOrder, Object, Oid, PUBLIC, PUBLIC_OID, PrimaryKey, ReferentialAction, SchemaDefinition,
    SequenceDefinition, Table, TableDefinition, Timing, ViewDefinition, row_text,
};
pub use database::{Database, Options};
pub use ddl::{
    CheckSpec, ColumnSpec, IndexSpec, Rewrite, SequenceSpec, TableSpec, bounds_of, next_value, next_value_of,
    quote_name,
};
pub use error::STALE_DEFINITION;
pub use foreign::Refers;
pub use homenode_memory::size;
pub use info::{Activity, CancelReason, SessionInfo, SessionShared};
pub use overflow::table_of_overflow;
pub use parallel::{EachRow, ParallelScan, Piece, Reader};
pub use placement::WorkerInfo;
pub use query_memory::WorkerMemory;
pub use read::{IndexScan, KeyRange, Scan};
pub use roles::{AccessDefinition, BOOTSTRAP_ROLE, Grant, PUBLIC_ROLE, Privileges, RoleDefinition};
pub use saved::SavedSettings;
pub use sequence::SequenceState;
pub use session::{Isolation, Savepoint, Session};
pub use session_memory::{Charge, MemoryContext, MemoryUse, PrivateMemory};
pub use statistics::{ColumnStatistics, Sample, TableStatistics};
pub use stats::Counter;
pub use write::{ChangeEncoded, ChangeRow, LockWait};
