//! How is a row laid out in bytes? Any column is found in constant time, without allocating.
//!
//! ```text
//! u16 number of columns | null bitmap (bit set = NULL) | fixed-width columns |
//! u16 end offsets of the variable-width columns | variable bytes
//! ```
//! Little-endian, unaligned. A NULL keeps its fixed width (zeros) or is an empty range. Because the
//! row says how many columns it has, columns can be added to a table without touching its rows:
//! what a row does not have reads as NULL. Damaged rows give clamped or NULL values, never a panic.

use rust_decimal::Decimal;

use crate::error::{Error, Result};
use crate::large_row::COUNT_MASK;
use crate::ty::{ColumnType, Type};
use crate::value::{Interval, Value, ValueRef};

/// Bytes of the column count in front of a row.
pub(crate) const COUNT_BYTES: usize = 2;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub ty: Type,
    /// Fixed width in bytes; 0 for a variable-width column.
    pub width: u16,
    /// Offset among the fixed-width columns, or number among the variable-width ones.
    pub place: u16,
}

/// Where everything of a row with a given number of columns starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub fixed_at: u32,
    pub ends_at: u32,
    pub bytes_at: u32,
}

/// The layout of a table's rows.
#[derive(Clone, Debug)]
pub struct RowLayout {
    pub(crate) slots: Vec<Slot>,
    /// Indexed by the number of columns a row has.
    pub(crate) shapes: Vec<Shape>,
}

impl RowLayout {
    /// The layout for these columns, in this order. At most 1600 columns (PostgreSQL's limit).
    pub fn new(columns: &[ColumnType]) -> RowLayout {
        assert!(columns.len() <= 1600, "a table has at most 1600 columns");
        let mut slots = Vec::with_capacity(columns.len());
        let mut shapes = Vec::with_capacity(columns.len() + 1);
        let (mut fixed_bytes, mut variable) = (0usize, 0usize);
        shapes.push(shape(0, 0, 0));
        for (i, column) in columns.iter().enumerate() {
            let width = fixed_width(column.ty);
            let place = if width > 0 { fixed_bytes } else { variable };
            slots.push(Slot { ty: column.ty, width: width as u16, place: place as u16 });
            fixed_bytes += width;
            variable += usize::from(width == 0);
            shapes.push(shape(i + 1, fixed_bytes, variable));
        }
        RowLayout { slots, shapes }
    }

    /// Number of columns.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Has it no columns?
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The type of a column.
    pub fn column_type(&self, i: usize) -> Type {
        self.slots[i].ty
    }

    /// Writes the row into `out`, which is cleared first. Fewer values than columns give a row of
    /// only those columns. A row whose variable bytes do not fit 65535 takes the wide form of
    /// `large_row`. `54000` beyond [`MAX_ROW_BYTES`](crate::MAX_ROW_BYTES); `XX000` when a value is
    /// not of its column's type.
    pub fn encode(&self, values: &[Value], out: &mut Vec<u8>) -> Result<()> {
        self.encode_with(values.len(), |i| values[i].as_ref(), out)
    }

    /// As [`RowLayout::encode`], taking the values from a function.
    pub fn encode_with<'a>(
        &self,
        count: usize,
        value: impl Fn(usize) -> ValueRef<'a>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        if count > self.slots.len() {
            return Err(Error::internal("a row has more values than its table has columns"));
        }
        let shape = self.shapes[count];
        out.clear();
        out.resize(shape.bytes_at as usize, 0);
        out[..COUNT_BYTES].copy_from_slice(&(count as u16).to_le_bytes());
        for (i, slot) in self.slots[..count].iter().enumerate() {
            let v = value(i);
            if v.is_null() {
                out[COUNT_BYTES + i / 8] |= 1 << (i % 8);
            } else if slot.width > 0 {
                let at = shape.fixed_at as usize + slot.place as usize;
                write_fixed(slot.ty, v, &mut out[at..at + slot.width as usize])?;
            } else {
                append_variable(v, out)?;
            }
            if slot.width == 0 {
                let Ok(end) = u16::try_from(out.len() - shape.bytes_at as usize) else {
                    return self.encode_wide(count, &value, out);
                };
                let at = shape.ends_at as usize + 2 * slot.place as usize;
                out[at..at + 2].copy_from_slice(&end.to_le_bytes());
            }
        }
        Ok(())
    }

    /// A row whose columns are all NULL into `out`, which is cleared first.
    pub fn encode_nulls(&self, out: &mut Vec<u8>) {
        let count = self.slots.len();
        out.clear();
        out.resize(self.shapes[count].bytes_at as usize, 0);
        out[..COUNT_BYTES].copy_from_slice(&(count as u16).to_le_bytes());
        (0..count).for_each(|i| out[COUNT_BYTES + i / 8] |= 1 << (i % 8));
    }

    /// Gives column `i` of a row another value, in place. False, with nothing changed, when the row has fewer columns than its
    /// table has now: such a row is written anew. Errors are those of [`RowLayout::encode`]; the row is then of no use.
    pub fn set_column(&self, row: &mut Vec<u8>, i: usize, value: ValueRef<'_>) -> Result<bool> {
        let count = self.slots.len();
        let (slot, shape) = (self.slots[i], self.shapes[count]);
        if stored_columns(row) != count || row.len() < shape.bytes_at as usize {
            return self.set_wide(row, i, value);
        }
        let bit = 1 << (i % 8);
        let null_at = COUNT_BYTES + i / 8;
        row[null_at] = if value.is_null() { row[null_at] | bit } else { row[null_at] & !bit };
        if slot.width == 0 {
            if !self.set_variable(row, slot.place as usize, value)? {
                return self.set_wide(row, i, value);
            }
            return Ok(true);
        }
        let at = shape.fixed_at as usize + slot.place as usize;
        let bytes = &mut row[at..at + slot.width as usize];
        if value.is_null() {
            bytes.fill(0);
        } else {
            write_fixed(slot.ty, value, bytes)?;
        }
        Ok(true)
    }

    /// Replaces the bytes of the `place`-th variable-width column, and moves the ends of those from it on; false, with nothing
    /// done, when they become too many for the row's form.
    fn set_variable(&self, row: &mut Vec<u8>, place: usize, value: ValueRef<'_>) -> Result<bool> {
        let bytes = match value {
            ValueRef::Null => &[][..],
            ValueRef::Text(text) | ValueRef::Jsonb(text) => text.as_bytes(),
            ValueRef::Bytea(bytes) => bytes,
            other => return Err(mismatch(Type::Text, other)),
        };
        let shape = self.shapes[self.slots.len()];
        let (ends_at, bytes_at) = (shape.ends_at as usize, shape.bytes_at as usize);
        let end_of = |row: &[u8], n: usize| end_offset(row, ends_at, n).unwrap_or(0).min(row.len() - bytes_at);
        let end = end_of(row, place);
        let start = place.checked_sub(1).map_or(0, |before| end_of(row, before)).min(end);
        if row.len() - bytes_at + bytes.len() > usize::from(u16::MAX) {
            return Ok(false);
        }
        row.splice(bytes_at + start..bytes_at + end, bytes.iter().copied());
        for n in place..(bytes_at - ends_at) / 2 {
            let at = ends_at + 2 * n;
            let old = u16::from_le_bytes([row[at], row[at + 1]]) as usize;
            let new = (old + bytes.len()).saturating_sub(end - start) as u16;
            row[at..at + 2].copy_from_slice(&new.to_le_bytes());
        }
        Ok(true)
    }

    /// Column `i` of a row. NULL for a column the row does not have.
    #[inline]
    pub fn column<'a>(&self, row: &'a [u8], i: usize) -> ValueRef<'a> {
        self.read(row, i).unwrap_or(ValueRef::Null)
    }

    /// Is column `i` NULL (or missing)?
    #[inline]
    pub fn is_null(&self, row: &[u8], i: usize) -> bool {
        match row.get(COUNT_BYTES + i / 8) {
            Some(bits) => i >= stored_columns(row) & COUNT_MASK || bits & (1 << (i % 8)) != 0,
            None => true,
        }
    }

    /// A reader of integer column `i` for the inner loops of big scans; None when the column's type is another.
    pub fn integer_column(&self, i: usize) -> Option<IntegerColumn> {
        let slot = self.slots.get(i)?;
        let width = match slot.ty {
            Type::Int2 => 2,
            Type::Int4 => 4,
            Type::Int8 => 8,
            _ => return None,
        };
        let at = self.shapes.last()?.fixed_at as usize + slot.place as usize;
        Some(IntegerColumn {
            columns: self.slots.len(),
            null_at: COUNT_BYTES + i / 8,
            null_bit: 1 << (i % 8),
            at,
            width,
        })
    }

    /// Where column `i` is in rows, for those that read it from many. None: there is no such column.
    pub fn stored_column(&self, i: usize) -> Option<StoredColumn> {
        let slot = self.slots.get(i)?;
        let shape = self.shapes.last()?;
        let place = usize::from(slot.place);
        let place = if slot.width > 0 {
            Place::Fixed { at: shape.fixed_at as usize + place, width: slot.width.into() }
        } else {
            Place::Variable {
                end_at: shape.ends_at as usize + 2 * place,
                is_first: place == 0,
                bytes_at: shape.bytes_at as usize,
            }
        };
        Some(StoredColumn { columns: self.slots.len(), null_at: COUNT_BYTES + i / 8, null_bit: 1 << (i % 8), place })
    }

    /// All columns of a row into `out`, which is cleared first.
    pub fn decode(&self, row: &[u8], out: &mut Vec<Value>) {
        out.clear();
        out.extend((0..self.len()).map(|i| self.column(row, i).to_owned()));
    }

    #[inline]
    fn read<'a>(&self, row: &'a [u8], i: usize) -> Option<ValueRef<'a>> {
        if self.is_null(row, i) {
            return None;
        }
        let slot = self.slots.get(i)?;
        let Some(shape) = self.shapes.get(stored_columns(row)) else { return self.read_wide(row, i) };
        if slot.width > 0 {
            let at = shape.fixed_at as usize + slot.place as usize;
            return read_fixed(slot.ty, row.get(at..at + slot.width as usize)?);
        }
        let ends_at = shape.ends_at as usize;
        let start = match slot.place as usize {
            0 => 0,
            n => end_offset(row, ends_at, n - 1)?,
        };
        let end = end_offset(row, ends_at, slot.place as usize)?;
        let bytes = row.get(shape.bytes_at as usize..)?;
        let end = end.min(bytes.len());
        Some(variable_value(slot.ty, &bytes[start.min(end)..end]))
    }
}

/// A value of a variable-width type.
#[inline]
pub(crate) fn variable_value(ty: Type, bytes: &[u8]) -> ValueRef<'_> {
    match ty {
        Type::Bytea => ValueRef::Bytea(bytes),
        Type::Jsonb => ValueRef::Jsonb(valid_text(bytes)),
        _ => ValueRef::Text(valid_text(bytes)),
    }
}

/// Where an integer column is in rows that have all columns of their table.
#[derive(Clone, Copy, Debug)]
pub struct IntegerColumn {
    columns: usize,
    null_at: usize,
    null_bit: u8,
    at: usize,
    width: usize,
}

impl IntegerColumn {
    /// The column's value, None when it is NULL. The outer None: the row has fewer columns than the table has now, look it up the
    /// general way.
    #[inline(always)]
    #[allow(clippy::option_option, reason = "two different questions")]
    pub fn read(&self, row: &[u8]) -> Option<Option<i64>> {
        if stored_columns(row) != self.columns {
            return None;
        }
        if *row.get(self.null_at)? & self.null_bit != 0 {
            return Some(None);
        }
        let bytes = row.get(self.at..self.at + self.width)?;
        Some(Some(match self.width {
            4 => i64::from(i32::from_le_bytes(bytes.try_into().ok()?)),
            8 => i64::from_le_bytes(bytes.try_into().ok()?),
            _ => i64::from(i16::from_le_bytes(bytes.try_into().ok()?)),
        }))
    }
}

/// Where a column is in rows that have all columns of their table.
#[derive(Clone, Copy, Debug)]
pub struct StoredColumn {
    columns: usize,
    null_at: usize,
    null_bit: u8,
    place: Place,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Fixed { at: usize, width: usize },
    Variable { end_at: usize, is_first: bool, bytes_at: usize },
}

/// What [`StoredColumn::read`] finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColumnBytes<'a> {
    /// The column's bytes as they are stored.
    Bytes(&'a [u8]),
    /// NULL.
    Null,
    /// The row has fewer columns than the table has now, or is damaged: [`RowLayout::column`] knows.
    Unknown,
}

impl StoredColumn {
    /// The column's bytes in `row`.
    #[inline]
    pub fn read<'a>(&self, row: &'a [u8]) -> ColumnBytes<'a> {
        self.find(row).unwrap_or(ColumnBytes::Unknown)
    }

    #[inline(always)]
    fn find<'a>(&self, row: &'a [u8]) -> Option<ColumnBytes<'a>> {
        if stored_columns(row) != self.columns {
            return None;
        }
        if *row.get(self.null_at)? & self.null_bit != 0 {
            return Some(ColumnBytes::Null);
        }
        let (start, end) = match self.place {
            Place::Fixed { at, width } => (at, at + width),
            Place::Variable { end_at, is_first, bytes_at } => {
                let start = if is_first { 0 } else { end_offset(row, end_at - 2, 0)? };
                (bytes_at + start, bytes_at + end_offset(row, end_at, 0)?)
            }
        };
        Some(ColumnBytes::Bytes(row.get(start..end)?))
    }
}

fn shape(count: usize, fixed_bytes: usize, variable: usize) -> Shape {
    let fixed_at = COUNT_BYTES + count.div_ceil(8);
    let ends_at = fixed_at + fixed_bytes;
    Shape { fixed_at: fixed_at as u32, ends_at: ends_at as u32, bytes_at: (ends_at + 2 * variable) as u32 }
}

/// How many columns the row has, by its own account; with the flags of its form (see `large_row`).
#[inline]
pub(crate) fn stored_columns(row: &[u8]) -> usize {
    match row {
        [a, b, ..] => u16::from_le_bytes([*a, *b]) as usize,
        _ => 0,
    }
}

#[inline]
pub(crate) fn end_offset(row: &[u8], ends_at: usize, n: usize) -> Option<usize> {
    let bytes = row.get(ends_at + 2 * n..ends_at + 2 * n + 2)?;
    Some(u16::from_le_bytes([bytes[0], bytes[1]]) as usize)
}

/// The bytes as text; of damaged bytes what comes before the damage.
#[inline]
fn valid_text(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(s) => s,
        Err(e) => std::str::from_utf8(&bytes[..e.valid_up_to()]).unwrap_or(""),
    }
}

/// Width in bytes of a type's values in a row, 0 if it varies.
fn fixed_width(ty: Type) -> usize {
    match ty {
        Type::Bool => 1,
        Type::Int2 => 2,
        Type::Int4 | Type::Float4 | Type::Date => 4,
        Type::Int8 | Type::Float8 | Type::Time | Type::Timestamp | Type::Timestamptz => 8,
        Type::Numeric | Type::Interval | Type::Uuid => 16,
        _ if ty.is_oid_like() => 4,
        _ => 0,
    }
}

#[cold]
fn mismatch(ty: Type, v: ValueRef<'_>) -> Error {
    Error::internal(format!("value {v:?} in a column of type {ty}"))
}

pub(crate) fn append_variable(v: ValueRef<'_>, out: &mut Vec<u8>) -> Result<()> {
    match v {
        ValueRef::Text(s) | ValueRef::Jsonb(s) => out.extend_from_slice(s.as_bytes()),
        ValueRef::Bytea(b) => out.extend_from_slice(b),
        _ => return Err(mismatch(Type::Text, v)),
    }
    Ok(())
}

pub(crate) fn write_fixed(ty: Type, v: ValueRef<'_>, at: &mut [u8]) -> Result<()> {
    let bad = || mismatch(ty, v);
    // Integers may come in any width that fits; everything else must be exact.
    let int = || v.as_i64().ok_or_else(bad);
    match (ty, v) {
        (Type::Int4, _) => put(at, &i32::try_from(int()?).map_err(|_| bad())?.to_le_bytes()),
        (Type::Int8, _) => put(at, &int()?.to_le_bytes()),
        (Type::Int2, _) => put(at, &i16::try_from(int()?).map_err(|_| bad())?.to_le_bytes()),
        (Type::Bool, ValueRef::Bool(b)) => put(at, &[b as u8]),
        (Type::Float4, ValueRef::Float4(f)) => put(at, &f.to_le_bytes()),
        (Type::Float8, ValueRef::Float8(f)) => put(at, &f.to_le_bytes()),
        (Type::Numeric, ValueRef::Numeric(d)) => put(at, &d.serialize()),
        (Type::Date, ValueRef::Date(d)) => put(at, &d.to_le_bytes()),
        (Type::Time, ValueRef::Time(t))
        | (Type::Timestamp, ValueRef::Timestamp(t))
        | (Type::Timestamptz, ValueRef::Timestamptz(t)) => put(at, &t.to_le_bytes()),
        (Type::Interval, ValueRef::Interval(i)) => {
            put(&mut at[..8], &i.us.to_le_bytes());
            put(&mut at[8..12], &i.days.to_le_bytes());
            put(&mut at[12..], &i.months.to_le_bytes());
        }
        (Type::Uuid, ValueRef::Uuid(u)) => put(at, &u),
        _ if ty.is_oid_like() => put(at, &u32::try_from(int()?).map_err(|_| bad())?.to_le_bytes()),
        _ => return Err(bad()),
    }
    Ok(())
}

#[inline]
fn put(at: &mut [u8], bytes: &[u8]) {
    at.copy_from_slice(bytes);
}

#[inline]
pub(crate) fn read_fixed<'a>(ty: Type, bytes: &[u8]) -> Option<ValueRef<'a>> {
    Some(match ty {
        Type::Int4 => ValueRef::Int4(i32::from_le_bytes(bytes.try_into().ok()?)),
        Type::Int8 => ValueRef::Int8(i64::from_le_bytes(bytes.try_into().ok()?)),
        Type::Int2 => ValueRef::Int2(i16::from_le_bytes(bytes.try_into().ok()?)),
        Type::Bool => ValueRef::Bool(*bytes.first()? != 0),
        Type::Float4 => ValueRef::Float4(f32::from_le_bytes(bytes.try_into().ok()?)),
        Type::Float8 => ValueRef::Float8(f64::from_le_bytes(bytes.try_into().ok()?)),
        Type::Numeric => ValueRef::Numeric(Decimal::deserialize(bytes.try_into().ok()?)),
        Type::Date => ValueRef::Date(i32::from_le_bytes(bytes.try_into().ok()?)),
        Type::Time => ValueRef::Time(i64::from_le_bytes(bytes.try_into().ok()?)),
        Type::Timestamp => ValueRef::Timestamp(i64::from_le_bytes(bytes.try_into().ok()?)),
        Type::Timestamptz => ValueRef::Timestamptz(i64::from_le_bytes(bytes.try_into().ok()?)),
        Type::Interval => ValueRef::Interval(Interval {
            us: i64::from_le_bytes(bytes[..8].try_into().ok()?),
            days: i32::from_le_bytes(bytes[8..12].try_into().ok()?),
            months: i32::from_le_bytes(bytes[12..].try_into().ok()?),
        }),
        Type::Uuid => ValueRef::Uuid(bytes.try_into().ok()?),
        _ => ValueRef::Oid(u32::from_le_bytes(bytes.try_into().ok()?)),
    })
}
