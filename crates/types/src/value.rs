//! What is one value, how are two compared, and what do equal ones hash to?

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;

use crate::decimal::decimal_to_f64;
use crate::key;

/// Microseconds of a day.
pub(crate) const DAY_US: i64 = 86_400_000_000;

/// A PostgreSQL interval: the three parts are kept apart (a month has no fixed length).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    /// Months.
    pub months: i32,
    /// Days.
    pub days: i32,
    /// Microseconds.
    pub us: i64,
}

impl Interval {
    /// The length that comparison uses: months of 30 days, days of 24 hours
    /// (interval_cmp_value in PostgreSQL's timestamp.c).
    pub fn order_us(self) -> i128 {
        (self.months as i128 * 30 + self.days as i128) * DAY_US as i128 + self.us as i128
    }
}

/// A value on its own. Date and time values count from 2000-01-01 as PostgreSQL's do.
#[derive(Clone, Debug, PartialEq, Default)]
#[allow(missing_docs)] // the names are the types
pub enum Value {
    #[default]
    Null,
    Bool(bool),
    Int2(i16),
    Int4(i32),
    Int8(i64),
    Float4(f32),
    Float8(f64),
    Numeric(Decimal),
    /// All character types, json, arrays in their text notation.
    Text(String),
    Bytea(Vec<u8>),
    /// A document in its canonical text (see [`crate::json`]).
    Jsonb(String),
    /// Days since 2000-01-01; `i32::MIN` and `i32::MAX` are the infinities.
    Date(i32),
    /// Microseconds since midnight, 0..=86_400_000_000.
    Time(i64),
    /// Microseconds since 2000-01-01 00:00; `i64::MIN` and `i64::MAX` are the infinities.
    Timestamp(i64),
    /// Microseconds since 2000-01-01 00:00 UTC.
    Timestamptz(i64),
    Interval(Interval),
    Uuid([u8; 16]),
    /// oid and the reg* types.
    Oid(u32),
}

/// A borrowed value: what a row's column or an expression gives without copying.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
#[allow(missing_docs)]
pub enum ValueRef<'a> {
    #[default]
    Null,
    Bool(bool),
    Int2(i16),
    Int4(i32),
    Int8(i64),
    Float4(f32),
    Float8(f64),
    Numeric(Decimal),
    Text(&'a str),
    Bytea(&'a [u8]),
    /// A document in its canonical text.
    Jsonb(&'a str),
    Date(i32),
    Time(i64),
    Timestamp(i64),
    Timestamptz(i64),
    Interval(Interval),
    Uuid([u8; 16]),
    Oid(u32),
}

impl Value {
    /// Bytes that the value points to, beside its own.
    #[inline]
    pub fn heap_bytes(&self) -> usize {
        match self {
            Value::Text(text) | Value::Jsonb(text) => text.capacity(),
            Value::Bytea(bytes) => bytes.capacity(),
            _ => 0,
        }
    }

    /// The same value, borrowed.
    #[inline]
    pub fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Value::Null => ValueRef::Null,
            Value::Bool(v) => ValueRef::Bool(*v),
            Value::Int2(v) => ValueRef::Int2(*v),
            Value::Int4(v) => ValueRef::Int4(*v),
            Value::Int8(v) => ValueRef::Int8(*v),
            Value::Float4(v) => ValueRef::Float4(*v),
            Value::Float8(v) => ValueRef::Float8(*v),
            Value::Numeric(v) => ValueRef::Numeric(*v),
            Value::Text(v) => ValueRef::Text(v),
            Value::Bytea(v) => ValueRef::Bytea(v),
            Value::Jsonb(v) => ValueRef::Jsonb(v),
            Value::Date(v) => ValueRef::Date(*v),
            Value::Time(v) => ValueRef::Time(*v),
            Value::Timestamp(v) => ValueRef::Timestamp(*v),
            Value::Timestamptz(v) => ValueRef::Timestamptz(*v),
            Value::Interval(v) => ValueRef::Interval(*v),
            Value::Uuid(v) => ValueRef::Uuid(*v),
            Value::Oid(v) => ValueRef::Oid(*v),
        }
    }

    /// Is it NULL?
    #[inline]
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// A text value.
    pub fn text(s: impl Into<String>) -> Value {
        Value::Text(s.into())
    }

    /// The integer of an int2, int4, int8 or oid.
    #[inline]
    pub fn as_i64(&self) -> Option<i64> {
        self.as_ref().as_i64()
    }

    /// The characters of a text value.
    #[inline]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Text(s) => Some(s),
            _ => None,
        }
    }
}

impl<'a> ValueRef<'a> {
    /// The same value, owned (the name is spelt out because `ToOwned` would copy the reference).
    pub fn to_owned(self) -> Value {
        match self {
            ValueRef::Null => Value::Null,
            ValueRef::Bool(v) => Value::Bool(v),
            ValueRef::Int2(v) => Value::Int2(v),
            ValueRef::Int4(v) => Value::Int4(v),
            ValueRef::Int8(v) => Value::Int8(v),
            ValueRef::Float4(v) => Value::Float4(v),
            ValueRef::Float8(v) => Value::Float8(v),
            ValueRef::Numeric(v) => Value::Numeric(v),
            ValueRef::Text(v) => Value::Text(v.to_string()),
            ValueRef::Bytea(v) => Value::Bytea(v.to_vec()),
            ValueRef::Jsonb(v) => Value::Jsonb(v.to_string()),
            ValueRef::Date(v) => Value::Date(v),
            ValueRef::Time(v) => Value::Time(v),
            ValueRef::Timestamp(v) => Value::Timestamp(v),
            ValueRef::Timestamptz(v) => Value::Timestamptz(v),
            ValueRef::Interval(v) => Value::Interval(v),
            ValueRef::Uuid(v) => Value::Uuid(v),
            ValueRef::Oid(v) => Value::Oid(v),
        }
    }

    /// Is it NULL?
    #[inline]
    pub fn is_null(self) -> bool {
        matches!(self, ValueRef::Null)
    }

    /// The integer of an int2, int4, int8 or oid.
    #[inline]
    pub fn as_i64(self) -> Option<i64> {
        match self {
            ValueRef::Int4(v) => Some(v as i64),
            ValueRef::Int8(v) => Some(v),
            ValueRef::Int2(v) => Some(v as i64),
            ValueRef::Oid(v) => Some(v as i64),
            _ => None,
        }
    }

    /// The number as a float: integers, floats, numeric.
    pub fn as_f64(self) -> Option<f64> {
        match self {
            ValueRef::Float8(v) => Some(v),
            ValueRef::Float4(v) => Some(v as f64),
            ValueRef::Numeric(v) => Some(decimal_to_f64(v)),
            other => other.as_i64().map(|v| v as f64),
        }
    }

    /// The number as a decimal: integers and numeric.
    pub fn as_decimal(self) -> Option<Decimal> {
        match self {
            ValueRef::Numeric(v) => Some(v),
            other => other.as_i64().map(Decimal::from),
        }
    }

    /// The characters of a text value.
    #[inline]
    pub fn as_str(self) -> Option<&'a str> {
        match self {
            ValueRef::Text(s) => Some(s),
            _ => None,
        }
    }

    /// Which values can be compared: numbers, strings, points in time, ... share a family.
    fn family(self) -> u8 {
        match self {
            ValueRef::Bool(_) => 0,
            ValueRef::Int2(_) | ValueRef::Int4(_) | ValueRef::Int8(_) | ValueRef::Oid(_) => 1,
            ValueRef::Float4(_) | ValueRef::Float8(_) | ValueRef::Numeric(_) => 1,
            ValueRef::Text(_) => 2,
            ValueRef::Bytea(_) => 3,
            ValueRef::Date(_) | ValueRef::Timestamp(_) | ValueRef::Timestamptz(_) => 4,
            ValueRef::Time(_) => 5,
            ValueRef::Interval(_) => 6,
            ValueRef::Uuid(_) => 7,
            ValueRef::Jsonb(_) => 8,
            ValueRef::Null => 9,
        }
    }

    /// The point in time of a date or timestamp, in microseconds; a date's infinities are the
    /// timestamps'.
    fn instant_us(self) -> Option<i64> {
        match self {
            ValueRef::Timestamp(v) | ValueRef::Timestamptz(v) => Some(v),
            ValueRef::Date(i32::MIN) => Some(i64::MIN),
            ValueRef::Date(i32::MAX) => Some(i64::MAX),
            ValueRef::Date(v) => Some((v as i64).saturating_mul(DAY_US)),
            _ => None,
        }
    }
}

impl<'a> From<&'a Value> for ValueRef<'a> {
    fn from(v: &'a Value) -> Self {
        v.as_ref()
    }
}

/// A total order over all values: within a family (numbers, strings, ...) the SQL order, NULL
/// last, NaN above every number; across families an arbitrary but fixed one. Text is compared by
/// bytes; for `character(n)` use [`compare_bpchar`].
#[inline]
pub fn compare(a: ValueRef<'_>, b: ValueRef<'_>) -> Ordering {
    match (a, b) {
        (ValueRef::Int4(x), ValueRef::Int4(y)) => x.cmp(&y),
        (ValueRef::Int8(x), ValueRef::Int8(y)) => x.cmp(&y),
        (ValueRef::Text(x), ValueRef::Text(y)) => x.as_bytes().cmp(y.as_bytes()),
        _ => compare_other(a, b),
    }
}

fn compare_other(a: ValueRef<'_>, b: ValueRef<'_>) -> Ordering {
    if let (Some(x), Some(y)) = (a.as_i64(), b.as_i64()) {
        return x.cmp(&y);
    }
    match (a, b) {
        (ValueRef::Date(x), ValueRef::Date(y)) => x.cmp(&y),
        (ValueRef::Bool(x), ValueRef::Bool(y)) => x.cmp(&y),
        (ValueRef::Numeric(x), ValueRef::Numeric(y)) => x.cmp(&y),
        (ValueRef::Bytea(x), ValueRef::Bytea(y)) => x.cmp(y),
        (ValueRef::Jsonb(x), ValueRef::Jsonb(y)) if x == y => Ordering::Equal,
        (ValueRef::Jsonb(x), ValueRef::Jsonb(y)) => key::json_key(x).cmp(&key::json_key(y)),
        (ValueRef::Time(x), ValueRef::Time(y)) => x.cmp(&y),
        (ValueRef::Interval(x), ValueRef::Interval(y)) => x.order_us().cmp(&y.order_us()),
        (ValueRef::Uuid(x), ValueRef::Uuid(y)) => x.cmp(&y),
        (ValueRef::Null, ValueRef::Null) => Ordering::Equal,
        _ => compare_numbers(a, b)
            .or_else(|| Some(a.instant_us()?.cmp(&b.instant_us()?)))
            .unwrap_or_else(|| a.family().cmp(&b.family())),
    }
}

/// Numbers of different types: exact when neither is a float, as floats otherwise.
fn compare_numbers(a: ValueRef<'_>, b: ValueRef<'_>) -> Option<Ordering> {
    if let (Some(x), Some(y)) = (a.as_decimal(), b.as_decimal()) {
        return Some(x.cmp(&y));
    }
    Some(compare_f64(a.as_f64()?, b.as_f64()?))
}

/// PostgreSQL's order of floats: NaN equals itself and is above all, -0 equals 0.
pub(crate) fn compare_f64(x: f64, y: f64) -> Ordering {
    x.partial_cmp(&y).unwrap_or_else(|| x.is_nan().cmp(&y.is_nan()))
}

/// The text without its trailing blanks: what of a `character(n)` value counts.
#[inline]
pub fn trim_blanks(s: &str) -> &str {
    // A blank is one byte, so whatever is cut off is whole characters.
    s.get(..trim_blanks_of(s.as_bytes()).len()).unwrap_or(s)
}

/// As [`trim_blanks`], of a text's bytes.
#[inline]
pub fn trim_blanks_of(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
    &text[..end]
}

/// As [`compare`], but trailing blanks of text do not count (`character(n)`).
pub fn compare_bpchar(a: ValueRef<'_>, b: ValueRef<'_>) -> Ordering {
    match (a, b) {
        (ValueRef::Text(x), ValueRef::Text(y)) => trim_blanks(x).as_bytes().cmp(trim_blanks(y).as_bytes()),
        _ => compare(a, b),
    }
}

/// Feeds the value to a hasher so that values which [`compare`] as equal hash alike (except an
/// integer beyond 2^53 against a float, which SQL compares only after a cast).
pub fn hash<H: Hasher>(v: ValueRef<'_>, state: &mut H) {
    v.family().hash(state);
    if let Some(i) = v.as_i64() {
        return i.hash(state);
    }
    if let Some(us) = v.instant_us() {
        return us.hash(state);
    }
    match v {
        ValueRef::Bool(b) => b.hash(state),
        ValueRef::Text(s) => s.hash(state),
        ValueRef::Bytea(b) => b.hash(state),
        ValueRef::Jsonb(text) => key::json_key(text).hash(state),
        ValueRef::Time(t) => t.hash(state),
        ValueRef::Interval(i) => i.order_us().hash(state),
        ValueRef::Uuid(u) => u.hash(state),
        ValueRef::Numeric(d) => match d.is_integer().then(|| d.to_i64()).flatten() {
            Some(i) => i.hash(state),
            None => hash_f64(decimal_to_f64(d), state),
        },
        ValueRef::Float4(f) => hash_f64(f as f64, state),
        ValueRef::Float8(f) => hash_f64(f, state),
        _ => {}
    }
}

fn hash_f64<H: Hasher>(f: f64, state: &mut H) {
    let as_int = f as i64;
    if as_int as f64 == f && as_int != i64::MAX {
        as_int.hash(state);
    } else if f.is_nan() {
        f64::NAN.to_bits().hash(state);
    } else {
        f.to_bits().hash(state);
    }
}
