//! The measurements themselves.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

use homenode_memory::foreign::run_on;
use homenode_memory::{HugePages, Policy, Region, Words};
use homenode_topology::Topology;

use super::Repeats;
use crate::InspectError;

/// A line is 64 bytes, eight words.
const LINE_WORDS: usize = 8;

/// Runs on a thread of its own that is bound to CPUs, so that the caller's thread stays where it is.
fn bound<T: Send>(cpus: &[usize], work: impl FnOnce() -> T + Send) -> Result<T, InspectError> {
    let bind = || {
        run_on(cpus).map_err(|error| {
            InspectError::Refused(format!("running on CPUs {}: {error}", homenode_topology::format_list(cpus)))
        })?;
        Ok(work())
    };
    let ended = std::thread::scope(|scope| scope.spawn(bind).join());
    ended.unwrap_or_else(|_| Err(InspectError::Refused("a measuring thread failed".to_owned())))
}

/// Memory of the policy, made present.
fn filled(bytes: usize, policy: &Policy, topology: &Topology) -> Result<Words, InspectError> {
    let region = Region::new(bytes, policy, HugePages::Transparent, topology)?;
    region.prefault()?;
    Ok(Words::new(region))
}

/// A chain through all lines in an order that no prefetcher guesses: one cycle (Sattolo's algorithm).
fn chain(words: &[AtomicU64]) {
    let lines = words.len() / LINE_WORDS;
    let mut order: Vec<u32> = (0..lines as u32).collect();
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for index in (1..lines).rev() {
        // xorshift64: good enough to be unpredictable to a prefetcher.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        order.swap(index, (random % index as u64) as usize);
    }
    for (index, next) in order.iter().enumerate() {
        words[index * LINE_WORDS].store(u64::from(*next) * LINE_WORDS as u64, Relaxed);
    }
}

/// Nanoseconds of a load that depends on the last one, from CPUs to a node's memory. `bytes` should be several times the last
/// cache.
///
/// # Errors
/// If the memory can't be had from that node, or the CPUs may not be used.
pub fn latency(
    topology: &Topology,
    cpus: &[usize],
    node: usize,
    bytes: usize,
    repeats: usize,
) -> Result<Repeats, InspectError> {
    const LOADS: u64 = 400_000;
    let words = filled(bytes, &Policy::Bind(vec![node]), topology)?;
    let words = words.as_slice();
    chain(words);
    let times = bound(&cpus[..1], || {
        let mut at = 0usize;
        let mut times = Vec::new();
        // The first round fills the TLB and is not counted.
        for round in 0..=repeats {
            let begun = Instant::now();
            for _ in 0..LOADS {
                at = words[at].load(Relaxed) as usize;
            }
            let ns = begun.elapsed().as_secs_f64() * 1e9 / LOADS as f64;
            if round > 0 {
                times.push(ns);
            }
        }
        // The chain's end is used, so that the loads cannot be left out.
        std::hint::black_box(at);
        times
    })?;
    Repeats::new(times).ok_or_else(|| InspectError::Refused("no repeats".to_owned()))
}

/// How long the other CPUs pause between two bursts of reads, in turns of a spin loop: from a trickle to all that they can.
const PAUSES: [u32; 5] = [16_384, 4096, 1024, 256, 0];
/// Bytes that they read in a burst.
const BURST_WORDS: usize = 1024;

/// A latency under load.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What the other CPUs read meanwhile, in bytes a second; 0 for the idle machine.
    pub bytes_per_second: f64,
    /// Nanoseconds of a dependent load.
    pub latency_ns: Repeats,
}

/// Nanoseconds of a dependent load from the first CPU to a node's memory while the other CPUs read from it too: first none, then
/// more and more. With one CPU there is nobody to load the memory, and only the first point.
///
/// # Errors
/// As [`latency`].
pub fn loaded_latency(
    topology: &Topology,
    cpus: &[usize],
    node: usize,
    bytes: usize,
    repeats: usize,
) -> Result<Vec<Loaded>, InspectError> {
    let idle = latency(topology, cpus, node, bytes, repeats)?;
    let mut points = vec![Loaded { bytes_per_second: 0.0, latency_ns: idle }];
    let others = &cpus[1..];
    if others.is_empty() {
        return Ok(points);
    }
    let read = filled(bytes, &Policy::Bind(vec![node]), topology)?;
    for pause in PAUSES {
        let (stop, sum) = (AtomicBool::new(false), AtomicU64::new(0));
        let (latency_ns, seconds) = std::thread::scope(|scope| {
            let share = read.as_slice().len() / others.len();
            for (cpu, part) in others.iter().zip(read.as_slice().chunks(share.max(1))) {
                let (stop, sum) = (&stop, &sum);
                scope.spawn(move || bound(&[*cpu], || sum.fetch_add(stream(part, pause, stop), Relaxed)));
            }
            let begun = Instant::now();
            let latency_ns = latency(topology, cpus, node, bytes, repeats);
            stop.store(true, Relaxed);
            (latency_ns, begun.elapsed().as_secs_f64())
        });
        points.push(Loaded { bytes_per_second: sum.load(Relaxed) as f64 / seconds, latency_ns: latency_ns? });
    }
    Ok(points)
}

/// Reads in bursts until it is stopped; returns how many bytes.
fn stream(words: &[AtomicU64], pause: u32, stop: &AtomicBool) -> u64 {
    let mut bursts = 0;
    let mut sum = 0u64;
    while !stop.load(Relaxed) {
        for burst in words.chunks(BURST_WORDS) {
            sum = burst.iter().fold(sum, |sum, word| sum.wrapping_add(word.load(Relaxed)));
            bursts += burst.len() as u64 * 8;
            (0..pause).for_each(|_| std::hint::spin_loop());
            if stop.load(Relaxed) {
                break;
            }
        }
    }
    std::hint::black_box(sum);
    bursts
}

/// Bytes a second that one thread on the CPUs writes, or reads, to memory of a policy.
///
/// # Errors
/// As [`latency`].
pub fn bandwidth(
    topology: &Topology,
    cpus: &[usize],
    policy: &Policy,
    bytes: usize,
    write: bool,
    repeats: usize,
) -> Result<Repeats, InspectError> {
    let words = filled(bytes, policy, topology)?;
    let words = words.as_slice();
    let rates = bound(&cpus[..1], || {
        let round = || {
            let begun = Instant::now();
            if write {
                words.iter().for_each(|word| word.store(1, Relaxed));
            } else {
                std::hint::black_box(words.iter().fold(0u64, |sum, word| sum.wrapping_add(word.load(Relaxed))));
            }
            words.len() as f64 * 8.0 / begun.elapsed().as_secs_f64()
        };
        round();
        (0..repeats).map(|_| round()).collect()
    })?;
    Repeats::new(rates).ok_or_else(|| InspectError::Refused("no repeats".to_owned()))
}

/// Nanoseconds for a line, homed on `node`, to go from one CPU to another: half of a round trip.
///
/// # Errors
/// As [`latency`].
pub fn core_to_core(
    topology: &Topology,
    pair: (usize, usize),
    node: usize,
    repeats: usize,
) -> Result<Repeats, InspectError> {
    const TRIPS: u64 = 20_000;
    let words = filled(1, &Policy::Bind(vec![node]), topology)?;
    let line = &words.as_slice()[0];
    let mut times = Vec::new();
    for _ in 0..repeats {
        line.store(0, Release);
        let play = |cpu: usize, mine: u64| {
            bound(&[cpu], move || {
                let begun = Instant::now();
                for trip in 0..TRIPS {
                    let turn = trip * 2 + mine;
                    while line.load(Acquire) != turn {
                        std::hint::spin_loop();
                    }
                    line.store(turn + 1, Release);
                }
                begun.elapsed().as_secs_f64()
            })
        };
        let seconds = std::thread::scope(|scope| {
            let other = scope.spawn(|| play(pair.1, 1));
            let own = play(pair.0, 0);
            other.join().map_err(|_| InspectError::Refused("a measuring thread failed".to_owned()))??;
            own
        })?;
        times.push(seconds * 1e9 / (TRIPS * 2) as f64);
    }
    Repeats::new(times).ok_or_else(|| InspectError::Refused("no repeats".to_owned()))
}

/// Bytes a second that the kernel moves from one node to another.
///
/// # Errors
/// As [`latency`], and if the kernel refuses to move.
pub fn migration(topology: &Topology, from: usize, to: usize, bytes: usize) -> Result<Repeats, InspectError> {
    let words = filled(bytes, &Policy::Bind(vec![from]), topology)?;
    let region = words.region();
    let mut rates = Vec::new();
    for node in [to, from, to] {
        let begun = Instant::now();
        let moved = region
            .migrate(0..region.len(), node)
            .map_err(|refusal| InspectError::Refused(format!("moving pages: {refusal}")))?;
        rates.push(moved.there_bytes as f64 / begun.elapsed().as_secs_f64());
    }
    Repeats::new(rates).ok_or_else(|| InspectError::Refused("nothing moved".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_is_one_cycle_through_all_lines() {
        let words: Vec<AtomicU64> = (0..64 * LINE_WORDS).map(|_| AtomicU64::new(0)).collect();
        chain(&words);
        let mut at = 0;
        for step in 1..=64 {
            at = words[at].load(Relaxed) as usize;
            assert_eq!(at == 0, step == 64, "step {step}");
        }
    }

    #[test]
    fn this_machine_can_be_measured() {
        let topology = Topology::discover();
        let cpus = topology.allowed_cpus();
        let node = topology.memory_nodes()[0].id;
        assert!(latency(&topology, &cpus, node, 4 << 20, 2).unwrap().median() > 0.1);
        assert!(bandwidth(&topology, &cpus, &Policy::Local, 4 << 20, true, 2).unwrap().median() > 1e6);
        let loaded = loaded_latency(&topology, &cpus, node, 4 << 20, 1).unwrap();
        assert_eq!(loaded.len(), if cpus.len() > 1 { 1 + PAUSES.len() } else { 1 });
        assert!(loaded.iter().skip(1).all(|point| point.bytes_per_second > 0.0), "{loaded:?}");
        if cpus.len() > 1 {
            assert!(core_to_core(&topology, (cpus[0], cpus[1]), node, 1).unwrap().median() > 1.0);
        }
    }
}
