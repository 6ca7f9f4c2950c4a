//! How are sequences defined? CREATE and ALTER SEQUENCE.

use super::{column_place, table_named};
use crate::bind::no_relation;
use crate::context::Context;
use crate::run::Tag;
use crate::utility::{Name, SequenceOptions};
use homenode_engine::SequenceSpec;
use homenode_types::{Error, Result, SqlState, Type};

/// CREATE SEQUENCE.
pub(crate) fn create_sequence(
    context: &mut Context,
    name: &Name,
    if_not_exists: bool,
    options: &SequenceOptions,
) -> Result<Tag> {
    let schema = context.schema_to_create_in(name.schema.clone(), &name.name)?;
    if if_not_exists && context.session.definitions().oid(&schema, &name.name).is_some() {
        let message = format!("relation \"{}\" already exists, skipping", name.name);
        context.notice("NOTICE", SqlState::DUPLICATE_TABLE, message);
        return Ok(Tag::Plain("CREATE SEQUENCE"));
    }
    let ty = match options.ty.as_deref() {
        None | Some("bigint" | "int8") => Type::Int8,
        Some("integer" | "int" | "int4") => Type::Int4,
        Some("smallint" | "int2") => Type::Int2,
        Some(_) => {
            return Err(Error::new(
                SqlState::INVALID_PARAMETER_VALUE,
                "sequence type must be smallint, integer, or bigint",
            ));
        }
    };
    let owner = match &options.owned_by {
        Some(Some((table, column))) => {
            let table = table_named(context, table)?;
            Some((table.oid, column_place(&table, column)?))
        }
        _ => None,
    };
    context.session.create_sequence(SequenceSpec {
        schema,
        name: name.name.clone(),
        ty,
        start: options.start,
        increment: options.increment.unwrap_or(1),
        min: options.min.flatten(),
        max: options.max.flatten(),
        cycle: options.cycle.unwrap_or(false),
        owner,
    })?;
    Ok(Tag::Plain("CREATE SEQUENCE"))
}

/// ALTER SEQUENCE: RESTART only.
pub(crate) fn alter_sequence(
    context: &mut Context,
    name: &Name,
    if_exists: bool,
    options: &SequenceOptions,
) -> Result<Tag> {
    let found = context.stored(name.schema.as_deref(), &name.name)?;
    let found = found.and_then(|oid| context.session.definitions().sequence_by_oid(oid).cloned());
    let Some(sequence) = found else {
        if !if_exists {
            return Err(no_relation(name.schema.as_deref(), &name.name).with_position(name.position));
        }
        let message = format!("relation \"{}\" does not exist, skipping", name.name);
        context.notice("NOTICE", SqlState::SUCCESSFUL_COMPLETION, message);
        return Ok(Tag::Plain("ALTER SEQUENCE"));
    };
    let only_restart = SequenceOptions { restart: options.restart, ..SequenceOptions::default() };
    let Some(restart) = options.restart.filter(|_| *options == only_restart) else {
        return Err(Error::unsupported("ALTER SEQUENCE other than RESTART"));
    };
    context.check_owner(sequence.oid)?;
    context.session.setval(sequence.oid, restart.unwrap_or(sequence.start), false)?;
    Ok(Tag::Plain("ALTER SEQUENCE"))
}
