//! What can go wrong with the log's files?

use crate::Lsn;
use std::path::{Path, PathBuf};

/// An error of the log, the control file or the data folder's lock.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A system call failed.
    #[error("could not {action} \"{}\": {source}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The disk has no room for the log to grow; usable again when there is room.
    #[error("no space left for the write-ahead log in \"{}\"", path.display())]
    Full {
        /// The folder of the log.
        path: PathBuf,
    },
    /// Bytes that had been durable are damaged.
    #[error("\"{}\" is damaged at offset {offset} (log position {lsn:#x}): {what}", path.display())]
    Damaged {
        /// The damaged file.
        path: PathBuf,
        /// Byte offset in that file.
        offset: u64,
        /// The log position of the damage; 0 outside a segment's records.
        lsn: Lsn,
        /// What was found.
        what: &'static str,
    },
    /// The segment that holds a position is not there.
    #[error("log position {lsn:#x} is needed, but \"{}\" has no log segment that holds it", path.display())]
    Missing {
        /// The folder of the log.
        path: PathBuf,
        /// The first position that is missing.
        lsn: Lsn,
    },
    /// The log ends before a position that is known to have been durable.
    #[error("the log in \"{}\" ends at {end:#x}, but was durable up to {known:#x}", path.display())]
    TooShort {
        /// The folder of the log.
        path: PathBuf,
        /// Where the log ends.
        end: Lsn,
        /// Where it must reach at least.
        known: Lsn,
    },
    /// The file was written by a newer release.
    #[error(
        "\"{}\" has format version {found}; this release reads version {supported}",
        path.display()
    )]
    OtherFormat {
        /// The file.
        path: PathBuf,
        /// The version it has.
        found: u32,
        /// The version this release knows.
        supported: u32,
    },
    /// The file is not one of ours, or its beginning is destroyed.
    #[error("\"{}\" is not a Homenode {kind} file", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// What was looked for: "control" or "log".
        kind: &'static str,
    },
    /// Another process has the data folder open.
    #[error("data folder \"{}\" is in use by {holder}", path.display())]
    InUse {
        /// The data folder.
        path: PathBuf,
        /// Who holds it, as far as is known: "process 4711" or "another process".
        holder: String,
    },
    /// The data folder already holds a log.
    #[error("\"{}\" already holds log segments, but the control file is missing", path.display())]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// A setting is out of its range.
    #[error("log setting {name}: {what}")]
    Setting {
        /// The field of [`LogConfig`](crate::LogConfig).
        name: &'static str,
        /// What is expected.
        what: &'static str,
    },
}

impl LogError {
    /// For `map_err`: wraps the system's error.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> LogError + use<> {
        let path = path.to_path_buf();
        move |source| LogError::Io { action, path, source }
    }
}
