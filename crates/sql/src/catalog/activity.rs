//! What is going on? pg_stat_activity, pg_locks, pg_stat_database.

use super::relations::table;
use super::{DATABASE_OID, ROLE_OID, flag, oid, text};
use crate::context::{Context, EPOCH_US};
use crate::virtual_table::{Rows, VirtualTable};
use homenode_engine::{Activity, Counter};
use homenode_types::Type::{Bool, Float8, Int2, Int4, Int8, Name, Oid, Text, Timestamptz, Xid};
use homenode_types::{Result, Value};

pub(super) static TABLES: &[VirtualTable] = &[
    table!(
        "pg_stat_activity",
        12_200,
        [
            ("datid", Oid),
            ("datname", Name),
            ("pid", Int4),
            ("leader_pid", Int4),
            ("usesysid", Oid),
            ("usename", Name),
            ("application_name", Text),
            ("client_addr", Text),
            ("client_hostname", Text),
            ("client_port", Int4),
            ("backend_start", Timestamptz),
            ("xact_start", Timestamptz),
            ("query_start", Timestamptz),
            ("state_change", Timestamptz),
            ("wait_event_type", Text),
            ("wait_event", Text),
            ("state", Text),
            ("backend_xid", Xid),
            ("backend_xmin", Xid),
            ("query_id", Int8),
            ("query", Text),
            ("backend_type", Text),
        ],
        pg_stat_activity
    ),
    table!(
        "pg_locks",
        12_201,
        [
            ("locktype", Text),
            ("database", Oid),
            ("relation", Oid),
            ("page", Int4),
            ("tuple", Int2),
            ("virtualxid", Text),
            ("transactionid", Xid),
            ("classid", Oid),
            ("objid", Oid),
            ("objsubid", Int2),
            ("virtualtransaction", Text),
            ("pid", Int4),
            ("mode", Text),
            ("granted", Bool),
            ("fastpath", Bool),
            ("waitstart", Timestamptz),
        ],
        pg_locks
    ),
    table!(
        "pg_stat_database",
        12_202,
        [
            ("datid", Oid),
            ("datname", Name),
            ("numbackends", Int4),
            ("xact_commit", Int8),
            ("xact_rollback", Int8),
            ("tup_fetched", Int8),
            ("tup_inserted", Int8),
            ("tup_updated", Int8),
            ("tup_deleted", Int8),
            ("deadlocks", Int8),
            ("blk_read_time", Float8),
            ("blk_write_time", Float8),
        ],
        pg_stat_database
    ),
];

fn time(us: i64) -> Value {
    if us == 0 { Value::Null } else { Value::Timestamptz(us - EPOCH_US) }
}

fn pg_stat_activity(context: &mut Context) -> Result<Rows> {
    let mut rows = Vec::new();
    let (sees_all, definitions) = (context.is_superuser(), context.definitions());
    for session in context.db.sessions() {
        let role = definitions.role(&session.user).map_or(ROLE_OID, |role| role.oid);
        let seen = sees_all || definitions.is_member(context.role(), role, true);
        let [started, transaction, query, state] = session.times_us;
        let in_transaction = !matches!(session.activity, Activity::Idle);
        let state_name = match session.activity {
            Activity::Idle => "idle",
            Activity::Active => "active",
            Activity::IdleInTransaction => "idle in transaction",
            Activity::IdleInFailedTransaction => "idle in transaction (aborted)",
        };
        let (class, event) = match session.wait {
            Some(wait) => (text(wait.class()), text(wait.name())),
            None => (Value::Null, Value::Null),
        };
        let mut row =
            vec![oid(DATABASE_OID), text(&context.database_name), Value::Int4(session.pid as i32), Value::Null];
        row.extend([oid(role), text(&session.user), text(&session.application)]);
        row.extend([
            if session.client.is_empty() { Value::Null } else { text(&session.client) },
            Value::Null,
            Value::Null,
        ]);
        row.extend([
            time(started),
            if in_transaction { time(transaction) } else { Value::Null },
            time(query),
            time(state),
        ]);
        row.extend([class, event, text(state_name)]);
        row.extend([
            session.txn.map_or(Value::Null, |txn| oid(txn as u32)),
            session.snapshot.map_or(Value::Null, |at| oid(at as u32)),
        ]);
        row.extend([
            Value::Null,
            text(if seen { &*session.query } else { "<insufficient privilege>" }),
            text("client backend"),
        ]);
        rows.push(row);
    }
    Ok(rows)
}

fn pg_locks(context: &mut Context) -> Result<Rows> {
    let mut rows = Vec::new();
    for session in context.db.sessions() {
        let pid = Value::Int4(session.pid as i32);
        let mut lock = |kind: &str, relation: Value, transaction: Value, mode: &str, granted: bool| {
            let mut row =
                vec![text(kind), oid(DATABASE_OID), relation, Value::Null, Value::Null, Value::Null, transaction];
            row.extend([Value::Null, Value::Null, Value::Null, text(format!("{}/0", session.pid)), pid.clone()]);
            row.extend([text(mode), flag(granted), flag(false), Value::Null]);
            rows.push(row);
        };
        for table in &session.tables {
            lock("relation", oid(*table), Value::Null, "RowExclusiveLock", true);
        }
        if let Some(txn) = session.txn {
            lock("transactionid", Value::Null, oid(txn as u32), "ExclusiveLock", true);
        }
        if session.waits_for.is_some() {
            lock("transactionid", Value::Null, Value::Null, "ShareLock", false);
        }
    }
    Ok(rows)
}

fn pg_stat_database(context: &mut Context) -> Result<Rows> {
    let db = &context.db;
    let count = |counter| Value::Int8(db.count(counter) as i64);
    let mut row = vec![oid(DATABASE_OID), text(&context.database_name), Value::Int4(db.sessions().len() as i32)];
    row.extend([
        count(Counter::Commits),
        count(Counter::Rollbacks),
        count(Counter::RowsFetched),
        count(Counter::RowsInserted),
    ]);
    row.extend([
        count(Counter::RowsUpdated),
        count(Counter::RowsDeleted),
        Value::Int8(0),
        Value::Float8(0.0),
        Value::Float8(0.0),
    ]);
    Ok(vec![row])
}
