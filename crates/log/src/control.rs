//! Where does recovery start? The control file.
//!
//! Two equal copies, each in its half of the file, written one after the other with a sync in
//! between: a crash tears at most one. Written in place, so that a checkpoint on a full disk needs
//! no new space; only a copy that outgrows its half makes the file anew (beside it, then renamed).
//! A copy, little-endian:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `HNCNTROL` |
//! | 8 | 4 | format version |
//! | 12 | 4 | CRC-32C of bytes 16..52+n |
//! | 16 | 8 | number of the write: the higher of two valid copies counts |
//! | 24 | 8 | system identifier: chosen when the database was created |
//! | 32 | 8 | LSN that recovery starts at |
//! | 40 | 4 | flags: bit 0 clean shutdown; the others are zero |
//! | 44 | 4 | zero |
//! | 48 | 4 | n: bytes of the checkpoint |
//! | 52 | n | checkpoint, in the engine's own encoding |

use crate::{LogError, Lsn};
use homenode_platform::clock;
use homenode_platform::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// The version of the data folder; others are refused by name. 2: tables have an overflow tree and CHECK constraints in the catalog.
pub const FORMAT_VERSION: u32 = 2;

const MAGIC: &[u8; 8] = b"HNCNTROL";
const FIXED_BYTES: usize = 52;
/// The least size of a half.
const HALF_BYTES: usize = 64 << 10;
const FLAG_CLEAN: u32 = 1;

/// What the control file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// The version of the format it was written with.
    pub format_version: u32,
    /// Chosen when the database was created; kept by every [`write()`]. 0 in a fresh value.
    pub system_id: u64,
    /// The number of the write; set by [`write()`].
    pub sequence: u64,
    /// Where recovery starts to read the log.
    pub checkpoint_lsn: Lsn,
    /// The engine's checkpoint, opaque here.
    pub checkpoint: Vec<u8>,
    /// Whether the database was closed in order after this checkpoint.
    pub clean_shutdown: bool,
}

impl Control {
    /// A value to be written.
    pub fn new(checkpoint_lsn: Lsn, checkpoint: Vec<u8>, clean_shutdown: bool) -> Control {
        Control {
            format_version: FORMAT_VERSION,
            system_id: 0,
            sequence: 0,
            checkpoint_lsn,
            checkpoint,
            clean_shutdown,
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; FIXED_BYTES];
        let flags = if self.clean_shutdown { FLAG_CLEAN } else { 0 };
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        out[24..32].copy_from_slice(&self.system_id.to_le_bytes());
        out[32..40].copy_from_slice(&self.checkpoint_lsn.to_le_bytes());
        out[40..44].copy_from_slice(&flags.to_le_bytes());
        out[48..52].copy_from_slice(&(self.checkpoint.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.checkpoint);
        let crc = crc32c::crc32c(&out[16..]);
        out[12..16].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// A copy; `None` if it is not a valid one of a version that is known here.
    fn decode(copy: &[u8]) -> Option<Control> {
        let word = |at: usize| Some(u32::from_le_bytes(*copy.get(at..)?.first_chunk()?));
        let long = |at: usize| Some(u64::from_le_bytes(*copy.get(at..)?.first_chunk()?));
        let version = word(8)?;
        let checkpoint = copy.get(FIXED_BYTES..)?.get(..word(48)? as usize)?;
        let covered = &copy[16..FIXED_BYTES + checkpoint.len()];
        if !copy.starts_with(MAGIC) || version != FORMAT_VERSION || crc32c::crc32c(covered) != word(12)? {
            return None;
        }
        Some(Control {
            format_version: version,
            sequence: long(16)?,
            system_id: long(24)?,
            checkpoint_lsn: long(32)?,
            clean_shutdown: word(40)? & FLAG_CLEAN != 0,
            checkpoint: checkpoint.to_vec(),
        })
    }
}

fn path_of(dir: &Path) -> PathBuf {
    dir.join("control")
}

/// Reads the control file of a data folder; `None` if there is none.
///
/// # Errors
/// [`LogError::OtherFormat`], [`LogError::NotOurs`], [`LogError::Damaged`] (no copy is valid),
/// [`LogError::Io`].
pub fn read(dir: &Path) -> Result<Option<Control>, LogError> {
    let path = path_of(dir);
    match fs::read(&path) {
        Ok(bytes) => decode_file(&path, &bytes).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(LogError::io("read", &path)(error)),
    }
}

fn decode_file(path: &Path, bytes: &[u8]) -> Result<Control, LogError> {
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let copies = [Control::decode(first), Control::decode(second)];
    if let Some(control) = copies.into_iter().flatten().max_by_key(|control| control.sequence) {
        return Ok(control);
    }
    let ours = |copy: &[u8]| copy.starts_with(MAGIC);
    let version = |copy: &[u8]| {
        let word = copy.get(8..12)?.first_chunk()?;
        Some(u32::from_le_bytes(*word)).filter(|&version| ours(copy) && version != 0 && version != FORMAT_VERSION)
    };
    let path = path.to_path_buf();
    match version(first).or_else(|| version(second)) {
        Some(found) => Err(LogError::OtherFormat { path, found, supported: FORMAT_VERSION }),
        None if ours(first) || ours(second) => {
            Err(LogError::Damaged { path, offset: 0, lsn: 0, what: "neither copy's checksum is right" })
        }
        None => Err(LogError::NotOurs { path, kind: "control" }),
    }
}

/// Writes the control file of a data folder, durably. `sequence` and `system_id` are taken on from
/// the one that is there, which must be readable: nothing is overwritten that was not understood.
///
/// # Errors
/// As [`read`]; [`LogError::Io`].
pub fn write(dir: &Path, control: &Control) -> Result<(), LogError> {
    let path = path_of(dir);
    let before = read(dir)?;
    let next = Control {
        sequence: before.as_ref().map_or(0, |before| before.sequence) + 1,
        system_id: before.as_ref().map_or_else(|| clock::unix_time_us() as u64, |before| before.system_id),
        ..control.clone()
    };
    let copy = next.encode();
    if before.is_some() {
        let options = OpenOptions::new().read(true).write(true);
        let file = File::open(&path, &options).map_err(LogError::io("open", &path))?;
        let half = file.len().map_err(LogError::io("read", &path))? / 2;
        if copy.len() as u64 <= half {
            return write_in_place(&file, half, &copy).map_err(LogError::io("write", &path));
        }
    }
    let half = copy.len().next_power_of_two().max(HALF_BYTES);
    let mut whole = vec![0; 2 * half];
    whole[..copy.len()].copy_from_slice(&copy);
    whole[half..half + copy.len()].copy_from_slice(&copy);
    fs::write_atomic(&path, &whole).map_err(LogError::io("write", &path))
}

fn write_in_place(file: &File, half: u64, copy: &[u8]) -> io::Result<()> {
    // If a copy is damaged the other is the only one there is: it is overwritten last.
    let mut first = vec![0; half as usize];
    file.read_exact_at(&mut first, 0)?;
    let order = if Control::decode(&first).is_some() { [half, 0] } else { [0, half] };
    for offset in order {
        file.write_all_at(copy, offset)?;
        file.sync_data()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("homenode-control-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn what_was_written_is_read_and_grows() {
        let dir = folder("grow");
        assert_eq!(read(&dir).unwrap(), None);
        for (n, bytes) in [0usize, 10, 70_000, 100, 300_000].into_iter().enumerate() {
            write(&dir, &Control::new(n as u64 * 8, vec![n as u8; bytes], n % 2 == 1)).unwrap();
            let back = read(&dir).unwrap().unwrap();
            assert_eq!(
                (back.checkpoint_lsn, back.checkpoint, back.clean_shutdown),
                (n as u64 * 8, vec![n as u8; bytes], n % 2 == 1)
            );
            assert_eq!(back.sequence, n as u64 + 1);
            assert_ne!(back.system_id, 0);
        }
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn any_flipped_bit_of_one_copy_is_survived() {
        let dir = folder("flip");
        write(&dir, &Control::new(65536, vec![7; 40], false)).unwrap();
        let good = std::fs::read(dir.join("control")).unwrap();
        let expected = read(&dir).unwrap().unwrap();
        for start in [0, good.len() / 2] {
            for bit in 0..(FIXED_BYTES + 40) * 8 {
                let mut bad = good.clone();
                bad[start + bit / 8] ^= 1 << (bit % 8);
                assert_eq!(decode_file(Path::new("control"), &bad).unwrap(), expected);
            }
        }
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn what_is_not_understood_is_refused_by_name_and_kept() {
        let dir = folder("refuse");
        write(&dir, &Control::new(65536, vec![], false)).unwrap();
        let path = dir.join("control");
        let good = std::fs::read(&path).unwrap();
        let half = good.len() / 2;
        let both = |change: &dyn Fn(&mut [u8])| {
            let mut bad = good.clone();
            change(&mut bad[..half]);
            change(&mut bad[half..]);
            std::fs::write(&path, &bad).unwrap();
            let error = write(&dir, &Control::new(0, vec![], false)).unwrap_err();
            assert_eq!(std::fs::read(&path).unwrap(), bad);
            error
        };
        for version in [1, 9] {
            let error = both(&|copy| copy[8] = version);
            let named = matches!(error, LogError::OtherFormat { found, supported: FORMAT_VERSION, .. } if found == version.into());
            assert!(named, "{error}");
        }
        assert!(matches!(both(&|copy| copy[0] = b'X'), LogError::NotOurs { .. }));
        assert!(matches!(both(&|copy| copy[33] ^= 1), LogError::Damaged { .. }));
        std::fs::write(&path, b"").unwrap();
        assert!(matches!(read(&dir), Err(LogError::NotOurs { .. })));
        std::fs::remove_dir_all(dir).unwrap();
    }
}
