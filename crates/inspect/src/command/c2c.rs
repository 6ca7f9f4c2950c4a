//! `homenode c2c`: which cache lines are fought over?

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;
use homenode_topology::Topology;
use serde_json::json;

use crate::InspectError;
use crate::c2c::{self, Found, Line, Place, perf};
use crate::text::share;
use crate::units;

#[derive(Debug, Args)]
#[command(after_help = "Example: homenode c2c --for 5s (as root, on a machine with the counters)\n\
    Recorded elsewhere: perf c2c record -a -- sleep 5; perf script -F \
comm,pid,tid,cpu,time,event,ip,sym,symoff,dso,addr,phys_addr,data_src,weight > c2c.txt; homenode c2c --from c2c.txt\n\
    On a machine without counters: cargo lab has a simulated one.")]
pub struct Options {
    /// Read the text of `perf script` instead of recording
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// The machine that it was recorded on (homenode topology --save), to tell CPUs' nodes
    #[arg(long, value_name = "DIR", requires = "from")]
    machine: Option<PathBuf>,
    /// How long to record
    #[arg(long = "for", value_name = "TIME", default_value = "5s", value_parser = units::parse_time)]
    duration: Duration,
    /// Lines in the table
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// Show the pages of the first lines
    #[arg(long, value_name = "N", default_value_t = 2)]
    pages: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(options: &Options) -> Result<(), InspectError> {
    let (mut accesses, topology) = match &options.from {
        Some(file) => {
            let input = File::open(file).map_err(|error| InspectError::io(file, error))?;
            let topology = options.machine.as_deref().map(Topology::from_dir).transpose()?;
            (perf::read(BufReader::new(input), file)?, topology)
        }
        None => (record(options.duration)?, Some(Topology::discover())),
    };
    c2c::name_fields(&mut accesses);
    let lines = c2c::lines(&accesses);
    let view = c2c::View::cycles(topology.as_ref());
    if options.json {
        println!("{:#}", as_json(&lines, options.top, &view));
        return Ok(());
    }
    print!("{}", c2c::table(&lines, options.top, &view));
    for line in lines.iter().filter(|line| line.counts.modified() > 0).take(options.pages) {
        print!("\n{}", c2c::line_page(line, &view));
    }
    Ok(())
}

/// Records with perf what this processor has events for.
fn record(duration: Duration) -> Result<Vec<c2c::Access>, InspectError> {
    let has = |path: &str| Path::new("/sys/bus/event_source/devices").join(path).exists();
    if !has("cpu/events/mem-loads") && !has("ibs_op") && !has("arm_spe_0") && !has("cpu_core/events/mem-loads") {
        return Err(InspectError::Refused(
            "this machine has no counters for memory accesses (Intel mem-loads, AMD ibs_op, Arm SPE; virtual machines rarely \
             have them): record elsewhere and use --from FILE, or see the simulated machine: cargo lab"
                .to_owned(),
        ));
    }
    let folder = std::env::temp_dir().join(format!("homenode-c2c-{}", std::process::id()));
    std::fs::create_dir(&folder).map_err(|error| InspectError::io(&folder, error))?;
    let accesses = record_in(&folder, duration);
    // Whatever became of it, the recording is not left behind; it can be large.
    let _ = std::fs::remove_dir_all(&folder);
    accesses
}

fn record_in(folder: &Path, duration: Duration) -> Result<Vec<c2c::Access>, InspectError> {
    let data = folder.join("perf.data");
    let text = folder.join("text");
    let seconds = format!("{:.3}", duration.as_secs_f64());
    // `perf c2c record` knows the events of each processor, and which of them need a companion event.
    let recorded = perf_command(&["c2c", "record", "-a", "-g", "-o"], &data, &["--", "sleep", &seconds], None)?;
    let output = File::create(&text).map_err(|error| InspectError::io(&text, error))?;
    if recorded {
        perf_command(&["script", "-F", perf::FIELDS, "-i"], &data, &[], Some(output))?;
    }
    let input = File::open(&text).map_err(|error| InspectError::io(&text, error))?;
    perf::read(BufReader::new(input), &text)
}

fn perf_command(before: &[&str], data: &Path, after: &[&str], output: Option<File>) -> Result<bool, InspectError> {
    let mut command = Command::new("perf");
    command.args(before).arg(data).args(after);
    if let Some(output) = output {
        command.stdout(output);
    }
    let status =
        command.status().map_err(|error| InspectError::Refused(format!("perf is needed to record: {error}")))?;
    if status.success() {
        return Ok(true);
    }
    Err(InspectError::NotPermitted {
        what: "recording with perf".to_owned(),
        needs: "root, CAP_PERFMON, or kernel.perf_event_paranoid = -1 (perf says more above)",
    })
}

fn as_json(lines: &[Line], top: usize, view: &c2c::View<'_>) -> serde_json::Value {
    let modified: u64 = lines.iter().map(|line| line.counts.modified()).sum();
    let rows = lines.iter().take(top).map(|line| {
        let places = line.places.iter().map(|((offset, instruction), place)| {
            json!({
                "offset": offset,
                "instruction": instruction,
                "function": place.function,
                "field": place.field,
                "callers": callers(place),
                "cpus": place.cpus,
                "records": place.counts.records,
                "local_hitm": place.counts.found(Found::LocalModified),
                "remote_hitm": place.counts.found(Found::RemoteModified),
                "stores": place.counts.stores,
                "mean_latency_cycles": place.counts.mean_latency(),
            })
        });
        let part = c2c::to_part(line, view).map(|part| {
            json!({
                "read": part.read,
                "written": part.written,
                "saved_share": share(part.saved, part.of),
                "saved_cycles": part.saved_latency,
            })
        });
        json!({
            "address": line.address,
            "is_physical": line.is_physical,
            "virtual_address": line.virtual_address,
            "records": line.counts.records,
            "local_hitm": line.counts.found(Found::LocalModified),
            "remote_hitm": line.counts.found(Found::RemoteModified),
            "stores": line.counts.stores,
            "cpus": line.cpus,
            "commands": line.commands,
            "places": places.collect::<Vec<_>>(),
            "to_part": part,
        })
    });
    json!({ "hitm": modified, "lines": rows.collect::<Vec<_>>() })
}

/// Sampled call stacks, those seen most first.
fn callers(place: &Place) -> Vec<serde_json::Value> {
    let stacks = place.by_count();
    stacks.iter().map(|(stack, samples)| json!({ "stack": stack, "samples": samples })).collect()
}
