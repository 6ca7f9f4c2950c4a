//! What is an expression worth? Bound expressions: made from the parser's trees against a scope, with
//! PostgreSQL's type rules, and evaluated against a row.
//!
//! [`bind`] resolves names, operators and functions and decides every type; [`Expr::eval`] only computes.
//! Columns, parameters and integers are evaluated without allocating.

mod aggregate;
mod arith;
mod array;
mod bind;
mod call;
mod coerce;
mod describe;
mod eval;
mod function;
mod functions;
mod json;
mod md5;
mod operator;
mod pattern;
mod place;
mod sets;
mod time;
mod tree;
mod window;

pub use aggregate::{Accumulator, Aggregate, AggregateCall, bind_aggregate, is_aggregate};
pub use arith::ArithOp;
pub use array::ArrayFunction;
pub use bind::{bind, bind_to};
pub use coerce::{cast_bound, cast_explicit, column_type, unify};
pub use eval::{Datum, compare_values};
pub use function::{Function, Volatility};
pub use operator::compare_bound;
pub use pattern::Pattern;
pub(crate) use place::stored;
pub use sets::{SetFunction, bind_set_function, is_set_function};
pub use time::add_interval;
pub use tree::{not, split_conjunction};
pub use window::{WindowCall, WindowFunction, bind_window_call, is_time, over_of, range_end};

use homenode_types::{ColumnType, Error, Result, SqlState, Type, Value, ValueRef};
use sqlparser::ast;
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

/// Comparison operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum CmpOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// A bound expression. Children have the types that the node needs; the node's own type is kept by whoever holds it
/// ([`Bound`]).
#[derive(Clone, Debug)]
pub enum Expr {
    /// A constant.
    Const(Value),
    /// A column of the row given to `eval`.
    Column(usize),
    /// A statement parameter, from 0.
    Param(usize),
    /// A column of the query around: an index into [`Env::outer`].
    Outer(usize),
    /// Something that sql computes: a subquery.
    External(Arc<dyn External>),
    /// A comparison. Integers of different widths and numbers of different types are compared as they are, so a
    /// column stays a bare [`Expr::Column`].
    Compare {
        /// The operator.
        op: CmpOp,
        /// Left side.
        left: Box<Expr>,
        /// Right side.
        right: Box<Expr>,
        /// Whose trailing blanks do not count (`character(n)`).
        blanks: Blanks,
    },
    /// `IS [NOT] DISTINCT FROM`.
    Distinct {
        /// Left side.
        left: Box<Expr>,
        /// Right side.
        right: Box<Expr>,
        /// Whose trailing blanks do not count.
        blanks: Blanks,
        /// `IS NOT DISTINCT FROM`.
        negated: bool,
    },
    /// All of them.
    And(Vec<Expr>),
    /// Any of them.
    Or(Vec<Expr>),
    /// NOT.
    Not(Box<Expr>),
    /// `IS [NOT] NULL`.
    IsNull {
        /// What is looked at.
        expr: Box<Expr>,
        /// `IS NOT NULL`.
        negated: bool,
    },
    /// `IS [NOT] TRUE` and `IS [NOT] FALSE`.
    IsBool {
        /// What is looked at.
        expr: Box<Expr>,
        /// TRUE or FALSE.
        wanted: bool,
        /// With NOT.
        negated: bool,
    },
    /// Arithmetic on two values of the same type (or a time and an interval).
    Arith {
        /// The operator.
        op: ArithOp,
        /// Left side.
        left: Box<Expr>,
        /// Right side.
        right: Box<Expr>,
    },
    /// Unary minus.
    Negate(Box<Expr>),
    /// A function of the table.
    Call {
        /// The function.
        function: &'static Function,
        /// Its arguments, of the types it wants.
        args: Vec<Expr>,
    },
    /// A cast.
    Cast {
        /// What is cast.
        expr: Box<Expr>,
        /// Its type.
        from: Type,
        /// The type it gets.
        to: ColumnType,
        /// Asked for with CAST or `::`: text that is too long is cut.
        explicit: bool,
    },
    /// `CASE`; a CASE with an operand is bound to comparisons.
    Case {
        /// Conditions and results.
        whens: Vec<(Expr, Expr)>,
        /// ELSE; NULL without.
        otherwise: Option<Box<Expr>>,
    },
    /// COALESCE.
    Coalesce(Vec<Expr>),
    /// GREATEST and LEAST.
    Extreme {
        /// The values.
        list: Vec<Expr>,
        /// GREATEST.
        greatest: bool,
    },
    /// `IN (list)`.
    InList {
        /// What is looked for.
        expr: Box<Expr>,
        /// Where.
        list: Vec<Expr>,
        /// Whose trailing blanks do not count.
        blanks: Blanks,
        /// `NOT IN`.
        negated: bool,
    },
    /// `value op ANY (array)` or `value op ALL (array)`.
    AnyArray {
        /// The operator.
        op: CmpOp,
        /// Left side.
        left: Box<Expr>,
        /// The array.
        array: Box<Expr>,
        /// The array's type.
        array_type: Type,
        /// ALL instead of ANY.
        all: bool,
    },
    /// `ARRAY[...]`.
    Array {
        /// The elements.
        items: Vec<Expr>,
        /// The array's type.
        ty: Type,
    },
    /// `array[index]`.
    Subscript {
        /// The array.
        array: Box<Expr>,
        /// Its type.
        array_type: Type,
        /// The index, from 1 (from 0 for the vectors of catalogs).
        index: Box<Expr>,
    },
    /// A function or operator of arrays that has to know their type.
    ArrayCall {
        /// What is done.
        function: ArrayFunction,
        /// Its arguments.
        args: Vec<Expr>,
        /// The arrays' type.
        array_type: Type,
    },
    /// A field of a row.
    Field {
        /// The row.
        record: Box<Expr>,
        /// Which field.
        field: usize,
        /// Its type.
        ty: Type,
    },
    /// LIKE and regular expressions.
    Match {
        /// The text.
        expr: Box<Expr>,
        /// The pattern.
        pattern: Box<Expr>,
        /// How the pattern is read; compiled already when it is a constant.
        matcher: pattern::Matcher,
        /// With NOT.
        negated: bool,
    },
}

/// Which side of a comparison is `character(n)`, whose trailing blanks do not count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Blanks {
    /// The left side's do not.
    pub left: bool,
    /// The right side's do not.
    pub right: bool,
}

/// An expression and its type. [`Type::Unknown`] is a literal or parameter whose type the context has not decided.
#[derive(Clone, Debug)]
pub struct Bound {
    /// The expression.
    pub expr: Expr,
    /// Its type.
    pub ty: ColumnType,
}

impl Bound {
    /// An expression of a type without modifier.
    pub fn new(expr: Expr, ty: Type) -> Bound {
        Bound { expr, ty: ColumnType::new(ty) }
    }

    /// A constant.
    pub fn constant(value: Value, ty: Type) -> Bound {
        Bound::new(Expr::Const(value), ty)
    }
}

/// An expression that someone else computes (a subquery).
pub trait External: Send + Sync + Debug {
    /// Its value for this row.
    fn eval(&self, row: &dyn RowSource, params: &[Value], env: &mut Env<'_>) -> Result<Value>;
    /// Calls `visit` with each column of the row that is read.
    fn visit_columns(&self, visit: &mut dyn FnMut(usize));
    /// Whether it is computed anew for each row.
    fn is_correlated(&self) -> bool;
    /// The same with the columns of the query around replaced: they have become columns of the row.
    fn with_outer(&self, columns: &[Expr]) -> Arc<dyn External>;
    /// For code that knows what it is.
    fn as_any(&self) -> &dyn Any;
}

/// Where columns come from.
pub trait RowSource {
    /// Column `i`; NULL if there is none.
    fn column(&self, i: usize) -> ValueRef<'_>;
}

impl RowSource for [Value] {
    #[inline]
    fn column(&self, i: usize) -> ValueRef<'_> {
        self.get(i).map_or(ValueRef::Null, Value::as_ref)
    }
}

impl RowSource for &[Value] {
    #[inline]
    fn column(&self, i: usize) -> ValueRef<'_> {
        (**self).column(i)
    }
}

impl RowSource for Vec<Value> {
    #[inline]
    fn column(&self, i: usize) -> ValueRef<'_> {
        self.as_slice().column(i)
    }
}

/// A row without columns.
impl RowSource for () {
    fn column(&self, _: usize) -> ValueRef<'_> {
        ValueRef::Null
    }
}

/// What functions ask of the session.
pub trait Host {
    /// For code that knows which host it is.
    fn as_any_mut(&mut self) -> &mut dyn Any;
    /// Start of the transaction, in microseconds since 2000-01-01 UTC: `now()`.
    fn transaction_time_us(&mut self) -> i64;
    /// Start of the statement, in microseconds since 2000-01-01 UTC.
    fn statement_time_us(&mut self) -> i64;
    /// A function that needs the session or the catalog: those of the table whose body is `Host`, and the name look-ups
    /// `regclassin(text) -> oid`, `regprocin`, `regnamespacein`, `regrolein`, and `regclassout(oid) -> text` and so on.
    fn call(&mut self, name: &str, args: &[Value]) -> Result<Value>;
}

/// What an evaluation has besides row and parameters.
pub struct Env<'a> {
    /// The session.
    pub host: &'a mut dyn Host,
    /// Values of the columns of the query around.
    pub outer: Vec<Value>,
}

impl<'a> Env<'a> {
    /// An environment without columns of a query around.
    pub fn new(host: &'a mut dyn Host) -> Env<'a> {
        Env { host, outer: Vec::new() }
    }
}

/// A host without session or catalog; for constant folding and tests. The time is 2000-01-01.
#[derive(Debug, Default)]
pub struct NoHost;

impl Host for NoHost {
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
    fn transaction_time_us(&mut self) -> i64 {
        0
    }
    fn statement_time_us(&mut self) -> i64 {
        0
    }
    fn call(&mut self, name: &str, _: &[Value]) -> Result<Value> {
        Err(Error::unsupported(format!("function {name} here")))
    }
}

/// Names an expression may use.
pub trait Scope {
    /// The column `[qualifier.]name`; errors are 42703, 42702, 42P01.
    fn column(&self, qualifier: Option<&str>, name: &str) -> Result<Bound>;

    /// The columns of the relation `name`, if that name, which is no column's, stands for a whole row.
    fn row_columns(&self, _name: &str) -> Option<Vec<String>> {
        None
    }

    /// Asked first at every node: subqueries, aggregates, grouped expressions. `None` leaves the node to the binder.
    fn intercept(&self, _tree: &ast::Expr, _params: &mut Params) -> Option<Result<Bound>> {
        None
    }
}

/// A scope without columns.
#[derive(Debug, Default)]
pub struct NoColumns;

impl Scope for NoColumns {
    fn column(&self, _: Option<&str>, name: &str) -> Result<Bound> {
        Err(Error::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist")))
    }
}

/// The types of a statement's parameters: declared, or found from where they stand.
#[derive(Clone, Debug, Default)]
pub struct Params {
    /// `None`: not decided yet.
    pub types: Vec<Option<Type>>,
    /// How deep the binder is in the tree.
    depth: usize,
}

impl Params {
    /// The declared types; `None` or unknown where the context is to decide.
    pub fn new(declared: Vec<Option<Type>>) -> Params {
        let types = declared.into_iter().map(|ty| ty.filter(|ty| *ty != Type::Unknown)).collect();
        Params { types, depth: 0 }
    }

    /// Parameters that nothing has decided are text, as in PostgreSQL.
    pub fn finish(&mut self) -> Vec<Type> {
        self.types.iter().map(|ty| ty.unwrap_or(Type::Text)).collect()
    }

    fn get(&mut self, i: usize) -> Option<Type> {
        if self.types.len() <= i {
            self.types.resize(i + 1, None);
        }
        self.types[i]
    }
}

#[cfg(test)]
mod tests;
