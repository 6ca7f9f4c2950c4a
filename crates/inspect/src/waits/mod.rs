//! What does a database wait for? Samples of what each session does, summed as shares of the database's time.
//!
//! A session that is in a statement counts in every sample, also while it runs on a CPU: leaving that out makes any wait look
//! like all there is. A session that waits for its client or for work (idle) doesn't count.

mod mariadb;
mod postgres;

pub use mariadb::MariaDb;
pub use postgres::{Postgres, reason};

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::InspectError;

/// What one session did in one sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Doing {
    /// The session's number at its server.
    pub session: i64,
    /// What it waited for; `None`: it ran, or was ready to.
    pub event: Option<String>,
    /// The statement.
    pub query: String,
    /// Sessions that it waited for, where the server knows.
    pub blockers: Vec<i64>,
}

/// A server that can be asked what its sessions do.
pub trait Source {
    /// What all sessions in a statement do at this moment.
    ///
    /// # Errors
    /// [`InspectError::Refused`] with the server's words.
    fn sample(&mut self) -> Result<Vec<Doing>, InspectError>;

    /// The least time between two samples that the server gives fresh answers to.
    fn pause(&self) -> Duration {
        Duration::ZERO
    }
}

/// What a session that doesn't wait is counted as.
pub const ON_CPU: &str = "on CPU (or ready for it)";

/// Samples, summed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// Samples taken.
    pub samples: u64,
    /// How long they took, in seconds.
    pub seconds: f64,
    /// Sessions in a statement, over all samples: the database's time, in samples.
    pub busy: u64,
    /// Busy sessions by what they waited for.
    pub by_event: BTreeMap<String, u64>,
    /// By statement, with that statement's events.
    pub by_query: BTreeMap<String, BTreeMap<String, u64>>,
    /// By the session that others waited for, with the statement of the last one that did.
    pub by_blocker: BTreeMap<i64, (u64, String)>,
    /// By session: samples in a statement, and of these by what it waited for.
    pub by_session: BTreeMap<i64, (u64, BTreeMap<String, u64>)>,
}

impl Profile {
    /// Adds one sample.
    pub fn add(&mut self, doings: &[Doing]) {
        self.samples += 1;
        for doing in doings {
            let event = doing.event.as_deref().unwrap_or(ON_CPU);
            self.busy += 1;
            *self.by_event.entry(event.to_owned()).or_default() += 1;
            let session = self.by_session.entry(doing.session).or_default();
            session.0 += 1;
            *session.1.entry(event.to_owned()).or_default() += 1;
            let query = normalized(&doing.query);
            for blocker in &doing.blockers {
                let entry = self.by_blocker.entry(*blocker).or_default();
                *entry = (entry.0 + 1, query.clone());
            }
            *self.by_query.entry(query).or_default().entry(event.to_owned()).or_default() += 1;
        }
    }

    /// Busy sessions on average: how many statements were being worked on at any moment.
    pub fn average_busy(&self) -> f64 {
        if self.samples == 0 { 0.0 } else { self.busy as f64 / self.samples as f64 }
    }
}

/// Samples for a while.
///
/// # Errors
/// As [`Source::sample`].
pub fn watch(source: &mut dyn Source, duration: Duration, every: Duration) -> Result<Profile, InspectError> {
    let begun = Instant::now();
    let every = every.max(source.pause());
    let mut profile = Profile::default();
    while begun.elapsed() < duration {
        let next = Instant::now() + every;
        profile.add(&source.sample()?);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    profile.seconds = begun.elapsed().as_secs_f64();
    Ok(profile)
}

/// The statement without its constants and with single blanks, so that the same one with other values is the same.
pub fn normalized(query: &str) -> String {
    let mut out = String::new();
    let mut rest = query.chars().peekable();
    while let Some(character) = rest.next() {
        let in_word = out.chars().last().is_some_and(|last| last.is_alphanumeric() || last == '_' || last == '$');
        match character {
            '\'' => {
                // Two quotes inside are one; an end that was cut off ends it too.
                while let Some(inside) = rest.next() {
                    if inside == '\'' && rest.next_if_eq(&'\'').is_none() {
                        break;
                    }
                }
                out.push('?');
            }
            digit if digit.is_ascii_digit() && !in_word => {
                while rest.next_if(|next| next.is_ascii_alphanumeric() || *next == '.').is_some() {}
                // A sign that can only be the number's goes with it.
                if out.ends_with('-') && !out[..out.len() - 1].ends_with(|c: char| c.is_alphanumeric() || c == ')') {
                    let before = out[..out.len() - 1].trim_end();
                    if before.ends_with(['=', ',', '(', '+', '<', '>', '*']) {
                        out.pop();
                    }
                }
                out.push('?');
            }
            blank if blank.is_whitespace() => {
                if !out.is_empty() && !out.ends_with(' ') {
                    out.push(' ');
                }
            }
            other => out.push(other),
        }
    }
    out.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn statements_that_differ_in_constants_are_one() {
        let one = normalized("UPDATE t  SET a = a + -12.5\n WHERE name = 'it''s' AND id2 = 7 and b in ($1, 3)");
        assert_eq!(one, "UPDATE t SET a = a + ? WHERE name = ? AND id2 = ? and b in ($1, ?)");
        assert_eq!(normalized("select 'cut off"), "select ?");
        assert_eq!(normalized("select a-1 from t"), "select a-? from t");
    }

    #[test]
    fn running_counts_and_shares_add_up() {
        let doing = |session, event: Option<&str>, blockers: &[i64]| Doing {
            session,
            event: event.map(str::to_owned),
            query: format!("update t set a = {session}"),
            blockers: blockers.to_vec(),
        };
        let mut profile = Profile::default();
        profile.add(&[doing(1, None, &[]), doing(2, Some("Lock:transactionid"), &[1])]);
        profile.add(&[doing(2, Some("Lock:transactionid"), &[1])]);
        profile.add(&[]);
        assert_eq!((profile.busy, profile.average_busy()), (3, 1.0));
        assert_eq!(profile.by_event[ON_CPU], 1);
        assert_eq!(profile.by_query.len(), 1);
        assert_eq!(profile.by_blocker[&1].0, 2);
        assert_eq!(profile.by_session[&2], (2, BTreeMap::from([("Lock:transactionid".to_owned(), 2)])));
        assert_eq!(profile.by_event.values().sum::<u64>(), profile.busy);
    }

    proptest! {
        #[test]
        fn any_statement_is_safe_and_constants_go(query in "\\PC{0,60}") {
            let once = normalized(&query);
            prop_assert!(once.chars().count() <= query.chars().count());
        }
    }
}
