//! How do sequences come and go?

use super::SequenceSpec;
use crate::catalog::{Column, Object, SequenceDefinition, Table};
use crate::error::{Error, Result, SqlState};
use crate::sequence::{self, SequenceState};
use crate::session::Session;
use homenode_types::Type;

impl Session {
    /// Creates a sequence; gives its number.
    ///
    /// # Errors
    /// 42P07, 22023.
    pub fn create_sequence(&mut self, spec: SequenceSpec) -> Result<u32> {
        self.check_free_name(&spec.schema, &spec.name)?;
        let (least, greatest) = bounds_of(spec.ty);
        let (min, max) = if spec.increment > 0 {
            (spec.min.unwrap_or(1), spec.max.unwrap_or(greatest))
        } else {
            (spec.min.unwrap_or(least), spec.max.unwrap_or(-1))
        };
        let start = spec.start.unwrap_or(if spec.increment > 0 { min } else { max });
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
        check_bounds(&definition)?;
        self.put_object(Object::Sequence(definition))?;
        self.own(oid)?;
        self.pending()?.created_sequences.push(oid);
        sequence::set(&self.db, self.lane, oid, SequenceState { last: start, called: false });
        Ok(oid)
    }

    /// The sequences that go with a table.
    pub(super) fn owned_sequences(&mut self, table: &Table) -> Vec<u32> {
        let numbers = |oid: u32| table.columns.iter().any(|column| column.sequence == Some(oid));
        let all = self.definitions().sequences();
        let owned = all.iter().filter(|one| one.owner.is_some_and(|of| of.0 == table.oid) || numbers(one.oid));
        owned.map(|sequence| sequence.oid).collect()
    }

    /// Changes a sequence's definition.
    ///
    /// # Errors
    /// 22023; 42P07 for a new name that is there; 42704 if the sequence has gone; those of `change`.
    pub fn alter_sequence(
        &mut self,
        oid: u32,
        change: impl FnOnce(&mut SequenceDefinition) -> Result<()>,
    ) -> Result<()> {
        self.pending()?;
        let sequence = self.definitions().sequence_by_oid(oid).cloned();
        let gone = || Error::new(SqlState::UNDEFINED_OBJECT, "the sequence does not exist any more");
        let before = sequence.ok_or_else(gone)?;
        let mut sequence = (*before).clone();
        change(&mut sequence)?;
        check_bounds(&sequence)?;
        if sequence.name != before.name {
            self.check_free_name(&sequence.schema, &sequence.name)?;
        }
        self.put_object(Object::Sequence(sequence))
    }

    /// Drops a sequence.
    ///
    /// # Errors
    /// 2BP01 when a column's default needs it.
    pub fn drop_sequence(&mut self, oid: u32) -> Result<()> {
        self.pending()?;
        let user =
            self.definitions().tables().into_iter().find(|table| table.columns.iter().any(|column| uses(column, oid)));
        if let (Some(table), Some(sequence)) = (user, self.definitions().sequence_by_oid(oid)) {
            return Err(Error::new(
                SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
                format!("cannot drop sequence {} because other objects depend on it", sequence.name),
            )
            .with_detail(format!("A default of table {} depends on it.", table.name)));
        }
        self.remove_sequence(oid)
    }

    pub(super) fn remove_sequence(&mut self, oid: u32) -> Result<()> {
        self.remove_object(oid)?;
        self.pending()?.dropped_sequences.push(oid);
        Ok(())
    }
}

/// Whether a column's values come from a sequence.
fn uses(column: &Column, sequence: u32) -> bool {
    let by_default = column.default.as_deref().and_then(super::next_value_of);
    column.sequence == Some(sequence) || by_default == Some(sequence)
}

fn check_bounds(sequence: &SequenceDefinition) -> Result<()> {
    let SequenceDefinition { min, max, start, .. } = sequence;
    let invalid = |message: String| Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
    let (least, greatest) = bounds_of(sequence.ty);
    if sequence.increment == 0 {
        return invalid("INCREMENT must not be zero".to_owned());
    }
    if *max > greatest {
        return invalid(format!("MAXVALUE ({max}) is out of range for sequence data type {}", sequence.ty.sql_name()));
    }
    if *min < least {
        return invalid(format!("MINVALUE ({min}) is out of range for sequence data type {}", sequence.ty.sql_name()));
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
    Ok(())
}

/// The least and the greatest value of a type of sequences.
pub fn bounds_of(ty: Type) -> (i64, i64) {
    match ty {
        Type::Int2 => (i64::from(i16::MIN), i64::from(i16::MAX)),
        Type::Int4 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => (i64::MIN, i64::MAX),
    }
}
