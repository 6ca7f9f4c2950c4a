//! Which types are there? PostgreSQL's object identifiers, names and modifiers (pg_type.dat).

use std::fmt;

/// An SQL type. Arrays and vectors are the few that catalogs need; their values are carried as
/// text in PostgreSQL's array notation (see [`crate::array`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs)] // the names say it
pub enum Type {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Numeric,
    Text,
    Varchar,
    Bpchar,
    /// PostgreSQL's internal one-byte type, `"char"`.
    Char,
    Name,
    Bytea,
    Date,
    Time,
    Timestamp,
    Timestamptz,
    Interval,
    Uuid,
    Json,
    Jsonb,
    Oid,
    Regclass,
    Regtype,
    Regproc,
    Regnamespace,
    Regrole,
    Xid,
    /// A literal or parameter whose type the context has not decided.
    Unknown,
    Void,
    Record,
    /// The type of stored expressions in catalogs; text here.
    PgNodeTree,
    Int2Vector,
    OidVector,
    BoolArray,
    CharArray,
    NameArray,
    Int2Array,
    Int4Array,
    Int8Array,
    TextArray,
    VarcharArray,
    BpcharArray,
    Float4Array,
    Float8Array,
    NumericArray,
    OidArray,
    TimestampArray,
    TimestamptzArray,
    DateArray,
    UuidArray,
    RegtypeArray,
    ByteaArray,
    TimeArray,
    IntervalArray,
    JsonArray,
    JsonbArray,
    RegclassArray,
    RegprocArray,
    RegnamespaceArray,
    RegroleArray,
    XidArray,
}

/// How operators and implicit casts group the types (pg_type.typcategory).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Category {
    Array,
    Boolean,
    DateTime,
    Numeric,
    Pseudo,
    String,
    Timespan,
    User,
    Unknown,
    /// PostgreSQL's internal types (`"char"`, `pg_node_tree`).
    Internal,
}

/// One row of the type table.
#[derive(Debug)]
pub struct TypeInfo {
    /// The type.
    pub ty: Type,
    /// pg_type.oid.
    pub oid: u32,
    /// pg_type.typname.
    pub name: &'static str,
    /// The name `format_type` prints when there is no modifier.
    pub sql_name: &'static str,
    /// pg_type.typlen in bytes; -1 for variable length.
    pub len: i16,
    /// pg_type.oid of the array type over it, 0 if there is none here.
    pub array_oid: u32,
    /// pg_type.typelem.
    pub element: Option<Type>,
    /// pg_type.typcategory.
    pub category: Category,
}

const fn info(
    ty: Type,
    oid: u32,
    name: &'static str,
    sql_name: &'static str,
    len: i16,
    array_oid: u32,
    category: Category,
) -> TypeInfo {
    TypeInfo { ty, oid, name, sql_name, len, array_oid, element: None, category }
}

const fn array(ty: Type, oid: u32, name: &'static str, sql_name: &'static str, element: Type) -> TypeInfo {
    TypeInfo { ty, oid, name, sql_name, len: -1, array_oid: 0, element: Some(element), category: Category::Array }
}

/// All types, in the order of [`Type`]'s discriminants.
pub static TYPES: [TypeInfo; 62] = {
    use Category as C;
    use Type as T;
    [
        info(T::Bool, 16, "bool", "boolean", 1, 1000, C::Boolean),
        info(T::Int2, 21, "int2", "smallint", 2, 1005, C::Numeric),
        info(T::Int4, 23, "int4", "integer", 4, 1007, C::Numeric),
        info(T::Int8, 20, "int8", "bigint", 8, 1016, C::Numeric),
        info(T::Float4, 700, "float4", "real", 4, 1021, C::Numeric),
        info(T::Float8, 701, "float8", "double precision", 8, 1022, C::Numeric),
        info(T::Numeric, 1700, "numeric", "numeric", -1, 1231, C::Numeric),
        info(T::Text, 25, "text", "text", -1, 1009, C::String),
        info(T::Varchar, 1043, "varchar", "character varying", -1, 1015, C::String),
        info(T::Bpchar, 1042, "bpchar", "character", -1, 1014, C::String),
        info(T::Char, 18, "char", "\"char\"", 1, 1002, C::Internal),
        info(T::Name, 19, "name", "name", 64, 1003, C::String),
        info(T::Bytea, 17, "bytea", "bytea", -1, 1001, C::User),
        info(T::Date, 1082, "date", "date", 4, 1182, C::DateTime),
        info(T::Time, 1083, "time", "time without time zone", 8, 1183, C::DateTime),
        info(T::Timestamp, 1114, "timestamp", "timestamp without time zone", 8, 1115, C::DateTime),
        info(T::Timestamptz, 1184, "timestamptz", "timestamp with time zone", 8, 1185, C::DateTime),
        info(T::Interval, 1186, "interval", "interval", 16, 1187, C::Timespan),
        info(T::Uuid, 2950, "uuid", "uuid", 16, 2951, C::User),
        info(T::Json, 114, "json", "json", -1, 199, C::User),
        info(T::Jsonb, 3802, "jsonb", "jsonb", -1, 3807, C::User),
        info(T::Oid, 26, "oid", "oid", 4, 1028, C::Numeric),
        info(T::Regclass, 2205, "regclass", "regclass", 4, 2210, C::Numeric),
        info(T::Regtype, 2206, "regtype", "regtype", 4, 2211, C::Numeric),
        info(T::Regproc, 24, "regproc", "regproc", 4, 1008, C::Numeric),
        info(T::Regnamespace, 4089, "regnamespace", "regnamespace", 4, 4090, C::Numeric),
        info(T::Regrole, 4096, "regrole", "regrole", 4, 4097, C::Numeric),
        info(T::Xid, 28, "xid", "xid", 4, 1011, C::User),
        info(T::Unknown, 705, "unknown", "unknown", -2, 0, C::Unknown),
        info(T::Void, 2278, "void", "void", 4, 0, C::Pseudo),
        info(T::Record, 2249, "record", "record", -1, 0, C::Pseudo),
        info(T::PgNodeTree, 194, "pg_node_tree", "pg_node_tree", -1, 0, C::Internal),
        array(T::Int2Vector, 22, "int2vector", "int2vector", T::Int2),
        array(T::OidVector, 30, "oidvector", "oidvector", T::Oid),
        array(T::BoolArray, 1000, "_bool", "boolean[]", T::Bool),
        array(T::CharArray, 1002, "_char", "\"char\"[]", T::Char),
        array(T::NameArray, 1003, "_name", "name[]", T::Name),
        array(T::Int2Array, 1005, "_int2", "smallint[]", T::Int2),
        array(T::Int4Array, 1007, "_int4", "integer[]", T::Int4),
        array(T::Int8Array, 1016, "_int8", "bigint[]", T::Int8),
        array(T::TextArray, 1009, "_text", "text[]", T::Text),
        array(T::VarcharArray, 1015, "_varchar", "character varying[]", T::Varchar),
        array(T::BpcharArray, 1014, "_bpchar", "character[]", T::Bpchar),
        array(T::Float4Array, 1021, "_float4", "real[]", T::Float4),
        array(T::Float8Array, 1022, "_float8", "double precision[]", T::Float8),
        array(T::NumericArray, 1231, "_numeric", "numeric[]", T::Numeric),
        array(T::OidArray, 1028, "_oid", "oid[]", T::Oid),
        array(T::TimestampArray, 1115, "_timestamp", "timestamp without time zone[]", T::Timestamp),
        array(T::TimestamptzArray, 1185, "_timestamptz", "timestamp with time zone[]", T::Timestamptz),
        array(T::DateArray, 1182, "_date", "date[]", T::Date),
        array(T::UuidArray, 2951, "_uuid", "uuid[]", T::Uuid),
        array(T::RegtypeArray, 2211, "_regtype", "regtype[]", T::Regtype),
        array(T::ByteaArray, 1001, "_bytea", "bytea[]", T::Bytea),
        array(T::TimeArray, 1183, "_time", "time without time zone[]", T::Time),
        array(T::IntervalArray, 1187, "_interval", "interval[]", T::Interval),
        array(T::JsonArray, 199, "_json", "json[]", T::Json),
        array(T::JsonbArray, 3807, "_jsonb", "jsonb[]", T::Jsonb),
        array(T::RegclassArray, 2210, "_regclass", "regclass[]", T::Regclass),
        array(T::RegprocArray, 1008, "_regproc", "regproc[]", T::Regproc),
        array(T::RegnamespaceArray, 4090, "_regnamespace", "regnamespace[]", T::Regnamespace),
        array(T::RegroleArray, 4097, "_regrole", "regrole[]", T::Regrole),
        array(T::XidArray, 1011, "_xid", "xid[]", T::Xid),
    ]
};

/// Names that SQL accepts besides pg_type.typname and the SQL names of the table.
const ALIASES: &[(&str, Type)] = &[
    ("int", Type::Int4),
    ("decimal", Type::Numeric),
    ("dec", Type::Numeric),
    ("char", Type::Bpchar),
    ("float", Type::Float8),
    ("string", Type::Text),
    ("serial", Type::Int4),
    ("serial2", Type::Int2),
    ("serial4", Type::Int4),
    ("serial8", Type::Int8),
    ("smallserial", Type::Int2),
    ("bigserial", Type::Int8),
    ("time", Type::Time),
    ("timestamp", Type::Timestamp),
];

impl Type {
    /// The type's row of the table.
    #[inline]
    pub fn info(self) -> &'static TypeInfo {
        &TYPES[self as usize]
    }

    /// pg_type.oid.
    #[inline]
    pub fn oid(self) -> u32 {
        self.info().oid
    }

    /// The type with this pg_type.oid.
    pub fn from_oid(oid: u32) -> Option<Type> {
        TYPES.iter().find(|t| t.oid == oid).map(|t| t.ty)
    }

    /// pg_type.typname, e.g. `int4`.
    #[inline]
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// The SQL name without modifier, e.g. `integer`; used in messages.
    #[inline]
    pub fn sql_name(self) -> &'static str {
        self.info().sql_name
    }

    /// The type of this name: pg_type.typname, SQL name or alias; lower case expected.
    /// `char` is `character(1)`'s type; `"char"` (with the quotes) the internal one.
    pub fn from_name(name: &str) -> Option<Type> {
        let name = name.strip_prefix("pg_catalog.").unwrap_or(name);
        ALIASES
            .iter()
            .find(|(alias, _)| *alias == name)
            .map(|(_, ty)| *ty)
            .or_else(|| TYPES.iter().find(|t| t.name == name || t.sql_name == name).map(|t| t.ty))
    }

    /// pg_type.typlen in bytes: -1 for variable length.
    #[inline]
    #[allow(clippy::len_without_is_empty)] // a type's width, not a count
    pub fn len(self) -> i16 {
        self.info().len
    }

    /// How operators group the type.
    #[inline]
    pub fn category(self) -> Category {
        self.info().category
    }

    /// The element type of an array or vector type.
    pub fn element(self) -> Option<Type> {
        self.info().element
    }

    /// The array type over this type.
    pub fn array(self) -> Option<Type> {
        match self.info().array_oid {
            0 => None,
            oid => Type::from_oid(oid),
        }
    }

    /// text, varchar, bpchar, name, `"char"`, json, unknown and the like: values are `Value::Text`.
    #[inline]
    pub fn is_text(self) -> bool {
        use Type::*;
        matches!(self, Text | Varchar | Bpchar | Char | Name | Unknown | Json | PgNodeTree | Record)
            || self.element().is_some()
    }

    /// text, varchar, bpchar, name: what string functions take.
    #[inline]
    pub fn is_string(self) -> bool {
        matches!(self, Type::Text | Type::Varchar | Type::Bpchar | Type::Name)
    }

    /// int2, int4 or int8.
    #[inline]
    pub fn is_integer(self) -> bool {
        matches!(self, Type::Int2 | Type::Int4 | Type::Int8)
    }

    /// A number proper: integers, floats, numeric.
    #[inline]
    pub fn is_number(self) -> bool {
        use Type::*;
        matches!(self, Int2 | Int4 | Int8 | Float4 | Float8 | Numeric)
    }

    /// oid and the reg* aliases, whose values are `Value::Oid`.
    #[inline]
    pub fn is_oid_like(self) -> bool {
        use Type::*;
        matches!(self, Oid | Regclass | Regtype | Regproc | Regnamespace | Regrole | Xid)
    }

    /// `format_type(oid, typmod)`: the SQL name with its modifier, e.g. `character varying(10)`.
    pub fn format_type(self, typmod: i32) -> String {
        let name = self.sql_name();
        if typmod < 0 {
            // bpchar without a length is not the same as character, which means character(1).
            return if self == Type::Bpchar { "bpchar".to_string() } else { name.to_string() };
        }
        match self {
            Type::Varchar | Type::Bpchar if typmod > 4 => format!("{name}({})", typmod - 4),
            Type::Numeric if typmod >= 4 => {
                let (precision, scale) = numeric_typmod(typmod);
                format!("{name}({precision},{scale})")
            }
            Type::Time => format!("time({typmod}) without time zone"),
            Type::Timestamp => format!("timestamp({typmod}) without time zone"),
            Type::Timestamptz => format!("timestamp({typmod}) with time zone"),
            _ => name.to_string(),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sql_name())
    }
}

/// A type with its modifier as pg_attribute.atttypmod has it: -1 for none, length + 4 for
/// character types, `(precision << 16 | scale) + 4` for numeric, digits of a second for times.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ColumnType {
    /// The type.
    pub ty: Type,
    /// The modifier, -1 for none.
    pub typmod: i32,
}

impl ColumnType {
    /// A type without modifier.
    pub const fn new(ty: Type) -> ColumnType {
        ColumnType { ty, typmod: -1 }
    }

    /// A type with a modifier.
    pub const fn with_typmod(ty: Type, typmod: i32) -> ColumnType {
        ColumnType { ty, typmod }
    }

    /// `character varying(n)`.
    pub const fn varchar(n: i32) -> ColumnType {
        ColumnType { ty: Type::Varchar, typmod: n + 4 }
    }

    /// `character(n)`.
    pub const fn bpchar(n: i32) -> ColumnType {
        ColumnType { ty: Type::Bpchar, typmod: n + 4 }
    }

    /// `numeric(precision, scale)`.
    pub const fn numeric(precision: i32, scale: i32) -> ColumnType {
        ColumnType { ty: Type::Numeric, typmod: ((precision << 16) | scale) + 4 }
    }

    /// The declared length in characters of a character type.
    #[inline]
    pub fn char_len(self) -> Option<usize> {
        match self.ty {
            Type::Varchar | Type::Bpchar if self.typmod > 4 => Some(self.typmod as usize - 4),
            _ => None,
        }
    }

    /// See [`Type::format_type`].
    pub fn format_type(self) -> String {
        self.ty.format_type(self.typmod)
    }
}

impl From<Type> for ColumnType {
    fn from(ty: Type) -> ColumnType {
        ColumnType::new(ty)
    }
}

/// Precision and scale of a numeric modifier.
pub fn numeric_typmod(typmod: i32) -> (u32, u32) {
    let m = (typmod - 4) as u32;
    ((m >> 16) & 0xffff, m & 0x7ff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_in_order_and_oids_are_distinct() {
        let mut oids = std::collections::BTreeSet::new();
        for (i, t) in TYPES.iter().enumerate() {
            assert_eq!(t.ty as usize, i);
            assert!(oids.insert(t.oid), "{} twice", t.oid);
            assert_eq!(Type::from_oid(t.oid), Some(t.ty));
            if let Some(array) = t.ty.array() {
                assert_eq!(array.element(), Some(t.ty));
            }
        }
    }

    #[test]
    fn names() {
        assert_eq!(Type::from_name("char"), Some(Type::Bpchar));
        assert_eq!(Type::from_name("\"char\""), Some(Type::Char));
        assert_eq!(Type::from_name("pg_catalog.regclass"), Some(Type::Regclass));
        assert_eq!(ColumnType::bpchar(84).format_type(), "character(84)");
        assert_eq!(ColumnType::numeric(10, 2).format_type(), "numeric(10,2)");
        assert_eq!(Type::Timestamp.format_type(3), "timestamp(3) without time zone");
    }
}
