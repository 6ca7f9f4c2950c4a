//! What was asked for? The program's arguments.

/// What `--help` prints.
pub const HELP: &str = "\
Homenode on a simulated machine: schedules and crashes explored, and time on machines with many nodes.

Usage: cargo lab <COMMAND> [OPTIONS]

Commands:
  list                 Name the scenarios, machines and workloads
  schedules            Run scenarios under many seeds
  run                  Run a workload on a machine
  reproduce [NAME]     Look for the documents' findings; writes report.html and report.json
  c2c                  Run it and show the cache lines that move between cores

Options of schedules:
  --scenario <NAME>    Only scenarios whose name contains NAME
  --seeds <N>          How many seeds each [default: 200]
  --from <SEED>        The first seed [default: 0]
  --seed <SEED>        This one seed only, twice, and compare the traces
  --jobs <N>           Processes at once [default: 1]
  --plant              Turn on the scenario's planted bug; finding it is success
  --json               One JSON object a line

Options of run and c2c:
  --machine <NAME>     A machine or a machine file [default: xeon-4s]
  --workload <NAME>    A workload [default: hot-root]
  --design <NAME>      homenode or one of the workload's old designs [default: the workload's first]
  --nodes <N>          Nodes used; several separated by commas [default: all]
  --cores <N>          Cores used of each node [default: all]
  --sessions <N>       Sessions [default: the workload's]
  --for <TIME>         Simulated time measured: 500us, 20ms, 1s [default: the workload's]
  --warm <TIME>        Simulated time before that [default: the workload's]
  --seed <SEED>        The seed [default: 1]
  --policy <NAME>      Which rows updates choose: uniform or zipfian [default: uniform]
  --far-memory         Add the machine's node of slow memory
  --free <NAME>        What if this cost nothing: threads, a struct or struct.field; again for more
  --part <FIELD>       What if this struct.field had a line for itself; again for more
  --json               One JSON object a run
  --top <N>            c2c: lines in the table [default: 20]
  --pages <N>          c2c: lines shown in detail [default: 3]
  --no-rerun           c2c: don't run again with fields parted, for each of those lines that has some to part

Options of reproduce:
  --quick              Short runs, two seeds: within three minutes
  --jobs <N>           Runs at once [default: 2]
  --out <FOLDER>       Where the report goes [default: target/lab-report]

Exit status: 0 nothing wrong (with --plant: the bug was found), 1 otherwise, 2 wrong usage.

Example:
  cargo lab schedules --scenario latch --seeds 1000
  cargo lab run --workload hot-root --nodes 1,2,4
  cargo lab c2c --workload hot-root --nodes 4
  cargo lab reproduce hot-root --quick
";

/// The commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Print the help text.
    Help,
    /// Name the scenarios, machines and workloads.
    List,
    /// Explore.
    Schedules(Options),
    /// Run a workload.
    Run(RunOptions),
    /// Run a workload and show its lines.
    Lines(RunOptions),
    /// Look for the documents' findings.
    Reproduce(ReproduceOptions),
}

/// The options of `reproduce`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReproduceOptions {
    /// Part of the experiments' names; empty for all.
    pub name: String,
    /// Short runs and few seeds.
    pub quick: bool,
    /// Runs at once.
    pub jobs: usize,
    /// The folder that the report goes to.
    pub out: String,
}

/// The options of `run`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOptions {
    /// A machine's name or file.
    pub machine: String,
    /// A workload's name.
    pub workload: String,
    /// A design's name, empty for the workload's first.
    pub design: String,
    /// Numbers of nodes, one run each; 0 for all.
    pub nodes: Vec<usize>,
    /// Cores of each node, 0 for all.
    pub cores: usize,
    /// Sessions, 0 for the workload's number.
    pub sessions: usize,
    /// Simulated nanoseconds measured, 0 for the workload's.
    pub for_ns: u64,
    /// Simulated nanoseconds before that, 0 for the workload's.
    pub warm_ns: u64,
    /// The seed.
    pub seed: u64,
    /// Which rows updates choose; empty: uniform.
    pub policy: String,
    /// Add the far memory.
    pub far_memory: bool,
    /// What costs nothing.
    pub free: Vec<String>,
    /// What has a line for itself.
    pub parted: Vec<String>,
    /// Print JSON.
    pub json: bool,
    /// Lines in the table of lines.
    pub top: usize,
    /// Lines shown in detail.
    pub pages: usize,
    /// Run again with fields parted.
    pub rerun: bool,
}

impl Default for RunOptions {
    fn default() -> RunOptions {
        RunOptions {
            machine: "xeon-4s".to_owned(),
            workload: "hot-root".to_owned(),
            design: String::new(),
            nodes: vec![0],
            cores: 0,
            sessions: 0,
            for_ns: 0,
            warm_ns: 0,
            seed: 1,
            policy: String::new(),
            far_memory: false,
            free: Vec::new(),
            parted: Vec::new(),
            json: false,
            top: 20,
            pages: 3,
            rerun: true,
        }
    }
}

/// The options of `schedules`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Only scenarios whose name contains this.
    pub scenario: String,
    /// How many seeds.
    pub seeds: u64,
    /// The first seed.
    pub from: u64,
    /// Run each seed twice and compare.
    pub twice: bool,
    /// Processes at once.
    pub jobs: usize,
    /// Turn on planted bugs.
    pub plant: bool,
    /// Print JSON.
    pub json: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { scenario: String::new(), seeds: 200, from: 0, twice: false, jobs: 1, plant: false, json: false }
    }
}

/// Parses the arguments after the program's name.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn parse(args: &[String]) -> Result<Command, String> {
    match args.first().map(String::as_str) {
        None | Some("--help" | "-h" | "help") => Ok(Command::Help),
        Some("list") => Ok(Command::List),
        Some("schedules") => parse_options(&args[1..]),
        Some("reproduce") => parse_reproduce(&args[1..]).map(|it| it.map_or(Command::Help, Command::Reproduce)),
        Some("c2c") => parse_run(&args[1..]).map(|options| options.map_or(Command::Help, Command::Lines)),
        Some("run") => parse_run(&args[1..]).map(|options| options.map_or(Command::Help, Command::Run)),
        Some(other) => Err(format!("there is no command '{other}'")),
    }
}

fn parse_options(args: &[String]) -> Result<Command, String> {
    let mut options = Options::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--help" | "-h" => return Ok(Command::Help),
            "--scenario" => options.scenario = value()?.clone(),
            "--seeds" => options.seeds = number(arg, value()?)?,
            "--from" => options.from = number(arg, value()?)?,
            "--seed" => {
                options.from = number(arg, value()?)?;
                options.seeds = 1;
                options.twice = true;
            }
            "--jobs" => options.jobs = (number(arg, value()?)? as usize).clamp(1, 256),
            "--plant" => options.plant = true,
            "--json" => options.json = true,
            other => return Err(format!("there is no option '{other}'")),
        }
    }
    Ok(Command::Schedules(options))
}

/// `None`: help was asked for.
fn parse_run(args: &[String]) -> Result<Option<RunOptions>, String> {
    let mut options = RunOptions::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--help" | "-h" => return Ok(None),
            "--machine" => options.machine = value()?.clone(),
            "--workload" => options.workload = value()?.clone(),
            "--design" => options.design = value()?.clone(),
            "--nodes" => options.nodes = counts(arg, value()?)?,
            "--cores" => options.cores = count(arg, value()?)?,
            "--sessions" => options.sessions = count(arg, value()?)?,
            "--for" => options.for_ns = time(arg, value()?)?,
            "--warm" => options.warm_ns = time(arg, value()?)?,
            "--seed" => options.seed = number(arg, value()?)?,
            "--policy" => options.policy = policy(value()?)?,
            "--top" => options.top = count(arg, value()?)?,
            "--pages" => options.pages = number(arg, value()?)? as usize,
            "--far-memory" => options.far_memory = true,
            "--free" => options.free.push(value()?.clone()),
            "--part" => options.parted.push(value()?.clone()),
            "--no-rerun" => options.rerun = false,
            "--json" => options.json = true,
            other => return Err(format!("there is no option '{other}'")),
        }
    }
    Ok(Some(options))
}

/// `None`: help was asked for.
fn parse_reproduce(args: &[String]) -> Result<Option<ReproduceOptions>, String> {
    let mut options =
        ReproduceOptions { name: String::new(), quick: false, jobs: 2, out: "target/lab-report".to_owned() };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--help" | "-h" => return Ok(None),
            "--quick" => options.quick = true,
            "--jobs" => options.jobs = count(arg, value()?)?.min(256),
            "--out" => options.out = value()?.clone(),
            other if other.starts_with('-') => return Err(format!("there is no option '{other}'")),
            name if options.name.is_empty() => options.name = name.to_owned(),
            _ => return Err("reproduce takes one name".to_owned()),
        }
    }
    Ok(Some(options))
}

fn policy(text: &str) -> Result<String, String> {
    let known = ["uniform", "zipfian"];
    match known.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(format!("there is no policy '{text}'; known are {}", known.join(", "))),
    }
}

fn count(name: &str, text: &str) -> Result<usize, String> {
    match number(name, text)? {
        0 => Err(format!("{name} needs a number of at least 1")),
        n => usize::try_from(n).map_err(|_| format!("{name} {n} is too many")),
    }
}

fn counts(name: &str, text: &str) -> Result<Vec<usize>, String> {
    text.split(',').map(|part| count(name, part.trim())).collect()
}

/// A time with its unit, nanoseconds.
fn time(name: &str, text: &str) -> Result<u64, String> {
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(at);
    let scale = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(format!("{name} needs a time such as 500us, 20ms or 1s, not '{text}'")),
    };
    let value = number(name, digits)?;
    value.checked_mul(scale).filter(|ns| *ns > 0).ok_or_else(|| format!("{name} {text} is no sensible time"))
}

fn number(name: &str, text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("{name} needs a number, not '{text}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Command, String> {
        parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read() {
        let Ok(Command::Schedules(options)) = of("schedules --scenario latch --seed 0x10 --json") else {
            panic!("it is well formed");
        };
        assert_eq!((options.scenario.as_str(), options.from, options.seeds), ("latch", 16, 1));
        assert!(options.json && options.twice && !options.plant);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["dance", "schedules --seeds", "schedules --seeds many", "schedules --fast"] {
            assert!(of(text).is_err(), "{text}");
        }
        assert_eq!(of(""), Ok(Command::Help));
        assert!(of("run --policy foo").unwrap_err().contains("there is no policy 'foo'"));
        assert!(of("run --policy zipfian --workload update-index").is_ok());
        for text in ["run --nodes 0", "run --nodes 1,x", "run --for 5", "run --for 0ms", "run --for -1s", "run --cores"]
        {
            assert!(of(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_run_is_read() {
        let Ok(Command::Run(options)) = of("run --machine m --nodes 1,2,4 --for 20ms --seed 3") else {
            panic!("it is well formed");
        };
        assert_eq!((options.nodes, options.for_ns, options.seed), (vec![1, 2, 4], 20_000_000, 3));
    }
}
