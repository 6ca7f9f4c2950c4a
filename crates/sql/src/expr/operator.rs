//! Which operator does `a op b` mean? Types of the sides, literals and parameters of unknown type included.

use super::coerce::{cast_implicit, fold, unify};
use super::{ArithOp, Blanks, Bound, CmpOp, Expr, Params, arith};
use homenode_types::{CastContext, Category, ColumnType, Error, Result, SqlState, Type, can_coerce};

/// `42883` as PostgreSQL says it.
#[cold]
pub(super) fn no_operator(symbol: &str, left: Type, right: Type) -> Error {
    Error::new(SqlState::UNDEFINED_FUNCTION, format!("operator does not exist: {left} {symbol} {right}"))
        .with_hint("No operator matches the given name and argument types. You might need to add explicit type casts.")
}

/// `42725` as PostgreSQL says it, of two literals.
#[cold]
pub(super) fn not_unique(symbol: &str) -> Error {
    Error::new(SqlState::AMBIGUOUS_FUNCTION, format!("operator is not unique: unknown {symbol} unknown"))
        .with_hint("Could not choose a best candidate operator. You might need to add explicit type casts.")
}

/// Gives a side of unknown type the type `other` (text if that is unknown too).
fn resolve(side: Bound, other: Type, params: &mut Params) -> Result<Bound> {
    if side.ty.ty != Type::Unknown {
        return Ok(side);
    }
    let ty = if other == Type::Unknown { Type::Text } else { other };
    cast_implicit(side, ty, params)
}

/// Both sides with known types.
fn resolve_both(left: Bound, right: Bound, params: &mut Params) -> Result<(Bound, Bound)> {
    let (a, b) = (left.ty.ty, right.ty.ty);
    Ok((resolve(left, b, params)?, resolve(right, a, params)?))
}

/// Have these types a common order? Numbers of all types have, and so have points in time.
pub(super) fn comparable(a: Type, b: Type) -> bool {
    let moment = |ty| matches!(ty, Type::Date | Type::Timestamp | Type::Timestamptz);
    let whole = |ty: Type| ty.is_integer() || ty.is_oid_like();
    let text = |ty: Type| ty.is_string() || ty == Type::Char || ty == Type::PgNodeTree;
    // json has no order, and not even equality.
    (a == b && !matches!(a, Type::Json | Type::JsonArray))
        || (a.is_number() && b.is_number())
        || (whole(a) && whole(b))
        || (moment(a) && moment(b))
        || (text(a) && text(b))
}

fn blanks(left: Type, right: Type) -> Blanks {
    Blanks { left: left == Type::Bpchar, right: right == Type::Bpchar }
}

/// `left op right`. Sides keep their own types where they can be compared as they are, so that a column stays a bare
/// column. `42883` when they cannot be compared.
pub fn compare_bound(op: CmpOp, left: Bound, right: Bound, params: &mut Params) -> Result<Bound> {
    let (left, right) = resolve_both(left, right, params)?;
    if left.ty.ty.element().is_some() && right.ty.ty.element().is_some() {
        return super::array::comparison(op, left, right, params);
    }
    let (left, right, blanks) = comparison(op.symbol(), left, right, params)?;
    let compare = Expr::Compare { op, left: Box::new(left), right: Box::new(right), blanks };
    Ok(Bound::new(fold(compare), Type::Bool))
}

/// `left IS [NOT] DISTINCT FROM right`.
pub(super) fn distinct_bound(left: Bound, right: Bound, negated: bool, params: &mut Params) -> Result<Bound> {
    let (left, right, blanks) = comparison("=", left, right, params)?;
    Ok(Bound::new(Expr::Distinct { left: Box::new(left), right: Box::new(right), blanks, negated }, Type::Bool))
}

fn comparison(symbol: &str, left: Bound, right: Bound, params: &mut Params) -> Result<(Expr, Expr, Blanks)> {
    let (left, right) = resolve_both(left, right, params)?;
    let (a, b) = (left.ty.ty, right.ty.ty);
    if !comparable(a, b) {
        // regclass and its kind compare with a name given as text.
        if a.is_oid_like() && b.is_string() && can_coerce(b, a, CastContext::Implicit) {
            return Ok((left.expr, cast_implicit(right, a, params)?.expr, Blanks::default()));
        }
        return Err(no_operator(symbol, a, b));
    }
    Ok((left.expr, right.expr, blanks(a, b)))
}

/// `value [NOT] IN (list)`.
pub(super) fn in_list(value: Bound, list: Vec<Bound>, negated: bool, params: &mut Params) -> Result<Bound> {
    let mut known: Vec<ColumnType> = list.iter().map(|item| item.ty).filter(|ty| ty.ty != Type::Unknown).collect();
    let value = match (value.ty.ty, known.is_empty()) {
        (Type::Unknown, false) => cast_implicit(value, unify(&known, "IN")?.ty, params)?,
        (Type::Unknown, true) => cast_implicit(value, Type::Text, params)?,
        _ => value,
    };
    let ty = value.ty.ty;
    known.clear();
    let mut items = Vec::with_capacity(list.len());
    let mut any_blank = false;
    for item in list {
        let item = resolve(item, ty, params)?;
        if !comparable(ty, item.ty.ty) {
            return Err(no_operator("=", ty, item.ty.ty));
        }
        any_blank |= item.ty.ty == Type::Bpchar;
        items.push(item.expr);
    }
    let blanks = Blanks { left: ty == Type::Bpchar, right: any_blank };
    Ok(Bound::new(Expr::InList { expr: Box::new(value.expr), list: items, blanks, negated }, Type::Bool))
}

/// `left op ANY (array)` and `ALL`.
pub(super) fn any_array(op: CmpOp, left: Bound, array: Bound, all: bool, params: &mut Params) -> Result<Bound> {
    let array = match array.ty.ty {
        Type::Unknown => {
            let element = if left.ty.ty == Type::Unknown { Type::Text } else { left.ty.ty };
            let ty = element.array().ok_or_else(|| Error::unsupported(format!("type {element}[]")))?;
            cast_implicit(array, ty, params)?
        }
        _ => array,
    };
    let Some(element) = array.ty.ty.element() else {
        return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, "op ANY/ALL (array) requires array on right side"));
    };
    let left = resolve(left, element, params)?;
    if !comparable(left.ty.ty, element) {
        return Err(no_operator(op.symbol(), left.ty.ty, element));
    }
    let (array_type, left) = (array.ty.ty, Box::new(left.expr));
    Ok(Bound::new(Expr::AnyArray { op, left, array: Box::new(array.expr), array_type, all }, Type::Bool))
}

/// `left op right` for arithmetic.
pub(super) fn arith_bound(op: ArithOp, left: Bound, right: Bound, params: &mut Params) -> Result<Bound> {
    let (left, right) = resolve_arith(op, left, right, params)?;
    let (a, b) = (left.ty.ty, right.ty.ty);
    let ty = arith::result_type(op, a, b).ok_or_else(|| no_operator(op.symbol(), a, b))?;
    // Mixed operands are computed as they are; the sole exception is a float among numbers of the exact kinds, which
    // the computation widens itself.
    let expr = Expr::Arith { op, left: Box::new(left.expr), right: Box::new(right.expr) };
    Ok(Bound::new(fold(expr), ty))
}

/// A side of unknown type takes the other's type, but beside an interval's factor it is a number and beside a time
/// being shifted an interval.
fn resolve_arith(op: ArithOp, left: Bound, right: Bound, params: &mut Params) -> Result<(Bound, Bound)> {
    let counterpart = |known: Type, unknown_is_right: bool| match (op, known) {
        (ArithOp::Mul | ArithOp::Div, Type::Interval) => Type::Float8,
        (ArithOp::Add, Type::Timestamp | Type::Timestamptz | Type::Time) => Type::Interval,
        (ArithOp::Add, Type::Date) => Type::Int4,
        (ArithOp::ShiftLeft | ArithOp::ShiftRight, _) if unknown_is_right => Type::Int4,
        (_, Type::Unknown) => Type::Unknown,
        _ => known,
    };
    match (left.ty.ty, right.ty.ty) {
        (Type::Unknown, Type::Unknown) => Err(not_unique(op.symbol())),
        (Type::Unknown, known) => Ok((resolve(left, counterpart(known, false), params)?, right)),
        (known, Type::Unknown) => {
            let right = resolve(right, counterpart(known, true), params)?;
            Ok((left, right))
        }
        _ => Ok((left, right)),
    }
}

/// Unary minus.
pub(super) fn negate_bound(value: Bound, params: &mut Params) -> Result<Bound> {
    let value = resolve(value, Type::Float8, params)?;
    let ty = value.ty.ty;
    if !ty.is_number() && ty != Type::Interval {
        return Err(Error::new(SqlState::UNDEFINED_FUNCTION, format!("operator does not exist: - {ty}")).with_hint(
            "No operator matches the given name and argument type. You might need to add an explicit type cast.",
        ));
    }
    Ok(Bound::new(fold(Expr::Negate(Box::new(value.expr))), ty))
}

/// A condition: `42804` `argument of WHERE must be type boolean, not type integer`.
pub(super) fn condition(value: Bound, what: &str, params: &mut Params) -> Result<Expr> {
    match value.ty.ty {
        Type::Bool | Type::Unknown => Ok(cast_implicit(value, Type::Bool, params)?.expr),
        ty => Err(Error::new(
            SqlState::DATATYPE_MISMATCH,
            format!("argument of {what} must be type boolean, not type {ty}"),
        )),
    }
}

/// Is one side text, so that `||` joins texts?
pub(super) fn joins_text(left: Type, right: Type) -> bool {
    let text = |ty: Type| ty.category() == Category::String || matches!(ty, Type::Char | Type::Unknown);
    let plain = |ty: Type| ty.element().is_none() && ty != Type::Bytea;
    (text(left) || text(right)) && plain(left) && plain(right)
}
