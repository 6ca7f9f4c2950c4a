//! How is an interval read and written (IntervalStyle postgres)?

use super::parse::parse_clock_us;
use crate::error::{Error, Result, SqlState};
use crate::int_text::{write_i64, write_padded};
use crate::value::{DAY_US, Interval};

/// A unit of time, as interval literals and `extract` name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Unit {
    Microsecond,
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
}

impl Unit {
    /// The unit of this name (lower case), singular, plural or abbreviated.
    pub fn from_name(name: &str) -> Option<Unit> {
        Some(match name {
            "us" | "usec" | "usecs" | "microsecond" | "microseconds" => Unit::Microsecond,
            "ms" | "msec" | "msecs" | "millisecond" | "milliseconds" => Unit::Millisecond,
            "s" | "sec" | "secs" | "second" | "seconds" => Unit::Second,
            "m" | "min" | "mins" | "minute" | "minutes" => Unit::Minute,
            "h" | "hr" | "hrs" | "hour" | "hours" => Unit::Hour,
            "d" | "day" | "days" => Unit::Day,
            "w" | "week" | "weeks" => Unit::Week,
            "mon" | "mons" | "month" | "months" => Unit::Month,
            "qtr" | "quarter" | "quarters" => Unit::Quarter,
            "y" | "yr" | "yrs" | "year" | "years" => Unit::Year,
            "dec" | "decs" | "decade" | "decades" => Unit::Decade,
            "c" | "cent" | "century" | "centuries" => Unit::Century,
            "mil" | "mils" | "millennium" | "millennia" => Unit::Millennium,
            _ => return None,
        })
    }

    /// How many microseconds, days or months one of it is.
    fn size(self) -> Part {
        match self {
            Unit::Microsecond => Part::Us(1),
            Unit::Millisecond => Part::Us(1_000),
            Unit::Second => Part::Us(1_000_000),
            Unit::Minute => Part::Us(60_000_000),
            Unit::Hour => Part::Us(3_600_000_000),
            Unit::Day => Part::Days(1),
            Unit::Week => Part::Days(7),
            Unit::Month => Part::Months(1),
            Unit::Quarter => Part::Months(3),
            Unit::Year => Part::Months(12),
            Unit::Decade => Part::Months(120),
            Unit::Century => Part::Months(1200),
            Unit::Millennium => Part::Months(12_000),
        }
    }
}

enum Part {
    Us(i64),
    Days(i64),
    Months(i64),
}

/// A number as written: whole part, and the fraction as a float.
#[derive(Clone, Copy)]
struct Number {
    whole: i64,
    fraction: f64,
}

/// Sums up in wide integers; checked once at the end.
#[derive(Default)]
struct Sum {
    months: i128,
    days: i128,
    us: i128,
}

impl Sum {
    /// The fraction of a month is days (of 30), that of a day is time (as DecodeInterval).
    fn add(&mut self, n: Number, unit: Unit) {
        match unit.size() {
            Part::Us(size) => {
                self.us += n.whole as i128 * size as i128 + (n.fraction * size as f64).round() as i128;
            }
            Part::Days(size) => {
                self.days += n.whole as i128 * size as i128;
                self.add_days(n.fraction * size as f64);
            }
            Part::Months(size) => {
                self.months += n.whole as i128 * size as i128;
                let months = n.fraction * size as f64;
                let whole = if size > 1 { months.round() } else { months.trunc() };
                self.months += whole as i128;
                if size == 1 {
                    self.add_days((months - whole) * 30.0);
                }
            }
        }
    }

    fn add_days(&mut self, days: f64) {
        self.days += days.trunc() as i128;
        self.us += ((days - days.trunc()) * DAY_US as f64).round() as i128;
    }

    fn negate(&mut self) {
        (self.months, self.days, self.us) = (-self.months, -self.days, -self.us);
    }

    fn finish(self) -> Option<Interval> {
        Some(Interval {
            months: i32::try_from(self.months).ok()?,
            days: i32::try_from(self.days).ok()?,
            us: i64::try_from(self.us).ok()?,
        })
    }
}

/// Reads an interval: `1 day 02:03:04`, `1 year -2 mons`, `P1Y2M3DT4H`, `1-2`, `@ 3 days ago`. A number
/// without a unit counts `default_unit` (seconds if none is given).
pub fn parse_interval(input: &str, default_unit: Option<Unit>) -> Result<Interval> {
    let sum = match input.trim().strip_prefix('P') {
        Some(iso) => parse_iso(iso),
        None => parse_verbose(input, default_unit.unwrap_or(Unit::Second)),
    };
    let sum = sum.ok_or_else(|| {
        Error::new(SqlState::INVALID_DATETIME_FORMAT, format!("invalid input syntax for type interval: \"{input}\""))
    })?;
    sum.finish().ok_or_else(|| {
        Error::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("interval field value out of range: \"{input}\""))
    })
}

fn parse_verbose(input: &str, default_unit: Unit) -> Option<Sum> {
    let mut sum = Sum::default();
    let mut pending: Option<Number> = None;
    let mut seen = false;
    for token in input.split_ascii_whitespace() {
        let token = token.strip_prefix('@').unwrap_or(token);
        if token.is_empty() {
            continue;
        }
        if token.eq_ignore_ascii_case("ago") && seen && pending.is_none() {
            sum.negate();
            continue;
        }
        let (number, unit) = split_unit(token);
        if !number.is_empty() {
            if let Some(n) = pending.take() {
                // A number before a clock counts days, as in `1 02:03:04`.
                sum.add(n, if number.contains(':') { Unit::Day } else { default_unit });
            }
            pending = parse_quantity(number, &mut sum)?;
            seen = true;
        }
        if !unit.is_empty() {
            sum.add(pending.take()?, Unit::from_name(&unit.to_ascii_lowercase())?);
        }
    }
    if let Some(n) = pending {
        sum.add(n, default_unit);
    }
    seen.then_some(sum)
}

/// A token's leading number and the unit glued to it (`3days`).
fn split_unit(token: &str) -> (&str, &str) {
    let at = token.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(token.len());
    token.split_at(at)
}

/// A clock (`-04:05:06`) or years and months (`1-2`) go straight into the sum; a plain number waits
/// for its unit.
fn parse_quantity(text: &str, sum: &mut Sum) -> Option<Option<Number>> {
    let negative = text.starts_with('-');
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.contains(':') {
        let us = span_clock_us(digits)? as i128;
        sum.us += if negative { -us } else { us };
        return Some(None);
    }
    if let Some((years, months)) = digits.split_once('-') {
        let months = years.parse::<u32>().ok()? as i128 * 12 + months.parse::<u32>().ok()? as i128;
        sum.months += if negative { -months } else { months };
        return Some(None);
    }
    parse_number(digits, negative).map(Some)
}

fn parse_number(digits: &str, negative: bool) -> Option<Number> {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.len() + fraction.len() == 0 || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let fraction: f64 = if fraction.is_empty() { 0.0 } else { format!("0.{fraction}").parse().ok()? };
    Some(if negative { Number { whole: -whole, fraction: -fraction } } else { Number { whole, fraction } })
}

/// `h:mm[:ss[.f]]` where the hours may be many.
fn span_clock_us(text: &str) -> Option<i64> {
    let (hours, rest) = text.split_once(':')?;
    if hours.is_empty() || !hours.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let hours: i64 = hours.parse().ok()?;
    let rest = parse_clock_us(&format!("0:{rest}"))?;
    hours.checked_mul(3_600_000_000)?.checked_add(rest)
}

/// After the `P` of ISO 8601: `1Y2M3DT4H5M6S`.
fn parse_iso(text: &str) -> Option<Sum> {
    let mut sum = Sum::default();
    let mut in_time = false;
    let mut number_at = 0;
    let mut seen = false;
    for (at, c) in text.char_indices() {
        if c.is_ascii_digit() || matches!(c, '.' | '-' | '+') {
            continue;
        }
        let number = &text[number_at..at];
        number_at = at + c.len_utf8();
        if c == 'T' && number.is_empty() && !in_time {
            in_time = true;
            continue;
        }
        let unit = match (c, in_time) {
            ('Y', false) => Unit::Year,
            ('M', false) => Unit::Month,
            ('W', false) => Unit::Week,
            ('D', false) => Unit::Day,
            ('H', true) => Unit::Hour,
            ('M', true) => Unit::Minute,
            ('S', true) => Unit::Second,
            _ => return None,
        };
        let digits = number.strip_prefix(['+', '-']).unwrap_or(number);
        sum.add(parse_number(digits, number.starts_with('-'))?, unit);
        seen = true;
    }
    (seen && number_at == text.len()).then_some(sum)
}

/// Appends an interval's text, e.g. `1 year 2 mons -3 days +04:05:06` (EncodeInterval).
pub fn format_interval(i: Interval, out: &mut Vec<u8>) {
    let (mut zero, mut before) = (true, false);
    let mut part = |n: i32, unit: &str, out: &mut Vec<u8>| {
        if n == 0 {
            return;
        }
        if !zero {
            out.push(b' ');
        }
        if before && n > 0 {
            out.push(b'+');
        }
        write_i64(n as i64, out);
        out.push(b' ');
        out.extend_from_slice(unit.as_bytes());
        if n != 1 {
            out.push(b's');
        }
        (zero, before) = (false, n < 0);
    };
    part(i.months / 12, "year", out);
    part(i.months % 12, "mon", out);
    part(i.days, "day", out);
    if i.us == 0 && !zero {
        return;
    }
    if !zero {
        out.push(b' ');
    }
    if i.us < 0 {
        out.push(b'-');
    } else if before {
        out.push(b'+');
    }
    let us = i.us.unsigned_abs();
    write_padded(us / 3_600_000_000, 2, out);
    out.push(b':');
    write_padded(us / 60_000_000 % 60, 2, out);
    out.push(b':');
    write_padded(us / 1_000_000 % 60, 2, out);
    super::write_fraction(us % 1_000_000, out);
}
