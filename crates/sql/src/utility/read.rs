//! How are utility statements written? One small reader for each kind, in PostgreSQL's grammar.

use super::reader::Reader;
use super::{Columns, CopyOptions, CopySubject, Direction, Level, Modes, Name, ObjectKind, SequenceOptions, Utility};
use super::{alter, roles, schema};
use crate::lexer::{self, Kind, Token};
use homenode_engine::quote_name;
use homenode_types::{Error, Result, SqlState};

/// Reads the statement if it is a utility; `None` leaves it to the SQL parser.
///
/// # Errors
/// 42601, and 0A000 for known statements that are not there.
pub fn read(source: &str, tokens: &[Token]) -> Result<Option<Utility>> {
    let mut reader = Reader::new(source, tokens);
    let r = &mut reader;
    let Some(first) = r.peek() else { return Ok(None) };
    if first.kind != Kind::Word {
        return Ok(None);
    }
    let verb = first.text(source).to_ascii_lowercase();
    r.at = 1;
    let utility = match verb.as_str() {
        "begin" => {
            let _ = r.eat("transaction") || r.eat("work");
            Utility::Begin { start: false, modes: modes(r)? }
        }
        "start" => {
            r.expect("transaction")?;
            Utility::Begin { start: true, modes: modes(r)? }
        }
        "commit" | "end" if r.eat("prepared") => return Err(Error::unsupported("two-phase commit")),
        "commit" | "end" => {
            let _ = r.eat("transaction") || r.eat("work");
            Utility::Commit { chain: chain(r) }
        }
        "rollback" | "abort" => rollback(r)?,
        "savepoint" => Utility::Savepoint(r.identifier()?),
        "release" => {
            r.eat("savepoint");
            Utility::Release(r.identifier()?)
        }
        "set" => set(r)?,
        "show" => show(r)?,
        "reset" => {
            if r.eat("all") {
                Utility::Reset(None)
            } else if r.eat("role") {
                Utility::SetRole(None)
            } else {
                Utility::Reset(Some(setting_name(r)?))
            }
        }
        "discard" => Utility::Discard(r.identifier()?),
        "truncate" => {
            r.eat("table");
            let tables = r.names()?;
            let restart_identity = r.eat_all("restart identity");
            let _ = restart_identity || r.eat_all("continue identity");
            let cascade = r.eat("cascade");
            let _ = cascade || r.eat("restrict");
            Utility::Truncate { tables, restart_identity, cascade }
        }
        "vacuum" => vacuum(r)?,
        "analyze" | "analyse" => {
            options(r)?;
            r.eat("verbose");
            Utility::Analyze { tables: vacuum_tables(r)? }
        }
        "checkpoint" => Utility::Checkpoint,
        "lock" => lock(r)?,
        "copy" => copy(r)?,
        "explain" => explain(r)?,
        "prepare" => prepare(r)?,
        "execute" => {
            let name = r.identifier()?;
            let arguments = if r.eat_symbol("(") { r.arguments()? } else { Vec::new() };
            Utility::Execute { name, arguments }
        }
        "deallocate" => {
            r.eat("prepare");
            Utility::Deallocate(if r.eat("all") { None } else { Some(r.identifier()?) })
        }
        "declare" => declare(r)?,
        "fetch" => fetch(r, false)?,
        "move" => fetch(r, true)?,
        "close" => Utility::Close(if r.eat("all") { None } else { Some(r.identifier()?) }),
        "drop" => match roles::drop(r)? {
            Some(utility) => utility,
            None => match schema::drop(r)?.map_or_else(|| drop_statement(r), |utility| Ok(Some(utility)))? {
                Some(utility) => utility,
                None => return Err(Error::unsupported(naming(r, "DROP"))),
            },
        },
        "create" if sequence_ahead(r) => create_sequence(r)?,
        "alter" if !moved_ahead(r) && !renames_ahead(r) && r.eat("sequence") => {
            let if_exists = r.eat_all("if exists");
            Utility::AlterSequence { name: r.name()?, if_exists, options: sequence_options(r)? }
        }
        "alter" if r.eat("system") => alter_system(r)?,
        "create" | "alter" => match object_statement(r, &verb)? {
            Some(utility) => utility,
            None => return refuse_objects(r, &verb),
        },
        "grant" => roles::grant(r, true)?,
        "revoke" => roles::grant(r, false)?,
        "comment" => schema::comment(r)?,
        "listen" | "notify" | "unlisten" | "do" | "call" | "cluster" | "reindex" | "refresh" | "load" | "import"
        | "security" | "reassign" | "merge" => {
            return Err(Error::unsupported(verb.to_ascii_uppercase()));
        }
        _ => return Ok(None),
    };
    r.end()?;
    Ok(Some(utility))
}

/// Whether the statement ends in `OWNER TO name`.
fn owner_ahead(r: &Reader<'_>) -> bool {
    let words = r.tokens.len().checked_sub(3).map(|from| &r.tokens[from..]);
    matches!(words, Some([owner, to, _]) if owner.is_word(r.source, "owner") && to.is_word(r.source, "to"))
}

/// Whether the statement ends in `SET SCHEMA name` or `OWNER TO name`.
fn moved_ahead(r: &Reader<'_>) -> bool {
    let words = r.tokens.len().checked_sub(3).map(|from| &r.tokens[from..]);
    let sets = |set: &Token, schema: &Token| set.is_word(r.source, "set") && schema.is_word(r.source, "schema");
    owner_ahead(r) || matches!(words, Some([set, schema, _]) if sets(set, schema))
}

/// What is read here of CREATE and ALTER, one kind of object after the other.
fn object_statement(r: &mut Reader<'_>, verb: &str) -> Result<Option<Utility>> {
    if verb == "create" {
        return roles::create(r)?.map_or_else(|| schema::create(r), |found| Ok(Some(found)));
    }
    if let Some(found) = roles::alter(r)? {
        return Ok(Some(found));
    }
    if let Some(found) = schema::alter(r)? {
        return Ok(Some(found));
    }
    if owner_ahead(r)
        && let Some(found) = roles::alter_owner(r)?
    {
        return Ok(Some(found));
    }
    if let Some(found) = schema::set_schema(r)? {
        return Ok(Some(found));
    }
    if let Some(found) = alter::rename(r)? {
        return Ok(Some(found));
    }
    alter::read(r)
}

/// Whether the statement ends in `RENAME TO name`.
fn renames_ahead(r: &Reader<'_>) -> bool {
    let words = r.tokens.len().checked_sub(3).map(|from| &r.tokens[from..]);
    matches!(words, Some([rename, to, _]) if rename.is_word(r.source, "rename") && to.is_word(r.source, "to"))
}

fn naming(r: &Reader<'_>, verb: &str) -> String {
    let next = r.peek().map(|token| token.text(r.source).to_ascii_uppercase()).unwrap_or_default();
    format!("{verb} {next}").trim_end().to_string()
}

/// CREATE and ALTER of what the library parses are left to it; the rest is named here.
fn refuse_objects(r: &mut Reader<'_>, verb: &str) -> Result<Option<Utility>> {
    const LEFT: [&str; 6] = ["table", "unlogged", "index", "unique", "global", "local"];
    if LEFT.iter().any(|word| r.word_is(word)) {
        return Ok(None);
    }
    let before = r.at;
    let replace = r.eat_all("or replace");
    if verb == "create" && r.eat("view") {
        return if r.tokens.iter().rev().take(2).any(|token| token.is_word(r.source, "option")) {
            Err(Error::unsupported("WITH CHECK OPTION"))
        } else {
            Ok(None)
        };
    }
    if r.word_is("recursive") {
        return Err(Error::unsupported("CREATE RECURSIVE VIEW"));
    }
    if !replace || !(r.word_is("temp") || r.word_is("temporary")) {
        r.at = before;
    }
    if r.word_is("materialized") {
        return Err(Error::unsupported(format!("{} MATERIALIZED VIEW", verb.to_ascii_uppercase())));
    }
    if r.word_is("temp") || r.word_is("temporary") {
        return Err(Error::unsupported("temporary tables"));
    }
    const KNOWN: [&str; 26] = [
        "view",
        "materialized",
        "schema",
        "database",
        "function",
        "procedure",
        "trigger",
        "type",
        "domain",
        "extension",
        "policy",
        "rule",
        "aggregate",
        "cast",
        "collation",
        "server",
        "publication",
        "subscription",
        "statistics",
        "tablespace",
        "event",
        "or",
        "operator",
        "language",
        "foreign",
        "system",
    ];
    if KNOWN.iter().any(|word| r.word_is(word)) {
        return Err(Error::unsupported(naming(r, &verb.to_ascii_uppercase())));
    }
    Err(r.error())
}

fn chain(r: &mut Reader<'_>) -> bool {
    let chained = r.eat_all("and chain");
    let _ = chained || r.eat_all("and no chain");
    chained
}

fn rollback(r: &mut Reader<'_>) -> Result<Utility> {
    if r.eat("prepared") {
        return Err(Error::unsupported("two-phase commit"));
    }
    let _ = r.eat("transaction") || r.eat("work");
    if r.eat("to") {
        r.eat("savepoint");
        return Ok(Utility::RollbackTo(r.identifier()?));
    }
    Ok(Utility::Rollback { chain: chain(r) })
}

fn level(r: &mut Reader<'_>) -> Result<Level> {
    if r.eat_all("read committed") || r.eat_all("read uncommitted") {
        Ok(Level::ReadCommitted)
    } else if r.eat_all("repeatable read") {
        Ok(Level::RepeatableRead)
    } else if r.eat("serializable") {
        Ok(Level::Serializable)
    } else {
        Err(r.error())
    }
}

fn modes(r: &mut Reader<'_>) -> Result<Modes> {
    let mut modes = Modes::default();
    loop {
        if r.eat_all("isolation level") {
            modes.isolation = Some(level(r)?);
        } else if r.eat_all("read only") {
            modes.read_only = Some(true);
        } else if r.eat_all("read write") {
            modes.read_only = Some(false);
        } else if !(r.eat("deferrable") || r.eat_all("not deferrable")) {
            return Ok(modes);
        }
        r.eat_symbol(",");
    }
}

fn setting_name(r: &mut Reader<'_>) -> Result<String> {
    if r.eat_all("time zone") {
        return Ok("timezone".into());
    }
    if r.eat_all("transaction isolation level") {
        return Ok("transaction_isolation".into());
    }
    if r.eat_all("session authorization") {
        return Ok("session_authorization".into());
    }
    let name = r.name()?;
    Ok(match name.schema {
        Some(prefix) => format!("{prefix}.{}", name.name),
        None => name.name,
    })
}

fn show(r: &mut Reader<'_>) -> Result<Utility> {
    Ok(Utility::Show(if r.eat("all") { None } else { Some(setting_name(r)?) }))
}

fn alter_system(r: &mut Reader<'_>) -> Result<Utility> {
    if r.eat("reset") {
        return Ok(Utility::AlterSystem { name: setting_name(r)?, value: None });
    }
    r.expect("set")?;
    let name = setting_name(r)?;
    if !r.eat_symbol("=") {
        r.expect("to")?;
    }
    let value = if r.eat("default") { None } else { Some(setting_value(r)?) };
    Ok(Utility::AlterSystem { name, value })
}

fn set(r: &mut Reader<'_>) -> Result<Utility> {
    if r.eat_all("session characteristics as transaction") {
        return Ok(Utility::SetTransaction { modes: modes(r)?, session: true });
    }
    let local = r.eat("local");
    let _ = local || r.eat("session");
    if r.eat("transaction") {
        if r.word_is("snapshot") {
            return Err(Error::unsupported("SET TRANSACTION SNAPSHOT"));
        }
        return Ok(Utility::SetTransaction { modes: modes(r)?, session: false });
    }
    if !local && r.eat("constraints") {
        let names = if r.eat("all") { Vec::new() } else { r.names()? };
        let deferred = r.eat("deferred");
        if !deferred {
            r.expect("immediate")?;
        }
        return Ok(Utility::SetConstraints { names, deferred });
    }
    if r.eat("role") {
        if local {
            return Err(Error::unsupported("SET LOCAL ROLE"));
        }
        let _ = r.eat_symbol("=") || r.eat("to");
        let name = if r.eat("none") { None } else { Some(r.string().or_else(|_| r.identifier())?) };
        return Ok(Utility::SetRole(name));
    }
    if r.word_is("authorization") {
        return Err(Error::unsupported("SET SESSION AUTHORIZATION"));
    }
    if r.eat("names") {
        let value = if r.eat("default") { None } else { Some(r.string()?) };
        return Ok(Utility::Set { name: "client_encoding".into(), value, local });
    }
    let zone = r.word_is("time");
    let name = setting_name(r)?;
    if !zone && !r.eat_symbol("=") {
        r.expect("to")?;
    }
    let value = if r.eat("default") || (zone && r.eat("local")) {
        None
    } else if name == "search_path" {
        Some(name_list(r)?)
    } else {
        Some(setting_value(r)?)
    };
    Ok(Utility::Set { name, value, local })
}

/// A list of names, each quoted where it has to be.
fn name_list(r: &mut Reader<'_>) -> Result<String> {
    let mut parts = Vec::new();
    loop {
        let is_string = r.peek().is_some_and(|token| matches!(token.kind, Kind::String | Kind::OtherString));
        let name = if is_string { r.string()? } else { r.identifier()? };
        parts.push(quote_name(&name));
        if !r.eat_symbol(",") {
            return Ok(parts.join(", "));
        }
    }
}

/// One or more values: words, numbers, strings; joined by `, ` as PostgreSQL keeps lists.
fn setting_value(r: &mut Reader<'_>) -> Result<String> {
    let mut parts = Vec::new();
    loop {
        let Some(token) = r.peek() else { return Err(r.error()) };
        let part = match token.kind {
            Kind::String | Kind::OtherString => r.string()?,
            Kind::Quoted => r.identifier()?,
            Kind::Word | Kind::Integer | Kind::Decimal => {
                r.at += 1;
                token.text(r.source).to_string()
            }
            Kind::Operator if matches!(token.text(r.source), "-" | "+") => {
                r.at += 1;
                let number =
                    r.peek().filter(|t| matches!(t.kind, Kind::Integer | Kind::Decimal)).ok_or_else(|| r.error())?;
                r.at += 1;
                format!("{}{}", token.text(r.source), number.text(r.source))
            }
            _ => return Err(r.error()),
        };
        parts.push(part);
        if !r.eat_symbol(",") {
            return Ok(parts.join(", "));
        }
    }
}

/// `(name [value], ...)`; empty when there is none.
fn options(r: &mut Reader<'_>) -> Result<Vec<(String, Option<String>)>> {
    let mut found = Vec::new();
    if !r.eat_symbol("(") {
        return Ok(found);
    }
    for text in r.arguments()? {
        let mut tokens = Vec::new();
        lexer::lex(&text, &mut tokens)?;
        let mut inner = Reader::new(&text, &tokens);
        let name = inner.identifier()?;
        let value = match inner.peek() {
            None => None,
            Some(token) if matches!(token.kind, Kind::String | Kind::OtherString) => Some(inner.string()?),
            Some(_) => Some(inner.rest()?),
        };
        found.push((name, value));
    }
    Ok(found)
}

fn is_on(value: &Option<String>) -> Result<bool> {
    match value.as_deref().map(str::to_ascii_lowercase).as_deref() {
        None | Some("true" | "on" | "1") => Ok(true),
        Some("false" | "off" | "0") => Ok(false),
        Some(other) => {
            Err(Error::new(SqlState::SYNTAX_ERROR, format!("option requires a Boolean value, not \"{other}\"")))
        }
    }
}

fn vacuum_tables(r: &mut Reader<'_>) -> Result<Vec<Name>> {
    let mut tables = Vec::new();
    while r.peek().is_some() {
        tables.push(r.name()?);
        if r.eat_symbol("(") {
            r.arguments()?;
        }
        if !r.eat_symbol(",") {
            break;
        }
    }
    Ok(tables)
}

fn vacuum(r: &mut Reader<'_>) -> Result<Utility> {
    let mut analyze = false;
    for (name, value) in options(r)? {
        analyze |= name == "analyze" && is_on(&value)?;
    }
    while r.word_is("full") || r.word_is("freeze") || r.word_is("verbose") {
        r.at += 1;
    }
    analyze |= r.eat("analyze") || r.eat("analyse");
    Ok(Utility::Vacuum { tables: vacuum_tables(r)?, analyze })
}

fn lock(r: &mut Reader<'_>) -> Result<Utility> {
    r.eat("table");
    let tables = r.names()?;
    let mut mode = String::from("access exclusive");
    if r.eat("in") {
        let mut words = Vec::new();
        while !r.word_is("mode") {
            words.push(r.identifier()?);
        }
        r.expect("mode")?;
        mode = words.join(" ");
    }
    Ok(Utility::Lock { tables, mode, nowait: r.eat("nowait") })
}

fn copy(r: &mut Reader<'_>) -> Result<Utility> {
    let subject = if r.eat_symbol("(") {
        let from = r.at;
        let parts = r.arguments()?;
        if parts.is_empty() {
            return Err(r.error());
        }
        let (first, last) = (r.tokens[from], r.tokens[r.at - 2]);
        CopySubject::Query(r.source[first.start as usize..last.end as usize].to_string())
    } else {
        let table = r.name()?;
        let mut columns = Vec::new();
        if r.eat_symbol("(") {
            loop {
                columns.push(r.identifier()?);
                if !r.eat_symbol(",") {
                    break;
                }
            }
            r.expect_symbol(")")?;
        }
        CopySubject::Table(table, columns)
    };
    let from = r.eat("from");
    if !from {
        r.expect("to")?;
    }
    if !(r.eat("stdin") || r.eat("stdout")) {
        return Err(Error::unsupported("COPY with a server-side file or program"));
    }
    let options = copy_options(r)?;
    if from && r.word_is("where") {
        return Err(Error::unsupported("COPY FROM ... WHERE"));
    }
    Ok(Utility::Copy { subject, from, options })
}

fn copy_options(r: &mut Reader<'_>) -> Result<CopyOptions> {
    r.eat("with");
    let mut found = options(r)?;
    // The old form: CSV HEADER DELIMITER ',' NULL ''.
    while let Some(token) = r.peek() {
        if token.kind != Kind::Word || token.is_word(r.source, "where") {
            break;
        }
        let name = r.identifier()?;
        match name.as_str() {
            "csv" | "binary" => found.push(("format".into(), Some(name))),
            "header" if r.eat("match") => found.push((name, Some("match".into()))),
            "force" => {
                let name = if r.eat("quote") {
                    "force_quote"
                } else if r.eat("not") {
                    r.expect("null")?;
                    "force_not_null"
                } else {
                    r.expect("null")?;
                    "force_null"
                };
                found.push((name.into(), Some(old_columns(r)?)));
            }
            "delimiter" | "null" | "quote" | "escape" => {
                r.eat("as");
                let value = r.string()?;
                found.push((name, Some(value)));
            }
            _ => found.push((name, None)),
        }
    }
    let mut binary = false;
    let csv = match found.iter().rev().find(|(name, _)| name == "format").and_then(|(_, value)| value.as_deref()) {
        None | Some("text") => false,
        Some(format) if format.eq_ignore_ascii_case("csv") => true,
        Some(format) if format.eq_ignore_ascii_case("binary") => {
            binary = true;
            false
        }
        Some(format) => {
            let message = format!("COPY format \"{format}\" not recognized");
            return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
        }
    };
    let mut options = CopyOptions {
        binary,
        csv,
        header_match: false,
        force_quote: Columns::Named(Vec::new()),
        force_not_null: Columns::Named(Vec::new()),
        force_null: Columns::Named(Vec::new()),
        delimiter: if csv { b',' } else { b'\t' },
        null: if csv { String::new() } else { "\\N".into() },
        header: false,
        quote: b'"',
        escape: b'"',
    };
    let mut escape_given = false;
    for (name, value) in &found {
        match name.as_str() {
            "format" | "freeze" => {}
            "delimiter" | "null" if binary => {
                let message = format!("cannot specify {} in BINARY mode", name.to_ascii_uppercase());
                return Err(Error::new(SqlState::SYNTAX_ERROR, message));
            }
            "header" if binary => {
                return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, "cannot specify HEADER in BINARY mode"));
            }
            "quote" | "escape" | "force_quote" | "force_not_null" | "force_null" if !csv => {
                let shown = name.replace('_', " ");
                let message = match name.as_str() {
                    "quote" | "escape" => format!("COPY {name} available only in CSV mode"),
                    _ => format!("COPY {shown} available only in CSV mode"),
                };
                return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
            }
            "header" if value.as_deref().is_some_and(|value| value.eq_ignore_ascii_case("match")) => {
                (options.header, options.header_match) = (true, true);
            }
            "header" => options.header = is_on(value)?,
            "force_quote" => options.force_quote = column_list(name, value)?,
            "force_not_null" => options.force_not_null = column_list(name, value)?,
            "force_null" => options.force_null = column_list(name, value)?,
            "null" => options.null = value.clone().unwrap_or_default(),
            "delimiter" => options.delimiter = one_byte("delimiter", value)?,
            "quote" => options.quote = one_byte("quote", value)?,
            "escape" => {
                escape_given = true;
                options.escape = one_byte("escape", value)?;
            }
            "encoding"
                if value.as_deref().is_some_and(|v| matches!(v.to_ascii_lowercase().as_str(), "utf8" | "utf-8")) => {}
            other => return Err(Error::unsupported(format!("COPY option \"{other}\""))),
        }
    }
    if !escape_given {
        options.escape = options.quote;
    }
    Ok(options)
}

/// The columns of an option in its old form: `*`, or names without parentheses.
fn old_columns(r: &mut Reader<'_>) -> Result<String> {
    if r.eat_symbol("*") {
        return Ok("*".into());
    }
    let mut names = vec![homenode_engine::quote_name(&r.identifier()?)];
    while r.eat_symbol(",") {
        names.push(homenode_engine::quote_name(&r.identifier()?));
    }
    Ok(format!("({})", names.join(", ")))
}

/// The columns of an option: `*`, or names in parentheses.
fn column_list(option: &str, value: &Option<String>) -> Result<Columns> {
    let text = value.as_deref().unwrap_or("");
    let mut tokens = Vec::new();
    lexer::lex(text, &mut tokens)?;
    let mut r = Reader::new(text, &tokens);
    if r.eat_symbol("*") {
        return Ok(Columns::All);
    }
    let mut names = Vec::new();
    if !r.eat_symbol("(") {
        let message = format!("argument to option \"{option}\" must be a list of column names");
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    loop {
        names.push(r.identifier()?);
        if !r.eat_symbol(",") {
            return Ok(Columns::Named(names));
        }
    }
}

fn one_byte(what: &str, value: &Option<String>) -> Result<u8> {
    match value.as_deref().map(str::as_bytes) {
        Some([byte]) => Ok(*byte),
        _ => {
            Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, format!("COPY {what} must be a single one-byte character")))
        }
    }
}

fn explain(r: &mut Reader<'_>) -> Result<Utility> {
    let (mut analyze, mut verbose, mut costs, mut json, mut timing) = (false, false, true, false, true);
    let (mut buffers, mut numa) = (false, false);
    if r.peek().is_some_and(|token| token.is(r.source, "(")) {
        for (name, value) in options(r)? {
            match name.as_str() {
                "analyze" => analyze = is_on(&value)?,
                "verbose" => verbose = is_on(&value)?,
                "costs" => costs = is_on(&value)?,
                "timing" => timing = is_on(&value)?,
                "format" => match value.as_deref().map(str::to_ascii_lowercase).as_deref() {
                    Some("text") => json = false,
                    Some("json") => json = true,
                    _ => return Err(Error::unsupported("EXPLAIN format")),
                },
                "buffers" => buffers = is_on(&value)?,
                "numa" => numa = is_on(&value)?,
                "summary" | "wal" | "settings" => {
                    is_on(&value)?;
                }
                other => {
                    return Err(Error::new(SqlState::SYNTAX_ERROR, format!("unrecognized EXPLAIN option \"{other}\"")));
                }
            }
        }
    } else {
        analyze = r.eat("analyze") || r.eat("analyse");
        verbose = r.eat("verbose");
    }
    if numa && !analyze {
        let message = "EXPLAIN option NUMA requires ANALYZE";
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    Ok(Utility::Explain { analyze, verbose, costs, json, timing, buffers, numa, body: r.rest()? })
}

fn prepare(r: &mut Reader<'_>) -> Result<Utility> {
    if r.eat("transaction") {
        return Err(Error::unsupported("two-phase commit"));
    }
    let name = r.identifier()?;
    let types = if r.eat_symbol("(") { r.arguments()? } else { Vec::new() };
    r.expect("as")?;
    Ok(Utility::Prepare { name, types, body: r.rest()? })
}

fn declare(r: &mut Reader<'_>) -> Result<Utility> {
    let name = r.identifier()?;
    loop {
        if r.eat("binary") {
            return Err(Error::unsupported("DECLARE BINARY CURSOR"));
        }
        if r.word_is("scroll") {
            return Err(Error::unsupported("DECLARE SCROLL CURSOR"));
        }
        if !(r.eat("insensitive") || r.eat("asensitive") || r.eat_all("no scroll")) {
            break;
        }
    }
    r.expect("cursor")?;
    let hold = r.eat_all("with hold");
    let _ = hold || r.eat_all("without hold");
    r.expect("for")?;
    Ok(Utility::Declare { name, hold, query: r.rest()? })
}

fn fetch(r: &mut Reader<'_>, moving: bool) -> Result<Utility> {
    let backward = ["prior", "first", "last", "absolute", "relative", "backward"];
    if backward.iter().any(|word| r.word_is(word)) && r.tokens.len() > 2 {
        return Err(Error::unsupported("FETCH in a direction other than forward"));
    }
    let forward = r.tokens.len() > 2 && r.eat("forward");
    let direction = if r.tokens.len() > 2 && r.eat("all") {
        Direction::All
    } else if r.tokens.len() > 2 && r.eat("next") {
        Direction::Forward(1)
    } else if r.peek().is_some_and(|token| token.kind == Kind::Integer) {
        Direction::Forward(r.integer()?.unsigned_abs())
    } else if r.peek().is_some_and(|token| token.is(r.source, "-")) {
        return Err(Error::unsupported("FETCH in a direction other than forward"));
    } else {
        Direction::Forward(1)
    };
    let _ = forward;
    let _ = r.eat("from") || r.eat("in");
    Ok(Utility::Fetch { name: r.identifier()?, direction, moving })
}

fn drop_statement(r: &mut Reader<'_>) -> Result<Option<Utility>> {
    let kind = if r.eat("table") {
        ObjectKind::Table
    } else if r.eat("index") {
        r.eat("concurrently");
        ObjectKind::Index
    } else if r.eat("sequence") {
        ObjectKind::Sequence
    } else if r.eat("view") {
        ObjectKind::View
    } else {
        return Ok(None);
    };
    let if_exists = r.eat_all("if exists");
    let names = r.names()?;
    let cascade = r.eat("cascade");
    let _ = cascade || r.eat("restrict");
    Ok(Some(Utility::Drop { kind, names, if_exists, cascade }))
}

fn sequence_ahead(r: &mut Reader<'_>) -> bool {
    let before = r.at;
    let _ = r.eat("unlogged");
    let found = r.eat("sequence");
    if !found {
        r.at = before;
    }
    found
}

fn create_sequence(r: &mut Reader<'_>) -> Result<Utility> {
    let if_not_exists = r.eat_all("if not exists");
    Ok(Utility::CreateSequence { name: r.name()?, if_not_exists, options: sequence_options(r)? })
}

fn sequence_options(r: &mut Reader<'_>) -> Result<SequenceOptions> {
    sequence_options_until(r, |_| false)
}

/// Options of a sequence up to where `ended` says, or the statement's end.
pub(super) fn sequence_options_until(
    r: &mut Reader<'_>,
    ended: impl Fn(&Reader<'_>) -> bool,
) -> Result<SequenceOptions> {
    let mut options = SequenceOptions::default();
    while r.peek().is_some() && !ended(r) {
        if r.eat("increment") {
            r.eat("by");
            options.increment = Some(r.integer()?);
        } else if r.eat("minvalue") {
            options.min = Some(Some(r.integer()?));
        } else if r.eat("maxvalue") {
            options.max = Some(Some(r.integer()?));
        } else if r.eat_all("no minvalue") {
            options.min = Some(None);
        } else if r.eat_all("no maxvalue") {
            options.max = Some(None);
        } else if r.eat("start") {
            r.eat("with");
            options.start = Some(r.integer()?);
        } else if r.eat("restart") {
            let with = r.eat("with");
            let number = with || r.peek().is_some_and(|t| t.kind == Kind::Integer || t.is(r.source, "-"));
            options.restart = Some(if number { Some(r.integer()?) } else { None });
        } else if r.eat("cache") {
            options.cache = Some(r.integer()?);
        } else if r.eat("cycle") {
            options.cycle = Some(true);
        } else if r.eat_all("no cycle") {
            options.cycle = Some(false);
        } else if r.eat("as") {
            options.ty = Some(r.identifier()?);
        } else if r.eat_all("owned by") {
            options.owned_by = Some(owner(r)?);
        } else {
            return Err(r.error());
        }
    }
    Ok(options)
}

fn owner(r: &mut Reader<'_>) -> Result<Option<(Name, String)>> {
    if r.eat("none") { Ok(None) } else { r.column().map(Some) }
}
