//! Which indexes on expressions, and which with a condition, serve a query? Those whose expression or condition it has, letter for
//! letter once both are bound.
//!
//! An index on an expression is one on a hidden column that always has its value; so the expression in a query becomes that column.

use crate::bind::{Relation, Source, conjuncts};
use crate::checks::{TableScope, bind_value};
use crate::expr::Expr;
use homenode_engine::{IndexDefinition, Table};

/// The conditions of a query, with the expressions that a table has a hidden column for replaced by it.
pub(crate) fn by_indexes(relations: &[Relation], mut conditions: Vec<Expr>) -> Vec<Expr> {
    for relation in relations {
        let Source::Table(table) = &relation.source else { continue };
        for (place, expr) in hidden(table, relation.base) {
            let wanted = format!("{expr:?}");
            conditions.iter_mut().for_each(|condition| replace(condition, &wanted, relation.base + place));
        }
    }
    conditions
}

/// The hidden columns that are keys of indexes, with their expressions over the registers from `base` on.
fn hidden(table: &Table, base: usize) -> Vec<(usize, Expr)> {
    let is_key = |place: usize| table.indexes.iter().any(|index| index.columns.contains(&place));
    let columns = table.columns.iter().enumerate().filter(|(place, column)| column.is_hidden && is_key(*place));
    columns.filter_map(|(place, _)| Some((place, expression(table, place, base)?))).collect()
}

/// What a generated column is made of.
fn expression(table: &Table, place: usize, base: usize) -> Option<Expr> {
    let column = &table.columns[place];
    let tree = crate::parse::expression(column.generated.as_ref()?).ok()?;
    let mut expr = bind_value(&tree, column.ty, &TableScope::of(table)).ok()?;
    expr.map_columns(&mut |column| base + column);
    Some(expr)
}

fn replace(expr: &mut Expr, wanted: &str, column: usize) {
    // Every node is compared as it is written out: expressions are small, and only tables with such indexes come here.
    if !matches!(expr, Expr::Column(_) | Expr::Const(_)) && format!("{expr:?}") == wanted {
        *expr = Expr::Column(column);
        return;
    }
    expr.for_each_child_mut(&mut |child| replace(child, wanted, column));
}

/// Whether an index has all rows that satisfy the conditions on a table whose columns begin at register `base`.
pub(crate) fn serves(table: &Table, index: &IndexDefinition, conditions: &[Expr], base: usize) -> bool {
    let Some(filter) = index.filter else { return true };
    let Some(mut condition) = expression(table, filter, base) else { return false };
    for (place, expr) in hidden(table, base) {
        replace(&mut condition, &format!("{expr:?}"), base + place);
    }
    let given: Vec<String> = conditions.iter().map(|condition| format!("{condition:?}")).collect();
    conjuncts(condition).iter().all(|part| given.contains(&format!("{part:?}")))
}
