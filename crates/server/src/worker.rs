//! Who runs when? One thread with an event loop and a coroutine executor; its connections never leave it.
//!
//! The loop takes all that is ready before it sleeps: on two cores a wake-up costs more than a point select, and what is
//! answered in one batch commits in one flush of the log. A session that waits (for a lock, a flush, a page) parks only
//! its task.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use homenode_platform::executor::Executor;
use homenode_platform::task::Task;
use homenode_platform::{clock, thread};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token, Waker};

use crate::backend::Backend;
use crate::channel::{Arrival, Channel, Peer};
use crate::session::Session;
use crate::shared::Shared;
use crate::topology::Home;

const WAKER: Token = Token(usize::MAX);
/// Events taken from the kernel at a time.
const EVENTS: usize = 1024;
/// Bytes read from a socket at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// Rounds of ready tasks between two looks at the sockets.
const READY_ROUNDS: usize = 16;
/// PostgreSQL's `authentication_timeout`: a client that hasn't started its session by then is dropped.
const STARTUP_TIMEOUT_NS: u64 = 60_000_000_000;

/// Who comes to a worker.
pub(crate) enum Newcomer<B: Backend> {
    /// A client that has just connected.
    Fresh(TcpStream, SocketAddr),
    /// One that another worker served until now.
    Moved(Box<Connection<B>>),
}

/// Where the acceptor leaves connections for a worker, and how it wakes it.
pub(crate) struct Desk<B: Backend> {
    /// The node that the worker is bound to.
    node: Option<usize>,
    arrivals: Mutex<Vec<Newcomer<B>>>,
    connections: AtomicUsize,
    waker: Waker,
}

impl<B: Backend> Desk<B> {
    pub(crate) fn node(&self) -> Option<usize> {
        self.node
    }

    /// Connections dealt to this worker and not closed.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub(crate) fn deal(&self, newcomer: Newcomer<B>) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).push(newcomer);
        self.wake();
    }

    pub(crate) fn wake(&self) {
        if let Err(error) = self.waker.wake() {
            tracing::error!(%error, "cannot wake a worker");
        }
    }
}

/// One client, as its worker keeps it.
pub(crate) struct Connection<B: Backend> {
    token: usize,
    channel: Channel,
    session: RefCell<Session<B>>,
    /// The task that answers, once it has parked.
    task: RefCell<Option<Task>>,
    /// A task is at work for this client; it has the session borrowed.
    busy: Cell<bool>,
    /// The socket may hold bytes that won't be announced again.
    read_again: Cell<bool>,
    /// Turns so far: who waits for the next one knows when it has been.
    turns: Cell<u64>,
}

impl<B: Backend> Connection<B> {
    /// The body of the task that answers; a panic in it ends this session and no other.
    fn turn(&self, shared: &Shared<B>) {
        let mut session = self.session.borrow_mut();
        let turn = catch_unwind(AssertUnwindSafe(|| session.turn(&self.channel, shared)));
        if turn.is_err() && catch_unwind(AssertUnwindSafe(|| session.crash(&self.channel))).is_err() {
            tracing::error!("a session could not be closed after a panic");
        }
    }
}

/// A worker before it runs; made on the thread that starts the server, so that failures show there.
pub(crate) struct Worker<B: Backend> {
    index: usize,
    home: Option<Home>,
    stack_bytes: usize,
    shared: Arc<Shared<B>>,
    desk: Arc<Desk<B>>,
    poll: Poll,
}

impl<B: Backend> Worker<B> {
    pub(crate) fn new(
        index: usize,
        home: Option<Home>,
        stack_bytes: usize,
        shared: Arc<Shared<B>>,
    ) -> io::Result<Worker<B>> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let node = home.as_ref().map(|home| home.node);
        let desk = Arc::new(Desk { node, arrivals: Mutex::default(), connections: AtomicUsize::new(0), waker });
        Ok(Worker { index, home, stack_bytes, shared, desk, poll })
    }

    pub(crate) fn desk(&self) -> Arc<Desk<B>> {
        self.desk.clone()
    }

    /// Runs until the server stops and every connection is closed.
    pub(crate) fn run(mut self, desks: Arc<[Arc<Desk<B>>]>) {
        if let Some(home) = &self.home
            && let Err(error) = thread::pin_to_cpus(&home.cpus)
        {
            tracing::warn!(worker = self.index, node = home.node, %error, "cannot bind a worker to its node");
            self.home = None;
        }
        let node = self.home.as_ref().map(|home| home.node);
        self.shared.backend.worker_started(self.index, node, thread_number());
        let desk = self.desk.clone();
        let executor = Executor::new(Arc::new(move || desk.wake()), self.stack_bytes);
        Loop {
            executor,
            connections: Vec::new(),
            free: Vec::new(),
            freed: Vec::new(),
            chunk: vec![0; CHUNK_BYTES],
            again: Vec::new(),
            finished: Rc::default(),
            starting: VecDeque::new(),
            idle: BinaryHeap::new(),
            stopping: false,
            leaving: Vec::new(),
            desks,
            worker: self,
        }
        .run();
    }
}

/// The system's number of the calling thread; 0 where `/proc` doesn't say.
fn thread_number() -> u32 {
    let link = std::fs::read_link("/proc/thread-self").ok();
    link.and_then(|link| link.file_name()?.to_str()?.parse().ok()).unwrap_or(0)
}

/// A running worker.
struct Loop<B: Backend> {
    worker: Worker<B>,
    executor: Executor,
    connections: Vec<Option<Rc<Connection<B>>>>,
    free: Vec<usize>,
    /// Places emptied in this round; events of the round may still name them.
    freed: Vec<usize>,
    chunk: Vec<u8>,
    /// Connections to read from without waiting for an event.
    again: Vec<usize>,
    /// Connections whose task parked and has ended since.
    finished: Rc<RefCell<Vec<usize>>>,
    /// Connections in their start-up, oldest first, with the time when patience ends.
    starting: VecDeque<(u64, Weak<Connection<B>>)>,
    /// Connections that may be idle only so long: the time when it is over, token, and turns had when it began.
    idle: BinaryHeap<Reverse<(u64, usize, u64)>>,
    stopping: bool,
    /// Connections to hand over at the end of the round, with the worker that gets them.
    leaving: Vec<(usize, usize)>,
    /// All workers' desks, by index.
    desks: Arc<[Arc<Desk<B>>]>,
}

impl<B: Backend> Loop<B> {
    fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS);
        while !(self.stopping && self.connections.iter().all(Option::is_none)) {
            let timeout = self.timeout();
            match self.worker.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() != ErrorKind::Interrupted => {
                    // Without events nobody can be served, and there is no reason that a retry would help.
                    panic!("epoll failed: {error}");
                }
                _ => {}
            }
            for event in &events {
                if event.token() == WAKER {
                    self.take_arrivals();
                    continue;
                }
                let Some(connection) = self.get(event.token().0) else { continue };
                if event.is_writable() {
                    self.writable(&connection);
                }
                if event.is_readable() || event.is_read_closed() || event.is_error() {
                    // A short read hides the end of the stream behind it.
                    let closed = event.is_read_closed() || event.is_error();
                    self.receive(&connection, closed);
                }
            }
            for token in std::mem::take(&mut self.again) {
                if let Some(connection) = self.get(token) {
                    self.receive(&connection, false);
                }
            }
            self.run_ready();
            self.hand_over_leavers();
            self.drop_late_starters();
            self.end_idle();
            if !self.stopping && self.worker.shared.is_stopping() {
                self.stop();
            }
            self.free.append(&mut self.freed);
        }
    }

    /// How long there is nothing to do; asked right before sleeping, as the executor wants.
    fn timeout(&self) -> Option<Duration> {
        if !self.again.is_empty() || self.executor.has_ready() {
            return Some(Duration::ZERO);
        }
        let start = self.starting.front().map(|(deadline, _)| deadline.saturating_sub(clock::now_ns()));
        let idle = self.idle.peek().map(|Reverse((deadline, ..))| deadline.saturating_sub(clock::now_ns()));
        let task = self.executor.next_timeout_ns();
        let nearest = [start, idle, task].into_iter().flatten().min()?;
        // The kernel counts in milliseconds and rounds down.
        Some(Duration::from_nanos(nearest) + Duration::from_millis(1))
    }

    fn get(&self, token: usize) -> Option<Rc<Connection<B>>> {
        self.connections.get(token)?.clone()
    }

    fn take_arrivals(&mut self) {
        let arrivals = std::mem::take(&mut *self.worker.desk.arrivals.lock().unwrap_or_else(PoisonError::into_inner));
        for newcomer in arrivals {
            let token = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            let mut moved = false;
            let connection = Rc::new(match newcomer {
                Newcomer::Fresh(socket, client) => Connection {
                    token,
                    channel: Channel::new(socket),
                    session: RefCell::new(Session::new(self.worker.index, client)),
                    task: RefCell::new(None),
                    busy: Cell::new(false),
                    read_again: Cell::new(false),
                    turns: Cell::new(0),
                },
                Newcomer::Moved(mut connection) => {
                    moved = true;
                    let Connection { session, channel, .. } = &mut *connection;
                    session.get_mut().move_to(self.worker.index, channel);
                    Connection { token, ..*connection }
                }
            });
            let registered = connection.channel.with_socket(|socket| {
                socket.set_nodelay(true)?;
                let interest = Interest::READABLE | Interest::WRITABLE;
                self.worker.poll.registry().register(socket, Token(token), interest)
            });
            if let Err(error) = registered {
                tracing::warn!(%error, "cannot serve a connection");
                self.worker.desk.connections.fetch_sub(1, Ordering::Relaxed);
                self.freed.push(token);
                continue;
            }
            if moved {
                // What it moved for is in its buffer, or was announced to its last worker.
                self.again.push(token);
            } else {
                let deadline = clock::now_ns().saturating_add(STARTUP_TIMEOUT_NS);
                self.starting.push_back((deadline, Rc::downgrade(&connection)));
            }
            self.connections[token] = Some(connection);
        }
    }

    fn receive(&mut self, connection: &Rc<Connection<B>>, closed: bool) {
        let channel = &connection.channel;
        let busy = connection.busy.get() || channel.is_congested();
        let arrival = channel.receive(&mut self.chunk, busy);
        let more = arrival == Arrival::More || closed && arrival == Arrival::Drained && channel.peer() == Peer::Open;
        connection.read_again.set(more || arrival == Arrival::Full);
        if more {
            self.again.push(connection.token);
        }
        if !connection.busy.get() {
            self.start_turn(connection);
        } else if channel.peer() != Peer::Open
            && let Some(task) = &*connection.task.borrow()
        {
            channel.stop_task(task);
        }
    }

    fn writable(&mut self, connection: &Rc<Connection<B>>) {
        if !connection.channel.has_unsent() {
            return;
        }
        connection.channel.writable();
        if !connection.busy.get() && !connection.channel.is_congested() {
            self.settle(connection);
        }
    }

    /// Starts a task for a connection that has a message to answer, or has to be closed.
    fn start_turn(&mut self, connection: &Rc<Connection<B>>) {
        let channel = &connection.channel;
        let (over, expired) = {
            let session = connection.session.borrow();
            (session.is_over(), session.is_expired())
        };
        if over
            || !expired
                && channel.peer() == Peer::Open
                && (!channel.has_message() || channel.is_congested())
                && !self.stopping
        {
            if over {
                self.settle(connection);
            }
            return;
        }
        if self.worker.home.is_some()
            && let Some(worker) = self.worker_wanted(connection)
        {
            self.leaving.push((connection.token, worker));
            return;
        }
        connection.busy.set(true);
        connection.turns.set(connection.turns.get() + 1);
        let task = {
            let connection = connection.clone();
            let shared = self.worker.shared.clone();
            let finished = self.finished.clone();
            self.executor.run_now(move || {
                connection.turn(&shared);
                connection.busy.set(false);
                // A task that has parked is nobody's callee any more, so it leaves a note.
                if connection.task.borrow_mut().take().is_some() {
                    finished.borrow_mut().push(connection.token);
                }
            })
        };
        match task {
            None => self.settle(connection),
            Some(task) => {
                *connection.task.borrow_mut() = Some(task);
                // Answers before the statement that waits now are complete: the client may need them to go on.
                channel.send_unsent();
            }
        }
    }

    /// The worker that a session was told to move to, if it may move now.
    fn worker_wanted(&self, connection: &Connection<B>) -> Option<usize> {
        let node = connection.session.borrow().wants_to_move_to()?;
        if self.stopping || self.worker.desk.node() == Some(node) {
            return None;
        }
        let there = self.desks.iter().enumerate().filter(|(_, desk)| desk.node() == Some(node));
        there.min_by_key(|(_, desk)| desk.connections()).map(|(worker, _)| worker)
    }

    /// Gives the connections that move to their new workers. At the end of a round, when nobody refers to them.
    fn hand_over_leavers(&mut self) {
        for (token, worker) in std::mem::take(&mut self.leaving) {
            let Some(connection) = self.connections[token].take() else { continue };
            match Rc::try_unwrap(connection) {
                Ok(connection) => {
                    let registry = self.worker.poll.registry();
                    if let Err(error) = connection.channel.with_socket(|socket| registry.deregister(socket)) {
                        tracing::warn!(%error, "a connection cannot change its worker");
                    }
                    self.worker.desk.connections.fetch_sub(1, Ordering::Relaxed);
                    self.freed.push(token);
                    self.desks[worker].deal(Newcomer::Moved(Box::new(connection)));
                }
                Err(connection) => {
                    self.connections[token] = Some(connection);
                    self.again.push(token);
                }
            }
        }
    }

    /// Finds out what a connection needs after its task has ended.
    fn settle(&mut self, connection: &Rc<Connection<B>>) {
        let channel = &connection.channel;
        if connection.session.borrow().is_over() {
            let unsent = channel.has_unsent() && channel.peer() != Peer::Gone && !self.stopping;
            if !unsent {
                self.remove(connection.token);
            }
            return;
        }
        let answerable = channel.has_message() && !channel.is_congested();
        if answerable || connection.read_again.get() || channel.peer() != Peer::Open {
            self.again.push(connection.token);
            return;
        }
        let limit_ms = connection.session.borrow_mut().idle_limit_ms();
        if limit_ms > 0 {
            let deadline = clock::now_ns().saturating_add(limit_ms.saturating_mul(1_000_000));
            self.idle.push(Reverse((deadline, connection.token, connection.turns.get())));
        }
    }

    /// Ends the sessions that have been idle for longer than they may.
    fn end_idle(&mut self) {
        while let Some(Reverse((deadline, token, turns))) = self.idle.peek().copied()
            && clock::now_ns() >= deadline
        {
            self.idle.pop();
            let idle = self.get(token).filter(|connection| connection.turns.get() == turns && !connection.busy.get());
            if let Some(connection) = idle {
                connection.session.borrow_mut().expire();
                self.start_turn(&connection);
            }
        }
    }

    fn remove(&mut self, token: usize) {
        // Closing the socket takes it out of the epoll set.
        if self.connections[token].take().is_some() {
            self.worker.desk.connections.fetch_sub(1, Ordering::Relaxed);
            self.freed.push(token);
        }
    }

    fn run_ready(&mut self) {
        for _ in 0..READY_ROUNDS {
            if self.executor.run_ready() == 0 {
                break;
            }
            let finished = std::mem::take(&mut *self.finished.borrow_mut());
            for token in finished {
                if let Some(connection) = self.get(token) {
                    self.settle(&connection);
                }
            }
        }
    }

    fn drop_late_starters(&mut self) {
        while let Some((deadline, connection)) = self.starting.front() {
            let waiting = connection.upgrade().filter(|connection| !connection.busy.get());
            let waiting = waiting.filter(|connection| !connection.session.borrow().is_open());
            if waiting.is_some() && clock::now_ns() < *deadline {
                break;
            }
            if let Some(connection) = waiting {
                tracing::info!("a client did not start its session in time");
                self.remove(connection.token);
            }
            self.starting.pop_front();
        }
    }

    /// The server stops: idle sessions are told so now, busy ones have been told through their interrupt.
    fn stop(&mut self) {
        self.stopping = true;
        self.take_arrivals();
        for connection in self.connections.iter().flatten().cloned().collect::<Vec<_>>() {
            if !connection.busy.get() {
                self.start_turn(&connection);
            } else if connection.channel.is_writing() {
                // Nobody can wait for a client that doesn't read.
                connection.channel.lost();
            }
        }
    }
}
