//! What can be done with a latched leaf? Find, look, plan an operation, apply it.

use homenode_pool::{Exclusive, PageNo};

use crate::TreeError;
use crate::edit::{apply, fits};
use crate::layout::{Header, MAX_ENTRY_BYTES, MAX_KEY_BYTES, View, entry_bytes, leaf_size};
use crate::op::{Diff, OpCode, Writer, common_prefix};

/// A leaf under its exclusive latch, which is released on drop.
///
/// To change it: check that the change fits; have it planned; [`mark_dirty`](Self::mark_dirty);
/// append the log record; [`apply`](Self::apply). Between planning and applying nothing else may be
/// applied.
pub struct LeafMut<'t> {
    page: Exclusive<'t>,
}

impl<'t> LeafMut<'t> {
    pub(crate) fn new(page: Exclusive<'t>) -> LeafMut<'t> {
        LeafMut { page }
    }

    #[inline]
    fn view(&self) -> View<'_, [u8]> {
        View(self.page.bytes())
    }

    /// The leaf's page.
    pub fn page_no(&self) -> PageNo {
        self.page.page_no()
    }

    /// Whether the caller had to wait for the leaf, as many others had lately: see [`Tree::relieve`](crate::Tree::relieve).
    #[inline]
    pub fn waited_with_many(&self) -> bool {
        self.page.waited_with_many()
    }

    /// LSN behind the last record that changed the page.
    pub fn lsn(&self) -> u64 {
        self.page.page().lsn()
    }

    /// Number of entries.
    pub fn count(&self) -> usize {
        self.view().count()
    }

    /// The slot that holds `key`, or the slot before which it belongs.
    #[inline]
    pub fn find(&self, key: &[u8]) -> Result<usize, usize> {
        self.view().find(key)
    }

    /// Whole key of an entry into `out` (cleared first).
    pub fn key(&self, slot: usize, out: &mut Vec<u8>) {
        self.view().key_into(slot, out);
    }

    /// Header of an entry.
    #[inline]
    pub fn header(&self, slot: usize) -> Header {
        self.view().header(slot)
    }

    /// Value of an entry.
    #[inline]
    pub fn value(&self, slot: usize) -> &[u8] {
        self.view().value(slot)
    }

    /// True if an entry with this key and value length can be inserted.
    #[inline]
    pub fn fits(&self, key: &[u8], value_len: usize) -> bool {
        fits(self.page.bytes(), key, value_len)
    }

    /// True if the entry at `slot` can get a value of this length.
    pub fn fits_update(&self, slot: usize, value_len: usize) -> bool {
        let view = self.view();
        let suffix_len = view.slot(slot).suffix_len();
        let (old, new) = (leaf_size(suffix_len, view.value(slot).len()), leaf_size(suffix_len, value_len));
        new <= old + view.contiguous_free() + view.garbage()
    }

    /// Plans a new entry at `slot`, which [`find`](Self::find) returned for `key`; the operation is
    /// appended to `op`.
    pub fn plan_insert(&self, slot: usize, key: &[u8], header: Header, value: &[u8], op: &mut Vec<u8>) {
        let shared = common_prefix(self.view().prefix(), key);
        Writer::begin(op, self.page_no(), OpCode::Insert)
            .u16(slot)
            .u16(shared)
            .header(header)
            .u16(key.len() - shared)
            .bytes(&key[shared..])
            .bytes(value)
            .end();
    }

    /// Whether the leaf is where `key` is or would be.
    pub fn covers(&self, key: &[u8]) -> bool {
        let view = self.view();
        view.lower() <= key && view.upper().is_none_or(|upper| key < upper)
    }

    /// Plans both in one operation: another header for the entry at `from`, and a new entry at `slot`, as for
    /// [`plan_insert`](Self::plan_insert).
    pub fn plan_move(&self, from: (usize, Header), slot: usize, key: &[u8], new: (Header, &[u8]), op: &mut Vec<u8>) {
        let shared = common_prefix(self.view().prefix(), key);
        Writer::begin(op, self.page_no(), OpCode::Move)
            .u16(from.0)
            .header(from.1)
            .u16(slot)
            .u16(shared)
            .header(new.0)
            .u16(key.len() - shared)
            .bytes(&key[shared..])
            .bytes(new.1)
            .end();
    }

    /// Plans another header for an entry; the value stays.
    pub fn plan_set_header(&self, slot: usize, header: Header, op: &mut Vec<u8>) {
        Writer::begin(op, self.page_no(), OpCode::SetHeader).u16(slot).header(header).end();
    }

    /// Plans another header and value for an entry. Only the bytes that differ go into the
    /// operation.
    pub fn plan_update(&self, slot: usize, header: Header, value: &[u8], op: &mut Vec<u8>) {
        self.plan_update_by(slot, header, Diff::between(self.value(slot), value), value, op);
    }

    /// As [`plan_update`](Self::plan_update), for a caller that has the difference already
    /// (for its undo record, say).
    pub fn plan_update_by(&self, slot: usize, header: Header, diff: Diff, value: &[u8], op: &mut Vec<u8>) {
        Writer::begin(op, self.page_no(), OpCode::Update)
            .u16(slot)
            .header(header)
            .u16(diff.offset)
            .u16(diff.old_len)
            .bytes(diff.after(value))
            .end();
    }

    /// Plans the removal of an entry.
    pub fn plan_remove(&self, slot: usize, op: &mut Vec<u8>) {
        self.plan_remove_all(&[slot], op);
    }

    /// Plans the removal of entries; their slots are descending, so that no removal moves one that is still to come.
    pub fn plan_remove_all(&self, slots: &[usize], op: &mut Vec<u8>) {
        let writer = Writer::begin(op, self.page_no(), OpCode::Remove);
        slots.iter().fold(writer, |writer, slot| writer.u16(*slot)).end();
    }

    /// Notes that the page is about to change. Comes before the log record is appended.
    #[inline]
    pub fn mark_dirty(&mut self) {
        self.page.mark_dirty();
    }

    /// Applies a planned operation and stamps the page with the LSN behind its record.
    ///
    /// # Panics
    /// If the operation was not planned on this leaf as it is now: the log and the page would
    /// differ, and going on would spoil the database.
    #[inline]
    pub fn apply(&mut self, op: &[u8], lsn: u64) {
        let mut page = self.page.page_mut();
        if let Err(error) = apply(&mut page, op) {
            panic!("page operation applied to another page than it was planned for: {error}");
        }
        page.set_lsn(lsn);
    }
}

/// Checks that an entry can be stored at all.
pub(crate) fn check_entry(key_len: usize, value_len: usize) -> Result<(), TreeError> {
    if key_len > MAX_KEY_BYTES {
        return Err(TreeError::EntryTooLarge { bytes: key_len, max: MAX_KEY_BYTES });
    }
    let bytes = entry_bytes(key_len, value_len);
    if bytes > MAX_ENTRY_BYTES {
        return Err(TreeError::EntryTooLarge { bytes, max: MAX_ENTRY_BYTES });
    }
    Ok(())
}
