//! How does a program read and write rows by key, without SQL?

use homenode_engine::{Isolation, KeyRange, Table};
use homenode_types::{Error, Result, SqlState, Value, coerce, key};
use std::ops::Bound;
use std::sync::Arc;

/// Reads and writes the rows of tables by their primary keys.
///
/// Between [`Session::begin`] and [`Session::commit`] everything is one transaction; outside, each call is one of its own, durable when it
/// returns. Values are converted to the columns' types as an assignment in SQL would.
///
/// ```
/// # fn main() -> homenode::Result<()> {
/// # let folder = std::env::temp_dir().join(format!("homenode-doc-keys-{}", std::process::id()));
/// use homenode::{Database, Value};
///
/// let database = Database::open(&folder)?;
/// database.client()?.execute("create table fruit (name text primary key, count int)", &[])?;
///
/// let mut session = database.session()?;
/// let fruit = session.table("fruit")?;
/// session.put(&fruit, &["apple".into(), 3.into()])?;
/// session.put(&fruit, &["pear".into(), 5.into()])?;
/// assert_eq!(session.get(&fruit, &["pear".into()])?, Some(vec!["pear".into(), 5.into()]));
/// assert!(session.delete(&fruit, &["pear".into()])?);
/// assert_eq!(session.get(&fruit, &["pear".into()])?, None);
/// # drop(session);
/// # database.close()?;
/// # let _ = std::fs::remove_dir_all(folder);
/// # Ok(())
/// # }
/// ```
pub struct Session {
    inner: homenode_engine::Session,
    key: Vec<u8>,
    row: Vec<u8>,
}

impl Session {
    pub(crate) fn new(inner: homenode_engine::Session) -> Session {
        Session { inner, key: Vec::new(), row: Vec::new() }
    }

    /// Looks up a table of the schema `public`.
    ///
    /// # Errors
    /// 42P01 when there is none, 42P16 when it has no primary key.
    pub fn table(&mut self, name: &str) -> Result<Arc<Table>> {
        let table = self.inner.table(None, name);
        let table = table
            .ok_or_else(|| Error::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist")))?;
        match table.primary_key {
            Some(_) => Ok(table),
            None => Err(Error::new(SqlState::INVALID_TABLE_DEFINITION, format!("table \"{name}\" has no primary key"))),
        }
    }

    /// Opens a transaction.
    ///
    /// # Errors
    /// 25001 when one is open.
    pub fn begin(&mut self, isolation: Isolation) -> Result<()> {
        self.inner.begin(isolation, false)
    }

    /// Commits; durable when it returns.
    ///
    /// # Errors
    /// 25P01 when no transaction is open; 40001 in a SERIALIZABLE one, which is rolled back then.
    pub fn commit(&mut self) -> Result<()> {
        if !self.inner.in_transaction() {
            return Err(Error::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress"));
        }
        self.inner.commit()
    }

    /// Takes back the open transaction, if there is one.
    ///
    /// # Errors
    /// 58030 when a page cannot be read.
    pub fn rollback(&mut self) -> Result<()> {
        self.inner.rollback()
    }

    /// The row with this primary key.
    ///
    /// # Errors
    /// 22023 for a key of another shape than the table's.
    pub fn get(&mut self, table: &Table, key: &[Value]) -> Result<Option<Vec<Value>>> {
        self.encode_key(table, key)?;
        self.statement(|session| {
            let found = session.inner.get_single(table, &session.key, &mut session.row)?;
            let mut values = Vec::new();
            if found {
                table.layout.decode(&session.row, &mut values);
            }
            Ok(found.then_some(values))
        })
    }

    /// Inserts a row.
    ///
    /// # Errors
    /// 23505 when its key is taken, 23502, 22xxx when a value doesn't fit its column.
    pub fn insert(&mut self, table: &Table, row: &[Value]) -> Result<()> {
        let row = self.coerce_row(table, row)?;
        self.statement(|session| session.inner.insert(table, &row))
    }

    /// Inserts a row or replaces the one with its key.
    ///
    /// # Errors
    /// As [`Session::insert`].
    pub fn put(&mut self, table: &Table, row: &[Value]) -> Result<()> {
        let row = self.coerce_row(table, row)?;
        self.encode_key_of(table, &row)?;
        self.statement(|session| {
            loop {
                let replaced = session.inner.update(table, &session.key, &mut |_, values| {
                    values.clone_from(&row);
                    Ok(true)
                })?;
                if replaced {
                    return Ok(());
                }
                match session.inner.insert(table, &row) {
                    // Somebody put it there in between: replace theirs.
                    Err(error) if error.code == SqlState::UNIQUE_VIOLATION && table.indexes.is_empty() => {}
                    other => return other,
                }
            }
        })
    }

    /// Deletes the row with this primary key; false when there is none.
    ///
    /// # Errors
    /// 22023 for a key of another shape than the table's.
    pub fn delete(&mut self, table: &Table, key: &[Value]) -> Result<bool> {
        self.encode_key(table, key)?;
        self.statement(|session| session.inner.delete(table, &session.key, &mut |_| Ok(true)))
    }

    /// Calls `each` with the rows whose keys lie between `lower` and `upper`, in key order, until it says false. A bound may name the
    /// first columns of the key only.
    ///
    /// # Errors
    /// As [`Session::get`], and those of `each`.
    pub fn range(
        &mut self,
        table: &Arc<Table>,
        lower: Bound<&[Value]>,
        upper: Bound<&[Value]>,
        mut each: impl FnMut(&[Value]) -> Result<bool>,
    ) -> Result<()> {
        let range = KeyRange { lower: self.lower(table, lower)?, upper: self.upper(table, upper)? };
        self.statement(|session| {
            let mut scan = session.inner.scan(table, &range, false)?;
            let mut values = Vec::new();
            while let Some((_, row)) = scan.next(&mut session.inner)? {
                values.clear();
                table.layout.decode(row, &mut values);
                if !each(&values)? {
                    break;
                }
            }
            Ok(())
        })
    }

    fn lower(&mut self, table: &Table, bound: Bound<&[Value]>) -> Result<Bound<Vec<u8>>> {
        Ok(match bound {
            Bound::Unbounded => Bound::Unbounded,
            Bound::Included(values) => Bound::Included(self.prefix(table, values)?),
            Bound::Excluded(values) => Bound::Included(self.behind(table, values)?),
        })
    }

    fn upper(&mut self, table: &Table, bound: Bound<&[Value]>) -> Result<Bound<Vec<u8>>> {
        Ok(match bound {
            Bound::Unbounded => Bound::Unbounded,
            Bound::Included(values) => Bound::Excluded(self.behind(table, values)?),
            Bound::Excluded(values) => Bound::Excluded(self.prefix(table, values)?),
        })
    }

    fn behind(&mut self, table: &Table, values: &[Value]) -> Result<Vec<u8>> {
        let mut prefix = self.prefix(table, values)?;
        key::successor(&mut prefix);
        Ok(prefix)
    }

    fn prefix(&mut self, table: &Table, values: &[Value]) -> Result<Vec<u8>> {
        self.encode_prefix(table, values)?;
        Ok(self.key.clone())
    }

    fn encode_key(&mut self, table: &Table, values: &[Value]) -> Result<()> {
        if key_columns(table).len() != values.len() {
            return Err(wrong_key(table));
        }
        self.encode_prefix(table, values)
    }

    fn encode_prefix(&mut self, table: &Table, values: &[Value]) -> Result<()> {
        let columns = key_columns(table);
        if values.len() > columns.len() {
            return Err(wrong_key(table));
        }
        self.key.clear();
        for (value, &column) in values.iter().zip(columns) {
            let ty = table.columns[column].ty;
            let value = coerce(value.clone(), ty, false)?;
            key::encode_column(value.as_ref(), ty.ty, &mut self.key);
        }
        Ok(())
    }

    fn encode_key_of(&mut self, table: &Table, row: &[Value]) -> Result<()> {
        let values: Vec<Value> = key_columns(table).iter().map(|&column| row[column].clone()).collect();
        self.encode_key(table, &values)
    }

    fn coerce_row(&self, table: &Table, row: &[Value]) -> Result<Vec<Value>> {
        if row.len() != table.columns.len() {
            return Err(Error::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("table \"{}\" has {} columns, the row {}", table.name, table.columns.len(), row.len()),
            ));
        }
        row.iter().zip(&table.columns).map(|(value, column)| coerce(value.clone(), column.ty, false)).collect()
    }

    /// Runs `work` in the open transaction, all of it or nothing, or in one of its own.
    fn statement<T>(&mut self, work: impl FnOnce(&mut Session) -> Result<T>) -> Result<T> {
        if self.inner.in_transaction() {
            self.inner.start_statement();
            let before = self.inner.savepoint();
            let result = work(self);
            if result.is_err() {
                self.inner.rollback_to(&before)?;
            }
            self.inner.end_statement();
            return result;
        }
        self.inner.begin(Isolation::ReadCommitted, false)?;
        match work(self) {
            Ok(value) => self.inner.commit().map(|()| value),
            Err(error) => {
                self.inner.rollback()?;
                Err(error)
            }
        }
    }
}

fn key_columns(table: &Table) -> &[usize] {
    table.primary_key.as_ref().map_or(&[], |primary_key| &primary_key.columns)
}

fn wrong_key(table: &Table) -> Error {
    let names: Vec<_> = key_columns(table).iter().map(|&column| table.columns[column].name.as_str()).collect();
    Error::new(
        SqlState::INVALID_PARAMETER_VALUE,
        format!("the primary key of table \"{}\" is ({})", table.name, names.join(", ")),
    )
}
