//! How is one SELECT run? From its bound lists to a plan: scan and join, lock, group, make distinct, sort, limit.

use super::from::{From, Source};
use super::scope::CALL_BASE;
use super::series::SET_BASE;
use super::window::{WINDOW_BASE, Windows};
use super::{folded, split_name};
use crate::expr::{self, AggregateCall, Bound, Expr, Params};
use crate::plan::{
    AggregatePlan, DistinctPlan, FilterPlan, GroupingSet, LimitPlan, LockPlan, Plan, ProjectPlan, ProjectSetPlan,
    QueryPlan, SeriesKind, SortKey, SortPlan, WindowPlan,
};
use crate::planner;
use crate::wire::Field;
use homenode_engine::LockWait;
use homenode_types::{ColumnType, Error, Result, SqlState, Type};
use sqlparser::ast;
use std::sync::Arc;

/// One output column while its query is bound.
pub(super) struct Item {
    pub name: String,
    pub bound: Bound,
    pub origin: (u32, i16),
}

/// ORDER BY, LIMIT, OFFSET and FOR UPDATE of a query.
#[derive(Default)]
pub(super) struct Tail<'a> {
    pub order: Vec<&'a ast::OrderByExpr>,
    pub limit: Option<Expr>,
    pub offset: Option<Expr>,
    pub locks: &'a [ast::LockClause],
}

impl Tail<'_> {
    pub fn sort_and_limit(&self, mut input: Plan, keys: Vec<SortKey>) -> Plan {
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
pub(super) struct Lists {
    /// The output columns, then hidden columns to sort by.
    pub items: Vec<Item>,
    /// How many of the items are output.
    pub visible: usize,
    /// Places among the items to sort by.
    pub order: Vec<(usize, bool, bool)>,
    /// DISTINCT ON: places among the items.
    pub on: Option<Vec<usize>>,
    pub having: Vec<Expr>,
    /// Set-returning functions in the items.
    pub sets: Vec<SeriesKind>,
}

impl Lists {
    /// Gives aggregates their registers, now that the number of groups is known.
    pub fn settle_calls(&mut self, groups: usize) {
        let items = self.items.iter_mut().map(|item| &mut item.bound.expr);
        let sets = self.sets.iter_mut().flat_map(SeriesKind::exprs_mut);
        items.chain(&mut self.having).chain(sets).for_each(|expr| settle_calls(expr, groups));
    }
}

/// Gives an expression's aggregates their registers: they follow the groups.
pub(super) fn settle_calls(expr: &mut Expr, groups: usize) {
    expr.map_columns(&mut |register| match register {
        CALL_BASE..WINDOW_BASE => register - CALL_BASE + groups,
        _ => register,
    });
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
fn locked_relations(locks: &[ast::LockClause], from: &From) -> Result<Option<(Vec<usize>, LockWait)>> {
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

#[allow(clippy::too_many_arguments, reason = "all parts of one block")]
pub(super) fn plan_block(
    mut from: From,
    conditions: Vec<Expr>,
    mut lists: Lists,
    groups: Option<(Vec<Bound>, Vec<AggregateCall>)>,
    sets: Vec<GroupingSet>,
    mut windows: Windows,
    tail: Tail<'_>,
    distinct: bool,
    methods: planner::Methods,
) -> Result<QueryPlan> {
    let locked = locked_relations(tail.locks, &from)?;
    let windowed = !windows.calls.is_empty();
    if locked.is_some() && (groups.is_some() || distinct || windowed) {
        let what = match (groups.is_some(), distinct) {
            (true, _) => "GROUP BY clause or aggregate functions",
            (false, true) => "DISTINCT clause",
            (false, false) => "window functions",
        };
        return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, format!("FOR UPDATE is not allowed with {what}")));
    }
    let mut needed = vec![false; from.width];
    match &groups {
        Some((groups, calls)) => {
            for group in groups {
                mark(&group.expr, &mut needed);
            }
            for call in calls {
                call.exprs().for_each(|argument| mark(argument, &mut needed));
            }
        }
        None => {
            lists.items.iter().for_each(|item| mark(&item.bound.expr, &mut needed));
            windows.exprs_mut().for_each(|expr| mark(expr, &mut needed));
            lists.sets.iter().flat_map(SeriesKind::exprs).for_each(|expr| mark(expr, &mut needed));
        }
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
        None if !distinct && !windowed && lists.sets.is_empty() => lists
            .order
            .iter()
            .map(|(place, descending, nulls_first)| (lists.items[*place].bound.expr.clone(), *descending, *nulls_first))
            .collect(),
        _ => Vec::new(),
    };
    let lock_conditions = conditions.clone();
    let group_exprs: Vec<Expr> = match &groups {
        Some((groups, _)) => groups.iter().map(|group| group.expr.clone()).collect(),
        None => Vec::new(),
    };
    let planned = planner::plan_from(from, conditions, &needed, &lock_registers, &wanted_order, &group_exprs, methods)?;
    let mut input = planned.plan;
    if let Some((_, wait)) = locked {
        let scans = planned.locked;
        input = Plan::LockRows(Arc::new(LockPlan { input, scans, conditions: lock_conditions, wait }));
    }
    let mut width = width;
    if let Some((groups, calls)) = groups {
        let parallel = sets.is_empty() && planner::parallel_aggregate(&input, &groups, &calls);
        let new_width = groups.len() + calls.len();
        let rows = planned.group_rows;
        let groups = groups.into_iter().map(|group| group.expr).collect();
        input = Plan::Aggregate(Arc::new(AggregatePlan { input, width, groups, sets, calls, parallel, rows }));
        width = new_width;
        if !lists.having.is_empty() {
            input = Plan::Filter(Arc::new(FilterPlan { input, conditions: lists.having }));
        }
    }
    if windowed {
        let exprs = lists.items.iter_mut().map(|item| &mut item.bound.expr);
        for expr in exprs.chain(lists.sets.iter_mut().flat_map(SeriesKind::exprs_mut)) {
            expr.map_columns(&mut |register| match register {
                WINDOW_BASE..SET_BASE => register - WINDOW_BASE + width,
                _ => register,
            });
        }
        let Windows { windows, calls } = windows;
        let results = calls.len();
        input = Plan::Window(Arc::new(WindowPlan { input, width, windows, calls }));
        width += results;
    }
    if !lists.sets.is_empty() {
        for item in &mut lists.items {
            item.bound.expr.map_columns(&mut |register| match register {
                SET_BASE.. => register - SET_BASE + width,
                _ => register,
            });
        }
        let calls = std::mem::take(&mut lists.sets);
        let results = calls.len();
        input = Plan::ProjectSet(Arc::new(ProjectSetPlan { input, width, calls }));
        width += results;
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

pub(super) fn output(input: Plan, width: usize, items: Vec<Item>) -> QueryPlan {
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
pub(super) fn fit(bound: Bound, ty: ColumnType, params: &mut Params) -> Result<Bound> {
    if bound.ty.ty == ty.ty { Ok(Bound { ty, ..bound }) } else { expr::cast_bound(bound, ty, params) }
}

/// Output values of unknown type are text.
pub(super) fn fit_output(bound: Bound, params: &mut Params) -> Result<Bound> {
    if bound.ty.ty == Type::Unknown { expr::cast_bound(bound, ColumnType::new(Type::Text), params) } else { Ok(bound) }
}
