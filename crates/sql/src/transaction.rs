//! Where do transactions begin and end? Blocks, the implicit transaction around statements, savepoints, failed blocks.

use crate::context::{Context, isolation_of};
use crate::lexer::Token;
use crate::prepared::{Compiled, Prepared};
use crate::settings::Settings;
use crate::utility::{Level, Modes, Utility};
use homenode_engine::{Isolation, Savepoint};
use homenode_types::{Error, Result, SqlState};

/// A session's transaction state.
#[derive(Default)]
pub(crate) struct Transactions {
    /// Inside BEGIN ... COMMIT.
    block: bool,
    /// Something failed; only the end of the block is accepted.
    failed: bool,
    savepoints: Vec<Named>,
    /// Settings that changed and that clients are told of.
    pub reported: Vec<String>,
    /// Settings in the form they are used in, of this version of the settings.
    cached: Cached,
}

struct Named {
    name: String,
    savepoint: Savepoint,
    settings: usize,
    /// The checks that waited then.
    deferred: crate::deferred::Deferred,
}

#[derive(Default)]
struct Cached {
    version: u64,
    statement_timeout_ms: u64,
    idle_in_transaction_ms: u64,
    idle_session_ms: u64,
    lock_timeout_ms: u64,
    isolation: Isolation,
    read_only: bool,
}

fn in_failed() -> Error {
    Error::new(
        SqlState::IN_FAILED_SQL_TRANSACTION,
        "current transaction is aborted, commands ignored until end of transaction block",
    )
}

impl Transactions {
    /// `I`, `T` or `E`.
    pub fn status(&self) -> u8 {
        match (self.block, self.failed) {
            (true, true) => b'E',
            (true, false) => b'T',
            (false, _) => b'I',
        }
    }

    /// Inside BEGIN ... COMMIT.
    pub fn in_block(&self) -> bool {
        self.block
    }

    /// Something has failed and is not yet taken back.
    pub fn is_failed(&self) -> bool {
        self.failed
    }

    #[inline]
    fn refresh(&mut self, settings: &Settings) {
        if self.cached.version != settings.version() {
            self.read_settings(settings);
        }
    }

    #[cold]
    fn read_settings(&mut self, settings: &Settings) {
        self.cached = Cached {
            version: settings.version(),
            statement_timeout_ms: settings.milliseconds("statement_timeout"),
            idle_in_transaction_ms: settings.milliseconds("idle_in_transaction_session_timeout"),
            idle_session_ms: settings.milliseconds("idle_session_timeout"),
            lock_timeout_ms: settings.milliseconds("lock_timeout"),
            isolation: settings.get("default_transaction_isolation").map_or(Isolation::ReadCommitted, isolation_of),
            read_only: settings.is_on("default_transaction_read_only"),
        };
    }

    /// statement_timeout.
    pub fn statement_timeout_ms(&mut self, settings: &Settings) -> u64 {
        self.refresh(settings);
        self.cached.statement_timeout_ms
    }

    /// How long the client may send nothing now; 0: as long as it likes.
    pub fn idle_limit_ms(&mut self, settings: &Settings) -> u64 {
        self.refresh(settings);
        if self.status() == b'I' { self.cached.idle_session_ms } else { self.cached.idle_in_transaction_ms }
    }

    /// In a failed transaction only its end may run.
    pub fn check_allowed(&self, prepared: &Prepared) -> Result<()> {
        if !self.failed {
            return Ok(());
        }
        match &prepared.compiled {
            Compiled::Utility(Utility::Commit { .. } | Utility::Rollback { .. } | Utility::RollbackTo(_)) => Ok(()),
            _ => Err(in_failed()),
        }
    }

    /// As [`Transactions::check_allowed`], before a text is even planned.
    pub fn check_text(&self, source: &str, tokens: &[Token]) -> Result<()> {
        const ENDS: [&str; 4] = ["commit", "end", "rollback", "abort"];
        let ends = tokens.first().is_some_and(|token| ENDS.iter().any(|word| token.is_word(source, word)));
        if self.failed && !ends { Err(in_failed()) } else { Ok(()) }
    }

    /// Opens a transaction for the statement if it needs one and there is none.
    pub fn ensure(&mut self, context: &mut Context, prepared: &Prepared) -> Result<()> {
        if context.session.in_transaction() || self.failed || controls(prepared) {
            return Ok(());
        }
        self.refresh(&context.settings);
        context.session.begin(self.cached.isolation, self.cached.read_only)?;
        context.session.set_lock_timeout_ns(self.cached.lock_timeout_ms * 1_000_000);
        context.transaction_us = context.statement_us;
        Ok(())
    }

    /// BEGIN.
    pub fn begin(&mut self, context: &mut Context, modes: Modes) -> Result<()> {
        if self.block {
            context.notice("WARNING", SqlState::ACTIVE_SQL_TRANSACTION, "there is already a transaction in progress");
            return Ok(());
        }
        self.refresh(&context.settings);
        let isolation = modes.isolation.map_or(self.cached.isolation, engine_level);
        let read_only = modes.read_only.unwrap_or(self.cached.read_only);
        if context.session.in_transaction() {
            // After other statements of the same simple query or pipeline: they are part of the block now.
            context.session.set_transaction(isolation, read_only)?;
        } else {
            context.session.begin(isolation, read_only)?;
            context.session.set_lock_timeout_ns(self.cached.lock_timeout_ms * 1_000_000);
            context.transaction_us = context.statement_us;
        }
        self.block = true;
        Ok(())
    }

    /// SET TRANSACTION.
    pub fn set_modes(&mut self, context: &mut Context, modes: Modes) -> Result<()> {
        if !self.block {
            context.notice(
                "WARNING",
                SqlState::NO_ACTIVE_SQL_TRANSACTION,
                "SET TRANSACTION can only be used in transaction blocks",
            );
            return Ok(());
        }
        let isolation = modes.isolation.map_or(context.session.isolation(), engine_level);
        let read_only = modes.read_only.unwrap_or(context.session.read_only());
        if context.session.read_only() && !read_only && context.session.has_written() {
            return Err(Error::new(
                SqlState::ACTIVE_SQL_TRANSACTION,
                "transaction read-write mode must be set before any query",
            ));
        }
        context.session.set_transaction(isolation, read_only)
    }

    /// COMMIT; false when it was a rollback because the block had failed.
    pub fn commit(&mut self, context: &mut Context, chain: bool) -> Result<bool> {
        let modes = (context.session.isolation(), context.session.read_only());
        if !self.block {
            if chain {
                return Err(Error::new(
                    SqlState::NO_ACTIVE_SQL_TRANSACTION,
                    "COMMIT AND CHAIN can only be used in transaction blocks",
                ));
            }
            context.notice("WARNING", SqlState::NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress");
            self.end_implicit(context)?;
            return Ok(true);
        }
        if self.failed {
            self.roll_back(context)?;
            self.chain(context, chain, modes)?;
            return Ok(false);
        }
        if let Err(error) = crate::deferred::settle(context, true) {
            self.roll_back(context)?;
            return Err(error);
        }
        self.block = false;
        self.savepoints.clear();
        let result = context.session.commit();
        context.end_transaction(result.is_ok());
        result?;
        self.chain(context, chain, modes)?;
        Ok(true)
    }

    fn chain(&mut self, context: &mut Context, chain: bool, (isolation, read_only): (Isolation, bool)) -> Result<()> {
        if chain {
            context.session.begin(isolation, read_only)?;
            context.transaction_us = context.statement_us;
            self.block = true;
        }
        Ok(())
    }

    /// ROLLBACK.
    pub fn rollback(&mut self, context: &mut Context, chain: bool) -> Result<()> {
        let modes = (context.session.isolation(), context.session.read_only());
        if !self.block {
            if chain {
                return Err(Error::new(
                    SqlState::NO_ACTIVE_SQL_TRANSACTION,
                    "ROLLBACK AND CHAIN can only be used in transaction blocks",
                ));
            }
            context.notice("WARNING", SqlState::NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress");
        }
        self.roll_back(context)?;
        self.chain(context, chain, modes)
    }

    fn roll_back(&mut self, context: &mut Context) -> Result<()> {
        self.block = false;
        self.failed = false;
        self.savepoints.clear();
        let result = context.session.rollback();
        context.end_transaction(false);
        result
    }

    fn needs_block(&self, what: &str) -> Result<()> {
        if self.block {
            return Ok(());
        }
        Err(Error::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, format!("{what} can only be used in transaction blocks")))
    }

    /// SAVEPOINT.
    pub fn savepoint(&mut self, context: &mut Context, name: &str) -> Result<()> {
        self.needs_block("SAVEPOINT")?;
        let savepoint = context.session.savepoint();
        let (settings, deferred) = (context.settings.mark(), context.deferred.clone());
        self.savepoints.push(Named { name: name.to_string(), savepoint, settings, deferred });
        Ok(())
    }

    fn find(&self, name: &str) -> Result<usize> {
        self.savepoints.iter().rposition(|savepoint| savepoint.name == name).ok_or_else(|| {
            Error::new(SqlState::INVALID_SAVEPOINT_SPECIFICATION, format!("savepoint \"{name}\" does not exist"))
        })
    }

    /// RELEASE SAVEPOINT.
    pub fn release(&mut self, name: &str) -> Result<()> {
        self.needs_block("RELEASE SAVEPOINT")?;
        let place = self.find(name)?;
        self.savepoints.truncate(place);
        Ok(())
    }

    /// ROLLBACK TO SAVEPOINT.
    pub fn rollback_to(&mut self, context: &mut Context, name: &str) -> Result<()> {
        self.needs_block("ROLLBACK TO SAVEPOINT")?;
        let place = self.find(name)?;
        let named = &self.savepoints[place];
        context.session.rollback_to(&named.savepoint)?;
        context.settings.undo_to(named.settings);
        context.deferred = named.deferred.clone();
        context.settle_names();
        self.savepoints.truncate(place + 1);
        self.failed = false;
        Ok(())
    }

    /// A statement has failed: a block waits for its end; without savepoints nothing of it can be kept, so its locks go now.
    pub fn fail(&mut self, context: &mut Context) {
        if !self.block && !context.session.in_transaction() {
            return;
        }
        self.failed = true;
        context.session.end_statement();
        let nothing_to_keep = self.savepoints.is_empty();
        if nothing_to_keep && let Err(error) = context.session.rollback() {
            context.notices.push(("WARNING", error));
        }
    }

    /// Commits the transaction around single statements.
    pub fn end_implicit(&mut self, context: &mut Context) -> Result<()> {
        if self.block {
            return Ok(());
        }
        if let Err(error) = crate::deferred::settle(context, true) {
            self.roll_back(context)?;
            return Err(error);
        }
        let result = if context.session.in_transaction() { context.session.commit() } else { Ok(()) };
        context.end_transaction(result.is_ok());
        result
    }

    /// After an error outside a block: nothing is left open.
    pub fn end_failed_implicit(&mut self, context: &mut Context) {
        if self.block {
            return;
        }
        if let Err(error) = self.roll_back(context) {
            context.notices.push(("WARNING", error));
        }
    }
}

/// Statements that end or begin transactions themselves.
fn controls(prepared: &Prepared) -> bool {
    matches!(
        prepared.compiled,
        Compiled::Utility(
            Utility::Begin { .. }
                | Utility::Commit { .. }
                | Utility::Rollback { .. }
                | Utility::Savepoint(_)
                | Utility::Release(_)
                | Utility::RollbackTo(_)
                | Utility::SetTransaction { .. }
                | Utility::Checkpoint
                | Utility::Vacuum { analyze: false, .. }
        )
    )
}

/// The engine's isolation.
pub(crate) fn engine_level(level: Level) -> Isolation {
    match level {
        Level::ReadCommitted => Isolation::ReadCommitted,
        Level::RepeatableRead => Isolation::RepeatableRead,
        Level::Serializable => Isolation::Serializable,
    }
}
