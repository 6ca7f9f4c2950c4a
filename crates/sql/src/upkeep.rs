//! Which tables have changed so much that their statistics are of no use? They are analyzed in the background.
//!
//! A table is due when its number of pages differs by a tenth from what it was at the last ANALYZE: that is read off its tree, so that
//! no writer counts anything and no line is shared. Changes that leave a table's size as it is are not noticed.

use crate::client::Client;
use homenode_engine::{Database, Table, quote_name};
use homenode_types::Result;

/// Tables up to this many pages are planned well enough without statistics.
const SMALL_PAGES: u64 = 8;

fn is_due(table: &Table, analyzed_pages: Option<u64>) -> bool {
    let pages = table.pages_estimate();
    match analyzed_pages {
        None => pages > SMALL_PAGES,
        Some(then) => pages.abs_diff(then) > SMALL_PAGES + then / 10,
    }
}

/// Analyzes the tables that are due, one after the other; `stop` is asked before each. Returns how many were analyzed.
///
/// # Errors
/// 53300 when there is no place for another session; those of ANALYZE. A table that cannot be had within a second is left for the next
/// time.
pub fn analyze_due(database: &Database, stop: &dyn Fn() -> bool) -> Result<usize> {
    let definitions = database.definitions();
    let due = |table: &Table| is_due(table, definitions.statistics(table).map(|found| found.pages));
    let tables: Vec<_> = definitions.tables().into_iter().filter(|table| due(table)).collect();
    if tables.is_empty() {
        return Ok(0);
    }
    let mut client = Client::new(database)?;
    client.execute("SET lock_timeout = '1s'", &[])?;
    let mut analyzed = 0;
    for table in tables {
        if stop() {
            break;
        }
        let statement = format!("ANALYZE {}.{}", quote_name(&table.schema), quote_name(&table.name));
        match client.execute(&statement, &[]) {
            Ok(_) => analyzed += 1,
            // Dropped meanwhile, or in use by a change of definitions.
            Err(error) => passing(&error)?,
        }
    }
    Ok(analyzed)
}

/// Errors that another time may not have.
fn passing(error: &homenode_types::Error) -> Result<()> {
    use homenode_types::SqlState;
    let known = [SqlState::UNDEFINED_TABLE, SqlState::LOCK_NOT_AVAILABLE, SqlState::DEADLOCK_DETECTED];
    if known.contains(&error.code) { Ok(()) } else { Err(error.clone()) }
}
