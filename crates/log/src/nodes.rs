//! Which worker lives where, as far as the log's shared lines are concerned?

/// The nodes of a machine, for a log. The default is one node, which needs nothing of what several need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    /// The CPUs of each node (system numbers), where its relay runs. Empty, or of one node: a machine with one.
    pub cpus: Vec<Vec<usize>>,
    /// The node of each lane's worker, an index into `cpus`. It repeats for lanes beyond its end.
    pub of_lanes: Vec<usize>,
}

impl Nodes {
    /// How many there are, at least 1.
    pub(crate) fn count(&self) -> usize {
        self.cpus.len().max(1)
    }

    /// The node of `lane`. A wrong one costs only time.
    pub(crate) fn of(&self, lane: usize) -> usize {
        match self.of_lanes.as_slice() {
            [] => 0,
            lanes => lanes[lane % lanes.len()].min(self.count() - 1),
        }
    }
}
