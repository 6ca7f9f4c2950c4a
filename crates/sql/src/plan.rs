//! How will the statement be run? Physical plans: immutable trees that every execution shares.
//!
//! A query block has one row of registers, as wide as all its relations together; a scan fills the registers of its own
//! relation, so joins copy nothing and any join order leaves the columns where expressions expect them. Nodes that make a
//! new row (aggregate, projection, set operations, derived tables) begin a new register row.

use crate::expr::{AggregateCall, Expr, SetFunction, WindowCall};
use crate::virtual_table::VirtualTable;
use crate::wire::Field;
use homenode_engine::{LockWait, Table};
use homenode_types::{ColumnType, Type, Value};
use std::sync::Arc;

/// A plan; cloning shares it.
#[derive(Clone)]
pub enum Plan {
    /// One row without columns.
    Once,
    /// Constant rows.
    Values(Arc<ValuesPlan>),
    /// A stored table.
    Scan(Arc<ScanPlan>),
    /// A system table.
    Virtual(Arc<VirtualPlan>),
    /// A function in FROM.
    Series(Arc<SeriesPlan>),
    /// Set-returning functions in a select list.
    ProjectSet(Arc<ProjectSetPlan>),
    /// A subquery in FROM, with its own registers.
    Derived(Arc<DerivedPlan>),
    /// For each row of the left side, the rows of the right side.
    NestedLoop(Arc<LoopPlan>),
    /// The right side in a hash table, probed by the left side.
    HashJoin(Arc<HashJoinPlan>),
    /// The right side of a loop, kept in memory.
    Materialize(Arc<MaterializePlan>),
    /// Rows for which the conditions hold.
    Filter(Arc<FilterPlan>),
    /// New rows from expressions.
    Project(Arc<ProjectPlan>),
    /// Groups and their aggregates.
    Aggregate(Arc<AggregatePlan>),
    /// Window functions over the rows.
    Window(Arc<WindowPlan>),
    /// Sorted rows, or the first of them.
    Sort(Arc<SortPlan>),
    /// Some of the rows.
    Limit(Arc<LimitPlan>),
    /// Each row once.
    Distinct(Arc<DistinctPlan>),
    /// UNION, INTERSECT, EXCEPT.
    SetOperation(Arc<SetPlan>),
    /// WITH RECURSIVE.
    Recursive(Arc<RecursivePlan>),
    /// Locks the rows that go through.
    LockRows(Arc<LockPlan>),
}

/// Constant rows into registers from `base`.
pub struct ValuesPlan {
    /// First register.
    pub base: usize,
    /// The rows.
    pub rows: Vec<Vec<Expr>>,
}

/// One end of a key range.
#[derive(Clone, Debug)]
pub struct End {
    /// The value.
    pub value: Expr,
    /// Whether the value itself is in the range.
    pub inclusive: bool,
}

/// How rows of a stored table are found. `index` is a position in the table's indexes; `None` is the primary key.
#[derive(Clone, Debug)]
pub enum Access {
    /// All rows, in key order.
    Full {
        /// From the end.
        reverse: bool,
    },
    /// At most one row: every column of a unique key is given.
    Point {
        /// Which key.
        index: Option<usize>,
        /// The values, in key order.
        keys: Vec<Expr>,
    },
    /// The rows between two keys: equal leading columns, then a range of the next.
    Range {
        /// Which key.
        index: Option<usize>,
        /// Values of the leading columns.
        equal: Vec<Expr>,
        /// Lower end of the next column.
        lower: Option<End>,
        /// Upper end of the next column.
        upper: Option<End>,
        /// From the end.
        reverse: bool,
    },
    /// The rows whose first key column is one of a list; each once.
    List {
        /// Which key.
        index: Option<usize>,
        /// The values.
        values: Vec<Expr>,
    },
}

/// A scan of a stored table.
pub struct ScanPlan {
    /// The table.
    pub table: Arc<Table>,
    /// Name in the query.
    pub alias: String,
    /// First register.
    pub base: usize,
    /// Columns that are loaded into registers.
    pub needed: Vec<usize>,
    /// How rows are found.
    pub access: Access,
    /// Conditions that the access does not already guarantee.
    pub filter: Vec<Expr>,
    /// All conditions on this table alone, for a second look at a newer version.
    pub conditions: Vec<Expr>,
    /// Register that gets the row's key (as bytea), when somebody needs it.
    pub key_register: Option<usize>,
    /// Estimate.
    pub rows: f64,
    /// Estimated cost of one opening, in full-scan rows.
    pub cost: f64,
}

/// A scan of a system table.
pub struct VirtualPlan {
    /// Which.
    pub table: &'static VirtualTable,
    /// Name in the query.
    pub alias: String,
    /// First register.
    pub base: usize,
    /// Conditions.
    pub filter: Vec<Expr>,
    /// `column = value` conditions that a hash table over the rows answers: column and value.
    pub lookup: Option<(usize, Expr)>,
}

/// A function in FROM.
pub struct SeriesPlan {
    /// Register of its first column.
    pub base: usize,
    /// What is produced.
    pub kind: SeriesKind,
    /// Conditions.
    pub filter: Vec<Expr>,
    /// Name in the query.
    pub alias: String,
    /// WITH ORDINALITY: the register that counts.
    pub ordinality: Option<usize>,
}

/// Set-returning functions in a select list; rows keep their registers, and the results follow from register `width` on.
pub struct ProjectSetPlan {
    /// Input.
    pub input: Plan,
    /// Registers of the input.
    pub width: usize,
    /// The functions.
    pub calls: Vec<SeriesKind>,
}

/// Functions that return sets.
#[derive(Clone, Debug)]
pub enum SeriesKind {
    /// Integers; the type says which.
    Numbers {
        /// First value.
        start: Expr,
        /// Last value.
        stop: Expr,
        /// Step.
        step: Option<Expr>,
        /// int4, int8 or numeric.
        ty: ColumnType,
    },
    /// Timestamps by an interval.
    Times {
        /// First value.
        start: Expr,
        /// Last value.
        stop: Expr,
        /// Step.
        step: Expr,
        /// timestamp or timestamptz.
        ty: ColumnType,
    },
    /// The elements of arrays, side by side.
    Unnest {
        /// The arrays with their types.
        arrays: Vec<(Expr, Type)>,
    },
    /// A function of the table.
    Rows {
        /// The function.
        function: &'static SetFunction,
        /// Its arguments.
        args: Vec<Expr>,
    },
    /// A scalar function: one row.
    Scalar {
        /// Its value.
        value: Expr,
    },
}

impl SeriesKind {
    /// The expressions that its rows are made from.
    pub fn exprs_mut(&mut self) -> Vec<&mut Expr> {
        match self {
            SeriesKind::Numbers { start, stop, step, .. } => [start, stop].into_iter().chain(step).collect(),
            SeriesKind::Times { start, stop, step, .. } => vec![start, stop, step],
            SeriesKind::Unnest { arrays } => arrays.iter_mut().map(|(array, _)| array).collect(),
            SeriesKind::Rows { args, .. } => args.iter_mut().collect(),
            SeriesKind::Scalar { value } => vec![value],
        }
    }

    /// The same, to be read.
    pub fn exprs(&self) -> Vec<&Expr> {
        match self {
            SeriesKind::Numbers { start, stop, step, .. } => [start, stop].into_iter().chain(step).collect(),
            SeriesKind::Times { start, stop, step, .. } => vec![start, stop, step],
            SeriesKind::Unnest { arrays } => arrays.iter().map(|(array, _)| array).collect(),
            SeriesKind::Rows { args, .. } => args.iter().collect(),
            SeriesKind::Scalar { value } => vec![value],
        }
    }
}

/// A subquery in FROM (or a common table expression).
pub struct DerivedPlan {
    /// First register.
    pub base: usize,
    /// What it produces.
    pub query: Arc<QueryPlan>,
    /// Name in the query.
    pub alias: String,
    /// Values of the outer columns it uses, over this block's registers.
    pub outer: Vec<Expr>,
    /// Conditions on its columns.
    pub filter: Vec<Expr>,
    /// Run once per statement, its rows kept (a common table expression used more than once).
    pub shared: Option<usize>,
}

/// Kinds of join as they are run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JoinKind {
    /// Matching pairs.
    Inner,
    /// And left rows without a match.
    Left,
    /// And right rows without a match.
    Full,
    /// Left rows that have a match, once each.
    Semi,
    /// Left rows without a match.
    Anti,
}

/// A nested loop.
pub struct LoopPlan {
    /// Outer side.
    pub left: Plan,
    /// Inner side, opened anew for each outer row.
    pub right: Plan,
    /// Kind.
    pub kind: JoinKind,
    /// Join conditions.
    pub conditions: Vec<Expr>,
    /// Registers of the right side, set to NULL where there is no match.
    pub right_registers: Vec<std::ops::Range<usize>>,
    /// Estimate.
    pub rows: f64,
}

/// A hash join.
pub struct HashJoinPlan {
    /// Probing side.
    pub left: Plan,
    /// Side in the hash table.
    pub right: Plan,
    /// Kind.
    pub kind: JoinKind,
    /// Equal expressions: over the left side, over the right side.
    pub keys: Vec<(Expr, Expr)>,
    /// Further conditions on a pair.
    pub conditions: Vec<Expr>,
    /// Registers of the left side (FULL sets them to NULL).
    pub left_registers: Vec<std::ops::Range<usize>>,
    /// Registers of the right side.
    pub right_registers: Vec<std::ops::Range<usize>>,
    /// Estimate.
    pub rows: f64,
}

/// Rows kept in memory over repeated opens.
pub struct MaterializePlan {
    /// Where they come from.
    pub input: Plan,
    /// The registers kept.
    pub registers: Vec<std::ops::Range<usize>>,
}

/// A filter.
pub struct FilterPlan {
    /// Input.
    pub input: Plan,
    /// All must hold.
    pub conditions: Vec<Expr>,
}

/// A projection.
pub struct ProjectPlan {
    /// Input.
    pub input: Plan,
    /// Registers of the input.
    pub width: usize,
    /// One expression a column.
    pub columns: Vec<Expr>,
}

/// Grouping; the new row is the group expressions, then the aggregates.
pub struct AggregatePlan {
    /// Input.
    pub input: Plan,
    /// Registers of the input.
    pub width: usize,
    /// GROUP BY; empty: one group even without rows.
    pub groups: Vec<Expr>,
    /// GROUPING SETS: each makes groups of its own; none: all of `groups` are one.
    pub sets: Vec<GroupingSet>,
    /// The aggregates.
    pub calls: Vec<AggregateCall>,
    /// Run by the scan pool over parts of the table: the scan that is split.
    pub parallel: bool,
    /// Estimate.
    pub rows: f64,
}

/// A grouping set.
#[derive(Clone, Debug)]
pub struct GroupingSet {
    /// The groups that are in it; the others are NULL.
    pub included: Vec<bool>,
    /// Calls whose value the set decides: GROUPING.
    pub known: Vec<(usize, Value)>,
}

/// Order of one column.
#[derive(Clone, Debug)]
pub struct SortKey {
    /// Value to sort by.
    pub value: Expr,
    /// Its type.
    pub ty: ColumnType,
    /// Greatest first.
    pub descending: bool,
    /// Where NULL goes.
    pub nulls_first: bool,
}

impl SortKey {
    /// Ascending, NULL last.
    pub fn ascending(value: Expr, ty: ColumnType) -> SortKey {
        SortKey { value, ty, descending: false, nulls_first: false }
    }
}

/// Window functions; rows keep their registers, and the results follow from register `width` on.
pub struct WindowPlan {
    /// Input.
    pub input: Plan,
    /// Registers of the input.
    pub width: usize,
    /// The windows.
    pub windows: Vec<Window>,
    /// The calls, in the order of their registers.
    pub calls: Vec<WindowCall>,
}

/// OVER (...): which rows belong together, in which order, and which of them a row's function sees.
#[derive(Clone, Debug)]
pub struct Window {
    /// PARTITION BY.
    pub partition: Vec<SortKey>,
    /// ORDER BY.
    pub order: Vec<SortKey>,
    /// The frame.
    pub frame: Frame,
}

/// What a frame's offsets count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameMode {
    /// Rows.
    Rows,
    /// Differences of the value that is sorted by.
    Range,
    /// Groups of rows that are equal to the order.
    Groups,
}

/// The part of a partition that a row's function sees.
#[derive(Clone, Debug)]
pub struct Frame {
    /// What offsets count.
    pub mode: FrameMode,
    /// Where it begins.
    pub start: FrameEnd,
    /// Where it ends.
    pub end: FrameEnd,
}

impl Default for Frame {
    /// RANGE UNBOUNDED PRECEDING: up to the last row that is equal to the current one.
    fn default() -> Frame {
        Frame { mode: FrameMode::Range, start: FrameEnd::UnboundedPreceding, end: FrameEnd::CurrentRow }
    }
}

/// An end of a frame.
#[derive(Clone, Debug)]
pub enum FrameEnd {
    /// The partition's first row.
    UnboundedPreceding,
    /// The current row, or those equal to it.
    CurrentRow,
    /// The partition's last row.
    UnboundedFollowing,
    /// So far from the current row.
    Offset {
        /// How far.
        value: Expr,
        /// Before it.
        preceding: bool,
        /// In RANGE mode: whether a row lies within this end, as [`crate::expr::range_end`] says.
        reaches: Option<Expr>,
    },
}

/// A sort.
pub struct SortPlan {
    /// Input; rows keep their registers.
    pub input: Plan,
    /// Most significant first.
    pub keys: Vec<SortKey>,
    /// Only this many rows are wanted (with OFFSET added).
    pub limit: Option<Expr>,
    /// OFFSET, added to the limit.
    pub offset: Option<Expr>,
}

/// LIMIT and OFFSET.
pub struct LimitPlan {
    /// Input.
    pub input: Plan,
    /// Most rows; NULL is no limit.
    pub limit: Option<Expr>,
    /// Rows left out first.
    pub offset: Option<Expr>,
}

/// DISTINCT and DISTINCT ON.
pub struct DistinctPlan {
    /// Input.
    pub input: Plan,
    /// The columns that make a row the same.
    pub keys: Vec<Expr>,
    /// The input is sorted by the keys, so equal rows follow each other.
    pub sorted: bool,
}

/// Set operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetKind {
    /// UNION.
    Union,
    /// INTERSECT.
    Intersect,
    /// EXCEPT.
    Except,
}

/// UNION, INTERSECT, EXCEPT.
pub struct SetPlan {
    /// Which.
    pub kind: SetKind,
    /// Keep duplicates.
    pub all: bool,
    /// Left input and its width.
    pub left: Arc<QueryPlan>,
    /// Right input.
    pub right: Arc<QueryPlan>,
}

/// WITH RECURSIVE: the rows of `left`, then those that `right` makes of the rows of the round before, until there are none.
pub struct RecursivePlan {
    /// Keep duplicates.
    pub all: bool,
    /// What it begins with.
    pub left: Arc<QueryPlan>,
    /// One round.
    pub right: Arc<QueryPlan>,
    /// The shared rows that `right` reads as those of the round before.
    pub number: usize,
}

/// SELECT ... FOR UPDATE.
pub struct LockPlan {
    /// Input.
    pub input: Plan,
    /// The scans whose rows are locked.
    pub scans: Vec<Arc<ScanPlan>>,
    /// Conditions over more than one table, looked at again after a newer version was found.
    pub conditions: Vec<Expr>,
    /// What to do about rows that others have.
    pub wait: LockWait,
}

/// A whole query: rows of the input, shown through the output expressions.
pub struct QueryPlan {
    /// Rows.
    pub input: Plan,
    /// Registers the input needs.
    pub width: usize,
    /// Output columns over the input's registers.
    pub output: Vec<Expr>,
    /// Their names and types.
    pub fields: Vec<Field>,
}

impl QueryPlan {
    /// The output column that is the only thing its rows are grouped by, so that it is different in each.
    pub fn groups_by(&self) -> Option<usize> {
        fn grouped(plan: &Plan) -> Option<usize> {
            match plan {
                Plan::Aggregate(plan) if plan.groups.len() == 1 && plan.sets.is_empty() => Some(0),
                Plan::Filter(plan) => grouped(&plan.input),
                Plan::Sort(plan) => grouped(&plan.input),
                Plan::Limit(plan) => grouped(&plan.input),
                _ => None,
            }
        }
        let register = grouped(&self.input)?;
        self.output.iter().position(|column| matches!(column, Expr::Column(found) if *found == register))
    }
}

impl Plan {
    /// Estimated number of rows.
    pub fn rows(&self) -> f64 {
        match self {
            Plan::Once => 1.0,
            Plan::Values(plan) => plan.rows.len() as f64,
            Plan::Scan(plan) => plan.rows,
            Plan::Virtual(plan) => {
                if plan.lookup.is_some() {
                    5.0
                } else {
                    100.0
                }
            }
            Plan::Series(_) => 1000.0,
            // As PostgreSQL assumes of a function that says nothing else.
            Plan::ProjectSet(plan) => 1000.0 * plan.input.rows(),
            Plan::Derived(plan) => plan.query.input.rows() * selectivity(&plan.filter),
            Plan::NestedLoop(plan) => plan.rows,
            Plan::HashJoin(plan) => plan.rows,
            Plan::Materialize(plan) => plan.input.rows(),
            Plan::Filter(plan) => plan.input.rows() * selectivity(&plan.conditions),
            Plan::Project(plan) => plan.input.rows(),
            Plan::Aggregate(plan) => plan.rows,
            Plan::Window(plan) => plan.input.rows(),
            Plan::Sort(plan) => plan.input.rows(),
            Plan::Limit(plan) => plan.input.rows(),
            Plan::Distinct(plan) => (plan.input.rows() / 2.0).max(1.0),
            Plan::SetOperation(plan) => plan.left.input.rows() + plan.right.input.rows(),
            // As many rounds as PostgreSQL assumes (cost_recursive_union).
            Plan::Recursive(plan) => plan.left.input.rows() + 10.0 * plan.right.input.rows(),
            Plan::LockRows(plan) => plan.input.rows(),
        }
    }
}

impl Plan {
    /// Estimated cost of all its rows, in rows of a full scan.
    pub fn cost(&self) -> f64 {
        use crate::planner::cost;
        let tested = |rows: f64, conditions: &[Expr]| rows * conditions.len() as f64 * cost::CONDITION;
        match self {
            Plan::Once => 0.0,
            Plan::Values(plan) => plan.rows.len() as f64 * cost::ROW,
            Plan::Scan(plan) => plan.cost,
            Plan::Virtual(_) => 100.0,
            Plan::Series(_) => self.rows() * cost::ROW,
            Plan::ProjectSet(plan) => plan.input.cost() + self.rows() * cost::ROW,
            Plan::Derived(plan) => {
                let rows = plan.query.input.rows();
                plan.query.input.cost() + rows * cost::KEPT_ROW + tested(rows, &plan.filter)
            }
            Plan::NestedLoop(plan) => {
                let inner = match &plan.right {
                    Plan::Materialize(kept) => kept.input.rows() * (cost::KEPT_ROW + cost::CONDITION),
                    other => other.cost(),
                };
                let once = if matches!(plan.right, Plan::Materialize(_)) { plan.right.cost() } else { 0.0 };
                plan.left.cost() + once + plan.left.rows() * inner + plan.rows * cost::PAIR
            }
            Plan::HashJoin(plan) => {
                let work = plan.right.rows() * cost::HASH_BUILD + plan.left.rows() * cost::HASH_PROBE;
                plan.left.cost() + plan.right.cost() + work + plan.rows * cost::PAIR
            }
            Plan::Materialize(plan) => plan.input.cost() + plan.input.rows() * cost::KEPT_ROW,
            Plan::Filter(plan) => plan.input.cost() + tested(plan.input.rows(), &plan.conditions),
            Plan::Project(plan) => plan.input.cost() + plan.input.rows() * cost::KEPT_ROW,
            Plan::Aggregate(plan) => plan.input.cost() + plan.input.rows() * cost::GROUP_ROW,
            Plan::Window(plan) => plan.input.cost() + sorting(plan.input.rows()),
            Plan::Sort(plan) => plan.input.cost() + sorting(plan.input.rows()),
            Plan::Limit(plan) => plan.input.cost(),
            Plan::Distinct(plan) => plan.input.cost() + plan.input.rows() * cost::GROUP_ROW,
            Plan::SetOperation(plan) => {
                let rows = plan.left.input.rows() + plan.right.input.rows();
                plan.left.input.cost() + plan.right.input.cost() + rows * cost::GROUP_ROW
            }
            Plan::Recursive(plan) => plan.left.input.cost() + 10.0 * plan.right.input.cost(),
            Plan::LockRows(plan) => plan.input.cost() + plan.input.rows() * cost::LOOKUP,
        }
    }
}

impl Plan {
    /// Estimated cost until the first row.
    pub fn startup_cost(&self) -> f64 {
        match self {
            Plan::Sort(_) | Plan::Aggregate(_) | Plan::Window(_) => self.cost(),
            Plan::HashJoin(plan) => {
                let table = plan.right.rows() * crate::planner::cost::HASH_BUILD;
                plan.right.cost() + table + plan.left.startup_cost()
            }
            Plan::NestedLoop(plan) => plan.left.startup_cost(),
            Plan::Filter(plan) => plan.input.startup_cost(),
            Plan::Project(plan) => plan.input.startup_cost(),
            Plan::Limit(plan) => plan.input.startup_cost(),
            Plan::Distinct(plan) => plan.input.startup_cost(),
            Plan::LockRows(plan) => plan.input.startup_cost(),
            Plan::Derived(plan) => plan.query.input.startup_cost(),
            _ => 0.0,
        }
    }

    /// Bytes of a row, roughly: fixed types as they are, 32 for others.
    pub fn row_bytes(&self) -> usize {
        let of_type = |ty: Type| usize::try_from(ty.len()).unwrap_or(32);
        let of_query = |query: &QueryPlan| query.fields.iter().map(|field| of_type(field.ty.ty)).sum();
        match self {
            Plan::Once => 0,
            Plan::Values(plan) => plan.rows.first().map_or(0, |row| 8 * row.len()),
            Plan::Scan(plan) => plan.needed.iter().map(|column| of_type(plan.table.columns[*column].ty.ty)).sum(),
            Plan::Virtual(plan) => plan.table.columns.iter().map(|(_, ty)| of_type(*ty)).sum(),
            Plan::Series(_) => 8,
            Plan::ProjectSet(plan) => plan.input.row_bytes() + 8 * plan.calls.len(),
            Plan::Derived(plan) => of_query(&plan.query),
            Plan::NestedLoop(plan) => join_bytes(plan.kind, &plan.left, &plan.right),
            Plan::HashJoin(plan) => join_bytes(plan.kind, &plan.left, &plan.right),
            Plan::Aggregate(plan) => 8 * (plan.groups.len() + plan.calls.len()),
            Plan::SetOperation(plan) => of_query(&plan.left),
            Plan::Recursive(plan) => of_query(&plan.left),
            Plan::Materialize(plan) => plan.input.row_bytes(),
            Plan::Filter(plan) => plan.input.row_bytes(),
            Plan::Project(plan) => plan.input.row_bytes(),
            Plan::Window(plan) => plan.input.row_bytes() + 8 * plan.calls.len(),
            Plan::Sort(plan) => plan.input.row_bytes(),
            Plan::Limit(plan) => plan.input.row_bytes(),
            Plan::Distinct(plan) => plan.input.row_bytes(),
            Plan::LockRows(plan) => plan.input.row_bytes(),
        }
    }
}

fn join_bytes(kind: JoinKind, left: &Plan, right: &Plan) -> usize {
    let right = if matches!(kind, JoinKind::Semi | JoinKind::Anti) { 0 } else { right.row_bytes() };
    left.row_bytes() + right
}

fn sorting(rows: f64) -> f64 {
    rows * rows.max(2.0).log2() * crate::planner::cost::COMPARE
}

/// What share of rows conditions let through; PostgreSQL's default for an inequality is a third.
pub fn selectivity(conditions: &[Expr]) -> f64 {
    0.33_f64.powi(conditions.len().min(8) as i32)
}
