//! How does a Rust program ask for SQL without a server? A client over its own session.

use crate::connection::Connection;
use crate::exec::Registers;
use crate::expr::Expr;
use crate::lexer;
use crate::prepared::{Compiled, Prepared};
use crate::run::{Portal, Run, Tag};
use crate::write;
use homenode_engine::{Database, STALE_DEFINITION};
use homenode_types::{Error, Result, SqlState, Value, coerce};
use std::collections::HashMap;
use std::sync::Arc;

/// Rows of a statement, or how many it changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// Column names; empty for statements without rows.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<Value>>,
    /// Rows given, inserted, updated or deleted.
    pub count: u64,
}

/// A session for SQL from Rust.
///
/// ```no_run
/// # fn main() -> homenode_types::Result<()> {
/// use homenode_engine::Database;
/// use homenode_sql::Client;
/// use homenode_types::Value;
///
/// let db = Database::open("folder")?;
/// let mut client = Client::new(&db)?;
/// client.execute("CREATE TABLE IF NOT EXISTS note (id int PRIMARY KEY, text text)", &[])?;
/// client.execute("INSERT INTO note VALUES ($1, $2)", &[Value::Int4(1), Value::text("hello")])?;
/// let found = client.execute("SELECT text FROM note WHERE id = $1", &[Value::Int4(1)])?;
/// assert_eq!(found.rows, [[Value::text("hello")]]);
/// # Ok(())
/// # }
/// ```
pub struct Client {
    connection: Connection,
    prepared: HashMap<String, Arc<Prepared>>,
}

/// Statements kept by text.
const CACHE_ENTRIES: usize = 256;

impl Client {
    /// A session on the lane that the calling thread's processor suggests.
    ///
    /// # Errors
    /// 53300.
    pub fn new(db: &Database) -> Result<Client> {
        let lane = db.session()?.lane();
        Ok(Client { connection: Connection::new(db.clone(), lane, &[])?, prepared: HashMap::new() })
    }

    /// Runs one statement. Outside [`Client::begin`] it is its own transaction, durable when this returns.
    ///
    /// # Errors
    /// Those of the statement, with PostgreSQL's SQLSTATEs.
    pub fn execute(&mut self, sql: &str, params: &[Value]) -> Result<Rows> {
        let result = self.connection.execute_values(&mut self.prepared, sql, params);
        let ended = self.connection.finish_values(result.is_err());
        let rows = result?;
        ended.map(|()| rows)
    }

    /// Opens a transaction with the default isolation.
    ///
    /// # Errors
    /// 25001 is only a warning in SQL; here nothing happens when one is open.
    pub fn begin(&mut self) -> Result<()> {
        self.execute("BEGIN", &[]).map(|_| ())
    }

    /// Commits; durable when this returns.
    ///
    /// # Errors
    /// 40001; 25P02 when the transaction had failed and was rolled back.
    pub fn commit(&mut self) -> Result<()> {
        let failed = self.connection.transaction_status() == b'E';
        self.execute("COMMIT", &[])?;
        if failed {
            return Err(Error::new(
                SqlState::IN_FAILED_SQL_TRANSACTION,
                "the transaction had failed and is rolled back",
            ));
        }
        Ok(())
    }

    /// Rolls back.
    ///
    /// # Errors
    /// Those of reading pages.
    pub fn rollback(&mut self) -> Result<()> {
        self.execute("ROLLBACK", &[]).map(|_| ())
    }
}

impl Connection {
    fn execute_values(
        &mut self,
        cache: &mut HashMap<String, Arc<Prepared>>,
        sql: &str,
        params: &[Value],
    ) -> Result<Rows> {
        let version = self.context.session.definitions_version();
        let prepared = match cache.get(sql) {
            Some(found) if found.version == version || !found.is_planned() => found.clone(),
            Some(found) => self.renewed(&found.clone())?,
            None => {
                let mut tokens = Vec::new();
                lexer::lex(sql, &mut tokens)?;
                let ranges = lexer::statements(sql, &tokens);
                let [range] = &ranges[..] else {
                    return Err(Error::new(SqlState::SYNTAX_ERROR, "one statement at a time"));
                };
                Arc::new(Prepared::new(&mut self.context, sql, &tokens[range.clone()], &[])?)
            }
        };
        if cache.len() >= CACHE_ENTRIES {
            cache.clear();
        }
        cache.insert(sql.to_string(), prepared.clone());
        if params.len() != prepared.params.len() {
            let message =
                format!("the statement has {} parameters, {} were given", prepared.params.len(), params.len());
            return Err(Error::new(SqlState::PROTOCOL_VIOLATION, message));
        }
        let values = params
            .iter()
            .zip(&prepared.params)
            .map(|(value, ty)| coerce(value.clone(), (*ty).into(), false))
            .collect::<Result<Vec<_>>>()?;
        let mut portal = Portal::new(prepared, values, Vec::new());
        self.begin_statement(&portal.prepared)?;
        let mut rows = self.collect(&mut portal);
        if let Err(error) = &rows
            && error.code == STALE_DEFINITION
        {
            portal = Portal::new(self.renewed(&portal.prepared)?, std::mem::take(&mut portal.params), Vec::new());
            rows = self.collect(&mut portal);
        }
        rows
    }

    fn finish_values(&mut self, failed: bool) -> Result<()> {
        if failed {
            self.transactions.fail(&mut self.context);
        }
        self.context.notices.clear();
        self.sync()
    }

    /// All rows of a portal as values.
    fn collect(&mut self, portal: &mut Portal) -> Result<Rows> {
        let prepared = portal.prepared.clone();
        let columns = prepared.fields.iter().flatten().map(|field| field.name.clone()).collect();
        let mut rows: Vec<Vec<Value>> = Vec::new();
        let shown = |output: &[Expr], context: &mut crate::context::Context, row: &[Value], params: &[Value]| {
            write::shown(output, row, params, &mut context.env())
        };
        self.context.session.start_statement();
        let count = match &prepared.compiled {
            Compiled::Query(_) | Compiled::Point(_) | Compiled::Range(_) => {
                portal.rows(&mut self.context, 0, &mut |env, output, row, params| {
                    let values = output.iter().map(|value| value.eval(&Registers(row), params, env));
                    rows.push(values.collect::<Result<Vec<_>>>()?);
                    Ok(())
                })?;
                rows.len() as u64
            }
            Compiled::Insert(plan) => {
                let output = plan.returning.as_ref().map_or(&[][..], |returning| &returning.output);
                let params = &portal.params;
                write::insert(plan, &mut self.context, params, &mut |context, row| {
                    rows.push(shown(output, context, row, params)?);
                    Ok(())
                })?
            }
            Compiled::Update(plan) => {
                let output = plan.returning.as_ref().map_or(&[][..], |returning| &returning.output);
                let params = &portal.params;
                write::update(plan, &mut self.context, params, &mut |context, row| {
                    rows.push(shown(output, context, row, params)?);
                    Ok(())
                })?
            }
            Compiled::Delete(plan) => {
                let output = plan.returning.as_ref().map_or(&[][..], |returning| &returning.output);
                let params = &portal.params;
                write::delete(plan, &mut self.context, params, &mut |context, row| {
                    rows.push(shown(output, context, row, params)?);
                    Ok(())
                })?
            }
            _ => match self.run(portal, &mut Vec::new(), 0, false).map_err(|error| portal.prepared.located(error))? {
                Run::Complete(Tag::Rows(_, count)) => count,
                Run::Complete(Tag::Plain(_)) => 0,
                Run::Suspended | Run::CopyIn(_) => return Err(Error::unsupported("COPY through this interface")),
            },
        };
        self.context.session.end_statement();
        Ok(Rows { columns, rows, count })
    }
}
