//! What does the text say? From statement text to a syntax tree.
//!
//! Queries and table definitions are parsed by `sqlparser` (PostgreSQL dialect). Utility statements, whose PostgreSQL
//! forms the library knows only in part, are read here from tokens (module [`crate::utility`]).

use crate::dialect::Postgres;
use crate::lexer::{self, Token};
use crate::utility::{self, Utility};
use homenode_types::{Error, Result, SqlState};
use sqlparser::ast;
use sqlparser::parser::{Parser, ParserError};
use std::ops::Range;

/// Depth of the library's recursive descent; beyond it the statement is refused with 54001.
const RECURSION_LIMIT: usize = 50;

/// One parsed statement.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "one for each prepared statement")]
pub enum Statement {
    /// SELECT, VALUES, TABLE, WITH.
    Query(Box<ast::Query>),
    /// INSERT; true: OVERRIDING SYSTEM VALUE.
    Insert(Box<ast::Insert>, bool),
    /// UPDATE; the library's variant.
    Update(Box<ast::Statement>),
    /// DELETE.
    Delete(Box<ast::Delete>),
    /// CREATE TABLE, CREATE INDEX, CREATE VIEW, ALTER TABLE: the library's variants.
    Define(Box<ast::Statement>, Definition),
    /// What the module `utility` reads.
    Utility(Utility),
}

/// What was said beside the library's tree of a definition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Definition {
    /// CREATE UNLOGGED TABLE.
    pub unlogged: bool,
    /// INSERT ... OVERRIDING SYSTEM VALUE.
    pub overriding: bool,
}

/// Parses the statement made of `tokens` of `source`.
///
/// # Errors
/// 42601 with PostgreSQL's text, 54001, 0A000.
pub fn parse(source: &str, tokens: &[Token]) -> Result<Statement> {
    lexer::check_depth(source, tokens)?;
    if let Some(utility) = utility::read(source, tokens)? {
        return Ok(Statement::Utility(utility));
    }
    let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else {
        return Err(Error::new(SqlState::SYNTAX_ERROR, "empty statement"));
    };
    let start = first.start as usize;
    let text = &source[start..last.end as usize];
    if first.is_word(source, "table") {
        // TABLE t is short for SELECT * FROM t.
        let name = &source[first.end as usize..last.end as usize];
        let tree = library(&format!("SELECT * FROM{name}")).map_err(|_| at_end(source, tokens))?;
        return classify(tree, Definition::default());
    }
    let blanked = without_match_simple(source, tokens, text, start)?;
    let text = blanked.as_deref().unwrap_or(text);
    let ordered = with_ordered_identities(source, tokens, text, start);
    let text = ordered.as_deref().unwrap_or(text);
    let unlogged = tokens.len() > 2 && first.is_word(source, "create") && tokens[1].is_word(source, "unlogged");
    let cut;
    let text = if unlogged {
        let word = tokens[1].start as usize - start..tokens[1].end as usize - start;
        // Blanks keep the positions of what follows.
        cut = format!("{}{}{}", &text[..word.start], " ".repeat(word.len()), &text[word.end..]);
        cut.as_str()
    } else {
        text
    };
    let overriding = without_overriding(source, tokens, text, start)?;
    let text = overriding.as_deref().unwrap_or(text);
    let tree = library(text).map_err(|error| position_of(error, source, tokens, start))?;
    classify(tree, Definition { unlogged, overriding: overriding.is_some() })
}

/// INSERT without OVERRIDING SYSTEM VALUE, which the library does not know, if it has it.
fn without_overriding(source: &str, tokens: &[Token], text: &str, start: usize) -> Result<Option<String>> {
    let word = |at: usize, word: &str| tokens.get(at).is_some_and(|token| token.is_word(source, word));
    if !word(0, "insert") {
        return Ok(None);
    }
    // It stands before VALUES or the query, so before any parenthesis but the list of columns.
    let found = (1..tokens.len()).find(|&at| word(at, "overriding") && word(at + 2, "value"));
    let first = (1..tokens.len()).find(|&at| word(at, "values") || word(at, "select") || word(at, "with"));
    let Some(at) = found.filter(|&at| first.is_none_or(|first| at < first)) else { return Ok(None) };
    if !word(at + 1, "system") {
        return Err(Error::unsupported("OVERRIDING USER VALUE"));
    }
    let range = tokens[at].start as usize - start..tokens[at + 2].end as usize - start;
    let mut blanked = text.to_string();
    blanked.replace_range(range.clone(), &" ".repeat(range.len()));
    Ok(Some(blanked))
}

/// The action of ALTER TABLE that is made of the tokens `action` of a statement.
///
/// # Errors
/// As [`parse`].
pub(crate) fn alteration(source: &str, tokens: &[Token], action: Range<usize>) -> Result<ast::AlterTableOperation> {
    let blanked = without_match_simple(source, tokens, source, 0)?;
    let source = blanked.as_deref().unwrap_or(source);
    let ordered = with_ordered_identities(source, tokens, source, 0);
    let source = ordered.as_deref().unwrap_or(source);
    let (Some(first), Some(last)) = (tokens.get(action.start), tokens.get(action.end.wrapping_sub(1))) else {
        return Err(at_end(source, tokens));
    };
    if action.is_empty() {
        return Err(position_of(
            ParserError::ParserError(String::new()),
            source,
            tokens.get(..=action.start).unwrap_or(tokens),
            0,
        ));
    }
    // Blanks keep the positions of what follows.
    let (start, end) = (first.start as usize, last.end as usize);
    const HEAD: &str = "ALTER TABLE t";
    let text = format!("{HEAD}{}{}", " ".repeat(start.saturating_sub(HEAD.len())), &source[start..end]);
    let tree = library(&text).map_err(|error| position_of(error, &text, tokens, 0))?;
    let ast::Statement::AlterTable { operations, .. } = tree else { return Err(at_end(source, tokens)) };
    match <[_; 1]>::try_from(operations) {
        Ok([operation]) => Ok(operation),
        Err(_) => Err(at_end(source, tokens)),
    }
}

/// What the library does not know of REFERENCES: MATCH SIMPLE is blanked out, since it is what is meant without it; the rest is named.
fn without_match_simple(source: &str, tokens: &[Token], text: &str, start: usize) -> Result<Option<String>> {
    let word = |at: usize, word: &str| tokens.get(at).is_some_and(|token| token.is_word(source, word));
    if !(word(0, "create") || word(0, "alter")) || !(0..tokens.len()).any(|at| word(at, "references")) {
        return Ok(None);
    }
    let mut blanked: Option<String> = None;
    for at in 0..tokens.len() {
        if word(at, "match") && (word(at + 1, "full") || word(at + 1, "partial")) {
            return Err(Error::unsupported(format!("MATCH {}", tokens[at + 1].text(source).to_ascii_uppercase())));
        }
        if word(at, "match") && word(at + 1, "simple") {
            let range = tokens[at].start as usize - start..tokens[at + 1].end as usize - start;
            blanked.get_or_insert_with(|| text.to_string()).replace_range(range.clone(), &" ".repeat(range.len()));
        }
        let sets = word(at, "set") && (word(at + 1, "null") || word(at + 1, "default"));
        if sets && (word(at.wrapping_sub(1), "delete")) && tokens.get(at + 2).is_some_and(|next| next.is(source, "(")) {
            return Err(Error::unsupported("ON DELETE SET NULL or SET DEFAULT of some of the columns"));
        }
    }
    Ok(blanked)
}

/// The library wants the options of an identity's sequence in one order; PostgreSQL takes them in any. They are put in that order,
/// in the place that they have.
fn with_ordered_identities(source: &str, tokens: &[Token], text: &str, start: usize) -> Option<String> {
    const ORDER: [&str; 6] = ["increment", "minvalue", "maxvalue", "start", "cache", "cycle"];
    let word = |at: usize, word: &str| tokens.get(at).is_some_and(|token| token.is_word(source, word));
    let rank = |at: usize| {
        let at = at + usize::from(word(at, "no"));
        ORDER.iter().position(|known| word(at, known))
    };
    let mut ordered: Option<String> = None;
    for open in 2..tokens.len() {
        if !(word(open - 2, "as") && word(open - 1, "identity") && tokens[open].is(source, "(")) {
            continue;
        }
        let close = (open..tokens.len()).find(|&at| tokens[at].is(source, ")"))?;
        let begins = |at: usize| rank(at).filter(|_| !word(at.wrapping_sub(1), "no"));
        let starts: Vec<usize> = (open + 1..close).filter(|&at| begins(at).is_some()).collect();
        let mut parts: Vec<(usize, &str)> = Vec::new();
        for (number, &from) in starts.iter().enumerate() {
            let to = starts.get(number + 1).copied().unwrap_or(close) - 1;
            let part = &source[tokens[from].start as usize..tokens[to].end as usize];
            parts.push((begins(from)?, part));
        }
        if parts.is_empty() || starts[0] != open + 1 {
            continue;
        }
        parts.sort_by_key(|(rank, _)| *rank);
        let joined = parts.iter().map(|(_, part)| *part).collect::<Vec<_>>().join(" ");
        let range = tokens[open].end as usize - start..tokens[close].start as usize - start;
        let padded = format!("{joined:<width$}", width = range.len());
        if padded.len() == range.len() {
            ordered.get_or_insert_with(|| text.to_string()).replace_range(range, &padded);
        }
    }
    ordered
}

/// Parses one expression (a column default from the catalog).
///
/// # Errors
/// 42601, 54001.
pub fn expression(text: &str) -> Result<ast::Expr> {
    let mut tokens = Vec::new();
    lexer::lex(text, &mut tokens)?;
    lexer::check_depth(text, &tokens)?;
    parser(text).and_then(|mut parser| parser.parse_expr()).map_err(|error| position_of(error, text, &tokens, 0))
}

fn parser(text: &str) -> Result<Parser<'static>, ParserError> {
    Parser::new(&Postgres).with_recursion_limit(RECURSION_LIMIT).try_with_sql(text)
}

fn library(text: &str) -> Result<ast::Statement, ParserError> {
    let mut parser = parser(text)?;
    let statement = parser.parse_statement()?;
    let rest = parser.peek_token();
    if rest.token != sqlparser::tokenizer::Token::EOF {
        return Err(ParserError::ParserError(format!("Expected: end of statement, found: {rest}{}", rest.span.start)));
    }
    Ok(statement)
}

/// PostgreSQL says `syntax error at or near "x"` with the position of x; the library says line and column.
fn position_of(error: ParserError, source: &str, tokens: &[Token], start: usize) -> Error {
    let message = match error {
        ParserError::RecursionLimitExceeded => return lexer::too_deep(),
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => message,
    };
    let Some(offset) = line_and_column(&message).and_then(|(line, column)| offset_of(&source[start..], line, column))
    else {
        return at_end(source, tokens);
    };
    let at = start + offset;
    match tokens.iter().find(|token| (token.start as usize..token.end as usize).contains(&at)) {
        Some(token) => {
            Error::new(SqlState::SYNTAX_ERROR, format!("syntax error at or near \"{}\"", token.text(source)))
                .with_position(characters(source, token.start as usize))
        }
        None => at_end(source, tokens),
    }
}

fn at_end(source: &str, tokens: &[Token]) -> Error {
    let end = tokens.last().map_or(source.len(), |token| token.end as usize);
    Error::new(SqlState::SYNTAX_ERROR, "syntax error at end of input").with_position(characters(source, end))
}

/// The 1-based character position of byte `at`.
pub fn characters(source: &str, at: usize) -> usize {
    source.get(..at).map_or(0, |head| head.chars().count()) + 1
}

fn line_and_column(message: &str) -> Option<(u64, u64)> {
    let tail = &message[message.rfind("Line: ")? + 6..];
    let (line, rest) = tail.split_once(", Column: ")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some((line.trim().parse().ok()?, digits.parse().ok()?))
}

/// The byte offset of a 1-based line and column (in characters).
pub fn offset_of(text: &str, line: u64, column: u64) -> Option<usize> {
    let mut start = 0;
    for _ in 1..line {
        start += text[start..].find('\n')? + 1;
    }
    let rest = &text[start..];
    rest.char_indices().nth(column.checked_sub(1)? as usize).map(|(offset, _)| start + offset)
}

fn classify(tree: ast::Statement, definition: Definition) -> Result<Statement> {
    Ok(match tree {
        ast::Statement::Query(query) => match *query.body {
            ast::SetExpr::Insert(_) | ast::SetExpr::Update(_) | ast::SetExpr::Delete(_) | ast::SetExpr::Merge(_) => {
                return Err(Error::unsupported("WITH before a data-modifying statement"));
            }
            _ => Statement::Query(query),
        },
        ast::Statement::Insert(insert) => Statement::Insert(Box::new(insert), definition.overriding),
        ast::Statement::Update { .. } => Statement::Update(Box::new(tree)),
        ast::Statement::Delete(delete) => Statement::Delete(Box::new(delete)),
        ast::Statement::CreateTable(_) | ast::Statement::CreateIndex(_) | ast::Statement::CreateView { .. } => {
            Statement::Define(Box::new(tree), definition)
        }
        other => return Err(Error::unsupported(construct(&other))),
    })
}

/// The leading keywords of a statement, for a message that names it.
fn construct(tree: &ast::Statement) -> String {
    let text = tree.to_string();
    let words: Vec<&str> =
        text.split_whitespace().take_while(|word| word.chars().all(|c| c.is_ascii_uppercase())).take(3).collect();
    if words.is_empty() { "this statement".into() } else { words.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(source: &str) -> Result<Statement> {
        let mut tokens = Vec::new();
        lexer::lex(source, &mut tokens)?;
        parse(source, &tokens)
    }

    #[test]
    fn syntax_errors_name_the_place() {
        let error = of("selec 1").unwrap_err();
        assert_eq!((error.message.as_str(), error.position), ("syntax error at or near \"selec\"", Some(1)));
        let error = of("select 1 +").unwrap_err();
        assert_eq!((error.message.as_str(), error.position), ("syntax error at end of input", Some(11)));
        let error = of("select 1 from t t2 t3").unwrap_err();
        assert_eq!((error.message.as_str(), error.position), ("syntax error at or near \"t3\"", Some(20)));
    }

    #[test]
    fn deep_nesting_is_54001() {
        for source in [
            format!("select {}1{}", "(".repeat(1000), ")".repeat(1000)),
            format!("select {}1{}", "(".repeat(100), ")".repeat(100)),
            format!("select * from {}(select 1) a{}", "(select * from ".repeat(200), ") a".repeat(200)),
        ] {
            assert_eq!(of(&source).unwrap_err().code, SqlState::STATEMENT_TOO_COMPLEX);
        }
    }

    #[test]
    fn unlogged_is_taken_off() {
        assert!(matches!(
            of("create unlogged table t (a int)"),
            Ok(Statement::Define(_, Definition { unlogged: true, .. }))
        ));
    }
}
