//! What is in a table's columns? ANALYZE: nulls, distinct and common values, a histogram and the correlation of each, from a sample.
//!
//! The sample has 300 rows for each entry wanted (Chaudhuri, Motwani and Narasayya, "Random sampling for histogram construction: how
//! much is enough?", SIGMOD 1998); how many distinct values the table has is estimated from it as Haas and Stokes do ("Estimating the
//! number of classes in a finite population", IBM research report RJ 10025, 1996, their estimator Duj1). PostgreSQL does both.

use crate::context::Context;
use homenode_engine::{ColumnStatistics, Sample, Table, TableStatistics};
use homenode_types::{Result, Value, ValueRef, compare};
use std::cmp::Ordering;

/// Sampled rows for each entry of a list of common values or a histogram.
const ROWS_PER_ENTRY: usize = 300;

/// Values longer than this are counted, but neither compared nor kept: they would fill the catalog.
const MAX_KEPT_BYTES: usize = 1024;

/// Analyzes a table and keeps what was found.
pub(crate) fn analyze(context: &mut Context, table: &Table) -> Result<()> {
    let entries = context.settings.get("default_statistics_target")?.parse().unwrap_or(100_usize).max(1);
    let sample = context.session.sample(table, entries * ROWS_PER_ENTRY)?;
    let mut columns = Vec::with_capacity(table.columns.len());
    for place in 0..table.columns.len() {
        context.check_interrupt()?;
        columns.push(column(table, place, &sample, entries));
    }
    let (relation, pages) = (table.oid, table.pages_estimate());
    context.session.put_statistics(TableStatistics { oid: 0, relation, rows: sample.total_rows, pages, columns })
}

/// A value of the sample that occurs `count` times.
struct Occurring<'a> {
    value: ValueRef<'a>,
    count: usize,
}

fn column(table: &Table, place: usize, sample: &Sample, entries: usize) -> ColumnStatistics {
    let layout = &table.layout;
    let (mut values, mut nulls, mut long, mut bytes) = (Vec::new(), 0_usize, 0_usize, 0_usize);
    for (number, row) in sample.rows.iter().enumerate() {
        let value = layout.column(row, place);
        match value {
            ValueRef::Null => nulls += 1,
            ValueRef::Text(text) if text.len() > MAX_KEPT_BYTES => (long, bytes) = (long + 1, bytes + text.len()),
            ValueRef::Bytea(data) if data.len() > MAX_KEPT_BYTES => (long, bytes) = (long + 1, bytes + data.len()),
            _ => {
                bytes += width(value);
                values.push((value, number));
            }
        }
    }
    let sampled = sample.rows.len().max(1) as f64;
    let whole = sample.rows.len() as f64 >= sample.total_rows;
    values.sort_by(|(a, _), (b, _)| compare(*a, *b));
    let occurring = occurring(&values);
    let present = sample.total_rows * (1.0 - nulls as f64 / sampled);
    let distinct = if occurring.is_empty() {
        // All NULL, or all too long to be looked at: those are taken for different.
        if long > 0 { -1.0 } else { 0.0 }
    } else {
        distinct(&occurring, long, present, sample.total_rows, whole)
    };
    let common = common(&occurring, sampled, entries, distinct, sample.total_rows, whole);
    let histogram = histogram(&occurring, &common, entries);
    let shares = common.iter().map(|at| (occurring[*at].value.to_owned(), occurring[*at].count as f64 / sampled));
    ColumnStatistics {
        ty: table.columns[place].ty,
        null_share: nulls as f64 / sampled,
        width: bytes as f64 / ((values.len() + long).max(1) as f64),
        distinct,
        common: shares.collect(),
        histogram,
        correlation: correlation(&values),
    }
}

fn width(value: ValueRef<'_>) -> usize {
    match value {
        ValueRef::Text(text) => text.len(),
        ValueRef::Bytea(data) => data.len(),
        ValueRef::Bool(_) => 1,
        ValueRef::Int2(_) => 2,
        ValueRef::Int4(_) | ValueRef::Float4(_) | ValueRef::Date(_) | ValueRef::Oid(_) => 4,
        ValueRef::Interval(_) | ValueRef::Uuid(_) | ValueRef::Numeric(_) => 16,
        _ => 8,
    }
}

/// The different values, ascending.
fn occurring<'a>(sorted: &[(ValueRef<'a>, usize)]) -> Vec<Occurring<'a>> {
    let same = |a: &(ValueRef<'a>, usize), b: &(ValueRef<'a>, usize)| compare(a.0, b.0) == Ordering::Equal;
    sorted.chunk_by(same).map(|chunk| Occurring { value: chunk[0].0, count: chunk.len() }).collect()
}

/// How many different values the table has; below 0 as a share of its rows.
fn distinct(occurring: &[Occurring<'_>], long: usize, present: f64, total: f64, whole: bool) -> f64 {
    let once = occurring.iter().filter(|value| value.count == 1).count() + long;
    let seen = occurring.len() + long;
    let rows: usize = occurring.iter().map(|value| value.count).sum::<usize>() + long;
    let estimate = if whole {
        seen as f64
    } else if once == seen {
        present
    } else if once == 0 {
        seen as f64
    } else {
        let (rows, seen, once) = (rows as f64, seen as f64, once as f64);
        let all = rows * seen / ((rows - once) + once * rows / present.max(rows));
        all.clamp(seen, present.max(seen))
    };
    // Beyond a tenth of the rows it is taken to grow with them.
    if estimate > 0.1 * total { -(estimate / total.max(1.0)).min(1.0) } else { estimate.round() }
}

/// Places of the most common values: all of them if they fit, else those that occur clearly more often than the mean.
fn common(
    occurring: &[Occurring<'_>],
    sampled: f64,
    entries: usize,
    distinct: f64,
    total: f64,
    whole: bool,
) -> Vec<usize> {
    let mut places: Vec<usize> = (0..occurring.len()).filter(|at| occurring[*at].count > 1).collect();
    let all_seen = whole || (distinct > 0.0 && places.len() == occurring.len());
    if all_seen && occurring.len() <= entries {
        places = (0..occurring.len()).collect();
    } else {
        let classes = if distinct < 0.0 { -distinct * total } else { distinct };
        let mean = sampled / classes.max(1.0);
        places.retain(|at| occurring[*at].count as f64 > (1.25 * mean).max(1.0));
    }
    places.sort_by_key(|at| std::cmp::Reverse(occurring[*at].count));
    places.truncate(entries);
    places
}

/// Values that divide those that are not common into parts of equal size.
fn histogram(occurring: &[Occurring<'_>], common: &[usize], entries: usize) -> Vec<Value> {
    let is_common: std::collections::HashSet<usize> = common.iter().copied().collect();
    let rest: Vec<&Occurring<'_>> =
        occurring.iter().enumerate().filter(|(at, _)| !is_common.contains(at)).map(|(_, value)| value).collect();
    if rest.len() < 2 {
        return Vec::new();
    }
    let rows: usize = rest.iter().map(|value| value.count).sum();
    let bounds = (entries + 1).min(rest.len());
    let (mut found, mut at, mut passed) = (Vec::with_capacity(bounds), 0, 0);
    for bound in 0..bounds {
        let wanted = bound * (rows - 1) / (bounds - 1);
        while passed + rest[at].count <= wanted {
            passed += rest[at].count;
            at += 1;
        }
        found.push(rest[at].value.to_owned());
    }
    found
}

/// Of the order of values and that of rows: both are numbers from 0, so that the sums but one are known.
fn correlation(sorted: &[(ValueRef<'_>, usize)]) -> f64 {
    let count = sorted.len() as f64;
    if sorted.len() < 2 {
        return 0.0;
    }
    // The places of the rows that are left when NULLs are not counted.
    let mut order: Vec<usize> = (0..sorted.len()).collect();
    order.sort_unstable_by_key(|at| sorted[*at].1);
    let products: f64 = order.iter().enumerate().map(|(row, at)| row as f64 * *at as f64).sum();
    let sum = count * (count - 1.0) / 2.0;
    let squares = count * (count - 1.0) * (2.0 * count - 1.0) / 6.0;
    (count * products - sum * sum) / (count * squares - sum * sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(numbers: impl Iterator<Item = i32>) -> Vec<(ValueRef<'static>, usize)> {
        let mut values: Vec<_> = numbers.enumerate().map(|(row, number)| (ValueRef::Int4(number), row)).collect();
        values.sort_by(|(a, _), (b, _)| compare(*a, *b));
        values
    }

    #[test]
    fn distinct_values_are_counted_or_estimated() {
        let found = |values: &[(ValueRef<'static>, usize)], total: f64| {
            distinct(&occurring(values), 0, total, total, values.len() as f64 >= total)
        };
        let few = sorted((0..3000).map(|number| number % 7));
        assert_eq!(found(&few, 3000.0), 7.0);
        assert_eq!(found(&few, 1e6), 7.0, "no value was seen only once");
        assert_eq!(found(&sorted(0..3000), 1e6), -1.0, "every value was seen once");
        // 100 000 values that each occur ten times: of 30 000 rows a fair sample sees about 26 000 of them.
        let mut state = 1_u64;
        let sample = sorted((0..30_000).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % 100_000) as i32
        }));
        let estimate = found(&sample, 1e6);
        assert!((50_000.0..200_000.0).contains(&estimate) || (-0.2..-0.05).contains(&estimate), "{estimate}");
    }

    #[test]
    fn common_values_and_histogram_share_the_rows() {
        let values = sorted((0..10_000).map(|number| if number % 2 == 0 { -1 } else { number }));
        let occurring = occurring(&values);
        let common = common(&occurring, 10_000.0, 10, -0.5, 10_000.0, false);
        assert_eq!(common.iter().map(|at| occurring[*at].count).collect::<Vec<_>>(), [5000]);
        let bounds = histogram(&occurring, &common, 10);
        assert_eq!(bounds.len(), 11);
        assert_eq!((bounds[0].as_i64(), bounds[5].as_i64(), bounds[10].as_i64()), (Some(1), Some(4999), Some(9999)));
        let four = sorted((0..100).map(|number| number % 4));
        let known = super::common(&super::occurring(&four), 100.0, 10, 4.0, 100.0, true);
        assert_eq!(known.len(), 4);
        assert!(histogram(&super::occurring(&four), &known, 10).is_empty());
    }

    #[test]
    fn order_is_told_from_disorder() {
        assert!((correlation(&sorted(0..1000)) - 1.0).abs() < 1e-9);
        assert!((correlation(&sorted((0..1000).rev())) + 1.0).abs() < 1e-9);
        assert!(correlation(&sorted((0..1000).map(|number| number * 7919 % 1009))).abs() < 0.2);
    }
}
