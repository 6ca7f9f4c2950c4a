//! How does a table that is there change? Columns go, and get other types; keys go. Rows are written anew where they must be.

use crate::build::{Copy, not_unique};
use crate::catalog::*;
use crate::error::{Error, Result, SqlState};
use crate::overflow::overflow_tree;
use crate::session::Session;
use homenode_types::{ColumnType, Value};
use std::sync::Arc;

/// A table whose rows are being written anew: the table as it was, with its rows, and as it is to be, still without its indexes.
/// Snapshots from before see no rows in the new one, as in PostgreSQL.
pub struct Rewrite {
    old: Arc<Table>,
    new: Arc<Table>,
    indexes: Vec<IndexDefinition>,
    copy: Copy,
}

impl Rewrite {
    /// The table as it was.
    pub fn old(&self) -> &Arc<Table> {
        &self.old
    }

    /// The table as it is to be.
    pub fn becoming(&self) -> &Arc<Table> {
        &self.new
    }

    /// Takes a row of the table that is to be.
    ///
    /// # Errors
    /// 23502, 23505.
    pub fn push(&mut self, session: &mut Session, values: &[Value]) -> Result<()> {
        let new = &self.new;
        self.copy.push(session, values).map_err(|error| match &new.primary_key {
            Some(key) if error.code == SqlState::UNIQUE_VIOLATION => not_unique(&key.name),
            _ => error,
        })
    }

    /// Makes the indexes.
    ///
    /// # Errors
    /// 23505; 53100.
    pub fn finish(self, session: &mut Session) -> Result<()> {
        self.copy.finish(session)?;
        let table = session.take_table(self.new.oid)?;
        let mut definition = table.definition.clone();
        for mut index in self.indexes {
            index.valid_from = session.db.txns.clock();
            index.root = session.build_index(&table, &index)?;
            definition.indexes.push(index);
        }
        session.put_object(Object::Table(definition))
    }
}

impl TableDefinition {
    /// Adds columns that only an index sees: name, type and what their values are made of. The rows are to be written anew.
    pub fn add_hidden_columns(&mut self, columns: Vec<(String, ColumnType, String)>) {
        self.columns.extend(columns.into_iter().map(|(name, ty, generated)| Column {
            is_hidden: true,
            generated: Some(generated),
            ..Column::new(name, ty)
        }));
    }
}

impl Session {
    /// Begins to write the rows of a table anew, for a definition that `change` makes of its own.
    ///
    /// # Errors
    /// Those of waiting for the table.
    pub fn begin_rewrite(&mut self, table: &Table, change: impl FnOnce(&mut TableDefinition)) -> Result<Rewrite> {
        let old = self.take_table(table.oid)?;
        let mut definition = old.definition.clone();
        change(&mut definition);
        self.drop_tree(definition.root, definition.oid)?;
        definition.root = self.new_tree(definition.oid)?;
        self.drop_tree(definition.overflow, overflow_tree(definition.oid))?;
        definition.overflow = 0;
        self.give_overflow_tree(&mut definition)?;
        let indexes = std::mem::take(&mut definition.indexes);
        for index in &indexes {
            self.drop_tree(index.root, index.oid)?;
        }
        if let Some(statistics) = self.definitions().statistics.get(&definition.oid).map(|found| found.oid) {
            self.remove_object(statistics)?;
        }
        self.put_object(Object::Table(definition))?;
        let new = self.take_table(old.oid)?;
        let copy = self.copy_begin(&new)?;
        Ok(Rewrite { old, new, indexes, copy })
    }

    /// Drops a column that nothing needs any more: its place stays, and reads as NULL from then on.
    ///
    /// # Errors
    /// Those of waiting for the table.
    pub fn drop_column(&mut self, table: &Table, place: usize) -> Result<()> {
        let table = self.take_table(table.oid)?;
        for sequence in self.definitions().sequences() {
            if sequence.owner == Some((table.oid, place)) || table.columns[place].sequence == Some(sequence.oid) {
                self.remove_sequence(sequence.oid)?;
            }
        }
        self.forget_column_comments(table.oid, place as u32 + 1)?;
        let mut definition = table.definition.clone();
        definition.columns[place].drop(place);
        self.put_object(Object::Table(definition))
    }

    /// Makes a column an identity column, or another kind of it, or none; gives and takes its sequence.
    ///
    /// # Errors
    /// Those of [`Session::create_sequence`].
    pub fn set_identity(
        &mut self,
        table: &Table,
        place: usize,
        identity: Option<Identity>,
        sequence: Option<crate::ddl::SequenceSpec>,
    ) -> Result<()> {
        let table = self.take_table(table.oid)?;
        let mut definition = table.definition.clone();
        let gone = match (identity, sequence) {
            (Some(_), Some(mut spec)) => {
                if spec.name.is_empty() {
                    let base = format!("{}_{}_seq", table.name, table.columns[place].name);
                    (spec.schema, spec.name) = (table.schema.clone(), self.free_name(&table.schema, base));
                }
                spec.owner = Some((table.oid, place));
                definition.columns[place].sequence = Some(self.create_sequence(spec)?);
                None
            }
            (Some(_), None) => None,
            (None, _) => definition.columns[place].sequence.take(),
        };
        definition.columns[place].identity = identity;
        self.put_object(Object::Table(definition))?;
        gone.map_or(Ok(()), |sequence| self.remove_sequence(sequence))
    }

    /// Gives a constraint or an index another name.
    ///
    /// # Errors
    /// 42P07, 42710; 42704 if the table has none with that number.
    pub fn rename_in_table(&mut self, table: &Table, oid: u32, name: &str) -> Result<()> {
        let table = self.take_table(table.oid)?;
        let mut definition = table.definition.clone();
        let is_index = definition.primary_key.as_ref().is_some_and(|key| key.oid == oid)
            || definition.indexes.iter().any(|index| index.oid == oid);
        if is_index {
            self.check_free_name(&definition.schema, name)?;
        } else if definition.constraint_names().any(|known| known == name) {
            let message = format!("constraint \"{name}\" for relation \"{}\" already exists", table.name);
            return Err(Error::new(SqlState::DUPLICATE_OBJECT, message));
        }
        let keys = definition.primary_key.iter_mut().map(|key| (key.oid, &mut key.name));
        let indexes = definition.indexes.iter_mut().map(|index| (index.oid, &mut index.name));
        let checks = definition.checks.iter_mut().map(|check| (check.oid, &mut check.name));
        let foreign = definition.foreign_keys.iter_mut().map(|key| (key.oid, &mut key.name));
        let found = keys.chain(indexes).chain(checks).chain(foreign).find(|(known, _)| *known == oid);
        match found {
            Some((_, known)) => *known = name.to_owned(),
            None => return Err(Error::new(SqlState::UNDEFINED_OBJECT, "the constraint does not exist any more")),
        }
        self.put_object(Object::Table(definition))
    }
}

impl Column {
    /// Leaves nothing of it but its type, which the layout of rows needs. The name is PostgreSQL's for such columns.
    fn drop(&mut self, place: usize) {
        let name = format!("........pg.dropped.{}........", place + 1);
        *self = Column { is_dropped: true, ..Column::new(name, self.ty) };
    }
}

impl Definitions {
    /// What the definitions would be without a column: for looking at what needs it.
    pub fn without_column(&self, table: u32, place: usize) -> Definitions {
        let mut without = self.clone();
        if let Some(found) = self.table_by_oid(table) {
            let mut changed = found.copy();
            changed.definition.columns[place].drop(place);
            without.put_table(Arc::new(changed));
        }
        without
    }
}
