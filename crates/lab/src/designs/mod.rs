//! What was there before? Designs that the documents describe, as baselines: small, and only here.
//!
//! Written from the documents' descriptions, on the platform's atomics like the engine. Each says at its head which it is.

pub mod descriptor;
pub mod lwlock;
pub mod mapping;
pub mod mutexes;
pub mod snapshot;
