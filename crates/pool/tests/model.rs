//! Does any sequence of operations leave the pages a plain map would have? With restarts between.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::*;
use homenode_pool::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Allocate(u8),
    AllocateUnlogged(u8),
    Run(u8),
    Change(usize, u64),
    Read(usize),
    Free(usize),
    Checkpoint,
    Prewarm,
    /// A clean restart: everything written, the map saved, a new pool opened.
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (1u8..80).prop_map(Op::Allocate),
        2 => (1u8..40).prop_map(Op::AllocateUnlogged),
        1 => (1u8..100).prop_map(Op::Run),
        6 => (any::<usize>(), any::<u64>()).prop_map(|(i, v)| Op::Change(i, v)),
        4 => any::<usize>().prop_map(Op::Read),
        4 => any::<usize>().prop_map(Op::Free),
        1 => Just(Op::Checkpoint),
        1 => Just(Op::Prewarm),
        1 => Just(Op::Reopen),
    ]
}

#[derive(Clone, Copy)]
struct Page {
    value: u64,
    logged: bool,
}

struct Case {
    folder: Folder,
    wal: Arc<MemoryWal>,
    pool: Arc<Pool>,
    config: PoolConfig,
    model: BTreeMap<PageNo, Page>,
}

impl Case {
    fn pick(&self, i: usize) -> Option<PageNo> {
        self.model.keys().nth(i % self.model.len().max(1)).copied()
    }

    fn put(&mut self, mut guard: Exclusive<'_>, value: u64, logged: bool) {
        guard.mark_dirty();
        let lsn = self.wal.append();
        guard.page_mut().write_u64(PAGE_BYTES / 2, value);
        if logged {
            guard.set_lsn(lsn);
        }
        self.model.insert(guard.page_no(), Page { value, logged });
    }

    fn apply(&mut self, op: Op) {
        let pool = self.pool.clone();
        match op {
            Op::Allocate(n) | Op::AllocateUnlogged(n) => {
                let logged = matches!(op, Op::Allocate(_));
                for i in 0..n {
                    let lane = usize::from(i % 3);
                    let guard = if logged { pool.allocate(lane) } else { pool.allocate_unlogged(lane) };
                    let guard = guard.unwrap();
                    assert!(!self.model.contains_key(&guard.page_no()), "given out twice");
                    self.put(guard, u64::from(i), logged);
                }
            }
            Op::Run(n) => {
                let first = pool.allocate_run(usize::from(n)).unwrap();
                let mut bytes = vec![0; usize::from(n) * PAGE_BYTES];
                pool.write_run(first, &mut bytes).unwrap();
                for page_no in first..first + u64::from(n) {
                    let fresh = self.model.insert(page_no, Page { value: 0, logged: true });
                    assert!(fresh.is_none(), "given out twice");
                }
            }
            Op::Change(i, value) => {
                let Some(page_no) = self.pick(i) else { return };
                let logged = self.model[&page_no].logged;
                self.put(pool.exclusive(page_no).unwrap(), value, logged);
            }
            Op::Read(i) => {
                let Some(page_no) = self.pick(i) else { return };
                self.check(page_no);
            }
            Op::Free(i) => {
                let Some(page_no) = self.pick(i) else { return };
                pool.free(page_no);
                self.model.remove(&page_no);
                assert!(matches!(pool.shared(page_no), Err(PoolError::NotAllocated { .. })));
            }
            Op::Checkpoint => {
                pool.checkpoint_write(self.wal.tail() + 1, Pace::Fast).unwrap();
                assert_eq!(pool.min_rec_lsn(), None);
            }
            Op::Prewarm => {
                let pages: Vec<_> = self.model.keys().copied().collect();
                pool.prewarm(&pages).unwrap();
            }
            Op::Reopen => self.reopen(),
        }
    }

    fn reopen(&mut self) {
        self.pool.checkpoint_write(u64::MAX, Pace::Fast).unwrap();
        let map = self.pool.space_map();
        self.pool.shutdown();
        self.pool = open(&self.folder, &self.wal, self.config.clone());
        self.pool.restore_space(&map).unwrap();
        self.model.retain(|_, page| page.logged);
    }

    fn check(&self, page_no: PageNo) {
        let want = self.model[&page_no].value;
        let guard = self.pool.optimistic(page_no).unwrap();
        let got = guard.page().u64(PAGE_BYTES / 2);
        if guard.validate() {
            assert_eq!(got, want);
        }
        assert_eq!(self.pool.shared(page_no).unwrap().page().u64(PAGE_BYTES / 2), want);
    }

    fn check_all(&self) {
        self.model.keys().for_each(|&page_no| self.check(page_no));
        let stats = self.pool.stats();
        assert_eq!(stats.free_pages + self.model.len() as u64 + 1, stats.high_water);
    }
}

fn run(config: PoolConfig, ops: Vec<Op>) {
    let (folder, wal) = (Folder::new("model"), MemoryWal::new());
    let pool = open(&folder, &wal, config.clone());
    let mut case = Case { folder, wal, pool, config, model: BTreeMap::new() };
    for op in ops {
        case.apply(op);
    }
    case.check_all();
    case.reopen();
    case.check_all();
    case.pool.shutdown();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn the_pool_is_a_map(ops in prop::collection::vec(op(), 1..60)) {
        run(small(), ops);
    }

    #[test]
    fn so_it_is_without_cleaners_and_with_more_partitions(
        ops in prop::collection::vec(op(), 1..60),
        cleaners in any::<bool>(),
    ) {
        run(PoolConfig { cleaners, bytes: 6 << 20, partitions: 3, lanes: 2, ..small() }, ops);
    }
}
