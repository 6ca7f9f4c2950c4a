//! What do the system catalogs say? PostgreSQL's catalogs and views as far as clients ask for them, from the engine's
//! definitions; and Homenode's own views.

mod absent;
mod activity;
mod fixed;
mod functions;
mod homenode;
mod information;
mod placement;
mod private_memory;
mod relations;
mod statistics;

pub(crate) use functions::{call, lookup as relation_named};

use crate::context::Context;
use crate::virtual_table::{Rows, VirtualTable};
use homenode_types::{Result, Value};

/// All system tables, by module.
pub(crate) static TABLES: [&[VirtualTable]; 9] = [
    relations::TABLES,
    statistics::TABLES,
    fixed::TABLES,
    activity::TABLES,
    information::TABLES,
    homenode::TABLES,
    placement::TABLES,
    private_memory::TABLES,
    absent::TABLES,
];

/// OID of the bootstrap superuser, who owns what is the system's.
pub(crate) const ROLE_OID: u32 = 10;
/// The table with the passwords' verifiers.
pub(crate) const PG_AUTHID: u32 = 1260;
/// pg_catalog's.
pub(crate) const PG_CATALOG_OID: u32 = 11;
/// public's.
pub(crate) const PUBLIC_OID: u32 = 2200;
/// information_schema's.
pub(crate) const INFORMATION_SCHEMA_OID: u32 = 13_000;
/// homenode's.
pub(crate) const HOMENODE_OID: u32 = 13_001;
/// The database's.
pub(crate) const DATABASE_OID: u32 = 5;
/// The access methods heap and btree.
pub(crate) const HEAP_AM_OID: u32 = 2;
pub(crate) const BTREE_AM_OID: u32 = 403;

/// The OID of a schema.
pub(crate) fn schema_oid(name: &str) -> u32 {
    match name {
        "pg_catalog" => PG_CATALOG_OID,
        "information_schema" => INFORMATION_SCHEMA_OID,
        "homenode" => HOMENODE_OID,
        _ => PUBLIC_OID,
    }
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
