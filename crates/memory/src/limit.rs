//! How much memory does this process's control group leave it? The groups' files as they are now (control groups of versions 2 and 1).

use std::fs;
use std::path::Path;

/// The least limit of the groups that this process is in, in bytes; nothing where there is none.
pub fn group_limit_bytes() -> Option<u64> {
    groups(&own()).into_iter().filter_map(|group| limit(&read, &group)).min()
}

/// Bytes that the groups let this process have beyond what they hold now, counting files' pages that can be dropped; nothing where
/// nothing is limited.
pub fn group_available_bytes() -> Option<u64> {
    available(&read, &groups(&own()))
}

fn read(file: &str) -> Option<String> {
    fs::read_to_string(file).ok()
}

fn own() -> String {
    read("/proc/self/cgroup").unwrap_or_default()
}

/// What the files of a hierarchy are called.
#[derive(Debug, PartialEq, Eq)]
struct Names {
    limit: &'static str,
    held: &'static str,
    files: [&'static str; 2],
}

/// Version 2 (Documentation/admin-guide/cgroup-v2.rst).
const V2: Names = Names { limit: "memory.max", held: "memory.current", files: ["inactive_file ", "active_file "] };
/// Version 1 (Documentation/admin-guide/cgroup-v1/memory.rst): a group's own counts leave out those below it, the totals don't.
const V1: Names = Names {
    limit: "memory.limit_in_bytes",
    held: "memory.usage_in_bytes",
    files: ["total_inactive_file ", "total_active_file "],
};
/// Version 1 says "no limit" by the largest number of whole pages that fits 63 bits.
const NO_LIMIT: u64 = 1 << 62;

#[derive(Debug, PartialEq, Eq)]
struct Group {
    folder: String,
    names: &'static Names,
}

/// The process's groups and those above them, by what `/proc/self/cgroup` says. In a container the first is the container's own, or,
/// where the text has the host's path and the mounted folders are the container's, the last.
fn groups(text: &str) -> Vec<Group> {
    let above = |mount: &'static str, path: &str, names| -> Vec<Group> {
        let folder = |path: &Path| format!("{mount}{}", path.display()).trim_end_matches('/').to_owned();
        Path::new(path).ancestors().map(|path| Group { folder: folder(path), names }).collect()
    };
    // Version 2 has one line, "0::/path"; version 1 one for each hierarchy, "4:memory:/path" (cgroups(7)).
    let v2 = text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    let v1 = text.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|name| name == "memory").then_some(path)
    });
    let mut groups = above("/sys/fs/cgroup", v2, &V2);
    groups.extend(v1.into_iter().flat_map(|path| above("/sys/fs/cgroup/memory", path, &V1)));
    groups
}

fn limit(read: &impl Fn(&str) -> Option<String>, group: &Group) -> Option<u64> {
    let bytes: u64 = read(&format!("{}/{}", group.folder, group.names.limit))?.trim().parse().ok()?;
    (bytes < NO_LIMIT).then_some(bytes)
}

fn available(read: &impl Fn(&str) -> Option<String>, groups: &[Group]) -> Option<u64> {
    let room = |group: &Group| {
        let limit = limit(read, group)?;
        let held: u64 = read(&format!("{}/{}", group.folder, group.names.held))?.trim().parse().ok()?;
        let stat = read(&format!("{}/memory.stat", group.folder)).unwrap_or_default();
        let count = |name: &str| -> u64 {
            stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0)
        };
        let files: u64 = group.names.files.iter().map(|name| count(name)).sum();
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
        let group = |folder: &str| Group { folder: folder.to_owned(), names: &V2 };
        let groups = [group("/g/a"), group("/g"), group("")];
        assert_eq!(available(&read, &groups), Some(1000 - (800 - 250)));
        assert_eq!(limit(&read, &groups[1]), Some(1000));
        assert_eq!(limit(&read, &groups[0]), None);
        assert_eq!(available(&|_: &str| None, &groups), None);
        assert_eq!(available(&|name: &str| name.ends_with("max").then(|| "x".into()), &groups), None, "damaged");
    }

    /// What a host with version 1 shows, as its documentation describes it.
    #[test]
    fn version_1_counts_too() {
        let folders: Vec<(String, &Names)> =
            groups("12:cpuset:/x\n4:cpuacct,memory:/docker/abc\n1:name=systemd:/docker/abc\n")
                .into_iter()
                .map(|group| (group.folder, group.names))
                .collect();
        let v1 = |path: &str| (format!("/sys/fs/cgroup/memory{path}"), &V1);
        assert_eq!(folders, [("/sys/fs/cgroup".to_owned(), &V2), v1("/docker/abc"), v1("/docker"), v1("")]);
        let files = [
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1000\n"),
            ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "900\n"),
            ("/sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 200\ntotal_active_file 100\n"),
            ("/sys/fs/cgroup/memory/docker/memory.limit_in_bytes", "9223372036854771712\n"),
            ("/sys/fs/cgroup/memory/docker/memory.usage_in_bytes", "1\n"),
        ];
        let read = |name: &str| files.iter().find(|(file, _)| *file == name).map(|(_, text)| (*text).to_owned());
        assert_eq!(available(&read, &groups("4:memory:/docker/abc\n")), Some(1000 - (900 - 300)));
        assert_eq!(available(&read, &groups("0::/docker/abc\n")), None, "another hierarchy's");
    }

    #[test]
    fn this_process_has_groups() {
        let groups = groups(&own());
        assert!(groups.iter().all(|group| group.folder.starts_with("/sys/fs/cgroup")) && !groups.is_empty());
        assert!(group_available_bytes().is_none_or(|room| room <= group_limit_bytes().unwrap_or(u64::MAX)));
    }
}
