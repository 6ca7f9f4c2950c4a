//! What may an expression refer to? The columns of FROM, those of queries around it, groups and aggregates.

use super::grouping::{GroupingCall, grouping_args};
use super::series::{misplaced, set_call};
use super::{Binder, at, no_column};
use crate::exec::{Subquery, SubqueryKind};
use crate::expr::{self, AggregateCall, Bound, CmpOp, Expr, Params, Scope};
use crate::plan::QueryPlan;
use homenode_types::{ColumnType, Error, Result, SqlState, Type};
use sqlparser::ast;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// A column that FROM offers.
#[derive(Clone, Debug)]
pub(crate) struct Offered {
    /// Its name.
    pub name: String,
    /// The alias of its relation; `None` for a merged column of USING.
    pub relation: Option<String>,
    /// How it is computed.
    pub bound: Bound,
    /// Where it comes from: table OID and attribute number.
    pub origin: (u32, i16),
    /// The only column of a function in FROM, whose alias means the same.
    pub is_whole: bool,
}

/// Columns of the query around that a query uses: what they are called there, and their expression there.
pub(crate) type Outer = RefCell<Vec<((Option<String>, String), Bound)>>;

/// Where the expression stands; decides what an aggregate there means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clause {
    /// Aggregates may stand here.
    Open,
    /// Inside of an aggregate.
    Argument,
    /// They may not; the clause's name is for the message.
    Closed(&'static str),
}

/// The scope of a query block's expressions before grouping.
pub(crate) struct FromScope<'a> {
    pub binder: &'a Binder<'a>,
    /// The scope of the query around, for correlated columns.
    pub parent: Option<&'a dyn Scope>,
    pub outer: &'a Outer,
    /// Unqualified names.
    pub offered: &'a [Offered],
    /// Qualified names: all columns of each relation.
    pub qualified: &'a [Offered],
    pub clause: Clause,
    /// An aggregate was met.
    pub saw_aggregate: Cell<bool>,
}

impl FromScope<'_> {
    fn find(&self, qualifier: Option<&str>, name: &str) -> Result<Option<Bound>> {
        let candidates = if qualifier.is_some() { self.qualified } else { self.offered };
        let mut found = candidates
            .iter()
            .filter(|column| column.name == name && qualifier.is_none_or(|q| column.relation.as_deref() == Some(q)));
        let first = found.next();
        if found.next().is_some() {
            return Err(Error::new(SqlState::AMBIGUOUS_COLUMN, format!("column reference \"{name}\" is ambiguous")));
        }
        Ok(first.map(|column| column.bound.clone()))
    }

    fn knows(&self, relation: &str) -> bool {
        self.qualified.iter().any(|column| column.relation.as_deref() == Some(relation))
    }
}

/// The correlated column `qualifier.name` of the query around, as an expression of this one.
pub(super) fn correlated(
    parent: Option<&dyn Scope>,
    outer: &Outer,
    qualifier: Option<&str>,
    name: &str,
) -> Result<Bound> {
    let parent = parent.ok_or_else(|| no_column(qualifier, name))?;
    let bound = parent.column(qualifier, name)?;
    let called = (qualifier.map(str::to_string), name.to_string());
    let mut outer = outer.borrow_mut();
    let place = match outer.iter().position(|(known, _)| *known == called) {
        Some(place) => place,
        None => {
            outer.push((called, bound.clone()));
            outer.len() - 1
        }
    };
    Ok(Bound { expr: Expr::Outer(place), ty: bound.ty })
}

impl Scope for FromScope<'_> {
    fn column(&self, qualifier: Option<&str>, name: &str) -> Result<Bound> {
        if let Some(bound) = self.find(qualifier, name)? {
            return Ok(bound);
        }
        if let Some(relation) = qualifier {
            if self.knows(relation) {
                return Err(no_column(qualifier, name));
            }
            if self.parent.is_none() {
                return Err(Error::new(
                    SqlState::UNDEFINED_TABLE,
                    format!("missing FROM-clause entry for table \"{relation}\""),
                ));
            }
        } else if let Some(whole) = self.qualified.iter().find(|c| c.is_whole && c.relation.as_deref() == Some(name)) {
            return Ok(whole.bound.clone());
        } else if self.knows(name) {
            return Err(Error::unsupported(format!("the whole row \"{name}\" as a value")));
        }
        correlated(self.parent, self.outer, qualifier, name)
    }

    fn row_columns(&self, name: &str) -> Option<Vec<String>> {
        let is_column = |column: &Offered| column.is_whole && column.relation.as_deref() == Some(name);
        if !matches!(self.find(None, name), Ok(None)) || self.qualified.iter().any(is_column) {
            return None;
        }
        if !self.knows(name) {
            return self.parent?.row_columns(name);
        }
        let own = self.qualified.iter().filter(|column| column.relation.as_deref() == Some(name));
        Some(own.map(|column| column.name.clone()).collect())
    }

    fn intercept(&self, tree: &ast::Expr, params: &mut Params) -> Option<Result<Bound>> {
        if let Some((function, _)) = expr::over_of(tree) {
            return Some(Err(misplaced_window(function, self.clause)));
        }
        if let Some(function) = aggregate_of(tree) {
            self.saw_aggregate.set(true);
            let error = match self.clause {
                Clause::Open | Clause::Argument => "aggregate function calls cannot be nested".to_string(),
                Clause::Closed(clause) => format!("aggregate functions are not allowed in {clause}"),
            };
            let span = function.name.0.first().and_then(|part| part.as_ident()).map(|ident| ident.span);
            let error = Error::new(SqlState::GROUPING_ERROR, error);
            return Some(Err(span.map_or_else(|| error.clone(), |span| at(error.clone(), span))));
        }
        if set_call(tree).is_some() {
            return Some(Err(match self.clause {
                Clause::Argument => {
                    let message = "aggregate function calls cannot contain set-returning function calls";
                    Error::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                }
                Clause::Open => misplaced("this place"),
                Clause::Closed(clause) => misplaced(clause),
            }));
        }
        if grouping_args(tree).is_some() {
            // Makes the block one with groups, where it is bound again.
            self.saw_aggregate.set(true);
            let message = match self.clause {
                Clause::Open | Clause::Argument => "grouping operations are not allowed here".to_string(),
                Clause::Closed(clause) => format!("grouping operations are not allowed in {clause}"),
            };
            return Some(Err(Error::new(SqlState::GROUPING_ERROR, message)));
        }
        special(self.binder, self, tree, params)
    }
}

/// The scope after grouping: group expressions and aggregates.
pub(crate) struct GroupScope<'a> {
    pub from: &'a FromScope<'a>,
    /// GROUP BY, and what depends on it.
    pub groups: RefCell<Vec<Bound>>,
    /// The aggregates met so far; their registers follow the groups once binding is over.
    pub calls: RefCell<Vec<AggregateCall>>,
    /// Registers from here on stand for aggregates until the number of groups is known.
    pub primary_keys: Vec<(Vec<usize>, std::ops::Range<usize>)>,
    pub grouping_calls: RefCell<Vec<GroupingCall>>,
}

/// Register numbers of aggregates while groups may still be added.
pub(crate) const CALL_BASE: usize = 1 << 20;

impl GroupScope<'_> {
    pub(super) fn group_of(&self, bound: &Bound) -> Option<usize> {
        let wanted = format!("{:?}", bound.expr);
        self.groups.borrow().iter().position(|group| format!("{:?}", group.expr) == wanted)
    }

    /// A column of a table whose whole primary key is grouped by depends on the group.
    fn depends(&self, register: usize) -> bool {
        let groups = self.groups.borrow();
        let grouped =
            |wanted: usize| groups.iter().any(|group| matches!(group.expr, Expr::Column(found) if found == wanted));
        self.primary_keys.iter().any(|(key, registers)| {
            registers.contains(&register) && !key.is_empty() && key.iter().all(|&column| grouped(column))
        })
    }

    fn aggregate(&self, function: &ast::Function, params: &mut Params) -> Result<Bound> {
        let inner = FromScope {
            binder: self.from.binder,
            parent: self.from.parent,
            outer: self.from.outer,
            offered: self.from.offered,
            qualified: self.from.qualified,
            clause: Clause::Argument,
            saw_aggregate: Cell::new(false),
        };
        let call = expr::bind_aggregate(function, &inner, params)?;
        let ty = call.ty;
        let wanted = format!("{call:?}");
        let mut calls = self.calls.borrow_mut();
        let place = match calls.iter().position(|known| format!("{known:?}") == wanted) {
            Some(place) => place,
            None => {
                calls.push(call);
                calls.len() - 1
            }
        };
        Ok(Bound { expr: Expr::Column(CALL_BASE + place), ty })
    }
}

impl Scope for GroupScope<'_> {
    fn column(&self, qualifier: Option<&str>, name: &str) -> Result<Bound> {
        let bound = self.from.column(qualifier, name)?;
        if let Some(group) = self.group_of(&bound) {
            return Ok(Bound { expr: Expr::Column(group), ty: bound.ty });
        }
        match bound.expr {
            Expr::Column(register) if self.depends(register) => {
                let mut groups = self.groups.borrow_mut();
                groups.push(bound.clone());
                Ok(Bound { expr: Expr::Column(groups.len() - 1), ty: bound.ty })
            }
            Expr::Outer(_) => Ok(bound),
            _ => {
                let relation = qualifier.map(str::to_string).or_else(|| {
                    let column = self.from.offered.iter().find(|column| column.name == name);
                    column.and_then(|column| column.relation.clone())
                });
                let full = relation.map_or_else(|| name.to_string(), |relation| format!("{relation}.{name}"));
                Err(Error::new(
                    SqlState::GROUPING_ERROR,
                    format!("column \"{full}\" must appear in the GROUP BY clause or be used in an aggregate function"),
                ))
            }
        }
    }

    fn row_columns(&self, name: &str) -> Option<Vec<String>> {
        self.from.row_columns(name)
    }

    fn intercept(&self, tree: &ast::Expr, params: &mut Params) -> Option<Result<Bound>> {
        if let Some((function, _)) = expr::over_of(tree) {
            return Some(Err(misplaced_window(function, Clause::Closed("HAVING"))));
        }
        if let Some(function) = aggregate_of(tree) {
            return Some(self.aggregate(function, params));
        }
        if let Some(bound) = self.grouping(tree, params) {
            return Some(bound);
        }
        // An expression that is grouped by stands for the group's value. Columns are looked at in `column`.
        let plain = matches!(tree, ast::Expr::Identifier(_) | ast::Expr::CompoundIdentifier(_) | ast::Expr::Value(_));
        if !plain && !self.groups.borrow().is_empty() {
            let quiet = FromScope {
                binder: self.from.binder,
                parent: self.from.parent,
                outer: self.from.outer,
                offered: self.from.offered,
                qualified: self.from.qualified,
                clause: Clause::Closed("this place"),
                saw_aggregate: Cell::new(false),
            };
            if !has_subquery(tree)
                && let Ok(bound) = expr::bind(tree, &quiet, params)
                && let Some(group) = self.group_of(&bound)
            {
                return Some(Ok(Bound { expr: Expr::Column(group), ty: bound.ty }));
            }
        }
        special(self.from.binder, self, tree, params)
    }
}

fn has_subquery(tree: &ast::Expr) -> bool {
    matches!(
        tree,
        ast::Expr::Subquery(_)
            | ast::Expr::Exists { .. }
            | ast::Expr::InSubquery { .. }
            | ast::Expr::AnyOp { .. }
            | ast::Expr::AllOp { .. }
    ) || matches!(tree, ast::Expr::Function(function) if matches!(function.args, ast::FunctionArguments::Subquery(_)))
}

/// A call of an aggregate function, if `tree` is one.
fn aggregate_of(tree: &ast::Expr) -> Option<&ast::Function> {
    let ast::Expr::Function(function) = tree else { return None };
    let name = function.name.0.last()?.as_ident()?;
    let known = function.over.is_none() && expr::is_aggregate(&name.value.to_ascii_lowercase());
    known.then_some(function)
}

/// A window function where none may stand.
fn misplaced_window(function: &ast::Function, clause: Clause) -> Error {
    let error = match clause {
        Clause::Open => Error::new(SqlState::WINDOWING_ERROR, "window function calls cannot be nested"),
        Clause::Argument => {
            let message = "aggregate function calls cannot contain window function calls";
            Error::new(SqlState::GROUPING_ERROR, message)
        }
        Clause::Closed(clause) => {
            Error::new(SqlState::WINDOWING_ERROR, format!("window functions are not allowed in {clause}"))
        }
    };
    match function.name.0.first().and_then(|part| part.as_ident()) {
        Some(ident) => at(error, ident.span),
        None => error,
    }
}

/// Subqueries, and what is refused everywhere.
fn special(binder: &Binder<'_>, scope: &dyn Scope, tree: &ast::Expr, params: &mut Params) -> Option<Result<Bound>> {
    Some(match tree {
        ast::Expr::Subquery(query) => subquery(binder, scope, query, params, Question::Scalar),
        ast::Expr::Exists { subquery: query, negated } => {
            subquery(binder, scope, query, params, Question::Exists).map(|bound| negate(bound, *negated))
        }
        ast::Expr::InSubquery { expr, subquery: query, negated } => {
            subquery(binder, scope, query, params, Question::In(expr)).map(|bound| negate(bound, *negated))
        }
        ast::Expr::AnyOp { left, compare_op, right, .. } => match &**right {
            ast::Expr::Subquery(query) => compared(binder, scope, query, params, left, compare_op, false),
            _ => return None,
        },
        ast::Expr::AllOp { left, compare_op, right } => match &**right {
            ast::Expr::Subquery(query) => compared(binder, scope, query, params, left, compare_op, true),
            _ => return None,
        },
        ast::Expr::Function(function) => match &function.args {
            ast::FunctionArguments::Subquery(query) if is_array(&function.name) => {
                subquery(binder, scope, query, params, Question::Array)
            }
            _ => return None,
        },
        _ => return None,
    })
}

fn is_array(name: &ast::ObjectName) -> bool {
    name.0.len() == 1 && name.to_string().eq_ignore_ascii_case("array")
}

fn negate(bound: Bound, negated: bool) -> Bound {
    if negated { Bound { expr: expr::not(bound.expr), ty: bound.ty } } else { bound }
}

enum Question<'a> {
    Scalar,
    Exists,
    In(&'a ast::Expr),
    Compare(&'a ast::Expr, CmpOp, bool),
    Array,
}

fn compared(
    binder: &Binder<'_>,
    scope: &dyn Scope,
    query: &ast::Query,
    params: &mut Params,
    left: &ast::Expr,
    operator: &ast::BinaryOperator,
    all: bool,
) -> Result<Bound> {
    let operator = match operator {
        ast::BinaryOperator::Eq => CmpOp::Eq,
        ast::BinaryOperator::NotEq => CmpOp::Ne,
        ast::BinaryOperator::Lt => CmpOp::Lt,
        ast::BinaryOperator::LtEq => CmpOp::Le,
        ast::BinaryOperator::Gt => CmpOp::Gt,
        ast::BinaryOperator::GtEq => CmpOp::Ge,
        other => return Err(Error::unsupported(format!("operator {other} with ANY or ALL of a subquery"))),
    };
    subquery(binder, scope, query, params, Question::Compare(left, operator, all))
}

fn subquery(
    binder: &Binder<'_>,
    scope: &dyn Scope,
    query: &ast::Query,
    params: &mut Params,
    question: Question<'_>,
) -> Result<Bound> {
    let (plan, outer) = binder.query(query, Some(scope), params, false)?;
    let columns = plan.fields.len();
    if columns != 1 && !matches!(question, Question::Exists) {
        let message = match question {
            Question::In(_) | Question::Compare(..) => "subquery has too many columns",
            _ => "subquery must return only one column",
        };
        return Err(Error::new(SqlState::SYNTAX_ERROR, message));
    }
    let ty = plan.fields.first().map_or(ColumnType::new(Type::Unknown), |field| field.ty);
    let (kind, plan, result) = match question {
        Question::Scalar => (SubqueryKind::Scalar, plan, ty),
        Question::Exists => (SubqueryKind::Exists, plan, ColumnType::new(Type::Bool)),
        Question::Array => {
            let array = ty.ty.array().ok_or_else(|| Error::unsupported(format!("an array of {}", ty.ty)))?;
            (SubqueryKind::Array { ty: array }, plan, ColumnType::new(array))
        }
        Question::In(left) => {
            let (value, plan, ty) = sides(left, scope, params, plan, ty)?;
            (SubqueryKind::In { value, ty }, plan, ColumnType::new(Type::Bool))
        }
        Question::Compare(left, op, all) => {
            let (value, plan, _) = sides(left, scope, params, plan, ty)?;
            (SubqueryKind::Compare { value, op, all }, plan, ColumnType::new(Type::Bool))
        }
    };
    let outer = outer.into_iter().map(|bound| bound.expr).collect();
    Ok(Bound { expr: Expr::External(Arc::new(Subquery { kind, plan, outer })), ty: result })
}

/// Brings the left side and the subquery's column to one type.
fn sides(
    left: &ast::Expr,
    scope: &dyn Scope,
    params: &mut Params,
    plan: Arc<QueryPlan>,
    ty: ColumnType,
) -> Result<(Expr, Arc<QueryPlan>, Type)> {
    if matches!(left, ast::Expr::Tuple(_)) {
        return Err(Error::unsupported("a row compared with a subquery"));
    }
    let value = expr::bind(left, scope, params)?;
    if value.ty.ty == ty.ty {
        return Ok((value.expr, plan, ty.ty));
    }
    let common = expr::unify(&[value.ty, ty], "IN")?;
    let value = expr::cast_bound(value, ColumnType::new(common.ty), params)?;
    let plan = super::query::cast_outputs(&plan, &[ColumnType::new(common.ty)], params)?;
    Ok((value.expr, plan, common.ty))
}
