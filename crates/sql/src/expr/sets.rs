//! Which functions give rows? Those of a table; `generate_series` and `unnest`, whose types follow from their arguments, are the
//! binder's.

use super::coerce::cast_implicit;
use super::function::{ANY, fit_arguments, no_function};
use super::functions::sets::TABLE;
use super::{Bound, Expr, Params};
use homenode_types::{ColumnType, Error, Result, SqlState, Type, Value};
use std::fmt;

/// A function that gives rows. It gives none when an argument is NULL.
pub struct SetFunction {
    /// Its name.
    pub name: &'static str,
    /// Argument types.
    pub args: &'static [Type],
    /// The columns that it gives, with their names where they have their own.
    pub columns: &'static [(Option<&'static str>, Type)],
    /// Its rows.
    pub rows: fn(&[Value]) -> Result<Vec<Vec<Value>>>,
}

impl fmt::Debug for SetFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({:?})", self.name, self.args)
    }
}

impl SetFunction {
    /// The type of its rows as one value: a record whose modifier says of which function (PostgreSQL numbers the shapes of its
    /// anonymous rows the same way, assign_record_type_typmod in typcache.c).
    pub fn row_type(&'static self) -> ColumnType {
        let place = TABLE.iter().position(|function| std::ptr::eq(function, self));
        ColumnType { ty: Type::Record, typmod: place.map_or(-1, |place| place as i32) }
    }
}

/// `(row).name`. `42809` where there are no fields, `42703` where none is called so.
pub(super) fn field(record: Bound, name: &str) -> Result<Bound> {
    let shape = (record.ty.ty == Type::Record).then(|| TABLE.get(usize::try_from(record.ty.typmod).ok()?)).flatten();
    let Some(shape) = shape else {
        let message =
            format!("column notation .{name} applied to type {}, which is not a composite type", record.ty.ty);
        return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message));
    };
    let Some(field) = shape.columns.iter().position(|(known, _)| *known == Some(name)) else {
        let message = format!("could not identify column \"{name}\" in record data type");
        return Err(Error::new(SqlState::UNDEFINED_COLUMN, message));
    };
    let ty = shape.columns[field].1;
    Ok(Bound::new(Expr::Field { record: Box::new(record.expr), field, ty }, ty))
}

/// Does a function of this name give rows?
pub fn is_set_function(name: &str) -> bool {
    matches!(name, "generate_series" | "unnest") || TABLE.iter().any(|function| function.name == name)
}

/// The function of the table that a call means, with its arguments as it wants them; `None` if none is called so. `42883` when the
/// arguments do not fit.
pub fn bind_set_function(
    name: &str,
    args: Vec<Bound>,
    params: &mut Params,
) -> Result<Option<(&'static SetFunction, Vec<Expr>)>> {
    if !TABLE.iter().any(|function| function.name == name) {
        return Ok(None);
    }
    let types: Vec<Type> = args.iter().map(|arg| arg.ty.ty).collect();
    let fits = TABLE.iter().filter(|function| function.name == name);
    let best = fits.filter_map(|function| Some((fit_arguments(&types, function.args)?, function)));
    let Some((_, function)) = best.max_by_key(|(fit, _)| *fit) else { return Err(no_function(name, &types)) };
    let mut exprs = Vec::with_capacity(args.len());
    for (arg, wanted) in args.into_iter().zip(function.args) {
        let known = if arg.ty.ty == Type::Unknown { Type::Text } else { arg.ty.ty };
        exprs.push(cast_implicit(arg, if *wanted == ANY { known } else { *wanted }, params)?.expr);
    }
    Ok(Some((function, exprs)))
}
