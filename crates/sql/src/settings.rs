//! Which session settings are there, and what are they now? PostgreSQL's parameters as far as clients use them.
//!
//! A setting changed inside a transaction goes back when the transaction rolls back; SET LOCAL goes back at its end.

use homenode_types::{Error, Result, SqlState};

/// How a setting's text is checked.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Check {
    Text,
    Bool,
    /// Whole number within bounds.
    Integer(i64, i64),
    /// Milliseconds; units may be written.
    Duration,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Only these values work here; any other is 0A000.
    Only(&'static [&'static str]),
    /// Words of PostgreSQL's DateStyle; only ISO with the month first works here.
    DateStyle,
    /// A list of schemas.
    SearchPath,
    /// SET is refused (55P02 in PostgreSQL).
    ReadOnly,
}

/// One known setting.
#[derive(Debug)]
pub struct Definition {
    /// Its name as SHOW ALL prints it.
    pub name: &'static str,
    /// The value a new session has.
    pub default: &'static str,
    /// pg_settings.short_desc.
    pub description: &'static str,
    check: Check,
}

const fn define(name: &'static str, default: &'static str, check: Check, description: &'static str) -> Definition {
    Definition { name, default, description, check }
}

const LEVELS: [&str; 4] = ["read committed", "read uncommitted", "repeatable read", "serializable"];
const MESSAGES: [&str; 9] = ["debug5", "debug4", "debug3", "debug2", "debug1", "log", "notice", "warning", "error"];

/// The server version clients are told; the dialect is that of PostgreSQL 15.
pub const SERVER_VERSION: &str = "15.0 (Homenode)";

/// All settings, by name.
pub static SETTINGS: &[Definition] = &[
    define("application_name", "", Check::Text, "Name of the application, as pg_stat_activity shows it."),
    define(
        "backslash_quote",
        "safe_encoding",
        Check::Word(&["safe_encoding", "on", "off"]),
        "Accepted and without effect.",
    ),
    define("bytea_output", "hex", Check::Only(&["hex"]), "Output format of bytea."),
    define("check_function_bodies", "on", Check::Bool, "Accepted and without effect."),
    define(
        "client_encoding",
        "UTF8",
        Check::Only(&["utf8", "utf-8", "unicode", "sql_ascii"]),
        "The client's character set.",
    ),
    define("client_min_messages", "notice", Check::Word(&MESSAGES), "Lowest level of messages sent to the client."),
    define(
        "datestyle",
        "ISO, MDY",
        Check::DateStyle,
        "Display format of dates and times; dates are read with the month before the day.",
    ),
    define(
        "default_statistics_target",
        "100",
        Check::Integer(1, 10_000),
        "Most common values and parts of histograms that ANALYZE keeps.",
    ),
    define("default_table_access_method", "heap", Check::Only(&["heap"]), "Accepted and without effect."),
    define("default_tablespace", "", Check::Only(&[""]), "Accepted and without effect."),
    define("default_transaction_deferrable", "off", Check::Bool, "Accepted and without effect."),
    define(
        "default_transaction_isolation",
        "read committed",
        Check::Word(&LEVELS),
        "Isolation level of new transactions.",
    ),
    define("default_transaction_read_only", "off", Check::Bool, "Whether new transactions are read-only."),
    define("enable_hashjoin", "on", Check::Bool, "Whether joins by hash tables are planned where others can do it."),
    define("enable_indexscan", "on", Check::Bool, "Whether keys and indexes are used where a full scan can do it."),
    define("enable_nestloop", "on", Check::Bool, "Whether nested loops are planned where others can do it."),
    define("enable_parallel", "on", Check::Bool, "Whether big scans run in parallel."),
    define("escape_string_warning", "on", Check::Bool, "Accepted and without effect."),
    define("extra_float_digits", "1", Check::Integer(-15, 3), "Digits of floating-point output; 1 and more are exact."),
    define("fsync", "on", Check::ReadOnly, "A commit is told when its log records are on stable storage; always so."),
    define("full_page_writes", "on", Check::ReadOnly, "Pages are mended from images in the log if torn; always so."),
    define(
        "idle_in_transaction_session_timeout",
        "0",
        Check::Duration,
        "A session that waits in a transaction for so many milliseconds is ended; 0 is no limit.",
    ),
    define(
        "idle_session_timeout",
        "0",
        Check::Duration,
        "A session that waits outside a transaction for so many milliseconds is ended; 0 is no limit.",
    ),
    define("in_hot_standby", "off", Check::ReadOnly, "Always off."),
    define("integer_datetimes", "on", Check::ReadOnly, "Always on."),
    define("intervalstyle", "postgres", Check::Only(&["postgres"]), "Display format of intervals."),
    define("is_superuser", "on", Check::ReadOnly, "Whether the session's user is a superuser."),
    define("jit", "off", Check::Bool, "Accepted and without effect."),
    define("lc_collate", "C", Check::ReadOnly, "Text sorts by its bytes."),
    define("lc_ctype", "C", Check::ReadOnly, "Character classes are those of Unicode."),
    define("lock_timeout", "0", Check::Duration, "Longest wait for a lock in milliseconds; 0 is no limit."),
    define("max_connections", "10000", Check::ReadOnly, "Most connections at a time."),
    define("max_identifier_length", "63", Check::ReadOnly, "Longest identifier in bytes."),
    define(
        "max_index_keys",
        "32",
        Check::ReadOnly,
        "Columns that an index can have for sure; what counts is the key's bytes.",
    ),
    define("max_parallel_workers_per_gather", "2", Check::Integer(0, 1024), "0 turns parallel scans off."),
    define("row_security", "on", Check::Bool, "Accepted and without effect."),
    define("search_path", "\"$user\", public", Check::SearchPath, "Schemas that names are looked up in."),
    define("server_encoding", "UTF8", Check::ReadOnly, "The server's character set."),
    define("server_version", SERVER_VERSION, Check::ReadOnly, "Version of PostgreSQL whose dialect this is."),
    define("server_version_num", "150000", Check::ReadOnly, "The same as a number."),
    define("session_authorization", "", Check::ReadOnly, "The session's user."),
    define(
        "standard_conforming_strings",
        "on",
        Check::Only(&["on", "true", "1", "yes"]),
        "Backslashes in strings are plain.",
    ),
    define("statement_timeout", "0", Check::Duration, "Longest run of a statement in milliseconds; 0 is no limit."),
    define(
        "synchronous_commit",
        "on",
        Check::Word(&["on", "off", "local", "remote_write", "remote_apply"]),
        "Commits always wait for the log.",
    ),
    define(
        "timezone",
        "UTC",
        Check::Only(&["utc", "gmt", "etc/utc", "etc/gmt", "universal", "zulu"]),
        "Time zone of timestamps with time zone.",
    ),
    define("transaction_deferrable", "off", Check::Bool, "Accepted and without effect."),
    define("transaction_isolation", "read committed", Check::Word(&LEVELS), "Isolation level of this transaction."),
    define("transaction_read_only", "off", Check::Bool, "Whether this transaction is read-only."),
    define("wal_sync_method", "fdatasync", Check::ReadOnly, "How the log gets to stable storage."),
    define("work_mem", "4096", Check::Text, "Accepted and without effect."),
    define("xmloption", "content", Check::Word(&["content", "document"]), "Accepted and without effect."),
];

/// One change that may have to be undone.
#[derive(Debug)]
struct Change {
    index: usize,
    before: String,
    local: bool,
}

/// A session's settings.
#[derive(Debug)]
pub struct Settings {
    values: Vec<String>,
    /// What RESET goes back to: the defaults and what the connection asked for at start-up.
    initial: Vec<String>,
    changes: Vec<Change>,
    version: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings::new()
    }
}

fn index_of(name: &str) -> Result<usize> {
    SETTINGS.iter().position(|setting| setting.name.eq_ignore_ascii_case(name)).ok_or_else(|| {
        Error::new(SqlState::UNDEFINED_OBJECT, format!("unrecognized configuration parameter \"{name}\""))
    })
}

impl Settings {
    /// The defaults.
    pub fn new() -> Settings {
        let values: Vec<String> = SETTINGS.iter().map(|setting| setting.default.to_string()).collect();
        Settings { initial: values.clone(), values, changes: Vec::new(), version: 1 }
    }

    /// Takes a start-up parameter: it becomes the value RESET goes back to.
    ///
    /// # Errors
    /// 42704, 22023, 0A000.
    pub fn set_initial(&mut self, name: &str, value: &str) -> Result<()> {
        let index = index_of(name)?;
        let value = check(&SETTINGS[index], value)?;
        self.version += 1;
        self.values[index].clone_from(&value);
        self.initial[index] = value;
        Ok(())
    }

    /// The value of a setting that SET refuses and the server decides (`session_authorization`, `max_connections`).
    pub fn set_fixed(&mut self, name: &str, value: &str) {
        if let Ok(index) = index_of(name) {
            self.values[index] = value.to_string();
            self.initial[index] = value.to_string();
        }
    }

    /// Current value.
    ///
    /// # Errors
    /// 42704 for an unknown name.
    pub fn get(&self, name: &str) -> Result<&str> {
        index_of(name).map(|index| self.values[index].as_str())
    }

    /// All of them: definition and current value.
    pub fn all(&self) -> impl Iterator<Item = (&'static Definition, &str)> {
        SETTINGS.iter().zip(self.values.iter().map(String::as_str))
    }

    /// SET; `None` is TO DEFAULT. Returns true when the client has to be told (ParameterStatus).
    ///
    /// # Errors
    /// 42704, 22023, 55P02, 0A000.
    pub fn set(&mut self, name: &str, value: Option<&str>, local: bool) -> Result<bool> {
        let index = index_of(name)?;
        let definition = &SETTINGS[index];
        let value = match value {
            Some(value) => check(definition, value)?,
            None if definition.check == Check::ReadOnly => check(definition, "")?,
            None => self.initial[index].clone(),
        };
        let before = std::mem::replace(&mut self.values[index], value);
        self.version += 1;
        self.changes.push(Change { index, before, local });
        Ok(REPORTED.contains(&definition.name))
    }

    /// RESET ALL.
    pub fn reset_all(&mut self) {
        self.version += 1;
        for index in 0..self.values.len() {
            let value = self.initial[index].clone();
            if self.values[index] != value {
                let before = std::mem::replace(&mut self.values[index], value);
                self.changes.push(Change { index, before, local: false });
            }
        }
    }

    /// Which kinds of steps plans may have.
    pub(crate) fn methods(&self) -> crate::planner::Methods {
        crate::planner::Methods {
            hash_join: self.is_on("enable_hashjoin"),
            nested_loop: self.is_on("enable_nestloop"),
            index_scan: self.is_on("enable_indexscan"),
        }
    }

    /// Changes whenever a value may have changed; for those who keep values in another form.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// A mark for [`Settings::undo_to`] (savepoints).
    pub fn mark(&self) -> usize {
        self.changes.len()
    }

    /// Undoes what changed since `mark`.
    pub fn undo_to(&mut self, mark: usize) {
        self.version += 1;
        while self.changes.len() > mark {
            if let Some(change) = self.changes.pop() {
                self.values[change.index] = change.before;
            }
        }
    }

    /// The transaction is over: local changes go back, and all of them when it rolled back.
    pub fn end_transaction(&mut self, committed: bool) {
        if self.changes.is_empty() {
            return;
        }
        self.version += 1;
        // Later changes are seen first; a plain SET after a SET LOCAL of the same name keeps its value.
        let mut kept: Vec<usize> = Vec::new();
        while let Some(change) = self.changes.pop() {
            if committed && !change.local {
                kept.push(change.index);
            } else if !kept.contains(&change.index) {
                self.values[change.index] = change.before;
            }
        }
    }

    /// A duration setting in milliseconds.
    pub fn milliseconds(&self, name: &str) -> u64 {
        self.get(name).ok().and_then(duration_ms).unwrap_or(0)
    }

    /// A Boolean setting.
    pub fn is_on(&self, name: &str) -> bool {
        self.get(name).is_ok_and(|value| value == "on")
    }

    /// The settings a client is told at start-up and when they change.
    pub fn reported(&self) -> impl Iterator<Item = (&'static str, &str)> {
        REPORTED.iter().filter_map(|name| self.get(name).ok().map(|value| (display_name(name), value)))
    }
}

const REPORTED: [&str; 13] = [
    "application_name",
    "client_encoding",
    "datestyle",
    "default_transaction_read_only",
    "in_hot_standby",
    "integer_datetimes",
    "intervalstyle",
    "is_superuser",
    "server_encoding",
    "server_version",
    "session_authorization",
    "standard_conforming_strings",
    "timezone",
];

/// PostgreSQL spells three names with capitals.
pub fn display_name(name: &str) -> &str {
    match name {
        "datestyle" => "DateStyle",
        "intervalstyle" => "IntervalStyle",
        "timezone" => "TimeZone",
        other => other,
    }
}

fn invalid(definition: &Definition, value: &str) -> Error {
    let name = display_name(definition.name);
    Error::new(SqlState::INVALID_PARAMETER_VALUE, format!("invalid value for parameter \"{name}\": \"{value}\""))
}

fn check(definition: &Definition, value: &str) -> Result<String> {
    let lower = value.trim().to_ascii_lowercase();
    match definition.check {
        Check::Text => Ok(value.to_string()),
        Check::Bool => match lower.as_str() {
            "on" | "true" | "yes" | "1" | "t" | "y" => Ok("on".into()),
            "off" | "false" | "no" | "0" | "f" | "n" => Ok("off".into()),
            _ => Err(Error::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("parameter \"{}\" requires a Boolean value", definition.name),
            )),
        },
        Check::Integer(low, high) => match lower.parse::<i64>() {
            Ok(number) if (low..=high).contains(&number) => Ok(number.to_string()),
            Ok(number) => Err(Error::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("{number} is outside the valid range for parameter \"{}\" ({low} .. {high})", definition.name),
            )),
            Err(_) => Err(invalid(definition, value)),
        },
        Check::Duration => duration_ms(&lower).map(duration_text).ok_or_else(|| invalid(definition, value)),
        Check::Word(words) => words
            .iter()
            .find(|word| **word == lower)
            .map(|word| (*word).to_string())
            .ok_or_else(|| invalid(definition, value)),
        Check::Only(words) if words.contains(&lower.as_str()) => Ok(match definition.name {
            "client_encoding" => "UTF8".into(),
            "standard_conforming_strings" => "on".into(),
            _ => value.trim().to_string(),
        }),
        Check::SearchPath if crate::search_path::names(value).is_none() => {
            Err(invalid(definition, value).with_detail("List syntax is invalid."))
        }
        Check::SearchPath => Ok(value.to_string()),
        Check::DateStyle => date_style(definition, &lower),
        Check::Only(_) => Err(Error::unsupported(format!("{} = '{value}'", display_name(definition.name)))),
        Check::ReadOnly => Err(Error::new(
            SqlState::from_code("55P02"),
            format!("parameter \"{}\" cannot be changed", definition.name),
        )),
    }
}

/// Days before months and other output styles are refused: taken without effect, they would change what dates mean.
fn date_style(definition: &Definition, value: &str) -> Result<String> {
    for word in value.split(',').map(str::trim) {
        match word {
            "iso" | "mdy" | "us" | "noneuro" | "noneuropean" | "default" => {}
            "dmy" | "ymd" | "euro" | "european" | "sql" | "postgres" | "german" => {
                return Err(Error::unsupported(format!("DateStyle {}", word.to_ascii_uppercase()))
                    .with_hint("Dates are written as ISO and read with the month before the day: \"ISO, MDY\"."));
            }
            _ => return Err(invalid(definition, value)),
        }
    }
    Ok("ISO, MDY".into())
}

fn duration_ms(text: &str) -> Option<u64> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..split].parse().ok()?;
    let factor = match text[split..].trim() {
        "" | "ms" => 1,
        "s" => 1000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.checked_mul(factor)
}

fn duration_text(ms: u64) -> String {
    for (unit, factor) in [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)] {
        if ms > 0 && ms.is_multiple_of(factor) {
            return format!("{}{unit}", ms / factor);
        }
    }
    if ms == 0 { "0".into() } else { format!("{ms}ms") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rolled_back_set_goes_back() {
        let mut settings = Settings::new();
        settings.set("application_name", Some("a"), false).unwrap();
        settings.end_transaction(false);
        assert_eq!(settings.get("application_name").unwrap(), "");
        settings.set("application_name", Some("a"), false).unwrap();
        settings.end_transaction(true);
        assert_eq!(settings.get("Application_Name").unwrap(), "a");
        settings.set("lock_timeout", Some("5s"), true).unwrap();
        assert_eq!((settings.get("lock_timeout").unwrap(), settings.milliseconds("lock_timeout")), ("5s", 5000));
        settings.end_transaction(true);
        assert_eq!(settings.milliseconds("lock_timeout"), 0);
    }

    #[test]
    fn bad_values_and_names_are_told() {
        let mut settings = Settings::new();
        assert_eq!(settings.set("nope", Some("1"), false).unwrap_err().code, SqlState::UNDEFINED_OBJECT);
        assert_eq!(settings.set("jit", Some("maybe"), false).unwrap_err().code, SqlState::INVALID_PARAMETER_VALUE);
        assert_eq!(
            settings.set("timezone", Some("Europe/Paris"), false).unwrap_err().code,
            SqlState::FEATURE_NOT_SUPPORTED
        );
        for fixed in ["server_version", "fsync", "full_page_writes", "wal_sync_method"] {
            assert_eq!(settings.set(fixed, Some("off"), false).unwrap_err().code.as_str(), "55P02");
        }
        assert_eq!(settings.get("fsync").unwrap(), "on");
    }

    #[test]
    fn names_are_sorted_for_show_all() {
        assert!(SETTINGS.windows(2).all(|pair| pair[0].name < pair[1].name));
    }
}
