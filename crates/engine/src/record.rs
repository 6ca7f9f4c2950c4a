//! What kinds of records does the engine write to the log? (The tree's own kinds are `homenode_tree`'s.)

/// A change of one entry, or of two in one leaf: page operation, then the undo record of each.
pub const KIND_ROW: u8 = 0x40;
/// A change that takes back the transaction's last one that still stands: page operation, then the transaction's name (8 bytes).
pub const KIND_COMPENSATION: u8 = 0x41;
/// A transaction has committed: its name (8 bytes).
pub const KIND_COMMIT: u8 = 0x42;
/// A transaction has been taken back: its name (8 bytes).
pub const KIND_ABORT: u8 = 0x43;
/// Images of pages that are about to be written in place: per page its number (8 bytes) and its bytes.
pub const KIND_IMAGES: u8 = 0x44;
/// Pages were given back: their numbers (8 bytes each).
pub const KIND_FREE: u8 = 0x45;
/// A sequence may have handed out values up to here: number (4 bytes), value (8), whether any was taken (1).
pub const KIND_SEQUENCE: u8 = 0x46;
/// Deletions that every snapshot sees were taken out of their page: page operation only.
pub const KIND_PURGE: u8 = 0x47;
