//! Is a text JSON, and where are its parts? Tokens, and the check that `json`'s input function makes.
//!
//! The grammar is RFC 8259's; messages are those of PostgreSQL's jsonapi.c.

use std::borrow::Cow;

use crate::error::{Error, Result, SqlState};

/// Levels that arrays and objects can be nested.
pub const MAX_DEPTH: usize = 200;

/// One token; numbers and strings are cut out of the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Token<'a> {
    OpenObject,
    CloseObject,
    OpenArray,
    CloseArray,
    Comma,
    Colon,
    Null,
    True,
    False,
    Number(&'a str),
    /// With its quotes, escapes not resolved.
    String(&'a str),
    End,
}

/// Reads tokens off a text.
pub(super) struct Lexer<'a> {
    text: &'a str,
    /// Where the current token begins.
    start: usize,
    /// Where it ends.
    end: usize,
}

impl<'a> Lexer<'a> {
    pub fn new(text: &'a str) -> Lexer<'a> {
        Lexer { text, start: 0, end: 0 }
    }

    /// Where the last token began and ended.
    pub fn span(&self) -> std::ops::Range<usize> {
        self.start..self.end
    }

    /// The next token.
    pub fn next(&mut self) -> Result<Token<'a>> {
        let bytes = self.text.as_bytes();
        self.start = self.end;
        while matches!(bytes.get(self.start), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.start += 1;
        }
        self.end = self.start;
        let Some(first) = bytes.get(self.start) else { return Ok(Token::End) };
        self.end += 1;
        Ok(match first {
            b'{' => Token::OpenObject,
            b'}' => Token::CloseObject,
            b'[' => Token::OpenArray,
            b']' => Token::CloseArray,
            b',' => Token::Comma,
            b':' => Token::Colon,
            b'"' => self.string()?,
            b'-' | b'0'..=b'9' => self.number()?,
            _ => self.word()?,
        })
    }

    fn current(&self) -> &'a str {
        self.text.get(self.start..self.end).unwrap_or("")
    }

    fn word(&mut self) -> Result<Token<'a>> {
        self.pass_word();
        Ok(match self.current() {
            "null" => Token::Null,
            "true" => Token::True,
            "false" => Token::False,
            _ => return Err(self.invalid_token()),
        })
    }

    /// Moves the end behind what looks like a word, so that a message shows all of it (JSON_ALPHANUMERIC_CHAR).
    fn pass_word(&mut self) {
        let bytes = self.text.as_bytes();
        let in_word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_' || *b >= 0x80;
        // The first character may be anything; it is taken whole.
        while !self.text.is_char_boundary(self.end) || bytes.get(self.end).is_some_and(in_word) {
            self.end += 1;
        }
    }

    fn number(&mut self) -> Result<Token<'a>> {
        let bytes = self.text.as_bytes();
        let mut at = self.start + usize::from(bytes[self.start] == b'-');
        let digits = |at: &mut usize| {
            let from = *at;
            while bytes.get(*at).is_some_and(u8::is_ascii_digit) {
                *at += 1;
            }
            *at > from
        };
        let mut good = match bytes.get(at) {
            Some(b'0') => {
                at += 1;
                true
            }
            _ => digits(&mut at),
        };
        if good && bytes.get(at) == Some(&b'.') {
            at += 1;
            good = digits(&mut at);
        }
        if good && matches!(bytes.get(at), Some(b'e' | b'E')) {
            at += 1;
            at += usize::from(matches!(bytes.get(at), Some(b'+' | b'-')));
            good = digits(&mut at);
        }
        self.end = at.max(self.start + 1);
        let number_end = self.end;
        self.pass_word();
        if !good || self.end != number_end {
            return Err(self.invalid_token());
        }
        Ok(Token::Number(self.current()))
    }

    fn string(&mut self) -> Result<Token<'a>> {
        let bytes = self.text.as_bytes();
        loop {
            match bytes.get(self.end) {
                None => return Err(self.invalid_token()),
                Some(b'"') => break,
                Some(b'\\') => self.escape()?,
                Some(control @ 0..0x20) => {
                    let detail = format!("Character with value 0x{control:02x} must be escaped.");
                    return Err(self.error(detail));
                }
                Some(_) => self.end += 1,
            }
        }
        self.end += 1;
        Ok(Token::String(self.current()))
    }

    /// Passes one escape sequence.
    fn escape(&mut self) -> Result<()> {
        let bytes = self.text.as_bytes();
        self.end += 1;
        match bytes.get(self.end) {
            None => Err(self.invalid_token()),
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.end += 1;
                Ok(())
            }
            Some(b'u') => {
                self.end += 1;
                for _ in 0..4 {
                    if !bytes.get(self.end).is_some_and(u8::is_ascii_hexdigit) {
                        self.pass_character();
                        return Err(self.error("\"\\u\" must be followed by four hexadecimal digits.".into()));
                    }
                    self.end += 1;
                }
                Ok(())
            }
            Some(_) => {
                let from = self.end;
                self.pass_character();
                let detail =
                    format!("Escape sequence \"\\{}\" is invalid.", self.text.get(from..self.end).unwrap_or(""));
                Err(self.error(detail))
            }
        }
    }

    fn pass_character(&mut self) {
        self.end =
            (self.end + 1..).find(|at| self.text.is_char_boundary(*at) || *at > self.text.len()).unwrap_or(self.end);
        self.end = self.end.min(self.text.len());
    }

    fn invalid_token(&self) -> Error {
        match self.text.get(self.start..self.end) {
            Some(token) => self.error(format!("Token \"{token}\" is invalid.")),
            None => self.error("The input string ended unexpectedly.".into()),
        }
    }

    /// What was expected instead of the current token.
    pub fn unexpected(&self, token: Token<'_>, wanted: &str) -> Error {
        if token == Token::End && wanted != "end of input" {
            return self.error("The input string ended unexpectedly.".into());
        }
        self.error(format!("Expected {wanted}, but found \"{}\".", self.current()))
    }

    fn error(&self, detail: String) -> Error {
        let error = Error::new(SqlState::INVALID_TEXT_REPRESENTATION, "invalid input syntax for type json");
        error.with_detail(detail).with_context(|| self.context())
    }

    /// The line up to the token, at most about 50 bytes of it (report_json_context).
    fn context(&self) -> String {
        let end = (0..=self.end.min(self.text.len())).rev().find(|at| self.text.is_char_boundary(*at)).unwrap_or(0);
        let before = &self.text[..end];
        let line_start = before.rfind(['\n', '\r']).map_or(0, |at| at + 1);
        let line = before.bytes().filter(|b| *b == b'\n').count() + 1;
        let mut start = line_start;
        while end - start >= 50 || !self.text.is_char_boundary(start) {
            start += 1;
        }
        let prefix = if start > line_start { "..." } else { "" };
        let more = !matches!(self.text.as_bytes().get(end), None | Some(b'\n' | b'\r'));
        format!("JSON data, line {line}: {prefix}{}{}", &self.text[start..end], if more { "..." } else { "" })
    }
}

/// `54001`, as for statements.
#[cold]
pub(super) fn too_deep() -> Error {
    Error::new(SqlState::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded")
        .with_hint(format!("A JSON document can be nested {MAX_DEPTH} levels deep."))
}

/// What may come next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Value,
    /// A value or the end of the array.
    FirstElement,
    /// A key or the end of the object.
    FirstKey,
    Key,
    /// A comma or the end of what is open.
    After,
}

/// Checks that `text` is JSON. `22P02` if not, `54001` when it is nested too deep.
pub fn check(text: &str) -> Result<()> {
    let mut lexer = Lexer::new(text);
    // True for an object.
    let mut open: Vec<bool> = Vec::new();
    let mut next = Next::Value;
    loop {
        let token = lexer.next()?;
        next = match (next, token) {
            (Next::FirstElement, Token::CloseArray) | (Next::FirstKey, Token::CloseObject) => {
                open.pop();
                Next::After
            }
            (Next::Value | Next::FirstElement, Token::OpenArray | Token::OpenObject) => {
                if open.len() == MAX_DEPTH {
                    return Err(too_deep());
                }
                open.push(token == Token::OpenObject);
                if token == Token::OpenObject { Next::FirstKey } else { Next::FirstElement }
            }
            (
                Next::Value | Next::FirstElement,
                Token::Null | Token::True | Token::False | Token::Number(_) | Token::String(_),
            ) => Next::After,
            (Next::FirstElement, _) => return Err(lexer.unexpected(token, "array element or \"]\"")),
            (Next::Value, _) => return Err(lexer.unexpected(token, "JSON value")),
            (Next::FirstKey | Next::Key, Token::String(_)) => {
                let colon = lexer.next()?;
                if colon != Token::Colon {
                    return Err(lexer.unexpected(colon, "\":\""));
                }
                Next::Value
            }
            (Next::FirstKey, _) => return Err(lexer.unexpected(token, "string or \"}\"")),
            (Next::Key, _) => return Err(lexer.unexpected(token, "string")),
            (Next::After, _) => match (open.last(), token) {
                (None, Token::End) => return Ok(()),
                (None, _) => return Err(lexer.unexpected(token, "end of input")),
                (Some(true), Token::Comma) => Next::Key,
                (Some(false), Token::Comma) => Next::Value,
                (Some(true), Token::CloseObject) | (Some(false), Token::CloseArray) => {
                    open.pop();
                    Next::After
                }
                (Some(true), _) => return Err(lexer.unexpected(token, "\",\" or \"}\"")),
                (Some(false), _) => return Err(lexer.unexpected(token, "\",\" or \"]\"")),
            },
        };
    }
}

/// The characters that a string token stands for. `22P02` for half a surrogate pair, `22P05` for a zero character.
pub(super) fn unescape(quoted: &str) -> Result<Cow<'_, str>> {
    let inner = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(quoted);
    if !inner.contains('\\') {
        return Ok(Cow::Borrowed(inner));
    }
    let mut out = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let escape = rest.as_bytes().get(at + 1).copied().unwrap_or(b'\\');
        rest = rest.get(at + 2..).unwrap_or("");
        out.push(match escape {
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => unicode(&mut rest)?,
            other => char::from(other),
        });
    }
    out.push_str(rest);
    Ok(Cow::Owned(out))
}

/// The character of `XXXX`, or of `XXXX\uXXXX` for a pair of surrogates; takes it off `rest`.
fn unicode(rest: &mut &str) -> Result<char> {
    let wrong = |detail: &str| {
        Error::new(SqlState::INVALID_TEXT_REPRESENTATION, "invalid input syntax for type json").with_detail(detail)
    };
    let first = hex(rest).unwrap_or(0);
    if first == 0 {
        let error = Error::new(SqlState::UNTRANSLATABLE_CHARACTER, "unsupported Unicode escape sequence");
        return Err(error.with_detail("\\u0000 cannot be converted to text."));
    }
    let lone = "Unicode low surrogate must follow a high surrogate.";
    if !(0xD800..0xDC00).contains(&first) {
        return char::from_u32(first).ok_or_else(|| wrong(lone));
    }
    let Some(mut behind) = rest.strip_prefix("\\u") else { return Err(wrong(lone)) };
    let second = hex(&mut behind).unwrap_or(0);
    if (0xD800..0xDC00).contains(&second) {
        return Err(wrong("Unicode high surrogate must not follow a high surrogate."));
    }
    if !(0xDC00..0xE000).contains(&second) {
        return Err(wrong(lone));
    }
    *rest = behind;
    char::from_u32(0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00)).ok_or_else(|| wrong(lone))
}

fn hex(rest: &mut &str) -> Option<u32> {
    let (digits, behind) = rest.split_at_checked(4)?;
    *rest = behind;
    u32::from_str_radix(digits, 16).ok()
}
