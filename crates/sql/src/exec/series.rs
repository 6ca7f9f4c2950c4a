//! What do set-returning functions give? Their rows in FROM, and side by side in a select list.

use super::{Operator, Registers, all_hold, build, context};
use crate::expr::{Env, RowSource};
use crate::plan::{ProjectSetPlan, SeriesKind, SeriesPlan};
use homenode_types::{ColumnType, Decimal, Error, Result, SqlState, Type, Value, array, record};
use std::sync::Arc;

/// The rows of one call.
enum State {
    Done,
    Numbers {
        next: i128,
        stop: i128,
        step: i128,
        ty: Type,
    },
    Decimals {
        next: Option<Decimal>,
        stop: Decimal,
        step: Decimal,
    },
    Values(std::vec::IntoIter<Value>),
    /// A column for each array, as long as the longest.
    Columns(Vec<std::vec::IntoIter<Value>>),
    Rows(std::vec::IntoIter<Vec<Value>>),
}

fn zero_step() -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, "step size cannot equal zero")
}

impl State {
    /// Calls the function for the row.
    fn start(kind: &SeriesKind, row: &dyn RowSource, params: &[Value], env: &mut Env<'_>) -> Result<State> {
        match kind {
            SeriesKind::Numbers { start, stop, step, ty } => {
                let (start, stop) = (start.eval(row, params, env)?, stop.eval(row, params, env)?);
                let step = match step {
                    Some(step) => step.eval(row, params, env)?,
                    None => Value::Int4(1),
                };
                numbers(&start, &stop, &step, *ty)
            }
            SeriesKind::Times { start, stop, step, ty } => {
                let values =
                    (start.eval(row, params, env)?, stop.eval(row, params, env)?, step.eval(row, params, env)?);
                times(values, *ty)
            }
            SeriesKind::Unnest { arrays } => {
                let mut columns = Vec::with_capacity(arrays.len());
                for (array, ty) in arrays {
                    columns.push(match array.eval(row, params, env)? {
                        Value::Text(text) => array::elements(&text, *ty)?.into_iter(),
                        _ => Vec::new().into_iter(),
                    });
                }
                Ok(State::Columns(columns))
            }
            SeriesKind::Scalar { value } => Ok(State::Values(vec![value.eval(row, params, env)?].into_iter())),
            SeriesKind::Rows { function, args } => {
                let args = args.iter().map(|arg| arg.eval(row, params, env)).collect::<Result<Vec<_>>>()?;
                if args.iter().any(Value::is_null) {
                    return Ok(State::Done);
                }
                Ok(State::Rows((function.rows)(&args)?.into_iter()))
            }
        }
    }

    /// The next row as one value; false when there is none.
    fn next_value(&mut self, kind: &SeriesKind, into: &mut Value) -> bool {
        let columns = match kind {
            SeriesKind::Rows { function, .. } => function.columns,
            _ => &[],
        };
        if columns.len() < 2 {
            return self.next(std::slice::from_mut(into));
        }
        let mut row = vec![Value::Null; columns.len()];
        let any = self.next(&mut row);
        *into = Value::Text(record::format(&row, columns.iter().map(|(_, ty)| *ty)));
        any
    }

    /// The next row into the first of `into`; false when there is none.
    fn next(&mut self, into: &mut [Value]) -> bool {
        match self {
            State::Done => return false,
            State::Numbers { next, stop, step, ty } => {
                if (*step > 0 && *next > *stop) || (*step < 0 && *next < *stop) {
                    return false;
                }
                into[0] = if *ty == Type::Int4 { Value::Int4(*next as i32) } else { Value::Int8(*next as i64) };
                *next += *step;
            }
            State::Decimals { next, stop, step } => match *next {
                Some(value)
                    if (*step > Decimal::ZERO && value <= *stop) || (*step < Decimal::ZERO && value >= *stop) =>
                {
                    *next = value.checked_add(*step);
                    into[0] = Value::Numeric(value);
                }
                _ => return false,
            },
            State::Values(values) => match values.next() {
                Some(value) => into[0] = value,
                None => return false,
            },
            State::Columns(columns) => {
                if columns.iter().all(|column| column.len() == 0) {
                    return false;
                }
                for (column, register) in columns.iter_mut().zip(into) {
                    *register = column.next().unwrap_or(Value::Null);
                }
            }
            State::Rows(rows) => match rows.next() {
                Some(row) => row.into_iter().zip(into).for_each(|(value, register)| *register = value),
                None => return false,
            },
        }
        true
    }
}

fn numbers(start: &Value, stop: &Value, step: &Value, ty: ColumnType) -> Result<State> {
    if ty.ty == Type::Numeric {
        let number = |value: &Value| value.as_ref().as_decimal();
        return match (number(start), number(stop), number(step)) {
            (Some(_), Some(_), Some(step)) if step.is_zero() => Err(zero_step()),
            (Some(start), Some(stop), Some(step)) => Ok(State::Decimals { next: Some(start), stop, step }),
            _ => Ok(State::Done),
        };
    }
    match (start.as_i64(), stop.as_i64(), step.as_i64()) {
        (Some(_), Some(_), Some(0)) => Err(zero_step()),
        (Some(start), Some(stop), Some(step)) => {
            Ok(State::Numbers { next: start.into(), stop: stop.into(), step: step.into(), ty: ty.ty })
        }
        _ => Ok(State::Done),
    }
}

/// Most rows of a series of timestamps; it is made at once.
const MAX_TIMES: usize = 10_000_000;

fn times((start, stop, step): (Value, Value, Value), ty: ColumnType) -> Result<State> {
    let us = |value: &Value| match value {
        Value::Timestamp(us) | Value::Timestamptz(us) => Some(*us),
        _ => None,
    };
    let (Some(start), Some(stop), Value::Interval(step)) = (us(&start), us(&stop), &step) else {
        return Ok(State::Done);
    };
    let direction = step.order_us().signum();
    if direction == 0 {
        return Err(zero_step());
    }
    let mut values = Vec::new();
    let mut at = start;
    while (direction > 0 && at <= stop) || (direction < 0 && at >= stop) {
        values.push(if ty.ty == Type::Timestamp { Value::Timestamp(at) } else { Value::Timestamptz(at) });
        if values.len() > MAX_TIMES {
            return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "generate_series gives too many timestamps"));
        }
        at = crate::expr::add_interval(at, *step)?;
    }
    Ok(State::Values(values.into_iter()))
}

/// A function in FROM.
pub(super) struct SeriesRows {
    plan: Arc<SeriesPlan>,
    state: State,
    count: i64,
}

impl SeriesRows {
    pub fn new(plan: Arc<SeriesPlan>) -> SeriesRows {
        SeriesRows { plan, state: State::Done, count: 0 }
    }
}

impl Operator for SeriesRows {
    fn open(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<()> {
        self.count = 0;
        self.state = State::start(&self.plan.kind, &Registers(row), params, env)?;
        Ok(())
    }

    fn next(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<bool> {
        while self.state.next(&mut row[self.plan.base..]) {
            self.count += 1;
            if self.count % 4096 == 0 {
                context(env).check_interrupt()?;
            }
            if let Some(register) = self.plan.ordinality {
                row[register] = Value::Int8(self.count);
            }
            if all_hold(&self.plan.filter, &Registers(row), params, env)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Functions in a select list: for each row as many rows as the longest of them gives.
pub(super) struct ProjectSet {
    plan: Arc<ProjectSetPlan>,
    input: Box<dyn Operator>,
    states: Vec<State>,
    count: u64,
}

impl ProjectSet {
    pub fn new(plan: Arc<ProjectSetPlan>) -> ProjectSet {
        ProjectSet { input: build(&plan.input), plan, states: Vec::new(), count: 0 }
    }
}

impl Operator for ProjectSet {
    fn open(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<()> {
        self.states.clear();
        self.input.open(env, params, row)
    }

    fn next(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<bool> {
        let plan = self.plan.clone();
        loop {
            let mut any = false;
            for (number, state) in self.states.iter_mut().enumerate() {
                let register = &mut row[plan.width + number];
                if state.next_value(&plan.calls[number], register) {
                    any = true;
                } else {
                    // The others may go on.
                    *state = State::Done;
                    *register = Value::Null;
                }
            }
            self.count += 1;
            if self.count.is_multiple_of(4096) {
                context(env).check_interrupt()?;
            }
            if any {
                return Ok(true);
            }
            if !self.input.next(env, params, row)? {
                return Ok(false);
            }
            self.states.clear();
            for kind in &plan.calls {
                self.states.push(State::start(kind, &Registers(row), params, env)?);
            }
        }
    }

    fn reset(&mut self) {
        self.input.reset();
    }
}
