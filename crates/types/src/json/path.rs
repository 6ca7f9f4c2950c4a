//! Where is a part of a document? Parts are cut out of the text, without a tree.
//!
//! Texts here have been checked when they were stored or read; of damaged ones whatever can be read is read.

use std::borrow::Cow;

use super::lex::{Lexer, Token, unescape};
use crate::error::Result;

/// What a document is (json_typeof).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Kind {
    Null,
    Bool,
    Number,
    String,
    Array,
    Object,
}

impl Kind {
    /// As `json_typeof` says it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Null => "null",
            Kind::Bool => "boolean",
            Kind::Number => "number",
            Kind::String => "string",
            Kind::Array => "array",
            Kind::Object => "object",
        }
    }

    /// Neither array nor object.
    pub fn is_scalar(self) -> bool {
        !matches!(self, Kind::Array | Kind::Object)
    }
}

/// What the document is.
pub fn kind(text: &str) -> Kind {
    match text.trim_ascii_start().as_bytes().first() {
        Some(b'{') => Kind::Object,
        Some(b'[') => Kind::Array,
        Some(b'"') => Kind::String,
        Some(b't' | b'f') => Kind::Bool,
        Some(b'n') | None => Kind::Null,
        Some(_) => Kind::Number,
    }
}

/// The members of an array or object, in the order they are written.
pub struct Members<'a> {
    text: &'a str,
    lexer: Lexer<'a>,
    is_object: bool,
    is_first: bool,
}

/// The members of a document; none of a scalar.
pub fn members(text: &str) -> Members<'_> {
    let mut lexer = Lexer::new(text);
    let is_object = matches!(lexer.next(), Ok(Token::OpenObject));
    if kind(text).is_scalar() {
        // Nothing follows a scalar.
        return Members { text: "", lexer: Lexer::new(""), is_object: false, is_first: true };
    }
    Members { text, lexer, is_object, is_first: true }
}

impl<'a> Iterator for Members<'a> {
    /// Key (none in an array) and the text of the value.
    type Item = Result<(Option<Cow<'a, str>>, &'a str)>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut token = self.lexer.next().ok()?;
        if !std::mem::take(&mut self.is_first) && token == Token::Comma {
            token = self.lexer.next().ok()?;
        }
        let mut key = None;
        if self.is_object {
            let Token::String(quoted) = token else { return None };
            key = match unescape(quoted) {
                Ok(key) => Some(key),
                Err(error) => return Some(Err(error)),
            };
            self.lexer.next().ok()?;
            token = self.lexer.next().ok()?;
        }
        let start = self.lexer.span().start;
        let mut depth = 0_usize;
        loop {
            match token {
                Token::OpenArray | Token::OpenObject => depth += 1,
                Token::CloseArray | Token::CloseObject if depth == 0 => return None,
                Token::CloseArray | Token::CloseObject => depth -= 1,
                Token::End => return None,
                _ => {}
            }
            if depth == 0 {
                return Some(Ok((key, self.text.get(start..self.lexer.span().end)?)));
            }
            token = self.lexer.next().ok()?;
        }
    }
}

/// The value of a key of an object (the last of several); `None` for other documents too.
pub fn field<'a>(text: &'a str, name: &str) -> Result<Option<&'a str>> {
    if kind(text) != Kind::Object {
        return Ok(None);
    }
    let mut found = None;
    for member in members(text) {
        let (key, value) = member?;
        if key.as_deref() == Some(name) {
            found = Some(value);
        }
    }
    Ok(found)
}

/// An element of an array, from 0, or from -1 at its end; `None` for other documents too.
pub fn element(text: &str, index: i64) -> Result<Option<&str>> {
    if kind(text) != Kind::Array {
        return Ok(None);
    }
    let from_start = match usize::try_from(index) {
        Ok(index) => Some(index),
        Err(_) => members(text).count().checked_sub(index.unsigned_abs() as usize),
    };
    let Some(index) = from_start else { return Ok(None) };
    Ok(members(text).nth(index).transpose()?.map(|(_, value)| value))
}

/// The part at the end of a path of keys and element numbers.
pub fn at_path<'a>(text: &'a str, path: &[&str]) -> Result<Option<&'a str>> {
    let mut at = text.trim_ascii();
    for step in path {
        let next = match kind(at) {
            Kind::Object => field(at, step)?,
            Kind::Array => match step.trim_ascii().parse::<i32>() {
                Ok(index) => element(at, index.into())?,
                Err(_) => None,
            },
            _ => None,
        };
        match next {
            Some(part) => at = part,
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

/// A part as text: strings without quotes and escapes, `None` for null, others as they are written.
pub fn scalar_text(part: &str) -> Result<Option<Cow<'_, str>>> {
    let part = part.trim_ascii();
    match kind(part) {
        Kind::Null => Ok(None),
        Kind::String => unescape(part).map(Some),
        _ => Ok(Some(Cow::Borrowed(part))),
    }
}
