//! How fast is a workload on a machine? The command `run`.

use crate::lines;
use crate::machine;
use crate::measure::{self, Figures, Plan};
use crate::options::RunOptions;
use crate::workloads;
use homenode_lines::{Line, View};
use homenode_platform::lab::sim::{Source, WhatIf};
use serde_json::{Value, json};

/// Runs what the options ask for, once for each number of nodes, and prints a line each.
///
/// # Errors
/// A sentence.
pub fn run_all(options: &RunOptions) -> Result<(), String> {
    for (at, &nodes) in options.nodes.iter().enumerate() {
        let (plan, machine, _) = measure::check(&plan_of(options, nodes))?;
        let figures = measure::run(&plan)?;
        if options.json {
            let about = json!({
                "machine": plan.machine, "workload": plan.workload, "design": plan.design, "nodes": plan.nodes,
                "cores_per_node": plan.cores, "seed": plan.seed, "figures": figures.to_json(),
            });
            println!("{about}");
            continue;
        }
        if at == 0 {
            println!("{} on {}: {}; seed {}", plan.workload, plan.design, machine.about, plan.seed);
            println!("{HEAD}");
        }
        println!("{}", row(&plan, &figures));
        let waits: Vec<String> = figures
            .waits
            .iter()
            .filter(|wait| wait.0 != "Sleep")
            .map(|(name, ns)| format!("{name} {:.2} ms", *ns as f64 / 1e6))
            .collect();
        println!("{}", cores_line(&figures));
        println!("        waits of all sessions: {}", waits.join(", "));
        for (name, value) in &figures.extra {
            println!("        {name} {value:.1}");
        }
    }
    Ok(())
}

/// Runs once for each number of nodes and shows the lines that moved, and what parting fields of them would bring: the command `c2c`.
///
/// # Errors
/// A sentence.
pub fn show_lines(options: &RunOptions) -> Result<(), String> {
    for &nodes in &options.nodes {
        let (plan, machine, workload) = measure::check(&Plan { record: true, ..plan_of(options, nodes) })?;
        let figures = measure::run(&plan)?;
        let hardware = measure::used(&plan, &machine, workload);
        let topology = machine::topology(&hardware);
        let view = lines::view(&hardware, &topology, figures.done);
        let shown = lines::from_json(&figures.lines);
        if options.json {
            let reruns = reruns(options, &plan, &shown, &view)?;
            let reruns = reruns.iter().map(|rerun| rerun.to_json(&figures)).collect::<Vec<_>>();
            println!("{}", json!({ "figures": figures.to_json(), "lines": figures.lines, "parted": reruns }));
            continue;
        }
        let nodes = plan.nodes;
        println!("{} on {}: {}, {nodes} nodes used; seed {}", plan.workload, plan.design, machine.about, plan.seed);
        println!("{HEAD}\n{}\n", row(&plan, &figures));
        print!("{}", homenode_lines::table(&shown, options.top, &view));
        let reruns = reruns(options, &plan, &shown, &view)?;
        for (at, line) in shown.iter().take(options.pages).enumerate() {
            print!("\n{}", homenode_lines::line_page(line, &view));
            if let Some(rerun) = reruns.iter().find(|rerun| rerun.line == at) {
                println!("{}", rerun.line(&figures));
            }
        }
    }
    Ok(())
}

/// A run in which the fields that a line's page says to part have lines of their own.
struct Rerun {
    /// Which line's page.
    line: usize,
    fields: Vec<String>,
    figures: Figures,
}

/// Runs again for each shown line that has fields to part, with them parted.
fn reruns(options: &RunOptions, plan: &Plan, lines: &[Line], view: &View<'_>) -> Result<Vec<Rerun>, String> {
    let mut reruns: Vec<Rerun> = Vec::new();
    let pages = if options.rerun { options.pages } else { 0 };
    for (line, fields) in lines.iter().take(pages).map(|line| lines::fields_to_part(line, view)).enumerate() {
        if fields.is_empty() {
            continue;
        }
        // Lines of structures of one kind want the same change.
        let figures = match reruns.iter().find(|rerun| rerun.fields == fields) {
            Some(same) => same.figures.clone(),
            None => {
                let mut again = plan.clone();
                again.what_if.parted.extend(fields.iter().cloned());
                measure::run(&again)?
            }
        };
        reruns.push(Rerun { line, fields, figures });
    }
    Ok(reruns)
}

impl Rerun {
    fn line(&self, before: &Figures) -> String {
        let hitm = |figures: &Figures| figures.each(Source::LocalHitm) + figures.each(Source::RemoteHitm);
        format!(
            "by a re-run with {} on lines of their own: {:.0} a second instead of {:.0} ({:+.1}%), {:.3} HITM a statement instead of {:.3}",
            self.fields.join(", "),
            self.figures.per_second,
            before.per_second,
            100.0 * (self.figures.per_second / before.per_second - 1.0),
            hitm(&self.figures),
            hitm(before),
        )
    }

    fn to_json(&self, before: &Figures) -> Value {
        let gain = self.figures.per_second / before.per_second - 1.0;
        json!({ "line": self.line, "fields": self.fields, "figures": self.figures.to_json(), "gain": gain })
    }
}

/// The plan for one number of nodes.
pub fn plan_of(options: &RunOptions, nodes: usize) -> Plan {
    Plan {
        cores: options.cores,
        sessions: options.sessions,
        for_ns: options.for_ns,
        warm_ns: options.warm_ns,
        seed: options.seed,
        policy: options.policy.clone(),
        far_memory: options.far_memory,
        what_if: WhatIf { free: options.free.clone(), parted: options.parted.clone() },
        ..Plan::new(&options.machine, &options.workload, &options.design, nodes)
    }
}

const HEAD: &str = "  nodes cores sessions     per second   mean us    p99 us  worst us | a statement: HITM local  remote  memory local  \
remote | waited us  queued us | Mpoints/s   trace";

fn row(plan: &Plan, figures: &Figures) -> String {
    let done = figures.done.max(1) as f64;
    format!(
        "  {:5} {:5} {:8} {:14.0} {:9.2} {:9.2} {:9.1} | {:22.3} {:7.3} {:13.2} {:7.2} | {:9.3} {:10.3} | {:9.1}   {:016x}",
        plan.nodes,
        figures.cores,
        figures.sessions,
        figures.per_second,
        figures.latency_ns_mean / 1e3,
        figures.latency_ns_p99 as f64 / 1e3,
        figures.latency_ns_worst as f64 / 1e3,
        figures.each(Source::LocalHitm),
        figures.each(Source::RemoteHitm),
        figures.each(Source::LocalMemory),
        figures.each(Source::RemoteMemory),
        figures.waited_ns as f64 / done / 1e3,
        figures.queued_ns as f64 / done / 1e3,
        figures.accesses as f64 / figures.host_seconds / 1e6,
        figures.trace_hash,
    )
}

/// What the cores did with their time, and how long sessions stood behind others of their core.
fn cores_line(figures: &Figures) -> String {
    let share = |ns: u64| 100.0 * ns as f64 / (figures.seconds * 1e9 * figures.cores as f64);
    format!(
        "        cores: {:.1}% idle, {:.1}% in pauses of spin loops, {:.1}% waiting for lines; sessions ready but behind others {:.2} ms",
        share(figures.idle_ns),
        share(figures.spun_ns),
        share(figures.waited_ns),
        figures.ready_ns as f64 / 1e6,
    )
}

/// Names machines and workloads.
pub fn list() {
    println!("\nmachines:");
    for (name, _) in machine::ALL {
        if let Ok(machine) = machine::find(name) {
            println!("{name:28} {}", machine.about);
        }
    }
    println!("\nworkloads:");
    for workload in workloads::ALL {
        println!("{:28} {} [{}]", workload.name, workload.about, workload.designs.join(", "));
    }
}
