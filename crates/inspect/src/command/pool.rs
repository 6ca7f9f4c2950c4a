//! What is in MariaDB's pool, and on which node? InnoDB's own counts, and names for the pages that were found.

use std::collections::{BTreeMap, HashMap};

use homenode_topology::Topology;
use serde_json::{Value, json};

use super::inside::{ByNode, by_node_table};
use super::locate::by_node_json;
use crate::InspectError;
use crate::client::{Address, ClientError, MariaDb, Protocol, Session, TextRows};
use crate::place::mariadb::{Owner, Owners, count_pool};
use crate::text::size;

/// What was found.
#[derive(Debug)]
pub(super) struct Pool {
    frame_bytes: u64,
    /// Frames of the pool, those of them that are free, that hold a page, and that hold a changed one.
    frames: [u64; 4],
    /// Reads of pages, and those of them that went to the disk, since the server started.
    reads: [u64; 2],
    tables: ByNode,
}

/// Asks the server and looks at the pages of its pool. The questions are light: `INNODB_BUFFER_PAGE`, which would list every page, makes
/// the server go through its whole pool and is left alone.
pub(super) fn ask(connection: &str, pid: u32) -> Result<Pool, InspectError> {
    let address = Address::parse(Protocol::MariaDb, connection).map_err(InspectError::Refused)?;
    let failed = |error: ClientError| InspectError::Refused(format!("MariaDB: {error}"));
    let mut client = MariaDb::connect(&address).map_err(failed)?;
    let mut ask = |sql: &str| client.query(sql).map_err(failed);
    let row = numbers(&ask("select @@innodb_page_size")?)?;
    let frame_bytes = *row.first().filter(|bytes| (4096..=65_536).contains(*bytes)).ok_or_else(unknown)?;
    let frames = numbers(&ask(
        "select cast(sum(pool_size) as unsigned), cast(sum(free_buffers) as unsigned), cast(sum(database_pages) as unsigned), \
         cast(sum(modified_database_pages) as unsigned) from information_schema.innodb_buffer_pool_stats",
    )?)?;
    let reads = numbers(&ask(
        "select max(case variable_name when 'INNODB_BUFFER_POOL_READ_REQUESTS' then variable_value end), \
         max(case variable_name when 'INNODB_BUFFER_POOL_READS' then variable_value end) from information_schema.global_status",
    )?)?;
    let names = Names {
        spaces: named(&ask("select space, name from information_schema.innodb_sys_tablespaces")?),
        indexes: named(&ask(
            "select i.index_id, concat(t.name, '.', i.name) from information_schema.innodb_sys_indexes i \
             join information_schema.innodb_sys_tables t on t.table_id = i.table_id",
        )?),
    };
    Ok(Pool {
        frame_bytes,
        frames: frames.try_into().map_err(|_| unknown())?,
        reads: reads.try_into().map_err(|_| unknown())?,
        tables: names.of(&count_pool(pid, frame_bytes)?),
    })
}

fn unknown() -> InspectError {
    InspectError::Refused("MariaDB: an answer is in another form than this command knows".to_owned())
}

/// The numbers of a single row.
fn numbers(rows: &TextRows) -> Result<Vec<u64>, InspectError> {
    let row = rows.first().ok_or_else(unknown)?;
    row.iter().map(|field| field.as_ref().and_then(|text| text.parse().ok()).ok_or_else(unknown)).collect()
}

fn named(rows: &TextRows) -> HashMap<u64, String> {
    let pair = |row: &Vec<Option<String>>| match &row[..] {
        [Some(number), Some(name)] => Some((number.parse().ok()?, name.clone())),
        _ => None,
    };
    rows.iter().filter_map(pair).collect()
}

/// Names by number.
struct Names {
    spaces: HashMap<u64, String>,
    indexes: HashMap<u64, String>,
}

impl Names {
    /// Sums by name. What neither a tablespace nor an index is known for is of tables that are gone, or was never a page.
    fn of(&self, owners: &Owners) -> ByNode {
        let mut sums = ByNode::new();
        for (owner, by_node) in owners {
            let Some(name) = self.name(owner) else { continue };
            let sum = sums.entry(name).or_default();
            by_node.iter().for_each(|(node, bytes)| *sum.entry(*node).or_default() += bytes);
        }
        sums
    }

    fn name(&self, owner: &Owner) -> Option<String> {
        if let Some(index) = owner.index {
            return self.indexes.get(&index).cloned();
        }
        match (owner.space, self.spaces.get(&u64::from(owner.space))) {
            (0, _) => Some("(system tablespace, undo)".to_owned()),
            (_, Some(name)) if name.starts_with("innodb_undo") => Some("(undo tablespaces)".to_owned()),
            (_, Some(name)) => Some(format!("{name} (long values and maps)")),
            (_, None) => None,
        }
    }
}

impl Pool {
    fn found_bytes(&self) -> u64 {
        self.tables.values().flat_map(BTreeMap::values).sum()
    }

    pub(super) fn as_text(&self, topology: &Topology) -> String {
        let ids: Vec<usize> = topology.nodes().iter().map(|node| node.id).collect();
        let [frames, free, used, changed] = self.frames.map(|count| size(count * self.frame_bytes));
        let hits = 100.0 - self.reads[1] as f64 * 100.0 / (self.reads[0] as f64).max(1.0);
        let mut text = format!(
            "\nInnoDB's pool by its own count: {frames}; {used} hold pages ({changed} changed), {free} free; {hits:.2}% of reads found \
             their page in it since the start\n\n"
        );
        text.push_str(&by_node_table("<index of a table in the pool", &self.tables, &ids, 20));
        if self.found_bytes() > self.frames[2] * self.frame_bytes * 11 / 10 {
            text.push_str("note: free parts of the pool still hold what was in them, and are counted as that\n");
        }
        text
    }

    pub(super) fn as_json(&self) -> Value {
        let [frames, free, used, changed] = self.frames.map(|count| count * self.frame_bytes);
        let tables = self.tables.iter().map(|(name, by_node)| (name.clone(), by_node_json(by_node)));
        json!({
            "pool_bytes": frames,
            "free_bytes": free,
            "used_bytes": used,
            "changed_bytes": changed,
            "page_reads": self.reads[0],
            "page_reads_from_disk": self.reads[1],
            "tables": tables.collect::<serde_json::Map<_, _>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_get_the_names_of_their_tables() {
        let names = Names {
            spaces: HashMap::from([(3, "innodb_undo003".to_owned()), (9, "db/t".to_owned())]),
            indexes: HashMap::from([(20, "db/t.PRIMARY".to_owned())]),
        };
        let owner = |space, index| Owner { space, index };
        let bytes = |bytes| BTreeMap::from([(1, bytes)]);
        let owners = Owners::from([
            (owner(9, Some(20)), bytes(16)),
            (owner(9, None), bytes(8)),
            (owner(0, None), bytes(4)),
            (owner(3, None), bytes(2)),
            (owner(9, Some(99)), bytes(1)),
            (owner(77, None), bytes(1)),
        ]);
        let sums = names.of(&owners);
        assert_eq!(sums.len(), 4, "{sums:?}");
        assert_eq!(sums["db/t.PRIMARY"], bytes(16));
        assert_eq!(sums["db/t (long values and maps)"], bytes(8));
        assert_eq!(sums["(undo tablespaces)"], bytes(2));
    }

    #[test]
    fn answers_in_another_form_are_refused() {
        let row = |fields: &[Option<&str>]| vec![fields.iter().map(|field| field.map(str::to_owned)).collect()];
        assert_eq!(numbers(&row(&[Some("1"), Some("2")])).unwrap(), [1, 2]);
        for rows in [row(&[None]), row(&[Some("x")]), Vec::new()] {
            assert!(numbers(&rows).is_err(), "{rows:?}");
        }
        assert!(named(&row(&[Some("1")])).is_empty());
    }
}
