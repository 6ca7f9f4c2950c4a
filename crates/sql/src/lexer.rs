//! Where do the tokens of a statement begin and end? A quick lexer over PostgreSQL's lexical rules.
//!
//! It serves three masters: splitting a simple-protocol text into statements, reading utility statements that the SQL
//! parser does not know, and lifting literals out of plain statements so that a repeated text costs no parse. The rules are
//! those of PostgreSQL's `scan.l` with `standard_conforming_strings = on`.

use homenode_types::{Error, Result, SqlState};

/// A text longer than this many bytes is refused (54000).
pub const MAX_TEXT_BYTES: usize = 64 << 20;

/// The deepest nesting of operators and parentheses that is let through to the parser (54001 beyond).
pub const MAX_DEPTH: u32 = 400;

/// What a token is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Keyword or plain identifier.
    Word,
    /// `"identifier"`.
    Quoted,
    /// Digits only.
    Integer,
    /// Digits with a point or an exponent.
    Decimal,
    /// `'text'` with no escapes other than doubled quotes.
    String,
    /// `E'..'`, `B'..'`, `X'..'`, `U&'..'` or a dollar-quoted text.
    OtherString,
    /// `$n`.
    Param,
    /// An operator of one or more characters.
    Operator,
    /// One of `( ) [ ] , ; . :`.
    Punct,
}

/// One token; offsets are bytes into the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token {
    /// What it is.
    pub kind: Kind,
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Token {
    /// The token's characters.
    pub fn text<'a>(&self, source: &'a str) -> &'a str {
        &source[self.start as usize..self.end as usize]
    }

    /// True when this is the keyword `word` (given in lower case).
    pub fn is_word(&self, source: &str, word: &str) -> bool {
        self.kind == Kind::Word && self.text(source).eq_ignore_ascii_case(word)
    }

    /// True when this is the punctuation or operator `text`.
    pub fn is(&self, source: &str, text: &str) -> bool {
        matches!(self.kind, Kind::Punct | Kind::Operator) && self.text(source) == text
    }
}

fn unterminated(what: &str, source: &str, at: usize) -> Error {
    let rest: String = source[at..].chars().take(40).collect();
    Error::new(SqlState::SYNTAX_ERROR, format!("unterminated {what} at or near \"{rest}\""))
        .with_position(source[..at].chars().count() + 1)
}

/// Lexes `source` into `tokens` (cleared first). Comments are dropped.
///
/// # Errors
/// 42601 for an unterminated string, identifier or comment; 54000 for a text that is too long.
pub fn lex(source: &str, tokens: &mut Vec<Token>) -> Result<()> {
    tokens.clear();
    if source.len() > MAX_TEXT_BYTES {
        return Err(Error::new(
            SqlState::PROGRAM_LIMIT_EXCEEDED,
            format!("statement text of {} bytes is too long", source.len()),
        ));
    }
    let bytes = source.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        if byte.is_ascii_whitespace() || byte == 0x0b {
            at += 1;
            continue;
        }
        if byte == b'-' && bytes.get(at + 1) == Some(&b'-') {
            at += bytes[at..].iter().position(|&b| b == b'\n').unwrap_or(bytes.len() - at);
            continue;
        }
        if byte == b'/' && bytes.get(at + 1) == Some(&b'*') {
            at = skip_comment(source, at)?;
            continue;
        }
        let (kind, end) = token(source, at)?;
        tokens.push(Token { kind, start: at as u32, end: end as u32 });
        at = end;
    }
    Ok(())
}

fn skip_comment(source: &str, start: usize) -> Result<usize> {
    let bytes = source.as_bytes();
    let (mut at, mut depth) = (start, 0_u32);
    while at + 1 < bytes.len() {
        match (bytes[at], bytes[at + 1]) {
            (b'/', b'*') => {
                depth += 1;
                at += 2;
            }
            (b'*', b'/') => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return Ok(at);
                }
            }
            _ => at += 1,
        }
    }
    Err(unterminated("/* comment", source, start))
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

fn token(source: &str, at: usize) -> Result<(Kind, usize)> {
    let bytes = source.as_bytes();
    let byte = bytes[at];
    let next = bytes.get(at + 1).copied().unwrap_or(0);
    match byte {
        b'\'' => Ok((Kind::String, quoted_end(source, at, b'\'', false)?)),
        b'"' => Ok((Kind::Quoted, quoted_end(source, at, b'"', false)?)),
        b'e' | b'E' if next == b'\'' => Ok((Kind::OtherString, quoted_end(source, at + 1, b'\'', true)?)),
        b'b' | b'B' | b'x' | b'X' | b'n' | b'N' if next == b'\'' => {
            Ok((Kind::OtherString, quoted_end(source, at + 1, b'\'', false)?))
        }
        b'u' | b'U' if next == b'&' && matches!(bytes.get(at + 2), Some(b'\'')) => {
            Ok((Kind::OtherString, quoted_end(source, at + 2, b'\'', false)?))
        }
        b'$' if next.is_ascii_digit() => {
            let length = bytes[at + 1..].iter().take_while(|b| b.is_ascii_digit()).count();
            Ok((Kind::Param, at + 1 + length))
        }
        b'$' => dollar_quoted(source, at),
        b'0'..=b'9' => Ok(number(bytes, at)),
        b'.' if next.is_ascii_digit() => Ok(number(bytes, at)),
        b'(' | b')' | b'[' | b']' | b',' | b';' | b'.' => Ok((Kind::Punct, at + 1)),
        b':' if next == b':' => Ok((Kind::Operator, at + 2)),
        b':' => Ok((Kind::Punct, at + 1)),
        _ if is_word_byte(byte) => {
            let length = bytes[at..].iter().take_while(|&&b| is_word_byte(b)).count();
            Ok((Kind::Word, at + length))
        }
        b'+' | b'-' | b'*' | b'/' | b'<' | b'>' | b'=' | b'~' | b'!' | b'@' | b'#' | b'%' | b'^' | b'&' | b'|'
        | b'`' | b'?' => Ok((Kind::Operator, operator_end(bytes, at))),
        _ => Ok((Kind::Punct, at + source[at..].chars().next().map_or(1, char::len_utf8))),
    }
}

fn quoted_end(source: &str, open: usize, quote: u8, backslashes: bool) -> Result<usize> {
    let bytes = source.as_bytes();
    let mut at = open + 1;
    while at < bytes.len() {
        if backslashes && bytes[at] == b'\\' {
            at += 2;
        } else if bytes[at] == quote {
            if bytes.get(at + 1) != Some(&quote) {
                return Ok(at + 1);
            }
            at += 2;
        } else {
            at += 1;
        }
    }
    Err(unterminated(if quote == b'"' { "quoted identifier" } else { "quoted string" }, source, open))
}

fn dollar_quoted(source: &str, at: usize) -> Result<(Kind, usize)> {
    let bytes = source.as_bytes();
    let tag = bytes[at + 1..].iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
    let open = at + 1 + tag;
    if bytes.get(open) != Some(&b'$') {
        return Ok((Kind::Operator, at + 1));
    }
    let delimiter = &source[at..=open];
    match source[open + 1..].find(delimiter) {
        Some(length) => Ok((Kind::OtherString, open + 1 + length + delimiter.len())),
        None => Err(unterminated("dollar-quoted string", source, at)),
    }
}

fn number(bytes: &[u8], start: usize) -> (Kind, usize) {
    let digits = |from: usize| bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let mut at = start + digits(start);
    let mut kind = Kind::Integer;
    // `1..2` is not a number followed by a point.
    if bytes.get(at) == Some(&b'.') && bytes.get(at + 1) != Some(&b'.') {
        kind = Kind::Decimal;
        at += 1 + digits(at + 1);
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        let exponent = digits((at + 1 + sign).min(bytes.len()));
        if exponent > 0 {
            kind = Kind::Decimal;
            at += 1 + sign + exponent;
        }
    }
    (kind, at)
}

/// PostgreSQL's rule: the longest run of operator characters, less a trailing `+` or `-` unless the operator holds one of
/// `~ ! @ # % ^ & | ?`, and never into a comment.
fn operator_end(bytes: &[u8], start: usize) -> usize {
    let mut end = start;
    while end < bytes.len() && b"+-*/<>=~!@#%^&|`?".contains(&bytes[end]) {
        let comment = (bytes[end] == b'-' && bytes.get(end + 1) == Some(&b'-'))
            || (bytes[end] == b'/' && bytes.get(end + 1) == Some(&b'*'));
        if comment && end > start {
            break;
        }
        end += 1;
    }
    let special = bytes[start..end].iter().any(|b| b"~!@#%^&|`?".contains(b));
    while !special && end > start + 1 && matches!(bytes[end - 1], b'+' | b'-') {
        end -= 1;
    }
    end
}

/// Splits tokens at top-level semicolons; empty statements are dropped. Ranges are token indexes.
pub fn statements(source: &str, tokens: &[Token]) -> Vec<std::ops::Range<usize>> {
    let mut found = Vec::new();
    let mut start = 0;
    for (index, token) in tokens.iter().enumerate() {
        if token.kind == Kind::Punct && token.is(source, ";") {
            if index > start {
                found.push(start..index);
            }
            start = index + 1;
        }
    }
    if tokens.len() > start {
        found.push(start..tokens.len());
    }
    found
}

/// Refuses a statement whose tree could nest deeper than [`MAX_DEPTH`]: the parser, the binder and the evaluation walk
/// trees recursively on a stack of bounded size. Counts operators, `AND`, `OR`, `NOT` and set operations between commas.
///
/// # Errors
/// 54001.
pub fn check_depth(source: &str, tokens: &[Token]) -> Result<()> {
    let mut levels: Vec<u32> = vec![0];
    let mut total = 0_u32;
    for token in tokens {
        let text = token.text(source);
        match (token.kind, text) {
            (Kind::Punct, "(" | "[") => {
                levels.push(1);
                total += 1;
            }
            (Kind::Punct, ")" | "]") if levels.len() > 1 => total -= levels.pop().unwrap_or(0),
            (Kind::Punct, ",") => {
                if let Some(level) = levels.last_mut() {
                    let base = u32::from(*level > 0);
                    total -= *level - base;
                    *level = base;
                }
            }
            (Kind::Operator, _) => bump(&mut levels, &mut total),
            (Kind::Word, _) if text.len() <= 9 && NESTING.iter().any(|word| text.eq_ignore_ascii_case(word)) => {
                bump(&mut levels, &mut total);
            }
            _ => {}
        }
        if total > MAX_DEPTH {
            return Err(too_deep());
        }
    }
    Ok(())
}

const NESTING: [&str; 12] =
    ["and", "or", "not", "union", "intersect", "except", "join", "is", "collate", "isnull", "notnull", "case"];

fn bump(levels: &mut [u32], total: &mut u32) {
    if let Some(level) = levels.last_mut() {
        *level += 1;
        *total += 1;
    }
}

/// The error for a statement that nests too deeply.
pub fn too_deep() -> Error {
    Error::new(SqlState::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded")
        .with_hint(format!("The statement nests more than {MAX_DEPTH} levels deep; write it flatter."))
}

/// Reads an identifier token as PostgreSQL does: plain ones fold to lower case, quoted ones keep theirs.
pub fn identifier(source: &str, token: &Token) -> Option<String> {
    let text = token.text(source);
    match token.kind {
        Kind::Word => Some(text.to_lowercase()),
        Kind::Quoted => Some(text[1..text.len() - 1].replace("\"\"", "\"")),
        _ => None,
    }
}

/// Reads a string token's value (plain, `E''` and dollar-quoted).
pub fn string_value(source: &str, token: &Token) -> Option<String> {
    let text = token.text(source);
    match token.kind {
        Kind::String => Some(text[1..text.len() - 1].replace("''", "'")),
        Kind::OtherString if text.starts_with('$') => {
            let tag = text[1..].find('$')? + 2;
            Some(text[tag..text.len() - tag].to_string())
        }
        Kind::OtherString if text.starts_with(['e', 'E']) => Some(unescape(&text[2..text.len() - 1])),
        _ => None,
    }
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\'' => {
                chars.next();
                out.push('\'');
            }
            '\\' => match chars.next() {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some('r') => out.push('\r'),
                Some('b') => out.push('\u{8}'),
                Some('f') => out.push('\u{c}'),
                Some(other) => out.push(other),
                None => {}
            },
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> Vec<&str> {
        let mut tokens = Vec::new();
        lex(source, &mut tokens).unwrap();
        tokens.iter().map(|t| t.text(source)).collect()
    }

    #[test]
    fn tokens_follow_postgresqls_rules() {
        assert_eq!(
            words("select 'it''s', \"A b\" -- c\n /* x /* y */ */ , $1::int"),
            ["select", "'it''s'", ",", "\"A b\"", ",", "$1", "::", "int"]
        );
        assert_eq!(
            words("a=-1 b<>2.5e3 c.d $q$x;y$q$"),
            ["a", "=", "-", "1", "b", "<>", "2.5e3", "c", ".", "d", "$q$x;y$q$"]
        );
        assert_eq!(words("E'a\\'b' 1.5.x"), ["E'a\\'b'", "1.5", ".", "x"]);
    }

    #[test]
    fn an_unterminated_string_is_an_error() {
        assert!(lex("select 'abc", &mut Vec::new()).is_err());
        assert!(lex("/* abc", &mut Vec::new()).is_err());
    }

    #[test]
    fn statements_split_at_semicolons_outside_strings() {
        let source = "; a 'x;y'; b;";
        let mut tokens = Vec::new();
        lex(source, &mut tokens).unwrap();
        assert_eq!(statements(source, &tokens), [1..3, 4..5]);
    }

    #[test]
    fn deep_nesting_is_refused_and_long_lists_are_not() {
        let check = |source: &str| {
            let mut tokens = Vec::new();
            lex(source, &mut tokens).unwrap();
            check_depth(source, &tokens)
        };
        assert!(check(&format!("select {}1{}", "(".repeat(1000), ")".repeat(1000))).is_err());
        assert!(check(&format!("select 1{}", "+1".repeat(1000))).is_err());
        assert!(check(&format!("select {}1", "-1,".repeat(1000))).is_ok());
        assert!(check(&format!("insert into t values {}(1)", "(-1),".repeat(1000))).is_ok());
    }
}
