//! How is a catalog entry written? Byte by byte; docs/file-format.md has the kinds.

use super::*;
use crate::bytes::{Decoder, Encoder};
use crate::roles;
use crate::statistics;
use homenode_types::{ColumnType, Error, Result, SqlState, Type};

impl Object {
    /// Its number.
    pub fn oid(&self) -> u32 {
        match self {
            Object::Table(table) => table.oid,
            Object::Sequence(sequence) => sequence.oid,
            Object::View(view) => view.oid,
            Object::Role(role) => role.oid,
            Object::Access(access) => access.oid,
            Object::Statistics(statistics) => statistics.oid,
            Object::Schema(schema) => schema.oid,
            Object::Comments(comments) => comments.oid,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::default();
        match self {
            // Kinds of their own, so that a version that does not know what is in them refuses them.
            Object::Table(table) if has_details(table) => {
                out.u8(5);
                encode_table(table, &mut out);
                encode_references(table, &mut out);
                encode_details(table, &mut out);
            }
            Object::Table(table) if table.foreign_keys.is_empty() && table.referrers.is_empty() => {
                out.u8(1);
                encode_table(table, &mut out);
            }
            Object::Table(table) => {
                out.u8(3);
                encode_table(table, &mut out);
                encode_references(table, &mut out);
            }
            Object::Sequence(sequence) => {
                out.u8(2);
                encode_sequence(sequence, &mut out);
            }
            Object::View(view) => {
                out.u8(4);
                encode_view(view, &mut out);
            }
            Object::Role(role) => {
                out.u8(16);
                roles::encode_role(role, &mut out);
            }
            Object::Access(access) => {
                out.u8(17);
                roles::encode_access(access, &mut out);
            }
            Object::Statistics(statistics) => {
                out.u8(18);
                statistics::encode(statistics, &mut out);
            }
            Object::Schema(schema) => {
                out.u8(19);
                out.u32(schema.oid);
                out.text(&schema.name);
            }
            Object::Comments(comments) => {
                out.u8(20);
                out.u32(comments.oid);
                out.u32(comments.object);
                out.list(&comments.comments, |comment, out| {
                    out.u32(comment.class);
                    out.u32(comment.column);
                    out.text(&comment.text);
                });
            }
        }
        out.into_bytes()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Object> {
        let mut from = Decoder::new(bytes);
        let object = match from.u8() {
            Some(1) => decode_table(&mut from).map(Object::Table),
            Some(2) => decode_sequence(&mut from).map(Object::Sequence),
            Some(3) => decode_table(&mut from).and_then(|table| decode_references(table, &mut from)).map(Object::Table),
            Some(4) => decode_view(&mut from).map(Object::View),
            Some(5) => decode_table(&mut from)
                .and_then(|table| decode_references(table, &mut from))
                .and_then(|table| decode_details(table, &mut from))
                .map(Object::Table),
            Some(16) => roles::decode_role(&mut from).map(Object::Role),
            Some(17) => roles::decode_access(&mut from).map(Object::Access),
            Some(18) => statistics::decode(&mut from).map(Object::Statistics),
            Some(19) => decode_schema(&mut from).map(Object::Schema),
            Some(20) => decode_comments(&mut from).map(Object::Comments),
            _ => None,
        };
        object.ok_or_else(|| Error::new(SqlState::DATA_CORRUPTED, "a catalog entry cannot be read"))
    }
}

fn encode_table(table: &TableDefinition, out: &mut Encoder) {
    out.u32(table.oid);
    out.text(&table.schema);
    out.text(&table.name);
    out.u64(table.root);
    out.list(&table.columns, |column, out| {
        out.text(&column.name);
        out.u32(column.ty.ty.oid());
        out.u32(column.ty.typmod as u32);
        out.u8(column.not_null as u8);
        out.option(column.default.as_ref(), |text, out| out.text(text));
        out.u8(match column.identity {
            None => 0,
            Some(Identity::Always) => 1,
            Some(Identity::ByDefault) => 2,
        });
        out.option(column.sequence.as_ref(), |oid, out| out.u32(*oid));
    });
    out.option(table.primary_key.as_ref(), |primary_key, out| {
        out.u32(primary_key.oid);
        out.text(&primary_key.name);
        out.list(&primary_key.columns, |column, out| out.u32(*column as u32));
    });
    out.list(&table.indexes, |index, out| {
        out.u32(index.oid);
        out.text(&index.name);
        out.list(&index.columns, |column, out| out.u32(*column as u32));
        out.u8(index.unique as u8 | (index.constraint as u8) << 1);
        out.u64(index.root);
        out.u64(index.valid_from);
    });
    out.u64(table.overflow);
    out.list(&table.checks, |check, out| {
        out.u32(check.oid);
        out.text(&check.name);
        out.text(&check.expression);
    });
}

fn decode_table(from: &mut Decoder<'_>) -> Option<TableDefinition> {
    let (oid, schema, name, root) = (from.u32()?, from.text()?, from.text()?, from.u64()?);
    let columns = from.list(|from| {
        Some(Column {
            name: from.text()?,
            ty: ColumnType { ty: Type::from_oid(from.u32()?)?, typmod: from.u32()? as i32 },
            not_null: from.u8()? != 0,
            default: from.option(|from| from.text())?,
            identity: match from.u8()? {
                0 => None,
                1 => Some(Identity::Always),
                _ => Some(Identity::ByDefault),
            },
            sequence: from.option(|from| from.u32())?,
            is_dropped: false,
            is_hidden: false,
            generated: None,
        })
    })?;
    let places = |from: &mut Decoder<'_>| from.list(|from| from.u32().map(|column| column as usize));
    let primary_key =
        from.option(|from| Some(PrimaryKey { oid: from.u32()?, name: from.text()?, columns: places(from)? }))?;
    let indexes = from.list(|from| {
        let (oid, name, columns, flags) = (from.u32()?, from.text()?, places(from)?, from.u8()?);
        let (root, valid_from) = (from.u64()?, from.u64()?);
        Some(IndexDefinition {
            oid,
            name,
            order: vec![KeyOrder::default(); columns.len()],
            include: Vec::new(),
            filter: None,
            columns,
            unique: flags & 1 != 0,
            constraint: flags & 2 != 0,
            root,
            valid_from,
        })
    })?;
    let overflow = from.u64()?;
    let checks = from.list(|from| {
        Some(CheckConstraint { oid: from.u32()?, name: from.text()?, expression: from.text()?, not_valid: false })
    })?;
    let known = |places: &[usize]| places.iter().all(|&column| column < columns.len());
    let sound =
        primary_key.as_ref().is_none_or(|key| known(&key.columns)) && indexes.iter().all(|index| known(&index.columns));
    sound.then_some(TableDefinition {
        oid,
        schema,
        name,
        columns,
        primary_key,
        indexes,
        root,
        overflow,
        checks,
        foreign_keys: Vec::new(),
        referrers: Vec::new(),
    })
}

fn encode_references(table: &TableDefinition, out: &mut Encoder) {
    let places = |columns: &[usize], out: &mut Encoder| out.list(columns, |column, out| out.u32(*column as u32));
    out.list(&table.foreign_keys, |key, out| {
        out.u32(key.oid);
        out.text(&key.name);
        places(&key.columns, out);
        out.u32(key.parent);
        places(&key.parent_columns, out);
        out.u32(key.key);
        out.u8(key.on_delete.code());
        out.u8(key.on_update.code());
    });
    out.list(&table.referrers, |oid, out| out.u32(*oid));
}

fn decode_references(mut table: TableDefinition, from: &mut Decoder<'_>) -> Option<TableDefinition> {
    let places = |from: &mut Decoder<'_>| from.list(|from| from.u32().map(|column| column as usize));
    table.foreign_keys = from.list(|from| {
        Some(ForeignKey {
            oid: from.u32()?,
            name: from.text()?,
            columns: places(from)?,
            parent: from.u32()?,
            parent_columns: places(from)?,
            key: from.u32()?,
            on_delete: ReferentialAction::of_code(from.u8()?)?,
            on_update: ReferentialAction::of_code(from.u8()?)?,
            not_valid: false,
            timing: Timing::Immediate,
        })
    })?;
    table.referrers = from.list(|from| from.u32())?;
    let known = |key: &ForeignKey| key.columns.iter().all(|&column| column < table.columns.len());
    table.foreign_keys.iter().all(known).then_some(table)
}

/// Whether the table has something that its other fields don't say.
fn has_details(table: &TableDefinition) -> bool {
    let plain = |index: &IndexDefinition| {
        index.order.iter().all(|order| *order == KeyOrder::default())
            && index.include.is_empty()
            && index.filter.is_none()
    };
    table.columns.iter().any(|column| !column.is_visible() || column.generated.is_some())
        || !table.indexes.iter().all(plain)
        || table.checks.iter().any(|check| check.not_valid)
        || table.foreign_keys.iter().any(|key| key.not_valid || key.timing != Timing::Immediate)
}

fn encode_details(table: &TableDefinition, out: &mut Encoder) {
    for column in &table.columns {
        out.u8(u8::from(column.is_dropped) | u8::from(column.is_hidden) << 1);
        out.option(column.generated.as_ref(), |text, out| out.text(text));
    }
    for index in &table.indexes {
        let bits = |order: &KeyOrder| u8::from(order.descending) | u8::from(order.nulls_first) << 1;
        out.list(&index.order, |order, out| out.u8(bits(order)));
        out.list(&index.include, |column, out| out.u32(*column as u32));
        out.option(index.filter.as_ref(), |column, out| out.u32(*column as u32));
    }
    for check in &table.checks {
        out.u8(u8::from(check.not_valid));
    }
    for key in &table.foreign_keys {
        out.u8(u8::from(key.not_valid) | (key.timing as u8) << 1);
    }
}

fn decode_details(mut table: TableDefinition, from: &mut Decoder<'_>) -> Option<TableDefinition> {
    let count = table.columns.len();
    for column in &mut table.columns {
        let flags = from.u8()?;
        (column.is_dropped, column.is_hidden) = (flags & 1 != 0, flags & 2 != 0);
        column.generated = from.option(|from| from.text())?;
    }
    for index in &mut table.indexes {
        index.order = from.list(|from| {
            let bits = from.u8()?;
            Some(KeyOrder { descending: bits & 1 != 0, nulls_first: bits & 2 != 0 })
        })?;
        index.include = from.list(|from| from.u32().map(|column| column as usize))?;
        index.filter = from.option(|from| from.u32().map(|column| column as usize))?;
        let mut places = index.include.iter().chain(&index.filter);
        if index.order.len() != index.columns.len() || places.any(|&column| column >= count) {
            return None;
        }
    }
    for check in &mut table.checks {
        check.not_valid = from.u8()? != 0;
    }
    for key in &mut table.foreign_keys {
        let bits = from.u8()?;
        key.not_valid = bits & 1 != 0;
        key.timing = [Timing::Immediate, Timing::Deferrable, Timing::Deferred].get(usize::from(bits >> 1)).copied()?;
    }
    Some(table)
}

fn encode_sequence(sequence: &SequenceDefinition, out: &mut Encoder) {
    out.u32(sequence.oid);
    out.text(&sequence.schema);
    out.text(&sequence.name);
    out.u32(sequence.ty.oid());
    for number in [sequence.start, sequence.increment, sequence.min, sequence.max] {
        out.u64(number as u64);
    }
    out.u8(sequence.cycle as u8);
    out.option(sequence.owner.as_ref(), |(table, column), out| {
        out.u32(*table);
        out.u32(*column as u32);
    });
}

fn decode_sequence(from: &mut Decoder<'_>) -> Option<SequenceDefinition> {
    Some(SequenceDefinition {
        oid: from.u32()?,
        schema: from.text()?,
        name: from.text()?,
        ty: Type::from_oid(from.u32()?)?,
        start: from.u64()? as i64,
        increment: from.u64()? as i64,
        min: from.u64()? as i64,
        max: from.u64()? as i64,
        cycle: from.u8()? != 0,
        owner: from.option(|from| Some((from.u32()?, from.u32()? as usize)))?,
    })
}

fn encode_view(view: &ViewDefinition, out: &mut Encoder) {
    out.u32(view.oid);
    out.text(&view.schema);
    out.text(&view.name);
    out.list(&view.columns, |(name, ty), out| {
        out.text(name);
        out.u32(ty.ty.oid());
        out.u32(ty.typmod as u32);
    });
    out.list(&view.sources, |name, out| out.text(name));
    out.text(&view.query);
    out.list(&view.depends, |oid, out| out.u32(*oid));
}

fn decode_view(from: &mut Decoder<'_>) -> Option<ViewDefinition> {
    Some(ViewDefinition {
        oid: from.u32()?,
        schema: from.text()?,
        name: from.text()?,
        columns: from.list(|from| {
            let name = from.text()?;
            Some((name, ColumnType { ty: Type::from_oid(from.u32()?)?, typmod: from.u32()? as i32 }))
        })?,
        sources: from.list(|from| from.text())?,
        query: from.text()?,
        depends: from.list(|from| from.u32())?,
    })
}

fn decode_schema(from: &mut Decoder<'_>) -> Option<SchemaDefinition> {
    Some(SchemaDefinition { oid: from.u32()?, name: from.text()? })
}

fn decode_comments(from: &mut Decoder<'_>) -> Option<CommentsDefinition> {
    let (oid, object) = (from.u32()?, from.u32()?);
    let comments = from.list(|from| Some(Comment { class: from.u32()?, column: from.u32()?, text: from.text()? }))?;
    Some(CommentsDefinition { oid, object, comments })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> TableDefinition {
        let column = |name: &str| Column::new(name.to_owned(), ColumnType::new(Type::Int4));
        let index = IndexDefinition {
            oid: 5,
            name: "i".to_owned(),
            columns: vec![1, 0],
            unique: true,
            constraint: false,
            order: vec![
                KeyOrder { descending: true, nulls_first: false },
                KeyOrder { descending: false, nulls_first: true },
            ],
            include: vec![2],
            filter: Some(3),
            root: 9,
            valid_from: 7,
        };
        let key = ForeignKey {
            oid: 6,
            name: "f".to_owned(),
            columns: vec![0],
            parent: 4,
            parent_columns: vec![1],
            key: 3,
            on_delete: ReferentialAction::Cascade,
            on_update: ReferentialAction::NoAction,
            not_valid: true,
            timing: Timing::Deferred,
        };
        let check = CheckConstraint { oid: 8, name: "c".to_owned(), expression: "a > 0".to_owned(), not_valid: true };
        TableDefinition {
            oid: 4,
            schema: "s".to_owned(),
            name: "t".to_owned(),
            columns: vec![
                column("a"),
                Column { is_dropped: true, ..column("gone") },
                Column { generated: Some("a + 1".to_owned()), ..column("g") },
                Column { is_hidden: true, generated: Some("a > 5".to_owned()), ..column("h") },
            ],
            primary_key: None,
            indexes: vec![index],
            root: 11,
            overflow: 0,
            checks: vec![check],
            foreign_keys: vec![key],
            referrers: vec![4],
        }
    }

    #[test]
    fn what_is_written_is_read_and_cut_entries_are_refused() {
        let schema = SchemaDefinition { oid: 30, name: "shop".to_owned() };
        let comments = vec![Comment { class: 1259, column: 2, text: "said".to_owned() }];
        let comments = CommentsDefinition { oid: 31, object: 4, comments };
        for object in [Object::Table(table()), Object::Schema(schema), Object::Comments(comments)] {
            let bytes = object.encode();
            assert_eq!(Object::decode(&bytes).unwrap(), object);
            for cut in 0..bytes.len() {
                assert!(Object::decode(&bytes[..cut]).is_err(), "{cut} bytes of {}", bytes.len());
            }
        }
    }

    #[test]
    fn a_table_without_details_is_of_the_kind_that_it_was_before() {
        let plain = TableDefinition {
            columns: vec![Column::new("a".to_owned(), ColumnType::new(Type::Int4))],
            indexes: Vec::new(),
            checks: Vec::new(),
            foreign_keys: Vec::new(),
            referrers: Vec::new(),
            ..table()
        };
        assert_eq!(Object::Table(plain).encode()[0], 1);
        assert_eq!(Object::Table(table()).encode()[0], 5);
    }
}
