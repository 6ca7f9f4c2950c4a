//! What do a document's operators make of it? Joining, deleting, setting, containment; the rules are those of PostgreSQL's
//! jsonfuncs.c and jsonb_util.c.

use std::borrow::Cow;

use super::lex::{MAX_DEPTH, too_deep};
use super::path::{Kind, kind, members, scalar_text};
use super::tree::Json;
use super::write::append_string;
use crate::error::{Error, Result, SqlState};

fn invalid(message: impl Into<String>) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

/// What an operator made, unless it is nested too deep now.
fn bounded(tree: Json<'_>) -> Result<Json<'_>> {
    if tree.depth() > MAX_DEPTH { Err(too_deep()) } else { Ok(tree) }
}

/// `left || right`: two objects become one, everything else is joined as arrays.
pub fn concat<'a>(left: Json<'a>, right: Json<'a>) -> Result<Json<'a>> {
    bounded(match (left, right) {
        (Json::Object(mut left), Json::Object(right)) => {
            left.extend(right);
            Json::object(left)
        }
        (left, right) => {
            let mut items = into_items(left);
            items.extend(into_items(right));
            Json::Array(items)
        }
    })
}

fn into_items(tree: Json<'_>) -> Vec<Json<'_>> {
    match tree {
        Json::Array(items) => items,
        other => vec![other],
    }
}

/// `tree - keys`: the pairs of these keys, or the elements that are these strings. `22023` for a scalar.
pub fn delete_keys<'a>(tree: Json<'a>, keys: &[&str]) -> Result<Json<'a>> {
    match tree {
        Json::Object(mut pairs) => {
            pairs.retain(|(key, _)| !keys.contains(&key.as_ref()));
            Ok(Json::Object(pairs))
        }
        Json::Array(mut items) => {
            items.retain(|item| !matches!(item, Json::String(text) if keys.contains(&text.as_ref())));
            Ok(Json::Array(items))
        }
        _ => Err(invalid("cannot delete from scalar")),
    }
}

/// `tree - index`: an element, counted from the end when negative. `22023` for anything but an array.
pub fn delete_index(tree: Json<'_>, index: i64) -> Result<Json<'_>> {
    match tree {
        Json::Array(mut items) => {
            let at = if index < 0 { index + items.len() as i64 } else { index };
            if (0..items.len() as i64).contains(&at) {
                items.remove(at as usize);
            }
            Ok(Json::Array(items))
        }
        Json::Object(_) => Err(invalid("cannot delete from object using integer index")),
        _ => Err(invalid("cannot delete from scalar")),
    }
}

/// What is done at the end of a path.
enum Change<'a> {
    Delete,
    Set { value: Json<'a>, create: bool },
    Insert { value: Json<'a>, after: bool },
}

impl<'a> Change<'a> {
    /// The value to be added where there is none.
    fn added(&self) -> Option<Json<'a>> {
        match self {
            Change::Set { value, create: true } | Change::Insert { value, .. } => Some(value.clone()),
            _ => None,
        }
    }
}

/// `tree #- path`. `22023` for a scalar, `22P02` when a step into an array is no number, `22004` for a NULL step.
pub fn delete_path<'a>(tree: Json<'a>, path: &[Option<&'a str>]) -> Result<Json<'a>> {
    change(tree, path, &Change::Delete, "cannot delete path in scalar")
}

/// `jsonb_set`. Errors as [`delete_path`].
pub fn set<'a>(tree: Json<'a>, path: &[Option<&'a str>], value: Json<'a>, create: bool) -> Result<Json<'a>> {
    change(tree, path, &Change::Set { value, create }, "cannot set path in scalar")
}

/// `jsonb_insert`. Errors as [`delete_path`], and `22023` for a key that is there.
pub fn insert<'a>(tree: Json<'a>, path: &[Option<&'a str>], value: Json<'a>, after: bool) -> Result<Json<'a>> {
    change(tree, path, &Change::Insert { value, after }, "cannot set path in scalar")
}

fn change<'a>(tree: Json<'a>, path: &[Option<&'a str>], change: &Change<'a>, scalar: &str) -> Result<Json<'a>> {
    if !matches!(tree, Json::Array(_) | Json::Object(_)) {
        return Err(invalid(scalar));
    }
    if path.is_empty() {
        return Ok(tree);
    }
    bounded(walk(tree, path, 0, change)?)
}

fn walk<'a>(tree: Json<'a>, path: &[Option<&'a str>], level: usize, change: &Change<'a>) -> Result<Json<'a>> {
    let Some(step) = path[level] else {
        let message = format!("path element at position {} is null", level + 1);
        return Err(Error::new(SqlState::NULL_VALUE_NOT_ALLOWED, message));
    };
    let is_last = level + 1 == path.len();
    match tree {
        Json::Object(pairs) if is_last => change_pair(pairs, step, change),
        Json::Array(items) if is_last => change_item(items, array_step(step, level)?, change),
        Json::Object(mut pairs) => {
            if let Some((_, value)) = pairs.iter_mut().find(|(key, _)| key == step) {
                *value = walk(std::mem::replace(value, Json::Null), path, level + 1, change)?;
            }
            Ok(Json::Object(pairs))
        }
        Json::Array(mut items) => {
            if let Place::At(at) = place(array_step(step, level)?, items.len()) {
                let item = std::mem::replace(&mut items[at], Json::Null);
                items[at] = walk(item, path, level + 1, change)?;
            }
            Ok(Json::Array(items))
        }
        scalar => Ok(scalar),
    }
}

fn array_step(step: &str, level: usize) -> Result<i64> {
    step.trim_ascii().parse::<i32>().map(i64::from).map_err(|_| {
        let message = format!("path element at position {} is not an integer: \"{step}\"", level + 1);
        Error::new(SqlState::INVALID_TEXT_REPRESENTATION, message)
    })
}

fn change_pair<'a>(mut pairs: Vec<(Cow<'a, str>, Json<'a>)>, key: &'a str, change: &Change<'a>) -> Result<Json<'a>> {
    match (pairs.iter().position(|(known, _)| known == key), change) {
        (Some(at), Change::Delete) => {
            pairs.remove(at);
        }
        (Some(at), Change::Set { value, .. }) => pairs[at].1 = value.clone(),
        (Some(_), Change::Insert { .. }) => {
            return Err(invalid("cannot replace existing key")
                .with_hint("Try using the function jsonb_set to replace key value."));
        }
        (None, _) => pairs.extend(change.added().map(|value| (Cow::Borrowed(key), value))),
    }
    Ok(Json::object(pairs))
}

/// Where an index leads in an array.
enum Place {
    Before,
    At(usize),
    Behind,
}

fn place(index: i64, length: usize) -> Place {
    let at = if index < 0 { index + length as i64 } else { index };
    match usize::try_from(at) {
        Err(_) => Place::Before,
        Ok(at) if at < length => Place::At(at),
        Ok(_) => Place::Behind,
    }
}

fn change_item<'a>(mut items: Vec<Json<'a>>, index: i64, change: &Change<'a>) -> Result<Json<'a>> {
    match (place(index, items.len()), change) {
        (Place::At(at), Change::Delete) => {
            items.remove(at);
        }
        (Place::At(at), Change::Set { value, .. }) => items[at] = value.clone(),
        (Place::At(at), Change::Insert { value, after }) => items.insert(at + usize::from(*after), value.clone()),
        (Place::Before, _) => {
            if let Some(value) = change.added() {
                items.insert(0, value);
            }
        }
        (Place::Behind, _) => items.extend(change.added()),
    }
    Ok(Json::Array(items))
}

/// `left @> right`.
pub fn contains(left: &Json<'_>, right: &Json<'_>) -> bool {
    match (left, right) {
        // An array may contain a scalar; only the whole documents are compared so.
        (Json::Array(items), right) if !matches!(right, Json::Array(_) | Json::Object(_)) => items.contains(right),
        _ => contains_part(left, right),
    }
}

fn contains_part(left: &Json<'_>, right: &Json<'_>) -> bool {
    match (left, right) {
        (Json::Object(left), Json::Object(right)) => right.iter().all(|(key, wanted)| {
            left.iter().find(|(known, _)| known == key).is_some_and(|(_, value)| contains_part(value, wanted))
        }),
        (Json::Array(left), Json::Array(right)) => {
            right.iter().all(|wanted| left.iter().any(|item| contains_part(item, wanted)))
        }
        (Json::Object(_) | Json::Array(_), _) | (_, Json::Object(_) | Json::Array(_)) => false,
        (left, right) => left == right,
    }
}

/// The text without the pairs whose value is null, and without blanks (json_strip_nulls).
pub fn strip_nulls(text: &str) -> Result<String> {
    let mut out = String::with_capacity(text.len());
    strip_into(text.trim_ascii(), 0, &mut out)?;
    Ok(out)
}

fn strip_into(text: &str, depth: usize, out: &mut String) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    let (open, close) = match kind(text) {
        Kind::Object => ('{', '}'),
        Kind::Array => ('[', ']'),
        Kind::String => {
            append_string(&scalar_text(text)?.unwrap_or_default(), out);
            return Ok(());
        }
        _ => {
            out.push_str(text);
            return Ok(());
        }
    };
    out.push(open);
    let start = out.len();
    for member in members(text) {
        let (key, value) = member?;
        if key.is_some() && kind(value) == Kind::Null {
            continue;
        }
        if out.len() > start {
            out.push(',');
        }
        if let Some(key) = key {
            append_string(&key, out);
            out.push(':');
        }
        strip_into(value, depth + 1, out)?;
    }
    out.push(close);
    Ok(())
}
