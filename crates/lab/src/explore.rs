//! Which seeds break a scenario? Runs trials in processes of their own and collects what they say.

use crate::options::Options;
use crate::scenario::{Scenario, Summary, Trial};
use homenode_platform::lab::Isolated;
use std::collections::VecDeque;
use std::time::Instant;

/// A seed under which a scenario's claim does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The seed.
    pub seed: u64,
    /// What happened.
    pub what: String,
}

/// What an exploration of one scenario came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exploration {
    /// Trials that ended.
    pub trials: u64,
    /// Their sums, trace hashes combined in the seeds' order.
    pub total: Summary,
    /// The first seed that failed; exploring stops there.
    pub finding: Option<Finding>,
}

/// Explores one scenario.
pub fn explore(scenario: &Scenario, options: &Options) -> Exploration {
    let mut result = Exploration::default();
    let mut running: VecDeque<(u64, Result<Isolated, String>)> = VecDeque::new();
    let mut seeds = (options.from..options.from.saturating_add(options.seeds))
        .flat_map(|seed| std::iter::repeat_n(seed, if options.twice { 2 } else { 1 }));
    let mut last = None;
    loop {
        while running.len() < options.jobs && result.finding.is_none() {
            let Some(seed) = seeds.next() else { break };
            let trial = Trial { seed, planted: options.plant };
            running.push_back((seed, start(scenario, trial)));
        }
        let Some((seed, child)) = running.pop_front() else { return result };
        let outcome = child.and_then(|child| decode(&child.wait()?));
        result.trials += 1;
        let failed = |what| Some(Finding { seed, what });
        // Those still running after a finding are only waited for.
        if result.finding.is_some() {
            continue;
        }
        if last.as_ref().is_some_and(|(before, was)| *before == seed && *was != outcome) {
            result.finding = failed(format!("not repeatable: {last:?} and then {outcome:?}"));
            continue;
        }
        match &outcome {
            Ok(summary) => add(&mut result.total, summary),
            // The first of two runs may fail too: the second shows whether it repeats.
            Err(_) if options.twice && last.as_ref().is_none_or(|(before, _)| *before != seed) => {}
            Err(what) => result.finding = failed(what.clone()),
        }
        last = Some((seed, outcome));
    }
}

fn start(scenario: &Scenario, trial: Trial) -> Result<Isolated, String> {
    let run = scenario.run;
    Isolated::start(move || encode(&run(&trial))).map_err(|error| format!("cannot fork: {error}"))
}

fn add(total: &mut Summary, one: &Summary) {
    total.runs += one.runs;
    total.steps += one.steps;
    total.switches += one.switches;
    total.writes += one.writes;
    total.trace_hash = total.trace_hash.rotate_left(7) ^ one.trace_hash;
}

fn encode(result: &Result<Summary, String>) -> Vec<u8> {
    match result {
        Ok(s) => format!("ok {} {} {} {} {}", s.runs, s.steps, s.switches, s.writes, s.trace_hash),
        Err(what) => format!("no {what}"),
    }
    .into_bytes()
}

fn decode(bytes: &[u8]) -> Result<Summary, String> {
    let text = String::from_utf8_lossy(bytes);
    if let Some(what) = text.strip_prefix("no ") {
        return Err(what.to_owned());
    }
    let garbled = || format!("the run's process answered '{text}'");
    let numbers = text.strip_prefix("ok ").ok_or_else(garbled)?;
    let numbers: Result<Vec<u64>, _> = numbers.split(' ').map(str::parse).collect();
    match numbers.as_deref() {
        Ok(&[runs, steps, switches, writes, trace_hash]) => Ok(Summary { runs, steps, switches, writes, trace_hash }),
        _ => Err(garbled()),
    }
}

/// Explores the scenarios that the options name and prints the results; true when all is as wanted.
pub fn explore_all(scenarios: &[&Scenario], options: &Options) -> bool {
    let wanted = |scenario: &&&Scenario| {
        scenario.name.contains(&options.scenario) && (!options.plant || scenario.has_planted_bug)
    };
    let mut good = true;
    let mut any = false;
    for scenario in scenarios.iter().filter(wanted) {
        any = true;
        let start = Instant::now();
        let result = explore(scenario, options);
        good &= result.finding.is_some() == options.plant;
        print(scenario, options, &result, start.elapsed().as_secs_f64());
    }
    if !any {
        eprintln!("no scenario's name contains '{}'", options.scenario);
    }
    good && any
}

fn print(scenario: &Scenario, options: &Options, result: &Exploration, seconds: f64) {
    let name = scenario.name;
    let total = &result.total;
    if options.json {
        let finding = match &result.finding {
            None => "null".to_owned(),
            Some(finding) => {
                format!("{{\"seed\":{},\"what\":{}}}", finding.seed, json_text(&finding.what))
            }
        };
        println!(
            "{{\"scenario\":\"{name}\",\"planted\":{},\"trials\":{},\"runs\":{},\"steps\":{},\
             \"switches\":{},\"writes\":{},\"trace_hash\":\"{:016x}\",\"seconds\":{seconds:.3},\
             \"finding\":{finding}}}",
            options.plant, result.trials, total.runs, total.steps, total.switches, total.writes, total.trace_hash,
        );
        return;
    }
    match &result.finding {
        None => println!(
            "{name:28} holds: {} trials, {} runs, {} steps, {} switches, {} disk changes, \
             trace {:016x}, {seconds:.1} s{}",
            result.trials,
            total.runs,
            total.steps,
            total.switches,
            total.writes,
            total.trace_hash,
            if options.plant { " (the planted bug was NOT found)" } else { "" },
        ),
        Some(Finding { seed, what }) => {
            println!("{name:28} BROKEN under seed {seed}, trial {}: {what}", result.trials);
            let plant = if options.plant { " --plant" } else { "" };
            println!("  replay: cargo lab schedules --scenario {name} --seed {seed}{plant}");
        }
    }
}

fn json_text(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_survive_the_pipe() {
        let ok = Ok(Summary { runs: 1, steps: 2, switches: 3, writes: 4, trace_hash: u64::MAX });
        assert_eq!(decode(&encode(&ok)), ok);
        let no = Err("a \"bad\" thing".to_owned());
        assert_eq!(decode(&encode(&no)), no);
        assert!(decode(b"").is_err());
        assert_eq!(json_text("a\"b\n"), "\"a\\\"b\\u000a\"");
    }
}
