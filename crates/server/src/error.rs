//! Why can't the server serve?

use std::io;
use std::net::SocketAddr;

/// A failure to start or to go on serving. Its text is one line for the person who started the server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The address is beyond loopback, where nobody is asked for a password.
    #[error(
        "{0} is not a loopback address, and this server lets every user in without a password; \
         pass --allow-remote-trust if everyone who can reach it may do everything"
    )]
    RemoteTrust(SocketAddr),
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
