//! Dates, times and intervals: how do they map to days and microseconds, and how are they written?
//!
//! The calendar is the proleptic Gregorian one, as PostgreSQL's. The session time zone is UTC.

mod parse;
mod span;

pub use parse::parse_datetime;
pub use span::{Unit, format_interval, parse_interval};

use crate::error::{Error, Result, SqlState};
use crate::int_text::write_padded;
use crate::value::DAY_US;

/// Days from 1970-01-01 to 2000-01-01.
const UNIX_EPOCH_DAYS: i64 = 10_957;
/// Microseconds from 1970-01-01 to 2000-01-01.
pub const UNIX_EPOCH_US: i64 = UNIX_EPOCH_DAYS * DAY_US;
/// 4713-01-01 BC, the first date PostgreSQL takes (its Julian day 0 is 4714-11-24 BC).
const MIN_DAYS: i64 = -2_451_545;
/// 5874897-12-31.
const MAX_DAYS: i64 = 2_145_031_948;
/// 294276-12-31 as days: the last day of timestamps.
const MAX_TIMESTAMP_DAYS: i64 = 106_751_982;

/// A point in time taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Civil {
    /// Year; 0 is 1 BC.
    pub year: i32,
    /// 1..=12.
    pub month: u32,
    /// 1..=31.
    pub day: u32,
    /// Microseconds since midnight.
    pub time_us: i64,
}

/// Days since 2000-01-01 of a date (Howard Hinnant, "chrono-compatible low-level date
/// algorithms", days_from_civil). The month must be 1..=12; days beyond the month's end run on.
pub fn days_of_civil(year: i32, month: u32, day: u32) -> i64 {
    let year = year as i64 - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month as i64 + 9) % 12) + 2) / 5 + day as i64 - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468 - UNIX_EPOCH_DAYS
}

/// The date of a number of days since 2000-01-01 (civil_from_days).
pub fn civil_of_days(days: i64) -> Civil {
    let z = days + UNIX_EPOCH_DAYS + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 } as u32;
    Civil {
        year: (yoe + era * 400 + i64::from(month <= 2)) as i32,
        month,
        day: (doy - (153 * mp + 2) / 5 + 1) as u32,
        time_us: 0,
    }
}

/// The parts of a timestamp (microseconds since 2000-01-01).
pub fn civil_of_timestamp(us: i64) -> Civil {
    Civil { time_us: us.rem_euclid(DAY_US), ..civil_of_days(us.div_euclid(DAY_US)) }
}

/// The timestamp of its parts; `None` when it is out of range.
pub fn timestamp_of_civil(civil: &Civil) -> Option<i64> {
    let days = days_of_civil(civil.year, civil.month, civil.day);
    let us = days.checked_mul(DAY_US)?.checked_add(civil.time_us)?;
    timestamp_in_range(us).then_some(us)
}

/// Is it a timestamp PostgreSQL has (4713 BC to 294276 AD)? The infinities are not asked for here.
pub fn timestamp_in_range(us: i64) -> bool {
    us >= MIN_DAYS * DAY_US && us.div_euclid(DAY_US) <= MAX_TIMESTAMP_DAYS && us != i64::MAX
}

/// Is it a date PostgreSQL has?
pub(crate) fn date_in_range(days: i64) -> bool {
    (MIN_DAYS..=MAX_DAYS).contains(&days)
}

/// `22008`: `timestamp out of range`, `date out of range`, ...
pub(crate) fn out_of_range(what: &str) -> Error {
    Error::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("{what} out of range"))
}

/// Days of a month.
pub fn days_in_month(year: i32, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// A timestamp some months later; the day is cut to the month's end (timestamp_pl_interval).
pub fn add_months(us: i64, months: i32) -> Result<i64> {
    let civil = civil_of_timestamp(us);
    let index = civil.year as i64 * 12 + (civil.month as i64 - 1) + months as i64;
    let (year, month) = (index.div_euclid(12), index.rem_euclid(12) as u32 + 1);
    let year = i32::try_from(year).map_err(|_| out_of_range("timestamp"))?;
    let day = civil.day.min(days_in_month(year, month));
    timestamp_of_civil(&Civil { year, month, day, time_us: civil.time_us }).ok_or_else(|| out_of_range("timestamp"))
}

/// Rounds microseconds to the digits of a second that a modifier allows.
pub(crate) fn round_time(us: i64, typmod: i32) -> i64 {
    let digits = match typmod {
        0..6 => typmod as u32,
        _ => return us,
    };
    let unit = 10i64.pow(6 - digits);
    // Half away from zero, as AdjustTimestampForTypmod does.
    let half = if us >= 0 { unit / 2 } else { -(unit / 2) };
    match us.checked_add(half) {
        Some(sum) if us != i64::MIN => sum / unit * unit,
        _ => us,
    }
}

pub(crate) fn write_date(days: i32, out: &mut Vec<u8>) {
    match days {
        i32::MAX => out.extend_from_slice(b"infinity"),
        i32::MIN => out.extend_from_slice(b"-infinity"),
        _ => {
            let civil = civil_of_days(days as i64);
            write_civil_date(&civil, out);
            write_era(&civil, out);
        }
    }
}

fn write_civil_date(civil: &Civil, out: &mut Vec<u8>) {
    let year = if civil.year > 0 { civil.year as i64 } else { 1 - civil.year as i64 };
    write_padded(year as u64, 4, out);
    out.push(b'-');
    write_padded(civil.month as u64, 2, out);
    out.push(b'-');
    write_padded(civil.day as u64, 2, out);
}

fn write_era(civil: &Civil, out: &mut Vec<u8>) {
    if civil.year <= 0 {
        out.extend_from_slice(b" BC");
    }
}

/// `hh:mm:ss[.ffffff]`, trailing zeros of the fraction left off.
pub(crate) fn write_time(us: i64, out: &mut Vec<u8>) {
    let us = us.unsigned_abs();
    let seconds = us / 1_000_000;
    write_padded(seconds / 3600, 2, out);
    out.push(b':');
    write_padded(seconds / 60 % 60, 2, out);
    out.push(b':');
    write_padded(seconds % 60, 2, out);
    write_fraction(us % 1_000_000, out);
}

fn write_fraction(us: u64, out: &mut Vec<u8>) {
    if us == 0 {
        return;
    }
    out.push(b'.');
    write_padded(us, 6, out);
    while out.last() == Some(&b'0') {
        out.pop();
    }
}

/// ISO text; `zone` is appended for timestamptz (before the era, as PostgreSQL does).
pub(crate) fn write_timestamp(us: i64, zone: &str, out: &mut Vec<u8>) {
    match us {
        i64::MAX => out.extend_from_slice(b"infinity"),
        i64::MIN => out.extend_from_slice(b"-infinity"),
        _ => {
            let civil = civil_of_timestamp(us);
            write_civil_date(&civil, out);
            out.push(b' ');
            write_time(civil.time_us, out);
            out.extend_from_slice(zone.as_bytes());
            write_era(&civil, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_days() {
        assert_eq!(days_of_civil(2000, 1, 1), 0);
        assert_eq!(days_of_civil(1970, 1, 1), -10_957);
        assert_eq!(days_of_civil(2000, 3, 1), 60);
        assert_eq!(days_of_civil(-4713, 11, 24), MIN_DAYS);
        assert_eq!(days_of_civil(5_874_897, 12, 31), MAX_DAYS);
        assert_eq!(days_of_civil(294_276, 12, 31), MAX_TIMESTAMP_DAYS);
    }

    #[test]
    fn days_and_dates_are_inverse() {
        for days in (MIN_DAYS..MAX_DAYS).step_by(99_991) {
            let c = civil_of_days(days);
            assert_eq!(days_of_civil(c.year, c.month, c.day), days);
            assert!(c.day <= days_in_month(c.year, c.month));
        }
    }

    #[test]
    fn months_end_is_kept() {
        let jan31 = days_of_civil(2024, 1, 31) * DAY_US;
        let feb = civil_of_timestamp(add_months(jan31, 1).unwrap());
        assert_eq!((feb.month, feb.day), (2, 29));
    }
}
