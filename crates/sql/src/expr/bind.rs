//! From the parser's tree to a bound expression: names, literals, special forms.

use super::coerce::{cast_bound, cast_explicit, cast_implicit, column_type, unify};
use super::operator::{any_array, arith_bound, compare_bound, condition, distinct_bound, in_list, negate_bound};
use super::pattern::{Kind, Matcher};
use super::{ArithOp, Bound, CmpOp, Expr, Params, Scope, call, not};
use homenode_types::datetime::Unit;
use homenode_types::{ColumnType, Error, Result, SqlState, Type, Value, parse_interval};
use sqlparser::ast::{
    self, AccessExpr, BinaryOperator, CastKind, CeilFloorKind, DateTimeField, Ident, Subscript, TrimWhereField,
    UnaryOperator,
};

/// Binds an expression. Literals and parameters whose type nothing decides come out as [`Type::Unknown`].
pub fn bind(tree: &ast::Expr, scope: &dyn Scope, params: &mut Params) -> Result<Bound> {
    if params.depth >= MAX_DEPTH {
        return Err(Error::new(SqlState::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded")
            .with_hint(format!("An expression can be {MAX_DEPTH} levels deep.")));
    }
    params.depth += 1;
    let bound = scope.intercept(tree, params).unwrap_or_else(|| Binder { scope, params }.node(tree));
    params.depth -= 1;
    bound.map_err(|error| super::place::placed(error, tree))
}

/// Levels of an expression: binding and evaluating recurse on a task's stack, which is small.
const MAX_DEPTH: usize = 200;

/// Binds an expression that is to have type `target`. `assignment` allows the casts that storing into a column allows;
/// otherwise only implicit ones. `42804` when the types do not fit.
pub fn bind_to(
    tree: &ast::Expr,
    target: ColumnType,
    assignment: bool,
    scope: &dyn Scope,
    params: &mut Params,
) -> Result<Bound> {
    let bound = bind(tree, scope, params)?;
    if assignment { cast_bound(bound, target, params) } else { cast_implicit(bound, target.ty, params) }
}

/// An identifier as the catalog has it: lower case unless quoted.
pub(super) fn folded(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_ascii_lowercase() }
}

pub(super) struct Binder<'a> {
    pub scope: &'a dyn Scope,
    pub params: &'a mut Params,
}

fn boolean(expr: Expr) -> Bound {
    Bound::new(expr, Type::Bool)
}

impl Binder<'_> {
    pub(super) fn bind(&mut self, tree: &ast::Expr) -> Result<Bound> {
        bind(tree, self.scope, self.params)
    }

    fn node(&mut self, tree: &ast::Expr) -> Result<Bound> {
        use ast::Expr as E;
        match tree {
            E::Nested(inner) => self.bind(inner),
            E::Identifier(ident) => self.column(std::slice::from_ref(ident)),
            E::CompoundIdentifier(idents) => self.column(idents),
            E::Value(value) => self.literal(&value.value),
            E::BinaryOp { left, op, right } => self.binary(left, op, right),
            E::UnaryOp { op, expr } => self.unary(*op, expr),
            E::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr, data_type, format: None } => {
                let to = column_type(data_type)?;
                let bound = self.bind(expr)?;
                cast_explicit(bound, to, self.params)
            }
            E::TypedString(typed) => {
                let literal = self.literal(&typed.value.value)?;
                cast_explicit(literal, column_type(&typed.data_type)?, self.params)
            }
            E::Interval(interval) => self.interval(interval),
            E::IsNull(expr) => self.is_null(expr, false),
            E::IsNotNull(expr) => self.is_null(expr, true),
            E::IsTrue(expr) => self.is_bool(expr, true, false),
            E::IsNotTrue(expr) => self.is_bool(expr, true, true),
            E::IsFalse(expr) => self.is_bool(expr, false, false),
            E::IsNotFalse(expr) => self.is_bool(expr, false, true),
            E::IsUnknown(expr) => self.is_null(expr, false),
            E::IsNotUnknown(expr) => self.is_null(expr, true),
            E::IsDistinctFrom(left, right) => self.distinct(left, right, false),
            E::IsNotDistinctFrom(left, right) => self.distinct(left, right, true),
            E::InList { expr, list, negated } => self.in_list(expr, list, *negated),
            E::Between { expr, negated, low, high } => self.between(expr, low, high, *negated),
            E::Like { negated, any: false, expr, pattern, escape_char } => {
                self.matches(expr, pattern, Kind::Like, escape_char.as_ref(), *negated)
            }
            E::ILike { negated, any: false, expr, pattern, escape_char } => {
                self.matches(expr, pattern, Kind::ILike, escape_char.as_ref(), *negated)
            }
            E::SimilarTo { negated, expr, pattern, escape_char } => {
                self.matches(expr, pattern, Kind::Similar, escape_char.as_ref(), *negated)
            }
            E::AnyOp { left, compare_op, right, .. } => self.quantified(left, compare_op, right, false),
            E::AllOp { left, compare_op, right } => self.quantified(left, compare_op, right, true),
            E::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref())
            }
            E::Function(function) => call::bind_function(self, function),
            E::Extract { field, expr, .. } => {
                let field = Bound::constant(Value::Text(field_name(field)), Type::Text);
                let value = self.bind(expr)?;
                call::by_name("extract", vec![field, value], self.params)
            }
            E::Ceil { expr, field: CeilFloorKind::DateTimeField(DateTimeField::NoDateTime) } => {
                self.call("ceil", &[expr])
            }
            E::Floor { expr, field: CeilFloorKind::DateTimeField(DateTimeField::NoDateTime) } => {
                self.call("floor", &[expr])
            }
            E::Position { expr, r#in } => self.call("position", &[r#in, expr]),
            E::Substring { expr, substring_from, substring_for, .. } => {
                self.substring(expr, substring_from.as_deref(), substring_for.as_deref())
            }
            E::Trim { expr, trim_where, trim_what, trim_characters } => {
                self.trim(expr, *trim_where, trim_what.as_deref(), trim_characters.as_deref())
            }
            E::Overlay { expr, overlay_what, overlay_from, overlay_for } => {
                let mut list: Vec<&ast::Expr> = vec![expr, overlay_what, overlay_from];
                list.extend(overlay_for.as_deref());
                self.call("overlay", &list)
            }
            E::Collate { expr, collation } => {
                let name = collation.0.last().and_then(|part| part.as_ident()).map(folded).unwrap_or_default();
                if !matches!(name.as_str(), "C" | "POSIX" | "default" | "ucs_basic" | "c" | "posix") {
                    let message = format!("collation \"{name}\" for encoding \"UTF8\" does not exist");
                    return Err(Error::new(SqlState::UNDEFINED_OBJECT, message));
                }
                self.bind(expr)
            }
            E::AtTimeZone { timestamp, time_zone } => self.call("timezone", &[time_zone, timestamp]),
            E::Array(array) => self.array(&array.elem),
            E::CompoundFieldAccess { root, access_chain } => self.part(root, access_chain),
            E::Tuple(_) => Err(Error::unsupported("a row value here")),
            E::Subquery(_) | E::Exists { .. } | E::InSubquery { .. } => Err(Error::unsupported("a subquery here")),
            other => Err(Error::unsupported(format!("expression {other}"))),
        }
    }

    fn column(&mut self, idents: &[Ident]) -> Result<Bound> {
        let names: Vec<String> = idents.iter().map(folded).collect();
        let (name, qualifier) = match names.as_slice() {
            [name] => (name, None),
            [.., qualifier, name] => (name, Some(qualifier.as_str())),
            [] => return Err(Error::internal("an empty name")),
        };
        self.scope.column(qualifier, name).or_else(|error| {
            let bare = idents.len() == 1 && idents[0].quote_style.is_none();
            // SQL's functions without parentheses, which the parser may take for columns.
            const BARE: &[&str] =
                &["current_schema", "current_role", "current_user", "session_user", "user", "current_catalog"];
            if bare && error.code == SqlState::UNDEFINED_COLUMN && BARE.contains(&name.as_str()) {
                return call::by_name(name, Vec::new(), self.params);
            }
            Err(error)
        })
    }

    fn literal(&mut self, value: &ast::Value) -> Result<Bound> {
        use ast::Value as V;
        let text = |s: &str| {
            homenode_types::text_from_bytes(s.as_bytes())?;
            Ok(Bound::constant(Value::text(s), Type::Unknown))
        };
        match value {
            V::Number(digits, _) => number(digits),
            V::SingleQuotedString(s)
            | V::EscapedStringLiteral(s)
            | V::UnicodeStringLiteral(s)
            | V::NationalStringLiteral(s) => text(s),
            V::DollarQuotedString(s) => text(&s.value),
            V::Boolean(b) => Ok(Bound::constant(Value::Bool(*b), Type::Bool)),
            V::Null => Ok(Bound::constant(Value::Null, Type::Unknown)),
            V::Placeholder(name) => self.param(name),
            other => Err(Error::unsupported(format!("literal {other}"))),
        }
    }

    fn param(&mut self, name: &str) -> Result<Bound> {
        let missing = || Error::new(SqlState::UNDEFINED_PARAMETER, format!("there is no parameter {name}"));
        let number: usize = name.strip_prefix('$').and_then(|n| n.parse().ok()).ok_or_else(missing)?;
        // The protocol counts parameters with 16 bits.
        if number == 0 || number > 65_535 {
            return Err(missing());
        }
        let ty = self.params.get(number - 1).unwrap_or(Type::Unknown);
        Ok(Bound::new(Expr::Param(number - 1), ty))
    }

    fn binary(&mut self, left: &ast::Expr, op: &BinaryOperator, right: &ast::Expr) -> Result<Bound> {
        match op {
            BinaryOperator::And | BinaryOperator::Or => return self.connect(left, op, right),
            BinaryOperator::PGCustomBinaryOperator(names) => {
                let symbol = names.last().map(String::as_str).unwrap_or_default();
                let known = operator_named(symbol).ok_or_else(|| {
                    Error::new(SqlState::UNDEFINED_FUNCTION, format!("operator does not exist: {symbol}"))
                })?;
                return self.binary(left, &known, right);
            }
            _ => {}
        }
        if let Some(op) = comparison(op) {
            if let (ast::Expr::Tuple(a), ast::Expr::Tuple(b)) = (left, right) {
                return self.compare_rows(op, a, b);
            }
            let (left, right) = (self.bind(left)?, self.bind(right)?);
            return compare_bound(op, left, right, self.params);
        }
        if let Some((kind, negated)) = match_operator(op) {
            return self.matches(left, right, kind, None, negated);
        }
        let (left, right) = (self.bind(left)?, self.bind(right)?);
        if let Some(function) = super::json::operator(op, left.ty.ty, right.ty.ty) {
            return super::json::operate(function?, left, right, self.params);
        }
        if *op == BinaryOperator::StringConcat {
            return call::concat(left, right, self.params);
        }
        if let Some(bound) = super::array::operator(&op.to_string(), &left, &right, self.params)? {
            return Ok(bound);
        }
        if *op == BinaryOperator::PGStartsWith {
            return call::by_name("starts_with", vec![left, right], self.params);
        }
        match arithmetic(op) {
            Some(op) => arith_bound(op, left, right, self.params),
            None => Err(super::operator::no_operator(&op.to_string(), left.ty.ty, right.ty.ty)),
        }
    }

    /// AND and OR; chains become one node.
    fn connect(&mut self, left: &ast::Expr, op: &BinaryOperator, right: &ast::Expr) -> Result<Bound> {
        let and = *op == BinaryOperator::And;
        let name = if and { "AND" } else { "OR" };
        // The parser makes a chain as deep as it is long; it is walked without recursion.
        let mut sides = vec![right];
        let mut rest = left;
        while let ast::Expr::BinaryOp { left, op: inner, right } = rest
            && inner == op
        {
            sides.push(right);
            rest = left;
        }
        sides.push(rest);
        let mut list = Vec::with_capacity(sides.len());
        for side in sides.into_iter().rev() {
            let bound = self.bind(side)?;
            match condition(bound, name, self.params)? {
                Expr::And(inner) if and => list.extend(inner),
                Expr::Or(inner) if !and => list.extend(inner),
                other => list.push(other),
            }
        }
        Ok(boolean(if and { Expr::And(list) } else { Expr::Or(list) }))
    }

    fn unary(&mut self, op: UnaryOperator, expr: &ast::Expr) -> Result<Bound> {
        // The sign belongs to the literal: -2147483648 is an integer, -'5' is not.
        if let (UnaryOperator::Minus, ast::Expr::Value(value)) = (op, expr)
            && let ast::Value::Number(digits, _) = &value.value
        {
            return number(&format!("-{digits}"));
        }
        let bound = self.bind(expr)?;
        match op {
            UnaryOperator::Plus => Ok(bound),
            UnaryOperator::Minus => negate_bound(bound, self.params),
            UnaryOperator::Not => Ok(boolean(not(condition(bound, "NOT", self.params)?))),
            UnaryOperator::PGAbs => call::by_name("abs", vec![bound], self.params),
            UnaryOperator::PGSquareRoot | UnaryOperator::PGCubeRoot => {
                let name = if op == UnaryOperator::PGSquareRoot { "sqrt" } else { "cbrt" };
                let float = cast_implicit(bound, Type::Float8, self.params)?;
                call::by_name(name, vec![float], self.params)
            }
            UnaryOperator::PGBitwiseNot => call::by_name("bitnot", vec![bound], self.params),
            other => Err(Error::unsupported(format!("operator {other}"))),
        }
    }

    fn is_null(&mut self, expr: &ast::Expr, negated: bool) -> Result<Bound> {
        let bound = self.bind(expr)?;
        let known = if bound.ty.ty == Type::Unknown { cast_implicit(bound, Type::Text, self.params)? } else { bound };
        Ok(boolean(Expr::IsNull { expr: Box::new(known.expr), negated }))
    }

    fn is_bool(&mut self, expr: &ast::Expr, wanted: bool, negated: bool) -> Result<Bound> {
        let bound = self.bind(expr)?;
        let what = match (wanted, negated) {
            (true, false) => "IS TRUE",
            (true, true) => "IS NOT TRUE",
            (false, false) => "IS FALSE",
            (false, true) => "IS NOT FALSE",
        };
        let expr = condition(bound, what, self.params)?;
        Ok(boolean(Expr::IsBool { expr: Box::new(expr), wanted, negated }))
    }

    fn distinct(&mut self, left: &ast::Expr, right: &ast::Expr, negated: bool) -> Result<Bound> {
        let (left, right) = (self.bind(left)?, self.bind(right)?);
        distinct_bound(left, right, negated, self.params)
    }

    fn list(&mut self, list: &[ast::Expr]) -> Result<Vec<Bound>> {
        list.iter().map(|item| self.bind(item)).collect()
    }

    fn in_list(&mut self, expr: &ast::Expr, list: &[ast::Expr], negated: bool) -> Result<Bound> {
        if let ast::Expr::Tuple(row) = expr {
            let mut any = Vec::new();
            for item in list {
                let ast::Expr::Tuple(other) = item else {
                    return Err(Error::unsupported("a row compared with a value"));
                };
                any.push(self.compare_rows(CmpOp::Eq, row, other)?.expr);
            }
            let any = Expr::Or(any);
            return Ok(boolean(if negated { not(any) } else { any }));
        }
        let value = self.bind(expr)?;
        let list = self.list(list)?;
        in_list(value, list, negated, self.params)
    }

    /// `(a, b) = (c, d)` and `<>`.
    fn compare_rows(&mut self, op: CmpOp, left: &[ast::Expr], right: &[ast::Expr]) -> Result<Bound> {
        if left.len() != right.len() {
            return Err(Error::new(SqlState::SYNTAX_ERROR, "unequal number of entries in row expressions"));
        }
        if !matches!(op, CmpOp::Eq | CmpOp::Ne) {
            return Err(Error::unsupported(format!("operator {} between rows", op.symbol())));
        }
        let mut all = Vec::with_capacity(left.len());
        for (a, b) in left.iter().zip(right) {
            let (a, b) = (self.bind(a)?, self.bind(b)?);
            all.push(compare_bound(CmpOp::Eq, a, b, self.params)?.expr);
        }
        let all = Expr::And(all);
        Ok(boolean(if op == CmpOp::Eq { all } else { not(all) }))
    }

    fn between(&mut self, expr: &ast::Expr, low: &ast::Expr, high: &ast::Expr, negated: bool) -> Result<Bound> {
        let (value, low, high) = (self.bind(expr)?, self.bind(low)?, self.bind(high)?);
        let low = compare_bound(CmpOp::Ge, value.clone(), low, self.params)?.expr;
        let high = compare_bound(CmpOp::Le, value, high, self.params)?.expr;
        let both = Expr::And(vec![low, high]);
        Ok(boolean(if negated { not(both) } else { both }))
    }

    fn matches(
        &mut self,
        expr: &ast::Expr,
        pattern: &ast::Expr,
        kind: Kind,
        escape: Option<&ast::Value>,
        negated: bool,
    ) -> Result<Bound> {
        let (text, pattern) = (self.bind(expr)?, self.bind(pattern)?);
        let symbol = kind.symbol(negated);
        for side in [&text, &pattern] {
            let ty = side.ty.ty;
            if !(super::coerce::is_stringlike(ty) || ty == Type::Char) {
                return Err(super::operator::no_operator(symbol, text.ty.ty, pattern.ty.ty));
            }
        }
        // A pattern against character(n) sees the blanks, so the column stays as it is.
        let keep = text.ty.ty == Type::Bpchar;
        let text = if keep { text } else { cast_implicit(text, Type::Text, self.params)? };
        let pattern = cast_implicit(pattern, Type::Text, self.params)?;
        let escape = match escape {
            None => Some('\\'),
            Some(ast::Value::SingleQuotedString(s)) if s.chars().count() <= 1 => s.chars().next(),
            Some(_) => {
                return Err(Error::new(SqlState::INVALID_ESCAPE_SEQUENCE, "invalid escape string")
                    .with_hint("Escape string must be empty or one character."));
            }
        };
        let matcher = match &pattern.expr {
            Expr::Const(Value::Text(pattern)) => Matcher::compiled(kind, escape, pattern)?,
            _ => Matcher::new(kind, escape),
        };
        let (expr, pattern) = (Box::new(text.expr), Box::new(pattern.expr));
        Ok(boolean(Expr::Match { expr, pattern, matcher, negated }))
    }

    fn quantified(&mut self, left: &ast::Expr, op: &BinaryOperator, right: &ast::Expr, all: bool) -> Result<Bound> {
        let op = comparison(op).ok_or_else(|| Error::unsupported(format!("operator {op} with ANY or ALL")))?;
        let (left, right) = (self.bind(left)?, self.bind(right)?);
        any_array(op, left, right, all, self.params)
    }

    fn case(
        &mut self,
        operand: Option<&ast::Expr>,
        conditions: &[ast::CaseWhen],
        otherwise: Option<&ast::Expr>,
    ) -> Result<Bound> {
        let operand = operand.map(|expr| self.bind(expr)).transpose()?;
        let mut tests = Vec::with_capacity(conditions.len());
        let mut results = Vec::with_capacity(conditions.len() + 1);
        for when in conditions {
            let test = self.bind(&when.condition)?;
            tests.push(match &operand {
                Some(operand) => compare_bound(CmpOp::Eq, operand.clone(), test, self.params)?.expr,
                None => condition(test, "CASE/WHEN", self.params)?,
            });
            results.push(self.bind(&when.result)?);
        }
        if let Some(otherwise) = otherwise {
            results.push(self.bind(otherwise)?);
        }
        let (mut results, ty) = self.in_common_type(results, "CASE")?;
        let otherwise = otherwise.and_then(|_| results.pop()).map(Box::new);
        let whens = tests.into_iter().zip(results).collect();
        Ok(Bound { expr: Expr::Case { whens, otherwise }, ty })
    }

    /// Casts all to their common type.
    pub(super) fn in_common_type(&mut self, list: Vec<Bound>, what: &str) -> Result<(Vec<Expr>, ColumnType)> {
        let types: Vec<ColumnType> = list.iter().map(|bound| bound.ty).collect();
        let common = unify(&types, what)?;
        let exprs = list
            .into_iter()
            .map(|bound| cast_implicit(bound, common.ty, self.params).map(|bound| bound.expr))
            .collect::<Result<_>>()?;
        Ok((exprs, common))
    }

    fn call(&mut self, name: &str, args: &[&ast::Expr]) -> Result<Bound> {
        let args = args.iter().map(|arg| self.bind(arg)).collect::<Result<Vec<_>>>()?;
        call::by_name(name, args, self.params)
    }

    fn substring(&mut self, expr: &ast::Expr, from: Option<&ast::Expr>, length: Option<&ast::Expr>) -> Result<Bound> {
        let text = self.bind(expr)?;
        let from = match from {
            Some(from) => self.bind(from)?,
            None => Bound::constant(Value::Int4(1), Type::Int4),
        };
        let mut args = vec![text, from];
        if let Some(length) = length {
            args.push(self.bind(length)?);
        }
        call::by_name("substring", args, self.params)
    }

    fn trim(
        &mut self,
        expr: &ast::Expr,
        side: Option<TrimWhereField>,
        what: Option<&ast::Expr>,
        characters: Option<&[ast::Expr]>,
    ) -> Result<Bound> {
        let name = match side {
            Some(TrimWhereField::Leading) => "ltrim",
            Some(TrimWhereField::Trailing) => "rtrim",
            Some(TrimWhereField::Both) | None => "btrim",
        };
        let mut args = vec![self.bind(expr)?];
        for what in what.into_iter().chain(characters.unwrap_or_default()) {
            args.push(self.bind(what)?);
        }
        call::by_name(name, args, self.params)
    }

    fn interval(&mut self, interval: &ast::Interval) -> Result<Bound> {
        let ast::Expr::Value(value) = &*interval.value else {
            return Err(Error::unsupported("INTERVAL of an expression"));
        };
        let text = match &value.value {
            ast::Value::SingleQuotedString(s) | ast::Value::Number(s, _) => s,
            other => return Err(Error::unsupported(format!("INTERVAL {other}"))),
        };
        let field = interval.last_field.as_ref().or(interval.leading_field.as_ref());
        let unit = match field {
            None => None,
            Some(field) => Some(
                Unit::from_name(&field_name(field))
                    .ok_or_else(|| Error::unsupported(format!("INTERVAL with field {field}")))?,
            ),
        };
        let value = parse_interval(text, unit)?;
        Ok(Bound::constant(Value::Interval(value), Type::Interval))
    }

    fn array(&mut self, items: &[ast::Expr]) -> Result<Bound> {
        let items = self.list(items)?;
        let (items, common) = self.in_common_type(items, "ARRAY")?;
        let ty = common.ty.array().ok_or_else(|| Error::unsupported(format!("type {}[]", common.ty)))?;
        Ok(Bound::new(Expr::Array { items, ty }, ty))
    }

    /// `root.name[index].name ...`: names behind a bare name belong to it (`table.column`), others are fields.
    fn part(&mut self, root: &ast::Expr, mut chain: &[AccessExpr]) -> Result<Bound> {
        let mut names = match root {
            ast::Expr::Identifier(name) => vec![name.clone()],
            ast::Expr::CompoundIdentifier(names) => names.clone(),
            _ => Vec::new(),
        };
        while let ([AccessExpr::Dot(ast::Expr::Identifier(name)), rest @ ..], false) = (chain, names.is_empty()) {
            names.push(name.clone());
            chain = rest;
        }
        let mut value = if names.is_empty() { self.bind(root)? } else { self.column(&names)? };
        for access in chain {
            value = match access {
                AccessExpr::Dot(ast::Expr::Identifier(name)) => super::sets::field(value, &folded(name))?,
                AccessExpr::Subscript(subscript) => self.subscript(value, subscript)?,
                AccessExpr::Dot(_) => return Err(Error::unsupported("this access to a part of a value")),
            };
        }
        Ok(value)
    }

    fn subscript(&mut self, array: Bound, subscript: &Subscript) -> Result<Bound> {
        let array_type = array.ty.ty;
        let Some(element) = array_type.element() else {
            let message = format!("cannot subscript type {array_type} because it does not support subscripting");
            return Err(Error::new(SqlState::DATATYPE_MISMATCH, message));
        };
        let index = match subscript {
            Subscript::Index { index } => self.bind(index)?,
            Subscript::Slice { lower_bound, upper_bound, stride: None } => {
                let lower = lower_bound.as_ref().map(|bound| self.bind(bound)).transpose()?;
                let upper = upper_bound.as_ref().map(|bound| self.bind(bound)).transpose()?;
                return super::array::slice(array, lower, upper, self.params);
            }
            Subscript::Slice { .. } => return Err(Error::unsupported("this access to a part of a value")),
        };
        let index = cast_implicit(index, Type::Int4, self.params)?;
        let (array, index) = (Box::new(array.expr), Box::new(index.expr));
        Ok(Bound::new(Expr::Subscript { array, array_type, index }, element))
    }
}

/// A number: integer or bigint if it fits, numeric otherwise (make_const in parse_node.c).
fn number(digits: &str) -> Result<Bound> {
    if digits.bytes().all(|b| b.is_ascii_digit() || b == b'-') {
        if let Ok(value) = digits.parse::<i32>() {
            return Ok(Bound::constant(Value::Int4(value), Type::Int4));
        }
        if let Ok(value) = digits.parse::<i64>() {
            return Ok(Bound::constant(Value::Int8(value), Type::Int8));
        }
    }
    // PostgreSQL's numeric holds 1e300 and 1e-300; where our digits do not reach, what is written so is a double.
    let ty =
        if digits.contains(['e', 'E']) && !homenode_types::fits_decimal(digits) { Type::Float8 } else { Type::Numeric };
    Ok(Bound::constant(Value::parse_text(digits, ColumnType::new(ty))?, ty))
}

/// The name of a field of a date as functions take it.
fn field_name(field: &DateTimeField) -> String {
    match field {
        DateTimeField::Custom(ident) => ident.value.to_ascii_lowercase(),
        DateTimeField::Week(_) => "week".into(),
        DateTimeField::DayOfWeek => "dow".into(),
        DateTimeField::DayOfYear => "doy".into(),
        DateTimeField::Millenium => "millennium".into(),
        other => other.to_string().to_ascii_lowercase(),
    }
}

pub(super) fn comparison(op: &BinaryOperator) -> Option<CmpOp> {
    Some(match op {
        BinaryOperator::Eq => CmpOp::Eq,
        BinaryOperator::NotEq => CmpOp::Ne,
        BinaryOperator::Lt => CmpOp::Lt,
        BinaryOperator::LtEq => CmpOp::Le,
        BinaryOperator::Gt => CmpOp::Gt,
        BinaryOperator::GtEq => CmpOp::Ge,
        _ => return None,
    })
}

fn arithmetic(op: &BinaryOperator) -> Option<ArithOp> {
    Some(match op {
        BinaryOperator::Plus => ArithOp::Add,
        BinaryOperator::Minus => ArithOp::Sub,
        BinaryOperator::Multiply => ArithOp::Mul,
        BinaryOperator::Divide => ArithOp::Div,
        BinaryOperator::Modulo => ArithOp::Mod,
        BinaryOperator::PGExp => ArithOp::Pow,
        BinaryOperator::BitwiseAnd => ArithOp::BitAnd,
        BinaryOperator::BitwiseOr => ArithOp::BitOr,
        BinaryOperator::PGBitwiseXor => ArithOp::BitXor,
        BinaryOperator::PGBitwiseShiftLeft => ArithOp::ShiftLeft,
        BinaryOperator::PGBitwiseShiftRight => ArithOp::ShiftRight,
        _ => return None,
    })
}

fn match_operator(op: &BinaryOperator) -> Option<(Kind, bool)> {
    Some(match op {
        BinaryOperator::PGRegexMatch => (Kind::Regex, false),
        BinaryOperator::PGRegexIMatch => (Kind::RegexI, false),
        BinaryOperator::PGRegexNotMatch => (Kind::Regex, true),
        BinaryOperator::PGRegexNotIMatch => (Kind::RegexI, true),
        BinaryOperator::PGLikeMatch => (Kind::Like, false),
        BinaryOperator::PGILikeMatch => (Kind::ILike, false),
        BinaryOperator::PGNotLikeMatch => (Kind::Like, true),
        BinaryOperator::PGNotILikeMatch => (Kind::ILike, true),
        _ => return None,
    })
}

/// The operator behind `OPERATOR(pg_catalog.~)`.
fn operator_named(symbol: &str) -> Option<BinaryOperator> {
    Some(match symbol {
        "=" => BinaryOperator::Eq,
        "<>" | "!=" => BinaryOperator::NotEq,
        "<" => BinaryOperator::Lt,
        "<=" => BinaryOperator::LtEq,
        ">" => BinaryOperator::Gt,
        ">=" => BinaryOperator::GtEq,
        "+" => BinaryOperator::Plus,
        "-" => BinaryOperator::Minus,
        "*" => BinaryOperator::Multiply,
        "/" => BinaryOperator::Divide,
        "%" => BinaryOperator::Modulo,
        "^" => BinaryOperator::PGExp,
        "||" => BinaryOperator::StringConcat,
        "&" => BinaryOperator::BitwiseAnd,
        "|" => BinaryOperator::BitwiseOr,
        "#" => BinaryOperator::PGBitwiseXor,
        "~" => BinaryOperator::PGRegexMatch,
        "~*" => BinaryOperator::PGRegexIMatch,
        "!~" => BinaryOperator::PGRegexNotMatch,
        "!~*" => BinaryOperator::PGRegexNotIMatch,
        "~~" => BinaryOperator::PGLikeMatch,
        "~~*" => BinaryOperator::PGILikeMatch,
        "!~~" => BinaryOperator::PGNotLikeMatch,
        "!~~*" => BinaryOperator::PGNotILikeMatch,
        "->" => BinaryOperator::Arrow,
        "->>" => BinaryOperator::LongArrow,
        "#>" => BinaryOperator::HashArrow,
        "#>>" => BinaryOperator::HashLongArrow,
        "#-" => BinaryOperator::HashMinus,
        "@>" => BinaryOperator::AtArrow,
        "<@" => BinaryOperator::ArrowAt,
        "?" => BinaryOperator::Question,
        "?|" => BinaryOperator::QuestionPipe,
        "?&" => BinaryOperator::QuestionAnd,
        _ => return None,
    })
}
