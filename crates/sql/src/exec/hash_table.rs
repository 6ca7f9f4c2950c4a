//! Where are the rows with this key? A hash table of rows by composite keys, chained by numbers.

use super::{hash_key, same_key};
use homenode_engine::Charge;
use homenode_types::Value;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

const END: u32 = u32::MAX;

/// The keys are hashes already.
#[derive(Default)]
pub(super) struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// Entries found by key; entries with equal keys form a chain, newest first.
pub(crate) struct HashTable<T> {
    heads: HashMap<u64, u32, BuildHasherDefault<Identity>>,
    entries: Vec<Entry<T>>,
    /// Bytes that the entries point to.
    pointed_to: usize,
}

/// What is put into a table with a key.
pub(crate) trait Entered {
    /// Bytes that it points to as it is put in.
    fn heap_bytes(&self) -> usize {
        0
    }
}

impl Entered for () {}
impl Entered for u64 {}
impl Entered for usize {}

/// Bytes that a list of values takes, with what they point to.
pub(crate) fn bytes_of(values: &[Value]) -> usize {
    size_of_val(values) + values.iter().map(Value::heap_bytes).sum::<usize>()
}

struct Entry<T> {
    key: Vec<Value>,
    value: T,
    next: u32,
}

impl<T> Default for HashTable<T> {
    fn default() -> HashTable<T> {
        HashTable { heads: HashMap::default(), entries: Vec::new(), pointed_to: 0 }
    }
}

impl<T: Entered> HashTable<T> {
    /// Adds an entry, whether or not there is one with its key.
    pub fn push(&mut self, key: Vec<Value>, value: T) -> usize {
        let number = self.entries.len() as u32;
        assert!(number < END, "a hash table holds fewer than 2^32 rows");
        let next = self.heads.insert(hash_key(&key), number).unwrap_or(END);
        self.pointed_to += bytes_of(&key) + value.heap_bytes();
        self.entries.push(Entry { key, value, next });
        number as usize
    }

    /// The first entry with `key`.
    pub fn find(&self, key: &[Value]) -> Option<usize> {
        let head = self.heads.get(&hash_key(key)).copied().unwrap_or(END);
        self.follow(head, key)
    }

    /// The next entry with `key` after entry `at`.
    pub fn find_after(&self, at: usize, key: &[Value]) -> Option<usize> {
        self.follow(self.entries[at].next, key)
    }

    fn follow(&self, mut number: u32, key: &[Value]) -> Option<usize> {
        while number != END {
            let entry = &self.entries[number as usize];
            if same_key(&entry.key, key) {
                return Some(number as usize);
            }
            number = entry.next;
        }
        None
    }

    /// An entry's value.
    pub fn value(&self, at: usize) -> &T {
        &self.entries[at].value
    }

    /// An entry's value, to change.
    pub fn value_mut(&mut self, at: usize) -> &mut T {
        &mut self.entries[at].value
    }

    /// What entries point to has grown.
    pub fn add_bytes(&mut self, bytes: usize) {
        self.pointed_to += bytes;
    }

    /// How much the table takes, texts included.
    pub fn bytes(&self) -> usize {
        let map = self.heads.capacity() * (size_of::<(u64, u32)>() + 1);
        map + self.entries.capacity() * size_of::<Entry<T>>() + self.pointed_to
    }

    /// Says how much the table takes, and where its entries are.
    pub fn charge(&self, charge: &mut Charge) {
        let start = self.entries.as_ptr().addr();
        charge.set(self.bytes(), start..start + self.entries.len() * size_of::<Entry<T>>());
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Keys and values in the order they came.
    pub fn into_entries(self) -> impl Iterator<Item = (Vec<Value>, T)> {
        self.entries.into_iter().map(|entry| (entry.key, entry.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_keys_chain_and_integers_of_any_width_are_equal() {
        let mut table: HashTable<u64> = HashTable::default();
        table.push(vec![Value::Int4(7), Value::text("a")], 1);
        table.push(vec![Value::Int4(8), Value::text("a")], 2);
        table.push(vec![Value::Int8(7), Value::text("a")], 3);
        let key = [Value::Int8(7), Value::text("a")];
        let first = table.find(&key).unwrap();
        assert_eq!(*table.value(first), 3);
        let second = table.find_after(first, &key).unwrap();
        assert_eq!((*table.value(second), table.find_after(second, &key)), (1, None));
        assert_eq!(table.find(&[Value::Null, Value::Null]), None);
    }

    #[test]
    fn what_keys_point_to_is_counted() {
        let mut table: HashTable<()> = HashTable::default();
        (0..10).for_each(|number| {
            table.push(vec![Value::Int4(number), Value::Text("x".repeat(1000))], ());
        });
        assert!((10 * 1000..20 * 1000).contains(&table.pointed_to), "{}", table.pointed_to);
    }
}
