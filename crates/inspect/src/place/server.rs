//! Which processes are the server?

use std::collections::BTreeSet;

use crate::InspectError;
use crate::proc::Process;

/// Whom to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// The process with this number, and its descendants that run the same program.
    Pid(u32),
    /// The PostgreSQL server.
    Postgres,
    /// The MariaDB (or MySQL) server.
    MariaDb,
    /// All processes of a program.
    Name(String),
}

/// What is known about the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerKind {
    /// A process a connection, shared memory in one piece.
    Postgres,
    /// A thread a connection, the pool in private memory.
    MariaDb,
    /// This project's server.
    Homenode,
    /// Nothing.
    Other,
}

impl ServerKind {
    fn of(process: &Process) -> ServerKind {
        match program(process) {
            "postgres" | "postmaster" => ServerKind::Postgres,
            "mariadbd" | "mysqld" => ServerKind::MariaDb,
            "homenode" => ServerKind::Homenode,
            _ => ServerKind::Other,
        }
    }

    /// Its name for people.
    pub fn title(self) -> &'static str {
        match self {
            ServerKind::Postgres => "PostgreSQL",
            ServerKind::MariaDb => "MariaDB",
            ServerKind::Homenode => "Homenode",
            ServerKind::Other => "process",
        }
    }
}

/// The program's file name, or where that may not be seen, what the kernel calls the process.
fn program(process: &Process) -> &str {
    if process.program.is_empty() { &process.name } else { &process.program }
}

/// A server: its processes, the first one being the one that started the others.
#[derive(Clone, Debug)]
pub struct Server {
    /// What kind of server.
    pub kind: ServerKind,
    /// Its processes, never empty.
    pub processes: Vec<Process>,
}

impl Server {
    /// Number of the first process.
    pub fn pid(&self) -> u32 {
        self.processes[0].pid
    }
}

/// Finds the server among `all` processes.
///
/// # Errors
/// [`InspectError::Refused`] if there is none, or several to choose from; [`InspectError::Vanished`].
pub fn find(who: &Who, all: &[Process]) -> Result<Server, InspectError> {
    let first = match who {
        Who::Pid(pid) => all.iter().find(|process| process.pid == *pid).ok_or(InspectError::Vanished(*pid))?,
        Who::Postgres => only(all, "PostgreSQL server", |p| ServerKind::of(p) == ServerKind::Postgres)?,
        Who::MariaDb => only(all, "MariaDB server", |p| ServerKind::of(p) == ServerKind::MariaDb)?,
        Who::Name(name) => only(all, name, |p| program(p) == name || p.name == *name)?,
    };
    Ok(Server { kind: ServerKind::of(first), processes: family(first, all) })
}

/// The one process that `is` holds for and whose parent it doesn't hold for.
fn only<'a>(all: &'a [Process], what: &str, is: impl Fn(&Process) -> bool) -> Result<&'a Process, InspectError> {
    let own = std::process::id();
    let matching: Vec<&Process> = all.iter().filter(|process| is(process) && process.pid != own).collect();
    let heads: Vec<&Process> =
        matching.iter().filter(|p| !matching.iter().any(|other| other.pid == p.parent)).copied().collect();
    match heads[..] {
        [one] => Ok(one),
        [] => Err(InspectError::Refused(format!("no {what} is running (that this user can see)"))),
        _ => {
            let list: Vec<String> =
                heads.iter().map(|p| format!("{} ({})", p.pid, crate::text::shorten(&p.command_line, 60))).collect();
            Err(InspectError::Refused(format!("several match {what}; name one by its number: {}", list.join(", "))))
        }
    }
}

/// A process and its descendants that run the same program.
fn family(first: &Process, all: &[Process]) -> Vec<Process> {
    let mut members = BTreeSet::from([first.pid]);
    loop {
        let more = all.iter().filter(|process| {
            members.contains(&process.parent) && !members.contains(&process.pid) && program(process) == program(first)
        });
        let more: Vec<u32> = more.map(|process| process.pid).collect();
        if more.is_empty() {
            break;
        }
        members.extend(more);
    }
    let rest = all.iter().filter(|process| members.contains(&process.pid) && process.pid != first.pid);
    std::iter::once(first).chain(rest).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, parent: u32, program: &str) -> Process {
        Process {
            pid,
            parent,
            name: program.to_owned(),
            program: program.to_owned(),
            started_ticks: 0,
            command_line: String::new(),
        }
    }

    #[test]
    fn a_server_is_its_first_process_and_its_children() {
        let all = [
            process(1, 0, "init"),
            process(5, 1, "postgres"),
            process(6, 5, "postgres"),
            process(7, 6, "postgres"),
            process(8, 5, "archive.sh"),
            process(9, 1, "psql"),
        ];
        let server = find(&Who::Postgres, &all).unwrap();
        assert_eq!(server.processes.iter().map(|p| p.pid).collect::<Vec<_>>(), [5, 6, 7]);
        assert_eq!(server.kind, ServerKind::Postgres);
        assert_eq!(find(&Who::Pid(6), &all).unwrap().processes.len(), 2);
        assert!(matches!(find(&Who::Pid(99), &all), Err(InspectError::Vanished(99))));
        assert!(find(&Who::MariaDb, &all).unwrap_err().to_string().contains("no MariaDB"));
    }

    #[test]
    fn several_servers_are_named_instead_of_guessed_at() {
        let all = [process(5, 1, "postgres"), process(6, 5, "postgres"), process(15, 1, "postgres")];
        let error = find(&Who::Postgres, &all).unwrap_err().to_string();
        assert!(error.contains("5 (") && error.contains("15 (") && !error.contains("6 ("), "{error}");
    }
}
