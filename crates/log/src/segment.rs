//! How does the log's stream lie in files?
//!
//! A segment `log-<LSN where it starts, 16 hex digits>` is a 4 KiB header and then bytes of the
//! stream; records run on from one segment into the next. Its whole length is allocated *and written*
//! before it gets its name, so that a later `fdatasync` of the log finds no metadata to write and
//! a full disk is met here and not by a commit. Header, little-endian:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `HNLOGSEG` |
//! | 8 | 4 | format version |
//! | 12 | 4 | CRC-32C of bytes 16..40 |
//! | 16 | 8 | LSN of the first byte after the header |
//! | 24 | 8 | bytes of stream that fit |
//! | 32 | 8 | salt of the records in it ([`record`](crate::record)) |
//! | 40 | | zeros up to 4096 |
//!
//! Each opening of a log starts a new segment at its end, with a new salt. A segment may therefore
//! be cut short by the next one: it reaches to where the next one starts. Files under other names
//! (`spare-*`, `new-*`) are no part of the log; they are removed when it is opened.

use crate::{LogError, Lsn};
use homenode_platform::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// The version written; newer ones are refused.
pub const FORMAT_VERSION: u32 = 1;
/// Bytes before the stream's bytes.
pub const HEADER_BYTES: u64 = 4096;

const MAGIC: &[u8; 8] = b"HNLOGSEG";
const ZEROS: usize = 1 << 18;

/// What a segment's header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentHeader {
    /// LSN of the first byte after the header.
    pub start: Lsn,
    /// Bytes of stream that fit.
    pub bytes: u64,
    /// Salt of the records' checksums.
    pub salt: u64,
}

impl SegmentHeader {
    fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; HEADER_BYTES as usize];
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[16..24].copy_from_slice(&self.start.to_le_bytes());
        out[24..32].copy_from_slice(&self.bytes.to_le_bytes());
        out[32..40].copy_from_slice(&self.salt.to_le_bytes());
        let crc = crc32c::crc32c(&out[16..40]);
        out[12..16].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads and checks the header of the segment at `path`, which is named as starting at `start`.
    ///
    /// # Errors
    /// [`LogError::NotOurs`], [`LogError::OtherFormat`], [`LogError::Damaged`], [`LogError::Io`].
    pub fn read(path: &Path, start: Lsn, file: &File) -> Result<SegmentHeader, LogError> {
        let mut bytes = [0u8; 40];
        let damaged = |what| LogError::Damaged { path: path.to_path_buf(), offset: 0, lsn: start, what };
        match file.read_exact_at(&mut bytes, 0) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(damaged("the file ends within its header"));
            }
            Err(error) => return Err(LogError::io("read", path)(error)),
        }
        if &bytes[..8] != MAGIC {
            return Err(LogError::NotOurs { path: path.to_path_buf(), kind: "log" });
        }
        let word = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("40 bytes"));
        let long = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("40 bytes"));
        if word(8) > FORMAT_VERSION {
            return Err(LogError::OtherFormat { path: path.to_path_buf(), found: word(8), supported: FORMAT_VERSION });
        }
        if crc32c::crc32c(&bytes[16..40]) != word(12) || word(8) == 0 {
            return Err(damaged("the segment header's checksum is wrong"));
        }
        let header = SegmentHeader { start: long(16), bytes: long(24), salt: long(32) };
        let sane = header.start == start
            && header.start.is_multiple_of(8)
            && header.bytes.is_multiple_of(8)
            && header.bytes <= 1 << 40
            && header.start < 1 << 62;
        if sane { Ok(header) } else { Err(damaged("the segment header does not fit the file's name")) }
    }
}

/// The path of the segment that starts at `start`.
pub fn path_of(dir: &Path, start: Lsn) -> PathBuf {
    dir.join(format!("log-{start:016x}"))
}

/// Where a segment of this name starts; `None` if it is no segment's name.
pub fn start_of(name: &str) -> Option<Lsn> {
    let digits = name.strip_prefix("log-")?;
    let canonical = digits.len() == 16 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if canonical { Lsn::from_str_radix(digits, 16).ok() } else { None }
}

/// The starts of all segments in `dir`, ascending.
///
/// # Errors
/// [`LogError::Io`].
pub fn list(dir: &Path) -> Result<Vec<Lsn>, LogError> {
    let names = fs::list_dir(dir).map_err(LogError::io("list", dir))?;
    let mut starts: Vec<Lsn> = names.iter().filter_map(|name| start_of(name)).collect();
    starts.sort_unstable();
    Ok(starts)
}

/// A segment open for writing.
pub(crate) struct Segment {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    pub(crate) start: Lsn,
    pub(crate) bytes: u64,
}

impl Segment {
    pub(crate) fn end(&self) -> Lsn {
        self.start + self.bytes
    }

    /// The byte of the file that holds stream position `lsn`.
    pub(crate) fn offset(&self, lsn: Lsn) -> u64 {
        HEADER_BYTES + (lsn - self.start)
    }
}

/// A file that holds a segment no longer needed, to be reused.
pub(crate) struct Spare {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

/// Makes a segment: allocated, zeroed, synced, and only then named. It takes the place of one that has
/// that name, so that at no moment there is none.
pub(crate) fn make(dir: &Path, header: SegmentHeader) -> Result<Segment, LogError> {
    let temporary = dir.join(format!("new-{:016x}", header.start));
    let made = fill_new(&temporary, &header).and_then(|file| install(dir, &temporary, file, header));
    if made.is_err() {
        // The file is in nobody's way; what matters is the first error.
        let _ = fs::remove_file(&temporary);
    }
    made
}

fn fill_new(path: &Path, header: &SegmentHeader) -> Result<File, LogError> {
    let options = OpenOptions::new().read(true).write(true).create(true).truncate(true);
    let file = File::open(path, &options).map_err(LogError::io("create", path))?;
    let total = HEADER_BYTES + header.bytes;
    file.allocate(0, total).map_err(LogError::io("allocate", path))?;
    let zeros = vec![0; ZEROS];
    let mut at = HEADER_BYTES;
    while at < total {
        let n = (total - at).min(ZEROS as u64);
        file.write_all_at(&zeros[..n as usize], at).map_err(LogError::io("write", path))?;
        at += n;
    }
    file.write_all_at(&header.encode(), 0).map_err(LogError::io("write", path))?;
    file.sync_all().map_err(LogError::io("sync", path))?;
    Ok(file)
}

/// Makes a segment of a spare file. Its old records stay where they are: their LSNs and the salt
/// in their checksums cannot fit their new places.
pub(crate) fn recycle(dir: &Path, spare: &Spare, header: SegmentHeader) -> Result<Segment, LogError> {
    let options = OpenOptions::new().read(true).write(true);
    let file = File::open(&spare.path, &options).map_err(LogError::io("open", &spare.path))?;
    file.write_all_at(&header.encode(), 0).map_err(LogError::io("write", &spare.path))?;
    file.sync_all().map_err(LogError::io("sync", &spare.path))?;
    install(dir, &spare.path, file, header)
}

fn install(dir: &Path, from: &Path, file: File, header: SegmentHeader) -> Result<Segment, LogError> {
    let path = path_of(dir, header.start);
    fs::rename(from, &path).map_err(LogError::io("rename", from))?;
    fs::sync_dir(dir).map_err(LogError::io("sync", dir))?;
    Ok(Segment { file, path, start: header.start, bytes: header.bytes })
}

/// Takes the segment that starts at `start` out of the log, durably.
pub(crate) fn retire(dir: &Path, start: Lsn, bytes: u64) -> Result<Spare, LogError> {
    let from = path_of(dir, start);
    let path = dir.join(format!("spare-{start:016x}"));
    fs::rename(&from, &path).map_err(LogError::io("rename", &from))?;
    fs::sync_dir(dir).map_err(LogError::io("sync", dir))?;
    Ok(Spare { path, bytes })
}

/// Removes files that an interrupted preparation or truncation left.
pub(crate) fn remove_leftovers(dir: &Path) -> Result<(), LogError> {
    for name in fs::list_dir(dir).map_err(LogError::io("list", dir))? {
        let digits = name.strip_prefix("new-").or_else(|| name.strip_prefix("spare-"));
        if digits.is_some_and(|digits| start_of(&format!("log-{digits}")).is_some()) {
            let path = dir.join(name);
            fs::remove_file(&path).map_err(LogError::io("remove", &path))?;
        }
    }
    Ok(())
}
