//! Where is a name looked up that says no schema? The setting search_path, as it is for the session's role.
//!
//! Plans depend on it: each pair of role and setting that a session has had gets a number, which its versions of definitions carry.

use crate::context::Context;
use crate::virtual_table::{self, SCHEMAS, VirtualTable};
use homenode_engine::{Definitions, Privileges};
use homenode_types::{Error, Result, SqlState};
use std::sync::Arc;

const SYSTEM: &str = "pg_catalog";

/// The schemas that names are looked up in.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct SearchPath {
    /// In order, those that are there and may be used; the first may be pg_catalog, which nobody named.
    schemas: Vec<String>,
    /// How many of the first of them nobody named.
    implicit: usize,
    /// Schemas that the role may not use.
    denied: Vec<String>,
}

/// What a name stands for.
pub(crate) enum Found {
    Virtual(&'static VirtualTable),
    /// The number of a stored object.
    Stored(u32),
}

impl SearchPath {
    fn new(text: &str, role: &str, denied: Vec<String>, definitions: &Definitions) -> SearchPath {
        let mut schemas: Vec<String> = Vec::new();
        for name in names(text).unwrap_or_default() {
            // A role may be called like a system schema (an embedded database's is): that one is not its own.
            let (name, own) = if name == "$user" { (role.to_owned(), true) } else { (name, false) };
            let is_there = !own && SCHEMAS.contains(&name.as_str()) || definitions.schema(&name).is_some();
            if is_there && !denied.contains(&name) && !schemas.contains(&name) {
                schemas.push(name);
            }
        }
        let implicit = usize::from(!schemas.iter().any(|schema| schema == SYSTEM));
        if implicit > 0 {
            schemas.insert(0, SYSTEM.to_owned());
        }
        SearchPath { schemas, implicit, denied }
    }

    /// The schemas, with or without those that nobody named.
    pub fn schemas(&self, implicit: bool) -> &[String] {
        if implicit { &self.schemas } else { &self.schemas[self.implicit..] }
    }

    /// Where things are created.
    pub fn first(&self) -> Option<&str> {
        self.schemas(false).first().map(String::as_str)
    }

    /// Looks a relation up.
    ///
    /// # Errors
    /// 42501 for a schema that the role may not use.
    pub fn find(&self, definitions: &Definitions, schema: Option<&str>, name: &str) -> Result<Option<Found>> {
        if let Some(schema) = schema {
            self.check_usage(schema)?;
            return Ok(find_in(definitions, schema, name));
        }
        Ok(self.schemas.iter().find_map(|schema| find_in(definitions, schema, name)))
    }

    /// Checks that the role may use a schema that is named.
    ///
    /// # Errors
    /// 42501
    pub fn check_usage(&self, schema: &str) -> Result<()> {
        match self.denied.iter().any(|denied| denied == schema) {
            true => Err(Error::new(SqlState::INSUFFICIENT_PRIVILEGE, format!("permission denied for schema {schema}"))),
            false => Ok(()),
        }
    }

    /// Whether the relation `schema.name` is what its bare name stands for.
    pub fn shows(&self, definitions: &Definitions, schema: &str, name: &str) -> bool {
        let first = self.schemas.iter().find(|schema| find_in(definitions, schema, name).is_some());
        first.is_some_and(|first| first == schema)
    }
}

fn find_in(definitions: &Definitions, schema: &str, name: &str) -> Option<Found> {
    match SCHEMAS.contains(&schema) {
        true => virtual_table::find(Some(schema), name).map(Found::Virtual),
        false => definitions.oid(schema, name).map(|oid| Found::Stored(oid.0)),
    }
}

/// The names of a list as the setting has it: folded unless quoted; `None` if it is no such list
/// (SplitIdentifierString in varlena.c has the rules).
pub(crate) fn names(text: &str) -> Option<Vec<String>> {
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    if rest.is_empty() {
        return Some(found);
    }
    loop {
        let (name, behind) = match rest.strip_prefix('"') {
            Some(inner) => quoted(inner)?,
            None => {
                let end = rest.find(|c: char| c == ',' || c.is_whitespace()).unwrap_or(rest.len());
                (rest[..end].to_lowercase(), &rest[end..])
            }
        };
        if name.is_empty() && !rest.starts_with('"') {
            return None;
        }
        found.push(name);
        rest = behind.trim_start();
        if rest.is_empty() {
            return Some(found);
        }
        rest = rest.strip_prefix(',')?.trim_start();
    }
}

/// A quoted name, its opening quote gone, and what is behind it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut rest = text;
    loop {
        let end = rest.find('"')?;
        name.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(more) => {
                name.push('"');
                rest = more;
            }
            None => return Some((name, rest)),
        }
    }
}

/// The path and what it was made for.
#[derive(Default)]
pub(crate) struct Names {
    path: Arc<SearchPath>,
    made_for: Option<u64>,
    /// Version of the settings, and the role, that the number is for.
    numbered: Option<(u64, u32)>,
    /// Roles and settings that were in use, by number.
    known: Vec<(u32, String)>,
}

impl Context {
    /// The schemas that names are looked up in now.
    pub(crate) fn search_path(&mut self) -> Arc<SearchPath> {
        self.settle_names();
        let version = self.session.definitions_version();
        if self.names.made_for != Some(version) {
            let (text, role) = (self.settings.get("search_path").unwrap_or("").to_owned(), self.role_name());
            let definitions = self.definitions();
            let denied = match self.is_superuser() {
                true => Vec::new(),
                false => {
                    let own = self.role();
                    let may_use = |oid| {
                        let (may, _) = definitions.privileges(own, oid, Privileges::ALL_OF_SCHEMA);
                        may.contains(Privileges::USAGE)
                    };
                    let denied = definitions.schemas().into_iter().filter(|schema| !may_use(schema.oid));
                    denied.map(|schema| schema.name.clone()).collect()
                }
            };
            self.names.path = Arc::new(SearchPath::new(&text, &role, denied, &definitions));
            self.names.made_for = Some(version);
        }
        self.names.path.clone()
    }

    /// The role or a setting may have changed: plans of another role or path are none for this one.
    #[inline]
    pub(crate) fn settle_names(&mut self) {
        let now = (self.settings.version(), self.role());
        if self.names.numbered != Some(now) {
            self.number_names(now);
        }
    }

    #[cold]
    fn number_names(&mut self, now: (u64, u32)) {
        self.names.numbered = Some(now);
        let text = self.settings.get("search_path").unwrap_or("");
        let known = self.names.known.iter().position(|(role, known)| *role == now.1 && known == text);
        let number = known.unwrap_or_else(|| {
            self.names.known.push((now.1, text.to_owned()));
            self.names.known.len() - 1
        });
        self.session.set_names(number as u32);
    }

    /// What a possibly qualified name stands for.
    ///
    /// # Errors
    /// 42501 for a schema that the role may not use.
    pub(crate) fn find(&mut self, schema: Option<&str>, name: &str) -> Result<Option<Found>> {
        let path = self.search_path();
        path.find(self.session.definitions(), schema, name)
    }

    /// The number of a stored object by name.
    ///
    /// # Errors
    /// As [`Context::find`].
    pub(crate) fn stored(&mut self, schema: Option<&str>, name: &str) -> Result<Option<u32>> {
        Ok(match self.find(schema, name)? {
            Some(Found::Stored(oid)) => Some(oid),
            _ => None,
        })
    }

    /// The schema that something new goes to; the role may create in it.
    ///
    /// # Errors
    /// 3F000; 42501.
    pub(crate) fn schema_to_create_in(&mut self, given: Option<String>, name: &str) -> Result<String> {
        let schema =
            match given {
                Some(schema) => schema,
                None => self.search_path().first().map(str::to_owned).ok_or_else(|| {
                    Error::new(SqlState::INVALID_SCHEMA_NAME, "no schema has been selected to create in")
                })?,
            };
        if SCHEMAS.contains(&schema.as_str()) {
            let message = match self.is_superuser() {
                true => format!("permission denied to create \"{schema}.{name}\""),
                false => format!("permission denied for schema {schema}"),
            };
            return Err(Error::new(SqlState::INSUFFICIENT_PRIVILEGE, message)
                .with_detail("System catalog modifications are currently disallowed."));
        }
        let Some(oid) = self.session.definitions().schema(&schema).map(|schema| schema.oid) else {
            return Err(no_schema(&schema));
        };
        self.check_create(oid, &schema)?;
        Ok(schema)
    }

    /// A relation's name as it has to be written now: with its schema where the bare name stands for something else.
    pub(crate) fn shown(&mut self, schema: &str, name: &str) -> String {
        let path = self.search_path();
        let quoted = homenode_engine::quote_name(name);
        match path.shows(self.session.definitions(), schema, name) {
            true => quoted,
            false => format!("{}.{quoted}", homenode_engine::quote_name(schema)),
        }
    }
}

/// 3F000
pub(crate) fn no_schema(name: &str) -> Error {
    Error::new(SqlState::INVALID_SCHEMA_NAME, format!("schema \"{name}\" does not exist"))
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn lists_are_split_as_postgresql_splits_them() {
        let list = |text| names(text).map(|names| names.join("|"));
        assert_eq!(list("\"$user\", public"), Some("$user|public".into()));
        assert_eq!(list(" A , \"B\"\"c\" "), Some("a|B\"c".into()));
        assert_eq!(list(""), Some(String::new()));
        assert_eq!(names("\"\""), Some(vec![String::new()]));
        for wrong in ["a,", "a b", ",", "\"a"] {
            assert_eq!(list(wrong), None, "{wrong}");
        }
    }
}
