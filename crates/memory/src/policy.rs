//! Which node should a page come from? The policies a region can have, and their text form.

use std::fmt;
use std::str::FromStr;

use homenode_topology::{format_list, parse_list};

/// Where the pages of a range are to be taken from when they are first touched.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// Nothing is asked for: the policy of the thread that touches a page first decides.
    #[default]
    Default,
    /// The node of the CPU that touches a page first, whatever the thread's own policy says.
    Local,
    /// Page by page over all nodes that have memory and CPUs: memory-only nodes, slower or faster than the rest, are to be
    /// named or weighted (only where no node has both: all nodes with memory).
    Interleave,
    /// Page by page over all nodes with memory, by the kernel's weights (Linux 6.9); before that as `Interleave`.
    WeightedInterleave,
    /// Only from these nodes (ascending, not none). The one policy whose refusal is an error.
    Bind(Vec<usize>),
    /// From this node while it has free memory, otherwise from the nearest.
    Preferred(usize),
}

/// A policy's text that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{text}\" is no memory policy: {why}; known are default, local, interleave, weighted, bind=0,1 and preferred=2"
)]
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
            ("bind", Some(list)) => {
                Policy::Bind(parse_nodes(list).ok_or(error("the node list is not numbers and ranges"))?)
            }
            ("preferred", Some(node)) => {
                Policy::Preferred(node.parse().map_err(|_| error("the node is not a number"))?)
            }
            ("bind" | "preferred", None) => return Err(error("it names no node")),
            ("default" | "local" | "interleave" | "weighted", Some(_)) => {
                return Err(error("it takes no nodes"));
            }
            _ => return Err(error("the name is unknown")),
        };
        Ok(policy)
    }
}

fn parse_nodes(list: &str) -> Option<Vec<usize>> {
    parse_list(list).filter(|nodes| !nodes.is_empty())
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::Default => f.write_str("default"),
            Policy::Local => f.write_str("local"),
            Policy::Interleave => f.write_str("interleave"),
            Policy::WeightedInterleave => f.write_str("weighted"),
            Policy::Bind(nodes) => {
                write!(f, "bind={}", format_list(nodes))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        for text in ["default", "local", "interleave", "weighted", "bind=0-1", "bind=0,2", "preferred=2"] {
            assert_eq!(text.parse::<Policy>().unwrap().to_string(), text);
        }
        assert_eq!("bind=1,0".parse(), Ok(Policy::Bind(vec![0, 1])));
    }

    #[test]
    fn nonsense_is_named() {
        for text in [
            "",
            "near",
            "bind",
            "bind=",
            "bind=x",
            "preferred=",
            "preferred=1,2",
            "local=1",
            "Interleave",
            "bind=0-99999999",
        ] {
            let error = text.parse::<Policy>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("\"{text}\" is no memory policy")), "{error}");
        }
    }
}
