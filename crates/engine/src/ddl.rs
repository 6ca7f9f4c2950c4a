//! How does a definition change? Tables, indexes and sequences are created, altered and dropped inside transactions.
//!
//! A change writes the catalog's rows like any other rows, so that commit, rollback and crash treat it like any other change. Until commit, the
//! transaction goes by definitions of its own ([`PendingChanges`]); the table is locked against all others. New trees are made at
//! once, old ones are given back after the commit.

use crate::catalog::*;
use crate::database::Inner;
use crate::error::{Error, Result, SqlState, Storage};
use crate::overflow::{self, overflow_tree};
use crate::read::KeyRange;
use crate::sequence::{self, SequenceState};
use crate::session::Session;
use homenode_platform::atomic::{AtomicU64, Ordering};
use homenode_pool::PageNo;
use homenode_tree::{Direction, Tree};
use homenode_txn::{TableLock, is_tombstone};
use homenode_types::{ColumnType, Type};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// A column of a table to be created.
#[derive(Clone, Debug)]
pub struct ColumnSpec {
    /// Name.
    pub name: String,
    /// Type with modifier.
    pub ty: ColumnType,
    /// Whether NULL is refused.
    pub not_null: bool,
    /// Default, as SQL text.
    pub default: Option<String>,
    /// GENERATED … AS IDENTITY.
    pub identity: Option<Identity>,
    /// serial: gets a sequence of its own and a default from it.
    pub serial: bool,
}

/// A table to be created.
#[derive(Clone, Debug)]
pub struct TableSpec {
    /// Schema.
    pub schema: String,
    /// Name.
    pub name: String,
    /// Columns.
    pub columns: Vec<ColumnSpec>,
    /// Primary key: constraint's name, if given, and columns.
    pub primary_key: Option<(Option<String>, Vec<usize>)>,
    /// UNIQUE constraints, likewise.
    pub uniques: Vec<(Option<String>, Vec<usize>)>,
    /// CHECK constraints.
    pub checks: Vec<CheckSpec>,
}

/// A CHECK constraint to be created.
#[derive(Clone, Debug)]
pub struct CheckSpec {
    /// Name; made up when absent.
    pub name: Option<String>,
    /// The one column that it is about, for its name.
    pub column: Option<usize>,
    /// The condition, as SQL text.
    pub expression: String,
}

/// An index to be created.
#[derive(Clone, Debug)]
pub struct IndexSpec {
    /// Name; made up when absent.
    pub name: Option<String>,
    /// Columns by position.
    pub columns: Vec<usize>,
    /// Whether two rows may not have the same values.
    pub unique: bool,
    /// Whether it stands for a UNIQUE constraint.
    pub constraint: bool,
}

/// A sequence to be created.
#[derive(Clone, Debug)]
pub struct SequenceSpec {
    /// Schema.
    pub schema: String,
    /// Name.
    pub name: String,
    /// Type: smallint, integer or bigint.
    pub ty: Type,
    /// First value; by default the bound that it starts from.
    pub start: Option<i64>,
    /// Step, not zero.
    pub increment: i64,
    /// Bounds; by default the type's.
    pub min: Option<i64>,
    /// See `min`.
    pub max: Option<i64>,
    /// Whether it starts anew at its end.
    pub cycle: bool,
    /// Table and column that it belongs to.
    pub owner: Option<(u32, usize)>,
}

/// What an open transaction has done to the definitions.
#[derive(Clone)]
pub(crate) struct PendingChanges {
    definitions: Arc<Definitions>,
    base: Arc<Definitions>,
    version: u64,
    /// Objects that differ from the published ones.
    touched: Vec<u32>,
    locks: Vec<Arc<TableLock>>,
    /// Trees made by this transaction, whether they are still wanted or not.
    created: Vec<(PageNo, u32)>,
    /// Trees to give back when it commits.
    dropped: Vec<(PageNo, u32)>,
    created_sequences: Vec<u32>,
    dropped_sequences: Vec<u32>,
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

    fn change(&mut self, oid: u32, change: impl FnOnce(&mut Definitions)) {
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
            for &oid in &self.touched {
                definitions.remove(oid);
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
        match Object::decode(&bytes)? {
            Object::Table(mut table) => {
                live_trees.extend(table.roots());
                for index in &mut table.indexes {
                    db.catalog.note_oid(index.oid);
                    // No snapshot is older than the start.
                    index.valid_from = 0;
                }
                definitions.put_table(db.table(table));
            }
            Object::Sequence(sequence) => definitions.put_sequence(Arc::new(sequence)),
            Object::View(view) => definitions.put_view(Arc::new(view)),
            Object::Role(role) => definitions.put_role(Arc::new(role)),
            Object::Access(access) => definitions.put_access(Arc::new(access)),
            Object::Statistics(statistics) => definitions.put_statistics(Arc::new(statistics)),
        }
    }
    db.catalog.publish(|published| *published = definitions);
    Ok(())
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
        match self.definitions().oid(schema, name) {
            None => Ok(()),
            Some(_) => Err(Error::new(SqlState::DUPLICATE_TABLE, format!("relation \"{name}\" already exists"))),
        }
    }

    /// A name that is not taken: `base`, or `base` with a number.
    fn free_name(&mut self, schema: &str, base: String) -> String {
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
        self.pending()?.change(oid, |definitions| match object {
            Object::Table(table) => definitions.put_table(db.table(table)),
            Object::Sequence(sequence) => definitions.put_sequence(Arc::new(sequence)),
            Object::View(view) => definitions.put_view(Arc::new(view)),
            Object::Role(role) => definitions.put_role(Arc::new(role)),
            Object::Access(access) => definitions.put_access(Arc::new(access)),
            Object::Statistics(statistics) => definitions.put_statistics(Arc::new(statistics)),
        });
        Ok(())
    }

    fn write_rows(&mut self, oid: u32, bytes: &[u8]) -> Result<()> {
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
        self.write_rows(oid, &[])?;
        self.pending()?.change(oid, |definitions| definitions.remove(oid));
        Ok(())
    }

    /// Creates a table.
    ///
    /// # Errors
    /// 42P07, 42701, 42P16, 53100.
    pub fn create_table(&mut self, spec: TableSpec) -> Result<Arc<Table>> {
        self.check_free_name(&spec.schema, &spec.name)?;
        for (at, column) in spec.columns.iter().enumerate() {
            if spec.columns[..at].iter().any(|other| other.name == column.name) {
                return Err(Error::new(
                    SqlState::DUPLICATE_COLUMN,
                    format!("column \"{}\" specified more than once", column.name),
                ));
            }
        }
        let oid = self.db.catalog.new_oid();
        // The name is taken at once, so that names made up below don't collide with it.
        let root = self.new_tree(oid)?;
        let mut table = TableDefinition {
            oid,
            schema: spec.schema.clone(),
            name: spec.name.clone(),
            columns: Vec::new(),
            primary_key: None,
            indexes: Vec::new(),
            root,
            overflow: 0,
            checks: Vec::new(),
            foreign_keys: Vec::new(),
            referrers: Vec::new(),
        };
        for (at, column) in spec.columns.into_iter().enumerate() {
            table.columns.push(self.create_column(&table, at, column)?);
        }
        if let Some((name, columns)) = spec.primary_key {
            let name = self.constraint_name(&table, name, &[], "pkey")?;
            for &column in &columns {
                table.columns[column].not_null = true;
            }
            table.primary_key = Some(PrimaryKey { oid: self.db.catalog.new_oid(), name, columns });
        }
        for (name, columns) in spec.uniques {
            let name = self.constraint_name(&table, name, &columns, "key")?;
            let oid = self.db.catalog.new_oid();
            let root = self.new_tree(oid)?;
            table.indexes.push(IndexDefinition {
                oid,
                name,
                columns,
                unique: true,
                constraint: true,
                root,
                valid_from: 0,
            });
        }
        for check in spec.checks {
            let oid = self.db.catalog.new_oid();
            add_check(&mut table, oid, check)?;
        }
        self.give_overflow_tree(&mut table)?;
        let lock = self.db.catalog.table_lock(oid);
        lock.take_exclusive(&self.db.txns, oid, self.slot, None).sql()?;
        self.pending()?.locks.push(lock);
        self.put_object(Object::Table(table))?;
        self.own(oid)?;
        Ok(self.definitions().table_by_oid(oid).expect("just created").clone())
    }

    /// Gives a table whose rows may need one a tree for their long values.
    fn give_overflow_tree(&mut self, table: &mut TableDefinition) -> Result<()> {
        if table.overflow == 0 && overflow::is_wanted(&table.layout()) {
            table.overflow = self.new_tree(overflow_tree(table.oid))?;
        }
        Ok(())
    }

    fn constraint_name(
        &mut self,
        table: &TableDefinition,
        given: Option<String>,
        columns: &[usize],
        suffix: &str,
    ) -> Result<String> {
        if let Some(name) = given {
            self.check_free_name(&table.schema, &name)?;
            return Ok(name);
        }
        let mut parts = vec![table.name.as_str()];
        parts.extend(columns.iter().map(|&column| table.columns[column].name.as_str()));
        parts.push(suffix);
        let base = parts.join("_");
        let taken: Vec<_> = table.indexes.iter().map(|index| index.name.clone()).collect();
        let mut name = self.free_name(&table.schema, base.clone());
        let mut number = 1;
        while taken.contains(&name) {
            name = format!("{base}{number}");
            number += 1;
        }
        Ok(name)
    }

    fn create_column(&mut self, table: &TableDefinition, at: usize, spec: ColumnSpec) -> Result<Column> {
        let mut column = Column {
            name: spec.name,
            ty: spec.ty,
            not_null: spec.not_null,
            default: spec.default,
            identity: spec.identity,
            sequence: None,
        };
        if spec.serial || spec.identity.is_some() {
            let name = self.free_name(&table.schema, format!("{}_{}_seq", table.name, column.name));
            let sequence = self.create_sequence(SequenceSpec {
                schema: table.schema.clone(),
                name: name.clone(),
                ty: column.ty.ty,
                start: None,
                increment: 1,
                min: None,
                max: None,
                cycle: false,
                owner: Some((table.oid, at)),
            })?;
            column.sequence = Some(sequence);
            column.not_null = true;
            if spec.serial {
                column.default = Some(format!("nextval('{}'::regclass)", quote_name(&name)));
            }
        }
        Ok(column)
    }

    /// Creates a sequence; gives its number.
    ///
    /// # Errors
    /// 42P07, 22023.
    pub fn create_sequence(&mut self, spec: SequenceSpec) -> Result<u32> {
        self.check_free_name(&spec.schema, &spec.name)?;
        let (least, greatest) = match spec.ty {
            Type::Int2 => (i64::from(i16::MIN), i64::from(i16::MAX)),
            Type::Int4 => (i64::from(i32::MIN), i64::from(i32::MAX)),
            _ => (i64::MIN, i64::MAX),
        };
        let (min, max) = if spec.increment > 0 {
            (spec.min.unwrap_or(1), spec.max.unwrap_or(greatest))
        } else {
            (spec.min.unwrap_or(least), spec.max.unwrap_or(-1))
        };
        let start = spec.start.unwrap_or(if spec.increment > 0 { min } else { max });
        let invalid = |message: String| Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
        if spec.increment == 0 {
            return invalid("INCREMENT must not be zero".to_owned());
        }
        if min >= max {
            return invalid(format!("MINVALUE ({min}) must be less than MAXVALUE ({max})"));
        }
        if start < min {
            return invalid(format!("START value ({start}) cannot be less than MINVALUE ({min})"));
        }
        if start > max {
            return invalid(format!("START value ({start}) cannot be greater than MAXVALUE ({max})"));
        }
        let oid = self.db.catalog.new_oid();
        let definition = SequenceDefinition {
            oid,
            schema: spec.schema,
            name: spec.name,
            ty: spec.ty,
            start,
            increment: spec.increment,
            min,
            max,
            cycle: spec.cycle,
            owner: spec.owner,
        };
        self.put_object(Object::Sequence(definition))?;
        self.own(oid)?;
        self.pending()?.created_sequences.push(oid);
        sequence::set(&self.db, self.lane, oid, SequenceState { last: start, called: false });
        Ok(oid)
    }

    /// Drops a sequence.
    ///
    /// # Errors
    /// 2BP01 when a column's default needs it.
    pub fn drop_sequence(&mut self, oid: u32) -> Result<()> {
        self.pending()?;
        let user = self
            .definitions()
            .tables()
            .into_iter()
            .find(|table| table.columns.iter().any(|column| column.sequence == Some(oid)));
        if let (Some(table), Some(sequence)) = (user, self.definitions().sequence_by_oid(oid)) {
            return Err(Error::new(
                SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
                format!("cannot drop sequence {} because other objects depend on it", sequence.name),
            )
            .with_detail(format!("A default of table {} depends on it.", table.name)));
        }
        self.remove_sequence(oid)
    }

    fn remove_sequence(&mut self, oid: u32) -> Result<()> {
        self.remove_object(oid)?;
        self.pending()?.dropped_sequences.push(oid);
        Ok(())
    }

    /// Drops a table with its indexes, its foreign keys and the sequences that belong to it.
    ///
    /// # Errors
    /// 40P01, 55P03, 57014; 2BP01 when others refer to it.
    pub fn drop_table(&mut self, table: &Table) -> Result<()> {
        let table = self.take_table(table.oid)?;
        if table.referrers.iter().any(|&referrer| referrer != table.oid) {
            let message = format!("cannot drop table {} because other objects depend on it", table.name);
            return Err(Error::new(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, message));
        }
        for key in table.foreign_keys.iter().filter(|key| key.parent != table.oid) {
            self.drop_foreign_key(&table, key.oid)?;
        }
        for index in &table.indexes {
            self.drop_tree(index.root, index.oid)?;
        }
        self.drop_tree(table.root, table.oid)?;
        self.drop_tree(table.overflow, overflow_tree(table.oid))?;
        self.remove_object(table.oid)?;
        for oid in table.columns.iter().filter_map(|column| column.sequence) {
            self.remove_sequence(oid)?;
        }
        Ok(())
    }

    /// Empties tables by giving them new trees.
    ///
    /// # Errors
    /// As [`Session::drop_table`].
    pub fn truncate(&mut self, tables: &[Arc<Table>], restart_identity: bool) -> Result<()> {
        for table in tables {
            let table = self.take_table(table.oid)?;
            let mut definition = table.definition.clone();
            self.drop_tree(definition.root, definition.oid)?;
            definition.root = self.new_tree(definition.oid)?;
            self.drop_tree(definition.overflow, overflow_tree(definition.oid))?;
            definition.overflow = 0;
            self.give_overflow_tree(&mut definition)?;
            for index in &mut definition.indexes {
                self.drop_tree(index.root, index.oid)?;
                index.root = self.new_tree(index.oid)?;
            }
            self.put_object(Object::Table(definition))?;
            for oid in table.columns.iter().filter_map(|column| column.sequence).filter(|_| restart_identity) {
                let start = self.definitions().sequence_by_oid(oid).map(|sequence| sequence.start);
                if let Some(start) = start {
                    self.setval(oid, start, false)?;
                }
            }
        }
        Ok(())
    }

    /// Creates an index over the rows that are there; gives its number.
    ///
    /// # Errors
    /// 42P07, 23505.
    pub fn create_index(&mut self, table: &Table, spec: IndexSpec) -> Result<u32> {
        let table = self.take_table(table.oid)?;
        let mut definition = table.definition.clone();
        let suffix = if spec.constraint { "key" } else { "idx" };
        let name = self.constraint_name(&definition, spec.name, &spec.columns, suffix)?;
        let oid = self.db.catalog.new_oid();
        let mut index = IndexDefinition {
            oid,
            name,
            columns: spec.columns,
            unique: spec.unique,
            constraint: spec.constraint,
            root: 0,
            valid_from: self.db.txns.clock(),
        };
        index.root = self.build_index(&table, &index)?;
        definition.indexes.push(index);
        self.put_object(Object::Table(definition))?;
        Ok(oid)
    }

    /// Drops an index.
    ///
    /// # Errors
    /// 42704, 2BP01 for a primary key's.
    pub fn drop_index(&mut self, oid: u32) -> Result<()> {
        self.pending()?;
        let found = self.definitions().index_by_oid(oid).map(|(table, _)| table.oid);
        let Some(table) = found else {
            return Err(Error::new(SqlState::UNDEFINED_OBJECT, format!("index with OID {oid} does not exist")));
        };
        let table = self.take_table(table)?;
        let mut definition = table.definition.clone();
        let place = definition.indexes.iter().position(|index| index.oid == oid);
        let index = definition.indexes.remove(place.ok_or_else(|| Error::internal("the index has gone"))?);
        self.drop_tree(index.root, index.oid)?;
        self.put_object(Object::Table(definition))
    }

    /// Makes columns the primary key of a table that has none: the rows are put in its order.
    ///
    /// # Errors
    /// 42P16 when there is one; 23502, 23505.
    pub fn add_primary_key(&mut self, table: &Table, name: Option<String>, columns: Vec<usize>) -> Result<()> {
        let table = self.take_table(table.oid)?;
        if table.primary_key.is_some() {
            return Err(Error::new(
                SqlState::INVALID_TABLE_DEFINITION,
                format!("multiple primary keys for table \"{}\" are not allowed", table.name),
            ));
        }
        let mut definition = table.definition.clone();
        let name = self.constraint_name(&definition, name, &[], "pkey")?;
        for &column in &columns {
            definition.columns[column].not_null = true;
        }
        definition.primary_key = Some(PrimaryKey { oid: self.db.catalog.new_oid(), name, columns });
        self.rebuild(&table, definition)
    }

    /// Adds a column. It is NULL in all rows that are there, whatever its definition says; true when there are rows. The caller
    /// holds the table then and gives them the values that the definition wants.
    ///
    /// # Errors
    /// 42701.
    pub fn add_column(&mut self, table: &Table, spec: ColumnSpec) -> Result<bool> {
        let table = self.take_table(table.oid)?;
        if table.column_index(&spec.name).is_some() {
            return Err(Error::new(
                SqlState::DUPLICATE_COLUMN,
                format!("column \"{}\" of relation \"{}\" already exists", spec.name, table.name),
            ));
        }
        let has_rows = !self.is_empty(&table)?;
        let mut definition = table.definition.clone();
        let column = self.create_column(&definition, definition.columns.len(), spec)?;
        definition.columns.push(column);
        self.give_overflow_tree(&mut definition)?;
        self.put_object(Object::Table(definition))?;
        Ok(has_rows)
    }

    /// Changes a table's definition where no row is concerned: names, defaults, comments.
    ///
    /// # Errors
    /// As [`Session::drop_table`], and those of `change`.
    pub fn alter_table(
        &mut self,
        table: &Table,
        change: impl FnOnce(&mut TableDefinition) -> Result<()>,
    ) -> Result<()> {
        let table = self.take_table(table.oid)?;
        let mut definition = table.definition.clone();
        let old_name = definition.name.clone();
        change(&mut definition)?;
        assert_eq!((definition.oid, definition.root), (table.oid, table.root), "rows stay where they are");
        if definition.name != old_name {
            self.check_free_name(&definition.schema, &definition.name)?;
        }
        self.put_object(Object::Table(definition))
    }

    /// Adds a CHECK constraint; that the rows there satisfy it, the caller has seen to under the table's lock.
    ///
    /// # Errors
    /// 42710.
    pub fn add_check(&mut self, table: &Table, check: CheckSpec) -> Result<()> {
        let oid = self.db.catalog.new_oid();
        self.alter_table(table, |definition| add_check(definition, oid, check))
    }

    /// Whether nothing was ever put into the table's tree.
    pub(crate) fn is_new(&self, table: &Table) -> Result<bool> {
        let mut cursor = table.tree.cursor();
        cursor.seek(Bound::Unbounded, Direction::Forward);
        while let Some(leaf) = cursor.next_leaf(&table.tree).sql()? {
            if !leaf.slots().is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_empty(&mut self, table: &Arc<Table>) -> Result<bool> {
        let mut scan = self.scan(table, &KeyRange::all(), false)?;
        Ok(scan.next(self)?.is_none())
    }
}

/// Adds a CHECK constraint to a definition, under a name that no other constraint of the table has.
fn add_check(table: &mut TableDefinition, oid: u32, check: CheckSpec) -> Result<()> {
    let taken: Vec<&String> = table.constraint_names().collect();
    let name = match check.name {
        Some(name) if taken.contains(&&name) => {
            let message = format!("constraint \"{name}\" for relation \"{}\" already exists", table.name);
            return Err(Error::new(SqlState::DUPLICATE_OBJECT, message));
        }
        Some(name) => name,
        None => {
            let column = check.column.map_or_else(String::new, |column| format!("_{}", table.columns[column].name));
            let base = format!("{}{column}_check", table.name);
            let numbered = (1..).map(|number| format!("{base}{number}"));
            std::iter::once(base.clone()).chain(numbered).find(|name| !taken.contains(&name)).unwrap_or(base)
        }
    };
    table.checks.push(CheckConstraint { oid, name, expression: check.expression });
    Ok(())
}

/// The lock of whoever changes definitions goes by this object number.
const CATALOG_OID: u32 = 1;

/// A name as it has to be written in SQL.
pub fn quote_name(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}
