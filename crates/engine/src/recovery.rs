//! How does the database come back after a crash? Analysis, redo by page in parallel, taking back losers.
//!
//! 1. *Analysis*: one reading of the log from the checkpoint on tells which transactions ended, which changes of the others have
//!    to be taken back, which pages are in use, and where the log ends.
//! 2. *Redo*: every worker reads the log again and applies what concerns its share of the pages, in log order. A page's own LSN
//!    tells what it has already. A page that was torn, being written when the crash came, has an image in the log from just before.
//! 3. *Undo*: the losers' changes are taken back by key, from their log records, newest first. The undo pages are not used: they
//!    weren't logged and are free again.

use crate::database::Inner;
use crate::error::{Error, Result, SqlState, Storage};
use crate::housekeeping::CheckpointState;
use crate::record::*;
use crate::sequence::{self, SequenceState};
use crate::undo::UndoRecord;
use homenode_log::{self as log, Log, Lsn, control::Control};
use homenode_platform::sync::Mutex;
use homenode_platform::thread;
use homenode_pool::{PAGE_BYTES, PageNo, Pool};
use homenode_tree::{self as tree, KIND_BULK, KIND_SMO, OpCode};
use homenode_txn::TxnId;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A transaction that did not end, with the log records of its changes that still stand, oldest first.
pub(crate) struct Loser {
    txn: TxnId,
    changes: Vec<Change>,
}

/// One change: the log record, and which of its undo records.
type Change = (Lsn, usize);

/// What the analysis found.
pub(crate) struct Plan {
    state: CheckpointState,
    scan_start: Lsn,
    /// Where the log goes on.
    pub log_end: Lsn,
    running: BTreeMap<u64, Vec<Change>>,
    space: Vec<SpaceChange>,
    /// When a page was last given back: what happened to it before is of no interest, and may not fit what is in the file.
    freed: HashMap<PageNo, Lsn>,
    highest_seq: u64,
    commits: u64,
    sequences: HashMap<u32, SequenceState>,
    /// Whether there is anything to redo.
    records: u64,
}

enum SpaceChange {
    Used(PageNo),
    Free(PageNo),
}

/// What the database starts with.
pub(crate) struct Recovered {
    pub catalog_root: Option<PageNo>,
    pub next_oid: u32,
    pub next_seq: u64,
    pub clock: u64,
    pub redo_start: Lsn,
    pub sequences: HashMap<u32, SequenceState>,
    pub losers: Vec<Loser>,
}

impl Plan {
    /// Reads the log. Without a control file the database is new and there is nothing to read.
    pub fn make(dir: &Path, control: Option<&Control>) -> Result<Plan> {
        let mut plan = Plan {
            state: CheckpointState::default(),
            scan_start: 0,
            log_end: 0,
            running: BTreeMap::new(),
            space: Vec::new(),
            freed: HashMap::new(),
            highest_seq: 0,
            commits: 0,
            sequences: HashMap::new(),
            records: 0,
        };
        let Some(control) = control else { return Ok(plan) };
        plan.state =
            CheckpointState::decode(&control.checkpoint).ok_or_else(|| damaged("the control file's checkpoint"))?;
        plan.scan_start = control.checkpoint_lsn;
        plan.sequences = plan.state.sequences.iter().copied().collect();
        let mut reader = log::scan(dir, plan.scan_start).sql()?;
        while let Some(record) = reader.next_record().sql()? {
            plan.analyse(record.start, record.kind, record.payload)?;
        }
        reader.require(plan.state.log_end).sql()?;
        plan.log_end = reader.end();
        Ok(plan)
    }

    fn analyse(&mut self, start: Lsn, kind: u8, payload: &[u8]) -> Result<()> {
        self.records += 1;
        match kind {
            KIND_ROW => {
                let (_, tail) = tree::ops(payload).sql()?;
                let records = UndoRecord::decode_all(tail).ok_or_else(|| damaged("a row record"))?;
                for (number, record) in records.iter().enumerate() {
                    self.highest_seq = self.highest_seq.max(record.txn.seq());
                    self.running.entry(record.txn.writer()).or_default().push((start, number));
                }
            }
            KIND_COMPENSATION => {
                let (_, tail) = tree::ops(payload).sql()?;
                if let Some(changes) = self.running.get_mut(&name(tail)?) {
                    changes.pop();
                }
            }
            KIND_COMMIT => {
                self.commits += 1;
                self.running.remove(&name(payload)?);
            }
            KIND_ABORT => {
                self.running.remove(&name(payload)?);
            }
            KIND_SEQUENCE => {
                let (oid, state) = sequence::decode(payload).ok_or_else(|| damaged("a sequence record"))?;
                self.sequences.insert(oid, state);
            }
            KIND_FREE => {
                for number in payload.chunks_exact(8) {
                    self.freed(u64::from_le_bytes(number.try_into().expect("eight bytes")), start);
                }
            }
            KIND_BULK => {
                let (first, count) = tree::bulk_range(payload).sql()?;
                self.space.extend((first..first + count).map(SpaceChange::Used));
            }
            KIND_SMO => {
                let (ops, _) = tree::ops(payload).sql()?;
                for op in ops {
                    if op.is_format() {
                        self.space.push(SpaceChange::Used(op.page_no));
                    } else if op.code == OpCode::Free {
                        self.freed(op.page_no, start);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn freed(&mut self, page: PageNo, lsn: Lsn) {
        self.space.push(SpaceChange::Free(page));
        self.freed.insert(page, lsn);
    }
}

fn name(bytes: &[u8]) -> Result<u64> {
    let bytes = bytes.get(..8).ok_or_else(|| damaged("a transaction's name"))?;
    Ok(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
}

fn damaged(what: &str) -> Error {
    Error::new(SqlState::DATA_CORRUPTED, format!("{what} cannot be read"))
}

/// Brings the pages up to the end of the log.
pub(crate) fn run(dir: &Path, plan: Plan, pool: &Arc<Pool>, log: &Arc<Log>, workers: usize) -> Result<Recovered> {
    let Plan { state, scan_start, log_end, running, space, freed, highest_seq, commits, sequences, records } = plan;
    if !state.space.is_empty() {
        pool.restore_space(&state.space).sql()?;
    }
    for change in space {
        match change {
            SpaceChange::Used(page) => pool.mark_used(page).sql()?,
            SpaceChange::Free(page) => pool.mark_free(page).sql()?,
        }
    }
    if records > 0 {
        tracing::info!(records, from = state.redo_start, "recovering");
        redo(dir, state.redo_start.max(scan_start)..log_end, pool, &Arc::new(freed), workers)?;
    }
    let catalog_root = (state.catalog_root != 0).then_some(state.catalog_root);
    let changed = |(txn, changes): (u64, Vec<Change>)| Loser { txn: TxnId::from_writer(txn), changes };
    Ok(Recovered {
        catalog_root,
        next_oid: state.next_oid.max(crate::catalog::FIRST_OID),
        next_seq: state.next_seq.max(highest_seq + 1).max(1),
        clock: state.clock + commits + 1,
        redo_start: log.tail(),
        sequences,
        losers: running.into_iter().map(changed).collect(),
    })
}

fn redo(
    dir: &Path,
    range: Range<Lsn>,
    pool: &Arc<Pool>,
    freed: &Arc<HashMap<PageNo, Lsn>>,
    workers: usize,
) -> Result<()> {
    // A damaged page is taken for an empty one until the log makes it whole; `Redo::run` fails if it doesn't.
    pool.set_repair_hook(Some(Box::new(|_, bytes| {
        bytes.fill(0);
        true
    })));
    let failure = Arc::new(Mutex::new(None));
    let threads: Vec<_> = (0..workers)
        .map(|worker| {
            let (dir, range) = (dir.to_owned(), range.clone());
            let (pool, freed, failure) = (pool.clone(), freed.clone(), failure.clone());
            thread::spawn("homenode-redo", move || {
                let mut redo = Redo { pool: &pool, freed: &freed, waiting_for_image: HashSet::new() };
                if let Err(error) = redo.run(&dir, range, worker, workers) {
                    failure.lock().get_or_insert(error);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join();
    }
    pool.set_repair_hook(None);
    let failed = failure.lock().take();
    failed.map_or(Ok(()), Err)
}

/// One redo worker.
struct Redo<'a> {
    pool: &'a Pool,
    freed: &'a HashMap<PageNo, Lsn>,
    /// Pages that cannot be read: torn, to be repaired by an image that comes later in the log.
    waiting_for_image: HashSet<PageNo>,
}

impl Redo<'_> {
    /// Applies this worker's share of the records in `range`. It ends where the log ended at the start: what comes after is
    /// written by this very recovery (images of pages that make room for others), and can't be read while it is being written.
    fn run(&mut self, dir: &Path, range: Range<Lsn>, worker: usize, workers: usize) -> Result<()> {
        let mine = |page: PageNo| page % workers as u64 == worker as u64;
        let mut reader = log::scan(dir, range.start).sql()?;
        while reader.end() < range.end {
            let Some(record) = reader.next_record().sql()? else { return Err(damaged("the log")) };
            match record.kind {
                KIND_ROW | KIND_COMPENSATION | KIND_PURGE | KIND_SMO => {
                    let (ops, _) = tree::ops(record.payload).sql()?;
                    for op in &ops {
                        if mine(op.page_no) && !self.is_past(op.page_no, record.start) {
                            self.apply(op, record.end)?;
                        }
                    }
                }
                KIND_IMAGES => {
                    for image in record.payload.chunks_exact(8 + PAGE_BYTES) {
                        let page = name(image)?;
                        if mine(page) && !self.is_past(page, record.start) {
                            self.install(page, &image[8..])?;
                        }
                    }
                }
                _ => {}
            }
        }
        match self.waiting_for_image.iter().min() {
            None => Ok(()),
            Some(page) => Err(Error::new(
                SqlState::DATA_CORRUPTED,
                format!("page {page} is damaged and the log holds no image of it"),
            )
            .with_hint("Restore the data folder from a backup.")),
        }
    }

    /// Whether a record belongs to an earlier life of the page.
    fn is_past(&self, page: PageNo, lsn: Lsn) -> bool {
        self.freed.get(&page).is_some_and(|&freed| lsn <= freed)
    }

    fn apply(&mut self, op: &tree::Op<'_>, lsn: Lsn) -> Result<()> {
        if op.code == OpCode::Free {
            return Ok(());
        }
        let mut page = self.pool.redo_page(op.page_no).sql()?;
        // A page of zeros: torn in the file, or never written. Only an image or a new beginning makes it usable.
        if page.page().lsn() == 0 && !op.is_format() {
            self.waiting_for_image.insert(op.page_no);
            return Ok(());
        }
        if page.page().lsn() < lsn {
            self.waiting_for_image.remove(&op.page_no);
            page.mark_dirty();
            tree::redo(&mut page.page_mut(), op).sql()?;
            page.set_lsn(lsn);
        }
        Ok(())
    }

    fn install(&mut self, page_no: PageNo, image: &[u8]) -> Result<()> {
        let mut page = self.pool.redo_page(page_no).sql()?;
        if page.page().lsn() == 0 {
            page.mark_dirty();
            page.page_mut().write_bytes(0, image);
            self.waiting_for_image.remove(&page_no);
            tracing::warn!(page_no, "a page that was torn or never written was made whole from the log");
        }
        Ok(())
    }
}

/// Takes back what the losers changed.
pub(crate) fn take_back_losers(db: &Arc<Inner>, losers: &[Loser]) -> Result<()> {
    for loser in losers {
        tracing::info!(txn = ?loser.txn, changes = loser.changes.len(), "taking back");
        for &(lsn, number) in loser.changes.iter().rev() {
            let payload = read_record(&db.dir, lsn)?;
            let (_, tail) = tree::ops(&payload).sql()?;
            let records = UndoRecord::decode_all(tail).ok_or_else(|| damaged("a row record"))?;
            let record = records.get(number).ok_or_else(|| damaged("a row record"))?;
            crate::rollback::take_back(db, 0, record)?;
        }
        db.log.append(0, KIND_ABORT, &[&loser.txn.writer().to_le_bytes()]);
    }
    Ok(())
}

fn read_record(dir: &Path, lsn: Lsn) -> Result<Vec<u8>> {
    let mut reader = log::scan(dir, lsn).sql()?;
    let record = reader.next_record().sql()?.ok_or_else(|| damaged("a row record"))?;
    Ok(record.payload.to_vec())
}

#[cfg(all(test, not(homenode_lab)))]
mod tests {
    use super::*;
    use crate::{ColumnSpec, Database, Isolation, Options, TableSpec};
    use homenode_log::{LogConfig, control};
    use homenode_platform::fs::{File, OpenOptions};
    use homenode_pool::PoolConfig;
    use homenode_types::{ColumnType, Type};
    use std::path::PathBuf;

    /// A folder as a crash leaves it: with records after the last checkpoint.
    fn crashed(dir: &Path) {
        let options = Options {
            pool_bytes: 4 << 20,
            sync: false,
            huge_pages: false,
            log_segment_bytes: 1 << 20,
            ..Options::default()
        };
        let live = dir.join("live");
        let db = Database::open_with(&live, options).unwrap();
        let mut session = db.session().unwrap();
        session.begin(Isolation::ReadCommitted, false).unwrap();
        let ty = ColumnType { ty: Type::Int4, typmod: -1 };
        let column =
            ColumnSpec { name: "id".to_owned(), ty, not_null: true, default: None, identity: None, serial: false };
        let spec = TableSpec {
            schema: "public".to_owned(),
            name: "t".to_owned(),
            columns: vec![column],
            primary_key: Some((None, vec![0])),
            uniques: Vec::new(),
            checks: Vec::new(),
        };
        session.create_table(spec).unwrap();
        session.commit().unwrap();
        // The log's next segment gets its name while the folder is read: then it is read again.
        while let Err(error) = copy_files(&live, dir) {
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
        }
    }

    fn copy_files(from: &Path, to: &Path) -> std::io::Result<()> {
        for entry in std::fs::read_dir(from)? {
            let entry = entry?;
            std::fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
        Ok(())
    }

    #[test]
    fn redo_ends_where_the_log_ended_when_it_began() {
        // Redo of more pages than the pool holds writes some of them back, and logs their images first. A worker that went
        // on reading would read those while they are written, and take what is half there for damage.
        let dir: PathBuf = std::env::temp_dir().join(format!("homenode-recovery-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        crashed(&dir);
        let control = control::read(&dir).unwrap().unwrap();
        let plan = Plan::make(&dir, Some(&control)).unwrap();
        assert!(plan.records > 0, "there is something to redo");
        let config = LogConfig { segment_bytes: 1 << 20, sync: false, ..LogConfig::new(&dir) };
        let log = Log::open_at(config, plan.log_end).unwrap();
        // Stands for whatever is not (yet) a whole record: a worker that reads it fails.
        let behind = log.append(0, KIND_ROW, &[b"?"]);
        log.wait_durable(behind.end);
        let file = File::open(&dir.join("pages"), &OpenOptions::new().read(true).write(true)).unwrap();
        let config = PoolConfig { bytes: 4 << 20, huge_pages: false, ..PoolConfig::default() };
        let pool = Pool::new(
            config,
            file,
            Arc::new(crate::database::PoolWal(log.clone())),
            &homenode_topology::Topology::discover(),
        )
        .unwrap();
        run(&dir, plan, &pool, &log, 3).unwrap();
        drop(log);
        let _ = std::fs::remove_dir_all(&dir);
    }
}
