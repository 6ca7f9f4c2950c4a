//! Can the statement be answered by keys alone? The compiled path of point queries.
//!
//! `SELECT ... FROM t WHERE pk = $1`, and the same joined with a table whose key comes from the first row. No operators are
//! made, rows stay encoded, and columns go from the row's bytes into the output buffer.

use crate::context::Context;
use crate::exec::{all_hold, encode_equal};
use crate::expr::{Env, Expr, RowSource};
use crate::output::{Output, Stored, StoredRows, stored_row};
use crate::plan::{Access, JoinKind, Plan, QueryPlan, ScanPlan};
use crate::wire::{Field, Format};
use homenode_types::{Result, RowLayout, Value, ValueRef};
use std::sync::Arc;

/// One table of a point query.
struct Step {
    scan: Arc<ScanPlan>,
    keys: Vec<Expr>,
    width: usize,
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
        && steps.iter().all(|step: &Step| step.scan.filter.iter().all(plain) && step.keys.iter().all(plain));
    if steps.len() > MAX_STEPS || !all_plain {
        return None;
    }
    let output = plan.output.iter().map(|expr| output(&steps, expr)).collect();
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
            steps.push(Step { scan: scan.clone(), keys: keys.clone(), width });
            Some(())
        }
        Plan::NestedLoop(join) if join.kind == JoinKind::Inner && join.conditions.is_empty() => {
            collect(&join.left, steps)?;
            collect(&join.right, steps)
        }
        _ => None,
    }
}

fn output(steps: &[Step], expr: &Expr) -> Output {
    let stored = match expr {
        Expr::Column(register) => steps.iter().enumerate().find_map(|(table, step)| {
            let column = register.checked_sub(step.scan.base).filter(|column| *column < step.width)?;
            Stored::new(&step.scan.table.layout, table, column)
        }),
        _ => None,
    };
    stored.map_or_else(|| Output::Computed(expr.clone()), Output::Stored)
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
            if !self.key(step, &source, params, &mut context.env(), key)? {
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

    #[inline]
    fn key(
        &self,
        step: &Step,
        row: &dyn RowSource,
        params: &[Value],
        env: &mut Env<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let columns = step.scan.table.primary_key.as_ref().map_or(&[][..], |key| &key.columns);
        for (value, &column) in step.keys.iter().zip(columns) {
            let value = value.eval_ref(row, params, env)?;
            if !encode_equal(value.as_ref(), step.scan.table.columns[column].ty.ty, out)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
