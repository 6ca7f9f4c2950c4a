//! What do COPY's binary files look like? A header, tuples of counted fields, a trailer (PostgreSQL manual, COPY, Binary Format).

use homenode_engine::Table;
use homenode_types::{Error, Result, SqlState, Value};

const SIGNATURE: &[u8; 11] = b"PGCOPY\n\xff\r\n\0";
/// The flag that said that rows have OIDs, which they have no more.
const WITH_OIDS: i32 = 1 << 16;
/// The upper half of the flags must be understood.
const CRITICAL: i32 = !0xFFFF;

fn bad(message: impl Into<String>) -> Error {
    Error::new(SqlState::BAD_COPY_FILE_FORMAT, message)
}

/// Appends the header.
pub(crate) fn write_header(out: &mut Vec<u8>) {
    out.extend_from_slice(SIGNATURE);
    out.extend_from_slice(&[0; 8]);
}

/// Appends the trailer: a tuple of -1 fields.
pub(crate) fn write_trailer(out: &mut Vec<u8>) {
    out.extend_from_slice(&(-1_i16).to_be_bytes());
}

/// The length of the header; `None` when there is not all of it yet. `22P04` when it is none.
pub(crate) fn header_length(data: &[u8]) -> Result<Option<usize>> {
    let known = data.len().min(SIGNATURE.len());
    if data[..known] != SIGNATURE[..known] {
        return Err(bad("COPY file signature not recognized"));
    }
    let (Some(flags), Some(extension)) = (int(data, SIGNATURE.len()), int(data, SIGNATURE.len() + 4)) else {
        return Ok(None);
    };
    if flags & WITH_OIDS != 0 {
        return Err(bad("invalid COPY file header (WITH OIDS)"));
    }
    if flags & CRITICAL != 0 {
        return Err(bad("unrecognized critical flags in COPY file header"));
    }
    let extension = usize::try_from(extension).map_err(|_| bad("invalid COPY file header (wrong length)"))?;
    let length = SIGNATURE.len() + 8 + extension;
    Ok((data.len() >= length).then_some(length))
}

fn int(data: &[u8], at: usize) -> Option<i32> {
    data.get(at..)?.first_chunk().map(|bytes| i32::from_be_bytes(*bytes))
}

/// A tuple at the beginning of data.
pub(crate) enum Tuple {
    /// Not all of it is there yet.
    Partial,
    /// The trailer.
    End,
    /// Its length in bytes.
    Whole(usize),
}

/// Finds the first tuple's end. `22P04` when it has not `columns` fields.
pub(crate) fn first_tuple(data: &[u8], columns: usize) -> Result<Tuple> {
    let Some(count) = data.first_chunk().map(|bytes| i16::from_be_bytes(*bytes)) else { return Ok(Tuple::Partial) };
    if count == -1 {
        return Ok(Tuple::End);
    }
    if usize::try_from(count) != Ok(columns) {
        return Err(bad(format!("row field count is {count}, expected {columns}")));
    }
    let mut at = 2;
    for _ in 0..columns {
        let Some(length) = int(data, at) else { return Ok(Tuple::Partial) };
        at += 4 + field_length(length)?.unwrap_or(0);
        if at > data.len() {
            return Ok(Tuple::Partial);
        }
    }
    Ok(Tuple::Whole(at))
}

/// The length of a field; `None` for NULL.
fn field_length(length: i32) -> Result<Option<usize>> {
    match length {
        -1 => Ok(None),
        length => usize::try_from(length).map(Some).map_err(|_| bad("invalid field size")),
    }
}

/// Reads a whole tuple's fields into the table's `columns`; the error comes with the column's number. `22P03` for what the types do not
/// read, and the errors of their modifiers.
pub(crate) fn read_tuple(
    tuple: &[u8],
    table: &Table,
    columns: &[usize],
    values: &mut [Value],
) -> Result<(), (usize, Error)> {
    let mut rest = tuple.get(2..).unwrap_or(&[]);
    for &column in columns {
        let length = int(rest, 0).unwrap_or(-1);
        rest = rest.get(4..).unwrap_or(&[]);
        let length = field_length(length).map_err(|error| (column, error))?;
        let field = length.and_then(|length| rest.split_at_checked(length));
        values[column] = match field {
            None => Value::Null,
            Some((field, behind)) => {
                rest = behind;
                let ty = table.columns[column].ty;
                let value = Value::parse_binary(field, ty.ty).and_then(|value| match ty.typmod {
                    // The modifier is the column's, not the sender's.
                    0.. => homenode_types::coerce(value, ty, false),
                    _ => Ok(value),
                });
                value.map_err(|error| (column, error))?
            }
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_tuples_may_come_in_parts() {
        let mut data = Vec::new();
        write_header(&mut data);
        assert_eq!(header_length(&data).unwrap(), Some(19));
        (0..19).for_each(|cut| assert_eq!(header_length(&data[..cut]).unwrap(), None, "{cut}"));
        assert_eq!(header_length(b"a,b\n").unwrap_err().message, "COPY file signature not recognized");
        data[12] = 1;
        assert!(header_length(&data).is_err(), "critical flags");
        let mut tuple = 2_i16.to_be_bytes().to_vec();
        tuple.extend_from_slice(&(-1_i32).to_be_bytes());
        tuple.extend_from_slice(&2_i32.to_be_bytes());
        tuple.extend_from_slice(b"ab");
        for cut in 0..tuple.len() {
            assert!(matches!(first_tuple(&tuple[..cut], 2), Ok(Tuple::Partial)), "{cut}");
        }
        assert!(matches!(first_tuple(&tuple, 2), Ok(Tuple::Whole(12))));
        assert_eq!(first_tuple(&tuple, 3).err().unwrap().message, "row field count is 2, expected 3");
        assert!(matches!(first_tuple(&[0xff, 0xff, 1], 2), Ok(Tuple::End)));
        assert!(first_tuple(&[0, 1, 0xff, 0xff, 0xff, 0xfe], 1).is_err());
    }
}
