//! Which key bytes stand for a value? Values of comparisons, brought to the family of the key's column.
//!
//! The binder compares numbers of different types as they are, so `int4_column < 2.5` reaches the planner with a bare
//! column. The keys of integers, floats and numerics differ; here a value becomes one of the column's own family without
//! changing which rows satisfy the comparison.

use homenode_types::{Decimal, Error, Result, Type, Value, ValueRef, decimal_to_f64, key};

/// What a value means as an end of a range of a column's keys.
#[derive(Debug, PartialEq)]
enum Fitted {
    /// This value, and whether it is in the range.
    At(Value, bool),
    /// Below all values of the column.
    Below,
    /// Above all of them.
    Above,
}

/// Appends the key of `value` for an equality; false when no value of the column can be equal.
///
/// # Errors
/// 0A000 for families that do not compare by key.
#[inline]
pub(crate) fn encode_equal(value: ValueRef<'_>, ty: Type, out: &mut Vec<u8>) -> Result<bool> {
    if value.is_null() {
        return Ok(false);
    }
    if same_family(value, ty) {
        key::encode_column(value, ty, out);
        return Ok(true);
    }
    // An end that moved is no equal value.
    match (fitted(value, ty, true, true)?, fitted(value, ty, false, true)?) {
        (Fitted::At(low, true), Fitted::At(high, true)) if low == high => {
            key::encode_column(low.as_ref(), ty, out);
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// Appends the key that a range begins at (`lower`) or ends at; gives whether it is in the range, or `None` when the range
/// is empty because of it. An end beyond all values leaves the bytes as they are, with a marker before or after all values.
///
/// # Errors
/// 0A000 for families that do not compare by key.
pub(crate) fn encode_end(
    value: ValueRef<'_>,
    ty: Type,
    lower: bool,
    inclusive: bool,
    out: &mut Vec<u8>,
) -> Result<Option<bool>> {
    if value.is_null() {
        return Ok(None);
    }
    if same_family(value, ty) {
        key::encode_column(value, ty, out);
        return Ok(Some(inclusive));
    }
    Ok(match (fitted(value, ty, lower, inclusive)?, lower) {
        (Fitted::At(value, inclusive), _) => {
            key::encode_column(value.as_ref(), ty, out);
            Some(inclusive)
        }
        (Fitted::Below, true) => {
            out.push(0);
            Some(true)
        }
        (Fitted::Above, false) => {
            key::encode_value(ValueRef::Null, out);
            Some(false)
        }
        (Fitted::Above, true) | (Fitted::Below, false) => None,
    })
}

#[inline]
fn same_family(value: ValueRef<'_>, ty: Type) -> bool {
    match value {
        ValueRef::Null => true,
        ValueRef::Int2(_) | ValueRef::Int4(_) | ValueRef::Int8(_) | ValueRef::Oid(_) => {
            ty.is_integer() || ty.is_oid_like()
        }
        ValueRef::Float4(_) | ValueRef::Float8(_) => matches!(ty, Type::Float4 | Type::Float8),
        ValueRef::Numeric(_) => ty == Type::Numeric,
        ValueRef::Text(_) => ty.is_text(),
        ValueRef::Bool(_) => ty == Type::Bool,
        ValueRef::Bytea(_) => ty == Type::Bytea,
        ValueRef::Jsonb(_) => ty == Type::Jsonb,
        ValueRef::Date(_) => ty == Type::Date,
        ValueRef::Time(_) => ty == Type::Time,
        ValueRef::Timestamp(_) => ty == Type::Timestamp,
        ValueRef::Timestamptz(_) => ty == Type::Timestamptz,
        ValueRef::Interval(_) => ty == Type::Interval,
        ValueRef::Uuid(_) => ty == Type::Uuid,
    }
}

fn fitted(value: ValueRef<'_>, ty: Type, lower: bool, inclusive: bool) -> Result<Fitted> {
    let as_integer = |floor: f64, ceiling: f64| {
        let whole = floor == ceiling;
        let end = if lower { ceiling } else { floor };
        // 2^63 itself is beyond bigint; both bounds are exact as floats.
        if end >= 9_223_372_036_854_775_808.0 || end.is_nan() {
            Fitted::Above
        } else if end < -9_223_372_036_854_775_808.0 {
            Fitted::Below
        } else {
            Fitted::At(Value::Int8(end as i64), inclusive || !whole)
        }
    };
    match value {
        ValueRef::Numeric(number) if ty.is_integer() => {
            let end = if lower { number.ceil() } else { number.floor() };
            Ok(match i64::try_from(end) {
                Ok(integer) => Fitted::At(Value::Int8(integer), inclusive || end != number),
                Err(_) if number.is_sign_negative() => Fitted::Below,
                Err(_) => Fitted::Above,
            })
        }
        ValueRef::Float8(number) if ty.is_integer() => Ok(as_integer(number.floor(), number.ceil())),
        ValueRef::Float4(number) if ty.is_integer() => {
            Ok(as_integer(f64::from(number).floor(), f64::from(number).ceil()))
        }
        ValueRef::Numeric(number) if matches!(ty, Type::Float4 | Type::Float8) => {
            Ok(Fitted::At(Value::Float8(decimal_to_f64(number)), inclusive))
        }
        _ => match value.as_i64() {
            Some(integer) if ty == Type::Numeric => Ok(Fitted::At(Value::Numeric(Decimal::from(integer)), inclusive)),
            Some(integer) if matches!(ty, Type::Float4 | Type::Float8) => {
                Ok(Fitted::At(Value::Float8(integer as f64), inclusive))
            }
            _ => Err(Error::unsupported(format!("a comparison of a key of type {ty} with a value of another family"))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn int_key(number: i64) -> Vec<u8> {
        let mut key = Vec::new();
        key::encode_i64(number, &mut key);
        key
    }

    #[test]
    fn fractions_equal_no_integer() {
        let mut out = Vec::new();
        assert!(!encode_equal(ValueRef::Float8(2.5), Type::Int4, &mut out).unwrap());
        assert!(encode_equal(ValueRef::Numeric(Decimal::new(50, 1)), Type::Int4, &mut out).unwrap());
        assert_eq!(out, int_key(5));
        assert!(!encode_equal(ValueRef::Null, Type::Int4, &mut Vec::new()).unwrap());
    }

    #[test]
    fn ends_move_to_the_next_integer_inside() {
        let end = |value: f64, lower: bool, inclusive: bool| {
            let mut out = Vec::new();
            let inside = encode_end(ValueRef::Float8(value), Type::Int8, lower, inclusive, &mut out).unwrap();
            (inside, out)
        };
        assert_eq!(end(2.5, true, false), (Some(true), int_key(3)));
        assert_eq!(end(2.5, false, false), (Some(true), int_key(2)));
        assert_eq!(end(2.0, false, false), (Some(false), int_key(2)));
        assert_eq!(end(1e30, true, true).0, None);
        assert_eq!(end(-1e30, false, true).0, None);
        assert!(end(-1e30, true, true).1 < int_key(i64::MIN));
        assert!(end(1e30, false, true).1 > int_key(i64::MAX));
    }
}
