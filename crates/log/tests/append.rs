//! Is every record that was appended found again, in order, whole, whoever wrote at the same time?
#![allow(missing_docs)]

mod common;

use common::{Folder, check, payload, read_all, small};
use homenode_log::{FIRST_LSN, Log, LogConfig, LogError, Nodes, Tail, oldest_record, scan};
use std::collections::HashMap;
use std::sync::Arc;

#[test]
fn one_record_and_its_span() {
    let dir = Folder::new();
    let log = Log::create(small(&dir)).unwrap();
    let span = log.append(0, 7, &[b"hello ", b"world"]);
    assert_eq!(span.start, FIRST_LSN);
    assert_eq!(span.end, FIRST_LSN + 16 + 16);
    log.wait_durable(span.end);
    assert!(log.durable() >= span.end);
    let empty = log.append(3, 255, &[]);
    assert_eq!(empty.end - empty.start, 24, "it carries the durable mark");
    log.shutdown();
    let (records, end, tail) = read_all(&dir.0, FIRST_LSN);
    assert_eq!(records.len(), 2);
    assert_eq!((records[0].kind, &records[0].payload[..]), (7, &b"hello world"[..]));
    assert_eq!((records[1].kind, records[1].payload.len()), (255, 0));
    assert_eq!((end, tail), (empty.end, Tail::Clean));
}

#[test]
fn many_threads_small_ring() {
    const WRITERS: u32 = 8;
    const RECORDS: u32 = 3000;
    let dir = Folder::new();
    let log = Log::create(small(&dir)).unwrap();
    let threads: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let log = log.clone();
            std::thread::spawn(move || {
                let mut spans = Vec::new();
                for number in 0..RECORDS {
                    // Some as large as they may be: a quarter of the ring.
                    let bytes = match number % 97 {
                        0 => 16_000,
                        n => (n as usize * 7 + writer as usize) % 300,
                    };
                    let bytes = payload(writer, number, bytes);
                    let (a, b) = bytes.split_at(number as usize % (bytes.len() + 1));
                    // Lanes collide on purpose.
                    let span = log.append(writer as usize % 3, writer as u8, &[a, b]);
                    spans.push(span);
                    if number % 50 == 0 {
                        log.wait_durable(span.end);
                        assert!(log.durable() >= span.end);
                    }
                }
                spans
            })
        })
        .collect();
    let mut spans = HashMap::new();
    for (writer, thread) in threads.into_iter().enumerate() {
        for (number, span) in thread.join().unwrap().into_iter().enumerate() {
            spans.insert((writer as u32, number as u32), span);
        }
    }
    let stats = log.stats();
    assert_eq!(stats.records, u64::from(WRITERS * RECORDS));
    log.shutdown();
    assert_eq!(log.durable(), log.tail());
    let (records, end, _) = read_all(&dir.0, FIRST_LSN);
    assert_eq!(end, log.tail());
    assert_eq!(records.len(), spans.len());
    let mut next = [0; WRITERS as usize];
    for record in records {
        let (writer, number) = check(&record.payload);
        let span = spans[&(writer, number)];
        assert_eq!((record.start, record.end), (span.start, span.end));
        assert_eq!(number, next[writer as usize], "a writer's records keep their order");
        next[writer as usize] += 1;
    }
}

#[test]
fn more_writers_than_slots_and_a_full_ring() {
    let dir = Folder::new();
    let log = Log::create(LogConfig { insert_slots: 1, ..small(&dir) }).unwrap();
    let threads: Vec<_> = (0..6u32)
        .map(|writer| {
            let log = log.clone();
            std::thread::spawn(move || {
                for number in 0..200 {
                    log.append(writer as usize, 1, &[&payload(writer, number, 15_000)]);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    log.shutdown();
    let (records, ..) = read_all(&dir.0, FIRST_LSN);
    assert_eq!(records.len(), 1200);
    records.iter().for_each(|record| {
        check(&record.payload);
    });
}

#[test]
fn a_megabyte_in_one_record() {
    let dir = Folder::new();
    let log = Log::create(LogConfig { sync: false, ..LogConfig::new(&dir.0) }).unwrap();
    let sizes = [1 << 20, 3 << 20, 1, log.max_payload() - 8];
    for (n, bytes) in sizes.iter().enumerate() {
        log.append(0, 1, &[&payload(0, n as u32, *bytes)]);
    }
    log.shutdown();
    let (records, ..) = read_all(&dir.0, FIRST_LSN);
    assert_eq!(records.iter().map(|r| check(&r.payload).1).collect::<Vec<_>>(), [0, 1, 2, 3]);
}

#[test]
fn each_life_goes_on_where_the_last_one_ended() {
    let dir = Folder::new();
    let mut ends = vec![FIRST_LSN];
    for life in 0..6u32 {
        let end = *ends.last().unwrap();
        let log = if life == 0 { Log::create(small(&dir)) } else { Log::open_at(small(&dir), end) }.unwrap();
        for number in 0..life * 300 {
            log.append(0, 0, &[&payload(life, number, 40)]);
        }
        log.shutdown();
        let (records, end, tail) = read_all(&dir.0, FIRST_LSN);
        assert_eq!(records.len() as u32, (0..=life).map(|l| l * 300).sum::<u32>());
        assert_eq!((end, tail), (log.tail(), Tail::Clean));
        ends.push(end);
    }
    // A start in the middle, at a life's beginning.
    let (records, ..) = read_all(&dir.0, ends[3]);
    assert_eq!(check(&records[0].payload), (3, 0));
}

#[test]
fn a_log_of_one_empty_segment_opens_again() {
    let dir = Folder::new();
    let log = Log::create(small(&dir)).unwrap();
    let end = log.append(0, 0, &[&payload(0, 0, 40)]).end;
    log.shutdown();
    // The second life writes nothing, and needs nothing of the first.
    let log = Log::open_at(small(&dir), end).unwrap();
    log.truncate_before(end);
    while homenode_log::segment::list(dir.as_ref()).unwrap()[0] < end {
        std::thread::yield_now();
    }
    log.shutdown();
    for _ in 0..2 {
        Log::open_at(small(&dir), end).unwrap().shutdown();
        assert_eq!(read_all(&dir.0, end), (Vec::new(), end, Tail::Clean));
    }
}

#[test]
fn what_recovery_cut_off_never_comes_back() {
    let dir = Folder::new();
    let log = Log::create(small(&dir)).unwrap();
    let spans: Vec<_> = (0..3000).map(|n| log.append(0, 0, &[&payload(1, n, 40)])).collect();
    log.shutdown();
    drop(log);
    // As if recovery had found the log to end after the tenth record.
    let log = Log::open_at(small(&dir), spans[9].end).unwrap();
    // Records of the same size: their boundaries fall on those of the old ones.
    for n in 0..5 {
        log.append(0, 0, &[&payload(2, n, 40)]);
    }
    log.shutdown();
    let (records, ..) = read_all(&dir.0, FIRST_LSN);
    let names: Vec<_> = records.iter().map(|r| check(&r.payload)).collect();
    let expected: Vec<_> = (0..10).map(|n| (1, n)).chain((0..5).map(|n| (2, n))).collect();
    assert_eq!(names, expected);
}

#[test]
fn truncation_recycles_and_the_log_stays_readable() {
    let dir = Folder::new();
    let log = Log::create(small(&dir)).unwrap();
    let mut keep = FIRST_LSN;
    for number in 0..20_000u32 {
        let span = log.append(0, 0, &[&payload(0, number, 100)]);
        if number % 500 == 499 {
            log.wait_durable(span.end);
            keep = span.end;
            log.truncate_before(keep);
        }
    }
    // Truncation goes on in the background.
    let started = std::time::Instant::now();
    while log.stats().segments > 4 {
        assert!(started.elapsed().as_secs() < 30, "{:?}", log.stats());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(log.stats().segments_recycled > 5, "{:?}", log.stats());
    assert!(matches!(scan(&dir.0, FIRST_LSN), Err(LogError::Missing { lsn: FIRST_LSN, .. })));
    log.shutdown();
    let (records, end, _) = read_all(&dir.0, keep);
    assert_eq!((records.len(), end), (0, log.tail()));
    let oldest = oldest_record(&dir.0).unwrap();
    if let Some(oldest) = oldest {
        let (records, end, _) = read_all(&dir.0, oldest);
        assert_eq!(end, log.tail());
        assert_eq!(check(&records.last().unwrap().payload), (0, 19_999));
    }
}

#[test]
fn a_full_disk_refuses_statements_and_recovers() {
    let dir = Folder::new();
    let log = Log::create(small(&dir)).unwrap();
    log.reserve_ahead(1000).unwrap();
    while log.stats().segments_ready < 2 {
        std::thread::yield_now();
    }
    // A folder where the next segment would be made stands for the full disk.
    let next = FIRST_LSN + 3 * (64 << 10);
    let obstacle = dir.0.join(format!("new-{next:016x}"));
    std::fs::create_dir(&obstacle).unwrap();
    let mut appended = 0;
    while log.reserve_ahead(1000).is_ok() {
        log.append(0, 0, &[&payload(0, appended, 992)]);
        appended += 1;
    }
    assert!(matches!(log.reserve_ahead(1000), Err(LogError::Full { .. })));
    assert!(log.stats().supply_error.is_some());
    // A rollback does not reserve, and still fits: all of the spare segment is there for it.
    for _ in 0..60 {
        let span = log.append(0, 0, &[&payload(0, appended, 992)]);
        log.wait_durable(span.end);
        appended += 1;
    }
    assert!(log.reserve_ahead(1000).is_err());
    std::fs::remove_dir(&obstacle).unwrap();
    log.reserve_ahead(1000).unwrap();
    log.append(0, 0, &[&payload(0, appended, 992)]);
    log.shutdown();
    let (records, ..) = read_all(&dir.0, FIRST_LSN);
    assert_eq!(records.len() as u32, appended + 1);
}

#[test]
fn a_log_is_never_created_over_another() {
    let dir = Folder::new();
    let log = Log::create(small(&dir)).unwrap();
    for n in 0..100 {
        log.append(0, 0, &[&payload(0, n, 10)]);
    }
    log.shutdown();
    assert!(matches!(Log::create(small(&dir)), Err(LogError::Exists { .. })));
    assert_eq!(read_all(&dir.0, FIRST_LSN).0.len(), 100);
}

#[test]
fn an_interrupted_creation_is_begun_anew() {
    let dir = Folder::new();
    let log = Log::create(small(&dir)).unwrap();
    log.append(0, 0, &[b"the catalog's root"]);
    log.shutdown();
    let log = Log::create(small(&dir)).unwrap();
    assert_eq!(log.tail(), FIRST_LSN);
    log.shutdown();
    assert_eq!(read_all(&dir.0, FIRST_LSN).0.len(), 0);
}

#[test]
fn settings_out_of_range_are_refused() {
    let dir = Folder::new();
    let with = |change: &dyn Fn(&mut LogConfig)| {
        let mut config = small(&dir);
        change(&mut config);
        Log::create(config).err()
    };
    assert!(matches!(with(&|c| c.buffer_bytes = 100_000), Some(LogError::Setting { .. })));
    assert!(matches!(with(&|c| c.segment_bytes = 5000), Some(LogError::Setting { .. })));
    assert!(matches!(with(&|c| c.insert_slots = 0), Some(LogError::Setting { .. })));
}

#[test]
fn tasks_wait_in_lanes_and_all_are_released() {
    wait_in_lanes(Nodes::default());
}

#[test]
fn on_several_nodes_relays_release_all() {
    wait_in_lanes(Nodes { cpus: vec![vec![0], vec![0, 1], vec![1]], of_lanes: vec![0, 1, 2, 1] });
}

#[test]
fn on_several_nodes_no_record_is_lost() {
    let dir = Folder::new();
    let nodes = Nodes { cpus: vec![vec![0], vec![1]], of_lanes: vec![0, 1] };
    let log = Log::create(LogConfig { sync: true, nodes, ..small(&dir) }).unwrap();
    let writers = (0..4u32).map(|writer| {
        let log = log.clone();
        std::thread::spawn(move || {
            for number in 0..400 {
                let span = log.append(writer as usize, writer as u8, &[&payload(writer, number, 700)]);
                if number % 40 == 0 {
                    log.wait_durable_on(writer as usize, span.end);
                    assert!(log.durable() >= span.end);
                }
            }
        })
    });
    writers.collect::<Vec<_>>().into_iter().for_each(|writer| writer.join().unwrap());
    // Without anybody who waits: the end flushes.
    log.shutdown();
    let (records, _, tail) = read_all(&dir.0, FIRST_LSN);
    assert_eq!((records.len(), tail), (4 * 400, Tail::Clean));
    let mut next = [0; 4];
    for record in &records {
        let (writer, number) = check(&record.payload);
        assert_eq!(number, next[writer as usize], "a lane's records are in order");
        next[writer as usize] += 1;
    }
}

fn wait_in_lanes(nodes: Nodes) {
    let dir = Folder::new();
    let log = Log::create(LogConfig { sync: true, nodes, ..small(&dir) }).unwrap();
    let threads: Vec<_> = (0..64u32)
        .map(|writer| {
            let log: Arc<Log> = log.clone();
            std::thread::spawn(move || {
                for number in 0..20 {
                    let span = log.append(writer as usize, 0, &[&payload(writer, number, 50)]);
                    log.wait_durable_on(writer as usize, span.end);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let stats = log.stats();
    assert!(stats.flushes < 64 * 20, "commits share flushes: {stats:?}");
    assert!(stats.released <= stats.waits && stats.sync_ns_worst > 0);
}
