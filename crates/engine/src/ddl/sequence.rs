//! How do sequences come and go?

use super::SequenceSpec;
use crate::catalog::{Object, SequenceDefinition};
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

    pub(super) fn remove_sequence(&mut self, oid: u32) -> Result<()> {
        self.remove_object(oid)?;
        self.pending()?.dropped_sequences.push(oid);
        Ok(())
    }
}
