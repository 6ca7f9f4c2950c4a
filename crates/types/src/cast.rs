//! Which type turns into which, when, and how? (pg_cast.dat and the cast functions.)

use std::borrow::Cow;

use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;

use crate::datetime::round_time;
use crate::decimal::{apply_typmod, decimal_from_f64, overflow, round_to_scale};
use crate::error::{Error, Result, SqlState};
use crate::text_in::{char_limit, truncate_name};
use crate::ty::{Category, ColumnType, Type};
use crate::value::{DAY_US, Interval, Value, ValueRef, trim_blanks};

/// Where a cast is asked for; each context allows what the ones before it allow, and more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CastContext {
    /// In an expression, unasked.
    Implicit,
    /// Storing into a column.
    Assignment,
    /// `CAST` or `::`.
    Explicit,
}

/// May `from` be cast to `to` in this context? Unknown literals go to every type.
pub fn can_coerce(from: Type, to: Type, context: CastContext) -> bool {
    from == to || from == Type::Unknown || cast_context(from, to).is_some_and(|c| c <= context)
}

/// The first context that allows the cast.
fn cast_context(from: Type, to: Type) -> Option<CastContext> {
    use CastContext::*;
    use Type::*;
    let rank = |ty| match ty {
        Int2 => Some(0),
        Int4 => Some(1),
        Int8 => Some(2),
        Numeric => Some(3),
        Float4 => Some(4),
        Float8 => Some(5),
        _ => None,
    };
    if let (Some(a), Some(b)) = (rank(from), rank(to)) {
        return Some(if a < b { Implicit } else { Assignment });
    }
    let oid_alias = |ty: Type| ty.is_oid_like() && ty != Xid;
    Some(match (from, to) {
        (Name, Varchar | Bpchar) => Assignment,
        _ if from.is_string() && to.is_string() => Implicit,
        (Char | PgNodeTree, Text) => Implicit,
        (Char, Varchar | Bpchar) | (Text | Varchar | Bpchar, Char) => Assignment,
        (Date, Timestamp | Timestamptz) | (Timestamp, Timestamptz) | (Time, Interval) => Implicit,
        (Timestamp | Timestamptz, Date | Time) | (Timestamptz, Timestamp) => Assignment,
        (Interval, Time) => Assignment,
        (Int4, Bool | Char) | (Bool | Char, Int4) => Explicit,
        (Int2 | Int4 | Int8, _) if oid_alias(to) => Implicit,
        (Text | Varchar, Regclass) => Implicit,
        (_, Int4 | Int8) if oid_alias(from) => Assignment,
        (Oid, _) if oid_alias(to) => Implicit,
        (_, Oid) if oid_alias(from) => Implicit,
        (Json, Jsonb) | (Jsonb, Json) => Assignment,
        (Jsonb, Bool | Int2 | Int4 | Int8 | Float4 | Float8 | Numeric) => Explicit,
        (Int2Vector, Int2Array) | (OidVector, OidArray) => Implicit,
        // Through text: every type can be written into a string column, and be read from a string
        // when asked to.
        _ if to.category() == Category::String && from.category() != Category::Pseudo => Assignment,
        _ if from.category() == Category::String && to.category() != Category::Pseudo => Explicit,
        _ => return arrays_context(from, to),
    })
}

/// An array goes where its elements go (find_coercion_pathway in parse_coerce.c).
fn arrays_context(from: Type, to: Type) -> Option<CastContext> {
    match (from.element()?, to.element()?) {
        (a, b) if a == b => Some(CastContext::Implicit),
        (a, b) => cast_context(a, b),
    }
}

/// Turns a value into `to`, applying its modifier. Text is read as the type's input function would,
/// other values are written as text for the character types. `explicit` is a cast that was asked
/// for: it cuts text that is too long instead of failing.
/// Errors: those of the input functions; `22003` when a number does not fit; `42846` when there is no cast.
pub fn coerce(value: Value, to: ColumnType, explicit: bool) -> Result<Value> {
    let value = convert(value, to, explicit)?;
    apply_modifier(value, to, explicit)
}

/// Applies length, precision or digits of a second; the value is of type `to` already.
fn apply_modifier(value: Value, to: ColumnType, explicit: bool) -> Result<Value> {
    if to.typmod < 0 {
        return Ok(value);
    }
    Ok(match value {
        Value::Text(s) => Value::Text(char_limit(Cow::Owned(s), to, explicit)?.into_owned()),
        Value::Numeric(d) if to.ty == Type::Numeric => Value::Numeric(apply_typmod(d, to.typmod)?),
        Value::Time(us) => Value::Time(round_time(us, to.typmod)),
        Value::Timestamp(us) => Value::Timestamp(round_time(us, to.typmod)),
        Value::Timestamptz(us) => Value::Timestamptz(round_time(us, to.typmod)),
        other => other,
    })
}

fn convert(value: Value, to: ColumnType, explicit: bool) -> Result<Value> {
    let ty = to.ty;
    match (value, ty) {
        (Value::Null, _) => Ok(Value::Null),
        (v @ Value::Int4(_), Type::Int4) | (v @ Value::Int8(_), Type::Int8) => Ok(v),
        (Value::Text(s), _) => convert_text(s, to, explicit),
        (Value::Jsonb(text), _) => convert_jsonb(text, to),
        (v, Type::Text | Type::Varchar | Type::Bpchar | Type::Name | Type::Char | Type::Unknown) => {
            Ok(Value::Text(text_of(v.as_ref(), ty)))
        }
        (Value::Bool(b), Type::Int4) => Ok(Value::Int4(b.into())),
        (Value::Int4(i), Type::Bool) => Ok(Value::Bool(i != 0)),
        (v, _) if ty.is_number() => convert_number(&v, ty),
        (v, _) if ty.is_oid_like() => convert_oid(&v, ty),
        (v, _) => convert_other(v, ty),
    }
}

fn convert_text(s: String, to: ColumnType, explicit: bool) -> Result<Value> {
    match to.ty {
        Type::Name => Ok(Value::Text(truncate_name(&s).to_string())),
        // Text is read, a json is one already; a second look costs less than to know which this is.
        Type::Json => {
            crate::json::check(&s)?;
            Ok(Value::Text(s))
        }
        Type::Char => Ok(Value::Text(s.chars().next().map(String::from).unwrap_or_default())),
        _ if to.ty.is_text() && to.ty.element().is_none() => Ok(Value::Text(s)),
        // The modifier is applied by the caller, who knows whether to cut.
        _ if explicit => Value::parse_text(&s, ColumnType::new(to.ty)),
        _ => Value::parse_text(&s, to),
    }
}

/// A document as a number or boolean, if it is one; as text otherwise.
fn convert_jsonb(text: String, to: ColumnType) -> Result<Value> {
    use crate::json::Json;
    if to.ty == Type::Jsonb {
        return Ok(Value::Jsonb(text));
    }
    if to.ty.is_text() {
        return Ok(Value::Text(text));
    }
    let kind = match crate::json::parse(&text)? {
        Json::Number(number) if to.ty.is_number() => return convert(Value::Numeric(number), to, true),
        Json::Bool(value) if to.ty == Type::Bool => return Ok(Value::Bool(value)),
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::Number(_) => "numeric",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    };
    let message = format!("cannot cast jsonb {kind} to type {}", to.ty.sql_name());
    Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message))
}

/// The text a cast gives: as the output function's, but true and false are spelt out.
fn text_of(v: ValueRef<'_>, ty: Type) -> String {
    match v {
        ValueRef::Bool(true) => "true".into(),
        ValueRef::Bool(false) => "false".into(),
        _ => v.to_text(ty),
    }
}

#[cold]
fn no_cast(v: &Value, ty: Type) -> Error {
    Error::new(
        SqlState::CANNOT_COERCE,
        format!("cannot cast type {} to {}", v.natural_type().sql_name(), ty.sql_name()),
    )
}

impl Value {
    /// The type a value has by itself: text for all character types, oid for its aliases.
    pub fn natural_type(&self) -> Type {
        match self {
            Value::Null => Type::Unknown,
            Value::Bool(_) => Type::Bool,
            Value::Int2(_) => Type::Int2,
            Value::Int4(_) => Type::Int4,
            Value::Int8(_) => Type::Int8,
            Value::Float4(_) => Type::Float4,
            Value::Float8(_) => Type::Float8,
            Value::Numeric(_) => Type::Numeric,
            Value::Text(_) => Type::Text,
            Value::Bytea(_) => Type::Bytea,
            Value::Jsonb(_) => Type::Jsonb,
            Value::Date(_) => Type::Date,
            Value::Time(_) => Type::Time,
            Value::Timestamp(_) => Type::Timestamp,
            Value::Timestamptz(_) => Type::Timestamptz,
            Value::Interval(_) => Type::Interval,
            Value::Uuid(_) => Type::Uuid,
            Value::Oid(_) => Type::Oid,
        }
    }
}

fn convert_number(v: &Value, ty: Type) -> Result<Value> {
    let r = v.as_ref();
    let bad = || no_cast(v, ty);
    Ok(match ty {
        Type::Float8 => Value::Float8(r.as_f64().ok_or_else(bad)?),
        Type::Float4 => Value::Float4(to_f32(r).ok_or_else(bad)??),
        Type::Numeric => Value::Numeric(to_decimal(r).ok_or_else(bad)??),
        _ => {
            let i = to_i64(r, ty).ok_or_else(bad)??;
            let range = || Error::out_of_range(ty.sql_name());
            match ty {
                Type::Int2 => Value::Int2(i16::try_from(i).map_err(|_| range())?),
                Type::Int4 => Value::Int4(i32::try_from(i).map_err(|_| range())?),
                _ => Value::Int8(i),
            }
        }
    })
}

fn to_f32(v: ValueRef<'_>) -> Option<Result<f32>> {
    if let ValueRef::Float4(f) = v {
        return Some(Ok(f));
    }
    let wide = v.as_f64()?;
    let narrow = wide as f32;
    let overflows = narrow.is_infinite() && wide.is_finite();
    Some(if overflows || (narrow == 0.0 && wide != 0.0) {
        let what = if overflows { "overflow" } else { "underflow" };
        Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("value out of range: {what}")))
    } else {
        Ok(narrow)
    })
}

fn to_decimal(v: ValueRef<'_>) -> Option<Result<Decimal>> {
    match v {
        ValueRef::Float4(f) => Some(decimal_from_f64(f as f64, 6)),
        ValueRef::Float8(f) => Some(decimal_from_f64(f, 15)),
        _ => v.as_decimal().map(Ok),
    }
}

/// Floats round half to even (rint), numerics half away from zero.
fn to_i64(v: ValueRef<'_>, ty: Type) -> Option<Result<i64>> {
    let range = || Error::out_of_range(ty.sql_name());
    let from_float = |f: f64| {
        let f = f.round_ties_even();
        // 2^63 itself is out of range; the comparison is false for NaN.
        if (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&f) {
            Ok(f as i64)
        } else {
            Err(range())
        }
    };
    Some(match v {
        ValueRef::Float4(f) => from_float(f as f64),
        ValueRef::Float8(f) => from_float(f),
        ValueRef::Numeric(d) => round_to_scale(d, 0).and_then(|d| d.to_i64().ok_or_else(range)),
        _ => Ok(v.as_i64()?),
    })
}

fn convert_oid(v: &Value, ty: Type) -> Result<Value> {
    let i = v.as_i64().ok_or_else(|| no_cast(v, ty))?;
    // int4 goes bit by bit, int8 must be in range.
    match v {
        Value::Int8(_) => u32::try_from(i).map(Value::Oid).map_err(|_| Error::out_of_range("OID")),
        _ => Ok(Value::Oid(i as u32)),
    }
}

fn convert_other(v: Value, ty: Type) -> Result<Value> {
    Ok(match (v, ty) {
        (v @ Value::Bool(_), Type::Bool)
        | (v @ Value::Bytea(_), Type::Bytea)
        | (v @ Value::Date(_), Type::Date)
        | (v @ Value::Time(_), Type::Time)
        | (v @ Value::Timestamp(_), Type::Timestamp)
        | (v @ Value::Timestamptz(_), Type::Timestamptz)
        | (v @ Value::Interval(_), Type::Interval)
        | (v @ Value::Uuid(_), Type::Uuid) => v,
        (Value::Date(d), Type::Timestamp) => Value::Timestamp(midnight(d)?),
        (Value::Date(d), Type::Timestamptz) => Value::Timestamptz(midnight(d)?),
        // The session time zone is UTC.
        (Value::Timestamp(us), Type::Timestamptz) => Value::Timestamptz(us),
        (Value::Timestamptz(us), Type::Timestamp) => Value::Timestamp(us),
        (Value::Timestamp(us) | Value::Timestamptz(us), Type::Date) => Value::Date(day_of(us)),
        (Value::Timestamp(us) | Value::Timestamptz(us), Type::Time) => match us {
            i64::MIN | i64::MAX => Value::Null,
            us => Value::Time(us.rem_euclid(DAY_US)),
        },
        (Value::Interval(i), Type::Time) => Value::Time(i.us.rem_euclid(DAY_US)),
        (Value::Time(us), Type::Interval) => Value::Interval(Interval { us, ..Interval::default() }),
        (v, _) => return Err(no_cast(&v, ty)),
    })
}

fn midnight(days: i32) -> Result<i64> {
    match days {
        i32::MIN => Ok(i64::MIN),
        i32::MAX => Ok(i64::MAX),
        days => (days as i64)
            .checked_mul(DAY_US)
            .filter(|us| crate::datetime::timestamp_in_range(*us))
            .ok_or_else(|| Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "date out of range for timestamp")),
    }
}

fn day_of(us: i64) -> i32 {
    match us {
        i64::MIN => i32::MIN,
        i64::MAX => i32::MAX,
        // 292 thousand years of days fit an i32.
        us => us.div_euclid(DAY_US) as i32,
    }
}

impl TryFrom<ValueRef<'_>> for Decimal {
    type Error = Error;
    fn try_from(v: ValueRef<'_>) -> Result<Decimal> {
        to_decimal(v).unwrap_or_else(|| Err(overflow()))
    }
}

/// As [`coerce`] from a known type: `character(n)` loses its trailing blanks when it becomes another
/// string type. To `json` goes every type, as `to_json` has it, which no cast of SQL's asks for.
pub fn coerce_from(value: Value, from: Type, to: ColumnType, explicit: bool) -> Result<Value> {
    if to.ty == Type::Json
        && !value.is_null()
        && !matches!(from, Type::Json | Type::Jsonb)
        && !from.is_string()
        && from != Type::Unknown
    {
        let mut text = String::new();
        crate::json::append_value(value.as_ref(), from, &mut text)?;
        return Ok(Value::Text(text));
    }
    match value {
        Value::Text(mut s) if from == Type::Bpchar && to.ty != Type::Bpchar => {
            s.truncate(trim_blanks(&s).len());
            coerce(Value::Text(s), to, explicit)
        }
        Value::Text(s) if from.element().is_some() && to.ty.element().is_some() => coerce_array(&s, from, to.ty),
        other => coerce(other, to, explicit),
    }
}

fn coerce_array(text: &str, from: Type, to: Type) -> Result<Value> {
    if from.element() == to.element() && !matches!(from, Type::Int2Vector | Type::OidVector) {
        return Ok(Value::text(text));
    }
    let element = ColumnType::new(to.element().unwrap_or(Type::Text));
    let items = crate::array::elements(text, from)?
        .into_iter()
        .map(|v| coerce(v, element, true))
        .collect::<Result<Vec<_>>>()?;
    let refs: Vec<_> = items.iter().map(Value::as_ref).collect();
    Ok(Value::Text(crate::array::format(&refs, to)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cast(v: Value, to: ColumnType) -> Result<Value> {
        coerce(v, to, true)
    }

    #[test]
    fn numbers_round_as_postgresql_does() {
        let int4 = ColumnType::new(Type::Int4);
        assert_eq!(cast(Value::Float8(2.5), int4).unwrap(), Value::Int4(2));
        let d = crate::decimal_from_str("2.5").unwrap().unwrap();
        assert_eq!(cast(Value::Numeric(d), int4).unwrap(), Value::Int4(3));
        assert_eq!(cast(Value::Int8(1 << 40), int4).unwrap_err().message, "integer out of range");
        assert!(cast(Value::Float8(f64::NAN), int4).is_err());
        let back = cast(Value::Float8(0.1), Type::Numeric.into()).unwrap();
        assert_eq!(back.as_ref().to_text(Type::Numeric), "0.1");
    }

    #[test]
    fn text_is_cut_only_when_asked() {
        let to = ColumnType::varchar(3);
        assert_eq!(coerce(Value::text("abcd"), to, true).unwrap(), Value::text("abc"));
        let e = coerce(Value::text("abcd"), to, false).unwrap_err();
        assert_eq!(e.message, "value too long for type character varying(3)");
        assert_eq!(e.code, SqlState::STRING_DATA_RIGHT_TRUNCATION);
        assert_eq!(coerce(Value::text("abc  "), to, false).unwrap(), Value::text("abc"));
        assert_eq!(coerce(Value::text("a"), ColumnType::bpchar(3), false).unwrap(), Value::text("a  "));
    }

    #[test]
    fn contexts() {
        use CastContext::*;
        assert!(can_coerce(Type::Int4, Type::Int8, Implicit));
        assert!(!can_coerce(Type::Int8, Type::Int4, Implicit));
        assert!(can_coerce(Type::Int8, Type::Int4, Assignment));
        assert!(can_coerce(Type::Int4, Type::Text, Assignment));
        assert!(!can_coerce(Type::Text, Type::Int4, Assignment));
        assert!(!can_coerce(Type::Bool, Type::Int8, Explicit));
    }
}
