//! Which mappings have huge pages, and which are kept out of core dumps? `/proc/PID/smaps` (Documentation/filesystems/proc.rst).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use super::{explain, parse_maps_line, path};
use crate::InspectError;

/// What a process's mappings are besides what `maps` says. Each is named by its first address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Those that have huge pages which the kernel made by itself.
    pub joined: BTreeSet<u64>,
    /// Those that consist of reserved huge pages, with the size of one in bytes.
    pub reserved: BTreeMap<u64, u64>,
    /// Those that core dumps leave out (`MADV_DONTDUMP`).
    pub undumped: BTreeSet<u64>,
}

/// Reads what a process's mappings are. The kernel walks all of its page tables for this.
///
/// # Errors
/// [`InspectError::NotPermitted`], [`InspectError::Vanished`], [`InspectError::Format`].
pub fn marks(pid: u32) -> Result<Marks, InspectError> {
    let path = path(pid, "smaps");
    let file = File::open(&path).map_err(|error| explain(pid, &path, error))?;
    read_marks(BufReader::new(file), &path).map_err(|error| match error {
        // Reading goes on after a process ended, with an error.
        InspectError::Io { path, source } => explain(pid, &path, source),
        other => other,
    })
}

/// As [`marks`], from any input; `path` is for errors. Holds one line at a time.
///
/// # Errors
/// [`InspectError::Format`], [`InspectError::Io`].
pub fn read_marks(mut input: impl BufRead, path: &Path) -> Result<Marks, InspectError> {
    const JOINED: [&str; 3] = ["AnonHugePages", "ShmemPmdMapped", "FilePmdMapped"];
    let mut marks = Marks::default();
    let (mut line, mut start, mut page_bytes) = (Vec::new(), None, 0);
    for number in 1.. {
        line.clear();
        if input.read_until(b'\n', &mut line).map_err(|error| InspectError::io(path, error))? == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches('\n');
        let wrong = |why| InspectError::format(path, number, why, text);
        // A range has no colon in its first word, a field ends its name with one.
        let Some((name, value)) = text.split_once(':').filter(|(name, _)| !name.contains(' ')) else {
            start = Some(parse_maps_line(text).map_err(wrong)?.start);
            page_bytes = 0;
            continue;
        };
        let start = || start.ok_or_else(|| wrong("a field comes before any mapping"));
        if JOINED.contains(&name) && bytes(value).map_err(wrong)? > 0 {
            marks.joined.insert(start()?);
        } else if name == "KernelPageSize" {
            page_bytes = bytes(value).map_err(wrong)?;
        } else if name == "VmFlags" {
            let has = |flag| value.split_ascii_whitespace().any(|word| word == flag);
            if has("dd") {
                marks.undumped.insert(start()?);
            }
            if has("ht") && page_bytes > 0 {
                marks.reserved.insert(start()?, page_bytes);
            }
        }
    }
    Ok(marks)
}

fn bytes(value: &str) -> Result<u64, &'static str> {
    let kib: Option<u64> = value.trim().strip_suffix(" kB").and_then(|number| number.trim().parse().ok());
    kib.and_then(|kib| kib.checked_mul(1024)).ok_or("an amount is not in kB")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "7f0000000000-7f0008000000 rw-p 00000000 00:00 0 \nSize:  131072 kB\nKernelPageSize:        4 kB\n\
        AnonHugePages:    120832 kB\nShmemPmdMapped:        0 kB\nTHPeligible:           1\nVmFlags: rd wr mr mw me ac sd hg dd \n\
        7f0008000000-7f0008001000 r--p 00000000 fd:01 7 /lib/a: b.so\nAnonHugePages:         0 kB\n\
        7f0010000000-7f0010400000 rw-s 00000000 00:0f 3 /SYSV00000000 (deleted)\nKernelPageSize:     2048 kB\nVmFlags: rd wr sh ht \n";

    #[test]
    fn mappings_with_huge_pages_are_found() {
        let marks = read_marks(TEXT.as_bytes(), Path::new("smaps")).unwrap();
        assert_eq!(marks.joined, BTreeSet::from([0x7f00_0000_0000]));
        assert_eq!(marks.undumped, BTreeSet::from([0x7f00_0000_0000]));
        assert_eq!(marks.reserved, BTreeMap::from([(0x7f00_1000_0000, 2 << 20)]));
        assert!(super::marks(std::process::id()).is_ok());
    }

    #[test]
    fn other_forms_are_refused() {
        for text in ["AnonHugePages: 1 kB\n", "1-2 r--p 0 00:00 0\nAnonHugePages: 1\n", "nonsense\n"] {
            assert!(
                matches!(read_marks(text.as_bytes(), Path::new("smaps")), Err(InspectError::Format { .. })),
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn damage_is_safe(at in 0usize..500, byte: u8) {
            let mut bytes = TEXT.as_bytes().to_vec();
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = read_marks(&bytes[..], Path::new("smaps"));
        }
    }
}
