//! What is the same in every database? Schemas, types, access methods, the role, and catalogs that have no rows here.

use super::relations::table;
use super::{BTREE_AM_OID, DATABASE_OID, HEAP_AM_OID, PG_CATALOG_OID, ROLE_OID, flag, none, oid, procedures, text};
use crate::context::Context;
use crate::virtual_table::{Rows, VirtualTable};
use homenode_engine::{Privileges, RoleDefinition};
use homenode_types::Type::{
    self, Bool, Char, Int2, Int2Vector, Int4, Int8, Name, NameArray, Oid, OidVector, PgNodeTree, Regproc, Text,
    TextArray, Timestamptz, Xid,
};
use homenode_types::{Category, Result, TYPES, Value};

/// pg_collation's row for the database's default.
pub(super) const DEFAULT_COLLATION_OID: u32 = 100;

pub(super) static TABLES: &[VirtualTable] = &[
    table!(
        "pg_namespace",
        2615,
        [("oid", Oid), ("nspname", Name), ("nspowner", Oid), ("nspacl", TextArray)],
        pg_namespace
    ),
    table!("pg_am", 2601, [("oid", Oid), ("amname", Name), ("amhandler", Regproc), ("amtype", Char)], pg_am),
    table!(
        "pg_type",
        1247,
        [
            ("oid", Oid),
            ("typname", Name),
            ("typnamespace", Oid),
            ("typowner", Oid),
            ("typlen", Int2),
            ("typbyval", Bool),
            ("typtype", Char),
            ("typcategory", Char),
            ("typispreferred", Bool),
            ("typisdefined", Bool),
            ("typdelim", Char),
            ("typrelid", Oid),
            ("typsubscript", Regproc),
            ("typelem", Oid),
            ("typarray", Oid),
            ("typinput", Regproc),
            ("typoutput", Regproc),
            ("typreceive", Regproc),
            ("typsend", Regproc),
            ("typnotnull", Bool),
            ("typbasetype", Oid),
            ("typtypmod", Int4),
            ("typndims", Int4),
            ("typcollation", Oid),
            ("typdefault", Text),
            ("typacl", TextArray),
        ],
        pg_type
    ),
    table!(
        "pg_database",
        1262,
        [
            ("oid", Oid),
            ("datname", Name),
            ("datdba", Oid),
            ("encoding", Int4),
            ("datlocprovider", Char),
            ("datistemplate", Bool),
            ("datallowconn", Bool),
            ("datconnlimit", Int4),
            ("datfrozenxid", Xid),
            ("datminmxid", Xid),
            ("dattablespace", Oid),
            ("datcollate", Text),
            ("datctype", Text),
            ("daticulocale", Text),
            ("datcollversion", Text),
            ("datacl", TextArray),
        ],
        pg_database
    ),
    table!(
        "pg_roles",
        12_000,
        [
            ("rolname", Name),
            ("rolsuper", Bool),
            ("rolinherit", Bool),
            ("rolcreaterole", Bool),
            ("rolcreatedb", Bool),
            ("rolcanlogin", Bool),
            ("rolreplication", Bool),
            ("rolconnlimit", Int4),
            ("rolpassword", Text),
            ("rolvaliduntil", Timestamptz),
            ("rolbypassrls", Bool),
            ("rolconfig", TextArray),
            ("oid", Oid),
        ],
        pg_roles
    ),
    table!(
        "pg_authid",
        1260,
        [
            ("oid", Oid),
            ("rolname", Name),
            ("rolsuper", Bool),
            ("rolinherit", Bool),
            ("rolcreaterole", Bool),
            ("rolcreatedb", Bool),
            ("rolcanlogin", Bool),
            ("rolreplication", Bool),
            ("rolbypassrls", Bool),
            ("rolconnlimit", Int4),
            ("rolpassword", Text),
            ("rolvaliduntil", Timestamptz),
        ],
        pg_authid
    ),
    table!(
        "pg_user",
        12_001,
        [
            ("usename", Name),
            ("usesysid", Oid),
            ("usecreatedb", Bool),
            ("usesuper", Bool),
            ("userepl", Bool),
            ("usebypassrls", Bool),
            ("passwd", Text),
            ("valuntil", Timestamptz),
            ("useconfig", TextArray),
        ],
        pg_user
    ),
    table!(
        "pg_settings",
        12_002,
        [
            ("name", Text),
            ("setting", Text),
            ("unit", Text),
            ("category", Text),
            ("short_desc", Text),
            ("context", Text),
            ("vartype", Text),
            ("source", Text),
            ("boot_val", Text),
            ("reset_val", Text),
        ],
        pg_settings
    ),
    table!(
        "pg_collation",
        3456,
        [
            ("oid", Oid),
            ("collname", Name),
            ("collnamespace", Oid),
            ("collowner", Oid),
            ("collprovider", Char),
            ("collisdeterministic", Bool),
            ("collencoding", Int4),
            ("collcollate", Text),
            ("collctype", Text),
            ("colliculocale", Text),
            ("collversion", Text),
        ],
        pg_collation
    ),
    table!(
        "pg_tablespace",
        1213,
        [("oid", Oid), ("spcname", Name), ("spcowner", Oid), ("spcacl", TextArray), ("spcoptions", TextArray),],
        pg_tablespace
    ),
    table!(
        "pg_inherits",
        2611,
        [("inhrelid", Oid), ("inhparent", Oid), ("inhseqno", Int4), ("inhdetachpending", Bool)],
        none
    ),
    table!(
        "pg_partitioned_table",
        3350,
        [
            ("partrelid", Oid),
            ("partstrat", Char),
            ("partnatts", Int2),
            ("partdefid", Oid),
            ("partattrs", Int2Vector),
            ("partclass", OidVector),
            ("partcollation", OidVector),
            ("partexprs", PgNodeTree),
        ],
        none
    ),
    table!(
        "pg_policy",
        3256,
        [
            ("oid", Oid),
            ("polname", Name),
            ("polrelid", Oid),
            ("polcmd", Char),
            ("polpermissive", Bool),
            ("polroles", Type::OidArray),
            ("polqual", PgNodeTree),
            ("polwithcheck", PgNodeTree),
        ],
        none
    ),
    table!(
        "pg_statistic_ext",
        3381,
        [
            ("oid", Oid),
            ("stxrelid", Oid),
            ("stxname", Name),
            ("stxnamespace", Oid),
            ("stxowner", Oid),
            ("stxstattarget", Int4),
            ("stxkeys", Int2Vector),
            ("stxkind", Type::CharArray),
            ("stxexprs", PgNodeTree),
        ],
        none
    ),
    table!(
        "pg_publication",
        6104,
        [
            ("oid", Oid),
            ("pubname", Name),
            ("pubowner", Oid),
            ("puballtables", Bool),
            ("pubinsert", Bool),
            ("pubupdate", Bool),
            ("pubdelete", Bool),
            ("pubtruncate", Bool),
            ("pubviaroot", Bool),
        ],
        none
    ),
    table!(
        "pg_publication_rel",
        6106,
        [("oid", Oid), ("prpubid", Oid), ("prrelid", Oid), ("prqual", PgNodeTree), ("prattrs", Int2Vector),],
        none
    ),
    table!("pg_publication_namespace", 6237, [("oid", Oid), ("pnpubid", Oid), ("pnnspid", Oid)], none),
    table!(
        "pg_trigger",
        2620,
        [
            ("oid", Oid),
            ("tgrelid", Oid),
            ("tgparentid", Oid),
            ("tgname", Name),
            ("tgfoid", Oid),
            ("tgtype", Int2),
            ("tgenabled", Char),
            ("tgisinternal", Bool),
            ("tgconstrrelid", Oid),
            ("tgconstrindid", Oid),
            ("tgconstraint", Oid),
            ("tgdeferrable", Bool),
            ("tginitdeferred", Bool),
            ("tgnargs", Int2),
            ("tgattr", Int2Vector),
            ("tgqual", PgNodeTree),
            ("tgoldtable", Name),
            ("tgnewtable", Name),
        ],
        none
    ),
    table!(
        "pg_rewrite",
        2618,
        [
            ("oid", Oid),
            ("rulename", Name),
            ("ev_class", Oid),
            ("ev_type", Char),
            ("ev_enabled", Char),
            ("is_instead", Bool),
            ("ev_qual", PgNodeTree),
            ("ev_action", PgNodeTree),
        ],
        none
    ),
    table!("pg_foreign_table", 3118, [("ftrelid", Oid), ("ftserver", Oid), ("ftoptions", TextArray)], none),
    table!(
        "pg_foreign_server",
        1417,
        [
            ("oid", Oid),
            ("srvname", Name),
            ("srvowner", Oid),
            ("srvfdw", Oid),
            ("srvtype", Text),
            ("srvversion", Text),
            ("srvacl", TextArray),
            ("srvoptions", TextArray),
        ],
        none
    ),
    table!(
        "pg_language",
        2612,
        [("oid", Oid), ("lanname", Name), ("lanowner", Oid), ("lanispl", Bool), ("lanpltrusted", Bool)],
        none
    ),
    table!(
        "pg_extension",
        3079,
        [
            ("oid", Oid),
            ("extname", Name),
            ("extowner", Oid),
            ("extnamespace", Oid),
            ("extrelocatable", Bool),
            ("extversion", Text),
        ],
        none
    ),
    table!(
        "pg_enum",
        3501,
        [("oid", Oid), ("enumtypid", Oid), ("enumsortorder", Type::Float4), ("enumlabel", Name)],
        none
    ),
    table!(
        "pg_range",
        3541,
        [("rngtypid", Oid), ("rngsubtype", Oid), ("rngmultitypid", Oid), ("rngcollation", Oid)],
        none
    ),
    table!(
        "pg_opclass",
        2616,
        [
            ("oid", Oid),
            ("opcmethod", Oid),
            ("opcname", Name),
            ("opcnamespace", Oid),
            ("opcowner", Oid),
            ("opcintype", Oid),
            ("opcdefault", Bool),
            ("opckeytype", Oid),
        ],
        none
    ),
    table!(
        "pg_views",
        12_003,
        [("schemaname", Name), ("viewname", Name), ("viewowner", Name), ("definition", Text)],
        none
    ),
    table!("pg_matviews", 12_004, [("schemaname", Name), ("matviewname", Name), ("definition", Text)], none),
    table!(
        "pg_auth_members",
        1261,
        [("roleid", Oid), ("member", Oid), ("grantor", Oid), ("admin_option", Bool)],
        pg_auth_members
    ),
    table!("pg_db_role_setting", 2964, [("setdatabase", Oid), ("setrole", Oid), ("setconfig", TextArray)], none),
    table!(
        "pg_prepared_xacts",
        12_005,
        [("gid", Text), ("prepared", Timestamptz), ("owner", Name), ("database", Name)],
        none
    ),
    table!(
        "pg_stat_replication",
        12_006,
        [("pid", Int4), ("usename", Name), ("application_name", Text), ("state", Text)],
        none
    ),
    table!(
        "pg_prepared_statements",
        12_007,
        [("name", Text), ("statement", Text), ("parameter_types", NameArray)],
        none
    ),
    table!(
        "pg_statio_user_tables",
        12_008,
        [("relid", Oid), ("schemaname", Name), ("relname", Name), ("heap_blks_read", Int8)],
        none
    ),
];

fn pg_namespace(context: &mut Context) -> Result<Rows> {
    let definitions = context.definitions();
    let row = |(number, name): (u32, String)| {
        let access = super::relations::access_value(&definitions, number, Privileges::ALL_OF_SCHEMA);
        vec![oid(number), text(name), oid(definitions.owner(number)), access]
    };
    Ok(super::schemas(&definitions).into_iter().map(row).collect())
}

fn pg_am(_: &mut Context) -> Result<Rows> {
    Ok(vec![
        vec![oid(HEAP_AM_OID), text("heap"), oid(0), text("t")],
        vec![oid(BTREE_AM_OID), text("btree"), oid(0), text("i")],
    ])
}

fn category(category: Category) -> &'static str {
    match category {
        Category::Array => "A",
        Category::Boolean => "B",
        Category::DateTime => "D",
        Category::Numeric => "N",
        Category::Pseudo => "P",
        Category::String => "S",
        Category::Timespan => "T",
        Category::User => "U",
        Category::Unknown => "X",
        Category::Internal => "Z",
    }
}

fn pg_type(_: &mut Context) -> Result<Rows> {
    let rows = TYPES.iter().map(|info| {
        let kind = if info.category == Category::Pseudo { "p" } else { "b" };
        let collation = if info.ty.is_string() { DEFAULT_COLLATION_OID } else { 0 };
        let element = info.element.map_or(0, |element| element.oid());
        let mut row = vec![oid(info.oid), text(info.name), oid(PG_CATALOG_OID), oid(ROLE_OID), Value::Int2(info.len)];
        row.extend([
            flag(matches!(info.len, 1 | 2 | 4 | 8)),
            text(kind),
            text(category(info.category)),
            flag(false),
            flag(true),
        ]);
        let [subscript, functions @ ..] = procedures::of_type(info);
        row.extend([text(","), oid(0), oid(subscript), oid(element), oid(info.array_oid)]);
        row.extend(functions.map(oid));
        row.extend([flag(false), oid(0), Value::Int4(-1), Value::Int4(0), oid(collation), Value::Null, Value::Null]);
        row
    });
    Ok(rows.collect())
}

fn pg_database(context: &mut Context) -> Result<Rows> {
    let mut row =
        vec![oid(DATABASE_OID), text(&context.database_name), oid(ROLE_OID), Value::Int4(6), text("c"), flag(false)];
    row.extend([
        flag(true),
        Value::Int4(-1),
        oid(0),
        oid(0),
        oid(1663),
        text("C"),
        text("C"),
        Value::Null,
        Value::Null,
        Value::Null,
    ]);
    Ok(vec![row])
}

fn valid_until(role: &RoleDefinition) -> Value {
    role.valid_until_us.map_or(Value::Null, Value::Timestamptz)
}

fn pg_roles(context: &mut Context) -> Result<Rows> {
    let rows = context.definitions().roles().into_iter().map(|role| {
        let mut row = vec![text(&role.name), flag(role.superuser), flag(role.inherit), flag(role.create_role)];
        row.extend([flag(role.create_db), flag(role.login), flag(false), Value::Int4(role.connection_limit)]);
        row.extend([text("********"), valid_until(&role), flag(role.superuser), Value::Null, oid(role.oid)]);
        row
    });
    Ok(rows.collect())
}

fn pg_authid(context: &mut Context) -> Result<Rows> {
    let rows = context.definitions().roles().into_iter().map(|role| {
        let mut row = vec![oid(role.oid), text(&role.name), flag(role.superuser), flag(role.inherit)];
        row.extend([flag(role.create_role), flag(role.create_db), flag(role.login), flag(false)]);
        row.extend([flag(role.superuser), Value::Int4(role.connection_limit)]);
        row.extend([role.verifier.as_ref().map_or(Value::Null, text), valid_until(&role)]);
        row
    });
    Ok(rows.collect())
}

fn pg_user(context: &mut Context) -> Result<Rows> {
    let roles = context.definitions().roles().into_iter().filter(|role| role.login);
    let rows = roles.map(|role| {
        let mut row = vec![text(&role.name), oid(role.oid), flag(role.create_db), flag(role.superuser), flag(false)];
        row.extend([flag(role.superuser), text("********"), valid_until(&role), Value::Null]);
        row
    });
    Ok(rows.collect())
}

fn pg_auth_members(context: &mut Context) -> Result<Rows> {
    let mut rows = Vec::new();
    for role in context.definitions().roles() {
        for (group, admin) in &role.member_of {
            rows.push(vec![oid(*group), oid(role.oid), oid(ROLE_OID), flag(*admin)]);
        }
    }
    Ok(rows)
}

fn pg_settings(context: &mut Context) -> Result<Rows> {
    let names: Vec<_> = context.settings.all().map(|(definition, _)| definition).collect();
    let mut rows = Vec::with_capacity(names.len());
    for definition in names {
        let value = context.setting(definition.name)?;
        let mut row =
            vec![text(crate::settings::display_name(definition.name)), text(value), Value::Null, text("Homenode")];
        row.extend([text(definition.description), text("user"), text("string"), text("session")]);
        row.extend([text(definition.default), text(definition.default)]);
        rows.push(row);
    }
    Ok(rows)
}

fn pg_collation(_: &mut Context) -> Result<Rows> {
    let collations = [(DEFAULT_COLLATION_OID, "default", "d"), (950, "C", "c"), (951, "POSIX", "c")];
    let rows = collations.iter().map(|(number, name, provider)| {
        let mut row = vec![oid(*number), text(*name), oid(PG_CATALOG_OID), oid(ROLE_OID), text(*provider), flag(true)];
        row.extend([Value::Int4(-1), text("C"), text("C"), Value::Null, Value::Null]);
        row
    });
    Ok(rows.collect())
}

fn pg_tablespace(_: &mut Context) -> Result<Rows> {
    Ok(vec![vec![oid(1663), text("pg_default"), oid(ROLE_OID), Value::Null, Value::Null]])
}
