//! Which findings are looked for? The documents' numbers, and the runs that stand for them.

use super::{Experiment, Points, Results, Role, Series};
use crate::measure::{Figures, Plan};

/// All experiments.
pub const ALL: &[&Experiment] = &[
    &HOT_ROOT,
    &DESCRIPTOR,
    &READ_SCALE,
    &WRITE_REGRESS,
    &TPCB,
    &STARVATION,
    &MAPPING,
    &ONE_LINE,
    &IMBALANCE,
    &LOCAL_PRIVATE,
    &VICTIM_ORDER,
    &POLICIES,
    &BLADES,
];

fn rate(figures: &Figures) -> f64 {
    figures.per_second
}

fn given(name: &str, points: &[(&str, f64)]) -> Series {
    let points = points.iter().map(|(label, value)| ((*label).to_owned(), *value)).collect();
    Series { name: name.to_owned(), role: Role::Document, points: Points::Given(points) }
}

fn runs(name: &str, role: Role, runs: Vec<(String, Plan)>) -> Series {
    Series { name: name.to_owned(), role, points: Points::Runs(runs) }
}

/// A series over numbers of nodes.
fn over_nodes(name: &str, role: Role, machine: &str, workload: &str, design: &str, nodes: &[usize]) -> Series {
    let plan = |count: &usize| (count.to_string(), Plan::new(machine, workload, design, *count));
    runs(name, role, nodes.iter().map(plan).collect())
}

/// "What the lab sees is so many per cent of what the document saw", for one ratio.
fn against(what: &str, document: f64, lab: f64) -> String {
    format!("{what}: document {document:.2}, lab {lab:.2}")
}

const HOT_ROOT: Experiment = Experiment {
    name: "hot-root",
    title: "A point join on one to four nodes, with every statement on the same three pages",
    source: "Freund, NUMA vs PostgreSQL (PGConf.EU 2024), problem 4",
    found: "131,912 / 167,361 / 94,236 / 62,357 transactions of ten statements a second on 1 to 4 nodes; separate databases \
            131,915 / 256,811 / 378,540 / 515,292. Proposed: super-locked pages.",
    value: "statements a second",
    less_is_better: false,
    of: rate,
    series: |quick| {
        let nodes: &[usize] = if quick { &[1, 2, 4] } else { &[1, 2, 3, 4] };
        let ours = |name: &str, role, design: &str| over_nodes(name, role, "xeon-4s", "hot-root", design, nodes);
        vec![
            given("document", &[("1", 1_319_120.0), ("2", 1_673_610.0), ("3", 942_360.0), ("4", 623_570.0)]),
            given(
                "document, separate",
                &[("1", 1_319_150.0), ("2", 2_568_110.0), ("3", 3_785_400.0), ("4", 5_152_920.0)],
            ),
            ours("descriptor-64", Role::Old, "descriptor-64"),
            ours("super-locked", Role::Fix, "super-locked"),
            ours("homenode", Role::Homenode, "homenode"),
            ours("homenode-separate", Role::Homenode, "homenode-separate"),
        ]
    },
    verdict: |results| {
        let of_one = |series: &str, nodes: &str| results.at(series, nodes) / results.at(series, "1");
        vec![
            against("2 nodes of 1, old design", 1.27, of_one("descriptor-64", "2")),
            against("4 nodes of 1, old design", 0.47, of_one("descriptor-64", "4")),
            against("statements a second on one node, millions", 1.32, results.at("descriptor-64", "1") / 1e6),
            format!(
                "4 nodes: super-locked {:.2} times one node, Homenode {:.2} times",
                of_one("super-locked", "4"),
                of_one("homenode", "4")
            ),
        ]
    },
};

const DESCRIPTOR: Experiment = Experiment {
    name: "descriptor",
    title: "Splitting the buffer descriptor",
    source: "Freund, Looking for cacheline contention (PGConf.dev 2024)",
    found: "splitting the 64-byte descriptor: one client on the laptop 0.98 times, 16 clients 1.43 times, 50 clients on the \
            workstation 1.32 times as fast; 7,538 against 1,660 statements a second with 16 clients and one.",
    value: "look-ups a second",
    less_is_better: false,
    of: rate,
    series: |_| {
        let plans = |design: &str| {
            let plan = |label: &str, machine: &str, sessions: usize| {
                (label.to_owned(), Plan { sessions, ..Plan::new(machine, "nested-loop", design, 0) })
            };
            vec![
                plan("laptop 1", "laptop", 1),
                plan("laptop 16", "laptop", 16),
                plan("workstation 50", "workstation-2s", 50),
            ]
        };
        vec![
            given("document", &[("laptop 1", 1_660e3), ("laptop 16", 7_538e3), ("workstation 50", 2_285e3)]),
            given("document, split", &[("laptop 1", 1_635e3), ("laptop 16", 10_782e3), ("workstation 50", 3_015e3)]),
            runs("descriptor-64", Role::Old, plans("descriptor-64")),
            runs("descriptor-split", Role::Fix, plans("descriptor-split")),
            runs("homenode", Role::Homenode, plans("homenode")),
        ]
    },
    verdict: |results| {
        let gain = |label: &str| results.at("descriptor-split", label) / results.at("descriptor-64", label);
        vec![
            against("gain of the split, one client", 0.98, gain("laptop 1")),
            against("gain of the split, 16 clients on the laptop", 1.43, gain("laptop 16")),
            against("gain of the split, 50 clients on the workstation", 1.32, gain("workstation 50")),
            format!(
                "Homenode on the workstation: {:.2} times the old design",
                results.at("homenode", "workstation 50") / results.at("descriptor-64", "workstation 50")
            ),
        ]
    },
};

const READ_SCALE: Experiment = Experiment {
    name: "read-scale",
    title: "Reads by key and read-only transactions on one to four nodes",
    source: "Bauskar, Understanding NUMA scalability with MariaDB 10.6 (2021)",
    found: "point-select and read-only scale with the nodes, on Kunpeng 920 (4 nodes) and on two Xeon Gold 6151 (a chart without numbers).",
    value: "transactions a second",
    less_is_better: false,
    of: rate,
    series: |quick| {
        let nodes = &[1, 2, 4];
        let ours = |name: &str, machine: &str, workload: &str| {
            over_nodes(name, Role::Homenode, machine, workload, "homenode", nodes)
        };
        let mut all = vec![ours("point-select", "xeon-4s", "point-select"), ours("read-only", "xeon-4s", "read-only")];
        if !quick {
            all.push(ours("point-select, Kunpeng", "kunpeng-920", "point-select"));
            all.push(ours("read-only, Kunpeng", "kunpeng-920", "read-only"));
        }
        all
    },
    verdict: |results| {
        let share = |series: &str| 100.0 * results.at(series, "4") / (4.0 * results.at(series, "1"));
        results
            .series
            .iter()
            .map(|(series, _)| format!("{}: {:.1}% of linear at 4 nodes", series.name, share(&series.name)))
            .collect()
    },
};

const WRITE_REGRESS: Experiment = Experiment {
    name: "write-regress",
    title: "Updates on one to four nodes",
    source: "Bauskar, Understanding NUMA scalability with MariaDB 10.6 (2021)",
    found: "update-index and update-non-index get slower with every node: on 4 nodes 8 to 14% of linear; waits for the log mutex and for the \
            rollback-segment mutex grow with the nodes.",
    value: "transactions a second",
    less_is_better: false,
    of: rate,
    series: |_| {
        let nodes = &[1, 2, 4];
        let mut all = Vec::new();
        for workload in ["update-index", "update-non-index"] {
            for (role, design) in [(Role::Old, "one-mutex"), (Role::Homenode, "homenode")] {
                all.push(over_nodes(&format!("{workload}, {design}"), role, "xeon-4s", workload, design, nodes));
            }
        }
        let zipfian = |nodes: &usize| {
            let plan =
                Plan { policy: "zipfian".to_owned(), ..Plan::new("xeon-4s", "update-index", "homenode", *nodes) };
            (nodes.to_string(), plan)
        };
        all.push(runs("update-index zipfian, homenode", Role::Homenode, nodes.iter().map(zipfian).collect()));
        all
    },
    verdict: |results| {
        let share = |series: &str| results.at(series, "4") / (4.0 * results.at(series, "1"));
        let mut lines = vec![
            against(
                "one-mutex, update-index, share of linear at 4 nodes (document 0.08 to 0.14)",
                0.11,
                share("update-index, one-mutex"),
            ),
            against(
                "one-mutex, update-non-index, share of linear at 4 nodes",
                0.11,
                share("update-non-index, one-mutex"),
            ),
        ];
        for workload in ["update-index, homenode", "update-non-index, homenode", "update-index zipfian, homenode"] {
            lines.push(format!("{workload}: {:.1}% of linear at 4 nodes", 100.0 * share(workload)));
        }
        lines
    },
};

const TPCB: Experiment = Experiment {
    name: "tpcb",
    title: "A TPC-B-like transaction, with as many branches as sessions",
    source: "Freund 2024 (dense transaction array); the engine's own aim",
    found: "a dense array of transactions, read whole under a lock by each snapshot, is named as a problem; no numbers.",
    value: "transactions a second",
    less_is_better: false,
    of: rate,
    series: |_| {
        let nodes = &[1, 2, 4];
        vec![
            over_nodes("dense-snapshot", Role::Old, "xeon-4s", "tpcb", "dense-snapshot", nodes),
            over_nodes("homenode", Role::Homenode, "xeon-4s", "tpcb", "homenode", nodes),
        ]
    },
    verdict: |results| {
        let share = |series: &str| 100.0 * results.at(series, "4") / (4.0 * results.at(series, "1"));
        ["dense-snapshot", "homenode"]
            .map(|series| format!("{series}: {:.1}% of linear at 4 nodes", share(series)))
            .to_vec()
    },
};

fn worst_wait(figures: &Figures) -> f64 {
    // Who was still waiting at the end has waited for all of the time measured at least.
    let worst = figures.extra.iter().find(|(name, _)| name == "exclusive_wait_us_worst");
    worst.map_or(figures.seconds * 1e6, |(_, value)| *value)
}

const STARVATION: Experiment = Experiment {
    name: "starvation",
    title: "One who wants a latch alone, under a flood of those who share it",
    source: "Tikhonov and others, PostgreSQL on a multi-node server (Postgres Professional 2018)",
    found: "with the unfair lock inserts waited for minutes to an hour; with the fair one none waited more than 30 s (scaled here: the flood \
            lasts 20 ms of simulated time, 80 ms on 320 cores).",
    value: "worst wait of an exclusive waiter, us",
    less_is_better: true,
    of: worst_wait,
    series: |_| {
        let plans = |design: &str| {
            vec![
                ("96 cores".to_owned(), Plan::new("xeon-4s", "starvation", design, 4)),
                // Long against the waits: one as long as the run would say nothing about its end.
                (
                    "320 cores".to_owned(),
                    Plan { sessions: 1000, for_ns: 80_000_000, ..Plan::new("blades-16s", "starvation", design, 16) },
                ),
            ]
        };
        vec![
            runs("lwlock-unfair", Role::Old, plans("lwlock-unfair")),
            runs("lwlock-fair", Role::Fix, plans("lwlock-fair")),
            runs("homenode", Role::Homenode, plans("homenode")),
        ]
    },
    verdict: |results| {
        ["lwlock-unfair", "lwlock-fair", "homenode"]
            .map(|series| {
                let (a, b) = (results.at(series, "96 cores"), results.at(series, "320 cores"));
                format!("{series}: worst exclusive wait {a:.0} us with 96 cores, {b:.0} us with 320 cores and 1,000 sessions")
            })
            .to_vec()
    },
};

const MAPPING: Experiment = Experiment {
    name: "mapping",
    title: "Pages that take other pages' buffers, beside a root that everybody looks up",
    source: "Tikhonov and others, PostgreSQL on a multi-node server (Postgres Professional 2018)",
    found: "sessions that extended a table waited for a part of the buffer mapping in order to evict: 3,706 s in the sampled stacks. 512 parts instead \
            of 128 left 15 of them waiting, the fair lock let all inserts through in 30 s. No throughput is given.",
    value: "statements a second",
    less_is_better: false,
    of: rate,
    series: |_| {
        let plans = |design: &str| {
            let plan = |label: &str, machine: &str, nodes: usize, sessions: usize| {
                (label.to_owned(), Plan { sessions, ..Plan::new(machine, "replacement", design, nodes) })
            };
            vec![
                plan("1", "xeon-4s", 1, 0),
                plan("2", "xeon-4s", 2, 0),
                plan("4", "xeon-4s", 4, 0),
                plan("16 (blades)", "blades-16s", 16, 1000),
            ]
        };
        vec![
            runs("mapping-128", Role::Old, plans("mapping-128")),
            runs("mapping-512", Role::Fix, plans("mapping-512")),
            runs("mapping-512-fair", Role::Fix, plans("mapping-512-fair")),
            runs("homenode", Role::Homenode, plans("homenode")),
        ]
    },
    verdict: |results| {
        let of = |series: &str, label: &str, name: &str| {
            results.figure(series, label, |figures| {
                figures.extra.iter().find(|(known, _)| known == name).map_or(0.0, |(_, value)| *value)
            })
        };
        let worst =
            |series: &str, label: &str| results.figure(series, label, |figures| figures.latency_ns_worst as f64) / 1e3;
        let mut lines = Vec::new();
        for series in ["mapping-128", "mapping-512", "mapping-512-fair"] {
            for (label, cores) in [("4", "96 cores"), ("16 (blades)", "320 cores")] {
                lines.push(format!(
                    "{series}, {cores}: {:.0} us on average and {:.0} us at worst until a page had another's buffer",
                    of(series, label, "buffer_wait_us_mean"),
                    of(series, label, "buffer_wait_us_worst"),
                ));
            }
        }
        for series in ["mapping-128", "mapping-512-fair", "homenode"] {
            let (a, b) = (worst(series, "4"), worst(series, "16 (blades)"));
            lines.push(format!(
                "{series}: worst statement {a:.0} us with 96 cores, {b:.0} us with 320 cores (a read takes 80)"
            ));
        }
        lines
    },
};

const ONE_LINE: Experiment = Experiment {
    name: "one-line",
    title: "Read-mostly fields on the line of a counter",
    source: "Freund, NUMA vs PostgreSQL (PGConf.EU 2024), outlook",
    found: "parting read-mostly and frequently changing fields of one structure: 50% more throughput with many subtransactions.",
    value: "subtransactions a second",
    less_is_better: false,
    of: rate,
    series: |_| {
        let nodes = &[1, 2];
        let ours = |role, design: &str| over_nodes(design, role, "xeon-6442y-2s", "one-line", design, nodes);
        vec![ours(Role::Old, "one-line"), ours(Role::Fix, "parted"), ours(Role::Homenode, "homenode")]
    },
    verdict: |results| {
        vec![
            against("gain of parting the line, 2 nodes", 1.50, results.at("parted", "2") / results.at("one-line", "2")),
            format!(
                "Homenode: {:.2} times the one line, 2 nodes",
                results.at("homenode", "2") / results.at("one-line", "2")
            ),
        ]
    },
};

fn milliseconds(figures: &Figures) -> f64 {
    figures.latency_ns_mean / 1e6
}

const IMBALANCE: Experiment = Experiment {
    name: "imbalance",
    title: "As many sequential scans as cores, with the pool's memory on one node or on all",
    source: "Freund, NUMA vs PostgreSQL (PGConf.EU 2024), problem 2",
    found: "default 382.7 ms (standard deviation 68.6), interleaved 352.6 ms (7.3).",
    value: "mean time of a scan, ms",
    less_is_better: true,
    of: milliseconds,
    series: |_| {
        let ours = |role, design: &str| over_nodes(design, role, "xeon-6442y-2s", "scans", design, &[2]);
        vec![
            given("document, default", &[("2", 382.7)]),
            given("document, interleaved", &[("2", 352.581)]),
            ours(Role::Old, "first-touch"),
            ours(Role::Fix, "interleaved"),
            ours(Role::Homenode, "homenode"),
        ]
    },
    verdict: |results| {
        let spread = |series: &str| {
            100.0 * results.figure(series, "2", |figures| figures.latency_ns_deviation / figures.latency_ns_mean)
        };
        vec![
            against(
                "interleaved of default, mean time",
                0.92,
                results.at("interleaved", "2") / results.at("first-touch", "2"),
            ),
            against("deviation of the mean, default, %", 17.9, spread("first-touch")),
            against("deviation of the mean, interleaved, %", 2.1, spread("interleaved")),
            format!("Homenode of default: {:.2}", results.at("homenode", "2") / results.at("first-touch", "2")),
        ]
    },
};

const LOCAL_PRIVATE: Experiment = Experiment {
    name: "local-private",
    title: "A scan with the pool interleaved, and work memory interleaved or local",
    source: "Freund, NUMA vs PostgreSQL (PGConf.EU 2024), problem 2",
    found: "everything interleaved 1,679 ms, the pool interleaved and other memory local 1,597 ms.",
    value: "pages a second",
    less_is_better: false,
    of: rate,
    series: |_| {
        let ours = |role, design: &str| over_nodes(design, role, "xeon-6442y-2s", "local-private", design, &[2]);
        vec![
            given("document, all interleaved", &[("2", 1.0)]),
            given("document, private local", &[("2", 1679.224 / 1597.208)]),
            ours(Role::Old, "all-interleaved"),
            ours(Role::Fix, "private-local"),
            ours(Role::Homenode, "homenode"),
        ]
    },
    verdict: |results| {
        let old = results.at("all-interleaved", "2");
        vec![
            against("gain of local private memory", 1.051, results.at("private-local", "2") / old),
            format!("pool local too (Homenode with policy local): {:.3}", results.at("homenode", "2") / old),
        ]
    },
};

const VICTIM_ORDER: Experiment = Experiment {
    name: "victim-order",
    title: "Scans over buffers in order, or where one clock hand left them",
    source: "Freund, NUMA vs PostgreSQL (PGConf.EU 2024), problem 3",
    found: "prewarmed (in order) is 3.8% faster than naturally filled on the laptop, 10.2% on 2 x 6442Y; last-level misses 1,144 M against 535 M.",
    value: "pages a second",
    less_is_better: false,
    of: rate,
    series: |_| {
        let plans = |design: &str| {
            let plan = |machine: &str| (machine.to_owned(), Plan::new(machine, "victim-order", design, 0));
            vec![plan("laptop"), plan("xeon-6442y-2s")]
        };
        vec![
            given("document, natural", &[("laptop", 1.0), ("xeon-6442y-2s", 1.0)]),
            given("document, prewarmed", &[("laptop", 559.658 / 539.189), ("xeon-6442y-2s", 413.757 / 375.201)]),
            runs("one-clock", Role::Old, plans("one-clock")),
            runs("prewarmed", Role::Fix, plans("prewarmed")),
            runs("homenode", Role::Homenode, plans("homenode")),
        ]
    },
    verdict: |results| {
        let gain = |label: &str| results.at("prewarmed", label) / results.at("one-clock", label);
        vec![
            against("gain of buffers in order, laptop", 1.038, gain("laptop")),
            against("gain of buffers in order, 2 x 6442Y", 1.103, gain("xeon-6442y-2s")),
            "the lab has no address translation: of the document's gain it can show what sequential fetching brings, not the TLB's part"
                .to_owned(),
        ]
    },
};

fn megabytes(figures: &Figures) -> f64 {
    figures.per_second * 64.0 / 1e6
}

const POLICIES: Experiment = Experiment {
    name: "policies",
    title: "Filling memory under each policy",
    source: "Cates, Performance implications of NUMA (SAS)",
    found: "numademo memset: no policy 6,244 MB/s, local 6,241, interleaved 4,154, node 0 3,125, node 1 6,256 (two sockets of 2012).",
    value: "MB/s of one thread",
    less_is_better: false,
    of: megabytes,
    series: |_| {
        let labels = ["no-policy", "local", "interleaved", "node-0", "node-1"];
        let plan = |label: &&str| ((*label).to_owned(), Plan::new("workstation-2s", "memset", label, 2));
        vec![
            given(
                "document",
                &[
                    ("no-policy", 6243.8),
                    ("local", 6241.4),
                    ("interleaved", 4153.5),
                    ("node-0", 3125.4),
                    ("node-1", 6256.2),
                ],
            ),
            runs("lab", Role::Old, labels.iter().map(plan).collect()),
        ]
    },
    verdict: |results| {
        let share = |label: &str| results.at("lab", label) / results.at("lab", "local");
        vec![
            against("interleaved of local", 0.67, share("interleaved")),
            against("the other node of local", 0.50, share("node-0")),
            "Homenode takes part by its policies: pools default to interleaved, local and bound ones can be asked for"
                .to_owned(),
        ]
    },
};

const BLADES: Experiment = Experiment {
    name: "blades",
    title: "Sixteen sockets on eight blades",
    source: "Tikhonov and others (Postgres Professional 2018); blades' latencies are assumptions",
    found: "on 8 blades with more than 300 cores simple writes waited for minutes; no throughput by cores is given.",
    value: "statements a second",
    less_is_better: false,
    of: rate,
    series: |_| {
        let nodes = &[2, 4, 8, 16];
        vec![
            over_nodes("descriptor-64 (point join)", Role::Old, "blades-16s", "hot-root", "descriptor-64", nodes),
            over_nodes("homenode (point join)", Role::Homenode, "blades-16s", "hot-root", "homenode", nodes),
            over_nodes("homenode", Role::Homenode, "blades-16s", "point-select", "homenode", nodes),
        ]
    },
    verdict: |results| {
        let line = |(series, _): &(Series, Vec<super::Point>)| {
            format!("{}: 16 sockets {:.2} times 2 sockets", series.name, times(results, &series.name))
        };
        results.series.iter().map(line).collect()
    },
};

fn times(results: &Results, series: &str) -> f64 {
    results.at(series, "16") / results.at(series, "2")
}
