//! How would a statement run? EXPLAIN: the plan as text, in PostgreSQL's manner, or as JSON.

use crate::bind::ReturningPlan;
use crate::connection::Connection;
use crate::exec::Trace;
use crate::explain_pages::{Pages, Whereabouts};
use crate::expr::Expr;
use crate::lexer;
use crate::plan::{Access, End, JoinKind, Plan, ScanPlan, SetKind};
use crate::prepared::{Compiled, Prepared};
use crate::run::Portal;
use homenode_engine::Table;
use homenode_platform::clock;
use homenode_types::{Error, Result};
use std::sync::Arc;

/// What EXPLAIN was asked to show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub analyze: bool,
    pub costs: bool,
    pub timing: bool,
    pub json: bool,
    /// How many pages each node of the plan came by.
    pub buffers: bool,
    /// And on which memory nodes these are.
    pub numa: bool,
}

/// One node of the shown plan.
pub(crate) struct Shown {
    title: String,
    rows: f64,
    /// Until the first row and until the last one, in PostgreSQL's unit.
    cost: (f64, f64),
    /// Bytes of a row, roughly.
    width: usize,
    details: Vec<(&'static str, String)>,
    pub(crate) children: Vec<Shown>,
    /// Of a scan: how it is found in a [`Trace`].
    pub(crate) scan: Option<usize>,
    /// Pages that it and its children came by.
    pub(crate) pages: Option<Pages>,
}

impl Connection {
    /// The lines of EXPLAIN.
    pub(crate) fn explain(&mut self, options: Options, body: &str) -> Result<Vec<String>> {
        let mut tokens = Vec::new();
        lexer::lex(body, &mut tokens)?;
        let started_ns = clock::now_ns();
        let traced = options.analyze && (options.buffers || options.numa);
        let prepared = Prepared::new(&mut self.context, body, &tokens, &[])?;
        let prepared = Arc::new(if traced { prepared.by_operators() } else { prepared });
        let planned_ns = clock::now_ns() - started_ns;
        let mut shown = match &prepared.compiled {
            Compiled::Query(plan) => show(&plan.input),
            Compiled::Point(point) => show(&point.plan.input),
            Compiled::Range(range) => show(&range.plan.input),
            Compiled::Insert(plan) => Shown {
                children: vec![match &plan.source {
                    crate::bind::InsertSource::Rows(rows) if rows.len() == 1 => leaf("Result", 1.0),
                    crate::bind::InsertSource::Rows(rows) => leaf("Values Scan on \"*VALUES*\"", rows.len() as f64),
                    crate::bind::InsertSource::Query(query, _) => show(&query.input),
                }],
                ..leaf(format!("Insert on {}", plan.table.name), 0.0)
            },
            Compiled::Update(plan) => written("Update", &plan.table, &plan.input, plan.returning.as_ref()),
            Compiled::Delete(plan) => written("Delete", &plan.table, &plan.input, plan.returning.as_ref()),
            _ => return Err(Error::unsupported("EXPLAIN of a utility statement")),
        };
        let mut measured = None;
        if options.analyze {
            let mut portal = Portal::new(prepared, Vec::new(), Vec::new());
            let mut sink: Vec<u8> = Vec::new();
            let started_ns = clock::now_ns();
            self.context.trace = traced.then(Trace::default);
            let run = self.run(&mut portal, &mut Discarding(&mut sink), 0, false);
            let trace = self.context.trace.take();
            let run = run?;
            let rows = match run {
                crate::run::Run::Complete(crate::run::Tag::Rows(_, rows)) => rows,
                _ => 0,
            };
            measured = Some((clock::now_ns() - started_ns, rows));
            // Its scans tell where they have been as they go.
            drop(portal);
            if let Some(trace) = trace {
                let mut pages = Whereabouts::new(&self.context.db, trace.take())?;
                pages.fill(&mut shown);
            }
        }
        let ms = |ns: u64| ns as f64 / 1e6;
        if options.json {
            let mut text = String::from("[\n  {\n    \"Plan\": ");
            json(&shown, options, 4, &mut text);
            if let Some((ns, rows)) = measured {
                text.push_str(&format!(",\n    \"Actual Rows\": {rows}"));
                text.push_str(&format!(
                    ",\n    \"Planning Time\": {:.3},\n    \"Execution Time\": {:.3}",
                    ms(planned_ns),
                    ms(ns)
                ));
            }
            text.push_str("\n  }\n]");
            return Ok(vec![text]);
        }
        let mut lines = Vec::new();
        text(&shown, options, 0, true, &mut lines);
        if let Some((ns, rows)) = measured {
            if let Some(first) = lines.first_mut() {
                let time = if options.timing { format!("actual time={:.3} ", ms(ns)) } else { "actual ".into() };
                first.push_str(&format!(" ({time}rows={rows} loops=1)"));
            }
            if options.timing {
                lines.push(format!("Planning Time: {:.3} ms", ms(planned_ns)));
                lines.push(format!("Execution Time: {:.3} ms", ms(ns)));
            }
        }
        Ok(lines)
    }
}

/// Takes rows and forgets them.
struct Discarding<'a>(&'a mut Vec<u8>);

impl crate::connection::Output for Discarding<'_> {
    fn buffer(&mut self) -> &mut Vec<u8> {
        self.0
    }

    fn flush_if_large(&mut self) -> Result<()> {
        self.0.clear();
        Ok(())
    }
}

fn leaf(title: impl Into<String>, rows: f64) -> Shown {
    Shown {
        title: title.into(),
        rows,
        cost: (0.0, 0.01 * rows),
        width: 0,
        details: Vec::new(),
        children: Vec::new(),
        scan: None,
        pages: None,
    }
}

fn written(verb: &str, table: &Table, input: &Plan, returning: Option<&ReturningPlan>) -> Shown {
    let rows = if returning.is_some() { input.rows() } else { 0.0 };
    let input = show(input);
    Shown { cost: input.cost, children: vec![input], ..leaf(format!("{verb} on {}", table.name), rows) }
}

fn named(table: &str, alias: &str) -> String {
    if table == alias { table.to_string() } else { format!("{table} {alias}") }
}

fn conditions(list: &[Expr]) -> String {
    let names = |register: usize| format!("#{register}");
    let parts: Vec<String> = list.iter().map(|expr| expr.describe(&names)).collect();
    match &parts[..] {
        [one] => one.clone(),
        many => many.iter().map(|part| format!("({part})")).collect::<Vec<_>>().join(" AND "),
    }
}

fn scan_conditions(scan: &ScanPlan, list: &[Expr]) -> String {
    let names = |register: usize| match register.checked_sub(scan.base).and_then(|at| scan.table.columns.get(at)) {
        Some(column) => column.name.clone(),
        None => format!("#{register}"),
    };
    let parts: Vec<String> = list.iter().map(|expr| expr.describe(&names)).collect();
    match &parts[..] {
        [one] => format!("({one})"),
        many => format!("({})", many.iter().map(|part| format!("({part})")).collect::<Vec<_>>().join(" AND ")),
    }
}

fn show_scan(scan: &ScanPlan) -> Shown {
    let table = &scan.table;
    let what = named(&table.name, &scan.alias);
    let key_name = |index: Option<usize>| match index {
        Some(at) => table.indexes[at].name.clone(),
        None => table.primary_key.as_ref().map_or_else(|| "primary key".into(), |key| key.name.clone()),
    };
    let columns = |index: Option<usize>| match index {
        Some(at) => table.indexes[at].columns.clone(),
        None => table.primary_key.as_ref().map_or_else(Vec::new, |key| key.columns.clone()),
    };
    let value = |expr: &Expr| expr.describe(&|register| format!("#{register}"));
    let column = |index: Option<usize>, place: usize| {
        columns(index).get(place).map_or_else(String::new, |column| table.columns[*column].name.clone())
    };
    let way = |reverse: bool| if reverse { " Backward" } else { "" };
    let (title, condition) = match &scan.access {
        Access::Full { reverse } => (format!("Seq Scan{} on {what}", way(*reverse)), None),
        Access::Point { index, keys } => {
            let parts =
                keys.iter().enumerate().map(|(place, key)| format!("({} = {})", column(*index, place), value(key)));
            (format!("Index Scan using {} on {what}", key_name(*index)), Some(parts.collect::<Vec<_>>().join(" AND ")))
        }
        Access::Range { index, equal, lower, upper, reverse } => {
            let mut parts: Vec<String> = equal
                .iter()
                .enumerate()
                .map(|(place, key)| format!("({} = {})", column(*index, place), value(key)))
                .collect();
            let next = column(*index, equal.len());
            let end = |end: &End, sign: &str| {
                let sign = if end.inclusive { format!("{sign}=") } else { sign.to_string() };
                format!("({next} {sign} {})", value(&end.value))
            };
            parts.extend(lower.iter().map(|bound| end(bound, ">")));
            parts.extend(upper.iter().map(|bound| end(bound, "<")));
            let title = format!("Index Scan{} using {} on {what}", way(*reverse), key_name(*index));
            (title, Some(parts.join(" AND ")))
        }
        Access::List { index, values } => {
            let list: Vec<String> = values.iter().map(value).collect();
            let condition = format!("({} = ANY ({{{}}}))", column(*index, 0), list.join(","));
            (format!("Index Scan using {} on {what}", key_name(*index)), Some(condition))
        }
    };
    let mut details = Vec::new();
    if let Some(condition) = condition {
        let whole = if condition.contains(") AND (") { format!("({condition})") } else { condition };
        details.push(("Index Cond", whole));
    }
    if !scan.filter.is_empty() {
        details.push(("Filter", scan_conditions(scan, &scan.filter)));
    }
    Shown { details, scan: Some(Trace::key(scan)), ..leaf(title, scan.rows) }
}

/// A plan's node with its estimates.
fn show(plan: &Plan) -> Shown {
    let mut shown = node_of(plan);
    // Nodes that are not shown by themselves are their input's.
    if !matches!(plan, Plan::Filter(_) | Plan::Project(_)) {
        shown.cost = (0.01 * plan.startup_cost(), 0.01 * plan.cost());
        shown.width = plan.row_bytes();
    }
    shown
}

fn node_of(plan: &Plan) -> Shown {
    let rows = plan.rows();
    let node = |title: &str, details: Vec<(&'static str, String)>, children: Vec<Shown>| Shown {
        details,
        children,
        ..leaf(title, rows)
    };
    let filter = |list: &[Expr]| if list.is_empty() { Vec::new() } else { vec![("Filter", conditions(list))] };
    match plan {
        Plan::Once => leaf("Result", 1.0),
        Plan::Values(_) => leaf("Values Scan on \"*VALUES*\"", rows),
        Plan::Scan(scan) => show_scan(scan),
        Plan::Virtual(scan) => {
            node(&format!("System Scan on {}", named(scan.table.name, &scan.alias)), filter(&scan.filter), Vec::new())
        }
        Plan::Series(series) => node(&format!("Function Scan on {}", series.alias), filter(&series.filter), Vec::new()),
        Plan::ProjectSet(set) => node("ProjectSet", Vec::new(), vec![show(&set.input)]),
        Plan::Derived(derived) => {
            let title = if derived.shared.is_some() { "CTE Scan on" } else { "Subquery Scan on" };
            node(&format!("{title} {}", derived.alias), filter(&derived.filter), vec![show(&derived.query.input)])
        }
        Plan::NestedLoop(join) => {
            let title = match join.kind {
                JoinKind::Left => "Nested Loop Left Join",
                JoinKind::Semi => "Nested Loop Semi Join",
                JoinKind::Anti => "Nested Loop Anti Join",
                JoinKind::Inner | JoinKind::Full => "Nested Loop",
            };
            let details = if join.conditions.is_empty() {
                Vec::new()
            } else {
                vec![("Join Filter", conditions(&join.conditions))]
            };
            node(title, details, vec![show(&join.left), show(&join.right)])
        }
        Plan::HashJoin(join) => {
            let title = match join.kind {
                JoinKind::Inner => "Hash Join",
                JoinKind::Left => "Hash Left Join",
                JoinKind::Full => "Hash Full Join",
                JoinKind::Semi => "Hash Semi Join",
                JoinKind::Anti => "Hash Anti Join",
            };
            let names = |register: usize| format!("#{register}");
            let keys: Vec<String> = join
                .keys
                .iter()
                .map(|(left, right)| format!("({} = {})", left.describe(&names), right.describe(&names)))
                .collect();
            let mut details = vec![("Hash Cond", keys.join(" AND "))];
            if !join.conditions.is_empty() {
                details.push(("Join Filter", conditions(&join.conditions)));
            }
            let right = show(&join.right);
            let (cost, width) = ((right.cost.1, right.cost.1), right.width);
            let hash = Shown { children: vec![right], cost, width, ..leaf("Hash", join.right.rows()) };
            node(title, details, vec![show(&join.left), hash])
        }
        Plan::Materialize(kept) => node("Materialize", Vec::new(), vec![show(&kept.input)]),
        Plan::Filter(filtered) => {
            let mut inner = show(&filtered.input);
            inner.details.push(("Filter", conditions(&filtered.conditions)));
            inner
        }
        Plan::Project(project) => show(&project.input),
        Plan::Aggregate(aggregate) => {
            let title = match (aggregate.groups.is_empty(), aggregate.parallel) {
                (true, true) => "Parallel Aggregate",
                (false, true) => "Parallel HashAggregate",
                (true, false) => "Aggregate",
                (false, false) => "HashAggregate",
            };
            node(title, Vec::new(), vec![show(&aggregate.input)])
        }
        Plan::Window(window) => node("WindowAgg", Vec::new(), vec![show(&window.input)]),
        Plan::Sort(sort) => {
            let names = |register: usize| format!("#{register}");
            let keys: Vec<String> = sort
                .keys
                .iter()
                .map(|key| format!("{}{}", key.value.describe(&names), if key.descending { " DESC" } else { "" }))
                .collect();
            let title = if sort.limit.is_some() { "Top-N Sort" } else { "Sort" };
            node(title, vec![("Sort Key", keys.join(", "))], vec![show(&sort.input)])
        }
        Plan::Limit(limit) => node("Limit", Vec::new(), vec![show(&limit.input)]),
        Plan::Distinct(distinct) => node(
            if distinct.sorted { "Unique" } else { "HashAggregate (distinct)" },
            Vec::new(),
            vec![show(&distinct.input)],
        ),
        Plan::SetOperation(set) => {
            let title = match (set.kind, set.all) {
                (SetKind::Union, true) => "Append",
                (SetKind::Union, false) => "HashAggregate (union)",
                (SetKind::Intersect, _) => "HashSetOp Intersect",
                (SetKind::Except, _) => "HashSetOp Except",
            };
            node(title, Vec::new(), vec![show(&set.left.input), show(&set.right.input)])
        }
        Plan::Recursive(plan) => {
            node("Recursive Union", Vec::new(), vec![show(&plan.left.input), show(&plan.right.input)])
        }
        Plan::LockRows(lock) => node("LockRows", Vec::new(), vec![show(&lock.input)]),
    }
}

fn text(shown: &Shown, options: Options, depth: usize, first: bool, lines: &mut Vec<String>) {
    let indent = if first { String::new() } else { format!("{}->  ", " ".repeat(depth * 6 - 4)) };
    let (start, total) = shown.cost;
    let estimate = match options.costs {
        true => format!("  (cost={start:.2}..{total:.2} rows={:.0} width={})", shown.rows, shown.width),
        false => String::new(),
    };
    lines.push(format!("{indent}{}{estimate}", shown.title));
    for (name, value) in &shown.details {
        lines.push(format!("{}{name}: {value}", " ".repeat(depth * 6 + 2)));
    }
    for line in shown.pages.iter().flat_map(|pages| pages.lines(options)) {
        lines.push(format!("{}{line}", " ".repeat(depth * 6 + 2)));
    }
    for child in &shown.children {
        text(child, options, depth + 1, false, lines);
    }
}

fn json(shown: &Shown, options: Options, indent: usize, out: &mut String) {
    let pad = " ".repeat(indent + 2);
    let quote = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    out.push_str(&format!("{{\n{pad}\"Node Type\": {}", quote(&shown.title)));
    if options.costs {
        let (start, total) = shown.cost;
        out.push_str(&format!(",\n{pad}\"Startup Cost\": {start:.2},\n{pad}\"Total Cost\": {total:.2}"));
        out.push_str(&format!(",\n{pad}\"Plan Rows\": {:.0},\n{pad}\"Plan Width\": {}", shown.rows, shown.width));
    }
    for (name, value) in &shown.details {
        out.push_str(&format!(",\n{pad}{}: {}", quote(name), quote(value)));
    }
    for (name, value) in shown.pages.iter().flat_map(|pages| pages.fields(options)) {
        out.push_str(&format!(",\n{pad}{}: {value}", quote(name)));
    }
    if !shown.children.is_empty() {
        out.push_str(&format!(",\n{pad}\"Plans\": ["));
        for (number, child) in shown.children.iter().enumerate() {
            out.push_str(if number > 0 { ", " } else { "" });
            json(child, options, indent + 2, out);
        }
        out.push(']');
    }
    out.push_str(&format!("\n{}}}", " ".repeat(indent)));
}
