//! How does `numeric` map to a 96-bit decimal, and what happens at its edges?
//!
//! rust_decimal keeps up to 28 digits after the point and 96 bits of mantissa. What does not fit is
//! `22003`; digits after the point that do not fit are rounded half away from zero.

use rust_decimal::{Decimal, RoundingStrategy};

use crate::error::{Error, Result, SqlState};
use crate::ty::numeric_typmod;

/// Digits after the point at most.
pub(crate) const MAX_SCALE: u32 = 28;
/// Largest mantissa: 96 bits.
const MAX_MANTISSA: u128 = (1 << 96) - 1;

#[cold]
pub(crate) fn overflow() -> Error {
    Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format")
        .with_detail("A numeric has at most 28 digits here.")
}

/// Reads a numeric literal: `[+-] digits [. digits] [e [+-] digits]`. The caller has removed blanks.
/// `Ok(None)` for bad syntax.
pub fn decimal_from_str(s: &str) -> Result<Option<Decimal>> {
    let (negative, digits) = match s.as_bytes() {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let (digits, exponent) = match digits.iter().position(|b| matches!(b, b'e' | b'E')) {
        None => (digits, 0),
        Some(at) => match parse_exponent(&digits[at + 1..]) {
            Some(e) => (&digits[..at], e),
            None => return Ok(None),
        },
    };
    let point = digits.iter().position(|b| *b == b'.');
    let (whole, fraction) = match point {
        Some(at) => (&digits[..at], &digits[at + 1..]),
        None => (digits, &[][..]),
    };
    let all_digits = |b: &[u8]| b.iter().all(u8::is_ascii_digit);
    if whole.len() + fraction.len() == 0 || !all_digits(whole) || !all_digits(fraction) {
        return Ok(None);
    }
    let scale = fraction.len() as i64 - exponent;
    build(negative, whole.iter().chain(fraction), scale).map(Some)
}

/// Whether a numeric literal keeps all its digits as a decimal.
pub fn fits_decimal(s: &str) -> bool {
    let (digits, exponent) = s.split_once(['e', 'E']).unwrap_or((s, "0"));
    let after_point = digits.split_once('.').map_or(0, |(_, fraction)| fraction.len() as i64);
    let scale = parse_exponent(exponent.as_bytes()).map(|exponent| after_point - exponent);
    scale.is_some_and(|scale| scale <= MAX_SCALE as i64) && matches!(decimal_from_str(s), Ok(Some(_)))
}

fn parse_exponent(bytes: &[u8]) -> Option<i64> {
    let s = std::str::from_utf8(bytes).ok()?;
    let digits = s.strip_prefix(['+', '-']).unwrap_or(s);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // Anything with more digits overflows or underflows alike.
    s.parse::<i64>().ok().or(Some(if s.starts_with('-') { -100_000 } else { 100_000 }))
}

/// The decimal of these digits with `scale` of them after the point; a scale beyond 28 or more
/// digits than fit are rounded off as long as they are after the point.
pub(crate) fn build<'a>(negative: bool, digits: impl Iterator<Item = &'a u8>, scale: i64) -> Result<Decimal> {
    let (mut mantissa, mut scale) = (0u128, scale);
    let mut dropped = 0i64;
    let mut round_up = false;
    for digit in digits {
        let digit = (digit - b'0') as u128;
        if dropped > 0 {
            dropped += 1;
        } else if mantissa * 10 + digit > MAX_MANTISSA {
            round_up = digit >= 5;
            dropped = 1;
        } else {
            mantissa = mantissa * 10 + digit;
        }
    }
    scale -= dropped;
    if mantissa == 0 {
        scale = scale.clamp(0, MAX_SCALE as i64);
    }
    // Digits before the point may not be dropped: they are zeros to be put back, or too many.
    while scale < 0 {
        if dropped > 0 || mantissa > MAX_MANTISSA / 10 {
            return Err(overflow());
        }
        mantissa *= 10;
        scale += 1;
    }
    while scale > MAX_SCALE as i64 {
        round_up = mantissa % 10 >= 5;
        mantissa /= 10;
        scale = if mantissa == 0 && !round_up { MAX_SCALE as i64 } else { scale - 1 };
    }
    mantissa += u128::from(round_up);
    if mantissa > MAX_MANTISSA {
        mantissa = (mantissa + 5) / 10;
        scale -= 1;
        if scale < 0 {
            return Err(overflow());
        }
    }
    let signed = if negative { -(mantissa as i128) } else { mantissa as i128 };
    Decimal::try_from_i128_with_scale(signed, scale as u32).map_err(|_| overflow())
}

/// The decimal with exactly `scale` digits after the point, rounded half away from zero; a negative
/// scale rounds before the point. `22003` when the zeros it needs do not fit.
pub fn round_to_scale(d: Decimal, scale: i32) -> Result<Decimal> {
    if scale < 0 {
        let unit = 10i128.checked_pow(scale.unsigned_abs()).filter(|u| *u <= MAX_MANTISSA as i128);
        let Some(unit) = unit.and_then(|u| Decimal::try_from_i128_with_scale(u, 0).ok()) else {
            return Ok(Decimal::ZERO);
        };
        let quotient = d.checked_div(unit).ok_or_else(overflow)?;
        let rounded = quotient.round_dp_with_strategy(0, RoundingStrategy::MidpointAwayFromZero);
        return rounded.checked_mul(unit).ok_or_else(overflow);
    }
    let scale = scale as u32;
    if d.scale() > scale {
        return Ok(d.round_dp_with_strategy(scale, RoundingStrategy::MidpointAwayFromZero));
    }
    // More digits than fit are left off: they are zeros.
    let mut wider = d;
    wider.rescale(scale.min(MAX_SCALE));
    Ok(wider)
}

/// Applies a `numeric(precision, scale)` modifier: rounds, then checks the digits before the point.
pub(crate) fn apply_typmod(d: Decimal, typmod: i32) -> Result<Decimal> {
    if typmod < 4 {
        return Ok(d);
    }
    let (precision, scale) = numeric_typmod(typmod);
    let rounded = round_to_scale(d, scale as i32)?;
    let whole_digits = precision.saturating_sub(scale);
    let limit = 10u128.checked_pow(whole_digits).unwrap_or(u128::MAX);
    if rounded.trunc().mantissa().unsigned_abs() / 10u128.pow(rounded.trunc().scale()) >= limit {
        return Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow").with_detail(format!(
            "A field with precision {precision}, scale {scale} must round to an absolute \
                 value less than {}.",
            if whole_digits == 0 { "1".to_string() } else { format!("10^{whole_digits}") }
        )));
    }
    Ok(rounded)
}

/// The nearest float.
pub fn decimal_to_f64(d: Decimal) -> f64 {
    // Through the digits: the standard library's parser rounds correctly, a division would not.
    if d.scale() == 0 && d.mantissa().unsigned_abs() < 1 << 53 {
        return d.mantissa() as f64;
    }
    format!("{}e-{}", d.mantissa(), d.scale()).parse().unwrap_or(f64::NAN)
}

/// The decimal of a float's first `digits` significant digits (PostgreSQL casts `real` with 6 and
/// `double precision` with 15).
pub fn decimal_from_f64(f: f64, digits: usize) -> Result<Decimal> {
    if !f.is_finite() {
        return Err(Error::new(
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            format!("cannot convert {} to numeric", if f.is_nan() { "NaN" } else { "infinity" }),
        ));
    }
    let text = format!("{f:.*e}", digits - 1);
    let d = decimal_from_str(&text)?.ok_or_else(overflow)?;
    Ok(d.normalize())
}

/// The quotient with as many digits after the point as PostgreSQL gives: at least 16 significant
/// ones, counted in groups of four (select_div_scale in numeric.c).
pub fn divide(a: Decimal, b: Decimal) -> Result<Decimal> {
    if b.is_zero() {
        return Err(Error::division_by_zero());
    }
    let ((weight_a, first_a), (weight_b, first_b)) = (leading_group(a), leading_group(b));
    let weight = weight_a - weight_b - i32::from(first_a <= first_b);
    let scale = (16 - 4 * weight).max(a.scale() as i32).max(b.scale() as i32).max(0);
    let quotient = a.checked_div(b).ok_or_else(overflow)?;
    round_to_scale(quotient, scale.min(MAX_SCALE as i32))
}

/// The weight (power of 10000) and value of the first non-zero base-10000 digit.
fn leading_group(d: Decimal) -> (i32, u128) {
    let mantissa = d.mantissa().unsigned_abs();
    if mantissa == 0 {
        return (0, 0);
    }
    let power = mantissa.ilog10() as i32 - d.scale() as i32;
    let weight = power.div_euclid(4);
    // The digits of the group: those at powers 4 * weight and above.
    let drop = 4 * weight + d.scale() as i32;
    let group = if drop >= 0 { mantissa / 10u128.pow(drop as u32) } else { mantissa * 10u128.pow(-drop as u32) };
    (weight, group)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(s: &str) -> String {
        decimal_from_str(s).unwrap().unwrap().to_string()
    }

    #[test]
    fn literals() {
        assert_eq!(parse("1.50"), "1.50");
        assert_eq!(parse("-.5"), "-0.5");
        assert_eq!(parse("1."), "1");
        assert_eq!(parse("1e3"), "1000");
        assert_eq!(parse("1.5e-3"), "0.0015");
        assert_eq!(parse("0e100"), "0");
        assert_eq!(parse("1e-40"), "0.0000000000000000000000000000");
        assert_eq!(parse("0.33333333333333333333333333333333"), "0.3333333333333333333333333333");
        assert_eq!(decimal_from_str("1e").unwrap(), None);
        assert_eq!(decimal_from_str(".").unwrap(), None);
        assert_eq!(decimal_from_str("1e30").unwrap_err().code, SqlState::NUMERIC_VALUE_OUT_OF_RANGE);
        assert!(decimal_from_str("123456789012345678901234567890").is_err());
    }

    #[test]
    fn literals_that_lose_digits_do_not_fit() {
        assert!(["1.5e-3", "1e28", "1e-28", "-12.5E2"].into_iter().all(fits_decimal));
        assert!(!["1e300", "1e-300", "1.5e-28", "-1e29", "1e"].into_iter().any(fits_decimal));
    }

    #[test]
    fn quotients_have_postgresqls_digits() {
        let d = |s| decimal_from_str(s).unwrap().unwrap();
        let cases = [
            ("1", "3", "0.33333333333333333333"),
            ("10", "4", "2.5000000000000000"),
            ("2", "1", "2.0000000000000000"),
            ("100000", "3", "33333.333333333333"),
            ("1.00", "0.003", "333.3333333333333333"),
            ("0", "7", "0.00000000000000000000"),
        ];
        for (a, b, want) in cases {
            assert_eq!(divide(d(a), d(b)).unwrap().to_string(), want, "{a} / {b}");
        }
        assert_eq!(divide(d("1"), d("0")).unwrap_err().code, SqlState::DIVISION_BY_ZERO);
    }

    #[test]
    fn modifiers_round_and_limit() {
        let d = decimal_from_str("123.456").unwrap().unwrap();
        let t = crate::ColumnType::numeric(5, 2);
        assert_eq!(apply_typmod(d, t.typmod).unwrap().to_string(), "123.46");
        let t = crate::ColumnType::numeric(4, 2);
        assert_eq!(apply_typmod(d, t.typmod).unwrap_err().message, "numeric field overflow");
        assert_eq!(round_to_scale(d, -1).unwrap().to_string(), "120");
    }
}
