//! What does the log say after a crash? Reading it back, and where it ends.
//!
//! A reader ends at the first place that holds no valid record, and has then to say which of two it is:
//! the **torn tail** that every crash may leave, whose records nobody was promised, or **damage** to
//! records that had been durable. It is damage if anything later proves so: a valid record that carries a
//! durable mark beyond the place ([`record`](crate::record)), a later life of the log (it started where
//! recovery had read to), a file that is shorter than it was made, a segment that is missing.

use crate::record::{self, Header};
use crate::segment::{self, HEADER_BYTES, SegmentHeader};
use crate::{LogError, Lsn};
use homenode_platform::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

/// Bytes read at once.
const CHUNK: usize = 1 << 20;

/// A record, borrowed from the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRef<'a> {
    /// Its position.
    pub start: Lsn,
    /// The first byte after it.
    pub end: Lsn,
    /// What it means to the engine.
    pub kind: u8,
    /// Its bytes.
    pub payload: &'a [u8],
}

/// A record with its own bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its position.
    pub start: Lsn,
    /// The first byte after it.
    pub end: Lsn,
    /// What it means to the engine.
    pub kind: u8,
    /// Its bytes.
    pub payload: Vec<u8>,
}

/// How a log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Nothing was written after the last record.
    Clean,
    /// Something was written after it that is no record: a flush that a crash interrupted.
    Torn,
}

/// Starts reading at `from`, which must be a record's start or the end of the log.
///
/// # Errors
/// [`LogError::Missing`] if no segment holds `from`; [`LogError::OtherFormat`], [`LogError::NotOurs`],
/// [`LogError::Damaged`] for a segment's header; [`LogError::Io`].
pub fn scan(dir: &Path, from: Lsn) -> Result<LogReader, LogError> {
    let parts = parts(dir, from)?;
    let missing = LogError::Missing { path: dir.to_path_buf(), lsn: from };
    let covered = parts.first().is_some_and(|part| part.start <= from && from <= part.end);
    if !covered || !from.is_multiple_of(record::ALIGN as u64) {
        return Err(missing);
    }
    Ok(LogReader {
        stream: Stream { dir: dir.to_path_buf(), parts, open: None, buffer: Vec::new(), at: from },
        at: from,
        tail: None,
    })
}

/// The start of the oldest record that is still there as a whole; `None` if there is none. For reading
/// all of a log: its oldest segment may begin within a record.
///
/// # Errors
/// As [`scan`].
pub fn oldest_record(dir: &Path) -> Result<Option<Lsn>, LogError> {
    let Some(&from) = segment::list(dir)?.first() else { return Ok(None) };
    let mut reader = scan(dir, from)?;
    let limit = from + record::MAX_PAYLOAD as u64 + 64;
    Ok(reader.stream.next_valid(from, limit)?.map(|found| found.lsn))
}

/// Reads records in order.
pub struct LogReader {
    stream: Stream,
    at: Lsn,
    tail: Option<Tail>,
}

impl LogReader {
    /// The next record; `None` at the end of the log, then [`end`](LogReader::end) and
    /// [`tail`](LogReader::tail) say where and how.
    ///
    /// # Errors
    /// [`LogError::Damaged`], [`LogError::Missing`]: records that had been durable cannot be read;
    /// [`LogError::Io`].
    pub fn next_record(&mut self) -> Result<Option<RecordRef<'_>>, LogError> {
        if self.tail.is_some() {
            return Ok(None);
        }
        let at = self.at;
        match self.stream.record_at(at)? {
            Some((header, _)) => {
                let shape = header.shape;
                self.at = at + shape.total_bytes() as u64;
                let bytes = self.stream.peek(at, shape.total_bytes())?;
                let payload = &bytes[shape.prefix_bytes()..][..shape.payload];
                Ok(Some(RecordRef { start: at, end: self.at, kind: shape.kind, payload }))
            }
            None => {
                self.tail = Some(self.stream.judge_end(at)?);
                Ok(None)
            }
        }
    }

    /// The first byte after the last record read: after the last one, where the log goes on.
    pub fn end(&self) -> Lsn {
        self.at
    }

    /// How the log ends, once it has been read to its end.
    pub fn tail(&self) -> Option<Tail> {
        self.tail
    }

    /// Once the log has been read to its end: checks that it reaches `known`, a position known from
    /// elsewhere to have been durable.
    ///
    /// # Errors
    /// [`LogError::TooShort`].
    pub fn require(&self, known: Lsn) -> Result<(), LogError> {
        if self.at < known {
            return Err(LogError::TooShort { path: self.stream.dir.clone(), end: self.at, known });
        }
        Ok(())
    }
}

impl Iterator for LogReader {
    type Item = Result<Record, LogError>;

    /// As [`next_record`](LogReader::next_record), copying the payload.
    fn next(&mut self) -> Option<Result<Record, LogError>> {
        let owned = |record: RecordRef<'_>| Record {
            start: record.start,
            end: record.end,
            kind: record.kind,
            payload: record.payload.to_vec(),
        };
        self.next_record().map(|record| record.map(owned)).transpose()
    }
}

/// One segment, as far as the stream lies in it.
struct Part {
    path: PathBuf,
    /// LSN of its first byte.
    start: Lsn,
    /// Its capacity, or where the next segment starts.
    end: Lsn,
    salt: u64,
}

/// The segments from the one that holds `from` on.
fn parts(dir: &Path, from: Lsn) -> Result<Vec<Part>, LogError> {
    let starts = segment::list(dir)?;
    // A position where one segment ends and the next starts belongs to the next.
    let first = starts.partition_point(|&start| start <= from).saturating_sub(1);
    let mut parts: Vec<Part> = Vec::new();
    for &start in &starts[first.min(starts.len())..] {
        let path = segment::path_of(dir, start);
        let file = File::open(&path, &OpenOptions::new().read(true)).map_err(LogError::io("open", &path))?;
        let header = SegmentHeader::read(&path, start, &file)?;
        if let Some(before) = parts.last_mut() {
            before.end = before.end.min(start);
        }
        parts.push(Part { path, start, end: start + header.bytes, salt: header.salt });
    }
    Ok(parts)
}

/// A valid record found while looking for one.
struct Found {
    lsn: Lsn,
    mark: Lsn,
}

/// The bytes of the stream, over all segments, with a window kept in memory.
struct Stream {
    dir: PathBuf,
    parts: Vec<Part>,
    /// Index of the open file.
    open: Option<(usize, File)>,
    /// Bytes from `at` on.
    buffer: Vec<u8>,
    at: Lsn,
}

impl Stream {
    /// Up to `bytes` bytes at `lsn`: fewer only where the stream ends.
    fn peek(&mut self, lsn: Lsn, bytes: usize) -> Result<&[u8], LogError> {
        if lsn < self.at || lsn > self.at + self.buffer.len() as u64 {
            self.buffer.clear();
            self.at = lsn;
        }
        if self.buffer.len() < (lsn - self.at) as usize + bytes {
            self.buffer.drain(..(lsn - self.at) as usize);
            self.at = lsn;
            self.fill(bytes)?;
        }
        let skip = (lsn - self.at) as usize;
        let available = (self.buffer.len() - skip).min(bytes);
        Ok(&self.buffer[skip..skip + available])
    }

    /// Reads until the window has `bytes` or the stream ends.
    fn fill(&mut self, bytes: usize) -> Result<(), LogError> {
        while self.buffer.len() < bytes {
            let lsn = self.at + self.buffer.len() as u64;
            let Some(index) = self.parts.iter().position(|part| part.start <= lsn && lsn < part.end) else {
                return Ok(());
            };
            let wanted = (self.parts[index].end - lsn).min(bytes.max(CHUNK) as u64) as usize;
            let filled = self.buffer.len();
            self.buffer.resize(filled + wanted, 0);
            let part = &self.parts[index];
            let offset = HEADER_BYTES + (lsn - part.start);
            let file = match &self.open {
                Some((open, file)) if *open == index => file,
                _ => {
                    let file = File::open(&part.path, &OpenOptions::new().read(true))
                        .map_err(LogError::io("open", &part.path))?;
                    &self.open.insert((index, file)).1
                }
            };
            let n = file.read_at(&mut self.buffer[filled..], offset).map_err(LogError::io("read", &part.path))?;
            self.buffer.truncate(filled + n);
            if n == 0 {
                // Made in full length before it got its name, so no crash can have shortened it.
                return Err(LogError::Damaged {
                    path: part.path.clone(),
                    offset,
                    lsn,
                    what: "the file is shorter than it was made",
                });
            }
        }
        Ok(())
    }

    fn part(&self, lsn: Lsn) -> Option<&Part> {
        self.parts.iter().find(|part| part.start <= lsn && lsn < part.end)
    }

    /// The record at `lsn`, if there is a valid one, with its mark (0 without).
    fn record_at(&mut self, lsn: Lsn) -> Result<Option<(Header, Lsn)>, LogError> {
        let Some(salt) = self.part(lsn).map(|part| part.salt) else { return Ok(None) };
        let Some(bytes) = self.peek(lsn, record::HEADER_BYTES)?.first_chunk() else { return Ok(None) };
        let header = Header::decode(bytes);
        if header.lsn != lsn {
            return Ok(None);
        }
        let bytes = self.peek(lsn, header.shape.total_bytes())?;
        Ok(record::verify(lsn, salt, bytes))
    }

    /// The first valid record that starts in `from..limit`.
    fn next_valid(&mut self, from: Lsn, limit: Lsn) -> Result<Option<Found>, LogError> {
        let mut lsn = from;
        while lsn < limit {
            let window = self.peek(lsn, CHUNK)?;
            let words = window.len() / 8;
            if words == 0 {
                return Ok(None);
            }
            // A header starts with its own position: nearly every other place is passed by at once.
            let here = (lsn..).step_by(8).zip(window.chunks_exact(8)).find(|(here, word)| *word == here.to_le_bytes());
            match here.map(|(here, _)| here) {
                None => lsn += 8 * words as u64,
                Some(here) => {
                    if let Some((_, mark)) = self.record_at(here)? {
                        return Ok((here < limit).then_some(Found { lsn: here, mark }));
                    }
                    lsn = here + 8;
                }
            }
        }
        Ok(None)
    }

    /// There is no valid record at `at`: the end of the log, or damage?
    fn judge_end(&mut self, at: Lsn) -> Result<Tail, LogError> {
        let Some(here) = self.parts.iter().position(|part| part.start <= at && at < part.end) else {
            return self.judge_beyond(at);
        };
        let salt = self.parts[here].salt;
        let mut reached = self.parts[here].end;
        let mut later_life = false;
        for part in &self.parts[here + 1..] {
            later_life |= part.salt != salt;
            if part.start != reached {
                return Err(LogError::Missing { path: self.dir.clone(), lsn: reached });
            }
            reached = part.end;
        }
        if later_life || self.proof_after(at)? {
            let part = &self.parts[here];
            return Err(LogError::Damaged {
                path: part.path.clone(),
                offset: HEADER_BYTES + (at - part.start),
                lsn: at,
                what: "no valid record, but later ones prove that it had been durable",
            });
        }
        let written = self.peek(at, 8)? == at.to_le_bytes();
        Ok(if written { Tail::Torn } else { Tail::Clean })
    }

    /// `at` lies in no segment: after the last one that is fine.
    fn judge_beyond(&self, at: Lsn) -> Result<Tail, LogError> {
        if self.parts.iter().any(|part| part.start > at) {
            return Err(LogError::Missing { path: self.dir.clone(), lsn: at });
        }
        Ok(Tail::Clean)
    }

    /// Whether a later record says that the log had been durable beyond `at`.
    fn proof_after(&mut self, at: Lsn) -> Result<bool, LogError> {
        let mut from = at + 8;
        while let Some(found) = self.next_valid(from, Lsn::MAX)? {
            if found.mark > at {
                return Ok(true);
            }
            from = found.lsn + 8;
        }
        Ok(false)
    }
}
