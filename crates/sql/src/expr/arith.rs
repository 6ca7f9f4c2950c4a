//! What are two numbers, or a point in time and an interval, under `+ - * / % ^ & | # << >>`?

use super::time;
use homenode_types::{Decimal, Error, Interval, Result, SqlState, Type, ValueRef, divide, round_to_scale};

/// Arithmetic operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum ArithOp {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Pow,
    BitAnd,
    BitOr,
    BitXor,
    ShiftLeft,
    ShiftRight,
}

impl ArithOp {
    /// As SQL writes it.
    pub fn symbol(self) -> &'static str {
        match self {
            ArithOp::Add => "+",
            ArithOp::Sub => "-",
            ArithOp::Mul => "*",
            ArithOp::Div => "/",
            ArithOp::Mod => "%",
            ArithOp::Pow => "^",
            ArithOp::BitAnd => "&",
            ArithOp::BitOr => "|",
            ArithOp::BitXor => "#",
            ArithOp::ShiftLeft => "<<",
            ArithOp::ShiftRight => ">>",
        }
    }
}

/// The type of `left op right` (pg_operator.dat); `None` when there is no such operator.
pub(super) fn result_type(op: ArithOp, left: Type, right: Type) -> Option<Type> {
    use ArithOp::*;
    if left.is_number() && right.is_number() {
        return number_type(op, left, right);
    }
    Some(match (op, left, right) {
        (Add | Sub, Type::Date, ty) if ty.is_integer() && ty != Type::Int8 => Type::Date,
        (Add, ty, Type::Date) if ty.is_integer() && ty != Type::Int8 => Type::Date,
        (Sub, Type::Date, Type::Date) => Type::Int4,
        (Add, Type::Date, Type::Time) | (Add, Type::Time, Type::Date) => Type::Timestamp,
        (Add | Sub, Type::Date, Type::Interval) | (Add, Type::Interval, Type::Date) => Type::Timestamp,
        (Add | Sub, Type::Timestamp | Type::Timestamptz | Type::Time, Type::Interval) => left,
        (Add, Type::Interval, Type::Timestamp | Type::Timestamptz | Type::Time) => right,
        (Sub, a, b) if is_moment(a) && is_moment(b) => Type::Interval,
        (Sub, Type::Time, Type::Time) => Type::Interval,
        (Add | Sub, Type::Interval, Type::Interval) => Type::Interval,
        (Mul | Div, Type::Interval, ty) if ty.is_number() => Type::Interval,
        (Mul, ty, Type::Interval) if ty.is_number() => Type::Interval,
        _ => return None,
    })
}

fn is_moment(ty: Type) -> bool {
    matches!(ty, Type::Date | Type::Timestamp | Type::Timestamptz)
}

fn number_type(op: ArithOp, left: Type, right: Type) -> Option<Type> {
    use ArithOp::*;
    let integers = left.is_integer() && right.is_integer();
    match op {
        BitAnd | BitOr | BitXor => integers.then(|| wider(left, right)),
        ShiftLeft | ShiftRight => (integers && right != Type::Int8).then_some(left),
        Pow if left == Type::Numeric || right == Type::Numeric => {
            Some(if left == right || left.is_integer() || right.is_integer() { Type::Numeric } else { Type::Float8 })
        }
        Pow => Some(Type::Float8),
        _ if integers => Some(wider(left, right)),
        Mod if is_float(left) || is_float(right) => None,
        _ if left == Type::Float4 && right == Type::Float4 => Some(Type::Float4),
        _ if is_float(left) || is_float(right) => Some(Type::Float8),
        _ => Some(Type::Numeric),
    }
}

fn is_float(ty: Type) -> bool {
    matches!(ty, Type::Float4 | Type::Float8)
}

/// The wider of two integer types.
fn wider(a: Type, b: Type) -> Type {
    // The discriminants are in the order of the widths.
    a.max(b)
}

/// Computes `left op right`; NULL when a side is.
#[inline]
pub(super) fn compute<'a>(op: ArithOp, left: ValueRef<'_>, right: ValueRef<'_>) -> Result<ValueRef<'a>> {
    if let (ValueRef::Int4(a), ValueRef::Int4(b)) = (left, right) {
        // Every result of 32-bit operands but a shift's fits 64 bits, and the range check is one comparison.
        let wide = match op {
            ArithOp::Add => a as i64 + b as i64,
            ArithOp::Sub => a as i64 - b as i64,
            ArithOp::Mul => a as i64 * b as i64,
            _ => return compute_other(op, left, right),
        };
        return match i32::try_from(wide) {
            Ok(value) => Ok(ValueRef::Int4(value)),
            Err(_) => Err(Error::out_of_range("integer")),
        };
    }
    compute_other(op, left, right)
}

fn compute_other<'a>(op: ArithOp, left: ValueRef<'_>, right: ValueRef<'_>) -> Result<ValueRef<'a>> {
    if left.is_null() || right.is_null() {
        return Ok(ValueRef::Null);
    }
    if let (Some(a), Some(b)) = (integer(left), integer(right)) {
        return integers(op, a, b, left, right);
    }
    if let (Some(a), Some(b)) = (left.as_decimal(), right.as_decimal()) {
        return decimals(op, a, b).map(ValueRef::Numeric);
    }
    if let (ValueRef::Float4(a), ValueRef::Float4(b)) = (left, right)
        && op != ArithOp::Pow
    {
        return float4(op, a, b).map(ValueRef::Float4);
    }
    if let (Some(a), Some(b)) = (left.as_f64(), right.as_f64()) {
        return float8(op, a, b).map(ValueRef::Float8);
    }
    time::arithmetic(op, left, right)
        .unwrap_or_else(|| Err(Error::internal(format!("{left:?} {} {right:?}", op.symbol()))))
}

fn integer(value: ValueRef<'_>) -> Option<i64> {
    match value {
        ValueRef::Oid(_) => None,
        other => other.as_i64(),
    }
}

/// Bits of an integer value.
fn width(value: ValueRef<'_>) -> u32 {
    match value {
        ValueRef::Int2(_) => 16,
        ValueRef::Int4(_) => 32,
        _ => 64,
    }
}

fn integers<'a>(op: ArithOp, a: i64, b: i64, left: ValueRef<'_>, right: ValueRef<'_>) -> Result<ValueRef<'a>> {
    let bits = match op {
        ArithOp::ShiftLeft | ArithOp::ShiftRight => width(left),
        ArithOp::Pow => return float8(op, a as f64, b as f64).map(ValueRef::Float8),
        _ => width(left).max(width(right)),
    };
    let result = match op {
        ArithOp::Add => a.checked_add(b),
        ArithOp::Sub => a.checked_sub(b),
        ArithOp::Mul => a.checked_mul(b),
        ArithOp::Div | ArithOp::Mod if b == 0 => return Err(Error::division_by_zero()),
        ArithOp::Div => a.checked_div(b),
        ArithOp::Mod => Some(a.wrapping_rem(b)),
        ArithOp::BitAnd => Some(a & b),
        ArithOp::BitOr => Some(a | b),
        ArithOp::BitXor => Some(a ^ b),
        // The count is taken modulo the width, as the processor's shift of PostgreSQL's C does.
        ArithOp::ShiftLeft => Some(truncate(a.wrapping_shl(b as u32 & (bits - 1)), bits)),
        ArithOp::ShiftRight | ArithOp::Pow => Some(a.wrapping_shr(b as u32 & (bits - 1))),
    };
    fit(result, bits)
}

fn truncate(value: i64, bits: u32) -> i64 {
    match bits {
        16 => value as i16 as i64,
        32 => value as i32 as i64,
        _ => value,
    }
}

fn fit<'a>(value: Option<i64>, bits: u32) -> Result<ValueRef<'a>> {
    match (bits, value) {
        (16, Some(v)) => i16::try_from(v).map(ValueRef::Int2).map_err(|_| Error::out_of_range("smallint")),
        (32, Some(v)) => i32::try_from(v).map(ValueRef::Int4).map_err(|_| Error::out_of_range("integer")),
        (_, Some(v)) => Ok(ValueRef::Int8(v)),
        (_, None) => Err(Error::out_of_range("bigint")),
    }
}

fn decimals(op: ArithOp, a: Decimal, b: Decimal) -> Result<Decimal> {
    let overflow = || Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format");
    let common = a.scale().max(b.scale());
    let (result, scale) = match op {
        ArithOp::Add => (a.checked_add(b), common),
        ArithOp::Sub => (a.checked_sub(b), common),
        ArithOp::Mul => (a.checked_mul(b), a.scale() + b.scale()),
        ArithOp::Div => return divide(a, b),
        ArithOp::Mod if b.is_zero() => return Err(Error::division_by_zero()),
        ArithOp::Mod => (a.checked_rem(b), common),
        ArithOp::Pow => return super::functions::numeric_power(a, b),
        _ => return Err(Error::internal(format!("numeric {} numeric", op.symbol()))),
    };
    // Zeros after the point that the library leaves off belong to the result.
    round_to_scale(result.ok_or_else(overflow)?, scale.min(28) as i32)
}

fn float8(op: ArithOp, a: f64, b: f64) -> Result<f64> {
    let result = match op {
        ArithOp::Add => a + b,
        ArithOp::Sub => a - b,
        ArithOp::Mul => a * b,
        ArithOp::Div if b == 0.0 && !a.is_nan() => return Err(Error::division_by_zero()),
        ArithOp::Div => a / b,
        ArithOp::Mod => a % b,
        ArithOp::Pow => return super::functions::float_power(a, b),
        _ => return Err(Error::internal(format!("double precision {} double precision", op.symbol()))),
    };
    let may_vanish = matches!(op, ArithOp::Mul | ArithOp::Div);
    check_float(result, a.is_infinite() || b.is_infinite(), !may_vanish || a == 0.0 || b.is_infinite() || b == 0.0)
}

/// Overflow and underflow are errors unless the operands explain them (float8_mul and its kind).
pub(super) fn check_float(result: f64, infinite_allowed: bool, zero_allowed: bool) -> Result<f64> {
    let message = match result {
        _ if result.is_infinite() && !infinite_allowed => "value out of range: overflow",
        0.0 if !zero_allowed => "value out of range: underflow",
        _ => return Ok(result),
    };
    Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message))
}

fn float4(op: ArithOp, a: f32, b: f32) -> Result<f32> {
    let wide = float8(op, a as f64, b as f64)?;
    let narrow = wide as f32;
    check_float(narrow as f64, wide.is_infinite(), wide == 0.0)?;
    Ok(narrow)
}

/// Unary minus.
pub(super) fn negate<'a>(value: ValueRef<'_>) -> Result<ValueRef<'a>> {
    let interval = |i: Interval| {
        Some(Interval { months: i.months.checked_neg()?, days: i.days.checked_neg()?, us: i.us.checked_neg()? })
    };
    Ok(match value {
        ValueRef::Null => ValueRef::Null,
        ValueRef::Float4(v) => ValueRef::Float4(-v),
        ValueRef::Float8(v) => ValueRef::Float8(-v),
        ValueRef::Numeric(v) => ValueRef::Numeric(-v),
        ValueRef::Interval(v) => ValueRef::Interval(interval(v).ok_or_else(|| Error::out_of_range("interval"))?),
        other => match integer(other) {
            Some(v) => fit(v.checked_neg(), width(other))?,
            None => return Err(Error::internal(format!("minus {other:?}"))),
        },
    })
}
