//! How did the kernel answer? Refusals that are to be shown, and errors that stop.

use std::fmt;
use std::io;

use crate::Policy;

/// Why the kernel did not do what a memory call asked. Containers forbid these calls unless given CAP_SYS_NICE, small
/// kernels lack them; the memory works all the same, it only comes from wherever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// EPERM or EACCES: a container's filter, or a missing privilege.
    #[error("the kernel does not permit it (a container's filter, or CAP_SYS_NICE is missing)")]
    NotPermitted,
    /// ENOSYS: a kernel without memory policies, or a system that isn't Linux.
    #[error("the kernel has no such call")]
    NotSupported,
    /// EINVAL or ENODEV: the kernel doesn't know the policy, or a node is offline or outside this process's cpuset.
    #[error("the kernel does not know the policy, or a node is not one of ours")]
    NotUnderstood,
    /// Another error number.
    #[error("error {0}: {text}", text = io::Error::from_raw_os_error(*.0))]
    Other(i32),
}

/// What became of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Nothing was asked of the kernel: the policy is the default, or all memory is one node.
    NotNeeded,
    /// The kernel follows this policy: the one asked for, or plain interleaving on a kernel without the weighted one.
    Applied(Policy),
    /// The kernel refused; pages come from the node of whoever touches them first.
    Refused(Policy, Refusal),
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Placement::NotNeeded => f.write_str("no policy needed"),
            Placement::Applied(policy) => write!(f, "{policy}"),
            Placement::Refused(policy, refusal) => write!(f, "{policy} refused: {refusal}"),
        }
    }
}

/// Why a region could not be made, placed or filled.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The kernel gave no memory.
    #[error("cannot map {bytes} bytes: {source}")]
    Map {
        /// What was asked for, rounded up to whole huge pages.
        bytes: usize,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Reserved huge pages were required, and there are not enough.
    #[error("cannot take {bytes} bytes of reserved 2 MiB pages (vm.nr_hugepages): {source}")]
    HugePages {
        /// What was asked for.
        bytes: usize,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Pages are to be bound to a node that has too few reserved huge pages free; touching them would kill the process.
    #[error("{bytes} bytes of reserved 2 MiB pages cannot be bound ({policy}): {free_bytes} bytes are free there")]
    HugePagesOnNodes {
        /// What is to be bound.
        bytes: usize,
        /// To which nodes.
        policy: Policy,
        /// What is free on these nodes together.
        free_bytes: u64,
    },
    /// A policy names a node that has no memory for this process.
    #[error("policy {policy}: there is no node {node} with memory for this process")]
    NoSuchNode {
        /// The policy.
        policy: Policy,
        /// The first such node.
        node: usize,
    },
    /// The kernel refused to bind: the one refusal that is an error, because the caller insisted.
    #[error("cannot bind memory ({policy}): {refusal}")]
    Bind {
        /// The policy.
        policy: Policy,
        /// The kernel's answer.
        refusal: Refusal,
    },
    /// Pages are to be bound to nodes that have too little memory left; touching them would end the process.
    #[error("{bytes} bytes cannot be bound ({policy}): {available_bytes} bytes are left there")]
    NodesFull {
        /// What is still to be made present.
        bytes: u64,
        /// To which nodes it is bound.
        policy: Policy,
        /// What these nodes together can still give.
        available_bytes: u64,
    },
    /// Pages could not be made present: memory ran out, or it is damaged.
    #[error("cannot make memory present: {source}")]
    Populate {
        /// The kernel's answer.
        source: io::Error,
    },
}
