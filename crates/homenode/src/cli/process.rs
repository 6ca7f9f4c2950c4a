//! When does the process end? Signals, and panics that must not be survived.

use std::io;
use std::panic::{self, PanicHookInfo};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// The crates whose invariants hold the data together. A panic in one of them leaves latches held and pages half
/// changed: the process stops, and recovery starts from what the log says.
const ENGINE_CRATES: [&str; 8] = ["platform", "memory", "latch", "pool", "log", "tree", "txn", "engine"];

/// Calls `stop` at the first SIGTERM or SIGINT. The second one ends the process at once, as a crash would.
pub(crate) fn on_signals(stop: impl Fn() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut stopping = false;
        for _ in signals.forever() {
            if stopping {
                tracing::warn!("second signal: ending at once; the next start recovers");
                std::process::exit(1);
            }
            stopping = true;
            tracing::info!("stopping");
            stop();
        }
    })?;
    Ok(())
}

/// Reports panics as log lines. One in a session's own code ends that session (the server sees to it); one in the engine
/// ends the process.
pub(crate) fn report_panics() {
    panic::set_hook(Box::new(|info| {
        let place = info.location().map(|location| (location.file(), location.line()));
        let (file, line) = place.unwrap_or(("unknown", 0));
        if is_engine(file) {
            tracing::error!(
                file,
                line,
                message = message(info),
                "an invariant of the engine is broken; the process ends"
            );
            std::process::abort();
        }
        // The message could quote a value, so it isn't for the log at large.
        tracing::error!(file, line, "panic in a session");
        tracing::debug!(file, line, message = message(info), "panic in a session");
    }));
}

fn message<'a>(info: &'a PanicHookInfo<'_>) -> &'a str {
    let payload = info.payload();
    match payload.downcast_ref::<&str>() {
        Some(text) => text,
        None => payload.downcast_ref::<String>().map_or("", String::as_str),
    }
}

/// Whether a source file belongs to the engine, in this repository or from a registry.
fn is_engine(file: &str) -> bool {
    ENGINE_CRATES
        .iter()
        .any(|name| file.contains(&format!("crates/{name}/src/")) || file.contains(&format!("homenode-{name}-")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_are_told_apart_by_their_place() {
        assert!(is_engine("crates/pool/src/guard.rs"));
        assert!(is_engine("/registry/src/homenode-tree-0.1.0/src/leaf.rs"));
        assert!(!is_engine("crates/sql/src/planner.rs"));
        assert!(!is_engine("crates/server/src/session.rs"));
    }
}
