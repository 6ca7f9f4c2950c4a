//! On which node does each worker live?

use homenode_topology::Topology;

/// The CPUs that each of `workers` workers is bound to: those of one node, which it shares with its neighbours, so that
/// the kernel may still balance within the node. On a machine with one node nobody is bound (an empty list).
pub fn spread_workers(topology: &Topology, workers: usize) -> Vec<Vec<usize>> {
    let allowed = topology.allowed_cpus();
    let mut nodes: Vec<Vec<usize>> = topology
        .nodes()
        .iter()
        .map(|node| node.cpus.iter().copied().filter(|cpu| allowed.contains(cpu)).collect())
        .collect();
    nodes.retain(|cpus: &Vec<usize>| !cpus.is_empty());
    if nodes.len() < 2 {
        return Vec::new();
    }
    // Node by node, each as often as it has CPUs, so that one worker a CPU fills the machine.
    let places: Vec<&Vec<usize>> = nodes.iter().flat_map(|cpus| cpus.iter().map(move |_| cpus)).collect();
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
            assert_eq!(full.iter().filter(|bound| **bound == node.cpus).count(), cpus / nodes);
        }
        let one_each = spread_workers(&machine, nodes);
        for (bound, node) in one_each.iter().zip(machine.nodes()) {
            assert_eq!(*bound, node.cpus);
        }
        assert_eq!(spread_workers(&machine, 2 * cpus).len(), 2 * cpus);
    }
}
