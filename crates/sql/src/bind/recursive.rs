//! What does WITH RECURSIVE mean? A query that does not refer to itself, and one that does, run over the rows that the last round gave.

use super::query::{cast_outputs, renamed};
use super::scope::Outer;
use super::{Binder, Cte, Meaning};
use crate::expr::{self, Expr, Params};
use crate::plan::{Plan, QueryPlan, RecursivePlan};
use crate::wire::Field;
use homenode_types::{ColumnType, Error, Result, SqlState, Type};
use sqlparser::ast;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// The rows of a recursive query's last round, as the query sees them.
#[derive(Clone)]
pub(super) struct Working {
    name: String,
    /// Stands for the columns; it is never run.
    columns: Arc<QueryPlan>,
    number: usize,
    /// How often it was used.
    uses: Rc<Cell<u32>>,
    /// Nesting of queries where it may be used.
    depth: u32,
}

/// PostgreSQL's 42P19 (parse_cte.c).
pub(super) fn misplaced(place: &str) -> Error {
    Error::new(SqlState::from_code("42P19"), format!("recursive reference must not appear {place}"))
}

fn named(mut error: Error, name: &str) -> Error {
    if error.message.contains("to query") {
        return error;
    }
    error.message =
        error.message.replacen("recursive reference", &format!("recursive reference to query \"{name}\""), 1);
    error
}

impl Binder<'_> {
    /// How many recursive references were met so far.
    pub(super) fn recursions(&self) -> u32 {
        let uses = |cte: &Cte| match &cte.meaning {
            Meaning::Working(working) => working.uses.get(),
            _ => 0,
        };
        self.ctes.borrow().iter().map(uses).sum()
    }

    /// A use of the last round's rows.
    pub(super) fn working(&self, working: &Working) -> Result<(Arc<QueryPlan>, Option<usize>)> {
        if self.depth.get() != working.depth {
            return Err(Error::unsupported(format!("a recursive reference to \"{}\" within a subquery", working.name)));
        }
        working.uses.set(working.uses.get() + 1);
        if working.uses.get() > 1 {
            return Err(named(misplaced("more than once"), &working.name));
        }
        Ok((working.columns.clone(), Some(working.number)))
    }

    /// What an entry of WITH RECURSIVE means.
    pub(super) fn maybe_recursive(
        &self,
        name: &str,
        table: &ast::Cte,
        later: Vec<String>,
        params: &mut Params,
    ) -> Result<Meaning> {
        let known = self.ctes.borrow().len();
        for later in later {
            let error = Error::unsupported(format!("\"{later}\" before its place in WITH RECURSIVE"));
            self.ctes.borrow_mut().push(Cte { name: later, meaning: Meaning::Refused(error) });
        }
        let bound = self.recursive(name, table, params);
        self.ctes.borrow_mut().truncate(known);
        bound
    }

    fn recursive(&self, name: &str, table: &ast::Cte, params: &mut Params) -> Result<Meaning> {
        let query = &table.query;
        let union = match &*query.body {
            ast::SetExpr::SetOperation { op: ast::SetOperator::Union, set_quantifier, left, right }
                if query.with.is_none() =>
            {
                Some((*set_quantifier == ast::SetQuantifier::All, left, right))
            }
            _ => None,
        };
        let hide = |error: Error| {
            self.ctes.borrow_mut().push(Cte { name: name.to_string(), meaning: Meaning::Refused(error) });
        };
        let Some((all, left, right)) = union else {
            let message = format!(
                "recursive query \"{name}\" does not have the form non-recursive-term UNION [ALL] recursive-term"
            );
            hide(Error::new(SqlState::from_code("42P19"), message));
            return Ok(Meaning::Query(self.plain_cte(table, params)?, Some(self.shared_number())));
        };
        hide(named(misplaced("within its non-recursive term"), name));
        let outer: Outer = RefCell::new(Vec::new());
        let (left, depth) =
            self.nested(|| self.nested(|| Ok((self.set_expr(left, None, &outer, params, true)?, self.depth.get()))))?;
        self.ctes.borrow_mut().pop();
        let known = |ty: ColumnType| if ty.ty == Type::Unknown { ColumnType::new(Type::Text) } else { ty };
        let types: Vec<ColumnType> = left.fields.iter().map(|field| known(field.ty)).collect();
        let left = cast_outputs(&Arc::new(left), &types, params)?;
        let fields = left.fields.iter().map(|field| Field::computed(field.name.clone(), field.ty)).collect();
        let shown = |input, width| {
            let output = (0..types.len()).map(Expr::Column).collect();
            QueryPlan { input, width, output, fields }
        };
        let mut columns = Arc::new(shown(Plan::Once, types.len()));
        if !table.alias.columns.is_empty() {
            columns = renamed(&columns, &table.alias.columns)?;
        }
        let working = Working {
            name: name.to_string(),
            columns: columns.clone(),
            number: self.shared_number(),
            uses: Rc::default(),
            depth,
        };
        self.ctes.borrow_mut().push(Cte { name: name.to_string(), meaning: Meaning::Working(working.clone()) });
        let bound = self.nested(|| self.nested(|| self.set_expr(right, None, &outer, params, true)));
        self.ctes.borrow_mut().pop();
        let right = bound.map_err(|error| if error.code.as_str() == "42P19" { named(error, name) } else { error })?;
        if working.uses.get() == 0 {
            return Ok(Meaning::Query(self.plain_cte(table, params)?, Some(self.shared_number())));
        }
        let clauses = [
            (query.order_by.is_some(), "ORDER BY"),
            (query.limit_clause.is_some() || query.fetch.is_some(), "OFFSET or LIMIT"),
            (!query.locks.is_empty(), "FOR UPDATE/SHARE"),
        ];
        if let Some((_, clause)) = clauses.iter().find(|(present, _)| *present) {
            let message = format!("{clause} in a recursive query is not implemented");
            return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        if aggregates(&right.input) {
            let message = "aggregate functions are not allowed in a recursive query's recursive term";
            return Err(Error::new(SqlState::from_code("42P19"), message));
        }
        let right = self.fitted(name, &columns, right, params)?;
        let number = working.number;
        let plan = Plan::Recursive(Arc::new(RecursivePlan { all, left, right, number }));
        let query = QueryPlan {
            input: plan,
            width: types.len(),
            output: columns.output.clone(),
            fields: columns.fields.clone(),
        };
        // Each use runs it for itself, and only as far as it is read: it may have no end.
        Ok(Meaning::Query(Arc::new(query), None))
    }

    /// The recursive term with the types of the other, which it must not widen.
    fn fitted(&self, name: &str, columns: &QueryPlan, right: QueryPlan, params: &mut Params) -> Result<Arc<QueryPlan>> {
        if columns.fields.len() != right.fields.len() {
            return Err(Error::new(SqlState::SYNTAX_ERROR, "each UNION query must have the same number of columns"));
        }
        let types: Vec<ColumnType> = columns.fields.iter().map(|field| field.ty).collect();
        for (place, (ty, field)) in types.iter().zip(&right.fields).enumerate() {
            let common = if ty.ty == field.ty.ty { *ty } else { expr::unify(&[*ty, field.ty], "UNION")? };
            if common.ty != ty.ty {
                let message = format!(
                    "recursive query \"{name}\" column {} has type {} in non-recursive term but type {} overall",
                    place + 1,
                    ty.ty.sql_name(),
                    common.ty.sql_name()
                );
                return Err(Error::new(SqlState::DATATYPE_MISMATCH, message)
                    .with_hint("Cast the output of the non-recursive term to the correct type."));
            }
        }
        cast_outputs(&Arc::new(right), &types, params)
    }
}

/// Whether a query block groups.
fn aggregates(plan: &Plan) -> bool {
    match plan {
        Plan::Aggregate(_) => true,
        Plan::Project(plan) => aggregates(&plan.input),
        Plan::Filter(plan) => aggregates(&plan.input),
        Plan::Sort(plan) => aggregates(&plan.input),
        Plan::Limit(plan) => aggregates(&plan.input),
        Plan::Distinct(plan) => aggregates(&plan.input),
        Plan::ProjectSet(plan) => aggregates(&plan.input),
        Plan::Window(plan) => aggregates(&plan.input),
        _ => false,
    }
}
