//! Which rows does a set-returning function give? Its kind and columns by the types of its arguments; in a select list the calls
//! that its rows are made with.

use crate::expr::{self, Bound, Expr, Params, Scope};
use crate::plan::SeriesKind;
use homenode_types::{ColumnType, Error, Result, SqlState, Type};
use sqlparser::ast;
use std::cell::RefCell;

/// Register numbers of set-returning functions' results while the block's width is not known.
pub(super) const SET_BASE: usize = 1 << 22;

/// A bound call.
pub(super) struct Series {
    pub kind: SeriesKind,
    /// The columns, with their names where the function gives them some.
    pub columns: Vec<(Option<&'static str>, ColumnType)>,
}

/// Binds a call of a function that gives rows; `None` for other names.
pub(super) fn bind_series(name: &str, args: Vec<Bound>, params: &mut Params) -> Result<Option<Series>> {
    match name {
        "generate_series" => numbers_or_times(args, params).map(Some),
        "unnest" => unnest(args, params).map(Some),
        _ => Ok(expr::bind_set_function(name, args, params)?.map(|(function, args)| Series {
            columns: function.columns.iter().map(|(name, ty)| (*name, ColumnType::new(*ty))).collect(),
            kind: SeriesKind::Rows { function, args },
        })),
    }
}

fn no_function(name: &str, args: &[Bound]) -> Error {
    let types: Vec<_> = args.iter().map(|arg| arg.ty.ty.sql_name()).collect();
    let message = format!("function {name}({}) does not exist", types.join(", "));
    Error::new(SqlState::UNDEFINED_FUNCTION, message)
        .with_hint("No function matches the given name and argument types. You might need to add explicit type casts.")
}

/// `unnest(array, ...)`: of several arrays a column each.
fn unnest(args: Vec<Bound>, _: &mut Params) -> Result<Series> {
    let mut columns = Vec::with_capacity(args.len());
    for arg in &args {
        let Some(element) = arg.ty.ty.element() else { return Err(no_function("unnest", &args)) };
        columns.push((None, ColumnType::new(element)));
    }
    if columns.is_empty() {
        return Err(no_function("unnest", &args));
    }
    let arrays = args.into_iter().map(|arg| (arg.expr, arg.ty.ty)).collect();
    Ok(Series { kind: SeriesKind::Unnest { arrays }, columns })
}

fn numbers_or_times(mut args: Vec<Bound>, params: &mut Params) -> Result<Series> {
    if !(2..=3).contains(&args.len()) {
        return Err(no_function("generate_series", &args));
    }
    let missing = no_function("generate_series", &args);
    let step = (args.len() == 3).then(|| args.remove(2));
    let (stop, start) = (args.remove(1), args.remove(0));
    let types = [start.ty.ty, stop.ty.ty];
    let time = types.iter().find(|ty| matches!(ty, Type::Timestamp | Type::Timestamptz | Type::Date));
    if let (Some(time), Some(step)) = (time, &step) {
        let ty = ColumnType::new(if *time == Type::Timestamp { Type::Timestamp } else { Type::Timestamptz });
        let start = expr::cast_bound(start, ty, params)?.expr;
        let stop = expr::cast_bound(stop, ty, params)?.expr;
        let step = expr::cast_bound(step.clone(), ColumnType::new(Type::Interval), params)?.expr;
        return Ok(Series { kind: SeriesKind::Times { start, stop, step, ty }, columns: vec![(None, ty)] });
    }
    let all: Vec<Type> = types.into_iter().chain(step.iter().map(|step| step.ty.ty)).collect();
    let among = |known: fn(Type) -> bool| all.iter().all(|ty| *ty == Type::Unknown || known(*ty));
    let ty = ColumnType::new(if among(|ty| matches!(ty, Type::Int2 | Type::Int4)) {
        Type::Int4
    } else if among(Type::is_integer) {
        Type::Int8
    } else if among(|ty| ty.is_integer() || ty == Type::Numeric) {
        Type::Numeric
    } else {
        return Err(missing);
    });
    let start = expr::cast_bound(start, ty, params)?.expr;
    let stop = expr::cast_bound(stop, ty, params)?.expr;
    let step = step.map(|step| expr::cast_bound(step, ty, params).map(|bound| bound.expr)).transpose()?;
    Ok(Series { kind: SeriesKind::Numbers { start, stop, step, ty }, columns: vec![(None, ty)] })
}

/// The name and arguments of a call of a function that gives rows.
pub(super) fn set_call(tree: &ast::Expr) -> Option<(String, &[ast::FunctionArg])> {
    let ast::Expr::Function(function) = tree else { return None };
    let ast::FunctionArguments::List(list) = &function.args else { return None };
    let name = super::folded(function.name.0.last()?.as_ident()?);
    (function.over.is_none() && expr::is_set_function(&name)).then_some((name, &list.args[..]))
}

/// `0A000` for a call of such a function where none may stand.
pub(super) fn misplaced(place: &str) -> Error {
    Error::new(SqlState::FEATURE_NOT_SUPPORTED, format!("set-returning functions are not allowed in {place}"))
}

/// The scope of a select list: what its rows offer, and set-returning functions over them.
pub(super) struct SetScope<'a> {
    pub rows: &'a dyn Scope,
    /// The calls that were met.
    pub found: RefCell<Vec<SeriesKind>>,
}

impl SetScope<'_> {
    fn call(&self, name: &str, args: &[ast::FunctionArg], params: &mut Params) -> Result<Bound> {
        let bind = |arg: &ast::FunctionArg, params: &mut Params| match arg {
            ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(tree)) if set_call(tree).is_some() => {
                Err(Error::unsupported("a set-returning function within another"))
            }
            ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(tree)) => expr::bind(tree, self.rows, params),
            _ => Err(Error::unsupported("named arguments")),
        };
        let args = args.iter().map(|arg| bind(arg, params)).collect::<Result<Vec<_>>>()?;
        let series = bind_series(name, args, params)?;
        let Some(Series { kind, columns }) = series else { return Err(Error::internal("no set-returning function")) };
        let ty = match (&columns[..], &kind) {
            ([(_, ty)], _) => *ty,
            (_, SeriesKind::Rows { function, .. }) => function.row_type(),
            _ => return Err(Error::unsupported(format!("{name} of several arrays in the select list"))),
        };
        let mut found = self.found.borrow_mut();
        // A call that is written twice (in ORDER BY, say) is made once.
        let wanted = format!("{kind:?}");
        let place = found.iter().position(|known| format!("{known:?}") == wanted).unwrap_or_else(|| {
            found.push(kind);
            found.len() - 1
        });
        Ok(Bound { expr: Expr::Column(SET_BASE + place), ty })
    }
}

impl Scope for SetScope<'_> {
    fn column(&self, qualifier: Option<&str>, name: &str) -> Result<Bound> {
        self.rows.column(qualifier, name)
    }

    fn row_columns(&self, name: &str) -> Option<Vec<String>> {
        self.rows.row_columns(name)
    }

    fn intercept(&self, tree: &ast::Expr, params: &mut Params) -> Option<Result<Bound>> {
        if let Some((name, args)) = set_call(tree) {
            return Some(self.call(&name, args, params));
        }
        match tree {
            // What they choose from is not evaluated for every row.
            ast::Expr::Case { .. } => Some(expr::bind(tree, &NoSets { rows: self.rows, place: "CASE" }, params)),
            ast::Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("coalesce") => {
                Some(expr::bind(tree, &NoSets { rows: self.rows, place: "COALESCE" }, params))
            }
            _ => self.rows.intercept(tree, params),
        }
    }
}

/// The scope of a part of the select list where such functions may not stand.
struct NoSets<'a> {
    rows: &'a dyn Scope,
    place: &'static str,
}

impl Scope for NoSets<'_> {
    fn column(&self, qualifier: Option<&str>, name: &str) -> Result<Bound> {
        self.rows.column(qualifier, name)
    }

    fn row_columns(&self, name: &str) -> Option<Vec<String>> {
        self.rows.row_columns(name)
    }

    fn intercept(&self, tree: &ast::Expr, params: &mut Params) -> Option<Result<Bound>> {
        if set_call(tree).is_some() { Some(Err(misplaced(self.place))) } else { self.rows.intercept(tree, params) }
    }
}
