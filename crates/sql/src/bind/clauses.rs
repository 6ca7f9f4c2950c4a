//! Which clauses of a query are there, and which are refused? Small readers of the parser's tree.

use crate::expr::Expr;
use crate::plan::SortKey;
use homenode_types::{ColumnType, Error, Result, SqlState, Type};
use sqlparser::ast;

pub(super) fn direction(order: &ast::OrderByExpr) -> (bool, bool) {
    let descending = order.options.asc == Some(false);
    (descending, order.options.nulls_first.unwrap_or(descending))
}

pub(crate) fn sort_key(value: Expr, ty: ColumnType, order: &ast::OrderByExpr) -> Result<SortKey> {
    let (descending, nulls_first) = direction(order);
    require_order(ty)?;
    Ok(SortKey { value, ty, descending, nulls_first })
}

/// `42883` for a type without an order.
pub(super) fn require_order(ty: ColumnType) -> Result<()> {
    if !matches!(ty.ty, Type::Json | Type::JsonArray) {
        return Ok(());
    }
    let message = format!("could not identify an ordering operator for type {}", ty.ty);
    let error = Error::new(SqlState::UNDEFINED_FUNCTION, message);
    Err(error.with_hint("Use an explicit ordering operator or modify the query."))
}

/// `42883` for a type without equality.
pub(crate) fn require_equality(ty: ColumnType) -> Result<()> {
    if !matches!(ty.ty, Type::Json | Type::JsonArray) {
        return Ok(());
    }
    let message = format!("could not identify an equality operator for type {}", ty.ty);
    Err(Error::new(SqlState::UNDEFINED_FUNCTION, message))
}

pub(super) fn order_list(query: &ast::Query) -> Result<Vec<&ast::OrderByExpr>> {
    match query.order_by.as_ref().map(|order| &order.kind) {
        None => Ok(Vec::new()),
        Some(ast::OrderByKind::Expressions(list)) => Ok(list.iter().collect()),
        Some(ast::OrderByKind::All(_)) => Err(Error::unsupported("ORDER BY ALL")),
    }
}

pub(super) fn refuse_clauses(select: &ast::Select) -> Result<()> {
    let refused = [
        (select.into.is_some(), "SELECT INTO"),
        (select.qualify.is_some(), "QUALIFY"),
        (select.top.is_some(), "TOP"),
        (!select.lateral_views.is_empty(), "LATERAL VIEW"),
        (select.connect_by.is_some(), "CONNECT BY"),
        (select.prewhere.is_some(), "PREWHERE"),
        (!select.cluster_by.is_empty() || !select.distribute_by.is_empty() || !select.sort_by.is_empty(), "SORT BY"),
    ];
    match refused.iter().find(|(present, _)| *present) {
        Some((_, what)) => Err(Error::unsupported(what)),
        None => Ok(()),
    }
}

pub(super) fn refuse_options(options: &ast::WildcardAdditionalOptions) -> Result<()> {
    let given = options.opt_exclude.is_some()
        || options.opt_except.is_some()
        || options.opt_replace.is_some()
        || options.opt_rename.is_some()
        || options.opt_ilike.is_some();
    if given { Err(Error::unsupported("options of *")) } else { Ok(()) }
}
