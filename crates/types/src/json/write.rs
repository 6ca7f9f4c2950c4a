//! How is a document written? As `jsonb`'s output function does, or indented.

use std::fmt::{self, Display, Formatter, Write};

use super::tree::Json;
use crate::ty::Type;
use crate::value::ValueRef;

impl Display for Json<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write(self, None, out)
    }
}

/// The document with a pair or element a line (jsonb_pretty).
pub fn pretty(tree: &Json<'_>) -> String {
    let mut out = String::new();
    // Writing into a String cannot fail.
    let _ = write(tree, Some(0), &mut out);
    out
}

fn write(tree: &Json<'_>, indent: Option<usize>, out: &mut dyn Write) -> fmt::Result {
    let inner = indent.map(|indent| indent + 1);
    match tree {
        Json::Null => out.write_str("null"),
        Json::Bool(value) => write!(out, "{value}"),
        Json::Number(value) => out.write_str(&ValueRef::Numeric(*value).to_text(Type::Numeric)),
        Json::String(text) => write_string(text, out),
        Json::Array(items) => {
            out.write_char('[')?;
            for (number, item) in items.iter().enumerate() {
                separate(number, inner, out)?;
                write(item, inner, out)?;
            }
            new_line(indent, out)?;
            out.write_char(']')
        }
        Json::Object(pairs) => {
            out.write_char('{')?;
            for (number, (key, value)) in pairs.iter().enumerate() {
                separate(number, inner, out)?;
                write_string(key, out)?;
                out.write_str(": ")?;
                write(value, inner, out)?;
            }
            new_line(indent, out)?;
            out.write_char('}')
        }
    }
}

fn separate(number: usize, indent: Option<usize>, out: &mut dyn Write) -> fmt::Result {
    if number > 0 {
        out.write_str(if indent.is_some() { "," } else { ", " })?;
    }
    new_line(indent, out)
}

fn new_line(indent: Option<usize>, out: &mut dyn Write) -> fmt::Result {
    match indent {
        Some(indent) => write!(out, "\n{:1$}", "", 4 * indent),
        None => Ok(()),
    }
}

/// Appends a text as a JSON string (escape_json).
pub fn append_string(text: &str, out: &mut String) {
    let _ = write_string(text, out);
}

fn write_string(text: &str, out: &mut dyn Write) -> fmt::Result {
    out.write_char('"')?;
    let mut from = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escape = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            8 => "\\b",
            12 => "\\f",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0..0x20 => "",
            _ => continue,
        };
        out.write_str(&text[from..at])?;
        match escape {
            "" => write!(out, "\\u{byte:04x}")?,
            escape => out.write_str(escape)?,
        }
        from = at + 1;
    }
    out.write_str(&text[from..])?;
    out.write_char('"')
}
