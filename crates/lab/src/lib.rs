//! Does it hold when the machine misbehaves? Deterministic schedule and crash exploration.
//!
//! A *scenario* runs a piece of the engine on the simulated machine of `homenode_platform::lab` and
//! checks something that must hold whatever the schedule, or wherever the machine crashes. Exploring it
//! means running it under many seeds; a failing seed replays exactly. To add one: write a file in
//! `scenarios/`, and name it in `scenarios::ALL`.
//!
//! This crate is of use only when built by `cargo lab`, that is with `--cfg homenode_lab`; without, it
//! is an empty library and a program that says so.

pub mod options;

#[cfg(homenode_lab)]
pub mod designs;
#[cfg(homenode_lab)]
pub mod explore;
#[cfg(homenode_lab)]
pub mod lines;
#[cfg(homenode_lab)]
pub mod machine;
#[cfg(homenode_lab)]
pub mod measure;
#[cfg(homenode_lab)]
pub mod micro;
#[cfg(homenode_lab)]
pub mod reproduce;
#[cfg(homenode_lab)]
pub mod run;
#[cfg(homenode_lab)]
pub mod scenario;
#[cfg(homenode_lab)]
pub mod scenarios;
#[cfg(homenode_lab)]
pub mod workloads;
