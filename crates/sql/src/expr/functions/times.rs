//! Functions of dates, times and intervals.

use super::super::function::{Function, host, session, strict};
use super::super::time::{DAY_US, extract, truncate};
use super::{float, int, text};
use homenode_types::Type::{self, Date, Float8, Int4, Numeric, Text, Time, Timestamp, Timestamptz};
use homenode_types::datetime::{civil_of_timestamp, days_in_month, days_of_civil};
use homenode_types::{Error, Interval, Result, SqlState, Value};

type F = fn(&[Value]) -> Result<Value>;

const EXTRACT: F = |a| extract(&text(&a[0]).to_ascii_lowercase(), &a[1]);
const PART: F = |a| EXTRACT(a).map(|v| v.as_ref().as_f64().map_or(Value::Null, Value::Float8));

/// The table.
pub(super) static FUNCTIONS: &[Function] = &[
    session("now", &[], Timestamptz, |_, env| Ok(Value::Timestamptz(env.host.transaction_time_us()))),
    session("transaction_timestamp", &[], Timestamptz, |_, env| Ok(Value::Timestamptz(env.host.transaction_time_us()))),
    session("current_timestamp", &[], Timestamptz, |_, env| Ok(Value::Timestamptz(env.host.transaction_time_us()))),
    session("statement_timestamp", &[], Timestamptz, |_, env| Ok(Value::Timestamptz(env.host.statement_time_us()))),
    session("localtimestamp", &[], Timestamp, |_, env| Ok(Value::Timestamp(env.host.transaction_time_us()))),
    session("current_date", &[], Date, |_, env| {
        Ok(Value::Date(env.host.transaction_time_us().div_euclid(DAY_US) as i32))
    }),
    session("localtime", &[], Time, |_, env| Ok(Value::Time(env.host.transaction_time_us().rem_euclid(DAY_US)))),
    host("clock_timestamp", &[], Timestamptz),
    strict("extract", &[Text, Timestamp], Numeric, EXTRACT),
    strict("extract", &[Text, Timestamptz], Numeric, EXTRACT),
    strict("extract", &[Text, Date], Numeric, EXTRACT),
    strict("extract", &[Text, Time], Numeric, EXTRACT),
    strict("extract", &[Text, Type::Interval], Numeric, EXTRACT),
    strict("date_part", &[Text, Timestamp], Float8, PART),
    strict("date_part", &[Text, Timestamptz], Float8, PART),
    strict("date_part", &[Text, Date], Float8, PART),
    strict("date_part", &[Text, Time], Float8, PART),
    strict("date_part", &[Text, Type::Interval], Float8, PART),
    strict("date_trunc", &[Text, Timestamp], Timestamp, |a| match a[1] {
        Value::Timestamp(us) => trunc(&a[0], us, Timestamp).map(Value::Timestamp),
        _ => Ok(Value::Null),
    }),
    strict("date_trunc", &[Text, Timestamptz], Timestamptz, |a| match a[1] {
        Value::Timestamptz(us) => trunc(&a[0], us, Timestamptz).map(Value::Timestamptz),
        _ => Ok(Value::Null),
    }),
    strict("age", &[Timestamp, Timestamp], Type::Interval, age),
    strict("age", &[Timestamptz, Timestamptz], Type::Interval, age),
    strict("to_timestamp", &[Float8], Timestamptz, |a| {
        let us = (float(&a[0]) * 1e6).round_ties_even() - 946_684_800e6;
        let in_range = us.abs() < 9.2e18 && homenode_types::datetime::timestamp_in_range(us as i64);
        if in_range { Ok(Value::Timestamptz(us as i64)) } else { Err(out_of_range("timestamp")) }
    }),
    strict("make_date", &[Int4, Int4, Int4], Date, |a| make_date(int(&a[0]), int(&a[1]), int(&a[2]))),
    session("age", &[Timestamp], Type::Interval, |a, env| {
        let today = env.host.transaction_time_us().div_euclid(DAY_US) * DAY_US;
        age(&[Value::Timestamp(today), a[0].clone()])
    }),
    session("age", &[Timestamptz], Type::Interval, |a, env| {
        let today = env.host.transaction_time_us().div_euclid(DAY_US) * DAY_US;
        age(&[Value::Timestamptz(today), a[0].clone()])
    }),
    strict("make_time", &[Int4, Int4, Float8], Time, |a| clock(a).map(Value::Time)),
    strict("make_timestamp", &[Int4, Int4, Int4, Int4, Int4, Float8], Timestamp, |a| moment(a).map(Value::Timestamp)),
    strict("make_timestamptz", &[Int4, Int4, Int4, Int4, Int4, Float8], Timestamptz, |a| {
        moment(a).map(Value::Timestamptz)
    }),
    strict("date_bin", &[Type::Interval, Timestamp, Timestamp], Timestamp, |a| bin(a).map(Value::Timestamp)),
    strict("date_bin", &[Type::Interval, Timestamptz, Timestamptz], Timestamptz, |a| bin(a).map(Value::Timestamptz)),
    strict("justify_days", &[Type::Interval], Type::Interval, |a| match a[0] {
        Value::Interval(i) => justify_days(i).map(Value::Interval),
        _ => Ok(Value::Null),
    }),
    strict("isfinite", &[Date], Type::Bool, |a| Ok(Value::Bool(!matches!(a[0], Value::Date(i32::MIN | i32::MAX))))),
    strict("isfinite", &[Timestamp], Type::Bool, |a| {
        Ok(Value::Bool(!matches!(a[0], Value::Timestamp(i64::MIN | i64::MAX))))
    }),
    strict("timezone", &[Text, Timestamptz], Timestamp, |a| match a[1] {
        Value::Timestamptz(us) => utc(&a[0]).map(|()| Value::Timestamp(us)),
        _ => Ok(Value::Null),
    }),
    strict("timezone", &[Text, Timestamp], Timestamptz, |a| match a[1] {
        Value::Timestamp(us) => utc(&a[0]).map(|()| Value::Timestamptz(us)),
        _ => Ok(Value::Null),
    }),
    strict("justify_hours", &[Type::Interval], Type::Interval, |a| match a[0] {
        Value::Interval(i) => {
            let days = i.us / DAY_US;
            let days = i32::try_from(i.days as i64 + days).map_err(|_| out_of_range("interval"))?;
            Ok(Value::Interval(Interval { days, us: i.us % DAY_US, ..i }))
        }
        _ => Ok(Value::Null),
    }),
];

/// Hour, minute and seconds as microseconds.
fn clock(a: &[Value]) -> Result<i64> {
    let (hour, minute, second) = (int(&a[0]), int(&a[1]), float(&a[2]));
    let us = (second * 1e6).round_ties_even();
    let whole_day = hour == 24 && minute == 0 && us == 0.0;
    if !(whole_day || (0..24).contains(&hour)) || !(0..60).contains(&minute) || !(0.0..=60e6).contains(&us) {
        let message = format!("time field value out of range: {hour}:{minute:02}:{second:02}");
        return Err(Error::new(SqlState::DATETIME_FIELD_OVERFLOW, message));
    }
    Ok((hour * 3600 + minute * 60) * 1_000_000 + us as i64)
}

fn moment(a: &[Value]) -> Result<i64> {
    let Value::Date(days) = make_date(int(&a[0]), int(&a[1]), int(&a[2]))? else { return Ok(0) };
    let us = i64::from(days).checked_mul(DAY_US).map(|midnight| midnight.saturating_add(clock(&a[3..]).unwrap_or(0)));
    clock(&a[3..])?;
    us.filter(|us| homenode_types::datetime::timestamp_in_range(*us)).ok_or_else(|| out_of_range("timestamp"))
}

/// The start of the stride, counted from the origin, that a moment is in (timestamp_bin).
fn bin(a: &[Value]) -> Result<i64> {
    let us = |v: &Value| match v {
        Value::Timestamp(us) | Value::Timestamptz(us) => *us,
        _ => 0,
    };
    let (Value::Interval(stride), at, origin) = (&a[0], us(&a[1]), us(&a[2])) else { return Ok(0) };
    if stride.months != 0 {
        return Err(Error::unsupported("timestamps cannot be binned into intervals containing months or years"));
    }
    let stride = i64::from(stride.days).saturating_mul(DAY_US).saturating_add(stride.us);
    if stride <= 0 {
        return Err(Error::new(SqlState::DATETIME_FIELD_OVERFLOW, "stride must be greater than zero"));
    }
    let since = at.checked_sub(origin).ok_or_else(|| out_of_range("interval"))?;
    Ok(origin + since.div_euclid(stride) * stride)
}

/// 30 days as a month, as many as there are (interval_justify_days).
fn justify_days(i: Interval) -> Result<Interval> {
    let months = i64::from(i.months) + i64::from(i.days / 30);
    let mut justified =
        Interval { months: i32::try_from(months).map_err(|_| out_of_range("interval"))?, days: i.days % 30, us: i.us };
    if justified.months > 0 && justified.days < 0 {
        justified.days += 30;
        justified.months -= 1;
    } else if justified.months < 0 && justified.days > 0 {
        justified.days -= 30;
        justified.months += 1;
    }
    Ok(justified)
}

fn out_of_range(what: &str) -> Error {
    Error::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("{what} out of range"))
}

fn trunc(field: &Value, us: i64, ty: Type) -> Result<i64> {
    truncate(&text(field).to_ascii_lowercase(), us, ty.sql_name())
}

/// Zones other than UTC are not known.
fn utc(zone: &Value) -> Result<()> {
    let zone = text(zone);
    if matches!(zone.to_ascii_uppercase().as_str(), "UTC" | "GMT" | "Z" | "UCT" | "ETC/UTC") {
        return Ok(());
    }
    Err(Error::unsupported(format!("time zone \"{zone}\"")))
}

fn make_date(year: i64, month: i64, day: i64) -> Result<Value> {
    let bad = || {
        let message = format!("date field value out of range: {year}-{month:02}-{day:02}");
        Error::new(SqlState::DATETIME_FIELD_OVERFLOW, message)
    };
    // Negative years are BC; there is no year 0.
    let civil = if year < 0 { year + 1 } else { year };
    let civil = i32::try_from(civil).map_err(|_| bad())?;
    let month_ok = (1..=12).contains(&month);
    if year == 0 || !month_ok || day < 1 || day > days_in_month(civil, month as u32) as i64 {
        return Err(bad());
    }
    i32::try_from(days_of_civil(civil, month as u32, day as u32)).map(Value::Date).map_err(|_| bad())
}

/// The difference in years, months, days and time (timestamp_age): days are borrowed from the earlier month.
fn age(a: &[Value]) -> Result<Value> {
    let us = |v: &Value| match v {
        Value::Timestamp(us) | Value::Timestamptz(us) => *us,
        _ => 0,
    };
    let (later, earlier) = (us(&a[0]), us(&a[1]));
    let swapped = later < earlier;
    let (later, earlier) = if swapped { (earlier, later) } else { (later, earlier) };
    let (x, y) = (civil_of_timestamp(later), civil_of_timestamp(earlier));
    let mut us = x.time_us - y.time_us;
    let mut days = x.day as i32 - y.day as i32;
    let mut months = (x.year - y.year) * 12 + x.month as i32 - y.month as i32;
    if us < 0 {
        us += DAY_US;
        days -= 1;
    }
    if days < 0 {
        days += days_in_month(y.year, y.month) as i32;
        months -= 1;
    }
    let sign = if swapped { -1 } else { 1 };
    Ok(Value::Interval(Interval { months: sign * months, days: sign * days, us: sign as i64 * us }))
}
