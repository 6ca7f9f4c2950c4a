//! Which functions are there, and which one does a call mean? The functions are rows of tables in `functions`; a call is
//! resolved by how well its argument types fit (manual, section 10.3).

use super::coerce::is_preferred;
use super::{Env, functions};
use homenode_types::{CastContext, Error, Result, SqlState, Type, Value, can_coerce};
use std::fmt;

/// Stands for "any type" among a function's argument types.
pub(super) const ANY: Type = Type::Void;

/// How much a function's result may change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Volatility {
    /// Never: it can be computed in advance.
    Immutable,
    /// Not within a statement.
    Stable,
    /// With each call.
    Volatile,
}

/// How a function is computed.
#[derive(Clone, Copy)]
pub enum Body {
    /// NULL if an argument is; not called then.
    Strict(fn(&[Value]) -> Result<Value>),
    /// Sees NULLs.
    Plain(fn(&[Value]) -> Result<Value>),
    /// Looks at the session; NULL if an argument is.
    Session(fn(&[Value], &mut Env<'_>) -> Result<Value>),
    /// [`super::Host::call`] with the function's name; NULL if an argument is.
    Host,
    /// As `Host`, but sees NULLs.
    HostPlain,
}

/// A row of the function table.
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// Argument types.
    pub args: &'static [Type],
    /// Type of any number of further arguments.
    pub variadic: Option<Type>,
    /// Result type.
    pub result: Type,
    /// How much the result may change.
    pub volatility: Volatility,
    /// How it is computed.
    pub body: Body,
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.name)?;
        for (i, ty) in self.args.iter().enumerate() {
            write!(f, "{}{ty}", if i == 0 { "" } else { "," })?;
        }
        f.write_str(")")
    }
}

/// A strict immutable function.
pub(super) const fn strict(
    name: &'static str,
    args: &'static [Type],
    result: Type,
    f: fn(&[Value]) -> Result<Value>,
) -> Function {
    Function { name, args, variadic: None, result, volatility: Volatility::Immutable, body: Body::Strict(f) }
}

/// A function of the session.
pub(super) const fn session(
    name: &'static str,
    args: &'static [Type],
    result: Type,
    f: fn(&[Value], &mut Env<'_>) -> Result<Value>,
) -> Function {
    Function { name, args, variadic: None, result, volatility: Volatility::Stable, body: Body::Session(f) }
}

/// A function that the host computes.
pub(super) const fn host(name: &'static str, args: &'static [Type], result: Type) -> Function {
    Function { name, args, variadic: None, result, volatility: Volatility::Stable, body: Body::Host }
}

/// A volatile function that the host computes.
pub(super) const fn effect(name: &'static str, args: &'static [Type], result: Type) -> Function {
    Function { name, args, variadic: None, result, volatility: Volatility::Volatile, body: Body::Host }
}

impl Function {
    /// The type that argument `i` must have.
    pub(super) fn arg_type(&self, i: usize) -> Type {
        self.args.get(i).copied().or(self.variadic).unwrap_or(ANY)
    }

    /// How well arguments of these types fit: `None` when they do not.
    fn fit(&self, types: &[Type]) -> Option<u32> {
        let count_fits = match self.variadic {
            None => types.len() == self.args.len(),
            Some(_) => types.len() >= self.args.len(),
        };
        if !count_fits {
            return None;
        }
        types.iter().enumerate().map(|(i, ty)| fit_argument(*ty, self.arg_type(i))).sum()
    }
}

/// How well arguments of these types fit the wanted ones; `None` when they do not.
pub(super) fn fit_arguments(types: &[Type], wanted: &[Type]) -> Option<u32> {
    if types.len() != wanted.len() {
        return None;
    }
    types.iter().zip(wanted).map(|(ty, wanted)| fit_argument(*ty, *wanted)).sum()
}

/// Exact types count most, then preferred types of the category; a literal of unknown type is text if it may.
fn fit_argument(from: Type, to: Type) -> Option<u32> {
    match (from, to) {
        (_, ANY) => Some(1),
        (Type::Unknown, Type::Text) => Some(3),
        (Type::Unknown, to) => Some(if is_preferred(to) { 2 } else { 1 }),
        (from, to) if from == to => Some(5),
        // Binary-compatible with text.
        (Type::Varchar, Type::Text) => Some(4),
        (from, to) if can_coerce(from, to, CastContext::Implicit) => Some(if is_preferred(to) { 2 } else { 1 }),
        _ => None,
    }
}

/// The function that a call means. `42883` when there is none.
pub(super) fn resolve(name: &str, types: &[Type]) -> Result<&'static Function> {
    let mut best: Option<(u32, &'static Function)> = None;
    for function in functions::all().filter(|f| f.name == name) {
        if let Some(fit) = function.fit(types)
            && best.is_none_or(|(least, _)| fit > least)
        {
            best = Some((fit, function));
        }
    }
    best.map(|(_, function)| function).ok_or_else(|| no_function(name, types))
}

#[cold]
pub(super) fn no_function(name: &str, types: &[Type]) -> Error {
    let types: Vec<_> = types.iter().map(|ty| ty.sql_name()).collect();
    Error::new(SqlState::UNDEFINED_FUNCTION, format!("function {name}({}) does not exist", types.join(", ")))
        .with_hint("No function matches the given name and argument types. You might need to add explicit type casts.")
}
