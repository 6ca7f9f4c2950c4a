//! How are statements about roles and privileges written? CREATE, ALTER and DROP ROLE, GRANT and REVOKE, OWNER TO.

use super::reader::Reader;
use super::{Name, Utility};
use homenode_engine::Privileges;
use homenode_types::{Error, Result, SqlState};

/// What is said of a role; `None` leaves it as it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub struct RoleOptions {
    pub superuser: Option<bool>,
    pub create_db: Option<bool>,
    pub create_role: Option<bool>,
    pub inherit: Option<bool>,
    pub login: Option<bool>,
    pub connection_limit: Option<i32>,
    /// `Some(None)` is PASSWORD NULL.
    pub password: Option<Option<String>>,
    pub valid_until: Option<String>,
    /// IN ROLE: groups that it becomes a member of.
    pub groups: Vec<String>,
    /// ROLE and ADMIN: roles that become its members, and whether they may admit others.
    pub members: Vec<(String, bool)>,
}

/// What a privilege is granted on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GrantObjects {
    /// Tables (and sequences: the word TABLE takes both).
    Tables(Vec<Name>),
    /// Sequences.
    Sequences(Vec<Name>),
    /// Everything of a kind in schemas.
    AllIn {
        /// ALL SEQUENCES instead of ALL TABLES.
        sequences: bool,
        /// Names.
        schemas: Vec<String>,
    },
    /// Schemas.
    Schemas(Vec<String>),
}

/// GRANT or REVOKE of privileges.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GrantPrivileges {
    /// GRANT, not REVOKE.
    pub grant: bool,
    /// Which; `None` is ALL.
    pub privileges: Option<Privileges>,
    /// On what.
    pub objects: GrantObjects,
    /// To or from whom; "public" is everybody.
    pub roles: Vec<String>,
    /// WITH GRANT OPTION, or GRANT OPTION FOR.
    pub option: bool,
}

/// GRANT or REVOKE of membership.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GrantRoles {
    /// GRANT, not REVOKE.
    pub grant: bool,
    /// Groups.
    pub groups: Vec<String>,
    /// Who becomes a member, or is one no more.
    pub members: Vec<String>,
    /// WITH ADMIN OPTION, or ADMIN OPTION FOR.
    pub admin: bool,
}

fn words(r: &mut Reader<'_>) -> Result<Vec<String>> {
    let mut words = vec![role(r)?];
    while r.eat_symbol(",") {
        words.push(role(r)?);
    }
    Ok(words)
}

/// A role's name; GROUP before it is noise, as in PostgreSQL.
fn role(r: &mut Reader<'_>) -> Result<String> {
    r.eat("group");
    r.identifier()
}

/// CREATE ROLE, behind CREATE.
pub(super) fn create(r: &mut Reader<'_>) -> Result<Option<Utility>> {
    let is_user = r.word_is("user");
    if is_user && r.tokens.get(r.at + 1).is_some_and(|token| token.is_word(r.source, "mapping")) {
        return Ok(None);
    }
    if !(r.eat("role") || r.eat("user") || r.eat("group")) {
        return Ok(None);
    }
    let name = r.identifier()?;
    let mut options = options(r)?;
    if is_user && options.login.is_none() {
        options.login = Some(true);
    }
    Ok(Some(Utility::CreateRole { name, options }))
}

/// ALTER ROLE, behind ALTER.
pub(super) fn alter(r: &mut Reader<'_>) -> Result<Option<Utility>> {
    if !(r.eat("role") || r.eat("user")) {
        return Ok(None);
    }
    let name = r.identifier()?;
    if r.eat_all("rename to") {
        return Ok(Some(Utility::RenameRole { name, to: r.identifier()? }));
    }
    if r.word_is("set") || r.word_is("reset") || r.word_is("in") {
        return Err(Error::unsupported("settings of a role (ALTER ROLE ... SET)"));
    }
    Ok(Some(Utility::AlterRole { name, options: options(r)? }))
}

/// DROP ROLE, behind DROP.
pub(super) fn drop(r: &mut Reader<'_>) -> Result<Option<Utility>> {
    if !(r.eat("role") || r.eat("user") || r.eat("group")) {
        return Ok(None);
    }
    let if_exists = r.eat_all("if exists");
    Ok(Some(Utility::DropRoles { names: words(r)?, if_exists }))
}

/// `{TABLE | SEQUENCE | VIEW} name OWNER TO role`, behind ALTER. `None` if it is another ALTER.
pub(super) fn alter_owner(r: &mut Reader<'_>) -> Result<Option<Utility>> {
    let before = r.at;
    if let Some(kind) = ["table", "sequence", "view"].into_iter().find(|kind| r.eat(kind)) {
        let if_exists = r.eat_all("if exists");
        r.eat("only");
        if let Ok(name) = r.name()
            && r.eat_all("owner to")
        {
            return Ok(Some(Utility::Owner { kind, name, if_exists, to: r.identifier()? }));
        }
    }
    r.at = before;
    Ok(None)
}

fn options(r: &mut Reader<'_>) -> Result<RoleOptions> {
    let mut options = RoleOptions::default();
    r.eat("with");
    while r.peek().is_some() {
        let word = r.identifier()?;
        match word.as_str() {
            "superuser" | "nosuperuser" => once(r, &mut options.superuser, word == "superuser")?,
            "createdb" | "nocreatedb" => once(r, &mut options.create_db, word == "createdb")?,
            "createrole" | "nocreaterole" => once(r, &mut options.create_role, word == "createrole")?,
            "inherit" | "noinherit" => once(r, &mut options.inherit, word == "inherit")?,
            "login" | "nologin" => once(r, &mut options.login, word == "login")?,
            // There is no replication, and there are no row policies to bypass.
            "noreplication" | "nobypassrls" => {}
            "replication" => return Err(Error::unsupported("REPLICATION")),
            "bypassrls" => return Err(Error::unsupported("BYPASSRLS")),
            "connection" => {
                r.expect("limit")?;
                let limit = r.integer()?;
                let limit = i32::try_from(limit).ok().filter(|limit| *limit >= -1).ok_or_else(|| {
                    Error::new(SqlState::INVALID_PARAMETER_VALUE, format!("invalid connection limit: {limit}"))
                })?;
                once(r, &mut options.connection_limit, limit)?;
            }
            "encrypted" | "password" => {
                if word == "encrypted" {
                    r.expect("password")?;
                }
                let password = if r.eat("null") { None } else { Some(r.string()?) };
                once(r, &mut options.password, password)?;
            }
            "valid" => {
                r.expect("until")?;
                let until = r.string()?;
                once(r, &mut options.valid_until, until)?;
            }
            "sysid" => {
                r.integer()?;
            }
            "in" => {
                if !r.eat("role") {
                    r.expect("group")?;
                }
                options.groups.append(&mut words(r)?);
            }
            "role" | "user" => options.members.extend(words(r)?.into_iter().map(|name| (name, false))),
            "admin" => options.members.extend(words(r)?.into_iter().map(|name| (name, true))),
            _ => return Err(Error::new(SqlState::SYNTAX_ERROR, format!("unrecognized role option \"{word}\""))),
        }
    }
    Ok(options)
}

fn once<T>(_: &Reader<'_>, option: &mut Option<T>, value: T) -> Result<()> {
    match option.replace(value) {
        None => Ok(()),
        Some(_) => Err(Error::new(SqlState::SYNTAX_ERROR, "conflicting or redundant options")),
    }
}

/// GRANT or REVOKE, behind the word.
pub(super) fn grant(r: &mut Reader<'_>, grant: bool) -> Result<Utility> {
    let admin = !grant && r.eat_all("admin option for");
    let option = !grant && r.eat_all("grant option for");
    let mut names = vec![privilege_or_role(r)?];
    while r.eat_symbol(",") {
        names.push(privilege_or_role(r)?);
    }
    if !r.eat("on") {
        return membership(r, grant, admin, names);
    }
    let privileges = match names.as_slice() {
        [one] if one == "all" || one == "all privileges" => None,
        names => Some(names.iter().try_fold(Privileges::default(), |all, name| Ok(all.with(privilege(name)?)))?),
    };
    let objects = objects(r)?;
    r.expect(if grant { "to" } else { "from" })?;
    let roles = words(r)?;
    let option = option || grant && r.eat_all("with grant option");
    end(r, grant)?;
    Ok(Utility::Grant(GrantPrivileges { grant, privileges, objects, roles, option }))
}

fn membership(r: &mut Reader<'_>, grant: bool, admin: bool, groups: Vec<String>) -> Result<Utility> {
    r.expect(if grant { "to" } else { "from" })?;
    let members = words(r)?;
    let admin = admin || grant && r.eat_all("with admin option");
    end(r, grant)?;
    Ok(Utility::GrantRoles(GrantRoles { grant, groups, members, admin }))
}

fn end(r: &mut Reader<'_>, grant: bool) -> Result<()> {
    if r.word_is("granted") {
        return Err(Error::unsupported("GRANTED BY"));
    }
    // Grants do not hang on other grants: each stands until it is taken back.
    if !grant && r.eat("cascade") {
        return Err(Error::unsupported("REVOKE ... CASCADE"));
    }
    if !grant {
        r.eat("restrict");
    }
    Ok(())
}

fn privilege_or_role(r: &mut Reader<'_>) -> Result<String> {
    let name = r.identifier()?;
    if r.peek().is_some_and(|token| token.is(r.source, "(")) {
        return Err(Error::unsupported("privileges on columns"));
    }
    Ok(if name == "all" && r.eat("privileges") { "all privileges".to_owned() } else { name })
}

fn privilege(name: &str) -> Result<Privileges> {
    Ok(match name {
        "insert" => Privileges::INSERT,
        "select" => Privileges::SELECT,
        "update" => Privileges::UPDATE,
        "delete" => Privileges::DELETE,
        "truncate" => Privileges::TRUNCATE,
        "references" => Privileges::REFERENCES,
        "trigger" => Privileges::TRIGGER,
        "usage" => Privileges::USAGE,
        "create" => Privileges::CREATE,
        "execute" | "connect" | "temporary" | "temp" | "maintain" | "set" => {
            return Err(Error::unsupported(format!("GRANT {}", name.to_ascii_uppercase())));
        }
        _ => return Err(Error::new(SqlState::SYNTAX_ERROR, format!("unrecognized privilege type \"{name}\""))),
    })
}

fn objects(r: &mut Reader<'_>) -> Result<GrantObjects> {
    if r.eat("all") {
        let sequences = r.eat("sequences");
        if !sequences && !r.eat("tables") {
            return Err(Error::unsupported("GRANT on functions"));
        }
        r.expect("in")?;
        r.expect("schema")?;
        return Ok(GrantObjects::AllIn { sequences, schemas: words(r)? });
    }
    if r.eat("sequence") {
        return Ok(GrantObjects::Sequences(r.names()?));
    }
    if r.eat("schema") {
        return Ok(GrantObjects::Schemas(words(r)?));
    }
    for other in ["database", "function", "procedure", "routine", "language", "type", "domain", "tablespace", "foreign"]
    {
        if r.word_is(other) && r.tokens.get(r.at + 1).is_some_and(|token| !token.is_word(r.source, "to")) {
            return Err(Error::unsupported(format!("GRANT ON {}", other.to_ascii_uppercase())));
        }
    }
    r.eat("table");
    Ok(GrantObjects::Tables(r.names()?))
}
