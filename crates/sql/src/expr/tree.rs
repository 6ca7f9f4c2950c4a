//! Walking and rebuilding bound expressions.

use super::{Expr, Volatility};
use homenode_types::Value;

/// NOT of an expression; two of them cancel out.
pub fn not(expr: Expr) -> Expr {
    match expr {
        Expr::Not(inner) => *inner,
        Expr::Const(Value::Bool(value)) => Expr::Const(Value::Bool(!value)),
        other => Expr::Not(Box::new(other)),
    }
}

/// Takes a condition apart at its ANDs.
pub fn split_conjunction(expr: Expr, parts: &mut Vec<Expr>) {
    match expr {
        Expr::And(list) => list.into_iter().for_each(|part| split_conjunction(part, parts)),
        Expr::Const(Value::Bool(true)) => {}
        other => parts.push(other),
    }
}

impl Expr {
    /// Calls `f` with each direct child.
    pub fn for_each_child<'a>(&'a self, f: &mut dyn FnMut(&'a Expr)) {
        match self {
            Expr::Const(_) | Expr::Column(_) | Expr::Param(_) | Expr::Outer(_) | Expr::External(_) => {}
            Expr::Compare { left, right, .. }
            | Expr::Distinct { left, right, .. }
            | Expr::Arith { left, right, .. } => {
                f(left);
                f(right);
            }
            Expr::And(list) | Expr::Or(list) | Expr::Coalesce(list) => list.iter().for_each(f),
            Expr::Extreme { list, .. } => list.iter().for_each(f),
            Expr::Array { items, .. } => items.iter().for_each(f),
            Expr::Call { args, .. } | Expr::ArrayCall { args, .. } => args.iter().for_each(f),
            Expr::Not(expr) | Expr::Negate(expr) | Expr::Field { record: expr, .. } => f(expr),
            Expr::IsNull { expr, .. } | Expr::IsBool { expr, .. } | Expr::Cast { expr, .. } => f(expr),
            Expr::Case { whens, otherwise } => {
                for (condition, result) in whens {
                    f(condition);
                    f(result);
                }
                if let Some(otherwise) = otherwise {
                    f(otherwise);
                }
            }
            Expr::InList { expr, list, .. } => {
                f(expr);
                list.iter().for_each(f);
            }
            Expr::AnyArray { left, array, .. } => {
                f(left);
                f(array);
            }
            Expr::Subscript { array, index, .. } => {
                f(array);
                f(index);
            }
            Expr::Match { expr, pattern, .. } => {
                f(expr);
                f(pattern);
            }
        }
    }

    /// Calls `f` with each direct child, to change it.
    pub fn for_each_child_mut(&mut self, f: &mut dyn FnMut(&mut Expr)) {
        match self {
            Expr::Const(_) | Expr::Column(_) | Expr::Param(_) | Expr::Outer(_) | Expr::External(_) => {}
            Expr::Compare { left, right, .. }
            | Expr::Distinct { left, right, .. }
            | Expr::Arith { left, right, .. } => {
                f(left);
                f(right);
            }
            Expr::And(list) | Expr::Or(list) | Expr::Coalesce(list) => list.iter_mut().for_each(f),
            Expr::Extreme { list, .. } => list.iter_mut().for_each(f),
            Expr::Array { items, .. } => items.iter_mut().for_each(f),
            Expr::Call { args, .. } | Expr::ArrayCall { args, .. } => args.iter_mut().for_each(f),
            Expr::Not(expr) | Expr::Negate(expr) | Expr::Field { record: expr, .. } => f(expr),
            Expr::IsNull { expr, .. } | Expr::IsBool { expr, .. } | Expr::Cast { expr, .. } => f(expr),
            Expr::Case { whens, otherwise } => {
                for (condition, result) in whens {
                    f(condition);
                    f(result);
                }
                if let Some(otherwise) = otherwise {
                    f(otherwise);
                }
            }
            Expr::InList { expr, list, .. } => {
                f(expr);
                list.iter_mut().for_each(f);
            }
            Expr::AnyArray { left, array, .. } => {
                f(left);
                f(array);
            }
            Expr::Subscript { array, index, .. } => {
                f(array);
                f(index);
            }
            Expr::Match { expr, pattern, .. } => {
                f(expr);
                f(pattern);
            }
        }
    }

    /// Is the test true for this expression or one below it?
    pub fn any(&self, test: &dyn Fn(&Expr) -> bool) -> bool {
        if test(self) {
            return true;
        }
        let mut found = false;
        self.for_each_child(&mut |child| found = found || child.any(test));
        found
    }

    /// Calls `visit` with each column that is read.
    pub fn visit_columns(&self, visit: &mut dyn FnMut(usize)) {
        match self {
            Expr::Column(i) => visit(*i),
            Expr::External(external) => external.visit_columns(visit),
            _ => self.for_each_child(&mut |child| child.visit_columns(visit)),
        }
    }

    /// Renumbers the columns. Externals keep theirs: they are shared.
    pub fn map_columns(&mut self, map: &mut dyn FnMut(usize) -> usize) {
        match self {
            Expr::Column(i) => *i = map(*i),
            _ => self.for_each_child_mut(&mut |child| child.map_columns(map)),
        }
    }

    /// Replaces the columns of the query around by expressions over the row.
    pub fn replace_outer(&mut self, columns: &[Expr]) {
        match self {
            Expr::Outer(place) => {
                if let Some(column) = columns.get(*place) {
                    *self = column.clone();
                }
            }
            Expr::External(external) => *external = external.with_outer(columns),
            _ => self.for_each_child_mut(&mut |child| child.replace_outer(columns)),
        }
    }

    /// Is the value the same for every row of a statement? No columns, no query around, no subquery, no volatile
    /// function; parameters are allowed.
    pub fn is_constant(&self) -> bool {
        !self.any(&|e| match e {
            Expr::Column(_) | Expr::Outer(_) | Expr::External(_) => true,
            Expr::Call { function, .. } => function.volatility == Volatility::Volatile,
            _ => false,
        })
    }

    /// Can it be computed once when the statement is planned? Constant, without parameters or anything that asks the
    /// session.
    pub fn is_immutable(&self) -> bool {
        !self.any(&|e| match e {
            Expr::Column(_) | Expr::Outer(_) | Expr::External(_) | Expr::Param(_) => true,
            Expr::Call { function, .. } => function.volatility != Volatility::Immutable,
            Expr::Cast { expr, from, to, .. } => super::coerce::is_stable_cast(expr, *from, to.ty),
            _ => false,
        })
    }

    /// Does it give the same for the same row at any time, in any session?
    pub fn is_repeatable(&self) -> bool {
        !self.any(&|e| match e {
            Expr::Outer(_) | Expr::External(_) | Expr::Param(_) => true,
            Expr::Call { function, .. } => function.volatility != Volatility::Immutable,
            Expr::Cast { expr, from, to, .. } => super::coerce::is_stable_cast(expr, *from, to.ty),
            _ => false,
        })
    }

    /// Does it read a parameter?
    pub fn has_params(&self) -> bool {
        self.any(&|e| matches!(e, Expr::Param(_)))
    }

    /// Does it call a volatile function (nextval, random)?
    pub fn is_volatile(&self) -> bool {
        self.any(&|e| matches!(e, Expr::Call { function, .. } if function.volatility == Volatility::Volatile))
    }
}
