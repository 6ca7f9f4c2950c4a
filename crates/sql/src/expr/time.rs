//! How do points in time and intervals add up, and what are their parts?

use super::arith::ArithOp;
use homenode_types::datetime::{Unit, add_months, civil_of_days, civil_of_timestamp, days_of_civil};
use homenode_types::{Decimal, Error, Interval, Result, SqlState, Value, ValueRef};

pub(super) const DAY_US: i64 = 86_400_000_000;

fn out_of_range(what: &str) -> Error {
    Error::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("{what} out of range"))
}

/// A timestamp (microseconds since 2000-01-01) an interval later: months first, then days, then time. The infinities
/// stay. `22008` beyond the range.
pub fn add_interval(timestamp_us: i64, interval: Interval) -> Result<i64> {
    if matches!(timestamp_us, i64::MIN | i64::MAX) {
        return Ok(timestamp_us);
    }
    let shifted = match interval.months {
        0 => timestamp_us,
        months => add_months(timestamp_us, months)?,
    };
    shifted
        .checked_add(interval.days as i64 * DAY_US)
        .and_then(|us| us.checked_add(interval.us))
        .filter(|us| homenode_types::datetime::timestamp_in_range(*us))
        .ok_or_else(|| out_of_range("timestamp"))
}

fn negated(i: Interval) -> Result<Interval> {
    let minus =
        || Some(Interval { months: i.months.checked_neg()?, days: i.days.checked_neg()?, us: i.us.checked_neg()? });
    minus().ok_or_else(|| out_of_range("interval"))
}

fn midnight(date: i32) -> Result<i64> {
    match date {
        i32::MIN => Ok(i64::MIN),
        i32::MAX => Ok(i64::MAX),
        date => (date as i64)
            .checked_mul(DAY_US)
            .filter(|us| homenode_types::datetime::timestamp_in_range(*us))
            .ok_or_else(|| out_of_range("date")),
    }
}

/// Arithmetic with a date, time, timestamp or interval on one side; `None` when there is no such operator.
pub(super) fn arithmetic<'a>(op: ArithOp, left: ValueRef<'_>, right: ValueRef<'_>) -> Option<Result<ValueRef<'a>>> {
    use ValueRef as V;
    let plus = op == ArithOp::Add;
    let result = match (op, left, right) {
        (ArithOp::Add, V::Interval(_), V::Date(_) | V::Time(_) | V::Timestamp(_) | V::Timestamptz(_))
        | (ArithOp::Add, V::Int2(_) | V::Int4(_), V::Date(_))
        | (ArithOp::Add, V::Time(_), V::Date(_)) => return arithmetic(op, right, left),
        (ArithOp::Mul, _, V::Interval(i)) => scale_interval(i, left.as_f64()?),
        (ArithOp::Mul, V::Interval(i), _) => scale_interval(i, right.as_f64()?),
        (ArithOp::Div, V::Interval(i), _) => match right.as_f64()? {
            0.0 => Err(Error::division_by_zero()),
            factor => scale_interval(i, 1.0 / factor),
        },
        (ArithOp::Sub, V::Date(a), V::Date(b)) => days_between(a, b),
        (ArithOp::Add, V::Date(d), V::Time(t)) => midnight(d).map(|us| V::Timestamp(us.saturating_add(t))),
        (ArithOp::Add | ArithOp::Sub, V::Date(d), V::Int2(_) | V::Int4(_)) => shift_date(d, right.as_i64()?, plus),
        (ArithOp::Add | ArithOp::Sub, _, V::Interval(i)) => shift(left, if plus { Ok(i) } else { negated(i) }),
        (ArithOp::Sub, V::Time(a), V::Time(b)) => Ok(V::Interval(Interval { us: a - b, ..Interval::default() })),
        (ArithOp::Sub, _, _) => moments_between(left, right)?,
        _ => return None,
    };
    Some(result)
}

fn days_between<'a>(a: i32, b: i32) -> Result<ValueRef<'a>> {
    if [a, b].iter().any(|d| matches!(*d, i32::MIN | i32::MAX)) {
        return Err(Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "cannot subtract infinite dates"));
    }
    a.checked_sub(b).map(ValueRef::Int4).ok_or_else(|| Error::out_of_range("integer"))
}

fn shift_date<'a>(date: i32, days: i64, plus: bool) -> Result<ValueRef<'a>> {
    if matches!(date, i32::MIN | i32::MAX) {
        return Ok(ValueRef::Date(date));
    }
    let days = date as i64 + if plus { days } else { -days };
    // 4714-11-24 BC to 5874897-12-31, as PostgreSQL.
    if (-2_451_545..=2_145_031_948).contains(&days) {
        Ok(ValueRef::Date(days as i32))
    } else {
        Err(out_of_range("date"))
    }
}

fn shift<'a>(moment: ValueRef<'_>, interval: Result<Interval>) -> Result<ValueRef<'a>> {
    let i = interval?;
    let sum = |a: i32, b: i32| a.checked_add(b).ok_or_else(|| out_of_range("interval"));
    Ok(match moment {
        ValueRef::Timestamp(us) => ValueRef::Timestamp(add_interval(us, i)?),
        ValueRef::Timestamptz(us) => ValueRef::Timestamptz(add_interval(us, i)?),
        ValueRef::Date(d) => ValueRef::Timestamp(add_interval(midnight(d)?, i)?),
        // Only the time of the interval counts, around the clock.
        ValueRef::Time(us) => ValueRef::Time((us + i.us % DAY_US).rem_euclid(DAY_US)),
        ValueRef::Interval(a) => ValueRef::Interval(Interval {
            months: sum(a.months, i.months)?,
            days: sum(a.days, i.days)?,
            us: a.us.checked_add(i.us).ok_or_else(|| out_of_range("interval"))?,
        }),
        other => return Err(Error::internal(format!("{other:?} and an interval"))),
    })
}

/// The time between two timestamps as days and time (timestamp_mi justifies the hours).
fn moments_between<'a>(left: ValueRef<'_>, right: ValueRef<'_>) -> Option<Result<ValueRef<'a>>> {
    let us = |v| match v {
        ValueRef::Timestamp(us) | ValueRef::Timestamptz(us) => Some(Ok(us)),
        ValueRef::Date(d) => Some(midnight(d)),
        _ => None,
    };
    let between = |a: i64, b: i64| {
        if [a, b].iter().any(|v| matches!(*v, i64::MIN | i64::MAX)) {
            let message = "cannot subtract infinite timestamps";
            return Err(Error::new(SqlState::DATETIME_FIELD_OVERFLOW, message));
        }
        let us = a.checked_sub(b).ok_or_else(|| out_of_range("interval"))?;
        Ok(ValueRef::Interval(Interval { months: 0, days: (us / DAY_US) as i32, us: us % DAY_US }))
    };
    let (left, right) = (us(left)?, us(right)?);
    Some(left.and_then(|a| between(a, right?)))
}

/// An interval times a factor; what is left of months becomes days, what is left of days becomes time (interval_mul).
fn scale_interval<'a>(i: Interval, factor: f64) -> Result<ValueRef<'a>> {
    let range = || out_of_range("interval");
    let whole = |v: f64| {
        let v = v.trunc();
        (v.abs() < 2_147_483_648.0).then_some(v as i32).ok_or_else(range)
    };
    let (months, days) = (i.months as f64 * factor, i.days as f64 * factor);
    let month_days = round_us((months - months.trunc()) * 30.0);
    let day_seconds = round_us((days - days.trunc() + month_days - month_days.trunc()) * 86_400.0);
    let (extra_days, seconds) = if day_seconds.abs() >= 86_400.0 {
        let extra = (day_seconds / 86_400.0).trunc();
        (extra, day_seconds - extra * 86_400.0)
    } else {
        (0.0, day_seconds)
    };
    let us = (i.us as f64 * factor + seconds * 1e6).round_ties_even();
    if us.abs() >= 9.2e18 || us.is_nan() {
        return Err(range());
    }
    Ok(ValueRef::Interval(Interval {
        months: whole(months)?,
        days: whole(days)?.checked_add(whole(month_days + extra_days)?).ok_or_else(range)?,
        us: us as i64,
    }))
}

/// Rounded to the microsecond (TSROUND).
fn round_us(v: f64) -> f64 {
    (v * 1e6).round_ties_even() / 1e6
}

/// What `extract(field from value)` finds; the scale of the result follows PostgreSQL's. `None` when the type does not
/// have the field.
pub(super) fn extract(field: &str, value: &Value) -> Result<Value> {
    let (us, type_name) = match value {
        Value::Timestamp(us) => (*us, "timestamp without time zone"),
        Value::Timestamptz(us) => (*us, "timestamp with time zone"),
        Value::Date(d) => (midnight(*d)?, "date"),
        Value::Time(us) => return extract_clock(field, *us, "time without time zone"),
        Value::Interval(i) => return extract_interval(field, *i),
        _ => return Ok(Value::Null),
    };
    if matches!(us, i64::MIN | i64::MAX) {
        return Err(Error::unsupported("extract from an infinite time"));
    }
    let days = us.div_euclid(DAY_US);
    let civil = civil_of_timestamp(us);
    let year = civil.year as i64;
    // There is no year 0: 1 BC is -1.
    let shown_year = if year > 0 { year } else { year - 1 };
    let from_one = |size: i64| if year > 0 { (year + size - 1) / size } else { -((size - year) / size) };
    let weekday = (days + 6).rem_euclid(7);
    let whole = match field {
        "year" | "years" | "y" | "yr" => shown_year,
        "month" | "months" | "mon" => civil.month as i64,
        "day" | "days" | "d" => civil.day as i64,
        "quarter" | "qtr" => (civil.month as i64 - 1) / 3 + 1,
        "decade" => year.div_euclid(10),
        "century" => from_one(100),
        "millennium" => from_one(1000),
        "dow" => weekday,
        "isodow" => {
            if weekday == 0 {
                7
            } else {
                weekday
            }
        }
        "doy" => days - days_of_civil(civil.year, 1, 1) + 1,
        "week" => iso_week(days).1,
        "isoyear" => iso_week(days).0,
        "timezone" | "timezone_hour" | "timezone_minute" if type_name == "timestamp with time zone" => 0,
        "epoch" if type_name == "date" => days * 86_400 + 946_684_800,
        "epoch" => return Ok(scaled(us as i128 + 946_684_800_000_000, 6)),
        "julian" if us % DAY_US == 0 => days + 2_451_545,
        _ if type_name == "date" => return Err(unknown_field(field, type_name)),
        _ => return extract_clock(field, civil.time_us, type_name),
    };
    Ok(scaled(whole as i128, 0))
}

fn scaled(value: i128, scale: u32) -> Value {
    Value::Numeric(Decimal::try_from_i128_with_scale(value, scale).unwrap_or_default())
}

fn unknown_field(field: &str, type_name: &str) -> Error {
    let known =
        Unit::from_name(field).is_some() || matches!(field, "epoch" | "dow" | "doy" | "isodow" | "isoyear" | "julian");
    let (code, verb) = if known {
        (SqlState::FEATURE_NOT_SUPPORTED, "supported")
    } else {
        (SqlState::INVALID_PARAMETER_VALUE, "recognized")
    };
    Error::new(code, format!("unit \"{field}\" not {verb} for type {type_name}"))
}

/// Fields of a time of day.
fn extract_clock(field: &str, us: i64, type_name: &str) -> Result<Value> {
    let of_minute = us as i128 % 60_000_000;
    Ok(match field {
        "hour" | "hours" | "h" => scaled(us as i128 / 3_600_000_000, 0),
        "minute" | "minutes" | "min" => scaled(us as i128 / 60_000_000 % 60, 0),
        "second" | "seconds" | "sec" | "s" => scaled(of_minute, 6),
        "millisecond" | "milliseconds" | "ms" => scaled(of_minute, 3),
        "microsecond" | "microseconds" | "us" => scaled(of_minute, 0),
        "epoch" => scaled(us as i128, 6),
        _ => return Err(unknown_field(field, type_name)),
    })
}

fn extract_interval(field: &str, i: Interval) -> Result<Value> {
    let (years, months) = (i.months as i128 / 12, i.months as i128 % 12);
    Ok(match field {
        "year" | "years" | "y" | "yr" => scaled(years, 0),
        "month" | "months" | "mon" => scaled(months, 0),
        "day" | "days" | "d" => scaled(i.days as i128, 0),
        "quarter" => scaled(months / 3 + 1, 0),
        "decade" => scaled(years / 10, 0),
        "century" => scaled(years / 100, 0),
        "millennium" => scaled(years / 1000, 0),
        // A year is 365.25 days here.
        "epoch" => {
            scaled(years * 31_557_600_000_000 + (months * 30 + i.days as i128) * DAY_US as i128 + i.us as i128, 6)
        }
        "hour" | "hours" | "h" => scaled(i.us as i128 / 3_600_000_000, 0),
        _ => return extract_clock(field, i.us, "interval"),
    })
}

/// ISO year and week of a day: weeks start on Monday, week 1 holds the year's first Thursday.
/// The ISO 8601 year and week of a day.
pub(super) fn iso_week(days: i64) -> (i64, i64) {
    let monday_based = (days + 5).rem_euclid(7);
    let thursday = days - monday_based + 3;
    let year = civil_of_days(thursday).year;
    (year as i64, (thursday - days_of_civil(year, 1, 1)) / 7 + 1)
}

/// `date_trunc`: the start of the unit a moment is in.
pub(super) fn truncate(field: &str, us: i64, type_name: &str) -> Result<i64> {
    if matches!(us, i64::MIN | i64::MAX) {
        return Ok(us);
    }
    let unit = Unit::from_name(field).ok_or_else(|| unknown_field(field, type_name))?;
    let civil = civil_of_timestamp(us);
    let start_of = |year: i32, month: u32| days_of_civil(year, month, 1) * DAY_US;
    // Centuries and millennia start with year 1.
    let from_one = |size: i32| (civil.year - 1).div_euclid(size) * size + 1;
    Ok(match unit {
        Unit::Microsecond => us,
        Unit::Millisecond => us.div_euclid(1000) * 1000,
        Unit::Second => us.div_euclid(1_000_000) * 1_000_000,
        Unit::Minute => us.div_euclid(60_000_000) * 60_000_000,
        Unit::Hour => us.div_euclid(3_600_000_000) * 3_600_000_000,
        Unit::Day => us.div_euclid(DAY_US) * DAY_US,
        Unit::Week => {
            let days = us.div_euclid(DAY_US);
            (days - (days + 5).rem_euclid(7)) * DAY_US
        }
        Unit::Month => start_of(civil.year, civil.month),
        Unit::Quarter => start_of(civil.year, (civil.month - 1) / 3 * 3 + 1),
        Unit::Year => start_of(civil.year, 1),
        Unit::Decade => start_of(civil.year.div_euclid(10) * 10, 1),
        Unit::Century => start_of(from_one(100), 1),
        Unit::Millennium => start_of(from_one(1000), 1),
    })
}
