//! Which functions do catalogs name? Those that read and write values of types, with PostgreSQL's own numbers (pg_proc.dat): drivers
//! tell kinds of types by them.

use super::relations::table;
use super::{PG_CATALOG_OID, ROLE_OID, flag, oid, text};
use crate::context::Context;
use crate::virtual_table::{Rows, VirtualTable};
use homenode_types::Type::{Bool, Char, Int2, Name, Oid, OidVector, Text, TextArray};
use homenode_types::{Result, TypeInfo, Value};

type Function = (u32, &'static str);

/// Input, output, receive and send functions by type.
#[rustfmt::skip]
const INPUT_OUTPUT: &[(u32, [Function; 4])] = &[
    (16, [(1242, "boolin"), (1243, "boolout"), (2436, "boolrecv"), (2437, "boolsend")]),
    (17, [(1244, "byteain"), (31, "byteaout"), (2412, "bytearecv"), (2413, "byteasend")]),
    (18, [(1245, "charin"), (33, "charout"), (2434, "charrecv"), (2435, "charsend")]),
    (19, [(34, "namein"), (35, "nameout"), (2422, "namerecv"), (2423, "namesend")]),
    (20, [(460, "int8in"), (461, "int8out"), (2408, "int8recv"), (2409, "int8send")]),
    (21, [(38, "int2in"), (39, "int2out"), (2404, "int2recv"), (2405, "int2send")]),
    (22, [(40, "int2vectorin"), (41, "int2vectorout"), (2410, "int2vectorrecv"), (2411, "int2vectorsend")]),
    (23, [(42, "int4in"), (43, "int4out"), (2406, "int4recv"), (2407, "int4send")]),
    (24, [(44, "regprocin"), (45, "regprocout"), (2444, "regprocrecv"), (2445, "regprocsend")]),
    (25, [(46, "textin"), (47, "textout"), (2414, "textrecv"), (2415, "textsend")]),
    (26, [(1798, "oidin"), (1799, "oidout"), (2418, "oidrecv"), (2419, "oidsend")]),
    (28, [(50, "xidin"), (51, "xidout"), (2440, "xidrecv"), (2441, "xidsend")]),
    (30, [(54, "oidvectorin"), (55, "oidvectorout"), (2420, "oidvectorrecv"), (2421, "oidvectorsend")]),
    (114, [(321, "json_in"), (322, "json_out"), (323, "json_recv"), (324, "json_send")]),
    (194, [(195, "pg_node_tree_in"), (196, "pg_node_tree_out"), (197, "pg_node_tree_recv"), (198, "pg_node_tree_send")]),
    (700, [(200, "float4in"), (201, "float4out"), (2424, "float4recv"), (2425, "float4send")]),
    (701, [(214, "float8in"), (215, "float8out"), (2426, "float8recv"), (2427, "float8send")]),
    (705, [(109, "unknownin"), (110, "unknownout"), (2416, "unknownrecv"), (2417, "unknownsend")]),
    (1042, [(1044, "bpcharin"), (1045, "bpcharout"), (2430, "bpcharrecv"), (2431, "bpcharsend")]),
    (1043, [(1046, "varcharin"), (1047, "varcharout"), (2432, "varcharrecv"), (2433, "varcharsend")]),
    (1082, [(1084, "date_in"), (1085, "date_out"), (2468, "date_recv"), (2469, "date_send")]),
    (1083, [(1143, "time_in"), (1144, "time_out"), (2470, "time_recv"), (2471, "time_send")]),
    (1114, [(1312, "timestamp_in"), (1313, "timestamp_out"), (2474, "timestamp_recv"), (2475, "timestamp_send")]),
    (1184, [(1150, "timestamptz_in"), (1151, "timestamptz_out"), (2476, "timestamptz_recv"), (2477, "timestamptz_send")]),
    (1186, [(1160, "interval_in"), (1161, "interval_out"), (2478, "interval_recv"), (2479, "interval_send")]),
    (1700, [(1701, "numeric_in"), (1702, "numeric_out"), (2460, "numeric_recv"), (2461, "numeric_send")]),
    (2205, [(2218, "regclassin"), (2219, "regclassout"), (2452, "regclassrecv"), (2453, "regclasssend")]),
    (2206, [(2220, "regtypein"), (2221, "regtypeout"), (2454, "regtyperecv"), (2455, "regtypesend")]),
    (2249, [(2290, "record_in"), (2291, "record_out"), (2402, "record_recv"), (2403, "record_send")]),
    (2278, [(2298, "void_in"), (2299, "void_out"), (3120, "void_recv"), (3121, "void_send")]),
    (2950, [(2952, "uuid_in"), (2953, "uuid_out"), (2961, "uuid_recv"), (2962, "uuid_send")]),
    (3802, [(3806, "jsonb_in"), (3804, "jsonb_out"), (3805, "jsonb_recv"), (3803, "jsonb_send")]),
    (4089, [(4084, "regnamespacein"), (4085, "regnamespaceout"), (4087, "regnamespacerecv"), (4088, "regnamespacesend")]),
    (4096, [(4098, "regrolein"), (4092, "regroleout"), (4094, "regrolerecv"), (4095, "regrolesend")]),
];

/// The same of all array types.
const ARRAYS: [Function; 4] = [(750, "array_in"), (751, "array_out"), (2400, "array_recv"), (2401, "array_send")];
/// What subscripts of arrays are computed by.
const ARRAY_SUBSCRIPT: Function = (6179, "array_subscript_handler");

/// Numbers of the functions that subscript, read, write, receive and send values of the type; 0 where there is none.
pub(super) fn of_type(info: &TypeInfo) -> [u32; 5] {
    let (subscript, functions) = match INPUT_OUTPUT.iter().find(|(ty, _)| *ty == info.oid) {
        Some((_, functions)) => (0, Some(functions)),
        None if info.element.is_some() => (ARRAY_SUBSCRIPT.0, Some(&ARRAYS)),
        None => (0, None),
    };
    let [input, output, receive, send] = functions.map_or([0; 4], |functions| functions.map(|(number, _)| number));
    [subscript, input, output, receive, send]
}

fn all() -> impl Iterator<Item = Function> {
    INPUT_OUTPUT.iter().flat_map(|(_, functions)| functions).chain(&ARRAYS).chain([&ARRAY_SUBSCRIPT]).copied()
}

/// The number of a function by its name, with or without `pg_catalog`.
pub(super) fn by_name(name: &str) -> Option<u32> {
    let name = name.strip_prefix("pg_catalog.").unwrap_or(name);
    all().find(|(_, known)| *known == name).map(|(number, _)| number)
}

/// The name of a function by its number.
pub(super) fn name_of(number: u32) -> Option<&'static str> {
    all().find(|(known, _)| *known == number).map(|(_, name)| name)
}

pub(super) static TABLES: &[VirtualTable] = &[table!(
    "pg_proc",
    1255,
    [
        ("oid", Oid),
        ("proname", Name),
        ("pronamespace", Oid),
        ("proowner", Oid),
        ("prolang", Oid),
        ("prokind", Char),
        ("prosecdef", Bool),
        ("proretset", Bool),
        ("provolatile", Char),
        ("pronargs", Int2),
        ("prorettype", Oid),
        ("proargtypes", OidVector),
        ("proargnames", TextArray),
        ("prosrc", Text),
        ("proacl", TextArray),
    ],
    pg_proc
)];

fn pg_proc(_: &mut Context) -> Result<Rows> {
    // All of them take one internal or text argument; what type it is called says nothing to anyone.
    let rows = all().map(|(number, name)| {
        let mut row = vec![oid(number), text(name), oid(PG_CATALOG_OID), oid(ROLE_OID), oid(12), text("f")];
        row.extend([flag(false), flag(false), text("i"), Value::Int2(1), oid(2281), text("2281")]);
        row.extend([Value::Null, text(name), Value::Null]);
        row
    });
    Ok(rows.collect())
}
