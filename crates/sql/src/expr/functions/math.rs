//! Functions of numbers.

use super::super::arith::check_float;
use super::super::function::{Body, Function, Volatility, strict};
use super::{decimal, float, int};
use homenode_types::Type::{Float4, Float8, Int2, Int4, Int8, Numeric, Text};
use homenode_types::{
    Decimal, Error, Result, SqlState, Value, decimal_from_f64, decimal_to_f64, divide, round_to_scale,
};
use std::hash::{BuildHasher, Hasher, RandomState};

type F = fn(&[Value]) -> Result<Value>;

/// The table.
pub(super) static FUNCTIONS: &[Function] = &[
    strict("abs", &[Int2], Int2, |a| {
        int(&a[0])
            .checked_abs()
            .and_then(|v| i16::try_from(v).ok())
            .map(Value::Int2)
            .ok_or_else(|| Error::out_of_range("smallint"))
    }),
    strict("abs", &[Int4], Int4, |a| {
        int(&a[0])
            .checked_abs()
            .and_then(|v| i32::try_from(v).ok())
            .map(Value::Int4)
            .ok_or_else(|| Error::out_of_range("integer"))
    }),
    strict("abs", &[Int8], Int8, |a| {
        int(&a[0]).checked_abs().map(Value::Int8).ok_or_else(|| Error::out_of_range("bigint"))
    }),
    strict("abs", &[Float4], Float4, |a| Ok(Value::Float4(float(&a[0]).abs() as f32))),
    strict("abs", &[Float8], Float8, |a| Ok(Value::Float8(float(&a[0]).abs()))),
    strict("abs", &[Numeric], Numeric, |a| Ok(Value::Numeric(decimal(&a[0]).abs()))),
    strict("mod", &[Int2, Int2], Int2, |a| remainder(a).map(|v| Value::Int2(v as i16))),
    strict("mod", &[Int4, Int4], Int4, |a| remainder(a).map(|v| Value::Int4(v as i32))),
    strict("mod", &[Int8, Int8], Int8, |a| remainder(a).map(Value::Int8)),
    strict("mod", &[Numeric, Numeric], Numeric, |a| match decimal(&a[1]) {
        b if b.is_zero() => Err(Error::division_by_zero()),
        b => decimal(&a[0]).checked_rem(b).map(Value::Numeric).ok_or_else(|| Error::out_of_range("numeric")),
    }),
    strict("div", &[Numeric, Numeric], Numeric, |a| {
        divide(decimal(&a[0]), decimal(&a[1])).map(|v| Value::Numeric(v.trunc()))
    }),
    strict("round", &[Float8], Float8, |a| Ok(Value::Float8(float(&a[0]).round_ties_even()))),
    strict("round", &[Numeric], Numeric, |a| round_to_scale(decimal(&a[0]), 0).map(Value::Numeric)),
    strict("round", &[Numeric, Int4], Numeric, |a| {
        round_to_scale(decimal(&a[0]), int(&a[1]) as i32).map(Value::Numeric)
    }),
    strict("trunc", &[Float8], Float8, |a| Ok(Value::Float8(float(&a[0]).trunc()))),
    strict("trunc", &[Numeric], Numeric, |a| Ok(Value::Numeric(decimal(&a[0]).trunc()))),
    strict("trunc", &[Numeric, Int4], Numeric, |a| truncate(decimal(&a[0]), int(&a[1]))),
    strict("floor", &[Float8], Float8, |a| Ok(Value::Float8(float(&a[0]).floor()))),
    strict("floor", &[Numeric], Numeric, |a| Ok(Value::Numeric(decimal(&a[0]).floor()))),
    strict("ceil", &[Float8], Float8, CEIL),
    strict("ceil", &[Numeric], Numeric, |a| Ok(Value::Numeric(decimal(&a[0]).ceil()))),
    strict("ceiling", &[Float8], Float8, CEIL),
    strict("ceiling", &[Numeric], Numeric, |a| Ok(Value::Numeric(decimal(&a[0]).ceil()))),
    strict("sign", &[Float8], Float8, |a| {
        Ok(Value::Float8(match float(&a[0]) {
            v if v > 0.0 => 1.0,
            v if v < 0.0 => -1.0,
            _ => 0.0,
        }))
    }),
    strict("sign", &[Numeric], Numeric, |a| Ok(Value::Numeric(decimal(&a[0]).cmp(&Decimal::ZERO).into_sign()))),
    strict("power", &[Float8, Float8], Float8, POWER),
    strict("pow", &[Float8, Float8], Float8, POWER),
    strict("power", &[Numeric, Numeric], Numeric, |a| {
        numeric_power(decimal(&a[0]), decimal(&a[1])).map(Value::Numeric)
    }),
    strict("pow", &[Numeric, Numeric], Numeric, |a| numeric_power(decimal(&a[0]), decimal(&a[1])).map(Value::Numeric)),
    strict("sqrt", &[Float8], Float8, |a| match float(&a[0]) {
        v if v < 0.0 => Err(negative_root()),
        v => Ok(Value::Float8(v.sqrt())),
    }),
    strict("sqrt", &[Numeric], Numeric, |a| numeric_sqrt(decimal(&a[0])).map(Value::Numeric)),
    strict("cbrt", &[Float8], Float8, |a| Ok(Value::Float8(float(&a[0]).cbrt()))),
    strict("exp", &[Float8], Float8, |a| finite(float(&a[0]).exp(), &a[0])),
    strict("ln", &[Float8], Float8, |a| logarithm(&a[0]).map(|v| Value::Float8(v.ln()))),
    strict("log", &[Float8], Float8, |a| logarithm(&a[0]).map(|v| Value::Float8(v.log10()))),
    strict("log10", &[Float8], Float8, |a| logarithm(&a[0]).map(|v| Value::Float8(v.log10()))),
    strict("log", &[Numeric, Numeric], Numeric, |a| {
        decimal_from_f64(logarithm(&a[1])?.ln() / logarithm(&a[0])?.ln(), 16).map(Value::Numeric)
    }),
    strict("sin", &[Float8], Float8, |a| Ok(Value::Float8(float(&a[0]).sin()))),
    strict("cos", &[Float8], Float8, |a| Ok(Value::Float8(float(&a[0]).cos()))),
    strict("tan", &[Float8], Float8, |a| Ok(Value::Float8(float(&a[0]).tan()))),
    strict("atan", &[Float8], Float8, |a| Ok(Value::Float8(float(&a[0]).atan()))),
    strict("atan2", &[Float8, Float8], Float8, |a| Ok(Value::Float8(float(&a[0]).atan2(float(&a[1]))))),
    strict("degrees", &[Float8], Float8, |a| Ok(Value::Float8(float(&a[0]).to_degrees()))),
    strict("radians", &[Float8], Float8, |a| Ok(Value::Float8(float(&a[0]).to_radians()))),
    strict("pi", &[], Float8, |_| Ok(Value::Float8(std::f64::consts::PI))),
    strict("bitnot", &[Int2], Int2, |a| Ok(Value::Int2(!(int(&a[0]) as i16)))),
    strict("bitnot", &[Int4], Int4, |a| Ok(Value::Int4(!(int(&a[0]) as i32)))),
    strict("bitnot", &[Int8], Int8, |a| Ok(Value::Int8(!int(&a[0])))),
    strict("to_hex", &[Int4], Text, |a| Ok(Value::Text(format!("{:x}", int(&a[0]) as i32)))),
    strict("to_hex", &[Int8], Text, |a| Ok(Value::Text(format!("{:x}", int(&a[0]))))),
    Function {
        name: "random",
        args: &[],
        variadic: None,
        result: Float8,
        volatility: Volatility::Volatile,
        body: Body::Strict(random),
    },
];

const CEIL: F = |a| Ok(Value::Float8(float(&a[0]).ceil()));
const POWER: F = |a| float_power(float(&a[0]), float(&a[1])).map(Value::Float8);

trait IntoSign {
    fn into_sign(self) -> Decimal;
}

impl IntoSign for std::cmp::Ordering {
    fn into_sign(self) -> Decimal {
        Decimal::from(self as i8)
    }
}

fn remainder(a: &[Value]) -> Result<i64> {
    match int(&a[1]) {
        0 => Err(Error::division_by_zero()),
        b => Ok(int(&a[0]).wrapping_rem(b)),
    }
}

fn truncate(d: Decimal, scale: i64) -> Result<Value> {
    if scale >= 0 {
        return Ok(Value::Numeric(if d.scale() as i64 > scale {
            d.trunc_with_scale(scale as u32)
        } else {
            round_to_scale(d, scale.min(28) as i32)?
        }));
    }
    let unit = Decimal::from(10i128.checked_pow(scale.unsigned_abs().min(28) as u32).unwrap_or(i128::MAX));
    Ok(Value::Numeric((d / unit).trunc() * unit))
}

fn negative_root() -> Error {
    Error::new(SqlState::INVALID_ARGUMENT_FOR_POWER_FUNCTION, "cannot take square root of a negative number")
}

fn logarithm(value: &Value) -> Result<f64> {
    let error = |message: &str| Err(Error::new(SqlState::INVALID_ARGUMENT_FOR_LOGARITHM, message));
    match float(value) {
        0.0 => error("cannot take logarithm of zero"),
        v if v < 0.0 => error("cannot take logarithm of a negative number"),
        v => Ok(v),
    }
}

fn finite(result: f64, argument: &Value) -> Result<Value> {
    let infinite = float(argument).is_infinite();
    check_float(result, infinite, infinite).map(Value::Float8)
}

/// dpow of float.c.
pub(in super::super) fn float_power(a: f64, b: f64) -> Result<f64> {
    let error = |message: &str| Err(Error::new(SqlState::INVALID_ARGUMENT_FOR_POWER_FUNCTION, message));
    if a == 0.0 && b < 0.0 {
        return error("zero raised to a negative power is undefined");
    }
    if a < 0.0 && b.is_finite() && b.fract() != 0.0 {
        return error("a negative number raised to a non-integer power yields a complex result");
    }
    let infinite = a.is_infinite() || b.is_infinite();
    check_float(a.powf(b), infinite, infinite || a == 0.0)
}

/// Digits after the point that leave 16 significant ones.
fn significant_scale(d: Decimal, at_least: u32) -> i32 {
    let magnitude = decimal_to_f64(d).abs().log10();
    let whole = if magnitude.is_finite() { magnitude as i32 } else { 0 };
    (16 - whole).max(at_least as i32).clamp(0, 28)
}

/// Whole exponents by multiplication, others through floats (about 15 digits are right).
pub(in super::super) fn numeric_power(a: Decimal, b: Decimal) -> Result<Decimal> {
    let overflow = || Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format");
    let at_least = a.scale().max(b.scale());
    let exponent = if b.fract().is_zero() {
        i64::try_from(b.trunc().mantissa() / 10i128.pow(b.trunc().scale())).ok()
    } else {
        None
    };
    let result = match exponent {
        Some(n) if n.unsigned_abs() <= 100_000 => {
            let mut power = Decimal::ONE;
            for _ in 0..n.unsigned_abs() {
                power = power.checked_mul(a).ok_or_else(overflow)?;
                if power.is_zero() || power == Decimal::ONE {
                    break;
                }
            }
            // (-1)^n ends the loop early.
            let power = if a == Decimal::NEGATIVE_ONE { if n % 2 == 0 { Decimal::ONE } else { a } } else { power };
            if n < 0 {
                if power.is_zero() {
                    return Err(Error::new(
                        SqlState::INVALID_ARGUMENT_FOR_POWER_FUNCTION,
                        "zero raised to a negative power is undefined",
                    ));
                }
                Decimal::ONE.checked_div(power).ok_or_else(overflow)?
            } else {
                power
            }
        }
        _ => decimal_from_f64(float_power(decimal_to_f64(a), decimal_to_f64(b))?, 17)?,
    };
    round_to_scale(result, significant_scale(result, at_least))
}

/// A float's root made exact by one step of Newton's method; digits as sqrt_var chooses them.
fn numeric_sqrt(d: Decimal) -> Result<Decimal> {
    if d < Decimal::ZERO {
        return Err(negative_root());
    }
    let weight = match d.trunc().mantissa().unsigned_abs() {
        0 => -1,
        _ => (decimal_to_f64(d.trunc()).log10() as i32) / 4,
    };
    let scale = (16 - ((weight + 1) * 2 - 1)).max(d.scale() as i32).clamp(0, 28);
    if d.is_zero() {
        return round_to_scale(d, scale);
    }
    let guess = decimal_from_f64(decimal_to_f64(d).sqrt(), 15)?;
    let quotient = d.checked_div(guess).ok_or_else(|| Error::out_of_range("numeric"))?;
    round_to_scale((guess + quotient) / Decimal::TWO, scale)
}

/// The standard library's per-instance hash keys are as random as random() needs to be.
fn random(_: &[Value]) -> Result<Value> {
    let bits = RandomState::new().build_hasher().finish();
    Ok(Value::Float8((bits >> 11) as f64 / (1u64 << 53) as f64))
}
