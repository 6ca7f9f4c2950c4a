//! Where is the key? B+trees over the pages of a pool.
//!
//! A [`Tree`] maps byte-string keys to a [`Header`] and a value. Every table and index is one.
//!
//! - **Reading** ([`Tree::lookup`], [`Cursor`]) holds no latch: a page is read optimistically and
//!   the result counts only if the page's version did not move meanwhile (`descend`).
//! - **Writing** takes one latch, the leaf's ([`Tree::leaf_exclusive`]); the caller plans an
//!   operation, logs it and applies it ([`LeafMut`]). Recovery applies the same operation with the
//!   same code ([`redo`]).
//! - **Making room** ([`Tree::make_room`]): prune, split, grow the root. Each is one log record
//!   over all pages it touches, and latches from parent to child.
//! - **Loading in order** ([`BulkLoader`]) writes pages past the pool.
//!
//! The page layout is described in `layout`, the operations in `op`.

mod ahead;
mod bulk;
mod bytes;
mod cursor;
mod descend;
mod edit;
mod error;
mod layout;
mod leaf;
mod merge;
mod op;
mod path;
mod smo;
mod tree;
mod verify;
mod visit;

pub use ahead::Ahead;
pub use bulk::{BulkLoader, bulk_range};
pub use cursor::{Cursor, Direction, LeafCopy};
pub use error::TreeError;
pub use layout::{Header, MAX_ENTRY_BYTES, MAX_KEY_BYTES, PAGE_TYPE_TREE, entry_bytes};
pub use leaf::LeafMut;
pub use op::{Diff, KIND_BULK, KIND_SMO, OP_HEADER_BYTES, Op, OpCode, ops};
pub use tree::{Journal, Tree};
pub use verify::TreeReport;
pub use visit::LeafView;

use homenode_pool::PageMut;

/// Applies a logged operation to its page, as [`LeafMut::apply`] did at run time. The caller has
/// compared the page's LSN with the record's and stamps the page afterwards. A
/// [`Free`](OpCode::Free) operation only marks the page; giving its number back is the caller's.
///
/// # Errors
/// [`TreeError::BadOp`] if the operation doesn't fit the page: one of them is damaged.
pub fn redo(page: &mut PageMut<'_>, op: &Op<'_>) -> Result<(), TreeError> {
    edit::apply(page, op.bytes)
}
