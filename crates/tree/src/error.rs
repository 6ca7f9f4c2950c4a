//! What can go wrong in a tree?

use homenode_pool::{PageNo, PoolError};

/// Why a tree could not do what was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// The pool could not bring, allocate or write a page.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The entry, or its key, is longer than a page takes.
    #[error("entry of {bytes} bytes is over the limit of {max}")]
    EntryTooLarge {
        /// Bytes of the entry or key.
        bytes: usize,
        /// The limit that it exceeds.
        max: usize,
    },
    /// A logged operation cannot be decoded or doesn't fit its page.
    #[error("damaged page operation: {0}")]
    BadOp(&'static str),
    /// A tree page contradicts itself or its neighbours.
    #[error("tree {tree_id}, page {page_no}: {problem}")]
    Corrupt {
        /// The tree.
        tree_id: u32,
        /// The page.
        page_no: PageNo,
        /// What is wrong.
        problem: String,
    },
    /// Keys were pushed into a bulk load out of order.
    #[error("bulk load: key not above the one before")]
    OutOfOrder,
}
