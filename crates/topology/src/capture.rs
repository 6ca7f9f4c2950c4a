//! Which files describe a machine? They are gathered into one map first, so that the running system, a saved folder and a
//! bundle are read by the same code.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use crate::TopologyError;

/// More of one file is never read. The longest that is needed, `proc/cpuinfo` of a large machine, is reduced while reading.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Files, one of each, by path below the root.
const SINGLE: &[&str] = &[
    "proc/cpuinfo",
    "proc/meminfo",
    "proc/self/status",
    "proc/sys/kernel/numa_balancing",
    "proc/sys/vm/zone_reclaim_mode",
    "sys/devices/system/cpu/online",
    "sys/devices/system/node/has_cpu",
    "sys/devices/system/node/has_memory",
    "sys/devices/system/node/online",
    "sys/kernel/mm/numa/demotion_enabled",
    "sys/kernel/mm/transparent_hugepage/enabled",
];

/// Files below a numbered or named folder: parent, what the folder's name starts with, the files.
const REPEATED: &[(&str, &str, &[&str])] = &[
    ("sys/devices/system/node", "node", &["cpulist", "distance", "meminfo"]),
    (
        "sys/devices/system/cpu",
        "cpu",
        &["topology/core_id", "topology/physical_package_id", "topology/thread_siblings_list"],
    ),
    ("sys/devices/virtual/memory_tiering", "memory_tier", &["nodelist"]),
];

/// The text of every file that describes a machine, by path below the root (`sys/devices/system/node/online`). Long files
/// are kept only in part: of `proc/cpuinfo` the processor numbers and the first model name, of `proc/self/status` the lists
/// of allowed CPUs and nodes, of every `meminfo` the total, free and available memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capture {
    files: BTreeMap<String, String>,
    unreadable: BTreeMap<String, String>,
}

impl Capture {
    /// Reads the files below `root` (`/`, or a folder with a copy). Missing files are simply not there afterwards.
    pub fn from_root(root: &Path) -> Capture {
        let mut gather = Gather { root, capture: Capture::default() };
        gather.all();
        gather.capture
    }

    /// The text of one file.
    pub fn get(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Files that exist but could not be read, with the reason.
    pub fn unreadable(&self) -> impl Iterator<Item = (&str, &str)> {
        self.unreadable.iter().map(|(path, why)| (path.as_str(), why.as_str()))
    }

    /// All files, ascending by path.
    pub fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Adds or replaces a file. The path must be relative and plain (no `..`, no empty part); `false` if it isn't.
    pub fn insert(&mut self, path: &str, text: &str) -> bool {
        let plain = !path.is_empty()
            && !path.contains('\0')
            && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
        if plain {
            self.files.insert(path.to_owned(), text.to_owned());
        }
        plain
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether not one file was found.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Writes the files below `dir`, which is made if it isn't there.
    pub fn save(&self, dir: &Path) -> Result<(), TopologyError> {
        for (path, text) in self.files() {
            let path = dir.join(path);
            let write = || {
                if let Some(parent) = path.parent() {
                    fs::create_dir_all(parent)?;
                }
                fs::write(&path, text)
            };
            write().map_err(|source| TopologyError::Io { path: path.clone(), source })?;
        }
        Ok(())
    }

    /// Names of the folders and files directly below `dir` (without a slash at its end), ascending as text.
    pub(crate) fn children<'a>(&'a self, dir: &'a str) -> impl Iterator<Item = &'a str> {
        let mut previous = None;
        self.files
            .range::<str, _>((std::ops::Bound::Excluded(dir), std::ops::Bound::Unbounded))
            .map(|(path, _)| path.as_str())
            // Names such as `dir-2` sort between `dir` and `dir/`.
            .take_while(move |path| path.starts_with(dir))
            .filter_map(move |path| path[dir.len()..].strip_prefix('/'))
            .filter_map(|rest| rest.split('/').next())
            .filter(move |name| previous.replace(*name) != Some(*name))
    }

    /// The numbers N of folders `dir/<prefix>N`, ascending.
    pub(crate) fn numbered(&self, dir: &str, prefix: &str) -> Vec<usize> {
        let mut numbers: Vec<usize> = self.children(dir).filter_map(|name| number_after(name, prefix)).collect();
        numbers.sort_unstable();
        numbers
    }
}

fn number_after(name: &str, prefix: &str) -> Option<usize> {
    let digits = name.strip_prefix(prefix)?;
    let canonical = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    // Six digits are more than any kernel numbers; a damaged copy with more of them is not a CPU.
    if canonical && digits.len() < 6 { digits.parse().ok() } else { None }
}

struct Gather<'a> {
    root: &'a Path,
    capture: Capture,
}

impl Gather<'_> {
    fn all(&mut self) {
        for path in SINGLE {
            self.file(path);
        }
        for (parent, prefix, files) in REPEATED {
            for name in self.list(parent) {
                if number_after(&name, prefix).is_some() {
                    for file in *files {
                        self.file(&format!("{parent}/{name}/{file}"));
                    }
                }
            }
        }
        self.huge_pages();
        self.caches();
        self.weights();
        self.block_devices();
    }

    fn huge_pages(&mut self) {
        for node in self.list("sys/devices/system/node") {
            let dir = format!("sys/devices/system/node/{node}/hugepages");
            for size in self.list(&dir) {
                self.file(&format!("{dir}/{size}/nr_hugepages"));
                self.file(&format!("{dir}/{size}/free_hugepages"));
            }
        }
    }

    fn caches(&mut self) {
        for cpu in self.list("sys/devices/system/cpu") {
            if number_after(&cpu, "cpu").is_none() {
                continue;
            }
            let dir = format!("sys/devices/system/cpu/{cpu}/cache");
            for index in self.list(&dir) {
                let level = self.read(&format!("{dir}/{index}/level"));
                if level.is_some_and(|level| level.trim() == "3") {
                    for file in ["level", "size", "shared_cpu_list"] {
                        self.file(&format!("{dir}/{index}/{file}"));
                    }
                }
            }
        }
    }

    fn weights(&mut self) {
        const DIR: &str = "sys/kernel/mm/mempolicy/weighted_interleave";
        for node in self.list(DIR) {
            if number_after(&node, "node").is_some() {
                self.file(&format!("{DIR}/{node}"));
            }
        }
    }

    /// Devices with hardware behind them. Loop, RAM and device-mapper devices have no node of their own.
    fn block_devices(&mut self) {
        for name in self.list("sys/block") {
            let dir = format!("sys/block/{name}");
            if !self.root.join(&dir).join("device").exists() {
                continue;
            }
            for file in ["size", "queue/rotational"] {
                self.file(&format!("{dir}/{file}"));
            }
            let node = format!("{dir}/device/numa_node");
            if !self.file(&node) {
                self.node_of_ancestor(&dir).map(|text| self.capture.insert(&node, &text));
            }
        }
    }

    /// A disk hangs below its controller, the controller below a PCI function, and only one of them has `numa_node`: the
    /// nearest one upwards is taken.
    fn node_of_ancestor(&self, dir: &str) -> Option<String> {
        let real = fs::canonicalize(self.root.join(dir)).ok()?;
        real.ancestors()
            .take_while(|path| path.file_name() != Some(OsStr::new("devices")))
            .find_map(|path| read_some(&path.join("numa_node")).ok())
    }

    fn list(&self, dir: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.root.join(dir)) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries.filter_map(|e| e.ok()?.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }

    fn read(&mut self, path: &str) -> Option<String> {
        let file: PathBuf = self.root.join(path);
        match read_some(&file) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                self.capture.unreadable.insert(path.to_owned(), error.to_string());
                None
            }
        }
    }

    fn file(&mut self, path: &str) -> bool {
        let Some(text) = self.read(path) else {
            return false;
        };
        let text = match path {
            "proc/cpuinfo" => reduce_cpuinfo(&text),
            "proc/self/status" => keep_lines(&text, |line| line.contains("_allowed_list:")),
            _ if path.ends_with("/meminfo") => keep_lines(&text, is_memory_sum),
            _ => text,
        };
        self.capture.insert(path, &text)
    }
}

fn read_some(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn keep_lines(text: &str, mut keep: impl FnMut(&str) -> bool) -> String {
    text.lines().filter(|line| keep(line)).flat_map(|line| [line, "\n"]).collect()
}

fn is_memory_sum(line: &str) -> bool {
    ["MemTotal:", "MemFree:", "MemAvailable:"].iter().any(|field| line.contains(field))
}

fn reduce_cpuinfo(text: &str) -> String {
    let mut named = false;
    keep_lines(text, |line| {
        let model = line.starts_with("model name") && !std::mem::replace(&mut named, true);
        model || line.starts_with("processor")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Capture {
        let mut capture = Capture::default();
        for path in ["a/node10/x", "a/node2/x", "a/node2/y", "a/node2-old/x", "a/nodes", "a-b/node7/x"] {
            assert!(capture.insert(path, "1\n"));
        }
        capture
    }

    #[test]
    fn children_are_listed_once() {
        let capture = sample();
        let names: Vec<&str> = capture.children("a").collect();
        assert_eq!(names, ["node10", "node2-old", "node2", "nodes"]);
        assert_eq!(capture.numbered("a", "node"), [2, 10]);
    }

    #[test]
    fn paths_that_leave_the_folder_are_refused() {
        let mut capture = Capture::default();
        for path in ["", "/etc/passwd", "../x", "a/../../x", "./a"] {
            assert!(!capture.insert(path, ""), "{path}");
        }
    }

    #[test]
    fn a_saved_copy_reads_back_the_same() {
        let dir = std::env::temp_dir().join(format!("homenode-capture-{}", std::process::id()));
        let live = Capture::from_root(Path::new("/"));
        live.save(&dir).unwrap();
        let again = Capture::from_root(&dir);
        // Saved disks have no symbolic link to climb, and need none: the node is stored where it is looked for first.
        assert_eq!(live.files, again.files);
        fs::remove_dir_all(&dir).unwrap();
    }
}
