//! What does a step of a plan cost? In the time of reading one row of a full scan; EXPLAIN shows hundredths of it, PostgreSQL's unit.
//!
//! The ratios were measured on rows in the pool: descents by key, hash tables and row-by-row scans in `bench/tpch`'s queries.

/// A row of a scan.
pub(crate) const ROW: f64 = 1.0;
/// A condition looked at.
pub(crate) const CONDITION: f64 = 0.25;
/// A descent to a key.
pub(crate) const LOOKUP: f64 = 12.0;
/// A row found through a secondary index: an entry, and the descent to the row.
pub(crate) const INDEX_ROW: f64 = 13.0;
/// The same in a table that was never analyzed: its indexes are trusted, because a plan may outlive the table's small days.
pub(crate) const INDEX_ROW_UNKNOWN: f64 = 1.5;
/// Setting up a hash table, or rows that are kept: a row or two are looked up more quickly, by paths that are compiled.
pub(crate) const SETUP: f64 = 50.0;
/// A row put into a hash table.
pub(crate) const HASH_BUILD: f64 = 4.0;
/// A row looked up in a hash table.
pub(crate) const HASH_PROBE: f64 = 1.5;
/// A row kept for a loop, and given again.
pub(crate) const KEPT_ROW: f64 = 0.3;
/// A pair given by a join.
pub(crate) const PAIR: f64 = 0.5;
/// A row added to a group.
pub(crate) const GROUP_ROW: f64 = 2.0;
/// Of a sort: a comparison.
pub(crate) const COMPARE: f64 = 0.3;
/// What a switched-off kind of plan costs more (PostgreSQL's disable_cost).
pub(crate) const DISABLED: f64 = 1e10;
