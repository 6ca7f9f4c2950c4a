//! Who is there, and who may do what with a relation? Roles and privileges as objects of the catalog.

use crate::bytes::{Decoder, Encoder};
use crate::catalog::Object;
use crate::session::Session;
use homenode_types::{Error, Result, SqlState};
use std::sync::Arc;

/// The role that is always there and may do everything: `postgres`, unless renamed. Its number is PostgreSQL's.
pub const BOOTSTRAP_ROLE: u32 = 10;
/// In a grant: everybody.
pub const PUBLIC_ROLE: u32 = 0;

/// What one may do with a relation, as bits that can be joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Privileges(pub u16);

impl Privileges {
    /// INSERT
    pub const INSERT: Privileges = Privileges(1);
    /// SELECT
    pub const SELECT: Privileges = Privileges(2);
    /// UPDATE
    pub const UPDATE: Privileges = Privileges(4);
    /// DELETE
    pub const DELETE: Privileges = Privileges(8);
    /// TRUNCATE
    pub const TRUNCATE: Privileges = Privileges(16);
    /// REFERENCES
    pub const REFERENCES: Privileges = Privileges(32);
    /// TRIGGER
    pub const TRIGGER: Privileges = Privileges(64);
    /// USAGE (sequences)
    pub const USAGE: Privileges = Privileges(256);
    /// CREATE (schemas)
    pub const CREATE: Privileges = Privileges(512);
    /// All that a schema has.
    pub const ALL_OF_SCHEMA: Privileges = Privileges(256 | 512);
    /// All that a table has.
    pub const ALL_OF_TABLE: Privileges = Privileges(127);
    /// All that a sequence has.
    pub const ALL_OF_SEQUENCE: Privileges = Privileges(2 | 4 | 256);

    /// Each privilege with its letter in an access control list (the manual, "Privileges"), in the order that PostgreSQL shows them.
    pub const LETTERS: [(Privileges, char); 9] = [
        (Privileges::INSERT, 'a'),
        (Privileges::SELECT, 'r'),
        (Privileges::UPDATE, 'w'),
        (Privileges::DELETE, 'd'),
        (Privileges::TRUNCATE, 'D'),
        (Privileges::REFERENCES, 'x'),
        (Privileges::TRIGGER, 't'),
        (Privileges::USAGE, 'U'),
        (Privileges::CREATE, 'C'),
    ];

    /// Whether all of `other` are among these.
    pub fn contains(self, other: Privileges) -> bool {
        self.0 & other.0 == other.0
    }

    /// These and `other`.
    pub fn with(self, other: Privileges) -> Privileges {
        Privileges(self.0 | other.0)
    }

    /// These without `other`.
    pub fn without(self, other: Privileges) -> Privileges {
        Privileges(self.0 & !other.0)
    }

    /// Those that are here and in `other`.
    pub fn and(self, other: Privileges) -> Privileges {
        Privileges(self.0 & other.0)
    }
}

/// A role: a user, or a group of them.
#[derive(Clone, PartialEq, Debug)]
pub struct RoleDefinition {
    /// Object number.
    pub oid: u32,
    /// Name, unique among roles.
    pub name: String,
    /// May do everything.
    pub superuser: bool,
    /// Has the privileges of the roles that it is a member of.
    pub inherit: bool,
    /// May create, change and drop roles.
    pub create_role: bool,
    /// CREATEDB: kept and shown; there is one database.
    pub create_db: bool,
    /// May open sessions.
    pub login: bool,
    /// Sessions at a time; negative is no limit.
    pub connection_limit: i32,
    /// When the password stops being good, in microseconds since 2000-01-01.
    pub valid_until_us: Option<i64>,
    /// The password's SCRAM-SHA-256 verifier, as PostgreSQL writes it. The password itself is nowhere.
    pub verifier: Option<String>,
    /// Roles that it is a member of, and whether it may admit others.
    pub member_of: Vec<(u32, bool)>,
}

impl RoleDefinition {
    /// A role with the defaults of CREATE ROLE.
    pub fn new(oid: u32, name: String) -> RoleDefinition {
        RoleDefinition {
            oid,
            name,
            superuser: false,
            inherit: true,
            create_role: false,
            create_db: false,
            login: false,
            connection_limit: -1,
            valid_until_us: None,
            verifier: None,
            member_of: Vec::new(),
        }
    }

    /// The role that is there in a new folder.
    pub(crate) fn bootstrap() -> RoleDefinition {
        let role = RoleDefinition::new(BOOTSTRAP_ROLE, "postgres".to_owned());
        RoleDefinition { superuser: true, create_role: true, create_db: true, login: true, ..role }
    }
}

/// What one role has granted another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// Who may; [`PUBLIC_ROLE`] is everybody.
    pub grantee: u32,
    /// Who allowed it.
    pub grantor: u32,
    /// What.
    pub privileges: Privileges,
    /// Which of them the grantee may grant on.
    pub grantable: Privileges,
}

/// Owner and grants of one relation. A relation without is the bootstrap role's, with nothing granted.
#[derive(Clone, PartialEq, Debug)]
pub struct AccessDefinition {
    /// Object number of this entry.
    pub oid: u32,
    /// The relation's number.
    pub relation: u32,
    /// The role that owns it.
    pub owner: u32,
    /// Grants in the order they were made, one for each grantee and grantor.
    pub grants: Vec<Grant>,
}

pub(crate) fn encode_role(role: &RoleDefinition, out: &mut Encoder) {
    let flags = [role.superuser, role.inherit, role.create_role, role.create_db, role.login];
    out.u32(role.oid);
    out.text(&role.name);
    out.u8(flags.iter().enumerate().fold(0, |bits, (at, flag)| bits | u8::from(*flag) << at));
    out.u32(role.connection_limit as u32);
    out.option(role.valid_until_us.as_ref(), |time, out| out.u64(*time as u64));
    out.option(role.verifier.as_ref(), |verifier, out| out.text(verifier));
    out.list(&role.member_of, |(group, admin), out| {
        out.u32(*group);
        out.u8(u8::from(*admin));
    });
}

pub(crate) fn decode_role(from: &mut Decoder<'_>) -> Option<RoleDefinition> {
    let (oid, name, flags) = (from.u32()?, from.text()?, from.u8()?);
    let flag = |at: u8| flags >> at & 1 != 0;
    Some(RoleDefinition {
        oid,
        name,
        superuser: flag(0),
        inherit: flag(1),
        create_role: flag(2),
        create_db: flag(3),
        login: flag(4),
        connection_limit: from.u32()? as i32,
        valid_until_us: from.option(|from| from.u64().map(|time| time as i64))?,
        verifier: from.option(|from| from.text())?,
        member_of: from.list(|from| Some((from.u32()?, from.u8()? != 0)))?,
    })
}

pub(crate) fn encode_access(access: &AccessDefinition, out: &mut Encoder) {
    out.u32(access.oid);
    out.u32(access.relation);
    out.u32(access.owner);
    out.list(&access.grants, |grant, out| {
        out.u32(grant.grantee);
        out.u32(grant.grantor);
        out.u32(u32::from(grant.privileges.0) << 16 | u32::from(grant.grantable.0));
    });
}

pub(crate) fn decode_access(from: &mut Decoder<'_>) -> Option<AccessDefinition> {
    let (oid, relation, owner) = (from.u32()?, from.u32()?, from.u32()?);
    let grants = from.list(|from| {
        let (grantee, grantor, bits) = (from.u32()?, from.u32()?, from.u32()?);
        Some(Grant {
            grantee,
            grantor,
            privileges: Privileges((bits >> 16) as u16),
            grantable: Privileges(bits as u16),
        })
    })?;
    Some(AccessDefinition { oid, relation, owner, grants })
}

impl Session {
    /// The role that owns what this session creates.
    pub fn set_role(&mut self, role: u32) {
        self.role = role;
    }

    /// Creates a role; `role.oid` is chosen here and given back.
    ///
    /// # Errors
    /// 42710 for a name that is there.
    pub fn create_role(&mut self, mut role: RoleDefinition) -> Result<u32> {
        self.begin_change()?;
        self.check_free_role_name(&role.name)?;
        role.oid = self.new_oid();
        let oid = role.oid;
        self.put_object(Object::Role(role))?;
        Ok(oid)
    }

    /// Changes a role: `change` gets the newest definition.
    ///
    /// # Errors
    /// 42704 if it is gone; 42710 for a new name that is there; what `change` says.
    pub fn alter_role(&mut self, oid: u32, change: impl FnOnce(&mut RoleDefinition) -> Result<()>) -> Result<()> {
        self.begin_change()?;
        let role = self.definitions().role_by_oid(oid).cloned();
        let role = role.ok_or_else(|| Error::new(SqlState::UNDEFINED_OBJECT, "the role does not exist any more"))?;
        let mut changed = RoleDefinition::clone(&role);
        change(&mut changed)?;
        if changed.name != role.name {
            self.check_free_role_name(&changed.name)?;
        }
        self.put_object(Object::Role(changed))
    }

    /// Drops a role that owns nothing and has been granted nothing.
    ///
    /// # Errors
    /// 2BP01 naming what depends on it.
    pub fn drop_role(&mut self, oid: u32) -> Result<()> {
        self.begin_change()?;
        let definitions = self.definitions().clone();
        let name = definitions.role_by_oid(oid).map_or_else(String::new, |role| role.name.clone());
        let depends = |message: String| {
            let needed = format!("role \"{name}\" cannot be dropped because some objects depend on it");
            Err(Error::new(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, needed).with_detail(message))
        };
        if oid == BOOTSTRAP_ROLE {
            return depends("It is required by the database system.".to_owned());
        }
        for access in definitions.all_access() {
            let (kind, relation) = definitions.relation_name(access.relation).unwrap_or(("relation", String::new()));
            if access.owner == oid {
                return depends(format!("owner of {kind} {relation}"));
            }
            if access.grants.iter().any(|grant| grant.grantee == oid || grant.grantor == oid) {
                return depends(format!("privileges for {kind} {relation}"));
            }
        }
        for member in definitions.roles().into_iter().filter(|role| role.member_of.iter().any(|(of, _)| *of == oid)) {
            self.alter_role(member.oid, |role| {
                role.member_of.retain(|(of, _)| *of != oid);
                Ok(())
            })?;
        }
        self.remove_object(oid)
    }

    /// Changes owner and grants of a relation: `change` gets the newest.
    ///
    /// # Errors
    /// What `change` says.
    pub fn alter_access(
        &mut self,
        relation: u32,
        change: impl FnOnce(&mut AccessDefinition) -> Result<()>,
    ) -> Result<()> {
        self.begin_change()?;
        let access = self.definitions().access(relation).cloned();
        let mut changed = access.map_or_else(
            || AccessDefinition { oid: 0, relation, owner: BOOTSTRAP_ROLE, grants: first_grants(relation) },
            |access| AccessDefinition::clone(&access),
        );
        change(&mut changed)?;
        if changed.oid == 0 {
            changed.oid = self.new_oid();
        }
        self.put_object(Object::Access(changed))
    }

    /// Notes who has made a relation, unless it is the bootstrap role.
    pub(crate) fn own(&mut self, relation: u32) -> Result<()> {
        let role = self.role;
        if role == BOOTSTRAP_ROLE {
            return Ok(());
        }
        self.alter_access(relation, |access| {
            access.owner = role;
            Ok(())
        })
    }

    fn check_free_role_name(&mut self, name: &str) -> Result<()> {
        match self.definitions().role(name) {
            None => Ok(()),
            Some(_) => Err(Error::new(SqlState::DUPLICATE_OBJECT, format!("role \"{name}\" already exists"))),
        }
    }
}

/// What is granted on something when it is new: everybody may use the schema of a new folder.
fn first_grants(relation: u32) -> Vec<Grant> {
    let (grantor, privileges) = (BOOTSTRAP_ROLE, Privileges::USAGE);
    let grant = Grant { grantee: PUBLIC_ROLE, grantor, privileges, grantable: Privileges::default() };
    if relation == crate::catalog::PUBLIC_OID { vec![grant] } else { Vec::new() }
}

impl crate::catalog::Definitions {
    /// The role with that name.
    pub fn role(&self, name: &str) -> Option<&Arc<RoleDefinition>> {
        self.roles.values().find(|role| role.name == name)
    }

    /// The role with that number.
    pub fn role_by_oid(&self, oid: u32) -> Option<&Arc<RoleDefinition>> {
        self.roles.get(&oid)
    }

    /// All roles, by number.
    pub fn roles(&self) -> Vec<Arc<RoleDefinition>> {
        let mut all: Vec<_> = self.roles.values().cloned().collect();
        all.sort_by_key(|role| role.oid);
        all
    }

    /// Owner and grants of a relation, if they are not the usual.
    pub fn access(&self, relation: u32) -> Option<&Arc<AccessDefinition>> {
        self.access.get(&relation)
    }

    pub(crate) fn all_access(&self) -> impl Iterator<Item = &Arc<AccessDefinition>> {
        self.access.values()
    }

    /// The role that owns a relation.
    pub fn owner(&self, relation: u32) -> u32 {
        self.access(relation).map_or(BOOTSTRAP_ROLE, |access| access.owner)
    }

    /// Whether `role` is `group` or a member of it, directly or through others. `inherited` asks only for memberships whose
    /// privileges are had without asking for them.
    pub fn is_member(&self, role: u32, group: u32, inherited: bool) -> bool {
        let mut seen = vec![role];
        let mut at = 0;
        while let Some(&one) = seen.get(at) {
            if one == group {
                return true;
            }
            at += 1;
            let Some(one) = self.role_by_oid(one).filter(|one| one.inherit || !inherited) else { continue };
            for &(of, _) in &one.member_of {
                if !seen.contains(&of) {
                    seen.push(of);
                }
            }
        }
        false
    }

    /// What a role may do with a relation: all that its owner may, or what was granted to the role, to a role that it is a
    /// member of, or to everybody. The second are those that it may grant on.
    pub fn privileges(&self, role: u32, relation: u32, all: Privileges) -> (Privileges, Privileges) {
        let is_superuser = self.role_by_oid(role).is_none_or(|role| role.superuser);
        if is_superuser || self.is_member(role, self.owner(relation), true) {
            return (all, all);
        }
        let first = first_grants(relation);
        let grants = self.access(relation).map_or(&first, |access| &access.grants).iter();
        let mine = grants.filter(|grant| grant.grantee == PUBLIC_ROLE || self.is_member(role, grant.grantee, true));
        mine.fold((Privileges::default(), Privileges::default()), |(may, grantable), grant| {
            (may.with(grant.privileges), grantable.with(grant.grantable))
        })
    }

    /// What a relation is, in words, and its name.
    pub fn relation_name(&self, oid: u32) -> Option<(&'static str, String)> {
        let table = self.table_by_oid(oid).map(|table| ("table", table.name.clone()));
        let view = || self.view_by_oid(oid).map(|view| ("view", view.name.clone()));
        let schema = || self.schema_by_oid(oid).map(|schema| ("schema", schema.name.clone()));
        table
            .or_else(view)
            .or_else(schema)
            .or_else(|| self.sequence_by_oid(oid).map(|sequence| ("sequence", sequence.name.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_and_access_are_read_as_written() {
        let mut role = RoleDefinition::new(20, "ann".to_owned());
        role.valid_until_us = Some(-7);
        role.verifier = Some("SCRAM-SHA-256$4096:a$b:c".to_owned());
        role.member_of = vec![(10, true), (11, false)];
        role.login = true;
        role.connection_limit = 3;
        let grant = Grant {
            grantee: 20,
            grantor: 10,
            privileges: Privileges::ALL_OF_TABLE,
            grantable: Privileges::SELECT.with(Privileges::USAGE),
        };
        let access = AccessDefinition { oid: 21, relation: 22, owner: 20, grants: vec![grant] };
        for object in [Object::Role(role), Object::Role(RoleDefinition::bootstrap()), Object::Access(access)] {
            assert_eq!(Object::decode(&object.encode()).unwrap(), object);
        }
    }
}
