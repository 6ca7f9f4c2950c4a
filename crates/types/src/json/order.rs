//! How are two documents ordered? By bytes that this makes of them; the order is compareJsonbContainers' in PostgreSQL's
//! jsonb_util.c.
//!
//! Objects are above arrays, then come booleans, numbers, strings and null; of two objects or arrays the one with more members is
//! the greater, and only then are the members looked at. An empty array that is the whole document is below everything, by an accident of
//! PostgreSQL's that its manual keeps for the sake of stored indexes.

use super::tree::Json;
use crate::key;
use crate::value::ValueRef;

const EMPTY_ARRAY: u8 = 1;
const NULL: u8 = 2;
const STRING: u8 = 3;
const NUMBER: u8 = 4;
const BOOL: u8 = 5;
const ARRAY: u8 = 6;
const OBJECT: u8 = 7;

/// Appends bytes whose order is the documents' and that are the same for equal ones (1.0 equals 1.00).
pub fn write_key(tree: &Json<'_>, out: &mut Vec<u8>) {
    match tree {
        Json::Array(items) if items.is_empty() => out.push(EMPTY_ARRAY),
        _ => append(tree, out),
    }
}

fn append(tree: &Json<'_>, out: &mut Vec<u8>) {
    match tree {
        Json::Null => out.push(NULL),
        Json::String(text) => {
            out.push(STRING);
            key::encode_text(text.as_bytes(), out);
        }
        Json::Number(value) => {
            out.push(NUMBER);
            key::encode_value(ValueRef::Numeric(*value), out);
        }
        Json::Bool(value) => out.extend_from_slice(&[BOOL, u8::from(*value)]),
        Json::Array(items) => {
            out.push(ARRAY);
            out.extend_from_slice(&(items.len() as u32).to_be_bytes());
            items.iter().for_each(|item| append(item, out));
        }
        Json::Object(pairs) => {
            out.push(OBJECT);
            out.extend_from_slice(&(pairs.len() as u32).to_be_bytes());
            for (name, value) in pairs {
                key::encode_text(name.as_bytes(), out);
                append(value, out);
            }
        }
    }
}
