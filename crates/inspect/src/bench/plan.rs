//! What is to be measured, in which order? Every combination of server, nodes, workload, keys, threads and arrivals, round by round.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use homenode_topology::Topology;
use serde_json::{Value, json};

use super::drive::Arrivals;
use super::keys::Distribution;
use super::server::Kind;
use super::workload::{Size, Workload};
use crate::client::Address;

/// A server that takes part.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its kind.
    pub kind: Kind,
    /// Where it runs; `None`: it is installed and is to be started.
    pub address: Option<Address>,
    /// Its program, if not the installed one.
    pub program: Option<PathBuf>,
    /// Settings that it is started with.
    pub settings: Vec<(String, String)>,
}

/// Which nodes a server gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    /// The first so many nodes; for one, its memory is local.
    Nodes(usize),
    /// As many servers as nodes, each on one node with data of its own: the ceiling for one server on all of them.
    Separate(usize),
    /// Wherever it runs already.
    AsItIs,
}

impl Shape {
    /// Nodes in use; 0 if that is not for us to say.
    pub fn nodes(self) -> usize {
        match self {
            Shape::Nodes(nodes) | Shape::Separate(nodes) => nodes,
            Shape::AsItIs => 0,
        }
    }
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Shape, String> {
        let (number, shape) = match text.strip_prefix("separate=") {
            Some(number) => (number, Shape::Separate as fn(usize) -> Shape),
            None => (text, Shape::Nodes as fn(usize) -> Shape),
        };
        let nodes = number.parse().ok().filter(|nodes| (1..=1024).contains(nodes));
        nodes.map(shape).ok_or_else(|| "a number of nodes is wanted, or separate=N".to_owned())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shape::Nodes(nodes) => write!(out, "{nodes}"),
            Shape::Separate(nodes) => write!(out, "separate={nodes}"),
            Shape::AsItIs => out.write_str("as it is"),
        }
    }
}

/// Everything that is to be measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The servers.
    pub peers: Vec<Peer>,
    /// Kinds of transactions.
    pub workloads: Vec<Workload>,
    /// Which rows they want.
    pub distributions: Vec<Distribution>,
    /// Nodes that a server gets.
    pub shapes: Vec<Shape>,
    /// Client threads.
    pub threads: Vec<u32>,
    /// Closed loop, and rates of open ones.
    pub arrivals: Vec<Arrivals>,
    /// Times that all of it is repeated.
    pub rounds: u32,
    /// Not counted, before each measurement.
    pub warm_up: Duration,
    /// Counted.
    pub measure: Duration,
    /// Size of the data.
    pub size: Size,
    /// Each server's pool in bytes.
    pub pool_bytes: u64,
    /// Whether a server's memory is interleaved over its nodes; otherwise it is bound to them, first touch among them.
    pub interleave: bool,
    /// CPUs of the clients; `None`: a quarter of each node's cores.
    pub client_cpus: Option<Vec<usize>>,
    /// Whether MariaDB is to record every wait.
    pub records_waits: bool,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Counted from 1.
    pub round: u32,
    /// Nodes.
    pub shape: Shape,
    /// Which of the plan's servers.
    pub peer: usize,
    /// Kind of transactions.
    pub workload: Workload,
    /// Which rows they want.
    pub distribution: Distribution,
    /// Client threads.
    pub threads: u32,
    /// When transactions begin.
    pub arrivals: Arrivals,
}

impl Arrivals {
    /// Its name in options and results.
    pub fn name(self) -> String {
        match self {
            Arrivals::Closed => "closed".to_owned(),
            Arrivals::Open(rate) => format!("{rate}"),
        }
    }

    /// By its name: `closed`, or transactions a second.
    ///
    /// # Errors
    /// What is wanted.
    pub fn of(text: &str) -> Result<Arrivals, String> {
        if text == "closed" {
            return Ok(Arrivals::Closed);
        }
        let rate = text.parse().ok().filter(|rate: &f64| (0.01..=1e8).contains(rate));
        rate.map(Arrivals::Open).ok_or_else(|| "closed is wanted, or transactions a second".to_owned())
    }
}

impl Plan {
    /// All measurements in order. Servers that are started are restarted as seldom as rounds allow.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for round in 1..=self.rounds {
            for shape in &self.shapes {
                for (peer, with) in self.peers.iter().enumerate() {
                    // A running server is where it is; it is measured once a round.
                    let shape = if with.address.is_none() { *shape } else { Shape::AsItIs };
                    if shape == Shape::AsItIs
                        && cells.iter().any(|cell: &Cell| cell.peer == peer && cell.round == round)
                    {
                        continue;
                    }
                    self.inner(|workload, distribution, threads, arrivals| {
                        cells.push(Cell { round, shape, peer, workload, distribution, threads, arrivals });
                    });
                }
            }
        }
        cells
    }

    fn inner(&self, mut each: impl FnMut(Workload, Distribution, u32, Arrivals)) {
        for workload in &self.workloads {
            for distribution in &self.distributions {
                for threads in &self.threads {
                    self.arrivals.iter().for_each(|arrivals| each(*workload, *distribution, *threads, *arrivals));
                }
            }
        }
    }

    /// How long the measurements take, without starts and loads.
    pub fn least_time(&self) -> Duration {
        (self.warm_up + self.measure) * u32::try_from(self.cells().len()).unwrap_or(u32::MAX)
    }

    /// What names a measurement among the results.
    pub fn key(&self, cell: &Cell) -> String {
        format!(
            "round={} nodes={} server={} workload={} keys={} threads={} arrivals={}",
            cell.round,
            cell.shape,
            self.peer_name(cell.peer),
            cell.workload,
            cell.distribution,
            cell.threads,
            cell.arrivals.name()
        )
    }

    /// A peer's name: its kind, with a number if there are several of the kind.
    pub fn peer_name(&self, peer: usize) -> String {
        let kind = self.peers[peer].kind;
        let before = self.peers[..peer].iter().filter(|other| other.kind == kind).count();
        if before == 0 { kind.name().to_owned() } else { format!("{}-{}", kind.name(), before + 1) }
    }

    /// What two runs have to share for one to go on with the other's results. More rounds are no other plan.
    pub fn identity(&self) -> Value {
        let peers = self.peers.iter().map(|peer| {
            json!({
                "kind": peer.kind.name(),
                // Not the password.
                "address": peer.address.as_ref().map(|a| format!("{}:{}/{}", a.host, a.port, a.database)),
                "program": peer.program,
                "settings": peer.settings,
            })
        });
        json!({
            "peers": peers.collect::<Vec<_>>(),
            "warm_up_seconds": self.warm_up.as_secs_f64(),
            "measure_seconds": self.measure.as_secs_f64(),
            "tables": self.size.tables,
            "rows": self.size.rows,
            "scale": self.size.scale,
            "workloads_loaded": self.workloads.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "pool_bytes": self.pool_bytes,
            "interleave": self.interleave,
            "client_cpus": self.client_cpus,
            "records_waits": self.records_waits,
        })
    }
}

/// CPUs of the server and of the clients on some nodes, in that order. Whole cores go to one or the other. On a node with a single
/// core both get it.
pub fn divide(topology: &Topology, nodes: &[usize], clients: Option<&[usize]>) -> (Vec<usize>, Vec<usize>) {
    let is_ours = |cpu: &usize| topology.cpu(*cpu).is_some_and(|cpu| cpu.allowed && nodes.contains(&cpu.node));
    if let Some(clients) = clients {
        let all = topology.allowed_cpus().into_iter().filter(|cpu| is_ours(cpu) && !clients.contains(cpu));
        return (all.collect(), clients.to_vec());
    }
    let (mut server, mut client) = (Vec::new(), Vec::new());
    for node in nodes {
        let on_node = |cpu: &&usize| is_ours(cpu) && topology.cpu(**cpu).is_some_and(|cpu| cpu.node == *node);
        let cores = topology.cores().iter().map(|core| core.iter().filter(on_node).copied().collect::<Vec<usize>>());
        let cores: Vec<Vec<usize>> = cores.filter(|core| !core.is_empty()).collect();
        let ours = if cores.len() < 2 { 0 } else { (cores.len() / 4).max(1) };
        let (for_server, for_clients) = cores.split_at(cores.len() - ours);
        server.extend(for_server.iter().flatten());
        client.extend(if ours == 0 { for_server } else { for_clients }.iter().flatten());
    }
    server.sort_unstable();
    client.sort_unstable();
    (server, client)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let peer = |kind, address| Peer { kind, address, program: None, settings: Vec::new() };
        let running = Address::parse(crate::client::Protocol::Postgres, "").unwrap();
        Plan {
            peers: vec![peer(Kind::Homenode, None), peer(Kind::Postgres, None), peer(Kind::Postgres, Some(running))],
            workloads: vec![Workload::PointSelect, Workload::TpcB],
            distributions: vec![Distribution::Uniform],
            shapes: vec![Shape::Nodes(1), Shape::Nodes(2), Shape::Separate(2)],
            threads: vec![1, 8],
            arrivals: vec![Arrivals::Closed],
            rounds: 2,
            warm_up: Duration::from_secs(1),
            measure: Duration::from_secs(2),
            size: Size { tables: 1, rows: 10, scale: 1 },
            pool_bytes: 1 << 28,
            interleave: false,
            client_cpus: None,
            records_waits: false,
        }
    }

    #[test]
    fn a_running_server_is_measured_where_it_is() {
        let plan = plan();
        let cells = plan.cells();
        // Two rounds of (two started servers in three shapes, and one as it is), four measurements each.
        assert_eq!(cells.len(), 2 * (2 * 3 + 1) * 4);
        assert_eq!(plan.least_time(), Duration::from_secs(3 * 56));
        let keys: std::collections::BTreeSet<String> = cells.iter().map(|cell| plan.key(cell)).collect();
        assert_eq!(keys.len(), cells.len());
        assert!(
            keys.contains(
                "round=2 nodes=as it is server=postgres-2 workload=tpcb keys=uniform threads=8 arrivals=closed"
            )
        );
    }

    #[test]
    fn clients_have_cores_of_their_own() {
        let machine = |name: &str| {
            let path = format!("{}/../topology/machines/{name}.txt", env!("CARGO_MANIFEST_DIR"));
            Topology::from_bundle(&std::fs::read_to_string(path).unwrap()).unwrap()
        };
        let two = machine("sapphire-rapids-2s-cxl");
        let (server, client) = divide(&two, &[0], None);
        assert_eq!(server.len() + client.len(), two.node(0).unwrap().cpus.len());
        assert!(server.len() == 3 * client.len() && server.iter().all(|cpu| !client.contains(cpu)));
        // Both threads of a core are on one side.
        let core = two.cores().iter().find(|core| core.contains(&client[0])).unwrap();
        assert!(core.iter().all(|cpu| client.contains(cpu)));
        let (server, client) = divide(&two, &[0, 1], Some(&[3, 4]));
        assert!(client == [3, 4] && !server.contains(&3) && server.contains(&5));
    }

    #[test]
    fn shapes_and_arrivals_are_read() {
        assert_eq!("4".parse(), Ok(Shape::Nodes(4)));
        assert_eq!("separate=2".parse(), Ok(Shape::Separate(2)));
        assert!("0".parse::<Shape>().is_err() && "separate".parse::<Shape>().is_err());
        assert_eq!(Arrivals::of("closed"), Ok(Arrivals::Closed));
        assert_eq!(Arrivals::of("1500"), Ok(Arrivals::Open(1500.0)));
        assert!(Arrivals::of("-1").is_err() && Arrivals::of("nan").is_err());
    }
}
