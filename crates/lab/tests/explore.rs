//! The lab finds what is planted, finds nothing else, and repeats itself.
#![cfg(homenode_lab)]

use homenode_lab::explore::explore;
use homenode_lab::options::Options;
use homenode_lab::scenarios::ALL;

/// One test, so that the forking thread is the only one at work.
#[test]
fn the_lab_is_right_about_right_and_wrong() {
    every_planted_bug_is_found_and_its_seed_repeats();
    the_claims_hold_and_runs_repeat();
}

fn every_planted_bug_is_found_and_its_seed_repeats() {
    for scenario in ALL.iter().filter(|scenario| scenario.has_planted_bug) {
        let options = Options { seeds: 2_000, plant: true, ..Options::default() };
        let finding = explore(scenario, &options).finding;
        let finding = finding.unwrap_or_else(|| panic!("{}: not found", scenario.name));
        let replay = Options { from: finding.seed, seeds: 1, twice: true, ..options };
        assert_eq!(explore(scenario, &replay).finding, Some(finding), "{}", scenario.name);
    }
}

fn the_claims_hold_and_runs_repeat() {
    for scenario in ALL {
        let options = Options { seeds: 6, twice: true, ..Options::default() };
        let exploration = explore(scenario, &options);
        assert_eq!(exploration.finding, None, "{}", scenario.name);
        assert_eq!(exploration.trials, 12);
    }
}
