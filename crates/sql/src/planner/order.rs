//! In which order are relations joined, and how? Dynamic programming over sets of FROM's items (Selinger et al., "Access path
//! selection in a relational database management system", SIGMOD 1979), bushy trees included; beyond ten items the next is always the
//! one that costs least.

use super::{Mask, Planner, cost};
use crate::bind::{SemiJoin, Source, Tree};
use crate::expr::Expr;
use crate::plan::{JoinKind, Plan};
use homenode_types::{Error, Result};
use std::collections::HashMap;

/// A set of items, by their places.
type Set = u32;

/// Most items whose every order is looked at.
const EXHAUSTIVE: usize = 10;

/// Joins within joins are searched for an estimate down to here: each level is searched twice.
const MAX_ESTIMATED: u32 = 4;

/// An item of FROM, as the search sees it.
pub(super) struct Item {
    pub tree: Tree,
    /// Semi or anti: its rows only decide which rows of the others stay. Its join conditions are then among the conditions.
    pub kind: JoinKind,
    /// Its relations.
    own: Mask,
    /// Relations that have to be there before it.
    needs: Mask,
    rows: f64,
    cost: f64,
}

/// The best way to a set found so far.
#[derive(Clone)]
struct Way {
    cost: f64,
    how: How,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    Single(usize),
    /// The right set in a hash table.
    Hash(Set, Set),
    /// The right item looked up, or looked through, for each row of the left set.
    Lookup(Set, usize),
    /// The right set kept, and looked through for each row of the left set.
    Kept(Set, Set),
}

/// What is known of a condition.
struct Known {
    mask: Mask,
    items: Set,
    share: f64,
    /// Its sides, when it is an equality of two sets of relations.
    sides: Option<(Mask, Mask)>,
}

pub(super) struct Search<'p, 'a> {
    planner: &'p mut Planner<'a>,
    items: Vec<Item>,
    conditions: Vec<Expr>,
    known: Vec<Known>,
    /// Conditions with a subquery to be run for each row: looked at when the others have left few rows.
    held: Vec<Expr>,
    placed: Mask,
    /// Of pairs of items: the share of all pairs of rows that are joined.
    pairs: HashMap<(usize, usize), f64>,
    rows: HashMap<Set, f64>,
    /// Rows and cost of one look-up of an item, by what it is looked up with.
    lookups: HashMap<(usize, Mask), Option<(f64, f64)>>,
}

impl<'p, 'a> Search<'p, 'a> {
    /// `conditions` are all conditions on the items; those of semi-joins among them.
    pub fn new(
        planner: &'p mut Planner<'a>,
        trees: Vec<Tree>,
        semis: Vec<SemiJoin>,
        mut conditions: Vec<Expr>,
        placed: Mask,
    ) -> Search<'p, 'a> {
        let mut items: Vec<Item> = Vec::new();
        let item = |planner: &Planner<'_>, tree: Tree, kind| {
            let own = Planner::tree_mask(&tree);
            let needs = planner.dependencies(&tree) & !placed;
            Item { tree, kind, own, needs, rows: 0.0, cost: 0.0 }
        };
        items.extend(trees.into_iter().map(|tree| item(planner, tree, JoinKind::Inner)));
        for semi in semis {
            let mut found = item(planner, semi.tree, if semi.anti { JoinKind::Anti } else { JoinKind::Semi });
            for condition in &semi.on {
                found.needs |= planner.mask(condition) & !found.own & !placed;
            }
            conditions.extend(semi.on);
            items.push(found);
        }
        let dear =
            |condition: &Expr| condition.any(&|part| matches!(part, Expr::External(query) if query.is_correlated()));
        let (held, conditions) = conditions.into_iter().partition(|condition| items.len() > 1 && dear(condition));
        let mut search = Search {
            planner,
            items,
            known: Vec::new(),
            held,
            conditions,
            placed,
            pairs: HashMap::new(),
            rows: HashMap::new(),
            lookups: HashMap::new(),
        };
        search.learn();
        search
    }

    /// The plan, and the conditions that it does not look at: those without columns of its own.
    pub fn plan(mut self) -> Result<(Plan, Vec<Expr>)> {
        let all: Set = ((1_u64 << self.items.len()) - 1) as Set;
        let ways = if self.items.len() <= EXHAUSTIVE { self.exhaustive(all) } else { self.greedy(all) };
        if !ways.contains_key(&all) {
            return Err(Error::internal("items of FROM depend on each other"));
        }
        let only = self.items.len() == 1;
        let plan = self.build(&ways, all, only)?;
        let placed = self.placed;
        let own: Mask = self.items.iter().fold(0, |mask, item| mask | item.own);
        // Those without columns of its own, and those that wait for relations placed later.
        let left = |known: &Known| known.mask & own == 0 || known.mask & !(own | placed) != 0;
        let left = self.conditions.into_iter().zip(&self.known).filter(|(_, known)| left(known));
        let left = left.map(|(condition, _)| condition).chain(self.held).collect();
        Ok((plan, left))
    }

    fn learn(&mut self) {
        let of_items = |mask: Mask, items: &[Item]| {
            let places = items.iter().enumerate().filter(|(_, item)| item.own & mask != 0);
            places.fold(0, |set: Set, (place, _)| set | 1 << place)
        };
        for condition in &self.conditions {
            let mask = self.planner.mask(condition);
            let share = self.planner.estimates().share(std::iter::once(condition));
            let sides = super::access::as_comparison(condition)
                .filter(|(op, ..)| *op == crate::expr::CmpOp::Eq)
                .map(|(_, a, b)| (self.planner.mask(a), self.planner.mask(b)));
            self.known.push(Known { mask, items: of_items(mask, &self.items), share, sides });
        }
        for place in 0..self.items.len() {
            let (rows, cost) = self.alone(place);
            (self.items[place].rows, self.items[place].cost) = (rows, cost);
        }
        for a in 0..self.items.len() {
            for b in a + 1..self.items.len() {
                if let Some(share) = self.pair(a, b) {
                    self.pairs.insert((a, b), share);
                }
            }
        }
    }

    /// The conditions on one item alone (and relations placed before).
    fn own_conditions(&self, place: usize) -> Vec<Expr> {
        let allowed = self.items[place].own | self.placed;
        let own = |known: &Known| known.mask & self.items[place].own != 0 && known.mask & !allowed == 0;
        self.conditions
            .iter()
            .zip(&self.known)
            .filter(|(_, known)| own(known))
            .map(|(condition, _)| condition.clone())
            .collect()
    }

    /// Rows and cost of an item by itself.
    fn alone(&mut self, place: usize) -> (f64, f64) {
        let conditions = self.own_conditions(place);
        if matches!(self.items[place].tree, Tree::Inner(..) | Tree::Semi(..)) && self.planner.depth < MAX_ESTIMATED {
            return self.searched(place, conditions);
        }
        let item = &self.items[place];
        match &item.tree {
            Tree::Leaf(number) => match &self.planner.relations[*number].source {
                Source::Table(table) => {
                    let choice = self.planner.access(*number, table, &conditions, self.placed);
                    (choice.rows, choice.cost)
                }
                Source::Derived { query, .. } => {
                    let rows = query.input.rows() * self.planner.estimates().share(conditions.iter());
                    (rows.max(1e-3), query.input.cost())
                }
                Source::Virtual(_) => (100.0 * 0.2_f64.powi(conditions.len().min(4) as i32), 200.0),
                Source::Series { .. } => (1000.0 * 0.3_f64.powi(conditions.len().min(4) as i32), 1000.0),
            },
            Tree::Inner(left, ..) | Tree::Left(left, ..) | Tree::Full(left, ..) | Tree::Semi(left, ..) => {
                // As many rows as its first side, which an outer join keeps.
                let rows = self.planner.tree_rows(left) * self.planner.estimates().share(conditions.iter());
                (rows.max(1.0), 4.0 * self.planner.tree_rows(&item.tree))
            }
        }
    }

    /// Rows and cost of an item that is a join itself.
    fn searched(&mut self, place: usize, mut conditions: Vec<Expr>) -> (f64, f64) {
        let placed = self.placed | self.items[place].needs;
        let (mut trees, mut semis) = (Vec::new(), Vec::new());
        match self.items[place].tree.clone() {
            Tree::Semi(tree, found, below) => {
                semis = found;
                conditions.extend(below);
                super::flatten(*tree, &mut trees, &mut conditions);
            }
            other => super::flatten(other, &mut trees, &mut conditions),
        }
        self.planner.depth += 1;
        let mut search = Search::new(self.planner, trees, semis, conditions, placed);
        let all: Set = ((1_u64 << search.items.len()) - 1) as Set;
        let ways = if search.items.len() <= EXHAUSTIVE { search.exhaustive(all) } else { search.greedy(all) };
        let found = (search.rows_of(all), ways.get(&all).map_or(cost::DISABLED, |way| way.cost));
        self.planner.depth -= 1;
        found
    }

    /// The share of two items' pairs of rows that their common conditions let through.
    fn pair(&self, a: usize, b: usize) -> Option<f64> {
        let both: Set = 1 << a | 1 << b;
        let between: Vec<usize> = (0..self.known.len()).filter(|at| self.known[*at].items == both).collect();
        if between.is_empty() {
            return None;
        }
        let mut share: f64 = between.iter().map(|at| self.join_share(*at, a, b)).product();
        // Columns that together are a key of one side, or that refer to one: each row of the other has one partner.
        for one in [a, b] {
            let Tree::Leaf(number) = self.items[one].tree else { continue };
            let Source::Table(table) = &self.planner.relations[number].source else { continue };
            let base = self.planner.relations[number].base;
            let joined = |column: usize| {
                between.iter().any(|at| match super::access::as_comparison(&self.conditions[*at]) {
                    Some((crate::expr::CmpOp::Eq, left, right)) => {
                        let is = |expr: &Expr| matches!(expr, Expr::Column(register) if *register == base + column);
                        is(left) || is(right)
                    }
                    _ => false,
                })
            };
            let unique = table.primary_key.iter().map(|key| &key.columns);
            let unique = unique.chain(
                table.indexes.iter().filter(|index| index.unique && index.filter.is_none()).map(|index| &index.columns),
            );
            if unique.into_iter().any(|columns| columns.iter().all(|column| joined(*column))) {
                let rows = super::estimate::table_rows(&self.planner.relations[number], table);
                share = share.max(1.0 / rows.max(1.0)).min(1.0);
            }
        }
        Some(share)
    }

    /// Of an equality: one in as many as the side with more different values has, which has no more than rows.
    fn join_share(&self, at: usize, a: usize, b: usize) -> f64 {
        let Some((left, right)) = self.known[at].sides else { return self.known[at].share };
        let Some((_, left_expr, right_expr)) = super::access::as_comparison(&self.conditions[at]) else {
            return self.known[at].share;
        };
        if left & right != 0 || left == 0 || right == 0 {
            return self.known[at].share;
        }
        let estimates = self.planner.estimates();
        let rows_of = |mask: Mask| if mask & self.items[a].own != 0 { self.items[a].rows } else { self.items[b].rows };
        let distinct = |expr: &Expr, mask: Mask| {
            let all = estimates.distinct(expr);
            // What a filter leaves of a key's values; of values that occur often it leaves most.
            let leaf = self.items.iter().find(|item| item.own == mask);
            match leaf {
                Some(Item { tree: Tree::Leaf(_), .. }) if all > rows_of(mask) => rows_of(mask).max(1.0),
                _ => all,
            }
        };
        let (x, y) = (estimates.distinct(left_expr), estimates.distinct(right_expr));
        // A filtered side has fewer values; the other's rows with values that are gone find nothing.
        x.max(y).max(distinct(left_expr, left)).max(distinct(right_expr, right)).max(1.0).recip()
    }

    /// How many rows the join of a set has, whatever the order.
    fn rows_of(&mut self, set: Set) -> f64 {
        if let Some(rows) = self.rows.get(&set) {
            return *rows;
        }
        let members = |set: Set| (0..32_usize).filter(move |place| set >> place & 1 == 1);
        let mut rows: f64 = 1.0;
        let inner =
            members(set).filter(|place| self.items[*place].kind == JoinKind::Inner).fold(0, |s: Set, p| s | 1 << p);
        for place in members(inner) {
            rows *= self.items[place].rows;
        }
        for ((a, b), share) in &self.pairs {
            let both: Set = 1 << a | 1 << b;
            if both & !inner == 0 {
                rows *= share;
            }
        }
        for known in &self.known {
            if known.items.count_ones() > 2 && known.items & !inner == 0 {
                rows *= known.share;
            }
        }
        for place in members(set & !inner) {
            rows *= self.kept_share(place, set);
        }
        let rows = rows.max(1e-3);
        self.rows.insert(set, rows);
        rows
    }

    /// The share of rows that a semi- or anti-join keeps.
    fn kept_share(&self, place: usize, set: Set) -> f64 {
        let mut share: f64 = 1.0;
        let mut keyed = false;
        for (at, known) in self.known.iter().enumerate() {
            if known.items >> place & 1 == 0 || known.items.count_ones() < 2 || known.items & !set != 0 {
                continue;
            }
            let Some((_, left, right)) =
                super::access::as_comparison(&self.conditions[at]).filter(|_| known.sides.is_some())
            else {
                share *= 0.7;
                continue;
            };
            let own_left = self.planner.mask(left) & self.items[place].own != 0;
            let (own, other) = if own_left { (left, right) } else { (right, left) };
            let estimates = self.planner.estimates();
            let (inside, outside) = (estimates.distinct(own).min(self.items[place].rows), estimates.distinct(other));
            share *= (inside / outside.max(1.0)).min(1.0);
            keyed = true;
        }
        if !keyed {
            share *= 0.5;
        }
        match self.items[place].kind {
            JoinKind::Anti => (1.0 - share).clamp(0.02, 1.0),
            _ => share.clamp(1e-6, 1.0),
        }
    }

    fn exhaustive(&mut self, all: Set) -> HashMap<Set, Way> {
        let mut ways: HashMap<Set, Way> = HashMap::new();
        for place in 0..self.items.len() {
            ways.insert(1 << place, Way { cost: self.items[place].cost, how: How::Single(place) });
        }
        for set in 1..=all {
            if set.count_ones() < 2 {
                continue;
            }
            // Pairs without a common condition only if there is no other way to this set.
            for products in [false, true] {
                let mut left = (set - 1) & set;
                while left > 0 {
                    self.offer(&mut ways, left, set & !left, products);
                    left = (left - 1) & set;
                }
                if ways.contains_key(&set) {
                    break;
                }
            }
        }
        ways
    }

    fn greedy(&mut self, all: Set) -> HashMap<Set, Way> {
        let mut ways: HashMap<Set, Way> = HashMap::new();
        for place in 0..self.items.len() {
            ways.insert(1 << place, Way { cost: self.items[place].cost, how: How::Single(place) });
        }
        let startable = |item: &Item| item.kind == JoinKind::Inner && item.needs == 0;
        let start = (0..self.items.len()).filter(|place| startable(&self.items[*place]));
        let Some(start) = start.min_by(|a, b| self.items[*a].rows.total_cmp(&self.items[*b].rows)) else { return ways };
        let mut done: Set = 1 << start;
        while done != all {
            let mut best: Option<(f64, Set)> = None;
            for products in [false, true] {
                for place in (0..self.items.len()).filter(|place| done >> place & 1 == 0) {
                    let set = done | 1 << place;
                    self.offer(&mut ways, done, 1 << place, products);
                    if let Some(way) = ways.get(&set) {
                        let cost = way.cost + self.rows_of(set);
                        if best.is_none_or(|(least, _)| cost < least) {
                            best = Some((cost, set));
                        }
                    }
                }
                if best.is_some() {
                    break;
                }
            }
            let Some((_, set)) = best else { break };
            done = set;
        }
        ways
    }

    /// Looks at the joins of two sets, the first one outside.
    fn offer(&mut self, ways: &mut HashMap<Set, Way>, left: Set, right: Set, products: bool) {
        let (Some(outer), Some(inner)) = (ways.get(&left), ways.get(&right)) else { return };
        let (outer_cost, inner_cost) = (outer.cost, inner.cost);
        let single = right.count_ones() == 1;
        let place = right.trailing_zeros() as usize;
        let first = &self.items[left.trailing_zeros() as usize];
        if left.count_ones() == 1 && (first.kind != JoinKind::Inner || first.needs != 0) {
            return;
        }
        let there = self.mask_of(left) | self.placed;
        let waits = single && self.items[place].needs & !there != 0;
        // What depends on others is joined by itself, when they are there.
        let dependent = |item: &Item| item.kind != JoinKind::Inner || item.needs != 0;
        if waits {
            return;
        }
        let lateral = single && self.planner.dependencies(&self.items[place].tree) & !self.placed != 0;
        let set = left | right;
        let (mut joined, mut hashable) = (false, false);
        let (left_mask, right_mask) = (self.mask_of(left), self.mask_of(right));
        for known in &self.known {
            if known.items & left != 0 && known.items & right != 0 && known.items & !set == 0 {
                joined = true;
                let within = |mask: Mask, side: Mask| mask & side != 0 && mask & !(side | self.placed) == 0;
                hashable |= known.sides.is_some_and(|(a, b)| {
                    (within(a, left_mask) && b & !right_mask == 0 && b != 0)
                        || (within(b, left_mask) && a & !right_mask == 0 && a != 0)
                });
            }
        }
        let alone = single && dependent(&self.items[place]);
        if !(joined || products || alone) {
            return;
        }
        let kind = if single { self.items[place].kind } else { JoinKind::Inner };
        let (outer_rows, inner_rows, rows) = (self.rows_of(left), self.raw_rows(right), self.rows_of(set));
        let out = rows * cost::PAIR;
        let mut offers: Vec<Way> = Vec::new();
        if !lateral {
            if hashable {
                let work = cost::SETUP + inner_rows * cost::HASH_BUILD + outer_rows * cost::HASH_PROBE;
                let disabled = if self.planner.methods.hash_join { 0.0 } else { cost::DISABLED };
                offers.push(Way { cost: outer_cost + inner_cost + work + out + disabled, how: How::Hash(left, right) });
            }
            let disabled = if self.planner.methods.nested_loop { 0.0 } else { cost::DISABLED };
            let work = cost::SETUP + outer_rows * inner_rows.max(1.0) * (cost::KEPT_ROW + cost::CONDITION);
            offers.push(Way { cost: outer_cost + inner_cost + work + out + disabled, how: How::Kept(left, right) });
        }
        if single && let Some((found, each)) = self.lookup(place, left) {
            // A semi-join stops at the first partner.
            let share = if kind == JoinKind::Inner || found <= 1.0 { 1.0 } else { 0.5 };
            let disabled = if self.planner.methods.nested_loop || lateral { 0.0 } else { cost::DISABLED };
            let cost = outer_cost + outer_rows * each * share + out + disabled;
            offers.push(Way { cost, how: How::Lookup(left, place) });
        }
        for way in offers {
            if ways.get(&set).is_none_or(|known| way.cost < known.cost) {
                ways.insert(set, way);
            }
        }
    }

    fn mask_of(&self, set: Set) -> Mask {
        self.items
            .iter()
            .enumerate()
            .filter(|(place, _)| set >> place & 1 == 1)
            .fold(0, |mask, (_, item)| mask | item.own)
    }

    /// Rows of a set that goes into a hash table: of a semi-join's item its own.
    fn raw_rows(&mut self, set: Set) -> f64 {
        if set.count_ones() == 1 { self.items[set.trailing_zeros() as usize].rows } else { self.rows_of(set) }
    }

    /// Rows and cost of looking an item up for one row of `left`; `None` when nothing of `left` helps.
    fn lookup(&mut self, place: usize, left: Set) -> Option<(f64, f64)> {
        let (own, there) = (self.items[place].own, self.mask_of(left) | self.placed);
        let usable = |known: &Known| known.mask & own != 0 && known.mask & !(own | there) == 0;
        let helpers = self.known.iter().filter(|known| usable(known)).fold(0, |mask, known| mask | known.mask) & !own;
        if let Some(found) = self.lookups.get(&(place, helpers)) {
            return *found;
        }
        let conditions: Vec<Expr> = self
            .conditions
            .iter()
            .zip(&self.known)
            .filter(|(_, known)| usable(known))
            .map(|(expr, _)| expr.clone())
            .collect();
        let lateral = self.planner.dependencies(&self.items[place].tree) & !self.placed != 0;
        let found = match &self.items[place].tree {
            Tree::Leaf(number) => match &self.planner.relations[*number].source {
                Source::Table(table) => {
                    let choice = self.planner.access(*number, table, &conditions, there);
                    choice.uses_placed.then_some((choice.rows, choice.cost))
                }
                Source::Virtual(_) => {
                    let by_value = conditions.iter().any(|condition| {
                        let found = self.planner.column_condition(*number, condition, there);
                        found
                            .is_some_and(|(_, op, value)| op == crate::expr::CmpOp::Eq && self.planner.mask(value) != 0)
                    });
                    by_value.then_some((5.0, 10.0))
                }
                _ if lateral => Some((self.items[place].rows, self.items[place].cost)),
                _ => None,
            },
            _ if lateral => Some((self.items[place].rows, self.items[place].cost)),
            _ => None,
        };
        self.lookups.insert((place, helpers), found);
        found
    }

    /// Makes the plan of a set.
    fn build(&mut self, ways: &HashMap<Set, Way>, set: Set, only: bool) -> Result<Plan> {
        let way = ways.get(&set).ok_or_else(|| Error::internal("a set of relations without a plan"))?;
        let (left, right) = match way.how {
            How::Single(place) => {
                let conditions = self.own_conditions(place);
                let tree = std::mem::replace(&mut self.items[place].tree, Tree::Leaf(0));
                return self.planner.item(tree, conditions, self.placed, only);
            }
            How::Hash(left, right) | How::Kept(left, right) => (left, right),
            How::Lookup(left, place) => (left, 1 << place),
        };
        let outer = self.build(ways, left, false)?;
        let (left_mask, right_mask) = (self.mask_of(left) | self.placed, self.mask_of(right));
        let kind = match right.count_ones() {
            1 => self.items[right.trailing_zeros() as usize].kind,
            _ => JoinKind::Inner,
        };
        let rows = self.rows_of(set);
        let crossing: Vec<Expr> = self
            .conditions
            .iter()
            .zip(&self.known)
            .filter(|(_, known)| {
                known.mask & right_mask != 0
                    && known.mask & !(left_mask | right_mask) == 0
                    && (known.mask & !(right_mask | self.placed) != 0)
                    && known.items & left != 0
            })
            .map(|(condition, _)| condition.clone())
            .collect();
        match way.how {
            How::Lookup(_, place) => {
                let mut conditions = self.own_conditions(place);
                conditions.extend(crossing);
                let tree = std::mem::replace(&mut self.items[place].tree, Tree::Leaf(0));
                let inner = self.planner.item(tree, conditions, left_mask, false)?;
                Ok(self.planner.nested_loop(outer, inner, right_mask, kind, Vec::new(), rows))
            }
            How::Hash(..) => {
                let inner = self.build(ways, right, false)?;
                self.planner.hash_join(outer, inner, (left_mask, right_mask), kind, crossing, rows)
            }
            _ => {
                let inner = self.build(ways, right, false)?;
                let inner = self.planner.kept(inner, right_mask);
                Ok(self.planner.nested_loop(outer, inner, right_mask, kind, crossing, rows))
            }
        }
    }
}
