//! A database that isn't one, and a client that shows every byte: what the protocol tests stand on.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use homenode_platform::task::{self, Task};
use homenode_platform::wait::WaitEvent;
use homenode_scram::Verifier;
use homenode_server::{
    Backend, Config, Handle, Interrupt, Outcome, Output, Parameters, Role, Server, ServerError, Session,
};
use homenode_types::{Error, Result, SqlState};

/// What the double saw.
#[derive(Default)]
pub struct Seen {
    pub opened: AtomicU32,
    pub closed: AtomicUsize,
    /// Sessions that were dropped inside a transaction or a COPY.
    pub rolled_back: AtomicUsize,
    pub stopping: AtomicBool,
    pub copied_bytes: AtomicUsize,
    pub threads: Mutex<Vec<String>>,
    signals: Mutex<Vec<Arc<Signal>>>,
}

pub struct Double(pub Arc<Seen>);

#[derive(Default)]
pub struct Signal {
    cancelled: AtomicBool,
    terminated: AtomicBool,
    task: Mutex<Option<Task>>,
}

impl Signal {
    fn check(&self) -> Result<()> {
        if self.terminated.load(Ordering::SeqCst) {
            return Err(Error::new(SqlState::ADMIN_SHUTDOWN, "terminating connection due to administrator command"));
        }
        if self.cancelled.swap(false, Ordering::SeqCst) {
            return Err(Error::new(SqlState::QUERY_CANCELED, "canceling statement due to user request"));
        }
        Ok(())
    }

    fn wake(&self) {
        if let Some(task) = &*self.task.lock().unwrap() {
            task.unpark();
        }
    }
}

impl Interrupt for Signal {
    fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        self.wake();
    }
}

/// Understands `row`, `rows COUNT BYTES`, `wait`, `nap`, `fail`, `panic`, `begin`, `commit` and `copy`.
pub struct DoubleSession {
    seen: Arc<Seen>,
    number: u32,
    signal: Arc<Signal>,
    status: u8,
    copying: bool,
    statement: String,
}

impl Backend for Double {
    fn role(&self, name: &str) -> Option<Role> {
        let verifier = Verifier::of("secret").unwrap().to_string();
        (name == "ann").then_some(Role { login: true, verifier: Some(verifier), expired: false })
    }

    fn is_member(&self, _: &str, _: &str) -> bool {
        false
    }

    type Session = DoubleSession;

    fn connect(&self, _lane: usize, _parameters: &Parameters) -> Result<DoubleSession> {
        let number = self.0.opened.fetch_add(1, Ordering::SeqCst) + 1;
        let name = std::thread::current().name().unwrap_or("").to_owned();
        self.0.threads.lock().unwrap().push(name);
        let signal = Arc::new(Signal::default());
        self.0.signals.lock().unwrap().push(signal.clone());
        let (seen, statement) = (self.0.clone(), String::new());
        Ok(DoubleSession { seen, number, signal, status: b'I', copying: false, statement })
    }

    fn is_stopping(&self) -> bool {
        self.0.stopping.load(Ordering::SeqCst)
    }

    fn stop_sessions(&self) {
        self.0.stopping.store(true, Ordering::SeqCst);
        for signal in self.0.signals.lock().unwrap().iter() {
            signal.terminated.store(true, Ordering::SeqCst);
            signal.wake();
        }
    }
}

impl Drop for DoubleSession {
    fn drop(&mut self) {
        if self.status != b'I' || self.copying {
            self.seen.rolled_back.fetch_add(1, Ordering::SeqCst);
        }
        self.seen.closed.fetch_add(1, Ordering::SeqCst);
    }
}

fn put(out: &mut Vec<u8>, tag: u8, body: &[u8]) {
    out.push(tag);
    out.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    out.extend_from_slice(body);
}

fn put_row(out: &mut Vec<u8>, value: &[u8]) {
    let mut body = vec![0, 1];
    body.extend_from_slice(&(value.len() as u32).to_be_bytes());
    body.extend_from_slice(value);
    put(out, b'D', &body);
}

impl DoubleSession {
    fn run(&mut self, text: &str, out: &mut dyn Output) -> Result<Outcome> {
        let words: Vec<&str> = text.split(' ').collect();
        match words.as_slice() {
            ["row"] => put_row(out.buffer(), b"1"),
            ["rows", count, bytes] => {
                let value = vec![b'x'; bytes.parse().unwrap()];
                for _ in 0..count.parse::<usize>().unwrap() {
                    put_row(out.buffer(), &value);
                    out.flush_if_large()?;
                }
            }
            ["wait"] => loop {
                self.signal.check()?;
                *self.signal.task.lock().unwrap() = Some(task::current());
                task::park(WaitEvent::RowLock);
            },
            ["nap"] => {
                task::park_timeout(WaitEvent::Sleep, 50_000_000);
            }
            ["fail"] => return Err(Error::new(SqlState::SYNTAX_ERROR, "no")),
            ["panic"] => panic!("asked to"),
            ["begin"] => self.status = b'T',
            ["commit"] => self.status = b'I',
            ["copy"] => {
                self.copying = true;
                put(out.buffer(), b'G', &[0, 0, 0]);
                return Ok(Outcome::CopyIn);
            }
            _ => return Err(Error::new(SqlState::UNDEFINED_OBJECT, "what?")),
        }
        self.signal.check()?;
        put(out.buffer(), b'C', b"OK\0");
        Ok(Outcome::Done)
    }
}

impl DoubleSession {
    fn refuse(&mut self, error: &Error, out: &mut dyn Output) -> Outcome {
        self.failed();
        let severity = if error.code == SqlState::ADMIN_SHUTDOWN { "FATAL" } else { "ERROR" };
        let fields = format!("S{severity}\0C{}\0M{}\0\0", error.code, error.message);
        put(out.buffer(), b'E', fields.as_bytes());
        Outcome::Done
    }
}

impl Session for DoubleSession {
    fn process_id(&self) -> u32 {
        self.number
    }
    fn interrupt(&self) -> Arc<dyn Interrupt> {
        self.signal.clone()
    }
    fn parameter_status(&self, out: &mut Vec<u8>) {
        put(out, b'S', b"server_version\x0016.0\0");
    }
    fn simple(&mut self, text: &str, out: &mut dyn Output) -> Outcome {
        self.run(text, out).unwrap_or_else(|error| self.refuse(&error, out))
    }
    fn parse(&mut self, _name: &str, text: &str, _parameter_types: &[u32]) -> Result<()> {
        self.statement = text.to_owned();
        if text == "fail" { Err(Error::new(SqlState::SYNTAX_ERROR, "no")) } else { Ok(()) }
    }
    fn bind(&mut self, _: &str, _: &str, _: &[i16], _: &[Option<&[u8]>], _: &[i16]) -> Result<()> {
        Ok(())
    }
    fn describe_statement(&mut self, _name: &str, out: &mut dyn Output) -> Result<()> {
        put(out.buffer(), b't', &[0, 0]);
        put(out.buffer(), b'n', &[]);
        Ok(())
    }
    fn describe_portal(&mut self, _name: &str, out: &mut dyn Output) -> Result<()> {
        put(out.buffer(), b'n', &[]);
        Ok(())
    }
    fn execute(&mut self, _portal: &str, _max_rows: u32, out: &mut dyn Output) -> Result<Outcome> {
        let statement = self.statement.clone();
        self.run(&statement, out)
    }
    fn close_statement(&mut self, _name: &str) {}
    fn close_portal(&mut self, _name: &str) {}
    fn failed(&mut self) {
        self.copying = false;
        if self.status == b'T' {
            self.status = b'E';
        }
    }
    fn sync(&mut self) -> Result<()> {
        Ok(())
    }
    fn copy_data(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes == b"bad" {
            return Err(Error::new(SqlState::BAD_COPY_FILE_FORMAT, "bad row"));
        }
        self.seen.copied_bytes.fetch_add(bytes.len(), Ordering::SeqCst);
        Ok(())
    }
    fn copy_done(&mut self, out: &mut dyn Output) -> Outcome {
        self.copying = false;
        put(out.buffer(), b'C', b"COPY\0");
        Outcome::Done
    }
    fn copy_fail(&mut self, reason: &str, out: &mut dyn Output) -> Outcome {
        self.refuse(&Error::new(SqlState::QUERY_CANCELED, reason), out)
    }
    fn copy_error(&mut self, error: Error, out: &mut dyn Output) -> Outcome {
        self.refuse(&error, out)
    }
    fn transaction_status(&self) -> u8 {
        self.status
    }
}

/// A server in this process; stopped when dropped.
pub struct Running {
    pub address: SocketAddr,
    pub seen: Arc<Seen>,
    handle: Handle,
    thread: Option<JoinHandle<std::result::Result<(), ServerError>>>,
}

impl Running {
    pub fn start(workers: usize, max_connections: usize) -> Running {
        let seen = Arc::new(Seen::default());
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let config = Config { listen, workers, max_connections, ..Config::default() };
        let server = Server::bind(config, Double(seen.clone())).unwrap();
        let (address, handle) = (server.address(), server.handle());
        let thread = std::thread::spawn(move || server.run());
        Running { address, seen, handle, thread: Some(thread) }
    }

    pub fn stop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
    }

    pub fn connect(&self) -> Client {
        let mut client = Client::raw(self.address);
        client.send_startup(3 << 16, &[("user", "a"), ("database", "postgres")]);
        assert_eq!(client.tags_until(b'Z'), "RSKZ");
        client
    }

    /// Waits until `condition` holds of what the double saw.
    pub fn wait_for(&self, condition: impl Fn(&Seen) -> bool) {
        for _ in 0..500 {
            if condition(&self.seen) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it did not happen in five seconds");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A client that sends and receives single messages.
pub struct Client {
    pub socket: TcpStream,
    pub key: [u8; 8],
}

pub fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put(&mut bytes, tag, body);
    bytes
}

pub fn query(text: &str) -> Vec<u8> {
    message(b'Q', format!("{text}\0").as_bytes())
}

/// Parse, Bind and Execute of one unnamed statement.
pub fn extended(text: &str) -> Vec<u8> {
    let mut bytes = message(b'P', format!("\0{text}\0\0\0").as_bytes());
    bytes.extend(message(b'B', &[0; 8]));
    bytes.extend(message(b'E', &[0; 5]));
    bytes
}

pub fn sync() -> Vec<u8> {
    message(b'S', b"")
}

impl Client {
    pub fn raw(address: SocketAddr) -> Client {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket.set_nodelay(true).unwrap();
        Client { socket, key: [0; 8] }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    pub fn send_startup(&mut self, version: u32, pairs: &[(&str, &str)]) {
        let mut body = version.to_be_bytes().to_vec();
        for (name, value) in pairs {
            body.extend(format!("{name}\0{value}\0").bytes());
        }
        body.push(0);
        let length = body.len() as u32 + 4;
        self.send(&[&length.to_be_bytes()[..], &body].concat());
    }

    /// The next message; `None` at the end of the stream.
    pub fn receive(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut header = [0; 5];
        self.socket.read_exact(&mut header).ok()?;
        let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
        let mut body = vec![0; length - 4];
        self.socket.read_exact(&mut body).ok()?;
        if header[0] == b'K' {
            self.key.copy_from_slice(&body);
        }
        Some((header[0], body))
    }

    /// The tags of the messages up to the first `last`.
    pub fn tags_until(&mut self, last: u8) -> String {
        let mut tags = String::new();
        while let Some((tag, _)) = self.receive() {
            tags.push(tag as char);
            if tag == last {
                return tags;
            }
        }
        panic!("the stream ended after {tags:?}");
    }

    /// The code of the next message, which has to be an error, and whether it ends the session.
    pub fn error(&mut self) -> (String, bool) {
        let (tag, body) = self.receive().expect("an error");
        assert_eq!(tag, b'E');
        let fields: Vec<String> = body.split(|&b| b == 0).map(|f| String::from_utf8_lossy(f).into_owned()).collect();
        let code = fields.iter().find(|f| f.starts_with('C')).unwrap()[1..].to_owned();
        (code, fields.iter().any(|f| f == "SFATAL"))
    }

    pub fn is_closed(&mut self) -> bool {
        self.receive().is_none()
    }
}
