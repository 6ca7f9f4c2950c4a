//! Which relations are there? pg_class, pg_attribute, pg_attrdef, pg_index, pg_constraint, pg_sequence and what hangs on them.

use super::constraints::{indexes, pg_constraint, pg_index, pg_indexes};
use super::{BTREE_AM_OID, HEAP_AM_OID, ROLE_OID, flag, oid, schema_oid, text};
use crate::context::Context;
use crate::search_path::Found;
use crate::virtual_table::{self, Rows, VirtualTable};
use homenode_engine::{Definitions, Identity, Privileges, ViewDefinition};
use homenode_types::Type::{
    self, Bool, Char, Float4, Int2, Int2Vector, Int4, Int8, Name, Oid, OidVector, PgNodeTree, Text, TextArray, Xid,
};
use homenode_types::{ColumnType, Result, Value, ValueRef};
use std::sync::Arc;

macro_rules! table {
    ($name:literal, $oid:literal, [$(($column:literal, $ty:expr)),* $(,)?], $rows:expr) => {
        VirtualTable { schema: "pg_catalog", name: $name, oid: $oid, columns: &[$(($column, $ty)),*], rows: $rows }
    };
}
pub(super) use table;

pub(super) static TABLES: &[VirtualTable] = &[
    table!(
        "pg_class",
        1259,
        [
            ("oid", Oid),
            ("relname", Name),
            ("relnamespace", Oid),
            ("reltype", Oid),
            ("reloftype", Oid),
            ("relowner", Oid),
            ("relam", Oid),
            ("relfilenode", Oid),
            ("reltablespace", Oid),
            ("relpages", Int4),
            ("reltuples", Float4),
            ("relallvisible", Int4),
            ("reltoastrelid", Oid),
            ("relhasindex", Bool),
            ("relisshared", Bool),
            ("relpersistence", Char),
            ("relkind", Char),
            ("relnatts", Int2),
            ("relchecks", Int2),
            ("relhasrules", Bool),
            ("relhastriggers", Bool),
            ("relhassubclass", Bool),
            ("relrowsecurity", Bool),
            ("relforcerowsecurity", Bool),
            ("relispopulated", Bool),
            ("relreplident", Char),
            ("relispartition", Bool),
            ("relrewrite", Oid),
            ("relfrozenxid", Xid),
            ("relminmxid", Xid),
            ("relacl", TextArray),
            ("reloptions", TextArray),
            ("relpartbound", PgNodeTree),
        ],
        pg_class
    ),
    table!(
        "pg_attribute",
        1249,
        [
            ("attrelid", Oid),
            ("attname", Name),
            ("atttypid", Oid),
            ("attstattarget", Int4),
            ("attlen", Int2),
            ("attnum", Int2),
            ("attndims", Int4),
            ("attcacheoff", Int4),
            ("atttypmod", Int4),
            ("attbyval", Bool),
            ("attalign", Char),
            ("attstorage", Char),
            ("attcompression", Char),
            ("attnotnull", Bool),
            ("atthasdef", Bool),
            ("atthasmissing", Bool),
            ("attidentity", Char),
            ("attgenerated", Char),
            ("attisdropped", Bool),
            ("attislocal", Bool),
            ("attinhcount", Int4),
            ("attcollation", Oid),
            ("attacl", TextArray),
            ("attoptions", TextArray),
            ("attfdwoptions", TextArray),
            ("attmissingval", TextArray),
        ],
        pg_attribute
    ),
    table!("pg_attrdef", 2604, [("oid", Oid), ("adrelid", Oid), ("adnum", Int2), ("adbin", PgNodeTree)], pg_attrdef),
    table!(
        "pg_index",
        2610,
        [
            ("indexrelid", Oid),
            ("indrelid", Oid),
            ("indnatts", Int2),
            ("indnkeyatts", Int2),
            ("indisunique", Bool),
            ("indnullsnotdistinct", Bool),
            ("indisprimary", Bool),
            ("indisexclusion", Bool),
            ("indimmediate", Bool),
            ("indisclustered", Bool),
            ("indisvalid", Bool),
            ("indcheckxmin", Bool),
            ("indisready", Bool),
            ("indislive", Bool),
            ("indisreplident", Bool),
            ("indkey", Int2Vector),
            ("indcollation", OidVector),
            ("indclass", OidVector),
            ("indoption", Int2Vector),
            ("indexprs", PgNodeTree),
            ("indpred", PgNodeTree),
        ],
        pg_index
    ),
    table!(
        "pg_constraint",
        2606,
        [
            ("oid", Oid),
            ("conname", Name),
            ("connamespace", Oid),
            ("contype", Char),
            ("condeferrable", Bool),
            ("condeferred", Bool),
            ("convalidated", Bool),
            ("conrelid", Oid),
            ("contypid", Oid),
            ("conindid", Oid),
            ("conparentid", Oid),
            ("confrelid", Oid),
            ("confupdtype", Char),
            ("confdeltype", Char),
            ("confmatchtype", Char),
            ("conislocal", Bool),
            ("coninhcount", Int4),
            ("connoinherit", Bool),
            ("conkey", Type::Int2Array),
            ("confkey", Type::Int2Array),
            ("conbin", PgNodeTree),
        ],
        pg_constraint
    ),
    table!(
        "pg_sequence",
        2224,
        [
            ("seqrelid", Oid),
            ("seqtypid", Oid),
            ("seqstart", Int8),
            ("seqincrement", Int8),
            ("seqmax", Int8),
            ("seqmin", Int8),
            ("seqcache", Int8),
            ("seqcycle", Bool),
        ],
        pg_sequence
    ),
    table!(
        "pg_tables",
        12_100,
        [
            ("schemaname", Name),
            ("tablename", Name),
            ("tableowner", Name),
            ("tablespace", Name),
            ("hasindexes", Bool),
            ("hasrules", Bool),
            ("hastriggers", Bool),
            ("rowsecurity", Bool),
        ],
        pg_tables
    ),
    table!(
        "pg_views",
        12_103,
        [("schemaname", Name), ("viewname", Name), ("viewowner", Name), ("definition", Text)],
        pg_views
    ),
    table!(
        "pg_indexes",
        12_101,
        [("schemaname", Name), ("tablename", Name), ("indexname", Name), ("tablespace", Name), ("indexdef", Text),],
        pg_indexes
    ),
    table!(
        "pg_sequences",
        12_102,
        [
            ("schemaname", Name),
            ("sequencename", Name),
            ("sequenceowner", Name),
            ("data_type", Type::Regtype),
            ("start_value", Int8),
            ("min_value", Int8),
            ("max_value", Int8),
            ("increment_by", Int8),
            ("cycle", Bool),
            ("cache_size", Int8),
            ("last_value", Int8),
        ],
        pg_sequences
    ),
    table!(
        "pg_depend",
        2608,
        [
            ("classid", Oid),
            ("objid", Oid),
            ("objsubid", Int4),
            ("refclassid", Oid),
            ("refobjid", Oid),
            ("refobjsubid", Int4),
            ("deptype", Char),
        ],
        pg_depend
    ),
];

/// One row of pg_class.
struct Class<'a> {
    oid: u32,
    name: &'a str,
    /// The schema's number.
    schema: u32,
    kind: &'a str,
    pages: u64,
    /// How many ANALYZE has counted.
    rows: Option<f64>,
    columns: usize,
    has_index: bool,
    checks: usize,
    /// PostgreSQL keeps foreign keys by triggers; psql asks for them only where there are any.
    has_triggers: bool,
    owner: u32,
    /// Access control list.
    access: Value,
}

impl Class<'_> {
    fn row(&self) -> Vec<Value> {
        let method = match self.kind {
            "r" => HEAP_AM_OID,
            "i" => BTREE_AM_OID,
            _ => 0,
        };
        let replica_identity = if self.kind == "r" { "d" } else { "n" };
        let mut row = vec![oid(self.oid), text(self.name), oid(self.schema), oid(0), oid(0), oid(self.owner)];
        row.extend([oid(method), oid(self.oid), oid(0), Value::Int4(self.pages as i32)]);
        // PostgreSQL writes -1 for a table that was never analyzed.
        let rows = Value::Float4(self.rows.unwrap_or(-1.0) as f32);
        row.extend([rows, Value::Int4(0), oid(0), flag(self.has_index), flag(false)]);
        row.extend([
            text("p"),
            text(self.kind),
            Value::Int2(self.columns as i16),
            Value::Int2(self.checks as i16),
            flag(self.kind == "v"),
        ]);
        row.extend([
            flag(self.has_triggers),
            flag(false),
            flag(false),
            flag(false),
            flag(true),
            text(replica_identity),
            flag(false),
            oid(0),
        ]);
        row.extend([oid(0), oid(0), self.access.clone(), Value::Null, Value::Null]);
        row
    }
}

/// An access control list as the catalogs have it.
pub(super) fn access_value(definitions: &Definitions, relation: u32, all: Privileges) -> Value {
    match crate::roles::access_list(definitions, relation, all) {
        Some(list) => {
            let list: Vec<ValueRef<'_>> = list.iter().map(|entry| ValueRef::Text(entry)).collect();
            text(homenode_types::array::format(&list, Type::TextArray))
        }
        None => Value::Null,
    }
}

fn pg_class(context: &mut Context) -> Result<Rows> {
    let definitions = context.definitions();
    let mut rows = Vec::new();
    let access = |relation, all| access_value(&definitions, relation, all);
    for table in definitions.tables() {
        let has_index = table.primary_key.is_some() || !table.indexes.is_empty();
        let (schema, pages) = (schema_oid(&definitions, &table.schema), table.pages_estimate());
        let class = |oid, name, kind, columns, pages| Class {
            oid,
            name,
            schema,
            kind,
            pages,
            rows: definitions.statistics(&table).map(|found| found.rows),
            columns,
            has_index: kind == "r" && has_index,
            checks: if kind == "r" { table.checks.len() } else { 0 },
            has_triggers: kind == "r" && !(table.foreign_keys.is_empty() && table.referrers.is_empty()),
            owner: definitions.owner(table.oid),
            access: if kind == "r" { access(table.oid, Privileges::ALL_OF_TABLE) } else { Value::Null },
        };
        rows.push(class(table.oid, table.name.as_str(), "r", table.columns.len(), pages).row());
        if let Some(key) = &table.primary_key {
            rows.push(class(key.oid, key.name.as_str(), "i", key.columns.len(), 1).row());
        }
        for index in &table.indexes {
            rows.push(class(index.oid, index.name.as_str(), "i", index.columns.len(), 1).row());
        }
    }
    for sequence in definitions.sequences() {
        let (oid, name, schema) = (sequence.oid, sequence.name.as_str(), schema_oid(&definitions, &sequence.schema));
        let (owner, access) = (definitions.owner(oid), access(oid, Privileges::ALL_OF_SEQUENCE));
        let (has_index, checks, has_triggers) = (false, 0, false);
        let class = Class {
            oid,
            name,
            schema,
            kind: "S",
            pages: 1,
            rows: None,
            columns: 3,
            has_index,
            checks,
            has_triggers,
            owner,
            access,
        };
        rows.push(class.row());
    }
    for view in definitions.views() {
        let (oid, name, columns) = (view.oid, view.name.as_str(), view.columns.len());
        let schema = schema_oid(&definitions, &view.schema);
        let (owner, access) = (definitions.owner(oid), access(oid, Privileges::ALL_OF_TABLE));
        let (kind, has_index, checks, has_triggers) = ("v", false, 0, false);
        let class = Class {
            oid,
            name,
            schema,
            kind,
            pages: 0,
            rows: None,
            columns,
            has_index,
            checks,
            has_triggers,
            owner,
            access,
        };
        rows.push(class.row());
    }
    for table in virtual_table::all() {
        let kind = if table.schema == "pg_catalog" && table.oid < 12_000 { "r" } else { "v" };
        let (oid, name, columns) = (table.oid, table.name, table.columns.len());
        let schema = schema_oid(&definitions, table.schema);
        let (has_index, checks, has_triggers, owner, access) = (false, 0, false, ROLE_OID, Value::Null);
        let class = Class {
            oid,
            name,
            schema,
            kind,
            pages: 0,
            rows: None,
            columns,
            has_index,
            checks,
            has_triggers,
            owner,
            access,
        };
        rows.push(class.row());
    }
    Ok(rows)
}

/// Places in a row of pg_attribute.
const ATTTYPID: usize = 2;
const ATTGENERATED: usize = 17;
const ATTISDROPPED: usize = 18;

/// One row of pg_attribute.
fn attribute(
    relation: u32,
    number: usize,
    name: &str,
    ty: ColumnType,
    not_null: bool,
    default: bool,
    identity: &str,
) -> Vec<Value> {
    let length = ty.ty.len();
    let collation = if ty.ty.is_string() { super::fixed::DEFAULT_COLLATION_OID } else { 0 };
    let by_value = matches!(length, 1 | 2 | 4 | 8);
    let storage = if length < 0 { "x" } else { "p" };
    let align = match length {
        1 => "c",
        2 => "s",
        8 => "d",
        _ => "i",
    };
    let mut row = vec![oid(relation), text(name), oid(ty.ty.oid()), Value::Int4(-1), Value::Int2(length)];
    row.extend([Value::Int2(number as i16), Value::Int4(0), Value::Int4(-1), Value::Int4(ty.typmod), flag(by_value)]);
    row.extend([
        text(align),
        text(storage),
        text(""),
        flag(not_null),
        flag(default),
        flag(false),
        text(identity),
        text(""),
    ]);
    row.extend([flag(false), flag(true), Value::Int4(0), oid(collation)]);
    row.extend([Value::Null, Value::Null, Value::Null, Value::Null]);
    row
}

fn pg_attribute(context: &mut Context) -> Result<Rows> {
    let definitions = context.definitions();
    let mut rows = Vec::new();
    for table in definitions.tables() {
        for (place, column) in table.columns.iter().enumerate() {
            let identity = match column.identity {
                Some(Identity::Always) => "a",
                Some(Identity::ByDefault) => "d",
                None => "",
            };
            if column.is_hidden {
                continue;
            }
            let has_default = column.generated.is_some() || (column.default.is_some() && column.identity.is_none());
            let mut row =
                attribute(table.oid, place + 1, &column.name, column.ty, column.not_null, has_default, identity);
            if column.generated.is_some() {
                row[ATTGENERATED] = text("s");
            }
            if column.is_dropped {
                (row[ATTTYPID], row[ATTISDROPPED]) = (oid(0), flag(true));
            }
            rows.push(row);
        }
        let keys = table.primary_key.iter().map(|key| (key.oid, key.columns.clone()));
        let others = table.indexes.iter().map(|index| (index.oid, [&index.columns[..], &index.include].concat()));
        for (index, columns) in keys.chain(others) {
            for (place, &column) in columns.iter().enumerate() {
                let column = &table.columns[column];
                let name = match column.is_hidden {
                    true => column
                        .name
                        .split_once('(')
                        .map_or("expr", |(name, _)| if name.is_empty() { "expr" } else { name }),
                    false => &column.name,
                };
                rows.push(attribute(index, place + 1, name, column.ty, false, false, ""));
            }
        }
    }
    for sequence in definitions.sequences() {
        for (place, (name, ty)) in
            [("last_value", Int8), ("log_cnt", Int8), ("is_called", Bool)].into_iter().enumerate()
        {
            rows.push(attribute(sequence.oid, place + 1, name, ColumnType::new(ty), true, false, ""));
        }
    }
    for view in definitions.views() {
        for (place, (name, ty)) in view.columns.iter().enumerate() {
            rows.push(attribute(view.oid, place + 1, name, *ty, false, false, ""));
        }
    }
    for table in virtual_table::all() {
        for (place, (name, ty)) in table.columns.iter().enumerate() {
            rows.push(attribute(table.oid, place + 1, name, ColumnType::new(*ty), false, false, ""));
        }
    }
    Ok(rows)
}

/// The OID of a column's default: made up, but the same each time.
fn default_oid(table: u32, column: usize) -> u32 {
    0x4000_0000 | (table & 0xf_ffff) << 10 | (column as u32 & 0x3ff)
}

fn pg_attrdef(context: &mut Context) -> Result<Rows> {
    let mut rows = Vec::new();
    for table in context.definitions().tables() {
        for (place, column) in table.columns.iter().enumerate() {
            let shown = match (&column.default, &column.generated) {
                (_, Some(generated)) if !column.is_hidden => shown_value(generated),
                (Some(default), None) if column.identity.is_none() => shown_default(context, default, column.ty.ty),
                _ => continue,
            };
            let number = Value::Int2(place as i16 + 1);
            rows.push(vec![oid(default_oid(table.oid, place)), oid(table.oid), number, text(shown)]);
        }
    }
    Ok(rows)
}

/// A value that is made of a row, as pg_get_expr prints it: an operator's stands in parentheses.
pub(super) fn shown_value(value: &str) -> String {
    let is_operation = matches!(
        crate::parse::expression(value),
        Ok(sqlparser::ast::Expr::BinaryOp { .. } | sqlparser::ast::Expr::UnaryOp { .. })
    );
    if is_operation { format!("({value})") } else { value.to_string() }
}

/// A default as pg_get_expr prints it: a string has its type behind it. Numbers and truth values are printed without quotes
/// by PostgreSQL when the string can be read; here they stay as they were written.
pub(super) fn shown_default(context: &mut Context, default: &str, ty: Type) -> String {
    if let Some(sequence) = homenode_engine::next_value_of(default)
        && let Some((schema, name)) = name_of(context, sequence)
    {
        return format!("nextval('{}'::regclass)", context.shown(&schema, &name).replace('\'', "''"));
    }
    let quoted = default.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    let one_string = quoted.is_some_and(|inner| !inner.replace("''", "").contains('\''));
    if one_string && !matches!(ty, Bool | Int2 | Int4 | Int8 | Float4 | Type::Float8 | Type::Numeric) {
        return format!("{default}::{}", ty.sql_name());
    }
    default.to_string()
}

fn pg_sequence(context: &mut Context) -> Result<Rows> {
    let rows = context.definitions().sequences().into_iter().map(|sequence| {
        let number = |number: i64| Value::Int8(number);
        let mut row =
            vec![oid(sequence.oid), oid(sequence.ty.oid()), number(sequence.start), number(sequence.increment)];
        row.extend([number(sequence.max), number(sequence.min), number(1), flag(sequence.cycle)]);
        row
    });
    Ok(rows.collect())
}

fn pg_sequences(context: &mut Context) -> Result<Rows> {
    let mut rows = Vec::new();
    let definitions = context.definitions();
    for sequence in definitions.sequences() {
        let owner = owner_name(&definitions, sequence.oid);
        let state = context.session.sequence_state(sequence.oid)?;
        let last = if state.called { Value::Int8(state.last) } else { Value::Null };
        let number = |number: i64| Value::Int8(number);
        let mut row = vec![text(&sequence.schema), text(&sequence.name), text(owner), oid(sequence.ty.oid())];
        row.extend([number(sequence.start), number(sequence.min), number(sequence.max), number(sequence.increment)]);
        row.extend([flag(sequence.cycle), number(1), last]);
        rows.push(row);
    }
    Ok(rows)
}

fn owner_name(definitions: &homenode_engine::Definitions, relation: u32) -> String {
    let owner = definitions.role_by_oid(definitions.owner(relation));
    owner.map_or_else(String::new, |role| role.name.clone())
}

fn pg_tables(context: &mut Context) -> Result<Rows> {
    let mut rows = Vec::new();
    let definitions = context.definitions();
    for table in definitions.tables() {
        let owner = owner_name(&definitions, table.oid);
        let has_index = table.primary_key.is_some() || !table.indexes.is_empty();
        let mut row = vec![text(&table.schema), text(&table.name), text(owner), Value::Null, flag(has_index)];
        row.extend([flag(false), flag(false), flag(false)]);
        rows.push(row);
    }
    Ok(rows)
}

fn pg_views(context: &mut Context) -> Result<Rows> {
    let definitions = context.definitions();
    let row = |view: Arc<ViewDefinition>| {
        let owner = owner_name(&definitions, view.oid);
        vec![text(&view.schema), text(&view.name), text(owner), text(view_text(&view))]
    };
    Ok(definitions.views().into_iter().map(row).collect())
}

/// A view's query as PostgreSQL begins and ends it; between, it is as it was read.
fn view_text(view: &ViewDefinition) -> String {
    format!(" {};", view.query)
}

/// pg_get_viewdef.
pub(super) fn view_definition(context: &mut Context, wanted: u32) -> Value {
    context.definitions().view_by_oid(wanted).map_or(Value::Null, |view| text(view_text(view)))
}

/// Sequences depend on the columns that own them.
fn pg_depend(context: &mut Context) -> Result<Rows> {
    let mut rows = Vec::new();
    let definitions = context.definitions();
    for sequence in definitions.sequences() {
        if let Some((table, column)) = sequence.owner {
            let mut row = vec![oid(1259), oid(sequence.oid), Value::Int4(0), oid(1259), oid(table)];
            let found = definitions.table_by_oid(table).and_then(|table| table.columns.get(column));
            let is_identity = found.is_some_and(|column| column.identity.is_some());
            row.extend([Value::Int4(column as i32 + 1), text(if is_identity { "i" } else { "a" })]);
            rows.push(row);
        }
    }
    Ok(rows)
}

/// Schema and name of the relation with this OID.
pub(super) fn name_of(context: &mut Context, wanted: u32) -> Option<(String, String)> {
    let definitions = context.definitions();
    if let Some(table) = definitions.table_by_oid(wanted) {
        return Some((table.schema.clone(), table.name.clone()));
    }
    if let Some(sequence) = definitions.sequence_by_oid(wanted) {
        return Some((sequence.schema.clone(), sequence.name.clone()));
    }
    if let Some(view) = definitions.view_by_oid(wanted) {
        return Some((view.schema.clone(), view.name.clone()));
    }
    for table in definitions.tables() {
        if let Some(index) = indexes(&table).iter().find(|index| index.oid == wanted) {
            return Some((table.schema.clone(), index.name.to_string()));
        }
    }
    virtual_table::all()
        .find(|table| table.oid == wanted)
        .map(|table| (table.schema.to_string(), table.name.to_string()))
}

/// The OID of a relation by name.
pub(super) fn oid_of(context: &mut Context, schema: Option<&str>, name: &str) -> Result<Option<u32>> {
    Ok(context.find(schema, name)?.map(|found| match found {
        Found::Virtual(table) => table.oid,
        Found::Stored(oid) => oid,
    }))
}
