//! What does the protocol ask of a database? The traits between the session loop and the SQL layer, so that the loop
//! can be tested without a database and the database without a socket.

use std::sync::Arc;

pub use homenode_sql::{Outcome, Output};
use homenode_types::{Error, Result};

use crate::wire;

/// Ends what another task is doing in a session.
pub trait Interrupt: Send + Sync {
    /// The running statement fails with `57014`; without one, nothing happens.
    fn cancel(&self);
}

/// What a client says of itself in the start-up packet.
#[derive(Clone, Debug, Default)]
pub struct Parameters {
    /// The user's name.
    pub user: String,
    /// The database asked for.
    pub database: String,
    /// Other settings (`application_name`, `options`, ...), in the client's order.
    pub settings: Vec<(String, String)>,
    /// The client's address and port, as text.
    pub client: String,
    /// Sessions the server takes at a time.
    pub max_connections: usize,
}

/// What authentication has to know of a role.
#[derive(Clone, Debug)]
pub struct Role {
    /// Whether it may open sessions.
    pub login: bool,
    /// What is kept of its password.
    pub verifier: Option<String>,
    /// Whether its password is good no more.
    pub expired: bool,
}

/// A database that sessions can be opened in.
pub trait Backend: Send + Sync + 'static {
    /// One client's session.
    type Session: Session;

    /// The role of that name.
    fn role(&self, name: &str) -> Option<Role>;

    /// Whether the role `name` is a member of the role `group`.
    fn is_member(&self, name: &str, group: &str) -> bool;

    /// Opens a session on worker `lane`.
    fn connect(&self, lane: usize, parameters: &Parameters) -> Result<Self::Session>;

    /// A worker has started: it serves lane `lane` as the system's thread `thread`, bound to the CPUs of `node` or of none.
    fn worker_started(&self, _lane: usize, _node: Option<usize>, _thread: u32) {}

    /// The server stops: every running statement and every later one fails with `57P01`.
    fn stop_sessions(&self);

    /// Whether the sessions have been stopped. There is one such flag and the database has it: were the server to close sessions before
    /// the database knows, what their locks held up would still run and commit while its clients are told that it did not.
    fn is_stopping(&self) -> bool;
}

/// One client's session. Every method runs in a task and may park it. Dropping the session rolls back what it left open.
pub trait Session: Send + 'static {
    /// The process number by which views and cancel requests name the session.
    fn process_id(&self) -> u32;

    /// A handle for interrupting this session from elsewhere.
    fn interrupt(&self) -> Arc<dyn Interrupt>;

    /// Appends ParameterStatus messages for the settings that the session knows.
    fn parameter_status(&self, out: &mut Vec<u8>);

    /// Runs the statements of `text` and appends their answers, errors among them, up to but without ReadyForQuery.
    fn simple(&mut self, text: &str, out: &mut dyn Output) -> Outcome;

    /// Prepares `text` under `name`. A parameter type of 0 is to be inferred.
    fn parse(&mut self, name: &str, text: &str, parameter_types: &[u32]) -> Result<()>;

    /// Binds values to a prepared statement. Format 0 is text, 1 is binary; lists as in the Bind message.
    fn bind(
        &mut self,
        portal: &str,
        statement: &str,
        parameter_formats: &[i16],
        parameters: &[Option<&[u8]>],
        result_formats: &[i16],
    ) -> Result<()>;

    /// Appends ParameterDescription and RowDescription or NoData.
    fn describe_statement(&mut self, name: &str, out: &mut dyn Output) -> Result<()>;

    /// Appends RowDescription or NoData.
    fn describe_portal(&mut self, name: &str, out: &mut dyn Output) -> Result<()>;

    /// Runs a portal and appends at most `max_rows` rows (0: all), then CommandComplete, PortalSuspended or
    /// EmptyQueryResponse.
    fn execute(&mut self, portal: &str, max_rows: u32, out: &mut dyn Output) -> Result<Outcome>;

    /// Binds values to a prepared statement as the unnamed portal, describes and runs it whole: appends BindComplete and what
    /// [`Session::describe_portal`] and [`Session::execute`] do.
    fn query(
        &mut self,
        statement: &str,
        parameter_formats: &[i16],
        parameters: &[Option<&[u8]>],
        result_formats: &[i16],
        out: &mut dyn Output,
    ) -> Result<Outcome> {
        self.bind("", statement, parameter_formats, parameters, result_formats)?;
        wire::complete(out.buffer(), b'2');
        self.describe_portal("", out)?;
        self.execute("", 0, out)
    }

    /// Forgets a prepared statement; an unknown name is no error.
    fn close_statement(&mut self, name: &str);

    /// Forgets a portal; an unknown name is no error.
    fn close_portal(&mut self, name: &str);

    /// Tells that a message could not be read, so that the open transaction has failed. (What the other methods return
    /// as an error, the session knows by itself.)
    fn failed(&mut self);

    /// The end of a row of messages: ends a transaction that they opened by themselves.
    fn sync(&mut self) -> Result<()>;

    /// More bytes of a running COPY. Its error is to be handed to [`Session::copy_error`].
    fn copy_data(&mut self, bytes: &[u8]) -> Result<()>;

    /// All rows of a running COPY are there: appends CommandComplete or an error and, in a simple query, goes on with the
    /// statements after it, which may be a COPY again.
    fn copy_done(&mut self, out: &mut dyn Output) -> Outcome;

    /// The client gave up a running COPY, for `reason`: appends the error (`57014`).
    fn copy_fail(&mut self, reason: &str, out: &mut dyn Output) -> Outcome;

    /// A running COPY failed: appends the error.
    fn copy_error(&mut self, error: Error, out: &mut dyn Output) -> Outcome;

    /// The node that the session is wanted on, as long as it may change its worker: outside a transaction, nothing half done.
    fn wants_to_move_to(&self) -> Option<usize> {
        None
    }

    /// The session's buffers have changed: address and bytes of what waits to be read and to be sent.
    fn buffers_changed(&self, _input: (usize, usize), _output: (usize, usize)) {}

    /// Tasks of the session run on this stack, address and bytes, until another is named. While none runs it is somebody else's.
    fn stack_changed(&self, _stack: (usize, usize)) {}

    /// Goes on as a session of worker `lane`, which is the caller.
    fn move_to(&mut self, _lane: usize) {}

    /// How many milliseconds the client may send nothing now; 0: as long as it likes.
    fn idle_limit_ms(&mut self) -> u64 {
        0
    }

    /// Why a session ends that was idle for too long.
    fn idle_error(&self) -> Error {
        Error::internal("idle for too long")
    }

    /// `I` outside a transaction, `T` in one, `E` in one that failed.
    fn transaction_status(&self) -> u8;
}
