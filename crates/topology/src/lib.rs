//! What machine is this? Nodes, CPUs, cache groups, distances, memory-only nodes.
//!
//! Everything comes from text files that Linux shows under `/sys` and `/proc` ([`Topology::discover`]), from a copy of
//! those files in a folder ([`Topology::from_dir`]), or from one text with all of them ([`Topology::from_bundle`]), so that
//! a machine can be looked at, and tested for, where it isn't. Containers and small kernels hide some of the files: what
//! could not be read or understood is said in [`Topology::notes`], and in its place stands the plainest assumption.
//!
//! ```
//! use homenode_topology::{Topology, machines};
//! let machine = Topology::from_bundle(machines::text("kunpeng-920").unwrap()).unwrap();
//! assert_eq!(machine.nodes().len(), 4);
//! assert_eq!(machine.distance(0, 3), Some(22));
//! println!("{}", machine.describe());
//! ```

mod bundle;
mod capture;
mod counters;
mod describe;
mod error;
mod folder;
mod list;
pub mod machines;
mod model;
mod read;

pub use capture::Capture;
pub use counters::NodeCounters;
pub use error::TopologyError;
pub use folder::Device;
pub use list::{format_list, parse_list};
pub use model::{BlockDevice, Cpu, HugePagePool, L3Group, Node, Note, Problem, Settings, Topology};
