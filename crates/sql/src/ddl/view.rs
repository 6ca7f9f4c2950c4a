//! How are views defined? CREATE VIEW, to the text of a query and the names and types of its columns.

use super::schema_and_name;
use crate::bind::{Binder, folded};
use crate::context::Context;
use crate::expr::Params;
use crate::run::Tag;
use homenode_engine::{Definitions, ViewDefinition};
use homenode_types::{Error, Result, SqlState};
use sqlparser::ast;

/// Runs CREATE [OR REPLACE] VIEW.
pub(super) fn create(context: &mut Context, tree: &ast::Statement) -> Result<Tag> {
    let ast::Statement::CreateView {
        or_replace,
        materialized,
        name,
        columns,
        query,
        options,
        if_not_exists,
        temporary,
        to,
        params,
        ..
    } = tree
    else {
        return Err(Error::internal("not a view"));
    };
    let refused = [
        (*materialized, "CREATE MATERIALIZED VIEW"),
        (*temporary, "temporary views"),
        (!matches!(options, ast::CreateTableOptions::None), "options of a view"),
        (to.is_some() || params.is_some(), "this form of CREATE VIEW"),
    ];
    if let Some((_, what)) = refused.iter().find(|(present, _)| *present) {
        return Err(Error::unsupported(what));
    }
    if *if_not_exists {
        return Err(Error::new(SqlState::SYNTAX_ERROR, "syntax error at or near \"NOT\""));
    }
    let (schema, name) = schema_and_name(context, name)?;
    // First, so that what the query names stays what it is.
    context.session.lock_definitions()?;
    let definitions = context.definitions();
    let existing = definitions.view(&schema, &name).cloned();
    if definitions.oid(&schema, &name).is_some() && (existing.is_none() || !or_replace) {
        if *or_replace {
            return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a view")));
        }
        return Err(Error::new(SqlState::DUPLICATE_TABLE, format!("relation \"{name}\" already exists")));
    }
    if let Some(view) = &existing {
        context.check_owner(view.oid)?;
    }
    let binder = Binder::new(&definitions, context.search_path());
    let mut params = Params::new(Vec::new());
    let (plan, _) = binder.query(query, None, &mut params, false)?;
    if !params.types.is_empty() {
        return Err(Error::new(SqlState::UNDEFINED_PARAMETER, "there is no parameter $1"));
    }
    let mut depends = binder.names.take();
    depends.sort_unstable();
    depends.dedup();
    check_names(&definitions, &depends)?;
    let sources: Vec<String> = plan.fields.iter().map(|field| field.name.clone()).collect();
    let mut shown: Vec<_> = plan.fields.iter().map(|field| (field.name.clone(), field.ty)).collect();
    if columns.len() > shown.len() {
        return Err(Error::new(SqlState::SYNTAX_ERROR, "CREATE VIEW specifies more column names than columns"));
    }
    for ((shown, _), given) in shown.iter_mut().zip(columns) {
        *shown = folded(&given.name);
    }
    for (place, (column, _)) in shown.iter().enumerate() {
        if shown[..place].iter().any(|(other, _)| other == column) {
            let message = format!("column \"{column}\" specified more than once");
            return Err(Error::new(SqlState::DUPLICATE_COLUMN, message));
        }
    }
    let oid = existing.as_ref().map_or(0, |view| view.oid);
    let view = ViewDefinition { oid, schema, name, columns: shown, sources, query: query.to_string(), depends };
    if let Some(existing) = &existing {
        check_replaces(existing, &view)?;
        check_circle(context, existing, &view)?;
    }
    // What is kept is a text: it has to say the same.
    let again = binder.view(&view)?;
    if again.fields.len() != view.columns.len() {
        return Err(Error::unsupported("this query of a view"));
    }
    context.session.put_view(view)?;
    Ok(Tag::Plain("CREATE VIEW"))
}

/// What the view names it finds again by name among `depends`, wherever the search path leads by then.
fn check_names(definitions: &Definitions, depends: &[u32]) -> Result<()> {
    let name = |oid: &u32| definitions.relation_name(*oid).map(|(_, name)| name);
    for (place, oid) in depends.iter().enumerate() {
        if depends[..place].iter().any(|other| name(other) == name(oid)) {
            return Err(Error::unsupported("a view of two relations that have the same name in different schemas"));
        }
    }
    Ok(())
}

/// A view that replaces another has its columns, and perhaps more behind them (checkViewColumns in view.c).
fn check_replaces(old: &ViewDefinition, new: &ViewDefinition) -> Result<()> {
    let refused = |message: String| Err(Error::new(SqlState::INVALID_TABLE_DEFINITION, message));
    if new.columns.len() < old.columns.len() {
        return refused("cannot drop columns from view".into());
    }
    for ((old_name, old_type), (new_name, new_type)) in old.columns.iter().zip(&new.columns) {
        if old_name != new_name {
            return refused(format!("cannot change name of view column \"{old_name}\" to \"{new_name}\""));
        }
        if old_type != new_type {
            let shown = |ty: &homenode_types::ColumnType| ty.ty.format_type(ty.typmod);
            let (from, to) = (shown(old_type), shown(new_type));
            return refused(format!("cannot change data type of view column \"{old_name}\" from {from} to {to}"));
        }
    }
    Ok(())
}

/// A view must not come to read itself by being replaced.
fn check_circle(context: &mut Context, old: &ViewDefinition, new: &ViewDefinition) -> Result<()> {
    let definitions = context.definitions();
    let mut open = new.depends.clone();
    let mut seen = Vec::new();
    while let Some(oid) = open.pop() {
        if oid == old.oid {
            let message = format!("infinite recursion detected in rules for relation \"{}\"", new.name);
            return Err(Error::new(SqlState::INVALID_OBJECT_DEFINITION, message));
        }
        if !seen.contains(&oid) {
            seen.push(oid);
            open.extend(definitions.view_by_oid(oid).iter().flat_map(|view| &view.depends));
        }
    }
    Ok(())
}

/// Refuses a change of a relation after which a view that reads it would not say what it said: a view is kept as a text.
pub(super) fn check_readers(context: &mut Context, relation: u32, what: &str) -> Result<()> {
    let definitions = context.definitions();
    let binder = Binder::new(&definitions, context.search_path());
    for view in definitions.views().iter().filter(|view| view.depends.contains(&relation)) {
        if binder.view(view).is_err() {
            return Err(Error::unsupported(format!("{what} that view \"{}\" reads", view.name)));
        }
    }
    Ok(())
}
