//! What is an SQL value as JSON? to_json's answer (datum_to_json in PostgreSQL's json.c).

use super::write::append_string;
use crate::array;
use crate::error::Result;
use crate::ty::Type;
use crate::value::ValueRef;

/// Appends a value of type `ty`. Errors are those of reading an array's text.
pub fn append_value(value: ValueRef<'_>, ty: Type, out: &mut String) -> Result<()> {
    match value {
        ValueRef::Null => out.push_str("null"),
        ValueRef::Bool(value) => out.push_str(if value { "true" } else { "false" }),
        ValueRef::Jsonb(text) => out.push_str(text),
        ValueRef::Text(text) if ty == Type::Json => out.push_str(text),
        ValueRef::Text(text) if ty.element().is_some() => {
            let element = ty.element().unwrap_or(Type::Text);
            out.push('[');
            for (number, item) in array::elements(text, ty)?.iter().enumerate() {
                if number > 0 {
                    out.push(',');
                }
                append_value(item.as_ref(), element, out)?;
            }
            out.push(']');
        }
        ValueRef::Text(text) => append_string(text, out),
        ValueRef::Timestamp(_) => append_string(&value.to_text(ty).replacen(' ', "T", 1), out),
        ValueRef::Timestamptz(us) => {
            let shown = value.to_text(ty).replacen(' ', "T", 1);
            // The zone's minutes are always written.
            let minutes = if matches!(us, i64::MIN | i64::MAX) { "" } else { ":00" };
            append_string(&shown.replace("+00", &format!("+00{minutes}")), out);
        }
        _ => {
            let shown = value.to_text(ty);
            // NaN and the infinities are no JSON numbers.
            if ty.is_number() && !shown.ends_with(['N', 'y']) {
                out.push_str(&shown);
            } else {
                append_string(&shown, out);
            }
        }
    }
    Ok(())
}
