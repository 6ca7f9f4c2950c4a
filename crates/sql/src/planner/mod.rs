//! What is a FROM clause's plan? From its bound parts to a physical plan of least estimated cost.
//!
//! Conditions are brought into a form that says more (`normalize`), their shares of rows estimated (`estimate`), each table's rows
//! found in the cheapest way (`access`), and relations joined in the cheapest order (`order`).

mod access;
pub(crate) mod cost;
mod estimate;
mod normalize;
mod order;

use crate::bind::{Relation, SemiJoin, Source, Tree};
use crate::expr::{AggregateCall, Bound, CmpOp, Expr};
use crate::pipeline;
use crate::plan::{
    DerivedPlan, FilterPlan, HashJoinPlan, JoinKind, LoopPlan, MaterializePlan, Plan, ScanPlan, SeriesPlan, VirtualPlan,
};
use estimate::Estimates;
use homenode_types::{Error, Result, SqlState, Type};
use std::ops::Range;
use std::sync::Arc;

/// A set of relations of one FROM clause.
type Mask = u64;

/// Which kinds of steps may be planned: the settings enable_hashjoin, enable_nestloop and enable_indexscan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Methods {
    pub hash_join: bool,
    pub nested_loop: bool,
    pub index_scan: bool,
}

impl Default for Methods {
    fn default() -> Methods {
        Methods { hash_join: true, nested_loop: true, index_scan: true }
    }
}

/// A planned FROM clause.
pub(crate) struct Planned {
    pub plan: Plan,
    /// The scans of relations that were given a key register.
    pub locked: Vec<Arc<ScanPlan>>,
    /// Rows come in the wanted order.
    pub ordered: bool,
    /// How many groups they make.
    pub group_rows: f64,
}

/// Plans FROM and WHERE. `keys` names relations whose row keys go into registers; `order` is the order of rows that
/// would save a sort: expression, descending, nulls first; `groups` what the rows will be grouped by.
pub(crate) fn plan_from(
    from: crate::bind::From,
    conditions: Vec<Expr>,
    needed: &[bool],
    keys: &[(usize, usize)],
    order: &[(Expr, bool, bool)],
    groups: &[Expr],
    methods: Methods,
) -> Result<Planned> {
    if from.relations.len() > 64 {
        return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "more than 64 relations in one FROM clause"));
    }
    let conditions = crate::index_match::by_indexes(&from.relations, conditions);
    let mut needed = needed.to_vec();
    needed.resize(from.width, false);
    let relations = from.relations;
    let mut planner = Planner { relations, needed, keys, locked: Vec::new(), order, ordered: false, methods, depth: 0 };
    let conditions =
        normalize::normalize(conditions, &|expr| planner.mask(expr), &|register| planner.type_of(register));
    let on = from.semis.iter().flat_map(|semi| &semi.on);
    for condition in conditions.iter().chain(on) {
        planner.mark(condition);
    }
    for tree in from.trees.iter().chain(from.semis.iter().map(|semi| &semi.tree)) {
        planner.mark_tree(tree);
    }
    for number in 0..planner.relations.len() {
        planner.mark_arguments(number);
    }
    let plan = planner.join_all(from.trees, from.semis, conditions, 0)?;
    let kinds: f64 = groups.iter().map(|group| planner.estimates().distinct(group).max(1.0)).product();
    // As PostgreSQL does, at most a tenth of the rows where there are several columns to group by.
    let most = if groups.len() > 1 { (plan.rows() / 10.0).max(kinds.sqrt()) } else { plan.rows() };
    let group_rows = kinds.min(most).min(plan.rows()).max(1.0);
    Ok(Planned { plan, locked: planner.locked, ordered: planner.ordered, group_rows })
}

/// Whether an aggregate over `input` may be split into parts of the table.
pub(crate) fn parallel_aggregate(input: &Plan, groups: &[Bound], calls: &[AggregateCall]) -> bool {
    let plain = pipeline::is_safe;
    pipeline::source(input).is_some()
        && groups.iter().all(|group| plain(&group.expr))
        && calls.iter().all(|call| !call.distinct && call.order.is_empty() && call.exprs().all(plain))
}

struct Planner<'a> {
    relations: Vec<Relation>,
    needed: Vec<bool>,
    keys: &'a [(usize, usize)],
    locked: Vec<Arc<ScanPlan>>,
    order: &'a [(Expr, bool, bool)],
    ordered: bool,
    methods: Methods,
    /// How deep a search is within others that only estimate.
    depth: u32,
}

impl Planner<'_> {
    fn estimates(&self) -> Estimates<'_> {
        Estimates { relations: &self.relations }
    }

    /// The type of a stored table's column. Where an index has a condition, the query's conditions have to stay as they are written.
    fn type_of(&self, register: usize) -> Option<Type> {
        let relation = self.relations.iter().find(|relation| relation.registers().contains(&register))?;
        match &relation.source {
            Source::Table(table) if table.indexes.iter().all(|index| index.filter.is_none()) => {
                table.columns.get(register - relation.base).map(|column| column.ty.ty)
            }
            _ => None,
        }
    }

    fn mark(&mut self, expr: &Expr) {
        let needed = &mut self.needed;
        expr.visit_columns(&mut |register| {
            if let Some(flag) = needed.get_mut(register) {
                *flag = true;
            }
        });
    }

    fn mark_tree(&mut self, tree: &Tree) {
        match tree {
            Tree::Leaf(_) => {}
            Tree::Inner(left, right, on) | Tree::Left(left, right, on) | Tree::Full(left, right, on) => {
                on.iter().for_each(|condition| self.mark(condition));
                self.mark_tree(left);
                self.mark_tree(right);
            }
            Tree::Semi(tree, semis, below) => {
                self.mark_tree(tree);
                for semi in semis {
                    self.mark_tree(&semi.tree);
                }
                semis.iter().flat_map(|semi| &semi.on).chain(below).for_each(|condition| self.mark(condition));
            }
        }
    }

    fn mark_arguments(&mut self, number: usize) {
        let mut registers = Vec::new();
        visit_arguments(&self.relations[number].source, &mut |expr| {
            expr.visit_columns(&mut |register| registers.push(register))
        });
        for register in registers {
            if let Some(flag) = self.needed.get_mut(register) {
                *flag = true;
            }
        }
    }

    /// The relations whose columns an expression uses.
    fn mask(&self, expr: &Expr) -> Mask {
        let mut mask = 0;
        expr.visit_columns(&mut |register| {
            if let Some(number) = self.relations.iter().position(|relation| relation.registers().contains(&register)) {
                mask |= 1 << number;
            }
        });
        mask
    }

    /// The relations whose columns a tree's rows have.
    fn tree_mask(tree: &Tree) -> Mask {
        match tree {
            Tree::Leaf(number) => 1 << number,
            Tree::Inner(left, right, _) | Tree::Left(left, right, _) | Tree::Full(left, right, _) => {
                Self::tree_mask(left) | Self::tree_mask(right)
            }
            Tree::Semi(tree, ..) => Self::tree_mask(tree),
        }
    }

    /// What a tree's rows are computed from: its own relations, and all that its expressions use.
    fn used(&self, tree: &Tree) -> (Mask, Mask) {
        let mut used = 0;
        let (own, below): (Mask, Vec<(Mask, Mask)>) = match tree {
            Tree::Leaf(number) => {
                visit_arguments(&self.relations[*number].source, &mut |expr| used |= self.mask(expr));
                (1 << number, Vec::new())
            }
            Tree::Inner(left, right, on) | Tree::Left(left, right, on) | Tree::Full(left, right, on) => {
                on.iter().for_each(|condition| used |= self.mask(condition));
                (0, vec![self.used(left), self.used(right)])
            }
            Tree::Semi(tree, semis, conditions) => {
                semis.iter().flat_map(|semi| &semi.on).chain(conditions).for_each(|expr| used |= self.mask(expr));
                (0, semis.iter().map(|semi| &semi.tree).chain([&**tree]).map(|tree| self.used(tree)).collect())
            }
        };
        below.into_iter().fold((own, used), |(own, used), (more_own, more)| (own | more_own, used | more))
    }

    /// The relations that must be placed before this tree because it is computed from them.
    fn dependencies(&self, tree: &Tree) -> Mask {
        let (own, used) = self.used(tree);
        used & !own
    }

    /// The registers of relations that anybody reads.
    fn registers(&self, mask: Mask) -> Vec<Range<usize>> {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        let mut add = |register: usize| match ranges.last_mut() {
            Some(last) if last.end == register => last.end += 1,
            _ => ranges.push(register..register + 1),
        };
        for (number, relation) in self.relations.iter().enumerate() {
            if mask >> number & 1 == 1 {
                relation.registers().filter(|register| self.needed[*register]).for_each(&mut add);
                let keys = self.keys.iter().filter(|(owner, _)| *owner == number);
                keys.for_each(|(_, register)| add(*register));
            }
        }
        ranges
    }

    /// Joins trees of which all rows that satisfy the conditions are wanted; `placed` relations are known already.
    fn join_all(
        &mut self,
        trees: Vec<Tree>,
        semis: Vec<SemiJoin>,
        mut conditions: Vec<Expr>,
        placed: Mask,
    ) -> Result<Plan> {
        let mut items = Vec::new();
        for tree in trees {
            flatten(tree, &mut items, &mut conditions);
        }
        if items.is_empty() && semis.is_empty() {
            return Ok(filtered(Plan::Once, conditions));
        }
        if items.len() + semis.len() > 32 {
            return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "more than 32 relations are joined"));
        }
        let (plan, left) = order::Search::new(self, items, semis, conditions, placed).plan()?;
        Ok(filtered(plan, left))
    }

    /// Rows of a tree, for what is planned around it.
    fn tree_rows(&self, tree: &Tree) -> f64 {
        match tree {
            Tree::Leaf(number) => match &self.relations[*number].source {
                Source::Table(table) => estimate::table_rows(&self.relations[*number], table),
                Source::Derived { query, .. } => query.input.rows(),
                Source::Virtual(_) => 100.0,
                Source::Series { .. } => 1000.0,
            },
            Tree::Inner(left, right, _) | Tree::Full(left, right, _) => self.tree_rows(left).max(self.tree_rows(right)),
            Tree::Left(left, ..) | Tree::Semi(left, ..) => self.tree_rows(left),
        }
    }

    /// Plans one item alone; `conditions` are about it (and relations already placed).
    fn item(&mut self, item: Tree, conditions: Vec<Expr>, placed: Mask, only: bool) -> Result<Plan> {
        match item {
            Tree::Leaf(number) => self.leaf(number, conditions, placed, only),
            Tree::Inner(..) => self.join_all(vec![item], Vec::new(), conditions, placed),
            Tree::Semi(tree, semis, mut below) => {
                below.extend(conditions);
                self.join_all(vec![*tree], semis, below, placed)
            }
            Tree::Left(left, right, on) => {
                let (left_mask, right_mask) = (Self::tree_mask(&left), Self::tree_mask(&right));
                let (pushed, above): (Vec<Expr>, Vec<Expr>) =
                    conditions.into_iter().partition(|condition| self.mask(condition) & right_mask == 0);
                let left = self.join_all(vec![*left], Vec::new(), pushed, placed)?;
                let joined = self.outer_join(left, *right, on, placed | left_mask, JoinKind::Left)?;
                Ok(filtered(joined, above))
            }
            Tree::Full(left, right, on) => {
                let left_mask = Self::tree_mask(&left);
                let left = self.join_all(vec![*left], Vec::new(), Vec::new(), placed)?;
                let joined = self.outer_join(left, *right, on, placed | left_mask, JoinKind::Full)?;
                Ok(filtered(joined, conditions))
            }
        }
    }

    /// Joins a placed plan with the nullable side of an outer join.
    fn outer_join(
        &mut self,
        left: Plan,
        item: Tree,
        conditions: Vec<Expr>,
        placed: Mask,
        kind: JoinKind,
    ) -> Result<Plan> {
        let own = Self::tree_mask(&item);
        let share = self.estimates().share(conditions.iter());
        let pairs = left.rows() * self.tree_rows(&item) * share;
        let rows = if kind == JoinKind::Full {
            pairs.max(left.rows()).max(self.tree_rows(&item))
        } else {
            pairs.max(left.rows())
        };
        let equal = conditions.iter().any(|condition| self.equality(condition, own, placed).is_some());
        if kind != JoinKind::Full && self.wants_loop(&left, &item, &conditions, placed, equal) {
            // Every condition may be looked at by the inner side: a row it lets go is no match.
            let right = self.item(item, conditions, placed, false)?;
            return Ok(self.nested_loop(left, right, own, kind, Vec::new(), rows));
        }
        let (mut inner, mut both) = (Vec::new(), Vec::new());
        for condition in conditions {
            let alone = self.mask(&condition) & !own == 0 && kind != JoinKind::Full;
            if alone { inner.push(condition) } else { both.push(condition) }
        }
        let right = self.item(item, inner, 0, false)?;
        if equal {
            return self.hash_join(left, right, (placed, own), kind, both, rows);
        }
        if kind == JoinKind::Full {
            return Err(Error::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "FULL JOIN is only supported with merge-joinable or hash-joinable join conditions",
            ));
        }
        let right = self.kept(right, own);
        Ok(self.nested_loop(left, right, own, kind, both, rows))
    }

    /// The nullable side's rows for each row of the other; `own` are its relations.
    fn nested_loop(
        &self,
        left: Plan,
        right: Plan,
        own: Mask,
        kind: JoinKind,
        conditions: Vec<Expr>,
        rows: f64,
    ) -> Plan {
        let right_registers = self.registers(own);
        Plan::NestedLoop(Arc::new(LoopPlan { left, right, kind, conditions, right_registers, rows: rows.max(1.0) }))
    }

    /// A side that is gone through many times.
    fn kept(&self, input: Plan, own: Mask) -> Plan {
        Plan::Materialize(Arc::new(MaterializePlan { input, registers: self.registers(own) }))
    }

    /// A hash join by the equalities among the conditions; `sides` are the relations on the left and on the right.
    fn hash_join(
        &self,
        left: Plan,
        right: Plan,
        sides: (Mask, Mask),
        kind: JoinKind,
        crossing: Vec<Expr>,
        rows: f64,
    ) -> Result<Plan> {
        let (placed, own) = sides;
        let (mut keys, mut conditions) = (Vec::new(), Vec::new());
        for condition in crossing {
            match self.equality(&condition, own, placed) {
                Some(key) => keys.push(key),
                None => conditions.push(condition),
            }
        }
        if keys.is_empty() {
            return Err(Error::internal("a hash join without an equality"));
        }
        let (left_registers, right_registers) = (self.registers(placed), self.registers(own));
        let rows = rows.max(1.0);
        let plan = HashJoinPlan { left, right, kind, keys, conditions, left_registers, right_registers, rows };
        Ok(Plan::HashJoin(Arc::new(plan)))
    }

    /// Whether the nullable side is better looked up for each row of the other.
    fn wants_loop(&self, left: &Plan, item: &Tree, conditions: &[Expr], placed: Mask, equal: bool) -> bool {
        if self.dependencies(item) != 0 {
            return true;
        }
        let Tree::Leaf(number) = item else { return false };
        match &self.relations[*number].source {
            Source::Table(table) => {
                let looked_up = self.access(*number, table, conditions, placed);
                let disabled = |on: bool| if on { 0.0 } else { cost::DISABLED };
                let by_loop = left.rows() * looked_up.cost + disabled(self.methods.nested_loop);
                let alone: Vec<Expr> =
                    conditions.iter().filter(|c| self.mask(c) & !(1 << number) == 0).cloned().collect();
                let whole = self.access(*number, table, &alone, 0);
                let by_hash = cost::SETUP + whole.cost + whole.rows * cost::HASH_BUILD + left.rows() * cost::HASH_PROBE;
                let by_hash = if equal { by_hash + disabled(self.methods.hash_join) } else { f64::INFINITY };
                looked_up.uses_placed && by_loop < by_hash
            }
            Source::Virtual(_) => conditions.iter().any(|condition| {
                self.column_condition(*number, condition, placed).is_some_and(|(_, op, _)| op == CmpOp::Eq)
            }),
            _ => false,
        }
    }

    /// `left side = right side` of a join.
    fn equality(&self, condition: &Expr, own: Mask, placed: Mask) -> Option<(Expr, Expr)> {
        let (CmpOp::Eq, a, b) = access::as_comparison(condition)? else { return None };
        let (in_a, in_b) = (self.mask(a), self.mask(b));
        let is_own = |mask: Mask| mask != 0 && mask & !own == 0;
        let is_placed = |mask: Mask| mask != 0 && mask & !placed == 0;
        if is_placed(in_a) && is_own(in_b) {
            Some((a.clone(), b.clone()))
        } else if is_own(in_a) && is_placed(in_b) {
            Some((b.clone(), a.clone()))
        } else {
            None
        }
    }

    /// `column op value` of relation `number`, the value known from placed relations alone.
    fn column_condition<'e>(
        &self,
        number: usize,
        condition: &'e Expr,
        placed: Mask,
    ) -> Option<(usize, CmpOp, &'e Expr)> {
        let (op, a, b) = access::as_comparison(condition)?;
        let relation = &self.relations[number];
        let own = |expr: &Expr| match expr {
            Expr::Column(register) if relation.registers().contains(register) => Some(register - relation.base),
            _ => None,
        };
        let known = |expr: &Expr| self.mask(expr) & !placed == 0 && !expr.is_volatile();
        if let Some(column) = own(a).filter(|_| known(b)) {
            return Some((column, op, b));
        }
        own(b).filter(|_| known(a)).map(|column| (column, op.mirrored(), a))
    }

    fn leaf(&mut self, number: usize, conditions: Vec<Expr>, placed: Mask, only: bool) -> Result<Plan> {
        let lookup = match self.relations[number].source {
            Source::Virtual(_) => conditions.iter().find_map(|condition| {
                let (column, op, value) = self.column_condition(number, condition, placed)?;
                (op == CmpOp::Eq).then(|| (column, value.clone()))
            }),
            _ => None,
        };
        let relation = &mut self.relations[number];
        let (alias, base) = (relation.alias.clone(), relation.base);
        Ok(match &relation.source {
            Source::Table(table) => {
                let table = table.clone();
                return Ok(self.scan(number, table, conditions, placed, only));
            }
            Source::Virtual(table) => {
                Plan::Virtual(Arc::new(VirtualPlan { table, alias, base, filter: conditions, lookup }))
            }
            Source::Derived { query, outer, shared } => Plan::Derived(Arc::new(DerivedPlan {
                base,
                query: query.clone(),
                alias,
                outer: outer.clone(),
                filter: conditions,
                shared: *shared,
            })),
            Source::Series { kind, ordinality } => Plan::Series(Arc::new(SeriesPlan {
                base,
                kind: kind.clone(),
                filter: conditions,
                alias,
                ordinality: ordinality.then(|| base + relation.width - 1),
            })),
        })
    }
}

fn flatten(tree: Tree, items: &mut Vec<Tree>, conditions: &mut Vec<Expr>) {
    match tree {
        Tree::Inner(left, right, on) => {
            flatten(*left, items, conditions);
            flatten(*right, items, conditions);
            conditions.extend(on);
        }
        other => items.push(other),
    }
}

fn filtered(input: Plan, conditions: Vec<Expr>) -> Plan {
    if conditions.is_empty() { input } else { Plan::Filter(Arc::new(FilterPlan { input, conditions })) }
}

/// The expressions a FROM item is computed from.
fn visit_arguments(source: &Source, visit: &mut dyn FnMut(&Expr)) {
    match source {
        Source::Table(_) | Source::Virtual(_) => {}
        Source::Derived { outer, .. } => outer.iter().for_each(visit),
        Source::Series { kind, .. } => kind.exprs().into_iter().for_each(visit),
    }
}
