//! How does a statement run to its end? Portals, rows to the wire, tags.

use crate::connection::{Connection, Output};
use crate::context::{Context, Scratch};
use crate::copy::CopyIn;
use crate::exec::{Registers, Running};
use crate::expr::{Env, Expr};
use crate::output::data_row;
use crate::prepared::{Compiled, Prepared};
use crate::wire::{self, Format};
use crate::{ddl, write};
use homenode_types::{Error, Result, SqlState, Value};
use std::sync::Arc;

/// Lists of parameters that are longer are given back after use.
const KEPT_PARAMETERS: usize = 64;

/// A statement with its parameters, perhaps in the middle of its rows.
pub(crate) struct Portal {
    pub prepared: Arc<Prepared>,
    pub params: Vec<Value>,
    pub formats: Vec<Format>,
    state: State,
    scratch: Scratch,
    /// Rows given so far.
    rows: u64,
    /// WITH HOLD.
    hold: bool,
}

enum State {
    /// Not started.
    Fresh,
    Running(Box<Running>),
    /// Rows that were made at once, and the next one.
    Rows(Vec<Vec<Value>>, usize),
    Finished,
}

/// Takes each row: the environment, the output expressions, the row's registers, the parameters.
pub(crate) type Each<'a> = dyn FnMut(&mut Env<'_>, &[Expr], &[Value], &[Value]) -> Result<()> + 'a;

/// How far a run came.
pub(crate) enum Run {
    Complete(Tag),
    /// As many rows as were asked for were given.
    Suspended,
    CopyIn(Box<CopyIn>),
}

/// CommandComplete's text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tag {
    Plain(&'static str),
    Rows(&'static str, u64),
}

impl Tag {
    /// Writes the message.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            // What most statements end with.
            Tag::Rows("SELECT", 1) => out.extend_from_slice(b"C\0\0\0\x0dSELECT 1\0"),
            Tag::Plain(text) => wire::command_complete(out, text),
            Tag::Rows(text, rows) => wire::command_complete_rows(out, text, *rows),
        }
    }
}

impl Portal {
    /// A portal that has not run yet.
    pub fn new(prepared: Arc<Prepared>, params: Vec<Value>, formats: Vec<Format>) -> Portal {
        Portal { prepared, params, formats, state: State::Fresh, scratch: Scratch::default(), rows: 0, hold: false }
    }

    /// Makes it a portal of `prepared` that has not run yet.
    pub fn renew(&mut self, prepared: &Arc<Prepared>) {
        self.clear();
        // Not even a count of references is written for a statement that runs again.
        if !Arc::ptr_eq(&self.prepared, prepared) {
            self.prepared = prepared.clone();
        }
    }

    /// Gives up what it holds but the statement and the memory of short lists.
    pub fn clear(&mut self) {
        self.params.clear();
        self.formats.clear();
        if self.params.capacity().max(self.formats.capacity()) > KEPT_PARAMETERS {
            (self.params, self.formats) = Default::default();
        }
        self.state = State::Fresh;
        self.scratch.clear();
        (self.rows, self.hold) = (0, false);
    }

    /// A portal over rows that are there already (a cursor WITH HOLD after its transaction).
    pub fn of_rows(prepared: Arc<Prepared>, rows: Vec<Vec<Value>>) -> Portal {
        Portal { state: State::Rows(rows, 0), ..Portal::new(prepared, Vec::new(), Vec::new()) }
    }

    /// Whether it outlives its transaction.
    pub fn is_held(&self) -> bool {
        self.hold
    }

    /// Lets it outlive its transaction, or not.
    pub fn set_hold(&mut self, hold: bool) {
        self.hold = hold;
    }

    /// Whether it has run already.
    pub fn is_started(&self) -> bool {
        !matches!(self.state, State::Fresh)
    }

    /// Gives the next rows (0: all of them) to `each`; true at the end.
    pub fn rows(&mut self, context: &mut Context, max_rows: u64, each: &mut Each<'_>) -> Result<bool> {
        std::mem::swap(&mut context.scratch, &mut self.scratch);
        let result = self.rows_inside(context, max_rows, each);
        std::mem::swap(&mut context.scratch, &mut self.scratch);
        if result.is_err() {
            self.state = State::Finished;
        }
        result
    }

    fn rows_inside(&mut self, context: &mut Context, max_rows: u64, each: &mut Each<'_>) -> Result<bool> {
        if let (State::Fresh, Some(plan)) = (&self.state, self.prepared.query_plan()) {
            let mut running = Box::new(Running::new(plan.clone()));
            running.open(&mut context.env(), &self.params)?;
            self.state = State::Running(running);
        }
        let mut given = 0;
        let finished = match &mut self.state {
            State::Running(running) => {
                let mut env = context.env();
                loop {
                    if max_rows > 0 && given == max_rows {
                        break false;
                    }
                    if !running.next(&mut env, &self.params)? {
                        break true;
                    }
                    given += 1;
                    let plan = running.plan().clone();
                    each(&mut env, &plan.output, running.row(), &self.params)?;
                }
            }
            State::Rows(rows, next) => {
                let mut env = context.env();
                let output: Vec<Expr> = (0..rows.first().map_or(0, Vec::len)).map(Expr::Column).collect();
                loop {
                    if max_rows > 0 && given == max_rows {
                        break false;
                    }
                    let Some(row) = rows.get(*next) else { break true };
                    *next += 1;
                    given += 1;
                    each(&mut env, &output, row, &self.params)?;
                }
            }
            State::Fresh | State::Finished => true,
        };
        self.rows += given;
        if finished && !matches!(self.state, State::Rows(..)) {
            self.state = State::Finished;
        }
        Ok(finished)
    }
}

/// A read-only transaction's error names the statement.
fn named(mut error: Error, statement: &str) -> Error {
    if error.code == SqlState::READ_ONLY_SQL_TRANSACTION {
        error.message = format!("cannot execute {statement} in a read-only transaction");
    }
    error
}

impl Connection {
    /// Runs a portal. `describe` writes the RowDescription first, as the simple protocol does.
    pub(crate) fn run(
        &mut self,
        portal: &mut Portal,
        out: &mut dyn Output,
        max_rows: u64,
        describe: bool,
    ) -> Result<Run> {
        if describe && let Some(description) = &portal.prepared.description {
            description.write(out.buffer(), &portal.formats);
        }
        // Not even a count of references is written for what runs most often.
        let started = portal.is_started();
        let fields = portal.prepared.fields.as_deref().unwrap_or(&[]);
        match &portal.prepared.compiled {
            Compiled::Point(_) if started => return Ok(Run::Complete(Tag::Rows("SELECT", 0))),
            Compiled::Point(point) => {
                let context = &mut self.context;
                context.session.start_statement();
                let rows = point.run(context, &portal.params, fields, &portal.formats, out.buffer())?;
                context.session.end_statement();
                portal.state = State::Finished;
                return Ok(Run::Complete(Tag::Rows("SELECT", rows)));
            }
            // Whoever wants only some of the rows gets them from operators, which can stop between two.
            Compiled::Range(query) if max_rows == 0 && !started => {
                let context = &mut self.context;
                context.session.start_statement();
                let rows = query.run(context, &portal.params, fields, &portal.formats, out)?;
                context.session.end_statement();
                portal.state = State::Finished;
                return Ok(Run::Complete(Tag::Rows("SELECT", rows)));
            }
            _ => {}
        }
        let prepared = portal.prepared.clone();
        match &prepared.compiled {
            Compiled::Query(_) | Compiled::Point(_) | Compiled::Range(_) => self.run_query(portal, out, max_rows),
            Compiled::Insert(_) | Compiled::Update(_) | Compiled::Delete(_) => self.run_write(portal, out),
            Compiled::Define(tree) => {
                self.context.session.start_statement();
                let tag = ddl::define(&mut self.context, tree)?;
                self.context.session.end_statement();
                Ok(Run::Complete(tag))
            }
            Compiled::Utility(utility) => self.run_utility(utility, portal, out, describe),
        }
    }

    /// Runs the rows of a query portal.
    pub(crate) fn run_query(&mut self, portal: &mut Portal, out: &mut dyn Output, max_rows: u64) -> Result<Run> {
        if !portal.is_started() {
            self.context.session.start_statement();
        }
        let prepared = portal.prepared.clone();
        let fields = prepared.fields.as_deref().unwrap_or(&[]);
        let formats = std::mem::take(&mut portal.formats);
        let before = portal.rows;
        let finished = portal.rows(&mut self.context, max_rows, &mut |env, output, row, params| {
            data_row(out.buffer(), fields, &formats, output, &Registers(row), params, env)?;
            out.flush_if_large()
        });
        portal.formats = formats;
        let finished = finished?;
        if !finished {
            return Ok(Run::Suspended);
        }
        self.context.session.end_statement();
        Ok(Run::Complete(Tag::Rows("SELECT", portal.rows - before)))
    }

    fn run_write(&mut self, portal: &mut Portal, out: &mut dyn Output) -> Result<Run> {
        if portal.is_started() {
            return Ok(Run::Complete(Tag::Rows("SELECT", 0)));
        }
        portal.state = State::Finished;
        let prepared = portal.prepared.clone();
        let fields = prepared.fields.as_deref().unwrap_or(&[]);
        let (params, formats) = (&portal.params, &portal.formats);
        let context = &mut self.context;
        context.scratch.clear();
        context.session.start_statement();
        let mut show = |output: &[Expr], context: &mut Context, row: &[Value]| -> Result<()> {
            data_row(out.buffer(), fields, formats, output, &Registers(row), params, &mut context.env())?;
            out.flush_if_large()
        };
        let tag = match &prepared.compiled {
            Compiled::Insert(plan) => {
                let output = plan.returning.as_ref().map_or(&[][..], |returning| &returning.output);
                let rows = write::insert(plan, context, params, &mut |context, row| show(output, context, row))
                    .map_err(|error| named(error, "INSERT"))?;
                Tag::Rows("INSERT 0", rows)
            }
            Compiled::Update(plan) => {
                let output = plan.returning.as_ref().map_or(&[][..], |returning| &returning.output);
                let rows = write::update(plan, context, params, &mut |context, row| show(output, context, row))
                    .map_err(|error| named(error, "UPDATE"))?;
                Tag::Rows("UPDATE", rows)
            }
            Compiled::Delete(plan) => {
                let output = plan.returning.as_ref().map_or(&[][..], |returning| &returning.output);
                let rows = write::delete(plan, context, params, &mut |context, row| show(output, context, row))
                    .map_err(|error| named(error, "DELETE"))?;
                Tag::Rows("DELETE", rows)
            }
            _ => Tag::Plain("SELECT"),
        };
        context.session.end_statement();
        Ok(Run::Complete(tag))
    }
}
