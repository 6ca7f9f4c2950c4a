//! What can go wrong while looking at a machine or a process?

use std::io;
use std::path::{Path, PathBuf};

/// Why an instrument could not look, or not change, what it was asked to. One line for a person.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line of a file is in no form that is known; a number out of it would be a guess.
    #[error("{}, line {line}: {why}: {text:?}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is not known about it.
        why: &'static str,
        /// The line, shortened.
        text: String,
    },
    /// The process ended.
    #[error("process {0} is not there (any more)")]
    Vanished(u32),
    /// The kernel forbids it to this user; says which privilege would allow it.
    #[error("{what} is not permitted: {needs}")]
    NotPermitted {
        /// What was tried.
        what: String,
        /// What would allow it.
        needs: &'static str,
    },
    /// What was asked for cannot be done, for a reason that is for the user to see.
    #[error("{0}")]
    Refused(String),
    /// Memory calls.
    #[error(transparent)]
    Memory(#[from] homenode_memory::MemoryError),
    /// The machine's files.
    #[error(transparent)]
    Topology(#[from] homenode_topology::TopologyError),
}

impl InspectError {
    /// An error about a file.
    pub fn io(path: &Path, source: io::Error) -> InspectError {
        InspectError::Io { path: path.to_owned(), source }
    }

    /// An error about a line of a file (counted from 1).
    pub fn format(path: &Path, line: usize, why: &'static str, text: &str) -> InspectError {
        let text = text.chars().take(120).collect();
        InspectError::Format { path: path.to_owned(), line, why, text }
    }
}
