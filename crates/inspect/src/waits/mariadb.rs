//! What do the sessions of a MariaDB server do?
//!
//! With `performance_schema` on, the wait that a thread is in; otherwise (MariaDB's default) the state that `SHOW PROCESSLIST`
//! shows, and that a transaction waits for a row lock. Blockers come from InnoDB either way.

use std::time::Duration;

use super::{Doing, Source};
use crate::InspectError;
use crate::client::{self, Address, Session};

/// The list of processes has the text of prepared statements too, which `performance_schema.threads` lacks.
const WITH_EVENTS: &str = "select t.id, coalesce(w.event_name, ''), coalesce(t.state, ''), \
    replace(replace(replace(left(coalesce(t.info, ''), 400), '\\n', ' '), '\\t', ' '), '\\r', ' '), coalesce(b.blockers, '') \
    from information_schema.processlist t left join performance_schema.threads p on p.processlist_id = t.id \
    left join performance_schema.events_waits_current w on w.thread_id = p.thread_id and w.timer_end is null";

const WITH_STATES: &str = "select t.id, '', coalesce(t.state, ''), \
    replace(replace(replace(left(coalesce(t.info, ''), 400), '\\n', ' '), '\\t', ' '), '\\r', ' '), coalesce(b.blockers, '') \
    from information_schema.processlist t";

const BLOCKERS: &str = "left join (select r.trx_mysql_thread_id waiter, group_concat(distinct h.trx_mysql_thread_id) blockers \
    from information_schema.innodb_lock_waits l join information_schema.innodb_trx r on r.trx_id = l.requesting_trx_id \
    join information_schema.innodb_trx h on h.trx_id = l.blocking_trx_id group by 1) b on b.waiter = ";

/// A connection to the server.
#[derive(Debug)]
pub struct MariaDb {
    client: client::MariaDb,
    query: String,
    has_events: bool,
}

impl MariaDb {
    /// Connects.
    ///
    /// # Errors
    /// [`InspectError::Refused`] with the server's words.
    pub fn connect(address: &Address) -> Result<MariaDb, InspectError> {
        let mut client = client::MariaDb::connect(address).map_err(refused)?;
        let answer = client.query("select @@performance_schema").map_err(refused)?;
        let has_events = answer.first().is_some_and(|row| row.first().is_some_and(|on| on.as_deref() == Some("1")));
        let idle = "not in ('Sleep', 'Daemon', 'Binlog Dump', 'Slave_IO')";
        let what = if has_events { WITH_EVENTS } else { WITH_STATES };
        let query = format!("{what} {BLOCKERS} t.id where t.id <> connection_id() and t.command {idle}");
        Ok(MariaDb { client, query, has_events })
    }

    /// Whether the server tells the waits of threads, or only their states.
    pub fn has_events(&self) -> bool {
        self.has_events
    }
}

fn refused(error: client::ClientError) -> InspectError {
    InspectError::Refused(error.to_string())
}

impl Source for MariaDb {
    fn sample(&mut self) -> Result<Vec<Doing>, InspectError> {
        let rows = self.client.query(&self.query).map_err(refused)?;
        let row = |row: Vec<Option<String>>| doing(&row.into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>());
        rows.into_iter().map(row).collect()
    }

    /// InnoDB shows its transactions and locks out of a copy that it renews only when nobody has read it for 100 ms
    /// (storage/innobase/trx/trx0i_s.cc, CACHE_MIN_IDLE_TIME_NS): who asks more often sees the same for ever.
    fn pause(&self) -> Duration {
        Duration::from_millis(150)
    }
}

/// States in which a thread works, although they have names (sql/mysqld.cc, the stages); anything else that is named is a
/// wait or a stage worth seeing.
const WORKING: [&str; 13] = [
    "",
    "executing",
    "init",
    "init for update",
    "Opening tables",
    "Statistics",
    "Sending data",
    "Updating",
    "Update",
    "Query end",
    "Starting",
    "Writing to net",
    "NULL",
];

fn doing(row: &[String]) -> Result<Doing, InspectError> {
    let [session, event, state, query, blockers] = row else {
        return Err(InspectError::Refused(format!("an answer of the server has {} columns in place of 5", row.len())));
    };
    let session = session.parse().map_err(|_| InspectError::Refused(format!("{session:?} is no session's number")))?;
    let blockers: Vec<i64> = blockers.split(',').filter_map(|blocker| blocker.parse().ok()).collect();
    let event = if !event.is_empty() {
        // What waits for nothing but its client is idle.
        (event != "idle").then(|| event.clone())
    } else if !blockers.is_empty() {
        Some("row lock (InnoDB)".to_owned())
    } else {
        (!WORKING.iter().any(|known| known.eq_ignore_ascii_case(state))).then(|| format!("state: {state}"))
    };
    Ok(Doing { session, event, query: query.clone(), blockers })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(row: [&str; 5]) -> Doing {
        doing(&row.map(str::to_owned)).unwrap()
    }

    #[test]
    fn working_is_told_from_waiting() {
        assert_eq!(of(["7", "", "Updating", "update t", ""]).event, None);
        let waiting = of(["7", "", "Updating", "update t", "3,4"]);
        assert_eq!((waiting.event.as_deref(), &waiting.blockers[..]), (Some("row lock (InnoDB)"), &[3, 4][..]));
        assert_eq!(
            of(["7", "", "Waiting for table metadata lock", "", ""]).event.as_deref(),
            Some("state: Waiting for table metadata lock")
        );
        let event = of(["7", "wait/synch/mutex/innodb/trx_mutex", "", "", ""]).event;
        assert_eq!(event.as_deref(), Some("wait/synch/mutex/innodb/trx_mutex"));
        assert!(doing(&["7".to_owned()]).is_err());
        assert!(doing(&["x", "", "", "", ""].map(str::to_owned)).is_err());
    }
}
