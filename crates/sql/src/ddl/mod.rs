//! How are tables and indexes defined? CREATE and ALTER, to the engine's calls.

mod alter;
mod comment;
mod drop;
mod foreign;
mod index;
mod rewrite;
mod schema;
mod sequence;
mod view;

pub(crate) use alter::{alter_table, rename_relation};
pub(crate) use comment::comment;
pub(crate) use drop::{drop_objects, truncate};
pub(crate) use schema::{alter_schema, create_schema, drop_schemas, set_schema};
pub(crate) use sequence::{alter_sequence, create_sequence};

use crate::bind::{Binder, default_of, folded, no_relation, split_name};
use crate::checks::{self, TableScope};
use crate::context::Context;
use crate::exec::Running;
use crate::expr::{self, Bound, Params};
use crate::parse::Statement;
use crate::prepared::Prepared;
use crate::run::Tag;
use crate::search_path::Found;
use crate::utility::Name;
use homenode_engine::{CheckSpec, ColumnSpec, Identity, Table, TableSpec};
use homenode_types::{ColumnType, Error, Result, SqlState, Type, Value};
use sqlparser::ast;
use std::sync::Arc;

/// Runs CREATE TABLE, CREATE INDEX and ALTER TABLE.
pub(crate) fn define(context: &mut Context, tree: &Statement) -> Result<Tag> {
    let Some((definition, options)) = Prepared::definition(tree) else {
        return Err(Error::internal("not a definition"));
    };
    match definition {
        ast::Statement::CreateTable(create) => {
            if options.unlogged {
                context.notice(
                    "NOTICE",
                    SqlState::SUCCESSFUL_COMPLETION,
                    "unlogged tables are kept as safely as others: the table is logged",
                );
            }
            create_table(context, create)
        }
        ast::Statement::CreateIndex(create) => index::create(context, create),
        ast::Statement::CreateView { .. } => view::create(context, definition),
        _ => Err(Error::unsupported("this definition")),
    }
}

/// The schema and name of something that is to be created there.
fn schema_and_name(context: &mut Context, name: &ast::ObjectName) -> Result<(String, String)> {
    let (schema, table) = split_name(name)?;
    let name = folded(table);
    Ok((context.schema_to_create_in(schema.map(folded), &name)?, name))
}

/// Whether a relation is what the statement calls it.
fn check_kind(context: &mut Context, oid: u32, wanted: &str, name: &str) -> Result<()> {
    let definitions = context.definitions();
    let is = match definitions.relation_name(oid) {
        Some((kind, _)) => kind,
        None => "index",
    };
    // ALTER TABLE may be said of views and sequences.
    if is == wanted {
        return Ok(());
    }
    let article = if wanted == "index" { "an" } else { "a" };
    Err(Error::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{name}\" is not {article} {wanted}")))
}

/// The stored table a name stands for.
pub(crate) fn table_named(context: &mut Context, name: &Name) -> Result<Arc<Table>> {
    let oid = match context.find(name.schema.as_deref(), &name.name)? {
        Some(Found::Virtual(_)) => {
            let message = format!("permission denied: \"{}\" is a system catalog", name.name);
            return Err(Error::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
        }
        Some(Found::Stored(oid)) => oid,
        None => return Err(no_relation(name.schema.as_deref(), &name.name).with_position(name.position)),
    };
    let found = context.session.definitions().table_by_oid(oid).cloned();
    found.ok_or_else(|| Error::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{}\" is not a table", name.name)))
}

fn table_of(context: &mut Context, name: &ast::ObjectName) -> Result<Arc<Table>> {
    let (schema, table) = split_name(name)?;
    let name = Name { schema: schema.map(folded), name: folded(table), position: 1 };
    table_named(context, &name).map_err(|mut error| {
        error.position = None;
        error
    })
}

/// Constraints of a table as they are gathered.
#[derive(Default)]
struct Constraints<'a> {
    primary_key: Option<(Option<String>, Vec<usize>)>,
    uniques: Vec<(Option<String>, Vec<usize>)>,
    checks: Vec<(Option<String>, &'a ast::Expr)>,
    foreign: Vec<foreign::Wanted<'a>>,
    /// Generated columns by place.
    generated: Vec<(usize, &'a ast::Expr)>,
    /// Numbers of identity columns by place.
    numbers: Vec<(usize, &'a [ast::SequenceOptions])>,
}

fn create_table(context: &mut Context, create: &ast::CreateTable) -> Result<Tag> {
    refuse_table_clauses(create)?;
    let (schema, name) = schema_and_name(context, &create.name)?;
    if create.if_not_exists && context.session.definitions().oid(&schema, &name).is_some() {
        let message = format!("relation \"{name}\" already exists, skipping");
        context.notice("NOTICE", SqlState::DUPLICATE_TABLE, message);
        return Ok(Tag::Plain("CREATE TABLE"));
    }
    if let Some(query) = prepared_query(create) {
        return create_table_as(context, schema, name, query);
    }
    let mut columns: Vec<ColumnSpec> = Vec::with_capacity(create.columns.len());
    let mut constraints = Constraints::default();
    for (place, definition) in create.columns.iter().enumerate() {
        let spec = column_spec(context, definition, place, &name, &mut constraints)?;
        if columns.iter().any(|column| column.name == spec.name) {
            let message = format!("column \"{}\" specified more than once", spec.name);
            return Err(Error::new(SqlState::DUPLICATE_COLUMN, message));
        }
        columns.push(spec);
    }
    for constraint in &create.constraints {
        table_constraint(constraint, &columns, &name, &mut constraints)?;
    }
    if let Some((_, key)) = &constraints.primary_key {
        key.iter().for_each(|column| columns[*column].not_null = true);
    }
    let scope = TableScope {
        what: "check constraint",
        table: &name,
        columns: columns.iter().map(|column| (column.name.as_str(), column.ty)).collect(),
    };
    let checks = constraints.checks.iter().map(|(name, tree)| check_spec(name, tree, &scope)).collect::<Result<_>>()?;
    let Constraints { primary_key, uniques, foreign, generated: computed, numbers, .. } = constraints;
    let mut table = context.session.create_table(TableSpec { schema, name, columns, primary_key, uniques, checks })?;
    for (place, tree) in computed {
        let text = generated(&table, place, tree)?;
        context.session.alter_table(&table, |definition| {
            definition.columns[place].generated = Some(text);
            Ok(())
        })?;
        let changed = context.session.definitions().table_by_oid(table.oid).cloned();
        table = changed.ok_or_else(|| Error::internal("the new table is gone"))?;
    }
    for (place, options) in numbers {
        sequence::change_numbers(context, &table, place, options)?;
    }
    for wanted in &foreign {
        table = foreign::add(context, &table, wanted, false)?;
    }
    Ok(Tag::Plain("CREATE TABLE"))
}

fn prepared_query(create: &ast::CreateTable) -> Option<&ast::Query> {
    create.query.as_deref()
}

fn create_table_as(context: &mut Context, schema: String, name: String, query: &ast::Query) -> Result<Tag> {
    let definitions = context.definitions();
    let mut params = Params::new(Vec::new());
    let binder = Binder::new(&definitions, context.search_path());
    let (plan, _) = binder.query(query, None, &mut params, false)?;
    context.check_access(&binder.needs.take())?;
    let columns = plan
        .fields
        .iter()
        .map(|field| ColumnSpec {
            name: field.name.clone(),
            ty: field.ty,
            not_null: false,
            default: None,
            identity: None,
            serial: false,
        })
        .collect();
    let table = context.session.create_table(TableSpec {
        schema,
        name,
        columns,
        primary_key: None,
        uniques: Vec::new(),
        checks: Vec::new(),
    })?;
    let mut copy = context.session.copy_begin(&table)?;
    let mut running = Running::new(plan);
    running.open(&mut context.env(), &[])?;
    let mut rows = 0;
    loop {
        let mut env = context.env();
        if !running.next(&mut env, &[])? {
            break;
        }
        let values = running.output(&mut env, &[])?;
        copy.push(&mut context.session, &values)?;
        rows += 1;
    }
    copy.finish(&mut context.session)?;
    Ok(Tag::Rows("SELECT", rows))
}

fn refuse_table_clauses(create: &ast::CreateTable) -> Result<()> {
    let refused = [
        (create.temporary, "temporary tables"),
        (create.inherits.is_some(), "INHERITS"),
        (create.partition_by.is_some(), "PARTITION BY"),
        (create.like.is_some(), "CREATE TABLE ... LIKE"),
        (create.on_commit.is_some(), "ON COMMIT"),
        (create.or_replace, "CREATE OR REPLACE TABLE"),
        (create.external || create.clone.is_some(), "this form of CREATE TABLE"),
    ];
    if let Some((_, what)) = refused.iter().find(|(present, _)| *present) {
        return Err(Error::unsupported(what));
    }
    match &create.table_options {
        ast::CreateTableOptions::None => Ok(()),
        ast::CreateTableOptions::With(options) => options.iter().try_for_each(check_storage_option),
        _ => Err(Error::unsupported("these table options")),
    }
}

/// Storage parameters that PostgreSQL knows and that mean nothing here.
fn check_storage_option(option: &ast::SqlOption) -> Result<()> {
    const HARMLESS: [&str; 3] = ["fillfactor", "autovacuum_enabled", "parallel_workers"];
    let name = match option {
        ast::SqlOption::KeyValue { key, .. } => folded(key),
        ast::SqlOption::Ident(ident) => folded(ident),
        _ => "this".to_string(),
    };
    if HARMLESS.contains(&name.as_str()) {
        return Ok(());
    }
    Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, format!("unrecognized parameter \"{name}\"")))
}

fn column_spec<'a>(
    context: &mut Context,
    definition: &'a ast::ColumnDef,
    place: usize,
    table: &str,
    constraints: &mut Constraints<'a>,
) -> Result<ColumnSpec> {
    let (ty, serial) = column_type(&definition.data_type)?;
    let mut spec =
        ColumnSpec { name: folded(&definition.name), ty, not_null: serial, default: None, identity: None, serial };
    for option in &definition.options {
        let name = option.name.as_ref().map(folded);
        match &option.option {
            ast::ColumnOption::Null => {}
            ast::ColumnOption::NotNull => spec.not_null = true,
            ast::ColumnOption::Default(tree) => spec.default = Some(checked_default(context, tree, ty)?),
            ast::ColumnOption::Unique { characteristics: Some(timing), .. } if timing.deferrable == Some(true) => {
                foreign::refuse_deferrable(Some(*timing))?;
            }
            ast::ColumnOption::Unique { is_primary: true, .. } => {
                set_primary_key(constraints, name, vec![place], table)?
            }
            ast::ColumnOption::Unique { is_primary: false, .. } => constraints.uniques.push((name, vec![place])),
            ast::ColumnOption::Generated { generated_as, generation_expr: None, sequence_options, .. } => {
                if !spec.ty.ty.is_integer() {
                    let message = "identity column type must be smallint, integer, or bigint";
                    return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
                }
                constraints.numbers.extend(sequence_options.iter().map(|options| (place, &options[..])));
                spec.identity = Some(match generated_as {
                    ast::GeneratedAs::Always => Identity::Always,
                    _ => Identity::ByDefault,
                });
                spec.not_null = true;
            }
            ast::ColumnOption::Generated { generation_expr: Some(tree), .. } => {
                if spec.default.is_some() {
                    let message = format!(
                        "both default and generation expression specified for column \"{}\" of table \"{table}\"",
                        spec.name
                    );
                    return Err(Error::new(SqlState::SYNTAX_ERROR, message));
                }
                constraints.generated.push((place, tree));
            }
            ast::ColumnOption::ForeignKey { .. } => {
                let column = spec.name.clone();
                constraints.foreign.extend(foreign::Wanted::of_column(name, column, &option.option));
            }
            ast::ColumnOption::Check(tree) => constraints.checks.push((name, tree)),
            ast::ColumnOption::Collation(name) if is_c_collation(name) => {}
            ast::ColumnOption::Collation(_) => return Err(Error::unsupported("collations other than \"C\"")),
            other => return Err(Error::unsupported(format!("column option {other}"))),
        }
    }
    Ok(spec)
}

fn is_c_collation(name: &ast::ObjectName) -> bool {
    split_name(name).is_ok_and(|(_, ident)| matches!(ident.value.as_str(), "C" | "POSIX" | "default"))
}

/// The type of a column; serial types are integers that number themselves.
fn column_type(data_type: &ast::DataType) -> Result<(ColumnType, bool)> {
    if let ast::DataType::Custom(name, modifiers) = data_type
        && modifiers.is_empty()
        && name.0.len() == 1
    {
        match name.to_string().to_ascii_lowercase().as_str() {
            "serial" | "serial4" => return Ok((ColumnType::new(Type::Int4), true)),
            "bigserial" | "serial8" => return Ok((ColumnType::new(Type::Int8), true)),
            "smallserial" | "serial2" => return Ok((ColumnType::new(Type::Int2), true)),
            _ => {}
        }
    }
    let ty = expr::column_type(data_type)?;
    if matches!(ty.ty, Type::Void | Type::Record | Type::Unknown | Type::PgNodeTree) {
        return Err(Error::new(SqlState::INVALID_TABLE_DEFINITION, format!("column has pseudo-type {}", ty.ty)));
    }
    Ok((ty, false))
}

/// The text of a generated column, after it has been bound once.
fn generated(table: &Table, place: usize, tree: &ast::Expr) -> Result<String> {
    let scope = TableScope { what: "column generation expression", ..TableScope::of(table) };
    let bound = checks::bind_value(tree, table.columns[place].ty, &scope).map_err(|error| {
        if error.code != SqlState::DATATYPE_MISMATCH {
            return error;
        }
        let (name, ty) = (&table.columns[place].name, table.columns[place].ty.ty.sql_name());
        let message = format!("column \"{name}\" is of type {ty} but default expression is of another type");
        Error::new(SqlState::DATATYPE_MISMATCH, message)
    })?;
    let mut uses = None;
    bound.visit_columns(&mut |column| {
        if table.columns[column].generated.is_some() || column == place {
            uses = Some(column);
        }
    });
    let invalid = |message: String| Err(Error::new(SqlState::INVALID_OBJECT_DEFINITION, message));
    if let Some(column) = uses {
        let name = &table.columns[column].name;
        return invalid(format!("cannot use generated column \"{name}\" in column generation expression"));
    }
    if !bound.is_repeatable() {
        return invalid("generation expression is not immutable".to_string());
    }
    Ok(tree.to_string())
}

/// A default's text, after it has been bound once to see that it fits the column.
fn checked_default(context: &mut Context, tree: &ast::Expr, ty: ColumnType) -> Result<String> {
    let mut params = Params::new(Vec::new());
    let bound: Bound = expr::bind_to(tree, ty, true, &expr::NoColumns, &mut params).map_err(|mut error| {
        if error.code == SqlState::UNDEFINED_COLUMN {
            error.code = SqlState::FEATURE_NOT_SUPPORTED;
            error.message = "cannot use column reference in DEFAULT expression".into();
        }
        error
    })?;
    if !bound.expr.is_volatile() {
        bound.expr.eval(&(), &[], &mut context.env())?;
    }
    match sequence_named(tree) {
        Some(name) => Ok(homenode_engine::next_value(crate::catalog::relation_named(context, &name)?)),
        None => Ok(tree.to_string()),
    }
}

/// The name in a call `nextval('name'[::regclass])` that is all of an expression.
fn sequence_named(tree: &ast::Expr) -> Option<String> {
    let ast::Expr::Function(call) = tree else { return None };
    let (_, name) = split_name(&call.name).ok()?;
    let ast::FunctionArguments::List(list) = &call.args else { return None };
    let [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(argument))] = &list.args[..] else { return None };
    let literal = match argument {
        ast::Expr::Cast { expr, data_type, .. } if data_type.to_string().eq_ignore_ascii_case("regclass") => expr,
        other => other,
    };
    match literal {
        ast::Expr::Value(value) if folded(name) == "nextval" => match &value.value {
            ast::Value::SingleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    }
}

fn set_primary_key(
    constraints: &mut Constraints<'_>,
    name: Option<String>,
    columns: Vec<usize>,
    table: &str,
) -> Result<()> {
    if constraints.primary_key.is_some() {
        let message = format!("multiple primary keys for table \"{table}\" are not allowed");
        return Err(Error::new(SqlState::INVALID_TABLE_DEFINITION, message));
    }
    constraints.primary_key = Some((name, columns));
    Ok(())
}

fn table_constraint<'a>(
    constraint: &'a ast::TableConstraint,
    columns: &[ColumnSpec],
    table: &str,
    constraints: &mut Constraints<'a>,
) -> Result<()> {
    let place = |name: &str| {
        columns.iter().position(|column| column.name == name).ok_or_else(|| {
            Error::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" named in key does not exist"))
        })
    };
    match constraint {
        ast::TableConstraint::PrimaryKey { name, columns, characteristics, .. } => {
            foreign::refuse_deferrable(*characteristics)?;
            let places = key_places(columns, &place)?;
            set_primary_key(constraints, name.as_ref().map(folded), places, table)
        }
        ast::TableConstraint::Unique { name, columns, nulls_distinct, characteristics, .. } => {
            foreign::refuse_deferrable(*characteristics)?;
            if matches!(nulls_distinct, ast::NullsDistinctOption::NotDistinct) {
                return Err(Error::unsupported("NULLS NOT DISTINCT"));
            }
            let places = key_places(columns, &place)?;
            constraints.uniques.push((name.as_ref().map(folded), places));
            Ok(())
        }
        ast::TableConstraint::ForeignKey { .. } => {
            constraints.foreign.extend(foreign::Wanted::of_table(constraint));
            Ok(())
        }
        ast::TableConstraint::Check { name, expr, .. } => {
            constraints.checks.push((name.as_ref().map(folded), expr));
            Ok(())
        }
        _ => Err(Error::unsupported("this table constraint")),
    }
}

/// A CHECK constraint, after it has been bound once. It is named after its column if it is about only one.
fn check_spec(name: &Option<String>, tree: &ast::Expr, scope: &TableScope<'_>) -> Result<CheckSpec> {
    let bound = checks::bind(tree, scope)?;
    let mut columns = Vec::new();
    bound.visit_columns(&mut |column| columns.push(column));
    columns.dedup();
    let column = if let [one] = columns[..] { Some(one) } else { None };
    Ok(CheckSpec { name: name.clone(), column, expression: tree.to_string() })
}

/// The positions of a key's columns.
fn key_places(columns: &[ast::IndexColumn], place: &dyn Fn(&str) -> Result<usize>) -> Result<Vec<usize>> {
    let mut places = Vec::with_capacity(columns.len());
    for column in columns {
        let order = &column.column;
        if column.operator_class.is_some() {
            return Err(Error::unsupported("operator classes"));
        }
        if order.options.asc == Some(false) || order.options.nulls_first == Some(true) {
            return Err(Error::unsupported("an index in descending order (an ascending one is read both ways)"));
        }
        let ast::Expr::Identifier(ident) = &order.expr else {
            return Err(Error::unsupported("an index on an expression"));
        };
        let found = place(&folded(ident))?;
        if places.contains(&found) {
            let message = format!("column \"{}\" appears twice in a key", folded(ident));
            return Err(Error::new(SqlState::DUPLICATE_COLUMN, message));
        }
        places.push(found);
    }
    Ok(places)
}

fn column_place(table: &Table, name: &str) -> Result<usize> {
    table
        .column_index(name)
        .ok_or_else(|| Error::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist")))
}

/// Defaults of columns that COPY does not fill.
pub(crate) fn copy_defaults(table: &Table, given: &[usize]) -> Result<Vec<Option<expr::Expr>>> {
    let mut params = Params::new(Vec::new());
    (0..table.columns.len())
        .map(|column| {
            if given.contains(&column) {
                return Ok(None);
            }
            let default = default_of(table, column, &mut params)?;
            Ok((!matches!(default, expr::Expr::Const(Value::Null))).then_some(default))
        })
        .collect()
}
