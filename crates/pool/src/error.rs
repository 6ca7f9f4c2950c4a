//! What can go wrong between a page number and its bytes?

use std::io;
use std::sync::Arc;

use crate::PageNo;

/// Why the pool could not do what was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// A page's bytes in the file are not those that were written last: wrong checksum, wrong page
    /// number, or never written.
    #[error("page {page_no} of the page file is damaged: {reason}")]
    Damaged {
        /// The page.
        page_no: PageNo,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The number belongs to no allocated page. Expected when a number was read optimistically and
    /// the page was freed since.
    #[error("page {page_no} is not allocated")]
    NotAllocated {
        /// The page.
        page_no: PageNo,
    },
    /// The page file cannot grow.
    #[error("no disk space to extend the page file by {bytes} bytes")]
    DiskFull {
        /// How much was asked for last.
        bytes: u64,
    },
    /// A page could not be read.
    #[error("cannot read page {page_no}: {source}")]
    Read {
        /// The page.
        page_no: PageNo,
        /// The system's answer.
        source: Arc<io::Error>,
    },
    /// A page could not be written. It stays dirty in memory and the write is tried again.
    #[error("cannot write page {page_no}: {source}")]
    Write {
        /// The first page of the failed write.
        page_no: PageNo,
        /// The system's answer.
        source: Arc<io::Error>,
    },
    /// The page file could not be extended for another reason than lack of space.
    #[error("cannot extend the page file: {source}")]
    Extend {
        /// The system's answer.
        source: Arc<io::Error>,
    },
    /// The machine, or the control group, has too little memory left for the pool to grow.
    #[error(
        "the pool cannot grow by {bytes} bytes: the machine, or this process's control group, can give {available_bytes} more"
    )]
    NoMemory {
        /// What was asked for.
        bytes: u64,
        /// Free memory, and page cache that can be dropped.
        available_bytes: u64,
    },
    /// The pool's size and policy have been changed too often since the start.
    #[error("the pool has too many partitions")]
    TooManyPartitions,
    /// Frames that the pool is to give up stay in use.
    #[error("pages stay in the part of the pool that is to go{}", .last_write_error.as_ref().map(|e| format!(" (last write error: {e})")).unwrap_or_default())]
    NotVacated {
        /// Why pages could not be written, if that is the reason.
        last_write_error: Option<Arc<io::Error>>,
    },
    /// No frame can be freed: all are latched, or dirty and unwritable.
    #[error("no free frame in the pool{}", .last_write_error.as_ref().map(|e| format!(" (last write error: {e})")).unwrap_or_default())]
    NoFrame {
        /// Why pages could not be cleaned, if that is the reason.
        last_write_error: Option<Arc<io::Error>>,
    },
    /// An fsync of the page file failed. What the file holds is unknown; nothing is written any
    /// more and the process has to be restarted, which recovers from the log.
    #[error("the page file failed to sync: {source}")]
    Sync {
        /// The system's answer.
        source: Arc<io::Error>,
    },
    /// The page file is not one that this version can use.
    #[error("page file: {0}")]
    Format(String),
    /// A saved space map cannot be understood.
    #[error("space map: {0}")]
    SpaceMap(&'static str),
    /// The pool's memory could not be had.
    #[error(transparent)]
    Memory(#[from] Arc<homenode_memory::MemoryError>),
}
