//! How many rows will there be? Shares of rows that conditions let through, from what ANALYZE has found.
//!
//! The rules are those of PostgreSQL's `selfuncs.c` as its manual explains them ("Row Estimation Examples"): common values are looked up,
//! the others are taken for equally frequent, ranges are read off the histogram, patterns are tried on its bounds, and conditions on
//! different columns are taken for independent.

use crate::bind::{Relation, Source};
use crate::expr::{CmpOp, Env, Expr, NoHost};
use homenode_engine::{ColumnStatistics, Table};
use homenode_types::{Value, ValueRef, compare, trim_blanks};
use std::cmp::Ordering;

/// Rows per page that estimates assume of a table that was never analyzed.
const ROWS_PER_PAGE: f64 = 100.0;
/// Different values of a column of which nothing is known (PostgreSQL's DEFAULT_NUM_DISTINCT).
const DISTINCT: f64 = 200.0;
/// Share of rows that an inequality lets through when nothing is known (DEFAULT_INEQ_SEL).
const INEQUALITY: f64 = 1.0 / 3.0;
/// Share of rows between two unknown ends (DEFAULT_RANGE_INEQ_SEL).
const RANGE: f64 = 0.005;
/// Share of rows that a pattern lets through when nothing is known.
const PATTERN: f64 = 0.05;

/// What is known of the columns of one FROM clause.
pub(super) struct Estimates<'a> {
    pub relations: &'a [Relation],
}

/// The rows of a stored table now: those that ANALYZE counted, grown as its pages have.
pub(super) fn table_rows(relation: &Relation, table: &Table) -> f64 {
    let pages = table.pages_estimate() as f64;
    let rows = match &relation.statistics {
        Some(known) => known.rows * (pages / (known.pages.max(1) as f64)),
        None => pages * ROWS_PER_PAGE,
    };
    rows.max(1.0)
}

impl<'a> Estimates<'a> {
    /// The relation and the place in it of a bare column.
    fn place(&self, expr: &Expr) -> Option<(&'a Relation, usize)> {
        let register = match expr {
            Expr::Column(register) => register,
            Expr::Cast { expr, .. } => return self.place(expr),
            _ => return None,
        };
        let relation = self.relations.iter().find(|relation| relation.registers().contains(register))?;
        Some((relation, register - relation.base))
    }

    fn column(&self, expr: &Expr) -> Option<&'a ColumnStatistics> {
        let (relation, place) = self.place(expr)?;
        relation.statistics.as_ref()?.columns.get(place)
    }

    /// How many different values an expression has over all rows of its relations.
    pub fn distinct(&self, expr: &Expr) -> f64 {
        let Some((relation, place)) = self.place(expr) else {
            let mut columns = Vec::new();
            expr.visit_columns(&mut |register| columns.push(register));
            columns.sort_unstable();
            columns.dedup();
            return columns.into_iter().map(|register| self.distinct(&Expr::Column(register))).product::<f64>();
        };
        let rows = match &relation.source {
            Source::Table(table) => {
                let rows = table_rows(relation, table);
                let is_key = |columns: &[usize]| columns == [place];
                let keyed = table.primary_key.as_ref().is_some_and(|key| is_key(&key.columns))
                    || table
                        .indexes
                        .iter()
                        .any(|index| index.unique && index.filter.is_none() && is_key(&index.columns));
                if keyed {
                    return rows;
                }
                rows
            }
            Source::Derived { query, .. } => {
                let rows = query.input.rows().max(1.0);
                // Each group has a value of its own where there is one column to group by.
                return if query.groups_by() == Some(place) { rows } else { rows.min(DISTINCT) };
            }
            _ => return DISTINCT,
        };
        match self.column(expr) {
            Some(known) if known.distinct < 0.0 => (-known.distinct * rows).max(1.0),
            Some(known) => known.distinct.max(1.0),
            None => rows.min(DISTINCT),
        }
    }

    /// The share of rows that satisfy all of the conditions.
    pub fn share<'e>(&self, conditions: impl Iterator<Item = &'e Expr>) -> f64 {
        let (mut share, mut ranges): (f64, Vec<Ends<'e>>) = (1.0, Vec::new());
        for condition in conditions {
            match self.end(condition) {
                Some((column, upper, part)) => {
                    match ranges.iter_mut().find(|range| same_column(range.column, column)) {
                        Some(range) => range.add(upper, part),
                        None => {
                            let mut range = Ends { column, lower: None, upper: None };
                            range.add(upper, part);
                            ranges.push(range);
                        }
                    }
                }
                None => share *= self.one(condition),
            }
        }
        for range in ranges {
            let nulls = self.column(range.column).map_or(0.0, |known| known.null_share);
            share *= range.share(nulls);
        }
        share.clamp(1e-12, 1.0)
    }

    /// One end of a range of a column: the column, whether it is the upper end, and the share of rows on its inner side.
    fn end<'e>(&self, condition: &'e Expr) -> Option<(&'e Expr, bool, Option<f64>)> {
        let Expr::Compare { op, left, right, .. } = condition else { return None };
        let (column, op, value) = if self.place(left).is_some() && !has_columns(right) {
            (left, *op, right)
        } else if self.place(right).is_some() && !has_columns(left) {
            (right, op.mirrored(), left)
        } else {
            return None;
        };
        if !matches!(op, CmpOp::Lt | CmpOp::Le | CmpOp::Gt | CmpOp::Ge) {
            return None;
        }
        let part = constant(value).and_then(|value| below(self.column(column)?, &value, op));
        Some((column, matches!(op, CmpOp::Lt | CmpOp::Le), part))
    }

    fn one(&self, condition: &Expr) -> f64 {
        match condition {
            Expr::Const(Value::Bool(true)) => 1.0,
            Expr::Const(_) => 0.0,
            Expr::And(list) => self.share(list.iter()),
            Expr::Or(list) => list.iter().fold(0.0, |sum, part| {
                let part = self.share(std::iter::once(part));
                sum + part - sum * part
            }),
            Expr::Not(inner) => 1.0 - self.share(std::iter::once(&**inner)),
            Expr::Compare { op: CmpOp::Eq, left, right, .. } => self.equality(left, right),
            Expr::Compare { op: CmpOp::Ne, left, right, .. } => 1.0 - self.equality(left, right),
            Expr::Compare { .. } => INEQUALITY,
            Expr::IsNull { expr, negated } => {
                let nulls = self.column(expr).map_or(0.005, |known| known.null_share);
                if *negated { 1.0 - nulls } else { nulls }
            }
            Expr::InList { expr, list, negated, .. } => {
                let sum: f64 = list.iter().map(|item| self.equality(expr, item)).sum();
                if *negated { 1.0 - sum.min(1.0) } else { sum.min(1.0) }
            }
            other => self.tried(other).unwrap_or(match other {
                Expr::Match { negated: false, .. } => PATTERN,
                Expr::Match { .. } => 1.0 - PATTERN,
                Expr::External(_) => 0.5,
                _ => INEQUALITY,
            }),
        }
    }

    fn equality(&self, left: &Expr, right: &Expr) -> f64 {
        let (column, value) = match (self.place(left), self.place(right)) {
            (Some(_), Some(_)) => return 1.0 / self.distinct(left).max(self.distinct(right)).max(1.0),
            (Some(_), None) => (left, right),
            (None, Some(_)) => (right, left),
            (None, None) => {
                let distinct = self.distinct(left).max(self.distinct(right));
                return if distinct > 1.0 { 1.0 / distinct } else { 0.005 };
            }
        };
        let distinct = self.distinct(column).max(1.0);
        let Some(known) = self.column(column) else { return 1.0 / distinct };
        let common: f64 = known.common.iter().map(|(_, share)| share).sum();
        if let Some(value) = constant(value) {
            let equal = |other: &Value| same(other.as_ref(), value.as_ref());
            if let Some((_, share)) = known.common.iter().find(|(other, _)| equal(other)) {
                return *share;
            }
            let others = (distinct - known.common.len() as f64).max(1.0);
            return ((1.0 - common - known.null_share) / others).clamp(1e-9, 1.0);
        }
        (1.0 - known.null_share) / distinct
    }

    /// A condition on one column without parameters, tried on its common values and on the bounds of its histogram.
    fn tried(&self, condition: &Expr) -> Option<f64> {
        let mut register = None;
        let mut single = true;
        condition.visit_columns(&mut |other| single &= *register.get_or_insert(other) == other);
        let unknown = |part: &Expr| match part {
            Expr::External(_) | Expr::Outer(_) | Expr::Param(_) => true,
            Expr::Call { function, .. } => function.volatility != crate::expr::Volatility::Immutable,
            _ => false,
        };
        let register = register.filter(|_| single && !condition.any(&unknown))?;
        let known = self.column(&Expr::Column(register))?;
        let mut row = vec![Value::Null; register + 1];
        let mut holds = |value: &Value| {
            row[register] = value.clone();
            let mut host = NoHost;
            condition.eval_bool(&row, &[], &mut Env::new(&mut host)).ok().flatten() == Some(true)
        };
        let hits: f64 = known.common.iter().filter(|(value, _)| holds(value)).map(|(_, share)| share).sum();
        let common: f64 = known.common.iter().map(|(_, share)| share).sum();
        let rest = (1.0 - common - known.null_share).max(0.0);
        if known.histogram.is_empty() {
            return Some(hits.max(1e-4));
        }
        let bounds = known.histogram.len() as f64;
        let matching = known.histogram.iter().filter(|value| holds(value)).count() as f64;
        let part = (matching / bounds).clamp(0.3 / bounds, 1.0 - 0.3 / bounds);
        Some((hits + rest * part).clamp(1e-6, 1.0))
    }
}

/// The conditions on one column that make a range.
struct Ends<'e> {
    column: &'e Expr,
    /// Shares of rows on the inner side of each end; `None` within: an end whose value is not known.
    lower: Option<Option<f64>>,
    upper: Option<Option<f64>>,
}

impl Ends<'_> {
    fn add(&mut self, upper: bool, part: Option<f64>) {
        let end = if upper { &mut self.upper } else { &mut self.lower };
        // The narrower of two is the end.
        *end = match (*end, part) {
            (Some(Some(a)), Some(b)) => Some(Some(a.min(b))),
            (Some(known), None) => Some(known),
            (_, part) => Some(part),
        };
    }

    fn share(&self, nulls: f64) -> f64 {
        match (self.lower, self.upper) {
            (Some(Some(lower)), Some(Some(upper))) => (lower + upper + nulls - 1.0).max(1e-6),
            (Some(_), Some(_)) => RANGE,
            (Some(part), None) | (None, Some(part)) => part.unwrap_or(INEQUALITY),
            (None, None) => 1.0,
        }
    }
}

fn same_column(a: &Expr, b: &Expr) -> bool {
    match (a, b) {
        (Expr::Column(a), Expr::Column(b)) => a == b,
        (Expr::Cast { expr: a, .. }, b) | (b, Expr::Cast { expr: a, .. }) => same_column(a, b),
        _ => false,
    }
}

fn has_columns(expr: &Expr) -> bool {
    expr.any(&|part| matches!(part, Expr::Column(_) | Expr::External(_)))
}

fn same(a: ValueRef<'_>, b: ValueRef<'_>) -> bool {
    match (a, b) {
        (ValueRef::Text(a), ValueRef::Text(b)) => trim_blanks(a) == trim_blanks(b),
        _ => compare(a, b) == Ordering::Equal,
    }
}

/// The value of an expression that is the same whenever it is asked.
pub(super) fn constant(expr: &Expr) -> Option<Value> {
    match expr {
        Expr::Const(value) => Some(value.clone()),
        other if other.is_immutable() => {
            let mut host = NoHost;
            other.eval(&(), &[], &mut Env::new(&mut host)).ok()
        }
        _ => None,
    }
}

/// The share of a column's rows for which `column op value`, NULLs not among them.
fn below(known: &ColumnStatistics, value: &Value, op: CmpOp) -> Option<f64> {
    if value.is_null() {
        return Some(0.0);
    }
    let common: f64 = known.common.iter().map(|(_, share)| share).sum();
    if known.histogram.is_empty() && known.common.is_empty() {
        return None;
    }
    let hits: f64 = known
        .common
        .iter()
        .filter(|(other, _)| op.holds(compare(other.as_ref(), value.as_ref())))
        .map(|(_, s)| s)
        .sum();
    let rest = (1.0 - common - known.null_share).max(0.0);
    if known.histogram.len() < 2 {
        return Some(hits);
    }
    let bounds = &known.histogram;
    let parts = (bounds.len() - 1) as f64;
    let at = bounds.partition_point(|bound| compare(bound.as_ref(), value.as_ref()).is_lt());
    let less = if at == 0 {
        0.0
    } else if at == bounds.len() {
        1.0
    } else {
        (at as f64 - 1.0 + between(&bounds[at - 1], &bounds[at], value)) / parts
    };
    let less = less.clamp(0.1 / parts / 10.0, 1.0 - 0.1 / parts / 10.0);
    let part = if matches!(op, CmpOp::Lt | CmpOp::Le) { less } else { 1.0 - less };
    Some((hits + rest * part).clamp(0.0, 1.0))
}

/// How far a value is on the way from one bound to the next.
fn between(low: &Value, high: &Value, value: &Value) -> f64 {
    let number = |value: &Value| match value.as_ref() {
        ValueRef::Date(days) => Some(f64::from(days) * 86_400e6),
        ValueRef::Timestamp(us) | ValueRef::Timestamptz(us) | ValueRef::Time(us) => Some(us as f64),
        other => other.as_f64(),
    };
    match (number(low), number(high), number(value)) {
        (Some(low), Some(high), Some(value)) if high > low => ((value - low) / (high - low)).clamp(0.0, 1.0),
        _ => 0.5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_types::{ColumnType, Type};

    fn known() -> ColumnStatistics {
        ColumnStatistics {
            ty: ColumnType::new(Type::Int4),
            null_share: 0.1,
            width: 4.0,
            distinct: 101.0,
            common: vec![(Value::Int4(5), 0.4)],
            histogram: (0..=10).map(|bound| Value::Int4(bound * 10)).collect(),
            correlation: 0.0,
        }
    }

    #[test]
    fn ranges_are_read_off_common_values_and_histogram() {
        let near = |found: Option<f64>, wanted: f64| {
            let found = found.unwrap();
            assert!((found - wanted).abs() < 0.01, "{found} instead of {wanted}");
        };
        // Half of the rest (0.5) is below 50, and the common value too.
        near(below(&known(), &Value::Int4(50), CmpOp::Lt), 0.4 + 0.25);
        near(below(&known(), &Value::Int4(50), CmpOp::Gt), 0.25);
        near(below(&known(), &Value::Int4(25), CmpOp::Le), 0.4 + 0.125);
        near(below(&known(), &Value::Int4(-1), CmpOp::Lt), 0.0);
        near(below(&known(), &Value::Int4(1000), CmpOp::Le), 0.9);
        near(below(&known(), &Value::Null, CmpOp::Lt), 0.0);
        assert_eq!(
            below(&ColumnStatistics { common: vec![], histogram: vec![], ..known() }, &Value::Int4(1), CmpOp::Lt),
            None
        );
    }

    #[test]
    fn the_ends_of_a_range_are_one_condition() {
        let column = Expr::Column(0);
        let mut ends = Ends { column: &column, lower: None, upper: None };
        ends.add(true, Some(0.6));
        assert_eq!(ends.share(0.0), 0.6);
        ends.add(false, Some(0.7));
        assert!((ends.share(0.0) - 0.3).abs() < 1e-9);
        ends.add(true, Some(0.5));
        assert!((ends.share(0.1) - 0.3).abs() < 1e-9);
        ends.add(true, None);
        assert!((ends.share(0.1) - 0.3).abs() < 1e-9);
    }
}
