//! information_schema.tables and columns, as the SQL standard has them.

use super::text;
use crate::context::Context;
use crate::virtual_table::{Rows, VirtualTable};
use homenode_engine::Identity;
use homenode_types::Type::{Int4, Name, Text};
use homenode_types::{ColumnType, Result, Type, Value};

pub(super) static TABLES: &[VirtualTable] = &[
    VirtualTable {
        schema: "information_schema",
        name: "tables",
        oid: 12_300,
        columns: &[
            ("table_catalog", Name),
            ("table_schema", Name),
            ("table_name", Name),
            ("table_type", Text),
            ("is_insertable_into", Text),
            ("is_typed", Text),
        ],
        rows: tables,
    },
    VirtualTable {
        schema: "information_schema",
        name: "columns",
        oid: 12_301,
        columns: &[
            ("table_catalog", Name),
            ("table_schema", Name),
            ("table_name", Name),
            ("column_name", Name),
            ("ordinal_position", Int4),
            ("column_default", Text),
            ("is_nullable", Text),
            ("data_type", Text),
            ("character_maximum_length", Int4),
            ("numeric_precision", Int4),
            ("numeric_scale", Int4),
            ("udt_name", Name),
            ("is_identity", Text),
            ("identity_generation", Text),
            ("is_updatable", Text),
        ],
        rows: columns,
    },
    VirtualTable {
        schema: "information_schema",
        name: "views",
        oid: 12_303,
        columns: &[
            ("table_catalog", Name),
            ("table_schema", Name),
            ("table_name", Name),
            ("view_definition", Text),
            ("check_option", Text),
            ("is_updatable", Text),
            ("is_insertable_into", Text),
        ],
        rows: views,
    },
    VirtualTable {
        schema: "information_schema",
        name: "schemata",
        oid: 12_302,
        columns: &[("catalog_name", Name), ("schema_name", Name), ("schema_owner", Name)],
        rows: schemata,
    },
];

fn yes(yes: bool) -> Value {
    text(if yes { "YES" } else { "NO" })
}

fn tables(context: &mut Context) -> Result<Rows> {
    let catalog = context.database_name.clone();
    let mut rows = Vec::new();
    for table in context.definitions().tables() {
        rows.push(vec![
            text(&catalog),
            text(&table.schema),
            text(&table.name),
            text("BASE TABLE"),
            yes(true),
            yes(false),
        ]);
    }
    for view in context.definitions().views() {
        rows.push(vec![text(&catalog), text(&view.schema), text(&view.name), text("VIEW"), yes(false), yes(false)]);
    }
    for table in crate::virtual_table::all() {
        rows.push(vec![text(&catalog), text(table.schema), text(table.name), text("VIEW"), yes(false), yes(false)]);
    }
    Ok(rows)
}

fn columns(context: &mut Context) -> Result<Rows> {
    let catalog = context.database_name.clone();
    let mut rows = Vec::new();
    for table in context.definitions().tables() {
        for (place, column) in table.columns.iter().enumerate().filter(|(_, column)| column.is_visible()) {
            let default = column.default.as_ref().filter(|_| column.identity.is_none());
            let default = default.map(|default| super::relations::shown_default(context, default, column.ty.ty));
            let generation = match column.identity {
                Some(Identity::Always) => text("ALWAYS"),
                Some(Identity::ByDefault) => text("BY DEFAULT"),
                None => Value::Null,
            };
            let mut row = vec![text(&catalog), text(&table.schema), text(&table.name), text(&column.name)];
            row.extend([Value::Int4(place as i32 + 1), default.map_or(Value::Null, text), yes(!column.not_null)]);
            row.extend(type_columns(column.ty));
            row.extend([yes(column.identity.is_some()), generation, yes(true)]);
            rows.push(row);
        }
    }
    for view in context.definitions().views() {
        for (place, (name, ty)) in view.columns.iter().enumerate() {
            let mut row = vec![text(&catalog), text(&view.schema), text(&view.name), text(name)];
            row.extend([Value::Int4(place as i32 + 1), Value::Null, yes(true)]);
            row.extend(type_columns(*ty));
            row.extend([yes(false), Value::Null, yes(false)]);
            rows.push(row);
        }
    }
    Ok(rows)
}

/// data_type, character_maximum_length, numeric_precision, numeric_scale and udt_name.
fn type_columns(ty: ColumnType) -> [Value; 5] {
    let length = ty.char_len().map_or(Value::Null, |length| Value::Int4(length as i32));
    let (precision, scale) = match ty.ty {
        Type::Int2 => (Value::Int4(16), Value::Int4(0)),
        Type::Int4 => (Value::Int4(32), Value::Int4(0)),
        Type::Int8 => (Value::Int4(64), Value::Int4(0)),
        Type::Numeric if ty.typmod >= 0 => {
            let (precision, scale) = homenode_types::numeric_typmod(ty.typmod);
            (Value::Int4(precision as i32), Value::Int4(scale as i32))
        }
        _ => (Value::Null, Value::Null),
    };
    [text(ty.ty.sql_name()), length, precision, scale, text(ty.ty.name())]
}

fn views(context: &mut Context) -> Result<Rows> {
    let catalog = context.database_name.clone();
    let mut rows = Vec::new();
    for view in context.definitions().views() {
        let definition = super::relations::view_definition(context, view.oid);
        let mut row = vec![text(&catalog), text(&view.schema), text(&view.name), definition];
        row.extend([text("NONE"), yes(false), yes(false)]);
        rows.push(row);
    }
    Ok(rows)
}

fn schemata(context: &mut Context) -> Result<Rows> {
    let catalog = context.database_name.clone();
    let definitions = context.definitions();
    let row = |(oid, name): (u32, String)| {
        let owner = definitions.role_by_oid(definitions.owner(oid)).map_or_else(String::new, |role| role.name.clone());
        vec![text(&catalog), text(name), text(owner)]
    };
    Ok(super::schemas(&definitions).into_iter().map(row).collect())
}
