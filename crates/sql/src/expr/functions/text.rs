//! Functions of text and bytes.

use super::super::function::{ANY, Body, Function, Volatility, strict};
use super::super::pattern;
use super::{bytes_text, int, sets, text};
use homenode_types::Type::{self, Bool, Bytea, Int4, Name, Text, TextArray};
use homenode_types::{Error, Result, SqlState, Value, array};

const fn plain(
    name: &'static str,
    args: &'static [Type],
    variadic: Option<Type>,
    f: fn(&[Value]) -> Result<Value>,
) -> Function {
    Function { name, args, variadic, result: Text, volatility: Volatility::Immutable, body: Body::Plain(f) }
}

const fn plain_array(name: &'static str, args: &'static [Type], f: fn(&[Value]) -> Result<Value>) -> Function {
    Function { result: TextArray, ..plain(name, args, None, f) }
}

fn text_array(items: Vec<String>) -> Value {
    let items: Vec<Value> = items.into_iter().map(Value::Text).collect();
    Value::Text(array::format(&items.iter().map(Value::as_ref).collect::<Vec<_>>(), TextArray))
}

/// The fields between separators (each character without one), those that are `null_is` as NULL.
fn string_to_array(args: &[Value], null_is: Option<&str>) -> Result<Value> {
    let Some(whole) = args[0].as_str() else { return Ok(Value::Null) };
    let fields = match args[1].as_str() {
        None => whole.chars().map(String::from).collect(),
        Some(separator) => sets::split(whole, separator),
    };
    let value = |field: String| if Some(field.as_str()) == null_is { Value::Null } else { Value::Text(field) };
    let fields: Vec<Value> = fields.into_iter().map(value).collect();
    ok(array::format(&fields.iter().map(Value::as_ref).collect::<Vec<_>>(), TextArray))
}

fn matches(args: &[Value], flags: &str, function: &str) -> Result<Vec<std::ops::Range<usize>>> {
    pattern::spans(text(&args[0]), text(&args[1]), flags, function)
}

fn ok(text: impl Into<String>) -> Result<Value> {
    Ok(Value::Text(text.into()))
}

fn count(n: usize) -> Result<Value> {
    Ok(Value::Int4(n as i32))
}

/// The table.
pub(super) static FUNCTIONS: &[Function] = &[
    strict("length", &[Text], Int4, |a| count(text(&a[0]).chars().count())),
    strict("length", &[Bytea], Int4, |a| count(bytes(&a[0]).len())),
    strict("char_length", &[Text], Int4, |a| count(text(&a[0]).chars().count())),
    strict("character_length", &[Text], Int4, |a| count(text(&a[0]).chars().count())),
    strict("octet_length", &[Text], Int4, |a| count(text(&a[0]).len())),
    strict("octet_length", &[Bytea], Int4, |a| count(bytes(&a[0]).len())),
    strict("bit_length", &[Text], Int4, |a| count(8 * text(&a[0]).len())),
    strict("lower", &[Text], Text, |a| ok(text(&a[0]).to_lowercase())),
    strict("upper", &[Text], Text, |a| ok(text(&a[0]).to_uppercase())),
    strict("initcap", &[Text], Text, |a| ok(initcap(text(&a[0])))),
    strict("reverse", &[Text], Text, |a| ok(text(&a[0]).chars().rev().collect::<String>())),
    strict("substring", &[Text, Int4], Text, |a| substring(text(&a[0]), int(&a[1]), None)),
    strict("substring", &[Text, Int4, Int4], Text, |a| substring(text(&a[0]), int(&a[1]), Some(int(&a[2])))),
    strict("substring", &[Text, Text], Text, |a| pattern::find(text(&a[0]), text(&a[1]))),
    strict("substr", &[Text, Int4], Text, |a| substring(text(&a[0]), int(&a[1]), None)),
    strict("substr", &[Text, Int4, Int4], Text, |a| substring(text(&a[0]), int(&a[1]), Some(int(&a[2])))),
    strict("overlay", &[Text, Text, Int4], Text, |a| overlay(a, text(&a[1]).chars().count() as i64)),
    strict("overlay", &[Text, Text, Int4, Int4], Text, |a| overlay(a, int(&a[3]))),
    strict("btrim", &[Text], Text, |a| ok(text(&a[0]).trim_matches(' '))),
    strict("btrim", &[Text, Text], Text, |a| ok(text(&a[0]).trim_matches(|c| text(&a[1]).contains(c)))),
    strict("ltrim", &[Text], Text, |a| ok(text(&a[0]).trim_start_matches(' '))),
    strict("ltrim", &[Text, Text], Text, |a| ok(text(&a[0]).trim_start_matches(|c| text(&a[1]).contains(c)))),
    strict("rtrim", &[Text], Text, |a| ok(text(&a[0]).trim_end_matches(' '))),
    strict("rtrim", &[Text, Text], Text, |a| ok(text(&a[0]).trim_end_matches(|c| text(&a[1]).contains(c)))),
    strict("replace", &[Text, Text, Text], Text, |a| match text(&a[1]) {
        "" => ok(text(&a[0])),
        from => ok(text(&a[0]).replace(from, text(&a[2]))),
    }),
    strict("translate", &[Text, Text, Text], Text, |a| ok(translate(text(&a[0]), text(&a[1]), text(&a[2])))),
    strict("position", &[Text, Text], Int4, |a| Ok(position(text(&a[0]), text(&a[1])))),
    strict("strpos", &[Text, Text], Int4, |a| Ok(position(text(&a[0]), text(&a[1])))),
    strict("starts_with", &[Text, Text], Bool, |a| Ok(Value::Bool(text(&a[0]).starts_with(text(&a[1]))))),
    strict("left", &[Text, Int4], Text, |a| ok(chars(text(&a[0]), 0, from_start(text(&a[0]), int(&a[1]))))),
    strict("right", &[Text, Int4], Text, |a| {
        let total = text(&a[0]).chars().count();
        let n = from_start(text(&a[0]), int(&a[1]));
        ok(chars(text(&a[0]), total - n, n))
    }),
    strict("lpad", &[Text, Int4], Text, |a| pad(text(&a[0]), int(&a[1]), " ", true)),
    strict("lpad", &[Text, Int4, Text], Text, |a| pad(text(&a[0]), int(&a[1]), text(&a[2]), true)),
    strict("rpad", &[Text, Int4], Text, |a| pad(text(&a[0]), int(&a[1]), " ", false)),
    strict("rpad", &[Text, Int4, Text], Text, |a| pad(text(&a[0]), int(&a[1]), text(&a[2]), false)),
    strict("repeat", &[Text, Int4], Text, |a| {
        let times = int(&a[1]).max(0) as usize;
        checked_length(text(&a[0]).len().saturating_mul(times))?;
        ok(text(&a[0]).repeat(times))
    }),
    strict("split_part", &[Text, Text, Int4], Text, |a| split_part(text(&a[0]), text(&a[1]), int(&a[2]))),
    strict("ascii", &[Text], Int4, |a| Ok(Value::Int4(text(&a[0]).chars().next().map_or(0, |c| c as i32)))),
    strict("chr", &[Int4], Text, |a| chr(int(&a[0]))),
    strict("textcat", &[Text, Text], Text, |a| {
        let (left, right) = (text(&a[0]), text(&a[1]));
        let mut joined = String::with_capacity(left.len() + right.len());
        joined.push_str(left);
        joined.push_str(right);
        ok(joined)
    }),
    strict("byteacat", &[Bytea, Bytea], Bytea, |a| Ok(Value::Bytea([bytes(&a[0]), bytes(&a[1])].concat()))),
    plain("concat", &[ANY], Some(ANY), |a| ok(a.iter().map(shown).collect::<String>())),
    plain("concat_ws", &[Text, ANY], Some(ANY), |a| match &a[0] {
        Value::Null => Ok(Value::Null),
        separator => {
            let parts: Vec<String> = a[1..].iter().filter(|v| !v.is_null()).map(shown).collect();
            ok(parts.join(text(separator)))
        }
    }),
    plain("format", &[Text], Some(ANY), format),
    strict("quote_ident", &[Text], Text, |a| ok(quote_ident(text(&a[0])))),
    strict("quote_literal", &[Text], Text, |a| ok(quote_literal(text(&a[0])))),
    plain("quote_nullable", &[Text], None, |a| match &a[0] {
        Value::Null => ok("NULL"),
        value => ok(quote_literal(text(value))),
    }),
    strict("encode", &[Bytea, Text], Text, |a| bytes_text::encode(bytes(&a[0]), text(&a[1])).map(Value::Text)),
    strict("decode", &[Text, Text], Bytea, |a| bytes_text::decode(text(&a[0]), text(&a[1])).map(Value::Bytea)),
    strict("regexp_replace", &[Text, Text, Text], Text, |a| {
        pattern::replace(text(&a[0]), text(&a[1]), text(&a[2]), "")
    }),
    strict("regexp_replace", &[Text, Text, Text, Text], Text, |a| {
        pattern::replace(text(&a[0]), text(&a[1]), text(&a[2]), text(&a[3]))
    }),
    strict("regexp_match", &[Text, Text], TextArray, |a| pattern::first_match(text(&a[0]), text(&a[1]), "")),
    strict("regexp_match", &[Text, Text, Text], TextArray, |a| {
        pattern::first_match(text(&a[0]), text(&a[1]), text(&a[2]))
    }),
    strict("regexp_split_to_array", &[Text, Text], TextArray, |a| {
        pattern::split(text(&a[0]), text(&a[1]), "").map(text_array)
    }),
    strict("regexp_split_to_array", &[Text, Text, Text], TextArray, |a| {
        pattern::split(text(&a[0]), text(&a[1]), text(&a[2])).map(text_array)
    }),
    strict("regexp_like", &[Text, Text], Bool, |a| Ok(Value::Bool(!matches(a, "", "regexp_like()")?.is_empty()))),
    strict("regexp_like", &[Text, Text, Text], Bool, |a| {
        Ok(Value::Bool(!matches(a, text(&a[2]), "regexp_like()")?.is_empty()))
    }),
    strict("regexp_count", &[Text, Text], Int4, |a| count(matches(a, "", "regexp_count()")?.len())),
    strict("regexp_substr", &[Text, Text], Text, |a| {
        let found = matches(a, "", "regexp_substr()")?;
        Ok(found.into_iter().next().map_or(Value::Null, |span| Value::text(&text(&a[0])[span])))
    }),
    strict("regexp_instr", &[Text, Text], Int4, |a| {
        let found = matches(a, "", "regexp_instr()")?;
        count(found.first().map_or(0, |span| text(&a[0])[..span.start].chars().count() + 1))
    }),
    plain_array("string_to_array", &[Text, Text], |a| string_to_array(a, None)),
    plain_array("string_to_array", &[Text, Text, Text], |a| string_to_array(a, a[2].as_str())),
    strict("array_to_string", &[ANY, Text], Text, |a| array_to_string(text(&a[0]), text(&a[1]), None)),
    strict("array_to_string", &[ANY, Text, Text], Text, |a| {
        array_to_string(text(&a[0]), text(&a[1]), Some(text(&a[2])))
    }),
    strict("array_length", &[ANY, Int4], Int4, |a| match (items(text(&a[0]))?.len(), int(&a[1])) {
        (n @ 1.., 1) => count(n),
        _ => Ok(Value::Null),
    }),
    strict("array_upper", &[ANY, Int4], Int4, |a| match (items(text(&a[0]))?.len(), int(&a[1])) {
        (n @ 1.., 1) => count(if text(&a[0]).starts_with('{') { n } else { n - 1 }),
        _ => Ok(Value::Null),
    }),
    strict("array_lower", &[ANY, Int4], Int4, |a| match (items(text(&a[0]))?.len(), int(&a[1])) {
        (1.., 1) => count(usize::from(text(&a[0]).starts_with('{'))),
        _ => Ok(Value::Null),
    }),
    strict("cardinality", &[ANY], Int4, |a| count(items(text(&a[0]))?.len())),
    strict("name", &[Text], Name, |a| homenode_types::coerce(a[0].clone(), Name.into(), true)),
];

fn bytes(value: &Value) -> &[u8] {
    match value {
        Value::Bytea(bytes) => bytes,
        _ => &[],
    }
}

/// A value as concat and format print it.
fn shown(value: &Value) -> String {
    value.as_ref().to_text(value.natural_type())
}

/// PostgreSQL's limit of a value: 1 GB.
fn checked_length(bytes: usize) -> Result<()> {
    if bytes > 0x3fff_ffff {
        return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "requested length too large"));
    }
    Ok(())
}

fn initcap(s: &str) -> String {
    let mut inside = false;
    let mut out = String::with_capacity(s.len());
    for c in s.chars() {
        if inside {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
        inside = c.is_alphanumeric();
    }
    out
}

/// `n` characters from the `skip`th on.
fn chars(s: &str, skip: usize, n: usize) -> &str {
    let at = |i: usize| s.char_indices().nth(i).map_or(s.len(), |(at, _)| at);
    &s[at(skip)..at(skip.saturating_add(n))]
}

/// How many characters left() and right() take: all but -n for a negative n.
fn from_start(s: &str, n: i64) -> usize {
    let total = s.chars().count();
    if n >= 0 { total.min(n as usize) } else { total.saturating_sub(n.unsigned_abs() as usize) }
}

fn substring(s: &str, start: i64, length: Option<i64>) -> Result<Value> {
    let end = match length {
        Some(n) if n < 0 => return Err(Error::new(SqlState::SUBSTRING_ERROR, "negative substring length not allowed")),
        Some(n) => start.saturating_add(n),
        None => i64::MAX,
    };
    let start = start.max(1);
    ok(chars(s, (start - 1) as usize, (end - start).max(0) as usize))
}

fn overlay(a: &[Value], length: i64) -> Result<Value> {
    let (s, start) = (text(&a[0]), int(&a[2]));
    if start <= 0 {
        return Err(Error::new(SqlState::SUBSTRING_ERROR, "negative substring length not allowed"));
    }
    let head = chars(s, 0, (start - 1) as usize);
    let tail = chars(s, (start - 1).saturating_add(length).max(0) as usize, usize::MAX / 2);
    ok(format!("{head}{}{tail}", text(&a[1])))
}

fn translate(s: &str, from: &str, to: &str) -> String {
    let to: Vec<char> = to.chars().collect();
    s.chars()
        .filter_map(|c| match from.chars().position(|f| f == c) {
            None => Some(c),
            Some(at) => to.get(at).copied(),
        })
        .collect()
}

fn position(s: &str, part: &str) -> Value {
    Value::Int4(s.find(part).map_or(0, |at| s[..at].chars().count() as i32 + 1))
}

fn pad(s: &str, length: i64, fill: &str, left: bool) -> Result<Value> {
    let length = length.max(0) as usize;
    checked_length(length)?;
    let have = s.chars().count();
    if have >= length || fill.is_empty() {
        return ok(chars(s, 0, length));
    }
    let padding: String = fill.chars().cycle().take(length - have).collect();
    ok(if left { format!("{padding}{s}") } else { format!("{s}{padding}") })
}

fn split_part(s: &str, separator: &str, n: i64) -> Result<Value> {
    if n == 0 {
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, "field position must not be zero"));
    }
    let parts: Vec<&str> = if separator.is_empty() { vec![s] } else { s.split(separator).collect() };
    let at = if n > 0 { (n - 1) as usize } else { parts.len().wrapping_sub(n.unsigned_abs() as usize) };
    ok(parts.get(at).copied().unwrap_or_default())
}

fn chr(code: i64) -> Result<Value> {
    if code == 0 {
        return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "null character not permitted"));
    }
    match u32::try_from(code).ok().and_then(char::from_u32) {
        Some(c) => ok(c),
        None => Err(Error::new(
            SqlState::PROGRAM_LIMIT_EXCEEDED,
            format!("requested character too large for encoding: {code}"),
        )),
    }
}

/// Keywords that PostgreSQL reserves: an identifier spelt so needs quotes.
const RESERVED: &[&str] = &[
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "authorization",
    "between",
    "bigint",
    "binary",
    "bit",
    "boolean",
    "both",
    "case",
    "cast",
    "char",
    "character",
    "check",
    "coalesce",
    "collate",
    "collation",
    "column",
    "concurrently",
    "constraint",
    "create",
    "cross",
    "current_catalog",
    "current_date",
    "current_role",
    "current_schema",
    "current_time",
    "current_timestamp",
    "current_user",
    "dec",
    "decimal",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "exists",
    "extract",
    "false",
    "fetch",
    "float",
    "for",
    "foreign",
    "freeze",
    "from",
    "full",
    "grant",
    "greatest",
    "group",
    "grouping",
    "having",
    "ilike",
    "in",
    "initially",
    "inner",
    "inout",
    "int",
    "integer",
    "intersect",
    "interval",
    "into",
    "is",
    "isnull",
    "join",
    "lateral",
    "leading",
    "least",
    "left",
    "like",
    "limit",
    "localtime",
    "localtimestamp",
    "national",
    "natural",
    "nchar",
    "none",
    "normalize",
    "not",
    "notnull",
    "null",
    "nullif",
    "numeric",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "out",
    "outer",
    "overlaps",
    "overlay",
    "placing",
    "position",
    "precision",
    "primary",
    "real",
    "references",
    "returning",
    "right",
    "row",
    "select",
    "session_user",
    "setof",
    "similar",
    "smallint",
    "some",
    "substring",
    "symmetric",
    "table",
    "tablesample",
    "then",
    "time",
    "timestamp",
    "to",
    "trailing",
    "treat",
    "trim",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "values",
    "varchar",
    "variadic",
    "verbose",
    "when",
    "where",
    "window",
    "with",
    "xmlattributes",
    "xmlconcat",
    "xmlelement",
];

/// The identifier as SQL must write it.
pub(super) fn quote_ident(name: &str) -> String {
    let mut bytes = name.bytes();
    let starts = bytes.next().is_some_and(|b| b.is_ascii_lowercase() || b == b'_');
    let plain = starts && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if plain && !RESERVED.contains(&name) {
        return name.to_string();
    }
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn quote_literal(s: &str) -> String {
    let quoted = s.replace('\'', "''");
    if s.contains('\\') {
        format!(" E'{}'", quoted.replace('\\', "\\\\")).trim_start().to_string()
    } else {
        format!("'{quoted}'")
    }
}

/// `format`: `%s`, `%I`, `%L`, `%%`, and positions `%1$s`.
fn format(a: &[Value]) -> Result<Value> {
    let invalid = |message: &str| Error::new(SqlState::INVALID_PARAMETER_VALUE, message);
    let Value::Text(template) = &a[0] else { return Ok(Value::Null) };
    let (mut out, mut next) = (String::new(), 1);
    let mut rest = template.chars().peekable();
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut digits = String::new();
        while let Some(d) = rest.next_if(char::is_ascii_digit) {
            digits.push(d);
        }
        if !digits.is_empty() {
            rest.next_if_eq(&'$').ok_or_else(|| Error::unsupported("a width in format"))?;
            next = digits
                .parse()
                .map_err(|_| invalid("format specifies argument 0, but arguments are numbered from 1"))?;
        }
        let kind = rest.next().ok_or_else(|| invalid("unterminated format() type specifier"))?;
        if kind == '%' {
            out.push('%');
            continue;
        }
        if !matches!(kind, 's' | 'I' | 'L') {
            return Err(invalid(&format!("unrecognized format() type specifier \"{kind}\"")));
        }
        let value = a.get(next).filter(|_| next > 0).ok_or_else(|| invalid("too few arguments for format()"))?;
        next += 1;
        match (kind, value) {
            ('s', value) => out.push_str(&shown(value)),
            ('I', Value::Null) => {
                return Err(Error::new(
                    SqlState::NULL_VALUE_NOT_ALLOWED,
                    "null values cannot be formatted as an SQL identifier",
                ));
            }
            ('I', value) => out.push_str(&quote_ident(&shown(value))),
            (_, Value::Null) => out.push_str("NULL"),
            (_, value) => out.push_str(&quote_literal(&shown(value))),
        }
    }
    ok(out)
}

fn items(array: &str) -> Result<Vec<Value>> {
    let ty = if array.starts_with('{') { Type::TextArray } else { Type::Int2Vector };
    homenode_types::array::elements(array, ty)
}

fn array_to_string(array: &str, separator: &str, null: Option<&str>) -> Result<Value> {
    let parts: Vec<String> = items(array)?
        .iter()
        .filter_map(|item| if item.is_null() { null.map(str::to_string) } else { Some(shown(item)) })
        .collect();
    ok(parts.join(separator))
}
