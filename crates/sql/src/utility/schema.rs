//! How are statements about schemas and comments written? CREATE, ALTER and DROP SCHEMA, SET SCHEMA, COMMENT ON.

use super::reader::Reader;
use super::{Name, Utility};
use homenode_types::{Error, Result};

/// What a comment is on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Commented {
    /// A table, index, sequence or view, by the word that was written.
    Relation(&'static str, Name),
    /// A column of a table or view.
    Column(Name, String),
    /// A constraint of a table.
    Constraint(String, Name),
    /// A schema.
    Schema(String),
    /// A role.
    Role(String),
    /// The database.
    Database(String),
}

/// What ALTER SCHEMA does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SchemaChange {
    /// RENAME TO.
    Rename(String),
    /// OWNER TO.
    Owner(String),
}

/// CREATE SCHEMA, behind CREATE.
pub(super) fn create(r: &mut Reader<'_>) -> Result<Option<Utility>> {
    if !r.eat("schema") {
        return Ok(None);
    }
    let if_not_exists = r.eat_all("if not exists");
    let name = if r.word_is("authorization") { None } else { Some(r.identifier()?) };
    let owner = if r.eat("authorization") { Some(r.identifier()?) } else { None };
    if r.peek().is_some() && ["create", "grant"].iter().any(|word| r.word_is(word)) {
        return Err(Error::unsupported("CREATE SCHEMA with what is to be in it"));
    }
    let name = match (name, &owner) {
        (Some(name), _) => name,
        (None, Some(owner)) => owner.clone(),
        (None, None) => return Err(r.error()),
    };
    Ok(Some(Utility::CreateSchema { name, if_not_exists, owner }))
}

/// ALTER SCHEMA, behind ALTER.
pub(super) fn alter(r: &mut Reader<'_>) -> Result<Option<Utility>> {
    if !r.eat("schema") {
        return Ok(None);
    }
    let name = r.identifier()?;
    let change = if r.eat_all("rename to") {
        SchemaChange::Rename(r.identifier()?)
    } else if r.eat_all("owner to") {
        SchemaChange::Owner(r.identifier()?)
    } else {
        return Err(r.error());
    };
    Ok(Some(Utility::AlterSchema { name, change }))
}

/// DROP SCHEMA, behind DROP.
pub(super) fn drop(r: &mut Reader<'_>) -> Result<Option<Utility>> {
    if !r.eat("schema") {
        return Ok(None);
    }
    let if_exists = r.eat_all("if exists");
    let mut names = vec![r.identifier()?];
    while r.eat_symbol(",") {
        names.push(r.identifier()?);
    }
    let cascade = r.eat("cascade");
    let _ = cascade || r.eat("restrict");
    Ok(Some(Utility::DropSchemas { names, if_exists, cascade }))
}

/// `{TABLE | SEQUENCE | VIEW} name SET SCHEMA schema`, behind ALTER. `None` if it is another ALTER.
pub(super) fn set_schema(r: &mut Reader<'_>) -> Result<Option<Utility>> {
    let before = r.at;
    let kind = ["table", "sequence", "view"].into_iter().find(|kind| r.eat(kind));
    if let Some(kind) = kind {
        let if_exists = r.eat_all("if exists");
        r.eat("only");
        if let Ok(name) = r.name()
            && r.eat_all("set schema")
        {
            return Ok(Some(Utility::SetSchema { kind, name, if_exists, schema: r.identifier()? }));
        }
    }
    r.at = before;
    Ok(None)
}

/// COMMENT ON, behind COMMENT.
pub(super) fn comment(r: &mut Reader<'_>) -> Result<Utility> {
    r.expect("on")?;
    let subject = if let Some(kind) = ["table", "index", "sequence", "view"].into_iter().find(|kind| r.eat(kind)) {
        Commented::Relation(kind, r.name()?)
    } else if r.eat("column") {
        let (table, column) = r.column()?;
        Commented::Column(table, column)
    } else if r.eat("constraint") {
        let constraint = r.identifier()?;
        r.expect("on")?;
        if r.word_is("domain") {
            return Err(Error::unsupported("COMMENT ON CONSTRAINT ... ON DOMAIN"));
        }
        Commented::Constraint(constraint, r.name()?)
    } else if r.eat("schema") {
        Commented::Schema(r.identifier()?)
    } else if r.eat("role") {
        Commented::Role(r.identifier()?)
    } else if r.eat("database") {
        Commented::Database(r.identifier()?)
    } else {
        let what = r.identifier()?;
        return Err(Error::unsupported(format!("COMMENT ON {}", what.to_ascii_uppercase())));
    };
    r.expect("is")?;
    // The empty text is no comment.
    let text = if r.eat("null") { None } else { Some(r.string()?).filter(|text| !text.is_empty()) };
    Ok(Utility::Comment { subject, text })
}
