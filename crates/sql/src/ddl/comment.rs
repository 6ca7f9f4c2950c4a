//! What is said about an object? COMMENT ON.

use crate::context::Context;
use crate::run::Tag;
use crate::search_path::no_schema;
use crate::utility::{Commented, Name};
use homenode_types::{Error, Result, SqlState};

/// PostgreSQL's numbers of the catalogs that objects with comments are in.
const PG_CLASS: u32 = 1259;
const PG_CONSTRAINT: u32 = 2606;
const PG_NAMESPACE: u32 = 2615;
const PG_AUTHID: u32 = crate::catalog::PG_AUTHID;
const PG_DATABASE: u32 = 1262;

/// COMMENT ON.
pub(crate) fn comment(context: &mut Context, subject: &Commented, text: Option<String>) -> Result<Tag> {
    context.session.start_statement();
    context.session.lock_definitions()?;
    let (class, object, column) = match subject {
        Commented::Relation(kind, name) => {
            let oid = relation(context, name)?;
            super::check_kind(context, oid, kind, &name.name)?;
            check_owner(context, oid)?;
            (PG_CLASS, oid, 0)
        }
        Commented::Column(table, column) => {
            let oid = relation(context, table)?;
            check_owner(context, oid)?;
            (PG_CLASS, oid, place(context, oid, table, column)?)
        }
        Commented::Constraint(name, table) => {
            let oid = relation(context, table)?;
            check_owner(context, oid)?;
            let found = context.definitions().table_by_oid(oid).and_then(|table| table.constraint(name));
            let found = found.ok_or_else(|| {
                let message = format!("constraint \"{name}\" for table \"{}\" does not exist", table.name);
                Error::new(SqlState::UNDEFINED_OBJECT, message)
            })?;
            (PG_CONSTRAINT, found, 0)
        }
        Commented::Schema(name) => {
            let oid = context.definitions().schema(name).map(|schema| schema.oid).ok_or_else(|| no_schema(name))?;
            context.check_owner(oid)?;
            (PG_NAMESPACE, oid, 0)
        }
        Commented::Role(name) => {
            let oid = crate::roles::role_oid(context, name)?;
            context.check_superuser("comment on a role")?;
            (PG_AUTHID, oid, 0)
        }
        Commented::Database(name) => {
            if *name != context.database_name {
                // A dump may have been made of a database of another name.
                context.notice("WARNING", SqlState::from_code("3D000"), format!("database \"{name}\" does not exist"));
                return Ok(Tag::Plain("COMMENT"));
            }
            context.check_superuser("comment on the database")?;
            (PG_DATABASE, crate::catalog::DATABASE_OID, 0)
        }
    };
    context.session.comment(class, object, column, text)?;
    context.session.end_statement();
    Ok(Tag::Plain("COMMENT"))
}

fn relation(context: &mut Context, name: &Name) -> Result<u32> {
    let found = context.stored(name.schema.as_deref(), &name.name)?;
    found.ok_or_else(|| crate::bind::no_relation(name.schema.as_deref(), &name.name))
}

/// An index is its table's owner's.
fn check_owner(context: &mut Context, oid: u32) -> Result<()> {
    let definitions = context.definitions();
    let table = definitions.table_of_index(oid).map(|table| table.oid);
    context.check_owner(table.unwrap_or(oid))
}

fn place(context: &mut Context, oid: u32, name: &Name, column: &str) -> Result<u32> {
    let definitions = context.definitions();
    let place = if let Some(table) = definitions.table_by_oid(oid) {
        table.column_index(column)
    } else if let Some(view) = definitions.view_by_oid(oid) {
        view.columns.iter().position(|(known, _)| known == column)
    } else {
        let message =
            format!("\"{}\" is not a table, view, materialized view, composite type, or foreign table", name.name);
        return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message));
    };
    place.map(|place| place as u32 + 1).ok_or_else(|| {
        let schema = name.schema.as_ref().map_or_else(String::new, |schema| format!("{schema}."));
        let message = format!("column \"{column}\" of relation \"{schema}{}\" does not exist", name.name);
        Error::new(SqlState::UNDEFINED_COLUMN, message)
    })
}
