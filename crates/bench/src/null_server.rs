//! How fast could any server be here? It speaks the PostgreSQL protocol and does nothing behind it.
//!
//! Every SELECT gets one fixed row, everything else its command tag, all of it on an epoll loop with
//! one thread a core that reads what has arrived and answers it with one write. So what a client
//! measures against this program is the client, the kernel and the loopback device: the limit that
//! is left to a database. It keeps no data and checks nothing; it is a yardstick, not a server.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use clap::Parser;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};

/// Answers PostgreSQL clients with a fixed row: the limit that client and kernel leave.
///
/// Example: null-server --listen 127.0.0.1:5499 && pgbench -n -S -h 127.0.0.1 -p 5499
#[derive(Parser)]
#[command(version, verbatim_doc_comment)]
struct Options {
    /// Address and port to listen on
    #[arg(long, default_value = "127.0.0.1:5499", value_name = "ADDR:PORT")]
    listen: SocketAddr,
    /// Threads, each with its own epoll loop (default: one a core)
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// The one value that each SELECT returns; pgbench takes it for the scale too
    #[arg(long, default_value = "50", value_name = "TEXT")]
    value: String,
}

const LISTENER: Token = Token(usize::MAX);
const WAKER: Token = Token(usize::MAX - 1);

/// What the acceptor shares with one worker thread.
struct Desk {
    arrivals: Mutex<Vec<TcpStream>>,
    connections: AtomicUsize,
    waker: Waker,
}

fn main() -> io::Result<()> {
    let options = Options::parse();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = options.threads.unwrap_or(cores).max(1);
    let mut polls = Vec::new();
    let mut desks = Vec::new();
    for _ in 0..threads {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        desks.push(Arc::new(Desk { arrivals: Mutex::new(Vec::new()), connections: AtomicUsize::new(0), waker }));
        polls.push(poll);
    }
    let value: Arc<[u8]> = options.value.into_bytes().into();
    for (desk, poll) in desks.iter().cloned().zip(polls) {
        let value = value.clone();
        std::thread::spawn(move || serve(&desk, poll, &value));
    }
    accept(options.listen, &desks)
}

/// Takes connections and deals each to the thread that has the fewest.
fn accept(address: SocketAddr, desks: &[Arc<Desk>]) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let mut listener = TcpListener::bind(address)?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    println!("null-server: listening on {address}, {} threads", desks.len());
    let mut events = Events::with_capacity(8);
    loop {
        match poll.poll(&mut events, None) {
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            other => other?,
        }
        while let Ok((socket, _)) = listener.accept() {
            let Some(desk) = desks.iter().min_by_key(|d| d.connections.load(Ordering::Relaxed)) else {
                continue;
            };
            desk.connections.fetch_add(1, Ordering::Relaxed);
            if let Ok(mut arrivals) = desk.arrivals.lock() {
                arrivals.push(socket);
            }
            desk.waker.wake()?;
        }
    }
}

fn serve(desk: &Desk, mut poll: Poll, value: &[u8]) {
    let mut events = Events::with_capacity(1024);
    let mut connections: HashMap<usize, Connection> = HashMap::new();
    let mut next_token = 0;
    let mut chunk = vec![0; 64 * 1024];
    loop {
        if poll.poll(&mut events, None).is_err() {
            continue;
        }
        for event in &events {
            if event.token() == WAKER {
                let arrived = desk.arrivals.lock().map(|mut a| std::mem::take(&mut *a)).unwrap_or_default();
                for mut socket in arrived {
                    let interest = Interest::READABLE | Interest::WRITABLE;
                    let registered = poll.registry().register(&mut socket, Token(next_token), interest);
                    if socket.set_nodelay(true).and(registered).is_ok() {
                        connections.insert(next_token, Connection::new(socket));
                        next_token += 1;
                    }
                }
                continue;
            }
            let token = event.token().0;
            let Some(connection) = connections.get_mut(&token) else {
                continue;
            };
            if connection.turn(&mut chunk, value).is_err() {
                connections.remove(&token);
                desk.connections.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

/// What a statement's first word asks for.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Row,
    Refused,
    CopyIn,
    Tag(&'static [u8]),
}

fn kind_of(statement: &[u8]) -> Kind {
    let start = statement.iter().position(|b| b.is_ascii_alphabetic()).unwrap_or(0);
    let word = statement[start..].split(|b| !b.is_ascii_alphabetic()).next().unwrap_or(b"");
    // pgbench's question about partitions: it takes an error for "none", but not a row that it can't read.
    let catalog = statement.windows(8).any(|w| w == b"pg_class");
    match word.to_ascii_lowercase().as_slice() {
        b"select" | b"with" if catalog => Kind::Refused,
        b"select" | b"with" => Kind::Row,
        b"copy" => Kind::CopyIn,
        b"insert" => Kind::Tag(b"INSERT 0 1\0"),
        b"update" => Kind::Tag(b"UPDATE 1\0"),
        b"delete" => Kind::Tag(b"DELETE 1\0"),
        b"begin" => Kind::Tag(b"BEGIN\0"),
        b"end" | b"commit" => Kind::Tag(b"COMMIT\0"),
        _ => Kind::Tag(b"OK\0"),
    }
}

struct Connection {
    socket: TcpStream,
    input: Vec<u8>,
    output: Vec<u8>,
    started: bool,
    statements: HashMap<Vec<u8>, Kind>,
    portal: Kind,
}

fn message(out: &mut Vec<u8>, tag: u8, parts: &[&[u8]]) {
    let length: usize = 4 + parts.iter().map(|p| p.len()).sum::<usize>();
    out.push(tag);
    out.extend_from_slice(&(length as u32).to_be_bytes());
    for part in parts {
        out.extend_from_slice(part);
    }
}

fn row_description(out: &mut Vec<u8>) {
    // One column "v" of type text, no table.
    let fields = b"\0\x01v\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0";
    message(out, b'T', &[fields]);
}

fn ready(out: &mut Vec<u8>) {
    message(out, b'Z', &[b"I"]);
}

fn answer(out: &mut Vec<u8>, kind: Kind, value: &[u8]) {
    match kind {
        Kind::Row => {
            message(out, b'D', &[b"\0\x01", &(value.len() as u32).to_be_bytes(), value]);
            message(out, b'C', &[b"SELECT 1\0"]);
        }
        Kind::Refused => message(out, b'E', &[b"SERROR\0VERROR\0C0A000\0Mnull server\0\0"]),
        Kind::CopyIn => message(out, b'G', &[b"\0\0\0"]),
        Kind::Tag(tag) => message(out, b'C', &[tag]),
    }
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&b| b == 0).next().unwrap_or(b"")
}

impl Connection {
    fn new(socket: TcpStream) -> Connection {
        Connection {
            socket,
            input: Vec::new(),
            output: Vec::new(),
            started: false,
            statements: HashMap::new(),
            portal: Kind::Row,
        }
    }

    /// Reads what has arrived, answers it, writes once. An error means: the connection is over.
    fn turn(&mut self, chunk: &mut [u8], value: &[u8]) -> io::Result<()> {
        loop {
            match self.socket.read(chunk) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    self.input.extend_from_slice(&chunk[..n]);
                    self.answer_all(value)?;
                    // epoll(7): a short read from a stream has emptied it; the next byte is a new edge.
                    if n < chunk.len() {
                        break;
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        while !self.output.is_empty() {
            match self.socket.write(&self.output) {
                Ok(n) => drop(self.output.drain(..n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn answer_all(&mut self, value: &[u8]) -> io::Result<()> {
        let input = std::mem::take(&mut self.input);
        let mut at = 0;
        loop {
            let rest = &input[at..];
            let header = if self.started { 5 } else { 4 };
            if rest.len() < header {
                break;
            }
            let length = rest[header - 4..header].iter().fold(0usize, |n, &b| (n << 8) | usize::from(b));
            if length < 4 {
                return Err(ErrorKind::InvalidData.into());
            }
            let end = header - 4 + length;
            if rest.len() < end {
                break;
            }
            let body = &rest[header..end];
            if self.started {
                self.message(rest[0], body, value)?;
            } else {
                self.startup(body);
            }
            at += end;
        }
        self.input = input;
        self.input.drain(..at);
        Ok(())
    }

    fn startup(&mut self, body: &[u8]) {
        // SSLRequest and GSSENCRequest carry 1234 in the upper half of the version.
        if body.starts_with(&1234u16.to_be_bytes()) {
            self.output.push(b'N');
            return;
        }
        self.started = true;
        message(&mut self.output, b'R', &[&[0; 4]]);
        for (name, setting) in [
            ("server_version", "16.0"),
            ("client_encoding", "UTF8"),
            ("server_encoding", "UTF8"),
            ("standard_conforming_strings", "on"),
            ("integer_datetimes", "on"),
        ] {
            message(&mut self.output, b'S', &[name.as_bytes(), b"\0", setting.as_bytes(), b"\0"]);
        }
        message(&mut self.output, b'K', &[&[0; 8]]);
        ready(&mut self.output);
    }

    fn message(&mut self, tag: u8, body: &[u8], value: &[u8]) -> io::Result<()> {
        let out = &mut self.output;
        match tag {
            b'Q' => {
                let kind = kind_of(body);
                if kind == Kind::Row {
                    row_description(out);
                }
                answer(out, kind, value);
                if kind != Kind::CopyIn {
                    ready(out);
                }
            }
            b'P' => {
                let name = until_nul(body);
                self.statements.insert(name.to_vec(), kind_of(body.get(name.len() + 1..).unwrap_or_default()));
                message(out, b'1', &[]);
            }
            b'B' => {
                let portal = until_nul(body);
                let name = until_nul(body.get(portal.len() + 1..).unwrap_or_default());
                self.portal = self.statements.get(name).copied().unwrap_or(Kind::Refused);
                message(out, b'2', &[]);
            }
            b'D' => {
                if body.first() == Some(&b'S') {
                    message(out, b't', &[b"\0\0"]);
                    self.portal = self
                        .statements
                        .get(until_nul(body.get(1..).unwrap_or_default()))
                        .copied()
                        .unwrap_or(Kind::Refused);
                }
                match self.portal {
                    Kind::Row => row_description(out),
                    _ => message(out, b'n', &[]),
                }
            }
            b'E' => answer(out, self.portal, value),
            b'S' => ready(out),
            b'C' => message(out, b'3', &[]),
            b'c' => {
                message(out, b'C', &[b"COPY 1\0"]);
                ready(out);
            }
            b'X' => return Err(ErrorKind::ConnectionAborted.into()),
            _ => {}
        }
        Ok(())
    }
}
