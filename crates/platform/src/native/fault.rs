//! What if the disk fails? Faults asked for by a test through the environment.
//!
//! `HOMENODE_TEST_FAULT` is read once, when the first file is opened. Unset, files carry no fault
//! and the cost is one null check an operation. Its value is a comma-separated list of:
//!
//! - `fsync:N`: the Nth sync of the process (1 is the first) fails with `EIO`;
//! - `write:N`: the Nth write fails with `EIO`;
//! - `write-enospc:BYTES`: once that many bytes have been written, every write and every
//!   reservation of space fails with `ENOSPC`.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// The name of the environment variable.
pub const VARIABLE: &str = "HOMENODE_TEST_FAULT";

/// The faults asked for, and how far the process is.
#[derive(Debug, Default)]
pub(super) struct Fault {
    fail_sync: Option<u64>,
    fail_write: Option<u64>,
    space_bytes: Option<u64>,
    syncs: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
}

pub(super) fn from_environment() -> Option<Arc<Fault>> {
    static FAULT: OnceLock<Option<Arc<Fault>>> = OnceLock::new();
    FAULT
        .get_or_init(|| {
            let text = std::env::var(VARIABLE).ok()?;
            Some(Arc::new(Fault::parse(&text).unwrap_or_else(|| panic!("{VARIABLE}={text}: not a list of faults"))))
        })
        .clone()
}

impl Fault {
    fn parse(text: &str) -> Option<Fault> {
        let mut fault = Fault::default();
        for part in text.split(',') {
            let (what, number) = part.trim().split_once(':')?;
            let number = Some(number.parse().ok()?);
            match what {
                "fsync" => fault.fail_sync = number,
                "write" => fault.fail_write = number,
                "write-enospc" => fault.space_bytes = number,
                _ => return None,
            }
        }
        Some(fault)
    }

    pub(super) fn before_sync(&self) -> io::Result<()> {
        let number = self.syncs.fetch_add(1, Relaxed) + 1;
        if self.fail_sync == Some(number) { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
    }

    pub(super) fn before_write(&self, bytes: usize) -> io::Result<()> {
        let number = self.writes.fetch_add(1, Relaxed) + 1;
        if self.fail_write == Some(number) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let written = self.written_bytes.fetch_add(bytes as u64, Relaxed);
        match self.space_bytes {
            Some(space) if written + bytes as u64 > space => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nth_sync_fails_and_the_disk_fills() {
        let fault = Fault::parse("fsync:2, write-enospc:100").unwrap();
        assert!(fault.before_sync().is_ok());
        assert_eq!(fault.before_sync().unwrap_err().raw_os_error(), Some(libc::EIO));
        assert!(fault.before_sync().is_ok());
        assert!(fault.before_write(100).is_ok());
        assert_eq!(fault.before_write(1).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
        assert_eq!(fault.before_write(1).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "fsync", "fsync:x", "sync:1"] {
            assert!(Fault::parse(text).is_none(), "{text}");
        }
    }
}
