//! What do integer columns add up to? Counts, sums, least and greatest values, without making values.

use crate::expr::{Aggregate, Expr};
use crate::plan::{AggregatePlan, ScanPlan};
use homenode_types::{Error, IntegerColumn, Result, RowLayout, SqlState, Type, Value, ValueRef};

/// An aggregate over a fixed-width column, as numbers.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    kind: Kind,
    column: usize,
    /// Where it is in a row; None for count(*).
    place: Option<IntegerColumn>,
    ty: Type,
    count: u64,
    sum: i128,
    best: Option<i64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    CountAll,
    Count,
    Sum,
    Min,
    Max,
}

impl Tally {
    /// The aggregates of a query without groups, if every one of them is of the kind.
    pub fn of_calls(plan: &AggregatePlan, scan: &ScanPlan) -> Option<Vec<Tally>> {
        if !plan.groups.is_empty() {
            return None;
        }
        let calls = plan.calls.iter().map(|call| {
            if call.filter.is_some() || call.distinct {
                return None;
            }
            let kind = match call.aggregate {
                Aggregate::CountAll => Kind::CountAll,
                Aggregate::Count => Kind::Count,
                Aggregate::Sum(_) => Kind::Sum,
                Aggregate::Min(_) => Kind::Min,
                Aggregate::Max(_) => Kind::Max,
                _ => return None,
            };
            let (column, ty) = match &call.args[..] {
                [] if kind == Kind::CountAll => (0, Type::Int8),
                [Expr::Column(register)] => {
                    let column = register.checked_sub(scan.base)?;
                    (column, scan.table.columns.get(column)?.ty.ty)
                }
                _ => return None,
            };
            let place = if kind == Kind::CountAll { None } else { Some(scan.table.layout.integer_column(column)?) };
            Some(Tally { kind, column, place, ty, count: 0, sum: 0, best: None })
        });
        calls.collect()
    }

    /// Adds a stored row.
    #[inline(always)]
    pub fn add_row(&mut self, layout: &RowLayout, row: &[u8]) {
        match &self.place {
            None => self.count += 1,
            Some(place) => match place.read(row) {
                Some(Some(number)) => self.add_number(number),
                Some(None) => {}
                None => self.add(layout.column(row, self.column)),
            },
        }
    }

    fn add(&mut self, value: ValueRef<'_>) {
        match value {
            ValueRef::Int4(number) => self.add_number(i64::from(number)),
            ValueRef::Int8(number) => self.add_number(number),
            ValueRef::Int2(number) => self.add_number(i64::from(number)),
            _ => {}
        }
    }

    #[inline]
    fn add_number(&mut self, number: i64) {
        self.count += 1;
        match self.kind {
            Kind::Sum => self.sum += i128::from(number),
            Kind::Min => self.best = Some(self.best.map_or(number, |best| best.min(number))),
            Kind::Max => self.best = Some(self.best.map_or(number, |best| best.max(number))),
            Kind::Count | Kind::CountAll => {}
        }
    }

    /// Adds what another part of the table amounts to.
    pub fn merge(&mut self, other: &Tally) {
        self.count += other.count;
        self.sum += other.sum;
        self.best = match (self.best, other.best) {
            (Some(a), Some(b)) => Some(if self.kind == Kind::Min { a.min(b) } else { a.max(b) }),
            (a, b) => a.or(b),
        };
    }

    /// The result.
    pub fn finish(&self) -> Result<Value> {
        Ok(match self.kind {
            Kind::CountAll | Kind::Count => Value::Int8(self.count as i64),
            Kind::Sum if self.count == 0 => Value::Null,
            // The sum of bigints is numeric, that of smaller integers bigint (pg_aggregate.dat).
            Kind::Sum if self.ty == Type::Int8 => {
                let sum = homenode_types::Decimal::try_from_i128_with_scale(self.sum, 0);
                Value::Numeric(sum.map_err(|_| Error::out_of_range("numeric"))?)
            }
            Kind::Sum => Value::Int8(
                i64::try_from(self.sum)
                    .map_err(|_| Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "bigint out of range"))?,
            ),
            Kind::Min | Kind::Max => match (self.best, self.ty) {
                (None, _) => Value::Null,
                (Some(number), Type::Int2) => Value::Int2(number as i16),
                (Some(number), Type::Int4) => Value::Int4(number as i32),
                (Some(number), _) => Value::Int8(number),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(kind: Kind, ty: Type) -> Tally {
        Tally { kind, column: 0, place: None, ty, count: 0, sum: 0, best: None }
    }

    #[test]
    fn parts_add_up_and_nulls_do_not_count() {
        let mut a = tally(Kind::Sum, Type::Int4);
        let mut b = a.clone();
        a.add(ValueRef::Int4(i32::MAX));
        a.add(ValueRef::Null);
        b.add(ValueRef::Int4(1));
        a.merge(&b);
        assert_eq!((a.finish().unwrap(), a.count), (Value::Int8(i64::from(i32::MAX) + 1), 2));
        assert_eq!(tally(Kind::Sum, Type::Int4).finish().unwrap(), Value::Null);
        assert_eq!(tally(Kind::CountAll, Type::Int8).finish().unwrap(), Value::Int8(0));
        let mut least = tally(Kind::Min, Type::Int2);
        least.add(ValueRef::Int2(-3));
        least.merge(&tally(Kind::Min, Type::Int2));
        assert_eq!(least.finish().unwrap(), Value::Int2(-3));
    }
}
