//! On which memory nodes are the pages that a statement came by? BUFFERS and NUMA of EXPLAIN.

use crate::exec::Read;
use crate::explain::{Options, Shown};
use homenode_engine::Database;
use homenode_memory::{Census, Whereabouts as Place};
use homenode_types::Result;
use std::collections::{BTreeMap, HashMap};

/// Pages, by the node that they are on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pages {
    by_node: BTreeMap<usize, u64>,
    /// On the node of the CPUs that read them.
    local: u64,
    /// In the pool's second tier, if there is one.
    far: Option<u64>,
    /// In the pool, but the kernel doesn't say where.
    unknown: u64,
    /// Not in the pool any more.
    gone: u64,
}

impl Pages {
    fn all(&self) -> u64 {
        self.by_node.values().sum::<u64>() + self.unknown + self.gone
    }

    fn remote(&self) -> u64 {
        self.by_node.values().sum::<u64>() - self.local
    }

    fn add(&mut self, other: &Pages) {
        other.by_node.iter().for_each(|(node, count)| *self.by_node.entry(*node).or_default() += count);
        self.local += other.local;
        self.far = self.far.or(other.far.map(|_| 0)).map(|far| far + other.far.unwrap_or(0));
        self.unknown += other.unknown;
        self.gone += other.gone;
    }

    /// The lines of the text form.
    pub fn lines(&self, options: Options) -> Vec<String> {
        let mut lines = Vec::new();
        if self.all() == 0 {
            return lines;
        }
        if options.buffers {
            lines.push(format!("Buffers: shared touched={}", self.all()));
        }
        if options.numa {
            let nodes = self.by_node.iter().map(|(node, count)| format!("node{node}={count} "));
            let mut line = format!("NUMA: {}local={} remote={}", nodes.collect::<String>(), self.local, self.remote());
            if let Some(far) = self.far {
                line.push_str(&format!(" near={} far={far}", self.by_node.values().sum::<u64>() - far));
            }
            for (name, count) in [("unknown", self.unknown), ("gone", self.gone)] {
                if count > 0 {
                    line.push_str(&format!(" {name}={count}"));
                }
            }
            lines.push(line);
        }
        lines
    }

    /// The fields of the JSON form, with values as JSON.
    pub fn fields(&self, options: Options) -> Vec<(&'static str, String)> {
        let mut fields = Vec::new();
        if options.buffers {
            fields.push(("Shared Touched Blocks", self.all().to_string()));
        }
        if options.numa {
            let nodes: Vec<String> = self.by_node.iter().map(|(node, count)| format!("\"{node}\": {count}")).collect();
            fields.push(("NUMA Blocks by Node", format!("{{{}}}", nodes.join(", "))));
            fields.push(("NUMA Local Blocks", self.local.to_string()));
            fields.push(("NUMA Remote Blocks", self.remote().to_string()));
            if let Some(far) = self.far {
                fields.push(("Near Tier Blocks", (self.by_node.values().sum::<u64>() - far).to_string()));
                fields.push(("Far Tier Blocks", far.to_string()));
            }
            fields.push(("NUMA Unknown Blocks", (self.unknown + self.gone).to_string()));
        }
        fields
    }
}

/// The pages of each scan, as they are after it.
pub(crate) struct Whereabouts(HashMap<usize, Pages>);

impl Whereabouts {
    /// Asks where the pages of each scan are.
    pub fn new(db: &Database, scans: HashMap<usize, Read>) -> Result<Whereabouts> {
        let topology = db.topology();
        let here = topology.cpu(homenode_platform::thread::current_cpu()).map(|cpu| cpu.node);
        let census = Census::of(topology);
        let far_nodes = db.pool().far_nodes();
        let found = scans.into_iter().map(|(scan, pages)| {
            let found = pages.iter().filter_map(|(page, reader)| Some((db.pool().address_of(*page)?, reader.or(here))));
            let (addresses, readers): (Vec<usize>, Vec<Option<usize>>) = found.unzip();
            let far = (!far_nodes.is_empty()).then_some(0);
            let mut sums = Pages { gone: (pages.len() - addresses.len()) as u64, far, ..Pages::default() };
            match census.look(&addresses) {
                Ok(places) => places.iter().zip(readers).for_each(|(place, reader)| match place {
                    Place::Node(node) => {
                        *sums.by_node.entry(*node).or_default() += 1;
                        sums.local += u64::from(Some(*node) == reader);
                        sums.far = sums.far.map(|far| far + u64::from(far_nodes.contains(node)));
                    }
                    Place::Absent | Place::Unknown(_) => sums.unknown += 1,
                }),
                // A container that forbids the question: the number of pages is known all the same.
                Err(_) => sums.unknown = addresses.len() as u64,
            }
            (scan, sums)
        });
        Ok(Whereabouts(found.collect()))
    }

    /// Puts them into the plan; a node has its own and its children's, as PostgreSQL counts buffers.
    pub fn fill(&mut self, shown: &mut Shown) -> Pages {
        let mut sum = shown.scan.and_then(|scan| self.0.remove(&scan)).unwrap_or_default();
        for child in &mut shown.children {
            let pages = self.fill(child);
            sum.add(&pages);
        }
        shown.pages = Some(sum.clone());
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_add_up() {
        let mut a = Pages { by_node: [(0, 3), (2, 1)].into(), local: 3, far: None, unknown: 0, gone: 1 };
        a.add(&Pages { by_node: [(2, 4)].into(), local: 0, far: None, unknown: 2, gone: 0 });
        let on = |buffers, numa| Options { analyze: true, costs: true, timing: true, json: false, buffers, numa };
        let expected = ["Buffers: shared touched=11", "NUMA: node0=3 node2=5 local=3 remote=5 unknown=2 gone=1"];
        assert_eq!(a.lines(on(true, true)), expected);
        assert_eq!(a.lines(on(false, false)), [""; 0]);
        a.add(&Pages { far: Some(4), ..Pages::default() });
        assert!(a.lines(on(false, true))[0].ends_with("remote=5 near=4 far=4 unknown=2 gone=1"));
        assert_eq!(a.fields(on(false, true))[0], ("NUMA Blocks by Node", "{\"0\": 3, \"2\": 5}".into()));
    }
}
