//! What do JSON's operators and makers mean? Operators are functions of the table, chosen by the sides' types; to_json and its kind
//! take values of any type, and rows.

use super::call::by_name;
use super::coerce::cast_implicit;
use super::function::resolve;
use super::{Bound, Expr, Params, Scope, bind, cast_bound, cast_explicit};
use homenode_types::{ColumnType, Error, Result, SqlState, Type, Value};
use sqlparser::ast::{self, BinaryOperator};

/// The function behind an operator of json and jsonb; `None` for other operators and other types. `42883` when the other side does not
/// fit.
pub(super) fn operator(op: &BinaryOperator, left: Type, right: Type) -> Option<Result<&'static str>> {
    let json = |ty| matches!(ty, Type::Json | Type::Jsonb);
    let text = |ty: Type| ty.is_string() || ty == Type::Unknown;
    let int = matches!(right, Type::Int2 | Type::Int4);
    let path = matches!(right, Type::TextArray | Type::Unknown);
    let both = (left == Type::Jsonb || left == Type::Unknown) && (right == Type::Jsonb || right == Type::Unknown);
    let binary = left == Type::Jsonb;
    let pick = |plain, b| Some(if left == Type::Json { plain } else { b });
    let known = match op {
        BinaryOperator::Arrow if text(right) => pick("json_object_field", "jsonb_object_field"),
        BinaryOperator::Arrow if int => pick("json_array_element", "jsonb_array_element"),
        BinaryOperator::LongArrow if text(right) => pick("json_object_field_text", "jsonb_object_field_text"),
        BinaryOperator::LongArrow if int => pick("json_array_element_text", "jsonb_array_element_text"),
        BinaryOperator::HashArrow if path => pick("json_extract_path", "jsonb_extract_path"),
        BinaryOperator::HashLongArrow if path => pick("json_extract_path_text", "jsonb_extract_path_text"),
        BinaryOperator::AtArrow if both => Some("jsonb_contains"),
        BinaryOperator::ArrowAt if both => Some("jsonb_contained"),
        BinaryOperator::Question if binary && text(right) => Some("jsonb_exists"),
        BinaryOperator::QuestionPipe if binary && path => Some("jsonb_exists_any"),
        BinaryOperator::QuestionAnd if binary && path => Some("jsonb_exists_all"),
        BinaryOperator::StringConcat if both => Some("jsonb_concat"),
        BinaryOperator::Minus if binary && (text(right) || int || path) => Some("jsonb_delete"),
        BinaryOperator::HashMinus if binary && path => Some("jsonb_delete_path"),
        BinaryOperator::AtQuestion | BinaryOperator::AtAt if binary => {
            return Some(Err(Error::unsupported(format!("operator {op} of jsonb"))));
        }
        _ => None,
    };
    let takes_side = match op {
        BinaryOperator::AtArrow | BinaryOperator::ArrowAt | BinaryOperator::StringConcat => {
            left == Type::Jsonb || right == Type::Jsonb
        }
        _ if left == Type::Unknown && right == Type::Unknown => known.is_some(),
        _ => json(left),
    };
    if takes_side && left == Type::Unknown && right == Type::Unknown {
        return Some(Err(super::operator::not_unique(&op.to_string())));
    }
    known.filter(|_| takes_side).map(Ok)
}

/// Applies the operator's function. A literal of unknown type is a text before it is a number or an array.
pub(super) fn operate(function: &'static str, left: Bound, right: Bound, params: &mut Params) -> Result<Bound> {
    let unknown_is = match function {
        "jsonb_contains" | "jsonb_contained" | "jsonb_concat" => Type::Jsonb,
        "json_extract_path" | "jsonb_extract_path" | "json_extract_path_text" | "jsonb_extract_path_text" => {
            Type::TextArray
        }
        "jsonb_exists_any" | "jsonb_exists_all" | "jsonb_delete_path" => Type::TextArray,
        _ => Type::Text,
    };
    let known = |side: Bound, params: &mut Params| match side.ty.ty {
        Type::Unknown => cast_implicit(side, unknown_is, params),
        _ => Ok(side),
    };
    let (left, right) = (known(left, params)?, known(right, params)?);
    by_name(function, vec![left, right], params)
}

/// Does the function make JSON of values of any type?
pub(super) fn makes_json(name: &str) -> bool {
    matches!(
        name,
        "to_json"
            | "to_jsonb"
            | "row_to_json"
            | "array_to_json"
            | "json_build_array"
            | "jsonb_build_array"
            | "json_build_object"
            | "jsonb_build_object"
    )
}

/// An argument of such a function (or of an aggregate of that kind): a value, or a row as a `json`.
pub(super) fn argument(tree: &ast::Expr, scope: &dyn Scope, params: &mut Params) -> Result<Bound> {
    let mut parts = Vec::new();
    let mut add = |name: String, value: Bound, params: &mut Params| -> Result<()> {
        parts.push(Expr::Const(Value::Text(name)));
        parts.push(value_of(value, params)?.expr);
        Ok(())
    };
    match tree {
        ast::Expr::Identifier(ident) => {
            let name = super::bind::folded(ident);
            let Some(columns) = scope.row_columns(&name) else { return bind(tree, scope, params) };
            for column in columns {
                let value = scope.column(Some(&name), &column)?;
                add(column, value, params)?;
            }
        }
        ast::Expr::Tuple(items) => {
            for (number, item) in items.iter().enumerate() {
                let value = bind(item, scope, params)?;
                add(format!("f{}", number + 1), value, params)?;
            }
        }
        ast::Expr::Function(call) if call.name.to_string().eq_ignore_ascii_case("row") && call.over.is_none() => {
            let ast::FunctionArguments::List(list) = &call.args else { return bind(tree, scope, params) };
            for (number, item) in list.args.iter().enumerate() {
                let ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(item)) = item else {
                    return Err(Error::unsupported("this member of a row"));
                };
                let value = bind(item, scope, params)?;
                add(format!("f{}", number + 1), value, params)?;
            }
        }
        _ => return bind(tree, scope, params),
    }
    let row = Expr::Call { function: resolve("row_to_json", &[])?, args: parts };
    Ok(Bound::new(super::coerce::fold(row), Type::Json))
}

/// Does the expression stand for a row, as [`argument`] takes it?
pub(super) fn is_row(tree: &ast::Expr, scope: &dyn Scope) -> bool {
    match tree {
        ast::Expr::Identifier(ident) => scope.row_columns(&super::bind::folded(ident)).is_some(),
        ast::Expr::Tuple(_) => true,
        ast::Expr::Function(call) => call.name.to_string().eq_ignore_ascii_case("row"),
        _ => false,
    }
}

/// A value as `json`; NULL stays NULL.
pub(super) fn value_of(value: Bound, params: &mut Params) -> Result<Bound> {
    let ty = value.ty.ty;
    match ty {
        Type::Json => Ok(value),
        Type::Record => Err(Error::unsupported("a row value as JSON here")),
        // By their names, which the catalog knows.
        Type::Regclass | Type::Regproc | Type::Regnamespace | Type::Regrole | Type::Regtype => {
            let text = cast_explicit(value, ColumnType::new(Type::Text), params)?;
            value_of(text, params)
        }
        Type::Unknown => {
            let text = cast_implicit(value, Type::Text, params)?;
            value_of(text, params)
        }
        _ if ty.is_string() || matches!(ty, Type::Char | Type::PgNodeTree) => {
            let expr = Expr::Call { function: resolve("to_json", &[Type::Text])?, args: vec![value.expr] };
            Ok(Bound::new(super::coerce::fold(expr), Type::Json))
        }
        _ => {
            let expr =
                Expr::Cast { expr: Box::new(value.expr), from: ty, to: ColumnType::new(Type::Json), explicit: true };
            Ok(Bound::new(super::coerce::fold(expr), Type::Json))
        }
    }
}

/// A value as the key of a pair.
pub(super) fn key_of(value: Bound, params: &mut Params) -> Result<Bound> {
    let ty = value.ty.ty;
    if matches!(ty, Type::Json | Type::Jsonb | Type::Record) || ty.element().is_some() {
        let message = "key value must be scalar, not array, composite, or json";
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    cast_bound(value, ColumnType::new(Type::Text), params)
}

/// A call of a function of any number of arguments that are as it wants them.
fn call(name: &str, args: Vec<Bound>) -> Result<Bound> {
    let args = args.into_iter().map(|arg| arg.expr).collect();
    let expr = super::coerce::fold(Expr::Call { function: resolve(name, &[])?, args });
    Ok(Bound::new(expr, Type::Json))
}

/// Binds a call of a function that [`makes_json`].
pub(super) fn make(binder: &mut super::bind::Binder<'_>, name: &str, args: Vec<Bound>) -> Result<Bound> {
    let params = &mut *binder.params;
    let binary = name.contains("jsonb");
    let types: Vec<Type> = args.iter().map(|arg| arg.ty.ty).collect();
    let made = match (name, &types[..]) {
        ("to_json" | "to_jsonb", [ty]) => {
            if *ty == Type::Unknown {
                let message = "could not determine polymorphic type because input has type unknown";
                return Err(Error::new(SqlState::DATATYPE_MISMATCH, message));
            }
            let value = args.into_iter().next().ok_or_else(|| Error::internal("no argument"))?;
            if binary && *ty == Type::Jsonb {
                return Ok(value);
            }
            value_of(value, params)?
        }
        ("row_to_json", [Type::Json]) | ("array_to_json", [_])
            if name == "row_to_json" || types[0].element().is_some() =>
        {
            let value = args.into_iter().next().ok_or_else(|| Error::internal("no argument"))?;
            value_of(value, params)?
        }
        ("json_build_array" | "jsonb_build_array", _) => {
            let values = args.into_iter().map(|arg| value_of(arg, params)).collect::<Result<Vec<_>>>()?;
            call("json_build_array", values)?
        }
        ("json_build_object" | "jsonb_build_object", _) => {
            if args.len() % 2 == 1 {
                let message = "argument list must have even number of elements";
                let hint = format!("The arguments of {name}() must consist of alternating keys and values.");
                return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message).with_hint(hint));
            }
            let pair = |(place, arg)| if place % 2 == 0 { key_of(arg, params) } else { value_of(arg, params) };
            let values = args.into_iter().enumerate().map(pair).collect::<Result<Vec<_>>>()?;
            call(name, values)?
        }
        _ => return Err(resolve(name, &types).err().unwrap_or_else(|| super::function::no_function(name, &types))),
    };
    if binary && made.ty.ty == Type::Json {
        return cast_bound(made, ColumnType::new(Type::Jsonb), binder.params);
    }
    Ok(made)
}
