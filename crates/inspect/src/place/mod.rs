//! Where is a server's memory? A census over all its processes: by object, by node, policy beside reality.
//!
//! Private memory is counted by `numa_maps`. Memory that several processes map is counted page by page, each page once: a
//! process's tables show only what it touched itself, so their sum counts pages twice and their maximum misses some.
//! Nothing here makes a page present or stops a process.

mod census;
pub mod mariadb;
mod object;
pub mod postgres;
mod server;
mod union;

pub use census::{Census, ObjectCensus, take};
pub(crate) use census::{mappings_of, shared_memory};
pub use object::Kind;
pub use server::{Server, ServerKind, Who, find};
pub use union::{Instance, Pages, Union, unite};

use std::collections::BTreeMap;

/// How much of the memory would have to move for every one of `nodes` nodes to have the same: 0 is even, 0.75 is all of it
/// on one node of four.
pub fn imbalance(by_node: &BTreeMap<usize, u64>, nodes: usize) -> f64 {
    let total: u64 = by_node.values().sum();
    if total == 0 || nodes == 0 {
        return 0.0;
    }
    let even = total as f64 / nodes as f64;
    by_node.values().map(|bytes| (*bytes as f64 - even).max(0.0)).sum::<f64>() / total as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imbalance_is_what_would_have_to_move() {
        assert_eq!(imbalance(&BTreeMap::from([(0, 100)]), 4), 0.75);
        assert_eq!(imbalance(&BTreeMap::from([(0, 10), (1, 10)]), 2), 0.0);
        assert_eq!(imbalance(&BTreeMap::from([(0, 30), (1, 10)]), 2), 0.25);
        assert_eq!(imbalance(&BTreeMap::new(), 2), 0.0);
    }
}
