//! What has an open transaction done to the definitions, and how does that reach the catalog's tree?

use crate::catalog::{Definitions, Object, Table};
use crate::database::Inner;
use crate::error::{Error, Result, SqlState, Storage};
use crate::session::Session;
use homenode_platform::atomic::{AtomicU64, Ordering};
use homenode_pool::PageNo;
use homenode_tree::{Direction, Tree};
use homenode_txn::{TableLock, is_tombstone};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// What an open transaction has done to the definitions.
#[derive(Clone)]
pub(crate) struct PendingChanges {
    definitions: Arc<Definitions>,
    base: Arc<Definitions>,
    version: u64,
    /// Objects that differ from the published ones.
    touched: Vec<u32>,
    pub(super) locks: Vec<Arc<TableLock>>,
    /// Trees made by this transaction, whether they are still wanted or not.
    created: Vec<(PageNo, u32)>,
    /// Trees to give back when it commits.
    dropped: Vec<(PageNo, u32)>,
    pub(super) created_sequences: Vec<u32>,
    pub(super) dropped_sequences: Vec<u32>,
}

impl std::fmt::Debug for PendingChanges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingChanges").field("touched", &self.touched).finish_non_exhaustive()
    }
}

/// Versions of pending definitions: never one that was published.
static PENDING_VERSION: AtomicU64 = AtomicU64::new(1 << 63);

impl PendingChanges {
    fn new(base: Arc<Definitions>) -> PendingChanges {
        PendingChanges {
            definitions: base.clone(),
            base,
            version: PENDING_VERSION.fetch_add(1, Ordering::Relaxed),
            touched: Vec::new(),
            locks: Vec::new(),
            created: Vec::new(),
            dropped: Vec::new(),
            created_sequences: Vec::new(),
            dropped_sequences: Vec::new(),
        }
    }

    pub fn definitions(&self) -> &Arc<Definitions> {
        &self.definitions
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn change(&mut self, oid: u32, change: impl FnOnce(&mut Definitions)) {
        change(Arc::make_mut(&mut self.definitions));
        self.version = PENDING_VERSION.fetch_add(1, Ordering::Relaxed);
        if !self.touched.contains(&oid) {
            self.touched.push(oid);
        }
    }

    /// Back to an earlier moment of the same transaction; None: to before its first change. Locks stay.
    pub fn go_back(&mut self, earlier: Option<&PendingChanges>) {
        self.version = PENDING_VERSION.fetch_add(1, Ordering::Relaxed);
        match earlier {
            Some(earlier) => {
                self.definitions = earlier.definitions.clone();
                self.dropped = earlier.dropped.clone();
                self.dropped_sequences = earlier.dropped_sequences.clone();
            }
            None => {
                self.definitions = self.base.clone();
                self.dropped.clear();
                self.dropped_sequences.clear();
            }
        }
    }

    /// Makes the changes everybody's. The catalog's rows commit right after; the locks are still held.
    pub fn publish(&self, db: &Arc<Inner>) {
        for lock in &self.locks {
            lock.changed();
        }
        db.catalog.publish(|definitions| {
            // All are taken out first: a name may have gone from one to the other.
            for &oid in &self.touched {
                definitions.remove(oid);
            }
            for &oid in &self.touched {
                if let Some(table) = self.definitions.table_by_oid(oid) {
                    definitions.put_table(db.table(table.definition.clone()));
                }
                if let Some(sequence) = self.definitions.sequence_by_oid(oid) {
                    definitions.put_sequence(sequence.clone());
                }
                if let Some(view) = self.definitions.view_by_oid(oid) {
                    definitions.put_view(view.clone());
                }
                if let Some(role) = self.definitions.role_by_oid(oid) {
                    definitions.put_role(role.clone());
                }
                if let Some(access) = self.definitions.all_access().find(|access| access.oid == oid) {
                    definitions.put_access(access.clone());
                }
                if let Some(found) = self.definitions.statistics.values().find(|found| found.oid == oid) {
                    definitions.put_statistics(found.clone());
                }
                if let Some(schema) = self.definitions.schema_by_oid(oid) {
                    definitions.put_schema(schema.clone());
                }
                if let Some(comments) = self.definitions.all_comments().find(|comments| comments.oid == oid) {
                    definitions.put_comments(comments.clone());
                }
            }
        });
    }

    fn is_wanted(&self, root: PageNo) -> bool {
        self.touched
            .iter()
            .filter_map(|&oid| self.definitions.table_by_oid(oid))
            .any(|table| table.roots().any(|own| own == root))
    }

    /// Gives back what is not needed any more and lets the locks go.
    pub fn after_commit(self, db: &Arc<Inner>, lane: usize, slot: usize) -> Result<()> {
        let unwanted = self.created.iter().filter(|(root, _)| !self.is_wanted(*root));
        let gone: Vec<_> = self.dropped.iter().chain(unwanted).copied().collect();
        for oid in &self.dropped_sequences {
            db.sequences.remove(*oid);
        }
        let result = free_trees(db, lane, &gone);
        self.release(db, slot);
        result
    }

    /// As [`PendingChanges::after_commit`], for a transaction that was taken back.
    pub fn after_rollback(self, db: &Arc<Inner>, lane: usize, slot: usize) -> Result<()> {
        for oid in &self.created_sequences {
            db.sequences.remove(*oid);
        }
        let result = free_trees(db, lane, &self.created);
        self.release(db, slot);
        result
    }

    fn release(self, db: &Arc<Inner>, slot: usize) {
        for lock in self.locks.iter().rev() {
            lock.release(&db.txns, slot);
        }
    }
}

fn free_trees(db: &Arc<Inner>, lane: usize, trees: &[(PageNo, u32)]) -> Result<()> {
    for &(root, id) in trees {
        db.live_trees.lock().remove(&root);
        let tree = Tree::open(db.pool.clone(), db.log.clone(), id, root);
        crate::reclaim::release(db, lane, &tree.pages().sql()?);
    }
    Ok(())
}

/// Bytes of a catalog entry that one row of the catalog's tree takes.
const CHUNK_BYTES: usize = 3000;

fn chunk_key(oid: u32, chunk: usize) -> [u8; 6] {
    let mut key = [0; 6];
    key[..4].copy_from_slice(&oid.to_be_bytes());
    key[4..].copy_from_slice(&(chunk as u16).to_be_bytes());
    key
}

/// Reads all definitions from the catalog's tree, when nobody else is there yet.
pub(crate) fn load_catalog(db: &Arc<Inner>) -> Result<()> {
    let mut objects: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    let mut cursor = db.catalog.tree.cursor();
    cursor.seek(Bound::Unbounded, Direction::Forward);
    let mut key = Vec::new();
    while let Some(leaf) = cursor.next_leaf(&db.catalog.tree).sql()? {
        for slot in leaf.slots().filter(|&slot| !is_tombstone(leaf.header(slot).writer)) {
            key.clear();
            leaf.key(slot, &mut key);
            let oid =
                key.get(..4).ok_or_else(|| Error::new(SqlState::DATA_CORRUPTED, "a catalog key cannot be read"))?;
            let oid = u32::from_be_bytes(oid.try_into().expect("four bytes"));
            objects.entry(oid).or_default().extend_from_slice(leaf.value(slot));
        }
    }
    let mut live_trees = db.live_trees.lock();
    live_trees.insert(db.catalog.tree.root());
    let mut definitions = Definitions::default();
    for (oid, bytes) in objects {
        db.catalog.note_oid(oid);
        let mut object = Object::decode(&bytes)?;
        if let Object::Table(table) = &mut object {
            live_trees.extend(table.roots());
            for index in &mut table.indexes {
                db.catalog.note_oid(index.oid);
                // No snapshot is older than the start.
                index.valid_from = 0;
            }
        }
        put(&mut definitions, db, object);
    }
    db.catalog.publish(|published| *published = definitions);
    Ok(())
}

/// Makes an object one of these definitions, in place of what had its number.
fn put(definitions: &mut Definitions, db: &Arc<Inner>, object: Object) {
    match object {
        Object::Table(table) => definitions.put_table(db.table(table)),
        Object::Sequence(sequence) => definitions.put_sequence(Arc::new(sequence)),
        Object::View(view) => definitions.put_view(Arc::new(view)),
        Object::Role(role) => definitions.put_role(Arc::new(role)),
        Object::Access(access) => definitions.put_access(Arc::new(access)),
        Object::Statistics(statistics) => definitions.put_statistics(Arc::new(statistics)),
        Object::Schema(schema) => definitions.put_schema(Arc::new(schema)),
        Object::Comments(comments) => definitions.put_comments(Arc::new(comments)),
    }
}

impl Session {
    /// Begins to change definitions: one transaction at a time does, in the whole database.
    pub(crate) fn pending(&mut self) -> Result<&mut PendingChanges> {
        self.writer()?;
        if self.txn.pending.is_none() {
            let deadline = self.lock_deadline_ns();
            self.db.catalog.lock.take_exclusive(&self.db.txns, CATALOG_OID, self.slot, deadline).sql()?;
            let (base, _) = self.db.catalog.current(self.lane);
            let mut pending = PendingChanges::new(base);
            pending.locks.push(self.db.catalog.lock.clone());
            self.txn.pending = Some(Box::new(pending));
        }
        Ok(self.txn.pending.as_mut().expect("made above"))
    }

    /// Locks a table against all others until the transaction ends, and gives its definition as it is then.
    pub(crate) fn take_table(&mut self, oid: u32) -> Result<Arc<Table>> {
        self.pending()?;
        let lock = self.db.catalog.table_lock(oid);
        let deadline = self.lock_deadline_ns();
        if lock.take_exclusive(&self.db.txns, oid, self.slot, deadline).sql()? {
            self.pending()?.locks.push(lock);
        }
        let found = self.definitions().table_by_oid(oid).cloned();
        found.ok_or_else(|| Error::new(SqlState::UNDEFINED_TABLE, format!("relation with OID {oid} does not exist")))
    }

    /// Locks `table` against all other sessions until the transaction ends (LOCK TABLE).
    ///
    /// # Errors
    /// 40P01, 55P03, 57014.
    pub fn lock_table(&mut self, table: &Table) -> Result<()> {
        self.take_table(table.oid).map(|_| ())
    }

    pub(crate) fn check_free_name(&mut self, schema: &str, name: &str) -> Result<()> {
        self.pending()?;
        if self.definitions().schema(schema).is_none() {
            let message = format!("schema \"{schema}\" does not exist");
            return Err(Error::new(SqlState::INVALID_SCHEMA_NAME, message));
        }
        match self.definitions().oid(schema, name) {
            None => Ok(()),
            Some(_) => Err(Error::new(SqlState::DUPLICATE_TABLE, format!("relation \"{name}\" already exists"))),
        }
    }

    /// A name that is not taken: `base`, or `base` with a number.
    pub(super) fn free_name(&mut self, schema: &str, base: String) -> String {
        let mut name = base.clone();
        let mut number = 0;
        while self.definitions().oid(schema, &name).is_some() {
            number += 1;
            name = format!("{base}{number}");
        }
        name
    }

    pub(crate) fn new_tree(&mut self, oid: u32) -> Result<PageNo> {
        let tree = Tree::create(self.db.pool.clone(), self.db.log.clone(), self.lane, oid).sql()?;
        self.note_tree(tree.root(), oid)?;
        Ok(tree.root())
    }

    /// Notes that this transaction has made a tree.
    pub(crate) fn note_tree(&mut self, root: PageNo, oid: u32) -> Result<()> {
        self.db.live_trees.lock().insert(root);
        self.pending()?.created.push((root, oid));
        Ok(())
    }

    /// Whether the tree was made by the open transaction, so that nobody else has seen it.
    pub(crate) fn made_tree(&self, root: PageNo) -> bool {
        self.txn.pending.as_ref().is_some_and(|pending| pending.created.iter().any(|tree| tree.0 == root))
    }

    /// Notes that a tree (0: none) is not needed once this transaction has committed.
    pub(crate) fn drop_tree(&mut self, root: PageNo, oid: u32) -> Result<()> {
        let pending = self.pending()?;
        if root != 0 && !pending.created.iter().any(|tree| tree.0 == root) {
            pending.dropped.push((root, oid));
        }
        Ok(())
    }

    /// Writes an object's catalog rows and makes it part of the pending definitions.
    pub(crate) fn put_object(&mut self, object: Object) -> Result<()> {
        self.write_rows(object.oid(), &object.encode())?;
        let db = self.db.clone();
        let oid = object.oid();
        self.pending()?.change(oid, |definitions| put(definitions, &db, object));
        Ok(())
    }

    pub(super) fn write_rows(&mut self, oid: u32, bytes: &[u8]) -> Result<()> {
        let db = self.db.clone();
        let tree = &db.catalog.tree;
        let mut chunk = 0;
        for part in bytes.chunks(CHUNK_BYTES) {
            self.put_entry(tree, &chunk_key(oid, chunk), part)?;
            chunk += 1;
        }
        while self.delete_entry(tree, &chunk_key(oid, chunk))? {
            chunk += 1;
        }
        Ok(())
    }

    /// Takes the catalog lock: definitions can't change under what follows.
    pub(crate) fn begin_change(&mut self) -> Result<()> {
        self.pending().map(|_| ())
    }

    pub(crate) fn new_oid(&self) -> u32 {
        self.db.catalog.new_oid()
    }

    pub(crate) fn remove_object(&mut self, oid: u32) -> Result<()> {
        if let Some(access) = self.definitions().access(oid).map(|access| access.oid) {
            self.remove_object(access)?;
        }
        if let Some(statistics) = self.definitions().statistics.get(&oid).map(|statistics| statistics.oid) {
            self.remove_object(statistics)?;
        }
        self.forget_comments(oid)?;
        self.write_rows(oid, &[])?;
        self.pending()?.change(oid, |definitions| definitions.remove(oid));
        Ok(())
    }
}

/// The lock of whoever changes definitions goes by this object number.
const CATALOG_OID: u32 = 1;
