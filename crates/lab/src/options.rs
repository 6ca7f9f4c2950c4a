//! What was asked for? The program's arguments.

/// What `--help` prints.
pub const HELP: &str = "\
Explore schedules and crashes of Homenode on a simulated machine.

Usage: cargo lab <COMMAND> [OPTIONS]

Commands:
  list                 Name the scenarios and what they check
  schedules            Run scenarios under many seeds

Options of schedules:
  --scenario <NAME>    Only scenarios whose name contains NAME
  --seeds <N>          How many seeds each [default: 200]
  --from <SEED>        The first seed [default: 0]
  --seed <SEED>        This one seed only, twice, and compare the traces
  --jobs <N>           Processes at once [default: 1]
  --plant              Turn on the scenario's planted bug; finding it is success
  --json               One JSON object a line

Exit status: 0 nothing wrong (with --plant: the bug was found), 1 otherwise, 2 wrong usage.

Example:
  cargo lab schedules --scenario latch --seeds 1000
";

/// The commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Print the help text.
    Help,
    /// Name the scenarios.
    List,
    /// Explore.
    Schedules(Options),
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
    }
}
