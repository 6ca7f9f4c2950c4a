//! What names a transaction? A lane and a number within it, and how a row header carries the name.
//!
//! Numbers are dealt by each lane from a counter that only this lane writes, so that starting a transaction
//! touches no line that another core writes. The order between transactions comes from commit timestamps,
//! never from these numbers.

use std::fmt;

/// Bits of a [`TxnId`] that hold the number within the lane.
const SEQ_BITS: u32 = 48;
const SEQ_MASK: u64 = (1 << SEQ_BITS) - 1;
/// Lanes that a name can tell apart.
pub const MAX_LANES: usize = 1 << 14;
/// Set in a row header's `writer` when that version deletes the row.
pub const TOMBSTONE: u64 = 1 << 63;

/// The name of a transaction that writes. Zero is nobody: a row written by nobody is visible to all.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct TxnId(u64);

impl TxnId {
    /// Nobody: the writer of rows that every snapshot sees.
    pub const NONE: TxnId = TxnId(0);

    /// The `seq`-th transaction of `lane`.
    pub fn new(lane: usize, seq: u64) -> TxnId {
        assert!(lane < MAX_LANES && seq <= SEQ_MASK);
        TxnId((lane as u64) << SEQ_BITS | seq)
    }

    /// The transaction that a row header's `writer` word names, the tombstone bit aside.
    #[inline]
    pub fn from_writer(writer: u64) -> TxnId {
        TxnId(writer & !TOMBSTONE)
    }

    /// As a row header carries it.
    #[inline]
    pub fn writer(self) -> u64 {
        self.0
    }

    /// As a row header carries it when the version is a deletion.
    #[inline]
    pub fn tombstone(self) -> u64 {
        self.0 | TOMBSTONE
    }

    /// The lane that dealt the number.
    #[inline]
    pub fn lane(self) -> usize {
        (self.0 >> SEQ_BITS) as usize
    }

    /// The number within the lane.
    #[inline]
    pub fn seq(self) -> u64 {
        self.0 & SEQ_MASK
    }

    /// Whether this is [`TxnId::NONE`].
    #[inline]
    pub fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// Whether a row header's `writer` word marks a deletion.
#[inline]
pub fn is_tombstone(writer: u64) -> bool {
    writer & TOMBSTONE != 0
}

impl fmt::Debug for TxnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.lane(), self.seq())
    }
}
