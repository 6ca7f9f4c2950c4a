//! Which mappings have huge pages that the kernel made by itself, and which are kept out of core dumps? `/proc/PID/smaps`
//! (Documentation/filesystems/proc.rst).

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use super::{explain, parse_maps_line, path};
use crate::InspectError;

/// First addresses of the mappings of a process that have transparent huge pages.
///
/// # Errors
/// [`InspectError::NotPermitted`], [`InspectError::Vanished`], [`InspectError::Format`].
pub fn thp_mappings(pid: u32) -> Result<BTreeSet<u64>, InspectError> {
    open(pid).and_then(|(input, path)| read_thp(input, &path))
}

/// First addresses of the mappings of a process that its core dumps leave out (`MADV_DONTDUMP`).
///
/// # Errors
/// As [`thp_mappings`].
pub fn undumped_mappings(pid: u32) -> Result<BTreeSet<u64>, InspectError> {
    open(pid).and_then(|(input, path)| read_undumped(input, &path))
}

fn open(pid: u32) -> Result<(BufReader<File>, PathBuf), InspectError> {
    let path = path(pid, "smaps");
    let file = File::open(&path).map_err(|error| explain(pid, &path, error))?;
    Ok((BufReader::new(file), path))
}

/// As [`thp_mappings`], from any input; `path` is for errors. Holds one line at a time.
///
/// # Errors
/// [`InspectError::Format`], [`InspectError::Io`].
pub fn read_thp(input: impl BufRead, path: &Path) -> Result<BTreeSet<u64>, InspectError> {
    const FIELDS: [&str; 3] = ["AnonHugePages", "ShmemPmdMapped", "FilePmdMapped"];
    select(input, path, |name, value| {
        if !FIELDS.contains(&name) {
            return Ok(false);
        }
        let kib: Option<u64> = value.trim().strip_suffix(" kB").and_then(|number| number.trim().parse().ok());
        kib.map(|kib| kib > 0).ok_or("an amount is not in kB")
    })
}

/// As [`undumped_mappings`], from any input.
///
/// # Errors
/// As [`read_thp`].
pub fn read_undumped(input: impl BufRead, path: &Path) -> Result<BTreeSet<u64>, InspectError> {
    select(input, path, |name, value| Ok(name == "VmFlags" && value.split_ascii_whitespace().any(|flag| flag == "dd")))
}

/// First addresses of the mappings for one of whose fields `holds` says so.
fn select(
    mut input: impl BufRead,
    path: &Path,
    holds: impl Fn(&str, &str) -> Result<bool, &'static str>,
) -> Result<BTreeSet<u64>, InspectError> {
    let mut found = BTreeSet::new();
    let (mut line, mut start) = (Vec::new(), None);
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
            continue;
        };
        if holds(name, value).map_err(wrong)? {
            found.insert(start.ok_or_else(|| wrong("a field comes before any mapping"))?);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "7f0000000000-7f0008000000 rw-p 00000000 00:00 0 \nSize:  131072 kB\nAnonHugePages:    120832 kB\n\
        ShmemPmdMapped:        0 kB\nTHPeligible:           1\nVmFlags: rd wr mr mw me ac sd hg dd \n\
        7f0008000000-7f0008001000 r--p 00000000 fd:01 7 /lib/a: b.so\nAnonHugePages:         0 kB\n";

    #[test]
    fn mappings_with_huge_pages_are_found() {
        let found = read_thp(TEXT.as_bytes(), Path::new("smaps")).unwrap();
        assert_eq!(found, BTreeSet::from([0x7f00_0000_0000]));
        assert!(thp_mappings(std::process::id()).is_ok());
        assert_eq!(read_undumped(TEXT.as_bytes(), Path::new("smaps")).unwrap(), BTreeSet::from([0x7f00_0000_0000]));
        assert!(undumped_mappings(std::process::id()).is_ok());
    }

    #[test]
    fn other_forms_are_refused() {
        for text in ["AnonHugePages: 1 kB\n", "1-2 r--p 0 00:00 0\nAnonHugePages: 1\n", "nonsense\n"] {
            assert!(
                matches!(read_thp(text.as_bytes(), Path::new("smaps")), Err(InspectError::Format { .. })),
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn damage_is_safe(at in 0usize..300, byte: u8) {
            let mut bytes = TEXT.as_bytes().to_vec();
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = read_thp(&bytes[..], Path::new("smaps"));
            let _ = read_undumped(&bytes[..], Path::new("smaps"));
        }
    }
}
