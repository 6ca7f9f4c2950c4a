//! What do a server's sessions wait for while it is loaded? Counted where the server counts (Homenode), sampled elsewhere.

use std::collections::BTreeMap;
use std::time::Instant;

use super::outcome::Waits;
use super::server::Kind;
use crate::client::{Address, Session, connect};
use crate::waits::{self, Profile, Source};

/// Watches one server through a connection of its own.
pub(super) struct Watcher {
    how: How,
    /// When the next sample is due.
    next: Instant,
}

enum How {
    /// Homenode's totals, at the begin.
    Counted(Box<dyn Session>, BTreeMap<String, u64>),
    Sampled(Box<dyn Source>, Profile, &'static str),
    /// Why nothing is known.
    Blind(String),
}

impl Watcher {
    /// Connects. A server that cannot be watched is measured all the same.
    pub(super) fn new(kind: Kind, address: &Address) -> Watcher {
        let sampled = |source: Box<dyn Source>, how| How::Sampled(source, Profile::default(), how);
        let how = match kind {
            Kind::Homenode => connect(address)
                .map(|session| How::Counted(session, BTreeMap::new()))
                .map_err(|error| error.to_string()),
            Kind::Postgres => waits::Postgres::connect(&address.libpq())
                .map(|source| sampled(Box::new(source), "sampled in pg_stat_activity"))
                .map_err(|error| error.to_string()),
            Kind::MariaDb => waits::MariaDb::connect(address)
                .map(|source| {
                    let how = if source.has_events() {
                        "sampled in performance_schema"
                    } else {
                        "sampled in the list of processes: states, no single waits"
                    };
                    sampled(Box::new(source), how)
                })
                .map_err(|error| error.to_string()),
        };
        Watcher { how: how.unwrap_or_else(How::Blind), next: Instant::now() }
    }

    pub(super) fn begin(&mut self) {
        if let How::Counted(session, before) = &mut self.how {
            *before = totals(session.as_mut());
        }
    }

    pub(super) fn sample(&mut self) {
        if let How::Sampled(source, profile, _) = &mut self.how {
            if Instant::now() < self.next {
                return;
            }
            self.next = Instant::now() + source.pause();
            match source.sample() {
                Ok(doings) => profile.add(&doings),
                Err(error) => self.how = How::Blind(error.to_string()),
            }
        }
    }

    /// The waits in so many seconds, shared by so many client threads.
    pub(super) fn end(self, seconds: f64, threads: u32) -> Waits {
        let threads = f64::from(threads.max(1));
        let (how, list): (String, Vec<(String, f64)>) = match self.how {
            How::Blind(error) => (format!("not known: {error}"), Vec::new()),
            How::Counted(mut session, before) => {
                let after = totals(session.as_mut()).into_iter();
                let waited = after.map(|(event, ns)| {
                    let ns = ns.saturating_sub(before.get(&event).copied().unwrap_or(0));
                    (event, ns as f64 / 1e9 / threads)
                });
                ("counted by the server, its own threads' waits too".to_owned(), waited.collect())
            }
            How::Sampled(_, profile, how) => {
                let second = seconds / profile.samples.max(1) as f64;
                let waited =
                    profile.by_event.into_iter().map(|(event, count)| (event, count as f64 * second / threads));
                (how.to_owned(), waited.collect())
            }
        };
        let mut list: Vec<(String, f64)> = list.into_iter().filter(|(_, seconds)| *seconds > 0.0).collect();
        list.sort_by(|one, other| other.1.total_cmp(&one.1));
        Waits { how, seconds_per_thread: list }
    }
}

/// Nanoseconds by event, without waits for clients, for work, and sleeps of the server's own threads.
fn totals(session: &mut dyn Session) -> BTreeMap<String, u64> {
    let rows = session.query("SELECT class, event, total_ns FROM homenode.waits").unwrap_or_default();
    let row = |row: Vec<Option<String>>| {
        let [Some(class), Some(event), Some(ns)] = <[Option<String>; 3]>::try_from(row).ok()? else { return None };
        if matches!(class.as_str(), "Client" | "Activity" | "Timeout") {
            return None;
        }
        Some((format!("{class}:{event}"), ns.parse().ok()?))
    };
    rows.into_iter().filter_map(row).collect()
}
