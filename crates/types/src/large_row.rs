//! What becomes of a row that is larger than its place? Rows with long values in memory, and rows whose long values are elsewhere.
//!
//! Beside the usual form of a row there are three, told apart by the two upper bits of the column count:
//!
//! ```text
//! 0x8000  wide:  as usual, but the end offsets of the variable-width columns are u32. Only in memory.
//! 0x4000  split: as usual, but some variable-width values are pointers; behind the variable bytes
//!                stands a bitmap of them, one bit for each variable-width column. Only in storage.
//! 0xC000  moved: the two bytes, then a pointer to the row itself, which is in the usual form or split.
//! ```
//! A pointer is u64 value id | u32 length in bytes. [`RowLayout`] reads the usual form and the wide one; a split row is joined first.

use crate::error::{Error, Result, SqlState};
use crate::row::{COUNT_BYTES, RowLayout, Shape, append_variable, end_offset, stored_columns, write_fixed};
use crate::value::ValueRef;

/// Flag of a wide row, in its column count.
const WIDE: u16 = 0x8000;
/// Flag of a row that is not all in its place.
const SPLIT: u16 = 0x4000;
/// What the flags leave of the count.
pub(crate) const COUNT_MASK: usize = 0x3FFF;
/// Bytes of a pointer.
const POINTER_BYTES: usize = 12;
/// Values shorter than this stay in their row: a pointer would save little.
const MIN_MOVED_BYTES: usize = 32;

/// The most bytes that a row may have: 256 MiB. Longer ones are refused with `54000`.
pub const MAX_ROW_BYTES: usize = 256 << 20;

/// Where bytes are that their row has no room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValuePointer {
    /// Names them among those of their table.
    pub id: u64,
    /// How many bytes.
    pub len: u32,
}

impl ValuePointer {
    fn append(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.to_le_bytes());
        out.extend_from_slice(&self.len.to_le_bytes());
    }

    fn read(bytes: &[u8]) -> Option<ValuePointer> {
        let (id, rest) = bytes.split_first_chunk::<8>()?;
        Some(ValuePointer { id: u64::from_le_bytes(*id), len: u32::from_le_bytes(*rest.first_chunk()?) })
    }
}

/// Whether a stored row is not all in its place: it has to be joined before its columns are read.
#[inline(always)]
pub fn is_split(row: &[u8]) -> bool {
    matches!(row, [_, high, ..] if high & (SPLIT >> 8) as u8 != 0)
}

/// Of a moved row: where it is.
pub fn moved_to(row: &[u8]) -> Option<ValuePointer> {
    let flags = stored_columns(row) as u16 & (WIDE | SPLIT);
    if flags == WIDE | SPLIT { ValuePointer::read(&row[COUNT_BYTES..]) } else { None }
}

/// A moved row: what stands in its place.
pub fn moved_row(to: ValuePointer) -> Vec<u8> {
    let mut row = (WIDE | SPLIT).to_le_bytes().to_vec();
    to.append(&mut row);
    row
}

#[inline]
fn wide_end(row: &[u8], ends_at: usize, n: usize) -> Option<usize> {
    let bytes = row.get(ends_at + 4 * n..)?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*bytes) as usize)
}

impl Shape {
    fn variable_columns(&self) -> usize {
        (self.bytes_at - self.ends_at) as usize / 2
    }
}

/// A row in the usual, the wide or the split form, taken apart.
struct Parts<'a> {
    row: &'a [u8],
    shape: Shape,
    count: usize,
    wide: bool,
    /// Where the variable bytes begin.
    bytes_at: usize,
    /// The split form's bitmap.
    moved: &'a [u8],
}

impl<'a> Parts<'a> {
    fn of(layout: &RowLayout, row: &'a [u8]) -> Option<Parts<'a>> {
        let stored = stored_columns(row);
        let flags = stored as u16 & (WIDE | SPLIT);
        let count = stored & COUNT_MASK;
        let shape = *layout.shapes.get(count)?;
        let variable = shape.variable_columns();
        let wide = flags == WIDE;
        let bytes_at = shape.ends_at as usize + variable * if wide { 4 } else { 2 };
        let moved_at = if flags == SPLIT { row.len().checked_sub(variable.div_ceil(8))? } else { row.len() };
        if flags == WIDE | SPLIT || moved_at < bytes_at {
            return None;
        }
        let (row, moved) = row.split_at(moved_at);
        Some(Parts { row, shape, count, wide, bytes_at, moved })
    }

    fn end(&self, place: usize) -> Option<usize> {
        let ends_at = self.shape.ends_at as usize;
        if self.wide { wide_end(self.row, ends_at, place) } else { end_offset(self.row, ends_at, place) }
    }

    /// The bytes of a variable-width column, or of the pointer that stands for them.
    fn variable(&self, place: usize) -> Option<&'a [u8]> {
        let start = place.checked_sub(1).map_or(Some(0), |before| self.end(before))?;
        self.row.get(self.bytes_at + start..self.bytes_at + self.end(place)?)
    }

    fn pointer(&self, place: usize) -> Option<ValuePointer> {
        if self.moved.get(place / 8)? & (1 << (place % 8)) == 0 {
            return None;
        }
        ValuePointer::read(self.variable(place)?)
    }

    fn variable_columns(&self) -> usize {
        self.shape.variable_columns()
    }

    /// Starts another form of the same row in `out`: count with `flags`, null bitmap, fixed-width columns, room for the ends.
    fn begin(&self, flags: u16, end_bytes: usize, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&(self.count as u16 | flags).to_le_bytes());
        out.extend_from_slice(&self.row[COUNT_BYTES..self.shape.ends_at as usize]);
        out.resize(out.len() + self.variable_columns() * end_bytes, 0);
    }
}

/// Notes the end of the `place`-th variable-width column at `out`'s length.
fn note_end(out: &mut [u8], shape: &Shape, bytes_at: usize, place: usize, end_bytes: usize) {
    let end = (out.len() - bytes_at) as u32;
    let at = shape.ends_at as usize + place * end_bytes;
    out[at..at + end_bytes].copy_from_slice(&end.to_le_bytes()[..end_bytes]);
}

#[cold]
fn too_big(bytes: usize) -> Error {
    Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, format!("row is too big: size {bytes}, maximum size {MAX_ROW_BYTES}"))
}

fn damaged() -> Error {
    Error::new(SqlState::DATA_CORRUPTED, "a row cannot be read")
}

impl RowLayout {
    /// [`RowLayout::encode_with`] for values that need the wide form.
    #[cold]
    pub(crate) fn encode_wide<'a>(
        &self,
        count: usize,
        value: &dyn Fn(usize) -> ValueRef<'a>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let shape = self.shapes[count];
        let bytes_at = shape.ends_at as usize + 4 * shape.variable_columns();
        out.clear();
        out.resize(bytes_at, 0);
        out[..COUNT_BYTES].copy_from_slice(&(count as u16 | WIDE).to_le_bytes());
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
            if out.len() > MAX_ROW_BYTES {
                return Err(too_big(out.len()));
            }
            if slot.width == 0 {
                note_end(out, &shape, bytes_at, slot.place.into(), 4);
            }
        }
        Ok(())
    }

    /// [`RowLayout::set_column`] where the row is wide or becomes so.
    #[cold]
    pub(crate) fn set_wide(&self, row: &mut Vec<u8>, i: usize, value: ValueRef<'_>) -> Result<bool> {
        if stored_columns(row) & COUNT_MASK != self.slots.len() {
            return Ok(false);
        }
        let old = std::mem::take(row);
        let column = |n: usize| if n == i { value } else { self.column(&old, n) };
        self.encode_with(self.slots.len(), column, row)?;
        Ok(true)
    }

    /// Column `i` of a wide row, which is not NULL.
    #[cold]
    pub(crate) fn read_wide<'a>(&self, row: &'a [u8], i: usize) -> Option<ValueRef<'a>> {
        let parts = Parts::of(self, row).filter(|parts| parts.wide)?;
        let slot = self.slots.get(i)?;
        if slot.width > 0 {
            let at = parts.shape.fixed_at as usize + slot.place as usize;
            return crate::row::read_fixed(slot.ty, row.get(at..at + slot.width as usize)?);
        }
        Some(crate::row::variable_value(slot.ty, parts.variable(slot.place.into())?))
    }

    /// Writes a row as a split one into `out` (cleared first): its longest values become what `move_out` gives for them, until
    /// it has at most `target` bytes or only short values are left.
    ///
    /// `move_out` gets the number of the value among the variable-width columns, and its bytes.
    ///
    /// # Errors
    /// Those of `move_out`; `XX001`.
    pub fn split(
        &self,
        row: &[u8],
        target: usize,
        move_out: &mut dyn FnMut(usize, &[u8]) -> Result<ValuePointer>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let parts = Parts::of(self, row).filter(|parts| parts.moved.is_empty()).ok_or_else(damaged)?;
        let variable = parts.variable_columns();
        let lengths = (0..variable).map(|place| Some(parts.variable(place)?.len()));
        let lengths: Vec<usize> = lengths.collect::<Option<_>>().ok_or_else(damaged)?;
        let mut bytes = parts.shape.bytes_at as usize + lengths.iter().sum::<usize>() + variable.div_ceil(8);
        let mut longest: Vec<usize> = (0..variable).collect();
        longest.sort_by_key(|&place| std::cmp::Reverse(lengths[place]));
        let mut moved = vec![0u8; variable.div_ceil(8)];
        for place in longest {
            if bytes <= target || lengths[place] < MIN_MOVED_BYTES {
                break;
            }
            bytes = bytes - lengths[place] + POINTER_BYTES;
            moved[place / 8] |= 1 << (place % 8);
        }
        parts.begin(SPLIT, 2, out);
        let bytes_at = out.len();
        for place in 0..variable {
            let value = parts.variable(place).ok_or_else(damaged)?;
            if moved[place / 8] & (1 << (place % 8)) != 0 {
                move_out(place, value)?.append(out);
            } else {
                out.extend_from_slice(value);
            }
            note_end(out, &parts.shape, bytes_at, place, 2);
        }
        out.extend_from_slice(&moved);
        Ok(())
    }

    /// The pointers of a split row, each with the number of its value among the variable-width columns.
    ///
    /// # Errors
    /// `XX001`.
    pub fn pointers(&self, row: &[u8]) -> Result<Vec<(usize, ValuePointer)>> {
        let parts = Parts::of(self, row).ok_or_else(damaged)?;
        Ok((0..parts.variable_columns()).filter_map(|place| Some((place, parts.pointer(place)?))).collect())
    }

    /// The bytes of the `place`-th variable-width column of a row in the usual or the wide form.
    pub fn variable_bytes<'a>(&self, row: &'a [u8], place: usize) -> Option<&'a [u8]> {
        let parts = Parts::of(self, row)?;
        (place < parts.variable_columns()).then(|| parts.variable(place)).flatten()
    }

    /// Writes a split row whole into `out` (cleared first): in the usual form if it fits that, else wide. `fetch` appends the bytes
    /// of a pointer; false, and nothing of meaning in `out`, when it says that they are not there.
    ///
    /// # Errors
    /// Those of `fetch`; `XX001`.
    pub fn join(
        &self,
        row: &[u8],
        fetch: &mut dyn FnMut(ValuePointer, &mut Vec<u8>) -> Result<bool>,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let parts = Parts::of(self, row).ok_or_else(damaged)?;
        let length = |place| match parts.pointer(place) {
            Some(pointer) => Some(pointer.len as usize),
            None => Some(parts.variable(place)?.len()),
        };
        let total: usize = (0..parts.variable_columns()).map(length).sum::<Option<_>>().ok_or_else(damaged)?;
        if total > MAX_ROW_BYTES {
            return Err(damaged());
        }
        let wide = total > usize::from(u16::MAX);
        let end_bytes = if wide { 4 } else { 2 };
        parts.begin(if wide { WIDE } else { 0 }, end_bytes, out);
        out.reserve(total);
        let bytes_at = out.len();
        for place in 0..parts.variable_columns() {
            match parts.pointer(place) {
                Some(pointer) => {
                    let start = out.len();
                    if !fetch(pointer, out)? {
                        return Ok(false);
                    }
                    if out.len() - start != pointer.len as usize {
                        return Err(damaged());
                    }
                }
                None => out.extend_from_slice(parts.variable(place).ok_or_else(damaged)?),
            }
            note_end(out, &parts.shape, bytes_at, place, end_bytes);
        }
        Ok(true)
    }

    /// Whether rows of this layout can be larger than `bytes`.
    pub fn may_exceed(&self, bytes: usize) -> bool {
        self.shapes.last().is_some_and(|shape| shape.variable_columns() > 0 || shape.bytes_at as usize > bytes)
    }
}
