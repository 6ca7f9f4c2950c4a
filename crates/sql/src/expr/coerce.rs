//! When does an expression take another type, and how is that written into the tree?

use super::{Bound, Datum, Env, Expr, NoHost, Params};
use homenode_types::{
    CastContext, Category, ColumnType, Error, Result, SqlState, Type, Value, ValueRef, can_coerce, coerce_from,
    parse_datetime,
};
use sqlparser::ast::{ArrayElemTypeDef, CharacterLength, DataType, ExactNumberInfo, ObjectName, TimezoneInfo};

/// Casts where an assignment would: literals and parameters of unknown type take the target's. `42804` when there is no
/// such cast.
pub fn cast_bound(bound: Bound, to: ColumnType, params: &mut Params) -> Result<Bound> {
    cast(bound, to, CastContext::Assignment, params)
}

/// Casts as CAST does. `42846` when there is no cast.
pub fn cast_explicit(bound: Bound, to: ColumnType, params: &mut Params) -> Result<Bound> {
    cast(bound, to, CastContext::Explicit, params)
}

pub(super) fn cast_implicit(bound: Bound, to: Type, params: &mut Params) -> Result<Bound> {
    cast(bound, ColumnType::new(to), CastContext::Implicit, params)
}

fn cast(bound: Bound, to: ColumnType, context: CastContext, params: &mut Params) -> Result<Bound> {
    let from = bound.ty;
    let explicit = context == CastContext::Explicit;
    if let (Expr::Param(i), Type::Unknown) = (&bound.expr, from.ty) {
        return bind_param(*i, to, explicit, params);
    }
    if from.ty == to.ty && (to.typmod < 0 || to.typmod == from.typmod) {
        return Ok(bound);
    }
    if to.ty == Type::Unknown || matches!(bound.expr, Expr::Const(Value::Null)) {
        return Ok(Bound { expr: bound.expr, ty: to });
    }
    if !can_coerce(from.ty, to.ty, context) {
        return Err(no_cast(from.ty, to.ty, context));
    }
    fold_cast(wrap(bound.expr, from.ty, to, explicit)).map(|expr| Bound { expr, ty: to })
}

fn wrap(expr: Expr, from: Type, to: ColumnType, explicit: bool) -> Expr {
    Expr::Cast { expr: Box::new(expr), from, to, explicit }
}

fn bind_param(i: usize, to: ColumnType, explicit: bool, params: &mut Params) -> Result<Bound> {
    if to.ty == Type::Unknown {
        return Ok(Bound { expr: Expr::Param(i), ty: to });
    }
    let known = *params.types[i].get_or_insert(to.ty);
    let bound = Bound::new(Expr::Param(i), known);
    if known != to.ty && !can_coerce(known, to.ty, CastContext::Assignment) {
        return Err(Error::new(
            SqlState::AMBIGUOUS_FUNCTION,
            format!("inconsistent types deduced for parameter ${}", i + 1),
        )
        .with_detail(format!("{known} versus {}", to.ty)));
    }
    if known == to.ty && to.typmod < 0 {
        return Ok(bound);
    }
    Ok(Bound { expr: wrap(bound.expr, known, to, explicit), ty: to })
}

fn no_cast(from: Type, to: Type, context: CastContext) -> Error {
    if context == CastContext::Explicit {
        return Error::new(SqlState::CANNOT_COERCE, format!("cannot cast type {from} to {to}"));
    }
    Error::new(SqlState::DATATYPE_MISMATCH, format!("expression is of type {from} but type {to} is needed"))
        .with_hint("You will need to rewrite or cast the expression.")
}

/// Computes what can be computed already. An expression whose computation fails stays: it may never be evaluated.
pub(super) fn fold(expr: Expr) -> Expr {
    if matches!(expr, Expr::Const(_)) || !expr.is_immutable() {
        return expr;
    }
    let mut host = NoHost;
    match expr.eval(&(), &[], &mut Env::new(&mut host)) {
        Ok(value) => Expr::Const(value),
        Err(_) => expr,
    }
}

/// As [`fold`] for a cast: a literal that its type cannot read is an error at once.
fn fold_cast(expr: Expr) -> Result<Expr> {
    let literal = matches!(&expr, Expr::Cast { from: Type::Unknown, expr, .. } if matches!(**expr, Expr::Const(_)));
    if !literal || !expr.is_immutable() {
        return Ok(fold(expr));
    }
    let mut host = NoHost;
    expr.eval(&(), &[], &mut Env::new(&mut host)).map(Expr::Const)
}

/// Does this cast need the session: a name looked up in the catalog, or `'now'`?
pub(super) fn asks_host(from: Type, to: Type) -> bool {
    let alias = |ty| matches!(ty, Type::Regclass | Type::Regproc | Type::Regnamespace | Type::Regrole);
    let text = |ty: Type| ty.is_text();
    (alias(to) && text(from)) || (alias(from) && text(to))
}

/// Does the result of this cast depend on the session or the time?
pub(super) fn is_stable_cast(expr: &Expr, from: Type, to: Type) -> bool {
    let from_text = from.is_text() && matches!(to, Type::Date | Type::Time | Type::Timestamp | Type::Timestamptz);
    let mentions_now = || match expr {
        Expr::Const(Value::Text(text)) => {
            let text = text.to_ascii_lowercase();
            ["now", "today", "tomorrow", "yesterday"].iter().any(|word| text.contains(word))
        }
        _ => true,
    };
    asks_host(from, to) || (from_text && mentions_now())
}

/// The name that a host knows the alias type's look-ups by.
fn alias_function(ty: Type, out: bool) -> &'static str {
    match (ty, out) {
        (Type::Regproc, false) => "regprocin",
        (Type::Regproc, true) => "regprocout",
        (Type::Regnamespace, false) => "regnamespacein",
        (Type::Regnamespace, true) => "regnamespaceout",
        (Type::Regrole, false) => "regrolein",
        (Type::Regrole, true) => "regroleout",
        (_, false) => "regclassin",
        (_, true) => "regclassout",
    }
}

pub(super) fn cast_datum<'a>(
    value: Datum<'a>,
    from: Type,
    to: ColumnType,
    explicit: bool,
    env: &mut Env<'_>,
) -> Result<Datum<'a>> {
    match (value.as_ref(), to.ty) {
        (ValueRef::Null, _) => return Ok(Datum::Ref(ValueRef::Null)),
        (ValueRef::Int4(v), Type::Int8) => return Ok(Datum::Ref(ValueRef::Int8(v as i64))),
        (ValueRef::Int8(v), Type::Int4) => {
            return i32::try_from(v).map(|v| Datum::Ref(ValueRef::Int4(v))).map_err(|_| Error::out_of_range("integer"));
        }
        (ValueRef::Text(text), _) if to.ty.is_oid_like() && from != to.ty => {
            return name_to_oid(text, to.ty, env).map(Datum::Owned);
        }
        (ValueRef::Oid(oid), _) if asks_host(from, to.ty) => {
            let name = if oid == 0 {
                Value::text("-")
            } else {
                env.host.call(alias_function(from, true), &[Value::Oid(oid)])?
            };
            return homenode_types::coerce(name, to, explicit).map(Datum::Owned);
        }
        (ValueRef::Oid(oid), _) if from == Type::Regtype && to.ty.is_text() => {
            let name = Type::from_oid(oid).map_or_else(|| oid.to_string(), |ty| ty.format_type(-1));
            return homenode_types::coerce(Value::Text(name), to, explicit).map(Datum::Owned);
        }
        (ValueRef::Text(text), Type::Date | Type::Time | Type::Timestamp | Type::Timestamptz) => {
            let now = env.host.transaction_time_us();
            return parse_datetime(text, to, Some(now)).map(Datum::Owned);
        }
        _ => {}
    }
    coerce_from(value.into_owned(), from, to, explicit).map(Datum::Owned)
}

fn name_to_oid(text: &str, ty: Type, env: &mut Env<'_>) -> Result<Value> {
    let digits = text.trim_ascii();
    if digits == "-" || digits.bytes().all(|b| b.is_ascii_digit()) || matches!(ty, Type::Oid | Type::Xid) {
        return Value::parse_text(text, ColumnType::new(ty));
    }
    if ty == Type::Regtype {
        let name = digits.to_ascii_lowercase();
        let (base, is_array) = match name.strip_suffix("[]") {
            Some(base) => (base, true),
            None => (name.as_str(), false),
        };
        let found = Type::from_name(base).and_then(|ty| if is_array { ty.array() } else { Some(ty) });
        return found.map(|ty| Value::Oid(ty.oid())).ok_or_else(|| no_type(text));
    }
    env.host.call(alias_function(ty, false), &[Value::text(text)])
}

fn no_type(name: &str) -> Error {
    Error::new(SqlState::UNDEFINED_OBJECT, format!("type \"{name}\" does not exist"))
}

/// The common type of several expressions (UNION, CASE, VALUES, ...; manual, section 10.5). `what` is for the message:
/// `42804` `UNION types integer and text cannot be matched`.
pub fn unify(types: &[ColumnType], what: &str) -> Result<ColumnType> {
    let mut known = types.iter().filter(|ty| ty.ty != Type::Unknown);
    let Some(first) = known.next() else { return Ok(ColumnType::new(Type::Text)) };
    let mut common = *first;
    for ty in known {
        if ty.ty == common.ty {
            if ty.typmod != common.typmod {
                common.typmod = -1;
            }
            continue;
        }
        if ty.ty.category() != common.ty.category() {
            return Err(Error::new(
                SqlState::DATATYPE_MISMATCH,
                format!("{what} types {} and {} cannot be matched", common.ty, ty.ty),
            ));
        }
        common.typmod = -1;
        let forth = can_coerce(common.ty, ty.ty, CastContext::Implicit);
        let back = can_coerce(ty.ty, common.ty, CastContext::Implicit);
        if forth && !is_preferred(common.ty) && (!back || is_preferred(ty.ty)) {
            common.ty = ty.ty;
        } else if !forth && !back {
            return Err(Error::new(
                SqlState::CANNOT_COERCE,
                format!("{what} could not convert type {} to {}", ty.ty, common.ty),
            ));
        }
    }
    Ok(common)
}

/// pg_type.typispreferred.
pub(super) fn is_preferred(ty: Type) -> bool {
    matches!(ty, Type::Bool | Type::Float8 | Type::Text | Type::Timestamptz | Type::Interval | Type::Oid)
}

/// The type a type name of the parser means. `42704` for an unknown one.
pub fn column_type(ty: &DataType) -> Result<ColumnType> {
    use DataType as D;
    let plain = |ty| Ok(ColumnType::new(ty));
    match ty {
        D::Bool | D::Boolean => plain(Type::Bool),
        D::Int2(_) | D::SmallInt(_) => plain(Type::Int2),
        D::Int(_) | D::Int4(_) | D::Integer(_) => plain(Type::Int4),
        D::Int8(_) | D::BigInt(_) => plain(Type::Int8),
        D::Real | D::Float4 => plain(Type::Float4),
        D::Float8 | D::DoublePrecision | D::Double(_) => plain(Type::Float8),
        D::Float(ExactNumberInfo::Precision(p)) if *p <= 24 => plain(Type::Float4),
        D::Float(_) => plain(Type::Float8),
        D::Numeric(info) | D::Decimal(info) | D::Dec(info) => numeric_type(info),
        D::Text => plain(Type::Text),
        D::Varchar(n) | D::CharacterVarying(n) | D::CharVarying(n) => char_type(Type::Varchar, n.as_ref(), None),
        D::Char(n) | D::Character(n) => char_type(Type::Bpchar, n.as_ref(), Some(1)),
        D::Bytea => plain(Type::Bytea),
        D::Date => plain(Type::Date),
        D::Time(p, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => time_type(Type::Time, *p),
        D::Timestamp(p, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => time_type(Type::Timestamp, *p),
        D::Timestamp(p, _) => time_type(Type::Timestamptz, *p),
        D::Interval { .. } => plain(Type::Interval),
        D::Uuid => plain(Type::Uuid),
        D::JSON => plain(Type::Json),
        D::JSONB => plain(Type::Jsonb),
        D::Regclass => plain(Type::Regclass),
        D::Array(ArrayElemTypeDef::SquareBracket(inner, _)) => {
            let element = column_type(inner)?.ty;
            element.array().map(ColumnType::new).ok_or_else(|| Error::unsupported(format!("type {element}[]")))
        }
        D::Custom(name, modifiers) => custom_type(name, modifiers),
        other => Err(Error::unsupported(format!("type {other}"))),
    }
}

fn numeric_type(info: &ExactNumberInfo) -> Result<ColumnType> {
    let (precision, scale) = match *info {
        ExactNumberInfo::None => return Ok(ColumnType::new(Type::Numeric)),
        ExactNumberInfo::Precision(p) => (p, 0),
        ExactNumberInfo::PrecisionAndScale(p, s) => (p, s),
    };
    if !(1..=1000).contains(&precision) {
        return Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("NUMERIC precision {precision} must be between 1 and 1000"),
        ));
    }
    if scale < 0 || scale > precision as i64 {
        return Err(Error::unsupported(format!("NUMERIC scale {scale} outside 0 to the precision")));
    }
    Ok(ColumnType::numeric(precision as i32, scale as i32))
}

fn char_type(ty: Type, length: Option<&CharacterLength>, default: Option<u64>) -> Result<ColumnType> {
    let length = match length {
        Some(CharacterLength::IntegerLength { length, .. }) => Some(*length),
        Some(CharacterLength::Max) => return Err(Error::unsupported("a length of MAX")),
        None => default,
    };
    sized(ty, length)
}

fn sized(ty: Type, length: Option<u64>) -> Result<ColumnType> {
    let invalid = |message: String| Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
    let name = if ty == Type::Varchar { "varchar" } else { "char" };
    match length {
        None => Ok(ColumnType::new(ty)),
        Some(0) => invalid(format!("length for type {name} must be at least 1")),
        Some(n) if n > 10_485_760 => invalid(format!("length for type {name} cannot exceed 10485760")),
        Some(n) => Ok(ColumnType::with_typmod(ty, n as i32 + 4)),
    }
}

fn time_type(ty: Type, precision: Option<u64>) -> Result<ColumnType> {
    Ok(match precision {
        None => ColumnType::new(ty),
        Some(p) => ColumnType::with_typmod(ty, p.min(6) as i32),
    })
}

fn custom_type(name: &ObjectName, modifiers: &[String]) -> Result<ColumnType> {
    let idents: Vec<_> = name.0.iter().filter_map(|part| part.as_ident()).collect();
    let Some(last) = idents.last() else { return Err(no_type(&name.to_string())) };
    let schema_known = idents.len() == 1 || idents.first().is_some_and(|i| i.value.eq_ignore_ascii_case("pg_catalog"));
    // `"char"` with quotes is the internal type, and `pg_catalog.char` too.
    let quoted = last.quote_style.is_some();
    let lower = if quoted { last.value.clone() } else { last.value.to_ascii_lowercase() };
    let ty = match lower.as_str() {
        "char" if quoted || idents.len() > 1 => Some(Type::Char),
        other => Type::from_name(other),
    };
    let ty = ty.filter(|_| schema_known).ok_or_else(|| no_type(&name.to_string()))?;
    let modifier = |i: usize| modifiers.get(i).and_then(|m| m.trim().parse::<u64>().ok());
    match ty {
        Type::Varchar | Type::Bpchar => sized(ty, modifier(0)),
        Type::Time | Type::Timestamp | Type::Timestamptz => time_type(ty, modifier(0)),
        Type::Numeric => numeric_type(&match (modifier(0), modifier(1)) {
            (Some(p), Some(s)) => ExactNumberInfo::PrecisionAndScale(p, s as i64),
            (Some(p), None) => ExactNumberInfo::Precision(p),
            _ => ExactNumberInfo::None,
        }),
        _ => Ok(ColumnType::new(ty)),
    }
}

/// Types that string functions take without a cast.
pub(super) fn is_stringlike(ty: Type) -> bool {
    ty.category() == Category::String || ty == Type::Unknown
}
