//! Why can't the server serve?

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A failure to start or to go on serving. Its text is one line for the person who started the server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// A line of the rules of authentication is not understood.
    #[error("line {line}: {what}")]
    Rules {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// A certificate or its key can't be used.
    #[error("cannot use {}: {what}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The system gives no random numbers.
    #[error("{0}")]
    Random(String),
    /// The address can't be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The system refused something that a worker needs.
    #[error("cannot start a worker: {0}")]
    Worker(io::Error),
    /// Sessions did not end in the time they were given at shutdown.
    #[error("{0} sessions did not end in time")]
    StillBusy(usize),
}
