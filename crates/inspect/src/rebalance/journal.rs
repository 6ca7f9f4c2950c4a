//! Where was every page before? A text file, written before pages move, so that the move can be undone from any point.
//!
//! ```text
//! homenode-rebalance 1
//! process 4711 983211
//! piece 0 s 0:1 1027 4096 default
//! pages 0 0 16384 2
//! policy 0
//! ```
//!
//! A process is its number and its start time: numbers are used again. A piece has its number here, `s` (shared: device and
//! inode) or `p` (private: process and first address), the size of its pages, and the policy it had. `pages` says piece, first
//! unit, units, and the node they were on; `policy` that the piece's policy was changed.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::InspectError;

const HEAD: &str = "homenode-rebalance 1";

/// Which memory a piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceId {
    /// A shared object: device (major, minor) and inode.
    Shared(u32, u32, u64),
    /// A private mapping: process and first address.
    Private(u32, u64),
}

/// One line of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A process that had the memory, and when it started (clock ticks after boot).
    Process(u32, u64),
    /// Piece number, what it is, bytes of a unit, policy.
    Piece(usize, PieceId, u64, String),
    /// Piece, first unit, units, node.
    Pages(usize, u64, u64, usize),
    /// The piece's policy was changed.
    Policy(usize),
}

/// A journal being written.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
}

impl Journal {
    /// Opens a journal, going on behind what it holds.
    ///
    /// # Errors
    /// [`InspectError::Io`], and [`InspectError::Format`] for a file that is no journal: it is not overwritten.
    pub fn append(path: &Path) -> Result<Journal, InspectError> {
        if path.exists() {
            read(path)?;
            drop_half_line(path).map_err(|error| InspectError::io(path, error))?;
        }
        let file = OpenOptions::new().create(true).append(true).open(path).map_err(|e| InspectError::io(path, e))?;
        let mut journal = Journal { file, path: path.to_owned() };
        if journal.file.metadata().map_or(0, |meta| meta.len()) == 0 {
            journal.line(HEAD)?;
        }
        Ok(journal)
    }

    /// Writes entries; they are with the kernel when this returns, so they outlive this process.
    ///
    /// # Errors
    /// [`InspectError::Io`].
    pub fn write(&mut self, entries: &[Entry]) -> Result<(), InspectError> {
        let mut text = String::new();
        for entry in entries {
            // Writing to a String cannot fail.
            let _ = match entry {
                Entry::Process(pid, started) => writeln!(text, "process {pid} {started}"),
                Entry::Piece(number, PieceId::Shared(major, minor, inode), unit, policy) => {
                    writeln!(text, "piece {number} s {major}:{minor} {inode} {unit} {policy}")
                }
                Entry::Piece(number, PieceId::Private(pid, start), unit, policy) => {
                    writeln!(text, "piece {number} p {pid} {start} {unit} {policy}")
                }
                Entry::Pages(piece, first, count, node) => writeln!(text, "pages {piece} {first} {count} {node}"),
                Entry::Policy(piece) => writeln!(text, "policy {piece}"),
            };
        }
        self.line(text.trim_end())
    }

    fn line(&mut self, text: &str) -> Result<(), InspectError> {
        let written = self.file.write_all(format!("{text}\n").as_bytes());
        written.map_err(|error| InspectError::io(&self.path, error))
    }
}

/// Reads a journal. A last line without its line feed was being written when its writer was stopped: no page of it moved.
///
/// # Errors
/// [`InspectError::Io`]; [`InspectError::Format`] for a line that no journal has.
pub fn read(path: &Path) -> Result<Vec<Entry>, InspectError> {
    let text = fs::read_to_string(path).map_err(|error| InspectError::io(path, error))?;
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut lines = complete.lines().enumerate();
    if lines.next().map(|(_, line)| line) != Some(HEAD) {
        let first = text.lines().next().unwrap_or_default();
        return Err(InspectError::format(path, 1, "this is no journal of a rebalancing", first));
    }
    let parse = |(index, line): (usize, &str)| {
        parse_entry(line).ok_or_else(|| InspectError::format(path, index + 1, "the line is not understood", line))
    };
    lines.filter(|(_, line)| !line.is_empty()).map(parse).collect()
}

/// What follows the last line feed was never finished; what is appended must not become part of it.
fn drop_half_line(path: &Path) -> std::io::Result<()> {
    let bytes = fs::read(path)?;
    let complete = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    OpenOptions::new().write(true).open(path)?.set_len(complete as u64)
}

fn parse_entry(line: &str) -> Option<Entry> {
    let (kind, rest) = line.split_once(' ')?;
    let mut words = rest.splitn(6, ' ');
    let mut word = || words.next();
    Some(match kind {
        "process" => Entry::Process(word()?.parse().ok()?, word()?.parse().ok()?),
        "pages" => {
            Entry::Pages(word()?.parse().ok()?, word()?.parse().ok()?, word()?.parse().ok()?, word()?.parse().ok()?)
        }
        "policy" => Entry::Policy(word()?.parse().ok()?),
        "piece" => {
            let number = word()?.parse().ok()?;
            let id = match word()? {
                "s" => {
                    let (major, minor) = word()?.split_once(':')?;
                    PieceId::Shared(major.parse().ok()?, minor.parse().ok()?, word()?.parse().ok()?)
                }
                "p" => PieceId::Private(word()?.parse().ok()?, word()?.parse().ok()?),
                _ => return None,
            };
            Entry::Piece(number, id, word()?.parse().ok()?, word()?.to_owned())
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("homenode-journal-{name}-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        path
    }

    #[test]
    fn what_is_written_is_read_and_half_a_line_is_left_out() {
        let path = file("both");
        let entries = [
            Entry::Process(12, 34),
            Entry::Piece(0, PieceId::Shared(0, 1, 1027), 4096, "weighted interleave:0-3".to_owned()),
            Entry::Piece(1, PieceId::Private(12, 0x7f00_0000_0000), 2 << 20, "default".to_owned()),
            Entry::Pages(0, 0, 16_384, 2),
        ];
        Journal::append(&path).unwrap().write(&entries).unwrap();
        Journal::append(&path).unwrap().write(&[Entry::Policy(0)]).unwrap();
        let mut expected = entries.to_vec();
        expected.push(Entry::Policy(0));
        assert_eq!(read(&path).unwrap(), expected);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{text}pages 0 16384 5")).unwrap();
        assert_eq!(read(&path).unwrap(), expected);
        Journal::append(&path).unwrap().write(&[Entry::Policy(7)]).unwrap();
        expected.push(Entry::Policy(7));
        assert_eq!(read(&path).unwrap(), expected);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn another_file_is_not_overwritten() {
        let path = file("other");
        fs::write(&path, "precious\n").unwrap();
        assert!(matches!(Journal::append(&path), Err(InspectError::Format { .. })));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious\n");
        fs::remove_file(path).unwrap();
    }

    proptest! {
        #[test]
        fn any_line_is_safe(line in "(process|piece|pages|policy)( [0-9sp:x]{0,5}){0,7}") {
            let _ = parse_entry(&line);
        }
    }
}
