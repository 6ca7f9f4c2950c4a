//! May a view be written? One whose rows are rows of one table: what is written to the view is written to the table.

use super::scope::Offered;
use super::{Binder, Named, at, folded};
use crate::expr::{Bound, Expr};
use crate::plan::Plan;
use homenode_engine::{Privileges, Table, ViewDefinition};
use homenode_types::{Error, Result, SqlState};
use sqlparser::ast;
use std::sync::Arc;

/// A view that is written.
pub(super) struct WrittenView {
    pub view: Arc<ViewDefinition>,
    /// The view's columns over the table's registers, which begin at 0.
    columns: Vec<Bound>,
    /// Which of the table's rows the view shows.
    pub conditions: Vec<Expr>,
}

impl WrittenView {
    /// Its columns as a statement sees them.
    pub fn offered(&self, alias: &str) -> Vec<Offered> {
        let columns = self.view.columns.iter().zip(&self.columns).enumerate();
        let offered = columns.map(|(place, ((name, _), bound))| Offered {
            name: name.clone(),
            relation: Some(alias.to_string()),
            bound: bound.clone(),
            origin: (self.view.oid, place as i16 + 1),
            is_whole: false,
        });
        offered.collect()
    }

    /// The table's columns behind the view's, of those that are columns.
    pub fn places(&self) -> Vec<usize> {
        self.columns.iter().filter_map(place).collect()
    }

    /// The table's column behind the view's. 42703, and 0A000 when an expression is behind it.
    pub fn column(&self, ident: &ast::Ident, verb: &str) -> Result<usize> {
        let name = folded(ident);
        let found = self.view.columns.iter().position(|(known, _)| *known == name).ok_or_else(|| {
            let message = format!("column \"{name}\" of relation \"{}\" does not exist", self.view.name);
            at(Error::new(SqlState::UNDEFINED_COLUMN, message), ident.span)
        })?;
        place(&self.columns[found]).ok_or_else(|| {
            let message = format!("cannot {verb} column \"{name}\" of view \"{}\"", self.view.name);
            let detail = "View columns that are not columns of their base relation are not updatable.";
            Error::new(SqlState::FEATURE_NOT_SUPPORTED, message).with_detail(detail)
        })
    }
}

fn place(column: &Bound) -> Option<usize> {
    match column.expr {
        Expr::Column(register) => Some(register),
        _ => None,
    }
}

impl Binder<'_> {
    /// The stored table that a statement writes, directly or by a view. `55000` for a view whose rows are not those of one table.
    pub(super) fn written(
        &self,
        name: &ast::ObjectName,
        privileges: Privileges,
        verb: &str,
    ) -> Result<(Arc<Table>, Option<WrittenView>)> {
        let Named::View(view) = self.relation(name)? else { return Ok((self.table(name, privileges)?, None)) };
        self.need(view.oid, privileges);
        let plan = self.view(&view)?;
        let Plan::Scan(scan) = &plan.input else {
            let message = format!("cannot {verb} view \"{}\"", view.name);
            let detail = "Views whose rows are not those of a single table are not automatically updatable.";
            return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message).with_detail(detail));
        };
        if scan.base != 0 {
            return Err(Error::internal("the only table of a view has no registers at 0"));
        }
        // The table is written with the rights of the view's owner.
        let acting = self.acting.replace(Some(self.definitions.owner(view.oid)));
        self.need(scan.table.oid, privileges);
        self.acting.set(acting);
        let columns =
            plan.output.iter().zip(&plan.fields).map(|(expr, field)| Bound { expr: expr.clone(), ty: field.ty });
        let written = WrittenView { columns: columns.collect(), conditions: scan.conditions.clone(), view };
        Ok((scan.table.clone(), Some(written)))
    }
}
