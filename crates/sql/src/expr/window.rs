//! What does a window function compute? Its name, arguments and type; how its windows are cut is the binder's matter.

use super::bind::bind;
use super::call::function_name;
use super::coerce::{cast_implicit, unify};
use super::operator::{arith_bound, compare_bound};
use super::{AggregateCall, ArithOp, Bound, CmpOp, Expr, Params, Scope, bind_aggregate, is_aggregate};
use homenode_types::{ColumnType, Error, Result, SqlState, Type};
use sqlparser::ast;

/// A window function.
#[derive(Clone, Debug)]
pub enum WindowFunction {
    /// `row_number()`.
    RowNumber,
    /// `rank()`.
    Rank,
    /// `dense_rank()`.
    DenseRank,
    /// `percent_rank()`.
    PercentRank,
    /// `cume_dist()`.
    CumulativeDistribution,
    /// `ntile(buckets)`.
    Ntile,
    /// `lag(value [, offset [, default]])` and `lead`.
    Shift {
        /// Later rows instead of earlier ones.
        lead: bool,
    },
    /// `first_value(value)`.
    First,
    /// `last_value(value)`.
    Last,
    /// `nth_value(value, n)`.
    Nth,
    /// An aggregate over the frame.
    Aggregate(AggregateCall),
}

/// A call of a window function.
#[derive(Clone, Debug)]
pub struct WindowCall {
    /// Number of its window among those of the query block.
    pub window: usize,
    /// The function.
    pub function: WindowFunction,
    /// Its arguments; an aggregate has its own.
    pub args: Vec<Expr>,
    /// The result's type.
    pub ty: ColumnType,
}

/// The call and its OVER, if the expression is a window function's.
pub fn over_of(tree: &ast::Expr) -> Option<(&ast::Function, &ast::WindowType)> {
    match tree {
        ast::Expr::Function(call) => call.over.as_ref().map(|over| (call, over)),
        _ => None,
    }
}

/// Binds a call of a window function to the window of number `window`; `scope` is that of its arguments.
pub fn bind_window_call(
    call: &ast::Function,
    window: usize,
    scope: &dyn Scope,
    params: &mut Params,
) -> Result<WindowCall> {
    let name = function_name(&call.name)?;
    if call.null_treatment.is_some() {
        return Err(Error::unsupported("IGNORE NULLS and RESPECT NULLS"));
    }
    if is_aggregate(&name) {
        let aggregate = bind_aggregate(call, scope, params)?;
        if ordered(call) {
            let message = "aggregate ORDER BY is not implemented for window functions";
            return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        if aggregate.distinct {
            let message = "DISTINCT is not implemented for window functions";
            return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        let ty = aggregate.ty;
        return Ok(WindowCall { window, function: WindowFunction::Aggregate(aggregate), args: Vec::new(), ty });
    }
    let args = arguments(call, scope, params)?;
    let types: Vec<Type> = args.iter().map(|arg| arg.ty.ty).collect();
    let (function, args, ty) = choose(&name, args, params)?.ok_or_else(|| {
        let shown: Vec<_> = types.iter().map(|ty| ty.sql_name()).collect();
        match super::function::resolve(&name, &types) {
            Ok(_) => Error::new(
                SqlState::WRONG_OBJECT_TYPE,
                format!("OVER specified, but {name} is not a window function nor an aggregate function"),
            ),
            Err(_) => {
                let message = format!("function {name}({}) does not exist", shown.join(", "));
                Error::new(SqlState::UNDEFINED_FUNCTION, message).with_hint(
                    "No function matches the given name and argument types. You might need to add explicit type casts.",
                )
            }
        }
    })?;
    if call.filter.is_some() {
        return Err(Error::unsupported("FILTER for non-aggregate window functions"));
    }
    Ok(WindowCall { window, function, args, ty })
}

/// ORDER BY among the arguments.
fn ordered(call: &ast::Function) -> bool {
    matches!(&call.args, ast::FunctionArguments::List(list) if !list.clauses.is_empty())
}

fn arguments(call: &ast::Function, scope: &dyn Scope, params: &mut Params) -> Result<Vec<Bound>> {
    let ast::FunctionArguments::List(list) = &call.args else { return Ok(Vec::new()) };
    if list.duplicate_treatment.is_some() || !list.clauses.is_empty() {
        return Err(Error::unsupported("this argument of a window function"));
    }
    list.args
        .iter()
        .map(|arg| match arg {
            ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(arg)) => bind(arg, scope, params),
            _ => Err(Error::unsupported("this argument of a window function")),
        })
        .collect()
}

type Chosen = (WindowFunction, Vec<Expr>, ColumnType);

/// The function and its arguments as it wants them; `None` when there is none of the name and so many arguments.
fn choose(name: &str, args: Vec<Bound>, params: &mut Params) -> Result<Option<Chosen>> {
    use WindowFunction as W;
    let plain = |function, ty| Ok(Some((function, Vec::new(), ColumnType::new(ty))));
    let text = |bound: Bound, params: &mut Params| match bound.ty.ty {
        Type::Unknown => cast_implicit(bound, Type::Text, params),
        _ => Ok(bound),
    };
    let mut args = args.into_iter();
    let given = (args.next(), args.next(), args.next(), args.next());
    match (name, given) {
        ("row_number", (None, ..)) => plain(W::RowNumber, Type::Int8),
        ("rank", (None, ..)) => plain(W::Rank, Type::Int8),
        ("dense_rank", (None, ..)) => plain(W::DenseRank, Type::Int8),
        ("percent_rank", (None, ..)) => plain(W::PercentRank, Type::Float8),
        ("cume_dist", (None, ..)) => plain(W::CumulativeDistribution, Type::Float8),
        ("ntile", (Some(buckets), None, ..)) => {
            let buckets = cast_implicit(buckets, Type::Int4, params)?;
            Ok(Some((W::Ntile, vec![buckets.expr], ColumnType::new(Type::Int4))))
        }
        ("first_value" | "last_value", (Some(value), None, ..)) => {
            let value = text(value, params)?;
            Ok(Some((if name == "first_value" { W::First } else { W::Last }, vec![value.expr], value.ty)))
        }
        ("nth_value", (Some(value), Some(number), None, _)) => {
            let value = text(value, params)?;
            let number = cast_implicit(number, Type::Int4, params)?;
            Ok(Some((W::Nth, vec![value.expr, number.expr], value.ty)))
        }
        ("lag" | "lead", (Some(value), offset, default, None)) => {
            let function = W::Shift { lead: name == "lead" };
            let (mut value, mut args) = (text(value, params)?, Vec::new());
            if let Some(offset) = offset {
                args.push(cast_implicit(offset, Type::Int4, params)?.expr);
            }
            if let Some(default) = default {
                let common = unify(&[value.ty, default.ty], name)?;
                args.push(cast_implicit(default, common.ty, params)?.expr);
                value = cast_implicit(value, common.ty, params)?;
            }
            args.insert(0, value.expr);
            Ok(Some((function, args, value.ty)))
        }
        _ => Ok(None),
    }
}

const UNSUPPORTED: &str = "RANGE with offset PRECEDING/FOLLOWING is not supported for column type";

/// Types that an interval shifts.
pub fn is_time(ty: Type) -> bool {
    matches!(ty, Type::Date | Type::Time | Type::Timestamp | Type::Timestamptz)
}

/// Whether a function needs an OVER clause.
pub(super) fn needs_over(name: &str) -> bool {
    const NAMES: [&str; 11] = [
        "row_number",
        "rank",
        "dense_rank",
        "percent_rank",
        "cume_dist",
        "ntile",
        "lag",
        "lead",
        "first_value",
        "last_value",
        "nth_value",
    ];
    NAMES.contains(&name)
}

/// One end of a RANGE frame with an offset: whether a row whose value to sort by is column 0 lies within the end, for a current
/// row whose value is column 1 and an offset that is column 2.
pub fn range_end(
    order: ColumnType,
    offset: Type,
    descending: bool,
    preceding: bool,
    is_start: bool,
    params: &mut Params,
) -> Result<Expr> {
    let column = |number: usize, ty: Type| Bound::new(Expr::Column(number), ty);
    // Before the current row means smaller values, unless the order is descending.
    let op = if preceding == descending { ArithOp::Add } else { ArithOp::Sub };
    let compare = if is_start == descending { CmpOp::Le } else { CmpOp::Ge };
    let end = arith_bound(op, column(1, order.ty), column(2, offset), params)
        .and_then(|end| compare_bound(compare, column(0, order.ty), end, params));
    Ok(end
        .map_err(|_| {
            Error::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                if order.ty.is_number() || is_time(order.ty) {
                    format!("{UNSUPPORTED} {} and offset type {offset}", order.ty)
                } else {
                    format!("{UNSUPPORTED} {}", order.ty)
                },
            )
        })?
        .expr)
}
