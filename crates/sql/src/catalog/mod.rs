//! What do the system catalogs say? PostgreSQL's catalogs and views as far as clients ask for them, from the engine's
//! definitions; and Homenode's own views.

mod absent;
mod activity;
mod constraints;
mod description;
mod fixed;
mod functions;
mod homenode;
mod information;
mod placement;
mod private_memory;
mod procedures;
mod relations;
mod statistics;

pub(crate) use functions::{call, lookup as relation_named};

use crate::context::Context;
use crate::virtual_table::{Rows, VirtualTable};
use homenode_engine::Definitions;
use homenode_types::{Result, Value};

/// All system tables, by module.
pub(crate) static TABLES: [&[VirtualTable]; 11] = [
    relations::TABLES,
    statistics::TABLES,
    fixed::TABLES,
    activity::TABLES,
    information::TABLES,
    homenode::TABLES,
    placement::TABLES,
    private_memory::TABLES,
    absent::TABLES,
    description::TABLES,
    procedures::TABLES,
];

/// OID of the bootstrap superuser, who owns what is the system's.
pub(crate) const ROLE_OID: u32 = 10;
/// The table with the passwords' verifiers.
pub(crate) const PG_AUTHID: u32 = 1260;
/// pg_catalog's.
pub(crate) const PG_CATALOG_OID: u32 = 11;
/// information_schema's.
pub(crate) const INFORMATION_SCHEMA_OID: u32 = 13_000;
/// homenode's.
pub(crate) const HOMENODE_OID: u32 = 13_001;
/// The database's.
pub(crate) const DATABASE_OID: u32 = 5;
/// The access methods heap and btree.
pub(crate) const HEAP_AM_OID: u32 = 2;
pub(crate) const BTREE_AM_OID: u32 = 403;

/// The schemas of system tables.
const SYSTEM_SCHEMAS: [(&str, u32); 3] =
    [("pg_catalog", PG_CATALOG_OID), ("information_schema", INFORMATION_SCHEMA_OID), ("homenode", HOMENODE_OID)];

/// All schemas: number and name.
pub(crate) fn schemas(definitions: &Definitions) -> Vec<(u32, String)> {
    let system = SYSTEM_SCHEMAS.iter().map(|(name, oid)| (*oid, (*name).to_string()));
    system.chain(definitions.schemas().into_iter().map(|schema| (schema.oid, schema.name.clone()))).collect()
}

/// The OID of a schema.
pub(crate) fn schema_by_name(definitions: &Definitions, name: &str) -> Option<u32> {
    let system = SYSTEM_SCHEMAS.iter().find(|(known, _)| *known == name).map(|(_, oid)| *oid);
    system.or_else(|| definitions.schema(name).map(|schema| schema.oid))
}

/// The OID of a schema that is there.
pub(crate) fn schema_oid(definitions: &Definitions, name: &str) -> u32 {
    schema_by_name(definitions, name).unwrap_or(0)
}

fn text(text: impl Into<String>) -> Value {
    Value::Text(text.into())
}

fn oid(oid: u32) -> Value {
    Value::Oid(oid)
}

fn flag(flag: bool) -> Value {
    Value::Bool(flag)
}

fn none(_: &mut Context) -> Result<Rows> {
    Ok(Vec::new())
}
