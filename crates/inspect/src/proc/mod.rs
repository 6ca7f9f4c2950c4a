//! What does Linux show about processes? The files below `/proc`, each with a reader that refuses what it doesn't know.

mod fields;
mod maps;
mod numa_maps;
mod pagemap;
mod process;
mod records;
mod smaps;

pub use fields::{Counters, Meminfo, parse_counters, parse_meminfo};
pub use maps::{Mapping, parse_maps_line};
pub use numa_maps::{NumaLine, parse_numa_line};
pub use pagemap::{FrameFlags, PageEntry, Pagemap};
pub use process::{Process, cpu_seconds, has_capability, processes};
pub use records::Records;
pub use smaps::{Marks, marks, read_marks};

use std::io;
use std::path::{Path, PathBuf};

use crate::InspectError;

/// A file of a process.
pub fn path(pid: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

/// What an error about a process's file means: gone, forbidden, or something else.
pub fn explain(pid: u32, path: &Path, error: io::Error) -> InspectError {
    // ESRCH: the file was open already when the process ended.
    const ESRCH: i32 = 3;
    if error.kind() == io::ErrorKind::NotFound && !Path::new(&format!("/proc/{pid}")).exists()
        || error.raw_os_error() == Some(ESRCH)
    {
        return InspectError::Vanished(pid);
    }
    if error.kind() == io::ErrorKind::PermissionDenied {
        return InspectError::NotPermitted {
            what: format!("reading {}", path.display()),
            needs: "run as the same user or as root (CAP_SYS_PTRACE); in a container also its filter must allow it",
        };
    }
    InspectError::io(path, error)
}
