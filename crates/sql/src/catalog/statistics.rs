//! What has ANALYZE found? The view pg_stats.

use super::{flag, text};
use crate::context::Context;
use crate::virtual_table::{Rows, VirtualTable};
use homenode_types::Type::{Bool, Float4, Int4, Name};
use homenode_types::{Result, Type, Value, ValueRef, array};

pub(super) static TABLES: &[VirtualTable] = &[VirtualTable {
    schema: "pg_catalog",
    name: "pg_stats",
    oid: 12_110,
    columns: &[
        ("schemaname", Name),
        ("tablename", Name),
        ("attname", Name),
        ("inherited", Bool),
        ("null_frac", Float4),
        ("avg_width", Int4),
        ("n_distinct", Float4),
        ("most_common_vals", Type::TextArray),
        ("most_common_freqs", Type::Float4Array),
        ("histogram_bounds", Type::TextArray),
        ("correlation", Float4),
    ],
    rows: pg_stats,
}];

/// A list of values as an array of texts; NULL where there are none.
fn list<'a>(values: impl Iterator<Item = ValueRef<'a>>, ty: Type) -> Value {
    let texts: Vec<String> = values.map(|value| value.to_text(ty)).collect();
    if texts.is_empty() {
        return Value::Null;
    }
    let items: Vec<ValueRef<'_>> = texts.iter().map(|item| ValueRef::Text(item)).collect();
    text(array::format(&items, Type::TextArray))
}

/// Only of tables that the session's role may read: common values are rows' values.
fn pg_stats(context: &mut Context) -> Result<Rows> {
    let definitions = context.definitions();
    let mut rows = Vec::new();
    for table in definitions.tables() {
        let Some(statistics) = definitions.statistics(&table).cloned() else { continue };
        let need = crate::bind::Need::own(table.oid, homenode_engine::Privileges::SELECT);
        if context.check_access(&[need]).is_err() {
            continue;
        }
        for (column, found) in table.columns.iter().zip(&statistics.columns).filter(|(column, _)| column.is_visible()) {
            let ty = column.ty.ty;
            let shares: Vec<Value> = found.common.iter().map(|(_, share)| Value::Float4(*share as f32)).collect();
            rows.push(vec![
                text(table.schema.as_str()),
                text(table.name.as_str()),
                text(column.name.as_str()),
                flag(false),
                Value::Float4(found.null_share as f32),
                Value::Int4(found.width as i32),
                Value::Float4(found.distinct as f32),
                list(found.common.iter().map(|(value, _)| value.as_ref()), ty),
                list(shares.iter().map(Value::as_ref), Float4),
                list(found.histogram.iter().map(Value::as_ref), ty),
                Value::Float4(found.correlation as f32),
            ]);
        }
    }
    Ok(rows)
}
