//! How is a value written as text? As PostgreSQL's output functions with DateStyle ISO, IntervalStyle
//! postgres, bytea_output hex and extra_float_digits 1.

use std::io::Write;

use rust_decimal::Decimal;

use crate::datetime::{format_interval, write_date, write_time, write_timestamp};
use crate::int_text::{write_i64, write_u64};
use crate::ty::Type;
use crate::value::ValueRef;

const HEX: &[u8; 16] = b"0123456789abcdef";

impl ValueRef<'_> {
    /// Appends the value's text. NULL appends nothing: protocols mark it otherwise. `ty` is the
    /// column's type; it only matters where one kind of value serves several types.
    #[inline]
    pub fn write_text(self, ty: Type, out: &mut Vec<u8>) {
        match self {
            ValueRef::Int4(v) => write_i64(v as i64, out),
            ValueRef::Int8(v) => write_i64(v, out),
            ValueRef::Text(s) => out.extend_from_slice(s.as_bytes()),
            _ => self.write_other(ty, out),
        }
    }

    fn write_other(self, ty: Type, out: &mut Vec<u8>) {
        match self {
            ValueRef::Null => {}
            ValueRef::Bool(v) => out.push(if v { b't' } else { b'f' }),
            ValueRef::Int2(v) => write_i64(v as i64, out),
            ValueRef::Int4(v) => write_i64(v as i64, out),
            ValueRef::Int8(v) => write_i64(v, out),
            ValueRef::Float4(v) => write_f32(v, out),
            ValueRef::Float8(v) => write_f64(v, out),
            ValueRef::Numeric(v) => write_decimal(v, out),
            ValueRef::Text(s) | ValueRef::Jsonb(s) => out.extend_from_slice(s.as_bytes()),
            ValueRef::Bytea(b) => write_hex(b, out),
            ValueRef::Date(v) => write_date(v, out),
            ValueRef::Time(v) => write_time(v, out),
            ValueRef::Timestamp(v) => write_timestamp(v, "", out),
            ValueRef::Timestamptz(v) => write_timestamp(v, "+00", out),
            ValueRef::Interval(v) => format_interval(v, out),
            ValueRef::Uuid(v) => write_uuid(&v, out),
            // regclass and its kind print a number unless a catalog resolves it; 0 is a dash.
            ValueRef::Oid(0) if ty.is_oid_like() && !matches!(ty, Type::Oid | Type::Xid) => {
                out.push(b'-');
            }
            ValueRef::Oid(v) if ty == Type::Regtype => match Type::from_oid(v) {
                Some(named) => out.extend_from_slice(named.format_type(-1).as_bytes()),
                None => write_u64(v as u64, out),
            },
            ValueRef::Oid(v) => write_u64(v as u64, out),
        }
    }

    /// The value's text as a string; empty for NULL.
    pub fn to_text(self, ty: Type) -> String {
        let mut out = Vec::new();
        self.write_text(ty, &mut out);
        String::from_utf8(out).unwrap_or_default()
    }
}

fn write_decimal(d: Decimal, out: &mut Vec<u8>) {
    // A negative zero is zero.
    let d = if d.is_zero() { d.abs() } else { d };
    // Writing into a Vec cannot fail.
    let _ = write!(out, "{d}");
}

fn write_hex(bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve(2 + 2 * bytes.len());
    out.extend_from_slice(b"\\x");
    for b in bytes {
        out.extend_from_slice(&[HEX[(b >> 4) as usize], HEX[(b & 15) as usize]]);
    }
}

fn write_uuid(bytes: &[u8; 16], out: &mut Vec<u8>) {
    for (i, b) in bytes.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            out.push(b'-');
        }
        out.extend_from_slice(&[HEX[(b >> 4) as usize], HEX[(b & 15) as usize]]);
    }
}

/// Shortest text that reads back the same, in fixed notation for 1e-4 <= |v| < 1e15
/// (double_to_shortest_decimal, d2s.c in PostgreSQL).
fn write_f64(v: f64, out: &mut Vec<u8>) {
    if !write_special(v, out) {
        write_shortest(&format!("{v:e}"), 15, out);
    }
}

/// As [`write_f64`] with fixed notation below 1e6 (f2s.c).
fn write_f32(v: f32, out: &mut Vec<u8>) {
    if !write_special(v as f64, out) {
        write_shortest(&format!("{v:e}"), 6, out);
    }
}

fn write_special(v: f64, out: &mut Vec<u8>) -> bool {
    let text: &[u8] = match v {
        _ if v.is_nan() => b"NaN",
        f64::INFINITY => b"Infinity",
        f64::NEG_INFINITY => b"-Infinity",
        _ => return false,
    };
    out.extend_from_slice(text);
    true
}

/// Turns Rust's shortest `d.ddde-7` into PostgreSQL's notation.
fn write_shortest(scientific: &str, fixed_below: i32, out: &mut Vec<u8>) {
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits = match mantissa.strip_prefix('-') {
        Some(rest) => {
            out.push(b'-');
            rest
        }
        None => mantissa,
    };
    if !(-4..fixed_below).contains(&exponent) {
        out.extend_from_slice(digits.as_bytes());
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "e{sign}{:02}", exponent.unsigned_abs());
        return;
    }
    let digits: Vec<u8> = digits.bytes().filter(u8::is_ascii_digit).collect();
    if exponent < 0 {
        out.extend_from_slice(b"0.");
        out.extend(std::iter::repeat_n(b'0', (-exponent - 1) as usize));
        out.extend_from_slice(&digits);
        return;
    }
    let whole = exponent as usize + 1;
    let given = whole.min(digits.len());
    out.extend_from_slice(&digits[..given]);
    out.extend(std::iter::repeat_n(b'0', whole - given));
    if digits.len() > whole {
        out.push(b'.');
        out.extend_from_slice(&digits[whole..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_as_postgresql_writes_them() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (0.1, "0.1"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (1e14, "100000000000000"),
            (1e15, "1e+15"),
            (123456789012345680.0, "1.2345678901234568e+17"),
            (-1.5e300, "-1.5e+300"),
            (12.5, "12.5"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ];
        for (v, want) in cases {
            assert_eq!(ValueRef::Float8(v).to_text(Type::Float8), want);
        }
        assert_eq!(ValueRef::Float4(1e6).to_text(Type::Float4), "1e+06");
        assert_eq!(ValueRef::Float4(0.1).to_text(Type::Float4), "0.1");
    }
}
