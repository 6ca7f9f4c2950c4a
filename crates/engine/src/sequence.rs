//! Which number comes next? Sequences: outside transactions, never the same number twice, not even after a crash.
//!
//! As in PostgreSQL, the log runs ahead: one record covers the next numbers, so that a number costs no log record of its own; a crash
//! skips what was covered and not handed out.

use crate::catalog::SequenceDefinition;
use crate::database::Inner;
use crate::error::{Error, Result, SqlState};
use crate::record::KIND_SEQUENCE;
use crate::session::Session;
use homenode_platform::sync::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Numbers that one log record covers (PostgreSQL's SEQ_LOG_VALS is 32).
const LOGGED_AHEAD: i64 = 32;

/// Where a sequence stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SequenceState {
    /// The last number handed out, or the first one to hand out when `called` is false.
    pub last: i64,
    /// Whether `last` was handed out.
    pub called: bool,
}

struct Live {
    state: SequenceState,
    /// What the last log record says: where the sequence goes on after a crash.
    logged: SequenceState,
    /// Numbers that can still be handed out under the last log record.
    covered: i64,
}

impl Live {
    fn at(state: SequenceState) -> Arc<Mutex<Live>> {
        Arc::new(Mutex::new(Live { state, logged: state, covered: 0 }))
    }
}

/// Where all sequences stand.
pub struct Sequences(Mutex<HashMap<u32, Arc<Mutex<Live>>>>);

impl Sequences {
    /// As recovered.
    pub fn new(states: HashMap<u32, SequenceState>) -> Sequences {
        Sequences(Mutex::new(states.into_iter().map(|(oid, state)| (oid, Live::at(state))).collect()))
    }

    /// Where each sequence goes on when the database is opened again: exactly where it stands after a clean shutdown, else
    /// after the numbers that the log has covered.
    pub fn states(&self, clean: bool) -> Vec<(u32, SequenceState)> {
        let all = self.0.lock();
        let state = |live: &Mutex<Live>| if clean { live.lock().state } else { live.lock().logged };
        all.iter().map(|(&oid, live)| (oid, state(live))).collect()
    }

    pub(crate) fn remove(&self, oid: u32) {
        self.0.lock().remove(&oid);
    }

    fn get(&self, oid: u32) -> Option<Arc<Mutex<Live>>> {
        self.0.lock().get(&oid).cloned()
    }
}

/// Writes the sequence's state to the log and makes it the current one.
pub(crate) fn set(db: &Arc<Inner>, lane: usize, oid: u32, state: SequenceState) {
    log_state(db, lane, oid, state);
    let live = db.sequences.0.lock().entry(oid).or_insert_with(|| Live::at(state)).clone();
    *live.lock() = Live { state, logged: state, covered: 0 };
}

fn log_state(db: &Arc<Inner>, lane: usize, oid: u32, state: SequenceState) {
    db.log.append(lane, KIND_SEQUENCE, &[&oid.to_le_bytes(), &state.last.to_le_bytes(), &[state.called as u8]]);
}

/// Reads a KIND_SEQUENCE record.
pub(crate) fn decode(payload: &[u8]) -> Option<(u32, SequenceState)> {
    let oid = u32::from_le_bytes(payload.get(..4)?.try_into().ok()?);
    let last = i64::from_le_bytes(payload.get(4..12)?.try_into().ok()?);
    Some((oid, SequenceState { last, called: *payload.get(12)? != 0 }))
}

impl SequenceDefinition {
    /// `steps` numbers after `from`, as far as the bounds allow without starting anew.
    fn ahead(&self, from: i64, steps: i64) -> i64 {
        let target = from.saturating_add(self.increment.saturating_mul(steps));
        target.clamp(self.min, self.max)
    }

    fn after(&self, state: SequenceState) -> Result<i64> {
        if !state.called {
            return Ok(state.last);
        }
        let next = state.last.checked_add(self.increment).filter(|next| (self.min..=self.max).contains(next));
        match next {
            Some(next) => Ok(next),
            None if self.cycle => Ok(if self.increment > 0 { self.min } else { self.max }),
            None => {
                let (side, bound) = if self.increment > 0 { ("maximum", self.max) } else { ("minimum", self.min) };
                Err(Error::new(
                    SqlState::SEQUENCE_GENERATOR_LIMIT_EXCEEDED,
                    format!("nextval: reached {side} value of sequence \"{}\" ({bound})", self.name),
                ))
            }
        }
    }
}

impl Session {
    /// The next number of sequence `oid`.
    ///
    /// # Errors
    /// 42P01, 2200H.
    pub fn nextval(&mut self, oid: u32) -> Result<i64> {
        let definition = self.sequence(oid)?;
        let live = self.live_sequence(oid)?;
        let mut live = live.lock();
        let value = definition.after(live.state)?;
        if live.covered == 0 || value == definition.min || value == definition.max {
            let logged = SequenceState { last: definition.ahead(value, LOGGED_AHEAD), called: true };
            log_state(&self.db, self.lane, oid, logged);
            live.logged = logged;
            live.covered = LOGGED_AHEAD;
        } else {
            live.covered -= 1;
        }
        live.state = SequenceState { last: value, called: true };
        drop(live);
        self.shared.remember_sequence(oid, value);
        Ok(value)
    }

    /// The number that this session was given last by sequence `oid`.
    ///
    /// # Errors
    /// 55000 when there is none.
    pub fn currval(&mut self, oid: u32) -> Result<i64> {
        let name = self.sequence(oid)?.name.clone();
        self.shared.sequence_value(oid).ok_or_else(|| {
            Error::new(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("currval of sequence \"{name}\" is not yet defined in this session"),
            )
        })
    }

    /// The number that this session was given last by any sequence.
    ///
    /// # Errors
    /// 55000 when there is none.
    pub fn lastval(&mut self) -> Result<i64> {
        self.shared.last_sequence_value().ok_or_else(|| {
            Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "lastval is not yet defined in this session")
        })
    }

    /// Sets where sequence `oid` stands.
    ///
    /// # Errors
    /// 42P01, 22003.
    pub fn setval(&mut self, oid: u32, value: i64, called: bool) -> Result<()> {
        let definition = self.sequence(oid)?;
        if !(definition.min..=definition.max).contains(&value) {
            return Err(Error::new(
                SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                format!(
                    "setval: value {value} is out of bounds for sequence \"{}\" ({}..{})",
                    definition.name, definition.min, definition.max
                ),
            ));
        }
        set(&self.db, self.lane, oid, SequenceState { last: value, called });
        if called {
            self.shared.remember_sequence(oid, value);
        }
        Ok(())
    }

    /// Where sequence `oid` stands.
    ///
    /// # Errors
    /// 42P01.
    pub fn sequence_state(&mut self, oid: u32) -> Result<SequenceState> {
        Ok(self.live_sequence(oid)?.lock().state)
    }

    fn sequence(&mut self, oid: u32) -> Result<Arc<SequenceDefinition>> {
        self.definitions().sequence_by_oid(oid).cloned().ok_or_else(|| unknown(oid))
    }

    fn live_sequence(&mut self, oid: u32) -> Result<Arc<Mutex<Live>>> {
        self.db.sequences.get(oid).ok_or_else(|| unknown(oid))
    }
}

fn unknown(oid: u32) -> Error {
    Error::new(SqlState::UNDEFINED_TABLE, format!("there is no sequence with OID {oid}"))
}
