//! How much memory does this process's control group leave it? The groups' files as they are now (control groups of version 2).

use std::fs;
use std::path::Path;

/// The least limit of the groups that this process is in, in bytes; nothing where there is none.
pub fn group_limit_bytes() -> Option<u64> {
    groups().into_iter().filter_map(|group| limit(&read, &group)).min()
}

/// Bytes that the groups let this process have beyond what they hold now, counting files' pages that can be dropped; nothing where
/// nothing is limited.
pub fn group_available_bytes() -> Option<u64> {
    available(&read, &groups())
}

fn read(file: &str) -> Option<String> {
    fs::read_to_string(file).ok()
}

/// Folders of the process's group and those above it. In a container the first is the container's own.
fn groups() -> Vec<String> {
    let text = read("/proc/self/cgroup").unwrap_or_default();
    // Version 2 has one line, "0::/path" (cgroups(7)).
    let path = text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    Path::new(path).ancestors().map(|group| format!("/sys/fs/cgroup{}", group.display())).collect()
}

fn limit(read: &impl Fn(&str) -> Option<String>, group: &str) -> Option<u64> {
    read(&format!("{group}/memory.max"))?.trim().parse().ok()
}

fn available(read: &impl Fn(&str) -> Option<String>, groups: &[String]) -> Option<u64> {
    let room = |group: &String| {
        let limit = limit(read, group)?;
        let held: u64 = read(&format!("{group}/memory.current"))?.trim().parse().ok()?;
        let stat = read(&format!("{group}/memory.stat")).unwrap_or_default();
        let count = |name: &str| -> u64 {
            stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0)
        };
        let files = count("inactive_file ") + count("active_file ");
        Some(limit.saturating_sub(held.saturating_sub(files)))
    };
    groups.iter().filter_map(room).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_group_counts() {
        let files = [
            ("/g/a/memory.max", "max\n"),
            ("/g/a/memory.current", "700\n"),
            ("/g/memory.max", "1000\n"),
            ("/g/memory.current", "800\n"),
            ("/g/memory.stat", "anon 500\ninactive_file 200\nactive_file 50\n"),
        ];
        let read = |name: &str| files.iter().find(|(file, _)| *file == name).map(|(_, text)| (*text).to_owned());
        let groups = ["/g/a".to_owned(), "/g".to_owned(), "/".to_owned()];
        assert_eq!(available(&read, &groups), Some(1000 - (800 - 250)));
        assert_eq!(limit(&read, "/g"), Some(1000));
        assert_eq!(limit(&read, "/g/a"), None);
        assert_eq!(available(&|_: &str| None, &groups), None);
        assert_eq!(available(&|name: &str| name.ends_with("max").then(|| "x".into()), &groups), None, "damaged");
    }

    #[test]
    fn this_process_has_groups() {
        assert!(groups().iter().all(|group| group.starts_with("/sys/fs/cgroup")) && !groups().is_empty());
        assert!(group_available_bytes().is_none_or(|room| room <= group_limit_bytes().unwrap_or(u64::MAX)));
    }
}
