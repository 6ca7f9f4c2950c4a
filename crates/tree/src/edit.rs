//! How does a page change? Building a page from its contents, and applying operations to it; the
//! same code at run time and in recovery.

use homenode_pool::{PAGE_BYTES, PageNo};

use crate::TreeError;
use crate::bytes::{Bytes, BytesMut};
use crate::layout::*;
use crate::op::{Op, OpCode, Reader, Writer, common_prefix};

/// Counts at which an insert takes the page's prefix anew, if it has become longer: a page that
/// fills from empty (every right-most leaf) gets useful heads early.
const PREFIX_COUNTS: [usize; 2] = [8, 64];

/// One entry, its key in two parts.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub prefix: &'a [u8],
    pub suffix: &'a [u8],
    /// Writer of a leaf entry, child of an inner one.
    pub word: u64,
    pub undo: u64,
    pub value: &'a [u8],
}

impl<'a> Entry<'a> {
    pub fn leaf(key: &'a [u8], header: Header, value: &'a [u8]) -> Entry<'a> {
        Entry { prefix: &[], suffix: key, word: header.writer, undo: header.undo, value }
    }

    pub fn inner(separator: &'a [u8], child: PageNo) -> Entry<'a> {
        Entry { prefix: &[], suffix: separator, word: child, undo: 0, value: &[] }
    }

    pub fn key_len(&self) -> usize {
        self.prefix.len() + self.suffix.len()
    }

    pub fn key(&self) -> Vec<u8> {
        [self.prefix, self.suffix].concat()
    }

    /// The key without its first `n` bytes, in two parts.
    fn without(&self, n: usize) -> (&'a [u8], &'a [u8]) {
        match self.prefix.len().checked_sub(n) {
            Some(_) => (&self.prefix[n..], self.suffix),
            None => (&[], &self.suffix[n - self.prefix.len()..]),
        }
    }

    fn size(&self, level: u8, prefix_len: usize) -> usize {
        let suffix = self.key_len() - prefix_len;
        if level == 0 { leaf_size(suffix, self.value.len()) } else { inner_size(suffix) }
    }
}

/// All that a page holds, to be changed and built anew.
pub(crate) struct Contents<'a> {
    pub level: u8,
    pub tree_id: u32,
    pub lower: &'a [u8],
    pub upper: Option<&'a [u8]>,
    pub leftmost: PageNo,
    pub entries: Vec<Entry<'a>>,
}

impl<'a> Contents<'a> {
    pub fn of(page: &'a [u8]) -> Contents<'a> {
        let view = View(page);
        let prefix = view.prefix();
        let leaf = view.level() == 0;
        let entries = (0..view.count()).map(|i| Entry {
            prefix,
            suffix: view.suffix(i),
            word: if leaf { view.header(i).writer } else { view.child(i + 1) },
            undo: if leaf { view.header(i).undo } else { 0 },
            value: if leaf { view.value(i) } else { &[] },
        });
        Contents {
            level: view.level(),
            tree_id: view.tree_id(),
            lower: view.lower(),
            upper: view.upper(),
            leftmost: if leaf { 0 } else { view.child(0) },
            entries: entries.collect(),
        }
    }

    /// Length of the longest prefix that all keys share.
    fn shared_len(&self) -> usize {
        match (self.entries.first(), self.entries.last(), self.upper) {
            (Some(first), Some(last), _) if self.entries.len() >= 2 => {
                if first.prefix == last.prefix {
                    first.prefix.len() + common_prefix(first.suffix, last.suffix)
                } else {
                    common_prefix(&first.key(), &last.key())
                }
            }
            // The keys between two fences share what the fences share.
            (_, _, Some(upper)) => common_prefix(self.lower, upper),
            _ => 0,
        }
    }

    /// The prefix length that packs the page best. A prefix over 8 bytes is stored, and alignment
    /// can eat what it saves, so the present length and 8 are candidates too: a page never grows
    /// by being built anew, which is what [`fits`] counts on.
    fn prefix_len(&self) -> usize {
        let shared = self.shared_len();
        if shared <= 8 {
            return shared;
        }
        let present = self.entries.first().map_or(0, |e| e.prefix.len()).min(shared);
        [8, present, shared].into_iter().min_by_key(|len| (self.packed_with(*len), usize::MAX - len)).unwrap_or(shared)
    }

    fn fixed_bytes(&self, prefix_len: usize) -> usize {
        let prefix = if prefix_len > 8 { prefix_len } else { 0 };
        align8(prefix + self.lower.len() + self.upper.map_or(0, <[u8]>::len))
    }

    fn packed_with(&self, prefix_len: usize) -> usize {
        let entries: usize = self.entries.iter().map(|e| SLOT_BYTES + e.size(self.level, prefix_len)).sum();
        OFF_SLOTS + self.fixed_bytes(prefix_len) + entries
    }

    /// Bytes that a page with these contents uses.
    pub fn packed_bytes(&self) -> usize {
        self.packed_with(self.prefix_len())
    }

    /// True if one page holds these contents.
    pub fn fit(&self) -> bool {
        self.packed_bytes() <= PAGE_BYTES
    }

    /// Writes the page.
    pub fn build<P: BytesMut + ?Sized>(&self, page: &mut P) {
        let prefix_len = self.prefix_len();
        page.write_u8(OFF_TYPE, PAGE_TYPE_TREE);
        page.write_u8(OFF_LEVEL, self.level);
        page.write_u16(OFF_TREE_ID, self.tree_id as u16);
        page.write_u16(OFF_TREE_ID + 2, (self.tree_id >> 16) as u16);
        page.write_u16(OFF_COUNT, self.entries.len() as u16);
        page.write_u16(OFF_GARBAGE, 0);
        page.write_u16(OFF_PREFIX_LEN, prefix_len as u16);
        page.write_u16(OFF_LAST_SLOT, NO_SLOT);
        page.write_u16(OFF_RUN, 0);
        page.write_u64(OFF_LEFTMOST, self.leftmost);
        let mut at = self.build_fixed(page, prefix_len);
        for (i, entry) in self.entries.iter().enumerate() {
            at -= entry.size(self.level, prefix_len);
            self.build_entry(page, i, at, entry, prefix_len);
        }
        assert!(at >= OFF_SLOTS + SLOT_BYTES * self.entries.len(), "page contents over one page");
        page.write_u16(OFF_HEAP, at as u16);
    }

    /// Prefix and fences, at the page's end. Returns where they start.
    fn build_fixed<P: BytesMut + ?Sized>(&self, page: &mut P, prefix_len: usize) -> usize {
        let start = PAGE_BYTES - self.fixed_bytes(prefix_len);
        let first_key = self.entries.first().map_or_else(|| self.lower.to_vec(), Entry::key);
        let prefix = &first_key[..prefix_len];
        let mut inline = [0; 8];
        let n = prefix_len.min(8);
        inline[..n].copy_from_slice(&prefix[..n]);
        page.write_bytes(OFF_PREFIX_WORD, &inline);
        let mut at = start;
        if prefix_len > 8 {
            page.write_u16(OFF_PREFIX, at as u16);
            page.write_bytes(at, prefix);
            at += prefix_len;
        }
        let upper = self.upper.unwrap_or(&[]);
        for (off_at, len_at, fence) in [(OFF_LOWER, OFF_LOWER_LEN, self.lower), (OFF_UPPER, OFF_UPPER_LEN, upper)] {
            page.write_u16(off_at, at as u16);
            page.write_u16(len_at, fence.len() as u16);
            page.write_bytes(at, fence);
            at += fence.len();
        }
        if self.upper.is_none() {
            page.write_u16(OFF_UPPER_LEN, NO_UPPER);
        }
        start
    }

    fn build_entry<P: BytesMut + ?Sized>(
        &self,
        page: &mut P,
        i: usize,
        at: usize,
        entry: &Entry<'_>,
        prefix_len: usize,
    ) {
        let (front, back) = entry.without(prefix_len);
        let len = front.len() + back.len();
        let fixed = if self.level == 0 { LEAF_FIXED } else { INNER_FIXED };
        page.write_u64(at, entry.word);
        if self.level == 0 {
            page.write_u64(at + 8, entry.undo);
            page.write_u16(at + 16, entry.value.len() as u16);
            page.write_bytes(at + value_at(len), entry.value);
        }
        page.write_bytes(at + fixed, front);
        page.write_bytes(at + fixed + front.len(), back);
        let mut head = [0; 4];
        for (to, from) in head.iter_mut().zip(front.iter().chain(back)) {
            *to = *from;
        }
        let slot = Slot::new(at, len, u32::from_be_bytes(head));
        page.write_u64(OFF_SLOTS + SLOT_BYTES * i, slot.0);
    }

    /// Encodes the operation that gives `page_no` these contents.
    pub fn encode_format(&self, page_no: PageNo, out: &mut Vec<u8>) {
        let mut page = vec![0; PAGE_BYTES];
        self.build(page.as_mut_slice());
        encode_image(&page, page_no, out);
    }
}

/// Encodes the operation that makes `page_no` equal to the page image `page`: header, slots and
/// entries without the free space between them.
pub(crate) fn encode_image(page: &[u8], page_no: PageNo, out: &mut Vec<u8>) {
    let view = View(page);
    Writer::begin(out, page_no, OpCode::Format)
        .u8(view.level())
        .u32(view.tree_id())
        .bytes(&page[OFF_COUNT..OFF_SLOTS + SLOT_BYTES * view.count()])
        .bytes(&page[view.heap_start()..])
        .end();
}

/// Copies a page's bytes into private memory.
pub(crate) fn snapshot<P: Bytes + ?Sized>(page: &P) -> Vec<u8> {
    let mut copy = vec![0; PAGE_BYTES];
    page.copy_to(0, &mut copy);
    copy
}

/// Builds the page anew with these contents.
fn store<P: BytesMut + ?Sized>(page: &mut P, contents: &Contents<'_>) -> Result<(), TreeError> {
    if !contents.fit() {
        return Err(TreeError::BadOp("contents over one page"));
    }
    contents.build(page);
    Ok(())
}

/// True if an entry with this key and value length can be inserted into the page.
pub(crate) fn fits(page: &[u8], key: &[u8], value_len: usize) -> bool {
    let view = View(page);
    let prefix = view.prefix();
    let shared = common_prefix(prefix, key);
    if shared == prefix.len() {
        let need = SLOT_BYTES + leaf_size(key.len() - shared, value_len);
        return need <= view.contiguous_free() + view.garbage();
    }
    let mut contents = Contents::of(page);
    let slot = if key < prefix { 0 } else { contents.entries.len() };
    let value = vec![0; value_len];
    contents.entries.insert(slot, Entry::leaf(key, Header::default(), &value));
    contents.fit()
}

/// True if an inner page takes one more separator.
pub(crate) fn fits_separator(page: &[u8], separator: &[u8]) -> bool {
    let mut contents = Contents::of(page);
    let slot = View(page).child_index(separator);
    contents.entries.insert(slot, Entry::inner(separator, 0));
    contents.fit()
}

/// Applies an operation to its page; all of it or nothing. Deterministic: from equal pages it
/// makes equal pages (up to the bytes between slots and entries, which hold nothing).
pub(crate) fn apply<P: BytesMut + ?Sized>(page: &mut P, op: &[u8]) -> Result<(), TreeError> {
    let op = Op::decode(op)?;
    if !op.is_format() && View(&*page).page_type() != PAGE_TYPE_TREE {
        return Err(TreeError::BadOp("not a tree page"));
    }
    let body = op.body();
    match op.code {
        OpCode::Insert => insert(page, body),
        OpCode::SetHeader => set_header(page, body),
        OpCode::Update => update(page, body),
        OpCode::Remove => remove(page, body),
        OpCode::Format => format(page, body),
        OpCode::Truncate => truncate(page, body),
        OpCode::InsertChild => insert_child(page, body),
        OpCode::RemoveChild => remove_child(page, body),
        OpCode::Prune => prune(page, body),
        OpCode::SetFence => set_fence(page, body),
        OpCode::Move => move_entry(page, body),
        OpCode::Free => {
            page.write_u8(OFF_TYPE, 0);
            Ok(())
        }
    }
}

fn check_slot<P: Bytes + ?Sized>(page: &P, slot: usize, leaf: bool) -> Result<(), TreeError> {
    let view = View(page);
    if slot >= view.count() || (view.level() == 0) != leaf {
        return Err(TreeError::BadOp("no such slot"));
    }
    Ok(())
}

fn insert<P: BytesMut + ?Sized>(page: &mut P, mut body: Reader<'_>) -> Result<(), TreeError> {
    let (slot, shared, header, len) = (body.u16()?, body.u16()?, body.header()?, body.u16()?);
    let entry = Entry::leaf(body.bytes(len)?, header, body.rest());
    insert_entry(page, slot, shared, entry, 0)
}

fn insert_child<P: BytesMut + ?Sized>(page: &mut P, mut body: Reader<'_>) -> Result<(), TreeError> {
    let (slot, shared, child) = (body.u16()?, body.u16()?, body.u64()?);
    let level = View(&*page).level();
    if level == 0 {
        return Err(TreeError::BadOp("child for a leaf"));
    }
    insert_entry(page, slot, shared, Entry::inner(body.rest(), child), level)
}

/// Inserts an entry whose key is the first `shared` bytes of the page's prefix and then its own.
fn insert_entry<P: BytesMut + ?Sized>(
    page: &mut P,
    slot: usize,
    shared: usize,
    entry: Entry<'_>,
    level: u8,
) -> Result<(), TreeError> {
    let view = View(&*page);
    let (count, prefix_len) = (view.count(), view.prefix_len());
    if slot > count || shared > prefix_len || view.level() != level {
        return Err(TreeError::BadOp("no such place"));
    }
    let (last, run) = (view.0.u16(OFF_LAST_SLOT), view.0.u16(OFF_RUN));
    let size = entry.size(level, 0);
    if shared == prefix_len && SLOT_BYTES + size <= view.contiguous_free() {
        let at = view.heap_start() - size;
        open_slot(page, slot, count);
        write_entry(page, slot, at, &entry, level);
        page.write_u16(OFF_COUNT, (count + 1) as u16);
        page.write_u16(OFF_HEAP, at as u16);
        if PREFIX_COUNTS.contains(&(count + 1)) {
            lengthen_prefix(page)?;
        }
    } else {
        let old = snapshot(page);
        let mut contents = Contents::of(&old);
        let prefix = View(old.as_slice()).prefix();
        contents.entries.insert(slot, Entry { prefix: &prefix[..shared], ..entry });
        store(page, &contents)?;
    }
    let run = if usize::from(last) + 1 == slot && last != NO_SLOT { run.saturating_add(1) } else { 0 };
    page.write_u16(OFF_LAST_SLOT, slot as u16);
    page.write_u16(OFF_RUN, run);
    Ok(())
}

fn open_slot<P: BytesMut + ?Sized>(page: &mut P, slot: usize, count: usize) {
    let from = OFF_SLOTS + SLOT_BYTES * slot;
    page.move_within(from, from + SLOT_BYTES, SLOT_BYTES * (count - slot));
}

fn close_slot<P: BytesMut + ?Sized>(page: &mut P, slot: usize, count: usize) {
    let to = OFF_SLOTS + SLOT_BYTES * slot;
    page.move_within(to + SLOT_BYTES, to, SLOT_BYTES * (count - slot - 1));
    page.write_u16(OFF_COUNT, (count - 1) as u16);
    page.write_u16(OFF_LAST_SLOT, NO_SLOT);
}

/// Writes an entry without a prefix of its own, and its slot.
fn write_entry<P: BytesMut + ?Sized>(page: &mut P, slot: usize, at: usize, entry: &Entry<'_>, level: u8) {
    let len = entry.suffix.len();
    page.write_u64(at, entry.word);
    if level == 0 {
        page.write_u64(at + 8, entry.undo);
        page.write_u16(at + 16, entry.value.len() as u16);
        page.write_bytes(at + LEAF_FIXED, entry.suffix);
        page.write_bytes(at + value_at(len), entry.value);
    } else {
        page.write_bytes(at + INNER_FIXED, entry.suffix);
    }
    page.write_u64(OFF_SLOTS + SLOT_BYTES * slot, Slot::new(at, len, head_of(entry.suffix)).0);
}

/// Builds the page anew if its keys share more than its prefix says.
fn lengthen_prefix<P: BytesMut + ?Sized>(page: &mut P) -> Result<(), TreeError> {
    let view = View(&*page);
    if view.slot(0).head() >> 24 != view.slot(view.count() - 1).head() >> 24 {
        return Ok(());
    }
    let old = snapshot(page);
    store(page, &Contents::of(&old))
}

/// Both parts or none: the insertion, which may fail, comes first.
fn move_entry<P: BytesMut + ?Sized>(page: &mut P, mut body: Reader<'_>) -> Result<(), TreeError> {
    let (from, header) = (body.u16()?, body.header()?);
    check_slot(page, from, true)?;
    let inserted = Reader(body.0).u16()?;
    insert(page, body)?;
    write_header(page, if inserted <= from { from + 1 } else { from }, header);
    Ok(())
}

fn set_header<P: BytesMut + ?Sized>(page: &mut P, mut body: Reader<'_>) -> Result<(), TreeError> {
    let (slot, header) = (body.u16()?, body.header()?);
    check_slot(page, slot, true)?;
    write_header(page, slot, header);
    Ok(())
}

fn write_header<P: BytesMut + ?Sized>(page: &mut P, slot: usize, header: Header) {
    let at = View(&*page).slot(slot).off();
    page.write_u64(at, header.writer);
    page.write_u64(at + 8, header.undo);
}

/// Replaces a part of a value: in place if the entry doesn't grow, else by a new entry.
fn update<P: BytesMut + ?Sized>(page: &mut P, mut body: Reader<'_>) -> Result<(), TreeError> {
    let (slot, header, from, removed) = (body.u16()?, body.header()?, body.u16()?, body.u16()?);
    let inserted = body.rest();
    check_slot(page, slot, true)?;
    let view = View(&*page);
    let (value_off, len) = view.value_range(slot);
    if from + removed > len {
        return Err(TreeError::BadOp("change outside the value"));
    }
    let suffix_len = view.slot(slot).suffix_len();
    let new_len = len - removed + inserted.len();
    let (old_size, new_size) = (leaf_size(suffix_len, len), leaf_size(suffix_len, new_len));
    if new_size > old_size {
        return replace(page, slot, header, from, removed, inserted);
    }
    let garbage = view.garbage() + old_size - new_size;
    write_header(page, slot, header);
    let at = value_off + from;
    if removed != inserted.len() {
        page.move_within(at + removed, at + inserted.len(), len - from - removed);
        page.write_u16(value_off - value_at(suffix_len) + 16, new_len as u16);
        page.write_u16(OFF_GARBAGE, garbage as u16);
    }
    page.write_bytes(at, inserted);
    Ok(())
}

/// Puts a grown entry into another place of the page.
fn replace<P: BytesMut + ?Sized>(
    page: &mut P,
    slot: usize,
    header: Header,
    from: usize,
    removed: usize,
    inserted: &[u8],
) -> Result<(), TreeError> {
    let old = snapshot(page);
    let view = View(old.as_slice());
    let old_value = view.value(slot);
    let value = [&old_value[..from], inserted, &old_value[from + removed..]].concat();
    let entry = Entry::leaf(view.suffix(slot), header, &value);
    let size = entry.size(0, 0);
    if size <= view.contiguous_free() {
        let at = view.heap_start() - size;
        write_entry(page, slot, at, &entry, 0);
        page.write_u16(OFF_HEAP, at as u16);
        page.write_u16(OFF_GARBAGE, (view.garbage() + view.size_of(slot)) as u16);
        return Ok(());
    }
    let mut contents = Contents::of(&old);
    contents.entries[slot] = Entry { prefix: view.prefix(), ..entry };
    let (last, run) = (view.0.u16(OFF_LAST_SLOT), view.0.u16(OFF_RUN));
    store(page, &contents)?;
    page.write_u16(OFF_LAST_SLOT, last);
    page.write_u16(OFF_RUN, run);
    Ok(())
}

fn remove<P: BytesMut + ?Sized>(page: &mut P, mut body: Reader<'_>) -> Result<(), TreeError> {
    let mut slots = body;
    let mut above = View(&*page).count();
    while !slots.0.is_empty() {
        let slot = slots.u16()?;
        if slot >= above || View(&*page).level() != 0 {
            return Err(TreeError::BadOp("no such slot"));
        }
        above = slot;
    }
    while !body.0.is_empty() {
        let slot = body.u16()?;
        let (_, value_len) = View(&*page).value_range(slot);
        let size = leaf_size(View(&*page).slot(slot).suffix_len(), value_len);
        release(page, slot, size);
    }
    Ok(())
}

/// Takes slot and entry out; the space is garbage, or free at once if it is the lowest.
fn release<P: BytesMut + ?Sized>(page: &mut P, slot: usize, size: usize) {
    let view = View(&*page);
    let (at, heap, garbage, count) = (view.slot(slot).off(), view.heap_start(), view.garbage(), view.count());
    if at == heap {
        page.write_u16(OFF_HEAP, (heap + size) as u16);
    } else {
        page.write_u16(OFF_GARBAGE, (garbage + size) as u16);
    }
    close_slot(page, slot, count);
}

fn format<P: BytesMut + ?Sized>(page: &mut P, mut body: Reader<'_>) -> Result<(), TreeError> {
    let (level, tree_id) = (body.u8()?, body.u32()?);
    let mut sizes = body;
    let (count, heap) = (sizes.u16()?, sizes.u16()?);
    let front = body.bytes(OFF_SLOTS - OFF_COUNT + SLOT_BYTES * count)?;
    let back = body.rest();
    if OFF_COUNT + front.len() > heap || heap + back.len() != PAGE_BYTES {
        return Err(TreeError::BadOp("page image of the wrong size"));
    }
    page.write_u8(OFF_TYPE, PAGE_TYPE_TREE);
    page.write_u8(OFF_LEVEL, level);
    page.write_u16(OFF_TREE_ID, tree_id as u16);
    page.write_u16(OFF_TREE_ID + 2, (tree_id >> 16) as u16);
    page.write_bytes(OFF_COUNT, front);
    page.write_bytes(heap, back);
    Ok(())
}

fn truncate<P: BytesMut + ?Sized>(page: &mut P, mut body: Reader<'_>) -> Result<(), TreeError> {
    let keep = body.u16()?;
    let old = snapshot(page);
    let mut contents = Contents::of(&old);
    if keep > contents.entries.len() {
        return Err(TreeError::BadOp("no such slot"));
    }
    contents.entries.truncate(keep);
    contents.upper = Some(body.rest());
    store(page, &contents)
}

fn remove_child<P: BytesMut + ?Sized>(page: &mut P, mut body: Reader<'_>) -> Result<(), TreeError> {
    let (slot, keep_right) = (body.u16()?, body.u8()? != 0);
    check_slot(page, slot, false)?;
    if keep_right {
        let child = View(&*page).child(slot + 1);
        let at = match slot.checked_sub(1) {
            None => OFF_LEFTMOST,
            Some(left) => View(&*page).slot(left).off(),
        };
        page.write_u64(at, child);
    }
    let size = inner_size(View(&*page).slot(slot).suffix_len());
    release(page, slot, size);
    Ok(())
}

fn prune<P: BytesMut + ?Sized>(page: &mut P, mut body: Reader<'_>) -> Result<(), TreeError> {
    let old = snapshot(page);
    let mut contents = Contents::of(&old);
    let mut dead = Vec::with_capacity(body.0.len() / 2);
    while !body.0.is_empty() {
        let slot = body.u16()?;
        check_slot(page, slot, true)?;
        dead.push(slot);
    }
    let mut i = 0;
    contents.entries.retain(|_| {
        i += 1;
        dead.binary_search(&(i - 1)).is_err()
    });
    store(page, &contents)
}

/// Which fence an operation sets.
pub(crate) const FENCE_LOWER: u8 = 0;
pub(crate) const FENCE_UPPER: u8 = 1;
pub(crate) const FENCE_NO_UPPER: u8 = 2;

fn set_fence<P: BytesMut + ?Sized>(page: &mut P, mut body: Reader<'_>) -> Result<(), TreeError> {
    let which = body.u8()?;
    let old = snapshot(page);
    let mut contents = Contents::of(&old);
    match which {
        FENCE_LOWER => contents.lower = body.rest(),
        FENCE_UPPER => contents.upper = Some(body.rest()),
        FENCE_NO_UPPER => contents.upper = None,
        _ => return Err(TreeError::BadOp("unknown fence")),
    }
    store(page, &contents)
}
