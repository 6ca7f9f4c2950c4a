//! Expressions with the types, results and errors that PostgreSQL 15 gives (`postgresql15.tsv`: expression, then type and
//! text, or the error), and what has no counterpart there.

use super::*;
use crate::dialect::Postgres;
use sqlparser::parser::Parser;

fn parse(text: &str) -> std::result::Result<ast::Expr, String> {
    let mut parser = Parser::new(&Postgres).try_with_sql(text).map_err(|e| e.to_string())?;
    parser.parse_expr().map_err(|e| e.to_string())
}

fn text_of(value: &Value, ty: Type) -> String {
    match value {
        Value::Null => "<NULL>".into(),
        value => value.as_ref().to_text(ty).replace('\\', "\\\\").replace('\n', "\\n"),
    }
}

fn answer(text: &str) -> String {
    let tree = match parse(text) {
        Ok(tree) => tree,
        Err(error) => return format!("does not parse: {error}"),
    };
    let run = || {
        let mut params = Params::default();
        let bound = bind(&tree, &NoColumns, &mut params)?;
        let ty = bound.ty.ty;
        let bound = match bound.ty.ty {
            Type::Unknown => cast_bound(bound, ColumnType::new(Type::Text), &mut params)?,
            _ => bound,
        };
        let value = bound.expr.eval(&(), &[], &mut Env::new(&mut NoHost))?;
        Ok(format!("{}\t{}", ty.sql_name(), text_of(&value, bound.ty.ty)))
    };
    run().unwrap_or_else(|error: Error| format!("ERROR:  {}: {}", error.code, error.message))
}

/// Where we differ and know it: the expression, and what we answer.
const KNOWN: &[(&str, &str)] = &[
    // Fractional powers go through floats.
    ("2::numeric^0.5", "numeric\t1.4142135623730951"),
    // The C library's last digit.
    ("cbrt(27)", "double precision\t3"),
    // Case is Unicode's, not that of the C locale.
    ("lower('ÀB')", "text\tàb"),
    ("upper('straße')", "text\tSTRASSE"),
    // The parser does not know this form.
    (
        "trim(leading from '  a ')",
        "does not parse: sql parser error: Expected: ), found: '  a ' at Line: 1, Column: 19",
    ),
];

#[test]
fn as_postgresql_answers() {
    let mut wrong = Vec::new();
    for line in include_str!("postgresql15.tsv").lines() {
        let (text, expected) = line.split_once('\t').expect("expression and answer");
        let expected = KNOWN.iter().find(|(known, _)| *known == text).map_or(expected, |(_, ours)| ours);
        let got = answer(text);
        if got != expected {
            wrong.push(format!("{text}\n   expected {expected}\n   got      {got}"));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Columns a (integer), b (bigint), c (character(5)), d (timestamp), t (text).
struct Columns;

impl Scope for Columns {
    fn column(&self, _: Option<&str>, name: &str) -> Result<Bound> {
        let at = ["a", "b", "c", "d", "t"].iter().position(|known| *known == name);
        let at =
            at.ok_or_else(|| Error::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist")))?;
        let types = [
            ColumnType::new(Type::Int4),
            ColumnType::new(Type::Int8),
            ColumnType::bpchar(5),
            ColumnType::new(Type::Timestamp),
            ColumnType::new(Type::Text),
        ];
        Ok(Bound { expr: Expr::Column(at), ty: types[at] })
    }
}

fn bound(text: &str, params: &mut Params) -> Bound {
    let tree = parse(text).unwrap();
    bind(&tree, &Columns, params).unwrap()
}

#[test]
fn parameters_take_their_type_from_where_they_stand() {
    let cases = [
        ("a = $1", Type::Int4, Type::Bool),
        ("a + $1", Type::Int4, Type::Int4),
        ("b between $1 and 5", Type::Int8, Type::Bool),
        ("$1 in (1, 2)", Type::Int4, Type::Bool),
        ("c = $1", Type::Bpchar, Type::Bool),
        ("d < $1", Type::Timestamp, Type::Bool),
        ("d + $1", Type::Interval, Type::Timestamp),
        ("t || $1", Type::Text, Type::Text),
        ("t like $1", Type::Text, Type::Bool),
        ("coalesce($1, a)", Type::Int4, Type::Int4),
        ("$1::int8", Type::Int8, Type::Int8),
        ("case when $1 then 1 end", Type::Bool, Type::Int4),
        ("a = any($1)", Type::Int4Array, Type::Bool),
        ("lower($1)", Type::Text, Type::Text),
    ];
    for (text, wanted, result) in cases {
        let mut params = Params::default();
        let bound = bound(text, &mut params);
        assert_eq!(params.types, [Some(wanted)], "{text}");
        assert_eq!(bound.ty.ty, result, "{text}");
    }
    // A declared type stays, and the column beside it stays bare.
    let mut params = Params::new(vec![Some(Type::Int8)]);
    let bound = bound("a = $1", &mut params);
    assert_eq!(params.types, [Some(Type::Int8)]);
    let Expr::Compare { op: CmpOp::Eq, left, right, .. } = &bound.expr else { panic!("{bound:?}") };
    assert!(matches!((&**left, &**right), (Expr::Column(0), Expr::Param(0))));
    assert_eq!(Params::new(vec![None]).finish(), [Type::Text]);
}

#[test]
fn rows_are_read_and_conditions_are_three_valued() {
    let row = vec![Value::Int4(7), Value::Int8(7), Value::text("ab   "), Value::Timestamp(0), Value::text("ab")];
    let cases = [
        ("a = b", Some(true)),
        ("a <> b or t is null", Some(false)),
        ("c = 'ab'", Some(true)),
        ("c = t", Some(true)),
        ("c like 'ab   '", Some(true)),
        ("t in ('x', null)", None),
        ("a + b = $1", Some(true)),
        ("d = '2000-01-01'", Some(true)),
        ("not (a > 3 and null)", None),
    ];
    for (text, wanted) in cases {
        let mut params = Params::default();
        let bound = bound(text, &mut params);
        let mut host = NoHost;
        let got = bound.expr.eval_bool(&row, &[Value::Int8(14)], &mut Env::new(&mut host)).unwrap();
        assert_eq!(got, wanted, "{text}");
    }
}

#[test]
fn assignments_check_lengths_and_types() {
    let to = |text: &str, target, assignment| {
        bind_to(&parse(text).unwrap(), target, assignment, &Columns, &mut Params::default())
    };
    let error = to("'abcdef'", ColumnType::varchar(3), true).unwrap_err();
    assert_eq!(error.message, "value too long for type character varying(3)");
    assert!(
        matches!(to("'ab'", ColumnType::bpchar(4), true).unwrap().expr, Expr::Const(Value::Text(s)) if s == "ab  ")
    );
    assert_eq!(to("b", ColumnType::new(Type::Int4), true).unwrap().ty.ty, Type::Int4);
    assert_eq!(to("b", ColumnType::new(Type::Int4), false).unwrap_err().code, SqlState::DATATYPE_MISMATCH);
    assert_eq!(to("t", ColumnType::new(Type::Int4), true).unwrap_err().code, SqlState::DATATYPE_MISMATCH);
    assert_eq!(to("nope", ColumnType::new(Type::Int4), true).unwrap_err().code, SqlState::UNDEFINED_COLUMN);
}

fn aggregate(text: &str, column: &[Value]) -> (Value, Value, Type) {
    let ast::Expr::Function(function) = parse(text).unwrap() else { panic!("{text}") };
    let call = bind_aggregate(&function, &Columns, &mut Params::default()).unwrap();
    let mut whole = Accumulator::new(&call.aggregate);
    let mut parts = [whole.clone(), whole.clone()];
    for (i, value) in column.iter().enumerate() {
        let args = if call.args.is_empty() { vec![] } else { vec![value.clone()] };
        whole.add(&args).unwrap();
        parts[i % 2].add(&args).unwrap();
    }
    let [mut first, second] = parts;
    first.merge(second).unwrap();
    (whole.finish().unwrap(), first.finish().unwrap(), call.ty.ty)
}

#[test]
fn aggregates_have_postgresqls_types_and_merge() {
    let ints = [Value::Int4(1), Value::Null, Value::Int4(2), Value::Int4(i32::MAX)];
    let big = [Value::Int8(i64::MAX), Value::Int8(1)];
    let cases: &[(&str, &[Value], Type, &str)] = &[
        ("count(*)", &ints, Type::Int8, "4"),
        ("count(a)", &ints, Type::Int8, "3"),
        ("sum(a)", &ints, Type::Int8, "2147483650"),
        ("sum(b)", &big, Type::Numeric, "9223372036854775808"),
        ("avg(a)", &ints[..3], Type::Numeric, "1.5000000000000000"),
        ("min(a)", &ints, Type::Int4, "1"),
        ("max(a)", &ints, Type::Int4, "2147483647"),
        ("sum(a)", &[], Type::Int8, ""),
        ("count(a)", &[], Type::Int8, "0"),
        ("stddev(a)", &ints[..3], Type::Numeric, "0.7071067811865476"),
    ];
    for (text, column, ty, wanted) in cases {
        let (whole, merged, result) = aggregate(text, column);
        assert_eq!(result, *ty, "{text}");
        assert_eq!(whole.as_ref().to_text(*ty), *wanted, "{text}");
        assert_eq!(whole, merged, "{text}");
    }
}

#[test]
fn expressions_are_described() {
    let mut params = Params::default();
    let bound = bound("a = $1 and (t like 'x%' or b + 1 > 2)", &mut params);
    let names = |i: usize| ["a", "b", "c", "d", "t"][i].to_string();
    assert_eq!(bound.expr.describe(&names), "((a = $1) AND ((t ~~ 'x%'::text) OR ((b + 1) > 2)))");
    let mut columns = Vec::new();
    bound.expr.visit_columns(&mut |i| columns.push(i));
    assert_eq!(columns, [0, 4, 1]);
}

#[test]
fn long_chains_bind_and_deep_ones_are_refused() {
    let chain = vec!["a = 1"; 5000].join(" or ");
    let Expr::Or(list) = bound(&chain, &mut Params::default()).expr else { panic!("not an OR") };
    assert_eq!(list.len(), 5000);
    let deep = vec!["a"; 1000].join(" + ");
    let error = bind(&parse(&deep).unwrap(), &Columns, &mut Params::default()).unwrap_err();
    assert_eq!(error.code, SqlState::STATEMENT_TOO_COMPLEX);
}
