//! How are sequences defined? CREATE and ALTER SEQUENCE, and the numbers of identity columns.

use super::{column_place, table_named};
use crate::bind::no_relation;
use crate::context::Context;
use crate::run::Tag;
use crate::utility::{Name, SequenceOptions};
use homenode_engine::{SequenceDefinition, SequenceSpec, Table, bounds_of};
use homenode_types::{Error, Result, SqlState, Type};
use sqlparser::ast;

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
    let owner = match &options.owned_by {
        Some(Some((table, column))) => Some(owner(context, &schema, None, table, column)?),
        _ => None,
    };
    let spec = spec(options, Type::Int8)?;
    context.session.create_sequence(SequenceSpec { schema, name: name.name.clone(), owner, ..spec })?;
    Ok(Tag::Plain("CREATE SEQUENCE"))
}

/// A sequence without a name that has these options.
pub(super) fn spec(options: &SequenceOptions, ty: Type) -> Result<SequenceSpec> {
    Ok(SequenceSpec {
        schema: String::new(),
        name: String::new(),
        ty: options.ty.as_deref().map_or(Ok(ty), type_named)?,
        start: options.start,
        increment: options.increment.unwrap_or(1),
        min: options.min.flatten(),
        max: options.max.flatten(),
        cycle: options.cycle.unwrap_or(false),
        owner: None,
    })
}

fn type_named(name: &str) -> Result<Type> {
    match name {
        "bigint" | "int8" => Ok(Type::Int8),
        "integer" | "int" | "int4" => Ok(Type::Int4),
        "smallint" | "int2" => Ok(Type::Int2),
        _ => {
            let message = "sequence type must be smallint, integer, or bigint";
            Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message))
        }
    }
}

/// Whom OWNED BY names: a column of a table in the sequence's schema, of the same owner (process_owned_by in sequence.c).
fn owner(
    context: &mut Context,
    schema: &str,
    sequence: Option<u32>,
    table: &Name,
    column: &str,
) -> Result<(u32, usize)> {
    let table = table_named(context, table)?;
    let place = column_place(&table, column).map_err(|mut error| {
        error.message = format!("column \"{column}\" of relation \"{}\" does not exist", table.name);
        error
    })?;
    let refused = |message: &str| Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
    let definitions = context.definitions();
    let sequence_owner = sequence.map_or(context.role(), |oid| definitions.owner(oid));
    if definitions.owner(table.oid) != sequence_owner {
        return refused("sequence must have same owner as table it is linked to");
    }
    if table.schema != schema {
        return refused("sequence must be in same schema as table it is linked to");
    }
    Ok((table.oid, place))
}

/// ALTER SEQUENCE with options.
pub(crate) fn alter_sequence(
    context: &mut Context,
    name: &Name,
    if_exists: bool,
    options: &SequenceOptions,
) -> Result<Tag> {
    context.session.start_statement();
    let found = context.stored(name.schema.as_deref(), &name.name)?;
    let Some(oid) = found else {
        if !if_exists {
            return Err(no_relation(name.schema.as_deref(), &name.name).with_position(name.position));
        }
        let message = format!("relation \"{}\" does not exist, skipping", name.name);
        context.notice("NOTICE", SqlState::SUCCESSFUL_COMPLETION, message);
        return Ok(Tag::Plain("ALTER SEQUENCE"));
    };
    super::check_kind(context, oid, "sequence", &name.name)?;
    context.check_owner(oid)?;
    if let Some(wanted) = &options.owned_by {
        let definitions = context.definitions();
        let numbers = |table: &Table| {
            table.columns.iter().any(|column| column.identity.is_some() && column.sequence == Some(oid))
        };
        if definitions.tables().iter().any(|table| numbers(table)) {
            let message = "cannot change ownership of identity sequence";
            return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        let schema = definitions.sequence_by_oid(oid).map_or_else(String::new, |sequence| sequence.schema.clone());
        let wanted = match wanted {
            Some((table, column)) => Some(owner(context, &schema, Some(oid), table, column)?),
            None => None,
        };
        context.session.alter_sequence(oid, |sequence| {
            sequence.owner = wanted;
            Ok(())
        })?;
    }
    change(context, oid, options)?;
    context.session.end_statement();
    Ok(Tag::Plain("ALTER SEQUENCE"))
}

/// Changes what `options` say; the rest stays (init_params in sequence.c).
pub(super) fn change(context: &mut Context, oid: u32, options: &SequenceOptions) -> Result<()> {
    let ty = options.ty.as_deref().map(type_named).transpose()?;
    let state = context.session.sequence_state(oid)?;
    let mut changed = None;
    context.session.alter_sequence(oid, |sequence| {
        if let Some(ty) = ty {
            take_type(sequence, ty);
        }
        sequence.increment = options.increment.unwrap_or(sequence.increment);
        sequence.cycle = options.cycle.unwrap_or(sequence.cycle);
        let (least, greatest) = bounds_of(sequence.ty);
        let (low, high) = if sequence.increment > 0 { (1, greatest) } else { (least, -1) };
        sequence.min = options.min.map_or(sequence.min, |min| min.unwrap_or(low));
        sequence.max = options.max.map_or(sequence.max, |max| max.unwrap_or(high));
        sequence.start = options.start.unwrap_or(sequence.start);
        changed = Some(sequence.clone());
        Ok(())
    })?;
    let Some(sequence) = changed else { return Ok(()) };
    let last = match options.restart {
        Some(restart) => restart.unwrap_or(sequence.start),
        None => state.last,
    };
    let (min, max) = (sequence.min, sequence.max);
    let refused = |message: String| Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
    if last < min {
        return refused(format!("RESTART value ({last}) cannot be less than MINVALUE ({min})"));
    }
    if last > max {
        return refused(format!("RESTART value ({last}) cannot be greater than MAXVALUE ({max})"));
    }
    if options.restart.is_some() {
        context.session.setval(oid, last, false)?;
    }
    Ok(())
}

/// Another type; bounds that were the old one's become the new one's.
fn take_type(sequence: &mut SequenceDefinition, ty: Type) {
    let ((old_least, old_greatest), (least, greatest)) = (bounds_of(sequence.ty), bounds_of(ty));
    if sequence.max == old_greatest {
        sequence.max = greatest;
    }
    if sequence.min == old_least {
        sequence.min = least;
    }
    sequence.ty = ty;
}

/// The column that a sequence numbers has got another type.
pub(super) fn change_type(context: &mut Context, oid: u32, ty: Type) -> Result<()> {
    context.session.alter_sequence(oid, |sequence| {
        take_type(sequence, ty);
        Ok(())
    })
}

/// The numbers that CREATE TABLE gives an identity column.
pub(super) fn change_numbers(
    context: &mut Context,
    table: &Table,
    place: usize,
    options: &[ast::SequenceOptions],
) -> Result<()> {
    let Some(oid) = table.columns[place].sequence else { return Ok(()) };
    let mut all = SequenceOptions::default();
    for option in options {
        match option {
            ast::SequenceOptions::IncrementBy(tree, _) => all.increment = Some(number(tree)?),
            ast::SequenceOptions::MinValue(tree) => all.min = Some(tree.as_ref().map(number).transpose()?),
            ast::SequenceOptions::MaxValue(tree) => all.max = Some(tree.as_ref().map(number).transpose()?),
            ast::SequenceOptions::StartWith(tree, _) => all.start = Some(number(tree)?),
            ast::SequenceOptions::Cache(tree) => all.cache = Some(number(tree)?),
            // The library's flag says NO CYCLE.
            ast::SequenceOptions::Cycle(no) => all.cycle = Some(!no),
        }
    }
    // It starts where its numbers begin.
    let (ascending, increment) = (all.increment.unwrap_or(1) > 0, all.increment.unwrap_or(1));
    let (least, greatest) = bounds_of(table.columns[place].ty.ty);
    let (low, high) = if ascending { (1, greatest) } else { (least, -1) };
    let (min, max) = (all.min.flatten().unwrap_or(low), all.max.flatten().unwrap_or(high));
    let start = all.start.unwrap_or(if ascending { min } else { max });
    let all = SequenceOptions {
        increment: Some(increment),
        min: Some(Some(min)),
        max: Some(Some(max)),
        start: Some(start),
        restart: Some(None),
        ..all
    };
    change(context, oid, &all)
}

fn number(tree: &ast::Expr) -> Result<i64> {
    let text = tree.to_string().replace(' ', "");
    text.parse().map_err(|_| Error::new(SqlState::SYNTAX_ERROR, format!("syntax error at or near \"{text}\"")))
}
