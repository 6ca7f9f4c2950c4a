//! What machine is this? Nodes, CPUs, cache groups, distances, memory-only nodes.
