//! `homenode stat`: how does memory flow between nodes?

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use clap::Args;
use homenode_topology::Topology;
use serde_json::{Value, json};

use crate::InspectError;
use crate::stat::{NODE_COUNTERS, NodeMemory, Sample, prometheus, rates, sample};
use crate::text::{Table, size};
use crate::units;

#[derive(Debug, Args)]
#[command(after_help = "Example: homenode stat --every 2s\n\
    As a log: homenode stat --every 10s --json >> numa.log\n\
    For Prometheus: homenode stat --listen 127.0.0.1:9433, then scrape http://127.0.0.1:9433/metrics\n\n\
    hit: pages that came from the node asked for; miss: from here instead of the full node asked for; foreign: asked for here,\n\
    came from elsewhere; local, other: asked for by a CPU of this node, of another one. All in pages a second.")]
pub struct Options {
    /// Time between samples
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::parse_time)]
    every: Duration,
    /// End after this many samples (default: go on until stopped; 1 without a terminal)
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Answer Prometheus at this address instead of printing
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// Print JSON, one line a sample
    #[arg(long)]
    json: bool,
}

pub(super) fn run(options: &Options) -> Result<(), InspectError> {
    let nodes: Vec<usize> = Topology::discover().nodes().iter().map(|node| node.id).collect();
    if let Some(address) = &options.listen {
        return serve(address, &nodes);
    }
    let terminal = std::io::stdout().is_terminal();
    let count = options.count.unwrap_or(if terminal || options.json { u64::MAX } else { 1 });
    let mut before = sample(&nodes)?;
    for _ in 0..count {
        std::thread::sleep(options.every);
        let now = sample(&nodes)?;
        if options.json {
            println!("{}", as_json(&before, &now));
        } else {
            // A terminal shows the newest sample in place.
            let clear = if terminal && count > 1 { "\x1b[H\x1b[2J" } else { "" };
            println!("{clear}{}", as_text(&before, &now));
        }
        before = now;
    }
    Ok(())
}

fn as_text(before: &Sample, now: &Sample) -> String {
    let seconds = (now.at - before.at).as_secs_f64();
    let mut flow = Table::new(&["<pages a second", "hit", "miss", "foreign", "interleave", "local", "other"]);
    for (node, counters) in &now.nodes {
        let rates = before.nodes.get(node).map(|before| rates(before, counters, seconds)).unwrap_or_default();
        let cells =
            NODE_COUNTERS.iter().map(|name| rates.get(*name).map_or("?".to_owned(), |rate| format!("{rate:.0}")));
        flow.row(std::iter::once(format!("node {node}")).chain(cells));
    }
    let mut memory =
        Table::new(&["<memory", "total", "free", "page cache", "shared", "private", "huge (made)", "huge (reserved)"]);
    for (node, fields) in &now.memory {
        let m = NodeMemory::of(fields);
        memory.row([
            format!("node {node}"),
            size(m.total),
            size(m.free),
            size(m.page_cache),
            size(m.shared),
            size(m.private),
            size(m.transparent_huge),
            format!("{} of {} free", m.huge_pages.1, m.huge_pages.0),
        ]);
    }
    let moving = rates(&before.machine, &now.machine, seconds);
    let rate = |name: &str| moving.get(name).map_or("?".to_owned(), |rate| format!("{rate:.0}"));
    format!(
        "{}\n{}\nmigrated {} pages a second, failed {}; by balancing {} (hint faults {}, local {}); demoted {}, promoted {}\n",
        flow.render(),
        memory.render(),
        rate("pgmigrate_success"),
        rate("pgmigrate_fail"),
        rate("numa_pages_migrated"),
        rate("numa_hint_faults"),
        rate("numa_hint_faults_local"),
        rate("pgdemote_kswapd"),
        rate("pgpromote_success"),
    )
}

fn as_json(before: &Sample, now: &Sample) -> Value {
    let seconds = (now.at - before.at).as_secs_f64();
    let nodes: BTreeMap<String, Value> = now
        .nodes
        .iter()
        .map(|(node, counters)| {
            let rates = before.nodes.get(node).map(|before| rates(before, counters, seconds)).unwrap_or_default();
            let memory = now.memory.get(node).map(NodeMemory::of).unwrap_or_default();
            let value = json!({
                "pages_per_second": rates,
                "total_bytes": memory.total,
                "free_bytes": memory.free,
                "page_cache_bytes": memory.page_cache,
                "shared_bytes": memory.shared,
                "private_bytes": memory.private,
                "transparent_huge_bytes": memory.transparent_huge,
                "huge_pages": memory.huge_pages.0,
                "huge_pages_free": memory.huge_pages.1,
            });
            (node.to_string(), value)
        })
        .collect();
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    json!({
        "unix_seconds": since.as_secs_f64(),
        "seconds": seconds,
        "nodes": nodes,
        "machine_per_second": rates(&before.machine, &now.machine, seconds),
    })
}

/// Answers requests for `/metrics`, one connection at a time: a scraper asks a few times a minute.
fn serve(address: &str, nodes: &[usize]) -> Result<(), InspectError> {
    let listener = TcpListener::bind(address)
        .map_err(|error| InspectError::Refused(format!("listening at {address}: {error}")))?;
    let bound = listener.local_addr().map_or_else(|_| address.to_owned(), |bound| bound.to_string());
    println!("listening at http://{bound}/metrics");
    for stream in listener.incoming().flatten() {
        // A client that goes away in the middle is no reason to stop.
        let _ = answer(stream, nodes);
    }
    Ok(())
}

fn answer(mut stream: TcpStream, nodes: &[usize]) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    let mut request = String::new();
    let mut reader = BufReader::new((&stream).take(8192));
    reader.read_line(&mut request)?;
    // The headers are read so that closing doesn't reset the connection.
    let mut header = String::new();
    while reader.read_line(&mut header)? > 2 {
        header.clear();
    }
    let (status, body) = if !request.starts_with("GET /metrics") {
        ("404 Not Found", "only /metrics is here\n".to_owned())
    } else {
        match sample(nodes) {
            Ok(sample) => ("200 OK", prometheus(&sample)),
            Err(error) => ("500 Internal Server Error", format!("{error}\n")),
        }
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(request: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || answer(listener.accept().unwrap().0, &[0]));
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        let mut reply = String::new();
        client.read_to_string(&mut reply).unwrap();
        server.join().unwrap().unwrap();
        reply
    }

    #[test]
    fn a_scraper_is_answered_and_other_paths_are_not() {
        let reply = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(reply.starts_with("HTTP/1.1 200 OK\r\n") || reply.starts_with("HTTP/1.1 500"), "{reply}");
        assert!(
            !reply.starts_with("HTTP/1.1 200") || reply.contains("homenode_node_free_bytes{node=\"0\"}"),
            "{reply}"
        );
        assert!(ask("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(ask("nonsense\r\n\r\n").starts_with("HTTP/1.1 404"));
    }
}
