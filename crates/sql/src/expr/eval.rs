//! How is a bound expression computed?

use super::{Blanks, CmpOp, Env, Expr, RowSource, arith, call, coerce};
use homenode_types::{ColumnType, Error, Result, Type, Value, ValueRef, array, compare, record, trim_blanks};
use std::cmp::Ordering;

/// A value that is borrowed where it can be.
#[derive(Clone, Debug)]
pub enum Datum<'a> {
    /// From the row, a parameter or a constant, or without memory of its own.
    Ref(ValueRef<'a>),
    /// Computed.
    Owned(Value),
}

impl<'a> Datum<'a> {
    /// The value, borrowed.
    #[inline]
    pub fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Datum::Ref(value) => *value,
            Datum::Owned(value) => value.as_ref(),
        }
    }

    /// The value, owned.
    #[inline]
    pub fn into_owned(self) -> Value {
        match self {
            Datum::Ref(value) => value.to_owned(),
            Datum::Owned(value) => value,
        }
    }

    fn bool(value: Option<bool>) -> Datum<'a> {
        Datum::Ref(value.map_or(ValueRef::Null, ValueRef::Bool))
    }
}

impl CmpOp {
    /// Does it hold when the values stand so?
    #[inline]
    pub fn holds(self, order: Ordering) -> bool {
        match self {
            CmpOp::Eq => order == Ordering::Equal,
            CmpOp::Ne => order != Ordering::Equal,
            CmpOp::Lt => order == Ordering::Less,
            CmpOp::Le => order != Ordering::Greater,
            CmpOp::Gt => order == Ordering::Greater,
            CmpOp::Ge => order != Ordering::Less,
        }
    }

    /// The operator with its sides exchanged.
    pub fn mirrored(self) -> CmpOp {
        match self {
            CmpOp::Lt => CmpOp::Gt,
            CmpOp::Le => CmpOp::Ge,
            CmpOp::Gt => CmpOp::Lt,
            CmpOp::Ge => CmpOp::Le,
            same => same,
        }
    }

    /// The operator that holds when this one does not.
    pub fn negated(self) -> CmpOp {
        match self {
            CmpOp::Eq => CmpOp::Ne,
            CmpOp::Ne => CmpOp::Eq,
            CmpOp::Lt => CmpOp::Ge,
            CmpOp::Ge => CmpOp::Lt,
            CmpOp::Gt => CmpOp::Le,
            CmpOp::Le => CmpOp::Gt,
        }
    }

    /// As SQL writes it.
    pub fn symbol(self) -> &'static str {
        match self {
            CmpOp::Eq => "=",
            CmpOp::Ne => "<>",
            CmpOp::Lt => "<",
            CmpOp::Le => "<=",
            CmpOp::Gt => ">",
            CmpOp::Ge => ">=",
        }
    }
}

/// A comparison; `None` when a side is NULL. Trailing blanks count.
#[inline]
pub fn compare_values(op: CmpOp, left: ValueRef<'_>, right: ValueRef<'_>) -> Option<bool> {
    if left.is_null() || right.is_null() {
        return None;
    }
    Some(op.holds(compare(left, right)))
}

#[inline]
fn order(left: ValueRef<'_>, right: ValueRef<'_>, blanks: Blanks) -> Ordering {
    match (left, right) {
        (ValueRef::Text(a), ValueRef::Text(b)) => {
            let a = if blanks.left { trim_blanks(a) } else { a };
            let b = if blanks.right { trim_blanks(b) } else { b };
            a.as_bytes().cmp(b.as_bytes())
        }
        _ => compare(left, right),
    }
}

impl Expr {
    /// The expression's value.
    pub fn eval(&self, row: &dyn RowSource, params: &[Value], env: &mut Env<'_>) -> Result<Value> {
        self.eval_ref(row, params, env).map(Datum::into_owned)
    }

    /// The expression as a condition; `None` is NULL.
    pub fn eval_bool(&self, row: &dyn RowSource, params: &[Value], env: &mut Env<'_>) -> Result<Option<bool>> {
        match self {
            Expr::Compare { op, left, right, blanks } => {
                let left = left.eval_ref(row, params, env)?;
                let right = right.eval_ref(row, params, env)?;
                let (left, right) = (left.as_ref(), right.as_ref());
                if left.is_null() || right.is_null() {
                    return Ok(None);
                }
                Ok(Some(op.holds(order(left, right, *blanks))))
            }
            Expr::And(list) => connect(list, false, row, params, env),
            Expr::Or(list) => connect(list, true, row, params, env),
            Expr::Not(expr) => Ok(expr.eval_bool(row, params, env)?.map(|value| !value)),
            Expr::IsNull { expr, negated } => {
                let null = expr.eval_ref(row, params, env)?.as_ref().is_null();
                Ok(Some(null != *negated))
            }
            Expr::IsBool { expr, wanted, negated } => {
                let is = expr.eval_bool(row, params, env)? == Some(*wanted);
                Ok(Some(is != *negated))
            }
            Expr::Distinct { left, right, blanks, negated } => {
                let left = left.eval_ref(row, params, env)?;
                let right = right.eval_ref(row, params, env)?;
                // NULLs are equal to each other here, which is how they are ordered.
                let distinct = order(left.as_ref(), right.as_ref(), *blanks) != Ordering::Equal;
                Ok(Some(distinct != *negated))
            }
            Expr::InList { expr, list, blanks, negated } => {
                let value = expr.eval_ref(row, params, env)?;
                let found = in_list(value.as_ref(), list, *blanks, row, params, env)?;
                Ok(found.map(|found| found != *negated))
            }
            Expr::AnyArray { op, left, array, array_type, all } => {
                let left = left.eval_ref(row, params, env)?;
                let array = array.eval_ref(row, params, env)?;
                any_array(*op, left.as_ref(), array.as_ref(), *array_type, *all)
            }
            Expr::Match { expr, pattern, matcher, negated } => {
                let text = expr.eval_ref(row, params, env)?;
                let pattern = pattern.eval_ref(row, params, env)?;
                match (text.as_ref(), pattern.as_ref()) {
                    (ValueRef::Text(text), ValueRef::Text(pattern)) => {
                        Ok(Some(matcher.matches(text, pattern)? != *negated))
                    }
                    _ => Ok(None),
                }
            }
            _ => truth(self.eval_ref(row, params, env)?.as_ref()),
        }
    }

    /// The expression's value, borrowed from row, parameters or the expression itself where possible.
    pub fn eval_ref<'a>(&'a self, row: &'a dyn RowSource, params: &'a [Value], env: &mut Env<'_>) -> Result<Datum<'a>> {
        match self {
            Expr::Column(i) => Ok(Datum::Ref(row.column(*i))),
            Expr::Const(value) => Ok(Datum::Ref(value.as_ref())),
            Expr::Param(i) => params
                .get(*i)
                .map(|value| Datum::Ref(value.as_ref()))
                .ok_or_else(|| Error::internal(format!("no value for parameter ${}", i + 1))),
            Expr::Arith { op, left, right } => {
                let left = left.eval_ref(row, params, env)?;
                let right = right.eval_ref(row, params, env)?;
                Ok(Datum::Ref(arith::compute(*op, left.as_ref(), right.as_ref())?))
            }
            Expr::Compare { .. }
            | Expr::And(_)
            | Expr::Or(_)
            | Expr::Not(_)
            | Expr::IsNull { .. }
            | Expr::IsBool { .. }
            | Expr::Distinct { .. }
            | Expr::InList { .. }
            | Expr::AnyArray { .. }
            | Expr::Match { .. } => self.eval_bool(row, params, env).map(Datum::bool),
            Expr::Negate(expr) => Ok(Datum::Ref(arith::negate(expr.eval_ref(row, params, env)?.as_ref())?)),
            Expr::Cast { expr, from, to, explicit } => {
                let value = expr.eval_ref(row, params, env)?;
                coerce::cast_datum(value, *from, *to, *explicit, env)
            }
            Expr::Call { function, args } => call::call(function, args, row, params, env).map(Datum::Owned),
            Expr::Coalesce(list) => {
                for expr in list {
                    let value = expr.eval_ref(row, params, env)?;
                    if !value.as_ref().is_null() {
                        return Ok(value);
                    }
                }
                Ok(Datum::Ref(ValueRef::Null))
            }
            Expr::Case { whens, otherwise } => {
                for (condition, result) in whens {
                    if condition.eval_bool(row, params, env)? == Some(true) {
                        return result.eval_ref(row, params, env);
                    }
                }
                match otherwise {
                    Some(expr) => expr.eval_ref(row, params, env),
                    None => Ok(Datum::Ref(ValueRef::Null)),
                }
            }
            Expr::Extreme { list, greatest } => extreme(list, *greatest, row, params, env),
            Expr::Outer(i) => Ok(Datum::Owned(env.outer.get(*i).cloned().unwrap_or(Value::Null))),
            Expr::External(external) => external.eval(row, params, env).map(Datum::Owned),
            Expr::Array { items, ty } => {
                let values = items.iter().map(|item| item.eval(row, params, env)).collect::<Result<Vec<_>>>()?;
                let items: Vec<_> = values.iter().map(Value::as_ref).collect();
                Ok(Datum::Owned(Value::Text(array::format(&items, *ty))))
            }
            Expr::ArrayCall { function, args, array_type } => {
                super::array::eval((*function, *array_type), args, row, params, env)
            }
            Expr::Field { record, field, ty } => match record.eval_ref(row, params, env)?.as_ref() {
                ValueRef::Text(text) => match record::field(text, *field) {
                    Some(text) => Value::parse_text(&text, ColumnType::new(*ty)).map(Datum::Owned),
                    None => Ok(Datum::Ref(ValueRef::Null)),
                },
                _ => Ok(Datum::Ref(ValueRef::Null)),
            },
            Expr::Subscript { array, array_type, index } => {
                let array = array.eval_ref(row, params, env)?;
                let index = index.eval_ref(row, params, env)?;
                subscript(array.as_ref(), *array_type, index.as_ref()).map(Datum::Owned)
            }
        }
    }
}

/// A value as a condition.
fn truth(value: ValueRef<'_>) -> Result<Option<bool>> {
    match value {
        ValueRef::Bool(value) => Ok(Some(value)),
        ValueRef::Null => Ok(None),
        other => Err(Error::internal(format!("{other:?} is not a condition"))),
    }
}

/// OR (`decided` true) or AND (`decided` false): the value that decides ends it, NULL is remembered.
fn connect(
    list: &[Expr],
    decided: bool,
    row: &dyn RowSource,
    params: &[Value],
    env: &mut Env<'_>,
) -> Result<Option<bool>> {
    let mut result = Some(!decided);
    for expr in list {
        match expr.eval_bool(row, params, env)? {
            Some(value) if value == decided => return Ok(Some(decided)),
            Some(_) => {}
            None => result = None,
        }
    }
    Ok(result)
}

fn in_list(
    value: ValueRef<'_>,
    list: &[Expr],
    blanks: Blanks,
    row: &dyn RowSource,
    params: &[Value],
    env: &mut Env<'_>,
) -> Result<Option<bool>> {
    if value.is_null() {
        return Ok(None);
    }
    let mut result = Some(false);
    for expr in list {
        let item = expr.eval_ref(row, params, env)?;
        match item.as_ref() {
            ValueRef::Null => result = None,
            item if order(value, item, blanks) == Ordering::Equal => return Ok(Some(true)),
            _ => {}
        }
    }
    Ok(result)
}

fn any_array(op: CmpOp, left: ValueRef<'_>, array: ValueRef<'_>, array_type: Type, all: bool) -> Result<Option<bool>> {
    let ValueRef::Text(text) = array else { return Ok(None) };
    let items = array::elements(text, array_type)?;
    let blanks = Blanks { left: array_type == Type::BpcharArray, right: array_type == Type::BpcharArray };
    let mut result = Some(all);
    for item in &items {
        let item = item.as_ref();
        if left.is_null() || item.is_null() {
            result = None;
        } else if op.holds(order(left, item, blanks)) != all {
            return Ok(Some(!all));
        }
    }
    Ok(result)
}

fn extreme<'a>(
    list: &'a [Expr],
    greatest: bool,
    row: &'a dyn RowSource,
    params: &'a [Value],
    env: &mut Env<'_>,
) -> Result<Datum<'a>> {
    let wanted = if greatest { Ordering::Greater } else { Ordering::Less };
    let mut best = Datum::Ref(ValueRef::Null);
    for expr in list {
        let value = expr.eval_ref(row, params, env)?;
        let better = best.as_ref().is_null() || compare(value.as_ref(), best.as_ref()) == wanted;
        if !value.as_ref().is_null() && better {
            best = value;
        }
    }
    Ok(best)
}

fn subscript(array: ValueRef<'_>, array_type: Type, index: ValueRef<'_>) -> Result<Value> {
    let (ValueRef::Text(text), Some(index)) = (array, index.as_i64()) else { return Ok(Value::Null) };
    let first = i64::from(!matches!(array_type, Type::Int2Vector | Type::OidVector));
    let mut items = array::elements(text, array_type)?;
    match usize::try_from(index - first) {
        Ok(at) if at < items.len() => Ok(items.swap_remove(at)),
        _ => Ok(Value::Null),
    }
}
