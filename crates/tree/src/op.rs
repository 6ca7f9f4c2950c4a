//! What can be logged about a page? The encoding of page operations, and of the records that
//! carry them.
//!
//! An operation is `page_no u64 | op u8 | body_len u16 | body`; a record's payload is
//! `count u16 | operations | the engine's own tail`. Each operation names its page, so the parts of
//! one record can be handed to different recovery workers.

use homenode_pool::PageNo;

use crate::TreeError;
use crate::layout::Header;

/// Record kind of a change to the tree's own structure (split, merge, prune): no undo, no
/// transaction.
pub const KIND_SMO: u8 = 0x20;
/// Record kind of a finished bulk load; see [`BulkRecord`](crate::BulkRecord).
pub const KIND_BULK: u8 = 0x21;

/// Bytes before an operation's body.
pub const OP_HEADER_BYTES: usize = 11;

/// What an operation does with its page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum OpCode {
    /// A new entry in a leaf.
    Insert = 1,
    /// Another header for an entry; the value stays.
    SetHeader = 2,
    /// Another header, and a part of the value replaced.
    Update = 3,
    /// Entries leave a leaf.
    Remove = 4,
    /// The page gets new contents, whatever it held: a page of a split, a merge, a new root.
    Format = 5,
    /// The page keeps its first entries and gets a new upper fence.
    Truncate = 6,
    /// A new separator and child in an inner page.
    InsertChild = 7,
    /// A separator and one of the children beside it leave an inner page.
    RemoveChild = 8,
    /// Several entries leave a leaf, and its space is made contiguous.
    Prune = 9,
    /// One of the page's fences changes: a neighbour went away.
    SetFence = 10,
    /// The page belongs to no tree any more.
    Free = 11,
    /// Another header for one entry and a new entry, both in one leaf: what an index does when a row's key changes a little.
    Move = 12,
}

impl OpCode {
    fn from_u8(code: u8) -> Option<OpCode> {
        use OpCode::*;
        [Insert, SetHeader, Update, Remove, Format, Truncate, InsertChild, RemoveChild, Prune, SetFence, Free, Move]
            .into_iter()
            .find(|op| *op as u8 == code)
    }
}

/// One operation of a record.
#[derive(Clone, Copy, Debug)]
pub struct Op<'a> {
    /// The page it changes.
    pub page_no: PageNo,
    /// What it does.
    pub code: OpCode,
    /// The operation as encoded, page number included: what [`redo`](crate::redo) takes.
    pub bytes: &'a [u8],
}

impl<'a> Op<'a> {
    /// Decodes the first operation in `bytes`.
    ///
    /// # Errors
    /// [`TreeError::BadOp`] if they don't begin with a whole operation.
    pub fn decode(bytes: &'a [u8]) -> Result<Op<'a>, TreeError> {
        let header = bytes.first_chunk::<OP_HEADER_BYTES>().ok_or(TreeError::BadOp("cut short"))?;
        let (page_no, rest) = header.split_first_chunk::<8>().ok_or(TreeError::BadOp("cut short"))?;
        let code = OpCode::from_u8(rest[0]).ok_or(TreeError::BadOp("unknown code"))?;
        let len = OP_HEADER_BYTES + usize::from(u16::from_le_bytes([rest[1], rest[2]]));
        let bytes = bytes.get(..len).ok_or(TreeError::BadOp("cut short"))?;
        Ok(Op { page_no: u64::from_le_bytes(*page_no), code, bytes })
    }

    pub(crate) fn body(&self) -> Reader<'a> {
        Reader(&self.bytes[OP_HEADER_BYTES..])
    }

    /// True if the page's old content doesn't matter: redo may start from an unreadable page.
    pub fn is_format(&self) -> bool {
        self.code == OpCode::Format
    }
}

/// Splits a record's payload into its operations and the engine's tail.
///
/// # Errors
/// [`TreeError::BadOp`] if the payload is not made of whole operations.
pub fn ops(payload: &[u8]) -> Result<(Vec<Op<'_>>, &[u8]), TreeError> {
    let (count, mut rest) = payload.split_first_chunk::<2>().ok_or(TreeError::BadOp("cut short"))?;
    let count = u16::from_le_bytes(*count);
    let mut ops = Vec::with_capacity(count.into());
    for _ in 0..count {
        let op = Op::decode(rest)?;
        rest = &rest[op.bytes.len()..];
        ops.push(op);
    }
    Ok((ops, rest))
}

/// Writes operations one after the other into a byte vector.
pub(crate) struct Writer<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Writer<'a> {
    pub fn begin(out: &'a mut Vec<u8>, page_no: PageNo, code: OpCode) -> Writer<'a> {
        let start = out.len();
        out.extend_from_slice(&page_no.to_le_bytes());
        out.extend_from_slice(&[code as u8, 0, 0]);
        Writer { out, start }
    }

    pub fn u8(self, value: u8) -> Self {
        self.out.push(value);
        self
    }

    pub fn u16(self, value: usize) -> Self {
        self.out.extend_from_slice(&(value as u16).to_le_bytes());
        self
    }

    pub fn u32(self, value: u32) -> Self {
        self.out.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub fn u64(self, value: u64) -> Self {
        self.out.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub fn header(self, header: Header) -> Self {
        self.u64(header.writer).u64(header.undo)
    }

    pub fn bytes(self, bytes: &[u8]) -> Self {
        self.out.extend_from_slice(bytes);
        self
    }

    pub fn end(self) {
        let body = self.out.len() - self.start - OP_HEADER_BYTES;
        assert!(body <= usize::from(u16::MAX), "operation body of {body} bytes");
        let at = self.start + OP_HEADER_BYTES - 2;
        self.out[at..at + 2].copy_from_slice(&(body as u16).to_le_bytes());
    }
}

/// Reads an operation's body; running off its end is an error, not a panic.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8], TreeError> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or(TreeError::BadOp("body cut short"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], TreeError> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(TreeError::BadOp("body cut short"))?;
        self.0 = rest;
        Ok(*taken)
    }

    pub fn u8(&mut self) -> Result<u8, TreeError> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u16(&mut self) -> Result<usize, TreeError> {
        Ok(u16::from_le_bytes(self.array()?).into())
    }

    pub fn u32(&mut self) -> Result<u32, TreeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64, TreeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub fn header(&mut self) -> Result<Header, TreeError> {
        Ok(Header { writer: self.u64()?, undo: self.u64()? })
    }

    pub fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// The part in which two values differ: `old[offset .. offset + old_len]` was replaced by
/// `new[offset .. offset + new_len]`; before and behind it they are equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Diff {
    /// Where the difference starts, in bytes.
    pub offset: usize,
    /// Bytes of the old value in it.
    pub old_len: usize,
    /// Bytes of the new value in it.
    pub new_len: usize,
}

impl Diff {
    /// Compares two values: common start and end are trimmed.
    pub fn between(old: &[u8], new: &[u8]) -> Diff {
        let offset = common_prefix(old, new);
        let (old_rest, new_rest) = (&old[offset..], &new[offset..]);
        let behind = common_suffix(old_rest, new_rest);
        Diff { offset, old_len: old_rest.len() - behind, new_len: new_rest.len() - behind }
    }

    /// The replaced bytes: what undo needs.
    pub fn before<'a>(&self, old: &'a [u8]) -> &'a [u8] {
        &old[self.offset..self.offset + self.old_len]
    }

    /// The replacing bytes: what redo needs.
    pub fn after<'a>(&self, new: &'a [u8]) -> &'a [u8] {
        &new[self.offset..self.offset + self.new_len]
    }

    /// Makes the old value from the new one and the [`before`](Self::before) bytes, into `out`
    /// (cleared first).
    ///
    /// # Errors
    /// [`TreeError::BadOp`] if the difference doesn't lie inside `new`.
    pub fn revert(&self, new: &[u8], before: &[u8], out: &mut Vec<u8>) -> Result<(), TreeError> {
        let end = self.offset.checked_add(self.new_len).filter(|end| *end <= new.len());
        let end = end.ok_or(TreeError::BadOp("difference outside the value"))?;
        out.clear();
        out.extend_from_slice(&new[..self.offset]);
        out.extend_from_slice(before);
        out.extend_from_slice(&new[end..]);
        Ok(())
    }
}

/// Length of the common start of two byte strings.
#[inline]
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let words = a.chunks_exact(8).zip(b.chunks_exact(8)).take_while(|(x, y)| x == y).count() * 8;
    words + a[words..].iter().zip(&b[words..]).take_while(|(x, y)| x == y).count()
}

/// Length of the common end of two byte strings.
fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    let words = a.rchunks_exact(8).zip(b.rchunks_exact(8)).take_while(|(x, y)| x == y).count() * 8;
    let (a, b) = (&a[..a.len() - words], &b[..b.len() - words]);
    words + a.iter().rev().zip(b.iter().rev()).take_while(|(x, y)| x == y).count()
}
