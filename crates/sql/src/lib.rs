//! What does this statement mean, and how is it run? Parse, bind, plan, execute.
//!
//! A server owns one [`Connection`] per client and feeds it protocol messages; a Rust program uses [`Client`].
//!
//! | module | its question |
//! |---|---|
//! | `lexer`, `lift`, `parse`, `utility` | What does the text say? |
//! | `bind`, `expr` | What do the names and operators mean? |
//! | `planner`, `plan` | In which order, by which paths? |
//! | `analyze`, `upkeep` | What is in the columns? |
//! | `exec`, `point`, `range_query`, `parallel`, `pipeline`, `write` | How do rows flow? |
//! | `connection`, `run`, `transaction`, `copy`, `ddl` | What does a client's message do? |
//! | `catalog` | What do the system tables say? |
#![warn(missing_docs)]

mod analyze;
mod bind;
mod catalog;
mod checks;
mod client;
mod connection;
mod context;
mod copy;
mod copy_binary;
mod ddl;
mod deferred;
mod dialect;
mod exec;
mod explain;
mod explain_pages;
pub mod expr;
mod foreign;
pub mod index_match;
mod lexer;
mod lift;
mod output;
mod parallel;
mod parse;
mod pipeline;
mod plan;
mod planner;
mod point;
mod portals;
mod prepared;
mod range_query;
mod roles;
mod run;
mod run_utility;
mod search_path;
pub mod server_settings;
mod settings;
mod sort_keys;
mod startup;
mod tally;
mod transaction;
mod upkeep;
mod utility;
mod virtual_table;
pub mod wire;
mod write;

pub use client::{Client, Rows};
pub use connection::{Connection, Outcome, Output, severity};
pub use upkeep::analyze_due;
