//! The lab's program: explore schedules and crashes. Run it as `cargo lab`.

use homenode_lab::options::{Command, HELP, parse};
use std::process::ExitCode;

/// What cores of a simulated machine allocate lies apart, as with the arenas of a real allocator.
#[cfg(homenode_lab)]
#[global_allocator]
static HEAP: homenode_platform::lab::Heap = homenode_platform::lab::Heap::new();

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match parse(&args) {
        Ok(Command::Help) => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Ok(command) => run(&command),
        Err(error) => {
            eprintln!("{error}; see cargo lab --help");
            ExitCode::from(2)
        }
    }
}

#[cfg(homenode_lab)]
fn run(command: &Command) -> ExitCode {
    use homenode_lab::reproduce::reproduce;
    use homenode_lab::{
        explore::explore_all,
        run::{run_all, show_lines},
        scenarios::ALL,
    };
    let good = match command {
        Command::Schedules(options) => explore_all(ALL, options),
        Command::Run(options) => told(run_all(options)),
        Command::Lines(options) => told(show_lines(options)),
        Command::Reproduce(options) => told(reproduce(options)),
        Command::Help | Command::List => {
            for scenario in ALL {
                let planted = if scenario.has_planted_bug { " (has a planted bug)" } else { "" };
                println!("{:28} {}{planted}", scenario.name, scenario.claim);
            }
            homenode_lab::run::list();
            true
        }
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints an error as one line; true if there is none.
#[cfg(homenode_lab)]
fn told(result: Result<(), String>) -> bool {
    result.inspect_err(|error| eprintln!("{error}")).is_ok()
}

#[cfg(not(homenode_lab))]
fn run(_command: &Command) -> ExitCode {
    eprintln!("this program was built for a real machine; run it as 'cargo lab'");
    ExitCode::from(2)
}
