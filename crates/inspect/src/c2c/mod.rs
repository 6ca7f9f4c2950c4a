//! Which cache lines are fought over? Samples of loads and stores as `perf` takes them, with their fields.
//!
//! The samples come from `perf script` on a machine with the counters ([`perf`]). Records, tables and pages are those of
//! `homenode_lines`, which a simulated machine's accesses go through as well.

mod decode;
mod fields;
pub mod perf;

pub use fields::name_fields;
pub use homenode_lines::{
    Access, Counts, Found, LINE_BYTES, Line, Place, Symbol, ToPart, View, What, line_page, lines, table, to_part,
};
