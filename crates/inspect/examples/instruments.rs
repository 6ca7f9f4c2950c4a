//! The instruments without the server: a smaller binary, quicker to build. `cargo run --example instruments -- topology`

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    command: homenode_inspect::command::Command,
}

fn main() -> ExitCode {
    match homenode_inspect::command::run(&Options::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("homenode: {error}");
            ExitCode::FAILURE
        }
    }
}
