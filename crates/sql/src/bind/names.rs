//! What is an output column called, and which one does a name mean? PostgreSQL's names for columns without AS.

use super::folded;
use crate::expr;
use homenode_types::{Error, Result, SqlState};
use sqlparser::ast;

/// The qualifier and name of a plain column reference.
pub(super) fn bare_column(tree: &ast::Expr) -> Option<(Option<String>, String)> {
    match tree {
        ast::Expr::Identifier(ident) => Some((None, folded(ident))),
        ast::Expr::CompoundIdentifier(idents) => match &idents[..] {
            [.., relation, name] => Some((Some(folded(relation)), folded(name))),
            _ => None,
        },
        _ => None,
    }
}

/// The name PostgreSQL gives an output column without AS (FigureColname in parse_target.c).
pub(super) fn column_name(tree: &ast::Expr) -> String {
    figure(tree).0.unwrap_or_else(|| "?column?".into())
}

/// The name and how strong it is: a cast names the column by its type only when nothing inside does better.
fn figure(tree: &ast::Expr) -> (Option<String>, u8) {
    match tree {
        ast::Expr::Identifier(ident) => (Some(folded(ident)), 2),
        ast::Expr::CompoundIdentifier(idents) => (idents.last().map(folded), 2),
        ast::Expr::Function(function) => {
            let name = function.name.0.last().and_then(|part| part.as_ident()).map(folded);
            (name, 2)
        }
        // By the last field, or what the subscripts are of (FigureColname in parse_target.c).
        ast::Expr::CompoundFieldAccess { root, access_chain } => {
            let field = access_chain.iter().rev().find_map(|access| match access {
                ast::AccessExpr::Dot(ast::Expr::Identifier(name)) => Some(folded(name)),
                _ => None,
            });
            if field.is_some() { (field, 2) } else { figure(root) }
        }
        ast::Expr::Nested(inner) | ast::Expr::Collate { expr: inner, .. } => figure(inner),
        ast::Expr::Cast { expr: inner, data_type, .. } => match figure(inner) {
            (name, 2) => (name, 2),
            _ => (Some(type_name(data_type)), 1),
        },
        ast::Expr::TypedString(typed) => (Some(type_name(&typed.data_type)), 1),
        ast::Expr::Interval(_) => (Some("interval".into()), 1),
        ast::Expr::Case { else_result, .. } => match else_result.as_deref().map(figure) {
            Some((name, 2)) => (name, 2),
            _ => (Some("case".into()), 1),
        },
        ast::Expr::Exists { negated: false, .. } => (Some("exists".into()), 2),
        ast::Expr::Extract { .. } => (Some("extract".into()), 2),
        ast::Expr::Substring { .. } => (Some("substring".into()), 2),
        ast::Expr::Position { .. } => (Some("position".into()), 2),
        ast::Expr::Overlay { .. } => (Some("overlay".into()), 2),
        ast::Expr::Ceil { .. } => (Some("ceil".into()), 2),
        ast::Expr::Floor { .. } => (Some("floor".into()), 2),
        ast::Expr::AtTimeZone { .. } => (Some("timezone".into()), 2),
        ast::Expr::Trim { trim_where, .. } => {
            let name = match trim_where {
                Some(ast::TrimWhereField::Leading) => "ltrim",
                Some(ast::TrimWhereField::Trailing) => "rtrim",
                _ => "btrim",
            };
            (Some(name.into()), 2)
        }
        ast::Expr::Array(_) => (Some("array".into()), 2),
        ast::Expr::Value(value) if matches!(value.value, ast::Value::Boolean(_)) => (Some("bool".into()), 1),
        ast::Expr::Subquery(query) => match &*query.body {
            ast::SetExpr::Select(select) => match select.projection.first() {
                Some(ast::SelectItem::ExprWithAlias { alias, .. }) => (Some(folded(alias)), 2),
                Some(ast::SelectItem::UnnamedExpr(inner)) => figure(inner),
                _ => (None, 0),
            },
            _ => (None, 0),
        },
        _ => (None, 0),
    }
}

fn type_name(data_type: &ast::DataType) -> String {
    match expr::column_type(data_type) {
        Ok(ty) => ty.ty.name().to_string(),
        Err(_) => data_type.to_string().to_lowercase(),
    }
}

/// The output column that an ORDER BY expression names, by name or position.
pub(super) fn output_place<'n>(
    tree: &ast::Expr,
    names: impl Iterator<Item = &'n str>,
    count: usize,
) -> Result<Option<usize>> {
    match tree {
        ast::Expr::Identifier(ident) => {
            let wanted = folded(ident);
            let mut places = names.enumerate().filter(|(_, name)| *name == wanted).map(|(place, _)| place);
            Ok(places.next())
        }
        ast::Expr::Value(value) => match &value.value {
            ast::Value::Number(digits, _) => match digits.parse::<usize>() {
                Ok(number) if (1..=count).contains(&number) => Ok(Some(number - 1)),
                _ => Err(Error::new(
                    SqlState::INVALID_COLUMN_REFERENCE,
                    format!("ORDER BY position {digits} is not in select list"),
                )),
            },
            _ => Err(Error::new(SqlState::SYNTAX_ERROR, "non-integer constant in ORDER BY")),
        },
        _ => Ok(None),
    }
}

/// Whether a call in a select list stands for a set that is always empty, so that its query gives no row: nothing is partitioned here,
/// and psql asks for the ancestors of each partition.
pub(super) fn is_empty_set(item: &ast::SelectItem) -> bool {
    let (ast::SelectItem::UnnamedExpr(tree) | ast::SelectItem::ExprWithAlias { expr: tree, .. }) = item else {
        return false;
    };
    matches!(tree, ast::Expr::Function(call) if is_partition_ancestors(&call.name))
}

/// Whether a function is the one whose set is always empty.
pub(super) fn is_partition_ancestors(name: &ast::ObjectName) -> bool {
    super::split_name(name).is_ok_and(|(_, ident)| super::folded(ident) == "pg_partition_ancestors")
}
