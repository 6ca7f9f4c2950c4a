//! Who may do this? Roles and privileges as statements change them and as every statement is checked against them.

use crate::bind::Need;
use crate::context::Context;
use crate::run::Tag;
use crate::search_path::Found;
use crate::utility::{GrantObjects, GrantPrivileges, GrantRoles, Name, RoleOptions};
use homenode_engine::{
    AccessDefinition, BOOTSTRAP_ROLE, Definitions, Grant, PUBLIC_ROLE, Privileges, RoleDefinition, Table,
};
use homenode_scram::Verifier;
use homenode_types::{ColumnType, Error, Result, SqlState, Type, Value};

/// 42501
fn denied(message: String) -> Error {
    Error::new(SqlState::INSUFFICIENT_PRIVILEGE, message)
}

fn no_role(name: &str) -> Error {
    Error::new(SqlState::UNDEFINED_OBJECT, format!("role \"{name}\" does not exist"))
}

fn role_named(definitions: &Definitions, name: &str) -> Result<u32> {
    definitions.role(name).map(|role| role.oid).ok_or_else(|| no_role(name))
}

impl Context {
    /// The role that statements run as.
    pub(crate) fn role(&self) -> u32 {
        self.role
    }

    /// Whether it may do everything.
    pub(crate) fn is_superuser(&mut self) -> bool {
        let version = self.session.definitions_version();
        if self.superuser.0 != version {
            // A role that was dropped under its session may do nothing more.
            let role = self.role;
            let is_superuser = self.session.definitions().role_by_oid(role).is_some_and(|role| role.superuser);
            self.superuser = (version, is_superuser);
        }
        self.superuser.1
    }

    /// The name of the role that statements run as.
    pub(crate) fn role_name(&mut self) -> String {
        if self.role == self.login_role {
            return self.user.clone();
        }
        let role = self.role;
        self.session.definitions().role_by_oid(role).map_or_else(String::new, |role| role.name.clone())
    }

    /// Checks that the role may do all of `needs`.
    ///
    /// # Errors
    /// 42501 naming the first relation that it may not.
    pub(crate) fn check_access(&mut self, needs: &[Need]) -> Result<()> {
        let own = if self.is_superuser() { BOOTSTRAP_ROLE } else { self.role };
        let definitions = self.session.definitions();
        for &Need { relation, privileges, role } in needs {
            let role = role.unwrap_or(own);
            if role == BOOTSTRAP_ROLE {
                continue;
            }
            let (may, _) = definitions.privileges(role, relation, Privileges::ALL_OF_TABLE);
            if !may.contains(privileges) {
                let (kind, name) = definitions.relation_name(relation).unwrap_or(("relation", relation.to_string()));
                return Err(denied(format!("permission denied for {kind} {name}")));
            }
        }
        Ok(())
    }

    /// Checks that the role owns a relation, or is a member of the role that does.
    ///
    /// # Errors
    /// 42501
    pub(crate) fn check_owner(&mut self, relation: u32) -> Result<()> {
        if self.is_superuser() {
            return Ok(());
        }
        let role = self.role;
        let definitions = self.session.definitions();
        if definitions.is_member(role, definitions.owner(relation), true) {
            return Ok(());
        }
        let (kind, name) = definitions.relation_name(relation).unwrap_or(("relation", relation.to_string()));
        Err(denied(format!("must be owner of {kind} {name}")))
    }

    /// As [`Context::check_owner`], of a table.
    pub(crate) fn check_table_owner(&mut self, table: &Table) -> Result<()> {
        self.check_owner(table.oid)
    }

    /// Checks that the role may use a sequence: nextval takes USAGE or UPDATE, currval USAGE or SELECT.
    ///
    /// # Errors
    /// 42501
    pub(crate) fn check_sequence(&mut self, sequence: u32, wanted: Privileges) -> Result<()> {
        if self.is_superuser() || wanted == Privileges::default() {
            return Ok(());
        }
        let role = self.role;
        let definitions = self.session.definitions();
        let (may, _) = definitions.privileges(role, sequence, Privileges::ALL_OF_SEQUENCE);
        let other = match wanted {
            Privileges::USAGE => Privileges::UPDATE,
            Privileges::SELECT => Privileges::USAGE,
            _ => wanted,
        };
        if may.contains(wanted) || may.contains(other) {
            return Ok(());
        }
        let (_, name) = definitions.relation_name(sequence).unwrap_or(("sequence", sequence.to_string()));
        Err(denied(format!("permission denied for sequence {name}")))
    }

    /// Checks that the role may lock a table: to keep others from reading or writing takes the right to write.
    ///
    /// # Errors
    /// 42501
    pub(crate) fn check_lock(&mut self, table: &Table, exclusive: bool) -> Result<()> {
        if !exclusive {
            return self.check_access(&[Need::own(table.oid, Privileges::SELECT)]);
        }
        let writes = [Privileges::UPDATE, Privileges::DELETE, Privileges::TRUNCATE];
        let denied = writes.iter().map(|one| self.check_access(&[Need::own(table.oid, *one)])).find(Result::is_ok);
        denied.unwrap_or_else(|| self.check_access(&[Need::own(table.oid, Privileges::UPDATE)]))
    }

    /// Checks that the role may create something in a schema.
    ///
    /// # Errors
    /// 42501
    pub(crate) fn check_create(&mut self, schema: u32, name: &str) -> Result<()> {
        if self.is_superuser() {
            return Ok(());
        }
        let role = self.role;
        let (may, _) = self.session.definitions().privileges(role, schema, Privileges::ALL_OF_SCHEMA);
        if may.contains(Privileges::CREATE) {
            Ok(())
        } else {
            Err(denied(format!("permission denied for schema {name}")))
        }
    }

    /// Checks that the role may do what concerns the whole server.
    ///
    /// # Errors
    /// 42501
    pub(crate) fn check_superuser(&mut self, what: &str) -> Result<()> {
        if self.is_superuser() { Ok(()) } else { Err(denied(format!("must be superuser to {what}"))) }
    }

    /// Checks that the role may create and change roles; superusers' only a superuser may.
    fn check_create_role(&mut self, touches_superuser: bool, what: &str) -> Result<()> {
        if self.is_superuser() {
            return Ok(());
        }
        if touches_superuser {
            return Err(denied(format!("must be superuser to {what}")));
        }
        let role = self.role;
        let may = self.session.definitions().role_by_oid(role).is_some_and(|role| role.create_role);
        if may { Ok(()) } else { Err(denied("permission denied".to_owned())) }
    }
}

/// The verifier that is kept of a password. A client may have made it already, so that the password never leaves it.
fn verifier(password: &str) -> Result<String> {
    if password.starts_with("SCRAM-SHA-256$") {
        return match Verifier::parse(password) {
            Some(_) => Ok(password.to_owned()),
            None => Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, "the SCRAM-SHA-256 verifier is malformed")),
        };
    }
    if password.len() == 35 && password.starts_with("md5") {
        return Err(Error::unsupported("passwords hashed by MD5"));
    }
    if password.is_empty() {
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, "an empty password would never match"));
    }
    Ok(Verifier::of(password)?.to_string())
}

fn change(role: &mut RoleDefinition, options: &RoleOptions) -> Result<()> {
    let set = |flag: &mut bool, wanted: Option<bool>| *flag = wanted.unwrap_or(*flag);
    set(&mut role.superuser, options.superuser);
    set(&mut role.create_db, options.create_db);
    set(&mut role.create_role, options.create_role);
    set(&mut role.inherit, options.inherit);
    set(&mut role.login, options.login);
    role.connection_limit = options.connection_limit.unwrap_or(role.connection_limit);
    if let Some(password) = &options.password {
        role.verifier = password.as_deref().map(verifier).transpose()?;
    }
    if let Some(until) = &options.valid_until {
        role.valid_until_us = match Value::parse_text(until, ColumnType::new(Type::Timestamptz))? {
            Value::Timestamptz(us) => Some(us),
            _ => None,
        };
    }
    Ok(())
}

fn add_member(role: &mut RoleDefinition, group: u32, admin: bool) {
    match role.member_of.iter_mut().find(|(of, _)| *of == group) {
        Some(membership) => membership.1 |= admin,
        None => role.member_of.push((group, admin)),
    }
}

/// CREATE ROLE.
pub(crate) fn create_role(context: &mut Context, name: &str, options: &RoleOptions) -> Result<Tag> {
    context.session.start_statement();
    context.check_create_role(options.superuser == Some(true), "create superusers").map_err(|error| {
        if error.message == "permission denied" { denied("permission denied to create role".to_owned()) } else { error }
    })?;
    if name == "public" || name == "none" || name.starts_with("pg_") {
        let message = format!("role name \"{name}\" is reserved");
        return Err(Error::new(SqlState::RESERVED_NAME, message));
    }
    let definitions = context.definitions();
    let groups = options.groups.iter().map(|group| role_named(&definitions, group)).collect::<Result<Vec<_>>>()?;
    let members = options.members.iter().map(|(member, admin)| Ok((role_named(&definitions, member)?, *admin)));
    let members = members.collect::<Result<Vec<_>>>()?;
    let mut role = RoleDefinition::new(0, name.to_owned());
    change(&mut role, options)?;
    for group in groups {
        add_member(&mut role, group, false);
    }
    let oid = context.session.create_role(role)?;
    for (member, admin) in members {
        context.session.alter_role(member, |role| {
            add_member(role, oid, admin);
            Ok(())
        })?;
    }
    context.session.end_statement();
    Ok(Tag::Plain("CREATE ROLE"))
}

/// ALTER ROLE with options. A role may change its own password.
pub(crate) fn alter_role(context: &mut Context, name: &str, options: &RoleOptions) -> Result<Tag> {
    context.session.start_statement();
    let definitions = context.definitions();
    let own = if matches!(name, "current_user" | "current_role") { context.role_name() } else { name.to_owned() };
    let role = definitions.role(&own).ok_or_else(|| no_role(&own))?;
    let only_password = RoleOptions { password: options.password.clone(), ..RoleOptions::default() } == *options;
    if !(role.oid == context.role() && only_password) {
        let touches = role.superuser || options.superuser.is_some();
        context.check_create_role(touches, "alter superuser roles or change superuser attribute")?;
    }
    if role.oid == BOOTSTRAP_ROLE && options.superuser == Some(false) {
        let message = format!("role \"{own}\" is the one that is always a superuser");
        return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
    }
    if !options.groups.is_empty() {
        return Err(Error::new(SqlState::SYNTAX_ERROR, "IN ROLE belongs to CREATE ROLE; GRANT adds a member"));
    }
    let members = options.members.iter().map(|(member, _)| member.clone()).collect();
    context.session.alter_role(role.oid, |role| change(role, options))?;
    if !options.members.is_empty() {
        change_members(context, &GrantRoles { grant: true, groups: vec![own], members, admin: false })?;
    }
    context.session.end_statement();
    Ok(Tag::Plain("ALTER ROLE"))
}

/// ALTER ROLE ... RENAME TO.
pub(crate) fn rename_role(context: &mut Context, name: &str, to: &str) -> Result<Tag> {
    context.session.start_statement();
    let definitions = context.definitions();
    let role = definitions.role(name).ok_or_else(|| no_role(name))?;
    context.check_create_role(role.superuser, "rename superusers")?;
    if role.oid == context.login_role || role.oid == context.role() {
        return Err(Error::unsupported("renaming the session's own role"));
    }
    context.session.alter_role(role.oid, |role| {
        role.name = to.to_owned();
        Ok(())
    })?;
    context.session.end_statement();
    Ok(Tag::Plain("ALTER ROLE"))
}

/// DROP ROLE.
pub(crate) fn drop_roles(context: &mut Context, names: &[String], if_exists: bool) -> Result<Tag> {
    context.session.start_statement();
    for name in names {
        context.check_create_role(false, "").map_err(|_| denied("permission denied to drop role".to_owned()))?;
        let Some(role) = context.definitions().role(name).cloned() else {
            if !if_exists {
                return Err(no_role(name));
            }
            let message = format!("role \"{name}\" does not exist, skipping");
            context.notice("NOTICE", SqlState::SUCCESSFUL_COMPLETION, &message);
            continue;
        };
        context.check_create_role(role.superuser, "drop superusers")?;
        if role.oid == context.login_role || role.oid == context.role() {
            return Err(Error::new(SqlState::OBJECT_IN_USE, "current user cannot be dropped"));
        }
        context.session.drop_role(role.oid)?;
    }
    context.session.end_statement();
    Ok(Tag::Plain("DROP ROLE"))
}

/// GRANT and REVOKE of membership.
pub(crate) fn grant_roles(context: &mut Context, grant: &GrantRoles) -> Result<Tag> {
    context.session.start_statement();
    change_members(context, grant)?;
    context.session.end_statement();
    Ok(Tag::Plain(if grant.grant { "GRANT ROLE" } else { "REVOKE ROLE" }))
}

fn change_members(context: &mut Context, grant: &GrantRoles) -> Result<()> {
    for group in &grant.groups {
        let definitions = context.definitions();
        let group_role = definitions.role(group).ok_or_else(|| no_role(group))?.clone();
        let own = context.role();
        let admits = |role: &RoleDefinition| role.member_of.contains(&(group_role.oid, true));
        let is_admin = definitions.role_by_oid(own).is_some_and(|role| admits(role));
        if !is_admin {
            context.check_create_role(group_role.superuser, "alter superusers").map_err(|error| {
                if group_role.superuser { error } else { denied(format!("must have admin option on role \"{group}\"")) }
            })?;
        }
        for member in &grant.members {
            let member_oid = role_named(&context.definitions(), member)?;
            // Under the catalog's lock, which altering takes: no other transaction can close a circle meanwhile.
            if grant.grant && context.definitions().is_member(group_role.oid, member_oid, false) {
                let message = format!("role \"{group}\" is a member of role \"{member}\"");
                return Err(Error::new(SqlState::INVALID_GRANT_OPERATION, message));
            }
            context.session.alter_role(member_oid, |role| {
                match (grant.grant, grant.admin) {
                    (true, admin) => add_member(role, group_role.oid, admin),
                    (false, false) => role.member_of.retain(|(of, _)| *of != group_role.oid),
                    (false, true) => {
                        role.member_of.iter_mut().filter(|(of, _)| *of == group_role.oid).for_each(|of| of.1 = false);
                    }
                }
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// A kind of object that privileges are granted on.
struct Subject {
    oid: u32,
    name: String,
    kind: &'static str,
    all: Privileges,
}

fn subjects(context: &mut Context, objects: &GrantObjects) -> Result<Vec<Subject>> {
    let definitions = context.definitions();
    let path = context.search_path();
    let of = |oid: u32| -> Subject {
        let (kind, name) = definitions.relation_name(oid).unwrap_or(("relation", String::new()));
        let all = if kind == "sequence" { Privileges::ALL_OF_SEQUENCE } else { Privileges::ALL_OF_TABLE };
        Subject { oid, name, kind, all }
    };
    let named = |names: &[Name], want: Option<&str>| -> Result<Vec<Subject>> {
        let find = |name: &Name| {
            let found = match path.find(&definitions, name.schema.as_deref(), &name.name)? {
                Some(Found::Virtual(_)) => return Err(Error::unsupported("privileges on system catalogs")),
                Some(Found::Stored(oid)) => of(oid),
                None => return Err(crate::bind::no_relation(name.schema.as_deref(), &name.name)),
            };
            match want {
                Some(kind) if found.kind != kind => {
                    Err(Error::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{}\" is not a {kind}", name.name)))
                }
                _ if found.kind == "relation" => {
                    Err(Error::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{}\" is an index", name.name)))
                }
                _ => Ok(found),
            }
        };
        names.iter().map(find).collect()
    };
    let known = |name: &String| match definitions.schema(name) {
        Some(schema) => Ok(schema.oid),
        None => Err(crate::search_path::no_schema(name)),
    };
    match objects {
        GrantObjects::Tables(names) => named(names, None),
        GrantObjects::Sequences(names) => named(names, Some("sequence")),
        GrantObjects::AllIn { sequences, schemas } => {
            schemas.iter().try_for_each(|schema| known(schema).map(|_| ()))?;
            let inside = |schema: &String| schemas.contains(schema);
            Ok(if *sequences {
                let inside = definitions.sequences().into_iter().filter(|one| inside(&one.schema));
                inside.map(|sequence| of(sequence.oid)).collect()
            } else {
                let tables = definitions.tables().into_iter().filter(|one| inside(&one.schema)).map(|one| one.oid);
                let views = definitions.views().into_iter().filter(|one| inside(&one.schema)).map(|one| one.oid);
                tables.chain(views).map(of).collect()
            })
        }
        GrantObjects::Schemas(schemas) => {
            let all = Privileges::ALL_OF_SCHEMA;
            let subject = |name: &String| Ok(Subject { oid: known(name)?, name: name.clone(), kind: "schema", all });
            schemas.iter().map(subject).collect()
        }
    }
}

/// GRANT and REVOKE of privileges.
pub(crate) fn grant(context: &mut Context, grant: &GrantPrivileges) -> Result<Tag> {
    context.session.start_statement();
    for subject in subjects(context, &grant.objects)? {
        let wanted = grant.privileges.unwrap_or(subject.all);
        if !subject.all.contains(wanted) {
            let wrong =
                Privileges::LETTERS.iter().find(|(one, _)| !subject.all.contains(*one) && wanted.contains(*one));
            let name = wrong.map_or("", |(one, _)| privilege_name(*one));
            return Err(Error::new(
                SqlState::INVALID_GRANT_OPERATION,
                format!("invalid privilege type {name} for {}", subject.kind),
            ));
        }
        grant_on(context, grant, &subject, wanted)?;
    }
    context.session.end_statement();
    Ok(Tag::Plain(if grant.grant { "GRANT" } else { "REVOKE" }))
}

fn grant_on(context: &mut Context, grant: &GrantPrivileges, subject: &Subject, wanted: Privileges) -> Result<()> {
    let definitions = context.definitions();
    let (may, may_grant) = definitions.privileges(context.role(), subject.oid, subject.all);
    if may.with(may_grant) == Privileges::default() {
        return Err(denied(format!("permission denied for {} {}", subject.kind, subject.name)));
    }
    let asked = wanted;
    let wanted = asked.and(may_grant);
    if wanted != asked && !(grant.privileges.is_none() && wanted != Privileges::default()) {
        let how_many = if wanted == Privileges::default() { "no" } else { "not all" };
        let (done, code) = match grant.grant {
            true => ("were granted", SqlState::PRIVILEGE_NOT_GRANTED),
            false => ("could be revoked", SqlState::PRIVILEGE_NOT_REVOKED),
        };
        context.notice("WARNING", code, format!("{how_many} privileges {done} for \"{}\"", subject.name));
    }
    if wanted == Privileges::default() {
        return Ok(());
    }
    // A superuser and a member of the owner grant as the owner does, so that it can take it back.
    let owner = definitions.owner(subject.oid);
    let own = context.role();
    let as_owner = context.is_superuser() || definitions.is_member(own, owner, true);
    let grantor = if as_owner { owner } else { own };
    for name in &grant.roles {
        let grantee = if name == "public" { PUBLIC_ROLE } else { role_named(&definitions, name)? };
        if grant.grant && grant.option && grantee == PUBLIC_ROLE {
            return Err(Error::new(SqlState::INVALID_GRANT_OPERATION, "grant options can only be granted to roles"));
        }
        context.session.alter_access(subject.oid, |access| {
            if grantee == access.owner {
                // The owner has all that there is, whatever is granted or taken.
                return Ok(());
            }
            if !grant.grant && has_dependents(access, grantee, grantor, wanted) {
                // Grants of grants are not taken back behind their grantor's back: CASCADE is not there.
                let message = "dependent privileges exist";
                return Err(Error::new(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, message));
            }
            apply(access, grant, Grant { grantee, grantor, privileges: wanted, grantable: wanted });
            Ok(())
        })?;
    }
    Ok(())
}

/// Whether `role` has granted on what it could only by the grant of `grantor` that is to be taken back.
fn has_dependents(access: &AccessDefinition, role: u32, grantor: u32, taken: Privileges) -> bool {
    let others = access.grants.iter().filter(|grant| grant.grantee == role && grant.grantor != grantor);
    let kept = others.fold(Privileges::default(), |all, grant| all.with(grant.grantable));
    let lost = taken.without(kept);
    access.grants.iter().any(|grant| grant.grantor == role && grant.privileges.and(lost) != Privileges::default())
}

fn apply(access: &mut AccessDefinition, statement: &GrantPrivileges, change: Grant) {
    let same = |one: &Grant| (one.grantee, one.grantor) == (change.grantee, change.grantor);
    let at = access.grants.iter().position(same);
    let mut grant = match at {
        Some(at) => access.grants[at],
        None => Grant { privileges: Privileges::default(), grantable: Privileges::default(), ..change },
    };
    match (statement.grant, statement.option) {
        (true, option) => {
            grant.privileges = grant.privileges.with(change.privileges);
            grant.grantable = if option { grant.grantable.with(change.grantable) } else { grant.grantable };
        }
        (false, option) => {
            grant.grantable = grant.grantable.without(change.grantable);
            grant.privileges = if option { grant.privileges } else { grant.privileges.without(change.privileges) };
        }
    }
    match at {
        Some(at) if grant.privileges == Privileges::default() => {
            access.grants.remove(at);
        }
        Some(at) => access.grants[at] = grant,
        None if grant.privileges == Privileges::default() => {}
        None => access.grants.push(grant),
    }
}

/// ALTER TABLE, SEQUENCE and VIEW ... OWNER TO.
pub(crate) fn owner(context: &mut Context, kind: &'static str, name: &Name, if_exists: bool, to: &str) -> Result<Tag> {
    let tag = match kind {
        "sequence" => "ALTER SEQUENCE",
        "view" => "ALTER VIEW",
        _ => "ALTER TABLE",
    };
    context.session.start_statement();
    let Some(relation) = context.stored(name.schema.as_deref(), &name.name)? else {
        if !if_exists {
            return Err(crate::bind::no_relation(name.schema.as_deref(), &name.name));
        }
        let message = format!("relation \"{}\" does not exist, skipping", name.name);
        context.notice("NOTICE", SqlState::SUCCESSFUL_COMPLETION, &message);
        return Ok(Tag::Plain(tag));
    };
    context.check_owner(relation)?;
    give_table(context, relation, to)?;
    context.session.end_statement();
    Ok(Tag::Plain(tag))
}

/// ALTER TABLE ... OWNER TO: its sequences go with the table.
///
/// # Errors
/// Those of [`role_to_own`].
pub(crate) fn give_table(context: &mut Context, table: u32, to: &str) -> Result<()> {
    let definitions = context.definitions();
    let owned = definitions.sequences().into_iter().filter(|sequence| sequence.owner.is_some_and(|of| of.0 == table));
    let objects: Vec<u32> = owned.map(|sequence| sequence.oid).chain([table]).collect();
    give(context, &objects, to)
}

/// The role of that name, which the session may give things to.
///
/// # Errors
/// 42704, 42501.
pub(crate) fn role_to_own(context: &mut Context, to: &str) -> Result<u32> {
    let definitions = context.definitions();
    let to = match to {
        "current_user" | "current_role" | "session_user" => context.role(),
        name => role_named(&definitions, name)?,
    };
    if !context.is_superuser() && !definitions.is_member(context.role(), to, false) {
        let name = definitions.role_by_oid(to).map_or("", |role| role.name.as_str()).to_owned();
        return Err(denied(format!("must be member of role \"{name}\"")));
    }
    Ok(to)
}

/// The role of that name.
///
/// # Errors
/// 42704
pub(crate) fn role_oid(context: &mut Context, name: &str) -> Result<u32> {
    role_named(&context.definitions(), name)
}

/// Makes a role the owner of objects.
///
/// # Errors
/// Those of [`role_to_own`].
pub(crate) fn give(context: &mut Context, objects: &[u32], to: &str) -> Result<()> {
    let to = role_to_own(context, to)?;
    for &object in objects {
        context.session.alter_access(object, |access| {
            let before = std::mem::replace(&mut access.owner, to);
            // What the old owner has granted, the new one has; what it was itself granted, it has now as the owner.
            access.grants.retain(|grant| grant.grantee != to);
            access.grants.iter_mut().filter(|grant| grant.grantor == before).for_each(|grant| grant.grantor = to);
            Ok(())
        })?;
    }
    Ok(())
}

/// SET ROLE and RESET ROLE.
pub(crate) fn set_role(context: &mut Context, name: Option<&str>) -> Result<Tag> {
    context.session.start_statement();
    let definitions = context.definitions();
    let login = context.login_role;
    let role = match name {
        None => login,
        Some(name) => role_named(&definitions, name)?,
    };
    let is_superuser = definitions.role_by_oid(login).is_some_and(|role| role.superuser);
    if !is_superuser && !definitions.is_member(login, role, false) {
        let message = format!("permission denied to set role \"{}\"", name.unwrap_or_default());
        return Err(denied(message));
    }
    context.become_role(role);
    context.session.end_statement();
    Ok(Tag::Plain(if name.is_none() { "RESET" } else { "SET" }))
}

fn named(text: &str) -> Option<Privileges> {
    let word = text.trim();
    let all = Privileges::LETTERS.iter().map(|(one, _)| *one);
    all.into_iter().find(|one| privilege_name(*one).eq_ignore_ascii_case(word))
}

/// A role by number or name.
fn role_of(definitions: &Definitions, value: &Value) -> Result<u32> {
    match value {
        Value::Oid(oid) => Ok(*oid),
        Value::Int4(oid) => Ok(*oid as u32),
        value => role_named(definitions, value.as_str().unwrap_or_default()),
    }
}

/// `has_table_privilege([role,] table, privileges)` and its like: whether the role has one of them.
pub(crate) fn has_privilege(context: &mut Context, function: &str, args: &[Value]) -> Result<Value> {
    if args.iter().any(|arg| matches!(arg, Value::Null)) {
        return Ok(Value::Null);
    }
    let definitions = context.definitions();
    let (role, object, wanted) = match args {
        [role, object, wanted] => (role_of(&definitions, role)?, object, wanted),
        [object, wanted] => (context.role(), object, wanted),
        _ => return Ok(Value::Null),
    };
    let is_schema = function == "has_schema_privilege";
    let object = match object {
        Value::Oid(oid) => *oid,
        Value::Int4(oid) => *oid as u32,
        name if is_schema => {
            let name = name.as_str().unwrap_or_default();
            let known = crate::catalog::schema_by_name(&definitions, name);
            known.ok_or_else(|| crate::search_path::no_schema(name))?
        }
        name => crate::catalog::relation_named(context, name.as_str().unwrap_or_default())?,
    };
    // Virtual tables are read by everybody and written by nobody; of their schemas, everybody has USAGE.
    let is_stored = definitions.relation_name(object).is_some();
    let everybody = if is_schema { Privileges::USAGE } else { Privileges::SELECT };
    let all = match (is_schema, is_stored) {
        (true, _) => Privileges::ALL_OF_SCHEMA,
        (false, _) => Privileges::ALL_OF_TABLE.with(Privileges::ALL_OF_SEQUENCE),
    };
    let (mut may, mut grantable) = definitions.privileges(role, object, all);
    if !is_stored {
        (may, grantable) = (everybody, Privileges::default());
    }
    for wanted in wanted.as_str().unwrap_or_default().split(',') {
        let upper = wanted.trim().to_ascii_uppercase();
        let (word, with_option) = match upper.strip_suffix(" WITH GRANT OPTION") {
            Some(word) => (word, true),
            None => (upper.as_str(), false),
        };
        let one = named(word).ok_or_else(|| {
            Error::new(SqlState::INVALID_PARAMETER_VALUE, format!("unrecognized privilege type: \"{}\"", wanted.trim()))
        })?;
        if may.contains(one) && (!with_option || grantable.contains(one)) {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

/// `pg_has_role([role,] group, 'MEMBER' | 'USAGE')`.
pub(crate) fn has_role(context: &mut Context, args: &[Value]) -> Result<Value> {
    if args.iter().any(|arg| matches!(arg, Value::Null)) {
        return Ok(Value::Null);
    }
    let definitions = context.definitions();
    let (role, group, kind) = match args {
        [role, group, kind] => (role_of(&definitions, role)?, group, kind),
        [group, kind] => (context.role(), group, kind),
        _ => return Ok(Value::Null),
    };
    let group = role_of(&definitions, group)?;
    let inherited = kind.as_str().is_some_and(|kind| kind.to_ascii_uppercase().starts_with("USAGE"));
    let is_superuser = definitions.role_by_oid(role).is_some_and(|role| role.superuser);
    Ok(Value::Bool(is_superuser || definitions.is_member(role, group, inherited)))
}

/// A privilege in words.
pub(crate) fn privilege_name(one: Privileges) -> &'static str {
    match one {
        Privileges::INSERT => "INSERT",
        Privileges::SELECT => "SELECT",
        Privileges::UPDATE => "UPDATE",
        Privileges::DELETE => "DELETE",
        Privileges::TRUNCATE => "TRUNCATE",
        Privileges::REFERENCES => "REFERENCES",
        Privileges::TRIGGER => "TRIGGER",
        Privileges::CREATE => "CREATE",
        _ => "USAGE",
    }
}

/// The access control list of a relation as PostgreSQL writes it, or none where nothing was ever granted.
pub(crate) fn access_list(definitions: &Definitions, relation: u32, all: Privileges) -> Option<Vec<String>> {
    let access = definitions.access(relation).filter(|access| !access.grants.is_empty())?;
    let name = |role: u32| match definitions.role_by_oid(role) {
        Some(role) => homenode_engine::quote_name(&role.name),
        None => String::new(),
    };
    let letters = |grant: &Grant| -> String {
        let has = Privileges::LETTERS.iter().filter(|(one, _)| grant.privileges.contains(*one));
        has.map(|(one, letter)| format!("{letter}{}", if grant.grantable.contains(*one) { "*" } else { "" })).collect()
    };
    let owner =
        Grant { grantee: access.owner, grantor: access.owner, privileges: all, grantable: Privileges::default() };
    let every = std::iter::once(&owner).chain(&access.grants);
    Some(every.map(|grant| format!("{}={}/{}", name(grant.grantee), letters(grant), name(grant.grantor))).collect())
}
