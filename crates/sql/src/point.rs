//! Can the statement be answered by keys alone? The compiled path of point queries.
//!
//! `SELECT ... FROM t WHERE pk = $1`, and the same joined with a table whose key comes from the first row. No operators are
//! made, rows stay encoded, and columns go from the row's bytes into the output buffer.

use crate::context::Context;
use crate::exec::{all_hold, encode_equal};
use crate::expr::{Expr, RowSource};
use crate::output::{Output, Stored, StoredRows, stored_row};
use crate::plan::{Access, JoinKind, Plan, QueryPlan, ScanPlan};
use crate::wire::{Field, Format};
use homenode_types::{Result, RowLayout, Type, Value, ValueRef, key};
use std::sync::Arc;

/// One table of a point query.
struct Step {
    scan: Arc<ScanPlan>,
    keys: Vec<Key>,
    width: usize,
}

/// One column of a key that is looked up.
struct Key {
    value: Expr,
    /// The value, when it is a column of a table before.
    stored: Option<Stored>,
    ty: Type,
}

/// A compiled point query.
pub(crate) struct Point {
    steps: Vec<Step>,
    output: Vec<Output>,
    /// The same query for operators (cursors, EXPLAIN).
    pub plan: Arc<QueryPlan>,
    /// A READ COMMITTED statement that reads one row needs no snapshot.
    single: bool,
}

/// Most tables of a compiled query.
const MAX_STEPS: usize = 2;

/// Compiles a query if it is of the kind.
pub(crate) fn of_query(plan: &Arc<QueryPlan>) -> Option<Point> {
    let mut steps = Vec::new();
    collect(&plan.input, &mut steps)?;
    let plain = |expr: &Expr| !expr.any(&|part| matches!(part, Expr::External(_) | Expr::Outer(_)));
    let all_plain = plan.output.iter().all(plain)
        && steps
            .iter()
            .all(|step: &Step| step.scan.filter.iter().all(plain) && step.keys.iter().all(|key| plain(&key.value)));
    if steps.len() > MAX_STEPS || !all_plain {
        return None;
    }
    let output = |expr: &Expr| stored(&steps, expr).map_or_else(|| Output::Computed(expr.clone()), Output::Stored);
    let output = plan.output.iter().map(output).collect();
    Some(Point { single: steps.len() == 1, steps, output, plan: plan.clone() })
}

fn collect(plan: &Plan, steps: &mut Vec<Step>) -> Option<()> {
    match plan {
        Plan::Scan(scan) => {
            let Access::Point { index: None, keys } = &scan.access else { return None };
            if scan.key_register.is_some() {
                return None;
            }
            let width = scan.table.columns.len();
            let columns = &scan.table.primary_key.as_ref()?.columns;
            let keys = keys.iter().zip(columns).map(|(value, column)| {
                let ty = scan.table.columns[*column].ty.ty;
                Key { value: value.clone(), stored: stored(steps, value), ty }
            });
            let keys = keys.collect();
            steps.push(Step { scan: scan.clone(), keys, width });
            Some(())
        }
        Plan::NestedLoop(join) if join.kind == JoinKind::Inner && join.conditions.is_empty() => {
            collect(&join.left, steps)?;
            collect(&join.right, steps)
        }
        _ => None,
    }
}

/// The expression, when it is a column of one of the tables.
fn stored(steps: &[Step], expr: &Expr) -> Option<Stored> {
    let Expr::Column(register) = expr else { return None };
    steps.iter().enumerate().find_map(|(table, step)| {
        let column = register.checked_sub(step.scan.base).filter(|column| *column < step.width)?;
        Stored::new(&step.scan.table.layout, table, column)
    })
}

/// The encoded rows of the tables so far, seen as registers.
struct Rows<'a> {
    steps: &'a [Step],
    bytes: &'a [Vec<u8>],
}

impl RowSource for Rows<'_> {
    #[inline]
    fn column(&self, register: usize) -> ValueRef<'_> {
        for (step, bytes) in self.steps.iter().zip(self.bytes) {
            match register.checked_sub(step.scan.base) {
                Some(column) if column < step.width => return step.scan.table.layout.column(bytes, column),
                _ => {}
            }
        }
        ValueRef::Null
    }
}

impl StoredRows for Rows<'_> {
    #[inline]
    fn stored(&self, table: usize) -> (&RowLayout, &[u8]) {
        (&self.steps[table].scan.table.layout, &self.bytes[table])
    }
}

impl Point {
    /// Runs it; gives the number of rows (0 or 1).
    pub fn run(
        &self,
        context: &mut Context,
        params: &[Value],
        fields: &[Field],
        formats: &[Format],
        out: &mut Vec<u8>,
    ) -> Result<u64> {
        // Taken from the context, so that the next statement finds their memory again.
        let (mut key, mut rows) = std::mem::take(&mut context.buffers);
        rows.resize_with(MAX_STEPS, Vec::new);
        let found = self.find(context, params, &mut key, &mut rows);
        let result = match found {
            Ok(true) => {
                let source = Rows { steps: &self.steps, bytes: &rows };
                stored_row(out, fields, formats, &self.output, &source, params, context).map(|()| 1)
            }
            Ok(false) => Ok(0),
            Err(error) => Err(error),
        };
        context.buffers = (key, rows);
        result
    }

    /// Reads the rows; false when one is not there or does not match.
    fn find(&self, context: &mut Context, params: &[Value], key: &mut Vec<u8>, rows: &mut [Vec<u8>]) -> Result<bool> {
        for (number, step) in self.steps.iter().enumerate() {
            let (before, rest) = rows.split_at_mut(number);
            key.clear();
            let source = Rows { steps: &self.steps[..number], bytes: before };
            if !self.key(step, &source, params, context, key)? {
                return Ok(false);
            }
            let session = &mut context.session;
            let found = if self.single {
                session.get_single(&step.scan.table, key, &mut rest[0])?
            } else {
                session.get(&step.scan.table, key, &mut rest[0])?
            };
            if !found {
                return Ok(false);
            }
            if !step.scan.filter.is_empty() {
                let source = Rows { steps: &self.steps[..=number], bytes: &rows[..=number] };
                if !all_hold(&step.scan.filter, &source, params, &mut context.env())? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Appends the key of a step; false when no row can have it.
    #[inline]
    fn key(
        &self,
        step: &Step,
        rows: &Rows<'_>,
        params: &[Value],
        context: &mut Context,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        for key in &step.keys {
            let number = key.stored.as_ref().and_then(|stored| stored.integer(&rows.bytes[stored.table]));
            if let Some(number) = number
                && key.ty.is_integer()
            {
                key::encode_i64(number, out);
                continue;
            }
            let given = if let Expr::Param(number) = key.value { params.get(number) } else { None };
            let fits = match given {
                Some(value) => encode_equal(value.as_ref(), key.ty, out)?,
                None => {
                    let value = key.value.eval_ref(rows, params, &mut context.env())?;
                    encode_equal(value.as_ref(), key.ty, out)?
                }
            };
            if !fits {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
