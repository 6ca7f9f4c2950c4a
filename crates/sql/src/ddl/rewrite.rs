//! How do columns and keys of a table with rows go, or get other types? By writing the rows anew where they must be.

use super::drop::{self, Dependent};
use super::{column_type, foreign};
use crate::bind::Binder;
use crate::checks::{self, Checks, TableScope};
use crate::context::Context;
use crate::exec::{RawRow, Registers};
use crate::expr::{self, Bound, Expr, Params};
use homenode_engine::{Definitions, Table, TableDefinition, ViewDefinition};
use homenode_types::{ColumnType, Error, Result, SqlState, Type, Value};
use sqlparser::ast;
use std::sync::Arc;

/// Writes the rows of a table anew for a definition that `change` makes of its own; generated columns are computed.
pub(super) fn rows(context: &mut Context, table: &Arc<Table>, change: impl FnOnce(&mut TableDefinition)) -> Result<()> {
    converted(context, table, change, None)
}

/// As [`rows`], with one column's values by an expression over the old row.
fn converted(
    context: &mut Context,
    table: &Arc<Table>,
    change: impl FnOnce(&mut TableDefinition),
    convert: Option<(usize, &Expr)>,
) -> Result<()> {
    let mut rewrite = context.session.begin_rewrite(table, change)?;
    let (old, new) = (rewrite.old().clone(), rewrite.becoming().clone());
    let mut checks = Checks::of(&new)?;
    if let Some((place, _)) = convert {
        // Only what is about the column may fail by its change.
        let about = |name: &str| {
            let check = new.checks.iter().find(|check| check.name == name && !check.not_valid);
            check.is_some_and(|check| {
                checks::columns_of(&check.expression, &new).is_ok_and(|columns| columns.contains(&place))
            })
        };
        checks.retain(about);
    }
    let mut scan = context.session.scan_newest(&old)?;
    let (mut bytes, mut values, mut count) = (Vec::new(), Vec::new(), 0u64);
    while let Some((_, row)) = scan.next(&mut context.session)? {
        bytes.clear();
        bytes.extend_from_slice(row);
        old.layout.decode(&bytes, &mut values);
        values.resize(new.columns.len(), Value::Null);
        for (value, _) in values.iter_mut().zip(&new.columns).filter(|(_, column)| column.is_dropped) {
            *value = Value::Null;
        }
        if let Some((place, expr)) = convert {
            let raw = RawRow { layout: &old.layout, bytes: &bytes, base: 0, registers: &[] };
            values[place] = expr.eval(&raw, &[], &mut context.env())?;
        }
        checks.fill(&mut values, &mut context.env())?;
        check_nulls(&new, &values)?;
        if convert.is_some() {
            checks.enforce(&new, &Registers(&values), &mut context.env()).map_err(|error| by_some_row(&new, error))?;
        }
        rewrite.push(&mut context.session, &values)?;
        count += 1;
        if count.is_multiple_of(1024) {
            context.check_interrupt()?;
        }
    }
    rewrite.finish(&mut context.session)
}

fn check_nulls(table: &Table, values: &[Value]) -> Result<()> {
    let mut columns = table.columns.iter().zip(values);
    match columns.find(|(column, value)| column.not_null && matches!(value, Value::Null)) {
        None => Ok(()),
        Some((column, _)) => {
            let message = format!("column \"{}\" of relation \"{}\" contains null values", column.name, table.name);
            Err(Error::new(SqlState::NOT_NULL_VIOLATION, message).with_table(&table.schema, &table.name))
        }
    }
}

fn by_some_row(table: &Table, mut error: Error) -> Error {
    if let (SqlState::CHECK_VIOLATION, Some(name)) = (error.code, &error.constraint) {
        error.message = format!("check constraint \"{name}\" of relation \"{}\" is violated by some row", table.name);
        error.detail = None;
    }
    error
}

/// The table as it is now.
fn current(context: &mut Context, table: &Table) -> Result<Arc<Table>> {
    let found = context.session.definitions().table_by_oid(table.oid).cloned();
    found.ok_or_else(|| Error::internal("the altered table is gone"))
}

/// DROP CONSTRAINT of a primary key: the rows are kept in the order of a hidden number from then on.
pub(super) fn drop_primary_key(context: &mut Context, table: &Arc<Table>) -> Result<()> {
    rows(context, table, |definition| definition.primary_key = None)
}

/// The views that say something else, or nothing, without a column.
fn readers(context: &mut Context, table: &Table, place: usize) -> Vec<Arc<ViewDefinition>> {
    let definitions: Definitions = context.definitions().without_column(table.oid, place);
    let binder = Binder::new(&definitions, context.search_path());
    let views = definitions.views().into_iter().filter(|view| view.depends.contains(&table.oid));
    views.filter(|view| binder.view(view).is_err()).collect()
}

/// The generated columns that are made of a column.
fn made_of(table: &Table, place: usize) -> Result<Vec<usize>> {
    let mut found = Vec::new();
    for (number, column) in table.columns.iter().enumerate() {
        let Some(text) = &column.generated else { continue };
        if checks::columns_of(text, table)?.contains(&place) {
            found.push(number);
        }
    }
    Ok(found)
}

/// DROP COLUMN.
pub(super) fn drop_column(
    context: &mut Context,
    table: &Arc<Table>,
    name: &str,
    if_exists: bool,
    cascade: bool,
) -> Result<()> {
    let table = drop::locked(context, table)?;
    let Some(place) = table.column_index(name) else {
        let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
        if if_exists {
            context.notice("NOTICE", SqlState::SUCCESSFUL_COMPLETION, format!("{message}, skipping"));
            return Ok(());
        }
        return Err(Error::new(SqlState::UNDEFINED_COLUMN, message));
    };
    let shown = context.shown(&table.schema, &table.name);
    let what = format!("column {name} of table {shown}");
    let mut found: Vec<(Dependent, String)> = Vec::new();
    for other in made_of(&table, place)? {
        if !table.columns[other].is_hidden {
            found.push((Dependent::Column(table.clone(), other), what.clone()));
        }
    }
    let keys: Vec<u32> =
        table.unique_keys().filter(|(_, columns)| columns.contains(&place)).map(|(oid, _)| oid).collect();
    for key in keys {
        let keys = drop::references(context, &table, Some(key));
        let others = keys.into_iter().filter(|(child, key)| child.oid != table.oid || !key.columns.contains(&place));
        found.extend(others.map(|(child, key)| (Dependent::Key(child, key), what.clone())));
    }
    for view in readers(context, &table, place) {
        drop::add_readers(context, view.oid, &format!("view {}", view.name), &[], &mut found);
        found.push((Dependent::View(view), what.clone()));
    }
    drop::drop_dependents(context, &found, what, cascade)?;
    // Constraints and indexes that the column is part of go with it.
    let table = current(context, &table)?;
    for key in table.foreign_keys.iter().filter(|key| key.columns.contains(&place)) {
        context.session.drop_foreign_key(&table, key.oid)?;
    }
    let hidden = made_of(&table, place)?;
    let goes = |column: &usize| *column == place || hidden.contains(column);
    for index in &table.indexes {
        if index.columns.iter().chain(&index.include).chain(&index.filter).any(goes) {
            drop::drop_index_of(context, &table, index.oid)?;
        }
    }
    let table = current(context, &table)?;
    let mut kept = Vec::new();
    for check in &table.checks {
        if !checks::columns_of(&check.expression, &table)?.contains(&place) {
            kept.push(check.clone());
        }
    }
    if kept.len() != table.checks.len() {
        context.session.alter_table(&table, |definition| {
            definition.checks = kept;
            Ok(())
        })?;
    }
    if table.primary_key.as_ref().is_some_and(|key| key.columns.contains(&place)) {
        drop_primary_key(context, &table)?;
    }
    context.session.drop_column(&table, place)
}

/// ALTER COLUMN ... TYPE.
pub(super) fn change_type(
    context: &mut Context,
    table: &Arc<Table>,
    place: usize,
    data_type: &ast::DataType,
    using: Option<&ast::Expr>,
) -> Result<()> {
    let (ty, _) = column_type(data_type)?;
    let table = drop::locked(context, table)?;
    let column = &table.columns[place];
    let conversion = conversion(&table, place, ty, using)?;
    let refused = |what: &str, detail: String| {
        Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, format!("cannot alter type of a column used by {what}"))
            .with_detail(detail))
    };
    if let Some(view) = readers(context, &table, place).first() {
        return refused(
            "a view or rule",
            format!("rule _RETURN on view {} depends on column \"{}\"", view.name, column.name),
        );
    }
    if let Some(&other) = made_of(&table, place)?.first() {
        return match table.columns[other].is_hidden {
            true => {
                Err(Error::unsupported("changing the type of a column that an index's expression or condition uses"))
            }
            false => refused(
                "a generated column",
                format!("Column \"{}\" is used by generated column \"{}\".", column.name, table.columns[other].name),
            ),
        };
    }
    if column.generated.is_some() {
        return Err(Error::unsupported("changing the type of a generated column"));
    }
    check_default(&table, place, ty)?;
    if column.identity.is_some() && !ty.ty.is_integer() {
        let message = "identity column type must be smallint, integer, or bigint";
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    let before = column.ty;
    if using.is_none() && (before == ty || is_wider(before, ty)) {
        return context.session.alter_table(&table, |definition| {
            definition.columns[place].ty = ty;
            Ok(())
        });
    }
    converted(context, &table, |definition| definition.columns[place].ty = ty, Some((place, &conversion)))?;
    let table = current(context, &table)?;
    if let (Some(_), Some(sequence)) = (table.columns[place].identity, table.columns[place].sequence) {
        super::sequence::change_type(context, sequence, ty.ty)?;
    }
    check_foreign_keys(context, &table, place)
}

/// What makes the new value of the old row.
fn conversion(table: &Table, place: usize, ty: ColumnType, using: Option<&ast::Expr>) -> Result<Expr> {
    let (name, shown) = (&table.columns[place].name, ty.ty.sql_name());
    let mut params = Params::new(Vec::new());
    let mismatch = |message: String| Error::new(SqlState::DATATYPE_MISMATCH, message);
    match using {
        None => {
            let bound = Bound { expr: Expr::Column(place), ty: table.columns[place].ty };
            let bound = expr::cast_bound(bound, ty, &mut params).map_err(|_| {
                mismatch(format!("column \"{name}\" cannot be cast automatically to type {shown}")).with_hint(format!(
                    "You might need to specify \"USING {}::{shown}\".",
                    homenode_engine::quote_name(name)
                ))
            })?;
            Ok(bound.expr)
        }
        Some(tree) => {
            let scope = TableScope { what: "transform expression", ..TableScope::of(table) };
            let bound = expr::bind(tree, &scope, &mut params)?;
            let bound = expr::cast_bound(bound, ty, &mut params).map_err(|_| {
                let what = format!("result of USING clause for column \"{name}\"");
                mismatch(format!("{what} cannot be cast automatically to type {shown}"))
                    .with_hint("You might need to add an explicit cast.")
            })?;
            Ok(bound.expr)
        }
    }
}

/// Whether every value of one type is one of the other as it is stored.
fn is_wider(from: ColumnType, to: ColumnType) -> bool {
    from.ty == to.ty && from.ty == Type::Varchar && (to.typmod < 0 || (from.typmod >= 0 && to.typmod >= from.typmod))
}

fn check_default(table: &Table, place: usize, ty: ColumnType) -> Result<()> {
    let column = &table.columns[place];
    let Some(text) = &column.default else { return Ok(()) };
    let tree = crate::parse::expression(text)?;
    let mut params = Params::new(Vec::new());
    expr::bind_to(&tree, ty, true, &expr::NoColumns, &mut params).map(|_| ()).map_err(|_| {
        let (name, shown) = (&column.name, ty.ty.sql_name());
        let message = format!("default for column \"{name}\" cannot be cast automatically to type {shown}");
        Error::new(SqlState::DATATYPE_MISMATCH, message)
    })
}

/// Foreign keys of which the column is part hold, or the change of its type fails.
fn check_foreign_keys(context: &mut Context, table: &Arc<Table>, place: usize) -> Result<()> {
    let definitions = context.definitions();
    let own =
        table.foreign_keys.iter().filter(|key| key.columns.contains(&place)).map(|key| (table.clone(), key.clone()));
    let others = drop::references(context, table, None).into_iter();
    let others = others.filter(|(_, key)| key.parent_columns.contains(&place));
    for (child, key) in own.chain(others) {
        let Some(parent) = definitions.table_by_oid(key.parent) else { continue };
        for (&column, &other) in key.columns.iter().zip(&key.parent_columns) {
            foreign::check_types(&child, parent, &key.name, column, other)?;
        }
        if !key.not_valid {
            crate::foreign::validate(context, &child, &key)?;
        }
    }
    Ok(())
}
