//! How are indexes defined? CREATE INDEX: columns, expressions, orders, INCLUDE, a condition.
//!
//! An expression and the condition are hidden generated columns of the table: the index is over those, so writes need no rule of
//! their own. Making the first of them writes the table anew.

use super::{column_place, rewrite, table_of};
use crate::bind::{folded, split_name};
use crate::checks::{self, TableScope};
use crate::context::Context;
use crate::expr::{self, Params};
use crate::run::Tag;
use homenode_engine::{IndexSpec, KeyOrder, Table};
use homenode_types::{ColumnType, Error, Result, SqlState, Type};
use sqlparser::ast;
use std::sync::Arc;

/// A hidden column that is to be: what it shows as, its type, its text.
type Hidden = (String, ColumnType, String);

/// CREATE INDEX.
pub(super) fn create(context: &mut Context, create: &ast::CreateIndex) -> Result<Tag> {
    const DONE: Tag = Tag::Plain("CREATE INDEX");
    let refused = [
        (create.nulls_distinct == Some(false), "NULLS NOT DISTINCT"),
        (!matches!(create.using, None | Some(ast::IndexType::BTree)), "an index method other than btree"),
    ];
    if let Some((_, what)) = refused.iter().find(|(present, _)| *present) {
        return Err(Error::unsupported(what));
    }
    let table = table_of(context, &create.table_name)?;
    context.check_table_owner(&table)?;
    let name = create.name.as_ref().map(|name| split_name(name).map(|(_, ident)| folded(ident))).transpose()?;
    if let Some(name) = &name
        && create.if_not_exists
        && context.session.definitions().oid(&table.schema, name).is_some()
    {
        let message = format!("relation \"{name}\" already exists, skipping");
        context.notice("NOTICE", SqlState::DUPLICATE_TABLE, message);
        return Ok(DONE);
    }
    let table = super::drop::locked(context, &table)?;
    let mut hidden: Vec<Hidden> = Vec::new();
    let (mut columns, mut order, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for column in &create.columns {
        order.push(key_order(&column.column.options));
        check_class(column)?;
        let (place, name) = key_column(&table, &column.column.expr, &mut hidden)?;
        columns.push(place);
        names.push(name);
    }
    let include = create.include.iter().map(|name| column_place(&table, &folded(name))).collect::<Result<Vec<_>>>()?;
    names.extend(include.iter().map(|&column| table.columns[column].name.clone()));
    let filter = create.predicate.as_ref().map(|tree| condition(&table, tree, &mut hidden)).transpose()?;
    let name = name.unwrap_or_else(|| free_name(context, &table, &names));
    if context.session.definitions().oid(&table.schema, &name).is_some() {
        return Err(Error::new(SqlState::DUPLICATE_TABLE, format!("relation \"{name}\" already exists")));
    }
    let table = with_hidden(context, &table, hidden)?;
    let spec = IndexSpec { name: Some(name), columns, unique: create.unique, constraint: false };
    context.session.create_index_with(&table, spec, order, include, filter)?;
    Ok(DONE)
}

fn key_order(options: &ast::OrderByOptions) -> KeyOrder {
    let descending = options.asc == Some(false);
    KeyOrder { descending, nulls_first: options.nulls_first.unwrap_or(descending) }
}

/// Classes that order by bytes, as everything here does, and the default one of a type are as good as none.
fn check_class(column: &ast::IndexColumn) -> Result<()> {
    let Some(class) = &column.operator_class else { return Ok(()) };
    let name = folded(class);
    match name.ends_with("_ops") && !name.starts_with("gin") && !name.starts_with("gist") {
        true => Ok(()),
        false => Err(Error::unsupported(format!("operator class {name}"))),
    }
}

/// The place of a key's column and what an index is named after it; an expression is a hidden column, perhaps one that is to be.
fn key_column(table: &Table, tree: &ast::Expr, hidden: &mut Vec<Hidden>) -> Result<(usize, String)> {
    let mut tree = tree;
    while let ast::Expr::Nested(inner) | ast::Expr::Collate { expr: inner, .. } = tree {
        tree = inner;
    }
    if let ast::Expr::Identifier(ident) = tree {
        let name = folded(ident);
        return Ok((column_place(table, &name)?, name));
    }
    let scope = TableScope { what: "index expression", ..TableScope::of(table) };
    let bound = expr::bind(tree, &scope, &mut Params::new(Vec::new()))?;
    let ty = if bound.ty.ty == Type::Unknown { ColumnType::new(Type::Text) } else { bound.ty };
    check_repeatable(&bound.expr, "functions in index expression must be marked IMMUTABLE")?;
    let name = match tree {
        ast::Expr::Function(call) => folded(split_name(&call.name)?.1),
        _ => "expr".to_string(),
    };
    let text = tree.to_string();
    let shown = if matches!(tree, ast::Expr::Function(_)) { text.clone() } else { format!("({text})") };
    Ok((hidden_place(table, (shown, ty, text), hidden), name))
}

fn condition(table: &Table, tree: &ast::Expr, hidden: &mut Vec<Hidden>) -> Result<usize> {
    let scope = TableScope { what: "index predicate", ..TableScope::of(table) };
    let bound = checks::bind(tree, &scope).map_err(|mut error| {
        error.message = error.message.replace("argument of CHECK", "argument of WHERE");
        error
    })?;
    check_repeatable(&bound, "functions in index predicate must be marked IMMUTABLE")?;
    let mut tree = tree;
    while let ast::Expr::Nested(inner) = tree {
        tree = inner;
    }
    Ok(hidden_place(table, (tree.to_string(), ColumnType::new(Type::Bool), tree.to_string()), hidden))
}

fn check_repeatable(bound: &expr::Expr, message: &str) -> Result<()> {
    match bound.is_repeatable() {
        true => Ok(()),
        false => Err(Error::new(SqlState::INVALID_OBJECT_DEFINITION, message)),
    }
}

/// The place of a hidden column that says the same, or of the one that will.
fn hidden_place(table: &Table, wanted: Hidden, hidden: &mut Vec<Hidden>) -> usize {
    let same = |column: &homenode_engine::Column| {
        column.is_hidden && column.ty == wanted.1 && column.generated.as_ref() == Some(&wanted.2)
    };
    if let Some(place) = table.columns.iter().position(same) {
        return place;
    }
    let place = hidden.iter().position(|known| *known == wanted).unwrap_or(hidden.len());
    if place == hidden.len() {
        hidden.push(wanted);
    }
    table.columns.len() + place
}

/// PostgreSQL's name for an index without one (ChooseIndexName in indexcmds.c), numbered until it is free.
fn free_name(context: &mut Context, table: &Table, names: &[String]) -> String {
    let mut distinct: Vec<String> = Vec::new();
    for name in names {
        let numbered = (1..).map(|number| format!("{name}{number}"));
        let found = std::iter::once(name.clone()).chain(numbered).find(|name| !distinct.contains(name));
        distinct.extend(found);
    }
    let base = format!("{}_{}_idx", table.name, distinct.join("_"));
    let definitions = context.definitions();
    let numbered = (1..).map(|number| format!("{base}{number}"));
    let mut names = std::iter::once(base.clone()).chain(numbered);
    names.find(|name| definitions.oid(&table.schema, name).is_none()).unwrap_or(base)
}

fn with_hidden(context: &mut Context, table: &Arc<Table>, hidden: Vec<Hidden>) -> Result<Arc<Table>> {
    if hidden.is_empty() {
        return Ok(table.clone());
    }
    rewrite::rows(context, table, |definition| definition.add_hidden_columns(hidden))?;
    let found = context.session.definitions().table_by_oid(table.oid).cloned();
    found.ok_or_else(|| Error::internal("the altered table is gone"))
}
