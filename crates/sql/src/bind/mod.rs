//! What do the names mean? From syntax trees to plans: names, types, parameters, subqueries.

mod block;
mod clauses;
mod dml;
mod from;
mod grouping;
mod names;
mod query;
mod recursive;
mod scope;
mod select;
mod semijoin;
mod series;
mod several;
mod updatable;
mod view;
mod window;

pub(crate) use clauses::{require_equality, sort_key};
pub(crate) use dml::{
    Conflict, DeletePlan, InsertPlan, InsertSource, ReturningPlan, UpdatePlan, copy_column, default_of, visible_columns,
};
pub(crate) use from::{From, Relation, SemiJoin, Source, Tree, conjuncts};

use crate::expr::Params;
use crate::search_path::{Found, SearchPath};
use crate::virtual_table::{self, VirtualTable};
use homenode_engine::{Definitions, Privileges, Table, ViewDefinition};
use homenode_types::{Error, Result, SqlState};
use sqlparser::ast;
use sqlparser::tokenizer::Span;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Positions above this hold a line and a column of the library's spans, not yet a character number.
const PACKED: usize = 1 << 40;

/// Marks an error with a place in the statement; [`place`] makes a character position of it.
pub(crate) fn at(error: Error, span: Span) -> Error {
    if span.start.line == 0 || error.position.is_some() {
        return error;
    }
    error.with_position(PACKED | (span.start.line as usize) << 20 | span.start.column as usize)
}

/// Turns a packed place into a 1-based character position in `source`, where the statement begins at byte `start`.
pub(crate) fn place(mut error: Error, source: &str, start: usize) -> Error {
    if let Some(packed) = error.position.filter(|position| *position >= PACKED) {
        let (line, column) = ((packed & (PACKED - 1)) >> 20, packed & ((1 << 20) - 1));
        let statement = source.get(start..).unwrap_or("");
        error.position = crate::parse::offset_of(statement, line as u64, column as u64)
            .map(|offset| crate::parse::characters(source, start + offset));
    }
    error
}

/// What binding a statement needs and gathers.
pub(crate) struct Binder<'a> {
    /// The definitions names are looked up in.
    pub definitions: &'a Definitions,
    /// Where names without a schema are looked up.
    path: Arc<SearchPath>,
    /// Inside a view: what it named when it was made. That is what its names stand for, whatever else has their names since.
    named: RefCell<Option<Vec<u32>>>,
    /// Common table expressions in scope, innermost last.
    ctes: RefCell<Vec<Cte>>,
    /// Numbers for shared queries.
    shared: Cell<usize>,
    /// Nesting of queries.
    depth: Cell<u32>,
    /// Stored tables the statement uses.
    pub tables: RefCell<Vec<Arc<Table>>>,
    /// Tables and views that it names itself.
    pub names: RefCell<Vec<u32>>,
    /// OVERRIDING SYSTEM VALUE: values may be given to identity columns that are ALWAYS numbered.
    overriding: Cell<bool>,
    /// How many views are being opened.
    views: Cell<u32>,
    /// What the statement does with which relation.
    pub needs: RefCell<Vec<Need>>,
    /// Inside a view: its owner.
    acting: Cell<Option<u32>>,
    /// Which kinds of steps plans may have.
    pub methods: Cell<crate::planner::Methods>,
}

/// Something that a statement does with a relation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    pub relation: u32,
    pub privileges: Privileges,
    /// Who does it, if not the session's role: the owner of the view that it does it through.
    pub role: Option<u32>,
}

impl Need {
    /// Of the session's own role.
    pub fn own(relation: u32, privileges: Privileges) -> Need {
        Need { relation, privileges, role: None }
    }
}

struct Cte {
    name: String,
    meaning: Meaning,
}

/// What the name of a common table expression means where it stands.
#[derive(Clone)]
enum Meaning {
    /// A query, run once if it is shared.
    Query(Arc<crate::plan::QueryPlan>, Option<usize>),
    /// A query that uses columns of the query around its WITH: run anew wherever it stands.
    Correlated {
        query: Arc<crate::plan::QueryPlan>,
        /// What the columns are called there.
        outer: query::OuterNames,
        /// Whose columns they are.
        around: Option<usize>,
    },
    /// It cannot be used there.
    Refused(Error),
    /// The rows that a recursive query's last round gave.
    Working(recursive::Working),
}

/// Reserved words that a mistyped query puts where a table's name should stand.
const RESERVED: [&str; 16] = [
    "where", "select", "from", "order", "group", "limit", "offset", "having", "union", "on", "join", "set", "into",
    "and", "or", "using",
];

/// Queries nested deeper than this are refused with 54001.
const MAX_QUERY_DEPTH: u32 = 24;

/// What a name in FROM stands for.
pub(crate) enum Named {
    Table(Arc<Table>),
    Virtual(&'static VirtualTable),
    View(Arc<ViewDefinition>),
}

impl<'a> Binder<'a> {
    pub fn new(definitions: &'a Definitions, path: Arc<SearchPath>) -> Binder<'a> {
        Binder {
            definitions,
            path,
            named: RefCell::new(None),
            ctes: RefCell::new(Vec::new()),
            shared: Cell::new(0),
            depth: Cell::new(0),
            tables: RefCell::new(Vec::new()),
            names: RefCell::new(Vec::new()),
            overriding: Cell::new(false),
            views: Cell::new(0),
            needs: RefCell::new(Vec::new()),
            acting: Cell::new(None),
            methods: Cell::default(),
        }
    }

    /// Runs `f` one query level deeper.
    fn nested<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.depth.get() >= MAX_QUERY_DEPTH {
            return Err(crate::lexer::too_deep());
        }
        self.depth.set(self.depth.get() + 1);
        let result = f();
        self.depth.set(self.depth.get() - 1);
        result
    }

    /// Looks a relation up: in the given schema, or along the search path.
    pub fn relation(&self, name: &ast::ObjectName) -> Result<Named> {
        let (schema, table) = split_name(name)?;
        let schema_name = schema.map(folded);
        let name = folded(table);
        let place = |error| at(error, schema.unwrap_or(table).span);
        match self.look_up(schema_name.as_deref(), &name).map_err(place)? {
            Some(Found::Virtual(found)) => return Ok(Named::Virtual(found)),
            Some(Found::Stored(oid)) => {
                if let Some(found) = self.definitions.table_by_oid(oid) {
                    self.tables.borrow_mut().push(found.clone());
                    self.note_name(oid);
                    return Ok(Named::Table(found.clone()));
                }
                if let Some(found) = self.definitions.view_by_oid(oid) {
                    self.note_name(oid);
                    return Ok(Named::View(found.clone()));
                }
            }
            None => {}
        }
        if table.quote_style.is_none() && RESERVED.contains(&name.as_str()) {
            // The library lets reserved words stand for tables.
            let message = format!("syntax error at or near \"{}\"", table.value);
            return Err(at(Error::new(SqlState::SYNTAX_ERROR, message), table.span));
        }
        Err(at(no_relation(schema_name.as_deref(), &name), schema.unwrap_or(table).span))
    }

    fn look_up(&self, schema: Option<&str>, name: &str) -> Result<Option<Found>> {
        match (&*self.named.borrow(), schema) {
            (None, _) => self.path.find(self.definitions, schema, name),
            // Who may use the schema was asked when the view was made.
            (Some(_), Some(schema)) => SearchPath::default().find(self.definitions, Some(schema), name),
            (Some(named), None) => {
                let has_name = |oid: &u32| {
                    let table = self.definitions.table_by_oid(*oid).map(|table| &table.name);
                    table
                        .or_else(|| self.definitions.view_by_oid(*oid).map(|view| &view.name))
                        .is_some_and(|n| n == name)
                };
                let system = || virtual_table::find(None, name).map(Found::Virtual);
                Ok(named.iter().copied().find(has_name).map(Found::Stored).or_else(system))
            }
        }
    }

    fn note_name(&self, oid: u32) {
        if self.views.get() == 0 {
            self.names.borrow_mut().push(oid);
        }
    }

    /// Notes what the statement does with a relation.
    pub fn need(&self, relation: u32, privileges: Privileges) {
        self.needs.borrow_mut().push(Need { relation, privileges, role: self.acting.get() });
    }

    /// Looks a stored table up that is to be written.
    pub fn table(&self, name: &ast::ObjectName, privileges: Privileges) -> Result<Arc<Table>> {
        match self.relation(name)? {
            Named::Table(table) => {
                self.need(table.oid, privileges);
                Ok(table)
            }
            Named::View(_) => Err(Error::unsupported("INSERT, UPDATE or DELETE of a view")),
            Named::Virtual(table) => Err(Error::new(
                SqlState::INSUFFICIENT_PRIVILEGE,
                format!("permission denied: \"{}\" is a system catalog", table.name),
            )),
        }
    }
}

/// 42P01.
pub(crate) fn no_relation(schema: Option<&str>, name: &str) -> Error {
    let full = schema.map_or_else(|| name.to_string(), |schema| format!("{schema}.{name}"));
    Error::new(SqlState::UNDEFINED_TABLE, format!("relation \"{full}\" does not exist"))
}

/// 42703, with the table where one was named.
pub(crate) fn no_column(qualifier: Option<&str>, name: &str) -> Error {
    let message = match qualifier {
        Some(qualifier) => format!("column {qualifier}.{name} does not exist"),
        None => format!("column \"{name}\" does not exist"),
    };
    Error::new(SqlState::UNDEFINED_COLUMN, message)
}

/// An identifier as PostgreSQL folds it.
pub(crate) fn folded(ident: &ast::Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

/// The schema and name of a possibly qualified name.
pub(crate) fn split_name(name: &ast::ObjectName) -> Result<(Option<&ast::Ident>, &ast::Ident)> {
    let mut idents = Vec::with_capacity(name.0.len());
    for part in &name.0 {
        match part {
            ast::ObjectNamePart::Identifier(ident) => idents.push(ident),
            ast::ObjectNamePart::Function(_) => return Err(Error::unsupported("a function as part of a name")),
        }
    }
    match idents[..] {
        [name] => Ok((None, name)),
        [schema, name] | [_, schema, name] => Ok((Some(schema), name)),
        _ => {
            Err(Error::new(SqlState::SYNTAX_ERROR, format!("improper qualified name (too many dotted names): {name}")))
        }
    }
}

/// The parameters of a statement after binding: types, those never decided are text.
pub(crate) fn parameter_types(params: &Params) -> Vec<homenode_types::Type> {
    params
        .types
        .iter()
        .map(|ty| ty.filter(|ty| *ty != homenode_types::Type::Unknown).unwrap_or(homenode_types::Type::Text))
        .collect()
}
