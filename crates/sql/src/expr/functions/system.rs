//! Functions of the session and the catalog. Most are computed by the host.

use super::super::function::{ANY, Body, Function, Volatility, effect, host, strict};
use super::int;
use homenode_types::Type::{
    self, Bool, Bytea, Float8, Int2, Int4, Int8, Name, NameArray, Numeric, Oid, PgNodeTree, Regclass, Text,
    Timestamptz, Uuid, Void,
};
use homenode_types::{Result, Value};
use std::hash::{BuildHasher, Hasher, RandomState};

const fn host_plain(name: &'static str, args: &'static [Type], result: Type) -> Function {
    Function { name, args, variadic: None, result, volatility: Volatility::Stable, body: Body::HostPlain }
}

/// Optional arguments may be null.
const fn prewarm(args: &'static [Type]) -> Function {
    Function {
        name: "pg_prewarm",
        args,
        variadic: None,
        result: Int8,
        volatility: Volatility::Volatile,
        body: Body::HostPlain,
    }
}

/// The table.
pub(super) static FUNCTIONS: &[Function] = &[
    effect("nextval", &[Regclass], Int8),
    effect("currval", &[Regclass], Int8),
    effect("lastval", &[], Int8),
    effect("setval", &[Regclass, Int8], Int8),
    effect("setval", &[Regclass, Int8, Bool], Int8),
    effect("pg_sleep", &[Float8], Void),
    effect("set_config", &[Text, Text, Bool], Text),
    effect("pg_cancel_backend", &[Int4], Bool),
    effect("pin", &[Int4, Int4], Bool),
    effect("unpin", &[Int4], Bool),
    effect("set_pool_policy", &[Text], Text),
    effect("resize_pool", &[Text], Text),
    effect("pg_prewarm", &[Regclass], Int8),
    prewarm(&[Regclass, Text]),
    prewarm(&[Regclass, Text, Text]),
    prewarm(&[Regclass, Text, Text, Int8]),
    prewarm(&[Regclass, Text, Text, Int8, Int8]),
    host("pg_numa_available", &[], Bool),
    effect("pg_terminate_backend", &[Int4], Bool),
    effect("pg_advisory_lock", &[Int8], Void),
    effect("pg_advisory_xact_lock", &[Int8], Void),
    effect("pg_try_advisory_lock", &[Int8], Bool),
    effect("pg_advisory_unlock", &[Int8], Bool),
    effect("pg_notify", &[Text, Text], Void),
    Function {
        name: "gen_random_uuid",
        args: &[],
        variadic: None,
        result: Uuid,
        volatility: Volatility::Volatile,
        body: Body::Strict(random_uuid),
    },
    host("pg_backend_pid", &[], Int4),
    host("version", &[], Text),
    host("current_database", &[], Name),
    host("current_catalog", &[], Name),
    host("current_schema", &[], Name),
    host("current_schemas", &[Bool], NameArray),
    host("current_user", &[], Name),
    host("current_role", &[], Name),
    host("session_user", &[], Name),
    host("user", &[], Name),
    host("current_setting", &[Text], Text),
    host("current_setting", &[Text, Bool], Text),
    host("txid_current", &[], Int8),
    host("pg_current_xact_id", &[], Int8),
    host("pg_is_in_recovery", &[], Bool),
    host("pg_postmaster_start_time", &[], Timestamptz),
    host("pg_conf_load_time", &[], Timestamptz),
    host("pg_my_temp_schema", &[], Oid),
    host("pg_is_other_temp_schema", &[Oid], Bool),
    host("inet_server_port", &[], Int4),
    host("pg_get_userbyid", &[Oid], Name),
    host("pg_encoding_to_char", &[Int4], Name),
    host("pg_table_is_visible", &[Oid], Bool),
    host("pg_type_is_visible", &[Oid], Bool),
    host("pg_function_is_visible", &[Oid], Bool),
    host("pg_operator_is_visible", &[Oid], Bool),
    host("pg_opclass_is_visible", &[Oid], Bool),
    host("pg_collation_is_visible", &[Oid], Bool),
    host("pg_conversion_is_visible", &[Oid], Bool),
    host("pg_ts_config_is_visible", &[Oid], Bool),
    host("pg_ts_dict_is_visible", &[Oid], Bool),
    host("pg_ts_parser_is_visible", &[Oid], Bool),
    host("pg_ts_template_is_visible", &[Oid], Bool),
    host("pg_statistics_obj_is_visible", &[Oid], Bool),
    host("pg_get_expr", &[PgNodeTree, Oid], Text),
    host("pg_get_expr", &[PgNodeTree, Oid, Bool], Text),
    host("pg_get_expr", &[Text, Oid], Text),
    host("pg_get_expr", &[Text, Oid, Bool], Text),
    host("pg_get_indexdef", &[Oid], Text),
    host("pg_get_indexdef", &[Oid, Int4, Bool], Text),
    host("pg_get_constraintdef", &[Oid], Text),
    host("pg_get_constraintdef", &[Oid, Bool], Text),
    host("pg_get_viewdef", &[Oid], Text),
    host("pg_get_viewdef", &[Oid, Bool], Text),
    host("pg_get_ruledef", &[Oid, Bool], Text),
    host("pg_get_triggerdef", &[Oid, Bool], Text),
    host("pg_partition_ancestors", &[Regclass], Regclass),
    host("pg_get_partkeydef", &[Oid], Text),
    host("pg_get_function_result", &[Oid], Text),
    host("pg_get_function_arguments", &[Oid], Text),
    host("pg_get_function_identity_arguments", &[Oid], Text),
    host("pg_get_statisticsobjdef_columns", &[Oid], Text),
    host("pg_get_serial_sequence", &[Text, Text], Text),
    host("pg_get_replica_identity_index", &[Regclass], Regclass),
    host("pg_relation_is_publishable", &[Regclass], Bool),
    host("pg_relation_filenode", &[Regclass], Oid),
    host("pg_relation_size", &[Regclass], Int8),
    host("pg_relation_size", &[Regclass, Text], Int8),
    host("pg_table_size", &[Regclass], Int8),
    host("pg_indexes_size", &[Regclass], Int8),
    host("pg_total_relation_size", &[Regclass], Int8),
    host("pg_database_size", &[Oid], Int8),
    host("pg_database_size", &[Name], Int8),
    host("pg_tablespace_location", &[Oid], Text),
    host("obj_description", &[Oid, Name], Text),
    host("obj_description", &[Oid], Text),
    host("shobj_description", &[Oid, Name], Text),
    host("col_description", &[Oid, Int4], Text),
    host("to_regclass", &[Text], Regclass),
    host("to_regtype", &[Text], Type::Regtype),
    host("has_table_privilege", &[Oid, Text], Bool),
    host("has_table_privilege", &[Text, Text], Bool),
    host("has_table_privilege", &[Name, Text, Text], Bool),
    host("has_table_privilege", &[Name, Oid, Text], Bool),
    host("has_schema_privilege", &[Oid, Text], Bool),
    host("has_schema_privilege", &[Text, Text], Bool),
    host("has_schema_privilege", &[Name, Text, Text], Bool),
    host("has_schema_privilege", &[Name, Oid, Text], Bool),
    host("has_database_privilege", &[Oid, Text], Bool),
    host("has_database_privilege", &[Text, Text], Bool),
    host("has_database_privilege", &[Name, Oid, Text], Bool),
    host("has_column_privilege", &[Oid, Int2, Text], Bool),
    host("has_sequence_privilege", &[Oid, Text], Bool),
    host("has_function_privilege", &[Oid, Text], Bool),
    host("pg_has_role", &[Oid, Text], Bool),
    host("pg_has_role", &[Text, Text], Bool),
    host("pg_has_role", &[Name, Text, Text], Bool),
    host("pg_has_role", &[Name, Oid, Text], Bool),
    host("pg_stat_get_numscans", &[Oid], Int8),
    host_plain("pg_column_size", &[ANY], Int4),
    strict("getdatabaseencoding", &[], Name, |_| Ok(Value::text("UTF8"))),
    strict("pg_char_to_encoding", &[Name], Int4, |a| Ok(Value::Int4(if a[0] == Value::text("UTF8") { 6 } else { -1 }))),
    strict("pg_client_encoding", &[], Name, |_| Ok(Value::text("UTF8"))),
    strict("pg_size_pretty", &[Int8], Text, |a| Ok(Value::Text(size_pretty(int(&a[0]) as i128)))),
    strict("pg_size_pretty", &[Numeric], Text, |a| {
        Ok(Value::Text(size_pretty(super::decimal(&a[0]).trunc().mantissa())))
    }),
    Function {
        name: "format_type",
        args: &[Oid, Int4],
        variadic: None,
        result: Text,
        volatility: Volatility::Stable,
        body: Body::Plain(format_type),
    },
    strict("hashtext", &[Text], Int4, |a| Ok(Value::Int4(fnv(super::text(&a[0]).as_bytes())))),
    strict("md5", &[Text], Text, |a| Ok(Value::Text(super::super::md5::hex(super::text(&a[0]).as_bytes())))),
    strict("md5", &[Bytea], Text, |a| match &a[0] {
        Value::Bytea(bytes) => Ok(Value::Text(super::super::md5::hex(bytes))),
        _ => Ok(Value::Null),
    }),
];

/// The type's name; `-` for no type, `???` for an unknown one.
fn format_type(a: &[Value]) -> Result<Value> {
    let Value::Oid(oid) = a[0] else { return Ok(Value::Null) };
    let typmod = a[1].as_i64().unwrap_or(-1) as i32;
    Ok(Value::Text(match Type::from_oid(oid) {
        _ if oid == 0 => "-".into(),
        None => "???".into(),
        Some(ty) => match ty.element().filter(|_| ty.name().starts_with('_')) {
            Some(element) => format!("{}[]", element.format_type(typmod)),
            None => ty.format_type(typmod),
        },
    }))
}

/// pg_size_pretty: the largest unit that leaves at least 10 of it, halves rounded up.
fn size_pretty(bytes: i128) -> String {
    let mut size = bytes;
    if size.abs() < 10 * 1024 {
        return format!("{size} bytes");
    }
    let mut halved = size / 512;
    for unit in ["kB", "MB", "GB", "TB", "PB"] {
        size = (halved + halved.signum()) / 2;
        if size.abs() < 20 * 1024 / 2 || unit == "PB" {
            return format!("{size} {unit}");
        }
        halved /= 1024;
    }
    format!("{bytes} bytes")
}

/// FNV-1a: spreads texts; PostgreSQL's own numbers are not promised anywhere.
fn fnv(bytes: &[u8]) -> i32 {
    bytes.iter().fold(0x811c_9dc5u32, |hash, b| (hash ^ *b as u32).wrapping_mul(0x0100_0193)) as i32
}

/// A version 4 UUID.
fn random_uuid(_: &[Value]) -> Result<Value> {
    let random = || RandomState::new().build_hasher().finish().to_be_bytes();
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&random());
    uuid[8..].copy_from_slice(&random());
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    Ok(Value::Uuid(uuid))
}
