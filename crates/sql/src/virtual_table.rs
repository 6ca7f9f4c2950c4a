//! Which system tables are there? Their columns, and the functions that make their rows from what the engine knows.

use crate::catalog;
use crate::context::Context;
use homenode_types::{Result, Type, Value};

/// Rows of a system table.
pub(crate) type Rows = Vec<Vec<Value>>;

/// A system table: rows are made when a statement asks.
pub struct VirtualTable {
    /// Its schema: pg_catalog, information_schema or homenode.
    pub schema: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its object number (PostgreSQL's, where it has one).
    pub oid: u32,
    /// Column names and types.
    pub columns: &'static [(&'static str, Type)],
    pub(crate) rows: fn(&mut Context) -> Result<Rows>,
}

/// Schemas of system tables.
pub(crate) const SCHEMAS: [&str; 3] = ["pg_catalog", "information_schema", "homenode"];

/// Looks a system table up; without a schema in pg_catalog, as PostgreSQL's search path does.
pub(crate) fn find(schema: Option<&str>, name: &str) -> Option<&'static VirtualTable> {
    let schema = schema.unwrap_or("pg_catalog");
    all().find(|table| table.name == name && table.schema == schema)
}

/// All system tables.
pub(crate) fn all() -> impl Iterator<Item = &'static VirtualTable> {
    catalog::TABLES.iter().flat_map(|tables| tables.iter())
}
