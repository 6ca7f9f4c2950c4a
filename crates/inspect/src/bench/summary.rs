//! What do the rounds of one measurement say together? Medians, with the least and the most.

use super::outcome::Outcome;

/// A median and what it is the median of.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Middle {
    /// The median.
    pub median: f64,
    /// The least.
    pub low: f64,
    /// The most.
    pub high: f64,
}

impl Middle {
    /// Of some values; `None` without any.
    pub fn of(values: impl Iterator<Item = f64>) -> Option<Middle> {
        let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Some(Middle { median, low, high })
    }

    /// Difference of most and least as a share of the median.
    pub fn spread(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.high - self.low) / self.median }
    }
}

/// One measurement over all its rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The server's name.
    pub server: String,
    /// Nodes, as the plan writes them.
    pub shape: String,
    /// Nodes in use.
    pub nodes: u64,
    /// Kind of transactions.
    pub workload: String,
    /// Which rows they want.
    pub keys: String,
    /// Client threads.
    pub threads: u64,
    /// When transactions begin.
    pub arrivals: String,
    /// Rounds that succeeded.
    pub rounds: usize,
    /// Transactions a second.
    pub rate: Middle,
    /// Latencies in microseconds: p50, p95, p99, p99.9, the slowest; medians over the rounds (the slowest: of all rounds).
    pub latency_us: [f64; 5],
    /// Transactions due and not begun, in all rounds.
    pub unserved: u64,
    /// Transactions tried again, in all rounds.
    pub retries: u64,
    /// Share of the clients' CPUs in use.
    pub client_cpu_share: f64,
    /// CPU microseconds of the server per transaction, if known.
    pub server_cpu_us: Option<f64>,
    /// Seconds waited per thread, by event: means over the rounds.
    pub waits: Vec<(String, f64)>,
}

/// Names of the latencies in [`Summary::latency_us`].
pub const PERCENTILES: [&str; 5] = ["p50", "p95", "p99", "p99.9", "max"];

/// Beyond this share of their CPUs the clients were the limit, not the server.
pub const CLIENT_LIMIT: f64 = 0.95;

/// Sums up results, in the order of their first appearance; failed ones are left out.
pub fn summarize(outcomes: &[Outcome]) -> Vec<Summary> {
    let mut groups: Vec<Vec<&Outcome>> = Vec::new();
    for outcome in outcomes.iter().filter(|outcome| outcome.error.is_none()) {
        match groups.iter_mut().find(|group| same(group[0], outcome)) {
            Some(group) => group.push(outcome),
            None => groups.push(vec![outcome]),
        }
    }
    groups.iter().filter_map(|group| summary(group)).collect()
}

fn same(one: &Outcome, other: &Outcome) -> bool {
    let key = |o: &Outcome| {
        (o.server.clone(), o.shape.clone(), o.workload.clone(), o.keys.clone(), o.threads, o.arrivals.clone())
    };
    key(one) == key(other)
}

fn summary(group: &[&Outcome]) -> Option<Summary> {
    let first = group[0];
    let median = |value: fn(&Outcome) -> f64| Middle::of(group.iter().map(|o| value(o))).map(|middle| middle.median);
    let max = Middle::of(group.iter().map(|o| o.latency_us.max))?.high;
    let mut waits: Vec<(String, f64)> = Vec::new();
    for (event, seconds) in group.iter().flat_map(|o| &o.waits.seconds_per_thread) {
        let part = seconds / group.len() as f64;
        match waits.iter_mut().find(|(known, _)| known == event) {
            Some((_, sum)) => *sum += part,
            None => waits.push((event.clone(), part)),
        }
    }
    waits.sort_by(|one, other| other.1.total_cmp(&one.1));
    let cpu = group.iter().filter(|o| o.transactions > 0);
    let cpu = cpu.filter_map(|o| Some(o.server_cpu_seconds? * 1e6 / o.transactions as f64));
    Some(Summary {
        server: first.server.clone(),
        shape: first.shape.clone(),
        nodes: first.nodes,
        workload: first.workload.clone(),
        keys: first.keys.clone(),
        threads: first.threads,
        arrivals: first.arrivals.clone(),
        rounds: group.len(),
        rate: Middle::of(group.iter().map(|o| o.rate))?,
        latency_us: [
            median(|o| o.latency_us.p50)?,
            median(|o| o.latency_us.p95)?,
            median(|o| o.latency_us.p99)?,
            median(|o| o.latency_us.p999)?,
            max,
        ],
        unserved: group.iter().map(|o| o.unserved).sum(),
        retries: group.iter().map(|o| o.retries).sum(),
        client_cpu_share: median(|o| o.client_cpu_share)?,
        server_cpu_us: Middle::of(cpu).map(|middle| middle.median),
        waits,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_become_a_median_with_its_range() {
        let round = |rate: f64, error: Option<&str>| Outcome {
            server: "homenode".to_owned(),
            rate,
            transactions: 100,
            server_cpu_seconds: Some(0.01),
            error: error.map(str::to_owned),
            waits: super::super::outcome::Waits {
                how: String::new(),
                seconds_per_thread: vec![("Lock:row".to_owned(), rate)],
            },
            ..Outcome::default()
        };
        let other = Outcome { threads: 8, ..round(7.0, None) };
        let summaries =
            summarize(&[round(10.0, None), round(30.0, None), round(20.0, None), round(99.0, Some("no")), other]);
        assert_eq!(summaries.len(), 2);
        assert_eq!(summaries[0].rate, Middle { median: 20.0, low: 10.0, high: 30.0 });
        assert_eq!((summaries[0].rounds, summaries[0].rate.spread()), (3, 1.0));
        assert_eq!(summaries[0].waits, [("Lock:row".to_owned(), 20.0)]);
        assert_eq!(summaries[0].server_cpu_us, Some(100.0));
    }
}
