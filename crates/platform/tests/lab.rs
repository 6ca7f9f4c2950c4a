//! The simulated machine: repeatable, finds deadlocks and races, keeps and loses the right bytes.
#![cfg(homenode_lab)]

use homenode_platform::atomic::{AtomicU64, Ordering::SeqCst};
use homenode_platform::fs::{self, File, OpenOptions};
use homenode_platform::lab::{self, Config, Failure, Outcome, Scheduler};
use homenode_platform::sync::{Mutex, OnceLock};
use homenode_platform::wait::WaitEvent;
use homenode_platform::{clock, task, thread};
use std::path::Path;
use std::sync::{Arc, Mutex as Plain};

fn config(seed: u64) -> Config {
    Config { steps_max: 2_000_000, ..Config::new(seed) }
}

/// Threads that count up with separate loads and stores; the total tells the interleaving.
fn racy_count(total: Arc<Plain<u64>>) -> impl FnOnce() + 'static {
    move || {
        let count = Arc::new(AtomicU64::new(0));
        let start = |i| {
            let count = count.clone();
            thread::spawn(&format!("t{i}"), move || {
                for _ in 0..20 {
                    count.store(count.load(SeqCst) + 1, SeqCst);
                }
            })
        };
        let threads: Vec<_> = (0..3).map(start).collect();
        threads.into_iter().for_each(thread::JoinHandle::join);
        *total.lock().unwrap() = count.load(SeqCst);
    }
}

#[test]
fn one_seed_one_run() {
    let mut totals = std::collections::BTreeSet::new();
    for seed in 0..50 {
        let (a, b) = (Arc::new(Plain::new(0)), Arc::new(Plain::new(0)));
        let first = lab::run(&config(seed), racy_count(a.clone()));
        let second = lab::run(&config(seed), racy_count(b.clone()));
        assert_eq!(first, second);
        assert_eq!(first.outcome, Outcome::Finished);
        let total = *a.lock().unwrap();
        assert_eq!(total, *b.lock().unwrap());
        totals.insert(total);
    }
    assert!(totals.len() > 5, "different seeds interleave differently: {totals:?}");
}

#[test]
fn a_deadlock_names_who_waits_for_what() {
    let mut found = 0;
    for seed in 0..100 {
        let report = lab::run(&config(seed), || {
            let (a, b) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())));
            let (a2, b2) = (a.clone(), b.clone());
            let other = thread::spawn("other", move || {
                let _b = b2.lock();
                let _a = a2.lock();
            });
            {
                let _a = a.lock();
                let _b = b.lock();
            }
            other.join();
        });
        match report.failure() {
            None => {}
            Some(Failure::Deadlock(threads)) => {
                assert_eq!(threads.len(), 2);
                assert!(threads.iter().all(|thread| thread.event == WaitEvent::Mutex));
                found += 1;
            }
            Some(other) => panic!("{other}"),
        }
    }
    assert!(found > 0 && found < 100, "{found}");
}

#[test]
fn both_schedulers_find_a_rare_order() {
    for scheduler in [Scheduler::Random { switch_every: 8 }, Scheduler::Pct { changes: 3, steps: 300 }] {
        let found = (0..500).any(|seed| {
            let config = Config { scheduler, ..config(seed) };
            let report = lab::run(&config, || {
                let word = Arc::new(AtomicU64::new(0));
                let theirs = word.clone();
                let other = thread::spawn("other", move || {
                    for _ in 0..50 {
                        theirs.load(SeqCst);
                    }
                    let before = theirs.load(SeqCst);
                    assert!(theirs.load(SeqCst) == before, "changed in between");
                });
                for _ in 0..50 {
                    word.load(SeqCst);
                }
                word.store(1, SeqCst);
                other.join();
            });
            matches!(report.failure(), Some(Failure::Panic { thread, .. }) if thread == "other")
        });
        assert!(found, "{scheduler:?}");
    }
}

#[test]
fn a_livelock_ends_and_a_spin_does_not_starve() {
    let report = lab::run(&Config { steps_max: 10_000, ..config(1) }, || {
        let word = AtomicU64::new(0);
        while word.load(SeqCst) == 0 {}
    });
    assert!(matches!(report.failure(), Some(Failure::StepsExceeded(_))));
    for seed in 0..50 {
        let report = lab::run(&config(seed), || {
            let flag = Arc::new(AtomicU64::new(0));
            let set = flag.clone();
            let setter = thread::spawn("setter", move || set.store(1, SeqCst));
            let mut attempt = 0;
            while flag.load(SeqCst) == 0 {
                task::spin_hint(attempt);
                attempt += 1;
            }
            setter.join();
        });
        assert_eq!(report.outcome, Outcome::Finished);
    }
}

#[test]
fn time_is_virtual() {
    let report = lab::run(&config(3), || {
        let start = clock::now_ns();
        thread::sleep_ns(3_600_000_000_000);
        assert!(!task::park_timeout(WaitEvent::Sleep, 1_000_000));
        task::current().unpark();
        assert!(task::park_timeout(WaitEvent::Sleep, u64::MAX));
        assert!(clock::now_ns() - start >= 3_600_001_000_000);
    });
    assert_eq!(report.outcome, Outcome::Finished);
}

const NEW: OpenOptions = OpenOptions::new().read(true).write(true).create(true);

#[test]
fn a_crash_keeps_what_was_synced_and_any_part_of_the_rest() {
    let mut lengths = std::collections::BTreeSet::new();
    let mut torn = false;
    for seed in 0..200 {
        let config = config(seed);
        let report = lab::run(&config, || {
            fs::create_dir_all(Path::new("db")).unwrap();
            let file = File::open(Path::new("db/f"), &NEW).unwrap();
            file.write_all_at(&[1; 2048], 0).unwrap();
            file.sync_data().unwrap();
            fs::sync_dir(Path::new("db")).unwrap();
            file.write_all_at(&[2; 2048], 0).unwrap();
            file.write_all_at(&[3; 4096], 2048).unwrap();
            let lost = File::open(Path::new("db/lost"), &NEW).unwrap();
            lost.write_all_at(b"never in a synced directory", 0).unwrap();
            lost.sync_data().unwrap();
            lab::crash();
        });
        assert_eq!(report.outcome, Outcome::Crashed);
        config.disk.crash(seed);
        let files = config.disk.files();
        let (_, bytes) = files.iter().find(|(path, _)| path == Path::new("db/f")).expect("synced");
        for sector in bytes[..2048].chunks(512) {
            assert!(sector == [1; 512] || sector == [2; 512], "sectors are written whole");
        }
        torn |= bytes[..512] != bytes[1536..2048];
        lengths.insert(bytes.len());
        let again = lab::run(&config, || {
            assert!(File::open(Path::new("db/f"), &NEW).unwrap().len().unwrap() >= 2048);
        });
        assert_eq!(again.outcome, Outcome::Finished);
    }
    assert!(torn && lengths.len() > 3 && lengths.contains(&2048), "{lengths:?}");
}

fn replace_config(seed: u64) -> Config {
    let config = config(seed);
    let report = lab::run(&config, || {
        fs::create_dir_all(Path::new("db")).unwrap();
        fs::write_atomic(Path::new("db/control"), &[1; 700]).unwrap();
    });
    assert_eq!(report.outcome, Outcome::Finished);
    config
}

#[test]
fn atomic_replacement_survives_a_crash_at_every_write() {
    for seed in 0..20 {
        let base = replace_config(seed);
        let replace = || fs::write_atomic(Path::new("db/control"), &[2; 900]).unwrap();
        let whole = lab::run(&Config { disk: base.disk.fork(), ..base.clone() }, replace);
        assert!(whole.writes >= 4);
        for n in 1..=whole.writes {
            let config = Config { disk: base.disk.fork(), crash_after_write: Some(n), ..base.clone() };
            assert_eq!(lab::run(&config, replace).outcome, Outcome::Crashed);
            config.disk.crash(seed);
            let files = config.disk.files();
            let control = files.iter().find(|(path, _)| path == Path::new("db/control"));
            let bytes = &control.expect("one of the two is there").1;
            assert!(*bytes == [1; 700] || *bytes == [2; 900], "write {n}: {} bytes", bytes.len());
            assert!(n < whole.writes || *bytes == [2; 900]);
        }
    }
}

#[test]
fn faults_strike_once_and_say_what_they_are() {
    let mut config = config(1);
    config.faults.fail_sync = Some(2);
    config.faults.fail_write = Some(3);
    config.faults.space_bytes = Some(10_000);
    let report = lab::run(&config, || {
        let file = File::open(Path::new("f"), &NEW).unwrap();
        let raw = |result: std::io::Result<()>| result.unwrap_err().raw_os_error();
        file.write_all_at(&[1; 5000], 0).unwrap();
        file.sync_data().unwrap();
        file.write_all_at(&[2; 5000], 0).unwrap();
        assert_eq!(raw(file.sync_data()), Some(libc::EIO));
        file.sync_data().unwrap();
        assert_eq!(raw(file.write_all_at(&[3; 5000], 0)), Some(libc::EIO));
        assert_eq!(raw(file.write_all_at(&[4; 5000], 8000)), Some(libc::ENOSPC));
        file.try_lock_exclusive().unwrap();
        let other = File::open(Path::new("f"), &NEW).unwrap();
        assert_eq!(raw(other.try_lock_exclusive()), Some(libc::EWOULDBLOCK));
    });
    assert_eq!(report.outcome, Outcome::Finished);
}

#[test]
fn what_is_made_once_is_made_by_one_while_others_wait() {
    for seed in 0..100 {
        let report = lab::run(&config(seed), || {
            let shared = Arc::new((OnceLock::new(), AtomicU64::new(0)));
            let start = |i: u64| {
                let shared = shared.clone();
                thread::spawn(&format!("t{i}"), move || {
                    let (once, made) = &*shared;
                    let value = once.get_or_init(|| {
                        made.fetch_add(1, SeqCst);
                        task::yield_now();
                        made.load(SeqCst) + i
                    });
                    assert_eq!(once.get(), Some(value));
                    assert_eq!(once.set(7), Err(7));
                })
            };
            let threads: Vec<_> = (0..3).map(start).collect();
            threads.into_iter().for_each(thread::JoinHandle::join);
            assert_eq!(shared.1.load(SeqCst), 1, "made once");
        });
        assert_eq!(report.outcome, Outcome::Finished, "seed {seed}");
    }
}
