//! How do utility statements run? Transactions, settings, cursors, COPY, prepared statements, definitions of sequences.

use crate::bind::Need;
use crate::connection::{Connection, Output};
use crate::copy::{CopyIn, copy_out};
use crate::ddl;
use crate::exec::Registers;
use crate::explain;
use crate::expr::{self, Params};
use crate::lexer;
use crate::output::data_row;
use crate::prepared::Prepared;
use crate::roles;
use crate::run::{Portal, Run, Tag};
use crate::server_settings::SERVER_SETTINGS;
use crate::settings::display_name;
use crate::utility::{CopySubject, Direction, Utility};
use crate::wire;
use homenode_engine::Privileges;
use homenode_types::{ColumnType, Error, Result, SqlState, Type, Value};
use std::sync::Arc;

impl Connection {
    /// Runs a utility statement.
    pub(crate) fn run_utility(
        &mut self,
        utility: &Utility,
        portal: &mut Portal,
        out: &mut dyn Output,
        describe: bool,
    ) -> Result<Run> {
        let context = &mut self.context;
        let plain = |text| Ok(Run::Complete(Tag::Plain(text)));
        match utility {
            Utility::Begin { start, modes } => {
                self.transactions.begin(context, *modes)?;
                plain(if *start { "START TRANSACTION" } else { "BEGIN" })
            }
            Utility::Commit { chain } => {
                self.portals.end_transaction();
                let committed = self.transactions.commit(context, *chain)?;
                plain(if committed { "COMMIT" } else { "ROLLBACK" })
            }
            Utility::Rollback { chain } => {
                self.portals.end_transaction();
                self.transactions.rollback(context, *chain)?;
                plain("ROLLBACK")
            }
            Utility::Savepoint(name) => {
                self.transactions.savepoint(context, name)?;
                plain("SAVEPOINT")
            }
            Utility::Release(name) => {
                self.transactions.release(name)?;
                plain("RELEASE")
            }
            Utility::RollbackTo(name) => {
                self.transactions.rollback_to(context, name)?;
                plain("ROLLBACK")
            }
            Utility::SetTransaction { modes, session: false } => {
                self.transactions.set_modes(context, *modes)?;
                plain("SET")
            }
            Utility::SetTransaction { modes, session: true } => {
                if let Some(level) = modes.isolation {
                    let name = crate::context::isolation_name(crate::transaction::engine_level(level));
                    context.settings.set("default_transaction_isolation", Some(name), false)?;
                }
                if let Some(read_only) = modes.read_only {
                    let value = if read_only { "on" } else { "off" };
                    context.settings.set("default_transaction_read_only", Some(value), false)?;
                }
                plain("SET")
            }
            Utility::Set { name, value, local } => self.set(name, value.as_deref(), *local),
            Utility::AlterSystem { name, value } => self.alter_system(name, value.as_deref()),
            Utility::CreateRole { name, options } => roles::create_role(context, name, options).map(Run::Complete),
            Utility::AlterRole { name, options } => roles::alter_role(context, name, options).map(Run::Complete),
            Utility::RenameRole { name, to } => roles::rename_role(context, name, to).map(Run::Complete),
            Utility::DropRoles { names, if_exists } => roles::drop_roles(context, names, *if_exists).map(Run::Complete),
            Utility::Grant(grant) => roles::grant(context, grant).map(Run::Complete),
            Utility::GrantRoles(grant) => roles::grant_roles(context, grant).map(Run::Complete),
            Utility::Owner { kind, name, if_exists, to } => {
                roles::owner(context, kind, name, *if_exists, to).map(Run::Complete)
            }
            Utility::CreateSchema { name, if_not_exists, owner } => {
                ddl::create_schema(context, name, *if_not_exists, owner.as_deref()).map(Run::Complete)
            }
            Utility::AlterSchema { name, change } => ddl::alter_schema(context, name, change).map(Run::Complete),
            Utility::DropSchemas { names, if_exists, cascade } => {
                ddl::drop_schemas(context, names, *if_exists, *cascade).map(Run::Complete)
            }
            Utility::SetSchema { kind, name, if_exists, schema } => {
                ddl::set_schema(context, kind, name, *if_exists, schema).map(Run::Complete)
            }
            Utility::AlterTable { name, if_exists, actions } => {
                ddl::alter_table(context, name, *if_exists, actions).map(Run::Complete)
            }
            Utility::RenameRelation { kind, name, if_exists, to } => {
                ddl::rename_relation(context, kind, name, *if_exists, to).map(Run::Complete)
            }
            Utility::SetConstraints { names, deferred } => {
                if !self.transactions.in_block() {
                    let message = "SET CONSTRAINTS can only be used in transaction blocks";
                    context.notice("WARNING", SqlState::NO_ACTIVE_SQL_TRANSACTION, message);
                }
                crate::deferred::set(context, names, *deferred)?;
                plain("SET CONSTRAINTS")
            }
            Utility::Comment { subject, text } => ddl::comment(context, subject, text.clone()).map(Run::Complete),
            Utility::SetRole(name) => roles::set_role(context, name.as_deref()).map(Run::Complete),
            Utility::Reset(name) => {
                match name {
                    Some(name) => return self.set(name, None, false).map(|_| Run::Complete(Tag::Plain("RESET"))),
                    None => {
                        context.settings.reset_all();
                        context.settle_names();
                    }
                }
                plain("RESET")
            }
            Utility::Show(name) => self.show(name.as_deref(), portal, out),
            Utility::Discard(what) => self.discard(what),
            Utility::Truncate { tables, restart_identity, cascade } => {
                context.session.start_statement();
                let tables = tables.iter().map(|name| ddl::table_named(context, name)).collect::<Result<Vec<_>>>()?;
                ddl::truncate(context, tables, *restart_identity, *cascade)?;
                context.session.end_statement();
                plain("TRUNCATE TABLE")
            }
            Utility::Vacuum { tables, analyze } => self.vacuum(tables, "VACUUM", *analyze),
            Utility::Analyze { tables } => self.vacuum(tables, "ANALYZE", true),
            Utility::Checkpoint => {
                context.check_superuser("do CHECKPOINT")?;
                context.db.checkpoint()?;
                plain("CHECKPOINT")
            }
            Utility::Lock { tables, mode, .. } => {
                if !self.transactions.in_block() {
                    let message = "LOCK TABLE can only be used in transaction blocks";
                    return Err(Error::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, message));
                }
                let exclusive =
                    mode.starts_with("access exclusive") || mode.starts_with("exclusive") || mode.starts_with("share");
                for name in tables {
                    let table = ddl::table_named(context, name)?;
                    context.check_lock(&table, exclusive)?;
                    if exclusive {
                        context.session.lock_table(&table)?;
                    } else {
                        context.session.use_table(&table)?;
                    }
                }
                plain("LOCK TABLE")
            }
            Utility::Copy { subject, from: true, options } => {
                let CopySubject::Table(name, columns) = subject else {
                    return Err(Error::new(SqlState::SYNTAX_ERROR, "COPY FROM needs a table"));
                };
                context.session.start_statement();
                let table = ddl::table_named(context, name)?;
                context.check_access(&[Need::own(table.oid, Privileges::INSERT)])?;
                let copy = CopyIn::begin(context, &table, columns, options)?;
                wire::copy_response(out.buffer(), b'G', copy.columns(), options.binary);
                Ok(Run::CopyIn(Box::new(copy)))
            }
            Utility::Copy { subject, options, .. } => {
                context.session.start_statement();
                let rows = copy_out(context, subject, options, out)?;
                context.session.end_statement();
                Ok(Run::Complete(Tag::Rows("COPY", rows)))
            }
            Utility::Explain { analyze, costs, timing, json, buffers, numa, body, .. } => {
                let options = explain::Options {
                    analyze: *analyze,
                    costs: *costs,
                    timing: *timing,
                    json: *json,
                    buffers: *buffers,
                    numa: *numa,
                };
                let lines = self.explain(options, body)?;
                let prepared = portal.prepared.clone();
                self.text_rows(
                    &prepared,
                    lines.into_iter().map(|line| vec![Value::Text(line)]).collect(),
                    out,
                    &portal.formats,
                )?;
                plain("EXPLAIN")
            }
            Utility::Prepare { name, types, body } => self.prepare(name, types, body),
            Utility::Execute { name, arguments } => self.execute_named(name, arguments, portal, out, describe),
            Utility::Deallocate(None) => {
                self.statements.retain(|name, _| name.is_empty());
                plain("DEALLOCATE ALL")
            }
            Utility::Deallocate(Some(name)) => {
                self.statement(name)?;
                self.statements.remove(name);
                plain("DEALLOCATE")
            }
            Utility::Declare { name, hold, query } => self.declare(name, *hold, query),
            Utility::Fetch { name, direction, moving } => {
                self.fetch(name, *direction, *moving, &portal.formats, out, describe)
            }
            Utility::Close(None) => {
                self.portals.close_all();
                plain("CLOSE CURSOR ALL")
            }
            Utility::Close(Some(name)) => {
                if !self.portals.close(name) {
                    return Err(no_cursor(name));
                }
                plain("CLOSE CURSOR")
            }
            Utility::CreateSequence { name, if_not_exists, options } => {
                ddl::create_sequence(context, name, *if_not_exists, options).map(Run::Complete)
            }
            Utility::AlterSequence { name, if_exists, options } => {
                ddl::alter_sequence(context, name, *if_exists, options).map(Run::Complete)
            }
            Utility::Drop { kind, names, if_exists, cascade } => {
                ddl::drop_objects(context, *kind, names, *if_exists, *cascade).map(Run::Complete)
            }
        }
    }

    fn alter_system(&mut self, name: &str, value: Option<&str>) -> Result<Run> {
        let all = SERVER_SETTINGS.map(|(name, _)| name);
        let names = if name.eq_ignore_ascii_case("all") && value.is_none() { &all[..] } else { &[name] };
        for name in names.iter().map(|name| name.to_ascii_lowercase()) {
            if !crate::server_settings::is_server_setting(&name) {
                return self.set_server(&name, value, "ALTER SYSTEM");
            }
            self.context.check_superuser("change the server's settings")?;
            // Kept first: when the file cannot be written, nothing has changed. A start would leave a bad value aside.
            let before = self.context.db.save_setting(&name, value.map(str::trim))?;
            if let Err(error) = self.set_server(&name, value, "ALTER SYSTEM") {
                let _ = self.context.db.save_setting(&name, before.as_deref());
                return Err(error);
            }
        }
        Ok(Run::Complete(Tag::Plain("ALTER SYSTEM")))
    }

    fn set_server(&mut self, name: &str, value: Option<&str>, tag: &'static str) -> Result<Run> {
        self.context.check_superuser("change the server's settings")?;
        let done = self.context.set_server(name, value)?;
        self.context.notice("NOTICE", SqlState::SUCCESSFUL_COMPLETION, &done);
        Ok(Run::Complete(Tag::Plain(tag)))
    }

    fn set(&mut self, name: &str, value: Option<&str>, local: bool) -> Result<Run> {
        if crate::server_settings::is_server_setting(name) {
            return match local {
                true => Err(Error::unsupported(format!("SET LOCAL {name}: it is the whole server's"))),
                false => self.set_server(name, value, "SET"),
            };
        }
        if local && !self.transactions.in_block() {
            let message = "SET LOCAL can only be used in transaction blocks";
            self.context.notice("WARNING", SqlState::NO_ACTIVE_SQL_TRANSACTION, message);
            return Ok(Run::Complete(Tag::Plain("SET")));
        }
        if name.eq_ignore_ascii_case("transaction_isolation") || name.eq_ignore_ascii_case("transaction_read_only") {
            return Err(Error::unsupported(format!("SET {name} (use SET TRANSACTION)")));
        }
        if name.to_ascii_lowercase().starts_with("enable_") {
            // It decides how statements are planned.
            self.forget_plans();
        }
        let reported = self.context.settings.set(name, value, local)?;
        self.context.settle_names();
        if reported {
            self.transactions.reported.push(name.to_ascii_lowercase());
            // The report goes out with the notices; make sure that there is a look at them.
            self.context.notice("DEBUG5", SqlState::SUCCESSFUL_COMPLETION, "setting changed");
        }
        match name.to_ascii_lowercase().as_str() {
            "application_name" => {
                let name = self.context.settings.get("application_name")?.to_string();
                self.context.session.shared().set_application(&name);
            }
            "lock_timeout" => {
                let timeout_ms = self.context.settings.milliseconds("lock_timeout");
                self.context.session.set_lock_timeout_ns(timeout_ms * 1_000_000);
            }
            _ => {}
        }
        Ok(Run::Complete(Tag::Plain("SET")))
    }

    fn show(&mut self, name: Option<&str>, portal: &Portal, out: &mut dyn Output) -> Result<Run> {
        let rows = match name {
            Some(name) => vec![vec![Value::Text(self.context.setting(name)?)]],
            None => {
                let all: Vec<_> = self.context.settings.all().map(|(definition, _)| definition).collect();
                let mut rows = Vec::with_capacity(all.len());
                for definition in all {
                    let value = self.context.setting(definition.name)?;
                    rows.push(vec![
                        Value::text(display_name(definition.name)),
                        Value::Text(value),
                        Value::text(definition.description),
                    ]);
                }
                for (name, about) in crate::server_settings::SERVER_SETTINGS {
                    rows.push(vec![Value::text(name), Value::Text(self.context.setting(name)?), Value::text(about)]);
                }
                rows
            }
        };
        self.text_rows(&portal.prepared.clone(), rows, out, &portal.formats)?;
        Ok(Run::Complete(Tag::Plain("SHOW")))
    }

    fn text_rows(
        &mut self,
        prepared: &Prepared,
        rows: Vec<Vec<Value>>,
        out: &mut dyn Output,
        formats: &[wire::Format],
    ) -> Result<()> {
        let fields = prepared.fields.as_deref().unwrap_or(&[]);
        let columns: Vec<expr::Expr> = (0..fields.len()).map(expr::Expr::Column).collect();
        for row in rows {
            data_row(out.buffer(), fields, formats, &columns, &Registers(&row), &[], &mut self.context.env())?;
        }
        Ok(())
    }

    fn discard(&mut self, what: &str) -> Result<Run> {
        let tag = match what {
            "all" => {
                if self.transactions.in_block() {
                    let message = "DISCARD ALL cannot run inside a transaction block";
                    return Err(Error::new(SqlState::ACTIVE_SQL_TRANSACTION, message));
                }
                self.portals.close_all();
                self.statements.clear();
                self.forget_plans();
                self.context.settings.reset_all();
                self.context.settle_names();
                "DISCARD ALL"
            }
            "plans" => {
                self.forget_plans();
                "DISCARD PLANS"
            }
            "sequences" => "DISCARD SEQUENCES",
            "temp" | "temporary" => "DISCARD TEMP",
            other => {
                return Err(Error::new(SqlState::SYNTAX_ERROR, format!("syntax error at or near \"{other}\"")));
            }
        };
        Ok(Run::Complete(Tag::Plain(tag)))
    }

    fn vacuum(&mut self, names: &[crate::utility::Name], tag: &'static str, analyze: bool) -> Result<Run> {
        if self.transactions.in_block() && tag == "VACUUM" {
            let message = "VACUUM cannot run inside a transaction block";
            return Err(Error::new(SqlState::ACTIVE_SQL_TRANSACTION, message));
        }
        let context = &mut self.context;
        let named = names.iter().map(|name| ddl::table_named(context, name)).collect::<Result<Vec<_>>>();
        let mut tables = named.map_err(|mut error| {
            error.position = None;
            error
        })?;
        if !analyze {
            let message = "there is nothing to vacuum";
            context.notice("NOTICE", SqlState::SUCCESSFUL_COMPLETION, message);
            return Ok(Run::Complete(Tag::Plain(tag)));
        }
        context.session.start_statement();
        if names.is_empty() {
            tables = context.definitions().tables();
        }
        for table in tables {
            if let Err(error) = context.check_table_owner(&table) {
                if !names.is_empty() {
                    return Err(error);
                }
                let message = format!("permission denied to analyze \"{}\", skipping it", table.name);
                context.notice("WARNING", SqlState::INSUFFICIENT_PRIVILEGE, &message);
                continue;
            }
            crate::analyze::analyze(context, &table)?;
        }
        context.session.end_statement();
        Ok(Run::Complete(Tag::Plain(tag)))
    }

    fn prepare(&mut self, name: &str, types: &[String], body: &str) -> Result<Run> {
        if self.statements.contains_key(name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(Error::new(SqlState::DUPLICATE_PREPARED_STATEMENT, message));
        }
        let declared = types.iter().map(|text| type_named(text).map(Some)).collect::<Result<Vec<_>>>()?;
        let mut tokens = Vec::new();
        lexer::lex(body, &mut tokens)?;
        let prepared = Prepared::new(&mut self.context, body, &tokens, &declared)?;
        if !prepared.is_planned() {
            return Err(Error::new(SqlState::SYNTAX_ERROR, "PREPARE takes a query or a data-modifying statement"));
        }
        self.statements.insert(name.to_string(), Arc::new(prepared));
        Ok(Run::Complete(Tag::Plain("PREPARE")))
    }

    fn execute_named(
        &mut self,
        name: &str,
        arguments: &[String],
        portal: &mut Portal,
        out: &mut dyn Output,
        describe: bool,
    ) -> Result<Run> {
        let mut prepared = self.statement(name)?.clone();
        if prepared.version != self.context.session.definitions_version() {
            prepared = self.renewed(&prepared)?;
            self.statements.insert(name.to_string(), prepared.clone());
        }
        if prepared.params.len() != arguments.len() {
            let message = format!("wrong number of parameters for prepared statement \"{name}\"");
            let detail = format!("Expected {} parameters but got {}.", prepared.params.len(), arguments.len());
            return Err(Error::new(SqlState::SYNTAX_ERROR, message).with_detail(detail));
        }
        let mut values = Vec::with_capacity(arguments.len());
        for (text, ty) in arguments.iter().zip(&prepared.params) {
            let tree = crate::parse::expression(text)?;
            let mut params = Params::new(Vec::new());
            let bound = expr::bind_to(&tree, ColumnType::new(*ty), true, &expr::NoColumns, &mut params)?;
            values.push(bound.expr.eval(&(), &[], &mut self.context.env())?);
        }
        let mut inner = Portal::new(prepared, values, std::mem::take(&mut portal.formats));
        self.run(&mut inner, out, 0, describe)
    }

    fn declare(&mut self, name: &str, hold: bool, query: &str) -> Result<Run> {
        if !hold && !self.transactions.in_block() {
            let message = "DECLARE CURSOR can only be used in transaction blocks";
            return Err(Error::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, message));
        }
        self.portals.check_new(name)?;
        let mut tokens = Vec::new();
        lexer::lex(query, &mut tokens)?;
        let prepared = Arc::new(Prepared::new(&mut self.context, query, &tokens, &[])?);
        if prepared.query_plan().is_none() {
            return Err(Error::new(SqlState::SYNTAX_ERROR, "DECLARE CURSOR takes a query"));
        }
        if !prepared.params.is_empty() {
            return Err(Error::new(SqlState::UNDEFINED_PARAMETER, "there is no parameter $1"));
        }
        // READ COMMITTED would take a new snapshot at the next statement; a cursor keeps to what it saw first. Its rows are
        // read now, which also lets it outlive its transaction.
        let mut source = Portal::new(prepared.clone(), Vec::new(), Vec::new());
        self.context.session.start_statement();
        let mut rows = Vec::new();
        source.rows(&mut self.context, 0, &mut |env, output, row, params| {
            rows.push(output.iter().map(|value| value.eval(&Registers(row), params, env)).collect::<Result<Vec<_>>>()?);
            Ok(())
        })?;
        self.context.session.end_statement();
        let mut portal = Portal::of_rows(prepared, rows);
        portal.set_hold(hold);
        self.portals.put(name, Box::new(portal));
        Ok(Run::Complete(Tag::Plain("DECLARE CURSOR")))
    }

    fn fetch(
        &mut self,
        name: &str,
        direction: Direction,
        moving: bool,
        formats: &[wire::Format],
        out: &mut dyn Output,
        describe: bool,
    ) -> Result<Run> {
        let mut portal = self.portals.take(name).ok_or_else(|| no_cursor(name))?;
        let prepared = portal.prepared.clone();
        let fields = prepared.fields.as_deref().unwrap_or(&[]);
        if describe
            && !moving
            && let Some(description) = &prepared.description
        {
            description.write(out.buffer(), formats);
        }
        let mut count = 0;
        let most = match direction {
            Direction::All => Some(0),
            Direction::Forward(0) => None,
            Direction::Forward(rows) => Some(rows),
        };
        let result = match most {
            None => Ok(false),
            Some(most) => portal.rows(&mut self.context, most, &mut |env, output, row, params| {
                count += 1;
                if moving {
                    return Ok(());
                }
                data_row(out.buffer(), fields, formats, output, &Registers(row), params, env)?;
                out.flush_if_large()
            }),
        };
        self.portals.put(name, portal);
        result?;
        Ok(Run::Complete(Tag::Rows(if moving { "MOVE" } else { "FETCH" }, count)))
    }
}

fn no_cursor(name: &str) -> Error {
    Error::new(SqlState::INVALID_CURSOR_NAME, format!("cursor \"{name}\" does not exist"))
}

fn type_named(text: &str) -> Result<Type> {
    let tree = crate::parse::expression(&format!("CAST(NULL AS {text})"))?;
    match tree {
        sqlparser::ast::Expr::Cast { data_type, .. } => expr::column_type(&data_type).map(|ty| ty.ty),
        _ => Err(Error::new(SqlState::UNDEFINED_OBJECT, format!("type \"{text}\" does not exist"))),
    }
}
