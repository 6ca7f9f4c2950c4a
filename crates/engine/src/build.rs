//! How is a tree made of rows that are there, or that come in bulk? Index builds, new row orders, COPY into an empty table.
//!
//! Such a tree is written in key order, page by page, past the log: its pages are on disk before its transaction commits, and
//! until then nothing points to them.

use crate::catalog::{IndexDefinition, Object, Table, TableDefinition};
use crate::error::{Error, Result, SqlState, Storage};
use crate::overflow::is_too_large;
use crate::session::Session;
use homenode_pool::PageNo;
use homenode_tree::{BulkLoader, Header, Tree};
use homenode_types::{Value, ValueRef, key};
use std::sync::Arc;

/// Entries in memory, to be sorted: all keys and values in one byte string.
#[derive(Default)]
struct Sorter {
    bytes: Vec<u8>,
    /// Where each entry begins, and the length of its key.
    entries: Vec<(usize, u32, u32)>,
    sorted: bool,
}

impl Sorter {
    fn new() -> Sorter {
        Sorter { sorted: true, ..Sorter::default() }
    }

    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.sorted = self.sorted && self.entries.last().is_none_or(|&last| self.key(last) < key);
        self.entries.push((self.bytes.len(), key.len() as u32, value.len() as u32));
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }

    fn key(&self, entry: (usize, u32, u32)) -> &[u8] {
        &self.bytes[entry.0..entry.0 + entry.1 as usize]
    }

    fn value(&self, entry: (usize, u32, u32)) -> &[u8] {
        let start = entry.0 + entry.1 as usize;
        &self.bytes[start..start + entry.2 as usize]
    }

    fn sort(&mut self) {
        if !self.sorted {
            let bytes = std::mem::take(&mut self.bytes);
            self.entries.sort_unstable_by(|a, b| bytes[a.0..a.0 + a.1 as usize].cmp(&bytes[b.0..b.0 + b.1 as usize]));
            self.bytes = bytes;
        }
    }
}

impl Session {
    fn bulk_loader(&mut self, oid: u32) -> BulkLoader {
        Tree::bulk(self.db.pool.clone(), self.db.log.clone(), self.lane, oid)
    }

    fn bulk_header(&mut self) -> Result<Header> {
        Ok(Header { writer: self.writer()?.writer(), undo: 0 })
    }

    fn finish_bulk(&mut self, loader: BulkLoader, oid: u32) -> Result<PageNo> {
        let root = loader.finish().sql()?.root();
        self.note_tree(root, oid)?;
        Ok(root)
    }

    /// Makes the tree of a new index over the rows of `table`, which this transaction has locked.
    pub(crate) fn build_index(&mut self, table: &Arc<Table>, index: &IndexDefinition) -> Result<PageNo> {
        let mut sorter = Sorter::new();
        let mut entry_key = Vec::new();
        let mut scan = self.scan_newest(table)?;
        while let Some((row_key, row)) = scan.next(self)? {
            if !table.is_in(index, row) {
                continue;
            }
            entry_key.clear();
            let mut has_null = false;
            for &column in &index.columns {
                let value = table.layout.column(row, column);
                has_null |= matches!(value, ValueRef::Null);
                key::encode_column(value, table.columns[column].ty.ty, &mut entry_key);
            }
            if !index.unique || has_null {
                entry_key.extend_from_slice(row_key);
            }
            sorter.push(&entry_key, row_key);
        }
        sorter.sort();
        let header = self.bulk_header()?;
        let mut loader = self.bulk_loader(index.oid);
        for at in 0..sorter.entries.len() {
            let entry = sorter.entries[at];
            if at > 0 && sorter.key(sorter.entries[at - 1]) == sorter.key(entry) {
                return Err(not_unique(&index.name));
            }
            loader.push(sorter.key(entry), header, sorter.value(entry)).sql()?;
        }
        self.finish_bulk(loader, index.oid)
    }

    /// Puts the rows of `table` in the order of the new definition's primary key.
    pub(crate) fn rebuild(&mut self, table: &Arc<Table>, mut definition: TableDefinition) -> Result<()> {
        let oid = definition.oid;
        let fresh = self.db.table(definition.clone());
        let name = definition.primary_key.as_ref().map_or(String::new(), |primary_key| primary_key.name.clone());
        let header = self.bulk_header()?;
        let mut loader = self.bulk_loader(oid);
        let mut last = Vec::new();
        let mut out_of_order = Sorter::new();
        let mut entry_key = Vec::new();
        let mut scan = self.scan_newest(table)?;
        // As long as the rows come in the new order they go straight into the new tree.
        let mut in_order = 0u64;
        let mut read = 0u64;
        while let Some((_, stored)) = scan.next_stored(self)? {
            let row = &*self.whole_row(table, stored)?;
            entry_key.clear();
            for &column in &definition.primary_key.as_ref().expect("a new order has a key").columns {
                let value = fresh.layout.column(row, column);
                if matches!(value, ValueRef::Null) {
                    return Err(Error::new(
                        SqlState::NOT_NULL_VIOLATION,
                        format!(
                            "column \"{}\" of relation \"{}\" contains null values",
                            fresh.columns[column].name, fresh.name
                        ),
                    )
                    .with_table(&fresh.schema, &fresh.name));
                }
                key::encode_column(value, fresh.columns[column].ty.ty, &mut entry_key);
            }
            read += 1;
            let fits = !is_too_large(entry_key.len(), stored);
            if fits && out_of_order.entries.is_empty() && (in_order == 0 || last < entry_key) {
                loader.push(&entry_key, header, stored).sql()?;
                std::mem::swap(&mut last, &mut entry_key);
                in_order += 1;
            } else {
                out_of_order.push(&entry_key, &[]);
            }
        }
        let root = if out_of_order.entries.is_empty() {
            self.finish_bulk(loader, oid)?
        } else {
            drop(loader);
            self.rebuild_sorted(table, &fresh, header, read as usize, &name)?
        };
        self.drop_tree(definition.root, oid)?;
        definition.root = root;
        // Index entries name rows by their keys, which are new.
        let table = self.db.table(definition.clone());
        for index in &mut definition.indexes {
            self.drop_tree(index.root, index.oid)?;
            index.root = self.build_index(&table, index)?;
        }
        self.put_object(Object::Table(definition))
    }

    fn rebuild_sorted(
        &mut self,
        table: &Arc<Table>,
        fresh: &Table,
        header: Header,
        rows: usize,
        name: &str,
    ) -> Result<PageNo> {
        let mut sorter = Sorter::new();
        sorter.entries.reserve(rows);
        let mut entry_key = Vec::new();
        let mut scan = self.scan_newest(table)?;
        while let Some((_, stored)) = scan.next_stored(self)? {
            entry_key.clear();
            fresh.encode_key(&self.whole_row(table, stored)?, &mut entry_key);
            sorter.push(&entry_key, stored);
        }
        sorter.sort();
        let mut loader = self.bulk_loader(fresh.oid);
        for at in 0..sorter.entries.len() {
            let entry = sorter.entries[at];
            if at > 0 && sorter.key(sorter.entries[at - 1]) == sorter.key(entry) {
                return Err(not_unique(name));
            }
            let (key, stored) = (sorter.key(entry), sorter.value(entry));
            if is_too_large(key.len(), stored) {
                // It fitted under the key that it had.
                loader.push(key, header, &self.split_new_row(table, key, stored)?).sql()?;
            } else {
                loader.push(key, header, stored).sql()?;
            }
        }
        self.finish_bulk(loader, fresh.oid)
    }

    /// Begins to take in many rows (COPY). Into a table that this transaction has made or emptied, and that has no index, rows that
    /// come in key order are written page by page.
    ///
    /// # Errors
    /// Those of waiting for the table.
    pub fn copy_begin(&mut self, table: &Arc<Table>) -> Result<Copy> {
        self.use_table(table)?;
        self.writer()?;
        let direct = table.indexes.is_empty() && self.made_tree(table.root) && self.is_new(table)?;
        let loader = if direct { Some(self.bulk_loader(table.oid)) } else { None };
        Ok(Copy { table: table.clone(), loader, last_key: Vec::new(), key: Vec::new(), row: Vec::new(), rows: 0 })
    }
}

pub(crate) fn not_unique(name: &str) -> Error {
    Error::new(SqlState::UNIQUE_VIOLATION, format!("could not create unique index \"{name}\""))
        .with_detail("The key is duplicated.")
        .with_constraint(name)
}

/// Rows that come in bulk.
pub struct Copy {
    table: Arc<Table>,
    loader: Option<BulkLoader>,
    last_key: Vec<u8>,
    key: Vec<u8>,
    row: Vec<u8>,
    rows: u64,
}

impl Copy {
    /// Takes one row.
    ///
    /// # Errors
    /// As [`Session::insert`].
    pub fn push(&mut self, session: &mut Session, values: &[Value]) -> Result<()> {
        crate::catalog::check_not_null(&self.table, values)?;
        self.table.layout.encode(values, &mut self.row)?;
        self.rows += 1;
        let Some(loader) = &mut self.loader else { return session.insert_encoded(&self.table, &self.row) };
        self.key.clear();
        match &self.table.primary_key {
            Some(_) => self.table.encode_key(&self.row, &mut self.key),
            None => self.table.row_ids.next(&self.table.tree, session.lane, &mut self.key)?,
        }
        if self.rows > 1 && self.key <= self.last_key {
            // Out of order: what is loaded becomes the table's tree, and the rest is inserted.
            self.finish_loading(session)?;
            return session.insert_encoded(&self.table, &self.row);
        }
        let header = session.bulk_header()?;
        if is_too_large(self.key.len(), &self.row) {
            self.row = session.split_new_row(&self.table, &self.key, &self.row)?;
        }
        loader.push(&self.key, header, &self.row).sql()?;
        std::mem::swap(&mut self.last_key, &mut self.key);
        Ok(())
    }

    fn finish_loading(&mut self, session: &mut Session) -> Result<()> {
        let Some(loader) = self.loader.take() else { return Ok(()) };
        let root = session.finish_bulk(loader, self.table.oid)?;
        let mut definition = self.table.definition.clone();
        session.drop_tree(definition.root, definition.oid)?;
        definition.root = root;
        session.put_object(Object::Table(definition))?;
        let name = self.table.name.clone();
        let table = session.table(Some(&self.table.schema.clone()), &name);
        self.table = table.ok_or_else(|| Error::internal("the table that is being loaded is gone"))?;
        Ok(())
    }

    /// Ends it; gives the number of rows.
    ///
    /// # Errors
    /// 53100, 58030.
    pub fn finish(mut self, session: &mut Session) -> Result<u64> {
        self.finish_loading(session)?;
        Ok(self.rows)
    }
}
