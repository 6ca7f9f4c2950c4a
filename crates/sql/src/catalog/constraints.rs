//! Which indexes and constraints are there, and how are they written? pg_index, pg_indexes, pg_constraint, pg_get_indexdef,
//! pg_get_constraintdef.

use super::{flag, oid, schema_oid, text};
use crate::context::Context;
use crate::virtual_table::Rows;
use homenode_engine::{Definitions, ForeignKey, IndexDefinition, KeyOrder, ReferentialAction, Table, Timing};
use homenode_types::{Result, Value};

/// An index as the catalogs show it; the primary key is one.
pub(super) struct Shown<'a> {
    pub oid: u32,
    pub name: &'a str,
    columns: &'a [usize],
    unique: bool,
    primary: bool,
    constraint: bool,
    /// Of an index that is not a primary key's.
    details: Option<&'a IndexDefinition>,
}

impl Shown<'_> {
    fn order(&self, place: usize) -> KeyOrder {
        self.details.and_then(|details| details.order.get(place).copied()).unwrap_or_default()
    }

    fn include(&self) -> &[usize] {
        self.details.map_or(&[], |details| &details.include)
    }

    /// The condition of a partial index.
    fn condition(&self, table: &Table) -> Option<String> {
        let text = table.columns[self.details?.filter?].generated.as_deref()?;
        Some(super::relations::shown_value(text))
    }

    /// A column of the key as it is written, without its order.
    fn key_text(&self, table: &Table, column: usize) -> String {
        let column = &table.columns[column];
        match &column.generated {
            Some(text) if column.is_hidden && column.name.starts_with('(') => {
                format!("({})", super::relations::shown_value(text))
            }
            Some(text) if column.is_hidden => text.clone(),
            _ => homenode_engine::quote_name(&column.name),
        }
    }
}

pub(super) fn indexes(table: &Table) -> Vec<Shown<'_>> {
    let key = table.primary_key.iter().map(|key| Shown {
        oid: key.oid,
        name: &key.name,
        columns: &key.columns,
        unique: true,
        primary: true,
        constraint: true,
        details: None,
    });
    let others = table.indexes.iter().map(|index| Shown {
        oid: index.oid,
        name: &index.definition.name,
        columns: &index.definition.columns,
        unique: index.unique,
        primary: false,
        constraint: index.constraint,
        details: Some(&index.definition),
    });
    key.chain(others).collect()
}

fn vector(numbers: impl Iterator<Item = u32>) -> Value {
    text(numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(" "))
}

pub(super) fn pg_index(context: &mut Context) -> Result<Rows> {
    let mut rows = Vec::new();
    for table in context.definitions().tables() {
        for index in indexes(&table) {
            let (keys, include) = (index.columns.len(), index.include().len());
            let (all, keys) = (Value::Int2((keys + include) as i16), Value::Int2(keys as i16));
            let mut row = vec![oid(index.oid), oid(table.oid), all, keys, flag(index.unique), flag(false)];
            row.extend([
                flag(index.primary),
                flag(false),
                flag(true),
                flag(false),
                flag(true),
                flag(false),
                flag(true),
                flag(true),
            ]);
            row.extend([
                flag(false),
                vector(index.columns.iter().chain(index.include()).map(|column| {
                    // An expression has no number.
                    if table.columns[*column].is_hidden { 0 } else { *column as u32 + 1 }
                })),
            ]);
            let collation = |column: &usize| {
                if table.columns[*column].ty.ty.is_string() { super::fixed::DEFAULT_COLLATION_OID } else { 0 }
            };
            row.extend([vector(index.columns.iter().map(collation)), vector(index.columns.iter().map(|_| 0))]);
            let option = |(place, _): (usize, &usize)| {
                let order = index.order(place);
                u32::from(order.descending) | u32::from(order.nulls_first) << 1
            };
            let hidden = index.columns.iter().filter(|column| table.columns[**column].is_hidden);
            let expressions: Vec<String> =
                hidden.map(|column| table.columns[*column].generated.clone().unwrap_or_default()).collect();
            let expressions = if expressions.is_empty() { Value::Null } else { text(expressions.join(", ")) };
            row.extend([vector(index.columns.iter().enumerate().map(option)), expressions]);
            row.push(index.condition(&table).map_or(Value::Null, text));
            rows.push(row);
        }
    }
    Ok(rows)
}

pub(super) fn pg_constraint(context: &mut Context) -> Result<Rows> {
    let mut rows = Vec::new();
    let definitions = &context.definitions();
    for table in definitions.tables() {
        for index in indexes(&table).into_iter().filter(|index| index.constraint) {
            let kind = if index.primary { "p" } else { "u" };
            let key: Vec<String> = index.columns.iter().map(|column| (column + 1).to_string()).collect();
            let mut row =
                vec![oid(index.oid), text(index.name), oid(schema_oid(definitions, &table.schema)), text(kind)];
            row.extend([flag(false), flag(false), flag(true), oid(table.oid), oid(0), oid(index.oid), oid(0), oid(0)]);
            row.extend([text(" "), text(" "), text(" "), flag(true), Value::Int4(0), flag(true)]);
            row.extend([text(format!("{{{}}}", key.join(","))), Value::Null, Value::Null]);
            rows.push(row);
        }
        for check in &table.checks {
            let key: Vec<String> = check_columns(&table, check).iter().map(|column| (column + 1).to_string()).collect();
            let mut row =
                vec![oid(check.oid), text(&check.name), oid(schema_oid(definitions, &table.schema)), text("c")];
            row.extend([flag(false), flag(false), flag(!check.not_valid), oid(table.oid)]);
            row.extend([oid(0), oid(0), oid(0), oid(0)]);
            row.extend([text(" "), text(" "), text(" "), flag(true), Value::Int4(0), flag(false)]);
            row.extend([text(format!("{{{}}}", key.join(","))), Value::Null, text(&check.expression)]);
            rows.push(row);
        }
        rows.extend(table.foreign_keys.iter().map(|key| foreign_key_row(definitions, &table, key)));
    }
    Ok(rows)
}

fn array(columns: &[usize]) -> Value {
    text(format!("{{{}}}", columns.iter().map(|column| (column + 1).to_string()).collect::<Vec<_>>().join(",")))
}

fn action_code(action: ReferentialAction) -> &'static str {
    match action {
        ReferentialAction::NoAction => "a",
        ReferentialAction::Restrict => "r",
        ReferentialAction::Cascade => "c",
        ReferentialAction::SetNull => "n",
        ReferentialAction::SetDefault => "d",
    }
}

fn foreign_key_row(definitions: &Definitions, table: &Table, key: &ForeignKey) -> Vec<Value> {
    let mut row = vec![oid(key.oid), text(&key.name), oid(schema_oid(definitions, &table.schema)), text("f")];
    let (deferrable, deferred) = (key.timing != Timing::Immediate, key.timing == Timing::Deferred);
    row.extend([flag(deferrable), flag(deferred), flag(!key.not_valid), oid(table.oid)]);
    row.extend([oid(0), oid(key.key), oid(0), oid(key.parent)]);
    row.extend([text(action_code(key.on_update)), text(action_code(key.on_delete)), text("s"), flag(true)]);
    row.extend([Value::Int4(0), flag(true), array(&key.columns), array(&key.parent_columns), Value::Null]);
    row
}

fn foreign_key_text(context: &mut Context, table: &Table, key: &ForeignKey) -> String {
    let Some(parent) = context.definitions().table_by_oid(key.parent).cloned() else { return String::new() };
    let action = |when: &str, action| match action {
        ReferentialAction::NoAction => String::new(),
        ReferentialAction::Restrict => format!(" ON {when} RESTRICT"),
        ReferentialAction::Cascade => format!(" ON {when} CASCADE"),
        ReferentialAction::SetNull => format!(" ON {when} SET NULL"),
        ReferentialAction::SetDefault => format!(" ON {when} SET DEFAULT"),
    };
    format!(
        "FOREIGN KEY ({}) REFERENCES {}({}){}{}{}{}",
        quoted_columns(table, &key.columns),
        context.shown(&parent.schema, &parent.name),
        quoted_columns(&parent, &key.parent_columns),
        action("UPDATE", key.on_update),
        action("DELETE", key.on_delete),
        match key.timing {
            Timing::Immediate => "",
            Timing::Deferrable => " DEFERRABLE",
            Timing::Deferred => " DEFERRABLE INITIALLY DEFERRED",
        },
        if key.not_valid { " NOT VALID" } else { "" }
    )
}

/// The columns that a CHECK constraint is about.
fn check_columns(table: &Table, check: &homenode_engine::CheckConstraint) -> Vec<usize> {
    let tree = crate::parse::expression(&check.expression);
    let bound = tree.and_then(|tree| crate::checks::bind(&tree, &crate::checks::TableScope::of(table)));
    let mut columns = Vec::new();
    if let Ok(bound) = bound {
        bound.visit_columns(&mut |column| columns.push(column));
    }
    columns.sort_unstable();
    columns.dedup();
    columns
}

pub(super) fn pg_indexes(context: &mut Context) -> Result<Rows> {
    let mut rows = Vec::new();
    for table in context.definitions().tables() {
        for index in indexes(&table) {
            let definition = index_text(&table, &index);
            rows.push(vec![text(&table.schema), text(&table.name), text(index.name), Value::Null, text(definition)]);
        }
    }
    Ok(rows)
}

fn quoted_columns(table: &Table, columns: &[usize]) -> String {
    let names: Vec<String> =
        columns.iter().map(|column| homenode_engine::quote_name(&table.columns[*column].name)).collect();
    names.join(", ")
}

fn index_text(table: &Table, index: &Shown<'_>) -> String {
    use homenode_engine::quote_name;
    let key = |(place, column): (usize, &usize)| {
        let order = match index.order(place) {
            KeyOrder { descending: false, nulls_first: false } => "",
            KeyOrder { descending: false, nulls_first: true } => " NULLS FIRST",
            KeyOrder { descending: true, nulls_first: true } => " DESC",
            KeyOrder { descending: true, nulls_first: false } => " DESC NULLS LAST",
        };
        index.key_text(table, *column) + order
    };
    let keys: Vec<String> = index.columns.iter().enumerate().map(key).collect();
    let include = match index.include() {
        [] => String::new(),
        columns => format!(" INCLUDE ({})", quoted_columns(table, columns)),
    };
    let condition = index.condition(table).map_or_else(String::new, |condition| format!(" WHERE {condition}"));
    format!(
        "CREATE {}INDEX {} ON {}.{} USING btree ({}){include}{condition}",
        if index.unique { "UNIQUE " } else { "" },
        quote_name(index.name),
        quote_name(&table.schema),
        quote_name(&table.name),
        keys.join(", ")
    )
}

/// pg_get_indexdef: the whole statement, or one column.
pub(super) fn index_definition(context: &mut Context, wanted: u32, column: i64) -> Value {
    for table in context.definitions().tables() {
        if let Some(index) = indexes(&table).iter().find(|index| index.oid == wanted) {
            if column == 0 {
                return text(index_text(&table, index));
            }
            let mut all = index.columns.iter().chain(index.include());
            let place = usize::try_from(column - 1).ok().and_then(|place| all.nth(place));
            return place.map_or_else(|| text(""), |column| text(index.key_text(&table, *column)));
        }
    }
    Value::Null
}

/// pg_get_constraintdef; `pretty` leaves parentheses out.
pub(super) fn constraint_definition(context: &mut Context, wanted: u32, pretty: bool) -> Value {
    let definitions = context.definitions();
    for table in definitions.tables() {
        if let Some(key) = table.foreign_keys.iter().find(|key| key.oid == wanted) {
            return text(foreign_key_text(context, &table, key));
        }
        if let Some(index) = indexes(&table).iter().find(|index| index.oid == wanted && index.constraint) {
            let kind = if index.primary { "PRIMARY KEY" } else { "UNIQUE" };
            return text(format!("{kind} ({})", quoted_columns(&table, index.columns)));
        }
        if let Some(check) = table.checks.iter().find(|check| check.oid == wanted) {
            let condition = &check.expression;
            let suffix = if check.not_valid { " NOT VALID" } else { "" };
            let shown = if pretty { format!("CHECK ({condition})") } else { format!("CHECK (({condition}))") };
            return text(shown + suffix);
        }
    }
    Value::Null
}
