//! How is a value written and read in PostgreSQL's binary wire format (the send and receive functions)?

use rust_decimal::Decimal;

use crate::array;
use crate::decimal::{MAX_SCALE, build, overflow};
use crate::error::{Error, Result, SqlState};
use crate::text_in::text_from_bytes;
use crate::ty::{ColumnType, Type};
use crate::value::{Interval, Value, ValueRef};

impl ValueRef<'_> {
    /// Appends the value in binary format. NULL appends nothing: the protocol marks it by length -1.
    #[inline]
    pub fn write_binary(self, ty: Type, out: &mut Vec<u8>) {
        match self {
            ValueRef::Int4(v) => out.extend_from_slice(&v.to_be_bytes()),
            ValueRef::Int8(v) => out.extend_from_slice(&v.to_be_bytes()),
            ValueRef::Text(s) if ty.element().is_none() => out.extend_from_slice(s.as_bytes()),
            _ => self.write_binary_other(ty, out),
        }
    }

    fn write_binary_other(self, ty: Type, out: &mut Vec<u8>) {
        match self {
            ValueRef::Null => {}
            ValueRef::Bool(v) => out.push(v as u8),
            ValueRef::Int2(v) => out.extend_from_slice(&v.to_be_bytes()),
            ValueRef::Int4(v) => out.extend_from_slice(&v.to_be_bytes()),
            ValueRef::Int8(v) => out.extend_from_slice(&v.to_be_bytes()),
            ValueRef::Float4(v) => out.extend_from_slice(&v.to_be_bytes()),
            ValueRef::Float8(v) => out.extend_from_slice(&v.to_be_bytes()),
            ValueRef::Numeric(v) => write_numeric(v, out),
            ValueRef::Text(s) => write_array(s, ty, out),
            ValueRef::Bytea(b) => out.extend_from_slice(b),
            ValueRef::Jsonb(text) => {
                out.push(JSONB_VERSION);
                out.extend_from_slice(text.as_bytes());
            }
            ValueRef::Date(v) => out.extend_from_slice(&v.to_be_bytes()),
            ValueRef::Time(v) | ValueRef::Timestamp(v) | ValueRef::Timestamptz(v) => {
                out.extend_from_slice(&v.to_be_bytes());
            }
            ValueRef::Interval(v) => {
                out.extend_from_slice(&v.us.to_be_bytes());
                out.extend_from_slice(&v.days.to_be_bytes());
                out.extend_from_slice(&v.months.to_be_bytes());
            }
            ValueRef::Uuid(v) => out.extend_from_slice(&v),
            ValueRef::Oid(v) => out.extend_from_slice(&v.to_be_bytes()),
        }
    }
}

impl Value {
    /// Reads a value of type `ty` from binary format. `22P03` for a wrong length, `22021` for bad
    /// text, `22003` for a numeric beyond our digits, `0A000` for arrays with several dimensions.
    pub fn parse_binary(bytes: &[u8], ty: Type) -> Result<Value> {
        Ok(match ty {
            Type::Bool => Value::Bool(u8::from_be_bytes(fixed(bytes)?) != 0),
            Type::Int2 => Value::Int2(i16::from_be_bytes(fixed(bytes)?)),
            Type::Int4 => Value::Int4(i32::from_be_bytes(fixed(bytes)?)),
            Type::Int8 => Value::Int8(i64::from_be_bytes(fixed(bytes)?)),
            Type::Float4 => Value::Float4(f32::from_be_bytes(fixed(bytes)?)),
            Type::Float8 => Value::Float8(f64::from_be_bytes(fixed(bytes)?)),
            Type::Numeric => Value::Numeric(read_numeric(bytes)?),
            Type::Bytea => Value::Bytea(bytes.to_vec()),
            Type::Date => Value::Date(read_date(bytes)?),
            Type::Time => Value::Time(read_time(bytes)?),
            Type::Timestamp => Value::Timestamp(read_timestamp(bytes)?),
            Type::Timestamptz => Value::Timestamptz(read_timestamp(bytes)?),
            Type::Interval => Value::Interval(read_interval(bytes)?),
            Type::Uuid => Value::Uuid(fixed(bytes)?),
            Type::Jsonb => Value::Jsonb(crate::json::canonical(text_from_bytes(after_version(bytes)?)?)?),
            Type::Void => Value::Text(String::new()),
            _ if ty.is_oid_like() => Value::Oid(u32::from_be_bytes(fixed(bytes)?)),
            _ if ty.element().is_some() => Value::Text(read_array(bytes, ty)?),
            _ => Value::parse_text(text_from_bytes(bytes)?, ColumnType::new(ty))?,
        })
    }
}

fn bad(message: &str) -> Error {
    Error::new(SqlState::INVALID_BINARY_REPRESENTATION, message)
}

/// The only version of jsonb's binary format, in front of the text (jsonb_send).
const JSONB_VERSION: u8 = 1;

fn after_version(bytes: &[u8]) -> Result<&[u8]> {
    match bytes {
        [JSONB_VERSION, text @ ..] => Ok(text),
        // PostgreSQL has no class for it either.
        [version, ..] => Err(Error::internal(format!("unsupported jsonb version number {version}"))),
        [] => Err(bad("no data left in message")),
    }
}

fn fixed<const N: usize>(bytes: &[u8]) -> Result<[u8; N]> {
    bytes.try_into().map_err(|_| bad("incorrect binary data format"))
}

fn read_date(bytes: &[u8]) -> Result<i32> {
    let days = i32::from_be_bytes(fixed(bytes)?);
    let infinite = matches!(days, i32::MIN | i32::MAX);
    if infinite || crate::datetime::date_in_range(days as i64) {
        Ok(days)
    } else {
        Err(crate::datetime::out_of_range("date"))
    }
}

fn read_time(bytes: &[u8]) -> Result<i64> {
    let us = i64::from_be_bytes(fixed(bytes)?);
    if (0..=crate::value::DAY_US).contains(&us) { Ok(us) } else { Err(crate::datetime::out_of_range("time")) }
}

fn read_timestamp(bytes: &[u8]) -> Result<i64> {
    let us = i64::from_be_bytes(fixed(bytes)?);
    let infinite = matches!(us, i64::MIN | i64::MAX);
    if infinite || crate::datetime::timestamp_in_range(us) {
        Ok(us)
    } else {
        Err(crate::datetime::out_of_range("timestamp"))
    }
}

fn read_interval(bytes: &[u8]) -> Result<Interval> {
    let bytes: [u8; 16] = fixed(bytes)?;
    Ok(Interval {
        us: i64::from_be_bytes(fixed(&bytes[..8])?),
        days: i32::from_be_bytes(fixed(&bytes[8..12])?),
        months: i32::from_be_bytes(fixed(&bytes[12..])?),
    })
}

/// Digits in base 10000: count, weight of the first, sign, digits after the point, the digits
/// (numeric_send).
fn write_numeric(d: Decimal, out: &mut Vec<u8>) {
    let scale = d.scale();
    let mut mantissa = d.mantissa().unsigned_abs();
    // Align the point to a group of four decimal digits.
    let missing = (4 - scale % 4) % 4;
    let mut digits = [0u16; 16];
    let mut at = digits.len();
    let groups_after = scale.div_ceil(4) as i32;
    let low = 10u128.pow(4 - missing);
    if missing > 0 && mantissa > 0 {
        at -= 1;
        digits[at] = (mantissa % low) as u16 * 10u16.pow(missing);
        mantissa /= low;
    }
    while mantissa > 0 {
        at -= 1;
        digits[at] = (mantissa % 10_000) as u16;
        mantissa /= 10_000;
    }
    let mut all = &digits[at..];
    let weight = all.len() as i32 - groups_after - 1;
    while let [rest @ .., 0] = all {
        all = rest;
    }
    let (mut first, mut weight) = (0, weight);
    while all.get(first) == Some(&0) {
        first += 1;
        weight -= 1;
    }
    all = &all[first..];
    let weight = if all.is_empty() { 0 } else { weight };
    let sign: u16 = if d.is_sign_negative() && !all.is_empty() { 0x4000 } else { 0 };
    out.extend_from_slice(&(all.len() as u16).to_be_bytes());
    out.extend_from_slice(&(weight as i16).to_be_bytes());
    out.extend_from_slice(&sign.to_be_bytes());
    out.extend_from_slice(&(scale as u16).to_be_bytes());
    all.iter().for_each(|digit| out.extend_from_slice(&digit.to_be_bytes()));
}

fn read_numeric(bytes: &[u8]) -> Result<Decimal> {
    let (header, rest) = bytes.split_at_checked(8).ok_or_else(|| bad("incorrect binary data format"))?;
    let field = |i: usize| u16::from_be_bytes([header[2 * i], header[2 * i + 1]]);
    let (count, weight, sign, scale) = (field(0) as usize, field(1) as i16 as i64, field(2), field(3));
    if rest.len() != 2 * count {
        return Err(bad("incorrect binary data format"));
    }
    match sign {
        0 | 0x4000 => {}
        0xC000 | 0xD000 | 0xF000 => return Err(Error::unsupported("numeric NaN or infinity")),
        _ => return Err(bad("invalid sign in external \"numeric\" value")),
    }
    let mut digits = Vec::with_capacity(4 * count);
    for pair in rest.chunks_exact(2) {
        let digit = u16::from_be_bytes([pair[0], pair[1]]);
        if digit > 9999 {
            return Err(bad("invalid digit in external \"numeric\" value"));
        }
        digits.extend_from_slice(&[
            b'0' + (digit / 1000) as u8,
            b'0' + (digit / 100 % 10) as u8,
            b'0' + (digit / 10 % 10) as u8,
            b'0' + (digit % 10) as u8,
        ]);
    }
    let digits_after = 4 * (count as i64 - 1 - weight);
    if digits.is_empty() {
        let mut zero = Decimal::ZERO;
        zero.rescale((scale as u32).min(MAX_SCALE));
        return Ok(zero);
    }
    // Zeros after the last digit may not fit beside the digits before the point; drop them.
    let mut digits_after = digits_after;
    while digits_after > scale as i64 && digits.last() == Some(&b'0') {
        digits.pop();
        digits_after -= 1;
    }
    let mut d = build(sign == 0x4000, digits.iter(), digits_after)?;
    let wanted = (scale as u32).min(MAX_SCALE);
    if d.scale() > wanted {
        d = crate::decimal::round_to_scale(d, wanted as i32)?;
    } else {
        d.rescale(wanted);
    }
    if d.scale() > MAX_SCALE { Err(overflow()) } else { Ok(d) }
}

/// One dimension: count of dimensions, has-null flag, element type, length, lower bound, elements
/// (array_send). Vectors count from 0.
fn write_array(text: &str, ty: Type, out: &mut Vec<u8>) {
    let element = ty.element().unwrap_or(Type::Text);
    // The text was made by us or read by us; what cannot be read is sent as no elements.
    let items = array::elements(text, ty).unwrap_or_default();
    let vector = matches!(ty, Type::Int2Vector | Type::OidVector);
    let has_null = items.iter().any(Value::is_null);
    out.extend_from_slice(&i32::from(!items.is_empty() || vector).to_be_bytes());
    out.extend_from_slice(&i32::from(has_null).to_be_bytes());
    out.extend_from_slice(&element.oid().to_be_bytes());
    if items.is_empty() && !vector {
        return;
    }
    out.extend_from_slice(&(items.len() as i32).to_be_bytes());
    out.extend_from_slice(&i32::from(!vector).to_be_bytes());
    for item in &items {
        if item.is_null() {
            out.extend_from_slice(&(-1i32).to_be_bytes());
            continue;
        }
        let at = out.len();
        out.extend_from_slice(&[0; 4]);
        item.as_ref().write_binary(element, out);
        let len = (out.len() - at - 4) as i32;
        out[at..at + 4].copy_from_slice(&len.to_be_bytes());
    }
}

fn read_array(bytes: &[u8], ty: Type) -> Result<String> {
    let element = ty.element().unwrap_or(Type::Text);
    let mut rest = bytes;
    let mut next = || -> Result<i32> {
        let (head, tail) = rest.split_at_checked(4).ok_or_else(|| bad("insufficient data left in message"))?;
        rest = tail;
        Ok(i32::from_be_bytes(fixed(head)?))
    };
    let (dimensions, _has_null, element_oid) = (next()?, next()?, next()?);
    if element_oid as u32 != element.oid() {
        return Err(Error::new(SqlState::DATATYPE_MISMATCH, "wrong element type"));
    }
    let count = match dimensions {
        0 => 0,
        1 => {
            let count = next()?;
            next()?;
            count
        }
        _ => return Err(Error::unsupported("an array with several dimensions")),
    };
    let mut items = Vec::new();
    for _ in 0..count.max(0) {
        let (head, tail) = rest.split_at_checked(4).ok_or_else(|| bad("insufficient data left in message"))?;
        let len = i32::from_be_bytes(fixed(head)?);
        rest = tail;
        if len < 0 {
            items.push(Value::Null);
            continue;
        }
        let (item, tail) =
            rest.split_at_checked(len as usize).ok_or_else(|| bad("insufficient data left in message"))?;
        rest = tail;
        items.push(Value::parse_binary(item, element)?);
    }
    let refs: Vec<_> = items.iter().map(Value::as_ref).collect();
    Ok(array::format(&refs, ty))
}
