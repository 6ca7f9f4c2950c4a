//! How is the text of a date, time or timestamp read?
//!
//! The field-by-field approach of PostgreSQL's ParseDateTime/DecodeDateTime (datetime.c): ISO forms,
//! `MM/DD/YYYY` (DateStyle MDY), month names, 12-hour clock, numeric zone offsets, BC, and the special
//! words. Named zones other than UTC are not known.

use super::{days_in_month, days_of_civil, round_time, timestamp_in_range};
use crate::error::{Error, Result, SqlState};
use crate::ty::{ColumnType, Type};
use crate::value::{DAY_US, Value};

/// What the fields of an input have said so far.
#[derive(Default, Debug)]
struct Fields {
    date: Option<Date>,
    time_us: Option<i64>,
    zone_s: Option<i64>,
    month_name: Option<u32>,
    /// Numbers beside a month name: day and year, in order.
    numbers: Vec<(i32, usize)>,
    bc: bool,
    pm: Option<bool>,
    special: Option<Special>,
}

#[derive(Clone, Copy, Debug)]
struct Date {
    year: i32,
    month: u32,
    day: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Special {
    Infinity,
    MinusInfinity,
    Epoch,
    Now,
    /// Midnight of today plus so many days.
    Day(i64),
}

enum Bad {
    Syntax,
    Range,
    /// The fields are right, but there is no such date or timestamp here.
    OutOfRange,
    Zone(String),
}

type Parsed<T> = std::result::Result<T, Bad>;

/// Reads a date, time, timestamp or timestamptz. `now_us` is what `now`, `today` and their kind
/// count from (microseconds since 2000-01-01); without it they are refused.
pub fn parse_datetime(input: &str, target: ColumnType, now_us: Option<i64>) -> Result<Value> {
    let ty = target.ty;
    read(input, ty, now_us).map(|v| round(v, target.typmod)).map_err(|bad| match bad {
        Bad::Syntax => Error::new(
            SqlState::INVALID_DATETIME_FORMAT,
            format!("invalid input syntax for type {}: \"{input}\"", message_name(ty)),
        ),
        Bad::Range => {
            Error::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("date/time field value out of range: \"{input}\""))
        }
        Bad::OutOfRange => Error::new(
            SqlState::DATETIME_FIELD_OVERFLOW,
            format!("{} out of range: \"{input}\"", if ty == Type::Date { "date" } else { "timestamp" }),
        ),
        Bad::Zone(zone) => {
            Error::new(SqlState::INVALID_PARAMETER_VALUE, format!("time zone \"{zone}\" not recognized"))
        }
    })
}

/// Input errors of times use the short names (DateTimeParseError's callers).
fn message_name(ty: Type) -> &'static str {
    match ty {
        Type::Time => "time",
        Type::Timestamp => "timestamp",
        _ => ty.sql_name(),
    }
}

fn round(v: Value, typmod: i32) -> Value {
    match v {
        Value::Time(us) => Value::Time(round_time(us, typmod)),
        Value::Timestamp(us) => Value::Timestamp(round_time(us, typmod)),
        Value::Timestamptz(us) => Value::Timestamptz(round_time(us, typmod)),
        other => other,
    }
}

fn read(input: &str, ty: Type, now_us: Option<i64>) -> Parsed<Value> {
    let mut fields = Fields::default();
    for field in input.split(|c: char| c.is_ascii_whitespace() || c == ',') {
        if !field.is_empty() {
            read_field(field, &mut fields)?;
        }
    }
    if let Some(special) = fields.special {
        return special_value(special, &fields, ty, now_us);
    }
    if fields.date.is_none() && fields.month_name.is_some() {
        fields.date = Some(date_from_numbers(&fields)?);
    }
    if ty == Type::Time {
        return Ok(Value::Time(clock(&fields)?.ok_or(Bad::Syntax)?));
    }
    let days = days(fields.date.ok_or(Bad::Syntax)?, fields.bc)?;
    if ty == Type::Date {
        return if super::date_in_range(days) { Ok(Value::Date(days as i32)) } else { Err(Bad::OutOfRange) };
    }
    let zone_us = if ty == Type::Timestamptz { fields.zone_s.unwrap_or(0) * 1_000_000 } else { 0 };
    let us = days
        .checked_mul(DAY_US)
        .and_then(|us| us.checked_add(clock(&fields).ok()?.unwrap_or(0) - zone_us))
        .filter(|us| timestamp_in_range(*us))
        .ok_or(Bad::OutOfRange)?;
    Ok(if ty == Type::Timestamptz { Value::Timestamptz(us) } else { Value::Timestamp(us) })
}

fn special_value(special: Special, fields: &Fields, ty: Type, now_us: Option<i64>) -> Parsed<Value> {
    let mut us = match special {
        Special::Infinity => i64::MAX,
        Special::MinusInfinity => i64::MIN,
        Special::Epoch => -super::UNIX_EPOCH_US,
        Special::Now => now_us.ok_or(Bad::Syntax)?,
        Special::Day(n) => (now_us.ok_or(Bad::Syntax)?.div_euclid(DAY_US) + n) * DAY_US,
    };
    if matches!(special, Special::Day(_)) {
        us += clock(fields)?.unwrap_or(0);
    } else if fields.date.is_some() || fields.time_us.is_some() {
        return Err(Bad::Syntax);
    }
    match ty {
        Type::Date => Ok(Value::Date(match us {
            i64::MAX => i32::MAX,
            i64::MIN => i32::MIN,
            us => us.div_euclid(DAY_US) as i32,
        })),
        Type::Time if special == Special::Now => Ok(Value::Time(us.rem_euclid(DAY_US))),
        Type::Time => Err(Bad::Syntax),
        Type::Timestamptz => Ok(Value::Timestamptz(us)),
        _ => Ok(Value::Timestamp(us)),
    }
}

fn days(date: Date, bc: bool) -> Parsed<i64> {
    let Date { year, month, day } = date;
    let year = match (bc, year) {
        (_, 0) => return Err(Bad::Range),
        (true, year) => 1 - year,
        (false, year) => year,
    };
    if !(1..=12).contains(&month) || day < 1 || day > days_in_month(year, month) {
        return Err(Bad::Range);
    }
    Ok(days_of_civil(year, month, day))
}

/// The time of day with AM or PM applied.
fn clock(fields: &Fields) -> Parsed<Option<i64>> {
    const HOUR_US: i64 = 3_600_000_000;
    let Some(us) = fields.time_us else {
        return if fields.pm.is_some() { Err(Bad::Syntax) } else { Ok(None) };
    };
    let Some(pm) = fields.pm else {
        return Ok(Some(us));
    };
    let hour = us / HOUR_US;
    if hour > 12 {
        return Err(Bad::Range);
    }
    let base = if hour == 12 { us - 12 * HOUR_US } else { us };
    Ok(Some(if pm { base + 12 * HOUR_US } else { base }))
}

fn read_field(field: &str, fields: &mut Fields) -> Parsed<()> {
    let first = field.as_bytes()[0];
    if first.is_ascii_digit() {
        return read_numeric_field(field, fields);
    }
    if matches!(first, b'+' | b'-') {
        if field.eq_ignore_ascii_case("-infinity") {
            return set(&mut fields.special, Special::MinusInfinity);
        }
        let zone = zone_offset(field)?;
        return if fields.time_us.is_some() { set(&mut fields.zone_s, zone) } else { Err(Bad::Syntax) };
    }
    // `Jan-08-1999`
    if let Some((word, rest)) = field.split_once('-')
        && let Some(month) = month_of(word)
    {
        set(&mut fields.month_name, month)?;
        return rest.split('-').try_for_each(|part| read_number(part, fields));
    }
    read_word(field, fields)
}

fn set<T>(slot: &mut Option<T>, value: T) -> Parsed<()> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Bad::Syntax),
    }
}

fn read_word(word: &str, fields: &mut Fields) -> Parsed<()> {
    let lower = word.to_ascii_lowercase();
    match lower.as_str() {
        "infinity" | "+infinity" => set(&mut fields.special, Special::Infinity),
        "epoch" => set(&mut fields.special, Special::Epoch),
        "now" => set(&mut fields.special, Special::Now),
        "today" => set(&mut fields.special, Special::Day(0)),
        "tomorrow" => set(&mut fields.special, Special::Day(1)),
        "yesterday" => set(&mut fields.special, Special::Day(-1)),
        "allballs" => set(&mut fields.time_us, 0),
        "bc" => {
            fields.bc = true;
            Ok(())
        }
        "ad" | "t" => Ok(()),
        "am" => set(&mut fields.pm, false),
        "pm" => set(&mut fields.pm, true),
        _ if is_utc(&lower) => set(&mut fields.zone_s, 0),
        _ => match month_of(&lower) {
            Some(month) => set(&mut fields.month_name, month),
            None if is_weekday(&lower) => Ok(()),
            None if fields.time_us.is_some() && lower.contains('/') => Err(Bad::Zone(lower)),
            None => Err(Bad::Syntax),
        },
    }
}

fn is_utc(word: &str) -> bool {
    matches!(word, "z" | "utc" | "gmt" | "zulu" | "uct" | "etc/utc" | "utc+0")
}

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

fn month_of(word: &str) -> Option<u32> {
    let word = word.trim_end_matches('.').to_ascii_lowercase();
    let at = MONTHS.iter().position(|m| {
        *m == word || (word.len() == 3 && m.starts_with(&word)) || (word == "sept" && *m == "september")
    })?;
    Some(at as u32 + 1)
}

fn is_weekday(word: &str) -> bool {
    const DAYS: [&str; 7] = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];
    let word = word.trim_end_matches('.');
    DAYS.iter().any(|d| *d == word || (word.len() >= 3 && word.len() <= 5 && d.starts_with(word)))
}

fn read_numeric_field(field: &str, fields: &mut Fields) -> Parsed<()> {
    let digits = field.bytes().take_while(u8::is_ascii_digit).count();
    match field.as_bytes().get(digits) {
        None => read_number(field, fields),
        Some(b':') => read_time_and_zone(field, fields),
        Some(b'-' | b'/' | b'.') => {
            // `1999-01-08T04:05:06`
            match field.find(['T', 't']).filter(|at| is_time_separator(field, *at)) {
                Some(at) => {
                    read_date(&field[..at], fields)?;
                    read_time_and_zone(&field[at + 1..], fields)
                }
                None => read_date(field, fields),
            }
        }
        Some(b'T' | b't') if digits == 8 => {
            read_number(&field[..8], fields)?;
            read_time_and_zone(&field[9..], fields)
        }
        Some(_) => {
            // `4pm`, `12BC`
            let (number, word) = field.split_at(digits);
            read_number(number, fields)?;
            read_word(word, fields)
        }
    }
}

/// A `T` between digits, not one of a month's name.
fn is_time_separator(field: &str, at: usize) -> bool {
    let bytes = field.as_bytes();
    at > 0 && bytes[at - 1].is_ascii_digit() && bytes.get(at + 1).is_some_and(u8::is_ascii_digit)
}

fn read_number(text: &str, fields: &mut Fields) -> Parsed<()> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Bad::Syntax);
    }
    let has_date = fields.date.is_some();
    match text.len() {
        // YYYYMMDD
        8 if !has_date && fields.month_name.is_none() => {
            let (year, month, day) = (number(&text[..4])?, number(&text[4..6])?, number(&text[6..])?);
            set(&mut fields.date, Date { year, month: month as u32, day: day as u32 })
        }
        // HHMMSS, HHMM after a date
        4 | 6 if has_date && fields.time_us.is_none() => {
            let second = if text.len() == 6 { number(&text[4..])? } else { 0 };
            let us = time_us(number(&text[..2])?, number(&text[2..4])?, second, 0)?;
            set(&mut fields.time_us, us)
        }
        _ if !has_date && fields.numbers.len() < 2 => {
            fields.numbers.push((number(text)?, text.len()));
            Ok(())
        }
        _ => Err(Bad::Syntax),
    }
}

/// Day and year beside a month's name: `8 January 1999`, `January 8 1999`, `1999 January 8`.
fn date_from_numbers(fields: &Fields) -> Parsed<Date> {
    let month = fields.month_name.ok_or(Bad::Syntax)?;
    let [(a, a_len), (b, b_len)] = fields.numbers[..] else {
        return Err(Bad::Syntax);
    };
    let (day, year, year_len) = if a_len > 2 { (b, a, a_len) } else { (a, b, b_len) };
    Ok(Date { year: full_year(year, year_len, fields.bc), month, day: day as u32 })
}

/// Two-digit years are 1970 to 2069.
fn full_year(year: i32, len: usize, bc: bool) -> i32 {
    match year {
        _ if len > 2 || bc => year,
        0..70 => year + 2000,
        _ => year + 1900,
    }
}

fn number(text: &str) -> Parsed<i32> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Bad::Syntax);
    }
    text.parse().map_err(|_| Bad::Range)
}

fn read_date(text: &str, fields: &mut Fields) -> Parsed<()> {
    let mut parts = text.split(['-', '/', '.']);
    let (Some(a), Some(b), Some(c), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return Err(Bad::Syntax);
    };
    let date = if let Some(month) = month_of(b) {
        // `1999-Jan-08` or `08-Jan-1999`
        let (year, day) = if a.len() > 2 { (a, c) } else { (c, a) };
        Date { year: full_year(number(year)?, year.len(), fields.bc), month, day: number(day)? as u32 }
    } else if a.len() > 2 {
        Date { year: number(a)?, month: number(b)? as u32, day: number(c)? as u32 }
    } else {
        let year = full_year(number(c)?, c.len(), fields.bc);
        Date { year, month: number(a)? as u32, day: number(b)? as u32 }
    };
    set(&mut fields.date, date)
}

fn read_time_and_zone(text: &str, fields: &mut Fields) -> Parsed<()> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, ':' | '.'))).unwrap_or(text.len());
    let (clock, rest) = text.split_at(end);
    set(&mut fields.time_us, parse_clock(clock)?)?;
    match rest.as_bytes().first() {
        None => Ok(()),
        Some(b'+' | b'-') => set(&mut fields.zone_s, zone_offset(rest)?),
        Some(_) => read_word(rest, fields),
    }
}

/// `hh:mm[:ss[.ffffff]]`.
pub(super) fn parse_clock_us(text: &str) -> Option<i64> {
    parse_clock(text).ok()
}

fn parse_clock(text: &str) -> Parsed<i64> {
    let mut parts = text.splitn(3, ':');
    let (Some(hour), Some(minute)) = (parts.next(), parts.next()) else {
        return Err(Bad::Syntax);
    };
    let (second, fraction) = match parts.next() {
        None => ("0", ""),
        Some(s) => s.split_once('.').unwrap_or((s, "")),
    };
    time_us(number(hour)?, number(minute)?, number(second)?, fraction_us(fraction)?)
}

/// Microseconds of the digits after a second's point, rounded.
fn fraction_us(digits: &str) -> Parsed<i64> {
    if digits.is_empty() {
        return Ok(0);
    }
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Bad::Syntax);
    }
    let mut us = 0;
    for i in 0..6 {
        us = us * 10 + digits.as_bytes().get(i).map_or(0, |b| (b - b'0') as i64);
    }
    let up = digits.as_bytes().get(6).is_some_and(|b| *b >= b'5');
    Ok(us + i64::from(up))
}

fn time_us(hour: i32, minute: i32, second: i32, fraction_us: i64) -> Parsed<i64> {
    let us = ((hour as i64 * 60 + minute as i64) * 60 + second as i64) * 1_000_000 + fraction_us;
    // 24:00:00 and a leap second's 60 are taken, as PostgreSQL does.
    if hour > 24 || minute > 59 || second > 60 || us > DAY_US {
        return Err(Bad::Range);
    }
    Ok(us)
}

/// Seconds east of UTC of `+hh`, `+hhmm`, `+hh:mm[:ss]`.
fn zone_offset(text: &str) -> Parsed<i64> {
    let (sign, digits) = match text.as_bytes() {
        [b'-', ..] => (-1, &text[1..]),
        _ => (1, &text[1..]),
    };
    let (hour, minute, second) = if digits.contains(':') {
        let mut parts = digits.splitn(3, ':');
        let mut next = || parts.next().map_or(Ok(0), number);
        (next()?, next()?, next()?)
    } else {
        match digits.len() {
            1 | 2 => (number(digits)?, 0, 0),
            4 if digits.is_ascii() => (number(&digits[..2])?, number(&digits[2..])?, 0),
            _ => return Err(Bad::Syntax),
        }
    };
    if hour > 15 || minute > 59 || second > 59 {
        return Err(Bad::Range);
    }
    Ok(sign * ((hour as i64 * 60 + minute as i64) * 60 + second as i64))
}
