//! What does a query compute? SELECT, VALUES and set operations, to plans.

use super::clauses::{direction, group_list, order_list, refuse_clauses, refuse_options, sort_key};
use super::from::{FromBinder, Source, conjuncts};
use super::names::{bare_column, column_name};
use super::scope::{CALL_BASE, Clause, FromScope, GroupScope, Offered, Outer};
use super::{Binder, Cte, at, folded, split_name};
use crate::expr::{self, Bound, Expr, Params, Scope};
use crate::plan::{
    AggregatePlan, DistinctPlan, FilterPlan, LimitPlan, LockPlan, Plan, ProjectPlan, QueryPlan, SetKind, SetPlan,
    SortKey, SortPlan, ValuesPlan,
};
use crate::planner;
use crate::wire::Field;
use homenode_engine::LockWait;
use homenode_types::{ColumnType, Error, Result, SqlState, Type};
use sqlparser::ast;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// One output column while its query is bound.
struct Item {
    name: String,
    bound: Bound,
    origin: (u32, i16),
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
    pub fn cte(&self, name: &str) -> Option<(Arc<QueryPlan>, Option<usize>)> {
        self.ctes.borrow().iter().rev().find(|cte| cte.name == name).map(|cte| (cte.query.clone(), cte.shared))
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
            let result = self.with(query, params).and_then(|()| self.body(query, parent, outer, params, keep_unknown));
            self.ctes.borrow_mut().truncate(known);
            result
        })
    }

    fn with(&self, query: &ast::Query, params: &mut Params) -> Result<()> {
        let Some(with) = &query.with else { return Ok(()) };
        if with.recursive {
            return Err(Error::unsupported("WITH RECURSIVE"));
        }
        for table in &with.cte_tables {
            let (plan, _) = self.query(&table.query, None, params, false)?;
            let mut plan = plan;
            if !table.alias.columns.is_empty() {
                plan = renamed(&plan, &table.alias.columns)?;
            }
            let number = self.shared.get();
            self.shared.set(number + 1);
            self.ctes.borrow_mut().push(Cte { name: folded(&table.alias.name), query: plan, shared: Some(number) });
        }
        Ok(())
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

    fn set_expr(
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
                let planned = planner::plan_from(from, Vec::new(), &needed, &[], &[])?;
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

    fn select(
        &self,
        select: &ast::Select,
        tail: Tail<'_>,
        parent: Option<&dyn Scope>,
        outer: &Outer,
        params: &mut Params,
        keep_unknown: bool,
    ) -> Result<QueryPlan> {
        refuse_clauses(select)?;
        let from = FromBinder::new(self, parent, outer).bind(&select.from, params)?;
        let scope = |clause| FromScope {
            binder: self,
            parent,
            outer,
            offered: &from.offered,
            qualified: &from.qualified,
            clause,
            saw_aggregate: Cell::new(false),
        };
        let conditions = match &select.selection {
            Some(tree) => {
                let bound =
                    expr::bind_to(tree, ColumnType::new(Type::Bool), false, &scope(Clause::Closed("WHERE")), params)?;
                conjuncts(bound.expr)
            }
            None => Vec::new(),
        };
        let open = scope(Clause::Open);
        let group_trees = group_list(select)?;
        let mut block = Block { select, tail: &tail, groups: None };
        let plain = if group_trees.is_empty() && select.having.is_none() {
            // Whether this is a query with aggregates shows when one is met; then it is bound again as one.
            match block.items(&open, &from, params, keep_unknown) {
                Ok(items) => Some(items),
                Err(_) if open.saw_aggregate.get() => None,
                Err(error) => return Err(error),
            }
        } else {
            None
        };
        let bound = match plain {
            Some(bound) => bound,
            None => {
                let groups = group_trees
                    .iter()
                    .map(|tree| block.group(tree, &scope(Clause::Closed("GROUP BY")), params))
                    .collect::<Result<Vec<_>>>()?;
                let group_scope = GroupScope {
                    from: &open,
                    groups: RefCell::new(groups),
                    calls: RefCell::new(Vec::new()),
                    primary_keys: primary_keys(&from),
                };
                let mut bound = block.items(&group_scope, &from, params, keep_unknown)?;
                let having = match &select.having {
                    Some(tree) => {
                        let bound = expr::bind_to(tree, ColumnType::new(Type::Bool), false, &group_scope, params)?;
                        conjuncts(bound.expr)
                    }
                    None => Vec::new(),
                };
                let groups = group_scope.groups.into_inner();
                let calls = group_scope.calls.into_inner();
                bound.having = having;
                bound.settle_calls(groups.len());
                block.groups = Some((groups, calls));
                bound
            }
        };
        let groups = block.groups.take();
        plan_block(from, conditions, bound, groups, tail, select.distinct.is_some())
    }
}

/// ORDER BY, LIMIT, OFFSET and FOR UPDATE of a query.
#[derive(Default)]
struct Tail<'a> {
    order: Vec<&'a ast::OrderByExpr>,
    limit: Option<Expr>,
    offset: Option<Expr>,
    locks: &'a [ast::LockClause],
}

impl Tail<'_> {
    fn sort_and_limit(&self, mut input: Plan, keys: Vec<SortKey>) -> Plan {
        if !keys.is_empty() {
            let (limit, offset) = (self.limit.clone(), self.offset.clone());
            input = Plan::Sort(Arc::new(SortPlan { input, keys, limit, offset }));
        }
        if self.limit.is_some() || self.offset.is_some() {
            let (limit, offset) = (self.limit.clone(), self.offset.clone());
            input = Plan::Limit(Arc::new(LimitPlan { input, limit, offset }));
        }
        input
    }
}

/// The bound lists of a block.
struct Lists {
    /// The output columns, then hidden columns to sort by.
    items: Vec<Item>,
    /// How many of the items are output.
    visible: usize,
    /// Places among the items to sort by.
    order: Vec<(usize, bool, bool)>,
    /// DISTINCT ON: places among the items.
    on: Option<Vec<usize>>,
    having: Vec<Expr>,
}

impl Lists {
    /// Gives aggregates their registers, now that the number of groups is known.
    fn settle_calls(&mut self, groups: usize) {
        let mut settle = |register: usize| if register >= CALL_BASE { register - CALL_BASE + groups } else { register };
        for item in &mut self.items {
            item.bound.expr.map_columns(&mut settle);
        }
        for condition in &mut self.having {
            condition.map_columns(&mut settle);
        }
    }
}

struct Block<'a> {
    select: &'a ast::Select,
    tail: &'a Tail<'a>,
    groups: Option<(Vec<Bound>, Vec<expr::AggregateCall>)>,
}

impl Block<'_> {
    fn items(
        &self,
        scope: &dyn Scope,
        from: &super::from::From,
        params: &mut Params,
        keep_unknown: bool,
    ) -> Result<Lists> {
        let mut items = Vec::new();
        for item in &self.select.projection {
            match item {
                ast::SelectItem::UnnamedExpr(tree) => items.push(named_item(tree, None, scope, from, params)?),
                ast::SelectItem::ExprWithAlias { expr: tree, alias } => {
                    items.push(named_item(tree, Some(folded(alias)), scope, from, params)?);
                }
                ast::SelectItem::Wildcard(options) => {
                    refuse_options(options)?;
                    if from.relations.is_empty() {
                        return Err(Error::new(
                            SqlState::SYNTAX_ERROR,
                            "SELECT * with no tables specified is not valid",
                        ));
                    }
                    self.expand(&from.offered, scope, &mut items)?;
                }
                ast::SelectItem::QualifiedWildcard(ast::SelectItemQualifiedWildcardKind::ObjectName(name), options) => {
                    refuse_options(options)?;
                    let (_, ident) = split_name(name)?;
                    let alias = folded(ident);
                    let Some(relation) = from.relations.iter().find(|relation| relation.alias == alias) else {
                        let message = format!("missing FROM-clause entry for table \"{alias}\"");
                        return Err(at(Error::new(SqlState::UNDEFINED_TABLE, message), ident.span));
                    };
                    self.expand(&relation.columns, scope, &mut items)?;
                }
                ast::SelectItem::QualifiedWildcard(..) => {
                    return Err(Error::unsupported("an expanded composite value"));
                }
            }
        }
        if !keep_unknown {
            for item in &mut items {
                item.bound = fit_output(item.bound.clone(), params)?;
            }
        }
        let visible = items.len();
        let mut lists = Lists { items, visible, order: Vec::new(), on: None, having: Vec::new() };
        if let Some(ast::Distinct::On(trees)) = &self.select.distinct {
            let places =
                trees.iter().map(|tree| place_of(tree, &mut lists, scope, params)).collect::<Result<Vec<_>>>()?;
            lists.on = Some(places);
        }
        for order in &self.tail.order {
            let place = place_of(&order.expr, &mut lists, scope, params)?;
            let (descending, nulls_first) = direction(order);
            lists.order.push((place, descending, nulls_first));
        }
        if lists.items.len() > visible && matches!(self.select.distinct, Some(ast::Distinct::Distinct)) {
            return Err(Error::new(
                SqlState::INVALID_COLUMN_REFERENCE,
                "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
            ));
        }
        Ok(lists)
    }

    fn expand(&self, columns: &[Offered], scope: &dyn Scope, items: &mut Vec<Item>) -> Result<()> {
        for column in columns {
            // Through the scope, so that grouping applies to the columns of `*` as well.
            let bound = match &column.relation {
                Some(relation) => scope.column(Some(relation), &column.name)?,
                None => scope.column(None, &column.name)?,
            };
            items.push(Item { name: column.name.clone(), bound, origin: column.origin });
        }
        Ok(())
    }

    /// One GROUP BY expression: a position, an output name that is no column, or an expression.
    fn group(&self, tree: &ast::Expr, scope: &FromScope<'_>, params: &mut Params) -> Result<Bound> {
        let item_tree = |place: usize| match self.select.projection.get(place) {
            Some(ast::SelectItem::UnnamedExpr(tree) | ast::SelectItem::ExprWithAlias { expr: tree, .. }) => Some(tree),
            _ => None,
        };
        if let ast::Expr::Value(value) = tree
            && let ast::Value::Number(digits, _) = &value.value
        {
            let place = digits.parse::<usize>().ok().and_then(|number| number.checked_sub(1)).and_then(item_tree);
            let tree = place.ok_or_else(|| {
                Error::new(
                    SqlState::INVALID_COLUMN_REFERENCE,
                    format!("GROUP BY position {digits} is not in select list"),
                )
            })?;
            return expr::bind(tree, scope, params);
        }
        if let ast::Expr::Identifier(ident) = tree
            && !scope.offered.iter().any(|column| column.name == folded(ident))
        {
            let named = self.select.projection.iter().find_map(|item| match item {
                ast::SelectItem::ExprWithAlias { expr, alias } if folded(alias) == folded(ident) => Some(expr),
                _ => None,
            });
            if let Some(tree) = named {
                return expr::bind(tree, scope, params);
            }
        }
        expr::bind(tree, scope, params)
    }
}

fn named_item(
    tree: &ast::Expr,
    alias: Option<String>,
    scope: &dyn Scope,
    from: &super::from::From,
    params: &mut Params,
) -> Result<Item> {
    let bound = expr::bind(tree, scope, params)?;
    let origin = match bare_column(tree) {
        Some((qualifier, name)) => {
            let columns = if qualifier.is_some() { &from.qualified } else { &from.offered };
            let found = columns
                .iter()
                .find(|column| column.name == name && (qualifier.is_none() || column.relation == qualifier));
            found.map_or((0, 0), |column| column.origin)
        }
        None => (0, 0),
    };
    Ok(Item { name: alias.unwrap_or_else(|| column_name(tree)), bound, origin })
}

/// Where ORDER BY or DISTINCT ON finds its value: an output column by name, position or expression, else a hidden column.
fn place_of(tree: &ast::Expr, lists: &mut Lists, scope: &dyn Scope, params: &mut Params) -> Result<usize> {
    let names = lists.items[..lists.visible].iter().map(|item| item.name.as_str());
    if let Some(place) = output_place(tree, names, lists.visible)? {
        return Ok(place);
    }
    let bound = expr::bind(tree, scope, params)?;
    let bound = fit_output(bound, params)?;
    let wanted = format!("{:?}", bound.expr);
    if let Some(place) = lists.items.iter().position(|item| format!("{:?}", item.bound.expr) == wanted) {
        return Ok(place);
    }
    lists.items.push(Item { name: String::new(), bound, origin: (0, 0) });
    Ok(lists.items.len() - 1)
}

fn output_place<'n>(tree: &ast::Expr, names: impl Iterator<Item = &'n str>, count: usize) -> Result<Option<usize>> {
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

fn primary_keys(from: &super::from::From) -> Vec<(Vec<usize>, std::ops::Range<usize>)> {
    from.relations
        .iter()
        .filter_map(|relation| match &relation.source {
            Source::Table(table) => {
                let key = table.primary_key.as_ref()?;
                Some((key.columns.iter().map(|column| relation.base + column).collect(), relation.registers()))
            }
            _ => None,
        })
        .collect()
}

fn star(offered: &[Offered]) -> Vec<Item> {
    offered
        .iter()
        .map(|column| Item { name: column.name.clone(), bound: column.bound.clone(), origin: column.origin })
        .collect()
}

/// Marks the registers that expressions use.
pub(super) fn needed_registers<'e>(exprs: impl Iterator<Item = &'e Expr>, width: usize) -> Vec<bool> {
    let mut needed = vec![false; width];
    for expr in exprs {
        mark(expr, &mut needed);
    }
    needed
}

pub(super) fn mark(expr: &Expr, needed: &mut [bool]) {
    expr.visit_columns(&mut |register| {
        if let Some(flag) = needed.get_mut(register) {
            *flag = true;
        }
    });
}

/// The relations that FOR UPDATE locks.
fn locked_relations(locks: &[ast::LockClause], from: &super::from::From) -> Result<Option<(Vec<usize>, LockWait)>> {
    let Some(first) = locks.first() else { return Ok(None) };
    if locks.len() > 1 {
        return Err(Error::unsupported("more than one FOR UPDATE clause"));
    }
    let wait = match first.nonblock {
        None => LockWait::Block,
        Some(ast::NonBlock::Nowait) => LockWait::Fail,
        Some(ast::NonBlock::SkipLocked) => LockWait::Skip,
    };
    let only = first.of.as_ref().map(|name| split_name(name).map(|(_, ident)| folded(ident))).transpose()?;
    let mut relations = Vec::new();
    for (number, relation) in from.relations.iter().enumerate() {
        let wanted = only.as_ref().is_none_or(|only| *only == relation.alias);
        match relation.source {
            Source::Table(_) if wanted => relations.push(number),
            Source::Derived { .. } if wanted => return Err(Error::unsupported("FOR UPDATE of a subquery")),
            _ => {}
        }
    }
    if let Some(only) = only.filter(|_| relations.is_empty()) {
        let message = format!("relation \"{only}\" in FOR UPDATE clause not found in FROM clause");
        return Err(Error::new(SqlState::UNDEFINED_TABLE, message));
    }
    Ok(Some((relations, wait)))
}

fn plan_block(
    mut from: super::from::From,
    conditions: Vec<Expr>,
    lists: Lists,
    groups: Option<(Vec<Bound>, Vec<expr::AggregateCall>)>,
    tail: Tail<'_>,
    distinct: bool,
) -> Result<QueryPlan> {
    let locked = locked_relations(tail.locks, &from)?;
    if locked.is_some() && (groups.is_some() || distinct) {
        let what = if groups.is_some() { "GROUP BY clause or aggregate functions" } else { "DISTINCT clause" };
        return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, format!("FOR UPDATE is not allowed with {what}")));
    }
    let mut needed = vec![false; from.width];
    match &groups {
        Some((groups, calls)) => {
            for group in groups {
                mark(&group.expr, &mut needed);
            }
            for call in calls {
                call.args.iter().chain(&call.filter).for_each(|argument| mark(argument, &mut needed));
            }
        }
        None => lists.items.iter().for_each(|item| mark(&item.bound.expr, &mut needed)),
    }
    let mut lock_registers = Vec::new();
    if let Some((relations, _)) = &locked {
        for relation in relations {
            lock_registers.push((*relation, from.width));
            from.width += 1;
        }
    }
    let width = from.width;
    // Rows that come in the wanted order need no sort.
    let wanted_order: Vec<(Expr, bool, bool)> = match groups {
        None if !distinct => lists
            .order
            .iter()
            .map(|(place, descending, nulls_first)| (lists.items[*place].bound.expr.clone(), *descending, *nulls_first))
            .collect(),
        _ => Vec::new(),
    };
    let lock_conditions = conditions.clone();
    let planned = planner::plan_from(from, conditions, &needed, &lock_registers, &wanted_order)?;
    let mut input = planned.plan;
    if let Some((_, wait)) = locked {
        let scans = planned.locked;
        input = Plan::LockRows(Arc::new(LockPlan { input, scans, conditions: lock_conditions, wait }));
    }
    let mut width = width;
    if let Some((groups, calls)) = groups {
        let parallel = planner::parallel_aggregate(&input, &groups, &calls);
        let new_width = groups.len() + calls.len();
        let groups = groups.into_iter().map(|group| group.expr).collect();
        input = Plan::Aggregate(Arc::new(AggregatePlan { input, width, groups, calls, parallel }));
        width = new_width;
        if !lists.having.is_empty() {
            input = Plan::Filter(Arc::new(FilterPlan { input, conditions: lists.having }));
        }
    }
    let sorted = planned.ordered && !wanted_order.is_empty();
    let sort = !lists.order.is_empty() && !sorted;
    if !sort && !distinct {
        let input = tail.sort_and_limit(input, Vec::new());
        let mut items = lists.items;
        items.truncate(lists.visible);
        return Ok(output(input, width, items));
    }
    let columns: Vec<Expr> = lists.items.iter().map(|item| item.bound.expr.clone()).collect();
    let total = columns.len();
    input = Plan::Project(Arc::new(ProjectPlan { input, width, columns }));
    let key = |(place, descending, nulls_first): &(usize, bool, bool)| SortKey {
        value: Expr::Column(*place),
        ty: lists.items[*place].bound.ty,
        descending: *descending,
        nulls_first: *nulls_first,
    };
    let mut keys: Vec<SortKey> = lists.order.iter().map(key).collect();
    if let Some(on) = &lists.on {
        // The rows of a group must follow each other: sort by the leading ORDER BY, then by what it leaves out.
        for place in on {
            if !lists.order.iter().any(|(known, ..)| known == place) {
                if !lists.order.is_empty() && lists.order.len() < on.len() {
                    return Err(Error::new(
                        SqlState::INVALID_COLUMN_REFERENCE,
                        "SELECT DISTINCT ON expressions must match initial ORDER BY expressions",
                    ));
                }
                keys.push(key(&(*place, false, false)));
            }
        }
        let leading: Vec<usize> = lists.order.iter().take(on.len()).map(|(place, ..)| *place).collect();
        if !leading.iter().all(|place| on.contains(place)) {
            return Err(Error::new(
                SqlState::INVALID_COLUMN_REFERENCE,
                "SELECT DISTINCT ON expressions must match initial ORDER BY expressions",
            ));
        }
        input = Plan::Sort(Arc::new(SortPlan { input, keys, limit: None, offset: None }));
        let keys = on.iter().map(|place| trimmed(*place, lists.items[*place].bound.ty)).collect();
        input = Plan::Distinct(Arc::new(DistinctPlan { input, keys, sorted: true }));
        input = tail.sort_and_limit(input, Vec::new());
    } else {
        if distinct {
            let keys = (0..total).map(|place| trimmed(place, lists.items[place].bound.ty)).collect();
            input = Plan::Distinct(Arc::new(DistinctPlan { input, keys, sorted: false }));
        }
        input = tail.sort_and_limit(input, keys);
    }
    let visible = lists.visible;
    let items = lists
        .items
        .into_iter()
        .take(visible)
        .enumerate()
        .map(|(place, item)| Item { bound: Bound { expr: Expr::Column(place), ty: item.bound.ty }, ..item });
    Ok(output(input, total, items.collect()))
}

/// A column as a key of equality.
fn trimmed(place: usize, ty: ColumnType) -> Expr {
    let column = Expr::Column(place);
    if ty.ty != Type::Bpchar {
        return column;
    }
    // A cast of character(n) to text takes its trailing blanks off.
    Expr::Cast { expr: Box::new(column), from: Type::Bpchar, to: ColumnType::new(Type::Text), explicit: false }
}

fn output(input: Plan, width: usize, items: Vec<Item>) -> QueryPlan {
    let mut fields = Vec::with_capacity(items.len());
    let mut columns = Vec::with_capacity(items.len());
    for item in items {
        let (table, attribute) = item.origin;
        fields.push(Field { name: item.name, ty: item.bound.ty, table, attribute });
        columns.push(item.bound.expr);
    }
    QueryPlan { input, width, output: columns, fields }
}

/// Brings a value to a common type, if it is not of it.
fn fit(bound: Bound, ty: ColumnType, params: &mut Params) -> Result<Bound> {
    if bound.ty.ty == ty.ty { Ok(Bound { ty, ..bound }) } else { expr::cast_bound(bound, ty, params) }
}

/// Output values of unknown type are text.
fn fit_output(bound: Bound, params: &mut Params) -> Result<Bound> {
    if bound.ty.ty == Type::Unknown { expr::cast_bound(bound, ColumnType::new(Type::Text), params) } else { Ok(bound) }
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

fn renamed(plan: &Arc<QueryPlan>, names: &[ast::TableAliasColumnDef]) -> Result<Arc<QueryPlan>> {
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
