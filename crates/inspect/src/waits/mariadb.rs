//! What do the sessions of a MariaDB server do? Asked through its own client program, which finds the account and password as
//! the administrator has set them up (`~/.my.cnf`, the socket).
//!
//! With `performance_schema` on, the wait that a thread is in; otherwise (MariaDB's default) the state that `SHOW PROCESSLIST`
//! shows, and that a transaction waits for a row lock. Blockers come from InnoDB either way.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::{Doing, Source};
use crate::InspectError;

/// What the client prints at the end of an answer.
const END: &str = "homenode-end-of-answer";

const WITH_EVENTS: &str = "select t.processlist_id, coalesce(w.event_name, ''), coalesce(t.processlist_state, ''), \
    replace(replace(replace(left(coalesce(t.processlist_info, ''), 400), '\\n', ' '), '\\t', ' '), '\\r', ' '), \
    coalesce(b.blockers, '') \
    from performance_schema.threads t \
    left join performance_schema.events_waits_current w on w.thread_id = t.thread_id and w.timer_end is null";

const WITH_STATES: &str = "select t.id, '', coalesce(t.state, ''), \
    replace(replace(replace(left(coalesce(t.info, ''), 400), '\\n', ' '), '\\t', ' '), '\\r', ' '), coalesce(b.blockers, '') \
    from information_schema.processlist t";

const BLOCKERS: &str = "left join (select r.trx_mysql_thread_id waiter, group_concat(distinct h.trx_mysql_thread_id) blockers \
    from information_schema.innodb_lock_waits l join information_schema.innodb_trx r on r.trx_id = l.requesting_trx_id \
    join information_schema.innodb_trx h on h.trx_id = l.blocking_trx_id group by 1) b on b.waiter = ";

/// The client, kept running.
#[derive(Debug)]
pub struct MariaDb {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    query: String,
    has_events: bool,
}

impl MariaDb {
    /// Starts the client with further arguments (`--socket=...`, `--user=...`).
    ///
    /// # Errors
    /// [`InspectError::Refused`] if it isn't installed or cannot connect.
    pub fn connect(arguments: &[String]) -> Result<MariaDb, InspectError> {
        let mut command = Command::new("mariadb");
        command.args(arguments).args(["--batch", "--raw", "--skip-column-names", "--unbuffered"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().map_err(|error| {
            InspectError::Refused(format!("the client program `mariadb` is needed to ask the server: {error}"))
        })?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(InspectError::Refused("the client program has no input or output".to_owned()));
        };
        let mut server =
            MariaDb { child, input, output: BufReader::new(output), query: String::new(), has_events: false };
        let answer = server.ask("select @@performance_schema")?;
        server.has_events = answer.first().is_some_and(|row| row.first().is_some_and(|on| on == "1"));
        server.query = if server.has_events {
            format!(
                "{WITH_EVENTS} {BLOCKERS} t.processlist_id where t.type = 'FOREGROUND' and t.processlist_id <> connection_id() \
                 and t.processlist_command not in ('Sleep', 'Daemon', 'Binlog Dump', 'Slave_IO')"
            )
        } else {
            format!(
                "{WITH_STATES} {BLOCKERS} t.id where t.id <> connection_id() \
                 and t.command not in ('Sleep', 'Daemon', 'Binlog Dump', 'Slave_IO')"
            )
        };
        Ok(server)
    }

    /// Whether the server tells the waits of threads, or only their states.
    pub fn has_events(&self) -> bool {
        self.has_events
    }

    fn ask(&mut self, query: &str) -> Result<Vec<Vec<String>>, InspectError> {
        let gone = |error: std::io::Error| InspectError::Refused(format!("the client program ended: {error}"));
        writeln!(self.input, "{query};\nselect '{END}';").and_then(|()| self.input.flush()).map_err(gone)?;
        let mut rows = Vec::new();
        loop {
            let mut line = Vec::new();
            if self.output.read_until(b'\n', &mut line).map_err(gone)? == 0 {
                let text = "the client program could not ask the server (it says why above)";
                return Err(InspectError::Refused(text.to_owned()));
            }
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches('\n');
            if line == END {
                return Ok(rows);
            }
            rows.push(line.split('\t').map(str::to_owned).collect());
        }
    }
}

impl Source for MariaDb {
    fn sample(&mut self) -> Result<Vec<Doing>, InspectError> {
        let query = self.query.clone();
        self.ask(&query)?.iter().map(|row| doing(row)).collect()
    }
}

/// States in which a thread works, although they have names (sql/mysqld.cc, the stages); anything else that is named is a
/// wait or a stage worth seeing.
const WORKING: [&str; 12] = [
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

impl Drop for MariaDb {
    fn drop(&mut self) {
        // Our own child: it ends by itself when its input does, this only makes it sooner.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
