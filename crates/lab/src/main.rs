//! The lab's program: explore schedules and crashes. Run it as `cargo lab`.

use homenode_lab::options::{Command, HELP, parse};
use std::process::ExitCode;

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
    use homenode_lab::{explore::explore_all, scenarios::ALL};
    let good = match command {
        Command::Schedules(options) => explore_all(ALL, options),
        _ => {
            for scenario in ALL {
                let planted = if scenario.has_planted_bug { " (has a planted bug)" } else { "" };
                println!("{:28} {}{planted}", scenario.name, scenario.claim);
            }
            true
        }
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(not(homenode_lab))]
fn run(_command: &Command) -> ExitCode {
    eprintln!("this program was built for a real machine; run it as 'cargo lab'");
    ExitCode::from(2)
}
