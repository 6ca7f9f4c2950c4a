//! Who gets the next connection? One thread that listens and deals, and the server's life from start to stop.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use homenode_platform::{clock, thread};
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};

use crate::auth::Access;
use crate::backend::Backend;
use crate::error::ServerError;
use crate::rules::Rules;
use crate::shared::Shared;
use crate::tls::Certificate;
use crate::topology::Home;
use crate::worker::{Desk, Newcomer, Worker};

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);
/// Connections beyond `max_connections` that may be open for a moment: refused ones, and cancel requests.
const SPARE_CONNECTIONS: usize = 64;
/// How long a full table of file descriptors is waited out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How to serve.
#[derive(Clone)]
pub struct Config {
    /// Address and port to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Worker threads, at least one. Each is one lane of the engine.
    pub workers: usize,
    /// Where each worker lives; a worker without a home is bound nowhere.
    pub worker_homes: Vec<Home>,
    /// Sessions at a time; more are refused with `53300`.
    pub max_connections: usize,
    /// Who has to prove what.
    pub rules: Rules,
    /// With one, clients may encrypt.
    pub certificate: Option<Certificate>,
    /// Address space of a running statement's stack, in bytes.
    pub stack_bytes: usize,
    /// How long running statements may take to notice a shutdown, in nanoseconds.
    pub stop_timeout_ns: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 5433)),
            workers: thread::available_cpus(),
            worker_homes: Vec::new(),
            max_connections: 10_000,
            rules: Rules::usual(false),
            certificate: None,
            // Deep expressions recurse in the parser; only the pages that are touched take memory.
            stack_bytes: 1 << 20,
            stop_timeout_ns: 10_000_000_000,
        }
    }
}

/// A server that listens already and serves once [`Server::run`] is called.
pub struct Server<B: Backend> {
    config: Config,
    listener: TcpListener,
    address: SocketAddr,
    poll: Poll,
    waker: Arc<Waker>,
    shared: Arc<Shared<B>>,
    workers: Vec<Worker<B>>,
}

/// Stops a server from another thread.
pub struct Handle {
    stop: Box<dyn Fn() + Send + Sync>,
}

impl Handle {
    /// Tells the server to stop: no new sessions, running statements fail with `57P01`, [`Server::run`] returns.
    pub fn stop(&self) {
        (self.stop)();
    }
}

impl<B: Backend> Server<B> {
    /// Takes the address and sets up the workers; nothing is served yet.
    ///
    /// # Errors
    /// [`ServerError::Listen`], [`ServerError::Worker`], [`ServerError::Random`].
    pub fn bind(config: Config, backend: B) -> Result<Server<B>, ServerError> {
        let refused = |source| ServerError::Listen { address: config.listen, source };
        let mut listener = TcpListener::bind(config.listen).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let poll = Poll::new().map_err(ServerError::Worker)?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE).map_err(refused)?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER).map_err(ServerError::Worker)?);
        let access = Access::new(config.rules.clone(), config.certificate.clone());
        let access = access.map_err(|error| ServerError::Random(error.message.clone()))?;
        let shared = Arc::new(Shared::new(backend, config.max_connections, config.stack_bytes, access));
        let workers = (0..config.workers.max(1))
            .map(|index| {
                let home = config.worker_homes.get(index).cloned();
                Worker::new(index, home, config.stack_bytes, shared.clone())
            })
            .collect::<io::Result<Vec<_>>>()
            .map_err(ServerError::Worker)?;
        Ok(Server { config, listener, address, poll, waker, shared, workers })
    }

    /// The address that is listened on, with the port that the system chose for port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A handle to stop it.
    pub fn handle(&self) -> Handle {
        let shared = self.shared.clone();
        let waker = self.waker.clone();
        let desks: Vec<_> = self.workers.iter().map(Worker::desk).collect();
        Handle {
            stop: Box::new(move || {
                shared.stop();
                for desk in &desks {
                    desk.wake();
                }
                if let Err(error) = waker.wake() {
                    tracing::error!(%error, "cannot wake the acceptor");
                }
            }),
        }
    }

    /// Serves until [`Handle::stop`] is called, then waits for the sessions to end.
    ///
    /// # Errors
    /// [`ServerError::StillBusy`] when sessions don't end in time (the threads go on until the process ends),
    /// [`ServerError::Listen`] when no more connections can be taken.
    pub fn run(self) -> Result<(), ServerError> {
        let Server { config, listener, poll, shared, workers, .. } = self;
        let desks: Arc<[_]> = workers.iter().map(Worker::desk).collect();
        let threads: Vec<_> = workers
            .into_iter()
            .enumerate()
            .map(|(index, worker)| {
                let desks = desks.clone();
                thread::spawn(&format!("worker-{index}"), move || worker.run(desks))
            })
            .collect();
        let limit = config.max_connections.saturating_add(SPARE_CONNECTIONS);
        accept(&listener, poll, &desks, limit, &|| shared.is_stopping())
            .map_err(|source| ServerError::Listen { address: config.listen, source })?;
        drop(listener);
        let deadline = clock::now_ns().saturating_add(config.stop_timeout_ns);
        while threads.iter().any(|thread| !thread.is_finished()) {
            if clock::now_ns() > deadline {
                return Err(ServerError::StillBusy(shared.registry.count()));
            }
            thread::sleep_ns(5_000_000);
        }
        threads.into_iter().for_each(thread::JoinHandle::join);
        Ok(())
    }
}

/// The desk for the next connection: the one with the fewest of those on the node with the least load, so that a few
/// connections are spread over nodes before they meet on one.
fn choose<B: Backend>(desks: &[Arc<Desk<B>>]) -> Option<&Arc<Desk<B>>> {
    let mut nodes: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    for desk in desks {
        let (connections, workers) = nodes.entry(desk.node()?).or_default();
        *connections += desk.connections();
        *workers += 1;
    }
    // Compared crosswise, as fractions.
    let least = nodes.iter().min_by(|(_, (a, of_a)), (_, (b, of_b))| (a * of_b).cmp(&(b * of_a)))?;
    desks.iter().filter(|desk| desk.node() == Some(*least.0)).min_by_key(|desk| desk.connections())
}

/// Takes connections until the server stops.
fn accept<B: Backend>(
    listener: &TcpListener,
    mut poll: Poll,
    desks: &[Arc<Desk<B>>],
    limit: usize,
    is_stopping: &dyn Fn() -> bool,
) -> io::Result<()> {
    let mut events = Events::with_capacity(4);
    let mut pause = None;
    while !is_stopping() {
        match poll.poll(&mut events, pause.take()) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            other => other?,
        }
        loop {
            match listener.accept() {
                Ok((socket, client)) => {
                    let total: usize = desks.iter().map(|desk| desk.connections()).sum();
                    // Beyond the limit the socket is closed unheard: it could only be told so after its first packet.
                    let fewest = || desks.iter().min_by_key(|desk| desk.connections());
                    if let Some(desk) = choose(desks).or_else(fewest).filter(|_| total < limit) {
                        desk.deal(Newcomer::Fresh(socket, client));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(error) => {
                    // Out of file descriptors or memory: others may give some back.
                    tracing::warn!(%error, "cannot take a connection");
                    pause = Some(ACCEPT_PAUSE);
                    break;
                }
            }
        }
    }
    Ok(())
}
