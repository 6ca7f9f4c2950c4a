//! What does one client ask, message by message? The simple and the extended query protocol over one session.
//!
//! Results go into the caller's output buffer as wire messages; the server flushes it. Errors of the extended protocol are
//! returned: the server writes them and skips to Sync.

use crate::context::Context;
use crate::copy::CopyIn;
use crate::lexer::{self, Token};
use crate::lift::{Lifted, lift};
use crate::portals::Portals;
use crate::prepared::{Compiled, Prepared};
use crate::run::{Portal, Run};
use crate::startup;
use crate::transaction::Transactions;
use crate::utility::Utility;
use crate::wire::{self, Format};
use homenode_engine::{Activity, Database, STALE_DEFINITION, SessionShared};
use homenode_types::{Error, Result, SqlState, Type, Value};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Where results go.
pub trait Output {
    /// The buffer messages are appended to.
    fn buffer(&mut self) -> &mut Vec<u8>;
    /// Called between rows: sends the buffer on when it has grown large.
    ///
    /// # Errors
    /// 08006 when the client is gone.
    fn flush_if_large(&mut self) -> Result<()>;
}

impl Output for Vec<u8> {
    fn buffer(&mut self) -> &mut Vec<u8> {
        self
    }

    fn flush_if_large(&mut self) -> Result<()> {
        Ok(())
    }
}

/// What the client has to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The message is answered.
    Done,
    /// CopyInResponse was sent: CopyData, then CopyDone or CopyFail come next.
    CopyIn,
}

/// Statements kept by text; the cache starts anew when it is full.
const CACHE_ENTRIES: usize = 512;

/// Prepared statements of one session at a time.
const MAX_STATEMENTS: usize = 100_000;

/// One client's session.
pub struct Connection {
    pub(crate) context: Context,
    pub(crate) transactions: Transactions,
    /// Named by the client, so whoever makes names collide slows only itself: no keyed hash is needed.
    pub(crate) statements: FxHashMap<String, Arc<Prepared>>,
    pub(crate) portals: Portals,
    cache: FxHashMap<Box<str>, Arc<Prepared>>,
    tokens: Vec<Token>,
    lifted: Lifted,
    /// Statements of a simple query that are still to run.
    queue: VecDeque<Queued>,
    copy: Option<Box<CopyIn>>,
    /// The copy came by the extended protocol: Sync ends it, not the end of the queue.
    copy_extended: bool,
}

struct Queued {
    text: Arc<str>,
    range: Range<usize>,
}

impl Connection {
    /// A session on `lane` with the client's start-up parameters (`user`, `database`, and settings).
    ///
    /// # Errors
    /// 53300; 22023 and 0A000 for settings with values that cannot be.
    pub fn new(db: Database, lane: usize, params: &[(String, String)]) -> Result<Connection> {
        let session = db.session_on(lane)?;
        let mut context = Context::new(db, session);
        let (mut user, mut database, mut application) = (String::from("homenode"), None, String::new());
        for (name, value) in params {
            match name.as_str() {
                "user" => user.clone_from(value),
                "database" => database = Some(value.clone()),
                "options" => {
                    for (name, value) in startup::settings_of(value)? {
                        context.settings.set_initial(&name, &value)?;
                    }
                }
                "replication" => {}
                name if name.starts_with("_pq_.") => {}
                name if name.eq_ignore_ascii_case("timezone") => startup::set_time_zone(&mut context, value)?,
                name => {
                    context.settings.set_initial(name, value)?;
                    if name == "application_name" {
                        application.clone_from(value);
                    }
                }
            }
        }
        context.settings.set_fixed("session_authorization", &user);
        context.session.shared().set_client(&user, &application, "");
        context.database_name = database.unwrap_or_else(|| user.clone());
        context.log_in(user);
        Ok(Connection {
            context,
            transactions: Transactions::default(),
            statements: FxHashMap::default(),
            portals: Portals::default(),
            cache: FxHashMap::default(),
            tokens: Vec::new(),
            lifted: Lifted::default(),
            queue: VecDeque::new(),
            copy: None,
            copy_extended: false,
        })
    }

    /// What others may see of the session, and its cancel.
    pub fn shared(&self) -> Arc<SessionShared> {
        self.context.session.shared().clone()
    }

    /// The node that the session is wanted on, if it may go there now: between transactions, with nothing half done.
    pub fn wants_to_move_to(&self) -> Option<usize> {
        let node = self.context.session.shared().wanted_node()?;
        let quiet = self.transactions.status() == b'I' && self.queue.is_empty() && self.copy.is_none();
        (quiet && self.portals.named() == 0 && !self.portals.contains("")).then_some(node)
    }

    /// As [`Connection::shared`], lent.
    pub fn shared_ref(&self) -> &SessionShared {
        self.context.session.shared()
    }

    /// Continues on another lane, whose worker is the caller. Statements are made anew: plans refer to the definitions of
    /// the lane that they were made on, and are memory of its node. So is what is kept from one statement for the next.
    pub fn move_to(&mut self, lane: usize) {
        let buffers =
            (std::mem::take(&mut self.tokens), std::mem::take(&mut self.lifted), std::mem::take(&mut self.queue));
        let left = (self.context.move_to(lane), std::mem::take(&mut self.cache), buffers);
        let mut old = Vec::with_capacity(self.statements.len());
        for prepared in self.statements.values_mut() {
            let remade = match prepared.is_empty() {
                true => Ok(Prepared::empty(&self.context)),
                false => prepared.remade(&mut self.context),
            };
            // One that does not bind any more says so when it is used.
            if let Ok(remade) = remade {
                old.push(std::mem::replace(prepared, Arc::new(remade)));
            }
        }
        homenode_memory::drop_elsewhere((left, old));
    }

    /// What SHOW answers for a setting that the server decides.
    pub fn show_fixed(&mut self, name: &str, value: &str) {
        self.context.settings.set_fixed(name, value);
    }

    /// ParameterStatus messages for the start of the session.
    pub fn write_parameters(&self, out: &mut Vec<u8>) {
        for (name, value) in self.context.settings.reported() {
            wire::parameter_status(out, name, value);
        }
    }

    /// `I` outside a transaction, `T` inside, `E` inside a failed one.
    pub fn transaction_status(&self) -> u8 {
        self.transactions.status()
    }

    /// How many milliseconds the client may send nothing now; 0: as long as it likes.
    pub fn idle_limit_ms(&mut self) -> u64 {
        self.transactions.idle_limit_ms(&self.context.settings)
    }

    /// Why a session ends that was idle for too long.
    pub fn idle_error(&self) -> Error {
        let (code, what) = match self.transaction_status() {
            b'I' => (SqlState::IDLE_SESSION_TIMEOUT, "idle-session"),
            _ => (SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT, "idle-in-transaction"),
        };
        Error::new(code, format!("terminating connection due to {what} timeout"))
    }

    fn set_idle(&self) {
        let activity = match self.transactions.status() {
            b'I' => Activity::Idle,
            b'T' => Activity::IdleInTransaction,
            _ => Activity::IdleInFailedTransaction,
        };
        self.context.session.shared().set_activity(activity);
    }

    /// Runs a simple query: every statement of `text`. Errors are written to the output.
    pub fn simple(&mut self, text: &str, out: &mut dyn Output) -> Outcome {
        self.portals.close("");
        self.queue.clear();
        let outcome = self.start_simple(text, out);
        self.answered(outcome, out)
    }

    fn start_simple(&mut self, text: &str, out: &mut dyn Output) -> Result<Outcome> {
        let mut tokens = std::mem::take(&mut self.tokens);
        let lexed = lexer::lex(text, &mut tokens);
        self.tokens = tokens;
        lexed?;
        let mut ranges = lexer::statements(text, &self.tokens);
        match ranges.len() {
            0 => {
                wire::empty(out.buffer(), b'I');
                Ok(Outcome::Done)
            }
            1 => {
                let range = ranges.remove(0);
                self.run_text(text, range, true, out)
            }
            _ => {
                // All of them are parsed before the first runs, so that a syntax error stops them all.
                for range in &ranges {
                    crate::parse::parse(text, &self.tokens[range.clone()])?;
                }
                let text: Arc<str> = text.into();
                let bytes = |range: Range<usize>| {
                    self.tokens[range.start].start as usize..self.tokens[range.end - 1].end as usize
                };
                self.queue =
                    ranges.into_iter().map(|range| Queued { text: text.clone(), range: bytes(range) }).collect();
                self.run_queue(out)
            }
        }
    }

    fn run_queue(&mut self, out: &mut dyn Output) -> Result<Outcome> {
        while let Some(queued) = self.queue.pop_front() {
            let statement = &queued.text[queued.range.clone()];
            lexer::lex(statement, &mut self.tokens)?;
            let all = 0..self.tokens.len();
            let last = self.queue.is_empty();
            let skipped = queued.range.start;
            let outcome = self.run_text(statement, all, last, out).map_err(|mut error| {
                error.position = error.position.map(|position| position + queued.text[..skipped].chars().count());
                error
            })?;
            if outcome == Outcome::CopyIn {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Done)
    }

    /// Runs one statement of a simple query.
    fn run_text(&mut self, text: &str, range: Range<usize>, last: bool, out: &mut dyn Output) -> Result<Outcome> {
        let before = self.tokens.get(range.start).map_or(0, |token| token.start as usize);
        let (prepared, values) = self.look_up(text, range)?;
        let mut portal = Portal::new(prepared, values, Vec::new());
        self.begin_statement(&portal.prepared)?;
        let mut run = self.run(&mut portal, out, 0, true);
        if let Err(error) = &run
            && error.code == STALE_DEFINITION
        {
            portal = Portal::new(self.renewed(&portal.prepared)?, std::mem::take(&mut portal.params), Vec::new());
            run = self.run(&mut portal, out, 0, true);
        }
        let run = run.map_err(|error| {
            let mut error = portal.prepared.located(error);
            error.position = error.position.map(|position| position + text[..before].chars().count());
            error
        });
        match run? {
            Run::CopyIn(copy) => {
                self.copy = Some(copy);
                self.copy_extended = false;
                Ok(Outcome::CopyIn)
            }
            Run::Suspended => Ok(Outcome::Done),
            Run::Complete(tag) => {
                // The transaction of the last statement commits before its success is told.
                if last {
                    self.transactions.end_implicit(&mut self.context)?;
                }
                self.write_notices(out);
                tag.write(out.buffer());
                Ok(Outcome::Done)
            }
        }
    }

    /// The plan of a statement's text: from the cache by its normalised text, else made now.
    fn look_up(&mut self, text: &str, range: Range<usize>) -> Result<(Arc<Prepared>, Vec<Value>)> {
        let tokens = &self.tokens[range];
        let lifted = lift(text, tokens, &mut self.lifted);
        let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else {
            return Err(Error::internal("no tokens"));
        };
        let whole = &text[first.start as usize..last.end as usize];
        let key = if lifted { self.lifted.key.as_str() } else { whole };
        let version = self.context.session.definitions_version();
        if let Some(found) = self.cache.get(key) {
            let mut found = found.clone();
            // What cannot be planned any more is planned below as it was written, for the error's place.
            let mut usable = true;
            if found.version != version && found.is_planned() {
                match found.renewed(&mut self.context) {
                    Ok(renewed) => {
                        found = Arc::new(renewed);
                        self.cache.insert(key.into(), found.clone());
                    }
                    Err(_) => usable = false,
                }
            }
            if usable && let Some(values) = typed_values(&self.lifted, lifted, &found.params) {
                return Ok((found, values));
            }
        } else if lifted && !self.lifted.values.is_empty() {
            let statement = &self.lifted.key[..self.lifted.text_len];
            let mut own = Vec::new();
            lexer::lex(statement, &mut own)?;
            let declared: Vec<Option<Type>> = self.lifted.types.iter().map(|ty| Some(*ty)).collect();
            // Where parameters are not as good as literals, the statement is taken as it was written.
            if let Ok(mut prepared) = Prepared::new(&mut self.context, statement, &own, &declared)
                && let Some(values) = typed_values(&self.lifted, true, &prepared.params)
            {
                prepared.text = whole.into();
                let prepared = Arc::new(prepared);
                let key = self.lifted.key.as_str().into();
                self.remember(key, &prepared);
                return Ok((prepared, values));
            }
        }
        let prepared = Arc::new(Prepared::new(&mut self.context, text, tokens, &[])?);
        if !prepared.params.is_empty() {
            return Err(Error::new(SqlState::UNDEFINED_PARAMETER, "there is no parameter $1"));
        }
        if whole.len() <= MAX_CACHED_BYTES && (!lifted || self.lifted.values.is_empty()) {
            let key = key.into();
            self.remember(key, &prepared);
        }
        Ok((prepared, Vec::new()))
    }

    fn remember(&mut self, key: Box<str>, prepared: &Arc<Prepared>) {
        if self.cache.len() >= CACHE_ENTRIES {
            self.cache.clear();
        }
        self.cache.insert(key, prepared.clone());
    }

    /// Forgets the plans of statements that came before.
    pub(crate) fn forget_plans(&mut self) {
        self.cache = FxHashMap::default();
    }

    pub(crate) fn renewed(&mut self, prepared: &Arc<Prepared>) -> Result<Arc<Prepared>> {
        Ok(Arc::new(prepared.renewed(&mut self.context)?))
    }

    /// The end of a simple query: what has failed is written and taken back.
    fn answered(&mut self, outcome: Result<Outcome>, out: &mut dyn Output) -> Outcome {
        let outcome = match outcome {
            Ok(Outcome::CopyIn) => return Outcome::CopyIn,
            Ok(outcome) => self.transactions.end_implicit(&mut self.context).map(|()| outcome),
            Err(error) => Err(error),
        };
        if let Err(error) = outcome {
            self.queue.clear();
            self.copy = None;
            self.write_notices(out);
            self.failed();
            wire::error_response(out.buffer(), severity(&error), &error);
            self.transactions.end_failed_implicit(&mut self.context);
        }
        self.set_idle();
        Outcome::Done
    }

    /// The open transaction has failed, if there is one.
    fn failed(&mut self) {
        self.portals.end_transaction();
        self.transactions.fail(&mut self.context);
    }

    fn write_notices(&mut self, out: &mut dyn Output) {
        if self.context.notices.is_empty() {
            return;
        }
        let least = level(self.context.settings.get("client_min_messages").unwrap_or("notice"));
        for (severity, notice) in std::mem::take(&mut self.context.notices) {
            if severity == "INFO" || level(&severity.to_ascii_lowercase()) >= least {
                wire::notice_response(out.buffer(), severity, &notice);
            }
        }
        let changed = std::mem::take(&mut self.transactions.reported);
        for name in changed {
            if let Ok(value) = self.context.settings.get(&name) {
                wire::parameter_status(out.buffer(), crate::settings::display_name(&name), value);
            }
        }
    }

    /// Opens a transaction if there is none, and notes when the statement began.
    pub(crate) fn begin_statement(&mut self, prepared: &Arc<Prepared>) -> Result<()> {
        let context = &mut self.context;
        context.statement_us = homenode_platform::clock::unix_time_us();
        let timeout_ms = self.transactions.statement_timeout_ms(&context.settings);
        context.deadline_ns = (timeout_ms > 0).then(|| homenode_platform::clock::now_ns() + timeout_ms * 1_000_000);
        context.session.forget_cancel();
        self.transactions.check_allowed(prepared)?;
        self.transactions.ensure(context, prepared)?;
        let shared = context.session.shared();
        shared.set_query(&prepared.text);
        shared.set_activity(Activity::Active);
        shared.set_times(context.statement_us, context.transaction_us);
        Ok(())
    }

    /// Parse: keeps a statement under a name.
    ///
    /// # Errors
    /// Those of the statement; 42P05.
    pub fn parse(&mut self, name: &str, text: &str, param_types: &[u32]) -> Result<()> {
        let result = self.parse_inner(name, text, param_types);
        self.guarded(result)
    }

    fn parse_inner(&mut self, name: &str, text: &str, param_types: &[u32]) -> Result<()> {
        if !name.is_empty() && self.statements.contains_key(name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(Error::new(SqlState::DUPLICATE_PREPARED_STATEMENT, message));
        }
        if self.statements.len() >= MAX_STATEMENTS {
            return Err(Error::new(SqlState::CONFIGURATION_LIMIT_EXCEEDED, "too many prepared statements"));
        }
        lexer::lex(text, &mut self.tokens)?;
        let ranges = lexer::statements(text, &self.tokens);
        let declared = param_types
            .iter()
            .map(|oid| match oid {
                0 => Ok(None),
                oid => Type::from_oid(*oid)
                    .map(Some)
                    .ok_or_else(|| Error::unsupported(format!("parameter type with OID {oid}"))),
            })
            .collect::<Result<Vec<_>>>()?;
        let prepared = match &ranges[..] {
            [] => Prepared::empty(&self.context),
            [one] => {
                self.transactions.check_text(text, &self.tokens[one.clone()])?;
                let prepared = self.parsed(text, one.clone(), param_types, &declared)?;
                self.statements.insert(name.to_string(), prepared);
                return Ok(());
            }
            _ => {
                return Err(Error::new(
                    SqlState::SYNTAX_ERROR,
                    "cannot insert multiple commands into a prepared statement",
                ));
            }
        };
        self.statements.insert(name.to_string(), Arc::new(prepared));
        Ok(())
    }

    /// The plan of a text with declared parameter types: a client that parses the same text again pays only for a look-up.
    fn parsed(
        &mut self,
        text: &str,
        range: Range<usize>,
        oids: &[u32],
        declared: &[Option<Type>],
    ) -> Result<Arc<Prepared>> {
        // No statement of a simple query has a NUL in it, so the keys cannot be mistaken for each other.
        let key: Box<str> = format!("\0{oids:?}{text}").into();
        let version = self.context.session.definitions_version();
        if let Some(found) = self.cache.get(&key)
            && (found.version == version || !found.is_planned())
        {
            return Ok(found.clone());
        }
        let prepared = Arc::new(Prepared::new(&mut self.context, text, &self.tokens[range], declared)?);
        if text.len() <= MAX_CACHED_BYTES {
            self.remember(key, &prepared);
        }
        Ok(prepared)
    }

    /// The caller has refused a message of the extended protocol: the open transaction has failed.
    pub fn refused(&mut self) {
        self.failed();
    }

    fn guarded<T>(&mut self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.failed();
        }
        result
    }

    pub(crate) fn statement(&self, name: &str) -> Result<&Arc<Prepared>> {
        self.statements.get(name).ok_or_else(|| no_statement(name))
    }

    /// Describe of a statement: ParameterDescription, then RowDescription or NoData.
    ///
    /// # Errors
    /// 26000.
    pub fn describe_statement(&mut self, name: &str, out: &mut dyn Output) -> Result<()> {
        let found = self.refresh(name).and_then(|()| self.statement(name).cloned());
        let prepared = self.guarded(found)?;
        wire::parameter_description(out.buffer(), &prepared.params);
        match self.description_of(&prepared) {
            Some(description) => description.write(out.buffer(), &[]),
            None => wire::empty(out.buffer(), b'n'),
        }
        Ok(())
    }

    /// Has the statement `name` planned for the definitions as they are.
    fn refresh(&mut self, name: &str) -> Result<()> {
        let prepared = self.statement(name)?;
        if prepared.version == self.context.session.definitions_version() || !prepared.is_planned() {
            return Ok(());
        }
        let prepared = prepared.clone();
        let fresh = Arc::new(prepared.renewed(&mut self.context)?);
        let shape = |fields: &Option<Vec<wire::Field>>| {
            fields.as_ref().map(|fields| fields.iter().map(|field| field.ty).collect::<Vec<_>>())
        };
        if shape(&fresh.fields) != shape(&prepared.fields) {
            return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, "cached plan must not change result type"));
        }
        self.statements.insert(name.to_string(), fresh);
        Ok(())
    }

    /// The description of the result's columns, those of EXECUTE and FETCH looked up.
    fn description_of<'a>(&'a self, prepared: &'a Prepared) -> Option<&'a wire::RowDescription> {
        match &prepared.compiled {
            Compiled::Utility(Utility::Execute { name, .. }) => {
                self.statements.get(name).and_then(|other| other.description.as_ref())
            }
            Compiled::Utility(Utility::Fetch { name, moving: false, .. }) => {
                self.portals.get(name).and_then(|portal| portal.prepared.description.as_ref())
            }
            _ => prepared.description.as_ref(),
        }
    }

    /// Bind: makes a portal of a statement and parameter values; formats are the protocol's codes.
    ///
    /// # Errors
    /// 26000, 08P01, those of reading the values.
    pub fn bind(
        &mut self,
        portal: &str,
        statement: &str,
        param_formats: &[i16],
        params: &[Option<&[u8]>],
        result_formats: &[i16],
    ) -> Result<()> {
        let bound = self.bound(portal, statement, param_formats, params, result_formats);
        let bound = self.guarded(bound)?;
        self.portals.put(portal, bound);
        Ok(())
    }

    /// A portal for the name `name`, ready to run.
    fn bound(
        &mut self,
        name: &str,
        statement: &str,
        param_formats: &[i16],
        params: &[Option<&[u8]>],
        result_formats: &[i16],
    ) -> Result<Box<Portal>> {
        check_formats(param_formats)?;
        check_formats(result_formats)?;
        let version = self.context.session.definitions_version();
        let prepared = match self.statements.get(statement) {
            Some(prepared) if prepared.version == version || !prepared.is_planned() => prepared,
            _ => {
                self.refresh(statement)?;
                self.statements.get(statement).ok_or_else(|| no_statement(statement))?
            }
        };
        if params.len() != prepared.params.len() {
            return Err(Error::new(
                SqlState::PROTOCOL_VIOLATION,
                format!(
                    "bind message supplies {} parameters, but prepared statement \"{statement}\" requires {}",
                    params.len(),
                    prepared.params.len()
                ),
            ));
        }
        if !name.is_empty() {
            self.portals.check_new(name)?;
        }
        let mut portal = self.portals.fresh(name, prepared);
        for (number, bytes) in params.iter().enumerate() {
            let ty = portal.prepared.params[number];
            portal.params.push(match bytes {
                None => Value::Null,
                Some(bytes) => match Format::from_code(wire::format_of(param_formats, number)) {
                    Some(Format::Binary) => Value::parse_binary(bytes, ty)?,
                    _ => parse_param(&mut self.context, bytes, ty)?,
                },
            });
        }
        portal.formats.extend(result_formats.iter().filter_map(|code| Format::from_code(*code)));
        Ok(portal)
    }

    /// Describe of a portal: RowDescription or NoData.
    ///
    /// # Errors
    /// 34000.
    pub fn describe_portal(&mut self, name: &str, out: &mut dyn Output) -> Result<()> {
        let Some(portal) = self.portals.get(name) else { return self.guarded(Err(no_portal(name))) };
        self.describe(portal, out);
        Ok(())
    }

    fn describe(&self, portal: &Portal, out: &mut dyn Output) {
        match self.description_of(&portal.prepared) {
            Some(description) => description.write(out.buffer(), &portal.formats),
            None => wire::empty(out.buffer(), b'n'),
        }
    }

    /// Execute: runs a portal, at most `max_rows` rows of it (0: all).
    ///
    /// # Errors
    /// Those of the statement.
    pub fn execute(&mut self, name: &str, max_rows: u32, out: &mut dyn Output) -> Result<Outcome> {
        let Some(portal) = self.portals.take(name) else { return self.guarded(Err(no_portal(name))) };
        self.execute_portal(name, portal, max_rows, out)
    }

    /// Bind of the unnamed portal, its Describe, and its Execute without a limit on rows, as one: clients send the three together
    /// for a prepared statement, and going through them one by one takes longer than a point query.
    ///
    /// # Errors
    /// Those of [`Connection::bind`] and [`Connection::execute`]; what came before the error has been answered.
    pub fn query(
        &mut self,
        statement: &str,
        param_formats: &[i16],
        params: &[Option<&[u8]>],
        result_formats: &[i16],
        out: &mut dyn Output,
    ) -> Result<Outcome> {
        let bound = self.bound("", statement, param_formats, params, result_formats);
        let portal = self.guarded(bound)?;
        wire::empty(out.buffer(), b'2');
        self.describe(&portal, out);
        self.execute_portal("", portal, 0, out)
    }

    /// Runs a portal and puts it back under its name.
    fn execute_portal(
        &mut self,
        name: &str,
        mut portal: Box<Portal>,
        max_rows: u32,
        out: &mut dyn Output,
    ) -> Result<Outcome> {
        if portal.prepared.is_empty() {
            self.portals.put(name, portal);
            wire::empty(out.buffer(), b'I');
            return Ok(Outcome::Done);
        }
        let run = self.run_portal(&mut portal, max_rows, out);
        self.write_notices(out);
        let run = self.guarded(run)?;
        if let Run::CopyIn(copy) = run {
            self.copy = Some(copy);
            self.copy_extended = true;
            return Ok(Outcome::CopyIn);
        }
        self.portals.put(name, portal);
        match run {
            Run::Complete(tag) => tag.write(out.buffer()),
            _ => wire::empty(out.buffer(), b's'),
        }
        Ok(Outcome::Done)
    }

    fn run_portal(&mut self, portal: &mut Portal, max_rows: u32, out: &mut dyn Output) -> Result<Run> {
        self.begin_statement(&portal.prepared)?;
        let mut run = self.run(portal, out, max_rows.into(), false);
        if let Err(error) = &run
            && error.code == STALE_DEFINITION
            && !portal.is_started()
        {
            portal.prepared = self.renewed(&portal.prepared)?;
            run = self.run(portal, out, max_rows.into(), false);
        }
        run.map_err(|error| portal.prepared.located(error))
    }

    /// Close of a statement; it is no error when there is none.
    pub fn close_statement(&mut self, name: &str) {
        self.statements.remove(name);
    }

    /// Close of a portal; it is no error when there is none.
    pub fn close_portal(&mut self, name: &str) {
        self.portals.close(name);
    }

    /// Sync: ends the transaction that was opened for single statements. The caller sends ReadyForQuery.
    ///
    /// # Errors
    /// Those of committing; the caller sends them.
    pub fn sync(&mut self) -> Result<()> {
        let result = if self.transactions.is_failed() {
            self.transactions.end_failed_implicit(&mut self.context);
            Ok(())
        } else {
            self.transactions.end_implicit(&mut self.context)
        };
        if !self.transactions.in_block() {
            self.portals.end_transaction();
        }
        if result.is_err() {
            self.transactions.fail(&mut self.context);
            self.transactions.end_failed_implicit(&mut self.context);
        }
        self.set_idle();
        result
    }

    /// CopyData.
    ///
    /// # Errors
    /// Those of the rows; the copy is over then.
    pub fn copy_data(&mut self, data: &[u8]) -> Result<()> {
        let Some(copy) = &mut self.copy else { return Ok(()) };
        let result = copy.data(&mut self.context, data);
        if result.is_err() {
            self.copy = None;
        }
        result
    }

    /// CopyDone: the copy's end and, in a simple query, what follows it. Errors are written to the output.
    pub fn copy_done(&mut self, out: &mut dyn Output) -> Outcome {
        let result = match self.copy.take() {
            Some(copy) => copy.finish(&mut self.context),
            None => return Outcome::Done,
        };
        self.copy_ended(result, out)
    }

    /// CopyFail, or an error of [`Connection::copy_data`] that the caller hands back.
    pub fn copy_fail(&mut self, message: &str, out: &mut dyn Output) -> Outcome {
        self.copy = None;
        let error = Error::new(SqlState::QUERY_CANCELED, format!("COPY from stdin failed: {message}"));
        self.copy_ended(Err(error), out)
    }

    /// An error of [`Connection::copy_data`]: it is written, and the statement taken back.
    pub fn copy_error(&mut self, error: Error, out: &mut dyn Output) -> Outcome {
        self.copy = None;
        self.copy_ended(Err(error), out)
    }

    fn copy_ended(&mut self, result: Result<u64>, out: &mut dyn Output) -> Outcome {
        self.context.session.end_statement();
        if self.copy_extended {
            match result {
                Ok(rows) => wire::command_complete_rows(out.buffer(), "COPY", rows),
                Err(error) => {
                    self.failed();
                    wire::error_response(out.buffer(), severity(&error), &error);
                }
            }
            return Outcome::Done;
        }
        let result = result.and_then(|rows| {
            if self.queue.is_empty() {
                self.transactions.end_implicit(&mut self.context)?;
            }
            self.write_notices(out);
            wire::command_complete_rows(out.buffer(), "COPY", rows);
            self.run_queue(out)
        });
        self.answered(result, out)
    }
}

const MAX_CACHED_BYTES: usize = 8 << 10;

fn level(name: &str) -> usize {
    const ORDER: [&str; 9] = ["debug5", "debug4", "debug3", "debug2", "debug1", "log", "notice", "warning", "error"];
    ORDER.iter().position(|known| *known == name).unwrap_or(6)
}

/// FATAL for errors that end the session, else ERROR.
pub fn severity(error: &Error) -> &'static str {
    if error.code == SqlState::ADMIN_SHUTDOWN { "FATAL" } else { "ERROR" }
}

#[cold]
fn no_statement(name: &str) -> Error {
    let message = if name.is_empty() {
        "unnamed prepared statement does not exist".to_string()
    } else {
        format!("prepared statement \"{name}\" does not exist")
    };
    Error::new(SqlState::INVALID_SQL_STATEMENT_NAME, message)
}

#[cold]
pub(crate) fn no_portal(name: &str) -> Error {
    Error::new(SqlState::INVALID_CURSOR_NAME, format!("portal \"{name}\" does not exist"))
}

fn check_formats(codes: &[i16]) -> Result<()> {
    match codes.iter().find(|code| Format::from_code(**code).is_none()) {
        None => Ok(()),
        Some(code) => Err(Error::new(SqlState::PROTOCOL_VIOLATION, format!("unsupported format code: {code}"))),
    }
}

/// A parameter in text form; names of tables and the like are looked up.
fn parse_param(context: &mut Context, bytes: &[u8], ty: Type) -> Result<Value> {
    let lookup = match ty {
        Type::Regclass => "regclassin",
        Type::Regtype => "regtypein",
        Type::Regproc => "regprocin",
        Type::Regnamespace => "regnamespacein",
        Type::Regrole => "regrolein",
        _ => return Value::parse_bytes(bytes, ty.into()),
    };
    let text = homenode_types::text_from_bytes(bytes)?;
    match text.parse::<u32>() {
        Ok(oid) => Ok(Value::Oid(oid)),
        Err(_) => crate::catalog::call(context, lookup, &[Value::text(text)]),
    }
}

/// Whether every text is a value of the type.
fn is_any_text(ty: Type) -> bool {
    matches!(ty, Type::Text | Type::Varchar | Type::Bpchar | Type::Unknown)
}

/// Lifted values as the statement's parameters want them; `None` when one does not fit, so that the text has to be taken
/// as it was written.
fn typed_values(lifted: &Lifted, used: bool, types: &[Type]) -> Option<Vec<Value>> {
    if !used {
        return types.is_empty().then(Vec::new);
    }
    if types.len() != lifted.values.len() {
        return None;
    }
    let mut values = Vec::with_capacity(types.len());
    for ((value, literal), wanted) in lifted.values.iter().zip(&lifted.types).zip(types) {
        values.push(match (value, literal) {
            (Value::Text(text), Type::Unknown) if !is_any_text(*wanted) => {
                Value::parse_text(text, (*wanted).into()).ok()?
            }
            _ => value.clone(),
        });
    }
    Some(values)
}
