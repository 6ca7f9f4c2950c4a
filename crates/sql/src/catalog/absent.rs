//! What has PostgreSQL that is not here? Catalogs of objects that cannot be made: clients ask for them, and there are none.

use super::none;
use super::relations::table;
use crate::virtual_table::VirtualTable;
use homenode_types::Type::{Bool, Char, Int4, Name, Oid, Regproc, Text, TextArray};

pub(super) static TABLES: &[VirtualTable] = &[
    table!(
        "pg_conversion",
        2607,
        [
            ("oid", Oid),
            ("conname", Name),
            ("connamespace", Oid),
            ("conowner", Oid),
            ("conforencoding", Int4),
            ("contoencoding", Int4),
            ("conproc", Regproc),
            ("condefault", Bool)
        ],
        none
    ),
    table!(
        "pg_default_acl",
        826,
        [
            ("oid", Oid),
            ("defaclrole", Oid),
            ("defaclnamespace", Oid),
            ("defaclobjtype", Char),
            ("defaclacl", TextArray)
        ],
        none
    ),
    table!(
        "pg_foreign_data_wrapper",
        2328,
        [
            ("oid", Oid),
            ("fdwname", Name),
            ("fdwowner", Oid),
            ("fdwhandler", Oid),
            ("fdwvalidator", Oid),
            ("fdwacl", TextArray),
            ("fdwoptions", TextArray)
        ],
        none
    ),
    table!("pg_user_mapping", 1418, [("oid", Oid), ("umuser", Oid), ("umserver", Oid), ("umoptions", TextArray)], none),
    table!(
        "pg_user_mappings",
        12_040,
        [
            ("umid", Oid),
            ("srvid", Oid),
            ("srvname", Name),
            ("umuser", Oid),
            ("usename", Name),
            ("umoptions", TextArray)
        ],
        none
    ),
    table!(
        "pg_ts_config",
        3602,
        [("oid", Oid), ("cfgname", Name), ("cfgnamespace", Oid), ("cfgowner", Oid), ("cfgparser", Oid)],
        none
    ),
    table!(
        "pg_ts_dict",
        3600,
        [
            ("oid", Oid),
            ("dictname", Name),
            ("dictnamespace", Oid),
            ("dictowner", Oid),
            ("dicttemplate", Oid),
            ("dictinitoption", Text)
        ],
        none
    ),
    table!(
        "pg_ts_parser",
        3601,
        [
            ("oid", Oid),
            ("prsname", Name),
            ("prsnamespace", Oid),
            ("prsstart", Regproc),
            ("prstoken", Regproc),
            ("prsend", Regproc),
            ("prsheadline", Regproc),
            ("prslextype", Regproc)
        ],
        none
    ),
    table!(
        "pg_ts_template",
        3764,
        [("oid", Oid), ("tmplname", Name), ("tmplnamespace", Oid), ("tmplinit", Regproc), ("tmpllexize", Regproc)],
        none
    ),
    table!("pg_largeobject_metadata", 2995, [("oid", Oid), ("lomowner", Oid), ("lomacl", TextArray)], none),
    table!(
        "pg_subscription",
        6100,
        [
            ("oid", Oid),
            ("subdbid", Oid),
            ("subskiplsn", Text),
            ("subname", Name),
            ("subowner", Oid),
            ("subenabled", Bool),
            ("subbinary", Bool),
            ("substream", Bool),
            ("subtwophasestate", Char),
            ("subdisableonerr", Bool),
            ("subconninfo", Text),
            ("subslotname", Name),
            ("subsynccommit", Text),
            ("subpublications", TextArray)
        ],
        none
    ),
    table!(
        "pg_event_trigger",
        3466,
        [
            ("oid", Oid),
            ("evtname", Name),
            ("evtevent", Name),
            ("evtowner", Oid),
            ("evtfoid", Oid),
            ("evtenabled", Char),
            ("evttags", TextArray)
        ],
        none
    ),
    table!(
        "pg_seclabel",
        3596,
        [("objoid", Oid), ("classoid", Oid), ("objsubid", Int4), ("provider", Text), ("label", Text)],
        none
    ),
    table!(
        "pg_seclabels",
        12_041,
        [
            ("objoid", Oid),
            ("classoid", Oid),
            ("objsubid", Int4),
            ("objtype", Text),
            ("objnamespace", Oid),
            ("objname", Text),
            ("provider", Text),
            ("label", Text)
        ],
        none
    ),
];
