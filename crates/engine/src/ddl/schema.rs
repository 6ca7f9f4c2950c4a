//! How do schemas come and go, and what is in them? An object says its schema by name, so renaming one writes all that is in it.

use crate::catalog::{Definitions, Object, PUBLIC_OID, SchemaDefinition, ViewDefinition};
use crate::error::{Error, Result, SqlState};
use crate::session::Session;

impl Session {
    /// Creates a schema; gives its number.
    ///
    /// # Errors
    /// 42P06.
    pub fn create_schema(&mut self, name: &str) -> Result<u32> {
        self.check_free_schema(name)?;
        let oid = self.new_oid();
        self.put_object(Object::Schema(SchemaDefinition { oid, name: name.to_owned() }))?;
        self.own(oid)?;
        Ok(oid)
    }

    /// Drops a schema that nothing is in any more.
    ///
    /// # Errors
    /// 2BP01 if something is.
    pub fn drop_schema(&mut self, oid: u32) -> Result<()> {
        self.pending()?;
        let Some(schema) = self.definitions().schema_by_oid(oid).cloned() else { return Ok(()) };
        if !self.definitions().is_empty_schema(&schema.name) {
            let message = format!("cannot drop schema {} because other objects depend on it", schema.name);
            return Err(Error::new(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, message));
        }
        self.remove_object(oid)?;
        if oid == PUBLIC_OID {
            // A folder without an entry for it has it.
            self.put_object(Object::Schema(SchemaDefinition { oid, name: String::new() }))?;
        }
        Ok(())
    }

    /// Gives a schema another name.
    ///
    /// # Errors
    /// 42P06.
    pub fn rename_schema(&mut self, oid: u32, name: &str) -> Result<()> {
        self.check_free_schema(name)?;
        let Some(schema) = self.definitions().schema_by_oid(oid).cloned() else { return Ok(()) };
        self.put_object(Object::Schema(SchemaDefinition { oid, name: name.to_owned() }))?;
        let definitions = self.definitions().clone();
        for table in definitions.tables().into_iter().filter(|table| table.schema == schema.name) {
            let mut table = self.take_table(table.oid)?.definition.clone();
            table.schema = name.to_owned();
            self.put_object(Object::Table(table))?;
        }
        for sequence in definitions.sequences().into_iter().filter(|sequence| sequence.schema == schema.name) {
            let mut sequence = (*sequence).clone();
            sequence.schema = name.to_owned();
            self.put_object(Object::Sequence(sequence))?;
        }
        for view in definitions.views().into_iter().filter(|view| view.schema == schema.name) {
            self.put_object(Object::View(ViewDefinition { schema: name.to_owned(), ..(*view).clone() }))?;
        }
        Ok(())
    }

    /// Moves a table with its indexes and the sequences that it owns, a sequence or a view to another schema.
    ///
    /// # Errors
    /// 3F000; 42P07 naming what is in the way.
    pub fn set_schema(&mut self, oid: u32, schema: &str) -> Result<()> {
        self.pending()?;
        if let Some(view) = self.definitions().view_by_oid(oid).cloned() {
            self.check_free_in(schema, &view.name)?;
            return self.put_object(Object::View(ViewDefinition { schema: schema.to_owned(), ..(*view).clone() }));
        }
        for sequence in self.definitions().sequences() {
            if sequence.oid == oid || sequence.owner.is_some_and(|(table, _)| table == oid) {
                self.check_free_in(schema, &sequence.name)?;
                let mut moved = (*sequence).clone();
                moved.schema = schema.to_owned();
                self.put_object(Object::Sequence(moved))?;
            }
        }
        if self.definitions().table_by_oid(oid).is_some() {
            let mut table = self.take_table(oid)?.definition.clone();
            let indexes = table.primary_key.iter().map(|key| &key.name);
            for name in indexes.chain(table.indexes.iter().map(|index| &index.name)).chain([&table.name]) {
                self.check_free_in(schema, name)?;
            }
            table.schema = schema.to_owned();
            self.put_object(Object::Table(table))?;
        }
        Ok(())
    }

    fn check_free_in(&mut self, schema: &str, name: &str) -> Result<()> {
        self.check_free_name(schema, name).map_err(|mut error| {
            if error.code == SqlState::DUPLICATE_TABLE {
                error.message = format!("relation \"{name}\" already exists in schema \"{schema}\"");
            }
            error
        })
    }

    fn check_free_schema(&mut self, name: &str) -> Result<()> {
        self.pending()?;
        match self.definitions().schema(name) {
            None => Ok(()),
            Some(_) => Err(Error::new(SqlState::DUPLICATE_SCHEMA, format!("schema \"{name}\" already exists"))),
        }
    }
}

impl Definitions {
    /// Whether no table, sequence or view is in the schema.
    pub fn is_empty_schema(&self, schema: &str) -> bool {
        !(self.tables().iter().any(|table| table.schema == schema)
            || self.sequences().iter().any(|sequence| sequence.schema == schema)
            || self.views().iter().any(|view| view.schema == schema))
    }
}
