//! How are tables and indexes defined? CREATE and ALTER, to the engine's calls.

mod comment;
mod drop;
mod foreign;
mod schema;
mod sequence;
mod view;

pub(crate) use comment::comment;
pub(crate) use drop::{drop_objects, truncate};
pub(crate) use schema::{alter_schema, create_schema, drop_schemas, set_schema};
pub(crate) use sequence::{alter_sequence, create_sequence};

use crate::bind::{Binder, default_of, folded, no_relation, split_name};
use crate::checks::{self, TableScope};
use crate::context::Context;
use crate::exec::{RawRow, Running};
use crate::expr::{self, Bound, Params};
use crate::lexer;
use crate::parse::Statement;
use crate::prepared::{Compiled, Prepared};
use crate::run::Tag;
use crate::search_path::Found;
use crate::utility::Name;
use crate::write;
use homenode_engine::{CheckConstraint, CheckSpec, ColumnSpec, Identity, IndexSpec, Table, TableSpec, quote_name};
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
        ast::Statement::CreateIndex(create) => create_index(context, create),
        ast::Statement::CreateView { .. } => view::create(context, definition),
        ast::Statement::AlterTable { name, if_exists, operations, .. } => {
            alter_table(context, name, *if_exists, operations)
        }
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
    let scope =
        TableScope { table: &name, columns: columns.iter().map(|column| (column.name.as_str(), column.ty)).collect() };
    let checks = constraints.checks.iter().map(|(name, tree)| check_spec(name, tree, &scope)).collect::<Result<_>>()?;
    let Constraints { primary_key, uniques, foreign, .. } = constraints;
    let mut table = context.session.create_table(TableSpec { schema, name, columns, primary_key, uniques, checks })?;
    for wanted in &foreign {
        table = foreign::add(context, &table, wanted)?;
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
            ast::ColumnOption::Unique { is_primary: true, .. } => {
                set_primary_key(constraints, name, vec![place], table)?
            }
            ast::ColumnOption::Unique { is_primary: false, .. } => constraints.uniques.push((name, vec![place])),
            ast::ColumnOption::Generated { generated_as, generation_expr: None, .. } => {
                spec.identity = Some(match generated_as {
                    ast::GeneratedAs::Always => Identity::Always,
                    _ => Identity::ByDefault,
                });
                spec.not_null = true;
            }
            ast::ColumnOption::Generated { .. } => return Err(Error::unsupported("generated columns")),
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
        ast::TableConstraint::PrimaryKey { name, columns, .. } => {
            let places = key_places(columns, &place)?;
            set_primary_key(constraints, name.as_ref().map(folded), places, table)
        }
        ast::TableConstraint::Unique { name, columns, nulls_distinct, .. } => {
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

fn create_index(context: &mut Context, create: &ast::CreateIndex) -> Result<Tag> {
    let refused = [
        (create.predicate.is_some(), "a partial index"),
        (!create.include.is_empty(), "INCLUDE"),
        (create.nulls_distinct == Some(false), "NULLS NOT DISTINCT"),
        (!matches!(create.using, None | Some(ast::IndexType::BTree)), "an index method other than btree"),
    ];
    if let Some((_, what)) = refused.iter().find(|(present, _)| *present) {
        return Err(Error::unsupported(what));
    }
    let table = table_of(context, &create.table_name)?;
    context.check_table_owner(&table)?;
    let name = create.name.as_ref().map(|name| split_name(name).map(|(_, ident)| folded(ident))).transpose()?;
    if let Some(name) = &name
        && create.if_not_exists
        && context.session.definitions().oid(&table.schema, name).is_some()
    {
        let message = format!("relation \"{name}\" already exists, skipping");
        context.notice("NOTICE", SqlState::DUPLICATE_TABLE, message);
        return Ok(Tag::Plain("CREATE INDEX"));
    }
    let columns = key_places(&create.columns, &|name| column_place(&table, name))?;
    context.session.create_index(&table, IndexSpec { name, columns, unique: create.unique, constraint: false })?;
    Ok(Tag::Plain("CREATE INDEX"))
}

fn column_place(table: &Table, name: &str) -> Result<usize> {
    table
        .column_index(name)
        .ok_or_else(|| Error::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist")))
}

fn alter_table(
    context: &mut Context,
    name: &ast::ObjectName,
    if_exists: bool,
    operations: &[ast::AlterTableOperation],
) -> Result<Tag> {
    let done = Ok(Tag::Plain("ALTER TABLE"));
    let mut table = match table_of(context, name) {
        Err(error) if if_exists && error.code == SqlState::UNDEFINED_TABLE => {
            let message = format!("{}, skipping", error.message);
            context.notice("NOTICE", SqlState::SUCCESSFUL_COMPLETION, message);
            return done;
        }
        other => other?,
    };
    context.check_table_owner(&table)?;
    for operation in operations {
        alter_once(context, &table, operation)?;
        // Each operation sees the definition as the one before left it.
        let oid = table.oid;
        if let Some(changed) = context.session.definitions().table_by_oid(oid).cloned() {
            table = changed;
        }
    }
    done
}

fn alter_once(context: &mut Context, table: &Arc<Table>, operation: &ast::AlterTableOperation) -> Result<()> {
    use ast::AlterTableOperation as Op;
    match operation {
        Op::AddConstraint { not_valid: true, .. } => Err(Error::unsupported("NOT VALID")),
        Op::AddConstraint { constraint, .. } => add_constraint(context, table, constraint),
        Op::AddColumn { column_def, if_not_exists, .. } => add_column(context, table, column_def, *if_not_exists),
        Op::AlterColumn { column_name, op } => alter_column(context, table, &folded(column_name), op),
        Op::RenameColumn { old_column_name, new_column_name } => {
            let place = column_place(table, &folded(old_column_name))?;
            let new = folded(new_column_name);
            if table.column_index(&new).is_some() {
                let message = format!("column \"{new}\" of relation \"{}\" already exists", table.name);
                return Err(Error::new(SqlState::DUPLICATE_COLUMN, message));
            }
            let checks = renamed_checks(table, &folded(old_column_name), &new)?;
            context.session.alter_table(table, |definition| {
                definition.columns[place].name = new;
                definition.checks = checks;
                Ok(())
            })?;
            view::check_readers(context, table.oid, "renaming a column of a table")
        }
        Op::RenameTable { table_name: ast::RenameTableNameKind::To(name) | ast::RenameTableNameKind::As(name) } => {
            let (_, ident) = split_name(name)?;
            let new = folded(ident);
            context.session.alter_table(table, |definition| {
                definition.name = new;
                Ok(())
            })?;
            view::check_readers(context, table.oid, "renaming a table")
        }
        Op::OwnerTo { .. } => Ok(()),
        Op::DropConstraint { name, if_exists, drop_behavior } => {
            let cascade = *drop_behavior == Some(ast::DropBehavior::Cascade);
            drop::drop_constraint(context, table, &folded(name), *if_exists, cascade)
        }
        other => {
            let text = other.to_string();
            let words: Vec<&str> = text.split_whitespace().take(2).collect();
            Err(Error::unsupported(format!("ALTER TABLE ... {}", words.join(" "))))
        }
    }
}

/// The table's CHECK constraints after a column has got another name.
fn renamed_checks(table: &Table, old: &str, new: &str) -> Result<Vec<CheckConstraint>> {
    let renamed = |check: &CheckConstraint| match checks::renamed(&check.expression, table, old, new) {
        Some(expression) => Ok(CheckConstraint { expression, ..check.clone() }),
        None => Err(Error::unsupported(format!("renaming a column that constraint \"{}\" is about", check.name))),
    };
    table.checks.iter().map(renamed).collect()
}

fn add_constraint(context: &mut Context, table: &Arc<Table>, constraint: &ast::TableConstraint) -> Result<()> {
    let place = |name: &str| {
        table.column_index(name).ok_or_else(|| {
            Error::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" named in key does not exist"))
        })
    };
    match constraint {
        ast::TableConstraint::PrimaryKey { name, columns, .. } => {
            if table.primary_key.is_some() {
                let message = format!("multiple primary keys for table \"{}\" are not allowed", table.name);
                return Err(Error::new(SqlState::INVALID_TABLE_DEFINITION, message));
            }
            let columns = key_places(columns, &place)?;
            context.session.add_primary_key(table, name.as_ref().map(folded), columns)
        }
        ast::TableConstraint::Unique { name, columns, .. } => {
            let columns = key_places(columns, &place)?;
            let spec = IndexSpec { name: name.as_ref().map(folded), columns, unique: true, constraint: true };
            context.session.create_index(table, spec).map(|_| ())
        }
        ast::TableConstraint::ForeignKey { .. } => {
            let Some(wanted) = foreign::Wanted::of_table(constraint) else { return Ok(()) };
            foreign::add(context, table, &wanted).map(|_| ())
        }
        ast::TableConstraint::Check { name, expr, .. } => add_check(context, table, &name.as_ref().map(folded), expr),
        _ => Err(Error::unsupported("this table constraint")),
    }
}

/// Adds a CHECK constraint that all rows of the table satisfy.
fn add_check(context: &mut Context, table: &Arc<Table>, name: &Option<String>, tree: &ast::Expr) -> Result<()> {
    let spec = check_spec(name, tree, &TableScope::of(table))?;
    context.session.lock_table(table)?;
    context.session.add_check(table, spec)?;
    let Some(changed) = context.session.definitions().table_by_oid(table.oid).cloned() else {
        return Err(Error::internal("the altered table is gone"));
    };
    let Some(added) = changed.checks.last() else { return Err(Error::internal("the constraint is gone")) };
    let condition = checks::bind(tree, &TableScope::of(&changed))?;
    let mut scan = context.session.scan(&changed, &homenode_engine::KeyRange::all(), false)?;
    let mut bytes = Vec::new();
    while let Some((_, row)) = scan.next(&mut context.session)? {
        bytes.clear();
        bytes.extend_from_slice(row);
        let row = RawRow { layout: &changed.layout, bytes: &bytes, base: 0, registers: &[] };
        if condition.eval_bool(&row, &[], &mut context.env())? == Some(false) {
            let message =
                format!("check constraint \"{}\" of relation \"{}\" is violated by some row", added.name, changed.name);
            return Err(Error::new(SqlState::CHECK_VIOLATION, message).with_table(&changed.schema, &changed.name));
        }
    }
    Ok(())
}

fn add_column(
    context: &mut Context,
    table: &Arc<Table>,
    definition: &ast::ColumnDef,
    if_not_exists: bool,
) -> Result<()> {
    let name = folded(&definition.name);
    if table.column_index(&name).is_some() {
        let message = format!("column \"{name}\" of relation \"{}\" already exists", table.name);
        if if_not_exists {
            context.notice("NOTICE", SqlState::DUPLICATE_COLUMN, format!("{message}, skipping"));
            return Ok(());
        }
        return Err(Error::new(SqlState::DUPLICATE_COLUMN, message));
    }
    let mut constraints = Constraints::default();
    let place = table.columns.len();
    let spec = column_spec(context, definition, place, &table.name, &mut constraints)?;
    let has_rows = context.session.add_column(table, spec)?;
    let changed = context.session.definitions().table_by_oid(table.oid).cloned();
    let Some(changed) = changed else { return Err(Error::internal("the altered table is gone")) };
    if has_rows {
        fill_column(context, &changed, place)?;
    }
    if let Some((name, columns)) = constraints.primary_key {
        context.session.add_primary_key(&changed, name, columns)?;
    }
    for (name, tree) in constraints.checks {
        add_check(context, &changed, &name, tree)?;
    }
    for (name, columns) in constraints.uniques {
        context.session.create_index(&changed, IndexSpec { name, columns, unique: true, constraint: true })?;
    }
    for wanted in &constraints.foreign {
        foreign::add(context, &changed, wanted)?;
    }
    Ok(())
}

/// Gives the rows of a table the default of a column that is new. Each row is changed as by an UPDATE, so the default may be
/// another for each (a sequence's next value).
fn fill_column(context: &mut Context, table: &Arc<Table>, place: usize) -> Result<()> {
    let column = &table.columns[place];
    if column.default.is_none() && column.sequence.is_none() {
        if column.not_null {
            let message = format!("column \"{}\" of relation \"{}\" contains null values", column.name, table.name);
            return Err(Error::new(SqlState::NOT_NULL_VIOLATION, message));
        }
        return Ok(());
    }
    let relation = format!("{}.{}", quote_name(&table.schema), quote_name(&table.name));
    let text = format!("update {relation} set {} = default", quote_name(&column.name));
    let mut tokens = Vec::new();
    lexer::lex(&text, &mut tokens)?;
    let prepared = Prepared::new(context, &text, &tokens, &[])?;
    match &prepared.compiled {
        Compiled::Update(plan) => write::update(plan, context, &[], &mut |_, _| Ok(())).map(|_| ()),
        _ => Err(Error::internal("an UPDATE became something else")),
    }
}

fn alter_column(
    context: &mut Context,
    table: &Arc<Table>,
    name: &str,
    change: &ast::AlterColumnOperation,
) -> Result<()> {
    let place = table.column_index(name).ok_or_else(|| {
        let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
        Error::new(SqlState::UNDEFINED_COLUMN, message)
    })?;
    let in_key = table.primary_key.as_ref().is_some_and(|key| key.columns.contains(&place));
    match change {
        ast::AlterColumnOperation::SetDefault { value } => {
            let text = checked_default(context, value, table.columns[place].ty)?;
            context.session.alter_table(table, |definition| {
                definition.columns[place].default = Some(text);
                Ok(())
            })
        }
        ast::AlterColumnOperation::DropDefault => context.session.alter_table(table, |definition| {
            definition.columns[place].default = None;
            Ok(())
        }),
        ast::AlterColumnOperation::DropNotNull if in_key => {
            Err(Error::new(SqlState::INVALID_TABLE_DEFINITION, format!("column \"{name}\" is in a primary key")))
        }
        ast::AlterColumnOperation::DropNotNull => context.session.alter_table(table, |definition| {
            definition.columns[place].not_null = false;
            Ok(())
        }),
        ast::AlterColumnOperation::SetNotNull => set_not_null(context, table, place),
        _ => Err(Error::unsupported("ALTER COLUMN of this kind")),
    }
}

fn set_not_null(context: &mut Context, table: &Arc<Table>, place: usize) -> Result<()> {
    // The lock comes first, so that no NULL slips in after the look.
    context.session.lock_table(table)?;
    let mut scan = context.session.scan(table, &homenode_engine::KeyRange::all(), false)?;
    while let Some((_, row)) = scan.next(&mut context.session)? {
        if table.layout.is_null(row, place) {
            let message =
                format!("column \"{}\" of relation \"{}\" contains null values", table.columns[place].name, table.name);
            return Err(Error::new(SqlState::NOT_NULL_VIOLATION, message));
        }
    }
    context.session.alter_table(table, |definition| {
        definition.columns[place].not_null = true;
        Ok(())
    })
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
