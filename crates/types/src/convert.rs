//! How does a Rust value become a SQL value?

use crate::Value;

macro_rules! from {
    ($($rust:ty => $variant:ident),* $(,)?) => {
        $(impl From<$rust> for Value {
            fn from(value: $rust) -> Value {
                Value::$variant(value.into())
            }
        })*
    };
}

from! {
    bool => Bool,
    i16 => Int2,
    i32 => Int4,
    i64 => Int8,
    f32 => Float4,
    f64 => Float8,
    &str => Text,
    String => Text,
    &[u8] => Bytea,
    Vec<u8> => Bytea,
    rust_decimal::Decimal => Numeric,
}

/// `None` is NULL.
impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}
