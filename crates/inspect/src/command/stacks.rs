//! `homenode stacks`: where do threads run and wait?

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::target::Target;
use crate::InspectError;
use crate::stacks::{Flame, Frame, Profile, Sampler, names, svg};
use crate::text::{Table, share, shorten};
use crate::units;

#[derive(Debug, Args)]
#[command(after_help = "Example: homenode stacks --postgres --for 10s --svg flame.svg\n\n\
    Waiting threads are not stopped; running ones for some tens of microseconds a sample. What that cost is printed.\n\
    Names come from the symbols and debug information of the programs (for Debian: packages ending in -dbgsym).")]
pub struct Options {
    #[command(flatten)]
    target: Target,
    /// How long
    #[arg(long = "for", value_name = "TIME", default_value = "5s", value_parser = units::parse_time)]
    duration: Duration,
    /// Samples of every thread a second
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rate: u32,
    /// Stacks shown
    #[arg(long, value_name = "N", default_value_t = 8)]
    top: usize,
    /// Draw flame graphs, running and waiting, into an SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(options: &Options) -> Result<(), InspectError> {
    let server = options.target.server()?;
    let profile = Sampler::new(&server)?.run(options.duration, options.rate)?;
    let names = names(&profile);
    let running = named(&profile.running, &names);
    let waiting = named(&profile.waiting, &names);
    if let Some(file) = &options.svg {
        let title = format!("{} {}, {:.1} s", server.kind.title(), server.pid(), profile.seconds);
        let picture = svg(&title, &[("on CPU or ready", &flame(&running)), ("waiting", &flame(&waiting))]);
        fs::write(file, picture).map_err(|error| InspectError::io(file, error))?;
    }
    if options.json {
        println!("{:#}", as_json(&profile, &running, &waiting));
        return Ok(());
    }
    println!(
        "{} {}: {} threads, {} rounds in {:.1} s\n",
        server.kind.title(),
        server.pid(),
        profile.threads,
        profile.rounds,
        profile.seconds
    );
    print!("{}", as_text("on CPU or ready", &running, &profile, options.top));
    print!("{}", as_text("waiting", &waiting, &profile, options.top));
    println!(
        "running threads were stopped for {:.2}% of their time, for {} us each time (median); the sampler used {:.1}% of a CPU",
        profile.slowed() * 100.0,
        profile.stop_ns_p50() / 1000,
        profile.own_cpu_seconds / profile.seconds * 100.0
    );
    if profile.missed > 0 {
        println!("note: {} samples gave no stack (the thread ended, or its code is in no file)", profile.missed);
    }
    Ok(())
}

/// Functions innermost first, with samples; the most frequent stack first.
type Named = Vec<(Vec<String>, u64)>;

fn named(stacks: &HashMap<Vec<Frame>, u64>, names: &HashMap<Frame, Vec<String>>) -> Named {
    let mut by_name: HashMap<Vec<String>, u64> = HashMap::new();
    for (stack, samples) in stacks {
        let functions = stack.iter().flat_map(|frame| names.get(frame).cloned().unwrap_or_default()).collect();
        *by_name.entry(functions).or_default() += samples;
    }
    let mut list: Named = by_name.into_iter().collect();
    list.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
    list
}

fn flame(stacks: &Named) -> Flame {
    let mut flame = Flame::default();
    stacks.iter().for_each(|(stack, samples)| flame.add(stack.iter().rev().map(String::as_str), *samples));
    flame
}

fn as_text(title: &str, stacks: &Named, profile: &Profile, top: usize) -> String {
    let all: u64 = stacks.iter().map(|(_, samples)| samples).sum();
    if all == 0 {
        return format!("{title}: nothing\n\n");
    }
    let second = profile.seconds / profile.rounds.max(1) as f64;
    let mut table = Table::new(&["share", "time", &format!("<{title}, innermost function first")]);
    for (stack, samples) in stacks.iter().take(top) {
        let time = format!("{:.2} s", *samples as f64 * second);
        table.row([share(*samples, all), time, shorten(&stack.join(" < "), 100)]);
    }
    format!("{}\n", table.render())
}

fn as_json(profile: &Profile, running: &Named, waiting: &Named) -> Value {
    let list = |stacks: &Named| -> Vec<Value> {
        stacks.iter().map(|(stack, samples)| json!({ "stack": stack, "samples": samples })).collect()
    };
    json!({
        "seconds": profile.seconds,
        "rounds": profile.rounds,
        "threads": profile.threads,
        "missed": profile.missed,
        "stopped_share_of_running_time": profile.slowed(),
        "stop_ns_p50": profile.stop_ns_p50(),
        "own_cpu_seconds": profile.own_cpu_seconds,
        "running": list(running),
        "waiting": list(waiting),
    })
}
