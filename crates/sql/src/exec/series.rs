//! What does a function in FROM give? generate_series over integers and timestamps, unnest, and scalar functions.

use super::{Operator, Registers, all_hold, context};
use crate::expr::Env;
use crate::plan::{SeriesKind, SeriesPlan};
use homenode_types::{ColumnType, Error, Result, SqlState, Type, Value};
use std::sync::Arc;

enum State {
    Done,
    Numbers { next: i128, stop: i128, step: i128, ty: Type },
    Values(std::vec::IntoIter<Value>),
}

/// The operator.
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

fn zero_step() -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, "step size cannot equal zero")
}

impl Operator for SeriesRows {
    fn open(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<()> {
        let row = Registers(row);
        self.count = 0;
        self.state = match &self.plan.kind {
            SeriesKind::Numbers { start, stop, step, ty } => {
                let (start, stop) = (start.eval(&row, params, env)?, stop.eval(&row, params, env)?);
                let step = match step {
                    Some(step) => step.eval(&row, params, env)?,
                    None => Value::Int4(1),
                };
                match (start.as_i64(), stop.as_i64(), step.as_i64()) {
                    (Some(_), Some(_), Some(0)) => return Err(zero_step()),
                    (Some(start), Some(stop), Some(step)) => {
                        State::Numbers { next: start.into(), stop: stop.into(), step: step.into(), ty: ty.ty }
                    }
                    _ => State::Done,
                }
            }
            SeriesKind::Times { start, stop, step, ty } => {
                let values =
                    (start.eval(&row, params, env)?, stop.eval(&row, params, env)?, step.eval(&row, params, env)?);
                times(values, *ty)?
            }
            SeriesKind::Unnest { array, array_type } => match array.eval(&row, params, env)? {
                Value::Text(text) => State::Values(homenode_types::array::elements(&text, *array_type)?.into_iter()),
                _ => State::Done,
            },
            SeriesKind::Scalar { value } => State::Values(vec![value.eval(&row, params, env)?].into_iter()),
        };
        Ok(())
    }

    fn next(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<bool> {
        loop {
            let value = match &mut self.state {
                State::Done => return Ok(false),
                State::Numbers { next, stop, step, ty } => {
                    if (*step > 0 && *next > *stop) || (*step < 0 && *next < *stop) {
                        return Ok(false);
                    }
                    let value = if *ty == Type::Int4 { Value::Int4(*next as i32) } else { Value::Int8(*next as i64) };
                    *next += *step;
                    value
                }
                State::Values(values) => match values.next() {
                    Some(value) => value,
                    None => return Ok(false),
                },
            };
            self.count += 1;
            if self.count % 4096 == 0 {
                context(env).check_interrupt()?;
            }
            row[self.plan.base] = value;
            if self.plan.ordinality {
                row[self.plan.base + 1] = Value::Int8(self.count);
            }
            if all_hold(&self.plan.filter, &Registers(row), params, env)? {
                return Ok(true);
            }
        }
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
