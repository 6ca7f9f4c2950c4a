//! Where do rows come from? FROM: tables, subqueries, functions and joins, and the columns they offer.

use super::names::is_partition_ancestors;
use super::scope::{Clause, FromScope, Offered, Outer, correlated};
use super::series::{Series, bind_series};
use super::{Binder, Named, at, folded, no_column, split_name};
use crate::expr::{self, Bound, Expr, Params, Scope};
use crate::plan::{QueryPlan, SeriesKind};
use crate::virtual_table::VirtualTable;
use homenode_engine::{Privileges, Table, TableStatistics};
use homenode_types::{ColumnType, Error, Result, SqlState, Type, Value};
use sqlparser::ast;
use std::cell::Cell;
use std::sync::Arc;

/// What a relation's rows are made of.
pub(crate) enum Source {
    Table(Arc<Table>),
    Virtual(&'static VirtualTable),
    Derived { query: Arc<QueryPlan>, outer: Vec<Expr>, shared: Option<usize> },
    Series { kind: SeriesKind, ordinality: bool },
}

/// One relation of a FROM clause.
pub(crate) struct Relation {
    pub alias: String,
    /// First register.
    pub base: usize,
    /// Number of registers.
    pub width: usize,
    pub source: Source,
    pub columns: Vec<Offered>,
    /// What ANALYZE has found, of a stored table.
    pub statistics: Option<Arc<TableStatistics>>,
}

impl Relation {
    /// Its registers.
    pub fn registers(&self) -> std::ops::Range<usize> {
        self.base..self.base + self.width
    }
}

/// How relations are joined.
#[derive(Clone)]
pub(crate) enum Tree {
    Leaf(usize),
    Inner(Box<Tree>, Box<Tree>, Vec<Expr>),
    /// Every row of the first side is kept.
    Left(Box<Tree>, Box<Tree>, Vec<Expr>),
    Full(Box<Tree>, Box<Tree>, Vec<Expr>),
    /// Rows of the tree that satisfy semi-joins and conditions.
    Semi(Box<Tree>, Vec<SemiJoin>, Vec<Expr>),
}

impl Tree {
    /// Calls `each` with all trees below, and this one.
    fn each_mut(&mut self, each: &mut dyn FnMut(&mut Tree)) {
        each(self);
        match self {
            Tree::Leaf(_) => {}
            Tree::Inner(left, right, _) | Tree::Left(left, right, _) | Tree::Full(left, right, _) => {
                left.each_mut(each);
                right.each_mut(each);
            }
            Tree::Semi(tree, semis, _) => {
                tree.each_mut(each);
                semis.iter_mut().for_each(|semi| semi.tree.each_mut(each));
            }
        }
    }

    /// Its relations have moved up by so many places.
    pub fn renumber(&mut self, by: usize) {
        self.each_mut(&mut |tree| {
            if let Tree::Leaf(number) = tree {
                *number += by;
            }
        });
    }

    /// Whether a relation's columns are those of its rows.
    pub fn has(&self, relation: usize) -> bool {
        match self {
            Tree::Leaf(number) => *number == relation,
            Tree::Inner(left, right, _) | Tree::Left(left, right, _) | Tree::Full(left, right, _) => {
                left.has(relation) || right.has(relation)
            }
            Tree::Semi(tree, ..) => tree.has(relation),
        }
    }

    /// Replaces columns of the query around in join conditions.
    pub fn replace_outer(&mut self, columns: &[Expr]) {
        self.each_mut(&mut |tree| match tree {
            Tree::Leaf(_) => {}
            Tree::Inner(_, _, on) | Tree::Left(_, _, on) | Tree::Full(_, _, on) => {
                on.iter_mut().for_each(|condition| condition.replace_outer(columns));
            }
            Tree::Semi(_, semis, below) => {
                let on = semis.iter_mut().flat_map(|semi| &mut semi.on);
                on.chain(below).for_each(|condition| condition.replace_outer(columns));
            }
        });
    }
}

impl Source {
    /// Replaces columns of the query around in what rows are made of.
    pub fn replace_outer(&mut self, columns: &[Expr]) {
        let replace = |expr: &mut Expr| expr.replace_outer(columns);
        match self {
            Source::Table(_) | Source::Virtual(_) => {}
            Source::Derived { outer, .. } => outer.iter_mut().for_each(replace),
            Source::Series { kind, .. } => kind.exprs_mut().into_iter().for_each(replace),
        }
    }
}

/// Relations of which a row of the others needs (or must not have) a partner: EXISTS and IN among the conditions.
#[derive(Clone)]
pub(crate) struct SemiJoin {
    pub tree: Tree,
    /// Over these relations and those of the block.
    pub on: Vec<Expr>,
    /// NOT EXISTS.
    pub anti: bool,
}

/// A bound FROM clause.
#[derive(Default)]
pub(crate) struct From {
    pub relations: Vec<Relation>,
    pub trees: Vec<Tree>,
    pub semis: Vec<SemiJoin>,
    /// Columns by plain name, in the order of `*`.
    pub offered: Vec<Offered>,
    /// All columns of all relations.
    pub qualified: Vec<Offered>,
    /// Registers in use.
    pub width: usize,
}

/// Binds a FROM clause step by step; later items see earlier ones when they are lateral.
pub(crate) struct FromBinder<'a> {
    pub binder: &'a Binder<'a>,
    pub parent: Option<&'a dyn Scope>,
    pub outer: &'a Outer,
    pub from: From,
}

impl<'a> FromBinder<'a> {
    pub fn new(binder: &'a Binder<'a>, parent: Option<&'a dyn Scope>, outer: &'a Outer) -> FromBinder<'a> {
        FromBinder { binder, parent, outer, from: From::default() }
    }

    /// Binds the whole list.
    pub fn bind(mut self, list: &[ast::TableWithJoins], params: &mut Params) -> Result<From> {
        for item in list {
            let (tree, offered) = self.joined(item, params)?;
            self.from.trees.push(tree);
            self.from.offered.extend(offered);
        }
        Ok(self.from)
    }

    /// Adds a stored table that the statement writes.
    pub fn add_target(&mut self, table: Arc<Table>, alias: Option<&ast::Ident>) -> Result<usize> {
        let alias = alias.map_or_else(|| table.name.clone(), folded);
        let columns = table_columns(&table, &alias, self.from.width);
        let offered = self.add(alias, columns, Source::Table(table))?;
        self.from.trees.push(Tree::Leaf(self.from.relations.len() - 1));
        self.from.offered.extend(offered);
        Ok(self.from.relations.len() - 1)
    }

    fn joined(&mut self, item: &ast::TableWithJoins, params: &mut Params) -> Result<(Tree, Vec<Offered>)> {
        let recursions = self.binder.recursions();
        let (mut tree, mut offered) = self.factor(&item.relation, params)?;
        for join in &item.joins {
            let left_recursions = self.binder.recursions();
            // Lateral items on the right see the left side of their own join too.
            let before = self.from.offered.len();
            self.from.offered.extend(offered.iter().cloned());
            let right = self.factor(&join.relation, params);
            self.from.offered.truncate(before);
            use ast::JoinOperator as Op;
            let (on_left, on_right) = (left_recursions != recursions, self.binder.recursions() != left_recursions);
            let refused = match &join.join_operator {
                Op::Left(_) | Op::LeftOuter(_) => on_right,
                Op::Right(_) | Op::RightOuter(_) => on_left,
                Op::FullOuter(_) => on_left || on_right,
                _ => false,
            };
            if refused && right.is_ok() {
                return Err(super::recursive::misplaced("within an outer join"));
            }
            (tree, offered) = self.join((tree, offered), right?, &join.join_operator, params)?;
        }
        Ok((tree, offered))
    }

    fn join(
        &mut self,
        (left, left_columns): (Tree, Vec<Offered>),
        (right, right_columns): (Tree, Vec<Offered>),
        operator: &ast::JoinOperator,
        params: &mut Params,
    ) -> Result<(Tree, Vec<Offered>)> {
        use ast::JoinOperator as Op;
        let (kind, constraint) = match operator {
            Op::Join(constraint) | Op::Inner(constraint) => ("inner", constraint),
            Op::Left(constraint) | Op::LeftOuter(constraint) => ("left", constraint),
            Op::Right(constraint) | Op::RightOuter(constraint) => ("right", constraint),
            Op::FullOuter(constraint) => ("full", constraint),
            Op::CrossJoin(constraint) => ("inner", constraint),
            other => return Err(Error::unsupported(format!("join {other:?}"))),
        };
        let (on, offered) = match constraint {
            ast::JoinConstraint::On(condition) => {
                let all: Vec<Offered> = left_columns.into_iter().chain(right_columns).collect();
                (self.condition(condition, &all, params)?, all)
            }
            ast::JoinConstraint::Using(names) => {
                let names = names
                    .iter()
                    .map(|name| split_name(name).map(|(_, ident)| folded(ident)))
                    .collect::<Result<Vec<_>>>()?;
                self.using(&names, left_columns, right_columns, kind, params)?
            }
            ast::JoinConstraint::Natural => {
                let names: Vec<String> = left_columns
                    .iter()
                    .filter(|column| right_columns.iter().any(|right| right.name == column.name))
                    .map(|column| column.name.clone())
                    .collect();
                self.using(&names, left_columns, right_columns, kind, params)?
            }
            ast::JoinConstraint::None => (Vec::new(), left_columns.into_iter().chain(right_columns).collect()),
        };
        let (left, right) = (Box::new(left), Box::new(right));
        let tree = match kind {
            "left" => Tree::Left(left, right, on),
            // Registers do not depend on the side, so a right join is a left join with its sides exchanged.
            "right" => Tree::Left(right, left, on),
            "full" => Tree::Full(left, right, on),
            _ => Tree::Inner(left, right, on),
        };
        Ok((tree, offered))
    }

    fn scope<'s>(&'s self, offered: &'s [Offered], clause: &'static str) -> FromScope<'s> {
        FromScope {
            binder: self.binder,
            parent: self.parent,
            outer: self.outer,
            offered,
            qualified: &self.from.qualified,
            clause: Clause::Closed(clause),
            saw_aggregate: Cell::new(false),
        }
    }

    fn condition(&self, tree: &ast::Expr, offered: &[Offered], params: &mut Params) -> Result<Vec<Expr>> {
        let scope = self.scope(offered, "JOIN conditions");
        let bound = expr::bind_to(tree, ColumnType::new(Type::Bool), false, &scope, params)?;
        Ok(conjuncts(bound.expr))
    }

    fn using(
        &self,
        names: &[String],
        mut left: Vec<Offered>,
        mut right: Vec<Offered>,
        kind: &str,
        params: &mut Params,
    ) -> Result<(Vec<Expr>, Vec<Offered>)> {
        let mut on = Vec::new();
        let mut merged = Vec::new();
        for name in names {
            let (a, b) = (take(&mut left, name, "left")?, take(&mut right, name, "right")?);
            on.push(expr::compare_bound(expr::CmpOp::Eq, a.bound.clone(), b.bound.clone(), params)?.expr);
            let kept = match kind {
                "right" => b,
                "full" => return Err(Error::unsupported("FULL JOIN with USING")),
                _ => a,
            };
            merged.push(Offered { relation: None, ..kept });
        }
        merged.extend(left);
        merged.extend(right);
        Ok((on, merged))
    }

    fn factor(&mut self, factor: &ast::TableFactor, params: &mut Params) -> Result<(Tree, Vec<Offered>)> {
        match factor {
            ast::TableFactor::Table { name, alias, args, sample, with_ordinality, .. } => {
                if sample.is_some() {
                    return Err(Error::unsupported("TABLESAMPLE"));
                }
                match args {
                    Some(args) => self.function(name, &args.args, alias.as_ref(), *with_ordinality, params),
                    None => self.named(name, alias.as_ref()),
                }
            }
            ast::TableFactor::Function { name, args, alias, .. } => {
                self.function(name, args, alias.as_ref(), false, params)
            }
            ast::TableFactor::Derived { lateral, subquery, alias } => {
                self.derived(*lateral, subquery, alias.as_ref(), params)
            }
            ast::TableFactor::NestedJoin { table_with_joins, alias: None } => self.joined(table_with_joins, params),
            ast::TableFactor::NestedJoin { .. } => Err(Error::unsupported("an alias of a join")),
            ast::TableFactor::UNNEST { alias, array_exprs, with_ordinality, .. } => {
                let arrays =
                    array_exprs.iter().map(|array| self.argument(array, params)).collect::<Result<Vec<_>>>()?;
                let series = bind_series("unnest", arrays, params)?;
                let series = series.ok_or_else(|| Error::internal("no set-returning function"))?;
                self.series("unnest", series, alias.as_ref(), *with_ordinality)
            }
            _ => Err(Error::unsupported("this kind of FROM item")),
        }
    }

    fn named(&mut self, name: &ast::ObjectName, alias: Option<&ast::TableAlias>) -> Result<(Tree, Vec<Offered>)> {
        if let [ast::ObjectNamePart::Identifier(ident)] = &name.0[..]
            && let Some((query, names)) = self.binder.correlated_cte(&folded(ident), self.parent)?
        {
            let alias_name = alias.map_or_else(|| folded(ident), |alias| folded(&alias.name));
            let columns = rename(query_columns(&query, &alias_name, self.from.width), alias)?;
            let values = names.iter().map(|(qualifier, column)| {
                correlated(self.parent, self.outer, qualifier.as_deref(), column).map(|bound| bound.expr)
            });
            let outer = values.collect::<Result<Vec<_>>>()?;
            return self.leaf(alias_name, columns, Source::Derived { query, outer, shared: None });
        }
        if let [ast::ObjectNamePart::Identifier(ident)] = &name.0[..]
            && let Some((query, shared)) = self.binder.cte(&folded(ident))?
        {
            let alias_name = alias.map_or_else(|| folded(ident), |alias| folded(&alias.name));
            let columns = query_columns(&query, &alias_name, self.from.width);
            let columns = rename(columns, alias)?;
            return self.leaf(alias_name, columns, Source::Derived { query, outer: Vec::new(), shared });
        }
        let relation = self.binder.relation(name)?;
        let base = self.from.width;
        let (own, columns, source): (String, Vec<Offered>, Source) = match relation {
            Named::Table(table) => {
                self.binder.need(table.oid, Privileges::SELECT);
                let alias = alias.map_or_else(|| table.name.clone(), |alias| folded(&alias.name));
                (alias.clone(), table_columns(&table, &alias, base), Source::Table(table))
            }
            Named::Virtual(table) => {
                if table.oid == crate::catalog::PG_AUTHID {
                    self.binder.need(table.oid, Privileges::SELECT);
                }
                let alias = alias.map_or_else(|| table.name.to_string(), |alias| folded(&alias.name));
                let columns = table.columns.iter().enumerate().map(|(at, (name, ty))| Offered {
                    name: (*name).to_string(),
                    relation: Some(alias.clone()),
                    bound: Bound { expr: Expr::Column(base + at), ty: ColumnType::new(*ty) },
                    origin: (table.oid, at as i16 + 1),
                    is_whole: false,
                });
                (alias.clone(), columns.collect(), Source::Virtual(table))
            }
            Named::View(view) => {
                self.binder.need(view.oid, Privileges::SELECT);
                let query = self.binder.view(&view)?;
                let alias = alias.map_or_else(|| view.name.clone(), |alias| folded(&alias.name));
                let columns = query_columns(&query, &alias, base);
                (alias, columns, Source::Derived { query, outer: Vec::new(), shared: None })
            }
        };
        let columns = rename(columns, alias)?;
        self.leaf(own, columns, source)
    }

    fn derived(
        &mut self,
        lateral: bool,
        query: &ast::Query,
        alias: Option<&ast::TableAlias>,
        params: &mut Params,
    ) -> Result<(Tree, Vec<Offered>)> {
        let nothing: Vec<Offered> = Vec::new();
        let scope = if lateral {
            self.scope(&self.from.offered, "a lateral subquery")
        } else {
            FromScope { qualified: &nothing, ..self.scope(&nothing, "a subquery") }
        };
        let (plan, outer) = self.binder.query(query, Some(&scope), params, false)?;
        let Some(alias) = alias else {
            return Err(Error::new(SqlState::SYNTAX_ERROR, "subquery in FROM must have an alias")
                .with_hint("For example, FROM (SELECT ...) [AS] foo."));
        };
        let name = folded(&alias.name);
        let columns = rename(query_columns(&plan, &name, self.from.width), Some(alias))?;
        let outer = outer.into_iter().map(|bound| bound.expr).collect();
        self.leaf(name, columns, Source::Derived { query: plan, outer, shared: None })
    }

    fn argument(&self, tree: &ast::Expr, params: &mut Params) -> Result<Bound> {
        expr::bind(tree, &self.scope(&self.from.offered, "functions in FROM"), params)
    }

    fn function(
        &mut self,
        name: &ast::ObjectName,
        args: &[ast::FunctionArg],
        alias: Option<&ast::TableAlias>,
        ordinality: bool,
        params: &mut Params,
    ) -> Result<(Tree, Vec<Offered>)> {
        let (_, ident) = split_name(name)?;
        let function = folded(ident);
        if expr::is_set_function(&function) {
            let bound = args
                .iter()
                .map(|arg| match arg {
                    ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(tree)) => self.argument(tree, params),
                    _ => Err(Error::unsupported("named arguments")),
                })
                .collect::<Result<Vec<_>>>()?;
            let series = bind_series(&function, bound, params).map_err(|error| at(error, ident.span))?;
            let series = series.ok_or_else(|| Error::internal("no set-returning function"))?;
            return self.series(&function, series, alias, ordinality);
        }
        let call = ast::Expr::Function(ast::Function {
            name: name.clone(),
            uses_odbc_syntax: false,
            parameters: ast::FunctionArguments::None,
            args: ast::FunctionArguments::List(ast::FunctionArgumentList {
                duplicate_treatment: None,
                args: args.to_vec(),
                clauses: Vec::new(),
            }),
            filter: None,
            null_treatment: None,
            over: None,
            within_group: Vec::new(),
        });
        let bound = self.argument(&call, params)?;
        let kind = match is_partition_ancestors(name) {
            true => SeriesKind::Unnest { arrays: vec![(Expr::Const(Value::Null), Type::OidArray)] },
            false => SeriesKind::Scalar { value: bound.expr },
        };
        self.series(&function, Series { kind, columns: vec![(None, bound.ty)] }, alias, ordinality)
    }

    fn series(
        &mut self,
        function: &str,
        series: Series,
        alias: Option<&ast::TableAlias>,
        ordinality: bool,
    ) -> Result<(Tree, Vec<Offered>)> {
        let relation = alias.map_or_else(|| function.to_string(), |alias| folded(&alias.name));
        let base = self.from.width;
        let mut columns = series.columns;
        let single = columns.len() == 1;
        if ordinality {
            columns.push((Some("ordinality"), ColumnType::new(Type::Int8)));
        }
        let offered = columns.into_iter().enumerate().map(|(at, (name, ty))| Offered {
            // A function's only column is called like its alias, unless it has a name of its own.
            name: name.unwrap_or(if single { &relation } else { function }).to_string(),
            relation: Some(relation.clone()),
            bound: Bound { expr: Expr::Column(base + at), ty },
            origin: (0, 0),
            is_whole: single && at == 0,
        });
        let columns = rename(offered.collect(), alias)?;
        self.leaf(relation, columns, Source::Series { kind: series.kind, ordinality })
    }

    fn leaf(&mut self, alias: String, columns: Vec<Offered>, source: Source) -> Result<(Tree, Vec<Offered>)> {
        let offered = self.add(alias, columns, source)?;
        Ok((Tree::Leaf(self.from.relations.len() - 1), offered))
    }

    fn add(&mut self, alias: String, columns: Vec<Offered>, source: Source) -> Result<Vec<Offered>> {
        if self.from.relations.iter().any(|relation| relation.alias == alias) {
            return Err(Error::new(
                SqlState::DUPLICATE_ALIAS,
                format!("table name \"{alias}\" specified more than once"),
            ));
        }
        let base = self.from.width;
        let width = match &source {
            Source::Table(table) => table.columns.len(),
            _ => columns.len(),
        };
        self.from.width += width;
        self.from.qualified.extend(columns.iter().cloned());
        let statistics = match &source {
            Source::Table(table) => self.binder.definitions.statistics(table).cloned(),
            _ => None,
        };
        self.from.relations.push(Relation { alias, base, width, source, columns: columns.clone(), statistics });
        Ok(columns)
    }
}

fn table_columns(table: &Table, alias: &str, base: usize) -> Vec<Offered> {
    let visible = table.columns.iter().enumerate().filter(|(_, column)| column.is_visible());
    let columns = visible.map(|(at, column)| Offered {
        name: column.name.clone(),
        relation: Some(alias.to_string()),
        bound: Bound { expr: Expr::Column(base + at), ty: column.ty },
        origin: (table.oid, at as i16 + 1),
        is_whole: false,
    });
    columns.collect()
}

fn query_columns(query: &QueryPlan, alias: &str, base: usize) -> Vec<Offered> {
    let columns = query.fields.iter().enumerate().map(|(at, field)| Offered {
        name: field.name.clone(),
        relation: Some(alias.to_string()),
        bound: Bound { expr: Expr::Column(base + at), ty: field.ty },
        origin: (field.table, field.attribute),
        is_whole: false,
    });
    columns.collect()
}

/// Gives the first columns the names of `alias (a, b, ...)`.
fn rename(mut columns: Vec<Offered>, alias: Option<&ast::TableAlias>) -> Result<Vec<Offered>> {
    let Some(alias) = alias else { return Ok(columns) };
    if alias.columns.len() > columns.len() {
        let (name, has, given) = (folded(&alias.name), columns.len(), alias.columns.len());
        return Err(Error::new(
            SqlState::INVALID_COLUMN_REFERENCE,
            format!("table \"{name}\" has {has} columns available but {given} columns specified"),
        ));
    }
    for (column, name) in columns.iter_mut().zip(&alias.columns) {
        column.name = folded(&name.name);
    }
    Ok(columns)
}

fn take(columns: &mut Vec<Offered>, name: &str, side: &str) -> Result<Offered> {
    let mut found = columns.iter().enumerate().filter(|(_, column)| column.name == name).map(|(at, _)| at);
    match (found.next(), found.next()) {
        (Some(place), None) => Ok(columns.remove(place)),
        (Some(_), Some(_)) => Err(Error::new(
            SqlState::AMBIGUOUS_COLUMN,
            format!("common column name \"{name}\" appears more than once in {side} table"),
        )),
        (None, _) => {
            let mut error = no_column(None, name);
            error.message = format!("column \"{name}\" specified in USING clause does not exist in {side} table");
            Err(error)
        }
    }
}

/// The parts of a conjunction.
pub(crate) fn conjuncts(condition: Expr) -> Vec<Expr> {
    let mut parts = Vec::new();
    expr::split_conjunction(condition, &mut parts);
    parts
}
