//! Which bytes have come, which have to go? One client's socket with its buffers, shared by the worker (which reads and
//! resumes) and the task that answers (which writes). Both run on one thread, so cells are enough.
//!
//! A socket is registered once, edge-triggered, for both directions; no message costs an `epoll_ctl`.

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::sync::Arc;

use homenode_platform::task::{self, Task};
use homenode_platform::wait::WaitEvent;
use homenode_types::{Error, Result, SqlState};
use mio::net::TcpStream;

use crate::backend::{Interrupt, Output};
use crate::tls::{Certificate, Socket};

/// Bytes waiting to be sent from which on an answer isn't held back any longer.
pub(crate) const HIGH_WATER_BYTES: usize = 64 << 10;
/// Bytes waiting to be answered from which on no more are read, while a task is busy with earlier ones.
const INPUT_LIMIT_BYTES: usize = 256 << 10;
/// Buffers above this size are given back when they run empty.
const KEPT_BUFFER_BYTES: usize = 64 << 10;

/// What one read of a socket brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    /// Nothing more for now; the next byte will be announced.
    Drained,
    /// There may be more: read again after the others have had their turn.
    More,
    /// Enough is waiting; read again once the task has used some of it.
    Full,
}

/// The state of the connection below the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Peer {
    /// Both directions work, as far as anybody knows.
    Open,
    /// The client will send nothing more.
    Silent,
    /// Nothing can be sent or received.
    Gone,
}

/// A buffer for so many bytes that comes from where the calling thread's memory is: smaller ones may be pieces that the thread has
/// freed for others, and grow where those were.
pub(crate) fn fresh_buffer(bytes: usize) -> Vec<u8> {
    Vec::with_capacity(bytes.max(4096))
}

pub(crate) struct Channel {
    socket: RefCell<Socket>,
    input: RefCell<Vec<u8>>,
    /// Length that `input` must reach before it holds a whole message.
    need: Cell<usize>,
    /// Answers that are complete but not sent yet, with the count of bytes already sent.
    unsent: RefCell<(Vec<u8>, usize)>,
    writer: RefCell<Option<Task>>,
    peer: Cell<Peer>,
    /// How to stop what runs for this client, once there is a session.
    interrupt: RefCell<Option<Arc<dyn Interrupt>>>,
}

impl Channel {
    pub(crate) fn new(socket: TcpStream) -> Channel {
        Channel {
            socket: RefCell::new(Socket::Plain(socket)),
            input: RefCell::new(Vec::new()),
            need: Cell::new(1),
            unsent: RefCell::new((Vec::new(), 0)),
            writer: RefCell::new(None),
            peer: Cell::new(Peer::Open),
            interrupt: RefCell::new(None),
        }
    }

    pub(crate) fn peer(&self) -> Peer {
        self.peer.get()
    }

    /// The socket can't be used any more: a task that waits to write has to see it.
    pub(crate) fn lost(&self) {
        self.peer.set(Peer::Gone);
        self.wake_writer();
    }

    /// Sets how to stop what runs for this client.
    pub(crate) fn set_interrupt(&self, interrupt: Arc<dyn Interrupt>) {
        *self.interrupt.borrow_mut() = Some(interrupt);
    }

    /// The client has hung up while `task` is at work for it: what it does is in vain, so it is stopped, and the
    /// transaction rolls back. Only a commit that already waits for its flush goes on to its end.
    pub(crate) fn stop_task(&self, task: &Task) {
        let interrupt = self.interrupt.borrow();
        let Some(interrupt) = &*interrupt else { return };
        match self.peer.get() {
            Peer::Open => {}
            Peer::Silent if task.wait_event() == WaitEvent::LogFlush => {}
            Peer::Silent | Peer::Gone => interrupt.cancel(),
        }
    }

    /// Whether a task waits for the client to read.
    pub(crate) fn is_writing(&self) -> bool {
        self.writer.borrow().is_some()
    }

    pub(crate) fn with_socket<R>(&self, f: impl FnOnce(&mut TcpStream) -> R) -> R {
        f(self.socket.borrow_mut().stream())
    }

    /// Whether what is sent and received is encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.socket.borrow().is_encrypted()
    }

    /// What comes and goes from now on is encrypted.
    pub(crate) fn encrypt(&self, certificate: &Certificate) {
        if let Err(error) = self.socket.borrow_mut().encrypt(certificate) {
            tracing::warn!(%error, "cannot begin TLS");
            self.peer.set(Peer::Gone);
        }
    }

    /// Reads what fits into `chunk`, once. `busy` tells that a task is at work on earlier input.
    pub(crate) fn receive(&self, chunk: &mut [u8], busy: bool) -> Arrival {
        if busy && self.input.borrow().len() >= INPUT_LIMIT_BYTES {
            return Arrival::Full;
        }
        if self.peer.get() != Peer::Open {
            return Arrival::Drained;
        }
        loop {
            let received = self.socket.borrow_mut().read(chunk);
            match received {
                Ok(0) => self.peer.set(Peer::Silent),
                Ok(count) => {
                    self.input.borrow_mut().extend_from_slice(&chunk[..count]);
                    if count == chunk.len() || self.input.borrow().len() >= INPUT_LIMIT_BYTES {
                        return Arrival::More;
                    }
                    // epoll(7): a read that comes back short has emptied a stream socket, and the next byte is a new
                    // edge. Saves the read that would only say so. Of TLS it says only that a record has ended.
                    if self.is_encrypted() {
                        continue;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => self.lost(),
            }
            return Arrival::Drained;
        }
    }

    /// Copies what is in the buffers to memory of the calling thread.
    /// The old ones, to be dropped.
    pub(crate) fn renew_buffers(&self) -> [Vec<u8>; 2] {
        let renew = |buffer: &mut Vec<u8>| {
            let mut new = fresh_buffer(buffer.len());
            new.extend_from_slice(buffer);
            std::mem::replace(buffer, new)
        };
        [renew(&mut self.input.borrow_mut()), renew(&mut self.unsent.borrow_mut().0)]
    }

    /// Address and capacity of what waits to be answered.
    pub(crate) fn input_buffer(&self) -> (usize, usize) {
        let input = self.input.borrow();
        (input.as_ptr().addr(), input.capacity())
    }

    /// Whether there is a whole message to answer.
    pub(crate) fn has_message(&self) -> bool {
        self.input.borrow().len() >= self.need.get()
    }

    /// Takes all input; what isn't used comes back by [`Channel::put_back`].
    pub(crate) fn take_input(&self) -> Vec<u8> {
        self.need.set(1);
        std::mem::take(&mut *self.input.borrow_mut())
    }

    /// Returns `taken` without its first `used` bytes, to stand before what has come since. Another message can be
    /// complete only when there are `need` bytes.
    pub(crate) fn put_back(&self, mut taken: Vec<u8>, used: usize, need: usize) {
        let mut input = self.input.borrow_mut();
        if used == taken.len() {
            taken.clear();
        } else {
            taken.drain(..used);
        }
        taken.extend_from_slice(&input);
        if taken.is_empty() && taken.capacity() > KEPT_BUFFER_BYTES {
            taken = Vec::new();
        }
        *input = taken;
        self.need.set(need);
    }

    /// Whether so much waits to be sent that no further message should be answered.
    pub(crate) fn is_congested(&self) -> bool {
        let unsent = self.unsent.borrow();
        unsent.0.len() - unsent.1 >= HIGH_WATER_BYTES
    }

    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.borrow().0.is_empty() || self.socket.borrow().has_pending()
    }

    /// Moves complete answers to where the worker can send them, should this task park.
    pub(crate) fn hand_over(&self, answers: &mut Vec<u8>) {
        let mut unsent = self.unsent.borrow_mut();
        if unsent.0.is_empty() {
            std::mem::swap(&mut unsent.0, answers);
        } else {
            unsent.0.append(answers);
        }
    }

    /// Sends what the socket takes of the answers handed over.
    pub(crate) fn send_unsent(&self) {
        let mut unsent = self.unsent.borrow_mut();
        let (bytes, sent) = &mut *unsent;
        if bytes.is_empty() {
            self.flush();
            return;
        }
        *sent += self.send(&bytes[*sent..]);
        if *sent == bytes.len() || self.peer.get() == Peer::Gone {
            bytes.clear();
            *sent = 0;
            if bytes.capacity() > KEPT_BUFFER_BYTES {
                *bytes = Vec::new();
            }
        }
    }

    /// Sends `answers`, with one write if the socket takes them; keeps the rest for when it is writable. Never parks.
    pub(crate) fn send_all(&self, answers: &mut Vec<u8>) {
        if self.has_unsent() {
            self.hand_over(answers);
            self.send_unsent();
            return;
        }
        let sent = self.send(answers);
        if sent < answers.len() && self.peer.get() != Peer::Gone {
            self.hand_over(answers);
            self.unsent.borrow_mut().1 = sent;
        }
        answers.clear();
        if answers.capacity() > 2 * HIGH_WATER_BYTES {
            *answers = Vec::new();
        }
    }

    /// Sends encrypted bytes that the socket had no room for.
    fn flush(&self) {
        let flushed = self.socket.borrow_mut().flush();
        match flushed {
            Err(error) if error.kind() != ErrorKind::WouldBlock => self.peer.set(Peer::Gone),
            _ => {}
        }
    }

    /// Writes until the socket is full; returns the bytes written.
    fn send(&self, bytes: &[u8]) -> usize {
        let mut sent = 0;
        while sent < bytes.len() && self.peer.get() != Peer::Gone {
            let written = self.socket.borrow_mut().write(&bytes[sent..]);
            match written {
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.peer.set(Peer::Gone),
            }
        }
        sent
    }

    /// The socket takes bytes again.
    pub(crate) fn writable(&self) {
        self.send_unsent();
        if !self.is_congested() {
            self.wake_writer();
        }
    }

    fn wake_writer(&self) {
        if let Some(task) = self.writer.borrow_mut().take() {
            task.unpark();
        }
    }

    /// Parks the task until little enough waits to be sent.
    fn wait_writable(&self) -> Result<()> {
        while self.is_congested() && self.peer.get() != Peer::Gone {
            *self.writer.borrow_mut() = Some(task::current());
            task::park(WaitEvent::ClientWrite);
        }
        match self.peer.get() {
            Peer::Gone => Err(Error::new(SqlState::CONNECTION_FAILURE, "connection to client lost")),
            _ => Ok(()),
        }
    }
}

/// The answers of one session on their way to its channel.
pub(crate) struct Answers<'a> {
    pub(crate) bytes: &'a mut Vec<u8>,
    pub(crate) channel: &'a Channel,
}

impl Output for Answers<'_> {
    fn buffer(&mut self) -> &mut Vec<u8> {
        self.bytes
    }

    fn flush_if_large(&mut self) -> Result<()> {
        if self.bytes.len() < HIGH_WATER_BYTES {
            return Ok(());
        }
        self.channel.send_all(self.bytes);
        self.channel.wait_writable()
    }
}
