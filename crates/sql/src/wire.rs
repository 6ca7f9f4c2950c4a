//! How do results look on the wire? Encoders for the backend messages of PostgreSQL's protocol 3.0 that carry results.
//!
//! Source: the PostgreSQL manual, "Message Formats". Every message is a type byte, a big-endian length that counts itself,
//! and a body; encoders append to a caller's buffer and patch the length in.

use homenode_types::{ColumnType, Error, Type, ValueRef};

/// Text (0) or binary (1), as in Bind and RowDescription.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Format {
    /// The type's text form.
    #[default]
    Text,
    /// The type's `send` form.
    Binary,
}

impl Format {
    /// From the protocol's code; anything but 0 and 1 is `None`.
    pub fn from_code(code: i16) -> Option<Format> {
        match code {
            0 => Some(Format::Text),
            1 => Some(Format::Binary),
            _ => None,
        }
    }
}

/// One result column.
#[derive(Clone, PartialEq, Debug)]
pub struct Field {
    /// Column name shown to the client.
    pub name: String,
    /// Its type.
    pub ty: ColumnType,
    /// OID of the table it comes from, or 0.
    pub table: u32,
    /// Attribute number in that table, from 1, or 0.
    pub attribute: i16,
}

impl Field {
    /// A computed column.
    pub fn computed(name: impl Into<String>, ty: ColumnType) -> Field {
        Field { name: name.into(), ty, table: 0, attribute: 0 }
    }
}

/// Starts a message; returns the mark for [`finish`].
#[inline]
pub fn start(out: &mut Vec<u8>, kind: u8) -> usize {
    out.push(kind);
    let mark = out.len();
    out.extend_from_slice(&[0; 4]);
    mark
}

/// Patches the length of the message begun at `mark`.
#[inline]
pub fn finish(out: &mut [u8], mark: usize) {
    let length = (out.len() - mark) as u32;
    out[mark..mark + 4].copy_from_slice(&length.to_be_bytes());
}

fn cstr(out: &mut Vec<u8>, text: &str) {
    out.extend(text.bytes().filter(|&b| b != 0));
    out.push(0);
}

/// RowDescription; `formats` empty means text, one means the same for all.
pub fn row_description(out: &mut Vec<u8>, fields: &[Field], formats: &[Format]) {
    let mark = start(out, b'T');
    out.extend_from_slice(&(fields.len() as i16).to_be_bytes());
    for (index, field) in fields.iter().enumerate() {
        describe(out, field);
        out.extend_from_slice(&(format_of(formats, index) as i16).to_be_bytes());
    }
    finish(out, mark);
}

/// All of a field but its format.
fn describe(out: &mut Vec<u8>, field: &Field) {
    cstr(out, &field.name);
    out.extend_from_slice(&field.table.to_be_bytes());
    out.extend_from_slice(&field.attribute.to_be_bytes());
    // An untyped literal in a select list is text to the client.
    let ty = if field.ty.ty == Type::Unknown { Type::Text } else { field.ty.ty };
    out.extend_from_slice(&ty.oid().to_be_bytes());
    out.extend_from_slice(&ty.len().to_be_bytes());
    out.extend_from_slice(&field.ty.typmod.to_be_bytes());
}

/// A RowDescription that is made once and sent often: between executions only the formats differ.
#[derive(Debug)]
pub struct RowDescription {
    /// The message with all columns as text.
    message: Vec<u8>,
    /// Where in it the columns' formats are.
    formats_at: Vec<usize>,
}

impl RowDescription {
    /// The description of these columns.
    pub fn new(fields: &[Field]) -> RowDescription {
        let mut message = Vec::new();
        row_description(&mut message, fields, &[]);
        let mut formats_at = Vec::with_capacity(fields.len());
        let mut at = 1 + 4 + 2;
        let mut column = Vec::new();
        for field in fields {
            column.clear();
            describe(&mut column, field);
            at += column.len();
            formats_at.push(at);
            at += 2;
        }
        RowDescription { message, formats_at }
    }

    /// Appends the message; `formats` as for [`row_description`].
    pub fn write(&self, out: &mut Vec<u8>, formats: &[Format]) {
        let start = out.len();
        out.extend_from_slice(&self.message);
        if formats.contains(&Format::Binary) {
            for (index, &at) in self.formats_at.iter().enumerate() {
                out[start + at..start + at + 2].copy_from_slice(&(format_of(formats, index) as i16).to_be_bytes());
            }
        }
    }
}

/// The format (or its code) of column `index` under Bind's rule: none stands for text, one is for all columns.
#[inline]
pub fn format_of<F: Copy + Default>(formats: &[F], index: usize) -> F {
    match formats {
        [] => F::default(),
        [one] => *one,
        many => many.get(index).copied().unwrap_or_default(),
    }
}

/// Starts a DataRow of `columns` columns.
#[inline]
pub fn start_row(out: &mut Vec<u8>, columns: usize) -> usize {
    let mark = out.len() + 1;
    let [high, low] = (columns as i16).to_be_bytes();
    out.extend_from_slice(&[b'D', 0, 0, 0, 0, high, low]);
    mark
}

/// Appends one column to a DataRow.
#[inline]
pub fn column(out: &mut Vec<u8>, value: ValueRef<'_>, ty: Type, format: Format) {
    if value.is_null() {
        out.extend_from_slice(&(-1_i32).to_be_bytes());
        return;
    }
    let mark = out.len();
    out.extend_from_slice(&[0; 4]);
    match format {
        Format::Text => value.write_text(ty, out),
        Format::Binary => value.write_binary(ty, out),
    }
    let length = (out.len() - mark - 4) as u32;
    out[mark..mark + 4].copy_from_slice(&length.to_be_bytes());
}

/// CommandComplete with its tag.
pub fn command_complete(out: &mut Vec<u8>, tag: &str) {
    let mark = start(out, b'C');
    cstr(out, tag);
    finish(out, mark);
}

/// CommandComplete with a tag and a row count, formatted without allocation.
pub fn command_complete_rows(out: &mut Vec<u8>, tag: &str, rows: u64) {
    let mark = start(out, b'C');
    out.extend_from_slice(tag.as_bytes());
    out.push(b' ');
    decimal(out, rows);
    out.push(0);
    finish(out, mark);
}

fn decimal(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// A message that has no body: ParseComplete `1`, BindComplete `2`, CloseComplete `3`, NoData `n`, PortalSuspended `s`,
/// EmptyQueryResponse `I`.
pub fn empty(out: &mut Vec<u8>, kind: u8) {
    out.extend_from_slice(&[kind, 0, 0, 0, 4]);
}

/// ParameterDescription.
pub fn parameter_description(out: &mut Vec<u8>, types: &[Type]) {
    let mark = start(out, b't');
    out.extend_from_slice(&(types.len() as i16).to_be_bytes());
    for ty in types {
        out.extend_from_slice(&ty.oid().to_be_bytes());
    }
    finish(out, mark);
}

/// ReadyForQuery with the transaction status `I`, `T` or `E`.
pub fn ready_for_query(out: &mut Vec<u8>, status: u8) {
    out.extend_from_slice(&[b'Z', 0, 0, 0, 5, status]);
}

/// ParameterStatus.
pub fn parameter_status(out: &mut Vec<u8>, name: &str, value: &str) {
    let mark = start(out, b'S');
    cstr(out, name);
    cstr(out, value);
    finish(out, mark);
}

/// ErrorResponse.
pub fn error_response(out: &mut Vec<u8>, severity: &str, error: &Error) {
    report(out, b'E', severity, error);
}

/// NoticeResponse; severity `NOTICE`, `WARNING`, ...
pub fn notice_response(out: &mut Vec<u8>, severity: &str, error: &Error) {
    report(out, b'N', severity, error);
}

fn report(out: &mut Vec<u8>, kind: u8, severity: &str, error: &Error) {
    let mark = start(out, kind);
    let mut field = |code: u8, text: &str| {
        out.push(code);
        cstr(out, text);
    };
    field(b'S', severity);
    field(b'V', severity);
    field(b'C', error.code.as_str());
    field(b'M', &error.message);
    let position = error.position.map(|position| position.to_string());
    let optional = [
        (b'D', &error.detail),
        (b'H', &error.hint),
        (b'W', &error.context),
        (b'P', &position),
        (b's', &error.schema),
        (b't', &error.table),
        (b'c', &error.column),
        (b'n', &error.constraint),
    ];
    for (code, text) in optional {
        if let Some(text) = text {
            field(code, text);
        }
    }
    out.push(0);
    finish(out, mark);
}

/// CopyInResponse (`G`) or CopyOutResponse (`H`), all columns in text format.
pub fn copy_response(out: &mut Vec<u8>, kind: u8, columns: usize, binary: bool) {
    let mark = start(out, kind);
    out.push(binary.into());
    out.extend_from_slice(&(columns as i16).to_be_bytes());
    for _ in 0..columns {
        out.extend_from_slice(&i16::from(binary).to_be_bytes());
    }
    finish(out, mark);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_with_rows_has_its_length() {
        let mut out = Vec::new();
        command_complete_rows(&mut out, "SELECT", 120);
        assert_eq!(out, b"C\0\0\0\x0fSELECT 120\0");
    }

    #[test]
    fn a_kept_description_is_the_one_made_anew() {
        let fields = [
            Field { name: "a".into(), ty: ColumnType::new(Type::Int4), table: 7, attribute: 1 },
            Field::computed("second", ColumnType::new(Type::Text)),
        ];
        let kept = RowDescription::new(&fields);
        for formats in [&[][..], &[Format::Binary], &[Format::Text, Format::Binary]] {
            let (mut made, mut sent) = (vec![b'1'], vec![b'1']);
            row_description(&mut made, &fields, formats);
            kept.write(&mut sent, formats);
            assert_eq!(made, sent, "{formats:?}");
        }
    }

    #[test]
    fn a_row_holds_lengths_and_nulls() {
        let mut out = Vec::new();
        let mark = start_row(&mut out, 2);
        column(&mut out, ValueRef::Int4(42), Type::Int4, Format::Text);
        column(&mut out, ValueRef::Null, Type::Int4, Format::Text);
        finish(&mut out, mark);
        assert_eq!(out, b"D\0\0\0\x10\0\x02\0\0\0\x0242\xff\xff\xff\xff");
    }
}
