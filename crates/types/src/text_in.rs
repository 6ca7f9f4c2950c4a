//! How is a value read from text? As PostgreSQL's input functions, with their errors.

use std::borrow::Cow;

use crate::datetime::{parse_datetime, parse_interval};
use crate::decimal::{apply_typmod, decimal_from_str};
use crate::error::{Error, Result, SqlState};
use crate::ty::{ColumnType, Type};
use crate::value::Value;

/// Bytes a `name` can have (NAMEDATALEN - 1).
const NAME_BYTES: usize = 63;

/// Client bytes as text. `22021` for invalid UTF-8 or a zero byte.
pub fn text_from_bytes(bytes: &[u8]) -> Result<&str> {
    let bad = |at: usize| {
        let shown: Vec<String> =
            bytes[at..].iter().take(sequence_len(bytes[at])).map(|b| format!("0x{b:02x}")).collect();
        Error::new(
            SqlState::CHARACTER_NOT_IN_REPERTOIRE,
            format!("invalid byte sequence for encoding \"UTF8\": {}", shown.join(" ")),
        )
    };
    let text = std::str::from_utf8(bytes).map_err(|e| bad(e.valid_up_to()))?;
    match bytes.iter().position(|b| *b == 0) {
        Some(at) => Err(bad(at)),
        None => Ok(text),
    }
}

/// Bytes that a UTF-8 sequence with this first byte should have (pg_utf_mblen).
fn sequence_len(first: u8) -> usize {
    match first {
        0xC0..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF7 => 4,
        _ => 1,
    }
}

/// The value of an integer in plain digits, so few that it is in the type's range; `None` sends the text the long way.
fn few_digits(bytes: &[u8], ty: Type) -> Option<Value> {
    let most = match ty {
        Type::Int2 => 4,
        Type::Int4 => 9,
        Type::Int8 => 18,
        _ => return None,
    };
    if bytes.is_empty() || bytes.len() > most {
        return None;
    }
    let mut number = 0_i64;
    for byte in bytes {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number * 10 + i64::from(digit);
    }
    Some(match ty {
        Type::Int2 => Value::Int2(number as i16),
        Type::Int4 => Value::Int4(number as i32),
        _ => Value::Int8(number),
    })
}

impl Value {
    /// Reads a value of the given type from the bytes of its text, as clients send it: [`text_from_bytes`], then
    /// [`Value::parse_text`].
    #[inline]
    pub fn parse_bytes(bytes: &[u8], target: ColumnType) -> Result<Value> {
        match few_digits(bytes, target.ty) {
            Some(value) => Ok(value),
            None => Value::parse_text(text_from_bytes(bytes)?, target),
        }
    }

    /// Reads a value of the given type from its text; the modifier is applied as an assignment
    /// would. Errors are PostgreSQL's: `22P02`, `22003`, `22001`, `22007`, `22008`, `22021`.
    pub fn parse_text(text: &str, target: ColumnType) -> Result<Value> {
        if text.as_bytes().contains(&0) {
            text_from_bytes(text.as_bytes())?;
        }
        let ty = target.ty;
        let invalid = || Error::invalid_input(ty.sql_name(), text);
        let value = match ty {
            Type::Int4 => Value::Int4(parse_int(text, ty)? as i32),
            Type::Int8 => Value::Int8(parse_int(text, ty)?),
            Type::Int2 => Value::Int2(parse_int(text, ty)? as i16),
            Type::Bool => Value::Bool(parse_bool(text).ok_or_else(invalid)?),
            Type::Float4 => Value::Float4(parse_f32(text)?),
            Type::Float8 => Value::Float8(parse_f64(text)?),
            Type::Numeric => Value::Numeric(apply_typmod(
                decimal_from_str(text.trim_ascii())?.ok_or_else(|| not_a_decimal(text))?,
                target.typmod,
            )?),
            Type::Bytea => Value::Bytea(parse_bytea(text)?),
            Type::Date | Type::Time | Type::Timestamp | Type::Timestamptz => parse_datetime(text, target, None)?,
            Type::Interval => Value::Interval(parse_interval(text, None)?),
            Type::Uuid => Value::Uuid(parse_uuid(text).ok_or_else(invalid)?),
            Type::Varchar | Type::Bpchar => Value::Text(char_limit(Cow::Borrowed(text), target, false)?.into_owned()),
            Type::Name => Value::Text(truncate_name(text).to_string()),
            Type::Char => Value::Text(text.chars().next().map(String::from).unwrap_or_default()),
            Type::Json => {
                crate::json::check(text)?;
                Value::Text(text.to_string())
            }
            Type::Jsonb => Value::Jsonb(crate::json::canonical(text)?),
            Type::Void => Value::Text(String::new()),
            _ if ty.is_oid_like() => Value::Oid(parse_oid(text, ty)?),
            _ if ty.element().is_some() => {
                let items = crate::array::elements(text, ty)?;
                let refs: Vec<_> = items.iter().map(Value::as_ref).collect();
                Value::Text(crate::array::format(&refs, ty))
            }
            _ => Value::Text(text.to_string()),
        };
        Ok(value)
    }
}

/// The first 63 bytes, cut at a character.
pub(crate) fn truncate_name(text: &str) -> &str {
    let end = (0..=NAME_BYTES.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}

fn not_a_decimal(text: &str) -> Error {
    let word = text.trim_ascii().to_ascii_lowercase();
    let word = word.trim_start_matches(['+', '-']);
    if matches!(word, "nan" | "infinity" | "inf") {
        return Error::unsupported(format!("numeric {}", text.trim_ascii()));
    }
    Error::invalid_input("numeric", text)
}

fn parse_int(text: &str, ty: Type) -> Result<i64> {
    let (min, max) = match ty {
        Type::Int2 => (i16::MIN as i64, i16::MAX as i64),
        Type::Int4 => (i32::MIN as i64, i32::MAX as i64),
        _ => (i64::MIN, i64::MAX),
    };
    let digits = text.trim_ascii();
    match digits.parse::<i64>() {
        Ok(v) if (min..=max).contains(&v) => Ok(v),
        Err(_) if !is_integer_literal(digits) => Err(Error::invalid_input(ty.sql_name(), text)),
        _ => Err(value_out_of_range(text, ty)),
    }
}

fn is_integer_literal(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

fn value_out_of_range(text: &str, ty: Type) -> Error {
    Error::new(
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        format!("value \"{text}\" is out of range for type {}", ty.sql_name()),
    )
}

fn parse_oid(text: &str, ty: Type) -> Result<u32> {
    let digits = text.trim_ascii();
    if digits == "-" && ty != Type::Oid {
        return Ok(0);
    }
    match digits.parse::<i64>() {
        // Negative numbers wrap, as oidin's strtoul does.
        Ok(v) if (i32::MIN as i64..=u32::MAX as i64).contains(&v) => Ok(v as u32),
        Err(_) if !is_integer_literal(digits) => Err(Error::invalid_input(ty.sql_name(), text)),
        _ => Err(value_out_of_range(text, ty)),
    }
}

/// A prefix of true, false, yes, no, on, off, or 1 and 0 (parse_bool_with_len).
fn parse_bool(text: &str) -> Option<bool> {
    let word = text.trim_ascii().to_ascii_lowercase();
    let is = |full: &str, min: usize| word.len() >= min && full.starts_with(&word);
    if is("true", 1) || is("yes", 1) || word == "on" || word == "1" {
        Some(true)
    } else if is("false", 1) || is("no", 1) || is("off", 2) || word == "0" {
        Some(false)
    } else {
        None
    }
}

/// The float, if the syntax is C's decimal one or a special word.
fn float_syntax(text: &str) -> Option<&str> {
    let word = text.trim_ascii();
    let lower = word.trim_start_matches(['+', '-']).to_ascii_lowercase();
    let signs = word.len() - lower.len();
    let special = matches!(lower.as_str(), "infinity" | "inf") || (lower == "nan" && signs == 0);
    let digits = lower.bytes().all(|b| matches!(b, b'0'..=b'9' | b'.' | b'e' | b'+' | b'-'));
    (signs <= 1 && (special || digits)).then_some(word)
}

fn has_nonzero_digit(text: &str) -> bool {
    let mantissa = text.split(['e', 'E']).next().unwrap_or(text);
    mantissa.bytes().any(|b| matches!(b, b'1'..=b'9'))
}

fn parse_f64(text: &str) -> Result<f64> {
    let invalid = || Error::invalid_input("double precision", text);
    let word = float_syntax(text).ok_or_else(invalid)?;
    let v: f64 = word.parse().map_err(|_| invalid())?;
    let overflows = v.is_infinite() && has_nonzero_digit(word);
    if overflows || (v == 0.0 && has_nonzero_digit(word)) {
        return Err(float_range(word, "double precision"));
    }
    Ok(v)
}

fn parse_f32(text: &str) -> Result<f32> {
    let invalid = || Error::invalid_input("real", text);
    let word = float_syntax(text).ok_or_else(invalid)?;
    let v: f32 = word.parse().map_err(|_| invalid())?;
    if (v.is_infinite() || v == 0.0) && has_nonzero_digit(word) {
        return Err(float_range(word, "real"));
    }
    Ok(v)
}

fn float_range(text: &str, type_name: &str) -> Error {
    Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("\"{text}\" is out of range for type {type_name}"))
}

fn hex_digit(b: u8) -> Option<u8> {
    (b as char).to_digit(16).map(|d| d as u8)
}

/// `\x` and hex digits, or the escape format.
fn parse_bytea(text: &str) -> Result<Vec<u8>> {
    match text.strip_prefix("\\x") {
        Some(hex) => parse_hex(hex),
        None => parse_escaped(text.as_bytes())
            .ok_or_else(|| Error::new(SqlState::INVALID_TEXT_REPRESENTATION, "invalid input syntax for type bytea")),
    }
}

fn parse_hex(hex: &str) -> Result<Vec<u8>> {
    let bad = |message: String| Error::new(SqlState::INVALID_PARAMETER_VALUE, message);
    let mut out = Vec::with_capacity(hex.len() / 2);
    let mut high: Option<u8> = None;
    for c in hex.chars() {
        if c.is_ascii_whitespace() && high.is_none() {
            continue;
        }
        let digit = c.to_digit(16).ok_or_else(|| bad(format!("invalid hexadecimal digit: \"{c}\"")))? as u8;
        match high.take() {
            None => high = Some(digit),
            Some(h) => out.push(h << 4 | digit),
        }
    }
    match high {
        Some(_) => Err(bad("invalid hexadecimal data: odd number of digits".into())),
        None => Ok(out),
    }
}

/// Backslash escapes: `\\` and three octal digits.
fn parse_escaped(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    loop {
        rest = match rest {
            [] => return Some(out),
            [b'\\', b'\\', tail @ ..] => {
                out.push(b'\\');
                tail
            }
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                tail
            }
            [b'\\', ..] => return None,
            [b, tail @ ..] => {
                out.push(*b);
                tail
            }
        };
    }
}

/// 32 hex digits, hyphens after any group of four, optional braces (uuid_in).
fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let inner = match text.strip_prefix('{') {
        Some(rest) => rest.strip_suffix('}')?,
        None => text,
    };
    let mut out = [0u8; 16];
    let mut rest = inner.as_bytes();
    for (i, byte) in out.iter_mut().enumerate() {
        let [high, low, tail @ ..] = rest else {
            return None;
        };
        *byte = hex_digit(*high)? << 4 | hex_digit(*low)?;
        rest = match tail {
            [b'-', after @ ..] if i % 2 == 1 && i < 15 => after,
            _ => tail,
        };
    }
    rest.is_empty().then_some(out)
}

/// Fits text to `character varying(n)` or `character(n)`: blanks beyond the length are cut, blanks
/// that miss are added for `character(n)`. Other characters beyond the length are cut when the
/// cast is `explicit`, and `22001` otherwise. Lengths are in characters.
pub fn char_limit(text: Cow<'_, str>, target: ColumnType, explicit: bool) -> Result<Cow<'_, str>> {
    let Some(limit) = target.char_len() else {
        return Ok(text);
    };
    let chars = if text.is_ascii() { text.len() } else { text.chars().count() };
    if chars > limit {
        let at = text.char_indices().nth(limit).map_or(text.len(), |(at, _)| at);
        if !explicit && !text[at..].bytes().all(|b| b == b' ') {
            let message = format!("value too long for type {}", target.format_type());
            return Err(Error::new(SqlState::STRING_DATA_RIGHT_TRUNCATION, message));
        }
        return Ok(match text {
            Cow::Borrowed(s) => Cow::Borrowed(&s[..at]),
            Cow::Owned(mut s) => {
                s.truncate(at);
                Cow::Owned(s)
            }
        });
    }
    if target.ty == Type::Bpchar && chars < limit {
        let mut padded = text.into_owned();
        padded.extend(std::iter::repeat_n(' ', limit - chars));
        return Ok(Cow::Owned(padded));
    }
    Ok(text)
}
