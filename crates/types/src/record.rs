//! How is a row carried as one value? As its text: `(1,"a b",)`; nothing between commas is NULL (record_out in rowtypes.c).

use crate::ty::Type;
use crate::value::Value;

/// The text of a row of these values.
pub fn format(values: &[Value], types: impl Iterator<Item = Type>) -> String {
    let mut out = String::from("(");
    for (at, (value, ty)) in values.iter().zip(types).enumerate() {
        if at > 0 {
            out.push(',');
        }
        if !value.is_null() {
            quote(&value.as_ref().to_text(ty), &mut out);
        }
    }
    out.push(')');
    out
}

fn quote(text: &str, out: &mut String) {
    let special = |c: char| matches!(c, '"' | '\\' | '(' | ')' | ',') || c.is_ascii_whitespace();
    if !text.is_empty() && !text.contains(special) {
        return out.push_str(text);
    }
    out.push('"');
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            out.push(c);
        }
        out.push(c);
    }
    out.push('"');
}

/// The text of field `wanted` of a row in text form; `None` for NULL, and when there is no such field.
pub fn field(text: &str, wanted: usize) -> Option<String> {
    let inner = text.strip_prefix('(')?.strip_suffix(')')?;
    let mut chars = inner.chars().peekable();
    let (mut at, mut field, mut quoted, mut in_quotes) = (0, String::new(), false, false);
    while let Some(c) = chars.next() {
        match c {
            '\\' => field.push(chars.next()?),
            '"' if in_quotes && chars.peek() == Some(&'"') => field.extend(chars.next()),
            '"' => {
                in_quotes = !in_quotes;
                quoted = true;
            }
            ',' if !in_quotes => {
                if at == wanted {
                    break;
                }
                at += 1;
                field.clear();
                quoted = false;
            }
            c => field.push(c),
        }
    }
    (at == wanted && (quoted || !field.is_empty())).then_some(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_gives_back_its_fields() {
        let values = [Value::Int4(1), Value::text("a \"b\"\\,"), Value::Null, Value::text("")];
        let text = format(&values, [Type::Int4, Type::Text, Type::Text, Type::Text].into_iter());
        assert_eq!(text, r#"(1,"a ""b""\\,",,"")"#);
        let fields: Vec<_> = (0..5).map(|at| field(&text, at)).collect();
        let expected = [Some("1"), Some("a \"b\"\\,"), None, Some(""), None];
        assert_eq!(fields, expected.map(|text| text.map(str::to_owned)));
        assert_eq!(field("", 0), None);
    }
}
