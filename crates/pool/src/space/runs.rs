//! Which numbers are in a set of mostly consecutive ones? A set of page numbers as runs.

use std::collections::BTreeMap;

use crate::PageNo;

/// A set of page numbers, kept as maximal runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Runs {
    /// First number -> length of the run.
    runs: BTreeMap<PageNo, u64>,
    count: u64,
}

impl Runs {
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PageNo, u64)> + '_ {
        self.runs.iter().map(|(&first, &len)| (first, len))
    }

    pub(crate) fn contains(&self, page_no: PageNo) -> bool {
        self.runs.range(..=page_no).next_back().is_some_and(|(&f, &len)| page_no < f + len)
    }

    /// Adds `first .. first + len`, of which nothing is in the set.
    pub(crate) fn insert(&mut self, first: PageNo, len: u64) {
        if len == 0 {
            return;
        }
        let before = self.runs.range(..=first).next_back().map(|(&f, &l)| (f, l));
        let after = self.runs.range(first..).next().map(|(&f, &l)| (f, l));
        assert!(before.is_none_or(|(f, l)| f + l <= first), "page {first} is in the set already");
        assert!(after.is_none_or(|(f, _)| first + len <= f), "page {first} is in the set already");
        let (mut start, mut length) = (first, len);
        if let Some((f, l)) = before.filter(|(f, l)| f + l == first) {
            (start, length) = (f, l + length);
        }
        if let Some((f, l)) = after.filter(|(f, _)| *f == first + len) {
            self.runs.remove(&f);
            length += l;
        }
        self.runs.insert(start, length);
        self.count += len;
    }

    /// Takes one number out; false if it is not in the set.
    pub(crate) fn remove(&mut self, page_no: PageNo) -> bool {
        let Some((&first, &len)) = self.runs.range(..=page_no).next_back() else { return false };
        if page_no >= first + len {
            return false;
        }
        self.runs.remove(&first);
        if page_no > first {
            self.runs.insert(first, page_no - first);
        }
        if page_no + 1 < first + len {
            self.runs.insert(page_no + 1, first + len - page_no - 1);
        }
        self.count -= 1;
        true
    }

    /// Takes up to `most` consecutive numbers from the lowest run.
    pub(crate) fn take_first(&mut self, most: u64) -> Option<(PageNo, u64)> {
        let (&first, &len) = self.runs.iter().next()?;
        Some((first, self.cut(first, len, most.min(len))))
    }

    /// Takes exactly `len` consecutive numbers, if a run is long enough.
    pub(crate) fn take_consecutive(&mut self, len: u64) -> Option<PageNo> {
        let (&first, &have) = self.runs.iter().find(|(_, have)| **have >= len)?;
        self.cut(first, have, len);
        Some(first)
    }

    fn cut(&mut self, first: PageNo, have: u64, take: u64) -> u64 {
        self.runs.remove(&first);
        if take < have {
            self.runs.insert(first + take, have - take);
        }
        self.count -= take;
        take
    }

    /// The set as bytes: number of runs, then per run the gap since the last one and its length,
    /// all as LEB128.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.runs.len() as u64);
        let mut end = 0;
        for (first, len) in self.iter() {
            put_varint(out, first - end);
            put_varint(out, len);
            end = first + len;
        }
    }

    /// Reads what [`Runs::encode`] wrote; `None` for anything else. All numbers are below `limit`.
    pub(crate) fn decode(bytes: &mut &[u8], limit: u64) -> Option<Runs> {
        let mut set = Runs::default();
        let mut end = 0u64;
        for i in 0..take_varint(bytes)? {
            let gap = take_varint(bytes)?;
            let len = take_varint(bytes)?;
            if len == 0 || (i > 0 && gap == 0) {
                return None;
            }
            let first = end.checked_add(gap)?;
            end = first.checked_add(len).filter(|&end| end <= limit)?;
            set.insert(first, len);
        }
        Some(set)
    }
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        if shift == 63 && part > 1 {
            return None;
        }
        value |= part << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn neighbours_merge_and_holes_split() {
        let mut set = Runs::default();
        set.insert(10, 5);
        set.insert(20, 5);
        set.insert(15, 5);
        assert_eq!(set.iter().collect::<Vec<_>>(), [(10, 15)]);
        assert!(set.remove(12) && !set.remove(12));
        assert_eq!(set.iter().collect::<Vec<_>>(), [(10, 2), (13, 12)]);
        assert_eq!(set.take_consecutive(4), Some(13));
        assert_eq!(set.take_first(64), Some((10, 2)));
        assert_eq!(set.count(), 8);
    }

    proptest! {
        #[test]
        fn agrees_with_a_plain_set(ops in prop::collection::vec((0u8..4, 1u64..200, 1u64..8), 0..200)) {
            let mut set = Runs::default();
            let mut model = BTreeSet::new();
            for (op, page, len) in ops {
                match op {
                    0 => if (page..page + len).all(|p| !model.contains(&p)) {
                        set.insert(page, len);
                        model.extend(page..page + len);
                    },
                    1 => prop_assert_eq!(set.remove(page), model.remove(&page)),
                    2 => if let Some((first, n)) = set.take_first(len) {
                        prop_assert_eq!(model.first(), Some(&first));
                        for p in first..first + n { prop_assert!(model.remove(&p)); }
                    } else { prop_assert!(model.is_empty()) },
                    _ => if let Some(first) = set.take_consecutive(len) {
                        for p in first..first + len { prop_assert!(model.remove(&p)); }
                    },
                }
                prop_assert_eq!(set.count(), model.len() as u64);
                prop_assert_eq!(set.contains(page), model.contains(&page));
            }
            let mut bytes = Vec::new();
            set.encode(&mut bytes);
            prop_assert_eq!(Runs::decode(&mut &bytes[..], 1000), Some(set));
        }

        #[test]
        fn decoding_any_bytes_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Runs::decode(&mut &bytes[..], 1 << 40);
        }
    }
}
