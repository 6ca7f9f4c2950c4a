//! What does the server tell its administrator? Structured lines on standard error; never the values of statements.

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Format {
    /// Lines for people
    Text,
    /// One JSON object a line
    Json,
}

/// Starts logging at `level` (or as a filter such as `info,homenode_server=debug` says).
pub(crate) fn start(format: Format, level: &str) -> Result<(), String> {
    let filter = EnvFilter::builder().parse(level).map_err(|error| format!("--log-level {level}: {error}"))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    match format {
        Format::Text => builder.with_ansi(terminal).try_init(),
        Format::Json => builder.json().flatten_event(true).try_init(),
    }
    .map_err(|error| format!("logging cannot start: {error}"))
}
