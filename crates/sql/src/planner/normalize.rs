//! Which conditions say the same so that more can be done with them? What all parts of an OR have in common, what an OR says of each
//! relation alone, and constants brought to their column's type.

use super::{Mask, estimate};
use crate::expr::{Expr, split_conjunction};
use homenode_types::{Decimal, Type, Value};

/// Microseconds of a day.
const DAY_US: i64 = 86_400_000_000;

/// Rewrites conditions; `mask` gives an expression's relations, `ty` a register's type.
pub(super) fn normalize(
    conditions: Vec<Expr>,
    mask: &dyn Fn(&Expr) -> Mask,
    ty: &dyn Fn(usize) -> Option<Type>,
) -> Vec<Expr> {
    let mut found = Vec::with_capacity(conditions.len());
    for condition in conditions {
        match condition {
            Expr::Or(parts) => factored(parts, &mut found),
            other => found.push(other),
        }
    }
    let derived: Vec<Expr> = found.iter().flat_map(|condition| of_single_relations(condition, mask)).collect();
    found.extend(derived);
    for condition in &mut found {
        fit_constants(condition, ty);
    }
    found
}

fn same(a: &Expr, b: &Expr) -> bool {
    format!("{a:?}") == format!("{b:?}")
}

fn conjuncts(expr: &Expr) -> Vec<Expr> {
    let mut parts = Vec::new();
    split_conjunction(expr.clone(), &mut parts);
    parts
}

/// `(a AND b) OR (a AND c)` is `a AND (b OR c)`.
fn factored(parts: Vec<Expr>, found: &mut Vec<Expr>) {
    let volatile = |part: &Expr| part.is_volatile() || part.any(&|part| matches!(part, Expr::External(_)));
    if parts.iter().any(volatile) {
        return found.push(Expr::Or(parts));
    }
    let mut branches: Vec<Vec<Expr>> = parts.iter().map(conjuncts).collect();
    let Some(first) = branches.first() else { return };
    let common: Vec<Expr> = first
        .iter()
        .filter(|part| branches[1..].iter().all(|branch| branch.iter().any(|other| same(part, other))))
        .cloned()
        .collect();
    if common.is_empty() {
        return found.push(Expr::Or(parts));
    }
    for branch in &mut branches {
        branch.retain(|part| !common.iter().any(|shared| same(shared, part)));
    }
    found.extend(common);
    // A branch that says nothing more makes the rest of the OR true.
    if branches.iter().all(|branch| !branch.is_empty()) {
        let and = |mut branch: Vec<Expr>| if branch.len() == 1 { branch.remove(0) } else { Expr::And(branch) };
        found.push(Expr::Or(branches.into_iter().map(and).collect()));
    }
}

/// Of an OR over several relations: what it implies for each of them alone.
fn of_single_relations(condition: &Expr, mask: &dyn Fn(&Expr) -> Mask) -> Vec<Expr> {
    let Expr::Or(branches) = condition else { return Vec::new() };
    let all = mask(condition);
    if all.count_ones() < 2 || condition.any(&|part| matches!(part, Expr::External(_) | Expr::Outer(_))) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for relation in (0..64).map(|bit| 1 << bit).filter(|relation| all & relation != 0) {
        let mut implied = Vec::new();
        for branch in branches {
            let mut own: Vec<Expr> =
                conjuncts(branch).into_iter().filter(|part| mask(part) == relation && !part.is_volatile()).collect();
            match own.len() {
                0 => break,
                1 => implied.push(own.remove(0)),
                _ => implied.push(Expr::And(own)),
            }
        }
        if implied.len() == branches.len() {
            found.push(Expr::Or(implied));
        }
    }
    found
}

/// Gives constants that a column is compared with the column's type, where that changes nothing: comparing within a type is quicker.
fn fit_constants(expr: &mut Expr, ty: &dyn Fn(usize) -> Option<Type>) {
    match expr {
        Expr::Compare { left, right, .. } => {
            if let Expr::Column(register) = **left {
                fit(right, ty(register));
            } else if let Expr::Column(register) = **right {
                fit(left, ty(register));
            }
        }
        Expr::And(list) | Expr::Or(list) => list.iter_mut().for_each(|part| fit_constants(part, ty)),
        Expr::Not(inner) => fit_constants(inner, ty),
        _ => {}
    }
}

fn fit(value: &mut Expr, ty: Option<Type>) {
    let Some(ty) = ty else { return };
    let Some(known) = estimate::constant(value) else { return };
    let fitted = match (ty, &known) {
        (Type::Date, Value::Timestamp(us)) if us % DAY_US == 0 => {
            i32::try_from(us / DAY_US).ok().filter(|days| *days != i32::MIN && *days != i32::MAX).map(Value::Date)
        }
        (Type::Numeric, Value::Int2(_) | Value::Int4(_) | Value::Int8(_)) => {
            known.as_i64().map(|number| Value::Numeric(Decimal::from(number)))
        }
        _ => None,
    };
    if let Some(fitted) = fitted {
        *value = Expr::Const(fitted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::{Blanks, CmpOp};

    fn eq(register: usize, value: i32) -> Expr {
        let right = Box::new(Expr::Const(Value::Int4(value)));
        Expr::Compare { op: CmpOp::Eq, left: Box::new(Expr::Column(register)), right, blanks: Blanks::default() }
    }

    fn normalized(conditions: Vec<Expr>) -> Vec<String> {
        // Registers 0 to 9 are the first relation's, 10 to 19 the second's.
        let mask = |expr: &Expr| {
            let mut mask = 0;
            expr.visit_columns(&mut |register| mask |= 1 << (register / 10));
            mask
        };
        let found = normalize(conditions, &mask, &|register| (register == 5).then_some(Type::Numeric));
        found.iter().map(|expr| expr.describe(&|register| format!("c{register}"))).collect()
    }

    #[test]
    fn what_all_branches_say_stands_alone() {
        let or = Expr::Or(vec![Expr::And(vec![eq(0, 1), eq(10, 2)]), Expr::And(vec![eq(0, 1), eq(10, 3)])]);
        assert_eq!(normalized(vec![or]), ["(c0 = 1)", "((c10 = 2) OR (c10 = 3))"]);
        let absorbed = Expr::Or(vec![eq(0, 1), Expr::And(vec![eq(0, 1), eq(10, 3)])]);
        assert_eq!(normalized(vec![absorbed]), ["(c0 = 1)"]);
    }

    #[test]
    fn an_or_over_two_relations_restricts_each() {
        let or = Expr::Or(vec![Expr::And(vec![eq(0, 1), eq(10, 2)]), Expr::And(vec![eq(0, 3), eq(10, 4)])]);
        let found = normalized(vec![or]);
        assert_eq!(found[1..], ["((c0 = 1) OR (c0 = 3))", "((c10 = 2) OR (c10 = 4))"]);
        let half = Expr::Or(vec![Expr::And(vec![eq(0, 1), eq(10, 2)]), eq(0, 3)]);
        assert_eq!(normalized(vec![half])[1..], ["((c0 = 1) OR (c0 = 3))"]);
    }

    #[test]
    fn constants_get_their_columns_type() {
        let conditions = normalize(vec![eq(5, 7)], &|_| 1, &|_| Some(Type::Numeric));
        let Expr::Compare { right, .. } = &conditions[0] else { panic!("{conditions:?}") };
        assert!(matches!(**right, Expr::Const(Value::Numeric(_))));
        let day = Expr::Const(Value::Timestamp(3 * DAY_US));
        let left = Box::new(Expr::Column(0));
        let compare = Expr::Compare { op: CmpOp::Lt, left, right: Box::new(day), blanks: Blanks::default() };
        let conditions = normalize(vec![compare], &|_| 1, &|_| Some(Type::Date));
        let Expr::Compare { right, .. } = &conditions[0] else { panic!("{conditions:?}") };
        assert!(matches!(**right, Expr::Const(Value::Date(3))));
    }
}
