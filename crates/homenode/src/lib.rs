//! The relational database for machines whose memory is not uniform, in your own process.
//!
//! [`Database::open`] opens a folder; the same engine serves PostgreSQL clients as `homenode serve`. There are two ways in: SQL
//! ([`Database::client`]) and typed access by primary key ([`Database::session`]).
//!
//! ```
//! # fn main() -> homenode::Result<()> {
//! # let folder = std::env::temp_dir().join(format!("homenode-doc-{}", std::process::id()));
//! use homenode::{Database, Value};
//!
//! let database = Database::open(&folder)?;
//! let mut client = database.client()?;
//! client.execute("create table fruit (name text primary key, count int)", &[])?;
//! client.execute("insert into fruit values ($1, $2), ('pear', 5)", &["apple".into(), 3.into()])?;
//! let found = client.execute("select sum(count) from fruit", &[])?;
//! assert_eq!(found.rows, [[Value::Int8(8)]]);
//! # drop(client);
//! # database.close()?;
//! # let _ = std::fs::remove_dir_all(folder);
//! # Ok(())
//! # }
//! ```
//!
//! A commit is durable when the call that makes it returns. Any number of threads may have sessions and clients of one database; one
//! process at a time may have a folder open.

mod keys;

pub use homenode_engine::{Isolation, Options, Table};
pub use homenode_sql::Client;
pub use homenode_types::{Error, Result, SqlState, Value};
pub use keys::Session;
use std::path::Path;

/// An open database. Cheap to clone; closed when the last clone goes away, or on purpose by [`Database::close`].
#[derive(Clone)]
pub struct Database(homenode_engine::Database);

impl Database {
    /// Opens the database in folder `path`, creating it if there is none.
    ///
    /// # Errors
    /// 55006 when another process has it open; XX001 when it is damaged; 0A000 when a newer version wrote it; 58030.
    pub fn open(path: impl AsRef<Path>) -> Result<Database> {
        Database::open_with(path, Options::default())
    }

    /// As [`Database::open`], with options.
    ///
    /// # Errors
    /// As [`Database::open`].
    pub fn open_with(path: impl AsRef<Path>, options: Options) -> Result<Database> {
        homenode_engine::Database::open_with(path, options).map(Database)
    }

    /// A connection that speaks SQL.
    ///
    /// # Errors
    /// 53300 when [`Options::sessions_max`] are open.
    pub fn client(&self) -> Result<Client> {
        Client::new(&self.0)
    }

    /// A session that reads and writes rows by key.
    ///
    /// # Errors
    /// As [`Database::client`].
    pub fn session(&self) -> Result<Session> {
        self.0.session().map(Session::new)
    }

    /// Writes all changed pages, so that a recovery would begin here.
    ///
    /// # Errors
    /// 53100, 58030.
    pub fn checkpoint(&self) -> Result<()> {
        self.0.checkpoint()
    }

    /// Closes the database in order. Sessions that are still open only get errors.
    ///
    /// # Errors
    /// 53100, 58030; nothing that was committed is lost.
    pub fn close(self) -> Result<()> {
        self.0.close()
    }
}
