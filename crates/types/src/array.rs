//! How are arrays carried? As their text: `{1,2,NULL}` for arrays, `1 2` for the vectors of catalogs.
//!
//! They have one dimension.

use crate::error::{Error, Result, SqlState};
use crate::ty::{ColumnType, Type};
use crate::value::{Value, ValueRef};

fn is_vector(ty: Type) -> bool {
    matches!(ty, Type::Int2Vector | Type::OidVector)
}

/// The elements of an array in text form; `ty` is the array's type.
pub fn elements(text: &str, ty: Type) -> Result<Vec<Value>> {
    let element = ColumnType::new(ty.element().unwrap_or(Type::Text));
    if is_vector(ty) {
        return text.split_ascii_whitespace().map(|t| Value::parse_text(t, element)).collect();
    }
    let items = split(text).ok_or_else(|| {
        Error::new(SqlState::INVALID_TEXT_REPRESENTATION, format!("malformed array literal: \"{text}\""))
    })?;
    items
        .into_iter()
        .map(|item| match item {
            None => Ok(Value::Null),
            Some(s) => Value::parse_text(&s, element),
        })
        .collect()
}

/// Two arrays in text form as one.
pub fn join(left: &str, right: &str) -> String {
    let inside = |array| str::strip_suffix(str::strip_prefix(array, '{').unwrap_or(array), '}').unwrap_or(array);
    match (inside(left), inside(right)) {
        ("", _) => right.to_owned(),
        (_, "") => left.to_owned(),
        (left, right) => format!("{{{left},{right}}}"),
    }
}

/// Splits `{a,"b c",NULL}`; `None` for bad syntax.
fn split(text: &str) -> Option<Vec<Option<String>>> {
    let inner = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    if inner.trim().is_empty() {
        return Some(Vec::new());
    }
    let mut items = Vec::new();
    let mut chars = inner.chars();
    let (mut item, mut quoted, mut in_quotes) = (String::new(), false, false);
    while let Some(c) = chars.next() {
        match c {
            '\\' => item.push(chars.next()?),
            '"' => {
                in_quotes = !in_quotes;
                quoted = true;
            }
            _ if in_quotes => item.push(c),
            ',' => items.push(finish_item(&mut item, &mut quoted)?),
            '{' | '}' => return None,
            c if c.is_ascii_whitespace() && item.is_empty() => {}
            c => item.push(c),
        }
    }
    if in_quotes {
        return None;
    }
    items.push(finish_item(&mut item, &mut quoted)?);
    Some(items)
}

fn finish_item(item: &mut String, quoted: &mut bool) -> Option<Option<String>> {
    let text = std::mem::take(item);
    if std::mem::take(quoted) {
        return Some(Some(text));
    }
    let text = text.trim_end();
    if text.is_empty() {
        return None;
    }
    Some(if text.eq_ignore_ascii_case("null") { None } else { Some(text.to_string()) })
}

/// The text form of an array of type `ty` with these elements.
pub fn format(items: &[ValueRef<'_>], ty: Type) -> String {
    let element = ty.element().unwrap_or(Type::Text);
    let mut out = Vec::new();
    let vector = is_vector(ty);
    if !vector {
        out.push(b'{');
    }
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push(if vector { b' ' } else { b',' });
        }
        match item {
            ValueRef::Null => out.extend_from_slice(b"NULL"),
            _ => {
                let at = out.len();
                item.write_text(element, &mut out);
                quote_item(&mut out, at);
            }
        }
    }
    if !vector {
        out.push(b'}');
    }
    String::from_utf8(out).unwrap_or_default()
}

/// Puts an item in quotes when it would not be read back as it is (array_out).
fn quote_item(out: &mut Vec<u8>, at: usize) {
    let item = &out[at..];
    let special = |b: &u8| matches!(b, b'"' | b'\\' | b'{' | b'}' | b',') || b.is_ascii_whitespace();
    if !item.is_empty() && !item.eq_ignore_ascii_case(b"null") && !item.iter().any(special) {
        return;
    }
    let item = out.split_off(at);
    out.push(b'"');
    for b in item {
        if matches!(b, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(b);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_and_format_are_inverse() {
        let text = "{a,\"b c\",NULL,\"nu\\\"ll\",\"NULL\",\"\"}";
        let items = elements(text, Type::TextArray).unwrap();
        assert_eq!(items.len(), 6);
        assert!(items[2].is_null());
        let refs: Vec<_> = items.iter().map(Value::as_ref).collect();
        assert_eq!(format(&refs, Type::TextArray), text);
        assert_eq!(elements("{ 1 , 2 }", Type::Int4Array).unwrap(), [Value::Int4(1), Value::Int4(2)]);
        assert_eq!(elements("1 2", Type::Int2Vector).unwrap().len(), 2);
        assert_eq!(elements("{}", Type::Int4Array).unwrap(), []);
        for bad in ["", "{", "{a,}", "{{1},{2}}", "{\"a}"] {
            assert!(elements(bad, Type::TextArray).is_err(), "{bad}");
        }
    }
}
