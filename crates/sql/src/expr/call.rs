//! How is a function call bound and run?

use super::bind::{Binder, folded};
use super::coerce::{cast_implicit, fold};
use super::function::{ANY, Body, resolve};
use super::operator::{compare_bound, joins_text};
use super::{Bound, CmpOp, Env, Expr, Function, Params, RowSource};
use homenode_types::{CastContext, ColumnType, Error, Result, SqlState, Type, Value, can_coerce};
use sqlparser::ast;

/// Runs a function.
pub(super) fn call(
    function: &Function,
    args: &[Expr],
    row: &dyn RowSource,
    params: &[Value],
    env: &mut Env<'_>,
) -> Result<Value> {
    let strict = !matches!(function.body, Body::Plain(_) | Body::HostPlain);
    let mut values = Vec::with_capacity(args.len());
    for arg in args {
        let value = arg.eval(row, params, env)?;
        if strict && value.is_null() {
            return Ok(Value::Null);
        }
        values.push(value);
    }
    match function.body {
        Body::Strict(f) | Body::Plain(f) => f(&values),
        Body::Session(f) => f(&values, env),
        Body::Host | Body::HostPlain => env.host.call(function.name, &values),
    }
}

/// Binds a call of a function of the table.
pub(super) fn by_name(name: &str, args: Vec<Bound>, params: &mut Params) -> Result<Bound> {
    let types: Vec<Type> = args.iter().map(|arg| arg.ty.ty).collect();
    let function = resolve(name, &types)?;
    let mut exprs = Vec::with_capacity(args.len());
    for (i, arg) in args.into_iter().enumerate() {
        let to = match function.arg_type(i) {
            // What is of any type must still have one; what functions print must be printable.
            ANY if arg.ty.ty == Type::Unknown => Type::Text,
            ANY => printable(arg.ty.ty),
            to => to,
        };
        let arg = if to == Type::Text && !can_coerce(arg.ty.ty, to, CastContext::Implicit) {
            super::cast_bound(arg, ColumnType::new(to), params)?
        } else {
            cast_implicit(arg, to, params)?
        };
        exprs.push(arg.expr);
    }
    Ok(Bound::new(fold(Expr::Call { function, args: exprs }), function.result))
}

/// Functions of any type see values without their types; those whose text depends on the type go in as text.
fn printable(ty: Type) -> Type {
    match ty {
        Type::Regclass | Type::Regproc | Type::Regnamespace | Type::Regrole | Type::Regtype => Type::Text,
        ty => ty,
    }
}

/// `left || right`.
pub(super) fn concat(left: Bound, right: Bound, params: &mut Params) -> Result<Bound> {
    let (a, b) = (left.ty.ty, right.ty.ty);
    let bytes = |ty| ty == Type::Bytea;
    if (bytes(a) && (bytes(b) || b == Type::Unknown)) || (bytes(b) && a == Type::Unknown) {
        return by_name("byteacat", vec![left, right], params);
    }
    if let Some(bound) = super::array::operator("||", &left, &right, params)? {
        return Ok(bound);
    }
    if !joins_text(a, b) {
        return Err(super::operator::no_operator("||", a, b));
    }
    let text = ColumnType::new(Type::Text);
    let (left, right) = (super::cast_bound(left, text, params)?, super::cast_bound(right, text, params)?);
    by_name("textcat", vec![left, right], params)
}

/// Binds a call as the parser has it: special forms, then the table.
pub(super) fn bind_function(binder: &mut Binder<'_>, call: &ast::Function) -> Result<Bound> {
    let name = function_name(&call.name)?;
    if call.over.is_some() {
        return Err(Error::new(SqlState::WINDOWING_ERROR, "window functions are not allowed here"));
    }
    if super::window::needs_over(&name) {
        let message = format!("window function {name} requires an OVER clause");
        return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message));
    }
    if call.filter.is_some() || !call.within_group.is_empty() {
        return Err(Error::new(
            SqlState::WRONG_OBJECT_TYPE,
            format!("FILTER specified, but {name} is not an aggregate function"),
        ));
    }
    let args = match &call.args {
        ast::FunctionArguments::None => Vec::new(),
        ast::FunctionArguments::List(list) => arguments(binder, &name, list)?,
        ast::FunctionArguments::Subquery(_) => return Err(Error::unsupported("a subquery here")),
    };
    if super::json::makes_json(&name) {
        return super::json::make(binder, &name, args);
    }
    if let Some(bound) = special_form(binder, &name, &args)? {
        return Ok(bound);
    }
    if let Some(bound) = super::array::by_name(&name, &args, binder.params)? {
        return Ok(bound);
    }
    by_name(&name, args, binder.params)
}

/// The function's name, without pg_catalog.
pub(super) fn function_name(name: &ast::ObjectName) -> Result<String> {
    let idents: Vec<_> = name.0.iter().filter_map(|part| part.as_ident()).collect();
    match idents.as_slice() {
        [name] => Ok(folded(name)),
        [schema, name] if matches!(folded(schema).as_str(), "pg_catalog" | "homenode") => Ok(folded(name)),
        _ => Err(Error::new(SqlState::UNDEFINED_FUNCTION, format!("function {name} does not exist"))),
    }
}

fn arguments(binder: &mut Binder<'_>, name: &str, list: &ast::FunctionArgumentList) -> Result<Vec<Bound>> {
    if list.duplicate_treatment.is_some() {
        return Err(Error::new(
            SqlState::WRONG_OBJECT_TYPE,
            format!("DISTINCT specified, but {name} is not an aggregate function"),
        ));
    }
    if !list.clauses.is_empty() {
        return Err(Error::unsupported(format!("a clause in the arguments of {name}")));
    }
    list.args
        .iter()
        .map(|arg| match arg {
            ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => match super::json::makes_json(name) {
                true => super::json::argument(expr, binder.scope, binder.params),
                false => binder.bind(expr),
            },
            ast::FunctionArg::Unnamed(_) => Err(Error::new(
                SqlState::WRONG_OBJECT_TYPE,
                format!("{name}(*) specified, but {name} is not an aggregate function"),
            )),
            _ => Err(Error::unsupported("a named argument")),
        })
        .collect()
}

fn is_promoted(one: Type, other: Type) -> bool {
    let kind = |ty: Type| (ty.is_integer(), matches!(ty, Type::Float4 | Type::Float8));
    one.is_number() && other.is_number() && kind(one) != kind(other)
}

/// COALESCE and its kind, whose arguments decide their type.
fn special_form(binder: &mut Binder<'_>, name: &str, args: &[Bound]) -> Result<Option<Bound>> {
    let upper = name.to_ascii_uppercase();
    Ok(Some(match (name, args) {
        ("coalesce" | "greatest" | "least", [_, ..]) => {
            let (list, ty) = binder.in_common_type(args.to_vec(), &upper)?;
            let expr = match name {
                "coalesce" => Expr::Coalesce(list),
                _ => Expr::Extreme { list, greatest: name == "greatest" },
            };
            Bound { expr, ty }
        }
        ("nullif", [a, b]) => {
            let equal = compare_bound(CmpOp::Eq, a.clone(), b.clone(), binder.params)?.expr;
            let ty = match (a.ty.ty, b.ty.ty) {
                (Type::Unknown, _) => ColumnType::new(Type::Text),
                // The first argument as `=` takes it, and there is one `=` for a whole number and another kind of number
                // only after both have become that kind.
                (one, other) if is_promoted(one, other) => super::unify(&[a.ty, b.ty], "NULLIF")?,
                _ => a.ty,
            };
            let value = cast_implicit(a.clone(), ty.ty, binder.params)?.expr;
            let null = Expr::Const(Value::Null);
            Bound { expr: Expr::Case { whens: vec![(equal, null)], otherwise: Some(Box::new(value)) }, ty }
        }
        ("pg_typeof", [value]) => Bound::constant(Value::Oid(value.ty.ty.oid()), Type::Regtype),
        _ => return Ok(None),
    }))
}
