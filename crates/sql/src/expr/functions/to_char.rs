//! How is a time or a number written by a pattern, and a time read by one? to_char, to_date, to_timestamp (PostgreSQL manual, section 9.8;
//! formatting.c).

use super::super::function::{Function, strict};
use super::super::time::{DAY_US, iso_week};
use super::number_format::number_to_char;
use super::{decimal, text};
use homenode_types::Type::{self, Date, Float4, Float8, Int4, Int8, Numeric, Text, Timestamp, Timestamptz};
use homenode_types::datetime::{civil_of_days, civil_of_timestamp, days_in_month, days_of_civil};
use homenode_types::{Error, Interval, Result, SqlState, Value, decimal_from_f64};

/// The table.
pub(super) static FUNCTIONS: &[Function] = &[
    strict("to_char", &[Timestamp, Text], Text, moment_to_char),
    strict("to_char", &[Timestamptz, Text], Text, moment_to_char),
    strict("to_char", &[Type::Interval, Text], Text, |a| match a[0] {
        Value::Interval(i) => written(&Fields::of_interval(i), text(&a[1]), true, false),
        _ => Ok(Value::Null),
    }),
    strict("to_char", &[Int4, Text], Text, |a| number_to_char(decimal(&a[0]), text(&a[1])).map(Value::Text)),
    strict("to_char", &[Int8, Text], Text, |a| number_to_char(decimal(&a[0]), text(&a[1])).map(Value::Text)),
    strict("to_char", &[Numeric, Text], Text, |a| number_to_char(decimal(&a[0]), text(&a[1])).map(Value::Text)),
    strict("to_char", &[Float4, Text], Text, |a| float_to_char(a, 6)),
    strict("to_char", &[Float8, Text], Text, |a| float_to_char(a, 15)),
    strict("to_date", &[Text, Text], Date, |a| {
        let us = read(text(&a[0]), text(&a[1]))?;
        i32::try_from(us.div_euclid(DAY_US)).map(Value::Date).map_err(|_| out_of_range(text(&a[0])))
    }),
    strict("to_timestamp", &[Text, Text], Timestamptz, |a| read(text(&a[0]), text(&a[1])).map(Value::Timestamptz)),
];

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const ROMAN: [&str; 12] = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];

/// Patterns; of those with a common beginning the longer comes first. Those whose case counts stand in each of their cases.
const KEYWORDS: &[&str] = &[
    "Y,YYY", "YYYY", "YYY", "YY", "Y", "IYYY", "IYY", "IY", "HH24", "HH12", "HH", "MI", "MM", "MS", "SSSSS", "SSSS",
    "SS", "US", "FF1", "FF2", "FF3", "FF4", "FF5", "FF6", "MONTH", "MON", "DAY", "DY", "DDD", "IDDD", "DD", "D", "ID",
    "WW", "IW", "W", "CC", "J", "Q", "RM", "TZH", "TZM", "TZ", "OF", "A.M.", "P.M.", "AM", "PM", "B.C.", "A.D.", "BC",
    "AD", "I",
];

fn float_to_char(a: &[Value], digits: usize) -> Result<Value> {
    let number = a[0].as_ref().as_f64().unwrap_or_default();
    number_to_char(decimal_from_f64(number, digits)?, text(&a[1])).map(Value::Text)
}

fn out_of_range(input: &str) -> Error {
    let message = format!("date/time field value out of range: \"{input}\"");
    Error::new(SqlState::DATETIME_FIELD_OVERFLOW, message)
}

/// One piece of a pattern.
enum Piece<'a> {
    /// A pattern as it is written (its case decides on that of names), FM, TH or th.
    Field {
        keyword: &'static str,
        written: &'a str,
        fill: bool,
        ordinal: Option<&'a str>,
    },
    Text(&'a str),
}

fn starts_with(rest: &str, word: &str) -> bool {
    rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
}

/// Takes a pattern apart.
fn pieces(pattern: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = pattern;
    let mut fill = true;
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            let end = rest[1..].find('"').map_or(rest.len(), |at| at + 1);
            pieces.push(Piece::Text(&rest[1..end]));
            rest = rest.get(end + 1..).unwrap_or("");
            continue;
        }
        if let Some(prefix) = ["FM", "TM", "FX"].iter().find(|prefix| starts_with(rest, prefix)) {
            fill &= *prefix != "FM";
            rest = &rest[2..];
            continue;
        }
        // Some patterns are written in one case or the other, not mixed.
        let Some(keyword) = KEYWORDS.iter().find(|word| starts_with(rest, word)) else {
            let length = first.len_utf8();
            pieces.push(Piece::Text(&rest[..length]));
            rest = &rest[length..];
            continue;
        };
        let (written, behind) = rest.split_at(keyword.len());
        rest = behind;
        let ordinal = starts_with(rest, "TH").then(|| &rest[..2]);
        rest = &rest[ordinal.map_or(0, str::len)..];
        pieces.push(Piece::Field { keyword, written, fill, ordinal });
        fill = true;
    }
    pieces
}

/// What a pattern shows.
struct Fields {
    year: i64,
    month: i64,
    day: i64,
    /// Of the day; an interval may have more than 24 hours.
    us: i64,
    /// Days since 2000-01-01.
    days: i64,
}

impl Fields {
    fn of_interval(i: Interval) -> Fields {
        let (year, month) = (i64::from(i.months / 12), i64::from(i.months % 12));
        Fields { year, month, day: i.days.into(), us: i.us, days: 0 }
    }
}

fn moment_to_char(a: &[Value]) -> Result<Value> {
    let (us, zoned) = match a[0] {
        Value::Timestamp(us) => (us, false),
        Value::Timestamptz(us) => (us, true),
        _ => return Ok(Value::Null),
    };
    if matches!(us, i64::MIN | i64::MAX) {
        return Ok(Value::Null);
    }
    let civil = civil_of_timestamp(us);
    let days = us.div_euclid(DAY_US);
    let fields =
        Fields { year: civil.year.into(), month: civil.month.into(), day: civil.day.into(), us: civil.time_us, days };
    written(&fields, text(&a[1]), false, zoned)
}

fn written(fields: &Fields, pattern: &str, interval: bool, zoned: bool) -> Result<Value> {
    if pattern.is_empty() {
        return Ok(Value::Null);
    }
    let mut out = String::new();
    for piece in pieces(pattern) {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Field { keyword, written, fill, ordinal } => {
                let from = out.len();
                write_field(fields, keyword, written, fill, interval, zoned, &mut out)?;
                if let Some(ordinal) = ordinal {
                    let suffix = ordinal_of(&out[from..]);
                    out.push_str(&if ordinal == "TH" { suffix.to_uppercase() } else { suffix.to_string() });
                }
            }
        }
    }
    Ok(Value::Text(out))
}

pub(super) fn ordinal_of(digits: &str) -> &'static str {
    let number: String = digits.chars().filter(char::is_ascii_digit).collect();
    let tens = number.len() >= 2 && number[..number.len() - 1].ends_with('1');
    match number.chars().last() {
        Some('1') if !tens => "st",
        Some('2') if !tens => "nd",
        Some('3') if !tens => "rd",
        _ => "th",
    }
}

/// A name in the case of the pattern: NAME, Name or name.
fn cased(name: &str, written: &str) -> String {
    let mut chars = written.chars();
    match (chars.next(), chars.next()) {
        (Some(first), _) if first.is_lowercase() => name.to_lowercase(),
        (_, Some(second)) if second.is_uppercase() => name.to_uppercase(),
        _ => name.to_string(),
    }
}

#[allow(clippy::too_many_arguments, reason = "one field with all that decides on its look")]
fn write_field(
    fields: &Fields,
    keyword: &str,
    written: &str,
    fill: bool,
    interval: bool,
    zoned: bool,
    out: &mut String,
) -> Result<()> {
    let number = |value: i64, width: usize| {
        let width = if fill { width + usize::from(value < 0) } else { 0 };
        format!("{value:0width$}")
    };
    let padded = |name: String, width: usize| if fill { format!("{name:<width$}") } else { name };
    let (hour, minute) = (fields.us / 3_600_000_000, fields.us / 60_000_000 % 60);
    let (second, fraction) = (fields.us / 1_000_000 % 60, fields.us % 1_000_000);
    let weekday = (fields.days + 6).rem_euclid(7);
    // There is no year 0; the era says which one it is.
    let year = if interval || fields.year > 0 { fields.year } else { 1 - fields.year };
    let (iso_year, iso_week_number) = iso_week(fields.days);
    let iso_day = (weekday + 6) % 7 + 1;
    let day_of_year = fields.days - days_of_civil(fields.year as i32, 1, 1) + 1;
    let hour12 = match hour % 12 {
        0 => 12,
        hour => hour,
    };
    let not_for_intervals = || {
        let hint = "Intervals are not tied to specific calendar dates.";
        Error::new(SqlState::INVALID_DATETIME_FORMAT, "invalid format specification for an interval value")
            .with_hint(hint)
    };
    let calendar =
        matches!(keyword, "MONTH" | "MON" | "DAY" | "DY" | "BC" | "AD" | "B.C." | "A.D." | "D" | "ID" | "TZ" | "OF");
    if interval && calendar {
        return Err(not_for_intervals());
    }
    let name = |names: &'static [&'static str], at: i64| names.get(at as usize).copied().unwrap_or("");
    out.push_str(&match keyword {
        "HH24" => number(hour, 2),
        "HH12" | "HH" if interval => number(hour % 12, 2),
        "HH12" | "HH" => number(hour12, 2),
        "MI" => number(minute, 2),
        "SS" => number(second, 2),
        "SSSSS" | "SSSS" => (fields.us / 1_000_000).to_string(),
        "MS" => number(fraction / 1000, 3),
        "US" => number(fraction, 6),
        "FF1" | "FF2" | "FF3" | "FF4" | "FF5" | "FF6" => {
            let digits = usize::from(keyword.as_bytes()[2] - b'0');
            format!("{fraction:06}")[..digits].to_string()
        }
        "AM" | "PM" | "A.M." | "P.M." => {
            let half = match (keyword.contains('.'), hour % 24 >= 12) {
                (true, true) => "P.M.",
                (true, false) => "A.M.",
                (false, true) => "PM",
                (false, false) => "AM",
            };
            if written.starts_with(char::is_lowercase) { half.to_lowercase() } else { half.to_string() }
        }
        "BC" | "AD" | "B.C." | "A.D." => {
            let era = match (keyword.contains('.'), fields.year <= 0) {
                (true, true) => "B.C.",
                (true, false) => "A.D.",
                (false, true) => "BC",
                (false, false) => "AD",
            };
            if written.starts_with(char::is_lowercase) { era.to_lowercase() } else { era.to_string() }
        }
        "Y,YYY" => format!("{},{:03}", year / 1000, year % 1000),
        "YYYY" => number(year, 4),
        "YYY" => number(year % 1000, 3),
        "YY" => number(year % 100, 2),
        "Y" => number(year % 10, 1),
        "IYYY" => number(iso_year, 4),
        "IYY" => number(iso_year % 1000, 3),
        "IY" => number(iso_year % 100, 2),
        "I" => number(iso_year % 10, 1),
        "MM" => number(fields.month, 2),
        "MONTH" => padded(cased(name(&MONTHS, fields.month - 1), written), 9),
        "MON" => cased(&name(&MONTHS, fields.month - 1)[..3], written),
        "RM" => padded(cased(name(&ROMAN, fields.month - 1), if written == "rm" { "rm" } else { "RM" }), 4),
        "DAY" => padded(cased(name(&DAYS, weekday), written), 9),
        "DY" => cased(&name(&DAYS, weekday)[..3], written),
        "DDD" => number(if interval { fields.day } else { day_of_year }, 3),
        "IDDD" => number((iso_week_number - 1) * 7 + iso_day, 3),
        "DD" => number(fields.day, 2),
        "D" => (weekday + 1).to_string(),
        "ID" => iso_day.to_string(),
        "WW" => number((day_of_year - 1) / 7 + 1, 2),
        "IW" => number(iso_week_number, 2),
        "W" => ((fields.day - 1) / 7 + 1).to_string(),
        "CC" => number((year + 99) / 100, 2),
        "J" => (fields.days + 2_451_545).to_string(),
        "Q" => ((fields.month - 1) / 3 + 1).to_string(),
        "TZ" if zoned => if written == "tz" { "utc" } else { "UTC" }.to_string(),
        "TZH" | "OF" if zoned => "+00".to_string(),
        "TZM" if zoned => "00".to_string(),
        _ => String::new(),
    });
    Ok(())
}

/// What was read so far.
#[derive(Default)]
struct Found {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    julian: Option<i64>,
    hour: i64,
    minute: i64,
    second: i64,
    second_of_day: Option<i64>,
    us: i64,
    afternoon: Option<bool>,
    before_christ: bool,
}

/// Reads a moment in UTC.
fn read(input: &str, pattern: &str) -> Result<i64> {
    let mut found = Found::default();
    let mut rest = input;
    let list = pieces(pattern);
    for (number, piece) in list.iter().enumerate() {
        let Piece::Field { keyword, .. } = piece else {
            // A separator of the pattern passes over any separator, or nothing; other text over as many characters.
            let Piece::Text(text) = piece else { continue };
            if text.chars().all(|c| !c.is_alphanumeric()) {
                rest = rest.trim_start_matches(|c: char| !c.is_alphanumeric() && c != '+');
            } else {
                let skip = text.chars().count();
                rest = rest.char_indices().nth(skip).map_or("", |(at, _)| &rest[at..]);
            }
            continue;
        };
        rest = rest.trim_start();
        if rest.is_empty() {
            break;
        }
        let glued = matches!(list.get(number + 1), Some(Piece::Field { .. }));
        rest = read_field(&mut found, keyword, rest, glued, input)?;
    }
    assemble(&found, input)
}

fn read_field<'a>(found: &mut Found, keyword: &str, start: &'a str, glued: bool, input: &str) -> Result<&'a str> {
    let mut rest = start;
    let mut digits = |width: usize| -> Result<i64> {
        // Where digits follow directly, a field has just its own width.
        let most = if glued { width } else { width.max(if width >= 4 { 9 } else { width }) };
        let length = rest.bytes().take(most).take_while(u8::is_ascii_digit).count();
        let (number, behind) = rest.split_at(length);
        if length == 0 {
            let shown: String = rest.chars().take(width).collect();
            let error =
                Error::new(SqlState::INVALID_DATETIME_FORMAT, format!("invalid value \"{shown}\" for \"{keyword}\""));
            return Err(error.with_detail("Value must be an integer."));
        }
        rest = behind;
        Ok(number.parse().unwrap_or(i64::MAX))
    };
    match keyword {
        "YYYY" | "IYYY" => found.year = Some(digits(4)?),
        "YYY" => found.year = Some(near_2020(digits(3)?)),
        "YY" => found.year = Some(near_2020(digits(2)?)),
        "Y" => found.year = Some(near_2020(digits(1)?)),
        "MM" => found.month = Some(digits(2)?),
        "DD" => found.day = Some(digits(2)?),
        "DDD" => found.day_of_year = Some(digits(3)?),
        "J" => found.julian = Some(digits(7)?),
        "HH24" | "HH12" | "HH" => {
            found.hour = digits(2)?;
            if keyword != "HH24" && !(1..=12).contains(&found.hour) {
                let message = format!("hour \"{}\" is invalid for the 12-hour clock", found.hour);
                let hint = "Use the 24-hour clock, or give an hour between 1 and 12.";
                return Err(Error::new(SqlState::INVALID_DATETIME_FORMAT, message).with_hint(hint));
            }
            if keyword != "HH24" {
                found.afternoon.get_or_insert(false);
            }
        }
        "MI" => found.minute = digits(2)?,
        "SS" => found.second = digits(2)?,
        "SSSSS" | "SSSS" => found.second_of_day = Some(digits(5)?),
        "MS" | "US" | "FF1" | "FF2" | "FF3" | "FF4" | "FF5" | "FF6" => {
            let width = match keyword {
                "MS" => 3,
                "US" => 6,
                ff => usize::from(ff.as_bytes()[2] - b'0'),
            };
            let given = start.bytes().take(width).take_while(u8::is_ascii_digit).count();
            found.us = digits(width)? * 10_i64.pow(6 - given.min(6) as u32);
        }
        "MONTH" | "MON" | "DAY" | "DY" => {
            let names: &[&str] = if keyword.starts_with('M') { &MONTHS } else { &DAYS };
            let name = |full: &str| {
                if keyword.len() == 3 || keyword == "DY" { full[..3].to_string() } else { full.to_string() }
            };
            let Some(place) = names.iter().position(|full| starts_with(rest, &name(full))) else {
                let shown: String = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
                let error = Error::new(
                    SqlState::INVALID_DATETIME_FORMAT,
                    format!("invalid value \"{shown}\" for \"{keyword}\""),
                );
                return Err(
                    error.with_detail("The given value did not match any of the allowed values for this field.")
                );
            };
            rest = &rest[name(names[place]).len()..];
            if keyword.starts_with('M') {
                found.month = Some(place as i64 + 1);
            }
        }
        "AM" | "PM" | "A.M." | "P.M." => {
            found.afternoon = Some(starts_with(rest, "p"));
            rest = rest.get(keyword.len()..).unwrap_or("");
        }
        "BC" | "AD" | "B.C." | "A.D." => {
            found.before_christ = starts_with(rest, "b");
            rest = rest.get(keyword.len()..).unwrap_or("");
        }
        "TZ" | "TZH" | "TZM" | "OF" => return Err(Error::unsupported(format!("pattern {keyword} in to_timestamp"))),
        "D" | "ID" | "W" | "WW" | "IW" | "CC" | "Q" | "RM" | "Y,YYY" | "IYY" | "IY" | "I" | "IDDD" => {
            return Err(Error::unsupported(format!("pattern {keyword} in to_timestamp and to_date")));
        }
        _ => return Err(out_of_range(input)),
    }
    Ok(rest)
}

/// A year of less than four digits is the one nearest to 2020 (adjust_partial_year_to_2020).
fn near_2020(year: i64) -> i64 {
    match year {
        0..70 => year + 2000,
        70..100 => year + 1900,
        100..520 => year + 2000,
        520..1000 => year + 1000,
        other => other,
    }
}

fn assemble(found: &Found, input: &str) -> Result<i64> {
    let bad = || out_of_range(input);
    let year = match (found.year, found.before_christ) {
        (None, _) => 0,
        (Some(year), true) => 1 - year,
        (Some(year), false) => year,
    };
    let year = i32::try_from(year).map_err(|_| bad())?;
    let (month, day) = (found.month.unwrap_or(1), found.day.unwrap_or(1));
    if !(1..=12).contains(&month) || day < 1 || day > i64::from(days_in_month(year, month as u32)) {
        return Err(bad());
    }
    let mut days = days_of_civil(year, month as u32, day as u32);
    if let Some(day) = found.day_of_year {
        if found.year.is_none() {
            let message = "cannot calculate day of year without year information";
            return Err(Error::new(SqlState::INVALID_DATETIME_FORMAT, message));
        }
        days = days_of_civil(year, 1, 1) + day - 1;
        if i64::from(civil_of_days(days).year) != i64::from(year) {
            return Err(bad());
        }
    }
    if let Some(julian) = found.julian {
        days = julian - 2_451_545;
    }
    let hour = match found.afternoon {
        Some(true) if found.hour < 12 => found.hour + 12,
        Some(false) if found.hour == 12 => 0,
        _ => found.hour,
    };
    if hour > 23 || found.minute > 59 || found.second > 59 || found.second_of_day.is_some_and(|second| second > 86_399)
    {
        return Err(bad());
    }
    let seconds = found.second_of_day.unwrap_or(hour * 3600 + found.minute * 60 + found.second);
    let time_us = seconds * 1_000_000 + found.us;
    let us = days.checked_mul(DAY_US).and_then(|us| us.checked_add(time_us)).ok_or_else(bad)?;
    if homenode_types::datetime::timestamp_in_range(us) { Ok(us) } else { Err(bad()) }
}
