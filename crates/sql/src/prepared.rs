//! What is kept of a statement between executions? Its tree, parameter types, result columns and plan.

use crate::bind::{self, Binder, DeletePlan, InsertPlan, UpdatePlan};
use crate::context::Context;
use crate::expr::Params;
use crate::lexer::{self, Token};
use crate::parse::{self, Definition, Statement};
use crate::plan::QueryPlan;
use crate::point::{self, Point};
use crate::range_query::{self, RangeQuery};
use crate::utility::Utility;
use crate::wire::{Field, RowDescription};
use homenode_engine::{Charge, MemoryContext};
use homenode_memory::taken_bytes;
use homenode_types::{ColumnType, Error, Result, Type};
use sqlparser::ast;
use std::sync::Arc;

/// A statement ready to run.
pub(crate) struct Prepared {
    /// Its text.
    pub text: Arc<str>,
    /// The tree, to plan again from when a table has changed.
    tree: Tree,
    /// The types the client declared.
    declared: Vec<Option<Type>>,
    /// The types of all parameters.
    pub params: Vec<Type>,
    /// Result columns; `None` for statements without rows.
    pub fields: Option<Vec<Field>>,
    /// The message that describes them.
    pub description: Option<RowDescription>,
    /// How it runs.
    pub compiled: Compiled,
    /// The definitions it was planned for.
    pub version: u64,
    /// Its memory, as views show it.
    _charge: Charge,
}

/// A statement's tree, which its plans share.
#[derive(Clone)]
struct Tree {
    statement: Arc<Statement>,
    bytes: usize,
}

/// How a statement runs.
#[allow(clippy::large_enum_variant, reason = "one for each prepared statement")]
pub(crate) enum Compiled {
    Query(Arc<QueryPlan>),
    /// A query or write of single rows by key, without operators.
    Point(Box<Point>),
    /// A query over a range of one table, without operators.
    Range(Box<RangeQuery>),
    Insert(Box<InsertPlan>),
    Update(Box<UpdatePlan>),
    Delete(Box<DeletePlan>),
    Define(Arc<Statement>),
    Utility(Utility),
}

impl Prepared {
    /// The statement without text.
    pub fn empty(context: &Context) -> Prepared {
        let checkpoint = Utility::Checkpoint;
        Prepared {
            text: "".into(),
            tree: Tree { statement: Arc::new(Statement::Utility(checkpoint.clone())), bytes: 0 },
            declared: Vec::new(),
            params: Vec::new(),
            fields: None,
            description: None,
            compiled: Compiled::Utility(checkpoint),
            version: 0,
            _charge: Charge::new(&context.session.shared().memory, MemoryContext::Plan),
        }
    }

    /// Whether it is the statement without text, which does nothing.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Parses and plans a statement.
    pub fn new(context: &mut Context, source: &str, tokens: &[Token], declared: &[Option<Type>]) -> Result<Prepared> {
        let before = taken_bytes();
        let statement = Arc::new(parse::parse(source, tokens)?);
        let tree = Tree { statement, bytes: taken_since(before) };
        let start = tokens.first().map_or(0, |token| token.start as usize);
        let end = tokens.last().map_or(source.len(), |token| token.end as usize);
        Prepared::plan(context, source[start..end].into(), tree, declared)
            .map_err(|error| bind::place(error, source, start))
    }

    /// The same statement, run by operators even if it is compiled to something quicker.
    pub fn by_operators(mut self) -> Prepared {
        if let Some(plan) = self.query_plan().cloned() {
            self.compiled = Compiled::Query(plan);
        }
        self
    }

    /// Plans it again for the definitions as they are now.
    pub fn renewed(&self, context: &mut Context) -> Result<Prepared> {
        Prepared::plan(context, self.text.clone(), self.tree.clone(), &self.declared).map_err(|mut error| {
            // The client may have sent the text long ago, and with literals where the tree has parameters.
            error.position = None;
            error
        })
    }

    /// The same statement with nothing shared: the caller's thread makes it all anew, so that it is memory of its node.
    pub fn remade(&self, context: &mut Context) -> Result<Prepared> {
        let mut tokens = Vec::new();
        lexer::lex(&self.text, &mut tokens)?;
        Prepared::new(context, &self.text, &tokens, &self.declared)
    }

    fn plan(context: &mut Context, text: Arc<str>, tree: Tree, declared: &[Option<Type>]) -> Result<Prepared> {
        let definitions = context.definitions();
        let version = context.session.definitions_version();
        // From here on nothing parks, so what the thread takes is the plan's.
        let before = taken_bytes();
        let mut params = Params::new(declared.to_vec());
        let binder = Binder::new(&definitions, context.search_path());
        binder.methods.set(context.settings.methods());
        let (compiled, fields) = match &*tree.statement {
            Statement::Query(query) => {
                let (plan, _) = binder.query(query, None, &mut params, false)?;
                let fields = plan.fields.clone();
                let compiled = match (point::of_query(&plan), range_query::of_query(&plan)) {
                    (Some(point), _) => Compiled::Point(Box::new(point)),
                    (None, Some(range)) => Compiled::Range(Box::new(range)),
                    (None, None) => Compiled::Query(plan),
                };
                (compiled, Some(fields))
            }
            Statement::Insert(insert, overriding) => {
                let plan = binder.insert(insert, *overriding, &mut params)?;
                let fields = plan.returning.as_ref().map(|returning| returning.fields.clone());
                (Compiled::Insert(Box::new(plan)), fields)
            }
            Statement::Update(update) => {
                let plan = binder.update(update, &mut params)?;
                let fields = plan.returning.as_ref().map(|returning| returning.fields.clone());
                (Compiled::Update(Box::new(plan)), fields)
            }
            Statement::Delete(delete) => {
                let plan = binder.delete(delete, &mut params)?;
                let fields = plan.returning.as_ref().map(|returning| returning.fields.clone());
                (Compiled::Delete(Box::new(plan)), fields)
            }
            Statement::Define(..) => (Compiled::Define(tree.statement.clone()), None),
            Statement::Utility(utility) => (Compiled::Utility(utility.clone()), utility_fields(utility)),
        };
        let needs = binder.needs.take();
        context.check_access(&needs)?;
        let params = bind::parameter_types(&params);
        let description = fields.as_deref().map(RowDescription::new);
        let declared = declared.to_vec();
        let mut charge = Charge::new(&context.session.shared().memory, MemoryContext::Plan);
        let columns = fields.as_deref().unwrap_or(&[]);
        let piece = match size_of_val(columns) > size_of::<Statement>() {
            true => (columns.as_ptr().addr(), size_of_val(columns)),
            false => (Arc::as_ptr(&tree.statement).addr(), size_of::<Statement>()),
        };
        let bytes = size_of::<Prepared>() + text.len() + tree.bytes + taken_since(before);
        charge.set(bytes, piece.0..piece.0 + piece.1);
        Ok(Prepared { text, tree, declared, params, fields, description, compiled, version, _charge: charge })
    }

    /// An error of running it, its place counted from where the statement's text begins. Statements inside of others and
    /// expressions kept as text are bound on their own; a place that cannot be told from there is left off.
    #[cold]
    pub fn located(&self, error: Error) -> Error {
        let inner = match &self.compiled {
            Compiled::Define(_) => return bind::place(error, &self.text, 0),
            Compiled::Utility(Utility::Explain { body, .. } | Utility::Prepare { body, .. }) => Some(body),
            Compiled::Utility(Utility::Declare { query, .. }) => Some(query),
            _ => None,
        };
        let before =
            inner.and_then(|inner| self.text.strip_suffix(inner.as_str())).map(|before| before.chars().count());
        let mut error = error;
        error.position = error.position.and_then(|position| before.map(|before| before + position));
        error
    }

    /// The tree and options of a definition.
    pub fn definition(tree: &Statement) -> Option<(&ast::Statement, Definition)> {
        match tree {
            Statement::Define(definition, options) => Some((definition, *options)),
            _ => None,
        }
    }

    /// The operators' plan of a query, compiled or not.
    pub fn query_plan(&self) -> Option<&Arc<QueryPlan>> {
        match &self.compiled {
            Compiled::Query(plan) => Some(plan),
            Compiled::Point(point) => Some(&point.plan),
            Compiled::Range(range) => Some(&range.plan),
            _ => None,
        }
    }

    /// Whether the plan depends on table definitions.
    pub fn is_planned(&self) -> bool {
        !matches!(self.compiled, Compiled::Define(_) | Compiled::Utility(_))
    }
}

/// Bytes that the thread has taken since it had taken `before`.
fn taken_since(before: u64) -> usize {
    let more = taken_bytes().wrapping_sub(before) as i64;
    usize::try_from(more).unwrap_or(0)
}

/// Result columns of utilities that have rows and whose rows do not depend on another statement.
fn utility_fields(utility: &Utility) -> Option<Vec<Field>> {
    let text = |name: &str| Field::computed(name, ColumnType::new(Type::Text));
    match utility {
        Utility::Show(Some(name)) => Some(vec![text(crate::settings::display_name(name))]),
        Utility::Show(None) => Some(vec![text("name"), text("setting"), text("description")]),
        Utility::Explain { .. } => Some(vec![text("QUERY PLAN")]),
        _ => None,
    }
}
