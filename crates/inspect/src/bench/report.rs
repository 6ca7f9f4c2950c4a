//! How does a reader see what came out? One HTML page with charts and tables, and the short form for a terminal.

use std::fmt::Write;

use serde_json::Value;

use super::outcome::Outcome;
use super::summary::{CLIENT_LIMIT, PERCENTILES, Summary, summarize};
use crate::chart::{Chart, Series, short};
use crate::svg::{self, escape, heat};
use crate::text::Table;

/// What the page says about the machine and the plan, besides the results.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    /// Name and value of each.
    pub lines: Vec<(String, String)>,
    /// What a reader has to know: what was left out, and why.
    pub notes: Vec<String>,
}

const STYLE: &str = "body{font:14px/1.45 Helvetica,Arial,sans-serif;color:#1d2733;max-width:1320px;margin:24px auto;padding:0 20px}\
h1{font-size:24px;margin-bottom:4px}h2{font-size:19px;margin:34px 0 8px;border-bottom:1px solid #d5dbe2;padding-bottom:4px}\
h3{font-size:15px;margin:18px 0 6px}table{border-collapse:collapse;margin:8px 0 16px}th,td{padding:3px 10px;text-align:right}\
th{background:#eef1f5;font-weight:600}td{border-bottom:1px solid #eef1f5}th.l,td.l{text-align:left}\
.charts{display:flex;flex-wrap:wrap;gap:22px}.note{background:#fff6e0;padding:8px 12px;border-left:3px solid #d99a00;margin:6px 0}\
.s{color:#51606f;font-size:12px}details{margin:8px 0}code{background:#eef1f5;padding:0 3px}";

/// The whole page.
pub fn html(conditions: &Conditions, outcomes: &[Outcome]) -> String {
    let summaries = summarize(outcomes);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>homenode bench</title>\n<style>{STYLE}</style>\
         </head><body>\n<h1>Servers and nodes</h1>\n<p class=\"s\">Transactions a second are medians over the rounds, bars go from \
         the least to the most. Latencies are what clients saw; in open loops they count from when a transaction was due.</p>\n"
    );
    for note in conditions.notes.iter().chain(&warnings(&summaries)) {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", escape(note));
    }
    for (workload, keys) in pairs(&summaries) {
        let own: Vec<&Summary> = summaries.iter().filter(|s| s.workload == workload && s.keys == keys).collect();
        let _ = writeln!(out, "<h2>{}, {} keys</h2>", escape(&workload), escape(&keys));
        out.push_str(&charts(&own));
        out.push_str(&figures(&own));
        out.push_str(&waits(&own));
    }
    out.push_str(&errors(outcomes));
    out.push_str("<h2>Conditions</h2>\n<table>");
    for (name, value) in &conditions.lines {
        let _ = writeln!(out, "<tr><td class=\"l\">{}</td><td class=\"l\">{}</td></tr>", escape(name), escape(value));
    }
    out.push_str("</table>\n");
    out.push_str(&settings(outcomes));
    out.push_str(&placements(outcomes));
    out + "</body></html>\n"
}

/// The values of a field in their order of appearance.
fn distinct<T: PartialEq>(summaries: &[&Summary], field: impl Fn(&Summary) -> T) -> Vec<T> {
    let mut values = Vec::new();
    for summary in summaries {
        let value = field(summary);
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values
}

fn pairs(summaries: &[Summary]) -> Vec<(String, String)> {
    distinct(&summaries.iter().collect::<Vec<_>>(), |s| (s.workload.clone(), s.keys.clone()))
}

/// What the numbers themselves warn of.
fn warnings(summaries: &[Summary]) -> Vec<String> {
    let mut warnings = Vec::new();
    let limited = summaries.iter().filter(|s| s.client_cpu_share > CLIENT_LIMIT).count();
    if limited > 0 {
        warnings.push(format!(
            "in {limited} of {} measurements the clients used all of their CPUs: they were the limit there, not the server",
            summaries.len()
        ));
    }
    let noisy = summaries.iter().filter(|s| s.rounds > 1 && s.rate.spread() > 0.2).count();
    if noisy > 0 {
        warnings.push(format!(
            "in {noisy} of {} measurements the rounds differ by more than 20%: differences smaller than the bars say nothing",
            summaries.len()
        ));
    }
    if summaries.iter().any(|s| s.rounds == 1) {
        warnings.push("one round only: nothing can be said about the spread".to_owned());
    }
    warnings
}

fn shape_name(shape: &str) -> String {
    match shape.strip_prefix("separate=") {
        Some(nodes) => format!("{nodes} separate servers, one a node"),
        None if shape == "1" => "1 node".to_owned(),
        None if shape == "as it is" => "where it runs".to_owned(),
        None => format!("{shape} nodes"),
    }
}

fn charts(own: &[&Summary]) -> String {
    let servers = distinct(own, |s| s.server.clone());
    let colour = |server: &String| servers.iter().position(|known| known == server).unwrap_or(0);
    let closed: Vec<&Summary> = own.iter().filter(|s| s.arrivals == "closed").copied().collect();
    let mut drawn = vec![by_nodes(&closed, &servers)];
    for shape in distinct(&closed, |s| s.shape.clone()) {
        let here: Vec<&Summary> = closed.iter().filter(|s| s.shape == shape).copied().collect();
        let threads = distinct(&here, |s| s.threads);
        let series = |value: &dyn Fn(&Summary) -> (f64, f64, f64)| -> Vec<Series> {
            let of = |server: &String| Series {
                name: server.clone(),
                colour: colour(server),
                dashed: false,
                points: here
                    .iter()
                    .filter(|s| s.server == *server)
                    .filter_map(|s| {
                        let (middle, low, high) = value(s);
                        Some((threads.iter().position(|t| *t == s.threads)?, middle, low, high))
                    })
                    .collect(),
            };
            servers.iter().map(of).filter(|series| !series.points.is_empty()).collect()
        };
        let categories: Vec<String> = threads.iter().map(u64::to_string).collect();
        drawn.push(Chart {
            title: format!("Throughput, {}", shape_name(&shape)),
            x: "client threads".to_owned(),
            categories: categories.clone(),
            unit: "transactions/s".to_owned(),
            series: series(&|s| (s.rate.median, s.rate.low, s.rate.high)),
            logarithmic: false,
        });
        drawn.push(Chart {
            title: format!("Latency p99, {}", shape_name(&shape)),
            x: "client threads".to_owned(),
            categories,
            unit: "microseconds".to_owned(),
            series: series(&|s| (s.latency_us[2], s.latency_us[2], s.latency_us[2])),
            logarithmic: true,
        });
    }
    drawn.extend(open_loops(own, &servers));
    let drawn: Vec<String> = drawn
        .iter()
        .filter(|chart| !chart.series.is_empty())
        .filter_map(|chart| Some(format!("<div>{}</div>", svg::document(&chart.title, &chart.draw()?))))
        .collect();
    format!("<div class=\"charts\">{}</div>\n", drawn.join("\n"))
}

/// The best throughput of each server over the number of nodes, and of separate servers as the ceiling.
fn by_nodes(closed: &[&Summary], servers: &[String]) -> Chart {
    let mut nodes = distinct(closed, |s| s.nodes);
    nodes.retain(|count| *count > 0);
    nodes.sort_unstable();
    let best = |server: &String, nodes: u64, separate: bool| -> Option<&Summary> {
        let here = closed.iter().filter(|s| s.server == *server && s.nodes == nodes);
        let here = here.filter(|s| s.shape.starts_with("separate") == separate);
        here.max_by(|one, other| one.rate.median.total_cmp(&other.rate.median)).copied()
    };
    let mut series = Vec::new();
    for (number, server) in servers.iter().enumerate() {
        for separate in [false, true] {
            let points = nodes.iter().enumerate().filter_map(|(at, count)| {
                // One node is where both begin.
                let found =
                    best(server, *count, separate).or_else(|| (*count == 1).then(|| best(server, 1, false))?)?;
                Some((at, found.rate.median, found.rate.low, found.rate.high))
            });
            let points: Vec<_> = points.collect();
            let name = if separate { format!("{server}, separate servers") } else { server.clone() };
            if points.len() > 1 {
                series.push(Series { name, colour: number, dashed: separate, points });
            }
        }
    }
    Chart {
        title: "Best throughput by nodes".to_owned(),
        x: "memory nodes".to_owned(),
        categories: nodes.iter().map(u64::to_string).collect(),
        unit: "transactions/s".to_owned(),
        series,
        logarithmic: false,
    }
}

/// For open loops: latency over the rate that was offered, a line a percentile and server.
fn open_loops(own: &[&Summary], servers: &[String]) -> Vec<Chart> {
    let open: Vec<&Summary> = own.iter().filter(|s| s.arrivals != "closed").copied().collect();
    let mut charts = Vec::new();
    for (shape, threads) in distinct(&open, |s| (s.shape.clone(), s.threads)) {
        let here: Vec<&Summary> = open.iter().filter(|s| s.shape == shape && s.threads == threads).copied().collect();
        let mut rates = distinct(&here, |s| s.arrivals.clone());
        let number = |rate: &String| rate.parse::<f64>().unwrap_or(0.0);
        rates.sort_by(|one, other| number(one).total_cmp(&number(other)));
        let mut series = Vec::new();
        for (colour, server) in servers.iter().enumerate() {
            for (percentile, dashed) in [(0, true), (2, false)] {
                let points = here.iter().filter(|s| s.server == *server).filter_map(|s| {
                    let value = s.latency_us[percentile];
                    Some((rates.iter().position(|rate| *rate == s.arrivals)?, value, value, value))
                });
                let name = format!("{server} {}", PERCENTILES[percentile]);
                series.push(Series { name, colour, dashed, points: points.collect() });
            }
        }
        series.retain(|series| !series.points.is_empty());
        charts.push(Chart {
            title: format!("Latency in open loop, {}, {threads} threads", shape_name(&shape)),
            x: "transactions/s offered".to_owned(),
            categories: rates.iter().map(|rate| short(number(rate))).collect(),
            unit: "microseconds".to_owned(),
            series,
            logarithmic: true,
        });
    }
    charts
}

/// Microseconds with as many digits as say something.
fn micros(us: f64) -> String {
    if us >= 100.0 { format!("{us:.0}") } else { format!("{us:.1}") }
}

fn figures(own: &[&Summary]) -> String {
    let mut out = String::from(
        "<details><summary>All figures</summary><table><tr><th class=\"l\">server</th><th class=\"l\">nodes</th><th>threads</th>\
         <th class=\"l\">arrivals</th><th>transactions/s</th><th>spread</th>",
    );
    out.extend(PERCENTILES.map(|name| format!("<th>{name} µs</th>")));
    out.push_str("<th>retries</th><th>not begun</th><th>server CPU µs each</th><th>clients' CPUs</th></tr>\n");
    for s in own {
        let _ = write!(
            out,
            "<tr><td class=\"l\">{}</td><td class=\"l\">{}</td><td>{}</td><td class=\"l\">{}</td><td>{:.0}</td><td>{:.0}%</td>",
            escape(&s.server),
            escape(&s.shape),
            s.threads,
            escape(&s.arrivals),
            s.rate.median,
            s.rate.spread() * 100.0
        );
        out.extend(s.latency_us.map(|us| format!("<td>{}</td>", micros(us))));
        let cpu = s.server_cpu_us.map_or("-".to_owned(), micros);
        let _ = writeln!(
            out,
            "<td>{}</td><td>{}</td><td>{cpu}</td><td>{:.0}%</td></tr>",
            s.retries,
            s.unserved,
            s.client_cpu_share * 100.0
        );
    }
    out + "</table></details>\n"
}

/// Events in the wait table at most, for each server.
const EVENTS: usize = 8;

/// For each server, its longest waits by number of nodes, at the most threads: seconds that a thread waited.
fn waits(own: &[&Summary]) -> String {
    let mut out = String::new();
    for server in distinct(own, |s| s.server.clone()) {
        let closed: Vec<&Summary> =
            own.iter().filter(|s| s.server == server && s.arrivals == "closed").copied().collect();
        let Some(threads) = closed.iter().map(|s| s.threads).max() else { continue };
        let columns: Vec<&Summary> = closed.into_iter().filter(|s| s.threads == threads).collect();
        let mut events: Vec<(String, f64)> = Vec::new();
        for (event, seconds) in columns.iter().flat_map(|s| &s.waits) {
            match events.iter_mut().find(|(known, _)| known == event) {
                Some((_, most)) => *most = most.max(*seconds),
                None => events.push((event.clone(), *seconds)),
            }
        }
        events.sort_by(|one, other| other.1.total_cmp(&one.1));
        events.truncate(EVENTS);
        let Some(most) = events.first().map(|(_, seconds)| *seconds).filter(|most| *most > 0.0) else { continue };
        let _ = write!(
            out,
            "<div><h3>What the threads of {} waited for</h3><p class=\"s\">Seconds per thread in the measured time, at {threads} \
             threads, by nodes</p><table><tr><th class=\"l\">event</th>",
            escape(&server)
        );
        out.extend(columns.iter().map(|s| format!("<th>{}</th>", escape(&s.shape))));
        out.push_str("</tr>\n");
        for (event, _) in &events {
            let _ = write!(out, "<tr><td class=\"l\">{}</td>", escape(event));
            for s in &columns {
                let seconds = s.waits.iter().find(|(known, _)| known == event).map_or(0.0, |(_, seconds)| *seconds);
                let share = seconds / most;
                let text = if share > 0.7 { "#fff" } else { "#1d2733" };
                let _ = write!(out, "<td style=\"background:{};color:{text}\">{seconds:.3}</td>", heat(share * 0.9));
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</table></div>\n");
    }
    format!("<div class=\"charts\">{out}</div>\n")
}

fn errors(outcomes: &[Outcome]) -> String {
    let failed: Vec<String> = outcomes
        .iter()
        .filter_map(|o| Some(format!("<li><code>{}</code>: {}</li>", escape(&o.key), escape(o.error.as_ref()?))))
        .collect();
    if failed.is_empty() { String::new() } else { format!("<h2>What failed</h2><ul>{}</ul>\n", failed.join("\n")) }
}

/// What each server said of its durability and memory.
fn settings(outcomes: &[Outcome]) -> String {
    let mut out = String::from("<h3>The servers' settings</h3><table>\n");
    let mut seen: Vec<&str> = Vec::new();
    for outcome in outcomes {
        if seen.contains(&outcome.server.as_str()) {
            continue;
        }
        let Some(settings) = outcome.settings.as_object() else { continue };
        seen.push(&outcome.server);
        let list = settings.iter().map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()));
        let list: Vec<String> = list.collect();
        let how = &outcome.waits.how;
        let _ = writeln!(
            out,
            "<tr><td class=\"l\">{}</td><td class=\"l\">{}</td><td class=\"l s\">waits: {}</td></tr>",
            escape(&outcome.server),
            escape(&list.join(", ")),
            escape(how)
        );
    }
    out + "</table>\n"
}

/// Where each server ran and where its memory was, the last time that it was looked at.
fn placements(outcomes: &[Outcome]) -> String {
    let mut out = String::from(
        "<h3>Placement</h3><table><tr><th class=\"l\">server</th><th class=\"l\">nodes</th><th class=\"l\">server's CPUs</th>\
         <th class=\"l\">clients' CPUs</th><th class=\"l\">memory policy</th><th class=\"l\">memory by node</th></tr>\n",
    );
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for outcome in outcomes.iter().rev() {
        let key = (outcome.server.as_str(), outcome.shape.as_str());
        if seen.contains(&key) {
            continue;
        }
        seen.push(key);
        let text = |name: &str| outcome.placement.get(name).and_then(Value::as_str).unwrap_or("-").to_owned();
        let instances = outcome.placement.get("instances").and_then(Value::as_array).cloned().unwrap_or_default();
        let memory: Vec<String> = instances.iter().map(memory_text).collect();
        let _ = writeln!(
            out,
            "<tr><td class=\"l\">{}</td><td class=\"l\">{}</td><td class=\"l\">{}</td><td class=\"l\">{}</td>\
             <td class=\"l\">{}</td><td class=\"l\">{}</td></tr>",
            escape(key.0),
            escape(key.1),
            escape(&text("server_cpus")),
            escape(&text("client_cpus")),
            escape(&text("policy")),
            escape(&memory.join("; "))
        );
    }
    out + "</table>\n"
}

fn memory_text(instance: &Value) -> String {
    let by_node = instance.pointer("/memory/own_bytes_by_node").and_then(Value::as_object);
    match by_node {
        Some(nodes) => {
            let part = |(node, bytes): (&String, &Value)| {
                format!("node {node}: {}", crate::text::size(bytes.as_u64().unwrap_or(0)))
            };
            nodes.iter().map(part).collect::<Vec<_>>().join(", ")
        }
        None => instance.pointer("/memory/error").and_then(Value::as_str).unwrap_or("not known").to_owned(),
    }
}

/// For a terminal: a row a server and shape, a column a number of threads; then what was waited for most.
pub fn text(outcomes: &[Outcome]) -> String {
    let summaries = summarize(outcomes);
    let mut out = String::new();
    for (workload, keys) in pairs(&summaries) {
        let own: Vec<&Summary> = summaries.iter().filter(|s| s.workload == workload && s.keys == keys).collect();
        let name = format!("<{workload}, {keys} keys");
        let mut table = Table::new(&[
            &name,
            "<nodes",
            "threads",
            "<arrivals",
            "transactions/s",
            "spread",
            "p50 µs",
            "p95 µs",
            "p99 µs",
            "p99.9 µs",
            "max µs",
            "<waited most for",
        ]);
        for s in &own {
            let mut row = vec![s.server.clone(), s.shape.clone(), s.threads.to_string(), s.arrivals.clone()];
            row.push(format!("{:.0}", s.rate.median));
            row.push(if s.rounds > 1 { format!("±{:.0}%", s.rate.spread() * 50.0) } else { "-".to_owned() });
            row.extend(s.latency_us.iter().map(|us| micros(*us)));
            let wait = s.waits.iter().find(|(event, _)| event != crate::waits::ON_CPU);
            row.push(wait.map_or(String::new(), |(event, seconds)| format!("{event} {seconds:.2} s a thread")));
            table.row(row);
        }
        out.push_str(&format!("{}\n", table.render()));
    }
    for outcome in outcomes {
        if let Some(error) = &outcome.error {
            let _ = writeln!(out, "failed: {}: {error}", outcome.key);
        }
    }
    out.extend(warnings(&summaries).iter().map(|warning| format!("note: {warning}\n")));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(server: &str, shape: &str, nodes: u64, threads: u64, rate: f64, arrivals: &str) -> Outcome {
        Outcome {
            key: format!("{server} {shape} {threads}"),
            server: server.to_owned(),
            shape: shape.to_owned(),
            nodes,
            threads,
            rate,
            transactions: 10,
            workload: "tpcb".to_owned(),
            keys: "uniform".to_owned(),
            arrivals: arrivals.to_owned(),
            latency_us: super::super::outcome::Percentiles {
                mean: 1.0,
                p50: 20.0,
                p95: 30.0,
                p99: 40.0,
                p999: 50.0,
                max: 60.0,
            },
            waits: super::super::outcome::Waits {
                how: "sampled".to_owned(),
                seconds_per_thread: vec![("LWLock:<WALWrite>".to_owned(), 1.5)],
            },
            settings: serde_json::json!({ "fsync": "on" }),
            ..Outcome::default()
        }
    }

    #[test]
    fn the_page_has_every_chart_and_the_ceiling() {
        let mut outcomes = Vec::new();
        for (shape, nodes) in [("1", 1), ("2", 2), ("separate=2", 2)] {
            for threads in [1, 8] {
                outcomes.push(outcome("homenode", shape, nodes, threads, 100.0 * nodes as f64, "closed"));
            }
        }
        outcomes.push(outcome("homenode", "1", 1, 8, 50.0, "50"));
        outcomes
            .push(Outcome { error: Some("it <broke>".to_owned()), ..outcome("homenode", "4", 4, 8, 0.0, "closed") });
        let page = html(&Conditions::default(), &outcomes);
        for wanted in [
            "Best throughput by nodes",
            "homenode, separate servers",
            "Throughput, 2 nodes",
            "Latency p99, 1 node",
            "Latency in open loop, 1 node, 8 threads",
            "LWLock:&lt;WALWrite&gt;",
            "it &lt;broke&gt;",
            "fsync=on",
        ] {
            assert!(page.contains(wanted), "{wanted} is missing");
        }
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
        let text = text(&outcomes);
        assert!(text.contains("p99.9") && text.contains("failed: homenode 4 8: it <broke>"), "{text}");
    }
}
