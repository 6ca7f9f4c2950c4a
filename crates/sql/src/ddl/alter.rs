//! How does a table change? ALTER TABLE, action by action, and ALTER INDEX, SEQUENCE and VIEW ... RENAME.

use super::{
    Constraints, check_spec, checked_default, column_place, column_spec, foreign, key_places, rewrite, table_named,
    view,
};
use super::{drop, sequence};
use crate::bind::{folded, no_relation, split_name};
use crate::checks::{self, TableScope};
use crate::context::Context;
use crate::exec::RawRow;
use crate::lexer;
use crate::prepared::{Compiled, Prepared};
use crate::run::Tag;
use crate::utility::{IdentityChange, Name, TableAction};
use crate::write;
use homenode_engine::{CheckConstraint, Identity, IndexSpec, Table, Timing, ViewDefinition, quote_name};
use homenode_types::{Error, Result, SqlState};
use sqlparser::ast;
use std::sync::Arc;

/// ALTER TABLE.
pub(crate) fn alter_table(context: &mut Context, name: &Name, if_exists: bool, actions: &[TableAction]) -> Result<Tag> {
    let done = Ok(Tag::Plain("ALTER TABLE"));
    context.session.start_statement();
    if let [TableAction::Library(action)] = actions
        && let ast::AlterTableOperation::RenameTable { table_name } = &**action
        && context
            .stored(name.schema.as_deref(), &name.name)?
            .is_some_and(|oid| context.session.definitions().table_by_oid(oid).is_none())
    {
        // It may be said of views, sequences and indexes, too.
        let (ast::RenameTableNameKind::To(to) | ast::RenameTableNameKind::As(to)) = table_name;
        let to = folded(split_name(to)?.1);
        rename_relation(context, "table", name, if_exists, &to)?;
        return done;
    }
    let mut table = match table_named(context, name) {
        Err(error) if if_exists && error.code == SqlState::UNDEFINED_TABLE => {
            let message = format!("{}, skipping", error.message);
            context.notice("NOTICE", SqlState::SUCCESSFUL_COMPLETION, message);
            return done;
        }
        Err(mut error) => {
            error.position = None;
            return Err(error);
        }
        Ok(table) => table,
    };
    context.check_table_owner(&table)?;
    context.deferred.check_unwatched(table.oid, &table.name, "ALTER TABLE")?;
    for action in actions {
        alter_once(context, &table, action)?;
        // Each action sees the definition as the one before left it.
        let oid = table.oid;
        if let Some(changed) = context.session.definitions().table_by_oid(oid).cloned() {
            table = changed;
        }
    }
    context.session.end_statement();
    done
}

fn alter_once(context: &mut Context, table: &Arc<Table>, action: &TableAction) -> Result<()> {
    match action {
        TableAction::Library(operation) => alter_by_library(context, table, operation),
        TableAction::Identity { column, change } => {
            let place = place_of(table, column)?;
            alter_identity(context, table, place, change)
        }
        TableAction::DropExpression { column, if_exists } => drop_expression(context, table, column, *if_exists),
        TableAction::Validate(name) => validate(context, table, name),
        TableAction::Timing { name, deferrable, deferred } => set_timing(context, table, name, *deferrable, *deferred),
        TableAction::Owner(to) => crate::roles::give_table(context, table.oid, to),
        TableAction::ClusterOn(name) => {
            let mut names = table.indexes.iter().map(|index| &index.name);
            match table.primary_key.as_ref().is_some_and(|key| key.name == *name) || names.any(|known| known == name) {
                true => Ok(()),
                false => {
                    let message = format!("index \"{name}\" for table \"{}\" does not exist", table.name);
                    Err(Error::new(SqlState::UNDEFINED_OBJECT, message))
                }
            }
        }
        TableAction::Nothing => Ok(()),
    }
}

fn alter_by_library(context: &mut Context, table: &Arc<Table>, operation: &ast::AlterTableOperation) -> Result<()> {
    use ast::AlterTableOperation as Op;
    match operation {
        Op::AddConstraint { constraint, not_valid } => add_constraint(context, table, constraint, *not_valid),
        Op::AddColumn { column_def, if_not_exists, .. } => add_column(context, table, column_def, *if_not_exists),
        Op::AlterColumn { column_name, op } => alter_column(context, table, &folded(column_name), op),
        Op::RenameColumn { old_column_name, new_column_name } => {
            rename_column(context, table, &folded(old_column_name), folded(new_column_name))
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
        Op::DropColumn { column_names, if_exists, drop_behavior, .. } => {
            let cascade = *drop_behavior == Some(ast::DropBehavior::Cascade);
            column_names
                .iter()
                .try_for_each(|name| rewrite::drop_column(context, table, &folded(name), *if_exists, cascade))
        }
        Op::DropConstraint { name, if_exists, drop_behavior } => {
            let cascade = *drop_behavior == Some(ast::DropBehavior::Cascade);
            drop::drop_constraint(context, table, &folded(name), *if_exists, cascade)
        }
        Op::RenameConstraint { old_name, new_name } => {
            let name = folded(old_name);
            let oid = table.constraint(&name).ok_or_else(|| {
                let message = format!("constraint \"{name}\" for table \"{}\" does not exist", table.name);
                Error::new(SqlState::UNDEFINED_OBJECT, message)
            })?;
            context.session.rename_in_table(table, oid, &folded(new_name))
        }
        other => {
            let text = other.to_string();
            let words: Vec<&str> = text.split_whitespace().take(2).collect();
            Err(Error::unsupported(format!("ALTER TABLE ... {}", words.join(" "))))
        }
    }
}

fn rename_column(context: &mut Context, table: &Arc<Table>, old: &str, new: String) -> Result<()> {
    let place = column_place(table, old)?;
    if table.column_index(&new).is_some() {
        let message = format!("column \"{new}\" of relation \"{}\" already exists", table.name);
        return Err(Error::new(SqlState::DUPLICATE_COLUMN, message));
    }
    let checks = renamed_checks(table, old, &new)?;
    let mut generated = Vec::with_capacity(table.columns.len());
    for column in &table.columns {
        let renamed = column.generated.as_ref().map(|text| checks::renamed_value(text, table, old, &new));
        if renamed == Some(None) {
            let message = format!("renaming a column that column \"{}\" is generated from", column.name);
            return Err(Error::unsupported(message));
        }
        generated.push(renamed.flatten());
    }
    context.session.alter_table(table, |definition| {
        definition.columns[place].name = new;
        definition.checks = checks;
        for (column, text) in definition.columns.iter_mut().zip(generated) {
            if let (true, Some(before), Some(text)) = (column.is_hidden, &column.generated, &text) {
                // It is called what it says, for messages.
                column.name = column.name.replace(before, text);
            }
            column.generated = text;
        }
        Ok(())
    })?;
    view::check_readers(context, table.oid, "renaming a column of a table")
}

fn place_of(table: &Table, name: &str) -> Result<usize> {
    table.column_index(name).ok_or_else(|| {
        let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
        Error::new(SqlState::UNDEFINED_COLUMN, message)
    })
}

fn no_identity(table: &Table, place: usize) -> Error {
    let name = &table.columns[place].name;
    let message = format!("column \"{name}\" of relation \"{}\" is not an identity column", table.name);
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
}

fn alter_identity(context: &mut Context, table: &Arc<Table>, place: usize, change: &IdentityChange) -> Result<()> {
    let column = &table.columns[place];
    let kind = |always| if always { Identity::Always } else { Identity::ByDefault };
    let refused = |what: &str| {
        let message = format!("column \"{}\" of relation \"{}\" {what}", column.name, table.name);
        Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message))
    };
    match change {
        IdentityChange::Add { .. } if !column.ty.ty.is_integer() => {
            let message = "identity column type must be smallint, integer, or bigint";
            Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message))
        }
        IdentityChange::Add { .. } if column.identity.is_some() => refused("is already an identity column"),
        IdentityChange::Add { .. } if column.default.is_some() => refused("already has a default value"),
        IdentityChange::Add { .. } if !column.not_null => {
            refused("must be declared NOT NULL before identity can be added")
        }
        IdentityChange::Add { always, name, options } => {
            let mut spec = sequence::spec(options, column.ty.ty)?;
            if let Some(name) = name {
                spec.schema = name.schema.clone().unwrap_or_else(|| table.schema.clone());
                spec.name.clone_from(&name.name);
            }
            context.session.set_identity(table, place, Some(kind(*always)), Some(spec))
        }
        IdentityChange::Set { always, options } => {
            let (Some(_), Some(oid)) = (column.identity, column.sequence) else {
                return Err(no_identity(table, place));
            };
            if let Some(always) = always {
                context.session.set_identity(table, place, Some(kind(*always)), None)?;
            }
            sequence::change(context, oid, options)
        }
        IdentityChange::Drop { if_exists } => match column.identity {
            Some(_) => context.session.set_identity(table, place, None, None),
            None if *if_exists => {
                let message = format!("{}, skipping", no_identity(table, place).message);
                context.notice("NOTICE", SqlState::SUCCESSFUL_COMPLETION, message);
                Ok(())
            }
            None => Err(no_identity(table, place)),
        },
    }
}

fn drop_expression(context: &mut Context, table: &Arc<Table>, column: &str, if_exists: bool) -> Result<()> {
    let place = place_of(table, column)?;
    if table.columns[place].generated.is_none() {
        let message = format!("column \"{column}\" of relation \"{}\" is not a stored generated column", table.name);
        if if_exists {
            context.notice("NOTICE", SqlState::SUCCESSFUL_COMPLETION, format!("{message}, skipping"));
            return Ok(());
        }
        return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
    }
    context.session.alter_table(table, |definition| {
        definition.columns[place].generated = None;
        Ok(())
    })
}

/// ALTER CONSTRAINT: what is not said is not so.
fn set_timing(
    context: &mut Context,
    table: &Arc<Table>,
    name: &str,
    deferrable: Option<bool>,
    deferred: Option<bool>,
) -> Result<()> {
    let timing = match (deferrable, deferred.unwrap_or(false)) {
        (Some(false), true) => {
            let message = "constraint declared INITIALLY DEFERRED must be DEFERRABLE";
            return Err(Error::new(SqlState::SYNTAX_ERROR, message));
        }
        (_, true) => Timing::Deferred,
        (Some(true), false) => Timing::Deferrable,
        _ => Timing::Immediate,
    };
    if !table.foreign_keys.iter().any(|key| key.name == name) {
        let relation = &table.name;
        let (message, code) = match table.constraint(name) {
            Some(_) => (
                format!("constraint \"{name}\" of relation \"{relation}\" is not a foreign key constraint"),
                SqlState::WRONG_OBJECT_TYPE,
            ),
            None => {
                (format!("constraint \"{name}\" of relation \"{relation}\" does not exist"), SqlState::UNDEFINED_OBJECT)
            }
        };
        return Err(Error::new(code, message));
    }
    context.session.alter_table(table, |definition| {
        definition.foreign_keys.iter_mut().filter(|key| key.name == name).for_each(|key| key.timing = timing);
        Ok(())
    })
}

/// VALIDATE CONSTRAINT.
fn validate(context: &mut Context, table: &Arc<Table>, name: &str) -> Result<()> {
    context.session.lock_table(table)?;
    if let Some(key) = table.foreign_keys.iter().find(|key| key.name == name) {
        if key.not_valid {
            crate::foreign::validate(context, table, key)?;
        }
        return context.session.alter_table(table, |definition| {
            definition.foreign_keys.iter_mut().filter(|key| key.name == name).for_each(|key| key.not_valid = false);
            Ok(())
        });
    }
    if let Some(check) = table.checks.iter().find(|check| check.name == name) {
        if check.not_valid {
            look_at_rows(context, table, check)?;
        }
        return context.session.alter_table(table, |definition| {
            definition.checks.iter_mut().filter(|check| check.name == name).for_each(|check| check.not_valid = false);
            Ok(())
        });
    }
    let (message, code) = match table.constraint(name) {
        Some(_) => (
            format!("constraint \"{name}\" of relation \"{}\" is not a foreign key or check constraint", table.name),
            SqlState::WRONG_OBJECT_TYPE,
        ),
        None => {
            (format!("constraint \"{name}\" of relation \"{}\" does not exist", table.name), SqlState::UNDEFINED_OBJECT)
        }
    };
    Err(Error::new(code, message))
}

/// ALTER INDEX, SEQUENCE, VIEW (and TABLE, said of one of them) ... RENAME TO.
pub(crate) fn rename_relation(
    context: &mut Context,
    kind: &'static str,
    name: &Name,
    if_exists: bool,
    to: &str,
) -> Result<Tag> {
    let tag = Tag::Plain(match kind {
        "index" => "ALTER INDEX",
        "view" => "ALTER VIEW",
        "sequence" => "ALTER SEQUENCE",
        _ => "ALTER TABLE",
    });
    context.session.start_statement();
    let Some(oid) = context.stored(name.schema.as_deref(), &name.name)? else {
        if !if_exists {
            return Err(no_relation(name.schema.as_deref(), &name.name));
        }
        let message = format!("relation \"{}\" does not exist, skipping", name.name);
        context.notice("NOTICE", SqlState::SUCCESSFUL_COMPLETION, message);
        return Ok(tag);
    };
    if kind != "table" {
        super::check_kind(context, oid, kind, &name.name)?;
    }
    let definitions = context.definitions();
    if let Some(table) = definitions.table_of_index(oid) {
        context.check_table_owner(table)?;
        if name.name != to {
            context.session.rename_in_table(table, oid, to)?;
        }
    } else {
        context.check_owner(oid)?;
        if let Some(view) = definitions.view_by_oid(oid) {
            context.session.put_view(ViewDefinition { name: to.to_owned(), ..(**view).clone() })?;
            view::check_readers(context, oid, "renaming a view")?;
        } else {
            context.session.alter_sequence(oid, |sequence| {
                sequence.name = to.to_owned();
                Ok(())
            })?;
        }
    }
    context.session.end_statement();
    Ok(tag)
}

/// The table's CHECK constraints after a column has got another name.
fn renamed_checks(table: &Table, old: &str, new: &str) -> Result<Vec<CheckConstraint>> {
    let renamed = |check: &CheckConstraint| match checks::renamed(&check.expression, table, old, new) {
        Some(expression) => Ok(CheckConstraint { expression, ..check.clone() }),
        None => Err(Error::unsupported(format!("renaming a column that constraint \"{}\" is about", check.name))),
    };
    table.checks.iter().map(renamed).collect()
}

fn add_constraint(
    context: &mut Context,
    table: &Arc<Table>,
    constraint: &ast::TableConstraint,
    not_valid: bool,
) -> Result<()> {
    let place = |name: &str| {
        table.column_index(name).ok_or_else(|| {
            Error::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" named in key does not exist"))
        })
    };
    if not_valid && matches!(constraint, ast::TableConstraint::PrimaryKey { .. } | ast::TableConstraint::Unique { .. })
    {
        let kind = if matches!(constraint, ast::TableConstraint::Unique { .. }) { "UNIQUE" } else { "PRIMARY KEY" };
        return Err(Error::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            format!("{kind} constraints cannot be marked NOT VALID"),
        ));
    }
    match constraint {
        ast::TableConstraint::PrimaryKey { characteristics: timing @ Some(_), .. }
        | ast::TableConstraint::Unique { characteristics: timing @ Some(_), .. }
            if foreign::timing(*timing)? != Timing::Immediate =>
        {
            foreign::refuse_deferrable(*timing)
        }
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
            foreign::add(context, table, &wanted, not_valid).map(|_| ())
        }
        ast::TableConstraint::Check { name, expr, .. } => {
            add_check(context, table, &name.as_ref().map(folded), expr, not_valid)
        }
        _ => Err(Error::unsupported("this table constraint")),
    }
}

/// Adds a CHECK constraint; all rows of the table satisfy it, unless it is not to be valid.
fn add_check(
    context: &mut Context,
    table: &Arc<Table>,
    name: &Option<String>,
    tree: &ast::Expr,
    not_valid: bool,
) -> Result<()> {
    let spec = check_spec(name, tree, &TableScope::of(table))?;
    context.session.lock_table(table)?;
    context.session.add_check(table, spec)?;
    let Some(changed) = context.session.definitions().table_by_oid(table.oid).cloned() else {
        return Err(Error::internal("the altered table is gone"));
    };
    let Some(added) = changed.checks.last() else { return Err(Error::internal("the constraint is gone")) };
    if !not_valid {
        return look_at_rows(context, &changed, added);
    }
    context.session.alter_table(&changed, |definition| {
        definition.checks.iter_mut().filter(|check| check.oid == added.oid).for_each(|check| check.not_valid = true);
        Ok(())
    })
}

/// Checks that all rows of a table that is locked satisfy a CHECK constraint.
fn look_at_rows(context: &mut Context, table: &Arc<Table>, check: &CheckConstraint) -> Result<()> {
    let condition = checks::bind(&crate::parse::expression(&check.expression)?, &TableScope::of(table))?;
    let mut scan = context.session.scan_newest(table)?;
    let mut bytes = Vec::new();
    while let Some((_, row)) = scan.next(&mut context.session)? {
        bytes.clear();
        bytes.extend_from_slice(row);
        let row = RawRow { layout: &table.layout, bytes: &bytes, base: 0, registers: &[] };
        if condition.eval_bool(&row, &[], &mut context.env())? == Some(false) {
            let message =
                format!("check constraint \"{}\" of relation \"{}\" is violated by some row", check.name, table.name);
            return Err(Error::new(SqlState::CHECK_VIOLATION, message).with_table(&table.schema, &table.name));
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
    let current = |context: &mut Context| {
        let found = context.session.definitions().table_by_oid(table.oid).cloned();
        found.ok_or_else(|| Error::internal("the altered table is gone"))
    };
    let mut changed = current(context)?;
    if let Some((_, tree)) = constraints.generated.first() {
        let text = super::generated(&changed, place, tree)?;
        rewrite::rows(context, &changed, |definition| definition.columns[place].generated = Some(text))?;
        changed = current(context)?;
    } else {
        for (place, options) in &constraints.numbers {
            sequence::change_numbers(context, &changed, *place, options)?;
        }
        if has_rows {
            fill_column(context, &changed, place)?;
        }
    }
    if let Some((name, columns)) = constraints.primary_key {
        context.session.add_primary_key(&changed, name, columns)?;
    }
    for (name, tree) in constraints.checks {
        add_check(context, &changed, &name, tree, false)?;
    }
    for (name, columns) in constraints.uniques {
        context.session.create_index(&changed, IndexSpec { name, columns, unique: true, constraint: true })?;
    }
    for wanted in &constraints.foreign {
        foreign::add(context, &changed, wanted, false)?;
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
        ast::AlterColumnOperation::SetDefault { .. } | ast::AlterColumnOperation::DropDefault
            if table.columns[place].identity.is_some() || table.columns[place].generated.is_some() =>
        {
            let is = if table.columns[place].identity.is_some() { "an identity" } else { "a generated" };
            let message = format!("column \"{name}\" of relation \"{}\" is {is} column", table.name);
            Err(Error::new(SqlState::SYNTAX_ERROR, message))
        }
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
        ast::AlterColumnOperation::DropNotNull if table.columns[place].identity.is_some() => {
            let message = format!("column \"{name}\" of relation \"{}\" is an identity column", table.name);
            Err(Error::new(SqlState::SYNTAX_ERROR, message))
        }
        ast::AlterColumnOperation::DropNotNull => context.session.alter_table(table, |definition| {
            definition.columns[place].not_null = false;
            Ok(())
        }),
        ast::AlterColumnOperation::SetNotNull => set_not_null(context, table, place),
        ast::AlterColumnOperation::SetDataType { data_type, using, .. } => {
            rewrite::change_type(context, table, place, data_type, using.as_ref())
        }
        ast::AlterColumnOperation::AddGenerated { .. } => Err(Error::unsupported("ALTER COLUMN of this kind")),
    }
}

fn set_not_null(context: &mut Context, table: &Arc<Table>, place: usize) -> Result<()> {
    // The lock comes first, so that no NULL slips in after the look.
    context.session.lock_table(table)?;
    let mut scan = context.session.scan_newest(table)?;
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
