//! What does a writing statement change? INSERT, UPDATE, DELETE to plans.

use super::block::mark;
use super::from::{FromBinder, conjuncts};
use super::names::column_name;
use super::scope::{Clause, FromScope, Offered, Outer};
use super::several::several;
use super::updatable::WrittenView;
use super::{Binder, at, folded, no_column, split_name};
use crate::checks::Checks;
use crate::expr::{self, Bound, Expr, NoColumns, Params};
use crate::foreign::Watch;
use crate::plan::{Plan, QueryPlan, ScanPlan};
use crate::planner;
use crate::wire::Field;
use homenode_engine::{Identity, Privileges, Table, next_value};
use homenode_types::{ColumnType, Error, Result, SqlState, Type, Value};
use sqlparser::ast;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// RETURNING: over registers that hold the row.
pub(crate) struct ReturningPlan {
    pub output: Vec<Expr>,
    pub fields: Vec<Field>,
}

impl ReturningPlan {
    fn add(&mut self, column: &Offered) {
        let (table, attribute) = column.origin;
        self.output.push(column.bound.expr.clone());
        self.fields.push(Field { name: column.name.clone(), ty: column.bound.ty, table, attribute });
    }
}

/// Where inserted rows come from.
pub(crate) enum InsertSource {
    /// One expression per column of the table.
    Rows(Vec<Vec<Expr>>),
    /// A query, and one expression per column of the table over its output.
    Query(Arc<QueryPlan>, Vec<Expr>),
}

/// ON CONFLICT.
pub(crate) enum Conflict {
    /// DO NOTHING; of a certain key only, when one is named.
    Nothing(Option<Option<usize>>),
    /// DO UPDATE of the row with the same key (`None`: primary key, else an index). Registers: the row, then EXCLUDED.
    Update { key: Option<usize>, assignments: Vec<(usize, Expr)>, conditions: Vec<Expr> },
}

/// INSERT.
pub(crate) struct InsertPlan {
    pub table: Arc<Table>,
    pub source: InsertSource,
    pub conflict: Option<Conflict>,
    pub returning: Option<ReturningPlan>,
    /// The source reads the table: all of it is read before anything is written.
    pub reads_target: bool,
    pub checks: Checks,
    /// Foreign keys to look after: of inserted rows, and of those that ON CONFLICT updates.
    pub foreign: Option<Box<Watch>>,
    pub foreign_updates: Option<Box<Watch>>,
}

/// UPDATE.
pub(crate) struct UpdatePlan {
    pub table: Arc<Table>,
    /// The rows to change; the target's columns are registers from 0.
    pub input: Plan,
    pub width: usize,
    pub scan: Arc<ScanPlan>,
    pub assignments: Vec<(usize, Expr)>,
    /// Conditions over the target and other relations, looked at again on the newest version.
    pub conditions: Vec<Expr>,
    /// There are other relations: their registers have to be kept with each row.
    pub joined: bool,
    pub returning: Option<ReturningPlan>,
    pub checks: Checks,
    pub foreign: Option<Box<Watch>>,
}

/// DELETE.
pub(crate) struct DeletePlan {
    pub table: Arc<Table>,
    pub input: Plan,
    pub width: usize,
    pub scan: Arc<ScanPlan>,
    pub conditions: Vec<Expr>,
    pub joined: bool,
    pub returning: Option<ReturningPlan>,
    pub foreign: Option<Box<Watch>>,
}

/// A column's default as an expression; NULL when there is none.
pub(crate) fn default_of(table: &Table, column: usize, params: &mut Params) -> Result<Expr> {
    let column = &table.columns[column];
    let text = match (&column.default, column.sequence) {
        (Some(text), _) => text.clone(),
        (None, Some(oid)) if column.identity.is_some() => next_value(oid),
        _ => return Ok(Expr::Const(Value::Null)),
    };
    let bound = crate::parse::expression(&text)
        .and_then(|tree| expr::bind_to(&tree, column.ty, true, &NoColumns, params))
        .map_err(|mut error| {
            // A place in the default's text is none in the statement's.
            error.position = None;
            error
        })?;
    Ok(bound.expr)
}

fn is_default(tree: &ast::Expr) -> bool {
    matches!(tree, ast::Expr::Identifier(ident) if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default"))
}

fn column_of(table: &Table, ident: &ast::Ident) -> Result<usize> {
    let name = folded(ident);
    table.column_index(&name).ok_or_else(|| {
        let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
        at(Error::new(SqlState::UNDEFINED_COLUMN, message), ident.span)
    })
}

/// The places of the columns that statements see.
pub(crate) fn visible_columns(table: &Table) -> Vec<usize> {
    (0..table.columns.len()).filter(|&column| table.columns[column].is_visible()).collect()
}

fn target_columns(table: &Table, view: Option<&WrittenView>, names: &[ast::Ident]) -> Result<Vec<usize>> {
    if let (Some(view), []) = (view, names) {
        return Ok(view.places());
    }
    if names.is_empty() {
        return Ok(visible_columns(table));
    }
    let mut columns = Vec::with_capacity(names.len());
    for ident in names {
        let column = match view {
            Some(view) => view.column(ident, "insert into")?,
            None => column_of(table, ident)?,
        };
        if columns.contains(&column) {
            let message = format!("column \"{}\" specified more than once", folded(ident));
            return Err(at(Error::new(SqlState::DUPLICATE_COLUMN, message), ident.span));
        }
        columns.push(column);
    }
    Ok(columns)
}

/// PostgreSQL's message when a value cannot be stored in a column.
fn mistyped(mut error: Error, table: &Table, column: usize, ty: ColumnType) -> Error {
    if error.code == SqlState::DATATYPE_MISMATCH || error.code == SqlState::CANNOT_COERCE {
        let column = &table.columns[column];
        error.code = SqlState::DATATYPE_MISMATCH;
        error.message = format!(
            "column \"{}\" is of type {} but expression is of type {}",
            column.name,
            column.ty.ty.sql_name(),
            ty.ty.sql_name()
        );
        error.hint = Some("You will need to rewrite or cast the expression.".into());
    }
    error
}

/// Parameters that are a query's output take the types of the columns they are stored in (transformInsertStmt).
fn decide_params(plan: Arc<QueryPlan>, wanted: &[ColumnType], params: &mut Params) -> Result<Arc<QueryPlan>> {
    let open = |column: &Expr, ty: Type| matches!(column, Expr::Param(_)) && ty == Type::Unknown;
    if !plan.output.iter().zip(&plan.fields).any(|(column, field)| open(column, field.ty.ty)) {
        return Ok(plan);
    }
    let (mut output, mut fields) = (plan.output.clone(), plan.fields.clone());
    for ((column, field), ty) in output.iter_mut().zip(&mut fields).zip(wanted) {
        if open(column, field.ty.ty) {
            let unknown = Bound { expr: column.clone(), ty: field.ty };
            let bound = expr::cast_bound(unknown, ColumnType::new(ty.ty), params)?;
            (*column, field.ty) = (bound.expr, bound.ty);
        }
    }
    Ok(Arc::new(QueryPlan { input: plan.input.clone(), width: plan.width, output, fields }))
}

/// Whether a column's value is not the statement's to say.
fn is_computed(table: &Table, column: usize) -> bool {
    let column = &table.columns[column];
    column.identity == Some(Identity::Always) || column.generated.is_some()
}

fn computed(table: &Table, column: usize, message: String) -> Error {
    let name = &table.columns[column].name;
    let error = Error::new(SqlState::from_code("428C9"), message);
    match table.columns[column].generated {
        Some(_) => error.with_detail(format!("Column \"{name}\" is a generated column.")),
        None => error.with_detail(format!("Column \"{name}\" is an identity column defined as GENERATED ALWAYS.")),
    }
}

impl Binder<'_> {
    /// 428C9 for a value that a statement gives a column that has its own.
    fn refuse_value(&self, table: &Table, column: usize) -> Result<()> {
        let overrides = table.columns[column].generated.is_none();
        if !is_computed(table, column) || (overrides && self.overriding.get()) {
            return Ok(());
        }
        let name = &table.columns[column].name;
        let error = computed(table, column, format!("cannot insert a non-DEFAULT value into column \"{name}\""));
        Err(if overrides { error.with_hint("Use OVERRIDING SYSTEM VALUE to override.") } else { error })
    }

    /// Binds INSERT.
    pub fn insert(&self, insert: &ast::Insert, overriding: bool, params: &mut Params) -> Result<InsertPlan> {
        let ast::TableObject::TableName(name) = &insert.table else {
            return Err(Error::unsupported("INSERT INTO a table function"));
        };
        if insert.or.is_some()
            || insert.ignore
            || insert.overwrite
            || insert.replace_into
            || insert.partitioned.is_some()
        {
            return Err(Error::unsupported("this form of INSERT"));
        }
        let finds =
            matches!(&insert.on, Some(ast::OnInsert::OnConflict(conflict)) if conflict.conflict_target.is_some());
        let read = insert.returning.is_some() || finds;
        let needs = if read { Privileges::INSERT.with(Privileges::SELECT) } else { Privileges::INSERT };
        let (table, view) = self.written(name, needs, "insert into")?;
        if view.is_some() && insert.on.is_some() {
            return Err(Error::unsupported("ON CONFLICT of a view"));
        }
        self.tables.borrow_mut().clear();
        let columns = target_columns(&table, view.as_ref(), &insert.columns)?;
        self.overriding.set(overriding);
        let mut defaults: Vec<Option<Expr>> = vec![None; table.columns.len()];
        let source = match insert.source.as_deref() {
            None => InsertSource::Rows(vec![self.filled(&table, Vec::new(), &mut defaults, params)?]),
            Some(query) => match &*query.body {
                ast::SetExpr::Values(values)
                    if query.with.is_none() && query.order_by.is_none() && query.limit_clause.is_none() =>
                {
                    let rows =
                        values.rows.iter().map(|row| self.insert_row(&table, &columns, row, &mut defaults, params));
                    InsertSource::Rows(rows.collect::<Result<_>>()?)
                }
                _ => self.insert_query(&table, &columns, query, &mut defaults, params)?,
            },
        };
        let reads_target = self.tables.borrow().iter().any(|used| used.oid == table.oid);
        let own_name = view.as_ref().map_or(&table.name, |view| &view.view.name);
        let alias = insert.table_alias.as_ref().map_or_else(|| own_name.clone(), folded);
        let conflict = match &insert.on {
            None => None,
            Some(ast::OnInsert::OnConflict(conflict)) => {
                if matches!(conflict.action, ast::OnConflictAction::DoUpdate(_)) {
                    self.need(table.oid, Privileges::UPDATE);
                }
                Some(self.conflict(&table, &alias, conflict, params)?)
            }
            Some(_) => return Err(Error::new(SqlState::SYNTAX_ERROR, "syntax error at or near \"DUPLICATE\"")),
        };
        let returning = match &view {
            Some(view) => {
                let columns = view.offered(&alias);
                self.returning_in(insert.returning.as_deref(), &columns, &columns, params)?
            }
            None => self.returning(insert.returning.as_deref(), &table, &alias, params)?,
        };
        let foreign_updates = match &conflict {
            Some(Conflict::Update { assignments, .. }) => Watch::updates(self.definitions, &table, |column| {
                assignments.iter().any(|(assigned, _)| *assigned == column)
            }),
            _ => None,
        };
        Ok(InsertPlan {
            checks: Checks::of(&table)?,
            foreign: Watch::inserts(&table),
            foreign_updates,
            table,
            source,
            conflict,
            returning,
            reads_target,
        })
    }

    fn insert_row(
        &self,
        table: &Table,
        columns: &[usize],
        row: &[ast::Expr],
        defaults: &mut [Option<Expr>],
        params: &mut Params,
    ) -> Result<Vec<Expr>> {
        if row.len() > columns.len() {
            return Err(Error::new(SqlState::SYNTAX_ERROR, "INSERT has more expressions than target columns"));
        }
        // Fewer are only an error when the columns were named; see transformInsertRow.
        if row.len() < columns.len() && columns.len() != visible_columns(table).len() {
            return Err(Error::new(SqlState::SYNTAX_ERROR, "INSERT has more target columns than expressions"));
        }
        let mut given = Vec::with_capacity(row.len());
        let (nothing, outer) = (Vec::new(), RefCell::new(Vec::new()));
        let scope = self.plain_scope(&nothing, &outer, "VALUES");
        for (tree, &column) in row.iter().zip(columns) {
            if is_default(tree) {
                continue;
            }
            self.refuse_value(table, column)?;
            let ty = table.columns[column].ty;
            let bound = match expr::bind_to(tree, ty, true, &scope, params) {
                Ok(bound) => bound,
                Err(error) => {
                    let found =
                        expr::bind(tree, &scope, params).map_or(ColumnType::new(Type::Unknown), |bound| bound.ty);
                    return Err(expr::stored(mistyped(error, table, column, found), tree));
                }
            };
            given.push((column, bound.expr));
        }
        self.filled(table, given, defaults, params)
    }

    /// One expression per column: the given ones, and defaults for the rest.
    fn filled(
        &self,
        table: &Table,
        given: Vec<(usize, Expr)>,
        defaults: &mut [Option<Expr>],
        params: &mut Params,
    ) -> Result<Vec<Expr>> {
        let mut row: Vec<Option<Expr>> = vec![None; table.columns.len()];
        for (column, value) in given {
            row[column] = Some(value);
        }
        let mut full = Vec::with_capacity(row.len());
        for (column, value) in row.into_iter().enumerate() {
            full.push(match value {
                Some(value) => value,
                None => {
                    if defaults[column].is_none() {
                        defaults[column] = Some(default_of(table, column, params)?);
                    }
                    defaults[column].clone().unwrap_or(Expr::Const(Value::Null))
                }
            });
        }
        Ok(full)
    }

    fn insert_query(
        &self,
        table: &Table,
        columns: &[usize],
        query: &ast::Query,
        defaults: &mut [Option<Expr>],
        params: &mut Params,
    ) -> Result<InsertSource> {
        let (plan, _) = self.query(query, None, params, true)?;
        if plan.fields.len() > columns.len() {
            return Err(Error::new(SqlState::SYNTAX_ERROR, "INSERT has more expressions than target columns"));
        }
        if plan.fields.len() < columns.len() && columns.len() != visible_columns(table).len() {
            return Err(Error::new(SqlState::SYNTAX_ERROR, "INSERT has more target columns than expressions"));
        }
        let wanted: Vec<ColumnType> = columns.iter().map(|column| table.columns[*column].ty).collect();
        let plan = decide_params(plan, &wanted, params)?;
        let mut given = Vec::new();
        for (place, (field, &column)) in plan.fields.iter().zip(columns).enumerate() {
            self.refuse_value(table, column)?;
            let bound = Bound { expr: Expr::Column(place), ty: field.ty };
            let bound = expr::cast_bound(bound, table.columns[column].ty, params)
                .map_err(|error| mistyped(error, table, column, field.ty))?;
            given.push((column, bound.expr));
        }
        let full = self.filled(table, given, defaults, params)?;
        Ok(InsertSource::Query(plan, full))
    }

    fn plain_scope<'s>(&'s self, offered: &'s [Offered], outer: &'s Outer, clause: &'static str) -> FromScope<'s> {
        FromScope {
            binder: self,
            parent: None,
            outer,
            offered,
            qualified: offered,
            clause: Clause::Closed(clause),
            saw_aggregate: Cell::new(false),
        }
    }

    fn conflict(
        &self,
        table: &Table,
        alias: &str,
        conflict: &ast::OnConflict,
        params: &mut Params,
    ) -> Result<Conflict> {
        let target = match &conflict.conflict_target {
            None => None,
            Some(ast::ConflictTarget::Columns(names)) => {
                let mut wanted = names.iter().map(|ident| column_of(table, ident)).collect::<Result<Vec<_>>>()?;
                wanted.sort_unstable();
                let same = |columns: &[usize]| {
                    let mut columns = columns.to_vec();
                    columns.sort_unstable();
                    columns == wanted
                };
                if table.primary_key.as_ref().is_some_and(|key| same(&key.columns)) {
                    Some(None)
                } else {
                    let index = table
                        .indexes
                        .iter()
                        .position(|index| index.unique && index.filter.is_none() && same(&index.columns));
                    Some(Some(index.ok_or_else(|| {
                        Error::new(
                            SqlState::INVALID_COLUMN_REFERENCE,
                            "there is no unique or exclusion constraint matching the ON CONFLICT specification",
                        )
                    })?))
                }
            }
            Some(ast::ConflictTarget::OnConstraint(name)) => {
                let (_, ident) = split_name(name)?;
                let name = folded(ident);
                if table.primary_key.as_ref().is_some_and(|key| key.name == name) {
                    Some(None)
                } else {
                    let index = table.indexes.iter().position(|index| index.unique && index.name == name);
                    Some(Some(index.ok_or_else(|| {
                        let message = format!("constraint \"{name}\" for table \"{}\" does not exist", table.name);
                        Error::new(SqlState::UNDEFINED_OBJECT, message)
                    })?))
                }
            }
        };
        let update = match &conflict.action {
            ast::OnConflictAction::DoNothing => return Ok(Conflict::Nothing(target)),
            ast::OnConflictAction::DoUpdate(update) => update,
        };
        let key = target.ok_or_else(|| {
            Error::new(
                SqlState::SYNTAX_ERROR,
                "ON CONFLICT DO UPDATE requires inference specification or constraint name",
            )
        })?;
        let own = row_columns(table, alias, 0);
        let excluded = row_columns(table, "excluded", table.columns.len());
        let all: Vec<Offered> = own.iter().cloned().chain(excluded).collect();
        let outer = RefCell::new(Vec::new());
        let scope = FromScope { qualified: &all, ..self.plain_scope(&own, &outer, "UPDATE") };
        let assignments = self.assignments(table, None, &update.assignments, &scope, params)?;
        let conditions = match &update.selection {
            Some(tree) => conjuncts(expr::bind_to(tree, ColumnType::new(Type::Bool), false, &scope, params)?.expr),
            None => Vec::new(),
        };
        Ok(Conflict::Update { key, assignments, conditions })
    }

    fn assignments(
        &self,
        table: &Table,
        view: Option<&WrittenView>,
        list: &[ast::Assignment],
        scope: &FromScope<'_>,
        params: &mut Params,
    ) -> Result<Vec<(usize, Expr)>> {
        let mut assignments: Vec<(usize, Expr)> = Vec::with_capacity(list.len());
        for assignment in list {
            let values: Vec<ast::Expr>;
            let pairs: Vec<(&ast::ObjectName, &ast::Expr)> = match (&assignment.target, &assignment.value) {
                (ast::AssignmentTarget::ColumnName(name), value) => vec![(name, value)],
                (ast::AssignmentTarget::Tuple(names), value) => {
                    values = several(names.len(), value, self, scope, params)?;
                    names.iter().zip(&values).collect()
                }
            };
            for (name, value) in pairs {
                let (_, ident) = split_name(name)?;
                let column = match view {
                    Some(view) => view.column(ident, "update")?,
                    None => column_of(table, ident)?,
                };
                if assignments.iter().any(|(known, _)| *known == column) {
                    let message = format!("multiple assignments to same column \"{}\"", folded(ident));
                    return Err(Error::new(SqlState::SYNTAX_ERROR, message));
                }
                if !is_default(value) && is_computed(table, column) {
                    let message = format!("column \"{}\" can only be updated to DEFAULT", table.columns[column].name);
                    return Err(computed(table, column, message));
                }
                let bound = if is_default(value) {
                    default_of(table, column, params)?
                } else {
                    match expr::bind_to(value, table.columns[column].ty, true, scope, params) {
                        Ok(bound) => bound.expr,
                        Err(error) => {
                            let found = expr::bind(value, scope, params)
                                .map_or(ColumnType::new(Type::Unknown), |bound| bound.ty);
                            return Err(expr::stored(mistyped(error, table, column, found), value));
                        }
                    }
                };
                assignments.push((column, bound));
            }
        }
        Ok(assignments)
    }

    /// Binds UPDATE.
    pub fn update(&self, statement: &ast::Statement, params: &mut Params) -> Result<UpdatePlan> {
        let ast::Statement::Update { table: target, assignments, from, selection, returning, or, limit } = statement
        else {
            return Err(Error::internal("not an UPDATE"));
        };
        if or.is_some() || limit.is_some() || !target.joins.is_empty() {
            return Err(Error::unsupported("this form of UPDATE"));
        }
        let others = match from {
            None => &[][..],
            Some(ast::UpdateTableFromKind::AfterSet(list)) => list,
            Some(_) => return Err(Error::unsupported("this form of UPDATE")),
        };
        let computed = assignments.iter().any(|assignment| !matches!(assignment.value, ast::Expr::Value(_)));
        let read = computed || !others.is_empty() || selection.is_some() || returning.is_some();
        let needs = if read { Privileges::UPDATE.with(Privileges::SELECT) } else { Privileges::UPDATE };
        let write = self.target(&target.relation, others, selection.as_ref(), params, ("UPDATE", needs))?;
        let outer = RefCell::new(Vec::new());
        let scope =
            FromScope { qualified: &write.from.qualified, ..self.plain_scope(&write.from.offered, &outer, "UPDATE") };
        let assignments = self.assignments(&write.table, write.view.as_ref(), assignments, &scope, params)?;
        let returning = self.returning_in(returning.as_deref(), &write.from.offered, &write.from.qualified, params)?;
        let mut needed = vec![false; write.from.width];
        assignments.iter().for_each(|(_, value)| mark(value, &mut needed));
        let joined = write.from.relations.len() > 1;
        let planned = self.plan_target(write, needed, returning.as_ref())?;
        let written = |column| assignments.iter().any(|(assigned, _)| *assigned == column);
        Ok(UpdatePlan {
            checks: Checks::of(&planned.table)?,
            foreign: Watch::updates(self.definitions, &planned.table, written),
            table: planned.table,
            input: planned.input,
            width: planned.width,
            scan: planned.scan,
            assignments,
            conditions: planned.conditions,
            joined,
            returning,
        })
    }

    /// Binds DELETE.
    pub fn delete(&self, delete: &ast::Delete, params: &mut Params) -> Result<DeletePlan> {
        let list = match &delete.from {
            ast::FromTable::WithFromKeyword(list) => list,
            ast::FromTable::WithoutKeyword(_) => return Err(Error::new(SqlState::SYNTAX_ERROR, "DELETE needs FROM")),
        };
        let [target] = &list[..] else { return Err(Error::unsupported("DELETE FROM several tables")) };
        if !delete.tables.is_empty()
            || !delete.order_by.is_empty()
            || delete.limit.is_some()
            || !target.joins.is_empty()
        {
            return Err(Error::unsupported("this form of DELETE"));
        }
        let others = delete.using.as_deref().unwrap_or(&[]);
        let read = !others.is_empty() || delete.selection.is_some() || delete.returning.is_some();
        let needs = if read { Privileges::DELETE.with(Privileges::SELECT) } else { Privileges::DELETE };
        let write = self.target(&target.relation, others, delete.selection.as_ref(), params, ("DELETE", needs))?;
        let returning =
            self.returning_in(delete.returning.as_deref(), &write.from.offered, &write.from.qualified, params)?;
        let joined = write.from.relations.len() > 1;
        let needed = vec![false; write.from.width];
        let planned = self.plan_target(write, needed, returning.as_ref())?;
        Ok(DeletePlan {
            foreign: Watch::deletes(self.definitions, &planned.table),
            table: planned.table,
            input: planned.input,
            width: planned.width,
            scan: planned.scan,
            conditions: planned.conditions,
            joined,
            returning,
        })
    }

    fn target(
        &self,
        factor: &ast::TableFactor,
        others: &[ast::TableWithJoins],
        selection: Option<&ast::Expr>,
        params: &mut Params,
        (what, needs): (&str, Privileges),
    ) -> Result<Write> {
        let ast::TableFactor::Table { name, alias, args: None, .. } = factor else {
            return Err(Error::unsupported(format!("{what} of something other than a table")));
        };
        let verb = if what == "DELETE" { "delete from" } else { "update" };
        let (table, view) = self.written(name, needs, verb)?;
        let outer: Outer = RefCell::new(Vec::new());
        let mut binder = FromBinder::new(self, None, &outer);
        let alias = alias.as_ref().map(|alias| alias.name.clone());
        let own_name = view.as_ref().map(|view| ast::Ident::with_quote('"', view.view.name.clone()));
        let alias = alias.or(own_name);
        binder.add_target(table.clone(), alias.as_ref())?;
        if let (Some(view), Some(alias)) = (&view, &alias) {
            // The statement sees the view's columns, which are computed from the table's registers.
            let columns = view.offered(&folded(alias));
            binder.from.relations[0].columns.clone_from(&columns);
            binder.from.offered.clone_from(&columns);
            binder.from.qualified = columns;
        }
        let from = binder.bind(others, params)?;
        let mut conditions = match selection {
            Some(tree) => {
                let scope =
                    FromScope { qualified: &from.qualified, ..self.plain_scope(&from.offered, &outer, "WHERE") };
                conjuncts(expr::bind_to(tree, ColumnType::new(Type::Bool), false, &scope, params)?.expr)
            }
            None => Vec::new(),
        };
        conditions.extend(view.iter().flat_map(|view| view.conditions.iter().cloned()));
        Ok(Write { table, view, from, conditions })
    }

    fn plan_target(
        &self,
        mut write: Write,
        mut needed: Vec<bool>,
        returning: Option<&ReturningPlan>,
    ) -> Result<Target> {
        if let Some(returning) = returning {
            returning.output.iter().for_each(|value| mark(value, &mut needed));
        }
        let key_register = write.from.width;
        write.from.width += 1;
        let width = write.from.width;
        let conditions = write.conditions.clone();
        let planned = planner::plan_from(
            write.from,
            write.conditions,
            &needed,
            &[(0, key_register)],
            &[],
            &[],
            self.methods.get(),
        )?;
        let Some(scan) = planned.locked.into_iter().next() else {
            return Err(Error::internal("the target of a write is not scanned"));
        };
        Ok(Target { table: write.table, input: planned.plan, width, scan, conditions })
    }

    fn returning(
        &self,
        items: Option<&[ast::SelectItem]>,
        table: &Table,
        alias: &str,
        params: &mut Params,
    ) -> Result<Option<ReturningPlan>> {
        let columns = row_columns(table, alias, 0);
        self.returning_in(items, &columns, &columns, params)
    }

    fn returning_in(
        &self,
        items: Option<&[ast::SelectItem]>,
        offered: &[Offered],
        qualified: &[Offered],
        params: &mut Params,
    ) -> Result<Option<ReturningPlan>> {
        let Some(items) = items else { return Ok(None) };
        let outer = RefCell::new(Vec::new());
        let scope = FromScope { qualified, ..self.plain_scope(offered, &outer, "RETURNING") };
        let mut plan = ReturningPlan { output: Vec::new(), fields: Vec::new() };
        for item in items {
            let (tree, name) = match item {
                ast::SelectItem::UnnamedExpr(tree) => (tree, column_name(tree)),
                ast::SelectItem::ExprWithAlias { expr, alias } => (expr, folded(alias)),
                ast::SelectItem::Wildcard(_) => {
                    offered.iter().for_each(|column| plan.add(column));
                    continue;
                }
                ast::SelectItem::QualifiedWildcard(ast::SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                    let (_, ident) = split_name(name)?;
                    let relation = folded(ident);
                    let before = plan.output.len();
                    let own = |column: &&Offered| column.relation.as_deref() == Some(&relation);
                    qualified.iter().filter(own).for_each(|column| plan.add(column));
                    if plan.output.len() == before {
                        let message = format!("missing FROM-clause entry for table \"{relation}\"");
                        return Err(at(Error::new(SqlState::UNDEFINED_TABLE, message), ident.span));
                    }
                    continue;
                }
                ast::SelectItem::QualifiedWildcard(..) => {
                    return Err(Error::unsupported("an expanded composite value"));
                }
            };
            let mut bound = expr::bind(tree, &scope, params)?;
            if bound.ty.ty == Type::Unknown {
                bound = expr::cast_bound(bound, ColumnType::new(Type::Text), params)?;
            }
            plan.output.push(bound.expr);
            plan.fields.push(Field::computed(name, bound.ty));
        }
        Ok(Some(plan))
    }
}

struct Write {
    table: Arc<Table>,
    view: Option<WrittenView>,
    from: super::from::From,
    conditions: Vec<Expr>,
}

struct Target {
    table: Arc<Table>,
    input: Plan,
    width: usize,
    scan: Arc<ScanPlan>,
    conditions: Vec<Expr>,
}

fn row_columns(table: &Table, alias: &str, base: usize) -> Vec<Offered> {
    let visible = table.columns.iter().enumerate().filter(|(_, column)| column.is_visible());
    let columns = visible.map(|(place, column)| Offered {
        name: column.name.clone(),
        relation: Some(alias.to_string()),
        bound: Bound { expr: Expr::Column(base + place), ty: column.ty },
        origin: (table.oid, place as i16 + 1),
        is_whole: false,
    });
    columns.collect()
}

/// 42703 for a column of COPY.
pub(crate) fn copy_column(table: &Table, name: &str) -> Result<usize> {
    table.column_index(name).ok_or_else(|| {
        let mut error = no_column(None, name);
        error.message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
        error
    })
}
