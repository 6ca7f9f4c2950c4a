//! In which order are relations joined, and how are their rows found? From a bound FROM clause to a physical plan.
//!
//! Joins are ordered greedily: next comes the relation that costs least given those already placed, syntactic order breaking
//! ties. Conditions move to the first place where their relations are known. Sizes come from the tables' page counts; there
//! are no column statistics.

use crate::bind::{Relation, Source, Tree};
use crate::expr::{AggregateCall, Bound, CmpOp, Expr, Volatility};
use crate::plan::{
    Access, DerivedPlan, End, FilterPlan, HashJoinPlan, JoinKind, LoopPlan, MaterializePlan, Plan, ScanPlan,
    SeriesPlan, VirtualPlan, selectivity,
};
use homenode_engine::Table;
use homenode_types::{Error, Result, SqlState};
use std::ops::Range;
use std::sync::Arc;

/// A set of relations of one FROM clause.
type Mask = u64;

/// Tables smaller than this many pages are aggregated by one worker: starting others costs more.
const PARALLEL_PAGES: u64 = 256;

/// Rows per page that estimates assume.
const ROWS_PER_PAGE: f64 = 100.0;

/// A planned FROM clause.
pub(crate) struct Planned {
    pub plan: Plan,
    /// The scans of relations that were given a key register.
    pub locked: Vec<Arc<ScanPlan>>,
    /// Rows come in the wanted order.
    pub ordered: bool,
}

/// Plans FROM and WHERE. `keys` names relations whose row keys go into registers; `order` is the order of rows that
/// would save a sort: expression, descending, nulls first.
pub(crate) fn plan_from(
    from: crate::bind::From,
    conditions: Vec<Expr>,
    needed: &[bool],
    keys: &[(usize, usize)],
    order: &[(Expr, bool, bool)],
) -> Result<Planned> {
    if from.relations.len() > 64 {
        return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "more than 64 relations in one FROM clause"));
    }
    let conditions = crate::index_match::by_indexes(&from.relations, conditions);
    let mut needed = needed.to_vec();
    needed.resize(from.width, false);
    let mut planner = Planner { relations: from.relations, needed, keys, locked: Vec::new(), order, ordered: false };
    for condition in &conditions {
        planner.mark(condition);
    }
    for tree in &from.trees {
        planner.mark_tree(tree);
    }
    for number in 0..planner.relations.len() {
        planner.mark_arguments(number);
    }
    let plan = planner.join_all(from.trees, conditions, 0)?;
    Ok(Planned { plan, locked: planner.locked, ordered: planner.ordered })
}

/// Whether an aggregate over `input` may be split into parts of the table.
pub(crate) fn parallel_aggregate(input: &Plan, groups: &[Bound], calls: &[AggregateCall]) -> bool {
    let Plan::Scan(scan) = input else { return false };
    let plain = parallel_safe;
    matches!(scan.access, Access::Full { .. })
        && scan.key_register.is_none()
        && scan.table.pages_estimate() >= PARALLEL_PAGES
        && scan.filter.iter().all(plain)
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
}

impl Planner<'_> {
    fn mark(&mut self, expr: &Expr) {
        let needed = &mut self.needed;
        expr.visit_columns(&mut |register| {
            if let Some(flag) = needed.get_mut(register) {
                *flag = true;
            }
        });
    }

    fn mark_tree(&mut self, tree: &Tree) {
        if let Tree::Inner(left, right, on) | Tree::Left(left, right, on) | Tree::Full(left, right, on) = tree {
            on.iter().for_each(|condition| self.mark(condition));
            self.mark_tree(left);
            self.mark_tree(right);
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

    fn tree_mask(tree: &Tree) -> Mask {
        match tree {
            Tree::Leaf(number) => 1 << number,
            Tree::Inner(left, right, _) | Tree::Left(left, right, _) | Tree::Full(left, right, _) => {
                Self::tree_mask(left) | Self::tree_mask(right)
            }
        }
    }

    /// The relations that must be placed before this tree because it is lateral.
    fn dependencies(&self, tree: &Tree) -> Mask {
        let own = Self::tree_mask(tree);
        let mut mask = 0;
        for (number, relation) in self.relations.iter().enumerate() {
            if own >> number & 1 == 1 {
                visit_arguments(&relation.source, &mut |expr| mask |= self.mask(expr));
            }
        }
        mask & !own
    }

    fn registers(&self, mask: Mask) -> Vec<Range<usize>> {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for (number, relation) in self.relations.iter().enumerate() {
            if mask >> number & 1 == 1 {
                ranges.push(relation.registers());
                ranges.extend(
                    self.keys
                        .iter()
                        .filter(|(owner, _)| *owner == number)
                        .map(|(_, register)| *register..*register + 1),
                );
            }
        }
        ranges
    }

    /// Joins trees of which all rows that satisfy the conditions are wanted; `placed` relations are known already.
    fn join_all(&mut self, trees: Vec<Tree>, mut conditions: Vec<Expr>, placed: Mask) -> Result<Plan> {
        let mut items = Vec::new();
        for tree in trees {
            flatten(tree, &mut items, &mut conditions);
        }
        let single = items.len() == 1;
        let (mut done, mut plan): (Mask, Option<Plan>) = (placed, None);
        while !items.is_empty() {
            let next = self.cheapest(&items, &conditions, done)?;
            let item = items.remove(next);
            let own = Self::tree_mask(&item);
            let (usable, rest): (Vec<Expr>, Vec<Expr>) = conditions.into_iter().partition(|condition| {
                let mask = self.mask(condition);
                mask & own != 0 && mask & !(own | done) == 0
            });
            conditions = rest;
            plan = Some(match plan {
                None => self.item(item, usable, done, single)?,
                Some(left) => self.join(left, item, usable, done, JoinKind::Inner)?,
            });
            done |= own;
        }
        let plan = plan.unwrap_or(Plan::Once);
        Ok(filtered(plan, conditions))
    }

    /// Which item to place next.
    fn cheapest(&self, items: &[Tree], conditions: &[Expr], done: Mask) -> Result<usize> {
        let mut best: Option<(f64, usize)> = None;
        for (place, item) in items.iter().enumerate() {
            if self.dependencies(item) & !done != 0 {
                continue;
            }
            let own = Self::tree_mask(item);
            let connected = conditions.iter().any(|condition| {
                let mask = self.mask(condition);
                mask & own != 0 && mask & done != 0 && mask & !(own | done) == 0
            });
            let mut cost = self.size(item, conditions, done);
            if done != 0 && !connected {
                cost *= 1e6;
            }
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, place));
            }
        }
        best.map(|(_, place)| place).ok_or_else(|| Error::internal("lateral items depend on each other"))
    }

    fn size(&self, item: &Tree, conditions: &[Expr], done: Mask) -> f64 {
        match item {
            Tree::Leaf(number) => match &self.relations[*number].source {
                Source::Table(table) => {
                    let own = 1 << number;
                    let usable: Vec<Expr> = conditions
                        .iter()
                        .filter(|condition| self.mask(condition) & !(own | done) == 0)
                        .cloned()
                        .collect();
                    self.access(*number, table, &usable, done).rows
                }
                Source::Virtual(_) => 100.0,
                Source::Derived { query, .. } => query.input.rows(),
                Source::Series { .. } => 1000.0,
            },
            Tree::Inner(left, ..) | Tree::Left(left, ..) | Tree::Full(left, ..) => {
                self.size(left, &[], done).max(1000.0)
            }
        }
    }

    /// Plans one item alone; `conditions` are about it (and relations already placed).
    fn item(&mut self, item: Tree, conditions: Vec<Expr>, placed: Mask, only: bool) -> Result<Plan> {
        match item {
            Tree::Leaf(number) => self.leaf(number, conditions, placed, only),
            Tree::Inner(..) => self.join_all(vec![item], conditions, placed),
            Tree::Left(left, right, on) => {
                let (left_mask, right_mask) = (Self::tree_mask(&left), Self::tree_mask(&right));
                let (pushed, above): (Vec<Expr>, Vec<Expr>) =
                    conditions.into_iter().partition(|condition| self.mask(condition) & right_mask == 0);
                let left = self.join_all(vec![*left], pushed, placed)?;
                let joined = self.join(left, *right, on, placed | left_mask, JoinKind::Left)?;
                Ok(filtered(joined, above))
            }
            Tree::Full(left, right, on) => {
                let left_mask = Self::tree_mask(&left);
                let left = self.join_all(vec![*left], Vec::new(), placed)?;
                let joined = self.join(left, *right, on, placed | left_mask, JoinKind::Full)?;
                Ok(filtered(joined, conditions))
            }
        }
    }

    /// Joins a placed plan with the next item.
    fn join(&mut self, left: Plan, item: Tree, conditions: Vec<Expr>, placed: Mask, kind: JoinKind) -> Result<Plan> {
        let own = Self::tree_mask(&item);
        let right_registers = self.registers(own);
        if kind != JoinKind::Full && self.wants_loop(&left, &item, &conditions, placed) {
            // Every condition may be looked at by the inner side: a row it lets go is no match.
            let right = self.item(item, conditions, placed, false)?;
            let plan = LoopPlan { left, right, kind, conditions: Vec::new(), right_registers };
            return Ok(Plan::NestedLoop(Arc::new(plan)));
        }
        let (mut keys, mut both, mut inner) = (Vec::new(), Vec::new(), Vec::new());
        for condition in conditions {
            let mask = self.mask(&condition);
            if mask & !own == 0 && kind != JoinKind::Full {
                inner.push(condition);
                continue;
            }
            match self.equality(&condition, own, placed) {
                Some(key) => keys.push(key),
                None => both.push(condition),
            }
        }
        let right = self.item(item, inner, 0, false)?;
        if keys.is_empty() {
            if kind == JoinKind::Full {
                return Err(Error::new(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    "FULL JOIN is only supported with merge-joinable or hash-joinable join conditions",
                ));
            }
            let right =
                Plan::Materialize(Arc::new(MaterializePlan { input: right, registers: right_registers.clone() }));
            let plan = LoopPlan { left, right, kind, conditions: both, right_registers };
            return Ok(Plan::NestedLoop(Arc::new(plan)));
        }
        let left_registers = self.registers(placed);
        let plan = HashJoinPlan { left, right, kind, keys, conditions: both, left_registers, right_registers };
        Ok(Plan::HashJoin(Arc::new(plan)))
    }

    /// Whether the item is better looked up for each row of the left side.
    fn wants_loop(&self, left: &Plan, item: &Tree, conditions: &[Expr], placed: Mask) -> bool {
        if self.dependencies(item) != 0 {
            return true;
        }
        let Tree::Leaf(number) = item else { return false };
        match &self.relations[*number].source {
            Source::Table(table) => {
                let access = self.access(*number, table, conditions, placed);
                let found = access.uses_placed;
                let size = table.pages_estimate() as f64 * ROWS_PER_PAGE;
                found && left.rows() * access.rows < size.max(100.0)
            }
            Source::Virtual(_) => conditions.iter().any(|condition| {
                self.column_condition(*number, condition, placed).is_some_and(|(_, op, _)| op == CmpOp::Eq)
            }),
            _ => false,
        }
    }

    /// `left side = right side` of a join.
    fn equality(&self, condition: &Expr, own: Mask, placed: Mask) -> Option<(Expr, Expr)> {
        let (CmpOp::Eq, a, b) = as_comparison(condition)? else { return None };
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
        let (op, a, b) = as_comparison(condition)?;
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

    fn scan(&mut self, number: usize, table: Arc<Table>, conditions: Vec<Expr>, placed: Mask, only: bool) -> Plan {
        let mut chosen = self.access(number, &table, &conditions, placed);
        let relation = &self.relations[number];
        let (base, alias, registers) = (relation.base, relation.alias.clone(), relation.registers());
        if only && self.relations.len() == 1 && !self.order.is_empty() {
            self.ordered = give_order(&table, base, &mut chosen.access, self.order);
        }
        let needed = (0..table.columns.len()).filter(|column| self.needed[registers.start + column]).collect();
        let key_register = self.keys.iter().find(|(owner, _)| *owner == number).map(|(_, register)| *register);
        let mut filter: Vec<Expr> = conditions
            .iter()
            .enumerate()
            .filter(|(place, _)| !chosen.used.contains(place))
            .map(|(_, condition)| condition.clone())
            .collect();
        filter.sort_by_key(|condition| condition.any(&|part| matches!(part, Expr::External(_))));
        let rows = (chosen.rows * selectivity(&filter)).max(1.0);
        let scan = Arc::new(ScanPlan {
            table,
            alias,
            base,
            needed,
            access: chosen.access,
            filter,
            conditions,
            key_register,
            rows,
        });
        if key_register.is_some() {
            self.locked.push(scan.clone());
        }
        Plan::Scan(scan)
    }

    /// The best access path of a table under conditions.
    fn access(&self, number: usize, table: &Table, conditions: &[Expr], placed: Mask) -> Choice {
        let size = (table.pages_estimate() as f64 * ROWS_PER_PAGE).max(1.0);
        let mut best =
            Choice { access: Access::Full { reverse: false }, used: Vec::new(), rows: size, uses_placed: false };
        let keys = table.primary_key.iter().map(|key| (None, &key.columns, true)).chain(
            table.indexes.iter().enumerate().filter_map(|(at, index)| {
                let serves = crate::index_match::serves(table, index, conditions, self.relations[number].base);
                serves.then_some((Some(at), &index.columns, index.unique))
            }),
        );
        for (index, columns, unique) in keys {
            if let Some(choice) = self.by_key(number, index, columns, unique, conditions, placed, size)
                && choice.rows < best.rows
            {
                best = choice;
            }
        }
        best
    }

    #[allow(clippy::too_many_arguments, reason = "one key and what it is judged by")]
    fn by_key(
        &self,
        number: usize,
        index: Option<usize>,
        columns: &[usize],
        unique: bool,
        conditions: &[Expr],
        placed: Mask,
        size: f64,
    ) -> Option<Choice> {
        let (mut equal, mut used, mut uses_placed) = (Vec::new(), Vec::new(), false);
        let usable: Vec<(usize, usize, CmpOp, &Expr)> = conditions
            .iter()
            .enumerate()
            .filter_map(|(place, condition)| {
                self.column_condition(number, condition, placed).map(|(column, op, value)| (place, column, op, value))
            })
            .collect();
        for &column in columns {
            let Some((place, _, _, value)) =
                usable.iter().find(|(_, found, op, _)| *found == column && *op == CmpOp::Eq)
            else {
                break;
            };
            uses_placed |= self.mask(value) != 0;
            equal.push((*value).clone());
            used.push(*place);
        }
        if unique && equal.len() == columns.len() {
            return Some(Choice { access: Access::Point { index, keys: equal }, used, rows: 1.0, uses_placed });
        }
        let next = columns.get(equal.len());
        let mut ends: [Option<End>; 2] = [None, None];
        for (place, column, op, value) in &usable {
            let side = match op {
                CmpOp::Gt | CmpOp::Ge => 0,
                CmpOp::Lt | CmpOp::Le => 1,
                _ => continue,
            };
            if Some(column) == next && ends[side].is_none() {
                uses_placed |= self.mask(value) != 0;
                ends[side] = Some(End { value: (*value).clone(), inclusive: matches!(op, CmpOp::Ge | CmpOp::Le) });
                used.push(*place);
            }
        }
        let [lower, upper] = ends;
        let share = match (lower.is_some(), upper.is_some()) {
            (true, true) => 0.005,
            (false, false) => 1.0,
            _ => 0.33,
        };
        if equal.is_empty() && lower.is_none() && upper.is_none() {
            return self.by_list(number, index, columns, unique, conditions, size, placed);
        }
        let leading =
            if equal.is_empty() { size } else { (size / 1000.0_f64.powi(equal.len() as i32)).max(10.0).min(size) };
        // The primary key holds the rows themselves; through an index each row is a look-up more.
        let penalty = if index.is_some() { 1.5 } else { 1.0 };
        let rows = (leading * share * penalty).max(2.0);
        Some(Choice { access: Access::Range { index, equal, lower, upper, reverse: false }, used, rows, uses_placed })
    }

    #[allow(clippy::too_many_arguments, reason = "one key and what it is judged by")]
    fn by_list(
        &self,
        number: usize,
        index: Option<usize>,
        columns: &[usize],
        unique: bool,
        conditions: &[Expr],
        size: f64,
        placed: Mask,
    ) -> Option<Choice> {
        let relation = &self.relations[number];
        let first = relation.base + *columns.first()?;
        for (place, condition) in conditions.iter().enumerate() {
            let Some((Expr::Column(register), values)) = as_in_list(condition) else { continue };
            let known = |value: &Expr| self.mask(value) & !placed == 0 && !value.is_volatile();
            if *register == first && values.iter().all(known) {
                let each = if unique && columns.len() == 1 { 1.0 } else { (size / 1000.0).max(10.0) };
                let rows = values.len() as f64 * each;
                let uses_placed = values.iter().any(|value| self.mask(value) != 0);
                let access = Access::List { index, values: values.to_vec() };
                return Some(Choice { access, used: vec![place], rows, uses_placed });
            }
        }
        None
    }
}

/// A comparison whose sides agree on whether trailing blanks count, as a key's order does.
fn as_comparison(expr: &Expr) -> Option<(CmpOp, &Expr, &Expr)> {
    match expr {
        Expr::Compare { op, left, right, blanks } if blanks.left == blanks.right => Some((*op, left, right)),
        _ => None,
    }
}

fn as_in_list(expr: &Expr) -> Option<(&Expr, &[Expr])> {
    match expr {
        Expr::InList { expr, list, blanks, negated: false } if blanks.left == blanks.right => Some((expr, list)),
        _ => None,
    }
}

/// Whether another thread may evaluate it: no session, no subquery, no column of a query around.
fn parallel_safe(expr: &Expr) -> bool {
    !expr.any(&|part| match part {
        Expr::External(_) | Expr::Outer(_) => true,
        Expr::Call { function, .. } => function.volatility != Volatility::Immutable,
        Expr::Cast { from, to, .. } => from.is_oid_like() || to.ty.is_oid_like(),
        _ => false,
    })
}

struct Choice {
    access: Access,
    /// The conditions that the access guarantees.
    used: Vec<usize>,
    rows: f64,
    /// Its keys come from relations already placed.
    uses_placed: bool,
}

/// Sets the direction of the access so that rows come in the wanted order, if they can.
fn give_order(table: &Table, base: usize, access: &mut Access, order: &[(Expr, bool, bool)]) -> bool {
    let (index, fixed) = match access {
        Access::Point { .. } => return true,
        Access::List { .. } => return false,
        Access::Full { .. } => (None, 0),
        Access::Range { index, equal, .. } => (*index, equal.len()),
    };
    let columns = match index {
        Some(at) => &table.indexes[at].columns,
        None => match &table.primary_key {
            Some(key) => &key.columns,
            None => return false,
        },
    };
    let backwards = order[0].1;
    let mut wanted = columns[fixed..].iter();
    for (value, descending, nulls_first) in order {
        let Expr::Column(register) = value else { return false };
        // A column that the access holds equal sorts nothing.
        if columns[..fixed].iter().any(|column| base + column == *register) {
            continue;
        }
        let Some(column) = wanted.next() else { return index.is_none() };
        let nulls_fit = nulls_first == descending || table.columns[*column].not_null;
        if base + column != *register || *descending != backwards || !nulls_fit {
            return false;
        }
    }
    if let Access::Full { reverse } | Access::Range { reverse, .. } = access {
        *reverse = backwards;
    }
    true
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
