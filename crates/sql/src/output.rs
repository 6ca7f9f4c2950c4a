//! What does a row look like to the client? DataRows, from values or straight from a stored row's bytes.

use crate::expr::{Env, Expr, Host, RowSource};
use crate::wire::{self, Field, Format};
use homenode_types::{ColumnBytes, Result, RowLayout, StoredColumn, Type, Value, write_i64};

/// One output column of a compiled query.
pub(crate) enum Output {
    /// A column of a stored row.
    Stored(Stored),
    /// An expression.
    Computed(Expr),
}

/// A column that goes from a row's bytes to the client without becoming a value.
pub(crate) struct Stored {
    /// Which of the compiled query's tables, in the order they are read.
    pub table: usize,
    column: usize,
    place: StoredColumn,
    kind: Kind,
}

/// How a column's stored bytes relate to what is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// They are the same in both formats.
    Text,
    /// A little-endian integer.
    Integer,
    /// By way of a value.
    Other,
}

impl Stored {
    /// Column number `column` of rows of this layout.
    pub fn new(layout: &RowLayout, table: usize, column: usize) -> Option<Stored> {
        let ty = layout.column_type(column);
        let kind = match ty {
            Type::Int2 | Type::Int4 | Type::Int8 => Kind::Integer,
            // These are shown by name, which asks the catalog.
            Type::Regclass | Type::Regtype | Type::Regproc | Type::Regnamespace | Type::Regrole => return None,
            // Arrays and json are carried as text too, but differ in binary.
            Type::Text | Type::Varchar | Type::Bpchar | Type::Name => Kind::Text,
            _ => Kind::Other,
        };
        Some(Stored { table, column, place: layout.stored_column(column)?, kind })
    }

    /// The bytes of a text column; None for NULL, other types, and rows that are older than the column.
    #[inline(always)]
    pub fn text<'r>(&self, row: &'r [u8]) -> Option<&'r [u8]> {
        match self.place.read(row) {
            ColumnBytes::Bytes(bytes) if self.kind == Kind::Text => Some(bytes),
            _ => None,
        }
    }

    /// The number in an integer column; None as for [`Stored::text`].
    #[inline(always)]
    pub fn integer(&self, row: &[u8]) -> Option<i64> {
        match self.place.read(row) {
            ColumnBytes::Bytes(bytes) if self.kind == Kind::Integer => Some(little_endian(bytes)),
            _ => None,
        }
    }

    /// Appends the column of `row` to a DataRow.
    #[inline(always)]
    fn write(&self, layout: &RowLayout, row: &[u8], format: Format, out: &mut Vec<u8>) {
        match self.place.read(row) {
            ColumnBytes::Bytes(bytes) if self.kind == Kind::Text => {
                out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
                out.extend_from_slice(bytes);
            }
            ColumnBytes::Bytes(bytes) if self.kind == Kind::Integer => write_integer(bytes, format, out),
            ColumnBytes::Null => out.extend_from_slice(&(-1_i32).to_be_bytes()),
            _ => wire::column(out, layout.column(row, self.column), layout.column_type(self.column), format),
        }
    }
}

fn write_integer(bytes: &[u8], format: Format, out: &mut Vec<u8>) {
    if format == Format::Binary {
        out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
        out.extend(bytes.iter().rev());
        return;
    }
    let mark = out.len();
    out.extend_from_slice(&[0; 4]);
    write_i64(little_endian(bytes), out);
    let length = (out.len() - mark - 4) as u32;
    out[mark..mark + 4].copy_from_slice(&length.to_be_bytes());
}

/// A signed integer of 2, 4 or 8 bytes.
#[inline]
fn little_endian(bytes: &[u8]) -> i64 {
    match *bytes {
        [a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
        [a, b] => i64::from(i16::from_le_bytes([a, b])),
        _ => bytes.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes)),
    }
}

/// The stored rows of a compiled query: their layouts and bytes, and the same as registers.
pub(crate) trait StoredRows: RowSource {
    /// Table number `table` of the query.
    fn stored(&self, table: usize) -> (&RowLayout, &[u8]);
}

/// Appends a DataRow of a compiled query.
#[inline]
pub(crate) fn stored_row<R: StoredRows>(
    out: &mut Vec<u8>,
    fields: &[Field],
    formats: &[Format],
    output: &[Output],
    row: &R,
    params: &[Value],
    host: &mut dyn Host,
) -> Result<()> {
    let mark = wire::start_row(out, output.len());
    for (number, column) in output.iter().enumerate() {
        let format = wire::format_of(formats, number);
        match column {
            Output::Stored(stored) => {
                let (layout, bytes) = row.stored(stored.table);
                stored.write(layout, bytes, format, out);
            }
            Output::Computed(expr) => {
                if let Err(error) = computed(out, &fields[number], format, expr, row, params, &mut Env::new(host)) {
                    // Half a message must not stand before the error's.
                    out.truncate(mark - 1);
                    return Err(error);
                }
            }
        }
    }
    wire::finish(out, mark);
    Ok(())
}

/// Appends a DataRow of the output expressions over a row.
#[inline]
pub(crate) fn data_row(
    out: &mut Vec<u8>,
    fields: &[Field],
    formats: &[Format],
    output: &[Expr],
    row: &dyn RowSource,
    params: &[Value],
    env: &mut Env<'_>,
) -> Result<()> {
    let mark = wire::start_row(out, output.len());
    for (number, (column, field)) in output.iter().zip(fields).enumerate() {
        let format = wire::format_of(formats, number);
        if let Err(error) = computed(out, field, format, column, row, params, env) {
            out.truncate(mark - 1);
            return Err(error);
        }
    }
    wire::finish(out, mark);
    Ok(())
}

#[inline]
fn computed(
    out: &mut Vec<u8>,
    field: &Field,
    format: Format,
    expr: &Expr,
    row: &dyn RowSource,
    params: &[Value],
    env: &mut Env<'_>,
) -> Result<()> {
    let value = expr.eval_ref(row, params, env)?;
    match (field.ty.ty, format) {
        (ty @ (Type::Regclass | Type::Regtype | Type::Regproc | Type::Regnamespace | Type::Regrole), Format::Text) => {
            let value = value.into_owned();
            let text = if value.is_null() { Value::Null } else { env.host.call(lookup_name(ty), &[value])? };
            wire::column(out, text.as_ref(), Type::Text, Format::Text);
        }
        (ty, format) => wire::column(out, value.as_ref(), ty, format),
    }
    Ok(())
}

fn lookup_name(ty: Type) -> &'static str {
    match ty {
        Type::Regtype => "regtypeout",
        Type::Regproc => "regprocout",
        Type::Regnamespace => "regnamespaceout",
        Type::Regrole => "regroleout",
        _ => "regclassout",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::NoHost;
    use homenode_types::{ColumnType, Interval, ValueRef};

    struct One<'a>(&'a RowLayout, &'a [u8]);

    impl RowSource for One<'_> {
        fn column(&self, i: usize) -> ValueRef<'_> {
            self.0.column(self.1, i)
        }
    }

    impl StoredRows for One<'_> {
        fn stored(&self, _: usize) -> (&RowLayout, &[u8]) {
            (self.0, self.1)
        }
    }

    #[test]
    fn stored_columns_look_as_their_values_do() {
        let types = [
            Type::Int2,
            Type::Text,
            Type::Int4,
            Type::Bpchar,
            Type::Int8,
            Type::Bool,
            Type::Bytea,
            Type::Interval,
            Type::Varchar,
            Type::Int4,
        ];
        let columns = types.map(ColumnType::new);
        let layout = RowLayout::new(&columns);
        let full = [
            Value::Int2(-7),
            Value::text("a b"),
            Value::Int4(i32::MIN),
            Value::text("x   "),
            Value::Int8(i64::MAX),
            Value::Bool(true),
            Value::Bytea(vec![0, 255]),
            Value::Interval(Interval::default()),
            Value::text(""),
            Value::Int4(0),
        ];
        let nulls = types.map(|_| Value::Null);
        let fields = columns.map(|ty| Field::computed("c", ty));
        let stored: Vec<_> = (0..types.len()).map(|i| Output::Stored(Stored::new(&layout, 0, i).unwrap())).collect();
        let exprs: Vec<_> = (0..types.len()).map(Expr::Column).collect();
        let mut host = NoHost;
        // The last row was written before the table got its last seven columns.
        for values in [&full[..], &nulls, &full[..3]] {
            let mut row = Vec::new();
            layout.encode(values, &mut row).unwrap();
            for format in [Format::Text, Format::Binary] {
                let (mut direct, mut by_value) = (Vec::new(), Vec::new());
                let source = One(&layout, &row);
                stored_row(&mut direct, &fields, &[format], &stored, &source, &[], &mut host).unwrap();
                let env = &mut Env::new(&mut host);
                data_row(&mut by_value, &fields, &[format], &exprs, &source, &[], env).unwrap();
                assert_eq!(direct, by_value, "{values:?} {format:?}");
            }
        }
    }
}
