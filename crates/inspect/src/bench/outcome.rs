//! What came of one measurement, and how is it kept? A line of JSON each, so that an interrupted plan loses at most one.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::drive::Latencies;
use crate::InspectError;

/// Latencies in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Percentiles {
    /// Arithmetic mean.
    pub mean: f64,
    /// Half of the transactions took at most this.
    pub p50: f64,
    /// 95 of a hundred.
    pub p95: f64,
    /// 99 of a hundred.
    pub p99: f64,
    /// 999 of a thousand.
    pub p999: f64,
    /// The slowest.
    pub max: f64,
}

impl Percentiles {
    /// Of latencies in nanoseconds.
    pub fn of(latencies: &Latencies) -> Percentiles {
        let at = |quantile: f64| latencies.value_at_quantile(quantile) as f64 / 1e3;
        Percentiles {
            mean: latencies.mean() / 1e3,
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: latencies.max() as f64 / 1e3,
        }
    }
}

/// How long the threads waited for what.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Waits {
    /// How that is known.
    pub how: String,
    /// By event: seconds of wait in the measured time, per client thread; the longest first.
    pub seconds_per_thread: Vec<(String, f64)>,
}

/// One measurement's results.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Names the measurement: [`super::plan::Plan::key`].
    pub key: String,
    /// The server's name.
    pub server: String,
    /// Nodes, as the plan writes them.
    pub shape: String,
    /// Nodes in use; 0: not known.
    pub nodes: u64,
    /// Kind of transactions.
    pub workload: String,
    /// Which rows they want.
    pub keys: String,
    /// Client threads.
    pub threads: u64,
    /// When transactions begin.
    pub arrivals: String,
    /// Counted from 1.
    pub round: u64,
    /// When it ended, in seconds since 1970.
    pub unix_seconds: u64,
    /// Transactions a second.
    pub rate: f64,
    /// Transactions.
    pub transactions: u64,
    /// Transactions tried again.
    pub retries: u64,
    /// Transactions due and not begun.
    pub unserved: u64,
    /// Latencies.
    pub latency_us: Percentiles,
    /// Transactions by second.
    pub by_second: Vec<u64>,
    /// CPU seconds that the server used, if known.
    pub server_cpu_seconds: Option<f64>,
    /// Share of the clients' CPUs that this program used.
    pub client_cpu_share: f64,
    /// Waits.
    pub waits: Waits,
    /// Where the server ran and where its memory was, for the record.
    pub placement: Value,
    /// The server's own words about durability and memory.
    pub settings: Value,
    /// Why there are no results.
    pub error: Option<String>,
}

impl Outcome {
    /// As JSON.
    pub fn to_json(&self) -> Value {
        let waits: Map<String, Value> =
            self.waits.seconds_per_thread.iter().map(|(event, seconds)| (event.clone(), json!(seconds))).collect();
        let l = &self.latency_us;
        json!({
            "key": self.key, "server": self.server, "shape": self.shape, "nodes": self.nodes, "workload": self.workload,
            "keys": self.keys, "threads": self.threads, "arrivals": self.arrivals, "round": self.round,
            "unix_seconds": self.unix_seconds, "transactions_per_second": self.rate, "transactions": self.transactions,
            "retries": self.retries, "unserved": self.unserved,
            "latency_us": { "mean": l.mean, "p50": l.p50, "p95": l.p95, "p99": l.p99, "p999": l.p999, "max": l.max },
            "transactions_by_second": self.by_second, "server_cpu_seconds": self.server_cpu_seconds,
            "client_cpu_share": self.client_cpu_share, "waits_how": self.waits.how,
            "wait_seconds_per_thread": waits, "placement": self.placement, "settings": self.settings, "error": self.error,
        })
    }

    /// Out of JSON; `None` if a part is missing.
    pub fn of_json(value: &Value) -> Option<Outcome> {
        let text = |name: &str| Some(value.get(name)?.as_str()?.to_owned());
        let count = |name: &str| value.get(name)?.as_u64();
        let latency = |name: &str| value.get("latency_us")?.get(name)?.as_f64();
        let waits = value.get("wait_seconds_per_thread")?.as_object()?.iter();
        let mut waits: Vec<(String, f64)> =
            waits.map(|(event, seconds)| Some((event.clone(), seconds.as_f64()?))).collect::<Option<_>>()?;
        waits.sort_by(|one, other| other.1.total_cmp(&one.1));
        Some(Outcome {
            key: text("key")?,
            server: text("server")?,
            shape: text("shape")?,
            nodes: count("nodes")?,
            workload: text("workload")?,
            keys: text("keys")?,
            threads: count("threads")?,
            arrivals: text("arrivals")?,
            round: count("round")?,
            unix_seconds: count("unix_seconds")?,
            rate: value.get("transactions_per_second")?.as_f64()?,
            transactions: count("transactions")?,
            retries: count("retries")?,
            unserved: count("unserved")?,
            latency_us: Percentiles {
                mean: latency("mean")?,
                p50: latency("p50")?,
                p95: latency("p95")?,
                p99: latency("p99")?,
                p999: latency("p999")?,
                max: latency("max")?,
            },
            by_second: value
                .get("transactions_by_second")?
                .as_array()?
                .iter()
                .map(Value::as_u64)
                .collect::<Option<_>>()?,
            server_cpu_seconds: value.get("server_cpu_seconds")?.as_f64(),
            client_cpu_share: value.get("client_cpu_share")?.as_f64()?,
            waits: Waits { how: text("waits_how")?, seconds_per_thread: waits },
            placement: value.get("placement")?.clone(),
            settings: value.get("settings")?.clone(),
            error: value.get("error")?.as_str().map(str::to_owned),
        })
    }
}

/// Adds a result to the file, on the disk when this returns.
///
/// # Errors
/// [`InspectError::Io`].
pub fn append(file: &Path, outcome: &Outcome) -> Result<(), InspectError> {
    let opened = OpenOptions::new().create(true).append(true).open(file);
    let written = opened.and_then(|mut out| {
        writeln!(out, "{}", outcome.to_json())?;
        out.sync_data()
    });
    written.map_err(|error| InspectError::io(file, error))
}

/// As [`read`], for going on: a last line that was cut off is cut away, so that the next result does not follow it.
///
/// # Errors
/// As [`read`].
pub fn resume(file: &Path) -> Result<Vec<Outcome>, InspectError> {
    let outcomes = read(file)?;
    if let Ok(bytes) = fs::read(file) {
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end as u64 + 1);
        let cut = OpenOptions::new().write(true).open(file).and_then(|file| file.set_len(whole));
        cut.map_err(|error| InspectError::io(file, error))?;
    }
    Ok(outcomes)
}

/// Reads all results of a file; none if there is no file. A last line that was cut off is left out.
///
/// # Errors
/// [`InspectError::Io`], and [`InspectError::Format`] for a line in another form.
pub fn read(file: &Path) -> Result<Vec<Outcome>, InspectError> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(InspectError::io(file, error)),
    };
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines = whole.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let outcomes = lines.map(|(index, line)| {
        let value: Option<Value> = serde_json::from_str(line).ok();
        let outcome = value.as_ref().and_then(Outcome::of_json);
        outcome.ok_or_else(|| InspectError::format(file, index + 1, "it is no result of a measurement", line))
    });
    outcomes.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn outcome() -> Outcome {
        let mut latencies = Latencies::new(3).unwrap();
        (1..=1000u64).for_each(|us| latencies.record(us * 1000).unwrap());
        Outcome {
            key: "round=1".to_owned(),
            rate: 1234.5,
            by_second: vec![3, 4],
            latency_us: Percentiles::of(&latencies),
            waits: Waits {
                how: "sampled".to_owned(),
                seconds_per_thread: vec![("b".to_owned(), 2.0), ("a".to_owned(), 1.0)],
            },
            ..Outcome::default()
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let outcome = outcome();
        assert!((outcome.latency_us.p99 - 990.0).abs() < 2.0, "{:?}", outcome.latency_us);
        let file = std::env::temp_dir().join(format!("homenode-outcome-{}", std::process::id()));
        let _ = fs::remove_file(&file);
        assert_eq!(read(&file).unwrap(), []);
        append(&file, &outcome).unwrap();
        append(&file, &outcome).unwrap();
        // The third was cut off by a crash.
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, format!("{text}{{\"key\"")).unwrap();
        assert_eq!(resume(&file).unwrap(), [outcome.clone(), outcome.clone()]);
        append(&file, &outcome).unwrap();
        assert_eq!(read(&file).unwrap().len(), 3);
        fs::write(&file, "{}\n").unwrap();
        assert!(matches!(read(&file), Err(InspectError::Format { line: 1, .. })));
        fs::remove_file(&file).unwrap();
    }

    proptest! {
        #[test]
        fn any_damage_is_safe(at: prop::sample::Index, byte in 32u8..127) {
            let mut text = outcome().to_json().to_string().into_bytes();
            let at = at.index(text.len());
            text[at] = byte;
            if let Ok(value) = serde_json::from_slice::<Value>(&text) {
                let _ = Outcome::of_json(&value);
            }
        }
    }
}
