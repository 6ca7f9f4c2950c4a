//! Which values does `SET (a, b, ...) = ...` give?

use super::Binder;
use super::scope::FromScope;
use crate::expr::Params;
use homenode_types::{Error, Result, SqlState};
use sqlparser::ast;

/// The values of `SET (a, b, ...) = ...`: those of a row, or the columns of a query. The query is run once for each column.
pub(super) fn several(
    count: usize,
    value: &ast::Expr,
    binder: &Binder<'_>,
    scope: &FromScope<'_>,
    params: &mut Params,
) -> Result<Vec<ast::Expr>> {
    let row = |list: &ast::FunctionArgumentList| {
        let args = list.args.iter().map(|arg| match arg {
            ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(tree)) => Some(tree.clone()),
            _ => None,
        });
        args.collect::<Option<Vec<_>>>()
    };
    let values = match value {
        ast::Expr::Tuple(values) => Some(values.clone()),
        ast::Expr::Function(call) if call.name.to_string().eq_ignore_ascii_case("row") => match &call.args {
            ast::FunctionArguments::List(list) => row(list),
            _ => None,
        },
        ast::Expr::Subquery(query) => {
            let (plan, _) = binder.query(query, Some(scope), params, false)?;
            let columns = plan.fields.len();
            if columns != count {
                let message = "number of columns does not match number of values";
                return Err(Error::new(SqlState::SYNTAX_ERROR, message));
            }
            (0..columns).map(|column| one_column(query, column, columns)).collect::<Result<Vec<_>>>().map(Some)?
        }
        _ => None,
    };
    let Some(values) = values else {
        let message = "source for a multiple-column UPDATE item must be a sub-SELECT or ROW() expression";
        return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
    };
    if values.len() != count {
        let message = "number of columns does not match number of values";
        return Err(Error::new(SqlState::SYNTAX_ERROR, message));
    }
    Ok(values)
}

/// A query's column as a scalar subquery: `(SELECT c2 FROM (query) AS q(c1, c2, ...))`.
fn one_column(query: &ast::Query, column: usize, columns: usize) -> Result<ast::Expr> {
    let names: Vec<String> = (0..columns).map(|number| format!("c{number}")).collect();
    let shape = format!("(SELECT q.c{column} FROM (SELECT 1) AS q({}))", names.join(", "));
    let mut tree = crate::parse::expression(&shape)?;
    let wrong = || Error::internal("the parser made something else of a subquery");
    let ast::Expr::Subquery(outside) = &mut tree else { return Err(wrong()) };
    let ast::SetExpr::Select(select) = &mut *outside.body else { return Err(wrong()) };
    let Some(ast::TableFactor::Derived { subquery, .. }) = select.from.first_mut().map(|item| &mut item.relation)
    else {
        return Err(wrong());
    };
    **subquery = query.clone();
    Ok(tree)
}
