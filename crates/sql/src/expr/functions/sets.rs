//! Functions that give rows.

use super::super::function::ANY;
use super::super::pattern;
use super::super::sets::SetFunction;
use super::json::doc;
use super::{int, text};
use homenode_types::Type::{Bool, Int2, Int2Array, Int2Vector, Int4, Json, Jsonb, Oid, OidVector, Text, TextArray};
use homenode_types::json::{self, Kind};
use homenode_types::{Error, Result, SqlState, Type, Value, array};

type Rows = Result<Vec<Vec<Value>>>;

const fn set(
    name: &'static str,
    args: &'static [Type],
    columns: &'static [(Option<&'static str>, Type)],
    rows: fn(&[Value]) -> Rows,
) -> SetFunction {
    SetFunction { name, args, columns, rows }
}

const KEY: Option<&str> = Some("key");
const VALUE: Option<&str> = Some("value");
const X_INT2: (Option<&str>, Type) = (Some("x"), Int2);
const X_OID: (Option<&str>, Type) = (Some("x"), Oid);
const N: (Option<&str>, Type) = (Some("n"), Int4);

/// The table.
pub(in crate::expr) static TABLE: &[SetFunction] = &[
    set("json_array_elements", &[Json], &[(VALUE, Json)], |a| elements(a, "json_array_elements", false)),
    set("jsonb_array_elements", &[Jsonb], &[(VALUE, Jsonb)], |a| elements(a, "jsonb_array_elements", false)),
    set("json_array_elements_text", &[Json], &[(VALUE, Text)], |a| elements(a, "json_array_elements_text", true)),
    set("jsonb_array_elements_text", &[Jsonb], &[(VALUE, Text)], |a| elements(a, "jsonb_array_elements_text", true)),
    set("json_each", &[Json], &[(KEY, Text), (VALUE, Json)], |a| each(a, "json_each", false)),
    set("jsonb_each", &[Jsonb], &[(KEY, Text), (VALUE, Jsonb)], |a| each(a, "jsonb_each", false)),
    set("json_each_text", &[Json], &[(KEY, Text), (VALUE, Text)], |a| each(a, "json_each_text", true)),
    set("jsonb_each_text", &[Jsonb], &[(KEY, Text), (VALUE, Text)], |a| each(a, "jsonb_each_text", true)),
    set("json_object_keys", &[Json], &[(None, Text)], |a| keys(a, "json_object_keys")),
    set("jsonb_object_keys", &[Jsonb], &[(None, Text)], |a| keys(a, "jsonb_object_keys")),
    set("regexp_split_to_table", &[Text, Text], &[(None, Text)], |a| {
        texts(pattern::split(text(&a[0]), text(&a[1]), ""))
    }),
    set("regexp_split_to_table", &[Text, Text, Text], &[(None, Text)], |a| {
        texts(pattern::split(text(&a[0]), text(&a[1]), text(&a[2])))
    }),
    set("regexp_matches", &[Text, Text], &[(None, TextArray)], |a| matches(a, "")),
    set("regexp_matches", &[Text, Text, Text], &[(None, TextArray)], |a| matches(a, text(&a[2]))),
    set("string_to_table", &[Text, Text], &[(None, Text)], |a| texts(Ok(split(text(&a[0]), text(&a[1]))))),
    set("_pg_expandarray", &[Int2Vector], &[X_INT2, N], |a| numbered(a, Int2Vector)),
    set("_pg_expandarray", &[OidVector], &[X_OID, N], |a| numbered(a, OidVector)),
    set("_pg_expandarray", &[Int2Array], &[X_INT2, N], |a| numbered(a, Int2Array)),
    set("generate_subscripts", &[ANY, Int4], &[(None, Int4)], |a| subscripts(a, false)),
    set("generate_subscripts", &[ANY, Int4, Bool], &[(None, Int4)], |a| subscripts(a, a[2] == Value::Bool(true))),
];

fn invalid(message: String) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

/// A part of a document as a value of the document's type, or as text.
fn shown(of: &Value, part: &str, as_text: bool) -> Result<Value> {
    Ok(match of {
        _ if as_text => json::scalar_text(part)?.map_or(Value::Null, |text| Value::Text(text.into_owned())),
        Value::Jsonb(_) => Value::Jsonb(part.to_string()),
        _ => Value::text(part),
    })
}

fn elements(args: &[Value], name: &str, as_text: bool) -> Rows {
    let binary = matches!(args[0], Value::Jsonb(_));
    let wrong = |what: &str| {
        invalid(match (binary, what) {
            (true, what) => format!("cannot extract elements from {what}"),
            (false, "an object") => format!("cannot call {name} on a non-array"),
            (false, what) => format!("cannot call {name} on {what}"),
        })
    };
    match json::kind(doc(&args[0])) {
        Kind::Array => {}
        Kind::Object => return Err(wrong("an object")),
        _ => return Err(wrong("a scalar")),
    }
    json::members(doc(&args[0])).map(|member| Ok(vec![shown(&args[0], member?.1, as_text)?])).collect()
}

fn each(args: &[Value], name: &str, as_text: bool) -> Rows {
    let what = match (json::kind(doc(&args[0])), &args[0]) {
        (Kind::Object, _) => None,
        (_, Value::Jsonb(_)) => Some(format!("cannot call {name} on a non-object")),
        (Kind::Array, _) => Some("cannot deconstruct an array as an object".to_string()),
        _ => Some("cannot deconstruct a scalar".to_string()),
    };
    if let Some(what) = what {
        return Err(invalid(what));
    }
    let pairs = json::members(doc(&args[0])).map(|member| {
        let (key, value) = member?;
        Ok(vec![Value::Text(key.unwrap_or_default().into_owned()), shown(&args[0], value, as_text)?])
    });
    pairs.collect()
}

fn keys(args: &[Value], name: &str) -> Rows {
    match json::kind(doc(&args[0])) {
        Kind::Object => {}
        Kind::Array => return Err(invalid(format!("cannot call {name} on an array"))),
        _ => return Err(invalid(format!("cannot call {name} on a scalar"))),
    }
    let keys =
        json::members(doc(&args[0])).map(|member| Ok(vec![Value::Text(member?.0.unwrap_or_default().into_owned())]));
    keys.collect()
}

fn texts(list: Result<Vec<String>>) -> Rows {
    Ok(list?.into_iter().map(|text| vec![Value::Text(text)]).collect())
}

/// The groups of the first match, or of all with flag `g`.
fn matches(args: &[Value], flags: &str) -> Rows {
    let found = pattern::matches(text(&args[0]), text(&args[1]), flags)?;
    Ok(found.into_iter().map(|groups| vec![groups]).collect())
}

/// The fields between separators; none of an empty text.
pub(super) fn split(text: &str, separator: &str) -> Vec<String> {
    match (text, separator) {
        ("", _) => Vec::new(),
        (text, "") => vec![text.to_string()],
        (text, separator) => text.split(separator).map(String::from).collect(),
    }
}

/// information_schema._pg_expandarray: elements with their numbers from 1, for JDBC's questions about keys and indexes.
fn numbered(args: &[Value], ty: Type) -> Rows {
    let items = array::elements(text(&args[0]), ty)?.into_iter().zip(1..);
    Ok(items.map(|(item, number)| vec![item, Value::Int4(number)]).collect())
}

fn subscripts(args: &[Value], reverse: bool) -> Rows {
    // The vectors of catalogs, which begin at 0, have no braces.
    let (ty, first) = if text(&args[0]).starts_with('{') { (TextArray, 1) } else { (Int2Vector, 0) };
    let count = array::elements(text(&args[0]), ty)?.len() as i32;
    if int(&args[1]) != 1 {
        return Ok(Vec::new());
    }
    let numbers = (first..first + count).map(|number| vec![Value::Int4(number)]);
    Ok(if reverse { numbers.rev().collect() } else { numbers.collect() })
}
