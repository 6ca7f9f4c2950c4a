//! What has been said about objects? pg_description, pg_shdescription, and the functions that read them.

use super::relations::table;
use super::{oid, text};
use crate::context::Context;
use crate::virtual_table::{Rows, VirtualTable};
use homenode_types::Type::{Int4, Oid, Text};
use homenode_types::{Result, Value};

pub(super) static TABLES: &[VirtualTable] = &[
    table!(
        "pg_description",
        2609,
        [("objoid", Oid), ("classoid", Oid), ("objsubid", Int4), ("description", Text)],
        pg_description
    ),
    table!("pg_shdescription", 2396, [("objoid", Oid), ("classoid", Oid), ("description", Text)], pg_shdescription),
];

/// The catalogs that PostgreSQL's databases share: roles and databases.
const SHARED: [u32; 2] = [super::PG_AUTHID, 1262];

fn pg_description(context: &mut Context) -> Result<Rows> {
    let definitions = context.definitions();
    let mut rows = Vec::new();
    for entry in definitions.all_comments() {
        for comment in entry.comments.iter().filter(|comment| !SHARED.contains(&comment.class)) {
            let column = Value::Int4(comment.column as i32);
            rows.push(vec![oid(entry.object), oid(comment.class), column, text(&comment.text)]);
        }
    }
    Ok(rows)
}

fn pg_shdescription(context: &mut Context) -> Result<Rows> {
    let definitions = context.definitions();
    let mut rows = Vec::new();
    for entry in definitions.all_comments() {
        for comment in entry.comments.iter().filter(|comment| SHARED.contains(&comment.class)) {
            rows.push(vec![oid(entry.object), oid(comment.class), text(&comment.text)]);
        }
    }
    Ok(rows)
}

/// obj_description, shobj_description and col_description.
pub(super) fn call(context: &mut Context, name: &str, args: &[Value]) -> Value {
    let number = |place: usize| args.get(place).and_then(Value::as_i64).unwrap_or(0) as u32;
    let definitions = context.definitions();
    let Some(entry) = definitions.comments(number(0)) else { return Value::Null };
    let column = if name == "col_description" { number(1) } else { 0 };
    // The catalog is named by the second argument; the one form without it takes what it finds.
    let catalog = args.get(1).and_then(Value::as_str);
    let class = catalog.map(|name| crate::virtual_table::find(None, name).map_or(0, |table| table.oid));
    let wanted = |class_of: u32| match (name, class) {
        ("col_description", _) => column > 0 && !SHARED.contains(&class_of),
        ("shobj_description", class) => class == Some(class_of) && SHARED.contains(&class_of),
        (_, class) => class.is_none_or(|class| class == class_of) && !SHARED.contains(&class_of),
    };
    let found = entry.comments.iter().find(|comment| comment.column == column && wanted(comment.class));
    found.map_or(Value::Null, |comment| text(&comment.text))
}
