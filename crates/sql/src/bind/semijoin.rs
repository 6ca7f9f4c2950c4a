//! Which subqueries are joins? EXISTS, NOT EXISTS and IN among the conditions of a block become semi- and anti-joins, so that the planner
//! can choose their order and way (Kim, "On optimizing an SQL-like nested query", TODS 1982). NOT IN stays a subquery: NULLs decide it.

use super::Binder;
use super::from::{From, FromBinder, Relation, SemiJoin, Source, Tree, conjuncts};
use super::scope::{Clause, FromScope, Outer};
use crate::exec::{Subquery, SubqueryKind};
use crate::expr::{self, Blanks, CmpOp, Expr, Params, Scope};
use homenode_types::{ColumnType, Error, Result, Type};
use sqlparser::ast;
use std::cell::{Cell, RefCell};

/// A condition that asks for a partner in a subquery.
struct Question<'t> {
    select: &'t ast::Select,
    /// IN: the value that is looked for.
    value: Option<&'t ast::Expr>,
    anti: bool,
}

impl Binder<'_> {
    /// Binds a WHERE clause: its plain conditions; semi-joins are added to `from`.
    pub(super) fn conditions(
        &self,
        tree: &ast::Expr,
        from: &mut From,
        parent: Option<&dyn Scope>,
        outer: &Outer,
        params: &mut Params,
    ) -> Result<Vec<Expr>> {
        let mut parts = Vec::new();
        split(tree, &mut parts);
        if !parts.iter().any(|part| question(part).is_some()) {
            return self.condition(tree, from, parent, outer, params);
        }
        let mut conditions = Vec::new();
        for part in parts {
            let joined = match question(part) {
                Some(question) => self.semi_join(&question, from, parent, outer, params)?,
                None => false,
            };
            if !joined {
                conditions.extend(self.condition(part, from, parent, outer, params)?);
            }
        }
        Ok(conditions)
    }

    pub(super) fn condition(
        &self,
        tree: &ast::Expr,
        from: &From,
        parent: Option<&dyn Scope>,
        outer: &Outer,
        params: &mut Params,
    ) -> Result<Vec<Expr>> {
        let scope = self.where_scope(from, parent, outer);
        Ok(conjuncts(expr::bind_to(tree, ColumnType::new(Type::Bool), false, &scope, params)?.expr))
    }

    fn where_scope<'s>(&'s self, from: &'s From, parent: Option<&'s dyn Scope>, outer: &'s Outer) -> FromScope<'s> {
        FromScope {
            binder: self,
            parent,
            outer,
            offered: &from.offered,
            qualified: &from.qualified,
            clause: Clause::Closed("WHERE"),
            saw_aggregate: Cell::new(false),
        }
    }

    /// Adds the join; false, and `from` as it was, if the subquery has to stay one.
    fn semi_join(
        &self,
        question: &Question<'_>,
        from: &mut From,
        parent: Option<&dyn Scope>,
        outer: &Outer,
        params: &mut Params,
    ) -> Result<bool> {
        self.nested(|| {
            let around = self.where_scope(from, parent, outer);
            let inner_outer: Outer = RefCell::new(Vec::new());
            let value = question.value.map(|tree| expr::bind(tree, &around, params)).transpose()?;
            let mut binder = FromBinder::new(self, Some(&around), &inner_outer);
            binder.from.width = from.width;
            let mut inside = binder.bind(&question.select.from, params)?;
            let mut on = match &question.select.selection {
                Some(tree) => self.conditions(tree, &mut inside, Some(&around), &inner_outer, params)?,
                None => Vec::new(),
            };
            let scope = self.where_scope(&inside, Some(&around), &inner_outer);
            for item in &question.select.projection {
                let (ast::SelectItem::UnnamedExpr(tree) | ast::SelectItem::ExprWithAlias { expr: tree, .. }) = item
                else {
                    continue;
                };
                let column = expr::bind(tree, &scope, params)?;
                if let Some(value) = value.clone() {
                    on.push(expr::compare_bound(CmpOp::Eq, value, column, params)?.expr);
                }
            }
            // What was a column of the query around is one of the same row now.
            let columns: Vec<Expr> = inner_outer.into_inner().into_iter().map(|(_, bound)| bound.expr).collect();
            on.iter_mut().for_each(|condition| condition.replace_outer(&columns));
            inside.replace_outer(&columns);
            if !on.iter().all(|condition| joins(condition, &inside, question.anti)) {
                return Ok(false);
            }
            let mut trees = std::mem::take(&mut inside.trees).into_iter();
            let first = trees.next().ok_or_else(|| Error::internal("a subquery without FROM"))?;
            let tree = trees.fold(first, |left, right| Tree::Inner(Box::new(left), Box::new(right), Vec::new()));
            let moved = from.relations.len();
            from.width = inside.width;
            from.relations.extend(inside.relations);
            for semi in &mut inside.semis {
                semi.tree.renumber(moved);
            }
            let mut tree = tree;
            tree.renumber(moved);
            let tree = nested_semis(tree, inside.semis, &mut on, from);
            from.semis.push(SemiJoin { tree, on, anti: question.anti });
            Ok(true)
        })
    }

    /// Makes joins of IN with subqueries that were bound as queries of their own, where these do not look at the block.
    pub(super) fn in_queries(&self, conditions: Vec<Expr>, from: &mut From) -> Vec<Expr> {
        let mut left = Vec::with_capacity(conditions.len());
        for condition in conditions {
            let found = match &condition {
                Expr::External(external) => external.as_any().downcast_ref::<Subquery>(),
                _ => None,
            };
            match found {
                Some(Subquery { kind: SubqueryKind::In { value, ty }, plan, outer })
                    if outer.is_empty() && !looks(value) =>
                {
                    let base = from.width;
                    from.width += plan.fields.len();
                    let blank = *ty == Type::Bpchar;
                    let on = Expr::Compare {
                        op: CmpOp::Eq,
                        left: Box::new(value.clone()),
                        right: Box::new(Expr::Column(base)),
                        blanks: Blanks { left: blank, right: blank },
                    };
                    from.relations.push(Relation {
                        alias: "ANY_subquery".into(),
                        base,
                        width: plan.fields.len(),
                        source: Source::Derived { query: plan.clone(), outer: Vec::new(), shared: None },
                        columns: Vec::new(),
                        statistics: None,
                    });
                    let tree = Tree::Leaf(from.relations.len() - 1);
                    from.semis.push(SemiJoin { tree, on: vec![on], anti: false });
                }
                _ => left.push(condition),
            }
        }
        left
    }
}

/// Whether the planner may deal with this condition as with one of a join. A subquery that looks at the rows would be run behind the
/// join, where the partner's columns are no more; and what an anti-join asks of the other side's rows alone does not
/// choose among them, it decides whether any partner counts.
fn joins(condition: &Expr, inside: &From, anti: bool) -> bool {
    let mut own = false;
    condition.visit_columns(&mut |register| {
        own |= inside.relations.iter().any(|relation| relation.registers().contains(&register));
    });
    !looks(condition) && (own || !anti)
}

/// Is a subquery run for each row in it?
fn looks(condition: &Expr) -> bool {
    condition.any(&|part| matches!(part, Expr::External(query) if query.is_correlated()))
}

/// Takes a WHERE clause apart at its ANDs.
fn split<'t>(tree: &'t ast::Expr, parts: &mut Vec<&'t ast::Expr>) {
    match tree {
        ast::Expr::BinaryOp { left, op: ast::BinaryOperator::And, right } => {
            split(left, parts);
            split(right, parts);
        }
        ast::Expr::Nested(inner) if matches!(**inner, ast::Expr::BinaryOp { op: ast::BinaryOperator::And, .. }) => {
            split(inner, parts);
        }
        other => parts.push(other),
    }
}

fn question(tree: &ast::Expr) -> Option<Question<'_>> {
    match tree {
        ast::Expr::Nested(inner) => question(inner),
        ast::Expr::UnaryOp { op: ast::UnaryOperator::Not, expr } => {
            let found = question(expr).filter(|found| found.value.is_none())?;
            Some(Question { anti: !found.anti, ..found })
        }
        ast::Expr::Exists { subquery, negated } => {
            let select = plain(subquery)?;
            let simple = |item: &ast::SelectItem| match item {
                ast::SelectItem::Wildcard(options) => options.to_string().is_empty(),
                ast::SelectItem::UnnamedExpr(tree) => is_simple(tree),
                _ => false,
            };
            select.projection.iter().all(simple).then_some(Question { select, value: None, anti: *negated })
        }
        ast::Expr::InSubquery { expr, subquery, negated: false } => {
            let select = plain(subquery)?;
            let [ast::SelectItem::UnnamedExpr(column) | ast::SelectItem::ExprWithAlias { expr: column, .. }] =
                &select.projection[..]
            else {
                return None;
            };
            let joinable = is_simple(column) && is_simple(expr);
            joinable.then_some(Question { select, value: Some(expr), anti: false })
        }
        _ => None,
    }
}

/// The SELECT of a query that is nothing but FROM and WHERE.
fn plain(query: &ast::Query) -> Option<&ast::Select> {
    let bare = query.with.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && query.locks.is_empty()
        && query.for_clause.is_none()
        && query.settings.is_none()
        && query.format_clause.is_none()
        && query.pipe_operators.is_empty();
    let ast::SetExpr::Select(select) = &*query.body else { return None };
    let grouped = match &select.group_by {
        ast::GroupByExpr::Expressions(list, modifiers) => !list.is_empty() || !modifiers.is_empty(),
        ast::GroupByExpr::All(_) => true,
    };
    let plain = !grouped
        && select.having.is_none()
        && select.distinct.is_none()
        && select.named_window.is_empty()
        && !select.from.is_empty()
        && super::clauses::refuse_clauses(select).is_ok();
    (bare && plain).then_some(select)
}

/// Nothing that could be an aggregate, a set or a subquery.
fn is_simple(tree: &ast::Expr) -> bool {
    match tree {
        ast::Expr::Identifier(_) | ast::Expr::CompoundIdentifier(_) | ast::Expr::Value(_) => true,
        ast::Expr::Nested(inner) => is_simple(inner),
        ast::Expr::BinaryOp { left, op, right } => {
            use ast::BinaryOperator as Op;
            matches!(op, Op::Plus | Op::Minus | Op::Multiply) && is_simple(left) && is_simple(right)
        }
        _ => false,
    }
}

/// Semi-joins within a semi-join's own relations: they are joins of those first, made a derived side by the planner's own search.
fn nested_semis(tree: Tree, semis: Vec<SemiJoin>, on: &mut Vec<Expr>, from: &From) -> Tree {
    if semis.is_empty() {
        return tree;
    }
    // Conditions that only concern the inner relations belong below the inner semi-joins.
    let own = |expr: &Expr| {
        let mut inside = true;
        expr.visit_columns(&mut |register| {
            let of = from.relations.iter().position(|relation| relation.registers().contains(&register));
            inside &= of.is_some_and(|number| tree.has(number));
        });
        inside
    };
    let (below, above): (Vec<Expr>, Vec<Expr>) = std::mem::take(on).into_iter().partition(own);
    *on = above;
    Tree::Semi(Box::new(tree), semis, below)
}

impl From {
    /// Replaces columns of the query around in everything but the block's conditions.
    fn replace_outer(&mut self, columns: &[Expr]) {
        for relation in &mut self.relations {
            relation.source.replace_outer(columns);
        }
        for tree in &mut self.trees {
            tree.replace_outer(columns);
        }
        for semi in &mut self.semis {
            semi.on.iter_mut().for_each(|condition| condition.replace_outer(columns));
            semi.tree.replace_outer(columns);
        }
    }
}
