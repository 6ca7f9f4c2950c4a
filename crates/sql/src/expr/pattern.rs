//! Does a text match a LIKE pattern or a regular expression?
//!
//! Regular expressions are those of the regex-lite crate: linear in time, without back-references and look-around.

use homenode_types::{Error, Result, SqlState, Type, Value, ValueRef};
use regex_lite::{Regex, RegexBuilder};
use std::fmt;
use std::sync::Arc;

/// Which kind of pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Kind {
    Like,
    ILike,
    Similar,
    Regex,
    RegexI,
}

impl Kind {
    /// The operator.
    pub(super) fn symbol(self, negated: bool) -> &'static str {
        match (self, negated) {
            (Kind::Like, false) => "~~",
            (Kind::Like, true) => "!~~",
            (Kind::ILike, false) => "~~*",
            (Kind::ILike, true) => "!~~*",
            (Kind::Regex | Kind::Similar, false) => "~",
            (Kind::Regex | Kind::Similar, true) => "!~",
            (Kind::RegexI, false) => "~*",
            (Kind::RegexI, true) => "!~*",
        }
    }
}

/// How a pattern is read, and the pattern itself where it is known in advance.
#[derive(Clone)]
pub struct Matcher {
    kind: Kind,
    escape: Option<char>,
    compiled: Option<Pattern>,
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The pattern is printed by the expression that holds it.
        write!(f, "{:?}{:?}", self.kind, self.escape)
    }
}

/// A compiled pattern.
#[derive(Clone)]
pub enum Pattern {
    /// LIKE, as steps.
    Like(Arc<[Step]>),
    /// A regular expression.
    Regex(Arc<Regex>),
}

/// A step of a LIKE pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// This character.
    Char(char),
    /// `_`.
    One,
    /// `%`.
    Any,
}

impl Matcher {
    pub(super) fn new(kind: Kind, escape: Option<char>) -> Matcher {
        Matcher { kind, escape, compiled: None }
    }

    pub(super) fn compiled(kind: Kind, escape: Option<char>, pattern: &str) -> Result<Matcher> {
        Ok(Matcher { kind, escape, compiled: Some(compile(kind, escape, pattern)?) })
    }

    /// The kind of pattern.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What every matching text starts with (for key ranges): of a constant, case-sensitive LIKE.
    pub fn prefix(&self) -> Option<String> {
        match (&self.compiled, self.kind) {
            (Some(Pattern::Like(steps)), Kind::Like) => {
                let chars = steps.iter().map_while(|step| match step {
                    Step::Char(c) => Some(*c),
                    _ => None,
                });
                Some(chars.collect())
            }
            _ => None,
        }
    }

    pub(super) fn matches(&self, text: &str, pattern: &str) -> Result<bool> {
        let made;
        let compiled = match &self.compiled {
            Some(compiled) => compiled,
            None => {
                made = compile(self.kind, self.escape, pattern)?;
                &made
            }
        };
        Ok(match compiled {
            Pattern::Regex(regex) => regex.is_match(text),
            Pattern::Like(steps) if self.kind == Kind::ILike => like(&text.to_lowercase(), steps),
            Pattern::Like(steps) => like(text, steps),
        })
    }
}

fn compile(kind: Kind, escape: Option<char>, pattern: &str) -> Result<Pattern> {
    match kind {
        Kind::Like => like_steps(pattern, escape).map(|steps| Pattern::Like(steps.into())),
        Kind::ILike => like_steps(&pattern.to_lowercase(), escape).map(|steps| Pattern::Like(steps.into())),
        Kind::Regex => regex(pattern, false).map(|r| Pattern::Regex(Arc::new(r))),
        Kind::RegexI => regex(pattern, true).map(|r| Pattern::Regex(Arc::new(r))),
        Kind::Similar => regex(&similar(pattern, escape), false).map(|r| Pattern::Regex(Arc::new(r))),
    }
}

fn like_steps(pattern: &str, escape: Option<char>) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        steps.push(match c {
            c if Some(c) == escape => Step::Char(chars.next().ok_or_else(|| {
                Error::new(SqlState::INVALID_ESCAPE_SEQUENCE, "LIKE pattern must not end with escape character")
            })?),
            '%' => Step::Any,
            '_' => Step::One,
            c => Step::Char(c),
        });
    }
    Ok(steps)
}

/// Greedy with one point to come back to: the last `%`. Takes at most the product of the lengths.
fn like(text: &str, steps: &[Step]) -> bool {
    let (mut rest, mut at) = (text.chars(), 0);
    let mut retry: Option<(std::str::Chars<'_>, usize)> = None;
    loop {
        if steps.get(at) == Some(&Step::Any) {
            at += 1;
            retry = Some((rest.clone(), at));
            continue;
        }
        let fits = match (rest.next(), steps.get(at)) {
            (None, None) => return true,
            (None, Some(_)) => return false,
            (Some(c), Some(Step::Char(wanted))) => c == *wanted,
            (Some(_), Some(Step::One)) => true,
            (Some(_), _) => false,
        };
        if fits {
            at += 1;
            continue;
        }
        let Some((mut from, step)) = retry.take() else { return false };
        if from.next().is_none() {
            return false;
        }
        rest = from.clone();
        at = step;
        retry = Some((from, step));
    }
}

fn regex(pattern: &str, ignore_case: bool) -> Result<Regex> {
    let (pattern, ignore_case) = match pattern.strip_prefix("(?i)") {
        Some(rest) => (rest, true),
        None => (pattern, ignore_case),
    };
    let pattern = pattern.replace("\\y", "\\b").replace("\\m", "\\b").replace("\\M", "\\b");
    RegexBuilder::new(&pattern)
        .case_insensitive(ignore_case)
        .dot_matches_new_line(true)
        .build()
        .map_err(|e| Error::new(SqlState::INVALID_REGULAR_EXPRESSION, format!("invalid regular expression: {e}")))
}

/// SIMILAR TO as a regular expression (similar_escape_internal).
fn similar(pattern: &str, escape: Option<char>) -> String {
    let mut out = String::from("^(?:");
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            c if Some(c) == escape => {
                if let Some(next) = chars.next() {
                    if !next.is_alphanumeric() {
                        out.push('\\');
                    }
                    out.push(next);
                }
            }
            '%' => out.push_str(".*"),
            '_' => out.push('.'),
            '.' | '^' | '$' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out.push_str(")$");
    out
}

/// `substring(text from pattern)`: the first group, or the whole match.
pub(super) fn find(text: &str, pattern: &str) -> Result<Value> {
    let found = regex(pattern, false)?.captures(text).and_then(|groups| {
        let group = if groups.len() > 1 { groups.get(1) } else { groups.get(0) };
        group.map(|m| m.as_str().to_string())
    });
    Ok(found.map_or(Value::Null, Value::Text))
}

/// The pattern with the options of a regexp function; whether one of them is `g`, all matches.
fn with_flags(pattern: &str, flags: &str) -> Result<(Regex, bool)> {
    if let Some(unknown) = flags.chars().find(|c| !matches!(c, 'g' | 'i' | 'c')) {
        return Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("invalid regular expression option: \"{unknown}\""),
        ));
    }
    Ok((regex(pattern, flags.contains('i'))?, flags.contains('g')))
}

fn without_global(flags: &str, function: &str) -> Result<()> {
    if !flags.contains('g') {
        return Ok(());
    }
    let message = format!("{function} does not support the \"global\" option");
    Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message))
}

/// `regexp_split_to_table` and `regexp_split_to_array`: what is between the matches. An empty match at the text's ends or right behind
/// another match splits nothing.
pub(super) fn split(text: &str, pattern: &str, flags: &str) -> Result<Vec<String>> {
    without_global(flags, "regexp_split_to_table()")?;
    let (regex, _) = with_flags(pattern, flags)?;
    let mut parts = Vec::new();
    let mut from = 0;
    for found in regex.find_iter(text) {
        if found.is_empty() && (found.start() == from || found.start() == text.len()) {
            continue;
        }
        parts.push(text[from..found.start()].to_string());
        from = found.end();
    }
    parts.push(text[from..].to_string());
    Ok(parts)
}

/// `regexp_matches`: for each match an array of its groups, or of all of it where the pattern has none.
pub(super) fn matches(text: &str, pattern: &str, flags: &str) -> Result<Vec<Value>> {
    let (regex, all) = with_flags(pattern, flags)?;
    let limit = if all { usize::MAX } else { 1 };
    Ok(regex.captures_iter(text).take(limit).map(|found| groups_of(&found)).collect())
}

/// `regexp_match`: the groups of the first match.
pub(super) fn first_match(text: &str, pattern: &str, flags: &str) -> Result<Value> {
    without_global(flags, "regexp_match()")
        .map_err(|error| error.with_hint("Use the regexp_matches function instead."))?;
    let (regex, _) = with_flags(pattern, flags)?;
    Ok(regex.captures(text).map_or(Value::Null, |found| groups_of(&found)))
}

fn groups_of(found: &regex_lite::Captures<'_>) -> Value {
    let first = usize::from(found.len() > 1);
    let group = |number| found.get(number).map_or(ValueRef::Null, |group| ValueRef::Text(group.as_str()));
    let groups: Vec<ValueRef<'_>> = (first..found.len()).map(group).collect();
    Value::Text(homenode_types::array::format(&groups, Type::TextArray))
}

/// The matches of a pattern, for the functions that count or pick them.
pub(super) fn spans(text: &str, pattern: &str, flags: &str, function: &str) -> Result<Vec<std::ops::Range<usize>>> {
    without_global(flags, function)?;
    let (regex, _) = with_flags(pattern, flags)?;
    Ok(regex.find_iter(text).map(|found| found.range()).collect())
}

/// `regexp_replace`: the first match, all with flag `g`; `\1` and `\&` in the replacement.
pub(super) fn replace(text: &str, pattern: &str, with: &str, flags: &str) -> Result<Value> {
    let (regex, all) = with_flags(pattern, flags)?;
    let expand = |groups: &regex_lite::Captures<'_>| {
        let mut out = String::new();
        let mut chars = with.chars();
        while let Some(c) = chars.next() {
            match (c, if c == '\\' { chars.next() } else { None }) {
                ('\\', Some('&')) => out.push_str(groups.get(0).map_or("", |m| m.as_str())),
                ('\\', Some(d)) if d.is_ascii_digit() => {
                    let group = d as usize - '0' as usize;
                    out.push_str(groups.get(group).map_or("", |m| m.as_str()));
                }
                ('\\', Some(other)) => out.push(other),
                (c, _) => out.push(c),
            }
        }
        out
    };
    let limit = usize::from(!all);
    Ok(Value::Text(regex.replacen(text, limit, expand).into_owned()))
}
