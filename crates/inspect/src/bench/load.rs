//! How do the rows get into the tables? By INSERTs of many rows, several tables at once.

use std::fmt::Write;

use super::keys::Random;
use super::workload::{ACCOUNTS, Size, TELLERS, Workload, digits, indexes, schema};
use crate::client::{Address, ClientError, Protocol, Session, connect};

/// Rows of one INSERT; some 200 KiB of text.
const ROWS: u32 = 1000;
/// Connections that load at the same time.
const LOADERS: usize = 4;

/// What one INSERT fills: a table, its columns, the first row and how many, and what a row looks like.
struct Piece {
    table: String,
    columns: &'static str,
    rows: std::ops::RangeInclusive<u32>,
    value: fn(&mut String, u32, &mut Random, Size),
}

/// Makes the tables of these workloads and fills them.
///
/// # Errors
/// The first [`ClientError`].
pub fn load(address: &Address, workloads: &[Workload], size: Size) -> Result<(), ClientError> {
    let mut session = connect(address)?;
    for statement in schema(workloads, size, address.protocol) {
        session.query(&statement)?;
    }
    let pieces = pieces(workloads, size);
    let loaders = LOADERS.min(pieces.len().max(1));
    std::thread::scope(|scope| {
        let parts: Vec<_> = (0..loaders)
            .map(|loader| {
                let own = pieces.iter().skip(loader).step_by(loaders);
                scope.spawn(move || fill(address, own, size))
            })
            .collect();
        parts
            .into_iter()
            .try_for_each(|part| part.join().unwrap_or(Err(ClientError::Protocol("a loading thread failed"))))
    })?;
    for statement in indexes(workloads, size) {
        session.query(&statement)?;
    }
    settle(session.as_mut(), address.protocol)
}

/// Statistics and a checkpoint, so that no server starts a measurement with the debts of its load.
fn settle(session: &mut dyn Session, protocol: Protocol) -> Result<(), ClientError> {
    if protocol == Protocol::Postgres {
        session.query("VACUUM ANALYZE")?;
        session.query("CHECKPOINT")?;
    }
    Ok(())
}

fn fill<'a>(address: &Address, pieces: impl Iterator<Item = &'a Piece>, size: Size) -> Result<(), ClientError> {
    let mut session = connect(address)?;
    let mut statement = String::new();
    for piece in pieces {
        let mut random = Random::new(u64::from(*piece.rows.start()) << 16 | piece.table.len() as u64);
        statement.clear();
        let _ = write!(statement, "INSERT INTO {} ({}) VALUES ", piece.table, piece.columns);
        for row in piece.rows.clone() {
            statement.push_str(if row == *piece.rows.start() { "(" } else { ",(" });
            (piece.value)(&mut statement, row, &mut random, size);
            statement.push(')');
        }
        session.query(&statement)?;
    }
    Ok(())
}

fn pieces(workloads: &[Workload], size: Size) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut add = |table: String, columns, rows: u32, value| {
        for from in (1..=rows).step_by(ROWS as usize) {
            let rows = from..=rows.min(from.saturating_add(ROWS - 1));
            pieces.push(Piece { table: table.clone(), columns, rows, value });
        }
    };
    if workloads.iter().any(|workload| *workload != Workload::TpcB) {
        (1..=size.tables).for_each(|table| add(format!("sbtest{table}"), "id, k, c, pad", size.rows, sysbench_row));
    }
    if workloads.contains(&Workload::TpcB) {
        add("pgbench_branches".to_owned(), "bid, bbalance", size.scale, |out, row, _, _| {
            let _ = write!(out, "{row},0");
        });
        add("pgbench_tellers".to_owned(), "tid, bid, tbalance", size.scale * TELLERS, |out, row, _, _| {
            let _ = write!(out, "{row},{},0", (row - 1) / TELLERS + 1);
        });
        add("pgbench_accounts".to_owned(), "aid, bid, abalance, filler", size.scale * ACCOUNTS, |out, row, _, _| {
            let _ = write!(out, "{row},{},0,''", (row - 1) / ACCOUNTS + 1);
        });
    }
    pieces
}

fn sysbench_row(out: &mut String, row: u32, random: &mut Random, size: Size) {
    let _ = write!(out, "{row},{},'", random.up_to(size.rows));
    digits(out, random, 10);
    out.push_str("','");
    digits(out, random, 5);
    out.push('\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_in_one_piece() {
        let size = Size { tables: 2, rows: 2500, scale: 1 };
        let pieces = pieces(&[Workload::ReadWrite, Workload::TpcB], size);
        let rows = |table: &str| -> u32 {
            pieces.iter().filter(|piece| piece.table == table).map(|piece| piece.rows.clone().count() as u32).sum()
        };
        assert_eq!((rows("sbtest1"), rows("sbtest2")), (2500, 2500));
        assert_eq!((rows("pgbench_accounts"), rows("pgbench_tellers"), rows("pgbench_branches")), (100_000, 10, 1));
        let mut text = String::new();
        (pieces[0].value)(&mut text, 7, &mut Random::new(1), size);
        assert!(text.starts_with("7,") && text.len() > 180, "{text}");
    }
}
