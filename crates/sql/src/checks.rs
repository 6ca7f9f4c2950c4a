//! Does a row satisfy its table's CHECK constraints? Their texts, bound over the table's columns, and looked at whenever a row is
//! written.

use crate::exec::Registers;
use crate::expr::{self, Bound, Env, Expr, Params, RowSource, Scope};
use homenode_engine::Table;
use homenode_types::{ColumnType, Error, Result, SqlState, Type, Value};
use sqlparser::ast;

/// The bound constraints of one table.
#[derive(Default)]
pub(crate) struct Checks {
    list: Vec<(String, Expr)>,
    /// Generated columns with what makes their values.
    generated: Vec<(usize, Expr)>,
}

impl Checks {
    /// Those of `table`.
    pub fn of(table: &Table) -> Result<Checks> {
        if table.checks.is_empty() && table.columns.iter().all(|column| column.generated.is_none()) {
            return Ok(Checks::default());
        }
        let scope = TableScope::of(table);
        let bound = |text: &str| bind(&crate::parse::expression(text)?, &scope);
        let list = table.checks.iter().map(|check| Ok((check.name.clone(), bound(&check.expression)?)));
        let mut list = list.collect::<Result<Vec<_>>>()?;
        // In this order PostgreSQL looks at them, which shows when a row violates several.
        list.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut generated = Vec::new();
        for (place, column) in table.columns.iter().enumerate() {
            if let Some(text) = &column.generated {
                generated.push((place, bind_value(&crate::parse::expression(text)?, column.ty, &scope)?));
            }
        }
        Ok(Checks { list, generated })
    }

    /// Leaves only those constraints for whose name `keep` is true.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.list.retain(|(name, _)| keep(name));
    }

    /// Whether the table has generated columns.
    #[inline]
    pub fn generates(&self) -> bool {
        !self.generated.is_empty()
    }

    /// Computes the generated columns of a row from the others.
    ///
    /// # Errors
    /// Those of evaluating.
    #[inline]
    pub fn fill(&self, values: &mut [Value], env: &mut Env<'_>) -> Result<()> {
        for (place, expr) in &self.generated {
            values[*place] = expr.eval(&Registers(values), &[], env)?;
        }
        Ok(())
    }

    /// Looks at a row of `table` that is to be written.
    ///
    /// # Errors
    /// 23514; those of evaluating.
    #[inline]
    pub fn enforce(&self, table: &Table, row: &dyn RowSource, env: &mut Env<'_>) -> Result<()> {
        for (name, check) in &self.list {
            // NULL is as good as true.
            if check.eval_bool(row, &[], env)? == Some(false) {
                return Err(violation(table, name, row));
            }
        }
        Ok(())
    }
}

#[cold]
fn violation(table: &Table, name: &str, row: &dyn RowSource) -> Error {
    let values: Vec<_> = (0..table.columns.len()).map(|column| row.column(column).to_owned()).collect();
    let message = format!("new row for relation \"{}\" violates check constraint \"{name}\"", table.name);
    let mut error = Error::new(SqlState::CHECK_VIOLATION, message)
        .with_detail(format!("Failing row contains ({}).", homenode_engine::row_text(table, &values)))
        .with_table(&table.schema, &table.name);
    error.constraint = Some(name.to_string());
    error
}

/// Binds a condition over a table's row, and nothing else.
pub(crate) fn bind(tree: &ast::Expr, scope: &TableScope<'_>) -> Result<Expr> {
    let mut params = Params::new(Vec::new());
    let bound = expr::bind(tree, scope, &mut params)?;
    if !matches!(bound.ty.ty, Type::Bool | Type::Unknown) {
        let message = format!("argument of CHECK must be type boolean, not type {}", bound.ty.ty);
        return Err(Error::new(SqlState::DATATYPE_MISMATCH, message));
    }
    if !params.types.is_empty() {
        return Err(Error::new(SqlState::UNDEFINED_PARAMETER, "there is no parameter $1"));
    }
    Ok(expr::cast_bound(bound, Type::Bool.into(), &mut params)?.expr)
}

/// Binds a value that is made of a table's row, for a column of type `ty`.
pub(crate) fn bind_value(tree: &ast::Expr, ty: ColumnType, scope: &TableScope<'_>) -> Result<Expr> {
    let mut params = Params::new(Vec::new());
    let bound = expr::bind_to(tree, ty, true, scope, &mut params)?;
    if !params.types.is_empty() {
        return Err(Error::new(SqlState::UNDEFINED_PARAMETER, "there is no parameter $1"));
    }
    Ok(bound.expr)
}

/// The columns that an expression over a table's row, kept as text, is about.
pub(crate) fn columns_of(text: &str, table: &Table) -> Result<Vec<usize>> {
    let bound = expr::bind(&crate::parse::expression(text)?, &TableScope::of(table), &mut Params::new(Vec::new()))?;
    let mut columns = Vec::new();
    bound.expr.visit_columns(&mut |column| columns.push(column));
    columns.sort_unstable();
    columns.dedup();
    Ok(columns)
}

/// The columns of a table that may not exist yet.
pub(crate) struct TableScope<'a> {
    /// What is bound, for messages.
    pub what: &'static str,
    pub table: &'a str,
    pub columns: Vec<(&'a str, ColumnType)>,
}

impl<'a> TableScope<'a> {
    pub fn of(table: &'a Table) -> TableScope<'a> {
        let columns = table.columns.iter().map(|column| (column.name.as_str(), column.ty)).collect();
        TableScope { what: "check constraint", table: &table.name, columns }
    }
}

impl Scope for TableScope<'_> {
    fn column(&self, qualifier: Option<&str>, name: &str) -> Result<Bound> {
        if let Some(other) = qualifier.filter(|qualifier| *qualifier != self.table) {
            let message = format!("missing FROM-clause entry for table \"{other}\"");
            return Err(Error::new(SqlState::UNDEFINED_TABLE, message));
        }
        let place = self
            .columns
            .iter()
            .position(|(known, _)| *known == name)
            .ok_or_else(|| Error::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist")))?;
        Ok(Bound { expr: Expr::Column(place), ty: self.columns[place].1 })
    }

    fn intercept(&self, tree: &ast::Expr, _: &mut Params) -> Option<Result<Bound>> {
        let refused = |code, message: String| Some(Err(Error::new(code, format!("{message} {}", self.what))));
        let plural = |code, message: &str| Some(Err(Error::new(code, format!("{message} {}s", self.what))));
        match tree {
            ast::Expr::Subquery(_) | ast::Expr::Exists { .. } | ast::Expr::InSubquery { .. } => {
                refused(SqlState::FEATURE_NOT_SUPPORTED, "cannot use subquery in".to_string())
            }
            ast::Expr::Function(call) if call.over.is_some() => {
                plural(SqlState::WINDOWING_ERROR, "window functions are not allowed in")
            }
            ast::Expr::Function(call) if expr::is_aggregate(&call.name.to_string().to_ascii_lowercase()) => {
                plural(SqlState::GROUPING_ERROR, "aggregate functions are not allowed in")
            }
            _ => None,
        }
    }
}

/// The text of a condition after its column `old` has got the name `new`; `None` where that cannot be said for certain.
pub(crate) fn renamed(text: &str, table: &Table, old: &str, new: &str) -> Option<String> {
    renamed_if(text, table, old, new, |tree, scope| bind(tree, scope).ok())
}

/// As [`renamed`], of a value.
pub(crate) fn renamed_value(text: &str, table: &Table, old: &str, new: &str) -> Option<String> {
    renamed_if(text, table, old, new, |tree, scope| {
        expr::bind(tree, scope, &mut Params::new(Vec::new())).ok().map(|bound| bound.expr)
    })
}

fn renamed_if(
    text: &str,
    table: &Table,
    old: &str,
    new: &str,
    bind: impl Fn(&ast::Expr, &TableScope<'_>) -> Option<Expr>,
) -> Option<String> {
    use crate::lexer::{self, Kind};
    let mut tokens = Vec::new();
    lexer::lex(text, &mut tokens).ok()?;
    let mut changed = String::new();
    let mut from = 0;
    for (number, token) in tokens.iter().enumerate() {
        let shown = token.text(text);
        let is_name = match token.kind {
            Kind::Word => shown.eq_ignore_ascii_case(old) && old.chars().all(|c| !c.is_ascii_uppercase()),
            Kind::Quoted => shown.get(1..shown.len() - 1).is_some_and(|inner| inner.replace("\"\"", "\"") == old),
            _ => false,
        };
        let called = tokens.get(number + 1).is_some_and(|next| next.text(text) == "(");
        if is_name && !called {
            changed.push_str(&text[from..token.start as usize]);
            changed.push_str(&homenode_engine::quote_name(new));
            from = token.end as usize;
        }
    }
    changed.push_str(&text[from..]);
    // It must still mean the same.
    let scope = TableScope::of(table);
    let before = bind(&crate::parse::expression(text).ok()?, &scope)?;
    let columns = scope.columns.iter().map(|(name, ty)| (if *name == old { new } else { *name }, *ty)).collect();
    let scope = TableScope { columns, ..TableScope::of(table) };
    let after = bind(&crate::parse::expression(&changed).ok()?, &scope)?;
    (format!("{before:?}") == format!("{after:?}")).then_some(changed)
}
