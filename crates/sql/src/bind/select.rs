//! What does one SELECT compute? Its lists: output columns, groups, orders, conditions.

use super::block::{Item, Lists, Tail, fit_output, plan_block, settle_calls};
use super::clauses::{direction, refuse_clauses, refuse_options, require_equality, require_order};
use super::from::{From, FromBinder, Source, conjuncts};
use super::grouping::{Groups, distinct_groups, grouping_value};
use super::names::{bare_column, column_name, is_empty_set, output_place};
use super::scope::{Clause, FromScope, GroupScope, Offered, Outer};
use super::series::SetScope;
use super::window::WindowScope;
use super::{Binder, at, folded, split_name};
use crate::expr::{self, Bound, Expr, Params, Scope};
use crate::plan::{GroupingSet, QueryPlan};
use homenode_engine::Privileges;
use homenode_types::{ColumnType, Error, Result, SqlState, Type, Value};
use sqlparser::ast::{self, Spanned};
use std::cell::{Cell, RefCell};

impl Binder<'_> {
    pub(super) fn select(
        &self,
        select: &ast::Select,
        tail: Tail<'_>,
        parent: Option<&dyn Scope>,
        outer: &Outer,
        params: &mut Params,
        keep_unknown: bool,
    ) -> Result<QueryPlan> {
        refuse_clauses(select)?;
        let mut from = FromBinder::new(self, parent, outer).bind(&select.from, params)?;
        if !tail.locks.is_empty() {
            // To lock a row takes the right to change it.
            let tables = from.relations.iter().filter_map(|relation| match &relation.source {
                Source::Table(table) => Some(table.oid),
                _ => None,
            });
            tables.for_each(|table| self.need(table, Privileges::UPDATE));
        }
        let mut conditions = match &select.selection {
            // A row that was locked is looked at again by its conditions: they stay whole.
            Some(tree) if !tail.locks.is_empty() => self.condition(tree, &from, parent, outer, params)?,
            Some(tree) => {
                let conditions = self.conditions(tree, &mut from, parent, outer, params)?;
                self.in_queries(conditions, &mut from)
            }
            None => Vec::new(),
        };
        let from = from;
        let scope = |clause| FromScope {
            binder: self,
            parent,
            outer,
            offered: &from.offered,
            qualified: &from.qualified,
            clause,
            saw_aggregate: Cell::new(false),
        };
        if select.projection.iter().any(is_empty_set) {
            conditions.push(Expr::Const(Value::Bool(false)));
        }
        let open = scope(Clause::Open);
        let Groups { trees: group_trees, sets } = Groups::of(select)?;
        let mut grouping = Vec::new();
        let mut block = Block { select, tail: &tail, grouped: false, groups: None };
        let windowed = |rows| WindowScope { rows, named: &select.named_window, found: RefCell::default() };
        let plain = if group_trees.is_empty() && sets.is_none() && select.having.is_none() {
            // Whether this is a query with aggregates shows when one is met; then it is bound again as one.
            let scope = windowed(&open);
            match block.items(&scope, &from, params, keep_unknown) {
                Ok(items) => Some((items, scope.found.into_inner())),
                Err(_) if open.saw_aggregate.get() => None,
                Err(error) => return Err(error),
            }
        } else {
            None
        };
        let (bound, windows) = match plain {
            Some(plain) => plain,
            None => {
                let groups = group_trees
                    .iter()
                    .map(|tree| {
                        let bound = block.group(tree, &scope(Clause::Closed("GROUP BY")), params)?;
                        require_equality(bound.ty).map_err(|error| at(error, tree.span()))?;
                        Ok(bound)
                    })
                    .collect::<Result<Vec<_>>>()?;
                let (groups, sets) = distinct_groups(groups, sets);
                // What depends on a key does so only where all of it is grouped by.
                let primary_keys = if sets.is_empty() { primary_keys(&from) } else { Vec::new() };
                let group_scope = GroupScope {
                    from: &open,
                    groups: RefCell::new(groups),
                    calls: RefCell::new(Vec::new()),
                    primary_keys,
                    grouping_calls: RefCell::default(),
                };
                let scope = windowed(&group_scope);
                block.grouped = true;
                let mut bound = block.items(&scope, &from, params, keep_unknown)?;
                let mut windows = scope.found.into_inner();
                let having = match &select.having {
                    Some(tree) => {
                        let bound = expr::bind_to(tree, ColumnType::new(Type::Bool), false, &group_scope, params)?;
                        conjuncts(bound.expr)
                    }
                    None => Vec::new(),
                };
                let groups = group_scope.groups.into_inner();
                let calls = group_scope.calls.into_inner();
                let asked = group_scope.grouping_calls.into_inner();
                // GROUPING without sets: there is one, and everything is in it.
                let sets = if sets.is_empty() && !asked.is_empty() { vec![vec![true; groups.len()]] } else { sets };
                let known = |included: &Vec<bool>| {
                    asked.iter().map(|(call, asked)| (*call, grouping_value(asked, included))).collect()
                };
                grouping = sets.iter().map(|set| GroupingSet { included: set.clone(), known: known(set) }).collect();
                bound.having = having;
                bound.settle_calls(groups.len());
                windows.exprs_mut().for_each(|expr| settle_calls(expr, groups.len()));
                block.groups = Some((groups, calls));
                (bound, windows)
            }
        };
        let groups = block.groups.take();
        plan_block(
            from,
            conditions,
            bound,
            groups,
            grouping,
            windows,
            tail,
            select.distinct.is_some(),
            self.methods.get(),
        )
    }
}

struct Block<'a> {
    select: &'a ast::Select,
    tail: &'a Tail<'a>,
    grouped: bool,
    groups: Option<(Vec<Bound>, Vec<expr::AggregateCall>)>,
}

impl Block<'_> {
    fn items(&self, scope: &dyn Scope, from: &From, params: &mut Params, keep_unknown: bool) -> Result<Lists> {
        let sets = SetScope { rows: scope, found: RefCell::default() };
        let scope = &sets;
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
        let mut lists = Lists { items, visible, order: Vec::new(), on: None, having: Vec::new(), sets: Vec::new() };
        if let Some(ast::Distinct::On(trees)) = &self.select.distinct {
            let places =
                trees.iter().map(|tree| place_of(tree, &mut lists, scope, params)).collect::<Result<Vec<_>>>()?;
            lists.on = Some(places);
        }
        for order in &self.tail.order {
            let place = place_of(&order.expr, &mut lists, scope, params)?;
            let (descending, nulls_first) = direction(order);
            require_order(lists.items[place].bound.ty).map_err(|error| at(error, order.expr.span()))?;
            lists.order.push((place, descending, nulls_first));
        }
        if matches!(self.select.distinct, Some(ast::Distinct::Distinct)) {
            lists.items.iter().try_for_each(|item| require_equality(item.bound.ty))?;
        }
        if lists.items.len() > visible && matches!(self.select.distinct, Some(ast::Distinct::Distinct)) {
            return Err(Error::new(
                SqlState::INVALID_COLUMN_REFERENCE,
                "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
            ));
        }
        lists.sets = sets.found.into_inner();
        Ok(lists)
    }

    fn expand(&self, columns: &[Offered], scope: &dyn Scope, items: &mut Vec<Item>) -> Result<()> {
        for column in columns {
            let bound = match &column.relation {
                // By their place: several columns may have one name.
                _ if !self.grouped => column.bound.clone(),
                // Through the scope, so that grouping applies to the columns of `*` as well.
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
    from: &From,
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

fn primary_keys(from: &From) -> Vec<(Vec<usize>, std::ops::Range<usize>)> {
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
