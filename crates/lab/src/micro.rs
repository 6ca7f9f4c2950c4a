//! Does the simulated machine give back what it was built from? Micro-runs for every row of a machine's latency table.

use crate::machine::Machine;
use homenode_platform::atomic::{AtomicU64, Ordering};
use homenode_platform::lab::sim::{Hardware, Home, SimConfig, WhatIf};
use homenode_platform::lab::{self, Config, Isolated, Outcome, measure};
use homenode_platform::thread;
use std::sync::{Arc, Mutex};

/// One row: what the machine's file says, and what a program sees that runs on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What is measured.
    pub what: String,
    /// By the machine's file.
    pub expected: f64,
    /// By the micro-run.
    pub seen: f64,
    /// Nanoseconds or GB/s.
    pub unit: &'static str,
}

impl Row {
    /// How far the micro-run is off, as a share.
    pub fn error(&self) -> f64 {
        (self.seen / self.expected - 1.0).abs()
    }
}

/// All rows of a machine, each from a run of its own.
///
/// # Errors
/// How a run failed.
pub fn table(machine: &Machine) -> Result<Vec<Row>, String> {
    let hardware = Arc::new(machine.hardware.clone());
    let text = Isolated::start({
        let hardware = hardware.clone();
        move || {
            match rows(&hardware) {
                Ok(rows) => rows
                    .iter()
                    .map(|row| format!("{}\t{}\t{}\t{}\n", row.what, row.expected, row.seen, row.unit))
                    .collect::<String>(),
                Err(error) => format!("!{error}"),
            }
            .into_bytes()
        }
    })
    .map_err(|error| format!("cannot fork: {error}"))?
    .wait()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    if let Some(error) = text.strip_prefix('!') {
        return Err(error.to_owned());
    }
    let parse = |line: &str| {
        let mut parts = line.split('\t');
        let what = parts.next()?.to_owned();
        let (expected, seen) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Row { what, expected, seen, unit: if parts.next()? == "ns" { "ns" } else { "GB/s" } })
    };
    text.lines().map(|line| parse(line).ok_or_else(|| format!("the run answered '{line}'"))).collect()
}

fn rows(hardware: &Arc<Hardware>) -> Result<Vec<Row>, String> {
    let ranges = hardware.cores_of_nodes();
    let first_group = hardware.nodes[0].groups[0];
    let mut rows = Vec::new();
    let mut row = |what: &str, expected: f64, unit, seen: Result<f64, String>| -> Result<(), String> {
        rows.push(Row { what: what.to_owned(), expected, seen: seen?, unit });
        Ok(())
    };
    let ns = "ns";
    if first_group > 1 {
        row("modified line in the same L3 group", hardware.group_hitm_ns, ns, transfer(hardware, 1, 0, 0))?;
        row("clean line from the same L3", hardware.l3_ns, ns, clean(hardware, 1, 0))?;
    }
    if hardware.nodes[0].groups.len() > 1 {
        row("modified line in another L3 group", hardware.node_hitm_ns, ns, transfer(hardware, first_group, 0, 0))?;
    }
    row("memory of the own node", hardware.nodes[0].memory_ns, ns, chase(hardware, 0, 0))?;
    let mut seen = Vec::new();
    for (other, range) in ranges.iter().enumerate().skip(1) {
        let link = hardware.link(0, other).clone();
        if seen.contains(&link.memory_ns.to_bits()) {
            continue;
        }
        seen.push(link.memory_ns.to_bits());
        let far = range.start;
        let name = |what: &str| format!("{what} node {other}");
        row(
            &name("modified line, memory at the writer,"),
            link.hitm_home_owner_ns,
            ns,
            transfer(hardware, far, 0, other),
        )?;
        row(
            &name("modified line, memory at the reader,"),
            link.hitm_home_reader_ns,
            ns,
            transfer(hardware, far, 0, 0),
        )?;
        row(&name("memory of"), link.memory_ns, ns, chase(hardware, 0, other))?;
        row(&name("bandwidth to memory of"), link.gbs, "GB/s", bandwidth(hardware, other))?;
    }
    row("bandwidth to the own memory", hardware.nodes[0].memory_gbs, "GB/s", bandwidth(hardware, 0))?;
    Ok(rows)
}

/// Runs `f` on the machine; what it returns.
fn on(hardware: &Arc<Hardware>, f: impl FnOnce() -> f64 + 'static) -> Result<f64, String> {
    let config = Config {
        steps_max: u64::MAX,
        sim: Some(SimConfig { hardware: hardware.clone(), processes: true, record: false, what_if: WhatIf::default() }),
        ..Config::new(1)
    };
    let answer = Arc::new(Mutex::new(0.0));
    let out = answer.clone();
    let report = lab::run(&config, move || {
        measure::start_charging();
        *out.lock().expect("one thread") = f();
    });
    match report.outcome {
        Outcome::Finished => Ok(*answer.lock().expect("one thread")),
        other => Err(format!("{other:?}")),
    }
}

/// Lines at the start of pages of their own, with their memory on `home`.
fn words(bytes: usize, home: usize) -> Arc<Vec<AtomicU64>> {
    let words: Vec<AtomicU64> = (0..bytes / 8).map(|_| AtomicU64::new(0)).collect();
    measure::place(words.as_ptr().addr(), bytes, Home::Node(home as u8));
    Arc::new(words)
}

const BLOCK_BYTES: usize = 1 << 20;
const SAMPLES: usize = 200;

fn on_core(core: usize, f: impl FnOnce() -> f64 + Send + 'static) -> f64 {
    let answer = Arc::new(Mutex::new(0.0));
    let out = answer.clone();
    thread::spawn_on(core, "core", move || *out.lock().expect("one at a time") = f()).join();
    *answer.lock().expect("one at a time")
}

/// Mean time of a load in `core` of lines that lie far apart.
fn loads(words: &[AtomicU64]) -> f64 {
    let begin = measure::now_ns();
    for sample in 0..SAMPLES {
        // Every 17th line: none follows another.
        words[sample * 17 * 8 % words.len()].load(Ordering::Relaxed);
    }
    (measure::now_ns() - begin) as f64 / SAMPLES as f64
}

/// A core loads what another has just written.
fn transfer(hardware: &Arc<Hardware>, writer: usize, reader: usize, home: usize) -> Result<f64, String> {
    on(hardware, move || {
        let words = words(BLOCK_BYTES, home);
        let for_writer = words.clone();
        on_core(writer, move || {
            for sample in 0..SAMPLES {
                for_writer[sample * 17 * 8 % for_writer.len()].store(1, Ordering::SeqCst);
            }
            0.0
        });
        thread::sleep_ns(1_000_000);
        on_core(reader, move || loads(&words))
    })
}

/// A core loads what another of its group has loaded.
fn clean(hardware: &Arc<Hardware>, first: usize, reader: usize) -> Result<f64, String> {
    on(hardware, move || {
        let words = words(BLOCK_BYTES, 0);
        let for_first = words.clone();
        on_core(first, move || loads(&for_first));
        on_core(reader, move || loads(&words))
    })
}

/// A core loads what nobody has.
fn chase(hardware: &Arc<Hardware>, reader: usize, home: usize) -> Result<f64, String> {
    on(hardware, move || {
        let words = words(BLOCK_BYTES, home);
        on_core(reader, move || loads(&words))
    })
}

/// All cores of node 0 stream over memory of `home`: GB/s.
fn bandwidth(hardware: &Arc<Hardware>, home: usize) -> Result<f64, String> {
    let cores = hardware.cores_of_nodes()[0].clone();
    on(hardware, move || {
        let begin = measure::now_ns();
        let total = cores.len() * BLOCK_BYTES;
        let readers: Vec<_> = cores
            .map(|core| {
                let words = words(BLOCK_BYTES, home);
                thread::spawn_on(core, "stream", move || {
                    words.iter().step_by(8).for_each(|word| {
                        word.load(Ordering::Relaxed);
                    });
                })
            })
            .collect();
        readers.into_iter().for_each(thread::JoinHandle::join);
        total as f64 / (measure::now_ns() - begin) as f64
    })
}

/// All of `cores` add to one word: additions a second, millions. What a contended line can do.
///
/// # Errors
/// How the run failed.
pub fn contended_adds(machine: &Machine, nodes: usize, cores_of_each: usize) -> Result<f64, String> {
    let hardware = Arc::new(machine.hardware.restricted(nodes, cores_of_each));
    let answer = Isolated::start(move || {
        let cores = hardware.cores();
        let seen = on(&hardware, move || {
            const ADDS: u64 = 500;
            let words = words(4096, 0);
            let begin = measure::now_ns();
            // Requests are served as they come: cores of different nodes in turn, as when nobody orders them.
            let in_turn = (0..cores).map(|at| at % nodes * (cores / nodes) + at / nodes);
            let adders: Vec<_> = in_turn
                .map(|core| {
                    let words = words.clone();
                    thread::spawn_on(core, "add", move || {
                        for _ in 0..ADDS {
                            words[0].fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            adders.into_iter().for_each(thread::JoinHandle::join);
            (ADDS * cores as u64) as f64 * 1e3 / (measure::now_ns() - begin) as f64
        });
        seen.map_or_else(|error| error, |rate| rate.to_string()).into_bytes()
    });
    let bytes = answer.map_err(|error| format!("cannot fork: {error}"))?.wait()?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    text.parse().map_err(|_| text)
}
