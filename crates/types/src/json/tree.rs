//! What is in a document? A tree of it, for what changes or compares documents.

use std::borrow::Cow;
use std::cmp::Ordering;

use rust_decimal::Decimal;

use super::lex::{Lexer, MAX_DEPTH, Token, too_deep, unescape};
use crate::decimal::{decimal_from_str, overflow};
use crate::error::Result;

/// A document or a part of one.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs)] // the names are JSON's
pub enum Json<'a> {
    Null,
    Bool(bool),
    Number(Decimal),
    String(Cow<'a, str>),
    Array(Vec<Json<'a>>),
    /// Ordered by the keys' lengths, then by their bytes; each key once.
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
}

/// The order of keys within an object (lengthCompareJsonbStringValue): cheap, and what PostgreSQL shows.
pub(super) fn key_order(a: &str, b: &str) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.as_bytes().cmp(b.as_bytes()))
}

/// The tree of a text. `22P02` when it is not JSON, `22P05` for `\u0000`, `22003` for numbers beyond `numeric`, `54001` beyond
/// [`MAX_DEPTH`] levels.
pub fn parse(text: &str) -> Result<Json<'_>> {
    let mut lexer = Lexer::new(text);
    let token = lexer.next()?;
    let tree = value(&mut lexer, token, "JSON value", 0)?;
    match lexer.next()? {
        Token::End => Ok(tree),
        token => Err(lexer.unexpected(token, "end of input")),
    }
}

fn value<'a>(lexer: &mut Lexer<'a>, token: Token<'a>, wanted: &str, depth: usize) -> Result<Json<'a>> {
    Ok(match token {
        Token::Null => Json::Null,
        Token::True => Json::Bool(true),
        Token::False => Json::Bool(false),
        Token::Number(digits) => Json::Number(decimal_from_str(digits)?.ok_or_else(overflow)?),
        Token::String(quoted) => Json::String(unescape(quoted)?),
        Token::OpenArray | Token::OpenObject if depth == MAX_DEPTH => return Err(too_deep()),
        Token::OpenArray => array(lexer, depth + 1)?,
        Token::OpenObject => object(lexer, depth + 1)?,
        other => return Err(lexer.unexpected(other, wanted)),
    })
}

fn array<'a>(lexer: &mut Lexer<'a>, depth: usize) -> Result<Json<'a>> {
    let mut items = Vec::new();
    let mut token = lexer.next()?;
    if token == Token::CloseArray {
        return Ok(Json::Array(items));
    }
    let mut wanted = "array element or \"]\"";
    loop {
        items.push(value(lexer, token, wanted, depth)?);
        match lexer.next()? {
            Token::CloseArray => return Ok(Json::Array(items)),
            Token::Comma => {}
            other => return Err(lexer.unexpected(other, "\",\" or \"]\"")),
        }
        token = lexer.next()?;
        wanted = "JSON value";
    }
}

fn object<'a>(lexer: &mut Lexer<'a>, depth: usize) -> Result<Json<'a>> {
    let mut pairs = Vec::new();
    let mut token = lexer.next()?;
    if token == Token::CloseObject {
        return Ok(Json::Object(pairs));
    }
    let mut wanted = "string or \"}\"";
    loop {
        let Token::String(quoted) = token else { return Err(lexer.unexpected(token, wanted)) };
        let key = unescape(quoted)?;
        match lexer.next()? {
            Token::Colon => {}
            other => return Err(lexer.unexpected(other, "\":\"")),
        }
        let first = lexer.next()?;
        pairs.push((key, value(lexer, first, "JSON value", depth)?));
        match lexer.next()? {
            Token::CloseObject => return Ok(Json::object(pairs)),
            Token::Comma => {}
            other => return Err(lexer.unexpected(other, "\",\" or \"}\"")),
        }
        token = lexer.next()?;
        wanted = "string";
    }
}

impl<'a> Json<'a> {
    /// An object of these pairs; of pairs with one key the last stays.
    pub fn object(mut pairs: Vec<(Cow<'a, str>, Json<'a>)>) -> Json<'a> {
        // Stored documents come in order, and then there is nothing to do.
        if !pairs.is_sorted_by(|a, b| key_order(&a.0, &b.0) == Ordering::Less) {
            // Backwards, so that the last of equal keys comes first and is what dedup keeps.
            pairs.reverse();
            pairs.sort_by(|a, b| key_order(&a.0, &b.0));
            pairs.dedup_by(|later, kept| later.0 == kept.0);
        }
        Json::Object(pairs)
    }

    /// Levels of arrays and objects.
    pub(super) fn depth(&self) -> usize {
        match self {
            Json::Array(items) => 1 + items.iter().map(Json::depth).max().unwrap_or(0),
            Json::Object(pairs) => 1 + pairs.iter().map(|(_, value)| value.depth()).max().unwrap_or(0),
            _ => 0,
        }
    }
}
