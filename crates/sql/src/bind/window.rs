//! Which windows does a SELECT have? OVER clauses and the WINDOW list, to windows and calls over the block's rows.

use super::clauses::sort_key;
use super::folded;
use crate::expr::{self, Bound, Expr, Params, Scope, WindowCall};
use crate::plan::{Frame, FrameEnd, FrameMode, SortKey, Window};
use homenode_types::{Error, Result, SqlState, Type};
use sqlparser::ast;
use std::cell::RefCell;

/// Register numbers of window functions' results while the block's width is not known.
pub(super) const WINDOW_BASE: usize = 1 << 21;

/// The scope of a block's output: what its rows offer, and window functions over them.
pub(super) struct WindowScope<'a> {
    pub rows: &'a dyn Scope,
    /// WINDOW name AS (...).
    pub named: &'a [ast::NamedWindowDefinition],
    pub found: RefCell<Windows>,
}

/// The windows and calls that were met.
#[derive(Default)]
pub(super) struct Windows {
    pub windows: Vec<Window>,
    pub calls: Vec<WindowCall>,
}

impl Windows {
    /// Expressions over the block's rows that the windows read.
    pub fn exprs_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        let windows = self.windows.iter_mut().flat_map(|window| {
            window.partition.iter_mut().chain(&mut window.order).map(|key| &mut key.value).chain(
                [&mut window.frame.start, &mut window.frame.end].into_iter().filter_map(|end| match end {
                    FrameEnd::Offset { value, .. } => Some(value),
                    _ => None,
                }),
            )
        });
        let calls = self.calls.iter_mut().flat_map(|call| {
            let aggregate = match &mut call.function {
                expr::WindowFunction::Aggregate(aggregate) => Some(aggregate),
                _ => None,
            };
            let own =
                aggregate.into_iter().flat_map(|aggregate| aggregate.args.iter_mut().chain(&mut aggregate.filter));
            call.args.iter_mut().chain(own)
        });
        windows.chain(calls)
    }
}

fn windowing(message: impl Into<String>) -> Error {
    Error::new(SqlState::WINDOWING_ERROR, message.into())
}

impl WindowScope<'_> {
    fn call(&self, call: &ast::Function, over: &ast::WindowType, params: &mut Params) -> Result<Bound> {
        let window = match over {
            ast::WindowType::NamedWindow(name) => self.definition(&folded(name), 0)?,
            ast::WindowType::WindowSpec(spec) => self.complete(spec, self.named.len())?,
        };
        let window = self.window(&window, params)?;
        let bound = expr::bind_window_call(call, window, self.rows, params)?;
        let ty = bound.ty;
        let wanted = format!("{bound:?}");
        let calls = &mut self.found.borrow_mut().calls;
        let place = match calls.iter().position(|known| format!("{known:?}") == wanted) {
            Some(place) => place,
            None => {
                calls.push(bound);
                calls.len() - 1
            }
        };
        Ok(Bound { expr: Expr::Column(WINDOW_BASE + place), ty })
    }

    /// The window `name` of the WINDOW list, with what it takes from those before it. `depth` bounds a circle.
    fn definition(&self, name: &str, depth: usize) -> Result<ast::WindowSpec> {
        let missing = || Error::new(SqlState::UNDEFINED_OBJECT, format!("window \"{name}\" does not exist"));
        let place = self.named.iter().position(|definition| folded(&definition.0) == name).ok_or_else(missing)?;
        if depth > self.named.len() {
            return Err(missing());
        }
        match &self.named[place].1 {
            ast::NamedWindowExpr::NamedWindow(other) => self.definition(&folded(other), depth + 1),
            ast::NamedWindowExpr::WindowSpec(spec) => self.complete(spec, place),
        }
    }

    /// A specification with what it takes from a named window, which is one of the first `known`.
    fn complete(&self, spec: &ast::WindowSpec, known: usize) -> Result<ast::WindowSpec> {
        let Some(base) = &spec.window_name else { return Ok(spec.clone()) };
        let name = folded(base);
        if !self.named[..known].iter().any(|definition| folded(&definition.0) == name) {
            return Err(Error::new(SqlState::UNDEFINED_OBJECT, format!("window \"{name}\" does not exist")));
        }
        let mut whole = self.definition(&name, 0)?;
        if !spec.partition_by.is_empty() {
            return Err(windowing(format!("cannot override PARTITION BY clause of window \"{name}\"")));
        }
        if !whole.order_by.is_empty() && !spec.order_by.is_empty() {
            return Err(windowing(format!("cannot override ORDER BY clause of window \"{name}\"")));
        }
        if whole.window_frame.is_some() {
            return Err(windowing(format!("cannot copy window \"{name}\" because it has a frame clause")));
        }
        if whole.order_by.is_empty() {
            whole.order_by.clone_from(&spec.order_by);
        }
        whole.window_frame.clone_from(&spec.window_frame);
        Ok(whole)
    }

    /// The number of a window, new or met before.
    fn window(&self, spec: &ast::WindowSpec, params: &mut Params) -> Result<usize> {
        let partition = spec
            .partition_by
            .iter()
            .map(|tree| self.key(tree, params).map(|bound| SortKey::ascending(bound.expr, bound.ty)))
            .collect::<Result<Vec<_>>>()?;
        let order = spec
            .order_by
            .iter()
            .map(|order| self.key(&order.expr, params).and_then(|bound| sort_key(bound.expr, bound.ty, order)))
            .collect::<Result<Vec<_>>>()?;
        let frame = self.frame(spec.window_frame.as_ref(), &order, params)?;
        let window = Window { partition, order, frame };
        let wanted = format!("{window:?}");
        let windows = &mut self.found.borrow_mut().windows;
        if let Some(place) = windows.iter().position(|known| format!("{known:?}") == wanted) {
            return Ok(place);
        }
        windows.push(window);
        Ok(windows.len() - 1)
    }

    fn key(&self, tree: &ast::Expr, params: &mut Params) -> Result<Bound> {
        super::block::fit_output(expr::bind(tree, self.rows, params)?, params)
    }

    fn frame(&self, frame: Option<&ast::WindowFrame>, order: &[SortKey], params: &mut Params) -> Result<Frame> {
        let Some(frame) = frame else { return Ok(Frame::default()) };
        let mode = match frame.units {
            ast::WindowFrameUnits::Rows => FrameMode::Rows,
            ast::WindowFrameUnits::Range => FrameMode::Range,
            ast::WindowFrameUnits::Groups => FrameMode::Groups,
        };
        if mode == FrameMode::Groups && order.is_empty() {
            return Err(windowing("GROUPS mode requires an ORDER BY clause"));
        }
        let start = self.frame_end(mode, &frame.start_bound, true, order, params)?;
        let end = match &frame.end_bound {
            Some(end) => self.frame_end(mode, end, false, order, params)?,
            None => FrameEnd::CurrentRow,
        };
        let problem = match (&start, &end) {
            (FrameEnd::UnboundedFollowing, _) => "frame start cannot be UNBOUNDED FOLLOWING",
            (_, FrameEnd::UnboundedPreceding) => "frame end cannot be UNBOUNDED PRECEDING",
            (FrameEnd::CurrentRow, FrameEnd::Offset { preceding: true, .. }) => {
                "frame starting from current row cannot have preceding rows"
            }
            (
                FrameEnd::Offset { preceding: false, .. },
                FrameEnd::CurrentRow | FrameEnd::Offset { preceding: true, .. },
            ) => "frame starting from following row cannot have preceding rows",
            _ => return Ok(Frame { mode, start, end }),
        };
        Err(windowing(problem))
    }

    fn frame_end(
        &self,
        mode: FrameMode,
        bound: &ast::WindowFrameBound,
        is_start: bool,
        order: &[SortKey],
        params: &mut Params,
    ) -> Result<FrameEnd> {
        let (tree, preceding) = match bound {
            ast::WindowFrameBound::CurrentRow => return Ok(FrameEnd::CurrentRow),
            ast::WindowFrameBound::Preceding(None) => return Ok(FrameEnd::UnboundedPreceding),
            ast::WindowFrameBound::Following(None) => return Ok(FrameEnd::UnboundedFollowing),
            ast::WindowFrameBound::Preceding(Some(tree)) => (tree, true),
            ast::WindowFrameBound::Following(Some(tree)) => (tree, false),
        };
        let value = expr::bind(tree, &expr::NoColumns, params).map_err(|mut error| {
            if error.code == SqlState::UNDEFINED_COLUMN {
                error.code = SqlState::INVALID_COLUMN_REFERENCE;
                let mode = format!("{mode:?}").to_ascii_uppercase();
                error.message = format!("argument of {mode} must not contain variables");
            }
            error
        })?;
        if mode != FrameMode::Range {
            let value = expr::cast_bound(value, Type::Int8.into(), params)?;
            return Ok(FrameEnd::Offset { value: value.expr, preceding, reaches: None });
        }
        let [key] = order else {
            let message = "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column";
            return Err(windowing(message));
        };
        let value = match value.ty.ty {
            Type::Unknown if expr::is_time(key.ty.ty) => expr::cast_bound(value, Type::Interval.into(), params)?,
            Type::Unknown => expr::cast_bound(value, key.ty, params)?,
            _ => value,
        };
        let reaches = expr::range_end(key.ty, value.ty.ty, key.descending, preceding, is_start, params)?;
        Ok(FrameEnd::Offset { value: value.expr, preceding, reaches: Some(reaches) })
    }
}

impl Scope for WindowScope<'_> {
    fn column(&self, qualifier: Option<&str>, name: &str) -> Result<Bound> {
        self.rows.column(qualifier, name)
    }

    fn row_columns(&self, name: &str) -> Option<Vec<String>> {
        self.rows.row_columns(name)
    }

    fn intercept(&self, tree: &ast::Expr, params: &mut Params) -> Option<Result<Bound>> {
        match expr::over_of(tree) {
            Some((call, over)) => Some(self.call(call, over, params)),
            None => self.rows.intercept(tree, params),
        }
    }
}
