//! Functions of json and jsonb. What json and jsonb have in common works on their texts and is in the table twice.

use super::super::function::{Body, Function, Volatility, strict};
use super::{int, text};
use homenode_types::Type::{Bool, Int2, Int4, Json as JsonType, Jsonb, Text, TextArray};
use homenode_types::json::{self, Json, Kind};
use homenode_types::{Error, Result, SqlState, Type, Value, array};
use std::borrow::Cow;

const fn many(
    name: &'static str,
    result: Type,
    args: &'static [Type],
    rest: Type,
    f: fn(&[Value]) -> Result<Value>,
) -> Function {
    Function { name, args, variadic: Some(rest), result, volatility: Volatility::Immutable, body: Body::Plain(f) }
}

/// What both types have.
macro_rules! shared {
    ($prefix:literal, $ty:expr) => {
        [
            strict(concat!($prefix, "_object_field"), &[$ty, Text], $ty, |a| {
                part(&a[0], json::field(doc(&a[0]), text(&a[1])))
            }),
            strict(concat!($prefix, "_object_field_text"), &[$ty, Text], Text, |a| {
                part_text(json::field(doc(&a[0]), text(&a[1])))
            }),
            strict(concat!($prefix, "_array_element"), &[$ty, Int4], $ty, |a| part(&a[0], element(&a[0], int(&a[1])))),
            strict(concat!($prefix, "_array_element_text"), &[$ty, Int4], Text, |a| {
                part_text(element(&a[0], int(&a[1])))
            }),
            strict(concat!($prefix, "_extract_path"), &[$ty, TextArray], $ty, |a| part(&a[0], by_path(a))),
            strict(concat!($prefix, "_extract_path_text"), &[$ty, TextArray], Text, |a| part_text(by_path(a))),
            many(concat!($prefix, "_extract_path"), $ty, &[$ty, Text], Text, |a| part(&a[0], by_steps(a))),
            many(concat!($prefix, "_extract_path_text"), Text, &[$ty, Text], Text, |a| part_text(by_steps(a))),
            strict(concat!($prefix, "_array_length"), &[$ty], Int4, |a| match json::kind(doc(&a[0])) {
                Kind::Array => Ok(Value::Int4(json::members(doc(&a[0])).count() as i32)),
                Kind::Object => Err(invalid("cannot get array length of a non-array")),
                _ => Err(invalid("cannot get array length of a scalar")),
            }),
            strict(concat!($prefix, "_typeof"), &[$ty], Text, |a| Ok(Value::text(json::kind(doc(&a[0])).name()))),
            strict(concat!($prefix, "_object"), &[TextArray], $ty, |a| {
                let items = array::elements(text(&a[0]), TextArray)?;
                if items.len() % 2 == 1 {
                    return Err(Error::new(SqlState::ARRAY_SUBSCRIPT_ERROR, "array must have even number of elements"));
                }
                object($ty, items.chunks_exact(2).map(|pair| (&pair[0], &pair[1])))
            }),
            strict(concat!($prefix, "_object"), &[TextArray, TextArray], $ty, |a| {
                let (keys, values) =
                    (array::elements(text(&a[0]), TextArray)?, array::elements(text(&a[1]), TextArray)?);
                if keys.len() != values.len() {
                    return Err(Error::new(SqlState::ARRAY_SUBSCRIPT_ERROR, "mismatched array dimensions"));
                }
                object($ty, keys.iter().zip(&values))
            }),
        ]
    };
}

static OF_JSON: [Function; 12] = shared!("json", JsonType);
static OF_JSONB: [Function; 12] = shared!("jsonb", Jsonb);

static OWN: &[Function] = &[
    // Of a text; other values do not come here (see `expr::json`).
    strict("to_json", &[Text], JsonType, |a| {
        let mut out = String::new();
        json::append_string(text(&a[0]), &mut out);
        Ok(Value::Text(out))
    }),
    many("row_to_json", JsonType, &[], JsonType, |a| pairs(a, ":", ",", |_| unreachable_key())),
    many("json_build_array", JsonType, &[], JsonType, |a| {
        let items: Vec<&str> = a.iter().map(value_text).collect();
        Ok(Value::Text(format!("[{}]", items.join(", "))))
    }),
    many("json_build_object", JsonType, &[], JsonType, |a| {
        pairs(a, " : ", ", ", |place| {
            let error = Error::new(SqlState::INVALID_PARAMETER_VALUE, format!("argument {place} cannot be null"));
            error.with_hint("Object keys should be text.")
        })
    }),
    many("jsonb_build_object", JsonType, &[], JsonType, |a| {
        pairs(a, " : ", ", ", |place| invalid(format!("argument {place}: key must not be null")))
    }),
    strict("json_strip_nulls", &[JsonType], JsonType, |a| json::strip_nulls(doc(&a[0])).map(Value::Text)),
    strict("jsonb_strip_nulls", &[Jsonb], Jsonb, |a| {
        let stripped = json::strip_nulls(doc(&a[0]))?;
        json::canonical(&stripped).map(Value::Jsonb)
    }),
    strict("jsonb_pretty", &[Jsonb], Text, |a| Ok(Value::Text(json::pretty(&json::parse(doc(&a[0]))?)))),
    strict("jsonb_contains", &[Jsonb, Jsonb], Bool, |a| contains(&a[0], &a[1])),
    strict("jsonb_contained", &[Jsonb, Jsonb], Bool, |a| contains(&a[1], &a[0])),
    strict("jsonb_exists", &[Jsonb, Text], Bool, |a| exists(doc(&a[0]), text(&a[1])).map(Value::Bool)),
    strict("jsonb_exists_any", &[Jsonb, TextArray], Bool, |a| {
        let keys = array::elements(text(&a[1]), TextArray)?;
        let found = keys.iter().filter_map(Value::as_str).map(|key| exists(doc(&a[0]), key));
        found.collect::<Result<Vec<_>>>().map(|found| Value::Bool(found.contains(&true)))
    }),
    strict("jsonb_exists_all", &[Jsonb, TextArray], Bool, |a| {
        let keys = array::elements(text(&a[1]), TextArray)?;
        let found = keys.iter().filter_map(Value::as_str).map(|key| exists(doc(&a[0]), key));
        found.collect::<Result<Vec<_>>>().map(|found| Value::Bool(!found.contains(&false)))
    }),
    strict("jsonb_concat", &[Jsonb, Jsonb], Jsonb, |a| {
        jsonb(json::concat(json::parse(doc(&a[0]))?, json::parse(doc(&a[1]))?))
    }),
    strict("jsonb_delete", &[Jsonb, Text], Jsonb, |a| {
        jsonb(json::delete_keys(json::parse(doc(&a[0]))?, &[text(&a[1])]))
    }),
    strict("jsonb_delete", &[Jsonb, Int2], Jsonb, |a| jsonb(json::delete_index(json::parse(doc(&a[0]))?, int(&a[1])))),
    strict("jsonb_delete", &[Jsonb, Int4], Jsonb, |a| jsonb(json::delete_index(json::parse(doc(&a[0]))?, int(&a[1])))),
    strict("jsonb_delete", &[Jsonb, TextArray], Jsonb, |a| {
        let keys = array::elements(text(&a[1]), TextArray)?;
        let keys: Vec<&str> = keys.iter().filter_map(Value::as_str).collect();
        jsonb(json::delete_keys(json::parse(doc(&a[0]))?, &keys))
    }),
    strict("jsonb_delete_path", &[Jsonb, TextArray], Jsonb, |a| {
        let steps = array::elements(text(&a[1]), TextArray)?;
        let path: Vec<Option<&str>> = steps.iter().map(Value::as_str).collect();
        jsonb(json::delete_path(json::parse(doc(&a[0]))?, &path))
    }),
    strict("jsonb_set", &[Jsonb, TextArray, Jsonb], Jsonb, |a| set(a, true)),
    strict("jsonb_set", &[Jsonb, TextArray, Jsonb, Bool], Jsonb, |a| set(a, a[3] == Value::Bool(true))),
    strict("jsonb_insert", &[Jsonb, TextArray, Jsonb], Jsonb, |a| insert(a, false)),
    strict("jsonb_insert", &[Jsonb, TextArray, Jsonb, Bool], Jsonb, |a| insert(a, a[3] == Value::Bool(true))),
];

/// The table.
pub(super) fn functions() -> impl Iterator<Item = &'static Function> {
    OF_JSON.iter().chain(&OF_JSONB).chain(OWN)
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

/// Keys of rows are the columns' names.
fn unreachable_key() -> Error {
    Error::internal("a column without a name")
}

/// The text of a json or jsonb.
pub(super) fn doc(value: &Value) -> &str {
    match value {
        Value::Text(text) | Value::Jsonb(text) => text,
        _ => "null",
    }
}

/// A part of a document, of the document's type.
fn part(of: &Value, found: Result<Option<&str>>) -> Result<Value> {
    Ok(match found? {
        None => Value::Null,
        Some(part) if matches!(of, Value::Jsonb(_)) => Value::Jsonb(part.to_string()),
        Some(part) => Value::text(part),
    })
}

fn part_text(found: Result<Option<&str>>) -> Result<Value> {
    let text = found?.map(json::scalar_text).transpose()?.flatten();
    Ok(text.map_or(Value::Null, |text| Value::Text(text.into_owned())))
}

/// In a jsonb that is a scalar, element 0 (or -1) is the scalar: PostgreSQL keeps it as an array of one.
fn element(of: &Value, index: i64) -> Result<Option<&str>> {
    match of {
        Value::Jsonb(text) if json::kind(text).is_scalar() => {
            Ok(Some(text.as_str()).filter(|_| matches!(index, 0 | -1)))
        }
        _ => json::element(doc(of), index),
    }
}

fn by_path(args: &[Value]) -> Result<Option<&str>> {
    let steps = array::elements(text(&args[1]), TextArray)?;
    walk(&args[0], &steps)
}

fn by_steps(args: &[Value]) -> Result<Option<&str>> {
    if args[0].is_null() { Ok(None) } else { walk(&args[0], &args[1..]) }
}

fn walk<'a>(of: &'a Value, steps: &[Value]) -> Result<Option<&'a str>> {
    let path: Option<Vec<&str>> = steps.iter().map(Value::as_str).collect();
    match path {
        Some(path) => json::at_path(doc(of), &path),
        None => Ok(None),
    }
}

fn jsonb(tree: Result<Json<'_>>) -> Result<Value> {
    tree.map(|tree| Value::Jsonb(tree.to_string()))
}

fn contains(left: &Value, right: &Value) -> Result<Value> {
    Ok(Value::Bool(json::contains(&json::parse(doc(left))?, &json::parse(doc(right))?)))
}

/// Is it a key of the object, an element of the array, or the string itself?
fn exists(document: &str, wanted: &str) -> Result<bool> {
    let is = |part: &str| -> Result<bool> {
        Ok(json::kind(part) == Kind::String && json::scalar_text(part)?.as_deref() == Some(wanted))
    };
    match json::kind(document) {
        Kind::Object => Ok(json::field(document, wanted)?.is_some()),
        Kind::Array => {
            for member in json::members(document) {
                if is(member?.1)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        _ => is(document),
    }
}

fn set(args: &[Value], create: bool) -> Result<Value> {
    let steps = array::elements(text(&args[1]), TextArray)?;
    let path: Vec<Option<&str>> = steps.iter().map(Value::as_str).collect();
    jsonb(json::set(json::parse(doc(&args[0]))?, &path, json::parse(doc(&args[2]))?, create))
}

fn insert(args: &[Value], after: bool) -> Result<Value> {
    let steps = array::elements(text(&args[1]), TextArray)?;
    let path: Vec<Option<&str>> = steps.iter().map(Value::as_str).collect();
    jsonb(json::insert(json::parse(doc(&args[0]))?, &path, json::parse(doc(&args[2]))?, after))
}

/// A value that has been made JSON.
fn value_text(value: &Value) -> &str {
    value.as_str().unwrap_or("null")
}

/// Keys and values in turn as an object's text.
fn pairs(args: &[Value], colon: &str, comma: &str, no_key: fn(usize) -> Error) -> Result<Value> {
    let mut out = String::from("{");
    for (number, pair) in args.chunks_exact(2).enumerate() {
        let key = pair[0].as_str().ok_or_else(|| no_key(2 * number + 1))?;
        if number > 0 {
            out.push_str(comma);
        }
        json::append_string(key, &mut out);
        out.push_str(colon);
        out.push_str(value_text(&pair[1]));
    }
    out.push('}');
    Ok(Value::Text(out))
}

/// json_object and jsonb_object: all values are strings.
fn object<'a>(ty: Type, pairs: impl Iterator<Item = (&'a Value, &'a Value)>) -> Result<Value> {
    let mut members = Vec::new();
    for (key, value) in pairs {
        let key = key
            .as_str()
            .ok_or_else(|| Error::new(SqlState::NULL_VALUE_NOT_ALLOWED, "null value not allowed for object key"))?;
        members.push((key, value.as_str()));
    }
    if ty == Jsonb {
        let tree = |value: Option<&'a str>| value.map_or(Json::Null, |text| Json::String(Cow::Borrowed(text)));
        let members = members.into_iter().map(|(key, value)| (Cow::Borrowed(key), tree(value))).collect();
        return Ok(Value::Jsonb(Json::object(members).to_string()));
    }
    let mut out = String::from("{");
    for (number, (key, value)) in members.into_iter().enumerate() {
        out.push_str(if number > 0 { ", " } else { "" });
        json::append_string(key, &mut out);
        out.push_str(" : ");
        match value {
            Some(value) => json::append_string(value, &mut out),
            None => out.push_str("null"),
        }
    }
    out.push('}');
    Ok(Value::Text(out))
}
