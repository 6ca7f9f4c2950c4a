//! How do the storage crates' errors look to a user?

use homenode_log::LogError;
use homenode_memory::MemoryError;
use homenode_pool::PoolError;
use homenode_tree::TreeError;
use homenode_txn::WaitError;
pub use homenode_types::{Error, Result, SqlState};

/// `55000`: a statement was planned for a definition that has changed since; whoever planned it plans it again.
/// The code is never shown to a client.
pub const STALE_DEFINITION: SqlState = SqlState::from_code("HN001");

/// Turns a storage crate's error into one with an SQLSTATE.
pub trait Storage<T> {
    /// The value, or the error with an SQLSTATE.
    fn sql(self) -> Result<T>;
}

impl<T> Storage<T> for std::result::Result<T, PoolError> {
    fn sql(self) -> Result<T> {
        self.map_err(pool_error)
    }
}

impl<T> Storage<T> for std::result::Result<T, TreeError> {
    fn sql(self) -> Result<T> {
        self.map_err(tree_error)
    }
}

impl<T> Storage<T> for std::result::Result<T, LogError> {
    fn sql(self) -> Result<T> {
        self.map_err(log_error)
    }
}

impl<T> Storage<T> for std::result::Result<T, WaitError> {
    fn sql(self) -> Result<T> {
        self.map_err(|error| match error {
            WaitError::Deadlock => Error::new(SqlState::DEADLOCK_DETECTED, "deadlock detected")
                .with_hint("See homenode.waits and pg_locks for who waits for whom."),
            WaitError::Cancelled => Error::new(SqlState::QUERY_CANCELED, "canceling statement due to user request"),
            WaitError::Timeout => Error::new(SqlState::LOCK_NOT_AVAILABLE, "canceling statement due to lock timeout"),
        })
    }
}

impl<T> Storage<T> for std::io::Result<T> {
    fn sql(self) -> Result<T> {
        self.map_err(|error| Error::new(SqlState::IO_ERROR, error.to_string()))
    }
}

/// How the pool's errors look.
fn pool_error(error: PoolError) -> Error {
    let code = match &error {
        PoolError::Damaged { .. } | PoolError::NotAllocated { .. } => SqlState::DATA_CORRUPTED,
        PoolError::DiskFull { .. } => SqlState::DISK_FULL,
        PoolError::NoFrame { .. } | PoolError::NotVacated { .. } | PoolError::TooManyPartitions => {
            SqlState::INSUFFICIENT_RESOURCES
        }
        PoolError::NoMemory { .. } => SqlState::OUT_OF_MEMORY,
        PoolError::Memory(error) => match **error {
            MemoryError::NoSuchNode { .. } => SqlState::INVALID_PARAMETER_VALUE,
            _ => SqlState::OUT_OF_MEMORY,
        },
        _ => SqlState::IO_ERROR,
    };
    Error::new(code, error.to_string())
}

fn tree_error(error: TreeError) -> Error {
    match error {
        TreeError::Pool(error) => pool_error(error),
        TreeError::EntryTooLarge { .. } => Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, error.to_string()),
        TreeError::OutOfOrder => Error::internal(error.to_string()),
        _ => Error::new(SqlState::DATA_CORRUPTED, error.to_string()),
    }
}

fn log_error(error: LogError) -> Error {
    let code = match &error {
        LogError::Full { .. } => SqlState::DISK_FULL,
        LogError::InUse { .. } => SqlState::OBJECT_IN_USE,
        LogError::OtherFormat { .. } => SqlState::FEATURE_NOT_SUPPORTED,
        LogError::Damaged { .. } | LogError::Missing { .. } | LogError::TooShort { .. } | LogError::NotOurs { .. } => {
            SqlState::DATA_CORRUPTED
        }
        _ => SqlState::IO_ERROR,
    };
    Error::new(code, error.to_string())
}
