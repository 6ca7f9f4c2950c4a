//! By what is grouped? GROUP BY's elements, with ROLLUP, CUBE and GROUPING SETS, to the sets of expressions that they stand for.

use super::at;
use super::scope::GroupScope;
use crate::expr::{self, Aggregate, AggregateCall, Bound, Expr, Params, Scope};
use homenode_types::{ColumnType, Error, Result, SqlState, Type, Value};
use sqlparser::ast;

/// PostgreSQL's limits (parse_agg.c).
const SETS_MAX: usize = 4096;
const CUBE_MAX: usize = 12;

/// GROUP BY as it was written.
#[derive(Default)]
pub(super) struct Groups<'a> {
    /// The expressions, each as often as it was written.
    pub trees: Vec<&'a ast::Expr>,
    /// The grouping sets by places in `trees`; None: all expressions make one.
    pub sets: Option<Vec<Vec<usize>>>,
}

fn too_many() -> Error {
    let message = format!("too many grouping sets present (maximum {SETS_MAX})");
    Error::new(SqlState::STATEMENT_TOO_COMPLEX, message)
}

impl<'a> Groups<'a> {
    /// Reads the clause.
    pub fn of(select: &'a ast::Select) -> Result<Groups<'a>> {
        let ast::GroupByExpr::Expressions(list, modifiers) = &select.group_by else {
            return Err(Error::unsupported("GROUP BY ALL"));
        };
        if !modifiers.is_empty() {
            return Err(Error::unsupported("this form of GROUP BY"));
        }
        let mut groups = Groups::default();
        let mut elements: Vec<Vec<Vec<usize>>> = Vec::with_capacity(list.len());
        let mut plain = true;
        for tree in list {
            let sets = match tree {
                ast::Expr::Rollup(parts) => {
                    let parts = groups.parts(parts);
                    (0..=parts.len()).rev().map(|count| parts[..count].concat()).collect()
                }
                ast::Expr::Cube(parts) if parts.len() > CUBE_MAX => {
                    let message = format!("CUBE is limited to {CUBE_MAX} elements");
                    return Err(Error::new(SqlState::TOO_MANY_COLUMNS, message));
                }
                ast::Expr::Cube(parts) => {
                    let parts = groups.parts(parts);
                    let chosen = |bits: u32| (0..parts.len()).filter(move |place| bits & (1 << place) != 0);
                    let set = |bits: u32| chosen(bits).flat_map(|place| parts[place].clone()).collect();
                    (0..1_u32 << parts.len()).rev().map(set).collect()
                }
                ast::Expr::GroupingSets(sets) => groups.parts(sets),
                ast::Expr::Tuple(trees) => vec![groups.part(trees)],
                other => {
                    elements.push(vec![groups.part(std::slice::from_ref(other))]);
                    continue;
                }
            };
            plain = false;
            elements.push(sets);
        }
        if !plain {
            groups.sets = Some(product(&elements)?);
        }
        Ok(groups)
    }

    fn part(&mut self, trees: &'a [ast::Expr]) -> Vec<usize> {
        let mut places = Vec::with_capacity(trees.len());
        for tree in trees {
            let inner = match tree {
                ast::Expr::Tuple(inner) => &inner[..],
                other => std::slice::from_ref(other),
            };
            for tree in inner {
                places.push(self.trees.len());
                self.trees.push(tree);
            }
        }
        places
    }

    fn parts(&mut self, parts: &'a [Vec<ast::Expr>]) -> Vec<Vec<usize>> {
        parts.iter().map(|part| self.part(part)).collect()
    }
}

/// Each of one element's sets with each of the next one's.
fn product(elements: &[Vec<Vec<usize>>]) -> Result<Vec<Vec<usize>>> {
    let mut sets = vec![Vec::new()];
    for element in elements {
        if sets.len() * element.len() > SETS_MAX {
            return Err(too_many());
        }
        let with = |set: &Vec<usize>| element.iter().map(|more| [&set[..], more].concat()).collect::<Vec<_>>();
        sets = sets.iter().flat_map(with).collect();
    }
    Ok(sets)
}

/// Bound expressions without repetitions, and the sets as what they include of them.
pub(super) fn distinct_groups(bound: Vec<Bound>, sets: Option<Vec<Vec<usize>>>) -> (Vec<Bound>, Vec<Vec<bool>>) {
    let Some(sets) = sets else { return (bound, Vec::new()) };
    let mut groups: Vec<Bound> = Vec::with_capacity(bound.len());
    let mut places = Vec::with_capacity(bound.len());
    for one in bound {
        let same = |known: &Bound| format!("{:?}", known.expr) == format!("{:?}", one.expr);
        places.push(groups.iter().position(same).unwrap_or_else(|| {
            groups.push(one);
            groups.len() - 1
        }));
    }
    let included = |set: Vec<usize>| {
        let mut included = vec![false; groups.len()];
        set.into_iter().for_each(|tree| included[places[tree]] = true);
        included
    };
    let sets = sets.into_iter().map(included).collect();
    (groups, sets)
}

/// A call of GROUPING: which call's register it has, and the groups that it asks about.
pub(crate) type GroupingCall = (usize, Vec<usize>);

/// The value of GROUPING in a set: a bit for each group, the last the lowest, set where the group is not in the set.
pub(super) fn grouping_value(asked: &[usize], included: &[bool]) -> Value {
    let bit = |value: i32, group: &usize| value << 1 | i32::from(!included.get(*group).copied().unwrap_or(true));
    Value::Int4(asked.iter().fold(0, bit))
}

/// The arguments of a call of GROUPING.
pub(super) fn grouping_args(tree: &ast::Expr) -> Option<&[ast::FunctionArg]> {
    match tree {
        ast::Expr::Function(function)
            if function.over.is_none() && function.name.to_string().eq_ignore_ascii_case("grouping") =>
        {
            match &function.args {
                ast::FunctionArguments::List(list) => Some(&list.args),
                _ => None,
            }
        }
        _ => None,
    }
}

impl GroupScope<'_> {
    /// GROUPING(...), if it is a call of that: it gets the register of an aggregate, whose value its set decides.
    pub(super) fn grouping(&self, tree: &ast::Expr, params: &mut Params) -> Option<Result<Bound>> {
        grouping_args(tree).map(|args| self.grouping_call(args, params))
    }

    fn grouping_call(&self, args: &[ast::FunctionArg], params: &mut Params) -> Result<Bound> {
        let strange = || {
            let message = "arguments to GROUPING must be grouping expressions of the associated query level";
            Error::new(SqlState::GROUPING_ERROR, message)
        };
        if args.len() > 31 {
            let message = "GROUPING must have fewer than 32 arguments";
            return Err(Error::new(SqlState::from_code("54023"), message));
        }
        let mut asked = Vec::with_capacity(args.len());
        for arg in args {
            let ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(tree)) = arg else { return Err(strange()) };
            let group = expr::bind(tree, self.from as &dyn Scope, params).ok().and_then(|bound| self.group_of(&bound));
            asked.push(group.ok_or_else(|| match tree {
                ast::Expr::Identifier(ident) => at(strange(), ident.span),
                ast::Expr::CompoundIdentifier(idents) => idents.iter().take(1).fold(strange(), |e, i| at(e, i.span)),
                _ => strange(),
            })?);
        }
        let ty = ColumnType::new(Type::Int4);
        let call = AggregateCall {
            aggregate: Aggregate::CountAll,
            args: Vec::new(),
            distinct: false,
            filter: None,
            order: Vec::new(),
            ty,
        };
        let mut calls = self.calls.borrow_mut();
        calls.push(call);
        self.grouping_calls.borrow_mut().push((calls.len() - 1, asked));
        Ok(Bound { expr: Expr::Column(super::scope::CALL_BASE + calls.len() - 1), ty })
    }
}
