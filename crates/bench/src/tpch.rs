//! What is TPC-H? Its tables, rows and 22 queries with the values that the specification validates answers by.
//!
//! Rows are those of `dbgen` (crate `tpchgen`), as CSV. Chapters are those of the TPC-H specification, revision 3.0.1.

use std::fmt::Display;
use std::io::{self, Write};
use tpchgen::csv::{CustomerCsv, LineItemCsv, NationCsv, OrderCsv, PartCsv, PartSuppCsv, RegionCsv, SupplierCsv};
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};
use tpchgen::q_and_a::queries;

/// How many queries there are; they are numbered from 1.
pub const QUERIES: usize = 22;

/// A table: its name and its columns as SQL (chapter 1.4).
pub struct Table {
    /// Name.
    pub name: &'static str,
    /// What stands between the parentheses of CREATE TABLE.
    pub columns: &'static str,
    /// Columns of indexes besides the primary key: the foreign keys, which the specification allows to index (1.5.4).
    pub indexes: &'static [&'static str],
}

/// The tables, those first that others refer to.
pub const TABLES: [Table; 8] = [
    Table {
        name: "region",
        columns: "r_regionkey integer PRIMARY KEY, r_name char(25) NOT NULL, r_comment varchar(152) NOT NULL",
        indexes: &[],
    },
    Table {
        name: "nation",
        columns: "n_nationkey integer PRIMARY KEY, n_name char(25) NOT NULL, n_regionkey integer NOT NULL, \
                  n_comment varchar(152) NOT NULL",
        indexes: &["n_regionkey"],
    },
    Table {
        name: "supplier",
        columns: "s_suppkey integer PRIMARY KEY, s_name char(25) NOT NULL, s_address varchar(40) NOT NULL, \
                  s_nationkey integer NOT NULL, s_phone char(15) NOT NULL, s_acctbal numeric(15,2) NOT NULL, \
                  s_comment varchar(101) NOT NULL",
        indexes: &["s_nationkey"],
    },
    Table {
        name: "part",
        columns: "p_partkey integer PRIMARY KEY, p_name varchar(55) NOT NULL, p_mfgr char(25) NOT NULL, \
                  p_brand char(10) NOT NULL, p_type varchar(25) NOT NULL, p_size integer NOT NULL, \
                  p_container char(10) NOT NULL, p_retailprice numeric(15,2) NOT NULL, p_comment varchar(23) NOT NULL",
        indexes: &[],
    },
    Table {
        name: "partsupp",
        columns: "ps_partkey integer NOT NULL, ps_suppkey integer NOT NULL, ps_availqty integer NOT NULL, \
                  ps_supplycost numeric(15,2) NOT NULL, ps_comment varchar(199) NOT NULL, \
                  PRIMARY KEY (ps_partkey, ps_suppkey)",
        indexes: &["ps_suppkey"],
    },
    Table {
        name: "customer",
        columns: "c_custkey integer PRIMARY KEY, c_name varchar(25) NOT NULL, c_address varchar(40) NOT NULL, \
                  c_nationkey integer NOT NULL, c_phone char(15) NOT NULL, c_acctbal numeric(15,2) NOT NULL, \
                  c_mktsegment char(10) NOT NULL, c_comment varchar(117) NOT NULL",
        indexes: &["c_nationkey"],
    },
    Table {
        name: "orders",
        columns: "o_orderkey bigint PRIMARY KEY, o_custkey integer NOT NULL, o_orderstatus char(1) NOT NULL, \
                  o_totalprice numeric(15,2) NOT NULL, o_orderdate date NOT NULL, o_orderpriority char(15) NOT NULL, \
                  o_clerk char(15) NOT NULL, o_shippriority integer NOT NULL, o_comment varchar(79) NOT NULL",
        indexes: &["o_custkey"],
    },
    Table {
        name: "lineitem",
        columns: "l_orderkey bigint NOT NULL, l_partkey integer NOT NULL, l_suppkey integer NOT NULL, \
                  l_linenumber integer NOT NULL, l_quantity numeric(15,2) NOT NULL, \
                  l_extendedprice numeric(15,2) NOT NULL, l_discount numeric(15,2) NOT NULL, \
                  l_tax numeric(15,2) NOT NULL, l_returnflag char(1) NOT NULL, l_linestatus char(1) NOT NULL, \
                  l_shipdate date NOT NULL, l_commitdate date NOT NULL, l_receiptdate date NOT NULL, \
                  l_shipinstruct char(25) NOT NULL, l_shipmode char(10) NOT NULL, l_comment varchar(44) NOT NULL, \
                  PRIMARY KEY (l_orderkey, l_linenumber)",
        indexes: &["l_partkey, l_suppkey", "l_suppkey"],
    },
];

/// Writes a table's rows as CSV without a header.
///
/// # Errors
/// Those of writing; `InvalidInput` when there is no such table.
pub fn write_rows(table: &str, scale: f64, out: &mut dyn Write) -> io::Result<()> {
    fn lines(rows: impl Iterator<Item = impl Display>, out: &mut dyn Write) -> io::Result<()> {
        for row in rows {
            writeln!(out, "{row}")?;
        }
        Ok(())
    }
    match table {
        "region" => lines(RegionGenerator::new(scale, 1, 1).iter().map(RegionCsv::new), out),
        "nation" => lines(NationGenerator::new(scale, 1, 1).iter().map(NationCsv::new), out),
        "supplier" => lines(SupplierGenerator::new(scale, 1, 1).iter().map(SupplierCsv::new), out),
        "part" => lines(PartGenerator::new(scale, 1, 1).iter().map(PartCsv::new), out),
        "partsupp" => lines(PartSuppGenerator::new(scale, 1, 1).iter().map(PartSuppCsv::new), out),
        "customer" => lines(CustomerGenerator::new(scale, 1, 1).iter().map(CustomerCsv::new), out),
        "orders" => lines(OrderGenerator::new(scale, 1, 1).iter().map(OrderCsv::new), out),
        "lineitem" => lines(LineItemGenerator::new(scale, 1, 1).iter().map(LineItemCsv::new), out),
        other => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("TPC-H has no table {other:?}"))),
    }
}

/// The substitution parameters for validation (chapters 2.4.1.4 to 2.4.22.4).
const PARAMETERS: [&[&str]; QUERIES] = [
    &["90"],
    &["15", "BRASS", "EUROPE"],
    &["BUILDING", "1995-03-15"],
    &["1993-07-01"],
    &["ASIA", "1994-01-01"],
    &["1994-01-01", "0.06", "24"],
    &["FRANCE", "GERMANY"],
    &["BRAZIL", "AMERICA", "ECONOMY ANODIZED STEEL"],
    &["green"],
    &["1993-10-01"],
    &["GERMANY", "0.0001"],
    &["MAIL", "SHIP", "1994-01-01"],
    &["special", "requests"],
    &["1995-09-01"],
    &["1996-01-01"],
    &["Brand#45", "MEDIUM POLISHED", "49", "14", "23", "45", "19", "3", "36", "9"],
    &["Brand#23", "MED BOX"],
    &["300"],
    &["Brand#12", "Brand#23", "Brand#34", "1", "10", "20"],
    &["forest", "1994-01-01", "CANADA"],
    &["SAUDI ARABIA"],
    &["13", "31", "23", "29", "30", "18", "17"],
];

/// How many rows are wanted of a query (2.1.2.9).
fn wanted_rows(number: usize) -> Option<u32> {
    match number {
        2 | 18 | 21 => Some(100),
        3 => Some(10),
        10 => Some(20),
        _ => None,
    }
}

/// The statements of a query with its validation parameters: one, or for query 15 a view, the query, and the view's end. Query 11's
/// fraction depends on the scale (2.4.11.3).
///
/// # Panics
/// When `number` is not from 1 to 22.
pub fn query(number: usize, scale: f64) -> Vec<String> {
    let mut text = queries::query(number as i32).expect("queries are numbered from 1 to 22").to_string();
    let fraction = format!("{:.10}", 0.0001 / scale);
    for (place, value) in PARAMETERS[number - 1].iter().enumerate().rev() {
        let value = if (number, place) == (11, 1) { &fraction } else { *value };
        text = text.replace(&format!(":{}", place + 1), value);
    }
    // The precision of the interval's days is not PostgreSQL's syntax; the views' names end with the stream's number.
    text = text.replace(" day (3)", " day").replace(":s", "0");
    let mut statements: Vec<String> =
        text.split(';').map(str::trim).filter(|statement| !statement.is_empty()).map(str::to_string).collect();
    if let Some(rows) = wanted_rows(number) {
        statements[0].push_str(&format!("\nlimit {rows}"));
    }
    statements
}

/// The statements that make the tables.
pub fn definitions() -> Vec<String> {
    TABLES.iter().map(|table| format!("CREATE TABLE {} ({})", table.name, table.columns)).collect()
}

/// The statements that make the indexes, for after loading.
pub fn indexes() -> Vec<String> {
    let of_table = |table: &'static Table| {
        table.indexes.iter().map(|columns| format!("CREATE INDEX ON {} ({columns})", table.name))
    };
    TABLES.iter().flat_map(of_table).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_query_has_its_values_and_every_table_its_rows() {
        for number in 1..=QUERIES {
            let statements = query(number, 0.1);
            assert_eq!(statements.len(), if number == 15 { 3 } else { 1 }, "query {number}");
            for statement in &statements {
                let open = (1..=10).any(|place| statement.contains(&format!(":{place}")));
                assert!(!open && !statement.contains(":s"), "query {number}: {statement}");
            }
        }
        assert!(query(11, 0.1)[0].contains("* 0.0010000000"));
        assert!(query(2, 1.0)[0].ends_with("limit 100"));
        for (table, rows) in [("region", 5), ("nation", 25), ("supplier", 10), ("orders", 1500)] {
            let mut out = Vec::new();
            write_rows(table, 0.001, &mut out).unwrap();
            assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), rows, "{table}");
        }
        assert!(write_rows("lineitems", 0.001, &mut Vec::new()).is_err());
    }
}
