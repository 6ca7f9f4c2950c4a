//! What does a running statement have around it? The session, its settings, the time, what is kept for the statement.

use crate::catalog;
use crate::exec::{Kept, Trace};
use crate::expr::{Env, Host};
use crate::range_query::Sorted;
use crate::settings::Settings;
use crate::virtual_table::VirtualTable;
use homenode_engine::{Database, Definitions, Isolation, Session};
use homenode_platform::clock;
use homenode_types::{Error, Result, SqlState, Value};
use rustc_hash::FxHashMap;
use std::any::Any;
use std::sync::Arc;

/// Microseconds between 1970 and 2000, where PostgreSQL's timestamps begin.
pub(crate) const EPOCH_US: i64 = 946_684_800_000_000;

/// What a statement keeps while it runs.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Subqueries, by the place of their plan.
    pub subqueries: FxHashMap<usize, Kept>,
    /// Rows of shared queries.
    pub shared_rows: FxHashMap<usize, Arc<Vec<Vec<Value>>>>,
}

impl Scratch {
    /// Forgets everything.
    pub fn clear(&mut self) {
        if !self.subqueries.is_empty() || !self.shared_rows.is_empty() {
            *self = Scratch::default();
        }
    }
}

/// A session as statements see it.
pub(crate) struct Context {
    /// The engine's session.
    pub session: Session,
    /// The database.
    pub db: Database,
    /// Settings.
    pub settings: Settings,
    /// Messages for the client: severity and text.
    pub(crate) notices: Vec<(&'static str, Error)>,
    pub(crate) scratch: Scratch,
    /// Who is connected, in the client's word.
    pub user: String,
    /// Its role: the bootstrap role for a name that is none, which only trust lets in.
    pub(crate) login_role: u32,
    /// The role that statements run as (SET ROLE).
    pub(crate) role: u32,
    /// The role before the open transaction changed it.
    role_before: Option<u32>,
    /// Whether the role is a superuser, as of a version of the definitions.
    pub(crate) superuser: (u64, bool),
    /// What the client calls the database.
    pub database_name: String,
    /// What is looked at when the transaction ends.
    pub(crate) deferred: crate::deferred::Deferred,
    /// Where names are looked up.
    pub(crate) names: crate::search_path::Names,
    pub(crate) statement_us: i64,
    pub(crate) transaction_us: i64,
    pub(crate) deadline_ns: Option<u64>,
    /// Where scans note what they read, while a statement is explained.
    pub(crate) trace: Option<Trace>,
    /// Key and row buffers of point queries.
    pub(crate) buffers: (Vec<u8>, Vec<Vec<u8>>),
    /// Memory of sorted range queries.
    pub(crate) sorted: Sorted,
}

impl std::ops::Deref for Context {
    type Target = Scratch;
    fn deref(&self) -> &Scratch {
        &self.scratch
    }
}

impl std::ops::DerefMut for Context {
    fn deref_mut(&mut self) -> &mut Scratch {
        &mut self.scratch
    }
}

impl Context {
    pub(crate) fn new(db: Database, session: Session) -> Context {
        Context {
            session,
            db,
            settings: Settings::new(),
            notices: Vec::new(),
            scratch: Scratch::default(),
            user: "homenode".into(),
            login_role: homenode_engine::BOOTSTRAP_ROLE,
            role: homenode_engine::BOOTSTRAP_ROLE,
            role_before: None,
            superuser: (u64::MAX, false),
            database_name: "homenode".into(),
            deferred: Default::default(),
            names: Default::default(),
            statement_us: 0,
            transaction_us: 0,
            deadline_ns: None,
            trace: None,
            buffers: (Vec::new(), Vec::new()),
            sorted: Sorted::default(),
        }
    }

    /// Continues on another lane; the memory that was kept for the next statement, to be dropped.
    pub(crate) fn move_to(&mut self, lane: usize) -> impl Send + use<> {
        let left = (std::mem::take(&mut self.buffers), std::mem::take(&mut self.sorted));
        self.scratch.clear();
        (left, self.session.move_to(lane))
    }

    /// The client is `user`.
    pub(crate) fn log_in(&mut self, user: String) {
        let role = self.session.definitions().role(&user).map(|role| role.oid);
        self.login_role = role.unwrap_or(homenode_engine::BOOTSTRAP_ROLE);
        self.user = user;
        self.set_role(self.login_role);
    }

    /// Statements run as `role` from now on; taken back if the open transaction is.
    pub(crate) fn become_role(&mut self, role: u32) {
        self.role_before.get_or_insert(self.role);
        self.set_role(role);
    }

    fn set_role(&mut self, role: u32) {
        self.role = role;
        self.session.set_role(role);
        self.superuser = (u64::MAX, false);
        self.settle_names();
    }

    /// The transaction has ended: what SET changed stays, or does not.
    pub(crate) fn end_transaction(&mut self, committed: bool) {
        self.settings.end_transaction(committed);
        self.deferred.end_transaction();
        if let Some(role) = self.role_before.take()
            && !committed
        {
            self.set_role(role);
        }
        self.settle_names();
    }

    /// An environment for expressions.
    pub(crate) fn env(&mut self) -> Env<'_> {
        Env::new(self)
    }

    /// The definitions names are looked up in.
    pub(crate) fn definitions(&mut self) -> Arc<Definitions> {
        self.session.definitions().clone()
    }

    /// Long loops ask this now and then.
    ///
    /// # Errors
    /// 57014 when the statement was cancelled or has run too long, 57P01 when the server goes down.
    pub fn check_interrupt(&mut self) -> Result<()> {
        self.session.check_interrupt()?;
        if self.deadline_ns.is_some_and(|deadline| clock::now_ns() > deadline) {
            return Err(Error::new(SqlState::QUERY_CANCELED, "canceling statement due to statement timeout"));
        }
        // Other sessions of this worker get their turn.
        homenode_platform::task::yield_now();
        Ok(())
    }

    /// Rows of a system table.
    pub(crate) fn virtual_rows(&mut self, table: &VirtualTable) -> Result<Arc<Vec<Vec<Value>>>> {
        (table.rows)(self).map(Arc::new)
    }

    /// Adds a message for the client.
    pub(crate) fn notice(&mut self, severity: &'static str, code: SqlState, message: impl Into<String>) {
        self.notices.push((severity, Error::new(code, message)));
    }

    /// A setting as SHOW and current_setting give it.
    pub(crate) fn setting(&self, name: &str) -> Result<String> {
        let lower = name.to_ascii_lowercase();
        if self.session.in_transaction() {
            match lower.as_str() {
                "transaction_isolation" => return Ok(isolation_name(self.session.isolation()).into()),
                "transaction_read_only" => return Ok(if self.session.read_only() { "on" } else { "off" }.into()),
                _ => {}
            }
        } else if lower == "transaction_isolation" {
            return self.settings.get("default_transaction_isolation").map(str::to_string);
        }
        match self.server_setting(&lower) {
            Some(value) => Ok(value),
            None => self.settings.get(&lower).map(str::to_string),
        }
    }
}

/// The engine's isolation for a setting's text.
pub(crate) fn isolation_of(text: &str) -> Isolation {
    match text {
        "repeatable read" => Isolation::RepeatableRead,
        "serializable" => Isolation::Serializable,
        _ => Isolation::ReadCommitted,
    }
}

/// PostgreSQL's name of an isolation level.
pub(crate) fn isolation_name(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::ReadCommitted => "read committed",
        Isolation::RepeatableRead => "repeatable read",
        Isolation::Serializable => "serializable",
    }
}

impl Host for Context {
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn transaction_time_us(&mut self) -> i64 {
        self.transaction_us - EPOCH_US
    }

    fn statement_time_us(&mut self) -> i64 {
        self.statement_us - EPOCH_US
    }

    fn call(&mut self, name: &str, args: &[Value]) -> Result<Value> {
        catalog::call(self, name, args)
    }
}

/// SQLSTATE that says an expression needs the session after all; never shown to a client.
pub(crate) const NEEDS_SESSION: SqlState = SqlState::from_code("HN002");

/// The host of expressions that run under a page's latch, where the session is busy: it knows only the time.
pub(crate) struct FrozenHost {
    pub transaction_us: i64,
    pub statement_us: i64,
}

impl Host for FrozenHost {
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn transaction_time_us(&mut self) -> i64 {
        self.transaction_us - EPOCH_US
    }

    fn statement_time_us(&mut self) -> i64 {
        self.statement_us - EPOCH_US
    }

    fn call(&mut self, _: &str, _: &[Value]) -> Result<Value> {
        Err(Error::new(NEEDS_SESSION, "this function needs the session"))
    }
}
