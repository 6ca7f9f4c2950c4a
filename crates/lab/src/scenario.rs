//! What is a scenario, and how is one written?

use homenode_platform::lab::{self, Config, Outcome, Report};

/// One thing that must hold, checked under any seed.
pub struct Scenario {
    /// A short name, words joined by hyphens, the part of the engine first.
    pub name: &'static str,
    /// What is checked, as a sentence.
    pub claim: &'static str,
    /// Whether [`Trial::planted`] turns something wrong in it.
    pub has_planted_bug: bool,
    /// Runs it under the trial's seed; an error says what was broken.
    pub run: fn(&Trial) -> Result<Summary, String>,
}

/// One seed of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The seed.
    pub seed: u64,
    /// Whether the planted bug is on.
    pub planted: bool,
}

/// What a trial that found nothing did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Simulated runs.
    pub runs: u64,
    /// Points passed.
    pub steps: u64,
    /// Changes of thread.
    pub switches: u64,
    /// Changes made to the disk.
    pub writes: u64,
    /// The runs' trace hashes, combined.
    pub trace_hash: u64,
}

impl Summary {
    /// Adds a run that ended as it should.
    ///
    /// # Errors
    /// The run's failure, as text.
    pub fn add(&mut self, report: &Report) -> Result<(), String> {
        self.runs += 1;
        self.steps += report.steps;
        self.switches += report.switches;
        self.writes += report.writes;
        self.trace_hash = self.trace_hash.rotate_left(7) ^ report.trace_hash;
        report.failure().map_or(Ok(()), |failure| Err(failure.to_string()))
    }
}

impl Trial {
    /// Runs `body` once, as the seed says, from an empty disk.
    ///
    /// # Errors
    /// What failed: a panic (an assertion of the scenario, as a rule), a deadlock, no end.
    pub fn schedule(&self, body: impl FnOnce() + 'static) -> Result<Summary, String> {
        self.schedule_with(&Config::new(self.seed), body)
    }

    /// As [`schedule`](Trial::schedule), with a configuration.
    ///
    /// # Errors
    /// As `schedule`.
    pub fn schedule_with(&self, config: &Config, body: impl FnOnce() + 'static) -> Result<Summary, String> {
        let mut summary = Summary::default();
        summary.add(&lab::run(config, body))?;
        Ok(summary)
    }

    /// Crashes the machine after changes of its disk while `work` runs, and runs `check` on what is left.
    ///
    /// `prepare` makes the disk that each attempt starts from. `work` gets a fresh `S` to note what it was
    /// promised (a commit that returned, say) and `check` gets the same `S`; both are made anew for
    /// every attempt. All changes are crashed after when they are at most `points_max`, else so many of
    /// them, chosen by the seed.
    ///
    /// # Errors
    /// What failed, and after which change of how many.
    pub fn crashes<S: Default + Clone + 'static>(
        &self,
        config: &Config,
        points_max: u64,
        prepare: impl Fn() + Clone + 'static,
        work: impl Fn(S) + Clone + 'static,
        check: impl Fn(S) + Clone + 'static,
    ) -> Result<Summary, String> {
        let mut summary = Summary::default();
        summary.add(&lab::run(config, prepare))?;
        let attempt = |crash_after_write| Config { disk: config.disk.fork(), crash_after_write, ..config.clone() };
        let whole = {
            let (work, state) = (work.clone(), S::default());
            lab::run(&attempt(None), move || work(state))
        };
        summary.add(&whole)?;
        for point in points(self.seed, whole.writes, points_max) {
            let named = |error| format!("crash after change {point} of {}: {error}", whole.writes);
            let (config, state) = (attempt(Some(point)), S::default());
            let (work, check) = (work.clone(), check.clone());
            let (for_work, for_check) = (state.clone(), state);
            let report = lab::run(&config, move || work(for_work));
            summary.add(&report).map_err(named)?;
            if report.outcome == Outcome::Crashed {
                config.disk.crash(self.seed ^ point);
            }
            let after = Config { crash_after_write: None, ..config };
            summary.add(&lab::run(&after, move || check(for_check))).map_err(named)?;
        }
        Ok(summary)
    }
}

/// The points of 1 to `all` to crash at: all of them, or `max` spread by the seed.
fn points(seed: u64, all: u64, max: u64) -> Vec<u64> {
    if all <= max {
        return (1..=all).collect();
    }
    let mut random = lab::Random::new(seed);
    let stride = all as f64 / max as f64;
    let chosen = (0..max).map(|i| {
        let start = (i as f64 * stride) as u64;
        let end = ((i + 1) as f64 * stride) as u64;
        1 + start + random.below((end - start).max(1))
    });
    chosen.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crash_points_cover_or_sample() {
        assert_eq!(points(1, 4, 10), [1, 2, 3, 4]);
        let sampled = points(1, 1000, 10);
        assert_eq!(sampled.len(), 10);
        assert!(sampled.windows(2).all(|pair| pair[0] < pair[1]) && sampled[9] <= 1000);
    }
}
