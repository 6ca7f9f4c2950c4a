//! Whom does a command look at? The options that the instruments share.

use clap::Args;

use crate::InspectError;
use crate::place::{Server, Who, find};
use crate::proc::processes;

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Target {
    /// Number of a process (with its descendants of the same program), or a program's name
    #[arg(value_name = "PID|NAME")]
    who: Option<String>,
    /// The running PostgreSQL server
    #[arg(long)]
    postgres: bool,
    /// The running MariaDB or MySQL server
    #[arg(long)]
    mariadb: bool,
}

impl Target {
    /// The server that is meant.
    pub(super) fn server(&self) -> Result<Server, InspectError> {
        let who = match (&self.who, self.postgres) {
            (Some(text), _) => text.parse().map_or_else(|_| Who::Name(text.clone()), Who::Pid),
            (None, true) => Who::Postgres,
            (None, false) => Who::MariaDb,
        };
        find(&who, &processes())
    }
}
