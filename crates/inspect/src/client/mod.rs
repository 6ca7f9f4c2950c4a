//! How is a server spoken to? Blocking connections over the servers' own protocols, one request and one answer at a time: what a
//! load generator needs, and what an instrument asks a MariaDB with.

mod address;
mod mariadb;
mod postgres;
mod stream;

pub use address::{Address, Protocol};
pub use mariadb::MariaDb;
pub use postgres::Postgres;

use std::io;

/// Why a server could not be reached, or did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection broke, or could not be made.
    #[error("the connection: {0}")]
    Io(#[from] io::Error),
    /// The server refused a statement.
    #[error("the server: {message} ({code})")]
    Server {
        /// SQLSTATE of PostgreSQL's protocol, the error's number of MariaDB's.
        code: String,
        /// The server's words.
        message: String,
    },
    /// What came is not what the protocol has there, or is nothing that this client knows.
    #[error("the protocol: {0}")]
    Protocol(&'static str),
}

impl ClientError {
    /// Whether the same transaction may succeed when it is tried again: deadlocks, failed serialization, and the duplicate key
    /// that two deletes and inserts of one row make of each other (the errors that sysbench ignores).
    pub fn is_retryable(&self) -> bool {
        const POSTGRES: [&str; 3] = ["40001", "40P01", "23505"];
        const MARIADB: [&str; 4] = ["1213", "1205", "1020", "1062"];
        match self {
            ClientError::Server { code, .. } => POSTGRES.contains(&code.as_str()) || MARIADB.contains(&code.as_str()),
            _ => false,
        }
    }
}

/// Type of a statement's parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A 4-byte integer.
    Int,
    /// Text, or whatever the server makes of it.
    Text,
}

/// A parameter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A 4-byte integer.
    Int(i32),
    /// Text.
    Text(&'a str),
}

/// Rows of a query, as text; `None` is NULL.
pub type TextRows = Vec<Vec<Option<String>>>;

/// A connection.
pub trait Session: Send {
    /// Prepares a statement with parameters `$1`, `$2`, ... used once each, in that order; returns its number.
    ///
    /// # Errors
    /// [`ClientError`].
    fn prepare(&mut self, sql: &str, kinds: &[Kind]) -> Result<usize, ClientError>;

    /// Executes a prepared statement; returns how many rows came back.
    ///
    /// # Errors
    /// [`ClientError`].
    fn execute(&mut self, statement: usize, values: &[Value<'_>]) -> Result<u64, ClientError>;

    /// Runs a statement without parameters.
    ///
    /// # Errors
    /// [`ClientError`].
    fn query(&mut self, sql: &str) -> Result<TextRows, ClientError>;
}

/// Connects by the address's protocol.
///
/// # Errors
/// [`ClientError`].
pub fn connect(address: &Address) -> Result<Box<dyn Session>, ClientError> {
    Ok(match address.protocol {
        Protocol::Postgres => Box::new(Postgres::connect(address)?),
        Protocol::MariaDb => Box::new(MariaDb::connect(address)?),
    })
}
