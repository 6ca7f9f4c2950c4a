//! `homenode doctor`: what is set wrongly?

use std::time::Duration;

use clap::Args;
use homenode_topology::Topology;
use serde_json::json;

use crate::InspectError;
use crate::client::{Address, Protocol};
use crate::doctor::{Finding, examine, gather};
use crate::place::{Server, ServerKind, Who, find};
use crate::proc::processes;
use crate::units;
use crate::waits::{MariaDb, Postgres, Source, watch};

#[derive(Debug, Args)]
#[command(
    after_help = "Example: homenode doctor --postgres --connect 'host=/run/postgresql user=postgres dbname=postgres'\n\n\
    Looks for a few seconds and changes nothing. Every finding rests on something that was measured meanwhile."
)]
pub struct Options {
    /// Number of a process, or a program's name; without one only the machine is looked at
    #[arg(value_name = "PID|NAME", conflicts_with_all = ["postgres", "mariadb"])]
    who: Option<String>,
    /// The running PostgreSQL server
    #[arg(long, conflicts_with = "mariadb")]
    postgres: bool,
    /// The running MariaDB or MySQL server
    #[arg(long)]
    mariadb: bool,
    /// Ask the server (PostgreSQL, Homenode or MariaDB) what its sessions wait for, too
    #[arg(long, value_name = "CONNECTION")]
    connect: Option<String>,
    /// How long to look
    #[arg(long = "for", value_name = "TIME", default_value = "3s", value_parser = units::parse_time)]
    duration: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(options: &Options) -> Result<(), InspectError> {
    let topology = Topology::discover();
    let server = options.server()?;
    let named = server.as_ref().map(|(server, argument)| (server, argument.clone()));
    let mut facts = gather(&topology, named, options.duration)?;
    if let (Some(connection), Some(server)) = (&options.connect, &mut facts.server) {
        let mut source: Box<dyn Source> = match server.kind {
            Some(ServerKind::MariaDb) => {
                let address = Address::parse(Protocol::MariaDb, connection).map_err(InspectError::Refused)?;
                Box::new(MariaDb::connect(&address)?)
            }
            _ => Box::new(Postgres::connect(connection)?),
        };
        server.waits = Some(watch(source.as_mut(), options.duration, Duration::from_millis(50))?);
    }
    let findings = examine(&facts);
    if options.json {
        let list = findings.iter().map(|finding| {
            json!({
                "severity": finding.severity.name(),
                "title": finding.title,
                "evidence": finding.evidence,
                "cost": finding.cost,
                "mend": finding.mend,
                "document": format!("docs/instruments.md#{}", finding.document),
            })
        });
        println!("{:#}", json!({ "findings": list.collect::<Vec<_>>(), "seconds": facts.seconds }));
        return Ok(());
    }
    let looked = server.as_ref().map_or("the machine".to_owned(), |(s, _)| format!("{} {}", s.kind.title(), s.pid()));
    println!("looked at {looked} for {:.1} s\n", facts.seconds);
    if findings.is_empty() {
        println!("nothing was found");
        if facts.nodes.len() < 2 {
            println!("(the machine has one memory node: nothing can be placed wrongly)");
        }
    }
    findings.iter().for_each(print);
    Ok(())
}

fn print(finding: &Finding) {
    println!("[{}] {}", finding.severity.name(), finding.title);
    println!("    measured: {}", finding.evidence);
    println!("    costs:    {}", finding.cost);
    println!("    mend:     {}", finding.mend);
    println!("    more:     docs/instruments.md#{}\n", finding.document);
}

impl Options {
    fn server(&self) -> Result<Option<(Server, String)>, InspectError> {
        let (who, argument) = match (&self.who, self.postgres, self.mariadb) {
            (Some(text), ..) => (text.parse().map_or_else(|_| Who::Name(text.clone()), Who::Pid), text.clone()),
            (None, true, _) => (Who::Postgres, "--postgres".to_owned()),
            (None, false, true) => (Who::MariaDb, "--mariadb".to_owned()),
            (None, false, false) => return Ok(None),
        };
        Ok(Some((find(&who, &processes())?, argument)))
    }
}
