//! What is a value? SQL types, their text and binary forms, their order, row and key encodings,
//! and the errors every layer reports.
//!
//! Limits that differ from PostgreSQL: `numeric` is a 96-bit decimal with at most 28 digits (no
//! NaN, no infinities) and anything beyond is `22003`; the session time zone is UTC; text is
//! UTF-8 in byte order (collation "C").
#![warn(missing_docs)]

pub mod array;
mod binary;
mod cast;
mod convert;
pub mod datetime;
mod decimal;
mod error;
mod int_text;
pub mod json;
pub mod key;
mod large_row;
pub mod record;
mod row;
mod text_in;
mod text_out;
mod ty;
mod value;

pub use cast::{CastContext, can_coerce, coerce, coerce_from};
pub use datetime::{format_interval, parse_datetime, parse_interval};
pub use decimal::{decimal_from_f64, decimal_from_str, decimal_to_f64, divide, fits_decimal, round_to_scale};
pub use error::{Error, ErrorFields, Result, SqlState};
pub use int_text::{write_i64, write_u64};
pub use large_row::{MAX_ROW_BYTES, ValuePointer, is_split, moved_row, moved_to};
pub use row::{ColumnBytes, IntegerColumn, RowLayout, StoredColumn};
pub use rust_decimal::Decimal;
pub use text_in::{char_limit, text_from_bytes};
pub use ty::{Category, ColumnType, TYPES, Type, TypeInfo, numeric_typmod};
pub use value::{Interval, Value, ValueRef, compare, compare_bpchar, hash, trim_blanks, trim_blanks_of};
