//! `homenode waits`: what does a database wait for?

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use crate::InspectError;
use crate::client::{Address, Protocol};
use crate::text::{Table, share, shorten};
use crate::units;
use crate::waits::{MariaDb, Postgres, Profile, Source, watch};

#[derive(Debug, Args)]
#[command(
    after_help = "Example: homenode waits --connect 'host=/run/postgresql user=postgres dbname=postgres' --for 10s\n\
    MariaDB: homenode waits --mariadb 'socket=/run/mysqld/mysqld.sock user=root' --for 10s\n\
    Homenode: homenode waits --connect 'host=127.0.0.1 port=5433 user=me dbname=postgres'"
)]
pub struct Options {
    /// The PostgreSQL or Homenode server to ask
    #[arg(long, value_name = "CONNECTION", required_unless_present = "mariadb")]
    connect: Option<String>,
    /// The MariaDB server to ask (words left out: its usual Unix socket, your user name)
    #[arg(long, value_name = "CONNECTION", num_args = 0..=1, default_missing_value = "", conflicts_with = "connect")]
    mariadb: Option<String>,
    /// How long
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = units::parse_time)]
    duration: Duration,
    /// Time between samples
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = units::parse_time)]
    every: Duration,
    /// Statements shown
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(options: &Options) -> Result<(), InspectError> {
    let mut notes: Vec<&str> = Vec::new();
    let mut source: Box<dyn Source> = match &options.connect {
        Some(connection) => Box::new(Postgres::connect(connection)?),
        None => {
            let connection = options.mariadb.as_deref().unwrap_or_default();
            let server =
                MariaDb::connect(&Address::parse(Protocol::MariaDb, connection).map_err(InspectError::Refused)?)?;
            if !server.has_events() {
                notes
                    .push("performance_schema is off in this server: states of statements are shown, not single waits");
            }
            Box::new(server)
        }
    };
    let profile = watch(source.as_mut(), options.duration, options.every)?;
    if options.json {
        let value = json!({
            "samples": profile.samples,
            "seconds": profile.seconds,
            "busy_sessions_mean": profile.average_busy(),
            "busy_samples": profile.busy,
            "events": profile.by_event,
            "queries": profile.by_query,
            "blockers": profile.by_blocker.iter().map(|(pid, (count, query))| json!({ "session": pid, "samples": count, "blocked_query": query })).collect::<Vec<_>>(),
            "notes": notes,
        });
        println!("{value:#}");
    } else {
        print!("{}", as_text(&profile, options.top));
        notes.iter().for_each(|note| println!("note: {note}"));
    }
    Ok(())
}

fn as_text(profile: &Profile, top: usize) -> String {
    let mut text = format!(
        "{} samples in {:.1} s, {:.1} sessions in a statement on average\n\n",
        profile.samples,
        profile.seconds,
        profile.average_busy()
    );
    if profile.busy == 0 {
        return text + "no session was in a statement\n";
    }
    let mut events = Table::new(&["share", "sessions", "<", "<waiting for"]);
    for (event, count) in by_size(&profile.by_event) {
        let bar = "#".repeat((count * 30).div_ceil(profile.busy) as usize);
        let mean = count as f64 / profile.samples as f64;
        events.row([share(count, profile.busy), format!("{mean:.2}"), bar, event.to_owned()]);
    }
    text.push_str(&events.render());
    let totals: BTreeMap<String, u64> =
        profile.by_query.iter().map(|(query, events)| (query.clone(), events.values().sum())).collect();
    let mut queries = Table::new(&["share", "<mostly", "<statement"]);
    for (query, count) in by_size(&totals).into_iter().take(top) {
        let events = by_size(&profile.by_query[query]);
        let mostly = events.first().map_or(String::new(), |(event, part)| format!("{event} {}", share(*part, count)));
        queries.row([share(count, profile.busy), shorten(&mostly, 40), shorten(query, 70)]);
    }
    text.push_str(&format!("\n{}", queries.render()));
    if !profile.by_blocker.is_empty() {
        let mut blockers = Table::new(&["share", "session", "<others waited for it, the last one with"]);
        let mut list: Vec<_> = profile.by_blocker.iter().collect();
        list.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
        for (session, (count, query)) in list.into_iter().take(top) {
            blockers.row([share(*count, profile.busy), session.to_string(), shorten(query, 70)]);
        }
        text.push_str(&format!("\n{}", blockers.render()));
    }
    text
}

fn by_size(counts: &BTreeMap<String, u64>) -> Vec<(&str, u64)> {
    let mut list: Vec<(&str, u64)> = counts.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    list.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    list
}
