//! How does the protocol reach the engine? The SQL layer's connection as a [`Backend`].

use std::sync::Arc;

use homenode_engine::{CancelReason, Database, MemoryContext};
use homenode_platform::clock;
use homenode_sql::Connection;
use homenode_types::{Error, Result, SqlState};

use crate::backend::{Backend, Interrupt, Outcome, Output, Parameters, Role, Session};

/// A database whose sessions speak SQL.
pub struct SqlBackend {
    database: Database,
}

/// Microseconds between 1970 and 2000, where PostgreSQL's timestamps begin.
const EPOCH_US: i64 = 946_684_800_000_000;

impl SqlBackend {
    /// Counts the sessions of a role that may have only so many; the new one is among them.
    fn check_connection_limit(&self, user: &str) -> Result<()> {
        let definitions = self.database.definitions();
        let limit = definitions.role(user).filter(|role| !role.superuser).map_or(-1, |role| role.connection_limit);
        let Ok(limit) = usize::try_from(limit) else { return Ok(()) };
        if self.database.sessions().iter().filter(|session| session.user == user).count() > limit {
            let message = format!("too many connections for role \"{user}\"");
            return Err(Error::new(SqlState::TOO_MANY_CONNECTIONS, message));
        }
        Ok(())
    }

    /// Sessions of `database`.
    pub fn new(database: Database) -> SqlBackend {
        SqlBackend { database }
    }
}

/// One SQL session.
pub struct SqlSession {
    connection: Connection,
    interrupt: Arc<SqlInterrupt>,
}

struct SqlInterrupt {
    database: Database,
    process_id: u32,
}

impl Interrupt for SqlInterrupt {
    fn cancel(&self) {
        // False says that the session has ended meanwhile.
        self.database.cancel(self.process_id, CancelReason::User);
    }
}

impl Backend for SqlBackend {
    type Session = SqlSession;

    fn role(&self, name: &str) -> Option<Role> {
        let definitions = self.database.definitions();
        let role = definitions.role(name)?;
        let now_us = clock::unix_time_us() - EPOCH_US;
        Some(Role {
            login: role.login,
            verifier: role.verifier.clone(),
            expired: role.valid_until_us.is_some_and(|until| until <= now_us),
        })
    }

    fn is_member(&self, name: &str, group: &str) -> bool {
        let definitions = self.database.definitions();
        let oid = |name| definitions.role(name).map(|role| role.oid);
        matches!((oid(name), oid(group)), (Some(role), Some(group)) if definitions.is_member(role, group, false))
    }

    fn connect(&self, lane: usize, parameters: &Parameters) -> Result<SqlSession> {
        let mut settings = parameters.settings.clone();
        settings.push(("user".into(), parameters.user.clone()));
        settings.push(("database".into(), parameters.database.clone()));
        let mut connection = Connection::new(self.database.clone(), lane, &settings)?;
        connection.show_fixed("max_connections", &parameters.max_connections.to_string());
        let shared = connection.shared();
        let application = parameters.settings.iter().find(|(name, _)| name == "application_name");
        shared.set_client(&parameters.user, application.map_or("", |(_, name)| name), &parameters.client);
        self.check_connection_limit(&parameters.user)?;
        let interrupt = Arc::new(SqlInterrupt { database: self.database.clone(), process_id: shared.pid });
        Ok(SqlSession { connection, interrupt })
    }

    fn worker_started(&self, lane: usize, node: Option<usize>, thread: u32) {
        self.database.note_worker(lane, node, thread);
    }

    fn stop_sessions(&self) {
        self.database.stop_sessions();
    }

    fn is_stopping(&self) -> bool {
        self.database.is_stopping()
    }
}

impl Session for SqlSession {
    fn process_id(&self) -> u32 {
        self.interrupt.process_id
    }

    fn interrupt(&self) -> Arc<dyn Interrupt> {
        self.interrupt.clone()
    }

    fn parameter_status(&self, out: &mut Vec<u8>) {
        self.connection.write_parameters(out);
    }

    fn simple(&mut self, text: &str, out: &mut dyn Output) -> Outcome {
        self.connection.simple(text, out)
    }

    fn parse(&mut self, name: &str, text: &str, parameter_types: &[u32]) -> Result<()> {
        self.connection.parse(name, text, parameter_types)
    }

    fn bind(
        &mut self,
        portal: &str,
        statement: &str,
        parameter_formats: &[i16],
        parameters: &[Option<&[u8]>],
        result_formats: &[i16],
    ) -> Result<()> {
        self.connection.bind(portal, statement, parameter_formats, parameters, result_formats)
    }

    fn describe_statement(&mut self, name: &str, out: &mut dyn Output) -> Result<()> {
        self.connection.describe_statement(name, out)
    }

    fn describe_portal(&mut self, name: &str, out: &mut dyn Output) -> Result<()> {
        self.connection.describe_portal(name, out)
    }

    fn execute(&mut self, portal: &str, max_rows: u32, out: &mut dyn Output) -> Result<Outcome> {
        self.connection.execute(portal, max_rows, out)
    }

    fn query(
        &mut self,
        statement: &str,
        parameter_formats: &[i16],
        parameters: &[Option<&[u8]>],
        result_formats: &[i16],
        out: &mut dyn Output,
    ) -> Result<Outcome> {
        self.connection.query(statement, parameter_formats, parameters, result_formats, out)
    }

    fn close_statement(&mut self, name: &str) {
        self.connection.close_statement(name);
    }

    fn close_portal(&mut self, name: &str) {
        self.connection.close_portal(name);
    }

    fn failed(&mut self) {
        self.connection.refused();
    }

    fn sync(&mut self) -> Result<()> {
        self.connection.sync()
    }

    fn copy_data(&mut self, bytes: &[u8]) -> Result<()> {
        self.connection.copy_data(bytes)
    }

    fn copy_done(&mut self, out: &mut dyn Output) -> Outcome {
        self.connection.copy_done(out)
    }

    fn copy_fail(&mut self, reason: &str, out: &mut dyn Output) -> Outcome {
        self.connection.copy_fail(reason, out)
    }

    fn copy_error(&mut self, error: Error, out: &mut dyn Output) -> Outcome {
        self.connection.copy_error(error, out)
    }

    fn wants_to_move_to(&self) -> Option<usize> {
        self.connection.wants_to_move_to()
    }

    fn buffers_changed(&self, input: (usize, usize), output: (usize, usize)) {
        let shared = self.connection.shared();
        shared.memory.set(MemoryContext::Input, input.0, input.1);
        shared.memory.set(MemoryContext::Output, output.0, output.1);
    }

    fn stack_changed(&self, stack: (usize, usize)) {
        self.connection.shared_ref().memory.set(MemoryContext::Stack, stack.0, stack.1);
    }

    fn move_to(&mut self, lane: usize) {
        self.connection.move_to(lane);
    }

    fn idle_limit_ms(&mut self) -> u64 {
        self.connection.idle_limit_ms()
    }

    fn idle_error(&self) -> Error {
        self.connection.idle_error()
    }

    fn transaction_status(&self) -> u8 {
        self.connection.transaction_status()
    }
}
