//! What does a utility statement ask for? Readers over tokens for what is not a query or a table definition.

mod alter;
mod read;
mod reader;
mod roles;
mod schema;

pub use alter::{IdentityChange, TableAction};
pub use read::read;
pub use roles::{GrantObjects, GrantPrivileges, GrantRoles, RoleOptions};
pub use schema::{Commented, SchemaChange};

/// A possibly qualified name, with its place in the text for error messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Name {
    /// Schema, when given.
    pub schema: Option<String>,
    /// The object's name.
    pub name: String,
    /// 1-based character position.
    pub position: usize,
}

/// Isolation level as asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// READ COMMITTED (and READ UNCOMMITTED).
    ReadCommitted,
    /// REPEATABLE READ.
    RepeatableRead,
    /// SERIALIZABLE.
    Serializable,
}

/// Transaction modes of BEGIN and SET TRANSACTION.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Modes {
    /// ISOLATION LEVEL.
    pub isolation: Option<Level>,
    /// READ ONLY (true) or READ WRITE.
    pub read_only: Option<bool>,
}

/// What DROP drops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectKind {
    /// DROP TABLE.
    Table,
    /// DROP INDEX.
    Index,
    /// DROP SEQUENCE.
    Sequence,
    /// DROP VIEW.
    View,
}

/// Format of COPY and its options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyOptions {
    /// Binary instead of text.
    pub binary: bool,
    /// CSV instead of text.
    pub csv: bool,
    /// Column separator.
    pub delimiter: u8,
    /// What stands for NULL.
    pub null: String,
    /// First line holds names.
    pub header: bool,
    /// The names must be those of the columns.
    pub header_match: bool,
    /// CSV: columns whose values are always quoted (TO).
    pub force_quote: Columns,
    /// CSV: columns where nothing stands for NULL (FROM).
    pub force_not_null: Columns,
    /// CSV: columns where what stands for NULL does so in quotes too (FROM).
    pub force_null: Columns,
    /// CSV quote.
    pub quote: u8,
    /// CSV escape.
    pub escape: u8,
}

/// Columns that an option of COPY is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Columns {
    /// Those of a list, which may be empty.
    Named(Vec<String>),
    /// `*`.
    All,
}

impl Columns {
    /// Is it about the column of this name?
    pub fn include(&self, name: &str) -> bool {
        match self {
            Columns::Named(names) => names.iter().any(|known| known == name),
            Columns::All => true,
        }
    }
}

/// What COPY copies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CopySubject {
    /// A table and, when given, columns.
    Table(Name, Vec<String>),
    /// `COPY (query) TO`: the query's text.
    Query(String),
}

/// How many rows FETCH and MOVE take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// FORWARD n; 0 and negative counts are refused when run.
    Forward(u64),
    /// FORWARD ALL.
    All,
}

/// Numbers of CREATE and ALTER SEQUENCE; `Some(None)` is NO MINVALUE / NO MAXVALUE.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub struct SequenceOptions {
    pub increment: Option<i64>,
    pub min: Option<Option<i64>>,
    pub max: Option<Option<i64>>,
    pub start: Option<i64>,
    /// RESTART: to the start (None inside) or to a number.
    pub restart: Option<Option<i64>>,
    pub cache: Option<i64>,
    pub cycle: Option<bool>,
    /// AS type.
    pub ty: Option<String>,
    /// OWNED BY table.column, or OWNED BY NONE.
    pub owned_by: Option<Option<(Name, String)>>,
}

impl SequenceOptions {
    /// These, and what only `other` says.
    pub fn over(self, other: SequenceOptions) -> SequenceOptions {
        SequenceOptions {
            increment: self.increment.or(other.increment),
            min: self.min.or(other.min),
            max: self.max.or(other.max),
            start: self.start.or(other.start),
            restart: self.restart.or(other.restart),
            cache: self.cache.or(other.cache),
            cycle: self.cycle.or(other.cycle),
            ty: self.ty.or(other.ty),
            owned_by: self.owned_by.or(other.owned_by),
        }
    }
}

/// A utility statement.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Utility {
    Begin {
        start: bool,
        modes: Modes,
    },
    Commit {
        chain: bool,
    },
    Rollback {
        chain: bool,
    },
    Savepoint(String),
    Release(String),
    RollbackTo(String),
    SetTransaction {
        modes: Modes,
        session: bool,
    },
    /// `None`: TO DEFAULT.
    Set {
        name: String,
        value: Option<String>,
        local: bool,
    },
    /// `None`: ALL.
    Show(Option<String>),
    /// `ALTER SYSTEM SET name = value`; `None` is `RESET`, or `SET name TO DEFAULT`.
    AlterSystem {
        name: String,
        value: Option<String>,
    },
    Reset(Option<String>),
    Discard(String),
    Truncate {
        tables: Vec<Name>,
        restart_identity: bool,
        cascade: bool,
    },
    Vacuum {
        tables: Vec<Name>,
        analyze: bool,
    },
    Analyze {
        tables: Vec<Name>,
    },
    CreateRole {
        name: String,
        options: RoleOptions,
    },
    AlterRole {
        name: String,
        options: RoleOptions,
    },
    RenameRole {
        name: String,
        to: String,
    },
    DropRoles {
        names: Vec<String>,
        if_exists: bool,
    },
    Grant(GrantPrivileges),
    GrantRoles(GrantRoles),
    CreateSchema {
        name: String,
        if_not_exists: bool,
        owner: Option<String>,
    },
    AlterSchema {
        name: String,
        change: SchemaChange,
    },
    DropSchemas {
        names: Vec<String>,
        if_exists: bool,
        cascade: bool,
    },
    SetSchema {
        /// What the statement calls it.
        kind: &'static str,
        name: Name,
        if_exists: bool,
        schema: String,
    },
    AlterTable {
        name: Name,
        if_exists: bool,
        actions: Vec<TableAction>,
    },
    RenameRelation {
        /// What the statement calls it.
        kind: &'static str,
        name: Name,
        if_exists: bool,
        to: String,
    },
    /// No names: ALL.
    SetConstraints {
        names: Vec<Name>,
        deferred: bool,
    },
    Comment {
        subject: Commented,
        text: Option<String>,
    },
    Owner {
        /// What the statement calls it.
        kind: &'static str,
        name: Name,
        if_exists: bool,
        to: String,
    },
    /// `None`: the session's own.
    SetRole(Option<String>),
    Checkpoint,
    Lock {
        tables: Vec<Name>,
        mode: String,
        nowait: bool,
    },
    Copy {
        subject: CopySubject,
        from: bool,
        options: CopyOptions,
    },
    Explain {
        analyze: bool,
        verbose: bool,
        costs: bool,
        json: bool,
        timing: bool,
        buffers: bool,
        numa: bool,
        body: String,
    },
    Prepare {
        name: String,
        types: Vec<String>,
        body: String,
    },
    Execute {
        name: String,
        arguments: Vec<String>,
    },
    /// `None`: ALL.
    Deallocate(Option<String>),
    Declare {
        name: String,
        hold: bool,
        query: String,
    },
    Fetch {
        name: String,
        direction: Direction,
        moving: bool,
    },
    Close(Option<String>),
    CreateSequence {
        name: Name,
        if_not_exists: bool,
        options: SequenceOptions,
    },
    AlterSequence {
        name: Name,
        if_exists: bool,
        options: SequenceOptions,
    },
    Drop {
        kind: ObjectKind,
        names: Vec<Name>,
        if_exists: bool,
        cascade: bool,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lexer;
    use homenode_types::{Result, SqlState};

    fn of(source: &str) -> Utility {
        try_of(source).unwrap().unwrap_or_else(|| panic!("{source} is not a utility"))
    }

    fn try_of(source: &str) -> Result<Option<Utility>> {
        let mut tokens = Vec::new();
        lexer::lex(source, &mut tokens)?;
        read(source, &tokens)
    }

    #[test]
    fn transactions() {
        assert_eq!(of("BEGIN"), Utility::Begin { start: false, modes: Modes::default() });
        let modes = Modes { isolation: Some(Level::RepeatableRead), read_only: Some(true) };
        assert_eq!(
            of("start transaction isolation level repeatable read, read only"),
            Utility::Begin { start: true, modes }
        );
        assert_eq!(of("END"), Utility::Commit { chain: false });
        assert_eq!(of("rollback to savepoint a"), Utility::RollbackTo("a".into()));
    }

    #[test]
    fn settings() {
        let set = |name: &str, value: &str| Utility::Set { name: name.into(), value: Some(value.into()), local: false };
        assert_eq!(of("set search_path to public, \"A\""), set("search_path", "public, \"A\""));
        assert_eq!(of("SET TIME ZONE 'UTC'"), set("timezone", "UTC"));
        assert_eq!(of("set statement_timeout = 100"), set("statement_timeout", "100"));
        assert_eq!(of("show transaction isolation level"), Utility::Show(Some("transaction_isolation".into())));
    }

    #[test]
    fn copy_as_pgbench_and_psql_write_it() {
        let Utility::Copy { subject, from, options } = of("copy pgbench_accounts from stdin with (freeze on)") else {
            panic!()
        };
        assert!(from && !options.csv);
        assert!(
            matches!(subject, CopySubject::Table(name, columns) if name.name == "pgbench_accounts" && columns.is_empty())
        );
        let Utility::Copy { options, .. } = of("COPY t (a, b) FROM STDIN CSV HEADER DELIMITER ';'") else { panic!() };
        assert_eq!((options.csv, options.header, options.delimiter), (true, true, b';'));
        let Utility::Copy { subject, .. } = of("copy (select a, (b) from t) to stdout") else { panic!() };
        assert_eq!(subject, CopySubject::Query("select a, (b) from t".into()));
    }

    #[test]
    fn the_rest_is_left_or_named() {
        assert!(try_of("select 1").unwrap().is_none());
        assert!(try_of("create table t (a int)").unwrap().is_none());
        assert!(try_of("create or replace view v as select 1").unwrap().is_none());
        let error = try_of("create materialized view v as select 1").unwrap_err();
        assert_eq!(
            (error.code, error.message.as_str()),
            (SqlState::FEATURE_NOT_SUPPORTED, "CREATE MATERIALIZED VIEW is not supported")
        );
        assert_eq!(try_of("begin foo").unwrap_err().message, "syntax error at or near \"foo\"");
    }
}
