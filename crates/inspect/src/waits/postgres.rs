//! What do the sessions of a PostgreSQL server (or of Homenode, which speaks its protocol) do? `pg_stat_activity`, and
//! `pg_blocking_pids` for those that wait for a lock.

use postgres::{Client, NoTls};

use super::{Doing, Source};
use crate::InspectError;

/// Sessions in a statement, and the server's own processes unless they wait for work (`Activity`).
const SESSIONS: &str = "select pid, coalesce(wait_event_type, ''), coalesce(wait_event, ''), \
    case when backend_type = 'client backend' then left(coalesce(query, ''), 400) else '(' || backend_type || ')' end, \
    backend_type = 'client backend' \
    from pg_stat_activity where pid <> pg_backend_pid() \
    and (state in ('active', 'fastpath function call') or (state is null and wait_event_type is distinct from 'Activity'))";

/// What Homenode's view has.
const HOMENODE_SESSIONS: &str = "select pid, coalesce(wait_event_type, ''), coalesce(wait_event, ''), \
    coalesce(query, ''), true from pg_stat_activity where pid <> pg_backend_pid() and state = 'active'";

/// A connection to the server.
pub struct Postgres {
    client: Client,
    is_homenode: bool,
    version: String,
}

impl Postgres {
    /// Connects; `connection` as libpq takes it (`host=... dbname=...` or a URL).
    ///
    /// # Errors
    /// [`InspectError::Refused`] with the server's words.
    pub fn connect(connection: &str) -> Result<Postgres, InspectError> {
        let mut client = Client::connect(connection, NoTls).map_err(refused)?;
        let version: String = client.query_one("select version()", &[]).map_err(refused)?.get(0);
        let is_homenode = version.contains("Homenode") || version.contains("homenode");
        Ok(Postgres { client, is_homenode, version })
    }

    /// What the server calls itself.
    pub fn version(&self) -> &str {
        &self.version
    }
}

impl Source for Postgres {
    fn sample(&mut self) -> Result<Vec<Doing>, InspectError> {
        let query = if self.is_homenode { HOMENODE_SESSIONS } else { SESSIONS };
        let rows = self.client.query(query, &[]).map_err(refused)?;
        let mut doings = Vec::new();
        for row in &rows {
            let (pid, class, name): (i32, String, String) = (row.get(0), row.get(1), row.get(2));
            // Waiting for the client is not the database's time (a statement's result that nobody fetches).
            if class == "Client" {
                continue;
            }
            // The server's own processes are idle also in an extension's wait.
            let is_client: bool = row.get(4);
            if !is_client && class == "Extension" {
                continue;
            }
            let event = (!class.is_empty()).then(|| format!("{class}:{name}"));
            let blockers = if class == "Lock" && !self.is_homenode { self.blockers(pid)? } else { Vec::new() };
            doings.push(Doing { session: i64::from(pid), event, query: row.get(3), blockers });
        }
        Ok(doings)
    }
}

impl Postgres {
    /// Asked only for those that wait: the server locks its lock table for it.
    fn blockers(&mut self, pid: i32) -> Result<Vec<i64>, InspectError> {
        let row = self.client.query_one("select pg_blocking_pids($1)", &[&pid]).map_err(refused)?;
        let mut pids: Vec<i64> = row.get::<_, Vec<i32>>(0).into_iter().map(i64::from).collect();
        // Parallel workers are listed each.
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }
}

fn refused(error: postgres::Error) -> InspectError {
    InspectError::Refused(format!("the server: {}", reason(&error)))
}

/// The server's own words where it said something; the library's with their cause otherwise.
pub fn reason(error: &postgres::Error) -> String {
    use std::error::Error;
    match (error.as_db_error(), error.source()) {
        (Some(inner), _) => inner.message().to_owned(),
        (None, Some(cause)) => format!("{error}: {cause}"),
        (None, None) => error.to_string(),
    }
}
