//! Who is calling? The PostgreSQL protocol, connections pinned to workers.
//!
//! A [`Server`] listens on one address and deals each connection to the worker with the fewest; there it stays. A worker
//! is one thread with an event loop and a coroutine executor (see `worker`), a session's protocol is in `session`, and
//! what the protocol asks of a database is the trait [`Backend`].

mod acceptor;
mod auth;
mod backend;
mod channel;
mod database;
mod error;
mod registry;
mod rules;
mod session;
mod shared;
mod startup;
mod tls;
mod topology;
mod wire;
mod worker;

pub use acceptor::{Config, Handle, Server};
pub use backend::{Backend, Interrupt, Outcome, Output, Parameters, Role, Session};
pub use database::{SqlBackend, SqlSession};
pub use error::ServerError;
pub use rules::{Method, Rules};
pub use tls::Certificate;
pub use topology::{Home, spread_workers};
