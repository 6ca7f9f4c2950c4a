//! Who called? Call stacks at sampled accesses, and the functions that they go through.
//!
//! A stack is taken of every [`EVERY`]th access of one place that a modified copy had to answer, so lines that move seldom cost nothing
//! and the samples are the same in every run of a seed. Names are looked up when the run has ended.

use std::collections::{BTreeMap, HashMap};

/// Of so many transfers of a line to one place one is looked at.
pub(super) const EVERY: u64 = 32;
/// Return addresses that are kept: the seam's own come first, and what the workload does comes last.
const DEPTH: usize = 48;
/// Functions that are named.
const NAMED: usize = 8;

/// Sampled stacks of one place, as return addresses.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Stacks(HashMap<Vec<usize>, u64>);

impl Stacks {
    /// Adds the stack of the running thread.
    #[cold]
    pub fn sample(&mut self) {
        let mut stack = Vec::with_capacity(DEPTH);
        backtrace::trace(|frame| {
            stack.push(frame.ip().addr());
            stack.len() < DEPTH
        });
        *self.0.entry(stack).or_default() += 1;
    }
}

/// Functions by address, once they have been looked up.
#[derive(Default)]
pub(super) struct Names(HashMap<usize, Vec<String>>);

impl Names {
    /// Stacks by name with their numbers of samples, innermost function first.
    pub fn of(&mut self, stacks: &Stacks) -> BTreeMap<Vec<String>, u64> {
        let mut named = BTreeMap::new();
        for (stack, samples) in &stacks.0 {
            *named.entry(self.stack(stack)).or_default() += samples;
        }
        named
    }

    fn stack(&mut self, addresses: &[usize]) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for &address in addresses {
            for name in self.at(address) {
                // What drives the run is the same in every stack.
                if name.starts_with("lab/measure:") || names.len() == NAMED {
                    return names;
                }
                if names.last() != Some(name) {
                    names.push(name.clone());
                }
            }
        }
        names
    }

    /// The project's functions at an address, innermost first: several where some are inlined.
    fn at(&mut self, address: usize) -> &[String] {
        self.0.entry(address).or_insert_with(|| {
            let mut names = Vec::new();
            backtrace::resolve(std::ptr::without_provenance_mut(address), |symbol| {
                let name = symbol.name().map(|name| format!("{name:#}"));
                let file = symbol.filename().map(|path| path.to_string_lossy().into_owned());
                names.extend(name.zip(file).and_then(|(name, file)| place(&name, &file)));
            });
            names
        })
    }
}

/// `crate/file:function`, since inlined functions come without their modules; `None` for what is not the project's, and for the seam's
/// own.
fn place(name: &str, file: &str) -> Option<String> {
    let (before, file) = file.rsplit_once("crates/")?;
    let (owner, file) = file.strip_suffix(".rs")?.split_once("/src/")?;
    let is_seam = owner == "platform" && (file.starts_with("lab/") || file == "bytes");
    if is_seam || before.contains("/registry/") {
        return None;
    }
    // Without hash and type arguments; a closure is its function's, whose name is in the frames around it or not at all.
    let path = name.trim_start_matches('<').split(['<', '>']).next().unwrap_or("");
    let function = path.rsplit("::").find(|part| !part.is_empty() && !part.starts_with('{')).unwrap_or("closure");
    Some(format!("{owner}/{file}:{function}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_short_and_the_seam_is_left_out() {
        let latch = "/some/where/crates/latch/src/lib.rs";
        for (name, file, short) in [
            ("lock_shared", latch, Some("latch/lib:lock_shared")),
            ("homenode_latch::Latch::lock_shared", latch, Some("latch/lib:lock_shared")),
            ("read<homenode_lab::designs::OneLine>", "crates/lab/src/designs/pages.rs", Some("lab/designs/pages:read")),
            ("{closure#0}<(), u64>", latch, Some("latch/lib:closure")),
            ("homenode_latch::grow::{closure#0}", latch, Some("latch/lib:grow")),
            ("load", "crates/platform/src/lab/atomic.rs", None),
            ("lock_slow", "crates/platform/src/sync.rs", Some("platform/sync:lock_slow")),
            ("call_once", "/rustc/abc/library/core/src/ops/function.rs", None),
            ("parse", "/root/.cargo/registry/src/x/crates/y/src/lib.rs", None),
        ] {
            assert_eq!(place(name, file).as_deref(), short, "{name}");
        }
    }
}
