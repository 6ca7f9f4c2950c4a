//! Whatever the bytes in the folder: does the scan give only true records, and tell damage from a
//! torn tail?
#![allow(missing_docs)]

mod common;

use common::{Folder, payload, small};
use homenode_log::{FIRST_LSN, Log, LogError, Record, Tail, scan, segment};
use proptest::prelude::*;
use std::path::{Path, PathBuf};

const SEGMENT: u64 = 64 << 10;

/// Groups of three records, each group flushed before the next: all but the last are proven durable.
fn make(dir: &Path, groups: u32, bytes: usize) -> Vec<Record> {
    let log = Log::create(small(dir)).unwrap();
    for group in 0..groups {
        for n in 0..3 {
            let span = log.append(0, group as u8, &[&payload(group, n, bytes)]);
            if n == 2 {
                log.wait_durable(span.end);
            }
        }
    }
    log.shutdown();
    let mut reader = scan(dir, FIRST_LSN).unwrap();
    reader.by_ref().map(Result::unwrap).collect()
}

/// What a scan gave before it ended or failed.
fn outcome(dir: &Path) -> (Vec<Record>, Result<Tail, LogError>) {
    let mut records = Vec::new();
    let mut reader = match scan(dir, FIRST_LSN) {
        Ok(reader) => reader,
        Err(error) => return (records, Err(error)),
    };
    loop {
        match reader.next_record() {
            Ok(Some(r)) => {
                records.push(Record { start: r.start, end: r.end, kind: r.kind, payload: r.payload.to_vec() })
            }
            Ok(None) => {
                let tail = reader.tail().unwrap();
                return (records, Ok(tail));
            }
            Err(error) => return (records, Err(error)),
        }
    }
}

fn first(dir: &Path) -> PathBuf {
    segment::path_of(dir, FIRST_LSN)
}

/// A flip at `lsn`: records before it come back, the one it hits does not, and unless it is of
/// the last group, which nothing later proves durable, it is reported with file and offset.
fn check_flip(dir: &Path, whole: &[Record], lsn: u64) {
    let hit = whole.iter().position(|record| record.start <= lsn && lsn < record.end);
    let (records, result) = outcome(dir);
    let Some(hit) = hit else {
        assert_eq!(records, whole);
        return;
    };
    assert_eq!(records, whole[..hit]);
    match result {
        Err(LogError::Damaged { path, offset, lsn, .. }) => {
            assert_eq!((path, lsn), (first(dir), whole[hit].start));
            assert_eq!(offset, segment::HEADER_BYTES + whole[hit].start - FIRST_LSN);
        }
        Ok(tail) => {
            assert!(hit + 3 >= whole.len(), "record {hit} of {} was lost silently", whole.len());
            // A flip in the position itself makes it look as if nothing had been written.
            assert!(tail == Tail::Torn || lsn < whole[hit].start + 8);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_flipped_bit() {
    let dir = Folder::new();
    let whole = make(&dir.0, 4, 21);
    let good = std::fs::read(first(&dir.0)).unwrap();
    let end = whole.last().unwrap().end;
    for lsn in FIRST_LSN..end + 64 {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[(segment::HEADER_BYTES + lsn - FIRST_LSN) as usize] ^= 1 << bit;
            std::fs::write(first(&dir.0), &bad).unwrap();
            check_flip(&dir.0, &whole, lsn);
        }
    }
}

#[test]
fn every_flipped_bit_of_a_segment_header() {
    let dir = Folder::new();
    make(&dir.0, 2, 21);
    let good = std::fs::read(first(&dir.0)).unwrap();
    for bit in 0..40 * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(first(&dir.0), &bad).unwrap();
        let error = scan(&dir.0, FIRST_LSN).err().expect("refused");
        let expected = match bit / 8 {
            0..8 => matches!(error, LogError::NotOurs { .. }),
            8..12 if bit != 8 * 8 => matches!(error, LogError::OtherFormat { .. }),
            _ => matches!(error, LogError::Damaged { offset: 0, .. }),
        };
        assert!(expected, "bit {bit}: {error}");
    }
}

#[test]
fn every_torn_tail() {
    let dir = Folder::new();
    let whole = make(&dir.0, 3, 21);
    let good = std::fs::read(first(&dir.0)).unwrap();
    // The crash came before the last group's flush was done: zeros from some byte on.
    for lsn in whole[whole.len() - 3].start..whole.last().unwrap().end {
        let mut torn = good.clone();
        torn[(segment::HEADER_BYTES + lsn - FIRST_LSN) as usize..].fill(0);
        std::fs::write(first(&dir.0), &torn).unwrap();
        let (records, tail) = outcome(&dir.0);
        let kept = whole.iter().filter(|record| record.end <= lsn).count();
        assert!(records.len() >= kept && records == whole[..records.len()]);
        assert!(tail.is_ok(), "{tail:?} at {lsn}");
    }
}

#[test]
fn every_missing_block_of_a_torn_group() {
    // A crash may write a later block of a flush and not an earlier one.
    let dir = Folder::new();
    let log = Log::create(small(&dir)).unwrap();
    let spans: Vec<_> = (0..40).map(|n| log.append(0, 0, &[&payload(0, n, 500)])).collect();
    log.shutdown();
    let good = std::fs::read(first(&dir.0)).unwrap();
    for block in (0..(spans[39].end - FIRST_LSN) as usize).step_by(512) {
        let mut torn = good.clone();
        torn[4096 + block..4096 + block + 512].fill(0);
        std::fs::write(first(&dir.0), &torn).unwrap();
        let (records, tail) = outcome(&dir.0);
        let kept = spans.iter().filter(|span| span.end - FIRST_LSN <= block as u64).count();
        assert_eq!(records.len(), kept);
        assert!(tail.is_ok(), "nothing had been acknowledged");
    }
}

#[test]
fn every_truncation_is_an_error_that_names_the_file() {
    let dir = Folder::new();
    let whole = make(&dir.0, 2, 21);
    let good = std::fs::read(first(&dir.0)).unwrap();
    let end = whole.last().unwrap().end;
    for bytes in 0..(segment::HEADER_BYTES + end - FIRST_LSN) as usize + 20 {
        std::fs::write(first(&dir.0), &good[..bytes]).unwrap();
        let (records, result) = outcome(&dir.0);
        assert!(records == whole[..records.len()]);
        let Err(LogError::Damaged { path, .. }) = result else { panic!("{bytes}: {result:?}") };
        assert_eq!(path, first(&dir.0));
    }
}

#[test]
fn missing_segments_are_named() {
    let dir = Folder::new();
    let whole = make(&dir.0, 300, 200);
    let starts = segment::list(&dir.0).unwrap();
    assert!(starts.len() >= 4 && starts[1] == FIRST_LSN + SEGMENT);
    let second = segment::path_of(&dir.0, starts[1]);
    let kept = std::fs::read(&second).unwrap();
    std::fs::remove_file(&second).unwrap();
    let (records, result) = outcome(&dir.0);
    assert_eq!(records, whole[..records.len()]);
    assert!(matches!(result, Err(LogError::Missing { lsn, .. }) if lsn == starts[1]), "{result:?}");
    std::fs::write(&second, kept).unwrap();
    std::fs::remove_file(first(&dir.0)).unwrap();
    assert!(matches!(outcome(&dir.0).1, Err(LogError::Missing { lsn: FIRST_LSN, .. })));
}

#[test]
fn damage_before_a_later_life_is_damage() {
    let dir = Folder::new();
    let log = Log::create(small(&dir)).unwrap();
    let span = log.append(0, 0, &[&payload(0, 0, 30)]);
    log.shutdown();
    drop(log);
    Log::open_at(small(&dir), span.end).unwrap().shutdown();
    let mut bytes = std::fs::read(first(&dir.0)).unwrap();
    bytes[4096 + 20] ^= 1;
    std::fs::write(first(&dir.0), &bytes).unwrap();
    assert!(matches!(outcome(&dir.0).1, Err(LogError::Damaged { offset: 4096, .. })));
}

#[test]
fn a_known_position_is_required() {
    let dir = Folder::new();
    let whole = make(&dir.0, 2, 21);
    let end = whole.last().unwrap().end;
    let mut reader = scan(&dir.0, FIRST_LSN).unwrap();
    while reader.next_record().unwrap().is_some() {}
    reader.require(end).unwrap();
    assert!(matches!(reader.require(end + 8), Err(LogError::TooShort { .. })));
}

#[test]
fn positions_that_are_none_are_refused() {
    let dir = Folder::new();
    assert!(matches!(scan(&dir.0, FIRST_LSN), Err(LogError::Missing { .. })));
    make(&dir.0, 2, 21);
    for from in [0, 8, FIRST_LSN - 8, FIRST_LSN + 3, 1 << 50, u64::MAX, u64::MAX - 7] {
        assert!(matches!(scan(&dir.0, from), Err(LogError::Missing { .. })), "{from}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Random bytes over random places: no panic, no untrue record, nothing of the proven part lost
    /// without a word.
    #[test]
    fn random_damage(patches in prop::collection::vec((0usize..9000, prop::collection::vec(any::<u8>(), 1..64)), 1..6)) {
        let dir = Folder::new();
        let whole = make(&dir.0, 12, 100);
        let mut bytes = std::fs::read(first(&dir.0)).unwrap();
        for (at, patch) in &patches {
            bytes[4096 + at..4096 + at + patch.len()].copy_from_slice(patch);
        }
        std::fs::write(first(&dir.0), &bytes).unwrap();
        let (records, result) = outcome(&dir.0);
        prop_assert_eq!(&records[..], &whole[..records.len()]);
        if result.is_ok() {
            // The last group proves all before it, unless it was hit as well.
            let last = whole[whole.len() - 3].start - FIRST_LSN;
            let last_hit = patches.iter().any(|(at, patch)| (at + patch.len()) as u64 > last);
            prop_assert!(records.len() + 3 >= whole.len() || last_hit);
        }
    }

    /// A file that is garbage from end to end.
    #[test]
    fn random_file(bytes in prop::collection::vec(any::<u8>(), 0..10_000)) {
        let dir = Folder::new();
        std::fs::write(first(&dir.0), &bytes).unwrap();
        let (records, result) = outcome(&dir.0);
        prop_assert!(records.is_empty() && result.is_err());
    }

    /// Headers with any length field: bounded, and never read beyond the file.
    #[test]
    fn random_lengths(word in any::<u32>(), crc in any::<u32>()) {
        let dir = Folder::new();
        make(&dir.0, 1, 10);
        let mut bytes = std::fs::read(first(&dir.0)).unwrap();
        bytes[4096 + 8..4096 + 12].copy_from_slice(&word.to_le_bytes());
        bytes[4096 + 12..4096 + 16].copy_from_slice(&crc.to_le_bytes());
        std::fs::write(first(&dir.0), &bytes).unwrap();
        prop_assert!(outcome(&dir.0).0.is_empty());
    }
}
