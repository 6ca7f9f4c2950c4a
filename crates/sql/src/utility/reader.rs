//! Which token comes next? A reader over the tokens of one statement.

use super::Name;
use crate::lexer::{self, Kind, Token};
use crate::parse::characters;
use homenode_types::{Error, Result, SqlState};

/// Reads tokens of one statement in order.
pub(super) struct Reader<'a> {
    pub(super) source: &'a str,
    pub(super) tokens: &'a [Token],
    pub(super) at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(source: &'a str, tokens: &'a [Token]) -> Reader<'a> {
        Reader { source, tokens, at: 0 }
    }

    pub(super) fn peek(&self) -> Option<&'a Token> {
        self.tokens.get(self.at)
    }

    pub(super) fn word_is(&self, word: &str) -> bool {
        self.peek().is_some_and(|token| token.is_word(self.source, word))
    }

    pub(super) fn eat(&mut self, word: &str) -> bool {
        let found = self.word_is(word);
        self.at += usize::from(found);
        found
    }

    /// Eats all of `words` or none.
    pub(super) fn eat_all(&mut self, words: &str) -> bool {
        let before = self.at;
        let found = words.split(' ').all(|word| self.eat(word));
        if !found {
            self.at = before;
        }
        found
    }

    pub(super) fn eat_symbol(&mut self, symbol: &str) -> bool {
        let found = self.peek().is_some_and(|token| token.is(self.source, symbol));
        self.at += usize::from(found);
        found
    }

    pub(super) fn error(&self) -> Error {
        match self.peek() {
            Some(token) => {
                let text = token.text(self.source);
                Error::new(SqlState::SYNTAX_ERROR, format!("syntax error at or near \"{text}\""))
                    .with_position(characters(self.source, token.start as usize))
            }
            None => {
                let end = self.tokens.last().map_or(0, |token| token.end as usize);
                Error::new(SqlState::SYNTAX_ERROR, "syntax error at end of input")
                    .with_position(characters(self.source, end))
            }
        }
    }

    pub(super) fn expect(&mut self, word: &str) -> Result<()> {
        if self.eat(word) { Ok(()) } else { Err(self.error()) }
    }

    pub(super) fn expect_symbol(&mut self, symbol: &str) -> Result<()> {
        if self.eat_symbol(symbol) { Ok(()) } else { Err(self.error()) }
    }

    pub(super) fn end(&self) -> Result<()> {
        if self.at == self.tokens.len() { Ok(()) } else { Err(self.error()) }
    }

    pub(super) fn identifier(&mut self) -> Result<String> {
        let name = self.peek().and_then(|token| lexer::identifier(self.source, token)).ok_or_else(|| self.error())?;
        self.at += 1;
        Ok(name)
    }

    /// `[schema.]table.column`
    pub(super) fn column(&mut self) -> Result<(Name, String)> {
        let position = self.peek().map_or(0, |token| characters(self.source, token.start as usize));
        let mut parts = self.parts()?;
        let column = parts.pop().unwrap_or_default();
        let Some(name) = parts.pop() else {
            return Err(Error::new(SqlState::SYNTAX_ERROR, "column name must be qualified"));
        };
        Ok((Name { schema: parts.pop(), name, position }, column))
    }

    fn parts(&mut self) -> Result<Vec<String>> {
        let mut parts = vec![self.identifier()?];
        while self.eat_symbol(".") {
            parts.push(self.identifier()?);
        }
        Ok(parts)
    }

    pub(super) fn name(&mut self) -> Result<Name> {
        let position = self.peek().map_or(0, |token| characters(self.source, token.start as usize));
        let mut parts = self.parts()?;
        let name = parts.pop().unwrap_or_default();
        // database.schema.name: there is one database, so its name says nothing.
        Ok(Name { schema: parts.pop(), name, position })
    }

    pub(super) fn names(&mut self) -> Result<Vec<Name>> {
        let mut names = Vec::new();
        loop {
            self.eat("only");
            names.push(self.name()?);
            self.eat_symbol("*");
            if !self.eat_symbol(",") {
                return Ok(names);
            }
        }
    }

    pub(super) fn integer(&mut self) -> Result<i64> {
        let negative = self.eat_symbol("-");
        if !negative {
            self.eat_symbol("+");
        }
        let token = self.peek().filter(|token| token.kind == Kind::Integer).ok_or_else(|| self.error())?;
        let text = token.text(self.source);
        self.at += 1;
        let signed = if negative { format!("-{text}") } else { text.to_string() };
        signed.parse().map_err(|_| {
            Error::new(
                SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                format!("value \"{signed}\" is out of range for type bigint"),
            )
        })
    }

    pub(super) fn string(&mut self) -> Result<String> {
        let value =
            self.peek().and_then(|token| lexer::string_value(self.source, token)).ok_or_else(|| self.error())?;
        self.at += 1;
        Ok(value)
    }

    /// The text from here to the end of the statement.
    pub(super) fn rest(&mut self) -> Result<String> {
        let (Some(first), Some(last)) = (self.peek(), self.tokens.last()) else { return Err(self.error()) };
        self.at = self.tokens.len();
        Ok(self.source[first.start as usize..last.end as usize].to_string())
    }

    /// The texts between here and the closing parenthesis, split at top-level commas; eats the parenthesis.
    pub(super) fn arguments(&mut self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        let (mut depth, mut from) = (0, self.at);
        loop {
            let Some(token) = self.peek() else { return Err(self.error()) };
            match token.text(self.source) {
                "(" | "[" if token.kind == Kind::Punct => depth += 1,
                text @ (")" | "]" | ",") if token.kind == Kind::Punct && depth == 0 => {
                    if self.at > from {
                        let (first, last) = (self.tokens[from], self.tokens[self.at - 1]);
                        found.push(self.source[first.start as usize..last.end as usize].to_string());
                    } else if text == "," || !found.is_empty() {
                        return Err(self.error());
                    }
                    from = self.at + 1;
                    if text != "," {
                        self.at += 1;
                        return Ok(found);
                    }
                }
                ")" | "]" if token.kind == Kind::Punct => depth -= 1,
                _ => {}
            }
            self.at += 1;
        }
    }
}
