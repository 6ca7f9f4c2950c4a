//! How does a value become key bytes whose order is the value's order?
//!
//! Each column is a marker byte and, unless it is NULL, an encoding that no other value of the same
//! family is a prefix of; so keys of several columns are simply concatenated. All integers (and
//! oids) are written as eight bytes whatever their width: a search with an `int8` in an `int4`
//! column needs no conversion, and the leading bytes disappear in a page's common prefix.
//! Likewise `real` is written as `double precision`. Text is escaped as in FoundationDB's tuple layer
//! (0x00 becomes 0x00 0xFF, the end is 0x00 0x00).

use std::cmp::Ordering;

use rust_decimal::Decimal;

use crate::array;
use crate::json;
use crate::ty::Type;
use crate::value::{Value, ValueRef, trim_blanks};

/// Marks a value that is not NULL.
const PRESENT: u8 = 0x01;
/// Marks NULL: after every value. Not 0xFF, so that [`successor`] always exists.
const NULL: u8 = 0xFE;

/// Appends one value. Text counts with its trailing blanks; see [`encode_column`].
#[inline]
pub fn encode_value(v: ValueRef<'_>, out: &mut Vec<u8>) {
    match v {
        ValueRef::Int4(i) => encode_i64(i as i64, out),
        ValueRef::Int8(i) => encode_i64(i, out),
        _ => encode_other(v, out),
    }
}

/// Appends one value as a column of type `ty` has it: `character(n)` without trailing blanks.
#[inline]
pub fn encode_column(v: ValueRef<'_>, ty: Type, out: &mut Vec<u8>) {
    match v {
        ValueRef::Text(s) if ty == Type::Bpchar => encode_value(ValueRef::Text(trim_blanks(s)), out),
        ValueRef::Text(s) if ty.element().is_some() => encode_array(s, ty, out),
        _ => encode_value(v, out),
    }
}

/// Elements one after the other, then a byte that is less than what an element begins with (array_cmp: the first elements that
/// differ decide, then the shorter array is less).
#[cold]
fn encode_array(text: &str, ty: Type, out: &mut Vec<u8>) {
    let element = ty.element().unwrap_or(Type::Text);
    out.push(PRESENT);
    // The text was made by us or read by us.
    for item in array::elements(text, ty).unwrap_or_default() {
        encode_column(item.as_ref(), element, out);
    }
    out.push(0);
}

/// Appends the text made of these bytes, as a column that is no `character(n)` has it.
#[inline]
pub fn encode_text(text: &[u8], out: &mut Vec<u8>) {
    out.reserve(text.len() + 3);
    out.push(PRESENT);
    encode_bytes(text, out);
}

/// Appends an integer (of any integer type).
#[inline]
pub fn encode_i64(i: i64, out: &mut Vec<u8>) {
    let mut bytes = [PRESENT; 9];
    bytes[1..].copy_from_slice(&flip(i).to_be_bytes());
    out.extend_from_slice(&bytes);
}

/// Sign-flipped, so that unsigned order is signed order.
fn flip(i: i64) -> u64 {
    (i as u64) ^ (1 << 63)
}

fn encode_other(v: ValueRef<'_>, out: &mut Vec<u8>) {
    if v.is_null() {
        out.push(NULL);
        return;
    }
    if let Some(i) = v.as_i64() {
        return encode_i64(i, out);
    }
    out.push(PRESENT);
    match v {
        ValueRef::Text(s) => encode_bytes(s.as_bytes(), out),
        ValueRef::Bytea(b) => encode_bytes(b, out),
        ValueRef::Jsonb(text) => out.extend_from_slice(&json_key(text)),
        ValueRef::Bool(b) => out.push(b as u8),
        ValueRef::Float4(f) => encode_f64(f as f64, out),
        ValueRef::Float8(f) => encode_f64(f, out),
        ValueRef::Numeric(d) => encode_decimal(d, out),
        ValueRef::Date(d) => out.extend_from_slice(&flip(d as i64).to_be_bytes()[..]),
        ValueRef::Time(t) | ValueRef::Timestamp(t) | ValueRef::Timestamptz(t) => {
            out.extend_from_slice(&flip(t).to_be_bytes());
        }
        ValueRef::Interval(i) => {
            out.extend_from_slice(&((i.order_us() as u128) ^ (1 << 127)).to_be_bytes());
        }
        ValueRef::Uuid(u) => out.extend_from_slice(&u),
        ValueRef::Null | ValueRef::Int2(_) | ValueRef::Int4(_) | ValueRef::Int8(_) | ValueRef::Oid(_) => {
            unreachable!("written above")
        }
    }
}

/// The key of a `jsonb`; of a damaged one that of null.
pub(crate) fn json_key(text: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(text.len() + 8);
    json::write_key(&json::parse(text).unwrap_or(json::Json::Null), &mut key);
    key
}

fn encode_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve(bytes.len() + 2);
    let mut rest = bytes;
    while let Some(zero) = memchr::memchr(0, rest) {
        out.extend_from_slice(&rest[..zero]);
        out.extend_from_slice(&[0x00, 0xFF]);
        rest = &rest[zero + 1..];
    }
    out.extend_from_slice(rest);
    out.extend_from_slice(&[0x00, 0x00]);
}

/// All bits flipped for negative numbers, the sign for others; NaN above all, -0 as 0.
fn encode_f64(f: f64, out: &mut Vec<u8>) {
    let bits = match f {
        f if f.is_nan() => u64::MAX,
        0.0 => 1 << 63,
        f if f.is_sign_negative() => !f.to_bits(),
        f => f.to_bits() | (1 << 63),
    };
    out.extend_from_slice(&bits.to_be_bytes());
}

/// Sign (0, 1, 2), then for non-zero numbers the power of ten of the leading digit and the digits
/// plus one with a 0 at the end; all of it inverted for negative numbers.
fn encode_decimal(d: Decimal, out: &mut Vec<u8>) {
    let d = d.normalize();
    let sign = d.cmp(&Decimal::ZERO);
    out.push((sign as i8 + 1) as u8);
    if sign == Ordering::Equal {
        return;
    }
    let at = out.len();
    let mut mantissa = d.mantissa().unsigned_abs();
    let mut digits = [0u8; 40];
    let mut n = 0;
    while mantissa > 0 {
        digits[n] = (mantissa % 10) as u8;
        mantissa /= 10;
        n += 1;
    }
    // Powers lie in -28..=28; 64 centres them in a byte.
    out.push((64 + n as i32 - d.scale() as i32) as u8);
    // Trailing zeros do not count: 100 and 1e2 have the same digits.
    let low = digits[..n].iter().position(|digit| *digit != 0).unwrap_or(0);
    out.extend(digits[low..n].iter().rev().map(|digit| digit + 1));
    out.push(0);
    if sign == Ordering::Less {
        out[at..].iter_mut().for_each(|b| *b = !*b);
    }
}

/// Takes one integer off the front of `key`; `None` when there is none (NULL included).
#[inline]
pub fn decode_i64(key: &mut &[u8]) -> Option<i64> {
    let (head, rest) = key.split_at_checked(9)?;
    if head[0] != PRESENT {
        return None;
    }
    *key = rest;
    Some((u64::from_be_bytes(head[1..].try_into().ok()?) ^ (1 << 63)) as i64)
}

/// Takes one column of type `ty` off the front of `key`. `None` when the bytes are damaged or the
/// type's keys do not tell the value (numeric's scale, in jsonb too, an interval's parts, `character(n)`'s
/// blanks are not kept; an array's elements may be of such a type).
pub fn decode(ty: Type, key: &mut &[u8]) -> Option<Value> {
    if *key.first()? == NULL {
        *key = &key[1..];
        return Some(Value::Null);
    }
    if ty.is_integer() || ty.is_oid_like() {
        let i = decode_i64(key)?;
        return Some(match ty {
            Type::Int2 => Value::Int2(i16::try_from(i).ok()?),
            Type::Int4 => Value::Int4(i32::try_from(i).ok()?),
            Type::Int8 => Value::Int8(i),
            _ => Value::Oid(u32::try_from(i).ok()?),
        });
    }
    let mut rest = key.strip_prefix(&[PRESENT])?;
    let value = match ty {
        Type::Bool => Value::Bool(take(&mut rest, 1)?[0] != 0),
        Type::Date => Value::Date(i32::try_from(decode_flipped(&mut rest)?).ok()?),
        Type::Time => Value::Time(decode_flipped(&mut rest)?),
        Type::Timestamp => Value::Timestamp(decode_flipped(&mut rest)?),
        Type::Timestamptz => Value::Timestamptz(decode_flipped(&mut rest)?),
        Type::Uuid => Value::Uuid(take(&mut rest, 16)?.try_into().ok()?),
        Type::Float4 => Value::Float4(decode_f64(&mut rest)? as f32),
        Type::Float8 => Value::Float8(decode_f64(&mut rest)?),
        Type::Bytea => Value::Bytea(decode_bytes(&mut rest)?),
        Type::Numeric | Type::Jsonb | Type::Interval | Type::Bpchar => return None,
        _ if ty.element().is_some() => return None,
        _ => Value::Text(String::from_utf8(decode_bytes(&mut rest)?).ok()?),
    };
    *key = rest;
    Some(value)
}

fn take<'a>(key: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (head, rest) = key.split_at_checked(n)?;
    *key = rest;
    Some(head)
}

fn decode_flipped(key: &mut &[u8]) -> Option<i64> {
    Some((u64::from_be_bytes(take(key, 8)?.try_into().ok()?) ^ (1 << 63)) as i64)
}

fn decode_f64(key: &mut &[u8]) -> Option<f64> {
    let bits = u64::from_be_bytes(take(key, 8)?.try_into().ok()?);
    Some(match bits {
        u64::MAX => f64::NAN,
        _ if bits >> 63 == 1 => f64::from_bits(bits & !(1 << 63)),
        _ => f64::from_bits(!bits),
    })
}

fn decode_bytes(key: &mut &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    loop {
        let zero = memchr::memchr(0, key)?;
        out.extend_from_slice(&key[..zero]);
        let mark = *key.get(zero + 1)?;
        *key = &key[zero + 2..];
        match mark {
            0x00 => return Some(out),
            0xFF => out.push(0),
            _ => return None,
        }
    }
}

/// Makes of a key prefix (whole columns) the smallest byte string above every key that starts with
/// it: the exclusive upper bound of a range.
pub fn successor(key: &mut Vec<u8>) {
    while key.last() == Some(&0xFF) {
        key.pop();
    }
    match key.last_mut() {
        Some(last) => *last += 1,
        // Not reached from whole columns, whose first byte is below 0xFF; the bound must be
        // above everything then.
        None => key.extend_from_slice(&[0xFF; 16]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Interval;

    fn key(v: ValueRef<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        encode_value(v, &mut out);
        out
    }

    #[test]
    fn an_int4_column_is_found_with_an_int8() {
        assert_eq!(key(ValueRef::Int4(-7)), key(ValueRef::Int8(-7)));
        assert_eq!(key(ValueRef::Int2(7)), key(ValueRef::Int8(7)));
    }

    #[test]
    fn blanks_of_bpchar_do_not_count() {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        encode_column(ValueRef::Text("ab   "), Type::Bpchar, &mut a);
        encode_column(ValueRef::Text("ab"), Type::Bpchar, &mut b);
        assert_eq!(a, b);
    }

    #[test]
    fn successor_is_above_every_key_with_the_prefix() {
        let mut prefix = key(ValueRef::Int4(5));
        let inside = [prefix.clone(), key(ValueRef::Text("zzz"))].concat();
        successor(&mut prefix);
        assert!(inside < prefix);
        assert!(key(ValueRef::Int4(6)) >= prefix);
        let mut null = key(ValueRef::Null);
        successor(&mut null);
        assert!(key(ValueRef::Null) < null);
    }

    #[test]
    fn a_month_is_thirty_days() {
        let month = Interval { months: 1, ..Interval::default() };
        let days = Interval { days: 30, ..Interval::default() };
        assert_eq!(key(ValueRef::Interval(month)), key(ValueRef::Interval(days)));
    }
}
