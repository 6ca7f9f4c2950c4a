//! How are foreign keys defined? FOREIGN KEY and REFERENCES, to the engine's definitions.

use super::table_of;
use crate::bind::{Need, folded};
use crate::context::Context;
use homenode_engine::{ForeignKey, Privileges, ReferentialAction, Table, Timing};
use homenode_types::{CastContext, Error, Result, SqlState, can_coerce};
use sqlparser::ast;
use std::sync::Arc;

/// A foreign key as it was written.
pub(super) struct Wanted<'a> {
    name: Option<String>,
    columns: Vec<String>,
    parent: &'a ast::ObjectName,
    parent_columns: &'a [ast::Ident],
    on_delete: ReferentialAction,
    on_update: ReferentialAction,
    characteristics: Option<ast::ConstraintCharacteristics>,
}

fn action(written: &Option<ast::ReferentialAction>) -> ReferentialAction {
    match written {
        None | Some(ast::ReferentialAction::NoAction) => ReferentialAction::NoAction,
        Some(ast::ReferentialAction::Restrict) => ReferentialAction::Restrict,
        Some(ast::ReferentialAction::Cascade) => ReferentialAction::Cascade,
        Some(ast::ReferentialAction::SetNull) => ReferentialAction::SetNull,
        Some(ast::ReferentialAction::SetDefault) => ReferentialAction::SetDefault,
    }
}

impl<'a> Wanted<'a> {
    /// REFERENCES behind a column.
    pub fn of_column(name: Option<String>, column: String, option: &'a ast::ColumnOption) -> Option<Wanted<'a>> {
        let ast::ColumnOption::ForeignKey { foreign_table, referred_columns, on_delete, on_update, characteristics } =
            option
        else {
            return None;
        };
        Some(Wanted {
            name,
            columns: vec![column],
            parent: foreign_table,
            parent_columns: referred_columns,
            on_delete: action(on_delete),
            on_update: action(on_update),
            characteristics: *characteristics,
        })
    }

    /// FOREIGN KEY.
    pub fn of_table(constraint: &'a ast::TableConstraint) -> Option<Wanted<'a>> {
        let ast::TableConstraint::ForeignKey {
            name,
            columns,
            foreign_table,
            referred_columns,
            on_delete,
            on_update,
            characteristics,
            ..
        } = constraint
        else {
            return None;
        };
        Some(Wanted {
            name: name.as_ref().map(folded),
            columns: columns.iter().map(folded).collect(),
            parent: foreign_table,
            parent_columns: referred_columns,
            on_delete: action(on_delete),
            on_update: action(on_update),
            characteristics: *characteristics,
        })
    }
}

/// When a constraint is to be looked at.
pub(super) fn timing(characteristics: Option<ast::ConstraintCharacteristics>) -> Result<Timing> {
    let Some(characteristics) = characteristics else { return Ok(Timing::Immediate) };
    if characteristics.enforced == Some(false) {
        return Err(Error::unsupported("NOT ENFORCED"));
    }
    let deferred = characteristics.initially == Some(ast::DeferrableInitial::Deferred);
    match (characteristics.deferrable, deferred) {
        (Some(false), true) => {
            let message = "constraint declared INITIALLY DEFERRED must be DEFERRABLE";
            Err(Error::new(SqlState::SYNTAX_ERROR, message))
        }
        (_, true) => Ok(Timing::Deferred),
        (Some(true), false) => Ok(Timing::Deferrable),
        _ => Ok(Timing::Immediate),
    }
}

/// Keys are looked at with each row.
pub(super) fn refuse_deferrable(characteristics: Option<ast::ConstraintCharacteristics>) -> Result<()> {
    match timing(characteristics)? {
        Timing::Immediate => Ok(()),
        _ => Err(Error::unsupported("DEFERRABLE of UNIQUE and PRIMARY KEY")),
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(SqlState::INVALID_FOREIGN_KEY, message)
}

/// Adds a foreign key that all rows of the table satisfy; gives the table with it.
pub(super) fn add(
    context: &mut Context,
    table: &Arc<Table>,
    wanted: &Wanted<'_>,
    not_valid: bool,
) -> Result<Arc<Table>> {
    let timing = timing(wanted.characteristics)?;
    // First, so that neither definition changes any more.
    context.session.lock_table(table)?;
    let table = context.session.definitions().table_by_oid(table.oid).cloned();
    let table = &table.ok_or_else(|| Error::internal("the altered table is gone"))?;
    let parent = table_of(context, wanted.parent)?;
    context.check_access(&[Need::own(parent.oid, Privileges::REFERENCES)])?;
    let mut columns = Vec::with_capacity(wanted.columns.len());
    for name in &wanted.columns {
        columns.push(place(table, name)?);
    }
    let parent_columns = match wanted.parent_columns {
        [] => match &parent.primary_key {
            Some(key) => key.columns.clone(),
            None => {
                let message = format!("there is no primary key for referenced table \"{}\"", parent.name);
                return Err(Error::new(SqlState::UNDEFINED_OBJECT, message));
            }
        },
        names => names.iter().map(|name| place(&parent, &folded(name))).collect::<Result<Vec<_>>>()?,
    };
    let key = unique_key(&parent, &parent_columns)?;
    if columns.len() != parent_columns.len() {
        return Err(invalid("number of referencing and referenced columns for foreign key disagree"));
    }
    let name = match &wanted.name {
        Some(name) => name.clone(),
        None => free_name(table, &wanted.columns),
    };
    for (&column, &other) in columns.iter().zip(&parent_columns) {
        check_types(table, &parent, &name, column, other)?;
    }
    let key = ForeignKey {
        oid: 0,
        name,
        columns,
        parent: parent.oid,
        parent_columns,
        key,
        on_delete: wanted.on_delete,
        on_update: wanted.on_update,
        not_valid,
        timing,
    };
    let name = key.name.clone();
    context.session.add_foreign_key(table, key)?;
    let changed = context.session.definitions().table_by_oid(table.oid).cloned();
    let changed = changed.ok_or_else(|| Error::internal("the altered table is gone"))?;
    if let Some(key) = changed.foreign_keys.iter().find(|key| key.name == name && !not_valid) {
        crate::foreign::validate(context, &changed, key)?;
    }
    Ok(changed)
}

fn place(table: &Table, name: &str) -> Result<usize> {
    table.column_index(name).ok_or_else(|| {
        let message = format!("column \"{name}\" referenced in foreign key constraint does not exist");
        Error::new(SqlState::UNDEFINED_COLUMN, message)
    })
}

/// The number of the primary key or unique index that is made of these columns, in whatever order.
fn unique_key(parent: &Table, columns: &[usize]) -> Result<u32> {
    let mut wanted = columns.to_vec();
    wanted.sort_unstable();
    if wanted.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(invalid("foreign key referenced-columns list must not contain duplicates"));
    }
    let same = |columns: &[usize]| {
        let mut columns = columns.to_vec();
        columns.sort_unstable();
        columns == wanted
    };
    let found = parent.unique_keys().find(|(_, columns)| same(columns));
    found.map(|(oid, _)| oid).ok_or_else(|| {
        invalid(format!("there is no unique constraint matching given keys for referenced table \"{}\"", parent.name))
    })
}

/// PostgreSQL's name for a constraint without one, numbered until it is free.
fn free_name(table: &Table, columns: &[String]) -> String {
    let base = format!("{}_{}_fkey", table.name, columns.join("_"));
    let taken: Vec<&String> = table.constraint_names().collect();
    let numbered = (1..).map(|number| format!("{base}{number}"));
    std::iter::once(base.clone()).chain(numbered).find(|name| !taken.contains(&name)).unwrap_or(base)
}

/// Whether values of the two columns can be compared by the referenced key: the same type, one of its family, or one that becomes it
/// by itself.
pub(super) fn check_types(table: &Table, parent: &Table, name: &str, column: usize, other: usize) -> Result<()> {
    let (from, to) = (table.columns[column].ty.ty, parent.columns[other].ty.ty);
    let family = (from.is_integer() && to.is_integer()) || (from.is_text() && to.is_text());
    let wider = can_coerce(from, to, CastContext::Implicit) && (from.is_integer() || from == to);
    if from == to || family || wider {
        return Ok(());
    }
    let (ours, theirs) = (&table.columns[column].name, &parent.columns[other].name);
    Err(Error::new(SqlState::DATATYPE_MISMATCH, format!("foreign key constraint \"{name}\" cannot be implemented"))
        .with_detail(format!(
            "Key columns \"{ours}\" and \"{theirs}\" are of incompatible types: {} and {}.",
            from.sql_name(),
            to.sql_name()
        )))
}
