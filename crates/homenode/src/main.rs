//! The one binary: what a person types.

mod cli;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

/// So that `homenode.memory_contexts` knows what plans weigh.
#[global_allocator]
static ALLOCATOR: homenode_memory::Metered = homenode_memory::Metered;

/// A relational database for machines whose memory is not uniform.
///
/// Example: homenode serve --data ./homenode-data, then psql -h 127.0.0.1 -p 5433 -d postgres
#[derive(Parser)]
#[command(name = "homenode", version, arg_required_else_help = true)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(cli::serve::Options),
    #[command(flatten)]
    Inspect(homenode_inspect::command::Command),
}

fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) => return usage(&error),
    };
    let done = match options.command {
        Command::Serve(options) => cli::serve::run(&options),
        Command::Inspect(command) => homenode_inspect::command::run(&command).map_err(|error| error.to_string()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("homenode: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Exit status 2 and, for a value that can't be, one line: it says all there is to say.
fn usage(error: &clap::Error) -> ExitCode {
    if error.kind() == ErrorKind::ValueValidation {
        let text = error.to_string();
        eprintln!("homenode: {}", text.lines().next().unwrap_or_default().trim_start_matches("error: "));
        return ExitCode::from(2);
    }
    // Nothing is to be done about a closed standard output.
    let _ = error.print();
    ExitCode::from(error.exit_code() as u8)
}
