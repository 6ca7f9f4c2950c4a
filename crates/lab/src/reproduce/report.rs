//! What does the report look like? One HTML page that needs nothing else.

use super::chart::{self, escape, short};
use super::targets::Target;
use super::{Experiment, Results, Tables};
use homenode_platform::lab::sim::Source;
use std::fmt::Write as _;

const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:900px;margin:2em auto;padding:0 1em;color:#222}\
h1{font-size:1.6em}h2{font-size:1.2em;margin-top:2.2em;border-top:1px solid #ccc;padding-top:1em}\
table{border-collapse:collapse;font-size:13px;margin:.8em 0}td,th{padding:2px 10px;border-bottom:1px solid #ddd;text-align:right}\
td:first-child,th:first-child{text-align:left}.source{color:#666;font-size:13px}.no{color:#b00;font-weight:bold}.yes{color:#070}\
svg{width:100%;height:auto}ul{padding-left:1.2em}";

/// The page.
pub fn html(all: &[(&Experiment, Results)], targets: &[Target], tables: &Tables, quick: bool) -> String {
    let mut out = String::new();
    let _ = write!(
        out,
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Homenode's lab: the documents' findings</title>\
         <style>{STYLE}</style><h1>The documents' findings, on simulated machines</h1><p>Every number that is not a \
         document's comes from a simulated machine: costs of cache lines, memory, links and wake-ups by published latencies, \
         no instruction timing. It ranks designs and gives ratios; it is no measurement. Bars are the middle of the seeds, whiskers the \
         least and the largest; grey: the document, orange: the old design, pink: the document's remedy, blue: Homenode. Below the bars is the \
         number of nodes used, or a machine. In the tables, HITM (answered by a copy that another core had modified) and memory are \
         accesses for each unit counted, local or remote, in the first seed's run.{}</p>",
        if quick { " <b>Quick: short runs, two seeds.</b>" } else { "" },
    );
    if !targets.is_empty() {
        out.push_str("<h2>What shall hold of Homenode's engine</h2><table><tr><th>what<th>aim<th>seen<th>met</tr>");
        for target in targets {
            let (class, met) = if target.met { ("yes", "yes") } else { ("no", "no") };
            let cells = [&target.what, &target.aim, &target.seen].map(|text| escape(text)).join("<td>");
            let _ = write!(out, "<tr><td>{cells}<td class=\"{class}\">{met}</tr>");
        }
        out.push_str("</table>");
    }
    for (experiment, results) in all {
        section(&mut out, experiment, results);
    }
    validation(&mut out, tables);
    out.push_str("</html>");
    out
}

fn section(out: &mut String, experiment: &Experiment, results: &Results) {
    let better = if experiment.less_is_better { "less is better" } else { "more is better" };
    let _ = write!(
        out,
        "<h2 id=\"{}\">{}</h2><p class=\"source\">{} (<code>cargo lab reproduce {}</code>)</p><p>The document: {}</p>{}<p class=\"source\">{}; {better}</p>",
        experiment.name,
        escape(experiment.title),
        escape(experiment.source),
        experiment.name,
        escape(experiment.found),
        chart::svg(&results.series, experiment.value),
        escape(experiment.value),
    );
    out.push_str("<ul>");
    for line in (experiment.verdict)(results) {
        let _ = write!(out, "<li>{}", escape(&line));
    }
    out.push_str(
        "</ul><table><tr><th>series<th>at<th>value<th>spread<th>HITM local<th>remote<th>memory local<th>remote</tr>",
    );
    for (series, points) in &results.series {
        for point in points {
            let (low, high) = point.range();
            let _ = write!(
                out,
                "<tr><td>{}<td>{}<td>{}<td>{}",
                escape(&series.name),
                escape(&point.label),
                short(point.middle()),
                if point.values.len() > 1 { format!("{} to {}", short(low), short(high)) } else { String::new() },
            );
            match point.figures.first() {
                None => out.push_str("<td><td><td><td>"),
                Some(figures) => {
                    use Source::{LocalHitm, LocalMemory, RemoteHitm, RemoteMemory};
                    for source in [LocalHitm, RemoteHitm, LocalMemory, RemoteMemory] {
                        let _ = write!(out, "<td>{:.3}", figures.each(source));
                    }
                }
            }
            out.push_str("</tr>");
        }
    }
    out.push_str("</table>");
}

fn validation(out: &mut String, tables: &Tables) {
    if tables.is_empty() {
        return;
    }
    out.push_str("<h2>What micro-runs give back of the latency tables</h2>");
    for (machine, rows) in tables {
        let _ = write!(out, "<h3>{}</h3><table><tr><th>what<th>table<th>seen<th>off</tr>", escape(machine));
        for row in rows {
            let _ = write!(
                out,
                "<tr><td>{}<td>{:.1} {}<td>{:.1}<td>{:.1}%</tr>",
                escape(&row.what),
                row.expected,
                row.unit,
                row.seen,
                100.0 * row.error(),
            );
        }
        out.push_str("</table>");
    }
}
