//! The machines are what their files say, and runs on them repeat.
#![cfg(homenode_lab)]

use homenode_lab::measure::{Plan, check, run};
use homenode_lab::{machine, micro};
use homenode_lines::{Found, Line};
use homenode_platform::lab::sim::Source;

/// As the lab's program has it: what a run's cores allocate lies where it lies in every run.
#[global_allocator]
static HEAP: homenode_platform::lab::Heap = homenode_platform::lab::Heap::new();

/// One test, so that the forking thread is the only one at work.
#[test]
fn machines_give_back_their_latencies_and_runs_repeat() {
    latency_tables_come_back();
    a_contended_line_does_what_its_transfers_allow();
    one_seed_one_run();
    reads_write_no_shared_line();
    the_line_report_names_what_is_shared_and_who_called();
    a_suggestion_is_right_about_its_gain();
    nonsense_is_refused_in_one_line();
}

fn latency_tables_come_back() {
    for (name, _) in machine::ALL {
        let rows = micro::table(&machine::find(name).unwrap()).unwrap();
        assert!(rows.len() >= 4, "{name}");
        for row in rows {
            // Bandwidth runs include the threads' start.
            let allowed = if row.unit == "ns" { 0.02 } else { 0.35 };
            assert!(row.error() <= allowed, "{name}: {row:?}");
        }
    }
}

/// David, Guerraoui, Trigonakis (SOSP 2013, section 5.4): on their multi-socket machines atomics on one contended line fall as soon as a
/// second socket takes part, and go no faster with more cores of one.
fn a_contended_line_does_what_its_transfers_allow() {
    let machine = machine::find("xeon-4s").unwrap();
    let rate = |nodes, cores| micro::contended_adds(&machine, nodes, cores).unwrap();
    let (alone, few, many, two, four) = (rate(1, 1), rate(1, 6), rate(1, 24), rate(2, 24), rate(4, 24));
    assert!(few < alone / 2.0, "{alone} {few}");
    assert!((many / few - 1.0).abs() < 0.2, "{few} {many}");
    // The paper's machines fall by more: requests that are served in order of arrival come to lie node by node.
    assert!(two < 0.95 * many && four < two, "{many} {two} {four}");
}

fn short(workload: &str, nodes: usize) -> Plan {
    let plan =
        Plan { cores: 4, for_ns: 300_000, warm_ns: 100_000, ..Plan::new("xeon-4s", workload, "homenode", nodes) };
    check(&plan).unwrap().0
}

fn one_seed_one_run() {
    for workload in ["hot-root", "update-non-index"] {
        let plan = short(workload, 2);
        let (first, second) = (run(&plan).unwrap(), run(&plan).unwrap());
        assert_eq!(
            (first.trace_hash, first.done, &first.by_source),
            (second.trace_hash, second.done, &second.by_source)
        );
        let other = run(&Plan { seed: 2, ..plan }).unwrap();
        assert_ne!(first.trace_hash, other.trace_hash);
    }
}

fn reads_write_no_shared_line() {
    // Two rounds of housekeeping, which looks at every session's slot.
    let plan = Plan { for_ns: 10_000_000, warm_ns: 1_000_000, ..short("hot-root", 4) };
    let figures = run(&plan).unwrap();
    assert!(figures.each(Source::RemoteHitm) < 0.05, "{figures:?}");
    let old = run(&Plan { design: "descriptor-64".to_owned(), ..plan }).unwrap();
    assert!(old.each(Source::RemoteHitm) > 1.0, "{old:?}");
}

fn the_line_report_names_what_is_shared_and_who_called() {
    // Long enough that busy lines are sampled.
    let plan = Plan { record: true, for_ns: 1_000_000, ..short("update-non-index", 4) };
    let figures = run(&plan).unwrap();
    let lines = homenode_lab::lines::from_json(&figures.lines);
    let with = |name: &str| {
        let here =
            |line: &&Line| line.places.values().any(|place| place.field.iter().any(|field| field.starts_with(name)));
        lines.iter().find(here).unwrap_or_else(|| panic!("{name} moves between nodes"))
    };
    assert!(with("Manager").counts.found(Found::RemoteModified) > 0);
    let tail = with("log::Shared");
    let slots = tail.places.values().find(|place| place.field.iter().any(|field| field.ends_with(".slots"))).unwrap();
    assert!(slots.function.contains("insert.rs"), "{slots:?}");
    let sampled: Vec<_> =
        lines.iter().flat_map(|line| line.places.values()).flat_map(|place| place.callers.keys()).collect();
    assert!(sampled.iter().any(|stack| stack.iter().any(|name| name.starts_with("engine/"))), "{sampled:?}");
    let again = run(&plan).unwrap();
    assert_eq!(figures.trace_hash, again.trace_hash);
    let same = lines == homenode_lab::lines::from_json(&again.lines);
    assert!(same, "the report is the same in every run of a seed, callers included");
}

/// The document's own case: parting read-mostly fields from a counter. What the re-run predicts is what the parted layout does.
fn a_suggestion_is_right_about_its_gain() {
    let of = |design: &str| Plan {
        for_ns: 500_000,
        warm_ns: 100_000,
        record: true,
        ..Plan::new("xeon-6442y-2s", "one-line", design, 2)
    };
    let (plan, machine, workload) = check(&of("one-line")).unwrap();
    let figures = run(&plan).unwrap();
    let hardware = homenode_lab::measure::used(&plan, &machine, workload);
    let topology = machine::topology(&hardware);
    let view = homenode_lab::lines::view(&hardware, &topology, figures.done);
    let hottest = &homenode_lab::lines::from_json(&figures.lines)[0];
    let fields = homenode_lab::lines::fields_to_part(hottest, &view);
    assert_eq!(fields, ["Variables.oldest", "Variables.limit"]);
    let mut parted = plan.clone();
    parted.what_if.parted = fields;
    let (predicted, real) = (run(&parted).unwrap().per_second, run(&of("parted")).unwrap().per_second);
    assert!(predicted > 1.1 * figures.per_second, "{predicted} {}", figures.per_second);
    assert!((predicted / real - 1.0).abs() < 0.05, "{predicted} {real}");
}

fn nonsense_is_refused_in_one_line() {
    for (plan, says) in [
        (Plan::new("cray", "hot-root", "", 1), "there is no machine 'cray'"),
        (Plan::new("xeon-4s", "tpcz", "", 1), "there is no workload 'tpcz'"),
        (Plan::new("xeon-4s", "hot-root", "oracle", 1), "has no design 'oracle'"),
        (Plan::new("xeon-4s", "hot-root", "", 9), "has 4 nodes, not 9"),
        (Plan { cores: 25, ..Plan::new("xeon-4s", "hot-root", "", 1) }, "has 24 cores a node, not 25"),
        (Plan { sessions: 1 << 20, ..Plan::new("xeon-4s", "hot-root", "", 1) }, "at most 8192"),
    ] {
        let error = check(&plan).err().unwrap();
        assert!(error.contains(says) && !error.contains('\n'), "{error}");
    }
}
