//! What did the documents see, and what does the lab see? All experiments, and one report of them.

mod chart;
mod experiments;
mod report;
mod targets;

use crate::machine;
use crate::measure::{self, Figures, Plan};
use crate::micro;
use crate::options::ReproduceOptions;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::path::Path;
use std::time::Instant;

pub use experiments::ALL;

/// Whose numbers a series holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The document's.
    Document,
    /// The design that the document measured.
    Old,
    /// What the document did or proposes about it.
    Fix,
    /// This engine's.
    Homenode,
}

/// One line of a chart.
#[derive(Clone)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub role: Role,
    /// Its points.
    pub points: Points,
}

/// Where a series' numbers come from.
#[derive(Clone)]
pub enum Points {
    /// The document.
    Given(Vec<(String, f64)>),
    /// Runs, one for each point and seed.
    Runs(Vec<(String, Plan)>),
}

/// What a document found, and how the lab looks for it.
pub struct Experiment {
    /// Its name.
    pub name: &'static str,
    /// A heading.
    pub title: &'static str,
    /// Author and year.
    pub source: &'static str,
    /// What the document says, with its numbers.
    pub found: &'static str,
    /// What a value is.
    pub value: &'static str,
    /// Larger values are worse (times) rather than better (rates).
    pub less_is_better: bool,
    /// The value of a run.
    pub of: fn(&Figures) -> f64,
    /// The series; fewer when it shall be quick.
    pub series: fn(bool) -> Vec<Series>,
    /// What follows from the results, sentences.
    pub verdict: fn(&Results) -> Vec<String>,
}

/// A point's values, one for each seed.
#[derive(Clone, Debug)]
pub struct Point {
    /// Its label on the axis.
    pub label: String,
    /// The values.
    pub values: Vec<f64>,
    /// All figures of its runs.
    pub figures: Vec<Figures>,
}

impl Point {
    /// The middle value.
    pub fn middle(&self) -> f64 {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
    }

    /// The least and the largest.
    pub fn range(&self) -> (f64, f64) {
        let fold = |f: fn(f64, f64) -> f64, start| self.values.iter().copied().fold(start, f);
        (fold(f64::min, f64::INFINITY), fold(f64::max, f64::NEG_INFINITY))
    }
}

/// The results of an experiment.
pub struct Results {
    /// Its series with their points.
    pub series: Vec<(Series, Vec<Point>)>,
}

impl Results {
    /// The middle value of a series at a label.
    pub fn at(&self, series: &str, label: &str) -> f64 {
        self.point(series, label).map_or(0.0, Point::middle)
    }

    /// A point.
    pub fn point(&self, series: &str, label: &str) -> Option<&Point> {
        let found = self.series.iter().find(|(known, _)| known.name == series);
        found.and_then(|(_, points)| points.iter().find(|point| point.label == label))
    }

    /// A figure of a point's first run.
    pub fn figure(&self, series: &str, label: &str, of: impl Fn(&Figures) -> f64) -> f64 {
        self.point(series, label).and_then(|point| point.figures.first()).map_or(0.0, of)
    }
}

/// Seeds of each point.
fn seeds(quick: bool) -> Vec<u64> {
    if quick { vec![1, 2] } else { vec![1, 2, 3] }
}

/// Runs the experiments and writes `report.html` and `report.json`.
///
/// # Errors
/// A sentence: no such experiment, a run that failed, a file that cannot be written.
pub fn reproduce(wanted: &ReproduceOptions) -> Result<(), String> {
    let chosen: Vec<&Experiment> = ALL.iter().copied().filter(|one| one.name.contains(&wanted.name)).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = ALL.iter().map(|one| one.name).collect();
        return Err(format!("there is no experiment '{}'; known are {}", wanted.name, names.join(", ")));
    }
    let folder = Path::new(&wanted.out);
    std::fs::create_dir_all(folder).map_err(|error| format!("folder {}: {error}", wanted.out))?;
    let begin = Instant::now();
    let mut all = Vec::new();
    for (at, experiment) in chosen.iter().enumerate() {
        let started = Instant::now();
        let results = run(experiment, wanted)?;
        println!("[{}/{}] {} ({:.0} s)", at + 1, chosen.len(), experiment.name, started.elapsed().as_secs_f64());
        for line in (experiment.verdict)(&results) {
            println!("        {line}");
        }
        all.push((*experiment, results));
    }
    let tables = if wanted.name.is_empty() { latency_tables(wanted.quick)? } else { Vec::new() };
    let targets = targets::judge(&all);
    for target in &targets {
        println!("{}", target.line());
    }
    let html = report::html(&all, &targets, &tables, wanted.quick);
    let write = |name: &str, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|error| format!("file {}: {error}", path.display()))
    };
    write("report.html", html)?;
    write("report.json", to_json(&all, &targets).to_string())?;
    println!("{}/report.html and report.json, {:.0} s", wanted.out, begin.elapsed().as_secs_f64());
    Ok(())
}

/// What micro-runs give back of each machine's latency table.
pub type Tables = Vec<(String, Vec<micro::Row>)>;

fn latency_tables(quick: bool) -> Result<Tables, String> {
    let machines: &[&str] = if quick { &["xeon-4s", "kunpeng-920"] } else { &MACHINES };
    let table = |name: &&str| Ok(((*name).to_owned(), micro::table(&machine::find(name)?)?));
    machines.iter().map(table).collect()
}

const MACHINES: [&str; 8] =
    ["laptop", "workstation-2s", "xeon-6442y-2s", "xeon-6151-2s", "kunpeng-920", "xeon-4s", "genoa-2s", "blades-16s"];

fn run(experiment: &Experiment, wanted: &ReproduceOptions) -> Result<Results, String> {
    let series = (experiment.series)(wanted.quick);
    let mut results: Vec<(Series, Vec<Point>)> = Vec::new();
    let mut jobs: VecDeque<(usize, usize, Plan)> = VecDeque::new();
    for (number, one) in series.iter().enumerate() {
        let empty = |label: &String| Point { label: label.clone(), values: Vec::new(), figures: Vec::new() };
        let points = match &one.points {
            Points::Given(points) => {
                points.iter().map(|(label, value)| Point { values: vec![*value], ..empty(label) }).collect()
            }
            Points::Runs(runs) => {
                for (at, (_, plan)) in runs.iter().enumerate() {
                    for seed in seeds(wanted.quick) {
                        jobs.push_back((number, at, shortened(plan, seed, wanted.quick)?));
                    }
                }
                runs.iter().map(|(label, _)| empty(label)).collect()
            }
        };
        results.push((one.clone(), points));
    }
    let mut running = VecDeque::new();
    loop {
        while running.len() < wanted.jobs.max(1) {
            let Some((series, point, plan)) = jobs.pop_front() else { break };
            running.push_back((series, point, measure::start(&plan)?, plan));
        }
        let Some((series, point, run, plan)) = running.pop_front() else { break };
        let figures = run.wait().map_err(|error| format!("{} with {plan:?}: {error}", experiment.name))?;
        let place = &mut results[series].1[point];
        place.values.push((experiment.of)(&figures));
        place.figures.push(figures);
    }
    Ok(Results { series: results })
}

fn shortened(plan: &Plan, seed: u64, quick: bool) -> Result<Plan, String> {
    let (mut plan, _, _) = measure::check(plan)?;
    plan.seed = seed;
    if quick {
        plan.for_ns /= 2;
        plan.warm_ns /= 2;
    }
    Ok(plan)
}

fn to_json(all: &[(&Experiment, Results)], targets: &[targets::Target]) -> Value {
    let point = |point: &Point| {
        let figures: Vec<Value> = point.figures.iter().map(Figures::to_json).collect();
        json!({ "label": point.label, "values": point.values, "runs": figures })
    };
    let experiments: Vec<Value> = all
        .iter()
        .map(|(experiment, results)| {
            let series: Vec<Value> = results
                .series
                .iter()
                .map(|(series, points)| {
                    let points: Vec<Value> = points.iter().map(point).collect();
                    json!({ "name": series.name, "role": format!("{:?}", series.role), "points": points })
                })
                .collect();
            json!({
                "name": experiment.name, "source": experiment.source, "found": experiment.found, "value": experiment.value,
                "series": series, "verdict": (experiment.verdict)(results),
            })
        })
        .collect();
    let targets: Vec<Value> = targets
        .iter()
        .map(|target| json!({ "what": target.what, "aim": target.aim, "seen": target.seen, "met": target.met }))
        .collect();
    json!({ "experiments": experiments, "targets": targets })
}
