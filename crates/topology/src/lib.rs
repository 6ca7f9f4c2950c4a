//! What machine is this? Nodes, CPUs, cache groups, distances, memory-only nodes.

mod model;

pub use model::{Node, Topology};
