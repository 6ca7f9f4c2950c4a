//! Where are the older versions of a row? Undo records, appended per lane to pages of the pool that are never logged.
//!
//! A record says how to get from a row's version back to the one before it. It serves readers with older snapshots and
//! rollback; after a crash nobody reads it (recovery takes back losers by the log). Because the pages belong to the pool, old versions
//! leave memory like any page when they are many, and the process stays within its bounds under a long reader.
//!
//! A lane appends to its pages in order and gives back whole pages in the same order, once every snapshot sees past the
//! transactions that wrote to them.

use crate::error::{Error, Result, Storage};
use homenode_platform::sync::Mutex;
use homenode_pool::{NO_PAGE, PAGE_BYTES, PageNo, Pool};
use homenode_txn::TxnId;
use std::collections::VecDeque;

/// Undo pages start after the page header that all pages share.
const FIRST_OFFSET: usize = 32;
/// `page_type` of an undo page, for whoever looks at the file.
const PAGE_TYPE_UNDO: u8 = 0x55;
/// Byte offset of `page_type` in the page header.
const PAGE_TYPE_OFFSET: usize = 4;
/// Where in an encoded record the address of the transaction's record before it stands.
const PREVIOUS_OFFSET: usize = 10;
/// A record has at most this many bytes beyond key and old value.
const RECORD_OVERHEAD: usize = 64;

/// Address of an undo record: byte offset in the page file; zero is none.
pub type UndoPointer = u64;

/// What a change did, as far as undoing it differs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum UndoKind {
    /// The key had no entry before.
    Insert = 1,
    /// The entry had another value or header.
    Update = 2,
    /// The entry was live and became a tombstone; its value stayed.
    Delete = 3,
}

/// One undo record, borrowed from the bytes that it was read into.
#[derive(Clone, Copy, Debug)]
pub struct UndoRecord<'a> {
    /// Who made the change.
    pub txn: TxnId,
    /// The record that the same transaction wrote before this one.
    pub previous_in_txn: UndoPointer,
    /// Header of the version before: writer (with its tombstone bit) and undo pointer.
    pub old_writer: u64,
    /// See `old_writer`.
    pub old_undo: UndoPointer,
    /// What was done.
    pub kind: UndoKind,
    /// Root page and number of the tree.
    pub root: PageNo,
    /// See `root`.
    pub tree_id: u32,
    /// The entry's key.
    pub key: &'a [u8],
    /// Where the value differs: at this offset...
    pub diff_offset: u16,
    /// ...this many bytes of the newer value...
    pub diff_new_len: u16,
    /// ...stand for these of the older one.
    pub old_bytes: &'a [u8],
}

impl<'a> UndoRecord<'a> {
    /// Bytes of the encoded record, a multiple of eight.
    pub fn encoded_len(&self) -> usize {
        (2 + 8 * 4 + 8 + 4 + 1 + 2 * 4 + self.key.len() + self.old_bytes.len()).next_multiple_of(8)
    }

    /// Appends the record's bytes to `out`. The same form is the tail of a log record, where recovery finds it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&(self.encoded_len() as u16).to_le_bytes());
        for word in [self.txn.writer(), self.previous_in_txn, self.old_writer, self.old_undo, self.root] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&self.tree_id.to_le_bytes());
        out.push(self.kind as u8);
        for short in [self.key.len() as u16, self.diff_offset, self.diff_new_len, self.old_bytes.len() as u16] {
            out.extend_from_slice(&short.to_le_bytes());
        }
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.old_bytes);
        out.resize(start + self.encoded_len(), 0);
    }

    /// Reads a record; None when the bytes aren't one (they may be of a page that was used again).
    pub fn decode(bytes: &'a [u8]) -> Option<UndoRecord<'a>> {
        let word = |at: usize| bytes.get(at..at + 8).map(|b| u64::from_le_bytes(b.try_into().expect("eight bytes")));
        let short = |at: usize| bytes.get(at..at + 2).map(|b| u16::from_le_bytes([b[0], b[1]]));
        let key_len = short(47)? as usize;
        let old_len = short(53)? as usize;
        let kind = match *bytes.get(46)? {
            1 => UndoKind::Insert,
            2 => UndoKind::Update,
            3 => UndoKind::Delete,
            _ => return None,
        };
        Some(UndoRecord {
            txn: TxnId::from_writer(word(2)?),
            previous_in_txn: word(10)?,
            old_writer: word(18)?,
            old_undo: word(26)?,
            root: word(34)?,
            tree_id: u32::from_le_bytes(bytes.get(42..46)?.try_into().ok()?),
            kind,
            diff_offset: short(49)?,
            diff_new_len: short(51)?,
            key: bytes.get(55..55 + key_len)?,
            old_bytes: bytes.get(55 + key_len..55 + key_len + old_len)?,
        })
    }

    /// Reads records that stand one behind the other, as at the end of a log record; None when the bytes aren't such.
    pub fn decode_all(mut bytes: &'a [u8]) -> Option<Vec<UndoRecord<'a>>> {
        let mut records = Vec::with_capacity(1);
        while !bytes.is_empty() {
            let len = u16::from_le_bytes(*bytes.first_chunk()?) as usize;
            records.push(UndoRecord::decode(bytes.get(..len)?)?);
            bytes = &bytes[len..];
        }
        Some(records)
    }

    /// Turns the newer value in `value` into the older one; false when the record doesn't fit it.
    pub fn apply(&self, value: &mut Vec<u8>) -> bool {
        let start = self.diff_offset as usize;
        let end = start + self.diff_new_len as usize;
        if end > value.len() {
            return false;
        }
        value.splice(start..end, self.old_bytes.iter().copied());
        true
    }
}

/// One lane's undo pages.
pub struct UndoLog {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Pages in the order in which they were filled; the last one is being filled.
    pages: VecDeque<UndoPage>,
    /// Offset of the next record in the last page.
    next: usize,
    /// Pages that were given back and will be used again first.
    spare: Vec<PageNo>,
    /// Pages that every snapshot sees past, with deletions that are still to be taken out of their trees.
    deleting: Vec<UndoPage>,
}

impl Inner {
    /// Keeps a page to be used again; gives it back when there are enough of them.
    fn put_aside(&mut self, page: PageNo) -> Option<PageNo> {
        if self.spare.len() >= SPARE_PAGES {
            return Some(page);
        }
        self.spare.push(page);
        None
    }

    fn begin_page(&mut self, page: PageNo) {
        self.pages.push_back(UndoPage { page, last_seq: 0, deletes: false, end: FIRST_OFFSET });
        self.next = FIRST_OFFSET;
    }
}

/// One page of a lane's undo log.
pub struct UndoPage {
    page: PageNo,
    /// The highest transaction number of the lane that wrote to it.
    last_seq: u64,
    /// Whether a deletion is among its records: someone has to take the tombstones away.
    deletes: bool,
    end: usize,
}

impl UndoPage {
    /// Shows `see` the deletions on the page.
    pub fn deletions(&self, pool: &Pool, mut see: impl FnMut(&UndoRecord<'_>)) -> Result<()> {
        let bytes = pool.shared(self.page).sql()?.bytes().to_vec();
        let mut at = FIRST_OFFSET;
        while at < self.end {
            let len = u16::from_le_bytes([bytes[at], bytes[at + 1]]) as usize;
            let record = UndoRecord::decode(&bytes[at..]).ok_or(Error::internal("a damaged undo record"))?;
            if record.kind == UndoKind::Delete {
                see(&record);
            }
            at += len.max(8);
        }
        Ok(())
    }
}

/// Spare pages that a lane keeps for itself; more go back to the pool.
const SPARE_PAGES: usize = 64;

impl UndoLog {
    /// A lane's log, empty.
    pub fn new() -> UndoLog {
        UndoLog { inner: Mutex::new(Inner::default()) }
    }

    /// Appends a record (by transaction number `seq` of this lane), whose encoded bytes are in `bytes`; or two of one change, the
    /// other one at `second`: that the first is the one before it is written into it here. Gives the address of the first. None,
    /// with nothing done, when there is no room.
    ///
    /// Called while the leaf is latched: an undo page is the last thing in the order of latches. The page to write to was
    /// made ready by [`UndoLog::ensure_room`].
    pub fn append(
        &self,
        pool: &Pool,
        seq: u64,
        deletes: bool,
        bytes: &mut [u8],
        second: Option<usize>,
    ) -> Result<Option<UndoPointer>> {
        let mut inner = self.inner.lock();
        let at = inner.next;
        let Some(last) = inner.pages.back_mut() else { return Ok(None) };
        if at + bytes.len() > PAGE_BYTES {
            return Ok(None);
        }
        let pointer = last.page * PAGE_BYTES as u64 + at as u64;
        if let Some(second) = second {
            bytes[second + PREVIOUS_OFFSET..][..8].copy_from_slice(&pointer.to_le_bytes());
        }
        let mut page = pool.exclusive(last.page).sql()?;
        page.mark_dirty();
        page.page_mut().write_bytes(at, bytes);
        drop(page);
        last.last_seq = last.last_seq.max(seq);
        last.deletes |= deletes;
        last.end = at + bytes.len();
        inner.next = at + bytes.len();
        Ok(Some(pointer))
    }

    /// Sees to it that a record of `payload` bytes of key and old value finds room. May wait for a page, so the caller holds
    /// no latch.
    pub fn ensure_room(&self, pool: &Pool, lane: usize, payload: usize) -> Result<()> {
        if payload + RECORD_OVERHEAD + FIRST_OFFSET > PAGE_BYTES {
            return Err(Error::internal("an undo record larger than a page"));
        }
        let lacks_room = |inner: &Inner| inner.pages.is_empty() || inner.next + payload + RECORD_OVERHEAD > PAGE_BYTES;
        {
            let mut inner = self.inner.lock();
            if !lacks_room(&inner) {
                return Ok(());
            }
            if let Some(page) = inner.spare.pop() {
                inner.begin_page(page);
                return Ok(());
            }
        }
        // Allocating may wait for a frame: not while the lane's mutex is held.
        let mut page = pool.allocate_unlogged(lane).sql()?;
        page.page_mut().write_u8(PAGE_TYPE_OFFSET, PAGE_TYPE_UNDO);
        let page_no = page.page_no();
        assert_ne!(page_no, NO_PAGE);
        drop(page);
        let mut inner = self.inner.lock();
        if lacks_room(&inner) {
            inner.begin_page(page_no);
        } else {
            inner.spare.push(page_no);
        }
        Ok(())
    }

    /// Gives back pages whose transactions all lie below `floor`; those with deletions are kept for [`UndoLog::take_deleting`]
    /// to find. Returns how many are kept.
    pub fn recycle(&self, pool: &Pool, floor: u64) -> usize {
        let mut inner = self.inner.lock();
        // The last page is still being written to.
        while inner.pages.len() > 1 && inner.pages.front().is_some_and(|page| page.last_seq < floor) {
            let Some(page) = inner.pages.pop_front() else { break };
            if page.deletes {
                inner.deleting.push(page);
            } else if let Some(page) = inner.put_aside(page.page) {
                drop(inner);
                pool.free(page);
                inner = self.inner.lock();
            }
        }
        inner.deleting.len()
    }

    /// The pages kept by [`UndoLog::recycle`], to be handed to [`UndoLog::give_back`] once their deletions are taken care of.
    pub fn take_deleting(&self) -> Vec<UndoPage> {
        std::mem::take(&mut self.inner.lock().deleting)
    }

    /// Gives back a page whose deletions have been taken care of.
    pub fn give_back(&self, pool: &Pool, page: UndoPage) {
        if let Some(page) = { self.inner.lock().put_aside(page.page) } {
            pool.free(page);
        }
    }

    /// Undo pages in use.
    pub fn pages(&self) -> usize {
        self.inner.lock().pages.len()
    }
}

/// Reads the undo record at `pointer` into `buffer`.
pub fn read<'a>(pool: &Pool, pointer: UndoPointer, buffer: &'a mut Vec<u8>) -> Result<Option<UndoRecord<'a>>> {
    let page_no = pointer / PAGE_BYTES as u64;
    let at = (pointer % PAGE_BYTES as u64) as usize;
    loop {
        let page = pool.optimistic(page_no).sql()?;
        let len = (page.page().u16(at) as usize).min(PAGE_BYTES - at);
        buffer.clear();
        buffer.resize(len, 0);
        page.page().copy_to(at, buffer);
        if page.validate() {
            break;
        }
    }
    Ok(UndoRecord::decode(buffer))
}

#[cfg(all(test, not(homenode_lab)))]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_as_it_was_written() {
        let record = UndoRecord {
            txn: TxnId::new(3, 77),
            previous_in_txn: 5,
            old_writer: TxnId::new(1, 2).tombstone(),
            old_undo: 9,
            kind: UndoKind::Update,
            root: 12,
            tree_id: 16384,
            key: b"key",
            diff_offset: 2,
            diff_new_len: 1,
            old_bytes: b"xyz",
        };
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        assert_eq!(bytes.len() % 8, 0);
        let back = UndoRecord::decode(&bytes).unwrap();
        assert_eq!(format!("{back:?}"), format!("{record:?}"));
        let twice = [&bytes[..], &bytes[..]].concat();
        let all = UndoRecord::decode_all(&twice).unwrap();
        assert_eq!(all.iter().map(|record| record.key).collect::<Vec<_>>(), [b"key", b"key"]);
        assert!(UndoRecord::decode_all(&twice[..twice.len() - 1]).is_none());
        let mut value = b"abCde".to_vec();
        assert!(back.apply(&mut value));
        assert_eq!(value, b"abxyzde");
        for cut in 0..58 {
            assert!(UndoRecord::decode(&bytes[..cut]).is_none());
        }
    }
}
