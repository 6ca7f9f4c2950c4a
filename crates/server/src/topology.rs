//! On which node does each worker live?

use homenode_topology::Topology;

/// Where a worker lives: on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// The node.
    pub node: usize,
    /// Its CPUs that this process may use (system numbers).
    pub cpus: Vec<usize>,
}

/// The home of each of `workers` workers: a node, whose CPUs it shares with its neighbours, so that the kernel may still
/// balance within the node. On a machine with one node nobody is bound (an empty list).
pub fn spread_workers(topology: &Topology, workers: usize) -> Vec<Home> {
    let allowed = topology.allowed_cpus();
    let usable = |cpus: &[usize]| cpus.iter().copied().filter(|cpu| allowed.contains(cpu)).collect();
    let homes = topology.nodes().iter().map(|node| Home { node: node.id, cpus: usable(&node.cpus) });
    let nodes: Vec<Home> = homes.filter(|home| !home.cpus.is_empty()).collect();
    if nodes.len() < 2 {
        return Vec::new();
    }
    // Node by node, each as often as it has CPUs, so that one worker a CPU fills the machine.
    let places: Vec<&Home> = nodes.iter().flat_map(|home| home.cpus.iter().map(move |_| home)).collect();
    (0..workers)
        .map(|worker| {
            let place = if workers < places.len() { worker * places.len() / workers } else { worker % places.len() };
            places[place].clone()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_topology::machines;

    #[test]
    fn workers_are_spread_over_the_nodes() {
        let machine = Topology::from_bundle(machines::text("kunpeng-920").unwrap()).unwrap();
        let cpus = machine.allowed_cpus().len();
        let nodes = machine.nodes().len();
        let full = spread_workers(&machine, cpus);
        for node in machine.nodes() {
            assert_eq!(full.iter().filter(|home| home.node == node.id && home.cpus == node.cpus).count(), cpus / nodes);
        }
        let one_each = spread_workers(&machine, nodes);
        for (home, node) in one_each.iter().zip(machine.nodes()) {
            assert_eq!(home.cpus, node.cpus);
        }
        assert!(spread_workers(&machine.as_one_node(), 8).is_empty());
        assert_eq!(spread_workers(&machine, 2 * cpus).len(), 2 * cpus);
    }
}
