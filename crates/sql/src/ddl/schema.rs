//! How are schemas defined, and what goes with them? CREATE, ALTER and DROP SCHEMA, SET SCHEMA.

use super::drop::{self, Dependent};
use super::view::check_readers;
use crate::context::Context;
use crate::run::Tag;
use crate::search_path::no_schema;
use crate::utility::{Name, SchemaChange};
use crate::virtual_table::SCHEMAS;
use homenode_engine::SchemaDefinition;
use homenode_types::{Error, Result, SqlState};
use std::sync::Arc;

/// CREATE SCHEMA.
pub(crate) fn create_schema(
    context: &mut Context,
    name: &str,
    if_not_exists: bool,
    owner: Option<&str>,
) -> Result<Tag> {
    const DONE: Tag = Tag::Plain("CREATE SCHEMA");
    context.session.start_statement();
    check_may_create(context)?;
    let owner = owner.map(|owner| crate::roles::role_to_own(context, owner)).transpose()?;
    check_reserved(name)?;
    if context.definitions().schema(name).is_some() || SCHEMAS.contains(&name) {
        let message = format!("schema \"{name}\" already exists");
        if !if_not_exists {
            return Err(Error::new(SqlState::DUPLICATE_SCHEMA, message));
        }
        context.notice("NOTICE", SqlState::DUPLICATE_SCHEMA, format!("{message}, skipping"));
        return Ok(DONE);
    }
    let oid = context.session.create_schema(name)?;
    if let Some(owner) = owner {
        context.session.alter_access(oid, |access| {
            access.owner = owner;
            Ok(())
        })?;
    }
    context.session.end_statement();
    Ok(DONE)
}

/// To create schemas is a privilege on the database, which only its owner has.
fn check_may_create(context: &mut Context) -> Result<()> {
    if context.is_superuser() {
        return Ok(());
    }
    let message = format!("permission denied for database {}", context.database_name);
    Err(Error::new(SqlState::INSUFFICIENT_PRIVILEGE, message))
}

fn check_reserved(name: &str) -> Result<()> {
    if name.starts_with("pg_") {
        return Err(Error::new(SqlState::RESERVED_NAME, format!("unacceptable schema name \"{name}\""))
            .with_detail("The prefix \"pg_\" is reserved for system schemas."));
    }
    Ok(())
}

/// A schema that is to be changed, by its owner.
fn owned(context: &mut Context, name: &str) -> Result<Arc<SchemaDefinition>> {
    if SCHEMAS.contains(&name) {
        let message = format!("must be owner of schema {name}");
        return Err(Error::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
    }
    context.session.lock_definitions()?;
    let schema = context.definitions().schema(name).cloned().ok_or_else(|| no_schema(name))?;
    context.check_owner(schema.oid)?;
    Ok(schema)
}

/// ALTER SCHEMA.
pub(crate) fn alter_schema(context: &mut Context, name: &str, change: &SchemaChange) -> Result<Tag> {
    context.session.start_statement();
    let schema = owned(context, name)?;
    match change {
        SchemaChange::Rename(to) => {
            check_reserved(to)?;
            check_may_create(context)?;
            context.session.rename_schema(schema.oid, to)?;
            for table in context.definitions().tables().iter().filter(|table| table.schema == *to) {
                check_readers(context, table.oid, "renaming a schema with a table")?;
            }
            for view in context.definitions().views().iter().filter(|view| view.schema == *to) {
                check_readers(context, view.oid, "renaming a schema with a view")?;
            }
        }
        SchemaChange::Owner(to) => crate::roles::give(context, &[schema.oid], to)?,
    }
    context.session.end_statement();
    Ok(Tag::Plain("ALTER SCHEMA"))
}

/// DROP SCHEMA.
pub(crate) fn drop_schemas(context: &mut Context, names: &[String], if_exists: bool, cascade: bool) -> Result<Tag> {
    context.session.start_statement();
    let mut schemas: Vec<Arc<SchemaDefinition>> = Vec::new();
    for name in names {
        if if_exists && context.definitions().schema(name).is_none() && !SCHEMAS.contains(&name.as_str()) {
            let message = format!("schema \"{name}\" does not exist, skipping");
            context.notice("NOTICE", SqlState::SUCCESSFUL_COMPLETION, message);
            continue;
        }
        let schema = owned(context, name)?;
        if !schemas.contains(&schema) {
            schemas.push(schema);
        }
    }
    let mut found: Vec<(Dependent, String)> = Vec::new();
    let inside = |name: &str| schemas.iter().any(|schema| schema.name == name);
    let definitions = context.definitions();
    let tables: Vec<_> = definitions.tables().into_iter().filter(|table| inside(&table.schema)).collect();
    let sequences = definitions.sequences().into_iter().filter(|one| inside(&one.schema) && one.owner.is_none());
    let views = definitions.views().into_iter().filter(|view| inside(&view.schema));
    let of = |schema: &str| format!("schema {schema}");
    let mut members: Vec<(u32, Dependent, String)> = Vec::new();
    members.extend(tables.iter().map(|table| (table.oid, Dependent::Table(table.clone()), of(&table.schema))));
    members.extend(sequences.map(|one| (one.oid, Dependent::Sequence(one.clone()), of(&one.schema))));
    members.extend(views.map(|view| (view.oid, Dependent::View(view.clone()), of(&view.schema))));
    members.sort_by_key(|(oid, ..)| *oid);
    found.extend(members.into_iter().map(|(_, one, on)| (one, on)));
    let all: Vec<u32> = tables.iter().map(|table| table.oid).collect();
    for table in &tables {
        let what = format!("table {}", context.shown(&table.schema, &table.name));
        drop::add_references(context, table, &all, &what, &mut found);
        drop::add_readers(context, table.oid, &what, &[], &mut found);
    }
    let what = schemas.first().map(|schema| format!("schema {}", schema.name));
    drop::drop_dependents(context, &found, drop::several_or(what, schemas.len()), cascade)?;
    for schema in schemas {
        context.session.drop_schema(schema.oid)?;
    }
    context.session.end_statement();
    Ok(Tag::Plain("DROP SCHEMA"))
}

/// ALTER TABLE, SEQUENCE and VIEW ... SET SCHEMA.
pub(crate) fn set_schema(
    context: &mut Context,
    kind: &'static str,
    name: &Name,
    if_exists: bool,
    schema: &str,
) -> Result<Tag> {
    let tag = Tag::Plain(match kind {
        "table" => "ALTER TABLE",
        "view" => "ALTER VIEW",
        _ => "ALTER SEQUENCE",
    });
    context.session.start_statement();
    let found = context.stored(name.schema.as_deref(), &name.name)?;
    let Some(oid) = found else {
        if !if_exists {
            return Err(crate::bind::no_relation(name.schema.as_deref(), &name.name));
        }
        let message = format!("relation \"{}\" does not exist, skipping", name.name);
        context.notice("NOTICE", SqlState::SUCCESSFUL_COMPLETION, message);
        return Ok(tag);
    };
    super::check_kind(context, oid, kind, &name.name)?;
    context.check_owner(oid)?;
    let definitions = context.definitions();
    if let Some(sequence) = definitions.sequence_by_oid(oid)
        && let Some((table, _)) = sequence.owner
    {
        let owner = definitions.table_by_oid(table).map_or_else(String::new, |table| table.name.clone());
        let message = "cannot move an owned sequence into another schema";
        return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message)
            .with_detail(format!("Sequence \"{}\" is linked to table \"{owner}\".", sequence.name)));
    }
    let schema = context.schema_to_create_in(Some(schema.to_owned()), &name.name)?;
    let unmoved = definitions.table_by_oid(oid).map(|table| table.schema == schema);
    if !unmoved.unwrap_or(false) {
        context.session.set_schema(oid, &schema)?;
        check_readers(context, oid, "moving what")?;
    }
    context.session.end_statement();
    Ok(tag)
}
