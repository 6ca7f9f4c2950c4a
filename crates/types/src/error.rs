//! What went wrong, in the terms clients act on: an SQLSTATE, a message, and where it belongs.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// The five characters of an SQLSTATE (PostgreSQL manual, appendix A).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SqlState([u8; 5]);

macro_rules! states {
    ($($(#[$doc:meta])* $name:ident = $code:literal;)*) => {
        impl SqlState {
            $(
                #[doc = concat!("SQLSTATE `", $code, "`.")]
                pub const $name: SqlState = SqlState::from_code($code);
            )*
        }
    };
}

states! {
    SUCCESSFUL_COMPLETION = "00000";
    WARNING = "01000";
    NO_DATA = "02000";
    CONNECTION_EXCEPTION = "08000";
    CONNECTION_FAILURE = "08006";
    PROTOCOL_VIOLATION = "08P01";
    FEATURE_NOT_SUPPORTED = "0A000";
    CARDINALITY_VIOLATION = "21000";
    DATA_EXCEPTION = "22000";
    STRING_DATA_RIGHT_TRUNCATION = "22001";
    NUMERIC_VALUE_OUT_OF_RANGE = "22003";
    NULL_VALUE_NOT_ALLOWED = "22004";
    INVALID_DATETIME_FORMAT = "22007";
    DATETIME_FIELD_OVERFLOW = "22008";
    SUBSTRING_ERROR = "22011";
    DIVISION_BY_ZERO = "22012";
    INVALID_PRECEDING_OR_FOLLOWING_SIZE = "22013";
    INVALID_ARGUMENT_FOR_NTILE = "22014";
    INVALID_ARGUMENT_FOR_NTH_VALUE = "22016";
    INTERVAL_FIELD_OVERFLOW = "22015";
    INVALID_ARGUMENT_FOR_LOGARITHM = "2201E";
    INVALID_ARGUMENT_FOR_POWER_FUNCTION = "2201F";
    INVALID_ROW_COUNT_IN_LIMIT_CLAUSE = "2201W";
    INVALID_ROW_COUNT_IN_RESULT_OFFSET_CLAUSE = "2201X";
    INVALID_REGULAR_EXPRESSION = "2201B";
    CHARACTER_NOT_IN_REPERTOIRE = "22021";
    INVALID_PARAMETER_VALUE = "22023";
    INVALID_ESCAPE_SEQUENCE = "22025";
    ARRAY_SUBSCRIPT_ERROR = "2202E";
    INVALID_TEXT_REPRESENTATION = "22P02";
    INVALID_BINARY_REPRESENTATION = "22P03";
    UNTRANSLATABLE_CHARACTER = "22P05";
    BAD_COPY_FILE_FORMAT = "22P04";
    SEQUENCE_GENERATOR_LIMIT_EXCEEDED = "2200H";
    INTEGRITY_CONSTRAINT_VIOLATION = "23000";
    NOT_NULL_VIOLATION = "23502";
    FOREIGN_KEY_VIOLATION = "23503";
    UNIQUE_VIOLATION = "23505";
    CHECK_VIOLATION = "23514";
    INVALID_CURSOR_STATE = "24000";
    INVALID_TRANSACTION_STATE = "25000";
    ACTIVE_SQL_TRANSACTION = "25001";
    READ_ONLY_SQL_TRANSACTION = "25006";
    NO_ACTIVE_SQL_TRANSACTION = "25P01";
    IN_FAILED_SQL_TRANSACTION = "25P02";
    IDLE_IN_TRANSACTION_SESSION_TIMEOUT = "25P03";
    INVALID_SQL_STATEMENT_NAME = "26000";
    INVALID_AUTHORIZATION = "28000";
    INVALID_PASSWORD = "28P01";
    DEPENDENT_OBJECTS_STILL_EXIST = "2BP01";
    INVALID_CURSOR_NAME = "34000";
    INVALID_CATALOG_NAME = "3D000";
    INVALID_SAVEPOINT_SPECIFICATION = "3B001";
    INVALID_SCHEMA_NAME = "3F000";
    TRANSACTION_ROLLBACK = "40000";
    SERIALIZATION_FAILURE = "40001";
    DEADLOCK_DETECTED = "40P01";
    SYNTAX_ERROR = "42601";
    INSUFFICIENT_PRIVILEGE = "42501";
    CANNOT_COERCE = "42846";
    GROUPING_ERROR = "42803";
    WINDOWING_ERROR = "42P20";
    INVALID_FOREIGN_KEY = "42830";
    INVALID_NAME = "42602";
    NAME_TOO_LONG = "42622";
    DATATYPE_MISMATCH = "42804";
    INDETERMINATE_DATATYPE = "42P18";
    WRONG_OBJECT_TYPE = "42809";
    UNDEFINED_COLUMN = "42703";
    UNDEFINED_FUNCTION = "42883";
    UNDEFINED_TABLE = "42P01";
    UNDEFINED_PARAMETER = "42P02";
    UNDEFINED_OBJECT = "42704";
    DUPLICATE_COLUMN = "42701";
    DUPLICATE_CURSOR = "42P03";
    DUPLICATE_DATABASE = "42P04";
    DUPLICATE_PREPARED_STATEMENT = "42P05";
    DUPLICATE_SCHEMA = "42P06";
    DUPLICATE_TABLE = "42P07";
    DUPLICATE_ALIAS = "42712";
    DUPLICATE_OBJECT = "42710";
    AMBIGUOUS_COLUMN = "42702";
    AMBIGUOUS_FUNCTION = "42725";
    INVALID_COLUMN_REFERENCE = "42P10";
    INVALID_COLUMN_DEFINITION = "42611";
    INVALID_TABLE_DEFINITION = "42P16";
    INVALID_OBJECT_DEFINITION = "42P17";
    INSUFFICIENT_RESOURCES = "53000";
    DISK_FULL = "53100";
    OUT_OF_MEMORY = "53200";
    TOO_MANY_CONNECTIONS = "53300";
    CONFIGURATION_LIMIT_EXCEEDED = "53400";
    PROGRAM_LIMIT_EXCEEDED = "54000";
    STATEMENT_TOO_COMPLEX = "54001";
    TOO_MANY_COLUMNS = "54011";
    OBJECT_NOT_IN_PREREQUISITE_STATE = "55000";
    OBJECT_IN_USE = "55006";
    RESERVED_NAME = "42939";
    INVALID_GRANT_OPERATION = "0LP01";
    PRIVILEGE_NOT_GRANTED = "01007";
    PRIVILEGE_NOT_REVOKED = "01006";
    LOCK_NOT_AVAILABLE = "55P03";
    QUERY_CANCELED = "57014";
    ADMIN_SHUTDOWN = "57P01";
    CRASH_SHUTDOWN = "57P02";
    CANNOT_CONNECT_NOW = "57P03";
    IDLE_SESSION_TIMEOUT = "57P05";
    SYSTEM_ERROR = "58000";
    IO_ERROR = "58030";
    UNDEFINED_FILE = "58P01";
    INTERNAL_ERROR = "XX000";
    DATA_CORRUPTED = "XX001";
    INDEX_CORRUPTED = "XX002";
}

impl SqlState {
    /// The state with this code; `code` must be five bytes long.
    pub const fn from_code(code: &str) -> SqlState {
        let b = code.as_bytes();
        assert!(b.len() == 5, "an SQLSTATE has five characters");
        SqlState([b[0], b[1], b[2], b[3], b[4]])
    }

    /// The five characters.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("XX000")
    }

    /// The two characters that name the class of the state.
    pub fn class(&self) -> &str {
        &self.as_str()[..2]
    }
}

impl fmt::Debug for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The fields of an [`Error`], as the wire protocol's ErrorResponse carries them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorFields {
    /// The SQLSTATE.
    pub code: SqlState,
    /// The primary message, one line.
    pub message: String,
    /// More about the problem.
    pub detail: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
    /// What was being done, as the wire protocol's field W has it.
    pub context: Option<String>,
    /// Position in the query text, in characters, from 1.
    pub position: Option<usize>,
    /// Schema the error is about.
    pub schema: Option<String>,
    /// Table the error is about.
    pub table: Option<String>,
    /// Column the error is about.
    pub column: Option<String>,
    /// Constraint the error is about.
    pub constraint: Option<String>,
}

/// An error with an SQLSTATE. One pointer wide, so that a `Result` stays cheap; the fields are
/// reached by dereferencing (`error.code`, `error.message`).
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<ErrorFields>);

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error with only a code and a message.
    #[cold]
    pub fn new(code: SqlState, message: impl Into<String>) -> Error {
        Error(Box::new(ErrorFields {
            code,
            message: message.into(),
            detail: None,
            hint: None,
            context: None,
            position: None,
            schema: None,
            table: None,
            column: None,
            constraint: None,
        }))
    }

    /// `0A000`: the construct is known but not there yet; `what` names it.
    pub fn unsupported(what: impl fmt::Display) -> Error {
        Error::new(SqlState::FEATURE_NOT_SUPPORTED, format!("{what} is not supported"))
    }

    /// `XX000`: an invariant of ours does not hold.
    pub fn internal(message: impl Into<String>) -> Error {
        Error::new(SqlState::INTERNAL_ERROR, message)
    }

    /// `22003`: `<type> out of range`.
    pub fn out_of_range(type_name: &str) -> Error {
        Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("{type_name} out of range"))
    }

    /// `22012`.
    pub fn division_by_zero() -> Error {
        Error::new(SqlState::DIVISION_BY_ZERO, "division by zero")
    }

    /// `22P02`: `invalid input syntax for type <type>: "<input>"`.
    pub fn invalid_input(type_name: &str, input: &str) -> Error {
        Error::new(
            SqlState::INVALID_TEXT_REPRESENTATION,
            format!("invalid input syntax for type {type_name}: \"{input}\""),
        )
    }

    /// The same error with a detail line.
    pub fn with_detail(mut self, detail: impl Into<String>) -> Error {
        self.detail = Some(detail.into());
        self
    }

    /// The same error with a hint.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = Some(hint.into());
        self
    }

    /// The same error with what was being done; what an inner step has said stays.
    pub fn with_context(mut self, context: impl FnOnce() -> String) -> Error {
        self.context.get_or_insert_with(context);
        self
    }

    /// The same error with a position in the query text (characters, from 1).
    pub fn with_position(mut self, position: usize) -> Error {
        self.position = Some(position);
        self
    }

    /// The same error with the table it is about.
    pub fn with_table(mut self, schema: impl Into<String>, table: impl Into<String>) -> Error {
        self.schema = Some(schema.into());
        self.table = Some(table.into());
        self
    }

    /// The same error with the column it is about.
    pub fn with_column(mut self, column: impl Into<String>) -> Error {
        self.column = Some(column.into());
        self
    }

    /// The same error with the constraint it is about.
    pub fn with_constraint(mut self, constraint: impl Into<String>) -> Error {
        self.constraint = Some(constraint.into());
        self
    }
}

impl Deref for Error {
    type Target = ErrorFields;
    fn deref(&self) -> &ErrorFields {
        &self.0
    }
}

impl DerefMut for Error {
    fn deref_mut(&mut self) -> &mut ErrorFields {
        &mut self.0
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)?;
        if let Some(detail) = &self.detail {
            write!(f, " ({detail})")?;
        }
        Ok(())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
