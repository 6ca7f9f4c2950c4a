//! What do window functions give? All rows are read, sorted by partition and order for each window, and every call is computed
//! partition by partition.

use super::{Operator, Registers, build, context};
use crate::expr::{Accumulator, AggregateCall, Env, Expr, WindowCall, WindowFunction};
use crate::plan::{Frame, FrameEnd, FrameMode, SortKey, Window, WindowPlan};
use crate::sort_keys::{Direction, SortKeys};
use homenode_engine::{Charge, MemoryContext};
use homenode_types::{Error, Interval, Result, SqlState, Value, compare};
use std::ops::Range;
use std::sync::Arc;

/// Rows between two looks at whether the statement has been cancelled.
const ROWS_PER_CHECK: usize = 1024;

/// The operator.
pub(super) struct WindowRows {
    plan: Arc<WindowPlan>,
    input: Box<dyn Operator>,
    /// Registers of all rows, one row after the other.
    rows: Vec<Value>,
    /// Results, row by row.
    results: Vec<Value>,
    /// Numbers of the rows that are still to be given, the next one last.
    order: Vec<usize>,
    charge: Option<Charge>,
}

impl WindowRows {
    pub fn new(plan: Arc<WindowPlan>) -> WindowRows {
        let (rows, results) = (Vec::new(), Vec::new());
        WindowRows { input: build(&plan.input), plan, rows, results, order: Vec::new(), charge: None }
    }

    fn read(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<usize> {
        self.rows.clear();
        let mut charge = Charge::new(&context(env).session.shared().memory, MemoryContext::Sort);
        self.input.open(env, params, row)?;
        let (mut count, mut texts) = (0, 0);
        while self.input.next(env, params, row)? {
            self.rows.extend_from_slice(&row[..self.plan.width]);
            texts += row[..self.plan.width].iter().map(Value::heap_bytes).sum::<usize>();
            count += 1;
            if count % ROWS_PER_CHECK == 0 {
                let start = self.rows.as_ptr().addr();
                charge
                    .set(self.rows.capacity() * size_of::<Value>() + texts, start..start + size_of_val(&self.rows[..]));
                context(env).check_interrupt()?;
            }
        }
        self.charge = Some(charge);
        Ok(count)
    }
}

impl Operator for WindowRows {
    fn open(&mut self, env: &mut Env<'_>, params: &[Value], row: &mut [Value]) -> Result<()> {
        let count = self.read(env, params, row)?;
        let plan = self.plan.clone();
        self.results = vec![Value::Null; count * plan.calls.len()];
        let mut order = Vec::new();
        for (number, window) in plan.windows.iter().enumerate() {
            let mut run = Run { plan: &plan, window, rows: &self.rows, params, env: &mut *env };
            let sorted = run.sort(count)?;
            for partition in sorted.partitions() {
                let partition = run.partition(&sorted, partition)?;
                for (place, call) in plan.calls.iter().enumerate().filter(|(_, call)| call.window == number) {
                    context(run.env).check_interrupt()?;
                    let results = &mut self.results;
                    run.call(call, &partition, &mut |row, value| results[row * plan.calls.len() + place] = value)?;
                }
            }
            order = sorted.order;
        }
        order.reverse();
        self.order = order;
        Ok(())
    }

    fn next(&mut self, _: &mut Env<'_>, _: &[Value], row: &mut [Value]) -> Result<bool> {
        let Some(number) = self.order.pop() else { return Ok(false) };
        let (width, calls) = (self.plan.width, self.plan.calls.len());
        let registers = self.rows[number * width..][..width].iter_mut();
        let results = self.results[number * calls..][..calls].iter_mut();
        for (register, value) in row.iter_mut().zip(registers.chain(results)) {
            *register = std::mem::take(value);
        }
        Ok(true)
    }
}

/// All rows in a window's order.
struct Sorted {
    /// Rows by their numbers.
    order: Vec<usize>,
    /// Keys of the partitions alone, and with the order behind them, by the rows' numbers.
    partition: SortKeys,
    whole: SortKeys,
}

impl Sorted {
    /// The places in the order that make one partition.
    fn partitions(&self) -> Vec<Range<usize>> {
        let mut start = 0;
        let chunks = self.order.chunk_by(|a, b| self.partition.same(*a, *b));
        chunks
            .map(|chunk| {
                start += chunk.len();
                start - chunk.len()..start
            })
            .collect()
    }
}

/// The rows of one partition.
struct Partition<'a> {
    /// Numbers of its rows, in order.
    rows: &'a [usize],
    /// Groups of rows that are equal to the order, as places in `rows`.
    peers: Vec<Range<usize>>,
    /// For each row the number of its group.
    peer_of: Vec<usize>,
    /// In RANGE mode with offsets: the value that is sorted by, and the places where it is not NULL.
    values: Vec<Value>,
    known: Range<usize>,
}

/// One window over all rows.
struct Run<'r, 'e, 'h> {
    plan: &'r WindowPlan,
    window: &'r Window,
    rows: &'r [Value],
    params: &'r [Value],
    env: &'e mut Env<'h>,
}

impl Run<'_, '_, '_> {
    fn eval(&mut self, expr: &Expr, row: usize) -> Result<Value> {
        let width = self.plan.width;
        expr.eval(&Registers(&self.rows[row * width..][..width]), self.params, self.env)
    }

    fn sort(&mut self, count: usize) -> Result<Sorted> {
        let (mut partition, mut whole) = (SortKeys::default(), SortKeys::default());
        let window = self.window;
        for row in 0..count {
            let mut part = |keys: &mut SortKeys, key: &SortKey| -> Result<()> {
                let value = self.eval(&key.value, row)?;
                let direction = Direction { descending: key.descending, nulls_first: key.nulls_first };
                keys.part(value.as_ref(), key.ty.ty, direction);
                Ok(())
            };
            for key in &window.partition {
                part(&mut partition, key)?;
                part(&mut whole, key)?;
            }
            for key in &window.order {
                part(&mut whole, key)?;
            }
            partition.end_row();
            whole.end_row();
        }
        whole.sort();
        Ok(Sorted { order: whole.rows().collect(), partition, whole })
    }

    fn partition<'s>(&mut self, sorted: &'s Sorted, places: Range<usize>) -> Result<Partition<'s>> {
        let rows = &sorted.order[places];
        let (mut peers, mut peer_of) = (Vec::new(), Vec::with_capacity(rows.len()));
        for chunk in rows.chunk_by(|a, b| sorted.whole.same(*a, *b)) {
            let start = peer_of.len();
            peer_of.resize(start + chunk.len(), peers.len());
            peers.push(start..start + chunk.len());
        }
        let reaches = |end: &FrameEnd| matches!(end, FrameEnd::Offset { reaches: Some(_), .. });
        let mut values = Vec::new();
        if let [key] = &self.window.order[..]
            && (reaches(&self.window.frame.start) || reaches(&self.window.frame.end))
        {
            for row in rows {
                values.push(self.eval(&key.value, *row)?);
            }
        }
        let first = values.iter().position(|value| !value.is_null()).unwrap_or(0);
        let known = first..first + values[first..].iter().take_while(|value| !value.is_null()).count();
        Ok(Partition { rows, peers, peer_of, values, known })
    }

    fn call(&mut self, call: &WindowCall, partition: &Partition<'_>, give: &mut dyn FnMut(usize, Value)) -> Result<()> {
        use WindowFunction as W;
        let count = partition.rows.len();
        match &call.function {
            W::Aggregate(aggregate) => return self.aggregate(aggregate, partition, give),
            W::Ntile => return self.ntile(&call.args[0], partition, give),
            W::First | W::Last | W::Nth => return self.of_frame(call, partition, give),
            W::Shift { lead } => return self.shift(call, *lead, partition, give),
            _ => {}
        }
        for (place, row) in partition.rows.iter().enumerate() {
            let peer = partition.peer_of[place];
            let peers = &partition.peers[peer];
            give(
                *row,
                match call.function {
                    W::RowNumber => Value::Int8(place as i64 + 1),
                    W::Rank => Value::Int8(peers.start as i64 + 1),
                    W::DenseRank => Value::Int8(peer as i64 + 1),
                    W::PercentRank => Value::Float8(peers.start as f64 / (count.max(2) - 1) as f64),
                    _ => Value::Float8(peers.end as f64 / count as f64),
                },
            );
        }
        Ok(())
    }

    /// So many buckets of equal size, the first ones larger by one where they do not come out even.
    fn ntile(&mut self, buckets: &Expr, partition: &Partition<'_>, give: &mut dyn FnMut(usize, Value)) -> Result<()> {
        let count = partition.rows.len();
        let Some(buckets) = self.eval(buckets, partition.rows[0])?.as_i64() else { return Ok(()) };
        let buckets = usize::try_from(buckets).ok().filter(|buckets| *buckets > 0).ok_or_else(|| {
            Error::new(SqlState::INVALID_ARGUMENT_FOR_NTILE, "argument of ntile must be greater than zero")
        })?;
        let (size, larger) = (count / buckets, count % buckets);
        for (place, row) in partition.rows.iter().enumerate() {
            let in_larger = larger * (size + 1);
            let bucket =
                if place < in_larger { place / (size + 1) } else { larger + (place - in_larger) / size.max(1) };
            give(*row, Value::Int4(bucket as i32 + 1));
        }
        Ok(())
    }

    fn shift(
        &mut self,
        call: &WindowCall,
        lead: bool,
        partition: &Partition<'_>,
        give: &mut dyn FnMut(usize, Value),
    ) -> Result<()> {
        for (place, row) in partition.rows.iter().enumerate() {
            let by = match call.args.get(1) {
                None => 1,
                Some(offset) => match self.eval(offset, *row)?.as_i64() {
                    Some(by) => by,
                    None => {
                        give(*row, Value::Null);
                        continue;
                    }
                },
            };
            let from = place as i64 + if lead { by } else { -by };
            let source = usize::try_from(from).ok().and_then(|from| partition.rows.get(from));
            let value = match (source, call.args.get(2)) {
                (Some(source), _) => self.eval(&call.args[0], *source)?,
                (None, Some(default)) => self.eval(default, *row)?,
                (None, None) => Value::Null,
            };
            give(*row, value);
        }
        Ok(())
    }

    fn of_frame(
        &mut self,
        call: &WindowCall,
        partition: &Partition<'_>,
        give: &mut dyn FnMut(usize, Value),
    ) -> Result<()> {
        let ends = self.frame_ends()?;
        for (place, row) in partition.rows.iter().enumerate() {
            let frame = self.frame(&ends, partition, place)?;
            let source = match call.function {
                WindowFunction::First => frame.clone().next(),
                WindowFunction::Last => frame.clone().next_back(),
                _ => {
                    let Some(number) = self.eval(&call.args[1], *row)?.as_i64() else {
                        give(*row, Value::Null);
                        continue;
                    };
                    let number = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
                    let skip = number.ok_or_else(|| {
                        let message = "argument of nth_value must be greater than zero";
                        Error::new(SqlState::INVALID_ARGUMENT_FOR_NTH_VALUE, message)
                    })?;
                    frame.clone().nth(skip)
                }
            };
            let value = match source {
                Some(source) => self.eval(&call.args[0], partition.rows[source])?,
                None => Value::Null,
            };
            give(*row, value);
        }
        Ok(())
    }

    fn aggregate(
        &mut self,
        call: &AggregateCall,
        partition: &Partition<'_>,
        give: &mut dyn FnMut(usize, Value),
    ) -> Result<()> {
        let ends = self.frame_ends()?;
        let (mut seen, mut sum) = (0..0, Accumulator::new(&call.aggregate));
        let mut result = sum.clone().finish()?;
        let mut arguments = Vec::new();
        for (place, row) in partition.rows.iter().enumerate() {
            let frame = self.frame(&ends, partition, place)?;
            if frame != seen {
                // A frame that only grows at its end goes on from what was added up so far.
                let grows = frame.start == seen.start && frame.end >= seen.end;
                if !grows {
                    (seen, sum) = (frame.start..frame.start, Accumulator::new(&call.aggregate));
                }
                for place in seen.end..frame.end {
                    self.add(call, partition.rows[place], &mut sum, &mut arguments)?;
                    if place % ROWS_PER_CHECK == 0 {
                        context(self.env).check_interrupt()?;
                    }
                }
                result = sum.clone().finish()?;
                seen = frame;
            }
            give(*row, result.clone());
        }
        Ok(())
    }

    fn add(
        &mut self,
        call: &AggregateCall,
        row: usize,
        sum: &mut Accumulator,
        arguments: &mut Vec<Value>,
    ) -> Result<()> {
        if let Some(filter) = &call.filter
            && self.eval(filter, row)? != Value::Bool(true)
        {
            return Ok(());
        }
        arguments.clear();
        for argument in &call.args {
            arguments.push(self.eval(argument, row)?);
        }
        sum.add(arguments)
    }

    /// The offsets of the frame's start and end.
    fn frame_ends(&mut self) -> Result<[Value; 2]> {
        let Frame { start, end, .. } = &self.window.frame;
        Ok([self.offset(start, "starting")?, self.offset(end, "ending")?])
    }

    fn offset(&mut self, end: &FrameEnd, which: &str) -> Result<Value> {
        let FrameEnd::Offset { value, reaches, .. } = end else { return Ok(Value::Null) };
        let offset = value.eval(&(), self.params, self.env)?;
        let negative = match &offset {
            Value::Null => {
                let message = format!("frame {which} offset must not be null");
                return Err(Error::new(SqlState::NULL_VALUE_NOT_ALLOWED, message));
            }
            Value::Interval(_) => compare(offset.as_ref(), Value::Interval(Interval::default()).as_ref()).is_lt(),
            other => other.as_ref().as_f64().is_some_and(|number| number < 0.0),
        };
        if negative {
            let message = match reaches {
                Some(_) => "invalid preceding or following size in window function".to_string(),
                None => format!("frame {which} offset must not be negative"),
            };
            return Err(Error::new(SqlState::INVALID_PRECEDING_OR_FOLLOWING_SIZE, message));
        }
        Ok(offset)
    }

    /// The places that the row at `place` sees.
    fn frame(&mut self, offsets: &[Value; 2], partition: &Partition<'_>, place: usize) -> Result<Range<usize>> {
        let Frame { mode, start, end } = &self.window.frame;
        let (first, last) = (
            self.frame_end(*mode, start, &offsets[0], partition, place, true)?,
            self.frame_end(*mode, end, &offsets[1], partition, place, false)?,
        );
        Ok(first..last.max(first))
    }

    /// The first place of the frame, or the one behind its last.
    fn frame_end(
        &mut self,
        mode: FrameMode,
        end: &FrameEnd,
        offset: &Value,
        partition: &Partition<'_>,
        place: usize,
        is_start: bool,
    ) -> Result<usize> {
        let count = partition.rows.len();
        let peer = partition.peer_of[place];
        let edge = |range: &Range<usize>| if is_start { range.start } else { range.end };
        let (preceding, reaches) = match end {
            FrameEnd::UnboundedPreceding => return Ok(0),
            FrameEnd::UnboundedFollowing => return Ok(count),
            FrameEnd::CurrentRow if mode == FrameMode::Rows => return Ok(place + usize::from(!is_start)),
            FrameEnd::CurrentRow => return Ok(edge(&partition.peers[peer])),
            FrameEnd::Offset { preceding, reaches, .. } => (*preceding, reaches),
        };
        if let Some(reaches) = reaches {
            // NULL is as far from everything as from nothing: such rows see each other.
            if partition.values[place].is_null() {
                return Ok(edge(&partition.peers[peer]));
            }
            return self.reached(reaches, offset, partition, place, preceding, is_start);
        }
        let by = usize::try_from(offset.as_i64().unwrap_or(0)).unwrap_or(usize::MAX);
        let (at, all) = if mode == FrameMode::Rows { (place, count) } else { (peer, partition.peers.len()) };
        let at = if preceding { at.checked_sub(by) } else { Some(at.saturating_add(by)) };
        Ok(match at.filter(|at| *at < all) {
            None => {
                if preceding {
                    0
                } else {
                    count
                }
            }
            Some(at) if mode == FrameMode::Rows => at + usize::from(!is_start),
            Some(at) => edge(&partition.peers[at]),
        })
    }

    /// Where, in the order of the known values, those that lie within an end begin or end.
    fn reached(
        &mut self,
        reaches: &Expr,
        offset: &Value,
        partition: &Partition<'_>,
        place: usize,
        preceding: bool,
        is_start: bool,
    ) -> Result<usize> {
        let (mut low, mut high) = (partition.known.start, partition.known.end);
        while low < high {
            let middle = low + (high - low) / 2;
            let row = [partition.values[middle].clone(), partition.values[place].clone(), offset.clone()];
            let holds = match reaches.eval_bool(&Registers(&row), self.params, self.env) {
                Ok(holds) => holds == Some(true),
                // What lies beyond the type's last value reaches over all rows, or over none.
                Err(error) if is_overflow(&error) => preceding == is_start,
                Err(error) => return Err(error),
            };
            if holds == is_start {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok(low)
    }
}

fn is_overflow(error: &Error) -> bool {
    matches!(error.code, SqlState::NUMERIC_VALUE_OUT_OF_RANGE | SqlState::DATETIME_FIELD_OVERFLOW)
}
