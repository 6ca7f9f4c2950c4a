//! In which order do rows come? Sort keys as bytes that sort as their values do, and the order of the rows they belong to.
//!
//! Keys lie one after the other in one buffer; what is sorted is a row's number beside its key's first eight bytes, so that most
//! comparisons end without looking at the key (Graefe, "Implementing sorting in database systems", ACM Computing Surveys 2006).

use homenode_types::{Type, ValueRef, key, trim_blanks_of};
use std::cmp::Ordering;

/// How one part of a key is to be sorted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Direction {
    pub descending: bool,
    pub nulls_first: bool,
}

/// Keys of rows, numbered from 0 as they come.
#[derive(Default)]
pub(crate) struct SortKeys {
    bytes: Vec<u8>,
    /// Where each row's key ends.
    ends: Vec<usize>,
    /// The head of each row's key.
    heads: Vec<u64>,
    /// The rows' numbers, in their order once they are sorted.
    order: Vec<u32>,
    /// Memory for sorting.
    packed: Vec<u64>,
}

/// Bits of a packed word that hold a row's number; the others hold what tells its head from the others.
const NUMBER_BITS: u32 = 20;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;

impl SortKeys {
    /// Appends a part of the next row's key.
    pub fn part(&mut self, value: ValueRef<'_>, ty: Type, direction: Direction) {
        let start = self.bytes.len();
        key::encode_column(value, ty, &mut self.bytes);
        self.turn(start, value.is_null(), direction);
    }

    /// As [`SortKeys::part`], for the bytes of a text.
    #[inline]
    pub fn text_part(&mut self, text: &[u8], ty: Type, direction: Direction) {
        let start = self.bytes.len();
        let text = if ty == Type::Bpchar { trim_blanks_of(text) } else { text };
        key::encode_text(text, &mut self.bytes);
        self.turn(start, false, direction);
    }

    /// Every encoding begins with a byte that tells NULL from all else; it becomes the one that puts NULL where it is wanted.
    #[inline]
    fn turn(&mut self, start: usize, null: bool, direction: Direction) {
        self.bytes[start] = match (null, direction.nulls_first) {
            (false, _) => 0x80,
            (true, true) => 0x00,
            (true, false) => 0xFF,
        };
        if direction.descending {
            self.bytes[start + 1..].iter_mut().for_each(|byte| *byte = !*byte);
        }
    }

    /// The next row's key is whole.
    #[inline]
    pub fn end_row(&mut self) {
        let row = self.ends.len();
        assert!(row < u32::MAX as usize, "a sort holds fewer than 2^32 rows");
        let key = &self.bytes[self.ends.last().copied().unwrap_or(0)..];
        self.heads.push(head(key));
        self.order.push(row as u32);
        self.ends.push(self.bytes.len());
    }

    /// Takes back the parts of a row that is not wanted.
    pub fn drop_row(&mut self) {
        self.bytes.truncate(self.ends.last().copied().unwrap_or(0));
    }

    /// Whether the row whose parts were appended last comes behind row `other`, or with it.
    pub fn is_behind(&self, other: u32) -> bool {
        self.bytes[self.ends.last().copied().unwrap_or(0)..] >= *self.key(other)
    }

    /// Whether two rows have the same key.
    pub fn same(&self, a: usize, b: usize) -> bool {
        self.key(a as u32) == self.key(b as u32)
    }

    /// Bytes that the keys take.
    pub fn bytes(&self) -> usize {
        let words = self.ends.capacity() + self.heads.capacity() + self.packed.capacity();
        self.bytes.capacity() + words * size_of::<u64>() + self.order.capacity() * size_of::<u32>()
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    #[inline]
    fn key(&self, row: u32) -> &[u8] {
        let row = row as usize;
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.bytes[start..self.ends[row]]
    }

    /// Sorts; rows with equal keys keep their order.
    pub fn sort(&mut self) {
        let mut order = std::mem::take(&mut self.order);
        if self.ends.len() <= 1 << NUMBER_BITS {
            self.sort_packed(&mut order);
        } else {
            order.sort_unstable_by(|a, b| self.compare(*a, *b));
        }
        self.order = order;
    }

    /// Sorts words made of what is left of the heads without the bits that they have in common, and the rows' numbers: comparing
    /// words is much cheaper than asking a function. Rows that the words do not tell apart are sorted by their keys.
    fn sort_packed(&mut self, order: &mut [u32]) {
        let Some(&first) = order.first() else { return };
        let common = self.heads[first as usize];
        let differing = order.iter().fold(0, |bits, row| bits | (self.heads[*row as usize] ^ common));
        let shift = differing.leading_zeros().min(u64::BITS - 1);
        let mut packed = std::mem::take(&mut self.packed);
        packed.clear();
        packed.extend(order.iter().map(|row| ((self.heads[*row as usize] << shift) & !NUMBER) | u64::from(*row)));
        packed.sort_unstable();
        order.iter_mut().zip(&packed).for_each(|(row, word)| *row = (word & NUMBER) as u32);
        let mut start = 0;
        for same in packed.chunk_by(|a, b| a & !NUMBER == b & !NUMBER) {
            if same.len() > 1 {
                order[start..start + same.len()].sort_unstable_by(|a, b| self.compare(*a, *b));
            }
            start += same.len();
        }
        self.packed = packed;
    }

    fn compare(&self, a: u32, b: u32) -> Ordering {
        let heads = self.heads[a as usize].cmp(&self.heads[b as usize]);
        heads.then_with(|| self.key(a).cmp(self.key(b))).then_with(|| a.cmp(&b))
    }

    /// Of sorted rows with equal keys only the first stays.
    pub fn keep_distinct(&mut self) {
        let mut order = std::mem::take(&mut self.order);
        order.dedup_by(|b, a| self.heads[*a as usize] == self.heads[*b as usize] && self.key(*a) == self.key(*b));
        self.order = order;
    }

    /// Of sorted rows only the first `keep` stay.
    pub fn truncate(&mut self, keep: usize) {
        self.order.truncate(keep);
    }

    /// The rows' numbers in the order they are in.
    pub fn rows(&self) -> impl DoubleEndedIterator<Item = usize> + '_ {
        self.order.iter().map(|row| *row as usize)
    }

    /// Forgets the keys of rows that are not in the order any more; the rows left get new numbers, in their order.
    pub fn compact(&mut self) {
        let mut kept = SortKeys::default();
        for &row in &self.order {
            kept.bytes.extend_from_slice(self.key(row));
            kept.end_row();
        }
        *self = kept;
    }

    /// Forgets all rows but not their memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.heads.clear();
        self.order.clear();
    }

    /// Bytes of memory held.
    pub fn capacity_bytes(&self) -> usize {
        let words = self.ends.capacity() + self.heads.capacity() + self.packed.capacity();
        self.bytes.capacity() + words * size_of::<u64>() + self.order.capacity() * size_of::<u32>()
    }
}

/// The first bytes of a key that tell rows apart, as a number: they never order two rows otherwise than their keys do.
#[inline]
fn head(key: &[u8]) -> u64 {
    match key {
        // The mark of a value is the same for all of them; what follows it isn't.
        [0x80, rest @ ..] => match rest.first_chunk() {
            Some(bytes) => u64::from_be_bytes(*bytes),
            None => {
                let mut bytes = [0; 8];
                bytes[..rest.len()].copy_from_slice(rest);
                u64::from_be_bytes(bytes)
            }
        },
        [0xFF, ..] => u64::MAX,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UP: Direction = Direction { descending: false, nulls_first: false };
    const DOWN: Direction = Direction { descending: true, nulls_first: true };

    fn sorted(values: &[ValueRef<'_>], ty: Type, direction: Direction) -> Vec<usize> {
        let mut keys = SortKeys::default();
        for value in values {
            keys.part(*value, ty, direction);
            keys.end_row();
        }
        keys.sort();
        keys.rows().collect()
    }

    #[test]
    fn nulls_stand_where_they_are_wanted_and_equal_rows_keep_their_order() {
        let values = [3, i64::MIN, 3, i64::MAX].map(ValueRef::Int8);
        let values = [&[ValueRef::Null][..], &values].concat();
        assert_eq!(sorted(&values, Type::Int8, UP), [2, 1, 3, 4, 0]);
        assert_eq!(sorted(&values, Type::Int8, DOWN), [0, 4, 1, 3, 2]);
        let up_nulls_first = Direction { nulls_first: true, ..UP };
        assert_eq!(sorted(&values, Type::Int8, up_nulls_first), [0, 2, 1, 3, 4]);
        let down_nulls_last = Direction { nulls_first: false, ..DOWN };
        assert_eq!(sorted(&values, Type::Int8, down_nulls_last), [4, 1, 3, 2, 0]);
    }

    #[test]
    fn texts_that_differ_behind_the_head_sort_too() {
        let values = ["a long text b", "a long text", "", "a long text a", "\u{10FFFF}\u{10FFFF}\u{10FFFF}", "b"];
        assert_eq!(sorted(&values.map(ValueRef::Text), Type::Text, UP), [2, 1, 3, 0, 5, 4]);
        assert_eq!(sorted(&values.map(ValueRef::Text), Type::Text, DOWN), [4, 5, 0, 3, 1, 2]);
    }

    #[test]
    fn many_rows_sort_as_their_values_do() {
        // Few values: many rows are equal; close ones: their heads differ in the last bits only; far ones: in the first.
        for (span, offset) in [(7, 0), (1 << 20, i64::MIN), (i64::MAX as u64, 0)] {
            let number = |i: u64| offset.wrapping_add((i.wrapping_mul(0x9E37_79B9_7F4A_7C15) % span) as i64);
            let numbers: Vec<i64> = (0..5000).map(number).collect();
            let values: Vec<_> = numbers.iter().map(|number| ValueRef::Int8(*number)).collect();
            let mut wanted: Vec<usize> = (0..numbers.len()).collect();
            wanted.sort_by_key(|row| numbers[*row]);
            assert!(sorted(&values, Type::Int8, UP) == wanted, "{span}");
        }
    }

    #[test]
    fn bytes_of_a_text_make_the_key_of_the_text() {
        for (text, ty) in [("ab  ", Type::Bpchar), ("ab  ", Type::Text), ("", Type::Varchar)] {
            let (mut by_value, mut by_bytes) = (SortKeys::default(), SortKeys::default());
            by_value.part(ValueRef::Text(text), ty, DOWN);
            by_bytes.text_part(text.as_bytes(), ty, DOWN);
            assert_eq!(by_value.bytes, by_bytes.bytes);
        }
    }

    #[test]
    fn distinct_keeps_the_first_of_equal_rows_also_after_compaction() {
        let mut keys = SortKeys::default();
        for number in [5, 4, 5, 4, 6] {
            keys.part(ValueRef::Int4(number), Type::Int4, UP);
            keys.end_row();
        }
        keys.sort();
        keys.keep_distinct();
        assert_eq!(keys.rows().collect::<Vec<_>>(), [1, 0, 4]);
        keys.compact();
        keys.part(ValueRef::Int4(4), Type::Int4, UP);
        assert!(keys.is_behind(0) && !keys.is_behind(1));
        keys.end_row();
        keys.sort();
        keys.keep_distinct();
        assert_eq!(keys.rows().collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(keys.len(), 3);
    }
}
