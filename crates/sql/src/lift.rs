//! Can a statement be known again when only its literals differ? Lifts literals out of plain statements.
//!
//! The simple protocol sends whole texts: `SELECT abalance FROM pgbench_accounts WHERE aid = 4711`. Parsing and planning cost
//! more than running such a statement. Literals in places where a parameter means exactly the same are replaced by `$n`; the
//! normalised text with the literals' types is the key of the plan cache.
//!
//! What is lifted must not change meaning, so the list is short: after a comparison or arithmetic operator, BETWEEN or AND,
//! or inside `IN (...)` of the WHERE part of SELECT, UPDATE and DELETE and the SET part of UPDATE, and the items of INSERT's
//! VALUES. Anything in a select list, GROUP BY, ORDER BY, LIMIT, after a type name or before a cast stays.
//! A lifted literal keeps the type PostgreSQL gives it: int4, int8, numeric, or unknown for strings.

use crate::lexer::{Kind, Token};
use homenode_types::{Type, Value};

/// Longer statements are not looked up: their texts hardly repeat.
const MAX_BYTES: usize = 8 << 10;
const MAX_LITERALS: usize = 64;

/// A statement with its literals lifted.
#[derive(Default, Debug)]
pub struct Lifted {
    /// Normalised text: literals replaced by `$1`, `$2`, ...; a following `\0` and one letter per literal name the types.
    pub key: String,
    /// Where the normalised statement ends in `key`.
    pub text_len: usize,
    /// The lifted values, strings as text.
    pub values: Vec<Value>,
    /// Their types.
    pub types: Vec<Type>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Region {
    /// Literals stay.
    Keep,
    /// Literals after operators go.
    Operators,
    /// Literals that stand alone between commas go too.
    Items,
}

/// Lifts the literals of one statement into `lifted`; false when the statement is not of the plain kind (then `lifted` is
/// of no use and the text has to be taken whole).
pub fn lift(source: &str, tokens: &[Token], lifted: &mut Lifted) -> bool {
    lifted.key.clear();
    lifted.values.clear();
    lifted.types.clear();
    let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else { return false };
    if (last.end - first.start) as usize > MAX_BYTES || first.kind != Kind::Word {
        return false;
    }
    let verb = first.text(source);
    let is = |word: &str| verb.eq_ignore_ascii_case(word);
    if !(is("select") || is("update") || is("delete") || is("insert")) {
        return false;
    }
    let insert = is("insert");
    let mut region = Region::Keep;
    let (mut depth, mut in_list_depth) = (0_u32, None);
    let mut copied = first.start as usize;
    for (index, token) in tokens.iter().enumerate() {
        let text = token.text(source);
        match token.kind {
            Kind::Param => return false,
            Kind::Punct if text == "(" => {
                depth += 1;
                if index > 0 && tokens[index - 1].is_word(source, "in") && region == Region::Operators {
                    in_list_depth = Some(depth);
                }
            }
            Kind::Punct if text == ")" => {
                if in_list_depth == Some(depth) {
                    in_list_depth = None;
                }
                depth = depth.saturating_sub(1);
            }
            Kind::Word => match next_region(text, index, depth, insert, region) {
                Some(new) => region = new,
                None => return false,
            },
            Kind::Integer | Kind::Decimal | Kind::String => {
                let items = (region == Region::Items && depth == 1) || in_list_depth == Some(depth);
                if !liftable(source, tokens, index, region, items) {
                    continue;
                }
                if lifted.values.len() == MAX_LITERALS {
                    return false;
                }
                let Some((value, ty)) = literal(text, token.kind) else { continue };
                lifted.key.push_str(&source[copied..token.start as usize]);
                lifted.values.push(value);
                lifted.types.push(ty);
                push_param(&mut lifted.key, lifted.values.len());
                copied = token.end as usize;
            }
            _ => {}
        }
    }
    lifted.key.push_str(&source[copied..last.end as usize]);
    lifted.text_len = lifted.key.len();
    lifted.key.push('\0');
    for ty in &lifted.types {
        lifted.key.push(match ty {
            Type::Int4 => 'i',
            Type::Int8 => 'l',
            Type::Numeric => 'n',
            _ => 's',
        });
    }
    true
}

/// The region after keyword `word`, or `None` when the statement is not plain.
fn next_region(word: &str, index: usize, depth: u32, insert: bool, region: Region) -> Option<Region> {
    let is = |keyword: &str| word.eq_ignore_ascii_case(keyword);
    if word.len() > 9 {
        return Some(region);
    }
    if index > 0 && (is("select") || is("with") || is("union") || is("intersect") || is("except") || is("over")) {
        // Subqueries and set operations: expressions may have to match each other; keep to the whole text.
        return None;
    }
    if is("values") && insert && depth == 0 {
        return Some(Region::Items);
    }
    if is("where") || (is("set") && depth == 0) {
        return Some(if insert { Region::Keep } else { Region::Operators });
    }
    let ends =
        ["group", "order", "having", "limit", "offset", "fetch", "for", "returning", "window", "on", "from", "join"];
    if ends.iter().any(|keyword| is(keyword)) {
        return Some(Region::Keep);
    }
    Some(region)
}

fn liftable(source: &str, tokens: &[Token], index: usize, region: Region, items: bool) -> bool {
    if region == Region::Keep && !items {
        return false;
    }
    // A cast, a subscript or a string that goes on in the next token needs the literal itself.
    if let Some(next) = tokens.get(index + 1) {
        let text = next.text(source);
        let plain_end = match next.kind {
            Kind::Punct => text == ")" || text == ",",
            Kind::Operator => COMPARISONS.contains(&text) || ARITHMETIC.contains(&text),
            Kind::Word => FOLLOWERS.iter().any(|word| text.eq_ignore_ascii_case(word)),
            _ => false,
        };
        if !plain_end {
            return false;
        }
    }
    let Some(previous) = index.checked_sub(1).map(|before| &tokens[before]) else { return false };
    let text = previous.text(source);
    match previous.kind {
        Kind::Operator if COMPARISONS.contains(&text) => true,
        Kind::Operator if ARITHMETIC.contains(&text) => {
            // A signed item of a list: `(-5, 3)`; or arithmetic in an expression.
            region == Region::Operators || items
        }
        Kind::Word => {
            region == Region::Operators && (previous.is_word(source, "between") || previous.is_word(source, "and"))
        }
        Kind::Punct => items && (text == "(" || text == ","),
        _ => false,
    }
}

const COMPARISONS: [&str; 7] = ["=", "<", ">", "<=", ">=", "<>", "!="];
const ARITHMETIC: [&str; 5] = ["+", "-", "*", "/", "%"];
const FOLLOWERS: [&str; 11] =
    ["and", "or", "where", "order", "group", "limit", "for", "returning", "offset", "having", "on"];

/// A literal's value and the type PostgreSQL's lexer gives it.
fn literal(text: &str, kind: Kind) -> Option<(Value, Type)> {
    match kind {
        Kind::Integer => {
            if let Ok(number) = text.parse::<i32>() {
                Some((Value::Int4(number), Type::Int4))
            } else {
                text.parse::<i64>().ok().map(|number| (Value::Int8(number), Type::Int8))
            }
        }
        // A decimal's digits matter to numeric arithmetic; the parser reads them.
        Kind::Decimal => None,
        Kind::String => Some((Value::Text(text[1..text.len() - 1].replace("''", "'")), Type::Unknown)),
        _ => None,
    }
}

fn push_param(key: &mut String, number: usize) {
    key.push('$');
    if number >= 10 {
        key.push((b'0' + (number / 10) as u8) as char);
    }
    key.push((b'0' + (number % 10) as u8) as char);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lexer::lex;

    fn normal(source: &str) -> Option<(String, usize)> {
        let mut tokens = Vec::new();
        lex(source, &mut tokens).unwrap();
        let mut lifted = Lifted::default();
        lift(source, &tokens, &mut lifted).then(|| (lifted.key[..lifted.text_len].to_string(), lifted.values.len()))
    }

    #[test]
    fn plain_statements_lose_their_literals() {
        assert_eq!(normal("SELECT a FROM t WHERE aid = 5"), Some(("SELECT a FROM t WHERE aid = $1".into(), 1)));
        assert_eq!(
            normal("UPDATE t SET a = a + -7 WHERE aid = 5 and c <> 'x''y'"),
            Some(("UPDATE t SET a = a + -$1 WHERE aid = $2 and c <> $3".into(), 3))
        );
        assert_eq!(
            normal("INSERT INTO t (a, b) VALUES (1, 'x', CURRENT_TIMESTAMP), (-2, NULL, now())"),
            Some(("INSERT INTO t (a, b) VALUES ($1, $2, CURRENT_TIMESTAMP), (-$3, NULL, now())".into(), 3))
        );
        assert_eq!(
            normal("SELECT DISTINCT c FROM t WHERE id BETWEEN 1 AND 2 ORDER BY c"),
            Some(("SELECT DISTINCT c FROM t WHERE id BETWEEN $1 AND $2 ORDER BY c".into(), 2))
        );
        assert_eq!(normal("delete from t where a in (1, 2)"), Some(("delete from t where a in ($1, $2)".into(), 2)));
    }

    #[test]
    fn literals_that_mean_more_than_a_value_stay() {
        for kept in [
            "SELECT 1, 'a' FROM t",
            "SELECT a FROM t ORDER BY 1 LIMIT 5",
            "SELECT a FROM t WHERE b = '2020-01-01'::date",
            "SELECT a FROM t WHERE b > interval '1 day'",
            "SELECT a + 1, count(*) FROM t GROUP BY a + 1",
            "INSERT INTO t VALUES (char(3) 'x', f(2))",
            "INSERT INTO t VALUES ('1'::int)",
        ] {
            assert_eq!(normal(kept), Some((kept.into(), 0)), "{kept}");
        }
        assert_eq!(normal("SELECT a FROM t WHERE b = 1 UNION SELECT 2"), None);
        assert_eq!(normal("SELECT a FROM t WHERE b = (SELECT max(c) FROM u WHERE d = 1)"), None);
        assert_eq!(normal("create table t (a int)"), None);
    }
}
