//! How much of the machine may this process use? Memory and file descriptors.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Bytes of memory for this process: the machine's, or what its control group allows if that is less.
pub(crate) fn memory_bytes() -> Option<u64> {
    let total = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_bytes(&text));
    homenode_memory::group_limit_bytes().into_iter().chain(total).min()
}

fn total_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// Raises the limit of open files as far as this process may; returns what it is then, if there is one.
pub(crate) fn raise_open_files() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        // If it can't be raised it stays as it is, and connections beyond it wait.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_found() {
        assert_eq!(total_bytes("MemTotal:       16384 kB\nMemFree: 1 kB\n"), Some(16 << 20));
        assert_eq!(total_bytes("MemFree: 1 kB\n"), None);
        assert!(memory_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }
}
