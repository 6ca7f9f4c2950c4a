//! Which node should a page come from? The policies a region can have, and their text form.

use std::fmt;
use std::str::FromStr;

/// Where the pages of a range are to be taken from when they are first touched.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// Nothing is asked for: the policy of the thread that touches a page first decides.
    #[default]
    Default,
    /// The node of the CPU that touches a page first, whatever the thread's own policy says.
    Local,
    /// Page by page over all nodes with memory.
    Interleave,
    /// Page by page over all nodes with memory, by the kernel's weights (Linux 6.9); plain interleaving before that.
    WeightedInterleave,
    /// Only from these nodes. The one policy whose refusal is an error.
    Bind(Vec<usize>),
    /// From this node while it has free memory, otherwise from the nearest.
    Preferred(usize),
}

/// A policy's text that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is no memory policy: {why}; known are default, local, interleave, weighted, bind=0,1 and preferred=2")]
pub struct ParsePolicyError {
    text: String,
    why: &'static str,
}

impl FromStr for Policy {
    type Err = ParsePolicyError;

    fn from_str(text: &str) -> Result<Policy, ParsePolicyError> {
        let error = |why| ParsePolicyError { text: text.to_owned(), why };
        let (name, nodes) = match text.split_once('=') {
            Some((name, nodes)) => (name, Some(nodes)),
            None => (text, None),
        };
        let policy = match (name, nodes) {
            ("default", None) => Policy::Default,
            ("local", None) => Policy::Local,
            ("interleave", None) => Policy::Interleave,
            ("weighted", None) => Policy::WeightedInterleave,
            ("bind", Some(list)) => Policy::Bind(parse_nodes(list).ok_or(error("the node list is not numbers and ranges"))?),
            ("preferred", Some(node)) => Policy::Preferred(node.parse().map_err(|_| error("the node is not a number"))?),
            ("bind" | "preferred", None) => return Err(error("it names no node")),
            ("default" | "local" | "interleave" | "weighted", Some(_)) => return Err(error("it takes no nodes")),
            _ => return Err(error("the name is unknown")),
        };
        Ok(policy)
    }
}

fn parse_nodes(list: &str) -> Option<Vec<usize>> {
    let nodes: Option<Vec<usize>> = list.split(',').map(|n| n.trim().parse().ok()).collect();
    let mut nodes = nodes?;
    nodes.sort_unstable();
    nodes.dedup();
    Some(nodes)
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::Default => f.write_str("default"),
            Policy::Local => f.write_str("local"),
            Policy::Interleave => f.write_str("interleave"),
            Policy::WeightedInterleave => f.write_str("weighted"),
            Policy::Bind(nodes) => {
                let list: Vec<String> = nodes.iter().map(usize::to_string).collect();
                write!(f, "bind={}", list.join(","))
            }
            Policy::Preferred(node) => write!(f, "preferred={node}"),
        }
    }
}

/// Whether a region is made of huge pages (2 MiB).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HugePages {
    /// Small pages only; transparent huge pages are declined too.
    Off,
    /// Reserved huge pages (`MAP_HUGETLB`) if enough are free, transparent ones otherwise.
    #[default]
    Try,
    /// Transparent huge pages (`MADV_HUGEPAGE`); the kernel may refuse silently.
    Transparent,
    /// Reserved huge pages, or an error.
    Require,
}
