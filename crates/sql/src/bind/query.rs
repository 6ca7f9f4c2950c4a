//! What does a whole query give? WITH, set operations, VALUES, ORDER BY and LIMIT around SELECT blocks.

use super::block::{Item, Tail, fit, needed_registers, output};
use super::clauses::{order_list, sort_key};
use super::from::FromBinder;
use super::names::output_place;
use super::scope::{Clause, FromScope, Offered, Outer};
use super::{Binder, Cte, Meaning, folded};
use crate::expr::{self, Bound, Expr, Params, Scope};
use crate::plan::{Plan, ProjectPlan, QueryPlan, SetKind, SetPlan, ValuesPlan};
use crate::planner;
use crate::wire::Field;
use homenode_types::{ColumnType, Error, Result, SqlState, Type};
use sqlparser::ast;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Names of columns of the query around.
pub(super) type OuterNames = Vec<(Option<String>, String)>;

/// Tells scopes apart.
fn address(scope: &dyn Scope) -> usize {
    std::ptr::from_ref(scope).addr()
}

impl Binder<'_> {
    /// Binds a query; returns its plan and the columns it uses of the query around it.
    pub fn query(
        &self,
        query: &ast::Query,
        parent: Option<&dyn Scope>,
        params: &mut Params,
        keep_unknown: bool,
    ) -> Result<(Arc<QueryPlan>, Vec<Bound>)> {
        let outer: Outer = RefCell::new(Vec::new());
        let plan = self.query_in(query, parent, &outer, params, keep_unknown)?;
        Ok((Arc::new(plan), outer.into_inner().into_iter().map(|(_, bound)| bound).collect()))
    }

    /// A common table expression in scope.
    pub fn cte(&self, name: &str) -> Result<Option<(Arc<QueryPlan>, Option<usize>)>> {
        let found = self.ctes.borrow().iter().rev().find(|cte| cte.name == name).map(|cte| cte.meaning.clone());
        match found {
            None => Ok(None),
            Some(Meaning::Query(query, shared)) => Ok(Some((query, shared))),
            Some(Meaning::Correlated { .. }) => Err(Error::unsupported("this use of a WITH query with outer columns")),
            Some(Meaning::Refused(error)) => Err(error),
            Some(Meaning::Working(working)) => self.working(&working).map(Some),
        }
    }

    /// A common table expression that uses columns of the query around, and their names there. `0A000` within a subquery of the
    /// query that has the WITH: there the names may mean others.
    pub(super) fn correlated_cte(
        &self,
        name: &str,
        parent: Option<&dyn Scope>,
    ) -> Result<Option<(Arc<QueryPlan>, OuterNames)>> {
        let ctes = self.ctes.borrow();
        match ctes.iter().rev().find(|cte| cte.name == name).map(|cte| &cte.meaning) {
            Some(Meaning::Correlated { query, outer, around }) if *around == parent.map(address) => {
                Ok(Some((query.clone(), outer.clone())))
            }
            Some(Meaning::Correlated { .. }) => Err(Error::unsupported(format!(
                "using WITH query \"{name}\", which uses columns of the query around, in a subquery"
            ))),
            _ => Ok(None),
        }
    }

    fn query_in(
        &self,
        query: &ast::Query,
        parent: Option<&dyn Scope>,
        outer: &Outer,
        params: &mut Params,
        keep_unknown: bool,
    ) -> Result<QueryPlan> {
        self.nested(|| {
            let known = self.ctes.borrow().len();
            let result =
                self.with(query, parent, params).and_then(|()| self.body(query, parent, outer, params, keep_unknown));
            self.ctes.borrow_mut().truncate(known);
            result
        })
    }

    fn with(&self, query: &ast::Query, parent: Option<&dyn Scope>, params: &mut Params) -> Result<()> {
        let Some(with) = &query.with else { return Ok(()) };
        for (place, table) in with.cte_tables.iter().enumerate() {
            let name = folded(&table.alias.name);
            let meaning = if with.recursive {
                let later = with.cte_tables[place + 1..].iter().map(|table| folded(&table.alias.name)).collect();
                self.maybe_recursive(&name, table, later, params)?
            } else {
                self.cte_with_outer(table, parent, params)?
            };
            self.ctes.borrow_mut().push(Cte { name, meaning });
        }
        Ok(())
    }

    /// A common table expression that may use columns of the query around its WITH.
    fn cte_with_outer(&self, table: &ast::Cte, parent: Option<&dyn Scope>, params: &mut Params) -> Result<Meaning> {
        let outer: Outer = RefCell::new(Vec::new());
        let plan = Arc::new(self.query_in(&table.query, parent, &outer, params, false)?);
        let query = if table.alias.columns.is_empty() { plan } else { renamed(&plan, &table.alias.columns)? };
        let outer: Vec<_> = outer.into_inner().into_iter().map(|(called, _)| called).collect();
        if outer.is_empty() {
            return Ok(Meaning::Query(query, Some(self.shared_number())));
        }
        Ok(Meaning::Correlated { query, outer, around: parent.map(address) })
    }

    /// The plan of a common table expression that does not refer to itself.
    pub(super) fn plain_cte(&self, table: &ast::Cte, params: &mut Params) -> Result<Arc<QueryPlan>> {
        let (plan, _) = self.query(&table.query, None, params, false)?;
        if table.alias.columns.is_empty() { Ok(plan) } else { renamed(&plan, &table.alias.columns) }
    }

    /// A number for rows that are kept for the statement.
    pub(super) fn shared_number(&self) -> usize {
        let number = self.shared.get();
        self.shared.set(number + 1);
        number
    }

    fn body(
        &self,
        query: &ast::Query,
        parent: Option<&dyn Scope>,
        outer: &Outer,
        params: &mut Params,
        keep_unknown: bool,
    ) -> Result<QueryPlan> {
        if query.for_clause.is_some()
            || query.settings.is_some()
            || query.format_clause.is_some()
            || !query.pipe_operators.is_empty()
        {
            return Err(Error::unsupported("this clause of a query"));
        }
        let order = order_list(query)?;
        let (limit, offset) = self.limits(query, params)?;
        let tail = Tail { order, limit, offset, locks: &query.locks };
        match &*query.body {
            ast::SetExpr::Select(select) => self.select(select, tail, parent, outer, params, keep_unknown),
            other => {
                if !query.locks.is_empty() {
                    return Err(Error::new(
                        SqlState::FEATURE_NOT_SUPPORTED,
                        "FOR UPDATE is not allowed with this query",
                    ));
                }
                let plan = self.set_expr(other, parent, outer, params, keep_unknown)?;
                self.finish_set(plan, tail)
            }
        }
    }

    pub(super) fn set_expr(
        &self,
        body: &ast::SetExpr,
        parent: Option<&dyn Scope>,
        outer: &Outer,
        params: &mut Params,
        keep_unknown: bool,
    ) -> Result<QueryPlan> {
        match body {
            ast::SetExpr::Select(select) => self.select(select, Tail::default(), parent, outer, params, keep_unknown),
            ast::SetExpr::Query(query) => self.query_in(query, parent, outer, params, keep_unknown),
            ast::SetExpr::Values(values) => self.values(values, parent, outer, params, keep_unknown),
            ast::SetExpr::SetOperation { op, set_quantifier, left, right } => self.nested(|| {
                let kind = match op {
                    ast::SetOperator::Union => SetKind::Union,
                    ast::SetOperator::Intersect => SetKind::Intersect,
                    ast::SetOperator::Except | ast::SetOperator::Minus => SetKind::Except,
                };
                let all = match set_quantifier {
                    ast::SetQuantifier::All => true,
                    ast::SetQuantifier::None | ast::SetQuantifier::Distinct => false,
                    _ => return Err(Error::unsupported("BY NAME")),
                };
                let left = self.set_expr(left, parent, outer, params, true)?;
                let right = self.set_expr(right, parent, outer, params, true)?;
                set_operation(kind, all, left, right, params)
            }),
            ast::SetExpr::Table(table) => {
                let mut parts = Vec::new();
                parts.extend(
                    table.schema_name.iter().map(|name| ast::ObjectNamePart::Identifier(ast::Ident::new(name))),
                );
                parts
                    .extend(table.table_name.iter().map(|name| ast::ObjectNamePart::Identifier(ast::Ident::new(name))));
                let mut from = FromBinder::new(self, parent, outer);
                let factor = ast::TableFactor::Table {
                    name: ast::ObjectName(parts),
                    alias: None,
                    args: None,
                    with_hints: Vec::new(),
                    version: None,
                    with_ordinality: false,
                    partitions: Vec::new(),
                    json_path: None,
                    sample: None,
                    index_hints: Vec::new(),
                };
                from.from.width = 0;
                let from = from.bind(&[ast::TableWithJoins { relation: factor, joins: Vec::new() }], params)?;
                let items = star(&from.offered);
                let needed = needed_registers(items.iter().map(|item| &item.bound.expr), from.width);
                let width = from.width;
                let planned = planner::plan_from(from, Vec::new(), &needed, &[], &[], &[], self.methods.get())?;
                Ok(output(planned.plan, width, items))
            }
            _ => Err(Error::unsupported("a data-modifying statement as a query")),
        }
    }

    fn limits(&self, query: &ast::Query, params: &mut Params) -> Result<(Option<Expr>, Option<Expr>)> {
        let (mut limit, mut offset) = (None, None);
        match &query.limit_clause {
            None => {}
            Some(ast::LimitClause::LimitOffset { limit: given, offset: skip, limit_by }) => {
                if !limit_by.is_empty() {
                    return Err(Error::unsupported("LIMIT BY"));
                }
                limit = given.as_ref();
                offset = skip.as_ref().map(|offset| &offset.value);
            }
            Some(ast::LimitClause::OffsetCommaLimit { .. }) => {
                return Err(Error::new(SqlState::SYNTAX_ERROR, "LIMIT #,# syntax is not supported")
                    .with_hint("Use separate LIMIT and OFFSET clauses."));
            }
        }
        let one = ast::Expr::Value(ast::Value::Number("1".into(), false).into());
        if let Some(fetch) = &query.fetch {
            if fetch.with_ties || fetch.percent {
                return Err(Error::unsupported("FETCH FIRST ... WITH TIES"));
            }
            limit = Some(fetch.quantity.as_ref().unwrap_or(&one));
        }
        let nothing = Vec::new();
        let outer: Outer = RefCell::new(Vec::new());
        let scope = FromScope {
            binder: self,
            parent: None,
            outer: &outer,
            offered: &nothing,
            qualified: &nothing,
            clause: Clause::Closed("LIMIT"),
            saw_aggregate: Cell::new(false),
        };
        let mut count = |tree: Option<&ast::Expr>| -> Result<Option<Expr>> {
            let Some(tree) = tree else { return Ok(None) };
            Ok(Some(expr::bind_to(tree, ColumnType::new(Type::Int8), false, &scope, params)?.expr))
        };
        Ok((count(limit)?, count(offset)?))
    }

    fn values(
        &self,
        values: &ast::Values,
        parent: Option<&dyn Scope>,
        outer: &Outer,
        params: &mut Params,
        keep_unknown: bool,
    ) -> Result<QueryPlan> {
        let nothing = Vec::new();
        let scope = FromScope {
            binder: self,
            parent,
            outer,
            offered: &nothing,
            qualified: &nothing,
            clause: Clause::Closed("VALUES"),
            saw_aggregate: Cell::new(false),
        };
        let width = values.rows.first().map_or(0, Vec::len);
        let mut rows = Vec::with_capacity(values.rows.len());
        for row in &values.rows {
            if row.len() != width {
                return Err(Error::new(SqlState::SYNTAX_ERROR, "VALUES lists must all be the same length"));
            }
            rows.push(row.iter().map(|tree| expr::bind(tree, &scope, params)).collect::<Result<Vec<_>>>()?);
        }
        let mut types = Vec::with_capacity(width);
        for column in 0..width {
            let all: Vec<ColumnType> = rows.iter().map(|row| row[column].ty).collect();
            let common = if all.iter().all(|ty| *ty == all[0]) { all[0] } else { expr::unify(&all, "VALUES")? };
            types.push(if common.ty == Type::Unknown && !keep_unknown { ColumnType::new(Type::Text) } else { common });
        }
        let mut plain = Vec::with_capacity(rows.len());
        for row in rows {
            let row = row.into_iter().zip(&types).map(|(bound, ty)| fit(bound, *ty, params).map(|bound| bound.expr));
            plain.push(row.collect::<Result<Vec<_>>>()?);
        }
        let items = types.iter().enumerate().map(|(column, ty)| Item {
            name: format!("column{}", column + 1),
            bound: Bound { expr: Expr::Column(column), ty: *ty },
            origin: (0, 0),
        });
        Ok(output(Plan::Values(Arc::new(ValuesPlan { base: 0, rows: plain })), width, items.collect()))
    }

    /// ORDER BY and LIMIT over a set operation or VALUES: output columns only.
    fn finish_set(&self, plan: QueryPlan, tail: Tail<'_>) -> Result<QueryPlan> {
        let mut keys = Vec::new();
        for order in &tail.order {
            let place = match output_place(
                &order.expr,
                plan.fields.iter().map(|field| field.name.as_str()),
                plan.fields.len(),
            )? {
                Some(place) => place,
                None => {
                    return Err(Error::new(
                        SqlState::FEATURE_NOT_SUPPORTED,
                        "invalid UNION/INTERSECT/EXCEPT ORDER BY clause",
                    )
                    .with_detail("Only result column names can be used, not expressions or functions."));
                }
            };
            keys.push(sort_key(Expr::Column(place), plan.fields[place].ty, order)?);
        }
        if keys.is_empty() && tail.limit.is_none() && tail.offset.is_none() {
            return Ok(plan);
        }
        let width = plan.fields.len();
        let fields = plan.fields;
        let mut input =
            Plan::Project(Arc::new(ProjectPlan { input: plan.input, width: plan.width, columns: plan.output }));
        input = tail.sort_and_limit(input, keys);
        let output = (0..width).map(Expr::Column).collect();
        Ok(QueryPlan { input, width, output, fields })
    }
}

fn star(offered: &[Offered]) -> Vec<Item> {
    offered
        .iter()
        .map(|column| Item { name: column.name.clone(), bound: column.bound.clone(), origin: column.origin })
        .collect()
}

/// The same query with its output brought to other types.
pub(super) fn cast_outputs(plan: &Arc<QueryPlan>, types: &[ColumnType], params: &mut Params) -> Result<Arc<QueryPlan>> {
    if plan.fields.iter().zip(types).all(|(field, ty)| field.ty.ty == ty.ty) {
        return Ok(plan.clone());
    }
    let mut fields = Vec::with_capacity(plan.fields.len());
    let mut output = Vec::with_capacity(plan.output.len());
    for ((field, column), ty) in plan.fields.iter().zip(&plan.output).zip(types) {
        let bound = fit(Bound { expr: column.clone(), ty: field.ty }, *ty, params)?;
        fields.push(Field { ty: bound.ty, ..field.clone() });
        output.push(bound.expr);
    }
    Ok(Arc::new(QueryPlan { input: plan.input.clone(), width: plan.width, output, fields }))
}

pub(super) fn renamed(plan: &Arc<QueryPlan>, names: &[ast::TableAliasColumnDef]) -> Result<Arc<QueryPlan>> {
    if names.len() > plan.fields.len() {
        return Err(Error::new(SqlState::INVALID_COLUMN_REFERENCE, "WITH query has fewer columns than column names"));
    }
    let mut fields = plan.fields.clone();
    for (field, name) in fields.iter_mut().zip(names) {
        field.name = folded(&name.name);
    }
    Ok(Arc::new(QueryPlan { input: plan.input.clone(), width: plan.width, output: plan.output.clone(), fields }))
}

fn set_operation(
    kind: SetKind,
    all: bool,
    left: QueryPlan,
    right: QueryPlan,
    params: &mut Params,
) -> Result<QueryPlan> {
    let name = match kind {
        SetKind::Union => "UNION",
        SetKind::Intersect => "INTERSECT",
        SetKind::Except => "EXCEPT",
    };
    if left.fields.len() != right.fields.len() {
        return Err(Error::new(
            SqlState::SYNTAX_ERROR,
            format!("each {name} query must have the same number of columns"),
        ));
    }
    let mut types = Vec::with_capacity(left.fields.len());
    for (a, b) in left.fields.iter().zip(&right.fields) {
        let common = if a.ty == b.ty { a.ty } else { expr::unify(&[a.ty, b.ty], name)? };
        types.push(if common.ty == Type::Unknown { ColumnType::new(Type::Text) } else { common });
    }
    let left = cast_outputs(&Arc::new(left), &types, params)?;
    let right = cast_outputs(&Arc::new(right), &types, params)?;
    let fields: Vec<Field> =
        left.fields.iter().zip(&types).map(|(field, ty)| Field::computed(field.name.clone(), *ty)).collect();
    let width = fields.len();
    let output = (0..width).map(Expr::Column).collect();
    let input = Plan::SetOperation(Arc::new(SetPlan { kind, all, left, right }));
    Ok(QueryPlan { input, width, output, fields })
}
