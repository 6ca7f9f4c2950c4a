//! What goes when something is dropped or emptied? DROP, TRUNCATE, and what stands in their way.

use crate::bind::Need;
use crate::context::Context;
use crate::run::Tag;
use crate::utility::{Name, ObjectKind};
use homenode_engine::{ForeignKey, Privileges, SequenceDefinition, Table, ViewDefinition};
use homenode_types::{Error, Result, SqlState};
use std::sync::Arc;

pub(super) fn drop_constraint(
    context: &mut Context,
    table: &Arc<Table>,
    name: &str,
    if_exists: bool,
    cascade: bool,
) -> Result<()> {
    if let Some(index) = table.indexes.iter().find(|index| index.constraint && index.name == name) {
        let what = format!("constraint {name} on table {}", context.shown(&table.schema, &table.name));
        free_key(context, table, index.oid, &what, &index.name, cascade)?;
        return context.session.drop_index(index.oid);
    }
    if let Some(key) = table.foreign_keys.iter().find(|key| key.name == name) {
        return context.session.drop_foreign_key(table, key.oid);
    }
    if table.checks.iter().any(|check| check.name == name) {
        return context.session.alter_table(table, |definition| {
            definition.checks.retain(|check| check.name != name);
            Ok(())
        });
    }
    if table.primary_key.as_ref().is_some_and(|key| key.name == name) {
        let table = locked(context, table)?;
        let Some(key) = &table.primary_key else { return Ok(()) };
        let what = format!("constraint {name} on table {}", context.shown(&table.schema, &table.name));
        free_key(context, &table, key.oid, &what, &key.name, cascade)?;
        context.session.forget_key_comments(key.oid)?;
        return super::rewrite::drop_primary_key(context, &table);
    }
    let message = format!("constraint \"{name}\" of relation \"{}\" does not exist", table.name);
    if if_exists {
        context.notice("NOTICE", SqlState::SUCCESSFUL_COMPLETION, format!("{message}, skipping"));
        return Ok(());
    }
    Err(Error::new(SqlState::UNDEFINED_OBJECT, message))
}

/// The foreign keys that refer to a table, or to its key number `key`, with their tables.
pub(super) fn references(context: &mut Context, table: &Table, key: Option<u32>) -> Vec<(Arc<Table>, ForeignKey)> {
    let definitions = context.definitions();
    let mut found = Vec::new();
    for child in table.referrers.iter().filter_map(|&oid| definitions.table_by_oid(oid)) {
        let keys = child.foreign_keys.iter().filter(|other| other.parent == table.oid);
        let keys = keys.filter(|other| key.is_none_or(|key| other.key == key));
        found.extend(keys.map(|key| (child.clone(), key.clone())));
    }
    found.sort_by_key(|(_, key)| key.oid);
    found
}

/// Something that depends on what is dropped.
pub(super) enum Dependent {
    Key(Arc<Table>, ForeignKey),
    View(Arc<ViewDefinition>),
    Table(Arc<Table>),
    /// A generated column.
    Column(Arc<Table>, usize),
    Sequence(Arc<SequenceDefinition>),
}

impl Dependent {
    fn shown(&self, context: &mut Context) -> String {
        match self {
            Dependent::Key(child, key) => {
                format!("constraint {} on table {}", key.name, context.shown(&child.schema, &child.name))
            }
            Dependent::View(view) => format!("view {}", context.shown(&view.schema, &view.name)),
            Dependent::Table(table) => format!("table {}", context.shown(&table.schema, &table.name)),
            Dependent::Column(table, place) => {
                let column = &table.columns[*place].name;
                format!("column {column} of table {}", context.shown(&table.schema, &table.name))
            }
            Dependent::Sequence(one) => format!("sequence {}", context.shown(&one.schema, &one.name)),
        }
    }
}

/// Adds the foreign keys of tables not among `all` that refer to `table`, which is called `what`.
pub(super) fn add_references(
    context: &mut Context,
    table: &Table,
    all: &[u32],
    what: &str,
    found: &mut Vec<(Dependent, String)>,
) {
    let keys = references(context, table, None).into_iter().filter(|(child, _)| !all.contains(&child.oid));
    found.extend(keys.map(|(child, key)| (Dependent::Key(child, key), what.to_owned())));
}

/// Adds the views that read `oid` by themselves or by other views, with what each of them reads, except those that are dropped anyway;
/// `name` is what `oid` is called.
pub(super) fn add_readers(
    context: &mut Context,
    oid: u32,
    name: &str,
    dropped: &[u32],
    found: &mut Vec<(Dependent, String)>,
) {
    let views = context.definitions().views();
    let mut open = vec![(oid, name.to_string())];
    while let Some((oid, name)) = open.pop() {
        for view in views.iter().filter(|view| view.depends.contains(&oid) && !dropped.contains(&view.oid)) {
            let known = |one: &Dependent| matches!(one, Dependent::View(known) if known.oid == view.oid);
            if !found.iter().any(|(one, _)| known(one)) {
                found.push((Dependent::View(view.clone()), name.clone()));
                open.push((view.oid, format!("view {}", context.shown(&view.schema, &view.name))));
            }
        }
    }
}

/// What a refusal names: the one object, or several at once.
pub(super) fn several_or(one: Option<String>, count: usize) -> String {
    one.filter(|_| count == 1).unwrap_or_else(|| "desired object(s)".to_string())
}

/// Drops what depends on `what`, if that was asked for; 2BP01 if not. With each comes what it depends on.
pub(super) fn drop_dependents(
    context: &mut Context,
    found: &[(Dependent, String)],
    what: String,
    cascade: bool,
) -> Result<()> {
    if found.is_empty() {
        return Ok(());
    }
    if !cascade {
        let line = |(one, on): &(Dependent, String)| format!("{} depends on {on}", one.shown(context));
        let lines: Vec<String> = found.iter().map(line).collect();
        let them = if what == "desired object(s)" { "them" } else { "it" };
        let message = format!("cannot drop {what} because other objects depend on {them}");
        return Err(Error::new(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, message)
            .with_detail(lines.join("\n"))
            .with_hint("Use DROP ... CASCADE to drop the dependent objects too."));
    }
    let message = match found {
        [(one, _)] => format!("drop cascades to {}", one.shown(context)),
        several => format!("drop cascades to {} other objects", several.len()),
    };
    context.notice("NOTICE", SqlState::SUCCESSFUL_COMPLETION, message);
    // Foreign keys and views first: tables that are dropped stand in each other's way no more then.
    let mut tables = Vec::new();
    for (one, _) in found {
        match one {
            Dependent::Key(child, key) => context.session.drop_foreign_key(child, key.oid)?,
            Dependent::View(view) => context.session.drop_view(view.oid)?,
            Dependent::Sequence(sequence) => context.session.drop_sequence(sequence.oid)?,
            Dependent::Column(table, place) => context.session.drop_column(table, *place)?,
            Dependent::Table(table) => tables.push(table),
        }
    }
    for table in &tables {
        for (child, key) in references(context, table, None) {
            if child.oid != table.oid {
                context.session.drop_foreign_key(&child, key.oid)?;
            }
        }
    }
    tables.into_iter().try_for_each(|table| context.session.drop_table(table))
}

/// Locks a table against all others, and gives its definition as it is then: nothing comes to refer to it any more.
pub(super) fn locked(context: &mut Context, table: &Arc<Table>) -> Result<Arc<Table>> {
    context.session.lock_table(table)?;
    Ok(context.session.definitions().table_by_oid(table.oid).cloned().unwrap_or_else(|| table.clone()))
}

/// Sees to it that nothing refers to the key number `key` of a table any more.
fn free_key(context: &mut Context, table: &Arc<Table>, key: u32, what: &str, index: &str, cascade: bool) -> Result<()> {
    let table = locked(context, table)?;
    let found = references(context, &table, Some(key)).into_iter();
    let found: Vec<_> = found.map(|(child, key)| (Dependent::Key(child, key), format!("index {index}"))).collect();
    drop_dependents(context, &found, what.to_string(), cascade)
}

/// DROP TABLE, INDEX, SEQUENCE.
pub(crate) fn drop_objects(
    context: &mut Context,
    kind: ObjectKind,
    names: &[Name],
    if_exists: bool,
    cascade: bool,
) -> Result<Tag> {
    if kind == ObjectKind::Table {
        drop_tables(context, names, if_exists, cascade)?;
        return Ok(Tag::Plain("DROP TABLE"));
    }
    if kind == ObjectKind::View {
        drop_views(context, names, if_exists, cascade)?;
        return Ok(Tag::Plain("DROP VIEW"));
    }
    for name in names {
        let found = context.stored(name.schema.as_deref(), &name.name)?;
        let dropped = match kind {
            ObjectKind::Sequence => {
                let definitions = context.definitions();
                let found = found.and_then(|oid| definitions.sequence_by_oid(oid));
                match found.map(|sequence| (sequence.oid, sequence.owner)) {
                    Some((_, Some(_))) => return Err(in_use(&name.name)),
                    Some((oid, None)) => {
                        context.check_owner(oid)?;
                        context.session.drop_sequence(oid).map(|()| true)?
                    }
                    None => false,
                }
            }
            _ => drop_index(context, found, cascade)?,
        };
        if !dropped {
            missing(context, kind, name, if_exists)?;
        }
    }
    Ok(Tag::Plain(if kind == ObjectKind::Index { "DROP INDEX" } else { "DROP SEQUENCE" }))
}

fn drop_tables(context: &mut Context, names: &[Name], if_exists: bool, cascade: bool) -> Result<()> {
    let mut tables: Vec<Arc<Table>> = Vec::with_capacity(names.len());
    for name in names {
        let found = context.stored(name.schema.as_deref(), &name.name)?;
        match found.and_then(|oid| context.session.definitions().table_by_oid(oid).cloned()) {
            Some(table) if tables.iter().any(|known| known.oid == table.oid) => {}
            Some(table) => {
                context.check_table_owner(&table)?;
                context.deferred.check_unwatched(table.oid, &table.name, "DROP TABLE")?;
                tables.push(locked(context, &table)?);
            }
            None => missing(context, ObjectKind::Table, name, if_exists)?,
        }
    }
    // Tables that are dropped together don't stand in each other's way.
    let all: Vec<u32> = tables.iter().map(|table| table.oid).collect();
    let mut dependents: Vec<(Dependent, String)> = Vec::new();
    for table in &tables {
        let found = references(context, table, None);
        let inside = found.into_iter().filter(|(child, _)| child.oid != table.oid && all.contains(&child.oid));
        for (child, key) in inside {
            context.session.drop_foreign_key(&child, key.oid)?;
        }
        let what = format!("table {}", context.shown(&table.schema, &table.name));
        add_references(context, table, &all, &what, &mut dependents);
        add_readers(context, table.oid, &what, &[], &mut dependents);
    }
    let what = tables.first().map(|table| format!("table {}", context.shown(&table.schema, &table.name)));
    drop_dependents(context, &dependents, several_or(what, tables.len()), cascade)?;
    tables.iter().try_for_each(|table| context.session.drop_table(table))
}

fn drop_views(context: &mut Context, names: &[Name], if_exists: bool, cascade: bool) -> Result<()> {
    context.session.lock_definitions()?;
    let mut views: Vec<Arc<ViewDefinition>> = Vec::with_capacity(names.len());
    for name in names {
        let found = context.stored(name.schema.as_deref(), &name.name)?;
        match found.and_then(|oid| context.session.definitions().view_by_oid(oid).cloned()) {
            Some(view) if views.iter().any(|known| known.oid == view.oid) => {}
            Some(view) => {
                context.check_owner(view.oid)?;
                views.push(view);
            }
            None => missing(context, ObjectKind::View, name, if_exists)?,
        }
    }
    let all: Vec<u32> = views.iter().map(|view| view.oid).collect();
    let mut dependents = Vec::new();
    for view in &views {
        let what = format!("view {}", context.shown(&view.schema, &view.name));
        add_readers(context, view.oid, &what, &all, &mut dependents);
    }
    let what = views.first().map(|view| format!("view {}", context.shown(&view.schema, &view.name)));
    drop_dependents(context, &dependents, several_or(what, views.len()), cascade)?;
    views.iter().try_for_each(|view| context.session.drop_view(view.oid))
}

/// TRUNCATE.
pub(crate) fn truncate(
    context: &mut Context,
    mut tables: Vec<Arc<Table>>,
    restart_identity: bool,
    cascade: bool,
) -> Result<()> {
    let mut next = 0;
    while let Some(table) = tables.get(next).cloned() {
        next += 1;
        context.check_access(&[Need::own(table.oid, Privileges::TRUNCATE)])?;
        context.deferred.check_unwatched(table.oid, &table.name, "TRUNCATE")?;
        let table = locked(context, &table)?;
        for (child, _) in references(context, &table, None) {
            if tables.iter().any(|known| known.oid == child.oid) {
                continue;
            }
            if !cascade {
                let message = "cannot truncate a table referenced in a foreign key constraint";
                return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                    .with_detail(format!("Table \"{}\" references \"{}\".", child.name, table.name))
                    .with_hint(format!(
                        "Truncate table \"{}\" at the same time, or use TRUNCATE ... CASCADE.",
                        child.name
                    )));
            }
            let message = format!("truncate cascades to table \"{}\"", child.name);
            context.notice("NOTICE", SqlState::SUCCESSFUL_COMPLETION, message);
            tables.push(child);
        }
    }
    context.session.truncate(&tables, restart_identity)
}

fn in_use(name: &str) -> Error {
    let message = format!("cannot drop sequence {name} because other objects depend on it");
    Error::new(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, message).with_hint("Drop the table or column that owns it.")
}

fn drop_index(context: &mut Context, oid: Option<u32>, cascade: bool) -> Result<bool> {
    let definitions = context.definitions();
    let Some(oid) = oid else { return Ok(false) };
    if let Some(table) = definitions.table_of_index(oid).cloned() {
        if let Some(index) = table.indexes.iter().find(|index| index.oid == oid) {
            let name = &index.name;
            if index.constraint {
                return Err(needed_by_constraint(name, &table.name));
            }
            context.check_table_owner(&table)?;
            free_key(context, &table, index.oid, &format!("index {name}"), name, cascade)?;
            drop_index_of(context, &table, index.oid)?;
            return Ok(true);
        }
        if let Some(key) = &table.primary_key {
            return Err(needed_by_constraint(&key.name, &table.name));
        }
    }
    Ok(false)
}

/// Drops an index, and the hidden columns that are there for it alone.
pub(super) fn drop_index_of(context: &mut Context, table: &Arc<Table>, oid: u32) -> Result<()> {
    let Some(index) = table.indexes.iter().find(|index| index.oid == oid) else { return Ok(()) };
    context.session.drop_index(oid)?;
    for &column in index.columns.iter().chain(&index.filter).filter(|&&column| table.columns[column].is_hidden) {
        let still = context.session.definitions().table_by_oid(table.oid).cloned();
        let uses =
            |other: &Arc<homenode_engine::Index>| other.columns.contains(&column) || other.filter == Some(column);
        if let Some(still) = still
            && !still.indexes.iter().any(uses)
            && !still.columns[column].is_dropped
        {
            context.session.drop_column(&still, column)?;
        }
    }
    Ok(())
}

fn needed_by_constraint(name: &str, table: &str) -> Error {
    let message = format!("cannot drop index {name} because constraint {name} on table {table} requires it");
    Error::new(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, message)
        .with_hint(format!("You can drop constraint {name} on table {table} instead."))
}

fn missing(context: &mut Context, kind: ObjectKind, name: &Name, if_exists: bool) -> Result<()> {
    if let Some(schema) = name.schema.as_deref()
        && context.definitions().schema(schema).is_none()
    {
        let error = crate::search_path::no_schema(schema);
        if !if_exists {
            return Err(error);
        }
        context.notice("NOTICE", SqlState::SUCCESSFUL_COMPLETION, format!("{}, skipping", error.message));
        return Ok(());
    }
    let found = context.stored(name.schema.as_deref(), &name.name)?;
    let definitions = context.definitions();
    let is_table = found.is_some_and(|oid| definitions.table_by_oid(oid).is_some());
    let is_view = found.is_some_and(|oid| definitions.view_by_oid(oid).is_some());
    if is_view || (is_table && kind == ObjectKind::View) {
        let (wanted, article) = match kind {
            ObjectKind::Table => ("table", "a"),
            ObjectKind::Index => ("index", "an"),
            ObjectKind::Sequence => ("sequence", "a"),
            ObjectKind::View => ("view", "a"),
        };
        let is = if is_view { "view" } else { "table" };
        let message = format!("\"{}\" is not {article} {wanted}", name.name);
        return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message)
            .with_hint(format!("Use DROP {} to remove a {is}.", is.to_ascii_uppercase())));
    }
    let (word, code) = match kind {
        ObjectKind::View => ("view", SqlState::UNDEFINED_TABLE),
        ObjectKind::Table => ("table", SqlState::UNDEFINED_TABLE),
        ObjectKind::Index => ("index", SqlState::UNDEFINED_OBJECT),
        ObjectKind::Sequence => ("sequence", SqlState::UNDEFINED_TABLE),
    };
    let message = format!("{word} \"{}\" does not exist", name.name);
    if !if_exists {
        return Err(Error::new(code, message));
    }
    context.notice("NOTICE", SqlState::SUCCESSFUL_COMPLETION, format!("{message}, skipping"));
    Ok(())
}
