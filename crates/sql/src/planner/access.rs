//! How are a table's rows found? Access paths: the whole table, a key's range, one row, a list of keys; each with its cost.

use super::estimate::table_rows;
use super::{Mask, Planner, cost};
use crate::expr::{CmpOp, Expr};
use crate::plan::{Access, End, Plan, ScanPlan};
use homenode_engine::Table;
use std::sync::Arc;

impl Planner<'_> {
    pub(super) fn scan(
        &mut self,
        number: usize,
        table: Arc<Table>,
        conditions: Vec<Expr>,
        placed: Mask,
        only: bool,
    ) -> Plan {
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
        let (rows, cost) = (chosen.rows.max(1.0), chosen.cost);
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
            cost,
        });
        if key_register.is_some() {
            self.locked.push(scan.clone());
        }
        Plan::Scan(scan)
    }

    /// The best access path of a table under conditions, of which those about it alone and `placed` relations count.
    pub(super) fn access(&self, number: usize, table: &Table, conditions: &[Expr], placed: Mask) -> Choice {
        let size = table_rows(&self.relations[number], table);
        let estimates = self.estimates();
        let found = (size * estimates.share(conditions.iter())).max(1e-3);
        let whole = size * (cost::ROW + cost::CONDITION * conditions.len().min(4) as f64);
        let mut best = Choice {
            access: Access::Full { reverse: false },
            used: Vec::new(),
            rows: found,
            cost: whole,
            uses_placed: false,
        };
        let keys = table.primary_key.iter().map(|key| (None, &key.columns, true)).chain(
            table.indexes.iter().enumerate().filter_map(|(at, index)| {
                let serves = crate::index_match::serves(table, index, conditions, self.relations[number].base);
                serves.then_some((Some(at), &index.columns, index.unique))
            }),
        );
        let disabled = if self.methods.index_scan { 0.0 } else { cost::DISABLED };
        for (index, columns, unique) in keys {
            let Some(mut choice) = self.by_key(number, index, columns, unique, conditions, placed, size) else {
                continue;
            };
            if matches!(choice.access, Access::Point { .. }) {
                choice.rows = choice.rows.min(1.0);
            } else if self.relations[number].statistics.is_some() {
                let own = choice.used.iter().map(|place| &conditions[*place]);
                choice.rows = (size * estimates.share(own)).max(1e-3);
            }
            let (descents, each) = match &choice.access {
                Access::List { values, .. } => (values.len() as f64, cost::ROW),
                Access::Point { index: None, .. } => (1.0, 0.0),
                _ => (1.0, cost::ROW),
            };
            let each = match (index, &self.relations[number].statistics) {
                (None, _) => each,
                (Some(_), Some(_)) => cost::INDEX_ROW,
                (Some(_), None) => cost::INDEX_ROW_UNKNOWN,
            };
            choice.cost = cost::LOOKUP * descents + choice.rows * (each + cost::CONDITION) + disabled;
            // One row by its key is never slower than a scan that a table may outgrow.
            let is_point = matches!(choice.access, Access::Point { .. }) && self.methods.index_scan;
            if is_point || choice.cost < best.cost {
                let rest = (0..conditions.len()).filter(|place| !choice.used.contains(place));
                choice.rows *= estimates.share(rest.map(|place| &conditions[place]));
                best = choice;
            }
            if is_point {
                break;
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
            return Some(Choice {
                access: Access::Point { index, keys: equal },
                used,
                rows: 1.0,
                cost: 0.0,
                uses_placed,
            });
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
        let rows = (leading * share).max(2.0);
        let access = Access::Range { index, equal, lower, upper, reverse: false };
        Some(Choice { access, used, rows, cost: 0.0, uses_placed })
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
                return Some(Choice { access, used: vec![place], rows, cost: 0.0, uses_placed });
            }
        }
        None
    }
}

/// A comparison whose sides agree on whether trailing blanks count, as a key's order does.
pub(super) fn as_comparison(expr: &Expr) -> Option<(CmpOp, &Expr, &Expr)> {
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

pub(super) struct Choice {
    access: Access,
    /// The conditions that the access guarantees.
    used: Vec<usize>,
    pub(super) rows: f64,
    pub(super) cost: f64,
    /// Its keys come from relations already placed.
    pub(super) uses_placed: bool,
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
