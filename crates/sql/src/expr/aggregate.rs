//! What do many rows amount to? count, sum, avg, min, max and their kind, with PostgreSQL's result types.

use super::bind::bind;
use super::call::function_name;
use super::coerce::cast_implicit;
use super::operator::condition;
use super::{ArithOp, Bound, Expr, Params, Scope, arith, json};
use crate::plan::SortKey;
use homenode_types::{
    ColumnType, Decimal, Error, Interval, Result, SqlState, Type, Value, compare, compare_bpchar, divide,
};
use sqlparser::ast;
use std::cmp::Ordering;

/// An aggregate function with what its computation depends on.
#[derive(Clone, PartialEq, Debug)]
pub enum Aggregate {
    /// `count(*)`.
    CountAll,
    /// `count(x)`.
    Count,
    /// `sum(x)`; the type of x.
    Sum(Type),
    /// `avg(x)`; the type of x.
    Avg(Type),
    /// `min(x)`; the type of x.
    Min(Type),
    /// `max(x)`; the type of x.
    Max(Type),
    /// `bool_and(x)`, `every(x)`.
    BoolAnd,
    /// `bool_or(x)`.
    BoolOr,
    /// `string_agg(x, separator)`.
    StringAgg,
    /// `array_agg(x)`; the array's type.
    ArrayAgg(Type),
    /// `json_agg(x)` and `jsonb_agg(x)`, of values that are json already.
    JsonAgg {
        /// Each element begins a line: they are arrays or rows.
        structured: bool,
        /// The result is a jsonb.
        binary: bool,
    },
    /// `json_object_agg(key, x)` and `jsonb_object_agg`.
    JsonObjectAgg {
        /// The result is a jsonb.
        binary: bool,
    },
    /// `stddev`, `variance` and their population forms, over floats or numerics.
    Spread {
        /// The square root of it.
        root: bool,
        /// Divide by n instead of n - 1.
        population: bool,
        /// The result is numeric.
        numeric: bool,
    },
}

impl Aggregate {
    /// Whether its state takes memory that grows with what is added.
    pub fn gathers(&self) -> bool {
        match self {
            _ if self.needs_order() => true,
            Aggregate::Min(ty) | Aggregate::Max(ty) => ty.is_string(),
            _ => false,
        }
    }
}

impl Aggregate {
    /// Whether the result depends on the order of the rows.
    fn needs_order(&self) -> bool {
        use Aggregate::*;
        matches!(self, StringAgg | ArrayAgg(_) | JsonAgg { .. } | JsonObjectAgg { .. })
    }
}

/// A call of an aggregate.
#[derive(Clone, Debug)]
pub struct AggregateCall {
    /// The function.
    pub aggregate: Aggregate,
    /// Its arguments; none for `count(*)`.
    pub args: Vec<Expr>,
    /// DISTINCT.
    pub distinct: bool,
    /// FILTER (WHERE ...).
    pub filter: Option<Expr>,
    /// In which order rows are added, where that matters: ORDER BY, or with DISTINCT that of the arguments.
    pub order: Vec<SortKey>,
    /// The result's type.
    pub ty: ColumnType,
}

impl AggregateCall {
    /// The expressions over the rows.
    pub fn exprs(&self) -> impl Iterator<Item = &Expr> {
        self.args.iter().chain(&self.filter).chain(self.order.iter().map(|key| &key.value))
    }
}

const NAMES: &[&str] = &[
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "bool_and",
    "bool_or",
    "every",
    "string_agg",
    "array_agg",
    "json_agg",
    "jsonb_agg",
    "json_object_agg",
    "jsonb_object_agg",
    "stddev",
    "stddev_samp",
    "stddev_pop",
    "variance",
    "var_samp",
    "var_pop",
];

/// Is there an aggregate function of this (lower-case) name?
pub fn is_aggregate(name: &str) -> bool {
    NAMES.contains(&name)
}

/// Binds a call of an aggregate; `scope` is that of its arguments.
pub fn bind_aggregate(call: &ast::Function, scope: &dyn Scope, params: &mut Params) -> Result<AggregateCall> {
    let name = function_name(&call.name)?;
    if !call.within_group.is_empty() {
        return Err(Error::unsupported("WITHIN GROUP"));
    }
    let ast::FunctionArguments::List(list) = &call.args else {
        return Err(Error::unsupported(format!("{name} without arguments")));
    };
    let filter = match &call.filter {
        None => None,
        Some(filter) => Some(condition(bind(filter, scope, params)?, "FILTER", params)?),
    };
    let distinct = matches!(list.duplicate_treatment, Some(ast::DuplicateTreatment::Distinct));
    if let [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Wildcard)] = list.args.as_slice() {
        if name != "count" {
            return Err(no_aggregate(&name, "*"));
        }
        if distinct {
            return Err(Error::new(SqlState::SYNTAX_ERROR, "DISTINCT cannot be used with count(*)"));
        }
        let ty = ColumnType::new(Type::Int8);
        return Ok(AggregateCall {
            aggregate: Aggregate::CountAll,
            args: Vec::new(),
            distinct: false,
            filter,
            order: Vec::new(),
            ty,
        });
    }
    let makes_json = name.starts_with("json");
    let structured = |arg: &Bound, tree| arg.ty.ty.element().is_some() || json::is_row(tree, scope);
    let mut lines = false;
    let mut args = Vec::new();
    for arg in &list.args {
        let ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(arg)) = arg else {
            return Err(Error::unsupported("this argument of an aggregate"));
        };
        if makes_json {
            let bound = json::argument(arg, scope, params)?;
            lines |= structured(&bound, arg);
            args.push(bound);
            continue;
        }
        let bound = bind(arg, scope, params)?;
        let unknown_is =
            if matches!(name.as_str(), "bool_and" | "bool_or" | "every") { Type::Bool } else { Type::Text };
        args.push(if bound.ty.ty == Type::Unknown { cast_implicit(bound, unknown_is, params)? } else { bound });
    }
    let types: Vec<ColumnType> = args.iter().map(|arg| arg.ty).collect();
    let (mut aggregate, ty) = choose(&name, &types)?;
    if distinct {
        types.iter().try_for_each(|ty| crate::bind::require_equality(*ty))?;
    }
    if let Aggregate::JsonAgg { structured, .. } = &mut aggregate {
        *structured = lines;
    }
    let mut exprs = Vec::with_capacity(args.len());
    for arg in args {
        let wide = matches!(aggregate, Aggregate::StringAgg) && arg.ty.ty == Type::Bpchar;
        exprs.push(match &aggregate {
            Aggregate::JsonAgg { .. } => json::value_of(arg, params)?.expr,
            Aggregate::JsonObjectAgg { .. } if exprs.is_empty() => json::key_of(arg, params)?.expr,
            Aggregate::JsonObjectAgg { .. } => json::value_of(arg, params)?.expr,
            _ if wide => cast_implicit(arg, Type::Text, params)?.expr,
            _ => arg.expr,
        });
    }
    let mut order = order_of(&list.clauses, &name, scope, params)?;
    if distinct {
        let known = |key: &SortKey| exprs.iter().any(|arg| format!("{arg:?}") == format!("{:?}", key.value));
        if !order.iter().all(known) {
            let message = "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list";
            return Err(Error::new(SqlState::INVALID_COLUMN_REFERENCE, message));
        }
        // PostgreSQL finds what is the same by sorting.
        let rest = exprs.iter().zip(&types).map(|(arg, ty)| SortKey::ascending(arg.clone(), *ty));
        let rest: Vec<SortKey> = rest.filter(|key| !order.iter().any(|known| same_value(known, key))).collect();
        order.extend(rest);
    }
    if !aggregate.needs_order() {
        order.clear();
    }
    Ok(AggregateCall { aggregate, args: exprs, distinct, filter, order, ty })
}

fn same_value(a: &SortKey, b: &SortKey) -> bool {
    format!("{:?}", a.value) == format!("{:?}", b.value)
}

/// ORDER BY among the arguments.
fn order_of(
    clauses: &[ast::FunctionArgumentClause],
    name: &str,
    scope: &dyn Scope,
    params: &mut Params,
) -> Result<Vec<SortKey>> {
    let mut order = Vec::new();
    for clause in clauses {
        let ast::FunctionArgumentClause::OrderBy(list) = clause else {
            return Err(Error::unsupported(format!("this clause in the arguments of {name}")));
        };
        for by in list {
            let bound = bind(&by.expr, scope, params)?;
            let ty = if bound.ty.ty == Type::Unknown { ColumnType::new(Type::Text) } else { bound.ty };
            order.push(crate::bind::sort_key(cast_implicit(bound, ty.ty, params)?.expr, ty, by)?);
        }
    }
    Ok(order)
}

fn no_aggregate(name: &str, args: &str) -> Error {
    Error::new(SqlState::UNDEFINED_FUNCTION, format!("function {name}({args}) does not exist"))
        .with_hint("No function matches the given name and argument types. You might need to add explicit type casts.")
}

/// The aggregate and its result type (pg_aggregate.dat).
fn choose(name: &str, types: &[ColumnType]) -> Result<(Aggregate, ColumnType)> {
    let plain = |aggregate, ty| Ok((aggregate, ColumnType::new(ty)));
    let missing = || {
        let names: Vec<_> = types.iter().map(|ty| ty.ty.sql_name()).collect();
        no_aggregate(name, &names.join(", "))
    };
    if let ("string_agg", [a, b]) = (name, types) {
        return if a.ty.is_string() && b.ty.is_string() {
            plain(Aggregate::StringAgg, Type::Text)
        } else {
            Err(missing())
        };
    }
    let binary = name.starts_with("jsonb");
    if let ("json_object_agg" | "jsonb_object_agg", [_, _]) = (name, types) {
        return plain(Aggregate::JsonObjectAgg { binary }, if binary { Type::Jsonb } else { Type::Json });
    }
    let [column] = types else { return Err(missing()) };
    let ty = column.ty;
    match (name, ty) {
        ("count", _) => plain(Aggregate::Count, Type::Int8),
        ("sum", Type::Int2 | Type::Int4) => plain(Aggregate::Sum(ty), Type::Int8),
        ("sum", Type::Int8 | Type::Numeric) => plain(Aggregate::Sum(ty), Type::Numeric),
        ("sum", Type::Float4 | Type::Float8 | Type::Interval) => plain(Aggregate::Sum(ty), ty),
        ("avg", Type::Int2 | Type::Int4 | Type::Int8 | Type::Numeric) => plain(Aggregate::Avg(ty), Type::Numeric),
        ("avg", Type::Float4 | Type::Float8) => plain(Aggregate::Avg(ty), Type::Float8),
        ("avg", Type::Interval) => plain(Aggregate::Avg(ty), Type::Interval),
        ("json_agg" | "jsonb_agg", _) => {
            let result = if binary { Type::Jsonb } else { Type::Json };
            plain(Aggregate::JsonAgg { structured: false, binary }, result)
        }
        ("min" | "max", Type::Bool | Type::Uuid | Type::Bytea | Type::Record | Type::Json | Type::Jsonb) => {
            Err(missing())
        }
        ("min" | "max", _) => {
            // The result of a name or varchar is text, as the operators are text's.
            let result = match ty {
                Type::Varchar | Type::Name => ColumnType::new(Type::Text),
                _ => *column,
            };
            Ok((if name == "min" { Aggregate::Min(ty) } else { Aggregate::Max(ty) }, result))
        }
        ("bool_and" | "every", Type::Bool) => plain(Aggregate::BoolAnd, Type::Bool),
        ("bool_or", Type::Bool) => plain(Aggregate::BoolOr, Type::Bool),
        ("array_agg", _) => {
            let array = ty.array().ok_or_else(|| Error::unsupported(format!("type {ty}[]")))?;
            plain(Aggregate::ArrayAgg(array), array)
        }
        _ if ty.is_number() && (name.starts_with("std") || name.starts_with("var")) => {
            let numeric = !matches!(ty, Type::Float4 | Type::Float8);
            let spread =
                Aggregate::Spread { root: name.starts_with("std"), population: name.ends_with("_pop"), numeric };
            plain(spread, if numeric { Type::Numeric } else { Type::Float8 })
        }
        _ => Err(missing()),
    }
}

/// Sums that cannot overflow before they are asked for.
#[derive(Clone, Debug)]
enum State {
    Count(i64),
    /// Integers; 64 bits of 64-bit values fit 128 for any number of rows.
    Integer {
        sum: i128,
        count: i64,
    },
    Decimal {
        sum: Decimal,
        count: i64,
    },
    Float {
        sum: f64,
        count: i64,
    },
    Interval {
        sum: Interval,
        count: i64,
    },
    /// The best value so far.
    Best(Value),
    Bool(Option<bool>),
    Text(Option<String>),
    Items(Vec<Value>),
    /// Count, mean and the sum of squared differences (Welford; merged as Chan, Golub and LeVeque).
    Moments {
        count: f64,
        mean: f64,
        squares: f64,
    },
}

/// What an aggregate has seen so far.
#[derive(Clone, Debug)]
pub struct Accumulator {
    aggregate: Aggregate,
    state: State,
}

impl Accumulator {
    /// Nothing seen.
    pub fn new(aggregate: &Aggregate) -> Accumulator {
        let state = match aggregate {
            Aggregate::CountAll | Aggregate::Count => State::Count(0),
            Aggregate::Sum(ty) | Aggregate::Avg(ty) => match ty {
                Type::Float4 | Type::Float8 => State::Float { sum: 0.0, count: 0 },
                Type::Numeric => State::Decimal { sum: Decimal::ZERO, count: 0 },
                Type::Interval => State::Interval { sum: Interval::default(), count: 0 },
                _ => State::Integer { sum: 0, count: 0 },
            },
            Aggregate::Min(_) | Aggregate::Max(_) => State::Best(Value::Null),
            Aggregate::BoolAnd | Aggregate::BoolOr => State::Bool(None),
            Aggregate::StringAgg | Aggregate::JsonAgg { .. } | Aggregate::JsonObjectAgg { .. } => State::Text(None),
            Aggregate::ArrayAgg(_) => State::Items(Vec::new()),
            Aggregate::Spread { .. } => State::Moments { count: 0.0, mean: 0.0, squares: 0.0 },
        };
        Accumulator { aggregate: aggregate.clone(), state }
    }

    /// Adds a row: the values of the call's arguments.
    pub fn add(&mut self, args: &[Value]) -> Result<()> {
        if let (Aggregate::CountAll, State::Count(n)) = (&self.aggregate, &mut self.state) {
            *n += 1;
            return Ok(());
        }
        if let (Aggregate::JsonAgg { .. } | Aggregate::JsonObjectAgg { .. }, State::Text(text)) =
            (&self.aggregate, &mut self.state)
        {
            return add_json(&self.aggregate, args, text);
        }
        let value = args.first().unwrap_or(&Value::Null);
        if value.is_null() && !matches!(self.state, State::Items(_)) {
            return Ok(());
        }
        match &mut self.state {
            State::Count(n) => *n += 1,
            State::Integer { sum, count } => {
                *sum += value.as_i64().unwrap_or_default() as i128;
                *count += 1;
            }
            State::Decimal { sum, count } => {
                *sum = add_decimals(*sum, value.as_ref().as_decimal().unwrap_or_default())?;
                *count += 1;
            }
            State::Float { sum, count } => {
                *sum += value.as_ref().as_f64().unwrap_or_default();
                *count += 1;
            }
            State::Interval { sum, count } => {
                if let Value::Interval(i) = value {
                    *sum = add_intervals(*sum, *i)?;
                    *count += 1;
                }
            }
            State::Best(best) => {
                if better(&self.aggregate, value, best) {
                    *best = value.clone();
                }
            }
            State::Bool(state) => {
                if let Value::Bool(b) = value {
                    *state = Some(join_bools(&self.aggregate, *state, *b));
                }
            }
            State::Text(text) => match text {
                None => *text = Some(value.as_str().unwrap_or_default().to_string()),
                Some(text) => {
                    text.push_str(args.get(1).and_then(Value::as_str).unwrap_or_default());
                    text.push_str(value.as_str().unwrap_or_default());
                }
            },
            State::Items(items) => items.push(value.clone()),
            State::Moments { count, mean, squares } => {
                let x = value.as_ref().as_f64().unwrap_or_default();
                *count += 1.0;
                let delta = x - *mean;
                *mean += delta / *count;
                *squares += delta * (x - *mean);
            }
        }
        Ok(())
    }

    /// Bytes that it points to. For `array_agg` without what its values point to in turn.
    pub fn heap_bytes(&self) -> usize {
        match &self.state {
            State::Best(best) => best.heap_bytes(),
            State::Text(text) => text.as_ref().map_or(0, String::capacity),
            State::Items(items) => size_of::<Value>() * items.capacity(),
            _ => 0,
        }
    }

    /// Whether each value that is added is kept.
    pub fn keeps_values(&self) -> bool {
        matches!(self.state, State::Items(_))
    }

    /// Adds what another accumulator of the same aggregate has seen (of a parallel scan's other part).
    pub fn merge(&mut self, other: Accumulator) -> Result<()> {
        match (&mut self.state, other.state) {
            (State::Count(a), State::Count(b)) => *a += b,
            (State::Integer { sum, count }, State::Integer { sum: s, count: c }) => {
                *sum += s;
                *count += c;
            }
            (State::Decimal { sum, count }, State::Decimal { sum: s, count: c }) => {
                *sum = add_decimals(*sum, s)?;
                *count += c;
            }
            (State::Float { sum, count }, State::Float { sum: s, count: c }) => {
                *sum += s;
                *count += c;
            }
            (State::Interval { sum, count }, State::Interval { sum: s, count: c }) => {
                *sum = add_intervals(*sum, s)?;
                *count += c;
            }
            (State::Best(best), State::Best(value)) => {
                if !value.is_null() && better(&self.aggregate, &value, best) {
                    *best = value;
                }
            }
            (State::Bool(a), State::Bool(Some(b))) => *a = Some(join_bools(&self.aggregate, *a, b)),
            (State::Bool(_), State::Bool(None)) => {}
            (State::Items(a), State::Items(b)) => a.extend(b),
            (State::Moments { count, mean, squares }, State::Moments { count: c, mean: m, squares: s }) => {
                let total = *count + c;
                if total > 0.0 {
                    let delta = m - *mean;
                    *squares += s + delta * delta * *count * c / total;
                    *mean += delta * c / total;
                    *count = total;
                }
            }
            (State::Text(_), State::Text(_)) => return Err(Error::unsupported("string_agg in parallel")),
            _ => return Err(Error::internal("accumulators of different aggregates")),
        }
        Ok(())
    }

    /// The result: NULL (0 for counts) if there was nothing.
    pub fn finish(self) -> Result<Value> {
        let average = matches!(self.aggregate, Aggregate::Avg(_));
        Ok(match (self.state, &self.aggregate) {
            (State::Count(n), _) => Value::Int8(n),
            (
                State::Integer { count: 0, .. }
                | State::Decimal { count: 0, .. }
                | State::Float { count: 0, .. }
                | State::Interval { count: 0, .. },
                _,
            ) => Value::Null,
            (State::Integer { sum, .. }, Aggregate::Sum(Type::Int2 | Type::Int4)) => {
                Value::Int8(i64::try_from(sum).map_err(|_| Error::out_of_range("bigint"))?)
            }
            (State::Integer { sum, count }, _) => {
                let sum = Decimal::try_from_i128_with_scale(sum, 0).map_err(|_| Error::out_of_range("numeric"))?;
                Value::Numeric(if average { divide(sum, count.into())? } else { sum })
            }
            (State::Decimal { sum, count }, _) => {
                Value::Numeric(if average { divide(sum, count.into())? } else { sum })
            }
            (State::Float { sum, .. }, Aggregate::Sum(Type::Float4)) => Value::Float4(sum as f32),
            (State::Float { sum, count }, _) => Value::Float8(if average { sum / count as f64 } else { sum }),
            (State::Interval { sum, count }, _) if average => {
                arith::compute(ArithOp::Div, Value::Interval(sum).as_ref(), Value::Int8(count).as_ref())?.to_owned()
            }
            (State::Interval { sum, .. }, _) => Value::Interval(sum),
            (State::Best(best), _) => best,
            (State::Bool(state), _) => state.map_or(Value::Null, Value::Bool),
            (State::Text(Some(text)), Aggregate::JsonAgg { binary, .. }) => json_result(text + "]", *binary)?,
            (State::Text(Some(text)), Aggregate::JsonObjectAgg { binary }) => json_result(text + " }", *binary)?,
            (State::Text(text), _) => text.map_or(Value::Null, Value::Text),
            (State::Items(items), Aggregate::ArrayAgg(ty)) if !items.is_empty() => {
                let items: Vec<_> = items.iter().map(Value::as_ref).collect();
                Value::Text(homenode_types::array::format(&items, *ty))
            }
            (State::Items(_), _) => Value::Null,
            (State::Moments { count, squares, .. }, aggregate) => spread(aggregate, count, squares)?,
        })
    }
}

/// Adds an element or a pair, spaced as PostgreSQL spaces them (json_agg_transfn).
fn add_json(aggregate: &Aggregate, args: &[Value], text: &mut Option<String>) -> Result<()> {
    let json = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or("null").to_string();
    if let Aggregate::JsonAgg { structured, .. } = aggregate {
        match text {
            None => *text = Some("[".into()),
            Some(text) if *structured && !args.first().is_none_or(Value::is_null) => text.push_str(", \n "),
            Some(text) => text.push_str(", "),
        }
        text.get_or_insert_default().push_str(&json(args.first()));
        return Ok(());
    }
    let Some(key) = args.first().and_then(Value::as_str) else {
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, "field name must not be null"));
    };
    match text {
        None => *text = Some("{ ".into()),
        Some(text) => text.push_str(", "),
    }
    let text = text.get_or_insert_default();
    homenode_types::json::append_string(key, text);
    text.push_str(" : ");
    text.push_str(&json(args.get(1)));
    Ok(())
}

fn json_result(text: String, binary: bool) -> Result<Value> {
    if binary { homenode_types::json::canonical(&text).map(Value::Jsonb) } else { Ok(Value::Text(text)) }
}

fn spread(aggregate: &Aggregate, count: f64, squares: f64) -> Result<Value> {
    let Aggregate::Spread { root, population, numeric } = aggregate else { return Ok(Value::Null) };
    let divisor = if *population { count } else { count - 1.0 };
    if divisor <= 0.0 {
        return Ok(Value::Null);
    }
    let variance = squares / divisor;
    let result = if *root { variance.sqrt() } else { variance };
    if *numeric { homenode_types::decimal_from_f64(result, 16).map(Value::Numeric) } else { Ok(Value::Float8(result)) }
}

fn better(aggregate: &Aggregate, value: &Value, best: &Value) -> bool {
    let (ty, wanted) = match aggregate {
        Aggregate::Min(ty) => (*ty, Ordering::Less),
        Aggregate::Max(ty) => (*ty, Ordering::Greater),
        _ => return false,
    };
    let order = if ty == Type::Bpchar { compare_bpchar } else { compare };
    best.is_null() || order(value.as_ref(), best.as_ref()) == wanted
}

fn join_bools(aggregate: &Aggregate, a: Option<bool>, b: bool) -> bool {
    match (aggregate, a) {
        (_, None) => b,
        (Aggregate::BoolAnd, Some(a)) => a && b,
        (_, Some(a)) => a || b,
    }
}

fn add_decimals(a: Decimal, b: Decimal) -> Result<Decimal> {
    match arith::compute(ArithOp::Add, Value::Numeric(a).as_ref(), Value::Numeric(b).as_ref())?.as_decimal() {
        Some(sum) => Ok(sum),
        None => Err(Error::out_of_range("numeric")),
    }
}

fn add_intervals(a: Interval, b: Interval) -> Result<Interval> {
    match arith::compute(ArithOp::Add, Value::Interval(a).as_ref(), Value::Interval(b).as_ref())?.to_owned() {
        Value::Interval(sum) => Ok(sum),
        _ => Err(Error::out_of_range("interval")),
    }
}
