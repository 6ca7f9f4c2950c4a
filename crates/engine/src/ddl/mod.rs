//! How does a definition change? Tables, indexes and sequences are created, altered and dropped inside transactions.
//!
//! A change writes the catalog's rows like any other rows, so that commit, rollback and crash treat it like any other change. Until commit, the
//! transaction goes by definitions of its own ([`PendingChanges`]); the table is locked against all others. New trees are made at
//! once, old ones are given back after the commit.

mod alter;
mod comment;
mod pending;
mod schema;
mod sequence;

pub use alter::Rewrite;
pub(crate) use pending::{PendingChanges, load_catalog};
pub use sequence::bounds_of;

use crate::catalog::*;
use crate::error::{Error, Result, SqlState, Storage};
use crate::overflow::{self, overflow_tree};
use crate::read::KeyRange;
use crate::session::Session;
use homenode_tree::Direction;
use homenode_types::{ColumnType, Type};
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

/// `42704` when one of the columns is of a type that has no order, so that there can be no key over it.
fn require_order(table: &TableDefinition, columns: &[usize]) -> Result<()> {
    match columns
        .iter()
        .map(|&column| table.columns[column].ty.ty)
        .find(|ty| matches!(ty, Type::Json | Type::JsonArray))
    {
        None => Ok(()),
        Some(ty) => {
            let message = format!("data type {ty} has no default operator class for access method \"btree\"");
            let hint = "You must specify an operator class for the index or define a default operator class for the data type.";
            Err(Error::new(SqlState::UNDEFINED_OBJECT, message).with_hint(hint))
        }
    }
}

impl Session {
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
            require_order(&table, &columns)?;
            let name = self.constraint_name(&table, name, &[], "pkey")?;
            for &column in &columns {
                table.columns[column].not_null = true;
            }
            table.primary_key = Some(PrimaryKey { oid: self.db.catalog.new_oid(), name, columns });
        }
        for (name, columns) in spec.uniques {
            require_order(&table, &columns)?;
            let name = self.constraint_name(&table, name, &columns, "key")?;
            let oid = self.db.catalog.new_oid();
            let root = self.new_tree(oid)?;
            table.indexes.push(IndexDefinition {
                oid,
                name,
                order: vec![KeyOrder::default(); columns.len()],
                include: Vec::new(),
                filter: None,
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
    pub(super) fn give_overflow_tree(&mut self, table: &mut TableDefinition) -> Result<()> {
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
            not_null: spec.not_null,
            default: spec.default,
            identity: spec.identity,
            ..Column::new(spec.name, spec.ty)
        };
        if spec.serial || spec.identity.is_some() {
            let name = self.free_name(&table.schema, format!("{}_{}_seq", table.name, column.name));
            let sequence = self.create_sequence(SequenceSpec {
                schema: table.schema.clone(),
                name,
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
                column.default = Some(next_value(sequence));
            }
        }
        Ok(column)
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
        let keys = table.primary_key.iter().map(|key| key.oid).chain(table.checks.iter().map(|check| check.oid));
        let keys = keys.chain(table.foreign_keys.iter().map(|key| key.oid));
        for oid in keys.chain(table.indexes.iter().map(|index| index.oid)) {
            self.forget_comments(oid)?;
        }
        for oid in self.owned_sequences(&table) {
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
            for oid in self.owned_sequences(&table).into_iter().filter(|_| restart_identity) {
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
        let order = vec![KeyOrder::default(); spec.columns.len()];
        self.create_index_with(table, spec, order, Vec::new(), None)
    }

    /// As [`Session::create_index`], with orders, further columns and a condition (see [`IndexDefinition`]).
    ///
    /// # Errors
    /// 42P07, 23505.
    pub fn create_index_with(
        &mut self,
        table: &Table,
        spec: IndexSpec,
        order: Vec<KeyOrder>,
        include: Vec<usize>,
        filter: Option<usize>,
    ) -> Result<u32> {
        let table = self.take_table(table.oid)?;
        let mut definition = table.definition.clone();
        let suffix = if spec.constraint { "key" } else { "idx" };
        require_order(&definition, &spec.columns)?;
        let name = self.constraint_name(&definition, spec.name, &spec.columns, suffix)?;
        let oid = self.db.catalog.new_oid();
        let mut index = IndexDefinition {
            oid,
            name,
            order,
            include,
            filter,
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
        self.forget_comments(index.oid)?;
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
        require_order(&definition, &columns)?;
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
        let is_gone = |oid| !definition.checks.iter().any(|check| check.oid == oid);
        for oid in table.checks.iter().map(|check| check.oid).filter(|oid| is_gone(*oid)) {
            self.forget_comments(oid)?;
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
    table.checks.push(CheckConstraint { oid, name, expression: check.expression, not_valid: false });
    Ok(())
}

/// A default that is a sequence's next value: by number, so that neither its name nor its schema has to stay.
pub fn next_value(sequence: u32) -> String {
    format!("nextval('{sequence}'::regclass)")
}

/// The sequence that [`next_value`] was made for.
pub fn next_value_of(default: &str) -> Option<u32> {
    default.strip_prefix("nextval('")?.strip_suffix("'::regclass)")?.parse().ok()
}

/// A name as it has to be written in SQL.
pub fn quote_name(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}
