//! The functions of the table, by what they work on.

mod bytes_text;
mod json;
mod math;
mod number_format;
pub(super) mod sets;
mod system;
mod text;
mod times;
mod to_char;

pub(super) use math::{float_power, numeric_power};

use super::function::Function;
use homenode_types::{Decimal, Value};

/// All functions.
pub(super) fn all() -> impl Iterator<Item = &'static Function> {
    math::FUNCTIONS
        .iter()
        .chain(text::FUNCTIONS)
        .chain(times::FUNCTIONS)
        .chain(system::FUNCTIONS)
        .chain(json::functions())
        .chain(to_char::FUNCTIONS)
}

// Arguments have been cast to the types of the table: what is not of its type there is not reached.

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn int(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

fn float(value: &Value) -> f64 {
    value.as_ref().as_f64().unwrap_or(f64::NAN)
}

fn decimal(value: &Value) -> Decimal {
    value.as_ref().as_decimal().unwrap_or_default()
}
