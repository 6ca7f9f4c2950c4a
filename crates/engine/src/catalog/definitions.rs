//! Which objects are there at one moment, by number and by name?

use super::*;
use crate::roles::{self, AccessDefinition, RoleDefinition};
use std::collections::HashMap;
use std::sync::Arc;

/// All definitions at one moment.
#[derive(Clone)]
pub struct Definitions {
    tables: HashMap<u32, Arc<Table>>,
    sequences: HashMap<u32, Arc<SequenceDefinition>>,
    views: HashMap<u32, Arc<ViewDefinition>>,
    names: HashMap<(String, String), u32>,
    pub(crate) roles: HashMap<u32, Arc<RoleDefinition>>,
    /// By relation.
    pub(crate) access: HashMap<u32, Arc<AccessDefinition>>,
    /// By table.
    pub(crate) statistics: HashMap<u32, Arc<TableStatistics>>,
    schemas: HashMap<u32, Arc<SchemaDefinition>>,
    /// By object.
    comments: HashMap<u32, Arc<CommentsDefinition>>,
}

impl Default for Definitions {
    /// What a new folder has: one role and one schema.
    fn default() -> Definitions {
        Definitions {
            tables: HashMap::new(),
            sequences: HashMap::new(),
            views: HashMap::new(),
            names: HashMap::new(),
            roles: HashMap::from([(roles::BOOTSTRAP_ROLE, Arc::new(RoleDefinition::bootstrap()))]),
            access: HashMap::new(),
            statistics: HashMap::new(),
            schemas: HashMap::from([(
                PUBLIC_OID,
                Arc::new(SchemaDefinition { oid: PUBLIC_OID, name: PUBLIC.to_owned() }),
            )]),
            comments: HashMap::new(),
        }
    }
}

impl Definitions {
    /// The table `schema.name`.
    pub fn table(&self, schema: &str, name: &str) -> Option<&Arc<Table>> {
        self.tables.get(self.oid(schema, name)?.as_ref())
    }

    /// The sequence `schema.name`.
    pub fn sequence(&self, schema: &str, name: &str) -> Option<&Arc<SequenceDefinition>> {
        self.sequences.get(self.oid(schema, name)?.as_ref())
    }

    /// The view `schema.name`.
    pub fn view(&self, schema: &str, name: &str) -> Option<&Arc<ViewDefinition>> {
        self.views.get(self.oid(schema, name)?.as_ref())
    }

    /// The view with number `oid`.
    pub fn view_by_oid(&self, oid: u32) -> Option<&Arc<ViewDefinition>> {
        self.views.get(&oid)
    }

    /// All views, by number.
    pub fn views(&self) -> Vec<Arc<ViewDefinition>> {
        let mut all: Vec<_> = self.views.values().cloned().collect();
        all.sort_by_key(|view| view.oid);
        all
    }

    /// The number of what `schema.name` names: a table, an index, a sequence, a view.
    pub fn oid(&self, schema: &str, name: &str) -> Option<Oid> {
        // A look-up by borrowed names would need a key type of its own; binding is not on the hot path.
        self.names.get(&(schema.to_owned(), name.to_owned())).map(|&oid| Oid(oid))
    }

    /// The table with number `oid`.
    pub fn table_by_oid(&self, oid: u32) -> Option<&Arc<Table>> {
        self.tables.get(&oid)
    }

    /// The sequence with number `oid`.
    pub fn sequence_by_oid(&self, oid: u32) -> Option<&Arc<SequenceDefinition>> {
        self.sequences.get(&oid)
    }

    /// The table that has the index `oid`, and the index.
    pub fn index_by_oid(&self, oid: u32) -> Option<(&Arc<Table>, &Arc<Index>)> {
        self.tables
            .values()
            .find_map(|table| table.indexes.iter().find(|index| index.oid == oid).map(|index| (table, index)))
    }

    /// The table whose index or primary key has the number `oid`.
    pub fn table_of_index(&self, oid: u32) -> Option<&Arc<Table>> {
        let has = |table: &&Arc<Table>| {
            table.primary_key.as_ref().is_some_and(|key| key.oid == oid)
                || table.indexes.iter().any(|index| index.oid == oid)
        };
        self.tables.values().find(has)
    }

    /// All tables, by number.
    pub fn tables(&self) -> Vec<Arc<Table>> {
        let mut all: Vec<_> = self.tables.values().cloned().collect();
        all.sort_by_key(|table| table.oid);
        all
    }

    /// All sequences, by number.
    pub fn sequences(&self) -> Vec<Arc<SequenceDefinition>> {
        let mut all: Vec<_> = self.sequences.values().cloned().collect();
        all.sort_by_key(|sequence| sequence.oid);
        all
    }

    /// The schema with that name.
    pub fn schema(&self, name: &str) -> Option<&Arc<SchemaDefinition>> {
        self.schemas.values().find(|schema| schema.name == name)
    }

    /// The schema with that number.
    pub fn schema_by_oid(&self, oid: u32) -> Option<&Arc<SchemaDefinition>> {
        self.schemas.get(&oid)
    }

    /// All schemas, by number.
    pub fn schemas(&self) -> Vec<Arc<SchemaDefinition>> {
        let mut all: Vec<_> = self.schemas.values().cloned().collect();
        all.sort_by_key(|schema| schema.oid);
        all
    }

    /// The comments on an object and its columns.
    pub fn comments(&self, object: u32) -> Option<&Arc<CommentsDefinition>> {
        self.comments.get(&object)
    }

    /// All comments.
    pub fn all_comments(&self) -> impl Iterator<Item = &Arc<CommentsDefinition>> {
        self.comments.values()
    }

    /// The same definitions with tables of their own (see [`Table::copy`]).
    pub(crate) fn copy(&self) -> Definitions {
        let mut copy = self.clone();
        for table in copy.tables.values_mut() {
            *table = Arc::new(table.copy());
        }
        copy
    }

    pub(crate) fn put_table(&mut self, table: Arc<Table>) {
        self.remove(table.oid);
        self.names.insert((table.schema.clone(), table.name.clone()), table.oid);
        for (oid, name) in relation_names(&table) {
            self.names.insert((table.schema.clone(), name), oid);
        }
        self.tables.insert(table.oid, table);
    }

    pub(crate) fn put_sequence(&mut self, sequence: Arc<SequenceDefinition>) {
        self.remove(sequence.oid);
        self.names.insert((sequence.schema.clone(), sequence.name.clone()), sequence.oid);
        self.sequences.insert(sequence.oid, sequence);
    }

    pub(crate) fn put_view(&mut self, view: Arc<ViewDefinition>) {
        self.remove(view.oid);
        self.names.insert((view.schema.clone(), view.name.clone()), view.oid);
        self.views.insert(view.oid, view);
    }

    pub(crate) fn put_role(&mut self, role: Arc<RoleDefinition>) {
        self.roles.insert(role.oid, role);
    }

    pub(crate) fn put_access(&mut self, access: Arc<AccessDefinition>) {
        self.access.insert(access.relation, access);
    }

    /// Takes a schema in; one without a name says that there is none with that number any more.
    pub(crate) fn put_schema(&mut self, schema: Arc<SchemaDefinition>) {
        match schema.name.is_empty() {
            true => self.schemas.remove(&schema.oid),
            false => self.schemas.insert(schema.oid, schema),
        };
    }

    pub(crate) fn put_comments(&mut self, comments: Arc<CommentsDefinition>) {
        self.comments.insert(comments.object, comments);
    }

    pub(crate) fn remove(&mut self, oid: u32) {
        if let Some(view) = self.views.remove(&oid) {
            self.names.remove(&(view.schema.clone(), view.name.clone()));
        }
        self.roles.remove(&oid);
        self.schemas.remove(&oid);
        self.statistics.retain(|_, statistics| statistics.oid != oid);
        self.comments.retain(|_, comments| comments.oid != oid);
        self.access.retain(|_, access| access.oid != oid);
        if let Some(table) = self.tables.remove(&oid) {
            self.names.remove(&(table.schema.clone(), table.name.clone()));
            for (_, name) in relation_names(&table) {
                self.names.remove(&(table.schema.clone(), name));
            }
        }
        if let Some(sequence) = self.sequences.remove(&oid) {
            self.names.remove(&(sequence.schema.clone(), sequence.name.clone()));
        }
    }
}

/// An object number that was looked up by name.
pub struct Oid(pub u32);

impl AsRef<u32> for Oid {
    fn as_ref(&self) -> &u32 {
        &self.0
    }
}

fn relation_names(table: &Table) -> Vec<(u32, String)> {
    let primary_key = table.primary_key.iter().map(|key| (key.oid, key.name.clone()));
    primary_key.chain(table.indexes.iter().map(|index| (index.oid, index.name.clone()))).collect()
}
