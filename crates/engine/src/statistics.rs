//! What is in a table's columns? What ANALYZE has found in a sample of its rows, kept in the catalog for the planner.
//!
//! The numbers are those of PostgreSQL's `pg_statistic` (its manual, chapter "How the Planner Uses Statistics"). New ones are published as
//! definitions are, so every plan made before is made again.

use crate::bytes::{Decoder, Encoder};
use crate::catalog::{Object, Table};
use crate::error::{Result, Storage};
use crate::session::Session;
use homenode_types::{ColumnType, RowLayout, Type, Value};
use std::sync::Arc;

/// What ANALYZE has found in a table.
#[derive(Clone, PartialEq, Debug)]
pub struct TableStatistics {
    /// Object number.
    pub oid: u32,
    /// The table.
    pub relation: u32,
    /// How many rows there were.
    pub rows: f64,
    /// How many leaf pages they were on.
    pub pages: u64,
    /// By position.
    pub columns: Vec<ColumnStatistics>,
}

/// What ANALYZE has found in a column.
#[derive(Clone, PartialEq, Debug)]
pub struct ColumnStatistics {
    /// The column's type then.
    pub ty: ColumnType,
    /// Share of rows where it is NULL.
    pub null_share: f64,
    /// Mean bytes of a value.
    pub width: f64,
    /// How many different values there are: as they are, or below 0 as a share of the rows (what grows with the table).
    pub distinct: f64,
    /// The most common values and their shares of all rows, most common first.
    pub common: Vec<(Value, f64)>,
    /// Values that divide the others into parts with equally many rows, ascending, least and greatest included.
    pub histogram: Vec<Value>,
    /// How far the order of the values is that of the rows, from -1 to 1.
    pub correlation: f64,
}

fn encode_value(layout: &RowLayout, value: &Value, out: &mut Encoder) {
    let mut bytes = Vec::new();
    // A value that is not of its column's type cannot be: then it is NULL, which the planner takes for nothing known.
    if layout.encode(std::slice::from_ref(value), &mut bytes).is_err() {
        layout.encode_nulls(&mut bytes);
    }
    out.bytes(&bytes);
}

fn decode_value(layout: &RowLayout, from: &mut Decoder<'_>) -> Option<Value> {
    let mut values = Vec::new();
    layout.decode(from.bytes()?, &mut values);
    values.pop()
}

pub(crate) fn encode(statistics: &TableStatistics, out: &mut Encoder) {
    out.u32(statistics.oid);
    out.u32(statistics.relation);
    out.u64(statistics.rows.to_bits());
    out.u64(statistics.pages);
    out.list(&statistics.columns, |column, out| {
        let layout = RowLayout::new(&[column.ty]);
        out.u32(column.ty.ty.oid());
        out.u32(column.ty.typmod as u32);
        for number in [column.null_share, column.width, column.distinct, column.correlation] {
            out.u64(number.to_bits());
        }
        out.list(&column.common, |(value, share), out| {
            encode_value(&layout, value, out);
            out.u64(share.to_bits());
        });
        out.list(&column.histogram, |value, out| encode_value(&layout, value, out));
    });
}

pub(crate) fn decode(from: &mut Decoder<'_>) -> Option<TableStatistics> {
    let number = |from: &mut Decoder<'_>| from.u64().map(f64::from_bits);
    Some(TableStatistics {
        oid: from.u32()?,
        relation: from.u32()?,
        rows: number(from)?,
        pages: from.u64()?,
        columns: from.list(|from| {
            let ty = ColumnType { ty: Type::from_oid(from.u32()?)?, typmod: from.u32()? as i32 };
            let layout = RowLayout::new(&[ty]);
            Some(ColumnStatistics {
                ty,
                null_share: number(from)?,
                width: number(from)?,
                distinct: number(from)?,
                correlation: number(from)?,
                common: from.list(|from| Some((decode_value(&layout, from)?, number(from)?)))?,
                histogram: from.list(|from| decode_value(&layout, from))?,
            })
        })?,
    })
}

impl crate::catalog::Definitions {
    /// What is known of a table's rows, if it was analyzed since its columns became what they are.
    pub fn statistics(&self, table: &Table) -> Option<&Arc<TableStatistics>> {
        let fits = |statistics: &TableStatistics| {
            let types = statistics.columns.iter().map(|column| column.ty);
            statistics.columns.len() == table.columns.len() && types.eq(table.columns.iter().map(|column| column.ty))
        };
        self.statistics.get(&table.oid).filter(|statistics| fits(statistics))
    }

    pub(crate) fn put_statistics(&mut self, statistics: Arc<TableStatistics>) {
        self.statistics.insert(statistics.relation, statistics);
    }
}

/// A sample of a table's rows, in their order.
pub struct Sample {
    /// The rows.
    pub rows: Vec<Vec<u8>>,
    /// How many rows there are, roughly.
    pub total_rows: f64,
    /// How many leaf pages there are.
    pub pages: u64,
}

impl Session {
    /// Reads about `wanted` rows of a table, dealt evenly over its leaves and at random within each. Writers go on meanwhile. Rows of
    /// leaves that are passed over are not read, so a big table costs `wanted` pages at most.
    ///
    /// # Errors
    /// Those of waiting for the table and of reading pages.
    pub fn sample(&mut self, table: &Table, wanted: usize) -> Result<Sample> {
        let mut reader = self.reader(table)?;
        let mut leaves: Vec<Vec<u8>> = Vec::new();
        table.tree.leaves(|lower, _| leaves.push(lower.to_vec())).sql()?;
        let pages = leaves.len();
        let chosen = pages.min(wanted).max(1);
        // Numbers that look random and repeat from run to run (Marsaglia, "Xorshift RNGs", 2003).
        let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ u64::from(table.oid);
        let mut random = move |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below.max(1) as u64) as usize
        };
        let (mut rows, mut seen) = (Vec::new(), 0_usize);
        let mut leaf: Vec<Vec<u8>> = Vec::new();
        for number in 0..chosen {
            let (from, to) = (number * pages / chosen, (number + 1) * pages / chosen);
            leaf.clear();
            reader.leaf_rows(&leaves[from + random(to - from)], &mut leaf)?;
            seen += leaf.len();
            // The parts of `wanted` that are due by now, so that they come out even over all leaves.
            let due = (wanted * (number + 1) / chosen - wanted * number / chosen).min(leaf.len());
            let mut left = leaf.len();
            let mut missing = due;
            for row in leaf.drain(..) {
                if random(left) < missing {
                    missing -= 1;
                    rows.push(row);
                }
                left -= 1;
            }
        }
        self.note_dependency(reader.depends_on());
        Ok(Sample { rows, total_rows: seen as f64 * pages as f64 / chosen as f64, pages: pages as u64 })
    }

    /// Keeps what was found in a table, instead of what was kept before.
    ///
    /// # Errors
    /// 40P01, 55P03, 57014; those of writing.
    pub fn put_statistics(&mut self, mut statistics: TableStatistics) -> Result<()> {
        self.begin_change()?;
        let definitions = self.definitions();
        // The table may have gone meanwhile.
        if definitions.table_by_oid(statistics.relation).is_none() {
            return Ok(());
        }
        let known = definitions.statistics.get(&statistics.relation).map(|known| known.oid);
        statistics.oid = known.unwrap_or_else(|| self.new_oid());
        self.put_object(Object::Statistics(statistics))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_types::Decimal;

    #[test]
    fn statistics_are_read_as_written_and_cut_ones_are_refused() {
        let column = |ty, common: Value, bounds: Vec<Value>| ColumnStatistics {
            ty: ColumnType::new(ty),
            null_share: 0.25,
            width: 8.5,
            distinct: -0.5,
            common: vec![(common, 0.125)],
            histogram: bounds,
            correlation: -1.0,
        };
        let statistics = TableStatistics {
            oid: 7,
            relation: 8,
            rows: 1e9,
            pages: 12,
            columns: vec![
                column(Type::Int4, Value::Int4(-3), vec![Value::Int4(1), Value::Int4(i32::MAX)]),
                column(Type::Text, Value::text("äx"), Vec::new()),
                column(Type::Numeric, Value::Numeric(Decimal::new(-105, 2)), vec![Value::Numeric(Decimal::ZERO)]),
            ],
        };
        let bytes = Object::Statistics(statistics.clone()).encode();
        assert_eq!(Object::decode(&bytes).unwrap(), Object::Statistics(statistics));
        for cut in 0..bytes.len() {
            assert!(Object::decode(&bytes[..cut]).is_err(), "{cut}");
        }
    }
}
