//! How does EXPLAIN write an expression? Roughly as PostgreSQL's ruleutils.c does.

use super::{Expr, pattern};
use homenode_types::{Type, Value};

impl Expr {
    /// The expression as text; `name` gives a column's name.
    pub fn describe(&self, name: &dyn Fn(usize) -> String) -> String {
        let d = |expr: &Expr| expr.describe(name);
        let join = |list: &[Expr], with: &str| list.iter().map(d).collect::<Vec<_>>().join(with);
        match self {
            Expr::Const(value) => constant(value),
            Expr::Column(i) => name(*i),
            Expr::Param(i) => format!("${}", i + 1),
            Expr::Outer(i) => format!("outer.{i}"),
            Expr::External(external) => format!("({external:?})"),
            Expr::Compare { op, left, right, .. } => format!("({} {} {})", d(left), op.symbol(), d(right)),
            Expr::Distinct { left, right, negated, .. } => {
                format!("({} IS {}DISTINCT FROM {})", d(left), word(*negated), d(right))
            }
            Expr::And(list) => format!("({})", join(list, " AND ")),
            Expr::Or(list) => format!("({})", join(list, " OR ")),
            Expr::Not(expr) => format!("(NOT {})", d(expr)),
            Expr::IsNull { expr, negated } => format!("({} IS {}NULL)", d(expr), word(*negated)),
            Expr::IsBool { expr, wanted, negated } => {
                format!("({} IS {}{})", d(expr), word(*negated), if *wanted { "TRUE" } else { "FALSE" })
            }
            Expr::Arith { op, left, right } => format!("({} {} {})", d(left), op.symbol(), d(right)),
            Expr::Negate(expr) => format!("(- {})", d(expr)),
            Expr::Call { function, args } => match (function.name, args.as_slice()) {
                ("textcat" | "byteacat", [left, right]) => format!("({} || {})", d(left), d(right)),
                _ => format!("{}({})", function.name, join(args, ", ")),
            },
            Expr::Cast { expr, to, .. } => format!("({})::{}", d(expr), to.format_type()),
            Expr::Case { whens, otherwise } => {
                let mut out = String::from("CASE");
                for (condition, result) in whens {
                    out.push_str(&format!(" WHEN {} THEN {}", d(condition), d(result)));
                }
                if let Some(otherwise) = otherwise {
                    out.push_str(&format!(" ELSE {}", d(otherwise)));
                }
                out + " END"
            }
            Expr::Coalesce(list) => format!("COALESCE({})", join(list, ", ")),
            Expr::Extreme { list, greatest } => {
                format!("{}({})", if *greatest { "GREATEST" } else { "LEAST" }, join(list, ", "))
            }
            Expr::InList { expr, list, negated, .. } => {
                format!("({} {}IN ({}))", d(expr), word(*negated), join(list, ", "))
            }
            Expr::AnyArray { op, left, array, all, .. } => {
                format!("({} {} {} ({}))", d(left), op.symbol(), if *all { "ALL" } else { "ANY" }, d(array))
            }
            Expr::Array { items, .. } => format!("ARRAY[{}]", join(items, ", ")),
            Expr::ArrayCall { function, args, .. } if function.is_operator() => {
                format!("({})", join(args, &format!(" {} ", function.symbol())))
            }
            Expr::ArrayCall { function: super::ArrayFunction::Slice { lower, upper }, args, .. } => {
                let bound = |given: bool, at: usize| if given { d(&args[at]) } else { String::new() };
                format!("{}[{}:{}]", d(&args[0]), bound(*lower, 1), bound(*upper, 2))
            }
            Expr::ArrayCall { function, args, .. } => format!("{}({})", function.symbol(), join(args, ", ")),
            Expr::Field { record, field, .. } => format!("({}).f{}", d(record), field + 1),
            Expr::Subscript { array, index, .. } => format!("{}[{}]", d(array), d(index)),
            Expr::Match { expr, pattern, matcher, negated } => {
                let symbol = match (matcher.kind(), *negated) {
                    (pattern::Kind::Similar, false) => "SIMILAR TO",
                    (pattern::Kind::Similar, true) => "NOT SIMILAR TO",
                    (kind, negated) => kind.symbol(negated),
                };
                format!("({} {symbol} {})", d(expr), d(pattern))
            }
        }
    }
}

fn word(negated: bool) -> &'static str {
    if negated { "NOT " } else { "" }
}

fn constant(value: &Value) -> String {
    let ty = value.natural_type();
    let text = value.as_ref().to_text(ty);
    match value {
        Value::Null => "NULL".into(),
        Value::Bool(value) => value.to_string(),
        _ if ty.is_number() || ty == Type::Oid => text,
        _ => format!("'{}'::{}", text.replace('\'', "''"), ty.sql_name()),
    }
}
