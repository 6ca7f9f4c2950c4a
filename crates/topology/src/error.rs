//! What can go wrong with a saved copy of a machine? (Looking at the running one cannot fail, only leave notes.)

use std::io;
use std::path::PathBuf;

/// Why a saved copy of a machine could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// A folder or file of the copy cannot be used.
    #[error("{}: {source}", path.display())]
    Io {
        /// The folder or file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The folder holds none of the files that describe a machine.
    #[error("{} holds no copy of a machine: neither sys/devices/system nor proc is in it", path.display())]
    Empty {
        /// The folder.
        path: PathBuf,
    },
    /// A line of a bundle cannot be understood.
    #[error("line {line} of the machine's text: {why}")]
    Bundle {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        why: &'static str,
    },
}
