//! What does a transaction consist of? sysbench's OLTP transactions, and pgbench's, which is close to TPC-B.

use std::fmt;
use std::str::FromStr;

use super::keys::{Keys, Random};
use crate::client::{ClientError, Kind, Protocol, Session, Value};

/// A kind of transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Workload {
    /// One row by its key (oltp_point_select).
    PointSelect,
    /// Ten rows by key and four ranges of a hundred, one each plain, summed, ordered, distinct (oltp_read_only).
    ReadOnly,
    /// The same, then two updates, and a row deleted and inserted again (oltp_read_write).
    ReadWrite,
    /// One update of an indexed column (oltp_update_index).
    UpdateIndex,
    /// One update of a column without an index (oltp_update_non_index).
    UpdateNonIndex,
    /// pgbench's transaction: three updates, a select, an insert.
    TpcB,
}

/// All, by name.
pub const ALL: [(&str, Workload); 6] = [
    ("point-select", Workload::PointSelect),
    ("read-only", Workload::ReadOnly),
    ("read-write", Workload::ReadWrite),
    ("update-index", Workload::UpdateIndex),
    ("update-non-index", Workload::UpdateNonIndex),
    ("tpcb", Workload::TpcB),
];

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Workload, String> {
        let known = ALL.iter().find(|(name, _)| *name == text).map(|(_, workload)| *workload);
        known.ok_or_else(|| format!("one of {} is wanted", ALL.map(|(name, _)| name).join(", ")))
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = ALL.iter().find(|(_, workload)| workload == self).map_or("", |(name, _)| name);
        out.write_str(name)
    }
}

/// How much data there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Tables of sysbench's kind.
    pub tables: u32,
    /// Rows of each.
    pub rows: u32,
    /// Branches of TPC-B; ten tellers and 100,000 accounts each.
    pub scale: u32,
}

/// pgbench's numbers per branch.
pub const ACCOUNTS: u32 = 100_000;
/// Tellers per branch.
pub const TELLERS: u32 = 10;

/// Rows of a range (sysbench's range_size).
const RANGE_ROWS: i32 = 100;
/// Selects by key in a read-only or read-write transaction (point_selects).
const POINTS: u32 = 10;

/// Prepared statements of one sysbench table.
#[derive(Clone, Copy, Debug, Default)]
struct Table {
    point: usize,
    ranges: [usize; 4],
    update_index: usize,
    update_other: usize,
    delete: usize,
    insert: usize,
}

/// A session's prepared transactions of one workload.
#[derive(Debug)]
pub struct Transactions {
    workload: Workload,
    size: Size,
    keys: Keys,
    begin: usize,
    commit: usize,
    tables: Vec<Table>,
    tpcb: [usize; 5],
    text: String,
}

impl Transactions {
    /// Prepares the statements on a session.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn prepare(
        session: &mut dyn Session,
        workload: Workload,
        size: Size,
        keys: Keys,
    ) -> Result<Transactions, ClientError> {
        let mut own = Transactions {
            workload,
            size,
            keys,
            begin: session.prepare("BEGIN", &[])?,
            commit: session.prepare("COMMIT", &[])?,
            tables: Vec::new(),
            tpcb: [0; 5],
            text: String::new(),
        };
        if workload == Workload::TpcB {
            own.tpcb = prepare_tpcb(session)?;
        } else {
            own.tables =
                (1..=size.tables).map(|table| Table::prepare(session, workload, table)).collect::<Result<_, _>>()?;
        }
        Ok(own)
    }

    /// Runs one transaction. A retryable error leaves it to the caller to roll back and try again.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn run(&mut self, session: &mut dyn Session, random: &mut Random) -> Result<(), ClientError> {
        if self.workload == Workload::TpcB {
            return self.tpcb(session, random);
        }
        let table = self.tables[random.up_to(self.size.tables) as usize - 1];
        match self.workload {
            Workload::PointSelect => self.point(session, random, table),
            Workload::UpdateIndex => self.update_index(session, random, table),
            Workload::UpdateNonIndex => self.update_other(session, random, table),
            Workload::ReadOnly | Workload::ReadWrite | Workload::TpcB => {
                session.execute(self.begin, &[])?;
                for _ in 0..POINTS {
                    self.point(session, random, table)?;
                }
                for range in table.ranges {
                    let from = self.key(random);
                    session.execute(range, &[Value::Int(from), Value::Int(from.saturating_add(RANGE_ROWS - 1))])?;
                }
                if self.workload == Workload::ReadWrite {
                    self.update_index(session, random, table)?;
                    self.update_other(session, random, table)?;
                    self.replace(session, random, table)?;
                }
                session.execute(self.commit, &[]).map(drop)
            }
        }
    }

    fn key(&self, random: &mut Random) -> i32 {
        i32::try_from(self.keys.next(random)).unwrap_or(i32::MAX)
    }

    fn point(&self, session: &mut dyn Session, random: &mut Random, table: Table) -> Result<(), ClientError> {
        session.execute(table.point, &[Value::Int(self.key(random))]).map(drop)
    }

    fn update_index(&self, session: &mut dyn Session, random: &mut Random, table: Table) -> Result<(), ClientError> {
        session.execute(table.update_index, &[Value::Int(self.key(random))]).map(drop)
    }

    fn update_other(
        &mut self,
        session: &mut dyn Session,
        random: &mut Random,
        table: Table,
    ) -> Result<(), ClientError> {
        let key = self.key(random);
        self.text.clear();
        digits(&mut self.text, random, 10);
        session.execute(table.update_other, &[Value::Text(&self.text), Value::Int(key)]).map(drop)
    }

    fn replace(&mut self, session: &mut dyn Session, random: &mut Random, table: Table) -> Result<(), ClientError> {
        let (key, indexed) = (Value::Int(self.key(random)), Value::Int(self.key(random)));
        session.execute(table.delete, &[key])?;
        self.text.clear();
        digits(&mut self.text, random, 10);
        let split = self.text.len();
        digits(&mut self.text, random, 5);
        let (c, pad) = self.text.split_at(split);
        session.execute(table.insert, &[key, indexed, Value::Text(c), Value::Text(pad)]).map(drop)
    }

    fn tpcb(&mut self, session: &mut dyn Session, random: &mut Random) -> Result<(), ClientError> {
        let int = |number: u32| Value::Int(i32::try_from(number).unwrap_or(i32::MAX));
        let account = int(self.keys.next(random));
        let (teller, branch) = (int(random.up_to(self.size.scale * TELLERS)), int(random.up_to(self.size.scale)));
        let delta = Value::Int(random.up_to(10_001) as i32 - 5_001);
        let [accounts, select, tellers, branches, history] = self.tpcb;
        session.execute(self.begin, &[])?;
        session.execute(accounts, &[delta, account])?;
        session.execute(select, &[account])?;
        session.execute(tellers, &[delta, teller])?;
        session.execute(branches, &[delta, branch])?;
        session.execute(history, &[teller, branch, account, delta])?;
        session.execute(self.commit, &[]).map(drop)
    }
}

impl Table {
    fn prepare(session: &mut dyn Session, workload: Workload, number: u32) -> Result<Table, ClientError> {
        let mut table = Table::default();
        let mut prepare =
            |sql: &str, kinds: &[Kind]| session.prepare(&sql.replace("sbtest", &format!("sbtest{number}")), kinds);
        let int = [Kind::Int];
        let reads = matches!(workload, Workload::ReadOnly | Workload::ReadWrite);
        if reads || workload == Workload::PointSelect {
            table.point = prepare("SELECT c FROM sbtest WHERE id=$1", &int)?;
        }
        if reads {
            let ranges = [
                "SELECT c FROM sbtest WHERE id BETWEEN $1 AND $2",
                "SELECT SUM(k) FROM sbtest WHERE id BETWEEN $1 AND $2",
                "SELECT c FROM sbtest WHERE id BETWEEN $1 AND $2 ORDER BY c",
                "SELECT DISTINCT c FROM sbtest WHERE id BETWEEN $1 AND $2 ORDER BY c",
            ];
            for (slot, sql) in table.ranges.iter_mut().zip(ranges) {
                *slot = prepare(sql, &[Kind::Int; 2])?;
            }
        }
        let writes = workload == Workload::ReadWrite;
        if writes || workload == Workload::UpdateIndex {
            table.update_index = prepare("UPDATE sbtest SET k=k+1 WHERE id=$1", &int)?;
        }
        if writes || workload == Workload::UpdateNonIndex {
            table.update_other = prepare("UPDATE sbtest SET c=$1 WHERE id=$2", &[Kind::Text, Kind::Int])?;
        }
        if writes {
            table.delete = prepare("DELETE FROM sbtest WHERE id=$1", &int)?;
            let kinds = [Kind::Int, Kind::Int, Kind::Text, Kind::Text];
            table.insert = prepare("INSERT INTO sbtest (id, k, c, pad) VALUES ($1, $2, $3, $4)", &kinds)?;
        }
        Ok(table)
    }
}

fn prepare_tpcb(session: &mut dyn Session) -> Result<[usize; 5], ClientError> {
    let two = [Kind::Int; 2];
    Ok([
        session.prepare("UPDATE pgbench_accounts SET abalance = abalance + $1 WHERE aid = $2", &two)?,
        session.prepare("SELECT abalance FROM pgbench_accounts WHERE aid = $1", &[Kind::Int])?,
        session.prepare("UPDATE pgbench_tellers SET tbalance = tbalance + $1 WHERE tid = $2", &two)?,
        session.prepare("UPDATE pgbench_branches SET bbalance = bbalance + $1 WHERE bid = $2", &two)?,
        session.prepare(
            "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES ($1, $2, $3, $4, CURRENT_TIMESTAMP)",
            &[Kind::Int; 4],
        )?,
    ])
}

/// sysbench's text: groups of eleven digits with `-` between them (ten groups for `c`, five for `pad`).
pub fn digits(out: &mut String, random: &mut Random, groups: u32) {
    for group in 0..groups {
        if group > 0 {
            out.push('-');
        }
        let mut bits = random.bits();
        for _ in 0..11 {
            out.push(char::from(b'0' + (bits % 10) as u8));
            bits /= 10;
        }
    }
}

/// Statements that make the tables; the rows come by [`super::load`].
pub fn schema(workloads: &[Workload], size: Size, protocol: Protocol) -> Vec<String> {
    let end = if protocol == Protocol::MariaDb { " ENGINE=InnoDB" } else { "" };
    let mut statements = Vec::new();
    if workloads.iter().any(|workload| *workload != Workload::TpcB) {
        for table in 1..=size.tables {
            statements.push(format!("DROP TABLE IF EXISTS sbtest{table}"));
            statements.push(format!(
                "CREATE TABLE sbtest{table} (id INTEGER NOT NULL, k INTEGER DEFAULT 0 NOT NULL, c CHAR(120) DEFAULT '' NOT NULL, \
                 pad CHAR(60) DEFAULT '' NOT NULL, PRIMARY KEY (id)){end}"
            ));
        }
    }
    if workloads.contains(&Workload::TpcB) {
        let tables = [
            ("pgbench_branches", "bid INTEGER NOT NULL, bbalance INTEGER, filler CHAR(88), PRIMARY KEY (bid)"),
            (
                "pgbench_tellers",
                "tid INTEGER NOT NULL, bid INTEGER, tbalance INTEGER, filler CHAR(84), PRIMARY KEY (tid)",
            ),
            (
                "pgbench_accounts",
                "aid INTEGER NOT NULL, bid INTEGER, abalance INTEGER, filler CHAR(84), PRIMARY KEY (aid)",
            ),
            (
                "pgbench_history",
                "tid INTEGER, bid INTEGER, aid INTEGER, delta INTEGER, mtime TIMESTAMP, filler CHAR(22)",
            ),
        ];
        for (name, columns) in tables {
            statements.push(format!("DROP TABLE IF EXISTS {name}"));
            statements.push(format!("CREATE TABLE {name} ({columns}){end}"));
        }
    }
    statements
}

/// Statements for after the load: the index of each table, built over its rows.
pub fn indexes(workloads: &[Workload], size: Size) -> Vec<String> {
    if workloads.iter().all(|workload| *workload == Workload::TpcB) {
        return Vec::new();
    }
    (1..=size.tables).map(|table| format!("CREATE INDEX k_{table} ON sbtest{table} (k)")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::keys::Distribution;
    use crate::client::TextRows;

    /// Notes what it is asked to do.
    #[derive(Default)]
    struct Double {
        prepared: Vec<String>,
        executed: Vec<String>,
    }

    impl Session for Double {
        fn prepare(&mut self, sql: &str, kinds: &[Kind]) -> Result<usize, ClientError> {
            assert_eq!(sql.matches('$').count(), kinds.len(), "{sql}");
            self.prepared.push(sql.to_owned());
            Ok(self.prepared.len() - 1)
        }

        fn execute(&mut self, statement: usize, values: &[Value<'_>]) -> Result<u64, ClientError> {
            let sql = &self.prepared[statement];
            assert_eq!(sql.matches('$').count(), values.len(), "{sql}");
            self.executed.push(sql.split(' ').next().unwrap_or("").to_owned());
            Ok(1)
        }

        fn query(&mut self, _: &str) -> Result<TextRows, ClientError> {
            Ok(Vec::new())
        }
    }

    fn of(workload: Workload) -> String {
        let mut session = Double::default();
        let size = Size { tables: 2, rows: 1000, scale: 1 };
        let keys = Keys::new(Distribution::Uniform, 1000);
        let mut transactions = Transactions::prepare(&mut session, workload, size, keys).unwrap();
        transactions.run(&mut session, &mut Random::new(1)).unwrap();
        session.executed.join(" ")
    }

    #[test]
    fn transactions_are_sysbenchs_and_pgbenchs() {
        let reads = ["SELECT"; 14].join(" ");
        assert_eq!(of(Workload::PointSelect), "SELECT");
        assert_eq!(of(Workload::ReadOnly), format!("BEGIN {reads} COMMIT"));
        assert_eq!(of(Workload::ReadWrite), format!("BEGIN {reads} UPDATE UPDATE DELETE INSERT COMMIT"));
        assert_eq!((of(Workload::UpdateIndex), of(Workload::UpdateNonIndex)), ("UPDATE".into(), "UPDATE".into()));
        assert_eq!(of(Workload::TpcB), "BEGIN UPDATE SELECT UPDATE UPDATE INSERT COMMIT");
    }

    #[test]
    fn names_are_read_and_texts_have_sysbenchs_form() {
        for (name, workload) in ALL {
            assert_eq!((name.parse(), workload.to_string()), (Ok(workload), name.to_owned()));
        }
        assert!("select".parse::<Workload>().is_err());
        let mut text = String::new();
        digits(&mut text, &mut Random::new(3), 10);
        assert_eq!((text.len(), text.matches('-').count()), (119, 9));
    }
}
