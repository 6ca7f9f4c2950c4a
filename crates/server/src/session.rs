//! What does this client want next? The protocol of one session: start-up, simple and extended queries, COPY, errors.
//!
//! A *turn* is a task that answers every whole message which has arrived and then ends, giving its stack back; what
//! must outlive it (prepared statements, an open transaction, a running COPY) is in the session, so an idle client
//! holds no stack. Answers go out in one write at the end of the turn, at Flush, or past a high-water mark.

use std::net::SocketAddr;

use homenode_memory::drop_elsewhere;
use homenode_platform::task;
use homenode_types::{Error, Result, SqlState};

use crate::auth::{Asked, Pending, Step};
use crate::backend::{Backend, Outcome, Parameters, Session as _};
use crate::channel::{Answers, Channel, Peer, fresh_buffer};
use crate::registry::Registration;
use crate::shared::Shared;
use crate::startup::{self, Hello};
use crate::wire::{self, Fields, Frame, Severity};

/// Messages answered in one go before the worker's other tasks get a turn.
const MESSAGES_PER_SLICE: usize = 256;
/// Length of ReadyForQuery.
const READY_BYTES: usize = 6;

/// Describe of the unnamed portal and its Execute without a limit on rows: what follows the Bind of a prepared statement that wants
/// all its rows at once (libpq's PQsendQueryPrepared, and most drivers).
const DESCRIBE_AND_EXECUTE: [u8; 17] = *b"D\0\0\0\x06P\0E\0\0\0\x09\0\0\0\0\0";

/// What follows a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// The next message.
    Message,
    /// Nothing: the session is over.
    End,
    /// TLS: the client was told so.
    Encrypt,
}

/// Which protocol started a COPY, that is, where its answers end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Copying {
    Simple,
    Extended,
}

/// The protocol state of one connection.
pub(crate) struct Session<B: Backend> {
    lane: usize,
    client: SocketAddr,
    /// A client that has to prove who it is.
    pending: Option<Box<Pending>>,
    /// There from the end of the start-up on.
    open: Option<Open<B>>,
    answers: Vec<u8>,
    /// After an error in the extended protocol, everything up to Sync is left out.
    skipping: bool,
    copying: Option<Copying>,
    over: bool,
    /// The client has heard why.
    told: bool,
    /// Input and output buffer, address and bytes, as the views were told last.
    noted: [(usize, usize); 2],
    /// Upper end of the stack, as the views were told last; 0: they were not.
    stack_top: usize,
    /// The client has sent nothing for longer than it may.
    expired: bool,
}

struct Open<B: Backend> {
    backend: B::Session,
    /// Keeps the place under `max_connections` and the cancel key; given back after the backend's session.
    _registration: Registration,
}

impl<B: Backend> Session<B> {
    pub(crate) fn new(lane: usize, client: SocketAddr) -> Session<B> {
        Session {
            lane,
            client,
            pending: None,
            open: None,
            answers: Vec::new(),
            skipping: false,
            copying: None,
            over: false,
            told: false,
            noted: [(0, 0); 2],
            stack_top: 0,
            expired: false,
        }
    }

    /// Whether the client has got past the start-up.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Whether nothing more is to be done but to close the socket.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// The node that the session is wanted on, if it may change its worker now.
    pub(crate) fn wants_to_move_to(&self) -> Option<usize> {
        let open =
            self.open.as_ref().filter(|_| !self.skipping && self.copying.is_none() && self.answers.is_empty())?;
        open.backend.wants_to_move_to()
    }

    /// How many milliseconds the client may send nothing now; 0: as long as it likes.
    pub(crate) fn idle_limit_ms(&mut self) -> u64 {
        self.open.as_mut().map_or(0, |open| open.backend.idle_limit_ms())
    }

    /// The client has sent nothing for that long: the next turn ends the session.
    pub(crate) fn expire(&mut self) {
        self.expired = true;
    }

    pub(crate) fn is_expired(&self) -> bool {
        self.expired
    }

    /// Goes on as a session of worker `lane`, which is the caller: its buffers are made anew, by that thread.
    pub(crate) fn move_to(&mut self, lane: usize, channel: &Channel) {
        self.lane = lane;
        drop_elsewhere((std::mem::replace(&mut self.answers, fresh_buffer(0)), channel.renew_buffers()));
        if let Some(open) = &mut self.open {
            open.backend.move_to(lane);
        }
        self.note_buffers(channel);
    }

    /// Answers all whole messages in the channel. Runs in a task.
    pub(crate) fn turn(&mut self, channel: &Channel, shared: &Shared<B>) {
        let mut slice = 0;
        // The stack's upper end: this is nearly the first frame on it.
        let top = std::ptr::from_ref(&slice).addr();
        self.note_stack(top, shared.stack_bytes);
        if self.expired
            && let Some(open) = &self.open
        {
            let error = open.backend.idle_error();
            self.fatal(&error);
        }
        while !self.over && channel.has_message() && channel.peer() != Peer::Gone && !channel.is_congested() {
            let input = channel.take_input();
            let mut used = 0;
            let need = loop {
                match self.frame(&input[used..]) {
                    Ok(Frame::Incomplete { need }) => break need,
                    Ok(Frame::Message { tag, body, bytes }) => {
                        used += bytes;
                        let next = match tag {
                            0 => self.start(body, channel, shared),
                            tag if !self.is_open() => self.prove(tag, body, channel, shared),
                            b'B' if self.is_whole_query(body, &input[used..]) => {
                                used += DESCRIBE_AND_EXECUTE.len();
                                self.query(body, channel)
                            }
                            tag => self.message(tag, body, channel),
                        };
                        if next == Next::Encrypt {
                            self.encrypt(used == input.len(), channel, shared);
                        }
                        if next == Next::End || shared.is_stopping() && self.is_open() {
                            self.over = true;
                        }
                    }
                    Err(error) => {
                        self.fatal(&error);
                        break 1;
                    }
                }
                if self.over || channel.peer() == Peer::Gone {
                    break 1;
                }
                if used < input.len() && !self.answers.is_empty() && self.answers_end_in_ready() {
                    // A pipeline goes on behind a Sync: should the next statement wait, these answers must not.
                    channel.hand_over(&mut self.answers);
                    if channel.is_congested() {
                        channel.send_unsent();
                    }
                    if channel.is_congested() {
                        break 1;
                    }
                }
                slice += 1;
                if slice % MESSAGES_PER_SLICE == 0 {
                    task::yield_now();
                }
            };
            channel.put_back(input, used, need);
        }
        if channel.peer() == Peer::Gone || channel.peer() == Peer::Silent && !channel.has_message() {
            self.over = true;
        }
        if shared.is_stopping() && channel.peer() != Peer::Gone {
            if wire::has_fatal(&self.answers) {
                // A statement that the stop interrupted has said so already; nothing follows that.
                self.told = true;
                let end = self.answers.len() - if self.answers_end_in_ready() { READY_BYTES } else { 0 };
                self.answers.truncate(end);
            }
            self.fatal(&shutting_down());
        }
        if self.over {
            // Rolls back what was left open; that may park, and the client has its last answer by then.
            channel.send_all(&mut self.answers);
            self.open = None;
        }
        channel.send_all(&mut self.answers);
        self.note_buffers(channel);
    }

    /// Tells the views which stack the session's tasks run on, if it is another one than the last time.
    fn note_stack(&mut self, top: usize, bytes: usize) {
        if top != self.stack_top
            && let Some(open) = &self.open
        {
            self.stack_top = top;
            open.backend.stack_changed((top.saturating_sub(bytes), bytes));
        }
    }

    /// Tells the views about the buffers, if they have moved or grown.
    fn note_buffers(&mut self, channel: &Channel) {
        let buffers = [channel.input_buffer(), (self.answers.as_ptr().addr(), self.answers.capacity())];
        if buffers != self.noted
            && let Some(open) = &self.open
        {
            self.noted = buffers;
            open.backend.buffers_changed(buffers[0], buffers[1]);
        }
    }

    /// Ends the session after a panic: one last message, and the backend's session is dropped.
    pub(crate) fn crash(&mut self, channel: &Channel) {
        // Whatever was half written can't be followed by a message.
        self.answers.clear();
        self.fatal(&Error::internal("internal error; the session ends here"));
        channel.send_all(&mut self.answers);
        self.open = None;
    }

    fn frame<'a>(&self, input: &'a [u8]) -> Result<Frame<'a>> {
        if self.is_open() || self.pending.is_some() { wire::frame(input) } else { wire::startup_frame(input) }
    }

    fn answers_end_in_ready(&self) -> bool {
        matches!(self.answers.as_slice(), [.., b'Z', 0, 0, 0, 5, _])
    }

    fn fatal(&mut self, error: &Error) {
        self.over = true;
        if std::mem::replace(&mut self.told, true) {
            return;
        }
        tracing::debug!(client = %self.client, code = error.code.as_str(), "session ended by an error");
        wire::error_response(&mut self.answers, Severity::Fatal, error);
    }

    fn start(&mut self, body: &[u8], channel: &Channel, shared: &Shared<B>) -> Next {
        match startup::read(body) {
            Ok(Hello::Encrypt) if shared.access.certificate.is_some() && !channel.is_encrypted() => Next::Encrypt,
            Ok(Hello::Encrypt | Hello::Refuse) => {
                self.answers.push(b'N');
                // The client waits for this one byte before it sends anything.
                channel.send_all(&mut self.answers);
                Next::Message
            }
            Ok(Hello::Cancel { process_id, secret }) => {
                shared.registry.cancel(process_id, secret);
                Next::End
            }
            Ok(Hello::Start(mut hello)) => {
                hello.parameters.client = self.client.to_string();
                let asked = self.ask(hello, channel, shared);
                self.or_refused(asked)
            }
            Err(error) => {
                self.fatal(&error);
                Next::End
            }
        }
    }

    /// Asks the client to prove who it is, or opens its session where nothing is asked.
    fn ask(&mut self, hello: startup::Start, channel: &Channel, shared: &Shared<B>) -> Result<()> {
        let user = hello.parameters.user.clone();
        let (role, is_member) = (shared.backend.role(&user), |group: &str| shared.backend.is_member(&user, group));
        let (client, encrypted) = (self.client.ip(), channel.is_encrypted());
        match shared.access.ask(hello, client, encrypted, role, &is_member, &mut self.answers)? {
            Asked::Nothing(hello) => self.open_session(&hello, channel, shared),
            Asked::Proof(pending) => {
                self.pending = Some(pending);
                channel.send_all(&mut self.answers);
                Ok(())
            }
        }
    }

    /// The client's next message of its proof.
    fn prove(&mut self, tag: u8, body: &[u8], channel: &Channel, shared: &Shared<B>) -> Next {
        let Some(mut pending) = self.pending.take() else { return Next::End };
        let proven = match shared.access.proceed(&mut pending, tag, body, &mut self.answers) {
            Ok(Step::Proven) => self.open_session(&pending.hello, channel, shared),
            Ok(Step::More) => {
                self.pending = Some(pending);
                channel.send_all(&mut self.answers);
                Ok(())
            }
            Err(error) => Err(error),
        };
        self.or_refused(proven)
    }

    fn or_refused(&mut self, done: Result<()>) -> Next {
        match done {
            Ok(()) => Next::Message,
            Err(error) => {
                tracing::info!(client = %self.client, code = error.code.as_str(), "connection refused");
                self.fatal(&error);
                Next::End
            }
        }
    }

    /// Begins TLS. What the client has sent before it could be encrypted is not its own for sure (CVE-2021-23214).
    fn encrypt(&mut self, nothing_follows: bool, channel: &Channel, shared: &Shared<B>) {
        let Some(certificate) = shared.access.certificate.as_ref().filter(|_| nothing_follows) else {
            let message = "received unencrypted data after SSL request";
            return self.fatal(&Error::new(SqlState::PROTOCOL_VIOLATION, message));
        };
        self.answers.push(b'S');
        channel.send_all(&mut self.answers);
        channel.encrypt(certificate);
    }

    fn open_session(&mut self, hello: &startup::Start, channel: &Channel, shared: &Shared<B>) -> Result<()> {
        if shared.is_stopping() {
            return Err(Error::new(SqlState::CANNOT_CONNECT_NOW, "the database system is shutting down"));
        }
        let place = shared.registry.admit()?;
        let parameters = Parameters { max_connections: shared.registry.max_connections(), ..hello.parameters.clone() };
        let backend = shared.backend.connect(self.lane, &parameters)?;
        channel.set_interrupt(backend.interrupt());
        let registration = shared.registry.register(place, backend.process_id(), backend.interrupt());
        let (process_id, secret) = registration.key();
        let out = &mut self.answers;
        if hello.negotiate {
            let unknown: Vec<&str> = hello.unknown_options.iter().map(String::as_str).collect();
            wire::negotiate_version(out, &unknown);
        }
        wire::authentication_ok(out);
        backend.parameter_status(out);
        wire::backend_key(out, process_id, secret);
        wire::ready_for_query(out, backend.transaction_status());
        tracing::debug!(client = %self.client, user = %hello.parameters.user, process_id, "session opened");
        self.open = Some(Open { backend, _registration: registration });
        Ok(())
    }

    fn message(&mut self, tag: u8, body: &[u8], channel: &Channel) -> Next {
        if tag == b'X' {
            return Next::End;
        }
        let result = match self.copying {
            Some(copying) => self.copy_message(copying, tag, body, channel),
            None => self.query_message(tag, body, channel),
        };
        match result {
            Ok(()) => Next::Message,
            Err(error) => self.failed(tag, &error),
        }
    }

    /// Tells the client what failed, and finds where to go on.
    fn failed(&mut self, tag: u8, error: &Error) -> Next {
        if error.code == SqlState::CONNECTION_FAILURE {
            return Next::End;
        }
        if error.code == SqlState::ADMIN_SHUTDOWN {
            self.fatal(error);
            return Next::End;
        }
        wire::error_response(&mut self.answers, Severity::Error, error);
        match tag {
            b'Q' | b'F' | b'S' => self.ready(),
            _ => self.skipping = true,
        }
        Next::Message
    }

    /// The error of a message that could not be read: the backend has to hear of it.
    fn unreadable(&mut self, error: Error) -> Error {
        if let Some(open) = &mut self.open {
            open.backend.failed();
        }
        error
    }

    fn ready(&mut self) {
        if let Some(open) = &self.open {
            wire::ready_for_query(&mut self.answers, open.backend.transaction_status());
        }
    }

    fn query_message(&mut self, tag: u8, body: &[u8], channel: &Channel) -> Result<()> {
        if self.skipping && tag != b'S' {
            return Ok(());
        }
        match tag {
            b'Q' => self.simple(body, channel),
            b'P' => self.parse(body, channel),
            b'B' => self.bind(body, channel),
            b'D' => self.describe(body, channel),
            b'E' => self.execute(body, channel),
            b'C' => self.close(body, channel),
            b'S' => self.sync(channel),
            b'H' => {
                channel.send_all(&mut self.answers);
                Ok(())
            }
            b'F' => Err(self.unreadable(Error::unsupported("the function call message"))),
            // The rest of a COPY that failed: the client had sent it before it could know.
            b'd' | b'c' | b'f' => Ok(()),
            _ => {
                let message = format!("unexpected message type {tag}");
                Err(self.unreadable(Error::new(SqlState::PROTOCOL_VIOLATION, message)))
            }
        }
    }

    /// The backend with the place for its answers.
    fn backend<'a>(&'a mut self, channel: &'a Channel) -> Result<(&'a mut B::Session, Answers<'a>)> {
        let Session { open, answers, .. } = self;
        let open = open.as_mut().ok_or_else(|| Error::internal("no session"))?;
        Ok((&mut open.backend, Answers { bytes: answers, channel }))
    }

    fn simple(&mut self, body: &[u8], channel: &Channel) -> Result<()> {
        let text = read_query(body).map_err(|error| self.unreadable(error))?;
        let (backend, mut answers) = self.backend(channel)?;
        let outcome = backend.simple(text, &mut answers);
        self.after_simple(outcome, channel);
        Ok(())
    }

    fn after_simple(&mut self, outcome: Outcome, channel: &Channel) {
        match outcome {
            Outcome::Done => self.ready(),
            Outcome::CopyIn => {
                self.copying = Some(Copying::Simple);
                channel.send_all(&mut self.answers);
            }
        }
    }

    fn parse(&mut self, body: &[u8], channel: &Channel) -> Result<()> {
        let Parse { name, text, types } = Parse::read(body).map_err(|error| self.unreadable(error))?;
        self.backend(channel)?.0.parse(name, text, &types)?;
        wire::complete(&mut self.answers, b'1');
        Ok(())
    }

    fn bind(&mut self, body: &[u8], channel: &Channel) -> Result<()> {
        // Statements have few parameters; those with many pay for a list on the heap.
        let mut few = [None; 16];
        let mut many = Vec::new();
        let bind = Bind::read(body, &mut few, &mut many).map_err(|error| self.unreadable(error))?;
        let (formats, result_formats) = (bind.parameter_formats.list(), bind.result_formats.list());
        self.backend(channel)?.0.bind(bind.portal, bind.statement, formats, bind.parameters, result_formats)?;
        wire::complete(&mut self.answers, b'2');
        Ok(())
    }

    /// Whether a Bind with this body, and what has come after it, run a statement whole.
    #[inline]
    fn is_whole_query(&self, body: &[u8], after: &[u8]) -> bool {
        let unnamed = body.first() == Some(&0);
        unnamed && after.starts_with(&DESCRIBE_AND_EXECUTE) && !self.skipping && self.copying.is_none()
    }

    /// Bind, Describe and Execute of the unnamed portal as one.
    fn query(&mut self, body: &[u8], channel: &Channel) -> Next {
        match self.run_bound(body, channel) {
            Ok(Outcome::Done) => {}
            Ok(Outcome::CopyIn) => self.start_copy(channel),
            Err(error) => return self.failed(b'E', &error),
        }
        Next::Message
    }

    fn run_bound(&mut self, body: &[u8], channel: &Channel) -> Result<Outcome> {
        let mut few = [None; 16];
        let mut many = Vec::new();
        let bind = Bind::read(body, &mut few, &mut many).map_err(|error| self.unreadable(error))?;
        let (formats, result_formats) = (bind.parameter_formats.list(), bind.result_formats.list());
        let (backend, mut answers) = self.backend(channel)?;
        backend.query(bind.statement, formats, bind.parameters, result_formats, &mut answers)
    }

    /// A COPY in the extended protocol begins: the client waits for that.
    fn start_copy(&mut self, channel: &Channel) {
        self.copying = Some(Copying::Extended);
        channel.send_all(&mut self.answers);
    }

    fn describe(&mut self, body: &[u8], channel: &Channel) -> Result<()> {
        let (named, name) = read_named(body, "DESCRIBE").map_err(|error| self.unreadable(error))?;
        let (backend, mut answers) = self.backend(channel)?;
        match named {
            Named::Statement => backend.describe_statement(name, &mut answers),
            Named::Portal => backend.describe_portal(name, &mut answers),
        }
    }

    fn close(&mut self, body: &[u8], channel: &Channel) -> Result<()> {
        let (named, name) = read_named(body, "CLOSE").map_err(|error| self.unreadable(error))?;
        let (backend, _) = self.backend(channel)?;
        match named {
            Named::Statement => backend.close_statement(name),
            Named::Portal => backend.close_portal(name),
        }
        wire::complete(&mut self.answers, b'3');
        Ok(())
    }

    fn execute(&mut self, body: &[u8], channel: &Channel) -> Result<()> {
        let (portal, max_rows) = read_execute(body).map_err(|error| self.unreadable(error))?;
        let (backend, mut answers) = self.backend(channel)?;
        if backend.execute(portal, max_rows, &mut answers)? == Outcome::CopyIn {
            self.start_copy(channel);
        }
        Ok(())
    }

    fn sync(&mut self, channel: &Channel) -> Result<()> {
        self.skipping = false;
        self.backend(channel)?.0.sync()?;
        self.ready();
        Ok(())
    }

    fn copy_message(&mut self, copying: Copying, tag: u8, body: &[u8], channel: &Channel) -> Result<()> {
        let (backend, mut answers) = self.backend(channel)?;
        let outcome = match tag {
            b'd' => match backend.copy_data(body) {
                Ok(()) => return Ok(()),
                Err(error) => backend.copy_error(error, &mut answers),
            },
            b'c' => backend.copy_done(&mut answers),
            b'f' => match Fields::new(body).text() {
                Ok(reason) => backend.copy_fail(reason, &mut answers),
                Err(error) => backend.copy_error(error, &mut answers),
            },
            // Sent by clients that don't know yet that this statement is a COPY (the manual: ignored).
            b'H' | b'S' => return Ok(()),
            _ => {
                let message = format!("unexpected message type 0x{tag:02X} during COPY from stdin");
                backend.copy_error(Error::new(SqlState::PROTOCOL_VIOLATION, message), &mut answers)
            }
        };
        self.copying = None;
        match copying {
            Copying::Simple => self.after_simple(outcome, channel),
            Copying::Extended => self.skipping = wire::last_tag(&self.answers) == Some(b'E'),
        }
        Ok(())
    }
}

fn read_query(body: &[u8]) -> Result<&str> {
    let mut fields = Fields::new(body);
    let text = fields.text()?;
    fields.end()?;
    Ok(text)
}

struct Parse<'a> {
    name: &'a str,
    text: &'a str,
    types: Vec<u32>,
}

impl<'a> Parse<'a> {
    fn read(body: &'a [u8]) -> Result<Parse<'a>> {
        let mut fields = Fields::new(body);
        let (name, text) = (fields.text()?, fields.text()?);
        let count = fields.count(4)?;
        let types = (0..count).map(|_| fields.i32().map(|oid| oid as u32)).collect::<Result<Vec<u32>>>()?;
        fields.end()?;
        Ok(Parse { name, text, types })
    }
}

struct Bind<'a, 'b> {
    portal: &'a str,
    statement: &'a str,
    parameter_formats: Formats,
    parameters: &'b [Option<&'a [u8]>],
    result_formats: Formats,
}

impl<'a, 'b> Bind<'a, 'b> {
    /// Reads the message; the parameters go into `few` if they fit, else into `many`.
    fn read(body: &'a [u8], few: &'b mut [Option<&'a [u8]>; 16], many: &'b mut Vec<Option<&'a [u8]>>) -> Result<Self> {
        let mut fields = Fields::new(body);
        let (portal, statement) = (fields.text()?, fields.text()?);
        let parameter_formats = Formats::read(&mut fields)?;
        let count = fields.count(4)?;
        let parameters = if count <= few.len() {
            &mut few[..count]
        } else {
            many.resize(count, None);
            many.as_mut_slice()
        };
        for parameter in parameters.iter_mut() {
            *parameter = fields.sized()?;
        }
        let result_formats = Formats::read(&mut fields)?;
        fields.end()?;
        Ok(Bind { portal, statement, parameter_formats, parameters, result_formats })
    }
}

/// What Describe and Close name.
enum Named {
    Statement,
    Portal,
}

fn read_named<'a>(body: &'a [u8], message: &str) -> Result<(Named, &'a str)> {
    let mut fields = Fields::new(body);
    let (kind, name) = (fields.u8()?, fields.text()?);
    fields.end()?;
    match kind {
        b'S' => Ok((Named::Statement, name)),
        b'P' => Ok((Named::Portal, name)),
        _ => Err(Error::new(SqlState::PROTOCOL_VIOLATION, format!("invalid {message} message subtype {kind}"))),
    }
}

/// The portal and the most rows to return, 0 for all.
fn read_execute(body: &[u8]) -> Result<(&str, u32)> {
    let mut fields = Fields::new(body);
    let (portal, max_rows) = (fields.text()?, fields.i32()?);
    fields.end()?;
    // The manual has zero for "no limit"; PostgreSQL takes a negative count for the same.
    Ok((portal, u32::try_from(max_rows).unwrap_or(0)))
}

/// Formats of a Bind message; few enough not to need the heap.
enum Formats {
    Few([i16; 8], usize),
    Many(Vec<i16>),
}

impl Formats {
    fn read(fields: &mut Fields<'_>) -> Result<Formats> {
        let count = fields.count(2)?;
        if count > 8 {
            return Ok(Formats::Many((0..count).map(|_| fields.i16()).collect::<Result<_>>()?));
        }
        let mut few = [0; 8];
        for format in &mut few[..count] {
            *format = fields.i16()?;
        }
        Ok(Formats::Few(few, count))
    }

    fn list(&self) -> &[i16] {
        match self {
            Formats::Few(few, count) => &few[..*count],
            Formats::Many(many) => many,
        }
    }
}

/// What every session hears when the server stops, in PostgreSQL's words.
pub(crate) fn shutting_down() -> Error {
    Error::new(SqlState::ADMIN_SHUTDOWN, "terminating connection due to administrator command")
}
