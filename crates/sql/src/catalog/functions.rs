//! What do functions of the session and the catalog answer?

use super::{DATABASE_OID, constraints, description, placement, relations, text};
use crate::context::{Context, EPOCH_US};
use crate::lexer;
use homenode_engine::{CancelReason, Privileges, quote_name};
use homenode_platform::clock;
use homenode_types::{Error, Result, SqlState, Type, Value, ValueRef, array};

/// Calls a function of the host.
pub(crate) fn call(context: &mut Context, name: &str, args: &[Value]) -> Result<Value> {
    if let Some(answer) = sequences(context, name, args) {
        return answer;
    }
    if let Some(answer) = session(context, name, args) {
        return answer;
    }
    if let Some(answer) = placement::call(context, name, args) {
        return answer;
    }
    if let Some(answer) = names(context, name, args) {
        return answer;
    }
    catalog(context, name, args).unwrap_or_else(|| Err(Error::unsupported(format!("function {name}"))))
}

fn number(args: &[Value], place: usize) -> i64 {
    args.get(place).and_then(Value::as_i64).unwrap_or(0)
}

fn oid(args: &[Value], place: usize) -> u32 {
    number(args, place) as u32
}

fn string(args: &[Value], place: usize) -> &str {
    args.get(place).and_then(Value::as_str).unwrap_or("")
}

fn sequences(context: &mut Context, name: &str, args: &[Value]) -> Option<Result<Value>> {
    let needed = match name {
        "nextval" => Privileges::USAGE,
        "currval" => Privileges::SELECT,
        "setval" => Privileges::UPDATE,
        _ => Privileges::default(),
    };
    if let Err(error) = context.check_sequence(oid(args, 0), needed) {
        return Some(Err(error));
    }
    let session = &mut context.session;
    Some(match name {
        "nextval" => session.nextval(oid(args, 0)).map(Value::Int8),
        "currval" => session.currval(oid(args, 0)).map(Value::Int8),
        "lastval" => session.lastval().map(Value::Int8),
        "setval" => {
            let called = !matches!(args.get(2), Some(Value::Bool(false)));
            let value = number(args, 1);
            session.setval(oid(args, 0), value, called).map(|()| Value::Int8(value))
        }
        _ => return None,
    })
}

fn now_us() -> i64 {
    clock::unix_time_us() - EPOCH_US
}

fn session(context: &mut Context, name: &str, args: &[Value]) -> Option<Result<Value>> {
    Some(Ok(match name {
        "clock_timestamp" => Value::Timestamptz(now_us()),
        "version" => text(format!(
            "PostgreSQL {} on {}-linux, Homenode {}",
            crate::settings::SERVER_VERSION,
            std::env::consts::ARCH,
            env!("CARGO_PKG_VERSION")
        )),
        "current_database" | "current_catalog" => text(&context.database_name),
        "current_schema" => context.search_path().first().map_or(Value::Null, text),
        "current_schemas" => {
            let implicit = matches!(args.first(), Some(Value::Bool(true)));
            let path = context.search_path();
            let all: Vec<_> = path.schemas(implicit).iter().map(|schema| ValueRef::Text(schema)).collect();
            text(array::format(&all, Type::NameArray))
        }
        "session_user" => text(&context.user),
        "current_user" | "current_role" | "user" => text(context.role_name()),
        "pg_backend_pid" => Value::Int4(context.session.shared().pid as i32),
        "current_setting" => match context.setting(string(args, 0)) {
            Ok(value) => text(value),
            Err(_) if matches!(args.get(1), Some(Value::Bool(true))) => Value::Null,
            Err(error) => return Some(Err(error)),
        },
        "set_config" => {
            let local = matches!(args.get(2), Some(Value::Bool(true)));
            let set = context.settings.set(string(args, 0), Some(string(args, 1)), local);
            context.settle_names();
            match set {
                Ok(_) => text(string(args, 1)),
                Err(error) => return Some(Err(error)),
            }
        }
        "pg_sleep" => return Some(sleep(context, args)),
        "pg_cancel_backend" => return Some(cancel(context, oid(args, 0))),
        "pg_is_in_recovery" | "pg_is_other_temp_schema" => Value::Bool(false),
        "pg_my_temp_schema" => Value::Oid(0),
        "pg_postmaster_start_time" | "pg_conf_load_time" => {
            let started = context.db.sessions().iter().map(|session| session.times_us[0]).min();
            Value::Timestamptz(started.map_or_else(now_us, |us| us - EPOCH_US))
        }
        "inet_server_port" => Value::Null,
        _ => return None,
    }))
}

/// The sessions of superusers only superusers may touch, those of others their own roles' members too.
fn cancel(context: &mut Context, pid: u32) -> Result<Value> {
    if !context.is_superuser() {
        let definitions = context.definitions();
        let user = context.db.sessions().into_iter().find(|session| session.pid == pid).map(|session| session.user);
        let role = user.map(|user| definitions.role(&user).cloned());
        let may = match role {
            Some(Some(role)) => !role.superuser && definitions.is_member(context.role(), role.oid, true),
            // A name that is no role was let in by trust, with every right.
            Some(None) => false,
            None => true,
        };
        if !may {
            let message = "must be a member of the role whose query is being canceled or member of pg_signal_backend";
            return Err(Error::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
        }
    }
    Ok(Value::Bool(context.db.cancel(pid, CancelReason::User)))
}

fn sleep(context: &mut Context, args: &[Value]) -> Result<Value> {
    let seconds = match args.first() {
        Some(Value::Float8(seconds)) => *seconds,
        _ => 0.0,
    };
    let end = clock::now_ns().saturating_add((seconds.max(0.0) * 1e9) as u64);
    loop {
        context.check_interrupt()?;
        let now = clock::now_ns();
        if now >= end {
            return Ok(Value::text(""));
        }
        // Short naps, so that a cancel or a timeout is noticed.
        let nap_ns = (end - now).min(20_000_000);
        homenode_platform::task::park_timeout(homenode_platform::wait::WaitEvent::Sleep, nap_ns);
    }
}

/// `schema.name` as regclass input takes it: folded unless quoted.
fn split(input: &str) -> Result<(Option<String>, String)> {
    let mut tokens = Vec::new();
    lexer::lex(input, &mut tokens)?;
    let parts: Vec<String> = tokens.iter().filter_map(|token| lexer::identifier(input, token)).collect();
    match &parts[..] {
        [name] if tokens.len() == 1 => Ok((None, name.clone())),
        [schema, name] if tokens.len() == 3 => Ok((Some(schema.clone()), name.clone())),
        [_, schema, name] if tokens.len() == 5 => Ok((Some(schema.clone()), name.clone())),
        _ => Err(Error::new(SqlState::INVALID_NAME, "invalid name syntax")),
    }
}

fn is_visible(context: &mut Context, wanted: u32) -> bool {
    match relations::name_of(context, wanted) {
        Some((schema, name)) => {
            let path = context.search_path();
            path.shows(context.session.definitions(), &schema, &name)
        }
        None => false,
    }
}

fn shown_name(context: &mut Context, wanted: u32) -> String {
    match relations::name_of(context, wanted) {
        Some((schema, name)) => context.shown(&schema, &name),
        None if wanted == 0 => "-".into(),
        None => wanted.to_string(),
    }
}

/// Names of objects to their numbers and back.
fn names(context: &mut Context, name: &str, args: &[Value]) -> Option<Result<Value>> {
    let input = string(args, 0);
    Some(match name {
        "regclassin" | "to_regclass" => {
            let optional = name == "to_regclass";
            match lookup(context, input) {
                Ok(found) => Ok(Value::Oid(found)),
                Err(error) if optional && error.code == SqlState::UNDEFINED_TABLE => Ok(Value::Null),
                Err(error) => Err(error),
            }
        }
        "regclassout" => Ok(text(shown_name(context, oid(args, 0)))),
        "regnamespacein" => {
            let name = crate::search_path::names(input).filter(|names| names.len() == 1).and_then(|mut one| one.pop());
            let found = name.as_deref().and_then(|name| super::schema_by_name(&context.definitions(), name));
            let missing = || crate::search_path::no_schema(name.as_deref().unwrap_or(input));
            found.map(Value::Oid).ok_or_else(missing)
        }
        "regnamespaceout" => {
            let wanted = oid(args, 0);
            let found = super::schemas(&context.definitions()).into_iter().find(|(number, _)| *number == wanted);
            Ok(found.map_or_else(|| text(wanted.to_string()), |(_, schema)| text(quote_name(&schema))))
        }
        "regrolein" => match context.definitions().role(input) {
            Some(role) => Ok(Value::Oid(role.oid)),
            None => Err(Error::new(SqlState::UNDEFINED_OBJECT, format!("role \"{input}\" does not exist"))),
        },
        "regroleout" => {
            let wanted = oid(args, 0);
            let found = context.definitions().role_by_oid(wanted).map(|role| quote_name(&role.name));
            Ok(text(found.unwrap_or_else(|| if wanted == 0 { "-".to_string() } else { wanted.to_string() })))
        }
        "regprocin" => match super::procedures::by_name(input) {
            Some(number) => Ok(Value::Oid(number)),
            None => Err(Error::new(SqlState::UNDEFINED_FUNCTION, format!("function \"{input}\" does not exist"))),
        },
        "regprocout" => Ok(text(match (oid(args, 0), super::procedures::name_of(oid(args, 0))) {
            (0, _) => "-".to_string(),
            (_, Some(name)) => name.to_string(),
            (number, None) => number.to_string(),
        })),
        "regtypein" | "to_regtype" => match Type::from_name(&input.to_ascii_lowercase()) {
            Some(ty) => Ok(Value::Oid(ty.oid())),
            None if name == "to_regtype" => Ok(Value::Null),
            None => Err(Error::new(SqlState::UNDEFINED_OBJECT, format!("type \"{input}\" does not exist"))),
        },
        "regtypeout" => {
            let wanted = oid(args, 0);
            let shown = Type::from_oid(wanted).map_or_else(|| wanted.to_string(), |ty| ty.sql_name().to_string());
            Ok(text(if wanted == 0 { "-".to_string() } else { shown }))
        }
        _ => return None,
    })
}

pub(crate) fn lookup(context: &mut Context, input: &str) -> Result<u32> {
    if let Ok(number) = input.parse::<u32>() {
        return Ok(number);
    }
    let (schema, name) = split(input)?;
    relations::oid_of(context, schema.as_deref(), &name)?
        .ok_or_else(|| crate::bind::no_relation(schema.as_deref(), &name))
}

fn catalog(context: &mut Context, name: &str, args: &[Value]) -> Option<Result<Value>> {
    Some(Ok(match name {
        "pg_get_userbyid" => {
            let wanted = oid(args, 0);
            let found = context.definitions().role_by_oid(wanted).map(|role| role.name.clone());
            text(found.unwrap_or_else(|| format!("unknown (OID={wanted})")))
        }
        "pg_encoding_to_char" => text(if number(args, 0) == 6 { "UTF8" } else { "" }),
        "pg_table_is_visible" => Value::Bool(is_visible(context, oid(args, 0))),
        "pg_type_is_visible"
        | "pg_function_is_visible"
        | "pg_operator_is_visible"
        | "pg_opclass_is_visible"
        | "pg_collation_is_visible"
        | "pg_conversion_is_visible"
        | "pg_ts_config_is_visible"
        | "pg_ts_dict_is_visible"
        | "pg_ts_parser_is_visible"
        | "pg_ts_template_is_visible"
        | "pg_statistics_obj_is_visible" => Value::Bool(true),
        // Stored expressions are kept as their text.
        "pg_get_expr" => match (&args[0], args.get(2)) {
            (Value::Text(shown), Some(Value::Bool(true))) => text(without_parentheses(shown)),
            _ => args[0].clone(),
        },
        "pg_get_indexdef" => constraints::index_definition(context, oid(args, 0), number(args, 1)),
        "pg_get_constraintdef" => {
            let pretty = args.get(1) == Some(&Value::Bool(true));
            constraints::constraint_definition(context, oid(args, 0), pretty)
        }
        "pg_get_viewdef" => relations::view_definition(context, oid(args, 0)),
        "pg_get_ruledef"
        | "pg_get_triggerdef"
        // A set, and empty: see `bind::names::is_empty_set`.
        | "pg_partition_ancestors"
        | "pg_get_partkeydef"
        | "pg_get_function_result"
        | "pg_get_function_arguments"
        | "pg_get_function_identity_arguments"
        | "pg_get_statisticsobjdef_columns"
        | "pg_get_replica_identity_index"
        | "pg_tablespace_location" => Value::Null,
        "obj_description" | "shobj_description" | "col_description" => description::call(context, name, args),
        "pg_get_serial_sequence" => return Some(serial_sequence(context, args)),
        "pg_relation_is_publishable" => Value::Bool(false),
        "pg_relation_filenode" => args[0].clone(),
        "pg_relation_size" | "pg_table_size" | "pg_total_relation_size" => {
            let table = context.definitions().table_by_oid(oid(args, 0)).cloned();
            Value::Int8(table.map_or(0, |table| table.pages_estimate() as i64 * PAGE_BYTES))
        }
        "pg_indexes_size" => Value::Int8(0),
        "pg_database_size" => Value::Int8(context.db.pool().stats().high_water as i64 * PAGE_BYTES),
        "has_table_privilege" | "has_sequence_privilege" | "has_schema_privilege" | "has_any_column_privilege" => {
            return Some(crate::roles::has_privilege(context, name, args));
        }
        "pg_has_role" => return Some(crate::roles::has_role(context, args)),
        // There are no privileges on databases, columns and functions to be without.
        "has_database_privilege" | "has_column_privilege" | "has_function_privilege" => Value::Bool(true),
        "pg_stat_get_numscans" => Value::Int8(0),
        "pg_column_size" => {
            let mut bytes = Vec::new();
            args[0].as_ref().write_text(Type::Text, &mut bytes);
            Value::Int4(bytes.len() as i32)
        }
        "txid_current" | "pg_current_xact_id" => {
            let pid = context.session.shared().pid;
            let own =
                context.db.sessions().into_iter().find(|session| session.pid == pid).and_then(|session| session.txn);
            own.map_or(Value::Null, |txn| Value::Int8(txn as i64))
        }
        "current_database_oid" => Value::Oid(DATABASE_OID),
        _ => return None,
    }))
}

/// An expression without the parentheses around all of it.
fn without_parentheses(shown: &str) -> &str {
    let Some(inner) = shown.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) else { return shown };
    let mut tokens = Vec::new();
    if lexer::lex(inner, &mut tokens).is_err() {
        return shown;
    }
    let mut depth = 0;
    for token in &tokens {
        match token.text(inner) {
            "(" => depth += 1,
            ")" => depth -= 1,
            _ => {}
        }
        if depth < 0 {
            return shown;
        }
    }
    inner
}

const PAGE_BYTES: i64 = 16384;

fn serial_sequence(context: &mut Context, args: &[Value]) -> Result<Value> {
    let table = lookup(context, string(args, 0))?;
    let column = string(args, 1);
    let definitions = context.definitions();
    let Some(found) = definitions.table_by_oid(table) else { return Ok(Value::Null) };
    let place = found.column_index(column).ok_or_else(|| {
        let message = format!("column \"{column}\" of relation \"{}\" does not exist", found.name);
        Error::new(SqlState::UNDEFINED_COLUMN, message)
    })?;
    let owned = definitions.sequences().into_iter().find(|sequence| sequence.owner == Some((table, place)));
    Ok(owned.map_or(Value::Null, |sequence| {
        text(format!("{}.{}", quote_name(&sequence.schema), quote_name(&sequence.name)))
    }))
}
