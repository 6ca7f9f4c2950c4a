//! What can be done with an array whose element type matters? Functions, operators and slices that PostgreSQL declares on `anyarray` and
//! `anyelement`: bound here, since only here the types are known, and computed on the elements (manual, section 9.19).

use super::coerce::{cast_implicit, fold, unify};
use super::operator::{comparable, no_operator};
use super::{Bound, CmpOp, Datum, Env, Expr, Params, RowSource};
use homenode_types::{ColumnType, Error, Result, SqlState, Type, Value, array, key};

/// What is done with the arguments; the first array among them has the type that the call names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArrayFunction {
    /// `array op array`.
    Compare(CmpOp),
    /// `array @> array`.
    Contains,
    /// `array && array`.
    Overlaps,
    /// `array_append(array, element)` and `array || element`.
    Append,
    /// `array_prepend(element, array)` and `element || array`.
    Prepend,
    /// `array_cat(array, array)` and `array || array`.
    Cat,
    /// `array_remove(array, element)`.
    Remove,
    /// `array_replace(array, element, element)`.
    Replace,
    /// `array_position(array, element [, integer])`.
    Position,
    /// `array_positions(array, element)`.
    Positions,
    /// `trim_array(array, integer)`.
    Trim,
    /// `array_dims(array)`.
    Dims,
    /// `array_ndims(array)`.
    Ndims,
    /// `array[integer : integer]`; a bound that was left out is NULL, and said to be so.
    Slice {
        /// There is a lower bound.
        lower: bool,
        /// There is an upper bound.
        upper: bool,
    },
}

impl ArrayFunction {
    /// What an argument is: an array, an element, or an integer.
    fn signature(name: &str) -> Option<(ArrayFunction, &'static [Argument])> {
        use Argument::{Array, Element, Integer};
        Some(match name {
            "array_append" => (ArrayFunction::Append, &[Array, Element]),
            "array_prepend" => (ArrayFunction::Prepend, &[Element, Array]),
            "array_cat" => (ArrayFunction::Cat, &[Array, Array]),
            "array_remove" => (ArrayFunction::Remove, &[Array, Element]),
            "array_replace" => (ArrayFunction::Replace, &[Array, Element, Element]),
            "array_position" => (ArrayFunction::Position, &[Array, Element, Integer]),
            "array_positions" => (ArrayFunction::Positions, &[Array, Element]),
            "trim_array" => (ArrayFunction::Trim, &[Array, Integer]),
            "array_dims" => (ArrayFunction::Dims, &[Array]),
            "array_ndims" => (ArrayFunction::Ndims, &[Array]),
            _ => return None,
        })
    }

    /// How the call is written, between its arguments if it is an operator.
    pub(super) fn symbol(self) -> &'static str {
        match self {
            ArrayFunction::Compare(op) => op.symbol(),
            ArrayFunction::Contains => "@>",
            ArrayFunction::Overlaps => "&&",
            ArrayFunction::Append => "array_append",
            ArrayFunction::Prepend => "array_prepend",
            ArrayFunction::Cat => "||",
            ArrayFunction::Remove => "array_remove",
            ArrayFunction::Replace => "array_replace",
            ArrayFunction::Position => "array_position",
            ArrayFunction::Positions => "array_positions",
            ArrayFunction::Trim => "trim_array",
            ArrayFunction::Dims => "array_dims",
            ArrayFunction::Ndims => "array_ndims",
            ArrayFunction::Slice { .. } => "[:]",
        }
    }

    pub(super) fn is_operator(self) -> bool {
        matches!(self, Self::Compare(_) | Self::Contains | Self::Overlaps | Self::Cat)
    }

    /// Whether it is NULL as soon as an argument is.
    fn is_strict(self) -> bool {
        !matches!(
            self,
            Self::Append
                | Self::Prepend
                | Self::Cat
                | Self::Remove
                | Self::Replace
                | Self::Position
                | Self::Positions
                | Self::Slice { .. }
        )
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Argument {
    Array,
    Element,
    Integer,
}

/// Is it an array that these functions work on? The vectors of catalogs begin at 0 and go in as arrays do.
fn is_array(ty: Type) -> bool {
    ty.element().is_some()
}

/// Binds a call by name; `None` if the name is none of these functions'.
pub(super) fn by_name(name: &str, args: &[Bound], params: &mut Params) -> Result<Option<Bound>> {
    let Some((function, wanted)) = ArrayFunction::signature(name) else { return Ok(None) };
    let optional = usize::from(function == ArrayFunction::Position);
    let fits = (wanted.len() - optional..=wanted.len()).contains(&args.len())
        && args.iter().zip(wanted).all(|(arg, wanted)| match wanted {
            Argument::Array => is_array(arg.ty.ty) || arg.ty.ty == Type::Unknown,
            _ => true,
        });
    if !fits {
        return Ok(None);
    }
    bind(function, wanted, args.to_vec(), params).map(Some)
}

/// Gives arrays and elements one element type, in which all of them can be written.
fn bind(function: ArrayFunction, wanted: &[Argument], args: Vec<Bound>, params: &mut Params) -> Result<Bound> {
    let elements: Vec<ColumnType> = args
        .iter()
        .zip(wanted)
        .filter_map(|(arg, wanted)| match wanted {
            Argument::Array => arg.ty.ty.element().map(ColumnType::new),
            Argument::Element => Some(arg.ty),
            Argument::Integer => None,
        })
        .collect();
    let vector = args.iter().map(|arg| arg.ty.ty).find(|ty| matches!(ty, Type::Int2Vector | Type::OidVector));
    let element = unify(&elements, "ARRAY")?.ty;
    let array_type = match vector {
        Some(vector) => vector,
        None => element.array().ok_or_else(|| Error::unsupported(format!("type {element}[]")))?,
    };
    let args = args
        .into_iter()
        .zip(wanted)
        .map(|(arg, wanted)| {
            let to = match wanted {
                Argument::Array => array_type,
                Argument::Element => element,
                Argument::Integer => Type::Int4,
            };
            Ok(cast_implicit(arg, to, params)?.expr)
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(make(function, args, array_type))
}

fn make(function: ArrayFunction, args: Vec<Expr>, array_type: Type) -> Bound {
    use ArrayFunction::*;
    let ty = match function {
        Compare(_) | Contains | Overlaps => Type::Bool,
        Position | Ndims => Type::Int4,
        Positions => Type::Int4Array,
        Dims => Type::Text,
        Append | Prepend | Cat | Remove | Replace | Trim | Slice { .. } => array_type,
    };
    Bound::new(fold(Expr::ArrayCall { function, args, array_type }), ty)
}

/// `left symbol right` where a side is an array; `None` if none is, or the operator is none of arrays'.
pub(super) fn operator(symbol: &str, left: &Bound, right: &Bound, params: &mut Params) -> Result<Option<Bound>> {
    use Argument::{Array, Element};
    let (a, b) = (left.ty.ty, right.ty.ty);
    if !is_array(a) && !is_array(b) {
        return Ok(None);
    }
    let side = |ty: Type| if is_array(ty) || ty == Type::Unknown { Array } else { Element };
    let (function, swapped) = match symbol {
        "@>" => (ArrayFunction::Contains, false),
        "<@" => (ArrayFunction::Contains, true),
        "&&" => (ArrayFunction::Overlaps, false),
        "||" => match (side(a), side(b)) {
            (Array, Element) => (ArrayFunction::Append, false),
            (Element, _) => (ArrayFunction::Prepend, false),
            _ => (ArrayFunction::Cat, false),
        },
        _ => return Ok(None),
    };
    if symbol != "||" && [a, b].iter().any(|ty| side(*ty) == Element) {
        return Err(no_operator(symbol, a, b));
    }
    let wanted = [side(a), side(b)];
    let (mut args, mut wanted) = ([left.clone(), right.clone()], wanted);
    if swapped {
        args.reverse();
        wanted.reverse();
    }
    bind(function, &wanted, args.into(), params).map(Some)
}

/// `left op right`, arrays of comparable elements; both have their types.
pub(super) fn comparison(op: CmpOp, left: Bound, right: Bound, params: &mut Params) -> Result<Bound> {
    let (a, b) = (left.ty.ty, right.ty.ty);
    let fits = a.element().zip(b.element()).is_some_and(|(a, b)| comparable(a, b));
    if !fits {
        return Err(no_operator(op.symbol(), a, b));
    }
    if a == b {
        return Ok(make(ArrayFunction::Compare(op), vec![left.expr, right.expr], a));
    }
    bind(ArrayFunction::Compare(op), &[Argument::Array, Argument::Array], vec![left, right], params)
}

/// `array[lower : upper]`.
pub(super) fn slice(array: Bound, lower: Option<Bound>, upper: Option<Bound>, params: &mut Params) -> Result<Bound> {
    let array_type = array.ty.ty;
    let function = ArrayFunction::Slice { lower: lower.is_some(), upper: upper.is_some() };
    let mut args = vec![array.expr];
    for bound in [lower, upper] {
        let bound = bound.map(|bound| cast_implicit(bound, Type::Int4, params)).transpose()?;
        args.push(bound.map_or(Expr::Const(Value::Null), |bound| bound.expr));
    }
    Ok(make(function, args, array_type))
}

/// Computes a call.
pub(super) fn eval<'a>(
    (function, array_type): (ArrayFunction, Type),
    args: &'a [Expr],
    row: &'a dyn RowSource,
    params: &'a [Value],
    env: &mut Env<'_>,
) -> Result<Datum<'a>> {
    let values = args.iter().map(|arg| arg.eval(row, params, env)).collect::<Result<Vec<_>>>()?;
    if function.is_strict() && values.iter().any(Value::is_null) {
        return Ok(Datum::Owned(Value::Null));
    }
    compute(function, &values, array_type).map(Datum::Owned)
}

fn compute(function: ArrayFunction, args: &[Value], ty: Type) -> Result<Value> {
    use ArrayFunction::*;
    let items = |value: &Value| match value {
        Value::Text(text) => array::elements(text, ty),
        _ => Ok(Vec::new()),
    };
    let whole = |items: &[Value]| Ok(array_of(items, ty));
    match function {
        Compare(op) => Ok(Value::Bool(op.holds(key_of(&args[0], ty).cmp(&key_of(&args[1], ty))))),
        Contains => contains(&keys(&items(&args[0])?, ty), &keys(&items(&args[1])?, ty)),
        Overlaps => {
            let (a, b) = (keys(&items(&args[0])?, ty), keys(&items(&args[1])?, ty));
            Ok(Value::Bool(a.iter().flatten().any(|key| b.iter().flatten().any(|other| key == other))))
        }
        Append => whole(&[items(&args[0])?, vec![args[1].clone()]].concat()),
        Prepend => whole(&[vec![args[0].clone()], items(&args[1])?].concat()),
        Cat => match (&args[0], &args[1]) {
            (Value::Null, one) | (one, Value::Null) => Ok(one.clone()),
            (a, b) => whole(&[items(a)?, items(b)?].concat()),
        },
        Remove | Replace if args[0].is_null() => Ok(Value::Null),
        Remove => {
            let kept: Vec<Value> = items(&args[0])?.into_iter().filter(|item| !same(item, &args[1], ty)).collect();
            whole(&kept)
        }
        Replace => {
            let items = items(&args[0])?.into_iter();
            let items: Vec<Value> =
                items.map(|item| if same(&item, &args[1], ty) { args[2].clone() } else { item }).collect();
            whole(&items)
        }
        Position | Positions if args[0].is_null() => Ok(Value::Null),
        Position => {
            let start = args
                .get(2)
                .map_or(Some(1), Value::as_i64)
                .ok_or_else(|| Error::new(SqlState::NULL_VALUE_NOT_ALLOWED, "initial position must not be null"))?;
            Ok(places(&items(&args[0])?, &args[1], ty)
                .find(|at| *at >= start)
                .map_or(Value::Null, |at| Value::Int4(at as i32)))
        }
        Positions => {
            let found: Vec<Value> = places(&items(&args[0])?, &args[1], ty).map(|at| Value::Int4(at as i32)).collect();
            Ok(array_of(&found, Type::Int4Array))
        }
        Trim => {
            let (mut items, count) = (items(&args[0])?, args[1].as_i64().unwrap_or_default());
            let Some(left) = usize::try_from(count).ok().and_then(|count| items.len().checked_sub(count)) else {
                let message = format!("number of elements to trim must be between 0 and {}", items.len());
                return Err(Error::new(SqlState::ARRAY_SUBSCRIPT_ERROR, message));
            };
            items.truncate(left);
            whole(&items)
        }
        Dims => Ok(match items(&args[0])?.len() {
            0 => Value::Null,
            n => Value::Text(format!("[{}:{}]", first(ty), first(ty) + n as i64 - 1)),
        }),
        Ndims => Ok(if items(&args[0])?.is_empty() { Value::Null } else { Value::Int4(1) }),
        Slice { lower, upper } => {
            // A bound that is NULL makes the whole NULL; one that is not there is the array's own.
            if args[0].is_null() || lower && args[1].is_null() || upper && args[2].is_null() {
                return Ok(Value::Null);
            }
            let items = items(&args[0])?;
            let from = args[1].as_i64().unwrap_or(i64::MIN).max(first(ty)) - first(ty);
            let to = args[2]
                .as_i64()
                .unwrap_or(i64::MAX)
                .saturating_sub(first(ty))
                .saturating_add(1)
                .min(items.len() as i64);
            whole(if from < to { &items[from as usize..to as usize] } else { &[] })
        }
    }
}

/// The first index.
fn first(ty: Type) -> i64 {
    i64::from(!matches!(ty, Type::Int2Vector | Type::OidVector))
}

fn array_of(items: &[Value], ty: Type) -> Value {
    Value::Text(array::format(&items.iter().map(Value::as_ref).collect::<Vec<_>>(), ty))
}

/// Bytes that sort as values of this type do.
fn key_of(value: &Value, ty: Type) -> Vec<u8> {
    let mut bytes = Vec::new();
    key::encode_column(value.as_ref(), ty, &mut bytes);
    bytes
}

/// The elements as such bytes; NULLs, which equal nothing, as none.
fn keys(items: &[Value], ty: Type) -> Vec<Option<Vec<u8>>> {
    let element = ty.element().unwrap_or(Type::Text);
    items.iter().map(|item| (!item.is_null()).then(|| key_of(item, element))).collect()
}

/// Whether each of `parts` is in `all`; a NULL is nowhere.
fn contains(all: &[Option<Vec<u8>>], parts: &[Option<Vec<u8>>]) -> Result<Value> {
    Ok(Value::Bool(parts.iter().all(|part| part.is_some() && all.contains(part))))
}

/// Is it the same element? Two NULLs are.
fn same(a: &Value, b: &Value, ty: Type) -> bool {
    let element = ty.element().unwrap_or(Type::Text);
    key_of(a, element) == key_of(b, element)
}

fn places<'a>(items: &'a [Value], wanted: &'a Value, ty: Type) -> impl Iterator<Item = i64> + 'a {
    let found = items.iter().zip(first(ty)..).filter(move |(item, _)| same(item, wanted, ty));
    found.map(|(_, at)| at)
}
