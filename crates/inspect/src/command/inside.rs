//! Which tables and parts of PostgreSQL's shared memory are on which node? The questions to the server.

use std::collections::BTreeMap;

use homenode_topology::Topology;
use postgres::{Client, NoTls};
use serde_json::{Value, json};

use super::locate::by_node_json;
use crate::InspectError;
use crate::place::postgres::{Part, by_name};
use crate::text::{Table, size};
use crate::waits::reason;

pub(super) type ByNode = BTreeMap<String, BTreeMap<usize, u64>>;

/// The answers.
#[derive(Debug)]
pub(super) struct Inside {
    parts: ByNode,
    tables: Option<ByNode>,
}

/// Asks the server. `pages` is the node of each page of its shared memory.
pub(super) fn ask(connection: &str, page_bytes: u64, pages: &[Option<u16>]) -> Result<Inside, InspectError> {
    let failed = |error: postgres::Error| InspectError::Refused(format!("PostgreSQL: {}", reason(&error)));
    let mut client = Client::connect(connection, NoTls).map_err(failed)?;
    let rows = client
        .query(
            "select name, off, allocated_size from pg_shmem_allocations where name is not null and off is not null",
            &[],
        )
        .map_err(failed)?;
    let parts: Vec<Part> = rows
        .iter()
        .map(|row| Part { name: row.get(0), offset: unsigned(row.get(1)), bytes: unsigned(row.get(2)) })
        .collect();
    let blocks = parts.iter().find(|part| part.name == "Buffer Blocks").cloned();
    let installed = client.query("select 1 from pg_extension where extname = 'pg_buffercache'", &[]).map_err(failed)?;
    let tables = match blocks.filter(|_| !installed.is_empty()) {
        Some(blocks) => Some(by_name(&table_parts(&mut client, &blocks).map_err(failed)?, page_bytes, pages)),
        None => None,
    };
    Ok(Inside { parts: by_name(&parts, page_bytes, pages), tables })
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// One part a buffer in use: the table whose page it holds, and where the buffer lies.
fn table_parts(client: &mut Client, blocks: &Part) -> Result<Vec<Part>, postgres::Error> {
    let block_bytes: i64 = client.query_one("select current_setting('block_size')::bigint", &[])?.get(0);
    let block_bytes = unsigned(block_bytes);
    // Only this database's tables have names here; the others' are counted together.
    let rows = client.query(
        "select b.bufferid, coalesce(c.relname::text, '(other databases)') from pg_buffercache b \
         left join pg_class c on b.relfilenode = pg_relation_filenode(c.oid) \
         and b.reldatabase in (0, (select oid from pg_database where datname = current_database())) \
         where b.relfilenode is not null",
        &[],
    )?;
    let buffers = rows.iter().map(|row| {
        let buffer: i32 = row.get(0);
        Part {
            name: row.get(1),
            offset: blocks.offset + (u64::try_from(buffer).unwrap_or(1) - 1) * block_bytes,
            bytes: block_bytes,
        }
    });
    Ok(buffers.collect())
}

impl Inside {
    pub(super) fn as_text(&self, topology: &Topology) -> String {
        let ids: Vec<usize> = topology.nodes().iter().map(|node| node.id).collect();
        let mut text = format!("\n{}", by_node_table("<part of shared memory", &self.parts, &ids, 12));
        match &self.tables {
            Some(tables) => {
                text.push_str(&format!("\n{}", by_node_table("<table or index in the buffers", tables, &ids, 20)))
            }
            None => text.push_str("\ntables by node: create extension pg_buffercache in this database first\n"),
        }
        text
    }

    pub(super) fn as_json(&self) -> Value {
        let json = |sums: &ByNode| -> Value {
            sums.iter()
                .map(|(name, by_node)| (name.clone(), by_node_json(by_node)))
                .collect::<serde_json::Map<_, _>>()
                .into()
        };
        json!({ "parts": json(&self.parts), "tables": self.tables.as_ref().map(json) })
    }
}

/// The largest `most` names, and the rest as one.
pub(super) fn by_node_table(heading: &str, sums: &ByNode, ids: &[usize], most: usize) -> String {
    let mut names: Vec<(&str, &BTreeMap<usize, u64>)> = sums.iter().map(|(name, sum)| (name.as_str(), sum)).collect();
    names.retain(|(_, sum)| !sum.is_empty());
    names.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.values().sum::<u64>()));
    let mut heading = vec![heading.to_owned(), "present".to_owned()];
    heading.extend(ids.iter().map(|id| format!("node {id}")));
    let mut table = Table::new(&heading);
    let mut row = |name: String, sum: &BTreeMap<usize, u64>| {
        let bytes = ids.iter().map(|id| sum.get(id).map_or("-".to_owned(), |bytes| size(*bytes)));
        table.row([name, size(sum.values().sum())].into_iter().chain(bytes));
    };
    names.iter().take(most).for_each(|(name, sum)| row((*name).to_owned(), sum));
    if names.len() > most {
        let mut rest: BTreeMap<usize, u64> = BTreeMap::new();
        for (node, bytes) in names[most..].iter().flat_map(|(_, sum)| sum.iter()) {
            *rest.entry(*node).or_default() += bytes;
        }
        row(format!("({} others)", names.len() - most), &rest);
    }
    table.render()
}
